//! What others may do to a table between our commits, what we then do, and how a stopped table goes
//! on.

use super::*;
use crate::commit::manifest::{Entries, encode_manifest, parse_manifest};
use crate::commit::prepare::partition_spec_id;
use crate::commit::snapshot::next_snapshot;
use floe_store::Counted;
use iceberg::spec::{ManifestFile, Operation, Snapshot, Summary, TableMetadataBuilder};

fn main_at(snapshot_id: i64) -> iceberg::spec::SnapshotReference {
    refs::branch(snapshot_id)
}

impl Rig {
    /// A version that somebody makes of the newest one.
    async fn foreign(&self, make: impl AsyncFnOnce(TableMetadataBuilder) -> TableMetadataBuilder) {
        let base = self.newest().await;
        let builder = base.metadata.clone().into_builder(None);
        let metadata = make(builder).await.build().unwrap().metadata;
        self.replace(&base, &metadata).await;
    }

    /// Somebody else's snapshot, which has offsets `0..until` in one file.
    async fn foreign_snapshot(
        &self,
        id: i64,
        parent: Option<i64>,
        until: i64,
        operation: Operation,
    ) -> Snapshot {
        let base = self.newest().await;
        let staged = self.staged(&self.committer(), base.pointer.table_id, 0, until);
        let sequence_number = base.metadata.next_sequence_number();
        let place = SnapshotPlace { id, parent, sequence_number };
        let (mut manifests, store) = (Vec::new(), Arc::new(self.world.store.clone()));
        for file in staged.files {
            put(store.clone(), file.key, vec![file.bytes.unwrap()]).await.unwrap();
            let key = base.place.manifest_key(&self.env);
            let url = base.place.url_of(&key).unwrap();
            let spec_id = partition_spec_id(&file.data_file);
            let shape = merge::manifest_shape(&base.metadata, spec_id).unwrap();
            let entries = Entries::Added(vec![file.data_file]);
            let (manifest, bytes) = encode_manifest(&url, place, shape, entries).await.unwrap();
            put(store.clone(), key, vec![bytes]).await.unwrap();
            manifests.push(manifest);
        }
        let key = base.place.manifest_list_key(&self.env, id);
        let url = base.place.url_of(&key).unwrap();
        let list = encode_list(&url, place, &manifests).await.unwrap();
        put(store, key, vec![list]).await.unwrap();
        let totals = [("total-records", until.to_string()), ("total-data-files", "1".to_owned())];
        let totals = totals.into_iter().map(|(key, value)| (key.to_owned(), value));
        let summary = Summary { operation, additional_properties: totals.collect() };
        Snapshot::builder()
            .with_snapshot_id(id)
            .with_parent_snapshot_id(parent)
            .with_sequence_number(sequence_number)
            .with_timestamp_ms(base.metadata.last_updated_ms() + 1)
            .with_manifest_list(url)
            .with_summary(summary)
            .with_schema_id(0)
            .build()
    }

    /// Somebody compacts the table, which has offsets `0..until`.
    async fn compact(&self, id: i64, until: i64) {
        let parent = self.newest().await.metadata.current_snapshot_id();
        let snapshot = self.foreign_snapshot(id, parent, until, Operation::Replace).await;
        self.foreign(async |builder| builder.set_branch_snapshot(snapshot, "main").unwrap()).await;
    }

    /// Somebody lets all snapshots go that no branch or tag names.
    async fn expire_all(&self) {
        let base = self.newest().await;
        let named: Vec<i64> = base.refs.values().map(|named| named.snapshot_id).collect();
        let ids = base.metadata.snapshots().map(|snapshot| snapshot.snapshot_id());
        let unnamed: Vec<i64> = ids.filter(|id| !named.contains(id)).collect();
        self.foreign(async |builder| builder.remove_snapshots(&unnamed)).await;
    }

    async fn roll_back_to(&self, snapshot_id: i64) {
        self.foreign(async |builder| builder.set_ref("main", main_at(snapshot_id)).unwrap()).await;
    }

