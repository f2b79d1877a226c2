//! The floe broker: Kafka clients on one address, HTTP and the Iceberg catalog on another, two
//! stores behind them.
//!
//! [`node`] puts a process together, [`broker`] is what all handlers share, [`connection`] serves
//! one client, `api` has one file for each Kafka API, [`http`] the other address, [`cli`] the
//! command line, [`config`] every setting.
#![forbid(unsafe_code)]

mod answer_memory;
mod api;
mod authorized_operations;
pub mod broker;
mod broker_configs;
pub mod cli;
mod compaction;
mod complaints;
pub mod config;
pub mod connection;
mod described_config;
mod error_codes;
mod fetch_sessions;
mod frame_memory;
mod groups;
pub mod http;
mod log_observer;
pub mod metrics;
pub mod node;
mod producer_ids;
mod recompression;
mod refused;
mod replica_assignment;
mod retention;
mod snapshots;
mod text;
mod topic_configs;
mod topic_names;
pub mod topic_settings;
pub mod topics;
mod transactions;
mod waiters;
