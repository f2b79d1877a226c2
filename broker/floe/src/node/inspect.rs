//! Answers the questions of the HTTP address from a running broker.

use crate::broker::Broker;
use crate::compaction::describe_waiting;
use crate::http::{
    ExtentView, ExtentsPage, FlushRequest, Inspect, PartitionView, ResumeRequest, StatusView,
    TableView, TopicView, TopicsPage,
};
use crate::retention::describe_kept;
use crate::topics::KnownTopic;
use async_trait::async_trait;
use floe_env::{Error, Instant, Result};
use floe_iceberg_bridge::{Bridge, FlushedTable, ResumeFrom, TableStatus};
use floe_log::{Compactor, Retention};
use floe_metadata::rows::{Extent, PartitionState, Place};
use floe_store::ObjectStore;
use kfs::{OffsetMode, TopicPartition};
use std::sync::Arc;

/// A running broker, to be asked.
pub(super) struct BrokerInspect {
    pub(super) broker: Arc<Broker>,
    pub(super) bridge: Option<Bridge>,
    pub(super) retention: Retention,
    pub(super) compactor: Compactor,
    pub(super) objects: Arc<dyn ObjectStore>,
    pub(super) http: String,
    pub(super) started: Instant,
}

#[async_trait]
impl Inspect for BrokerInspect {
    async fn status(&self) -> Result<StatusView> {
        let (broker, identity) = (&self.broker, &self.broker.identity);
        let uptime = broker.env.monotonic() - self.started;
        Ok(StatusView {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            cluster: identity.cluster.to_string(),
            broker: identity.node_id,
            epoch: broker.registration.epoch.0,
            kafka: format!("{}:{}", identity.host, identity.port),
            http: self.http.clone(),
            store: broker.config.store.location.to_string(),
            metadata: broker.config.metadata.location.to_string(),
            uptime_ms: u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX),
        })
    }

    async fn topics(&self, after: Option<&str>, limit: usize) -> Result<TopicsPage> {
        self.broker.topics.refresh().await?;
        let all = self.broker.topics.all();
        let first = all.partition_point(|topic| after.is_some_and(|after| &*topic.name <= after));
        let page = &all[first..all.len().min(first.saturating_add(limit))];
        let mut topics = Vec::with_capacity(page.len());
        for topic in page {
            let states = self.states(topic).await?;
            topics.push(self.topic_view(topic, &states));
        }
        let is_last = first + page.len() == all.len();
        let next = page.last().filter(|_| !is_last).map(|topic| topic.topic.name.clone());
        Ok(TopicsPage { topics, next })
    }

    async fn topic(&self, name: &str) -> Result<Option<TopicView>> {
        let Some(topic) = self.broker.topic_by_name(name).await? else { return Ok(None) };
        let states = self.states(&topic).await?;
        let view = |(partition, state): (TopicPartition, &PartitionState)| PartitionView {
            partition: partition.partition.0,
            log_start: state.log_start_offset,
            high_watermark: state.high_watermark,
            last_stable: state.last_stable_offset,
            bytes: state.bytes,
            kept: self.why_kept(partition),
        };
        let partitions = topic.partitions().into_iter().zip(&states).map(view).collect();
        Ok(Some(TopicView { partitions, ..self.topic_view(&topic, &states) }))
    }

    async fn tables(&self) -> Result<Vec<TableView>> {
        let Some(bridge) = &self.bridge else { return Ok(Vec::new()) };
        let mut views: Vec<_> = bridge.statuses().into_iter().filter_map(table_view).collect();
        views.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(views)
    }

    async fn resume_table(&self, name: &str, request: &ResumeRequest) -> Result<Option<TableView>> {
        let Some(from) = ResumeFrom::named(&request.from) else {
            let from = &request.from;
            return Err(Error::invalid(format!("`{from}` is neither rewind nor from-here")));
        };
        let Some(bridge) = &self.bridge else { return Ok(None) };
        let own = bridge.config().namespace.as_str();
        let outside = || name.split_once('.').unwrap_or((own, name));
        let named = inside(own, name).map_or_else(outside, |inside| (own, inside));
        let resumed = bridge.resume(named, from).await?;
        Ok(resumed.and_then(table_view))
    }

    async fn flush_tables(&self, request: &FlushRequest) -> Result<Vec<FlushedTable>> {
        let no_tables = || Error::invalid("tables are switched off (iceberg.enable)");
        let bridge = self.bridge.as_ref().ok_or_else(no_tables)?;
        let namespace = &bridge.config().namespace;
        let names =
            request.tables.iter().map(|name| inside(namespace, name).unwrap_or(name).to_owned());
        let names: Vec<String> = names.collect();
        let view = |flushed: FlushedTable| FlushedTable {
            name: format!("{namespace}.{}", flushed.name),
            ..flushed
        };
        Ok(bridge.flush(&names).await?.into_iter().map(view).collect())
    }

    async fn extents(
        &self,
        topic: &str,
        partition: i32,
        offset: i64,
        limit: usize,
    ) -> Result<Option<ExtentsPage>> {
        let Some(known) = self.broker.topic_by_name(topic).await? else { return Ok(None) };
        let Some(named) = known.partition(partition) else { return Ok(None) };
        let Some(page) = self.broker.log.extents(named, offset, limit).await? else {
            return Ok(None);
        };
        let next = page.extents.last().map(|extent| extent.last_offset + 1);
        Ok(Some(ExtentsPage {
            topic: known.topic.name.clone(),
            topic_id: known.topic.id.to_string(),
            partition,
            log_start: page.state.log_start_offset,
            high_watermark: page.state.high_watermark,
            last_stable: page.state.last_stable_offset,
            extents: page.extents.iter().map(|extent| self.extent_view(extent)).collect(),
            next: next.filter(|next| *next < page.state.high_watermark),
        }))
    }
}

