//! A group of either kind. Which kind it is follows from who joins: an empty group becomes what the
//! first member speaks, and one with members changes online where the operator lets it.
//!
//! Contract. [`Group::apply`] takes an [`Event`] and returns [`Effect`]s to be done in order, as
//! the machines within do ([`crate::classic`], [`crate::consumer`]). Where no group is stored, ask
//! [`answer_for_missing`]; where that has no answer, [`Group::for_event`] makes the group.

use crate::GroupError;
use crate::classic::{
    self, GroupConfig, GroupRecord, JoinRefusal, LeaveResponse, RecordError, ResponseToken,
    answer_for_missing_group,
};
use crate::consumer::{
    self, ConsumerConfig, ConsumerGroup, ConsumerRecord, Heartbeat, HeartbeatRequest, Refusal,
    TopicDirectory,
};
use crate::protocol_metadata::CONSUMER_PROTOCOL_TYPE;
use serde::Deserialize;

/// What an operator sets for groups.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupRules {
    /// Of the classic protocol.
    pub classic: GroupConfig,
    /// Of the newer one.
    pub consumer: ConsumerConfig,
}

/// What a group looks at while it takes an event.
#[derive(Debug, Clone, Copy)]
pub struct Surroundings<'a> {
    /// The topics that there are.
    pub topics: &'a TopicDirectory,
    /// What the operator set.
    pub rules: &'a GroupRules,
    /// Now, ms.
    pub now_ms: i64,
}

/// Something that happens to a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A request of the classic protocol, one that is the same for both, or time.
    Classic(classic::Event),
    /// ConsumerGroupHeartbeat; answered at once.
    Heartbeat {
        /// Answered with [`Response::Heartbeat`].
        token: ResponseToken,
        /// The request.
        request: Box<HeartbeatRequest>,
    },
    /// The check before an OffsetFetch that names a member; answered at once.
    CheckFetch {
        /// Answered with [`Response::Fetch`].
        token: ResponseToken,
        /// Who asks; `None` for an administrator.
        member_id: Option<String>,
        /// The member's epoch; -1 for an administrator.
        epoch: i32,
    },
}

/// What the caller must do, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// As [`classic::Effect::Persist`].
    Persist,
    /// Send an answer.
    Respond {
        /// The request.
        token: ResponseToken,
        /// Its answer.
        response: Response,
    },
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Response {
    /// To a request of the classic protocol.
    Classic(classic::Response),
    /// To ConsumerGroupHeartbeat.
    Heartbeat(Result<Heartbeat, Refusal>),
    /// To an OffsetFetch's check.
    Fetch(Result<(), GroupError>),
}

impl Response {
    /// The same answer turned into a refusal: for answers that were not sent because what they
    /// promise could not be stored.
    pub fn refused(self, error: GroupError) -> Self {
        match self {
            Self::Classic(response) => Self::Classic(response.refused(error)),
            Self::Heartbeat(_) => Self::Heartbeat(Err(error.into())),
            Self::Fetch(_) => Self::Fetch(Err(error)),
        }
    }
}

impl From<classic::Effect> for Effect {
    fn from(effect: classic::Effect) -> Self {
        match effect {
            classic::Effect::Persist => Self::Persist,
            classic::Effect::Respond { token, response } => {
                Self::Respond { token, response: Response::Classic(response) }
            }
        }
    }
}

impl Event {
    /// Whether it takes a while whatever the group is: an expression is compiled.
    pub fn is_large(&self) -> bool {
        matches!(self, Self::Heartbeat { request, .. } if request.topic_regex.is_some())
    }

