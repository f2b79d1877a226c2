//! Random histories: clients that obey the protocol, strangers that do not, silence, and brokers
//! that die. After every step the invariants are checked; at the end of a storm the clients must
//! agree on a stable group, and a loaded twin of it must behave as the group itself.

use std::collections::BTreeMap;

use bytes::Bytes;
use floe_coordinator::GroupError;
use floe_coordinator::classic::{
    Event, Group, GroupConfig, GroupRecord, GroupState, HeartbeatRequest, JoinRequest, Joined,
    LeaveRequest, Response, ResponseToken, SyncRequest,
};
use uuid::Uuid;

use crate::bench::{Bench, commit, config, join, leaver, protocols, sync};
use crate::random_numbers::Random;

/// Histories per run of the test.
const SEEDS: u64 = 60;

fn pick<'a, T>(random: &mut Random, from: &'a [T]) -> &'a T {
    &from[random.below(from.len())]
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Step {
    Join,
    Sync,
    Beat,
}

/// A consumer that does what the protocol asks of it.
struct Client {
    version: i16,
    instance_id: Option<String>,
    metadata: &'static [(&'static str, &'static str)],
    member_id: String,
    joined: Option<Joined>,
    step: Step,
    waiting: Option<ResponseToken>,
}

impl Client {
    fn new(random: &mut Random, number: usize) -> Self {
        Self {
            version: *pick(random, &[0, 3, 4, 8, 9]),
            instance_id: (number < 2).then(|| format!("instance-{number}")),
            metadata: &[("range", "m")],
            member_id: String::new(),
            joined: None,
            step: Step::Join,
            waiting: None,
        }
    }

    fn generation(&self) -> i32 {
        self.joined.as_ref().map_or(-1, |joined| joined.generation)
    }

    fn request(&self) -> JoinRequest {
        JoinRequest {
            // Instance ids came with version 5.
            version: if self.instance_id.is_some() { self.version.max(5) } else { self.version },
            instance_id: self.instance_id.clone(),
            protocols: protocols(self.metadata),
            ..join(&self.member_id)
        }
    }

    fn sync_request(&self) -> SyncRequest {
        let generation = self.generation();
        let mut request = sync(&self.member_id, generation);
        request.instance_id.clone_from(&self.instance_id);
        if let Some(joined) = &self.joined {
            request.protocol_name = Some(joined.protocol_name.clone());
            if joined.leader == joined.member_id && !joined.skip_assignment {
                let part = |id: &str| Bytes::from(format!("{generation}:{id}"));
                let ids = joined.members.iter().map(|member| &member.member_id);
                request.assignments = ids.map(|id| (id.clone(), part(id))).collect();
            }
        }
        request
    }

    fn refused(&mut self, error: GroupError, member_id: Option<String>) {
        self.step = Step::Join;
        match error {
            GroupError::MemberIdRequired => self.member_id = member_id.expect("a join's answer"),
            GroupError::RebalanceInProgress | GroupError::InconsistentGroupProtocol => {}
            GroupError::IllegalGeneration => {}
            _ => self.member_id.clear(),
        }
    }
}

struct World {
    random: Random,
    bench: Bench,
    clients: Vec<Client>,
    /// Ids that anybody ever had.
    ids: Vec<String>,
    /// Which member believes to lead a generation.
    leaders: BTreeMap<i32, String>,
    generation: i32,
}

