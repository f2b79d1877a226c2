//! One client's connection: requests are read and take effect in order of arrival, waits of earlier
//! ones overlap with later ones, and answers leave in order. Generic over the stream, so that the
//! simulation needs no sockets.

use crate::api::{self, Principal, Reply, RequestContext};
use crate::broker::Broker;
use crate::complaints::Complaint;
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

/// How long all of a frame may take while others wait for the memory that it holds. Who sends more
/// slowly than that, from the beginning, is given up at the next look: a trickle is no request.
const FRAME_ARRIVES_WITHIN: Duration = Duration::from_secs(30);
/// How often that is looked at: not sooner than a connection from far away gets under way.
const FRAME_LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// How long a client may take over its answers while others wait for the memory that they hold, or
/// that its requests behind them hold.
const ANSWER_TAKEN_WITHIN: Duration = Duration::from_secs(30);
/// Requests that hold no more are in nobody's way, bytes.
const HELD_SMALL_BYTES_MAX: usize = 64 << 10;
/// The same where the first of them waits for others, as a group's members do: theirs may be of
/// some size, and so long.
const HELD_WAITING_BYTES_MAX: usize = 1 << 20;
/// What is told of those that are given up.
const HELD_UP: &str = "its requests are held up";
const NOT_TAKEN: &str = "its client does not take its answers";

/// A client, as both halves of its connection see it.
#[derive(Clone, Copy)]
struct Peer<'a> {
    broker: &'a Arc<Broker>,
    host: &'a Arc<str>,
    /// What its requests may hold together.
    memory: &'a Part,
}

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
    let memory = Part::new(broker.config.memory.per_connection_bytes);
    let peer = Peer { broker: &broker, host: &host, memory: &memory };
    let reading = read_requests(peer, read, turns);
    let writing = write_answers(peer, FrameWriter::new(write), waiting);
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
    peer: Peer<'_>,
    read: R,
    turns: mpsc::Sender<Turn>,
) -> ReadEnd {
    let Peer { broker, host, .. } = peer;
    let kafka = &broker.config.kafka;
    let frame_bytes_max = usize::try_from(kafka.socket_request_max_bytes).unwrap_or(0);
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
            Some(Err(error)) => return lost(broker, host, &error),
        };
        let memory = match room(peer, length).await {
            Ok(memory) => memory,
            Err(end) => return end,
        };
        let frame = match arrived(broker, &mut frames, length, host).await {
            Ok(frame) => frame,
            Err(end) => return end,
        };
        let arrival = Arrival {
            // A frame has at least its header's first field, or it is refused below.
            api_key: frame.first_chunk().copied().map_or(-1, i16::from_be_bytes),
            frame_bytes: LENGTH_BYTES + frame.len(),
            at: broker.env.monotonic(),
        };
        let reply = handle(broker, frame, host).await;
        let is_last = matches!(reply, Reply::Close);
        if turns.send(Turn { reply, memory, arrival }).await.is_err() || is_last {
            return ReadEnd::Shutdown;
        }
    }
}

/// Memory for a frame of so many bytes. A client that takes no answers, or asks for more behind one
/// that does not come, waits for its own: no longer than a connection may be idle.
async fn room(peer: Peer<'_>, length: usize) -> Result<Memory, ReadEnd> {
    let Peer { broker, host, memory } = peer;
    let taken = async {
        let of_connection = memory.take(length).await;
        let of_broker = broker.frame_memory.take(length).await;
        Memory { _of_broker: of_broker, _of_connection: of_connection }
    };
    let taken = broker.env.timeout(broker.config.kafka.connections_max_idle, taken);
    let taken = tokio::select! {
        biased;
        () = broker.shutdown.wait() => return Err(ReadEnd::Shutdown),
        taken = taken => taken,
    };
    taken.ok_or_else(|| {
        let error = format!("there was no memory for the next one of {length} bytes");
        refuse(broker, host, HELD_UP, &error);
        ReadEnd::Gone
    })
}

/// The frame that was announced. Nobody waits for ever for one that does not come: not beyond the
/// time that a connection may be idle, and much less while others wait for the memory it holds.
async fn arrived<R: AsyncRead + Unpin>(
    broker: &Broker,
    frames: &mut FrameReader<R>,
    length: usize,
    host: &str,
) -> Result<Bytes, ReadEnd> {
    let began = broker.env.monotonic();
    loop {
        tokio::select! {
            biased;
            frame = frames.body() => return frame.map_err(|error| lost(broker, host, &error)),
            () = broker.shutdown.wait() => return Err(ReadEnd::Shutdown),
            () = broker.env.sleep(FRAME_LOOK_INTERVAL) => {}
        }
        let (now, took) = (frames.arrived(), broker.env.monotonic() - began);
        let is_in_the_way = is_late(now, length, took) && broker.frame_memory.is_short();
        if is_in_the_way || took >= broker.config.kafka.connections_max_idle {
            let error = format!("of its request of {length} bytes {now} have come in {took:?}");
            refuse(broker, host, "torn frame", &error);
            return Err(ReadEnd::Gone);
        }
    }
}

