//! A broker without sockets and a client that encodes with the message layer's client side.

use crate::samples::SampleTopic;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use floe::broker::{Broker, Identity, Stores};
use floe::config::{Config, Inputs, Machine, resolve};
use floe::connection;
use floe::metrics::Metrics;
use floe_env::{Env, Lane, ShutdownTrigger, shutdown_signal};
use floe_metadata::{MetadataStore, ModelBackend};
use floe_store::MemoryStore;
use floe_wire::messages::produce_response::PartitionProduceResponse;
use floe_wire::messages::{
    ApiKey, Encodable, FetchResponse, RequestHeader, RequestKind, ResponseHeader, ResponseKind,
    StrBytes,
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
    pub(crate) model: Arc<ModelBackend>,
    pub(crate) objects: Arc<MemoryStore>,
}

impl Rig {
    /// A broker with the default settings.
    pub(crate) async fn start() -> Self {
        Self::start_on(1 << 30).await
    }

    /// A broker on a machine with this much memory.
    pub(crate) async fn start_on(memory_bytes: u64) -> Self {
        Self::start_in(Env::current(), memory_bytes).await
    }

    /// A broker with a clock of its own.
    pub(crate) async fn start_in(env: Env, memory_bytes: u64) -> Self {
        let model = Arc::new(ModelBackend::new(env.clone()));
        let metadata = MetadataStore::new(model.clone(), env.clone());
        let cluster = ClusterId(env.uuid());
        metadata.initialise_cluster(cluster).await.expect("a new store");
        let inputs = Inputs {
            flags: Vec::new(),
            environment: BTreeMap::new(),
            file: None,
            machine: Machine { memory_bytes },
        };
        let resolved = resolve(&inputs).expect("the defaults");
        let config = Arc::new(Config::from_resolved(&resolved).expect("the defaults"));
        let identity =
            Identity { cluster, node_id: 1, host: "127.0.0.1".to_owned(), port: 9092, rack: None };
        let objects = Arc::new(MemoryStore::new());
        Self::start_with(env, config, identity, objects, model).await
    }

    async fn start_with(
        env: Env,
        config: Arc<Config>,
        identity: Identity,
        objects: Arc<MemoryStore>,
        model: Arc<ModelBackend>,
    ) -> Self {
        let metadata = MetadataStore::new(model.clone(), env.clone());
        let stores = Stores { objects: objects.clone(), metadata, is_remote: false };
        let (trigger, shutdown) = shutdown_signal();
        let broker = Broker::start(env.clone(), config, identity, stores, Metrics::new(), shutdown)
            .await
            .expect("the broker starts");
        Self { env, broker, trigger, model, objects }
    }

    /// The same broker again, with nothing in memory.
    pub(crate) async fn restart(self) -> Self {
        self.trigger.trigger();
        self.broker.drained().await;
        let (config, identity) = (self.broker.config.clone(), self.broker.identity.clone());
        Self::start_with(self.env, config, identity, self.objects, self.model).await
    }

    /// A new connection.
    pub(crate) fn connect(&self) -> Client {
        self.connect_buffered(1 << 20)
    }

    /// A new connection of which so much is under way at once.
    pub(crate) fn connect_buffered(&self, bytes: usize) -> Client {
        let (ours, theirs) = tokio::io::duplex(bytes);
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

/// The values of a fetch's one partition, with their offsets.
pub(crate) fn values(answer: &FetchResponse) -> Vec<(i64, String)> {
    let records = answer.responses[0].partitions[0].records.clone().expect("never null");
    let mut values = Vec::new();
    for batch in kfs::batches(&records) {
        let batch = batch.expect("whole batches");
        batch.verify_crc().expect("the checksum is the client's own");
        for record in batch.records(1 << 20).expect("records").iter() {
            let record = record.expect("a record");
            let value = String::from_utf8_lossy(record.value.expect("a value")).into_owned();
            values.push((batch.header.base_offset + i64::from(record.offset_delta), value));
        }
    }
    values
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

    /// Sends a batch to partition 0 and gives what is answered for it.
    pub(crate) async fn produce(
        &mut self,
        topic: &SampleTopic,
        version: i16,
        records: Bytes,
    ) -> PartitionProduceResponse {
        let request = topic.produce(version, records);
        let ResponseKind::Produce(answer) = self.call(ApiKey::Produce, version, request).await
        else {
            panic!("another answer")
        };
        answer.responses[0].partition_responses[0].clone()
    }

    /// Sends a fetch and gives its answer.
    pub(crate) async fn fetch(&mut self, version: i16, request: RequestKind) -> FetchResponse {
        match self.call(ApiKey::Fetch, version, request).await {
            ResponseKind::Fetch(answer) => answer,
            _ => panic!("another answer"),
        }
    }

    /// Sends a body that the message layer cannot write, under a flexible header, and gives the
    /// answer's body.
    pub(crate) async fn call_raw(&mut self, api: ApiKey, version: i16, body: &[u8]) -> Bytes {
        let correlation = self.next_correlation;
        self.next_correlation += 1;
        let mut frame = BytesMut::new();
        frame.put_i16(api as i16);
        frame.put_i16(version);
        frame.put_i32(correlation);
        // No client id, no tagged fields.
        frame.put_slice(&[0xff, 0xff, 0]);
        frame.put_slice(body);
        let length = i32::try_from(frame.len()).expect("a small frame");
        self.stream.write_i32(length).await.expect("the broker reads");
        self.stream.write_all(&frame).await.expect("the broker reads");
        self.receive(api, version, correlation).await.expect("an answer")
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
