use super::gzip::{Packer, Part};
use super::*;
use crate::commit::ExpiryRules;
use crate::commit::refs::tag;
use crate::commit::tests::History;
use flate2::bufread::GzDecoder;
use iceberg::spec::{BlobMetadata, NestedField, PrimitiveType, Type};
use proptest::prelude::*;
use std::io::Read as _;
use std::sync::Arc;

const FOLDER: &str = "s3://bucket/tables/one";
const START_MS: i64 = 1_700_000_000_000;

/// Reads the first member of a file. Answers what is behind it too.
fn unpacked(file: &[Bytes]) -> (Vec<u8>, Vec<u8>) {
    let (file, mut plain) = (joined(file), Vec::new());
    let mut decoder = GzDecoder::new(file.as_ref());
    decoder.read_to_end(&mut plain).unwrap();
    (plain, decoder.into_inner().to_vec())
}

/// Encodes a version on top of what is known, and by itself, and by the library.
fn encoded(metadata: &TableMetadata, refs: &Refs, before: &EncodedMetadata) -> EncodedMetadata {
    let (next, file) = EncodedMetadata::of(metadata, refs, before).unwrap();
    let (alone, file_alone) = EncodedMetadata::of(metadata, refs, &Default::default()).unwrap();
    let json = joined(next.json());
    assert_eq!(text(&json), text(&metadata_file(metadata).unwrap().0));
    assert_eq!((json.clone(), joined(&file)), (joined(alone.json()), joined(&file_alone)));
    if is_compressed(metadata) {
        assert_eq!(unpacked(&file), (json.to_vec(), Vec::new()));
    } else {
        assert_eq!(joined(&file), json);
    }
    assert_eq!(&serde_json::from_slice::<TableMetadata>(&json).unwrap(), metadata);
    next
}

fn text(json: &Bytes) -> &str {
    std::str::from_utf8(json).unwrap()
}

/// Fast and slow, through expiry, hourly tags, and a clock that goes back.
#[test]
fn a_version_is_the_same_bytes_whatever_is_known_of_the_one_before() {
    let mut history = History::new(ExpiryRules { snapshots_max: 220, ..ExpiryRules::default() });
    let (mut known, mut now_ms) = (EncodedMetadata::default(), START_MS);
    for at in 0..1_200 {
        now_ms += match at {
            0..700 => 1_000,
            700 => -500_000,
            _ => 600_000,
        };
        history.commit(FOLDER, at, now_ms);
        if at % 7 == 0 || at < 70 {
            known = encoded(&history.metadata, &history.refs, &known);
        } else {
            known = EncodedMetadata::of(&history.metadata, &history.refs, &known).unwrap().0;
        }
    }
    let hours = history.refs.keys().filter(|name| name.starts_with("floe-hour-")).count();
    assert!(hours > 20 && history.metadata.snapshots().len() > 100, "{hours} hours");
}

#[test]
fn a_commit_encodes_the_newest_runs_alone() {
    let mut history = History::new(ExpiryRules::default());
    let mut known = EncodedMetadata::default();
    let (mut anew, mut most_anew) = (0, 0);
    for at in 0..2_100 {
        history.commit(FOLDER, at, START_MS + at * 1_000);
        let next = EncodedMetadata::of(&history.metadata, &history.refs, &known).unwrap().0;
        let shared = next.log.shared(&known.log) + next.snapshots.shared(&known.snapshots);
        let runs = next.log.parts().chain(next.snapshots.parts()).count();
        anew += runs - shared;
        most_anew = most_anew.max(runs - shared);
        known = next;
    }
    assert!(known.snapshots.parts().count() >= 29, "a thousand snapshots");
    // Of either list: a run that is full, and one that has lost its oldest entries.
    assert!(most_anew <= 4, "{most_anew} runs by one commit");
    assert!(anew < 250, "{anew} runs by all");
}

