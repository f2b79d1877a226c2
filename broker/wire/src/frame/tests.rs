//! Frames over a transport that hands out and takes bytes in pieces of any size.

use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{
    FRAME_BYTES_MAX, FRAME_EAGER_BYTES, FrameReader, FrameWriter, READ_BUFFER_BYTES, Response,
    WRITE_SLICES_MAX,
};
use crate::error::FrameError;

/// A source of scripted pieces; an empty piece is one `Pending`.
#[derive(Default)]
struct Source {
    pieces: VecDeque<Bytes>,
    reads: usize,
    room_max: usize,
}

impl Source {
    fn new(pieces: impl IntoIterator<Item = Bytes>) -> Self {
        Self { pieces: pieces.into_iter().collect(), ..Self::default() }
    }
}

impl AsyncRead for Source {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.reads += 1;
        self.room_max = self.room_max.max(buffer.remaining());
        let Some(piece) = self.pieces.front_mut() else { return Poll::Ready(Ok(())) };
        if piece.is_empty() {
            self.pieces.pop_front();
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let taken = piece.split_to(piece.len().min(buffer.remaining()));
        if piece.is_empty() {
            self.pieces.pop_front();
        }
        buffer.put_slice(&taken);
        Poll::Ready(Ok(()))
    }
}

/// Polls until it is ready, at most `polls_max` times.
fn run<F: Future>(future: F, polls_max: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    (0..polls_max).find_map(|_| match future.as_mut().poll(&mut context) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    })
}

fn next(reader: &mut FrameReader<Source>) -> Result<Option<Bytes>, FrameError> {
    run(reader.next(), usize::MAX).expect("ready")
}

/// One frame of `length` bytes that begin with `mark`, on the wire.
fn framed(length: usize, mark: u8) -> Vec<u8> {
    let mut bytes = (length as i32).to_be_bytes().to_vec();
    bytes.extend((0..length).map(|index| mark.wrapping_add((index % 251) as u8)));
    bytes
}

#[test]
fn many_small_frames_cost_one_read() {
    let wire: Vec<u8> = (0..100).flat_map(|mark| framed(100, mark)).collect();
    let mut reader = FrameReader::new(Source::new([Bytes::from(wire)]), FRAME_BYTES_MAX);
    for mark in 0..100 {
        let frame = next(&mut reader).expect("a frame").expect("no end");
        assert_eq!(frame, framed(100, mark)[4..]);
    }
    assert!(next(&mut reader).expect("a clean end").is_none());
    assert_eq!(reader.into_parts().0.reads, 2, "one for the frames, one for the end");
}

#[test]
fn a_large_frame_is_read_into_place() {
    let length = 5 * FRAME_EAGER_BYTES + 3;
    let wire = [framed(length, 1), framed(10, 2)].concat();
    let mut reader = FrameReader::new(Source::new([Bytes::from(wire)]), FRAME_BYTES_MAX);
    let frame = next(&mut reader).expect("a frame").expect("no end");
    assert_eq!(frame, framed(length, 1)[4..]);
    let frame = next(&mut reader).expect("a frame").expect("no end");
    assert_eq!(frame, framed(10, 2)[4..]);
    assert!(next(&mut reader).expect("a clean end").is_none());
    let source = reader.into_parts().0;
    assert!(source.room_max >= FRAME_EAGER_BYTES, "read in pieces of {}", source.room_max);
    assert!(source.reads <= 8, "{} reads", source.reads);
}

#[test]
fn memory_grows_only_with_what_arrives() {
    let wire = Bytes::from(framed(FRAME_BYTES_MAX, 0)).slice(..2 * FRAME_EAGER_BYTES);
    let source = Source::new([wire, Bytes::new()]);
    let mut reader = FrameReader::new(source, FRAME_BYTES_MAX);
    assert!(run(reader.next(), 1).is_none(), "it waits for the rest");
    let partial = reader.partial.as_ref().expect("a frame has begun");
    assert_eq!(partial.length, FRAME_BYTES_MAX);
    assert!(partial.bytes.capacity() <= 2 * 2 * FRAME_EAGER_BYTES, "{}", partial.bytes.capacity());
}

