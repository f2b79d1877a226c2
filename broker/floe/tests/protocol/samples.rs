//! A meaningful request of each API, as a client of that version would send it.

use bytes::Bytes;
use floe_wire::messages::*;
use kfs::{BatchBuilder, NewRecord};
use uuid::Uuid;

/// A batch of records with these values.
pub(crate) fn batch(values: &[&str]) -> Bytes {
    let mut builder = BatchBuilder::new();
    for value in values {
        let record =
            NewRecord { timestamp_ms: 1_000, value: Some(value.as_bytes()), ..Default::default() };
        builder.push(&record).expect("a record");
    }
    builder.build().expect("a batch")
}

/// A topic that exists.
#[derive(Clone)]
pub(crate) struct SampleTopic {
    pub(crate) name: &'static str,
    pub(crate) id: Uuid,
}

impl SampleTopic {
    pub(crate) fn topic_name(&self) -> TopicName {
        TopicName(StrBytes::from_static_str(self.name))
    }

    /// Produce of one batch to partition 0.
    pub(crate) fn produce(&self, version: i16, records: Bytes) -> RequestKind {
        use produce_request::{PartitionProduceData, TopicProduceData};
        let partition = PartitionProduceData::default().with_index(0).with_records(Some(records));
        let mut topic = TopicProduceData::default().with_partition_data(vec![partition]);
        if version >= 13 {
            topic = topic.with_topic_id(self.id);
        } else {
            topic = topic.with_name(self.topic_name());
        }
        let request = ProduceRequest::default().with_acks(-1).with_timeout_ms(5_000);
        RequestKind::Produce(request.with_topic_data(vec![topic]))
    }

    /// Fetch from an offset of partition 0.
    pub(crate) fn fetch(&self, version: i16, offset: i64, max_wait_ms: i32) -> RequestKind {
        use fetch_request::{FetchPartition, FetchTopic};
        let partition = FetchPartition::default()
            .with_partition(0)
            .with_fetch_offset(offset)
            .with_partition_max_bytes(1 << 20);
        let mut topic = FetchTopic::default().with_partitions(vec![partition]);
        if version >= 13 {
            topic = topic.with_topic_id(self.id);
        } else {
            topic = topic.with_topic(self.topic_name());
        }
        let request = FetchRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_max_wait_ms(max_wait_ms)
            .with_min_bytes(1)
            .with_max_bytes(1 << 20)
            .with_topics(vec![topic]);
        RequestKind::Fetch(if version >= 7 { request.with_session_epoch(-1) } else { request })
    }

