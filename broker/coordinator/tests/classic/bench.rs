//! A group, a clock and a mailbox for its answers.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use floe_coordinator::GroupError;
use floe_coordinator::classic::{
    CommitCheck, Effect, Event, Group, GroupConfig, GroupRecord, GroupState, HeartbeatRequest,
    JoinRefusal, JoinRequest, Joined, LeaveRequest, LeaveResponse, Leaver, Protocol, Response,
    ResponseToken, SyncRequest, Synced,
};
use uuid::Uuid;

pub(crate) const SESSION_MS: i32 = 10_000;
pub(crate) const REBALANCE_MS: i32 = 20_000;

/// As Kafka's probes were run: without an initial delay.
pub(crate) fn config() -> GroupConfig {
    GroupConfig { initial_rebalance_delay_ms: 0, ..GroupConfig::default() }
}

pub(crate) fn protocols(named: &[(&str, &str)]) -> Vec<Protocol> {
    let protocol = |&(name, metadata): &(&str, &str)| Protocol {
        name: name.to_owned(),
        metadata: Bytes::copy_from_slice(metadata.as_bytes()),
    };
    named.iter().map(protocol).collect()
}

/// JoinGroup v9 of a dynamic consumer with the protocol `range`; empty id for a new one.
pub(crate) fn join(member_id: &str) -> JoinRequest {
    JoinRequest {
        version: 9,
        member_id: member_id.to_owned(),
        instance_id: None,
        client_id: "probe".to_owned(),
        client_host: "/127.0.0.1".to_owned(),
        new_id: Uuid::nil(),
        session_timeout_ms: SESSION_MS,
        rebalance_timeout_ms: REBALANCE_MS,
        protocol_type: "consumer".to_owned(),
        protocols: protocols(&[("range", "m")]),
    }
}

/// The same with an instance id.
pub(crate) fn static_join(member_id: &str, instance_id: &str) -> JoinRequest {
    JoinRequest { instance_id: Some(instance_id.to_owned()), ..join(member_id) }
}

pub(crate) fn with(request: JoinRequest, named: &[(&str, &str)]) -> JoinRequest {
    JoinRequest { protocols: protocols(named), ..request }
}

pub(crate) fn sync(member_id: &str, generation: i32) -> SyncRequest {
    SyncRequest {
        version: 5,
        member_id: member_id.to_owned(),
        instance_id: None,
        generation,
        protocol_type: Some("consumer".to_owned()),
        protocol_name: Some("range".to_owned()),
        assignments: Vec::new(),
    }
}

pub(crate) fn assigning(request: SyncRequest, assignments: &[(&str, &str)]) -> SyncRequest {
    let owned = |&(member_id, bytes): &(&str, &str)| {
        (member_id.to_owned(), Bytes::copy_from_slice(bytes.as_bytes()))
    };
    SyncRequest { assignments: assignments.iter().map(owned).collect(), ..request }
}

pub(crate) fn leaver(member_id: &str, instance_id: Option<&str>) -> Leaver {
    Leaver { member_id: member_id.to_owned(), instance_id: instance_id.map(str::to_owned) }
}

pub(crate) fn commit(member_id: &str, generation: i32) -> CommitCheck {
    CommitCheck {
        version: 9,
        member_id: member_id.to_owned(),
        instance_id: None,
        generation,
        transactional: false,
        partitions: Vec::new(),
    }
}

