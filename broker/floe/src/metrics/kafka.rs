//! Requests of Kafka clients, by api.

use super::registrar::{Histograms, Registrar};
use floe_wire::{ApiKey, ErrorCode};
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use std::fmt::Write;
use std::sync::OnceLock;
use std::time::Duration;

/// Kafka's api keys are less than this; whatever is not counts under one other key.
const API_KEYS_MAX: usize = 128;
/// The slot of api keys that do not exist.
const OTHER_API: i16 = -1;

/// A label that is an api's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ApiLabel(i16);

impl EncodeLabelValue for ApiLabel {
    fn encode(&self, encoder: &mut LabelValueEncoder) -> Result<(), std::fmt::Error> {
        match ApiKey::try_from(self.0) {
            Ok(api) => write!(encoder, "{api:?}"),
            Err(_) => encoder.write_str("other"),
        }
    }
}

/// A label that is an error's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ErrorLabel(ErrorCode);

impl EncodeLabelValue for ErrorLabel {
    fn encode(&self, encoder: &mut LabelValueEncoder) -> Result<(), std::fmt::Error> {
        encoder.write_str(self.0.name())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ApiLabels {
    api: ApiLabel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    api: ApiLabel,
    error: ErrorLabel,
}

/// Requests of Kafka clients.
pub struct KafkaMetrics {
    requests: Family<ApiLabels, Counter>,
    errors: Family<ErrorLabels, Counter>,
    seconds: Histograms<ApiLabels>,
    request_bytes: Family<ApiLabels, Counter>,
    response_bytes: Family<ApiLabels, Counter>,
    /// Handles by api key; the last is that of all others.
    apis: Vec<OnceLock<ApiMetrics>>,
    /// Connections that are open.
    pub connections: Gauge,
    /// Connections that were ever opened.
    pub connections_opened: Counter,
    /// Connections that were closed because of a limit or of bytes that are no request.
    pub connections_refused: Counter,
    /// Bytes that connections hold in requests and answers.
    pub memory_held_bytes: Gauge,
}

/// Requests of one api.
#[derive(Clone, Debug)]
pub struct ApiMetrics {
    requests: Counter,
    seconds: Histogram,
    request_bytes: Counter,
    response_bytes: Counter,
}

impl ApiMetrics {
    /// Records an answered request: its latency from the frame's end to the answer's queueing, and
    /// the frames' bytes with their length fields.
    pub fn answered(&self, latency: Duration, request_bytes: usize, response_bytes: usize) {
        self.requests.inc();
        self.seconds.observe(latency.as_secs_f64());
        self.request_bytes.inc_by(request_bytes as u64);
        self.response_bytes.inc_by(response_bytes as u64);
    }
}

impl KafkaMetrics {
    pub(super) fn register(registrar: &mut Registrar) -> Self {
        let api = &["api"];
        Self {
            requests: registrar.counters("kafka_requests", api, "Requests answered."),
            errors: registrar.counters(
                "kafka_errors",
                &["api", "error"],
                "Error codes in answers, each topic's and partition's counted.",
            ),
            seconds: registrar.histograms(
                "kafka_request_seconds",
                api,
                "Time from a request's last byte to its answer, with the wait that the client \
                 asked for.",
            ),
            request_bytes: registrar.counters("kafka_request_bytes", api, "Bytes of requests."),
            response_bytes: registrar.counters("kafka_response_bytes", api, "Bytes of answers."),
            apis: (0..=API_KEYS_MAX).map(|_| OnceLock::new()).collect(),
            connections: registrar.gauge("kafka_connections", "Open connections of Kafka clients."),
            connections_opened: registrar
                .counter("kafka_connections_opened", "Connections of Kafka clients ever opened."),
            connections_refused: registrar.counter(
                "kafka_connections_refused",
                "Connections closed because of a limit or of bytes that are no request.",
            ),
            memory_held_bytes: registrar.gauge(
                "kafka_memory_held_bytes",
                "Memory that connections hold in requests and answers.",
            ),
        }
    }

    /// The handles of an api; cheap, but a connection may well keep them.
    pub fn api(&self, key: i16) -> &ApiMetrics {
        let known = known_key(key);
        let slot = usize::try_from(known).unwrap_or(API_KEYS_MAX).min(API_KEYS_MAX);
        self.apis[slot].get_or_init(|| {
            let labels = ApiLabels { api: ApiLabel(known) };
            ApiMetrics {
                requests: self.requests.get_or_create_owned(&labels),
                seconds: self.seconds.get_or_create_owned(&labels),
                request_bytes: self.request_bytes.get_or_create_owned(&labels),
                response_bytes: self.response_bytes.get_or_create_owned(&labels),
            }
        })
    }

    /// Counts an error code of an answer; success is none.
    pub fn error(&self, key: i16, error: ErrorCode) {
        if error.is_none() {
            return;
        }
        let labels = ErrorLabels { api: ApiLabel(known_key(key)), error: ErrorLabel(error) };
        self.errors.get_or_create(&labels).inc();
    }
}

/// The key, or [`OTHER_API`] where Kafka has no such api.
fn known_key(key: i16) -> i16 {
    if ApiKey::try_from(key).is_ok() { key } else { OTHER_API }
}
