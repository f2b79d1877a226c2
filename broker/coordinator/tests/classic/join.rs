//! JoinGroup: the checks in order, the table of effects, and how joining ends.

use floe_coordinator::GroupError;
use floe_coordinator::classic::{GroupConfig, GroupState, JoinRequest};
use uuid::Uuid;

use crate::bench::{Bench, REBALANCE_MS, assigning, config, join, leaver, static_join, sync, with};

#[test]
fn check_2_session_timeout_range() {
    let mut bench = Bench::new();
    for timeout in [-1, 5_999, 1_800_001] {
        let request = JoinRequest { session_timeout_ms: timeout, ..join("") };
        assert_eq!(bench.join_error(request), GroupError::InvalidSessionTimeout, "{timeout}");
    }
    for timeout in [6_000, 1_800_000] {
        let request = JoinRequest { session_timeout_ms: timeout, ..join("") };
        assert_eq!(bench.join_error(request), GroupError::MemberIdRequired, "{timeout}");
    }
}

#[test]
fn check_4_group_max_size_refuses_new_members_only() {
    let mut bench = Bench::with_config(GroupConfig { group_members_max: 1, ..config() });
    let member = bench.stable();
    let refusal = bench.join(join("")).expect_err("full");
    assert_eq!(refusal.error, GroupError::GroupMaxSizeReached);
    assert_eq!(refusal.member_id, "");
    assert_eq!(bench.join(join(&member)).expect("it is in").generation, 2);
}

#[test]
fn check_4_while_preparing_the_last_to_join_are_turned_away() {
    let mut bench = Bench::new();
    let (leader, follower) = bench.two_stable();
    bench.config.group_members_max = 1;
    bench.restart();
    let first = bench.send_join(join(&leader));
    assert!(bench.is_held(first));
    assert_eq!(bench.join_error(join(&follower)), GroupError::GroupMaxSizeReached);
    let joined = bench.join_answer(first).expect("nobody else is waited for");
    assert_eq!(joined.members.len(), 1);
    assert_eq!(bench.join_error(join(&follower)), GroupError::GroupMaxSizeReached);
}

#[test]
fn check_4_a_static_member_may_be_replaced_in_a_full_group() {
    let mut bench = Bench::with_config(GroupConfig { group_members_max: 1, ..config() });
    let old = bench.join(static_join("", "i")).expect("first").member_id;
    let answer = bench.join(static_join("", "i")).expect("not a new member");
    assert_ne!(answer.member_id, old);
    assert_eq!(bench.join_error(static_join("", "j")), GroupError::GroupMaxSizeReached);
}

#[test]
fn check_5_inconsistent_protocol() {
    let mut bench = Bench::new();
    let member = bench.stable();
    let connect = JoinRequest { protocol_type: "connect".to_owned(), ..join("") };
    for request in [connect, with(join(""), &[("other", "m")]), with(join(&member), &[("x", "m")])]
    {
        let id = request.member_id.clone();
        let refusal = bench.join(request).expect_err("refused");
        assert_eq!(refusal.error, GroupError::InconsistentGroupProtocol);
        assert_eq!(refusal.member_id, id);
    }
    assert_eq!(bench.beat(&member, 1), Ok(()), "the group is still stable");
}

#[test]
fn check_5_no_protocols() {
    let mut bench = Bench::new();
    let no_type = JoinRequest { protocol_type: String::new(), ..join("") };
    for request in [no_type, with(join(""), &[]), JoinRequest { version: 3, ..with(join(""), &[]) }]
    {
        assert_eq!(bench.join_error(request), GroupError::InconsistentGroupProtocol);
    }
    assert_eq!(bench.persist_count, 0, "no group was made");
    assert!(bench.group.is_unused());
}

#[test]
fn check_5_comes_before_the_member_id() {
    let mut bench = Bench::new();
    bench.stable();
    let nobody = with(join("nobody"), &[("other", "m")]);
    assert_eq!(bench.join_error(nobody), GroupError::InconsistentGroupProtocol);
    assert_eq!(bench.join_error(join("nobody")), GroupError::UnknownMemberId);
    assert_eq!(bench.join_error(static_join("nobody", "i")), GroupError::UnknownMemberId);
}

