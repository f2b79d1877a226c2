//! Makes a topic of which retention takes records, and writes to it, mostly with the time of day,
//! at times with an earlier or a later one.

use super::{Context, MAY_RETRY, topic_name};
use crate::client::{Connection, Gone};
use crate::dice::{below, between_ms, pick};
use crate::model::{Keep, value_of};
use floe_wire::ErrorCode;
use floe_wire::messages::ProduceRequest;
use floe_wire::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kfs::{BatchBuilder, NewRecord, PartitionIndex, TopicId, TopicPartition};

const PRODUCE_VERSION: i16 = 9;
/// How far a record's time is from the time of day, ms.
const TIMES_MS: [i64; 5] = [-6000, -500, 0, 0, 3000];

/// The actor.
pub struct Ager {
    context: Context,
    topic: &'static str,
    keep: Keep,
    has_table: bool,
    next_number: u64,
}

impl Ager {
    /// One whose topic keeps this, and has a table or not.
    pub fn new(context: Context, topic: &'static str, keep: Keep, has_table: bool) -> Self {
        Self { context, topic, keep, has_table, next_number: 0 }
    }

    /// Writes until the stop is given.
    pub async fn run(mut self) {
        let kept = match self.keep {
            Keep::Time(ms) => ("retention.ms", ms.to_string()),
            Keep::Size(bytes) => ("retention.bytes", bytes.to_string()),
        };
        // Brokers' clocks jump, and timestamps are not theirs.
        let any_time = ("message.timestamp.after.max.ms", i64::MAX.to_string());
        let id = self.context.topic_with(self.topic, 1, self.has_table, &[kept, any_time]).await;
        let partition = TopicPartition { topic: TopicId(id), partition: PartitionIndex(0) };
        self.context.model.ages(partition, self.keep, self.has_table);
        let env = self.context.env.clone();
        while !self.context.stop.is_triggered() {
            let mut connection = self.context.connect_somewhere().await;
            while !self.context.stop.is_triggered() {
                if let Err(gone) = self.write(&mut connection, partition).await {
                    self.context.note(&format!("disconnected: {gone}"));
                    break;
                }
                env.sleep(between_ms(&env, 10, 900)).await;
            }
        }
    }

    async fn write(
        &mut self,
        connection: &mut Connection,
        partition: TopicPartition,
    ) -> Result<(), Gone> {
        let env = &self.context.env;
        let now_ms = self.context.cluster.0.parts.env.now_ms();
        let (mut builder, mut times) = (BatchBuilder::new(), Vec::new());
        for _ in 0..1 + below(env, 4) {
            let value = value_of((self.context.id, self.next_number), 100);
            self.next_number += 1;
            let timestamp_ms = now_ms + pick(env, &TIMES_MS);
            times.push(timestamp_ms);
            let value = Some(value.as_bytes());
            let record = NewRecord { timestamp_ms, key: None, value, headers: &[] };
            builder.push(&record).expect("a small record fits");
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
        let answer = self.context.call(connection, PRODUCE_VERSION, &request).await?;
        let partitions = answer.responses.iter().flat_map(|topic| &topic.partition_responses);
        for written in partitions {
            let (code, base_offset) = (written.error_code, written.base_offset);
            self.context.check_code("writes what ages", code, &MAY_RETRY, connection);
            if code == ErrorCode::None.code() {
                self.context.model.dated(partition, base_offset, &times);
            }
        }
        Ok(())
    }
}
