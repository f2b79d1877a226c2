//! Requests to a catalog: one client, a time-out each, answers of bounded size, and one more try
//! with a new token after a 401.

use super::auth::Credentials;
use super::config::RestConfig;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use bytes::{Bytes, BytesMut};
use floe_env::{Env, Error, ErrorKind, Result};
use reqwest::{Client, Url, redirect};
use serde::Deserialize;
use std::sync::OnceLock;
use std::time::Duration;

/// Larger answers are refused: no table's metadata comes near it.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// How much of an answer that is no error of the specification is shown.
const SHOWN_BYTES_MAX: usize = 200;

/// One request.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) body: Option<Bytes>,
}

/// What came back.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

#[derive(Deserialize)]
struct ConfigAnswer {
    #[serde(default)]
    overrides: Prefix,
    #[serde(default)]
    defaults: Prefix,
}

#[derive(Default, Deserialize)]
struct Prefix {
    prefix: Option<String>,
}

#[derive(Deserialize)]
struct ErrorAnswer {
    error: ErrorModel,
}

#[derive(Deserialize)]
struct ErrorModel {
    message: String,
    #[serde(rename = "type", default)]
    kind: String,
}

impl Answer {
    /// The answer in a few words.
    pub(super) fn said(&self) -> String {
        let status = self.status.as_u16();
        if let Ok(ErrorAnswer { error }) = serde_json::from_slice(&self.body) {
            return format!("{status} {}: {}", error.kind, error.message);
        }
        let shown = &self.body[..self.body.len().min(SHOWN_BYTES_MAX)];
        format!("{status} {}", String::from_utf8_lossy(shown).escape_debug())
    }

    /// True where the catalog says that there is no such thing. A 404 that is no error of the
    /// specification comes from somebody before it, who knows nothing of tables.
    pub(super) fn is_missing(&self) -> bool {
        self.status == StatusCode::NOT_FOUND
            && serde_json::from_slice::<ErrorAnswer>(&self.body).is_ok()
    }

    /// True where the request may have been carried out, though the answer is not the one for that.
    pub(super) fn is_unclear(&self) -> bool {
        let is_strangers = self.status == StatusCode::NOT_FOUND && !self.is_missing();
        self.status.is_server_error()
            || self.status.is_success()
            || self.status == StatusCode::REQUEST_TIMEOUT
            || is_strangers
    }

    /// What an answer that is not the wanted one means for whoever asks again.
    pub(super) fn error(&self, doing: &str) -> Error {
        let message = format!("{doing}: the catalog answers {}", self.said());
        match self.status {
            StatusCode::TOO_MANY_REQUESTS => Error::unavailable(message),
            _ if self.is_unclear() => Error::unavailable(message),
            _ => Error::invalid(message),
        }
    }
}

/// Sends requests. The client is made with the first of them.
#[derive(Default)]
pub(super) struct Transport {
    client: OnceLock<Client>,
}

impl Transport {
    fn client(&self) -> Result<&Client> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        // A second one is refused, and the first is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // A token must not follow a redirection to somebody else.
        let made = Client::builder().redirect(redirect::Policy::none()).build();
        let made = made.map_err(|error| Error::bug("an HTTP client").with_source(error))?;
        Ok(self.client.get_or_init(|| made))
    }

    /// Sends one request.
    ///
    /// # Errors
    /// `Unavailable` where it certainly did not arrive; `UnknownOutcome` where it may have.
    pub(super) async fn send(
        &self,
        env: &Env,
        timeout: Duration,
        call: &Call,
        headers: HeaderMap,
    ) -> Result<Answer> {
        let mut request = self.client()?.request(call.method.clone(), call.url.clone());
        if let Some(body) = &call.body {
            request = request.body(body.clone());
        }
        let answering = async {
            let mut answer = request.headers(headers).send().await.map_err(failed)?;
            let (status, mut body) = (answer.status(), BytesMut::new());
            while let Some(chunk) = answer.chunk().await.map_err(failed)? {
                if body.len() + chunk.len() > ANSWER_BYTES_MAX {
                    let limit = format!("an answer of more than {ANSWER_BYTES_MAX} bytes");
                    return Err(Error::unknown_outcome(limit));
                }
                body.extend_from_slice(&chunk);
            }
            Ok(Answer { status, body: body.freeze() })
        };
        let late = || Err(Error::unknown_outcome(format!("no answer within {timeout:?}")));
        env.timeout(timeout, answering).await.unwrap_or_else(late)
    }
}

