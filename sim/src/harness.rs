//! From a seed to a run: one single-threaded runtime with paused time, on which the stores, all
//! lives of the broker and all clients are tasks. A run has three parts: faults, deaths and
//! restarts for a while; then nothing fails any more, and everything that was begun must end within
//! a bounded time; then a fresh broker is read from end to end and compared with the model.

use crate::actors::Context;
use crate::actors::churn::Churn;
use crate::actors::consumer::Consumer;
use crate::actors::producer::Producer;
use crate::calls::{Calls, Deaths, Weather};
use crate::cluster::{Cluster, Parts, Tally};
use crate::dice::{between_ms, chance, pick};
use crate::fault_metadata::MetadataServer;
use crate::model::Model;
use crate::planted::Plant;
use crate::trace::Trace;
use floe::config::{Config, Given, Inputs, Machine, resolve};
use floe_env::simulated::Node;
use floe_env::{Env, Lane, Result, Shutdown, Task, shutdown_signal};
use kfs::{PartitionIndex, TopicId, TopicPartition};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, RngSeed};

const TOPIC: &str = "events";
const PARTITIONS: i32 = 2;
/// Faults and deaths last so long.
const STORM: Duration = Duration::from_secs(45);
/// When nothing fails any more, everything that was begun must end in this time.
const CALM_MAX: Duration = Duration::from_secs(120);
/// A share of the seeds, per mille, runs on a SQLite file.
const SQLITE_PER_MILLE: u64 = 250;
const MACHINE_BYTES: u64 = 256 << 20;

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// Hash over all events.
    pub trace_hash: u64,
    /// How many there were.
    pub events: u64,
    /// What must not be.
    pub violations: Vec<String>,
    /// What nodes were doing when they died.
    pub deaths: Deaths,
    /// How often each kind of store call was made.
    pub calls: BTreeMap<&'static str, u64>,
    /// How lives began and ended.
    pub lives: Tally,
    /// Acknowledged records.
    pub acknowledged: usize,
    /// Whether the metadata was in a SQLite file.
    pub in_file: bool,
    /// The newest events.
    pub lines: Vec<String>,
}

/// Runs one seed.
///
/// # Panics
/// Where the runtime cannot be made or the metadata file cannot be written.
pub fn run(seed: u64, plant: Plant) -> Report {
    floe_env::hash::seed_this_thread(seed);
    let mut builder = Builder::new_current_thread();
    builder.enable_time().start_paused(true).rng_seed(RngSeed::from_bytes(&seed.to_le_bytes()));
    let runtime = builder.build().expect("a runtime without IO needs no system");
    runtime.block_on(Box::pin(simulate(seed, plant)))
}

async fn simulate(seed: u64, plant: Plant) -> Report {
    let env = Env::simulated(Node::new(seed));
    let trace = Trace::new(env.monotonic());
    let calls = Calls::new(env.clone(), trace.clone(), weather(&env));
    let in_file = chance(&env, SQLITE_PER_MILLE);
    let started = MetadataServer::start(env.clone(), in_file).await;
    let metadata = started.expect("a temporary folder can be written");
    let model = Model::default();
    let is_remote = chance(&env, 500);
    let parts = Parts {
        env: env.clone(),
        trace: trace.clone(),
        calls: calls.clone(),
        model: model.clone(),
        metadata,
        config: Arc::new(config(&env).expect("the settings are right")),
        is_remote,
        plant,
    };
    let run = Run { env, trace, calls, model, cluster: Cluster::new(parts) };
    run.storm_and_calm().await;
    let (trace_hash, events) = run.trace.hash();
    Report {
        seed,
        trace_hash,
        events,
        violations: run.model.violations(),
        deaths: run.calls.deaths(),
        calls: run.calls.counts(),
        lives: run.cluster.tally(),
        acknowledged: run.model.acknowledged_count(),
        in_file,
        lines: run.trace.lines(),
    }
}

struct Run {
    env: Env,
    trace: Trace,
    calls: Calls,
    model: Model,
    cluster: Cluster,
}

impl Run {
    async fn storm_and_calm(&self) {
        let storm_ends = self.env.monotonic() + STORM;
        let (stop, stopped) = shutdown_signal();
        let (cluster, until) = (self.cluster.clone(), storm_ends);
        let lives = self.env.spawn("lives", Lane::Foreground, async move {
            cluster.live_until(until).await;
        });
        let founder = self.context(0, &stopped);
        let topic = self.env.timeout(STORM + CALM_MAX, founder.topic(TOPIC, PARTITIONS)).await;
        let Some(topic) = topic else {
            return self.model.violation("stuck: no topic can be made".to_owned());
        };
        let partitions: Vec<TopicPartition> = (0..PARTITIONS)
            .map(|index| TopicPartition { topic: TopicId(topic), partition: PartitionIndex(index) })
            .collect();
        let actors = self.start_actors(&partitions, &stopped);
        // A panic of the lives is one of this crate.
        let _ = lives.await;

        self.calls.calm();
        self.trace.event(self.env.monotonic(), "calm");
        let (end, ended) = shutdown_signal();
        let cluster = self.cluster.clone();
        let last = self.env.spawn("last life", Lane::Foreground, async move {
            cluster.live_on(&ended).await;
        });
        self.env.sleep(between_ms(&self.env, 0, 3000)).await;
        stop.trigger();
        self.all_end(actors).await;
        self.probe(&partitions).await;
        end.trigger();
        let _ = last.await;
        self.sweep(&partitions).await;
    }

