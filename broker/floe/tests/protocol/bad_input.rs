//! Cases of bad frames and requests: Kafka's own answer, a counter, a line in the log, and no harm
//! to any other connection or partition.

use crate::kit::{Rig, frame};
use crate::samples::{SampleTopic, batch};
use bytes::{Bytes, BytesMut};
use floe_wire::ErrorCode;
use floe_wire::messages::{ApiKey, MetadataRequest, RequestKind, ResponseKind};
use kfs::{BatchBuilder, Codec, NewRecord};
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::io::AsyncWriteExt;

/// What is logged on this thread.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Lines {
    /// Takes what is logged while the guard is kept, as a broker with its defaults logs it.
    fn take() -> (Self, tracing::subscriber::DefaultGuard) {
        let lines = Self::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::INFO)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        (lines, tracing::subscriber::set_default(subscriber))
    }

    /// The lines that have these words.
    fn with(&self, words: &str) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.0.lock()).into_owned();
        text.lines().filter(|line| line.contains(words)).map(str::to_owned).collect()
    }
}

/// Bytes that close their connection: that is counted, told in one line, and harms no other.
async fn closes(rig: &Rig, bytes: &[u8]) {
    let refused = &rig.broker.metrics.kafka.connections_refused;
    let before = refused.get();
    let (lines, _guard) = Lines::take();
    let mut client = rig.connect();
    client.stream.write_all(bytes).await.expect("sent");
    assert!(client.is_closed().await, "{bytes:?} must close the connection");
    assert_eq!(refused.get(), before + 1, "{bytes:?}");
    let told = lines.with("connection closed");
    assert!(told.len() == 1 && told[0].contains("host=127.0.0.1"), "{bytes:?}: {told:?}");
    let metadata = RequestKind::Metadata(MetadataRequest::default());
    rig.connect().call(ApiKey::Metadata, 9, metadata).await;
}

/// Case 179: a length that no request has.
#[tokio::test]
async fn case_179_impossible_frame_lengths_close_only_their_connection() {
    let rig = Rig::start().await;
    for length in [-1i32, 0, i32::MAX, 104_857_601, i32::MIN] {
        closes(&rig, &length.to_be_bytes()).await;
    }
}

#[tokio::test]
async fn unknown_apis_and_versions_close_only_their_connection() {
    let rig = Rig::start().await;
    let metadata = RequestKind::Metadata(MetadataRequest::default());
    let valid = frame(ApiKey::Metadata, 9, 1, &metadata);
    let mut unknown_api = valid.to_vec();
    unknown_api[4..6].copy_from_slice(&999i16.to_be_bytes());
    closes(&rig, &unknown_api).await;
    let mut unknown_version = valid.to_vec();
    unknown_version[6..8].copy_from_slice(&99i16.to_be_bytes());
    closes(&rig, &unknown_version).await;
    let topic = SampleTopic { name: "old", id: rig.create_topic("old", 1).await };
    let mut old_produce = frame(ApiKey::Produce, 3, 1, &topic.produce(3, batch(&["a"]))).to_vec();
    old_produce[6..8].copy_from_slice(&2i16.to_be_bytes());
    closes(&rig, &old_produce).await;
}

/// Mistake 6 of the specification's list: an array's length asks for 154 GB.
#[tokio::test]
async fn lengths_that_lie_close_the_connection_without_taking_memory() {
    let rig = Rig::start().await;
    let metadata = RequestKind::Metadata(MetadataRequest::default().with_topics(Some(Vec::new())));
    let mut lying = frame(ApiKey::Metadata, 4, 1, &metadata).to_vec();
    let at = lying.len() - 5;
    lying[at..at + 4].copy_from_slice(&i32::MAX.to_be_bytes());
    closes(&rig, &lying).await;
}

/// A client that leaves in the middle of its request.
#[tokio::test]
async fn torn_frames_are_counted_and_told() {
    let rig = Rig::start().await;
    let refused = &rig.broker.metrics.kafka.connections_refused;
    let metadata = RequestKind::Metadata(MetadataRequest::default());
    let whole = frame(ApiKey::Metadata, 9, 1, &metadata);
    for sent in [2, 4, 10, whole.len() - 1] {
        let before = refused.get();
        let (lines, _guard) = Lines::take();
        let mut client = rig.connect();
        client.stream.write_all(&whole[..sent]).await.expect("sent");
        client.stream.shutdown().await.expect("shut down");
        assert!(client.is_closed().await, "{sent}");
        assert_eq!(refused.get(), before + 1, "{sent}");
        assert_eq!(lines.with("connection closed: bad frame").len(), 1, "{sent}");
    }
    // Between two frames everybody may leave.
    let before = refused.get();
    let mut client = rig.connect();
    client.call(ApiKey::Metadata, 9, metadata).await;
    client.stream.shutdown().await.expect("shut down");
    assert!(client.is_closed().await);
    assert_eq!(refused.get(), before);
}

/// A batch with these bytes in the place of its own.
fn with_bytes(at: usize, bytes: &[u8]) -> Bytes {
    let mut changed = BytesMut::from(&batch(&["a", "b"])[..]);
    changed[at..at + bytes.len()].copy_from_slice(bytes);
    changed.freeze()
}

/// As [`with_bytes`], with a right checksum.
fn lying(at: usize, bytes: &[u8]) -> Bytes {
    let mut changed = BytesMut::from(&with_bytes(at, bytes)[..]);
    let crc = crc32c::crc32c(&changed[21..]);
    changed[17..21].copy_from_slice(&crc.to_be_bytes());
    changed.freeze()
}

