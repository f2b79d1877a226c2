//! Produce: v3-13 (0-2 are advertised for old librdkafka and close the connection, as in Kafka).
//!
//! v7 zstd; v8 record errors; v11 TRANSACTION_ABORTABLE; v12 writing adds a partition to the
//! transaction (KIP-890); v13 topic ids instead of names. `acks` 1 and -1 are the same: the
//! answer comes when the records are durable and visible. The order of the checks is Kafka's:
//! partition, block, acks, batch, transaction, sequence. The last two are the commit's.

use super::{Handled, Reply, RequestContext, api};
use crate::broker::Broker;
use crate::complaints::Complaint;
use crate::error_codes::{batch_code, error_code, refusal_code};
use crate::topic_names;
use crate::topics::KnownTopic;
use bytes::{Bytes, BytesMut};
use floe_log::{AppendBatch, AppendError, AppendResult, Ticket};
use floe_metadata::rows::{ProducerBatch, TransactionBatch};
use floe_wire::ErrorCode;
use floe_wire::messages::produce_response::{
    BatchIndexAndErrorMessage, PartitionProduceResponse, TopicProduceResponse,
};
use floe_wire::messages::{ProduceRequest, ProduceResponse, StrBytes, TopicName};
use kfs::{
    BadRecord, BatchError, BatchSummary, ProducerEpoch, ProducerId, RecordFault, TimestampType,
    TopicId, TopicPartition,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub(super) const API: super::Api = api!(Produce, 3..=13, handle);

/// The client id that may write topics of Kafka's own.
const ADMIN_CLIENT_ID: &str = "__admin_client";
/// Where a batch of any format says its length.
const BATCH_LENGTH_AT: std::ops::Range<usize> = 8..12;
/// The least that a batch of the oldest format says of its length, bytes.
const OLDEST_LENGTH_MIN: i32 = 14;
/// Records of one request that are told one by one at most. What is refused beyond gets its code
/// and message alone: a small request must not have a large answer.
const RECORD_ERRORS_MAX: usize = 4096;
/// The first version that may carry zstd.
const ZSTD_SINCE: i16 = 7;
/// The first version that knows TRANSACTION_ABORTABLE.
const ABORTABLE_SINCE: i16 = 11;
/// The first version that adds partitions to transactions.
const JOINS_SINCE: i16 = 12;
/// The first version that names topics by id.
const TOPIC_IDS_SINCE: i16 = 13;
/// What clients show where a transaction does not have the partition.
const NOT_IN_TRANSACTION: &str = "the partition has not been added to the transaction";

/// A partition's place in the answer.
type Place = (usize, i32);

/// Batches on their way to the log, with the place of each one's answer.
#[derive(Default)]
struct Accepted {
    places: Vec<Place>,
    batches: Vec<AppendBatch>,
    append_times: Vec<i64>,
}

async fn handle(broker: Arc<Broker>, context: RequestContext, request: ProduceRequest) -> Handled {
    let mut answer = Answer::new(&request);
    let mut accepted = Accepted::default();
    let transactional_id: Option<Arc<str>> =
        request.transactional_id.as_ref().map(|id| id.as_str().into());
    // A partition that is listed twice is answered once, and its last entry counts.
    let mut entries: BTreeMap<Place, Option<Bytes>> = BTreeMap::new();
    for (at, topic) in request.topic_data.into_iter().enumerate() {
        for partition in topic.partition_data {
            entries.insert((at, partition.index), partition.records);
        }
    }
    if transactional_id.is_some() && has_two_producers(entries.values()) {
        entries.keys().for_each(|place| answer.refuse(*place, two_producers()));
        return finish(&context, request.acks, answer);
    }
    for (place, records) in entries {
        let checked = match answer.topic(&broker, &context, place.0) {
            Err(code) => Err(Refused::code(code)),
            Ok(topic) => {
                let sent = Sent {
                    index: place.1,
                    acks: request.acks,
                    records,
                    transactional_id: &transactional_id,
                };
                match check(&broker, &context, &topic, sent) {
                    Ok((batch, append_time_ms)) => recompressed(&broker, &topic, batch)
                        .await
                        .map(|batch| (batch, append_time_ms)),
                    Err(refused) => Err(refused),
                }
            }
        };
        match checked {
            Ok((batch, append_time_ms)) => {
                accepted.places.push(place);
                accepted.batches.push(batch);
                accepted.append_times.push(append_time_ms);
            }
            Err(refused) => {
                complain(&broker, &context, &answer, place, &refused);
                answer.refuse(place, refused);
            }
        }
    }
    let timeout = Duration::from_millis(request.timeout_ms.max(0).unsigned_abs().into());
    if accepted.batches.is_empty() {
        return finish(&context, request.acks, answer);
    }
    match broker.log.append(std::mem::take(&mut accepted.batches)).await {
        Err(error) => {
            accepted.places.iter().for_each(|place| {
                answer.refuse(*place, Refused::code(error_code(&error)));
            });
            finish(&context, request.acks, answer)
        }
        Ok(ticket) => Ok(Reply::Later(Box::pin(async move {
            let outcome = outcome(&broker, ticket, timeout).await;
            answer.take(context.version, &accepted, outcome);
            finish(&context, request.acks, answer).unwrap_or_else(|error| {
                tracing::error!(%error, "an answer to Produce could not be encoded");
                Reply::Close
            })
        }))),
    }
}

/// Waits as long as the client does. After that the outcome is open, and the client asks again.
async fn outcome(broker: &Broker, ticket: Ticket, timeout: Duration) -> Option<Vec<AppendResult>> {
    broker.env.timeout(timeout, ticket.outcome()).await.flatten()
}

fn finish(context: &RequestContext, acks: i16, answer: Answer) -> Handled {
    if acks != 0 {
        return context.reply(&answer.response);
    }
    context.count(&answer.response);
    // Nobody reads an answer; closing makes the client look for what has changed.
    Ok(if answer.has_errors { Reply::Close } else { Reply::Nothing })
}

/// Why a partition's records are not taken.
struct Refused {
    code: ErrorCode,
    message: Option<String>,
    /// What is wrong with the batch, for the log.
    fault: Option<BatchError>,
    records: BadRecords,
    /// Found in the records, and so by the log: Kafka then tells the log start.
    log_start_offset: i64,
}

/// The records of a batch that are at fault.
enum BadRecords {
    None,
    Listed(Vec<BadRecord>),
    /// The append time's bit is the batch's, and so every one of this many records is at fault.
    AppendTime(u32),
}

impl Refused {
    fn code(code: ErrorCode) -> Self {
        Self { code, message: None, fault: None, records: BadRecords::None, log_start_offset: -1 }
    }
}

/// Tells of records that are not taken.
fn complain(
    broker: &Broker,
    context: &RequestContext,
    answer: &Answer,
    (at, partition): Place,
    refused: &Refused,
) {
    let Some(left_out) = broker.complaints.line(Complaint::Batch) else { return };
    let (host, client, code) = (&context.client_host, &*context.client_id, refused.code.name());
    let (topic, id) = &answer.names[at];
    let fault = refused.fault.as_ref().map(ToString::to_string).unwrap_or_default();
    tracing::warn!(
        %host, client, topic = topic.as_str(), %id, partition, code, fault, left_out, "batch refused"
    );
}

/// One partition's part of a request.
struct Sent<'a> {
    index: i32,
    acks: i16,
    records: Option<Bytes>,
    transactional_id: &'a Option<Arc<str>>,
}

