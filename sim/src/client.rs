//! One connection of a client, which speaks the real protocol over a pipe.

use bytes::BytesMut;
use floe_wire::messages::{
    Decodable, Encodable, HeaderVersion, RequestHeader, RequestMessage, ResponseHeader, StrBytes,
};
use floe_wire::{FRAME_BYTES_MAX, FrameReader, FrameWriter, Response};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::{DuplexStream, ReadHalf, WriteHalf};

/// The connection has ended, or makes no sense any more.
#[derive(Clone, Debug)]
pub struct Gone(pub String);

impl fmt::Display for Gone {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

fn gone(error: impl fmt::Display) -> Gone {
    Gone(error.to_string())
}

/// A client's end of a connection. Dropping it hangs up.
pub struct Connection {
    reader: FrameReader<ReadHalf<DuplexStream>>,
    writer: FrameWriter<WriteHalf<DuplexStream>>,
    next_correlation: i32,
    next_answer: i32,
    is_replaced: Arc<AtomicBool>,
}

impl Connection {
    /// Speaks over one end of a pipe. `is_replaced` tells whether another broker has taken the
    /// place of the one at its other end.
    pub fn new(stream: DuplexStream, is_replaced: Arc<AtomicBool>) -> Self {
        let (read, write) = tokio::io::split(stream);
        Self {
            reader: FrameReader::new(read, FRAME_BYTES_MAX),
            writer: FrameWriter::new(write),
            next_correlation: 0,
            next_answer: 0,
            is_replaced,
        }
    }

    /// True if the broker at its other end has been replaced, which it may not know.
    pub fn is_stale(&self) -> bool {
        self.is_replaced.load(Ordering::Relaxed)
    }

    /// Sends a request; several may be on their way.
    ///
    /// # Errors
    /// [`Gone`].
    pub async fn send<R: RequestMessage>(&mut self, version: i16, request: &R) -> Result<(), Gone> {
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(self.next_correlation)
            .with_client_id(Some(StrBytes::from_static_str("floe-sim")));
        self.next_correlation += 1;
        let mut frame = BytesMut::new();
        header.encode(&mut frame, R::header_version(version)).map_err(gone)?;
        request.encode(&mut frame, version).map_err(gone)?;
        let frame = Response::bare(frame.freeze()).ok_or_else(|| gone("a request too large"))?;
        self.writer.push(frame);
        self.writer.flush().await.map_err(gone)
    }

    /// The answer to the oldest request that has none yet, which must be of this kind.
    ///
    /// # Errors
    /// [`Gone`].
    pub async fn receive<R: RequestMessage>(&mut self, version: i16) -> Result<R::Response, Gone> {
        let frame = self.reader.next().await.map_err(gone)?;
        let mut frame = frame.ok_or_else(|| gone("the broker hung up"))?;
        let header_version = R::Response::header_version(version);
        let header = ResponseHeader::decode(&mut frame, header_version).map_err(gone)?;
        if header.correlation_id != self.next_answer {
            return Err(gone(format!("answer {} out of order", header.correlation_id)));
        }
        self.next_answer += 1;
        R::Response::decode(&mut frame, version).map_err(gone)
    }

    /// A request and its answer.
    ///
    /// # Errors
    /// [`Gone`].
    pub async fn call<R: RequestMessage>(
        &mut self,
        version: i16,
        request: &R,
    ) -> Result<R::Response, Gone> {
        self.send(version, request).await?;
        self.receive::<R>(version).await
    }
}