    fn context(&self, id: u32, stop: &Shutdown) -> Context {
        Context {
            env: Env::simulated(Node::new(self.env.random_u64())),
            id,
            cluster: self.cluster.clone(),
            model: self.model.clone(),
            trace: self.trace.clone(),
            stop: stop.clone(),
        }
    }

    fn start_actors(&self, partitions: &[TopicPartition], stop: &Shutdown) -> Vec<Task<()>> {
        let mut tasks = Vec::new();
        for (id, partition) in (1..).zip(partitions.iter().cycle().take(5)) {
            let is_idempotent = id % 3 != 0;
            let context = self.context(id, stop);
            let producer = Producer::new(context, TOPIC, *partition, is_idempotent);
            tasks.push(self.env.spawn("producer", Lane::Foreground, producer.run()));
        }
        for id in 100..102 {
            let consumer = Consumer::new(self.context(id, stop), TOPIC, partitions);
            tasks.push(self.env.spawn("consumer", Lane::Foreground, consumer.run()));
        }
        let churn = Churn::new(self.context(200, stop));
        tasks.push(self.env.spawn("churn", Lane::Foreground, churn.run()));
        let (env, cluster, stop) = (self.env.clone(), self.cluster.clone(), stop.clone());
        tasks.push(self.env.spawn("clock", Lane::Foreground, async move {
            while !stop.is_triggered() {
                env.sleep(between_ms(&env, 1000, 15_000)).await;
                cluster.jump_clock(&env);
            }
        }));
        tasks
    }

    async fn all_end(&self, tasks: Vec<Task<()>>) {
        let deadline = self.env.monotonic() + CALM_MAX;
        for (at, task) in tasks.into_iter().enumerate() {
            let left = deadline.saturating_duration_since(self.env.monotonic());
            match self.env.timeout(left, task).await {
                None => self.model.violation(format!("stuck: client {at} does not end")),
                Some(Err(error)) => self.model.violation(format!("client {at}: {error}")),
                Some(Ok(())) => {}
            }
        }
    }

    /// The broker takes records from a new producer.
    async fn probe(&self, partitions: &[TopicPartition]) {
        for (id, partition) in (50..).zip(partitions) {
            let (stop, stopped) = shutdown_signal();
            let producer = Producer::new(self.context(id, &stopped), TOPIC, *partition, true);
            let task = self.env.spawn("probe", Lane::Foreground, producer.run());
            let before = self.model.end(*partition);
            let deadline = self.env.monotonic() + CALM_MAX;
            while self.model.end(*partition) == before {
                if self.env.monotonic() > deadline {
                    self.model.violation(format!("stuck: {partition} takes no record any more"));
                    break;
                }
                self.env.sleep(Duration::from_millis(100)).await;
            }
            stop.trigger();
            self.all_end(vec![task]).await;
        }
    }

    /// Reads all from a broker that has nothing in memory.
    async fn sweep(&self, partitions: &[TopicPartition]) {
        let (end, ended) = shutdown_signal();
        let cluster = self.cluster.clone();
        let consumer = Consumer::new(self.context(300, &ended), TOPIC, partitions);
        let last = self.env.spawn("sweep life", Lane::Foreground, async move {
            cluster.live_on(&ended).await;
        });
        match self.env.timeout(CALM_MAX * 2, consumer.sweep()).await {
            None => self.model.violation("stuck: the log cannot be read".to_owned()),
            Some(Err(error)) => self.model.violation(error),
            Some(Ok(content)) => {
                for partition in partitions {
                    let records = content.get(partition).map_or(&[][..], Vec::as_slice);
                    self.model.check_content(*partition, records);
                }
            }
        }
        end.trigger();
        let _ = last.await;
    }
}

fn weather(env: &Env) -> Weather {
    Weather {
        lost: pick(env, &[0, 10, 60]),
        ambiguous: pick(env, &[0, 20, 100]),
        late: pick(env, &[0, 20, 100]),
        silent: pick(env, &[0, 10, 50]),
        slow: pick(env, &[0, 10, 40]),
        latency_ms: pick(env, &[1, 10, 60]),
    }
}

fn config(env: &Env) -> Result<Config> {
    let given = |name: &str, value: String| Given {
        name: name.to_owned(),
        value,
        flag: "--simulated".to_owned(),
    };
    let inputs = Inputs {
        flags: vec![
            given("flush.interval_ms", pick(env, &[10, 100, 250]).to_string()),
            given("flush.upload_timeout_ms", pick(env, &[700, 2000, 10_000]).to_string()),
            given("memory.cache_bytes", pick(env, &[0, 3000, 16 << 20]).to_string()),
            given("kafka.auto.create.topics.enable", "false".to_owned()),
        ],
        environment: BTreeMap::new(),
        file: None,
        machine: Machine { memory_bytes: MACHINE_BYTES },
    };
    Config::from_resolved(&resolve(&inputs)?)
}