/// Checks one partition's records, and makes of them what is to be stored. The second value is the
/// append time, -1 under CreateTime.
fn check(
    broker: &Broker,
    context: &RequestContext,
    topic: &Arc<KnownTopic>,
    Sent { index, acks, records, transactional_id }: Sent<'_>,
) -> Result<(AppendBatch, i64), Refused> {
    let partition = topic.partition(index);
    let partition = partition.ok_or_else(|| Refused::code(ErrorCode::UnknownTopicOrPartition))?;
    let records = records.ok_or_else(|| Refused::code(ErrorCode::InvalidRecord))?;
    let sent = kfs::single_batch(&records).map_err(|error| refuse_block(&records, &error))?;
    let length = sent.len();
    let header = kfs::BatchHeader::parse(sent).ok();
    let is_transactional = header.as_ref().is_some_and(kfs::BatchHeader::is_transactional);
    if is_transactional && transactional_id.is_none() {
        return Err(Refused::code(ErrorCode::TransactionalIdAuthorizationFailed));
    }
    if !(-1..=1).contains(&acks) {
        return Err(Refused::code(ErrorCode::InvalidRequiredAcks));
    }
    let batch = records.slice(..length);
    let now_ms = broker.env.now_ms();
    let rules = topic.settings.rules(now_ms, context.version >= ZSTD_SINCE);
    let summary = kfs::validate_batch(&batch, &rules)
        .map_err(|error| refuse_batch(broker, partition, stated_records(&batch), error))?;
    let transaction = match transactional_id.as_ref().filter(|_| is_transactional) {
        Some(id) => Some(transaction_of(id.clone(), &summary.header, context.version)?),
        None => None,
    };
    let stored = to_store(batch, &summary, topic.settings.timestamp_type, now_ms);
    let batch = append_batch(topic, partition, &summary, &stored);
    Ok((AppendBatch { transaction, ..batch }, stored.append_time_ms))
}

