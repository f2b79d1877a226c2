//! Cases of transactions: which batches are let in, what an end leaves behind, and what waits for
//! it.

use super::*;
use crate::rows::{
    AbortedTransaction, FreshBounds, MarkerFacts, MarkerOutcome, Place, Refusal, Replacement,
};
use crate::transactions::{Ending, KnownTransaction, TransactionState};
use floe_env::ErrorKind;
use kfs::OffsetMode;
use std::collections::BTreeSet;

/// A producer with its transactional id.
pub(super) struct Client {
    pub(super) producer: ProducerId,
    pub(super) id: String,
    pub(super) sequence: i32,
    epoch: i16,
}

impl Client {
    pub(super) async fn new(context: &Context) -> Self {
        let producer = context.producer();
        let id = context.transaction(producer).await;
        Self { producer, id, sequence: 0, epoch: 0 }
    }

    /// Its next batch of one record.
    pub(super) fn batch(&mut self, joins: bool) -> BatchFacts {
        let mut batch = idempotent(self.producer, self.epoch, self.sequence, 1);
        batch.transaction = in_transaction(&self.id, joins);
        self.sequence += 1;
        batch
    }

    pub(super) async fn known(&self, context: &Context) -> KnownTransaction {
        context.store.transaction(&self.id).await.unwrap().expect("it was made")
    }

    /// Ends its transaction as KIP-890's second part does: with the next epoch.
    pub(super) async fn end(&mut self, context: &Context, commit: bool) -> Vec<MarkerOutcome> {
        let known = self.known(context).await;
        let ended = self.try_end(context, &known, commit).await;
        let ended = ended.expect("nobody else changes it");
        ended.into_iter().map(|(_, outcome)| outcome).collect()
    }

    pub(super) async fn try_end(
        &mut self,
        context: &Context,
        known: &KnownTransaction,
        commit: bool,
    ) -> Option<Vec<(TopicPartition, MarkerOutcome)>> {
        let epoch = ProducerEpoch(known.row.epoch.0 + 1);
        let after = ended(known, epoch, commit);
        let ending = Ending { commit, producer: self.producer, epoch };
        let created = |_| TimestampType::CreateTime;
        let outcomes = context.store.end_transaction(known, &after, ending, created).await;
        let outcomes = outcomes.unwrap();
        if outcomes.is_some() {
            (self.epoch, self.sequence) = (epoch.0, 0);
        }
        outcomes
    }
}

pub(super) fn ended(
    known: &KnownTransaction,
    epoch: ProducerEpoch,
    commit: bool,
) -> TransactionRow {
    let state = match commit {
        true => TransactionState::CompleteCommit,
        false => TransactionState::CompleteAbort,
    };
    let (partitions, groups) = (BTreeSet::new(), BTreeSet::new());
    TransactionRow { epoch, state, partitions, groups, ..known.row.clone() }
}

fn marker(partition: TopicPartition, producer: ProducerId, epoch: i16) -> MarkerFacts {
    MarkerFacts {
        partition,
        producer,
        epoch: ProducerEpoch(epoch),
        commit: false,
        raises_epoch: false,
        coordinator_epoch: 0,
        timestamp_type: TimestampType::CreateTime,
    }
}

pub(super) fn refused(refusal: Refusal) -> BatchOutcome {
    BatchOutcome::Refused(refusal)
}

fn offset_of(outcome: &MarkerOutcome) -> i64 {
    match outcome {
        MarkerOutcome::Written { marker, .. } => marker.base_offset,
        other => panic!("the marker was not written: {other:?}"),
    }
}

/// (high watermark, last stable offset).
pub(super) async fn ends(context: &Context, partition: TopicPartition) -> (i64, i64) {
    let state = context.state(partition).await.unwrap();
    (state.high_watermark, state.last_stable_offset)
}

async fn spans(context: &Context, partition: TopicPartition) -> Vec<(i64, i64, bool)> {
    let extents = context.all_extents(partition).await.into_iter();
    let span = |extent: Extent| {
        let is_marker = matches!(extent.place, Place::Marker { .. });
        (extent.base_offset, extent.last_offset, is_marker)
    };
    extents.map(span).collect()
}

