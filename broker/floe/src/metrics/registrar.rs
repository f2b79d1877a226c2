//! Registers families and remembers their descriptions.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry};

/// What begins every name.
const PREFIX: &str = "floe";

/// What is known of one family.
#[derive(Clone, Debug)]
pub(super) struct Described {
    /// Full name, as in the answer.
    pub(super) name: String,
    /// counter, gauge or histogram.
    pub(super) kind: &'static str,
    /// Label names.
    pub(super) labels: &'static [&'static str],
    /// What it measures.
    pub(super) help: &'static str,
}

/// A histogram's buckets.
#[derive(Clone, Copy, Debug)]
pub(super) enum Buckets {
    /// 0.5 ms to 16 s, each twice the one before.
    Latency,
    /// 4 KiB to 256 MiB, each four times the one before.
    Sizes,
}

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        match self {
            Self::Latency => Histogram::new(exponential_buckets(0.0005, 2.0, 16)),
            Self::Sizes => Histogram::new(exponential_buckets(4096.0, 4.0, 9)),
        }
    }
}

/// A family of histograms.
pub(super) type Histograms<S> = Family<S, Histogram, Buckets>;

/// Gives an enum the names that it has as a label's value.
macro_rules! label_values {
    ($name:ident { $($variant:ident => $text:literal),* $(,)? }) => {
        impl prometheus_client::encoding::EncodeLabelValue for $name {
            fn encode(
                &self,
                encoder: &mut prometheus_client::encoding::LabelValueEncoder,
            ) -> Result<(), std::fmt::Error> {
                let text = match self { $(Self::$variant => $text),* };
                std::fmt::Write::write_str(encoder, text)
            }
        }
    };
}
pub(super) use label_values;

/// Collects families. Names are without the prefix, and counters' without `_total`.
pub(super) struct Registrar {
    registry: Registry,
    described: Vec<Described>,
}

impl Registrar {
    pub(super) fn new() -> Self {
        Self { registry: Registry::with_prefix(PREFIX), described: Vec::new() }
    }

    pub(super) fn into_parts(self) -> (Registry, Vec<Described>) {
        (self.registry, self.described)
    }

    fn add<M: Metric + Clone>(
        &mut self,
        (name, kind): (&'static str, &'static str),
        labels: &'static [&'static str],
        help: &'static str,
        metric: M,
    ) -> M {
        let suffix = if kind == "counter" { "_total" } else { "" };
        let full_name = format!("{PREFIX}_{name}{suffix}");
        self.described.push(Described { name: full_name, kind, labels, help });
        // The registry adds the full stop itself.
        self.registry.register(name, help.trim_end_matches('.'), metric.clone());
        metric
    }

    pub(super) fn counter(&mut self, name: &'static str, help: &'static str) -> Counter {
        self.add((name, "counter"), &[], help, Counter::default())
    }

    pub(super) fn counters<M: Metric + Clone + Default>(
        &mut self,
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> M {
        self.add((name, "counter"), labels, help, M::default())
    }

    pub(super) fn gauge(&mut self, name: &'static str, help: &'static str) -> Gauge {
        self.add((name, "gauge"), &[], help, Gauge::default())
    }

    pub(super) fn gauges<M: Metric + Clone + Default>(
        &mut self,
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> M {
        self.add((name, "gauge"), labels, help, M::default())
    }

    pub(super) fn histogram(
        &mut self,
        name: &'static str,
        buckets: Buckets,
        help: &'static str,
    ) -> Histogram {
        self.add((name, "histogram"), &[], help, buckets.new_metric())
    }

    pub(super) fn histograms<S>(
        &mut self,
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Histograms<S>
    where
        Histograms<S>: Metric,
        S: Clone + std::hash::Hash + Eq,
    {
        let family = Histograms::new_with_constructor(Buckets::Latency);
        self.add((name, "histogram"), labels, help, family)
    }
}
