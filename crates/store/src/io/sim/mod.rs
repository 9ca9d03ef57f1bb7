//! A simulated file system and clock, for tests of what happens when the power or a disk fails.
//!
//! [`SimFs`] keeps files in memory, in two states: what the process sees, and what is certainly on
//! the disk. It grants exactly the durability that POSIX promises:
//!
//! - file contents and lengths become durable by `sync_data` or `sync_all` on that file;
//! - names (created, renamed, removed, linked) become durable by `sync_dir` on their directory, and
//!   by nothing else: a synced file in an unsynced directory is lost.
//!
//! A test runs the engine on it, has the power cut at any call ([`SimFs::cut_power_at`]), and opens
//! what is then on the disk ([`SimFs::power_cut`]). Any call can be made to fail
//! ([`SimFs::inject`]), the disk can be full ([`SimFs::set_free_bytes`]), and syncs can be made to
//! do nothing ([`SimFs::lie_about`]), to show that a test would notice.
//!
//! ```
//! use std::path::Path;
//! use rhumb::io::{FileSystem, sim::{Loss, SimFs}};
//!
//! let fs = SimFs::new(1);
//! fs.create_dir_all(Path::new("/db"))?;
//! fs.sync_dir(Path::new("/"))?;
//! let mut file = fs.create(Path::new("/db/file"))?;
//! file.write(b"hello")?;
//! file.sync_data()?;
//! // The contents are on the disk, the name is not.
//! let after = fs.power_cut(Loss::DropUnsynced, 7);
//! assert!(after.list(Path::new("/db"))?.is_empty());
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Nothing here may be used by the engine itself.

mod clock;
mod fault;
mod node;
#[cfg(test)]
mod one_dir;
mod power;
mod rng;
mod state;
#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    fmt,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    sync::Arc,
};

use fault::Rule;
use node::{Change, FileNode, Node};
use rhumb_sync::primitive::{Mutex, MutexGuard};
use state::{Held, State};

use super::{FileLock, FileSystem, ReadMode, ReadableFile, SyncFile, WritableFile, moved_away};

pub use clock::SimClock;
pub use fault::{Call, CallKind, Counts, Fault, Matcher};
pub use node::SECTOR_BYTES;
pub use power::Loss;
pub use rng::SimRng;

/// A simulated file system. Clones are the same file system. The root directory exists; relative
/// paths start there too.
///
/// Calls from one thread are repeated exactly by the seed. Calls from several threads are not,
/// because their order is not.
#[derive(Clone)]
pub struct SimFs {
    disk: Arc<Mutex<State>>,
    /// The directory that is held open, if this was returned by [`FileSystem::hold_dir`].
    held: Option<Arc<Held>>,
}

