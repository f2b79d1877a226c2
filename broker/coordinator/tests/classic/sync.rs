//! SyncGroup: errors, the leader's assignment, who waits, and who is late.

use floe_coordinator::GroupError;
use floe_coordinator::classic::{GroupState, JoinRequest, SyncRequest};

use crate::bench::{Bench, REBALANCE_MS, assigning, join, leaver, sync, with};

#[test]
fn errors() {
    let mut bench = Bench::new();
    let member = bench.stable();
    let connect = SyncRequest { protocol_type: Some("connect".to_owned()), ..sync(&member, 1) };
    let other = SyncRequest { protocol_name: Some("other".to_owned()), ..sync(&member, 1) };
    let none = SyncRequest { protocol_type: None, protocol_name: None, ..sync(&member, 1) };
    let cases = [
        ("unknown member", sync("nobody", 1), GroupError::UnknownMemberId),
        ("old generation", sync(&member, 0), GroupError::IllegalGeneration),
        ("future generation", sync(&member, 2), GroupError::IllegalGeneration),
        ("protocol type", connect, GroupError::InconsistentGroupProtocol),
        ("protocol name", other, GroupError::InconsistentGroupProtocol),
        ("no protocol at v5", none.clone(), GroupError::InconsistentGroupProtocol),
    ];
    for (name, request, error) in cases {
        assert_eq!(bench.sync(request), Err(error), "{name}");
    }
    let v4 = bench.sync(SyncRequest { version: 4, ..none }).expect("no protocol at v4");
    assert_eq!(&v4.assignment[..], b"A");
    assert_eq!(bench.beat(&member, 1), Ok(()), "still stable");
}

#[test]
fn preparing_is_rebalance_in_progress() {
    let mut bench = Bench::new();
    let (leader, follower) = bench.two_stable();
    bench.send_join(with(join(&follower), &[("range", "changed")]));
    let request = assigning(sync(&leader, 2), &[(&leader, "A")]);
    assert_eq!(bench.sync(request), Err(GroupError::RebalanceInProgress));
}

#[test]
fn empty_and_dead() {
    let mut bench = Bench::new();
    let member = bench.stable();
    bench.leave(5, vec![leaver(&member, None)]);
    assert_eq!(bench.sync(sync(&member, 1)), Err(GroupError::UnknownMemberId));
    assert_eq!(bench.sync(sync(&member, 2)), Err(GroupError::UnknownMemberId));
    bench.delete().expect("empty");
    assert_eq!(bench.sync(sync(&member, 2)), Err(GroupError::CoordinatorNotAvailable));
}

#[test]
fn completing_follower_waits_for_the_leader() {
    let mut bench = Bench::new();
    let (leader, follower) = bench.two();
    let held = bench.send_sync(sync(&follower, 2));
    assert!(bench.is_held(held));
    let request = assigning(sync(&leader, 2), &[(&leader, "A"), (&follower, "B")]);
    let synced = bench.sync(request).expect("the leader's");
    assert_eq!((&synced.assignment[..], synced.protocol_name.as_str()), (&b"A"[..], "range"));
    assert_eq!(synced.protocol_type, "consumer");
    assert_eq!(&bench.sync_answer(held).expect("the follower's").assignment[..], b"B");
    assert_eq!(bench.state(), GroupState::Stable);
}

#[test]
fn completing_a_second_sync_of_a_member_ends_its_first() {
    let mut bench = Bench::new();
    let (leader, follower) = bench.two();
    let lost = bench.send_sync(sync(&follower, 2));
    let held = bench.send_sync(sync(&follower, 2));
    assert_eq!(bench.sync_answer(lost), Err(GroupError::RebalanceInProgress));
    bench.sync(assigning(sync(&leader, 2), &[(&follower, "B")])).expect("synced");
    assert_eq!(&bench.sync_answer(held).expect("synced").assignment[..], b"B");
}

#[test]
fn stable_returns_the_assignment() {
    let mut bench = Bench::new();
    let (_, follower) = bench.two_stable();
    let request = assigning(sync(&follower, 2), &[(&follower, "Z")]);
    assert_eq!(&bench.sync(request).expect("again").assignment[..], b"B", "its own is ignored");
}

#[test]
fn members_missing_in_the_assignment_get_nothing() {
    let mut bench = Bench::new();
    let (leader, follower) = bench.two();
    let request = assigning(sync(&leader, 2), &[(&leader, "A"), ("stranger", "S")]);
    assert_eq!(&bench.sync(request).expect("synced").assignment[..], b"A");
    assert_eq!(&bench.sync(sync(&follower, 2)).expect("synced").assignment[..], b"");
    assert_eq!(bench.group.describe().members.len(), 2);
}

