//! Reported cases about topics, metadata and configs, each named for its number.

use crate::kit::{Client, Rig};
use crate::samples::SampleTopic;
use bytes::Buf;
use floe_wire::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use floe_wire::messages::create_topics_response::CreatableTopicResult;
use floe_wire::messages::delete_topics_request::DeleteTopicState;
use floe_wire::messages::describe_configs_request::DescribeConfigsResource;
use floe_wire::messages::metadata_request::MetadataRequestTopic;
use floe_wire::messages::*;

fn name(text: &str) -> TopicName {
    TopicName(StrBytes::from_string(text.to_owned()))
}

async fn api_versions(client: &mut Client, version: i16) -> ApiVersionsResponse {
    let request = ApiVersionsRequest::default()
        .with_client_software_name(StrBytes::from_static_str("test"))
        .with_client_software_version(StrBytes::from_static_str("1"));
    let request = RequestKind::ApiVersions(request);
    match client.call(ApiKey::ApiVersions, version, request).await {
        ResponseKind::ApiVersions(answer) => answer,
        _ => panic!("another answer"),
    }
}

/// A client that believes in transactions by the feature would use versions that mean them.
#[tokio::test]
async fn case_106_features_are_only_those_that_are_built() {
    let rig = Rig::start().await;
    let answer = api_versions(&mut rig.connect(), 4).await;
    let finalized: Vec<&str> =
        answer.finalized_features.iter().map(|feature| feature.name.as_str()).collect();
    assert_eq!(finalized, vec!["group.version", "metadata.version", "transaction.version"]);
    assert!(answer.finalized_features_epoch >= 0);
}

/// What is not built is absent, so that clients name it instead of hanging on it.
#[tokio::test]
async fn case_112_a_group_protocol_that_is_not_built_is_absent() {
    let rig = Rig::start().await;
    let answer = api_versions(&mut rig.connect(), 3).await;
    let has = |key: ApiKey| answer.api_keys.iter().any(|api| api.api_key == key as i16);
    for there in [ApiKey::JoinGroup, ApiKey::ConsumerGroupHeartbeat, ApiKey::ConsumerGroupDescribe]
    {
        assert!(has(there), "{there:?}");
    }
    for absent in [ApiKey::ShareGroupHeartbeat, ApiKey::ShareFetch, ApiKey::SaslHandshake] {
        assert!(!has(absent), "{absent:?}");
    }
}

#[tokio::test]
async fn case_115_the_controller_is_one_of_the_brokers() {
    let rig = Rig::start().await;
    let mut client = rig.connect();
    let request = RequestKind::DescribeCluster(DescribeClusterRequest::default());
    let answer = client.call(ApiKey::DescribeCluster, 0, request).await;
    let ResponseKind::DescribeCluster(cluster) = answer else { panic!("another answer") };
    assert!(cluster.brokers.iter().any(|broker| broker.broker_id == cluster.controller_id));
    let request = RequestKind::Metadata(MetadataRequest::default());
    let answer = client.call(ApiKey::Metadata, 12, request).await;
    let ResponseKind::Metadata(metadata) = answer else { panic!("another answer") };
    assert!(metadata.brokers.iter().any(|broker| broker.node_id == metadata.controller_id));
    assert_eq!(metadata.cluster_id.as_deref(), Some(&*cluster.cluster_id));
}

