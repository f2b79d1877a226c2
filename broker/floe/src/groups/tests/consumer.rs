//! Groups of the newer protocol in the shell: what is stored, when, and what a restart leaves.

use super::*;
use floe_coordinator::consumer::{ConsumerState, ConsumerView, HeartbeatRequest, Partitions};

fn beats(member_id: &str, member_epoch: i32) -> HeartbeatRequest {
    HeartbeatRequest {
        version: 1,
        member_id: member_id.to_owned(),
        member_epoch,
        instance_id: None,
        rack_id: None,
        client_id: "client".to_owned(),
        client_host: "/127.0.0.1".to_owned(),
        new_id: Uuid::nil(),
        rebalance_timeout_ms: -1,
        topic_names: None,
        topic_regex: None,
        server_assignor: None,
        owned: None,
    }
}

fn joins(member_id: &str) -> HeartbeatRequest {
    HeartbeatRequest {
        rebalance_timeout_ms: 60_000,
        topic_names: Some(["t".to_owned()].into()),
        owned: Some(Partitions::new()),
        ..beats(member_id, 0)
    }
}

async fn view(groups: &Groups) -> ConsumerView {
    match groups.describe(GROUP).await.unwrap() {
        Described::Consumer(view) => view,
        other => panic!("not a consumer group: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_moves_nothing_and_heartbeats_store_nothing() {
    let world = World::new();
    let topic = world.topic("t").await;
    let before = world.start().await;
    let joined = before.groups.consumer_heartbeat(GROUP, joins("m")).await.unwrap();
    let assigned = joined.assignment.unwrap();
    assert_eq!(assigned[&topic.0], [0, 1, 2].into());
    let stored = world.metadata.group(GROUP).await.unwrap();
    before.trigger.trigger();

    let Running { groups: after, trigger: _after_runs } = world.start().await;
    for _ in 0..20 {
        let beat = after.consumer_heartbeat(GROUP, beats("m", joined.member_epoch)).await.unwrap();
        assert_eq!((beat.member_epoch, beat.assignment), (joined.member_epoch, None));
        world.env.sleep(Duration::from_secs(5)).await;
    }
    assert_eq!(world.metadata.group(GROUP).await.unwrap(), stored);
    assert_eq!(view(&after).await.state, ConsumerState::Stable);
    world.env.sleep(Duration::from_secs(46)).await;
    assert_eq!(view(&after).await.state, ConsumerState::Empty, "silence ends the session");
}

#[tokio::test(start_paused = true)]
async fn what_another_broker_does_to_topics_is_seen() {
    let world = World::new();
    world.topic("t").await;
    let Running { groups, trigger: _running } = world.start().await;
    let regex = Some("t.*".to_owned());
    let join = HeartbeatRequest { topic_names: None, topic_regex: regex, ..joins("m") };
    let joined = groups.consumer_heartbeat(GROUP, join).await.unwrap();
    // Not through this broker.
    let other = world.topic("t2").await;
    world.env.sleep(Duration::from_secs(31)).await;
    let beat = groups.consumer_heartbeat(GROUP, beats("m", joined.member_epoch)).await.unwrap();
    assert!(beat.assignment.unwrap().contains_key(&other.0));
}

#[tokio::test(start_paused = true)]
async fn a_fenced_broker_assigns_nothing() {
    let world = World::new();
    world.topic("t").await;
    let Running { groups: old, trigger: _old_runs } = world.start().await;
    let joined = old.consumer_heartbeat(GROUP, joins("m")).await.unwrap();
    let Running { groups: new, trigger: _new_runs } = world.start().await;
    let beat = beats("m", joined.member_epoch);
    new.consumer_heartbeat(GROUP, beat.clone()).await.unwrap();
    let refused = old.consumer_heartbeat(GROUP, joins("n")).await.unwrap_err();
    assert_eq!(refused.error, GroupError::NotCoordinator);
    new.consumer_heartbeat(GROUP, beat).await.unwrap();
    assert_eq!(view(&new).await.members.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn members_commit_and_fetch_at_their_epoch() {
    let world = World::new();
    let topic = world.topic("t").await;
    let Running { groups, trigger: _running } = world.start().await;
    let joined = groups.consumer_heartbeat(GROUP, joins("m")).await.unwrap();
    let check = |epoch: i32| CommitCheck {
        version: 9,
        member_id: "m".to_owned(),
        instance_id: None,
        generation: epoch,
        transactional: false,
        partitions: vec![(topic.0, 0)],
    };
    let offsets = || vec![offset(topic, 0, 7, 0)];
    let epoch = joined.member_epoch;
    assert_eq!(groups.commit(GROUP, check(epoch), offsets()).await, Ok(()));
    let stale = Err(GroupError::StaleMemberEpoch);
    assert_eq!(groups.commit(GROUP, check(epoch + 1), offsets()).await, stale);
    assert_eq!(groups.check_fetch(GROUP, Some("m".to_owned()), epoch).await, Ok(()));
    assert_eq!(groups.check_fetch(GROUP, Some("m".to_owned()), epoch + 1).await, stale);
    assert_eq!(groups.check_fetch("other", Some("m".to_owned()), 1).await, Ok(()));

    assert_eq!(groups.delete(GROUP).await, Err(GroupError::NonEmptyGroup));
    groups.consumer_heartbeat(GROUP, beats("m", -1)).await.unwrap();
    let listed = groups.list(ListFilter::default()).await.unwrap();
    assert_eq!((listed[0].state, listed[0].group_type), ("Empty", "consumer"));
    assert_eq!(groups.delete(GROUP).await, Ok(()));
    assert_eq!(world.metadata.offsets(GROUP).await.unwrap().len(), 0);
}
