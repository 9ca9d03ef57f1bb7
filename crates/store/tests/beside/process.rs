//! A process on a simulated disk that others share: it can be killed at any of its changes, by
//! itself, and what it does can be interleaved with what others do at every call.

use std::{
    cell::RefCell,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use rhumb::io::{FileLock, FileSystem, ReadMode, ReadableFile, SyncFile, WritableFile, sim::SimFs};

/// What others do while a call of a process is about to be done.
type Meanwhile = Box<dyn FnMut()>;

thread_local! {
    static MEANWHILE: RefCell<[Option<Meanwhile>; 2]> = const { RefCell::new([None, None]) };
}

/// The part that a process plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Writer = 0,
    Reader = 1,
}

/// Has `act` called before each call of processes of this role.
pub(crate) fn set_meanwhile(role: Role, act: impl FnMut() + 'static) {
    MEANWHILE.with(|all| all.borrow_mut()[role as usize] = Some(Box::new(act)));
}

/// Forgets what was set.
pub(crate) fn clear_meanwhile() {
    let all = MEANWHILE.with(|all| std::mem::take(&mut *all.borrow_mut()));
    drop(all);
}

/// Lets the others act, unless they are acting already.
fn meanwhile(role: Role) {
    let Some(all) = MEANWHILE.with(|all| {
        let mut all = all.borrow_mut();
        let both = std::mem::take(&mut *all);
        both.iter().any(Option::is_some).then_some(both)
    }) else {
        return;
    };
    let mut all = all;
    if let Some(act) = &mut all[role as usize] {
        act();
    }
    MEANWHILE.with(|now| *now.borrow_mut() = all);
}

/// A process that may be killed.
#[derive(Debug)]
pub(crate) struct Process {
    role: Role,
    is_dead: AtomicBool,
    /// True while all its calls fail.
    is_failing: AtomicBool,
    /// The number of changes that it may still make.
    changes_left: AtomicU64,
    /// What the system releases when the process is gone.
    locks: Mutex<Vec<Arc<Lock>>>,
}

struct Lock(Box<dyn FileLock>);

impl std::fmt::Debug for Lock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lock")
    }
}

impl Process {
    /// A process that is killed in the change after `changes` others.
    pub(crate) fn new(role: Role, changes: u64) -> Arc<Self> {
        Arc::new(Self {
            role,
            is_dead: AtomicBool::new(false),
            is_failing: AtomicBool::new(false),
            changes_left: AtomicU64::new(changes),
            locks: Mutex::default(),
        })
    }

    /// Kills it: the system releases its locks.
    pub(crate) fn kill(&self) {
        self.is_dead.store(true, Ordering::Relaxed);
        self.locks.lock().unwrap().clear();
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Relaxed)
    }

    /// From now on its calls fail, or do not.
    pub(crate) fn set_failing(&self, is_failing: bool) {
        self.is_failing.store(is_failing, Ordering::Relaxed);
    }

    fn live(&self) -> io::Result<()> {
        if self.is_failing.load(Ordering::Relaxed) {
            return Err(io::Error::other("a fault"));
        }
        if self.is_dead() { Err(io::Error::other("the process is dead")) } else { Ok(()) }
    }

    fn call(&self) -> io::Result<()> {
        self.live()?;
        meanwhile(self.role);
        self.live()
    }

    /// Counts a change. Returns false if the process dies in it.
    fn survives(&self) -> io::Result<bool> {
        self.call()?;
        let left = self.changes_left.load(Ordering::Relaxed);
        self.changes_left.store(left.saturating_sub(1), Ordering::Relaxed);
        if left == 0 {
            self.kill();
        }
        Ok(left > 0)
    }

    /// A change that is done or not when the process dies in it.
    fn change<T>(&self, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let survives = self.survives()?;
        let done = act();
        if survives { done } else { Err(io::Error::other("the process died")) }
    }
}

/// The disk as a process sees it.
#[derive(Clone, Debug)]
pub(crate) struct View {
    fs: Arc<dyn FileSystem>,
    process: Arc<Process>,
}