#[test]
fn lengths_are_checked_before_anything_is_allocated() {
    let read = |prefix: [u8; 4], limit| {
        let mut reader = FrameReader::new(Source::new([Bytes::copy_from_slice(&prefix)]), limit);
        next(&mut reader)
    };
    assert!(matches!(read([0, 0, 0, 0], 10), Err(FrameError::NotPositive(0))));
    assert!(matches!(read([0xff; 4], 10), Err(FrameError::NotPositive(-1))));
    assert!(matches!(read([0x80, 0, 0, 0], 10), Err(FrameError::NotPositive(i32::MIN))));
    let refused = read([0, 0, 0, 11], 10);
    assert!(matches!(refused, Err(FrameError::Oversized { bytes: 11, bytes_max: 10 })));
    let refused = read([0x7f, 0xff, 0xff, 0xff], FRAME_BYTES_MAX);
    assert!(matches!(refused, Err(FrameError::Oversized { .. })));
    assert!(matches!(read([0, 0, 0, 10], 10), Err(FrameError::Torn { read: 4, expected: 14 })));
}

#[test]
fn every_torn_end_is_told_from_a_clean_one() {
    let wire = framed(20, 5);
    for cut in 1..wire.len() {
        let mut reader = FrameReader::new(Source::new([Bytes::copy_from_slice(&wire[..cut])]), 20);
        let expected_bytes = if cut < 4 { 4 } else { 24 };
        match next(&mut reader) {
            Err(FrameError::Torn { read, expected }) => {
                assert_eq!((read, expected), (cut, expected_bytes));
            }
            other => panic!("cut at {cut}: {other:?}"),
        }
    }
    let mut reader = FrameReader::new(Source::new([]), 20);
    assert!(next(&mut reader).expect("a clean end").is_none());
}

#[test]
fn the_length_can_be_asked_for_first() {
    let mut reader = FrameReader::new(Source::new([Bytes::from(framed(7, 1))]), 10);
    for _ in 0..2 {
        let length = run(reader.length(), 2).expect("ready").expect("a length");
        assert_eq!(length, Some(7));
    }
    let frame = run(reader.body(), 2).expect("ready").expect("a frame");
    assert_eq!(frame, framed(7, 1)[4..]);
    let refused = run(reader.body(), 2).expect("ready");
    assert!(matches!(refused, Err(FrameError::Torn { read: 0, .. })));
}

/// What the sink does at each call: takes up to so many bytes, or waits.
struct Sink {
    taken: Vec<u8>,
    steps: VecDeque<usize>,
    vectored: bool,
    slices_max: usize,
    flushed: bool,
}

impl Sink {
    fn new(steps: impl IntoIterator<Item = usize>, vectored: bool) -> Self {
        let steps = steps.into_iter().collect();
        Self { taken: Vec::new(), steps, vectored, slices_max: 0, flushed: false }
    }

