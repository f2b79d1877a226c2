//! The public store suite: what every [`ObjectStore`] must do, whoever wrote it. Each run works in
//! a folder of its own and removes it. A wrong store panics with the reason.
#![allow(clippy::missing_panics_doc, reason = "a suite reports by panicking")]

use crate::key::check_listed_key;
use crate::object::{ObjectMeta, ObjectStore, PutOutcome};
use bytes::Bytes;
use floe_env::{Env, ErrorKind, Lane};
use std::sync::Arc;
use std::time::Duration;

/// Creates that race for one key.
const RACERS: usize = 16;
/// Keys for which there is a race.
const RACES: usize = 6;
/// The large object, bytes.
const LARGE_BYTES: usize = 12 << 20;
/// The most bytes in one part of the large object.
const LARGE_PART_BYTES_MAX: u64 = 24 << 10;
/// Puts whose callers go away.
const DROPPED_PUTS: u64 = 24;

/// A store under test, and the folder of this run.
struct Suite {
    env: Env,
    store: Arc<dyn ObjectStore>,
    folder: String,
}

/// Runs the whole suite.
pub async fn run(env: &Env, store: Arc<dyn ObjectStore>) {
    let folder = format!("suite/{}", env.uuid().simple());
    let suite = Suite { env: env.clone(), store, folder };
    suite.objects_are_read_as_written().await;
    suite.one_creator_wins().await;
    suite.ranges_lie_inside().await;
    suite.folders_are_listed_in_order_and_pages().await;
    suite.deletions_take_what_is_there().await;
    suite.unusual_keys_work_and_wrong_ones_are_refused().await;
    suite.large_objects_of_many_parts_are_whole().await;
    suite.dropped_puts_are_whole_or_absent().await;
    suite.readers_see_whole_objects().await;
    suite.clean_up().await;
}