#[test]
fn whatever_metadata_has_is_encoded_as_the_library_does() {
    let mut history = History::new(ExpiryRules::default());
    (0..100).for_each(|at| history.commit(FOLDER, at, START_MS + at * 1_000));
    let before = EncodedMetadata::of(&history.metadata, &history.refs, &Default::default());
    let mut refs = history.refs.clone();
    refs.insert("a \"tag\"\n\u{e4}".to_owned(), tag(7, Some(5)));
    refs.insert("main-2".to_owned(), crate::commit::refs::branch(9));
    let column = NestedField::optional(90, "more", Type::Primitive(PrimitiveType::String));
    let schema = history.metadata.current_schema().as_ref().clone().into_builder();
    let schema = schema.with_fields([Arc::new(column.with_doc("its \"doc\""))]).with_schema_id(3);
    let codec = (METADATA_CODEC_PROPERTY.to_owned(), "none".to_owned());
    let other = ("b\\c".to_owned(), "\u{1f600}\t".to_owned());
    let mut builder = history.metadata.clone().into_builder(Some(format!("{FOLDER}/before")));
    for (name, reference) in &refs {
        builder = builder.set_ref(name, reference.clone()).unwrap();
    }
    let statistics = |snapshot_id| StatisticsFile {
        snapshot_id,
        statistics_path: format!("{FOLDER}/{snapshot_id}.stats"),
        file_size_in_bytes: 1,
        file_footer_size_in_bytes: 1,
        key_metadata: None,
        blob_metadata: vec![BlobMetadata {
            r#type: "ndv".to_owned(),
            snapshot_id,
            sequence_number: 1,
            fields: vec![1],
            properties: [("ndv".to_owned(), "2".to_owned())].into_iter().collect(),
        }],
    };
    let of_partitions = |snapshot_id| PartitionStatisticsFile {
        snapshot_id,
        statistics_path: format!("{FOLDER}/{snapshot_id}.partitions"),
        file_size_in_bytes: 1,
    };
    for id in [40, 3, 70, 12] {
        builder = builder.set_statistics(statistics(id));
        builder = builder.set_partition_statistics(of_partitions(id));
    }
    let builder = builder.add_schema(schema.build().unwrap()).unwrap();
    let builder = builder.set_properties([codec, other].into_iter().collect()).unwrap();
    let metadata = builder.build().unwrap().metadata;
    encoded(&metadata, &refs, &before.unwrap().0);
}

#[test]
fn metadata_without_a_snapshot_or_of_another_version_is_encoded_as_a_whole() {
    let mut history = History::new(ExpiryRules::default());
    let none = Refs::new();
    encoded(&history.metadata, &none, &Default::default());
    history.commit(FOLDER, 0, START_MS);
    let mut json: Value = serde_json::to_value(&history.metadata).unwrap();
    json["format-version"] = 3.into();
    json["next-row-id"] = 0.into();
    let third: TableMetadata = serde_json::from_value(json).unwrap();
    let next = encoded(&third, &history.refs, &Default::default());
    assert!(text(&joined(next.json())).contains("next-row-id"));
}

proptest! {
    #[test]
    fn parts_in_any_order_are_one_member(
        plain in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(any::<u8>(), 0..5_000),
                (any::<u8>(), 0_usize..200_000).prop_map(|(byte, count)| vec![byte; count]),
            ],
            0..6,
        ),
        order in prop::collection::vec(any::<prop::sample::Index>(), 0..9),
    ) {
        let mut packer = Packer::new();
        let parts: Vec<Part> =
            plain.iter().map(|plain| packer.part(plain.clone()).unwrap()).collect();
        let at = |index: &prop::sample::Index| index.index(plain.len());
        let order: Vec<usize> =
            if plain.is_empty() { Vec::new() } else { order.iter().map(at).collect() };
        let file = gzip::file(order.iter().map(|at| &parts[*at]));
        let whole: Vec<u8> = order.iter().flat_map(|at| plain[*at].clone()).collect();
        prop_assert_eq!(unpacked(&file), (whole, Vec::new()));
    }
}

/// What does not get smaller needs more room than was guessed.
#[test]
fn parts_that_cannot_be_compressed_are_whole() {
    let mut number = 1_u64;
    let mut random = || {
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
        number.to_le_bytes()[3]
    };
    for length in [0, 1, 1_023, 4_096, 70_000, 1 << 20] {
        let plain: Vec<u8> = (0..length).map(|_| random()).collect();
        let part = Packer::new().part(plain.clone()).unwrap();
        assert_eq!(unpacked(&gzip::file([&part].into_iter())), (plain, Vec::new()));
    }
}
