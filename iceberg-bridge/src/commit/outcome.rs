//! Calls whose answer may get lost: a put, and the move of a pointer, each made until it is known
//! what became of it.

use bytes::Bytes;
use floe_env::{Env, Error, ErrorKind, Result};
use floe_metadata::facts::ChangeOutcome;
use floe_store::ObjectStore;
use std::sync::Arc;
use std::time::Duration;

/// Times that a move of the pointer is made until its outcome is known.
pub(super) const MOVES_MAX: u32 = 6;
/// First pause between two of these; doubles each time.
const MOVE_PAUSE: Duration = Duration::from_millis(50);
/// Times that an object is put until its outcome is known.
const PUT_TRIES_MAX: usize = 3;

/// What became of a move of the pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    Applied,
    Rejected,
    /// Rejected after a try that may have worked: the table tells.
    Undecided,
}

/// Makes a move until its outcome is known.
pub(crate) async fn until_known<Moving>(
    env: &Env,
    mut make: impl FnMut() -> Moving,
) -> Result<Moved>
where
    Moving: Future<Output = Result<ChangeOutcome>>,
{
    let mut pause = MOVE_PAUSE;
    let mut unknown: Option<Error> = None;
    for _ in 0..MOVES_MAX {
        match make().await {
            Ok(ChangeOutcome::Applied) => return Ok(Moved::Applied),
            Ok(ChangeOutcome::Rejected) if unknown.is_none() => return Ok(Moved::Rejected),
            Ok(ChangeOutcome::Rejected) => return Ok(Moved::Undecided),
            Err(error) if error.kind() == ErrorKind::UnknownOutcome => unknown = Some(error),
            // Once a try may have worked, only an answer tells.
            Err(error) if unknown.is_none() => return Err(error),
            Err(error) => tracing::debug!(%error, "asking again for a commit's outcome"),
        }
        env.sleep(pause).await;
        pause *= 2;
    }
    Err(unknown.unwrap_or_else(|| Error::unknown_outcome("move a table's pointer")))
}

/// Puts an object, in pieces, under a key that nobody else uses.
pub(crate) async fn put(
    store: Arc<dyn ObjectStore>,
    key: String,
    pieces: Vec<Bytes>,
) -> Result<()> {
    let mut tried = 1;
    loop {
        match store.put(&key, pieces.clone()).await {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::UnknownOutcome && tried < PUT_TRIES_MAX => {
                tried += 1;
            }
            Err(error) => return Err(error.context("put a table's file")),
        }
    }
}

/// Deletes files that no version names, and none ever will. Best effort: what stays behind is an
/// orphan, which the sweep finds.
pub(crate) async fn delete_unnamed(store: &dyn ObjectStore, keys: &[String]) {
    if keys.is_empty() {
        return;
    }
    if let Err(error) = store.delete(keys).await {
        tracing::warn!(%error, "files of a failed commit stay until the orphan sweep");
    }
}
