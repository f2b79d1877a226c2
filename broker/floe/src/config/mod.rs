//! Configuration: one table of settings, from which everything else follows.
//!
//! [`table::SETTINGS`] names each setting once: its place in the TOML file, type, default,
//! variable, flag and explanation. [`resolve`] lays flags over `FLOE_...` variables over the file
//! over the defaults and remembers where each value came from; [`Config`] is the typed result that
//! the rest of the broker is handed. `floe config` prints the resolved settings, and [`page`] makes
//! `docs/configuration.md` of the table.
//!
//! Secrets are of type [`Secret`], which no formatting ever prints, and are refused on the command
//! line, where other users of the machine could read them.

mod address;
mod catalog_table;
mod check;
mod consumer_groups;
mod derive;
mod location;
mod log_cleaner;
mod log_retention;
mod machine;
mod nearest;
pub mod page;
mod resolve;
mod rest;
mod secret;
pub mod setting;
pub mod table;
#[cfg(test)]
mod tests;
mod toml_file;
mod typed;
mod value;

pub use address::Address;
pub(crate) use derive::MEMORY_BUDGET_DEFAULT_MAX_BYTES;
pub use floe_store::Secret;
pub use location::{Cloud, MetadataLocation, StoreLocation};
pub use log_cleaner::LogCleaner;
pub use log_retention::LogRetention;
pub use machine::Machine;
pub(crate) use nearest::nearest;
pub use resolve::{Entry, Given, Inputs, Resolved, Source, resolve};
pub use typed::{
    Config, FlushConfig, IcebergConfig, KafkaConfig, ListenConfig, MemoryConfig, MetadataConfig,
    S3Config, StoreConfig,
};
pub use value::Value;
