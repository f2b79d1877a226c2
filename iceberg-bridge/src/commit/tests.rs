use super::encoded::EncodedMetadata;
use super::manifest::SnapshotPlace;
use super::merge::SMALL_MANIFESTS_MAX;
use super::refs::Refs;
use super::snapshot::{Addition, Ownership, Totals, Version, empty_table, next_version};
use super::*;
use crate::encode::{Encoder, EncoderConfig};
use crate::files::data_file;
use crate::mapping::Mapping;
use crate::progress::Progress;
use crate::tests::support::{Fault, World, numbered_batch};
use bytes::Bytes;
use floe_env::simulated::Node;
use floe_metadata::facts::ChangeOutcome;
use iceberg::spec::TableMetadata;
use kfs::TopicId;
use outcome::MOVES_MAX;
use std::collections::BTreeMap;
use std::time::Duration;
use uuid::Uuid;

mod walk;

const TOPIC: TopicId = TopicId(Uuid::from_u128(0x70));

struct Rig {
    world: World,
    env: Env,
}

impl Rig {
    fn new() -> Self {
        let world = World::new();
        world.pretend_topic(TOPIC);
        Self { world, env: Env::simulated(Node::new(2)) }
    }

    fn committer(&self) -> Committer {
        let (store, pointers) =
            (Arc::new(self.world.store.clone()), Arc::new(self.world.pointers.clone()));
        Committer::new(self.env.clone(), store, pointers, self.world.cluster)
    }

    fn owner(&self) -> Ownership {
        let table = self.env.uuid();
        Ownership { cluster: self.world.cluster, topic: TOPIC, table }
    }

    /// Offsets `from..until` of partition 0; values are offsets.
    fn staged(&self, committer: &Committer, table: Uuid, from: i64, until: i64) -> Staged {
        let place = committer.place(TOPIC, table);
        let mut batch = numbered_batch(from..until).to_vec();
        kfs::set_base_offset(&mut batch, from);
        let mut encoder = Encoder::new(&EncoderConfig::default(), Mapping::new()).unwrap();
        encoder.append(0, &[Bytes::from(batch)], from, until).unwrap();
        let files = encoder.finish_files().unwrap().into_iter().map(|file| {
            let key = place.data_key(&self.env);
            let data_file = data_file(&file, place.url_of(&key).unwrap()).unwrap();
            StagedFile { data_file, key, bytes: Some(file.bytes) }
        });
        let map = |next| Progress {
            topic: TOPIC,
            next_offsets: if next == 0 { Vec::new() } else { vec![next] },
        };
        let (from_mapping, mapping) = (Mapping::new(), encoder.mapping().clone());
        Staged {
            from: map(from),
            to: map(until),
            from_mapping,
            mapping,
            files: files.collect(),
            gaps: Vec::new(),
            counts: encoder.counts(),
            may_be_named: false,
        }
    }

    async fn create(&self) -> Arc<LoadedTable> {
        let (committer, owner) = (self.committer(), self.owner());
        let staged = self.staged(&committer, owner.table, 0, 10);
        committed(committer.create("kafka", "Orders", owner, staged).await)
    }

    async fn append(&self, base: &Arc<LoadedTable>, from: i64, until: i64) -> Result<CommitEnd> {
        let committer = self.committer();
        let staged = self.staged(&committer, base.pointer.table_id, from, until);
        committer.append(base.clone(), staged).await
    }

    async fn newest(&self) -> Arc<LoadedTable> {
        Arc::new(self.committer().load(TOPIC).await.unwrap().unwrap())
    }

    async fn offsets(&self, table: &LoadedTable) -> Vec<i64> {
        self.world.rows(table).await.into_iter().map(|row| row.1).collect()
    }

    /// Puts a version by somebody else in place.
    async fn replace(&self, base: &LoadedTable, metadata: &TableMetadata) {
        let key = base.place.metadata_key(&self.env, 1000, is_compressed(metadata));
        let (_, file) = metadata_file(metadata).unwrap();
        put(Arc::new(self.world.store.clone()), key.clone(), vec![file]).await.unwrap();
        let pointer = base.pointer.moved(base.place.url_of(&key).unwrap());
        let moved = self.world.pointers.swap(&base.pointer, &pointer).await.unwrap();
        assert_eq!(moved, ChangeOutcome::Applied);
    }
}

