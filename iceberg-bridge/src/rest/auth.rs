//! What makes a request one of ours: a bearer token, one of OAuth2 that is renewed, or a signature.
//!
//! A token is renewed before it expires, and after a 401 whatever it said: the catalog may have
//! forgotten it. One fetch serves everybody who waits, also where it fails.

use super::config::{OAuth2Client, RestAuth, RestConfig, SigV4Keys};
use super::http::{Answer, Call, Transport};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use bytes::Bytes;
use floe_env::{Env, Error, Instant, Result};
use floe_store::Secret;
use object_store::aws::{AwsAuthorizer, AwsCredential};
use object_store::client::HttpRequestBody;
use reqwest::Url;
use serde::Deserialize;
use std::time::Duration;
use tokio::sync::Mutex;

/// A token is renewed so long before it expires, or a quarter of its life if that is less.
const RENEWED_BEFORE: Duration = Duration::from_secs(60);
/// A life that nobody can mean is cut to this: a year.
const LIFE_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// A token, and until when it is used.
#[derive(Clone)]
struct Token {
    header: HeaderValue,
    renewed_at: Option<Instant>,
}

/// As whom requests are made.
pub(super) struct Credentials {
    auth: RestAuth,
    tokens: Mutex<Tokens>,
}

/// What came of the newest fetch.
#[derive(Default)]
struct Tokens {
    known: Option<Token>,
    /// When it failed, and why.
    failure: Option<(Instant, Error)>,
}

/// Why there is no token, as the specification of OAuth2 has it.
#[derive(Deserialize)]
struct Refusal {
    error: String,
    #[serde(default)]
    error_description: String,
}

#[derive(Deserialize)]
struct TokenAnswer {
    access_token: String,
    expires_in: Option<u64>,
}

impl Credentials {
    pub(super) fn new(auth: RestAuth) -> Self {
        Self { auth, tokens: Mutex::default() }
    }

    /// The headers of a request.
    ///
    /// # Errors
    /// `Unavailable` where there is no token to be had; `Invalid` for credentials that no request
    /// could carry. Nothing was asked of the catalog itself.
    pub(super) async fn headers(
        &self,
        env: &Env,
        transport: &Transport,
        config: &RestConfig,
        call: &Call,
    ) -> Result<HeaderMap> {
        let mut headers = HeaderMap::new();
        match &self.auth {
            RestAuth::None => {}
            RestAuth::Bearer(token) => {
                headers.insert(AUTHORIZATION, bearer(token.expose())?);
            }
            RestAuth::OAuth2(client) => {
                let token = self.token(env, transport, config, client).await?;
                headers.insert(AUTHORIZATION, token);
            }
            RestAuth::SigV4(keys) => headers = signed(keys, call)?,
        }
        Ok(headers)
    }

    /// Lets go of the token that was just refused. False where that changes nothing.
    pub(super) async fn renew(&self, refused: &HeaderMap) -> bool {
        if !matches!(self.auth, RestAuth::OAuth2(_)) {
            return false;
        }
        let mut tokens = self.tokens.lock().await;
        let is_refused = |known: &Token| refused.get(AUTHORIZATION) == Some(&known.header);
        // Somebody else may have renewed it already.
        if tokens.known.as_ref().is_some_and(is_refused) {
            tokens.known = None;
        }
        true
    }

    async fn token(
        &self,
        env: &Env,
        transport: &Transport,
        config: &RestConfig,
        client: &OAuth2Client,
    ) -> Result<HeaderValue> {
        let asked = env.monotonic();
        let mut tokens = self.tokens.lock().await;
        let is_good = |known: &&Token| known.renewed_at.is_none_or(|at| env.monotonic() < at);
        if let Some(known) = tokens.known.as_ref().filter(is_good) {
            return Ok(known.header.clone());
        }
        // Somebody's fetch failed while this one waited: the next one would wait as long.
        if let Some((_, why)) = tokens.failure.as_ref().filter(|(at, _)| *at > asked) {
            return Err(why.clone());
        }
        match fetch(env, transport, config, client).await {
            Ok(fetched) => {
                let header = fetched.header.clone();
                *tokens = Tokens { known: Some(fetched), failure: None };
                Ok(header)
            }
            Err(error) => {
                let error = Error::unavailable(format!("no token: {error}"));
                tokens.failure = Some((env.monotonic(), error.clone()));
                Err(error)
            }
        }
    }
}

async fn fetch(
    env: &Env,
    transport: &Transport,
    config: &RestConfig,
    client: &OAuth2Client,
) -> Result<Token> {
    let own = || format!("{}/v1/oauth/tokens", config.uri.trim_end_matches('/'));
    let endpoint = client.uri.clone().unwrap_or_else(own);
    let url = Url::parse(&endpoint)
        .map_err(|error| Error::invalid(format!("address {endpoint}")).with_source(error))?;
    let asked = env.monotonic();
    let form = form(&[
        ("grant_type", "client_credentials"),
        ("client_id", &client.id),
        ("client_secret", client.secret.expose()),
        ("scope", &client.scope),
    ]);
    let mut headers = HeaderMap::new();
    let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
    headers.insert(CONTENT_TYPE, kind);
    let call = Call { method: Method::POST, url, body: Some(form) };
    let answer = transport.send(env, config.timeout, &call, headers).await?;
    if answer.status != StatusCode::OK {
        let (status, why) = (answer.status.as_u16(), refusal(&answer));
        return Err(Error::invalid(format!("{endpoint} answers {status} {why}")));
    }
    // The answer is never shown: it may hold a token.
    let answer: TokenAnswer = serde_json::from_slice(&answer.body)
        .map_err(|_| Error::invalid(format!("{endpoint} answers with no token")))?;
    let renewed_at = answer.expires_in.map(|seconds| {
        let life = Duration::from_secs(seconds).min(LIFE_MAX);
        asked + (life - RENEWED_BEFORE.min(life / 4))
    });
    Ok(Token { header: bearer(&answer.access_token)?, renewed_at })
}