#[test]
fn check_6_member_id_required() {
    let mut bench = Bench::new();
    let request = JoinRequest { version: 4, ..join("") };
    let refusal = bench.join(request).expect_err("an id comes first");
    assert_eq!(refusal.error, GroupError::MemberIdRequired);
    assert_eq!(refusal.member_id, format!("probe-{}", Uuid::from_u128(1)));
    assert_eq!(bench.state(), GroupState::Empty);
    let joined = bench.join(join(&refusal.member_id)).expect("joined");
    assert_eq!(joined.member_id, refusal.member_id);
    assert_eq!((joined.generation, joined.leader), (1, refusal.member_id));
}

#[test]
fn check_6_below_v4_needs_no_member_id() {
    for version in 0..4 {
        let mut bench = Bench::new();
        let joined = bench.join(JoinRequest { version, ..join("") }).expect("joined at once");
        assert!(joined.member_id.starts_with("probe-"));
        assert_eq!(joined.generation, 1);
    }
}

#[test]
fn check_7_a_pending_id_lives_for_one_session_timeout() {
    let mut bench = Bench::new();
    let late = bench.new_id();
    bench.advance(9_999);
    let in_time = bench.new_id();
    bench.advance(1);
    assert_eq!(bench.join_error(join(&late)), GroupError::UnknownMemberId);
    assert_eq!(bench.join(join(&in_time)).expect("joined").generation, 1);
}

#[test]
fn check_7_a_pending_id_is_not_for_static_members() {
    let mut bench = Bench::new();
    let pending = bench.new_id();
    assert_eq!(bench.join_error(static_join(&pending, "i")), GroupError::UnknownMemberId);
}

#[test]
fn pending_ids_are_limited() {
    let mut bench = Bench::new();
    for _ in 0..10_000 {
        bench.new_id();
    }
    assert_eq!(bench.join_error(join("")), GroupError::GroupMaxSizeReached);
    bench.advance(10_000);
    bench.new_id();
}

#[test]
fn empty_starts_the_initial_delay_which_newcomers_extend() {
    let mut bench = Bench::with_config(GroupConfig::default());
    let first = bench.send_join(JoinRequest { version: 3, ..join("") });
    assert_eq!(bench.state(), GroupState::PreparingRebalance);
    bench.advance(2_999);
    assert!(bench.is_held(first));
    let second = bench.send_join(JoinRequest { version: 3, ..join("") });
    bench.advance(1);
    assert!(bench.is_held(first), "3,000 ms more");
    bench.advance(2_999);
    assert!(bench.is_held(first));
    bench.advance(1);
    assert_eq!(bench.join_answer(first).expect("generation 1").generation, 1);
    assert_eq!(bench.join_answer(second).expect("generation 1").generation, 1);
}

#[test]
fn empty_without_newcomers_waits_one_initial_delay() {
    let mut bench = Bench::with_config(GroupConfig::default());
    let only = bench.send_join(JoinRequest { version: 3, ..join("") });
    bench.advance(3_000);
    assert_eq!(bench.join_answer(only).expect("joined").generation, 1);
}

#[test]
fn empty_the_initial_delay_ends_at_the_largest_rebalance_timeout() {
    let mut bench = Bench::with_config(GroupConfig::default());
    let request = JoinRequest { version: 3, rebalance_timeout_ms: 7_000, ..join("") };
    let mut tokens = Vec::new();
    for _ in 0..7 {
        tokens.push(bench.send_join(request.clone()));
        assert_eq!(bench.state(), GroupState::PreparingRebalance);
        bench.advance(1_000);
    }
    for token in tokens {
        let joined = bench.join_answer(token).expect("7,000 ms have passed");
        assert_eq!(joined.generation, 1);
    }
}

#[test]
fn preparing_adds_and_holds() {
    let mut bench = Bench::new();
    let leader = bench.stable();
    let new = bench.new_id();
    assert_eq!(bench.beat(&leader, 1), Ok(()), "a pending id starts no rebalance");
    let held = bench.send_join(join(&new));
    let other = bench.new_id();
    let other_held = bench.send_join(join(&other));
    assert!(bench.is_held(held) && bench.is_held(other_held));
    assert_eq!(bench.beat(&leader, 1), Err(GroupError::RebalanceInProgress));
    let joined = bench.join(join(&leader)).expect("complete");
    assert_eq!(joined.members.len(), 3);
    assert!(bench.join_answer(held).expect("joined").members.is_empty());
    assert!(bench.join_answer(other_held).expect("joined").members.is_empty());
}

