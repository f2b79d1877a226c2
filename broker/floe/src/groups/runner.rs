//! The task of one group: takes commands and ticks one after the other, stores before it answers.
//!
//! A connection that goes away cancels nothing here: the runner ends what it began, and drops the
//! answer. Time is never ahead of what was said before it: when a tick is due, the commands that
//! wait already are taken first, so that a slow store ends nobody's session whose heartbeat is in
//! the queue.

use super::command::{Command, Described};
use super::{Shared, UNAVAILABLE, check_group_id, store_refusal};
use bytes::Bytes;
use floe_coordinator::GroupError;
use floe_coordinator::classic::{self, ResponseToken};
use floe_coordinator::group::{Effect, Event, Group, Response, Surroundings, answer_for_missing};
use floe_env::{Error, Result as FloeResult};
use floe_metadata::facts::{ChangeOutcome, Check};
use floe_metadata::groups::group_check;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// A group without members leaves memory after so long without a command, ms.
const IDLE_MS: i64 = 60_000;
/// A pause before the runner looks again whether it can end, ms.
const RETIRE_AGAIN_MS: i64 = 1_000;
/// A group whose store failed is loaded again after so long even if nobody asks for it, ms: the
/// sessions of its members must go on.
const RELOAD_MS: i64 = 1_000;

/// What the runner knows of its group.
pub(super) enum Known {
    /// Nothing: it was never loaded, or a store failed.
    Nothing,
    /// There is none.
    Missing,
    /// This.
    Group(Box<Group>),
}

/// The task of one group.
pub(super) struct Runner {
    pub(super) shared: Arc<Shared>,
    pub(super) group_id: Arc<str>,
    pub(super) known: Known,
    /// The record as it is stored; no change is made where the store has another one.
    pub(super) stored: Option<Bytes>,
    commands: mpsc::Receiver<Command>,
    /// Answers that are owed.
    answers: BTreeMap<ResponseToken, oneshot::Sender<Response>>,
    /// When to end if there is nothing to do, or to load again, ms.
    idle_until_ms: i64,
}

impl Runner {
    pub(super) fn new(
        shared: Arc<Shared>,
        group_id: Arc<str>,
        commands: mpsc::Receiver<Command>,
    ) -> Self {
        let idle_until_ms = shared.clock.now_ms().saturating_add(IDLE_MS);
        Self {
            shared,
            group_id,
            known: Known::Nothing,
            stored: None,
            commands,
            answers: BTreeMap::new(),
            idle_until_ms,
        }
    }

    pub(super) async fn run(mut self) {
        let shutdown = self.shared.shutdown.clone();
        let clock = self.shared.clock.clone();
        loop {
            let wake_ms = self.wake_ms();
            tokio::select! {
                biased;
                () = shutdown.wait() => break,
                // First, so that commands without end do not hold time up.
                () = clock.sleep_until(wake_ms) => {
                    if self.wake().await {
                        return;
                    }
                }
                command = self.commands.recv() => match command {
                    Some(command) => self.handle(command).await,
                    None => break,
                },
            }
        }
        self.forget();
    }

    /// When [`Self::wake`] is due, ms.
    fn wake_ms(&self) -> i64 {
        match &self.known {
            Known::Group(group) => group.next_deadline_ms().unwrap_or(self.idle_until_ms),
            Known::Nothing | Known::Missing => self.idle_until_ms,
        }
    }

    /// Does what is due now. True if the runner has ended.
    async fn wake(&mut self) -> bool {
        for _ in 0..self.commands.len() {
            if let Ok(command) = self.commands.try_recv() {
                self.handle(command).await;
            }
        }
        if self.wake_ms() > self.shared.clock.now_ms() {
            return false;
        }
        match &self.known {
            Known::Group(group) if group.next_deadline_ms().is_some() => {
                self.apply(Event::Classic(classic::Event::Tick)).await;
                self.rest();
            }
            Known::Group(_) | Known::Missing => return self.retire(),
            // Nothing of it can be stored.
            Known::Nothing if check_group_id(&self.group_id).is_err() => return self.retire(),
            Known::Nothing => {
                // If that fails, the next try follows after another pause.
                let _ = self.load().await;
                self.rest();
            }
        }
        false
    }

