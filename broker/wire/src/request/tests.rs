//! Headers, the registry, and the attacks that the check is there for.

use bytes::{BufMut, Bytes, BytesMut};
use proptest::prelude::*;

use super::{ParsedRequest, Registry, Request, decodable_versions, decode};
use crate::error::{CheckError, WireError};
use crate::messages::{
    ApiKey, ApiVersionsRequest, Encodable, IntendedBroker, MetadataRequest, RequestKind, StrBytes,
};

fn registry() -> Registry {
    Registry::new()
        .serve(ApiKey::Metadata, 0..=13)
        .serve(ApiKey::ApiVersions, 0..=5)
        .serve(ApiKey::Produce, 3..=13)
        .advertise_from(ApiKey::Produce, 0)
        .serve(ApiKey::Fetch, 4..=18)
        .serve(ApiKey::OffsetCommit, 2..=10)
        .serve(ApiKey::OffsetFetch, 1..=10)
}

/// A frame with the header that is right for the version.
fn frame(key: i16, version: i16, flexible: bool, body: &[u8]) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_i16(key);
    frame.put_i16(version);
    frame.put_i32(77);
    frame.put_i16(4);
    frame.put_slice(b"test");
    if flexible {
        frame.put_slice(&[1, 5, 2, 0xaa, 0xbb]);
    }
    frame.put_slice(body);
    frame.freeze()
}

fn request(frame: Bytes) -> Request {
    match decode(frame, &registry()).expect("decodes") {
        ParsedRequest::Request(request) => request,
        other => panic!("not a request: {other:?}"),
    }
}

#[test]
fn both_headers_are_read() {
    for (version, flexible) in [(8, false), (9, true), (13, true)] {
        let mut body = BytesMut::new();
        MetadataRequest::default().with_topics(None).encode(&mut body, version).expect("encodes");
        let request = request(frame(3, version, flexible, &body));
        assert_eq!(request.api, ApiKey::Metadata);
        assert_eq!(request.header.correlation_id, 77);
        assert_eq!(request.header.client_id, Some(StrBytes::from_static_str("test")));
        let RequestKind::Metadata(metadata) = request.body else { panic!("not Metadata") };
        assert_eq!(metadata.topics, None);
    }
}

#[test]
fn a_null_client_id_and_bytes_behind_the_body_are_fine() {
    let request = request(Bytes::from_static(&[0, 18, 0, 0, 0, 0, 0, 5, 0xff, 0xff, 1, 2, 3, 4]));
    assert_eq!(request.header.client_id, None);
    assert_eq!(request.body, RequestKind::ApiVersions(ApiVersionsRequest::default()));
}

#[test]
fn unknown_apis_and_versions_close_the_connection() {
    let refused = |key, version| decode(frame(key, version, true, &[0; 40]), &registry());
    assert!(matches!(refused(99, 0), Err(WireError::UnknownApi(99))));
    assert!(matches!(refused(-1, 0), Err(WireError::UnknownApi(-1))));
    // Known to the message layer, but not served.
    assert!(matches!(refused(50, 0), Err(WireError::UnknownApi(50))));
    // Advertised, never parsed.
    assert!(matches!(refused(0, 2), Err(WireError::UnsupportedVersion { version: 2, .. })));
    assert!(matches!(refused(3, 14), Err(WireError::UnsupportedVersion { version: 14, .. })));
    assert!(matches!(refused(3, -1), Err(WireError::UnsupportedVersion { version: -1, .. })));
}

#[test]
fn unknown_versions_of_api_versions_are_answered_whatever_the_body() {
    for version in [6, 99, i16::MAX, -1] {
        let parsed = decode(frame(18, version, true, &[0xff; 9]), &registry()).expect("answered");
        let ParsedRequest::UnsupportedApiVersions(header) = parsed else { panic!("{parsed:?}") };
        assert_eq!((header.correlation_id, header.api_version), (77, version));
    }
    // A header without a tag section closes, as in Kafka.
    assert!(matches!(decode(frame(18, 99, false, &[]), &registry()), Err(WireError::Header(_))));
}

