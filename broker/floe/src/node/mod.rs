//! A broker as a process: opens its stores, serves Kafka and HTTP, runs the background jobs, and
//! ends in order.

mod bridge_log;
mod export;
mod inspect;
mod jobs;
mod late;
mod listener;
mod read_keys;
mod reconcile;
mod stores;

pub use bridge_log::BridgeLog;
pub use jobs::{JobRules, Jobs};
pub use stores::agree_on_cluster;

use crate::broker::{Broker, Identity};
use crate::cli::{Assembly, Backup, Endpoints, Reconciliation, Serving, SnapshotView};
use crate::config::Config;
use crate::http::{self, Readiness, Routes};
use crate::metrics::{Metrics, set_total};
use crate::snapshots::Snapshots;
use async_trait::async_trait;
use floe_env::{Env, Error, Lane, Result, Shutdown, shutdown_signal};
use floe_iceberg_bridge::relocate::Tables;
use floe_iceberg_bridge::{Bridge, RecoveredTable, catalog, check_catalog};
use floe_log::SnapshotMoment;
use floe_metadata::MetadataStore;
use floe_store::read_identity;
use inspect::BrokerInspect;
use kfs::ClusterId;
use std::sync::Arc;
use stores::Objects;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Puts a broker together from its parts.
#[derive(Clone, Copy, Debug)]
pub struct Node;

#[async_trait]
impl Assembly for Node {
    async fn serve(&self, serving: Serving) -> Result<()> {
        let Serving { env, config, metrics, shutdown: asked, announce } = serving;
        let (trigger, shutdown) = shutdown_signal();
        let kafka = listener::bind(&config.listen.kafka.to_string()).await?;
        let http = listener::bind(&config.listen.http.to_string()).await?;
        let objects = stores::open_objects(&env, &config).await?;
        export::observe_store(&metrics, &objects.counters);
        floe_store::probe(&env, objects.probed.as_ref()).await?;
        let metadata = stores::open_metadata(&env, &config).await?;
        let cluster = agree_on_cluster(&env, objects.store.as_ref(), &metadata).await?;
        stores::check_incarnation(objects.store.as_ref(), &metadata).await?;
        tables(&env, &objects, &metadata, cluster).check_address().await?;
        read_keys::check(&env, &config, cluster, objects.store.as_ref()).await?;
        let endpoints = Endpoints { kafka: local(&kafka)?, http: local(&http)? };
        let identity = identity(&config, &endpoints, cluster);
        let stores = stores::stores(&config, &objects, &metadata);
        let broker = Broker::start(
            env.clone(),
            config.clone(),
            identity,
            stores,
            metrics.clone(),
            shutdown.clone(),
        )
        .await?;
        let rules = JobRules::product(config.store.location.is_remote());
        let jobs = Jobs::start(&broker, &objects.store, rules, &shutdown);
        let (bridge, snapshots) = (jobs.bridge.clone(), jobs.snapshots.clone());
        export(&metrics, &broker, bridge.as_ref());
        export_jobs(&metrics, &jobs);
        let (ready, readiness) = watch::channel(Readiness::Ready);
        let inspect = Arc::new(BrokerInspect {
            broker: broker.clone(),
            bridge: bridge.clone(),
            retention: jobs.retention.clone(),
            compactor: jobs.compactor.clone(),
            objects: objects.store.clone(),
            http: endpoints.http.to_string(),
            started: env.monotonic(),
        });
        let routes = Routes { readiness, metrics: metrics.clone(), inspect };
        // Another catalog has the tables: there is nothing to serve.
        let own_catalog = bridge.filter(|bridge| bridge.config().rest.is_none());
        let router = http::router(routes, own_catalog.map(catalog::router));
        let serving_http = http::serve(env.clone(), http, router, shutdown.clone());
        let http_task = env.spawn("http", Lane::Foreground, serving_http);
        announce(&endpoints);
        let serving = listener::serve(broker.clone(), kafka);
        let serving = env.spawn("kafka listener", Lane::Foreground, serving);
        told_to_stop(&asked, &broker).await;
        trigger.trigger();
        // A listener that ended by a panic has logged it.
        let _ = serving.await;
        ready.send_replace(Readiness::NotReady("the broker is shutting down".to_owned()));
        // Jobs first: what they still write is fenced by the registration that is given up then.
        jobs.join().await;
        let kept_its_place = broker.drained().await;
        if let Some(snapshots) = snapshots
            && kept_its_place
        {
            snapshots.take_last().await;
        }
        // Whatever it still answers, nothing waits for it.
        let _ = http_task.await;
        if !kept_its_place {
            return Err(Error::fenced("another broker has taken this one's place"));
        }
        Ok(())
    }

    async fn check_store(&self, env: &Env, config: &Config) -> Result<String> {
        let objects = stores::open_objects(env, config).await?;
        floe_store::probe(env, objects.probed.as_ref()).await?;
        Ok("writes, reads, lists and deletes".to_owned())
    }

    async fn check_metadata(&self, env: &Env, config: &Config) -> Result<String> {
        let metadata = stores::open_metadata(env, config).await?;
        let topics = metadata.topics().await?.len();
        Ok(match metadata.cluster_id().await? {
            Some(cluster) => format!("cluster {cluster}, {topics} topics"),
            None => "new: no cluster yet".to_owned(),
        })
    }

    async fn check_catalog(&self, env: &Env, config: &Config) -> Result<Option<String>> {
        let iceberg = &config.iceberg;
        match iceberg.rest.as_ref().filter(|_| iceberg.enable) {
            Some(rest) => check_catalog(env, rest, &iceberg.namespace).await.map(Some),
            None => Ok(None),
        }
    }

