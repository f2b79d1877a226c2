//! ListTransactions: v0-2.
//!
//! v1 how long a transaction has been open; v2 a pattern that a transactional id must match as a
//! whole, in RE2's syntax, as in Kafka. Any broker knows every transactional id, so each lists
//! those that FindCoordinator gives it.

use super::describe_transactions_65::state_name;
use super::{Handled, RequestContext, api};
use crate::broker::Broker;
use crate::transactions::failed;
use floe_env::Result;
use floe_metadata::transactions::TransactionRow;
use floe_wire::ErrorCode;
use floe_wire::messages::list_transactions_response::TransactionState;
use floe_wire::messages::{
    ListTransactionsRequest, ListTransactionsResponse, ProducerId, StrBytes, TransactionalId,
};
use regex::{Regex, RegexBuilder};
use std::sync::Arc;

pub(super) const API: super::Api = api!(ListTransactions, 0..=2, handle);

/// Rows that are read at once.
const ROWS_PAGE: usize = 1000;
/// A longer pattern is refused, bytes: before the limit below counts, each class in it may take
/// kilobytes, and milliseconds.
const PATTERN_SOURCE_BYTES_MAX: usize = 1 << 10;
/// Memory that a compiled pattern takes at most, bytes.
const PATTERN_BYTES_MAX: usize = 1 << 20;
/// The names of all states, those among them that a transaction of Floe never is in.
const STATE_NAMES: [&str; 8] = [
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
    "Dead",
];

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: ListTransactionsRequest,
) -> Handled {
    let source = request.transactional_id_pattern.clone().unwrap_or_default();
    let Ok(pattern) = broker.env.blocking(move || pattern_of(&source)).await else {
        let code = ErrorCode::InvalidRegularExpression.code();
        return context.reply(&ListTransactionsResponse::default().with_error_code(code));
    };
    let is_known = |name: &StrBytes| STATE_NAMES.contains(&name.as_str());
    let unknown = request.state_filters.iter().filter(|name| !is_known(name)).cloned().collect();
    let response = ListTransactionsResponse::default().with_unknown_state_filters(unknown);
    let response = match list(&broker, &request, pattern.as_ref()).await {
        Ok(states) => response.with_transaction_states(states),
        Err(error) => response.with_error_code(failed(&error).code()),
    };
    context.reply(&response)
}

/// The pattern that ids must match, if there is one.
fn pattern_of(pattern: &str) -> std::result::Result<Option<Regex>, regex::Error> {
    if pattern.is_empty() {
        return Ok(None);
    }
    if pattern.len() > PATTERN_SOURCE_BYTES_MAX {
        return Err(regex::Error::CompiledTooBig(PATTERN_SOURCE_BYTES_MAX));
    }
    let compile = |text: &str| RegexBuilder::new(text).size_limit(PATTERN_BYTES_MAX).build();
    // By itself first: what closes more groups than it opens is broken.
    compile(pattern)?;
    compile(&format!(r"\A(?:{pattern})\z")).map(Some)
}

async fn list(
    broker: &Broker,
    request: &ListTransactionsRequest,
    pattern: Option<&Regex>,
) -> Result<Vec<TransactionState>> {
    let metadata = &broker.metadata;
    let now_ms = metadata.now_ms().await?;
    let mut listed = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = metadata.transactions_after(after.as_deref(), ROWS_PAGE).await?;
        let is_last = page.len() < ROWS_PAGE;
        after = page.last().map(|known| known.id.clone());
        let matches = |id: &str| pattern.is_none_or(|pattern| pattern.is_match(id));
        let page = page.into_iter().filter(|known| matches(&known.id));
        for known in page.filter(|known| is_wanted(request, &known.row, now_ms)) {
            let id = TransactionalId(StrBytes::from_string(known.id));
            let state = TransactionState::default()
                .with_transactional_id(id)
                .with_producer_id(ProducerId(known.row.producer.0))
                .with_transaction_state(StrBytes::from_static_str(state_name(known.row.state)));
            listed.push(state);
        }
        if is_last {
            return Ok(listed);
        }
    }
}

fn is_wanted(request: &ListTransactionsRequest, row: &TransactionRow, now_ms: i64) -> bool {
    let (states, producers) = (&request.state_filters, &request.producer_id_filters);
    let has_state = || states.iter().any(|name| name.as_str() == state_name(row.state));
    let has_producer = || producers.iter().any(|producer| producer.0 == row.producer.0);
    // One that never began counts as open since for ever, as in Kafka.
    let open_ms = now_ms.saturating_sub(row.started_ms);
    (states.is_empty() || has_state())
        && (producers.is_empty() || has_producer())
        && (request.duration_filter < 0 || open_ms > request.duration_filter)
}
