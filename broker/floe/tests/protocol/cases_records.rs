//! Reported cases about producing, fetching and offsets, each named for its number.

use crate::kit::{Client, Rig, values};
use crate::samples::{SampleTopic, batch};
use bytes::Bytes;
use floe_wire::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use floe_wire::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use floe_wire::messages::*;
use kfs::{BatchBuilder, Codec, HeaderRef, NewRecord};

async fn rig() -> (Rig, SampleTopic, Client) {
    let rig = Rig::start().await;
    let topic = SampleTopic { name: "cases", id: rig.create_topic("cases", 1).await };
    let client = rig.connect();
    (rig, topic, client)
}

/// A batch of records with these times, under a codec.
fn timed(codec: Codec, times: &[i64]) -> Bytes {
    let mut builder = BatchBuilder::new().codec(codec, None);
    for timestamp_ms in times {
        let value = timestamp_ms.to_string();
        let record = NewRecord {
            timestamp_ms: *timestamp_ms,
            value: Some(value.as_bytes()),
            ..Default::default()
        };
        builder.push(&record).expect("a record");
    }
    builder.build().expect("a batch")
}

/// A batch of an idempotent producer.
fn idempotent(producer_id: i64, sequence: i32, values: &[&str]) -> Bytes {
    let mut builder =
        BatchBuilder::new().producer(kfs::ProducerId(producer_id), kfs::ProducerEpoch(0), sequence);
    for value in values {
        let record =
            NewRecord { timestamp_ms: 1_000, value: Some(value.as_bytes()), ..Default::default() };
        builder.push(&record).expect("a record");
    }
    builder.build().expect("a batch")
}

/// The offset and time that ListOffsets finds, or its error.
async fn offset_at(client: &mut Client, topic: &SampleTopic, timestamp: i64) -> (i16, i64, i64) {
    let partition =
        ListOffsetsPartition::default().with_partition_index(0).with_timestamp(timestamp);
    let topic =
        ListOffsetsTopic::default().with_name(topic.topic_name()).with_partitions(vec![partition]);
    let request =
        ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![topic]);
    let answer = client.call(ApiKey::ListOffsets, 7, RequestKind::ListOffsets(request)).await;
    let ResponseKind::ListOffsets(answer) = answer else { panic!("another answer") };
    let found = &answer.topics[0].partitions[0];
    (found.error_code, found.offset, found.timestamp)
}

async fn delete_records(client: &mut Client, topic: &SampleTopic, offset: i64) {
    let partition = DeleteRecordsPartition::default().with_partition_index(0).with_offset(offset);
    let topic = DeleteRecordsTopic::default()
        .with_name(topic.topic_name())
        .with_partitions(vec![partition]);
    let request = DeleteRecordsRequest::default().with_topics(vec![topic]);
    let answer = client.call(ApiKey::DeleteRecords, 2, RequestKind::DeleteRecords(request)).await;
    let ResponseKind::DeleteRecords(answer) = answer else { panic!("another answer") };
    assert_eq!(answer.topics[0].partitions[0].error_code, 0);
}

/// Java producers are idempotent by default, and fail where they get no id.
#[tokio::test]
async fn case_127_an_idempotent_producer_gets_an_id_at_every_version() {
    let (_rig, _topic, mut client) = rig().await;
    let mut given = Vec::new();
    for version in 0..=5 {
        let request = InitProducerIdRequest::default().with_transactional_id(None);
        let request = if version >= 3 {
            request.with_producer_id(ProducerId(-1)).with_producer_epoch(-1)
        } else {
            request
        };
        let request = RequestKind::InitProducerId(request);
        let answer = client.call(ApiKey::InitProducerId, version, request).await;
        let ResponseKind::InitProducerId(answer) = answer else { panic!("another answer") };
        assert_eq!((answer.error_code, answer.producer_epoch), (0, 0));
        given.push(answer.producer_id.0);
    }
    given.sort_unstable();
    given.dedup();
    assert_eq!(given.len(), 6, "no id is given twice");
}

