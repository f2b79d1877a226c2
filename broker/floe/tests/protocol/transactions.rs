//! Transactions over the wire, in both protocols: before KIP-890 (`TV1`: partitions are added
//! first, an epoch stays) and since (`TV2`: writing adds them, every end raises the epoch).

use crate::kit::{Client, Rig};
use crate::samples::SampleTopic;
use bytes::Bytes;
use floe_wire::ErrorCode;
use floe_wire::messages::*;
use kfs::{BatchBuilder, NewRecord};
use std::collections::BTreeMap;
use std::time::Duration;

/// Which protocol a producer speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Tv1,
    Tv2,
}

const BOTH: [Protocol; 2] = [Protocol::Tv1, Protocol::Tv2];

/// A transactional producer on a connection of its own.
pub(crate) struct Producer {
    protocol: Protocol,
    client: Client,
    id: &'static str,
    timeout_ms: i32,
    pub(crate) producer_id: i64,
    pub(crate) epoch: i16,
    /// The next one of each topic.
    sequences: BTreeMap<&'static str, i32>,
}

impl Producer {
    pub(crate) async fn new(rig: &Rig, protocol: Protocol, id: &'static str) -> Self {
        Self::with_timeout(rig, protocol, id, 60_000).await
    }

    async fn with_timeout(
        rig: &Rig,
        protocol: Protocol,
        id: &'static str,
        timeout_ms: i32,
    ) -> Self {
        let client = rig.connect();
        let mut new = Self {
            protocol,
            client,
            id,
            timeout_ms,
            producer_id: -1,
            epoch: -1,
            sequences: BTreeMap::new(),
        };
        let (code, producer_id, epoch) = new.init().await;
        assert_eq!(code, ErrorCode::None);
        (new.producer_id, new.epoch) = (producer_id, epoch);
        new
    }

    fn transactional_id(&self) -> TransactionalId {
        TransactionalId(StrBytes::from_static_str(self.id))
    }

    /// InitProducerId without an expectation.
    async fn init(&mut self) -> (ErrorCode, i64, i16) {
        self.init_with((-1, -1)).await
    }

    /// InitProducerId by who believes to have this producer id and epoch.
    async fn init_with(&mut self, (producer_id, epoch): (i64, i16)) -> (ErrorCode, i64, i16) {
        let request = InitProducerIdRequest::default()
            .with_transactional_id(Some(self.transactional_id()))
            .with_transaction_timeout_ms(self.timeout_ms)
            .with_producer_id(ProducerId(producer_id))
            .with_producer_epoch(epoch);
        let request = RequestKind::InitProducerId(request);
        let ResponseKind::InitProducerId(answer) =
            self.client.call(ApiKey::InitProducerId, 5, request).await
        else {
            panic!("another answer")
        };
        (code(answer.error_code), answer.producer_id.0, answer.producer_epoch)
    }

    /// AddPartitionsToTxn of one partition.
    async fn add(&mut self, topic: &SampleTopic) -> ErrorCode {
        use add_partitions_to_txn_request::AddPartitionsToTxnTopic;
        let topic = AddPartitionsToTxnTopic::default()
            .with_name(topic.topic_name())
            .with_partitions(vec![0]);
        let request = AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(self.transactional_id())
            .with_v3_and_below_producer_id(ProducerId(self.producer_id))
            .with_v3_and_below_producer_epoch(self.epoch)
            .with_v3_and_below_topics(vec![topic]);
        let request = RequestKind::AddPartitionsToTxn(request);
        let ResponseKind::AddPartitionsToTxn(answer) =
            self.client.call(ApiKey::AddPartitionsToTxn, 3, request).await
        else {
            panic!("another answer")
        };
        let topic = &answer.results_by_topic_v3_and_below[0];
        code(topic.results_by_partition[0].partition_error_code)
    }

    fn batch(&mut self, topic: &SampleTopic, value: &str) -> Bytes {
        let (id, epoch) = (kfs::ProducerId(self.producer_id), kfs::ProducerEpoch(self.epoch));
        let sequence = self.sequences.entry(topic.name).or_default();
        let mut builder = BatchBuilder::new().producer(id, epoch, *sequence).transactional();
        let value = Some(value.as_bytes());
        builder.push(&NewRecord { timestamp_ms: 1_000, value, ..Default::default() }).expect("one");
        *sequence += 1;
        builder.build().expect("a batch")
    }

