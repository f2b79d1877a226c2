//! A broker dies and another loads the group; the stored form.

use floe_coordinator::GroupError;
use floe_coordinator::classic::{
    Effect, GroupConfig, GroupRecord, GroupState, RecordError, Response,
};

use crate::bench::{Bench, REBALANCE_MS, assigning, join, leaver, static_join, sync, with};

#[test]
fn stable_goes_on_without_a_rebalance() {
    let mut bench = Bench::new();
    let (leader, follower) = bench.two_stable();
    bench.advance(9_000);
    bench.restart();
    bench.advance(9_999);
    for (member, assignment) in [(&leader, "A"), (&follower, "B")] {
        assert_eq!(bench.beat(member, 2), Ok(()), "a new session since the start");
        let synced = bench.sync(sync(member, 2)).expect("stored");
        assert_eq!(&synced.assignment[..], assignment.as_bytes());
    }
    assert_eq!(bench.state(), GroupState::Stable);
}

#[test]
fn stable_members_that_do_not_come_back_expire() {
    let mut bench = Bench::new();
    bench.two_stable();
    bench.restart();
    bench.advance(10_000);
    assert_eq!((bench.state(), bench.group.generation()), (GroupState::Empty, 3));
}

#[test]
fn completing_members_sync_again() {
    let mut bench = Bench::new();
    let (leader, follower) = bench.two();
    bench.send_sync(sync(&follower, 2));
    bench.restart();
    assert_eq!(bench.state(), GroupState::CompletingRebalance);
    assert_eq!(bench.join(join(&leader)).expect("the same generation").members.len(), 2);
    let held = bench.send_sync(sync(&follower, 2));
    bench.sync(assigning(sync(&leader, 2), &[(&follower, "B")])).expect("synced");
    assert_eq!(&bench.sync_answer(held).expect("synced").assignment[..], b"B");
}

#[test]
fn completing_members_that_do_not_sync_are_removed() {
    let mut bench = Bench::new();
    let (leader, follower) = bench.two();
    bench.restart();
    for _ in 0..REBALANCE_MS / 5_000 {
        assert_eq!(bench.beat(&leader, 2), Ok(()));
        assert_eq!(bench.beat(&follower, 2), Ok(()));
        bench.advance(5_000);
    }
    assert_eq!((bench.state(), bench.group.generation()), (GroupState::Empty, 3));
}

#[test]
fn preparing_members_join_again() {
    let mut bench = Bench::new();
    let (leader, follower) = bench.two_stable();
    let new = bench.new_id();
    bench.send_join(join(&new));
    bench.leave(5, vec![leaver(&new, None)]);
    bench.send_join(join(&leader));
    bench.restart();
    assert_eq!(bench.state(), GroupState::PreparingRebalance, "stored with the leave");
    assert_eq!(bench.beat(&follower, 2), Err(GroupError::RebalanceInProgress));
    let held = bench.send_join(join(&leader));
    assert_eq!(bench.join(join(&follower)).expect("complete").generation, 3);
    assert_eq!(bench.join_answer(held).expect("complete").members.len(), 2);
}

#[test]
fn preparing_ends_after_a_rebalance_timeout() {
    let mut bench = Bench::new();
    let (leader, follower) = bench.two_stable();
    bench.leave(5, vec![leaver(&follower, None)]);
    bench.restart();
    for _ in 0..REBALANCE_MS / 5_000 {
        assert_eq!(bench.beat(&leader, 2), Err(GroupError::RebalanceInProgress));
        bench.advance(5_000);
    }
    assert_eq!((bench.state(), bench.group.generation()), (GroupState::Empty, 3));
}

#[test]
fn a_rebalance_that_was_not_stored_begins_again_when_its_joins_are_sent_again() {
    let mut bench = Bench::new();
    let (leader, follower) = bench.two_stable();
    let changed = with(join(&follower), &[("range", "changed")]);
    bench.send_join(changed.clone());
    assert_eq!(bench.state(), GroupState::PreparingRebalance);
    bench.restart();
    assert_eq!((bench.state(), bench.beat(&leader, 2)), (GroupState::Stable, Ok(())));
    let held = bench.send_join(changed);
    assert_eq!(bench.join(join(&leader)).expect("complete").generation, 3);
    assert_eq!(bench.join_answer(held).expect("complete").generation, 3);
}

#[test]
fn pending_ids_are_lost_and_their_clients_ask_again() {
    let mut bench = Bench::new();
    bench.stable();
    let pending = bench.new_id();
    bench.restart();
    assert_eq!(bench.join_error(join(&pending)), GroupError::UnknownMemberId);
}

#[test]
fn static_members_are_known_by_their_instance_id() {
    let mut bench = Bench::new();
    let old = bench.join(static_join("", "i")).expect("alone").member_id;
    bench.sync(assigning(sync(&old, 1), &[(&old, "A")])).expect("synced");
    bench.restart();
    let new = bench.join(static_join("", "i")).expect("no rebalance");
    assert_eq!((new.generation, new.skip_assignment), (1, true));
    bench.restart();
    assert_eq!(bench.beat_as(&old, Some("i"), 1), Err(GroupError::FencedInstanceId));
    assert_eq!(bench.beat_as(&new.member_id, Some("i"), 1), Ok(()));
}

#[test]
fn a_rebalance_costs_two_stores() {
    let mut bench = Bench::new();
    let (leader, follower) = bench.two_stable();
    let before = bench.persist_count;
    bench.send_join(join(&leader));
    bench.join(join(&follower)).expect("complete");
    assert_eq!(bench.persist_count, before + 1, "the generation");
    bench.sync(assigning(sync(&leader, 3), &[(&leader, "A")])).expect("synced");
    bench.sync(sync(&follower, 3)).expect("synced");
    assert_eq!(bench.persist_count, before + 2, "the assignment");
}

