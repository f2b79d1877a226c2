//! What a provider's error means: what the caller must do, and one sentence that a person can act
//! on.
//!
//! object_store tells few cases apart and hides the type that holds the status, so that its text is
//! read here. A put counts as never sent only where no connection was made; anything later leaves
//! its outcome unknown.

use floe_env::{Error, ErrorKind};
use object_store::client::{HttpError, HttpErrorKind};
use std::error::Error as StdError;

/// The part of a provider's text that goes into our error, bytes.
const DETAIL_BYTES_MAX: usize = 400;

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Put,
    Read,
    List,
    Delete,
}

impl Operation {
    fn doing(self) -> &'static str {
        match self {
            Self::Put => "write",
            Self::Read => "read",
            Self::List => "list",
            Self::Delete => "delete in",
        }
    }
}

/// Codes in a provider's answer that have one meaning each.
const CODES: [(&str, &str); 18] = [
    ("InvalidAccessKeyId", "the store does not know this access key id"),
    ("SignatureDoesNotMatch", "the secret key does not belong to the access key id"),
    ("RequestTimeTooSkewed", "this machine's clock differs too much from the store's"),
    ("RequestExpired", "this machine's clock differs too much from the store's"),
    ("NoSuchBucket", "the bucket does not exist"),
    ("The specified bucket does not exist", "the bucket does not exist"),
    ("ContainerNotFound", "the container does not exist"),
    ("ExpiredToken", "the session token has expired"),
    ("InvalidToken", "the session token is not valid"),
    ("AuthorizationHeaderMalformed", "the bucket is in another region than the one that is set"),
    ("PermanentRedirect", "the bucket is in another region than the one that is set"),
    ("redirect without LOCATION", "the bucket is in another region than the one that is set"),
    ("AuthenticationFailed", "the account's key is wrong, or this machine's clock is"),
    ("AuthorizationPermissionMismatch", "these credentials have no permission for this"),
    ("AccessDenied", "these credentials have no permission for this"),
    ("169.254.169.254", "no credentials are set, and this machine has none of its own"),
    ("dns error", "the endpoint's name cannot be resolved"),
    ("certificate", "the endpoint's certificate is not trusted"),
];

/// True where a read asked for an object that is not there (rather than for a bucket that is not).
pub(super) fn is_missing_object(error: &object_store::Error) -> bool {
    let object_store::Error::NotFound { .. } = error else { return false };
    let text = error.to_string();
    !["NoSuchBucket", "specified bucket does not exist", "ContainerNotFound"]
        .iter()
        .any(|code| text.contains(code))
}

/// True for "409 Conflict", which S3 gives to a conditional put that met another request, whatever
/// became of that.
pub(super) fn is_conflict(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::AlreadyExists { .. })
        && status(&error.to_string()) == Some(409)
}

/// True where a range lies outside the object.
pub(super) fn is_outside(error: &object_store::Error) -> bool {
    let text = error.to_string();
    status(&text) == Some(416) || text.contains("Range started at") || text.contains("InvalidRange")
}

/// The error of a call on `place`, which is an object's address or the store's.
pub(super) fn explained(operation: Operation, place: &str, error: &object_store::Error) -> Error {
    let text = with_causes(error);
    let status = status(&text);
    let transport = transport(error);
    let kind = kind(operation, status, transport, &text);
    let meaning = meaning(status, transport, &text);
    let message = format!("{} {place}: {meaning}", operation.doing());
    Error::new(kind, message).with_source(shortened(text))
}

/// An error's text and those of its causes, each once: what is wrong with a certificate or a name
/// is said by the innermost only.
fn with_causes(error: &object_store::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

fn kind(
    operation: Operation,
    status: Option<u16>,
    transport: Option<HttpErrorKind>,
    text: &str,
) -> ErrorKind {
    let changes = matches!(operation, Operation::Put | Operation::Delete);
    match (transport, status) {
        (Some(HttpErrorKind::Connect), _) => ErrorKind::Unavailable,
        (_, Some(409 | 429)) => ErrorKind::Retry,
        _ if text.contains("<Code>SlowDown</Code>") => ErrorKind::Retry,
        (_, Some(300..=407 | 410..=499)) => ErrorKind::Invalid,
        _ if changes => ErrorKind::UnknownOutcome,
        (_, Some(_)) => ErrorKind::Retry,
        _ => ErrorKind::Unavailable,
    }
}

fn meaning(status: Option<u16>, transport: Option<HttpErrorKind>, text: &str) -> String {
    if let Some((_, meaning)) = CODES.iter().find(|(code, _)| text.contains(code)) {
        return (*meaning).to_owned();
    }
    match (transport, status) {
        (Some(HttpErrorKind::Connect), _) => "the endpoint cannot be reached".into(),
        (Some(HttpErrorKind::Timeout), _) => "the endpoint did not answer in time".into(),
        (Some(_), _) => "the connection broke off".into(),
        (_, Some(401 | 403)) => "the store refuses these credentials".into(),
        (_, Some(404)) => "the bucket or the endpoint's path does not exist".into(),
        (_, Some(409)) => "another request for the same object was under way".into(),
        (_, Some(429)) => "the store asks for fewer requests".into(),
        (_, Some(500..=599)) => "the store failed".into(),
        (_, Some(status)) => format!("the store answered with HTTP status {status}"),
        (None, None) => "the store's client failed".into(),
    }
}

/// The HTTP status in an error's text.
fn status(text: &str) -> Option<u16> {
    let after = text.split_once("status code: ")?.1;
    after.get(..3)?.parse().ok()
}

/// How the transport failed, where it did.
fn transport(error: &object_store::Error) -> Option<HttpErrorKind> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<HttpError>() {
            return Some(error.kind());
        }
        cause = error.source();
    }
    None
}

fn shortened(mut text: String) -> String {
    if text.len() > DETAIL_BYTES_MAX {
        let end = (0..=DETAIL_BYTES_MAX).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
        text.push_str(" ...");
    }
    text
}
