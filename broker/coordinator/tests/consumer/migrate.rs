//! Both protocols in one group, and groups that change from one to the other.

use crate::bench::{Bench, GROUP, Member, beats, commits, joins, of_instance, of_t};
use crate::embedded::{assigned, assignment, classic_join, subscription};
use bytes::Bytes;
use floe_coordinator::GroupError;
use floe_coordinator::classic::{
    self, CommitCheck, HeartbeatRequest, JoinRefusal, JoinRequest, Joined, LeaveRequest, Leaver,
    SyncRequest, Synced,
};
use floe_coordinator::consumer::{MigrationPolicy, Partitions};
use uuid::Uuid;

fn join(bench: &mut Bench, request: JoinRequest) -> Result<Joined, JoinRefusal> {
    match bench.classic(|token| classic::Event::Join { token, request }) {
        Some(classic::Response::Join(answer)) => answer,
        other => panic!("no answer to a join: {other:?}"),
    }
}

fn sync(
    bench: &mut Bench,
    joined: &Joined,
    assignments: &[(&str, Bytes)],
) -> Result<Synced, GroupError> {
    let assignments = assignments.iter().map(|(id, bytes)| ((*id).to_owned(), bytes.clone()));
    let request = SyncRequest {
        version: 5,
        member_id: joined.member_id.clone(),
        instance_id: None,
        generation: joined.generation,
        protocol_type: Some("consumer".to_owned()),
        protocol_name: Some("range".to_owned()),
        assignments: assignments.collect(),
    };
    match bench.classic(|token| classic::Event::Sync { token, request }) {
        Some(classic::Response::Sync(answer)) => answer,
        other => panic!("no answer to a sync: {other:?}"),
    }
}

fn classic_beat(bench: &mut Bench, member_id: &str, generation: i32) -> Result<(), GroupError> {
    let member_id = member_id.to_owned();
    let request = HeartbeatRequest { member_id, instance_id: None, generation };
    match bench.classic(|token| classic::Event::Heartbeat { token, request }) {
        Some(classic::Response::Heartbeat(answer)) => answer,
        other => panic!("no answer to a heartbeat: {other:?}"),
    }
}

fn leave(bench: &mut Bench, member_id: &str) -> Option<GroupError> {
    let members = vec![Leaver { member_id: member_id.to_owned(), instance_id: None }];
    let request = LeaveRequest { version: 5, members };
    match bench.classic(|token| classic::Event::Leave { token, request }) {
        Some(classic::Response::Leave(answer)) => answer.error.or(answer.members[0].error),
        other => panic!("no answer to a leave: {other:?}"),
    }
}

/// A classic group with one member, which has both partitions.
fn classic_group(metadata: Bytes) -> (Bench, Joined) {
    let mut bench = Bench::new(2);
    let required = join(&mut bench, classic_join("", metadata.clone())).expect_err("an id first");
    assert_eq!(required.error, GroupError::MemberIdRequired);
    let joined = join(&mut bench, classic_join(&required.member_id, metadata)).expect("joined");
    let own = joined.member_id.clone();
    sync(&mut bench, &joined, &[(&own, assignment(&[0, 1]))]).expect("synced");
    (bench, joined)
}

#[test]
fn opaque_classic_join_into_a_consumer_group() {
    let mut bench = Bench::new(2);
    Member::new("one").settle(&mut bench);
    let opaque = Bytes::from_static(b"m");
    let required = join(&mut bench, classic_join("", opaque.clone())).expect_err("an id first");
    assert_eq!(required.error, GroupError::MemberIdRequired);
    let refusal = join(&mut bench, classic_join(&required.member_id, opaque)).expect_err("opaque");
    let inconsistent =
        JoinRefusal { error: GroupError::InconsistentGroupProtocol, member_id: String::new() };
    assert_eq!(refusal, inconsistent);
    let mut connect = classic_join("", subscription(&[]));
    connect.protocol_type = "connect".to_owned();
    assert_eq!(join(&mut bench, connect), Err(inconsistent));
    assert_eq!(bench.view().members.len(), 1);
}

