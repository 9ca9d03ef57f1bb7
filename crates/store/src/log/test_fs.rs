//! A file system in memory for the tests of logs and manifests: it cuts the power, and fails or
//! shortens any call. One flat directory; names are the last parts of paths.

use std::{
    collections::BTreeMap,
    io::{self, ErrorKind},
    path::Path,
    sync::{Arc, Mutex, MutexGuard},
};

use rhumb_testkit::random::Random;

use crate::io::{FileLock, FileSystem, ReadMode, ReadableFile, SyncFile, WritableFile};

const SECTOR_BYTES: usize = 512;

#[derive(Debug, Default)]
struct Node {
    cached: Vec<u8>,
    durable: Vec<u8>,
}

type NodeRef = Arc<Mutex<Node>>;

#[derive(Debug, Default)]
struct Disk {
    entries: BTreeMap<String, NodeRef>,
    durable_entries: BTreeMap<String, NodeRef>,
    /// The number of calls that change something and were not failed.
    calls: u64,
    /// Fails this call and, if `sticky`, all after it; a failed write does nothing, half or all of
    /// its work.
    fail_at: Option<u64>,
    sticky: bool,
    /// The longest write; longer ones are short.
    write_bytes_max: Option<usize>,
    failed: Vec<&'static str>,
}

/// The file system. Clones share the disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct TestFs(Arc<Mutex<Disk>>);

impl TestFs {
    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().unwrap()
    }

    pub(crate) fn shared(&self) -> Arc<dyn FileSystem> {
        Arc::new(self.clone())
    }

    /// Fails the changing call number `call` from now, and all later ones if `sticky`.
    pub(crate) fn fail_after(&self, call: u64, sticky: bool) {
        let mut disk = self.disk();
        disk.fail_at = Some(disk.calls + call);
        disk.sticky = sticky;
    }

    pub(crate) fn heal(&self) {
        self.disk().fail_at = None;
    }

    /// The operations that were failed so far.
    pub(crate) fn failed(&self) -> Vec<&'static str> {
        self.disk().failed.clone()
    }

    pub(crate) fn set_write_bytes_max(&self, max: usize) {
        self.disk().write_bytes_max = Some(max);
    }

    pub(crate) fn calls(&self) -> u64 {
        self.disk().calls
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        self.disk().entries[name].lock().unwrap().cached.clone()
    }

    /// Replaces a file, durably.
    pub(crate) fn put(&self, name: &str, bytes: &[u8]) {
        let node = Node { cached: bytes.to_vec(), durable: bytes.to_vec() };
        let node = Arc::new(Mutex::new(node));
        let mut disk = self.disk();
        disk.entries.insert(name.to_owned(), Arc::clone(&node));
        disk.durable_entries.insert(name.to_owned(), node);
    }

    pub(crate) fn remove(&self, name: &str) {
        let mut disk = self.disk();
        disk.entries.remove(name);
        disk.durable_entries.remove(name);
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.disk().entries.keys().cloned().collect()
    }

    /// Flips a bit of a file, durably.
    pub(crate) fn flip(&self, name: &str, bit: usize) {
        let mut bytes = self.read(name);
        bytes[bit / 8] ^= 1 << (bit % 8);
        self.put(name, &bytes);
    }

    /// What a power cut leaves: for each name that was not synced the old or the new file; for each
    /// file that was not synced any length between, and for each of its sectors the old or the new
    /// bytes, or zeros if there were none.
    pub(crate) fn cut_power(&self, rng: &mut Random) -> TestFs {
        let disk = self.disk();
        let mut names: Vec<&String> = disk.entries.keys().collect();
        names.extend(disk.durable_entries.keys().filter(|name| !disk.entries.contains_key(*name)));
        let after = TestFs::default();
        for name in names {
            let (new, old) = (disk.entries.get(name), disk.durable_entries.get(name));
            let same = match (new, old) {
                (Some(new), Some(old)) => Arc::ptr_eq(new, old),
                _ => false,
            };
            let survivor = if same || rng.one_in(2) { new } else { old };
            if let Some(node) = survivor {
                after.put(name, &torn(&node.lock().unwrap(), rng));
            }
        }
        after
    }

    /// What killing the process leaves: everything that was written.
    pub(crate) fn kill(&self) -> TestFs {
        let after = TestFs::default();
        for name in self.names() {
            let (cached, durable) = {
                let disk = self.disk();
                let node = disk.entries[&name].lock().unwrap();
                (node.cached.clone(), node.durable.clone())
            };
            after.put(&name, &cached);
            after.disk().entries[&name].lock().unwrap().durable = durable;
        }
        after
    }

    fn change(&self, operation: &'static str) -> io::Result<MutexGuard<'_, Disk>> {
        let mut disk = self.disk();
        let call = disk.calls;
        disk.calls += 1;
        if disk.fail_at.is_some_and(|at| call == at || (call > at && disk.sticky)) {
            disk.failed.push(operation);
            return Err(io::Error::new(ErrorKind::StorageFull, "injected"));
        }
        Ok(disk)
    }
}

