//! Choices, all of which come from the seed of the [`Env`] that they are made with.

use floe_env::Env;
use std::time::Duration;

/// A number below `bound`, which must not be 0.
pub fn below(env: &Env, bound: u64) -> u64 {
    env.random_u64() % bound
}

/// True in `per_mille` of 1000 cases.
pub fn chance(env: &Env, per_mille: u64) -> bool {
    below(env, 1000) < per_mille
}

/// A time of `from_ms..until_ms` milliseconds.
pub fn between_ms(env: &Env, from_ms: u64, until_ms: u64) -> Duration {
    Duration::from_millis(from_ms + below(env, until_ms - from_ms))
}

/// One of some values, of which there must be one.
pub fn pick<T: Copy>(env: &Env, values: &[T]) -> T {
    values[below(env, values.len() as u64) as usize]
}