/// What a token endpoint says of itself. The rest is never shown: it may hold a token, or the
/// request with its secret.
fn refusal(answer: &Answer) -> String {
    let refused = serde_json::from_slice(&answer.body);
    refused.map_or_else(
        |_| String::new(),
        |Refusal { error, error_description }| format!("{error}: {error_description}"),
    )
}

/// A form's bytes: `name=value&...`, escaped.
fn form(fields: &[(&str, &str)]) -> Bytes {
    let mut url = Url::parse("http://form/").expect("an address");
    url.query_pairs_mut().extend_pairs(fields);
    Bytes::from(url.query().unwrap_or_default().to_owned())
}

fn bearer(token: &str) -> Result<HeaderValue> {
    let header = HeaderValue::from_str(&format!("Bearer {token}"));
    let mut header = header.map_err(|_| Error::invalid("a token that no header can carry"))?;
    header.set_sensitive(true);
    Ok(header)
}

/// A request's own headers and its signature.
fn signed(keys: &SigV4Keys, call: &Call) -> Result<HeaderMap> {
    let unsigned = |error: Box<dyn std::error::Error + Send + Sync>| {
        Error::invalid("a request that cannot be signed").with_source(error)
    };
    let is_text = |secret: &Secret| HeaderValue::from_str(secret.expose()).is_ok();
    if !keys.session_token.as_ref().is_none_or(is_text) || !is_text(&keys.access_key) {
        return Err(Error::invalid("a key of iceberg.catalog that no header can carry"));
    }
    let body = call.body.clone().map_or_else(HttpRequestBody::empty, HttpRequestBody::from);
    let mut request = Request::builder()
        .method(call.method.clone())
        .uri(call.url.as_str())
        .body(body)
        .map_err(|error| unsigned(error.into()))?;
    let credential = AwsCredential {
        key_id: keys.access_key.expose().to_owned(),
        secret_key: keys.secret_key.expose().to_owned(),
        token: keys.session_token.as_ref().map(|token| token.expose().to_owned()),
    };
    let authorizer = AwsAuthorizer::new(&credential, &keys.service, &keys.region);
    authorizer.try_authorize(&mut request, None).map_err(|error| unsigned(error.into()))?;
    Ok(std::mem::take(request.headers_mut()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signed_request_names_its_key_its_scope_and_its_body() {
        let keys = SigV4Keys {
            service: "glue".to_owned(),
            region: "eu-west-1".to_owned(),
            access_key: Secret::new("key"),
            secret_key: Secret::new("hidden"),
            session_token: Some(Secret::new("session")),
        };
        let url = Url::parse("https://catalog/iceberg/v1/config?warehouse=s3%3A%2F%2Fa").unwrap();
        let call = |body: &'static [u8]| Call {
            method: Method::POST,
            url: url.clone(),
            body: Some(Bytes::from_static(body)),
        };
        let headers = signed(&keys, &call(b"abc")).unwrap();
        let text = |name: &str| headers[name].to_str().unwrap().to_owned();
        let (scope, signature) = {
            let authorization = text("authorization");
            let (scope, signature) = authorization.split_once(", Signature=").unwrap();
            (scope.to_owned(), signature.to_owned())
        };
        let day = &text("x-amz-date")[..8];
        let expected = format!(
            "AWS4-HMAC-SHA256 Credential=key/{day}/eu-west-1/glue/aws4_request, \
             SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token"
        );
        assert_eq!(scope, expected);
        // What the specification of SHA-256 gives for "abc".
        let of_abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(text("x-amz-content-sha256"), of_abc);
        assert_eq!(text("x-amz-security-token"), "session");
        let other = signed(&keys, &call(b"abd")).unwrap();
        assert!(!other["authorization"].to_str().unwrap().ends_with(&signature));
        assert!(!format!("{headers:?}").contains("hidden"));
    }

    #[test]
    fn a_key_that_no_header_can_carry_is_refused() {
        assert!(bearer("a\nb").is_err());
        let token = bearer("secret").unwrap();
        assert!(token.is_sensitive() && !format!("{token:?}").contains("secret"));
    }

    #[test]
    fn a_refusal_shows_nothing_but_its_own_words() {
        let answer = |body: &'static str| Answer {
            status: StatusCode::BAD_REQUEST,
            body: Bytes::from_static(body.as_bytes()),
        };
        let said = r#"{"error":"invalid_client","error_description":"who?","was":"secret"}"#;
        assert_eq!(refusal(&answer(said)), "invalid_client: who?");
        assert_eq!(refusal(&answer("client_secret=secret is wrong")), "");
        assert_eq!(refusal(&answer(r#"{"access_token":"secret"}"#)), "");
    }

    #[test]
    fn a_form_is_escaped() {
        assert_eq!(form(&[("a", "b c&d"), ("e", "\u{e4}=")]), "a=b+c%26d&e=%C3%A4%3D");
    }
}
