//! Who uses the broker: producers, one with transactions, consumers, one who makes and deletes
//! topics, one who deletes records, one whose records age,
//! one whose newest records are kept, one who queries tables, a consumer
//! group's member, members that share a topic, and the clock.

pub mod ager;
pub mod churn;
pub mod consumer;
pub mod deleter;
pub mod keeper;
pub mod looker;
pub mod member;
pub mod producer;
pub mod sharer;
pub mod transactor;

use crate::client::{Connection, Gone};
use crate::cluster::Cluster;
use crate::dice::{between_ms, chance};
use crate::model::{Model, RecordName, name_of};
use crate::trace::Trace;
use floe_env::{Env, Shutdown};
use floe_iceberg_bridge::ENABLE_CONFIG;
use floe_wire::ErrorCode;
use floe_wire::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use floe_wire::messages::metadata_request::MetadataRequestTopic;
use floe_wire::messages::{
    CreateTopicsRequest, MetadataRequest, RequestMessage, StrBytes, TopicName,
};
use std::fmt;
use std::time::Duration;
use uuid::Uuid;

/// Connections that go to a broker that has been replaced, if there is one, per mille.
const TO_ZOMBIES: u64 = 150;
/// What a broker may answer that has been replaced: it is fenced, or does not know the newest
/// topics.
pub const OF_REPLACED: [ErrorCode; 3] =
    [ErrorCode::NotLeaderOrFollower, ErrorCode::UnknownTopicOrPartition, ErrorCode::UnknownTopicId];
/// Codes after which every client asks again.
pub const MAY_RETRY: [ErrorCode; 2] = [ErrorCode::RequestTimedOut, ErrorCode::KafkaStorageError];
/// Codes of a topic that is not there.
pub const NO_TOPIC: [ErrorCode; 2] =
    [ErrorCode::UnknownTopicId, ErrorCode::UnknownTopicOrPartition];
/// A client gives an answer up after this time.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes that one batch may decompress to.
const BATCH_BYTES_MAX: usize = 1 << 20;
const CREATE_TOPICS_VERSION: i16 = 7;
const METADATA_VERSION: i16 = 12;

/// What every actor has.
#[derive(Clone)]
pub struct Context {
    /// Its own clock and choices.
    pub env: Env,
    /// Its own number.
    pub id: u32,
    /// The broker.
    pub cluster: Cluster,
    /// The checks.
    pub model: Model,
    /// The trace.
    pub trace: Trace,
    /// Given when it should come to an end.
    pub stop: Shutdown,
}

impl Context {
    /// Adds to the trace.
    pub fn note(&self, text: &str) {
        self.trace.event(self.env.monotonic(), &format!("client {} {text}", self.id));
    }

    /// Notes a violation where a client is told an error that has no place here: none of `allowed`,
    /// and none that a broker may answer which has been replaced.
    pub fn check_code(
        &self,
        doing: impl fmt::Display,
        code: i16,
        allowed: &[ErrorCode],
        connection: &Connection,
    ) {
        if !is_allowed(code, allowed, connection.is_stale()) {
            let text = format!("client {}: {doing}: code {code}", self.id);
            self.note(&text);
            self.model.violation(text);
        }
    }

    /// Waits until a broker listens. At times one answers that has been replaced.
    pub async fn connect_somewhere(&self) -> Connection {
        if chance(&self.env, TO_ZOMBIES)
            && let Some(connection) = self.cluster.connect_to_zombie()
        {
            return connection;
        }
        self.connect().await
    }

    /// Waits until a broker listens.
    pub async fn connect(&self) -> Connection {
        loop {
            if let Some(connection) = self.cluster.connect() {
                return connection;
            }
            self.env.sleep(between_ms(&self.env, 50, 300)).await;
        }
    }

    /// A request and its answer, given up after [`PATIENCE`].
    ///
    /// # Errors
    /// [`Gone`]; the connection must not be used any more.
    pub async fn call<R: RequestMessage + Sync>(
        &self,
        connection: &mut Connection,
        version: i16,
        request: &R,
    ) -> Result<R::Response, Gone> {
        let answer = self.env.timeout(PATIENCE, connection.call(version, request)).await;
        answer.unwrap_or_else(|| Err(Gone("no answer in time".to_owned())))
    }

    /// Makes sure that a topic exists, with or without a table, and answers its id.
    pub async fn topic(&self, name: &str, partitions: i32, has_table: bool) -> Uuid {
        self.topic_with(name, partitions, has_table, &[]).await
    }

