//! Hash maps and sets whose iteration order the simulation fixes: each takes its seed from the
//! thread, which is random in the product and the run's seed in the simulation.

#![allow(deprecated, reason = "SipHasher is the only hasher of std that takes a seed")]

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState, SipHasher};
use std::sync::OnceLock;

#[allow(clippy::disallowed_types, reason = "this is the seeded form that replaces it")]
/// A hash map that takes its seed from the environment.
pub type HashMap<K, V> = std::collections::HashMap<K, V, SeededState>;
#[allow(clippy::disallowed_types, reason = "this is the seeded form that replaces it")]
/// A hash set that takes its seed from the environment.
pub type HashSet<K> = std::collections::HashSet<K, SeededState>;

thread_local! {
    static SIMULATION_SEED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Fixes the seed of every map made on this thread from now on; a simulation runs on one thread.
pub fn seed_this_thread(seed: u64) {
    SIMULATION_SEED.set(Some(seed));
}

/// Builds hashers with one seed for the map's life.
#[derive(Clone, Copy, Debug)]
pub struct SeededState(u64);

impl Default for SeededState {
    fn default() -> Self {
        static PROCESS_SEED: OnceLock<u64> = OnceLock::new();
        let process_seed = || *PROCESS_SEED.get_or_init(|| RandomState::new().hash_one(0u8));
        Self(SIMULATION_SEED.get().unwrap_or_else(process_seed))
    }
}

impl BuildHasher for SeededState {
    type Hasher = SipHasher;

    fn build_hasher(&self) -> SipHasher {
        SipHasher::new_with_keys(self.0, !self.0)
    }
}
