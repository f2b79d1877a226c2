//! The broker as a process of the simulation: it starts, lives for a while, is killed at some poll
//! or at some moment of a store call, loses its power, shuts down in order, or is paused; then a
//! successor starts on the same stores. A paused one wakes up some time later and goes on, not
//! knowing that it has been replaced. Clients reach whichever life listens now, and at times the
//! one that was replaced.

use crate::audit::Audit;
use crate::calls::{Calls, EndAt, EndBy, Link, Phase};
use crate::client::Connection;
use crate::dice::{below, between_ms, chance, pick};
use crate::life::{Living, start_life};
use crate::model::Model;
use crate::moments::{DEADLY_KINDS, Moments, PHASES};
use crate::planted::{Numbers, Plant};
use crate::trace::Trace;
use floe::config::Config;
use floe::node::JobRules;
use floe_env::simulated::Node;
use floe_env::{Env, Instant, Lane, Shutdown, Task, shutdown_signal};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// A broker that was told to stop must have stopped after this time.
const DRAIN_MAX: Duration = Duration::from_secs(120);
/// Without faults a broker must be up after this time.
const START_MAX: Duration = Duration::from_secs(120);
/// The clock jumps this far at most, ms.
const CLOCK_JUMP_MS: u64 = 7_200_000;
/// Steps of the file system before the power goes, at most.
const STEPS_MAX: u64 = 600;

/// What all lives share; clones are the same cluster.
#[derive(Clone)]
pub struct Cluster(pub(crate) Arc<State>);

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
    /// Both stores, and who looks at them.
    pub audit: Audit,
    /// The broker's settings.
    pub config: Arc<Config>,
    /// The rules of its jobs.
    pub rules: JobRules,
    /// Whether the object store counts as remote.
    pub is_remote: bool,
    /// A planted bug.
    pub plant: Plant,
    /// The moments to die at.
    pub moments: Moments,
}

pub(crate) struct State {
    pub(crate) parts: Parts,
    pub(crate) numbers: Numbers,
    listening: Mutex<Option<Living>>,
    /// Replaced ones that still run.
    zombies: Mutex<Vec<Living>>,
    zombie_tasks: Mutex<Vec<Task<()>>>,
    tally: Mutex<Tally>,
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
    /// Kills with a power cut.
    pub power_cuts: u32,
    /// Shutdowns in order.
    pub shutdowns: u32,
    /// Pauses during which a successor started.
    pub pauses: u32,
    /// Paused ones that learnt that they had been replaced.
    pub fenced: u32,
}

impl Tally {
    /// Adds what another run counted.
    pub fn add(&mut self, other: &Self) {
        self.starts += other.starts;
        self.failed_starts += other.failed_starts;
        self.kills += other.kills;
        self.power_cuts += other.power_cuts;
        self.shutdowns += other.shutdowns;
        self.pauses += other.pauses;
        self.fenced += other.fenced;
    }
}

impl Cluster {
    /// A cluster of which nothing runs yet.
    pub fn new(parts: Parts) -> Self {
        let numbers = Numbers::default();
        let (listening, zombies) = (Mutex::default(), Mutex::default());
        let (zombie_tasks, tally) = (Mutex::default(), Mutex::default());
        let state = State { parts, numbers, listening, zombies, zombie_tasks, tally };
        Self(Arc::new(state))
    }

    /// How lives began and ended so far.
    pub fn tally(&self) -> Tally {
        *self.0.tally.lock()
    }

    /// A connection to the broker, if one listens.
    pub fn connect(&self) -> Option<Connection> {
        let living = self.0.listening.lock().clone()?;
        Some(living.connect())
    }

    /// A connection to a broker that has been replaced, if there is one.
    pub fn connect_to_zombie(&self) -> Option<Connection> {
        let zombie = self.0.zombies.lock().last().cloned()?;
        zombie.node.is_alive().then(|| zombie.connect())
    }

