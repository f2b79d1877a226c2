//! A consumer that reads all partitions of a topic over and over, and looks at their ends.

use super::{Context, MAY_RETRY, PATIENCE, records_of, topic_name};
use crate::client::{Connection, Gone};
use crate::dice::{below, between_ms, chance, pick};
use crate::model::{Bounds, RecordName, Seen};
use floe_wire::ErrorCode;
use floe_wire::messages::fetch_request::{FetchPartition, FetchTopic};
use floe_wire::messages::fetch_response::PartitionData;
use floe_wire::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use floe_wire::messages::{BrokerId, FetchRequest, ListOffsetsRequest};
use kfs::TopicPartition;
use std::collections::BTreeMap;
use std::time::Duration;

/// The first version that names topics by id.
const TOPIC_IDS_SINCE: i16 = 13;
const LIST_OFFSETS_VERSION: i16 = 7;
/// ListOffsets: the end of the log, and its start.
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;

/// A consumer.
pub struct Consumer {
    context: Context,
    topic: String,
    version: i16,
    positions: BTreeMap<TopicPartition, i64>,
}

impl Consumer {
    /// A consumer at the beginning of these partitions of one topic.
    pub fn new(context: Context, topic: &str, partitions: &[TopicPartition]) -> Self {
        let version = pick(&context.env, &[4, 11, 12, 13, 18]);
        let positions = partitions.iter().map(|partition| (*partition, 0)).collect();
        Self { context, topic: topic.to_owned(), version, positions }
    }

    /// Reads until the stop is given.
    pub async fn run(mut self) {
        let env = self.context.env.clone();
        while !self.context.stop.is_triggered() {
            let mut connection = self.context.connect_somewhere().await;
            let ended = self.serve(&mut connection).await;
            if let Err(gone) = ended {
                self.context.note(&format!("disconnected: {gone}"));
            }
            env.sleep(between_ms(&env, 10, 400)).await;
        }
    }

    async fn serve(&mut self, connection: &mut Connection) -> Result<(), Gone> {
        let env = self.context.env.clone();
        while !self.context.stop.is_triggered() {
            if chance(&env, 50) {
                self.look_at_ends(connection, LATEST).await?;
            }
            if chance(&env, 20) {
                for position in self.positions.values_mut() {
                    *position = below(&env, *position as u64 + 1) as i64;
                }
                if chance(&env, 500) {
                    self.look_at_ends(connection, EARLIEST).await?;
                }
            }
            self.fetch(connection, 1 + below(&env, 2000) as i32).await?;
            if chance(&env, 10) {
                return Err(Gone("hung up".to_owned()));
            }
            env.sleep(between_ms(&env, 0, 1200)).await;
        }
        Ok(())
    }

    /// Everything in the log, read to its end without a break, when nothing fails any more.
    ///
    /// # Errors
    /// What kept it from reading on.
    pub async fn sweep(
        mut self,
    ) -> Result<BTreeMap<TopicPartition, Vec<(i64, RecordName)>>, String> {
        let mut content: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let deadline = self.context.env.monotonic() + Duration::from_secs(120);
        let mut connection = self.context.connect().await;
        self.look_at_ends(&mut connection, EARLIEST).await.map_err(|gone| gone.to_string())?;
        loop {
            let seen = self.fetch(&mut connection, 0).await.map_err(|gone| gone.to_string())?;
            let mut is_over = seen.len() == self.positions.len();
            for seen in seen {
                is_over &= self.positions[&seen.partition] >= seen.high_watermark;
                content.entry(seen.partition).or_default().extend(seen.records);
            }
            if is_over {
                return Ok(content);
            }
            if self.context.env.monotonic() > deadline {
                return Err(format!("stuck: cannot read on from {:?}", self.positions));
            }
        }
    }

    async fn fetch(
        &mut self,
        connection: &mut Connection,
        max_wait_ms: i32,
    ) -> Result<Vec<Seen>, Gone> {
        let env = &self.context.env;
        let bounds = |partition| self.context.model.bounds(partition);
        let bounds: Vec<Bounds> = self.positions.keys().copied().map(bounds).collect();
        let bytes_max = pick(env, &[1, 2000, 1 << 20]);
        let request = self.request(max_wait_ms, bytes_max);
        let answer = connection.call(self.version, &request);
        let answer = env.timeout(PATIENCE, answer).await;
        let answer = answer.unwrap_or_else(|| Err(Gone("no answer in time".to_owned())))?;
        let mut all = Vec::new();
        let partitions: Vec<TopicPartition> = self.positions.keys().copied().collect();
        let mut reset = false;
        for (partition, bounds) in partitions.into_iter().zip(bounds) {
            let index = partition.partition.0;
            let data = answer.responses.iter().flat_map(|topic| &topic.partitions);
            let found = data.into_iter().find(|data| data.partition_index == index);
            match found {
                Some(data) if data.error_code == ErrorCode::OffsetOutOfRange.code() => {
                    let (id, from) = (self.context.id, self.positions[&partition]);
                    self.context.note(&format!("fetch {partition} {from}: out of range"));
                    self.context.model.out_of_range(id, partition, from);
                    reset = true;
                }
                Some(data) => all.extend(self.take(partition, bounds, data, connection)),
                None => self.context.model.violation(format!("{partition} lacks in an answer")),
            }
        }
        if reset {
            self.look_at_ends(connection, EARLIEST).await?;
        }
        Ok(all)
    }

