//! Layer two where calls are long, or have an unknown outcome.

use super::*;
use crate::brokers::BrokerAddress;
use crate::model::ModelBackend;
use crate::rows::{AbortedInRange, MarkerFacts, MarkerOutcome};
use crate::topics::{TopicChange, TopicCreation};
use async_trait::async_trait;
use kfs::PartitionIndex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The model, of which every change that is told to loses its answer: made or not made, in turn.
struct Forgetful {
    model: ModelBackend,
    lost_answers: AtomicUsize,
}

#[async_trait]
impl Backend for Forgetful {
    async fn commit_segments(
        &self,
        fence: &Fence,
        segments: &[SegmentFacts],
    ) -> Result<Vec<SegmentOutcome>> {
        self.model.commit_segments(fence, segments).await
    }
    async fn segment_outcome(&self, id: SegmentId) -> Result<Option<SegmentOutcome>> {
        self.model.segment_outcome(id).await
    }
    async fn abandon_segment(&self, fence: &Fence, id: SegmentId) -> Result<SegmentOutcome> {
        self.model.abandon_segment(fence, id).await
    }
    async fn forget_outcomes(&self, fence: &Fence, up_to: SegmentId) -> Result<()> {
        self.model.forget_outcomes(fence, up_to).await
    }
    async fn forget_registrations(&self, broker: BrokerId, up_to: BrokerEpoch) -> Result<()> {
        self.model.forget_registrations(broker, up_to).await
    }
    async fn partition_states(
        &self,
        partitions: &[TopicPartition],
    ) -> Result<Vec<Option<PartitionState>>> {
        self.model.partition_states(partitions).await
    }
    async fn extents(
        &self,
        partition: TopicPartition,
        offset: i64,
        limit: usize,
    ) -> Result<Option<ExtentPage>> {
        self.model.extents(partition, offset, limit).await
    }
    async fn extent_by_time(
        &self,
        partition: TopicPartition,
        timestamp_ms: i64,
    ) -> Result<Option<(PartitionState, Option<Extent>)>> {
        self.model.extent_by_time(partition, timestamp_ms).await
    }
    async fn extent_of_max_timestamp(
        &self,
        partition: TopicPartition,
    ) -> Result<Option<(PartitionState, Option<Extent>)>> {
        self.model.extent_of_max_timestamp(partition).await
    }
    async fn producers(&self, partition: TopicPartition) -> Result<Vec<ProducerState>> {
        self.model.producers(partition).await
    }
    async fn expire_producers(
        &self,
        fence: Option<&Fence>,
        partition: TopicPartition,
        written_before_ms: i64,
    ) -> Result<usize> {
        self.model.expire_producers(fence, partition, written_before_ms).await
    }
    async fn end_transaction(
        &self,
        change: &Change,
        markers: &[MarkerFacts],
    ) -> Result<Option<Vec<MarkerOutcome>>> {
        self.model.end_transaction(change, markers).await
    }
    async fn aborted(
        &self,
        partition: TopicPartition,
        from: i64,
        until: i64,
    ) -> Result<Option<AbortedInRange>> {
        self.model.aborted(partition, from, until).await
    }
    async fn advance_log_start(
        &self,
        fence: Option<&Fence>,
        partition: TopicPartition,
        offset: i64,
    ) -> Result<Option<PartitionState>> {
        self.model.advance_log_start(fence, partition, offset).await
    }
    async fn replace_extents(
        &self,
        fence: &Fence,
        replacement: &Replacement,
    ) -> Result<ChangeOutcome> {
        self.model.replace_extents(fence, replacement).await
    }
    async fn unpack_fresh(&self, kept: FreshBounds) -> Result<usize> {
        self.model.unpack_fresh(kept).await
    }
    async fn dead_objects(&self, dead_before_ms: i64, limit: usize) -> Result<Vec<DeadObject>> {
        self.model.dead_objects(dead_before_ms, limit).await
    }
    async fn known_objects(&self, keys: &[String]) -> Result<Vec<bool>> {
        self.model.known_objects(keys).await
    }
    async fn forget_objects(&self, keys: &[String]) -> Result<()> {
        self.model.forget_objects(keys).await
    }
    async fn get(&self, keys: &[FactKey]) -> Result<Vec<Option<Bytes>>> {
        self.model.get(keys).await
    }
    async fn scan(&self, range: &FactRange, limit: usize) -> Result<Vec<(FactKey, Bytes)>> {
        self.model.scan(range, limit).await
    }
    async fn change(&self, change: &Change) -> Result<ChangeOutcome> {
        let left = self.lost_answers.load(Ordering::Relaxed);
        if left == 0 {
            return self.model.change(change).await;
        }
        self.lost_answers.store(left - 1, Ordering::Relaxed);
        // Of two lost answers the first change is not made, of one it is.
        if left == 1 {
            self.model.change(change).await?;
        }
        Err(Error::unknown_outcome("the answer was lost"))
    }
    async fn now_ms(&self) -> Result<i64> {
        self.model.now_ms().await
    }
}

