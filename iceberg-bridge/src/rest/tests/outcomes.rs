//! What others may still need is never deleted, whatever a catalog answers or does meanwhile; and a
//! table that has changed hands, name or age goes on, or says why it does not.

use super::server::{Fault, RENAMED, TIMEOUT};
use super::{Rig, branch, config, foreign_snapshot, oauth2};
use crate::commit::{ResumeFrom, TAG};
use crate::rest::RestAuth;
use crate::rest::http::Http;
use crate::tests::support::World;
use crate::{Bridge, TableState};
use axum::http::StatusCode;
use bytes::Bytes;
use floe_env::Env;
use floe_store::ObjectStore;
use iceberg::spec::{FormatVersion, Operation, SnapshotReference, SnapshotRetention};
use std::time::Duration;

async fn settle() {
    // Garbage is collected by a task of its own.
    Env::current().sleep(Duration::from_millis(100)).await;
}

/// All manifest lists of the table are there.
async fn has_all_lists(rig: &Rig) {
    settle().await;
    let place = rig.newest().await.place.clone();
    for snapshot in rig.server.table("t").metadata.snapshots() {
        let key = place.key_of(snapshot.manifest_list()).unwrap();
        assert!(rig.world.store.objects.get(&key).await.unwrap().is_some(), "{key} is gone");
    }
}

fn tag(snapshot_id: i64) -> SnapshotReference {
    SnapshotReference::new(snapshot_id, SnapshotRetention::Tag { max_ref_age_ms: None })
}

#[tokio::test]
async fn a_table_that_was_renamed_while_an_answer_was_lost_keeps_its_files() {
    let rig = Rig::new().await;
    rig.append(0..2);
    rig.flushed().await;
    rig.append(2..4);
    rig.server.plan([Fault::AppliedAndRenamed]);
    assert!(rig.flush().await.error.is_some());
    assert_eq!(rig.state().0, TableState::Stopped, "it has no such table any more");
    // Its rows are whole under the other name, and under the old one when it is back.
    rig.server.rename(RENAMED, "t");
    rig.append(4..5);
    rig.flushed().await;
    rig.has_rows(5).await;
    has_all_lists(&rig).await;
}

#[tokio::test]
async fn a_page_of_somebody_else_says_nothing_about_a_table() {
    let rig = Rig::new().await;
    rig.append(0..2);
    rig.flushed().await;
    rig.append(2..4);
    rig.server.plan([Fault::AppliedAndUnavailable]);
    let flushing = rig.flush();
    let breaking = async {
        // Once the commit is made.
        while rig.server.table("t").metadata.snapshots().len() < 2 {
            Env::current().sleep(Duration::from_millis(1)).await;
        }
        rig.server.inner.lock().is_behind_a_page = true;
    };
    let (flushed, ()) = futures::join!(flushing, breaking);
    assert!(flushed.error.is_some());
    let (state, reason) = rig.state();
    assert_eq!(state, TableState::Degraded, "{reason}");
    rig.append(4..5);
    assert!(rig.flush().await.error.unwrap().contains("404"));
    assert_eq!(rig.state().0, TableState::Degraded, "not stopped: nobody knows");
    rig.server.inner.lock().is_behind_a_page = false;
    rig.flushed().await;
    rig.has_rows(5).await;
}

#[tokio::test]
async fn a_refusal_of_what_was_made_costs_no_file() {
    let rig = Rig::new().await;
    rig.append(0..2);
    rig.flushed().await;
    rig.append(2..4);
    rig.server.plan([Fault::AppliedAndRepeated { is_last: false }]);
    rig.flushed().await;
    rig.has_rows(4).await;
    rig.append(4..6);
    rig.server.plan([Fault::AppliedAndRepeated { is_last: true }]);
    assert!(rig.flush().await.error.is_some(), "nobody can look it up");
    rig.server.inner.lock().is_behind_a_page = false;
    rig.flushed().await;
    rig.has_rows(6).await;
    has_all_lists(&rig).await;
}

#[tokio::test]
async fn a_fold_that_cannot_ask_the_catalog_leaves_nothing() {
    let rig = Rig::with(RestAuth::None, |config| config.fold.fresh_files = 4).await;
    for number in 0..4 {
        rig.append(number..number + 1);
        rig.flushed().await;
    }
    let before = rig.world.store.keys().await;
    rig.server.inner.lock().is_behind_a_page = true;
    let error = rig.bridge.keep_up().await.unwrap_err();
    assert!(error.to_string().contains("fold"), "{error}");
    assert_eq!(rig.world.store.keys().await, before);
    rig.server.inner.lock().is_behind_a_page = false;
    rig.has_rows(4).await;
}

