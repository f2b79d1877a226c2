//! What compaction makes of one batch: pure, and as Kafka's cleaner does it.
//!
//! * Of each key the newest record stays. Records without a key go: they are from before the topic
//!   was compacted.
//! * A **tombstone**, a record without a value, stays until the **delete horizon** of its batch,
//!   which the first pass that leaves one in a batch sets, so that readers have time to see it.
//!   The horizon takes the place of the batch's base timestamp; the records' own times stay.
//! * Records of aborted transactions go. A marker whose transaction has no batch left gets a
//!   horizon, too, and goes after it.
//! * A batch keeps its offsets, producer, sequences, codec and leader epoch, and its records'
//!   offsets, times and headers. A batch without records goes, but for the last one of its
//!   producer, and for the last of all that compaction may reach: whoever reads on from within the
//!   hole must find something that tells where it ends.
//!
//! Horizons are set and reached only in order: a pass begins at the start of the log, so whoever
//! finds a tombstone with a horizon knows that everything older of its key is gone.

use super::newest::{Full, NewestOffsets};
use super::transactions::{Aborted, LastBatches, Unended};
use bytes::Bytes;
use kfs::{
    BatchBuilder, BatchError, BatchHeader, BatchRecords, BatchView, HeaderRef, NewRecord, Record,
};

/// A marker stays so long at least after its transaction's records, ms, however soon tombstones may
/// go: what was aborted is told until then, and whoever is just reading those records needs it.
pub(crate) const MARKER_KEPT_MS_MIN: i64 = 10 * 60 * 1000;

/// What becomes of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cleaned {
    /// It stays as it is.
    Kept,
    /// This stands in its place.
    Rewritten(Bytes),
    /// It goes.
    Gone,
}

/// By which rules one pass cleans.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) now_ms: i64,
    /// `delete.retention.ms`
    pub(crate) delete_retention_ms: i64,
    /// The end of what compaction may reach.
    pub(crate) until: i64,
    /// Bytes that the records of one batch may decompress to.
    pub(crate) decompressed_bytes_max: usize,
}

/// What a pass has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Records that went.
    pub(crate) records_removed: u64,
    /// The latest delete horizon that is ahead or was set by this pass, ms: by then everything that
    /// waits for one may go.
    pub(crate) horizon_ms: Option<i64>,
}

/// Cleans the batches of one pass, which come in the log's order.
pub(crate) struct BatchCleaner {
    pub(crate) rules: Rules,
    pub(crate) newest: NewestOffsets,
    pub(crate) last_batches: LastBatches,
    pub(crate) unended: Unended,
    pub(crate) tally: Tally,
}

/// What stays of a batch.
struct Decided {
    /// One a record.
    stays: Vec<bool>,
    removed: u64,
    has_tombstones: bool,
}

/// Notes the newest offsets of a batch's keys, from the offset `from` on. `Full` where not all of
/// them had room.
///
/// # Errors
/// As [`BatchView::records`], and of a record that makes no sense.
pub(crate) fn note_keys(
    newest: &mut NewestOffsets,
    batch: &BatchView<'_>,
    aborted: &Aborted,
    from: i64,
    decompressed_bytes_max: usize,
) -> Result<Result<(), Full>, BatchError> {
    let header = &batch.header;
    if !header.is_control() && !aborted.holds(header) {
        for record in batch.records(decompressed_bytes_max)?.iter() {
            let record = record?;
            let offset = offset_of(header, &record);
            let Some(key) = record.key.filter(|_| offset >= from) else { continue };
            if newest.note(key, offset).is_err() {
                newest.saw(offset - 1);
                return Ok(Err(Full));
            }
        }
    }
    newest.saw(header.last_offset());
    Ok(Ok(()))
}

impl BatchCleaner {
    /// What becomes of the next batch.
    ///
    /// # Errors
    /// As [`BatchView::records`], and of a record that makes no sense.
    pub(crate) fn clean(
        &mut self,
        batch: &BatchView<'_>,
        aborted: &Aborted,
    ) -> Result<Cleaned, BatchError> {
        let header = &batch.header;
        let ends_nothing = self.unended.pass(header);
        if header.base_offset > self.newest.latest() {
            return Ok(self.kept(header));
        }
        let is_past = self.is_past_horizon(header);
        let goes = aborted.holds(header) || (ends_nothing && is_past);
        let stays_empty =
            self.last_batches.holds(header) || header.last_offset() + 1 == self.rules.until;
        if goes && !stays_empty {
            self.tally.records_removed += u64::from(header.record_count.unsigned_abs());
            return Ok(Cleaned::Gone);
        }
        let records = batch.records(self.rules.decompressed_bytes_max)?;
        let decided = self.decide(&records, goes)?;
        self.tally.records_removed += decided.removed;
        if decided.removed == decided.stays.len() as u64 {
            return Ok(match (stays_empty, header.record_count) {
                (false, _) => Cleaned::Gone,
                (true, 0) => Cleaned::Kept,
                (true, _) => Cleaned::Rewritten(kfs::empty_batch(header)),
            });
        }
        let horizon_ms = self.new_horizon(header, decided.has_tombstones, ends_nothing);
        if decided.removed == 0 && horizon_ms.is_none() {
            return Ok(self.kept(header));
        }
        let rewritten = rewritten(&records, &decided.stays, horizon_ms)?;
        // What has got its horizon only now goes with a later pass, even if that may be at once.
        self.tally.horizon_ms = self.tally.horizon_ms.max(horizon_ms);
        self.wait_for(pending(header));
        Ok(Cleaned::Rewritten(rewritten))
    }

