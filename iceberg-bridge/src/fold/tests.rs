use super::plan::{Candidate, Fold, FoldRules, plan};
use crate::commit::tests_support::table_files;
use crate::commit::{LoadedTable, SnapshotPlace, encode_list};
use crate::external::{TableCommit, TableName};
use crate::tests::json_rows::json_rows;
use crate::tests::support::{Fault, World};
use crate::{Bridge, LookAnswer};
use floe_env::Env;
use floe_env::simulated::Node;
use floe_store::ObjectStore;
use iceberg::TableUpdate;
use iceberg::spec::{
    DataContentType, DataFile, DataFileBuilder, DataFileFormat, Datum, ManifestContentType,
    ManifestFile, Operation, Snapshot, SnapshotReference, SnapshotRetention, Struct, Summary,
};
use kfs::{BatchBuilder, NewRecord, PartitionIndex, TopicId, TopicPartition};
use parquet::file::reader::{FileReader, SerializedFileReader};
use proptest::prelude::*;
use serde_json::Value;
use std::collections::BTreeMap;

const MINUTE_MS: i64 = 60_000;

fn env(seed: u64) -> Env {
    Env::simulated(Node::new(seed))
}

fn file(path: &str, bytes: u64) -> DataFile {
    let mut builder = DataFileBuilder::default();
    builder
        .content(DataContentType::Data)
        .file_path(path.to_owned())
        .file_format(DataFileFormat::Parquet)
        .partition_spec_id(0)
        .partition(Struct::empty())
        .record_count(1)
        .file_size_in_bytes(bytes);
    builder.build().unwrap()
}

/// A table in the plan's eyes: every file with how often its bytes were written.
struct Planned {
    files: Vec<Candidate>,
    next: i64,
    rewritten: u64,
}

impl Planned {
    fn commit(&mut self, bytes: u64, now_ms: i64) {
        self.add(0, bytes, now_ms);
    }

    fn add(&mut self, generation: u8, bytes: u64, committed_ms: i64) {
        self.next += 1;
        let file = file(&format!("f{}", self.next), bytes);
        let sequence_number = self.next;
        self.files.push(Candidate { spec_id: 0, generation, sequence_number, committed_ms, file });
    }

    fn fold(&mut self, rules: &FoldRules, now_ms: i64) -> bool {
        let Some(Fold { files, generation, .. }) = plan(self.files.clone(), rules, now_ms) else {
            return false;
        };
        let paths: Vec<&str> = files.iter().map(DataFile::file_path).collect();
        let is_folded = |candidate: &Candidate| paths.contains(&candidate.file.file_path());
        assert!(
            self.files
                .iter()
                .filter(|file| is_folded(file))
                .all(|file| { file.generation == generation })
        );
        self.files.retain(|candidate| !is_folded(candidate));
        let bytes = files.iter().map(DataFile::file_size_in_bytes).sum();
        assert!(files.len() > 1 && generation < 3 && bytes <= rules.file_bytes_max);
        self.rewritten += bytes;
        self.add(generation + 1, bytes, now_ms);
        true
    }
}

#[test]
fn a_look_a_minute_leaves_few_files_after_an_hour_and_after_a_day() {
    let rules = FoldRules::default();
    let mut table = Planned { files: Vec::new(), next: 0, rewritten: 0 };
    let mut most = 0;
    for minute in 0..24 * 60 {
        table.commit(6000, minute * MINUTE_MS);
        while table.fold(&rules, minute * MINUTE_MS) {}
        most = most.max(table.files.len());
        if minute == 59 {
            // A quarter of an hour later, when nobody has looked since.
            let mut quiet = Planned { files: table.files.clone(), next: 1000, rewritten: 0 };
            while quiet.fold(&rules, (minute + 15) * MINUTE_MS) {}
            assert!(quiet.files.len() <= 5, "{} files", quiet.files.len());
        }
    }
    assert!(most <= 32, "{most} files at some moment of the day");
    // A partition that has gone quiet is folded up step by step.
    for hour in 24..48 {
        while table.fold(&rules, hour * 60 * MINUTE_MS) {}
    }
    assert!(table.files.len() <= 5, "{} files when the day is over", table.files.len());
    assert!(table.rewritten <= 3 * 24 * 60 * 6000);
}

