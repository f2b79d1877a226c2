//! Fetch: v4-18.
//!
//! v7 sessions (`fetch_sessions`); v12 last fetched epoch; v13 topic ids. The answer comes when
//! there are enough bytes, an error, or the wait is over. The first batch comes whole whatever the
//! limits. Nothing is read before there is memory for the answer (`answer_memory`), and none is
//! taken where there are no records.

use super::{Handled, Reply, RequestContext, api};
use crate::answer_memory::AnswerPermit;
use crate::broker::Broker;
use crate::error_codes::error_code;
use crate::fetch_sessions::{AskedPartition, SessionFetch, SessionPartition, SessionRequest, Want};
use floe_env::HashMap;
use floe_log::{FetchError, FetchFrom, Fetched, LEADER_EPOCH, RecordsOrigin};
use floe_metadata::rows::{AbortedTransaction, PartitionState};
use floe_wire::ErrorCode;
use floe_wire::fetch_response::{
    AbortedTransaction as FetchedAborted, DivergingEpoch, FetchResponse, FetchedPartition,
    FetchedTopic,
};
use floe_wire::messages::FetchRequest;
use floe_wire::messages::fetch_request::FetchTopic;
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
/// How long a fetch waits for memory, or as long as its client has time, if that is longer.
const MEMORY_PATIENCE: Duration = Duration::from_secs(5);
/// Even without news, a waiting fetch looks again after this long: other brokers' commits come
/// without a hint.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// One partition of a fetch, in the order in which it is served.
struct Wanted {
    index: i32,
    partition: Result<TopicPartition, ErrorCode>,
    offset: i64,
    bytes_max: usize,
    /// The client tells the epoch of what it has, and wants to hear where the log ends below that.
    has_epoch: bool,
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
        let topics = refuse_each(&context, request, ErrorCode::NotLeaderOrFollower);
        return refuse(&context, ErrorCode::None, topics);
    }
    if !(0..=1).contains(&request.isolation_level) {
        let topics = refuse_each(&context, request, ErrorCode::InvalidRequest);
        return refuse(&context, ErrorCode::InvalidRequest, topics);
    }
    let fetch = match Fetch::new(&broker, context.clone(), request) {
        Ok(fetch) => fetch,
        Err(code) => return refuse(&context, code, Vec::new()),
    };
    Ok(Reply::Later(Box::pin(async move {
        let (partitions, memory) = fetch.until_enough(&broker).await;
        match (fetch.response(&broker, partitions), memory) {
            (Ok(response), Some(memory)) => Reply::Holding(response, memory),
            (Ok(response), None) => Reply::Ready(response),
            (Err(error), _) => {
                tracing::error!(%error, "an answer to Fetch could not be encoded");
                Reply::Close
            }
        }
    })))
}

/// An error of the whole request. Versions without a field for one get what `topics` say.
fn refuse(context: &RequestContext, error: ErrorCode, topics: Vec<FetchedTopic>) -> Handled {
    context.count_code(error.code());
    let response = FetchResponse { error, topics, ..FetchResponse::default() };
    response.encode(context.version, context.correlation_id).map(Reply::Ready)
}

