//! All facts about the log, in two layers: a [`Backend`] per store ([`SqliteBackend`],
//! [`PostgresBackend`], [`ModelBackend`]), and everything else once above it, in [`MetadataStore`].
#![forbid(unsafe_code)]

pub mod backend;
pub mod brokers;
pub mod cluster;
mod codec;
pub mod compaction;
mod counted;
mod decide;
pub mod deletion;
mod extent_runs;
pub mod facts;
mod fresh;
pub mod groups;
mod marks;
pub mod model;
pub mod postgres;
pub mod producer_ids;
mod producers;
pub mod retention;
pub mod rows;
pub mod sqlite;
pub mod store;
#[cfg(feature = "suite")]
pub mod suite;
pub mod tables;
pub mod topics;
pub mod transactions;
pub mod validate;

pub use backend::Backend;
pub use counted::ChangeCounts;
pub use decide::{REMEMBERED_BATCHES_MAX, is_behind};
pub use extent_runs::accepted_extents;
pub use fresh::INDEXED_EXTENTS_MAX;
pub use model::ModelBackend;
pub use postgres::PostgresBackend;
pub use producers::{OPEN_TRANSACTIONS_MAX, PACKED_PRODUCERS_MAX};
pub use sqlite::SqliteBackend;
pub use store::MetadataStore;
