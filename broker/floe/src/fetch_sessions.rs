//! Fetch sessions (KIP-227): a client names its partitions once, later requests only what changes,
//! and answers only what is new. Kept in this broker's memory; a client that comes elsewhere, or
//! back after a restart, is told so and starts anew.

use floe_env::{Env, HashMap, Instant};
use floe_wire::ErrorCode;
use floe_wire::fetch_response::FetchedPartition;
use floe_wire::messages::TopicName;
use parking_lot::Mutex;
use std::time::Duration;
use uuid::Uuid;

/// Sessions at one time, as in Kafka (`max.incremental.fetch.session.cache.slots`).
const SESSIONS_MAX: usize = 1000;
/// Partitions that one session holds at most; larger clients fetch without one.
const PARTITIONS_PER_SESSION_MAX: usize = 20_000;
/// A session that was idle for longer makes room for a new one.
const EVICTABLE_AFTER: Duration = Duration::from_secs(120);

/// A partition as clients name it: by topic name or by topic id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AskedPartition {
    pub(crate) name: TopicName,
    pub(crate) id: Uuid,
    pub(crate) index: i32,
}

/// What a client wants of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Want {
    pub(crate) offset: i64,
    pub(crate) bytes_max: i32,
    pub(crate) current_leader_epoch: i32,
    pub(crate) last_fetched_epoch: i32,
}

/// The session part of a request.
pub(crate) struct SessionRequest {
    pub(crate) id: i32,
    pub(crate) epoch: i32,
    /// Topics are named by id.
    pub(crate) uses_ids: bool,
    /// Partitions that are new or changed; all of them in a full request.
    pub(crate) wanted: Vec<(AskedPartition, Want)>,
    /// Partitions that leave the session.
    pub(crate) forgotten: Vec<AskedPartition>,
}

/// A request with its session looked up: what is to be fetched.
pub(crate) struct SessionFetch {
    pub(crate) wanted: Vec<SessionPartition>,
    kind: Kind,
}

/// A partition of a fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionPartition {
    pub(crate) asked: AskedPartition,
    pub(crate) want: Want,
    /// An earlier fetch of the session found the topic, so that it has been deleted if it is gone.
    pub(crate) was_found: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// No session: everything is answered, with session id 0.
    Sessionless,
    /// A session was asked for, with topics by id or not.
    New { uses_ids: bool },
    /// The next request of a session.
    Incremental(i32),
}

/// What the client was told last of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told {
    high_watermark: i64,
    log_start_offset: i64,
    was_found: bool,
}

/// Nothing yet.
const TOLD_NOTHING: Told = Told { high_watermark: -1, log_start_offset: -1, was_found: false };

struct Session {
    next_epoch: i32,
    uses_ids: bool,
    used_at: Instant,
    /// In the order in which they are served.
    partitions: Vec<(AskedPartition, Want, Told)>,
}

/// All sessions of this broker.
pub(crate) struct FetchSessions {
    env: Env,
    sessions: Mutex<HashMap<i32, Session>>,
}

impl FetchSessions {
    pub(crate) fn new(env: Env) -> Self {
        Self { env, sessions: Mutex::default() }
    }

    /// Looks a request's session up. An error is one of the whole request.
    pub(crate) fn begin(&self, request: SessionRequest) -> Result<SessionFetch, ErrorCode> {
        let mut sessions = self.sessions.lock();
        if request.epoch <= 0 {
            // A full request; it ends the session that it names.
            sessions.remove(&request.id);
            let kind = match request.epoch {
                0 => Kind::New { uses_ids: request.uses_ids },
                _ => Kind::Sessionless,
            };
            let new = |(asked, want)| SessionPartition { asked, want, was_found: false };
            return Ok(SessionFetch {
                wanted: request.wanted.into_iter().map(new).collect(),
                kind,
            });
        }
        let session = sessions.get_mut(&request.id).ok_or(ErrorCode::FetchSessionIdNotFound)?;
        if session.next_epoch != request.epoch {
            return Err(ErrorCode::InvalidFetchSessionEpoch);
        }
        if session.uses_ids != request.uses_ids {
            return Err(ErrorCode::FetchSessionTopicIdError);
        }
        session.next_epoch = next_epoch(request.epoch);
        session.used_at = self.env.monotonic();
        session.partitions.retain(|(asked, ..)| !request.forgotten.contains(asked));
        session.update(request.wanted);
        let wanted = session.partitions.iter().map(|(asked, want, told)| SessionPartition {
            asked: asked.clone(),
            want: *want,
            was_found: told.was_found,
        });
        Ok(SessionFetch { wanted: wanted.collect(), kind: Kind::Incremental(request.id) })
    }

