//! Answers for groups that are not stored, and for the empty group id.

use floe_coordinator::GroupError;
use floe_coordinator::classic::{
    CommitCheck, Event, GroupConfig, HeartbeatRequest, JoinRequest, LeaveRequest, Response,
    ResponseToken, SyncRequest, answer_for_missing_group,
};

use crate::bench::{commit, join, leaver, sync};

const TOKEN: ResponseToken = ResponseToken(7);

fn answer(group_id: &str, event: Event) -> Option<Response> {
    let (token, response) = answer_for_missing_group(group_id, &event, &GroupConfig::default())?;
    assert_eq!(token, TOKEN);
    Some(response)
}

fn answer_to_join(group_id: &str, request: JoinRequest) -> Option<(GroupError, String)> {
    match answer(group_id, Event::Join { token: TOKEN, request })? {
        Response::Join(Err(refusal)) => Some((refusal.error, refusal.member_id)),
        other => panic!("{other:?}"),
    }
}

fn beat() -> HeartbeatRequest {
    HeartbeatRequest { member_id: "nobody".to_owned(), instance_id: None, generation: 1 }
}

#[test]
fn join_checks_1_to_3() {
    let id = |id: &str| id.to_owned();
    assert_eq!(answer_to_join("", join("m")), Some((GroupError::InvalidGroupId, id("m"))));
    let short = JoinRequest { session_timeout_ms: 5_999, ..join("") };
    assert_eq!(answer_to_join("g", short), Some((GroupError::InvalidSessionTimeout, id(""))));
    assert_eq!(answer_to_join("g", join("m")), Some((GroupError::UnknownMemberId, id("m"))));
    assert_eq!(answer_to_join("g", join("")), None, "makes the group");
}

#[test]
fn sync_and_heartbeat() {
    for (group_id, error) in [("g", GroupError::UnknownMemberId), ("", GroupError::InvalidGroupId)]
    {
        let event = Event::Sync { token: TOKEN, request: sync("m", 1) };
        assert_eq!(answer(group_id, event), Some(Response::Sync(Err(error))));
        let event = Event::Heartbeat { token: TOKEN, request: beat() };
        assert_eq!(answer(group_id, event), Some(Response::Heartbeat(Err(error))));
    }
    let request = SyncRequest { protocol_name: None, ..sync("m", 1) };
    let inconsistent = Response::Sync(Err(GroupError::InconsistentGroupProtocol));
    assert_eq!(answer("g", Event::Sync { token: TOKEN, request }), Some(inconsistent));
}

#[test]
fn leave_in_both_forms() {
    let leave = |group_id: &str, version, members| {
        let request = LeaveRequest { version, members };
        match answer(group_id, Event::Leave { token: TOKEN, request }) {
            Some(Response::Leave(answer)) => answer,
            other => panic!("{other:?}"),
        }
    };
    let single = leave("g", 2, vec![leaver("nobody", None)]);
    assert_eq!(single.error, Some(GroupError::UnknownMemberId));
    let listed = leave("g", 5, vec![leaver("nobody", None), leaver("", Some("i"))]);
    assert_eq!(listed.error, None);
    assert_eq!(listed.members.len(), 2);
    for member in listed.members {
        assert_eq!(member.error, Some(GroupError::UnknownMemberId));
    }
    let unnamed = leave("", 5, vec![leaver("nobody", None)]);
    assert_eq!((unnamed.error, unnamed.members.len()), (Some(GroupError::InvalidGroupId), 0));
}

#[test]
fn commit_delete_and_tick() {
    let check = |request| answer("g", Event::CheckCommit { token: TOKEN, request });
    let refused = |error| Some(Response::Commit(Err(error)));
    assert_eq!(check(commit("", -1)), None, "makes the group");
    assert_eq!(check(commit("nobody", -1)), None, "makes the group");
    assert_eq!(check(commit("nobody", 1)), refused(GroupError::GroupIdNotFound));
    let v8 = CommitCheck { version: 8, ..commit("nobody", 1) };
    assert_eq!(check(v8), refused(GroupError::IllegalGeneration));
    for (version, error) in [(5, GroupError::IllegalGeneration), (6, GroupError::GroupIdNotFound)] {
        let commit = CommitCheck { version, transactional: true, ..commit("nobody", 1) };
        assert_eq!(check(commit), refused(error), "TxnOffsetCommit {version}");
    }
    let gone = Some(Response::Delete(Err(GroupError::GroupIdNotFound)));
    assert_eq!(answer("g", Event::Delete { token: TOKEN }), gone);
    assert_eq!(answer("g", Event::Tick), None);
}

#[test]
fn a_stored_group_with_an_empty_id_takes_offsets_but_no_members() {
    use floe_coordinator::classic::{Effect, Group};
    let mut group = Group::new(String::new(), GroupConfig::default(), 0);
    let events = [
        Event::Join { token: TOKEN, request: join("") },
        Event::Sync { token: TOKEN, request: sync("m", 1) },
        Event::Heartbeat { token: TOKEN, request: beat() },
        Event::Leave { token: TOKEN, request: LeaveRequest { version: 5, members: Vec::new() } },
    ];
    for event in events {
        let effects = group.apply(event.clone(), 0);
        let [Effect::Respond { response, .. }] = &effects[..] else { panic!("{effects:?}") };
        let error = match response {
            Response::Join(Err(refusal)) => Some(refusal.error),
            Response::Sync(Err(error)) | Response::Heartbeat(Err(error)) => Some(*error),
            Response::Leave(answer) => answer.error,
            other => panic!("{other:?}"),
        };
        assert_eq!(error, Some(GroupError::InvalidGroupId), "{event:?}");
    }
    let event = Event::CheckCommit { token: TOKEN, request: commit("", -1) };
    let accepted = Effect::Respond { token: TOKEN, response: Response::Commit(Ok(())) };
    assert_eq!(group.apply(event, 0), [Effect::Persist, accepted]);
    let deleted = Effect::Respond { token: TOKEN, response: Response::Delete(Ok(())) };
    assert_eq!(group.apply(Event::Delete { token: TOKEN }, 0), [Effect::Persist, deleted]);
}