    /// Somebody replaces the table by another with offsets `0..until`: `CREATE OR REPLACE`.
    async fn create_or_replace(&self, until: i64) {
        let snapshot = self.foreign_snapshot(77, None, until, Operation::Append).await;
        self.foreign(async |builder| {
            builder.remove_ref("main").set_branch_snapshot(snapshot, "main").unwrap()
        })
        .await;
    }

    async fn stopped(&self) -> Arc<LoadedTable> {
        let table = self.newest().await;
        assert!(table.stopped.is_some(), "it is not stopped");
        let before = self.world.store.keys().await;
        assert!(is_overtaken(self.append(&table, 0, 1).await));
        assert_eq!(self.world.store.keys().await, before, "a stopped table is not written");
        table
    }

    async fn resumed(&self, from: ResumeFrom) -> Arc<LoadedTable> {
        let stopped = self.stopped().await;
        let table = committed(self.committer().resume(stopped, from).await);
        assert_eq!(table.summary(RESUMED_KEY), Some(from.name()));
        let read = self.newest().await;
        assert_eq!((&read.stopped, &read.progress), (&None, &table.progress));
        table
    }
}

/// A table with offsets 0 to 19 that was rolled back to 0 to 9.
async fn rolled_back() -> Rig {
    let rig = Rig::new();
    let first = rig.create().await;
    committed(rig.append(&first, 10, 20).await);
    rig.roll_back_to(first.metadata.current_snapshot_id().unwrap()).await;
    rig
}

#[tokio::test(start_paused = true)]
async fn a_rolled_back_table_rewinds() {
    let rig = rolled_back().await;
    let table = rig.resumed(ResumeFrom::Rewind).await;
    assert_eq!(table.progress.next_offsets, [10]);
    let table = committed(rig.append(&table, 10, 25).await);
    assert_eq!(rig.offsets(&table).await, all(25));
    assert_eq!(table.counts.gap_offsets, 0);
}

