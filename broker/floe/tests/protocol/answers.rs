//! Answers that were compared with those of Apache Kafka 4.4.0, each test named for what it checks.

use crate::kit::{Client, Rig};
use crate::samples::{SampleTopic, batch};
use bytes::{Bytes, BytesMut};
use floe_wire::ErrorCode;
use floe_wire::messages::metadata_request::MetadataRequestTopic;
use floe_wire::messages::*;
use std::collections::BTreeMap;

async fn topic(rig: &Rig, configs: &[(&str, &str)]) -> SampleTopic {
    let configs: BTreeMap<String, String> =
        configs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    rig.broker.metadata.create_topic("answers", 1, 1, configs).await.expect("a new topic");
    rig.broker.topics.refresh().await.expect("topics");
    let id = rig.broker.topics.by_name("answers").expect("it is there").topic.id.0;
    SampleTopic { name: "answers", id }
}

/// The fetch of partition 0 from an offset, changed by `change`.
fn fetch_with(
    topic: &SampleTopic,
    version: i16,
    offset: i64,
    change: impl FnOnce(&mut FetchRequest),
) -> RequestKind {
    let RequestKind::Fetch(mut request) = topic.fetch(version, offset, 0) else { panic!() };
    change(&mut request);
    RequestKind::Fetch(request)
}

#[tokio::test]
async fn a_batch_larger_than_segment_bytes_is_refused_as_kafka_refuses_it() {
    let rig = Rig::start().await;
    let limits = [("segment.bytes", "1048576"), ("max.message.bytes", "4000000")];
    let topic = topic(&rig, &limits).await;
    let mut client = rig.connect();
    let refused = client.produce(&topic, 9, batch(&[&"x".repeat(1_500_000)])).await;
    let code = ErrorCode::RecordListTooLarge.code();
    assert_eq!((refused.error_code, refused.log_start_offset), (code, -1));
    let taken = client.produce(&topic, 9, batch(&[&"x".repeat(1_000_000)])).await;
    assert_eq!((taken.error_code, taken.base_offset), (0, 0));
}

#[tokio::test]
async fn an_append_time_bit_of_a_client_is_told_for_each_record() {
    let rig = Rig::start().await;
    let topic = topic(&rig, &[("message.timestamp.type", "LogAppendTime")]).await;
    let mut client = rig.connect();
    assert_eq!(client.produce(&topic, 9, batch(&["known"])).await.error_code, 0);
    let mut marked = BytesMut::from(&batch(&["a", "b"])[..]);
    kfs::set_timestamps(&mut marked, kfs::TimestampType::LogAppendTime, 1_000);
    let refused = client.produce(&topic, 9, marked.freeze()).await;
    assert_eq!(refused.error_code, ErrorCode::InvalidTimestamp.code());
    let told: Vec<i32> = refused.record_errors.iter().map(|error| error.batch_index).collect();
    assert_eq!(told, vec![0, 1]);
    assert!(refused.error_message.is_some() && refused.log_start_offset == 0);
}

/// A small request, of one topic very often, must not have an answer of gigabytes.
#[tokio::test]
async fn records_at_fault_are_told_up_to_a_limit_of_the_whole_request() {
    let rig = Rig::start().await;
    let topic = topic(&rig, &[("message.timestamp.type", "LogAppendTime")]).await;
    let mut marked = BytesMut::from(&batch(&["x"; 3_000])[..]);
    kfs::set_timestamps(&mut marked, kfs::TimestampType::LogAppendTime, 1_000);
    let RequestKind::Produce(mut request) = topic.produce(9, marked.freeze()) else { panic!() };
    request.topic_data = vec![request.topic_data[0].clone(); 4];
    let answer = rig.connect().call(ApiKey::Produce, 9, RequestKind::Produce(request)).await;
    let ResponseKind::Produce(answer) = answer else { panic!("another answer") };
    let refused: Vec<_> =
        answer.responses.iter().flat_map(|topic| &topic.partition_responses).collect();
    let told: Vec<usize> = refused.iter().map(|refused| refused.record_errors.len()).collect();
    assert_eq!(told, [3_000, 1_096, 0, 0]);
    for refused in refused {
        assert_eq!(refused.error_code, ErrorCode::InvalidTimestamp.code());
        assert!(refused.error_message.is_some());
    }
}

