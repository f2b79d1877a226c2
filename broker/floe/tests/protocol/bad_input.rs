//! Cases of bad frames and requests: Kafka's own answer, and no harm to any other connection.

use crate::kit::{Rig, frame};
use crate::samples::{SampleTopic, batch};
use floe_wire::messages::{ApiKey, MetadataRequest, RequestKind};
use tokio::io::AsyncWriteExt;

async fn closes(rig: &Rig, bytes: &[u8]) {
    let mut client = rig.connect();
    client.stream.write_all(bytes).await.expect("sent");
    assert!(client.is_closed().await, "{bytes:?} must close the connection");
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
