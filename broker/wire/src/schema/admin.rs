//! Request layouts of topics, the cluster, and its replicas.

use super::{BOOL, I8, I16, I32, TEXT, UUID, Layout, f, list, maybe, rows};

/// All layouts of this file.
pub(super) const ALL: &[&Layout] = &[
    &METADATA, &API_VERSIONS, &CREATE_TOPICS, &DELETE_TOPICS, &ALTER_REPLICA_LOG_DIRS,
    &DESCRIBE_LOG_DIRS, &CREATE_PARTITIONS, &ELECT_LEADERS, &ALTER_PARTITION_REASSIGNMENTS,
    &LIST_PARTITION_REASSIGNMENTS, &DESCRIBE_QUORUM, &UPDATE_FEATURES, &DESCRIBE_CLUSTER,
    &UNREGISTER_BROKER, &DESCRIBE_TOPIC_PARTITIONS,
];

/// Metadata.
static METADATA: Layout = Layout::new(3, (0, 13), 9, &[
    f("topics", rows(&[
        f("topic_id", UUID).since(10),
        f("name", TEXT).null(),
    ])).null(),
    f("allow_auto_topic_creation", BOOL).since(4),
    f("include_cluster_authorized_operations", BOOL).since(8).until(10),
    f("include_topic_authorized_operations", BOOL).since(8),
]);

/// ApiVersions.
static API_VERSIONS: Layout = Layout::new(18, (0, 5), 3, &[
    f("client_software_name", TEXT).since(3),
    f("client_software_version", TEXT).since(3),
    f("cluster_id", TEXT).since(5).null(),
    f("node_id", I32).since(5),
]);

/// CreateTopics.
static CREATE_TOPICS: Layout = Layout::new(19, (2, 7), 5, &[
    f("topics", rows(&[
        f("name", TEXT),
        f("num_partitions", I32),
        f("replication_factor", I16),
        f("assignments", rows(&[
            f("partition_index", I32),
            f("broker_ids", list(&I32)),
        ])),
        f("configs", rows(&[
            f("name", TEXT),
            f("value", TEXT).null(),
        ])),
    ])),
    f("timeout_ms", I32),
    f("validate_only", BOOL),
]);

/// DeleteTopics.
static DELETE_TOPICS: Layout = Layout::new(20, (1, 6), 4, &[
    f("topics", rows(&[
        f("name", TEXT).null(),
        f("topic_id", UUID),
    ])).since(6),
    f("topic_names", list(&TEXT)).until(5),
    f("timeout_ms", I32),
]);

/// AlterReplicaLogDirs.
static ALTER_REPLICA_LOG_DIRS: Layout = Layout::new(34, (1, 2), 2, &[
    f("dirs", rows(&[
        f("path", TEXT),
        f("topics", rows(&[
            f("name", TEXT),
            f("partitions", list(&I32)),
        ])),
    ])),
]);

/// DescribeLogDirs.
static DESCRIBE_LOG_DIRS: Layout = Layout::new(35, (1, 5), 2, &[
    f("topics", rows(&[
        f("topic", TEXT),
        f("partitions", list(&I32)),
    ])).null(),
]);

/// CreatePartitions.
static CREATE_PARTITIONS: Layout = Layout::new(37, (0, 3), 2, &[
    f("topics", rows(&[
        f("name", TEXT),
        f("count", I32),
        f("assignments", rows(&[
            f("broker_ids", list(&I32)),
        ])).null(),
    ])),
    f("timeout_ms", I32),
    f("validate_only", BOOL),
]);

/// ElectLeaders.
static ELECT_LEADERS: Layout = Layout::new(43, (0, 2), 2, &[
    f("election_type", I8).since(1),
    f("topic_partitions", rows(&[
        f("topic", TEXT),
        f("partitions", list(&I32)),
    ])).null(),
    f("timeout_ms", I32),
]);

/// AlterPartitionReassignments.
static ALTER_PARTITION_REASSIGNMENTS: Layout = Layout::new(45, (0, 1), 0, &[
    f("timeout_ms", I32),
    f("allow_replication_factor_change", BOOL).since(1),
    f("topics", rows(&[
        f("name", TEXT),
        f("partitions", rows(&[
            f("partition_index", I32),
            f("replicas", list(&I32)).null(),
        ])),
    ])),
]);

/// ListPartitionReassignments.
static LIST_PARTITION_REASSIGNMENTS: Layout = Layout::new(46, (0, 0), 0, &[
    f("timeout_ms", I32),
    f("topics", rows(&[
        f("name", TEXT),
        f("partition_indexes", list(&I32)),
    ])).null(),
]);

/// DescribeQuorum.
static DESCRIBE_QUORUM: Layout = Layout::new(55, (0, 2), 0, &[
    f("topics", rows(&[
        f("topic_name", TEXT),
        f("partitions", rows(&[
            f("partition_index", I32),
        ])),
    ])),
]);

/// UpdateFeatures.
static UPDATE_FEATURES: Layout = Layout::new(57, (0, 2), 0, &[
    f("timeout_ms", I32),
    f("feature_updates", rows(&[
        f("feature", TEXT),
        f("max_version_level", I16),
        f("allow_downgrade", BOOL).until(0),
        f("upgrade_type", I8).since(1),
    ])),
    f("validate_only", BOOL).since(1),
]);

/// DescribeCluster.
static DESCRIBE_CLUSTER: Layout = Layout::new(60, (0, 2), 0, &[
    f("include_cluster_authorized_operations", BOOL),
    f("endpoint_type", I8).since(1),
    f("include_fenced_brokers", BOOL).since(2),
]);

/// UnregisterBroker.
static UNREGISTER_BROKER: Layout = Layout::new(64, (0, 0), 0, &[
    f("broker_id", I32),
]);

/// DescribeTopicPartitions.
static DESCRIBE_TOPIC_PARTITIONS: Layout = Layout::new(75, (0, 0), 0, &[
    f("topics", rows(&[
        f("name", TEXT),
    ])),
    f("response_partition_limit", I32),
    f("cursor", maybe(&[
        f("topic_name", TEXT),
        f("partition_index", I32),
    ])),
]);
