use super::*;
use crate::text::check_page;
use floe_wire::ErrorCode;
use std::time::Duration;

fn has_line(text: &str, line: &str) -> bool {
    text.lines().any(|found| found == line)
}

#[test]
fn answers_in_the_text_format() {
    let metrics = Metrics::new();
    metrics.kafka.api(0).answered(Duration::from_millis(3), 100, 50);
    metrics.kafka.api(0).answered(Duration::from_millis(30), 200, 50);
    metrics.kafka.error(0, ErrorCode::from_code(3).expect("3 is known"));
    metrics.kafka.error(0, ErrorCode::from_code(0).expect("0 is known"));
    metrics.log.cut(CutReason::Time, 5000);
    metrics.store.request(RequestKind::Put, RequestOutcome::Ok, Duration::from_millis(20), 5000);

    let text = metrics.encode().unwrap();
    for line in [
        "# TYPE floe_kafka_requests_total counter",
        "floe_kafka_requests_total{api=\"Produce\"} 2",
        "floe_kafka_request_bytes_total{api=\"Produce\"} 300",
        "floe_kafka_errors_total{api=\"Produce\",error=\"UNKNOWN_TOPIC_OR_PARTITION\"} 1",
        "floe_kafka_request_seconds_count{api=\"Produce\"} 2",
        "floe_log_segments_cut_total{reason=\"time\"} 1",
        "floe_log_segments_cut_total{reason=\"full\"} 0",
        "floe_log_segment_bytes_bucket{le=\"16384\"} 1",
        "floe_store_requests_total{kind=\"put\",outcome=\"ok\"} 1",
        "floe_store_bytes_total{kind=\"put\"} 5000",
    ] {
        assert!(has_line(&text, line), "no line {line} in\n{text}");
    }
    assert!(!text.contains("error=\"NONE\""), "success is no error");
}

/// The rules of the format: every series follows the description of its family, once.
#[test]
fn every_series_has_a_help_and_a_type() {
    let metrics = Metrics::new();
    metrics.kafka.api(3).answered(Duration::from_millis(1), 1, 1);
    metrics.tables.table("kafka.orders").set_state(TableState::Degraded);
    let text = metrics.encode().unwrap();
    let mut family = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type line has a name and a type");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            family = name;
            continue;
        }
        if line.starts_with('#') {
            assert!(line.starts_with("# HELP floe_") && line.ends_with('.'), "{line}");
            assert!(!line.ends_with(".."), "{line}");
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect("a series has a value");
        assert!(series.starts_with(family), "{line} stands under {family}");
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }
    assert!(text.ends_with('\n'));
}

#[test]
fn unknown_apis_share_one_series() {
    let metrics = Metrics::new();
    for key in [-5, 127, 128, 30_000] {
        metrics.kafka.api(key).answered(Duration::ZERO, 1, 1);
        metrics.kafka.error(key, ErrorCode::from_code(35).expect("35 is known"));
    }
    let text = metrics.encode().unwrap();
    assert!(has_line(&text, "floe_kafka_requests_total{api=\"other\"} 4"), "{text}");
    let errors = "floe_kafka_errors_total{api=\"other\",error=\"UNSUPPORTED_VERSION\"} 4";
    assert!(has_line(&text, errors), "{text}");
}

#[test]
fn tables_come_and_go() {
    let metrics = Metrics::new();
    let orders = metrics.tables.table("kafka.orders");
    orders.set_lag(7, 1.5);
    orders.set_state(TableState::Stopped);
    let text = metrics.encode().unwrap();
    for line in [
        "floe_table_lag_records{table=\"kafka.orders\"} 7",
        "floe_table_lag_seconds{table=\"kafka.orders\"} 1.5",
        "floe_table_state{table=\"kafka.orders\",state=\"stopped\"} 1",
        "floe_table_state{table=\"kafka.orders\",state=\"running\"} 0",
    ] {
        assert!(has_line(&text, line), "no line {line} in\n{text}");
    }
    metrics.tables.table("kafka.kept").set_small_file_ratio(None);
    metrics.tables.keep_only(&["kafka.kept"].into());
    let text = metrics.encode().unwrap();
    assert!(!text.contains("kafka.orders"), "{text}");
    assert!(has_line(&text, "floe_table_small_file_ratio{table=\"kafka.kept\"} NaN"), "{text}");
}

#[test]
fn the_number_of_tables_with_series_is_bounded() {
    let metrics = Metrics::new();
    for table in 0..10_005 {
        metrics.tables.table(&format!("kafka.t{table}")).set_lag(1, 1.0);
    }
    metrics.tables.table("kafka.t0").set_lag(2, 2.0);
    let text = metrics.encode().unwrap();
    let listed = text.lines().filter(|line| line.starts_with("floe_table_lag_records{"));
    assert_eq!(listed.count(), 10_000);
    assert!(has_line(&text, "floe_tables_unlisted 5"));
    assert!(has_line(&text, "floe_table_lag_records{table=\"kafka.t0\"} 2"));
}

#[test]
fn copies_what_is_counted_elsewhere_when_asked() {
    let metrics = Metrics::new();
    metrics.on_scrape(|families| {
        let status = floe_env::BackgroundStatus {
            rounds: 5,
            failures: 2,
            last_error: Some("store unreachable".to_owned()),
        };
        families.jobs.set("merge", &status);
        set_total(&families.cache.hits, 42);
    });
    let text = metrics.encode().unwrap();
    for line in [
        "floe_job_rounds_total{job=\"merge\"} 5",
        "floe_job_failures_total{job=\"merge\"} 2",
        "floe_job_failing{job=\"merge\"} 1",
        "floe_cache_hits_total 42",
    ] {
        assert!(has_line(&text, line), "no line {line} in\n{text}");
    }
}

#[test]
fn shows_the_memory_of_the_process() {
    let text = Metrics::new().encode().unwrap();
    let line = text.lines().find(|line| line.starts_with("floe_process_resident_bytes "));
    let bytes: f64 = line.unwrap().rsplit_once(' ').unwrap().1.parse().unwrap();
    assert!(bytes > 1e6, "a test process has over a megabyte: {bytes}");
}

#[test]
fn the_page_is_up_to_date() {
    check_page("metrics.md", &Metrics::new().markdown());
}
