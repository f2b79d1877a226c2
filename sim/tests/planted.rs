//! Each planted bug is found within 50 seeds.

use floe_sim::{Plant, run};

const SEEDS_MAX: u64 = 50;

/// Finds the bug by one of the violations that it must lead to, each given by words in it.
fn is_found(plant: Plant, by: &[&str]) {
    for seed in 0..SEEDS_MAX {
        let report = run(seed, plant);
        let is_it = |violation: &&String| by.iter().any(|words| violation.contains(words));
        if let Some(violation) = report.violations.iter().find(is_it) {
            println!("{plant:?} found by seed {seed}: {violation}");
            return;
        }
    }
    panic!("{plant:?} is not found in {SEEDS_MAX} seeds");
}

#[test]
fn an_acknowledgement_before_the_commit() {
    is_found(Plant::AcknowledgeBeforeCommit, &["sees watermark", ": acknowledged ("]);
}

#[test]
fn an_ambiguous_commit_that_is_applied_twice() {
    is_found(Plant::AmbiguousCommitTwice, &[" times"]);
}

#[test]
fn a_successor_that_ignores_a_late_put() {
    is_found(Plant::SuccessorIgnoresLatePut, &["code -1", "acknowledged", "now None"]);
}
