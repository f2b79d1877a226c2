//! A transactional producer over several partitions, in either protocol, and the check of what a
//! reader of committed records sees of it: of each transaction all records or none, of one whose
//! commit was acknowledged all, of one whose abort was acknowledged none; and the same of the
//! offsets of a group that some commit.
//!
//! It does what clients do. Where a record's fate is not known it aborts, or lets the next
//! InitProducerId do so; where that of a commit is not known it asks again, or leaves it open what
//! became of it. Batches that it has given up may still arrive.

mod offsets;
mod reading;

use super::{Context, topic_name};
use crate::client::{Connection, Gone};
use crate::dice::{between_ms, chance};
use bytes::Bytes;
use floe_wire::ErrorCode;
use floe_wire::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use floe_wire::messages::produce_request::{PartitionProduceData, TopicProduceData};
use floe_wire::messages::{
    AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest, ProduceRequest, ProducerId,
    StrBytes, TransactionalId,
};
use kfs::{BatchBuilder, NewRecord};
use reading::Followed;
use std::collections::{BTreeMap, BTreeSet};

const INIT_VERSION: i16 = 4;
const ADD_VERSION: i16 = 3;
/// Its transactions time out after so long, ms: some do, in a storm.
const TIMEOUT_MS: i32 = 15_000;
/// Producers that go on with what they have when they initialise again, per mille.
const GOES_ON: u64 = 500;
/// Transactions with an offset of a group, per mille.
const HAS_OFFSET: u64 = 500;
/// How often a repeated EndTxn is asked again.
const REPEATS_MAX: usize = 5;

/// What its client was told of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Committed,
    Aborted,
    /// It may have been committed.
    Unknown,
}

/// A transaction that is over for its client.
struct Told {
    fate: Fate,
    /// Partitions whose record was acknowledged.
    partitions: BTreeSet<i32>,
    /// An offset of a group goes with it.
    has_offset: bool,
}

/// The producer.
pub struct Transactor {
    context: Context,
    topic: String,
    partitions: i32,
    /// KIP-890's second part, or the protocol before.
    raises_epoch: bool,
    /// Producer id and epoch; none until it is initialised again.
    sender: Option<(i64, i16)>,
    /// The one before, which it may go on with.
    last_sender: Option<(i64, i16)>,
    sequences: BTreeMap<i32, i32>,
    told: Vec<Told>,
    followed: BTreeMap<i32, Followed>,
}

impl Transactor {
    /// A producer that has sent nothing yet. The topic is its own.
    pub fn new(context: Context, topic: &str, partitions: i32) -> Self {
        let raises_epoch = chance(&context.env, 500);
        Self {
            context,
            topic: topic.to_owned(),
            partitions,
            raises_epoch,
            sender: None,
            last_sender: None,
            sequences: BTreeMap::new(),
            told: Vec::new(),
            followed: BTreeMap::new(),
        }
    }

    /// Makes transactions until the stop is given, and then reads everything.
    pub async fn run(mut self) {
        let env = self.context.env.clone();
        self.context.topic(&self.topic, self.partitions, false).await;
        while !self.context.stop.is_triggered() {
            let mut connection = self.context.connect_somewhere().await;
            if let Err(gone) = self.serve(&mut connection).await {
                self.context.note(&format!("disconnected: {gone}"));
            }
            env.sleep(between_ms(&env, 10, 400)).await;
        }
        // What is still open must end before all can be read.
        self.sender = None;
        loop {
            let mut connection = self.context.connect().await;
            if self.sender.is_none() && self.init(&mut connection).await.is_err() {
                env.sleep(between_ms(&env, 10, 400)).await;
                continue;
            }
            match self.check_at_end(&mut connection).await {
                Ok(()) if !connection.is_stale() => return,
                Ok(()) => {}
                Err(gone) => self.context.note(&format!("disconnected: {gone}")),
            }
            env.sleep(between_ms(&env, 10, 400)).await;
        }
    }

    async fn serve(&mut self, connection: &mut Connection) -> Result<(), Gone> {
        let env = self.context.env.clone();
        while !self.context.stop.is_triggered() {
            if self.sender.is_none() {
                self.init(connection).await?;
            }
            self.transaction(connection).await?;
            if chance(&env, 200) && !connection.is_stale() {
                self.check(connection, false).await?;
            }
            env.sleep(between_ms(&env, 10, 800)).await;
        }
        Ok(())
    }

