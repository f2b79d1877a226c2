//! Consumer groups: the shell around the state machines of `floe-coordinator`.
//!
//! Each group that is in use has a task of its own, its *runner* ([`runner`]), which alone holds
//! the group's state machine, its stored record and the answers it owes. [`Groups`] finds or
//! starts the runner and hands it commands through a bounded queue, in the order in which they
//! come. The runner loads the group from the metadata store when it is first needed, so a group
//! outlives its broker without a rebalance, and ends when the group has been idle for a while, so
//! that memory holds only groups in use.
//!
//! Every write is one change in the metadata store, made on condition that the group's record is
//! still the one that was read and that this broker's registration still holds. Where a store
//! fails or somebody else was first, clients are told NOT_COORDINATOR: they look for the
//! coordinator again, and the group is loaded again.

mod clock;
mod command;
mod expiry;
mod listing;
mod offsets;
mod runner;
#[cfg(test)]
mod tests;

pub(crate) use command::{Described, ListFilter, TransactionCommit};

use crate::config::KafkaConfig;
use crate::topics::Topics;
use clock::GroupClock;
use command::Command;
use floe_coordinator::GroupError;
use floe_coordinator::classic::{
    self, CommitCheck, GroupConfig, HeartbeatRequest, JoinRefusal, JoinRequest, Joined,
    LeaveRequest, LeaveResponse, ResponseToken, SyncRequest, Synced,
};
use floe_coordinator::consumer::{self, ConsumerConfig};
use floe_coordinator::group::{Event, GroupRules, Response};
use floe_env::{Env, ErrorKind, HashMap, Lane, Shutdown};
use floe_metadata::MetadataStore;
use floe_metadata::groups::CommittedOffset;
use kfs::TopicPartition;
use parking_lot::Mutex;
use runner::Runner;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Commands that wait for one group at most; further ones hold up their connections.
const COMMANDS_QUEUED_MAX: usize = 256;

/// Stored groups that are read at once.
const GROUPS_PAGE: usize = 100;

/// The longest group id, bytes of UTF-8: however much of it is escaped, its facts' keys fit.
const GROUP_ID_BYTES_MAX: usize = 600;

/// Topics that another broker changed are seen after so long at the latest, ms.
const TOPICS_AGE_MAX_MS: i64 = 30_000;

/// What clients hear whenever a group could not be read or written: all of them look for the
/// coordinator again and repeat the request.
const UNAVAILABLE: GroupError = GroupError::NotCoordinator;

/// All consumer groups of a broker; cheap to clone.
#[derive(Clone)]
pub(crate) struct Groups(Arc<Shared>);

/// What all runners share.
struct Shared {
    env: Env,
    metadata: MetadataStore,
    rules: GroupRules,
    topics: Topics,
    /// When the topics were last looked at for the groups' sake, ms.
    topics_seen_ms: AtomicI64,
    clock: GroupClock,
    shutdown: Shutdown,
    next_token: AtomicU64,
    runners: Mutex<HashMap<Arc<str>, mpsc::Sender<Command>>>,
}

impl Groups {
    /// No group is loaded before it is asked for. At the shutdown whatever is held is answered.
    ///
    /// - `metadata`: with the fence of the broker's registration.
    pub(crate) fn new(
        env: Env,
        metadata: MetadataStore,
        topics: Topics,
        rules: GroupRules,
        shutdown: Shutdown,
    ) -> Self {
        let clock = GroupClock::new(env.clone());
        Self(Arc::new(Shared {
            topics_seen_ms: AtomicI64::new(clock.now_ms()),
            clock,
            env,
            metadata,
            topics,
            rules,
            shutdown,
            next_token: AtomicU64::new(0),
            runners: Mutex::default(),
        }))
    }

    /// Now, ms, by the clock of the groups: the one by which offsets are committed and expire.
    pub(crate) fn now_ms(&self) -> i64 {
        self.0.clock.now_ms()
    }

    /// JoinGroup. It has its place in the group's queue when this returns; the inner future is the
    /// answer, which may be held for minutes.
    pub(crate) async fn join(
        &self,
        group: &str,
        request: JoinRequest,
    ) -> impl Future<Output = Result<Joined, JoinRefusal>> + Send + use<> {
        let member_id = request.member_id.clone();
        let answer = self.apply(group, |token| classic::Event::Join { token, request }).await;
        async move {
            match answer.await {
                Ok(Response::Classic(classic::Response::Join(answer))) => answer,
                _ => Err(JoinRefusal { error: UNAVAILABLE, member_id }),
            }
        }
    }

