//! Fetch: v4-18.
//!
//! v7 sessions (`fetch_sessions`); v12 last fetched epoch; v13 topic ids. The answer comes when
//! there are enough bytes, an error, or the wait is over. The first batch comes whole whatever the
//! limits.

use super::{Handled, Reply, RequestContext, api};
use crate::broker::Broker;
use crate::error_codes::error_code;
use crate::fetch_sessions::{AskedPartition, SessionFetch, SessionRequest, Want};
use floe_env::HashMap;
use floe_log::{FetchError, FetchFrom, Fetched};
use floe_wire::ErrorCode;
use floe_wire::fetch_response::{FetchResponse, FetchedPartition, FetchedTopic};
use floe_wire::messages::FetchRequest;
use kfs::{TopicId, TopicPartition};
use std::sync::Arc;
use std::time::Duration;

pub(super) const API: super::Api = api!(Fetch, 4..=18, handle);

/// The first version with sessions.
const SESSIONS_SINCE: i16 = 7;
/// The first version that names topics by id.
const TOPIC_IDS_SINCE: i16 = 13;
/// A fetch answers about this many bytes at most, whatever the client asks for: Kafka's
/// `fetch.max.bytes`.
const FETCH_BYTES_MAX: usize = 55 << 20;
/// A wait is at most this long, so that a connection is never held for ever.
const WAIT_MAX: Duration = Duration::from_secs(300);
/// Even without news, a waiting fetch looks again after this long: other brokers' commits come
/// without a hint.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// One partition of a fetch, in the order in which it is served.
struct Wanted {
    index: i32,
    partition: Result<TopicPartition, ErrorCode>,
    offset: i64,
    bytes_max: usize,
}

/// A fetch that may have to wait.
struct Fetch {
    context: RequestContext,
    session: SessionFetch,
    wanted: Vec<Wanted>,
    bytes_max: usize,
    bytes_min: usize,
    wait: Duration,
    committed_only: bool,
}

async fn handle(broker: Arc<Broker>, context: RequestContext, request: FetchRequest) -> Handled {
    if request.replica_id.0 >= 0 || request.replica_state.replica_id.0 >= 0 {
        return refuse(&context, ErrorCode::NotLeaderOrFollower);
    }
    if !(0..=1).contains(&request.isolation_level) {
        return refuse(&context, ErrorCode::InvalidRequest);
    }
    let fetch = match Fetch::new(&broker, context.clone(), request) {
        Ok(fetch) => fetch,
        Err(code) => return refuse(&context, code),
    };
    Ok(Reply::Later(Box::pin(async move {
        let partitions = fetch.until_enough(&broker).await;
        match fetch.response(&broker, partitions) {
            Ok(response) => Reply::Ready(response),
            Err(error) => {
                tracing::error!(%error, "an answer to Fetch could not be encoded");
                Reply::Close
            }
        }
    })))
}

/// An error of the whole request. Versions without a field for one get an answer without
/// partitions.
fn refuse(context: &RequestContext, error: ErrorCode) -> Handled {
    context.count_errors([error.code()]);
    let response = FetchResponse { error, ..FetchResponse::default() };
    response.encode(context.version, context.correlation_id).map(Reply::Ready)
}

