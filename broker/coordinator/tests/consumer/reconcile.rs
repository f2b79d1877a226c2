//! From one target to the next: what is given up, waited for, and lost on the way.

use crate::bench::{Bench, Member, REBALANCE_MS, beats, joins, of_t};
use floe_coordinator::GroupError;
use floe_coordinator::consumer::{ConsumerState, HeartbeatRequest, Partitions};

/// One member with both partitions, and one that has just joined.
fn two_members() -> (Bench, Member, Member) {
    let mut bench = Bench::new(2);
    let (mut first, mut second) = (Member::new("a"), Member::new("b"));
    first.settle(&mut bench);
    bench.pass(1_000);
    second.beat(&mut bench);
    (bench, first, second)
}

#[test]
fn two_members_reconcile() {
    let (mut bench, mut first, mut second) = two_members();
    let epoch = first.epoch;
    assert_eq!((second.owned.clone(), second.epoch), (Partitions::new(), epoch + 1));
    let told = bench.heartbeat(first.request()).expect("right");
    assert_eq!((told.member_epoch, told.assignment.clone()), (epoch, Some(of_t(&[0]))));
    second.beat(&mut bench);
    assert!(second.owned.is_empty(), "the other still holds it");
    assert_eq!(bench.view().state, ConsumerState::Reconciling);

    // A heartbeat that says nothing, or still names the partition, gives up nothing.
    for owned in [None, Some(of_t(&[0, 1]))] {
        let still = bench.heartbeat(HeartbeatRequest { owned, ..beats("a", epoch) });
        assert_eq!(still.expect("right").member_epoch, epoch);
        second.beat(&mut bench);
        assert!(second.owned.is_empty());
    }
    first.take(Ok(told));
    first.beat(&mut bench);
    assert_eq!(first.epoch, epoch + 1);
    second.beat(&mut bench);
    assert_eq!(second.owned, of_t(&[1]));
    first.settle(&mut bench);
    second.settle(&mut bench);
    assert_eq!(bench.view().state, ConsumerState::Stable);
}

#[test]
fn who_does_not_give_up_in_time_is_removed() {
    let (mut bench, mut first, mut second) = two_members();
    bench.heartbeat(first.request()).expect("told to give one up");
    let epoch = first.epoch;
    bench.pass(i64::from(REBALANCE_MS) / 2);
    bench.heartbeat(beats("a", epoch)).expect("its session goes on");
    second.beat(&mut bench);
    bench.pass(i64::from(REBALANCE_MS) / 2);
    assert_eq!(bench.refused(beats("a", epoch)).0, GroupError::UnknownMemberId);
    second.settle(&mut bench);
    assert_eq!(second.owned, of_t(&[0, 1]));
    first.beat(&mut bench);
    assert_eq!((first.epoch, first.owned.len()), (0, 0), "it starts anew");
}

#[test]
fn an_answer_that_was_lost_is_given_again() {
    let (mut bench, mut first, second) = two_members();
    first.beat(&mut bench);
    let before = first.epoch;
    let lost = bench.heartbeat(first.request()).expect("right");
    assert_eq!(lost.member_epoch, before + 1);
    // The same again, under the epoch that the member still has.
    first.tells = true;
    first.beat(&mut bench);
    assert_eq!((first.epoch, first.owned.clone()), (before + 1, of_t(&[0])));
    let foreign = HeartbeatRequest { owned: Some(of_t(&[0, 1])), ..beats("a", before) };
    assert_eq!(bench.refused(foreign).0, GroupError::FencedMemberEpoch);
    assert!(second.owned.is_empty());
}

#[test]
fn a_member_whose_subscription_changes_gets_its_new_target_at_once() {
    let mut bench = Bench::new(2);
    bench.set_topics(&[("t", 1, 2), ("u", 2, 1)]);
    let joined = bench.heartbeat(joins("m")).expect("joined");
    let names = Some(["u".to_owned()].into());
    let change = HeartbeatRequest { topic_names: names, ..beats("m", joined.member_epoch) };
    let told = bench.heartbeat(change).expect("right");
    assert_eq!(told.assignment, Some(Partitions::new()), "first it gives the old topic up");
    let owned = Some(Partitions::new());
    let after = HeartbeatRequest { owned, ..beats("m", told.member_epoch) };
    let answer = bench.heartbeat(after).expect("right");
    assert_eq!(answer.assignment.map(|assigned| assigned.len()), Some(1));
}

#[test]
fn a_member_that_joins_again_keeps_what_is_its_own() {
    let (mut bench, mut first, mut second) = two_members();
    first.settle(&mut bench);
    second.settle(&mut bench);
    let epoch = bench.view().epoch;
    let again = bench.heartbeat(joins("b")).expect("joined again");
    assert_eq!(again.assignment, Some(of_t(&[1])));
    assert_eq!(bench.view().epoch, epoch, "nobody else is disturbed");
}
