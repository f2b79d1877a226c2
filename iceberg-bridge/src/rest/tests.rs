mod outcomes;
mod server;

use super::{OAuth2Client, RestAuth, RestConfig};
use crate::commit::{LoadedTable, ResumeFrom, TAG};
use crate::tests::support::{TableRow, World};
use crate::{Bridge, BridgeConfig, FlushedTable, TableState};
use axum::http::StatusCode;
use floe_env::Env;
use floe_store::Secret;
use iceberg::spec::{Operation, Snapshot, SnapshotReference, SnapshotRetention, Summary};
use kfs::TopicId;
use server::{Fault, SLOW, Server, TIMEOUT, data_path, is_at};
use std::sync::Arc;
use std::time::Duration;

fn config(server: &Server, auth: RestAuth) -> RestConfig {
    RestConfig {
        uri: server.uri.clone(),
        warehouse: Some("s3://warehouse".to_owned()),
        auth,
        sets_location: true,
        has_tags: true,
        timeout: TIMEOUT,
    }
}

fn oauth2() -> RestAuth {
    RestAuth::OAuth2(OAuth2Client {
        id: "me".to_owned(),
        secret: Secret::new("s3cret&"),
        scope: "all".to_owned(),
        uri: None,
    })
}

/// A world, a catalog, a topic `t` with records, and a bridge between them.
struct Rig {
    world: World,
    server: Server,
    bridge: Bridge,
    topic: TopicId,
}

impl Rig {
    async fn new() -> Self {
        Self::with(RestAuth::None, |_| ()).await
    }

    async fn with(auth: RestAuth, change: impl FnOnce(&mut BridgeConfig)) -> Self {
        let (world, server) = (World::new(), Server::start().await);
        let topic = world.topic("t", 1).await;
        let bridge = world.bridge_with(Env::current(), |bridge| {
            bridge.rest = Some(config(&server, auth));
            change(bridge);
        });
        Self { world, server, bridge, topic }
    }

    /// Another broker's bridge, on the same stores and the same catalog.
    fn other_bridge(&self) -> Bridge {
        let rest = self.bridge.config().rest.clone();
        self.world.bridge_with(Env::current(), |bridge| bridge.rest = rest)
    }

    fn append(&self, numbers: std::ops::Range<i64>) {
        self.world.append(self.topic, 0, numbers);
    }

    async fn flush(&self) -> FlushedTable {
        self.bridge.flush(&["t".to_owned()]).await.unwrap().pop().unwrap()
    }

    /// Flushes, and fails where that does.
    async fn flushed(&self) -> FlushedTable {
        let flushed = self.flush().await;
        assert_eq!(flushed.error, None);
        flushed
    }

    async fn newest(&self) -> Arc<LoadedTable> {
        let worker = self.bridge.worker_named("kafka", "t").await.unwrap().unwrap();
        worker.refresh().await.unwrap().expect("the table is there")
    }

    /// The table's rows are the numbers below this.
    async fn has_rows(&self, count: i64) {
        let rows = self.world.rows(&*self.newest().await).await;
        let expected: Vec<TableRow> = (0..count).map(|n| (0, n, n.to_string())).collect();
        assert_eq!(rows, expected);
    }

    fn state(&self) -> (TableState, String) {
        let status = self.bridge.statuses().pop().expect("a table");
        (status.state, status.reason.unwrap_or_default())
    }
}

/// Adds a snapshot as others would: a `replace` that changes nothing.
fn foreign_snapshot(server: &Server, name: &str) -> i64 {
    let metadata = server.table(name).metadata;
    let parent = metadata.current_snapshot().expect("a snapshot").clone();
    let id = parent.snapshot_id() / 2 + 1;
    let summary = parent.summary().additional_properties.clone();
    let theirs = summary.into_iter().filter(|(key, _)| !key.starts_with("floe."));
    let added = Snapshot::builder()
        .with_snapshot_id(id)
        .with_parent_snapshot_id(Some(parent.snapshot_id()))
        .with_sequence_number(metadata.next_sequence_number())
        .with_timestamp_ms(metadata.last_updated_ms() + 1)
        .with_manifest_list(parent.manifest_list().to_owned())
        .with_summary(Summary {
            operation: Operation::Replace,
            additional_properties: theirs.collect(),
        })
        .with_schema_id(metadata.current_schema_id())
        .build();
    server.change(name, |builder| {
        let builder = builder.add_snapshot(added).unwrap();
        builder.set_ref("main", branch(id)).unwrap()
    });
    id
}