    /// Ends the runner unless somebody is about to send it a command.
    fn retire(&mut self) -> bool {
        let mut runners = self.shared.runners.lock();
        // Queues are taken under the lock. Besides the one in the map none is left.
        if self.commands.is_empty() && self.commands.sender_strong_count() == 1 {
            runners.remove(&self.group_id);
            return true;
        }
        drop(runners);
        self.idle_until_ms = self.shared.clock.now_ms().saturating_add(RETIRE_AGAIN_MS);
        false
    }

    async fn handle(&mut self, command: Command) {
        match command {
            Command::Apply { token, event, answer } => {
                self.answers.insert(token, answer);
                self.apply(event).await;
            }
            Command::Commit { check, offsets, transaction, answer } => {
                let committed = self.commit(check, offsets, transaction).await;
                // Here and below: the client may be gone.
                let _ = answer.send(committed);
            }
            Command::DeleteOffsets { topics, answer } => {
                let deleted = self.delete_offsets(&topics).await;
                let _ = answer.send(deleted);
            }
            Command::Describe { answer } => {
                let described = self.describe().await;
                let _ = answer.send(described);
            }
            Command::List { filter, answer } => {
                let _ = answer.send(self.listed(&filter));
                // Being listed is no use of a group.
                return;
            }
            Command::Expire { rules, answer } => {
                let was_loaded = !matches!(self.known, Known::Nothing);
                let expired = self.expire(&rules).await;
                let _ = answer.send(expired);
                if !was_loaded {
                    // A round over all groups must not fill the memory with them.
                    self.idle_until_ms = self.shared.clock.now_ms();
                    return;
                }
            }
        }
        self.rest();
    }

    /// After a command: how long the runner stays if nothing else comes.
    fn rest(&mut self) {
        let stay_ms = match &self.known {
            Known::Group(_) => IDLE_MS,
            Known::Missing => 0,
            Known::Nothing if check_group_id(&self.group_id).is_err() => 0,
            Known::Nothing => RELOAD_MS,
        };
        self.idle_until_ms = self.shared.clock.now_ms().saturating_add(stay_ms);
    }

    /// Makes sure that it is known what the store has.
    pub(super) async fn load(&mut self) -> Result<(), GroupError> {
        if !matches!(self.known, Known::Nothing) {
            return Ok(());
        }
        check_group_id(&self.group_id)?;
        self.read().await.map_err(|error| {
            tracing::warn!(group = %self.group_id, %error, "a consumer group could not be loaded");
            store_refusal(&error)
        })
    }

    async fn read(&mut self) -> FloeResult<()> {
        let stored = self.shared.metadata.group(&self.group_id).await?;
        self.known = match &stored {
            None => Known::Missing,
            Some(bytes) => {
                let now_ms = self.shared.clock.now_ms();
                let group = Group::decode(bytes, &self.shared.rules, now_ms).map_err(|error| {
                    Error::corrupt("a consumer group's record").with_source(error)
                })?;
                Known::Group(Box::new(group))
            }
        };
        self.stored = stored;
        Ok(())
    }

    /// Applies an event to the group, which begins to exist if the event makes it, and does what
    /// follows.
    pub(super) async fn apply(&mut self, event: Event) {
        if let Err(error) = self.load().await {
            return self.refuse(&event, error);
        }
        self.shared.look_at_topics().await;
        let topics = self.shared.topics.directory();
        let (rules, now_ms) = (&self.shared.rules, self.shared.clock.now_ms());
        if matches!(self.known, Known::Missing) {
            if let Some((token, response)) = answer_for_missing(&self.group_id, &event, rules) {
                return self.respond(token, response);
            }
            let around = Surroundings { topics: &topics, rules, now_ms };
            let group = Group::for_event(self.group_id.as_ref().to_owned(), &event, around);
            self.known = Known::Group(Box::new(group));
        }
        let Known::Group(mut group) = std::mem::replace(&mut self.known, Known::Nothing) else {
            return;
        };
        let is_large = event.is_large() || group.is_large(&topics);
        let shared = self.shared.clone();
        let apply = move || {
            let around = Surroundings { topics: &topics, rules: &shared.rules, now_ms };
            let effects = group.apply(event, around);
            (group, effects)
        };
        let (group, effects) = match is_large {
            true => self.shared.env.blocking(apply).await,
            false => apply(),
        };
        self.known = Known::Group(group);
        self.perform(effects).await;
        if matches!(&self.known, Known::Group(group) if group.is_unused()) {
            self.known = Known::Missing;
        }
    }

