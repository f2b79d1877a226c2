//! Static members: replacement in each state, and fencing at each API.

use floe_coordinator::GroupError;
use floe_coordinator::classic::{CommitCheck, GroupState, JoinRequest, SyncRequest};
use uuid::Uuid;

use crate::bench::{Bench, REBALANCE_MS, assigning, commit, join, leaver, static_join, sync, with};

/// A static member `i`, stable alone in generation 1 with the assignment `A`.
fn stable_static(bench: &mut Bench, version: i16) -> String {
    let request = JoinRequest { version, ..static_join("", "i") };
    let member = bench.join(request).expect("needs no member id").member_id;
    let request = SyncRequest { instance_id: Some("i".to_owned()), ..sync(&member, 1) };
    bench.sync(assigning(request, &[(&member, "A")])).expect("synced");
    member
}

/// A stable group of generation 2: a leader, whose id it gives, and the static
/// member "i" with the assignment `B`.
fn with_static_follower(bench: &mut Bench) -> String {
    let leader = bench.stable();
    let held = bench.send_join(static_join("", "i"));
    bench.join(join(&leader)).expect("complete");
    let follower = bench.join_answer(held).expect("complete").member_id;
    bench.sync(assigning(sync(&leader, 2), &[(&follower, "B")])).expect("synced");
    leader
}

#[test]
fn join_needs_no_member_id_and_ids_begin_with_the_instance_id() {
    for instance_id in ["i", "", "a b"] {
        let mut bench = Bench::new();
        let request = JoinRequest { version: 5, ..static_join("", instance_id) };
        let joined = bench.join(request).expect("alone");
        assert_eq!(joined.member_id, format!("{instance_id}-{}", Uuid::from_u128(1)));
        assert_eq!(joined.members[0].instance_id.as_deref(), Some(instance_id));
    }
}

#[test]
fn leader_replaced_in_stable() {
    for version in [8, 9] {
        let mut bench = Bench::new();
        let old = stable_static(&mut bench, version);
        let persists = bench.persist_count;
        let joined = bench.join(JoinRequest { version, ..static_join("", "i") }).expect("new");
        assert_eq!(bench.persist_count, persists + 1);
        let new = joined.member_id.clone();
        assert_ne!(new, old);
        assert_eq!((joined.generation, bench.state()), (1, GroupState::Stable));
        let skips = version == 9;
        assert_eq!(joined.skip_assignment, skips);
        assert_eq!(joined.members.len(), usize::from(skips));
        assert_eq!(joined.leader, if skips { new.clone() } else { old.clone() });
        let request = SyncRequest { instance_id: Some("i".to_owned()), ..sync(&new, 1) };
        assert_eq!(&bench.sync(request).expect("stored").assignment[..], b"A");
    }
}

#[test]
fn the_old_id_is_fenced_everywhere() {
    let mut bench = Bench::new();
    let old = stable_static(&mut bench, 9);
    bench.join(static_join("", "i")).expect("new");
    let fenced = GroupError::FencedInstanceId;
    assert_eq!(bench.beat_as(&old, Some("i"), 1), Err(fenced));
    let instance_id = Some("i".to_owned());
    let request = SyncRequest { instance_id: instance_id.clone(), ..sync(&old, 1) };
    assert_eq!(bench.sync(request), Err(fenced));
    let refusal = bench.join(static_join(&old, "i")).expect_err("fenced");
    assert_eq!((refusal.error, &refusal.member_id), (fenced, &old));
    assert_eq!(bench.commit(CommitCheck { instance_id, ..commit(&old, 1) }), Err(fenced));
    let answer = bench.leave(5, vec![leaver(&old, Some("i"))]);
    assert_eq!((answer.error, answer.members[0].error), (None, Some(fenced)));
    assert_eq!(bench.beat(&old, 1), Err(GroupError::UnknownMemberId), "without instance id");
}

#[test]
fn wrong_instance_id() {
    let mut bench = Bench::new();
    let member = bench.join(static_join("", "i")).expect("alone").member_id;
    let unknown = GroupError::UnknownMemberId;
    assert_eq!(bench.beat_as(&member, Some("other"), 1), Err(unknown));
    let request = SyncRequest { instance_id: Some("other".to_owned()), ..sync(&member, 1) };
    assert_eq!(bench.sync(request), Err(unknown));
    assert_eq!(bench.join_error(static_join(&member, "other")), unknown);
    assert_eq!(bench.beat(&member, 1), Ok(()), "v2 has no instance id");
}

#[test]
fn replaced_with_changed_protocols_is_refused_where_none_is_common() {
    let mut bench = Bench::new();
    let old = stable_static(&mut bench, 9);
    let refusal = bench.join(with(static_join("", "i"), &[("other", "m")])).expect_err("refused");
    assert_eq!(refusal.error, GroupError::InconsistentGroupProtocol);
    assert_eq!(bench.beat_as(&old, Some("i"), 1), Ok(()), "nothing has changed");
}

