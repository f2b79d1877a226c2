//! What kinds of commits there are, and which version of a table each may be made on.

use super::manifest::ExistingFile;
use super::rewrite::{Listings, listings};
use super::snapshot::Totals;
use super::{LoadedTable, Staged};
use crate::table_settings::RETENTION_CONFIG;
use floe_env::Result;
use floe_store::ObjectStore;
use iceberg::spec::{DataFile, Operation};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Summary key: how an operator let a stopped table go on.
pub const RESUMED_KEY: &str = "floe.resumed";
/// Summary key: by which of the topic's settings rows left the table.
pub const TRIMMED_KEY: &str = "floe.trimmed";

/// Data files that a commit takes out of a table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Removed {
    /// By address.
    pub(super) files: BTreeMap<String, DataFile>,
    /// All files of manifests that list one of them, by the manifest's address, as far as they were
    /// read before the commit.
    pub(super) known: Listings,
}

impl Removed {
    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    /// Their rows.
    pub(crate) fn rows(&self) -> u64 {
        self.files.values().map(DataFile::record_count).sum()
    }

    pub(super) fn has(&self, file: &ExistingFile) -> bool {
        self.files.contains_key(file.data_file.file_path())
    }

    /// Reads the manifests that list the files, so that the commit need not.
    ///
    /// # Errors
    /// Whatever the store answers.
    pub(crate) async fn locate(
        &mut self,
        store: &Arc<dyn ObjectStore>,
        table: &LoadedTable,
    ) -> Result<()> {
        self.known = listings(store, &table.place, &table.manifests, self).await?;
        Ok(())
    }
}

impl FromIterator<DataFile> for Removed {
    fn from_iter<Files: IntoIterator<Item = DataFile>>(files: Files) -> Self {
        let by_address = files.into_iter().map(|file| (file.file_path().to_owned(), file));
        Self { files: by_address.collect(), known: Listings::new() }
    }
}

/// The stop that an operator has decided about: the snapshots of main and of the tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KnownStop {
    pub(super) main: Option<i64>,
    pub(super) tagged: Option<i64>,
}

impl KnownStop {
    pub(super) fn of(table: &LoadedTable) -> Self {
        let tagged = table.metadata.snapshot_for_ref(super::TAG);
        Self {
            main: table.metadata.current_snapshot_id(),
            tagged: tagged.map(|snapshot| snapshot.snapshot_id()),
        }
    }
}

/// What a commit does.
#[derive(Debug)]
pub(super) enum Kind {
    /// Adds rows, from one progress map to the next.
    Append,
    /// Puts files in the place of others with the same rows.
    Replace(Removed),
    /// Takes out files whose rows are older than the table keeps them.
    Trim(Removed),
    /// Goes on with a stopped table: no rows, a map, and a word in the summary.
    Resume(KnownStop, &'static str),
}

impl Kind {
    /// Whether the commit may be made on this version. If not, its maker was overtaken.
    pub(super) fn fits(&self, base: &LoadedTable, staged: &Staged) -> bool {
        match self {
            Self::Append => {
                base.stopped.is_none()
                    && base.progress == staged.from
                    && base.mapping == staged.from_mapping
            }
            // Deletes that have come since belong to the files that would go: the rows that they
            // take out would be back.
            Self::Replace(_) => base.stopped.is_none() && !base.has_deletes(),
            Self::Trim(_) => base.stopped.is_none(),
            Self::Resume(stop, _) => base.stopped.is_some() && KnownStop::of(base) == *stop,
        }
    }

    pub(super) fn operation(&self) -> Operation {
        match self {
            Self::Append | Self::Resume(..) => Operation::Append,
            Self::Replace(_) => Operation::Replace,
            Self::Trim(_) => Operation::Delete,
        }
    }

    /// The files that it takes out. Such a commit brings no rows: it may be made however far the
    /// table has got meanwhile.
    pub(super) fn taken_out(&self) -> Option<&Removed> {
        match self {
            Self::Replace(removed) | Self::Trim(removed) => Some(removed),
            Self::Append | Self::Resume(..) => None,
        }
    }

    pub(super) fn removed(&self) -> Totals {
        self.taken_out().map_or_else(Totals::default, |removed| Totals::of(removed.files.values()))
    }

    pub(super) fn note(&self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Resume(_, how) => Some((RESUMED_KEY, how)),
            Self::Trim(_) => Some((TRIMMED_KEY, RETENTION_CONFIG)),
            Self::Append | Self::Replace(_) => None,
        }
    }
}
