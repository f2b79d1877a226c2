//! The embedded Iceberg REST catalog, read-only: `/iceberg/v1`.
//!
//! Two warehouses show the same tables. `floe`, the default, brings a table to its topic's end
//! before it answers a load (a look); `relaxed` answers with the newest snapshot and commits
//! nothing, for crawlers. `GET /v1/config` puts the warehouse's name into the path of all other
//! requests, and lists the endpoints that are there.

mod answer;
mod config;
mod namespaces;
mod tables;
#[cfg(test)]
mod tests;

use crate::bridge::Bridge;
use answer::Refusal;
use axum::Router;
use axum::routing::{get, post};

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

/// The catalog's routes, to be merged into an HTTP server's.
pub fn router(bridge: Bridge) -> Router {
    let refuse = || async { Refusal::read_only() };
    let namespaces = get(namespaces::list).post(refuse);
    let namespace = get(namespaces::load).delete(refuse);
    let tables = get(tables::list).post(refuse);
    let table = get(tables::load).head(tables::exists).post(refuse).delete(refuse);
    let views = get(tables::list_views).post(refuse);
    let view = get(tables::load_view).post(refuse).delete(refuse);
    let prefixed = Router::new()
        .route("/namespaces", namespaces)
        .route("/namespaces/{namespace}", namespace)
        .route("/namespaces/{namespace}/properties", post(refuse))
        .route("/namespaces/{namespace}/register", post(refuse))
        .route("/namespaces/{namespace}/tables", tables)
        .route("/namespaces/{namespace}/tables/{table}", table)
        .route("/namespaces/{namespace}/tables/{table}/metrics", post(tables::take_metrics))
        .route("/namespaces/{namespace}/views", views)
        .route("/namespaces/{namespace}/views/{view}", view)
        .route("/tables/rename", post(refuse))
        .route("/views/rename", post(refuse))
        .route("/transactions/commit", post(refuse));
    Router::new()
        .route("/iceberg/v1/config", get(config::config))
        .route("/iceberg/v1/oauth/tokens", post(config::token))
        .nest("/iceberg/v1/{prefix}", prefixed)
        .route("/iceberg/{*rest}", axum::routing::any(|| async { Refusal::no_such_endpoint() }))
        .method_not_allowed_fallback(|| async { Refusal::unsupported() })
        .with_state(bridge)
}
