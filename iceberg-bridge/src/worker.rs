//! One table's work: its newest version, its turns, and the loop that runs them. A turn reads the
//! pointer, stages what lies between the table's progress and the turn's cut, commits it, and
//! starts again where somebody else was faster.

use crate::commit::{
    CommitCounts, CommitEnd, Committer, LoadedTable, Ownership, Removed, ResumeFrom, StagedFile,
    foreign_schema,
};
use crate::config::BridgeConfig;
use crate::encode::{DecodeCounts, EncoderConfig, ValueFormat};
use crate::log_reader::{LogReader, PartitionCut};
use crate::mapping::Mapping;
use crate::pointer::TablePointers;
use crate::progress::Progress;
use crate::staging::{StagedRange, Stager, Start};
use crate::status::{TableState, TableStatus, WorkerStatus};
use crate::turns::{TurnEnd, Turns};
use floe_env::{Env, Error, Instant, Lane, Result};
use floe_store::ObjectStore;
use kfs::TopicId;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};

/// Least time between the starts of two turns of one table.
const TURN_PAUSE: Duration = Duration::from_secs(1);
/// Commits in the background at the same time, over all tables.
const BACKGROUND_COMMITS_MAX: usize = 2;
/// Commits that looks wait for at the same time, over all tables: a budget of their own.
const LOOK_COMMITS_MAX: usize = 4;
/// Times that a turn may be overtaken before it is given up.
const OVERTAKEN_MAX: u32 = 8;
/// Bytes of log that a record takes, until a table's own are known.
const RECORD_BYTES_GUESS: i64 = 1024;

/// What all tables share.
pub(crate) struct Shared {
    pub(crate) env: Env,
    pub(crate) config: BridgeConfig,
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) pointers: Arc<dyn TablePointers>,
    pub(crate) log: Arc<dyn LogReader>,
    committer: Committer,
    stager: Stager,
    background_commits: Semaphore,
    look_commits: Semaphore,
}

impl Shared {
    pub(crate) fn new(
        env: Env,
        config: BridgeConfig,
        store: Arc<dyn ObjectStore>,
        pointers: Arc<dyn TablePointers>,
        log: Arc<dyn LogReader>,
    ) -> Self {
        let committer =
            Committer::new(env.clone(), store.clone(), pointers.clone(), config.cluster)
                .with_rules(config.expiry);
        let stager = Stager::new(env.clone(), store.clone(), log.clone());
        Self {
            env,
            config,
            store,
            pointers,
            log,
            committer,
            stager,
            background_commits: Semaphore::new(BACKGROUND_COMMITS_MAX),
            look_commits: Semaphore::new(LOOK_COMMITS_MAX),
        }
    }
}

/// One topic's table, made or not.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    pub(crate) topic: TopicId,
    pub(crate) topic_name: String,
    committer: Committer,
    counts: Arc<CommitCounts>,
    /// Held while a commit is made, so that those of one broker never conflict.
    commit_gate: tokio::sync::Mutex<()>,
    turns: Mutex<Turns>,
    state: Mutex<State>,
}

