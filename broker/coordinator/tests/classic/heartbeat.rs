//! Heartbeat by state, its errors, and the end of sessions.

use floe_coordinator::GroupError;
use floe_coordinator::classic::GroupState;

use crate::bench::{Bench, assigning, join, leaver, sync};

#[test]
fn states() {
    let mut bench = Bench::new();
    let member = bench.new_id();
    assert_eq!(bench.beat(&member, 0), Err(GroupError::UnknownMemberId), "pending");
    bench.join(join(&member)).expect("alone");
    assert_eq!(bench.beat(&member, 1), Ok(()), "completing");
    bench.sync(assigning(sync(&member, 1), &[(&member, "A")])).expect("synced");
    assert_eq!(bench.beat(&member, 1), Ok(()), "stable");
    let new = bench.new_id();
    bench.send_join(join(&new));
    assert_eq!(bench.beat(&member, 1), Err(GroupError::RebalanceInProgress), "preparing");
    assert_eq!(bench.beat(&member, 0), Err(GroupError::IllegalGeneration), "preparing, old");
}

#[test]
fn empty_and_dead() {
    let mut bench = Bench::new();
    let member = bench.stable();
    bench.leave(5, vec![leaver(&member, None)]);
    assert_eq!(bench.beat(&member, 1), Err(GroupError::UnknownMemberId));
    bench.delete().expect("empty");
    assert_eq!(bench.beat(&member, 1), Err(GroupError::CoordinatorNotAvailable));
}

#[test]
fn errors() {
    let mut bench = Bench::new();
    let member = bench.stable();
    let cases = [
        ("nobody", 1, Err(GroupError::UnknownMemberId)),
        ("", 1, Err(GroupError::UnknownMemberId)),
        (&member, 0, Err(GroupError::IllegalGeneration)),
        (&member, 2, Err(GroupError::IllegalGeneration)),
        (&member, -1, Err(GroupError::IllegalGeneration)),
        (&member, 1, Ok(())),
    ];
    for (member_id, generation, answer) in cases {
        assert_eq!(bench.beat(member_id, generation), answer, "{member_id} {generation}");
    }
}

#[test]
fn session_expiry_empties_the_group() {
    let mut bench = Bench::new();
    let member = bench.stable();
    bench.advance(9_999);
    assert_eq!(bench.state(), GroupState::Stable);
    bench.advance(1);
    assert_eq!((bench.state(), bench.group.generation()), (GroupState::Empty, 2));
    assert_eq!(bench.beat(&member, 1), Err(GroupError::UnknownMemberId));
    assert_eq!(bench.sync(sync(&member, 1)), Err(GroupError::UnknownMemberId));
}

#[test]
fn session_expiry_of_one_starts_a_rebalance() {
    let mut bench = Bench::new();
    let (leader, follower) = bench.two_stable();
    bench.advance(5_000);
    assert_eq!(bench.beat(&leader, 2), Ok(()));
    bench.advance(5_000);
    assert_eq!(bench.beat(&leader, 2), Err(GroupError::RebalanceInProgress));
    assert_eq!(bench.beat(&follower, 2), Err(GroupError::UnknownMemberId));
    let joined = bench.join(join(&leader)).expect("alone");
    assert_eq!((joined.generation, joined.members.len()), (3, 1));
}

#[test]
fn session_expiry_while_preparing_ends_the_wait() {
    let mut bench = Bench::new();
    let (leader, follower) = bench.two_stable();
    let held = bench.send_join(join(&leader));
    assert!(bench.is_held(held));
    bench.advance(10_000);
    assert_eq!(bench.join_answer(held).expect("complete").members.len(), 1);
    assert_eq!(bench.beat(&follower, 3), Err(GroupError::UnknownMemberId));
}

#[test]
fn heartbeats_store_nothing() {
    let mut bench = Bench::new();
    let member = bench.stable();
    let persists = bench.persist_count;
    for _ in 0..100 {
        bench.advance(3_000);
        assert_eq!(bench.beat(&member, 1), Ok(()));
    }
    assert_eq!(bench.persist_count, persists);
}
