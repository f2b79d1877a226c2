//! A group, a clock, topics, and members that speak to it.

use floe_coordinator::GroupError;
use floe_coordinator::classic::{self, CommitCheck, ResponseToken};
use floe_coordinator::consumer::{
    ConsumerView, Heartbeat, HeartbeatRequest, Partitions, Refusal, TopicDirectory,
};
use floe_coordinator::group::{
    Effect, Event, Group, GroupRules, Response, Surroundings, answer_for_missing,
};
use std::collections::BTreeSet;
use uuid::Uuid;

pub(crate) const GROUP: &str = "g";
pub(crate) const REBALANCE_MS: i32 = 20_000;

/// The id of the topic of this number.
pub(crate) fn topic(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

/// A joining heartbeat of version 1, subscribed to the topic `t`.
pub(crate) fn joins(member_id: &str) -> HeartbeatRequest {
    HeartbeatRequest {
        member_epoch: 0,
        rebalance_timeout_ms: REBALANCE_MS,
        topic_names: Some(BTreeSet::from(["t".to_owned()])),
        owned: Some(Partitions::new()),
        ..beats(member_id, 0)
    }
}

/// A heartbeat that says nothing.
pub(crate) fn beats(member_id: &str, member_epoch: i32) -> HeartbeatRequest {
    HeartbeatRequest {
        version: 1,
        member_id: member_id.to_owned(),
        member_epoch,
        instance_id: None,
        rack_id: None,
        client_id: "probe".to_owned(),
        client_host: "/127.0.0.1".to_owned(),
        new_id: Uuid::nil(),
        rebalance_timeout_ms: -1,
        topic_names: None,
        topic_regex: None,
        server_assignor: None,
        owned: None,
    }
}

pub(crate) fn of_instance(request: HeartbeatRequest, instance_id: &str) -> HeartbeatRequest {
    HeartbeatRequest { instance_id: Some(instance_id.to_owned()), ..request }
}

pub(crate) fn commits(member_id: &str, epoch: i32, partitions: &[i32]) -> CommitCheck {
    CommitCheck {
        version: 9,
        member_id: member_id.to_owned(),
        instance_id: None,
        generation: epoch,
        transactional: false,
        partitions: partitions.iter().map(|index| (topic(1), *index)).collect(),
    }
}

/// These partitions of the topic `t`.
pub(crate) fn of_t(indexes: &[i32]) -> Partitions {
    match indexes.is_empty() {
        true => Partitions::new(),
        false => Partitions::from([(topic(1), indexes.iter().copied().collect())]),
    }
}

/// Answers to requests, in order.
pub(crate) type Answers = Vec<(ResponseToken, Response)>;

#[derive(Clone)]
pub(crate) struct Bench {
    pub(crate) rules: GroupRules,
    pub(crate) topics: TopicDirectory,
    pub(crate) now_ms: i64,
    pub(crate) group: Option<Group>,
    /// As stored; `None` if nothing is.
    pub(crate) stored: Option<Vec<u8>>,
    /// Writes so far.
    pub(crate) writes: usize,
    token: u64,
    directories: u64,
}

impl Bench {
    /// No group, and the topic `t` with so many partitions.
    pub(crate) fn new(partitions: i32) -> Self {
        let mut rules = GroupRules::default();
        rules.classic.initial_rebalance_delay_ms = 0;
        let mut bench = Self {
            rules,
            topics: TopicDirectory::default(),
            now_ms: 1_000_000,
            group: None,
            stored: None,
            writes: 0,
            token: 0,
            directories: 0,
        };
        bench.set_topics(&[("t", 1, partitions)]);
        bench
    }

    /// The topics that there are: name, number of the id, partitions.
    pub(crate) fn set_topics(&mut self, topics: &[(&str, u128, i32)]) {
        self.directories += 1;
        let topics =
            topics.iter().map(|(name, id, count)| ((*name).to_owned(), topic(*id), *count));
        self.topics = TopicDirectory::new(self.directories, topics);
    }

    pub(crate) fn token(&mut self) -> ResponseToken {
        self.token += 1;
        ResponseToken(self.token)
    }

    /// Applies an event as the shell does; the answers, in order.
    pub(crate) fn apply(&mut self, event: Event) -> Answers {
        let around = Surroundings { topics: &self.topics, rules: &self.rules, now_ms: self.now_ms };
        if self.group.is_none() {
            if let Some(answer) = answer_for_missing(GROUP, &event, &self.rules) {
                return vec![answer];
            }
            self.group = Some(Group::for_event(GROUP.to_owned(), &event, around));
        }
        let group = self.group.as_mut().expect("just made");
        let effects = group.apply(event, around);
        let mut answers = Vec::new();
        for effect in effects {
            match effect {
                Effect::Persist => {
                    self.writes += 1;
                    let encoded = group.encode();
                    Group::decode(&encoded, &self.rules, self.now_ms).expect("consistent");
                    self.stored = (!group.is_dead()).then_some(encoded);
                }
                Effect::Respond { token, response } => answers.push((token, response)),
            }
        }
        if group.is_unused() || group.is_dead() {
            self.group = None;
        }
        answers
    }

    pub(crate) fn heartbeat(&mut self, request: HeartbeatRequest) -> Result<Heartbeat, Refusal> {
        self.heartbeat_with_answers(request).0
    }

    /// The answer to a heartbeat, and the answers to others that come with it.
    pub(crate) fn heartbeat_with_answers(
        &mut self,
        request: HeartbeatRequest,
    ) -> (Result<Heartbeat, Refusal>, Answers) {
        let token = self.token();
        let answers = self.apply(Event::Heartbeat { token, request: Box::new(request) });
        let (mut own, others): (Answers, Answers) =
            answers.into_iter().partition(|(answered, _)| *answered == token);
        match own.pop() {
            Some((_, Response::Heartbeat(answer))) => (answer, others),
            other => panic!("no answer to a heartbeat: {other:?}"),
        }
    }

    /// The error of a heartbeat that must be refused, and its message.
    pub(crate) fn refused(&mut self, request: HeartbeatRequest) -> (GroupError, String) {
        let refusal = self.heartbeat(request).expect_err("refused");
        (refusal.error, refusal.message)
    }

    pub(crate) fn classic(
        &mut self,
        event: impl FnOnce(ResponseToken) -> classic::Event,
    ) -> Option<classic::Response> {
        let token = self.token();
        let answers = self.apply(Event::Classic(event(token)));
        let own = answers.into_iter().find(|(answered, _)| *answered == token);
        own.map(|(_, response)| match response {
            Response::Classic(response) => response,
            other => panic!("another answer: {other:?}"),
        })
    }

    pub(crate) fn commit(&mut self, request: CommitCheck) -> Result<(), GroupError> {
        match self.classic(|token| classic::Event::CheckCommit { token, request }) {
            Some(classic::Response::Commit(answer)) => answer,
            other => panic!("no answer to a commit: {other:?}"),
        }
    }

    pub(crate) fn fetch(&mut self, member_id: Option<&str>, epoch: i32) -> Result<(), GroupError> {
        let token = self.token();
        let member_id = member_id.map(str::to_owned);
        match self.apply(Event::CheckFetch { token, member_id, epoch }).pop() {
            Some((_, Response::Fetch(answer))) => answer,
            other => panic!("no answer to a fetch: {other:?}"),
        }
    }

    pub(crate) fn delete(&mut self) -> Result<(), GroupError> {
        match self.classic(|token| classic::Event::Delete { token }) {
            Some(classic::Response::Delete(answer)) => answer,
            other => panic!("no answer to a deletion: {other:?}"),
        }
    }

    /// Lets time pass, with every tick that falls due.
    pub(crate) fn pass(&mut self, ms: i64) {
        self.pass_and_answer(ms);
    }

    /// The same; the answers that were held until then.
    pub(crate) fn pass_and_answer(&mut self, ms: i64) -> Answers {
        let mut answers = Answers::new();
        let end_ms = self.now_ms + ms;
        while let Some(at_ms) = self.group.as_ref().and_then(Group::next_deadline_ms) {
            if at_ms > end_ms {
                break;
            }
            self.now_ms = self.now_ms.max(at_ms);
            answers.extend(self.apply(Event::Classic(classic::Event::Tick)));
        }
        self.now_ms = end_ms;
        answers
    }

    /// The broker dies, and another one takes up what is stored.
    pub(crate) fn crash(&mut self) {
        let stored = self.stored.as_ref();
        self.group = stored.map(|bytes| {
            Group::decode(bytes, &self.rules, self.now_ms).expect("a consistent record")
        });
    }

    pub(crate) fn view(&self) -> ConsumerView {
        match &self.group {
            Some(Group::Consumer(group)) => group.describe(),
            other => panic!("no consumer group: {other:?}"),
        }
    }

    pub(crate) fn state(&self) -> &'static str {
        self.group.as_ref().map_or("none", Group::state_name)
    }

    pub(crate) fn kind(&self) -> &'static str {
        self.group.as_ref().map_or("none", Group::type_name)
    }
}

