//! Descriptors are counted from outside: by what the process has open below a directory.

use std::{fs, io::Result, path::PathBuf, thread};

use rustix::io::Errno;
use tempfile::TempDir;

use super::*;
use crate::io::{
    AlignedBuf, FileLock, QueueUse, ReadQueue, ReadRequest, StdFs, WritableFile, read_full,
};

/// A directory of files, each of which holds its own number a hundred times.
struct Files {
    dir: TempDir,
    count: usize,
}

impl Files {
    fn new(count: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..count {
            fs::write(dir.path().join(number.to_string()), content(number)).unwrap();
        }
        Self { dir, count }
    }

    fn path(&self, number: usize) -> PathBuf {
        self.dir.path().join(number.to_string())
    }

    fn pool(&self, open: &Arc<OpenFiles>, fs: &Arc<dyn FileSystem>) -> Vec<Arc<PooledFile>> {
        let pool = |number| open.pool(fs, &self.path(number), ReadMode::Buffered).unwrap();
        (0..self.count).map(pool).collect()
    }

    /// The number of descriptors that the process has below the directory.
    fn descriptors(&self) -> u64 {
        let links = fs::read_dir("/proc/self/fd").unwrap();
        let links = links.filter_map(|link| fs::read_link(link.ok()?.path()).ok());
        links.filter(|target| target.starts_with(self.dir.path())).count() as u64
    }
}

fn content(number: usize) -> Vec<u8> {
    (number as u64).to_le_bytes().repeat(100)
}

fn check(file: &PooledFile, number: usize) {
    let mut bytes = vec![0; 800];
    assert_eq!(read_full(file, &mut bytes, 0).unwrap(), 800);
    assert_eq!(bytes, content(number), "file {number}");
    assert_eq!(file.len().unwrap(), 800);
}

fn std_fs() -> Arc<dyn FileSystem> {
    Arc::new(StdFs)
}

#[test]
fn any_number_of_files_is_read_through_a_few_descriptors() {
    let (files, fs) = (Files::new(200), std_fs());
    let open = OpenFiles::new(&*fs, Some(20));
    let pooled = files.pool(&open, &fs);
    for round in 0..3 {
        for (number, file) in pooled.iter().enumerate() {
            check(file, number);
            assert!(files.descriptors() <= 20, "round {round}, file {number}");
            assert_eq!(files.descriptors(), open.open());
        }
    }
    assert!(open.opens() <= 4 * 200);
    drop(pooled);
    assert_eq!((files.descriptors(), open.open()), (0, 0));
}

/// A file that is read all the time keeps its descriptor while others come and go.
#[test]
fn the_clock_spares_what_is_read() {
    let (files, fs) = (Files::new(200), std_fs());
    let open = OpenFiles::new(&*fs, Some(20));
    let pooled = files.pool(&open, &fs);
    check(&pooled[0], 0);
    let before = open.opens();
    for (number, file) in pooled.iter().enumerate().skip(1) {
        check(&pooled[0], 0);
        check(file, number);
    }
    // In its first round the clock finds that all files were read, and may take any of them.
    assert!(open.opens() - before <= 200, "{} for 199 files", open.opens() - before);
}

/// A descriptor that a read is using is not closed during the read, however many such reads there
/// are.
#[test]
fn reads_keep_their_descriptors() {
    let (files, fs) = (Files::new(100), std_fs());
    let open = OpenFiles::new(&*fs, Some(16));
    let pooled = files.pool(&open, &fs);
    let held: Vec<_> = pooled.iter().map(|file| file.opened(0, 800).unwrap().unwrap().0).collect();
    assert_eq!(files.descriptors(), 100);
    for (number, file) in held.iter().enumerate() {
        let mut bytes = vec![0; 800];
        file.read_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, content(number));
    }
    drop(held);
    assert!(files.descriptors() <= 16, "{}", files.descriptors());
}

/// A queue of the kernel takes the descriptor with the read.
#[test]
fn a_queue_reads_files_that_have_lost_their_descriptors() {
    let (files, fs) = (Files::new(100), std_fs());
    let Ok(mut queue) = fs.read_queue(64, QueueUse::OneThread) else { return };
    let open = OpenFiles::new(&*fs, Some(16));
    let pooled = files.pool(&open, &fs);
    for (number, file) in pooled.iter().enumerate() {
        let (file, buffer) = (Arc::clone(file) as Arc<dyn ReadableFile>, AlignedBuf::new(4096));
        queue.push(ReadRequest { file, offset: 8, buffer, token: number as u64 });
    }
    let mut done = Vec::new();
    while queue.pending() > 0 {
        queue.wait(&mut done);
    }
    assert_eq!(done.len(), 100);
    for read in &done {
        let number = usize::try_from(read.token).unwrap();
        assert_eq!(*read.result.as_ref().unwrap(), 792);
        assert_eq!(read.buffer[..792], content(number)[8..]);
    }
    drop(done);
    assert!(files.descriptors() <= 16, "{}", files.descriptors());
}

