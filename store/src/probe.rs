//! The start-up probe: a store that lacks a permission, or a property that Floe stands on, is
//! refused before anything depends on it, with one sentence that says what to change. It costs two
//! PUTs, two GETs, one LIST, one HEAD and one DELETE. Give it a store whose retries end before a
//! step does, or the reason is lost.

use crate::object::{ObjectStore, PutOutcome};
use bytes::Bytes;
use floe_env::{Env, Error, Result};
use std::time::Duration;

/// The folder of probes.
pub const PROBE_FOLDER: &str = "probe";

/// How long one step may take.
pub const PROBE_STEP_TIMEOUT: Duration = Duration::from_secs(15);

/// What a probe writes.
const CONTENT: &[u8] = b"floe start-up probe";

/// Objects that a probe's listing looks through.
const LIST_LIMIT: usize = 1000;

/// Writes, reads, lists and deletes one object under `probe/`, and makes sure that it cannot be
/// overwritten.
///
/// # Errors
/// What went wrong, with the step and the reason; `Invalid` where only an operator can change it.
pub async fn probe(env: &Env, store: &dyn ObjectStore) -> Result<()> {
    let key = format!("{PROBE_FOLDER}/{}", env.uuid().simple());
    let probe = Probe { env, store, key: &key };
    probe.write().await?;
    let checked = probe.check().await;
    let deleted = probe.delete().await;
    checked.and(deleted)
}

struct Probe<'a> {
    env: &'a Env,
    store: &'a dyn ObjectStore,
    key: &'a str,
}

impl Probe<'_> {
    /// One step, in time, its error with its name.
    async fn step<T>(&self, name: &str, call: impl Future<Output = Result<T>>) -> Result<T> {
        let doing = format!("object store probe, {name}");
        match self.env.timeout(PROBE_STEP_TIMEOUT, call).await {
            Some(result) => result.map_err(|error| error.context(&doing)),
            None => {
                let message = format!("{doing}: no answer in {PROBE_STEP_TIMEOUT:?}");
                Err(Error::unavailable(message))
            }
        }
    }

    fn wrong(&self, what: &str) -> Error {
        Error::invalid(format!("object store probe of {}: {what}", self.store.url(PROBE_FOLDER)))
    }

    async fn write(&self) -> Result<()> {
        let parts = vec![Bytes::from_static(CONTENT)];
        match self.step("writing", self.store.put(self.key, parts)).await? {
            PutOutcome::Created => Ok(()),
            PutOutcome::Exists => Err(self.wrong("a key that was never used is taken")),
        }
    }

    async fn check(&self) -> Result<()> {
        let other = vec![Bytes::from_static(b"overwritten")];
        let again = self.step("writing the same key again", self.store.put(self.key, other));
        if again.await? != PutOutcome::Exists {
            let reason = "the store ignores conditional creates (If-None-Match), without which \
                          brokers could overwrite each other";
            return Err(self.wrong(reason));
        }
        if self.step("reading", self.store.get(self.key)).await?.as_deref() != Some(CONTENT) {
            return Err(self.wrong("an object is not read as it was written"));
        }
        let range = self.step("reading a range", self.store.get_range(self.key, 5..13)).await?;
        if range != CONTENT[5..13] {
            return Err(self.wrong("the store does not read ranges"));
        }
        let listing = self.store.list(PROBE_FOLDER, None, LIST_LIMIT);
        let listed = self.step("listing", listing).await?;
        if listed.len() < LIST_LIMIT && !listed.iter().any(|object| object.key == self.key) {
            return Err(self.wrong("an object that was just written is not listed"));
        }
        Ok(())
    }

    async fn delete(&self) -> Result<()> {
        let keys = [self.key.to_owned()];
        self.step("deleting", self.store.delete(&keys)).await?;
        match self.step("looking", self.store.head(self.key)).await? {
            None => Ok(()),
            Some(_) => Err(self.wrong("a deleted object is still there")),
        }
    }
}