    /// Sends a batch without adding the partition.
    async fn send(&mut self, topic: &SampleTopic, batch: Bytes) -> (ErrorCode, i64) {
        let version = if self.protocol == Protocol::Tv1 { 11 } else { 12 };
        let RequestKind::Produce(request) = topic.produce(version, batch) else { panic!() };
        let request = request.with_transactional_id(Some(self.transactional_id()));
        let request = RequestKind::Produce(request);
        let ResponseKind::Produce(answer) =
            self.client.call(ApiKey::Produce, version, request).await
        else {
            panic!("another answer")
        };
        let partition = &answer.responses[0].partition_responses[0];
        (code(partition.error_code), partition.base_offset)
    }

    /// Writes a record within the transaction.
    pub(crate) async fn write(&mut self, topic: &SampleTopic, value: &str) -> i64 {
        if self.protocol == Protocol::Tv1 {
            assert_eq!(self.add(topic).await, ErrorCode::None);
        }
        let batch = self.batch(topic, value);
        let (code, offset) = self.send(topic, batch).await;
        assert_eq!(code, ErrorCode::None);
        offset
    }

    pub(crate) async fn end(&mut self, commit: bool) -> ErrorCode {
        let version = if self.protocol == Protocol::Tv1 { 4 } else { 5 };
        let request = EndTxnRequest::default()
            .with_transactional_id(self.transactional_id())
            .with_producer_id(ProducerId(self.producer_id))
            .with_producer_epoch(self.epoch)
            .with_committed(commit);
        let answer = self.client.call(ApiKey::EndTxn, version, RequestKind::EndTxn(request)).await;
        let ResponseKind::EndTxn(answer) = answer else { panic!("another answer") };
        if answer.error_code == 0 && self.protocol == Protocol::Tv2 {
            (self.producer_id, self.epoch) = (answer.producer_id.0, answer.producer_epoch);
            self.sequences.clear();
        }
        code(answer.error_code)
    }

    /// AddOffsetsToTxn where the protocol has it, and TxnOffsetCommit of partition 0.
    async fn commit_offset(&mut self, topic: &SampleTopic, group: &'static str, offset: i64) {
        let group = GroupId(StrBytes::from_static_str(group));
        if self.protocol == Protocol::Tv1 {
            let request = AddOffsetsToTxnRequest::default()
                .with_transactional_id(self.transactional_id())
                .with_producer_id(ProducerId(self.producer_id))
                .with_producer_epoch(self.epoch)
                .with_group_id(group.clone());
            let request = RequestKind::AddOffsetsToTxn(request);
            let answer = self.client.call(ApiKey::AddOffsetsToTxn, 4, request).await;
            let ResponseKind::AddOffsetsToTxn(answer) = answer else { panic!("another answer") };
            assert_eq!(answer.error_code, 0);
        }
        use txn_offset_commit_request::*;
        let partition = TxnOffsetCommitRequestPartition::default().with_committed_offset(offset);
        let topic = TxnOffsetCommitRequestTopic::default()
            .with_name(topic.topic_name())
            .with_partitions(vec![partition]);
        let request = TxnOffsetCommitRequest::default()
            .with_transactional_id(self.transactional_id())
            .with_group_id(group)
            .with_producer_id(ProducerId(self.producer_id))
            .with_producer_epoch(self.epoch)
            .with_generation_id(-1)
            .with_topics(vec![topic]);
        let version = if self.protocol == Protocol::Tv1 { 4 } else { 5 };
        let request = RequestKind::TxnOffsetCommit(request);
        let answer = self.client.call(ApiKey::TxnOffsetCommit, version, request).await;
        let ResponseKind::TxnOffsetCommit(answer) = answer else { panic!("another answer") };
        assert_eq!(answer.topics[0].partitions[0].error_code, 0);
    }
}

fn code(number: i16) -> ErrorCode {
    ErrorCode::from_code(number).expect("a code of Kafka's")
}

async fn topic(rig: &Rig, name: &'static str) -> SampleTopic {
    SampleTopic { name, id: rig.create_topic(name, 1).await }
}

/// (high watermark, last stable offset, first offsets of aborted transactions, batches).
pub(crate) async fn committed(rig: &Rig, topic: &SampleTopic) -> (i64, i64, Vec<i64>, usize) {
    let RequestKind::Fetch(request) = topic.fetch(12, 0, 0) else { panic!() };
    let request = RequestKind::Fetch(request.with_isolation_level(1));
    let answer = rig.connect().fetch(12, request).await;
    let partition = &answer.responses[0].partitions[0];
    let aborted = partition.aborted_transactions.as_ref().expect("never null");
    let records = partition.records.clone().expect("never null");
    (
        partition.high_watermark,
        partition.last_stable_offset,
        aborted.iter().map(|one| one.first_offset).collect(),
        kfs::batches(&records).count(),
    )
}