fn committed(end: Result<CommitEnd>) -> Arc<LoadedTable> {
    match end.unwrap() {
        CommitEnd::Committed(table) => table,
        CommitEnd::Overtaken => panic!("overtaken"),
    }
}

fn is_overtaken(end: Result<CommitEnd>) -> bool {
    matches!(end.unwrap(), CommitEnd::Overtaken)
}

fn all(until: i64) -> Vec<i64> {
    (0..until).collect()
}

#[tokio::test(start_paused = true)]
async fn a_created_table_is_what_the_store_has() {
    let rig = Rig::new();
    let made = rig.create().await;
    let read = rig.newest().await;
    assert_eq!((&made.pointer, &made.progress), (&read.pointer, &read.progress));
    assert_eq!(made.metadata, read.metadata);
    assert_eq!(made.manifests, read.manifests);
    assert_eq!(read.pointer.name, "orders");
    assert_eq!(read.stopped, None);
    assert_eq!(read.metadata.uuid(), read.pointer.table_id);
    assert_eq!(read.metadata.default_partition_spec_id(), 1);
    assert_eq!(read.metadata.partition_specs_iter().len(), 2);
    let age_ms = rig.env.now_ms() - read.metadata.last_updated_ms();
    assert_eq!(age_ms, super::snapshot::BACKDATED_MS, "a look's own query must see it");
    let next = committed(rig.append(&made, 10, 15).await);
    let read = rig.newest().await;
    assert_eq!((&next.metadata, &next.manifests), (&read.metadata, &read.manifests));
    assert_eq!(rig.offsets(&read).await, all(15));
    assert_eq!(read.metadata.snapshot_for_ref(TAG), read.metadata.current_snapshot());
    assert_eq!(read.metadata.current_snapshot().unwrap().sequence_number(), 2);
}

#[tokio::test(start_paused = true)]
async fn of_two_committers_one_is_overtaken_and_leaves_nothing() {
    let rig = Rig::new();
    let base = rig.create().await;
    committed(rig.append(&base, 10, 20).await);
    let before = rig.world.store.keys().await;
    assert!(is_overtaken(rig.append(&base, 10, 25).await));
    assert_eq!(rig.world.store.keys().await, before);
    assert_eq!(rig.offsets(rig.newest().await.as_ref()).await, all(20));
}

#[tokio::test(start_paused = true)]
async fn of_two_creators_one_is_overtaken() {
    let rig = Rig::new();
    rig.create().await;
    let before = rig.world.store.keys().await;
    let (committer, owner) = (rig.committer(), rig.owner());
    let staged = rig.staged(&committer, owner.table, 0, 12);
    assert!(is_overtaken(committer.create("kafka", "Orders", owner, staged).await));
    assert_eq!(rig.world.store.keys().await, before);
    assert_eq!(rig.offsets(rig.newest().await.as_ref()).await, all(10));
}

#[tokio::test(start_paused = true)]
async fn another_topic_of_the_same_table_name_gets_a_suffix() {
    let rig = Rig::new();
    rig.create().await;
    let (committer, other) = (rig.committer(), TopicId(Uuid::from_u128(0x71 << 96)));
    rig.world.pretend_topic(other);
    let owner = Ownership { topic: other, ..rig.owner() };
    let from = Progress::start(other);
    let to = Progress { topic: other, next_offsets: vec![1] };
    let (from_mapping, mapping) = (Mapping::new(), Mapping::new());
    let (files, gaps, counts) = (Vec::new(), Vec::new(), DecodeCounts::default());
    let may_be_named = false;
    let staged = Staged { from, to, from_mapping, mapping, files, gaps, counts, may_be_named };
    let table = committed(committer.create("kafka", "ORDERS", owner, staged).await);
    assert_eq!(table.pointer.name, "orders_00000071");
}