impl SimFs {
    /// An empty file system whose random choices follow from `seed`. With an even seed, direct
    /// reads are aligned to [`DIRECT_ALIGN`](super::DIRECT_ALIGN), with an odd one to 512 bytes.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::with(State::new(seed))
    }

    fn with(state: State) -> Self {
        Self { disk: Arc::new(Mutex::new(state)), held: None }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.disk.lock();
        state.held.clone_from(&self.held);
        state
    }

    /// Cuts the power now, and returns the file system as it is when the power is back. `loss` and
    /// `seed` decide which of the changes that were not durable survive; the same file system can
    /// be cut several times with different choices. From now on every call on `self` fails.
    ///
    /// Locks, injected faults and counts are gone afterwards; lies and restlessness stay, because
    /// they are properties of the program under test.
    #[must_use]
    pub fn power_cut(&self, loss: Loss, seed: u64) -> Self {
        Self::with(self.state().after_power_cut(loss, seed))
    }

    /// Kills the process: returns the same disk for a new process, with everything that the old one
    /// had handed over, none of which became durable by the kill. From now on every call on `self`
    /// fails. To kill it at a certain change, have the power cut there ([`SimFs::cut_power_at`])
    /// and then call this instead of [`SimFs::power_cut`].
    ///
    /// Locks, injected faults and counts are gone afterwards. The data that was handed over moves
    /// to the returned file system, so that only one of the two can go on.
    #[must_use]
    pub fn kill(&self) -> Self {
        Self::with(self.state().after_kill())
    }

    /// A copy of this file system that shares nothing with it: to cut the power, or to kill the
    /// process, in the copy, and go on in the original.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self::with(self.state().copy())
    }

    /// Cuts the power during the change of number `change` (see [`Counts::changes`]): that call may
    /// or may not have its effect, and it and all later calls fail. Calls that change nothing are
    /// not counted, because a cut there leaves the same disk as a cut before them.
    pub fn cut_power_at(&self, change: u64) {
        self.state().cut_at = Some(change);
    }

    /// Returns true if the power is off.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.state().is_dead
    }

    /// Makes `fault` happen to the next `times` calls that `matcher` chooses (`u64::MAX`: until
    /// [`SimFs::clear_faults`]). If several rules choose a call, the earliest holds.
    pub fn inject(&self, matcher: Matcher, fault: Fault, times: u64) {
        self.state().rules.push(Rule { matcher, fault, times });
    }

    /// Forgets all injected faults, and removes the limit of the free space.
    pub fn clear_faults(&self) {
        let mut state = self.state();
        state.rules.clear();
        state.faulted.clear();
        state.free_bytes = None;
    }

    /// Gives the disk `bytes` free bytes (`None`: no limit, as at first). A write over the limit is
    /// short, and fails with `ENOSPC` at 0. Removing and truncating files frees their bytes.
    pub fn set_free_bytes(&self, bytes: Option<u64>) {
        self.state().free_bytes = bytes;
    }

    /// Makes syncs that `matcher` chooses succeed without doing anything: the model of an engine
    /// that forgets them.
    pub fn lie_about(&self, matcher: Matcher) {
        self.state().lies.push(matcher);
    }

    /// Makes `per_mille` of a thousand reads, writes and syncs short or interrupted, at random. A
    /// correct program does not notice.
    pub fn set_restless(&self, per_mille: u32) {
        self.state().restless_per_mille = u64::from(per_mille);
    }

    /// Makes `per_mille` of a thousand writes, failed ones included, durable at once with all that
    /// the file had before them, as the system may write any data back before it is synced.
    pub fn set_write_back(&self, per_mille: u32) {
        self.state().write_back_per_mille = u64::from(per_mille);
    }

    /// The counts of the calls so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.state().counts.clone()
    }

    /// The kind and path of the first thousand calls to which a fault happened since the faults
    /// were last cleared.
    #[must_use]
    pub fn faulted_calls(&self) -> Vec<(CallKind, PathBuf)> {
        self.state().faulted.clone()
    }

    /// Starts to remember the last few thousand calls.
    pub fn start_trace(&self) {
        self.state().trace = Some(VecDeque::new());
    }

    /// The most recent calls since [`SimFs::start_trace`].
    #[must_use]
    pub fn trace(&self) -> Vec<Call> {
        self.state().trace.iter().flatten().cloned().collect()
    }

    /// The content of a file as the process sees it. Not counted as a call; works without power.
    ///
    /// # Errors
    /// If there is no such file.
    pub fn content(&self, path: &Path) -> io::Result<Vec<u8>> {
        let file = self.state().file(path)?;
        let content = file.state.lock().content.clone();
        Ok(content)
    }

    /// Replaces the content of a file, durably, for tests of damage; creates the file, name and
    /// all, if there is none. Not counted as a call.
    ///
    /// # Errors
    /// If there is no such directory.
    pub fn set_content(&self, path: &Path, content: Vec<u8>) -> io::Result<()> {
        let mut disk = self.state();
        let file = match disk.file(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => disk.create_durable(path)?,
            other => other?,
        };
        let mut state = file.state.lock();
        state.pending.clear();
        state.durable.clone_from(&content);
        state.content = content;
        Ok(())
    }

    /// All files below `dir`, as the process sees them, in order. Not counted as a call.
    #[must_use]
    pub fn files(&self, dir: &Path) -> Vec<PathBuf> {
        let Ok(node) = self.state().dir(dir) else { return Vec::new() };
        let entries = node.state.lock().entries.clone();
        let mut files = Vec::new();
        for (name, node) in entries {
            match node {
                Node::File(_) => files.push(dir.join(name)),
                Node::Dir(_) => files.extend(self.files(&dir.join(name))),
            }
        }
        files
    }
}

