//! A read that waits for a slow disk holds back no garbage of the process.
//!
//! A program of its own: other tests of the same process would pin the epoch as well.

use std::{io, path::Path, sync::Arc, thread};

use rhumb::{
    Database, Index, Keyspace, KeyspaceOptions,
    io::{FileLock, FileSystem, ReadEngineKind, ReadMode, ReadableFile, StdFs, WritableFile},
};
use rhumb_sync::primitive::{Condvar, Mutex};

/// The number of values that are replaced during a read: more than wait to be dropped where no
/// thread is pinned.
const REPLACED: u64 = 100_000;

/// A disk whose reads wait while it is stalled.
#[derive(Debug, Default)]
struct Stall {
    state: Mutex<StallState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct StallState {
    is_stalled: bool,
    /// The number of reads that wait.
    waiting: u64,
}

impl Stall {
    fn set(&self, is_stalled: bool) {
        self.state.lock().is_stalled = is_stalled;
        self.changed.notify_all();
    }

    /// Waits until a read waits.
    fn await_read(&self) {
        let mut state = self.state.lock();
        while state.waiting == 0 {
            self.changed.wait(&mut state);
        }
    }

    /// Waits while the disk is stalled.
    fn pass(&self) {
        let mut state = self.state.lock();
        state.waiting += 1;
        self.changed.notify_all();
        while state.is_stalled {
            self.changed.wait(&mut state);
        }
        state.waiting -= 1;
    }
}

#[derive(Debug)]
struct SlowFs(StdFs, Arc<Stall>);

#[derive(Debug)]
struct SlowFile(Arc<dyn ReadableFile>, Arc<Stall>);

impl ReadableFile for SlowFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.1.pass();
        self.0.read_at(buf, offset)
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}

impl FileSystem for SlowFs {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.0.create_dir_all(path)
    }
    fn create(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        self.0.create(path)
    }
    fn open(&self, path: &Path, _mode: ReadMode) -> io::Result<Arc<dyn ReadableFile>> {
        let file = self.0.open(path, ReadMode::Buffered)?;
        Ok(Arc::new(SlowFile(file, Arc::clone(&self.1))))
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.0.list(dir)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.0.remove_file(path)
    }
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.hard_link(from, to)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.sync_dir(dir)
    }
    fn lock(&self, path: &Path, holder: &str) -> io::Result<Box<dyn FileLock>> {
        self.0.lock(path, holder)
    }
}

/// The number of values that are still there after all but a hundred of many were replaced.
fn values_left_of_replaced() -> usize {
    let (index, counted) = (Index::new(), Arc::new(()));
    for key in 0..REPLACED {
        drop(index.insert(key % 100, Arc::clone(&counted)));
    }
    Arc::strong_count(&counted)
}

/// Opens a database whose values lie in tables only, with nothing of them in memory.
fn cold(dir: &Path, stall: &Arc<Stall>) -> (Database, Keyspace) {
    let open = || {
        let fs = SlowFs(StdFs, Arc::clone(stall));
        let builder = Database::builder(dir).file_system(Arc::new(fs)).background_threads(0);
        let db = builder.read_engine(ReadEngineKind::Threads).open().unwrap();
        let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        (db, keyspace)
    };
    let (db, keyspace) = open();
    for key in 0..2_000_u64 {
        keyspace.insert(key.to_be_bytes(), [7; 100]).unwrap();
    }
    keyspace.insert("large", vec![9; 1 << 20]).unwrap();
    db.flush().unwrap();
    drop((db, keyspace));
    open()
}

fn check(read: impl Fn(&Keyspace) + Send + Copy + 'static) {
    let (dir, stall) = (tempfile::tempdir().unwrap(), Arc::new(Stall::default()));
    let (_db, keyspace) = cold(dir.path(), &stall);
    stall.set(true);
    let reader = thread::spawn(move || read(&keyspace));
    stall.await_read();
    let left = values_left_of_replaced();
    stall.set(false);
    reader.join().unwrap();
    assert!(left < REPLACED as usize / 2, "{left} of {REPLACED} are left beside a slow read");
}

#[test]
fn garbage_is_dropped_while_a_read_waits_for_the_disk() {
    check(|keyspace| assert_eq!(keyspace.get(7_u64.to_be_bytes()).unwrap().unwrap(), [7; 100]));
    check(|keyspace| assert!(keyspace.contains_key(7_u64.to_be_bytes()).unwrap()));
    check(|keyspace| {
        let keys: Vec<_> = (0..200_u64).map(|key| (key * 10).to_be_bytes()).collect();
        assert!(keyspace.multi_get(&keys).unwrap().iter().all(Option::is_some));
    });
    check(|keyspace| assert_eq!(keyspace.get("large").unwrap().unwrap().len(), 1 << 20));
    check(|keyspace| assert_eq!(keyspace.iter().count(), 2_001));
}