#[tokio::test(start_paused = true)]
async fn a_change_that_keeps_progress_is_no_obstacle() {
    let rig = Rig::new();
    let base = rig.create().await;
    let builder = base.metadata.clone().into_builder(None);
    let properties = [("by".to_owned(), "somebody".to_owned())].into_iter().collect();
    let changed = builder.set_properties(properties).unwrap().build().unwrap().metadata;
    rig.replace(&base, &changed).await;
    committed(rig.append(&base, 10, 20).await);
    let newest = rig.newest().await;
    assert_eq!(newest.metadata.properties()["by"], "somebody");
    assert_eq!(rig.offsets(&newest).await, all(20));
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_doubles_nothing() {
    for lost in 1..4 {
        let rig = Rig::new();
        rig.world.pointers.faults.plan(vec![Fault::AnswerLost; lost]);
        let base = rig.create().await;
        rig.world.pointers.faults.plan(vec![Fault::AnswerLost; lost]);
        committed(rig.append(&base, 10, 20).await);
        assert_eq!(rig.offsets(rig.newest().await.as_ref()).await, all(20));
    }
}

#[tokio::test(start_paused = true)]
async fn a_move_that_never_arrives_changes_nothing() {
    let rig = Rig::new();
    let base = rig.create().await;
    rig.world.pointers.faults.plan([Fault::NeverArrived; MOVES_MAX as usize]);
    let error = rig.append(&base, 10, 20).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome);
    let newest = rig.newest().await;
    assert_eq!((&newest.pointer, &newest.progress), (&base.pointer, &base.progress));
    committed(rig.append(&newest, 10, 20).await);
    assert_eq!(rig.offsets(rig.newest().await.as_ref()).await, all(20));
}

#[tokio::test(start_paused = true)]
async fn a_refused_move_leaves_nothing() {
    let rig = Rig::new();
    let base = rig.create().await;
    let before = rig.world.store.keys().await;
    rig.world.pointers.faults.plan([Fault::Refused]);
    let error = rig.append(&base, 10, 20).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(rig.world.store.keys().await, before);
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_may_have_worked_is_never_said_to_have_failed() {
    let rig = Rig::new();
    let base = rig.create().await;
    rig.world.pointers.faults.plan([Fault::AnswerLost]);
    rig.world.pointers.read_faults.plan([Fault::Refused]);
    let error = rig.append(&base, 10, 20).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome);
    assert_eq!(rig.offsets(rig.newest().await.as_ref()).await, all(20), "its files are there");
    // Somebody else was certainly faster: the attempt has failed, and leaves nothing.
    let before = rig.world.store.keys().await;
    rig.world.pointers.read_faults.plan([Fault::Refused]);
    let error = rig.append(&base, 10, 20).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(rig.world.store.keys().await, before);
}

#[tokio::test(start_paused = true)]
async fn a_put_that_fails_makes_nothing_visible_and_leaves_nothing() {
    let rig = Rig::new();
    let base = rig.create().await;
    let before = rig.world.store.keys().await;
    for fault in [Fault::Refused, Fault::NeverArrived] {
        for at in 0..4 {
            let mut faults = vec![Fault::None; at];
            faults.extend([fault; 20]);
            rig.world.store.put_faults.plan(faults);
            let error = rig.append(&base, 10, 20).await.unwrap_err();
            assert!(error.is_transient(), "{error}");
            rig.world.store.put_faults.plan([]);
            assert_eq!(rig.newest().await.pointer, base.pointer);
            assert_eq!(rig.world.store.keys().await, before, "{fault:?} at {at}");
        }
    }
    rig.world.store.put_faults.plan([Fault::AnswerLost; 4]);
    committed(rig.append(&base, 10, 20).await);
    assert_eq!(rig.offsets(rig.newest().await.as_ref()).await, all(20));
}