#[test]
fn a_rebalance_ends_held_syncs() {
    let mut bench = Bench::new();
    let (leader, follower) = bench.two();
    let held = bench.send_sync(sync(&follower, 2));
    bench.send_join(with(join(&leader), &[("range", "changed")]));
    assert_eq!(bench.sync_answer(held), Err(GroupError::RebalanceInProgress));
    let view = bench.group.describe();
    let old = view.members.iter().filter(|member| !member.assignment.is_empty());
    assert_eq!(old.count(), 1, "a cooperative member would go on with what it had before");
    assert_eq!(bench.join(join(&follower)).expect("complete").generation, 3);
}

#[test]
fn a_removed_member_that_waits_is_unknown() {
    let mut bench = Bench::new();
    let (_, follower) = bench.two();
    let held = bench.send_sync(sync(&follower, 2));
    bench.leave(5, vec![leaver(&follower, None)]);
    assert_eq!(bench.sync_answer(held), Err(GroupError::UnknownMemberId));
}

#[test]
fn absent_members_are_removed_after_the_rebalance_timeout() {
    let mut bench = Bench::new();
    let quick = JoinRequest { version: 3, rebalance_timeout_ms: 700, ..join("") };
    let member = bench.join(quick).expect("alone").member_id;
    bench.advance(699);
    assert_eq!(bench.state(), GroupState::CompletingRebalance);
    bench.advance(1);
    assert_eq!((bench.state(), bench.group.generation()), (GroupState::Empty, 2));
    assert_eq!(bench.sync(sync(&member, 1)), Err(GroupError::UnknownMemberId));
}

#[test]
fn a_member_that_never_syncs_costs_the_others_a_rebalance_and_goes() {
    for leader_syncs in [true, false] {
        let mut bench = Bench::new();
        let (leader, follower) = bench.two();
        let (present, absent) = if leader_syncs { (leader, follower) } else { (follower, leader) };
        let synced = bench.send_sync(assigning(sync(&present, 2), &[(&present, "A")]));
        for _ in 0..REBALANCE_MS / 5_000 {
            assert_eq!(bench.beat(&present, 2), Ok(()), "leader syncs: {leader_syncs}");
            assert_eq!(bench.beat(&absent, 2), Ok(()));
            bench.advance(5_000);
        }
        let expected = if leader_syncs { None } else { Some(GroupError::RebalanceInProgress) };
        assert_eq!(bench.sync_answer(synced).err(), expected);
        assert_eq!(bench.beat(&present, 2), Err(GroupError::RebalanceInProgress));
        assert_eq!(bench.beat(&absent, 2), Err(GroupError::UnknownMemberId));
        assert_eq!(bench.join(join(&present)).expect("alone").leader, present);
    }
}

#[test]
fn once_all_have_synced_the_timeout_is_off() {
    let mut bench = Bench::new();
    let (leader, follower) = bench.two_stable();
    for _ in 0..10 {
        bench.advance(5_000);
        assert_eq!(bench.beat(&leader, 2), Ok(()));
        assert_eq!(bench.beat(&follower, 2), Ok(()));
    }
}

#[test]
fn a_member_that_waits_for_the_leader_does_not_expire() {
    let mut bench = Bench::new();
    let (leader, follower) = bench.two();
    let held = bench.send_sync(sync(&follower, 2));
    for _ in 0..3 {
        bench.advance(5_000);
        assert_eq!(bench.beat(&leader, 2), Ok(()));
    }
    assert!(bench.is_held(held), "15,000 ms with a session of 10,000 ms");
    bench.sync(assigning(sync(&leader, 2), &[(&follower, "B")])).expect("synced");
    bench.sync_answer(held).expect("synced");
    bench.advance(9_999);
    assert_eq!(bench.beat(&follower, 2), Ok(()), "a new session began with the answer");
}

#[test]
fn the_assignment_is_stored_before_it_is_answered() {
    let mut bench = Bench::new();
    let (leader, _) = bench.two();
    let persists = bench.persist_count;
    bench.sync(assigning(sync(&leader, 2), &[(&leader, "A")])).expect("synced");
    assert_eq!(bench.persist_count, persists + 1);
    bench.restart();
    assert_eq!(&bench.sync(sync(&leader, 2)).expect("stored").assignment[..], b"A");
}