    /// One transaction; an error leaves the producer to be initialised again.
    async fn transaction(&mut self, connection: &mut Connection) -> Result<(), Gone> {
        let number = self.told.len();
        // Until more is known: an abort of what was never committed cannot be mistaken.
        let (fate, partitions) = (Fate::Aborted, BTreeSet::new());
        self.told.push(Told { fate, partitions, has_offset: false });
        let env = self.context.env.clone();
        let result = self.write_all(connection, number).await;
        let is_whole = matches!(result, Ok(true));
        if let Err(gone) = result {
            self.sender = None;
            return Err(gone);
        }
        let commit = is_whole && chance(&env, 700);
        if commit {
            self.told[number].fate = Fate::Unknown;
        }
        let ended = self.end(connection, commit).await;
        match &ended {
            Ok(true) if commit => self.told[number].fate = Fate::Committed,
            Ok(true) => {}
            Ok(false) | Err(_) => self.sender = None,
        }
        if !is_whole {
            self.sender = None;
        }
        self.context.note(&format!("transaction {number}: {:?}", self.told[number].fate));
        ended.map(|_| ())
    }

    /// Writes a record into some partitions; true if all are acknowledged.
    async fn write_all(
        &mut self,
        connection: &mut Connection,
        number: usize,
    ) -> Result<bool, Gone> {
        let env = self.context.env.clone();
        let some: Vec<i32> = (0..self.partitions).filter(|_| chance(&env, 700)).collect();
        if !self.raises_epoch && !some.is_empty() && !self.add(connection, &some).await? {
            return Ok(false);
        }
        for partition in some {
            if !self.write(connection, number, partition).await? {
                return Ok(false);
            }
            self.told[number].partitions.insert(partition);
            if chance(&env, 8) {
                return Err(Gone("hung up within a transaction".to_owned()));
            }
        }
        if chance(&env, HAS_OFFSET) {
            return self.commit_offset(connection, number).await;
        }
        Ok(true)
    }

    fn id(&self) -> TransactionalId {
        TransactionalId(StrBytes::from_string(format!("transactor-{}", self.context.id)))
    }

    fn sender(&self) -> Result<(i64, i16), Gone> {
        self.sender.ok_or_else(|| Gone("no producer id".to_owned()))
    }

    /// InitProducerId until it is answered with an id.
    async fn init(&mut self, connection: &mut Connection) -> Result<(), Gone> {
        let env = self.context.env.clone();
        // After an error it may go on with what it has (KIP-360), as long as that is its own.
        let mut expected = self.last_sender.filter(|_| chance(&env, GOES_ON));
        loop {
            let (producer_id, epoch) = expected.unwrap_or((-1, -1));
            let request = InitProducerIdRequest::default()
                .with_transactional_id(Some(self.id()))
                .with_transaction_timeout_ms(TIMEOUT_MS)
                .with_producer_id(ProducerId(producer_id))
                .with_producer_epoch(epoch);
            let answer = self.context.call(connection, INIT_VERSION, &request).await?;
            if answer.error_code == 0 {
                self.sender = Some((answer.producer_id.0, answer.producer_epoch));
                self.last_sender = self.sender;
                self.sequences.clear();
                return Ok(());
            }
            self.expected("InitProducerId", answer.error_code);
            if answer.error_code == ErrorCode::ProducerFenced.code() && expected.is_some() {
                expected = None;
                continue;
            }
            if answer.error_code != ErrorCode::ConcurrentTransactions.code() {
                return Err(Gone(format!("InitProducerId: code {}", answer.error_code)));
            }
            env.sleep(between_ms(&env, 1, 100)).await;
        }
    }

    async fn add(&self, connection: &mut Connection, some: &[i32]) -> Result<bool, Gone> {
        let (producer_id, epoch) = self.sender()?;
        let topic = AddPartitionsToTxnTopic::default()
            .with_name(topic_name(&self.topic))
            .with_partitions(some.to_vec());
        let request = AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(self.id())
            .with_v3_and_below_producer_id(ProducerId(producer_id))
            .with_v3_and_below_producer_epoch(epoch)
            .with_v3_and_below_topics(vec![topic]);
        let answer = self.context.call(connection, ADD_VERSION, &request).await?;
        let results = answer.results_by_topic_v3_and_below.iter();
        let mut codes = results.flat_map(|topic| &topic.results_by_partition);
        Ok(codes.all(|result| result.partition_error_code == 0))
    }

    async fn write(
        &mut self,
        connection: &mut Connection,
        number: usize,
        partition: i32,
    ) -> Result<bool, Gone> {
        let version = if self.raises_epoch { 12 } else { 11 };
        let request = self.produce(self.batch(number, partition)?, partition);
        *self.sequences.entry(partition).or_default() += 1;
        let env = &self.context.env;
        if chance(env, 10) {
            // The client gives up, and the batch comes when it comes.
            connection.send(version, &request).await?;
            return Err(Gone("hung up in the middle of sending".to_owned()));
        }
        let answer = self.context.call(connection, version, &request).await?;
        let partitions = answer.responses.iter().flat_map(|topic| &topic.partition_responses);
        let code = partitions.map(|partition| partition.error_code).next().unwrap_or(-1);
        self.expected("Produce", code);
        Ok(code == 0)
    }

