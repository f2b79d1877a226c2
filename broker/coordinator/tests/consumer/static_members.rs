//! Static members: one instance id, one member at a time.

use crate::bench::{Bench, Member, beats, joins, of_instance, of_t};
use floe_coordinator::GroupError;
use floe_coordinator::consumer::HeartbeatRequest;

fn settled() -> (Bench, i32) {
    let mut bench = Bench::new(2);
    let joined = bench.heartbeat(of_instance(joins("one"), "i")).expect("joined");
    assert_eq!(joined.assignment, Some(of_t(&[0, 1])));
    (bench, joined.member_epoch)
}

#[test]
fn static_member() {
    let (mut bench, epoch) = settled();
    let message = "Static member two with instance id i cannot join the group because the \
                   instance id is owned by one member.";
    let used = bench.refused(of_instance(joins("two"), "i"));
    assert_eq!(used, (GroupError::UnreleasedInstanceId, message.to_owned()));
    let unknown = bench.refused(of_instance(beats("one", epoch), "j"));
    assert_eq!(unknown, (GroupError::UnknownMemberId, "Instance id j is unknown.".to_owned()));

    let away = bench.heartbeat(of_instance(beats("one", -2), "i")).expect("away");
    assert_eq!((away.member_epoch, away.heartbeat_interval_ms), (-2, 0));
    assert_eq!(bench.view().members[0].epoch, -2);
    let (error, message) = bench.refused(of_instance(beats("one", epoch), "i"));
    assert_eq!(error, GroupError::FencedMemberEpoch);
    assert!(message.contains("known by the group coordinator (-2)"), "{message}");

    let back = bench.heartbeat(of_instance(joins("two"), "i")).expect("took its place");
    assert_eq!((back.member_id.as_str(), back.member_epoch), ("two", epoch));
    assert_eq!(back.assignment, Some(of_t(&[0, 1])));
    let message = "Static member one with instance id i was fenced by member two.";
    let fenced = bench.refused(of_instance(beats("one", epoch), "i"));
    assert_eq!(fenced, (GroupError::FencedInstanceId, message.to_owned()));
    let gone = bench.heartbeat(of_instance(beats("two", -1), "i")).expect("left for good");
    assert_eq!((gone.member_epoch, bench.state()), (-1, "Empty"));
}

#[test]
fn partitions_wait_for_a_static_member_until_its_session_ends() {
    let (mut bench, _) = settled();
    bench.pass(1_000);
    let other = bench.heartbeat(joins("other")).expect("joined");
    let mut kept = bench.heartbeat(of_instance(beats("one", 2), "i")).expect("told");
    kept = bench
        .heartbeat(HeartbeatRequest {
            owned: kept.assignment.clone(),
            ..of_instance(beats("one", kept.member_epoch), "i")
        })
        .expect("gave one up");
    bench.heartbeat(beats("other", other.member_epoch)).expect("right");
    bench.heartbeat(of_instance(beats("one", -2), "i")).expect("away");
    bench.pass(40_000);
    let answer = bench.heartbeat(beats("other", kept.member_epoch)).expect("right");
    assert_eq!(answer.assignment, None, "the partition is not given away");
    bench.pass(6_000);
    let answer = bench.heartbeat(beats("other", kept.member_epoch)).expect("right");
    assert_eq!(answer.assignment, Some(of_t(&[0, 1])));
}

#[test]
fn what_a_static_member_had_to_give_up_is_free_when_it_goes() {
    let (mut bench, epoch) = settled();
    bench.pass(1_000);
    let other = bench.heartbeat(joins("other")).expect("joined");
    bench.heartbeat(of_instance(beats("one", epoch), "i")).expect("told to give one up");
    bench.heartbeat(of_instance(beats("one", -2), "i")).expect("away");
    let answer = bench.heartbeat(beats("other", other.member_epoch)).expect("right");
    assert_eq!(answer.assignment, Some(of_t(&[1])));
    let back = bench.heartbeat(of_instance(joins("next"), "i")).expect("back");
    assert_eq!(back.assignment, Some(of_t(&[0])));
}

#[test]
fn a_member_that_takes_a_static_place_gives_up_what_it_had() {
    let (mut bench, epoch) = settled();
    bench.pass(1_000);
    let (mut one, mut two) = (Member::new("one"), Member::new("two"));
    (one.epoch, one.owned) = (epoch, of_t(&[0, 1]));
    two.settle(&mut bench);
    for _ in 0..2 {
        let told = bench.heartbeat(of_instance(one.request(), "i"));
        one.take(told);
        two.settle(&mut bench);
    }
    assert_eq!((one.owned.clone(), two.owned.clone()), (of_t(&[0]), of_t(&[1])));
    bench.heartbeat(of_instance(beats("one", -2), "i")).expect("away");
    bench.pass(1_000);
    let mut place = bench.heartbeat(of_instance(joins("two"), "i")).expect("took the place");
    for _ in 0..3 {
        bench.pass(1_000);
        let beat = of_instance(beats("two", place.member_epoch), "i");
        place = bench.heartbeat(beat).expect("a member");
    }
    let members = bench.view().members;
    assert_eq!((members.len(), members[0].assigned.clone()), (1, of_t(&[0, 1])));
}

#[test]
fn a_member_may_name_its_instance_when_it_joins_again() {
    let mut bench = Bench::new(2);
    bench.heartbeat(joins("m")).expect("joined");
    for instance_id in ["i", "j"] {
        let named = bench.heartbeat(of_instance(joins("m"), instance_id)).expect("joined again");
        let beat = of_instance(beats("m", named.member_epoch), instance_id);
        assert_eq!(bench.heartbeat(beat).expect("its own").member_epoch, named.member_epoch);
        let member = bench.view().members.remove(0);
        assert_eq!(member.instance_id.as_deref(), Some(instance_id));
    }
    bench.crash();
    let (error, _) = bench.refused(of_instance(joins("n"), "j"));
    assert_eq!(error, GroupError::UnreleasedInstanceId);
    bench.heartbeat(of_instance(joins("n"), "i")).expect("that one is free again");
}
