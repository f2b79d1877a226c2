//! EndTxn: v0-5.
//!
//! v2 PRODUCER_FENCED; v5 raises the epoch, and answers it (KIP-890). When the answer comes, the
//! end is durable and visible in every partition.

use super::{Handled, RequestContext, api};
use crate::broker::Broker;
use crate::error_codes::fenced_below;
use crate::transactions::{Transactions, check_id};
use floe_coordinator::transactions::{EndRequest, Sender};
use floe_wire::ErrorCode;
use floe_wire::messages::{self, EndTxnRequest, EndTxnResponse};
use kfs::{ProducerEpoch, ProducerId};
use std::sync::Arc;

pub(super) const API: super::Api = api!(EndTxn, 0..=5, handle);

/// The first version that knows PRODUCER_FENCED.
const FENCED_SINCE: i16 = 2;
/// The first version that raises the epoch.
const RAISES_EPOCH_SINCE: i16 = 5;

async fn handle(broker: Arc<Broker>, context: RequestContext, request: EndTxnRequest) -> Handled {
    let raises_epoch = context.version >= RAISES_EPOCH_SINCE;
    let response = match end(&broker, &request, raises_epoch).await {
        Ok(next) if raises_epoch => EndTxnResponse::default()
            .with_producer_id(messages::ProducerId(next.producer.0))
            .with_producer_epoch(next.epoch.0),
        Ok(_) => EndTxnResponse::default(),
        Err(code) => {
            let code = fenced_below(code, context.version < FENCED_SINCE);
            EndTxnResponse::default().with_error_code(code.code())
        }
    };
    context.reply(&response)
}

async fn end(
    broker: &Broker,
    request: &EndTxnRequest,
    raises_epoch: bool,
) -> Result<Sender, ErrorCode> {
    check_id(&request.transactional_id)?;
    let sender = Sender {
        producer: ProducerId(request.producer_id.0),
        epoch: ProducerEpoch(request.producer_epoch),
    };
    let request_of = EndRequest { sender, commit: request.committed, raises_epoch };
    Transactions(broker).end(&request.transactional_id, request_of).await
}
