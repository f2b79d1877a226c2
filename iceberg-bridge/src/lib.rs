//! From the log to Iceberg tables: every topic's history as a table that Spark, Trino, DuckDB,
//! PyIceberg and Flink query through the embedded REST catalog.
//!
//! [`Bridge`] has one worker a topic. A worker's turn reads the log through [`LogReader`] from the
//! table's progress to a cut, encodes rows to Parquet in memory ([`encode`]), and commits them
//! ([`commit`]). A turn runs when a file is worth writing, or when somebody looks ([`look`]).
//! [`catalog`] serves the tables.
#![forbid(unsafe_code)]

pub mod bridge;
mod budget;
pub mod catalog;
pub mod commit;
pub mod config;
mod convoy;
pub mod encode;
mod error;
mod external;
pub mod files;
mod flush;
pub mod fold;
mod json;
pub mod log_reader;
pub mod look;
pub mod mapping;
pub mod memory_log;
pub mod names;
mod newest;
pub mod place;
pub mod pointer;
pub mod progress;
mod projection;
pub mod recover;
pub mod relocate;
mod removal;
mod rest;
pub mod schema;
mod staging;
pub mod status;
pub mod sweep;
mod table_settings;
#[cfg(test)]
mod tests;
pub mod topic_patterns;
pub mod trim;
mod turns;
mod worker;

pub use bridge::Bridge;
pub use catalog::{CatalogClient, ReadKeys};
pub use commit::ResumeFrom;
pub use config::{BridgeConfig, CatalogConfig};
pub use encode::{DecodeCounts, ValueFormat};
pub use flush::FlushedTable;
pub use log_reader::{LogRead, LogReader, PartitionCut};
pub use look::{Behind, LookAnswer};
pub use mapping::{LimitsReached, MappingLimits};
pub use recover::{RecoveredTable, recover};
pub use rest::{OAuth2Client, RestAuth, RestConfig, SigV4Keys, check_catalog, note_log_ends};
pub use staging::STAGINGS_MAX;
pub use status::{TableState, TableStatus};
pub use table_settings::{ENABLE_CONFIG, RETENTION_CONFIG, VALUE_FORMAT_CONFIG};
pub use topic_patterns::TopicPatterns;
