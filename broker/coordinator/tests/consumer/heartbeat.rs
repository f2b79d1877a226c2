//! ConsumerGroupHeartbeat: fields, epochs, leaving, subscriptions, time. Where a test's name begins
//! with that of a probe, its expectation is what Kafka 4.4 answered.

use crate::bench::{Bench, Member, beats, joins, of_t, topic};
use floe_coordinator::GroupError;
use floe_coordinator::classic::ResponseToken;
use floe_coordinator::consumer::{Assignor, ConsumerState, HeartbeatRequest, Partitions};
use floe_coordinator::group::Event;
use std::collections::BTreeSet;

#[test]
fn join_v1() {
    let mut bench = Bench::new(2);
    let answer = bench.heartbeat(joins("m")).expect("joined");
    assert_eq!((answer.member_id.as_str(), answer.heartbeat_interval_ms), ("m", 5_000));
    assert_eq!(answer.assignment, Some(of_t(&[0, 1])), "nobody to wait for");
    assert!(answer.member_epoch > 1, "an epoch before it exists");
    let again = bench.heartbeat(joins("m")).expect("joined again");
    assert_eq!((again.member_epoch, again.assignment), (answer.member_epoch, answer.assignment));
}

#[test]
fn join_v0_broker_makes_the_id() {
    let mut bench = Bench::new(2);
    let made = bench.heartbeat(HeartbeatRequest { version: 0, ..joins("") }).expect("joined");
    assert!(!made.member_id.is_empty());
    let own = bench.heartbeat(HeartbeatRequest { version: 0, ..joins("own") }).expect("joined");
    assert_eq!(own.member_id, "own");
}

#[test]
fn invalid_fields() {
    let mut bench = Bench::new(2);
    let cases = [
        (joins(""), "MemberId can't be empty."),
        (HeartbeatRequest { version: 0, ..beats("", 1) }, "MemberId can't be empty."),
        (
            HeartbeatRequest { rebalance_timeout_ms: -1, ..joins("m") },
            "RebalanceTimeoutMs must be provided in first request.",
        ),
        (
            HeartbeatRequest { owned: None, ..joins("m") },
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            HeartbeatRequest { owned: Some(of_t(&[0])), ..joins("m") },
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            HeartbeatRequest { topic_names: None, ..joins("m") },
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when \
             (re-)joining.",
        ),
        (beats("m", -3), "MemberEpoch is invalid."),
        (beats("m", -2), "InstanceId can't be null."),
        (
            HeartbeatRequest { instance_id: Some(String::new()), ..joins("m") },
            "InstanceId can't be empty.",
        ),
        (
            HeartbeatRequest { rack_id: Some(" ".to_owned()), ..joins("m") },
            "RackId can't be empty.",
        ),
    ];
    for (request, message) in cases {
        let expected = (GroupError::InvalidRequest, message.to_owned());
        assert_eq!(bench.refused(request.clone()), expected, "{request:?}");
    }
    assert_eq!((bench.kind(), bench.writes), ("none", 0), "nothing was made or stored");
    let no_topics = HeartbeatRequest { topic_names: Some(BTreeSet::new()), ..joins("m") };
    let answer = bench.heartbeat(no_topics).expect("joined");
    assert_eq!(answer.assignment, Some(Partitions::new()));
    bench.heartbeat(HeartbeatRequest { rebalance_timeout_ms: 0, ..joins("n") }).expect("joined");
}

#[test]
fn assignor() {
    let mut bench = Bench::new(2);
    let asks = |id: &str, name: &str| HeartbeatRequest {
        server_assignor: Some(name.to_owned()),
        ..joins(id)
    };
    for name in ["sticky", ""] {
        let message =
            format!("ServerAssignor {name} is not supported. Supported assignors: uniform, range.");
        assert_eq!(bench.refused(asks("m", name)), (GroupError::UnsupportedAssignor, message));
    }
    bench.heartbeat(joins("m")).expect("joined");
    assert_eq!(bench.view().assignor, Assignor::Uniform);
    let epoch = bench.view().epoch;
    bench.heartbeat(asks("m", "range")).expect("joined again");
    assert_eq!(bench.view().assignor, Assignor::Range);
    assert_eq!(bench.view().epoch, epoch + 1, "another assignor asks for another target");
}