const METADATA: [&[(&str, &str)]; 3] =
    [&[("range", "m")], &[("range", "changed")], &[("robin", "r"), ("range", "m")]];

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let delay_ms = *pick(&mut random, &[0, 0, 3_000]);
        let members_max = *pick(&mut random, &[3, 5, 100]);
        let config = GroupConfig {
            initial_rebalance_delay_ms: delay_ms,
            group_members_max: members_max,
            ..config()
        };
        let clients = (0..members_max.min(5)).map(|number| Client::new(&mut random, number));
        Self {
            clients: clients.collect(),
            random,
            bench: Bench::with_config(config),
            ids: vec![String::new(), "nobody".to_owned()],
            leaders: BTreeMap::new(),
            generation: 0,
        }
    }

    fn storm(&mut self, steps: usize) {
        for _ in 0..steps {
            let number = self.random.below(self.clients.len());
            match self.random.below(20) {
                0..=8 => self.act(number),
                9..=10 => self.misbehave(number),
                11..=13 => self.stranger(),
                14 => self.leave(number),
                15 if self.bench.stored.is_some() => self.restart(),
                16 => {
                    let ms = *pick(&mut self.random, &[4_000, 11_000, 25_000]);
                    self.bench.advance(ms);
                }
                _ => {
                    let ms = self.random.below(1_500) as i64;
                    self.bench.advance(ms);
                }
            }
            self.check();
        }
    }

    fn act(&mut self, number: usize) {
        let client = &mut self.clients[number];
        if client.waiting.is_some() {
            return;
        }
        match client.step {
            Step::Join => client.waiting = Some(self.bench.send_join(client.request())),
            Step::Sync => client.waiting = Some(self.bench.send_sync(client.sync_request())),
            Step::Beat => {
                let generation = client.generation();
                let instance_id = client.instance_id.as_deref();
                if let Err(error) = self.bench.beat_as(&client.member_id, instance_id, generation) {
                    client.refused(error, None);
                }
            }
        }
    }

    /// A client that gives up an answer, joins out of turn, starts anew, or changes its mind.
    fn misbehave(&mut self, number: usize) {
        let client = &mut self.clients[number];
        client.waiting = None;
        client.step = Step::Join;
        client.metadata = METADATA[self.random.below(METADATA.len())];
        if self.random.one_in(3) {
            client.member_id.clear();
        }
    }

    fn leave(&mut self, number: usize) {
        let client = &mut self.clients[number];
        let members_before = self.bench.group.describe().members.len();
        let member = leaver(&client.member_id, client.instance_id.as_deref());
        self.bench.leave(5, vec![member]);
        client.refused(GroupError::UnknownMemberId, None);
        client.waiting = None;
        if self.bench.group.describe().members.len() < members_before {
            let record = self.bench.group.record().encode();
            assert_eq!(self.bench.stored, Some(record), "a leave is stored at once");
        }
    }

    fn stranger(&mut self) {
        let token = ResponseToken(0);
        match stranger(&mut self.random, &self.ids, self.bench.group.generation(), token) {
            Event::Join { request, .. } => {
                self.bench.send_join(request);
            }
            Event::Sync { request, .. } => {
                self.bench.send_sync(request);
            }
            Event::Heartbeat { request, .. } => {
                let instance_id = request.instance_id.as_deref();
                let _ = self.bench.beat_as(&request.member_id, instance_id, request.generation);
            }
            Event::Leave { request, .. } => {
                self.bench.leave(request.version, request.members);
            }
            Event::CheckCommit { request, .. } => {
                let _ = self.bench.commit(request);
            }
            Event::Delete { .. } | Event::Tick => unreachable!("no stranger does this"),
        }
    }

    fn restart(&mut self) {
        self.bench.restart();
        for client in &mut self.clients {
            if client.waiting.take().is_some() {
                client.step = Step::Join;
            }
        }
        assert_eq!(self.bench.group.generation(), self.generation, "none was lost");
    }

    fn check(&mut self) {
        let record = self.bench.group.record().encode();
        let decoded = GroupRecord::decode(&record).expect("consistent");
        assert_eq!(&decoded, self.bench.group.record());
        if self.bench.state() != GroupState::PreparingRebalance && self.bench.stored.is_some() {
            assert_eq!(self.bench.stored, Some(record), "all is stored that clients can see");
        }
        let generation = self.bench.group.generation();
        assert!(generation >= self.generation, "generations never decrease");
        self.generation = generation;
        if self.bench.state() == GroupState::Stable {
            for member in self.bench.group.describe().members {
                self.check_assignment(generation, &member.assignment);
            }
        }
        self.deliver();
    }

    fn deliver(&mut self) {
        for (token, response) in self.bench.take_answers() {
            self.answered(token, response);
        }
    }

    fn check_assignment(&self, generation: i32, assignment: &[u8]) {
        let prefix = format!("{generation}:");
        let fits = assignment.is_empty() || assignment.starts_with(prefix.as_bytes());
        assert!(fits, "{assignment:?} in generation {generation}");
    }

    fn answered(&mut self, token: ResponseToken, response: Response) {
        if let Response::Join(Ok(joined)) = &response {
            self.ids.push(joined.member_id.clone());
            self.check_leader(joined);
        }
        let client = self.clients.iter_mut().find(|client| client.waiting == Some(token));
        let Some(client) = client else { return };
        client.waiting = None;
        match response {
            Response::Join(Ok(joined)) => {
                client.member_id.clone_from(&joined.member_id);
                client.joined = Some(joined);
                client.step = Step::Sync;
            }
            Response::Join(Err(refusal)) => client.refused(refusal.error, Some(refusal.member_id)),
            Response::Sync(Ok(synced)) => {
                client.step = Step::Beat;
                let generation = client.generation();
                self.check_assignment(generation, &synced.assignment);
            }
            Response::Sync(Err(error)) => client.refused(error, None),
            other => panic!("nobody waits for {other:?}"),
        }
    }

    /// At most one member of the group believes to lead a generation.
    fn check_leader(&mut self, joined: &Joined) {
        if joined.leader != joined.member_id {
            return;
        }
        let earlier = self.leaders.insert(joined.generation, joined.member_id.clone());
        if let Some(earlier) = earlier.filter(|earlier| *earlier != joined.member_id) {
            let members = self.bench.group.describe().members;
            let is_member = members.iter().any(|member| member.member_id == earlier);
            assert!(!is_member, "{earlier} and {joined:?}");
        }
    }

    /// Clients only do what they should, until strangers have expired and all agree.
    fn settle(&mut self) {
        for client in &mut self.clients {
            client.metadata = METADATA[0];
            if client.step != Step::Beat {
                client.waiting = None;
                client.step = Step::Join;
            }
        }
        for _ in 0..80 {
            for number in 0..self.clients.len() {
                self.act(number);
                self.deliver();
            }
            self.bench.advance(1_000);
            self.check();
        }
        assert_eq!(self.bench.state(), GroupState::Stable);
        assert_eq!(self.bench.group.describe().members.len(), self.clients.len());
        for client in &self.clients {
            assert_eq!((client.step, client.generation()), (Step::Beat, self.generation));
        }
    }

    /// A settled group and one that was loaded from its record answer alike from here on.
    fn compare_with_loaded_twin(&mut self) {
        for client in &self.clients {
            let instance_id = client.instance_id.as_deref();
            let answer = self.bench.beat_as(&client.member_id, instance_id, self.generation);
            assert_eq!(answer, Ok(()), "all sessions begin now, as those of the twin");
        }
        let mut now_ms = self.bench.now_ms;
        let mut group = self.bench.group.clone();
        let record = GroupRecord::decode(&group.record().encode()).expect("consistent");
        let mut twin = Group::load(record, self.bench.config.clone(), now_ms);
        for number in 0..60 {
            assert_eq!(group.next_deadline_ms(), twin.next_deadline_ms());
            let end_ms = now_ms + self.random.below(3_000) as i64;
            while let Some(due_ms) = group.next_deadline_ms().filter(|&due_ms| due_ms <= end_ms) {
                assert_eq!(group.apply(Event::Tick, due_ms), twin.apply(Event::Tick, due_ms));
            }
            now_ms = end_ms;
            let token = ResponseToken(1_000_000 + number);
            let event = stranger(&mut self.random, &self.ids, group.generation(), token);
            assert_eq!(group.apply(event.clone(), now_ms), twin.apply(event, now_ms));
            assert_eq!(group.record(), twin.record());
        }
    }

    /// Everybody falls silent: the group empties, and no answer stays owed.
    fn silence(&mut self) {
        self.bench.advance(400_000);
        self.check();
        assert_eq!(self.bench.state(), GroupState::Empty);
        assert_eq!(self.bench.group.held().count(), 0);
        assert_eq!(self.bench.group.next_deadline_ms(), None);
        assert_eq!(self.bench.delete(), Ok(()));
    }
}

