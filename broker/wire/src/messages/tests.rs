//! Response frames: headers, lengths, and the rules of ApiVersions.

use bytes::{Buf, Bytes};

use super::api_versions_response::{FinalizedFeatureKey, SupportedFeatureKey};
use super::delete_groups_response::DeletableGroupResult;
use super::describe_log_dirs_response::DescribeLogDirsResult;
use super::{
    ApiKey, ApiVersionsResponse, Decodable, DeleteGroupsResponse, DescribeLogDirsResponse,
    FetchResponse, HeartbeatResponse, ListOffsetsResponse, MetadataResponse, OffsetCommitResponse,
    ResponseHeader, ResponseKind, StrBytes, VersionRange, encode_api_versions,
    encode_delete_groups, encode_describe_log_dirs, encode_response, encode_response_kind,
    unsupported_api_versions,
};
use crate::error::WireError;
use crate::frame::Response;

/// The body behind the length prefix and a header of `header_version`, both of which are checked.
fn body(response: &Response, header_version: i16, correlation_id: i32) -> Bytes {
    let mut frame = response.to_bytes();
    assert_eq!(frame.len(), response.len());
    assert_eq!(frame.get_i32() as usize, frame.len());
    let header = ResponseHeader::decode(&mut frame, header_version).expect("a header");
    assert_eq!(header.correlation_id, correlation_id);
    frame
}

#[test]
fn headers_follow_the_version() {
    let answer = HeartbeatResponse::default().with_error_code(27).with_throttle_time_ms(3);
    for (version, header_version) in [(1, 0), (3, 0), (4, 1)] {
        let response = encode_response(ApiKey::Heartbeat, version, -9, &answer).expect("encodes");
        let mut body = body(&response, header_version, -9);
        let back = HeartbeatResponse::decode(&mut body, version).expect("decodes");
        assert_eq!((back, body.len()), (answer.clone(), 0));
    }
}

#[test]
fn fields_that_a_version_lacks_are_an_error() {
    let answer = FetchResponse::default().with_session_id(5);
    let refused = encode_response(ApiKey::Fetch, 6, 1, &answer);
    assert!(matches!(refused, Err(WireError::Encode { version: 6, .. })), "{refused:?}");
    assert!(encode_response(ApiKey::Fetch, 7, 1, &answer).is_ok());
    let refused = encode_response(ApiKey::Metadata, 14, 1, &MetadataResponse::default());
    assert!(matches!(refused, Err(WireError::Encode { version: 14, .. })), "{refused:?}");
}

#[test]
fn newer_versions_than_the_message_layers_are_written() {
    let answer = ListOffsetsResponse::default().with_throttle_time_ms(4);
    let response = encode_response(ApiKey::ListOffsets, 11, 2, &answer).expect("encodes");
    let back = ListOffsetsResponse::decode(&mut body(&response, 1, 2), 10).expect("decodes");
    assert_eq!(back, answer);
    let answer = OffsetCommitResponse::default().with_throttle_time_ms(4);
    let response = encode_response(ApiKey::OffsetCommit, 10, 2, &answer).expect("encodes");
    let back = OffsetCommitResponse::decode(&mut body(&response, 1, 2), 10).expect("decodes");
    assert_eq!(back, answer);
}

/// Byte for byte as Kafka 4.4's own schema has it.
#[test]
fn delete_groups_3_has_a_null_message_for_each_group() {
    let result = |group: &'static str, code| {
        DeletableGroupResult::default()
            .with_group_id(StrBytes::from_static_str(group).into())
            .with_error_code(code)
    };
    let answer = DeleteGroupsResponse::default()
        .with_throttle_time_ms(1)
        .with_results(vec![result("a", 0), result("bc", 69)]);
    let response = encode_delete_groups(3, 2, &answer).expect("encodes");
    let expected =
        [&[0, 0, 0, 1, 3][..], &[2, b'a', 0, 0, 0, 0], &[3, b'b', b'c', 0, 69, 0, 0], &[0]];
    assert_eq!(body(&response, 1, 2), expected.concat());
    let older = encode_delete_groups(2, 2, &answer).expect("encodes");
    let back = DeleteGroupsResponse::decode(&mut body(&older, 1, 2), 2).expect("decodes");
    assert_eq!(back, answer);
}