fn branch(snapshot_id: i64) -> SnapshotReference {
    let retention = SnapshotRetention::Branch {
        min_snapshots_to_keep: None,
        max_snapshot_age_ms: None,
        max_ref_age_ms: None,
    };
    SnapshotReference::new(snapshot_id, retention)
}

#[tokio::test]
async fn a_table_is_made_and_committed_to() {
    let rig = Rig::new().await;
    assert_eq!(rig.flushed().await.snapshot_id, None, "no table without a record");
    rig.append(0..5);
    let flushed = rig.flushed().await;
    assert_eq!((flushed.rows, flushed.cut.as_slice()), (5, &[5_i64][..]));
    rig.has_rows(5).await;
    let table = rig.server.table("t");
    assert_eq!(table.metadata.current_snapshot_id(), flushed.snapshot_id);
    assert_eq!(table.metadata.default_partition_spec_id(), 1);
    let tagged = table.metadata.snapshot_for_ref(TAG).unwrap();
    assert_eq!(Some(tagged.snapshot_id()), flushed.snapshot_id);
    let newest = rig.newest().await;
    assert!(is_at(&table, &newest.place));
    assert_eq!(data_path(&table), format!("{}/data", newest.place.url()));
    let commits = rig.server.inner.lock().commits;
    assert_eq!(rig.flushed().await, flushed, "nothing new");
    assert_eq!(rig.server.inner.lock().commits, commits);
    rig.append(5..8);
    rig.flushed().await;
    rig.has_rows(8).await;
    assert!(rig.world.store.keys().await.iter().all(|key| !key.ends_with("metadata.json")));
}

#[tokio::test]
async fn a_restart_goes_on_where_the_table_is() {
    let rig = Rig::new().await;
    rig.append(0..5);
    rig.flushed().await;
    rig.append(5..9);
    let other = rig.other_bridge();
    let flushed = other.flush(&["t".to_owned()]).await.unwrap().pop().unwrap();
    assert_eq!((flushed.error, flushed.rows), (None, 9));
    rig.has_rows(9).await;
    assert_eq!(rig.server.inner.lock().tables.len(), 1);
}

#[tokio::test]
async fn the_round_commits_after_the_interval_and_asks_no_more_than_it_must() {
    let rig = Rig::with(RestAuth::None, |config| config.lag_max = Duration::from_millis(600)).await;
    rig.append(0..3);
    rig.flushed().await;
    rig.append(3..6);
    let (env, before) = (Env::current(), rig.server.inner.lock().loads);
    for _ in 0..3 {
        rig.bridge.round().await.unwrap();
    }
    assert_eq!(rig.server.inner.lock().loads, before, "no request while nothing is due");
    for _ in 0..100 {
        rig.bridge.round().await.unwrap();
        if rig.server.table("t").metadata.snapshots().len() == 2 {
            break;
        }
        env.sleep(Duration::from_millis(50)).await;
    }
    rig.has_rows(6).await;
}

#[tokio::test]
async fn case_70_a_commit_is_never_made_twice_nor_lost() {
    let rig = Rig::new().await;
    rig.append(0..2);
    rig.flushed().await;
    let faults = [
        &[Fault::Unavailable][..],
        &[Fault::AppliedAndUnavailable],
        &[Fault::AppliedAndCut],
        &[Fault::AppliedAndSlow],
        &[Fault::Late],
        &[Fault::Foreign],
        &[Fault::Unavailable, Fault::AppliedAndCut],
        &[Fault::Unavailable, Fault::Foreign],
        &[Fault::Foreign, Fault::AppliedAndUnavailable],
        &[Fault::AppliedAndUnavailable, Fault::Foreign],
        &[Fault::Late, Fault::Late],
    ];
    let mut count = 2;
    for planned in faults {
        rig.server.plan(planned.iter().copied());
        rig.append(count..count + 2);
        count += 2;
        rig.flushed().await;
        rig.server.plan([]);
        // A request that came late has come by now.
        let is_late = planned.contains(&Fault::Late);
        Env::current().sleep(if is_late { SLOW } else { Duration::ZERO }).await;
        rig.has_rows(count).await;
    }
    assert_eq!(rig.state().0, TableState::Running);
}

