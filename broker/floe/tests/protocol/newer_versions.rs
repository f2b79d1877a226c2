//! Versions that the message layer lacks, byte by byte as Kafka 4.4's schemas have them.

use crate::kit::{Client, Rig};
use crate::samples::{SampleTopic, batch};
use crate::transactions::{Producer, Protocol, committed};
use bytes::{Buf, Bytes};
use floe_wire::ErrorCode;
use floe_wire::messages::{ApiKey, ApiVersionsResponse, Decodable, ListOffsetsResponse};

/// ApiVersions 5 with what the client says of the broker that it means.
async fn intended(client: &mut Client, cluster: Option<&str>, node: i32) -> ApiVersionsResponse {
    let mut body = b"\x05test\x021".to_vec();
    match cluster {
        None => body.push(0),
        Some(id) => {
            body.push(u8::try_from(id.len() + 1).expect("a short id"));
            body.extend(id.as_bytes());
        }
    }
    body.extend(node.to_be_bytes());
    body.push(0);
    let mut answer = client.call_raw(ApiKey::ApiVersions, 5, &body).await;
    let response = ApiVersionsResponse::decode(&mut answer, 4).expect("the body of version 4");
    assert!(answer.is_empty(), "bytes behind the answer");
    response
}

/// KIP-1242: addresses are given to other brokers while clients remember them.
#[tokio::test]
async fn api_versions_5_tells_who_reached_another_broker_to_look_again() {
    const REBOOTSTRAP_REQUIRED: i16 = 129;
    const INVALID_REQUEST: i16 = 42;
    let rig = Rig::start().await;
    let mut client = rig.connect();
    let own = rig.broker.identity.cluster.to_string();
    for (cluster, node, code) in [
        (None, -1, 0),
        (Some(&*own), 1, 0),
        (Some("another-cluster"), 1, REBOOTSTRAP_REQUIRED),
        (Some(&*own), 2, REBOOTSTRAP_REQUIRED),
        (Some(""), 1, REBOOTSTRAP_REQUIRED),
        (Some(&*own), -1, INVALID_REQUEST),
        (Some(""), -1, INVALID_REQUEST),
        (None, 1, INVALID_REQUEST),
    ] {
        let answer = intended(&mut client, cluster, node).await;
        assert_eq!(answer.error_code, code, "{cluster:?} {node}");
        assert_eq!(answer.api_keys.is_empty(), code != 0, "{cluster:?} {node}");
    }
}

#[tokio::test]
async fn delete_groups_3_answers_with_a_message_for_each_group() {
    let rig = Rig::start().await;
    let mut answer = rig.connect().call_raw(ApiKey::DeleteGroups, 3, b"\x02\x08missing\x00").await;
    assert_eq!(answer.get_i32(), 0);
    // One group: its name, GROUP_ID_NOT_FOUND, a null message, no tags.
    assert_eq!(answer, Bytes::from_static(b"\x02\x08missing\x00\x45\x00\x00\x00"));
}

#[tokio::test]
async fn describe_log_dirs_5_says_that_the_directory_is_not_cordoned() {
    let rig = Rig::start().await;
    let answer = rig.connect().call_raw(ApiKey::DescribeLogDirs, 5, &[0, 0]).await;
    // Ends with the sizes, which are not known, the new field, and the tags of both structures.
    let mut end = vec![0xff; 16];
    end.extend([0, 0, 0]);
    assert!(answer.ends_with(&end), "{answer:?}");
}

