//! What engines change through the catalog, where `iceberg.external_write` lets them: tables of
//! their own, and those of topics.
//!
//! A change is a list of requirements and updates, as the REST specification has them. `updates`
//! makes the next version of them (pure); here it is put, and the pointers move, all or none. A
//! pointer that somebody else has moved is read again, and the requirements checked again.
//!
//! An engine's table lies in a folder that Floe names, `external-{table uuid}`, and belongs to no
//! topic: nothing but these changes ever touches it. A topic's table keeps what its topic needs:
//! its location, uuid, format version, partition specs, the properties `floe.*` and the tag `floe`;
//! and its snapshots carry the map of what it holds of its topic. Columns are the engines' to
//! change; what becomes of them stands in [`crate::commit`].

mod namespaces;
mod rules;
#[cfg(test)]
mod tests;
mod updates;

pub(crate) use namespaces::PropertyChanges;
pub(crate) use updates::{NewTable, TableCommit};

use crate::bridge::Bridge;
use crate::commit::{
    LoadedTable, Moved, delete_unnamed, is_compressed, metadata_file, put, read_metadata,
    until_known,
};
use crate::place::TablePlace;
use crate::pointer::{PointerMove, TablePointer};
use crate::progress::Progress;
use crate::table_settings::ENABLE_CONFIG;
use bytes::Bytes;
use floe_env::{Error, ErrorKind};
use floe_metadata::facts::{Change, ChangeOutcome};
use floe_metadata::topics::TopicChange;
use iceberg::spec::TableMetadata;
use kfs::TopicId;
use std::sync::Arc;

/// Attempts of one change against others that move the same pointers.
const ATTEMPTS_MAX: usize = 5;
/// Bytes of a name at most.
const NAME_BYTES_MAX: usize = 255;

/// Why a change was not made.
#[derive(Debug)]
pub(crate) enum Rejection {
    NoSuchTable(TableName),
    NoSuchNamespace(String),
    /// A table, or a namespace, of this name.
    AlreadyExists(String),
    NamespaceNotEmpty(String),
    /// A requirement does not hold: the client reads the table again, and decides again.
    Conflict(String),
    /// It can never be made.
    Invalid(String),
    /// It failed, or nobody knows.
    Failed(Error),
}

impl From<Error> for Rejection {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// A table's name in the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableName {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl TableName {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

impl std::fmt::Display for TableName {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}.{}", self.namespace, self.name)
    }
}

/// One version of a table, as engines see it.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    /// Where its file is; `None` for a table that is only staged.
    pub(crate) location: Option<String>,
    /// The table's folder.
    pub(crate) place: TablePlace,
    /// In pieces.
    pub(crate) metadata_json: Vec<Bytes>,
}

impl Version {
    /// A version of a topic's table.
    pub(crate) fn of(table: &LoadedTable) -> Self {
        Self {
            location: Some(table.pointer.metadata_location.clone()),
            place: table.place.clone(),
            metadata_json: table.metadata_json_pieces().to_vec(),
        }
    }
}

/// A table as it is now.
struct Current {
    pointer: TablePointer,
    place: TablePlace,
    metadata: TableMetadata,
    /// What main holds of the table's topic; `None` where it shows none, or is stopped.
    progress: Option<Progress>,
}

/// A change of one table, ready to be put.
struct Prepared {
    moved: PointerMove,
    version: Version,
    key: String,
    file: Bytes,
    /// Metadata files that the version does not list any more.
    outdated: Vec<String>,
}

impl Bridge {
    /// The folder of a pointer's table.
    pub(crate) fn place_of(&self, pointer: &TablePointer) -> TablePlace {
        TablePlace::of(self.store(), self.config().cluster, pointer.topic(), pointer.table_id)
    }

    /// The newest version of a table that belongs to no topic.
    pub(crate) async fn external_version(&self, pointer: &TablePointer) -> Result<Version, Error> {
        let place = self.place_of(pointer);
        let key = place.key_of(&pointer.metadata_location)?;
        let (json, _) = read_metadata(self.env(), self.store(), &key).await?;
        let location = Some(pointer.metadata_location.clone());
        Ok(Version { location, place, metadata_json: vec![json] })
    }