    fn decide(&self, records: &BatchRecords<'_>, all_go: bool) -> Result<Decided, BatchError> {
        let header = &records.header;
        let is_past = self.is_past_horizon(header);
        let mut decided = Decided { stays: Vec::new(), removed: 0, has_tombstones: false };
        for record in records.iter() {
            let record = record?;
            let stays = !all_go && (header.is_control() || self.stays(header, &record, is_past));
            decided.stays.push(stays);
            decided.removed += u64::from(!stays);
            decided.has_tombstones |= stays && record.value.is_none();
        }
        Ok(decided)
    }

    fn stays(&self, header: &BatchHeader, record: &Record<'_>, is_past: bool) -> bool {
        let offset = offset_of(header, record);
        if offset > self.newest.latest() {
            return true;
        }
        let Some(key) = record.key else { return false };
        let is_newest = self.newest.get(key).is_none_or(|newest| offset >= newest);
        is_newest && (record.value.is_some() || !is_past)
    }

    /// The horizon that a batch gets now. None that reaches beyond what all keys are known of:
    /// there, what is older may still be in the log.
    fn new_horizon(
        &self,
        header: &BatchHeader,
        has_tombstones: bool,
        ends_nothing: bool,
    ) -> Option<i64> {
        if header.has_delete_horizon() || header.last_offset() > self.newest.latest() {
            return None;
        }
        let kept_ms = match (ends_nothing, has_tombstones) {
            (true, _) => self.rules.delete_retention_ms.max(MARKER_KEPT_MS_MIN),
            (false, true) => self.rules.delete_retention_ms,
            (false, false) => return None,
        };
        Some(self.rules.now_ms.saturating_add(kept_ms))
    }

    fn is_past_horizon(&self, header: &BatchHeader) -> bool {
        pending(header).is_some_and(|horizon_ms| horizon_ms <= self.rules.now_ms)
    }

    fn kept(&mut self, header: &BatchHeader) -> Cleaned {
        self.wait_for(pending(header));
        Cleaned::Kept
    }

    fn wait_for(&mut self, horizon_ms: Option<i64>) {
        let ahead = horizon_ms.filter(|horizon_ms| *horizon_ms > self.rules.now_ms);
        self.tally.horizon_ms = self.tally.horizon_ms.max(ahead);
    }
}

/// The horizon that a batch has.
fn pending(header: &BatchHeader) -> Option<i64> {
    header.has_delete_horizon().then_some(header.base_timestamp_ms)
}

fn offset_of(header: &BatchHeader, record: &Record<'_>) -> i64 {
    header.base_offset.saturating_add(i64::from(record.offset_delta))
}

/// The batch with the records that stay, and a new horizon if there is one.
fn rewritten(
    records: &BatchRecords<'_>,
    stays: &[bool],
    horizon_ms: Option<i64>,
) -> Result<Bytes, BatchError> {
    let header = &records.header;
    let mut builder = BatchBuilder::replacing(header, header.codec()?);
    if let Some(horizon_ms) = horizon_ms {
        builder = builder.delete_horizon(horizon_ms);
    }
    let too_large = |_| BatchError::TooLarge {
        bytes: records.bytes().len(),
        bytes_max: kfs::writer::RECORD_BYTES_MAX,
    };
    let mut headers: Vec<HeaderRef<'_>> = Vec::new();
    for (record, _) in records.iter().zip(stays).filter(|(_, stays)| **stays) {
        let record = record?;
        headers.clear();
        headers.extend(record.headers);
        let kept = NewRecord {
            timestamp_ms: header.record_timestamp_ms(record.timestamp_delta),
            key: record.key,
            value: record.value,
            headers: &headers,
        };
        builder.push_at(record.offset_delta, &kept).map_err(too_large)?;
    }
    builder.build().map_err(too_large)
}

#[cfg(test)]
mod tests;
