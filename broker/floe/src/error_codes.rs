//! From Floe's errors to Kafka's codes: one exhaustive function each.

use floe_coordinator::GroupError;
use floe_coordinator::transactions::TransactionError;
use floe_env::{Error, ErrorKind};
use floe_metadata::rows::Refusal;
use floe_wire::ErrorCode;
use kfs::{BatchError, RecordFault};

/// The code for an error of a store or of Floe itself, where the API has no rule of its own.
pub(crate) fn error_code(error: &Error) -> ErrorCode {
    match error.kind() {
        // Retried by every client, with fresh metadata.
        ErrorKind::Retry | ErrorKind::Unavailable | ErrorKind::Limit => {
            ErrorCode::KafkaStorageError
        }
        ErrorKind::UnknownOutcome => ErrorCode::RequestTimedOut,
        ErrorKind::Fenced => ErrorCode::NotLeaderOrFollower,
        ErrorKind::Invalid => ErrorCode::InvalidRequest,
        ErrorKind::Corrupt | ErrorKind::Bug => ErrorCode::UnknownServerError,
    }
}

/// The code for a consumer group's refusal.
pub(crate) fn group_code(error: GroupError) -> ErrorCode {
    match error {
        GroupError::InvalidGroupId => ErrorCode::InvalidGroupId,
        GroupError::InvalidSessionTimeout => ErrorCode::InvalidSessionTimeout,
        GroupError::UnknownMemberId => ErrorCode::UnknownMemberId,
        GroupError::GroupMaxSizeReached => ErrorCode::GroupMaxSizeReached,
        GroupError::InconsistentGroupProtocol => ErrorCode::InconsistentGroupProtocol,
        GroupError::MemberIdRequired => ErrorCode::MemberIdRequired,
        GroupError::IllegalGeneration => ErrorCode::IllegalGeneration,
        GroupError::RebalanceInProgress => ErrorCode::RebalanceInProgress,
        GroupError::FencedInstanceId => ErrorCode::FencedInstanceId,
        GroupError::CoordinatorNotAvailable => ErrorCode::CoordinatorNotAvailable,
        GroupError::NotCoordinator => ErrorCode::NotCoordinator,
        GroupError::NonEmptyGroup => ErrorCode::NonEmptyGroup,
        GroupError::GroupIdNotFound => ErrorCode::GroupIdNotFound,
        GroupError::GroupSubscribedToTopic => ErrorCode::GroupSubscribedToTopic,
        GroupError::OffsetMetadataTooLarge => ErrorCode::OffsetMetadataTooLarge,
        GroupError::InvalidRequest => ErrorCode::InvalidRequest,
        GroupError::UnsupportedVersion => ErrorCode::UnsupportedVersion,
        GroupError::UnsupportedAssignor => ErrorCode::UnsupportedAssignor,
        GroupError::FencedMemberEpoch => ErrorCode::FencedMemberEpoch,
        GroupError::UnreleasedInstanceId => ErrorCode::UnreleasedInstanceId,
        GroupError::StaleMemberEpoch => ErrorCode::StaleMemberEpoch,
        GroupError::InvalidRegularExpression => ErrorCode::InvalidRegularExpression,
    }
}

/// The code of a group's answer that carries nothing else.
pub(crate) fn group_answer_code(answer: Result<(), GroupError>) -> ErrorCode {
    answer.map_or_else(group_code, |()| ErrorCode::None)
}

/// The code for a batch that the commit refused.
pub(crate) fn refusal_code(refusal: Refusal) -> ErrorCode {
    match refusal {
        Refusal::UnknownPartition => ErrorCode::UnknownTopicOrPartition,
        Refusal::StaleProducerEpoch => ErrorCode::InvalidProducerEpoch,
        // Kafka does not tell a forgotten duplicate from any other sequence out of order.
        Refusal::OutOfOrderSequence | Refusal::ForgottenDuplicate => {
            ErrorCode::OutOfOrderSequenceNumber
        }
        Refusal::InvalidTransactionState => ErrorCode::InvalidTxnState,
        Refusal::UnknownTransaction => ErrorCode::InvalidProducerIdMapping,
        // Kafka tells producers of the lower epoch, so that they can abort and go on.
        Refusal::FencedTransaction => ErrorCode::InvalidProducerEpoch,
        Refusal::NotInTransaction | Refusal::TransactionTooLarge => ErrorCode::TransactionAbortable,
        // Kafka's for what a coordinator does not allow just now: every client sends it again.
        Refusal::TooManyOpenTransactions => ErrorCode::NotEnoughReplicas,
    }
}

/// The code for a transactional id's refusal.
pub(crate) fn transaction_code(error: TransactionError) -> ErrorCode {
    match error {
        TransactionError::InvalidProducerIdMapping => ErrorCode::InvalidProducerIdMapping,
        TransactionError::ProducerFenced => ErrorCode::ProducerFenced,
        TransactionError::InvalidTxnState => ErrorCode::InvalidTxnState,
        TransactionError::TransactionAbortable => ErrorCode::TransactionAbortable,
    }
}

/// The code as versions know it that are older than PRODUCER_FENCED.
pub(crate) fn fenced_below(code: ErrorCode, is_older: bool) -> ErrorCode {
    match code {
        ErrorCode::ProducerFenced if is_older => ErrorCode::InvalidProducerEpoch,
        other => other,
    }
}

/// The code for a batch that Produce refuses before it gets near the log.
pub(crate) fn batch_code(error: &BatchError) -> ErrorCode {
    match error {
        BatchError::Truncated { .. }
        | BatchError::OldMagic(_)
        | BatchError::NotOneBatch(_)
        | BatchError::BaseOffset(_)
        | BatchError::RecordCount { .. }
        | BatchError::Record { .. }
        | BatchError::Control
        | BatchError::Sequence { .. } => ErrorCode::InvalidRecord,
        BatchError::LengthTooSmall(_) | BatchError::UnknownMagic(_) | BatchError::Crc { .. } => {
            ErrorCode::CorruptMessage
        }
        BatchError::TooLarge { .. } | BatchError::DecompressedTooLarge { .. } => {
            ErrorCode::MessageTooLarge
        }
        // Kafka fails inside and answers UNKNOWN_SERVER_ERROR; the neighbours' code says what to
        // do.
        BatchError::UnknownCodec(_) | BatchError::Decompress { .. } => ErrorCode::InvalidRecord,
        BatchError::ZstdNotAllowed => ErrorCode::UnsupportedCompressionType,
        BatchError::LogAppendTime => ErrorCode::InvalidTimestamp,
        BatchError::BadRecords(records) => {
            let is_timestamp = |fault| matches!(fault, RecordFault::Timestamp { .. });
            if records.iter().any(|record| is_timestamp(record.fault)) {
                ErrorCode::InvalidTimestamp
            } else {
                ErrorCode::InvalidRecord
            }
        }
    }
}
