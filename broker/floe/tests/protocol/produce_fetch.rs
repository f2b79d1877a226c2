//! Records through the protocol, from Produce to Fetch, at every version.

use crate::kit::{Rig, values};
use crate::samples::{SampleTopic, batch};
use bytes::BytesMut;
use floe_wire::messages::{ApiKey, ResponseKind};

async fn topic(rig: &Rig) -> SampleTopic {
    SampleTopic { name: "records", id: rig.create_topic("records", 1).await }
}

#[tokio::test]
async fn each_version_of_produce_is_read_by_each_version_of_fetch() {
    let rig = Rig::start().await;
    let topic = topic(&rig).await;
    let mut client = rig.connect();
    let mut expected = Vec::new();
    for version in 3..=13 {
        let value = format!("by version {version}");
        let produced = client.produce(&topic, version, batch(&[&value])).await;
        assert_eq!((produced.error_code, produced.base_offset), (0, expected.len() as i64));
        expected.push((produced.base_offset, value));
    }
    for version in 4..=18 {
        let answer = client.fetch(version, topic.fetch(version, 0, 0)).await;
        assert_eq!(values(&answer), expected, "fetch v{version}");
        let partition = &answer.responses[0].partitions[0];
        assert_eq!((partition.high_watermark, partition.last_stable_offset), (11, 11));
    }
}

#[tokio::test]
async fn a_waiting_fetch_is_answered_by_a_produce_on_another_connection() {
    let rig = Rig::start().await;
    let topic = topic(&rig).await;
    let (mut reader, mut writer) = (rig.connect(), rig.connect());
    let request = topic.fetch(12, 0, 60_000);
    let correlation = reader.send(ApiKey::Fetch, 12, &request).await;
    writer.produce(&topic, 9, batch(&["a"])).await;
    let mut body = reader.receive(ApiKey::Fetch, 12, correlation).await.expect("an answer");
    let answer = ResponseKind::decode(ApiKey::Fetch, &mut body, 12).expect("a fetch answer");
    let ResponseKind::Fetch(answer) = answer else { panic!("another answer") };
    assert_eq!(values(&answer), vec![(0, "a".to_owned())]);
}

#[tokio::test]
async fn offsets_out_of_range_are_told_with_unknown_ends() {
    let rig = Rig::start().await;
    let topic = topic(&rig).await;
    let mut client = rig.connect();
    for version in 4..=18 {
        let answer = client.fetch(version, topic.fetch(version, 5, 60_000)).await;
        let partition = &answer.responses[0].partitions[0];
        assert_eq!((partition.error_code, partition.high_watermark), (1, -1), "v{version}");
    }
}

#[tokio::test]
async fn a_wrong_checksum_is_told_and_nothing_is_written() {
    let rig = Rig::start().await;
    let topic = topic(&rig).await;
    let mut client = rig.connect();
    let mut broken = BytesMut::from(&batch(&["a"])[..]);
    let last = broken.len() - 1;
    broken[last] ^= 1;
    let produced = client.produce(&topic, 9, broken.freeze()).await;
    assert_eq!((produced.error_code, produced.base_offset), (2, -1));
    let produced = client.produce(&topic, 9, batch(&["b"])).await;
    assert_eq!((produced.error_code, produced.base_offset), (0, 0));
}

/// Case 139: a client leaves the greatest timestamp unset.
#[tokio::test]
async fn case_139_a_wrong_greatest_timestamp_is_put_right_with_a_new_checksum() {
    let rig = Rig::start().await;
    let topic = topic(&rig).await;
    let mut client = rig.connect();
    let mut unset = BytesMut::from(&batch(&["a"])[..]);
    kfs::set_timestamps(&mut unset, kfs::TimestampType::CreateTime, -1);
    let produced = client.produce(&topic, 9, unset.freeze()).await;
    assert_eq!(produced.error_code, 0);
    let answer = client.fetch(12, topic.fetch(12, 0, 0)).await;
    let records = answer.responses[0].partitions[0].records.clone().expect("records");
    let header = kfs::BatchHeader::parse(&records).expect("a batch");
    assert_eq!(header.max_timestamp_ms, 1_000);
    assert_eq!(values(&answer), vec![(0, "a".to_owned())]);
}
