//! How far log compaction has got: facts of the job that does it.
//!
//! A mark only saves work. A pass that is not noted is made again, and finds little to do; so the
//! last writer wins.

use crate::marks::Marks;
use crate::store::MetadataStore;
use floe_env::Result;
use kfs::TopicPartition;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the last pass over a partition has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactionMark {
    /// The offset behind what passes have been over.
    pub clean_until: i64,
    /// When the last one began, by the store's clock, ms.
    pub at_ms: i64,
    /// When all that it left for a while (tombstones, markers) may go, ms; `None` where it left
    /// nothing of that kind.
    pub horizon_ms: Option<i64>,
}

const MARKS: Marks = Marks(&["compaction"]);

impl MetadataStore {
    /// All marks: one for each partition that was ever compacted.
    ///
    /// # Errors
    /// Whatever the store answers, and `Corrupt` for a fact that is no mark.
    pub async fn compaction_marks(&self) -> Result<BTreeMap<TopicPartition, CompactionMark>> {
        MARKS.all(self).await
    }

    /// Sets a partition's mark, or removes it.
    ///
    /// # Errors
    /// Whatever the store answers.
    pub async fn set_compaction_mark(
        &self,
        partition: TopicPartition,
        mark: Option<CompactionMark>,
    ) -> Result<()> {
        MARKS.set(self, partition, mark.as_ref()).await
    }
}