#[test]
fn cut_headers_are_refused() {
    let whole = frame(18, 3, true, &[1, 1, 0]);
    for cut in 0..17 {
        let refused = decode(whole.slice(..cut), &registry());
        assert!(matches!(refused, Err(WireError::Header(_))), "cut at {cut}: {refused:?}");
    }
    let not_text = [0, 18, 0, 0, 0, 0, 0, 1, 0, 1, 0xff];
    let refused = decode(Bytes::copy_from_slice(&not_text), &registry());
    assert!(matches!(refused, Err(WireError::Header(CheckError::NotText("client_id")))));
    let negative = [0, 18, 0, 0, 0, 0, 0, 1, 0x80, 0];
    let refused = decode(Bytes::copy_from_slice(&negative), &registry());
    assert!(matches!(refused, Err(WireError::Header(CheckError::BadLength("client_id")))));
}

/// The two bodies that made the message layer ask for 154 and 412 GB and ended the process.
#[test]
fn lengths_without_bytes_are_refused_before_they_are_believed() {
    let short = |frame: Bytes, name: &str| match decode(frame, &registry()) {
        Err(WireError::Malformed { source: CheckError::Short { field, needed, .. }, .. }) => {
            assert_eq!((field, needed), (name, i32::MAX as usize));
        }
        other => panic!("{other:?}"),
    };
    short(frame(3, 1, false, &[0x7f, 0xff, 0xff, 0xff]), "topics");
    let produce = [0xff, 0xff, 0, 1, 0, 0, 0, 9, 0x7f, 0xff, 0xff, 0xff];
    short(frame(0, 3, false, &produce), "topic_data");
    // The same at flexible versions: 2^31 - 1 elements as a varint of 2^31.
    short(frame(3, 9, true, &[0x80, 0x80, 0x80, 0x80, 0x08]), "topics");
    let produce = [0, 0, 1, 0, 0, 0, 9, 0x80, 0x80, 0x80, 0x80, 0x08];
    short(frame(0, 9, true, &produce), "topic_data");
}

#[test]
fn text_that_is_not_utf8_is_refused() {
    let body = [0, 0, 0, 1, 0, 2, 0xc3, 0x28];
    let refused = decode(frame(3, 1, false, &body), &registry());
    assert!(matches!(refused, Err(WireError::Decode { version: 1, .. })), "{refused:?}");
}

#[test]
fn offset_commit_10_names_topics_by_id() {
    let mut body = vec![2, b'g', 0, 0, 0, 5, 2, b'm', 0, 2];
    body.extend([9; 16]);
    body.extend([2, 0, 0, 0, 3]);
    body.extend(42_i64.to_be_bytes());
    body.extend([0xff; 4]);
    body.extend([0, 0, 0, 0]);
    let RequestKind::OffsetCommit(commit) = request(frame(8, 10, true, &body)).body else {
        panic!("not OffsetCommit")
    };
    assert_eq!((commit.group_id.as_str(), commit.member_id.as_str()), ("g", "m"));
    assert_eq!((commit.generation_id_or_member_epoch, commit.group_instance_id), (5, None));
    let [topic] = &commit.topics[..] else { panic!("one topic") };
    assert_eq!((topic.topic_id.as_bytes(), topic.name.as_str()), (&[9; 16], ""));
    let [partition] = &topic.partitions[..] else { panic!("one partition") };
    assert_eq!((partition.partition_index, partition.committed_offset), (3, 42));
    assert_eq!((partition.committed_leader_epoch, &partition.committed_metadata), (-1, &None));
}