/// The first answer about a topic that is made on first use has its partitions.
#[tokio::test]
async fn case_116_a_topic_made_on_first_use_is_complete_in_the_first_answer() {
    let rig = Rig::start().await;
    let mut client = rig.connect();
    let asked = |names: &[&str], may_create: bool| {
        let topics =
            names.iter().map(|topic| MetadataRequestTopic::default().with_name(Some(name(topic))));
        RequestKind::Metadata(
            MetadataRequest::default()
                .with_topics(Some(topics.collect()))
                .with_allow_auto_topic_creation(may_create),
        )
    };
    let answer = client.call(ApiKey::Metadata, 9, asked(&["a"], false)).await;
    let ResponseKind::Metadata(refused) = answer else { panic!("another answer") };
    assert_eq!((refused.topics[0].error_code, refused.topics[0].partitions.len()), (3, 0));
    let answer = client.call(ApiKey::Metadata, 9, asked(&["a", "b", "c"], true)).await;
    let ResponseKind::Metadata(made) = answer else { panic!("another answer") };
    for topic in &made.topics {
        assert_eq!((topic.error_code, topic.partitions.len()), (0, 1));
        assert_eq!(topic.partitions[0].leader_id.0, 1);
    }
    for name in ["c", "b", "a"] {
        let id = rig.broker.topics.by_name(name).expect("it is there").topic.id.0;
        let topic = SampleTopic { name, id };
        let produced = client.produce(&topic, 9, crate::samples::batch(&["x"])).await;
        assert_eq!((produced.error_code, produced.base_offset), (0, 0), "{name}");
    }
}

async fn create(client: &mut Client, topic: CreatableTopic) -> CreatableTopicResult {
    let request = CreateTopicsRequest::default().with_topics(vec![topic]);
    let answer = client.call(ApiKey::CreateTopics, 7, RequestKind::CreateTopics(request)).await;
    let ResponseKind::CreateTopics(answer) = answer else { panic!("another answer") };
    answer.topics[0].clone()
}

fn with_configs(topic: &str, configs: &[(&'static str, &'static str)]) -> CreatableTopic {
    let configs = configs.iter().map(|(name, value)| {
        CreatableTopicConfig::default()
            .with_name(StrBytes::from_static_str(name))
            .with_value(Some(StrBytes::from_static_str(value)))
    });
    CreatableTopic::default()
        .with_name(name(topic))
        .with_num_partitions(1)
        .with_replication_factor(1)
        .with_configs(configs.collect())
}

#[tokio::test]
async fn case_118_a_topic_with_configs_is_deleted() {
    let rig = Rig::start().await;
    let mut client = rig.connect();
    let topic =
        with_configs("configured", &[("retention.ms", "1000"), ("cleanup.policy", "compact")]);
    assert_eq!(create(&mut client, topic).await.error_code, 0);
    let state = DeleteTopicState::default().with_name(Some(name("configured")));
    let request = DeleteTopicsRequest::default().with_topics(vec![state]);
    let answer = client.call(ApiKey::DeleteTopics, 6, RequestKind::DeleteTopics(request)).await;
    let ResponseKind::DeleteTopics(answer) = answer else { panic!("another answer") };
    assert_eq!(answer.responses[0].error_code, 0);
    assert!(rig.broker.topics.by_name("configured").is_none());
}

#[tokio::test]
async fn case_119_defaults_and_harmless_configs_are_accepted_and_unknown_ones_are_not() {
    let rig = Rig::start().await;
    let mut client = rig.connect();
    let harmless = [("min.insync.replicas", "1"), ("flush.messages", "1"), ("flush.ms", "0")];
    let topic =
        with_configs("defaults", &harmless).with_num_partitions(-1).with_replication_factor(-1);
    let created = create(&mut client, topic).await;
    assert_eq!((created.error_code, created.num_partitions), (0, 1));
    let refused = create(&mut client, with_configs("unknown", &[("prefix", "x")])).await;
    assert_eq!(refused.error_code, 40);
}

