//! Tests of the whole bridge, on simulated nodes over stores in memory.

mod bridge;
mod crashes;
mod removal;
pub(crate) mod support;
mod sweep;
