//! Answers that clients do not take hold memory: a bounded part of it, and not for ever.

use crate::kit::{Client, Rig};
use crate::samples::{SampleTopic, batch};
use floe_env::Instant;
use floe_wire::messages::{ApiKey, MetadataRequest, RequestKind, ResponseKind};
use std::time::Duration;

/// The smallest budget: the cache has 32 MiB of it, of which answers may hold 8.
const MACHINE_BYTES: u64 = 128 << 20;
/// What is under way on the connection of a slow reader, bytes.
const SLOW_BUFFER_BYTES: usize = 64 << 10;
/// Longer than a broker lets a slow client hold what others wait for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A broker with 4 MB of records.
pub(crate) async fn broker_with_records() -> (Rig, SampleTopic) {
    let rig = Rig::start_on(MACHINE_BYTES).await;
    let topic = SampleTopic { name: "large", id: rig.create_topic("large", 1).await };
    let mut client = rig.connect();
    for _ in 0..5 {
        let request = topic.produce(9, batch(&[&"x".repeat(900_000)]));
        let answer = client.call(ApiKey::Produce, 9, request).await;
        let ResponseKind::Produce(answer) = answer else { panic!("another answer") };
        assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
    }
    (rig, topic)
}

/// A fetch of all records.
pub(crate) fn fetch(topic: &SampleTopic) -> RequestKind {
    let RequestKind::Fetch(mut request) = topic.fetch(12, 0, 0) else { panic!("another request") };
    request.max_bytes = 50 << 20;
    request.topics[0].partitions[0].partition_max_bytes = 50 << 20;
    RequestKind::Fetch(request)
}

/// Clients that ask for all records and take nothing of the answer.
async fn slow_readers(rig: &Rig, topic: &SampleTopic, count: usize) -> Vec<Client> {
    let mut slow = Vec::with_capacity(count);
    for _ in 0..count {
        let mut client = rig.connect_buffered(SLOW_BUFFER_BYTES);
        client.send(ApiKey::Fetch, 12, &fetch(topic)).await;
        slow.push(client);
    }
    // By now each has what it can get, or waits for it.
    rig.env.sleep(Duration::from_millis(100)).await;
    slow
}

/// Bytes of records that a fetch gets, and how long it took.
async fn fetched(rig: &Rig, topic: &SampleTopic, client: &mut Client) -> (usize, Duration) {
    let start: Instant = rig.env.monotonic();
    let answer = client.call(ApiKey::Fetch, 12, fetch(topic)).await;
    let ResponseKind::Fetch(answer) = answer else { panic!("another answer") };
    let partition = &answer.responses[0].partitions[0];
    assert_eq!((partition.error_code, partition.high_watermark), (0, 5));
    let bytes = partition.records.as_ref().map_or(0, bytes::Bytes::len);
    (bytes, rig.env.monotonic() - start)
}