    /// The same of a topic with these configs besides.
    pub async fn topic_with(
        &self,
        name: &str,
        partitions: i32,
        has_table: bool,
        configs: &[(&'static str, String)],
    ) -> Uuid {
        let mut configs = configs.to_vec();
        configs.push((ENABLE_CONFIG, has_table.to_string()));
        loop {
            let mut connection = self.connect().await;
            while !connection.is_stale()
                && let Ok(found) = self.try_topic(&mut connection, name, partitions, &configs).await
            {
                // A broker that was replaced meanwhile may tell of a topic that is gone.
                if let Some(id) = found.filter(|_| !connection.is_stale()) {
                    return id;
                }
                self.env.sleep(between_ms(&self.env, 50, 500)).await;
            }
            self.env.sleep(between_ms(&self.env, 50, 500)).await;
        }
    }

    async fn try_topic(
        &self,
        connection: &mut Connection,
        name: &str,
        partitions: i32,
        configs: &[(&'static str, String)],
    ) -> Result<Option<Uuid>, Gone> {
        let config = |(name, value): &(&'static str, String)| {
            CreatableTopicConfig::default()
                .with_name(StrBytes::from_static_str(name))
                .with_value(Some(StrBytes::from_string(value.clone())))
        };
        let topic = CreatableTopic::default()
            .with_name(topic_name(name))
            .with_num_partitions(partitions)
            .with_replication_factor(1)
            .with_configs(configs.iter().map(config).collect());
        let request =
            CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(10_000);
        let made = self.call(connection, CREATE_TOPICS_VERSION, &request).await?;
        let code = made.topics.first().map_or(-1, |topic| topic.error_code);
        let allowed = [&MAY_RETRY[..], &[ErrorCode::TopicAlreadyExists]].concat();
        self.check_code(format_args!("makes topic {name}"), code, &allowed, connection);
        let exists = [ErrorCode::None.code(), ErrorCode::TopicAlreadyExists.code()].contains(&code);
        if exists { self.topic_id(connection, name).await } else { Ok(None) }
    }

    /// The id of a topic, if Metadata knows it.
    ///
    /// # Errors
    /// [`Gone`].
    pub async fn topic_id(
        &self,
        connection: &mut Connection,
        name: &str,
    ) -> Result<Option<Uuid>, Gone> {
        let asked = MetadataRequestTopic::default().with_name(Some(topic_name(name)));
        let request = MetadataRequest::default()
            .with_topics(Some(vec![asked]))
            .with_allow_auto_topic_creation(false);
        let answer = self.call(connection, METADATA_VERSION, &request).await?;
        let allowed = [&MAY_RETRY[..], &NO_TOPIC[..]].concat();
        for topic in &answer.topics {
            let doing = format_args!("asks for topic {name}");
            self.check_code(doing, topic.error_code, &allowed, connection);
        }
        let known = answer.topics.iter().find(|topic| topic.error_code == 0);
        Ok(known.map(|topic| topic.topic_id))
    }
}

/// True for no error, one of `allowed`, or one of a broker that has been replaced, where it was.
fn is_allowed(code: i16, allowed: &[ErrorCode], is_replaced: bool) -> bool {
    let of_replaced = if is_replaced { &OF_REPLACED[..] } else { &[] };
    code == ErrorCode::None.code()
        || allowed.iter().chain(of_replaced).any(|allowed| allowed.code() == code)
}

/// A topic's name on the wire.
pub fn topic_name(name: &str) -> TopicName {
    TopicName(StrBytes::from_string(name.to_owned()))
}

/// Offsets and names of all records in a run of batches, from `from` on.
///
/// # Errors
/// What is wrong with the bytes.
pub fn records_of(bytes: &[u8], from: i64) -> Result<Vec<(i64, RecordName)>, String> {
    let mut found = Vec::new();
    for batch in kfs::batches(bytes) {
        let batch = batch.map_err(|error| error.to_string())?;
        batch.verify_crc().map_err(|error| error.to_string())?;
        let records = batch.records(BATCH_BYTES_MAX).map_err(|error| error.to_string())?;
        for record in records.iter() {
            let record = record.map_err(|error| error.to_string())?;
            let offset = batch.header.base_offset + i64::from(record.offset_delta);
            let name = name_of(record.value.unwrap_or_default());
            let name = name.ok_or_else(|| format!("offset {offset}: nobody sent this value"))?;
            if offset >= from {
                found.push((offset, name));
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_allowed_by_its_list_or_to_a_broker_that_was_replaced() {
        let storage = ErrorCode::KafkaStorageError.code();
        let fenced = ErrorCode::NotLeaderOrFollower.code();
        for (code, is_replaced, expected) in [
            (0, false, true),
            (storage, false, true),
            (fenced, false, false),
            (fenced, true, true),
            (ErrorCode::UnknownServerError.code(), true, false),
            (ErrorCode::OffsetOutOfRange.code(), true, false),
        ] {
            assert_eq!(is_allowed(code, &MAY_RETRY, is_replaced), expected, "{code}");
        }
        assert!(!is_allowed(storage, &[], false));
    }
}
