use super::setting::{Kind, Preset, Setting};
use super::table::{SETTINGS, setting};
use super::typed::Reader;
use super::*;
use crate::text::check_page;
use floe_env::Result;
use floe_iceberg_bridge::RestAuth;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

const SECRET: &str = "correct-horse-battery";

fn inputs() -> Inputs {
    Inputs {
        flags: Vec::new(),
        environment: BTreeMap::new(),
        file: None,
        machine: Machine { memory_bytes: 4 << 30 },
    }
}

fn with_file(text: &str) -> (TempDir, Inputs) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("floe.toml");
    std::fs::write(&path, text).unwrap();
    (folder, Inputs { file: Some(path), ..inputs() })
}

fn given(name: &str, value: &str) -> Given {
    Given { name: name.to_owned(), value: value.to_owned(), flag: "--set".to_owned() }
}

fn with_flags(flags: &[(&str, &str)]) -> Inputs {
    let flags = flags.iter().map(|(name, value)| given(name, value)).collect();
    Inputs { flags, ..inputs() }
}

fn with_variables(variables: &[(&str, &str)]) -> Inputs {
    let pairs = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Inputs { environment: pairs.collect(), ..inputs() }
}

fn typed(inputs: &Inputs) -> Result<Config> {
    Config::from_resolved(&resolve(inputs)?)
}

fn refusal(inputs: &Inputs) -> String {
    typed(inputs).expect_err("this must be refused").to_string()
}

fn shown(resolved: &Resolved, name: &str) -> String {
    resolved.value(name).map_or_else(|| "-".to_owned(), Value::shown)
}

fn source(resolved: &Resolved, name: &str) -> String {
    let entry = resolved.entries().iter().find(|entry| entry.setting.name == name);
    entry.expect("the name is in the table").source.to_string()
}

#[test]
fn runs_without_any_configuration() {
    let config = typed(&inputs()).unwrap();
    assert_eq!(config.listen.kafka.to_string(), "127.0.0.1:9092");
    assert_eq!(config.listen.http.to_string(), "127.0.0.1:8080");
    assert_eq!(config.listen.advertise.to_string(), "127.0.0.1:9092");
    assert!(config.data.is_absolute() && config.data.ends_with("floe-data"));
    assert_eq!(config.store.location, StoreLocation::Directory(config.data.join("store")));
    let sqlite = MetadataLocation::Sqlite(config.data.join("metadata.sqlite"));
    assert_eq!(config.metadata.location, sqlite);
    assert_eq!(config.flush.interval, Duration::from_millis(10));
    assert_eq!(config.flush.segment_bytes, 8 << 20);
    assert_eq!(config.memory.budget_bytes, 256 << 20);
    assert_eq!(config.memory.cache_bytes, 128 << 20);
    assert_eq!(config.kafka.message_max_bytes, 1_048_588);
    assert_eq!(config.kafka.socket_request_max_bytes, 104_857_600);
    assert_eq!(config.kafka.offsets_retention, Duration::from_secs(7 * 24 * 3600));
    assert!(config.kafka.auto_create_topics && config.iceberg.enable);
    assert_eq!(config.kafka.num_partitions, 1);
}

/// The table and the typed configuration name the same settings.
#[test]
fn every_setting_is_read() {
    let resolved = resolve(&inputs()).unwrap();
    let reader = Reader::new(&resolved);
    Config::read(&reader).unwrap();
    let names: BTreeSet<_> = SETTINGS.iter().map(|setting| setting.name).collect();
    assert_eq!(reader.names_read(), names);
}

#[test]
fn names_variables_and_flags_are_unique_and_of_one_form() {
    let mut seen = BTreeSet::new();
    for setting in SETTINGS {
        let mut own = vec![setting.name, setting.variable];
        own.extend(setting.aliases);
        own.extend(setting.flag);
        own.dedup();
        for name in own {
            let flag_like_name = setting.flag == Some(name) && setting.name == name;
            assert!(seen.insert(name) || flag_like_name, "{name} twice");
        }
        assert!(setting.variable.starts_with("FLOE_"), "{}", setting.variable);
        let variable = resolve(&with_variables(&[(setting.variable, "")]));
        assert!(variable.is_ok(), "{} is taken for another's", setting.variable);
        assert!(setting.doc.ends_with('.'), "{}", setting.name);
        if let (Preset::Fixed(text), Kind::Integer { .. }) = (setting.preset, setting.kind) {
            assert!(Value::from_text(setting, text).is_ok(), "default of {}", setting.name);
        }
    }
}

