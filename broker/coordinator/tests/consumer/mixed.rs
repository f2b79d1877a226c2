//! Long random histories of a group whose members speak either protocol: processes come with one
//! and come back with the other, so that the group changes its own, online and in the middle of
//! rebalances; they fall silent, lose answers, leave and die, static ones come back in their place,
//! and brokers die. No partition is ever read by two, none that somebody reads takes a commit of
//! who read it before, and every group settles.

use crate::bench::{Answers, Bench, Member, beats, commits, topic};
use crate::embedded::{assigned, assignment, classic_join, owned, subscription};
use floe_coordinator::GroupError;
use floe_coordinator::classic::{
    self, CommitCheck, JoinRequest, Joined, LeaveRequest, Leaver, ResponseToken, SyncRequest,
};
use floe_coordinator::consumer::HeartbeatRequest;
use floe_coordinator::group::{Event, Response};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// Histories per run of the test.
const SEEDS: u64 = 60;
const STEPS: usize = 250;
const CLIENTS: usize = 4;
const PARTITIONS: i32 = 5;
/// Former readers that are remembered.
const FORMERS_MAX: usize = 12;
/// Of both protocols; no member is removed before it knows itself that its session is over.
const SESSION_MS: i64 = 45_000;
const REBALANCE_TIMEOUT_MS: i32 = 60_000;
/// Rounds of a second without faults in which every group settles: more than two sessions.
const ROUNDS_IN_CALM: usize = 160;

/// Splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// What a process of the classic protocol does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// It has to join.
    Nothing,
    Joins(ResponseToken),
    Syncs(ResponseToken),
    Reads,
}

#[derive(Debug)]
enum Speaks {
    Classic { id: String, generation: i32, owned: BTreeSet<i32>, doing: Doing },
    Newer(Member),
}

/// A process.
#[derive(Debug)]
struct Client {
    speaks: Speaks,
    instance_id: Option<String>,
    /// When it last sent something that was answered well, ms.
    heard_ms: i64,
}

/// Who read a partition once, and may still try to commit.
struct Former {
    client: usize,
    commit: CommitCheck,
}