#[test]
fn preparing_waits_for_pending_ids() {
    let mut bench = Bench::new();
    let leader = bench.stable();
    let pending = bench.new_id();
    let held = bench.send_join(join(&leader));
    assert!(bench.is_held(held), "the pending member is expected");
    let joined = bench.join(join(&pending)).expect("complete");
    assert_eq!(joined.generation, 2);
    assert_eq!(bench.join_answer(held).expect("complete").members.len(), 2);
}

#[test]
fn preparing_goes_on_when_the_last_pending_id_expires() {
    let mut bench = Bench::new();
    let leader = bench.stable();
    bench.new_id();
    let held = bench.send_join(join(&leader));
    bench.advance(10_000);
    assert_eq!(bench.join_answer(held).expect("complete").members.len(), 1);
}

#[test]
fn preparing_a_second_join_of_a_member_ends_its_first() {
    let mut bench = Bench::new();
    let leader = bench.stable();
    let new = bench.new_id();
    let lost = bench.send_join(join(&new));
    let held = bench.send_join(with(join(&new), &[("range", "changed")]));
    assert_eq!(
        bench.join_answer(lost).expect_err("superseded").error,
        GroupError::RebalanceInProgress
    );
    let joined = bench.join(join(&leader)).expect("complete");
    let changed = joined.members.iter().find(|member| member.member_id == new).expect("in");
    assert_eq!(&changed.metadata[..], b"changed");
    assert_eq!(bench.join_answer(held).expect("complete").generation, 2);
}

#[test]
fn completing_identical_protocols_get_the_generation_again() {
    let mut bench = Bench::new();
    let (leader, follower) = bench.two();
    let again = bench.join(join(&follower)).expect("the same");
    assert_eq!((again.generation, again.members.len()), (2, 0));
    let again = bench.join(join(&leader)).expect("the same");
    assert_eq!((again.generation, again.members.len(), again.skip_assignment), (2, 2, false));
    assert_eq!(bench.state(), GroupState::CompletingRebalance);
}

#[test]
fn completing_otherwise_starts_a_rebalance() {
    let mut bench = Bench::new();
    let (leader, follower) = bench.two();
    let held = bench.send_join(with(join(&follower), &[("range", "changed")]));
    assert!(bench.is_held(held));
    assert_eq!(bench.beat(&leader, 2), Err(GroupError::RebalanceInProgress));

    let mut bench = Bench::new();
    let (leader, _) = bench.two();
    let new = bench.new_id();
    let held = bench.send_join(join(&new));
    assert!(bench.is_held(held));
    assert_eq!(bench.beat(&leader, 2), Err(GroupError::RebalanceInProgress));
}

#[test]
fn stable_the_leader_always_rebalances() {
    let mut bench = Bench::new();
    let leader = bench.stable();
    assert_eq!(bench.join(join(&leader)).expect("alone").generation, 2);
    assert_eq!(bench.beat(&leader, 1), Err(GroupError::IllegalGeneration));
    assert_eq!(bench.join(join(&leader)).expect("not synced yet").generation, 2);
}

#[test]
fn stable_changed_metadata_rebalances() {
    let mut bench = Bench::new();
    let (leader, follower) = bench.two_stable();
    let held = bench.send_join(with(join(&follower), &[("range", "changed")]));
    assert_eq!(bench.beat(&leader, 2), Err(GroupError::RebalanceInProgress));
    assert_eq!(bench.join(join(&leader)).expect("complete").generation, 3);
    let joined = bench.join_answer(held).expect("complete");
    assert_eq!((joined.generation, joined.members.len()), (3, 0));
}

#[test]
fn stable_follower_with_the_same_metadata_gets_the_generation_again() {
    let mut bench = Bench::new();
    let (leader, follower) = bench.two_stable();
    let joined = bench.join(join(&follower)).expect("no rebalance");
    assert_eq!((joined.generation, joined.members.len()), (2, 0));
    assert_eq!(bench.beat(&leader, 2), Ok(()));
    assert_eq!(&bench.sync(sync(&follower, 2)).expect("as before").assignment[..], b"B");
}

#[test]
fn dead_answers_coordinator_not_available() {
    let mut bench = Bench::new();
    bench.delete().expect("empty");
    assert_eq!(bench.join_error(join("")), GroupError::CoordinatorNotAvailable);
    assert_eq!(bench.join_error(join("m")), GroupError::CoordinatorNotAvailable);
}