#[test]
fn flag_over_variable_over_file_over_default() {
    let (_folder, mut inputs) = with_file("[kafka]\n\"num.partitions\" = 3\n");
    let name = "kafka.num.partitions";
    let file = inputs.file.clone();

    inputs.file = None;
    let resolved = resolve(&inputs).unwrap();
    assert_eq!(
        (shown(&resolved, name).as_str(), source(&resolved, name).as_str()),
        ("1", "default")
    );

    inputs.file = file;
    let resolved = resolve(&inputs).unwrap();
    assert_eq!(shown(&resolved, name), "3");
    assert!(source(&resolved, name).ends_with("floe.toml"));

    inputs.environment.insert("FLOE_KAFKA_NUM_PARTITIONS".to_owned(), "4".to_owned());
    let resolved = resolve(&inputs).unwrap();
    assert_eq!(shown(&resolved, name), "4");
    assert_eq!(source(&resolved, name), "FLOE_KAFKA_NUM_PARTITIONS");

    inputs.flags.push(given(name, "5"));
    let resolved = resolve(&inputs).unwrap();
    assert_eq!((shown(&resolved, name).as_str(), source(&resolved, name).as_str()), ("5", "--set"));
    assert_eq!(typed(&inputs).unwrap().kafka.num_partitions, 5);
}

#[test]
fn the_file_can_be_named_by_a_variable() {
    let (_folder, with_file) = with_file("[kafka]\nnum.partitions = 3\n");
    let path = with_file.file.unwrap().display().to_string();
    let config = typed(&with_variables(&[("FLOE_CONFIG", &path)])).unwrap();
    assert_eq!(config.kafka.num_partitions, 3, "unquoted dotted names mean the same");
    let missing = refusal(&with_variables(&[("FLOE_CONFIG", "/nowhere/floe.toml")]));
    assert!(missing.starts_with("cannot read /nowhere/floe.toml"), "{missing}");
}

#[test]
fn an_empty_variable_counts_as_not_given() {
    let inputs = with_variables(&[("FLOE_KAFKA_NUM_PARTITIONS", ""), ("FLOE_CONFIG", "")]);
    assert_eq!(typed(&inputs).unwrap().kafka.num_partitions, 1);
}

#[test]
fn unknown_names_are_refused_with_the_nearest() {
    for (text, near) in [
        ("[kafka]\n\"num.partition\" = 3", "kafka.num.partitions"),
        ("num.partitions = 3", "kafka.num.partitions"),
        ("[flush]\ninterval = 3", "flush.interval_ms"),
        ("[flush]\nsegment-bytes = 3", "flush.segment_bytes"),
        ("[store]\nsecret_key_fil = \"x\"", "store.secret_key_file"),
        ("[kafka]\n\"broker.ids\" = 3", "kafka.broker.id"),
        ("dat = \"x\"", "data"),
    ] {
        let (_folder, inputs) = with_file(text);
        let message = refusal(&inputs);
        assert!(message.ends_with(&format!("did you mean {near}?")), "{text}: {message}");
    }
    let message = refusal(&with_flags(&[("kafka.num.partitons", "3")]));
    assert_eq!(
        message,
        "--set: unknown setting kafka.num.partitons; did you mean kafka.num.partitions?"
    );
    let message = refusal(&with_variables(&[("FLOE_STORES", "x")]));
    assert_eq!(message, "unknown environment variable FLOE_STORES; did you mean FLOE_STORE?");
    let (_folder, inputs) = with_file("[zookeeper]\nconnect = \"x\"");
    assert!(refusal(&inputs).contains("unknown setting zookeeper.connect"), "{}", refusal(&inputs));
}

#[test]
fn variables_of_a_service_of_our_name_are_passed_over() {
    let inputs = with_variables(&[
        ("FLOE_SERVICE_HOST", "10.0.0.1"),
        ("FLOE_SERVICE_PORT_KAFKA", "9092"),
        ("FLOE_PORT", "tcp://10.0.0.1:9092"),
        ("FLOE_PORT_9092_TCP_ADDR", "10.0.0.1"),
        ("FLOE_KAFKA_PORT_9092_TCP", "tcp://10.0.0.1:9092"),
    ]);
    typed(&inputs).unwrap();
}

