//! Every version that ApiVersions shows is answered, and the answer decodes as that version with
//! nothing left over.

use crate::kafka_versions::KAFKA_4_4;
use crate::kit::Rig;
use crate::samples::{SampleTopic, batch, sample};
use floe_metadata::MetadataStore;
use floe_metadata::brokers::BrokerAddress;
use floe_wire::messages::{ApiKey, ApiVersionsRequest, RequestKind, ResponseKind, StrBytes};
use kfs::BrokerId;

/// What Floe serves. An API that is taken away is missed here: clients that Floe has may need it.
const SERVED: &[ApiKey] = &[
    ApiKey::Produce,
    ApiKey::Fetch,
    ApiKey::ListOffsets,
    ApiKey::Metadata,
    ApiKey::OffsetCommit,
    ApiKey::OffsetFetch,
    ApiKey::FindCoordinator,
    ApiKey::JoinGroup,
    ApiKey::Heartbeat,
    ApiKey::LeaveGroup,
    ApiKey::SyncGroup,
    ApiKey::DescribeGroups,
    ApiKey::ListGroups,
    ApiKey::ApiVersions,
    ApiKey::CreateTopics,
    ApiKey::DeleteTopics,
    ApiKey::DeleteRecords,
    ApiKey::InitProducerId,
    ApiKey::OffsetForLeaderEpoch,
    ApiKey::AddPartitionsToTxn,
    ApiKey::AddOffsetsToTxn,
    ApiKey::EndTxn,
    ApiKey::WriteTxnMarkers,
    ApiKey::TxnOffsetCommit,
    ApiKey::DescribeConfigs,
    ApiKey::AlterConfigs,
    ApiKey::DescribeLogDirs,
    ApiKey::CreatePartitions,
    ApiKey::DeleteGroups,
    ApiKey::IncrementalAlterConfigs,
    ApiKey::OffsetDelete,
    ApiKey::DescribeCluster,
    ApiKey::DescribeProducers,
    ApiKey::DescribeTransactions,
    ApiKey::ListTransactions,
    ApiKey::ConsumerGroupHeartbeat,
    ApiKey::ConsumerGroupDescribe,
    ApiKey::DescribeTopicPartitions,
];

/// Versions that are served beyond those that the message layer's client side can write.
/// (`newer_versions` has those that differ in more than a number).
const NOT_WRITTEN_HERE: &[(ApiKey, i16)] = &[
    (ApiKey::ListOffsets, 11),
    (ApiKey::OffsetCommit, 10),
    (ApiKey::OffsetFetch, 10),
    (ApiKey::ApiVersions, 5),
    (ApiKey::DeleteGroups, 3),
    (ApiKey::DescribeLogDirs, 5),
    (ApiKey::TxnOffsetCommit, 6),
    (ApiKey::WriteTxnMarkers, 2),
];

async fn advertised(rig: &Rig) -> Vec<(ApiKey, i16, i16)> {
    let request = ApiVersionsRequest::default()
        .with_client_software_name(StrBytes::from_static_str("test"))
        .with_client_software_version(StrBytes::from_static_str("1"));
    let mut client = rig.connect();
    let answer = client.call(ApiKey::ApiVersions, 3, RequestKind::ApiVersions(request)).await;
    let ResponseKind::ApiVersions(answer) = answer else { panic!("another answer") };
    assert_eq!(answer.error_code, 0);
    let known = |key| ApiKey::try_from(key).expect("a key of the message layer");
    let ranges = answer.api_keys.iter();
    ranges.map(|range| (known(range.api_key), range.min_version, range.max_version)).collect()
}

/// Metadata 13 (case 107), Produce with what version 8 added (case 101), and all others.
#[tokio::test]
async fn case_101_104_and_107_every_version_is_answered_in_its_own_layout() {
    let rig = Rig::start().await;
    let topic = SampleTopic { name: "sample-topic", id: rig.create_topic("sample-topic", 1).await };
    let mut client = rig.connect();
    let mut answered = 0;
    for (api, min, max) in advertised(&rig).await {
        // Produce 0-2 are shown for old clients and close the connection, as in Kafka.
        let min = if api == ApiKey::Produce { 3 } else { min };
        for version in min..=max {
            if !NOT_WRITTEN_HERE.contains(&(api, version)) {
                client.call(api, version, sample(api, version, &topic)).await;
                answered += 1;
            }
        }
    }
    assert!(answered > 100, "only {answered} versions were tried");
}

