//! Where tables' files are addressed. A table names its files by whole addresses, so a store that
//! has been moved holds tables that nobody can read, and that nobody may go on with. The address is
//! recorded; a broker that finds itself elsewhere does not start, and [`relocate`] writes the
//! tables' addresses anew: metadata, manifest lists and manifests, while data files stay as they
//! are.
//!
//! A relocation that is cut short is made again: tables that were done are left alone, the address
//! is recorded last, and files that nothing names are the orphan sweep's.

mod files;
#[cfg(test)]
mod tests;

use crate::commit::{is_compressed, metadata_file, put, read_metadata};
use crate::place::TablePlace;
use crate::pointer::{FactPointers, TablePointer, TablePointers};
use bytes::Bytes;
use files::Rewriter;
use floe_env::{Env, Error, Result};
use floe_metadata::MetadataStore;
use floe_metadata::facts::{Change, ChangeOutcome, FactKey, Write};
use floe_store::ObjectStore;
use iceberg::spec::TableMetadata;
use kfs::ClusterId;
use serde_json::Value;
use std::sync::Arc;

/// The fact that tells where tables' files are addressed.
const ADDRESS: &str = "tables-address";

fn address_key() -> FactKey {
    FactKey::new(&[ADDRESS])
}

/// What a relocation did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Relocated {
    /// Tables whose addresses were written anew.
    pub tables: usize,
    /// Files that were written for them.
    pub files: usize,
}

/// A store and the tables in it.
#[derive(Clone)]
pub struct Tables {
    /// Ids.
    pub env: Env,
    /// Where the files are.
    pub store: Arc<dyn ObjectStore>,
    /// Where the pointers are.
    pub metadata: MetadataStore,
    /// Whose tables.
    pub cluster: ClusterId,
}

impl std::fmt::Debug for Tables {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Tables").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

impl Tables {
    /// The address of all tables' folders here.
    fn address(&self) -> String {
        self.store.url(&format!("{}/tables", self.cluster))
    }

    async fn pointers(&self) -> Result<Vec<TablePointer>> {
        FactPointers::new(self.metadata.clone()).all().await
    }

    async fn recorded(&self) -> Result<Option<String>> {
        let found = self.metadata.backend().get(&[address_key()]).await?.pop().flatten();
        let text = found.map(|value| String::from_utf8(value.to_vec()));
        text.transpose()
            .map_err(|error| Error::corrupt(format!("fact {ADDRESS}")).with_source(error))
    }

    async fn record(&self) -> Result<()> {
        let write = Write::Put(address_key(), Bytes::from(self.address()));
        let change = Change { writes: vec![write], ..Change::default() };
        self.metadata.change(&change).await.map(|_| ())
    }

    /// Checks that tables' files are addressed where they are, and records it.
    ///
    /// # Errors
    /// `Invalid` where they are not, with the remedy; whatever the stores answer.
    pub async fn check_address(&self) -> Result<()> {
        let here = self.address();
        let recorded = self.recorded().await?;
        if recorded.as_ref() == Some(&here) {
            return Ok(());
        }
        let pointers = self.pointers().await?;
        let elsewhere = pointers.iter().find(|pointer| !self.is_here(pointer));
        if let Some(table) = elsewhere {
            let place = self.place(table);
            let there = match files::folder_of(&table.metadata_location, &place) {
                Some(folder) => folder,
                None => table.metadata_location.clone(),
            };
            return Err(Error::invalid(format!(
                "the store was moved: the files of table {}.{} are addressed at {there}, and here \
                 they are at {}. Move it back, or let `floe tables relocate` write the tables' \
                 addresses anew",
                table.namespace,
                table.name,
                place.url(),
            )));
        }
        self.record().await
    }

    fn place(&self, pointer: &TablePointer) -> TablePlace {
        let (topic, table) = (pointer.topic(), pointer.table_id);
        TablePlace::of(self.store.as_ref(), self.cluster, topic, table)
    }

    fn is_here(&self, pointer: &TablePointer) -> bool {
        self.place(pointer).key_of(&pointer.metadata_location).is_ok()
    }

    /// Writes the addresses of all tables anew that are not here. No broker may run. `progress` is
    /// told how far it is.
    ///
    /// # Errors
    /// `Invalid` where a table cannot be relocated, with the reason; whatever the stores answer.
    pub async fn relocate(&self, progress: &(dyn Fn(String) + Send + Sync)) -> Result<Relocated> {
        let mut done = Relocated::default();
        for pointer in self.pointers().await?.iter().filter(|pointer| !self.is_here(pointer)) {
            progress(format!("{} tables, {} files written", done.tables, done.files));
            let name = format!("table {}.{}", pointer.namespace, pointer.name);
            let files = self.relocate_table(pointer).await;
            done.files += files.map_err(|error| error.context(&name))?;
            done.tables += 1;
        }
        self.record().await?;
        Ok(done)
    }

    /// The number of files that were written.
    async fn relocate_table(&self, pointer: &TablePointer) -> Result<usize> {
        let place = self.place(pointer);
        let location = &pointer.metadata_location;
        let from = files::folder_of(location, &place)
            .ok_or_else(|| Error::corrupt(format!("{location} is no file of the table's")))?;
        let mut rewriter = Rewriter::new(self, place.clone(), from);
        let key = rewriter.key_of(location)?;
        let (metadata_json, metadata) = read_metadata(&self.env, self.store.as_ref(), &key).await?;
        let mut json: Value = serde_json::from_slice(&metadata_json)
            .map_err(|error| Error::corrupt("table metadata is no JSON").with_source(error))?;
        rewriter.readdress(&mut json);
        // Older versions name files where these were.
        json["metadata-log"] = Value::Array(Vec::new());
        rewriter.rewrite_snapshots(&metadata, &mut json).await?;
        let metadata: TableMetadata = serde_json::from_value(json)
            .map_err(|error| Error::bug("relocated metadata").with_source(error))?;
        let (_, file) = metadata_file(&metadata)?;
        let version = pointer.metadata_version + 1;
        let key = place.metadata_key(&self.env, version, is_compressed(&metadata));
        put(self.store.clone(), key.clone(), vec![file]).await?;
        let moved = pointer.moved(place.url_of(&key)?);
        let pointers = FactPointers::new(self.metadata.clone());
        match pointers.swap(pointer, &moved).await? {
            ChangeOutcome::Applied => Ok(rewriter.files() + 1),
            ChangeOutcome::Rejected => Err(Error::retry("the table changes: is a broker running?")),
        }
    }
}