#[test]
fn a_wrong_value_names_the_setting_and_its_source() {
    for (name, value, reason) in [
        ("flush.interval_ms", "soon", "'soon' is not a whole number"),
        ("flush.interval_ms", "0", "0 is not from 1 to 60000 ms"),
        ("kafka.num.partitions", "-1", "-1 is not from 1 to 10000"),
        ("iceberg.enable", "yes", "'yes' is not true or false"),
        ("listen.kafka", "9092", "'9092' is not HOST:PORT"),
        ("listen.kafka", "localhost:99999", "'localhost:99999' is not HOST:PORT"),
        ("listen.kafka", "::1:9092", "'::1:9092' is not HOST:PORT"),
        ("store.url", "ftp://x/y", "'ftp://x/y' is no directory and no s3://, gs:// or az://"),
        ("store.url", "s3:///prefix", "'s3:///prefix' is not s3://BUCKET/PREFIX"),
        (
            "metadata.url",
            "mysql://x",
            "'mysql://x' is not sqlite:FILE and not postgres://HOST/DATABASE",
        ),
        ("store.endpoint", "minio:9000", "'minio:9000' is not http:// or https://"),
        (
            "iceberg.catalog.uri",
            "https://me:hidden@host/x",
            "has a user or a password in it, which have their own settings",
        ),
        ("store.region", "", "is empty"),
    ] {
        let message = refusal(&with_flags(&[(name, value)]));
        assert_eq!(message, format!("setting {name} (from --set): {reason}"));
    }
    let (_folder, inputs) = with_file("[flush]\ninterval_ms = \"250\"");
    let message = refusal(&inputs);
    assert!(message.starts_with("setting flush.interval_ms (from "), "{message}");
    assert!(
        message.contains("expected a whole number from 1 to 60000 ms, found text"),
        "{message}"
    );
    let (_folder, inputs) = with_file("[flush]\ninterval_ms = [250]");
    assert!(refusal(&inputs).ends_with("found array"), "{}", refusal(&inputs));
}

#[test]
fn two_names_of_one_setting_are_not_given_together() {
    let (_folder, inputs) = with_file("[kafka]\n\"broker.id\" = 7\n");
    assert_eq!(typed(&inputs).unwrap().kafka.node_id, 7);
    let (_folder, inputs) = with_file("[kafka]\n\"broker.id\" = 7\n\"node.id\" = 8\n");
    assert!(refusal(&inputs).contains("kafka.node.id"), "{}", refusal(&inputs));
    assert!(refusal(&inputs).contains("is given already"), "{}", refusal(&inputs));
}

#[test]
fn a_broken_file_is_told_by_its_line_without_its_text() {
    let (_folder, inputs) = with_file(&format!("[store]\n\nsecret_key = \"{SECRET}\n"));
    let message = refusal(&inputs);
    assert!(message.contains("floe.toml line 3: "), "{message}");
    assert!(!message.contains(SECRET) && !message.contains('\n'), "{message}");
}

#[test]
fn secrets_come_from_files_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    std::fs::write(&path, format!("{SECRET}\n")).unwrap();
    let path = path.display().to_string();
    let s3 = [("FLOE_STORE", "s3://b/p"), ("FLOE_STORE_ACCESS_KEY", "id")];

    let by_variable =
        with_variables(&[s3[0], s3[1], ("FLOE_STORE_SECRET_KEY_FILE", path.as_str())]);
    let config = typed(&by_variable).unwrap();
    assert_eq!(config.store.s3.secret_key.unwrap().expose(), SECRET);

    let (_folder, mut by_file) = with_file(&format!("[store]\nsecret_key_file = \"{path}\"\n"));
    by_file.environment = with_variables(&s3).environment;
    let config = typed(&by_file).unwrap();
    assert_eq!(config.store.s3.secret_key.unwrap().expose(), SECRET);

    let both = with_variables(&[
        ("FLOE_STORE_SECRET_KEY", "other"),
        ("FLOE_STORE_SECRET_KEY_FILE", path.as_str()),
    ]);
    assert!(refusal(&both).contains("is given already"), "{}", refusal(&both));
    let missing = refusal(&with_variables(&[("FLOE_STORE_SECRET_KEY_FILE", "/nowhere")]));
    assert!(missing.contains("store.secret_key (from FLOE_STORE_SECRET_KEY_FILE)"), "{missing}");
}