/// A member that does what the protocol asks of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Member {
    pub(crate) id: String,
    /// 0 if it has to join.
    pub(crate) epoch: i32,
    pub(crate) owned: Partitions,
    /// It gave partitions up, or lost an answer, and says everything with the next heartbeat.
    pub(crate) tells: bool,
}

impl Member {
    pub(crate) fn new(id: &str) -> Self {
        Self { id: id.to_owned(), epoch: 0, owned: Partitions::new(), tells: false }
    }

    pub(crate) fn request(&self) -> HeartbeatRequest {
        if self.epoch == 0 {
            return joins(&self.id);
        }
        let mut request = beats(&self.id, self.epoch);
        if self.tells {
            request = HeartbeatRequest { member_epoch: self.epoch, ..joins(&self.id) };
            request.owned = Some(self.owned.clone());
        }
        request
    }

    /// One heartbeat and what follows from it.
    pub(crate) fn beat(&mut self, bench: &mut Bench) {
        let answer = bench.heartbeat(self.request());
        self.take(answer);
    }

    pub(crate) fn take(&mut self, answer: Result<Heartbeat, Refusal>) {
        let answer = match answer {
            Ok(answer) => answer,
            Err(refusal) => {
                let known = [GroupError::UnknownMemberId, GroupError::FencedMemberEpoch];
                let is_gone = refusal.error == GroupError::GroupIdNotFound;
                assert!(known.contains(&refusal.error) || is_gone, "{refusal:?}");
                (self.epoch, self.owned, self.tells) = (0, Partitions::new(), false);
                return;
            }
        };
        self.epoch = answer.member_epoch;
        self.tells = answer.assignment.as_ref().is_some_and(|assigned| *assigned != self.owned);
        if let Some(assigned) = answer.assignment {
            self.owned = assigned;
        }
    }

    /// Heartbeats until nothing more changes for it alone.
    pub(crate) fn settle(&mut self, bench: &mut Bench) {
        for _ in 0..10 {
            self.beat(bench);
            if !self.tells {
                return;
            }
        }
        panic!("{self:?} does not settle");
    }
}