/// A request of somebody who follows no protocol, with ids that exist, did exist, or never did.
fn stranger(random: &mut Random, ids: &[String], generation: i32, token: ResponseToken) -> Event {
    let recent = &ids[ids.len().saturating_sub(8)..];
    let member_id = if random.one_in(4) { pick(random, ids) } else { pick(random, recent) }.clone();
    let instance_id =
        random.one_in(3).then(|| pick(random, &["instance-0", "instance-1", "x"]).to_string());
    let generation = generation + *pick(random, &[0, 0, 0, 1, -1]);
    match random.below(5) {
        0 => {
            let metadata =
                if random.one_in(6) { &[("other", "o")] } else { *pick(random, &METADATA) };
            let request = JoinRequest {
                version: *pick(random, &[0, 3, 4, 8, 9]),
                instance_id,
                protocols: protocols(metadata),
                session_timeout_ms: *pick(random, &[6_000, 10_000, 5_999]),
                rebalance_timeout_ms: *pick(random, &[-1, 0, 5_000, 20_000]),
                new_id: Uuid::from_u128(u128::from(token.0)),
                ..join(&member_id)
            };
            Event::Join { token, request }
        }
        1 => {
            let part = Bytes::from(format!("{generation}:stolen"));
            let assignments = ids.iter().map(|id| (id.clone(), part.clone())).collect();
            let request = SyncRequest { instance_id, assignments, ..sync(&member_id, generation) };
            Event::Sync { token, request }
        }
        2 => {
            let request = HeartbeatRequest { member_id, instance_id, generation };
            Event::Heartbeat { token, request }
        }
        3 if random.one_in(2) => {
            let members = vec![leaver(&member_id, instance_id.as_deref())];
            Event::Leave { token, request: LeaveRequest { version: 5, members } }
        }
        _ => Event::CheckCommit { token, request: commit(&member_id, generation) },
    }
}

#[test]
fn random_histories_keep_the_invariants() {
    for seed in 0..SEEDS {
        let run = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            for _ in 0..2 {
                world.storm(120);
                world.settle();
                world.compare_with_loaded_twin();
            }
            world.storm(60);
            world.silence();
        });
        assert!(run.is_ok(), "seed {seed}");
    }
}
