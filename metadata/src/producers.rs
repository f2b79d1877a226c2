//! What a partition remembers of its idempotent producers, as a commit sees it: those that wrote
//! last stand packed in the partition's own row, [`PACKED_PRODUCERS_MAX`] of them, so that a commit
//! that moves the partition forward writes them along; older ones are **spilled**, each into a row
//! of its own. A spilled row may be of a producer that has written again since: what is packed is
//! newer, always.
//!
//! Whoever has a transaction open is never spilled, however many there are, so that a partition's
//! own row says where its earliest open transaction begins.

use crate::rows::ProducerState;
use kfs::ProducerId;
use std::collections::BTreeMap;

/// Producers without an open transaction that a partition's own row holds at most.
pub const PACKED_PRODUCERS_MAX: usize = 8;
/// Transactions that are open in one partition at most: all of them stand in its row, which every
/// commit writes.
pub const OPEN_TRANSACTIONS_MAX: usize = 2_000;

/// The producers of one partition: all that are packed, and of the spilled ones those asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct PartitionProducers {
    /// True where there may be spilled ones.
    pub(crate) has_spilled: bool,
    known: BTreeMap<ProducerId, Known>,
    turn: u64,
}

#[derive(Clone, Debug)]
struct Known {
    /// When it wrote, among these producers: 0 where it is spilled and has not.
    turn: u64,
    state: ProducerState,
}

impl PartitionProducers {
    /// What is known of a producer.
    pub(crate) fn get(&self, id: ProducerId) -> Option<&ProducerState> {
        self.known.get(&id).map(|known| &known.state)
    }

    /// Takes a producer out, to change it.
    pub(crate) fn take(&mut self, id: ProducerId) -> Option<ProducerState> {
        self.known.remove(&id).map(|known| known.state)
    }

    /// Adds a producer as the one that wrote last.
    pub(crate) fn put_newest(&mut self, state: ProducerState) {
        self.turn += 1;
        self.known.insert(state.id, Known { turn: self.turn, state });
    }

    /// Adds a spilled producer, unless it is packed.
    pub(crate) fn put_spilled(&mut self, state: ProducerState) {
        self.known.entry(state.id).or_insert(Known { turn: 0, state });
    }

    /// All of them, the one that wrote last at the end.
    pub(crate) fn oldest_first(&self) -> Vec<&ProducerState> {
        let mut known: Vec<&Known> = self.known.values().collect();
        known.sort_by_key(|known| known.turn);
        known.into_iter().map(|known| &known.state).collect()
    }

    /// All of them, by id.
    pub(crate) fn into_states(self) -> Vec<ProducerState> {
        self.known.into_values().map(|known| known.state).collect()
    }

    /// Takes out all but those that wrote last or have a transaction open, so that the others can
    /// be packed.
    pub(crate) fn spill(&mut self) -> Vec<ProducerState> {
        let idle = self.known.iter().filter(|(_, known)| known.state.transaction_start.is_none());
        let mut by_turn: Vec<(u64, ProducerId)> =
            idle.map(|(id, known)| (known.turn, *id)).collect();
        let count = by_turn.len().saturating_sub(PACKED_PRODUCERS_MAX);
        by_turn.sort_unstable();
        self.has_spilled |= count > 0;
        by_turn[..count].iter().filter_map(|(_, id)| self.take(*id)).collect()
    }

    /// Where the earliest open transaction begins.
    pub(crate) fn earliest_open(&self) -> Option<i64> {
        self.known.values().filter_map(|known| known.state.transaction_start).min()
    }

    /// How many have a transaction open.
    pub(crate) fn open_count(&self) -> usize {
        self.known.values().filter(|known| known.state.transaction_start.is_some()).count()
    }

    /// Forgets those that last wrote before a time, ms, and have no open transaction; answers how
    /// many.
    pub(crate) fn expire(&mut self, written_before_ms: i64) -> usize {
        let before = self.known.len();
        self.known.retain(|_, known| !is_expired(&known.state, written_before_ms));
        before - self.known.len()
    }
}

/// True where a producer last wrote before a time, ms, and has no open transaction.
pub(crate) fn is_expired(producer: &ProducerState, written_before_ms: i64) -> bool {
    producer.transaction_start.is_none() && producer.last_written_ms < written_before_ms
}

#[cfg(test)]
mod tests;
