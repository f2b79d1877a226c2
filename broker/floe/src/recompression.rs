//! Batches of topics that set a codec: before they enter the log they are compressed with it, off
//! the runtime's threads and few at once, as each may take hundreds of MiB for a moment. A batch
//! that has the codec already stays as it is.

use crate::topic_settings::TopicSettings;
use bytes::Bytes;
use floe_env::Env;
use kfs::{BatchError, BatchView};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Batches that are recompressed at once.
const RUNNING_MAX: usize = 4;

/// Recompresses batches.
pub(crate) struct Recompression {
    turns: Arc<Semaphore>,
}

impl Recompression {
    pub(crate) fn new() -> Self {
        Self { turns: Arc::new(Semaphore::new(RUNNING_MAX)) }
    }

    /// The batch as its topic wants it; it has been validated.
    ///
    /// # Errors
    /// `TooLarge` where the topic's codec makes more of it than the topic takes.
    pub(crate) async fn apply(
        &self,
        env: &Env,
        settings: &TopicSettings,
        batch: Bytes,
    ) -> Result<Bytes, BatchError> {
        let Some(wanted) = settings.codec else { return Ok(batch) };
        if BatchView::parse(&batch)?.header.codec()? == wanted.codec {
            return Ok(batch);
        }
        let turn = self.turns.clone().acquire_owned().await.expect("nobody closes the semaphore");
        let decompressed_bytes_max = settings.decompressed_bytes_max;
        let recompressed = env.blocking(move || {
            // The work goes on where its caller goes away, and so does its turn.
            let _turn = turn;
            kfs::recompress(&batch, wanted.codec, wanted.level, decompressed_bytes_max)
        });
        let recompressed = recompressed.await?;
        let (bytes, bytes_max) = (recompressed.len(), settings.message_bytes_max);
        if bytes > bytes_max {
            return Err(BatchError::TooLarge { bytes, bytes_max });
        }
        Ok(recompressed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use floe_env::simulated::Node;
    use kfs::{BatchBuilder, Codec, NewRecord};
    use std::collections::BTreeMap;

    /// What is used of the environment is blocking work, which the simulation does inline.
    fn env() -> Env {
        Env::simulated(Node::new(1))
    }

    fn settings(pairs: &[(&str, &str)]) -> TopicSettings {
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        TopicSettings::of(&pairs.collect::<BTreeMap<_, _>>(), 1 << 20)
    }

    fn batch(codec: Codec) -> Bytes {
        let mut builder = BatchBuilder::new().codec(codec, None);
        for timestamp_ms in 0..50 {
            let value = Some(&b"the same value again and again"[..]);
            builder.push(&NewRecord { timestamp_ms, value, ..NewRecord::default() }).unwrap();
        }
        builder.build().unwrap()
    }

    async fn apply(pairs: &[(&str, &str)], batch: Bytes) -> Result<Bytes, BatchError> {
        Recompression::new().apply(&env(), &settings(pairs), batch).await
    }

    #[tokio::test]
    async fn every_codec_becomes_the_topics() {
        for (name, codec) in [
            ("gzip", Codec::Gzip),
            ("snappy", Codec::Snappy),
            ("lz4", Codec::Lz4),
            ("zstd", Codec::Zstd),
            ("uncompressed", Codec::None),
        ] {
            for sent in Codec::ALL {
                let stored = apply(&[("compression.type", name)], batch(sent)).await.unwrap();
                let view = BatchView::parse(&stored).unwrap();
                assert_eq!(view.header.codec(), Ok(codec), "{name} of {sent:?}");
                let records = view.records(1 << 20).unwrap();
                let plain = batch(Codec::None);
                let plain = BatchView::parse(&plain).unwrap();
                assert_eq!(records.bytes(), plain.records(1 << 20).unwrap().bytes());
            }
        }
    }

    #[tokio::test]
    async fn what_the_producer_chose_stays_unless_the_topic_says_otherwise() {
        let sent = batch(Codec::Gzip);
        for pairs in [&[][..], &[("compression.type", "producer")], &[("compression.type", "gzip")]]
        {
            assert_eq!(apply(pairs, sent.clone()).await, Ok(sent.clone()), "{pairs:?}");
        }
    }

    #[tokio::test]
    async fn a_batch_that_grows_too_large_is_refused() {
        let sent = batch(Codec::Zstd);
        let limit = (sent.len() + 1).to_string();
        let pairs = [("compression.type", "uncompressed"), ("max.message.bytes", limit.as_str())];
        let refused = apply(&pairs, sent).await.unwrap_err();
        assert!(matches!(refused, BatchError::TooLarge { .. }), "{refused:?}");
    }
}