#[test]
fn secrets_are_never_shown() {
    let postgres = format!("postgres://floe:{SECRET}@db/floe?password={SECRET}&sslmode=require");
    let inputs = with_variables(&[
        ("FLOE_STORE", "s3://b/p"),
        ("FLOE_STORE_ACCESS_KEY", SECRET),
        ("FLOE_STORE_SECRET_KEY", SECRET),
        ("FLOE_STORE_SESSION_TOKEN", SECRET),
        ("FLOE_STORE_AZURE_ACCESS_KEY", SECRET),
        ("FLOE_METADATA", &postgres),
        ("FLOE_METADATA_PASSWORD", SECRET),
    ]);
    let resolved = resolve(&inputs).unwrap();
    let config = Config::from_resolved(&resolved).unwrap();
    let shown_everywhere = [
        page::listing(&resolved),
        page::json(&resolved).to_string(),
        format!("{config:?} {config:#?}"),
        config.metadata.location.to_string(),
        format!("{:?}", config.store.s3.secret_key),
    ];
    for text in shown_everywhere {
        assert!(!text.contains(SECRET), "{text}");
    }
    let listing = page::listing(&resolved);
    assert!(
        listing.contains("postgres://floe:***@db/floe?password=***&sslmode=require"),
        "{listing}"
    );
    assert_eq!(config.metadata.password.unwrap().expose(), SECRET);
}

#[test]
fn a_wrong_value_with_a_password_is_shown_without_it() {
    for (name, url) in [
        ("store.url", format!("ftp://me:{SECRET}@host/x")),
        ("store.url", format!("s3://me:{SECRET}@bucket/x")),
        ("metadata.url", format!("mysql://me:{SECRET}@host/x")),
        ("store.endpoint", format!("ftp://me:{SECRET}@host")),
    ] {
        let message = refusal(&with_flags(&[(name, &url)]));
        assert!(message.contains(name) && !message.contains(SECRET), "{message}");
    }
}

#[test]
fn a_secret_on_the_command_line_is_refused() {
    let message = refusal(&with_flags(&[("store.secret_key", SECRET)]));
    assert!(message.contains("FLOE_STORE_SECRET_KEY_FILE"), "{message}");
    assert!(!message.contains(SECRET), "{message}");
}

#[test]
fn addresses_beyond_loopback_need_consent() {
    for address in ["192.168.1.5:9092", "kafka.example.com:9092", "[::]:9092", "0.0.0.0:9092"] {
        let flags = [("listen.kafka", address), ("listen.advertise", "kafka.example.com:9092")];
        let message = refusal(&with_flags(&flags));
        assert!(message.contains("--insecure-listen"), "{address}: {message}");
        let with_consent = [flags[0], flags[1], ("listen.insecure", "true")];
        typed(&with_flags(&with_consent)).unwrap();
    }
    let message = refusal(&with_flags(&[("listen.http", "0.0.0.0:8080")]));
    assert!(message.starts_with("--http 0.0.0.0:8080 is reachable"), "{message}");
    for address in ["127.0.0.1:1", "127.8.8.8:1", "localhost:1", "LOCALHOST:1", "[::1]:1"] {
        let flags = [("listen.kafka", address), ("listen.http", address)];
        typed(&with_flags(&flags)).unwrap();
    }
}

#[test]
fn an_unspecified_address_is_never_advertised() {
    for flags in [
        vec![("listen.kafka", "0.0.0.0:9092")],
        vec![("listen.kafka", "[::]:9092")],
        vec![("listen.advertise", "0.0.0.0:9092")],
        vec![("listen.advertise", "[::]:9092")],
        vec![("listen.advertise", "[::ffff:0.0.0.0]:9092")],
    ] {
        let mut with_consent = flags.clone();
        with_consent.push(("listen.insecure", "true"));
        let message = refusal(&with_flags(&with_consent));
        assert!(message.contains("give --advertise HOST:PORT"), "{flags:?}: {message}");
    }
}

#[test]
fn port_0_is_advertised_as_bound() {
    let config = typed(&with_flags(&[("listen.kafka", "127.0.0.1:0")])).unwrap();
    let bound = "127.0.0.1:4711".parse().unwrap();
    assert_eq!(config.listen.advertised(bound).to_string(), "127.0.0.1:4711");
    let flags = [("listen.kafka", "127.0.0.1:0"), ("listen.advertise", "proxy:9000")];
    let config = typed(&with_flags(&flags)).unwrap();
    assert_eq!(config.listen.advertised(bound).to_string(), "proxy:9000");
    assert!(refusal(&with_flags(&[("listen.advertise", "proxy:0")])).contains("listen.advertise"));
}

