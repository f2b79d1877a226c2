//! Cleaning up behind the log: objects that no extent names any more, objects that were never
//! committed, and outcomes that nobody will ask for again.
//!
//! * **Dead objects** are deleted after a grace, by the metadata store's clock, and forgotten only
//!   then: a crash between the two deletes them again. The grace is longer than any reader holds on
//!   to an extent.
//! * **Orphans** are objects under the cluster's root of a registration that is closed, and that no
//!   row names. The registrations are read first: a closed one commits nothing any more, so what is
//!   not named afterwards never will be. Age says nothing, and is not looked at. Only keys that the
//!   log itself makes are touched.
//! * **Outcomes** of this registration's segments are forgotten once they are answered, those of
//!   closed ones at once: whoever still asks is fenced.
//!
//! * Where **snapshots** of the metadata are taken, what the newest one may name stays: a
//!   [`SnapshotMoment`] says when that was.
//!
//! While the metadata store says that deletion is stopped (it was put back from a backup, and does
//! not know of all that was committed), nothing is deleted.
//!
//! Each round is bounded, the next goes on where it ended, and several cleaners do no harm.

use crate::keys::{FRESH_FOLDER, MERGED_FOLDER, owner};
use crate::log::Log;
use floe_env::{Background, Env, Instant, Result, Shutdown};
use floe_metadata::MetadataStore;
use floe_metadata::brokers::BrokerEpochs;
use kfs::{BrokerEpoch, BrokerId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;

/// Pause between rounds.
pub const CLEAN_PAUSE: Duration = Duration::from_secs(30);
/// A dead object is kept so long: longer than the longest fetch, cache life and table job.
pub const GRACE: Duration = Duration::from_hours(1);
/// The same where one process owns the store: all its readers end within minutes, and small
/// produces leave a thousand files a second. Who comes later all the same looks up the extents
/// again.
pub const LOCAL_GRACE: Duration = Duration::from_mins(10);
/// Dead objects of one page. A directory is synced once a page, S3 deletes a thousand a request.
const DEAD_PER_PAGE: usize = 10_000;
/// Objects that one transaction forgets: commits of producers wait for it.
const FORGOTTEN_AT_ONCE: usize = 1000;
/// Pages of dead objects that one round deletes at most: more than a local disk can write between
/// two rounds.
const DEAD_PAGES_PER_ROUND_MAX: usize = 10;
/// Objects of one page of a listing.
const LISTED_PER_PAGE: usize = 1000;
/// Pages that one round lists at most.
const LISTED_PAGES_PER_ROUND_MAX: usize = 8;
/// A sweep for orphans begins when a registration has ended, and this long after the last one: an
/// upload may arrive after its broker is gone.
pub const SWEEP_AGAIN_AFTER: Duration = Duration::from_hours(6);
/// What died so shortly before a snapshot may still be named in it: a transaction's time is taken
/// before it commits, ms.
const SNAPSHOT_MARGIN_MS: i64 = 60_000;

/// When objects are deleted.
#[derive(Clone, Copy, Debug)]
pub struct CleanRules {
    /// See [`CLEAN_PAUSE`].
    pub pause: Duration,
    /// See [`GRACE`].
    pub grace: Duration,
    /// See [`SWEEP_AGAIN_AFTER`].
    pub sweep_again_after: Duration,
}

impl Default for CleanRules {
    fn default() -> Self {
        Self { pause: CLEAN_PAUSE, grace: GRACE, sweep_again_after: SWEEP_AGAIN_AFTER }
    }
}

/// When the newest snapshot of the metadata was taken that is durable; never, at first. Shared by
/// its clones.
#[derive(Clone, Debug)]
pub struct SnapshotMoment(Arc<AtomicI64>);

impl Default for SnapshotMoment {
    fn default() -> Self {
        Self(Arc::new(AtomicI64::new(i64::MIN)))
    }
}

impl SnapshotMoment {
    /// One was taken then, by the metadata store's clock, ms since 1970.
    pub fn set(&self, ms: i64) {
        self.0.store(ms, Ordering::Release);
    }

    /// When that was; `None` before the first.
    pub fn get(&self) -> Option<i64> {
        Some(self.0.load(Ordering::Acquire)).filter(|&ms| ms != i64::MIN)
    }
}

/// Where orphans are looked for.
static FOLDERS: [&str; 2] = [FRESH_FOLDER, MERGED_FOLDER];

/// What a round did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanRound {
    /// Dead objects that were deleted.
    pub dead: usize,
    /// Orphans that were deleted.
    pub orphans: usize,
}

