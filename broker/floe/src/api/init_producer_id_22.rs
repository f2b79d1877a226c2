//! InitProducerId: v0-5, for idempotent producers.
//!
//! Every call without a transactional id gets a new producer id with epoch 0, whatever else it
//! says, as in Kafka. With a transactional id the answer is an error that no client retries, until
//! there are transactions.

use super::{Handled, RequestContext, api};
use crate::broker::Broker;
use crate::error_codes::error_code;
use floe_wire::ErrorCode;
use floe_wire::messages::{InitProducerIdRequest, InitProducerIdResponse, ProducerId};
use std::sync::Arc;

pub(super) const API: super::Api = api!(InitProducerId, 0..=5, handle);

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: InitProducerIdRequest,
) -> Handled {
    let given = match request.transactional_id {
        None => broker.producer_ids.next().await.map_err(|error| {
            tracing::warn!(%error, "no producer id could be given");
            match error_code(&error) {
                ErrorCode::KafkaStorageError => ErrorCode::CoordinatorNotAvailable,
                code => code,
            }
        }),
        Some(id) if id.is_empty() => Err(ErrorCode::InvalidRequest),
        Some(_) => Err(ErrorCode::TransactionalIdAuthorizationFailed),
    };
    let response = match given {
        Ok(id) => InitProducerIdResponse::default()
            .with_producer_id(ProducerId(id))
            .with_producer_epoch(0),
        Err(code) => InitProducerIdResponse::default()
            .with_error_code(code.code())
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1),
    };
    context.reply(&response)
}