/// OffsetCommit 10 and OffsetFetch 10 name topics by id; a client uses them once they are shown.
#[tokio::test]
async fn case_121_offsets_are_committed_and_fetched_by_topic_id() {
    let rig = Rig::start().await;
    let mut client = rig.connect();
    let id = rig.create_topic("by-id", 1).await;
    for (id, code) in [(id, 0), (uuid::Uuid::nil(), 100), (uuid::Uuid::from_u128(5), 100)] {
        let mut body = vec![2, b'g'];
        body.extend((-1_i32).to_be_bytes());
        // No member, no instance, one topic.
        body.extend([1, 0, 2]);
        body.extend(id.as_bytes());
        body.extend([2, 0, 0, 0, 0]);
        body.extend(42_i64.to_be_bytes());
        body.extend((-1_i32).to_be_bytes());
        body.extend([0, 0, 0, 0]);
        let mut answer = client.call_raw(ApiKey::OffsetCommit, 10, &body).await;
        let answer = OffsetCommitResponse::decode(&mut answer, 10).expect("version 10");
        assert_eq!(answer.topics[0].topic_id, id);
        assert_eq!(answer.topics[0].partitions[0].error_code, code, "{id}");
    }
    let mut body = vec![2, 2, b'g', 0];
    body.extend((-1_i32).to_be_bytes());
    body.push(2);
    body.extend(id.as_bytes());
    body.extend([2, 0, 0, 0, 0, 0, 0, 0, 0]);
    let mut answer = client.call_raw(ApiKey::OffsetFetch, 10, &body).await;
    let decoded = OffsetFetchResponse::decode(&mut answer, 10).expect("version 10");
    assert!(!answer.has_remaining());
    let partition = &decoded.groups[0].topics[0].partitions[0];
    assert_eq!((partition.error_code, partition.committed_offset), (0, 42));
}

async fn describe(client: &mut Client, kind: i8, resource: &str) -> Vec<(String, Option<String>)> {
    let resource = DescribeConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(StrBytes::from_string(resource.to_owned()));
    let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
    let request = RequestKind::DescribeConfigs(request);
    let answer = client.call(ApiKey::DescribeConfigs, 4, request).await;
    let ResponseKind::DescribeConfigs(answer) = answer else { panic!("another answer") };
    assert_eq!(answer.results[0].error_code, 0);
    let configs = answer.results[0].configs.iter();
    configs
        .map(|config| (config.name.to_string(), config.value.as_ref().map(ToString::to_string)))
        .collect()
}

/// Debezium asks a broker for its replication factor, and makes its history topic with it.
#[tokio::test]
async fn case_124_a_brokers_configs_have_what_debezium_asks_for() {
    let rig = Rig::start().await;
    let configs = describe(&mut rig.connect(), 4, "1").await;
    let value = |name: &str| configs.iter().find(|(config, _)| config == name).cloned();
    for name in ["default.replication.factor", "num.partitions"] {
        assert_eq!(value(name), Some((name.to_owned(), Some("1".to_owned()))));
    }
}

/// Connect refuses to start where its topics are not compacted.
#[tokio::test]
async fn case_125_a_compacted_topic_says_so_and_keeps_its_records() {
    let rig = Rig::start().await;
    let mut client = rig.connect();
    let topic = with_configs("connect-configs", &[("cleanup.policy", "compact")]);
    assert_eq!(create(&mut client, topic).await.error_code, 0);
    let configs = describe(&mut client, 2, "connect-configs").await;
    let policy = configs.iter().find(|(name, _)| name == "cleanup.policy");
    assert_eq!(policy.and_then(|(_, value)| value.as_deref()), Some("compact"));
    let id = rig.broker.topics.by_name("connect-configs").expect("it is there").topic.id.0;
    let topic = SampleTopic { name: "connect-configs", id };
    let keyless = client.produce(&topic, 9, crate::samples::batch(&["no key"])).await;
    assert_eq!(keyless.error_code, 87);
    let mut builder = kfs::BatchBuilder::new();
    for value in ["old", "new"] {
        // Of 1970: a topic that deletes by time would not keep it.
        let (key, value) = (Some(&b"connector"[..]), Some(value.as_bytes()));
        let record = kfs::NewRecord { timestamp_ms: 1_000, key, value, headers: &[] };
        builder.push(&record).expect("a record");
    }
    let keyed = builder.build().expect("a batch");
    assert_eq!(client.produce(&topic, 9, keyed).await.error_code, 0);
    let read = crate::kit::values(&client.fetch(12, topic.fetch(12, 0, 0)).await);
    assert_eq!(read.last(), Some(&(1, "new".to_owned())));
}