#[tokio::test]
async fn a_catalog_that_is_away_loses_nothing() {
    let rig = Rig::new().await;
    rig.append(0..2);
    rig.flushed().await;
    rig.append(2..4);
    rig.server.plan([Fault::Unavailable; 6]);
    let error = rig.flush().await.error.unwrap();
    assert!(error.contains("503"), "{error}");
    assert_eq!(rig.state().0, TableState::Degraded);
    rig.server.plan([]);
    rig.flushed().await;
    rig.has_rows(4).await;
    rig.server.inner.lock().refusal = Some(StatusCode::FORBIDDEN);
    rig.append(4..5);
    let error = rig.flush().await.error.unwrap();
    assert!(error.contains("403 ForbiddenException: as planned"), "{error}");
    rig.server.inner.lock().refusal = None;
    rig.flushed().await;
    rig.has_rows(5).await;
}

#[tokio::test]
async fn two_brokers_commit_each_record_once() {
    let rig = Rig::new().await;
    let other = rig.other_bridge();
    for number in 0..6 {
        rig.append(number * 2..number * 2 + 2);
        let names = ["t".to_owned()];
        let (one, two) = futures::join!(rig.bridge.flush(&names), other.flush(&names));
        // Who was overtaken while the table was made tries again.
        let errors = [one, two].map(|flushed| flushed.unwrap().pop().unwrap().error);
        assert!(errors.iter().any(Option::is_none), "{errors:?}");
    }
    rig.flushed().await;
    rig.has_rows(12).await;
    assert_eq!(rig.server.inner.lock().tables.len(), 1);
}

#[tokio::test]
async fn a_bearer_token_is_sent_and_a_wrong_one_is_named() {
    let rig = Rig::with(RestAuth::Bearer(Secret::new("good")), |_| ()).await;
    rig.server.inner.lock().token = Some("good".to_owned());
    rig.append(0..2);
    rig.flushed().await;
    rig.server.inner.lock().token = Some("another".to_owned());
    rig.append(2..4);
    let error = rig.flush().await.error.unwrap();
    assert!(error.contains("401 NotAuthorizedException") && !error.contains("good"), "{error}");
    rig.server.inner.lock().token = Some("good".to_owned());
    rig.flushed().await;
    rig.has_rows(4).await;
}

#[tokio::test]
async fn tokens_are_renewed_before_they_expire_and_after_a_401() {
    let rig = Rig::with(oauth2(), |_| ()).await;
    rig.server.inner.lock().token = Some("nobody has it yet".to_owned());
    rig.append(0..2);
    rig.flushed().await;
    assert_eq!(rig.server.inner.lock().tokens_given, 1, "one token serves many requests");
    // The catalog has forgotten its tokens.
    rig.server.inner.lock().token = Some("forgotten".to_owned());
    rig.server.inner.lock().expires_in = Some(1);
    rig.append(2..4);
    rig.flushed().await;
    assert_eq!(rig.server.inner.lock().tokens_given, 2);
    // A commit that is refused so was not made, and is asked for again.
    rig.server.plan([Fault::Unauthorized]);
    rig.append(4..6);
    rig.flushed().await;
    let given = rig.server.inner.lock().tokens_given;
    assert!(given >= 3, "{given}");
    Env::current().sleep(Duration::from_millis(800)).await;
    rig.append(6..8);
    rig.flushed().await;
    assert!(rig.server.inner.lock().tokens_given > given, "renewed by its age alone");
    rig.has_rows(8).await;
}

#[tokio::test]
async fn case_80_a_token_endpoint_that_was_away_is_asked_again() {
    let rig = Rig::with(oauth2(), |_| ()).await;
    rig.append(0..2);
    rig.flushed().await;
    rig.server.inner.lock().token = Some("forgotten".to_owned());
    rig.server.inner.lock().are_tokens_away = true;
    rig.append(2..4);
    for _ in 0..2 {
        let error = rig.flush().await.error.unwrap();
        assert!(error.contains("no token") && error.contains("503"), "{error}");
    }
    rig.server.inner.lock().are_tokens_away = false;
    rig.flushed().await;
    rig.has_rows(4).await;
}