#[tokio::test]
async fn an_answer_that_only_accepts_is_looked_up() {
    let rig = Rig::new().await;
    rig.append(0..2);
    rig.flushed().await;
    rig.append(2..4);
    rig.server.plan([Fault::AppliedAndAccepted]);
    rig.flushed().await;
    rig.has_rows(4).await;
    assert_eq!(rig.server.table("t").metadata.snapshots().len(), 2);
}

#[tokio::test]
async fn what_the_catalog_does_not_let_go_stays_whole() {
    let rig = Rig::with(RestAuth::None, |config| config.expiry.snapshots_max = 2).await;
    rig.server.inner.lock().keeps_snapshots = true;
    for number in 0..6 {
        rig.append(number..number + 1);
        rig.flushed().await;
    }
    assert_eq!(rig.server.table("t").metadata.snapshots().len(), 6);
    has_all_lists(&rig).await;
    rig.has_rows(6).await;
}

#[tokio::test]
async fn a_snapshot_that_others_have_tagged_since_is_kept_by_a_fold() {
    let rig = Rig::with(RestAuth::None, |config| {
        config.fold.fresh_files = 4;
        config.expiry.snapshots_max = 3;
    })
    .await;
    let mut folds = 0;
    for number in 0..14 {
        rig.append(number..number + 1);
        rig.flushed().await;
        let metadata = rig.server.table("t").metadata;
        let oldest = metadata.snapshots().min_by_key(|snapshot| snapshot.sequence_number());
        let oldest = oldest.unwrap().snapshot_id();
        rig.server.change("t", |builder| builder.set_ref("audit", tag(oldest)).unwrap());
        rig.bridge.keep_up().await.unwrap();
        let metadata = rig.server.table("t").metadata;
        let newest = metadata.current_snapshot().unwrap();
        folds += i32::from(newest.summary().operation == Operation::Replace);
        let audit = metadata.snapshot_for_ref("audit").map(|snapshot| snapshot.snapshot_id());
        assert_eq!(audit, Some(oldest));
        has_all_lists(&rig).await;
        rig.server.change("t", |builder| builder.remove_ref("audit"));
    }
    assert!(folds >= 2, "{folds}");
    rig.has_rows(14).await;
}

/// Another broker's bridge, which keeps tags or does not.
fn with_tags(rig: &Rig, has_tags: bool) -> Bridge {
    let mut rest = rig.bridge.config().rest.clone().unwrap();
    rest.has_tags = has_tags;
    rig.world.bridge_with(Env::current(), |bridge| bridge.rest = Some(rest))
}

#[tokio::test]
async fn tags_may_be_switched_off_and_on_again() {
    let rig = Rig::new().await;
    let mut count = 0;
    for has_tags in [true, false, true, false] {
        for _ in 0..2 {
            // Each by a broker that has just started.
            let bridge = with_tags(&rig, has_tags);
            rig.append(count..count + 2);
            count += 2;
            let flushed = bridge.flush(&["t".to_owned()]).await.unwrap().pop().unwrap();
            assert_eq!(flushed.error, None);
            foreign_snapshot(&rig.server, "t");
        }
        let metadata = rig.server.table("t").metadata;
        let has = (metadata.snapshot_for_ref(TAG), metadata.properties().get("floe.tag"));
        assert_eq!((has.0.is_some(), has.1.is_some()), (has_tags, !has_tags));
    }
    rig.has_rows(count).await;
}

#[tokio::test]
async fn a_catalog_that_has_gone_back_to_a_backup_is_followed() {
    let rig = Rig::new().await;
    rig.append(0..3);
    rig.flushed().await;
    let backup = rig.server.table("t");
    for count in [4, 5, 6] {
        rig.append(count - 1..count);
        rig.flushed().await;
    }
    let mut restored = backup;
    restored.version = 1000;
    rig.server.inner.lock().tables.insert("t".to_owned(), restored);
    rig.append(6..7);
    rig.flushed().await;
    rig.has_rows(7).await;
}

#[tokio::test]
async fn a_flush_finds_the_topic_that_is_there_among_those_that_had_the_name() {
    let rig = Rig::new().await;
    let mut topic = rig.topic;
    for count in 1..8_u64 {
        let numbers = 0..i64::try_from(count).unwrap();
        rig.world.append(topic, 0, numbers);
        let flushed = rig.flushed().await;
        assert_eq!((flushed.name.as_str(), flushed.rows), ("t", count));
        rig.world.metadata.delete_topic(topic).await.unwrap();
        rig.world.log.remove_topic(topic);
        rig.server.inner.lock().tables.clear();
        let names = ["t".to_owned()];
        assert!(rig.bridge.flush(&names).await.is_err(), "no topic has the name");
        topic = rig.world.topic("t", 1).await;
    }
}