/// Variables of a catalog without TLS, and some more.
fn catalog<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let uri = ("FLOE_ICEBERG_CATALOG_URI", "http://127.0.0.1:8181/catalog");
    let allowed = ("FLOE_ICEBERG_CATALOG_ALLOW_HTTP", "true");
    let is_new = |own: &(&str, &str)| more.iter().all(|(name, _)| *name != own.0);
    [uri, allowed].into_iter().filter(is_new).chain(more.iter().copied()).collect()
}

#[test]
fn another_catalog_is_asked_in_one_way() {
    let none = typed(&with_variables(&catalog(&[]))).unwrap().iceberg.rest.unwrap();
    assert!(matches!(none.auth, RestAuth::None) && none.sets_location && none.has_tags);
    let token = ("FLOE_ICEBERG_CATALOG_TOKEN", "hidden");
    let bearer = typed(&with_variables(&catalog(&[token]))).unwrap().iceberg.rest.unwrap();
    assert!(matches!(bearer.auth, RestAuth::Bearer(_)));
    assert!(!format!("{bearer:?}").contains("hidden"));
    let client =
        [("FLOE_ICEBERG_CATALOG_CLIENT_ID", "a"), ("FLOE_ICEBERG_CATALOG_CLIENT_SECRET", "b")];
    let oauth2 = typed(&with_variables(&catalog(&client))).unwrap().iceberg.rest.unwrap();
    assert!(matches!(oauth2.auth, RestAuth::OAuth2(client) if client.scope == "catalog"));
    let two = [token, client[0], client[1]];
    assert!(refusal(&with_variables(&catalog(&two))).contains("one of them at most"));
    let signing = [
        ("FLOE_ICEBERG_CATALOG_SIGV4_SERVICE", "s3tables"),
        ("FLOE_STORE", "s3://bucket"),
        ("FLOE_STORE_REGION", "eu-west-1"),
        ("FLOE_STORE_ACCESS_KEY", "key"),
        ("FLOE_STORE_SECRET_KEY", "secret"),
    ];
    let signed = typed(&with_variables(&catalog(&signing))).unwrap().iceberg.rest.unwrap();
    let RestAuth::SigV4(keys) = signed.auth else { panic!("{:?}", signed.auth) };
    assert_eq!((keys.region.as_str(), keys.access_key.expose()), ("eu-west-1", "key"));
}

#[test]
fn rules_between_settings() {
    let s3 = ("store.url", "s3://bucket/a/b/");
    let endpoint = ("store.endpoint", "http://127.0.0.1:9000");
    for (flags, word) in [
        (vec![s3, endpoint], "store.allow_http"),
        (vec![endpoint, ("store.allow_http", "true")], "store.endpoint"),
        (vec![("metadata.schema", "a;b")], "metadata.schema"),
        (vec![("memory.cache_bytes", "99999999999")], "memory.budget_bytes"),
        (vec![("kafka.group.min.session.timeout.ms", "1800001")], "kafka.group.max"),
        (vec![("kafka.message.max.bytes", "104857601")], "kafka.socket.request.max.bytes"),
    ] {
        let message = refusal(&with_flags(&flags));
        assert!(message.contains(word), "{flags:?}: {message}");
    }
    for variable in ["FLOE_STORE_ACCESS_KEY", "FLOE_STORE_SECRET_KEY", "FLOE_METADATA_PASSWORD"] {
        assert!(refusal(&with_variables(&[(variable, "x")])).contains("setting"), "{variable}");
    }
    for (variables, word) in [
        (vec![("FLOE_ICEBERG_CLIENT_ID", "x")], "iceberg.client_secret"),
        (vec![("FLOE_ICEBERG_READ_ACCESS_KEY", "x")], "iceberg.read_secret_key"),
        (
            vec![("FLOE_ICEBERG_READ_ACCESS_KEY", "x"), ("FLOE_ICEBERG_READ_SECRET_KEY", "y")],
            "s3://",
        ),
        (
            vec![
                ("FLOE_STORE", "s3://bucket"),
                ("FLOE_STORE_ACCESS_KEY", "x"),
                ("FLOE_STORE_SECRET_KEY", "y"),
                ("FLOE_ICEBERG_READ_ACCESS_KEY", "x"),
                ("FLOE_ICEBERG_READ_SECRET_KEY", "y"),
            ],
            "the broker's own key",
        ),
        (vec![("FLOE_ICEBERG_CATALOG_TOKEN", "x")], "iceberg.catalog.uri"),
        (catalog(&[("FLOE_ICEBERG_CATALOG_ALLOW_HTTP", "false")]), "iceberg.catalog.allow_http"),
        (catalog(&[("FLOE_ICEBERG_CATALOG_CLIENT_ID", "x")]), "iceberg.catalog.client_secret"),
        (catalog(&[("FLOE_ICEBERG_CATALOG_ACCESS_KEY", "x")]), "iceberg.catalog.secret_key"),
        (catalog(&[("FLOE_ICEBERG_CATALOG_SIGV4_SERVICE", "glue")]), "keys that sign"),
    ] {
        let message = refusal(&with_variables(&variables));
        assert!(message.contains(word), "{variables:?}: {message}");
    }
    let config = typed(&with_flags(&[s3, endpoint, ("store.allow_http", "true")])).unwrap();
    assert_eq!(config.store.location.to_string(), "s3://bucket/a/b");
    assert_eq!(config.flush.interval, Duration::from_millis(250), "a remote store waits longer");
    assert_eq!(config.store.s3.path_style, Some(true), "an endpoint means path style");
}

