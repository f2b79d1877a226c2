//! A small HTTP client for asking a running broker: HTTP/1.1 without TLS, one request a
//! connection, answers of bounded size.

use crate::http::ApiError;
use axum::body::Bytes;
use floe_env::{Env, Error, Lane, Result};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::HeaderValue;
use hyper::{Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::net::TcpStream;

/// Larger answers are refused.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// An answer must be there in this time, if not told otherwise.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// A broker's HTTP address.
#[derive(Clone, Debug)]
pub(super) struct Client {
    env: Env,
    authority: String,
    timeout: Duration,
}

impl Client {
    /// A client of the broker at `HOST:PORT` or `http://HOST:PORT`.
    ///
    /// # Errors
    /// `Invalid` for another kind of address.
    pub(super) fn new(env: Env, url: &str) -> Result<Self> {
        let without_scheme = url.strip_prefix("http://").unwrap_or(url);
        let authority = without_scheme.trim_end_matches('/');
        if authority.contains('/') || authority.is_empty() {
            return Err(Error::invalid(format!("'{url}' is not http://HOST:PORT")));
        }
        let has_port =
            authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let authority = if has_port { authority.to_owned() } else { format!("{authority}:80") };
        Ok(Self { env, authority, timeout: ANSWER_TIMEOUT })
    }

    /// The same, which waits so long for an answer.
    pub(super) fn waiting(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Gets JSON. `None` where there is no such thing (404).
    ///
    /// # Errors
    /// `Unavailable` where there is no broker or it does not answer; what it answers otherwise.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>> {
        let request = Request::get(path).body(Full::default());
        self.call(request.map_err(not_a_request)?).await
    }

    /// Posts JSON and gets JSON. `None` where there is no such thing (404).
    ///
    /// # Errors
    /// As of [`Client::get`].
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        value: &impl Serialize,
    ) -> Result<Option<T>> {
        let body = serde_json::to_vec(value)
            .map_err(|error| Error::bug("cannot write JSON").with_source(error))?;
        let request = Request::post(path).header(header::CONTENT_TYPE, "application/json");
        self.call(request.body(Full::from(body)).map_err(not_a_request)?).await
    }

    async fn call<T: DeserializeOwned>(&self, request: Request<Full<Bytes>>) -> Result<Option<T>> {
        let asked = self.env.timeout(self.timeout, self.ask(request)).await;
        let authority = &self.authority;
        let (status, body) = asked
            .unwrap_or_else(|| Err(Error::unavailable("no answer in time")))
            .map_err(|error| error.context(&format!("broker at {authority}")))?;
        if status == StatusCode::OK {
            let value = serde_json::from_slice(&body).map_err(|error| {
                let message = format!("{authority} does not answer as Floe does");
                Error::invalid(message).with_source(error)
            })?;
            return Ok(Some(value));
        }
        let said = serde_json::from_slice::<ApiError>(&body);
        match said {
            Ok(_) if status == StatusCode::NOT_FOUND => Ok(None),
            Ok(said) => Err(Error::unavailable(format!("broker at {authority}: {}", said.error))),
            Err(_) => Err(Error::unavailable(format!("{authority} answers {status}"))),
        }
    }

    async fn ask(&self, mut request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes)> {
        let stream = TcpStream::connect(&self.authority).await.map_err(|error| {
            Error::unavailable("cannot connect; is it running, and is --http right?")
                .with_source(error)
        })?;
        let broken = |error: hyper::Error| Error::unavailable("no HTTP answer").with_source(error);
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        // Its failure is the answer's failure.
        self.env.spawn("http client", Lane::Foreground, async { drop(connection.await) });
        let host = HeaderValue::from_str(&self.authority)
            .map_err(|error| Error::invalid("not a host").with_source(error))?;
        request.headers_mut().insert(header::HOST, host);
        let response: Response<_> = sender.send_request(request).await.map_err(broken)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| {
            Error::unavailable("the answer broke off or is too large").with_source(error)
        })?;
        Ok((status, body.to_bytes()))
    }
}

fn not_a_request(error: hyper::http::Error) -> Error {
    Error::invalid("not a request").with_source(error)
}

/// Text as a part of a path or query: everything but letters, digits and `-._` is escaped.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}