impl fmt::Debug for SimFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("SimFs")
            .field("is_dead", &state.is_dead)
            .field("counts", &state.counts)
            .finish_non_exhaustive()
    }
}

impl FileSystem for SimFs {
    /// Not counted as a call.
    fn hold_dir(&self, dir: &Path) -> io::Result<Arc<dyn FileSystem>> {
        let node = self.state().dir(dir)?;
        let held = Arc::new(Held { path: dir.to_owned(), node });
        Ok(Arc::new(Self { disk: Arc::clone(&self.disk), held: Some(held) }))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.begin(CallKind::CreateDir, path)?;
        state.create_dir_all(path)?;
        state.end(())
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        let mut state = self.state();
        state.begin(CallKind::Create, path)?;
        let file = state.create(path)?;
        state.end(Box::new(SimWritable { handle: Arc::new(self.handle(file, path)) }))
    }

    fn open(&self, path: &Path, mode: ReadMode) -> io::Result<Arc<dyn ReadableFile>> {
        let mut state = self.state();
        state.begin(CallKind::Open, path)?;
        let handle = self.handle(state.file(path)?, path);
        let align = (mode == ReadMode::Direct).then_some(state.direct_align);
        state.end(Arc::new(SimReadable { handle, align }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut state = self.state();
        state.begin(CallKind::List, dir)?;
        let node = state.dir(dir)?;
        let mut names: Vec<String> = node.state.lock().entries.keys().cloned().collect();
        // Any order is allowed, so no caller may rely on one.
        for end in (1..names.len()).rev() {
            let other = state.rng.index(end + 1);
            names.swap(end, other);
        }
        state.end(names)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.begin(CallKind::Rename, to)?;
        state.rename(from, to)?;
        state.end(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.begin(CallKind::Remove, path)?;
        state.remove_file(path)?;
        state.end(())
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.begin(CallKind::HardLink, to)?;
        state.hard_link(from, to)?;
        state.end(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.begin(CallKind::SyncDir, dir)?;
        let node = state.dir(dir)?;
        if !state.is_dead && !state.is_lie(CallKind::SyncDir, dir) {
            state.sync_dir(&node);
        }
        state.end(())
    }

    fn lock(&self, path: &Path, holder: &str) -> io::Result<Box<dyn FileLock>> {
        let mut state = self.state();
        state.begin(CallKind::Lock, path)?;
        let file = match state.file(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => state.create(path)?,
            other => other?,
        };
        let ids = vec![state.locate(path)?.0.id, file.id];
        if !state.try_lock(&ids, false) {
            let is_read = state.has_readers(&ids);
            let readers = io::Error::new(ErrorKind::WouldBlock, crate::error::LOCKED_BY_READERS);
            return Err(if is_read { readers } else { ErrorKind::WouldBlock.into() });
        }
        let mut content = file.state.lock();
        content.change(Change::Truncate { len: 0 });
        content.append(holder.as_bytes());
        drop(content);
        // Made before the result is known, so that a lock is also released if its caller died.
        let handle = self.handle(file, path);
        let lock = SimLock { fs: self.clone(), ids, handle: Some(handle) };
        let result = state.end(());
        drop(state);
        result.map(|()| Box::new(lock) as Box<dyn FileLock>)
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let mut state = self.state();
        state.begin(CallKind::LockShared, path)?;
        let mut ids = vec![state.locate(path)?.0.id];
        ids.extend(state.file(path).ok().map(|file| file.id));
        if !state.try_lock(&ids, true) {
            return Err(ErrorKind::WouldBlock.into());
        }
        let lock = SimLock { fs: self.clone(), ids, handle: None };
        let result = state.end(());
        drop(state);
        result.map(|()| Box::new(lock) as Box<dyn FileLock>)
    }
}

impl SimFs {
    fn handle(&self, file: Arc<FileNode>, path: &Path) -> Handle {
        Handle { fs: self.clone(), file, path: path.to_owned() }
    }
}

struct SimLock {
    fs: SimFs,
    ids: Vec<u64>,
    handle: Option<Handle>,
}

impl FileLock for SimLock {
    fn check(&self) -> io::Result<()> {
        self.handle.as_ref().map_or(Ok(()), SyncFile::check_name)
    }
}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.fs.state().unlock(&self.ids);
    }
}

/// An open file, and the path it was opened by.
#[derive(Debug)]
struct Handle {
    fs: SimFs,
    file: Arc<FileNode>,
    path: PathBuf,
}

struct SimWritable {
    handle: Arc<Handle>,
}

impl Handle {
    fn sync(&self, kind: CallKind) -> io::Result<()> {
        let Self { fs, file, path } = self;
        let mut state = fs.state();
        if let Err(e) = state.begin(kind, path) {
            if !state.is_dead && e.kind() != ErrorKind::Interrupted {
                file.state.lock().fail_sync(&mut state.rng);
            }
            return Err(e);
        }
        if !state.is_dead && !state.is_lie(kind, path) {
            file.state.lock().sync();
        }
        state.end(())
    }
}

impl WritableFile for SimWritable {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Handle { fs, file, path } = &*self.handle;
        let mut state = fs.state();
        let permit = state.begin(CallKind::Write, path)?;
        let n = state.take_space(bytes.len().min(permit.bytes_max), path)?;
        let mut content = file.state.lock();
        content.append(&bytes[..n]);
        if state.writes_back() {
            content.sync();
        }
        state.counts.bytes_written += n as u64;
        match permit.fails.and_then(Fault::error) {
            Some(error) => Err(error),
            None => state.end(n),
        }
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        let Handle { fs, file, path } = &*self.handle;
        let mut state = fs.state();
        state.begin(CallKind::Truncate, path)?;
        let len = usize::try_from(len).map_err(|_| ErrorKind::FileTooLarge)?;
        let mut content = file.state.lock();
        state.give_space(content.content.len().saturating_sub(len));
        content.change(Change::Truncate { len });
        state.end(())
    }

    fn sync_data(&mut self) -> io::Result<()> {
        self.handle.sync(CallKind::SyncData)
    }

    fn sync_all(&mut self) -> io::Result<()> {
        self.handle.sync(CallKind::SyncAll)
    }

    fn syncer(&self) -> Arc<dyn SyncFile> {
        Arc::clone(&self.handle) as Arc<dyn SyncFile>
    }
}

impl SyncFile for Handle {
    fn sync_data(&self) -> io::Result<()> {
        self.sync(CallKind::SyncData)
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync(CallKind::SyncAll)
    }

