//! Which keys of an object there were already.

use crate::json::PathIndex;
use std::collections::BTreeSet;

/// The paths of an object's keys so far: the first ones as bits, which nearly all are.
#[derive(Default)]
pub(crate) struct SeenPaths {
    first: u128,
    others: BTreeSet<PathIndex>,
}

impl SeenPaths {
    /// False if it was there.
    pub(crate) fn insert(&mut self, path: PathIndex) -> bool {
        if path >= u128::BITS {
            return self.others.insert(path);
        }
        let bit = 1 << path;
        let is_new = self.first & bit == 0;
        self.first |= bit;
        is_new
    }
}
