//! Seeded simulation of whole brokers: everything is a task of one thread whose time is paused, and
//! every choice (latency, fault, death, order of tasks) comes from one seed. Never in the product.
//!
//! | module | is |
//! |---|---|
//! | [`harness`] | from a seed to a run and its [`Report`] |
//! | [`trace`] | a hash over everything that happened, and the newest lines of it |
//! | [`dice`] | choices |
//! | [`calls`] | one store call: latency, fault, death of the caller, late application |
//! | [`object_server`], [`metadata_server`] | the two stores, which outlive every broker |
//! | [`power`] | the machine of a directory store: its power can be cut at any step |
//! | [`fault_store`], [`fault_metadata`] | handles on the two stores with faulty calls |
//! | [`life`] | one life of the broker, with its jobs and its catalog |
//! | [`cluster`] | starts, deaths, power cuts, pauses, restarts |
//! | [`client`] | one connection that speaks the real protocol |
//! | [`actors`] | producers, consumers, deleters, queries, topic churn, clock jumps |
//! | [`model`], [`table_model`] | what clients were promised, and the checks |
//! | [`table_files`] | reads a table as an engine does |
//! | [`assignments`] | who holds which partition of a group |
//! | [`audit`] | checks both stores whenever a change is applied |
//! | [`planted`] | bugs that the checks must find |
#![forbid(unsafe_code)]

pub mod actors;
pub mod assignments;
pub mod audit;
pub mod calls;
pub mod client;
pub mod cluster;
pub mod dice;
pub mod fault_metadata;
pub mod fault_store;
pub mod harness;
pub mod life;
pub mod metadata_server;
pub mod model;
pub mod moments;
pub mod object_server;
pub mod planted;
pub mod power;
pub mod table_files;
pub mod table_model;
pub mod trace;

pub use harness::{Report, run};
pub use planted::Plant;