/// The transaction of a batch that says it is of one.
fn transaction_of(
    id: Arc<str>,
    header: &kfs::BatchHeader,
    version: i16,
) -> Result<TransactionBatch, Refused> {
    // The transactional id has a producer id and an epoch, and never these.
    if header.producer_id < 0 {
        return Err(Refused::code(ErrorCode::InvalidProducerIdMapping));
    }
    if header.producer_epoch < 0 {
        return Err(Refused::code(ErrorCode::InvalidProducerEpoch));
    }
    Ok(TransactionBatch { id, joins: version >= JOINS_SINCE })
}

/// Whether batches of a request are of more than one producer.
fn has_two_producers<'a>(records: impl Iterator<Item = &'a Option<Bytes>>) -> bool {
    let headers = records.filter_map(|records| kfs::BatchHeader::parse(records.as_deref()?).ok());
    let mut producers = headers.map(|header| header.producer_id).filter(|id| *id >= 0);
    let first = producers.next();
    producers.any(|id| Some(id) != first)
}

fn two_producers() -> Refused {
    Refused {
        message: Some("a transactional request has batches of one producer only".to_owned()),
        ..Refused::code(ErrorCode::InvalidProducerIdMapping)
    }
}

/// The batch under the codec that its topic sets.
async fn recompressed(
    broker: &Broker,
    topic: &KnownTopic,
    mut batch: AppendBatch,
) -> Result<AppendBatch, Refused> {
    let bytes = broker.recompression.apply(&broker.env, &topic.settings, batch.bytes).await;
    batch.bytes = bytes.map_err(|error| refuse_batch(broker, batch.partition, 0, error))?;
    if batch.bytes.len() > topic.settings.segment_bytes {
        return Err(Refused::code(ErrorCode::RecordListTooLarge));
    }
    Ok(batch)
}

/// What is no single batch. Of these only an unknown magic, and a first length that even the oldest
/// format would not have, have a message in Kafka.
fn refuse_block(records: &[u8], error: &BatchError) -> Refused {
    let first_length = records.get(BATCH_LENGTH_AT).and_then(|bytes| bytes.try_into().ok());
    let is_too_short = |bytes: [u8; 4]| i32::from_be_bytes(bytes) < OLDEST_LENGTH_MIN;
    let has_message =
        matches!(error, BatchError::UnknownMagic(_)) || first_length.is_some_and(is_too_short);
    Refused {
        message: has_message.then(|| error.to_string()),
        fault: Some(error.clone()),
        ..Refused::code(batch_code(error))
    }
}

/// How many records a batch says that it has.
fn stated_records(batch: &[u8]) -> u32 {
    kfs::BatchHeader::parse(batch).map_or(0, |header| header.record_count.unsigned_abs())
}

