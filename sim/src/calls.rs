//! One call of a store, as a network makes it: the work is done by a task of the world, so that it
//! may still happen when the caller is dead. Each call is pending at least once. It may be answered
//! late, fail without effect, take effect and answer that nobody knows, take effect later, or never
//! be answered. A call whose caller has died or left was, by seed, never applied, applied, or is
//! applied later, after a successor may have started. Calls of a dead node never come back.

use crate::dice::{below, between_ms, chance, pick};
use crate::trace::Trace;
use floe_env::simulated::Node;
use floe_env::{Env, Error, Lane, Result};
use futures::future::{BoxFuture, pending};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;

/// Uploads that are never answered, per mille, while a node is to die where it gives one up.
const SILENT_IN_HUNT: u64 = 400;

/// Where a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Made, but not at the store yet.
    Before,
    /// At the store, not applied yet.
    In,
    /// Applied, its answer on the way.
    After,
}

/// What may go wrong with calls of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effects {
    /// It changes nothing: an error says that nothing happened.
    Read,
    /// It changes something: its outcome may be unknown.
    Change,
    /// As a change, and it may never be answered. Only where the caller has a time-out.
    Upload,
}

/// How often a node died in which phase of which kind of call.
pub type Deaths = BTreeMap<(&'static str, Phase), u64>;

/// How often calls fail, per mille, and how slow they are.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// Calls that fail without any effect.
    pub lost: u64,
    /// Changes that take effect and whose outcome is unknown.
    pub ambiguous: u64,
    /// Changes whose outcome is unknown and that take effect later.
    pub late: u64,
    /// Uploads that are never answered.
    pub silent: u64,
    /// Calls that take very long.
    pub slow: u64,
    /// Usual time of a call each way, at most; ms.
    pub latency_ms: u64,
}

/// How a life ends at a moment that was chosen for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndBy {
    /// Its process is killed.
    Kill,
    /// Its process is paused, so that it goes on when a successor has taken its place.
    Pause,
}

/// An end that waits for its moment.
#[derive(Clone, Copy, Debug)]
pub struct EndAt {
    /// What happens then.
    pub by: EndBy,
    /// Whose.
    pub life: u32,
    /// The kind of call.
    pub kind: &'static str,
    /// The phase of it.
    pub phase: Phase,
    /// So many such moments pass before.
    pub after: u64,
}

/// All calls of a run; clones share them.
#[derive(Clone)]
pub struct Calls(Arc<CallsState>);

struct CallsState {
    env: Env,
    trace: Trace,
    weather: Weather,
    calm: AtomicBool,
    book: Mutex<Book>,
}

#[derive(Default)]
struct Book {
    next: u64,
    in_flight: BTreeMap<u64, (u32, &'static str, Phase)>,
    end_at: Option<EndAt>,
    deaths: Deaths,
    counts: BTreeMap<&'static str, u64>,
}

/// What the seed has decided about a call.
enum Fate {
    Answered,
    Lost,
    Ambiguous,
    Late(Duration),
    Silent { applied: bool },
}

/// How one node reaches its stores.
#[derive(Clone)]
pub struct Link {
    /// The node whose death ends all answers.
    pub node: Node,
    /// Which start of the broker this is.
    pub life: u32,
    /// The calls of the run.
    pub calls: Calls,
}

impl Calls {
    /// No calls yet. `env` is the world's own, which never dies.
    pub fn new(env: Env, trace: Trace, weather: Weather) -> Self {
        let (calm, book) = (AtomicBool::new(false), Mutex::default());
        Self(Arc::new(CallsState { env, trace, weather, calm, book }))
    }

    /// From now on nothing fails.
    pub fn calm(&self) {
        self.0.calm.store(true, Ordering::Relaxed);
    }

    /// True where nothing fails any more.
    pub fn is_calm(&self) -> bool {
        self.0.calm.load(Ordering::Relaxed)
    }

    /// Ends the life that comes to this moment.
    pub fn end_at(&self, moment: Option<EndAt>) {
        self.0.book.lock().end_at = moment;
    }

    /// Notes that a life has just ended by a kill: what was it doing?
    pub fn died(&self, life: u32) {
        let mut book = self.0.book.lock();
        let calls: Vec<_> =
            book.in_flight.values().filter(|call| call.0 == life).copied().collect();
        for (_, kind, phase) in calls {
            *book.deaths.entry((kind, phase)).or_default() += 1;
        }
    }

    /// What nodes were doing when they died.
    pub fn deaths(&self) -> Deaths {
        self.0.book.lock().deaths.clone()
    }

    /// How often each kind of call was made.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.0.book.lock().counts.clone()
    }

    fn fate(&self, effects: Effects) -> Fate {
        let (env, weather) = (&self.0.env, &self.0.weather);
        if self.is_calm() {
            return Fate::Answered;
        }
        if chance(env, weather.lost) {
            return Fate::Lost;
        }
        if effects == Effects::Read {
            return Fate::Answered;
        }
        if chance(env, weather.ambiguous) {
            return Fate::Ambiguous;
        }
        if chance(env, weather.late) {
            return Fate::Late(late(env));
        }
        if effects == Effects::Upload && chance(env, self.silent()) {
            return Fate::Silent { applied: chance(env, 500) };
        }
        Fate::Answered
    }

    /// Uploads that are never answered, per mille: more where a node is to die of what follows.
    fn silent(&self) -> u64 {
        let hunted = self.0.book.lock().end_at.map(|end| end.kind);
        let follows = hunted.is_some_and(|kind| ["abandon_segment", "delete"].contains(&kind));
        if follows { SILENT_IN_HUNT } else { self.0.weather.silent }
    }

