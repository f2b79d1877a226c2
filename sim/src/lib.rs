//! Seeded simulation of whole brokers: everything is a task of one thread whose time is paused, and
//! every choice (latency, fault, death, order of tasks) comes from one seed. Never in the product.
//!
//! | module | is |
//! |---|---|
//! | [`harness`] | from a seed to a run and its [`Report`] |
//! | [`trace`] | a hash over everything that happened, and the newest lines of it |
//! | [`dice`] | choices |
//! | [`calls`] | one store call: latency, fault, death of the caller, late application |
//! | [`fault_store`], [`fault_metadata`] | the two stores with faulty calls |
//! | [`cluster`] | the broker node: starts, deaths, restarts; the network |
//! | [`client`] | one connection that speaks the real protocol |
//! | [`actors`] | producers, consumers, topic churn, clock jumps |
//! | [`model`] | what clients were promised, and the checks |
//! | [`planted`] | three bugs that the checks must find |
#![forbid(unsafe_code)]

pub mod actors;
pub mod calls;
pub mod client;
pub mod cluster;
pub mod dice;
pub mod fault_metadata;
pub mod fault_store;
pub mod harness;
pub mod model;
pub mod planted;
pub mod trace;

pub use harness::{Report, run};
pub use planted::Plant;