/// Bytes that a topic of these tests lets a batch become.
const DECOMPRESSED_BYTES_MAX: usize = 1_000_000;

/// Few bytes that become more than the topic takes.
fn bomb() -> Bytes {
    let value = vec![0; 2 * DECOMPRESSED_BYTES_MAX];
    let mut builder = BatchBuilder::new().codec(Codec::Zstd, None);
    let record = NewRecord { timestamp_ms: 1_000, value: Some(&value), ..Default::default() };
    builder.push(&record).expect("a record");
    builder.build().expect("a batch")
}

/// One request with a batch at fault in each partition and a good one in the last: each is answered
/// by itself, counted, and told in one line.
#[tokio::test]
async fn batches_at_fault_are_answered_counted_and_told_and_fail_no_other() {
    let rig = Rig::start().await;
    let good = batch(&["good"]);
    let faults = [
        ("unknown magic", with_bytes(16, &[7]), ErrorCode::CorruptMessage),
        ("old magic", with_bytes(16, &[1]), ErrorCode::InvalidRecord),
        ("torn", good.slice(..good.len() - 5), ErrorCode::InvalidRecord),
        ("checksum", with_bytes(61, &[0x55]), ErrorCode::CorruptMessage),
        ("batch length", with_bytes(8, &i32::MAX.to_be_bytes()), ErrorCode::InvalidRecord),
        ("record count", lying(57, &i32::MAX.to_be_bytes()), ErrorCode::InvalidRecord),
        ("record length", lying(61, &[0x7e]), ErrorCode::InvalidRecord),
        ("bomb", bomb(), ErrorCode::MessageTooLarge),
        ("no records", Bytes::new(), ErrorCode::InvalidRecord),
    ];
    let count = faults.len();
    let limit = ("max.decompressed.message.bytes".to_owned(), DECOMPRESSED_BYTES_MAX.to_string());
    let partitions = i32::try_from(count + 1).expect("a few");
    let created = rig.broker.metadata.create_topic("faults", partitions, 1, [limit].into());
    created.await.expect("a new topic");
    rig.broker.topics.refresh().await.expect("topics");
    let id = rig.broker.topics.by_name("faults").expect("it is there").topic.id.0;
    let topic = SampleTopic { name: "faults", id };
    let RequestKind::Produce(mut request) = topic.produce(9, good) else { panic!() };
    let good = request.topic_data[0].partition_data.remove(0);
    let all = faults.iter().map(|(_, bytes, _)| Some(bytes.clone())).chain([good.records.clone()]);
    let all = (0..).zip(all).map(|(at, bytes)| good.clone().with_index(at).with_records(bytes));
    request.topic_data[0].partition_data = all.collect();
    let missing = SampleTopic { name: "missing", id: topic.id };
    request.topic_data.push({
        let RequestKind::Produce(other) = missing.produce(9, batch(&["a"])) else { panic!() };
        other.topic_data[0].clone()
    });

    let (lines, _guard) = Lines::take();
    let answer = rig.connect().call(ApiKey::Produce, 9, RequestKind::Produce(request)).await;
    let ResponseKind::Produce(answer) = answer else { panic!("another answer") };
    let mut counted = std::collections::BTreeMap::from([("UNKNOWN_TOPIC_OR_PARTITION", 1)]);
    for partition in &answer.responses[0].partition_responses {
        let at = partition.index as usize;
        let code = faults.get(at).map_or(ErrorCode::None, |(.., code)| *code);
        assert_eq!(partition.error_code, code.code(), "{:?}", faults.get(at).map(|fault| fault.0));
        if at < count {
            *counted.entry(code.name()).or_default() += 1;
        }
    }
    let missing = &answer.responses[1].partition_responses[0];
    assert_eq!(missing.error_code, ErrorCode::UnknownTopicOrPartition.code());
    let page = rig.broker.metrics.encode().expect("a page");
    for (name, count) in counted {
        let line = format!("floe_kafka_errors_total{{api=\"Produce\",error=\"{name}\"}} {count}");
        assert!(page.lines().any(|found| found == line), "no line {line} in\n{page}");
    }
    let told = lines.with("batch refused");
    assert_eq!(told.len(), count + 1, "{told:#?}");
    for part in ["topic=\"faults\"", "partition=0", "host=127.0.0.1", "code=\"CORRUPT_MESSAGE\""] {
        assert!(told[0].contains(part), "{part}: {}", told[0]);
    }
}

#[tokio::test]
async fn acks_0_gets_no_answer_and_an_error_closes_the_connection() {
    let rig = Rig::start().await;
    let topic = SampleTopic { name: "quiet", id: rig.create_topic("quiet", 1).await };
    let mut client = rig.connect();
    let RequestKind::Produce(request) = topic.produce(9, batch(&["a"])) else { panic!() };
    let quiet = RequestKind::Produce(request.clone().with_acks(0));
    client.send(ApiKey::Produce, 9, &quiet).await;
    let metadata = RequestKind::Metadata(MetadataRequest::default());
    client.call(ApiKey::Metadata, 9, metadata).await;
    let missing = SampleTopic { name: "missing", id: topic.id };
    let RequestKind::Produce(request) = missing.produce(9, batch(&["a"])) else { panic!() };
    client.send(ApiKey::Produce, 9, &RequestKind::Produce(request.with_acks(0))).await;
    assert!(client.is_closed().await);
}