/// What OffsetFetch answers of partition 0: its code and the offset.
async fn offset(
    rig: &Rig,
    topic: &SampleTopic,
    group: &'static str,
    stable: bool,
) -> (ErrorCode, i64) {
    use offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
    let topic = OffsetFetchRequestTopics::default()
        .with_name(topic.topic_name())
        .with_partition_indexes(vec![0]);
    let group = OffsetFetchRequestGroup::default()
        .with_group_id(GroupId(StrBytes::from_static_str(group)))
        .with_topics(Some(vec![topic]));
    let request =
        OffsetFetchRequest::default().with_groups(vec![group]).with_require_stable(stable);
    let request = RequestKind::OffsetFetch(request);
    let ResponseKind::OffsetFetch(answer) =
        rig.connect().call(ApiKey::OffsetFetch, 8, request).await
    else {
        panic!("another answer")
    };
    let partition = &answer.groups[0].topics[0].partitions[0];
    (code(partition.error_code), partition.committed_offset)
}

#[tokio::test]
async fn a_transaction_is_seen_in_all_its_partitions_or_in_none() {
    for protocol in BOTH {
        let rig = Rig::start().await;
        let (one, two) = (topic(&rig, "one").await, topic(&rig, "two").await);
        let mut producer = Producer::new(&rig, protocol, "t").await;
        for (round, commit) in [(0, true), (1, false)] {
            let first = round * 2;
            assert_eq!(producer.write(&one, "a").await, first);
            assert_eq!(producer.write(&two, "b").await, first);
            for topic in [&one, &two] {
                let seen = committed(&rig, topic).await;
                assert_eq!((seen.0, seen.1), (first + 1, first), "{protocol:?}");
            }
            assert_eq!(producer.end(commit).await, ErrorCode::None);
            for topic in [&one, &two] {
                let aborted = if commit { vec![] } else { vec![2] };
                let batches = 2 * (round as usize + 1);
                let expected = (first + 2, first + 2, aborted, batches);
                assert_eq!(committed(&rig, topic).await, expected, "{protocol:?}");
            }
        }
    }
}

/// The produce timed out at the client, which has aborted; its segment commits after EndTxn.
#[tokio::test]
async fn a_batch_that_comes_late_neither_hangs_nor_joins_the_next_transaction() {
    for protocol in BOTH {
        let rig = Rig::start().await;
        let (one, two) = (topic(&rig, "one").await, topic(&rig, "two").await);
        let mut producer = Producer::new(&rig, protocol, "t").await;
        producer.write(&one, "a").await;
        if protocol == Protocol::Tv1 {
            assert_eq!(producer.add(&two).await, ErrorCode::None);
        }
        let late = producer.batch(&one, "late");
        let first = producer.batch(&two, "late");
        assert_eq!(producer.end(false).await, ErrorCode::None);
        let refused = match protocol {
            Protocol::Tv1 => ErrorCode::TransactionAbortable,
            Protocol::Tv2 => ErrorCode::InvalidProducerEpoch,
        };
        assert_eq!(producer.send(&one, late.clone()).await.0, refused);
        assert_eq!(producer.send(&two, first.clone()).await.0, refused);
        let seen = committed(&rig, &one).await;
        assert_eq!(seen.0, seen.1, "{protocol:?}: nothing hangs");
        // A client of the older protocol begins a new epoch after an error like this one.
        if protocol == Protocol::Tv1 {
            let (_, producer_id, epoch) = producer.init().await;
            (producer.producer_id, producer.epoch) = (producer_id, epoch);
            producer.sequences.clear();
        }
        producer.write(&one, "b").await;
        producer.write(&two, "b").await;
        for late in [late, first] {
            for topic in [&one, &two] {
                let refused = producer.send(topic, late.clone()).await.0;
                assert_eq!(refused, ErrorCode::InvalidProducerEpoch, "{protocol:?}");
            }
        }
        assert_eq!(producer.end(true).await, ErrorCode::None);
        let seen = committed(&rig, &one).await;
        assert_eq!((seen.0, seen.1, seen.2), (4, 4, vec![0]), "{protocol:?}");
    }
}

