//! Makes a compacted topic, writes to a few keys of it again and again, deletes some, and reads all
//! of it from its start.

use super::{BATCH_BYTES_MAX, Context, MAY_RETRY, topic_name};
use crate::client::{Connection, Gone};
use crate::dice::{below, between_ms, chance, pick};
use crate::model::{Keyed, name_of, value_of};
use floe_wire::ErrorCode;
use floe_wire::messages::fetch_request::{FetchPartition, FetchTopic};
use floe_wire::messages::produce_request::{PartitionProduceData, TopicProduceData};
use floe_wire::messages::{BrokerId, FetchRequest, ProduceRequest};
use kfs::{BatchBuilder, NewRecord, PartitionIndex, TopicId, TopicPartition};
use std::time::Duration;

const PRODUCE_VERSION: i16 = 9;
const FETCH_VERSION: i16 = 11;
/// Keys that are written to.
const KEYS: u64 = 6;
/// Records that delete their key, per mille.
const TOMBSTONES: u64 = 200;
/// Reads of the whole log between two writes, per mille.
const READS: u64 = 150;
/// The longest that one look at the whole log takes when nothing fails.
const SWEEP_MAX: Duration = Duration::from_secs(120);
/// Answers without records in a row before a reader is stuck: for longer than memory is short.
const EMPTY_ANSWERS_MAX: u32 = 600;

/// The actor.
pub struct Keeper {
    context: Context,
    topic: &'static str,
    next_number: u64,
}

impl Keeper {
    /// One that makes this topic.
    pub fn new(context: Context, topic: &'static str) -> Self {
        Self { context, topic, next_number: 0 }
    }

    /// Writes and reads until the stop is given.
    pub async fn run(mut self) {
        let env = self.context.env.clone();
        let configs = [
            ("cleanup.policy", "compact".to_owned()),
            ("min.cleanable.dirty.ratio", pick(&env, &["0.0", "0.3"]).to_owned()),
            ("delete.retention.ms", pick(&env, &["0", "2000"]).to_owned()),
            // So that nothing stays dirty when nobody writes any more.
            ("max.compaction.lag.ms", "5000".to_owned()),
        ];
        let id = self.context.topic_with(self.topic, 1, false, &configs).await;
        let partition = TopicPartition { topic: TopicId(id), partition: PartitionIndex(0) };
        self.context.model.keeps_newest(partition);
        while !self.context.stop.is_triggered() {
            let mut connection = self.context.connect_somewhere().await;
            while !self.context.stop.is_triggered() {
                let done = if chance(&env, READS) && !connection.is_stale() {
                    self.read_all(&mut connection, partition).await.map(drop)
                } else {
                    self.write(&mut connection, partition).await
                };
                if let Err(gone) = done {
                    self.context.note(&format!("disconnected: {gone}"));
                    break;
                }
                env.sleep(between_ms(&env, 10, 700)).await;
            }
        }
    }

    /// Reads all of it when nothing fails any more, and nobody has written for a while.
    pub async fn sweep(&self, partition: TopicPartition) {
        let deadline = self.context.env.monotonic() + SWEEP_MAX;
        let mut connection = self.context.connect().await;
        loop {
            match self.read_all(&mut connection, partition).await {
                Ok(Some(read)) => return self.context.model.check_compacted(partition, &read),
                Ok(None) => {}
                Err(_) => connection = self.context.connect().await,
            }
            if self.context.env.monotonic() > deadline {
                let text = format!("stuck: {partition} cannot be read to its end");
                return self.context.model.violation(text);
            }
            self.context.env.sleep(Duration::from_millis(200)).await;
        }
    }

    async fn write(
        &mut self,
        connection: &mut Connection,
        partition: TopicPartition,
    ) -> Result<(), Gone> {
        let env = &self.context.env;
        let timestamp_ms = self.context.cluster.0.parts.env.now_ms();
        let (mut builder, mut records) = (BatchBuilder::new(), Vec::<Keyed>::new());
        for _ in 0..1 + below(env, 4) {
            let (key, name) =
                (format!("k{}", below(env, KEYS)), (self.context.id, self.next_number));
            self.next_number += 1;
            let value = (!chance(env, TOMBSTONES)).then(|| value_of(name, 50));
            let record = NewRecord {
                timestamp_ms,
                key: Some(key.as_bytes()),
                value: value.as_deref().map(str::as_bytes),
                headers: &[],
            };
            builder.push(&record).expect("a small record fits");
            records.push((key, value.map(|_| name)));
        }
        let bytes = builder.build().expect("a small batch fits");
        let data = PartitionProduceData::default().with_index(0).with_records(Some(bytes));
        let topic = TopicProduceData::default()
            .with_name(topic_name(self.topic))
            .with_partition_data(vec![data]);
        let request = ProduceRequest::default()
            .with_acks(-1)
            .with_timeout_ms(10_000)
            .with_topic_data(vec![topic]);
        let answer = self.context.call(connection, PRODUCE_VERSION, &request).await;
        let answer =
            answer.inspect_err(|_| self.context.model.may_be_written(partition, &records))?;
        let partitions = answer.responses.iter().flat_map(|topic| &topic.partition_responses);
        for written in partitions {
            let (code, base_offset) = (written.error_code, written.base_offset);
            self.context.check_code("writes keys", code, &MAY_RETRY, connection);
            if code == ErrorCode::None.code() {
                self.context.model.keyed(partition, base_offset, &records);
            } else {
                self.context.model.may_be_written(partition, &records);
            }
        }
        Ok(())
    }