#[test]
fn threads_share_the_descriptors() {
    let (files, fs) = (Files::new(64), std_fs());
    let open = OpenFiles::new(&*fs, Some(16));
    let pooled = files.pool(&open, &fs);
    thread::scope(|scope| {
        for thread in 0..4 {
            let pooled = &pooled;
            scope.spawn(move || {
                for round in 0..2000 {
                    let number = (round * (2 * thread + 1) + 7 * thread) % 64;
                    check(&pooled[number], number);
                }
            });
        }
    });
    assert!(files.descriptors() <= 16, "{}", files.descriptors());
    assert_eq!(files.descriptors(), open.open());
}

/// A database that opens and removes tables for years does not remember the ones that are gone.
#[test]
fn files_that_are_gone_are_forgotten() {
    let (files, fs) = (Files::new(1), std_fs());
    let open = OpenFiles::new(&*fs, None);
    for _ in 0..5000 {
        check(&open.pool(&fs, &files.path(0), ReadMode::Buffered).unwrap(), 0);
    }
    let stale = open.clock.lock().len() as u64;
    assert!(stale <= STALE_MIN + 3, "{stale}");
}

/// The operating system with few descriptors.
#[derive(Debug)]
struct Stingy {
    fs: StdFs,
    open: Arc<OpenFiles>,
    most: u64,
}

impl FileSystem for Stingy {
    fn open(&self, path: &Path, mode: ReadMode) -> Result<Arc<dyn ReadableFile>> {
        if self.open.open() > self.most {
            return Err(Errno::MFILE.into());
        }
        self.fs.open(path, mode)
    }

    fn create_dir_all(&self, _: &Path) -> Result<()> {
        unreachable!()
    }

    fn create(&self, _: &Path) -> Result<Box<dyn WritableFile>> {
        unreachable!()
    }

    fn list(&self, _: &Path) -> Result<Vec<String>> {
        unreachable!()
    }

    fn rename(&self, _: &Path, _: &Path) -> Result<()> {
        unreachable!()
    }

    fn remove_file(&self, _: &Path) -> Result<()> {
        unreachable!()
    }

    fn hard_link(&self, _: &Path, _: &Path) -> Result<()> {
        unreachable!()
    }

    fn sync_dir(&self, _: &Path) -> Result<()> {
        unreachable!()
    }

    fn lock(&self, _: &Path, _: &str) -> Result<Box<dyn FileLock>> {
        unreachable!()
    }

    fn read_queue(&self, _: u32, _: QueueUse) -> Result<Box<dyn ReadQueue>> {
        unreachable!()
    }
}

/// If the program has used up the descriptors of the process, tables close some of theirs and go
/// on.
#[test]
fn a_process_without_descriptors_gets_some_back() {
    let files = Files::new(100);
    let open = OpenFiles::new(&StdFs, Some(60));
    let fs: Arc<dyn FileSystem> = Arc::new(Stingy { fs: StdFs, open: Arc::clone(&open), most: 30 });
    let pooled = files.pool(&open, &fs);
    for (number, file) in pooled.iter().enumerate() {
        check(file, number);
    }
    assert!(files.descriptors() <= 31, "{}", files.descriptors());
}

#[test]
fn a_file_that_is_not_there_is_an_error() {
    let fs = std_fs();
    let open = OpenFiles::new(&*fs, Some(16));
    let error = open.pool(&fs, Path::new("/nowhere/at/all"), ReadMode::Buffered).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert_eq!(open.open(), 0);
}

/// A pinned file is read after it was removed, however many others are opened; one too many is
/// refused.
#[test]
fn pinned_files_are_never_opened_again() {
    let (files, fs) = (Files::new(18), std_fs());
    let open = OpenFiles::pinned(&*fs, Some(17));
    let pin = |number: usize| open.pool(&fs, &files.path(number), ReadMode::Buffered);
    let pinned: Vec<_> = (0..17).map(|number| pin(number).unwrap()).collect();
    let refused = pin(17).unwrap_err();
    assert!(refused.to_string().contains("17 files are open already"), "{refused}");
    assert_eq!((open.open(), open.opens()), (17, 17));
    (0..17).for_each(|number| fs::remove_file(files.path(number)).unwrap());
    for _ in 0..3 {
        pinned.iter().enumerate().for_each(|(number, file)| check(file, number));
    }
    drop(pinned);
    assert_eq!((open.open(), open.opens()), (0, 17));
    assert!(pin(17).is_ok());
}
