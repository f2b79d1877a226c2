use super::arguments::{Command, CommandLine};
use super::assembly::{
    Assembly, Backup, Deletion, Endpoints, Reconciliation, Serving, SnapshotView,
};
use super::client::{Client, escape};
use super::doctor::{Level, examine};
use super::*;
use crate::config::{Config, Inputs, Machine, resolve};
use crate::http::{PartitionView, TableView, TopicView};
use async_trait::async_trait;
use bytes::Bytes;
use clap::{CommandFactory, Parser};
use floe_env::{Env, Result};
use floe_iceberg_bridge::{FlushedTable, RecoveredTable};
use kfs::{
    BatchBuilder, BrokerEpoch, BrokerId, ClusterId, NewRecord, OffsetMode, PartitionIndex,
    SectionStart, SegmentBuilder, SegmentId, TopicId,
};
use std::collections::BTreeMap;
use std::path::Path;
use tokio::net::TcpListener;

/// An assembly whose stores can be opened or not.
struct FakeAssembly {
    is_restored: bool,
    store: Result<String>,
    problems: Vec<String>,
    catalog: Result<Option<String>>,
    kept: Vec<String>,
}

#[async_trait]
impl Assembly for FakeAssembly {
    async fn serve(&self, _serving: Serving) -> Result<()> {
        Err(Error::invalid("this assembly serves nobody"))
    }

    async fn check_store(&self, _env: &Env, _config: &Config) -> Result<String> {
        self.store.clone()
    }

    async fn check_metadata(&self, _env: &Env, _config: &Config) -> Result<String> {
        Ok("opened".to_owned())
    }

    async fn check_catalog(&self, _env: &Env, _config: &Config) -> Result<Option<String>> {
        self.catalog.clone()
    }