pub(super) async fn batches_are_let_in_by_the_row(context: &Context) {
    let (broker, partitions) = (context.broker().await, context.partitions(2).await);
    let mut client = Client::new(context).await;
    let first = client.batch(false);
    let outcomes = context.append(&broker, partitions[0], vec![first.clone()]).await;
    assert_eq!(outcomes, [refused(Refusal::NotInTransaction)]);
    assert_eq!(client.known(context).await.row.state, TransactionState::Empty);
    let mut unknown = first.clone();
    unknown.transaction = in_transaction("nobody", true);
    let mut newer = first.clone();
    newer.producer.as_mut().unwrap().epoch = ProducerEpoch(1);
    let mut other = first.clone();
    other.producer.as_mut().unwrap().id = context.producer();
    let outcomes = context.append(&broker, partitions[0], vec![unknown, newer, other]).await;
    let unknown = refused(Refusal::UnknownTransaction);
    assert_eq!(outcomes, [unknown, refused(Refusal::FencedTransaction), unknown]);
    // It joins with one partition, and goes on there whatever it says.
    let mut joining = first.clone();
    joining.transaction = in_transaction(&client.id, true);
    let next = client.batch(false);
    let outcomes = context.append(&broker, partitions[0], vec![joining, first, next]).await;
    assert_eq!(outcomes, [accepted(0), duplicate(0), accepted(1)]);
    let known = client.known(context).await;
    assert_eq!(known.row.state, TransactionState::Ongoing);
    assert_eq!(known.row.partitions, BTreeSet::from([partitions[0]]));
    // Added beforehand, the other one needs not join.
    let mut row = known.row.clone();
    row.partitions.insert(partitions[1]);
    context.store.put_transaction(&client.id, Some(&known), &row).await.unwrap();
    client.sequence = 7;
    let outcomes = context.append(&broker, partitions[1], vec![client.batch(false)]).await;
    assert_eq!(outcomes, [accepted(0)], "an unknown producer may begin anywhere");
}

pub(super) async fn a_commit_is_seen_in_every_partition(context: &Context) {
    let (broker, partitions) = (context.broker().await, context.partitions(3).await);
    let mut client = Client::new(context).await;
    let sections =
        partitions.iter().map(|partition| (*partition, vec![plain(1), client.batch(true)]));
    let mut sections: Vec<_> = sections.collect();
    sections.iter_mut().for_each(|(_, batches)| {
        let producer = batches[1].producer.as_mut().unwrap();
        (producer.first_sequence, producer.last_sequence) = (0, 0);
    });
    context.commit(&broker, &segment(&broker, 7, sections)).await;
    for partition in &partitions {
        assert_eq!(ends(context, *partition).await, (2, 1));
    }
    let before = context.store.partition_states(&partitions).await.unwrap();
    let outcomes = client.end(context, true).await;
    for ((partition, outcome), before) in partitions.iter().zip(outcomes).zip(before) {
        let state = context.state(*partition).await.unwrap();
        let marker = context.all_extents(*partition).await.remove(1);
        assert_eq!(outcome, MarkerOutcome::Written { marker, state });
        assert_eq!((state.high_watermark, state.last_stable_offset), (3, 3));
        assert_eq!(state.version, before.unwrap().version + 1);
        assert_eq!(state.bytes, 200, "a marker has no bytes");
        let extents = context.all_extents(*partition).await;
        let Place::Marker { producer, epoch, commit, .. } = extents[1].place else {
            panic!("the last extent is the marker: {extents:?}");
        };
        assert_eq!((producer, epoch, commit), (client.producer, ProducerEpoch(1), true));
        assert!(extents[1].has_transactional);
        let known = context.store.producers(*partition).await.unwrap();
        assert_eq!((known[0].epoch, known[0].transaction_start), (ProducerEpoch(1), None));
        assert_eq!(known[0].batches, [], "the epoch's sequences begin anew");
        assert_eq!(context.store.aborted(*partition, 0, i64::MAX).await.unwrap(), []);
    }
    let row = client.known(context).await.row;
    assert_eq!((row.state, row.partitions.len()), (TransactionState::CompleteCommit, 0));
    let outcomes = context.append(&broker, partitions[0], vec![client.batch(true)]).await;
    assert_eq!(outcomes, [accepted(3)]);
}

