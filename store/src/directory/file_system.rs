//! What the directory store asks of a file system. Two implementations: the machine's, and one that
//! forgets at a crash whatever was not synced, which proves that each sync is there and needed.

use bytes::Bytes;
use std::io;
use std::ops::Range;
use std::path::Path;

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The name; names that are not UTF-8 are left out.
    pub name: String,
    /// True for a directory, false for a file; everything else is left out.
    pub is_directory: bool,
}

/// Files and directories, each step on its own, so that a crash may fall between any two.
///
/// Every call may block. Contents are durable after [`FileSystem::sync_data`], and names only after
/// [`FileSystem::sync_directory`] of the directory that holds them.
pub trait FileSystem: Send + Sync + 'static {
    /// An open file.
    type File: Send;

    /// Makes an empty file under a name that must be free.
    fn create(&self, path: &Path) -> io::Result<Self::File>;

    /// Writes all of a new file's contents, one part after the other.
    fn write(&self, file: &mut Self::File, parts: &[Bytes]) -> io::Result<()>;

    /// Makes a file's contents and size durable.
    fn sync_data(&self, file: &Self::File) -> io::Result<()>;

    /// Atomically gives the file `from` the name `to`. False where `to` was taken: nothing has
    /// changed then.
    fn rename_if_free(&self, from: &Path, to: &Path) -> io::Result<bool>;

    /// Makes a directory; an existing one is fine.
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable, also the removal of names.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;

    /// Removes a file; one that is not there is fine.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// A file's size, bytes; `None` where there is no file (a directory is none).
    fn size(&self, path: &Path) -> io::Result<Option<u64>>;

    /// Whether there is a directory.
    fn is_directory(&self, path: &Path) -> io::Result<bool>;

    /// Reads a range; a file that ends before it is `UnexpectedEof`, found before memory is taken.
    fn read(&self, path: &Path, range: Range<u64>) -> io::Result<Vec<u8>>;

    /// What a directory holds, in no order; nothing where it is missing.
    fn entries(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>>;

    /// Registers this user of a directory for the life of `self`, with a lock on the file `lock`.
    /// True where there is no other.
    fn is_sole_user(&self, lock: &Path) -> io::Result<bool>;
}