    async fn perform(&mut self, effects: Vec<Effect>) {
        let mut refusal = None;
        for effect in effects {
            match effect {
                Effect::Persist => refusal = self.persist().await.err(),
                Effect::Respond { token, response } => {
                    let response = match refusal {
                        Some(error) => response.refused(error),
                        None => response,
                    };
                    self.respond(token, response);
                }
            }
        }
        if refusal.is_some() {
            self.forget();
        }
    }

    async fn persist(&mut self) -> Result<(), GroupError> {
        let Known::Group(group) = &self.known else { return Ok(()) };
        let metadata = &self.shared.metadata;
        let expected = self.stored.clone();
        let is_dead = group.is_dead();
        let changed = if is_dead {
            metadata.delete_group(&self.group_id, expected).await.map(|made| (made, None))
        } else {
            let record = Bytes::from(group.encode());
            let changed = metadata.put_group(&self.group_id, expected, record.clone()).await;
            changed.map(|made| (made, Some(record)))
        };
        let (made, record) = changed.map_err(|error| self.failed(&error))?;
        self.check_made(made)?;
        self.stored = record;
        if is_dead {
            self.known = Known::Missing;
        }
        Ok(())
    }

    /// What an offset's change goes by: the group's record as it is known.
    pub(super) fn checks(&self) -> [Check; 1] {
        [group_check(&self.group_id, self.stored.clone())]
    }

    pub(super) fn failed(&self, error: &Error) -> GroupError {
        tracing::warn!(group = %self.group_id, %error, "a consumer group could not be stored");
        store_refusal(error)
    }

    pub(super) fn check_made(&self, outcome: ChangeOutcome) -> Result<(), GroupError> {
        match outcome {
            ChangeOutcome::Applied => Ok(()),
            ChangeOutcome::Rejected => {
                tracing::warn!(group = %self.group_id, "another broker has changed this group");
                Err(UNAVAILABLE)
            }
        }
    }

    /// Forgets what is known of the group, which may not be what is stored, and sends everybody who
    /// waits to look for the coordinator again.
    pub(super) fn forget(&mut self) {
        let known = std::mem::replace(&mut self.known, Known::Nothing);
        self.stored = None;
        if let Known::Group(group) = known {
            for effect in group.abandon() {
                if let Effect::Respond { token, response } = effect {
                    self.respond(token, response);
                }
            }
        }
        self.answers.clear();
    }

    fn respond(&mut self, token: ResponseToken, response: Response) {
        if let Some(answer) = self.answers.remove(&token) {
            // The client may be gone.
            let _ = answer.send(response);
        }
    }

    fn refuse(&mut self, event: &Event, error: GroupError) {
        if let Some((token, response)) = event.refusal(error) {
            self.respond(token, response);
        }
    }

    /// Applies an event that is answered at once, and gives the answer.
    pub(super) async fn answered(
        &mut self,
        event: impl FnOnce(ResponseToken) -> Event,
    ) -> Option<Response> {
        let token = self.shared.new_token();
        let (answer, mut receiver) = oneshot::channel();
        self.answers.insert(token, answer);
        self.apply(event(token)).await;
        receiver.try_recv().ok()
    }

    async fn describe(&mut self) -> Result<Described, GroupError> {
        self.load().await?;
        let Known::Group(group) = &self.known else { return Ok(Described::Missing) };
        Ok(match group.as_ref() {
            Group::Classic(group) => Described::Classic(group.describe()),
            Group::Consumer(group) => Described::Consumer(group.describe()),
        })
    }
}
