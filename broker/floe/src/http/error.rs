//! Errors as HTTP answers.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use floe_env::{Error, ErrorKind};
use serde::{Deserialize, Serialize};

/// The one mapping of error kinds to HTTP's status codes.
pub fn status_of(kind: ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::Invalid => StatusCode::BAD_REQUEST,
        ErrorKind::Fenced => StatusCode::CONFLICT,
        ErrorKind::Limit => StatusCode::TOO_MANY_REQUESTS,
        ErrorKind::Retry | ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        ErrorKind::UnknownOutcome => StatusCode::GATEWAY_TIMEOUT,
        ErrorKind::Corrupt | ErrorKind::Bug => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// An error as the JSON endpoints answer it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiError {
    /// What happened.
    pub error: String,
}

/// What a handler of ours answers with in place of its value.
pub(super) struct Failure(StatusCode, String);

impl Failure {
    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self(StatusCode::NOT_FOUND, message.into())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = status_of(error.kind());
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            tracing::error!(%error, "http request failed");
        }
        Self(status, error.to_string())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.0, Json(ApiError { error: self.1 })).into_response()
    }
}