#[tokio::test]
async fn case_128_a_batch_sent_again_is_answered_with_its_first_offset() {
    let (_rig, topic, mut client) = rig().await;
    let sent = |sequence| idempotent(7, sequence, &["x"]);
    for sequence in 0..5 {
        let produced = client.produce(&topic, 9, sent(sequence)).await;
        assert_eq!((produced.error_code, produced.base_offset), (0, i64::from(sequence)));
    }
    for sequence in 0..5 {
        let again = client.produce(&topic, 9, sent(sequence)).await;
        assert_eq!((again.error_code, again.base_offset), (0, i64::from(sequence)));
    }
    let ahead = client.produce(&topic, 9, sent(7)).await;
    assert_eq!(ahead.error_code, 45);
    assert_eq!(values(&client.fetch(12, topic.fetch(12, 0, 0)).await).len(), 5);
}

/// A producer whose state is gone, by expiry too, goes on where it was; also after a restart.
#[tokio::test]
async fn case_130_an_unknown_producer_begins_at_any_sequence() {
    let (rig, topic, mut client) = rig().await;
    let produced = client.produce(&topic, 9, idempotent(77, 7, &["x"])).await;
    assert_eq!((produced.error_code, produced.base_offset), (0, 0));
    let next = client.produce(&topic, 9, idempotent(77, 8, &["y"])).await;
    assert_eq!((next.error_code, next.base_offset), (0, 1));
    let ahead = client.produce(&topic, 9, idempotent(77, 20, &["z"])).await;
    assert_eq!(ahead.error_code, 45, "as long as it is known, a gap is a gap");
    let known = rig.broker.topics.by_name(topic.name).expect("it is there");
    let partition = known.partition(0).expect("one partition");
    rig.broker.metadata.expire_producers(partition, i64::MAX).await.expect("expired");
    let late = client.produce(&topic, 9, idempotent(77, 20, &["z"])).await;
    assert_eq!((late.error_code, late.base_offset), (0, 2));
    let rig = rig.restart().await;
    let mut client = rig.connect();
    let later = client.produce(&topic, 9, idempotent(77, 21, &["after"])).await;
    assert_eq!((later.error_code, later.base_offset), (0, 3));
    rig.broker.metadata.expire_producers(partition, i64::MAX).await.expect("expired");
    let rig = rig.restart().await;
    let last = rig.connect().produce(&topic, 9, idempotent(77, 40, &["last"])).await;
    assert_eq!((last.error_code, last.base_offset), (0, 4));
}

#[tokio::test]
async fn case_131_sequences_wrap_to_0() {
    let (_rig, topic, mut client) = rig().await;
    let last = client.produce(&topic, 9, idempotent(7, i32::MAX - 1, &["a", "b"])).await;
    assert_eq!(last.error_code, 0);
    let wrapped = client.produce(&topic, 9, idempotent(7, 0, &["c"])).await;
    assert_eq!((wrapped.error_code, wrapped.base_offset), (0, 2));
    let across = client.produce(&topic, 9, idempotent(8, i32::MAX, &["d", "e"])).await;
    assert_eq!(across.error_code, 0);
    let next = client.produce(&topic, 9, idempotent(8, 1, &["f"])).await;
    assert_eq!((next.error_code, next.base_offset), (0, 5));
}

/// A record older than the first of its batch or segment.
#[tokio::test]
async fn case_140_times_that_go_back_stay_what_they_are() {
    let (_rig, topic, mut client) = rig().await;
    let month_ms = 30 * 24 * 3_600_000;
    let now = 1_700_000_000_000;
    let times = [now, now - 1, now - 2 * month_ms];
    client.produce(&topic, 9, timed(Codec::None, &times)).await;
    let later = [now - month_ms];
    client.produce(&topic, 9, timed(Codec::None, &later)).await;
    assert_eq!(offset_at(&mut client, &topic, now).await, (0, 0, now));
    assert_eq!(offset_at(&mut client, &topic, now + 1).await, (0, -1, -1));
    assert_eq!(offset_at(&mut client, &topic, -3).await, (0, 0, now));
    let answer = client.fetch(12, topic.fetch(12, 0, 0)).await;
    let found: Vec<String> = values(&answer).into_iter().map(|(_, value)| value).collect();
    let expected = times.iter().chain(&later).map(ToString::to_string);
    assert_eq!(found, expected.collect::<Vec<_>>());
}

