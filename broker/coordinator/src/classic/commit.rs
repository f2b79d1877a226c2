//! Whether an offset commit may be stored: who sends it, and in which state the group is.

use super::Group;
use super::live::Turn;
use super::message::CommitCheck;
use super::record::GroupState;
use crate::GroupError;

impl Group {
    pub(super) fn check_commit(
        &mut self,
        request: &CommitCheck,
        turn: &Turn,
    ) -> Result<(), GroupError> {
        self.check_committer(request)?;
        let is_in_rebalance = self.record.state == GroupState::CompletingRebalance;
        if is_in_rebalance && !request.transactional {
            return Err(GroupError::RebalanceInProgress);
        }
        if !request.transactional {
            self.renew_session(&request.member_id, turn);
        }
        if self.live.is_fresh {
            // Offsets make the group: it is listed from now on.
            self.live.is_dirty = true;
        }
        Ok(())
    }

    fn check_committer(&self, request: &CommitCheck) -> Result<(), GroupError> {
        let is_empty = match self.record.state {
            GroupState::Dead => return Err(GroupError::CoordinatorNotAvailable),
            state => state == GroupState::Empty,
        };
        if request.generation < 0 && is_empty {
            // An administrator, or a consumer that assigns its partitions itself.
            return Ok(());
        }
        let names_nobody =
            request.generation < 0 && request.member_id.is_empty() && request.instance_id.is_none();
        if names_nobody {
            // A transactional producer without group metadata (below version 3) is let in.
            return match request.transactional {
                true => Ok(()),
                false => Err(GroupError::UnknownMemberId),
            };
        }
        self.check_member(&request.member_id, request.instance_id.as_deref())?;
        match request.generation == self.record.generation {
            true => Ok(()),
            false => Err(GroupError::IllegalGeneration),
        }
    }
}