pub(super) async fn an_abort_is_listed(context: &Context) {
    let (broker, partition) = (context.broker().await, context.partition().await);
    let (mut one, mut two) = (Client::new(context).await, Client::new(context).await);
    let batches = vec![plain(1), one.batch(true), one.batch(true), two.batch(true), plain(1)];
    context.append(&broker, partition, batches).await;
    assert_eq!(ends(context, partition).await, (5, 1));
    assert_eq!(offset_of(&two.end(context, true).await[0]), 5);
    assert_eq!(ends(context, partition).await, (6, 1));
    assert_eq!(offset_of(&one.end(context, false).await[0]), 6);
    assert_eq!(ends(context, partition).await, (7, 7));
    let aborted = AbortedTransaction {
        producer: one.producer,
        first_offset: 1,
        last_offset: 6,
        last_stable_offset: 7,
    };
    let list = async |from, until| context.store.aborted(partition, from, until).await.unwrap();
    assert_eq!(list(0, i64::MAX).await, [aborted]);
    assert_eq!(list(6, 2).await, [aborted]);
    assert_eq!(list(7, i64::MAX).await, []);
    assert_eq!(list(0, 1).await, []);
    // An abort without records is not told.
    let known = one.known(context).await;
    let mut row = known.row.clone();
    row.begin(1);
    row.partitions.insert(partition);
    context.store.put_transaction(&one.id, Some(&known), &row).await.unwrap();
    assert_eq!(offset_of(&one.end(context, false).await[0]), 7);
    assert_eq!(list(0, i64::MAX).await, [aborted]);
}

pub(super) async fn lists_end_where_all_is_stable(context: &Context) {
    let (broker, partition) = (context.broker().await, context.partition().await);
    let (mut long, mut short) = (Client::new(context).await, Client::new(context).await);
    context.append(&broker, partition, vec![long.batch(true)]).await;
    for _ in 0..5 {
        context.append(&broker, partition, vec![short.batch(true)]).await;
        short.end(context, false).await;
    }
    // Its records are the first and its marker is the last.
    let last = offset_of(&long.end(context, false).await[0]);
    context.append(&broker, partition, vec![short.batch(true)]).await;
    short.end(context, false).await;
    let all = context.store.aborted(partition, 0, i64::MAX).await.unwrap();
    let firsts: Vec<i64> = all.iter().map(|one| one.first_offset).collect();
    assert_eq!(firsts, [1, 3, 5, 7, 9, 0, 12]);
    for until in [1, 2, 4, last + 1] {
        let some = context.store.aborted(partition, 0, until).await.unwrap();
        let wanted: Vec<_> = all.iter().filter(|one| one.first_offset < until).copied().collect();
        assert_eq!(some, wanted, "until {until}");
    }
    context.store.advance_log_start(partition, 6).await.unwrap();
    let left = context.store.aborted(partition, 0, i64::MAX).await.unwrap();
    assert_eq!(left, all[2..]);
}

pub(super) async fn late_batches_change_nothing(context: &Context) {
    let (broker, partitions) = (context.broker().await, context.partitions(2).await);
    // Before KIP-890's second part the epoch stays.
    let mut old = Client::new(context).await;
    let known = old.known(context).await;
    let mut row = known.row.clone();
    row.begin(1);
    row.partitions.extend(&partitions);
    context.store.put_transaction(&old.id, Some(&known), &row).await.unwrap();
    let (first, late) = (old.batch(false), old.batch(false));
    context.append(&broker, partitions[0], vec![first.clone()]).await;
    let known = old.known(context).await;
    let after = ended(&known, ProducerEpoch(0), true);
    let ending = Ending { commit: true, producer: old.producer, epoch: ProducerEpoch(0) };
    let created = |_| TimestampType::CreateTime;
    let outcomes = context.store.end_transaction(&known, &after, ending, created).await.unwrap();
    assert_eq!(outcomes.unwrap().len(), 2);
    let outcomes = context.append(&broker, partitions[0], vec![late.clone(), first]).await;
    assert_eq!(outcomes, [refused(Refusal::NotInTransaction); 2]);
    let outcomes = context.append(&broker, partitions[1], vec![late]).await;
    assert_eq!(outcomes, [refused(Refusal::NotInTransaction)]);
    // Its sequences go on in the next transaction.
    let sequences = context.store.producers(partitions[0]).await.unwrap();
    assert_eq!(sequences[0].batches.len(), 1);
    // With it, what comes late has an old epoch, whether its partition took part or not.
    let mut new = Client::new(context).await;
    let (first, late) = (new.batch(true), new.batch(true));
    context.append(&broker, partitions[0], vec![first]).await;
    new.end(context, true).await;
    for partition in &partitions {
        let outcomes = context.append(&broker, *partition, vec![late.clone()]).await;
        assert_eq!(outcomes, [refused(Refusal::FencedTransaction)]);
    }
    assert_eq!(new.known(context).await.row.state, TransactionState::CompleteCommit);
    assert_eq!(ends(context, partitions[0]).await, (4, 4));
    assert_eq!(ends(context, partitions[1]).await, (1, 1));
}

