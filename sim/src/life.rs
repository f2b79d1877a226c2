//! One life of the broker: the product's own parts on faulty stores, put together as the process
//! does it, and how clients reach it.

use crate::calls::Link;
use crate::client::Connection;
use crate::cluster::{Cluster, State};
use crate::fault_metadata::FaultMetadata;
use crate::fault_store::FaultStore;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use floe::broker::{Broker, Identity, Stores};
use floe::connection;
use floe::metrics::Metrics;
use floe::node::{Jobs, agree_on_cluster};
use floe_env::simulated::Node;
use floe_env::{Env, Error, Lane, Result, Shutdown, ShutdownTrigger, Task};
use floe_iceberg_bridge::{Bridge, catalog};
use floe_metadata::MetadataStore;
use floe_store::{ObjectStore, RetryPolicy, Retrying};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes that a connection holds in each direction.
const PIPE_BYTES: usize = 64 << 10;
/// Bytes of an answer of the catalog.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// A life that listens, or did; clones are the same one.
#[derive(Clone)]
pub struct Living {
    /// Its broker.
    pub broker: Arc<Broker>,
    /// Its process.
    pub node: Node,
    /// Which start it is.
    pub life: u32,
    /// How often the power had been cut before it.
    pub cuts_before: u64,
    env: Env,
    bridge: Option<Bridge>,
    jobs: Arc<Mutex<Option<Jobs>>>,
    trigger: Arc<ShutdownTrigger>,
    is_replaced: Arc<AtomicBool>,
}

impl Living {
    /// A client's connection.
    pub fn connect(&self) -> Connection {
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        let (read, write) = tokio::io::split(theirs);
        let serving = connection::serve(self.broker.clone(), read, write, "client".into());
        self.env.spawn("connection", Lane::Foreground, serving);
        Connection::new(ours, self.is_replaced.clone())
    }

    /// Another one takes its place.
    pub fn was_replaced(&self) {
        self.is_replaced.store(true, Ordering::Relaxed);
    }

    /// True if another one has taken its place.
    pub fn is_replaced(&self) -> bool {
        self.is_replaced.load(Ordering::Relaxed)
    }

    /// Begins its end in order, as the process does it: jobs first.
    pub fn end(&self) -> Task<()> {
        self.trigger.trigger();
        let (broker, jobs) = (self.broker.clone(), self.jobs.lock().take());
        self.env.spawn("drain", Lane::Foreground, async move {
            if let Some(jobs) = jobs {
                jobs.join().await;
            }
            broker.drained().await;
        })
    }

    /// Asks the catalog. The answer's status and body; `None` where it has no catalog. It runs on
    /// the broker's node, and goes on if nobody waits for it.
    pub fn get(&self, path: &str) -> Option<Task<Result<(u16, Value)>>> {
        let router = catalog::router(self.bridge.clone()?);
        let request = Request::get(path).body(Body::empty());
        Some(self.env.spawn("catalog", Lane::Foreground, async move {
            let failed = |error: axum::Error| Error::bug("ask the catalog").with_source(error);
            let request = request.map_err(|error| failed(axum::Error::new(error)))?;
            // A router always answers.
            let Ok(answer) = TowerToHyperService::new(router).call(request).await;
            let status = answer.status().as_u16();
            let body = to_bytes(answer.into_body(), ANSWER_BYTES_MAX).await.map_err(failed)?;
            let body = serde_json::from_slice(&body);
            let body = body.map_err(|error| failed(axum::Error::new(error)))?;
            Ok((status, body))
        }))
    }
}

/// What a process does before it listens, with its jobs started.
pub(crate) async fn start_life(
    cluster: Cluster,
    link: Link,
    (trigger, shutdown): (ShutdownTrigger, Shutdown),
    cuts_before: u64,
) -> Result<Living> {
    let State { parts, .. } = &*cluster.0;
    let (node, life) = (link.node.clone(), link.life);
    let env = Env::simulated(node.clone());
    let objects = faulty_objects(&cluster, &link).await?;
    let bug = parts.plant.commit_bug(&env);
    let backend = FaultMetadata::new(link, parts.audit.clone(), parts.plant, bug);
    let metadata = MetadataStore::new(Arc::new(backend), env.clone());
    let id = agree_on_cluster(&env, objects.as_ref(), &metadata).await?;
    let identity = Identity {
        cluster: id,
        node_id: parts.config.kafka.node_id,
        host: "sim".to_owned(),
        port: 9092,
        rack: None,
    };
    let stores = Stores { objects: objects.clone(), metadata, is_remote: parts.is_remote };
    let (config, metrics) = (parts.config.clone(), Metrics::new());
    let broker = Broker::start(env.clone(), config, identity, stores, metrics, shutdown.clone());
    let broker = broker.await.map_err(|error: Error| error.context("start"))?;
    let jobs = Jobs::start(&broker, &objects, parts.rules, &shutdown);
    Ok(Living {
        broker,
        node,
        life,
        cuts_before,
        env,
        bridge: jobs.bridge.clone(),
        jobs: Arc::new(Mutex::new(Some(jobs))),
        trigger: Arc::new(trigger),
        is_replaced: Arc::default(),
    })
}

async fn faulty_objects(cluster: &Cluster, link: &Link) -> Result<Arc<dyn ObjectStore>> {
    let State { parts, numbers, .. } = &*cluster.0;
    let server = &parts.audit.objects;
    let faulty = FaultStore {
        link: link.clone(),
        objects: server.for_life(&link.node).await?,
        audit: parts.audit.clone(),
        plant: parts.plant,
        renumbered: parts.plant.renumbered(server, numbers).await,
    };
    let env = Env::simulated(link.node.clone());
    Ok(Arc::new(Retrying::new(env, Arc::new(faulty), RetryPolicy::default())))
}
