//! The broker as a process of the simulation: it starts, lives for a while, is killed at some poll
//! or at some moment of a store call, or shuts down in order; then a successor starts on the same
//! stores. Clients reach whichever life listens now.

use crate::calls::{Calls, KillAt, Link, Phase};
use crate::client::Connection;
use crate::dice::{below, between_ms, chance, pick};
use crate::fault_metadata::{FaultMetadata, MetadataServer};
use crate::fault_store::FaultStore;
use crate::model::Model;
use crate::planted::{Numbers, Plant};
use crate::trace::Trace;
use floe::broker::{Broker, Identity, Stores};
use floe::config::Config;
use floe::connection;
use floe::metrics::Metrics;
use floe::node::agree_on_cluster;
use floe_env::simulated::Node;
use floe_env::{Env, Error, Instant, Lane, Result, Shutdown, shutdown_signal};
use floe_metadata::MetadataStore;
use floe_store::{MemoryStore, ObjectStore, RetryPolicy, Retrying};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// Bytes that a connection holds in each direction.
const PIPE_BYTES: usize = 64 << 10;
/// A broker that was told to stop must have stopped after this time.
const DRAIN_MAX: Duration = Duration::from_secs(120);
/// Without faults a broker must be up after this time.
const START_MAX: Duration = Duration::from_secs(120);
/// The clock jumps this far at most, ms.
const CLOCK_JUMP_MS: u64 = 7_200_000;

/// Kinds of calls during which a node must have died at least once over all seeds, each before, in
/// and after the call: those that a broker cannot do without. With about how many of them a life
/// makes, so that the moment to die at comes.
pub const DEADLY_KINDS: &[(&str, u64)] = &[
    ("put", 20),
    ("get", 1),
    ("get_range", 10),
    ("delete", 1),
    ("commit_segments", 20),
    ("abandon_segment", 1),
    ("partition_states", 6),
    ("extents", 4),
    ("get_facts", 6),
    ("scan", 1),
    ("change", 2),
    ("now_ms", 1),
];

/// What all lives share; clones are the same cluster.
#[derive(Clone)]
pub struct Cluster(Arc<State>);

/// What a cluster is made of.
pub struct Parts {
    /// The world's own environment.
    pub env: Env,
    /// The trace.
    pub trace: Trace,
    /// All store calls.
    pub calls: Calls,
    /// The checks.
    pub model: Model,
    /// The metadata store.
    pub metadata: Arc<MetadataServer>,
    /// The broker's settings.
    pub config: Arc<Config>,
    /// Whether the object store counts as remote.
    pub is_remote: bool,
    /// A planted bug.
    pub plant: Plant,
}

struct State {
    parts: Parts,
    objects: MemoryStore,
    numbers: Numbers,
    listening: Mutex<Option<Listening>>,
    tally: Mutex<Tally>,
}

/// The life that clients reach.
#[derive(Clone)]
struct Listening {
    broker: Arc<Broker>,
    env: Env,
    node: Node,
}

/// How lives began and ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Starts of the broker.
    pub starts: u32,
    /// Starts that ended with an error, as a process that exits.
    pub failed_starts: u32,
    /// Kills.
    pub kills: u32,
    /// Shutdowns in order.
    pub shutdowns: u32,
}

impl Cluster {
    /// A cluster of which nothing runs yet.
    pub fn new(parts: Parts) -> Self {
        let (objects, numbers) = (MemoryStore::new(), Numbers::default());
        let (listening, tally) = (Mutex::default(), Mutex::default());
        Self(Arc::new(State { parts, objects, numbers, listening, tally }))
    }

    /// How lives began and ended so far.
    pub fn tally(&self) -> Tally {
        *self.0.tally.lock()
    }

    /// The objects, as they are at the store.
    pub fn objects(&self) -> &MemoryStore {
        &self.0.objects
    }

    /// A connection to the broker, if one listens.
    pub fn connect(&self) -> Option<Connection> {
        let listening = self.0.listening.lock().clone()?;
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        let (read, write) = tokio::io::split(theirs);
        let serving = connection::serve(listening.broker.clone(), read, write, "client".into());
        listening.env.spawn("connection", Lane::Foreground, serving);
        Some(Connection::new(ours))
    }

    /// Sets the clock of the life that listens to some other time.
    pub fn jump_clock(&self, by: &Env) {
        let parts = &self.0.parts;
        if let Some(listening) = self.0.listening.lock().clone() {
            let jump = below(by, CLOCK_JUMP_MS) as i64 - (CLOCK_JUMP_MS / 2) as i64;
            listening.node.set_clock_ms(parts.env.now_ms() + jump);
            self.note(&format!("clock jumps to {jump} ms"));
        }
    }

    /// One life after the other until `until`; the last one is over when this returns.
    pub async fn live_until(&self, until: Instant) {
        let env = self.0.parts.env.clone();
        while env.monotonic() < until {
            self.live().await;
            self.0.parts.calls.kill_at(None);
            env.sleep(between_ms(&env, 50, 2500)).await;
        }
    }

    /// The last life, which goes on until `stop`.
    pub async fn live_on(&self, stop: &Shutdown) {
        let env = &self.0.parts.env;
        let deadline = env.monotonic() + START_MAX;
        loop {
            let Some((node, _running)) = self.start(false).await else {
                if env.monotonic() > deadline {
                    self.violation("stuck: no start succeeds although nothing fails");
                    return;
                }
                env.sleep(Duration::from_secs(1)).await;
                continue;
            };
            stop.wait().await;
            self.0.listening.lock().take();
            node.kill();
            return;
        }
    }

