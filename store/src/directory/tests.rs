//! Crashes of a machine on the simulated file system, and the shapes of files on the real one.

use super::*;
use floe_env::simulated::Node;
use parking_lot::Mutex;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A file system that leaves out one sync, or loses power before one step.
#[derive(Clone)]
struct Faulty {
    inner: SimulatedFileSystem,
    syncs: Arc<AtomicU64>,
    steps: Arc<AtomicU64>,
    /// The number of the sync that is left out, by the order of calls.
    left_out: Option<u64>,
    /// The number of the first changing step that fails, by the order of calls.
    power_until: Option<u64>,
    /// How many looks at a size are under way, and the most that were.
    looks: Arc<Mutex<[usize; 2]>>,
}

impl Faulty {
    fn new(inner: &SimulatedFileSystem) -> Self {
        let (syncs, steps, looks) = (Arc::default(), Arc::default(), Arc::default());
        Self { inner: inner.clone(), syncs, steps, left_out: None, power_until: None, looks }
    }

    fn step(&self) -> io::Result<()> {
        let step = self.steps.fetch_add(1, Ordering::Relaxed);
        match self.power_until {
            Some(until) if step >= until => Err(io::Error::other("the power is off")),
            _ => Ok(()),
        }
    }

    fn sync(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.step()?;
        let number = self.syncs.fetch_add(1, Ordering::Relaxed);
        if self.left_out == Some(number) { Ok(()) } else { sync() }
    }
}

impl FileSystem for Faulty {
    type File = SimulatedFile;
    fn create(&self, path: &Path) -> io::Result<SimulatedFile> {
        self.step()?;
        self.inner.create(path)
    }
    fn write(&self, file: &mut SimulatedFile, parts: &[Bytes]) -> io::Result<()> {
        self.step()?;
        self.inner.write(file, parts)
    }
    fn sync_data(&self, file: &SimulatedFile) -> io::Result<()> {
        self.sync(|| self.inner.sync_data(file))
    }
    fn rename_if_free(&self, from: &Path, to: &Path) -> io::Result<bool> {
        self.step()?;
        self.inner.rename_if_free(from, to)
    }
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        self.inner.create_directory(path)
    }
    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.sync(|| self.inner.sync_directory(path))
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        self.inner.remove(path)
    }
    /// Takes a while, so that looks meet.
    fn size(&self, path: &Path) -> io::Result<Option<u64>> {
        {
            let mut looks = self.looks.lock();
            looks[0] += 1;
            looks[1] = looks[1].max(looks[0]);
        }
        let (_sender, pause) = std::sync::mpsc::channel::<()>();
        // It always times out.
        let _ = pause.recv_timeout(Duration::from_micros(500));
        self.looks.lock()[0] -= 1;
        self.inner.size(path)
    }
    fn is_directory(&self, path: &Path) -> io::Result<bool> {
        self.inner.is_directory(path)
    }
    fn read(&self, path: &Path, range: Range<u64>) -> io::Result<Vec<u8>> {
        self.inner.read(path, range)
    }
    fn entries(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>> {
        self.inner.entries(path)
    }
    fn is_sole_user(&self, lock: &Path) -> io::Result<bool> {
        self.inner.is_sole_user(lock)
    }
}

const KEY: &str = "wal/ab/one.kfs";

fn content() -> Vec<Bytes> {
    vec![Bytes::from_static(b"first "), Bytes::from_static(b"second")]
}

async fn open<F: FileSystem>(file_system: F) -> Result<DirectoryStore<F>> {
    let env = Env::simulated(Node::new(7));
    DirectoryStore::open_on(env, file_system, PathBuf::from("/data/floe")).await
}

/// What a store opened after a power cut has under a key.
async fn after_crash(disk: &SimulatedFileSystem, key: &str) -> Option<Bytes> {
    disk.crash();
    let store = open(disk.clone()).await.expect("open after the crash");
    store.get(key).await.expect("read after the crash")
}

fn whole() -> Option<Bytes> {
    Some(Bytes::from_static(b"first second"))
}

#[tokio::test]
async fn an_acknowledged_object_survives_a_power_cut_and_needs_every_sync() {
    let disk = SimulatedFileSystem::new();
    let complete = Faulty::new(&disk);
    let store = open(complete.clone()).await.expect("open");
    assert_eq!(store.put(KEY, content()).await.expect("put"), PutOutcome::Created);
    assert_eq!(after_crash(&disk, KEY).await, whole());
    // The two folders above the store's root, its root, wal, the data, and wal/ab.
    let syncs = complete.syncs.load(Ordering::Relaxed);
    assert_eq!(syncs, 6);
    for left_out in 0..syncs {
        let disk = SimulatedFileSystem::new();
        let faulty = Faulty { left_out: Some(left_out), ..Faulty::new(&disk) };
        let store = open(faulty).await.expect("open");
        assert_eq!(store.put(KEY, content()).await.expect("put"), PutOutcome::Created);
        assert_ne!(after_crash(&disk, KEY).await, whole(), "sync {left_out} seems not needed");
    }
}

