//! One table's work: its newest version, its turns, and the loop that runs them. A turn reads the
//! pointer, stages what lies between the table's progress and the turn's cut, commits it, and
//! starts again where somebody else was faster, or where one commit does not take it to its cut: a
//! backfill is a turn of many commits, each of which is kept whatever happens to the next, and
//! between two of them it queues behind the turns of other tables.
//!
//! `worker/refresh.rs` reads which version is the newest, `worker/status.rs` says how it all is,
//! and `worker/hold.rs` brings it to a cut and no further.

mod hold;
mod refresh;
mod status;

use crate::budget::{CommitBudget, CommitPermit, becomes_look};
use crate::commit::{
    CommitCounts, CommitEnd, Committer, Gap, LoadedTable, Ownership, Removed, ResumeFrom,
    StagedFile, TableHead, delete_unnamed, foreign_schema, is_untouched,
};
use crate::config::BridgeConfig;
use crate::encode::{DecodeCounts, EncoderConfig};
use crate::log_reader::{LogRange, LogReader, PartitionCut};
use crate::mapping::Mapping;
use crate::newest::Newest;
use crate::pointer::TablePointers;
use crate::progress::Progress;
use crate::rest::RestCatalog;
use crate::staging::{StagedRange, Stager, Start};
use crate::status::{TableStatus, WorkerStatus};
use crate::table_settings::TableSettings;
use crate::turns::{TurnEnd, Turns};
use floe_env::{Env, Error, Instant, Lane, Result};
use floe_store::ObjectStore;
use kfs::{PartitionIndex, TopicId, TopicPartition};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{MutexGuard, watch};

/// Least time between the starts of two turns of one table.
const TURN_PAUSE: Duration = Duration::from_secs(1);
/// The pause doubles with each turn in a row that fails, so many times at most, unless somebody
/// looks: a store that is down is not asked every second to take what it did not take.
const PAUSE_DOUBLED_MAX: u32 = 6;
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
    /// Where tables are committed to, if not to the embedded catalog.
    pub(crate) rest: Option<Arc<RestCatalog>>,
    pub(crate) log: Arc<dyn LogReader>,
    committer: Committer,
    stager: Stager,
    commits: CommitBudget,
    /// What became of the values committed since the broker started, also to tables now gone.
    pub(crate) decoded: Mutex<DecodeCounts>,
}

