//! What `floe doctor` says of retention: partitions whose log begins with records that should be
//! gone. It looks at the first extent of each partition, and changes nothing.

use crate::config::Config;
use crate::topic_configs::{self, ServerValues};
use floe_env::Result;
use floe_env::date::utc_text;
use floe_log::{FUTURE_MS, RetentionTerms};
use floe_metadata::MetadataStore;
use floe_metadata::rows::{Extent, PartitionState};
use kfs::{PartitionIndex, TopicPartition};
use std::time::Duration;

/// Lines that are shown; a last one says how many there are besides.
const LINES_MAX: usize = 100;
/// Partitions between two words of progress.
const PROGRESS_EVERY: usize = 1000;

/// The first lines, and how many others there are.
#[derive(Default)]
struct Lines {
    shown: Vec<String>,
    others: usize,
}

/// One line for each partition that keeps records for longer than its topic's configs say, and than
/// a round of retention and the wait for a table explain.
///
/// # Errors
/// Whatever the metadata store answers.
pub(super) async fn kept(
    metadata: &MetadataStore,
    config: &Config,
    progress: &(dyn Fn(String) + Send + Sync),
) -> Result<Vec<String>> {
    let now_ms = metadata.now_ms().await?;
    let (mut lines, mut seen) = (Lines::default(), 0);
    for topic in metadata.topics().await? {
        let server = ServerValues::of_topic(config, &topic.name);
        let terms = topic_configs::terms(&topic.configs, server);
        let Some(after_ms) = over_after_ms(config, &terms) else { continue };
        let partitions: Vec<TopicPartition> = (0..topic.partition_count)
            .map(|index| TopicPartition { topic: topic.id, partition: PartitionIndex(index) })
            .collect();
        let states = metadata.partition_states(&partitions).await?;
        for (partition, state) in partitions.into_iter().zip(states) {
            seen += 1;
            if seen % PROGRESS_EVERY == 0 {
                progress(format!("the first records of {seen} partitions"));
            }
            let Some(state) = state else { continue };
            let Some(first) = first_extent(metadata, partition, &state).await? else { continue };
            if let Some(why) = why_kept(first.max_timestamp_ms, now_ms, after_ms) {
                lines.push(format!("{}-{}: {why}", topic.name, partition.partition.0));
            }
        }
    }
    Ok(lines.all())
}

impl Lines {
    fn push(&mut self, line: String) {
        match self.shown.len() < LINES_MAX {
            true => self.shown.push(line),
            false => self.others += 1,
        }
    }

    fn all(mut self) -> Vec<String> {
        if self.others > 0 {
            self.shown.push(format!("... and {} more partitions", self.others));
        }
        self.shown
    }
}

/// The age at which records are gone, ms: what the topic keeps, the longest wait for its table, and
/// two rounds. `None` where age takes nothing away.
fn over_after_ms(config: &Config, terms: &RetentionTerms) -> Option<i64> {
    let ms = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    let wait_ms = if terms.has_table { ms(config.iceberg.log_hold) } else { 0 };
    let rounds_ms = ms(config.kafka.log_retention.check_interval).saturating_mul(2);
    Some(terms.time_ms?.saturating_add(wait_ms).saturating_add(rounds_ms))
}

/// The first extent below the last stable offset.
async fn first_extent(
    metadata: &MetadataStore,
    partition: TopicPartition,
    state: &PartitionState,
) -> Result<Option<Extent>> {
    if state.log_start_offset >= state.last_stable_offset {
        return Ok(None);
    }
    let page = metadata.extents(partition, state.log_start_offset, 1).await?;
    let first = page.and_then(|page| page.extents.into_iter().next());
    Ok(first.filter(|first| first.last_offset < state.last_stable_offset))
}

/// Why records that begin with some newest timestamp are still there, if they should not be.
fn why_kept(newest_ms: i64, now_ms: i64, over_after_ms: i64) -> Option<String> {
    if newest_ms > now_ms.saturating_add(FUTURE_MS) {
        let until = utc_text(newest_ms);
        return Some(format!(
            "its first records are dated {until}, in the future, and keep all behind them; \
             DeleteRecords removes them"
        ));
    }
    // The age of a record without a timestamp is not in it.
    let is_late = newest_ms >= 0 && now_ms.saturating_sub(newest_ms) > over_after_ms;
    is_late.then(|| {
        let of = utc_text(newest_ms);
        format!(
            "its first records are of {of}, and should be gone: retention has made no round since"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::{LINES_MAX, Lines, why_kept};

    #[test]
    fn what_is_not_shown_is_counted() {
        let of = |count: usize| {
            let mut lines = Lines::default();
            (0..count).for_each(|at| lines.push(at.to_string()));
            lines.all()
        };
        assert_eq!(of(LINES_MAX).len(), LINES_MAX);
        let more = of(LINES_MAX + 2);
        assert_eq!(more.len(), LINES_MAX + 1);
        assert_eq!(more[LINES_MAX], "... and 2 more partitions");
    }

    #[test]
    fn records_are_late_only_when_nothing_explains_it() {
        let hour = 3_600_000;
        let now_ms = 100 * hour;
        let why = |newest_ms| why_kept(newest_ms, now_ms, 24 * hour);
        for explained_ms in [now_ms, 76 * hour, now_ms + hour, -1] {
            assert_eq!(why(explained_ms), None, "{explained_ms}");
        }
        assert!(why(76 * hour - 1).unwrap().contains("1970-01-04T03:59:59Z, and should be gone"));
        assert!(why(now_ms + hour + 1).unwrap().contains("in the future"));
        assert_eq!(why_kept(0, i64::MAX, i64::MAX), None);
    }
}
