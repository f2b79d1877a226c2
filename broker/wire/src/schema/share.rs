//! Request layouts of share groups.

use super::{BOOL, I8, I32, I64, TEXT, UUID, Layout, f, list, rows};

/// All layouts of this file.
pub(super) const ALL: &[&Layout] = &[
    &SHARE_GROUP_HEARTBEAT, &SHARE_GROUP_DESCRIBE, &SHARE_FETCH, &SHARE_ACKNOWLEDGE,
    &DESCRIBE_SHARE_GROUP_OFFSETS, &ALTER_SHARE_GROUP_OFFSETS, &DELETE_SHARE_GROUP_OFFSETS,
];

/// ShareGroupHeartbeat.
static SHARE_GROUP_HEARTBEAT: Layout = Layout::new(76, (1, 1), 1, &[
    f("group_id", TEXT),
    f("member_id", TEXT),
    f("member_epoch", I32),
    f("rack_id", TEXT).null(),
    f("subscribed_topic_names", list(&TEXT)).null(),
]);

/// ShareGroupDescribe.
static SHARE_GROUP_DESCRIBE: Layout = Layout::new(77, (1, 1), 1, &[
    f("group_ids", list(&TEXT)),
    f("include_authorized_operations", BOOL),
]);

/// ShareFetch.
static SHARE_FETCH: Layout = Layout::new(78, (1, 1), 1, &[
    f("group_id", TEXT).null(),
    f("member_id", TEXT).null(),
    f("share_session_epoch", I32),
    f("max_wait_ms", I32),
    f("min_bytes", I32),
    f("max_bytes", I32),
    f("max_records", I32),
    f("batch_size", I32),
    f("topics", rows(&[
        f("topic_id", UUID),
        f("partitions", rows(&[
            f("partition_index", I32),
            f("acknowledgement_batches", rows(&[
                f("first_offset", I64),
                f("last_offset", I64),
                f("acknowledge_types", list(&I8)),
            ])),
        ])),
    ])),
    f("forgotten_topics_data", rows(&[
        f("topic_id", UUID),
        f("partitions", list(&I32)),
    ])),
]);

/// ShareAcknowledge.
static SHARE_ACKNOWLEDGE: Layout = Layout::new(79, (1, 1), 1, &[
    f("group_id", TEXT).null(),
    f("member_id", TEXT).null(),
    f("share_session_epoch", I32),
    f("topics", rows(&[
        f("topic_id", UUID),
        f("partitions", rows(&[
            f("partition_index", I32),
            f("acknowledgement_batches", rows(&[
                f("first_offset", I64),
                f("last_offset", I64),
                f("acknowledge_types", list(&I8)),
            ])),
        ])),
    ])),
]);

/// DescribeShareGroupOffsets.
static DESCRIBE_SHARE_GROUP_OFFSETS: Layout = Layout::new(90, (0, 0), 0, &[
    f("groups", rows(&[
        f("group_id", TEXT),
        f("topics", rows(&[
            f("topic_name", TEXT),
            f("partitions", list(&I32)),
        ])).null(),
    ])),
]);

/// AlterShareGroupOffsets.
static ALTER_SHARE_GROUP_OFFSETS: Layout = Layout::new(91, (0, 0), 0, &[
    f("group_id", TEXT),
    f("topics", rows(&[
        f("topic_name", TEXT),
        f("partitions", rows(&[
            f("partition_index", I32),
            f("start_offset", I64),
        ])),
    ])),
]);

/// DeleteShareGroupOffsets.
static DELETE_SHARE_GROUP_OFFSETS: Layout = Layout::new(92, (0, 0), 0, &[
    f("group_id", TEXT),
    f("topics", rows(&[
        f("topic_name", TEXT),
    ])),
]);