fn failed(error: reqwest::Error) -> Error {
    // Its address has no secret in it: tokens are headers.
    if error.is_connect() || error.is_builder() {
        return Error::unavailable("the catalog cannot be reached").with_source(error);
    }
    Error::unknown_outcome("the catalog's answer was lost").with_source(error)
}

/// Asks a catalog as somebody.
pub(super) struct Http {
    pub(super) env: Env,
    pub(super) config: RestConfig,
    credentials: Credentials,
    transport: Transport,
}

impl Http {
    pub(super) fn new(env: Env, config: RestConfig) -> Self {
        let credentials = Credentials::new(config.auth.clone());
        Self { env, config, credentials, transport: Transport::default() }
    }

    /// The address of a path behind the catalog's own, `/v1` and the catalog's prefix. That is
    /// taken as the catalog writes it: what is escaped in it is escaped already.
    pub(super) fn url(
        &self,
        prefix: &str,
        segments: &[&str],
        query: &[(&str, &str)],
    ) -> Result<Url> {
        let uri = format!("{}/v1/{prefix}", self.config.uri.trim_end_matches('/'));
        let mut url = Url::parse(&uri)
            .map_err(|error| Error::invalid(format!("address {uri}")).with_source(error))?;
        let no_base = || Error::invalid(format!("address {uri} takes no path"));
        if url.query().is_some() || url.fragment().is_some() {
            return Err(no_base());
        }
        url.path_segments_mut().map_err(|()| no_base())?.pop_if_empty().extend(segments);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
            // As a form has it, a space is a plus, which signatures take for a plus.
            let spaced = url.query().unwrap_or_default().replace('+', "%20");
            url.set_query(Some(&spaced));
        }
        Ok(url)
    }

    /// Asks, and after a 401 once more with a new token.
    ///
    /// # Errors
    /// As of [`Transport::send`].
    pub(super) async fn call(&self, call: &Call) -> Result<Answer> {
        let (answer, used) = self.once(call).await?;
        if answer.status == StatusCode::UNAUTHORIZED && self.credentials.renew(&used).await {
            return Ok(self.once(call).await?.0);
        }
        Ok(answer)
    }

    /// Reads: whatever goes wrong, nothing has happened.
    ///
    /// # Errors
    /// `Unavailable` where there is no answer; as of [`Transport::send`].
    pub(super) async fn read(&self, url: Url) -> Result<Answer> {
        let call = Call { method: Method::GET, url, body: None };
        let answer = self.call(&call).await;
        answer.map_err(|error| match error.kind() {
            ErrorKind::UnknownOutcome => Error::unavailable("ask the catalog").with_source(error),
            _ => error,
        })
    }

    /// What stands behind `/v1` in every path, as the catalog's config says.
    ///
    /// # Errors
    /// As of [`Http::read`]; `Invalid` where there is no such catalog, or it refuses.
    pub(super) async fn ask_prefix(&self) -> Result<String> {
        let warehouse = self.config.warehouse.as_deref();
        let query: Vec<(&str, &str)> =
            warehouse.map(|name| ("warehouse", name)).into_iter().collect();
        let answer = self.read(self.url("", &["config"], &query)?).await?;
        if answer.status != StatusCode::OK {
            return Err(answer.error("read the catalog's config"));
        }
        let config: ConfigAnswer = serde_json::from_slice(&answer.body)
            .map_err(|error| Error::invalid("no catalog's config").with_source(error))?;
        let prefix = config.overrides.prefix.or(config.defaults.prefix);
        Ok(prefix.unwrap_or_default().trim_matches('/').to_owned())
    }

    async fn once(&self, call: &Call) -> Result<(Answer, HeaderMap)> {
        let (env, config) = (&self.env, &self.config);
        let used = self.credentials.headers(env, &self.transport, config, call).await?;
        let mut headers = used.clone();
        if call.body.is_some() {
            let json = HeaderValue::from_static("application/json");
            headers.insert(header::CONTENT_TYPE, json);
        }
        let answer = self.transport.send(env, config.timeout, call, headers).await?;
        Ok((answer, used))
    }
}
