//! Every row of Kafka's idempotence table, and how accepted batches become extents.

use super::*;
use kfs::{BrokerEpoch, BrokerId, PartitionIndex, ProducerEpoch, TimestampType, TopicId};
use uuid::Uuid;

const ID: ProducerId = ProducerId(7);
const PARTITION: TopicPartition =
    TopicPartition { topic: TopicId(Uuid::from_u128(1)), partition: PartitionIndex(0) };
const NOW_MS: i64 = 55;

fn batch(epoch: i16, first_sequence: i32, last_sequence: i32) -> ProducerBatch {
    let (epoch, lost_sequence) = (ProducerEpoch(epoch), None);
    ProducerBatch { id: ID, epoch, first_sequence, last_sequence, lost_sequence }
}

/// A producer that wrote these batches (first and last sequence), of one offset each.
fn known(epoch: i16, sequences: &[(i32, i32)]) -> ProducerState {
    let batches = sequences.iter().enumerate().map(|(at, (first, last))| RememberedBatch {
        first_sequence: *first,
        last_sequence: *last,
        base_offset: 100 + at as i64,
        last_offset: 100 + at as i64,
        max_timestamp_ms: 1000 + at as i64,
    });
    ProducerState {
        id: ID,
        epoch: ProducerEpoch(epoch),
        batches: batches.collect(),
        transaction_start: None,
        last_written_ms: 0,
    }
}

fn verdict(state: &ProducerState, batch: &ProducerBatch) -> Verdict {
    check_producer(Some(state), batch, None)
}

const OUT_OF_ORDER: Verdict = Verdict::Refuse(Refusal::OutOfOrderSequence);
const FORGOTTEN: Verdict = Verdict::Refuse(Refusal::ForgottenDuplicate);

#[test]
fn each_of_five_remembered_batches_is_a_duplicate() {
    let state = known(3, &[(0, 1), (2, 2), (3, 9), (10, 10), (11, 12)]);
    for remembered in &state.batches {
        let again = batch(3, remembered.first_sequence, remembered.last_sequence);
        assert_eq!(verdict(&state, &again), Verdict::Duplicate(*remembered));
        // Transactional or not, open or not: a duplicate comes first.
        let open = ProducerState { transaction_start: Some(100), ..state.clone() };
        assert_eq!(check_producer(Some(&open), &again, None), Verdict::Duplicate(*remembered));
    }
}

#[test]
fn lower_epoch_is_stale_even_where_its_sequence_fits() {
    let state = known(3, &[(0, 1)]);
    for sequences in [(0, 1), (2, 2), (0, 0)] {
        let verdict = verdict(&state, &batch(2, sequences.0, sequences.1));
        assert_eq!(verdict, Verdict::Refuse(Refusal::StaleProducerEpoch));
    }
}

#[test]
fn higher_epoch_begins_at_sequence_0() {
    let state = known(3, &[(0, 1)]);
    assert_eq!(verdict(&state, &batch(4, 0, 1)), Verdict::Accept);
    assert_eq!(verdict(&state, &batch(4, 2, 2)), OUT_OF_ORDER);
    assert_eq!(verdict(&state, &batch(i16::MAX, 1, 1)), OUT_OF_ORDER);
}

#[test]
fn same_epoch_goes_on_where_the_last_batch_ended() {
    let state = known(3, &[(0, 1), (2, 4)]);
    assert_eq!(verdict(&state, &batch(3, 5, 9)), Verdict::Accept);
}

#[test]
fn sequences_wrap_to_0_and_within_a_batch() {
    let at_end = known(3, &[(i32::MAX, i32::MAX)]);
    assert_eq!(verdict(&at_end, &batch(3, 0, 4)), Verdict::Accept);
    assert_eq!(verdict(&at_end, &batch(3, 1, 4)), OUT_OF_ORDER);
    let wrapped = known(3, &[(i32::MAX - 1, 1)]);
    assert_eq!(verdict(&wrapped, &batch(3, 2, 2)), Verdict::Accept);
    assert_eq!(verdict(&wrapped, &batch(3, 0, 0)), OUT_OF_ORDER);
    let before_end = known(3, &[(5, i32::MAX - 1)]);
    assert_eq!(verdict(&before_end, &batch(3, i32::MAX, 3)), Verdict::Accept);
    assert_eq!(verdict(&before_end, &batch(3, 0, 0)), OUT_OF_ORDER);
}

#[test]
fn gaps_overlaps_and_other_lengths_are_out_of_order() {
    let state = known(3, &[(0, 1), (2, 4)]);
    for (first, last) in [(6, 6), (4, 4), (4, 5), (3, 4), (2, 5), (2, 3), (0, 0), (0, 4), (1, 1)] {
        assert_eq!(verdict(&state, &batch(3, first, last)), OUT_OF_ORDER, "{first}-{last}");
    }
}