#[tokio::test(start_paused = true)]
async fn a_rolled_back_table_goes_on_from_here() {
    let rig = rolled_back().await;
    let table = rig.resumed(ResumeFrom::Here).await;
    assert_eq!((table.progress.next_offsets[0], table.counts.gap_offsets), (20, 10));
    let gaps = table.summary("floe.gaps").unwrap();
    assert!(gaps.starts_with(r#"[{"partition":0,"from":10,"until":20,"why":"taken out"#), "{gaps}");
    let table = committed(rig.append(&table, 20, 25).await);
    assert_eq!(rig.offsets(&table).await, (0..10).chain(20..25).collect::<Vec<i64>>());
}

#[tokio::test(start_paused = true)]
async fn a_replaced_table_is_read_again_or_goes_on_from_here() {
    for from in [ResumeFrom::Rewind, ResumeFrom::Here] {
        let rig = Rig::new();
        let first = rig.create().await;
        committed(rig.append(&first, 10, 20).await);
        rig.create_or_replace(3).await;
        let reason = rig.newest().await.stopped.clone().unwrap();
        assert!(reason.starts_with("replaced"), "{reason}");
        let table = rig.resumed(from).await;
        let next = table.progress.next_offset(0);
        assert_eq!(next, if from == ResumeFrom::Rewind { 0 } else { 20 });
        let table = committed(rig.append(&table, next, 25).await);
        let offsets = rig.offsets(&table).await;
        assert_eq!(offsets.len(), if from == ResumeFrom::Rewind { 3 + 25 } else { 3 + 5 });
    }
}

#[tokio::test(start_paused = true)]
async fn a_running_table_is_not_resumed() {
    let rig = Rig::new();
    let table = rig.create().await;
    let refused = rig.committer().resume(table, ResumeFrom::Rewind).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
}

#[tokio::test(start_paused = true)]
async fn who_resumes_what_has_changed_is_overtaken() {
    let rig = rolled_back().await;
    let stopped = rig.stopped().await;
    rig.resumed(ResumeFrom::Here).await;
    assert!(is_overtaken(rig.committer().resume(stopped, ResumeFrom::Rewind).await));
    assert_eq!(rig.newest().await.progress.next_offsets, [20]);
}

#[tokio::test(start_paused = true)]
async fn a_table_without_our_columns_is_not_resumed() {
    let rig = Rig::new();
    rig.create().await;
    rig.create_or_replace(3).await;
    let fields =
        crate::schema::iceberg_schema(&Mapping::new()).unwrap().as_struct().fields().to_vec();
    let without_key = fields.into_iter().filter(|field| field.name != "_kafka_key");
    let schema = iceberg::spec::Schema::builder().with_fields(without_key).build().unwrap();
    rig.foreign(async |builder| builder.add_current_schema(schema).unwrap()).await;
    let stopped = rig.stopped().await;
    let refused = rig.committer().resume(stopped, ResumeFrom::Rewind).await.unwrap_err();
    assert!(refused.to_string().contains("_kafka_key"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_foreign_compaction_between_ours_stops_nothing() {
    let rig = Rig::new();
    let first = rig.create().await;
    let second = committed(rig.append(&first, 10, 20).await);
    rig.compact(7, 20).await;
    // A committer that does not know of it, and one that does.
    committed(rig.append(&second, 20, 30).await);
    let newest = rig.newest().await;
    assert_eq!((newest.stopped.as_ref(), newest.progress.next_offset(0)), (None, 30));
    rig.compact(8, 30).await;
    committed(rig.append(&rig.newest().await, 30, 31).await);
    assert_eq!(rig.offsets(rig.newest().await.as_ref()).await, all(31));
}

#[tokio::test(start_paused = true)]
async fn a_foreign_compaction_and_expiry_to_one_snapshot_stop_nothing() {
    let rig = Rig::new();
    let first = rig.create().await;
    committed(rig.append(&first, 10, 20).await);
    // Of two compactions the first is gone, and with it the way back to ours.
    rig.compact(7, 20).await;
    rig.compact(8, 20).await;
    rig.expire_all().await;
    let newest = rig.newest().await;
    assert_eq!(newest.metadata.snapshots().len(), 2, "main's and the tag's");
    assert_eq!((newest.stopped.as_ref(), newest.progress.next_offset(0)), (None, 20));
    let table = committed(rig.append(&newest, 20, 30).await);
    assert_eq!(rig.offsets(&table).await, all(30));
}

#[tokio::test(start_paused = true)]
async fn a_roll_back_whose_history_has_expired_is_no_compaction() {
    let rig = rolled_back().await;
    rig.compact(7, 10).await;
    rig.compact(8, 10).await;
    rig.expire_all().await;
    let stopped = rig.stopped().await;
    assert!(stopped.stopped.as_ref().unwrap().contains("expired"));
    let refused = rig.committer().resume(stopped, ResumeFrom::Rewind).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "nobody knows what would be doubled");
    assert_eq!(rig.resumed(ResumeFrom::Here).await.progress.next_offsets, [20]);
}

#[tokio::test(start_paused = true)]
async fn a_table_that_was_dropped_and_made_again_is_never_written() {
    let rig = Rig::new();
    let base = rig.create().await;
    // Another uuid, first with our properties and then without.
    let owner = Ownership { table: Uuid::from_u128(99), ..rig.owner() };
    let copied = empty_table(&owner, ("Orders", "orders"), base.place.url()).unwrap();
    rig.replace(&base, &copied).await;
    let stopped = rig.stopped().await;
    assert!(stopped.stopped.as_ref().unwrap().contains("uuid"), "{:?}", stopped.stopped);
    let refused = rig.committer().resume(stopped, ResumeFrom::Here).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Fenced);
    assert!(is_overtaken(rig.append(&base, 10, 20).await));
    let bare = [CLUSTER_PROPERTY, TOPIC_PROPERTY].map(str::to_owned);
    rig.foreign(async |builder| builder.remove_properties(&bare).unwrap()).await;
    assert!(rig.stopped().await.stopped.as_ref().unwrap().contains(CLUSTER_PROPERTY));
    let refused = rig.committer().replace(rig.newest().await, Removed::default(), Vec::new()).await;
    assert!(is_overtaken(refused));
}

#[tokio::test(start_paused = true)]
async fn a_tag_with_the_map_of_another_topic_is_no_place_to_go_on_from() {
    let rig = Rig::new();
    let base = rig.create().await;
    let other = Progress { topic: TopicId(Uuid::from_u128(0x71)), next_offsets: vec![500] };
    rig.foreign(async |builder| {
        let place = next_snapshot(Some(&base), 77);
        let properties = [(crate::progress::PROGRESS_KEY.to_owned(), other.pack())];
        let (operation, additional_properties) = (Operation::Append, properties.into());
        let snapshot = Snapshot::builder()
            .with_snapshot_id(place.id)
            .with_parent_snapshot_id(place.parent)
            .with_sequence_number(place.sequence_number)
            .with_timestamp_ms(base.metadata.last_updated_ms() + 1)
            .with_manifest_list(base.metadata.current_snapshot().unwrap().manifest_list())
            .with_summary(Summary { operation, additional_properties })
            .with_schema_id(base.metadata.current_schema_id())
            .build();
        builder.add_snapshot(snapshot).unwrap().set_ref(TAG, refs::tag(77, None)).unwrap()
    })
    .await;
    let stopped = rig.stopped().await;
    assert!(stopped.stopped.as_ref().unwrap().contains("of topic"), "{:?}", stopped.stopped);
    let refused = rig.committer().resume(stopped, ResumeFrom::Here).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert_eq!(rig.resumed(ResumeFrom::Rewind).await.progress, base.progress);
}

/// All data files of a table, and a file that can take their place.
async fn fold_of(rig: &Rig, table: &LoadedTable, until: i64) -> (Removed, Vec<StagedFile>) {
    let mut removed = Vec::new();
    for manifest in &table.manifests {
        let key = table.place.key_of(&manifest.manifest_path).unwrap();
        let bytes = table::get(&rig.world.store, &key).await.unwrap();
        for file in parse_manifest(manifest, &bytes).unwrap() {
            removed.push(file.data_file);
        }
    }
    let staged = rig.staged(&rig.committer(), table.pointer.table_id, 0, until);
    (removed.into_iter().collect(), staged.files)
}

#[tokio::test(start_paused = true)]
async fn a_fold_has_the_same_rows_whoever_commits_between() {
    let rig = Rig::new();
    let first = rig.create().await;
    let second = committed(rig.append(&first, 10, 20).await);
    let (removed, files) = fold_of(&rig, &second, 20).await;
    let added = files.len() as u64;
    committed(rig.append(&second, 20, 30).await);
    let folded = committed(rig.committer().replace(second.clone(), removed, files).await);
    assert_eq!(folded.progress.next_offsets, [30], "it carries the newest map");
    let current = folded.metadata.current_snapshot().unwrap();
    assert_eq!(current.summary().operation, Operation::Replace);
    assert_eq!(folded.metadata.snapshot_for_ref(TAG), folded.metadata.current_snapshot());
    let read = rig.newest().await;
    assert_eq!((&read.manifests, &read.metadata), (&folded.manifests, &folded.metadata));
    assert_eq!(rig.offsets(&read).await, all(30));
    assert_eq!(read.total("deleted-data-files"), 2);
    assert_eq!(read.total("added-data-files"), added);
    // A fold of files that are not there any more.
    let (removed, files) = fold_of(&rig, &second, 20).await;
    let before = rig.world.store.keys().await;
    assert!(is_overtaken(rig.committer().replace(read.clone(), removed, files).await));
    assert_eq!(rig.world.store.keys().await, before);
    let last = committed(rig.append(&read, 30, 31).await);
    assert_eq!(rig.offsets(&last).await, all(31));
    let has_files = |manifest: &ManifestFile| merge::has_files(manifest);
    assert!(last.manifests.iter().all(has_files), "manifests of deleted files are not carried on");
}

#[tokio::test(start_paused = true)]
async fn a_fold_whose_manifests_were_read_before_reads_none_in_its_commit() {
    let rig = Rig::new();
    let first = rig.create().await;
    let second = committed(rig.append(&first, 10, 20).await);
    let (mut removed, files) = fold_of(&rig, &second, 20).await;
    let counted = Counted::new(rig.env.clone(), Arc::new(rig.world.store.clone()));
    let counters = counted.counters();
    let store: Arc<dyn ObjectStore> = Arc::new(counted);
    removed.locate(&store, &second).await.unwrap();
    let reads = || counters.snapshot().get.requests;
    assert_eq!(reads(), 2, "its files are in two manifests");
    // Somebody commits between: a manifest that nobody has read, and need not read.
    let newest = committed(rig.append(&second, 20, 30).await);
    let pointers = Arc::new(rig.world.pointers.clone());
    let committer = Committer::new(rig.env.clone(), store, pointers, rig.world.cluster);
    let folded = committed(committer.replace(newest, removed, files).await);
    assert_eq!(reads(), 2);
    assert_eq!(rig.offsets(&folded).await, all(30));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Append,
    Fold,
    Resume,
}

/// Runs a commit until it has been polled so often; `None` if it has not ended then.
async fn polled<T>(work: impl Future<Output = T>, polls: u64) -> Option<T> {
    let mut work = std::pin::pin!(work);
    for _ in 0..polls {
        if let std::task::Poll::Ready(end) = futures::poll!(&mut work) {
            return Some(end);
        }
        tokio::task::yield_now().await;
    }
    None
}

impl Rig {
    async fn make(&self, step: Step, base: Arc<LoadedTable>) -> Result<CommitEnd> {
        match step {
            Step::Append => self.append(&base, 20, 30).await,
            Step::Fold => {
                let (removed, files) = fold_of(self, &base, 20).await;
                self.committer().replace(base, removed, files).await
            }
            Step::Resume => {
                let stopped = self.newest().await;
                self.committer().resume(stopped, ResumeFrom::Rewind).await
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_between_any_two_steps_loses_and_doubles_nothing() {
    for step in [Step::Append, Step::Fold, Step::Resume] {
        for polls in 1.. {
            assert!(polls < 1000, "the commit never ends");
            let rig = Rig::new();
            let first = rig.create().await;
            let base = committed(rig.append(&first, 10, 20).await);
            if matches!(step, Step::Resume) {
                rig.roll_back_to(first.metadata.current_snapshot_id().unwrap()).await;
            }
            let ended = Box::pin(polled(rig.make(step, base), polls)).await;
            // Whoever comes next finds the table as it was, or as it was to be.
            let mut newest = rig.newest().await;
            if newest.stopped.is_some() {
                assert!(matches!(step, Step::Resume) && ended.is_none());
                newest = rig.resumed(ResumeFrom::Rewind).await;
            }
            let next = newest.progress.next_offset(0);
            let last = committed(rig.append(&newest, next, 31).await);
            assert_eq!(rig.offsets(&last).await, all(31), "{step:?} after {polls} polls");
            if ended.is_some() {
                assert!(polls > 4, "{step:?} has more steps than {polls}");
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_others_have_said_of_mains_retention_stays() {
    let rig = Rig::new();
    let first = rig.create().await;
    let retention = iceberg::spec::SnapshotRetention::Branch {
        min_snapshots_to_keep: Some(7),
        max_snapshot_age_ms: Some(1000),
        max_ref_age_ms: None,
    };
    let id = first.metadata.current_snapshot_id().unwrap();
    let main = iceberg::spec::SnapshotReference::new(id, retention.clone());
    rig.foreign(async |builder| builder.set_ref("main", main).unwrap()).await;
    let table = committed(rig.append(&first, 10, 20).await);
    let read = rig.newest().await;
    assert_eq!((&table.metadata, &table.refs), (&read.metadata, &read.refs));
    assert_eq!(read.refs["main"].retention, retention);
    assert_eq!(read.refs["main"].snapshot_id, read.metadata.current_snapshot_id().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_table_rolled_back_to_an_hour_long_ago_has_the_tags_that_its_file_says() {
    const HOUR: Duration = Duration::from_secs(3600);
    let rig = Rig::new();
    let first = rig.create().await;
    rig.env.sleep(2 * HOUR).await;
    let second = committed(rig.append(&first, 10, 20).await);
    assert!(second.refs.keys().any(|name| name.starts_with("floe-hour-")));
    rig.roll_back_to(first.metadata.current_snapshot_id().unwrap()).await;
    rig.env.sleep(25 * HOUR).await;
    let resumed = rig.resumed(ResumeFrom::Rewind).await;
    let read = rig.newest().await;
    assert_eq!((&resumed.metadata, &resumed.refs), (&read.metadata, &read.refs));
}