pub(super) async fn many_open_transactions_in_a_partition(context: &Context) {
    let (broker, partition) = (context.broker().await, context.partition().await);
    let mut clients = Vec::new();
    for _ in 0..3 * crate::PACKED_PRODUCERS_MAX {
        clients.push(Client::new(context).await);
    }
    for client in &mut clients {
        context.append(&broker, partition, vec![client.batch(true)]).await;
    }
    for _ in 0..crate::PACKED_PRODUCERS_MAX + 1 {
        let idle = vec![idempotent(context.producer(), 0, 0, 1)];
        context.append(&broker, partition, idle).await;
    }
    assert_eq!(ends(context, partition).await.1, 0);
    for (at, client) in clients.iter_mut().enumerate().rev() {
        client.end(context, at % 2 == 0).await;
        let (end, stable) = ends(context, partition).await;
        assert_eq!(stable, if at == 0 { end } else { 0 }, "the first is still open");
    }
    assert_eq!(context.append(&broker, partition, vec![clients[5].batch(true)]).await.len(), 1);
    let open = ends(context, partition).await;
    assert_eq!(open.1, open.0 - 1);
    let aborted = context.store.aborted(partition, 0, i64::MAX).await.unwrap();
    assert_eq!(aborted.len(), clients.len() / 2);
}

/// Extents and markers by turns: records at the even offsets, markers at the odd ones.
async fn by_turns(context: &Context, broker: &Registration, count: usize) -> TopicPartition {
    let partition = context.partition().await;
    let mut client = Client::new(context).await;
    for at in 0..count {
        let mut batch = client.batch(true);
        batch.max_timestamp_ms = 10 + at as i64;
        context.append(broker, partition, vec![batch]).await;
        client.end(context, at % 2 == 0).await;
    }
    partition
}

fn turns(from: i64, until: i64) -> Vec<(i64, i64, bool)> {
    (from..until).map(|offset| (offset, offset, offset % 2 == 1)).collect()
}

pub(super) async fn markers_among_fresh_extents(context: &Context) {
    let broker = context.broker().await;
    let partition = by_turns(context, &broker, 4).await;
    assert_eq!(spans(context, partition).await, turns(0, 8));
    for offset in 0..8 {
        for limit in 0..5 {
            let page = context.store.extents(partition, offset, limit).await.unwrap().unwrap();
            let found: Vec<i64> = page.extents.iter().map(|extent| extent.base_offset).collect();
            let wanted: Vec<i64> = (offset..8).take(limit).collect();
            assert_eq!(found, wanted, "{limit} from {offset}");
        }
    }
    // A marker's time is the store's, far above those of the records.
    let by_time = async |at| {
        let found = context.store.extent_by_time(partition, at).await.unwrap().unwrap();
        found.1.map(|extent| extent.base_offset)
    };
    assert_eq!((by_time(0).await, by_time(11).await), (Some(0), Some(1)));
    assert_eq!(by_time(i64::MAX).await, None);
    let newest = context.store.extent_of_max_timestamp(partition).await.unwrap().unwrap().1;
    assert_eq!(newest.unwrap().base_offset % 2, 1);
    // A page of nothing but markers, as many as are asked for.
    let mut client = Client::new(context).await;
    for _ in 0..3 {
        let known = client.known(context).await;
        let mut row = known.row.clone();
        row.begin(1);
        row.partitions.insert(partition);
        context.store.put_transaction(&client.id, Some(&known), &row).await.unwrap();
        client.end(context, true).await;
    }
    context.append(&broker, partition, vec![plain(1)]).await;
    let page = context.store.extents(partition, 8, 2).await.unwrap().unwrap();
    let found: Vec<i64> = page.extents.iter().map(|extent| extent.base_offset).collect();
    assert_eq!(found, [8, 9]);
    let page = context.store.extents(partition, 9, 3).await.unwrap().unwrap();
    let found: Vec<i64> = page.extents.iter().map(|extent| extent.base_offset).collect();
    assert_eq!(found, [9, 10, 11]);
}