fn refuse_batch(
    broker: &Broker,
    partition: TopicPartition,
    stated_records: u32,
    error: BatchError,
) -> Refused {
    let code = batch_code(&error);
    let fault = Some(error.clone());
    let is_from_records = matches!(code, ErrorCode::InvalidRecord | ErrorCode::InvalidTimestamp);
    let known = broker.log.known_state(partition).filter(|_| is_from_records);
    let records = match error {
        BatchError::BadRecords(bad) => BadRecords::Listed(bad),
        BatchError::LogAppendTime => BadRecords::AppendTime(stated_records),
        _ => BadRecords::None,
    };
    let message = "one or more records have been rejected";
    Refused {
        code,
        message: (!matches!(records, BadRecords::None)).then(|| message.to_owned()),
        fault,
        records,
        log_start_offset: known.map_or(-1, |state| state.log_start_offset),
    }
}

/// The records that are told one by one, `errors_max` at most, with what is wrong with each.
fn record_errors(bad: BadRecords, errors_max: usize) -> Vec<BatchIndexAndErrorMessage> {
    let told = |index: u32, message: StrBytes| {
        BatchIndexAndErrorMessage::default()
            .with_batch_index(i32::try_from(index).unwrap_or(i32::MAX))
            .with_batch_index_error_message(Some(message))
    };
    let append_time = StrBytes::from_static_str("only the broker sets the append time");
    match bad {
        BadRecords::None => Vec::new(),
        BadRecords::Listed(bad) => {
            let bad = bad.into_iter().take(errors_max);
            bad.map(|record| told(record.index, record_fault(record.fault))).collect()
        }
        BadRecords::AppendTime(count) => {
            let records = (0..count).take(errors_max);
            records.map(|index| told(index, append_time.clone())).collect()
        }
    }
}

fn record_fault(fault: RecordFault) -> StrBytes {
    match fault {
        RecordFault::MissingKey => {
            StrBytes::from_static_str("a compacted topic takes no record without a key")
        }
        RecordFault::Timestamp { timestamp_ms } => StrBytes::from_string(format!(
            "timestamp {timestamp_ms} is outside what the topic allows"
        )),
    }
}

/// A batch as it is stored: what the client sent, but for a wrong greatest timestamp and for
/// LogAppendTime.
struct Stored {
    bytes: Bytes,
    timestamp_type: TimestampType,
    max_timestamp_ms: i64,
    append_time_ms: i64,
}

fn to_store(
    batch: Bytes,
    summary: &BatchSummary,
    timestamp_type: TimestampType,
    now_ms: i64,
) -> Stored {
    let is_append_time = timestamp_type == TimestampType::LogAppendTime;
    let max_timestamp_ms = if is_append_time { now_ms } else { summary.max_timestamp_ms };
    let append_time_ms = if is_append_time { now_ms } else { -1 };
    let bytes = if is_append_time || summary.needs_create_time_fix() {
        let mut fixed = BytesMut::from(&batch[..]);
        kfs::set_timestamps(&mut fixed, timestamp_type, max_timestamp_ms);
        fixed.freeze()
    } else {
        batch
    };
    Stored { bytes, timestamp_type, max_timestamp_ms, append_time_ms }
}

fn append_batch(
    topic: &KnownTopic,
    partition: TopicPartition,
    summary: &BatchSummary,
    stored: &Stored,
) -> AppendBatch {
    let header = &summary.header;
    // Without an epoch or a sequence there is nothing to check duplicates by, whoever sent it.
    let is_idempotent =
        header.producer_id >= 0 && header.producer_epoch >= 0 && header.base_sequence >= 0;
    let producer = is_idempotent.then(|| ProducerBatch {
        id: ProducerId(header.producer_id),
        epoch: ProducerEpoch(header.producer_epoch),
        first_sequence: header.base_sequence,
        last_sequence: header.last_sequence(),
        lost_sequence: None,
    });
    AppendBatch {
        partition,
        topic_name: topic.name.clone(),
        bytes: stored.bytes.clone(),
        record_count: header.record_count.unsigned_abs(),
        max_timestamp_ms: stored.max_timestamp_ms,
        timestamp_type: stored.timestamp_type,
        producer,
        transaction: None,
    }
}

