//! The Kafka APIs: one file each, named by key. A file says which versions it serves beside its
//! handler, and the table here is all that ApiVersions answers from, so that it cannot lie.

mod add_offsets_to_txn_25;
mod add_partitions_to_txn_24;
mod alter_configs_33;
mod alter_partition_reassignments_45;
mod answer;
mod api_versions_18;
mod config_resources;
mod consumer_group_describe_69;
mod consumer_group_heartbeat_68;
mod create_acls_30;
mod create_partitions_37;
mod create_topics_19;
mod delete_acls_31;
mod delete_groups_42;
mod delete_records_21;
mod delete_topics_20;
mod describe_acls_29;
mod describe_client_quotas_48;
mod describe_cluster_60;
mod describe_configs_32;
mod describe_groups_15;
mod describe_log_dirs_35;
mod describe_producers_61;
mod describe_topic_partitions_75;
mod describe_transactions_65;
mod elect_leaders_43;
mod end_txn_26;
mod fetch_01;
mod find_coordinator_10;
mod heartbeat_12;
mod incremental_alter_configs_44;
mod init_producer_id_22;
mod join_group_11;
mod leave_group_13;
mod list_config_resources_74;
mod list_groups_16;
mod list_offsets_02;
mod list_partition_reassignments_46;
mod list_transactions_66;
mod metadata_03;
mod offset_commit_08;
mod offset_delete_47;
mod offset_fetch_09;
mod offset_for_leader_epoch_23;
mod produce_00;
mod sync_group_14;
mod txn_offset_commit_28;
mod write_txn_markers_27;

use crate::answer_memory::AnswerPermit;
use crate::broker::Broker;
use crate::metrics::Metrics;
use answer::Answer;
use floe_wire::messages::{ApiKey, Beyond, Encodable, RequestKind};
use floe_wire::{Registry, Request, Response, WireError, messages};
use futures::future::BoxFuture;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Who sends requests. Anonymous until there is authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Principal(pub(crate) Arc<str>);

impl Principal {
    /// Whoever connects without saying who it is.
    pub(crate) fn anonymous() -> Self {
        Self("User:ANONYMOUS".into())
    }
}

/// What a handler knows of a request beside its body.
#[derive(Clone)]
pub(crate) struct RequestContext {
    /// The API.
    pub(crate) api: ApiKey,
    /// The version of the request and of its answer.
    pub(crate) version: i16,
    /// What the answer must repeat.
    pub(crate) correlation_id: i32,
    /// The client's own name for itself; empty if it has none.
    pub(crate) client_id: Arc<str>,
    /// The address that the connection came from.
    pub(crate) client_host: Arc<str>,
    /// Who sent it.
    pub(crate) principal: Principal,
    /// What its body has no place for.
    pub(crate) beyond: Beyond,
    /// Where the answer's errors are counted.
    pub(crate) metrics: Metrics,
}

/// What a handler answers. Answers leave in the order of the requests.
pub(crate) enum Reply {
    /// This, at once.
    Ready(Response),
    /// This, at once, with the memory that it holds until the client has taken it.
    Holding(Response, AnswerPermit),
    /// What the future gives, while later requests of the connection take effect. It is waited for
    /// in its turn.
    Later(BoxFuture<'static, Reply>),
    /// Nothing at all, as `acks=0` wants it.
    Nothing,
    /// Nothing, and the connection is closed, as Kafka does where it has no way to tell an error.
    Close,
}

/// Handles one request. It returns once the request has taken effect; waiting goes into
/// [`Reply::Later`].
type Handler = fn(Arc<Broker>, RequestContext, RequestKind) -> BoxFuture<'static, Handled>;

/// What a handler gives; an error closes the connection and is logged.
type Handled = Result<Reply, WireError>;

/// One API.
struct Api {
    key: ApiKey,
    versions: RangeInclusive<i16>,
    handler: Handler,
}

/// Makes an [`Api`] out of its key, its versions and an async function of the broker, the context
/// and the typed body.
macro_rules! api {
    ($key:ident, $versions:expr, $handle:path) => {
        crate::api::Api {
            key: floe_wire::messages::ApiKey::$key,
            versions: $versions,
            handler: |broker, context, body| {
                Box::pin(async move {
                    match body {
                        floe_wire::messages::RequestKind::$key(request) => {
                            $handle(broker, context, request).await
                        }
                        _ => Ok(crate::api::Reply::Close),
                    }
                })
            },
        }
    };
}
use api;

/// Every API that Floe serves.
const TABLE: &[Api] = &[
    produce_00::API,
    fetch_01::API,
    list_offsets_02::API,
    metadata_03::API,
    offset_commit_08::API,
    offset_fetch_09::API,
    find_coordinator_10::API,
    join_group_11::API,
    heartbeat_12::API,
    leave_group_13::API,
    sync_group_14::API,
    describe_groups_15::API,
    list_groups_16::API,
    api_versions_18::API,
    create_topics_19::API,
    delete_topics_20::API,
    delete_records_21::API,
    init_producer_id_22::API,
    offset_for_leader_epoch_23::API,
    add_partitions_to_txn_24::API,
    add_offsets_to_txn_25::API,
    end_txn_26::API,
    write_txn_markers_27::API,
    txn_offset_commit_28::API,
    describe_acls_29::API,
    create_acls_30::API,
    delete_acls_31::API,
    describe_configs_32::API,
    alter_configs_33::API,
    describe_log_dirs_35::API,
    create_partitions_37::API,
    delete_groups_42::API,
    elect_leaders_43::API,
    incremental_alter_configs_44::API,
    alter_partition_reassignments_45::API,
    list_partition_reassignments_46::API,
    offset_delete_47::API,
    describe_client_quotas_48::API,
    describe_cluster_60::API,
    describe_producers_61::API,
    describe_transactions_65::API,
    list_transactions_66::API,
    consumer_group_heartbeat_68::API,
    consumer_group_describe_69::API,
    list_config_resources_74::API,
    describe_topic_partitions_75::API,
];

/// The registry of the table, from which requests are decoded and ApiVersions answers.
pub(crate) fn registry() -> Registry {
    let serve = |registry: Registry, api: &Api| registry.serve(api.key, api.versions.clone());
    TABLE.iter().fold(Registry::new(), serve).advertise_from(ApiKey::Produce, 0)
}

/// Handles a decoded request.
pub(crate) async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: Request,
) -> Handled {
    let (version, principal) = (context.version, &context.principal.0);
    tracing::trace!(api = ?request.api, version, %principal, host = %context.client_host, "request");
    match TABLE.iter().find(|api| api.key == request.api) {
        Some(api) => (api.handler)(broker, context, request.body).await,
        None => Ok(Reply::Close),
    }
}

impl RequestContext {
    /// An answer that is there at once.
    fn reply(&self, body: &(impl Encodable + Answer)) -> Handled {
        self.reply_by(body, |version, correlation_id, body| {
            messages::encode_response(self.api, version, correlation_id, body)
        })
    }

    /// As [`reply`](Self::reply), for answers with an encoder of their own.
    fn reply_by<A: Answer>(
        &self,
        body: &A,
        encode: impl FnOnce(i16, i32, &A) -> Result<Response, WireError>,
    ) -> Handled {
        self.count(body);
        encode(self.version, self.correlation_id, body).map(Reply::Ready)
    }

    /// An answer within [`Reply::Later`].
    fn late_reply(&self, body: &(impl Encodable + Answer)) -> Reply {
        self.reply(body).unwrap_or_else(|error| {
            tracing::error!(api = ?self.api, %error, "an answer could not be encoded");
            Reply::Close
        })
    }
}
