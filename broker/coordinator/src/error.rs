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
}
