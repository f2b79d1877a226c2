//! Listens for clients. Accepts Kafka clients until the broker shuts down, and then waits for those
//! that are being answered.

use crate::broker::Broker;
use crate::connection;
use floe_env::{Error, Lane, Result, Shutdown};
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream, lookup_host};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections at one time; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 10_000;
/// At a shutdown, answers that take longer are not waited for.
const DRAIN_MAX: Duration = Duration::from_secs(30);
/// A pause after a failed accept, which mostly means that there are no file handles left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// A client that is idle for so long is asked whether it is there, again after each interval: the
/// kernel's own two hours are longer than connections may be idle, or than most networks remember.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);

/// Clients that the kernel holds until they are accepted.
const BACKLOG: u32 = 1024;

/// Listens on the first of an address's that can be listened on.
///
/// # Errors
/// `Invalid` with the address and the reason.
pub(super) async fn bind(address: &str) -> Result<TcpListener> {
    let failed = |error| Error::invalid(format!("cannot listen on {address}")).with_source(error);
    let mut reason = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for found in lookup_host(address).await.map_err(failed)? {
        match listen(found) {
            Ok(listener) => return Ok(listener),
            Err(error) => reason = error,
        }
    }
    Err(failed(reason))
}

/// What is accepted has the listener's options: a client that is gone without a word is noticed,
/// and an address translation on the way does not forget those that wait.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_AFTER);
    SockRef::from(&socket).set_tcp_keepalive(&keepalive.with_interval(KEEPALIVE_INTERVAL))?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves `listener` until the shutdown; returns when the last connection is answered or the time
/// for that is over.
pub(super) async fn serve(broker: Arc<Broker>, listener: TcpListener) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Some((slot, accepted)) = next_client(&listener, &slots, &broker.shutdown).await else {
            break;
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

/// Who comes next, with a slot; `None` once the broker shuts down, be there a slot or not.
async fn next_client(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
    shutdown: &Shutdown,
) -> Option<(OwnedSemaphorePermit, io::Result<(TcpStream, SocketAddr)>)> {
    let next = async {
        let slot = slots.clone().acquire_owned().await.expect("the slots are never closed");
        (slot, listener.accept().await)
    };
    tokio::select! {
        biased;
        () = shutdown.wait() => None,
        next = next => Some(next),
    }
}

async fn serve_one(broker: Arc<Broker>, stream: TcpStream, host: Arc<str>) {
    // Small answers must not wait for more; a failure only costs that.
    let _ = stream.set_nodelay(true);
    let (read, write) = stream.into_split();
    connection::serve(broker, read, write, host).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's table of connections: "local address, remote address, state, queues, timer".
    /// Timer 2 is that of keepalive.
    #[tokio::test]
    async fn case_178_connections_that_are_idle_are_kept_alive() {
        let listener = bind("localhost:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let _client = TcpStream::connect(address).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let port = format!(":{:04X}", accepted.local_addr().unwrap().port());
        let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(std::fs::read_to_string);
        let established: Vec<String> = tables
            .into_iter()
            .flatten()
            .flat_map(|table| table.lines().map(str::to_owned).collect::<Vec<_>>())
            .filter(|line| {
                let fields: Vec<&str> = line.split_whitespace().collect();
                fields.len() > 5 && fields[1].ends_with(&port) && fields[3] == "01"
            })
            .collect();
        assert_eq!(established.len(), 1, "{established:?}");
        let timer = established[0].split_whitespace().nth(5).unwrap();
        let (kind, ticks) = timer.split_once(':').unwrap();
        // Hundredths of a second.
        let ticks = u64::from_str_radix(ticks, 16).unwrap();
        assert!(kind == "02" && ticks <= 6_100, "{timer}");
    }

    /// A broker that has all the connections that it takes shuts down all the same.
    #[tokio::test]
    async fn a_shutdown_waits_for_no_slot() {
        let listener = bind("127.0.0.1:0").await.unwrap();
        let (trigger, shutdown) = floe_env::shutdown_signal();
        trigger.trigger();
        let slots = Arc::new(Semaphore::new(0));
        let next = next_client(&listener, &slots, &shutdown);
        let next = floe_env::Env::current().timeout(Duration::from_secs(10), next).await;
        assert!(next.expect("it does not wait").is_none());
    }

    #[tokio::test]
    async fn an_address_that_is_taken_is_named() {
        let first = bind("127.0.0.1:0").await.unwrap();
        let address = first.local_addr().unwrap().to_string();
        let error = bind(&address).await.unwrap_err();
        assert!(error.to_string().contains(&format!("cannot listen on {address}")), "{error}");
        assert!(bind("nowhere.invalid:1").await.is_err());
    }
}
