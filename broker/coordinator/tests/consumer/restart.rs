//! Brokers die, and what is stored goes on.

use crate::bench::{Bench, Member, REBALANCE_MS, of_t};
use floe_coordinator::GroupError;
use floe_coordinator::consumer::ConsumerState;

#[test]
fn a_restart_changes_nothing_and_stores_nothing() {
    let mut bench = Bench::new(6);
    let mut members: Vec<Member> =
        (0..3).map(|number| Member::new(&format!("m{number}"))).collect();
    for _ in 0..4 {
        bench.pass(1_000);
        members.iter_mut().for_each(|member| member.settle(&mut bench));
    }
    let (before, writes) = (bench.view(), bench.writes);
    assert_eq!(before.state, ConsumerState::Stable);
    bench.crash();
    for _ in 0..3 {
        bench.pass(5_000);
        members.iter_mut().for_each(|member| member.beat(&mut bench));
    }
    assert_eq!((bench.view(), bench.writes), (before, writes));
}

#[test]
fn topics_that_changed_while_no_broker_ran_are_noticed() {
    let mut bench = Bench::new(2);
    let mut member = Member::new("m");
    member.settle(&mut bench);
    bench.set_topics(&[("t", 1, 3)]);
    bench.crash();
    member.settle(&mut bench);
    assert_eq!(member.owned, of_t(&[0, 1, 2]));
}

#[test]
fn a_member_that_must_give_up_gets_a_whole_timeout_after_a_restart() {
    let mut bench = Bench::new(2);
    let (mut first, mut second) = (Member::new("a"), Member::new("b"));
    first.settle(&mut bench);
    bench.pass(1_000);
    second.beat(&mut bench);
    let epoch = first.epoch;
    bench.heartbeat(first.request()).expect("told to give one up");
    bench.pass(i64::from(REBALANCE_MS) - 1);
    bench.crash();
    bench.pass(i64::from(REBALANCE_MS) - 1);
    assert_eq!(bench.view().members.len(), 2);
    bench.pass(1);
    assert_eq!(bench.view().members.len(), 1);
    let refused = bench.refused(crate::bench::beats("a", epoch));
    assert_eq!(refused.0, GroupError::UnknownMemberId);
}

#[test]
fn sessions_end_after_a_restart_as_before() {
    let mut bench = Bench::new(2);
    Member::new("m").settle(&mut bench);
    bench.crash();
    bench.pass(44_999);
    assert_eq!(bench.state(), "Stable");
    bench.pass(1);
    assert_eq!(bench.state(), "Empty");
}