    async fn current(&self, name: &TableName) -> Result<Option<Current>, Error> {
        let Some(pointer) = self.pointer_of(name).await? else { return Ok(None) };
        let Some(topic) = pointer.topic() else {
            let place = self.place_of(&pointer);
            let key = place.key_of(&pointer.metadata_location)?;
            let (_, metadata) = read_metadata(self.env(), self.store(), &key).await?;
            return Ok(Some(Current { pointer, place, metadata, progress: None }));
        };
        let table: Option<Arc<LoadedTable>> =
            self.worker_of(topic, &pointer).await?.refresh().await?;
        Ok(table.map(|table| Current {
            pointer: table.pointer.clone(),
            place: table.place.clone(),
            metadata: table.metadata.clone(),
            progress: table.stopped.is_none().then(|| table.progress.clone()),
        }))
    }

    /// Makes a table, or only says what it would be (`is_staged`).
    pub(crate) async fn create_external(
        &self,
        name: TableName,
        table: NewTable,
        is_staged: bool,
    ) -> Result<Version, Rejection> {
        check_name(&name.name)?;
        self.check_namespace(&name.namespace).await?;
        if self.pointer_of(&name).await?.is_some() {
            return Err(Rejection::AlreadyExists(name.to_string()));
        }
        let id = self.env().uuid();
        let place = TablePlace::external(self.store(), self.config().cluster, id);
        rules::check_paths(|key| table.properties.get(key), &place)?;
        let metadata = updates::new_table(table, id, place.url())?;
        if is_staged {
            let (json, _) = metadata_file(&metadata)?;
            return Ok(Version { location: None, place, metadata_json: vec![json] });
        }
        let prepared = self.prepared_creation(&name, &place, metadata)?;
        self.commit_prepared(&mut [prepared], &[name]).await?.pop().map_or_else(
            || Err(Rejection::Conflict("others have made the table meanwhile".to_owned())),
            Ok,
        )
    }

    /// Makes changes of tables, all or none. Answers the versions that they made.
    pub(crate) async fn commit_external(
        &self,
        commits: &[TableCommit],
    ) -> Result<Vec<Version>, Rejection> {
        let names: Vec<TableName> = commits.iter().map(|commit| commit.name.clone()).collect();
        for (at, name) in names.iter().enumerate() {
            if names[..at].contains(name) {
                return Err(Rejection::Invalid(format!("table {name} is changed twice")));
            }
        }
        for _ in 0..ATTEMPTS_MAX {
            let mut prepared = Vec::with_capacity(commits.len());
            for commit in commits {
                prepared.push(self.prepare(commit).await?);
            }
            let made = self.commit_prepared(&mut prepared, &names).await?;
            if made.len() == commits.len() {
                return Ok(made);
            }
        }
        Err(Rejection::Conflict("others kept changing the table".to_owned()))
    }