    /// The answer to an event that no group took, because it could not be read.
    pub fn refusal(&self, error: GroupError) -> Option<(ResponseToken, Response)> {
        let classic = match self {
            Self::Heartbeat { token, .. } => {
                return Some((*token, Response::Heartbeat(Err(error.into()))));
            }
            Self::CheckFetch { token, .. } => return Some((*token, Response::Fetch(Err(error)))),
            Self::Classic(event) => event,
        };
        let (token, response) = match classic {
            classic::Event::Join { token, request } => {
                let member_id = request.member_id.clone();
                (token, classic::Response::Join(Err(JoinRefusal { error, member_id })))
            }
            classic::Event::Sync { token, .. } => (token, classic::Response::Sync(Err(error))),
            classic::Event::Heartbeat { token, .. } => {
                (token, classic::Response::Heartbeat(Err(error)))
            }
            classic::Event::Leave { token, .. } => {
                let refusal = LeaveResponse { error: Some(error), members: Vec::new() };
                (token, classic::Response::Leave(refusal))
            }
            classic::Event::CheckCommit { token, .. } => {
                (token, classic::Response::Commit(Err(error)))
            }
            classic::Event::Delete { token } => (token, classic::Response::Delete(Err(error))),
            classic::Event::Tick => return None,
        };
        Some((*token, Response::Classic(response)))
    }
}

/// The answer to an event for a group that does not exist, or `None` where the event makes it.
pub fn answer_for_missing(
    group_id: &str,
    event: &Event,
    rules: &GroupRules,
) -> Option<(ResponseToken, Response)> {
    match event {
        Event::Classic(event) => {
            let (token, response) = answer_for_missing_group(group_id, event, &rules.classic)?;
            Some((token, Response::Classic(response)))
        }
        Event::CheckFetch { token, .. } => Some((*token, Response::Fetch(Ok(())))),
        Event::Heartbeat { token, request } => {
            let refusal = consumer::check_request(group_id, request).err().or_else(|| {
                let kind = match request.member_epoch {
                    ..0 => "Group",
                    0 => return None,
                    1.. => "Consumer group",
                };
                let message = format!("{kind} {group_id} not found.");
                Some(Refusal { error: GroupError::GroupIdNotFound, message })
            })?;
            Some((*token, Response::Heartbeat(Err(refusal))))
        }
    }
}

/// A group, run by one broker.
#[derive(Debug, Clone)]
pub enum Group {
    /// Of the classic protocol.
    Classic(classic::Group),
    /// Of the newer one.
    Consumer(ConsumerGroup),
}

impl Group {
    /// The group that an event makes, where there was none.
    pub fn for_event(group_id: String, event: &Event, around: Surroundings<'_>) -> Self {
        match event {
            Event::Heartbeat { .. } => {
                let config = around.rules.consumer.clone();
                Self::Consumer(ConsumerGroup::new(group_id, config, 0))
            }
            Event::Classic(_) | Event::CheckFetch { .. } => {
                let config = around.rules.classic.clone();
                Self::Classic(classic::Group::new(group_id, config, around.now_ms))
            }
        }
    }

    /// Reads what [`Self::encode`] wrote.
    ///
    /// # Errors
    /// [`RecordError`] if the bytes are no record of either kind, or contradict themselves.
    pub fn decode(bytes: &[u8], rules: &GroupRules, now_ms: i64) -> Result<Self, RecordError> {
        #[derive(Deserialize)]
        struct Header {
            format: u32,
        }
        let header: Header = serde_json::from_slice(bytes)?;
        Ok(if header.format == consumer::RECORD_FORMAT {
            let record = ConsumerRecord::decode(bytes)?;
            Self::Consumer(ConsumerGroup::load(record, rules.consumer.clone(), now_ms))
        } else {
            let record = GroupRecord::decode(bytes)?;
            Self::Classic(classic::Group::load(record, rules.classic.clone(), now_ms))
        })
    }

