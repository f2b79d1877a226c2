//! The runtimes: connections and store IO on one, background work on another whose threads give way
//! where cores are scarce, so that the second never delays the first.

use floe_env::{Env, Error, Result};
use std::future::Future;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// Threads for blocking file IO.
const BLOCKING_THREADS_MAX: usize = 64;
/// Blocking work that runs at the end may take so long.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// Niceness of the background threads: a third of the weight of a foreground thread. Not less, for
/// both take the same locks.
const BACKGROUND_NICENESS: i32 = 5;

/// Runs `work` with the whole machine: foreground workers on every core, background workers on
/// every core but one, at least one.
pub(super) fn run_broker<T, Working>(work: impl FnOnce(Env) -> Working) -> Result<T>
where
    Working: Future<Output = T>,
{
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let foreground = build("floe-foreground", cores, 0)?;
    let spare_cores = cores.saturating_sub(1).max(1);
    let background = build("floe-background", spare_cores, BACKGROUND_NICENESS)?;
    let env = Env::real(foreground.handle().clone(), background.handle().clone());
    let ended = foreground.block_on(work(env));
    background.shutdown_timeout(END_TIMEOUT);
    foreground.shutdown_timeout(END_TIMEOUT);
    Ok(ended)
}

fn build(name: &'static str, workers: usize, niceness: i32) -> Result<Runtime> {
    // A thread begins with the niceness of the one that starts it, which may be of this runtime.
    let own = rustix::process::getpriority_process(None).unwrap_or(0);
    let give_way = move || {
        // On Linux of the calling thread alone. Where it is refused, work is done all the same.
        if let Err(error) = rustix::process::setpriority_process(None, own + niceness) {
            tracing::debug!(%error, name, "a thread's priority was not lowered");
        }
    };
    Builder::new_multi_thread()
        .worker_threads(workers)
        .on_thread_start(give_way)
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_name(name)
        .enable_all()
        .build()
        .map_err(|error| Error::unavailable("cannot start threads").with_source(error))
}

/// Runs a short command.
pub(super) fn run_command<T>(work: impl AsyncFnOnce(Env) -> T) -> Result<T> {
    let runtime = build("floe", 1, 0)?;
    let ended = runtime.block_on(async { work(Env::current()).await });
    runtime.shutdown_timeout(END_TIMEOUT);
    Ok(ended)
}

#[cfg(test)]
mod tests {
    use super::*;
    use floe_env::Lane;

    /// The niceness of the thread that calls: field 19 of proc(5).
    fn niceness() -> i32 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let behind_the_name = stat.rsplit_once(')').unwrap().1;
        behind_the_name.split_whitespace().nth(16).unwrap().parse().unwrap()
    }

    #[test]
    fn background_threads_give_way_and_foreground_threads_do_not() {
        let own = niceness();
        let found = run_broker(|env| async move {
            let mut found = Vec::new();
            for lane in [Lane::Foreground, Lane::Background] {
                let of_lane = env.clone();
                let task = env.spawn("test", lane, async move {
                    (niceness(), of_lane.blocking(niceness).await)
                });
                found.push(task.await.unwrap());
            }
            found
        });
        let nicer = own + BACKGROUND_NICENESS;
        assert_eq!(found.unwrap(), [(own, own), (nicer, nicer)], "of tasks and of what blocks");
    }
}