    /// Not counted as a call.
    fn check_name(&self) -> io::Result<()> {
        match self.fs.state().file(&self.path) {
            Ok(file) if file.id == self.file.id => Ok(()),
            Ok(_) => Err(moved_away("another file was put in its place")),
            Err(_) => Err(moved_away("it was removed or renamed while it was open")),
        }
    }
}

#[derive(Debug)]
struct SimReadable {
    handle: Handle,
    /// The alignment of direct reads, if reads are direct.
    align: Option<usize>,
}

impl ReadableFile for SimReadable {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let Handle { fs, file, path } = &self.handle;
        let mut state = fs.state();
        let mut permit = state.begin(CallKind::Read, path)?;
        let content = &file.state.lock().content;
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
        if let Some(align) = self.align {
            let is_aligned = offset.is_multiple_of(align as u64)
                && buf.len().is_multiple_of(align)
                && buf.as_ptr().addr().is_multiple_of(align);
            if !is_aligned && start < content.len() {
                return Err(ErrorKind::InvalidInput.into());
            }
            // A direct read ends short only at a multiple, or at the end of the file.
            permit.bytes_max = permit.bytes_max.div_ceil(align).saturating_mul(align);
        }
        let n = buf.len().min(content.len() - start).min(permit.bytes_max);
        buf[..n].copy_from_slice(&content[start..start + n]);
        state.counts.bytes_read += n as u64;
        state.end(n)
    }

    fn len(&self) -> io::Result<u64> {
        let Handle { fs, file, path } = &self.handle;
        let mut state = fs.state();
        state.begin(CallKind::Len, path)?;
        let len = file.state.lock().content.len() as u64;
        state.end(len)
    }

    fn is_direct(&self) -> bool {
        self.align.is_some()
    }

    fn read_align(&self) -> usize {
        self.align.unwrap_or(1)
    }
}
