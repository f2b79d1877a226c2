//! What happens to transactional ids without anybody asking: transactions that are open for too
//! long are aborted, so that they hold no reader up, ids that nobody uses are forgotten, and what
//! has become of ends in doubt is looked at. Every broker does it; each change is made on condition
//! that the row is what was read, so once is enough.
//!
//! A round reads every row, 1,000 at a time: their number is bounded by their expiry.

use super::Transactions;
use crate::broker::Broker;
use floe_coordinator::transactions::{is_expired, time_out};
use floe_env::{Background, Error, Result};
use std::sync::Arc;
use std::time::Duration;

/// The pause between two rounds; Kafka's
/// `transaction.abort.timed.out.transaction.cleanup.interval.ms`.
const ROUND_PAUSE: Duration = Duration::from_secs(10);
/// Rows that are read at once.
const ROWS_PAGE: usize = 1000;

impl Broker {
    /// Starts the job that aborts transactions which are open for too long, and forgets idle ids.
    pub fn tend_transactions(self: &Arc<Self>) -> Background {
        let (broker, shutdown) = (Arc::downgrade(self), self.shutdown.clone());
        Background::start(&self.env, "transactions", ROUND_PAUSE, shutdown, move || {
            let broker = broker.upgrade();
            async move {
                match broker {
                    Some(broker) => Transactions(&broker).round().await,
                    None => Ok(()),
                }
            }
        })
    }
}

impl Transactions<'_> {
    async fn round(&self) -> Result<()> {
        let (metadata, now_ms) = (&self.0.metadata, self.0.metadata.now_ms().await?);
        let expiration = self.0.config.kafka.transactional_id_expiration;
        let expiration_ms = i64::try_from(expiration.as_millis()).unwrap_or(i64::MAX);
        let mut failure = self.settle_all().await.err();
        let mut after: Option<String> = None;
        loop {
            let page = metadata.transactions_after(after.as_deref(), ROWS_PAGE).await?;
            let is_last = page.len() < ROWS_PAGE;
            after = page.last().map(|known| known.id.clone());
            for known in page {
                if let Some((row, ending)) = time_out(&known.row, now_ms) {
                    tracing::info!(transactional_id = known.id, "a transaction has timed out");
                    if let Err(code) = self.end_known(&known, &row, ending).await {
                        failure = Some(Error::retry(format!("a time-out's abort: {code:?}")));
                    }
                } else if is_expired(&known.row, now_ms, expiration_ms) {
                    failure = metadata.delete_transaction(&known).await.err().or(failure);
                }
            }
            if is_last || self.0.shutdown.is_triggered() {
                return failure.map_or(Ok(()), Err);
            }
        }
    }
}
