//! What merging and compaction share: batches of a partition go into an object of its own, which
//! takes the place of the extents that they come from.

use crate::log::Log;
use crate::read::Reader;
use bytes::Bytes;
use floe_env::{Error, Result};
use floe_metadata::MetadataStore;
use floe_metadata::facts::ChangeOutcome;
use floe_metadata::rows::{AbortedTransaction, Extent, Place, Replacement};
use floe_store::{PutOutcome, holds_content};
use kfs::{BatchHeader, BatchPlace, OffsetMode, TimestampType, TopicPartition};

/// The newest time of an extent in which no record is left: nobody finds a time there, and
/// retention keeps nothing for it.
pub(crate) const NO_RECORDS_MS: i64 = 0;

/// The extents of a new object, cut so that each is what a reader loads at once.
pub(crate) struct NewExtents {
    /// The object's key, below the cluster's root.
    key: String,
    bytes_max: u64,
    extents: Vec<Extent>,
    /// The last extent has a batch with records, whose times count.
    is_timed: bool,
}

impl NewExtents {
    /// Of the object of this key, each of `bytes_max` bytes at most, or of one batch.
    pub(crate) fn new(key: &str, bytes_max: u64) -> Self {
        Self { key: key.to_owned(), bytes_max, extents: Vec::new(), is_timed: false }
    }

    pub(crate) fn count(&self) -> usize {
        self.extents.len()
    }

    /// Adds a batch to the last extent, or to a new one where that is full or of another clock. A
    /// batch without records begins none, so that each extent has a time by which it is found.
    pub(crate) fn add(
        &mut self,
        header: &BatchHeader,
        place: BatchPlace,
        timestamp_type: TimestampType,
    ) {
        let (length, has_records) = (u64::from(place.length), header.record_count > 0);
        if let Some(last) = self.extents.last_mut()
            && let Place::Range { length: bytes, .. } = &mut last.place
            && last.timestamp_type == timestamp_type
            && (*bytes + length <= self.bytes_max || !has_records)
        {
            *bytes += length;
            last.has_transactional |= header.is_transactional();
            if has_records {
                let newest_ms = if self.is_timed { last.max_timestamp_ms } else { i64::MIN };
                last.max_timestamp_ms = header.max_timestamp_ms.max(newest_ms);
                self.is_timed = true;
            }
            return;
        }
        self.is_timed = has_records;
        let (key, position) = (self.key.clone(), place.position);
        self.extents.push(Extent {
            base_offset: header.base_offset,
            last_offset: header.last_offset(),
            place: Place::Range { key, position, length },
            offset_mode: OffsetMode::Absolute,
            max_timestamp_ms: if has_records { header.max_timestamp_ms } else { NO_RECORDS_MS },
            timestamp_type,
            has_transactional: header.is_transactional(),
        });
    }

    /// The extents: each reaches until the next one, and all of them cover what the sources cover.
    pub(crate) fn covering(mut self, sources: &[Extent]) -> Vec<Extent> {
        if let (Some(first), Some(source)) = (self.extents.first_mut(), sources.first()) {
            first.base_offset = source.base_offset;
        }
        let mut end = sources.last().map_or(0, |source| source.last_offset);
        for extent in self.extents.iter_mut().rev() {
            extent.last_offset = end;
            end = extent.base_offset - 1;
        }
        self.extents
    }
}

/// The aborted transactions with records in these extents. All of them are known where the extents
/// lie below the last stable offset.
pub(crate) async fn aborted(
    metadata: &MetadataStore,
    partition: TopicPartition,
    extents: &[Extent],
) -> Result<Vec<AbortedTransaction>> {
    let (Some(first), Some(last)) = (extents.first(), extents.last()) else {
        return Ok(Vec::new());
    };
    if !extents.iter().any(|extent| extent.has_transactional) {
        return Ok(Vec::new());
    }
    metadata.aborted(partition, first.base_offset, last.last_offset + 1).await
}

/// The same for an object's footer.
pub(crate) fn footer(aborted: &[AbortedTransaction]) -> Vec<kfs::AbortedTransaction> {
    let listed = aborted.iter().map(|aborted| kfs::AbortedTransaction {
        producer: aborted.producer,
        first_offset: aborted.first_offset,
        last_offset: aborted.last_offset,
        last_stable_offset: aborted.last_stable_offset,
    });
    listed.collect()
}

/// Puts the object of a key below the cluster's root, which nobody else writes; answers its key in
/// the store.
pub(crate) async fn put(reader: &Reader, key: &str, parts: Vec<Bytes>) -> Result<String> {
    let object = format!("{}/{key}", reader.root);
    match reader.store.put(&object, parts.clone()).await? {
        PutOutcome::Created => Ok(object),
        // An earlier try of the put has arrived.
        PutOutcome::Exists if holds_content(&*reader.store, &object, &parts).await? => Ok(object),
        PutOutcome::Exists => Err(Error::corrupt(format!("{object} exists with other content"))),
    }
}

/// Swaps the extents; false where one has changed. The object, if there is one, is deleted where
/// that certainly did not happen; after an unknown outcome it is left to the cleaner.
pub(crate) async fn swap(
    log: &Log,
    metadata: &MetadataStore,
    object: Option<&str>,
    replacement: &Replacement,
) -> Result<bool> {
    let swapped = swap_extents(log, metadata, replacement).await;
    if is_certainly_not(&swapped) {
        discard(log.reader(), object).await?;
    }
    swapped
}

/// Swaps the extents, whatever becomes of the object; false where one has changed, or an object
/// that they join has died.
pub(crate) async fn swap_extents(
    log: &Log,
    metadata: &MetadataStore,
    replacement: &Replacement,
) -> Result<bool> {
    let swapped = metadata.replace_extents(&log.config().fence, replacement).await;
    // Whatever the answer, the extents may not be what is remembered.
    log.reader().partitions.forget_extents(replacement.partition);
    Ok(swapped? == ChangeOutcome::Applied)
}

/// True where a swap certainly was not made, so that it names nothing.
pub(crate) fn is_certainly_not(swapped: &Result<bool>) -> bool {
    match swapped {
        Ok(is_made) => !is_made,
        Err(error) => error.is_transient(),
    }
}

/// Deletes an object that nothing names and nothing will.
pub(crate) async fn discard(reader: &Reader, object: Option<&str>) -> Result<()> {
    let unused: Vec<String> = object.into_iter().map(str::to_owned).collect();
    reader.store.delete(&unused).await
}