    fn take(
        &mut self,
        partition: TopicPartition,
        bounds: Bounds,
        data: &PartitionData,
        connection: &Connection,
    ) -> Option<Seen> {
        let Context { model, id, .. } = &self.context;
        let from = self.positions[&partition];
        if data.error_code != 0 {
            let (code, doing) = (data.error_code, format!("fetch {partition} {from}"));
            self.context.note(&format!("{doing}: code {code}"));
            self.context.check_code(doing, code, &MAY_RETRY, connection);
            return None;
        }
        let records = match records_of(data.records.as_deref().unwrap_or_default(), from) {
            Ok(records) => records,
            Err(error) => {
                model.violation(format!("client {id}: fetch {partition} {from}: {error}"));
                return None;
            }
        };
        if let Some((last, _)) = records.last() {
            self.positions.insert(partition, last + 1);
        }
        let start = model.log_start(partition);
        if records.first().is_some_and(|(first, _)| *first != from && *first > start) {
            model.violation(format!("client {id}: {partition} {from}: begins at {:?}", records[0]));
        }
        let seen = Seen {
            partition,
            bounds,
            is_stale: connection.is_stale(),
            from,
            log_start: data.log_start_offset.max(0),
            high_watermark: data.high_watermark,
            records,
        };
        let count = seen.records.len();
        let end = seen.high_watermark;
        self.context.note(&format!("fetch {partition} {from}: {count} records of {end}"));
        model.seen(*id, &seen);
        Some(seen)
    }

    fn request(&self, max_wait_ms: i32, bytes_max: i32) -> FetchRequest {
        let partitions = self.positions.iter().map(|(partition, position)| {
            FetchPartition::default()
                .with_partition(partition.partition.0)
                .with_fetch_offset(*position)
                .with_partition_max_bytes(bytes_max)
        });
        let topic = FetchTopic::default().with_partitions(partitions.collect());
        let id = self.positions.keys().next().map(|partition| partition.topic.0);
        let topic = if self.version >= TOPIC_IDS_SINCE {
            topic.with_topic_id(id.unwrap_or_default())
        } else {
            topic.with_topic(topic_name(&self.topic))
        };
        FetchRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_max_wait_ms(max_wait_ms)
            .with_min_bytes(1)
            .with_max_bytes(1 << 20)
            .with_isolation_level(0)
            .with_session_epoch(-1)
            .with_topics(vec![topic])
    }

    /// Asks where the log ends, or where it starts: then reading goes on at that offset at least.
    async fn look_at_ends(&mut self, connection: &mut Connection, which: i64) -> Result<(), Gone> {
        let model = self.context.model.clone();
        let partitions: Vec<TopicPartition> = self.positions.keys().copied().collect();
        let bounds: Vec<Bounds> =
            partitions.iter().map(|partition| model.bounds(*partition)).collect();
        let asked = partitions.iter().map(|partition| {
            ListOffsetsPartition::default()
                .with_partition_index(partition.partition.0)
                .with_timestamp(which)
        });
        let topic = ListOffsetsTopic::default()
            .with_name(topic_name(&self.topic))
            .with_partitions(asked.collect());
        let request =
            ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![topic]);
        let answer = self.context.call(connection, LIST_OFFSETS_VERSION, &request).await?;
        for found in answer.topics.iter().flat_map(|topic| &topic.partitions) {
            let at = partitions.iter().position(|each| each.partition.0 == found.partition_index);
            let (code, offset) = (found.error_code, found.offset);
            self.context.note(&format!("end {which} {}: {offset} code {code}", partitions.len()));
            self.context.check_code("lists an offset", code, &MAY_RETRY, connection);
            let Some(at) = at.filter(|_| code == 0) else { continue };
            let floor = if which == LATEST { bounds[at].end } else { bounds[at].log_start };
            if offset < floor {
                model.violation(format!("{}: end {which} {offset} after {floor}", partitions[at]));
            }
            if which == EARLIEST
                && let Some(position) = self.positions.get_mut(&partitions[at])
            {
                *position = offset.max(*position);
            }
        }
        Ok(())
    }
}
