//! The public suite: what every backend must do, as functions over `Arc<dyn Backend>`. A case makes
//! its own topics, brokers and keys from its number, so that all cases run on one store; a store
//! serves one run only.
//!
//! Run [`run_all`] for the cases, [`histories::sequential`] and [`histories::concurrent`] for
//! random histories that are compared with the model.
#![allow(clippy::unwrap_used, reason = "test code: a failed expectation ends the test")]

mod commits;
mod extents;
mod fact_cases;
mod fences;
mod fresh;
pub mod histories;
mod layer_two;
mod mixed_end;
mod serial_order;
mod transaction_offsets;
mod transaction_races;
mod transactions;

use crate::backend::Backend;
use crate::brokers::{BrokerAddress, Registration};
use crate::facts::{Change, ChangeOutcome, FactKey, PartitionChange, Write};
use crate::rows::{
    BatchFacts, BatchOutcome, Extent, PartitionState, ProducerBatch, SectionFacts, SectionOutcome,
    SegmentFacts, SegmentOutcome, TransactionBatch,
};
use crate::store::MetadataStore;
use crate::transactions::TransactionRow;
use bytes::Bytes;
use floe_env::Env;
use futures::future::BoxFuture;
use kfs::{
    BrokerEpoch, BrokerId, PartitionIndex, ProducerEpoch, ProducerId, SegmentId, TimestampType,
    TopicId, TopicPartition,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use uuid::Uuid;

/// Bytes of every batch that the suite makes.
pub const BATCH_BYTES: u32 = 100;
const LEASE_MS: i64 = 10_000;

/// What a case works with.
#[derive(Debug)]
pub struct Context {
    store: MetadataStore,
    number: u64,
    made: AtomicU64,
}

/// A case of the suite.
pub type Case = fn(Arc<Context>) -> BoxFuture<'static, ()>;

macro_rules! cases {
    ($($module:ident: $($name:ident),+;)+) => {
        /// All cases by name.
        pub fn cases() -> Vec<(&'static str, Case)> {
            vec![$($((
                stringify!($name),
                (|context| Box::pin(async move { $module::$name(&context).await })) as Case,
            )),+),+]
        }
    };
}

cases! {
    commits: refused_batch_splits_a_section, duplicate_within_and_across_segments,
        recreated_topic_refuses_old_batches, replay_changes_nothing, closed_epoch_is_fenced,
        abandoned_is_never_committed, committed_is_not_abandoned, commit_races_abandon,
        forgotten_outcomes_stay_decided, partitions_and_their_order, wrong_input_is_refused,
        producers_are_remembered, producers_expire, open_transaction_holds_the_stable_offset,
        many_segments_commit_together, dropped_calls_are_whole;
    extents: paging, log_start_moves_forward_only, search_by_time, replacement,
        replacement_of_changed_sources, replacements_that_share_an_object,
        objects_die_with_their_last_extent,
        dropped_partition_frees_its_objects, dead_objects_are_not_revived,
        markers_and_holes_come_back;
    fresh: a_segment_is_merged_partition_by_partition, what_a_merge_leaves_out_stays_where_it_is,
        sections_with_refused_batches_are_merged_in_parts, merges_beside_commits,
        log_start_inside_a_fresh_extent, search_by_time_across_the_border,
        a_deleted_topic_inside_a_fresh_segment, unpacking_changes_nothing_but_rows,
        many_partitions_are_unpacked_in_turns, many_producers_spill_and_are_remembered,
        outcomes_of_closed_registrations_are_forgotten;
    fact_cases: checks_hold_or_nothing_is_written, ranges, counters_under_contention,
        absent_checks_exclude_each_other, bad_changes, partitions_change_with_facts, clock;
    layer_two: cluster_identity, topics, topics_made_anew, topic_configs_and_partitions,
        brokers_and_epochs, producer_ids_are_unique, groups, group_offsets, table_progress,
        written_marks, compaction_marks, new_incarnation;
    transactions: batches_are_let_in_by_the_row, a_commit_is_seen_in_every_partition,
        an_abort_is_listed, lists_end_where_all_is_stable, late_batches_change_nothing,
        many_open_transactions_in_a_partition, markers_among_fresh_extents,
        markers_are_merged_and_dropped, an_end_takes_all_that_joined,
        a_marker_alone_ends_what_hangs, records_of_an_open_transaction_are_deleted,
        ids_are_listed_and_forgotten;
    transaction_races: a_late_end_does_nothing_to_the_next_transaction, joins_race_ends;
    transaction_offsets: offsets_wait_for_the_end, later_offsets_win,
        deleted_offsets_do_not_come_back;
    fences: closed_epochs_change_nothing, fences_of_absent_facts;
}

/// Runs every case on one store, one after the other. Prints each case's name before it.
pub async fn run_all(backend: Arc<dyn Backend>, env: &Env) {
    for (number, (name, case)) in cases().into_iter().enumerate() {
        eprintln!("case {name}");
        let context = Context::new(Arc::clone(&backend), env.clone(), number as u64 + 1);
        case(Arc::new(context)).await;
    }
}

impl Context {
    /// A case's own corner of a store.
    pub fn new(backend: Arc<dyn Backend>, env: Env, number: u64) -> Self {
        Self { store: MetadataStore::new(backend, env), number, made: AtomicU64::new(0) }
    }

    /// Layer two.
    pub fn store(&self) -> &MetadataStore {
        &self.store
    }

    /// A number that this case has not used.
    fn unique(&self) -> u64 {
        self.made.fetch_add(1, Ordering::Relaxed)
    }

    fn fresh_topic(&self) -> TopicId {
        let number = u128::from(self.number) << 64 | u128::from(self.unique());
        TopicId(Uuid::from_u128(number))
    }

    /// A key of this case.
    fn key(&self, name: &str) -> FactKey {
        FactKey::new(&["suite", &format!("{:04}", self.number), name])
    }

    /// A producer id of this case.
    fn producer(&self) -> ProducerId {
        ProducerId((self.number * 1000 + self.unique()) as i64)
    }

    /// Begins the partitions 0 until `count` of a new topic.
    async fn partitions(&self, count: i32) -> Vec<TopicPartition> {
        let topic = self.fresh_topic();
        let made: Vec<TopicPartition> = (0..count)
            .map(|index| TopicPartition { topic, partition: PartitionIndex(index) })
            .collect();
        let change = Change {
            partitions: made.iter().copied().map(PartitionChange::Create).collect(),
            ..Change::default()
        };
        let outcome = self.store.backend().change(&change).await.unwrap();
        assert_eq!(outcome, ChangeOutcome::Applied);
        made
    }

    async fn partition(&self) -> TopicPartition {
        self.partitions(1).await[0]
    }

    /// A transactional id for this producer, with epoch 0 and nothing open.
    async fn transaction(&self, producer: ProducerId) -> String {
        let id = format!("transactional-{:04}-{producer}", self.number);
        let row = TransactionRow::new(producer, 60_000, 0);
        let made = self.store.put_transaction(&id, None, &row).await.unwrap();
        assert_eq!(made, ChangeOutcome::Applied);
        id
    }

    async fn drop_partition(&self, partition: TopicPartition) {
        let partitions = vec![PartitionChange::Drop(partition)];
        let change = Change { partitions, ..Change::default() };
        self.store.backend().change(&change).await.unwrap();
    }

    /// Registers a broker of this case.
    async fn broker(&self) -> Registration {
        let id = BrokerId((self.number * 1000 + self.unique()) as i32);
        self.register(id).await
    }

    async fn register(&self, id: BrokerId) -> Registration {
        let address = BrokerAddress { host: "localhost".to_owned(), port: 9092, zone: None };
        self.store.register_broker(id, &address, LEASE_MS).await.unwrap()
    }

    async fn state(&self, partition: TopicPartition) -> Option<PartitionState> {
        self.store.partition_states(&[partition]).await.unwrap()[0]
    }

    async fn all_extents(&self, partition: TopicPartition) -> Vec<Extent> {
        self.store.extents(partition, 0, usize::MAX).await.unwrap().unwrap().extents
    }

    async fn put(&self, key: &FactKey, value: &str) {
        let write = Write::Put(key.clone(), Bytes::from(value.to_owned()));
        let change = Change { writes: vec![write], ..Change::default() };
        self.store.backend().change(&change).await.unwrap();
    }

    /// Commits one segment.
    async fn commit(&self, broker: &Registration, segment: &SegmentFacts) -> Vec<SectionOutcome> {
        let segments = std::slice::from_ref(segment);
        let mut outcomes = self.store.commit_segments(&broker.fence, segments).await.unwrap();
        assert_eq!(outcomes.len(), 1);
        sections(outcomes.remove(0))
    }

    /// Commits one section in a new segment; answers what became of its batches.
    async fn append(
        &self,
        broker: &Registration,
        partition: TopicPartition,
        batches: Vec<BatchFacts>,
    ) -> Vec<BatchOutcome> {
        let segment = segment(broker, self.unique(), vec![(partition, batches)]);
        self.commit(broker, &segment).await.remove(0).batches
    }
}

/// The sections of a committed segment.
fn sections(outcome: SegmentOutcome) -> Vec<SectionOutcome> {
    match outcome {
        SegmentOutcome::Committed(sections) => sections,
        SegmentOutcome::Abandoned => panic!("the segment was abandoned"),
    }
}

/// A segment whose sections follow one another in its object; positions are filled in.
pub fn segment(
    broker: &Registration,
    counter: u64,
    sections: Vec<(TopicPartition, Vec<BatchFacts>)>,
) -> SegmentFacts {
    let (broker, epoch) = (broker.id, broker.epoch);
    segment_of(broker, epoch, counter, sections)
}

fn segment_of(
    broker: BrokerId,
    epoch: BrokerEpoch,
    counter: u64,
    sections: Vec<(TopicPartition, Vec<BatchFacts>)>,
) -> SegmentFacts {
    let mut position = 0;
    let mut placed = Vec::with_capacity(sections.len());
    for (partition, mut batches) in sections {
        for batch in &mut batches {
            batch.position = position;
            position += u64::from(batch.length);
        }
        placed.push(SectionFacts {
            topic: partition.topic,
            partition: partition.partition,
            batches,
        });
    }
    let id = SegmentId { broker, epoch, counter };
    SegmentFacts { id, key: format!("wal/{id}.kfs"), size: position + 50, sections: placed }
}

/// A batch of no producer.
pub fn plain(record_count: u32) -> BatchFacts {
    BatchFacts {
        position: 0,
        length: BATCH_BYTES,
        record_count,
        max_timestamp_ms: 1000,
        timestamp_type: TimestampType::CreateTime,
        producer: None,
        transaction: None,
    }
}

/// A batch of an idempotent producer.
pub fn idempotent(
    id: ProducerId,
    epoch: i16,
    first_sequence: i32,
    record_count: u32,
) -> BatchFacts {
    let last = i64::from(first_sequence) + i64::from(record_count) - 1;
    let producer = ProducerBatch {
        id,
        epoch: ProducerEpoch(epoch),
        first_sequence,
        last_sequence: (last % (1 << 31)) as i32,
        lost_sequence: None,
    };
    BatchFacts { producer: Some(producer), ..plain(record_count) }
}

/// The transaction of a batch.
pub fn in_transaction(id: &str, joins: bool) -> Option<TransactionBatch> {
    Some(TransactionBatch { id: id.into(), joins })
}

fn at(max_timestamp_ms: i64, record_count: u32) -> BatchFacts {
    BatchFacts { max_timestamp_ms, ..plain(record_count) }
}

fn accepted(base_offset: i64) -> BatchOutcome {
    BatchOutcome::Accepted { base_offset }
}

fn duplicate(base_offset: i64) -> BatchOutcome {
    BatchOutcome::Duplicate { base_offset, max_timestamp_ms: 1000 }
}

/// Splitmix64: the suite's own seeded numbers, so that a run can be repeated anywhere.
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 until `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn one_in(&mut self, chance: u64) -> bool {
        self.below(chance) == 0
    }
}