#[test]
fn classic_consumer_joins_a_consumer_group() {
    let mut bench = Bench::new(2);
    let mut one = Member::new("one");
    one.settle(&mut bench);
    let required = join(&mut bench, classic_join("", subscription(&[]))).expect_err("an id first");
    let member_id = required.member_id;
    let joined = join(&mut bench, classic_join(&member_id, subscription(&[]))).expect("joined");
    assert_eq!(
        (joined.protocol_type.as_str(), joined.protocol_name.as_str()),
        ("consumer", "range")
    );
    assert_eq!((joined.leader.as_str(), joined.members.len()), ("", 0), "nobody leads");
    let synced = sync(&mut bench, &joined, &[]).expect("synced");
    assert_eq!(synced.assignment, assignment(&[]), "the other holds them");
    let types: Vec<bool> = bench.view().members.iter().map(|member| member.is_classic).collect();
    assert_eq!(types, [true, false]);
    assert_eq!(classic_beat(&mut bench, &member_id, joined.generation), Ok(()));
    assert_eq!(classic_beat(&mut bench, "one", one.epoch), Err(GroupError::UnknownMemberId));
    assert_eq!(bench.commit(commits(&member_id, joined.generation, &[])), Ok(()));
    let old = CommitCheck { version: 6, ..commits(&member_id, joined.generation - 1, &[]) };
    assert_eq!(bench.commit(old), Err(GroupError::IllegalGeneration));

    // The other gives one up: the classic member hears that it should join again.
    one.settle(&mut bench);
    let rebalance = Err(GroupError::RebalanceInProgress);
    assert_eq!(classic_beat(&mut bench, &member_id, joined.generation), rebalance);
    let joined = join(&mut bench, classic_join(&member_id, subscription(&[]))).expect("joined");
    let synced = sync(&mut bench, &joined, &[]).expect("synced");
    assert_eq!(synced.assignment, assignment(&[1]));
    assert_eq!(bench.state(), "Stable");

    bench.heartbeat(beats("one", -1)).expect("left");
    assert_eq!((bench.kind(), bench.state()), ("classic", "PreparingRebalance"));
    assert_eq!(classic_beat(&mut bench, &member_id, joined.generation), rebalance);
    let last = CommitCheck { version: 8, ..commits(&member_id, joined.generation, &[1]) };
    assert_eq!(bench.commit(last.clone()), Ok(()), "what it has read is not lost");
    let again = join(&mut bench, classic_join(&member_id, subscription(&[1]))).expect("joined");
    assert_eq!(again.leader, member_id);
    assert!(again.generation > joined.generation);
    assert_eq!(bench.commit(last), Err(GroupError::IllegalGeneration));
}

#[test]
fn a_silent_consumer_leaves_a_classic_group_whose_members_may_commit() {
    let mut bench = Bench::new(2);
    Member::new("one").settle(&mut bench);
    let old = JoinRequest { version: 3, ..classic_join("", subscription(&[])) };
    let joined = join(&mut bench, old).expect("joined");
    sync(&mut bench, &joined, &[]).expect("synced");
    for _ in 0..9 {
        bench.pass(5_000);
        let _ = classic_beat(&mut bench, &joined.member_id, joined.generation);
    }
    assert_eq!((bench.kind(), bench.state()), ("classic", "PreparingRebalance"));
    let commit = CommitCheck { version: 8, ..commits(&joined.member_id, joined.generation, &[]) };
    assert_eq!(bench.commit(commit), Ok(()));
}

