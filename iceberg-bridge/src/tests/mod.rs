//! Tests of the whole bridge, on simulated nodes over stores in memory.

mod bridge;
mod convoys;
mod crashes;
mod failures;
mod fences;
mod flush;
pub(crate) mod json_rows;
mod json_tables;
mod looks;
mod recover;
mod removal;
mod retention;
pub(crate) mod support;
mod sweep;