#[tokio::test(start_paused = true)]
async fn a_few_slow_readers_only_make_the_answers_of_others_smaller() {
    let (rig, topic) = broker_with_records().await;
    let (alone, _) = fetched(&rig, &topic, &mut rig.connect()).await;
    let _slow = slow_readers(&rig, &topic, 3).await;
    let (bytes, took) = fetched(&rig, &topic, &mut rig.connect()).await;
    assert!(bytes > 0 && bytes < alone, "{bytes} of {alone}");
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn many_slow_readers_hold_others_back_until_they_are_given_up_and_harm_nothing_else() {
    let (rig, topic) = broker_with_records().await;
    let mut slow = slow_readers(&rig, &topic, 20).await;
    let mut reader = rig.connect();
    let start = rig.env.monotonic();
    let (bytes, took) = fetched(&rig, &topic, &mut reader).await;
    assert_eq!(bytes, 0, "there is no memory for records");
    assert!(took < Duration::from_secs(10), "{took:?}: the client is answered all the same");
    // Whoever needs no memory of answers does not notice.
    let metadata = RequestKind::Metadata(MetadataRequest::default());
    rig.connect().call(ApiKey::Metadata, 9, metadata).await;
    let produced = topic.produce(9, batch(&[&"y".repeat(1000)]));
    let before = rig.env.monotonic();
    let mut writer = rig.connect();
    let correlation = writer.send(ApiKey::Produce, 9, &produced).await;
    writer.receive(ApiKey::Produce, 9, correlation).await.expect("an answer");
    assert!(rig.env.monotonic() - before < Duration::from_secs(1));
    loop {
        let answer = reader.call(ApiKey::Fetch, 12, fetch(&topic)).await;
        let ResponseKind::Fetch(answer) = answer else { panic!("another answer") };
        let records = answer.responses[0].partitions[0].records.as_ref();
        if records.is_some_and(|records| !records.is_empty()) {
            break;
        }
        assert!(rig.env.monotonic() - start < PATIENCE, "nobody was given up");
    }
    let mut closed = 0;
    for client in &mut slow {
        let mut answer = Vec::new();
        let taken = tokio::io::AsyncReadExt::read_to_end(&mut client.stream, &mut answer);
        closed += usize::from(rig.env.timeout(PATIENCE, taken).await.is_some());
    }
    assert!(closed > 0, "no slow reader was given up");
}

/// Readers of old records that are slow hold what there is for such, and those at the end of the
/// log do not notice.
#[tokio::test(start_paused = true)]
async fn slow_readers_of_old_records_leave_those_at_the_end_alone() {
    let (rig, topic) = broker_with_records().await;
    let rig = rig.restart().await;
    let _slow = slow_readers(&rig, &topic, 32).await;
    let (bytes, took) = fetched(&rig, &topic, &mut rig.connect()).await;
    assert_eq!(bytes, 0, "there is no memory for old records");
    assert!(took >= Duration::from_secs(5), "{took:?}: it has waited for some");
    rig.connect().call(ApiKey::Produce, 9, topic.produce(9, batch(&["new"]))).await;
    let before = rig.env.monotonic();
    let answer = rig.connect().fetch(12, topic.fetch(12, 5, 0)).await;
    assert_eq!(crate::kit::values(&answer), [(5, "new".to_owned())]);
    assert!(rig.env.monotonic() - before < Duration::from_secs(1));
}

/// Where there are no records, none of the memory is needed; and nobody waits for it while the
/// broker shuts down.
#[tokio::test(start_paused = true)]
async fn only_who_finds_records_waits_for_memory_and_not_beyond_a_shutdown() {
    let (rig, topic) = broker_with_records().await;
    let _slow = slow_readers(&rig, &topic, 20).await;
    let before = rig.env.monotonic();
    let answer = rig.connect().fetch(12, topic.fetch(12, 5, 0)).await;
    assert_eq!(answer.responses[0].partitions[0].high_watermark, 5);
    let waited = rig.connect().fetch(12, topic.fetch(12, 5, 300)).await;
    assert!(crate::kit::values(&waited).is_empty());
    let took = rig.env.monotonic() - before;
    assert!(took < Duration::from_secs(1), "{took:?}");
    let mut reader = rig.connect();
    let correlation = reader.send(ApiKey::Fetch, 12, &fetch(&topic)).await;
    rig.env.sleep(Duration::from_millis(100)).await;
    let before = rig.env.monotonic();
    rig.trigger.trigger();
    reader.receive(ApiKey::Fetch, 12, correlation).await.expect("it is answered");
    let took = rig.env.monotonic() - before;
    assert!(took < Duration::from_secs(1), "{took:?}");
}

/// Nothing is read for partitions that the answer has no room for.
#[tokio::test(start_paused = true)]
async fn what_does_not_fit_is_not_read() {
    let rig = Rig::start().await;
    let topic = SampleTopic { name: "many", id: rig.create_topic("many", 4).await };
    let mut client = rig.connect();
    for index in 0..4 {
        let RequestKind::Produce(mut request) = topic.produce(9, batch(&["x"])) else { panic!() };
        request.topic_data[0].partition_data[0].index = index;
        client.call(ApiKey::Produce, 9, RequestKind::Produce(request)).await;
    }
    let rig = rig.restart().await;
    let RequestKind::Fetch(mut request) = topic.fetch(12, 0, 0) else { panic!() };
    request.max_bytes = 1;
    let partitions = &mut request.topics[0].partitions;
    *partitions = (0..4).map(|index| partitions[0].clone().with_partition(index)).collect();
    let answer = rig.connect().fetch(12, RequestKind::Fetch(request)).await;
    assert_eq!(crate::kit::values(&answer), [(0, "x".to_owned())]);
    for partition in &answer.responses[0].partitions {
        assert_eq!((partition.error_code, partition.high_watermark), (0, 1));
    }
    assert_eq!(rig.broker.log.cache_stats().misses, 1);
}
