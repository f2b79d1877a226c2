//! The simulated host: one node of a simulation on a single-threaded runtime with paused time. Its
//! clock is tokio's plus an offset, its randomness comes from the run's seed, blocking work runs
//! inline, and at each poll of one of its tasks the seed may kill it: all its tasks are dropped,
//! and whatever asks [`Node::is_alive`] (its store handles) goes dead. A node may also be paused,
//! as a process that is stopped and goes on later without knowing.

use crate::host::{BlockingJob, Host, Lane};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// Wall clock at the start of every simulation, milliseconds since the Unix epoch (2026-01-01).
pub const SIMULATION_START_MS: i64 = 1_767_225_600_000;

/// One simulated process.
#[derive(Clone)]
pub struct Node(Arc<NodeState>);

struct NodeState {
    started: tokio::time::Instant,
    clock_offset_ms: AtomicU64,
    random: Mutex<fastrand::Rng>,
    alive: AtomicBool,
    killed: Notify,
    /// The tasks that wait for the end of a pause; none outside of one.
    paused: Mutex<Option<Vec<Waker>>>,
    pause_began: Notify,
    /// The chance of a kill at one poll, per 2^32.
    kill_chance: AtomicU64,
    polls: AtomicU64,
    tasks: Mutex<Vec<AbortHandle>>,
}

impl Node {
    /// A living node whose randomness comes from `seed`. Must be made inside the simulation's
    /// runtime.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(NodeState {
            started: tokio::time::Instant::now(),
            clock_offset_ms: AtomicU64::new(SIMULATION_START_MS.unsigned_abs()),
            random: Mutex::new(fastrand::Rng::with_seed(seed)),
            alive: AtomicBool::new(true),
            killed: Notify::new(),
            paused: Mutex::new(None),
            pause_began: Notify::new(),
            kill_chance: AtomicU64::new(0),
            polls: AtomicU64::new(0),
            tasks: Mutex::new(Vec::new()),
        }))
    }

    /// Sets the wall clock that this node sees now; it goes on from there.
    pub fn set_clock_ms(&self, now_ms: i64) {
        let elapsed = self.elapsed_ms();
        self.0.clock_offset_ms.store(now_ms.wrapping_sub(elapsed) as u64, Ordering::Relaxed);
    }

    fn elapsed_ms(&self) -> i64 {
        i64::try_from(self.0.started.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    /// From now on each poll of a task kills the node with the chance of one in `polls`; 0 means
    /// never.
    pub fn set_kill_once_in(&self, polls: u64) {
        let chance = (1u64 << 32).checked_div(polls).unwrap_or(0);
        self.0.kill_chance.store(chance, Ordering::Relaxed);
    }

    /// Kills the node: as a power cut of its process, no destructor of it may reach a store.
    pub fn kill(&self) {
        if self.0.alive.swap(false, Ordering::Relaxed) {
            for task in self.0.tasks.lock().drain(..) {
                task.abort();
            }
            self.0.killed.notify_waiters();
        }
    }

    /// False once the node was killed.
    pub fn is_alive(&self) -> bool {
        self.0.alive.load(Ordering::Relaxed)
    }

    /// Waits until the node is dead.
    pub async fn dead(&self) {
        let notified = self.0.killed.notified();
        if self.is_alive() {
            notified.await;
        }
    }

    /// Stops all tasks where they are, until [`Node::resume`]. Time goes on meanwhile, and what the
    /// node has asked others for is done.
    pub fn pause(&self) {
        self.0.paused.lock().get_or_insert_default();
        self.0.pause_began.notify_waiters();
    }

    /// Lets the tasks go on.
    pub fn resume(&self) {
        let held = self.0.paused.lock().take();
        held.into_iter().flatten().for_each(Waker::wake);
    }

    /// Waits until the node is paused.
    pub async fn paused(&self) {
        let notified = self.0.pause_began.notified();
        if self.0.paused.lock().is_none() {
            notified.await;
        }
    }

    /// True if the node is paused; the task is then woken at the pause's end.
    fn holds(&self, context: &Context<'_>) -> bool {
        let mut paused = self.0.paused.lock();
        match paused.as_mut() {
            Some(held) => {
                held.push(context.waker().clone());
                true
            }
            None => false,
        }
    }

    /// How often a task of this node was polled.
    pub fn polls(&self) -> u64 {
        self.0.polls.load(Ordering::Relaxed)
    }

    fn survives_poll(&self) -> bool {
        self.0.polls.fetch_add(1, Ordering::Relaxed);
        let chance = self.0.kill_chance.load(Ordering::Relaxed);
        if chance > 0 && self.is_alive() && self.0.random.lock().u64(..1 << 32) < chance {
            self.kill();
        }
        self.is_alive()
    }
}

impl Host for Node {
    fn now_ms(&self) -> i64 {
        let offset = self.0.clock_offset_ms.load(Ordering::Relaxed) as i64;
        offset.wrapping_add(self.elapsed_ms())
    }

    fn random_u64(&self) -> u64 {
        self.0.random.lock().u64(..)
    }

    fn uuid(&self) -> uuid::Uuid {
        let bytes = self.0.random.lock().u128(..).to_be_bytes();
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    }

    fn spawn(&self, _lane: Lane, future: BoxFuture<'static, ()>) -> AbortHandle {
        let task = NodeTask { node: self.clone(), future: Some(future) };
        let handle = tokio::spawn(task).abort_handle();
        if self.is_alive() {
            let mut tasks = self.0.tasks.lock();
            tasks.retain(|task| !task.is_finished());
            tasks.push(handle.clone());
        } else {
            handle.abort();
        }
        handle
    }

    fn run_blocking(&self, job: BlockingJob) {
        job();
    }

    fn thread(&self, _name: &str, job: BlockingJob) -> Option<BlockingJob> {
        Some(job)
    }
}

/// A task of a node: gone as soon as the node is dead.
struct NodeTask {
    node: Node,
    future: Option<BoxFuture<'static, ()>>,
}

impl Future for NodeTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.node.is_alive() && self.node.holds(context) {
            return Poll::Pending;
        }
        if !self.node.survives_poll() {
            self.future = None;
        }
        match self.future.as_mut() {
            None => Poll::Ready(()),
            Some(future) => future.as_mut().poll(context),
        }
    }
}
