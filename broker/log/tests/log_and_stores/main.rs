//! The log on a memory store and the metadata model: one test binary, so that every part uses the
//! same rig.

mod append_fetch;
mod clean;
mod compaction;
mod compaction_of_transactions;
mod keyed;
mod merge;
mod producer_expiry;
mod read_ahead;
mod retention;
mod rig;
mod shared_objects;
mod transactions;
mod two_brokers;