struct World {
    random: Random,
    bench: Bench,
    clients: Vec<Client>,
    formers: Vec<Former>,
    /// Of ten processes, those of the classic protocol.
    classics: usize,
    is_cooperative: bool,
    processes: u128,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let mut bench = Bench::new(PARTITIONS);
        bench.rules.consumer.assignment_interval_ms = [0, 1_000][random.below(2)];
        let classics = [3, 5, 7, 10][random.below(4)];
        let is_cooperative = random.below(2) == 0;
        let (clients, formers) = (Vec::new(), Vec::new());
        let mut world =
            Self { random, bench, clients, formers, classics, is_cooperative, processes: 0 };
        for number in 0..CLIENTS {
            let instance_id =
                (number < 2 && world.random.below(2) == 0).then(|| number.to_string());
            let client = world.process(instance_id);
            world.clients.push(client);
        }
        world
    }

    /// A process that has not joined yet.
    fn process(&mut self, instance_id: Option<String>) -> Client {
        self.processes += 1;
        let speaks = match self.random.below(10) < self.classics {
            true => Speaks::Classic {
                id: String::new(),
                generation: 0,
                owned: BTreeSet::new(),
                doing: Doing::Nothing,
            },
            false => Speaks::Newer(Member::new(&format!("p{}", self.processes))),
        };
        Client { speaks, instance_id, heard_ms: self.bench.now_ms }
    }

    fn step(&mut self) {
        let number = self.random.below(CLIENTS);
        match self.random.below(30) {
            0 => self.crash(),
            1 => self.bench_passes(46_000),
            2..=4 => self.bench_passes(1_000),
            5 => self.leave(number),
            6 => self.die(number),
            7..=9 => self.lose_answer(number),
            _ => self.beat(number),
        }
        self.silence();
        self.check();
    }

    /// Connections are lost with their broker.
    fn crash(&mut self) {
        self.bench.crash();
        for client in &mut self.clients {
            if let Speaks::Classic { doing: doing @ (Doing::Joins(_) | Doing::Syncs(_)), .. } =
                &mut client.speaks
            {
                *doing = Doing::Nothing;
            }
        }
    }

    /// Lets time pass. Answers that were held may come.
    fn bench_passes(&mut self, ms: i64) {
        let answers = self.bench.pass_and_answer(ms);
        self.take_all(answers);
    }

    fn beat(&mut self, number: usize) {
        let client = &mut self.clients[number];
        let instance_id = client.instance_id.clone();
        let Speaks::Newer(member) = &mut client.speaks else { return self.classic_beat(number) };
        let request = newer_request(member, instance_id);
        let sent_ms = self.bench.now_ms;
        let (answer, others) = self.bench.heartbeat_with_answers(request);
        match answer {
            Err(refusal) if refusal.error == GroupError::UnreleasedInstanceId => {}
            answer => {
                client.heard_ms = if answer.is_ok() { sent_ms } else { client.heard_ms };
                member.take(answer);
            }
        }
        self.take_all(others);
    }

    fn classic_beat(&mut self, number: usize) {
        let token = self.bench.token();
        let client = &mut self.clients[number];
        let instance_id = client.instance_id.clone();
        let Speaks::Classic { id, generation, owned, doing } = &mut client.speaks else { return };
        let event = match doing {
            Doing::Joins(_) | Doing::Syncs(_) => return,
            Doing::Nothing => {
                if !self.is_cooperative {
                    owned.clear();
                }
                *doing = Doing::Joins(token);
                let indexes: Vec<i32> = owned.iter().copied().collect();
                self.processes += 1;
                let request = JoinRequest {
                    instance_id,
                    new_id: Uuid::from_u128(self.processes),
                    session_timeout_ms: i32::try_from(SESSION_MS).expect("small"),
                    rebalance_timeout_ms: REBALANCE_TIMEOUT_MS,
                    ..classic_join(id, subscription(&indexes))
                };
                classic::Event::Join { token, request }
            }
            Doing::Reads => {
                let (member_id, generation) = (id.clone(), *generation);
                let request = classic::HeartbeatRequest { member_id, instance_id, generation };
                classic::Event::Heartbeat { token, request }
            }
        };
        let answers = self.bench.apply(Event::Classic(event));
        self.take_classic(number, token, answers);
    }

    /// Takes answers, of which one may be to this token of a client's heartbeat.
    fn take_classic(&mut self, number: usize, token: ResponseToken, answers: Answers) {
        let is_own = |it: &&(ResponseToken, Response)| it.0 == token;
        if let Some((_, Response::Classic(classic::Response::Heartbeat(answer)))) =
            answers.iter().find(is_own)
        {
            match answer {
                Ok(()) => self.clients[number].heard_ms = self.bench.now_ms,
                Err(error) => self.refused(number, *error),
            }
        }
        self.take_all(answers);
    }

    /// Delivers answers to whoever waits for them, and what follows from them.
    fn take_all(&mut self, answers: Answers) {
        let mut answers: Vec<_> = answers.into_iter().rev().collect();
        while let Some((token, response)) = answers.pop() {
            let waits = |client: &Client| {
                matches!(&client.speaks, Speaks::Classic { doing, .. }
                    if [Doing::Joins(token), Doing::Syncs(token)].contains(doing))
            };
            let Some(number) = self.clients.iter().position(waits) else { continue };
            match response {
                Response::Classic(classic::Response::Join(Ok(joined))) => {
                    answers.extend(self.sync(number, &joined).into_iter().rev());
                }
                Response::Classic(classic::Response::Join(Err(refusal))) => {
                    let is_required = refusal.error == GroupError::MemberIdRequired;
                    self.refused(number, refusal.error);
                    if let Speaks::Classic { id, .. } = &mut self.clients[number].speaks
                        && is_required
                    {
                        *id = refusal.member_id;
                    }
                }
                Response::Classic(classic::Response::Sync(Ok(synced))) => {
                    self.assigned(number, &assigned(&synced.assignment));
                }
                Response::Classic(classic::Response::Sync(Err(error))) => {
                    self.refused(number, error);
                }
                other => panic!("{other:?} to a join or a sync"),
            }
        }
    }

    fn sync(&mut self, number: usize, joined: &Joined) -> Answers {
        let token = self.bench.token();
        let now_ms = self.bench.now_ms;
        let client = &mut self.clients[number];
        let Speaks::Classic { id, generation, doing, .. } = &mut client.speaks else {
            return Vec::new();
        };
        (*id, *generation) = (joined.member_id.clone(), joined.generation);
        *doing = Doing::Syncs(token);
        // What it said that it has when it joined stays its own in this generation.
        client.heard_ms = now_ms;
        let assignments = match joined.leader == joined.member_id {
            true => shares(joined),
            false => BTreeMap::new(),
        };
        let assignments = assignments.into_iter().map(|(id, share)| (id, assignment(&share)));
        let request = SyncRequest {
            version: 5,
            member_id: id.clone(),
            instance_id: client.instance_id.clone(),
            generation: joined.generation,
            protocol_type: Some("consumer".to_owned()),
            protocol_name: Some("range".to_owned()),
            assignments: assignments.collect(),
        };
        self.bench.apply(Event::Classic(classic::Event::Sync { token, request }))
    }

    fn assigned(&mut self, number: usize, assigned: &BTreeSet<i32>) {
        let client = &mut self.clients[number];
        client.heard_ms = self.bench.now_ms;
        let Speaks::Classic { owned, doing, .. } = &mut client.speaks else { return };
        // What it must give up it joins again without.
        let gives_up = !owned.is_subset(assigned);
        owned.clone_from(assigned);
        *doing = if gives_up { Doing::Nothing } else { Doing::Reads };
    }

    fn refused(&mut self, number: usize, error: GroupError) {
        let lost = [
            GroupError::UnknownMemberId,
            GroupError::IllegalGeneration,
            GroupError::RebalanceInProgress,
            GroupError::MemberIdRequired,
            GroupError::NotCoordinator,
        ];
        assert!(lost.contains(&error), "{error:?} to {:?}", self.clients[number]);
        if [GroupError::UnknownMemberId, GroupError::IllegalGeneration].contains(&error) {
            self.forget(number);
        }
        let Speaks::Classic { id, doing, .. } = &mut self.clients[number].speaks else { return };
        *doing = Doing::Nothing;
        if error == GroupError::UnknownMemberId {
            id.clear();
        }
    }

    /// A client stops to read, and may still try to commit what it has read.
    fn forget(&mut self, number: usize) {
        let client = &mut self.clients[number];
        let instance_id = client.instance_id.clone();
        let (id, epoch, version, indexes) = match &mut client.speaks {
            Speaks::Classic { id, generation, owned, .. } => {
                (id.clone(), *generation, 8, std::mem::take(owned))
            }
            Speaks::Newer(member) => {
                let owned = std::mem::take(&mut member.owned);
                let indexes = owned.get(&topic(1)).cloned().unwrap_or_default();
                (member.id.clone(), member.epoch, 9, indexes)
            }
        };
        for index in indexes {
            let commit = CommitCheck {
                version,
                instance_id: instance_id.clone(),
                ..commits(&id, epoch, &[index])
            };
            self.formers.push(Former { client: number, commit });
        }
        let old = self.formers.len().saturating_sub(FORMERS_MAX);
        self.formers.drain(..old);
    }

    /// A request whose answer nobody gets.
    fn lose_answer(&mut self, number: usize) {
        let client = &mut self.clients[number];
        let instance_id = client.instance_id.clone();
        match &mut client.speaks {
            Speaks::Newer(member) => {
                let (_, others) =
                    self.bench.heartbeat_with_answers(newer_request(member, instance_id));
                member.tells = true;
                self.take_all(others);
            }
            Speaks::Classic { .. } => {
                // Its connection goes with the answer that it waits for, or will wait for.
                self.classic_beat(number);
                if let Speaks::Classic {
                    doing: doing @ (Doing::Joins(_) | Doing::Syncs(_)), ..
                } = &mut self.clients[number].speaks
                {
                    *doing = Doing::Nothing;
                }
            }
        }
    }

    fn leave(&mut self, number: usize) {
        let client = &self.clients[number];
        let instance_id = client.instance_id.clone();
        let others = match &client.speaks {
            Speaks::Newer(member) => {
                let epoch = if instance_id.is_some() { -2 } else { -1 };
                let leaves = HeartbeatRequest { instance_id, ..beats(&member.id, epoch) };
                self.bench.heartbeat_with_answers(leaves).1
            }
            // Static members do not leave.
            Speaks::Classic { .. } if instance_id.is_some() => Vec::new(),
            Speaks::Classic { id, .. } => {
                let token = self.bench.token();
                let members = vec![Leaver { member_id: id.clone(), instance_id }];
                let request = LeaveRequest { version: 5, members };
                self.bench.apply(Event::Classic(classic::Event::Leave { token, request }))
            }
        };
        self.die(number);
        self.take_all(others);
    }

    /// The next process begins; this one says nothing any more, except perhaps a commit.
    fn die(&mut self, number: usize) {
        self.forget(number);
        let instance_id = self.clients[number].instance_id.clone();
        self.clients[number] = self.process(instance_id);
    }

    /// Clients that have heard nothing for a session know that it is over.
    fn silence(&mut self) {
        for number in 0..CLIENTS {
            let client = &self.clients[number];
            if self.bench.now_ms - client.heard_ms < SESSION_MS {
                continue;
            }
            self.forget(number);
            match &mut self.clients[number].speaks {
                Speaks::Newer(member) => *member = Member::new(&member.id),
                Speaks::Classic { doing, .. } if *doing == Doing::Reads => *doing = Doing::Nothing,
                Speaks::Classic { .. } => {}
            }
        }
    }

    fn check(&self) {
        let readers = self.readers();
        let mut bench = self.bench.clone();
        for Former { client, commit } in &self.formers {
            let index = commit.partitions[0].1;
            if readers.get(&index).is_some_and(|reader| reader != client) {
                let taken = bench.commit(commit.clone());
                assert!(taken.is_err(), "who reads {index} no more may commit: {commit:?}");
            }
        }
    }

    /// Who reads a partition: a client at most.
    fn readers(&self) -> BTreeMap<i32, usize> {
        let mut readers = BTreeMap::new();
        for (number, client) in self.clients.iter().enumerate() {
            for index in client.reads() {
                let other = readers.insert(index, number);
                assert_eq!(other, None, "{index} is read by two: {:#?}", self.clients);
            }
        }
        readers
    }

    fn settle(&mut self) {
        for _ in 0..ROUNDS_IN_CALM {
            self.bench_passes(1_000);
            for number in 0..CLIENTS {
                self.beat(number);
                self.readers();
            }
        }
        assert_eq!(self.bench.state(), "Stable", "{:#?}", self.clients);
        let read: usize = self.clients.iter().map(|client| client.reads().len()).sum();
        assert_eq!(read, PARTITIONS as usize, "{:#?}", self.clients);
    }
}

