//! What ConsumerGroupDescribe and ListGroups show.

use super::partitions::Partitions;
use super::{Assignor, ConsumerGroup, ConsumerState};

/// A group as ConsumerGroupDescribe shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerView {
    /// Its state.
    pub state: ConsumerState,
    /// The group epoch.
    pub epoch: i32,
    /// The epoch of the last target.
    pub assignment_epoch: i32,
    /// The assignor in use.
    pub assignor: Assignor,
    /// By member id.
    pub members: Vec<ConsumerMemberView>,
}

/// A member as ConsumerGroupDescribe shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerMemberView {
    /// The member.
    pub member_id: String,
    /// Set for static members.
    pub instance_id: Option<String>,
    /// The member's rack.
    pub rack_id: Option<String>,
    /// The member's epoch.
    pub epoch: i32,
    /// The client's name for itself.
    pub client_id: String,
    /// The client's address.
    pub client_host: String,
    /// Topics by name.
    pub topic_names: Vec<String>,
    /// Topics by expression; empty for none.
    pub topic_regex: String,
    /// What it has.
    pub assigned: Partitions,
    /// What it shall have.
    pub target: Partitions,
    /// Whether it uses the classic protocol.
    pub is_classic: bool,
}

impl ConsumerGroup {
    /// The group as ConsumerGroupDescribe shows it.
    pub fn describe(&self) -> ConsumerView {
        let members = self.record.members.iter().map(|(member_id, member)| ConsumerMemberView {
            member_id: member_id.clone(),
            instance_id: member.instance_id.clone(),
            rack_id: member.rack_id.clone(),
            epoch: member.epoch,
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            topic_names: member.topic_names.iter().cloned().collect(),
            topic_regex: member.topic_regex.clone().unwrap_or_default(),
            assigned: member.assigned.partitions(),
            target: member.target.clone(),
            is_classic: member.classic.is_some(),
        });
        ConsumerView {
            state: self.record.state(),
            epoch: self.record.epoch,
            assignment_epoch: self.record.assignment_epoch,
            assignor: self.preferred_assignor(),
            members: members.collect(),
        }
    }
}