    fn take(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let step = self.steps.pop_front().unwrap_or(usize::MAX);
        if step == 0 {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let taken = bytes.len().min(step);
        self.taken.extend(&bytes[..taken]);
        Poll::Ready(Ok(taken))
    }
}

impl AsyncWrite for Sink {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.take(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.slices_max = self.slices_max.max(slices.len());
        if self.vectored {
            let all: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
            return self.take(context, &all);
        }
        self.take(context, &slices[0])
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.flushed = true;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[test]
fn a_response_of_many_parts_takes_few_writes() {
    let parts: Vec<Bytes> = (0..1000).map(|index| Bytes::from(vec![index as u8; 3])).collect();
    let response = Response::from_parts(parts);
    let whole = response.to_bytes();
    assert_eq!(response.len(), 3000);
    let mut writer = FrameWriter::new(Sink::new([], true));
    writer.push(response);
    assert_eq!(writer.pending_bytes(), 3000);
    run(writer.flush(), 1).expect("ready").expect("written");
    assert_eq!(writer.pending_bytes(), 0);
    let sink = writer.sink;
    assert_eq!(
        (sink.taken, sink.slices_max, sink.flushed),
        (whole.to_vec(), WRITE_SLICES_MAX, true)
    );
}

#[test]
fn bare_bytes_get_a_length() {
    let response = Response::bare(Bytes::from_static(b"token")).expect("short");
    assert_eq!(response.to_bytes(), Bytes::from_static(b"\0\0\0\x05token"));
    assert_eq!(
        Response::bare(Bytes::new()).expect("short").to_bytes(),
        Bytes::from_static(&[0; 4])
    );
}

#[test]
fn a_sink_that_takes_nothing_is_an_error() {
    struct Closed;
    impl AsyncWrite for Closed {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(0))
        }
        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }
    let mut writer = FrameWriter::new(Closed);
    writer.push(Response::whole(BytesMut::from(&b"abc"[..])));
    let failed = run(writer.flush(), 1).expect("ready").expect_err("nothing was taken");
    assert_eq!(failed.kind(), io::ErrorKind::WriteZero);
}

/// Cuts `bytes` at the given relative sizes; a size of 0 is a `Pending`.
fn pieces(mut bytes: Bytes, sizes: &[usize]) -> Vec<Bytes> {
    let mut pieces = Vec::new();
    for size in sizes {
        pieces.push(bytes.split_to((*size).min(bytes.len())));
    }
    pieces.push(bytes);
    pieces
}

proptest! {
    /// Whatever the frames and the pieces, and although every future is dropped at each `Pending`,
    /// the frames come out whole and in order.
    #[test]
    fn frames_survive_any_pieces_and_dropped_futures(
        lengths in prop::collection::vec(
            prop_oneof![1_usize..50, 1_000_usize..3 * READ_BUFFER_BYTES], 1..12),
        sizes in prop::collection::vec(
            prop_oneof![Just(0_usize), 1_usize..9, 1_usize..20_000], 0..60),
    ) {
        let wire: Vec<u8> =
            lengths.iter().enumerate().flat_map(|(at, length)| framed(*length, at as u8)).collect();
        let source = Source::new(pieces(Bytes::from(wire), &sizes));
        let mut reader = FrameReader::new(source, FRAME_BYTES_MAX);
        for (at, length) in lengths.iter().enumerate() {
            let frame = loop {
                // One poll, then the future is dropped.
                if let Some(read) = run(reader.next(), 1) {
                    break read.expect("a frame").expect("no end");
                }
            };
            prop_assert_eq!(&frame[..], &framed(*length, at as u8)[4..]);
        }
        let end = loop {
            if let Some(read) = run(reader.next(), 1) {
                break read.expect("a clean end");
            }
        };
        prop_assert!(end.is_none());
    }

    /// Whatever the sink takes per call, and although every future is dropped at each `Pending`,
    /// all bytes leave once and in order.
    #[test]
    fn responses_survive_any_sink(
        responses in prop::collection::vec(
            prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..90), 0..5),
        steps in prop::collection::vec(prop_oneof![Just(0_usize), 1_usize..5, 1_usize..500], 0..80),
        vectored in any::<bool>(),
    ) {
        let mut writer = FrameWriter::new(Sink::new(steps, vectored));
        for parts in &responses {
            let parts = parts.iter().map(|part| Bytes::copy_from_slice(part)).collect();
            writer.push(Response::from_parts(parts));
        }
        loop {
            if let Some(flushed) = run(writer.flush(), 1) {
                flushed.expect("written");
                break;
            }
        }
        let expected: Vec<u8> = responses.into_iter().flatten().flatten().collect();
        prop_assert_eq!(&writer.sink.taken, &expected);
        prop_assert_eq!(writer.pending_bytes(), 0);
    }
}