    async fn reconcile(
        &self,
        env: &Env,
        config: &Config,
        allows_deletion: bool,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<Reconciliation> {
        let objects = stores::open_objects(env, config).await?;
        let metadata = stores::open_metadata(env, config).await?;
        let store = objects.store.as_ref();
        let mut found = reconcile::compare(store, &metadata, progress).await?;
        found.kept = late::kept(&metadata, config, progress).await?;
        found.deletion = reconcile::deletion(&metadata, allows_deletion).await?;
        Ok(found)
    }

    async fn restore(
        &self,
        env: &Env,
        config: &Config,
        backup: &Backup,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<String> {
        let objects = stores::open_objects(env, config).await?;
        let store = objects.store.as_ref();
        stores::put_back(env, config, store, backup, progress).await?;
        let metadata = stores::open_metadata(env, config).await?;
        let reason = "the metadata was put back from a backup";
        // Tables in another catalog did not go back with it.
        floe_iceberg_bridge::note_log_ends(&metadata).await?;
        stores::begin_incarnation(env, store, &metadata, reason).await
    }

    async fn snapshots(&self, env: &Env, config: &Config) -> Result<Vec<SnapshotView>> {
        let objects = stores::open_objects(env, config).await?;
        crate::snapshots::views(objects.store.as_ref()).await
    }

    async fn recover_tables(
        &self,
        env: &Env,
        config: &Config,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<Vec<RecoveredTable>> {
        let objects = stores::open_objects(env, config).await?;
        let metadata = stores::open_metadata(env, config).await?;
        let store = objects.store.as_ref();
        let cluster = stores::adopt_cluster(env, store, &metadata).await?;
        let namespace = &config.iceberg.namespace;
        floe_iceberg_bridge::recover(env, store, &metadata, (cluster, namespace), progress).await
    }

    async fn relocate(
        &self,
        env: &Env,
        config: &Config,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<String> {
        let objects = stores::open_objects(env, config).await?;
        let metadata = stores::open_metadata(env, config).await?;
        let identity = read_identity(objects.store.as_ref()).await?;
        let cluster = metadata.cluster_id().await?;
        let cluster = cluster.filter(|here| identity.is_some_and(|there| there.cluster == here.0));
        let cluster =
            cluster.ok_or_else(|| Error::invalid("the two stores are not of one cluster"))?;
        let done = tables(env, &objects, &metadata, cluster).relocate(progress).await?;
        Ok(format!("{} tables are at home here now, with {} new files.", done.tables, done.files))
    }
}

fn tables(env: &Env, objects: &Objects, metadata: &MetadataStore, cluster: ClusterId) -> Tables {
    let (env, store, metadata) = (env.clone(), objects.store.clone(), metadata.clone());
    Tables { env, store, metadata, cluster }
}

fn identity(config: &Config, endpoints: &Endpoints, cluster: ClusterId) -> Identity {
    let advertised = config.listen.advertised(endpoints.kafka);
    Identity {
        cluster,
        node_id: config.kafka.node_id,
        host: advertised.host,
        port: advertised.port,
        rack: config.kafka.broker_rack.clone(),
    }
}

/// Shows how the background jobs are doing.
fn export_jobs(metrics: &Metrics, jobs: &Jobs) {
    let (monitors, cleaner) = (jobs.monitors(), jobs.cleaner.clone());
    let (retention, compactor) = (jobs.retention.clone(), jobs.compactor.clone());
    let snapshot = jobs.snapshots.as_ref().map(Snapshots::moment);
    metrics.on_scrape(move |families| {
        families.jobs.deletion_stopped.set(i64::from(cleaner.is_stopped()));
        export::export_retention(&families.retention, &retention);
        export::export_compaction(&families.compaction, &compactor);
        let taken_ms = snapshot.as_ref().and_then(SnapshotMoment::get).unwrap_or(0);
        families.metadata.snapshot_time.set(taken_ms / 1000);
        for monitor in &monitors {
            families.jobs.set(monitor.name(), &monitor.status());
        }
    });
}

/// Waits until somebody asks for the end, or another broker has taken this one's place.
async fn told_to_stop(asked: &Shutdown, broker: &Broker) {
    tokio::select! {
        () = asked.wait() => {}
        () = broker.log.fenced() => {
            tracing::error!("stopping: another broker has taken this one's place");
        }
    }
}

/// Brings what others count into the metrics whenever they are asked for.
fn export(metrics: &Metrics, broker: &Arc<Broker>, bridge: Option<&Bridge>) {
    let (broker, bridge) = (broker.clone(), bridge.cloned());
    metrics.on_scrape(move |families| {
        families.kafka.memory_held_bytes.set(broker.connection_bytes_held());
        families.process.memory_counted_bytes.set(broker.memory_counted_bytes());
        let cache = broker.log.cache_stats();
        set_total(&families.cache.hits, cache.hits);
        set_total(&families.cache.misses, cache.misses);
        set_total(&families.cache.evictions, cache.evictions);
        families.cache.held_bytes.set(i64::try_from(cache.memory_bytes).unwrap_or(i64::MAX));
        export::export_metadata(&families.metadata, &broker.metadata.change_counts());
        if let Some(bridge) = &bridge {
            export::export_tables(&families.tables, bridge);
            export::export_upkeep(&families.upkeep, bridge);
            export::export_decoding(&families.decoding, bridge);
        }
    });
}

fn local(listener: &TcpListener) -> Result<std::net::SocketAddr> {
    listener
        .local_addr()
        .map_err(|error| Error::bug("a listener without an address").with_source(error))
}
