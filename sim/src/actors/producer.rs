//! A producer of one partition, idempotent or plain: up to five requests in flight, and everything
//! without an answer, or with an error, sent again in order with the same sequences.

use super::{Context, MAY_RETRY, PATIENCE, topic_name};
use crate::client::{Connection, Gone};
use crate::dice::{below, between_ms, chance, pick};
use crate::model::value_of;
use bytes::Bytes;
use floe_wire::ErrorCode;
use floe_wire::messages::produce_request::{PartitionProduceData, TopicProduceData};
use floe_wire::messages::{InitProducerIdRequest, ProduceRequest, ProduceResponse};
use kfs::{BatchBuilder, Codec, NewRecord, ProducerEpoch, ProducerId, TopicPartition};
use std::collections::VecDeque;

/// Requests in flight at most: so many batches of a producer a partition remembers.
const IN_FLIGHT_MAX: usize = 5;
/// The first version that names topics by id.
const TOPIC_IDS_SINCE: i16 = 13;
const INIT_PRODUCER_ID_VERSION: i16 = 4;
/// The timestamp of every producer's first record, ms. Before any broker's clock.
const FIRST_TIMESTAMP_MS: i64 = 1_700_000_000_000;

/// A batch that is not acknowledged yet.
struct Batch {
    first: u64,
    count: u64,
    bytes: Bytes,
    is_acknowledged: bool,
}

/// A producer.
pub struct Producer {
    context: Context,
    topic: String,
    partition: TopicPartition,
    version: i16,
    is_idempotent: bool,
    producer_id: Option<i64>,
    next_number: u64,
    waiting: VecDeque<Batch>,
}

impl Producer {
    /// A producer that has sent nothing yet.
    pub fn new(
        context: Context,
        topic: &str,
        partition: TopicPartition,
        is_idempotent: bool,
    ) -> Self {
        context.model.producer(context.id, partition, is_idempotent);
        let version = pick(&context.env, &[3, 7, 9, 12, 13]);
        Self {
            context,
            topic: topic.to_owned(),
            partition,
            version,
            is_idempotent,
            producer_id: None,
            next_number: 0,
            waiting: VecDeque::new(),
        }
    }

    /// Produces until the stop is given, and then until everything is acknowledged.
    pub async fn run(mut self) {
        let env = self.context.env.clone();
        while !(self.is_stopping() && self.waiting.iter().all(|batch| batch.is_acknowledged)) {
            let mut connection = self.context.connect_somewhere().await;
            if let Err(gone) = self.serve(&mut connection).await {
                self.context.note(&format!("disconnected: {gone}"));
            }
            drop(connection);
            env.sleep(between_ms(&env, 10, 400)).await;
        }
    }

    fn is_stopping(&self) -> bool {
        self.context.stop.is_triggered()
    }

    /// Works on one connection until it breaks or nothing is left to do.
    async fn serve(&mut self, connection: &mut Connection) -> Result<(), Gone> {
        let env = self.context.env.clone();
        if self.is_idempotent && self.producer_id.is_none() {
            self.producer_id = self.init(connection).await?;
            if self.producer_id.is_none() {
                return Err(Gone("no producer id yet".to_owned()));
            }
        }
        loop {
            let depth = 1 + below(&env, IN_FLIGHT_MAX as u64) as usize;
            while self.waiting.len() < depth && !self.is_stopping() {
                let batch = self.next_batch();
                self.waiting.push_back(batch);
            }
            if self.waiting.is_empty() {
                return Ok(());
            }
            self.round(connection).await?;
            env.sleep(between_ms(&env, 10, 1200)).await;
        }
    }

    /// Sends everything that waits, in order, and takes all answers.
    async fn round(&mut self, connection: &mut Connection) -> Result<(), Gone> {
        let env = self.context.env.clone();
        self.forget_acknowledged();
        let open = |batch: &&Batch| !batch.is_acknowledged;
        for batch in self.waiting.iter().filter(open) {
            self.context.model.sends(self.context.id, batch.first, batch.count);
            let request = self.request(batch.bytes.clone());
            connection.send(self.version, &request).await?;
            if chance(&env, 8) {
                return Err(Gone("hung up in the middle of sending".to_owned()));
            }
        }
        let mut has_failed = false;
        for at in 0..self.waiting.len() {
            if self.waiting[at].is_acknowledged {
                continue;
            }
            if chance(&env, 8) {
                return Err(Gone("hung up with answers on their way".to_owned()));
            }
            let answer = connection.receive::<ProduceRequest>(self.version);
            let answer = env.timeout(PATIENCE, answer).await;
            let answer = answer.unwrap_or_else(|| Err(Gone("no answer in time".to_owned())))?;
            let is_acknowledged = self.take(at, &answer, has_failed, connection);
            self.waiting[at].is_acknowledged = is_acknowledged;
            has_failed |= !is_acknowledged;
        }
        self.forget_acknowledged();
        Ok(())
    }

