//! Looks for a serial order of a concurrent history: what each answer shows of partitions' versions
//! and of segments' outcomes, and real time, say which call was before which. If that has a cycle,
//! there is no such order. The model then makes the calls in that order and must answer the same.

use super::histories::{Unseen, World, moved};
use super::*;
use crate::model::ModelBackend;
use std::collections::{BTreeMap, BTreeSet};

pub(super) enum Call {
    Commit(SegmentFacts),
    Abandon(SegmentId),
    Advance(TopicPartition, i64),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Outcome(SegmentOutcome),
    State(PartitionState),
}

/// A call, its answer, and when by the history's own clock.
pub(super) struct Record {
    pub(super) called: u64,
    pub(super) answered: u64,
    pub(super) call: Call,
    pub(super) answer: Answer,
}

/// What a call saw of a partition: its version then.
struct Sight {
    partition: TopicPartition,
    version: u64,
    log_start: i64,
    raised: Raised,
}

/// Whether a call raised the version that it saw.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Raised {
    Yes,
    No,
    /// Of such calls with one version, any may have been the first: they all do the same.
    OneOfThem,
}

/// Who saw one version of a partition.
#[derive(Default)]
struct Version {
    raised_by: Option<usize>,
    one_of_them: Vec<usize>,
    seen_by: Vec<usize>,
}

/// Panics unless the records have a serial order that the model confirms.
pub(super) async fn check(
    world: &World,
    env: &Env,
    seed: u64,
    mut records: Vec<Record>,
    states: &[Option<PartitionState>],
    unseen: Unseen,
) {
    records.sort_by_key(|record| record.called);
    let after = constraints(&records);
    let order = topological(&after, &records)
        .unwrap_or_else(|| panic!("the history of seed {seed} has no serial order"));
    let model: Arc<dyn Backend> = Arc::new(ModelBackend::new(env.clone()));
    let context = Context::new(model, env.clone(), histories::FIRST_CONCURRENT_CASE + seed);
    let same = World::new(&context).await;
    assert_eq!((&same.broker, &same.partitions), (&world.broker, &world.partitions));
    let store = context.store();
    let fence = &world.broker.fence;
    let mut filled = Filled { context: &context, world: &same, unseen: &unseen, merges: 0 };
    for at in order {
        let record = &records[at];
        for before in before(store, record).await {
            filled.until(&before).await;
        }
        let answer = match &record.call {
            Call::Commit(segment) => {
                let segments = std::slice::from_ref(segment);
                let mut outcomes = store.commit_segments(fence, segments).await.unwrap();
                Answer::Outcome(outcomes.remove(0))
            }
            Call::Abandon(id) => Answer::Outcome(store.abandon_segment(fence, *id).await.unwrap()),
            Call::Advance(partition, offset) => {
                let state = store.advance_log_start(*partition, *offset).await.unwrap();
                Answer::State(state.unwrap())
            }
        };
        assert_eq!(answer, record.answer, "call {} of seed {seed}", record.called);
    }
    for (partition, state) in world.partitions.iter().zip(states) {
        let PartitionState { version, log_start_offset, .. } = state.unwrap();
        let log_start = Some(log_start_offset);
        filled.until(&Before { partition: *partition, version, log_start }).await;
    }
    assert_eq!(store.partition_states(&world.partitions).await.unwrap(), states);
    let (made, most) = (filled.merges, unseen.merges + unseen.merges_in_doubt);
    assert!((unseen.merges..=most).contains(&made), "{made} merges of {unseen:?}");
}

/// What a partition must have been before a record.
struct Before {
    partition: TopicPartition,
    version: u64,
    /// `None` if the record itself moved it.
    log_start: Option<i64>,
}