/// kafkajs with zstd and headers.
#[tokio::test]
async fn case_142_and_145_every_codec_is_taken_with_headers() {
    let (_rig, topic, mut client) = rig().await;
    let headers: [HeaderRef<'_>; 3] = [(b"h", Some(b"1")), (b"h", None), (b"h", Some(b""))];
    for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let mut builder = BatchBuilder::new().codec(codec, None);
        let record =
            NewRecord { timestamp_ms: 1_000, key: None, value: Some(b"v"), headers: &headers };
        builder.push(&record).expect("a record");
        let produced = client.produce(&topic, 9, builder.build().expect("a batch")).await;
        assert_eq!(produced.error_code, 0, "{codec:?}");
    }
    // Before version 7 clients do not know zstd.
    let refused = client.produce(&topic, 6, timed(Codec::Zstd, &[1])).await;
    assert_eq!(refused.error_code, 76);
    let answer = client.fetch(12, topic.fetch(12, 0, 0)).await;
    let records = answer.responses[0].partitions[0].records.clone().expect("records");
    let mut found = 0;
    for batch in kfs::batches(&records) {
        let batch = batch.expect("whole batches");
        let records = batch.records(1 << 20).expect("records");
        let record = records.iter().next().expect("one").expect("a record");
        // Twice the same key, null and empty, in their order.
        assert_eq!(record.headers.collect::<Vec<_>>(), headers);
        found += 1;
    }
    assert_eq!(found, 5);
}

/// Few bytes that become many: refused before they do.
#[tokio::test]
async fn case_143_what_decompresses_beyond_the_limit_is_refused() {
    let rig = Rig::start().await;
    let limit = [("max.decompressed.message.bytes".to_owned(), "1000000".to_owned())];
    let limit = limit.into_iter().collect();
    rig.broker.metadata.create_topic("small", 1, 1, limit).await.expect("a new topic");
    rig.broker.topics.refresh().await.expect("topics");
    let id = rig.broker.topics.by_name("small").expect("it is there").topic.id.0;
    let topic = SampleTopic { name: "small", id };
    let mut builder = BatchBuilder::new().codec(Codec::Zstd, None);
    let zeros = vec![0; 2_000_000];
    let record = NewRecord { timestamp_ms: 1_000, value: Some(&zeros), ..Default::default() };
    builder.push(&record).expect("a record");
    let bomb = builder.build().expect("a batch");
    assert!(bomb.len() < 1000);
    let refused = rig.connect().produce(&topic, 9, bomb).await;
    assert_eq!(refused.error_code, 10);
}

#[tokio::test]
async fn case_149_isolation_changes_nothing_without_transactions() {
    let (_rig, topic, mut client) = rig().await;
    let committed = |offset| {
        let RequestKind::Fetch(request) = topic.fetch(12, offset, 0) else { panic!() };
        RequestKind::Fetch(request.with_isolation_level(1))
    };
    let empty = client.fetch(12, committed(0)).await;
    let partition = &empty.responses[0].partitions[0];
    assert_eq!((partition.error_code, partition.last_stable_offset), (0, 0));
    assert_eq!(partition.aborted_transactions.as_deref(), Some(&[][..]));
    client.produce(&topic, 9, batch(&["a"])).await;
    let read = client.fetch(12, committed(0)).await;
    assert_eq!(values(&read).len(), 1);
    assert_eq!(read.responses[0].partitions[0].last_stable_offset, 1);
    let uncommitted = client.fetch(12, topic.fetch(12, 0, 0)).await;
    assert_eq!(uncommitted.responses[0].partitions[0].aborted_transactions, None);
}

