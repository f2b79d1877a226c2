//! The world's objects, which outlive every broker: in memory, or in a directory of a simulated
//! machine whose power can be cut. There each life has its own view, which ends with its process.

use crate::power::{Machine, PoweredFileSystem};
use floe_env::simulated::Node;
use floe_env::{Env, Result};
use floe_store::{DirectoryStore, MemoryStore, ObjectStore, StoreLayer};
use std::path::PathBuf;
use std::sync::Arc;

/// The directory of the objects.
const FOLDER: &str = "/objects";
/// Objects of one page when all are listed.
const LISTED_PER_PAGE: usize = 1000;

/// Where all objects are; clones are the same place.
#[derive(Clone)]
pub struct ObjectServer {
    env: Env,
    kind: Kind,
    /// How the world itself looks at them.
    view: Arc<dyn ObjectStore>,
}

#[derive(Clone)]
enum Kind {
    Memory(MemoryStore),
    Directory(Machine),
}

impl ObjectServer {
    /// No objects yet. `env` is the world's own.
    ///
    /// # Errors
    /// Whatever the directory store answers.
    pub async fn start(env: Env, in_directory: bool) -> Result<Self> {
        if !in_directory {
            let objects = MemoryStore::new();
            let view = Arc::new(objects.clone());
            return Ok(Self { env, kind: Kind::Memory(objects), view });
        }
        let machine = Machine::default();
        let view = open(&env, machine.watch()).await?;
        Ok(Self { env, kind: Kind::Directory(machine), view })
    }

    /// What one life of the broker sees.
    ///
    /// # Errors
    /// Whatever the directory store answers.
    pub async fn for_life(&self, node: &Node) -> Result<Arc<dyn ObjectStore>> {
        match &self.kind {
            Kind::Memory(objects) => Ok(Arc::new(objects.clone())),
            Kind::Directory(machine) => open(&self.env, machine.mount(node)).await,
        }
    }

    /// The machine, where there is one.
    pub fn machine(&self) -> Option<&Machine> {
        match &self.kind {
            Kind::Memory(_) => None,
            Kind::Directory(machine) => Some(machine),
        }
    }

    /// The keys below a folder, as they are now.
    ///
    /// # Errors
    /// Whatever the store answers.
    pub async fn keys(&self, folder: &str) -> Result<Vec<String>> {
        let mut keys: Vec<String> = Vec::new();
        loop {
            let after = keys.last().map(String::as_str);
            let page = self.view.list(folder, after, LISTED_PER_PAGE).await?;
            let is_last = page.len() < LISTED_PER_PAGE;
            keys.extend(page.into_iter().map(|object| object.key));
            if is_last {
                return Ok(keys);
            }
        }
    }
}

async fn open(env: &Env, files: PoweredFileSystem) -> Result<Arc<dyn ObjectStore>> {
    Ok(Arc::new(DirectoryStore::open_on(env.clone(), files, PathBuf::from(FOLDER)).await?))
}

/// As the world sees them: nothing fails.
impl StoreLayer for ObjectServer {
    fn inner(&self) -> &dyn ObjectStore {
        self.view.as_ref()
    }
}
