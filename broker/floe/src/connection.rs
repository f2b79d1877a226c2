//! One client's connection: requests are read and take effect in order of arrival, waits of earlier
//! ones overlap with later ones, and answers leave in order. Generic over the stream, so that the
//! simulation needs no sockets.

use crate::api::{self, Principal, Reply, RequestContext};
use crate::broker::Broker;
use crate::frame_memory::Part;
use bytes::Bytes;
use floe_env::Instant;
use floe_wire::frame::LENGTH_BYTES;
use floe_wire::{FrameError, FrameReader, FrameWriter, ParsedRequest, messages, request};
use futures::FutureExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

/// Requests of one connection that wait for their answer at most; more are not read.
const REQUESTS_PIPELINED_MAX: usize = 128;
/// Answers that are gathered before they are written even though more are ready, bytes.
const WRITE_GATHER_BYTES_MAX: usize = 1 << 20;

/// A frame of which nothing more comes for so long is given up while others wait for memory.
const FRAME_PAUSE_MAX: Duration = Duration::from_secs(2);
/// How long all of a frame may take while others wait for the memory that it holds.
const FRAME_ARRIVES_WITHIN: Duration = Duration::from_secs(30);
/// How long a client may take over its answers while others wait for the memory that they hold.
const ANSWER_TAKEN_WITHIN: Duration = Duration::from_secs(30);

/// A request's answer in its turn, with the memory that the request holds until then.
struct Turn {
    reply: Reply,
    memory: Memory,
    arrival: Arrival,
}

/// What is known of a request when it has arrived whole.
#[derive(Clone, Copy)]
struct Arrival {
    api_key: i16,
    frame_bytes: usize,
    at: Instant,
}

/// A frame's share of the broker's and of its connection's memory.
struct Memory {
    _of_broker: OwnedSemaphorePermit,
    _of_connection: OwnedSemaphorePermit,
}

/// Why no more requests are read.
enum ReadEnd {
    /// The client has gone, or sent what cannot be read: nothing more is answered.
    Gone,
    /// The broker shuts down: what was read is answered.
    Shutdown,
}

/// Serves one client until it leaves, misbehaves, is idle for too long, or the broker shuts down.
pub async fn serve<R, W>(broker: Arc<Broker>, read: R, write: W, host: Arc<str>)
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    let (turns, waiting) = mpsc::channel(REQUESTS_PIPELINED_MAX);
    let reading = read_requests(&broker, read, turns, host);
    let writing = write_answers(&broker, FrameWriter::new(write), waiting);
    tokio::pin!(reading, writing);
    let ended = tokio::select! {
        ended = &mut reading => ended,
        () = &mut writing => return,
    };
    if let ReadEnd::Shutdown = ended {
        writing.await;
    }
}

async fn read_requests<R: AsyncRead + Unpin>(
    broker: &Arc<Broker>,
    read: R,
    turns: mpsc::Sender<Turn>,
    host: Arc<str>,
) -> ReadEnd {
    let kafka = &broker.config.kafka;
    let frame_bytes_max = usize::try_from(kafka.socket_request_max_bytes).unwrap_or(0);
    let connection_memory = Part::new(broker.config.memory.per_connection_bytes);
    let mut frames = FrameReader::new(read, frame_bytes_max);
    loop {
        let next = broker.env.timeout(kafka.connections_max_idle, frames.length());
        let length = tokio::select! {
            biased;
            () = broker.shutdown.wait() => return ReadEnd::Shutdown,
            length = next => length,
        };
        let length = match length {
            None => return ReadEnd::Gone,
            Some(Ok(None)) => return ReadEnd::Gone,
            Some(Ok(Some(length))) => length,
            Some(Err(error)) => return lost(broker, &host, &error),
        };
        let of_connection = connection_memory.take(length).await;
        let of_broker = broker.frame_memory.take(length).await;
        let memory = Memory { _of_broker: of_broker, _of_connection: of_connection };
        let frame = match arrived(broker, &mut frames, &host).await {
            Ok(frame) => frame,
            Err(end) => return end,
        };
        let arrival = Arrival {
            // A frame has at least its header's first field, or it is refused below.
            api_key: frame.first_chunk().copied().map_or(-1, i16::from_be_bytes),
            frame_bytes: LENGTH_BYTES + frame.len(),
            at: broker.env.monotonic(),
        };
        let reply = handle(broker, frame, &host).await;
        let is_last = matches!(reply, Reply::Close);
        if turns.send(Turn { reply, memory, arrival }).await.is_err() || is_last {
            return ReadEnd::Shutdown;
        }
    }
}

/// The frame that was announced. Nobody waits for ever for one that does not come: not beyond the
/// time that a connection may be idle, and much less while others wait for the memory it holds.
async fn arrived<R: AsyncRead + Unpin>(
    broker: &Broker,
    frames: &mut FrameReader<R>,
    host: &str,
) -> Result<Bytes, ReadEnd> {
    let began = broker.env.monotonic();
    let mut before = 0;
    loop {
        tokio::select! {
            biased;
            frame = frames.body() => return frame.map_err(|error| lost(broker, host, &error)),
            () = broker.shutdown.wait() => return Err(ReadEnd::Shutdown),
            () = broker.env.sleep(FRAME_PAUSE_MAX) => {}
        }
        let (now, took) = (frames.arrived(), broker.env.monotonic() - began);
        let is_slow = now == before || took >= FRAME_ARRIVES_WITHIN;
        before = now;
        let is_in_the_way = is_slow && broker.frame_memory.is_short();
        if is_in_the_way || took >= broker.config.kafka.connections_max_idle {
            let error = format!("of its request {now} bytes have come, and no more");
            refuse(broker, host, "torn frame", &error);
            return Err(ReadEnd::Gone);
        }
    }
}