#[tokio::test]
async fn case_154_what_is_acknowledged_is_read_at_once_by_anybody() {
    let (rig, topic, mut client) = rig().await;
    let mut reader = rig.connect();
    for number in 0..20 {
        client.produce(&topic, 9, batch(&[&number.to_string()])).await;
        let answer = reader.fetch(12, topic.fetch(12, number, 0)).await;
        assert_eq!(values(&answer), vec![(number, number.to_string())]);
    }
}

/// KIP-74: the first batch comes whole whatever the limits, and no second one with it.
#[tokio::test]
async fn case_158_a_batch_larger_than_every_limit_is_fetched() {
    let (_rig, topic, mut client) = rig().await;
    for _ in 0..2 {
        client.produce(&topic, 9, batch(&[&"x".repeat(126_000)])).await;
    }
    let RequestKind::Fetch(mut request) = topic.fetch(12, 0, 0) else { panic!() };
    request.max_bytes = 1;
    request.topics[0].partitions[0].partition_max_bytes = 1;
    let answer = client.fetch(12, RequestKind::Fetch(request)).await;
    assert_eq!(values(&answer).len(), 1);
}

/// The limit of the whole answer holds over however many partitions, each of which has its own.
#[tokio::test]
async fn case_158_a_thousand_partitions_share_one_limit() {
    const PARTITIONS: i32 = 1_000;
    const BYTES_MAX: i32 = 50_000;
    let rig = Rig::start().await;
    let topic = SampleTopic { name: "wide", id: rig.create_topic("wide", PARTITIONS).await };
    let mut client = rig.connect();
    let RequestKind::Produce(mut request) = topic.produce(9, batch(&[&"x".repeat(3_000)])) else {
        panic!()
    };
    let one = request.topic_data[0].partition_data.remove(0);
    request.topic_data[0].partition_data =
        (0..PARTITIONS).map(|index| one.clone().with_index(index)).collect();
    let answer = client.call(ApiKey::Produce, 9, RequestKind::Produce(request)).await;
    let ResponseKind::Produce(answer) = answer else { panic!("another answer") };
    let answered = &answer.responses[0].partition_responses;
    assert_eq!(answered.len(), PARTITIONS as usize);
    assert!(answered.iter().all(|partition| partition.error_code == 0));
    let RequestKind::Fetch(mut request) = topic.fetch(12, 0, 0) else { panic!() };
    request.max_bytes = BYTES_MAX;
    let partitions = &mut request.topics[0].partitions;
    *partitions =
        (0..PARTITIONS).map(|index| partitions[0].clone().with_partition(index)).collect();
    let answer = client.fetch(12, RequestKind::Fetch(request)).await;
    let partitions = &answer.responses[0].partitions;
    let sizes = partitions.iter().map(|one| one.records.as_ref().map_or(0, Bytes::len));
    let sum: usize = sizes.sum();
    assert!(sum <= BYTES_MAX as usize && sum > BYTES_MAX as usize / 2, "{sum} bytes");
    assert!(partitions.iter().all(|one| (one.error_code, one.high_watermark) == (0, 1)));
}

#[tokio::test]
async fn case_160_and_161_the_first_record_at_or_after_a_time_is_found_or_none() {
    let (_rig, topic, mut client) = rig().await;
    client.produce(&topic, 9, timed(Codec::None, &[2, 4])).await;
    client.produce(&topic, 9, timed(Codec::Gzip, &[6, 8])).await;
    for (asked, offset, timestamp) in [(3, 1, 4), (0, 0, 2), (7, 3, 8), (8, 3, 8), (9, -1, -1)] {
        let found = offset_at(&mut client, &topic, asked).await;
        assert_eq!(found, (0, offset, timestamp), "{asked}");
    }
}

