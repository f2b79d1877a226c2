//! Proof that the layouts and the message layer read the same bytes, and that nothing that the
//! check accepts makes the message layer panic or take more memory than was charged.

#![allow(unsafe_code, reason = "a counting allocator is the only way to see what decoding takes")]

use std::alloc::{GlobalAlloc, System};
use std::cell::Cell;

use bytes::{Bytes, BytesMut};

use super::random::{self, Random};
use super::{Kind, Layout, Struct, all, layout};
use crate::check::{Checked, check, memory_limit};
use crate::error::CheckError;
use crate::messages::{ApiKey, RequestKind, decode_request};

/// Counts the bytes that each thread asks for.
struct Counting;

thread_local! {
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: all calls go to the system's allocator unchanged; the counter needs no allocation.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: std::alloc::Layout) -> *mut u8 {
        ALLOCATED.set(ALLOCATED.get() + layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: std::alloc::Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Runs `work` and says how many bytes it asked for.
fn allocated_by<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = ALLOCATED.get();
    let result = work();
    (result, ALLOCATED.get() - before)
}

fn versions(layout: &Layout) -> std::ops::RangeInclusive<i16> {
    layout.versions.0..=layout.versions.1
}

fn api(layout: &Layout) -> ApiKey {
    ApiKey::try_from(layout.key).expect("a known key")
}

/// The version at which the message layer encodes `version`; `None` where it cannot.
fn their_version(api: ApiKey, version: i16) -> Option<i16> {
    match (api, version) {
        (ApiKey::ListOffsets, 11) => Some(10),
        (ApiKey::DeleteGroups, 3) => Some(2),
        (ApiKey::DescribeLogDirs, 5) => Some(4),
        (ApiKey::OffsetCommit | ApiKey::OffsetFetch, 10) | (ApiKey::ApiVersions, 5) => None,
        (ApiKey::TxnOffsetCommit, 6) | (ApiKey::WriteTxnMarkers, 2) => None,
        _ => Some(version),
    }
}

/// The message layer's default request of an API.
fn default_request(api: ApiKey) -> RequestKind {
    macro_rules! defaults {
        ($($name:ident),*) => {
            match api {
                $(ApiKey::$name => RequestKind::$name(Default::default()),)*
                _ => panic!("{api:?} has no default here"),
            }
        };
    }
    defaults!(
        Produce,
        Fetch,
        ListOffsets,
        Metadata,
        OffsetCommit,
        OffsetFetch,
        FindCoordinator,
        JoinGroup,
        Heartbeat,
        LeaveGroup,
        SyncGroup,
        DescribeGroups,
        ListGroups,
        SaslHandshake,
        ApiVersions,
        CreateTopics,
        DeleteTopics,
        DeleteRecords,
        InitProducerId,
        OffsetForLeaderEpoch,
        AddPartitionsToTxn,
        AddOffsetsToTxn,
        EndTxn,
        WriteTxnMarkers,
        TxnOffsetCommit,
        DescribeAcls,
        CreateAcls,
        DeleteAcls,
        DescribeConfigs,
        AlterConfigs,
        AlterReplicaLogDirs,
        DescribeLogDirs,
        SaslAuthenticate,
        CreatePartitions,
        DeleteGroups,
        ElectLeaders,
        IncrementalAlterConfigs,
        AlterPartitionReassignments,
        ListPartitionReassignments,
        OffsetDelete,
        DescribeClientQuotas,
        AlterClientQuotas,
        DescribeUserScramCredentials,
        AlterUserScramCredentials,
        DescribeQuorum,
        UpdateFeatures,
        DescribeCluster,
        DescribeProducers,
        UnregisterBroker,
        DescribeTransactions,
        ListTransactions,
        ConsumerGroupHeartbeat,
        ConsumerGroupDescribe,
        GetTelemetrySubscriptions,
        PushTelemetry,
        ListConfigResources,
        DescribeTopicPartitions,
        ShareGroupHeartbeat,
        ShareGroupDescribe,
        ShareFetch,
        ShareAcknowledge,
        DescribeShareGroupOffsets,
        AlterShareGroupOffsets,
        DeleteShareGroupOffsets
    )
}

/// Decodes what the check accepted; panics if the message layer reads other boundaries or takes
/// more memory than was charged. Returns the request if the message layer takes it.
fn decode(layout: &Layout, version: i16, body: &Bytes, checked: Checked) -> Option<RequestKind> {
    let api = api(layout);
    let mut rest = body.clone();
    let (decoded, allocated) = allocated_by(|| decode_request(api, version, &mut rest));
    match decoded {
        Ok((request, _)) => {
            assert_eq!(body.len() - rest.len(), checked.body_bytes, "{api:?} v{version}");
            let charged = checked.memory_bytes;
            assert!(allocated <= charged, "{api:?} v{version}: {allocated} > {charged}");
            Some(request)
        }
        Err(reason) => {
            let not_text = reason.to_lowercase().contains("utf-8");
            assert!(not_text, "{api:?} v{version}: {reason}");
            // The error itself (with its backtrace and context) is small.
            let charged = checked.memory_bytes + 16 * 1024;
            assert!(allocated <= charged, "{api:?} v{version}: {allocated} > {charged}");
            None
        }
    }
}

#[test]
fn layouts_cover_the_stable_versions_of_the_message_layer() {
    assert_eq!(all().count(), 64);
    for layout in all() {
        let (api, (min, max)) = (api(layout), layout.versions);
        let theirs = api.valid_versions();
        assert_eq!(min, theirs.min, "{api:?}");
        let expected = match api {
            // Unstable: counted there, but the structures lack it.
            ApiKey::InitProducerId => theirs.max - 1,
            // Newer than the message layer.
            ApiKey::ListOffsets
            | ApiKey::ApiVersions
            | ApiKey::DeleteGroups
            | ApiKey::TxnOffsetCommit
            | ApiKey::WriteTxnMarkers
            | ApiKey::DescribeLogDirs => theirs.max + 1,
            _ => theirs.max,
        };
        assert_eq!(max, expected, "{api:?}");
        for version in versions(layout) {
            let is_flexible = api.request_header_version(version) == 2;
            assert_eq!(layout.is_flexible(version), is_flexible, "{api:?} v{version}");
        }
    }
}

#[test]
fn default_messages_are_accepted_whole() {
    for layout in all() {
        for version in versions(layout) {
            let api = api(layout);
            let mut body = BytesMut::new();
            let Some(theirs) = their_version(api, version) else { continue };
            default_request(api).encode(&mut body, theirs).expect("a default message");
            let checked = check(layout, version, &body)
                .unwrap_or_else(|error| panic!("{api:?} v{version}: {error}"));
            assert_eq!(checked.body_bytes, body.len(), "{api:?} v{version}");
            let body = body.freeze();
            let decoded = decode(layout, version, &body, checked);
            assert_eq!(decoded, Some(default_request(api)), "{api:?} v{version}");
        }
    }
}

/// The strong one: a body made from a layout alone is read by the message layer to its last byte,
/// and written back by it byte for byte.
#[test]
fn random_messages_agree_with_the_message_layer() {
    let mut bodies = 0;
    for layout in all() {
        for version in versions(layout) {
            for seed in 0..40 {
                let api = api(layout);
                let body = Bytes::from(random::body(layout, version, &mut Random(seed)));
                let checked = check(layout, version, &body)
                    .unwrap_or_else(|error| panic!("{api:?} v{version} seed {seed}: {error}"));
                assert_eq!(checked.body_bytes, body.len(), "{api:?} v{version} seed {seed}");
                let request = decode(layout, version, &body, checked).expect("text is UTF-8");
                bodies += 1;
                let Some(theirs) = their_version(api, version) else { continue };
                let mut back = BytesMut::new();
                request
                    .encode(&mut back, theirs)
                    .unwrap_or_else(|error| panic!("{api:?} v{version} seed {seed}: {error:#}"));
                assert_eq!(back, body, "{api:?} v{version} seed {seed}");
            }
        }
    }
    assert!(bodies > 8_000, "{bodies} bodies");
}

/// The layouts are not stricter than the message layer about null.
#[test]
fn what_must_not_be_null_is_so_for_the_message_layer_too() {
    let mut nulls = 0;
    for layout in all() {
        for version in versions(layout) {
            for index in 0.. {
                let body = random::body_with_null(layout, version, &mut Random(5), index);
                let Some(body) = body else { break };
                let api = api(layout);
                let refused = check(layout, version, &body);
                assert!(matches!(refused, Err(CheckError::Null(_))), "{api:?} v{version}");
                let theirs = decode_request(api, version, &mut Bytes::from(body));
                assert!(theirs.is_err(), "{api:?} v{version}: {refused:?}");
                nulls += 1;
            }
        }
    }
    assert!(nulls > 800, "{nulls} nulls");
}

#[test]
fn every_cut_is_refused() {
    for layout in all() {
        for version in versions(layout) {
            for seed in 0..3 {
                let body = random::body(layout, version, &mut Random(seed));
                for cut in 0..body.len() {
                    let refused = check(layout, version, &body[..cut]);
                    assert!(refused.is_err(), "{:?} v{version} cut {cut}", api(layout));
                }
            }
        }
    }
}

/// Bytes are changed at random, lengths to extremes among them. What the check still accepts is
/// decoded, without a panic and within the charge.
#[test]
fn corrupt_messages_are_refused_or_decode_within_the_charge() {
    let (mut accepted, mut refused) = (0, 0);
    let mut random = Random(7);
    for layout in all() {
        for version in versions(layout) {
            for seed in 0..40 {
                let mut body = random::body(layout, version, &mut Random(seed));
                if body.is_empty() {
                    continue;
                }
                for _ in 0..=random.below(3) {
                    let at = random.below(body.len());
                    let value = match random.below(4) {
                        0 => 0xff,
                        1 => 0x7f,
                        2 => 0,
                        _ => random.next() as u8,
                    };
                    let end = (at + 1 + random.below(4)).min(body.len());
                    body[at..end].fill(value);
                }
                match check(layout, version, &body) {
                    Ok(checked) => {
                        assert!(checked.memory_bytes <= memory_limit(body.len()));
                        decode(layout, version, &Bytes::from(body), checked);
                        accepted += 1;
                    }
                    Err(_) => refused += 1,
                }
            }
        }
    }
    assert!(accepted > 1_000 && refused > 1_000, "{accepted} accepted, {refused} refused");
}

/// The fewest bytes of a value. The check's bound of array loops needs one byte an element.
fn least_bytes(kind: &Kind, version: i16, flexible: bool) -> usize {
    match kind {
        Kind::Fixed(bytes) => usize::from(*bytes),
        Kind::Part(structure) => least_bytes_of(structure, version, flexible),
        Kind::Text | Kind::Bytes | Kind::List(_) | Kind::Rows(_) | Kind::Maybe(_) => 1,
    }
}

fn least_bytes_of(structure: &Struct, version: i16, flexible: bool) -> usize {
    let fields = structure.fields.iter();
    let untagged = fields.filter(|field| field.tag.is_none() && field.exists_at(version));
    let bytes: usize = untagged.map(|field| least_bytes(&field.kind, version, flexible)).sum();
    bytes + usize::from(flexible)
}

fn assert_elements_have_bytes(structure: &Struct, version: i16, flexible: bool) {
    for field in structure.fields.iter().filter(|field| field.exists_at(version)) {
        match &field.kind {
            Kind::List(element) => assert!(least_bytes(element, version, flexible) >= 1),
            Kind::Rows(inner) => {
                assert!(least_bytes_of(inner, version, flexible) >= 1, "{}", field.name);
                assert_elements_have_bytes(inner, version, flexible);
            }
            Kind::Part(inner) | Kind::Maybe(inner) => {
                assert_elements_have_bytes(inner, version, flexible);
            }
            Kind::Fixed(_) | Kind::Text | Kind::Bytes => {}
        }
    }
}

#[test]
fn every_array_element_has_a_byte() {
    for layout in all() {
        for version in versions(layout) {
            assert_elements_have_bytes(&layout.body, version, layout.is_flexible(version));
        }
    }
}

fn fetch(version: i16, tags: &[u8]) -> Result<Checked, CheckError> {
    let mut body = vec![0; if version >= 15 { 21 } else { 25 }];
    body.extend([1, 1, 1]); // no topics, none forgotten, rack ""
    body.extend(tags);
    check(layout(1).expect("Fetch"), version, &body)
}

/// The message layer reads a known tag by its type and ignores the size that the client gave. A
/// check that skipped by the size would be led astray.
#[test]
fn sizes_of_known_tags_must_be_true() {
    let state = [0; 13];
    let tag = |size: u8| [&[1, 1, size][..], &state[..]].concat();
    assert!(fetch(15, &tag(13)).is_ok());
    assert_eq!(fetch(15, &tag(12)), Err(CheckError::TagSize("replica_state")));
    assert_eq!(fetch(15, &tag(14)), Err(CheckError::TagSize("replica_state")));
    assert_eq!(fetch(12, &tag(13)), Err(CheckError::TagVersion("replica_state")));
    // An unknown tag is skipped by its size, also when it comes before a known one.
    assert!(fetch(15, &[&[2, 9, 2, 7, 7, 1, 13][..], &state[..]].concat()).is_ok());
    assert!(matches!(fetch(15, &[1, 9, 3, 7, 7]), Err(CheckError::Short { .. })));
}

#[test]
fn varints_of_more_than_32_bits_are_refused() {
    let refused = Err(CheckError::BadLength("tagged fields"));
    assert_eq!(fetch(15, &[0xff, 0xff, 0xff, 0xff, 0x1f]), refused);
    assert_eq!(fetch(15, &[0x80, 0x80, 0x80, 0x80, 0x80, 0]), refused);
    assert!(matches!(fetch(15, &[0xff, 0xff, 0xff, 0xff, 0x0f]), Err(CheckError::Short { .. })));
}

/// A Metadata body of version 9 with `count` topics without a name: two bytes for each, 80 in
/// memory.
fn empty_names(count: u32) -> Vec<u8> {
    let mut body = Vec::new();
    let mut length = count + 1;
    while length >= 0x80 {
        body.push(length as u8 | 0x80);
        length >>= 7;
    }
    body.push(length as u8);
    body.extend([1, 0].repeat(count as usize));
    body.extend([0, 0, 0, 0]);
    body
}

#[test]
fn memory_is_bounded_whatever_the_size() {
    let metadata = layout(3).expect("Metadata");
    assert!(check(metadata, 9, &empty_names(50_000)).is_ok());
    for count in [100_000, 1_000_000, 10_000_000] {
        let refused = check(metadata, 9, &empty_names(count));
        assert!(matches!(refused, Err(CheckError::Memory { field: "topics", .. })), "{refused:?}");
    }
    // Unknown tags cost a tree each.
    let row = [&[1, 60][..], &(0..60).flat_map(|tag| [tag, 0]).collect::<Vec<u8>>()].concat();
    let body = [&[0x81, 0x80, 0x01][..], &row.repeat(16_384), &[0, 0, 0, 0]].concat();
    let refused = check(metadata, 9, &body);
    assert!(matches!(refused, Err(CheckError::Memory { .. })), "{refused:?}");
}