    async fn reconcile(
        &self,
        _env: &Env,
        _config: &Config,
        allows_deletion: bool,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<Reconciliation> {
        progress("1 object".to_owned());
        let deletion = match (self.is_restored, allows_deletion) {
            (false, _) => Deletion::Goes,
            (true, true) => Deletion::Allowed,
            (true, false) => Deletion::Stopped("the metadata was put back".to_owned()),
        };
        let problems = self.problems.clone();
        let (notes, kept) = (Vec::new(), self.kept.clone());
        Ok(Reconciliation { objects: 1, problems, notes, kept, deletion })
    }

    async fn restore(
        &self,
        _env: &Env,
        _config: &Config,
        _backup: &Backup,
        _progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<String> {
        Err(Error::invalid("this assembly restores nothing"))
    }

    async fn snapshots(&self, _env: &Env, _config: &Config) -> Result<Vec<SnapshotView>> {
        Err(Error::invalid("this assembly has no snapshots"))
    }

    async fn recover_tables(
        &self,
        _env: &Env,
        _config: &Config,
        _progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<Vec<RecoveredTable>> {
        Ok(Vec::new())
    }

    async fn relocate(
        &self,
        _env: &Env,
        _config: &Config,
        _progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<String> {
        Err(Error::invalid("this assembly relocates nothing"))
    }
}

fn healthy() -> FakeAssembly {
    FakeAssembly {
        store: Ok("writable".to_owned()),
        catalog: Ok(None),
        problems: Vec::new(),
        kept: Vec::new(),
        is_restored: false,
    }
}

fn parse(line: &str) -> std::result::Result<CommandLine, clap::Error> {
    CommandLine::try_parse_from(line.split_whitespace())
}

fn config_of(line: &str) -> std::result::Result<Config, Failure> {
    let Command::Serve(arguments) = parse(line).expect("the line parses").command else {
        panic!("{line} is no serve");
    };
    let machine = Machine { memory_bytes: 4 << 30 };
    let resolved = arguments.settings.resolve_in(BTreeMap::new(), machine)?;
    Config::from_resolved(&resolved).map_err(Failure::Usage)
}

fn exit_code(line: &str) -> ExitCode {
    run(line.split_whitespace().map(OsString::from), Arc::new(healthy()))
}

fn is_code(found: ExitCode, code: u8) -> bool {
    format!("{found:?}") == format!("{:?}", ExitCode::from(code))
}

#[test]
fn the_command_line_is_consistent() {
    CommandLine::command().debug_assert();
}

#[test]
fn serve_takes_every_flag_of_the_interface() {
    let config = config_of(
        "floe serve --data /d --kafka 0.0.0.0:1 --http 127.0.0.1:2 --advertise host:3 \
         --store s3://b/p --metadata postgres://h/db --insecure-listen \
         --set kafka.num.partitions=5 --log debug",
    )
    .unwrap();
    assert_eq!(config.data, Path::new("/d"));
    assert_eq!(config.listen.kafka.port, 1);
    assert_eq!(config.listen.http.port, 2);
    assert_eq!(config.listen.advertise.to_string(), "host:3");
    assert_eq!(config.store.location.to_string(), "s3://b/p");
    assert_eq!(config.metadata.location.to_string(), "postgres://h/db");
    assert!(config.listen.insecure);
    assert_eq!(config.kafka.num_partitions, 5);
    assert_eq!(config.log_filter, "debug");
}

#[test]
fn settings_come_from_a_file_that_a_flag_names() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("floe.toml");
    std::fs::write(&file, "[kafka]\n\"num.partitions\" = 7\n").unwrap();
    let line = format!("floe serve --config {}", file.display());
    assert_eq!(config_of(&line).unwrap().kafka.num_partitions, 7);
    let over = config_of(&format!("{line} --set kafka.num.partitions=8")).unwrap();
    assert_eq!(over.kafka.num_partitions, 8);
    assert!(matches!(config_of("floe serve --config /nowhere.toml"), Err(Failure::Usage(_))));
}

#[test]
fn a_wrong_setting_is_wrong_usage() {
    assert!(matches!(config_of("floe serve --kafka nowhere"), Err(Failure::Usage(_))));
    assert!(matches!(config_of("floe serve --set a.b=1"), Err(Failure::Usage(_))));
    assert!(parse("floe serve --set nothing").is_err());
}

#[test]
fn exit_codes() {
    assert!(is_code(exit_code("floe version"), SUCCESS));
    assert!(is_code(exit_code("floe --help"), SUCCESS));
    assert!(is_code(exit_code("floe serve --help"), SUCCESS));
    assert!(is_code(exit_code("floe"), USAGE));
    assert!(is_code(exit_code("floe sreve"), USAGE));
    assert!(is_code(exit_code("floe serve --kafka nowhere"), USAGE));
    assert!(is_code(exit_code("floe config --kafka 0.0.0.0:9092"), USAGE));
    assert!(is_code(exit_code("floe segments inspect /nowhere.kfs"), FAILURE));
    assert!(is_code(exit_code("floe topics --http 127.0.0.1:1"), FAILURE));
    // Its settings are a broker's, and the fake one relocates nothing.
    assert!(is_code(exit_code("floe tables relocate --data /d --set log.filter=info"), FAILURE));
    assert!(is_code(exit_code("floe tables relocate --kafka nowhere"), USAGE));
    CommandLine::command().debug_assert();
}

#[test]
fn help_explains_every_command_and_the_defaults() {
    let help = CommandLine::command().render_long_help().to_string();
    for word in ["serve", "config", "topics", "tables", "segments", "doctor", "Ctrl-C"] {
        assert!(help.contains(word), "{help}");
    }
    let mut command = CommandLine::command();
    let serve = command.find_subcommand_mut("serve").unwrap().render_help().to_string();
    for text in ["127.0.0.1:9092", "FLOE_KAFKA", "--insecure-listen", "--set <NAME=VALUE>"] {
        assert!(serve.contains(text), "{serve}");
    }
}

#[test]
fn the_announcement_says_where_everything_is() {
    let config = config_of("floe serve --data /d --kafka 127.0.0.1:0").unwrap();
    let endpoints = Endpoints {
        kafka: "127.0.0.1:4711".parse().unwrap(),
        http: "127.0.0.1:4712".parse().unwrap(),
    };
    let text = serve::announcement(&config, &endpoints);
    for part in ["127.0.0.1:4711", "http://127.0.0.1:4712/iceberg", "/d/store", "sqlite:/d/"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!text.contains("clients are told"), "{text}");
    let command = "floe serve --data /d --set iceberg.catalog.uri=https://catalog/api";
    let text = serve::announcement(&config_of(command).unwrap(), &endpoints);
    assert!(text.contains("  Iceberg   https://catalog/api\n"), "{text}");
    assert!(!text.contains("/iceberg"), "nothing is served there: {text}");
    let command = "floe serve --data /d --set iceberg.enable=false";
    let text = serve::announcement(&config_of(command).unwrap(), &endpoints);
    assert!(!text.contains("Iceberg"), "{text}");
}

#[test]
fn names_from_outside_cannot_steer_a_terminal() {
    let topic = TopicView {
        name: "a\u{1b}[2Jb".to_owned(),
        id: "id".to_owned(),
        partition_count: 2,
        records: 3,
        bytes: 4096,
        table: Some("kafka.a".to_owned()),
        kept_partitions: 1,
        partitions: vec![PartitionView {
            partition: 1,
            log_start: 5,
            high_watermark: 8,
            last_stable: 8,
            bytes: 4096,
            kept: Some("a record is\u{1b}[2J dated".to_owned()),
        }],
    };
    let listing = remote::topics_listing(std::slice::from_ref(&topic));
    assert!(listing.contains("1 of its partitions keep records longer"), "{listing}");
    let finding = doctor::kept_of(std::slice::from_ref(&topic));
    assert_eq!(finding.level, Level::Warning);
    assert!(finding.text.starts_with("1 topics keep records for longer"), "{}", finding.text);
    let none = TopicView { kept_partitions: 0, ..topic.clone() };
    assert_eq!(doctor::kept_of(&[none]).level, Level::Ok);
    let description = remote::topic_description(&topic);
    assert!(description.contains("Partition 1 keeps records longer than asked"), "{description}");
    for text in [listing, description] {
        assert!(!text.contains('\u{1b}') && text.contains("4.0 KiB"), "{text}");
    }
    let table = TableView {
        name: "kafka.a".to_owned(),
        topic: "a".to_owned(),
        state: "stopped".to_owned(),
        reason: Some("rolled back\nby hand".to_owned()),
        lag_records: 5,
        lag_seconds: 1.25,
        last_commit_ms: Some(1_000_000_000_123),
        last_error: None,
        files: 3,
        bytes: 4096,
        small_file_ratio: Some(2.0 / 3.0),
        columns: 12,
        rescued_rows: 77,
        undecodable_rows: 88,
        retention_ms: Some(60_000),
        gap_offsets: 99,
        commits: 1,
        failures: 0,
        conflicts: 2,
        puts: 4,
    };
    let description = tables::description(&table);
    let text = tables::listing(&[table]);
    assert_eq!(text.lines().count(), 2, "{text}");
    for part in ["stopped", "4.0 KiB", "67 %", "77", "88", "2001-09-09T01:46:40Z", "by hand"] {
        assert!(text.contains(part) && description.contains(part), "{part}: {text}{description}");
    }
    for part in ["99 offsets", "12 beside", "60 s", "conflicts    2 since", "PUTs         4 since"]
    {
        assert!(description.contains(part), "{part}: {description}");
    }
}

#[test]
fn flushed_tables_are_shown_and_one_that_failed_is_a_failure() {
    assert!(is_code(exit_code("floe tables flush"), USAGE));
    let flushed = FlushedTable {
        name: "kafka.orders".to_owned(),
        topic: "orders".to_owned(),
        snapshot_id: Some(4711),
        rows: 7,
        cut: vec![7],
        error: None,
    };
    let stopped = FlushedTable {
        snapshot_id: None,
        error: Some("table is stopped".to_owned()),
        ..flushed.clone()
    };
    assert!(tables::flush_verdict(std::slice::from_ref(&flushed)).is_ok());
    let both = [flushed, stopped];
    assert!(matches!(tables::flush_verdict(&both), Err(Failure::Reported)));
    let text = tables::flushes(&both);
    for part in ["kafka.orders", "4711", "table is stopped"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn recovered_tables_are_shown_and_problems_are_a_failure() {
    assert!(is_code(exit_code("floe tables recover --kafka nowhere"), USAGE));
    let tables = [RecoveredTable {
        folder: "folder\u{1b}".to_owned(),
        table: None,
        topic: Some("orders".to_owned()),
        rows: 7,
        problem: Some("no version is whole".to_owned()),
    }];
    assert!(matches!(tables::verdict(&tables), Err(Failure::Reported)));
    let whole = tables.clone().map(|table| RecoveredTable { problem: None, ..table });
    assert!(tables::verdict(&whole).is_ok());
    let text = tables::recovered(&tables);
    for part in ["folder?", "orders", "7", "no version is whole"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[tokio::test]
async fn the_client_says_what_is_wrong() {
    let env = Env::current();
    for url in ["https://x", "http://x/y", ""] {
        assert!(Client::new(env.clone(), url).is_err(), "{url}");
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let client = Client::new(env, &format!("http://{address}/")).unwrap();
    let error = client.get::<Vec<TableView>>("/v1/tables").await.unwrap_err().to_string();
    assert!(error.contains(&address.to_string()) && error.contains("--http"), "{error}");
    assert_eq!(escape("a/b c?"), "a%2Fb%20c%3F");
}

fn doctor_config(folder: &Path) -> Config {
    let data = folder.display().to_string();
    let given = |name: &str, value: &str| crate::config::Given {
        name: name.to_owned(),
        value: value.to_owned(),
        flag: "--set".to_owned(),
    };
    let flags = vec![
        given("data", &data),
        given("listen.kafka", "127.0.0.1:0"),
        given("listen.http", "127.0.0.1:0"),
    ];
    let inputs = Inputs {
        flags,
        environment: BTreeMap::new(),
        file: None,
        machine: Machine { memory_bytes: 256 << 20 },
    };
    Config::from_resolved(&resolve(&inputs).unwrap()).unwrap()
}

#[tokio::test]
async fn doctor_finds_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = doctor_config(folder.path());
    let env = Env::current();
    let findings = examine(&env, &config, &healthy(), false).await;
    assert!(findings.iter().all(|finding| finding.level == Level::Ok), "{findings:?}");
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert!(left.is_empty(), "doctor leaves nothing behind: {left:?}");

    let failed = |findings: &[doctor::Finding], check: &str| {
        let has_failed = |finding: &&doctor::Finding| finding.level == Level::Failed;
        findings.iter().filter(has_failed).any(|finding| finding.check == check)
    };
    let lost = FakeAssembly { problems: vec!["object x is missing".to_owned()], ..healthy() };
    assert!(failed(&examine(&env, &config, &lost, false).await, "objects"));
    let down = FakeAssembly { store: Err(Error::unavailable("no route")), ..healthy() };
    let findings = examine(&env, &config, &down, false).await;
    assert!(failed(&findings, "store") && !failed(&findings, "objects"), "{findings:?}");

    let restored = FakeAssembly { is_restored: true, ..healthy() };
    for (reconciles, level) in [(false, Level::Warning), (true, Level::Ok)] {
        let findings = examine(&env, &config, &restored, reconciles).await;
        let deletion = findings.iter().find(|finding| finding.check == "deletion").unwrap();
        assert_eq!(deletion.level, level, "{deletion:?}");
    }

    let is_shown =
        |findings: &[doctor::Finding]| findings.iter().any(|finding| finding.check == "catalog");
    assert!(!is_shown(&examine(&env, &config, &healthy(), false).await), "there is no other");
    let there = FakeAssembly { catalog: Ok(Some("answers".to_owned())), ..healthy() };
    assert!(is_shown(&examine(&env, &config, &there, false).await));
    let refuses = FakeAssembly { catalog: Err(Error::invalid("401")), ..healthy() };
    assert!(failed(&examine(&env, &config, &refuses, false).await, "catalog"));
    let late = FakeAssembly { kept: vec!["t-0 is late".to_owned()], ..healthy() };
    let findings = examine(&env, &config, &late, false).await;
    let retention = findings.iter().find(|finding| finding.check == "retention").unwrap();
    assert_eq!((retention.level, retention.text.as_str()), (Level::Warning, "t-0 is late"));

    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    config.listen.kafka.port = taken.local_addr().unwrap().port();
    assert!(failed(&examine(&env, &config, &healthy(), false).await, "kafka"));
    let file = folder.path().join("file");
    std::fs::write(&file, "x").unwrap();
    config.data = file;
    assert!(failed(&examine(&env, &config, &healthy(), false).await, "data"));
}

/// A segment of version 1 around one batch, whose header states this number of records.
fn segment_v1(batch: &[u8], stated_records: i32) -> Vec<u8> {
    let mut segment = Vec::new();
    segment.extend_from_slice(b"KAFS\0\x01\0\0");
    segment.extend_from_slice(&0i64.to_be_bytes());
    segment.extend_from_slice(&stated_records.to_be_bytes());
    segment.extend_from_slice(&1_700_000_000_000i64.to_be_bytes());
    segment.extend_from_slice(&[0; 4]);
    segment.extend_from_slice(batch);
    segment.extend_from_slice(&crc32c::crc32c(batch).to_be_bytes());
    segment.extend_from_slice(&0i64.to_be_bytes());
    segment.extend_from_slice(b"END!");
    segment
}

fn batch(records: usize) -> Bytes {
    let mut builder = BatchBuilder::new();
    for _ in 0..records {
        let record = NewRecord {
            timestamp_ms: 1_700_000_000_000,
            key: Some(b"key"),
            value: Some(b"value"),
            headers: &[],
        };
        builder.push(&record).unwrap();
    }
    builder.build().unwrap()
}

fn segment_v2() -> Vec<u8> {
    let id = |low: u128| uuid::Uuid::from_u128(low);
    let segment = SegmentId { broker: BrokerId(1), epoch: BrokerEpoch(2), counter: 3 };
    let mut builder = SegmentBuilder::new(ClusterId(id(1))).segment_id(segment);
    for (topic, batches) in [("orders", vec![batch(3), batch(2)]), ("payments", vec![batch(1)])] {
        let start = SectionStart {
            topic: TopicId(id(topic.len() as u128)),
            topic_name: Arc::from(topic),
            partition: PartitionIndex(4),
            mode: OffsetMode::Relative,
            min_timestamp_ms: i64::MIN,
            aborted: Vec::new(),
            delete_horizon_ms: None,
        };
        builder.add(start, batches).unwrap();
    }
    builder.finish().unwrap().parts.concat()
}

fn written(bytes: &[u8]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    file
}

#[test]
fn inspects_segments_of_both_versions() {
    let file = written(&segment_v2());
    let text = segments::inspect(file.path(), true).unwrap().description();
    for part in ["version 2", "1-2-3", "orders-4", "payments-4", "All checksums match."] {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
    let json = serde_json::to_value(segments::inspect(file.path(), true).unwrap()).unwrap();
    assert_eq!(json["sections"][0]["record_count"], 5);
    assert_eq!(json["sections"][0]["batches"][1]["records"], 2);
    assert_eq!(json["problems"], serde_json::json!([]));
    let line = format!("floe segments inspect {}", file.path().display());
    assert!(is_code(exit_code(&line), SUCCESS));

    let file = written(&segment_v1(&batch(3), 3));
    let json = serde_json::to_value(segments::inspect(file.path(), true).unwrap()).unwrap();
    assert_eq!((&json["version"], &json["problems"]), (&1.into(), &serde_json::json!([])));
    assert_eq!(json["sections"][0]["batches"][0]["records"], 3);
    assert_eq!(json["created_ms"], 1_700_000_000_000i64);
}

#[test]
fn damaged_segments_are_found() {
    let whole = segment_v2();
    let mut flipped = whole.clone();
    flipped[32 + 70] ^= 1;
    let file = written(&flipped);
    let text = segments::inspect(file.path(), false).unwrap().description();
    assert!(text.contains("PROBLEM: orders-4: checksum of the section"), "{text}");
    assert!(text.contains("PROBLEM: orders-4: batch at byte 32"), "{text}");
    let line = format!("floe segments inspect {}", file.path().display());
    assert!(is_code(exit_code(&line), FAILURE));

    for length in [0, 3, 31, 32, 100, whole.len() - 1] {
        let file = written(&whole[..length]);
        assert!(segments::inspect(file.path(), false).is_err(), "{length} bytes");
    }
    let file = written(&segment_v1(&batch(3), 4));
    let text = segments::inspect(file.path(), false).unwrap().description();
    assert!(text.contains("header says 4 records, found 3"), "{text}");
}