#[tokio::test]
async fn case_163_a_search_by_time_never_gives_what_was_deleted() {
    let (_rig, topic, mut client) = rig().await;
    let times: Vec<i64> = (100..110).collect();
    client.produce(&topic, 9, timed(Codec::None, &times)).await;
    delete_records(&mut client, &topic, 5).await;
    assert_eq!(offset_at(&mut client, &topic, 100).await, (0, 5, 105));
    delete_records(&mut client, &topic, 10).await;
    assert_eq!(offset_at(&mut client, &topic, 100).await, (0, -1, -1));
    let earliest = offset_at(&mut client, &topic, -2).await;
    assert_eq!((earliest.0, earliest.1), (0, 10));
}

/// A client that sees epochs disagree believes that the log was truncated.
#[tokio::test]
async fn case_164_the_leader_epoch_is_the_same_in_every_answer() {
    let (_rig, topic, mut client) = rig().await;
    client.produce(&topic, 9, batch(&["a", "b"])).await;
    let topics =
        vec![metadata_request::MetadataRequestTopic::default().with_name(Some(topic.topic_name()))];
    let request = MetadataRequest::default().with_topics(Some(topics));
    let answer = client.call(ApiKey::Metadata, 12, RequestKind::Metadata(request)).await;
    let ResponseKind::Metadata(metadata) = answer else { panic!("another answer") };
    assert_eq!(metadata.topics[0].partitions[0].leader_epoch, 0);
    let answer = client.fetch(12, topic.fetch(12, 0, 0)).await;
    let records = answer.responses[0].partitions[0].records.clone().expect("records");
    let header = kfs::BatchHeader::parse(&records).expect("a batch");
    assert_eq!(header.partition_leader_epoch, 0);
    let request = crate::samples::sample(ApiKey::OffsetForLeaderEpoch, 4, &topic);
    let answer = client.call(ApiKey::OffsetForLeaderEpoch, 4, request).await;
    let ResponseKind::OffsetForLeaderEpoch(end) = answer else { panic!("another answer") };
    let end = &end.topics[0].partitions[0];
    assert_eq!((end.error_code, end.leader_epoch, end.end_offset), (0, 0, 2));
    let request = crate::samples::sample(ApiKey::ListOffsets, 7, &topic);
    let answer = client.call(ApiKey::ListOffsets, 7, request).await;
    let ResponseKind::ListOffsets(listed) = answer else { panic!("another answer") };
    let listed = &listed.topics[0].partitions[0];
    assert_eq!((listed.error_code, listed.leader_epoch, listed.offset), (0, 0, 2));
    // A committed offset comes back with the epoch that its client knew: this one.
    let RequestKind::OffsetCommit(mut request) =
        crate::samples::sample(ApiKey::OffsetCommit, 8, &topic)
    else {
        panic!()
    };
    request.topics[0].partitions[0].committed_leader_epoch = listed.leader_epoch;
    let request = RequestKind::OffsetCommit(request);
    let answer = client.call(ApiKey::OffsetCommit, 8, request).await;
    let ResponseKind::OffsetCommit(answer) = answer else { panic!("another answer") };
    assert_eq!(answer.topics[0].partitions[0].error_code, 0);
    let request = crate::samples::sample(ApiKey::OffsetFetch, 8, &topic);
    let answer = client.call(ApiKey::OffsetFetch, 8, request).await;
    let ResponseKind::OffsetFetch(answer) = answer else { panic!("another answer") };
    let offset = &answer.groups[0].topics[0].partitions[0];
    assert_eq!((offset.committed_offset, offset.committed_leader_epoch), (1, 0));
}

/// Load balancers drop idle connections silently; a broker ends them where the client can see it.
#[tokio::test(start_paused = true)]
async fn case_178_an_idle_connection_is_ended_by_the_broker() {
    let (rig, topic, mut client) = rig().await;
    let start = rig.env.monotonic();
    assert!(client.is_closed().await);
    let idle = rig.env.monotonic() - start;
    let expected = rig.broker.config.kafka.connections_max_idle;
    assert!(idle >= expected && idle < 2 * expected, "{idle:?}");
    assert_eq!(rig.connect().produce(&topic, 9, batch(&["a"])).await.error_code, 0);
}