    async fn live(&self) {
        let parts = &self.0.parts;
        let env = &parts.env;
        let Some((node, trigger)) = self.start(true).await else { return };
        let lifetime = between_ms(env, 1500, 15_000);
        let listening = self.0.listening.lock().clone();
        let Some(Listening { broker, .. }) = listening else { return };
        tokio::select! {
            biased;
            () = node.dead() => return self.died("killed"),
            () = broker.log.fenced() => self.violation("a broker without a successor was fenced"),
            () = env.sleep(lifetime) => {}
        }
        if chance(env, 700) {
            node.kill();
            return self.died("killed at the end of its time");
        }
        self.0.listening.lock().take();
        self.note("shuts down");
        trigger.trigger();
        let task = broker.clone();
        let draining = Env::simulated(node.clone()).spawn("drain", Lane::Foreground, async move {
            task.drained().await;
        });
        drop(broker);
        tokio::select! {
            biased;
            () = node.dead() => return self.died("killed in its shutdown"),
            drained = env.timeout(DRAIN_MAX, draining) => {
                if drained.is_none() {
                    self.violation("stuck: a broker does not end after its shutdown");
                }
            }
        }
        node.kill();
        self.0.tally.lock().shutdowns += 1;
        self.note("shut down");
    }

    fn died(&self, how: &str) {
        let life = {
            let mut tally = self.0.tally.lock();
            tally.kills += 1;
            tally.starts
        };
        self.0.listening.lock().take();
        self.0.parts.calls.died(life);
        self.note(how);
    }

    /// Starts a life and lets it listen. `None` if it died or gave up before.
    async fn start(&self, may_die: bool) -> Option<(Node, floe_env::ShutdownTrigger)> {
        let parts = &self.0.parts;
        if let Err(error) = parts.metadata.open_again().await {
            self.violation(&format!("the metadata file does not open again: {error}"));
            return None;
        }
        let life = {
            let mut tally = self.0.tally.lock();
            tally.starts += 1;
            tally.starts
        };
        let node = Node::new(parts.env.random_u64());
        node.set_clock_ms(parts.env.now_ms());
        if may_die {
            self.choose_death(&node);
        }
        self.note("starts");
        let env = Env::simulated(node.clone());
        let link = Link { node: node.clone(), life, calls: parts.calls.clone() };
        let (trigger, shutdown) = shutdown_signal();
        let broker = start_broker(self.clone(), env.clone(), link, shutdown);
        match env.spawn("start", Lane::Foreground, broker).await {
            Ok(Ok(broker)) => {
                let listening = Listening { broker, env, node: node.clone() };
                *self.0.listening.lock() = Some(listening);
                self.note("listens");
                Some((node, trigger))
            }
            Ok(Err(error)) => {
                node.kill();
                self.0.tally.lock().failed_starts += 1;
                self.note(&format!("gives up its start: {error}"));
                None
            }
            Err(_) => {
                self.died("killed in its start");
                None
            }
        }
    }

    fn choose_death(&self, node: &Node) {
        let parts = &self.0.parts;
        let env = &parts.env;
        match below(env, 10) {
            0..3 => node.set_kill_once_in(pick(env, &[100, 1000, 10_000])),
            3..9 => {
                let phase = pick(env, &[Phase::Before, Phase::In, Phase::After]);
                let (kind, moments) = pick(env, DEADLY_KINDS);
                let after = below(env, moments);
                parts.calls.kill_at(Some(KillAt { kind, phase, after }));
            }
            _ => {}
        }
    }

    fn note(&self, text: &str) {
        let parts = &self.0.parts;
        let life = self.0.tally.lock().starts;
        parts.trace.event(parts.env.monotonic(), &format!("life {life} {text}"));
    }

    fn violation(&self, text: &str) {
        self.note(text);
        self.0.parts.model.violation(text.to_owned());
    }
}

/// What a process does before it listens.
async fn start_broker(
    cluster: Cluster,
    env: Env,
    link: Link,
    shutdown: Shutdown,
) -> Result<Arc<Broker>> {
    let State { parts, objects, numbers, .. } = &*cluster.0;
    let renumbered = parts.plant.renumbered(objects, numbers);
    let faulty = FaultStore::new(link.clone(), objects.clone(), renumbered);
    let objects: Arc<dyn ObjectStore> =
        Arc::new(Retrying::new(env.clone(), Arc::new(faulty), RetryPolicy::default()));
    let bug = parts.plant.commit_bug(&env);
    let backend = Arc::new(FaultMetadata::new(link, parts.metadata.clone(), bug));
    let metadata = MetadataStore::new(backend, env.clone());
    let id = agree_on_cluster(&env, objects.as_ref(), &metadata).await?;
    let identity = Identity {
        cluster: id,
        node_id: parts.config.kafka.node_id,
        host: "sim".to_owned(),
        port: 9092,
        rack: None,
    };
    let stores = Stores { objects, metadata, is_remote: parts.is_remote };
    let (config, metrics) = (parts.config.clone(), Metrics::new());
    let broker = Broker::start(env, config, identity, stores, metrics, shutdown);
    broker.await.map_err(|error: Error| error.context("start"))
}
