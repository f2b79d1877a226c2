//! A broker without sockets and a client that encodes with the message layer's client side.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use floe::broker::{Broker, Identity, Stores};
use floe::config::{Config, Inputs, Machine, resolve};
use floe::connection;
use floe::metrics::Metrics;
use floe_env::{Env, Lane, ShutdownTrigger, shutdown_signal};
use floe_metadata::{Backend, MetadataStore, ModelBackend};
use floe_store::MemoryStore;
use floe_wire::messages::{
    ApiKey, Encodable, RequestHeader, RequestKind, ResponseHeader, ResponseKind, StrBytes,
};
use kfs::ClusterId;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

/// A running broker.
pub(crate) struct Rig {
    pub(crate) env: Env,
    pub(crate) broker: Arc<Broker>,
    pub(crate) trigger: ShutdownTrigger,
}

impl Rig {
    /// A broker with the default settings.
    pub(crate) async fn start() -> Self {
        let env = Env::current();
        let backend: Arc<dyn Backend> = Arc::new(ModelBackend::new(env.clone()));
        let metadata = MetadataStore::new(backend, env.clone());
        let cluster = ClusterId(env.uuid());
        metadata.initialise_cluster(cluster).await.expect("a new store");
        let inputs = Inputs {
            flags: Vec::new(),
            environment: BTreeMap::new(),
            file: None,
            machine: Machine { memory_bytes: 1 << 30 },
        };
        let resolved = resolve(&inputs).expect("the defaults");
        let config = Arc::new(Config::from_resolved(&resolved).expect("the defaults"));
        let identity =
            Identity { cluster, node_id: 1, host: "127.0.0.1".to_owned(), port: 9092, rack: None };
        let stores = Stores { objects: Arc::new(MemoryStore::new()), metadata, is_remote: false };
        let (trigger, shutdown) = shutdown_signal();
        let broker = Broker::start(env.clone(), config, identity, stores, Metrics::new(), shutdown)
            .await
            .expect("the broker starts");
        Self { env, broker, trigger }
    }

    /// A new connection.
    pub(crate) fn connect(&self) -> Client {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let (read, write) = tokio::io::split(theirs);
        let serving = connection::serve(self.broker.clone(), read, write, "127.0.0.1".into());
        self.env.spawn("connection", Lane::Foreground, serving);
        Client { stream: ours, next_correlation: 1 }
    }

    /// Makes a topic, and answers its id.
    pub(crate) async fn create_topic(&self, name: &str, partitions: i32) -> uuid::Uuid {
        let created = self.broker.metadata.create_topic(name, partitions, 1, BTreeMap::new());
        created.await.expect("a new topic");
        self.broker.topics.refresh().await.expect("topics");
        self.broker.topics.by_name(name).expect("it is there").topic.id.0
    }
}

/// One connection.
pub(crate) struct Client {
    pub(crate) stream: DuplexStream,
    next_correlation: i32,
}

impl Client {
    /// Sends a request and gives its correlation id.
    pub(crate) async fn send(&mut self, api: ApiKey, version: i16, request: &RequestKind) -> i32 {
        let correlation = self.next_correlation;
        self.next_correlation += 1;
        let frame = frame(api, version, correlation, request);
        self.stream.write_all(&frame).await.expect("the broker reads");
        correlation
    }

    /// The next answer's body, without its header, or `None` where the broker closes the
    /// connection.
    pub(crate) async fn receive(
        &mut self,
        api: ApiKey,
        version: i16,
        correlation: i32,
    ) -> Option<Bytes> {
        let length = self.stream.read_i32().await.ok()?;
        let mut frame = vec![0; usize::try_from(length).expect("a length")];
        self.stream.read_exact(&mut frame).await.ok()?;
        let mut frame = Bytes::from(frame);
        let header_version = api.response_header_version(version);
        let header =
            <ResponseHeader as floe_wire::messages::Decodable>::decode(&mut frame, header_version)
                .expect("a response header");
        assert_eq!(header.correlation_id, correlation, "answers leave in order");
        Some(frame)
    }

    /// Sends a request and decodes its answer.
    pub(crate) async fn call(
        &mut self,
        api: ApiKey,
        version: i16,
        request: RequestKind,
    ) -> ResponseKind {
        let correlation = self.send(api, version, &request).await;
        let body = self.receive(api, version, correlation).await;
        let mut body = body.unwrap_or_else(|| panic!("{api:?} v{version} closed the connection"));
        let response = ResponseKind::decode(api, &mut body, version)
            .unwrap_or_else(|error| panic!("{api:?} v{version}: {error:#}"));
        assert!(!body.has_remaining(), "{api:?} v{version}: bytes behind the answer");
        response
    }

    /// True once the broker has closed the connection.
    pub(crate) async fn is_closed(&mut self) -> bool {
        matches!(self.stream.read(&mut [0; 1]).await, Ok(0) | Err(_))
    }
}

/// A request's whole frame.
pub(crate) fn frame(api: ApiKey, version: i16, correlation: i32, request: &RequestKind) -> Bytes {
    let header = RequestHeader::default()
        .with_request_api_key(api as i16)
        .with_request_api_version(version)
        .with_correlation_id(correlation)
        .with_client_id(Some(StrBytes::from_static_str("protocol-test")));
    let mut body = BytesMut::new();
    header.encode(&mut body, api.request_header_version(version)).expect("a header");
    request.encode(&mut body, version).unwrap_or_else(|error| {
        panic!("the sample of {api:?} v{version} cannot be encoded: {error:#}")
    });
    let mut frame = BytesMut::with_capacity(body.len() + 4);
    frame.put_i32(i32::try_from(body.len()).expect("a small frame"));
    frame.extend_from_slice(&body);
    frame.freeze()
}