async fn before(store: &MetadataStore, record: &Record) -> Vec<Before> {
    let mut all = Vec::new();
    for Sight { partition, version, log_start, raised } in sights(record) {
        let moves = match (raised, &record.call) {
            (Raised::OneOfThem, Call::Advance(_, offset)) => {
                let state = store.partition_states(&[partition]).await.unwrap()[0].unwrap();
                // One that was made before its answer was lost has moved nothing when it answers.
                state.log_start_offset < state.high_watermark.min(*offset)
                    && state.version < version
            }
            _ => false,
        };
        let raises = moves || raised == Raised::Yes;
        all.push(Before {
            partition,
            version: version.saturating_sub(u64::from(raises)),
            log_start: (!moves).then_some(log_start),
        });
    }
    all
}

/// Makes the model's partitions what calls saw that were raised by what no answer shows.
struct Filled<'a> {
    context: &'a Context,
    world: &'a World,
    unseen: &'a Unseen,
    merges: u64,
}

impl Filled<'_> {
    /// Raises a partition's version. No history has both merges and moves of log starts: where a
    /// move's answer was lost, it is such a move; else a merge, of which each is like any other.
    async fn until(&mut self, before: &Before) {
        loop {
            let page = self.context.store.extents(before.partition, 0, 1).await.unwrap().unwrap();
            let missing = before.version.saturating_sub(page.state.version);
            match self.next_move(before, page.state, missing) {
                _ if missing == 0 => return,
                Some(offset) => {
                    let moved = self.context.store.advance_log_start(before.partition, offset);
                    moved.await.unwrap();
                }
                None => self.merge(before.partition, &page.extents[0]).await,
            }
        }
    }

    /// Where an unseen move moved the log start to, so that after all `missing` ones it is where it
    /// was seen.
    fn next_move(&self, before: &Before, state: PartitionState, missing: u64) -> Option<i64> {
        if missing == 1 && before.log_start.is_some() {
            return before.log_start.filter(|seen| state.log_start_offset < *seen);
        }
        let moves = self.unseen.moves_in_doubt.iter();
        let targets = moves.filter(|(partition, _)| *partition == before.partition);
        let targets = targets.map(|(_, offset)| state.high_watermark.min(*offset));
        targets.filter(|offset| state.log_start_offset < *offset).min()
    }

    async fn merge(&mut self, partition: TopicPartition, extent: &Extent) {
        let key = format!("log/again-{}-{}", self.context.number, self.context.unique());
        let replacement = moved(partition, extent, key);
        let fence = &self.world.broker.fence;
        let outcome = self.context.store.replace_extents(fence, &replacement).await.unwrap();
        assert_eq!(outcome, ChangeOutcome::Applied);
        self.merges += 1;
    }
}

/// For each record, those that come after it.
fn constraints(records: &[Record]) -> Vec<BTreeSet<usize>> {
    let mut after = vec![BTreeSet::new(); records.len()];
    for (at, record) in records.iter().enumerate() {
        for (later_at, later) in records.iter().enumerate() {
            if record.answered < later.called {
                after[at].insert(later_at);
            }
        }
    }
    order_outcomes(records, &mut after);
    order_versions(records, &mut after);
    after
}

/// The call that decided a segment is before the others of the same segment.
fn order_outcomes(records: &[Record], after: &mut [BTreeSet<usize>]) {
    let mut by_segment: BTreeMap<SegmentId, Vec<usize>> = BTreeMap::new();
    for (at, record) in records.iter().enumerate() {
        match &record.call {
            Call::Commit(segment) => by_segment.entry(segment.id).or_default().push(at),
            Call::Abandon(id) => by_segment.entry(*id).or_default().push(at),
            Call::Advance(..) => {}
        }
    }
    for calls in by_segment.into_values() {
        let decided = |at: &&usize| {
            let abandoned = records[**at].answer == Answer::Outcome(SegmentOutcome::Abandoned);
            abandoned == matches!(records[**at].call, Call::Abandon(_))
        };
        // Of several abandons any may have been the first.
        if let Some(first) = calls.iter().find(decided) {
            let is_commit = |at: usize| matches!(records[at].call, Call::Commit(_));
            let others = calls.iter().filter(|at| is_commit(**at) != is_commit(*first));
            after[*first].extend(others.copied());
        }
    }
}