    fn batch(&self, number: usize, partition: i32) -> Result<Bytes, Gone> {
        let (producer_id, epoch) = self.sender()?;
        let sequence = self.sequences.get(&partition).copied().unwrap_or_default();
        let (id, epoch) = (kfs::ProducerId(producer_id), kfs::ProducerEpoch(epoch));
        let mut builder = BatchBuilder::new().producer(id, epoch, sequence).transactional();
        let value = number.to_string();
        let value = Some(value.as_bytes());
        let record = NewRecord { timestamp_ms: 1_700_000_000_000, key: None, value, headers: &[] };
        builder.push(&record).expect("a small record fits");
        Ok(builder.build().expect("a small batch fits"))
    }

    fn produce(&self, records: Bytes, partition: i32) -> ProduceRequest {
        let data =
            PartitionProduceData::default().with_index(partition).with_records(Some(records));
        let topic = TopicProduceData::default()
            .with_name(topic_name(&self.topic))
            .with_partition_data(vec![data]);
        ProduceRequest::default()
            .with_transactional_id(Some(self.id()))
            .with_acks(-1)
            .with_timeout_ms(2_000)
            .with_topic_data(vec![topic])
    }

    /// EndTxn; true if it was made. At times it is asked again on another connection.
    async fn end(&mut self, connection: &mut Connection, commit: bool) -> Result<bool, Gone> {
        let env = self.context.env.clone();
        match self.try_end(connection, commit).await {
            Err(gone) if chance(&env, 500) => {
                for _ in 0..REPEATS_MAX {
                    let mut other = self.context.connect().await;
                    if let Ok(made) = self.try_end(&mut other, commit).await {
                        return if made { Ok(true) } else { Err(gone) };
                    }
                }
                Err(gone)
            }
            ended => ended,
        }
    }

    async fn try_end(&mut self, connection: &mut Connection, commit: bool) -> Result<bool, Gone> {
        let (producer_id, epoch) = self.sender()?;
        let request = EndTxnRequest::default()
            .with_transactional_id(self.id())
            .with_producer_id(ProducerId(producer_id))
            .with_producer_epoch(epoch)
            .with_committed(commit);
        let version = if self.raises_epoch { 5 } else { 4 };
        let answer = self.context.call(connection, version, &request).await?;
        let is_made = answer.error_code == 0;
        if is_made && self.raises_epoch {
            self.sender = Some((answer.producer_id.0, answer.producer_epoch));
            self.last_sender = self.sender;
            self.sequences.clear();
        }
        // Nothing was written: there is nothing to end before KIP-890.
        let is_nothing = |told: &Told| told.partitions.is_empty() && !told.has_offset;
        let is_empty = self.told.last().is_some_and(is_nothing);
        if !is_empty {
            self.expected("EndTxn", answer.error_code);
        }
        Ok(is_made)
    }

    fn expected(&self, what: &str, code: i16) {
        if code == ErrorCode::UnknownServerError.code() {
            self.context.model.violation(format!("transactor: {what} fails inside"));
        }
    }

    /// The last checks: by a reader that has followed, and by one that begins.
    async fn check_at_end(&mut self, connection: &mut Connection) -> Result<(), Gone> {
        self.check(connection, true).await?;
        self.followed.clear();
        self.check(connection, true).await
    }

    /// Reads all partitions as a client of committed records and compares. With `is_last` nothing
    /// is open any more, and every acknowledged commit is there whole.
    async fn check(&mut self, connection: &mut Connection, is_last: bool) -> Result<(), Gone> {
        let Some(mut seen) = self.look(connection).await? else { return Ok(()) };
        if is_last {
            self.check_offset(connection, &seen).await?;
        }
        for (number, told) in self.told.iter().enumerate() {
            let found = seen.remove(&number).unwrap_or_default();
            let wanted: Vec<i32> = told.partitions.iter().copied().collect();
            let is_right = match told.fate {
                Fate::Committed => found == wanted,
                Fate::Aborted => found.is_empty(),
                // While it may still be ended it is read partition by partition.
                Fate::Unknown => !is_last || found.is_empty() || found == wanted,
            };
            if !is_right {
                let fate = told.fate;
                self.context.model.violation(format!(
                    "transaction {number}: {fate:?} in {wanted:?}, and seen in {found:?}"
                ));
            }
        }
        Ok(())
    }
}
