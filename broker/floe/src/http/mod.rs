//! The HTTP address: health, metrics, the questions of the command line, and the Iceberg catalog.
//!
//! | path | answers |
//! |---|---|
//! | `/healthz` | 200 as long as the process answers at all |
//! | `/readyz` | 200 once clients are served, else 503 with the reason |
//! | `/metrics` | Prometheus's text format |
//! | `/v1/status`, `/v1/topics`, `/v1/topics/{name}`, `/v1/tables` | JSON, see [`inspect`] |
//! | `POST /v1/tables/{name}/resume` | lets a stopped table go on, see [`inspect::ResumeRequest`] |
//! | `POST /v1/tables/flush` | snapshots of tables at one cut, see [`inspect::FlushRequest`] |
//! | `/v1/extents?topic=&partition=&offset=` | where a partition's records lie, as JSON |
//! | `/iceberg/...` | the catalog, a router that is handed in |
//!
//! [`router`] makes the routes, [`serve`] runs them on a listener. A request's head, its body, the
//! time that it may take to come, and the number of connections are all limited.

mod error;
pub mod inspect;
mod routes;
mod server;
#[cfg(test)]
mod tests;

pub use error::{ApiError, status_of};
pub use inspect::{
    ExtentView, ExtentsPage, FlushRequest, Inspect, PartitionView, ResumeRequest, StatusView,
    TableView, TopicView, TopicsPage,
};
pub use routes::{Readiness, Routes, router};
pub use server::{BODY_BYTES_MAX, CONNECTIONS_MAX, serve};