#[test]
fn a_refused_classic_join_leaves_an_empty_consumer_group_as_it_is() {
    let mut bench = Bench::new(2);
    Member::new("one").settle(&mut bench);
    bench.heartbeat(beats("one", -1)).expect("left");
    let unknown = join(&mut bench, classic_join("nobody", subscription(&[])));
    assert_eq!(unknown.expect_err("refused").error, GroupError::UnknownMemberId);
    let mut hasty = classic_join("", subscription(&[]));
    hasty.session_timeout_ms = 1;
    let refused = join(&mut bench, hasty).expect_err("refused");
    assert_eq!(refused.error, GroupError::InvalidSessionTimeout);
    assert_eq!((bench.kind(), bench.state()), ("consumer", "Empty"));
}

/// A cooperative member that has both partitions, and another one; they have joined generation 2.
fn two_cooperative_members() -> (Bench, Joined) {
    let (mut bench, leader) = classic_group(subscription(&[]));
    join_old_and_wait(&mut bench, 8);
    let again = join(&mut bench, classic_join(&leader.member_id, subscription(&[0, 1])));
    (bench, again.expect("joined"))
}

/// Somebody joins whose answer is held.
fn join_old_and_wait(bench: &mut Bench, number: u128) {
    let (token, new_id) = (bench.token(), Uuid::from_u128(number));
    let request = JoinRequest { version: 3, new_id, ..classic_join("", subscription(&[])) };
    let event = classic::Event::Join { token, request };
    assert_eq!(bench.apply(floe_coordinator::group::Event::Classic(event)), []);
}

/// Nobody else gets what the member still reads, until it has joined without it.
fn gives_up_first(mut bench: Bench, member_id: &str) {
    let held = |bench: &Bench| {
        let mut members = bench.view().members.into_iter();
        members.find(|member| member.member_id == member_id).expect("a member").assigned
    };
    let mut one = Member::new("one");
    one.beat(&mut bench);
    assert_eq!((bench.kind(), one.owned.clone()), ("consumer", Partitions::new()));
    assert_eq!(held(&bench), of_t(&[0, 1]));
    let owning = classic_join(member_id, subscription(&[0, 1]));
    let told = join(&mut bench, owning).expect("joined");
    let kept = sync(&mut bench, &told, &[]).expect("synced");
    one.settle(&mut bench);
    assert!(one.owned.is_empty(), "the other was told to give it up, and has not yet");
    let kept: Vec<i32> = assigned(&kept.assignment).into_iter().collect();
    assert_eq!(kept.len(), 1);
    let joined = join(&mut bench, classic_join(member_id, subscription(&kept))).expect("joined");
    assert!(joined.generation > told.generation, "it has given it up");
    assert_eq!(held(&bench), of_t(&kept));
}

#[test]
fn an_upgrade_in_a_rebalance_takes_nothing_from_a_cooperative_member() {
    let (mut bench, joined) = two_cooperative_members();
    // The assignment of generation 2 never comes.
    join_old_and_wait(&mut bench, 9);
    gives_up_first(bench, &joined.member_id);
}

#[test]
fn an_upgrade_after_a_lost_sync_takes_nothing_from_a_cooperative_member() {
    let (mut bench, joined) = two_cooperative_members();
    let member_id = joined.member_id.clone();
    // The answer, which says that the member is to give 1 up, is lost.
    sync(&mut bench, &joined, &[(&member_id, assignment(&[0]))]).expect("synced");
    gives_up_first(bench, &member_id);
}

#[test]
fn a_static_classic_member_comes_back_with_the_newer_protocol() {
    let mut bench = Bench::new(2);
    let instance_id = Some("i".to_owned());
    let old = JoinRequest { instance_id, ..classic_join("", subscription(&[])) };
    let joined = join(&mut bench, old).expect("joined");
    sync(&mut bench, &joined, &[(&joined.member_id, assignment(&[0, 1]))]).expect("synced");
    // It stopped without a word, as static members do.
    let back = bench.heartbeat(of_instance(joins("new"), "i")).expect("took its place");
    assert_eq!((bench.kind(), back.assignment), ("consumer", Some(of_t(&[0, 1]))));
    let members = bench.view().members;
    assert_eq!((members.len(), members[0].member_id.as_str()), (1, "new"));
    let request = HeartbeatRequest {
        member_id: joined.member_id,
        instance_id: Some("i".to_owned()),
        generation: joined.generation,
    };
    match bench.classic(|token| classic::Event::Heartbeat { token, request }) {
        Some(classic::Response::Heartbeat(answer)) => {
            assert_eq!(answer, Err(GroupError::FencedInstanceId));
        }
        other => panic!("no answer to a heartbeat: {other:?}"),
    }
}