pub(super) async fn markers_are_merged_and_dropped(context: &Context) {
    let broker = context.broker().await;
    let partition = by_turns(context, &broker, 6).await;
    // Sources that begin with a record and end with a marker, in the middle.
    let sources = context.store.extents(partition, 4, 4).await.unwrap().unwrap().extents;
    let place =
        Place::Range { key: format!("log/turns-{}", context.number), position: 0, length: 10 };
    let merged = Extent {
        base_offset: 4,
        last_offset: 7,
        place,
        offset_mode: OffsetMode::Absolute,
        max_timestamp_ms: 5,
        timestamp_type: TimestampType::CreateTime,
        has_transactional: true,
    };
    let replacement = vec![merged];
    let told = async || {
        let aborted = context.store.aborted(partition, 0, i64::MAX).await.unwrap();
        aborted.iter().map(|aborted| aborted.last_offset).collect::<Vec<_>>()
    };
    assert_eq!(told().await, [3, 7, 11]);
    let change = Replacement {
        partition,
        sources,
        replacement,
        object_size: 10,
        joins_object: false,
        forgotten_aborts: vec![7],
    };
    let made = context.store.replace_extents(&broker.fence, &change).await.unwrap();
    assert_eq!(made, ChangeOutcome::Applied);
    assert_eq!(told().await, [3, 11]);
    let mut expected = turns(0, 4);
    expected.push((4, 7, false));
    expected.extend(turns(8, 12));
    assert_eq!(spans(context, partition).await, expected);
    let state = context.state(partition).await.unwrap();
    assert_eq!(state.bytes, 4 * u64::from(BATCH_BYTES) + 10);
    // What is fresh behind it is unpacked around its markers.
    let none = FreshBounds { segments: 0, extents: 0 };
    while context.store.unpack_fresh(none).await.unwrap() > 0 {}
    assert_eq!(spans(context, partition).await, expected);
    let state = context.store.advance_log_start(partition, 9).await.unwrap().unwrap();
    assert_eq!(state.bytes, u64::from(BATCH_BYTES));
    assert_eq!(spans(context, partition).await, turns(9, 12));
    // Another one ends with fresh extents and markers, and its objects with it.
    let doomed = by_turns(context, &broker, 3).await;
    context.store.advance_log_start(doomed, 3).await.unwrap();
    assert_eq!(spans(context, doomed).await, turns(3, 6));
    let objects = context.all_extents(doomed).await;
    context.drop_partition(doomed).await;
    let keys = objects.into_iter().filter_map(|extent| match extent.place {
        Place::Range { key, .. } => Some(key),
        _ => None,
    });
    let dead = context.store.dead_objects(i64::MAX, usize::MAX).await.unwrap();
    for key in keys {
        assert!(dead.iter().any(|object| object.key == key), "{key}");
    }
}

pub(super) async fn an_end_takes_all_that_joined(context: &Context) {
    let (broker, partitions) = (context.broker().await, context.partitions(2).await);
    let mut client = Client::new(context).await;
    context.append(&broker, partitions[0], vec![client.batch(true)]).await;
    let known = client.known(context).await;
    // Another partition joins through another broker before the end that was decided.
    let other = context.broker().await;
    client.sequence = 0;
    context.append(&other, partitions[1], vec![client.batch(true)]).await;
    assert_eq!(client.try_end(context, &known, true).await, None);
    assert_eq!(ends(context, partitions[0]).await, (1, 0));
    let outcomes = client.end(context, true).await;
    assert_eq!(outcomes.iter().map(offset_of).collect::<Vec<_>>(), [1, 1]);
    // A topic that is gone does not hold the others up.
    for partition in &partitions {
        client.sequence = 0;
        context.append(&broker, *partition, vec![client.batch(true)]).await;
    }
    context.drop_partition(partitions[0]).await;
    let outcomes = client.end(context, false).await;
    assert_eq!(outcomes[0], MarkerOutcome::UnknownPartition);
    assert_eq!(offset_of(&outcomes[1]), 3);
    // Nothing of the end is made by a broker that is no more.
    client.sequence = 0;
    context.append(&broker, partitions[1], vec![client.batch(true)]).await;
    let known = client.known(context).await;
    let fenced = context.store.fenced_by(broker.fence.clone());
    context.register(broker.id).await;
    let epoch = ProducerEpoch(known.row.epoch.0 + 1);
    let ending = Ending { commit: true, producer: client.producer, epoch };
    let after = ended(&known, epoch, true);
    let created = |_| TimestampType::CreateTime;
    let error = fenced.end_transaction(&known, &after, ending, created).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
    assert_eq!(client.known(context).await, known);
}