#[tokio::test]
async fn a_creation_whose_answer_was_lost_is_found_again() {
    for fault in [Fault::AppliedAndUnavailable, Fault::AppliedAndCut, Fault::AppliedAndSlow] {
        // Of the table, and of its second partition spec.
        for planned in [vec![fault], vec![Fault::None, fault]] {
            let rig = Rig::new().await;
            rig.server.plan(planned);
            rig.append(0..2);
            let mut flushed = rig.flush().await;
            if flushed.error.is_some() {
                flushed = rig.flushed().await;
            }
            assert_eq!(flushed.rows, 2);
            rig.has_rows(2).await;
            assert_eq!(rig.server.inner.lock().tables.len(), 1);
        }
    }
}

#[tokio::test]
async fn case_50_a_name_that_another_cluster_has_is_left_to_it() {
    let rig = Rig::new().await;
    rig.append(0..2);
    rig.flushed().await;
    // A cluster of its own, with a topic of the same name, at the same catalog.
    let other = World::new();
    let topic = other.topic("t", 1).await;
    other.append(topic, 0, 0..3);
    let rest = rig.bridge.config().rest.clone();
    let bridge = other.bridge_with(Env::current(), |bridge| bridge.rest = rest);
    let flushed = bridge.flush(&["t".to_owned()]).await.unwrap().pop().unwrap();
    let suffix = topic.0.simple().to_string();
    assert_eq!(flushed.name, format!("t_{}", &suffix[..8]));
    assert_eq!((flushed.error, flushed.rows), (None, 3));
    rig.has_rows(2).await;
}

#[tokio::test]
async fn a_namespace_that_may_not_be_made_is_named() {
    let rig = Rig::new().await;
    rig.server.inner.lock().refusal = Some(StatusCode::FORBIDDEN);
    rig.append(0..2);
    let error = rig.flush().await.error.unwrap();
    assert!(error.contains("there is no namespace kafka") && error.contains("403"), "{error}");
    rig.server.inner.lock().refusal = None;
    rig.server.inner.lock().namespaces.insert("kafka".to_owned());
    rig.flushed().await;
    rig.has_rows(2).await;
}

#[tokio::test]
async fn a_dropped_table_is_stopped_until_somebody_has_decided() {
    let rig = Rig::new().await;
    rig.append(0..3);
    rig.flushed().await;
    rig.server.inner.lock().tables.clear();
    rig.append(3..5);
    assert!(rig.flush().await.error.unwrap().contains("the catalog has no table kafka.t"));
    let (state, reason) = rig.state();
    assert_eq!(state, TableState::Stopped);
    assert!(reason.starts_with("dropped"), "{reason}");
    rig.bridge.round().await.unwrap();
    assert!(rig.server.inner.lock().tables.is_empty(), "it is not made again by itself");
    // Also not by another broker, or after a restart.
    let other = rig.other_bridge();
    assert!(other.flush(&["t".to_owned()]).await.unwrap()[0].error.is_some());
    assert!(rig.bridge.resume(("kafka", "t"), ResumeFrom::Here).await.is_err());
    rig.bridge.resume(("kafka", "t"), ResumeFrom::Rewind).await.unwrap().unwrap();
    rig.flushed().await;
    rig.has_rows(5).await;
    assert_eq!(rig.state().0, TableState::Running);
}

#[tokio::test]
async fn case_62_a_table_that_others_made_anew_is_theirs() {
    let rig = Rig::new().await;
    rig.append(0..3);
    rig.flushed().await;
    let theirs = {
        let mut inner = rig.server.inner.lock();
        let table = inner.tables.get_mut("t").unwrap();
        let builder = table.metadata.clone().into_builder(None);
        let id = uuid::Uuid::from_u128(0xbad);
        table.metadata = builder.assign_uuid(id).build().unwrap().metadata;
        table.version += 1;
        table.metadata.current_snapshot_id()
    };
    rig.append(3..5);
    let error = rig.flush().await.error.unwrap();
    assert!(error.contains("not ours: the table's uuid"), "{error}");
    assert_eq!(rig.server.table("t").metadata.current_snapshot_id(), theirs);
}

#[tokio::test]
async fn a_table_that_was_rolled_back_is_stopped_and_goes_on_as_told() {
    let rig = Rig::new().await;
    rig.append(0..3);
    let first = rig.flushed().await.snapshot_id.unwrap();
    rig.append(3..6);
    rig.flushed().await;
    rig.server.change("t", |builder| builder.set_ref("main", branch(first)).unwrap());
    rig.append(6..7);
    assert!(rig.flush().await.error.unwrap().contains("rolled back"));
    assert_eq!(rig.state().0, TableState::Stopped);
    rig.bridge.resume(("kafka", "t"), ResumeFrom::Rewind).await.unwrap().unwrap();
    rig.flushed().await;
    rig.has_rows(7).await;
}