/// A client that goes by Kafka's release instead of ApiVersions must not be surprised.
#[tokio::test]
async fn case_97_and_98_what_is_served_is_served_at_all_of_kafkas_versions() {
    let rig = Rig::start().await;
    let advertised = advertised(&rig).await;
    for served in SERVED {
        assert!(advertised.iter().any(|(api, ..)| api == served), "{served:?} is gone");
    }
    for (api, min, max) in advertised {
        let kafka = KAFKA_4_4.iter().find(|(key, ..)| *key == api as i16);
        let (_, kafka_min, kafka_max) = kafka.unwrap_or_else(|| panic!("{api:?} is not Kafka's"));
        assert_eq!((min, max), (*kafka_min, *kafka_max), "{api:?}");
    }
}

/// Two partitions of one topic, whose tagged fields follow each of them.
#[tokio::test]
async fn case_100_flexible_versions_take_several_partitions() {
    let rig = Rig::start().await;
    let topic = SampleTopic { name: "two", id: rig.create_topic("two", 2).await };
    let mut client = rig.connect();
    for version in [3, 8, 9, 12, 13] {
        let RequestKind::Produce(mut request) = topic.produce(version, batch(&["a"])) else {
            panic!()
        };
        let second = request.topic_data[0].partition_data[0].clone().with_index(1);
        request.topic_data[0].partition_data.push(second);
        let answer = client.call(ApiKey::Produce, version, RequestKind::Produce(request)).await;
        let ResponseKind::Produce(answer) = answer else { panic!("another answer") };
        let partitions = answer.responses[0].partition_responses.iter();
        let told: Vec<_> = partitions.map(|one| (one.index, one.error_code)).collect();
        assert_eq!(told, [(0, 0), (1, 0)], "v{version}");
    }
}

/// A broker that another has replaced can do nothing: no answer of it may look like a success.
#[tokio::test]
async fn case_103_what_fails_is_an_error_in_every_partition() {
    let rig = Rig::start().await;
    let topic = SampleTopic { name: "two", id: rig.create_topic("two", 2).await };
    let other = MetadataStore::new(rig.broker.metadata.backend().clone(), rig.env.clone());
    let address = BrokerAddress { host: "localhost".to_owned(), port: 9092, zone: None };
    other.register_broker(BrokerId(1), &address, 30_000).await.expect("the other one");
    let mut client = rig.connect();
    let RequestKind::Produce(mut request) = topic.produce(9, batch(&["a"])) else { panic!() };
    let second = request.topic_data[0].partition_data[0].clone().with_index(1);
    request.topic_data[0].partition_data.push(second);
    let answer = client.call(ApiKey::Produce, 9, RequestKind::Produce(request)).await;
    let ResponseKind::Produce(answer) = answer else { panic!("another answer") };
    let partitions = &answer.responses[0].partition_responses;
    assert_eq!(partitions.len(), 2);
    assert!(partitions.iter().all(|one| one.error_code != 0 && one.base_offset == -1));
    let request = sample(ApiKey::OffsetCommit, 8, &topic);
    let answer = client.call(ApiKey::OffsetCommit, 8, request).await;
    let ResponseKind::OffsetCommit(answer) = answer else { panic!("another answer") };
    assert_ne!(answer.topics[0].partitions[0].error_code, 0);
    let answer =
        client.call(ApiKey::CreateTopics, 7, sample(ApiKey::CreateTopics, 7, &topic)).await;
    let ResponseKind::CreateTopics(answer) = answer else { panic!("another answer") };
    assert_ne!(answer.topics[0].error_code, 0);
}

/// A client that sends a version of the future first.
#[tokio::test]
async fn case_94_and_95_an_unknown_version_of_api_versions_is_answered_in_version_0() {
    let rig = Rig::start().await;
    let mut client = rig.connect();
    let request = RequestKind::ApiVersions(
        ApiVersionsRequest::default()
            .with_client_software_name(StrBytes::from_static_str("test"))
            .with_client_software_version(StrBytes::from_static_str("1")),
    );
    let mut frame = crate::kit::frame(ApiKey::ApiVersions, 4, 7, &request).to_vec();
    frame[6..8].copy_from_slice(&99i16.to_be_bytes());
    tokio::io::AsyncWriteExt::write_all(&mut client.stream, &frame).await.expect("sent");
    let mut body = client.receive(ApiKey::ApiVersions, 0, 7).await.expect("an answer");
    let answer = ResponseKind::decode(ApiKey::ApiVersions, &mut body, 0).expect("version 0");
    let ResponseKind::ApiVersions(answer) = answer else { panic!("another answer") };
    assert_eq!(answer.error_code, 35);
    let keys: Vec<i16> = answer.api_keys.iter().map(|range| range.api_key).collect();
    assert_eq!(keys, vec![18]);
    client.call(ApiKey::ApiVersions, 3, request).await;
}