#[test]
fn offset_fetch_10_names_topics_by_id() {
    let mut body = vec![3, 2, b'g', 0, 0xff, 0xff, 0xff, 0xff, 2];
    body.extend([7; 16]);
    body.extend([3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0]);
    body.extend([2, b'h', 2, b'm', 0, 0, 0, 4, 0, 0]);
    body.extend([1, 0]);
    let RequestKind::OffsetFetch(fetch) = request(frame(9, 10, true, &body)).body else {
        panic!("not OffsetFetch")
    };
    assert!(fetch.require_stable);
    let [first, second] = &fetch.groups[..] else { panic!("two groups") };
    assert_eq!((first.group_id.as_str(), &first.member_id, first.member_epoch), ("g", &None, -1));
    let topics = first.topics.as_ref().expect("topics");
    assert_eq!(
        (topics[0].topic_id.as_bytes(), topics[0].partition_indexes.as_slice()),
        (&[7; 16], &[1, 2][..])
    );
    assert_eq!((second.group_id.as_str(), &second.topics, second.member_epoch), ("h", &None, 4));
    assert_eq!(second.member_id, Some(StrBytes::from_static_str("m")));
}

#[test]
fn api_versions_5_names_the_broker_that_is_meant() {
    let named = [&[2, b'n', 2, b'v', 3, b'c', b'1'][..], &[0, 0, 0, 7], &[0]].concat();
    let named = request(frame(18, 5, true, &named));
    let RequestKind::ApiVersions(body) = named.body else { panic!("not ApiVersions") };
    assert_eq!((&*body.client_software_name, &*body.client_software_version), ("n", "v"));
    assert_eq!(named.beyond.intended.cluster_id.as_deref(), Some("c1"));
    assert_eq!(named.beyond.intended.node_id, Some(7));
    let anyone = [&[2, b'n', 2, b'v', 0][..], &[0xff; 4], &[0]].concat();
    assert_eq!(request(frame(18, 5, true, &anyone)).beyond.intended, IntendedBroker::default());
    // An empty text is not null.
    let empty = [&[2, b'n', 2, b'v', 1][..], &[0xff; 4], &[0]].concat();
    let empty = request(frame(18, 5, true, &empty)).beyond.intended;
    assert_eq!((empty.cluster_id.as_deref(), empty.node_id), (Some(""), None));
}

#[test]
fn the_registry_answers_api_versions() {
    let listed = registry().api_versions();
    let ranges: Vec<_> =
        listed.iter().map(|api| (api.api_key, api.min_version, api.max_version)).collect();
    assert_eq!(ranges, [(0, 0, 13), (1, 4, 18), (3, 0, 13), (8, 2, 10), (9, 1, 10), (18, 0, 5)]);
    assert_eq!(registry().versions(0).map(|range| range.min), Some(3));
    assert_eq!(decodable_versions(ApiKey::ListOffsets), Some((1, 11)));
    assert_eq!(decodable_versions(ApiKey::Vote), None);
}

#[test]
#[should_panic(expected = "cannot be decoded")]
fn a_version_that_cannot_be_decoded_cannot_be_served() {
    let _ = Registry::new().serve(ApiKey::Metadata, 0..=14);
}

proptest! {
    /// No bytes make it panic; whatever it accepts has the header that the bytes begin with.
    #[test]
    fn any_bytes_are_survived(
        key in prop::sample::select(vec![0_i16, 1, 3, 8, 9, 18]),
        version in -1_i16..20,
        rest in prop::collection::vec(prop_oneof![Just(0_u8), Just(0xff), any::<u8>()], 0..200),
    ) {
        let mut frame = BytesMut::new();
        frame.put_i16(key);
        frame.put_i16(version);
        frame.put_slice(&rest);
        if let Ok(parsed) = decode(frame.freeze(), &registry()) {
            let header = match parsed {
                ParsedRequest::Request(request) => request.header,
                ParsedRequest::UnsupportedApiVersions(header) => header,
            };
            prop_assert_eq!((header.api_key, header.api_version), (key, version));
        }
    }
}