    fn travel(&self) -> Duration {
        let (env, weather) = (&self.0.env, &self.0.weather);
        if !self.is_calm() && chance(env, weather.slow) {
            return between_ms(env, 100, 4000);
        }
        between_ms(env, 0, weather.latency_ms + 1)
    }

    fn enter(&self, id: u64, link: &Link, kind: &'static str, phase: Phase) {
        let mut book = self.0.book.lock();
        book.in_flight.insert(id, (link.life, kind, phase));
        let Some(end) = &mut book.end_at else { return };
        let is_it = (end.life, end.kind, end.phase) == (link.life, kind, phase);
        if !link.node.is_alive() || !is_it {
            return;
        }
        if end.after > 0 {
            end.after -= 1;
            return;
        }
        let by = end.by;
        book.end_at = None;
        drop(book);
        match by {
            EndBy::Kill => link.node.kill(),
            EndBy::Pause => link.node.pause(),
        }
    }

    fn leave(&self, id: u64) {
        self.0.book.lock().in_flight.remove(&id);
    }

    fn note(&self, link: &Link, kind: &str, what: &str, end: &str) {
        let text = format!("life {} {kind} {what}: {end}", link.life);
        self.0.trace.event(self.0.env.monotonic(), &text);
    }
}

/// When something that is late happens: often soon, so that it meets a successor's first steps.
fn late(env: &Env) -> Duration {
    if chance(env, 600) { between_ms(env, 100, 3000) } else { between_ms(env, 3000, 20_000) }
}

impl Link {
    /// The world's own environment.
    pub fn env(&self) -> &Env {
        &self.calls.0.env
    }

    /// Makes a call. `what` is for the trace; `work` is what the store does.
    pub async fn call<T: Send + 'static>(
        &self,
        kind: &'static str,
        effects: Effects,
        what: String,
        work: impl FnOnce() -> BoxFuture<'static, Result<T>> + Send + 'static,
    ) -> Result<T> {
        if !self.node.is_alive() {
            return pending().await;
        }
        let id = {
            let mut book = self.calls.0.book.lock();
            *book.counts.entry(kind).or_default() += 1;
            book.next += 1;
            book.next
        };
        let (reply, answer) = oneshot::channel();
        let link = self.clone();
        let name = "store call";
        self.calls.0.env.spawn(name, Lane::Foreground, async move {
            link.serve(id, kind, effects, &what, work, reply).await;
            link.calls.leave(id);
        });
        match answer.await {
            Ok(answer) if self.node.is_alive() => answer,
            _ => pending().await,
        }
    }

    async fn serve<T: Send + 'static>(
        &self,
        id: u64,
        kind: &'static str,
        effects: Effects,
        what: &str,
        work: impl FnOnce() -> BoxFuture<'static, Result<T>> + Send + 'static,
        reply: oneshot::Sender<Result<T>>,
    ) {
        let (calls, env) = (&self.calls, &self.calls.0.env);
        let fate = calls.fate(effects);
        calls.enter(id, self, kind, Phase::Before);
        env.sleep(calls.travel()).await;
        calls.enter(id, self, kind, Phase::In);
        env.sleep(between_ms(env, 0, 3)).await;
        if !self.is_wanted(&reply) {
            match below(env, 3) {
                0 => return calls.note(self, kind, what, "caller gone, never applied"),
                1 => {}
                _ => {
                    calls.leave(id);
                    env.sleep(late(env)).await;
                }
            }
            let end = work().await.map_or_else(|error| error.to_string(), |_| "done".to_owned());
            return calls.note(self, kind, what, &format!("applied without its caller: {end}"));
        }
        let answer = match fate {
            Fate::Answered => work().await,
            Fate::Ambiguous => match work().await {
                Ok(_) => Err(Error::unknown_outcome("simulated: the answer was lost")),
                // What has failed in a way that stays is told.
                Err(error) => Err(error),
            },
            Fate::Lost => Err(lost(env)),
            Fate::Late(delay) => {
                // Nobody may be waiting.
                let _ = reply.send(Err(Error::unknown_outcome("simulated: cut off")));
                calls.note(self, kind, what, "unknown, comes later");
                calls.leave(id);
                env.sleep(delay).await;
                let end = work().await.map_or_else(|error| error.to_string(), |_| "done".into());
                return calls.note(self, kind, what, &format!("applied late: {end}"));
            }
            Fate::Silent { applied } => {
                if applied {
                    // Its answer gets lost.
                    let _ = work().await;
                }
                calls.note(self, kind, what, "silent");
                calls.leave(id);
                // Held, or the caller would see the end.
                let _held = reply;
                return pending().await;
            }
        };
        calls.enter(id, self, kind, Phase::After);
        let end = answer.as_ref().map_or_else(ToString::to_string, |_| "ok".to_owned());
        env.sleep(calls.travel()).await;
        calls.note(self, kind, what, &end);
        // Nobody may be waiting.
        let _ = reply.send(answer);
    }

    fn is_wanted<T>(&self, reply: &oneshot::Sender<T>) -> bool {
        self.node.is_alive() && !reply.is_closed()
    }
}

fn lost(env: &Env) -> Error {
    match pick(env, &[0, 1]) {
        0 => Error::retry("simulated: try again"),
        _ => Error::unavailable("simulated: no connection"),
    }
}