    /// The bytes to store at [`Effect::Persist`].
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Classic(group) => group.record().encode(),
            Self::Consumer(group) => group.record().encode(),
        }
    }

    /// Takes an event and says what must be done, in order.
    pub fn apply(&mut self, event: Event, around: Surroundings<'_>) -> Vec<Effect> {
        match self {
            Self::Classic(_) => self.apply_to_classic(event, around),
            Self::Consumer(_) => self.apply_to_consumer(event, around),
        }
    }

    fn apply_to_classic(&mut self, event: Event, around: Surroundings<'_>) -> Vec<Effect> {
        let Self::Classic(group) = self else { return Vec::new() };
        match event {
            Event::Classic(event) => {
                group.apply(event, around.now_ms).into_iter().map(Effect::from).collect()
            }
            Event::CheckFetch { token, .. } => {
                vec![Effect::Respond { token, response: Response::Fetch(Ok(())) }]
            }
            Event::Heartbeat { token, request } => match upgraded(group, *request, around) {
                Ok((consumer, heartbeat)) => {
                    let old = std::mem::replace(self, Self::Consumer(consumer));
                    let mut effects = vec![Effect::Persist];
                    if let Self::Classic(old) = old {
                        let held = old.release_held(GroupError::RebalanceInProgress);
                        effects.extend(held.into_iter().map(Effect::from));
                    }
                    let response = Response::Heartbeat(Ok(heartbeat));
                    effects.push(Effect::Respond { token, response });
                    effects
                }
                Err(refusal) => {
                    vec![Effect::Respond { token, response: Response::Heartbeat(Err(refusal)) }]
                }
            },
        }
    }

    fn apply_to_consumer(&mut self, event: Event, around: Surroundings<'_>) -> Vec<Effect> {
        let Self::Consumer(group) = self else { return Vec::new() };
        let is_join = matches!(event, Event::Classic(classic::Event::Join { .. }));
        if is_join && group.is_empty() {
            let mut classic = Self::Classic(succeeding(group, around));
            let effects = classic.apply_to_classic(event, around);
            // A join that was refused leaves the group as it was.
            if !classic.is_empty() {
                *self = classic;
            }
            return effects;
        }
        let answer = answer_of(group, event, around);
        let is_dirty = group.take_dirty();
        if is_dirty && !group.is_dead() {
            let rules = &around.rules.classic;
            if let Some(classic) = group.to_classic(rules, around.topics, around.now_ms) {
                *self = Self::Classic(classic);
            }
        }
        let answer = answer.map(|(token, response)| Effect::Respond { token, response });
        is_dirty.then_some(Effect::Persist).into_iter().chain(answer).collect()
    }

    /// Whether an event may take longer than a foreground task should.
    pub fn is_large(&self, topics: &TopicDirectory) -> bool {
        match self {
            Self::Classic(_) => false,
            Self::Consumer(group) => group.is_large(topics),
        }
    }

    /// When the next tick is due, ms; `None` while nothing is waited for.
    pub fn next_deadline_ms(&self) -> Option<i64> {
        match self {
            Self::Classic(group) => group.next_deadline_ms(),
            Self::Consumer(group) => group.next_deadline_ms(),
        }
    }

    /// As [`classic::Group::abandon`].
    pub fn abandon(self) -> Vec<Effect> {
        match self {
            Self::Classic(group) => group.abandon().into_iter().map(Effect::from).collect(),
            Self::Consumer(_) => Vec::new(),
        }
    }

    /// Whether the group was deleted: its record is to be removed.
    pub fn is_dead(&self) -> bool {
        match self {
            Self::Classic(group) => group.state() == classic::GroupState::Dead,
            Self::Consumer(group) => group.is_dead(),
        }
    }

    /// Whether nothing is lost if the group is dropped from memory without being stored.
    pub fn is_unused(&self) -> bool {
        match self {
            Self::Classic(group) => group.is_unused(),
            Self::Consumer(group) => group.is_unused(),
        }
    }

    /// Whether the group can be deleted once none of its offsets is left.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Classic(group) => group.is_empty(),
            Self::Consumer(group) => group.is_empty(),
        }
    }

    /// The group's id.
    pub fn group_id(&self) -> &str {
        match self {
            Self::Classic(group) => group.record().group_id(),
            Self::Consumer(group) => group.record().group_id(),
        }
    }

    /// The protocol type as ListGroups shows it; empty for a group that no member ever joined.
    pub fn protocol_type(&self) -> &str {
        match self {
            Self::Classic(group) => group.protocol_type(),
            Self::Consumer(_) => CONSUMER_PROTOCOL_TYPE,
        }
    }

    /// The state as ListGroups shows it.
    pub fn state_name(&self) -> &'static str {
        match self {
            Self::Classic(group) => group.state().name(),
            Self::Consumer(group) => group.record().state().name(),
        }
    }

    /// The type as ListGroups shows it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Classic(_) => "classic",
            Self::Consumer(_) => "consumer",
        }
    }

    /// Whether the group passes the filters of ListGroups. An empty filter lets all pass; names
    /// are compared without regard to case, and unknown ones match nothing.
    pub fn is_listed(&self, states: &[String], types: &[String]) -> bool {
        let passes = |filter: &[String], name: &str| {
            filter.is_empty() || filter.iter().any(|wanted| wanted.eq_ignore_ascii_case(name))
        };
        passes(states, self.state_name()) && passes(types, self.type_name())
    }
}

