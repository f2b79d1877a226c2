//! Makes a topic, writes and reads it, deletes it, and makes it again: nothing of a topic that is
//! gone may be taken or be found in the next one of its name.

use super::{Context, MAY_RETRY, NO_TOPIC, PATIENCE, records_of};
use crate::client::{Connection, Gone};
use crate::dice::{below, between_ms, chance};
use crate::model::value_of;
use bytes::Bytes;
use floe_wire::ErrorCode;
use floe_wire::messages::delete_topics_request::DeleteTopicState;
use floe_wire::messages::fetch_request::{FetchPartition, FetchTopic};
use floe_wire::messages::produce_request::{PartitionProduceData, TopicProduceData};
use floe_wire::messages::{BrokerId, DeleteTopicsRequest, FetchRequest, ProduceRequest};
use kfs::{BatchBuilder, NewRecord};
use uuid::Uuid;

const TOPIC: &str = "churn";
const PRODUCE_VERSION: i16 = 13;
const FETCH_VERSION: i16 = 13;
const DELETE_VERSION: i16 = 6;
/// Answers without records, one after the other, from an offset that has one.
const EMPTY_ANSWERS_MAX: u32 = 20;

/// What has become of a topic's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    At(i64),
    Unknown,
    TopicIsGone,
}

/// The actor.
pub struct Churn {
    context: Context,
    next_number: u64,
}

impl Churn {
    /// One that has made nothing yet.
    pub fn new(context: Context) -> Self {
        Self { context, next_number: 0 }
    }

    /// Makes and deletes until the stop is given.
    pub async fn run(mut self) {
        let env = self.context.env.clone();
        let mut last_id = None;
        while !self.context.stop.is_triggered() {
            let id = self.context.topic(TOPIC, 1, chance(&env, 200)).await;
            self.context.note(&format!("topic {id}"));
            if last_id == Some(id) {
                self.violation(format!("topic {id} is back after its deletion"));
            }
            let mut acknowledged = Vec::new();
            for _ in 0..below(&env, 6) {
                let mut connection = self.context.connect().await;
                let name = (self.context.id, self.next_number);
                self.next_number += 1;
                match self.write(&mut connection, id, name).await {
                    Ok(Written::At(offset)) => acknowledged.push((offset, name)),
                    Ok(Written::TopicIsGone) => {
                        self.violation(format!("topic {id} does not take a record"));
                    }
                    Ok(Written::Unknown) | Err(_) => {}
                }
                env.sleep(between_ms(&env, 0, 1500)).await;
            }
            self.read_back(id, &acknowledged).await;
            self.delete(id).await;
            self.write_to_deleted(id).await;
            last_id = Some(id);
            env.sleep(between_ms(&env, 0, 3000)).await;
        }
    }

    fn violation(&self, text: String) {
        self.context.note(&text);
        self.context.model.violation(text);
    }

    async fn write(
        &self,
        connection: &mut Connection,
        id: Uuid,
        name: (u32, u64),
    ) -> Result<Written, Gone> {
        let mut builder = BatchBuilder::new();
        let value = value_of(name, 10);
        let (timestamp_ms, headers) = (0, &[][..]);
        let record = NewRecord { timestamp_ms, key: None, value: Some(value.as_bytes()), headers };
        builder.push(&record).expect("a small record fits");
        let bytes: Bytes = builder.build().expect("a small batch fits");
        let data = PartitionProduceData::default().with_index(0).with_records(Some(bytes));
        let topic = TopicProduceData::default().with_topic_id(id).with_partition_data(vec![data]);
        let request = ProduceRequest::default()
            .with_acks(-1)
            .with_timeout_ms(10_000)
            .with_topic_data(vec![topic]);
        let answer = self.context.call(connection, PRODUCE_VERSION, &request).await?;
        let partitions = answer.responses.iter().flat_map(|topic| &topic.partition_responses);
        let Some(partition) = partitions.into_iter().next() else { return Ok(Written::Unknown) };
        let (code, offset) = (partition.error_code, partition.base_offset);
        self.context.note(&format!("writes {name:?} to {id}: code {code} offset {offset}"));
        if is_gone(code) {
            return Ok(Written::TopicIsGone);
        }
        self.context.check_code(format_args!("writes to {id}"), code, &MAY_RETRY, connection);
        let is_written = code == ErrorCode::None.code();
        Ok(if is_written { Written::At(offset) } else { Written::Unknown })
    }

