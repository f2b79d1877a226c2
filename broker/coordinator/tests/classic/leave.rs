//! LeaveGroup in both forms, and DeleteGroups.

use floe_coordinator::GroupError;
use floe_coordinator::classic::{GroupConfig, GroupState, JoinRequest};

use crate::bench::{Bench, join, leaver, static_join};

fn errors(members: &floe_coordinator::classic::LeaveResponse) -> Vec<Option<GroupError>> {
    members.members.iter().map(|member| member.error).collect()
}

#[test]
fn only_member_below_v3() {
    for version in 0..3 {
        let mut bench = Bench::new();
        let member = bench.stable();
        assert_eq!(bench.leave(version, vec![leaver(&member, None)]).error, None);
        let again = bench.leave(version, vec![leaver(&member, None)]);
        assert_eq!(again.error, Some(GroupError::UnknownMemberId));
        assert_eq!(bench.state(), GroupState::Empty);
        let joined = bench.join(JoinRequest { version: 3, ..join("") }).expect("alone");
        assert_eq!(joined.generation, 3, "one for becoming empty, one for the join");
    }
}

#[test]
fn only_member_from_v3() {
    for version in 3..6 {
        let mut bench = Bench::new();
        let member = bench.stable();
        let answer = bench.leave(version, vec![leaver(&member, None)]);
        assert_eq!((answer.error, errors(&answer)), (None, vec![None]));
        assert_eq!(answer.members[0].member_id, member);
        let again = bench.leave(version, vec![leaver(&member, None)]);
        assert_eq!((again.error, errors(&again)), (None, vec![Some(GroupError::UnknownMemberId)]));
        let view = bench.group.describe();
        assert_eq!((view.state, view.protocol_type.as_str()), (GroupState::Empty, "consumer"));
        assert_eq!((view.protocol_data.as_str(), view.members.len()), ("", 0));
    }
}

#[test]
fn batch_unknown_and_known() {
    let mut bench = Bench::new();
    let (leader, follower) = bench.two_stable();
    let leavers = [leaver("nobody", None), leaver(&follower, None), leaver(&leader, None)];
    let answer = bench.leave(5, leavers.to_vec());
    assert_eq!(errors(&answer), [Some(GroupError::UnknownMemberId), None, None]);
    assert_eq!((bench.state(), bench.group.generation()), (GroupState::Empty, 3));
}

#[test]
fn one_of_two_rebalances() {
    let mut bench = Bench::new();
    let (leader, follower) = bench.two_stable();
    bench.leave(5, vec![leaver(&follower, None)]);
    assert_eq!(bench.beat(&leader, 2), Err(GroupError::RebalanceInProgress));
    let joined = bench.join(join(&leader)).expect("alone");
    assert_eq!((joined.generation, joined.members.len()), (3, 1));
}

#[test]
fn leader_leaves_another_leads() {
    let mut bench = Bench::new();
    let (leader, follower) = bench.two_stable();
    bench.leave(5, vec![leaver(&leader, None)]);
    let joined = bench.join(join(&follower)).expect("alone");
    assert_eq!((joined.generation, joined.leader.as_str()), (3, &*follower));
    assert_eq!(joined.members.len(), 1);
}

#[test]
fn leaving_while_preparing_ends_the_wait() {
    let mut bench = Bench::new();
    let (leader, follower) = bench.two_stable();
    let held = bench.send_join(join(&leader));
    bench.leave(5, vec![leaver(&follower, None)]);
    assert_eq!(bench.join_answer(held).expect("complete").members.len(), 1);
}

#[test]
fn leaving_with_a_held_join_answers_it() {
    let mut bench = Bench::with_config(GroupConfig::default());
    let member = bench.new_id();
    let held = bench.send_join(join(&member));
    bench.leave(5, vec![leaver(&member, None)]);
    let refusal = bench.join_answer(held).expect_err("it has left");
    assert_eq!((refusal.error, refusal.member_id.as_str()), (GroupError::UnknownMemberId, ""));
    bench.advance(3_000);
    assert_eq!((bench.state(), bench.group.generation()), (GroupState::Empty, 1));
}