/// Whether less than its part of a frame has come after so long.
fn is_late(arrived: usize, length: usize, took: Duration) -> bool {
    (arrived as u128) * FRAME_ARRIVES_WITHIN.as_nanos() < (length as u128) * took.as_nanos()
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
    if let Some(left_out) = broker.complaints.line(Complaint::Connection) {
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
    peer: Peer<'_>,
    mut frames: FrameWriter<W>,
    mut turns: mpsc::Receiver<Turn>,
) {
    let broker = peer.broker;
    while let Some(first) = turns.recv().await {
        let mut held = Vec::new();
        let mut next = Some(first);
        let mut is_closing = false;
        while let Some(Turn { reply, memory, arrival }) = next.take() {
            let api_key = arrival.api_key;
            let waited = wait(peer, &mut frames, &mut held, reply, api_key).await;
            let Ok(reply) = waited else { return };
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
                let api = broker.metrics.kafka.api(api_key);
                api.answered(took, arrival.frame_bytes, response.len());
                frames.push(response);
            }
            held.push((memory, answer_memory));
            if !is_closing && frames.pending_bytes() < WRITE_GATHER_BYTES_MAX {
                next = turns.try_recv().ok();
            }
        }
        if flush(peer, &mut frames).await.is_err() || is_closing {
            break;
        }
    }
    // The client may be gone already.
    let _ = frames.shutdown().await;
}

/// Waits for a reply. Those that are ready leave in one write: one commit answers many requests of
/// a connection. What is ready does not wait for what is not, which gets ready meanwhile; once it
/// is sent, it holds no memory.
///
/// A client whose requests hold much behind one that waits for others is given up once it is in the
/// way. Produce waits for the stores only: while they are away, nobody is to blame.
async fn wait<W: AsyncWrite + Unpin, M>(
    peer: Peer<'_>,
    frames: &mut FrameWriter<W>,
    held: &mut Vec<M>,
    reply: Reply,
    api_key: i16,
) -> std::io::Result<Reply> {
    let Reply::Later(mut answer) = reply else { return Ok(reply) };
    if let Some(ready) = (&mut answer).now_or_never() {
        return Ok(ready);
    }
    let flushing = async {
        if frames.pending_bytes() > 0 {
            flush(peer, frames).await?;
        }
        held.clear();
        std::io::Result::Ok(())
    };
    let answered = async {
        loop {
            let ready = peer.broker.env.timeout(ANSWER_TAKEN_WITHIN, &mut answer).await;
            if let Some(ready) = ready {
                return Ok(ready);
            }
            if api_key != messages::ApiKey::Produce as i16
                && peer.is_in_the_way(HELD_WAITING_BYTES_MAX)
            {
                return Err(peer.give_up(HELD_UP));
            }
        }
    };
    let ((), ready) = tokio::try_join!(flushing, answered)?;
    Ok(ready)
}

/// Sends what is pending. A client that is too slow to take its own is given up while others wait
/// for the memory that it holds, and one that takes nothing for as long as it may be idle.
async fn flush<W: AsyncWrite + Unpin>(
    peer: Peer<'_>,
    frames: &mut FrameWriter<W>,
) -> std::io::Result<()> {
    let broker = peer.broker;
    let (mut pending, mut taken_at) = (frames.pending_bytes(), broker.env.monotonic());
    loop {
        if let Some(flushed) = broker.env.timeout(ANSWER_TAKEN_WITHIN, frames.flush()).await {
            return flushed;
        }
        let now = broker.env.monotonic();
        if frames.pending_bytes() < pending {
            (pending, taken_at) = (frames.pending_bytes(), now);
        }
        let is_idle = now - taken_at >= broker.config.kafka.connections_max_idle;
        let is_in_the_way = broker.answer_memory.is_short();
        if is_idle || is_in_the_way || peer.is_in_the_way(HELD_SMALL_BYTES_MAX) {
            return Err(peer.give_up(NOT_TAKEN));
        }
    }
}

impl Peer<'_> {
    /// Whether others wait for memory of requests while this one's hold more than so much.
    fn is_in_the_way(self, held_bytes_max: usize) -> bool {
        self.broker.frame_memory.is_short() && self.memory.held_bytes() > held_bytes_max
    }

    fn give_up(self, why: &str) -> std::io::Error {
        let error = format!("its requests hold {} bytes", self.memory.held_bytes());
        refuse(self.broker, self.host, why, &error);
        std::io::ErrorKind::TimedOut.into()
    }
}