/// The session part of a request; before version 7 there are no sessions.
fn session_request(context: &RequestContext, request: FetchRequest) -> SessionRequest {
    let uses_ids = context.version >= TOPIC_IDS_SINCE;
    let mut wanted: Vec<(AskedPartition, Want)> = Vec::new();
    let mut places: HashMap<AskedPartition, usize> = HashMap::default();
    for topic in request.topics {
        for partition in topic.partitions {
            let asked = AskedPartition {
                name: topic.topic.clone(),
                id: topic.topic_id,
                index: partition.partition,
            };
            let want = Want {
                offset: partition.fetch_offset,
                bytes_max: partition.partition_max_bytes,
                current_leader_epoch: partition.current_leader_epoch,
                last_fetched_epoch: partition.last_fetched_epoch,
            };
            // One that is listed twice is answered once, and its last entry counts.
            match places.get(&asked) {
                Some(place) => wanted[*place].1 = want,
                None => {
                    places.insert(asked.clone(), wanted.len());
                    wanted.push((asked, want));
                }
            }
        }
    }
    let forgotten = request.forgotten_topics_data.into_iter().flat_map(|topic| {
        let (name, id) = (topic.topic, topic.topic_id);
        let partitions = topic.partitions.into_iter();
        partitions.map(move |index| AskedPartition { name: name.clone(), id, index })
    });
    let has_sessions = context.version >= SESSIONS_SINCE;
    SessionRequest {
        id: if has_sessions { request.session_id } else { 0 },
        epoch: if has_sessions { request.session_epoch } else { -1 },
        uses_ids,
        wanted,
        forgotten: forgotten.collect(),
    }
}

impl Fetch {
    fn new(
        broker: &Broker,
        context: RequestContext,
        request: FetchRequest,
    ) -> Result<Self, ErrorCode> {
        let positive = |bytes: i32| usize::try_from(bytes).unwrap_or(0);
        let wait = Duration::from_millis(request.max_wait_ms.max(0).unsigned_abs().into());
        let (bytes_max, bytes_min) = (positive(request.max_bytes), positive(request.min_bytes));
        let committed_only = request.isolation_level == 1;
        let uses_ids = context.version >= TOPIC_IDS_SINCE;
        let session = broker.fetch_sessions.begin(session_request(&context, request))?;
        let resolve = |(asked, want): &(AskedPartition, Want)| Wanted {
            index: asked.index,
            partition: find(broker, asked, uses_ids).and_then(|found| {
                check_epoch(want)?;
                Ok(found)
            }),
            offset: want.offset,
            bytes_max: positive(want.bytes_max),
        };
        Ok(Self {
            wanted: session.wanted.iter().map(resolve).collect(),
            context,
            session,
            bytes_max: bytes_max.min(FETCH_BYTES_MAX),
            bytes_min,
            wait: wait.min(WAIT_MAX),
            committed_only,
        })
    }

    /// Reads until there are enough bytes or an error, or the wait is over.
    async fn until_enough(&self, broker: &Broker) -> Vec<FetchedPartition> {
        let deadline = broker.env.monotonic() + self.wait;
        let partitions: Vec<TopicPartition> = self
            .wanted
            .iter()
            .filter_map(|wanted| wanted.partition.as_ref().ok().copied())
            .collect();
        loop {
            let waiter = broker.log.waiter(&partitions);
            let read = self.read(broker).await;
            let bytes: usize = read.iter().map(FetchedPartition::records_bytes).sum();
            let has_error = read.iter().any(|partition| !partition.error.is_none());
            let now = broker.env.monotonic();
            if has_error || bytes >= self.bytes_min || partitions.is_empty() || now >= deadline {
                return read;
            }
            let patience = (deadline - now).min(LOOK_AGAIN);
            tokio::select! {
                biased;
                () = waiter.news() => {}
                () = broker.env.sleep(patience) => {}
                () = broker.shutdown.wait() => return read,
            }
        }
    }

    /// Loads the partitions side by side as far as the answer has room for them.
    fn read_ahead(&self, broker: &Broker) {
        let mut room = self.bytes_max;
        for wanted in &self.wanted {
            let Ok(partition) = wanted.partition else { continue };
            broker.log.read_ahead(&self.from(partition, wanted.offset, wanted.bytes_max.min(room)));
            room = room.saturating_sub(wanted.bytes_max);
            if room == 0 {
                break;
            }
        }
    }

    fn from(&self, partition: TopicPartition, offset: i64, bytes_max: usize) -> FetchFrom {
        FetchFrom { partition, offset, bytes_max, committed_only: self.committed_only }
    }

