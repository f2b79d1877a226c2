//! The rows of the OffsetCommit table that depend on the group.

use floe_coordinator::GroupError;
use floe_coordinator::classic::{CommitCheck, GroupState};

use crate::bench::{Bench, commit, join, leaver, static_join, sync, with};

#[test]
fn empty_group_takes_a_negative_generation() {
    let mut bench = Bench::new();
    assert_eq!(bench.commit(commit("", -1)), Ok(()), "makes the group");
    assert_eq!(bench.persist_count, 1);
    assert_eq!(bench.commit(commit("", -1)), Ok(()));
    assert_eq!(bench.persist_count, 1, "once");
    assert_eq!(bench.commit(commit("nobody", -1)), Ok(()));
    let view = bench.group.describe();
    assert_eq!((view.state, view.protocol_type.as_str()), (GroupState::Empty, ""));
}

#[test]
fn empty_group_refuses_a_left_member() {
    let mut bench = Bench::new();
    let left = bench.stable();
    bench.leave(5, vec![leaver(&left, None)]);
    assert_eq!(bench.commit(commit(&left, 1)), Err(GroupError::UnknownMemberId));
    assert_eq!(bench.commit(commit("", -1)), Ok(()));
}

#[test]
fn active_group() {
    let mut bench = Bench::new();
    let member = bench.stable();
    let static_commit = CommitCheck { instance_id: Some("i".to_owned()), ..commit(&member, 1) };
    let cases = [
        ("no member, generation -1", commit("", -1), Err(GroupError::UnknownMemberId)),
        ("unknown member", commit("nobody", 1), Err(GroupError::UnknownMemberId)),
        ("unknown member, -1", commit("nobody", -1), Err(GroupError::UnknownMemberId)),
        ("old generation", commit(&member, 0), Err(GroupError::IllegalGeneration)),
        ("future generation", commit(&member, 2), Err(GroupError::IllegalGeneration)),
        ("member, generation -1", commit(&member, -1), Err(GroupError::IllegalGeneration)),
        ("member", commit(&member, 1), Ok(())),
        ("unknown instance id", static_commit, Err(GroupError::UnknownMemberId)),
    ];
    for (name, request, answer) in cases {
        assert_eq!(bench.commit(request), answer, "{name}");
    }
}

#[test]
fn fenced_instance() {
    let mut bench = Bench::new();
    let old = bench.join(static_join("", "i")).expect("alone").member_id;
    let new = bench.join(static_join("", "i")).expect("replaced").member_id;
    let of = |id: &str, generation| CommitCheck {
        instance_id: Some("i".to_owned()),
        ..commit(id, generation)
    };
    assert_eq!(bench.commit(of(&old, 2)), Err(GroupError::FencedInstanceId));
    assert_eq!(bench.commit(of(&new, 1)), Err(GroupError::IllegalGeneration));
    assert_eq!(bench.commit(of(&new, 2)), Err(GroupError::RebalanceInProgress));
    bench.sync(sync(&new, 2)).expect("synced");
    assert_eq!(bench.commit(of(&new, 2)), Ok(()));
}

#[test]
fn while_rebalancing() {
    let mut bench = Bench::new();
    let (leader, follower) = bench.two();
    let rebalancing = Err(GroupError::RebalanceInProgress);
    assert_eq!(bench.commit(commit(&leader, 2)), rebalancing, "completing");
    let transactional = CommitCheck { transactional: true, ..commit(&leader, 2) };
    assert_eq!(bench.commit(transactional), Ok(()), "a transaction's is let in");
    bench.sync(sync(&leader, 2)).expect("synced");
    bench.send_join(with(join(&follower), &[("range", "changed")]));
    assert_eq!(bench.state(), GroupState::PreparingRebalance);
    assert_eq!(bench.commit(commit(&leader, 2)), Ok(()), "preparing");
}

#[test]
fn transactional_without_group_metadata_is_let_in() {
    let mut bench = Bench::new();
    bench.stable();
    let of = |id: &str, generation| CommitCheck { transactional: true, ..commit(id, generation) };
    assert_eq!(bench.commit(of("", -1)), Ok(()));
    assert_eq!(bench.commit(of("nobody", 1)), Err(GroupError::UnknownMemberId));
    assert_eq!(bench.commit(of("", 1)), Err(GroupError::UnknownMemberId));
}

#[test]
fn a_commit_counts_as_a_heartbeat() {
    let mut bench = Bench::new();
    let member = bench.stable();
    for _ in 0..4 {
        bench.advance(6_000);
        assert_eq!(bench.commit(commit(&member, 1)), Ok(()));
    }
    assert_eq!(bench.state(), GroupState::Stable);
}

#[test]
fn dead_group() {
    let mut bench = Bench::new();
    bench.delete().expect("empty");
    assert_eq!(bench.commit(commit("", -1)), Err(GroupError::CoordinatorNotAvailable));
}