#[tokio::test(start_paused = true)]
async fn a_rolled_back_table_is_stopped() {
    let rig = Rig::new();
    let first = rig.create().await;
    let second = committed(rig.append(&first, 10, 20).await);
    let first_snapshot = first.metadata.current_snapshot_id().unwrap();
    let retention = iceberg::spec::SnapshotRetention::Branch {
        min_snapshots_to_keep: None,
        max_snapshot_age_ms: None,
        max_ref_age_ms: None,
    };
    let to_first = iceberg::spec::SnapshotReference::new(first_snapshot, retention);
    let builder = second.metadata.clone().into_builder(None);
    let rolled_back = builder.set_ref("main", to_first).unwrap().build().unwrap().metadata;
    rig.replace(&second, &rolled_back).await;
    assert!(is_overtaken(rig.append(&second, 20, 30).await));
    let newest = rig.newest().await;
    assert!(newest.stopped.as_ref().unwrap().starts_with("rolled back"), "{:?}", newest.stopped);
    assert!(is_overtaken(rig.append(&newest, 20, 30).await));
}

#[tokio::test(start_paused = true)]
async fn a_table_that_is_not_ours_is_stopped() {
    let rig = Rig::new();
    let base = rig.create().await;
    let builder = base.metadata.clone().into_builder(None);
    let id = Uuid::from_u128(5).to_string();
    let foreign = [(TOPIC_PROPERTY.to_owned(), id)].into_iter().collect();
    let foreign = builder.set_properties(foreign).unwrap().build().unwrap().metadata;
    rig.replace(&base, &foreign).await;
    let newest = rig.newest().await;
    assert!(newest.stopped.as_ref().unwrap().starts_with("not ours"));
    let owner = Ownership { table: base.pointer.table_id, ..rig.owner() };
    let empty = empty_table(&owner, ("Orders", "orders"), base.place.url()).unwrap();
    rig.replace(&newest, &empty).await;
    assert!(rig.newest().await.stopped.as_ref().unwrap().starts_with("replaced"));
    assert!(is_overtaken(rig.append(&base, 10, 20).await));
}

#[tokio::test(start_paused = true)]
async fn many_small_manifests_become_one() {
    let rig = Rig::new();
    let mut table = rig.create().await;
    let rounds = i64::try_from(SMALL_MANIFESTS_MAX).unwrap() + 20;
    for at in 10..10 + rounds {
        table = committed(rig.append(&table, at, at + 1).await);
        assert!(table.manifests.len() <= SMALL_MANIFESTS_MAX + 2);
    }
    assert!(table.manifests.len() < 30, "{}", table.manifests.len());
    let read = rig.newest().await;
    assert_eq!(read.manifests, table.manifests);
    assert_eq!(rig.offsets(&read).await, all(10 + rounds));
    let merged = read.manifests.iter().find(|manifest| manifest.existing_files_count > Some(90));
    assert_eq!(merged.unwrap().min_sequence_number, 1);
}

#[tokio::test(start_paused = true)]
async fn old_metadata_goes() {
    let rig = Rig::new();
    let mut table = rig.create().await;
    for at in 10..180 {
        table = committed(rig.append(&table, at, at + 1).await);
        rig.env.sleep(Duration::from_secs(120)).await;
    }
    let keys = rig.world.store.keys().await;
    let count = |ending: &str| keys.iter().filter(|key| key.ends_with(ending)).count();
    assert!(count(".metadata.json") <= 102, "{}", count(".metadata.json"));
    let lists = keys.iter().filter(|key| key.contains("/snap-")).count();
    assert_eq!(lists, table.metadata.snapshots().len());
    assert!(lists < 150, "{lists}");
    assert_eq!(rig.offsets(rig.newest().await.as_ref()).await, all(180));
}

const NO_TIME_TRAVEL: ExpiryRules =
    ExpiryRules { snapshots_max: 1000, snapshot_age_min_ms: 3_600_000, time_travel_ms: 0 };

/// A table's metadata through many commits.
pub(super) struct History {
    pub(super) metadata: TableMetadata,
    pub(super) refs: Refs,
    rules: ExpiryRules,
}

impl History {
    pub(super) fn new(rules: ExpiryRules) -> Self {
        let owner =
            Ownership { cluster: ClusterId(Uuid::nil()), topic: TOPIC, table: Uuid::from_u128(3) };
        let metadata = empty_table(&owner, ("Orders", "orders"), "memory:///t").unwrap();
        Self { metadata, refs: Refs::new(), rules }
    }

