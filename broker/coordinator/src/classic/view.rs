//! What DescribeGroups and ListGroups show.

use bytes::Bytes;

use super::Group;
use super::record::GroupState;
use crate::GroupError;

/// From this version on, DescribeGroups says that a group is missing.
const GROUP_ID_NOT_FOUND_VERSION_MIN: i16 = 6;

/// A group as DescribeGroups shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupView {
    /// Its state.
    pub state: GroupState,
    /// Empty for a group that no member ever joined.
    pub protocol_type: String,
    /// The chosen protocol; empty unless Stable.
    pub protocol_data: String,
    /// By member id.
    pub members: Vec<MemberView>,
}

/// A member as DescribeGroups shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberView {
    /// The member.
    pub member_id: String,
    /// Set for static members.
    pub instance_id: Option<String>,
    /// The client's name for itself.
    pub client_id: String,
    /// The client's address.
    pub client_host: String,
    /// For the chosen protocol; empty unless Stable.
    pub metadata: Bytes,
    /// The last assignment.
    pub assignment: Bytes,
}

/// What DescribeGroups says of a group that does not exist: an error from version 6 on, and a
/// group in state Dead.
pub fn describe_missing_group(version: i16) -> (Option<GroupError>, GroupView) {
    let error = (version >= GROUP_ID_NOT_FOUND_VERSION_MIN).then_some(GroupError::GroupIdNotFound);
    let view = GroupView {
        state: GroupState::Dead,
        protocol_type: String::new(),
        protocol_data: String::new(),
        members: Vec::new(),
    };
    (error, view)
}

impl Group {
    /// The group as DescribeGroups shows it.
    pub fn describe(&self) -> GroupView {
        let is_stable = self.record.state == GroupState::Stable;
        let protocol = self.record.protocol_name.clone().filter(|_| is_stable);
        let protocol_data = protocol.unwrap_or_default();
        let members = self.record.members.iter().map(|(member_id, member)| MemberView {
            member_id: member_id.clone(),
            instance_id: member.instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            metadata: match is_stable {
                true => member.metadata(&protocol_data).cloned().unwrap_or_default(),
                false => Bytes::new(),
            },
            assignment: member.assignment.clone(),
        });
        GroupView {
            state: self.record.state,
            protocol_type: self.protocol_type().to_owned(),
            members: members.collect(),
            protocol_data,
        }
    }

    /// The protocol type as ListGroups shows it; empty for a group that no member ever joined.
    pub fn protocol_type(&self) -> &str {
        self.record.protocol_type.as_deref().unwrap_or_default()
    }
}