/// Cleans up behind the log; cheap to clone.
#[derive(Clone)]
pub struct Cleaner(Arc<Inner>);

struct Inner {
    env: Env,
    log: Log,
    metadata: MetadataStore,
    rules: CleanRules,
    /// Where snapshots are taken.
    snapshot: Option<SnapshotMoment>,
    memory: Mutex<Memory>,
    /// What the last round found.
    is_stopped: AtomicBool,
}

/// What is remembered between rounds.
#[derive(Default)]
struct Memory {
    sweep: Option<Sweep>,
    /// The registrations of the last whole sweep, and when it ended.
    swept: Option<(Vec<BrokerEpochs>, Instant)>,
    /// The counter up to which outcomes are forgotten.
    forgotten: Option<u64>,
    /// The newest closed registration of each broker whose outcomes are forgotten.
    forgotten_registrations: BTreeMap<BrokerId, BrokerEpoch>,
}

/// A sweep for orphans on its way.
struct Sweep {
    /// The registrations as they were when it began.
    epochs: Vec<BrokerEpochs>,
    /// Which of [`FOLDERS`].
    folder: usize,
    /// The last key that was looked at.
    after: Option<String>,
}

impl Cleaner {
    /// A cleaner under the log's registration.
    pub fn new(env: &Env, log: &Log, metadata: MetadataStore, rules: CleanRules) -> Self {
        Self::beside_snapshots(env, log, metadata, rules, None)
    }

    /// The same, where snapshots of the metadata are taken.
    pub fn beside_snapshots(
        env: &Env,
        log: &Log,
        metadata: MetadataStore,
        rules: CleanRules,
        snapshot: Option<SnapshotMoment>,
    ) -> Self {
        let (env, log, memory) = (env.clone(), log.clone(), Mutex::default());
        let is_stopped = AtomicBool::new(false);
        Self(Arc::new(Inner { env, log, metadata, rules, snapshot, memory, is_stopped }))
    }

    /// True where the last round found that nothing may be deleted.
    pub fn is_stopped(&self) -> bool {
        self.0.is_stopped.load(Ordering::Relaxed)
    }

    /// Starts the background job.
    pub fn start(&self, shutdown: Shutdown) -> Background {
        let cleaner = self.clone();
        Background::start(&self.0.env, "clean", self.0.rules.pause, shutdown, move || {
            let cleaner = cleaner.clone();
            async move {
                let done = cleaner.round().await?;
                if done != CleanRound::default() {
                    tracing::debug!(done.dead, done.orphans, "deleted objects");
                }
                Ok(())
            }
        })
    }

    /// One round.
    ///
    /// # Errors
    /// The first one; its parts do not wait for each other's success.
    pub async fn round(&self) -> Result<CleanRound> {
        let mut memory = self.0.memory.lock().await;
        let is_stopped = self.0.metadata.deletion_stop().await?.is_some();
        self.0.is_stopped.store(is_stopped, Ordering::Relaxed);
        let (dead, orphans) = match is_stopped {
            true => (Ok(0), Ok(0)),
            false => (self.0.delete_dead().await, self.0.sweep(&mut memory).await),
        };
        let forgotten = self.0.forget_outcomes(&mut memory).await;
        let closed = self.0.forget_registrations(&mut memory).await;
        let round = CleanRound { dead: dead?, orphans: orphans? };
        forgotten.and(closed).map(|()| round)
    }
}

impl Inner {
    /// Deletes what has been dead for the grace, oldest first.
    async fn delete_dead(&self) -> Result<usize> {
        let grace_ms = i64::try_from(self.rules.grace.as_millis()).unwrap_or(i64::MAX);
        let now_ms = self.metadata.now_ms().await?;
        let snapshot = self.snapshot.as_ref().map(|moment| moment.get());
        let before_ms = match snapshot {
            None => now_ms.saturating_sub(grace_ms),
            // Nothing yet says what a restore would bring back.
            Some(None) => return Ok(0),
            Some(Some(taken_ms)) => {
                taken_ms.saturating_sub(SNAPSHOT_MARGIN_MS).min(now_ms.saturating_sub(grace_ms))
            }
        };
        let mut deleted = 0;
        for _ in 0..DEAD_PAGES_PER_ROUND_MAX {
            let page = self.metadata.dead_objects(before_ms, DEAD_PER_PAGE).await?;
            let keys: Vec<String> = page.into_iter().map(|object| object.key).collect();
            self.delete(&keys).await?;
            for some in keys.chunks(FORGOTTEN_AT_ONCE) {
                self.metadata.forget_objects(some).await?;
            }
            deleted += keys.len();
            if keys.len() < DEAD_PER_PAGE {
                break;
            }
        }
        Ok(deleted)
    }

