//! Request layouts of the log: Produce, Fetch, offsets, and deleting records.

use super::{BYTES, I8, I16, I32, I64, TEXT, UUID, Layout, f, list, part, rows};

/// All layouts of this file.
pub(super) const ALL: &[&Layout] = &[
    &PRODUCE, &FETCH, &LIST_OFFSETS, &OFFSET_FOR_LEADER_EPOCH, &DELETE_RECORDS,
];

/// Produce.
static PRODUCE: Layout = Layout::new(0, (3, 13), 9, &[
    f("transactional_id", TEXT).null(),
    f("acks", I16),
    f("timeout_ms", I32),
    f("topic_data", rows(&[
        f("name", TEXT).until(12),
        f("topic_id", UUID).since(13),
        f("partition_data", rows(&[
            f("index", I32),
            f("records", BYTES).null(),
        ])),
    ])),
]);

/// Fetch.
static FETCH: Layout = Layout::new(1, (4, 18), 12, &[
    f("replica_id", I32).until(14),
    f("max_wait_ms", I32),
    f("min_bytes", I32),
    f("max_bytes", I32),
    f("isolation_level", I8),
    f("session_id", I32).since(7),
    f("session_epoch", I32).since(7),
    f("topics", rows(&[
        f("topic", TEXT).until(12),
        f("topic_id", UUID).since(13),
        f("partitions", rows(&[
            f("partition", I32),
            f("current_leader_epoch", I32).since(9),
            f("fetch_offset", I64),
            f("last_fetched_epoch", I32).since(12),
            f("log_start_offset", I64).since(5),
            f("partition_max_bytes", I32),
            f("replica_directory_id", UUID).since(17).tag(0),
            f("high_watermark", I64).since(18).tag(1),
        ])),
    ])),
    f("forgotten_topics_data", rows(&[
        f("topic", TEXT).until(12),
        f("topic_id", UUID).since(13),
        f("partitions", list(&I32)),
    ])).since(7),
    f("rack_id", TEXT).since(11),
    f("cluster_id", TEXT).since(12).null().tag(0),
    f("replica_state", part(&[
        f("replica_id", I32),
        f("replica_epoch", I64),
    ])).since(15).tag(1),
]);

/// ListOffsets.
static LIST_OFFSETS: Layout = Layout::new(2, (1, 11), 6, &[
    f("replica_id", I32),
    f("isolation_level", I8).since(2),
    f("topics", rows(&[
        f("name", TEXT),
        f("partitions", rows(&[
            f("partition_index", I32),
            f("current_leader_epoch", I32).since(4),
            f("timestamp", I64),
        ])),
    ])),
    f("timeout_ms", I32).since(10),
]);

/// OffsetForLeaderEpoch.
static OFFSET_FOR_LEADER_EPOCH: Layout = Layout::new(23, (2, 4), 4, &[
    f("replica_id", I32).since(3),
    f("topics", rows(&[
        f("topic", TEXT),
        f("partitions", rows(&[
            f("partition", I32),
            f("current_leader_epoch", I32),
            f("leader_epoch", I32),
        ])),
    ])),
]);

/// DeleteRecords.
static DELETE_RECORDS: Layout = Layout::new(21, (0, 2), 2, &[
    f("topics", rows(&[
        f("name", TEXT),
        f("partitions", rows(&[
            f("partition_index", I32),
            f("offset", I64),
        ])),
    ])),
    f("timeout_ms", I32),
]);