    /// Commit number `at`, of a table in the folder `url`.
    pub(super) fn commit(&mut self, url: &str, at: i64, now_ms: i64) {
        let parent = self.metadata.current_snapshot_id();
        let sequence_number = self.metadata.next_sequence_number();
        let place = SnapshotPlace { id: at + 1, parent, sequence_number };
        let progress = Progress { topic: TOPIC, next_offsets: (at..at + 12).collect() };
        let addition = Addition {
            operation: iceberg::spec::Operation::Append,
            files: Vec::new(),
            removed: Totals::default(),
            progress: &progress,
            gaps: &[],
            note: None,
            mapping: &Mapping::new(),
            counts: &DecodeCounts::default(),
        };
        let location = Some(format!("{url}/metadata/{at:05}.gz.metadata.json"));
        let list =
            format!("{url}/metadata/snap-{at}-{}.avro", Uuid::from_u128(at.unsigned_abs().into()));
        let (metadata, refs) = (self.metadata.clone(), &self.refs);
        let version = Version { name: None, metadata, refs, location };
        let next = next_version(version, place, list, now_ms, &self.rules, &addition).unwrap();
        (self.metadata, self.refs) = (next.built.metadata, next.refs);
    }
}

fn versions(count: i64, step_ms: i64, rules: ExpiryRules) -> Vec<TableMetadata> {
    let (mut history, mut versions) = (History::new(rules), Vec::new());
    for at in 0..count {
        history.commit("memory:///t", at, 1_700_000_000_000 + at * step_ms);
        if at % 100 == 99 {
            let json = serde_json::to_vec(&history.metadata).unwrap();
            assert_eq!(
                history.refs,
                refs::parse_refs(&json).unwrap(),
                "references are as they are"
            );
        }
        versions.push(history.metadata.clone());
    }
    versions
}

/// Looks every second and every ten seconds for hours, and now and then for days.
#[test]
fn metadata_stays_small_whatever_the_number_of_looks() {
    let folder = Uuid::from_u128(u128::MAX);
    let url = format!("s3://a-bucket-of-some-length/a/prefix/{folder}/tables/{folder}-{folder}");
    let (mut history, mut now_ms) = (History::new(ExpiryRules::default()), 1_700_000_000_000);
    let (mut largest_file, mut largest_json) = (0, 0);
    for at in 0..3_000 {
        now_ms += match at {
            0..1500 => 1000,
            1500..2700 => 10_000,
            _ => 300_000,
        };
        history.commit(&url, at, now_ms);
        if at % 500 == 499 {
            let (encoded, file) =
                EncodedMetadata::of(&history.metadata, &history.refs, &Default::default()).unwrap();
            largest_file = joined(&file).len().max(largest_file);
            largest_json = joined(encoded.json()).len().max(largest_json);
        }
    }
    assert!(largest_file <= 200_000, "{largest_file} bytes on the store");
    assert!(largest_json <= 1_200_000, "{largest_json} bytes of JSON");
    println!("largest metadata: {largest_file} bytes as a file, {largest_json} as JSON");
}

#[test]
fn snapshots_are_bounded_and_young_ones_stay() {
    for metadata in versions(400, 60_000, NO_TIME_TRAVEL) {
        let ids: BTreeMap<i64, i64> = metadata
            .snapshots()
            .map(|snapshot| (snapshot.snapshot_id(), snapshot.timestamp_ms()))
            .collect();
        assert!(ids.len() <= 150);
        let (first, last) = (*ids.keys().next().unwrap(), *ids.keys().last().unwrap());
        assert_eq!(ids.len() as i64, last - first + 1, "never out of the middle");
        assert!(ids.len() >= 100 || first == 1);
    }
    let fast = versions(1200, 1000, NO_TIME_TRAVEL);
    assert!(fast.iter().all(|metadata| metadata.snapshots().len() <= 1000));
    assert_eq!(fast[900].snapshots().len(), 901, "an hour's snapshots stay");
    assert!(fast.iter().all(|metadata| metadata.metadata_log().len() <= 100));
}

