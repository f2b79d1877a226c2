//! Request layouts of consumer groups.

use super::{BOOL, BYTES, I8, I32, I64, NEVER, TEXT, UUID, Layout, f, list, rows};

/// All layouts of this file.
pub(super) const ALL: &[&Layout] = &[
    &OFFSET_COMMIT, &OFFSET_FETCH, &FIND_COORDINATOR, &JOIN_GROUP, &HEARTBEAT, &LEAVE_GROUP,
    &SYNC_GROUP, &DESCRIBE_GROUPS, &LIST_GROUPS, &DELETE_GROUPS, &OFFSET_DELETE,
    &CONSUMER_GROUP_HEARTBEAT, &CONSUMER_GROUP_DESCRIBE,
];

/// OffsetCommit.
static OFFSET_COMMIT: Layout = Layout::new(8, (2, 10), 8, &[
    f("group_id", TEXT),
    f("generation_id_or_member_epoch", I32),
    f("member_id", TEXT),
    f("group_instance_id", TEXT).since(7).null(),
    f("retention_time_ms", I64).until(4),
    f("topics", rows(&[
        f("name", TEXT).until(9),
        f("topic_id", UUID).since(10),
        f("partitions", rows(&[
            f("partition_index", I32),
            f("committed_offset", I64),
            f("committed_leader_epoch", I32).since(6),
            f("committed_metadata", TEXT).null(),
        ])),
    ])),
]);

/// OffsetFetch.
static OFFSET_FETCH: Layout = Layout::new(9, (1, 10), 6, &[
    f("group_id", TEXT).until(7),
    f("topics", rows(&[
        f("name", TEXT).until(7),
        f("partition_indexes", list(&I32)).until(7),
    ])).until(7).null(),
    f("groups", rows(&[
        f("group_id", TEXT),
        f("member_id", TEXT).since(9).null(),
        f("member_epoch", I32).since(9),
        f("topics", rows(&[
            f("name", TEXT).until(9),
            f("topic_id", UUID).since(10),
            f("partition_indexes", list(&I32)),
        ])).null(),
    ])).since(8),
    f("require_stable", BOOL).since(7),
]);

/// FindCoordinator.
static FIND_COORDINATOR: Layout = Layout::new(10, (0, 6), 3, &[
    f("key", TEXT).until(3),
    f("key_type", I8).since(1),
    f("coordinator_keys", list(&TEXT)).since(4),
]);

/// JoinGroup.
static JOIN_GROUP: Layout = Layout::new(11, (0, 9), 6, &[
    f("group_id", TEXT),
    f("session_timeout_ms", I32),
    f("rebalance_timeout_ms", I32).since(1),
    f("member_id", TEXT),
    f("group_instance_id", TEXT).since(5).null(),
    f("protocol_type", TEXT),
    f("protocols", rows(&[
        f("name", TEXT),
        f("metadata", BYTES),
    ])),
    f("reason", TEXT).since(8).null(),
]);

/// Heartbeat.
static HEARTBEAT: Layout = Layout::new(12, (0, 4), 4, &[
    f("group_id", TEXT),
    f("generation_id", I32),
    f("member_id", TEXT),
    f("group_instance_id", TEXT).since(3).null(),
]);

/// LeaveGroup.
static LEAVE_GROUP: Layout = Layout::new(13, (0, 5), 4, &[
    f("group_id", TEXT),
    f("member_id", TEXT).until(2),
    f("members", rows(&[
        f("member_id", TEXT),
        f("group_instance_id", TEXT).null(),
        f("reason", TEXT).since(5).null(),
    ])).since(3),
]);

/// SyncGroup.
static SYNC_GROUP: Layout = Layout::new(14, (0, 5), 4, &[
    f("group_id", TEXT),
    f("generation_id", I32),
    f("member_id", TEXT),
    f("group_instance_id", TEXT).since(3).null(),
    f("protocol_type", TEXT).since(5).null(),
    f("protocol_name", TEXT).since(5).null(),
    f("assignments", rows(&[
        f("member_id", TEXT),
        f("assignment", BYTES),
    ])),
]);

/// DescribeGroups.
static DESCRIBE_GROUPS: Layout = Layout::new(15, (0, 6), 5, &[
    f("groups", list(&TEXT)),
    f("include_authorized_operations", BOOL).since(3),
]);

/// ListGroups.
static LIST_GROUPS: Layout = Layout::new(16, (0, 5), 3, &[
    f("states_filter", list(&TEXT)).since(4),
    f("types_filter", list(&TEXT)).since(5),
]);

/// DeleteGroups.
static DELETE_GROUPS: Layout = Layout::new(42, (0, 3), 2, &[
    f("groups_names", list(&TEXT)),
]);

/// OffsetDelete.
static OFFSET_DELETE: Layout = Layout::new(47, (0, 0), NEVER, &[
    f("group_id", TEXT),
    f("topics", rows(&[
        f("name", TEXT),
        f("partitions", rows(&[
            f("partition_index", I32),
        ])),
    ])),
]);

/// ConsumerGroupHeartbeat.
static CONSUMER_GROUP_HEARTBEAT: Layout = Layout::new(68, (0, 1), 0, &[
    f("group_id", TEXT),
    f("member_id", TEXT),
    f("member_epoch", I32),
    f("instance_id", TEXT).null(),
    f("rack_id", TEXT).null(),
    f("rebalance_timeout_ms", I32),
    f("subscribed_topic_names", list(&TEXT)).null(),
    f("subscribed_topic_regex", TEXT).since(1).null(),
    f("server_assignor", TEXT).null(),
    f("topic_partitions", rows(&[
        f("topic_id", UUID),
        f("partitions", list(&I32)),
    ])).null(),
]);

/// ConsumerGroupDescribe.
static CONSUMER_GROUP_DESCRIBE: Layout = Layout::new(69, (0, 1), 0, &[
    f("group_ids", list(&TEXT)),
    f("include_authorized_operations", BOOL),
]);
