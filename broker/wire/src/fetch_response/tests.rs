//! The hand-written writer against the message layer's reader and writer, at every version.

use bytes::{Buf, Bytes};
use proptest::prelude::*;
use uuid::Uuid;

use super::{
    AbortedTransaction, DivergingEpoch, FetchResponse, FetchedPartition, FetchedTopic, VERSIONS,
};
use crate::error::WireError;
use crate::error_code::ErrorCode;
use crate::frame::Response;
use crate::messages::fetch_response as theirs;
use crate::messages::{
    self, ApiKey, Decodable, FetchResponse as TheirFetchResponse, ResponseHeader, StrBytes,
};

/// What the message layer should read at `version`.
fn expected(ours: &FetchResponse, version: i16) -> TheirFetchResponse {
    let topics = ours.topics.iter().map(|topic| {
        let partitions =
            topic.partitions.iter().map(|partition| their_partition(partition, version));
        let answer =
            theirs::FetchableTopicResponse::default().with_partitions(partitions.collect());
        if version >= 13 {
            answer.with_topic_id(topic.id)
        } else {
            answer.with_topic(topic.name.clone())
        }
    });
    let answer = TheirFetchResponse::default()
        .with_throttle_time_ms(ours.throttle_time_ms)
        .with_responses(topics.collect());
    if version >= 7 {
        answer.with_error_code(ours.error.code()).with_session_id(ours.session_id)
    } else {
        answer
    }
}

fn their_partition(ours: &FetchedPartition, version: i16) -> theirs::PartitionData {
    let aborted = ours.aborted_transactions.as_ref().map(|aborted| {
        let theirs = aborted.iter().map(|transaction| {
            theirs::AbortedTransaction::default()
                .with_producer_id(transaction.producer_id.into())
                .with_first_offset(transaction.first_offset)
        });
        theirs.collect()
    });
    let mut answer = theirs::PartitionData::default()
        .with_partition_index(ours.partition)
        .with_error_code(ours.error.code())
        .with_high_watermark(ours.high_watermark)
        .with_last_stable_offset(ours.last_stable_offset)
        .with_aborted_transactions(aborted)
        .with_records(Some(Bytes::from(ours.records.concat())));
    if version >= 5 {
        answer = answer.with_log_start_offset(ours.log_start_offset);
    }
    if version >= 11 {
        answer = answer.with_preferred_read_replica(ours.preferred_read_replica.into());
    }
    if let Some(diverging) = ours.diverging_epoch.filter(|_| version >= 12) {
        let epoch = theirs::EpochEndOffset::default()
            .with_epoch(diverging.epoch)
            .with_end_offset(diverging.end_offset);
        answer = answer.with_diverging_epoch(epoch);
    }
    answer
}

/// Reads a frame back with the message layer, to its last byte.
fn read_back(response: &Response, version: i16, correlation_id: i32) -> TheirFetchResponse {
    let mut frame = response.to_bytes();
    assert_eq!(frame.get_i32() as usize, frame.len(), "length prefix of v{version}");
    let header_version = ApiKey::Fetch.response_header_version(version);
    let header = ResponseHeader::decode(&mut frame, header_version).expect("a header");
    assert_eq!(header.correlation_id, correlation_id);
    let answer = TheirFetchResponse::decode(&mut frame, version).expect("an answer");
    assert!(frame.is_empty(), "{} bytes are left over at v{version}", frame.len());
    answer
}

/// Every kind of partition: error, empty, one slice, many slices; null, no and some aborted
/// transactions; with and without a diverging epoch.
fn sample() -> FetchResponse {
    let partition = |partition, aborted_transactions, records: &[&'static [u8]]| FetchedPartition {
        partition,
        error: ErrorCode::None,
        high_watermark: 1000 + i64::from(partition),
        last_stable_offset: 900,
        log_start_offset: 3,
        diverging_epoch: None,
        aborted_transactions,
        preferred_read_replica: 7,
        records: records.iter().map(|slice| Bytes::from_static(slice)).collect(),
    };
    let aborted = (0..200)
        .map(|index| AbortedTransaction { producer_id: index, first_offset: 5 * index })
        .collect();
    let diverging_epoch = Some(DivergingEpoch { epoch: 4, end_offset: 77 });
    FetchResponse {
        throttle_time_ms: 12,
        error: ErrorCode::FetchSessionIdNotFound,
        session_id: 99,
        topics: vec![
            FetchedTopic {
                name: StrBytes::from_static_str("orders").into(),
                id: Uuid::from_u128(0x0123_4567_89ab_cdef),
                partitions: vec![
                    partition(0, None, &[b"first", b"", b"second"]),
                    FetchedPartition::failed(1, ErrorCode::OffsetOutOfRange),
                    partition(2, Some(vec![]), &[]),
                    FetchedPartition { diverging_epoch, ..partition(3, Some(aborted), &[b"x"]) },
                ],
            },
            FetchedTopic {
                name: StrBytes::from_static_str("empty").into(),
                id: Uuid::from_u128(1),
                partitions: vec![],
            },
        ],
    }
}

