//! Retention of committed offsets, OffsetDelete, and the metadata's size.

use floe_coordinator::GroupError;
use floe_coordinator::group::Group;
use floe_coordinator::offsets::{CommittedOffset, OffsetRules, check_offset_metadata};

use crate::bench::{Bench, assigning, commit, join, leaver, sync, with};

const RETENTION_MS: i64 = 1_000;

fn committed_at(committed_at_ms: i64) -> CommittedOffset {
    CommittedOffset { committed_at_ms, expires_at_ms: None, has_pending_transaction: false }
}

fn rules_of(bench: &Bench) -> OffsetRules {
    OffsetRules::of(&Group::Classic(bench.group.clone()))
}

fn is_expired(bench: &Bench, topic: &str, offset: &CommittedOffset, now_ms: i64) -> bool {
    rules_of(bench).is_expired(topic, offset, now_ms, RETENTION_MS)
}

/// The bytes of a subscription, as text that `protocols` takes.
fn subscription(topics: &[&str]) -> String {
    let mut text = format!("\0\0\0\0\0{}", char::from(topics.len() as u8));
    for topic in topics {
        text.push('\0');
        text.push(char::from(topic.len() as u8));
        text.push_str(topic);
    }
    text + "\0\0\0\0"
}

/// A stable consumer group whose two members are subscribed to these.
fn subscribed(leader_topics: &str, follower_topics: &str) -> Bench {
    let mut bench = Bench::new();
    let (leader, follower) = (bench.new_id(), bench.new_id());
    let leader_join = with(join(&leader), &[("range", leader_topics)]);
    bench.join(leader_join.clone()).expect("alone");
    bench.send_join(with(join(&follower), &[("range", follower_topics)]));
    bench.join(leader_join).expect("complete");
    bench.sync(assigning(sync(&leader, 2), &[])).expect("synced");
    bench
}

#[test]
fn simple_group_counts_from_the_commit() {
    let mut bench = Bench::new();
    bench.commit(commit("", -1)).expect("makes the group");
    assert!(!is_expired(&bench, "t", &committed_at(500), 1_499));
    assert!(is_expired(&bench, "t", &committed_at(500), 1_500));
}

#[test]
fn empty_group_counts_from_when_it_became_empty() {
    let mut bench = Bench::new();
    let member = bench.stable();
    bench.advance(5_000);
    let emptied_ms = bench.now_ms;
    bench.leave(5, vec![leaver(&member, None)]);
    assert!(!is_expired(&bench, "t", &committed_at(0), emptied_ms + RETENTION_MS - 1));
    assert!(is_expired(&bench, "t", &committed_at(0), emptied_ms + RETENTION_MS));
    bench.advance(100);
    bench.restart();
    assert!(is_expired(&bench, "t", &committed_at(0), emptied_ms + RETENTION_MS), "also stored");
}

#[test]
fn stable_consumers_expire_what_nobody_is_subscribed_to() {
    let bench = subscribed(&subscription(&["a", "b"]), &subscription(&["c"]));
    for topic in ["a", "b", "c"] {
        assert!(!is_expired(&bench, topic, &committed_at(0), i64::MAX), "{topic}");
    }
    assert!(is_expired(&bench, "d", &committed_at(0), RETENTION_MS));
    assert!(!is_expired(&bench, "d", &committed_at(1), RETENTION_MS));
}

#[test]
fn nothing_expires_while_rebalancing_or_when_the_subscription_is_unreadable() {
    let mut bench = subscribed(&subscription(&["a"]), "m");
    assert!(!is_expired(&bench, "d", &committed_at(0), i64::MAX), "unreadable");
    bench = subscribed(&subscription(&["a"]), &subscription(&["a"]));
    let new = bench.new_id();
    bench.send_join(join(&new));
    assert!(!is_expired(&bench, "d", &committed_at(0), i64::MAX), "rebalancing");
}

#[test]
fn other_protocol_types_never_expire_while_stable() {
    let mut bench = Bench::new();
    connect(&mut bench);
    assert!(!is_expired(&bench, "t", &committed_at(0), i64::MAX));
}

#[test]
fn pending_transactions_and_own_expiry() {
    let mut bench = Bench::new();
    bench.commit(commit("", -1)).expect("makes the group");
    let pending = CommittedOffset { has_pending_transaction: true, ..committed_at(0) };
    assert!(!is_expired(&bench, "t", &pending, i64::MAX));
    let own = CommittedOffset { expires_at_ms: Some(7_000), ..committed_at(0) };
    assert!(!is_expired(&bench, "t", &own, 6_999));
    assert!(is_expired(&bench, "t", &own, 7_000));
}

#[test]
fn delete_of_subscribed_topics_is_refused() {
    let bench = subscribed(&subscription(&["a"]), &subscription(&["b"]));
    let rules = rules_of(&bench);
    assert_eq!(rules.check_delete(), Ok(()));
    for (topic, answer) in [
        ("a", Err(GroupError::GroupSubscribedToTopic)),
        ("b", Err(GroupError::GroupSubscribedToTopic)),
        ("c", Ok(())),
    ] {
        assert_eq!(rules.check_delete_of(topic), answer, "{topic}");
    }
}

#[test]
fn delete_with_an_opaque_subscription_is_refused_for_every_topic() {
    let mut bench = Bench::new();
    let member = bench.stable();
    let rules = rules_of(&bench);
    assert_eq!(rules.check_delete(), Ok(()));
    assert_eq!(rules.check_delete_of("t"), Err(GroupError::GroupSubscribedToTopic));
    bench.leave(5, vec![leaver(&member, None)]);
    assert_eq!(rules_of(&bench).check_delete_of("t"), Ok(()), "nobody is left");
}

#[test]
fn delete_in_simple_and_connect_groups() {
    let mut bench = Bench::new();
    bench.commit(commit("", -1)).expect("makes the group");
    let rules = rules_of(&bench);
    assert_eq!((rules.check_delete(), rules.check_delete_of("t")), (Ok(()), Ok(())));
    let member = connect(&mut bench);
    assert_eq!(rules_of(&bench).check_delete(), Err(GroupError::NonEmptyGroup));
    bench.leave(5, vec![leaver(&member, None)]);
    assert_eq!(rules_of(&bench).check_delete(), Ok(()));
}

#[test]
fn metadata_is_measured_as_java_does() {
    let longest = "x".repeat(4096);
    assert_eq!(check_offset_metadata(None), Ok(()));
    assert_eq!(check_offset_metadata(Some(&longest)), Ok(()));
    let too_large = Err(GroupError::OffsetMetadataTooLarge);
    assert_eq!(check_offset_metadata(Some(&(longest + "x"))), too_large);
    assert_eq!(check_offset_metadata(Some(&"\u{e4}".repeat(4096))), Ok(()), "not bytes");
    assert_eq!(check_offset_metadata(Some(&"\u{1f600}".repeat(2049))), too_large, "pairs");
}

fn connect(bench: &mut Bench) -> String {
    let mut request = join("");
    request.version = 3;
    request.protocol_type = "connect".to_owned();
    let joined = bench.join(request).expect("alone");
    let mut request = sync(&joined.member_id, joined.generation);
    request.protocol_type = Some("connect".to_owned());
    bench.sync(request).expect("synced");
    joined.member_id
}