#[test]
fn empty_group_may_change_its_protocol_type_and_left_members_are_unknown() {
    let mut bench = Bench::new();
    let left = bench.stable();
    bench.leave(5, vec![leaver(&left, None)]);
    assert_eq!(bench.join_error(join(&left)), GroupError::UnknownMemberId);
    let connect = JoinRequest { version: 3, protocol_type: "connect".to_owned(), ..join("") };
    let joined = bench.join(connect).expect("joined");
    assert_eq!((joined.generation, joined.protocol_type.as_str()), (3, "connect"));
}

#[test]
fn protocol_is_voted() {
    let mut bench = Bench::new();
    let xyz = [("x", "mx"), ("y", "my"), ("z", "mz")];
    let yx = [("y", "ny"), ("x", "nx")];
    let (m, n, o) = (bench.new_id(), bench.new_id(), bench.new_id());
    let first = bench.send_join(with(join(&m), &xyz));
    assert_eq!(bench.join_answer(first).expect("first of an empty group").protocol_name, "x");
    let second = bench.send_join(with(join(&n), &yx));
    let third = bench.send_join(with(join(&o), &yx));
    let joined = bench.join(with(join(&m), &xyz)).expect("complete");
    assert_eq!((joined.protocol_name.as_str(), joined.members.len()), ("y", 3));
    let metadata = |id: &str| {
        let member = joined.members.iter().find(|member| member.member_id == id);
        member.expect("in the list").metadata.clone()
    };
    assert_eq!((&metadata(&m)[..], &metadata(&n)[..]), (&b"my"[..], &b"ny"[..]));
    assert_eq!(bench.join_answer(second).expect("joined").protocol_name, "y");
    assert_eq!(bench.join_answer(third).expect("joined").protocol_name, "y");
}

#[test]
fn a_vote_goes_only_to_protocols_of_all_members_and_ties_to_the_first_name() {
    let mut bench = Bench::new();
    let (m, n) = (bench.new_id(), bench.new_id());
    bench.send_join(with(join(&m), &[("own", "1"), ("b", "2"), ("a", "3"), ("b", "4")]));
    bench.send_join(with(join(&n), &[("a", "5"), ("b", "6")]));
    let rejoin = with(join(&m), &[("own", "1"), ("b", "2"), ("a", "3")]);
    assert_eq!(bench.join(rejoin).expect("complete").protocol_name, "a");
}

#[test]
fn rebalance_timeout_removes_the_absent() {
    let mut bench = Bench::new();
    let quick = |id: &str| JoinRequest { rebalance_timeout_ms: 700, ..join(id) };
    let absent = bench.join(JoinRequest { version: 3, ..quick("") }).expect("alone").member_id;
    bench.sync(assigning(sync(&absent, 1), &[(&absent, "A")])).expect("synced");
    let new = bench.new_id();
    let held = bench.send_join(quick(&new));
    bench.advance(699);
    assert!(bench.is_held(held));
    bench.advance(1);
    let joined = bench.join_answer(held).expect("complete");
    assert_eq!((joined.generation, joined.leader.as_str(), joined.members.len()), (2, &*new, 1));
    assert_eq!(bench.beat(&absent, 2), Err(GroupError::UnknownMemberId));
}

#[test]
fn version_0_has_one_timeout_for_both() {
    let mut bench = Bench::new();
    let absent = bench.stable();
    bench.leave(5, vec![leaver(&absent, None)]);
    let v0 = JoinRequest { version: 0, rebalance_timeout_ms: -1, ..join("") };
    let first = bench.join(v0.clone()).expect("alone").member_id;
    bench.sync(assigning(sync(&first, 3), &[(&first, "A")])).expect("synced");
    let held = bench.send_join(v0);
    bench.advance(5_000);
    assert_eq!(bench.beat(&first, 3), Err(GroupError::RebalanceInProgress));
    bench.advance(4_999);
    assert!(bench.is_held(held), "10,000 ms, the session timeout");
    bench.advance(1);
    assert_eq!(bench.join_answer(held).expect("complete").generation, 4);
}

#[test]
fn answer_held_beyond_the_session_timeout() {
    let mut bench = Bench::new();
    let leader = bench.stable();
    let new = bench.new_id();
    let held = bench.send_join(JoinRequest { session_timeout_ms: 6_000, ..join(&new) });
    for _ in 0..9 {
        bench.advance(1_000);
        assert_eq!(bench.beat(&leader, 1), Err(GroupError::RebalanceInProgress));
    }
    assert!(bench.is_held(held));
    assert_eq!(bench.join(join(&leader)).expect("complete").members.len(), 2);
    assert!(bench.join_answer(held).is_ok());
}