/// As Kafka's guard of verification: what was refused before its partition was added is not
/// overtaken by what the producer sent behind it.
#[tokio::test]
async fn a_batch_that_was_refused_is_not_overtaken() {
    let rig = Rig::start().await;
    let topic = topic(&rig, "one").await;
    let mut producer = Producer::new(&rig, Protocol::Tv1, "t").await;
    let (first, next) = (producer.batch(&topic, "a"), producer.batch(&topic, "b"));
    let refused = producer.send(&topic, first.clone()).await.0;
    assert_eq!(refused, ErrorCode::TransactionAbortable);
    assert_eq!(producer.add(&topic).await, ErrorCode::None);
    let early = producer.send(&topic, next.clone()).await.0;
    assert_eq!(early, ErrorCode::OutOfOrderSequenceNumber);
    for (batch, offset) in [(first, 0), (next, 1)] {
        assert_eq!(producer.send(&topic, batch).await, (ErrorCode::None, offset));
    }
}

/// Case 134: Flink commits with the id and epoch of a producer that is gone, from a new connection,
/// and may do it twice.
#[tokio::test]
async fn case_134_another_process_commits_and_repeats_it() {
    for protocol in BOTH {
        let rig = Rig::start().await;
        let topic = topic(&rig, "one").await;
        let mut producer = Producer::new(&rig, protocol, "t").await;
        producer.write(&topic, "a").await;
        let (producer_id, epoch) = (producer.producer_id, producer.epoch);
        drop(producer);
        for _ in 0..2 {
            let client = rig.connect();
            let mut resumed = Producer {
                protocol,
                client,
                id: "t",
                timeout_ms: 60_000,
                producer_id,
                epoch,
                sequences: BTreeMap::new(),
            };
            assert_eq!(resumed.end(true).await, ErrorCode::None, "{protocol:?}");
        }
        let seen = committed(&rig, &topic).await;
        assert_eq!((seen.0, seen.1, seen.2), (2, 2, vec![]), "{protocol:?}");
    }
}

#[tokio::test]
async fn a_new_producer_aborts_and_fences_the_old_one() {
    for protocol in BOTH {
        let rig = Rig::start().await;
        let topic = topic(&rig, "one").await;
        let mut old = Producer::new(&rig, protocol, "t").await;
        old.write(&topic, "a").await;
        let mut new = Producer {
            client: rig.connect(),
            sequences: BTreeMap::new(),
            ..Producer::new(&rig, protocol, "u").await
        };
        new.id = "t";
        assert_eq!(new.init().await.0, ErrorCode::ConcurrentTransactions);
        let (code, producer_id, epoch) = new.init().await;
        assert_eq!((code, producer_id, epoch), (ErrorCode::None, old.producer_id, old.epoch + 2));
        (new.producer_id, new.epoch) = (producer_id, epoch);
        let late = old.batch(&topic, "b");
        assert_eq!(old.send(&topic, late).await.0, ErrorCode::InvalidProducerEpoch);
        assert_eq!(old.end(true).await, ErrorCode::ProducerFenced);
        new.write(&topic, "c").await;
        assert_eq!(new.end(true).await, ErrorCode::None);
        let seen = committed(&rig, &topic).await;
        assert_eq!((seen.0, seen.1, seen.2), (4, 4, vec![0]), "{protocol:?}");
    }
}

/// A connection to the metadata store breaks around the commit of an end. Who has read all before
/// it must see it all the same, though nobody writes any more.
#[tokio::test]
async fn an_end_whose_answer_was_lost_shows_to_who_has_read_all_before_it() {
    for protocol in BOTH {
        let rig = Rig::start().await;
        let topic = topic(&rig, "one").await;
        let mut producer = Producer::new(&rig, protocol, "t").await;
        producer.write(&topic, "a").await;
        assert_eq!(committed(&rig, &topic).await, (1, 0, vec![], 0));
        rig.model.lose_next_end();
        assert_eq!(producer.end(true).await, ErrorCode::None);
        assert_eq!(committed(&rig, &topic).await, (2, 2, vec![], 2), "{protocol:?}");
        // One that a new producer aborts.
        producer.write(&topic, "b").await;
        rig.model.lose_next_end();
        let (code, ..) = producer.init().await;
        assert_eq!(code, ErrorCode::None, "the broker itself has asked again");
        assert_eq!(committed(&rig, &topic).await, (4, 4, vec![2], 4), "{protocol:?}");
    }
}