    /// Goes on with the sweep for orphans, or begins one where it is due.
    async fn sweep(&self, memory: &mut Memory) -> Result<usize> {
        if memory.sweep.is_none() {
            let epochs = self.metadata.broker_epochs().await?;
            let is_done = |(swept, at): &(Vec<BrokerEpochs>, Instant)| {
                *swept == epochs && self.env.monotonic() - *at < self.rules.sweep_again_after
            };
            if memory.swept.as_ref().is_some_and(is_done) {
                return Ok(0);
            }
            memory.sweep = Some(Sweep { epochs, folder: 0, after: None });
        }
        let Some(sweep) = &mut memory.sweep else { return Ok(0) };
        let mut deleted = 0;
        for _ in 0..LISTED_PAGES_PER_ROUND_MAX {
            let Some(folder) = FOLDERS.get(sweep.folder) else { break };
            let (page_len, orphans) = self.sweep_page(folder, sweep).await?;
            deleted += orphans;
            if page_len < LISTED_PER_PAGE {
                sweep.folder += 1;
                sweep.after = None;
            }
        }
        if sweep.folder == FOLDERS.len() {
            let ended = memory.sweep.take();
            memory.swept = ended.map(|sweep| (sweep.epochs, self.env.monotonic()));
        }
        Ok(deleted)
    }

    /// Deletes the orphans of one page. Answers the page's length and how many they were.
    async fn sweep_page(&self, folder: &str, sweep: &mut Sweep) -> Result<(usize, usize)> {
        let reader = self.log.reader();
        let (folder, root) = (format!("{}/{folder}", reader.root), format!("{}/", reader.root));
        let page = reader.store.list(&folder, sweep.after.as_deref(), LISTED_PER_PAGE).await?;
        let is_closed = |key: &str| {
            owner(key).is_some_and(|id| {
                let mut epochs = sweep.epochs.iter();
                epochs.any(|epochs| epochs.id == id.broker && epochs.is_closed(id.epoch))
            })
        };
        let keys = page.iter().filter_map(|object| object.key.strip_prefix(&root));
        let closed: Vec<String> = keys.filter(|key| is_closed(key)).map(str::to_owned).collect();
        let known = self.metadata.known_objects(&closed).await?;
        let unknown = closed.into_iter().zip(known).filter(|(_, is_known)| !is_known);
        let orphans: Vec<String> = unknown.map(|(key, _)| key).collect();
        self.delete(&orphans).await?;
        if let Some(last) = page.last() {
            sweep.after = Some(last.key.clone());
        }
        Ok((page.len(), orphans.len()))
    }

    /// Forgets the outcomes of this registration that have been answered.
    async fn forget_outcomes(&self, memory: &mut Memory) -> Result<()> {
        let Some(answered) = self.log.answered_up_to() else { return Ok(()) };
        if Some(answered.counter) > memory.forgotten {
            self.metadata.forget_outcomes(&self.log.config().fence, answered).await?;
            memory.forgotten = Some(answered.counter);
        }
        Ok(())
    }

    /// Forgets the outcomes of registrations that have been closed since the last round.
    async fn forget_registrations(&self, memory: &mut Memory) -> Result<()> {
        for epochs in self.metadata.broker_epochs().await? {
            let closed = BrokerEpoch(epochs.last.0 - i64::from(epochs.is_open));
            if memory.forgotten_registrations.get(&epochs.id) != Some(&closed) {
                self.metadata.forget_registrations(epochs.id, closed).await?;
                memory.forgotten_registrations.insert(epochs.id, closed);
            }
        }
        Ok(())
    }

    /// Deletes objects by their keys below the cluster's root.
    async fn delete(&self, keys: &[String]) -> Result<()> {
        if keys.is_empty() {
            return Ok(());
        }
        let reader = self.log.reader();
        let objects: Vec<String> =
            keys.iter().map(|key| format!("{}/{key}", reader.root)).collect();
        reader.store.delete(&objects).await
    }
}
