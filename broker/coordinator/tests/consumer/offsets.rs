//! Who may commit and fetch offsets, and what expires.

use crate::bench::{Bench, Member, beats, commits, joins, of_t};
use floe_coordinator::GroupError;
use floe_coordinator::classic::CommitCheck;
use floe_coordinator::consumer::HeartbeatRequest;
use floe_coordinator::offsets::{CommittedOffset, OffsetRules};

#[test]
fn offset_commit() {
    let mut bench = Bench::new(2);
    let missing = bench.commit(commits("m", 1, &[0]));
    assert_eq!(missing, Err(GroupError::GroupIdNotFound));
    let mut member = Member::new("m");
    member.settle(&mut bench);
    let epoch = member.epoch;
    let v8 = CommitCheck { version: 8, ..commits("m", epoch, &[0]) };
    assert_eq!(bench.commit(v8), Err(GroupError::UnsupportedVersion));
    assert_eq!(bench.commit(commits("m", epoch, &[0])), Ok(()));
    let stale = Err(GroupError::StaleMemberEpoch);
    assert_eq!(bench.commit(commits("m", epoch + 1, &[0])), stale);
    assert_eq!(bench.commit(commits("m", epoch - 1, &[0])), stale);
    let unknown = Err(GroupError::UnknownMemberId);
    assert_eq!(bench.commit(commits("n", epoch, &[0])), unknown);
    assert_eq!(bench.commit(commits("", -1, &[0])), unknown);
    let transactional =
        CommitCheck { transactional: true, version: 3, ..commits("m", epoch - 1, &[0]) };
    assert_eq!(bench.commit(transactional), Err(GroupError::IllegalGeneration));
    let nobody = CommitCheck { transactional: true, ..commits("", -1, &[0]) };
    assert_eq!(bench.commit(nobody), Ok(()));
    bench.heartbeat(beats("m", -1)).expect("left");
    assert_eq!(bench.commit(commits("", -1, &[0])), Ok(()));
}

#[test]
fn an_older_epoch_commits_what_the_member_has_had_since() {
    let mut bench = Bench::new(2);
    let (mut first, mut second) = (Member::new("a"), Member::new("b"));
    first.settle(&mut bench);
    let epoch = first.epoch;
    bench.pass(1_000);
    second.settle(&mut bench);
    first.settle(&mut bench);
    assert_eq!((first.epoch, first.owned.clone()), (epoch + 1, of_t(&[0])));
    assert_eq!(bench.commit(commits("a", epoch, &[0])), Ok(()));
    let stale = Err(GroupError::StaleMemberEpoch);
    assert_eq!(bench.commit(commits("a", epoch, &[0, 1])), stale, "it has given 1 up");
    second.settle(&mut bench);
    assert_eq!(bench.commit(commits("b", second.epoch, &[1])), Ok(()));
    assert_eq!(bench.commit(commits("b", epoch, &[1])), stale, "it was not its own then");
}

#[test]
fn offset_fetch() {
    let mut bench = Bench::new(2);
    assert_eq!(bench.fetch(Some("m"), 1), Ok(()), "no group, no offsets, no error");
    let mut member = Member::new("m");
    member.settle(&mut bench);
    let epoch = member.epoch;
    assert_eq!(bench.fetch(Some("m"), epoch), Ok(()));
    for other in [epoch - 1, epoch + 1] {
        assert_eq!(bench.fetch(Some("m"), other), Err(GroupError::StaleMemberEpoch));
    }
    assert_eq!(bench.fetch(Some("n"), epoch), Err(GroupError::UnknownMemberId));
    assert_eq!(bench.fetch(None, -1), Ok(()));
}

#[test]
fn offsets_of_subscribed_topics_stay_and_others_expire() {
    let mut bench = Bench::new(2);
    bench.heartbeat(joins("m")).expect("joined");
    let regex = Some("u.*".to_owned());
    bench.heartbeat(HeartbeatRequest { topic_regex: regex, ..joins("n") }).expect("joined");
    let offset =
        CommittedOffset { committed_at_ms: 0, expires_at_ms: None, has_pending_transaction: false };
    let rules = OffsetRules::of(bench.group.as_ref().expect("a group"));
    let expired = |topic: &str| rules.is_expired(topic, &offset, 2_000, 1_000);
    assert_eq!((expired("t"), expired("u1"), expired("other")), (false, false, true));
    let regex = Some("u.*".to_owned());
    bench.heartbeat(HeartbeatRequest { topic_regex: regex, ..joins("o") }).expect("joined");
    let shared = OffsetRules::of(bench.group.as_ref().expect("a group"));
    assert_eq!(shared, rules, "an expression is compiled once for all members that have it");
    assert_eq!(rules.check_delete(), Ok(()));
    assert_eq!(rules.check_delete_of("t"), Err(GroupError::GroupSubscribedToTopic));
    assert_eq!(rules.check_delete_of("other"), Ok(()));

    bench.heartbeat(beats("m", -1)).expect("left");
    bench.heartbeat(beats("n", -1)).expect("left");
    bench.heartbeat(beats("o", -1)).expect("left");
    let rules = OffsetRules::of(bench.group.as_ref().expect("a group"));
    assert!(rules.is_expired("t", &offset, 1_000, 1_000));
    assert!(!rules.is_expired("t", &offset, 999, 1_000), "from the commit on, as in Kafka");
}
