//! Classic groups from outside: the rows of the specification's tables, restarts, random histories.
//!
//! Where a test's name begins with that of a probe, its expectation is what Kafka 4.4 answered.

#[path = "../shared/random.rs"]
mod random_numbers;

mod bench;
mod commit;
mod heartbeat;
mod join;
mod leave;
mod missing;
mod offsets;
mod random;
mod restart;
mod static_members;
mod sync;
mod view;
