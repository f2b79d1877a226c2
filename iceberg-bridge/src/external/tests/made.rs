//! Tables that engines make: they belong to no topic.

use super::*;
use crate::commit::joined;
use floe_env::simulated::SIMULATION_START_MS;

fn new_table() -> NewTable {
    let schema = schema_of(optional(1, "id", Long));
    NewTable { schema, spec: None, order: None, properties: BTreeMap::new() }
}

async fn made(rig: &Rig, name: &str) -> Version {
    rig.bridge.create_external(TableName::new("lake", name), new_table(), false).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn engines_make_rename_and_drop_tables_of_their_own() {
    let rig = Rig::new().await;
    let (one, two) = (TableName::new("lake", "one"), TableName::new("lake", "two"));
    let early = rig.bridge.create_external(one.clone(), new_table(), false).await.unwrap_err();
    assert!(matches!(early, Rejection::NoSuchNamespace(_)));
    rig.bridge.create_namespace("lake", BTreeMap::new()).await.unwrap();
    let version = made(&rig, "one").await;
    assert!(version.place.key().contains("/tables/external-"));
    let again = rig.bridge.create_external(one.clone(), new_table(), false).await.unwrap_err();
    assert!(matches!(again, Rejection::AlreadyExists(_)));
    let pointer = rig.bridge.pointer_of(&one).await.unwrap().unwrap();
    let read = rig.bridge.external_version(&pointer).await.unwrap();
    assert_eq!(read.metadata_json, version.metadata_json);
    rig.bridge.rename_external(&one, &two).await.unwrap();
    assert!(rig.bridge.pointer_of(&one).await.unwrap().is_none());
    let full = rig.bridge.drop_namespace("lake").await.unwrap_err();
    assert!(matches!(full, Rejection::NamespaceNotEmpty(_)));
    // Neither rounds nor sweeps take it for anything of theirs.
    rig.bridge.round().await.unwrap();
    rig.bridge.keep_up().await.unwrap();
    assert!(rig.bridge.pointer_of(&two).await.unwrap().is_some());
    rig.bridge.drop_external(&two).await.unwrap();
    assert!(rig.world.store.keys().await.iter().any(|key| key.contains("external-")));
    let removed = rig.bridge.pointers().removed(10).await.unwrap();
    assert_eq!((removed.len(), removed[0].topic), (1, None));
    rig.bridge.drop_namespace("lake").await.unwrap();
    assert_eq!(rig.bridge.namespaces(None, 10).await.unwrap(), ["kafka"]);
}

#[tokio::test(start_paused = true)]
async fn a_staged_table_is_made_by_its_commit() {
    let rig = Rig::new().await;
    let name = TableName::new("kafka", "made");
    let staged = rig.bridge.create_external(name.clone(), new_table(), true).await.unwrap();
    assert!(staged.location.is_none() && rig.bridge.pointer_of(&name).await.unwrap().is_none());
    let metadata: TableMetadata = serde_json::from_slice(&staged.metadata_json[0]).unwrap();
    let updates = |location: &str| {
        vec![
            TableUpdate::AssignUuid { uuid: metadata.uuid() },
            TableUpdate::AddSchema { schema: metadata.current_schema().as_ref().clone() },
            TableUpdate::SetCurrentSchema { schema_id: -1 },
            TableUpdate::SetLocation { location: location.to_owned() },
        ]
    };
    let commit = |location: &str| TableCommit {
        name: name.clone(),
        requirements: vec![TableRequirement::NotExist],
        updates: updates(location),
    };
    let elsewhere = rig.bridge.commit_external(&[commit("memory:///elsewhere")]).await;
    assert!(matches!(elsewhere.unwrap_err(), Rejection::Invalid(_)));
    let made = rig.bridge.commit_external(&[commit(metadata.location())]).await.unwrap();
    assert!(made[0].location.is_some());
    let again = rig.bridge.commit_external(&[commit(metadata.location())]).await.unwrap_err();
    assert!(matches!(again, Rejection::AlreadyExists(_)));
}

fn creation(name: &str, ids: &[uuid::Uuid]) -> TableCommit {
    let mut updates: Vec<_> =
        ids.iter().map(|uuid| TableUpdate::AssignUuid { uuid: *uuid }).collect();
    updates.push(TableUpdate::AddSchema { schema: schema_of(optional(1, "id", Long)) });
    updates.push(TableUpdate::SetCurrentSchema { schema_id: -1 });
    let requirements = vec![TableRequirement::NotExist];
    TableCommit { name: TableName::new("kafka", name), requirements, updates }
}

#[tokio::test(start_paused = true)]
async fn a_uuid_is_given_to_one_table_only() {
    let rig = Rig::new().await;
    let [one, two] = [1, 2].map(uuid::Uuid::from_u128);
    rig.bridge.commit_external(&[creation("one", &[one])]).await.unwrap();
    let refused = async |commit: TableCommit| {
        let rejected = rig.bridge.commit_external(&[commit]).await.unwrap_err();
        assert!(matches!(rejected, Rejection::Invalid(_)), "{rejected:?}");
    };
    refused(creation("two", &[one])).await;
    refused(creation("two", &[two, one])).await;
    // A dropped table's files are to be deleted, whoever sends its making again.
    rig.bridge.drop_external(&TableName::new("kafka", "one")).await.unwrap();
    refused(creation("one", &[one])).await;
    rig.bridge.commit_external(&[creation("one", &[two])]).await.unwrap();
    // Two that do it at once have one winner.
    let pointer = |name: &str| {
        let id = uuid::Uuid::from_u128(3);
        let new = TablePointer::external(("kafka", name), id, "memory:///x".to_owned());
        [PointerMove { old: None, new }]
    };
    let moves = [pointer("three"), pointer("four")];
    let mut outcomes = Vec::new();
    for moves in &moves {
        let moved = rig.world.pointers.move_all(moves, Change::default()).await.unwrap();
        outcomes.push(moved);
    }
    assert_eq!(outcomes, [ChangeOutcome::Applied, ChangeOutcome::Rejected]);
}

#[tokio::test(start_paused = true)]
async fn a_new_tables_files_lie_in_its_folder() {
    let rig = Rig::new().await;
    for (key, is_staged) in [("write.data.path", false), ("write.metadata.path", true)] {
        let properties = BTreeMap::from([(key.to_owned(), "memory:///elsewhere".to_owned())]);
        let table = NewTable { properties, ..new_table() };
        let name = TableName::new("kafka", "made");
        let rejected = rig.bridge.create_external(name, table, is_staged).await.unwrap_err();
        assert!(matches!(rejected, Rejection::Invalid(_)), "{rejected:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn of_removed_tables_one_that_fails_keeps_no_other() {
    let rig = Rig::new().await;
    for name in ["one", "two"] {
        let name = TableName::new("kafka", name);
        rig.bridge.create_external(name.clone(), new_table(), false).await.unwrap();
        rig.bridge.drop_external(&name).await.unwrap();
    }
    let week_ms = i64::try_from(rig.bridge.config().delete_retention.as_millis()).unwrap();
    rig.world.node.set_clock_ms(SIMULATION_START_MS + week_ms + 1000);
    rig.world.pointers.faults.plan([Fault::Refused]);
    rig.bridge.delete_files().await.unwrap_err();
    assert_eq!(rig.world.pointers.removed(10).await.unwrap().len(), 1);
    rig.bridge.delete_files().await.unwrap();
    assert!(rig.world.pointers.removed(10).await.unwrap().is_empty());
    assert!(rig.world.store.keys().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn of_a_change_of_two_tables_all_is_made_or_nothing() {
    let rig = Rig::new().await;
    rig.bridge.create_namespace("lake", BTreeMap::new()).await.unwrap();
    made(&rig, "one").await;
    made(&rig, "two").await;
    let commit = |name: &str, schema_id: i32| TableCommit {
        name: TableName::new("lake", name),
        requirements: vec![TableRequirement::CurrentSchemaIdMatch { current_schema_id: schema_id }],
        updates: vec![TableUpdate::SetProperties {
            updates: [("by".to_owned(), "us".to_owned())].into_iter().collect(),
        }],
    };
    let before = rig.world.store.keys().await.len();
    let half = rig.bridge.commit_external(&[commit("one", 0), commit("two", 5)]).await;
    assert!(matches!(half.unwrap_err(), Rejection::Conflict(_)));
    assert_eq!(rig.world.store.keys().await.len(), before, "nothing is left of it");
    let both = rig.bridge.commit_external(&[commit("one", 0), commit("two", 0)]).await.unwrap();
    assert_eq!(both.len(), 2);
    for version in both {
        assert!(String::from_utf8_lossy(&joined(&version.metadata_json)).contains("\"by\":\"us\""));
    }
}