impl Shared {
    pub(crate) fn new(
        env: Env,
        config: BridgeConfig,
        store: Arc<dyn ObjectStore>,
        pointers: Arc<dyn TablePointers>,
        rest: Option<Arc<RestCatalog>>,
        log: Arc<dyn LogReader>,
    ) -> Self {
        let committer =
            Committer::new(env.clone(), store.clone(), pointers.clone(), config.cluster)
                .with_rules(config.expiry)
                .with_catalog(rest.clone());
        let stage_bytes_max = config.stage_bytes_max;
        let stager = Stager::new(env.clone(), store.clone(), log.clone(), stage_bytes_max);
        let (commits, decoded) = (CommitBudget::new(), Mutex::default());
        Self { env, config, store, pointers, rest, log, committer, stager, commits, decoded }
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
    /// Held while a turn runs. Whoever else holds it has the table stay where it is.
    turn_gate: Arc<tokio::sync::Mutex<()>>,
    turns: Mutex<Turns>,
    state: Mutex<State>,
}

struct State {
    newest: Option<Newest>,
    /// Counts the versions that were taken over as the newest.
    taken_over: u64,
    /// The topic's table was looked for, and there was none.
    is_unmade: bool,
    /// The name of the table, if another catalog has it no more.
    dropped: Option<String>,
    /// When another catalog was asked last.
    asked: Option<Instant>,
    /// At or beyond the newest version's progress: offsets in between hold no rows.
    scanned: Progress,
    /// Gaps below it that no version has noted: the table has yet to be made.
    gaps: Vec<Gap>,
    status: WorkerStatus,
    record_bytes: i64,
    /// The copy of the table's progress that the metadata store has, as far as is known.
    published: Option<Progress>,
    /// The running turn's cut is further away than a look may wait.
    is_backfilling: bool,
    last_turn: Option<Instant>,
    /// The newest turns that failed, without one between that did not.
    failed_turns: u32,
    settings: TableSettings,
}

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>, topic: TopicId, topic_name: String) -> Arc<Self> {
        let state = State {
            newest: None,
            taken_over: 0,
            is_unmade: false,
            dropped: None,
            asked: None,
            scanned: Progress::start(topic),
            gaps: Vec::new(),
            status: WorkerStatus::default(),
            record_bytes: RECORD_BYTES_GUESS,
            published: None,
            is_backfilling: false,
            last_turn: None,
            failed_turns: 0,
            settings: TableSettings::default(),
        };
        let counts = Arc::new(CommitCounts::default());
        Arc::new(Self {
            committer: shared.committer.counting(counts.clone()),
            counts,
            commit_gate: tokio::sync::Mutex::default(),
            turn_gate: Arc::default(),
            turns: Mutex::default(),
            state: Mutex::new(state),
            shared,
            topic,
            topic_name,
        })
    }

    /// The newest version that is known, without its metadata.
    pub(crate) fn head(&self) -> Option<Arc<TableHead>> {
        self.state.lock().newest.as_ref().map(|newest| newest.head().clone())
    }

    /// The newest version that is known. Opened where its metadata was let go.
    pub(crate) async fn newest(&self) -> Result<Option<Arc<LoadedTable>>> {
        loop {
            let head = {
                let now = self.shared.env.monotonic();
                let mut state = self.state.lock();
                let Some(newest) = &mut state.newest else { return Ok(None) };
                match newest.whole(now) {
                    Some(table) => return Ok(Some(table)),
                    None => newest.head().clone(),
                }
            };
            let table = Arc::new(self.shared.env.blocking(move || head.open()).await?);
            let mut state = self.state.lock();
            if state.newest.as_mut().is_some_and(|newest| newest.opened(&table)) {
                return Ok(Some(table));
            }
        }
    }

    /// Lets go of metadata that nobody has used for a while.
    pub(crate) fn rest(&self) {
        let now = self.shared.env.monotonic();
        if let Some(newest) = &mut self.state.lock().newest {
            newest.rest(now);
        }
    }

    /// True where waiting for a commit makes no sense: the table is not written, or far behind.
    pub(crate) fn is_hopeless(&self) -> bool {
        let state = self.state.lock();
        let is_stopped = |newest: &Newest| newest.head().stopped.is_some();
        state.is_backfilling
            || state.newest.as_ref().is_some_and(is_stopped)
            || state.dropped.is_some()
            || !state.settings.is_enabled
    }

    /// True if every row below `ends` is in the newest known version.
    pub(crate) fn covers(&self, ends: &[i64]) -> bool {
        let mut state = self.state.lock();
        let behind = state.scanned.behind(ends);
        state.status.note_lag(behind, self.shared.env.now_ms());
        behind == 0
    }

    /// Offsets below `ends` that the table does not have, and their bytes in the log by estimate.
    pub(crate) fn behind(&self, ends: &[i64]) -> (i64, i64) {
        let state = self.state.lock();
        let offsets = state.scanned.behind(ends);
        (offsets, offsets.saturating_mul(state.record_bytes))
    }

    /// What a commit up to a cut would read.
    pub(crate) fn ranges(&self, cut: &[PartitionCut]) -> Vec<LogRange> {
        let state = self.state.lock();
        let range = |(partition, ends): (usize, &PartitionCut)| {
            let from = state.scanned.next_offset(partition).max(ends.log_start_offset);
            let until = ends.last_stable_offset;
            let index = PartitionIndex(i32::try_from(partition).ok()?);
            let place = TopicPartition { topic: self.topic, partition: index };
            (from < until).then_some(LogRange { partition: place, from, until })
        };
        cut.iter().enumerate().filter_map(range).collect()
    }

    /// For how long the table has not had all, as far as it was seen.
    pub(crate) fn lag(&self) -> Duration {
        let now_ms = self.shared.env.now_ms();
        let lag_ms = self.state.lock().status.lag_ms(now_ms);
        Duration::from_millis(lag_ms.unsigned_abs())
    }

    /// The table's progress, if the metadata store's copy is another. Of a stopped table what it
    /// says that it holds: a rewind will need the rest of the log. Of one that has yet to be made,
    /// none: the copy may be of a table in another catalog.
    pub(crate) fn unpublished_progress(&self) -> Option<Progress> {
        let state = self.state.lock();
        let start = Progress::start(self.topic);
        let progress = match state.newest.as_ref().map(Newest::head) {
            Some(table) if table.stopped.is_some() && table.progress == start => return None,
            Some(table) => table.progress.clone(),
            None if state.is_unmade => start,
            None => return None,
        };
        (state.published.as_ref() != Some(&progress)).then_some(progress)
    }

    /// Notes the copy that the metadata store has.
    pub(crate) fn note_published(&self, progress: Progress) {
        self.state.lock().published = Some(progress);
    }

    /// Notes how a visit of the background job has ended.
    pub(crate) fn note_visit(&self, error: Option<&Error>) {
        self.state.lock().status.note_visit(error);
    }

    /// Commits files in the place of others with the same rows; see [`Committer::replace`].
    pub(crate) async fn replace(
        &self,
        base: Arc<LoadedTable>,
        removed: Removed,
        files: Vec<StagedFile>,
    ) -> Result<CommitEnd> {
        let _gate = self.commit_gate.lock().await;
        let base = match self.asked_like(base).await {
            Ok(base) => base,
            Err(error) => {
                // They are on the store already, and no sweep comes where another catalog is.
                let keys: Vec<String> = files.into_iter().map(|file| file.key).collect();
                delete_unnamed(self.shared.store.as_ref(), &keys).await;
                return Err(error);
            }
        };
        let end = self.committer.replace(base, removed, files).await?;
        Ok(self.take_over(end))
    }

    /// Takes files out whose rows are too old; see [`Committer::trim`].
    pub(crate) async fn trim(&self, base: Arc<LoadedTable>, removed: Removed) -> Result<CommitEnd> {
        let _gate = self.commit_gate.lock().await;
        let base = self.asked_like(base).await?;
        let end = self.committer.trim(base, removed).await?;
        Ok(self.take_over(end))
    }

    fn take_over(&self, end: CommitEnd) -> CommitEnd {
        if let CommitEnd::Committed(table) = &end {
            self.set_newest(table.clone());
        }
        end
    }

    /// Lets a stopped table go on, as an operator has decided. `None` if there is no table.
    pub(crate) async fn resume(&self, from: ResumeFrom) -> Result<Option<TableStatus>> {
        let _gate = self.commit_gate.lock().await;
        let Some(base) = self.refresh().await? else { return self.resume_dropped(from).await };
        match self.resumed(base, from).await? {
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
        loop {
            let Some(mut is_look) = self.turns.lock().peek() else { return };
            self.pause(&mut is_look).await;
            // Before the permit, so that nobody who waits here holds others up.
            let gate = self.turn_gate.lock().await;
            let permit = self.shared.commits.first(&mut is_look).await;
            let Some(turn) = self.turns.lock().take() else { return };
            self.state.lock().last_turn = Some(self.shared.env.monotonic());
            let ended = self.run_turn(&turn.cut, permit, Some(gate)).await;
            self.note_end(&ended);
            self.turns.lock().finish();
            turn.end(ended);
        }
    }

    /// The pause between two turns: longer after failures, unless somebody looks.
    async fn pause(&self, is_look: &mut watch::Receiver<bool>) {
        let (last_turn, failed_turns) = {
            let state = self.state.lock();
            (state.last_turn, state.failed_turns)
        };
        let (env, Some(last_turn)) = (&self.shared.env, last_turn) else { return };
        env.sleep_until(last_turn + TURN_PAUSE).await;
        let pause = TURN_PAUSE * 2_u32.pow(failed_turns.min(PAUSE_DOUBLED_MAX));
        tokio::select! {
            biased;
            true = becomes_look(is_look) => {}
            () = env.sleep_until(last_turn + pause) => {}
        }
    }

    /// Runs a turn commit by commit. Between two of them the permit goes back, so that a table that
    /// is far behind holds nobody up; it then goes on with those that nobody waits for. So does the
    /// gate, unless the caller has it: who wants to hold the table waits for one commit.
    async fn run_turn(
        self: &Arc<Self>,
        cut: &[PartitionCut],
        mut permit: CommitPermit<'_>,
        mut gate: Option<MutexGuard<'_, ()>>,
    ) -> Result<()> {
        loop {
            let advancing = self.clone().advance(cut.to_vec());
            // A task of its own, so that a panic ends the turn and not the runner.
            let ended = self.shared.env.spawn("table-turn", Lane::Background, advancing).await;
            let ended = ended.unwrap_or_else(|error| Err(Error::bug(error.to_string())));
            drop(permit);
            let had_gate = gate.take().is_some();
            if ended? {
                return Ok(());
            }
            if had_gate {
                gate = Some(self.turn_gate.lock().await);
            }
            permit = self.shared.commits.rest().await;
        }
    }

    fn note_end(&self, ended: &Result<()>) {
        let error = ended.as_ref().err();
        if let Some(error) = error {
            tracing::warn!(topic = %self.topic_name, %error, "table commit failed");
        }
        let mut state = self.state.lock();
        state.failed_turns = error.map_or(0, |_| state.failed_turns.saturating_add(1));
        state.status.failures += u64::from(error.is_some());
        state.status.last_error = error.map(ToString::to_string);
        // Whatever is missing now, the next look may well reach.
        state.is_backfilling = false;
    }

    /// Brings the table to `cut`, or as far as one commit takes it. True if it is there.
    async fn advance(self: Arc<Self>, cut: Vec<PartitionCut>) -> Result<bool> {
        let ends = ends(&cut);
        for _ in 0..OVERTAKEN_MAX {
            let had_table = self.head().is_some();
            let mut base = self.refresh().await?;
            if let Some(reason) = self.dropped() {
                return Err(Error::fenced(format!("table is stopped: {reason}")));
            }
            if had_table && base.is_none() {
                return Err(Error::fenced("the table was dropped"));
            }
            if let Some(reason) = base.as_ref().and_then(|table| table.stopped.as_ref()) {
                return Err(Error::fenced(format!("table is stopped: {reason}")));
            }
            if self.covers(&ends) {
                return Ok(true);
            }
            if base.is_none() {
                base = self.make_at_catalog().await?;
            }
            let began = self.shared.env.monotonic();
            let (start, owner) = self.start(base.as_ref());
            let range = self.shared.stager.stage(&start, &cut).await?;
            let (reaches_cut, passed) = (range.reaches_cut, range.offsets);
            if !self.commit(base, owner, range).await? {
                continue;
            }
            self.covers(&ends);
            self.note_pace(passed, self.shared.env.monotonic() - began, &ends);
            return Ok(reaches_cut);
        }
        Err(Error::retry("others kept committing to the table"))
    }

    /// Tells by the pace of the newest commit whether the rest takes longer than a look may wait.
    fn note_pace(&self, passed: i64, took: Duration, ends: &[i64]) {
        let wide = |number: i64| u128::from(number.max(0).unsigned_abs());
        let rest = wide(self.behind(ends).0);
        let in_a_look = wide(passed) * self.shared.config.look_timeout.as_millis();
        self.state.lock().is_backfilling = rest * took.as_millis() > in_a_look;
    }

    fn start(&self, base: Option<&Arc<LoadedTable>>) -> (Start, Ownership) {
        let (topic, cluster) = (self.topic, self.shared.config.cluster);
        let table = base.map_or_else(|| self.shared.env.uuid(), |base| base.pointer.table_id);
        let committed = base.map_or_else(|| Progress::start(topic), |base| base.progress.clone());
        let (scanned, gaps, format) = {
            let state = self.state.lock();
            (state.scanned.clone(), state.gaps.clone(), state.settings.value_format)
        };
        let limits = self.shared.config.mapping_limits;
        let start = Start {
            topic,
            place: base.map_or_else(
                || self.shared.committer.place(topic, table),
                |base| base.place.clone(),
            ),
            committed,
            scanned,
            gaps,
            is_new: base.is_none_or(|base| is_untouched(&base.metadata)),
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
        let (log_bytes, offsets) = (range.log_bytes, range.offsets);
        let (counts, staged) = (range.staged.counts, range.staged);
        self.count_puts(range.puts);
        // Markers and aborted records alone are not worth a commit: they are passed again after a
        // restart.
        if staged.files.is_empty() && (staged.gaps.is_empty() || base.is_none()) {
            let mut state = self.state.lock();
            (state.scanned, state.gaps) = (staged.to, staged.gaps);
            return Ok(true);
        }
        let committer = &self.committer;
        let gate = self.commit_gate.lock().await;
        let end = match base {
            Some(base) => committer.append(self.newest_like(base).await?, staged).await?,
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
        self.shared.decoded.lock().add(counts);
        for ((limit, was), (_, is)) in before.into_iter().zip(status.decoded.limits.named()) {
            if was == 0 && is > 0 {
                tracing::warn!(topic = %self.topic_name, limit, "values get no column: a limit is met");
            }
        }
    }

    /// What holds from the next commit on.
    pub(crate) fn set_settings(&self, settings: TableSettings) {
        self.state.lock().settings = settings;
    }

    pub(crate) fn settings(&self) -> TableSettings {
        self.state.lock().settings
    }

    /// Counts objects that were put outside of a commit.
    pub(crate) fn count_puts(&self, puts: u64) {
        self.counts.puts.fetch_add(puts, Ordering::Relaxed);
    }

    /// Notes how many files are as large as they get.
    pub(crate) fn note_full_files(&self, full_files: u64) {
        self.state.lock().status.full_files = Some(full_files);
    }
}

/// The last stable offsets of a cut.
pub(crate) fn ends(cut: &[PartitionCut]) -> Vec<i64> {
    cut.iter().map(|partition| partition.last_stable_offset).collect()
}