#[test]
fn replaced_with_another_choice_of_protocol_rebalances() {
    let mut bench = Bench::new();
    stable_static(&mut bench, 9);
    let request = with(static_join("", "i"), &[("other", "m"), ("range", "m")]);
    let joined = bench.join(request).expect("alone, so at once");
    assert_eq!((joined.generation, joined.protocol_name.as_str()), (2, "other"));
    assert_eq!((joined.skip_assignment, joined.members.len()), (false, 1));
}

#[test]
fn replaced_with_changed_metadata_does_not_rebalance() {
    let mut bench = Bench::new();
    stable_static(&mut bench, 9);
    let joined = bench.join(with(static_join("", "i"), &[("range", "changed")])).expect("new");
    assert_eq!((joined.generation, joined.skip_assignment), (1, true));
    assert_eq!(&joined.members[0].metadata[..], b"changed");
}

#[test]
fn replaced_while_completing_rebalances() {
    let mut bench = Bench::new();
    let leader = bench.stable();
    let held = bench.send_join(static_join("", "i"));
    bench.join(join(&leader)).expect("complete");
    let old = bench.join_answer(held).expect("complete").member_id;
    let waiting = bench.send_sync(sync(&old, 2));
    let replacement = bench.send_join(static_join("", "i"));
    assert_eq!(bench.sync_answer(waiting), Err(GroupError::FencedInstanceId));
    assert_eq!(bench.beat(&leader, 2), Err(GroupError::RebalanceInProgress));
    let joined = bench.join(join(&leader)).expect("complete");
    assert_eq!((joined.generation, joined.members.len()), (3, 2));
    assert!(bench.join_answer(replacement).is_ok());
}

#[test]
fn waiting_join_is_fenced_by_the_replacement() {
    let mut bench = Bench::new();
    let leader = bench.stable();
    let first = bench.send_join(static_join("", "i"));
    let replacement = bench.send_join(static_join("", "i"));
    let refusal = bench.join_answer(first).expect_err("fenced");
    assert_eq!(refusal.error, GroupError::FencedInstanceId);
    assert!(refusal.member_id.starts_with("i-"));
    assert!(bench.is_held(replacement));
    assert_eq!(bench.join(join(&leader)).expect("complete").members.len(), 2);
}

#[test]
fn follower_replaced_in_stable_sees_no_members() {
    let mut bench = Bench::new();
    let leader = with_static_follower(&mut bench);
    let joined = bench.join(static_join("", "i")).expect("new");
    assert_eq!((&joined.leader, joined.members.len()), (&leader, 0));
    assert!(!joined.skip_assignment);
    assert_eq!(&bench.sync(sync(&joined.member_id, 2)).expect("stored").assignment[..], b"B");
}

#[test]
fn an_absent_static_member_is_kept_until_its_session_ends() {
    let mut bench = Bench::new();
    let long = JoinRequest { session_timeout_ms: 60_000, ..static_join("", "i") };
    let absent = bench.join(long).expect("alone").member_id;
    bench.sync(assigning(sync(&absent, 1), &[(&absent, "A")])).expect("synced");
    let new = bench.new_id();
    let held = bench.send_join(join(&new));
    bench.advance(i64::from(REBALANCE_MS));
    let joined = bench.join_answer(held).expect("complete");
    assert_eq!(joined.leader, new, "one who joined leads");
    assert_eq!(joined.members.len(), 2, "the absent one is still a member");
    assert_eq!(bench.beat_as(&absent, Some("i"), 2), Ok(()));
}

#[test]
fn absent_static_members_alone_put_off_the_end_until_their_sessions_end() {
    let mut bench = Bench::new();
    let long = JoinRequest { session_timeout_ms: 60_000, ..static_join("", "i") };
    let absent = bench.join(long).expect("alone").member_id;
    bench.sync(assigning(sync(&absent, 1), &[(&absent, "A")])).expect("synced");
    let new = bench.new_id();
    bench.send_join(join(&new));
    bench.leave(5, vec![leaver(&new, None)]);
    for _ in 0..2 {
        bench.advance(i64::from(REBALANCE_MS));
        assert_eq!(bench.state(), GroupState::PreparingRebalance);
    }
    bench.advance(i64::from(REBALANCE_MS));
    assert_eq!((bench.state(), bench.group.generation()), (GroupState::Empty, 2));
}

#[test]
fn a_replacement_that_owes_its_sync_is_removed_when_it_does_not_come() {
    let mut bench = Bench::new();
    let leader = with_static_follower(&mut bench);
    let new = bench.join(static_join("", "i")).expect("in place of the follower").member_id;
    for _ in 0..REBALANCE_MS / 5_000 {
        assert_eq!(bench.beat(&leader, 2), Ok(()));
        assert_eq!(bench.beat_as(&new, Some("i"), 2), Ok(()));
        bench.advance(5_000);
    }
    assert_eq!(bench.beat(&leader, 2), Err(GroupError::RebalanceInProgress));
    assert_eq!(bench.beat_as(&new, Some("i"), 2), Err(GroupError::UnknownMemberId));
}
