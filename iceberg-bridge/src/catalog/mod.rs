//! The embedded Iceberg REST catalog: `/iceberg/v1`.
//!
//! Engines read tables here, and change them where the configuration lets them
//! (`iceberg.external_write`); what a change does is [`crate::external`]'s.
//!
//! Two warehouses show the same tables. `floe`, the default, brings a table to its topic's end
//! before it answers a load (a look); `relaxed` answers with the newest snapshot and commits
//! nothing, for crawlers. `GET /v1/config` puts the warehouse's name into the path of all other
//! requests, and lists the endpoints that are there.

mod access;
mod answer;
mod config;
mod credentials;
mod namespaces;
mod pages;
mod tables;
#[cfg(test)]
mod tests;
mod tokens;
mod views;
mod writes;

pub use access::{CatalogClient, TOKEN_LIFETIME};
pub use credentials::ReadKeys;

use crate::bridge::Bridge;
use answer::Refusal;
use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{any, get, post};

/// The warehouse whose loads commit.
pub const WAREHOUSE: &str = "floe";
/// The warehouse whose loads do not.
pub const RELAXED_WAREHOUSE: &str = "relaxed";

/// Which of the two a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Warehouse {
    Fresh,
    Relaxed,
}

impl Warehouse {
    fn named(name: &str) -> Result<Self, Refusal> {
        match name {
            WAREHOUSE => Ok(Self::Fresh),
            RELAXED_WAREHOUSE => Ok(Self::Relaxed),
            other => Err(Refusal::not_found(
                "NoSuchWarehouseException",
                format!(
                    "no warehouse `{other}`: there are `{WAREHOUSE}` and `{RELAXED_WAREHOUSE}`"
                ),
            )),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Fresh => WAREHOUSE,
            Self::Relaxed => RELAXED_WAREHOUSE,
        }
    }
}

/// Refuses changes where engines may not make any.
fn check_writes(bridge: &Bridge, prefix: &str) -> Result<(), Refusal> {
    Warehouse::named(prefix)?;
    match bridge.config().catalog.external_write {
        true => Ok(()),
        false => Err(Refusal::read_only()),
    }
}

/// The catalog's routes, to be merged into an HTTP server's.
pub fn router(bridge: Bridge) -> Router {
    let unsupported = || async { Refusal::unsupported() };
    let no_endpoint = || async { Refusal::no_such_endpoint() };
    let table = get(tables::load).head(tables::exists);
    let prefixed = Router::new()
        .route("/namespaces", get(namespaces::list).post(namespaces::create))
        .route("/namespaces/{namespace}", get(namespaces::load).delete(namespaces::remove))
        .route("/namespaces/{namespace}/properties", post(namespaces::change))
        .route("/namespaces/{namespace}/register", post(unsupported))
        .route("/namespaces/{namespace}/tables", get(tables::list).post(writes::create))
        .route(
            "/namespaces/{namespace}/tables/{table}",
            table.post(writes::commit).delete(writes::remove),
        )
        .route("/namespaces/{namespace}/tables/{table}/credentials", get(tables::load_credentials))
        .route("/namespaces/{namespace}/tables/{table}/metrics", post(tables::take_metrics))
        .route("/namespaces/{namespace}/views", get(views::list).post(unsupported))
        .route("/namespaces/{namespace}/views/{view}", get(views::load).post(unsupported))
        .route("/tables/rename", post(writes::rename))
        .route("/views/rename", post(unsupported))
        .route("/transactions/commit", post(writes::commit_transaction));
    let guarded = Router::new()
        .route("/iceberg/v1/config", get(config::config))
        .nest("/iceberg/v1/{prefix}", prefixed)
        .route("/iceberg/{*rest}", any(no_endpoint))
        .layer(from_fn_with_state(bridge.clone(), access::check));
    Router::new()
        .route("/iceberg/v1/oauth/tokens", post(access::token))
        .merge(guarded)
        .method_not_allowed_fallback(unsupported)
        .with_state(bridge)
}