    fn list_offsets(&self) -> RequestKind {
        use list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
        let partition = ListOffsetsPartition::default().with_partition_index(0).with_timestamp(-1);
        let topic = ListOffsetsTopic::default()
            .with_name(self.topic_name())
            .with_partitions(vec![partition]);
        RequestKind::ListOffsets(
            ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![topic]),
        )
    }

    fn metadata(&self) -> RequestKind {
        use metadata_request::MetadataRequestTopic;
        let topic = MetadataRequestTopic::default().with_name(Some(self.topic_name()));
        RequestKind::Metadata(MetadataRequest::default().with_topics(Some(vec![topic])))
    }

    fn offset_commit(&self) -> RequestKind {
        use offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
        let partition = OffsetCommitRequestPartition::default()
            .with_partition_index(0)
            .with_committed_offset(1)
            .with_committed_metadata(Some(StrBytes::from_static_str("note")));
        let topic = OffsetCommitRequestTopic::default()
            .with_name(self.topic_name())
            .with_partitions(vec![partition]);
        RequestKind::OffsetCommit(
            OffsetCommitRequest::default()
                .with_group_id(group())
                .with_generation_id_or_member_epoch(-1)
                .with_topics(vec![topic]),
        )
    }

    fn offset_fetch(&self, version: i16) -> RequestKind {
        use offset_fetch_request::*;
        if version >= 8 {
            let topic = OffsetFetchRequestTopics::default()
                .with_name(self.topic_name())
                .with_partition_indexes(vec![0]);
            let group = OffsetFetchRequestGroup::default()
                .with_group_id(group())
                .with_topics(Some(vec![topic]));
            return RequestKind::OffsetFetch(
                OffsetFetchRequest::default().with_groups(vec![group]),
            );
        }
        let topic = OffsetFetchRequestTopic::default()
            .with_name(self.topic_name())
            .with_partition_indexes(vec![0]);
        RequestKind::OffsetFetch(
            OffsetFetchRequest::default().with_group_id(group()).with_topics(Some(vec![topic])),
        )
    }

    fn delete_records(&self) -> RequestKind {
        use delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
        let partition = DeleteRecordsPartition::default().with_partition_index(0).with_offset(0);
        let topic = DeleteRecordsTopic::default()
            .with_name(self.topic_name())
            .with_partitions(vec![partition]);
        RequestKind::DeleteRecords(DeleteRecordsRequest::default().with_topics(vec![topic]))
    }

    fn offset_for_leader_epoch(&self) -> RequestKind {
        use offset_for_leader_epoch_request::*;
        let partition = OffsetForLeaderPartition::default().with_partition(0).with_leader_epoch(0);
        let topic = OffsetForLeaderTopic::default()
            .with_topic(self.topic_name())
            .with_partitions(vec![partition]);
        RequestKind::OffsetForLeaderEpoch(
            OffsetForLeaderEpochRequest::default().with_topics(vec![topic]),
        )
    }

    fn describe_configs(&self) -> RequestKind {
        use describe_configs_request::DescribeConfigsResource;
        let resource = DescribeConfigsResource::default()
            .with_resource_type(2)
            .with_resource_name(StrBytes::from_static_str(self.name));
        RequestKind::DescribeConfigs(
            DescribeConfigsRequest::default().with_resources(vec![resource]),
        )
    }

    fn describe_producers(&self) -> RequestKind {
        use describe_producers_request::TopicRequest;
        let topic =
            TopicRequest::default().with_name(self.topic_name()).with_partition_indexes(vec![0]);
        RequestKind::DescribeProducers(DescribeProducersRequest::default().with_topics(vec![topic]))
    }

    fn describe_topic_partitions(&self) -> RequestKind {
        use describe_topic_partitions_request::TopicRequest;
        let topic = TopicRequest::default().with_name(self.topic_name());
        RequestKind::DescribeTopicPartitions(
            DescribeTopicPartitionsRequest::default()
                .with_topics(vec![topic])
                .with_response_partition_limit(10),
        )
    }
}

fn group() -> GroupId {
    GroupId(StrBytes::from_static_str("sample-group"))
}

fn text(text: &'static str) -> StrBytes {
    StrBytes::from_static_str(text)
}

fn create_topics(version: i16) -> RequestKind {
    use create_topics_request::CreatableTopic;
    let name = StrBytes::from_string(format!("created-by-version-{version}"));
    let topic = CreatableTopic::default()
        .with_name(TopicName(name))
        .with_num_partitions(1)
        .with_replication_factor(1);
    RequestKind::CreateTopics(CreateTopicsRequest::default().with_topics(vec![topic]))
}

fn delete_topics(version: i16) -> RequestKind {
    use delete_topics_request::DeleteTopicState;
    let name = TopicName(text("no-such-topic"));
    RequestKind::DeleteTopics(if version >= 6 {
        let state = DeleteTopicState::default().with_name(Some(name));
        DeleteTopicsRequest::default().with_topics(vec![state])
    } else {
        DeleteTopicsRequest::default().with_topic_names(vec![name])
    })
}

fn find_coordinator(version: i16) -> RequestKind {
    RequestKind::FindCoordinator(if version >= 4 {
        FindCoordinatorRequest::default().with_coordinator_keys(vec![text("sample-group")])
    } else {
        FindCoordinatorRequest::default().with_key(text("sample-group"))
    })
}

fn consumer_group_heartbeat(version: i16) -> RequestKind {
    let name = StrBytes::from_string(format!("sample-consumers-{version}"));
    let request = ConsumerGroupHeartbeatRequest::default()
        .with_group_id(GroupId(name))
        .with_member_id(text("sample-member"))
        .with_rebalance_timeout_ms(60_000)
        .with_subscribed_topic_names(Some(vec![TopicName(text("sample-topic"))]))
        .with_topic_partitions(Some(Vec::new()));
    RequestKind::ConsumerGroupHeartbeat(request)
}