impl Client {
    fn reads(&self) -> BTreeSet<i32> {
        match &self.speaks {
            Speaks::Classic { owned, .. } => owned.clone(),
            Speaks::Newer(member) => member.owned.get(&topic(1)).cloned().unwrap_or_default(),
        }
    }
}

fn newer_request(member: &Member, instance_id: Option<String>) -> HeartbeatRequest {
    let mut request = HeartbeatRequest { instance_id, ..member.request() };
    if request.rebalance_timeout_ms != -1 {
        request.rebalance_timeout_ms = REBALANCE_TIMEOUT_MS;
    }
    request
}

/// What a leader gives to whom. A partition that a member has goes to nobody else yet.
fn shares(joined: &Joined) -> BTreeMap<String, Vec<i32>> {
    let owned: Vec<BTreeSet<i32>> = joined.members.iter().map(|it| owned(&it.metadata)).collect();
    let is_free = |at: usize, index: i32| {
        (0..owned.len()).all(|other| other == at || !owned[other].contains(&index))
    };
    let mut shares: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    for (at, member) in joined.members.iter().enumerate() {
        let wanted = (0..PARTITIONS).filter(|index| *index as usize % owned.len() == at);
        let share = wanted.filter(|index| is_free(at, *index)).collect();
        shares.insert(member.member_id.clone(), share);
    }
    shares
}

#[test]
fn no_partition_has_two_readers_and_every_group_settles() {
    let mut kinds = BTreeSet::new();
    let mut changes = 0;
    for seed in 0..SEEDS {
        let outcome = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            let (mut kind, mut changes) = (world.bench.kind(), 0);
            for _ in 0..STEPS {
                world.step();
                changes += usize::from(kind != world.bench.kind());
                kind = world.bench.kind();
            }
            world.settle();
            (world.bench.kind(), changes)
        });
        let (kind, changed) = outcome.unwrap_or_else(|_| panic!("seed {seed}"));
        kinds.insert(kind);
        changes += changed;
    }
    assert_eq!(kinds, ["classic", "consumer"].into());
    assert!(changes > 200, "only {changes} changes of protocol");
}