pub(super) async fn a_marker_alone_ends_what_hangs(context: &Context) {
    let (broker, partition) = (context.broker().await, context.partition().await);
    let mut client = Client::new(context).await;
    context.append(&broker, partition, vec![client.batch(true), client.batch(true)]).await;
    let write = async |marker: MarkerFacts| {
        let outcomes = context.store.write_markers(&Change::default(), &[marker]).await.unwrap();
        outcomes.unwrap().remove(0)
    };
    let equal = MarkerFacts { raises_epoch: true, ..marker(partition, client.producer, 0) };
    assert_eq!(write(equal).await, MarkerOutcome::StaleEpoch);
    assert_eq!(offset_of(&write(marker(partition, client.producer, 0)).await), 2);
    assert_eq!(ends(context, partition).await, (3, 3));
    assert_eq!(context.store.aborted(partition, 0, i64::MAX).await.unwrap().len(), 1);
    // Without an open transaction it takes an offset and no more.
    let again = MarkerFacts { raises_epoch: true, ..marker(partition, client.producer, 3) };
    assert_eq!(offset_of(&write(again).await), 3);
    assert_eq!(context.store.aborted(partition, 0, i64::MAX).await.unwrap().len(), 1);
    assert_eq!(write(marker(partition, client.producer, 2)).await, MarkerOutcome::StaleEpoch);
    let missing = TopicPartition { partition: PartitionIndex(99), ..partition };
    let outcome = write(marker(missing, client.producer, 0)).await;
    assert_eq!(outcome, MarkerOutcome::UnknownPartition);
    assert_eq!(ends(context, partition).await, (4, 4));
    // Of a producer never seen its epoch stays, and fences older ones.
    let unseen = context.producer();
    assert_eq!(offset_of(&write(marker(partition, unseen, 3)).await), 4);
    let batches = vec![idempotent(unseen, 2, 0, 1), idempotent(unseen, 3, 0, 1)];
    let outcomes = context.append(&broker, partition, batches).await;
    assert_eq!(outcomes, [refused(Refusal::StaleProducerEpoch), accepted(5)]);
    let twice = [marker(partition, unseen, 4), marker(partition, client.producer, 4)];
    let error = context.store.write_markers(&Change::default(), &twice).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

pub(super) async fn records_of_an_open_transaction_are_deleted(context: &Context) {
    let (broker, partition) = (context.broker().await, context.partition().await);
    let mut client = Client::new(context).await;
    let batches = vec![plain(2), client.batch(true), client.batch(true)];
    context.append(&broker, partition, batches).await;
    context.store.advance_log_start(partition, 3).await.unwrap();
    assert_eq!(ends(context, partition).await, (4, 3));
    context.store.advance_log_start(partition, 4).await.unwrap();
    assert_eq!(ends(context, partition).await, (4, 4));
    // It is open all the same, and what comes behind is not stable.
    context.append(&broker, partition, vec![plain(1), client.batch(true)]).await;
    assert_eq!(ends(context, partition).await, (6, 4));
    assert_eq!(offset_of(&client.end(context, false).await[0]), 6);
    assert_eq!(ends(context, partition).await, (7, 7));
    let aborted = context.store.aborted(partition, 4, i64::MAX).await.unwrap();
    assert_eq!((aborted[0].first_offset, aborted[0].last_offset), (2, 6));
}

pub(super) async fn ids_are_listed_and_forgotten(context: &Context) {
    let (one, two) = (Client::new(context).await, Client::new(context).await);
    let listed = async || {
        let mut mine = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let page = context.store.transactions_after(after.as_deref(), 2).await.unwrap();
            let is_last = page.len() < 2;
            after = page.last().map(|known| known.id.clone()).or(after);
            mine.extend(page.into_iter().filter(|known| known.id == one.id || known.id == two.id));
            if is_last {
                return mine;
            }
        }
    };
    let all = listed().await;
    assert_eq!(all, [one.known(context).await, two.known(context).await]);
    let mut row = all[0].row.clone();
    row.updated_ms += 1;
    context.store.put_transaction(&one.id, Some(&all[0]), &row).await.unwrap();
    let stale = context.store.delete_transaction(&all[0]).await.unwrap();
    assert_eq!(stale, ChangeOutcome::Rejected);
    let gone = context.store.delete_transaction(&all[1]).await.unwrap();
    assert_eq!(gone, ChangeOutcome::Applied);
    assert_eq!(listed().await.len(), 1);
    assert_eq!(context.store.transaction(&two.id).await.unwrap(), None);
}
