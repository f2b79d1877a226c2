//! Cases 94, 97, 98, 100, 101, 103, 104: every version that ApiVersions shows is answered, and the
//! answer decodes as that version with nothing left over.

use crate::kafka_versions::KAFKA_4_4;
use crate::kit::Rig;
use crate::samples::{SampleTopic, sample};
use floe_wire::messages::{ApiKey, ApiVersionsRequest, RequestKind, ResponseKind, StrBytes};

/// Versions that are served beyond those that the message layer's client side can write.
/// (`newer_versions` has those that differ in more than a number).
const NOT_WRITTEN_HERE: &[(ApiKey, i16)] = &[
    (ApiKey::ListOffsets, 11),
    (ApiKey::OffsetCommit, 10),
    (ApiKey::OffsetFetch, 10),
    (ApiKey::ApiVersions, 5),
    (ApiKey::DeleteGroups, 3),
    (ApiKey::DescribeLogDirs, 5),
    (ApiKey::TxnOffsetCommit, 6),
    (ApiKey::WriteTxnMarkers, 2),
];

async fn advertised(rig: &Rig) -> Vec<(ApiKey, i16, i16)> {
    let request = ApiVersionsRequest::default()
        .with_client_software_name(StrBytes::from_static_str("test"))
        .with_client_software_version(StrBytes::from_static_str("1"));
    let mut client = rig.connect();
    let answer = client.call(ApiKey::ApiVersions, 3, RequestKind::ApiVersions(request)).await;
    let ResponseKind::ApiVersions(answer) = answer else { panic!("another answer") };
    assert_eq!(answer.error_code, 0);
    let known = |key| ApiKey::try_from(key).expect("a key of the message layer");
    let ranges = answer.api_keys.iter();
    ranges.map(|range| (known(range.api_key), range.min_version, range.max_version)).collect()
}

#[tokio::test]
async fn every_advertised_version_is_answered_in_its_own_layout() {
    let rig = Rig::start().await;
    let topic = SampleTopic { name: "sample-topic", id: rig.create_topic("sample-topic", 1).await };
    let mut client = rig.connect();
    let mut answered = 0;
    for (api, min, max) in advertised(&rig).await {
        // Produce 0-2 are shown for old clients and close the connection, as in Kafka.
        let min = if api == ApiKey::Produce { 3 } else { min };
        for version in min..=max {
            if !NOT_WRITTEN_HERE.contains(&(api, version)) {
                client.call(api, version, sample(api, version, &topic)).await;
                answered += 1;
            }
        }
    }
    assert!(answered > 100, "only {answered} versions were tried");
}

/// Case 97: a client that goes by Kafka's release instead of ApiVersions must not be surprised.
#[tokio::test]
async fn case_97_what_is_served_is_served_at_all_of_kafkas_versions() {
    let rig = Rig::start().await;
    for (api, min, max) in advertised(&rig).await {
        let kafka = KAFKA_4_4.iter().find(|(key, ..)| *key == api as i16);
        let (_, kafka_min, kafka_max) = kafka.unwrap_or_else(|| panic!("{api:?} is not Kafka's"));
        assert_eq!((min, max), (*kafka_min, *kafka_max), "{api:?}");
    }
}

/// Case 95 as well: a client that sends a version of the future first.
#[tokio::test]
async fn an_unknown_version_of_api_versions_gets_a_version_0_answer_and_the_connection_stays() {
    let rig = Rig::start().await;
    let mut client = rig.connect();
    let request = RequestKind::ApiVersions(
        ApiVersionsRequest::default()
            .with_client_software_name(StrBytes::from_static_str("test"))
            .with_client_software_version(StrBytes::from_static_str("1")),
    );
    let mut frame = crate::kit::frame(ApiKey::ApiVersions, 4, 7, &request).to_vec();
    frame[6..8].copy_from_slice(&99i16.to_be_bytes());
    tokio::io::AsyncWriteExt::write_all(&mut client.stream, &frame).await.expect("sent");
    let mut body = client.receive(ApiKey::ApiVersions, 0, 7).await.expect("an answer");
    let answer = ResponseKind::decode(ApiKey::ApiVersions, &mut body, 0).expect("version 0");
    let ResponseKind::ApiVersions(answer) = answer else { panic!("another answer") };
    assert_eq!(answer.error_code, 35);
    let keys: Vec<i16> = answer.api_keys.iter().map(|range| range.api_key).collect();
    assert_eq!(keys, vec![18]);
    client.call(ApiKey::ApiVersions, 3, request).await;
}
