//! From the log to Iceberg tables: every topic's history as a table that Spark, Trino, DuckDB,
//! PyIceberg and Flink query through the embedded REST catalog.
//!
//! [`Bridge`] has one worker a topic. A worker's turn reads the log through [`LogReader`] from the
//! table's progress to a cut, encodes rows to Parquet in memory ([`encode`]), and commits them
//! ([`commit`]). A turn runs when a file is worth writing, or when somebody looks ([`look`]).
//! [`catalog`] serves the tables.
#![forbid(unsafe_code)]

pub mod bridge;
pub mod catalog;
pub mod commit;
pub mod config;
pub mod encode;
mod error;
mod external;
pub mod files;
pub mod fold;
mod json;
pub mod log_reader;
pub mod look;
pub mod mapping;
pub mod memory_log;
pub mod names;
pub mod place;
pub mod pointer;
pub mod progress;
mod projection;
pub mod relocate;
mod removal;
pub mod schema;
mod staging;
pub mod status;
pub mod sweep;
#[cfg(test)]
mod tests;
pub mod topic_patterns;
mod turns;
mod worker;

pub use bridge::{Bridge, ENABLE_CONFIG, VALUE_FORMAT_CONFIG};
pub use catalog::{CatalogClient, ReadKeys};
pub use commit::ResumeFrom;
pub use config::{BridgeConfig, CatalogConfig};
pub use encode::{DecodeCounts, ValueFormat};
pub use log_reader::{LogRead, LogReader, PartitionCut};
pub use look::{Behind, LookAnswer};
pub use mapping::{LimitsReached, MappingLimits};
pub use status::{TableState, TableStatus};
pub use topic_patterns::TopicPatterns;