/// The same error for each partition of a request.
fn refuse_each(
    context: &RequestContext,
    request: FetchRequest,
    code: ErrorCode,
) -> Vec<FetchedTopic> {
    let topic = |topic: FetchTopic| {
        let failed = topic.partitions.iter().map(|asked| {
            context.count_code(code.code());
            FetchedPartition::failed(asked.partition, code)
        });
        let partitions = failed.collect();
        FetchedTopic { name: topic.topic, id: topic.topic_id, partitions }
    };
    request.topics.into_iter().map(topic).collect()
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
        let resolve = |wanted: &SessionPartition| Wanted {
            index: wanted.asked.index,
            partition: find(broker, wanted, uses_ids).and_then(|found| {
                check_epoch(&wanted.want)?;
                Ok(found)
            }),
            offset: wanted.want.offset,
            bytes_max: positive(wanted.want.bytes_max),
            has_epoch: wanted.want.last_fetched_epoch == LEADER_EPOCH,
        };
        let wanted: Vec<Wanted> = session.wanted.iter().map(resolve).collect();
        let add = |sum: usize, wanted: &Wanted| sum.saturating_add(wanted.bytes_max);
        let bytes_asked = wanted.iter().fold(0, add);
        Ok(Self {
            wanted,
            context,
            session,
            bytes_max: bytes_max.min(bytes_asked).min(FETCH_BYTES_MAX),
            bytes_min,
            wait: wait.min(WAIT_MAX),
            committed_only,
        })
    }

    /// Reads until there are enough bytes or an error, or the wait is over. With records comes the
    /// memory that they hold.
    async fn until_enough(&self, broker: &Broker) -> (Vec<FetchedPartition>, Option<AnswerPermit>) {
        let deadline = broker.env.monotonic() + self.wait;
        let partitions: Vec<TopicPartition> = self
            .wanted
            .iter()
            .filter_map(|wanted| wanted.partition.as_ref().ok().copied())
            .collect();
        loop {
            let waiter = broker.log.waiter(&partitions);
            let looked = self.look(broker).await;
            let left = deadline.saturating_duration_since(broker.env.monotonic());
            let mut bytes_enough = self.bytes_min;
            let (read, mut memory) = match looked.iter().filter_map(|(_, origin)| *origin).max() {
                None => (looked.into_iter().map(|(partition, _)| partition).collect(), None),
                Some(origin) => match self.memory(broker, origin, left).await {
                    None => return (looked.into_iter().map(|(one, _)| one).collect(), None),
                    Some(memory) => {
                        // Whole batches seldom fill the memory to its end, and there may be no
                        // more of it.
                        bytes_enough = bytes_enough.min(memory.bytes() / 2);
                        (self.read(broker, memory.bytes(), looked).await, Some(memory))
                    }
                },
            };
            let bytes: usize = read.iter().map(FetchedPartition::records_bytes).sum();
            let is_urgent = |partition: &FetchedPartition| {
                !partition.error.is_none() || partition.diverging_epoch.is_some()
            };
            let now = broker.env.monotonic();
            let is_enough = bytes >= bytes_enough || partitions.is_empty() || now >= deadline;
            if is_enough || read.iter().any(is_urgent) {
                if let Some(memory) = &mut memory {
                    memory.resize(bytes);
                }
                return (read, memory.filter(|_| bytes > 0));
            }
            // Whoever waits holds no memory.
            drop((read, memory));
            let patience = (deadline - now).min(LOOK_AGAIN);
            tokio::select! {
                biased;
                () = waiter.news() => {}
                () = broker.env.sleep(patience) => {}
                () = broker.shutdown.wait() => {
                    let looked = self.look(broker).await;
                    return (looked.into_iter().map(|(partition, _)| partition).collect(), None);
                }
            }
        }
    }

    /// Memory for an answer; `None` where there is none in time, or the broker shuts down.
    async fn memory(
        &self,
        broker: &Broker,
        origin: RecordsOrigin,
        left: Duration,
    ) -> Option<AnswerPermit> {
        let taken = broker.answer_memory.take(self.bytes_max, origin);
        tokio::select! {
            biased;
            taken = broker.env.timeout(left.max(MEMORY_PATIENCE), taken) => taken,
            () = broker.shutdown.wait() => None,
        }
    }

    /// Loads the partitions together, as far as the answer has room for them.
    fn read_ahead(&self, broker: &Broker, mut room: usize) {
        let mut wanted = Vec::with_capacity(self.wanted.len());
        for each in &self.wanted {
            let Ok(partition) = each.partition else { continue };
            wanted.push(self.from(partition, each.offset, each.bytes_max.min(room)));
            room = room.saturating_sub(each.bytes_max);
            if room == 0 {
                break;
            }
        }
        broker.log.read_ahead(wanted);
    }

    fn from(&self, partition: TopicPartition, offset: i64, bytes_max: usize) -> FetchFrom {
        FetchFrom { partition, offset, bytes_max, committed_only: self.committed_only }
    }

    /// What there is, without reading it: an answer that holds no records, and for each partition
    /// where its records would come from, if there are any.
    async fn look(&self, broker: &Broker) -> Vec<(FetchedPartition, Option<RecordsOrigin>)> {
        let mut looked = Vec::with_capacity(self.wanted.len());
        for wanted in &self.wanted {
            looked.push(match wanted.partition {
                Err(code) => (FetchedPartition::failed(wanted.index, code), None),
                Ok(partition) => {
                    match broker.log.look(self.from(partition, wanted.offset, 0)).await {
                        Ok(found) => {
                            (self.without_records(wanted.index, found.state), found.origin)
                        }
                        Err(error) => (self.failed(wanted, &error), None),
                    }
                }
            });
        }
        looked
    }

    /// Reads what there is, as far as there is room for it.
    async fn read(
        &self,
        broker: &Broker,
        bytes_max: usize,
        looked: Vec<(FetchedPartition, Option<RecordsOrigin>)>,
    ) -> Vec<FetchedPartition> {
        let mut room = self.bytes_max.min(bytes_max);
        self.read_ahead(broker, room);
        let mut is_empty = true;
        let mut read = Vec::with_capacity(self.wanted.len());
        for (wanted, (looked, origin)) in self.wanted.iter().zip(looked) {
            let is_full = room == 0 && !is_empty;
            let partition = match wanted.partition {
                Ok(partition) if origin.is_some() && !is_full => {
                    let bytes_max = wanted.bytes_max.min(room);
                    let from = self.from(partition, wanted.offset, bytes_max);
                    let fetched = broker.log.fetch(from).await;
                    self.fetched(wanted, fetched, bytes_max, is_empty)
                }
                _ => looked,
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
        wanted: &Wanted,
        fetched: Result<Fetched, FetchError>,
        bytes_max: usize,
        is_first: bool,
    ) -> FetchedPartition {
        match fetched {
            Err(error) => self.failed(wanted, &error),
            Ok(fetched) => {
                let ends = self.without_records(wanted.index, fetched.state);
                if !is_first && fetched.bytes() > bytes_max {
                    return ends;
                }
                let aborted = || fetched.aborted.into_iter().map(to_wire).collect();
                let aborted_transactions = self.committed_only.then(aborted);
                FetchedPartition { records: fetched.records, aborted_transactions, ..ends }
            }
        }
    }

    /// A partition of which nothing could be read. A client that tells the epoch of what it has
    /// hears where the log ends instead of that it is out of range.
    fn failed(&self, wanted: &Wanted, error: &FetchError) -> FetchedPartition {
        match *error {
            FetchError::OffsetOutOfRange(state)
                if wanted.has_epoch && wanted.offset > state.high_watermark =>
            {
                let (epoch, end_offset) = (LEADER_EPOCH, state.high_watermark);
                let diverging_epoch = Some(DivergingEpoch { epoch, end_offset });
                let ends = self.without_records(wanted.index, state);
                FetchedPartition { diverging_epoch, ..ends }
            }
            _ => FetchedPartition::failed(wanted.index, fetch_code(error)),
        }
    }

    /// A partition's ends alone.
    fn without_records(&self, index: i32, state: PartitionState) -> FetchedPartition {
        FetchedPartition {
            partition: index,
            error: ErrorCode::None,
            high_watermark: state.high_watermark,
            last_stable_offset: state.last_stable_offset,
            log_start_offset: state.log_start_offset,
            diverging_epoch: None,
            aborted_transactions: self.committed_only.then(Vec::new),
            preferred_read_replica: -1,
            records: Vec::new(),
        }
    }

    fn response(
        &self,
        broker: &Broker,
        partitions: Vec<FetchedPartition>,
    ) -> Result<floe_wire::Response, floe_wire::WireError> {
        partitions.iter().for_each(|partition| self.context.count_code(partition.error.code()));
        let (session_id, listed) = broker.fetch_sessions.finish(&self.session, &partitions);
        let mut topics: Vec<FetchedTopic> = Vec::new();
        let answered = self.session.wanted.iter().zip(partitions).zip(listed);
        for ((wanted, partition), is_listed) in answered {
            if !is_listed {
                continue;
            }
            let asked = &wanted.asked;
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

fn to_wire(aborted: AbortedTransaction) -> FetchedAborted {
    FetchedAborted { producer_id: aborted.producer.0, first_offset: aborted.first_offset }
}

fn find(
    broker: &Broker,
    wanted: &SessionPartition,
    uses_ids: bool,
) -> Result<TopicPartition, ErrorCode> {
    let asked = &wanted.asked;
    let topic = if uses_ids {
        // Of an id that a session has seen Kafka knows that it was a topic.
        let missing = if wanted.was_found {
            ErrorCode::UnknownTopicOrPartition
        } else {
            ErrorCode::UnknownTopicId
        };
        broker.topics.by_id(TopicId(asked.id)).ok_or(missing)?
    } else {
        broker.topics.by_name(&asked.name).ok_or(ErrorCode::UnknownTopicOrPartition)?
    };
    topic.partition(asked.index).ok_or(ErrorCode::UnknownTopicOrPartition)
}

/// The leader epoch is 0 for ever; a client that knows a higher one has it from elsewhere.
fn check_epoch(want: &Want) -> Result<(), ErrorCode> {
    if want.current_leader_epoch > LEADER_EPOCH {
        return Err(ErrorCode::UnknownLeaderEpoch);
    }
    if want.last_fetched_epoch > LEADER_EPOCH {
        return Err(ErrorCode::OffsetOutOfRange);
    }
    Ok(())
}

fn fetch_code(error: &FetchError) -> ErrorCode {
    match error {
        FetchError::UnknownPartition => ErrorCode::UnknownTopicOrPartition,
        FetchError::OffsetOutOfRange(_) => ErrorCode::OffsetOutOfRange,
        FetchError::Failed(error) => {
            tracing::warn!(%error, "fetch failed");
            error_code(error)
        }
    }
}
