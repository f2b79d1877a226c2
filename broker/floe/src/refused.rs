//! Why an administrative request, or one item of it, is refused.

use crate::error_codes::error_code;
use floe_env::Error;
use floe_wire::ErrorCode;
use floe_wire::messages::StrBytes;

/// Kafka's own words for what no client of its own sends.
pub(crate) const MALFORMED_REQUEST: &str = "This most likely occurs because of a request being \
    malformed by the client library or the message was sent to an incompatible broker. See the \
    broker logs for more details.";

/// A Kafka error with words for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// What a program goes by.
    pub(crate) code: ErrorCode,
    /// What is wrong and, where it is not plain, what to do.
    pub(crate) message: String,
}

impl Refused {
    /// A refusal with a message of its own.
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// A refusal without words, where Kafka has none.
    pub(crate) fn wordless(code: ErrorCode) -> Self {
        Self { code, message: String::new() }
    }

    /// There is no topic of this name.
    pub(crate) fn unknown_topic() -> Self {
        let message = "This server does not host this topic-partition.";
        Self::new(ErrorCode::UnknownTopicOrPartition, message)
    }

    /// A store failed.
    pub(crate) fn failed(error: &Error) -> Self {
        tracing::warn!(%error, "an administrative request failed");
        Self::new(error_code(error), error.to_string())
    }

    /// The message as answers carry it.
    pub(crate) fn text(&self) -> Option<StrBytes> {
        (!self.message.is_empty()).then(|| StrBytes::from_string(self.message.clone()))
    }
}