/// A request of the API at a version, about a topic that has records.
pub(crate) fn sample(api: ApiKey, version: i16, topic: &SampleTopic) -> RequestKind {
    match api {
        ApiKey::Produce => topic.produce(version, batch(&["sample"])),
        ApiKey::Fetch => topic.fetch(version, 0, 0),
        ApiKey::ListOffsets => topic.list_offsets(),
        ApiKey::Metadata => topic.metadata(),
        ApiKey::OffsetCommit => topic.offset_commit(),
        ApiKey::OffsetFetch => topic.offset_fetch(version),
        ApiKey::FindCoordinator => find_coordinator(version),
        ApiKey::ApiVersions => RequestKind::ApiVersions(if version >= 3 {
            ApiVersionsRequest::default()
                .with_client_software_name(text("sample"))
                .with_client_software_version(text("1.0"))
        } else {
            ApiVersionsRequest::default()
        }),
        ApiKey::CreateTopics => create_topics(version),
        ApiKey::DeleteTopics => delete_topics(version),
        ApiKey::DeleteRecords => topic.delete_records(),
        ApiKey::OffsetForLeaderEpoch => topic.offset_for_leader_epoch(),
        ApiKey::DescribeConfigs => topic.describe_configs(),
        ApiKey::DescribeProducers => topic.describe_producers(),
        ApiKey::DescribeTopicPartitions => topic.describe_topic_partitions(),
        ApiKey::DescribeGroups => {
            RequestKind::DescribeGroups(DescribeGroupsRequest::default().with_groups(vec![group()]))
        }
        ApiKey::ConsumerGroupHeartbeat => consumer_group_heartbeat(version),
        ApiKey::DeleteGroups => RequestKind::DeleteGroups(
            DeleteGroupsRequest::default().with_groups_names(vec![group()]),
        ),
        _ => default_of(api),
    }
}

/// The empty request of the APIs whose answer has content all the same, or an error.
fn default_of(api: ApiKey) -> RequestKind {
    macro_rules! defaults {
        ($($key:ident => $request:ident),* $(,)?) => {
            match api {
                $(ApiKey::$key => RequestKind::$key($request::default()),)*
                other => panic!("{other:?} is served but has no sample here: write one"),
            }
        };
    }
    defaults!(
        JoinGroup => JoinGroupRequest,
        Heartbeat => HeartbeatRequest,
        LeaveGroup => LeaveGroupRequest,
        SyncGroup => SyncGroupRequest,
        ListGroups => ListGroupsRequest,
        InitProducerId => InitProducerIdRequest,
        AddPartitionsToTxn => AddPartitionsToTxnRequest,
        AddOffsetsToTxn => AddOffsetsToTxnRequest,
        EndTxn => EndTxnRequest,
        WriteTxnMarkers => WriteTxnMarkersRequest,
        TxnOffsetCommit => TxnOffsetCommitRequest,
        DescribeTransactions => DescribeTransactionsRequest,
        ListTransactions => ListTransactionsRequest,
        ConsumerGroupDescribe => ConsumerGroupDescribeRequest,
        DescribeAcls => DescribeAclsRequest,
        CreateAcls => CreateAclsRequest,
        DeleteAcls => DeleteAclsRequest,
        AlterConfigs => AlterConfigsRequest,
        DescribeLogDirs => DescribeLogDirsRequest,
        CreatePartitions => CreatePartitionsRequest,
        ElectLeaders => ElectLeadersRequest,
        IncrementalAlterConfigs => IncrementalAlterConfigsRequest,
        AlterPartitionReassignments => AlterPartitionReassignmentsRequest,
        ListPartitionReassignments => ListPartitionReassignmentsRequest,
        OffsetDelete => OffsetDeleteRequest,
        DescribeClientQuotas => DescribeClientQuotasRequest,
        DescribeCluster => DescribeClusterRequest,
        ListConfigResources => ListConfigResourcesRequest,
    )
}
