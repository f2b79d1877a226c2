use super::*;
use kfs::ProducerEpoch;

fn producer(id: i64, last_written_ms: i64) -> ProducerState {
    ProducerState {
        id: ProducerId(id),
        epoch: ProducerEpoch(0),
        batches: Vec::new(),
        transaction_start: None,
        last_written_ms,
    }
}

fn ids<'a>(states: impl IntoIterator<Item = &'a ProducerState>) -> Vec<i64> {
    states.into_iter().map(|state| state.id.0).collect()
}

#[test]
fn those_that_wrote_last_stay_and_the_others_are_spilled() {
    let mut producers = PartitionProducers::default();
    for id in 0..PACKED_PRODUCERS_MAX as i64 {
        producers.put_newest(producer(id, 0));
    }
    assert_eq!(producers.spill(), []);
    assert!(!producers.has_spilled);
    let again = producers.take(ProducerId(0)).unwrap();
    producers.put_newest(again);
    producers.put_newest(producer(100, 0));
    producers.put_spilled(producer(200, 0));
    assert_eq!(ids(&producers.spill()), [200, 1]);
    assert!(producers.has_spilled);
    assert_eq!(ids(producers.oldest_first()), [2, 3, 4, 5, 6, 7, 0, 100]);
}

#[test]
fn what_is_packed_is_newer_than_what_is_spilled() {
    let mut producers = PartitionProducers::default();
    producers.put_newest(producer(1, 9));
    producers.put_spilled(producer(1, 5));
    assert_eq!(producers.get(ProducerId(1)).unwrap().last_written_ms, 9);
}

#[test]
fn idle_producers_without_an_open_transaction_expire() {
    let mut producers = PartitionProducers::default();
    producers.put_newest(producer(1, 5));
    producers.put_newest(producer(2, 6));
    producers.put_newest(ProducerState { transaction_start: Some(0), ..producer(3, 5) });
    assert_eq!(producers.expire(6), 1);
    assert_eq!(ids(&producers.into_states()), [2, 3]);
}
