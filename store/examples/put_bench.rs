//! Puts 8 MiB objects into a directory store and prints MB/s and CPU seconds for each GiB, with
//! O_DIRECT and without: `cargo run --release -p floe-store --example put_bench [folder]`.

use bytes::Bytes;
use floe_env::Env;
use floe_store::{DirectoryStore, ObjectStore};
use futures::stream::{self, StreamExt};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::path::PathBuf;
use std::sync::Arc;

const OBJECT_BYTES: usize = 8 << 20;
const OBJECTS: usize = 128;
const PART_BYTES: usize = 256 << 10;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let base = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let env = Env::current();
    let root = base.join(format!("floe-put-bench-{}", env.uuid()));
    for round in 0..2 {
        for direct in [true, false] {
            for in_flight in [1, 4] {
                let folder = root.join(format!("{round}-{direct}-{in_flight}"));
                let store = DirectoryStore::open(env.clone(), &folder, direct).await.expect("open");
                measure(&env, Arc::new(store), direct, in_flight).await;
                std::fs::remove_dir_all(&folder).expect("clean up");
            }
        }
    }
    std::fs::remove_dir_all(&root).expect("clean up");
}

async fn measure(env: &Env, store: Arc<dyn ObjectStore>, direct: bool, in_flight: usize) {
    let object: Bytes = (0..OBJECT_BYTES).map(|n| (n * 31 % 251) as u8).collect();
    let part = |start: usize| object.slice(start..start + PART_BYTES);
    let parts: Vec<Bytes> = (0..OBJECT_BYTES).step_by(PART_BYTES).map(part).collect();
    let (started, cpu) = (env.monotonic(), cpu_seconds());
    let puts = stream::iter(0..OBJECTS).map(|n| {
        let (store, parts) = (Arc::clone(&store), parts.clone());
        async move { store.put(&format!("wal/{:02x}/{n}.kfs", n % 16), parts).await.expect("put") }
    });
    let created = puts.buffer_unordered(in_flight).count().await;
    let seconds = (env.monotonic() - started).as_secs_f64();
    let cpu = cpu_seconds() - cpu;
    let bytes = (created * OBJECT_BYTES) as f64;
    let rate = bytes / 1e6 / seconds;
    let cpu_per_gib = cpu / (bytes / f64::from(1 << 30));
    let way = if direct { "direct" } else { "buffered" };
    println!("{way:8} {in_flight} in flight: {rate:6.0} MB/s, {cpu_per_gib:.3} CPU s/GiB");
}

fn cpu_seconds() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("the process may ask for its own usage");
    (usage.user_time() + usage.system_time()).num_microseconds() as f64 / 1e6
}