/// A version is raised by one call; who saw it is after that call and before the next raise.
fn order_versions(records: &[Record], after: &mut [BTreeSet<usize>]) {
    let mut seen: BTreeMap<TopicPartition, BTreeMap<u64, Version>> = BTreeMap::new();
    for (at, record) in records.iter().enumerate() {
        for sight in sights(record) {
            let versions = seen.entry(sight.partition).or_default();
            let version = versions.entry(sight.version).or_default();
            match sight.raised {
                Raised::Yes => {
                    let other = version.raised_by.replace(at);
                    assert_eq!(other, None, "one version was raised twice");
                }
                Raised::No => version.seen_by.push(at),
                Raised::OneOfThem => version.one_of_them.push(at),
            }
        }
    }
    for versions in seen.into_values() {
        let mut previous: Vec<usize> = Vec::new();
        for mut version in versions.into_values() {
            // The first to be answered can have been the first in every order, unless somebody saw
            // the version before it was called: then it was raised by one whose answer was lost.
            let one = version.one_of_them.iter().copied().min_by_key(|at| records[*at].answered);
            let is_late = |one: usize| {
                version.seen_by.iter().any(|at| records[*at].answered < records[one].called)
            };
            let one = one.filter(|one| !is_late(*one));
            let raised_by = version.raised_by.or(one);
            version.seen_by.extend(version.one_of_them);
            version.seen_by.retain(|at| Some(*at) != raised_by);
            let firsts = raised_by.map_or_else(|| version.seen_by.clone(), |raiser| vec![raiser]);
            for earlier in &previous {
                after[*earlier].extend(firsts.iter().filter(|first| *first != earlier));
            }
            if let Some(raiser) = raised_by {
                after[raiser].extend(version.seen_by.iter().copied());
            }
            previous = if version.seen_by.is_empty() { firsts } else { version.seen_by };
        }
    }
}

/// What a record shows of versions. A replayed outcome is of the time when it was decided, which in
/// these histories is the same record's commit.
fn sights(record: &Record) -> Vec<Sight> {
    match (&record.call, &record.answer) {
        (Call::Commit(segment), Answer::Outcome(SegmentOutcome::Committed(sections))) => {
            let named = segment.sections.iter().zip(sections);
            let sights = named.filter_map(|(section, outcome)| {
                let is_accepted =
                    |batch: &BatchOutcome| matches!(batch, BatchOutcome::Accepted { .. });
                let raised = outcome.batches.iter().any(is_accepted);
                let PartitionState { version, log_start_offset: log_start, .. } = outcome.state?;
                Some(Sight {
                    partition: section.topic_partition(),
                    version,
                    log_start,
                    raised: if raised { Raised::Yes } else { Raised::No },
                })
            });
            sights.collect()
        }
        (Call::Advance(partition, offset), Answer::State(state)) => {
            let target = state.high_watermark.min(*offset);
            let may_have_moved = state.log_start_offset == target && target > 0;
            let raised = if may_have_moved { Raised::OneOfThem } else { Raised::No };
            let (version, log_start) = (state.version, state.log_start_offset);
            vec![Sight { partition: *partition, version, log_start, raised }]
        }
        _ => Vec::new(),
    }
}

/// An order in which every record is before those after it; `None` if there is none.
fn topological(after: &[BTreeSet<usize>], records: &[Record]) -> Option<Vec<usize>> {
    let mut waits_for = vec![0usize; records.len()];
    for later in after.iter().flatten() {
        waits_for[*later] += 1;
    }
    let mut ready: BTreeSet<usize> = (0..records.len()).filter(|at| waits_for[*at] == 0).collect();
    let mut order = Vec::with_capacity(records.len());
    while let Some(at) = ready.pop_first() {
        order.push(at);
        for later in &after[at] {
            waits_for[*later] -= 1;
            if waits_for[*later] == 0 {
                ready.insert(*later);
            }
        }
    }
    (order.len() == records.len()).then_some(order)
}