/// Signing every byte once more costs twice what the rest of an upload does.
#[test]
fn payloads_are_unsigned_over_tls_and_elsewhere_by_consent_only() {
    let is_unsigned = |more: &[(&str, &str)]| {
        let flags = [&[("store.url", "s3://bucket"), ("store.allow_http", "true")], more].concat();
        typed(&with_flags(&flags)).unwrap().store.s3.unsigned_payload
    };
    let (tls, plain) =
        (("store.endpoint", "https://s3.example"), ("store.endpoint", "http://127.0.0.1:9"));
    assert_eq!((is_unsigned(&[tls]), is_unsigned(&[plain])), (Some(true), Some(false)));
    assert_eq!(is_unsigned(&[plain, ("store.unsigned_payload", "true")]), Some(true));
    assert_eq!(is_unsigned(&[tls, ("store.unsigned_payload", "false")]), Some(false));
}

/// The environment's endpoint is known to the store's client only: what follows from it, too.
#[test]
fn without_an_endpoint_nothing_is_said_of_it() {
    let s3 = typed(&with_flags(&[("store.url", "s3://bucket")])).unwrap().store.s3;
    assert_eq!((s3.path_style, s3.unsigned_payload), (None, None));
}

#[test]
fn defaults_follow_the_data_directory() {
    let config = typed(&with_flags(&[("data", "/var/lib/floe")])).unwrap();
    let store = StoreLocation::Directory(PathBuf::from("/var/lib/floe/store"));
    assert_eq!(config.store.location, store);
    assert_eq!(config.metadata.location.to_string(), "sqlite:/var/lib/floe/metadata.sqlite");
}

#[test]
fn the_example_of_the_page_is_a_configuration() {
    let page = page::markdown();
    let example = page.split("```").nth(1).unwrap().trim_start_matches("toml").to_owned();
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    std::fs::write(&key, SECRET).unwrap();
    let example = example.replace("/run/secrets/store", &key.display().to_string());
    let (_folder, mut inputs) = with_file(&example);
    inputs.environment.insert("FLOE_STORE_ACCESS_KEY".to_owned(), "id".to_owned());
    let config = typed(&inputs).unwrap();
    assert_eq!(config.kafka.num_partitions, 6);
    assert_eq!(config.store.location.to_string(), "s3://bucket/floe");
}

#[test]
fn the_page_is_up_to_date() {
    check_page("configuration.md", &page::markdown());
}

#[test]
fn settings_are_found_by_every_name() {
    assert_eq!(setting("kafka.broker.id").map(|found| found.name), Some("kafka.node.id"));
    assert!(setting("kafka").is_none());
    let files: Vec<String> = SETTINGS.iter().filter_map(Setting::file_name).collect();
    assert!(files.contains(&"metadata.password_file".to_owned()), "{files:?}");
}