#[test]
fn epochs_of_a_member() {
    let mut bench = Bench::new(2);
    let message = "Consumer group g not found.".to_owned();
    assert_eq!(bench.refused(beats("m", 1)), (GroupError::GroupIdNotFound, message));
    let mut member = Member::new("m");
    member.settle(&mut bench);
    let epoch = member.epoch;
    let message = "Member n is not a member of group g.".to_owned();
    assert_eq!(bench.refused(beats("n", epoch)), (GroupError::UnknownMemberId, message));
    let answer = bench.heartbeat(beats("m", epoch)).expect("right");
    assert_eq!((answer.member_epoch, answer.assignment), (epoch, None));

    let fenced = |relation: &str, sent: i32| {
        let message = format!(
            "The consumer group member has a {relation} member epoch ({sent}) than the one known \
             by the group coordinator ({epoch}). The member must abandon all its partitions and \
             rejoin."
        );
        (GroupError::FencedMemberEpoch, message)
    };
    assert_eq!(bench.refused(beats("m", epoch + 1)), fenced("greater", epoch + 1));
    assert_eq!(bench.refused(beats("m", epoch - 1)), fenced("smaller", epoch - 1));
    let foreign = HeartbeatRequest { owned: Some(of_t(&[7])), ..beats("m", epoch - 1) };
    assert_eq!(bench.refused(foreign), fenced("smaller", epoch - 1));

    let full = HeartbeatRequest { owned: Some(of_t(&[0, 1])), member_epoch: epoch, ..joins("m") };
    let answer = bench.heartbeat(full).expect("all fields");
    assert_eq!(answer.assignment, Some(of_t(&[0, 1])));
}

#[test]
fn leave() {
    let mut bench = Bench::new(2);
    let message = "Group g not found.".to_owned();
    assert_eq!(bench.refused(beats("m", -1)), (GroupError::GroupIdNotFound, message));
    Member::new("m").settle(&mut bench);
    let unknown = |id: &str| {
        (GroupError::UnknownMemberId, format!("Member {id} is not a member of group g."))
    };
    assert_eq!(bench.refused(beats("n", -1)), unknown("n"));
    let answer = bench.heartbeat(beats("m", -1)).expect("left");
    assert_eq!((answer.member_epoch, answer.heartbeat_interval_ms), (-1, 0));
    assert_eq!(bench.refused(beats("m", -1)), unknown("m"));
    assert_eq!(bench.view().state, ConsumerState::Empty);
    assert_eq!(bench.delete(), Ok(()));
    assert_eq!((bench.kind(), bench.stored.is_none()), ("none", true));
}

#[test]
fn regex() {
    let mut bench = Bench::new(2);
    let asks = |id: &str, regex: &str| HeartbeatRequest {
        topic_names: None,
        topic_regex: Some(regex.to_owned()),
        ..joins(id)
    };
    let invalid = |regex: &str, reason: &str| {
        let message =
            format!("SubscribedTopicRegex `{regex}` is not a valid regular expression: {reason}.");
        (GroupError::InvalidRegularExpression, message)
    };
    for (regex, reason) in [
        ("[a", "missing closing ]"),
        ("(?!x)t", "invalid or unsupported Perl syntax"),
        ("(t", "missing closing )"),
        ("t)", "unexpected )"),
        ("*", "missing argument to repetition operator"),
        ("t\\", "trailing backslash at end of expression"),
        ("[z-a]", "invalid character class range"),
        ("t{2,1}", "invalid repeat count"),
    ] {
        assert_eq!(bench.refused(asks("m", regex)), invalid(regex, reason));
    }
    assert_eq!(bench.kind(), "none");

    bench.set_topics(&[("t", 1, 2), ("t2", 2, 1), ("at", 3, 1), ("t.x", 4, 1)]);
    let answer = bench.heartbeat(asks("m", "t[0-9]?")).expect("joined");
    let topics: Vec<_> = answer.assignment.expect("told").into_keys().collect();
    assert_eq!(topics, [topic(1), topic(2)], "the whole name must match");
    let epoch = answer.member_epoch;

    bench.set_topics(&[("t", 1, 2), ("t2", 2, 1), ("at", 3, 1), ("t.x", 4, 1), ("t3", 5, 1)]);
    bench.pass(1_000);
    let answer = bench.heartbeat(beats("m", epoch)).expect("right");
    let topics: Vec<_> = answer.assignment.expect("told").into_keys().collect();
    assert_eq!(topics, [topic(1), topic(2), topic(5)], "a new topic is found");

    let quoted = HeartbeatRequest {
        topic_regex: Some(r"\Qt.x\E|[[:alpha:]]t".to_owned()),
        ..beats("m", answer.member_epoch)
    };
    bench.heartbeat(quoted).expect("right");
    let target = bench.view().members[0].target.clone();
    assert_eq!(target.into_keys().collect::<Vec<_>>(), [topic(3), topic(4)]);
}

