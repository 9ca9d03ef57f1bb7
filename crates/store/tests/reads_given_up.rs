//! Very many asynchronous reads, most of which are dropped while they are in flight: nothing of
//! them stays, and the others get their own bytes.
//!
//! A program of its own, because it measures the memory of its process: other tests in it would be
//! measured with it. `RHUMB_ASYNC_DROPS` sets the number of reads that are dropped.

#[path = "async_reads/common.rs"]
#[expect(dead_code, reason = "the suite of asynchronous reads uses the rest")]
mod common;

use std::{
    future::Future,
    io,
    path::Path,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::Duration,
};

use common::{Map, await_no_buffers, builder, change, open_by, some_keys};
use rhumb::{
    Database, Keyspace,
    io::{
        FileLock, FileSystem, QueueUse, ReadEngineKind, ReadMode, ReadQueue, ReadableFile, StdFs,
        WritableFile,
    },
};
use rhumb_testkit::random::Random;

/// The number of reads that are dropped in each run of the tests by default.
const DROPS_DEFAULT: u64 = 20_000;
/// The largest number of reads that each thread has in flight at once.
const FLIGHTS: usize = 48;
/// The number of buffers in use above which no thread drops another read. A dropped read ends by
/// itself, and has its buffer until then. With more of them the disk could not keep up, and the
/// memory would say nothing.
const BUFFERS_MAX: u64 = 2_000;
/// The number of bytes by which the memory of the process may grow after the first tenth of a run:
/// room for what threads and their allocators take anew, but less than 350 bytes for each read of a
/// long run.
const GROWTH_BYTES_MAX: u64 = 64 << 20;

/// A file system whose kernel gives out `queues_left` queues, and no more.
#[derive(Debug)]
struct Grudging {
    files: StdFs,
    queues_left: AtomicU64,
}

impl FileSystem for Grudging {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.files.create_dir_all(path)
    }
    fn create(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        self.files.create(path)
    }
    fn open(&self, path: &Path, mode: ReadMode) -> io::Result<Arc<dyn ReadableFile>> {
        self.files.open(path, mode)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.files.list(dir)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.files.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.files.remove_file(path)
    }
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.files.hard_link(from, to)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.files.sync_dir(dir)
    }
    fn lock(&self, path: &Path, holder: &str) -> io::Result<Box<dyn FileLock>> {
        self.files.lock(path, holder)
    }
    fn read_queue(&self, depth: u32, used: QueueUse) -> io::Result<Box<dyn ReadQueue>> {
        let take_one = |left: u64| left.checked_sub(1);
        self.queues_left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take_one)
            .map_err(|_| io::Error::from(io::ErrorKind::PermissionDenied))?;
        self.files.read_queue(depth, used)
    }
}

/// Counts how often it is woken. Its reference count shows how many wakers are left.
#[derive(Default)]
struct Counting(AtomicU64);

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A read that reports whether its result is right.
struct Flight {
    read: Pin<Box<dyn Future<Output = bool> + Send>>,
    /// True if it was polled and waits for something.
    is_under_way: bool,
}

/// One read of some kind.
fn start(keyspace: &Keyspace, map: &Arc<Map>, random: &mut Random) -> Flight {
    let (keyspace, map) = (keyspace.clone(), Arc::clone(map));
    let count = [1, 1, 9][random.below(3) as usize];
    let keys = some_keys(&map, random, count);
    let scans = random.below(4) == 0;
    let read = async move {
        if keys.len() > 1 {
            let values = keyspace.multi_get_async(&keys).await.expect("multi_get_async");
            let is_right = |(key, value): (&Vec<u8>, &Option<rhumb::Slice>)| {
                value.as_deref() == map.get(key).map(Vec::as_slice)
            };
            return keys.iter().zip(&values).all(is_right);
        }
        if !scans {
            let value = keyspace.get_async(&keys[0]).await.expect("get_async");
            return value.as_deref() == map.get(&keys[0]).map(Vec::as_slice);
        }
        let mut iter = keyspace.range_async(keys[0].clone()..);
        for (key, value) in map.range(keys[0].clone()..).take(3) {
            let found = iter.next().await.expect("more").expect("an entry");
            if found.0 != *key || found.1 != *value {
                return false;
            }
        }
        true
    };
    Flight { read: Box::pin(read), is_under_way: false }
}

/// The results of a thread's reads.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// The number of reads dropped while they waited for the disk.
    dropped: u64,
    /// The number of reads dropped before they were polled once.
    unpolled: u64,
    /// The number of reads that were completed and verified.
    verified: u64,
}

