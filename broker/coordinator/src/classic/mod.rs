//! Classic consumer groups: the protocol of JoinGroup, SyncGroup, Heartbeat and LeaveGroup.
//!
//! Vocabulary. A *member* is known by its member id; a *static* member also has an instance id,
//! under which a restarted process takes over its place. A *generation* is one agreement on who is
//! in the group; a *rebalance* makes the next one: members join (PreparingRebalance), the leader
//! computes the assignment (CompletingRebalance), all fetch it (Stable). A *pending id* was handed
//! out with MEMBER_ID_REQUIRED and has not joined yet. An answer is *held* until the rebalance
//! allows it, under the [`ResponseToken`] of its request.
//!
//! Contract. [`Group::apply`] takes an [`Event`] and the time, and returns [`Effect`]s to be done
//! in order: store [`Group::record`] at [`Effect::Persist`], then send the answers that follow.
//! Every token is answered exactly once. Call it with [`Event::Tick`] at
//! [`Group::next_deadline_ms`]. Where a group is not stored, ask [`answer_for_missing_group`].
//!
//! Durable and volatile. The [`GroupRecord`] holds state, generation, protocol, members, leader
//! and assignments; held answers, pending ids and deadlines are volatile. [`Group::load`] gives
//! every member a new session, so a Stable group goes on without a rebalance; one that was
//! rebalancing waits for its members to join or sync again. While a group prepares a rebalance,
//! changes are stored only with an answer that grants something (a leave): a join that was held and
//! lost is sent again by its client.

mod commit;
mod group;
mod heartbeat;
mod join;
mod leave;
mod live;
mod members;
mod message;
mod missing;
mod moved;
mod rebalance;
mod record;
mod sync;
mod view;

pub use group::{Group, GroupConfig};
pub(crate) use join::{check_request as check_join, hands_out_id};
pub use message::{
    CommitCheck, Effect, Event, HeartbeatRequest, JoinRefusal, JoinRequest, Joined, JoinedMember,
    LeaveRequest, LeaveResponse, Leaver, LeftMember, Response, ResponseToken, SyncRequest, Synced,
};
pub use missing::answer_for_missing_group;
pub(crate) use moved::{MovedGroup, MovedMember};
pub use record::{GroupRecord, GroupState, Protocol, RecordError};
pub(crate) use sync::check_request as check_sync;
pub use view::{GroupView, MemberView, describe_missing_group};