#[tokio::test]
async fn whenever_the_power_fails_acknowledged_objects_stay_and_others_are_whole_or_absent() {
    let keys = ["wal/ab/1", "wal/ab/2", "wal/cd/3", "log/4"];
    let mut outcomes = [0, 0];
    for power_until in 0..60 {
        let disk = SimulatedFileSystem::new();
        let faulty = Faulty { power_until: Some(power_until), ..Faulty::new(&disk) };
        let mut acknowledged = Vec::new();
        if let Ok(store) = open(faulty).await {
            for key in keys {
                let created = store.put(key, content()).await.is_ok();
                acknowledged.extend(created.then_some(key));
            }
        }
        disk.crash();
        let store = open(disk.clone()).await.expect("open after the crash");
        for key in keys {
            let found = store.get(key).await.expect("read");
            if acknowledged.contains(&key) {
                assert_eq!(found, whole(), "{key} lost, power until step {power_until}");
            }
            assert!(found.is_none() || found == whole(), "{key} torn at step {power_until}");
            outcomes[usize::from(found.is_some())] += 1;
            // The store goes on as if nothing had happened.
            store.put(key, content()).await.expect("put again");
            assert_eq!(store.get(key).await.expect("read"), whole());
        }
        let temporary = disk.entries(Path::new("/data/floe/.tmp")).expect("entries");
        assert!(temporary.is_empty(), "left over: {temporary:?}");
    }
    assert!(outcomes[0] > 20 && outcomes[1] > 20, "both happen: {outcomes:?}");
}

#[tokio::test]
async fn what_another_began_is_not_trusted_to_be_durable() {
    let disk = SimulatedFileSystem::new();
    let store = open(disk.clone()).await.expect("open");
    // Another's put got as far as making the folders.
    disk.create_directory(Path::new("/data/floe/wal")).expect("folder");
    disk.create_directory(Path::new("/data/floe/wal/ab")).expect("folder");
    store.put(KEY, content()).await.expect("put");
    assert_eq!(after_crash(&disk, KEY).await, whole());

    // Another's put got as far as giving the name; who finds it taken may rely on it.
    let disk = SimulatedFileSystem::new();
    let store = open(disk.clone()).await.expect("open");
    store.put("wal/ab/other", content()).await.expect("put");
    let named = Path::new("/data/floe/wal/ab/one.kfs");
    let mut file = disk.create(named).expect("create");
    disk.write(&mut file, &content()).expect("write");
    disk.sync_data(&file).expect("sync");
    assert_eq!(store.put(KEY, content()).await.expect("put"), PutOutcome::Exists);
    assert_eq!(after_crash(&disk, KEY).await, whole());
}

#[tokio::test]
async fn deletions_are_durable() {
    for left_out in [None, Some(6)] {
        let disk = SimulatedFileSystem::new();
        let store = open(Faulty { left_out, ..Faulty::new(&disk) }).await.expect("open");
        store.put(KEY, content()).await.expect("put");
        store.delete(&[KEY.to_owned(), "zz/none".to_owned()]).await.expect("delete");
        let expected = if left_out.is_some() { whole() } else { None };
        assert_eq!(after_crash(&disk, KEY).await, expected);
    }
}

#[tokio::test]
async fn files_of_every_size_are_exact_with_and_without_direct_writes() {
    let mib = 1 << 20;
    let sizes = [0, 1, 4095, 4096, 4097, mib, 2 * mib - 1, 2 * mib, 2 * mib + 1, 5 * mib + 3];
    for direct in [true, false] {
        let folder = tempfile::tempdir().expect("folder");
        let store =
            DirectoryStore::open(Env::current(), folder.path(), direct).await.expect("open");
        for size in sizes {
            let whole: Bytes = (0..size).map(|position: usize| (position % 253) as u8).collect();
            let cuts = [size / 7, size / 2, size / 2 + size / 3];
            let mut rest = whole.clone();
            let mut parts = Vec::new();
            for end in cuts {
                let done = size - rest.len();
                parts.push(rest.split_to(end - done));
            }
            parts.push(rest);
            let key = format!("size/{size}");
            assert_eq!(store.put(&key, parts).await.expect("put"), PutOutcome::Created);
            assert_eq!(store.get(&key).await.expect("get"), Some(whole), "{size} bytes");
        }
    }
}

