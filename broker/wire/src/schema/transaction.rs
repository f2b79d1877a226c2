//! Request layouts of producers and transactions.

use super::{BOOL, I8, I16, I32, I64, NEVER, TEXT, UUID, Layout, f, list, rows};

/// All layouts of this file.
pub(super) const ALL: &[&Layout] = &[
    &INIT_PRODUCER_ID, &ADD_PARTITIONS_TO_TXN, &ADD_OFFSETS_TO_TXN, &END_TXN, &WRITE_TXN_MARKERS,
    &TXN_OFFSET_COMMIT, &DESCRIBE_PRODUCERS, &DESCRIBE_TRANSACTIONS, &LIST_TRANSACTIONS,
];

/// InitProducerId.
static INIT_PRODUCER_ID: Layout = Layout::new(22, (0, 5), 2, &[
    f("transactional_id", TEXT).null(),
    f("transaction_timeout_ms", I32),
    f("producer_id", I64).since(3),
    f("producer_epoch", I16).since(3),
]);

/// AddPartitionsToTxn.
static ADD_PARTITIONS_TO_TXN: Layout = Layout::new(24, (0, 5), 3, &[
    f("transactions", rows(&[
        f("transactional_id", TEXT),
        f("producer_id", I64),
        f("producer_epoch", I16),
        f("verify_only", BOOL),
        f("topics", rows(&[
            f("name", TEXT),
            f("partitions", list(&I32)),
        ])),
    ])).since(4),
    f("v3_and_below_transactional_id", TEXT).until(3),
    f("v3_and_below_producer_id", I64).until(3),
    f("v3_and_below_producer_epoch", I16).until(3),
    f("v3_and_below_topics", rows(&[
        f("name", TEXT),
        f("partitions", list(&I32)),
    ])).until(3),
]);

/// AddOffsetsToTxn.
static ADD_OFFSETS_TO_TXN: Layout = Layout::new(25, (0, 4), 3, &[
    f("transactional_id", TEXT),
    f("producer_id", I64),
    f("producer_epoch", I16),
    f("group_id", TEXT),
]);

/// EndTxn.
static END_TXN: Layout = Layout::new(26, (0, 5), 3, &[
    f("transactional_id", TEXT),
    f("producer_id", I64),
    f("producer_epoch", I16),
    f("committed", BOOL),
]);

/// WriteTxnMarkers.
static WRITE_TXN_MARKERS: Layout = Layout::new(27, (1, 2), 1, &[
    f("markers", rows(&[
        f("producer_id", I64),
        f("producer_epoch", I16),
        f("transaction_result", BOOL),
        f("topics", rows(&[
            f("name", TEXT),
            f("partition_indexes", list(&I32)),
        ])),
        f("coordinator_epoch", I32),
        f("transaction_version", I8).since(2),
        // Where the decoder keeps it: beside the structure, which has no place for it.
        f("kept_transaction_version", I64).since(NEVER),
    ])),
]);

/// TxnOffsetCommit.
static TXN_OFFSET_COMMIT: Layout = Layout::new(28, (0, 6), 3, &[
    f("transactional_id", TEXT),
    f("group_id", TEXT),
    f("producer_id", I64),
    f("producer_epoch", I16),
    f("generation_id", I32).since(3),
    f("member_id", TEXT).since(3),
    f("group_instance_id", TEXT).since(3).null(),
    f("topics", rows(&[
        f("name", TEXT).until(5),
        f("topic_id", UUID).since(6),
        f("partitions", rows(&[
            f("partition_index", I32),
            f("committed_offset", I64),
            f("committed_leader_epoch", I32).since(2),
            f("committed_metadata", TEXT).null(),
        ])),
    ])),
]);

/// DescribeProducers.
static DESCRIBE_PRODUCERS: Layout = Layout::new(61, (0, 0), 0, &[
    f("topics", rows(&[
        f("name", TEXT),
        f("partition_indexes", list(&I32)),
    ])),
]);

/// DescribeTransactions.
static DESCRIBE_TRANSACTIONS: Layout = Layout::new(65, (0, 0), 0, &[
    f("transactional_ids", list(&TEXT)),
]);

/// ListTransactions.
static LIST_TRANSACTIONS: Layout = Layout::new(66, (0, 2), 0, &[
    f("state_filters", list(&TEXT)),
    f("producer_id_filters", list(&I64)),
    f("duration_filter", I64).since(1),
    f("transactional_id_pattern", TEXT).since(2).null(),
]);