#[test]
fn describe_log_dirs_5_says_that_nothing_is_cordoned() {
    let dir = DescribeLogDirsResult::default()
        .with_log_dir(StrBytes::from_static_str("d"))
        .with_total_bytes(5)
        .with_usable_bytes(-1);
    let answer =
        DescribeLogDirsResponse::default().with_error_code(-1).with_results(vec![dir; 200]);
    let response = encode_describe_log_dirs(5, 2, &answer).expect("encodes");
    let mut row = vec![0, 0, 2, b'd', 1];
    row.extend(5_i64.to_be_bytes());
    row.extend((-1_i64).to_be_bytes());
    row.extend([0, 0]);
    // 200 directories, for a length of two bytes.
    let expected = [&[0, 0, 0, 0, 0xff, 0xff, 0xc9, 1][..], &row.repeat(200), &[0]].concat();
    assert_eq!(body(&response, 1, 2), expected);
    let older = encode_describe_log_dirs(4, 2, &answer).expect("encodes");
    let back = DescribeLogDirsResponse::decode(&mut body(&older, 1, 2), 4).expect("decodes");
    assert_eq!(back, answer);
}

#[test]
fn old_clients_do_not_see_features_from_level_0() {
    let feature = |name, min| {
        SupportedFeatureKey::default()
            .with_name(StrBytes::from_static_str(name))
            .with_min_version(min)
            .with_max_version(2)
    };
    let finalized = FinalizedFeatureKey::default()
        .with_name(StrBytes::from_static_str("transaction.version"))
        .with_max_version_level(2)
        .with_min_version_level(2);
    let answer = ApiVersionsResponse::default()
        .with_supported_features(vec![feature("group.version", 0), feature("metadata.version", 7)])
        .with_finalized_features_epoch(12)
        .with_finalized_features(vec![finalized]);
    for (version, supported) in
        [(3, &["metadata.version"][..]), (4, &["group.version", "metadata.version"])]
    {
        let response = encode_api_versions(version, 8, &answer).expect("encodes");
        // Header 0 although the body is flexible.
        let mut body = body(&response, 0, 8);
        let back = ApiVersionsResponse::decode(&mut body, version).expect("decodes");
        assert!(body.is_empty());
        let names: Vec<_> = back.supported_features.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, supported);
        assert_eq!(back.finalized_features, answer.finalized_features);
        assert_eq!(back.finalized_features_epoch, 12);
    }
    let response = encode_api_versions(0, 8, &ApiVersionsResponse::default()).expect("encodes");
    assert_eq!(response.len(), 4 + 4 + 2 + 4);
}

#[test]
fn any_kind_gives_the_bytes_of_its_type() {
    let answer = HeartbeatResponse::default().with_error_code(27);
    let kind = ResponseKind::Heartbeat(answer.clone());
    for version in 0..=4 {
        let typed = encode_response(ApiKey::Heartbeat, version, 6, &answer).expect("encodes");
        let any = encode_response_kind(ApiKey::Heartbeat, version, 6, &kind).expect("encodes");
        assert_eq!(typed, any);
    }
    let answer = ApiVersionsResponse::default()
        .with_supported_features(vec![SupportedFeatureKey::default()]);
    let kind = ResponseKind::ApiVersions(answer.clone());
    for version in 0..=4 {
        let typed = encode_api_versions(version, 6, &answer).expect("encodes");
        let any = encode_response_kind(ApiKey::ApiVersions, version, 6, &kind).expect("encodes");
        assert_eq!(typed, any);
    }
}

#[test]
fn unknown_versions_learn_the_range() {
    let response = unsupported_api_versions(31, VersionRange { min: 0, max: 4 });
    let mut body = body(&response, 0, 31);
    let back = ApiVersionsResponse::decode(&mut body, 0).expect("decodes");
    assert!(body.is_empty());
    assert_eq!(back.error_code, 35);
    let ranges: Vec<_> =
        back.api_keys.iter().map(|api| (api.api_key, api.min_version, api.max_version)).collect();
    assert_eq!(ranges, [(18, 0, 4)]);
}