#[test]
fn every_version_reads_back_and_equals_the_message_layers_bytes() {
    for version in VERSIONS {
        for ours in [sample(), FetchResponse::default()] {
            let expected = expected(&ours, version);
            let response = ours.encode(version, -5).expect("encodes");
            assert_eq!(read_back(&response, version, -5), expected, "v{version}");
            let theirs =
                messages::encode_response(ApiKey::Fetch, version, -5, &expected).expect("encodes");
            assert_eq!(response.to_bytes(), theirs.to_bytes(), "v{version}");
        }
    }
}

#[test]
fn records_are_the_slices_that_were_given() {
    let slices: Vec<Bytes> = (0..3_u8).map(|mark| Bytes::from(vec![mark; 1000])).collect();
    let mut ours = sample();
    ours.topics[0].partitions[0].records = slices.clone();
    let response = ours.encode(13, 1).expect("encodes");
    for slice in &slices {
        let same = |part: &&Bytes| part.as_ptr() == slice.as_ptr() && part.len() == slice.len();
        assert_eq!(response.parts().iter().filter(same).count(), 1);
    }
    // Head, three slices, the bytes up to the last partition's records, those, and the tail.
    assert_eq!(response.parts().len(), 7);
}

#[test]
fn what_cannot_be_written_is_an_error() {
    for version in [3, 19] {
        let refused = FetchResponse::default().encode(version, 1);
        assert!(matches!(refused, Err(WireError::Encode { .. })), "v{version}");
    }
    let name = StrBytes::from_string("n".repeat(40_000));
    let topic = FetchedTopic { name: name.into(), ..FetchedTopic::default() };
    let ours = FetchResponse { topics: vec![topic], ..FetchResponse::default() };
    assert!(matches!(ours.clone().encode(12, 1), Err(WireError::Encode { .. })));
    assert!(ours.encode(13, 1).is_ok(), "names are not sent any more");
    // 40 times the same 64 MiB: above what a length can say, without holding it.
    let block = Bytes::from(vec![0; 64 << 20]);
    let mut partition = FetchedPartition::failed(0, ErrorCode::None);
    partition.records = vec![block; 40];
    let topic = FetchedTopic { partitions: vec![partition], ..FetchedTopic::default() };
    let ours = FetchResponse { topics: vec![topic], ..FetchResponse::default() };
    assert!(matches!(ours.encode(12, 1), Err(WireError::Encode { .. })));
}

fn any_partition() -> impl Strategy<Value = FetchedPartition> {
    let aborted = prop::option::of(prop::collection::vec(
        (any::<i64>(), any::<i64>()).prop_map(|(producer_id, first_offset)| AbortedTransaction {
            producer_id,
            first_offset,
        }),
        0..4,
    ));
    let diverging = prop::option::of(
        (0..i32::MAX, any::<i64>())
            .prop_map(|(epoch, end_offset)| DivergingEpoch { epoch, end_offset }),
    );
    let records = prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..4);
    let numbers = (any::<i32>(), -1_i16..=136, any::<[i64; 3]>(), any::<i32>());
    (numbers, aborted, diverging, records).prop_map(|(numbers, aborted, diverging, records)| {
        let (partition, code, offsets, replica) = numbers;
        FetchedPartition {
            partition,
            error: ErrorCode::from_code(code).expect("a known code"),
            high_watermark: offsets[0],
            last_stable_offset: offsets[1],
            log_start_offset: offsets[2],
            diverging_epoch: diverging,
            aborted_transactions: aborted,
            preferred_read_replica: replica,
            records: records.into_iter().map(Bytes::from).collect(),
        }
    })
}

proptest! {
    #[test]
    fn any_answer_reads_back(
        version in VERSIONS,
        topics in prop::collection::vec(
            ("[a-z]{1,20}", any::<u128>(), prop::collection::vec(any_partition(), 0..4)), 0..4),
        numbers in any::<[i32; 3]>(),
    ) {
        let topics = topics.into_iter().map(|(name, id, partitions)| FetchedTopic {
            name: StrBytes::from_string(name).into(),
            id: Uuid::from_u128(id),
            partitions,
        });
        let ours = FetchResponse {
            throttle_time_ms: numbers[0],
            error: ErrorCode::None,
            session_id: numbers[1],
            topics: topics.collect(),
        };
        let expected = expected(&ours, version);
        let response = ours.encode(version, numbers[2]).expect("encodes");
        prop_assert_eq!(read_back(&response, version, numbers[2]), expected);
    }
}