pub(crate) struct Bench {
    pub(crate) group: Group,
    pub(crate) config: GroupConfig,
    pub(crate) now_ms: i64,
    /// What a broker that starts now would find.
    pub(crate) stored: Option<Vec<u8>>,
    pub(crate) persist_count: usize,
    next_id: u64,
    owed: BTreeSet<ResponseToken>,
    answers: BTreeMap<ResponseToken, Response>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with_config(config())
    }

    pub(crate) fn with_config(config: GroupConfig) -> Self {
        Self {
            group: Group::new("g".to_owned(), config.clone(), 1_000),
            config,
            now_ms: 1_000,
            stored: None,
            persist_count: 0,
            next_id: 0,
            owed: BTreeSet::new(),
            answers: BTreeMap::new(),
        }
    }

    fn token(&mut self) -> ResponseToken {
        self.next_id += 1;
        let token = ResponseToken(self.next_id);
        self.owed.insert(token);
        token
    }

    fn apply(&mut self, event: Event) {
        let effects = self.group.apply(event, self.now_ms);
        self.take(effects);
        let held: BTreeSet<ResponseToken> = self.group.held().collect();
        assert_eq!(held, self.owed, "every request is either answered or held");
    }

    fn take(&mut self, effects: Vec<Effect>) {
        for (position, effect) in effects.into_iter().enumerate() {
            match effect {
                Effect::Persist => {
                    assert_eq!(position, 0, "stored before any answer");
                    self.persist_count += 1;
                    self.stored = Some(self.group.record().encode());
                }
                Effect::Respond { token, response } => {
                    assert!(self.owed.remove(&token), "answered once, and only what was asked");
                    self.answers.insert(token, response);
                }
            }
        }
    }

    pub(crate) fn send_join(&mut self, request: JoinRequest) -> ResponseToken {
        let token = self.token();
        let request = JoinRequest { new_id: Uuid::from_u128(u128::from(token.0)), ..request };
        self.apply(Event::Join { token, request });
        token
    }

    pub(crate) fn send_sync(&mut self, request: SyncRequest) -> ResponseToken {
        let token = self.token();
        self.apply(Event::Sync { token, request });
        token
    }

    pub(crate) fn is_held(&self, token: ResponseToken) -> bool {
        self.owed.contains(&token)
    }

    pub(crate) fn join_answer(&mut self, token: ResponseToken) -> Result<Joined, JoinRefusal> {
        match self.answers.remove(&token) {
            Some(Response::Join(answer)) => answer,
            other => panic!("{token:?}: {other:?}"),
        }
    }

    pub(crate) fn sync_answer(&mut self, token: ResponseToken) -> Result<Synced, GroupError> {
        match self.answers.remove(&token) {
            Some(Response::Sync(answer)) => answer,
            other => panic!("{token:?}: {other:?}"),
        }
    }

    /// All answers that nobody has taken.
    pub(crate) fn take_answers(&mut self) -> BTreeMap<ResponseToken, Response> {
        std::mem::take(&mut self.answers)
    }

    /// Joins, and is answered at once.
    pub(crate) fn join(&mut self, request: JoinRequest) -> Result<Joined, JoinRefusal> {
        let token = self.send_join(request);
        self.join_answer(token)
    }

    pub(crate) fn join_error(&mut self, request: JoinRequest) -> GroupError {
        self.join(request).expect_err("refused").error
    }

    /// The id that a new dynamic member is told to join with.
    pub(crate) fn new_id(&mut self) -> String {
        let refusal = self.join(join("")).expect_err("an id comes first");
        assert_eq!(refusal.error, GroupError::MemberIdRequired);
        refusal.member_id
    }

    pub(crate) fn sync(&mut self, request: SyncRequest) -> Result<Synced, GroupError> {
        let token = self.send_sync(request);
        self.sync_answer(token)
    }

    pub(crate) fn beat(&mut self, member_id: &str, generation: i32) -> Result<(), GroupError> {
        self.beat_as(member_id, None, generation)
    }

    pub(crate) fn beat_as(
        &mut self,
        member_id: &str,
        instance_id: Option<&str>,
        generation: i32,
    ) -> Result<(), GroupError> {
        let token = self.token();
        let instance_id = instance_id.map(str::to_owned);
        let request = HeartbeatRequest { member_id: member_id.to_owned(), instance_id, generation };
        self.apply(Event::Heartbeat { token, request });
        match self.answers.remove(&token) {
            Some(Response::Heartbeat(answer)) => answer,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn leave(&mut self, version: i16, members: Vec<Leaver>) -> LeaveResponse {
        let token = self.token();
        self.apply(Event::Leave { token, request: LeaveRequest { version, members } });
        match self.answers.remove(&token) {
            Some(Response::Leave(answer)) => answer,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn commit(&mut self, request: CommitCheck) -> Result<(), GroupError> {
        let token = self.token();
        self.apply(Event::CheckCommit { token, request });
        match self.answers.remove(&token) {
            Some(Response::Commit(answer)) => answer,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn delete(&mut self) -> Result<(), GroupError> {
        let token = self.token();
        self.apply(Event::Delete { token });
        match self.answers.remove(&token) {
            Some(Response::Delete(answer)) => answer,
            other => panic!("{other:?}"),
        }
    }

    /// Lets time pass, with a tick at every deadline on the way.
    pub(crate) fn advance(&mut self, ms: i64) {
        let end_ms = self.now_ms + ms;
        while let Some(deadline_ms) = self.group.next_deadline_ms().filter(|&due| due <= end_ms) {
            self.now_ms = deadline_ms.max(self.now_ms);
            self.apply(Event::Tick);
            let next = self.group.next_deadline_ms();
            assert!(next.is_none_or(|next| next > self.now_ms), "a tick ends what is due");
        }
        self.now_ms = end_ms;
    }

    /// Kills the broker: what was held is never answered, what was stored is loaded.
    pub(crate) fn restart(&mut self) {
        let stored = self.stored.as_ref().expect("something was stored");
        let record = GroupRecord::decode(stored).expect("what was encoded");
        self.group = Group::load(record, self.config.clone(), self.now_ms);
        self.owed.clear();
    }

    pub(crate) fn state(&self) -> GroupState {
        self.group.state()
    }

    /// One dynamic member in generation 1, with the assignment `A`.
    pub(crate) fn stable(&mut self) -> String {
        let leader = self.new_id();
        let joined = self.join(join(&leader)).expect("joined alone");
        self.sync(assigning(sync(&leader, joined.generation), &[(&leader, "A")])).expect("synced");
        leader
    }

    /// Leader and follower, both told of generation 2, neither synced.
    pub(crate) fn two(&mut self) -> (String, String) {
        let leader = self.stable();
        let follower = self.new_id();
        let held = self.send_join(join(&follower));
        assert!(self.is_held(held));
        let first = self.join(join(&leader)).expect("the rebalance is complete");
        let second = self.join_answer(held).expect("the same");
        assert_eq!((first.generation, second.generation), (2, 2));
        assert_eq!((first.leader.as_str(), second.leader.as_str()), (&*leader, &*leader));
        (leader, follower)
    }

    /// Leader and follower in generation 2, with the assignments `A` and `B`.
    pub(crate) fn two_stable(&mut self) -> (String, String) {
        let (leader, follower) = self.two();
        self.sync(assigning(sync(&leader, 2), &[(&leader, "A"), (&follower, "B")]))
            .expect("the leader's sync");
        self.sync(sync(&follower, 2)).expect("the follower's sync");
        (leader, follower)
    }
}