struct State {
    newest: Option<Arc<LoadedTable>>,
    /// At or beyond the newest version's progress: offsets in between hold no rows.
    scanned: Progress,
    status: WorkerStatus,
    record_bytes: i64,
    /// The copy of the table's progress that the metadata store has, as far as is known.
    published: Option<Progress>,
    /// The newest commit did not reach its turn's cut.
    is_backfilling: bool,
    last_turn: Option<Instant>,
    value_format: ValueFormat,
}

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>, topic: TopicId, topic_name: String) -> Arc<Self> {
        let state = State {
            newest: None,
            scanned: Progress::start(topic),
            status: WorkerStatus::default(),
            record_bytes: RECORD_BYTES_GUESS,
            published: None,
            is_backfilling: false,
            last_turn: None,
            value_format: ValueFormat::Auto,
        };
        let counts = Arc::new(CommitCounts::default());
        Arc::new(Self {
            committer: shared.committer.counting(counts.clone()),
            counts,
            commit_gate: tokio::sync::Mutex::default(),
            turns: Mutex::default(),
            state: Mutex::new(state),
            shared,
            topic,
            topic_name,
        })
    }

    /// The newest version that is known.
    pub(crate) fn newest(&self) -> Option<Arc<LoadedTable>> {
        self.state.lock().newest.clone()
    }

    /// True where waiting for a commit makes no sense: the table is stopped, or far behind.
    pub(crate) fn is_hopeless(&self) -> bool {
        let state = self.state.lock();
        state.is_backfilling || state.newest.as_ref().is_some_and(|table| table.stopped.is_some())
    }

    /// True if every row below `ends` is in the newest known version.
    pub(crate) fn covers(&self, ends: &[i64]) -> bool {
        let mut state = self.state.lock();
        let is_covered = state.scanned.covers(ends);
        let behind = state.scanned.behind(ends);
        state.status.note_lag(behind, self.shared.env.now_ms());
        is_covered
    }

    /// Offsets below `ends` that the newest known version does not have, and their bytes in the log
    /// by estimate.
    pub(crate) fn behind(&self, ends: &[i64]) -> (i64, i64) {
        let state = self.state.lock();
        let offsets = state.scanned.behind(ends);
        (offsets, offsets.saturating_mul(state.record_bytes))
    }

    /// For how long the table has not had all, as far as it was seen.
    pub(crate) fn lag(&self) -> Duration {
        let now_ms = self.shared.env.now_ms();
        let lag_ms = self.state.lock().status.lag_ms(now_ms);
        Duration::from_millis(lag_ms.unsigned_abs())
    }

    /// The table's progress, if the metadata store's copy is another.
    pub(crate) fn unpublished_progress(&self) -> Option<Progress> {
        let state = self.state.lock();
        let table = state.newest.as_ref().filter(|table| table.stopped.is_none())?;
        (state.published.as_ref() != Some(&table.progress)).then(|| table.progress.clone())
    }

    /// Notes the copy that the metadata store has.
    pub(crate) fn note_published(&self, progress: Progress) {
        self.state.lock().published = Some(progress);
    }

    pub(crate) fn note_error(&self, error: &Error) {
        self.state.lock().status.last_error = Some(error.to_string());
    }

    /// Reads the pointer, and the version that it names if that is not known yet.
    pub(crate) async fn refresh(&self) -> Result<Option<Arc<LoadedTable>>> {
        let known = self.newest();
        let pointers = &self.shared.pointers;
        let same_name = match known.as_ref().map(|table| &table.pointer) {
            Some(known) => pointers.by_name(&known.namespace, &known.name).await?,
            None => None,
        };
        let pointer = match same_name.filter(|pointer| pointer.topic() == Some(self.topic)) {
            Some(pointer) => Some(pointer),
            // It may have got another name.
            None => pointers.by_topic(self.topic).await?,
        };
        match (known, pointer) {
            (Some(table), Some(pointer)) if table.pointer == pointer => Ok(Some(table)),
            (_, Some(pointer)) => {
                let (store, cluster) = (self.shared.store.as_ref(), self.shared.config.cluster);
                let table = Arc::new(LoadedTable::load(store, cluster, pointer).await?);
                Ok(Some(self.set_newest(table)))
            }
            (_, None) => {
                let mut state = self.state.lock();
                if state.newest.take().is_some() {
                    state.scanned = Progress::start(self.topic);
                }
                Ok(None)
            }
        }
    }

    /// Takes over a version unless a newer one is known; answers the newest.
    fn set_newest(&self, table: Arc<LoadedTable>) -> Arc<LoadedTable> {
        let mut state = self.state.lock();
        let newer = state.newest.as_ref().filter(|known| {
            known.pointer.table_id == table.pointer.table_id
                && known.pointer.metadata_version > table.pointer.metadata_version
        });
        if let Some(newer) = newer {
            return newer.clone();
        }
        let has_same_progress =
            |known: &Arc<LoadedTable>| known.stopped.is_none() && known.progress == table.progress;
        if table.stopped.is_some() || !state.newest.as_ref().is_some_and(has_same_progress) {
            state.scanned = table.progress.clone();
        }
        state.newest = Some(table.clone());
        table
    }

    /// The newest known version if what was staged for `base` can go onto it: so a commit of this
    /// broker that came in between is no conflict.
    fn newest_like(&self, base: Arc<LoadedTable>) -> Arc<LoadedTable> {
        let is_like = |newest: &Arc<LoadedTable>| {
            newest.pointer.table_id == base.pointer.table_id
                && newest.pointer.sweeps == base.pointer.sweeps
                && newest.pointer.metadata_version > base.pointer.metadata_version
        };
        self.newest().filter(is_like).unwrap_or(base)
    }

    /// Commits files in the place of others with the same rows; see [`Committer::replace`].
    pub(crate) async fn replace(
        &self,
        base: Arc<LoadedTable>,
        removed: Removed,
        files: Vec<StagedFile>,
    ) -> Result<CommitEnd> {
        let _gate = self.commit_gate.lock().await;
        let end = self.committer.replace(self.newest_like(base), removed, files).await?;
        if let CommitEnd::Committed(table) = &end {
            self.set_newest(table.clone());
        }
        Ok(end)
    }

    /// Lets a stopped table go on, as an operator has decided. `None` if there is no table.
    pub(crate) async fn resume(&self, from: ResumeFrom) -> Result<Option<TableStatus>> {
        let _gate = self.commit_gate.lock().await;
        let Some(base) = self.refresh().await? else { return Ok(None) };
        match self.committer.resume(base, from).await? {
            CommitEnd::Committed(table) => {
                self.set_newest(table);
                self.state.lock().status.last_error = None;
                Ok(Some(self.status()))
            }
            CommitEnd::Overtaken => Err(Error::retry("the table has changed meanwhile")),
        }
    }

    /// Asks for a commit that covers `cut`. Whoever asked may go away: the turn runs all the same.
    pub(crate) fn request(
        self: &Arc<Self>,
        cut: Vec<PartitionCut>,
        is_look: bool,
    ) -> watch::Receiver<TurnEnd> {
        let joined = self.turns.lock().join(cut, is_look);
        if joined.start_runner {
            let worker = self.clone();
            let running = async move { worker.run_turns().await };
            // It ends by itself, and turns tell their own end.
            drop(self.shared.env.spawn("table-turns", Lane::Background, running));
        }
        joined.ended
    }

    async fn run_turns(self: Arc<Self>) {
        let env = &self.shared.env;
        loop {
            let Some(is_look) = self.turns.lock().peek() else { return };
            let last_turn = self.state.lock().last_turn;
            if let Some(last_turn) = last_turn {
                env.sleep_until(last_turn + TURN_PAUSE).await;
            }
            let budget = match is_look {
                true => &self.shared.look_commits,
                false => &self.shared.background_commits,
            };
            let permit = budget.acquire().await.expect("the budget is never closed");
            let Some(turn) = self.turns.lock().take() else { return };
            self.state.lock().last_turn = Some(env.monotonic());
            let advancing = self.clone().advance(turn.cut.clone());
            // A task of its own, so that a panic ends the turn and not the runner.
            let ended = env.spawn("table-turn", Lane::Background, advancing).await;
            let ended = ended.unwrap_or_else(|error| Err(Error::bug(error.to_string())));
            drop(permit);
            self.note_end(&ended);
            self.turns.lock().finish();
            turn.end(ended);
        }
    }

    fn note_end(&self, ended: &Result<()>) {
        let error = ended.as_ref().err();
        if let Some(error) = error {
            tracing::warn!(topic = %self.topic_name, %error, "table commit failed");
        }
        let mut state = self.state.lock();
        state.status.failures += u64::from(error.is_some());
        state.status.last_error = error.map(ToString::to_string);
        // Whatever is missing now, the next look may well reach.
        state.is_backfilling = false;
    }

    /// Brings the table to `cut`.
    async fn advance(self: Arc<Self>, cut: Vec<PartitionCut>) -> Result<()> {
        let ends = ends(&cut);
        let mut overtaken = 0;
        while overtaken < OVERTAKEN_MAX {
            let had_table = self.newest().is_some();
            let base = self.refresh().await?;
            if had_table && base.is_none() {
                return Err(Error::fenced("the table was dropped"));
            }
            if let Some(reason) = base.as_ref().and_then(|table| table.stopped.as_ref()) {
                return Err(Error::fenced(format!("table is stopped: {reason}")));
            }
            if self.covers(&ends) {
                return Ok(());
            }
            let (start, owner) = self.start(base.as_ref());
            let range = self.shared.stager.stage(&start, &cut).await?;
            let reaches_cut = range.reaches_cut;
            if !self.commit(base, owner, range).await? {
                overtaken += 1;
                continue;
            }
            self.state.lock().is_backfilling = !reaches_cut;
            if reaches_cut {
                self.covers(&ends);
                return Ok(());
            }
        }
        Err(Error::retry("others kept committing to the table"))
    }

    fn start(&self, base: Option<&Arc<LoadedTable>>) -> (Start, Ownership) {
        let (topic, cluster) = (self.topic, self.shared.config.cluster);
        let table = base.map_or_else(|| self.shared.env.uuid(), |base| base.pointer.table_id);
        let committed = base.map_or_else(|| Progress::start(topic), |base| base.progress.clone());
        let (scanned, format) = {
            let state = self.state.lock();
            (state.scanned.clone(), state.value_format)
        };
        let limits = self.shared.config.mapping_limits;
        let start = Start {
            topic,
            place: self.shared.committer.place(topic, table),
            committed,
            scanned,
            is_new: base.is_none(),
            schema: base.and_then(|base| foreign_schema(&base.mapping, &base.metadata)),
            mapping: base.map_or_else(Mapping::new, |base| base.mapping.clone()),
            encoder: EncoderConfig { format, limits },
        };
        (start, Ownership { cluster, topic, table })
    }

    /// False if somebody else was faster.
    async fn commit(
        &self,
        base: Option<Arc<LoadedTable>>,
        owner: Ownership,
        range: StagedRange,
    ) -> Result<bool> {
        let (log_bytes, offsets, counts) = (range.log_bytes, range.offsets, range.counts);
        let staged = range.staged;
        // Markers and aborted records alone are not worth a commit: they are passed again after a
        // restart.
        if staged.files.is_empty() && (staged.gaps.is_empty() || base.is_none()) {
            self.state.lock().scanned = staged.to;
            return Ok(true);
        }
        let committer = &self.committer;
        let gate = self.commit_gate.lock().await;
        let end = match base {
            Some(base) => committer.append(self.newest_like(base), staged).await?,
            None => {
                let namespace = &self.shared.config.namespace;
                committer.create(namespace, &self.topic_name, owner, staged).await?
            }
        };
        let CommitEnd::Committed(table) = end else { return Ok(false) };
        self.set_newest(table);
        drop(gate);
        let mut state = self.state.lock();
        state.status.commits += 1;
        self.note_counts(&mut state.status, &counts);
        state.status.last_commit_ms = Some(self.shared.env.now_ms());
        if offsets > 0 {
            let log_bytes = i64::try_from(log_bytes).unwrap_or(i64::MAX);
            state.record_bytes = (log_bytes / offsets).max(1);
        }
        Ok(true)
    }

    /// Adds what became of a commit's values; the first time that a limit is met is an event.
    fn note_counts(&self, status: &mut WorkerStatus, counts: &DecodeCounts) {
        let before = status.decoded.limits.named();
        status.decoded.add(counts);
        for ((limit, was), (_, is)) in before.into_iter().zip(status.decoded.limits.named()) {
            if was == 0 && is > 0 {
                let topic = &self.topic_name;
                tracing::warn!(%topic, limit, "values have no column: the table's limit is met");
            }
        }
    }

    /// How values become rows from the next commit on.
    pub(crate) fn set_value_format(&self, format: ValueFormat) {
        self.state.lock().value_format = format;
    }

    pub(crate) fn status(&self) -> TableStatus {
        let state = self.state.lock();
        let newest = state.newest.as_ref();
        let gap_offsets = newest.map_or(0, |table| table.gap_offsets());
        let stopped = newest.and_then(|table| table.stopped.clone());
        let failing = state.status.last_error.clone();
        let lost = (gap_offsets > 0)
            .then(|| format!("{gap_offsets} offsets were lost before they were read"));
        let (table_state, reason) = match (stopped, failing.clone().or(lost)) {
            (Some(reason), _) => (TableState::Stopped, Some(reason)),
            (None, Some(reason)) => (TableState::Degraded, Some(reason)),
            (None, None) => (TableState::Running, None),
        };
        TableStatus {
            topic: self.topic,
            topic_name: self.topic_name.clone(),
            table: newest.map(|table| table.pointer.name.clone()),
            state: table_state,
            reason,
            lag_records: state.status.lag_records,
            lag_ms: state.status.lag_ms(self.shared.env.now_ms()),
            commits: state.status.commits,
            last_commit_ms: state.status.last_commit_ms,
            last_error: failing,
            gap_offsets,
            files: newest.map_or(0, |table| table.total("total-data-files")),
            bytes: newest.map_or(0, |table| table.total("total-files-size")),
            conflicts: self.counts.conflicts.load(Ordering::Relaxed),
            puts: self.counts.puts.load(Ordering::Relaxed),
            failures: state.status.failures,
            columns: newest.map_or(0, |table| table.mapping.leaves()),
            decoded: state.status.decoded,
        }
    }
}

/// The last stable offsets of a cut.
pub(crate) fn ends(cut: &[PartitionCut]) -> Vec<i64> {
    cut.iter().map(|partition| partition.last_stable_offset).collect()
}