#[test]
fn abandon_answers_all_that_is_held() {
    let mut bench = Bench::with_config(GroupConfig::default());
    let member = bench.new_id();
    let join_token = bench.send_join(join(&member));
    let effects = bench.group.clone().abandon();
    let [Effect::Respond { token, response: Response::Join(Err(refusal)) }] = &effects[..] else {
        panic!("{effects:?}");
    };
    assert_eq!((*token, refusal.error), (join_token, GroupError::NotCoordinator));
    assert_eq!(refusal.member_id, member);

    let mut bench = Bench::new();
    let (_, follower) = bench.two();
    let token = bench.send_sync(sync(&follower, 2));
    let response = Response::Sync(Err(GroupError::NotCoordinator));
    assert_eq!(bench.group.clone().abandon(), [Effect::Respond { token, response }]);
}

#[test]
fn an_answer_that_could_not_be_promised_is_refused() {
    let mut bench = Bench::new();
    let member = bench.stable();
    let error = GroupError::NotCoordinator;
    let refusal = floe_coordinator::classic::JoinRefusal { error, member_id: member.clone() };
    let joined = bench.join(join(&member));
    let synced = bench.sync(sync(&member, 2));
    let left = bench.leave(5, vec![leaver(&member, None)]);
    assert!(joined.is_ok() && synced.is_ok() && left.members[0].error.is_none());
    assert_eq!(Response::Join(joined).refused(error), Response::Join(Err(refusal)));
    assert_eq!(Response::Sync(synced).refused(error), Response::Sync(Err(error)));
    assert_eq!(Response::Commit(Ok(())).refused(error), Response::Commit(Err(error)));
    assert_eq!(Response::Delete(Ok(())).refused(error), Response::Delete(Err(error)));
    assert_eq!(Response::Heartbeat(Ok(())).refused(error), Response::Heartbeat(Err(error)));
    let Response::Leave(left) = Response::Leave(left).refused(error) else { panic!("a leave") };
    assert_eq!((left.error, left.members.len()), (Some(error), 0));
}

/// The stored form: a change of it needs a new format number.
const GOLDEN: &str = r#"{"format":1,"group_id":"g","state":"Stable","state_since_ms":1000,"#;

#[test]
fn golden_record() {
    let mut bench = Bench::new();
    let member = bench.stable();
    let golden = format!(
        "{GOLDEN}\"generation\":1,\"protocol_type\":\"consumer\",\"protocol_name\":\"range\",\
         \"leader\":\"{member}\",\"members\":{{\"{member}\":{{\"instance_id\":null,\
         \"client_id\":\"probe\",\"client_host\":\"/127.0.0.1\",\"session_timeout_ms\":10000,\
         \"rebalance_timeout_ms\":20000,\"protocols\":[{{\"name\":\"range\",\
         \"metadata\":\"bQ==\"}}],\"assignment\":\"QQ==\"}}}}}}"
    );
    assert_eq!(String::from_utf8(bench.group.record().encode()).expect("JSON"), golden);
    let decoded = GroupRecord::decode(golden.as_bytes()).expect("what was encoded");
    assert_eq!((&decoded, decoded.group_id()), (bench.group.record(), "g"));
}

#[test]
fn other_formats_and_contradictions_are_refused() {
    let mut bench = Bench::new();
    let joined = bench.join(static_join("", "i")).expect("alone");
    let member = joined.member_id;
    bench.sync(sync(&member, 1)).expect("synced");
    let stored = String::from_utf8(bench.group.record().encode()).expect("JSON");
    assert!(GroupRecord::decode(stored.as_bytes()).is_ok());

    let later = stored.replace("\"format\":1", "\"format\":2");
    let answer = GroupRecord::decode(later.as_bytes());
    assert!(matches!(answer, Err(RecordError::UnknownFormat(2))), "{answer:?}");
    let cut = GroupRecord::decode(&stored.as_bytes()[..stored.len() - 1]);
    assert!(matches!(cut, Err(RecordError::Unreadable(_))), "{cut:?}");

    let leader = format!("\"leader\":\"{member}\"");
    let contradictions = [
        ("\"generation\":1", "\"generation\":-1"),
        (leader.as_str(), "\"leader\":\"nobody\""),
        (leader.as_str(), "\"leader\":null"),
        ("\"Stable\"", "\"Empty\""),
        ("\"protocol_name\":\"range\"", "\"protocol_name\":\"other\""),
        ("\"protocol_name\":\"range\"", "\"protocol_name\":null"),
        ("\"protocol_type\":\"consumer\"", "\"protocol_type\":null"),
    ];
    for (from, to) in contradictions {
        let wrong = stored.replace(from, to);
        assert_ne!(wrong, stored, "{from}");
        let answer = GroupRecord::decode(wrong.as_bytes());
        assert!(matches!(answer, Err(RecordError::Inconsistent(_))), "{to}: {answer:?}");
    }
    let members = stored.find("\"members\":{").expect("present") + "\"members\":{".len();
    let entry = &stored[members..stored.len() - 2];
    let twin = entry.replacen(&member, "twin", 1);
    let twice = format!("{}{entry},{twin}}}}}", &stored[..members]);
    let answer = GroupRecord::decode(twice.as_bytes());
    assert!(matches!(answer, Err(RecordError::Inconsistent("an instance id twice"))), "{answer:?}");
}
