//! Accepts Kafka clients until the broker shuts down, and then waits for those that are being
//! answered.

use crate::broker::Broker;
use crate::connection;
use floe_env::Lane;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Connections at one time; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 10_000;
/// At a shutdown, answers that take longer are not waited for.
const DRAIN_MAX: Duration = Duration::from_secs(30);
/// A pause after a failed accept, which mostly means that there are no file handles left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves `listener` until the shutdown; returns when the last connection is answered or the time
/// for that is over.
pub(super) async fn serve(broker: Arc<Broker>, listener: TcpListener) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let slot = slots.clone().acquire_owned().await.expect("the slots are never closed");
        let accepted = tokio::select! {
            biased;
            () = broker.shutdown.wait() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                broker.env.sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let connection = serve_one(broker.clone(), stream, address.ip().to_string().into());
        let gauge = broker.metrics.kafka.connections.clone();
        broker.metrics.kafka.connections_opened.inc();
        gauge.inc();
        broker.env.spawn("kafka connection", Lane::Foreground, async move {
            connection.await;
            gauge.dec();
            drop(slot);
        });
    }
    drop(listener);
    let all = u32::try_from(CONNECTIONS_MAX).unwrap_or(u32::MAX);
    if broker.env.timeout(DRAIN_MAX, slots.acquire_many(all)).await.is_none() {
        tracing::warn!("connections are cut: their answers took too long");
    }
}

async fn serve_one(broker: Arc<Broker>, stream: TcpStream, host: Arc<str>) {
    // Small answers must not wait for more; a failure only costs that.
    let _ = stream.set_nodelay(true);
    let (read, write) = stream.into_split();
    connection::serve(broker, read, write, host).await;
}
