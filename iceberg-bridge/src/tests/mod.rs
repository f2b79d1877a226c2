//! Tests of the whole bridge, on simulated nodes over stores in memory.

mod bridge;
mod crashes;
mod failures;
pub(crate) mod json_rows;
mod json_tables;
mod removal;
pub(crate) mod support;
mod sweep;
