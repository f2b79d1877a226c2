//! The metadata store with faults: one server that outlives the brokers, SQLite or the model, and a
//! handle on it for each life.

use crate::calls::{Effects, Link};
use crate::planted::CommitBug;
use async_trait::async_trait;
use bytes::Bytes;
use floe_env::{Env, Error, Result};
use floe_metadata::facts::{Change, ChangeOutcome, FactKey, FactRange, Fence};
use floe_metadata::rows::{
    AbortedTransaction, DeadObject, Extent, ExtentPage, FreshBounds, PartitionState, ProducerState,
    Replacement, SegmentFacts, SegmentOutcome,
};
use floe_metadata::{Backend, ModelBackend, SqliteBackend};
use futures::FutureExt;
use kfs::{BrokerEpoch, BrokerId, SegmentId, TopicPartition};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// While the server opens its file again, calls look after this time.
const OPENING_PAUSE: Duration = Duration::from_millis(1);
/// A file that stays locked for so many looks is a bug.
const OPENING_LOOKS_MAX: u32 = 10_000;

/// The store behind all lives.
pub struct MetadataServer {
    env: Env,
    /// The folder of the SQLite file; none where the model serves.
    folder: Option<TempDir>,
    current: Mutex<Option<Arc<dyn Backend>>>,
}

impl MetadataServer {
    /// A new store, in a file or in the model. `env` is the world's own.
    ///
    /// # Errors
    /// Whatever the file system or SQLite answers.
    pub async fn start(env: Env, in_file: bool) -> Result<Arc<Self>> {
        let folder = in_file
            .then(tempfile::tempdir)
            .transpose()
            .map_err(|error| Error::unavailable("no temporary folder").with_source(error))?;
        let model: Option<Arc<dyn Backend>> =
            if in_file { None } else { Some(Arc::new(ModelBackend::new(env.clone()))) };
        let server = Arc::new(Self { env, folder, current: Mutex::new(model) });
        server.open_again().await?;
        Ok(server)
    }

