//! The machine's file system. New files are written with O_DIRECT from an aligned buffer where that
//! is possible: what is read again comes from the broker's own cache, so the kernel's would be a
//! second copy, and writing it back would stall. Where the file system refuses, files are written
//! through the kernel's cache; both are synced in the same way.

use super::file_system::{DirectoryEntry, FileSystem};
use bytes::Bytes;
use memmap2::MmapMut;
use parking_lot::Mutex;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Alignment of addresses, positions and lengths in direct writes, bytes; no common device asks for
/// more.
const DIRECT_ALIGNMENT_BYTES: usize = 4096;

/// One direct write, bytes.
const DIRECT_WRITE_BYTES: usize = 2 << 20;

/// Buffers kept for the next writes; each is a large page of memory.
const IDLE_BUFFERS_MAX: usize = 4;

/// Small parts are gathered into writes of this size where O_DIRECT is off, bytes.
const BUFFERED_WRITE_BYTES: usize = 256 << 10;

/// The machine's file system.
#[derive(Debug)]
pub struct RealFileSystem {
    direct: AtomicBool,
    idle_buffers: Mutex<Vec<AlignedBuffer>>,
    /// Holds the lock of this store's directory.
    lock: Mutex<Option<File>>,
}

/// A file that is being written.
#[derive(Debug)]
pub struct RealFile {
    file: File,
    direct: bool,
}

impl RealFileSystem {
    /// With O_DIRECT where it is possible, or without.
    pub fn new(direct: bool) -> Self {
        let direct = AtomicBool::new(direct && cfg!(target_os = "linux"));
        Self { direct, idle_buffers: Mutex::new(Vec::new()), lock: Mutex::new(None) }
    }

    /// Writes through the aligned buffer; the last write is padded and the file then cut.
    fn write_direct(&self, file: &mut RealFile, parts: &[Bytes]) -> io::Result<()> {
        let idle = self.idle_buffers.lock().pop();
        let mut buffer = idle.map_or_else(AlignedBuffer::new, Ok)?;
        let written = self.write_through(&mut buffer, file, parts);
        let mut idle = self.idle_buffers.lock();
        if idle.len() < IDLE_BUFFERS_MAX {
            idle.push(buffer);
        }
        written
    }

    fn write_through(
        &self,
        buffer: &mut AlignedBuffer,
        file: &mut RealFile,
        parts: &[Bytes],
    ) -> io::Result<()> {
        let mut position = 0u64;
        let mut filled = 0;
        for part in parts {
            let mut rest: &[u8] = part;
            while !rest.is_empty() {
                let room = &mut buffer.bytes_mut()[filled..];
                let (now, later) = rest.split_at(rest.len().min(room.len()));
                room[..now.len()].copy_from_slice(now);
                filled += now.len();
                rest = later;
                if filled == DIRECT_WRITE_BYTES {
                    self.write_aligned(file, buffer.bytes(), position)?;
                    position += filled as u64;
                    filled = 0;
                }
            }
        }
        if filled > 0 {
            let padded = filled.next_multiple_of(DIRECT_ALIGNMENT_BYTES);
            buffer.bytes_mut()[filled..padded].fill(0);
            self.write_aligned(file, &buffer.bytes()[..padded], position)?;
            position += filled as u64;
            if padded > filled {
                file.file.set_len(position)?;
            }
        }
        Ok(())
    }

    fn write_aligned(&self, file: &mut RealFile, bytes: &[u8], position: u64) -> io::Result<()> {
        match file.file.write_all_at(bytes, position) {
            Err(error) if file.direct && error.kind() == ErrorKind::InvalidInput => {
                self.direct.store(false, Ordering::Relaxed);
                file.direct = false;
                direct::switch_off(&file.file)?;
                file.file.write_all_at(bytes, position)
            }
            written => written,
        }
    }
}

impl FileSystem for RealFileSystem {
    type File = RealFile;

