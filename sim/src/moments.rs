//! The moments at which a life dies: before, in and after a call of each kind. A seed takes them in
//! turn, so that a few seeds meet each; an aimed seed has a single one, for what the others missed.

use crate::calls::Phase;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a call is doing when a life dies.
pub const PHASES: [Phase; 3] = [Phase::Before, Phase::In, Phase::After];

/// Kinds of calls during which a node must have died at least once over all seeds, each before, in
/// and after the call: those that a broker cannot do without. With about how many of them a life
/// makes, so that the moment to die at comes.
pub const DEADLY_KINDS: &[(&str, u64)] = &[
    ("put", 20),
    ("put_merged", 1),
    ("put_table", 4),
    ("get", 1),
    ("get_range", 10),
    ("list", 1),
    ("delete", 1),
    ("commit_segments", 20),
    ("abandon_segment", 1),
    ("forget_outcomes", 1),
    ("forget_registrations", 1),
    ("partition_states", 6),
    ("advance_log_start", 1),
    ("end_transaction", 6),
    ("aborted", 1),
    ("extents", 4),
    ("replace_extents", 1),
    ("unpack_fresh", 2),
    ("dead_objects", 1),
    ("known_objects", 1),
    ("forget_objects", 1),
    ("get_facts", 6),
    ("scan", 1),
    ("change", 2),
    ("change_table", 1),
    ("now_ms", 1),
];

/// How many moments there are.
pub const MOMENTS: usize = DEADLY_KINDS.len() * PHASES.len();

/// About how many lives of a seed die at a chosen moment.
const MOMENTS_PER_SEED: u64 = 5;

/// Seeds from here on are aimed: their number's remainder by [`MOMENTS`] is their moment.
const AIMED_SEEDS: u64 = MOMENTS as u64 * 1_000_000;

/// The moments of one seed.
pub struct Moments {
    next: AtomicUsize,
    step: usize,
}

impl Moments {
    /// Those of a seed.
    pub fn of(seed: u64) -> Self {
        let (first, step) = match seed < AIMED_SEEDS {
            true => (seed * MOMENTS_PER_SEED, 1),
            false => (seed, 0),
        };
        Self { next: AtomicUsize::new((first % MOMENTS as u64) as usize), step }
    }

    /// The next one.
    pub fn next(&self) -> ((&'static str, u64), Phase) {
        named(self.next.fetch_add(self.step, Ordering::Relaxed) % MOMENTS)
    }
}

/// A moment by its number: a kind of call, about how many of them a life makes, and the phase.
pub fn named(moment: usize) -> ((&'static str, u64), Phase) {
    (DEADLY_KINDS[moment / PHASES.len()], PHASES[moment % PHASES.len()])
}

/// Seed `at` of those that aim at a moment.
pub fn aimed_seed(moment: usize, at: u64) -> u64 {
    AIMED_SEEDS + at * MOMENTS as u64 + moment as u64
}
