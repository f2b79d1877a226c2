//! Consumer groups of the newer protocol from outside: the rows of the specification, what Kafka
//! 4.4 answered to the probes, both protocols in one group, restarts, and every history of a small
//! world.

#[path = "../shared/random.rs"]
mod random_numbers;

mod bench;
mod embedded;
mod exhaustive;
mod heartbeat;
mod migrate;
mod mixed;
mod offsets;
mod random;
mod reconcile;
mod restart;
mod static_members;
