//! From a seed to a run: one single-threaded runtime with paused time, on which the stores, all
//! lives of the broker and all clients are tasks. A run has four parts: faults, deaths and restarts
//! for a while; then nothing fails any more, and everything that was begun must end within a
//! bounded time; then jobs have the time that they state, and what nobody needs must be gone; then
//! a fresh broker is read from end to end and compared with the model.

use crate::actors::Context;
use crate::actors::ager::Ager;
use crate::actors::churn::Churn;
use crate::actors::consumer::Consumer;
use crate::actors::deleter::Deleter;
use crate::actors::keeper::Keeper;
use crate::actors::looker::Looker;
use crate::actors::member::Member;
use crate::actors::producer::Producer;
use crate::actors::sharer::{self, Sharer};
use crate::actors::transactor::Transactor;
use crate::audit::Audit;
use crate::calls::{Calls, Deaths, Weather};
use crate::cluster::{Cluster, Parts, Tally};
use crate::dice::{between_ms, chance, pick};
use crate::metadata_server::MetadataServer;
use crate::model::{Counts, Keep, Model};
use crate::moments::Moments;
use crate::object_server::ObjectServer;
use crate::planted::Plant;
use crate::trace::Trace;
use floe::config::{Config, Given, Inputs, Machine, resolve};
use floe::node::JobRules;
use floe_env::simulated::Node;
use floe_env::{Env, Lane, Result, Shutdown, Task, shutdown_signal};
use floe_iceberg_bridge::fold::FoldRules;
use floe_iceberg_bridge::sweep::SweepRules;
use floe_log::{CleanRules, CompactionRules, MergeRules};
use floe_metadata::rows::FreshBounds;
use kfs::{PartitionIndex, TopicId, TopicPartition};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, RngSeed};

const TOPIC: &str = "events";
const PARTITIONS: i32 = 2;
/// The topic of transactions alone.
const TRANSFERS: &str = "transfers";
const TRANSFER_PARTITIONS: i32 = 3;
/// In each of so many seeds, retention takes records of topics of its own.
const SEEDS_PER_AGING: u64 = 3;
/// One seed in so many has a compacted topic, which takes others no time then.
const SEEDS_PER_COMPACTING: u64 = 3;
/// The topics of which retention takes records, what they keep, and whether they have a table.
const AGING: [(&str, Keep, bool); 3] = [
    ("aging", Keep::Time(8000), false),
    ("filling", Keep::Size(3000), false),
    ("followed", Keep::Time(4000), true),
];
/// The compacted topic, and who writes to it.
const COMPACTED: &str = "compacted";
const KEEPER: u32 = 180;
/// Faults and deaths last so long.
const STORM: Duration = Duration::from_secs(45);
/// When nothing fails any more, everything that was begun must end in this time.
const CALM_MAX: Duration = Duration::from_secs(120);
/// A share of the seeds, per mille, runs on one machine: a SQLite file and a directory, which a
/// power cut hits together.
const MACHINE_PER_MILLE: u64 = 300;
/// After the last fault, something late may still come for so long.
const LATE_MAX: Duration = Duration::from_secs(20);
/// When nothing fails any more, all orphans of tables go in this time.
const ORPHANS_MAX: Duration = Duration::from_secs(120);
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
    /// How often checks had something to look at.
    pub counts: Counts,
    /// Whether both stores were on one machine: a SQLite file and a directory.
    pub on_machine: bool,
    /// Objects of tables that failed commits had left behind when the faults ended.
    pub table_orphans: u64,
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
    let on_machine = plant.needs_machine() || chance(&env, MACHINE_PER_MILLE);
    let started = MetadataServer::start(env.clone(), on_machine).await;
    let metadata = started.expect("a temporary folder can be written");
    let started = ObjectServer::start(env.clone(), on_machine).await;
    let objects = started.expect("nothing fails yet");
    if let Some(machine) = objects.machine().filter(|_| plant == Plant::NamesAreNotSynced) {
        machine.forget_names();
    }
    if plant == Plant::LastTransactionIsLost {
        metadata.lose_last_transactions();
    }
    let model = Model::default();
    let is_remote = !on_machine && chance(&env, 600);
    let is_blind = plant.renames_objects();
    let is_aging = seed % SEEDS_PER_AGING == 1;
    let is_compacting = plant.needs_compaction() || seed % SEEDS_PER_COMPACTING == 2;
    let audit = Audit::new(env.clone(), model.clone(), metadata, objects, is_blind);
    let parts = Parts {
        env: env.clone(),
        trace: trace.clone(),
        calls: calls.clone(),
        model: model.clone(),
        audit: audit.clone(),
        rules: job_rules(&env, is_compacting),
        config: Arc::new(config(&env, is_aging, is_compacting).expect("the settings are right")),
        is_remote,
        plant,
        moments: Moments::of(seed),
    };
    let grace = parts.rules.clean.grace;
    let run = Run {
        env,
        trace,
        calls,
        model,
        audit,
        grace,
        is_aging,
        is_compacting,
        cluster: Cluster::new(parts),
        orphans: Cell::new(0),
    };
    run.storm_and_calm().await;
    let table_orphans = run.orphans.get();
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
        counts: run.model.counts(),
        on_machine,
        table_orphans,
        lines: run.trace.lines(),
    }
}