#[test]
fn an_hour_that_is_over_can_be_read_for_a_day() {
    let versions = versions(2000, 60_000, ExpiryRules::default());
    let last = versions.last().unwrap();
    let mut hours: Vec<(i64, i64)> = Vec::new();
    let mut sorted: Vec<_> = last.snapshots().collect();
    sorted.sort_by_key(|snapshot| snapshot.sequence_number());
    for snapshot in &sorted {
        hours.push((snapshot.timestamp_ms() / 3_600_000, snapshot.snapshot_id()));
    }
    let newest_hour = hours.last().unwrap().0;
    for hour in newest_hour - 23..newest_hour {
        let of_hour = hours.iter().filter(|(at, _)| *at == hour).map(|(_, id)| *id);
        let end = of_hour.max().unwrap_or_else(|| panic!("hour {hour} is gone"));
        let next = versions
            .iter()
            .flat_map(TableMetadata::snapshots)
            .find(|other| other.parent_snapshot_id() == Some(end));
        assert!(next.unwrap().timestamp_ms() / 3_600_000 > hour, "the end of the hour is kept");
    }
    assert!(hours.len() <= 150 + 25, "{}", hours.len());
    assert!(hours[0].0 >= newest_hour - 24, "older hours go");
    let line = sorted[sorted.len() - 100..].windows(2);
    assert!(
        line.into_iter()
            .all(|pair| { pair[1].parent_snapshot_id() == Some(pair[0].snapshot_id()) })
    );
}

#[test]
fn a_clock_that_goes_back_stops_nothing() {
    let versions = versions(5, -10_000_000, ExpiryRules::default());
    assert_eq!(versions[4].snapshots().len(), 5);
    let dates: Vec<i64> = versions.iter().map(TableMetadata::last_updated_ms).collect();
    assert!(dates.is_sorted_by(|earlier, later| earlier < later), "{dates:?}");
}

#[test]
fn a_table_that_a_clock_ahead_of_ours_has_dated_gets_its_first_snapshot() {
    let (mut history, now_ms) = (History::new(ExpiryRules::default()), 1_700_000_000_000);
    let mut json = serde_json::to_value(&history.metadata).unwrap();
    let theirs_ms = now_ms + 600_000;
    json["last-updated-ms"] = theirs_ms.into();
    history.metadata = serde_json::from_value(json).unwrap();
    history.commit("memory:///t", 0, now_ms);
    assert_eq!(history.metadata.last_updated_ms(), theirs_ms - 60_000);
}

#[test]
fn statistics_go_with_their_snapshots() {
    let rules = ExpiryRules { snapshots_max: 60, ..ExpiryRules::default() };
    let mut history = History::new(rules);
    for at in 0..100 {
        history.commit("memory:///t", at, 1_700_000_000_000 + at * 1_000);
        let (snapshot_id, path) = (at + 1, format!("memory:///t/metadata/{at}.stats"));
        let of_table = iceberg::spec::StatisticsFile {
            snapshot_id,
            statistics_path: path.clone(),
            file_size_in_bytes: 1,
            file_footer_size_in_bytes: 1,
            key_metadata: None,
            blob_metadata: Vec::new(),
        };
        let of_partitions = iceberg::spec::PartitionStatisticsFile {
            snapshot_id,
            statistics_path: path,
            file_size_in_bytes: 1,
        };
        let builder = history.metadata.clone().into_builder(None).set_statistics(of_table);
        let builder = builder.set_partition_statistics(of_partitions);
        history.metadata = builder.build().unwrap().metadata;
    }
    let metadata = &history.metadata;
    assert!(metadata.snapshots().len() < 60, "some have gone");
    let mut ids: Vec<i64> = metadata.snapshots().map(|known| known.snapshot_id()).collect();
    let mut of_table: Vec<i64> = metadata.statistics_iter().map(|file| file.snapshot_id).collect();
    let of_partitions = metadata.partition_statistics_iter().map(|file| file.snapshot_id);
    let mut of_partitions: Vec<i64> = of_partitions.collect();
    for numbers in [&mut ids, &mut of_table, &mut of_partitions] {
        numbers.sort_unstable();
    }
    assert_eq!((&of_table, &of_partitions), (&ids, &ids));
}