#[test]
fn a_member_that_changes_its_protocol_has_the_deadlines_of_the_new_one() {
    let (mut bench, joined) = classic_group(subscription(&[]));
    bench.heartbeat(joins("one")).expect("joined");
    let rebalance = Err(GroupError::RebalanceInProgress);
    assert_eq!(classic_beat(&mut bench, &joined.member_id, joined.generation), rebalance);
    let mut moved = Member::new(&joined.member_id);
    for _ in 0..6 {
        moved.settle(&mut bench);
        bench.pass(5_000);
    }
    assert!(bench.view().members.iter().any(|member| member.member_id == moved.id));
}

#[test]
fn a_classic_member_gives_up_before_another_gets() {
    let (mut bench, joined) = classic_group(subscription(&[]));
    let mut one = Member::new("one");
    one.beat(&mut bench);
    assert_eq!((bench.kind(), one.owned.clone()), ("consumer", Partitions::new()));
    let member_id = joined.member_id.clone();
    // It still owns both: it is told to keep one, under its old generation.
    let owning = classic_join(&member_id, subscription(&[0, 1]));
    let told = join(&mut bench, owning).expect("joined");
    assert_eq!(told.generation, joined.generation);
    let kept = sync(&mut bench, &told, &[]).expect("synced");
    assert_eq!(kept.assignment, assignment(&[0]));
    one.beat(&mut bench);
    assert!(one.owned.is_empty(), "not given up yet");
    let rebalance = Err(GroupError::RebalanceInProgress);
    assert_eq!(classic_beat(&mut bench, &member_id, told.generation), rebalance);
    let told = join(&mut bench, classic_join(&member_id, subscription(&[0]))).expect("joined");
    assert!(told.generation > joined.generation);
    sync(&mut bench, &told, &[]).expect("synced");
    one.beat(&mut bench);
    assert_eq!(one.owned, of_t(&[1]));
    assert_eq!(bench.state(), "Stable");
}

#[test]
fn a_classic_member_that_does_not_join_again_is_removed() {
    let (mut bench, joined) = classic_group(subscription(&[]));
    let mut one = Member::new("one");
    one.beat(&mut bench);
    let member_id = joined.member_id;
    for _ in 0..4 {
        let rebalance = Err(GroupError::RebalanceInProgress);
        assert_eq!(classic_beat(&mut bench, &member_id, joined.generation), rebalance);
        bench.pass(5_000);
    }
    assert_eq!(bench.view().members.len(), 1);
    one.settle(&mut bench);
    assert_eq!(one.owned, of_t(&[0, 1]));
}

#[test]
fn consumer_joins_a_classic_consumer_group() {
    let (mut bench, joined) = classic_group(subscription(&[]));
    bench.heartbeat(joins("one")).expect("joined");
    assert_eq!((bench.kind(), bench.state()), ("consumer", "Reconciling"));
    let rebalance = Err(GroupError::RebalanceInProgress);
    assert_eq!(classic_beat(&mut bench, &joined.member_id, joined.generation), rebalance);
    let meanwhile =
        CommitCheck { version: 8, ..commits(&joined.member_id, joined.generation, &[0]) };
    assert_eq!(bench.commit(meanwhile), Ok(()));
    bench.crash();
    assert_eq!((bench.kind(), bench.view().members.len()), ("consumer", 2));
}

