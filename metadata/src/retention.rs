//! Since when records are in the log, where their timestamps do not tell: facts of the job that
//! removes old records.
//!
//! A record that carries no timestamp, or one that was long past when it came, was written some
//! time before it was first found at the beginning of its log. A mark notes when that was and where
//! the log ended then: all that lies below is older. It stays right whatever happens, so the last
//! writer wins.

use crate::marks::Marks;
use crate::store::MetadataStore;
use floe_env::Result;
use kfs::TopicPartition;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Everything below an offset was written before a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenMark {
    /// The log's end then.
    pub end: i64,
    /// When that was, by the store's clock, ms.
    pub since_ms: i64,
}

impl WrittenMark {
    /// True where it says something about the record of this offset.
    pub fn covers(&self, offset: i64) -> bool {
        offset < self.end
    }
}

/// Named after the marks' first use; what is stored keeps its name.
const MARKS: Marks = Marks(&["retention", "untimed"]);

impl MetadataStore {
    /// All marks; mostly there are none.
    ///
    /// # Errors
    /// Whatever the store answers, and `Corrupt` for a fact that is no mark.
    pub async fn written_marks(&self) -> Result<BTreeMap<TopicPartition, WrittenMark>> {
        MARKS.all(self).await
    }

    /// Sets a partition's mark, or removes it.
    ///
    /// # Errors
    /// Whatever the store answers.
    pub async fn set_written_mark(
        &self,
        partition: TopicPartition,
        mark: Option<WrittenMark>,
    ) -> Result<()> {
        MARKS.set(self, partition, mark.as_ref()).await
    }
}
