//! Engines that change tables, beside a topic that goes on.

use super::*;
use crate::commit::tests_support::table_files;
use crate::commit::{SnapshotPlace, encode_list};
use crate::log_reader::LogReader;
use crate::look::LookAnswer;
use crate::pointer::TablePointers;
use crate::tests::json_rows::json_rows_by_id;
use crate::tests::support::{Fault, World};
use crate::{ResumeFrom, TableStatus};
use floe_env::Env;
use floe_env::simulated::Node;
use floe_store::ObjectStore;
use iceberg::spec::PrimitiveType::Long;
use iceberg::spec::{
    NestedField, Operation, PrimitiveType, Schema, Snapshot, StatisticsFile, StructType, Summary,
    Type,
};
use iceberg::{TableRequirement, TableUpdate};
use kfs::{BatchBuilder, NewRecord, PartitionIndex, TopicPartition};
use serde_json::{Value, json};
use std::collections::BTreeMap;

mod made;

struct Rig {
    world: World,
    bridge: Bridge,
    topic: TopicId,
}

impl Rig {
    async fn new() -> Self {
        let world = World::new();
        let topic = world.topic("t", 1).await;
        let bridge = world.bridge(Env::simulated(Node::new(2)));
        Self { world, bridge, topic }
    }

    fn append(&self, value: &str) {
        let mut builder = BatchBuilder::new();
        let value = Some(value.as_bytes());
        builder.push(&NewRecord { timestamp_ms: 0, key: None, value, headers: &[] }).unwrap();
        let place = TopicPartition { topic: self.topic, partition: PartitionIndex(0) };
        self.world.log.append(place, &builder.build().unwrap()).unwrap();
    }

    async fn look(&self) -> LookAnswer {
        self.bridge.look("t").await.unwrap().expect("the table exists")
    }

    async fn table(&self) -> Arc<LoadedTable> {
        let answer = self.look().await;
        assert_eq!((answer.behind, &answer.table.stopped), (None, &None));
        answer.table
    }

    async fn change(&self, updates: Vec<TableUpdate>) -> Result<Vec<Version>, Rejection> {
        let table = self.look().await.table;
        let requirements = vec![TableRequirement::UuidMatch { uuid: table.metadata.uuid() }];
        let name = TableName::new("kafka", "t");
        self.bridge.commit_external(&[TableCommit { name, requirements, updates }]).await
    }

    /// Somebody changes the fields at the top of the schema.
    async fn alter(&self, change: impl FnOnce(&mut Vec<NestedField>)) {
        let table = self.look().await.table;
        let fields = table.metadata.current_schema().as_struct().fields().iter();
        let mut fields: Vec<NestedField> = fields.map(|field| field.as_ref().clone()).collect();
        change(&mut fields);
        let schema =
            Schema::builder().with_schema_id(99).with_fields(fields.into_iter().map(Arc::new));
        let schema = schema.build().unwrap();
        let updates = vec![
            TableUpdate::AddSchema { schema },
            TableUpdate::SetCurrentSchema { schema_id: -1 },
        ];
        self.change(updates).await.unwrap();
    }

    /// Rows by offset, with the columns' names as the table has them now.
    async fn rows(&self) -> Vec<Value> {
        let table = self.table().await;
        let names: BTreeMap<i32, &str> = table
            .metadata
            .current_schema()
            .as_struct()
            .fields()
            .iter()
            .map(|field| (field.id, field.name.as_str()))
            .collect();
        let mut rows = Vec::new();
        for file in table_files(&self.world.store, &table).await {
            let key = table.place.key_of(file.file_path()).unwrap();
            let bytes = self.world.store.get(&key).await.unwrap().unwrap();
            rows.extend(json_rows_by_id(bytes));
        }
        rows.sort_by_key(|(offset, _)| *offset);
        let named = |(_, row): (i64, BTreeMap<i32, Value>)| {
            let named = row.into_iter();
            let named = named.filter_map(|(id, value)| Some((*names.get(&id)?, value)));
            Value::from_iter(named.map(|(name, value)| (name.to_owned(), value)))
        };
        rows.into_iter().map(named).collect()
    }
}

fn position(fields: &[NestedField], name: &str) -> usize {
    fields.iter().position(|field| field.name == name).unwrap()
}

