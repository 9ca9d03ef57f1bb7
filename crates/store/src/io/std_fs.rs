//! The operating system's file system. Apart from the reads of `uring.rs`, the engine makes all its
//! file calls here.
//!
//! Every name is opened relative to its directory, and neither the name nor that directory may be a
//! symbolic link: a database is reached by the path that was given and by no other. `paths.rs`
//! finds the directory, `lock.rs` locks it. Every file and directory that is created is private to
//! the user whatever the umask allows.

use std::{
    fs::{DirBuilder, File},
    io::{self, Write},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::{DirBuilderExt, FileExt},
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::fs::{AtFlags, Dir, OFlags};

#[cfg(any(target_os = "linux", target_os = "android"))]
use super::{AlignedBuf, DIRECT_ALIGN};
use super::{
    FileLock, FileSystem, QueueUse, ReadMode, ReadQueue, ReadableFile, SyncFile, WritableFile,
};
use lock::StdLock;
use paths::{FilePlace, Paths, openat};

mod lock;
mod paths;

/// Access rights of created directories: the user reads, writes and enters.
const DIR_MODE: u32 = 0o700;

/// The operating system's file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct StdFs;

/// Describes this process for people: the content of a lock file.
#[must_use]
pub fn this_process() -> String {
    let program = std::env::current_exe().ok();
    let name = program.as_deref().and_then(Path::file_name).unwrap_or("?".as_ref());
    format!("process {} ({})", std::process::id(), name.to_string_lossy())
}

impl FileSystem for StdFs {
    fn hold_dir(&self, dir: &Path) -> io::Result<Arc<dyn FileSystem>> {
        Paths::OF_PROCESS.hold_dir(dir)
    }

    fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        std::path::absolute(path)
    }

    fn is_symlink(&self, path: &Path) -> bool {
        path.is_symlink()
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        Paths::OF_PROCESS.create_dir_all(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        Paths::OF_PROCESS.create(path)
    }

    fn open(&self, path: &Path, mode: ReadMode) -> io::Result<Arc<dyn ReadableFile>> {
        Paths::OF_PROCESS.open(path, mode)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        Paths::OF_PROCESS.list(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Paths::OF_PROCESS.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        Paths::OF_PROCESS.remove_file(path)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        Paths::OF_PROCESS.hard_link(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        Paths::OF_PROCESS.sync_dir(dir)
    }

    fn lock(&self, path: &Path, holder: &str) -> io::Result<Box<dyn FileLock>> {
        Paths::OF_PROCESS.lock(path, holder)
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        Paths::OF_PROCESS.lock_shared(path)
    }

    fn descriptors_max(&self) -> Option<u64> {
        Paths::OF_PROCESS.descriptors_max()
    }

    fn read_queue(&self, depth: u32, used: QueueUse) -> io::Result<Box<dyn ReadQueue>> {
        Paths::OF_PROCESS.read_queue(depth, used)
    }
}

impl FileSystem for Paths {
    fn hold_dir(&self, dir: &Path) -> io::Result<Arc<dyn FileSystem>> {
        Ok(Arc::new(self.holding(dir)?))
    }

    fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        std::path::absolute(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(DIR_MODE).create(path)?;
        // A directory that existed already may be a symbolic link to a directory.
        self.open_dir(path).map(drop)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::APPEND;
        let (dir, name) = self.locate(path)?;
        let file = File::from(openat(&dir, name, flags)?);
        let place = FilePlace::of(&file, dir, name)?;
        Ok(Box::new(StdWritable(Arc::new(StdSync { file, place }))))
    }

    fn open(&self, path: &Path, mode: ReadMode) -> io::Result<Arc<dyn ReadableFile>> {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        if mode == ReadMode::Direct {
            match self.open_file(path, OFlags::RDONLY | OFlags::DIRECT) {
                Ok(file) => return Ok(Arc::new(DirectReadable::new(file))),
                Err(e) if is_refused(&e) => {}
                Err(e) => return Err(e),
            }
        }
        let _ = mode;
        Ok(Arc::new(BufferedReadable(self.open_file(path, OFlags::RDONLY)?)))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::new(self.open_dir(dir)?)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from_dir, from_name) = self.locate(from)?;
        let (to_dir, to_name) = self.locate(to)?;
        Ok(rustix::fs::renameat(from_dir, from_name, to_dir, to_name)?)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let (dir, name) = self.locate(path)?;
        Ok(rustix::fs::unlinkat(dir, name, AtFlags::empty())?)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from_dir, from_name) = self.locate(from)?;
        let (to_dir, to_name) = self.locate(to)?;
        Ok(rustix::fs::linkat(from_dir, from_name, to_dir, to_name, AtFlags::empty())?)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::from(self.open_dir(dir)?).sync_all()
    }

    fn lock(&self, path: &Path, holder: &str) -> io::Result<Box<dyn FileLock>> {
        let (dir, name) = self.locate(path)?;
        Ok(Box::new(StdLock::exclusive(dir, name, holder)?))
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let (dir, name) = self.locate(path)?;
        Ok(Box::new(StdLock::shared(dir, name)?))
    }

    fn descriptors_max(&self) -> Option<u64> {
        raise_descriptor_limit()
    }

    #[cfg(all(
        target_os = "linux",
        any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")
    ))]
    fn read_queue(&self, depth: u32, used: QueueUse) -> io::Result<Box<dyn ReadQueue>> {
        Ok(Box::new(super::uring::UringQueue::new(depth, used)?))
    }
}