struct Run {
    env: Env,
    trace: Trace,
    calls: Calls,
    model: Model,
    audit: Audit,
    /// How long a dead object is kept.
    grace: Duration,
    /// Retention takes records.
    is_aging: bool,
    /// There is a compacted topic.
    is_compacting: bool,
    cluster: Cluster,
    /// Orphans of tables when the faults ended.
    orphans: Cell<u64>,
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
        let topic =
            self.env.timeout(STORM + CALM_MAX, founder.topic(TOPIC, PARTITIONS, true)).await;
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
        match self.audit.table_orphans().await {
            Ok(orphans) => self.orphans.set(orphans.len() as u64),
            Err(error) => self.model.violation(format!("the tables cannot be looked at: {error}")),
        }
        let (end, ended) = shutdown_signal();
        let cluster = self.cluster.clone();
        let last = self.env.spawn("last life", Lane::Foreground, async move {
            cluster.live_on(&ended).await;
        });
        self.env.sleep(between_ms(&self.env, 0, 3000)).await;
        stop.trigger();
        self.all_end(actors).await;
        self.probe(&partitions).await;
        self.tables_have_all(&partitions).await;
        self.nothing_is_left_over().await;
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
        let deleter = Deleter::new(self.context(110, stop), TOPIC, partitions);
        tasks.push(self.env.spawn("deleter", Lane::Foreground, deleter.run()));
        let looker = self.looker(120, stop, partitions);
        tasks.push(self.env.spawn("looker", Lane::Foreground, looker.run()));
        let member = Member::new(self.context(140, stop), TOPIC, PARTITIONS);
        tasks.push(self.env.spawn("member", Lane::Foreground, member.run()));
        for id in 150..152 {
            let name = format!("{TRANSFERS}-{id}");
            let transactor = Transactor::new(self.context(id, stop), &name, TRANSFER_PARTITIONS);
            tasks.push(self.env.spawn("transactor", Lane::Foreground, transactor.run()));
        }
        for (id, (topic, keep, has_table)) in (170..).zip(AGING).filter(|_| self.is_aging) {
            let ager = Ager::new(self.context(id, stop), topic, keep, has_table);
            tasks.push(self.env.spawn("ager", Lane::Foreground, ager.run()));
        }
        if self.is_compacting {
            let keeper = Keeper::new(self.context(KEEPER, stop), COMPACTED);
            tasks.push(self.env.spawn("keeper", Lane::Foreground, keeper.run()));
        }
        for id in 160..163 {
            let sharer = Sharer::new(self.context(id, stop), TOPIC);
            tasks.push(self.env.spawn("sharer", Lane::Foreground, sharer.run()));
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

    fn looker(&self, id: u32, stop: &Shutdown, partitions: &[TopicPartition]) -> Looker {
        Looker::new(self.context(id, stop), self.audit.tables.clone(), TOPIC, partitions)
    }

    /// The table gets everything that is in the log.
    async fn tables_have_all(&self, partitions: &[TopicPartition]) {
        let (_stop, stopped) = shutdown_signal();
        if !self.looker(130, &stopped, partitions).see_all().await {
            self.model.violation("stuck: the table does not get all records".to_owned());
        }
    }

    /// The cleaner has had its time, and nobody else is there any more.
    async fn nothing_is_left_over(&self) {
        self.cluster.zombies_end().await;
        self.env.sleep(LATE_MAX + self.grace * 3).await;
        let grace_ms = i64::try_from((self.grace * 2).as_millis()).unwrap_or(i64::MAX);
        if let Err(error) = self.audit.aged_out().await {
            self.model.violation(format!("the log cannot be looked at: {error}"));
        }
        if let Err(error) = self.audit.leftovers(grace_ms).await {
            self.model.violation(format!("the stores cannot be looked at: {error}"));
        }
        if let Err(error) = self.orphans_go().await {
            self.model.violation(format!("the tables cannot be looked at: {error}"));
        }
    }

    /// Two passes of the sweep take all orphans of tables; looks go on meanwhile.
    async fn orphans_go(&self) -> Result<()> {
        let deadline = self.env.monotonic() + ORPHANS_MAX;
        loop {
            let left = self.audit.table_orphans().await?;
            if left.is_empty() {
                return Ok(());
            }
            if self.env.monotonic() > deadline {
                let count = left.len();
                let first = left.into_iter().next().unwrap_or_default();
                self.model.violation(format!("{count} orphans of tables stay, such as {first}"));
                return Ok(());
            }
            self.env.sleep(Duration::from_secs(1)).await;
        }
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
        let keeper = Keeper::new(self.context(KEEPER, &ended), COMPACTED);
        let last = self.env.spawn("sweep life", Lane::Foreground, async move {
            cluster.live_on(&ended).await;
        });
        for partition in self.model.kept_partitions() {
            keeper.sweep(partition).await;
        }
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

/// The product's rules, with a shorter day.
fn job_rules(env: &Env, is_compacting: bool) -> JobRules {
    let merge = MergeRules {
        pause: Duration::from_millis(pick(env, &[700, 2000, 5000])),
        pieces_min: pick(env, &[2, 4, 8]),
        bytes_min: pick(env, &[0, 4096]),
        age_ms: pick(env, &[2000, 600_000]),
        fresh_kept: FreshBounds {
            segments: pick(env, &[2, 16, 4096]),
            extents: pick(env, &[8, 1 << 19]),
        },
        ..MergeRules::default()
    };
    let grace = Duration::from_secs(pick(env, &[8, 15]));
    let clean = CleanRules {
        pause: Duration::from_millis(pick(env, &[700, 3000])),
        grace,
        sweep_again_after: grace,
    };
    let sweep = SweepRules {
        pause: Duration::from_millis(pick(env, &[1000, 4000])),
        age: Duration::from_millis(pick(env, &[500, 3000, 8000])),
    };
    let fold = FoldRules {
        fresh_files: pick(env, &[2, 4, 16]),
        fresh_age: Duration::from_secs(pick(env, &[3, 600])),
        first_files: pick(env, &[2, 4]),
        second_files: pick(env, &[2, 12]),
        quiet: Duration::from_secs(pick(env, &[10, 3600])),
        ..FoldRules::default()
    };
    let mut compaction = CompactionRules::default();
    if is_compacting {
        compaction.object_bytes_max = pick(env, &[300, 64 << 20]);
        compaction.extent_bytes_max = pick(env, &[200, 1 << 20]);
        compaction.dirt_bytes_min = pick(env, &[0, 2000]);
    }
    JobRules { merge, compaction, clean, sweep, fold }
}

fn config(env: &Env, is_aging: bool, is_compacting: bool) -> Result<Config> {
    let given = |name: &str, value: String| Given {
        name: name.to_owned(),
        value,
        flag: "--simulated".to_owned(),
    };
    // Most seeds have nothing for retention to do.
    let check_interval_ms = if is_aging { pick(env, &[500, 2000]) } else { 86_400_000 };
    let backoff_ms = || if is_compacting { pick(env, &[500, 2000]) } else { 86_400_000 };
    let ms = |time: Duration| time.as_millis().to_string();
    let inputs = Inputs {
        flags: vec![
            given("flush.interval_ms", pick(env, &[10, 100, 250]).to_string()),
            given("flush.upload_timeout_ms", pick(env, &[700, 2000, 10_000]).to_string()),
            given("memory.cache_bytes", pick(env, &[0, 3000, 16 << 20]).to_string()),
            given("kafka.auto.create.topics.enable", "false".to_owned()),
            given("kafka.group.consumer.session.timeout.ms", ms(sharer::SESSION)),
            given("kafka.group.consumer.heartbeat.interval.ms", ms(sharer::HEARTBEAT)),
            given("iceberg.commit_interval_ms", pick(env, &[2000, 60_000]).to_string()),
            given("kafka.log.retention.ms", "-1".to_owned()),
            given("kafka.log.retention.check.interval.ms", check_interval_ms.to_string()),
            given("kafka.log.cleaner.backoff.ms", backoff_ms().to_string()),
        ],
        environment: BTreeMap::new(),
        file: None,
        machine: Machine { memory_bytes: MACHINE_BYTES },
    };
    Config::from_resolved(&resolve(&inputs)?)
}