#[tokio::test]
async fn what_is_no_batch_at_all_is_told_with_a_message() {
    let rig = Rig::start().await;
    let topic = topic(&rig, &[]).await;
    let refused = rig.connect().produce(&topic, 9, Bytes::from_static(&[0; 61])).await;
    assert_eq!(refused.error_code, ErrorCode::CorruptMessage.code());
    assert!(refused.error_message.is_some());
}

#[tokio::test]
async fn topics_of_kafkas_own_are_not_made_not_written_and_not_shortened() {
    let rig = Rig::start().await;
    let mut client = rig.connect();
    let own = SampleTopic { name: "__consumer_offsets", id: uuid::Uuid::nil() };
    let refused = client.produce(&own, 9, batch(&["a"])).await;
    assert_eq!(refused.error_code, ErrorCode::InvalidTopicException.code());
    let asked = create_topics_request::CreatableTopic::default()
        .with_name(own.topic_name())
        .with_num_partitions(1)
        .with_replication_factor(1);
    let request = CreateTopicsRequest::default().with_topics(vec![asked]);
    let answer = client.call(ApiKey::CreateTopics, 7, RequestKind::CreateTopics(request)).await;
    let ResponseKind::CreateTopics(answer) = answer else { panic!("another answer") };
    assert_eq!(answer.topics[0].error_code, ErrorCode::InvalidRequest.code());
    let partition =
        delete_records_request::DeleteRecordsPartition::default().with_partition_index(0);
    let topic = delete_records_request::DeleteRecordsTopic::default()
        .with_name(own.topic_name())
        .with_partitions(vec![partition]);
    let request = DeleteRecordsRequest::default().with_topics(vec![topic]);
    let answer = client.call(ApiKey::DeleteRecords, 2, RequestKind::DeleteRecords(request)).await;
    let ResponseKind::DeleteRecords(answer) = answer else { panic!("another answer") };
    let code = answer.topics[0].partitions[0].error_code;
    assert_eq!(code, ErrorCode::InvalidTopicException.code());
    let answer = metadata(&mut client, 9, &[named("__consumer_offsets")]).await;
    let told = &answer.topics[0];
    assert!(told.is_internal);
    assert_eq!(told.error_code, ErrorCode::UnknownTopicOrPartition.code());
    assert!(rig.broker.topics.all().is_empty());
}

/// One that an older Floe let a client make is not written by its id either.
#[tokio::test]
async fn a_topic_of_kafkas_own_is_not_written_by_its_id() {
    let rig = Rig::start().await;
    let id = rig.create_topic("__consumer_offsets", 1).await;
    let own = SampleTopic { name: "__consumer_offsets", id };
    let refused = rig.connect().produce(&own, 13, batch(&["a"])).await;
    assert_eq!(refused.error_code, ErrorCode::InvalidTopicException.code());
}

#[tokio::test]
async fn an_epoch_that_ends_before_the_fetch_offset_is_told_to_have_diverged() {
    let rig = Rig::start().await;
    let topic = topic(&rig, &[]).await;
    let mut client = rig.connect();
    client.produce(&topic, 9, batch(&["a", "b"])).await;
    let at = |offset: i64, epoch: i32| {
        fetch_with(&topic, 12, offset, |request| {
            request.topics[0].partitions[0].last_fetched_epoch = epoch;
        })
    };
    let answer = client.fetch(12, at(9, 0)).await;
    let partition = &answer.responses[0].partitions[0];
    assert_eq!((partition.error_code, partition.high_watermark), (0, 2));
    let diverging = &partition.diverging_epoch;
    assert_eq!((diverging.epoch, diverging.end_offset), (0, 2));
    for (offset, epoch) in [(9, -1), (9, 1), (1, 5)] {
        let answer = client.fetch(12, at(offset, epoch)).await;
        let code = answer.responses[0].partitions[0].error_code;
        assert_eq!(code, ErrorCode::OffsetOutOfRange.code(), "{offset} {epoch}");
    }
    for offset in [0, 2] {
        let answer = client.fetch(12, at(offset, 0)).await;
        let partition = &answer.responses[0].partitions[0];
        assert_eq!((partition.error_code, partition.diverging_epoch.epoch), (0, -1), "{offset}");
    }
}