    async fn prepare(&self, commit: &TableCommit) -> Result<Prepared, Rejection> {
        let name = &commit.name;
        let Some(current) = self.current(name).await? else {
            updates::check_requirements(commit, None, name)?;
            self.check_namespace(&name.namespace).await?;
            check_name(&name.name)?;
            let cluster = self.config().cluster;
            let id = updates::created_id(commit)?;
            if self.pointers().is_taken(id).await? {
                let why = format!("{id} is, or was, another table's uuid: make the table anew");
                return Err(Rejection::Invalid(why));
            }
            let place = TablePlace::external(self.store(), cluster, id);
            let metadata = updates::created(commit, &place)?;
            return self.prepared_creation(name, &place, metadata);
        };
        let Current { pointer, place, metadata, progress } = current;
        updates::check_requirements(commit, Some(&metadata), name)?;
        rules::check(commit, &metadata, &place, pointer.topic().is_some())?;
        let location = Some(pointer.metadata_location.clone());
        let carried = progress
            .map(|progress| updates::with_progress(&commit.updates, &metadata, &progress))
            .transpose()?;
        let updates = carried.as_deref().unwrap_or(&commit.updates);
        let (metadata, outdated) = updates::next(updates, metadata, location)?;
        let version = pointer.metadata_version + 1;
        let key = place.metadata_key(self.env(), version, is_compressed(&metadata));
        // Of a thousand snapshots it takes milliseconds, and engines' connections wait.
        let (json, file) = self.env().blocking(move || metadata_file(&metadata)).await?;
        let new = pointer.moved(place.url_of(&key)?);
        let location = Some(new.metadata_location.clone());
        let outdated = outdated.iter().filter_map(|url| place.key_of(url).ok()).collect();
        let version = Version { location, place, metadata_json: vec![json] };
        Ok(Prepared {
            moved: PointerMove { old: Some(pointer), new },
            version,
            key,
            file,
            outdated,
        })
    }

    fn prepared_creation(
        &self,
        name: &TableName,
        place: &TablePlace,
        metadata: TableMetadata,
    ) -> Result<Prepared, Rejection> {
        let (json, file) = metadata_file(&metadata)?;
        let key = place.metadata_key(self.env(), 0, is_compressed(&metadata));
        let location = place.url_of(&key)?;
        let in_catalog = (name.namespace.as_str(), name.name.as_str());
        let new = TablePointer::external(in_catalog, metadata.uuid(), location.clone());
        let (location, metadata_json) = (Some(location), vec![json]);
        let version = Version { location, place: place.clone(), metadata_json };
        let moved = PointerMove { old: None, new };
        Ok(Prepared { moved, version, key, file, outdated: Vec::new() })
    }

    /// Puts what was prepared and moves the pointers. Answers no versions where others were faster.
    async fn commit_prepared(
        &self,
        prepared: &mut [Prepared],
        names: &[TableName],
    ) -> Result<Vec<Version>, Rejection> {
        let moves: Vec<PointerMove> = prepared.iter().map(|each| each.moved.clone()).collect();
        let mut also = Change::default();
        let made = moves.iter().zip(names).filter(|(each, _)| each.old.is_none());
        for (_, name) in made {
            self.claim_namespace(&name.namespace, &mut also).await?;
        }
        let keys: Vec<String> = prepared.iter().map(|each| each.key.clone()).collect();
        for each in prepared.iter() {
            let file = vec![each.file.clone()];
            if let Err(error) = put(self.shared_store(), each.key.clone(), file).await {
                delete_unnamed(self.store(), &keys).await;
                // Whatever is on the store: no pointer was moved.
                return Err(not_moved(error).into());
            }
        }
        let moved = self.move_until_known(&moves, &also).await;
        let is_unknown =
            moved.as_ref().is_err_and(|error| error.kind() == ErrorKind::UnknownOutcome);
        if matches!(moved, Ok(true)) {
            let outdated = prepared.iter_mut().flat_map(|each| std::mem::take(&mut each.outdated));
            let outdated: Vec<String> = outdated.collect();
            // Others may have put these.
            if matches!(self.pointers().may_delete().await, Ok(true)) {
                delete_unnamed(self.store(), &outdated).await;
            }
            return Ok(prepared.iter().map(|each| each.version.clone()).collect());
        }
        if !is_unknown {
            delete_unnamed(self.store(), &keys).await;
        }
        moved?;
        Ok(Vec::new())
    }

    /// Moves pointers until the outcome is known. The same moves may be made any number of times.
    ///
    /// # Errors
    /// `UnknownOutcome` where they may have been made; all others mean that they were not.
    async fn move_until_known(&self, moves: &[PointerMove], also: &Change) -> Result<bool, Error> {
        let moving = || self.pointers().move_all(moves, also.clone());
        match until_known(self.env(), moving).await? {
            Moved::Applied => Ok(true),
            Moved::Rejected => Ok(false),
            // An earlier try may have been it that worked, and others may have gone on from there.
            Moved::Undecided => {
                let unknown = || Error::unknown_outcome("move tables' pointers");
                let made = self.are_made(moves).await;
                match made.map_err(|error| unknown().with_source(error))? {
                    true => Ok(true),
                    false => Err(unknown()),
                }
            }
        }
    }

