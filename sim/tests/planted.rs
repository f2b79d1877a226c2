//! Each planted bug is found within 50 seeds.

use floe_sim::{Plant, run};

const SEEDS_MAX: u64 = 50;

/// Finds the bug by one of the violations that it must lead to, each given by words in it.
fn is_found(plant: Plant, by: &[&str]) {
    is_found_from(0, plant, by);
}

/// As [`is_found`], beginning with a seed that found it when this was written: that saves time.
fn is_found_from(first: u64, plant: Plant, by: &[&str]) {
    find(first, plant, &[by]);
}

/// As [`is_found_from`], by all of these violations, perhaps of several seeds.
fn all_are_found_from(first: u64, plant: Plant, by: &[&str]) {
    let each: Vec<&[&str]> = by.iter().map(std::slice::from_ref).collect();
    find(first, plant, &each);
}

/// Runs seeds until each list of words has a violation with one of its words.
fn find(first: u64, plant: Plant, by: &[&[&str]]) {
    let mut left = by.to_vec();
    for seed in (first..SEEDS_MAX).chain(0..first) {
        let violations = run(seed, plant).violations;
        left.retain(|words| {
            let is_it = |violation: &&String| words.iter().any(|words| violation.contains(words));
            let found = violations.iter().find(is_it);
            if let Some(violation) = found {
                println!("{plant:?} found by seed {seed}: {violation}");
            }
            found.is_none()
        });
        if left.is_empty() {
            return;
        }
    }
    panic!("{plant:?} is not found in {SEEDS_MAX} seeds by {left:?}");
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
    is_found_from(27, Plant::SuccessorIgnoresLatePut, &["code -1", "acknowledged", "now None"]);
}

#[test]
fn a_commit_without_the_fence_check() {
    is_found(Plant::CommitWithoutFence, &["of a closed registration is applied"]);
}

#[test]
fn other_changes_without_the_fence_check() {
    let by = ["a log start of", "a merge of", "an end of a transaction"];
    all_are_found_from(1, Plant::ChangeWithoutFence, &by);
}

#[test]
fn a_cleaner_that_takes_everything_for_an_orphan() {
    is_found(Plant::KnowsNoObject, &["is deleted while it is needed"]);
}

#[test]
fn deletions_that_are_not_made() {
    all_are_found_from(5, Plant::DeletesNothing, &["is left over", "orphans of tables stay"]);
}

#[test]
fn a_commit_or_a_merge_before_its_object_is_there() {
    all_are_found_from(1, Plant::LogPutComesLater, &["a commit names", "a merge names"]);
}

#[test]
fn a_table_pointer_before_a_data_file_is_there() {
    is_found(Plant::TablePutComesLater, &["a table's pointer names"]);
}

#[test]
fn a_fold_with_the_rows_of_another() {
    all_are_found_from(3, Plant::FoldHasOtherRows, &["is there twice", " and lacks "]);
}

#[test]
fn a_commit_that_does_not_know_duplicates() {
    is_found(Plant::CommitForgetsProducers, &["idempotent producer"]);
}

#[test]
fn a_fence_without_a_successor() {
    is_found(Plant::FencedByNobody, &["without a successor"]);
}

#[test]
fn clients_that_never_end() {
    let by = ["does not end", "takes no record any more"];
    all_are_found_from(0, Plant::CommitsEndWithFaults, &by);
}

#[test]
fn a_topic_that_stays() {
    let by = ["is deleted and took a record", "is deleted and still told of"];
    all_are_found_from(0, Plant::TopicStays, &by);
}

#[test]
fn offsets_of_a_group_that_are_forgotten() {
    is_found(Plant::OffsetsAreForgotten, &["committed offset of partition"]);
}

#[test]
fn a_group_that_is_forgotten() {
    is_found(Plant::GroupIsForgotten, &["is assigned to"]);
}

#[test]
fn errors_that_no_client_should_be_told() {
    all_are_found_from(0, Plant::EndsAreCorrupt, &["lists an offset: code", "client 110: deletes"]);
}

#[test]
fn a_gap_that_is_none() {
    is_found(Plant::CutStartsTooLate, &["beyond log start"]);
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
fn records_that_go_before_their_time() {
    is_found_from(1, Plant::ExtentsLookOld, &["goes before its time"]);
}

#[test]
fn records_that_stay_for_ever() {
    is_found_from(1, Plant::ExtentsLookYoung, &["is over and still there"]);
}

#[test]
fn records_that_their_table_has_not_read() {
    is_found_from(1, Plant::TableLooksFurther, &["passes its table"]);
}

#[test]
fn compaction_that_takes_the_newest_record() {
    is_found(Plant::CompactionTakesTooMuch, &["of k", "answers nothing at"]);
}

#[test]
fn compaction_that_leaves_older_records() {
    is_found(Plant::CompactionIsForgotten, &["stands at"]);
}

#[test]
fn more_that_goes_than_the_size_allows() {
    is_found_from(1, Plant::LogStartTooFar, &["bytes are left where"]);
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
fn an_end_without_its_offsets() {
    is_found(Plant::EndForgetsOffsets, &["offset of transaction"]);
}

#[test]
fn a_batch_that_comes_after_its_transaction() {
    is_found(Plant::LateBatchesAreLetIn, &["Aborted in"]);
}