/// KIP-1023: -6 asks where what is not yet uploaded to a second tier begins, of which there is none
/// here. The layout is that of version 10.
#[tokio::test]
async fn list_offsets_11_is_answered_as_version_10_is() {
    let rig = Rig::start().await;
    let id = rig.create_topic("offsets", 1).await;
    let topic = SampleTopic { name: "offsets", id };
    let mut client = rig.connect();
    client.produce(&topic, 9, batch(&["a", "b"])).await;
    let mut found = Vec::new();
    for timestamp in [-1_i64, -2, -6] {
        // Replica, isolation, one topic, its name, one partition, no epoch.
        let mut body = b"\xff\xff\xff\xff\x00\x02\x08offsets\x02\0\0\0\0\xff\xff\xff\xff".to_vec();
        body.extend(timestamp.to_be_bytes());
        // Tags of partition and topic, the time that it may take, tags.
        body.extend(b"\0\0\x00\x00\x13\x88\0");
        let mut answer = client.call_raw(ApiKey::ListOffsets, 11, &body).await;
        let answer_11 = ListOffsetsResponse::decode(&mut answer, 10).expect("that of version 10");
        assert!(answer.is_empty(), "bytes behind the answer");
        let partition = &answer_11.topics[0].partitions[0];
        assert_eq!((&*answer_11.topics[0].name.0, partition.error_code), ("offsets", 0));
        found.push((partition.offset, partition.leader_epoch));
    }
    assert_eq!(found, [(2, 0), (0, 0), (-1, -1)]);
}

/// KIP-1319: topics are named by their ids, in the answer too.
#[tokio::test]
async fn txn_offset_commit_6_names_topics_by_id() {
    let rig = Rig::start().await;
    let id = rig.create_topic("one", 1).await;
    let mut producer = Producer::new(&rig, Protocol::Tv2, "t").await;
    let other = uuid::Uuid::from_u128(9);
    // Transactional id, group, producer.
    let mut body = b"\x02t\x02g".to_vec();
    body.extend(producer.producer_id.to_be_bytes());
    body.extend(producer.epoch.to_be_bytes());
    // No generation, no member, no instance; two topics.
    body.extend(b"\xff\xff\xff\xff\x01\x00\x03");
    for topic in [other, id] {
        body.extend(topic.as_bytes());
        // One partition, offset 5, no epoch, no metadata; tags of partition and topic.
        body.extend(b"\x02\0\0\0\0\0\0\0\0\0\0\0\x05\xff\xff\xff\xff\0\0\0");
    }
    body.push(0);
    let answer = rig.connect().call_raw(ApiKey::TxnOffsetCommit, 6, &body).await;
    let mut expected = b"\0\0\0\0\x03".to_vec();
    for (topic, code) in [(other, 100), (id, 0)] {
        expected.extend(topic.as_bytes());
        expected.extend([2, 0, 0, 0, 0, 0, code, 0, 0]);
    }
    expected.push(0);
    assert_eq!(answer, expected);
    let pending = rig.broker.metadata.pending_offsets("g").await.expect("a read");
    assert_eq!((pending.len(), pending[0].offset.offset), (1, 5));
    assert_eq!(producer.end(true).await, ErrorCode::None);
    assert!(rig.broker.metadata.pending_offsets("g").await.expect("a read").is_empty());
}

/// KIP-1228: a marker of KIP-890's second part ends what is open only with a raised epoch.
#[tokio::test]
async fn write_txn_markers_2_raises_the_epoch() {
    let rig = Rig::start().await;
    let topic = SampleTopic { name: "one", id: rig.create_topic("one", 1).await };
    let mut producer = Producer::new(&rig, Protocol::Tv2, "t").await;
    producer.write(&topic, "a").await;
    let mut codes = Vec::new();
    for (version, raised) in [(2, 0), (2, 1), (2, 1), (1, 0)] {
        let mut body = vec![2];
        body.extend(producer.producer_id.to_be_bytes());
        body.extend((producer.epoch + raised).to_be_bytes());
        // Abort; one topic with one partition; tags; the coordinator's epoch.
        body.extend(b"\0\x02\x04one\x02\0\0\0\0\0\0\0\0\x03");
        body.extend([version, 0, 0]);
        let answer = rig.connect().call_raw(ApiKey::WriteTxnMarkers, 2, &body).await;
        let mut expected = vec![2];
        expected.extend(producer.producer_id.to_be_bytes());
        expected.extend(b"\x02\x04one\x02\0\0\0\0");
        assert!(answer.starts_with(&expected), "{answer:?}");
        codes.push(answer[expected.len() + 1]);
        assert_eq!(answer[expected.len() + 2..], [0; 4], "tags");
    }
    let stale = 47;
    assert_eq!(codes, [stale, 0, 0, stale]);
    assert_eq!(committed(&rig, &topic).await, (3, 3, vec![0], 3));
}
