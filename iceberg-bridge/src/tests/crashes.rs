//! The same log gives the same rows, wherever looks, restarts and deaths fall.

use super::support::{TableRow, World};
use crate::Bridge;
use floe_env::Env;
use floe_env::simulated::Node;
use proptest::prelude::*;
use std::time::Duration;

#[derive(Clone, Debug)]
enum Step {
    /// Records to a partition.
    Append { partition: i32, count: i64 },
    /// A look by one of the brokers.
    Look { broker: usize },
    /// A round of the background job of one of the brokers, and some time for what it asked for.
    Round { broker: usize, seconds: u64 },
    /// A broker is killed at a poll of its tasks that comes soon, or by the end of the next step.
    Kill { broker: usize, polls: u64 },
    /// A broker is restarted.
    Restart { broker: usize },
}

const PARTITIONS: i32 = 3;
const BROKERS: usize = 2;

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..PARTITIONS, 1..30i64)
            .prop_map(|(partition, count)| Step::Append { partition, count }),
        3 => (0..BROKERS).prop_map(|broker| Step::Look { broker }),
        2 => (0..BROKERS, 0..70u64).prop_map(|(broker, seconds)| Step::Round { broker, seconds }),
        2 => (0..BROKERS, 1..60u64).prop_map(|(broker, polls)| Step::Kill { broker, polls }),
        1 => (0..BROKERS).prop_map(|broker| Step::Restart { broker }),
    ]
}

struct Broker {
    node: Node,
    bridge: Bridge,
}

impl Broker {
    fn start(world: &World, seed: u64) -> Self {
        let node = Node::new(seed);
        let bridge = world.bridge(Env::simulated(node.clone()));
        Self { node, bridge }
    }

    /// Runs something on the broker until it ends or the broker is dead.
    async fn run<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.node.dead() => None,
            ended = work => Some(ended),
        }
    }
}

struct Run {
    world: World,
    brokers: Vec<Broker>,
    expected: Vec<TableRow>,
    next_number: i64,
    seed: u64,
}

impl Run {
    async fn step(&mut self, topic: kfs::TopicId, step: &Step) {
        match *step {
            Step::Append { partition, count } => {
                let numbers = self.next_number..self.next_number + count;
                self.next_number += count;
                let base = self.world.append(topic, partition, numbers.clone());
                let rows =
                    (base..).zip(numbers).map(|(offset, n)| (partition, offset, n.to_string()));
                self.expected.extend(rows);
            }
            Step::Look { broker } => {
                let broker = &self.brokers[broker];
                let Some(answer) = broker.run(broker.bridge.look("t")).await else { return };
                let Some(answer) = answer.unwrap() else {
                    assert!(self.expected.is_empty());
                    return;
                };
                assert_eq!(answer.behind, None);
                let mut expected = self.expected.clone();
                expected.sort();
                assert_eq!(self.world.rows(&answer.table).await, expected);
            }
            Step::Round { broker, seconds } => {
                let broker = &self.brokers[broker];
                let work = async {
                    broker.bridge.round().await.unwrap();
                    tokio::time::advance(Duration::from_secs(seconds)).await;
                };
                broker.run(work).await;
            }
            Step::Kill { broker, polls } => self.brokers[broker].node.set_kill_once_in(polls),
            Step::Restart { broker } => {
                self.brokers[broker].node.kill();
                self.seed += 1;
                self.brokers[broker] = Broker::start(&self.world, self.seed);
            }
        }
    }
}

async fn run(steps: Vec<Step>, seed: u64) {
    let world = World::new();
    let topic = world.topic("t", usize::try_from(PARTITIONS).unwrap()).await;
    let brokers = (0..BROKERS as u64).map(|at| Broker::start(&world, seed + at)).collect();
    let seed = seed + BROKERS as u64;
    let mut run = Run { world, brokers, expected: Vec::new(), next_number: 0, seed };
    for step in &steps {
        run.step(topic, step).await;
        for broker in 0..BROKERS {
            if !run.brokers[broker].node.is_alive() {
                run.step(topic, &Step::Restart { broker }).await;
            }
        }
    }
    run.step(topic, &Step::Append { partition: 0, count: 1 }).await;
    run.step(topic, &Step::Restart { broker: 0 }).await;
    run.step(topic, &Step::Look { broker: 0 }).await;
    let table = run.brokers[0].bridge.newest("t").await.unwrap().unwrap();
    run.expected.sort();
    assert_eq!(run.world.rows(&table).await, run.expected);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn the_same_log_gives_the_same_rows(
        steps in prop::collection::vec(step(), 1..25),
        seed in 0..u64::MAX / 2,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(run(steps, seed));
    }
}