/// The answer while it is filled in.
struct Answer {
    response: ProduceResponse,
    names: Vec<(TopicName, TopicId)>,
    has_errors: bool,
    /// What is left of [`RECORD_ERRORS_MAX`].
    record_errors_left: usize,
}

impl Answer {
    fn new(request: &ProduceRequest) -> Self {
        let topics = request.topic_data.iter();
        let responses = topics.clone().map(|topic| {
            TopicProduceResponse::default()
                .with_name(topic.name.clone())
                .with_topic_id(topic.topic_id)
        });
        Self {
            response: ProduceResponse::default().with_responses(responses.collect()),
            names: topics.map(|topic| (topic.name.clone(), TopicId(topic.topic_id))).collect(),
            has_errors: false,
            record_errors_left: RECORD_ERRORS_MAX,
        }
    }

    fn topic(
        &self,
        broker: &Broker,
        context: &RequestContext,
        at: usize,
    ) -> Result<Arc<KnownTopic>, ErrorCode> {
        let (name, id) = &self.names[at];
        let (found, missing) = if context.version >= TOPIC_IDS_SINCE {
            (broker.topics.by_id(*id), ErrorCode::UnknownTopicId)
        } else {
            (broker.topics.by_name(name), ErrorCode::UnknownTopicOrPartition)
        };
        let name = found.as_ref().map_or(name.as_str(), |topic| &topic.name);
        if topic_names::is_internal(name) && &*context.client_id != ADMIN_CLIENT_ID {
            return Err(ErrorCode::InvalidTopicException);
        }
        found.ok_or(missing)
    }

    fn push(&mut self, place: Place, partition: PartitionProduceResponse) {
        let partition = partition.with_index(place.1);
        self.response.responses[place.0].partition_responses.push(partition);
    }

    fn refuse(&mut self, place: Place, refused: Refused) {
        self.has_errors = true;
        let record_errors = record_errors(refused.records, self.record_errors_left);
        self.record_errors_left -= record_errors.len();
        let partition = PartitionProduceResponse::default()
            .with_error_code(refused.code.code())
            .with_base_offset(-1)
            .with_log_start_offset(refused.log_start_offset)
            .with_record_errors(record_errors)
            .with_error_message(refused.message.map(StrBytes::from_string));
        self.push(place, partition);
    }

    /// Takes the log's results in; none means that they did not come in time.
    fn take(&mut self, version: i16, accepted: &Accepted, outcome: Option<Vec<AppendResult>>) {
        let results = outcome.unwrap_or_default();
        for (at, place) in accepted.places.iter().enumerate() {
            match results.get(at) {
                None => self.refuse(*place, Refused::code(ErrorCode::RequestTimedOut)),
                Some(Ok(appended)) => {
                    let append_time_ms =
                        appended.duplicate_timestamp_ms.unwrap_or(accepted.append_times[at]);
                    let partition = PartitionProduceResponse::default()
                        .with_base_offset(appended.base_offset)
                        .with_log_append_time_ms(append_time_ms)
                        .with_log_start_offset(appended.log_start_offset);
                    self.push(*place, partition);
                }
                Some(Err(error)) => self.refuse(*place, append_refused(error, version)),
            }
        }
    }
}

fn append_refused(error: &AppendError, version: i16) -> Refused {
    match error {
        AppendError::Refused { refusal, .. } if refusal.is_of_transaction() => {
            let is_older = version < ABORTABLE_SINCE;
            match refusal_code(*refusal) {
                ErrorCode::TransactionAbortable if is_older => Refused {
                    message: Some(NOT_IN_TRANSACTION.to_owned()),
                    ..Refused::code(ErrorCode::InvalidTxnState)
                },
                code => Refused::code(code),
            }
        }
        AppendError::Refused { refusal, log_start_offset } => Refused {
            log_start_offset: log_start_offset.unwrap_or(-1),
            ..Refused::code(refusal_code(*refusal))
        },
        AppendError::Retry(reason) => {
            tracing::debug!(reason, "batch not written; the client tries again");
            Refused::code(ErrorCode::KafkaStorageError)
        }
        AppendError::Fenced => Refused::code(ErrorCode::NotLeaderOrFollower),
    }
}