#[test]
fn what_cannot_be_moved_stays_as_it_is() {
    let (mut bench, joined) = classic_group(Bytes::from_static(b"m"));
    let refused = |reason: &str| {
        let message =
            format!("Cannot upgrade classic group {GROUP} to consumer group because {reason}.");
        (GroupError::GroupIdNotFound, message)
    };
    let malformed = "the embedded consumer protocol is malformed";
    assert_eq!(bench.refused(joins("one")), refused(malformed));
    assert_eq!(classic_beat(&mut bench, &joined.member_id, joined.generation), Ok(()));
    let (error, message) = bench.refused(beats("one", -1));
    assert_eq!(error, GroupError::GroupIdNotFound);
    assert_eq!(message, format!("Group {GROUP} is not a consumer group."));

    let mut bench = Bench::new(2);
    let mut connect = classic_join("", subscription(&[]));
    (connect.protocol_type, connect.version) = ("connect".to_owned(), 3);
    join(&mut bench, connect).expect("joined");
    let other = "the group does not use the consumer embedded protocol";
    assert_eq!(bench.refused(joins("one")), refused(other));

    let (mut bench, _) = classic_group(subscription(&[]));
    bench.rules.consumer.migration = MigrationPolicy::Downgrade;
    let disabled = "the online upgrade is disabled";
    assert_eq!(bench.refused(joins("one")), refused(disabled));
}

#[test]
fn two_members_with_one_partition_are_not_moved() {
    let (mut bench, leader) = classic_group(subscription(&[]));
    let token = bench.token();
    let new_id = Uuid::from_u128(8);
    let second = JoinRequest { version: 3, new_id, ..classic_join("", subscription(&[])) };
    let event = classic::Event::Join { token, request: second };
    bench.apply(floe_coordinator::group::Event::Classic(event));
    let joined = join(&mut bench, classic_join(&leader.member_id, subscription(&[])));
    let joined = joined.expect("joined");
    let both: Vec<(&str, Bytes)> =
        joined.members.iter().map(|it| (it.member_id.as_str(), assignment(&[0]))).collect();
    sync(&mut bench, &joined, &both).expect("synced");
    assert_eq!(bench.refused(joins("one")).0, GroupError::GroupIdNotFound);
}

#[test]
fn empty_groups_become_what_the_first_member_speaks() {
    let (mut bench, joined) = classic_group(subscription(&[]));
    assert_eq!(leave(&mut bench, &joined.member_id), None);
    let mut one = Member::new("one");
    one.settle(&mut bench);
    assert_eq!((bench.kind(), bench.state()), ("consumer", "Stable"));
    assert!(one.epoch > joined.generation, "no epoch is told twice");
    assert_eq!(leave(&mut bench, "one"), None, "LeaveGroup may name it");
    assert_eq!((bench.kind(), bench.state()), ("consumer", "Empty"));
    let back = JoinRequest { version: 3, ..classic_join("", subscription(&[])) };
    let joined = join(&mut bench, back).expect("joined");
    assert_eq!((joined.members.len(), bench.kind()), (1, "classic"));
    assert!(joined.generation > one.epoch);
    assert_eq!(bench.state(), "CompletingRebalance");
    bench.crash();
    assert_eq!(bench.kind(), "classic");
}

#[test]
fn without_downgrade_classic_members_stay_in_the_consumer_group() {
    let mut bench = Bench::new(2);
    bench.rules.consumer.migration = MigrationPolicy::Upgrade;
    let mut one = Member::new("one");
    one.settle(&mut bench);
    let old = JoinRequest { version: 3, ..classic_join("", subscription(&[])) };
    let joined = join(&mut bench, old).expect("joined");
    bench.heartbeat(beats("one", -1)).expect("left");
    assert_eq!(bench.kind(), "consumer");
    let rebalance = Err(GroupError::RebalanceInProgress);
    assert_eq!(classic_beat(&mut bench, &joined.member_id, joined.generation), rebalance);
    let joined = join(&mut bench, classic_join(&joined.member_id, subscription(&[])));
    let synced = sync(&mut bench, &joined.expect("joined"), &[]).expect("synced");
    assert_eq!(synced.assignment, assignment(&[0, 1]));
}
