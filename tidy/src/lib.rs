//! Tests of the repository itself: what the compiler, clippy and rustfmt cannot see.
//!
//! Each module looks at one side of the repository and returns what it finds wrong, a sentence a
//! violation that names the place and says what to do. The tests in `tests.rs` run them over this
//! checkout, and over small bad samples, so that a rule that stopped finding anything is found out.

pub mod crates;
pub mod lockfile;
pub mod manifests;
pub mod repository;
pub mod rust;
pub mod text;

#[cfg(test)]
mod tests;