/// The number of descriptors that is asked for. Systems keep the usual limit of 1,024 low for
/// programs that call `select`, and usually allow 524,288. With tables of 64 MiB, 65,536
/// descriptors are 4 TiB.
const DESCRIPTORS_WANTED: u64 = 1 << 16;

/// Raises the process' limit of descriptors, as far as it may without privileges, and returns the
/// resulting limit.
fn raise_descriptor_limit() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let current = now.current?;
    let wanted = now.maximum.map_or(DESCRIPTORS_WANTED, |most| most.min(DESCRIPTORS_WANTED));
    if current >= wanted {
        return Some(current);
    }
    // A system that refuses leaves the limit as it was.
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..now });
    Some(if raised.is_ok() { wanted } else { current })
}

/// Opened with `O_APPEND`, so that writes go to the end even after a truncation.
struct StdWritable(Arc<StdSync>);

struct StdSync {
    file: File,
    place: FilePlace,
}

impl SyncFile for StdSync {
    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn check_name(&self) -> io::Result<()> {
        self.place.check()
    }
}

impl WritableFile for StdWritable {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&self.0.file).write(bytes)
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.0.file.set_len(len)
    }

    fn sync_data(&mut self) -> io::Result<()> {
        SyncFile::sync_data(&*self.0)
    }

    fn sync_all(&mut self) -> io::Result<()> {
        SyncFile::sync_all(&*self.0)
    }

    fn syncer(&self) -> Arc<dyn SyncFile> {
        Arc::clone(&self.0) as Arc<dyn SyncFile>
    }
}

#[derive(Debug)]
struct BufferedReadable(File);

impl ReadableFile for BufferedReadable {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

/// Returns true if the file system cannot do direct reads, or none of this alignment.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn is_refused(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error())
}

/// A file opened with `O_DIRECT`.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[derive(Debug)]
struct DirectReadable {
    file: File,
    /// The alignment of offsets and lengths that the file system asks for.
    align: usize,
}

#[cfg(any(target_os = "linux", target_os = "android"))]
impl DirectReadable {
    fn new(file: File) -> Self {
        // Kernels before 6.1 do not report it.
        let flags = (AtFlags::EMPTY_PATH, rustix::fs::StatxFlags::DIOALIGN);
        let said = rustix::fs::statx(&file, c"", flags.0, flags.1).ok();
        let said = said.map(|stat| stat.stx_dio_offset_align as usize);
        let align = said.filter(|align| align.is_power_of_two() && *align <= DIRECT_ALIGN);
        Self { file, align: align.unwrap_or(DIRECT_ALIGN) }
    }