#[tokio::test]
async fn the_copy_of_another_catalogs_progress_is_removed_before_the_table_is_made() {
    let rig = Rig::new().await;
    let metadata = &rig.world.metadata;
    let copy = || async { metadata.table_progress_of(&[rig.topic]).await.unwrap().pop().unwrap() };
    let old = Some(Bytes::from_static(b"of the catalog before"));
    metadata.set_table_progress(rig.topic, old).await.unwrap();
    rig.append(0..2);
    rig.server.inner.lock().refusal = Some(StatusCode::FORBIDDEN);
    rig.bridge.round().await.unwrap();
    assert_eq!(copy().await, None, "no table has these records");
    rig.server.inner.lock().refusal = None;
    rig.flushed().await;
    rig.bridge.round().await.unwrap();
    assert!(copy().await.is_some());
}

#[tokio::test]
async fn a_round_does_not_ask_a_silent_catalog_about_every_table() {
    let (world, server) = (World::new(), super::Server::start().await);
    let rest = config(&server, RestAuth::None);
    let bridge = || world.bridge_with(Env::current(), |bridge| bridge.rest = Some(rest.clone()));
    let mut names = Vec::new();
    for number in 0..50 {
        let name = format!("t{number}");
        let topic = world.topic(&name, 1).await;
        world.append(topic, 0, 0..1);
        names.push(name);
    }
    let flushed = bridge().flush(&names).await.unwrap();
    assert!(flushed.iter().all(|table| table.error.is_none()));
    {
        let mut inner = server.inner.lock();
        (inner.is_silent, inner.loads) = (true, 0);
    }
    let restarted = bridge();
    assert!(restarted.round().await.is_err());
    let loads = server.inner.lock().loads;
    assert!((1..50).contains(&loads), "{loads}");
    let degraded = |state: &crate::TableStatus| state.state == TableState::Degraded;
    assert!(restarted.statuses().iter().all(degraded), "and every table says so");
    server.inner.lock().is_silent = false;
    restarted.round().await.unwrap();
    let running = |state: &crate::TableStatus| state.state == TableState::Running;
    assert!(restarted.statuses().iter().all(running));
}

#[tokio::test]
async fn the_folder_of_a_table_that_was_made_anew_is_swept_by_nobody() {
    let rig = Rig::new().await;
    rig.append(0..3);
    rig.flushed().await;
    let keys = rig.world.store.keys().await;
    // Perhaps it is there under another name.
    rig.server.inner.lock().tables.clear();
    rig.append(3..4);
    assert!(rig.flush().await.error.is_some());
    rig.bridge.resume(("kafka", "t"), ResumeFrom::Rewind).await.unwrap().unwrap();
    rig.flushed().await;
    let embedded = rig.world.bridge(Env::current());
    embedded.look("t").await.unwrap().expect("a table");
    for _ in 0..10 {
        embedded.keep_up().await.unwrap();
    }
    let left = rig.world.store.keys().await;
    assert!(keys.iter().all(|key| left.contains(key)), "{left:?}");
}

#[tokio::test]
async fn a_prefix_is_sent_as_the_catalog_writes_it() {
    let rig = Rig::new().await;
    let http = Http::new(Env::current(), config(&rig.server, RestAuth::None));
    let url = http.url("arn%3Aaws%3As3tables%2Fb", &["namespaces", "a b", "tables"], &[]);
    let path = url.unwrap().path().to_owned();
    assert_eq!(path, "/catalog/v1/arn%3Aaws%3As3tables%2Fb/namespaces/a%20b/tables");
    assert_eq!(http.url("", &["config"], &[]).unwrap().path(), "/catalog/v1/config");
    assert!(http.url("a?b", &["config"], &[]).is_err());
    let url = http.url("", &["config"], &[("warehouse", "a b+c/d")]).unwrap();
    assert_eq!(url.query(), Some("warehouse=a%20b%2Bc%2Fd"));
}

#[tokio::test]
async fn a_rolled_back_main_is_seen_after_a_lost_answer_too() {
    let rig = Rig::new().await;
    rig.append(0..3);
    let first = rig.flushed().await.snapshot_id.unwrap();
    rig.append(3..6);
    rig.flushed().await;
    rig.append(6..8);
    rig.server.change("t", |builder| builder.set_ref("main", branch(first)).unwrap());
    rig.server.plan([Fault::Unavailable, Fault::Late]);
    assert!(rig.flush().await.error.unwrap().contains("rolled back"));
    rig.bridge.resume(("kafka", "t"), ResumeFrom::Rewind).await.unwrap().unwrap();
    rig.flushed().await;
    rig.has_rows(8).await;
}

