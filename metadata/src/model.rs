//! The in-memory backend: ordered maps behind one lock, each call one critical section. It is the
//! oracle that the other backends are compared with, and a store for tests. It forgets everything
//! when dropped.

mod calls;

use crate::facts::{Change, Fence, PartitionChange, Write};
use crate::rows::{
    AbortedTransaction, Extent, PartitionState, Place, ProducerState, Replacement, SegmentOutcome,
};
use crate::validate;
use bytes::Bytes;
use floe_env::{Env, Error, Result};
use kfs::{BrokerEpoch, BrokerId, ProducerId, SegmentId, TopicPartition};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A metadata store in memory.
#[derive(Debug)]
pub struct ModelBackend {
    env: Env,
    state: Mutex<State>,
    loses_end: AtomicBool,
    aborted_reads: AtomicU64,
    state_reads: AtomicU64,
}

impl ModelBackend {
    /// An empty store. Its clock is the environment's.
    pub fn new(env: Env) -> Self {
        Self {
            env,
            state: Mutex::default(),
            loses_end: AtomicBool::new(false),
            aborted_reads: AtomicU64::new(0),
            state_reads: AtomicU64::new(0),
        }
    }

    /// The next end of a transaction is made, and its answer lost.
    pub fn lose_next_end(&self) {
        self.loses_end.store(true, Ordering::Relaxed);
    }

    /// How often aborted transactions were asked for.
    pub fn aborted_reads(&self) -> u64 {
        self.aborted_reads.load(Ordering::Relaxed)
    }

    /// How often partitions' states were asked for.
    pub fn state_reads(&self) -> u64 {
        self.state_reads.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
struct State {
    partitions: BTreeMap<TopicPartition, Partition>,
    objects: BTreeMap<String, Object>,
    outcomes: BTreeMap<SegmentId, SegmentOutcome>,
    /// The greatest counter whose outcome is gone, per registration.
    forgotten: BTreeMap<(BrokerId, BrokerEpoch), u64>,
    facts: BTreeMap<String, Bytes>,
}

#[derive(Debug, Default)]
struct Partition {
    state: PartitionState,
    /// By base offset.
    extents: BTreeMap<i64, Extent>,
    producers: BTreeMap<ProducerId, ProducerState>,
    /// By last offset.
    aborted: BTreeMap<i64, AbortedTransaction>,
}

#[derive(Debug)]
struct Object {
    size: u64,
    live_bytes: u64,
    dead_since_ms: Option<i64>,
}

impl State {
    fn check_fence(&self, fence: &Fence) -> Result<()> {
        let value = self.facts.get(fence.0.key.as_str());
        if validate::holds(&fence.0, value.map(|value| value.as_ref())) {
            return Ok(());
        }
        Err(validate::fenced(fence))
    }

    fn check_not_forgotten(&self, id: SegmentId) -> Result<()> {
        match self.forgotten.get(&(id.broker, id.epoch)) {
            Some(up_to) if *up_to >= id.counter => Err(validate::forgotten(id)),
            _ => Ok(()),
        }
    }

    /// Takes references away from an object; it is dead when none is left.
    fn dereference(&mut self, extent: &Extent, now_ms: i64) {
        let Place::Range { key, length, .. } = &extent.place else {
            return;
        };
        let object = self.objects.get_mut(key).expect("an extent's object has a row");
        object.live_bytes -= length;
        if object.live_bytes == 0 {
            object.dead_since_ms = Some(now_ms);
        }
    }

    fn apply(&mut self, change: &Change, now_ms: i64) {
        for write in &change.writes {
            match write {
                Write::Put(key, value) => {
                    self.facts.insert(key.as_str().to_owned(), value.clone());
                }
                Write::Delete(key) => {
                    self.facts.remove(key.as_str());
                }
            }
        }
        for change in &change.partitions {
            if let Some((partition, offset)) = validate::created_partition(change) {
                let state = PartitionState {
                    log_start_offset: offset,
                    high_watermark: offset,
                    last_stable_offset: offset,
                    ..PartitionState::default()
                };
                self.partitions.insert(partition, Partition { state, ..Partition::default() });
            }
            if let PartitionChange::Drop(partition) = change {
                let dropped = self.partitions.remove(partition);
                let extents = dropped.map(|partition| partition.extents).unwrap_or_default();
                for extent in extents.values() {
                    self.dereference(extent, now_ms);
                }
            }
        }
    }

    fn are_alive<'a>(&self, mut keys: impl Iterator<Item = &'a str>) -> bool {
        keys.all(|key| self.objects.get(key).is_some_and(|object| object.dead_since_ms.is_none()))
    }

    /// Swaps extents whose sources were found unchanged.
    fn replace(&mut self, replacement: &Replacement, now_ms: i64) -> Result<()> {
        for (key, change) in validate::reference_changes(replacement) {
            let object = self.objects.get(key);
            if change > 0 && object.is_some_and(|object| object.dead_since_ms.is_some()) {
                return Err(validate::object_is_dead(key));
            }
        }
        for (key, change) in validate::reference_changes(replacement) {
            let object = self.objects.entry(key.to_owned()).or_insert(Object {
                size: replacement.object_size,
                live_bytes: 0,
                dead_since_ms: None,
            });
            object.live_bytes = object.live_bytes.saturating_add_signed(change);
            object.dead_since_ms = (object.live_bytes == 0).then_some(now_ms);
        }
        let partition = self.partitions.get_mut(&replacement.partition);
        let partition =
            partition.ok_or_else(|| Error::bug("the partition was there a moment ago"))?;
        for source in &replacement.sources {
            partition.extents.remove(&source.base_offset);
            partition.state.bytes -= source.bytes();
        }
        for extent in &replacement.replacement {
            partition.state.bytes += extent.bytes();
            partition.extents.insert(extent.base_offset, extent.clone());
        }
        for marker in &replacement.forgotten_aborts {
            partition.aborted.remove(marker);
        }
        partition.state.version += 1;
        Ok(())
    }
}