    /// SyncGroup, in the same two steps as [`Self::join`].
    pub(crate) async fn sync(
        &self,
        group: &str,
        request: SyncRequest,
    ) -> impl Future<Output = Result<Synced, GroupError>> + Send + use<> {
        let answer = self.apply(group, |token| classic::Event::Sync { token, request }).await;
        async move {
            match answer.await {
                Ok(Response::Classic(classic::Response::Sync(answer))) => answer,
                _ => Err(UNAVAILABLE),
            }
        }
    }

    /// Heartbeat.
    pub(crate) async fn heartbeat(
        &self,
        group: &str,
        request: HeartbeatRequest,
    ) -> Result<(), GroupError> {
        let answer = self.apply(group, |token| classic::Event::Heartbeat { token, request }).await;
        match answer.await {
            Ok(Response::Classic(classic::Response::Heartbeat(answer))) => answer,
            _ => Err(UNAVAILABLE),
        }
    }

    /// ConsumerGroupHeartbeat.
    pub(crate) async fn consumer_heartbeat(
        &self,
        group: &str,
        request: consumer::HeartbeatRequest,
    ) -> Result<consumer::Heartbeat, consumer::Refusal> {
        let request = Box::new(request);
        let answer = self.apply_any(group, |token| Event::Heartbeat { token, request }).await;
        match answer.await {
            Ok(Response::Heartbeat(answer)) => answer,
            _ => Err(UNAVAILABLE.into()),
        }
    }

    /// Whether a member may fetch offsets at its epoch.
    ///
    /// - `member_id`: `None` for an administrator.
    pub(crate) async fn check_fetch(
        &self,
        group: &str,
        member_id: Option<String>,
        epoch: i32,
    ) -> Result<(), GroupError> {
        let event = |token| Event::CheckFetch { token, member_id, epoch };
        match self.apply_any(group, event).await.await {
            Ok(Response::Fetch(answer)) => answer,
            _ => Err(UNAVAILABLE),
        }
    }

    /// LeaveGroup.
    pub(crate) async fn leave(&self, group: &str, request: LeaveRequest) -> LeaveResponse {
        let answer = self.apply(group, |token| classic::Event::Leave { token, request }).await;
        match answer.await {
            Ok(Response::Classic(classic::Response::Leave(answer))) => answer,
            _ => LeaveResponse { error: Some(UNAVAILABLE), members: Vec::new() },
        }
    }

    /// DeleteGroups, for one group: the group goes with its offsets.
    pub(crate) async fn delete(&self, group: &str) -> Result<(), GroupError> {
        let answer = self.apply(group, |token| classic::Event::Delete { token }).await;
        match answer.await {
            Ok(Response::Classic(classic::Response::Delete(answer))) => answer,
            _ => Err(UNAVAILABLE),
        }
    }

    /// Commits offsets together if the group lets their sender do so.
    pub(crate) async fn commit(
        &self,
        group: &str,
        check: CommitCheck,
        offsets: Vec<(TopicPartition, CommittedOffset)>,
    ) -> Result<(), GroupError> {
        self.ask(group, |answer| Command::Commit { check, offsets, transaction: None, answer })
            .await
            .unwrap_or(Err(UNAVAILABLE))
    }

    /// The same of offsets that wait for the end of a transaction. `CoordinatorNotAvailable` where
    /// the transaction is not what was read any more, or the outcome is not known.
    pub(crate) async fn commit_in_transaction(
        &self,
        group: &str,
        check: CommitCheck,
        offsets: Vec<(TopicPartition, CommittedOffset)>,
        transaction: TransactionCommit,
    ) -> Result<(), GroupError> {
        let transaction = Some(Box::new(transaction));
        self.ask(group, |answer| Command::Commit { check, offsets, transaction, answer })
            .await
            .unwrap_or(Err(UNAVAILABLE))
    }

    /// OffsetDelete: a result per topic in the order asked, or one error for all.
    pub(crate) async fn delete_offsets(
        &self,
        group: &str,
        topics: Vec<(String, Vec<TopicPartition>)>,
    ) -> Result<Vec<Result<(), GroupError>>, GroupError> {
        self.ask(group, |answer| Command::DeleteOffsets { topics, answer })
            .await
            .unwrap_or(Err(UNAVAILABLE))
    }

    /// The group as it is described.
    pub(crate) async fn describe(&self, group: &str) -> Result<Described, GroupError> {
        let described = self.ask(group, |answer| Command::Describe { answer }).await;
        described.unwrap_or(Err(UNAVAILABLE))
    }

