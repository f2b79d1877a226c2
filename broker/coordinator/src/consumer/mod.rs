//! Consumer groups of the newer protocol (KIP-848): ConsumerGroupHeartbeat, and nothing else.
//!
//! Vocabulary. The *group epoch* counts what asks for a new assignment: members, subscriptions,
//! topics. The *target* says who shall have which partition; it is computed here, by an *assignor*,
//! and the *assignment epoch* is the group epoch that it was computed for. A member moves towards
//! the target in its own heartbeats (*reconciliation*): it gives up what is not its own any more
//! (`Unrevoked`), then takes the assignment epoch as its *member epoch* with every partition of its
//! target that nobody else holds, and waits for the rest (`Unreleased`).
//!
//! Contract. [`ConsumerGroup`] answers every request at once. What changed is told by
//! [`ConsumerGroup::take_dirty`]: then [`ConsumerGroup::record`] must be stored before the answer
//! is sent. At [`ConsumerGroup::next_deadline_ms`] call [`ConsumerGroup::tick`]. No partition is
//! ever held by two members: it is assigned only once nobody has it.
//!
//! Durable and volatile. The [`ConsumerRecord`] holds epochs, members, what they hold and their
//! targets. Deadlines and what regular expressions match are volatile: a loaded group gives each
//! member a new session and goes on where it stood. A heartbeat that changes nothing stores
//! nothing.
//!
//! Members of the classic protocol may be in the group too ([`classic_members`]): their joins are
//! heartbeats in other words, and their generation is their member epoch. [`migrate`] turns a whole
//! group from one protocol into the other.

mod assign;
mod classic_members;
mod embedded;
mod epochs;
mod group;
mod heartbeat;
mod live;
mod members;
mod message;
mod migrate;
mod offsets;
mod partitions;
mod pattern;
mod re2;
mod reconcile;
mod record;
mod topics;
mod view;

pub use assign::Assignor;
pub use group::{ConsumerConfig, ConsumerGroup, MigrationPolicy};
pub use heartbeat::check_request;
pub use message::{Heartbeat, HeartbeatRequest, Refusal};
pub use partitions::Partitions;
pub use pattern::TopicPattern;
pub(crate) use record::RECORD_FORMAT;
pub use record::{ConsumerRecord, ConsumerState, MemberState};
pub use topics::TopicDirectory;
pub use view::{ConsumerMemberView, ConsumerView};