/// KIP-360: a producer goes on with what it has, and is told to ask again while its transaction is
/// aborted.
#[tokio::test]
async fn who_goes_on_with_an_open_transaction_is_not_fenced_by_its_abort() {
    for protocol in BOTH {
        let rig = Rig::start().await;
        let topic = topic(&rig, "one").await;
        let mut producer = Producer::new(&rig, protocol, "t").await;
        let (producer_id, epoch) = (producer.producer_id, producer.epoch);
        producer.write(&topic, "a").await;
        let own = (producer_id, epoch);
        assert_eq!(producer.init_with(own).await.0, ErrorCode::ConcurrentTransactions);
        let next = (ErrorCode::None, producer_id, epoch + 1);
        assert_eq!(producer.init_with(own).await, next, "{protocol:?}");
        assert_eq!(producer.init_with(own).await, next, "{protocol:?}: its answer was lost");
        producer.epoch = epoch + 1;
        producer.sequences.clear();
        producer.write(&topic, "b").await;
        // An old epoch aborts it too, and gets nothing for that.
        let abort = producer.init_with((producer_id, epoch)).await.0;
        assert_eq!(abort, ErrorCode::ConcurrentTransactions);
        let fenced = producer.init_with((producer_id, epoch)).await.0;
        assert_eq!(fenced, ErrorCode::ProducerFenced);
        assert_eq!(committed(&rig, &topic).await.2, [0, 2], "{protocol:?}");
    }
}

#[tokio::test]
async fn offsets_are_committed_with_the_transaction() {
    for protocol in BOTH {
        let rig = Rig::start().await;
        let topic = topic(&rig, "one").await;
        let mut producer = Producer::new(&rig, protocol, "t").await;
        producer.write(&topic, "a").await;
        producer.commit_offset(&topic, "g", 5).await;
        let unstable = (ErrorCode::UnstableOffsetCommit, -1);
        assert_eq!(offset(&rig, &topic, "g", true).await, unstable);
        assert_eq!(offset(&rig, &topic, "g", false).await, (ErrorCode::None, -1));
        assert_eq!(producer.end(true).await, ErrorCode::None);
        assert_eq!(offset(&rig, &topic, "g", true).await, (ErrorCode::None, 5), "{protocol:?}");
        producer.commit_offset(&topic, "g", 9).await;
        assert_eq!(offset(&rig, &topic, "g", true).await, unstable);
        assert_eq!(offset(&rig, &topic, "g", false).await, (ErrorCode::None, 5));
        assert_eq!(producer.end(false).await, ErrorCode::None);
        assert_eq!(offset(&rig, &topic, "g", true).await, (ErrorCode::None, 5), "{protocol:?}");
    }
}

/// Some clients take a list of aborted transactions for an order to drop records: who asked for
/// uncommitted ones gets them all, and no list.
#[tokio::test]
async fn case_148_readers_of_uncommitted_records_get_the_aborted_ones_and_no_list() {
    let rig = Rig::start().await;
    let topic = topic(&rig, "one").await;
    let mut producer = Producer::new(&rig, Protocol::Tv2, "t").await;
    producer.write(&topic, "20").await;
    assert_eq!(producer.end(false).await, ErrorCode::None);
    let answer = rig.connect().fetch(12, topic.fetch(12, 0, 0)).await;
    let partition = &answer.responses[0].partitions[0];
    assert_eq!(partition.aborted_transactions, None);
    let records = partition.records.clone().expect("never null");
    let batches: Vec<_> = kfs::batches(&records).map(|batch| batch.expect("whole")).collect();
    let kinds: Vec<bool> = batches.iter().map(|batch| batch.header.is_control()).collect();
    assert_eq!(kinds, [false, true], "the record, and its marker");
    let aborted = batches[0].records(1 << 20).expect("records");
    let value = aborted.iter().next().expect("one").expect("a record").value;
    assert_eq!(value, Some(&b"20"[..]));
    assert_eq!(committed(&rig, &topic).await.2, vec![0], "who reads committed ones is told");
}

