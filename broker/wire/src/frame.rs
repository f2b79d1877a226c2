//! Frames: a big-endian `i32` length, then that many bytes.
//!
//! Contract of [`FrameReader`]: the length is checked against the limit before anything is
//! allocated; a frame's memory grows only as its bytes arrive, so a peer that announces much and
//! sends little costs little; every frame has an allocation of its own, so that whoever keeps a
//! slice of it pins that frame and nothing else. Reads are cancel safe: dropping the future of
//! [`FrameReader::next`] loses no byte.
//!
//! Flow: small reads go into one reused buffer, so many small frames cost one system call; what a
//! large frame still lacks is read straight into the frame.
//!
//! Contract of [`FrameWriter`]: responses leave in the order in which they were pushed, each whole,
//! whatever the sink accepts per call. [`FrameWriter::flush`] is cancel safe too.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{ErrorKind, IoSlice};
use std::pin::Pin;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::error::FrameError;

#[cfg(test)]
mod tests;

/// Kafka's `socket.request.max.bytes`: the default limit of one frame, without its length prefix.
pub const FRAME_BYTES_MAX: usize = 104_857_600;

/// The length prefix of a frame.
pub const LENGTH_BYTES: usize = 4;

/// The reused read buffer of a connection. Frames that lie wholly in it are copied out (at most
/// this much); larger ones are read into place.
pub const READ_BUFFER_BYTES: usize = 16 * 1024;

/// The largest first allocation for a frame. Above it a frame's memory at most doubles what has
/// arrived.
pub const FRAME_EAGER_BYTES: usize = 1024 * 1024;

/// Slices handed to one vectored write. Linux takes 1024; more than this gains nothing.
pub const WRITE_SLICES_MAX: usize = 64;

/// A frame whose first part has arrived.
#[derive(Debug)]
struct Partial {
    bytes: Vec<u8>,
    length: usize,
}

/// Cuts frames out of a byte stream.
#[derive(Debug)]
pub struct FrameReader<R> {
    source: R,
    bytes_max: usize,
    buffer: BytesMut,
    partial: Option<Partial>,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// A reader that refuses frames above `bytes_max` bytes ([`FRAME_BYTES_MAX`] is Kafka's).
    pub fn new(source: R, bytes_max: usize) -> Self {
        let buffer = BytesMut::with_capacity(READ_BUFFER_BYTES);
        Self { source, bytes_max, buffer, partial: None }
    }

    /// The source and the bytes that were read from it and belong to no frame yet.
    pub fn into_parts(self) -> (R, BytesMut) {
        (self.source, self.buffer)
    }

    /// The next frame without its length prefix; `None` when the peer has closed the connection
    /// between two frames.
    ///
    /// # Errors
    /// Any [`FrameError`]; the reader must not be used after one.
    pub async fn next(&mut self) -> Result<Option<Bytes>, FrameError> {
        match self.length().await? {
            Some(_) => self.body().await.map(Some),
            None => Ok(None),
        }
    }

    /// The length in bytes of the next frame, which [`FrameReader::body`] then reads: for a caller
    /// that reserves memory in between. Asking again gives the same answer.
    ///
    /// # Errors
    /// Any [`FrameError`]; the reader must not be used after one.
    pub async fn length(&mut self) -> Result<Option<usize>, FrameError> {
        if let Some(partial) = &self.partial {
            return Ok(Some(partial.length));
        }
        while self.buffer.len() < LENGTH_BYTES {
            self.buffer.reserve(READ_BUFFER_BYTES - self.buffer.len());
            if self.source.read_buf(&mut self.buffer).await? == 0 {
                if self.buffer.is_empty() {
                    return Ok(None);
                }
                return Err(FrameError::Torn { read: self.buffer.len(), expected: LENGTH_BYTES });
            }
        }
        let announced = self.buffer.get_i32();
        let length = usize::try_from(announced)
            .ok()
            .filter(|length| *length > 0)
            .ok_or(FrameError::NotPositive(announced))?;
        if length > self.bytes_max {
            return Err(FrameError::Oversized { bytes: length, bytes_max: self.bytes_max });
        }
        self.partial = Some(Partial { bytes: Vec::new(), length });
        Ok(Some(length))
    }

    /// Bytes that have come of the frame that [`FrameReader::length`] announced: for a caller that
    /// gives up who sends no more.
    pub fn arrived(&self) -> usize {
        self.partial.as_ref().map_or(0, |partial| partial.bytes.len())
    }

    /// The frame that [`FrameReader::length`] announced. Cancel safe, as [`FrameReader::next`] is.
    ///
    /// # Errors
    /// Any [`FrameError`]; the reader must not be used after one. Without an announced frame it is
    /// [`FrameError::Torn`] with nothing read.
    pub async fn body(&mut self) -> Result<Bytes, FrameError> {
        let Some(partial) = &mut self.partial else {
            return Err(FrameError::Torn { read: 0, expected: LENGTH_BYTES });
        };
        let buffered = self.buffer.len().min(partial.length - partial.bytes.len());
        if buffered > 0 {
            partial.bytes.reserve_exact(partial.length.min(FRAME_EAGER_BYTES).max(buffered));
            partial.bytes.extend_from_slice(&self.buffer[..buffered]);
            self.buffer.advance(buffered);
        }
        while partial.bytes.len() < partial.length {
            let read = read_more(&mut self.source, &mut self.buffer, partial).await?;
            if read == 0 {
                return Err(FrameError::Torn {
                    read: LENGTH_BYTES + partial.bytes.len(),
                    expected: LENGTH_BYTES + partial.length,
                });
            }
        }
        let frame = self.partial.take().map(|partial| partial.bytes).unwrap_or_default();
        Ok(Bytes::from(frame))
    }
}

