//! What a group's runner is asked to do.

use super::expiry::ExpiryRules;
use floe_coordinator::GroupError;
use floe_coordinator::classic::{CommitCheck, GroupView, ResponseToken};
use floe_coordinator::consumer::ConsumerView;
use floe_coordinator::group::{Event, Response};
use floe_env::Result as FloeResult;
use floe_metadata::groups::CommittedOffset;
use floe_metadata::transactions::{KnownTransaction, TransactionRow};
use kfs::TopicPartition;
use std::sync::Arc;
use tokio::sync::oneshot;

/// One thing to do, and where the answer goes. An answer that never comes means that the group's
/// runner has ended.
pub(super) enum Command {
    /// An event whose answer may be held.
    Apply {
        /// The token within the event.
        token: ResponseToken,
        /// The event.
        event: Event,
        /// Takes the answer.
        answer: oneshot::Sender<Response>,
    },
    /// An offset commit, all of it or nothing.
    Commit {
        /// What it says of its sender.
        check: CommitCheck,
        /// What to store; a partition occurs once at most.
        offsets: Vec<(TopicPartition, CommittedOffset)>,
        /// The transaction whose end they wait for.
        transaction: Option<Box<TransactionCommit>>,
        /// Takes the answer.
        answer: oneshot::Sender<Result<(), GroupError>>,
    },
    /// OffsetDelete.
    DeleteOffsets {
        /// Topics by name, with those of their partitions whose offsets shall go.
        topics: Vec<(String, Vec<TopicPartition>)>,
        /// Takes the answer.
        answer: oneshot::Sender<DeletedOffsets>,
    },
    /// DescribeGroups, ConsumerGroupDescribe.
    Describe {
        /// Takes the answer.
        answer: oneshot::Sender<Result<Described, GroupError>>,
    },
    /// The group's line in ListGroups.
    List {
        /// Which groups are wanted.
        filter: Arc<ListFilter>,
        /// Takes the answer.
        answer: oneshot::Sender<Listed>,
    },
    /// Deletes offsets that have expired, and the group if nothing is left of it.
    Expire {
        /// What expires.
        rules: ExpiryRules,
        /// Takes the answer.
        answer: oneshot::Sender<FloeResult<()>>,
    },
}

/// The transaction that offsets wait for.
pub(crate) struct TransactionCommit {
    /// As it was read.
    pub(crate) known: KnownTransaction,
    /// With the group among those that take part.
    pub(crate) row: TransactionRow,
}

/// A group as it is described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Described {
    /// There is no such group.
    Missing,
    /// One of the classic protocol.
    Classic(GroupView),
    /// One of the newer protocol.
    Consumer(ConsumerView),
}

/// A result per topic in the order asked, or one error for all.
pub(super) type DeletedOffsets = Result<Vec<Result<(), GroupError>>, GroupError>;

/// Which groups ListGroups wants; an empty list lets all pass.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListFilter {
    /// Names of states.
    pub(crate) states: Vec<String>,
    /// Names of types.
    pub(crate) types: Vec<String>,
}

/// What a runner says when groups are listed.
pub(super) enum Listed {
    /// It does not know the group: the store must be asked.
    Unknown,
    /// There is no such group, or it is not wanted.
    No,
    /// This.
    Yes(Summary),
}

/// A group's line in ListGroups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    /// The group.
    pub(crate) group_id: String,
    /// Empty for a group that no member ever joined.
    pub(crate) protocol_type: String,
    /// The name of its state.
    pub(crate) state: &'static str,
    /// The name of its type.
    pub(crate) group_type: &'static str,
}
