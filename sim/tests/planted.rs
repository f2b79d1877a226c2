//! Each planted bug is found within 50 seeds.

use floe_sim::{Plant, run};

const SEEDS_MAX: u64 = 50;

/// Finds the bug by one of the violations that it must lead to, each given by words in it.
fn is_found(plant: Plant, by: &[&str]) {
    is_found_from(0, plant, by);
}

/// As [`is_found`], beginning with a seed that found it when this was written: that saves time.
fn is_found_from(first: u64, plant: Plant, by: &[&str]) {
    for seed in (first..SEEDS_MAX).chain(0..first) {
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
    is_found_from(17, Plant::SuccessorIgnoresLatePut, &["code -1", "acknowledged", "now None"]);
}

#[test]
fn a_commit_without_the_fence_check() {
    is_found(Plant::CommitWithoutFence, &["of a closed registration is committed"]);
}

#[test]
fn a_cleaner_that_takes_everything_for_an_orphan() {
    is_found(Plant::KnowsNoObject, &["is deleted while it is needed"]);
}

#[test]
fn deletions_that_are_not_made() {
    is_found(Plant::DeletesNothing, &["is left over"]);
}

#[test]
fn a_merge_before_its_object_is_there() {
    is_found(Plant::MergedPutComesLater, &["a merge names"]);
}

#[test]
fn a_log_start_that_stays_where_it_is() {
    is_found(Plant::LogStartStays, &["asked to delete up to", "is served below"]);
}

#[test]
fn a_log_start_that_moves_too_far() {
    is_found(Plant::LogStartTooFar, &["nobody asked for log start"]);
}

#[test]
fn a_table_pointer_that_moves_whatever_it_was() {
    is_found(Plant::PointerWithoutCompare, &["history is rewritten"]);
}

#[test]
fn a_cut_that_is_too_short() {
    is_found(Plant::CutTooShort, &["acknowledged was"]);
}

#[test]
fn a_directory_that_is_not_synced() {
    is_found(Plant::NamesAreNotSynced, &["is needed and gone", "is gone", "now None"]);
}

#[test]
fn a_transaction_that_was_not_synced() {
    is_found(Plant::LastTransactionIsLost, &["now None", "sees watermark", ": acknowledged ("]);
}

#[test]
fn an_end_that_is_torn() {
    is_found(Plant::TornEnd, &["Committed in", "Unknown in", "stuck: client"]);
}

#[test]
fn a_batch_that_comes_after_its_transaction() {
    is_found(Plant::LateBatchesAreLetIn, &["Aborted in"]);
}
