//! Who may ask. Where the configuration names a client (`iceberg.client_id`), every request but
//! the one for a token needs a bearer token; else the catalog is anonymous, and clients that insist
//! on a token get one that means nothing.
//!
//! `POST /v1/oauth/tokens` takes the client's id and secret in the form or by HTTP Basic
//! (`client_credentials`), or a token that is still good (`token-exchange`, by which Java renews).

use super::answer::Refusal;
use super::tokens;
use crate::bridge::Bridge;
use axum::Json;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use floe_store::Secret;
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

/// How long a token is good for unless the configuration says otherwise.
pub const TOKEN_LIFETIME: Duration = Duration::from_secs(3600);
/// What a client that needs no token gets.
const ANONYMOUS: &str = "anonymous";
const CLIENT_CREDENTIALS: &str = "client_credentials";
/// Clients pad, or do not.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
const TOKEN_EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";

/// The client that may ask.
#[derive(Clone, Debug)]
pub struct CatalogClient {
    /// Its id.
    pub id: String,
    /// Its secret.
    pub secret: Secret,
}

#[derive(Debug, Default, Deserialize)]
struct TokenForm {
    grant_type: Option<String>,
    client_id: Option<String>,
    client_secret: Option<String>,
    subject_token: Option<String>,
}

/// Lets a request through that brings a good token, where one is needed.
pub(super) async fn check(
    State(bridge): State<Bridge>,
    request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    if bridge.config().catalog.client.is_some() {
        let token = credentials(request.headers(), "Bearer").map(str::to_owned);
        let token = token.ok_or_else(|| Refusal::not_authorized("this catalog needs a token"))?;
        if !tokens::is_good(bridge.env(), bridge.metadata(), &token).await? {
            return Err(Refusal::not_authorized("the token has expired, or was never given"));
        }
    }
    Ok(next.run(request).await)
}

/// Gives tokens.
pub(super) async fn token(
    State(bridge): State<Bridge>,
    headers: HeaderMap,
    body: String,
) -> Result<Response, Refusal> {
    let settings = &bridge.config().catalog;
    let lifetime = settings.token_lifetime;
    let Some(client) = &settings.client else {
        return Ok(Json(answer(ANONYMOUS, lifetime)).into_response());
    };
    let Some(form) = parse(&body) else {
        return Ok(refusal("invalid_request", "the body is no form"));
    };
    let is_allowed = match form.grant_type.as_deref() {
        Some(CLIENT_CREDENTIALS) => is_client(client, &headers, &form),
        Some(TOKEN_EXCHANGE) if is_client(client, &headers, &form) => true,
        Some(TOKEN_EXCHANGE) => {
            let subject = form.subject_token.as_deref().unwrap_or_default();
            tokens::is_good(bridge.env(), bridge.metadata(), subject).await?
        }
        _ => return Ok(refusal("unsupported_grant_type", "client_credentials is supported")),
    };
    if !is_allowed {
        return Ok(refusal("invalid_client", "the client's id or secret is wrong"));
    }
    let token = tokens::give(bridge.env(), bridge.metadata(), lifetime).await?;
    Ok(Json(answer(&token, lifetime)).into_response())
}

/// A form has the encoding of a query.
fn parse(body: &str) -> Option<TokenForm> {
    let uri: Uri = format!("/?{}", body.trim()).parse().ok()?;
    Query::<TokenForm>::try_from_uri(&uri).ok().map(|form| form.0)
}

fn answer(token: &str, lifetime: Duration) -> Value {
    json!({
        "access_token": token,
        "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
        "token_type": "bearer",
        "expires_in": lifetime.as_secs(),
    })
}

/// The error of OAuth2, which is not the catalog's.
fn refusal(error: &str, description: &str) -> Response {
    let status = match error {
        "invalid_client" => StatusCode::UNAUTHORIZED,
        _ => StatusCode::BAD_REQUEST,
    };
    (status, Json(json!({ "error": error, "error_description": description }))).into_response()
}

fn is_client(client: &CatalogClient, headers: &HeaderMap, form: &TokenForm) -> bool {
    let basic = credentials(headers, "Basic").and_then(|text| BASE64.decode(text).ok());
    let basic = basic.and_then(|bytes| String::from_utf8(bytes).ok());
    let given = match (&basic, &form.client_id, &form.client_secret) {
        (Some(basic), _, _) => basic.split_once(':'),
        (None, Some(id), Some(secret)) => Some((id.as_str(), secret.as_str())),
        _ => None,
    };
    given.is_some_and(|(id, secret)| {
        is_same(id, &client.id) & is_same(secret, client.secret.expose())
    })
}

/// Takes as long whatever the two have in common.
fn is_same(given: &str, own: &str) -> bool {
    let differences = given.bytes().zip(own.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
    given.len() == own.len() && differences == 0
}

/// What follows a scheme in the request's `Authorization`.
fn credentials<'a>(headers: &'a HeaderMap, scheme: &str) -> Option<&'a str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (given, credentials) = value.split_once(' ')?;
    given.eq_ignore_ascii_case(scheme).then(|| credentials.trim())
}