#[tokio::test]
async fn followers_and_unknown_isolation_levels_are_refused_for_each_partition() {
    let rig = Rig::start().await;
    let topic = topic(&rig, &[]).await;
    let mut client = rig.connect();
    let follower = fetch_with(&topic, 12, 0, |request| request.replica_id = BrokerId(77));
    let answer = client.fetch(12, follower).await;
    let partition = &answer.responses[0].partitions[0];
    let code = ErrorCode::NotLeaderOrFollower.code();
    assert_eq!((answer.error_code, partition.error_code), (0, code));
    assert_eq!(partition.high_watermark, -1);
    let unknown = fetch_with(&topic, 12, 0, |request| request.isolation_level = 2);
    let answer = client.fetch(12, unknown).await;
    let partition = &answer.responses[0].partitions[0];
    let code = ErrorCode::InvalidRequest.code();
    assert_eq!((answer.error_code, partition.error_code), (code, code));
}

#[tokio::test]
async fn a_topic_deleted_within_a_session_by_id_is_told_as_a_missing_topic() {
    let rig = Rig::start().await;
    let topic = topic(&rig, &[]).await;
    let mut client = rig.connect();
    let full = fetch_with(&topic, 13, 0, |request| request.session_epoch = 0);
    let session_id = client.fetch(13, full).await.session_id;
    assert!(session_id > 0);
    rig.broker.metadata.delete_topic(kfs::TopicId(topic.id)).await.expect("deleted");
    rig.broker.topics.refresh().await.expect("topics");
    for epoch in 1..=2 {
        let next = fetch_with(&topic, 13, 0, |request| {
            request.session_id = session_id;
            request.session_epoch = epoch;
            request.topics.clear();
        });
        let answer = client.fetch(13, next).await;
        let code = answer.responses[0].partitions[0].error_code;
        assert_eq!(code, ErrorCode::UnknownTopicOrPartition.code());
    }
    let sessionless = client.fetch(13, topic.fetch(13, 0, 0)).await;
    let code = sessionless.responses[0].partitions[0].error_code;
    assert_eq!(code, ErrorCode::UnknownTopicId.code());
}

fn named(name: &'static str) -> MetadataRequestTopic {
    MetadataRequestTopic::default().with_name(Some(TopicName(StrBytes::from_static_str(name))))
}

async fn metadata(
    client: &mut Client,
    version: i16,
    topics: &[MetadataRequestTopic],
) -> MetadataResponse {
    let request = MetadataRequest::default()
        .with_topics(Some(topics.to_vec()))
        .with_allow_auto_topic_creation(true)
        .with_include_cluster_authorized_operations((8..=10).contains(&version));
    match client.call(ApiKey::Metadata, version, RequestKind::Metadata(request)).await {
        ResponseKind::Metadata(answer) => answer,
        _ => panic!("another answer"),
    }
}

#[tokio::test]
async fn metadata_tells_a_topic_once_and_what_may_be_done_with_the_cluster() {
    let rig = Rig::start().await;
    topic(&rig, &[]).await;
    let mut client = rig.connect();
    let answer = metadata(&mut client, 9, &[named("answers"), named("answers")]).await;
    assert_eq!(answer.topics.len(), 1);
    assert_eq!(answer.cluster_authorized_operations, 8096);
    let answer = metadata(&mut client, 12, &[named("answers")]).await;
    assert_eq!(answer.cluster_authorized_operations, i32::MIN);
}

#[tokio::test]
async fn metadata_of_an_unknown_id_has_no_name() {
    let rig = Rig::start().await;
    let unknown =
        MetadataRequestTopic::default().with_name(None).with_topic_id(uuid::Uuid::from_u128(7));
    let answer = metadata(&mut rig.connect(), 12, &[unknown]).await;
    let told = &answer.topics[0];
    assert_eq!((told.error_code, &told.name), (ErrorCode::UnknownTopicId.code(), &None));
}

async fn init_producer_id(client: &mut Client, request: InitProducerIdRequest) -> (i16, i64) {
    let request = RequestKind::InitProducerId(request);
    match client.call(ApiKey::InitProducerId, 5, request).await {
        ResponseKind::InitProducerId(answer) => (answer.error_code, answer.producer_id.0),
        _ => panic!("another answer"),
    }
}

