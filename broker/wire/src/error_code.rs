//! Kafka's error codes as of 4.4: numbers, names, and whether a client tries again.
//!
//! The table is the whole of it: the enum, both conversions and the names are made from its lines.

use std::fmt;

/// Makes [`ErrorCode`] out of lines `Variant = code, "NAME", retry class;`.
macro_rules! error_codes {
    ($($(#[$attribute:meta])* $variant:ident = $code:literal, $name:literal, $retry:ident;)*) => {
        /// An error code of the Kafka protocol.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(i16)]
        pub enum ErrorCode {
            $(
                $(#[$attribute])*
                #[doc = concat!("`", $name, "` (", stringify!($code), ").")]
                $variant = $code,
            )*
        }

        impl ErrorCode {
            /// Every code, in the order of its numbers.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$variant,)*];

            /// The name in Kafka's documentation, for example `NOT_COORDINATOR`.
            pub const fn name(self) -> &'static str {
                match self { $(ErrorCode::$variant => $name,)* }
            }

            /// What a Java client does about it by the error's class.
            pub const fn retry(self) -> Retry {
                match self { $(ErrorCode::$variant => Retry::$retry,)* }
            }

            /// The code of a number; `None` for numbers that Kafka 4.4 does not know.
            pub const fn from_code(code: i16) -> Option<Self> {
                match code { $($code => Some(ErrorCode::$variant),)* _ => None }
            }
        }
    };
}

/// What a Java client does about an error by the error's class. Some codes without a class are
/// handled specially, such as 45 by the idempotent producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// It gives up, or knows better.
    No,
    /// It sends the request again.
    Same,
    /// It looks for the coordinator again, then sends.
    Coordinator,
    /// It refreshes its metadata, then sends.
    Metadata,
}

impl ErrorCode {
    /// The number on the wire.
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// Whether this is [`ErrorCode::None`].
    pub const fn is_none(self) -> bool {
        matches!(self, ErrorCode::None)
    }
}

impl From<ErrorCode> for i16 {
    fn from(error: ErrorCode) -> i16 {
        error.code()
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({})", self.name(), self.code())
    }
}

error_codes! {
    UnknownServerError = -1, "UNKNOWN_SERVER_ERROR", No;
    #[default]
    None = 0, "NONE", No;
    OffsetOutOfRange = 1, "OFFSET_OUT_OF_RANGE", No;
    CorruptMessage = 2, "CORRUPT_MESSAGE", Same;
    UnknownTopicOrPartition = 3, "UNKNOWN_TOPIC_OR_PARTITION", Metadata;
    InvalidFetchSize = 4, "INVALID_FETCH_SIZE", No;
    LeaderNotAvailable = 5, "LEADER_NOT_AVAILABLE", Metadata;
    NotLeaderOrFollower = 6, "NOT_LEADER_OR_FOLLOWER", Metadata;
    RequestTimedOut = 7, "REQUEST_TIMED_OUT", Same;
    BrokerNotAvailable = 8, "BROKER_NOT_AVAILABLE", No;
    ReplicaNotAvailable = 9, "REPLICA_NOT_AVAILABLE", Metadata;
    MessageTooLarge = 10, "MESSAGE_TOO_LARGE", No;
    StaleControllerEpoch = 11, "STALE_CONTROLLER_EPOCH", No;
    OffsetMetadataTooLarge = 12, "OFFSET_METADATA_TOO_LARGE", No;
    NetworkException = 13, "NETWORK_EXCEPTION", Metadata;
    CoordinatorLoadInProgress = 14, "COORDINATOR_LOAD_IN_PROGRESS", Same;
    CoordinatorNotAvailable = 15, "COORDINATOR_NOT_AVAILABLE", Coordinator;
    NotCoordinator = 16, "NOT_COORDINATOR", Coordinator;
    InvalidTopicException = 17, "INVALID_TOPIC_EXCEPTION", No;
    RecordListTooLarge = 18, "RECORD_LIST_TOO_LARGE", No;
    NotEnoughReplicas = 19, "NOT_ENOUGH_REPLICAS", Same;
    NotEnoughReplicasAfterAppend = 20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", Same;
    InvalidRequiredAcks = 21, "INVALID_REQUIRED_ACKS", No;
    IllegalGeneration = 22, "ILLEGAL_GENERATION", No;
    InconsistentGroupProtocol = 23, "INCONSISTENT_GROUP_PROTOCOL", No;
    InvalidGroupId = 24, "INVALID_GROUP_ID", No;
    UnknownMemberId = 25, "UNKNOWN_MEMBER_ID", No;
    InvalidSessionTimeout = 26, "INVALID_SESSION_TIMEOUT", No;
    RebalanceInProgress = 27, "REBALANCE_IN_PROGRESS", No;
    InvalidCommitOffsetSize = 28, "INVALID_COMMIT_OFFSET_SIZE", No;
    TopicAuthorizationFailed = 29, "TOPIC_AUTHORIZATION_FAILED", No;
    GroupAuthorizationFailed = 30, "GROUP_AUTHORIZATION_FAILED", No;
    ClusterAuthorizationFailed = 31, "CLUSTER_AUTHORIZATION_FAILED", No;
    InvalidTimestamp = 32, "INVALID_TIMESTAMP", No;
    UnsupportedSaslMechanism = 33, "UNSUPPORTED_SASL_MECHANISM", No;
    IllegalSaslState = 34, "ILLEGAL_SASL_STATE", No;
    UnsupportedVersion = 35, "UNSUPPORTED_VERSION", No;
    TopicAlreadyExists = 36, "TOPIC_ALREADY_EXISTS", No;
    InvalidPartitions = 37, "INVALID_PARTITIONS", No;
    InvalidReplicationFactor = 38, "INVALID_REPLICATION_FACTOR", No;
    InvalidReplicaAssignment = 39, "INVALID_REPLICA_ASSIGNMENT", No;
    InvalidConfig = 40, "INVALID_CONFIG", No;
    NotController = 41, "NOT_CONTROLLER", Same;
    InvalidRequest = 42, "INVALID_REQUEST", No;
    UnsupportedForMessageFormat = 43, "UNSUPPORTED_FOR_MESSAGE_FORMAT", No;
    PolicyViolation = 44, "POLICY_VIOLATION", No;
    OutOfOrderSequenceNumber = 45, "OUT_OF_ORDER_SEQUENCE_NUMBER", No;
    DuplicateSequenceNumber = 46, "DUPLICATE_SEQUENCE_NUMBER", No;
    InvalidProducerEpoch = 47, "INVALID_PRODUCER_EPOCH", No;
    InvalidTxnState = 48, "INVALID_TXN_STATE", No;
    InvalidProducerIdMapping = 49, "INVALID_PRODUCER_ID_MAPPING", No;
    InvalidTransactionTimeout = 50, "INVALID_TRANSACTION_TIMEOUT", No;
    ConcurrentTransactions = 51, "CONCURRENT_TRANSACTIONS", Same;
    TransactionCoordinatorFenced = 52, "TRANSACTION_COORDINATOR_FENCED", No;
    TransactionalIdAuthorizationFailed = 53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", No;
    SecurityDisabled = 54, "SECURITY_DISABLED", No;
    OperationNotAttempted = 55, "OPERATION_NOT_ATTEMPTED", No;
    KafkaStorageError = 56, "KAFKA_STORAGE_ERROR", Metadata;
    LogDirNotFound = 57, "LOG_DIR_NOT_FOUND", No;
    SaslAuthenticationFailed = 58, "SASL_AUTHENTICATION_FAILED", No;
    UnknownProducerId = 59, "UNKNOWN_PRODUCER_ID", No;
    ReassignmentInProgress = 60, "REASSIGNMENT_IN_PROGRESS", No;
    DelegationTokenAuthDisabled = 61, "DELEGATION_TOKEN_AUTH_DISABLED", No;
    DelegationTokenNotFound = 62, "DELEGATION_TOKEN_NOT_FOUND", No;
    DelegationTokenOwnerMismatch = 63, "DELEGATION_TOKEN_OWNER_MISMATCH", No;
    DelegationTokenRequestNotAllowed = 64, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", No;
    DelegationTokenAuthorizationFailed = 65, "DELEGATION_TOKEN_AUTHORIZATION_FAILED", No;
    DelegationTokenExpired = 66, "DELEGATION_TOKEN_EXPIRED", No;
    InvalidPrincipalType = 67, "INVALID_PRINCIPAL_TYPE", No;
    NonEmptyGroup = 68, "NON_EMPTY_GROUP", No;
    GroupIdNotFound = 69, "GROUP_ID_NOT_FOUND", No;
    FetchSessionIdNotFound = 70, "FETCH_SESSION_ID_NOT_FOUND", Same;
    InvalidFetchSessionEpoch = 71, "INVALID_FETCH_SESSION_EPOCH", Same;
    ListenerNotFound = 72, "LISTENER_NOT_FOUND", Metadata;
    TopicDeletionDisabled = 73, "TOPIC_DELETION_DISABLED", No;
    FencedLeaderEpoch = 74, "FENCED_LEADER_EPOCH", Metadata;
    UnknownLeaderEpoch = 75, "UNKNOWN_LEADER_EPOCH", Same;
    UnsupportedCompressionType = 76, "UNSUPPORTED_COMPRESSION_TYPE", No;
    StaleBrokerEpoch = 77, "STALE_BROKER_EPOCH", No;
    OffsetNotAvailable = 78, "OFFSET_NOT_AVAILABLE", Same;
    MemberIdRequired = 79, "MEMBER_ID_REQUIRED", No;
    PreferredLeaderNotAvailable = 80, "PREFERRED_LEADER_NOT_AVAILABLE", Metadata;
    GroupMaxSizeReached = 81, "GROUP_MAX_SIZE_REACHED", No;
    FencedInstanceId = 82, "FENCED_INSTANCE_ID", No;
    EligibleLeadersNotAvailable = 83, "ELIGIBLE_LEADERS_NOT_AVAILABLE", Metadata;
    ElectionNotNeeded = 84, "ELECTION_NOT_NEEDED", Metadata;
    NoReassignmentInProgress = 85, "NO_REASSIGNMENT_IN_PROGRESS", No;
    GroupSubscribedToTopic = 86, "GROUP_SUBSCRIBED_TO_TOPIC", No;
    InvalidRecord = 87, "INVALID_RECORD", No;
    UnstableOffsetCommit = 88, "UNSTABLE_OFFSET_COMMIT", Same;
    ThrottlingQuotaExceeded = 89, "THROTTLING_QUOTA_EXCEEDED", Same;
    ProducerFenced = 90, "PRODUCER_FENCED", No;
    ResourceNotFound = 91, "RESOURCE_NOT_FOUND", No;
    DuplicateResource = 92, "DUPLICATE_RESOURCE", No;
    UnacceptableCredential = 93, "UNACCEPTABLE_CREDENTIAL", No;
    InconsistentVoterSet = 94, "INCONSISTENT_VOTER_SET", No;
    InvalidUpdateVersion = 95, "INVALID_UPDATE_VERSION", No;
    FeatureUpdateFailed = 96, "FEATURE_UPDATE_FAILED", No;
    PrincipalDeserializationFailure = 97, "PRINCIPAL_DESERIALIZATION_FAILURE", No;
    SnapshotNotFound = 98, "SNAPSHOT_NOT_FOUND", No;
    PositionOutOfRange = 99, "POSITION_OUT_OF_RANGE", No;
    UnknownTopicId = 100, "UNKNOWN_TOPIC_ID", Metadata;
    DuplicateBrokerRegistration = 101, "DUPLICATE_BROKER_REGISTRATION", No;
    BrokerIdNotRegistered = 102, "BROKER_ID_NOT_REGISTERED", No;
    InconsistentTopicId = 103, "INCONSISTENT_TOPIC_ID", Metadata;
    InconsistentClusterId = 104, "INCONSISTENT_CLUSTER_ID", No;
    TransactionalIdNotFound = 105, "TRANSACTIONAL_ID_NOT_FOUND", No;
    FetchSessionTopicIdError = 106, "FETCH_SESSION_TOPIC_ID_ERROR", Same;
    IneligibleReplica = 107, "INELIGIBLE_REPLICA", No;
    NewLeaderElected = 108, "NEW_LEADER_ELECTED", No;
    OffsetMovedToTieredStorage = 109, "OFFSET_MOVED_TO_TIERED_STORAGE", No;
    FencedMemberEpoch = 110, "FENCED_MEMBER_EPOCH", No;
    UnreleasedInstanceId = 111, "UNRELEASED_INSTANCE_ID", No;
    UnsupportedAssignor = 112, "UNSUPPORTED_ASSIGNOR", No;
    StaleMemberEpoch = 113, "STALE_MEMBER_EPOCH", No;
    MismatchedEndpointType = 114, "MISMATCHED_ENDPOINT_TYPE", No;
    UnsupportedEndpointType = 115, "UNSUPPORTED_ENDPOINT_TYPE", No;
    UnknownControllerId = 116, "UNKNOWN_CONTROLLER_ID", No;
    UnknownSubscriptionId = 117, "UNKNOWN_SUBSCRIPTION_ID", No;
    TelemetryTooLarge = 118, "TELEMETRY_TOO_LARGE", No;
    InvalidRegistration = 119, "INVALID_REGISTRATION", No;
    TransactionAbortable = 120, "TRANSACTION_ABORTABLE", No;
    InvalidRecordState = 121, "INVALID_RECORD_STATE", No;
    ShareSessionNotFound = 122, "SHARE_SESSION_NOT_FOUND", Same;
    InvalidShareSessionEpoch = 123, "INVALID_SHARE_SESSION_EPOCH", Same;
    FencedStateEpoch = 124, "FENCED_STATE_EPOCH", No;
    InvalidVoterKey = 125, "INVALID_VOTER_KEY", No;
    DuplicateVoter = 126, "DUPLICATE_VOTER", No;
    VoterNotFound = 127, "VOTER_NOT_FOUND", No;
    InvalidRegularExpression = 128, "INVALID_REGULAR_EXPRESSION", No;
    RebootstrapRequired = 129, "REBOOTSTRAP_REQUIRED", No;
    StreamsInvalidTopology = 130, "STREAMS_INVALID_TOPOLOGY", No;
    StreamsInvalidTopologyEpoch = 131, "STREAMS_INVALID_TOPOLOGY_EPOCH", No;
    StreamsTopologyFenced = 132, "STREAMS_TOPOLOGY_FENCED", No;
    ShareSessionLimitReached = 133, "SHARE_SESSION_LIMIT_REACHED", Same;
    GroupDeletionFailed = 134, "GROUP_DELETION_FAILED", No;
    StreamsTopologyDescriptionUpdateFailed = 135, "STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED", No;
    ControllerIdNotRegistered = 136, "CONTROLLER_ID_NOT_REGISTERED", No;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_dense_and_convert_both_ways() {
        let numbers: Vec<i16> = ErrorCode::ALL.iter().map(|error| error.code()).collect();
        assert_eq!(numbers, (-1..=136).collect::<Vec<i16>>());
        for error in ErrorCode::ALL {
            assert_eq!(ErrorCode::from_code(error.code()), Some(*error));
        }
        assert_eq!(ErrorCode::from_code(137), None);
        assert_eq!(ErrorCode::default(), ErrorCode::None);
    }

    /// The message layer's own table (of Kafka 4.1) is a second reading of the same numbers.
    #[test]
    fn names_agree_with_the_message_layer() {
        let mut compared = 0;
        for error in ErrorCode::ALL {
            let Some(theirs) = kafka_protocol::ResponseError::try_from_code(error.code()) else {
                continue;
            };
            if matches!(theirs, kafka_protocol::ResponseError::Unknown(_)) {
                continue;
            }
            let ours = error.name().replace('_', "").to_lowercase();
            let theirs = format!("{theirs:?}").split('(').next().unwrap_or_default().to_lowercase();
            assert_eq!(ours, theirs);
            compared += 1;
        }
        assert!(compared > 100, "only {compared} codes were compared");
    }

    #[test]
    fn display_names_the_code() {
        assert_eq!(ErrorCode::NotCoordinator.to_string(), "NOT_COORDINATOR (16)");
        assert_eq!(ErrorCode::NotCoordinator.retry(), Retry::Coordinator);
    }
}
