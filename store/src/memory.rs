//! A store in memory, for tests and the simulation: gone with the process, and never fails.

use crate::key::{check_folder, check_key, check_listed_key, check_range, missing, outside};
use crate::object::{ObjectMeta, ObjectStore, PutOutcome};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use floe_env::Result;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::{Bound, Range};
use std::sync::Arc;

/// Objects in a map; clones share it.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    objects: Arc<Mutex<BTreeMap<String, Bytes>>>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }
}

#[async_trait]
impl ObjectStore for MemoryStore {
    async fn put(&self, key: &str, parts: Vec<Bytes>) -> Result<PutOutcome> {
        check_key(key)?;
        let mut whole = BytesMut::with_capacity(parts.iter().map(Bytes::len).sum());
        for part in &parts {
            whole.extend_from_slice(part);
        }
        match self.objects.lock().entry(key.to_owned()) {
            Entry::Occupied(_) => Ok(PutOutcome::Exists),
            Entry::Vacant(vacant) => {
                vacant.insert(whole.freeze());
                Ok(PutOutcome::Created)
            }
        }
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes> {
        check_key(key)?;
        check_range(key, &range)?;
        let object = self.objects.lock().get(key).cloned().ok_or_else(|| missing(key))?;
        if range.end > object.len() as u64 {
            return Err(outside(key, &range));
        }
        Ok(object.slice(range.start as usize..range.end as usize))
    }

    async fn get(&self, key: &str) -> Result<Option<Bytes>> {
        check_key(key)?;
        Ok(self.objects.lock().get(key).cloned())
    }

    async fn head(&self, key: &str) -> Result<Option<ObjectMeta>> {
        check_key(key)?;
        let size = self.objects.lock().get(key).map(|object| object.len() as u64);
        Ok(size.map(|size| ObjectMeta { key: key.to_owned(), size }))
    }

    async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ObjectMeta>> {
        let folder = check_folder(prefix)?;
        let start = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let from = match after {
            Some(after) if after >= start.as_str() => Bound::Excluded(after.to_owned()),
            _ => Bound::Included(start.clone()),
        };
        let objects = self.objects.lock();
        let found =
            objects.range((from, Bound::Unbounded)).take_while(|(key, _)| key.starts_with(&start));
        let meta = |(key, object): (&String, &Bytes)| ObjectMeta {
            key: key.clone(),
            size: object.len() as u64,
        };
        Ok(found.take(limit).map(meta).collect())
    }

    async fn delete(&self, keys: &[String]) -> Result<()> {
        for key in keys {
            check_listed_key(key)?;
        }
        let mut objects = self.objects.lock();
        for key in keys {
            objects.remove(key);
        }
        Ok(())
    }

    fn url(&self, key: &str) -> String {
        format!("memory:///{key}")
    }
}