    /// Reads from the start to the end as the last answer has it: what compaction takes meanwhile
    /// has a newer record before that. `None` where the broker could not say.
    async fn read_all(
        &self,
        connection: &mut Connection,
        partition: TopicPartition,
    ) -> Result<Option<Vec<(i64, Keyed)>>, Gone> {
        let newest = self.context.model.newest(partition);
        let (mut read, mut next, mut end) = (Vec::new(), 0, i64::MAX);
        let mut empty_answers = 0;
        while next < end && empty_answers < EMPTY_ANSWERS_MAX {
            let answer = self.context.call(connection, FETCH_VERSION, &self.request(next)).await?;
            let data = answer.responses.iter().flat_map(|topic| &topic.partitions).next();
            let Some(data) = data else { return Ok(None) };
            let code = data.error_code;
            self.context.check_code("reads keys", code, &MAY_RETRY, connection);
            if code != ErrorCode::None.code() || connection.is_stale() {
                return Ok(None);
            }
            end = data.high_watermark;
            let bytes = data.records.as_deref().unwrap_or_default();
            match keyed_records(bytes, next) {
                Ok((records, behind)) if behind > next || next >= end => {
                    read.extend(records);
                    next = next.max(behind);
                    empty_answers = 0;
                }
                // Memory for answers may be short: the same is asked for again.
                Ok(_) => {
                    empty_answers += 1;
                    self.context.env.sleep(Duration::from_millis(50)).await;
                }
                Err(error) => {
                    let text = format!("{partition} {next}: {error}");
                    self.context.model.violation(text);
                    return Ok(None);
                }
            }
        }
        if next < end {
            let text =
                format!("stuck: {partition} answers nothing at {next}, before its end {end}");
            self.context.model.violation(text);
        }
        self.context.model.check_keys(partition, &newest, &read);
        self.context.note(&format!("reads {} of {next} keyed", read.len()));
        Ok(Some(read))
    }

    fn request(&self, offset: i64) -> FetchRequest {
        let bytes_max = pick(&self.context.env, &[1, 500, 1 << 20]);
        let wanted = FetchPartition::default()
            .with_partition(0)
            .with_fetch_offset(offset)
            .with_partition_max_bytes(bytes_max);
        let topic =
            FetchTopic::default().with_topic(topic_name(self.topic)).with_partitions(vec![wanted]);
        FetchRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_max_wait_ms(100)
            .with_min_bytes(1)
            .with_max_bytes(1 << 20)
            .with_isolation_level(1)
            .with_session_epoch(-1)
            .with_topics(vec![topic])
    }
}

/// The records of a run of batches from an offset on, and the offset behind the last batch.
fn keyed_records(bytes: &[u8], from: i64) -> Result<(Vec<(i64, Keyed)>, i64), String> {
    let (mut found, mut behind) = (Vec::new(), from);
    for batch in kfs::batches(bytes) {
        let batch = batch.map_err(|error| error.to_string())?;
        batch.verify_crc().map_err(|error| error.to_string())?;
        behind = batch.header.last_offset() + 1;
        let records = batch.records(BATCH_BYTES_MAX).map_err(|error| error.to_string())?;
        for record in records.iter() {
            let record = record.map_err(|error| error.to_string())?;
            let offset = batch.header.base_offset + i64::from(record.offset_delta);
            let key = String::from_utf8_lossy(record.key.unwrap_or_default()).into_owned();
            let name = record.value.map(|value| {
                name_of(value).ok_or_else(|| format!("offset {offset}: nobody sent this value"))
            });
            if offset >= from {
                found.push((offset, (key, name.transpose()?)));
            }
        }
    }
    Ok((found, behind))
}
