//! What compaction asks the broker: what topics' configs say, and how far tables have got.

use crate::config::Config;
use crate::retention::table_ends;
use crate::topic_configs::{self, ServerValues};
use floe_env::Result;
use floe_log::{CompactionPolicy, CompactionTerms};
use floe_metadata::topics::Topic;
use std::sync::Arc;

/// The topics' configs over the broker's.
pub(crate) struct TopicCompaction(pub(crate) Arc<Config>);

impl CompactionPolicy for TopicCompaction {
    fn terms(&self, topic: &Topic) -> Option<CompactionTerms> {
        let is_on = self.0.kafka.log_cleaner.enable;
        let server = ServerValues::of_topic(&self.0, &topic.name);
        is_on.then(|| topic_configs::compaction_terms(&topic.configs, server)).flatten()
    }

    fn table_ends(&self, progress: &[u8]) -> Result<Vec<i64>> {
        table_ends(progress)
    }
}

/// Why a partition is not compacted further, in words.
pub(crate) fn describe_waiting(table_end: i64) -> String {
    format!("compaction waits: the table has read no further than offset {table_end}")
}
