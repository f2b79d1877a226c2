//! The shell around the groups over a store in memory, with paused time.

use super::expiry::ExpiryRules;
use super::*;
use crate::topics::Topics;
use bytes::Bytes;
use floe_coordinator::classic::{GroupState, Leaver, Protocol};
use floe_env::{ShutdownTrigger, shutdown_signal};
use floe_metadata::ModelBackend;
use floe_metadata::brokers::{BrokerAddress, Registration};
use floe_metadata::topics::TopicCreation;
use kfs::{BrokerId, PartitionIndex, TopicId};
use std::collections::BTreeMap;
use uuid::Uuid;

mod consumer;

const GROUP: &str = "readers";
const SESSION_MS: i32 = 10_000;
const HOUR: Duration = Duration::from_secs(3600);

/// A metadata store with brokers that come and go.
struct World {
    env: Env,
    metadata: MetadataStore,
}

/// One start of a broker, as far as groups go.
struct Running {
    groups: Groups,
    trigger: ShutdownTrigger,
}

impl World {
    fn new() -> Self {
        let env = Env::current();
        let backend = Arc::new(ModelBackend::new(env.clone()));
        Self { metadata: MetadataStore::new(backend, env.clone()), env }
    }

    async fn register(&self) -> Registration {
        let address = BrokerAddress { host: "localhost".to_owned(), port: 9092, zone: None };
        self.metadata.register_broker(BrokerId(1), &address, 30_000).await.unwrap()
    }

    async fn start(&self) -> Running {
        let fence = self.register().await.fence;
        let (trigger, shutdown) = shutdown_signal();
        let (env, metadata) = (self.env.clone(), self.metadata.fenced_by(fence));
        let topics = Topics::load(metadata.clone(), 1 << 20).await.unwrap();
        let groups = Groups::new(env, metadata, topics, GroupRules::default(), shutdown);
        Running { groups, trigger }
    }

    async fn topic(&self, name: &str) -> TopicId {
        let created = self.metadata.create_topic(name, 3, 1, BTreeMap::new()).await.unwrap();
        let TopicCreation::Created(topic) = created else { panic!("{name} exists") };
        topic.id
    }

    async fn rules(&self) -> ExpiryRules {
        ExpiryRules::new(Topics::load(self.metadata.clone(), 1 << 20).await.unwrap(), HOUR)
    }
}

fn join_of(env: &Env, member_id: &str) -> JoinRequest {
    JoinRequest {
        version: 9,
        member_id: member_id.to_owned(),
        instance_id: None,
        client_id: "client".to_owned(),
        client_host: "/127.0.0.1".to_owned(),
        new_id: env.uuid(),
        session_timeout_ms: SESSION_MS,
        rebalance_timeout_ms: 60_000,
        protocol_type: "consumer".to_owned(),
        protocols: vec![Protocol { name: "range".to_owned(), metadata: Bytes::new() }],
    }
}

/// An id for a new member.
async fn new_member(groups: &Groups, env: &Env) -> String {
    let refusal = groups.join(GROUP, join_of(env, "")).await.await.unwrap_err();
    assert_eq!(refusal.error, GroupError::MemberIdRequired);
    refusal.member_id
}

