//! Forgetting idempotent producers that write no more, so that what a partition remembers stays
//! bounded by who writes to it. A producer that comes back is taken as a new one, as in Kafka.

use floe_env::{Background, Env, Result, Shutdown};
use floe_metadata::MetadataStore;
use kfs::{PartitionIndex, TopicPartition};
use std::time::Duration;

/// Pause between rounds, as in Kafka.
const ROUND_PAUSE: Duration = Duration::from_secs(600);

/// Starts the background job.
///
/// - `expiration`: `producer.id.expiration.ms`.
pub fn start_producer_expiry(
    env: &Env,
    metadata: MetadataStore,
    expiration: Duration,
    shutdown: Shutdown,
) -> Background {
    let asked = shutdown.clone();
    Background::start(env, "producer expiry", ROUND_PAUSE, shutdown, move || {
        let (metadata, asked) = (metadata.clone(), asked.clone());
        async move {
            let expired = expire_producers(&metadata, expiration, &asked).await?;
            if expired > 0 {
                tracing::debug!(expired, "forgot idle producers");
            }
            Ok(())
        }
    })
}

/// One round over all partitions; it ends early on a shutdown. Answers how many producers were
/// forgotten.
///
/// # Errors
/// The first one that a partition met; the others were visited all the same.
pub async fn expire_producers(
    metadata: &MetadataStore,
    expiration: Duration,
    shutdown: &Shutdown,
) -> Result<usize> {
    let expiration_ms = i64::try_from(expiration.as_millis()).unwrap_or(i64::MAX);
    let written_before_ms = metadata.now_ms().await?.saturating_sub(expiration_ms);
    let (mut expired, mut failure) = (0, None);
    for topic in metadata.topics().await? {
        for index in 0..topic.partition_count {
            if shutdown.is_triggered() {
                return Ok(expired);
            }
            let partition = TopicPartition { topic: topic.id, partition: PartitionIndex(index) };
            match metadata.expire_producers(partition, written_before_ms).await {
                Ok(count) => expired += count,
                Err(error) => failure = failure.or(Some(error)),
            }
        }
    }
    failure.map_or(Ok(expired), Err)
}
