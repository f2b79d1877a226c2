//! DescribeGroups and ListGroups.

use floe_coordinator::GroupError;
use floe_coordinator::classic::{GroupState, GroupView, describe_missing_group};
use floe_coordinator::group::Group;

use crate::bench::{Bench, assigning, commit, join, static_join, sync};

fn shown(view: &GroupView) -> (&str, &str, &str, usize) {
    (view.state.name(), &view.protocol_type, &view.protocol_data, view.members.len())
}

#[test]
fn states() {
    let mut bench = Bench::new();
    let leader = bench.new_id();
    assert_eq!(shown(&bench.group.describe()), ("Empty", "", "", 0), "pending only");

    bench.join(join(&leader)).expect("alone");
    let view = bench.group.describe();
    assert_eq!(shown(&view), ("CompletingRebalance", "consumer", "", 1));
    let member = &view.members[0];
    assert_eq!((&member.member_id, &member.instance_id), (&leader, &None));
    assert_eq!((member.client_id.as_str(), member.client_host.as_str()), ("probe", "/127.0.0.1"));
    assert_eq!((&member.metadata[..], &member.assignment[..]), (&b""[..], &b""[..]));

    bench.sync(assigning(sync(&leader, 1), &[(&leader, "A")])).expect("synced");
    let view = bench.group.describe();
    assert_eq!(shown(&view), ("Stable", "consumer", "range", 1));
    let member = &view.members[0];
    assert_eq!((&member.metadata[..], &member.assignment[..]), (&b"m"[..], &b"A"[..]));

    let new = bench.new_id();
    bench.send_join(join(&new));
    let view = bench.group.describe();
    assert_eq!(shown(&view), ("PreparingRebalance", "consumer", "", 2));
    for member in view.members {
        assert_eq!(&member.metadata[..], b"");
        let assignment = if member.member_id == leader { &b"A"[..] } else { b"" };
        assert_eq!(&member.assignment[..], assignment, "the last one stays");
    }
}

#[test]
fn instance_ids_are_shown() {
    let mut bench = Bench::new();
    bench.join(static_join("", "i")).expect("alone");
    assert_eq!(bench.group.describe().members[0].instance_id.as_deref(), Some("i"));
}

#[test]
fn unknown_group_by_version() {
    let (error, view) = describe_missing_group(5);
    assert_eq!((error, shown(&view)), (None, ("Dead", "", "", 0)));
    let (error, view) = describe_missing_group(6);
    assert_eq!((error, shown(&view)), (Some(GroupError::GroupIdNotFound), ("Dead", "", "", 0)));
}

#[test]
fn list_filters() {
    let mut stable = Bench::new();
    stable.stable();
    let mut empty = Bench::new();
    empty.commit(commit("", -1)).expect("makes the group");
    assert_eq!((stable.group.protocol_type(), empty.group.protocol_type()), ("consumer", ""));
    assert_eq!((stable.state(), empty.state()), (GroupState::Stable, GroupState::Empty));

    let cases: [(&[&str], &[&str], [bool; 2]); 10] = [
        (&[], &[], [true, true]),
        (&["Stable"], &[], [true, false]),
        (&["STABLE"], &[], [true, false]),
        (&["Empty"], &[], [false, true]),
        (&["Stable", "empty"], &[], [true, true]),
        (&["Dead"], &[], [false, false]),
        (&[""], &[], [false, false]),
        (&[], &["Classic", "consumer"], [true, true]),
        (&[], &["consumer"], [false, false]),
        (&["Empty"], &["classic"], [false, true]),
    ];
    for (states, types, listed) in cases {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let (states, types) = (owned(states), owned(types));
        let found = [&stable, &empty]
            .map(|bench| Group::Classic(bench.group.clone()).is_listed(&states, &types));
        assert_eq!(found, listed, "{states:?} {types:?}");
    }
}