    async fn are_made(&self, moves: &[PointerMove]) -> Result<bool, Error> {
        for PointerMove { new, .. } in moves {
            let found = self.pointers().by_name(&new.namespace, &new.name).await?;
            if found.as_ref() != Some(new) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Gives a table another name. A topic's table stays its topic's.
    pub(crate) async fn rename_external(
        &self,
        from: &TableName,
        to: &TableName,
    ) -> Result<(), Rejection> {
        check_name(&to.name)?;
        self.check_namespace(&to.namespace).await?;
        for _ in 0..ATTEMPTS_MAX {
            if self.pointer_of(to).await?.is_some() {
                return Err(Rejection::AlreadyExists(to.to_string()));
            }
            let found = self.pointer_of(from).await?;
            let old = found.ok_or_else(|| Rejection::NoSuchTable(from.clone()))?;
            let mut also = Change::default();
            self.claim_namespace(&to.namespace, &mut also).await?;
            let new = old.renamed(&to.namespace, &to.name);
            let moved = [PointerMove { old: Some(old), new }];
            if self.move_until_known(&moved, &also).await? {
                tracing::info!(%from, %to, "table renamed");
                return Ok(());
            }
        }
        Err(Rejection::Conflict("others kept changing the table".to_owned()))
    }

    /// Takes a table out of the catalog; its files go after the retention of deleted tables. A
    /// topic whose table is dropped has none until its setting `iceberg.enable` says so again.
    pub(crate) async fn drop_external(&self, name: &TableName) -> Result<(), Rejection> {
        for _ in 0..ATTEMPTS_MAX {
            let found = self.pointer_of(name).await?;
            let pointer = found.ok_or_else(|| Rejection::NoSuchTable(name.clone()))?;
            if let Some(topic) = pointer.topic() {
                self.disable(topic).await?;
            }
            if self.pointers().remove(&pointer).await? == ChangeOutcome::Applied {
                if let Some(topic) = pointer.topic() {
                    self.metadata().set_table_progress(topic, None).await?;
                    self.forget_worker(topic);
                }
                tracing::info!(table = %name, id = %pointer.table_id, "table dropped");
                return Ok(());
            }
        }
        Err(Rejection::Conflict("others kept changing the table".to_owned()))
    }

    /// Sets `iceberg.enable` of a topic to false, so that no round makes its table again.
    async fn disable(&self, topic: TopicId) -> Result<(), Rejection> {
        for _ in 0..ATTEMPTS_MAX {
            let Some(known) = self.metadata().topic_by_id(topic).await? else { return Ok(()) };
            let mut configs = known.configs.clone();
            configs.insert(ENABLE_CONFIG.to_owned(), "false".to_owned());
            let changed = self.metadata().set_topic_configs(topic, &known.configs, configs).await?;
            if !matches!(changed, TopicChange::Refused(_)) {
                return Ok(());
            }
        }
        Err(Rejection::Conflict("others kept changing the topic".to_owned()))
    }
}

/// An error before any pointer was moved: its outcome is known.
fn not_moved(error: Error) -> Error {
    match error.kind() {
        ErrorKind::UnknownOutcome => {
            Error::retry("a table's file may be missing").with_source(error)
        }
        _ => error,
    }
}

/// Refuses names that no path or file could show.
fn check_name(name: &str) -> Result<(), Rejection> {
    let is_fine = !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && !name.chars().any(|c| c.is_control() || c == '/' || c == '\\');
    match is_fine {
        true => Ok(()),
        false => Err(Rejection::Invalid(format!(
            "'{}' is no name: 1 to {NAME_BYTES_MAX} bytes without slashes and control characters",
            name.escape_default()
        ))),
    }
}
