//! Deletes records from the beginning of partitions, little by little and at times all.

use super::{Context, topic_name};
use crate::dice::{below, between_ms, chance, pick};
use floe_wire::ErrorCode;
use floe_wire::messages::DeleteRecordsRequest;
use floe_wire::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use kfs::TopicPartition;

const DELETE_RECORDS_VERSION: i16 = 2;
/// DeleteRecords: everything.
const HIGH_WATERMARK: i64 = -1;
/// Requests for everything, per mille.
const EVERYTHING: u64 = 40;

/// The actor.
pub struct Deleter {
    context: Context,
    topic: String,
    partitions: Vec<TopicPartition>,
}

impl Deleter {
    /// One that deletes from these partitions of one topic.
    pub fn new(context: Context, topic: &str, partitions: &[TopicPartition]) -> Self {
        Self { context, topic: topic.to_owned(), partitions: partitions.to_vec() }
    }

    /// Deletes until the stop is given.
    pub async fn run(self) {
        let env = self.context.env.clone();
        while !self.context.stop.is_triggered() {
            env.sleep(between_ms(&env, 300, 3500)).await;
            self.delete().await;
        }
    }

    async fn delete(&self) {
        let Context { env, model, .. } = &self.context;
        let partition = pick(env, &self.partitions);
        let bounds = model.bounds(partition);
        let room = (bounds.end - bounds.log_start).max(0).unsigned_abs();
        let some = bounds.log_start + below(env, room / 4 + 1) as i64;
        let asked = if chance(env, EVERYTHING) { None } else { Some(some) };
        model.deletes(partition, asked);
        let asked_partition = DeleteRecordsPartition::default()
            .with_partition_index(partition.partition.0)
            .with_offset(asked.unwrap_or(HIGH_WATERMARK));
        let topic = DeleteRecordsTopic::default()
            .with_name(topic_name(&self.topic))
            .with_partitions(vec![asked_partition]);
        let request =
            DeleteRecordsRequest::default().with_topics(vec![topic]).with_timeout_ms(10_000);
        let mut connection = self.context.connect_somewhere().await;
        let answer = self.context.call(&mut connection, DELETE_RECORDS_VERSION, &request).await;
        let answer = match answer {
            Ok(answer) => answer,
            Err(gone) => return self.context.note(&format!("deletes {partition}: {gone}")),
        };
        for found in answer.topics.iter().flat_map(|topic| &topic.partitions) {
            let (code, low_watermark) = (found.error_code, found.low_watermark);
            self.context.note(&format!("deletes {asked:?}: code {code} start {low_watermark}"));
            // What a broker deletes that has been replaced, the other one learns later.
            if code == ErrorCode::None.code() && !connection.is_stale() {
                model.deleted(partition, asked, low_watermark);
            }
        }
    }
}