    fn create(&self, path: &Path) -> io::Result<RealFile> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        if self.direct.load(Ordering::Relaxed) {
            match direct::open(&mut options.clone(), path) {
                Err(error) if error.kind() == ErrorKind::InvalidInput => {
                    self.direct.store(false, Ordering::Relaxed);
                    // Some kernels have made the file before they refuse the flag.
                    self.remove(path)?;
                }
                opened => return opened.map(|file| RealFile { file, direct: true }),
            }
        }
        options.open(path).map(|file| RealFile { file, direct: false })
    }

    fn write(&self, file: &mut RealFile, parts: &[Bytes]) -> io::Result<()> {
        if file.direct {
            return self.write_direct(file, parts);
        }
        let mut writer = BufWriter::with_capacity(BUFFERED_WRITE_BYTES, &file.file);
        for part in parts {
            writer.write_all(part)?;
        }
        writer.flush()
    }

    fn sync_data(&self, file: &RealFile) -> io::Result<()> {
        file.file.sync_data()
    }

    fn rename_if_free(&self, from: &Path, to: &Path) -> io::Result<bool> {
        let renamed = direct::rename_no_replace(from, to);
        let renamed = renamed.unwrap_or_else(|| rename_by_link(from, to));
        match renamed {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        ignoring(ErrorKind::AlreadyExists, std::fs::create_dir(path))
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let directory = File::open(path)?;
        if !directory.metadata()?.is_dir() {
            return Err(ErrorKind::NotADirectory.into());
        }
        directory.sync_all()
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        ignoring(ErrorKind::NotFound, std::fs::remove_file(path))
    }

    fn size(&self, path: &Path) -> io::Result<Option<u64>> {
        match std::fs::metadata(path) {
            Ok(found) => Ok(found.is_file().then_some(found.len())),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn is_directory(&self, path: &Path) -> io::Result<bool> {
        match std::fs::metadata(path) {
            Ok(found) => Ok(found.is_dir()),
            Err(error) if is_missing(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn read(&self, path: &Path, range: Range<u64>) -> io::Result<Vec<u8>> {
        let file = File::open(path)?;
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(ErrorKind::NotFound.into());
        }
        if range.end > found.len() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let length = range.end - range.start;
        // Read into fresh memory as it is: zeroing it first costs a twentieth of all reading.
        let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
        (&file).seek(SeekFrom::Start(range.start))?;
        let read = (&file).take(length).read_to_end(&mut bytes)?;
        if read as u64 != length {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(bytes)
    }

    fn entries(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>> {
        let found = match std::fs::read_dir(path) {
            Ok(found) => found,
            Err(error) if is_missing(&error) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut entries = Vec::new();
        for entry in found {
            let entry = entry?;
            let kind = entry.file_type()?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if kind.is_dir() || kind.is_file() {
                entries.push(DirectoryEntry { name, is_directory: kind.is_dir() });
            }
        }
        Ok(entries)
    }

    fn is_sole_user(&self, lock: &Path) -> io::Result<bool> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(lock)?;
        let sole = match file.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => false,
            // Network file systems without locks: whoever puts a store there keeps it to one
            // process.
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {
                return Ok(true);
            }
            Err(TryLockError::Error(error)) => return Err(error),
        };
        file.lock_shared()?;
        *self.lock.lock() = Some(file);
        Ok(sole)
    }
}

/// For file systems that cannot rename without replacing: a second name, then the first is removed.
fn rename_by_link(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::hard_link(from, to)?;
    std::fs::remove_file(from)
}

fn ignoring(kind: ErrorKind, result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == kind => Ok(()),
        result => result,
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// A buffer that begins at a multiple of its own size, in one page of the kernel's where it gives
/// such large ones: a direct write of 2 MiB is then one stretch of memory for the device instead of
/// 512, which takes half the time and a quarter of the CPU (docs/decisions/0005.md).
#[derive(Debug)]
struct AlignedBuffer {
    memory: MmapMut,
    start: usize,
}

impl AlignedBuffer {
    fn new() -> io::Result<Self> {
        // What is not touched takes no memory.
        let memory = MmapMut::map_anon(2 * DIRECT_WRITE_BYTES)?;
        let start = memory.as_ptr().align_offset(DIRECT_WRITE_BYTES);
        // Only advice: without large pages it is slower.
        #[cfg(target_os = "linux")]
        let _ = memory.advise(memmap2::Advice::HugePage);
        Ok(Self { memory, start })
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + DIRECT_WRITE_BYTES]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + DIRECT_WRITE_BYTES]
    }
}

/// What only Linux has.
#[cfg(target_os = "linux")]
mod direct {
    use nix::errno::Errno;
    use nix::fcntl::{AT_FDCWD, FcntlArg, OFlag, RenameFlags, fcntl, renameat2};
    use std::fs::{File, OpenOptions};
    use std::io;
    use std::os::unix::fs::OpenOptionsExt;
    use std::path::Path;

    pub(super) fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
        options.custom_flags(OFlag::O_DIRECT.bits()).open(path)
    }

    pub(super) fn switch_off(file: &File) -> io::Result<()> {
        fcntl(file, FcntlArg::F_SETFL(OFlag::empty()))?;
        Ok(())
    }

    /// `None` where this file system cannot rename without replacing.
    pub(super) fn rename_no_replace(from: &Path, to: &Path) -> Option<io::Result<()>> {
        match renameat2(AT_FDCWD, from, AT_FDCWD, to, RenameFlags::RENAME_NOREPLACE) {
            Err(Errno::EINVAL | Errno::ENOSYS) => None,
            renamed => Some(renamed.map_err(io::Error::from)),
        }
    }
}

/// Elsewhere files go through the kernel's cache and get their name by a hard link.
#[cfg(not(target_os = "linux"))]
mod direct {
    use std::fs::{File, OpenOptions};
    use std::io;
    use std::path::Path;

    pub(super) fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
        options.open(path)
    }

    pub(super) fn switch_off(_file: &File) -> io::Result<()> {
        Ok(())
    }

    pub(super) fn rename_no_replace(_from: &Path, _to: &Path) -> Option<io::Result<()>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_direct_write_is_done_through_the_kernels_cache() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("file");
        let real = RealFileSystem::new(true);
        let mut file = real.create(&path).expect("create");
        let mut buffer = AlignedBuffer::new().expect("memory");
        for (position, byte) in buffer.bytes_mut().iter_mut().enumerate() {
            *byte = (position % 251) as u8;
        }
        // Neither the address nor the length is what O_DIRECT asks for.
        let bytes = &buffer.bytes()[1..5001];
        real.write_aligned(&mut file, bytes, 0).expect("written all the same");
        real.sync_data(&file).expect("sync");
        assert_eq!(real.read(&path, 0..5000).expect("read"), bytes);
        let next = folder.path().join("next");
        let mut file = real.create(&next).expect("create");
        real.write(&mut file, &[Bytes::from_static(b"next")]).expect("write");
        assert_eq!(real.read(&next, 0..4).expect("read"), b"next");
    }

    #[test]
    fn renaming_by_link_replaces_nothing() {
        let folder = tempfile::tempdir().expect("folder");
        let [one, other, to] = ["one", "other", "to"].map(|name| folder.path().join(name));
        std::fs::write(&one, "one").expect("write");
        std::fs::write(&other, "other").expect("write");
        rename_by_link(&one, &to).expect("free");
        let taken = rename_by_link(&other, &to).expect_err("taken");
        assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
        assert!(!one.exists() && other.exists());
        assert_eq!(std::fs::read(&to).expect("read"), b"one");
    }
}
