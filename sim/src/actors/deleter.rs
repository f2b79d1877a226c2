//! Deletes records from the beginning of partitions, little by little and at times all.

use super::{Context, MAY_RETRY, topic_name};
use crate::client::Gone;
use crate::dice::{below, between_ms, chance, pick};
use floe_env::Lane;
use floe_wire::ErrorCode;
use floe_wire::messages::DeleteRecordsRequest;
use floe_wire::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use kfs::TopicPartition;
use std::time::Duration;

const DELETE_RECORDS_VERSION: i16 = 2;
/// DeleteRecords: everything.
const HIGH_WATERMARK: i64 = -1;
/// Requests for everything, per mille.
const EVERYTHING: u64 = 40;
/// What a request that was given up has asked for may still come for so long: a broker is paused
/// for 9 s and lives on for 15 s at most, and its last call is late by 20 s.
const LATE_MAX: Duration = Duration::from_secs(60);

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
        let told = self.ask(partition, asked).await.unwrap_or_else(|gone| {
            self.context.note(&format!("deletes {partition}: {gone}"));
            None
        });
        if asked.is_none() {
            self.end_for_all(partition, told);
        }
    }

    /// Makes a request. The log start that was told, where it was carried out.
    async fn ask(
        &self,
        partition: TopicPartition,
        asked: Option<i64>,
    ) -> Result<Option<i64>, Gone> {
        let asked_partition = DeleteRecordsPartition::default()
            .with_partition_index(partition.partition.0)
            .with_offset(asked.unwrap_or(HIGH_WATERMARK));
        let topic = DeleteRecordsTopic::default()
            .with_name(topic_name(&self.topic))
            .with_partitions(vec![asked_partition]);
        let request =
            DeleteRecordsRequest::default().with_topics(vec![topic]).with_timeout_ms(10_000);
        let mut connection = self.context.connect_somewhere().await;
        let answer = self.context.call(&mut connection, DELETE_RECORDS_VERSION, &request).await?;
        let mut told = None;
        for found in answer.topics.iter().flat_map(|topic| &topic.partitions) {
            let (code, low_watermark) = (found.error_code, found.low_watermark);
            let doing = format!("deletes {asked:?} of {partition}");
            self.context.note(&format!("{doing}: code {code} start {low_watermark}"));
            self.context.check_code(&doing, code, &MAY_RETRY, &connection);
            if code != ErrorCode::None.code() {
                continue;
            }
            told = Some(low_watermark);
            // What a broker deletes that has been replaced, the other one learns later.
            if !connection.is_stale() {
                self.context.model.deleted(partition, asked, low_watermark);
            }
        }
        Ok(told)
    }

    /// A request for everything is over: at once where it was answered, else when it can come no
    /// more.
    fn end_for_all(&self, partition: TopicPartition, told: Option<i64>) {
        let Context { env, model, .. } = &self.context;
        if told.is_some() {
            return model.no_more_for_all(partition, told);
        }
        let (env, model) = (env.clone(), model.clone());
        self.context.env.spawn("late deletion", Lane::Foreground, async move {
            env.sleep(LATE_MAX).await;
            model.no_more_for_all(partition, None);
        });
    }
}
