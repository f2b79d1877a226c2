//! Kafka record batches and the `.kfs` segment format: bytes in, values out.
//!
//! Pure: no IO, no clock, no runtime. `FORMAT.md` beside this crate gives the container byte by
//! byte. Whatever the input, a parser gives a value or an error; it does not panic, and it does
//! not allocate more than a stated multiple of what it was given.
#![forbid(unsafe_code)]

pub mod batch;
mod bytes_io;
pub mod codec;
pub mod container;
pub mod control;
pub mod error;
#[doc(hidden)]
pub mod hostile;
pub mod ids;
mod mode;
pub mod record;
pub mod v1;
pub mod validate;
pub mod writer;

pub use batch::{
    BatchHeader, BatchRecords, BatchView, HEADER_LEN, add_sequence, assign_offsets, batches,
    set_base_offset, set_leader_epoch, set_timestamps, single_batch, verify_crc,
};
pub use codec::{Codec, CodecError, compress, decompress};
pub use container::{
    AbortedTransaction, BatchPlace, BuiltSegment, Footer, FormatError, IndexEntry, OpenError,
    ProducerRun, Section, SectionOffsets, SectionStart, SegmentBuilder, SegmentError, Tail,
    Trailer, open, tail_range,
};
pub use control::{ControlRecord, MARKER_LEN, Marker, control_batch};
pub use error::{BadRecord, BatchError, RecordError, RecordFault};
pub use ids::{
    BrokerEpoch, BrokerId, ClusterId, PartitionIndex, ProducerEpoch, ProducerId, SegmentId,
    TopicId, TopicPartition,
};
pub use mode::{OffsetMode, TimestampType};
pub use record::{Headers, Record, Records};
pub use v1::{V1Index, V1IndexEntry, V1Segment};
pub use validate::{
    BAD_RECORDS_MAX, BatchSummary, NO_TIMESTAMP_MS, Rules, TimestampRule, validate_batch,
};
pub use writer::{BatchBuilder, BuildError, HeaderRef, NewRecord, empty_batch, recompress};