proptest! {
    #[test]
    fn no_byte_is_folded_more_than_three_times(
        commits in prop::collection::vec((1..40_000_000u64, 0..600_000i64), 1..120),
    ) {
        let rules = FoldRules::default();
        let mut table = Planned { files: Vec::new(), next: 0, rewritten: 0 };
        let (mut now_ms, mut bytes) = (0, 0);
        for (size, pause_ms) in commits {
            now_ms += pause_ms;
            bytes += size;
            table.commit(size, now_ms);
            while table.fold(&rules, now_ms) {}
        }
        let held = table.files.iter().map(|file| file.file.file_size_in_bytes()).sum::<u64>();
        prop_assert_eq!(held, bytes);
        prop_assert!(table.rewritten <= 3 * bytes);
    }
}

/// Few files are many here.
fn folding_bridge(world: &World, seed: u64) -> Bridge {
    world.bridge_with(env(seed), |config| {
        config.fold.fresh_files = 4;
        config.fold.first_files = 2;
        config.fold.second_files = 2;
    })
}

async fn look(bridge: &Bridge) -> LookAnswer {
    bridge.look("t").await.unwrap().expect("the table exists")
}

async fn fold_all(bridge: &Bridge) -> usize {
    let mut folds = 0;
    while bridge.fold_next().await.unwrap() {
        folds += 1;
    }
    folds
}

async fn newest(bridge: &Bridge) -> std::sync::Arc<LoadedTable> {
    bridge.newest("t").await.unwrap().unwrap()
}

/// Nobody looks any more, and still the last files become one when they are old enough.
#[tokio::test(start_paused = true)]
async fn a_table_that_has_gone_quiet_is_folded_soon() {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    let bridge = folding_bridge(&world, 2);
    for round in 0..3 {
        world.append(topic, 0, round..round + 1);
        look(&bridge).await;
    }
    assert_eq!(fold_all(&bridge).await, 0, "three files are few, and young");
    bridge.env().sleep(FoldRules::default().fresh_age).await;
    assert_eq!(fold_all(&bridge).await, 1);
    let table = newest(&bridge).await;
    assert_eq!(table.counts.files, 1);
    assert_eq!(world.rows(&table).await.len(), 3);
    assert_eq!(fold_all(&bridge).await, 0);
}

#[tokio::test(start_paused = true)]
async fn folds_have_the_same_rows_and_looks_go_on() {
    let world = World::new();
    let topic = world.topic("t", 2).await;
    let bridge = folding_bridge(&world, 2);
    let mut folds = 0;
    for round in 0..20 {
        // Two partitions, whose rows take turns in the files.
        world.append(topic, 0, round..round + 1);
        world.append(topic, 1, round..round + 2);
        let before = look(&bridge).await.table;
        let rows = world.rows(&before).await;
        let made = fold_all(&bridge).await;
        let after = newest(&bridge).await;
        assert_eq!(world.rows(&after).await, rows, "the same rows, each file in order");
        assert_eq!(after.progress, before.progress);
        if made > 0 {
            let current = after.metadata.current_snapshot().unwrap();
            assert_eq!(current.summary().operation, Operation::Replace);
        }
        folds += made;
    }
    assert!(folds >= 5, "{folds}");
    let newest = newest(&bridge).await;
    let files = table_files(&world.store, &newest).await;
    assert!(files.len() < 8, "{} of 20 files are left", files.len());
    for file in &files {
        assert!(file.lower_bounds().contains_key(&2) && file.upper_bounds().contains_key(&2));
        assert_eq!(file.value_counts()[&2], file.record_count());
        assert_eq!(file.partition().fields().len(), 1, "a day's files stay of the day");
    }
    assert_eq!(newest.total("total-data-files"), files.len() as u64);
    // Nothing changes any more: nothing is read or written.
    let puts = world.store.puts();
    assert_eq!(fold_all(&bridge).await, 0);
    assert_eq!(world.store.puts(), puts);
    // Another broker knows nothing of it, and goes on.
    let other = folding_bridge(&world, 3);
    world.append(topic, 0, 20..25);
    assert_eq!(look(&other).await.behind, None);
    assert_eq!(world.rows(&look(&bridge).await.table).await.len(), 20 + 40 + 5);
}

#[tokio::test(start_paused = true)]
async fn a_fold_never_hides_a_row_from_who_follows_appends() {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    let bridge = folding_bridge(&world, 2);
    for round in 0..30 {
        world.append(topic, 0, round * 3..round * 3 + 3);
        look(&bridge).await;
        fold_all(&bridge).await;
    }
    let table = newest(&bridge).await;
    let mut snapshots: Vec<_> = table.metadata.snapshots().collect();
    snapshots.sort_by_key(|snapshot| snapshot.sequence_number());
    let appends = snapshots.iter().filter(|one| one.summary().operation == Operation::Append);
    let added: u64 = appends
        .map(|one| one.summary().additional_properties["added-records"].parse::<u64>().unwrap())
        .sum();
    assert_eq!(added, 90, "each row is added by one append");
    assert!(snapshots.len() > 30, "there were folds between");
}

