//! Accepts HTTP connections and serves a router on them.

use axum::Router;
use floe_env::{Env, Lane, Shutdown};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections at once; more wait in the system's queue until one ends.
pub const CONNECTIONS_MAX: usize = 1024;
/// Bytes of a request's body that are read, unless a route sets its own limit.
pub const BODY_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Bytes of a request's line and headers, and of what is read ahead.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// A request's line and headers must come within this time, also on a connection that was idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Requests that run at a shutdown may take so long.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// A pause after a failed accept, which mostly means that there are no file handles left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves `router` on `listener` until `shutdown`; then takes no new connection, and waits up to
/// 5 s for the requests that run.
pub async fn serve(env: Env, listener: TcpListener, router: Router, shutdown: Shutdown) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let (stream, slot) = tokio::select! {
            biased;
            () = shutdown.wait() => break,
            accepted = accept(&env, &listener, &slots) => accepted,
        };
        let connection = serve_connection(env.clone(), stream, router.clone(), shutdown.clone());
        env.spawn("http connection", Lane::Foreground, async move {
            connection.await;
            drop(slot);
        });
    }
    drop(listener);
    let all = u32::try_from(CONNECTIONS_MAX).expect("the limit is small");
    if env.timeout(DRAIN_TIMEOUT, slots.acquire_many(all)).await.is_none() {
        tracing::warn!("http requests still run at the end of the shutdown's patience");
    }
}

async fn accept(
    env: &Env,
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> (TcpStream, OwnedSemaphorePermit) {
    let slot = slots.clone().acquire_owned().await.expect("the semaphore is never closed");
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return (stream, slot),
            Err(error) => {
                tracing::warn!(%error, "cannot accept an http connection");
                env.sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve_connection(env: Env, stream: TcpStream, router: Router, shutdown: Shutdown) {
    // Without it small answers wait for the client's acknowledgement; a failure only costs time.
    let _ = stream.set_nodelay(true);
    let service = TowerToHyperService::new(router);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        () = shutdown.wait() => {
            connection.as_mut().graceful_shutdown();
            env.timeout(DRAIN_TIMEOUT, connection).await
        }
    };
    if let Some(Err(error)) = ended {
        // A client that hangs up or talks nonsense is its own affair.
        tracing::debug!(%error, "http connection ended");
    }
}