#[test]
fn unknown_producer_may_begin_anywhere() {
    for (epoch, first) in [(0, 0), (5, 17), (i16::MAX, i32::MAX)] {
        for transaction in [None, Some(&transaction(false))] {
            let verdict = check_producer(None, &batch(epoch, first, first), transaction);
            assert_eq!(verdict, Verdict::Accept);
        }
    }
}

#[test]
fn unknown_producer_takes_no_place_of_a_lost_batch() {
    let behind =
        |first, lost| ProducerBatch { lost_sequence: Some(lost), ..batch(5, first, first) };
    for (first, lost) in [(8, 7), (9, 7), (0, i32::MAX), (3, i32::MAX - 4)] {
        assert_eq!(check_producer(None, &behind(first, lost), None), OUT_OF_ORDER);
    }
    for (first, lost) in [(7, 7), (6, 7), (i32::MAX, 0)] {
        assert_eq!(check_producer(None, &behind(first, lost), None), Verdict::Accept);
    }
    // What is known of the producer decides by itself.
    assert_eq!(verdict(&known(5, &[(6, 7)]), &behind(8, 3)), Verdict::Accept);
}

#[test]
fn unknown_producer_that_joins_begins_at_sequence_0() {
    let joins = transaction(true);
    assert_eq!(check_producer(None, &batch(5, 0, 3), Some(&joins)), Verdict::Accept);
    assert_eq!(check_producer(None, &batch(5, 1, 3), Some(&joins)), OUT_OF_ORDER);
}

fn transaction(joins: bool) -> TransactionBatch {
    TransactionBatch { id: "t".into(), joins }
}

#[test]
fn epoch_known_from_a_marker_alone_begins_at_sequence_0() {
    let state = known(4, &[]);
    assert_eq!(verdict(&state, &batch(4, 0, 0)), Verdict::Accept);
    assert_eq!(verdict(&state, &batch(4, 1, 1)), OUT_OF_ORDER);
    assert_eq!(verdict(&state, &batch(5, 0, 0)), Verdict::Accept);
}

#[test]
fn older_than_remembered_is_told_apart_only_when_something_was_forgotten() {
    let full = known(3, &[(10, 10), (11, 11), (12, 12), (13, 13), (14, 14)]);
    for (first, last) in [(9, 9), (0, 9), (5, 5)] {
        assert_eq!(verdict(&full, &batch(3, first, last)), FORGOTTEN);
    }
    for (first, last) in [(9, 10), (10, 11), (16, 16), (14, 15)] {
        assert_eq!(verdict(&full, &batch(3, first, last)), OUT_OF_ORDER);
    }
    let few = known(3, &[(10, 10), (11, 11)]);
    assert_eq!(verdict(&few, &batch(3, 9, 9)), OUT_OF_ORDER);
    // Over the end of the circle.
    let wrapped = known(3, &[(1, 1), (2, 2), (3, 3), (4, 4), (5, 5)]);
    assert_eq!(verdict(&wrapped, &batch(3, i32::MAX, 0)), FORGOTTEN);
}

#[test]
fn outside_of_an_open_transaction_is_an_invalid_state() {
    let mut state = known(3, &[(0, 1)]);
    state.transaction_start = Some(100);
    let next = batch(3, 2, 2);
    let refused = Verdict::Refuse(Refusal::InvalidTransactionState);
    assert_eq!(check_producer(Some(&state), &next, None), refused);
    let inside = transaction(true);
    assert_eq!(check_producer(Some(&state), &next, Some(&inside)), Verdict::Accept);
    // Epoch and sequence are looked at before.
    assert_eq!(check_producer(Some(&state), &batch(3, 9, 9), None), OUT_OF_ORDER);
}

fn facts(position: u64, producer: Option<ProducerBatch>) -> BatchFacts {
    BatchFacts {
        position,
        length: 10,
        record_count: 2,
        max_timestamp_ms: position as i64,
        timestamp_type: TimestampType::CreateTime,
        producer,
        transaction: None,
    }
}

fn commit(batches: Vec<BatchFacts>) -> CommitWrites {
    let id = SegmentId { broker: BrokerId(1), epoch: BrokerEpoch(1), counter: 0 };
    let (topic, partition) = (PARTITION.topic, PARTITION.partition);
    let section = SectionFacts { topic, partition, batches };
    let segment =
        SegmentFacts { id, key: "wal/x.kfs".to_owned(), size: 1000, sections: vec![section] };
    let mut rows = CommitRows::default();
    let state = PartitionState {
        version: 4,
        high_watermark: 50,
        last_stable_offset: 50,
        bytes: 7,
        log_start_offset: 3,
    };
    rows.partitions.insert(PARTITION, CommitPartition { state, ..Default::default() });
    decide_commit(&[segment], rows, NOW_MS)
}