#[test]
fn subscription_to_a_missing_topic() {
    let mut bench = Bench::new(2);
    let later =
        HeartbeatRequest { topic_names: Some(BTreeSet::from(["later".to_owned()])), ..joins("m") };
    let joined = bench.heartbeat(later).expect("joined");
    assert_eq!(joined.assignment, Some(Partitions::new()));
    bench.set_topics(&[("t", 1, 2), ("later", 2, 3)]);
    bench.pass(1_000);
    let answer = bench.heartbeat(beats("m", joined.member_epoch)).expect("right");
    let assigned = answer.assignment.expect("told");
    assert_eq!(assigned.get(&topic(2)).map(BTreeSet::len), Some(3));
    assert!(answer.member_epoch > joined.member_epoch);

    // The topic gets partitions, then another topic takes its name.
    bench.set_topics(&[("t", 1, 2), ("later", 2, 4)]);
    bench.pass(1_000);
    let answer = bench.heartbeat(beats("m", answer.member_epoch)).expect("right");
    assert_eq!(answer.assignment.expect("told").get(&topic(2)).map(BTreeSet::len), Some(4));
    bench.set_topics(&[("t", 1, 2), ("later", 9, 1)]);
    bench.pass(1_000);
    let told = bench.heartbeat(beats("m", answer.member_epoch)).expect("right");
    assert_eq!(told.assignment, Some(Partitions::new()), "the old one is to be given up");
    let owns_nothing =
        HeartbeatRequest { owned: Some(Partitions::new()), ..beats("m", told.member_epoch) };
    let answer = bench.heartbeat(owns_nothing).expect("right");
    assert_eq!(answer.assignment.expect("told").get(&topic(9)).map(BTreeSet::len), Some(1));
}

#[test]
fn a_heartbeat_without_news_stores_nothing() {
    let mut bench = Bench::new(10);
    let mut members: Vec<Member> =
        (0..5).map(|number| Member::new(&format!("m{number}"))).collect();
    for _ in 0..4 {
        bench.pass(1_000);
        members.iter_mut().for_each(|member| member.settle(&mut bench));
    }
    assert_eq!(bench.view().state, ConsumerState::Stable);
    let writes = bench.writes;
    for _ in 0..20 {
        bench.pass(5_000);
        members.iter_mut().for_each(|member| member.beat(&mut bench));
    }
    assert_eq!(bench.writes, writes);
}

#[test]
fn a_silent_member_is_removed_after_its_session() {
    let mut bench = Bench::new(2);
    let (mut a, mut b) = (Member::new("a"), Member::new("b"));
    for _ in 0..3 {
        bench.pass(1_000);
        a.settle(&mut bench);
        b.settle(&mut bench);
    }
    assert_eq!((a.owned.clone(), b.owned.clone()), (of_t(&[0]), of_t(&[1])));
    for _ in 0..8 {
        bench.pass(5_000);
        a.beat(&mut bench);
    }
    assert_eq!(bench.view().members.len(), 2);
    bench.pass(5_000);
    assert_eq!(bench.view().members.len(), 1);
    a.settle(&mut bench);
    assert_eq!(a.owned, of_t(&[0, 1]));
    assert_eq!(bench.refused(beats("b", b.epoch)).0, GroupError::UnknownMemberId);
}

