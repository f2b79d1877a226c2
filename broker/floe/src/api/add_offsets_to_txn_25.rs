//! AddOffsetsToTxn: v0-4.
//!
//! v2 PRODUCER_FENCED. The group takes part in the transaction: its offsets wait for the end.

use super::{Handled, RequestContext, api};
use crate::broker::Broker;
use crate::error_codes::{fenced_below, group_code};
use crate::groups::check_group_id;
use crate::transactions::{Transactions, check_id};
use floe_coordinator::transactions::Sender;
use floe_wire::ErrorCode;
use floe_wire::messages::{AddOffsetsToTxnRequest, AddOffsetsToTxnResponse};
use kfs::{ProducerEpoch, ProducerId};
use std::sync::Arc;

pub(super) const API: super::Api = api!(AddOffsetsToTxn, 0..=4, handle);

/// The first version that knows PRODUCER_FENCED.
const FENCED_SINCE: i16 = 2;

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: AddOffsetsToTxnRequest,
) -> Handled {
    let code = add(&broker, &request).await.err().unwrap_or(ErrorCode::None);
    let code = fenced_below(code, context.version < FENCED_SINCE);
    context.reply(&AddOffsetsToTxnResponse::default().with_error_code(code.code()))
}

async fn add(broker: &Broker, request: &AddOffsetsToTxnRequest) -> Result<(), ErrorCode> {
    check_id(&request.transactional_id)?;
    check_group_id(&request.group_id).map_err(group_code)?;
    let sender = Sender {
        producer: ProducerId(request.producer_id.0),
        epoch: ProducerEpoch(request.producer_epoch),
    };
    let transactions = Transactions(broker);
    transactions.add_group(&request.transactional_id, sender, &request.group_id).await
}