#[test]
fn touching_batches_share_an_extent() {
    let writes = commit(vec![facts(20, None), facts(30, None), facts(40, None)]);
    let extents = &writes.objects[0].extents;
    assert_eq!(extents.len(), 1);
    let extent = &extents[0].1;
    assert_eq!((extent.base_offset, extent.last_offset), (50, 55));
    assert_eq!((extent.position, extent.length, extent.max_timestamp_ms), (20, 30, 40));
    assert_eq!(writes.partitions[0].0, PARTITION);
    let state = writes.partitions[0].1.state;
    let expected = PartitionState {
        version: 5,
        high_watermark: 56,
        last_stable_offset: 56,
        bytes: 37,
        log_start_offset: 3,
    };
    assert_eq!(state, expected);
}

#[test]
fn other_timestamp_types_take_another_extent() {
    let mut appended = facts(10, None);
    appended.timestamp_type = TimestampType::LogAppendTime;
    let writes = commit(vec![facts(0, None), appended, facts(20, None)]);
    assert_eq!(writes.objects[0].extents.len(), 3);
}

#[test]
fn nothing_accepted_changes_nothing_but_the_outcome() {
    let mut rows = CommitRows::default();
    let mut row = CommitPartition::default();
    row.producers.put_newest(known(3, &[(0, 0)]));
    rows.partitions.insert(PARTITION, row);
    let batches = vec![facts(0, Some(batch(3, 0, 0))), facts(10, Some(batch(3, 5, 5)))];
    let id = SegmentId { broker: BrokerId(1), epoch: BrokerEpoch(1), counter: 0 };
    let (topic, partition) = (PARTITION.topic, PARTITION.partition);
    let sections = vec![SectionFacts { topic, partition, batches }];
    let segment = SegmentFacts { id, key: "k".to_owned(), size: 100, sections };
    let writes = decide_commit(&[segment], rows, NOW_MS);
    assert!(writes.partitions.is_empty());
    assert_eq!(writes.objects[0].live_bytes(), 0);
    let SegmentOutcome::Committed(sections) = &writes.outcomes[0] else {
        panic!("a segment of refused batches is committed");
    };
    let first = BatchOutcome::Duplicate { base_offset: 100, max_timestamp_ms: 1000 };
    let second = BatchOutcome::Refused(Refusal::OutOfOrderSequence);
    assert_eq!(sections[0].batches, [first, second]);
    assert_eq!(sections[0].state, Some(PartitionState::default()));
}

#[test]
fn a_new_epoch_forgets_the_old_one_s_batches() {
    let sequence = [(0, 0, 1), (0, 2, 3), (1, 0, 1)];
    let batches = sequence.iter().enumerate();
    let batches = batches.map(|(at, (epoch, first, last))| {
        facts(at as u64 * 10, Some(batch(*epoch, *first, *last)))
    });
    let writes = commit(batches.collect());
    let producer = writes.partitions[0].1.producers.get(ID).unwrap();
    assert_eq!((producer.epoch, producer.last_written_ms), (ProducerEpoch(1), NOW_MS));
    let remembered = RememberedBatch {
        first_sequence: 0,
        last_sequence: 1,
        base_offset: 54,
        last_offset: 55,
        max_timestamp_ms: 20,
    };
    assert_eq!(producer.batches, [remembered]);
}

#[test]
fn a_partition_takes_so_many_open_transactions_and_no_more() {
    let mut row = CommitPartition::default();
    for id in 0..OPEN_TRANSACTIONS_MAX as i64 {
        let id = ProducerId(1000 + id);
        let open = ProducerState { id, transaction_start: Some(0), ..known(0, &[(0, 0)]) };
        row.producers.put_newest(open);
    }
    let mut rows = CommitRows::default();
    rows.partitions.insert(PARTITION, row);
    let transactional = |position, id: i64, first| {
        let id = ProducerId(id);
        let producer = ProducerBatch { id, ..batch(0, first, first) };
        BatchFacts { transaction: Some(transaction(true)), ..facts(position, Some(producer)) }
    };
    rows.transactions.insert("t".into(), TransactionRow::new(ID, 1000, NOW_MS));
    let id = SegmentId { broker: BrokerId(1), epoch: BrokerEpoch(1), counter: 0 };
    let (topic, partition) = (PARTITION.topic, PARTITION.partition);
    let outside = facts(0, None);
    let batches = vec![outside, transactional(10, ID.0, 0), transactional(20, 1000, 1)];
    let sections = vec![SectionFacts { topic, partition, batches }];
    let segment = SegmentFacts { id, key: "k".to_owned(), size: 100, sections };
    let writes = decide_commit(&[segment], rows, NOW_MS);
    let SegmentOutcome::Committed(sections) = &writes.outcomes[0] else { panic!("committed") };
    let refused = BatchOutcome::Refused(Refusal::TooManyOpenTransactions);
    let accepted = |base_offset| BatchOutcome::Accepted { base_offset };
    assert_eq!(sections[0].batches, [accepted(0), refused, accepted(2)]);
    assert_eq!(writes.partitions[0].1.producers.open_count(), OPEN_TRANSACTIONS_MAX);
}