/// Reads some of what the frame lacks, and returns how much: through the reused buffer when it all
/// fits there (so that the frames behind it come along), else into place.
async fn read_more<R: AsyncRead + Unpin>(
    source: &mut R,
    buffer: &mut BytesMut,
    partial: &mut Partial,
) -> Result<usize, FrameError> {
    let missing = partial.length - partial.bytes.len();
    if missing < READ_BUFFER_BYTES {
        // The buffer is empty here: all that it held belonged to this frame.
        buffer.reserve(READ_BUFFER_BYTES);
        let read = source.read_buf(buffer).await?;
        let taken = read.min(missing);
        partial.bytes.reserve_exact(missing);
        partial.bytes.extend_from_slice(&buffer[..taken]);
        buffer.advance(taken);
        return Ok(taken);
    }
    let room = partial.bytes.len().max(FRAME_EAGER_BYTES).min(missing);
    if partial.bytes.capacity() == partial.bytes.len() {
        partial.bytes.reserve_exact(room);
    }
    let free = (partial.bytes.capacity() - partial.bytes.len()).min(missing);
    Ok(source.read_buf(&mut (&mut partial.bytes).limit(free)).await?)
}

/// One whole response frame, length prefix included, as slices that are sent one after the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Response {
    parts: Vec<Bytes>,
    bytes: usize,
}

impl Response {
    /// A response of one part. `frame` begins with its length prefix.
    pub fn whole(frame: BytesMut) -> Self {
        Self::from_parts(vec![frame.freeze()])
    }

    /// A length prefix before bare bytes without a header: the tokens of SASL after a handshake of
    /// version 0. `None` above `i32::MAX` bytes.
    pub fn bare(payload: Bytes) -> Option<Self> {
        let length = i32::try_from(payload.len()).ok()?;
        let prefix = Bytes::copy_from_slice(&length.to_be_bytes());
        Some(Self::from_parts(vec![prefix, payload]))
    }

    /// A response of parts that lie one after the other on the wire. The first one begins with the
    /// length prefix, which counts all of them.
    pub fn from_parts(parts: Vec<Bytes>) -> Self {
        let bytes = parts.iter().map(Bytes::len).sum();
        Self { parts, bytes }
    }

    /// Bytes on the wire, length prefix included.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The slices in the order of the wire.
    pub fn parts(&self) -> &[Bytes] {
        &self.parts
    }

    /// All parts in one buffer: a copy, for tests and tools.
    pub fn to_bytes(&self) -> Bytes {
        let mut whole = BytesMut::with_capacity(self.bytes);
        self.parts.iter().for_each(|part| whole.extend_from_slice(part));
        whole.freeze()
    }
}

/// Sends responses over a byte stream, in the order in which they were pushed.
///
/// It does not bound its queue: the caller pushes what it has ready and flushes.
#[derive(Debug)]
pub struct FrameWriter<W> {
    sink: W,
    pending: VecDeque<Bytes>,
    pending_bytes: usize,
}

impl<W: AsyncWrite + Unpin> FrameWriter<W> {
    /// A writer over `sink`.
    pub fn new(sink: W) -> Self {
        Self { sink, pending: VecDeque::new(), pending_bytes: 0 }
    }

    /// Puts a response behind those that wait. Nothing is sent before [`FrameWriter::flush`].
    pub fn push(&mut self, response: Response) {
        self.pending_bytes += response.bytes;
        self.pending.extend(response.parts.into_iter().filter(|part| !part.is_empty()));
    }

    /// Bytes that were pushed and not yet taken by the sink.
    pub fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    /// Sends all that was pushed, and flushes the sink.
    ///
    /// # Errors
    /// The sink's, and `WriteZero` when it takes nothing; the connection must be closed then.
    pub async fn flush(&mut self) -> std::io::Result<()> {
        while !self.pending.is_empty() {
            let written = self.write_some().await?;
            if written == 0 {
                return Err(ErrorKind::WriteZero.into());
            }
            self.forget(written);
        }
        self.sink.flush().await
    }

    /// Shuts the sink down for writing.
    ///
    /// # Errors
    /// The sink's.
    pub async fn shutdown(&mut self) -> std::io::Result<()> {
        self.sink.shutdown().await
    }

    /// One vectored write of the first pending slices; returns what the sink took.
    async fn write_some(&mut self) -> std::io::Result<usize> {
        let sink = &mut self.sink;
        let mut slices = [IoSlice::new(&[]); WRITE_SLICES_MAX];
        let mut used = 0;
        for (slice, part) in slices.iter_mut().zip(&self.pending) {
            *slice = IoSlice::new(part);
            used += 1;
        }
        poll_fn(|context| Pin::new(&mut *sink).poll_write_vectored(context, &slices[..used])).await
    }

    /// Drops the first `written` bytes of what is pending.
    fn forget(&mut self, mut written: usize) {
        self.pending_bytes -= written;
        while written > 0 {
            let Some(first) = self.pending.front_mut() else { return };
            if first.len() > written {
                first.advance(written);
                return;
            }
            written -= first.len();
            self.pending.pop_front();
        }
    }
}