    async fn apply(
        &self,
        group: &str,
        event: impl FnOnce(ResponseToken) -> classic::Event,
    ) -> oneshot::Receiver<Response> {
        self.apply_any(group, |token| Event::Classic(event(token))).await
    }

    async fn apply_any(
        &self,
        group: &str,
        event: impl FnOnce(ResponseToken) -> Event,
    ) -> oneshot::Receiver<Response> {
        let token = self.0.new_token();
        let (answer, receiver) = oneshot::channel();
        self.send(group, Command::Apply { token, event: event(token), answer }).await;
        receiver
    }

    /// `None` if the runner ended before it answered.
    async fn ask<T>(
        &self,
        group: &str,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Option<T> {
        let (answer, receiver) = oneshot::channel();
        self.send(group, command(answer)).await;
        receiver.await.ok()
    }

    /// Queues a command. After the shutdown it is dropped, and with it the sender of its answer.
    async fn send(&self, group: &str, command: Command) {
        let mut unsent = Some(command);
        while let Some(command) = unsent.take().filter(|_| !self.0.shutdown.is_triggered()) {
            // A runner that panicked is closed; the next one loads what is stored.
            unsent = self.runner(group).send(command).await.err().map(|refused| refused.0);
        }
    }

    /// The queue of the group's runner, which is started if there is none.
    fn runner(&self, group: &str) -> mpsc::Sender<Command> {
        let mut runners = self.0.runners.lock();
        if let Some(running) = runners.get(group).filter(|runner| !runner.is_closed()) {
            return running.clone();
        }
        let (sender, commands) = mpsc::channel(COMMANDS_QUEUED_MAX);
        let group_id: Arc<str> = group.into();
        let runner = Runner::new(self.0.clone(), group_id.clone(), commands);
        runners.insert(group_id, sender.clone());
        self.0.env.spawn("consumer group", Lane::Foreground, runner.run());
        sender
    }
}

impl Shared {
    fn new_token(&self) -> ResponseToken {
        ResponseToken(self.next_token.fetch_add(1, Ordering::Relaxed))
    }

    /// Looks whether topics have changed, if nobody has for a while. A store that is away changes
    /// nothing: groups go on with the topics that are known.
    async fn look_at_topics(&self) {
        let now_ms = self.clock.now_ms();
        let seen_ms = self.topics_seen_ms.load(Ordering::Relaxed);
        if now_ms.saturating_sub(seen_ms) < TOPICS_AGE_MAX_MS {
            return;
        }
        self.topics_seen_ms.store(now_ms, Ordering::Relaxed);
        if let Err(error) = self.topics.refresh().await {
            tracing::warn!(%error, "topics could not be read again for consumer groups");
        }
    }
}

/// The limits of groups, as the broker is configured.
pub(crate) fn group_rules(kafka: &KafkaConfig) -> GroupRules {
    let ms = |time: Duration| i32::try_from(time.as_millis()).unwrap_or(i32::MAX);
    let consumer = ConsumerConfig {
        session_timeout_ms: ms(kafka.group_consumer_session_timeout),
        heartbeat_interval_ms: ms(kafka.group_consumer_heartbeat_interval),
        members_max: kafka.group_consumer_max_size,
        assignment_interval_ms: ms(kafka.group_consumer_assignment_interval),
        migration: kafka.group_consumer_migration_policy,
    };
    let classic = GroupConfig {
        session_timeout_ms_min: ms(kafka.group_min_session_timeout),
        session_timeout_ms_max: ms(kafka.group_max_session_timeout),
        initial_rebalance_delay_ms: ms(kafka.group_initial_rebalance_delay),
        ..GroupConfig::default()
    };
    GroupRules { classic, consumer }
}

/// Whether a group of this id, which may be empty, can be stored.
pub(crate) fn check_group_id(group: &str) -> Result<(), GroupError> {
    match group.len() <= GROUP_ID_BYTES_MAX {
        true => Ok(()),
        false => Err(GroupError::InvalidGroupId),
    }
}

/// What clients hear when the store refuses or fails.
fn store_refusal(error: &floe_env::Error) -> GroupError {
    match error.kind() {
        // The only part of a fact's key that is not ours.
        ErrorKind::Invalid => GroupError::InvalidGroupId,
        // The record with all its members is larger than the store takes.
        ErrorKind::Limit => GroupError::GroupMaxSizeReached,
        ErrorKind::Retry
        | ErrorKind::UnknownOutcome
        | ErrorKind::Fenced
        | ErrorKind::Corrupt
        | ErrorKind::Unavailable
        | ErrorKind::Bug => UNAVAILABLE,
    }
}