#[test]
fn members_that_come_together_share_a_target() {
    let mut bench = Bench::new(8);
    let mut members: Vec<Member> =
        (0..4).map(|number| Member::new(&format!("m{number}"))).collect();
    members.iter_mut().for_each(|member| member.beat(&mut bench));
    let view = bench.view();
    assert_eq!(view.state, ConsumerState::Assigning);
    assert_eq!(view.epoch, view.assignment_epoch + 3);
    let waiting = bench.heartbeat(members[1].request()).expect("right");
    assert_eq!(waiting.heartbeat_interval_ms, 1_000, "it asks again sooner");
    bench.pass(1_000);
    members[1].beat(&mut bench);
    assert_eq!(bench.view().state, ConsumerState::Reconciling);
    for _ in 0..3 {
        members.iter_mut().for_each(|member| member.settle(&mut bench));
    }
    assert_eq!(bench.view().state, ConsumerState::Stable);
    assert!(members.iter().all(|member| member.owned[&topic(1)].len() == 2));
}

#[test]
fn a_full_group_takes_nobody_else() {
    let mut bench = Bench::new(2);
    bench.rules.consumer.members_max = 1;
    bench.heartbeat(joins("m")).expect("joined");
    let message = "The consumer group has reached its maximum capacity of 1 members.".to_owned();
    assert_eq!(bench.refused(joins("n")), (GroupError::GroupMaxSizeReached, message));
    bench.heartbeat(joins("m")).expect("joined again");
}

#[test]
fn a_group_is_large_before_its_topics_are_looked_up() {
    let mut bench = Bench::new(200);
    bench.heartbeat(joins("m")).expect("joined");
    bench.crash();
    let is_large = |bench: &Bench| bench.group.as_ref().expect("a group").is_large(&bench.topics);
    assert!(is_large(&bench));
    bench.set_topics(&[("t", 1, 1), ("other", 2, 400)]);
    assert!(is_large(&bench), "it may be subscribed to the other by now");
    bench.pass(1_000);
    bench.heartbeat(joins("m")).expect("joined");
    assert!(!is_large(&bench));
    let fresh = Bench::new(200);
    let group =
        floe_coordinator::consumer::ConsumerGroup::new("f".to_owned(), fresh.rules.consumer, 0);
    assert!(group.is_large(&fresh.topics));
}

/// Compiling an expression may take a while, one that comes or those that are looked up again.
#[test]
fn expressions_make_an_event_and_a_group_large() {
    let mut bench = Bench::new(1);
    let regex = HeartbeatRequest { topic_regex: Some("t.*".to_owned()), ..joins("m") };
    let token = ResponseToken(1);
    let event = |request| Event::Heartbeat { token, request: Box::new(request) };
    assert!(event(regex.clone()).is_large() && !event(joins("m")).is_large());
    bench.heartbeat(regex).expect("joined");
    let is_large = |bench: &Bench| bench.group.as_ref().expect("a group").is_large(&bench.topics);
    assert!(!is_large(&bench));
    bench.set_topics(&[("t", 1, 1), ("other", 2, 1)]);
    assert!(is_large(&bench));
}

/// A small answer to a large request, whatever is wrong with it.
#[test]
fn a_refusal_repeats_the_beginning_of_what_is_wrong() {
    let mut bench = Bench::new(1);
    let long = "\u{e9}".repeat(1 << 20);
    let regex = HeartbeatRequest { topic_regex: Some(long.clone()), ..joins("m") };
    let assignor = HeartbeatRequest { server_assignor: Some(long), ..joins("m") };
    for request in [regex, assignor] {
        let (_, message) = bench.refused(request);
        assert!(message.len() < 1_200 && message.contains("\u{e9}..."), "{message}");
    }
}