    /// Reads from the beginning until every acknowledged record was there.
    async fn read_back(&self, id: Uuid, acknowledged: &[(i64, (u32, u64))]) {
        let env = &self.context.env;
        let mut left = acknowledged.to_vec();
        let mut connection = self.context.connect().await;
        let mut empty_answers = 0;
        while let Some((offset, name)) = left.first().copied() {
            if self.context.stop.is_triggered() {
                return;
            }
            let records = self.fetch(&mut connection, id, offset).await;
            match records {
                Ok(Some(records)) => match records.first() {
                    Some(first) if *first == (offset, name) => {
                        left.remove(0);
                        empty_answers = 0;
                        self.context.model.count(|counts| counts.read_back += 1);
                    }
                    // A broker that is short of memory, or shuts down, answers without records.
                    None if empty_answers < EMPTY_ANSWERS_MAX => {
                        empty_answers += 1;
                        env.sleep(between_ms(env, 50, 500)).await;
                    }
                    found => {
                        self.violation(format!("{id} {offset}: {name:?} is {found:?}"));
                        return;
                    }
                },
                Ok(None) => env.sleep(between_ms(env, 50, 500)).await,
                Err(_) => {
                    env.sleep(between_ms(env, 50, 500)).await;
                    connection = self.context.connect().await;
                }
            }
        }
    }

    async fn fetch(
        &self,
        connection: &mut Connection,
        id: Uuid,
        offset: i64,
    ) -> Result<Option<Vec<(i64, (u32, u64))>>, Gone> {
        let partition = FetchPartition::default()
            .with_partition(0)
            .with_fetch_offset(offset)
            .with_partition_max_bytes(1 << 20);
        let topic = FetchTopic::default().with_topic_id(id).with_partitions(vec![partition]);
        let request = FetchRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_max_wait_ms(0)
            .with_max_bytes(1 << 20)
            .with_session_epoch(-1)
            .with_topics(vec![topic]);
        let answer = connection.call(FETCH_VERSION, &request);
        let answer = self.context.env.timeout(PATIENCE, answer).await;
        let answer = answer.unwrap_or_else(|| Err(Gone("no answer in time".to_owned())))?;
        let data = answer.responses.iter().flat_map(|topic| &topic.partitions).next();
        let Some(data) = data else {
            self.violation(format!("fetch {id} {offset}: an answer without a partition"));
            return Ok(None);
        };
        if data.error_code != ErrorCode::None.code() {
            let (code, doing) = (data.error_code, format!("fetch {id} {offset}"));
            self.context.note(&format!("{doing}: code {code}"));
            self.context.check_code(doing, code, &MAY_RETRY, connection);
            return Ok(None);
        }
        let bytes = data.records.as_deref().unwrap_or_default();
        self.context.note(&format!("fetch {id} {offset}: {} bytes", bytes.len()));
        match records_of(bytes, offset) {
            Ok(records) => Ok(Some(records)),
            Err(error) => {
                self.violation(format!("{id} {offset}: {error}"));
                Ok(None)
            }
        }
    }

    /// Deletes the topic by its id until the broker says that there is none.
    async fn delete(&self, id: Uuid) {
        let env = &self.context.env;
        let allowed = [&MAY_RETRY[..], &NO_TOPIC[..]].concat();
        loop {
            let mut connection = self.context.connect().await;
            let topic = DeleteTopicState::default().with_name(None).with_topic_id(id);
            let request =
                DeleteTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(10_000);
            let answer = self.context.call(&mut connection, DELETE_VERSION, &request).await;
            let code = answer.ok().and_then(|answer| Some(answer.responses.first()?.error_code));
            self.context.note(&format!("deletes {id}: code {code:?}"));
            if let Some(code) = code {
                let doing = format_args!("deletes {id}");
                self.context.check_code(doing, code, &allowed, &connection);
            }
            let is_deleted = |code: i16| code == ErrorCode::None.code() || is_gone(code);
            // What a broker deletes that has been replaced, the other one learns later.
            if code.is_some_and(is_deleted) && !connection.is_stale() {
                return;
            }
            env.sleep(between_ms(env, 50, 800)).await;
        }
    }

    /// A record for a topic that is gone must not be taken.
    async fn write_to_deleted(&self, id: Uuid) {
        let mut connection = self.context.connect().await;
        let name = (self.context.id, u64::MAX);
        if let Ok(Written::At(offset)) = self.write(&mut connection, id, name).await {
            self.violation(format!("{id} is deleted and took a record at {offset}"));
        }
        if let Ok(Some(found)) = self.context.topic_id(&mut connection, TOPIC).await
            && found == id
            && !connection.is_stale()
        {
            self.violation(format!("{id} is deleted and still told of"));
        }
    }
}

/// True for the codes of a topic that is not there.
fn is_gone(code: i16) -> bool {
    NO_TOPIC.iter().any(|gone| gone.code() == code)
}