/// Case 151: a reader of committed records reaches the end though the tail is a marker or aborted.
#[tokio::test]
async fn case_151_control_batches_at_the_tail_are_passed() {
    let rig = Rig::start().await;
    let topic = topic(&rig, "one").await;
    let mut producer = Producer::new(&rig, Protocol::Tv2, "t").await;
    producer.write(&topic, "a").await;
    producer.end(false).await;
    let RequestKind::Fetch(request) = topic.fetch(12, 1, 5_000) else { panic!() };
    let request = RequestKind::Fetch(request.with_isolation_level(1));
    let answer = rig.connect().fetch(12, request).await;
    let records = answer.responses[0].partitions[0].records.clone().expect("never null");
    let last = kfs::batches(&records).last().expect("the marker").expect("a batch").header;
    assert!(last.is_control());
    assert_eq!(last.last_offset() + 1, answer.responses[0].partitions[0].last_stable_offset);
}

#[tokio::test(start_paused = true)]
async fn a_transaction_that_is_open_for_too_long_is_aborted() {
    let rig = Rig::start().await;
    let topic = topic(&rig, "one").await;
    // What the first round does is not told; the next one looks.
    rig.model.lose_next_end();
    let job = rig.broker.tend_transactions();
    // The store's clock is the machine's, whatever the runtime's does.
    let mut producer = Producer::with_timeout(&rig, Protocol::Tv2, "t", 1).await;
    producer.write(&topic, "a").await;
    let written_ms = rig.env.now_ms();
    while rig.env.now_ms() < written_ms + 5 {
        std::hint::spin_loop();
    }
    rig.env.sleep(Duration::from_secs(30)).await;
    let seen = committed(&rig, &topic).await;
    assert_eq!((seen.0, seen.1, seen.2), (2, 2, vec![0]));
    let late = producer.batch(&topic, "b");
    assert_eq!(producer.send(&topic, late).await.0, ErrorCode::InvalidProducerEpoch);
    assert_eq!(producer.end(true).await, ErrorCode::InvalidTxnState);
    rig.trigger.trigger();
    job.join().await;
}

#[tokio::test]
async fn transactions_are_described_and_listed() {
    let rig = Rig::start().await;
    let topic = topic(&rig, "one").await;
    let mut producer = Producer::new(&rig, Protocol::Tv2, "t").await;
    producer.write(&topic, "a").await;
    let ids = ["t", "u"].map(|id| TransactionalId(StrBytes::from_static_str(id))).to_vec();
    let request = DescribeTransactionsRequest::default().with_transactional_ids(ids);
    let request = RequestKind::DescribeTransactions(request);
    let mut client = rig.connect();
    let answer = client.call(ApiKey::DescribeTransactions, 0, request).await;
    let ResponseKind::DescribeTransactions(answer) = answer else { panic!("another answer") };
    let [open, unknown] = &answer.transaction_states[..] else { panic!("two") };
    assert_eq!((&*open.transaction_state, open.topics[0].partitions.len()), ("Ongoing", 1));
    assert_eq!(code(unknown.error_code), ErrorCode::TransactionalIdNotFound);
    let list = |state: &'static str| {
        let states = vec![StrBytes::from_static_str(state)];
        let request = ListTransactionsRequest::default().with_state_filters(states);
        RequestKind::ListTransactions(request.with_duration_filter(-1))
    };
    let patterns = [("t", Ok(1)), ("", Ok(1)), ("[s-u]", Ok(1)), ("t.", Ok(0)), ("x|t", Ok(1))];
    let long = "t|".repeat(1_000);
    let broken = ["(", "a)(b", "t{9999999}", &long].map(|pattern| (pattern, Err(())));
    for (pattern, found) in patterns.into_iter().chain(broken) {
        let request = ListTransactionsRequest::default()
            .with_duration_filter(-1)
            .with_transactional_id_pattern(Some(StrBytes::from_string(pattern.to_owned())));
        let request = RequestKind::ListTransactions(request);
        let answer = client.call(ApiKey::ListTransactions, 2, request).await;
        let ResponseKind::ListTransactions(answer) = answer else { panic!("another answer") };
        let expected = match found {
            Ok(_) => ErrorCode::None,
            Err(()) => ErrorCode::InvalidRegularExpression,
        };
        assert_eq!(code(answer.error_code), expected, "{pattern}");
        assert_eq!(answer.transaction_states.len(), found.unwrap_or(0), "{pattern}");
    }
    for (state, count, unknown) in [("Ongoing", 1, 0), ("Empty", 0, 0), ("ongoing", 0, 1)] {
        let answer = client.call(ApiKey::ListTransactions, 1, list(state)).await;
        let ResponseKind::ListTransactions(answer) = answer else { panic!("another answer") };
        assert_eq!(answer.transaction_states.len(), count, "{state}");
        assert_eq!(answer.unknown_state_filters.len(), unknown, "{state}");
    }
}