    /// Closes the file and opens it again, as a restarted process does. Nothing where the model
    /// serves.
    ///
    /// # Errors
    /// Whatever SQLite answers.
    pub async fn open_again(&self) -> Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        *self.current.lock() = None;
        let path = folder.path().join("metadata.sqlite");
        for _ in 0..OPENING_LOOKS_MAX {
            match SqliteBackend::open(&self.env, &path).await {
                Ok(opened) => {
                    *self.current.lock() = Some(Arc::new(opened));
                    return Ok(());
                }
                // The closed one's tasks end at their next poll.
                Err(error) if error.message().contains("in use") => {
                    self.env.sleep(OPENING_PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
        Err(Error::bug("the metadata file stays locked"))
    }

    async fn backend(&self) -> Arc<dyn Backend> {
        loop {
            if let Some(backend) = self.current.lock().clone() {
                return backend;
            }
            self.env.sleep(OPENING_PAUSE).await;
        }
    }
}

/// One life's handle on the metadata.
pub struct FaultMetadata {
    link: Link,
    server: Arc<MetadataServer>,
    /// A planted bug.
    bug: Option<CommitBug>,
}

impl FaultMetadata {
    /// A handle of the node behind `link`.
    pub fn new(link: Link, server: Arc<MetadataServer>, bug: Option<CommitBug>) -> Self {
        Self { link, server, bug }
    }

    async fn commit(
        &self,
        fence: Fence,
        segments: Vec<SegmentFacts>,
    ) -> Result<Vec<SegmentOutcome>> {
        let ids: Vec<String> = segments.iter().map(|segment| segment.id.to_string()).collect();
        let server = self.server.clone();
        let work = move || {
            async move { server.backend().await.commit_segments(&fence, &segments).await }.boxed()
        };
        self.link.call("commit_segments", Effects::Change, ids.join(" "), work).await
    }
}

/// A call of the backend with owned copies of its arguments.
#[allow(clippy::clone_on_copy, reason = "the macro takes both kinds")]
macro_rules! call {
    ($self:ident, $method:ident, $effects:ident, $what:expr, $($argument:ident),*) => {{
        let server = $self.server.clone();
        $(let $argument = $argument.clone();)*
        let what: String = $what;
        let work = move || {
            async move { server.backend().await.$method($(call!(@pass $argument)),*).await }.boxed()
        };
        $self.link.call(stringify!($method), Effects::$effects, what, work).await
    }};
    (@pass $argument:ident) => { PassAs::pass(&$argument) };
}

/// Hands an owned copy on as the backend takes it: what is small by value, the rest by reference.
trait PassAs<'a> {
    type As;
    fn pass(&'a self) -> Self::As;
}

macro_rules! pass_by_value {
    ($($kind:ty),*) => {
        $(impl PassAs<'_> for $kind {
            type As = $kind;
            fn pass(&self) -> $kind {
                *self
            }
        })*
    };
}

macro_rules! pass_by_reference {
    ($($kind:ty),*) => {
        $(impl<'a> PassAs<'a> for $kind {
            type As = &'a $kind;
            fn pass(&'a self) -> &'a $kind {
                self
            }
        })*
    };
}

pass_by_value!(i64, usize, BrokerEpoch, BrokerId, FreshBounds, SegmentId, TopicPartition);
pass_by_reference!(Fence, Change, FactRange, Replacement);

impl<'a, T: 'a> PassAs<'a> for Vec<T> {
    type As = &'a [T];
    fn pass(&'a self) -> &'a [T] {
        self
    }
}

#[async_trait]
impl Backend for FaultMetadata {
    async fn commit_segments(
        &self,
        fence: &Fence,
        segments: &[SegmentFacts],
    ) -> Result<Vec<SegmentOutcome>> {
        let commit = |segments| self.commit(fence.clone(), segments);
        match &self.bug {
            None => commit(segments.to_vec()).await,
            Some(CommitBug::Twice(renamed)) => commit(renamed.again(segments)).await,
            Some(CommitBug::Early(promises)) => {
                let partitions = promises.unknown(segments);
                let states = self.partition_states(&partitions).await?;
                promises.learn(&partitions, &states);
                let later =
                    Self { link: self.link.clone(), server: self.server.clone(), bug: None };
                promises.commit_later(later, fence.clone(), segments.to_vec());
                Ok(promises.make_up(segments))
            }
        }
    }

    async fn segment_outcome(&self, id: SegmentId) -> Result<Option<SegmentOutcome>> {
        call!(self, segment_outcome, Read, id.to_string(), id)
    }

    async fn abandon_segment(&self, fence: &Fence, id: SegmentId) -> Result<SegmentOutcome> {
        call!(self, abandon_segment, Change, id.to_string(), fence, id)
    }

    async fn forget_outcomes(&self, fence: &Fence, up_to: SegmentId) -> Result<()> {
        call!(self, forget_outcomes, Change, up_to.to_string(), fence, up_to)
    }

    async fn forget_registrations(&self, broker: BrokerId, up_to: BrokerEpoch) -> Result<()> {
        call!(self, forget_registrations, Change, format!("{broker}-{up_to}"), broker, up_to)
    }

    async fn partition_states(
        &self,
        partitions: &[TopicPartition],
    ) -> Result<Vec<Option<PartitionState>>> {
        let partitions = partitions.to_vec();
        call!(self, partition_states, Read, partitions.len().to_string(), partitions)
    }

    async fn extents(
        &self,
        partition: TopicPartition,
        offset: i64,
        limit: usize,
    ) -> Result<Option<ExtentPage>> {
        call!(self, extents, Read, format!("{partition} {offset}"), partition, offset, limit)
    }

    async fn extent_by_time(
        &self,
        partition: TopicPartition,
        timestamp_ms: i64,
    ) -> Result<Option<(PartitionState, Option<Extent>)>> {
        call!(self, extent_by_time, Read, partition.to_string(), partition, timestamp_ms)
    }

    async fn extent_of_max_timestamp(
        &self,
        partition: TopicPartition,
    ) -> Result<Option<(PartitionState, Option<Extent>)>> {
        call!(self, extent_of_max_timestamp, Read, partition.to_string(), partition)
    }

    async fn producers(&self, partition: TopicPartition) -> Result<Vec<ProducerState>> {
        call!(self, producers, Read, partition.to_string(), partition)
    }

    async fn expire_producers(&self, partition: TopicPartition, before_ms: i64) -> Result<usize> {
        call!(self, expire_producers, Change, partition.to_string(), partition, before_ms)
    }

    async fn aborted(
        &self,
        partition: TopicPartition,
        from: i64,
        until: i64,
    ) -> Result<Vec<AbortedTransaction>> {
        call!(self, aborted, Read, partition.to_string(), partition, from, until)
    }

    async fn advance_log_start(
        &self,
        partition: TopicPartition,
        offset: i64,
    ) -> Result<Option<PartitionState>> {
        call!(self, advance_log_start, Change, format!("{partition} {offset}"), partition, offset)
    }

    async fn replace_extents(
        &self,
        fence: &Fence,
        replacement: &Replacement,
    ) -> Result<ChangeOutcome> {
        let what = replacement.partition.to_string();
        call!(self, replace_extents, Change, what, fence, replacement)
    }

    async fn unpack_fresh(&self, kept: FreshBounds) -> Result<usize> {
        call!(self, unpack_fresh, Change, kept.segments.to_string(), kept)
    }

    async fn dead_objects(&self, dead_before_ms: i64, limit: usize) -> Result<Vec<DeadObject>> {
        call!(self, dead_objects, Read, String::new(), dead_before_ms, limit)
    }

    async fn known_objects(&self, keys: &[String]) -> Result<Vec<bool>> {
        let keys = keys.to_vec();
        call!(self, known_objects, Read, keys.len().to_string(), keys)
    }

    async fn forget_objects(&self, keys: &[String]) -> Result<()> {
        let keys = keys.to_vec();
        call!(self, forget_objects, Change, keys.len().to_string(), keys)
    }

    async fn get(&self, keys: &[FactKey]) -> Result<Vec<Option<Bytes>>> {
        let keys = keys.to_vec();
        let server = self.server.clone();
        let what = keys.first().map_or_else(String::new, |key| key.as_str().to_owned());
        let work = move || async move { server.backend().await.get(&keys).await }.boxed();
        self.link.call("get_facts", Effects::Read, what, work).await
    }

    async fn scan(&self, range: &FactRange, limit: usize) -> Result<Vec<(FactKey, Bytes)>> {
        call!(self, scan, Read, range.from.clone(), range, limit)
    }

    async fn change(&self, change: &Change) -> Result<ChangeOutcome> {
        let first = change.writes.first().map(|write| match write {
            floe_metadata::facts::Write::Put(key, _) => format!("put {}", key.as_str()),
            floe_metadata::facts::Write::Delete(key) => format!("delete {}", key.as_str()),
        });
        call!(self, change, Change, first.unwrap_or_default(), change)
    }

    async fn now_ms(&self) -> Result<i64> {
        call!(self, now_ms, Read, String::new(),)
    }
}
