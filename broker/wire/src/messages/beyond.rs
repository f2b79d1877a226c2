//! What requests say that the message layer's structures have no place for.

use uuid::Uuid;

use super::IntendedBroker;

/// Fields of one request beside its structure; empty at all other versions and APIs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Beyond {
    /// The broker that the client means: ApiVersions from version 5 on.
    pub intended: IntendedBroker,
    /// The id of each topic, in their order: TxnOffsetCommit from version 6 on, whose topics have
    /// no names.
    pub topic_ids: Vec<Uuid>,
    /// The version of transactions that each marker is of, in their order: WriteTxnMarkers from
    /// version 2 on.
    pub transaction_versions: Vec<i8>,
}
