//! The broker in this process, over memory stores, spoken to in Kafka's own protocol over an
//! in-memory connection.

mod answers;
mod bad_input;
mod cases_records;
mod cases_topics;
mod every_version;
mod fetch_memory;
mod idle;
mod kafka_versions;
mod kit;
mod newer_versions;
mod pipelining;
mod produce_fetch;
mod replaced;
mod request_memory;
mod samples;
mod transactions;
