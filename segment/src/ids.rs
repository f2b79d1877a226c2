//! Identities that appear in segments, in the metadata store and in object keys.
//!
//! Offsets, sequences and timestamps stay plain integers (`i64` offsets, `i32` sequences, `i64`
//! milliseconds since the Unix epoch), because arithmetic is most of what happens to them;
//! whatever names a thing is a type of its own.

use std::fmt;
use uuid::Uuid;

macro_rules! integer_id {
    ($(#[$doc:meta])* $name:ident($integer:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $integer);

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(formatter)
            }
        }
    };
}

integer_id! {
    /// Index of a partition within its topic, from 0.
    PartitionIndex(i32)
}
integer_id! {
    /// A broker, stable across its restarts.
    BrokerId(i32)
}
integer_id! {
    /// One registration of a broker; grows with every start, so that what an earlier run left
    /// behind can be told apart.
    BrokerEpoch(i64)
}
integer_id! {
    /// A producer id, as InitProducerId hands out; never reissued.
    ProducerId(i64)
}
integer_id! {
    /// The epoch of a producer id: a higher one fences a lower one.
    ProducerEpoch(i16)
}

/// A cluster, made once at its first start; it begins every object key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(pub Uuid);

impl fmt::Display for ClusterId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// A topic's identity: a deleted and re-created topic has another one, and none is ever reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(pub Uuid);

impl fmt::Display for TopicId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// One partition of one topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// The topic's id.
    pub topic: TopicId,
    /// The partition's index.
    pub partition: PartitionIndex,
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.topic, self.partition)
    }
}

/// A fresh segment: which run of which broker made it, and which of that run's segments it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId {
    /// The broker.
    pub broker: BrokerId,
    /// The broker's registration.
    pub epoch: BrokerEpoch,
    /// Counts that registration's segments, from 0.
    pub counter: u64,
}

impl fmt::Display for SegmentId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}-{}", self.broker, self.epoch, self.counter)
    }
}
