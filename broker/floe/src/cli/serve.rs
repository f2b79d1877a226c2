//! `floe serve`: runs a broker until a signal.

use super::arguments::ServeArguments;
use super::assembly::{Assembly, Endpoints, Serving};
use super::{Outcome, logging, print, runtime};
use crate::config::Config;
use crate::metrics::Metrics;
use floe_env::{Env, Error, Lane, Result, ShutdownTrigger, shutdown_signal};
use std::sync::Arc;
use tokio::signal::unix::{Signal, SignalKind, signal};

pub(super) fn run(arguments: ServeArguments, assembly: Arc<dyn Assembly>) -> Outcome {
    let config = Arc::new(arguments.settings.config()?);
    logging::start(&config.log_filter)?;
    warn_of_openness(&config);
    runtime::run_broker(|env| serve(env, config, assembly))??;
    Ok(())
}

async fn serve(env: Env, config: Arc<Config>, assembly: Arc<dyn Assembly>) -> Result<()> {
    let (trigger, shutdown) = shutdown_signal();
    let signals = Signals::new()?;
    env.spawn("signals", Lane::Foreground, signals.watch(trigger));
    let metrics = Metrics::new();
    let budget_bytes = i64::try_from(config.memory.budget_bytes).unwrap_or(i64::MAX);
    metrics.process.memory_budget_bytes.set(budget_bytes);
    let announced = config.clone();
    let announce = Box::new(move |endpoints: &Endpoints| {
        // Whoever closed standard output does not want to know.
        let _ = print(&announcement(&announced, endpoints));
    });
    let serving = Serving { env, config, metrics, shutdown, announce };
    assembly.serve(serving).await
}

/// The signals that end a broker.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> Result<Self> {
        let listen = |kind| {
            signal(kind).map_err(|error| Error::bug("cannot listen for signals").with_source(error))
        };
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// The first signal begins an orderly end, a second one ends the process at once: whatever was
    /// acknowledged is safe either way.
    async fn watch(mut self, trigger: ShutdownTrigger) {
        self.next().await;
        tracing::info!("stopping; a second signal stops at once");
        trigger.trigger();
        self.next().await;
        std::process::exit(i32::from(super::FAILURE));
    }
}

fn warn_of_openness(config: &Config) {
    let addresses = [("kafka", &config.listen.kafka), ("http", &config.listen.http)];
    for (protocol, address) in addresses {
        if !address.is_loopback() {
            tracing::warn!(
                protocol,
                %address,
                "listening without authentication: whoever reaches this address can read and \
                 delete everything"
            );
        }
    }
}

/// What a user wants to know once the broker serves.
pub(super) fn announcement(config: &Config, endpoints: &Endpoints) -> String {
    let (kafka, http) = (endpoints.kafka, endpoints.http);
    let advertised = config.listen.advertised(kafka);
    let mut text = format!("Floe {} is ready.\n", env!("CARGO_PKG_VERSION"));
    text.push_str(&format!("  Kafka     {kafka}\n"));
    if advertised.to_string() != kafka.to_string() {
        text.push_str(&format!("            clients are told {advertised}\n"));
    }
    text.push_str(&format!("  HTTP      http://{http}/\n"));
    match &config.iceberg.rest {
        _ if !config.iceberg.enable => {}
        Some(catalog) => text.push_str(&format!("  Iceberg   {}\n", catalog.uri)),
        None => text.push_str(&format!("  Iceberg   http://{http}/iceberg\n")),
    }
    text.push_str(&format!("  store     {}\n", config.store.location));
    text.push_str(&format!("  metadata  {}\n", config.metadata.location));
    text
}