impl Suite {
    fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.folder)
    }

    async fn put(&self, key: &str, content: &Bytes) -> PutOutcome {
        self.store.put(key, vec![content.clone()]).await.expect("put")
    }

    async fn create(&self, key: &str, content: &Bytes) {
        assert_eq!(self.put(key, content).await, PutOutcome::Created, "{key}");
    }

    async fn expect_content(&self, key: &str, content: &[u8]) {
        let found = self.store.get(key).await.expect("get").expect("the object is there");
        assert!(found == content, "{key} has {} bytes that are not those written", found.len());
    }

    async fn expect_kind<T>(&self, what: &str, call: impl Future<Output = floe_env::Result<T>>) {
        let error = call.await.err().unwrap_or_else(|| panic!("{what} must be refused"));
        assert_eq!(error.kind(), ErrorKind::Invalid, "{what}: {error}");
    }

    fn random_bytes(&self, size: usize) -> Bytes {
        let words = size.div_ceil(8);
        let mut bytes = Vec::with_capacity(words * 8);
        for _ in 0..words {
            bytes.extend_from_slice(&self.env.random_u64().to_le_bytes());
        }
        bytes.truncate(size);
        Bytes::from(bytes)
    }

    async fn objects_are_read_as_written(&self) {
        for size in [0, 1, 1000, 100_000] {
            let content = self.random_bytes(size);
            let key = self.key(&format!("plain/{size}"));
            assert_eq!(self.store.get(&key).await.expect("get"), None);
            assert_eq!(self.store.head(&key).await.expect("head"), None);
            self.create(&key, &content).await;
            self.expect_content(&key, &content).await;
            let meta = self.store.head(&key).await.expect("head");
            assert_eq!(meta, Some(ObjectMeta { key: key.clone(), size: size as u64 }));
            assert_eq!(self.put(&key, &Bytes::from_static(b"other")).await, PutOutcome::Exists);
            self.expect_content(&key, &content).await;
        }
        let none = self.key("plain/no-parts");
        assert_eq!(self.store.put(&none, Vec::new()).await.expect("put"), PutOutcome::Created);
        self.expect_content(&none, b"").await;
    }

    async fn one_creator_wins(&self) {
        for race in 0..RACES {
            let key = self.key(&format!("race/folder-{race}/object"));
            let racer = |racer: usize| {
                let (store, key) = (Arc::clone(&self.store), key.clone());
                // Of different sizes, so that a mixture would show.
                let content = Bytes::from(vec![racer as u8; 10_000 + racer]);
                let put = async move { store.put(&key, vec![content]).await };
                self.env.spawn("racer", Lane::Foreground, put)
            };
            let racers: Vec<_> = (0..RACERS).map(racer).collect();
            let mut winners = Vec::new();
            for (racer, task) in racers.into_iter().enumerate() {
                // Some stores tell a racer to try again; nobody may be told twice that it won.
                match task.await.expect("the racer ends") {
                    Ok(PutOutcome::Created) => winners.push(racer),
                    Ok(PutOutcome::Exists) => {}
                    Err(error) => assert!(error.is_transient(), "{error}"),
                }
            }
            assert_eq!(winners.len(), 1, "creators of {key}: {winners:?}");
            self.expect_content(&key, &vec![winners[0] as u8; 10_000 + winners[0]]).await;
        }
    }

    async fn ranges_lie_inside(&self) {
        let content = self.random_bytes(10_000);
        let key = self.key("ranges");
        self.create(&key, &content).await;
        for (start, end) in [(0, 1), (0, 10_000), (9_999, 10_000), (4_095, 4_097), (1, 9_999)] {
            let found = self.store.get_range(&key, start..end).await.expect("range");
            assert!(found == content[start as usize..end as usize], "{start}..{end} differs");
        }
        for (start, end) in [(0, 10_001), (9_999, 10_001), (10_000, 10_001), (20_000, 20_010)] {
            let what = format!("range {start}..{end}");
            self.expect_kind(&what, self.store.get_range(&key, start..end)).await;
        }
        self.expect_kind("a huge range", self.store.get_range(&key, 0..u64::MAX)).await;
        self.expect_kind("an empty range", self.store.get_range(&key, 5..5)).await;
        let backwards = std::ops::Range { start: 6, end: 5 };
        self.expect_kind("a backward range", self.store.get_range(&key, backwards)).await;
        let missing = self.key("no-such");
        self.expect_kind("a missing object", self.store.get_range(&missing, 0..1)).await;
    }

    async fn folders_are_listed_in_order_and_pages(&self) {
        let names = ["a/1", "a/2", "a/b/3", "a/b/c/4", "ab/5", "b/6", "b/7", "b/8", "c/9"];
        for (size, name) in names.iter().enumerate() {
            self.create(&self.key(&format!("list/{name}")), &self.random_bytes(size)).await;
        }
        let all: Vec<ObjectMeta> = (0..)
            .zip(names)
            .map(|(size, name)| ObjectMeta { key: self.key(&format!("list/{name}")), size })
            .collect();
        let list = self.key("list");
        for (folder, expected) in [
            (list.clone(), &all[..]),
            (format!("{list}/"), &all[..]),
            (format!("{list}/a"), &all[..4]),
            (format!("{list}/a/b"), &all[2..4]),
            (format!("{list}/b"), &all[5..8]),
            (format!("{list}/none"), &all[..0]),
            (format!("{list}/a/1"), &all[..0]),
        ] {
            let found = self.store.list(&folder, None, 100).await.expect("list");
            assert_eq!(found, expected, "listing of {folder}");
        }
        for limit in [1, 2, 4, 9] {
            let mut found: Vec<ObjectMeta> = Vec::new();
            loop {
                let after = found.last().map(|object| object.key.clone());
                let page = self.store.list(&list, after.as_deref(), limit).await.expect("list");
                assert!(page.len() <= limit);
                if page.is_empty() {
                    break;
                }
                found.extend(page);
            }
            assert_eq!(found, all, "pages of {limit}");
        }
        for (after, expected) in
            [("a/0", &all[..]), ("a/b/2", &all[2..]), ("aa", &all[4..]), ("b/7", &all[7..])]
        {
            let after = self.key(&format!("list/{after}"));
            let found = self.store.list(&list, Some(&after), 100).await.expect("list");
            assert_eq!(found, expected, "listing after {after}");
        }
        assert_eq!(self.store.list(&list, None, 0).await.expect("list"), []);
    }

    async fn deletions_take_what_is_there(&self) {
        let content = Bytes::from_static(b"x");
        let keys: Vec<_> = (0..30).map(|n| self.key(&format!("delete/{}/{n}", n % 3))).collect();
        for key in &keys {
            self.create(key, &content).await;
        }
        let mut some = keys[..20].to_vec();
        some.extend((0..1_100).map(|n| self.key(&format!("delete/none/{n}"))));
        self.store.delete(&some).await.expect("delete");
        self.store.delete(&some).await.expect("delete what is gone");
        self.store.delete(&[]).await.expect("delete nothing");
        let left = self.store.list(&self.key("delete"), None, 100).await.expect("list");
        assert_eq!(left.len(), 10);
        for key in &keys[..20] {
            assert_eq!(self.store.head(key).await.expect("head"), None);
        }
        self.create(&keys[0], &content).await;
    }

    async fn unusual_keys_work_and_wrong_ones_are_refused(&self) {
        let long = "n".repeat(crate::key::KEY_SEGMENT_BYTES_MAX);
        let names = ["=", "-", "_", "...", ".hidden", "a.b/c=d/e-f", "x..y", "day=2026-01-01/0"];
        for name in names.into_iter().chain([long.as_str()]) {
            let key = self.key(&format!("unusual/{name}"));
            let content = Bytes::from(key.clone());
            self.create(&key, &content).await;
            self.expect_content(&key, &content).await;
        }
        let found = self.store.list(&self.key("unusual"), None, 100).await.expect("list");
        assert_eq!(found.len(), names.len() + 1, "{found:?}");
        for name in ["../up", "a//b", "a/./b", "a b", "a\\b", "ü", "a%b", "a\0b", "a/", "*", "a:b"]
        {
            let key = self.key(name);
            let put = self.store.put(&key, vec![Bytes::from_static(b"x")]);
            self.expect_kind(&key, put).await;
            self.expect_kind(&key, self.store.get(&key)).await;
            self.expect_kind(&key, self.store.get_range(&key, 0..1)).await;
            self.expect_kind(&key, self.store.head(&key)).await;
            let deleted = self.store.delete(std::slice::from_ref(&key));
            // Others may have put such an object.
            match check_listed_key(&key) {
                Ok(()) => deleted.await.expect(&key),
                Err(_) => self.expect_kind(&key, deleted).await,
            }
        }
        self.expect_kind("an absolute key", self.store.get("/etc/passwd")).await;
        self.expect_kind("an empty key", self.store.get("")).await;
        self.expect_kind("an outer folder", self.store.list("..", None, 1)).await;
    }

    async fn large_objects_of_many_parts_are_whole(&self) {
        let content = self.random_bytes(LARGE_BYTES);
        let mut rest = content.clone();
        let mut parts = Vec::new();
        while !rest.is_empty() {
            let size = (self.env.random_u64() % LARGE_PART_BYTES_MAX) as usize;
            parts.push(rest.split_to(size.min(rest.len())));
        }
        let key = self.key("large");
        assert_eq!(self.store.put(&key, parts.clone()).await.expect("put"), PutOutcome::Created);
        self.expect_content(&key, &content).await;
        let middle = LARGE_BYTES / 2 - 100_000..LARGE_BYTES / 2 + 1_500_000;
        let range = middle.start as u64..middle.end as u64;
        let found = self.store.get_range(&key, range).await.expect("range");
        assert!(found == content[middle], "a range of the large object differs");
        let holds = crate::retry::holds_content(self.store.as_ref(), &key, &parts);
        assert!(holds.await.expect("check"));
        parts.swap(0, 1);
        let holds = crate::retry::holds_content(self.store.as_ref(), &key, &parts);
        assert!(!holds.await.expect("check"));
    }

    /// A caller that goes away may or may not have put its object; nobody finds a part of it.
    async fn dropped_puts_are_whole_or_absent(&self) {
        for n in 0..DROPPED_PUTS {
            let key = self.key(&format!("dropped/{n}"));
            let content = self.random_bytes(300_000);
            let patience = Duration::from_micros(n * n * 20);
            let put = self.store.put(&key, vec![content.clone()]);
            // Dropped or not, what follows must hold.
            let _ = self.env.timeout(patience, put).await;
            if let Some(found) = self.store.get(&key).await.expect("get") {
                assert!(found == content, "{key} is torn");
            }
            self.put(&key, &content).await;
            self.expect_content(&key, &content).await;
        }
    }

    async fn readers_see_whole_objects(&self) {
        for n in 0..8 {
            let key = self.key(&format!("watched/{n}"));
            let content = self.random_bytes(2 << 20);
            let (store, put_key, put) = (Arc::clone(&self.store), key.clone(), content.clone());
            let writing = async move { store.put(&put_key, vec![put]).await };
            let writer = self.env.spawn("writer", Lane::Foreground, writing);
            loop {
                let is_done = writer.is_finished();
                let size = self.store.head(&key).await.expect("head").map(|object| object.size);
                let is_there = size.is_some();
                assert!(size.is_none_or(|size| size == 2 << 20), "{key} shows {size:?} bytes");
                if is_there {
                    self.expect_content(&key, &content).await;
                }
                if is_done {
                    assert!(is_there, "{key} was acknowledged");
                    break;
                }
                self.env.sleep(Duration::from_micros(200)).await;
            }
            writer.await.expect("ended").expect("put");
        }
    }

    async fn clean_up(&self) {
        loop {
            let found = self.store.list(&self.folder, None, 500).await.expect("list");
            if found.is_empty() {
                return;
            }
            let keys: Vec<_> = found.into_iter().map(|object| object.key).collect();
            self.store.delete(&keys).await.expect("delete");
        }
    }
}