#[tokio::test]
async fn half_a_producers_name_and_impossible_timeouts_are_refused() {
    let rig = Rig::start().await;
    let mut client = rig.connect();
    let request = InitProducerIdRequest::default()
        .with_transactional_id(None)
        .with_transaction_timeout_ms(60_000);
    let invalid = ErrorCode::InvalidRequest.code();
    let only_id = request.clone().with_producer_id(ProducerId(5)).with_producer_epoch(-1);
    assert_eq!(init_producer_id(&mut client, only_id).await, (invalid, -1));
    let only_epoch = request.clone().with_producer_id(ProducerId(-1)).with_producer_epoch(5);
    assert_eq!(init_producer_id(&mut client, only_epoch).await, (invalid, -1));
    let both = request.clone().with_producer_id(ProducerId(5)).with_producer_epoch(5);
    assert_eq!(init_producer_id(&mut client, both).await.0, 0);
    let transactional = request.with_transactional_id(Some(StrBytes::from_static_str("t").into()));
    for timeout_ms in [0, -1, 900_001] {
        let asked = transactional.clone().with_transaction_timeout_ms(timeout_ms);
        let code = ErrorCode::InvalidTransactionTimeout.code();
        assert_eq!(init_producer_id(&mut client, asked).await, (code, -1), "{timeout_ms}");
    }
}

/// Case 136: what the first step promises, the others keep: any broker is found, and an id given.
#[tokio::test]
async fn case_136_a_transactional_producer_finds_its_coordinator_and_gets_an_id() {
    let rig = Rig::start().await;
    let mut client = rig.connect();
    for version in 1..=6 {
        let key = StrBytes::from_static_str("t");
        let request = FindCoordinatorRequest::default().with_key_type(1);
        let request = if version >= 4 {
            request.with_coordinator_keys(vec![key])
        } else {
            request.with_key(key)
        };
        let request = RequestKind::FindCoordinator(request);
        let answer = client.call(ApiKey::FindCoordinator, version, request).await;
        let ResponseKind::FindCoordinator(answer) = answer else { panic!("another answer") };
        let (code, node) = answer
            .coordinators
            .first()
            .map_or((answer.error_code, answer.node_id), |one| (one.error_code, one.node_id));
        assert_eq!((code, node.0), (0, 1), "v{version}");
    }
    let request = InitProducerIdRequest::default()
        .with_transaction_timeout_ms(60_000)
        .with_producer_id(ProducerId(-1))
        .with_producer_epoch(-1)
        .with_transactional_id(Some(StrBytes::from_static_str("t").into()));
    assert_eq!(init_producer_id(&mut client, request).await.0, 0);
    let topic = topic(&rig, &[]).await;
    let RequestKind::Produce(request) = topic.produce(9, batch(&["a"])) else { panic!() };
    let request = request.with_transactional_id(Some(StrBytes::from_static_str("t").into()));
    let answer = client.call(ApiKey::Produce, 9, RequestKind::Produce(request)).await;
    let ResponseKind::Produce(answer) = answer else { panic!("another answer") };
    assert_eq!(answer.responses[0].partition_responses[0].error_code, 0, "not of a transaction");
}

/// The counters see errors of every API, at every level of an answer.
#[tokio::test]
async fn errors_of_every_api_are_counted() {
    let rig = Rig::start().await;
    let mut client = rig.connect();
    let missing = SampleTopic { name: "missing", id: uuid::Uuid::from_u128(9) };
    client.produce(&missing, 9, batch(&["a"])).await;
    client.fetch(12, missing.fetch(12, 0, 0)).await;
    let groups = vec![GroupId(StrBytes::from_static_str("missing"))];
    let request =
        RequestKind::DeleteGroups(DeleteGroupsRequest::default().with_groups_names(groups.clone()));
    client.call(ApiKey::DeleteGroups, 2, request).await;
    let request = HeartbeatRequest::default().with_group_id(groups[0].clone());
    client.call(ApiKey::Heartbeat, 4, RequestKind::Heartbeat(request)).await;
    let page = rig.broker.metrics.encode().expect("a page");
    for line in [
        "floe_kafka_errors_total{api=\"Produce\",error=\"UNKNOWN_TOPIC_OR_PARTITION\"} 1",
        "floe_kafka_errors_total{api=\"Fetch\",error=\"UNKNOWN_TOPIC_OR_PARTITION\"} 1",
        "floe_kafka_errors_total{api=\"DeleteGroups\",error=\"GROUP_ID_NOT_FOUND\"} 1",
        "floe_kafka_errors_total{api=\"Heartbeat\",error=\"UNKNOWN_MEMBER_ID\"} 1",
    ] {
        assert!(page.lines().any(|found| found == line), "no line {line} in\n{page}");
    }
}