/// Starts, polls and drops reads at random until `drops` reads were dropped in flight.
fn storm((db, keyspace): (&Database, &Keyspace), map: &Arc<Map>, seed: u64, drops: u64) -> Counts {
    let mut random = Random::new(seed);
    let counting = Arc::new(Counting::default());
    let waker = Waker::from(Arc::clone(&counting));
    let mut context = Context::from_waker(&waker);
    let mut flights: Vec<Option<Flight>> = (0..FLIGHTS).map(|_| None).collect();
    let mut counts = Counts::default();
    while counts.dropped < drops {
        let at = random.below(FLIGHTS as u64) as usize;
        let Some(flight) = &mut flights[at] else {
            flights[at] = Some(start(keyspace, map, &mut random));
            continue;
        };
        match random.below(8) {
            0 if flight.is_under_way => {
                flights[at] = None;
                counts.dropped += 1;
                while counts.dropped % 32 == 0 && db.stats().read_buffers > BUFFERS_MAX {
                    thread::sleep(Duration::from_micros(200));
                }
            }
            0 => {
                flights[at] = None;
                counts.unpolled += 1;
            }
            // Some results arrive before any poll.
            1 if random.below(64) == 0 => thread::sleep(Duration::from_micros(random.below(200))),
            _ => match flight.read.as_mut().poll(&mut context) {
                Poll::Pending => flight.is_under_way = true,
                Poll::Ready(is_right) => {
                    assert!(is_right, "a wrong value");
                    flights[at] = None;
                    counts.verified += 1;
                }
            },
        }
    }
    drop((flights, waker));
    // Every slot that a read left behind would have kept a waker.
    for _ in 0..60_000 {
        if Arc::strong_count(&counting) == 1 {
            return counts;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("{} wakers are kept by nobody's reads", Arc::strong_count(&counting) - 1);
}

/// The resident memory of this process, if the system reports it.
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    text.split(' ').nth(1)?.parse::<u64>().ok().map(|pages| pages * 4096)
}

/// Runs two threads of reads. Returns the sum of their results.
fn storms(store: (&Database, &Keyspace), map: &Arc<Map>, seed: u64, drops: u64) -> Counts {
    thread::scope(|scope| {
        let threads = [0, 1].map(|thread| {
            scope.spawn(move || storm(store, map, seed * 2 + thread, drops.div_ceil(2)))
        });
        threads.into_iter().map(|thread| thread.join().expect("a thread of reads")).fold(
            Counts::default(),
            |sum, counts| Counts {
                dropped: sum.dropped + counts.dropped,
                unpolled: sum.unpolled + counts.unpolled,
                verified: sum.verified + counts.verified,
            },
        )
    })
}

#[test]
fn reads_that_are_given_up_leave_nothing_behind() {
    let drops = std::env::var("RHUMB_ASYNC_DROPS");
    let drops = drops.map_or(DROPS_DEFAULT, |text| text.parse().expect("a number"));
    let (kernel, threads) = (ReadEngineKind::Kernel, ReadEngineKind::Threads);
    // The number of queues that the kernel gives out, the read engine, and the read mode.
    let ways = [
        (u64::MAX, kernel, ReadMode::Direct),
        (u64::MAX, kernel, ReadMode::Buffered),
        (0, kernel, ReadMode::Direct),
        (1, kernel, ReadMode::Direct),
        (u64::MAX, threads, ReadMode::Buffered),
    ];
    for (number, (queues, engine, mode)) in ways.into_iter().enumerate() {
        let dir = tempfile::tempdir().expect("a directory");
        let files = Grudging { files: StdFs, queues_left: AtomicU64::new(queues) };
        let builder = builder(&dir.path().join("db")).file_system(Arc::new(files));
        let (db, keyspace): (Database, Keyspace) = open_by(builder, (engine, mode));
        assert!(queues > 0 || db.stats().read_engine == threads, "a refusal leaves threads");
        let (mut map, mut random) = (Map::new(), Random::new(number as u64 + 900));
        change(&keyspace, &mut map, &mut random, 6_000);
        db.flush().expect("flush");
        let (map, share) = (Arc::new(map), drops.div_ceil(ways.len() as u64));
        let first = storms((&db, &keyspace), &map, number as u64 * 2 + 1_000, share.div_ceil(10));
        await_no_buffers(&db);
        let before = resident_bytes();
        let rest =
            storms((&db, &keyspace), &map, number as u64 * 2 + 1_001, share - share.div_ceil(10));
        await_no_buffers(&db);
        let grown =
            resident_bytes().zip(before).map_or(0, |(now, before)| now.saturating_sub(before));
        println!(
            "{queues} queues, {:?} {mode:?}: {} reads dropped under way, {} unpolled, {} verified, \
             memory +{} KiB",
            db.stats().read_engine,
            first.dropped + rest.dropped,
            first.unpolled + rest.unpolled,
            first.verified + rest.verified,
            grown >> 10,
        );
        assert!(rest.verified > 0 && grown < GROWTH_BYTES_MAX, "memory grew by {grown} bytes");
    }
}