#[test]
fn pending_member() {
    let mut bench = Bench::new();
    let pending = bench.new_id();
    let answer = bench.leave(5, vec![leaver(&pending, None)]);
    assert_eq!(errors(&answer), [None]);
    assert_eq!(bench.join_error(join(&pending)), GroupError::UnknownMemberId);
}

#[test]
fn the_last_pending_member_ends_the_wait() {
    let mut bench = Bench::new();
    let leader = bench.stable();
    let pending = bench.new_id();
    let held = bench.send_join(join(&leader));
    bench.leave(5, vec![leaver(&pending, None)]);
    assert_eq!(bench.join_answer(held).expect("complete").generation, 2);
}

#[test]
fn no_members_and_dynamic_id_with_an_instance_id() {
    let mut bench = Bench::new();
    let member = bench.stable();
    let answer = bench.leave(5, Vec::new());
    assert_eq!((answer.error, answer.members.len()), (None, 0));
    let answer = bench.leave(5, vec![leaver(&member, Some("i"))]);
    assert_eq!(errors(&answer), [Some(GroupError::UnknownMemberId)]);
    assert_eq!(bench.state(), GroupState::Stable);
}

#[test]
fn static_leave_by_instance_id() {
    let mut bench = Bench::new();
    bench.join(static_join("", "i")).expect("alone");
    let cases = [
        (leaver("", Some("other")), Some(GroupError::UnknownMemberId)),
        (leaver("", None), Some(GroupError::UnknownMemberId)),
        (leaver("nobody", Some("i")), Some(GroupError::FencedInstanceId)),
        (leaver("", Some("i")), None),
    ];
    for (member, error) in cases {
        let answer = bench.leave(5, vec![member.clone()]);
        assert_eq!(errors(&answer), [error], "{member:?}");
        assert_eq!(answer.members[0].member_id, member.member_id);
        assert_eq!(answer.members[0].instance_id, member.instance_id);
    }
    assert_eq!(bench.state(), GroupState::Empty);
}

#[test]
fn a_leave_is_stored_before_it_is_answered() {
    let mut bench = Bench::new();
    let (leader, follower) = bench.two_stable();
    bench.leave(5, vec![leaver(&follower, None)]);
    bench.restart();
    assert_eq!(bench.beat(&follower, 2), Err(GroupError::UnknownMemberId));
    assert_eq!(bench.beat(&leader, 2), Err(GroupError::RebalanceInProgress));
}

#[test]
fn delete_by_state() {
    let mut bench = Bench::new();
    let member = bench.new_id();
    bench.join(join(&member)).expect("alone");
    assert_eq!(bench.delete(), Err(GroupError::NonEmptyGroup), "completing");
    bench.leave(5, vec![leaver(&member, None)]);
    let pending = bench.new_id();
    assert!(!bench.group.is_empty(), "somebody is about to join");
    bench.leave(5, vec![leaver(&pending, None)]);
    assert!(bench.group.is_empty());
    assert_eq!(bench.delete(), Ok(()));
    assert_eq!(bench.state(), GroupState::Dead);
    assert_eq!(bench.delete(), Err(GroupError::GroupIdNotFound));
    let answer = bench.leave(5, vec![leaver(&member, None)]);
    assert_eq!(answer.error, Some(GroupError::CoordinatorNotAvailable));

    let mut bench = Bench::new();
    let (_, follower) = bench.two_stable();
    assert_eq!(bench.delete(), Err(GroupError::NonEmptyGroup), "stable");
    bench.leave(5, vec![leaver(&follower, None)]);
    assert_eq!(bench.delete(), Err(GroupError::NonEmptyGroup), "preparing");
}