/// The consumer group that a classic one becomes with a heartbeat, and the heartbeat's answer.
fn upgraded(
    group: &classic::Group,
    request: HeartbeatRequest,
    around: Surroundings<'_>,
) -> Result<(ConsumerGroup, Heartbeat), Refusal> {
    let Surroundings { topics, rules, now_ms } = around;
    let record = group.record();
    consumer::check_request(record.group_id(), &request)?;
    if request.member_epoch != 0 {
        let message = format!("Group {} is not a consumer group.", record.group_id());
        return Err(Refusal { error: GroupError::GroupIdNotFound, message });
    }
    let mut consumer = if group.is_vacant() {
        let group_id = record.group_id().to_owned();
        ConsumerGroup::new(group_id, rules.consumer.clone(), group.generation())
    } else {
        ConsumerGroup::of_classic(group, &rules.consumer, topics, now_ms)?
    };
    let heartbeat = consumer.heartbeat(request, topics, now_ms)?;
    consumer.take_dirty();
    Ok((consumer, heartbeat))
}

/// The classic group that an empty consumer group becomes when somebody joins.
fn succeeding(group: &ConsumerGroup, around: Surroundings<'_>) -> classic::Group {
    let (record, config) = (group.record(), around.rules.classic.clone());
    let group_id = record.group_id().to_owned();
    classic::Group::succeeding(group_id, record.epoch(), config, around.now_ms)
}

/// What a consumer group answers.
fn answer_of(
    group: &mut ConsumerGroup,
    event: Event,
    around: Surroundings<'_>,
) -> Option<(ResponseToken, Response)> {
    let Surroundings { topics, rules, now_ms } = around;
    let event = match event {
        Event::Heartbeat { token, request } => {
            let answer = group.heartbeat(*request, topics, now_ms);
            return Some((token, Response::Heartbeat(answer)));
        }
        Event::CheckFetch { token, member_id, epoch } => {
            let answer = group.check_fetch(member_id.as_deref(), epoch);
            return Some((token, Response::Fetch(answer)));
        }
        Event::Classic(event) => event,
    };
    let (token, response) = match event {
        classic::Event::Join { token, request } => {
            let answer = group.join(&request, &rules.classic, topics, now_ms);
            (token, classic::Response::Join(answer))
        }
        classic::Event::Sync { token, request } => {
            (token, classic::Response::Sync(group.sync(&request, topics, now_ms)))
        }
        classic::Event::Heartbeat { token, request } => {
            (token, classic::Response::Heartbeat(group.classic_heartbeat(&request, now_ms)))
        }
        classic::Event::Leave { token, request } => {
            (token, classic::Response::Leave(group.classic_leave(&request, now_ms)))
        }
        classic::Event::CheckCommit { token, request } => {
            (token, classic::Response::Commit(group.check_commit(&request)))
        }
        classic::Event::Delete { token } => (token, classic::Response::Delete(group.delete())),
        classic::Event::Tick => {
            group.tick(now_ms);
            return None;
        }
    };
    Some((token, Response::Classic(response)))
}
