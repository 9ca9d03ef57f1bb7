//! Databases to read from, and the answers that they must give.

use std::{
    collections::BTreeMap,
    future::Future,
    path::Path,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use rhumb::{
    Compression, Database, DatabaseBuilder, Keyspace, KeyspaceOptions, Partitioning, TableOptions,
    io::{ReadEngineKind, ReadMode},
};
use rhumb_testkit::random::Random;

pub(crate) type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Values longer than this are stored in files of their own.
const LARGE_BYTES: u32 = 6 << 10;

/// All combinations of read engine and read mode.
pub(crate) const WAYS: [(ReadEngineKind, ReadMode); 4] = [
    (ReadEngineKind::Kernel, ReadMode::Direct),
    (ReadEngineKind::Kernel, ReadMode::Buffered),
    (ReadEngineKind::Threads, ReadMode::Direct),
    (ReadEngineKind::Threads, ReadMode::Buffered),
];

/// The number of rounds to make.
pub(crate) fn rounds(usual: u64) -> u64 {
    std::env::var("RHUMB_ASYNC_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Random keys and values.
pub(crate) trait Draw {
    fn key(&mut self) -> Vec<u8>;
    fn value(&mut self) -> Vec<u8>;
}

impl Draw for Random {
    fn key(&mut self) -> Vec<u8> {
        match self.below(3) {
            0 => self.below(6_000).to_be_bytes().to_vec(),
            1 => format!("user{:05}", self.below(6_000)).into_bytes(),
            _ => format!("a/path/that/many/keys/share/{:04}", self.below(3_000)).into_bytes(),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        let len = match self.below(2_000) {
            0 => u64::from(LARGE_BYTES) + self.below(2_500_000),
            1..=9 => u64::from(LARGE_BYTES) + self.below(9_000),
            10..=200 => 1_000 + self.below(3_000),
            _ => self.below(150),
        };
        let first = self.next();
        (0..len).map(|i| (first.wrapping_add(i).wrapping_mul(0x9E37_79B9) >> 16) as u8).collect()
    }
}

/// The settings that all databases here share: little memory, and many tables.
pub(crate) fn builder(path: &Path) -> DatabaseBuilder {
    Database::builder(path)
        .memtable_bytes(256 << 10)
        .table_bytes(512 << 10)
        .level_one_bytes(1 << 20)
        .memory_budget_bytes(1 << 20)
}

pub(crate) fn open(path: &Path, way: (ReadEngineKind, ReadMode)) -> (Database, Keyspace) {
    open_by(builder(path), way)
}

pub(crate) fn open_by(
    builder: DatabaseBuilder,
    way: (ReadEngineKind, ReadMode),
) -> (Database, Keyspace) {
    let db = builder.read_engine(way.0).read_mode(way.1).open().expect("open");
    let table = TableOptions {
        block_bytes: Some(1024),
        large_value_bytes: Some(LARGE_BYTES),
        compression: Some(Compression::None),
        ..TableOptions::default()
    };
    // Also scans over several partitions, which are opened one after another.
    let cuts = [&8_u64.to_be_bytes()[..], b"a/path/that/many/keys/share/1", b"user03"];
    let partitions = match way.1 {
        ReadMode::Buffered => Partitioning::None,
        ReadMode::Direct => Partitioning::SplitPoints(cuts.map(<[u8]>::to_vec).to_vec()),
    };
    let keyspace = db
        .keyspace("k", KeyspaceOptions { table, partitions, ..KeyspaceOptions::default() })
        .expect("keyspace");
    (db, keyspace)
}

/// Writes, overwrites and removes `count` random keys.
pub(crate) fn change(keyspace: &Keyspace, map: &mut Map, random: &mut Random, count: u64) {
    for _ in 0..count {
        let key = random.key();
        if random.below(5) == 0 {
            keyspace.remove(&key).expect("remove");
            map.remove(&key);
        } else {
            let value = random.value();
            keyspace.insert(&key, &value).expect("insert");
            map.insert(key, value);
        }
    }
}

/// Keys of which most exist, some of them twice.
pub(crate) fn some_keys(map: &Map, random: &mut Random, count: u64) -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for _ in 0..count {
        let key = random.key();
        keys.push(match random.below(10) {
            0 if !keys.is_empty() => keys[random.below(keys.len() as u64) as usize].clone(),
            1 => key,
            _ => map.range(key.clone()..).next().map_or(key, |(key, _)| key.clone()),
        });
    }
    keys
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future, with no executor at all.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        thread::park();
    }
}

/// Polls a future at most `times` times and drops it. Returns its output if it got that far.
pub(crate) fn poll_some<F: Future>(future: F, times: u64) -> Option<F::Output> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    for time in 0..times {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        if time + 1 < times {
            thread::park_timeout(std::time::Duration::from_micros(50 * (time + 1)));
        }
    }
    None
}

/// Waits until no buffer is in use any more: a lost one would never be given back.
pub(crate) fn await_no_buffers(db: &Database) {
    let begun = std::time::Instant::now();
    while db.stats().read_buffers > 0 {
        assert!(begun.elapsed().as_secs() < 60, "{} buffers are lost", db.stats().read_buffers);
        thread::yield_now();
    }
}

/// Waits until the cache holds no more than it may. A background thread that takes memory from it,
/// or drops a table, does so in steps: in between, the count may be higher.
pub(crate) fn await_cache_within_budget(db: &Database) {
    let begun = std::time::Instant::now();
    loop {
        let stats = db.stats();
        let (held, allowed) = (stats.cache_bytes, stats.cache_capacity_bytes);
        if held <= allowed {
            break;
        }
        assert!(begun.elapsed().as_secs() < 60, "{held} bytes in a cache of {allowed}");
        thread::yield_now();
    }
}