/// A record an hour: a record's timestamp is its number in hours.
fn spread_over_days(world: &World, topic: TopicId, days: i64) {
    world.append(topic, 0, 0..days * 24);
}

#[tokio::test(start_paused = true)]
async fn rows_of_many_days_stay_together_until_a_day_is_worth_a_file() {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    let bridge = folding_bridge(&world, 2);
    for _ in 0..4 {
        spread_over_days(&world, topic, 100);
        look(&bridge).await;
    }
    let before = newest(&bridge).await;
    let rows = world.rows(&before).await;
    fold_all(&bridge).await;
    let after = newest(&bridge).await;
    assert_eq!(world.rows(&after).await, rows);
    let mut files_of: BTreeMap<usize, usize> = BTreeMap::new();
    for file in table_files(&world.store, &after).await {
        *files_of.entry(file.partition().fields().len()).or_default() += 1;
    }
    assert_eq!(files_of[&0], 1, "one file has all days that have few rows");
    for _ in 0..4 {
        // Eight days have files of their own; then one day comes that is worth one.
        spread_over_days(&world, topic, 8);
        world.append_at(topic, 0, 70 * 24, 800);
        look(&bridge).await;
    }
    let rows = world.rows(newest(&bridge).await.as_ref()).await;
    fold_all(&bridge).await;
    let after = newest(&bridge).await;
    assert_eq!(world.rows(&after).await, rows);
    let files = table_files(&world.store, &after).await;
    let day = Struct::from_iter([Some(iceberg::spec::Literal::date(70))]);
    let of_day: Vec<_> = files.iter().filter(|file| *file.partition() == day).collect();
    assert_eq!(of_day.len(), 1);
    assert_eq!(of_day[0].record_count(), 3200);
}