    /// The life that listens, or at times one that has been replaced.
    pub fn some_life(&self, by: &Env) -> Option<Living> {
        let zombie = self.0.zombies.lock().last().cloned();
        let zombie = zombie.filter(|zombie| zombie.node.is_alive() && chance(by, 200));
        zombie.or_else(|| self.0.listening.lock().clone())
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

    /// One life after the other until `until`; the last one is over when this returns, but for
    /// those that were replaced.
    pub async fn live_until(&self, until: Instant) {
        let env = self.0.parts.env.clone();
        while env.monotonic() < until {
            self.live().await;
            self.0.parts.calls.end_at(None);
            self.power_in(None);
            env.sleep(between_ms(&env, 50, 2500)).await;
        }
    }

    /// The last life, which goes on until `stop`.
    pub async fn live_on(&self, stop: &Shutdown) {
        let env = &self.0.parts.env;
        let deadline = env.monotonic() + START_MAX;
        loop {
            let Some(living) = self.start(false).await else {
                if env.monotonic() > deadline {
                    self.violation("stuck: no start succeeds although nothing fails");
                    return;
                }
                env.sleep(Duration::from_secs(1)).await;
                continue;
            };
            stop.wait().await;
            self.0.listening.lock().take();
            living.node.kill();
            return;
        }
    }

    /// Waits until every life that was replaced is over.
    pub async fn zombies_end(&self) {
        let tasks = std::mem::take(&mut *self.0.zombie_tasks.lock());
        for task in tasks {
            // One that panicked is over as well.
            let _ = task.await;
        }
    }

    async fn live(&self) {
        let parts = &self.0.parts;
        let env = &parts.env;
        let Some(living) = self.start(true).await else { return };
        let lifetime = between_ms(env, 3000, 15_000);
        tokio::select! {
            biased;
            () = living.node.dead() => return self.died(living.life, living.cuts_before, "killed"),
            () = living.node.paused() => return self.replace(living),
            () = living.broker.log.fenced() => {
                self.violation("a broker without a successor was fenced");
            }
            () = env.sleep(lifetime) => {}
        }
        match below(env, 10) {
            0..5 => {
                living.node.kill();
                let how = "killed at the end of its time";
                return self.died(living.life, living.cuts_before, how);
            }
            5..7 => {
                living.node.pause();
                return self.replace(living);
            }
            _ => {}
        }
        self.0.listening.lock().take();
        self.note("shuts down");
        if !self.shut_down(&living).await {
            return self.died(living.life, living.cuts_before, "killed in its shutdown");
        }
        self.0.tally.lock().shutdowns += 1;
        self.note("shut down");
    }

    /// Shuts a life down in order; false if it was killed meanwhile. A process that is paused is
    /// killed: nobody waits for one that hangs.
    async fn shut_down(&self, living: &Living) -> bool {
        let env = &self.0.parts.env;
        let ending = living.end();
        let is_drained = tokio::select! {
            biased;
            () = living.node.dead() => false,
            () = living.node.paused() => false,
            drained = env.timeout(DRAIN_MAX, ending) => {
                if drained.is_none() {
                    self.violation("stuck: a broker does not end after its shutdown");
                }
                drained.is_some()
            }
        };
        living.node.kill();
        is_drained
    }

    /// A life is paused, and its place is free. It wakes up some time later, goes on, and ends when
    /// it learns that it has been replaced, or when its time is over.
    fn replace(&self, living: Living) {
        self.0.tally.lock().pauses += 1;
        self.0.listening.lock().take();
        self.note("pauses");
        living.was_replaced();
        self.0.zombies.lock().push(living.clone());
        let (cluster, env) = (self.clone(), self.0.parts.env.clone());
        let task = self.0.parts.env.spawn("zombie", Lane::Foreground, async move {
            env.sleep(between_ms(&env, 200, 9000)).await;
            cluster.note(&format!("life {} wakes up", living.life));
            living.node.resume();
            let time_left = between_ms(&env, 2000, 15_000);
            let is_fenced = tokio::select! {
                biased;
                () = living.node.dead() => false,
                () = living.broker.log.fenced() => true,
                () = env.sleep(time_left) => false,
            };
            if is_fenced {
                cluster.0.tally.lock().fenced += 1;
                cluster.note(&format!("life {} is fenced", living.life));
                if chance(&env, 500) {
                    cluster.shut_down(&living).await;
                }
            }
            living.node.kill();
            cluster.note(&format!("life {} is over", living.life));
        });
        self.0.zombie_tasks.lock().push(task);
    }

    /// A process was killed, in its start or later; where its stores are on its own machine,
    /// perhaps with the power. Power had been cut `cuts_before` times when it started.
    fn died(&self, life: u32, cuts_before: u64, how: &str) {
        let parts = &self.0.parts;
        self.0.tally.lock().kills += 1;
        self.0.listening.lock().take();
        parts.calls.died(life);
        self.note(how);
        let Some(machine) = parts.audit.objects.machine() else { return };
        let is_cut = machine.cuts() > cuts_before;
        if is_cut || chance(&parts.env, 500) {
            if !is_cut {
                machine.cut();
            }
            parts.audit.metadata.cut_power();
            self.0.zombies.lock().iter().for_each(|zombie| zombie.node.kill());
            self.0.tally.lock().power_cuts += 1;
            self.note("the power is cut");
        }
    }

    fn power_in(&self, steps: Option<u64>) {
        if let Some(machine) = self.0.parts.audit.objects.machine() {
            machine.cut_in(steps);
        }
    }

    /// Starts a life and lets it listen. `None` if it died or gave up before.
    async fn start(&self, may_die: bool) -> Option<Living> {
        let parts = &self.0.parts;
        if let Err(error) = parts.audit.metadata.open_again().await {
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
            self.choose_end(&node, life);
        }
        self.note("starts");
        let link = Link { node: node.clone(), life, calls: parts.calls.clone() };
        let (trigger, shutdown) = shutdown_signal();
        let env = Env::simulated(node.clone());
        let cuts_before = parts.audit.objects.machine().map_or(0, |machine| machine.cuts());
        let starting = start_life(self.clone(), link, (trigger, shutdown), cuts_before);
        let started = env.spawn("start", Lane::Foreground, starting);
        tokio::select! {
            biased;
            // A process that is paused before it listens is of no more interest.
            () = node.paused() => node.kill(),
            () = node.dead() => {}
            started = started => match started {
                Ok(Ok(living)) => {
                    *self.0.listening.lock() = Some(living.clone());
                    self.note("listens");
                    return Some(living);
                }
                Ok(Err(error)) => {
                    node.kill();
                    self.0.tally.lock().failed_starts += 1;
                    self.note(&format!("gives up its start: {error}"));
                    return None;
                }
                Err(_) => {}
            }
        }
        self.died(life, cuts_before, "killed in its start");
        None
    }

    fn choose_end(&self, node: &Node, life: u32) {
        let parts = &self.0.parts;
        let env = &parts.env;
        let at = |by, (kind, moments), phase| {
            let after = below(env, moments);
            parts.calls.end_at(Some(EndAt { by, life, kind, phase, after }));
        };
        if let Some((by, kind, phase)) = parts.plant.telling_end().filter(|_| chance(env, 800)) {
            return at(by, kind, phase);
        }
        let any_phase = pick(env, &PHASES);
        match below(env, 25) {
            0..3 => node.set_kill_once_in(pick(env, &[100, 1000, 10_000])),
            3..15 => {
                let (kind, phase) = parts.moments.next();
                at(EndBy::Kill, kind, phase);
            }
            15..16 => at(EndBy::Kill, ("put", 20), any_phase),
            // What it has put is there, and the commit that names it is still to come.
            16..18 => at(EndBy::Pause, ("put", 10), Phase::After),
            18..21 => at(EndBy::Pause, ("put_table", 6), Phase::After),
            21..22 => at(EndBy::Pause, pick(env, DEADLY_KINDS), Phase::After),
            22..24 => self.power_in(Some(below(env, STEPS_MAX))),
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
