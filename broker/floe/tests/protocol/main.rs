//! The broker in this process, over memory stores, spoken to in Kafka's own protocol over an
//! in-memory connection.

mod bad_input;
mod every_version;
mod kit;
mod pipelining;
mod produce_fetch;
mod samples;