#[test]
fn a_known_member_that_waits_does_not_expire() {
    let mut bench = Bench::new();
    let (leader, follower) = bench.two_stable();
    let held = bench.send_join(with(join(&follower), &[("range", "changed")]));
    for _ in 0..15 {
        bench.advance(1_000);
        let _ = bench.beat(&leader, 2);
    }
    assert!(bench.is_held(held), "15,000 ms with a session of 10,000 ms");
    assert_eq!(bench.join(join(&leader)).expect("complete").members.len(), 2);
    bench.join_answer(held).expect("complete");
    bench.advance(9_999);
    assert_eq!(bench.beat(&follower, 3), Ok(()), "a new session began with the answer");
}

#[test]
fn a_member_that_waited_and_then_is_silent_expires_a_session_after_its_answer() {
    let mut bench = Bench::new();
    let (leader, follower) = bench.two_stable();
    let held = bench.send_join(with(join(&follower), &[("range", "changed")]));
    for _ in 0..15 {
        bench.advance(1_000);
        let _ = bench.beat(&leader, 2);
    }
    bench.join(join(&leader)).expect("complete");
    bench.join_answer(held).expect("complete");
    bench.advance(9_000);
    assert_eq!(bench.beat(&leader, 3), Ok(()));
    bench.advance(1_000);
    assert_eq!(bench.beat(&leader, 3), Err(GroupError::RebalanceInProgress));
    assert_eq!(bench.beat(&follower, 3), Err(GroupError::UnknownMemberId));
}

#[test]
fn a_new_member_waits_five_minutes_at_most() {
    let mut bench = Bench::new();
    let slow = |id: &str| JoinRequest { rebalance_timeout_ms: 1_800_000, ..join(id) };
    let leader = bench.join(JoinRequest { version: 3, ..slow("") }).expect("alone").member_id;
    bench.sync(assigning(sync(&leader, 1), &[(&leader, "A")])).expect("synced");
    let new = bench.new_id();
    let held = bench.send_join(slow(&new));
    for _ in 0..299 {
        bench.advance(1_000);
        assert_eq!(bench.beat(&leader, 1), Err(GroupError::RebalanceInProgress));
    }
    assert!(bench.is_held(held));
    bench.advance(1_000);
    let refusal = bench.join_answer(held).expect_err("it is taken for gone");
    assert_eq!((refusal.error, refusal.member_id.as_str()), (GroupError::UnknownMemberId, ""));
    assert_eq!(bench.join(join(&leader)).expect("alone again").members.len(), 1);
}

#[test]
fn nobody_joins_empty_and_one_generation_more() {
    let mut bench = Bench::new();
    let (leader, follower) = bench.two_stable();
    bench.leave(5, vec![leaver(&follower, None)]);
    assert_eq!(bench.state(), GroupState::PreparingRebalance);
    for _ in 0..REBALANCE_MS / 5_000 {
        assert_eq!(bench.group.generation(), 2);
        let _ = bench.beat(&leader, 2);
        bench.advance(5_000);
    }
    assert_eq!((bench.state(), bench.group.generation()), (GroupState::Empty, 3));
    assert_eq!(bench.group.next_deadline_ms(), None);
}

#[test]
fn the_leader_stays_while_it_joins_else_one_who_joined_leads() {
    let mut bench = Bench::new();
    let (leader, follower) = bench.two_stable();
    let new = bench.new_id();
    let held = bench.send_join(join(&new));
    let also = bench.send_join(join(&follower));
    bench.advance(i64::from(REBALANCE_MS));
    let joined = bench.join_answer(held).expect("complete without the leader");
    assert_ne!(joined.leader, leader);
    assert!([&new, &follower].contains(&&joined.leader));
    assert_eq!(bench.join_answer(also).expect("complete").leader, joined.leader);
}

#[test]
fn a_uuid_handed_in_twice_is_refused() {
    use floe_coordinator::classic::{Effect, Event, Response, ResponseToken};
    let mut bench = Bench::new();
    for (token, error) in
        [(1, GroupError::MemberIdRequired), (2, GroupError::CoordinatorNotAvailable)]
    {
        let event = Event::Join { token: ResponseToken(token), request: join("") };
        let effects = bench.group.apply(event, 0);
        let [Effect::Respond { response: Response::Join(Err(refusal)), .. }] = &effects[..] else {
            panic!("{effects:?}");
        };
        assert_eq!(refusal.error, error);
    }
}