/// A connection that ends otherwise than between two frames: what its client sent is no frame, or
/// the network has lost it.
fn lost(broker: &Broker, host: &str, error: &FrameError) -> ReadEnd {
    match error {
        FrameError::Io(error) => tracing::debug!(%host, %error, "connection lost"),
        _ => refuse(broker, host, "bad frame", error),
    }
    ReadEnd::Gone
}

/// Counts and tells of a connection that is closed for what its client sends.
fn refuse(broker: &Broker, host: &str, what: &str, error: &dyn std::fmt::Display) {
    broker.metrics.kafka.connections_refused.inc();
    if let Some(left_out) = broker.complaints.line() {
        tracing::warn!(%host, %error, left_out, "connection closed: {what}");
    }
}

async fn handle(broker: &Arc<Broker>, frame: Bytes, host: &Arc<str>) -> Reply {
    let request = match request::decode(frame, &broker.registry) {
        Ok(ParsedRequest::Request(request)) => request,
        Ok(ParsedRequest::UnsupportedApiVersions(header)) => {
            let served = broker.registry.versions(messages::ApiKey::ApiVersions as i16);
            let served = served.unwrap_or(messages::VersionRange { min: 0, max: 0 });
            return Reply::Ready(messages::unsupported_api_versions(header.correlation_id, served));
        }
        Err(error) => {
            refuse(broker, host, "bad request", &error);
            return Reply::Close;
        }
    };
    let header = &request.header;
    let context = RequestContext {
        api: request.api,
        version: header.api_version,
        correlation_id: header.correlation_id,
        client_id: header.client_id.as_deref().unwrap_or_default().into(),
        client_host: host.clone(),
        principal: Principal::anonymous(),
        beyond: request.beyond.clone(),
        metrics: broker.metrics.clone(),
    };
    match api::handle(broker.clone(), context, request).await {
        Ok(reply) => reply,
        Err(error) => {
            tracing::error!(%host, %error, "connection closed: an answer could not be encoded");
            Reply::Close
        }
    }
}

/// Writes the answers in order; several that are ready leave in one write.
async fn write_answers<W: AsyncWrite + Unpin>(
    broker: &Broker,
    mut frames: FrameWriter<W>,
    mut turns: mpsc::Receiver<Turn>,
) {
    while let Some(first) = turns.recv().await {
        let mut held = Vec::new();
        let mut next = Some(first);
        let mut is_closing = false;
        while let Some(Turn { reply, memory, arrival }) = next.take() {
            let Ok(reply) = wait(broker, &mut frames, &mut held, reply).await else { return };
            let (response, answer_memory) = match reply {
                Reply::Ready(response) => (Some(response), None),
                Reply::Holding(response, memory) => (Some(response), Some(memory)),
                Reply::Nothing => (None, None),
                Reply::Close | Reply::Later(_) => {
                    is_closing = true;
                    (None, None)
                }
            };
            if let Some(response) = response {
                let took = broker.env.monotonic() - arrival.at;
                let api = broker.metrics.kafka.api(arrival.api_key);
                api.answered(took, arrival.frame_bytes, response.len());
                frames.push(response);
            }
            held.push((memory, answer_memory));
            if !is_closing && frames.pending_bytes() < WRITE_GATHER_BYTES_MAX {
                next = turns.try_recv().ok();
            }
        }
        if flush(broker, &mut frames).await.is_err() || is_closing {
            break;
        }
    }
    // The client may be gone already.
    let _ = frames.shutdown().await;
}

/// Waits for a reply. Those that are ready leave in one write: one commit answers many requests of
/// a connection. What is ready does not wait for what is not, which gets ready meanwhile; once it
/// is sent, it holds no memory.
async fn wait<W: AsyncWrite + Unpin, M>(
    broker: &Broker,
    frames: &mut FrameWriter<W>,
    held: &mut Vec<M>,
    reply: Reply,
) -> std::io::Result<Reply> {
    let Reply::Later(mut answer) = reply else { return Ok(reply) };
    if let Some(ready) = (&mut answer).now_or_never() {
        return Ok(ready);
    }
    let flushing = async {
        if frames.pending_bytes() > 0 {
            flush(broker, frames).await?;
        }
        held.clear();
        std::io::Result::Ok(())
    };
    let ((), ready) = tokio::try_join!(flushing, answer.map(Ok))?;
    Ok(ready)
}

/// Sends what is pending. While others wait for the memory of answers, a client that is too slow to
/// take its own is given up.
async fn flush<W: AsyncWrite + Unpin>(
    broker: &Broker,
    frames: &mut FrameWriter<W>,
) -> std::io::Result<()> {
    let flushed = frames.flush();
    tokio::pin!(flushed);
    loop {
        tokio::select! {
            biased;
            flushed = &mut flushed => return flushed,
            () = broker.env.sleep(ANSWER_TAKEN_WITHIN) => {
                if broker.answer_memory.is_short() {
                    tracing::warn!("connection closed: its client does not take its answers");
                    return Err(std::io::ErrorKind::TimedOut.into());
                }
            }
        }
    }
}
