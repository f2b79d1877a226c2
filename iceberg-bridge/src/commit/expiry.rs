//! Which snapshots go. The newest ones stay in one line, so that an incremental reader finds every
//! step from where it is; before them stay those only that a branch or tag names. A tag an hour
//! keeps what a table was at the end of that hour. Pure.

use super::refs::{Refs, tag};
use floe_env::date::utc_text;
use iceberg::spec::{SnapshotRef, SnapshotReference, TableMetadata};
use std::collections::BTreeSet;

/// Snapshots that are kept whatever their age.
pub(super) const SNAPSHOTS_KEPT: usize = 100;
/// Snapshots go in batches of this size, so that few commits have the work.
pub(super) const EXPIRY_BATCH: usize = 50;
/// How the names of hourly tags begin.
const HOUR_TAG_PREFIX: &str = "floe-hour-";
const HOUR_MS: i64 = 60 * 60 * 1000;
const HOURS_PER_DAY: i64 = 24;

/// When snapshots go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpiryRules {
    /// Snapshots above which the oldest go whatever their age, so that metadata stays small.
    pub snapshots_max: usize,
    /// Age below which a snapshot stays, unless there are too many, ms.
    pub snapshot_age_min_ms: i64,
    /// How far back a table can be read as it was at the end of an hour, ms; 0 for not at all.
    pub time_travel_ms: i64,
}

impl Default for ExpiryRules {
    fn default() -> Self {
        Self {
            snapshots_max: 1000,
            snapshot_age_min_ms: HOUR_MS,
            time_travel_ms: HOURS_PER_DAY * HOUR_MS,
        }
    }
}

/// Oldest first, the line never out of its middle, never one that a branch or tag names.
pub(super) fn expired_snapshots(
    metadata: &TableMetadata,
    refs: &Refs,
    now_ms: i64,
    rules: &ExpiryRules,
) -> Vec<SnapshotRef> {
    let mut named: BTreeSet<i64> = refs.values().map(|named| named.snapshot_id).collect();
    // The current snapshot is the next one's parent.
    named.extend(metadata.current_snapshot_id());
    let unnamed = metadata.snapshots().filter(|snapshot| !named.contains(&snapshot.snapshot_id()));
    // The numbers beside the references: to sort these alone would be to jump about in memory.
    let mut oldest_first: Vec<(i64, &SnapshotRef)> =
        unnamed.map(|snapshot| (snapshot.sequence_number(), snapshot)).collect();
    oldest_first.sort_unstable_by_key(|(number, _)| *number);
    // With the current one: what the line would have if there were no tags.
    let count = oldest_first.len() + 1;
    let is_old = |(_, snapshot): &&(i64, &SnapshotRef)| {
        now_ms.saturating_sub(snapshot.timestamp_ms()) >= rules.snapshot_age_min_ms
    };
    let old = oldest_first.iter().take_while(is_old).count();
    let kept = SNAPSHOTS_KEPT.min(rules.snapshots_max);
    let wanted = if metadata.snapshots().len() >= rules.snapshots_max {
        let beyond = metadata.snapshots().len() - rules.snapshots_max;
        (beyond + EXPIRY_BATCH.min(rules.snapshots_max)).max(old.min(count.saturating_sub(kept)))
    } else if count >= kept + EXPIRY_BATCH {
        old.min(count - kept)
    } else {
        0
    };
    oldest_first.into_iter().take(wanted).map(|(_, snapshot)| snapshot.clone()).collect()
}

/// The tag for the end of an hour, if a snapshot of `now_ms` is the first behind it.
pub(super) fn hour_tag(
    parent: Option<&SnapshotRef>,
    now_ms: i64,
    rules: &ExpiryRules,
) -> Option<(String, SnapshotReference)> {
    let parent = parent.filter(|_| rules.time_travel_ms > 0)?;
    let hour = parent.timestamp_ms().div_euclid(HOUR_MS);
    let is_over = now_ms.div_euclid(HOUR_MS) > hour;
    let named = || tag(parent.snapshot_id(), Some(rules.time_travel_ms));
    is_over.then(|| (hour_tag_name(hour), named()))
}

/// Hourly tags of snapshots that are older than the rules' time travel.
pub(super) fn outdated_tags(
    metadata: &TableMetadata,
    refs: &Refs,
    now_ms: i64,
    rules: &ExpiryRules,
) -> Vec<String> {
    let is_outdated = |reference: &SnapshotReference| {
        metadata.snapshot_by_id(reference.snapshot_id).is_none_or(|snapshot| {
            now_ms.saturating_sub(snapshot.timestamp_ms()) > rules.time_travel_ms
        })
    };
    let hourly = refs.iter().filter(|(name, _)| name.starts_with(HOUR_TAG_PREFIX));
    let outdated = hourly.filter(|(_, reference)| is_outdated(reference));
    outdated.map(|(name, _)| name.clone()).collect()
}

/// `floe-hour-2026-11-30T13` of the hours since 1970.
fn hour_tag_name(hour: i64) -> String {
    let time = utc_text(hour * HOUR_MS);
    let (to_the_hour, _) = time.split_once(':').expect("a time has minutes");
    format!("{HOUR_TAG_PREFIX}{to_the_hour}")
}

#[cfg(test)]
mod tests {
    use super::hour_tag_name;

    #[test]
    fn an_hour_has_the_name_of_its_date() {
        assert_eq!(hour_tag_name(498_901), "floe-hour-2026-11-30T13");
    }
}