#[tokio::test]
async fn a_column_that_others_renamed_while_a_commit_was_under_way_is_kept() {
    let rig = Rig::new().await;
    rig.append(0..3);
    rig.flushed().await;
    rig.server.change("t", |builder| {
        let schema = builder.build().unwrap().metadata;
        let fields = schema.current_schema().as_struct().fields().iter().map(|field| {
            let mut field = field.as_ref().clone();
            if field.name == "_kafka_key" {
                field.name = "the_key".to_owned();
            }
            Arc::new(field)
        });
        let renamed =
            iceberg::spec::Schema::builder().with_schema_id(1).with_fields(fields).build();
        let builder = schema.clone().into_builder(None).add_schema(renamed.unwrap()).unwrap();
        builder.set_current_schema(-1).unwrap()
    });
    rig.append(3..5);
    rig.flushed().await;
    rig.has_rows(5).await;
    let table = rig.server.table("t").metadata;
    assert!(table.current_schema().field_by_name("the_key").is_some());
}

#[tokio::test]
async fn a_catalog_without_tags_has_a_property_instead() {
    let rig = Rig::with(RestAuth::None, |config| {
        config.rest.as_mut().unwrap().has_tags = false;
    })
    .await;
    rig.server.inner.lock().refuses_tags = true;
    rig.append(0..3);
    let first = rig.flushed().await.snapshot_id.unwrap();
    rig.server.plan([Fault::AppliedAndUnavailable]);
    rig.append(3..5);
    rig.flushed().await;
    foreign_snapshot(&rig.server, "t");
    rig.append(5..6);
    rig.flushed().await;
    rig.has_rows(6).await;
    let metadata = rig.server.table("t").metadata;
    assert!(metadata.snapshot_for_ref(TAG).is_none());
    assert!(metadata.properties()["floe.tag"].contains(&rig.topic.to_string()));
    rig.server.change("t", |builder| builder.set_ref("main", branch(first)).unwrap());
    rig.append(6..7);
    assert!(rig.flush().await.error.unwrap().contains("rolled back"));
}

#[tokio::test]
async fn files_are_folded_and_snapshots_expire_there_too() {
    let rig = Rig::with(RestAuth::None, |config| {
        config.fold.fresh_files = 4;
        config.expiry.snapshots_max = 6;
    })
    .await;
    let (mut folds, mut snapshots_max) = (0, 0);
    for number in 0..14 {
        rig.append(number..number + 1);
        rig.flushed().await;
        // Of the answers of folds, some are lost.
        rig.server.plan((number % 2 == 0).then_some(Fault::AppliedAndUnavailable));
        rig.bridge.keep_up().await.unwrap();
        rig.server.plan([]);
        let metadata = rig.server.table("t").metadata;
        let newest = metadata.current_snapshot().unwrap();
        folds += i32::from(newest.summary().operation == Operation::Replace);
        snapshots_max = snapshots_max.max(metadata.snapshots().len());
    }
    assert!(folds >= 2 && (2..=7).contains(&snapshots_max), "{folds}, {snapshots_max}");
    rig.has_rows(14).await;
    assert!(rig.newest().await.counts.files < 9);
    assert_eq!(rig.state(), (TableState::Running, String::new()));
}

#[tokio::test]
async fn a_deleted_topics_table_stays() {
    let rig = Rig::new().await;
    rig.append(0..3);
    rig.flushed().await;
    let keys = rig.world.store.keys().await;
    rig.world.metadata.delete_topic(rig.topic).await.unwrap();
    rig.bridge.remove_table_of(rig.topic).await.unwrap();
    rig.bridge.round().await.unwrap();
    rig.bridge.keep_up().await.unwrap();
    assert!(rig.bridge.statuses().is_empty());
    assert_eq!(rig.server.table("t").metadata.snapshots().len(), 1);
    // Neither this bridge nor one on the embedded catalog takes its files for lost.
    let embedded = rig.world.bridge(Env::current());
    embedded.keep_up().await.unwrap();
    assert_eq!(rig.world.store.keys().await, keys);
}
