//! Versions that the message layer lacks, byte by byte as Kafka 4.4's schemas have them.

use crate::kit::{Client, Rig};
use crate::samples::{SampleTopic, batch};
use bytes::{Buf, Bytes};
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