#[tokio::test]
async fn left_over_files_go_at_the_next_start_but_not_those_of_a_running_store() {
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join(".tmp/left-over");
    let first = DirectoryStore::open(Env::current(), folder.path(), true).await.expect("open");
    std::fs::write(&file, "x").expect("write");
    let second = DirectoryStore::open(Env::current(), folder.path(), true).await.expect("open");
    assert!(file.exists(), "the first store may still be writing it");
    drop((first, second));
    let third = DirectoryStore::open(Env::current(), folder.path(), true).await.expect("open");
    assert!(!file.exists());
    assert_eq!(third.list("", None, 10).await.expect("list"), []);
}

#[tokio::test]
async fn the_stores_own_folder_and_clashing_names_are_refused() {
    let folder = tempfile::tempdir().expect("folder");
    let store = DirectoryStore::open(Env::current(), folder.path(), true).await.expect("open");
    let one = || vec![Bytes::from_static(b"1")];
    let refused = |outcome: Result<PutOutcome>| {
        assert_eq!(outcome.expect_err("refused").kind(), floe_env::ErrorKind::Invalid);
    };
    refused(store.put(".tmp/x", one()).await);
    store.put("a/b", one()).await.expect("put");
    refused(store.put("a/b/c", one()).await);
    refused(store.put("a", one()).await);
    assert_eq!(store.head("a").await.expect("head"), None);
    assert_eq!(store.head("a/b/c").await.expect("head"), None);
    store.delete(&["a/b/c".to_owned()]).await.expect("nothing to delete");
    // What stands beside the store's folders is none of its objects.
    std::fs::write(folder.path().join("not a key"), "x").expect("write");
    assert_eq!(store.list("", None, 10).await.expect("list").len(), 1);
}

#[tokio::test]
async fn what_others_have_put_is_listed_and_deleted() {
    let folder = tempfile::tempdir().expect("folder");
    let store = DirectoryStore::open(Env::current(), folder.path(), true).await.expect("open");
    store.put("a/b", vec![Bytes::from_static(b"1")]).await.expect("put");
    std::fs::create_dir(folder.path().join("a/city=New+York")).expect("make a folder");
    for name in ["a/city=New+York/1%2F2", "a/not a key"] {
        std::fs::write(folder.path().join(name), "x").expect("write");
    }
    let mut keys: Vec<String> = Vec::new();
    while let [next] = &store.list("a", keys.last().map(String::as_str), 1).await.expect("list")[..]
    {
        keys.push(next.key.clone());
    }
    assert_eq!(keys, ["a/b", "a/city=New+York/1%2F2", "a/not a key"]);
    store.delete(&keys).await.expect("delete");
    assert_eq!(store.list("", None, 10).await.expect("list"), []);
}

#[tokio::test]
async fn file_jobs_are_capped_also_when_their_callers_go_away() {
    let crowded = Faulty::new(&SimulatedFileSystem::new());
    let looks = Arc::clone(&crowded.looks);
    let root = PathBuf::from("/floe");
    let store = DirectoryStore::open_on(Env::current(), crowded, root).await.expect("open");
    let heads = (0..FILE_JOBS_MAX * 4).map(|_| store.head("a"));
    let gone = futures::future::join_all(heads);
    let env = Env::current();
    let left = env.timeout(Duration::from_micros(500), gone).await;
    assert!(left.is_none(), "the callers go away while their jobs run");
    let heads = (0..FILE_JOBS_MAX * 4).map(|_| store.head("a"));
    for head in futures::future::join_all(heads).await {
        assert_eq!(head.expect("head"), None);
    }
    let most = looks.lock()[1];
    assert!(most > FILE_JOBS_MAX / 2 && most <= FILE_JOBS_MAX, "{most} jobs at once");
}

#[tokio::test]
async fn a_directory_has_one_address_whatever_links_lead_to_it() {
    let folder = tempfile::tempdir().expect("folder");
    let real = folder.path().canonicalize().expect("a path").join("real");
    std::fs::create_dir(&real).expect("a folder");
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&real, &link).expect("a link");
    for path in [real.clone(), link.clone(), link.join("..").join("real"), link.join("new/er")] {
        let store = DirectoryStore::open(Env::current(), &path, false).await.expect("a store");
        let inside = if path.ends_with("new/er") { real.join("new/er") } else { real.clone() };
        assert_eq!(store.url("a/b"), format!("file://{}/a/b", inside.display()));
    }
}