/// A table's name without its namespace, if that stands before it.
fn inside<'a>(namespace: &str, name: &'a str) -> Option<&'a str> {
    name.strip_prefix(namespace).and_then(|name| name.strip_prefix('.'))
}

fn table_view(status: TableStatus) -> Option<TableView> {
    let small_file_ratio = small_file_ratio(&status);
    let (namespace, table) = (&status.namespace, status.shown_name()?);
    Some(TableView {
        name: format!("{namespace}.{table}"),
        topic: status.topic_name,
        state: status.state.to_string(),
        reason: status.reason,
        lag_records: u64::try_from(status.lag_records).unwrap_or(0),
        lag_seconds: status.lag_ms as f64 / 1000.0,
        last_commit_ms: status.last_commit_ms,
        last_error: status.last_error,
        files: status.files,
        bytes: status.bytes,
        small_file_ratio,
        columns: status.columns as u64,
        rescued_rows: status.rescued_rows,
        undecodable_rows: status.undecodable_rows,
        retention_ms: status.retention_ms,
        gap_offsets: status.gap_offsets,
        commits: status.commits,
        failures: status.failures,
        conflicts: status.conflicts,
        puts: status.puts,
    })
}

/// The part of a table's files that is small, once it is known.
pub(super) fn small_file_ratio(status: &TableStatus) -> Option<f64> {
    let small_files = status.small_files?;
    Some(small_files as f64 / status.files.max(1) as f64)
}

impl BrokerInspect {
    async fn states(&self, topic: &KnownTopic) -> Result<Vec<PartitionState>> {
        let states = self.broker.metadata.partition_states(&topic.partitions()).await?;
        // A partition is missing only where the topic was deleted meanwhile.
        Ok(states.into_iter().map(Option::unwrap_or_default).collect())
    }

    /// Why a partition keeps records longer than its configs say, if it does.
    fn why_kept(&self, partition: TopicPartition) -> Option<String> {
        let by_retention = self.retention.why_kept(partition).map(describe_kept);
        by_retention.or_else(|| self.compactor.why_waiting(partition).map(describe_waiting))
    }

    fn topic_view(&self, topic: &KnownTopic, states: &[PartitionState]) -> TopicView {
        let records: i64 =
            states.iter().map(|state| state.high_watermark - state.log_start_offset).sum();
        let table = self.bridge.as_ref().and_then(|bridge| {
            let statuses = bridge.statuses().into_iter();
            let own = statuses.filter(|status| status.topic == topic.topic.id);
            own.filter_map(|status| Some(format!("{}.{}", status.namespace, status.table?))).next()
        });
        let partitions = topic.partitions().into_iter();
        let kept = partitions.filter(|partition| self.why_kept(*partition).is_some());
        TopicView {
            name: topic.topic.name.clone(),
            id: topic.topic.id.to_string(),
            partition_count: topic.topic.partition_count.unsigned_abs(),
            records: u64::try_from(records).unwrap_or(0),
            bytes: states.iter().map(|state| state.bytes).sum(),
            table,
            kept_partitions: u32::try_from(kept.count()).unwrap_or(u32::MAX),
            partitions: Vec::new(),
        }
    }

    fn extent_view(&self, extent: &Extent) -> ExtentView {
        let (kind, range) = match &extent.place {
            Place::Range { key, position, length } => ("object", Some((key, *position, *length))),
            Place::Marker { .. } => ("marker", None),
            Place::Hole => ("hole", None),
        };
        let mode = match extent.offset_mode {
            OffsetMode::Relative => "relative",
            OffsetMode::Absolute => "absolute",
        };
        let root = self.broker.identity.cluster;
        ExtentView {
            base_offset: extent.base_offset,
            last_offset: extent.last_offset,
            kind: kind.to_owned(),
            object: range.map(|(key, ..)| self.objects.url(&format!("{root}/{key}"))),
            position: range.map(|(_, position, _)| position),
            length: range.map(|(.., length)| length),
            offset_mode: range.map(|_| mode.to_owned()),
            max_timestamp_ms: extent.max_timestamp_ms,
        }
    }
}
