//! InitProducerId: v0-5, for idempotent producers.
//!
//! Every call without a transactional id gets a new producer id with epoch 0, whichever one it had,
//! as in Kafka. With a transactional id the answer is an error that no client retries, until
//! there are transactions.

use super::{Handled, RequestContext, api};
use crate::broker::Broker;
use crate::error_codes::error_code;
use floe_wire::ErrorCode;
use floe_wire::messages::{InitProducerIdRequest, InitProducerIdResponse, ProducerId};
use std::sync::Arc;

pub(super) const API: super::Api = api!(InitProducerId, 0..=5, handle);

/// What a client sends that has no producer id yet.
const NO_PRODUCER_ID: ProducerId = ProducerId(-1);
const NO_PRODUCER_EPOCH: i16 = -1;
/// Kafka's default of `transaction.max.timeout.ms`, ms.
const TRANSACTION_TIMEOUT_MS_MAX: i32 = 900_000;

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: InitProducerIdRequest,
) -> Handled {
    let is_half_named =
        (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH);
    let timeouts_ms = 1..=TRANSACTION_TIMEOUT_MS_MAX;
    let given = match request.transactional_id {
        Some(id) if id.is_empty() => Err(ErrorCode::InvalidRequest),
        _ if is_half_named => Err(ErrorCode::InvalidRequest),
        Some(_) if !timeouts_ms.contains(&request.transaction_timeout_ms) => {
            Err(ErrorCode::InvalidTransactionTimeout)
        }
        Some(_) => Err(ErrorCode::TransactionalIdAuthorizationFailed),
        None => broker.producer_ids.next().await.map_err(|error| {
            tracing::warn!(%error, "no producer id could be given");
            match error_code(&error) {
                ErrorCode::KafkaStorageError => ErrorCode::CoordinatorNotAvailable,
                code => code,
            }
        }),
    };
    let response = match given {
        Ok(id) => InitProducerIdResponse::default()
            .with_producer_id(ProducerId(id))
            .with_producer_epoch(0),
        Err(code) => InitProducerIdResponse::default()
            .with_error_code(code.code())
            .with_producer_id(NO_PRODUCER_ID)
            .with_producer_epoch(NO_PRODUCER_EPOCH),
    };
    context.reply(&response)
}
