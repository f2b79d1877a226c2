//! Why a group refuses a request.

use thiserror::Error;

/// A refusal; each variant is the Kafka error code of the same name (its number in brackets).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Error)]
pub enum GroupError {
    /// The group id is empty (24).
    #[error("the group id is empty")]
    InvalidGroupId,
    /// The session timeout lies outside the configured range (26).
    #[error("the session timeout is outside the allowed range")]
    InvalidSessionTimeout,
    /// No such member: the client forgets its member id and joins again (25).
    #[error("the member is not known to the group")]
    UnknownMemberId,
    /// The group is full (81).
    #[error("the group has reached its largest size")]
    GroupMaxSizeReached,
    /// Another protocol type, or no protocol that every member supports (23).
    #[error("the protocols do not fit those of the group")]
    InconsistentGroupProtocol,
    /// Join again with the member id of this answer (79).
    #[error("join again with the member id that was assigned")]
    MemberIdRequired,
    /// The generation is not the current one (22).
    #[error("the generation is not the current one")]
    IllegalGeneration,
    /// The member must join again (27).
    #[error("the group is rebalancing")]
    RebalanceInProgress,
    /// Another process has taken over this group instance id (82).
    #[error("the group instance id belongs to another member now")]
    FencedInstanceId,
    /// The group has just been deleted; look for the coordinator again (15).
    #[error("the group is being deleted")]
    CoordinatorNotAvailable,
    /// This broker no longer runs the group; look for the coordinator again (16).
    #[error("this broker does not run the group")]
    NotCoordinator,
    /// The group has members (68).
    #[error("the group is not empty")]
    NonEmptyGroup,
    /// There is no such group (69).
    #[error("the group does not exist")]
    GroupIdNotFound,
    /// A member is subscribed to the topic (86).
    #[error("the group is subscribed to the topic")]
    GroupSubscribedToTopic,
    /// The metadata beside an offset is too long (12).
    #[error("the offset's metadata is too long")]
    OffsetMetadataTooLarge,
    /// The request contradicts itself, or lacks something (42).
    #[error("the request is invalid")]
    InvalidRequest,
    /// The version of the request does not fit the group's protocol (35).
    #[error("the request's version does not fit the group's protocol")]
    UnsupportedVersion,
    /// No such assignor (112).
    #[error("the assignor is not supported")]
    UnsupportedAssignor,
    /// The member gives up everything and joins again (110).
    #[error("the member epoch is not the one of the member")]
    FencedMemberEpoch,
    /// The instance id belongs to a member that has not left (111).
    #[error("the group instance id is in use")]
    UnreleasedInstanceId,
    /// The member epoch is not the current one: try again with it (113).
    #[error("the member epoch is stale")]
    StaleMemberEpoch,
    /// Not a regular expression in RE2 syntax (128).
    #[error("the regular expression is invalid")]
    InvalidRegularExpression,
}
