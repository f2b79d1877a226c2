//! What retention asks the broker: what topics' configs keep, and how far tables have got.

use crate::config::Config;
use crate::topic_configs::{self, ServerValues};
use floe_env::date::utc_text;
use floe_env::{Error, Result};
use floe_iceberg_bridge::progress::Progress;
use floe_log::{Kept, RetentionPolicy, RetentionTerms};
use floe_metadata::topics::Topic;
use std::sync::Arc;

/// The topics' configs over the broker's.
pub(crate) struct TopicRetention(pub(crate) Arc<Config>);

impl RetentionPolicy for TopicRetention {
    fn terms(&self, topic: &Topic) -> RetentionTerms {
        let server = ServerValues::of_topic(&self.0, &topic.name);
        topic_configs::terms(&topic.configs, server)
    }

    fn table_ends(&self, progress: &[u8]) -> Result<Vec<i64>> {
        table_ends(progress)
    }
}

/// The first offset of each partition that a table lacks, by its progress as the bridge packs it.
pub(crate) fn table_ends(progress: &[u8]) -> Result<Vec<i64>> {
    let text = std::str::from_utf8(progress)
        .map_err(|error| Error::corrupt("a table's progress is no text").with_source(error))?;
    Ok(Progress::unpack(text)?.next_offsets)
}

/// Why a partition keeps records for longer, in words.
pub(crate) fn describe_kept(kept: Kept) -> String {
    match kept {
        Kept::Future(timestamp_ms) => {
            format!("a record is dated {}, in the future", utc_text(timestamp_ms))
        }
        Kept::ForTable(offset) => format!("the table has read no further than offset {offset}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kfs::TopicId;
    use uuid::Uuid;

    #[test]
    fn a_reason_is_told_in_words() {
        let future = describe_kept(Kept::Future(4_102_444_800_000));
        assert_eq!(future, "a record is dated 2100-01-01T00:00:00Z, in the future");
        let table = describe_kept(Kept::ForTable(7));
        assert_eq!(table, "the table has read no further than offset 7");
    }

    #[test]
    fn a_tables_progress_is_what_the_bridge_writes() {
        let inputs = crate::config::Inputs {
            flags: Vec::new(),
            environment: std::collections::BTreeMap::new(),
            file: None,
            machine: crate::config::Machine { memory_bytes: 4 << 30 },
        };
        let config = Config::from_resolved(&crate::config::resolve(&inputs).unwrap()).unwrap();
        let policy = TopicRetention(Arc::new(config));
        let mut progress = Progress::start(TopicId(Uuid::from_u128(1)));
        progress.advance(2, 99);
        assert_eq!(policy.table_ends(progress.pack().as_bytes()).unwrap(), [0, 0, 99]);
        assert!(policy.table_ends(b"\xff").is_err() && policy.table_ends(b"7").is_err());
    }
}