    /// Reads an aligned piece. Some file systems accept the flag and then refuse the read, or want
    /// a coarser alignment: the flag is then taken off and the file is read through the cache.
    fn read_aligned(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        match self.file.read_at(buf, offset) {
            Err(e) if is_refused(&e) => {
                let flags = rustix::fs::fcntl_getfl(&self.file)?;
                rustix::fs::fcntl_setfl(&self.file, flags - OFlags::DIRECT)?;
                self.file.read_at(buf, offset)
            }
            other => other,
        }
    }

    /// Reads a piece that is not aligned, such as what is left after a short read.
    fn read_bounced(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        #[expect(clippy::cast_possible_truncation, reason = "below the alignment")]
        let lead = (offset % self.align as u64) as usize;
        let mut bounce = AlignedBuf::new((lead + buf.len()).next_multiple_of(self.align));
        let n = self.read_aligned(&mut bounce, offset - lead as u64)?;
        let n = n.saturating_sub(lead).min(buf.len());
        buf[..n].copy_from_slice(&bounce[lead..lead + n]);
        Ok(n)
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
impl ReadableFile for DirectReadable {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let is_aligned = offset.is_multiple_of(self.align as u64)
            && buf.len().is_multiple_of(self.align)
            && buf.as_ptr().addr().is_multiple_of(DIRECT_ALIGN);
        if is_aligned { self.read_aligned(buf, offset) } else { self.read_bounced(buf, offset) }
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn is_direct(&self) -> bool {
        true
    }

    fn read_align(&self) -> usize {
        self.align
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::ErrorKind,
        os::unix::fs::{PermissionsExt, symlink},
    };

    use super::*;
    use crate::io::{read_exact_at, read_full, write_all};

    fn mode_of(path: &Path) -> u32 {
        std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn fill(path: &Path, bytes: &[u8]) {
        let mut file = StdFs.create(path).unwrap();
        write_all(file.as_mut(), path, bytes).unwrap();
        file.sync_data().unwrap();
    }

    #[test]
    fn what_is_created_is_private() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path().join("a/b/c");
        StdFs.create_dir_all(&dir).unwrap();
        StdFs.create_dir_all(&dir).unwrap();
        StdFs.sync_dir(&dir).unwrap();
        for path in [tmp.path().join("a"), tmp.path().join("a/b"), dir.clone()] {
            assert_eq!(mode_of(&path), 0o700, "{}", path.display());
        }
        fill(&dir.join("file"), b"x");
        let _lock = StdFs.lock(&dir.join("LOCK"), "me").unwrap();
        assert_eq!(mode_of(&dir.join("file")), 0o600);
        assert_eq!(mode_of(&dir.join("LOCK")), 0o600);
        let mut names = StdFs.list(&dir).unwrap();
        names.sort();
        assert_eq!(names, ["LOCK", "file"]);
    }

    #[test]
    fn appends_truncates_renames_links_and_removes() {
        let tmp = tempfile::tempdir().unwrap();
        let (a, b, c) = (tmp.path().join("a"), tmp.path().join("b"), tmp.path().join("c"));
        let mut file = StdFs.create(&a).unwrap();
        assert_eq!(StdFs.create(&a).err().unwrap().kind(), ErrorKind::AlreadyExists);
        write_all(file.as_mut(), &a, b"0123456789").unwrap();
        file.truncate(4).unwrap();
        write_all(file.as_mut(), &a, b"ab").unwrap();
        file.sync_all().unwrap();
        StdFs.hard_link(&a, &b).unwrap();
        assert_eq!(StdFs.hard_link(&a, &b).unwrap_err().kind(), ErrorKind::AlreadyExists);
        fill(&c, b"old");
        StdFs.rename(&a, &c).unwrap();
        for path in [&b, &c] {
            let reader = StdFs.open(path, ReadMode::Buffered).unwrap();
            assert_eq!(reader.len().unwrap(), 6);
            let mut buf = [0; 6];
            read_exact_at(reader.as_ref(), path, &mut buf, 0).unwrap();
            assert_eq!(&buf, b"0123ab");
        }
        StdFs.remove_file(&b).unwrap();
        assert_eq!(StdFs.open(&b, ReadMode::Buffered).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(StdFs.open(&a, ReadMode::Buffered).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn symbolic_links_are_refused() {
        let tmp = tempfile::tempdir().unwrap();
        let real = tmp.path().join("real");
        StdFs.create_dir_all(&real).unwrap();
        fill(&real.join("file"), b"secret");
        symlink(&real, tmp.path().join("dir")).unwrap();
        symlink(real.join("file"), real.join("alias")).unwrap();
        symlink(real.join("absent"), real.join("dangling")).unwrap();

        let through = tmp.path().join("dir");
        assert!(StdFs.create_dir_all(&through).is_err());
        assert!(StdFs.create_dir_all(&through.join("")).is_err(), "with a trailing slash");
        assert!(StdFs.list(&through).is_err());
        assert!(StdFs.list(&through.join("")).is_err(), "with a trailing slash");
        assert!(StdFs.sync_dir(&through).is_err());
        assert!(StdFs.lock(&real.join("alias"), "me").is_err());
        assert!(StdFs.lock(&real.join("dangling"), "me").is_err());
        assert!(StdFs.create(&real.join("dangling")).is_err());
        assert!(StdFs.create(&through.join("new")).is_err());
        for mode in [ReadMode::Buffered, ReadMode::Direct] {
            assert!(StdFs.open(&real.join("alias"), mode).is_err());
            assert!(StdFs.open(&through.join("file"), mode).is_err());
        }
        assert!(!real.join("absent").exists() && !real.join("new").exists());
        assert_eq!(std::fs::read(real.join("file")).unwrap(), b"secret", "not truncated");
    }

    #[test]
    fn a_second_lock_is_refused_and_the_holder_is_named() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("LOCK");
        let held = StdFs.lock(&path, "a much longer holder").unwrap();
        drop(held);
        let held = StdFs.lock(&path, &this_process()).unwrap();
        assert_eq!(StdFs.lock(&path, "other").err().unwrap().kind(), ErrorKind::WouldBlock);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, this_process());
        assert!(text.contains(&std::process::id().to_string()));
        drop(held);
        StdFs.lock(&path, "other").unwrap();
    }

    #[test]
    fn direct_reads_return_the_same_bytes_aligned_or_not() {
        // The file is in the build's directory: temporary directories are often in memory, where
        // direct reads are refused and only the fallback would be tested.
        let program = std::env::current_exe().unwrap();
        let tmp = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
        let path = tmp.path().join("file");
        let bytes: Vec<u8> = (0..20_000_u32).map(|i| (i % 251) as u8).collect();
        fill(&path, &bytes);
        let reader = StdFs.open(&path, ReadMode::Direct).unwrap();
        assert_eq!(reader.len().unwrap(), 20_000);
        let mut buf = AlignedBuf::new(24_576);
        let n = read_full(reader.as_ref(), &mut buf, 0).unwrap();
        assert_eq!(&buf[..n], bytes);
        for (offset, len) in [(0, 1), (1, 4096), (4095, 2), (8192, 5000), (19_999, 10)] {
            let mut buf = vec![0; len];
            let n = read_full(reader.as_ref(), &mut buf, offset).unwrap();
            let start = offset as usize;
            assert_eq!(buf[..n], bytes[start..(start + len).min(bytes.len())]);
        }
        // A piece of the smallest size that the file allows is read past the cache.
        let align = reader.read_align();
        assert!(align.is_power_of_two() && align <= DIRECT_ALIGN);
        let mut buf = AlignedBuf::new(align);
        assert_eq!(reader.read_at(&mut buf, align as u64).unwrap(), align);
        assert_eq!(buf[..], bytes[align..2 * align]);
        let flags = rustix::fs::fcntl_getfl(reader.descriptor().unwrap()).unwrap();
        assert_eq!(flags.contains(OFlags::DIRECT), reader.is_direct());
        assert_eq!(reader.read_at(&mut [0; 10], 20_000).unwrap(), 0);
        assert_eq!(reader.read_at(&mut [0; 10], 1 << 40).unwrap(), 0);
    }
}