#[tokio::test(start_paused = true)]
async fn one_file_that_cannot_be_read_keeps_no_other_from_being_folded() {
    for is_there in [true, false] {
        let world = World::new();
        let topic = world.topic("t", 1).await;
        let bridge = folding_bridge(&world, 2);
        for round in 0..6 {
            world.append(topic, 0, round..round + 1);
            look(&bridge).await;
        }
        let table = newest(&bridge).await;
        let files = table_files(&world.store, &table).await;
        let bad = files.iter().find(|file| file.lower_bounds()[&2] == Datum::long(2)).unwrap();
        let key = table.place.key_of(bad.file_path()).unwrap();
        world.store.objects.delete(std::slice::from_ref(&key)).await.unwrap();
        if is_there {
            let garbage = bytes::Bytes::from(vec![7; 1000]);
            world.store.objects.put(&key, vec![garbage]).await.unwrap();
        }
        assert!(fold_all(&bridge).await >= 2, "it is found, and the others are folded");
        let left = table_files(&world.store, newest(&bridge).await.as_ref()).await;
        assert_eq!(left.len(), 2);
        let mut rows: Vec<u64> = left.iter().map(DataFile::record_count).collect();
        rows.sort_unstable();
        assert_eq!(rows, [1, 5]);
        assert!(left.iter().any(|file| file.file_path() == bad.file_path()), "it stays");
        // Nothing is left to fold until more comes.
        assert_eq!(fold_all(&bridge).await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_fold_whose_put_fails_leaves_nothing() {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    let bridge = folding_bridge(&world, 2);
    for round in 0..4 {
        world.append(topic, 0, round..round + 1);
        look(&bridge).await;
    }
    let before = world.store.keys().await;
    for works in 0..3 {
        let faults = [vec![Fault::None; works], vec![Fault::Refused; 10]].concat();
        world.store.put_faults.plan(faults);
        let base = newest(&bridge).await;
        let worker = bridge.workers()[&topic].clone();
        bridge.fold(&worker, base).await.unwrap_err();
        assert_eq!(world.store.keys().await, before, "{works} puts had worked");
    }
    world.store.put_faults.plan([]);
}

/// Somebody deletes rows of the table's files, by files that say which.
async fn delete_by_others(world: &World, bridge: &Bridge) -> i64 {
    let table = newest(bridge).await;
    let id = 77;
    let (parent, sequence_number) =
        (table.metadata.current_snapshot_id(), table.metadata.next_sequence_number());
    let deletes = ManifestFile {
        manifest_path: table.place.url_of(&table.place.manifest_key(bridge.env())).unwrap(),
        content: ManifestContentType::Deletes,
        ..table.manifests[0].clone()
    };
    let manifests = [table.manifests.clone(), vec![deletes]].concat();
    let key = table.place.manifest_list_key(bridge.env(), id);
    let url = table.place.url_of(&key).unwrap();
    let place = SnapshotPlace { id, parent, sequence_number };
    let list = encode_list(&url, place, &manifests).await.unwrap();
    world.store.put(&key, vec![list]).await.unwrap();
    let summary =
        Summary { operation: Operation::Delete, additional_properties: Default::default() };
    let snapshot = Snapshot::builder()
        .with_snapshot_id(id)
        .with_parent_snapshot_id(parent)
        .with_sequence_number(sequence_number)
        .with_timestamp_ms(table.metadata.last_updated_ms() + 1)
        .with_manifest_list(url)
        .with_summary(summary)
        .with_schema_id(table.metadata.current_schema_id())
        .build();
    let retention = SnapshotRetention::Branch {
        min_snapshots_to_keep: None,
        max_snapshot_age_ms: None,
        max_ref_age_ms: None,
    };
    let reference = SnapshotReference::new(id, retention);
    let updates = vec![
        TableUpdate::AddSnapshot { snapshot },
        TableUpdate::SetSnapshotRef { ref_name: "main".to_owned(), reference },
    ];
    let name = TableName::new("kafka", "t");
    let commit = TableCommit { name, requirements: Vec::new(), updates };
    bridge.commit_external(&[commit]).await.unwrap();
    id
}

#[tokio::test(start_paused = true)]
async fn deletes_that_come_while_files_are_folded_keep_their_files() {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    let bridge = folding_bridge(&world, 2);
    for round in 0..4 {
        world.append(topic, 0, round..round + 1);
        look(&bridge).await;
    }
    let base = newest(&bridge).await;
    let before = world.store.keys().await.len();
    let snapshot = delete_by_others(&world, &bridge).await;
    let worker = bridge.workers()[&topic].clone();
    bridge.fold(&worker, base).await.unwrap();
    let after = newest(&bridge).await;
    assert_eq!(after.metadata.current_snapshot_id(), Some(snapshot), "the fold was given up");
    assert_eq!(world.store.keys().await.len(), before + 2, "and has left nothing");
    assert_eq!(fold_all(&bridge).await, 0);
}

/// Records of all types, a file each; what a file lacks comes later.
const TYPED: [&str; 4] = [
    r#"{"n":1,"d":1.5,"t":"b","s":{"x":1,"y":"in"},"l":[1,2],"o":[{"k":1}]}"#,
    r#"{"n":-5,"d":-0.25,"t":"abc","s":{"x":2},"l":[],"o":[{"k":2},null]}"#,
    r#"{"n":9,"d":7.0,"t":"z","s":{"y":"only"},"l":[3,null],"late":true}"#,
    r#"{"n":4,"d":0.5,"t":"m","s":{"x":-7,"new":2.5},"o":[{"k":3,"m":[["deep"]]}],"late":false}"#,
];

#[tokio::test(start_paused = true)]
async fn doubles_structs_and_lists_are_folded_and_their_bounds_merged() {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    let bridge = folding_bridge(&world, 2);
    for value in TYPED {
        let mut builder = BatchBuilder::new();
        let value = Some(value.as_bytes());
        builder.push(&NewRecord { timestamp_ms: 0, key: None, value, headers: &[] }).unwrap();
        let place = TopicPartition { topic, partition: PartitionIndex(0) };
        world.log.append(place, &builder.build().unwrap()).unwrap();
        look(&bridge).await;
    }
    assert_eq!(fold_all(&bridge).await, 1);
    let table = newest(&bridge).await;
    let files = table_files(&world.store, &table).await;
    assert_eq!(files.len(), 1);
    let key = table.place.key_of(files[0].file_path()).unwrap();
    let bytes = world.store.get(&key).await.unwrap().unwrap();
    let rows: Vec<Value> = json_rows(bytes.clone()).into_iter().map(|(_, row)| row).collect();
    let expected: Vec<Value> =
        TYPED.iter().map(|value| serde_json::from_str(value).unwrap()).collect();
    assert_eq!(rows, expected);
    let id = |name: &str| table.metadata.current_schema().field_by_name(name).unwrap().id;
    let bounds = |name: &str| {
        let (lower, upper) = (files[0].lower_bounds(), files[0].upper_bounds());
        (lower.get(&id(name)).cloned(), upper.get(&id(name)).cloned())
    };
    assert_eq!(bounds("n"), (Some(Datum::long(-5)), Some(Datum::long(9))));
    assert_eq!(bounds("d"), (Some(Datum::double(-0.25)), Some(Datum::double(7.0))));
    assert_eq!(bounds("t"), (Some(Datum::string("abc")), Some(Datum::string("z"))));
    // Nobody has counted a column that two of the files lack.
    assert_eq!(bounds("late"), (None, None));
    // Statistics inside the file are those of a file that was committed.
    let reader = SerializedFileReader::new(bytes).unwrap();
    let group = reader.metadata().row_group(0);
    let with_statistics: Vec<String> = group
        .columns()
        .iter()
        .filter(|column| column.statistics().is_some())
        .map(|column| column.column_path().string())
        .filter(|name| !name.starts_with("_kafka_"))
        .collect();
    let numbers = ["n", "d", "s.x", "s.new", "l.list.element", "o.list.element.k"];
    assert_eq!(sorted(with_statistics), sorted(numbers.map(str::to_owned).to_vec()));
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}

#[test]
fn columns_of_older_files_come_to_the_tables_own() {
    use crate::projection::{arrow_schema_of, project};
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Int32Type, Int64Type};
    use arrow_array::{
        Array, ArrayRef, Int32Array, ListArray, RecordBatch, StringArray, StructArray,
    };
    use arrow_schema::{Field, Schema};
    use iceberg::spec::{ListType, NestedField, PrimitiveType, StructType, Type};
    use std::sync::Arc;

    let int =
        |id: i32| Type::Primitive(if id == 1 { PrimitiveType::Int } else { PrimitiveType::Long });
    let text = |id, name| {
        Arc::new(NestedField::optional(id, name, Type::Primitive(PrimitiveType::String)))
    };
    let schema = |count_type: Type, columns: Vec<_>| {
        let element = Type::Struct(StructType::new(columns));
        let list = ListType::new(Arc::new(NestedField::list_element(3, element, false)));
        let fields = vec![
            Arc::new(NestedField::optional(1, "count", count_type)),
            Arc::new(NestedField::optional(2, "tags", Type::List(list))),
        ];
        iceberg::spec::Schema::builder().with_fields(fields).build().unwrap()
    };
    let old = arrow_schema_of(&schema(int(1), vec![text(4, "key")])).unwrap();
    // The number is wider, a field has come inside the list, and a column at the top.
    let with_field = schema(int(2), vec![text(5, "new"), text(4, "renamed")]);
    let mut fields = with_field.as_struct().fields().to_vec();
    fields.insert(0, text(6, "first"));
    let new = iceberg::spec::Schema::builder().with_fields(fields).build().unwrap();
    let new = arrow_schema_of(&new).unwrap();

    let list_field = old.field(1);
    let arrow_schema::DataType::List(element) = list_field.data_type() else { panic!() };
    let arrow_schema::DataType::Struct(inside) = element.data_type() else { panic!() };
    let keys: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some("c")]));
    let structs: ArrayRef = Arc::new(StructArray::new(inside.clone(), vec![keys], None));
    // The offsets of three lists, of which the second is empty.
    let shape = ListArray::from_iter_primitive::<Int32Type, _, _>([
        Some(vec![Some(0), Some(0)]),
        Some(Vec::new()),
        Some(vec![Some(0)]),
    ]);
    let lists = ListArray::new(element.clone(), shape.offsets().clone(), structs, None);
    let counts: ArrayRef = Arc::new(Int32Array::from(vec![Some(7), None, Some(-1)]));
    let batch = RecordBatch::try_new(old.clone(), vec![counts, Arc::new(lists)]).unwrap();
    let projected = project(&batch, &new).unwrap();
    assert_eq!(projected.column(0).null_count(), 3);
    let counts: Vec<Option<i64>> = projected.column(1).as_primitive::<Int64Type>().iter().collect();
    assert_eq!(counts, [Some(7), None, Some(-1)]);
    let inside = projected.column(2).as_list::<i32>().values().as_struct().clone();
    assert_eq!(inside.column(0).null_count(), 3);
    let keys: Vec<Option<&str>> = inside.column(1).as_string::<i32>().iter().collect();
    assert_eq!(keys, [Some("a"), None, Some("c")]);
    // A number does not become narrower, and a required column is not made up.
    assert!(project(&projected, &old).is_err());
    let lone = Schema::new(vec![Field::new("x", arrow_schema::DataType::Int32, false)]);
    assert!(project(&batch, &Arc::new(lone)).is_err());
}