fn sync_of(joined: &Joined, assignments: &[(&str, &'static str)]) -> SyncRequest {
    let assignments = assignments.iter();
    SyncRequest {
        version: 5,
        member_id: joined.member_id.clone(),
        instance_id: None,
        generation: joined.generation,
        protocol_type: Some(joined.protocol_type.clone()),
        protocol_name: Some(joined.protocol_name.clone()),
        assignments: assignments
            .map(|(member, bytes)| ((*member).to_owned(), Bytes::from_static(bytes.as_bytes())))
            .collect(),
    }
}

/// A group with one member that has its assignment.
async fn stable(groups: &Groups, env: &Env) -> Joined {
    let member = new_member(groups, env).await;
    let joined = groups.join(GROUP, join_of(env, &member)).await.await.unwrap();
    let sync = sync_of(&joined, &[(&member, "all")]);
    assert_eq!(groups.sync(GROUP, sync).await.await.unwrap().assignment, "all");
    joined
}

fn beat(joined: &Joined) -> HeartbeatRequest {
    HeartbeatRequest {
        member_id: joined.member_id.clone(),
        instance_id: None,
        generation: joined.generation,
    }
}

fn check(joined: Option<&Joined>) -> CommitCheck {
    CommitCheck {
        version: 9,
        member_id: joined.map(|joined| joined.member_id.clone()).unwrap_or_default(),
        instance_id: None,
        generation: joined.map_or(-1, |joined| joined.generation),
        transactional: false,
        partitions: Vec::new(),
    }
}

fn offset(
    topic: TopicId,
    index: i32,
    offset: i64,
    now_ms: i64,
) -> (TopicPartition, CommittedOffset) {
    let committed = CommittedOffset {
        offset,
        leader_epoch: 0,
        metadata: String::new(),
        commit_ms: now_ms,
        expires_ms: None,
    };
    (TopicPartition { topic, partition: PartitionIndex(index) }, committed)
}

async fn state(groups: &Groups) -> Option<GroupState> {
    match groups.describe(GROUP).await.unwrap() {
        Described::Classic(view) => Some(view.state),
        Described::Missing => None,
        Described::Consumer(view) => panic!("not a classic group: {view:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn two_members_share_a_generation() {
    let world = World::new();
    let Running { groups, trigger: _running } = world.start().await;
    let (first, second) =
        (new_member(&groups, &world.env).await, new_member(&groups, &world.env).await);
    let held = [
        groups.join(GROUP, join_of(&world.env, &first)).await,
        groups.join(GROUP, join_of(&world.env, &second)).await,
    ];
    let [first, second] = futures::future::join_all(held).await.try_into().unwrap();
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!((first.generation, second.generation), (1, 1));
    assert_eq!((first.members.len(), second.members.len()), (2, 0), "only the leader sees all");

    // The follower's assignment comes with the leader's request.
    let waiting = groups.sync(GROUP, sync_of(&second, &[])).await;
    let members = [(first.member_id.as_str(), "a"), (second.member_id.as_str(), "b")];
    let leading = groups.sync(GROUP, sync_of(&first, &members)).await;
    let (waiting, leading) = futures::future::join(waiting, leading).await;
    assert_eq!(
        (leading.unwrap().assignment, waiting.unwrap().assignment),
        ("a".into(), "b".into())
    );

    let leavers = vec![Leaver { member_id: first.member_id.clone(), instance_id: None }];
    let left = groups.leave(GROUP, LeaveRequest { version: 3, members: leavers }).await;
    assert_eq!((left.error, left.members[0].error), (None, None));
    let beaten = groups.heartbeat(GROUP, beat(&second)).await;
    assert_eq!(beaten, Err(GroupError::RebalanceInProgress));
}

#[tokio::test(start_paused = true)]
async fn a_restart_causes_no_rebalance() {
    let world = World::new();
    let before = world.start().await;
    let joined = stable(&before.groups, &world.env).await;
    let topic = world.topic("t").await;
    let offsets = vec![offset(topic, 0, 7, before.groups.now_ms())];
    before.groups.commit(GROUP, check(Some(&joined)), offsets).await.unwrap();
    before.trigger.trigger();
    assert_eq!(before.groups.heartbeat(GROUP, beat(&joined)).await, Err(UNAVAILABLE));

    let Running { groups: after, trigger: _after_runs } = world.start().await;
    assert_eq!(after.heartbeat(GROUP, beat(&joined)).await, Ok(()));
    let sync = after.sync(GROUP, sync_of(&joined, &[])).await.await.unwrap();
    assert_eq!(sync.assignment, "all");
    let offsets = vec![offset(topic, 0, 9, after.now_ms())];
    assert_eq!(after.commit(GROUP, check(Some(&joined)), offsets).await, Ok(()));
    let stored = world.metadata.offsets(GROUP).await.unwrap();
    assert_eq!(stored.values().map(|offset| offset.offset).collect::<Vec<_>>(), [9]);
}

#[tokio::test(start_paused = true)]
async fn a_silent_member_is_removed_also_after_a_restart() {
    let world = World::new();
    let before = world.start().await;
    let joined = stable(&before.groups, &world.env).await;
    for _ in 0..5 {
        world.env.sleep(Duration::from_secs(8)).await;
        assert_eq!(before.groups.heartbeat(GROUP, beat(&joined)).await, Ok(()));
    }
    before.trigger.trigger();

    let Running { groups: after, trigger: _after_runs } = world.start().await;
    after.expire_all(&world.rules().await).await.unwrap();
    assert_eq!(state(&after).await, Some(GroupState::Stable));
    world.env.sleep(Duration::from_secs(11)).await;
    assert_eq!(state(&after).await, Some(GroupState::Empty));
    assert_eq!(after.heartbeat(GROUP, beat(&joined)).await, Err(GroupError::UnknownMemberId));
    after.expire_all(&world.rules().await).await.unwrap();
    assert_eq!(state(&after).await, None, "no members and no offsets: gone");
    assert_eq!(world.metadata.group(GROUP).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn what_is_held_is_answered_at_the_shutdown() {
    let world = World::new();
    let running = world.start().await;
    let member = new_member(&running.groups, &world.env).await;
    let held = running.groups.join(GROUP, join_of(&world.env, &member)).await;
    running.trigger.trigger();
    assert_eq!(held.await.unwrap_err().error, GroupError::NotCoordinator);
}

#[tokio::test(start_paused = true)]
async fn a_fenced_broker_promises_nothing() {
    let world = World::new();
    let Running { groups: old, trigger: _old_runs } = world.start().await;
    let joined = stable(&old, &world.env).await;
    let stored = world.metadata.group(GROUP).await.unwrap();
    let Running { groups: new, trigger: _new_runs } = world.start().await;
    assert_eq!(new.heartbeat(GROUP, beat(&joined)).await, Ok(()));

    let leavers = vec![Leaver { member_id: joined.member_id.clone(), instance_id: None }];
    let leave = LeaveRequest { version: 3, members: leavers };
    assert_eq!(old.leave(GROUP, leave).await.error, Some(GroupError::NotCoordinator));
    let topic = world.topic("t").await;
    let offsets = vec![offset(topic, 0, 7, old.now_ms())];
    let committed = old.commit(GROUP, check(Some(&joined)), offsets).await;
    assert_eq!(committed, Err(GroupError::NotCoordinator));
    assert_eq!(old.delete("other").await, Err(GroupError::GroupIdNotFound));
    assert_eq!(world.metadata.group(GROUP).await.unwrap(), stored);
    assert_eq!(world.metadata.offsets(GROUP).await.unwrap().len(), 0);
    assert_eq!(new.heartbeat(GROUP, beat(&joined)).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_change_that_is_not_stored_is_refused_and_the_group_loaded_again() {
    let world = World::new();
    let Running { groups, trigger: _running } = world.start().await;
    let joined = stable(&groups, &world.env).await;
    // Somebody else writes the record, so that the next change is not made.
    let stored = world.metadata.group(GROUP).await.unwrap().unwrap();
    let broken = Bytes::from_static(b"{");
    world.metadata.put_group(GROUP, Some(stored.clone()), broken.clone()).await.unwrap();

    // The leader joins again, which makes a new generation that cannot be stored.
    let rejoin = groups.join(GROUP, join_of(&world.env, &joined.member_id)).await.await;
    assert_eq!(rejoin.unwrap_err().error, GroupError::NotCoordinator);
    // What is stored now cannot be read, and nothing but a retriable error is said.
    assert_eq!(groups.heartbeat(GROUP, beat(&joined)).await, Err(GroupError::NotCoordinator));
    let offsets = vec![offset(TopicId(Uuid::nil()), 0, 1, groups.now_ms())];
    let committed = groups.commit(GROUP, check(Some(&joined)), offsets).await;
    assert_eq!(committed, Err(GroupError::NotCoordinator));
    assert_eq!(groups.describe(GROUP).await, Err(GroupError::NotCoordinator));
    assert!(groups.list(ListFilter::default()).await.is_err());

    world.metadata.put_group(GROUP, Some(broken), stored).await.unwrap();
    assert_eq!(groups.heartbeat(GROUP, beat(&joined)).await, Ok(()));
    assert_eq!(state(&groups).await, Some(GroupState::Stable));
}

#[tokio::test(start_paused = true)]
async fn groups_in_memory_are_those_in_use() {
    let world = World::new();
    let Running { groups, trigger: _running } = world.start().await;
    assert_eq!(groups.describe("nobody").await, Ok(Described::Missing));
    let topic = world.topic("t").await;
    let offsets = vec![offset(topic, 1, 5, groups.now_ms())];
    groups.commit("simple", check(None), offsets).await.unwrap();
    let joined = stable(&groups, &world.env).await;
    for _ in 0..20 {
        world.env.sleep(Duration::from_secs(5)).await;
        groups.heartbeat(GROUP, beat(&joined)).await.unwrap();
    }
    let running: Vec<String> = groups.0.runners.lock().keys().map(ToString::to_string).collect();
    assert_eq!(running, [GROUP]);

    let lines = |listed: Vec<command::Summary>| -> Vec<(String, String, &str)> {
        listed.into_iter().map(|line| (line.group_id, line.protocol_type, line.state)).collect()
    };
    let all = lines(groups.list(ListFilter::default()).await.unwrap());
    let readers = (GROUP.to_owned(), "consumer".to_owned(), "Stable");
    let simple = ("simple".to_owned(), String::new(), "Empty");
    assert_eq!(all, [readers.clone(), simple]);
    let stable = ListFilter { states: vec!["stable".to_owned()], types: Vec::new() };
    assert_eq!(lines(groups.list(stable).await.unwrap()), [readers]);
}

#[tokio::test(start_paused = true)]
async fn offsets_expire_and_groups_without_any_are_deleted() {
    let world = World::new();
    let Running { groups, trigger: _running } = world.start().await;
    let (kept, gone) = (world.topic("kept").await, world.topic("gone").await);
    let now_ms = groups.now_ms();
    let mut short = offset(kept, 2, 3, now_ms);
    short.1.expires_ms = Some(now_ms + 60_000);
    let offsets = vec![offset(kept, 0, 1, now_ms), offset(gone, 0, 2, now_ms), short];
    groups.commit("simple", check(None), offsets).await.unwrap();
    world.metadata.delete_topic(gone).await.unwrap();

    let partitions = async || -> Vec<i32> {
        let offsets = world.metadata.offsets("simple").await.unwrap();
        offsets.keys().map(|place| place.partition.0).collect()
    };
    let rules = world.rules().await;
    groups.expire_all(&rules).await.unwrap();
    assert_eq!(partitions().await, [0, 2], "the deleted topic's offset is gone");
    world.env.sleep(Duration::from_secs(61)).await;
    groups.expire_all(&rules).await.unwrap();
    assert_eq!(partitions().await, [0], "so is the one that brought its own time");
    world.env.sleep(HOUR).await;
    groups.expire_all(&rules).await.unwrap();
    assert_eq!(groups.describe("simple").await, Ok(Described::Missing));
    assert_eq!(world.metadata.groups().await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn offsets_are_deleted_where_nobody_reads() {
    let world = World::new();
    let Running { groups, trigger: _running } = world.start().await;
    let topic = world.topic("t").await;
    let place = offset(topic, 0, 7, 0).0;
    let asked = || vec![("t".to_owned(), vec![place, place])];
    let missing = groups.delete_offsets(GROUP, asked()).await;
    assert_eq!(missing, Err(GroupError::GroupIdNotFound));
    assert_eq!(groups.delete_offsets("", asked()).await, Err(GroupError::InvalidGroupId));

    let joined = stable(&groups, &world.env).await;
    let offsets = vec![offset(topic, 0, 7, groups.now_ms())];
    groups.commit(GROUP, check(Some(&joined)), offsets).await.unwrap();
    // The member's subscription cannot be read, so it may be to any topic.
    let subscribed = groups.delete_offsets(GROUP, asked()).await.unwrap();
    assert_eq!(subscribed, [Err(GroupError::GroupSubscribedToTopic)]);
    assert_eq!(groups.delete(GROUP).await, Err(GroupError::NonEmptyGroup));

    let leavers = vec![Leaver { member_id: joined.member_id.clone(), instance_id: None }];
    groups.leave(GROUP, LeaveRequest { version: 3, members: leavers }).await;
    assert_eq!(groups.delete_offsets(GROUP, asked()).await.unwrap(), [Ok(())]);
    assert_eq!(world.metadata.offsets(GROUP).await.unwrap().len(), 0);
    assert_eq!(groups.delete(GROUP).await, Ok(()));
    assert_eq!(groups.delete(GROUP).await, Err(GroupError::GroupIdNotFound));
}

#[tokio::test(start_paused = true)]
async fn what_the_store_cannot_hold_is_refused_for_good() {
    let world = World::new();
    let Running { groups, trigger: _running } = world.start().await;
    let long_id = "g".repeat(3000);
    let refused = groups.commit(&long_id, check(None), Vec::new()).await;
    assert_eq!(refused, Err(GroupError::InvalidGroupId));

    let member = new_member(&groups, &world.env).await;
    let mut huge = join_of(&world.env, &member);
    huge.protocols[0].metadata = Bytes::from(vec![0; 16 << 20]);
    let refusal = groups.join(GROUP, huge).await.await.unwrap_err();
    assert_eq!(refusal.error, GroupError::GroupMaxSizeReached);
    assert_eq!(world.metadata.group(GROUP).await.unwrap(), None);
}