    async fn read(&self, broker: &Broker) -> Vec<FetchedPartition> {
        self.read_ahead(broker);
        let mut room = self.bytes_max;
        let mut is_empty = true;
        let mut read = Vec::with_capacity(self.wanted.len());
        for wanted in &self.wanted {
            let partition = match wanted.partition {
                Err(code) => FetchedPartition::failed(wanted.index, code),
                Ok(partition) => {
                    let bytes_max = wanted.bytes_max.min(room);
                    let from = self.from(partition, wanted.offset, bytes_max);
                    let fetched = broker.log.fetch(from).await;
                    self.fetched(wanted.index, fetched, bytes_max, is_empty)
                }
            };
            let bytes = partition.records_bytes();
            is_empty &= bytes == 0;
            room = room.saturating_sub(bytes);
            read.push(partition);
        }
        read
    }

    /// A partition's part of the answer. Only the first batch of the whole answer may exceed a
    /// limit.
    fn fetched(
        &self,
        index: i32,
        fetched: Result<Fetched, FetchError>,
        bytes_max: usize,
        is_first: bool,
    ) -> FetchedPartition {
        let fetched = match fetched {
            Ok(fetched) => fetched,
            Err(error) => return FetchedPartition::failed(index, fetch_code(&error)),
        };
        let fits = is_first || fetched.bytes() <= bytes_max;
        FetchedPartition {
            partition: index,
            error: ErrorCode::None,
            high_watermark: fetched.state.high_watermark,
            last_stable_offset: fetched.state.last_stable_offset,
            log_start_offset: fetched.state.log_start_offset,
            diverging_epoch: None,
            aborted_transactions: self.committed_only.then(Vec::new),
            preferred_read_replica: -1,
            records: if fits { fetched.records } else { Vec::new() },
        }
    }

    fn response(
        &self,
        broker: &Broker,
        partitions: Vec<FetchedPartition>,
    ) -> Result<floe_wire::Response, floe_wire::WireError> {
        self.context.count_errors(partitions.iter().map(|partition| partition.error.code()));
        let (session_id, listed) = broker.fetch_sessions.finish(&self.session, &partitions);
        let mut topics: Vec<FetchedTopic> = Vec::new();
        let answered = self.session.wanted.iter().zip(partitions).zip(listed);
        for (((asked, _), partition), is_listed) in answered {
            if !is_listed {
                continue;
            }
            let is_same = |topic: &FetchedTopic| topic.name == asked.name && topic.id == asked.id;
            if !topics.last().is_some_and(is_same) {
                topics.push(FetchedTopic {
                    name: asked.name.clone(),
                    id: asked.id,
                    partitions: Vec::new(),
                });
            }
            if let Some(topic) = topics.last_mut() {
                topic.partitions.push(partition);
            }
        }
        let response = FetchResponse { session_id, topics, ..FetchResponse::default() };
        response.encode(self.context.version, self.context.correlation_id)
    }
}

fn find(
    broker: &Broker,
    asked: &AskedPartition,
    uses_ids: bool,
) -> Result<TopicPartition, ErrorCode> {
    let topic = if uses_ids {
        broker.topics.by_id(TopicId(asked.id)).ok_or(ErrorCode::UnknownTopicId)?
    } else {
        broker.topics.by_name(&asked.name).ok_or(ErrorCode::UnknownTopicOrPartition)?
    };
    topic.partition(asked.index).ok_or(ErrorCode::UnknownTopicOrPartition)
}

/// The leader epoch is 0 for ever; a client that knows a higher one has it from elsewhere.
fn check_epoch(want: &Want) -> Result<(), ErrorCode> {
    if want.current_leader_epoch > 0 {
        return Err(ErrorCode::UnknownLeaderEpoch);
    }
    if want.last_fetched_epoch > 0 {
        return Err(ErrorCode::OffsetOutOfRange);
    }
    Ok(())
}

fn fetch_code(error: &FetchError) -> ErrorCode {
    match error {
        FetchError::UnknownPartition => ErrorCode::UnknownTopicOrPartition,
        FetchError::OffsetOutOfRange => ErrorCode::OffsetOutOfRange,
        FetchError::Failed(error) => {
            tracing::warn!(%error, "fetch failed");
            error_code(error)
        }
    }
}