fn forgetful() -> (Arc<Forgetful>, MetadataStore) {
    let env = Env::current();
    let model = ModelBackend::new(env.clone());
    let backend = Arc::new(Forgetful { model, lost_answers: AtomicUsize::new(0) });
    (Arc::clone(&backend), MetadataStore::new(backend, env))
}

#[tokio::test]
async fn changes_are_counted_by_kind_and_reads_are_not() {
    let (_, store) = forgetful();
    let created = store.create_topic("t", 1, 1, BTreeMap::new()).await.unwrap();
    let TopicCreation::Created(topic) = created else {
        panic!("the topic is ours");
    };
    let made = store.change_counts();
    assert_eq!(made, ChangeCounts { facts: 1, ..ChangeCounts::default() });
    let partition = TopicPartition { topic: topic.id, partition: PartitionIndex(0) };
    store.partition_states(&[partition]).await.unwrap();
    store.topics().await.unwrap();
    assert_eq!(store.change_counts(), made);
    // By another handle too, and by the backend itself.
    let clone = store.clone();
    clone.backend().advance_log_start(None, partition, 0).await.unwrap();
    assert_eq!(store.change_counts(), ChangeCounts { upkeep: 1, ..made });
}

#[tokio::test]
async fn topics_are_settled_after_lost_answers() {
    for lost in 1..3 {
        let (backend, store) = forgetful();
        let lose = || backend.lost_answers.store(lost, Ordering::Relaxed);
        lose();
        let created = store.create_topic("t", 2, 1, BTreeMap::new()).await.unwrap();
        let TopicCreation::Created(topic) = created else {
            panic!("the topic is ours");
        };
        lose();
        let grown = store.create_partitions(topic.id, 3).await.unwrap();
        assert!(matches!(grown, TopicChange::Changed(topic) if topic.partition_count == 3));
        lose();
        let configs = BTreeMap::from([("a".to_owned(), "b".to_owned())]);
        let set = store.set_topic_configs(topic.id, &BTreeMap::new(), configs).await.unwrap();
        assert!(matches!(set, TopicChange::Changed(_)));
        assert_eq!(store.topics_revision().await.unwrap(), 3);
        lose();
        assert!(store.delete_topic(topic.id).await.unwrap());
        assert_eq!(store.topics().await.unwrap(), []);
    }
}

#[tokio::test]
async fn ids_and_epochs_are_not_issued_twice_after_lost_answers() {
    for lost in 1..3 {
        let (backend, store) = forgetful();
        let address = BrokerAddress { host: "h".to_owned(), port: 1, zone: None };
        let mut ids = Vec::new();
        let mut epochs = Vec::new();
        for _ in 0..3 {
            backend.lost_answers.store(lost, Ordering::Relaxed);
            ids.extend(store.allocate_producer_ids(5).await.unwrap());
            backend.lost_answers.store(lost, Ordering::Relaxed);
            let broker = store.register_broker(BrokerId(1), &address, 1).await.unwrap();
            epochs.push(broker.epoch);
        }
        assert!(ids.is_sorted_by(|a, b| a < b) && epochs.is_sorted_by(|a, b| a < b));
        let open = store.broker_epochs().await.unwrap()[0];
        assert_eq!((open.last, open.is_open), (epochs[2], true));
    }
}

#[tokio::test]
async fn others_pass_an_unknown_outcome_on() {
    let (backend, store) = forgetful();
    backend.lost_answers.store(1, Ordering::Relaxed);
    let error = store.put_group("g", None, Bytes::from_static(b"1")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome);
    assert_eq!(store.group("g").await.unwrap(), Some(Bytes::from_static(b"1")));
}

#[tokio::test]
async fn a_long_scan_goes_page_by_page() {
    let (_, store) = forgetful();
    let count = SCAN_PAGE_FACTS * 2;
    let names: Vec<String> = (0..count).map(|number| format!("{number:05}")).collect();
    let puts = names
        .iter()
        .map(|name| Write::Put(FactKey::new(&["long", name]), Bytes::from(name.clone())));
    let change = Change { writes: puts.collect(), ..Change::default() };
    store.backend().change(&change).await.unwrap();
    let facts = store.scan_all(FactKey::new(&["long"]).folder()).await.unwrap();
    let found: Vec<String> = facts.iter().map(|(key, _)| key.segments().pop().unwrap()).collect();
    assert_eq!(found, names);
}