fn optional(id: i32, name: &str, kind: PrimitiveType) -> NestedField {
    NestedField::optional(id, name, Type::Primitive(kind))
}

#[tokio::test(start_paused = true)]
async fn a_renamed_column_is_bound_by_its_id() {
    let rig = Rig::new().await;
    rig.append(r#"{"a":1,"b":"x"}"#);
    rig.alter(|fields| {
        let at = position(fields, "a");
        fields[at].name = "renamed".to_owned();
    })
    .await;
    rig.append(r#"{"a":2,"b":"y","renamed":true,"c":7}"#);
    // A new key that has the name of the renamed column, and one that is only new.
    let rows = rig.rows().await;
    assert_eq!(rows[0], json!({"renamed": 1, "b": "x"}));
    assert_eq!(rows[1], json!({"renamed": 2, "b": "y", "renamed__2": true, "c": 7}));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_column_is_not_made_again() {
    let rig = Rig::new().await;
    rig.append(r#"{"a":1,"b":"x"}"#);
    rig.alter(|fields| {
        let at = position(fields, "a");
        fields.remove(at);
        let at = position(fields, "_kafka_headers");
        fields.remove(at);
    })
    .await;
    rig.append(r#"{"a":2,"b":"y"}"#);
    let table = rig.table().await;
    let schema = table.metadata.current_schema();
    assert!(
        schema.field_by_name("a").is_none() && schema.field_by_name("_kafka_headers").is_none()
    );
    assert_eq!(rig.rows().await, [json!({"b": "x"}), json!({"b": "y"})]);
    // Its name and its id are not given to another.
    rig.append(r#"{"c":{"a":1}}"#);
    let table = rig.table().await;
    assert!(table.metadata.current_schema().field_by_name("c").unwrap().id > 18);
}

#[tokio::test(start_paused = true)]
async fn a_column_of_others_is_null_in_our_rows_and_keeps_its_name_and_id() {
    let rig = Rig::new().await;
    rig.append(r#"{"a":1}"#);
    let theirs = optional(18, "note", PrimitiveType::Date);
    rig.alter(|fields| fields.insert(0, theirs)).await;
    rig.append(r#"{"a":2,"note":"mine","z":1}"#);
    assert_eq!(rig.rows().await[1], json!({"a": 2, "note__2": "mine", "z": 1}));
    let schema = rig.table().await.metadata.current_schema().clone();
    assert_eq!(schema.field_by_name("note").unwrap().id, 18);
    let ids = ["note__2", "z"].map(|name| schema.field_by_name(name).unwrap().id);
    assert_eq!(ids, [19, 20]);
    assert_eq!(schema.as_struct().fields()[0].name, "note", "the order is theirs");
}

#[tokio::test(start_paused = true)]
async fn a_widened_column_stays_wide() {
    let rig = Rig::new().await;
    rig.append(r#"{"a":1}"#);
    rig.alter(|fields| {
        *fields[0].field_type = Type::Primitive(PrimitiveType::Long);
        fields[0].required = false;
    })
    .await;
    rig.append(r#"{"a":2,"b":3}"#);
    let table = rig.table().await;
    let first = &table.metadata.current_schema().as_struct().fields()[0];
    assert_eq!((first.id, first.required), (1, false));
    assert_eq!(*first.field_type, Type::Primitive(PrimitiveType::Long));
    let files = table_files(&rig.world.store, &table).await;
    let newest = files.iter().find(|file| file.lower_bounds().contains_key(&18)).unwrap();
    let bound = newest.lower_bounds()[&1].to_bytes().unwrap();
    assert_eq!(bound.len(), 8, "a bound has its column's type");
    assert_eq!(rig.rows().await, [json!({"a": 1}), json!({"a": 2, "b": 3})]);
    // Narrow files and wide ones are folded together.
    for number in 3..20 {
        rig.append(&format!(r#"{{"a":{number}}}"#));
        rig.table().await;
    }
    rig.bridge.keep_up().await.unwrap();
    assert_eq!(rig.bridge.fold_counts().folds.load(std::sync::atomic::Ordering::Relaxed), 1);
    let rows = rig.rows().await;
    assert_eq!((rows.len(), &rows[0], &rows[18]), (19, &json!({"a": 1}), &json!({"a": 19})));
}

#[tokio::test(start_paused = true)]
async fn members_of_a_struct_are_bound_like_columns() {
    let rig = Rig::new().await;
    rig.append(r#"{"s":{"x":1,"y":2}}"#);
    rig.alter(|fields| {
        let at = position(fields, "s");
        let Type::Struct(members) = fields[at].field_type.as_ref() else { panic!("no struct") };
        let mut y = members.fields()[1].as_ref().clone();
        y.name = "why".to_owned();
        let theirs = optional(50, "theirs", PrimitiveType::String);
        let members = StructType::new(vec![Arc::new(theirs), Arc::new(y)]);
        *fields[at].field_type = Type::Struct(members);
    })
    .await;
    rig.append(r#"{"s":{"x":3,"y":4,"z":5,"theirs":6}}"#);
    let table = rig.table().await;
    let Type::Struct(members) =
        table.metadata.current_schema().field_by_name("s").unwrap().field_type.as_ref().clone()
    else {
        panic!("no struct")
    };
    let names: Vec<&str> = members.fields().iter().map(|field| field.name.as_str()).collect();
    assert_eq!(names, ["theirs", "why", "z", "theirs__2"]);
    assert_eq!(table.metadata.last_column_id(), 52);
}

#[tokio::test(start_paused = true)]
async fn what_no_record_can_have_stops_the_table_by_name() {
    type Alter = fn(&mut Vec<NestedField>);
    let cases: [(Alter, &str); 4] = [
        (
            |fields| {
                let kind = Type::Primitive(PrimitiveType::Long);
                fields.push(NestedField::required(60, "must", kind));
            },
            "column must is required, and no record has it",
        ),
        (
            |fields| {
                let at = position(fields, "a");
                fields[at].required = true;
            },
            "column a is required, and records may lack it",
        ),
        (
            |fields| {
                let at = position(fields, "a");
                *fields[at].field_type = Type::Primitive(PrimitiveType::String);
            },
            "column a is string now, and records have long",
        ),
        (
            |fields| {
                fields.remove(1);
            },
            "column _kafka_offset (field id 2) is not there any more",
        ),
    ];
    for (alter, why) in cases {
        let rig = Rig::new().await;
        rig.append(r#"{"a":1}"#);
        rig.alter(alter).await;
        rig.append(r#"{"a":2}"#);
        let answer = rig.look().await;
        assert!(answer.behind.is_some(), "{why}");
        assert_eq!(answer.table.stopped.as_deref(), Some(why));
        assert_eq!(rig.bridge.statuses()[0].reason.as_deref(), Some(why));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stopped_table_goes_on_once_its_columns_are_back() {
    let rig = Rig::new().await;
    rig.append(r#"{"a":1}"#);
    let must = NestedField::required(60, "must", Type::Primitive(PrimitiveType::Long));
    rig.alter(|fields| fields.push(must)).await;
    rig.append(r#"{"a":2}"#);
    assert!(rig.look().await.table.stopped.is_some());
    rig.alter(|fields| drop(fields.pop())).await;
    assert_eq!(rig.rows().await, [json!({"a": 1}), json!({"a": 2})]);
}

#[tokio::test(start_paused = true)]
async fn what_is_floes_is_refused() {
    let rig = Rig::new().await;
    rig.append(r#"{"a":1}"#);
    let table = rig.table().await;
    let snapshot_id = table.metadata.current_snapshot_id().unwrap();
    let set = |key: &str| TableUpdate::SetProperties {
        updates: [(key.to_owned(), "other".to_owned())].into_iter().collect(),
    };
    let refused = [
        set("floe.topic-id"),
        set("floe.mapping"),
        set("write.data.path"),
        TableUpdate::RemoveProperties { removals: vec!["floe.cluster-id".to_owned()] },
        TableUpdate::RemoveSnapshotRef { ref_name: "floe".to_owned() },
        TableUpdate::RemoveSnapshots { snapshot_ids: vec![snapshot_id] },
        TableUpdate::SetLocation { location: "s3://elsewhere/t".to_owned() },
        TableUpdate::AssignUuid { uuid: uuid::Uuid::from_u128(1) },
        TableUpdate::UpgradeFormatVersion { format_version: iceberg::spec::FormatVersion::V3 },
        TableUpdate::RemovePartitionSpecs { spec_ids: vec![0] },
        TableUpdate::AddSchema { schema: schema_of(optional(i32::MAX - 300, "far", Long)) },
        TableUpdate::SetStatistics { statistics: statistics_at("memory:///elsewhere/1.puffin") },
    ];
    for update in refused {
        let text = format!("{update:?}");
        let rejected = rig.change(vec![update]).await.expect_err(&text);
        assert!(matches!(rejected, Rejection::Invalid(_)), "{text}: {rejected:?}");
    }
    rig.change(vec![set("by")]).await.unwrap();
    assert_eq!(rig.table().await.metadata.properties()["by"], "other");
}

#[tokio::test(start_paused = true)]
async fn a_requirement_that_does_not_hold_is_a_conflict() {
    let rig = Rig::new().await;
    rig.append(r#"{"a":1}"#);
    rig.table().await;
    let stale =
        TableRequirement::RefSnapshotIdMatch { r#ref: "main".to_owned(), snapshot_id: Some(7) };
    let commit = |requirement| TableCommit {
        name: TableName::new("kafka", "t"),
        requirements: vec![requirement],
        updates: Vec::new(),
    };
    let rejected = rig.bridge.commit_external(&[commit(stale)]).await.unwrap_err();
    assert!(matches!(rejected, Rejection::Conflict(_)), "{rejected:?}");
    let rejected = rig.bridge.commit_external(&[commit(TableRequirement::NotExist)]).await;
    assert!(matches!(rejected.unwrap_err(), Rejection::AlreadyExists(_)));
}

fn schema_of(field: NestedField) -> Schema {
    Schema::builder().with_fields(vec![Arc::new(field)]).build().unwrap()
}

/// Somebody goes on from main with a snapshot that says that it has other rows.
async fn overwrite(rig: &Rig, id: i64) {
    let table = rig.look().await.table;
    let (metadata, place) = (&table.metadata, &table.place);
    let (parent, sequence_number) =
        (metadata.current_snapshot_id(), metadata.next_sequence_number());
    let key = place.manifest_list_key(rig.bridge.env(), id);
    let url = place.url_of(&key).unwrap();
    let snapshot_place = SnapshotPlace { id, parent, sequence_number };
    let list = encode_list(&url, snapshot_place, &table.manifests).await.unwrap();
    rig.world.store.put(&key, vec![list]).await.unwrap();
    let counted = [("total-records".to_owned(), id.to_string())];
    let summary = Summary {
        operation: Operation::Overwrite,
        additional_properties: counted.into_iter().collect(),
    };
    let snapshot = Snapshot::builder()
        .with_snapshot_id(id)
        .with_parent_snapshot_id(parent)
        .with_sequence_number(sequence_number)
        .with_timestamp_ms(metadata.last_updated_ms() + 1)
        .with_manifest_list(url)
        .with_summary(summary)
        .build();
    let main = json!({"action": "set-snapshot-ref", "ref-name": "main", "type": "branch",
        "snapshot-id": id});
    let main: TableUpdate = serde_json::from_value(main).unwrap();
    rig.change(vec![TableUpdate::AddSnapshot { snapshot }, main]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_others_change_and_let_expire_stops_nothing() {
    let rig = Rig::new().await;
    rig.append(r#"{"a":1}"#);
    rig.table().await;
    // Rows are deleted, files are compacted, and what was between expires.
    overwrite(&rig, 70).await;
    assert!(rig.table().await.counts.bytes > 0, "the last word on it is ours");
    let place = rig.table().await.place.clone();
    let path = place.url_of(&format!("{}/x.stats", place.key())).unwrap();
    let statistics = StatisticsFile { snapshot_id: 70, ..statistics_at(&path) };
    rig.change(vec![TableUpdate::SetStatistics { statistics }]).await.unwrap();
    overwrite(&rig, 71).await;
    rig.change(vec![TableUpdate::RemoveSnapshots { snapshot_ids: vec![70] }]).await.unwrap();
    assert_eq!(rig.table().await.metadata.statistics_iter().len(), 0, "they go with it");
    rig.append(r#"{"a":2}"#);
    assert_eq!(rig.rows().await, [json!({"a": 1}), json!({"a": 2})]);
    // What they have not said is not known, deletes least of all.
    let table = rig.table().await;
    assert_eq!(table.summary("total-records"), Some("72"));
    assert_eq!(table.summary("total-position-deletes"), None);
    // Where main goes back it still is stopped.
    let main = json!({"action": "set-snapshot-ref", "ref-name": "main", "type": "branch",
        "snapshot-id": 71});
    rig.change(vec![serde_json::from_value(main).unwrap()]).await.unwrap();
    let stopped = rig.look().await.table.stopped.clone().unwrap();
    assert!(stopped.starts_with("rolled back"), "{stopped}");
}

fn statistics_at(path: &str) -> StatisticsFile {
    StatisticsFile {
        snapshot_id: 1,
        statistics_path: path.to_owned(),
        file_size_in_bytes: 1,
        file_footer_size_in_bytes: 1,
        key_metadata: None,
        blob_metadata: Vec::new(),
    }
}

/// A snapshot of a branch, with this number.
fn snapshot_of(table: &LoadedTable, sequence_number: i64) -> TableUpdate {
    let summary =
        Summary { operation: Operation::Append, additional_properties: Default::default() };
    let snapshot = Snapshot::builder()
        .with_snapshot_id(77)
        .with_parent_snapshot_id(table.metadata.current_snapshot_id())
        .with_sequence_number(sequence_number)
        .with_timestamp_ms(table.metadata.last_updated_ms() + 1)
        .with_manifest_list(table.place.url_of(&format!("{}/x", table.place.key())).unwrap())
        .with_summary(summary)
        .build();
    TableUpdate::AddSnapshot { snapshot }
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_with_an_old_number_is_a_conflict_and_one_that_leaps_is_invalid() {
    let rig = Rig::new().await;
    rig.append(r#"{"a":1}"#);
    let known = rig.table().await;
    let next = known.metadata.next_sequence_number();
    // The topic goes on, and the engine's branch has not moved.
    rig.append(r#"{"a":2}"#);
    rig.table().await;
    let stale = rig.change(vec![snapshot_of(&known, next)]).await.unwrap_err();
    assert!(matches!(stale, Rejection::Conflict(_)), "{stale:?}");
    let leap = rig.change(vec![snapshot_of(&known, i64::MAX)]).await.unwrap_err();
    assert!(matches!(leap, Rejection::Invalid(_)), "{leap:?}");
    rig.change(vec![snapshot_of(&known, next + 1)]).await.unwrap();
    rig.append(r#"{"a":3}"#);
    assert_eq!(rig.table().await.metadata.last_sequence_number(), next + 2);
}

#[tokio::test(start_paused = true)]
async fn a_change_that_may_have_been_made_keeps_its_file() {
    let rig = Rig::new().await;
    rig.append(r#"{"a":1}"#);
    rig.table().await;
    let commit = |value: &str| TableCommit {
        name: TableName::new("kafka", "t"),
        requirements: Vec::new(),
        updates: vec![TableUpdate::SetProperties {
            updates: [("by".to_owned(), value.to_owned())].into(),
        }],
    };
    // The second try is rejected, and the pointer shows that the first was made.
    rig.world.pointers.faults.plan([Fault::AnswerLost]);
    rig.bridge.commit_external(&[commit("one")]).await.unwrap();
    // The pointer cannot be read then.
    rig.world.pointers.faults.plan([Fault::AnswerLost]);
    rig.world.pointers.read_faults.plan([Fault::None, Fault::None, Fault::Refused]);
    let unknown = rig.bridge.commit_external(&[commit("two")]).await.unwrap_err();
    let is_unknown = |error: &Error| error.kind() == ErrorKind::UnknownOutcome;
    assert!(matches!(&unknown, Rejection::Failed(error) if is_unknown(error)), "{unknown:?}");
    assert_eq!(rig.table().await.metadata.properties()["by"], "two");
    // One that certainly was not made leaves nothing, and says so.
    let before = rig.world.store.keys().await.len();
    rig.world.store.put_faults.plan([Fault::NeverArrived; 3]);
    let not_put = rig.bridge.commit_external(&[commit("three")]).await.unwrap_err();
    let is_retry = |error: &Error| error.kind() == ErrorKind::Retry;
    assert!(matches!(&not_put, Rejection::Failed(error) if is_retry(error)), "{not_put:?}");
    rig.world.pointers.faults.plan([Fault::Refused]);
    rig.bridge.commit_external(&[commit("three")]).await.unwrap_err();
    assert_eq!(rig.world.store.keys().await.len(), before);
    assert_eq!(rig.table().await.metadata.properties()["by"], "two");
}

#[tokio::test(start_paused = true)]
async fn a_renamed_topics_table_goes_on() {
    let rig = Rig::new().await;
    rig.append(r#"{"a":1}"#);
    rig.table().await;
    let (from, to) = (TableName::new("kafka", "t"), TableName::new("kafka", "other"));
    rig.bridge.rename_external(&from, &to).await.unwrap();
    rig.append(r#"{"a":2}"#);
    let answer = rig.bridge.look("other").await.unwrap().unwrap();
    assert_eq!((answer.behind, answer.table.progress.next_offset(0)), (None, 2));
    assert!(rig.bridge.look("t").await.unwrap().is_none());
    rig.append(r#"{"a":3}"#);
    rig.bridge.round().await.unwrap();
    assert_eq!(rig.bridge.table_names(None, 10).await.unwrap(), ["other"]);
    // In another namespace it is shown, and resumed, as what it is called there.
    rig.bridge.create_namespace("lake", BTreeMap::new()).await.unwrap();
    rig.bridge.rename_external(&to, &TableName::new("lake", "moved")).await.unwrap();
    rig.bridge.round().await.unwrap();
    rig.append(r#"{"a":4}"#);
    rig.bridge.round().await.unwrap();
    let status = rig.bridge.statuses()[0].clone();
    assert_eq!((status.namespace.as_str(), status.table.as_deref()), ("lake", Some("moved")));
    let resume = async |name| rig.bridge.resume(name, ResumeFrom::Rewind).await;
    assert_eq!(resume(("kafka", "moved")).await.unwrap(), None);
    let running = resume(("lake", "moved")).await.unwrap_err();
    assert_eq!(running.kind(), ErrorKind::Invalid, "it is not stopped");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_topics_table_is_not_made_again_until_the_topic_says_so() {
    let rig = Rig::new().await;
    rig.append(r#"{"a":1}"#);
    rig.table().await;
    rig.bridge.drop_external(&TableName::new("kafka", "t")).await.unwrap();
    rig.append(r#"{"a":2}"#);
    for _ in 0..3 {
        rig.bridge.round().await.unwrap();
        assert!(rig.bridge.look("t").await.unwrap().is_none());
    }
    let topic = rig.world.metadata.topic_by_id(rig.topic).await.unwrap().unwrap();
    assert_eq!(topic.configs[ENABLE_CONFIG], "false");
    let changed = rig.world.metadata.set_topic_configs(rig.topic, &topic.configs, BTreeMap::new());
    changed.await.unwrap();
    assert_eq!(rig.rows().await, [json!({"a": 1}), json!({"a": 2})]);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_topics_table_is_not_made_again_by_who_still_took_it_for_wanted() {
    let rig = Rig::new().await;
    rig.append(r#"{"a":1}"#);
    rig.table().await;
    // Another broker has read the topics before, and its turns begin after.
    let other = rig.world.bridge(Env::simulated(Node::new(3)));
    other.look("t").await.unwrap().unwrap();
    let worker = other.workers()[&rig.topic].clone();
    rig.append(r#"{"a":2}"#);
    let cut = rig.world.log.cut(rig.topic).await.unwrap().unwrap();
    rig.bridge.drop_external(&TableName::new("kafka", "t")).await.unwrap();
    for _ in 0..3 {
        let mut ended = worker.request(cut.clone(), true);
        let ended = ended.wait_for(Option::is_some).await.unwrap().clone();
        assert!(matches!(ended, Some(Err(_))), "{ended:?}");
        assert_eq!(rig.world.pointers.by_topic(rig.topic).await.unwrap(), None);
    }
    other.round().await.unwrap();
    let shown = other.statuses().iter().filter_map(TableStatus::shown_name).count();
    assert_eq!(shown, 0, "there is none, and none is wanted");
}
