//! The runtimes: connections and store IO on one, background work on another, so that the second
//! never delays the first.

use floe_env::{Env, Error, Result};
use std::future::Future;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// Threads for blocking file IO.
const BLOCKING_THREADS_MAX: usize = 64;
/// Blocking work that runs at the end may take so long.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs `work` with the whole machine: foreground workers on every core, background workers on
/// every core but one, at least one.
pub(super) fn run_broker<T, Working>(work: impl FnOnce(Env) -> Working) -> Result<T>
where
    Working: Future<Output = T>,
{
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let foreground = build("floe-foreground", cores)?;
    let background = build("floe-background", cores.saturating_sub(1).max(1))?;
    let env = Env::real(foreground.handle().clone(), background.handle().clone());
    let ended = foreground.block_on(work(env));
    background.shutdown_timeout(END_TIMEOUT);
    foreground.shutdown_timeout(END_TIMEOUT);
    Ok(ended)
}

fn build(name: &'static str, workers: usize) -> Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(workers)
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_name(name)
        .enable_all()
        .build()
        .map_err(|error| Error::unavailable("cannot start threads").with_source(error))
}

/// Runs a short command.
pub(super) fn run_command<T>(work: impl AsyncFnOnce(Env) -> T) -> Result<T> {
    let runtime = build("floe", 1)?;
    let ended = runtime.block_on(async { work(Env::current()).await });
    runtime.shutdown_timeout(END_TIMEOUT);
    Ok(ended)
}
