//! Producer ids, handed out from blocks that the metadata store allocates; none is ever given
//! twice, also not after a crash: what is left of a block is then lost.

use floe_env::Result;
use floe_metadata::MetadataStore;
use std::ops::Range;
use tokio::sync::Mutex;

/// Ids in a block: one metadata transaction for so many producers.
const BLOCK_LEN: u32 = 1000;

/// Hands out producer ids.
pub(crate) struct ProducerIds {
    metadata: MetadataStore,
    block: Mutex<Range<i64>>,
}

impl ProducerIds {
    /// Takes its first block when the first id is asked for.
    pub(crate) fn new(metadata: MetadataStore) -> Self {
        Self { metadata, block: Mutex::new(0..0) }
    }

    /// A new id.
    pub(crate) async fn next(&self) -> Result<i64> {
        let mut block = self.block.lock().await;
        if let Some(id) = block.next() {
            return Ok(id);
        }
        *block = self.metadata.allocate_producer_ids(BLOCK_LEN).await?;
        block.next().ok_or_else(|| floe_env::Error::bug("an empty block of producer ids"))
    }
}
