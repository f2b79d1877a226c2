//! Records through the protocol, from Produce to Fetch, at every version.

use crate::kit::{Client, Rig};
use crate::samples::{SampleTopic, batch};
use bytes::{Bytes, BytesMut};
use floe_wire::messages::produce_response::PartitionProduceResponse;
use floe_wire::messages::{ApiKey, FetchResponse, RequestKind, ResponseKind};

async fn topic(rig: &Rig) -> SampleTopic {
    SampleTopic { name: "records", id: rig.create_topic("records", 1).await }
}

async fn produce(
    client: &mut Client,
    topic: &SampleTopic,
    version: i16,
    records: Bytes,
) -> PartitionProduceResponse {
    let request = topic.produce(version, records);
    let ResponseKind::Produce(answer) = client.call(ApiKey::Produce, version, request).await else {
        panic!("another answer")
    };
    answer.responses[0].partition_responses[0].clone()
}

async fn fetch(client: &mut Client, version: i16, request: RequestKind) -> FetchResponse {
    match client.call(ApiKey::Fetch, version, request).await {
        ResponseKind::Fetch(answer) => answer,
        _ => panic!("another answer"),
    }
}

fn values(answer: &FetchResponse) -> Vec<(i64, String)> {
    let records = answer.responses[0].partitions[0].records.clone().expect("never null");
    let mut values = Vec::new();
    for batch in kfs::batches(&records) {
        let batch = batch.expect("whole batches");
        batch.verify_crc().expect("the checksum is the client's own");
        for record in batch.records(1 << 20).expect("records").iter() {
            let record = record.expect("a record");
            let value = String::from_utf8_lossy(record.value.expect("a value")).into_owned();
            values.push((batch.header.base_offset + i64::from(record.offset_delta), value));
        }
    }
    values
}

#[tokio::test]
async fn each_version_of_produce_is_read_by_each_version_of_fetch() {
    let rig = Rig::start().await;
    let topic = topic(&rig).await;
    let mut client = rig.connect();
    let mut expected = Vec::new();
    for version in 3..=13 {
        let value = format!("by version {version}");
        let produced = produce(&mut client, &topic, version, batch(&[&value])).await;
        assert_eq!((produced.error_code, produced.base_offset), (0, expected.len() as i64));
        expected.push((produced.base_offset, value));
    }
    for version in 4..=18 {
        let answer = fetch(&mut client, version, topic.fetch(version, 0, 0)).await;
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
    produce(&mut writer, &topic, 9, batch(&["a"])).await;
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
        let answer = fetch(&mut client, version, topic.fetch(version, 5, 60_000)).await;
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
    let produced = produce(&mut client, &topic, 9, broken.freeze()).await;
    assert_eq!((produced.error_code, produced.base_offset), (2, -1));
    let produced = produce(&mut client, &topic, 9, batch(&["b"])).await;
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
    let produced = produce(&mut client, &topic, 9, unset.freeze()).await;
    assert_eq!(produced.error_code, 0);
    let answer = fetch(&mut client, 12, topic.fetch(12, 0, 0)).await;
    let records = answer.responses[0].partitions[0].records.clone().expect("records");
    let header = kfs::BatchHeader::parse(&records).expect("a batch");
    assert_eq!(header.max_timestamp_ms, 1_000);
    assert_eq!(values(&answer), vec![(0, "a".to_owned())]);
}
