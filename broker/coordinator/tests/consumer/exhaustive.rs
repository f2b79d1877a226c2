//! Every history of a small world, up to a number of steps: members that send heartbeats, lose
//! answers, leave and start again, brokers that die, a topic that grows. In every state that is
//! reached no partition has two owners, and from every state the group settles, balanced, once
//! nothing more happens.

use crate::bench::{Bench, Member, beats, topic};
use std::collections::BTreeSet;

/// What may happen in one step; the number is a member's.
#[derive(Debug, Clone, Copy)]
enum Step {
    Beat(usize),
    BeatAndLoseTheAnswer(usize),
    Leave(usize),
    StartAgain(usize),
    BrokerDies,
    TopicGrows,
}

#[derive(Clone)]
struct World {
    bench: Bench,
    members: Vec<Member>,
    has_grown: bool,
}

/// What two worlds must have in common to be the same.
type Key = (Option<Vec<u8>>, Vec<Member>, bool);

impl World {
    fn new(members: usize) -> Self {
        let mut bench = Bench::new(2);
        bench.rules.consumer.assignment_interval_ms = 0;
        let members = (0..members).map(|number| Member::new(&format!("m{number}"))).collect();
        Self { bench, members, has_grown: false }
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps = vec![Step::BrokerDies];
        if !self.has_grown {
            steps.push(Step::TopicGrows);
        }
        for (number, member) in self.members.iter().enumerate() {
            steps.extend([Step::Beat(number), Step::BeatAndLoseTheAnswer(number)]);
            if member.epoch != 0 {
                steps.extend([Step::Leave(number), Step::StartAgain(number)]);
            }
        }
        steps
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Beat(number) => self.members[number].beat(&mut self.bench),
            Step::BeatAndLoseTheAnswer(number) => {
                let _ = self.bench.heartbeat(self.members[number].request());
                self.members[number].tells = true;
            }
            Step::Leave(number) => {
                let member = &mut self.members[number];
                let _ = self.bench.heartbeat(beats(&member.id, -1));
                *member = Member::new(&member.id);
            }
            Step::StartAgain(number) => {
                let member = &mut self.members[number];
                *member = Member::new(&member.id);
            }
            Step::BrokerDies => self.bench.crash(),
            Step::TopicGrows => {
                self.bench.set_topics(&[("t", 1, 3)]);
                self.has_grown = true;
            }
        }
    }

    fn key(&self) -> Key {
        let record = self.bench.group.as_ref().map(floe_coordinator::group::Group::encode);
        (record, self.members.clone(), self.has_grown)
    }

    fn check_owners(&self, history: &[Step]) {
        let mut owned = BTreeSet::new();
        for index in self.members.iter().filter_map(|it| it.owned.get(&topic(1))).flatten() {
            assert!(owned.insert(*index), "partition {index} has two owners after {history:?}");
        }
    }

    fn check_that_it_settles(mut self, history: &[Step]) {
        for _ in 0..8 {
            for number in 0..self.members.len() {
                self.take(Step::Beat(number));
                self.check_owners(history);
            }
        }
        assert_eq!(self.bench.state(), "Stable", "after {history:?}");
        let counts = self.members.iter().map(|it| it.owned.get(&topic(1)).map_or(0, BTreeSet::len));
        let counts: Vec<usize> = counts.collect();
        let partitions = if self.has_grown { 3 } else { 2 };
        assert_eq!(counts.iter().sum::<usize>(), partitions, "after {history:?}");
        let (most, least) = (counts.iter().max(), counts.iter().min());
        assert!(most <= least.map(|it| it + 1).as_ref(), "{counts:?} after {history:?}");
    }
}

/// The number of states that were reached.
fn explore(members: usize, steps_max: usize) -> usize {
    let start = World::new(members);
    let mut seen: BTreeSet<Key> = BTreeSet::from([start.key()]);
    let mut frontier = vec![(start, Vec::new())];
    for _ in 0..steps_max {
        let mut next = Vec::new();
        for (world, history) in frontier {
            for step in world.steps() {
                let mut world = world.clone();
                let mut history: Vec<Step> = history.clone();
                history.push(step);
                world.take(step);
                world.check_owners(&history);
                if seen.insert(world.key()) {
                    world.clone().check_that_it_settles(&history);
                    next.push((world, history));
                }
            }
        }
        frontier = next;
    }
    seen.len()
}

#[test]
fn two_members() {
    let states = explore(2, 5);
    assert!(states > 1_000, "only {states} states");
}

#[test]
fn three_members() {
    let states = explore(3, 3);
    assert!(states > 200, "only {states} states");
}
