//! Long random histories of a larger group: members come, go, fall silent and lose answers, topics
//! come, grow and go, and brokers die.

use crate::bench::{Bench, Member, beats, joins};
use crate::random_numbers::Random;
use floe_coordinator::consumer::{HeartbeatRequest, Partitions};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// Histories per run of the test.
const SEEDS: u64 = 40;
const STEPS: usize = 300;
const MEMBERS: usize = 6;

/// A member with a subscription of its own.
struct Client {
    member: Member,
    topics: BTreeSet<String>,
    regex: Option<String>,
    instance_id: Option<String>,
    assignor: &'static str,
    /// When it last spoke, ms: after a session without a word it does not consume any more.
    spoke_ms: i64,
}

impl Client {
    fn new(random: &mut Random, number: usize) -> Self {
        let mut topics: BTreeSet<String> = ["a", "b", "c"]
            .into_iter()
            .filter(|_| random.below(3) > 0)
            .map(str::to_owned)
            .collect();
        topics.insert("a".to_owned());
        Self {
            member: Member::new(&format!("m{number}")),
            topics,
            regex: random.one_in(4).then(|| "[bd]".to_owned()),
            instance_id: (number < 2).then(|| format!("i{number}")),
            assignor: if random.one_in(4) { "range" } else { "uniform" },
            spoke_ms: 0,
        }
    }

    fn request(&self) -> HeartbeatRequest {
        let mut request = self.member.request();
        if request.topic_names.is_some() {
            request.topic_names = Some(self.topics.clone());
            request.topic_regex.clone_from(&self.regex);
            request.server_assignor = Some(self.assignor.to_owned());
        }
        request.instance_id.clone_from(&self.instance_id);
        request
    }

    fn beat(&mut self, bench: &mut Bench) {
        self.spoke_ms = bench.now_ms;
        let answer = bench.heartbeat(self.request());
        self.member.take(answer);
    }
}

struct World {
    random: Random,
    bench: Bench,
    clients: Vec<Client>,
    topics: BTreeMap<&'static str, (u128, i32)>,
    next_topic: u128,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let mut bench = Bench::new(1);
        bench.rules.consumer.assignment_interval_ms = [0, 1_000][random.below(2)];
        let clients = (0..MEMBERS).map(|number| Client::new(&mut random, number)).collect();
        let topics = BTreeMap::from([("a", (1, 4)), ("b", (2, 3))]);
        let mut world = Self { random, bench, clients, topics, next_topic: 3 };
        world.publish_topics();
        world
    }

    fn publish_topics(&mut self) {
        let topics = self.topics.iter().map(|(name, (id, count))| (*name, *id, *count));
        self.bench.set_topics(&topics.collect::<Vec<_>>());
    }

    fn change_topics(&mut self) {
        let name = ["a", "b", "c", "d"][self.random.below(4)];
        let id = self.next_topic;
        match self.topics.get_mut(name) {
            Some((_, count)) if self.random.one_in(2) => *count += 1,
            Some(_) => {
                self.topics.remove(name);
            }
            None => {
                self.topics.insert(name, (id, 3));
                self.next_topic += 1;
            }
        }
        self.publish_topics();
    }

    fn step(&mut self) {
        let number = self.random.below(MEMBERS);
        match self.random.below(24) {
            0 => self.bench.crash(),
            1 => self.change_topics(),
            2 => {
                self.bench.pass(46_000);
            }
            3..=5 => {
                let client = &mut self.clients[number];
                let _ = self.bench.heartbeat(client.request());
                client.spoke_ms = self.bench.now_ms;
                client.member.tells = true;
            }
            6 => self.leave(number),
            7 => {
                let client = &mut self.clients[number];
                client.member = Member::new(&client.member.id);
            }
            8 => self.bench.pass(1_000),
            9 => self.resubscribe(number),
            _ => self.clients[number].beat(&mut self.bench),
        }
        self.silence();
        self.check_owners();
    }

    fn leave(&mut self, number: usize) {
        let client = &mut self.clients[number];
        let epoch = if client.instance_id.is_some() && self.random.one_in(2) { -2 } else { -1 };
        let mut request = beats(&client.member.id, epoch);
        request.instance_id.clone_from(&client.instance_id);
        let _ = self.bench.heartbeat(request);
        // A static member comes back as another process.
        let id = match epoch {
            -2 => format!("{}'", client.member.id.chars().take(8).collect::<String>()),
            _ => client.member.id.clone(),
        };
        client.member = Member::new(&id);
    }

    fn resubscribe(&mut self, number: usize) {
        let fresh = Client::new(&mut self.random, number);
        let client = &mut self.clients[number];
        client.topics = fresh.topics;
        client.member.tells = client.member.epoch != 0;
    }

    /// A client that has not spoken for a session knows that it is out.
    fn silence(&mut self) {
        for client in &mut self.clients {
            if self.bench.now_ms - client.spoke_ms >= 45_000 {
                client.member = Member::new(&client.member.id);
            }
        }
    }

    fn check_owners(&self) {
        let mut owned: BTreeSet<(Uuid, i32)> = BTreeSet::new();
        for client in &self.clients {
            for (topic, indexes) in &client.member.owned {
                for index in indexes {
                    assert!(owned.insert((*topic, *index)), "{topic} {index} has two owners");
                }
            }
        }
    }

    fn settle(&mut self) {
        for _ in 0..12 {
            self.bench.pass(1_000);
            for client in &mut self.clients {
                client.beat(&mut self.bench);
            }
            self.check_owners();
        }
        assert_eq!(self.bench.state(), "Stable");
        let view = self.bench.view();
        for (name, (id, count)) in &self.topics {
            let id = Uuid::from_u128(*id);
            let has_subscriber = self.clients.iter().any(|client| {
                client.topics.contains(*name)
                    || client.regex.as_ref().is_some_and(|_| ["b", "d"].contains(name))
            });
            let owned = self.clients.iter().filter_map(|client| client.member.owned.get(&id));
            let owned: usize = owned.map(BTreeSet::len).sum();
            let wanted = if has_subscriber { *count } else { 0 };
            assert_eq!(owned, usize::try_from(wanted).expect("a count"), "of {name}: {view:?}");
        }
    }
}

#[test]
fn no_partition_has_two_owners_and_every_group_settles() {
    for seed in 0..SEEDS {
        let outcome = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            for _ in 0..STEPS {
                world.step();
            }
            world.settle();
        });
        assert!(outcome.is_ok(), "seed {seed}");
    }
}

#[test]
fn a_thousand_partitions_and_a_hundred_members_settle_in_three_rounds() {
    let mut bench = Bench::new(1_000);
    let mut members: Vec<Member> = (0..100).map(|it| Member::new(&format!("m{it:03}"))).collect();
    members.iter_mut().for_each(|member| member.beat(&mut bench));
    let mut rounds = 0;
    while bench.state() != "Stable" {
        bench.pass(1_000);
        members.iter_mut().for_each(|member| member.settle(&mut bench));
        rounds += 1;
        assert!(rounds <= 3, "{rounds} rounds");
    }
    assert!(members.iter().all(|member| member.owned.values().all(|owned| owned.len() == 10)));
    let asks = HeartbeatRequest { server_assignor: Some("range".to_owned()), ..joins("m000") };
    assert_ne!(bench.heartbeat(asks).expect("joined").assignment, Some(Partitions::new()));
}
