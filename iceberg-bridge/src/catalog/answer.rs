//! Answers that are no success: the specification's JSON error bodies. Status codes follow what
//! engines tell apart: 401 without a good token, 403 for a write, 404 with the exact type for what
//! is missing, 409 for what others were faster with, 503 for what may work later.

use crate::external::Rejection;
use axum::Json;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use floe_env::{Error, ErrorKind};
use serde_json::json;

/// Seconds after which a client may try again.
const RETRY_AFTER_S: &str = "1";

/// A request that is not served.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    kind: &'static str,
    message: String,
}

impl Refusal {
    pub(super) fn not_found(kind: &'static str, message: String) -> Self {
        Self { status: StatusCode::NOT_FOUND, kind, message }
    }

    pub(super) fn no_such_namespace(namespace: &str) -> Self {
        Self::not_found("NoSuchNamespaceException", format!("no namespace `{}`", dotted(namespace)))
    }

    pub(super) fn no_such_table(namespace: &str, table: &str) -> Self {
        let message = format!("no table `{}.{table}`", dotted(namespace));
        Self::not_found("NoSuchTableException", message)
    }

    pub(super) fn no_such_view(namespace: &str, view: &str) -> Self {
        let message = format!("no view `{}.{view}`", dotted(namespace));
        Self::not_found("NoSuchViewException", message)
    }

    pub(super) fn no_such_endpoint() -> Self {
        let message = "this catalog has no such endpoint: see GET /iceberg/v1/config".to_owned();
        Self::not_found("NotFoundException", message)
    }

    pub(super) fn bad_request(message: String) -> Self {
        Self { status: StatusCode::BAD_REQUEST, kind: "BadRequestException", message }
    }

    pub(super) fn read_only() -> Self {
        let message = "tables are written by their topics only: produce records instead, or let \
                       engines write too with iceberg.external_write = true"
            .to_owned();
        Self { status: StatusCode::FORBIDDEN, kind: "ForbiddenException", message }
    }

    pub(super) fn not_authorized(message: &str) -> Self {
        let (status, kind) = (StatusCode::UNAUTHORIZED, "NotAuthorizedException");
        Self { status, kind, message: message.to_owned() }
    }

    fn conflict(kind: &'static str, message: String) -> Self {
        Self { status: StatusCode::CONFLICT, kind, message }
    }

    pub(super) fn unsupported() -> Self {
        let message = "this catalog does not support the method here".to_owned();
        let (status, kind) = (StatusCode::NOT_ACCEPTABLE, "UnsupportedOperationException");
        Self { status, kind, message }
    }

    pub(super) fn unavailable(message: String) -> Self {
        let (status, kind) = (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailableException");
        Self { status, kind, message }
    }
}

/// A namespace as people write it; paths have a unit separator between its parts.
fn dotted(namespace: &str) -> String {
    namespace.replace('\u{1f}', ".")
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match error.kind() {
            ErrorKind::Retry
            | ErrorKind::UnknownOutcome
            | ErrorKind::Unavailable
            | ErrorKind::Limit
            // Another broker took this one's place and answers at its address.
            | ErrorKind::Fenced => Self::unavailable(message),
            ErrorKind::Invalid | ErrorKind::Corrupt | ErrorKind::Bug => {
                tracing::error!(%error, "catalog request failed");
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                Self { status, kind: "InternalServerError", message }
            }
        }
    }
}

impl From<Rejection> for Refusal {
    fn from(rejection: Rejection) -> Self {
        match rejection {
            Rejection::NoSuchTable(table) => Self::no_such_table(&table.namespace, &table.name),
            Rejection::NoSuchNamespace(namespace) => Self::no_such_namespace(&namespace),
            Rejection::AlreadyExists(name) => {
                Self::conflict("AlreadyExistsException", format!("`{name}` exists already"))
            }
            Rejection::NamespaceNotEmpty(name) => {
                let message = format!("namespace `{name}` has tables");
                Self::conflict("NamespaceNotEmptyException", message)
            }
            Rejection::Conflict(message) => Self::conflict("CommitFailedException", message),
            Rejection::Invalid(message) => Self::bad_request(message),
            // The client must not take the change's files for garbage.
            Rejection::Failed(error) if error.kind() == ErrorKind::UnknownOutcome => Self {
                status: StatusCode::GATEWAY_TIMEOUT,
                kind: "CommitStateUnknownException",
                message: error.to_string(),
            },
            Rejection::Failed(error) => error.into(),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let code = self.status.as_u16();
        let error = json!({ "message": self.message, "type": self.kind, "code": code });
        let body = Json(json!({ "error": error }));
        let more: Option<[(HeaderName, &str); 1]> = match self.status {
            StatusCode::SERVICE_UNAVAILABLE => Some([(header::RETRY_AFTER, RETRY_AFTER_S)]),
            StatusCode::UNAUTHORIZED => Some([(header::WWW_AUTHENTICATE, "Bearer")]),
            _ => None,
        };
        match more {
            Some(headers) => (self.status, headers, body).into_response(),
            None => (self.status, body).into_response(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_work_later_or_elsewhere_is_503_and_the_rest_is_ours() {
        let status = |error: Error| Refusal::from(error).into_response().status();
        for later in [Error::unavailable("x"), Error::fenced("x"), Error::limit("x")] {
            assert_eq!(status(later), StatusCode::SERVICE_UNAVAILABLE);
        }
        for ours in [Error::bug("x"), Error::corrupt("x"), Error::invalid("x")] {
            assert_eq!(status(ours), StatusCode::INTERNAL_SERVER_ERROR);
        }
    }
}