#[tokio::test]
async fn a_table_that_has_more_than_a_log_put_back_from_a_backup_is_stopped() {
    let rig = Rig::new().await;
    rig.append(0..10);
    rig.flushed().await;
    let names = ["t".to_owned()];
    // The log as it was when it had six records, which is what `floe restore` notes.
    rig.world.log.remove_topic(rig.topic);
    rig.world.log.add_topic(rig.topic, 1);
    rig.append(0..6);
    let catalog = rig.bridge.rest().unwrap();
    catalog.note_log_ends(rig.topic, Some(vec![6])).await.unwrap();
    rig.append(100..110);
    for bridge in [rig.other_bridge(), rig.other_bridge()] {
        bridge.round().await.unwrap();
        let status = bridge.statuses().pop().unwrap();
        assert_eq!(status.state, TableState::Stopped);
        assert!(status.reason.unwrap().starts_with("ahead: "));
        let flushed = bridge.flush(&names).await.unwrap().pop().unwrap();
        assert!(flushed.error.unwrap().contains("ended at 6, and the table has it up to 10"));
        assert!(bridge.resume(("kafka", "t"), ResumeFrom::Here).await.is_err());
    }
    let bridge = rig.other_bridge();
    bridge.resume(("kafka", "t"), ResumeFrom::Rewind).await.unwrap().unwrap();
    let flushed = bridge.flush(&names).await.unwrap().pop().unwrap();
    assert_eq!((flushed.error, flushed.rows), (None, 20), "those that are lost stay in the table");
    let rows = rig.world.rows(&*rig.newest().await).await;
    assert!((100..110).all(|n| rows.contains(&(0, n - 94, n.to_string()))), "{rows:?}");
    assert_eq!(rig.other_bridge().flush(&names).await.unwrap()[0].error, None);
}

#[tokio::test]
async fn a_restore_that_lost_nothing_stops_no_table() {
    let rig = Rig::new().await;
    rig.append(0..4);
    rig.flushed().await;
    let catalog = rig.bridge.rest().unwrap();
    catalog.note_log_ends(rig.topic, Some(vec![4])).await.unwrap();
    rig.append(4..9);
    let other = rig.other_bridge();
    let flushed = other.flush(&["t".to_owned()]).await.unwrap().pop().unwrap();
    assert_eq!((flushed.error, flushed.rows), (None, 9));
    assert_eq!(catalog.log_ends(rig.topic).await.unwrap(), None, "it is settled");
}

#[tokio::test]
async fn a_table_that_others_have_upgraded_is_stopped() {
    let rig = Rig::new().await;
    rig.append(0..3);
    rig.flushed().await;
    rig.server.change("t", |builder| builder.upgrade_format_version(FormatVersion::V3).unwrap());
    rig.append(3..5);
    assert!(rig.flush().await.error.unwrap().contains("upgraded: its format version is v3"));
    let (state, reason) = rig.state();
    assert_eq!(state, TableState::Stopped, "{reason}");
}

#[tokio::test]
async fn a_silent_token_endpoint_is_waited_for_once_by_all() {
    let rig = Rig::new().await;
    rig.server.inner.lock().are_tokens_silent = true;
    let http = Http::new(Env::current(), config(&rig.server, oauth2()));
    let url = http.url("", &["config"], &[]).unwrap();
    let began = Env::current().monotonic();
    let asking: Vec<_> = (0..10).map(|_| http.read(url.clone())).collect();
    let answers = futures::future::join_all(asking).await;
    assert!(answers.iter().all(|answer| answer.as_ref().is_err()), "nobody has a token");
    let took = Env::current().monotonic() - began;
    assert!(took < TIMEOUT * 3, "{took:?}");
}

#[tokio::test]
async fn what_a_commit_let_go_is_deleted_also_where_its_answer_was_lost() {
    let rig = Rig::with(RestAuth::None, |config| config.expiry.snapshots_max = 2).await;
    for number in 0..6 {
        rig.append(number..number + 1);
        rig.server.plan((number > 0).then_some(Fault::AppliedAndUnavailable));
        rig.flushed().await;
        settle().await;
    }
    let keys = rig.world.store.keys().await;
    let lists = keys.iter().filter(|key| key.contains("/metadata/snap-")).count();
    assert_eq!(lists, rig.server.table("t").metadata.snapshots().len(), "{keys:?}");
    rig.has_rows(6).await;
}