    /// The session id for the answer, and which of the partitions it lists; `fetched` is in the
    /// order of [`SessionFetch::wanted`].
    pub(crate) fn finish(
        &self,
        fetch: &SessionFetch,
        fetched: &[FetchedPartition],
    ) -> (i32, Vec<bool>) {
        let everything = vec![true; fetched.len()];
        match fetch.kind {
            Kind::Sessionless => (0, everything),
            Kind::New { uses_ids } => (self.create(uses_ids, fetch, fetched), everything),
            Kind::Incremental(id) => {
                let mut sessions = self.sessions.lock();
                let listed = sessions.get_mut(&id).map(|session| session.tell(fetch, fetched));
                (id, listed.unwrap_or(everything))
            }
        }
    }

    fn create(&self, uses_ids: bool, fetch: &SessionFetch, fetched: &[FetchedPartition]) -> i32 {
        if fetch.wanted.len() > PARTITIONS_PER_SESSION_MAX {
            return 0;
        }
        let now = self.env.monotonic();
        let mut sessions = self.sessions.lock();
        if sessions.len() >= SESSIONS_MAX && !evict(&mut sessions, now) {
            return 0;
        }
        let mut id = self.draw();
        while sessions.contains_key(&id) {
            id = self.draw();
        }
        let partitions = fetch.wanted.iter().zip(fetched);
        let partitions = partitions
            .map(|(wanted, got)| (wanted.asked.clone(), wanted.want, TOLD_NOTHING.and_then(got)));
        let session =
            Session { next_epoch: 1, uses_ids, used_at: now, partitions: partitions.collect() };
        sessions.insert(id, session);
        id
    }

    /// A positive id.
    fn draw(&self) -> i32 {
        let bits = u32::try_from(self.env.random_u64() >> 33).unwrap_or(1);
        bits.cast_signed().max(1)
    }
}

impl Session {
    fn update(&mut self, wanted: Vec<(AskedPartition, Want)>) {
        if wanted.is_empty() {
            return;
        }
        let places = self.partitions.iter().enumerate();
        let mut places: HashMap<AskedPartition, usize> =
            places.map(|(place, (asked, ..))| (asked.clone(), place)).collect();
        for (asked, want) in wanted {
            match places.get(&asked) {
                Some(place) => self.partitions[*place].1 = want,
                None => {
                    places.insert(asked.clone(), self.partitions.len());
                    self.partitions.push((asked, want, TOLD_NOTHING));
                }
            }
        }
    }

    /// Decides which partitions the answer lists, and moves those with records to the end, so that
    /// the others come first next time.
    fn tell(&mut self, fetch: &SessionFetch, fetched: &[FetchedPartition]) -> Vec<bool> {
        let mut listed = Vec::with_capacity(fetched.len());
        let (mut kept, mut served) = (Vec::new(), Vec::new());
        let partitions = std::mem::take(&mut self.partitions);
        for ((asked, want, before), got) in partitions.into_iter().zip(fetched) {
            let has_records = got.records_bytes() > 0;
            let now = before.and_then(got);
            let is_news = !got.error.is_none() || got.diverging_epoch.is_some() || now != before;
            listed.push(has_records || is_news);
            let place = if has_records { &mut served } else { &mut kept };
            place.push((asked, want, now));
        }
        kept.append(&mut served);
        self.partitions = kept;
        debug_assert_eq!(listed.len(), fetch.wanted.len());
        listed
    }
}

impl Told {
    /// What the client knows after an answer. An error leaves no offsets, so that the recovery is
    /// news.
    fn and_then(self, got: &FetchedPartition) -> Self {
        let is_missing =
            matches!(got.error, ErrorCode::UnknownTopicId | ErrorCode::UnknownTopicOrPartition);
        let was_found = self.was_found || !is_missing;
        if got.error.is_none() {
            let (high_watermark, log_start_offset) = (got.high_watermark, got.log_start_offset);
            Self { high_watermark, log_start_offset, was_found }
        } else {
            Self { was_found, ..TOLD_NOTHING }
        }
    }
}

/// Wraps to 1: 0 begins a session.
fn next_epoch(epoch: i32) -> i32 {
    epoch.checked_add(1).unwrap_or(1)
}

/// Removes the session that was idle for longest, if that was long enough.
fn evict(sessions: &mut HashMap<i32, Session>, now: Instant) -> bool {
    let oldest = sessions.iter().min_by_key(|(id, session)| (session.used_at, **id));
    let Some((id, session)) = oldest else { return true };
    if now - session.used_at < EVICTABLE_AFTER {
        return false;
    }
    let id = *id;
    sessions.remove(&id);
    true
}

#[cfg(test)]
mod tests;
