use super::*;
use kfs::{PartitionIndex, TopicId};

const PARTITION: TopicPartition =
    TopicPartition { topic: TopicId(Uuid::nil()), partition: PartitionIndex(0) };

fn at(log_start_offset: i64) -> Model {
    let model = Model::default();
    model.deletes(PARTITION, Some(log_start_offset));
    model.log_start_moved(PARTITION, log_start_offset);
    assert!(model.violations().is_empty());
    model
}

fn moves_unasked(model: &Model, log_start: i64) -> bool {
    let before = model.violations().len();
    model.log_start_moved(PARTITION, log_start);
    model.violations()[before..].iter().any(|text| text.contains("nobody asked"))
}

#[test]
fn a_request_for_everything_lets_a_log_start_move_until_it_is_answered() {
    let model = at(3);
    model.deletes(PARTITION, None);
    assert!(!moves_unasked(&model, 10));
    model.no_more_for_all(PARTITION, Some(10));
    model.deleted(PARTITION, None, 10);
    assert!(!moves_unasked(&model, 10), "what comes twice changes nothing");
    assert!(moves_unasked(&model, 11));
}

#[test]
fn a_request_that_is_answered_before_a_late_one_covers_what_was_told() {
    let model = at(3);
    model.deletes(PARTITION, None);
    model.deletes(PARTITION, None);
    model.no_more_for_all(PARTITION, Some(10));
    assert!(!moves_unasked(&model, 12), "the other one may be carried out");
    model.no_more_for_all(PARTITION, None);
    assert!(moves_unasked(&model, 13));
}

#[test]
fn a_request_for_everything_that_is_given_up_allows_nothing_later() {
    let model = at(3);
    model.deletes(PARTITION, None);
    model.no_more_for_all(PARTITION, None);
    assert!(moves_unasked(&model, 4));
}

#[test]
fn deletions_count_where_they_move_something() {
    let model = at(3);
    model.deleted(PARTITION, Some(3), 3);
    model.deleted(PARTITION, Some(2), 3);
    assert_eq!(model.counts().deletions, 1);
}
