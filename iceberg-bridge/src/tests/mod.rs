//! Tests of the whole bridge, on simulated nodes over stores in memory.

mod bridge;
mod crashes;
pub(crate) mod support;