    /// What is acknowledged stays while an older batch is not: no batch may get more than five
    /// ahead of one that may have to be sent again, or its duplicate could not be told.
    fn forget_acknowledged(&mut self) {
        while self.waiting.front().is_some_and(|batch| batch.is_acknowledged) {
            self.waiting.pop_front();
        }
    }

    /// Takes the answer to the batch at this place in; true if it is acknowledged.
    fn take(
        &self,
        at: usize,
        answer: &ProduceResponse,
        has_failed: bool,
        connection: &Connection,
    ) -> bool {
        let Context { model, id, .. } = &self.context;
        let Batch { first, count, .. } = self.waiting[at];
        let partitions = answer.responses.iter().flat_map(|topic| &topic.partition_responses);
        let Some(partition) = partitions.into_iter().next() else {
            model.violation(format!("producer {id}: an answer without a partition"));
            return false;
        };
        let (code, base_offset) = (partition.error_code, partition.base_offset);
        self.context.note(&format!("{first}+{count}: code {code} offset {base_offset}"));
        if code == ErrorCode::None.code() {
            model.acknowledged(*id, first, count, base_offset);
            return true;
        }
        let is_behind_failure =
            self.is_idempotent && has_failed && code == ErrorCode::OutOfOrderSequenceNumber.code();
        if !is_behind_failure {
            let doing = format_args!("{first}+{count} is refused");
            self.context.check_code(doing, code, &MAY_RETRY, connection);
        }
        false
    }

    fn next_batch(&mut self) -> Batch {
        let env = &self.context.env;
        let (first, count) = (self.next_number, 1 + below(env, 4));
        self.next_number += count;
        let codec = pick(env, &[Codec::None, Codec::None, Codec::Lz4, Codec::Gzip]);
        let mut builder = BatchBuilder::new().codec(codec, None);
        if let Some(id) = self.producer_id {
            let sequence = i32::try_from(first).expect("a run has few records");
            builder = builder.producer(ProducerId(id), ProducerEpoch(0), sequence);
        }
        let padding = if chance(env, 20) { 20_000 } else { below(env, 200) as usize };
        for number in first..first + count {
            let value = value_of((self.context.id, number), padding);
            let record = NewRecord {
                timestamp_ms: FIRST_TIMESTAMP_MS + number as i64,
                key: None,
                value: Some(value.as_bytes()),
                headers: &[],
            };
            builder.push(&record).expect("a small record fits");
        }
        let bytes = builder.build().expect("a small batch fits");
        Batch { first, count, bytes, is_acknowledged: false }
    }

    fn request(&self, records: Bytes) -> ProduceRequest {
        let env = &self.context.env;
        let data = PartitionProduceData::default()
            .with_index(self.partition.partition.0)
            .with_records(Some(records));
        let topic = TopicProduceData::default().with_partition_data(vec![data]);
        let topic = if self.version >= TOPIC_IDS_SINCE {
            topic.with_topic_id(self.partition.topic.0)
        } else {
            topic.with_name(topic_name(&self.topic))
        };
        ProduceRequest::default()
            .with_acks(pick(env, &[-1, 1]))
            .with_timeout_ms(pick(env, &[500, 5000, 15_000]))
            .with_topic_data(vec![topic])
    }

    async fn init(&self, connection: &mut Connection) -> Result<Option<i64>, Gone> {
        let request = InitProducerIdRequest::default()
            .with_transactional_id(None)
            .with_transaction_timeout_ms(60_000);
        let answer = self.context.call(connection, INIT_PRODUCER_ID_VERSION, &request).await?;
        let (id, code) = (answer.producer_id.0, answer.error_code);
        self.context.note(&format!("producer id {id} code {code}"));
        let allowed = [ErrorCode::RequestTimedOut, ErrorCode::CoordinatorNotAvailable];
        self.context.check_code("asks for a producer id", code, &allowed, connection);
        Ok((code == 0).then_some(id))
    }
}