impl View {
    pub(crate) fn new(fs: &SimFs, process: &Arc<Process>) -> Self {
        Self { fs: Arc::new(fs.clone()), process: Arc::clone(process) }
    }
}

impl FileSystem for View {
    fn hold_dir(&self, dir: &Path) -> io::Result<Arc<dyn FileSystem>> {
        self.process.live()?;
        Ok(Arc::new(Self { fs: self.fs.hold_dir(dir)?, process: Arc::clone(&self.process) }))
    }

    fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        self.fs.absolute(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.process.change(|| self.fs.create_dir_all(path))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        let file = self.process.change(|| self.fs.create(path))?;
        Ok(Box::new(Writing { file, process: Arc::clone(&self.process) }))
    }

    fn open(&self, path: &Path, mode: ReadMode) -> io::Result<Arc<dyn ReadableFile>> {
        self.process.call()?;
        let file = self.fs.open(path, mode)?;
        Ok(Arc::new(Reading { file, process: Arc::clone(&self.process) }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.process.call()?;
        self.fs.list(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.process.change(|| self.fs.rename(from, to))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.process.change(|| self.fs.remove_file(path))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.process.change(|| self.fs.hard_link(from, to))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.process.change(|| self.fs.sync_dir(dir))
    }

    fn lock(&self, path: &Path, holder: &str) -> io::Result<Box<dyn FileLock>> {
        assert_eq!(self.process.role, Role::Writer, "a reader takes a writer's lock");
        self.process.call()?;
        let lock = Arc::new(Lock(self.fs.lock(path, holder)?));
        let held = Holding(Arc::downgrade(&lock), Arc::clone(&self.process));
        self.process.locks.lock().unwrap().push(lock);
        Ok(Box::new(held))
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.process.live()?;
        self.fs.lock_shared(path)
    }
}

/// A lock that the process holds as long as it lives.
struct Holding(Weak<Lock>, Arc<Process>);

impl FileLock for Holding {
    fn check(&self) -> io::Result<()> {
        self.1.live()?;
        self.0.upgrade().map_or(Err(ErrorKind::NotFound.into()), |lock| lock.0.check())
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.1.locks.lock().unwrap().clear();
    }
}

struct Writing {
    file: Box<dyn WritableFile>,
    process: Arc<Process>,
}

impl WritableFile for Writing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.process.survives()? {
            return self.file.write(bytes);
        }
        // A part of it is written, from nothing to all.
        let part = bytes.len() * (bytes.len() % 7) / 6;
        let _ = self.file.write(&bytes[..part]);
        Err(io::Error::other("the process died"))
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        let file = &mut self.file;
        self.process.change(|| file.truncate(len))
    }

    fn sync_data(&mut self) -> io::Result<()> {
        let file = &mut self.file;
        self.process.change(|| file.sync_data())
    }

    fn sync_all(&mut self) -> io::Result<()> {
        let file = &mut self.file;
        self.process.change(|| file.sync_all())
    }

    fn syncer(&self) -> Arc<dyn SyncFile> {
        Arc::new(Syncing { file: self.file.syncer(), process: Arc::clone(&self.process) })
    }
}

struct Syncing {
    file: Arc<dyn SyncFile>,
    process: Arc<Process>,
}

impl SyncFile for Syncing {
    fn sync_data(&self) -> io::Result<()> {
        self.process.change(|| self.file.sync_data())
    }

    fn sync_all(&self) -> io::Result<()> {
        self.process.change(|| self.file.sync_all())
    }

    fn check_name(&self) -> io::Result<()> {
        self.process.live()?;
        self.file.check_name()
    }
}

#[derive(Debug)]
struct Reading {
    file: Arc<dyn ReadableFile>,
    process: Arc<Process>,
}

impl ReadableFile for Reading {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.process.call()?;
        self.file.read_at(buf, offset)
    }

    fn len(&self) -> io::Result<u64> {
        self.process.call()?;
        self.file.len()
    }

    fn is_direct(&self) -> bool {
        self.file.is_direct()
    }

    fn read_align(&self) -> usize {
        self.file.read_align()
    }
}
