//! InitProducerId: v0-5.
//!
//! Every call without a transactional id gets a new producer id with epoch 0, whichever one it had,
//! as in Kafka. With a transactional id the epoch is raised, which fences whoever had the one
//! before. v3 a client may say what it believes to have, to go on after an error (KIP-360); v4
//! PRODUCER_FENCED.

use super::{Handled, RequestContext, api};
use crate::broker::Broker;
use crate::error_codes::{error_code, fenced_below};
use crate::transactions::{Transactions, check_id};
use floe_coordinator::transactions::{InitRequest, Sender};
use floe_wire::ErrorCode;
use floe_wire::messages::{InitProducerIdRequest, InitProducerIdResponse, ProducerId};
use kfs::ProducerEpoch;
use std::sync::Arc;

pub(super) const API: super::Api = api!(InitProducerId, 0..=5, handle);

/// What a client sends that has no producer id yet.
const NO_PRODUCER_ID: ProducerId = ProducerId(-1);
const NO_PRODUCER_EPOCH: i16 = -1;
/// The first version that knows PRODUCER_FENCED.
const FENCED_SINCE: i16 = 4;

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: InitProducerIdRequest,
) -> Handled {
    let given = match &request.transactional_id {
        Some(id) => transactional(&broker, id, &request).await,
        None if is_half_named(&request) => Err(ErrorCode::InvalidRequest),
        None => idempotent(&broker).await,
    };
    let response = match given {
        Ok(given) => InitProducerIdResponse::default()
            .with_producer_id(ProducerId(given.producer.0))
            .with_producer_epoch(given.epoch.0),
        Err(code) => InitProducerIdResponse::default()
            .with_error_code(fenced_below(code, context.version < FENCED_SINCE).code())
            .with_producer_id(NO_PRODUCER_ID)
            .with_producer_epoch(NO_PRODUCER_EPOCH),
    };
    context.reply(&response)
}

fn is_half_named(request: &InitProducerIdRequest) -> bool {
    (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH)
}

async fn idempotent(broker: &Broker) -> Result<Sender, ErrorCode> {
    let id = broker.producer_ids.next().await.map_err(|error| {
        tracing::warn!(%error, "no producer id could be given");
        match error_code(&error) {
            ErrorCode::KafkaStorageError => ErrorCode::CoordinatorNotAvailable,
            code => code,
        }
    })?;
    Ok(Sender { producer: kfs::ProducerId(id), epoch: ProducerEpoch(0) })
}

async fn transactional(
    broker: &Broker,
    id: &str,
    request: &InitProducerIdRequest,
) -> Result<Sender, ErrorCode> {
    check_id(id)?;
    if is_half_named(request) {
        return Err(ErrorCode::InvalidRequest);
    }
    let longest = broker.config.kafka.transaction_max_timeout.as_millis();
    let timeout_ms = request.transaction_timeout_ms;
    if timeout_ms <= 0 || u128::from(timeout_ms.unsigned_abs()) > longest {
        return Err(ErrorCode::InvalidTransactionTimeout);
    }
    let given = (kfs::ProducerId(request.producer_id.0), ProducerEpoch(request.producer_epoch));
    let expected = (request.producer_id != NO_PRODUCER_ID).then_some(given);
    Transactions(broker).init(id, InitRequest { expected, timeout_ms }).await
}
