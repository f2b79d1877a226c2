//! Queries, of pages most of all: the token of a page is the last name of the page before.

use super::answer::Refusal;
use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Names on one page at most.
const PAGE_NAMES_MAX: usize = 1000;

/// What stands behind the path. What makes no sense there is refused as everything is.
pub(super) struct Parameters<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Parameters<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let query = Query::from_request_parts(parts, state).await;
        let query = query.map_err(|refused| Refusal::bad_request(refused.body_text()))?;
        Ok(Self(query.0))
    }
}

/// What a client says of the page that it wants.
#[derive(Debug, Deserialize)]
pub(super) struct PageQuery {
    #[serde(rename = "pageToken")]
    page_token: Option<String>,
    #[serde(rename = "pageSize")]
    page_size: Option<usize>,
    /// Of namespaces only.
    pub(super) parent: Option<String>,
}

impl PageQuery {
    /// How many names to look for: one more than the page has, which tells whether there is a next.
    pub(super) fn limit(&self) -> Result<usize, Refusal> {
        match self.page_size.unwrap_or(PAGE_NAMES_MAX).min(PAGE_NAMES_MAX) {
            0 => Err(Refusal::bad_request("pageSize must be positive".to_owned())),
            size => Ok(size + 1),
        }
    }

    /// The name behind which the page begins.
    pub(super) fn after(&self) -> Option<&str> {
        self.page_token.as_deref().filter(|token| !token.is_empty())
    }
}

/// Cuts what was found with `limit` to a page, and answers the token of the next.
pub(super) fn cut(names: &mut Vec<String>, limit: usize) -> Option<String> {
    if names.len() < limit {
        return None;
    }
    names.truncate(limit - 1);
    names.last().cloned()
}