fn torn(node: &Node, rng: &mut Random) -> Vec<u8> {
    if node.cached == node.durable {
        return node.cached.clone();
    }
    let (short, long) =
        (node.cached.len().min(node.durable.len()), node.cached.len().max(node.durable.len()));
    let len = match rng.below(4) {
        0 => short,
        1 => long,
        _ => short + rng.below((long - short) as u64 + 1) as usize,
    };
    let lose_one_in = 1 + rng.below(8);
    let mut bytes = vec![0; len];
    for (start, sector) in (0..).step_by(SECTOR_BYTES).zip(bytes.chunks_mut(SECTOR_BYTES)) {
        let from = if rng.one_in(lose_one_in) { &node.durable } else { &node.cached };
        let from = from.get(start..).unwrap_or_default();
        let len = from.len().min(sector.len());
        sector[..len].copy_from_slice(&from[..len]);
    }
    bytes
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

fn not_found() -> io::Error {
    ErrorKind::NotFound.into()
}

impl FileSystem for TestFs {
    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        let mut disk = self.change("create")?;
        let node = NodeRef::default();
        if disk.entries.contains_key(&name_of(path)) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        disk.entries.insert(name_of(path), Arc::clone(&node));
        Ok(Box::new(TestFile { fs: self.clone(), node }))
    }

    fn open(&self, path: &Path, _: ReadMode) -> io::Result<Arc<dyn ReadableFile>> {
        let disk = self.disk();
        let node = disk.entries.get(&name_of(path)).ok_or_else(not_found)?;
        Ok(Arc::new(TestRead(Arc::clone(node))))
    }

    fn list(&self, _: &Path) -> io::Result<Vec<String>> {
        Ok(self.names())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut disk = self.change("rename")?;
        let node = disk.entries.remove(&name_of(from)).ok_or_else(not_found)?;
        disk.entries.insert(name_of(to), node);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.change("remove")?;
        disk.entries.remove(&name_of(path)).map(drop).ok_or_else(not_found)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut disk = self.change("link")?;
        let node = disk.entries.get(&name_of(from)).cloned().ok_or_else(not_found)?;
        disk.entries.insert(name_of(to), node);
        Ok(())
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        let mut disk = self.change("sync_dir")?;
        disk.durable_entries = disk.entries.clone();
        Ok(())
    }

    fn lock(&self, _: &Path, _: &str) -> io::Result<Box<dyn FileLock>> {
        Err(ErrorKind::Unsupported.into())
    }
}

#[derive(Clone)]
struct TestFile {
    fs: TestFs,
    node: NodeRef,
}

impl WritableFile for TestFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let max = self.fs.disk().write_bytes_max.unwrap_or(usize::MAX);
        let (len, outcome) = match self.fs.change("write") {
            Ok(_) => (bytes.len().min(max), Ok(bytes.len().min(max))),
            Err(e) => (bytes.len() * (self.fs.calls() % 3) as usize / 2, Err(e)),
        };
        let writes_back = self.fs.calls().is_multiple_of(5);
        let mut node = self.node.lock().unwrap();
        node.cached.extend_from_slice(&bytes[..len]);
        // Sometimes the system writes data back without being asked to.
        if writes_back {
            node.durable = node.cached.clone();
        }
        outcome
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        drop(self.fs.change("truncate")?);
        self.node.lock().unwrap().cached.truncate(len as usize);
        Ok(())
    }

    fn sync_data(&mut self) -> io::Result<()> {
        SyncFile::sync_data(self)
    }

    fn sync_all(&mut self) -> io::Result<()> {
        SyncFile::sync_data(self)
    }

    fn syncer(&self) -> Arc<dyn SyncFile> {
        Arc::new(self.clone())
    }
}

impl SyncFile for TestFile {
    fn sync_data(&self) -> io::Result<()> {
        drop(self.fs.change("sync")?);
        let mut node = self.node.lock().unwrap();
        node.durable = node.cached.clone();
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        SyncFile::sync_data(self)
    }
}

#[derive(Debug)]
struct TestRead(NodeRef);

impl ReadableFile for TestRead {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let node = self.0.lock().unwrap();
        let from = node.cached.get(offset as usize..).unwrap_or_default();
        let len = from.len().min(buf.len());
        buf[..len].copy_from_slice(&from[..len]);
        Ok(len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().cached.len() as u64)
    }
}
