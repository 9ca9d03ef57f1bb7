//! The memory budget, counted: the peak of what the program's allocator has handed out and of what
//! the engine has mapped itself, while threads write, read and scan small values and large ones.
//!
//! A program of its own, because it counts what the whole process allocates.
#![allow(unsafe_code, reason = "counts what the program's allocator hands out")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use rhumb::{Database, Keyspace, KeyspaceOptions};

/// The system's allocator, and how much of it is in use.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

/// The largest block that was allocated while threads wrote and read.
static LARGEST: AtomicUsize = AtomicUsize::new(0);

fn add(bytes: usize) {
    LARGEST.fetch_max(bytes, Ordering::Relaxed);
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    MOST.fetch_max(live, Ordering::Relaxed);
}

// SAFETY: the system's allocator does everything.
unsafe impl GlobalAlloc for Counting {
    /// # Safety
    /// As for every [`GlobalAlloc`].
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    /// # Safety
    /// As for every [`GlobalAlloc`].
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    /// # Safety
    /// As for every [`GlobalAlloc`].
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) };
    }

    /// # Safety
    /// As for every [`GlobalAlloc`].
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        add(bytes);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(memory, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MIB: usize = 1 << 20;
const BUDGET: usize = 64 * MIB;
const MEMTABLE: usize = BUDGET / 8;
const THREADS: u64 = 4;
/// The number of small values of each thread.
const SMALL: u64 = 12_000;
const SMALL_BYTES: usize = 1000;
/// One in this many writes of each thread is of a large value.
const LARGE_EVERY: u64 = 100;
const LARGE_BYTES: usize = 240 << 10;

/// The memory that callers hold: each thread has a large value that it writes and one that it
/// reads.
const CALLERS: usize = 2 * LARGE_BYTES * THREADS as usize;

fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 31)).wrapping_mul(0x7FB5_D329_728E_A185);
    x ^ (x >> 29)
}

fn write_and_read(keyspace: &Keyspace, thread: u64, start: &Barrier) {
    let mut value = vec![thread as u8; LARGE_BYTES];
    if start.wait().is_leader() {
        LARGEST.store(0, Ordering::Relaxed);
    }
    start.wait();
    for i in 0..SMALL {
        let key = mix((thread << 32) | i).to_be_bytes();
        let bytes = if i % LARGE_EVERY == 0 { LARGE_BYTES } else { SMALL_BYTES };
        value[..8].copy_from_slice(&key);
        keyspace.insert(key, &value[..bytes]).unwrap();
        let other = mix((thread << 32) | (mix(i) % (i + 1))).to_be_bytes();
        assert_eq!(keyspace.get(other).unwrap().unwrap()[..8], other);
        if i % 100 == 0 {
            for entry in keyspace.range(key..).take(50) {
                let (key, value) = entry.unwrap();
                assert_eq!(*key, value[..8]);
            }
        }
    }
}

/// The memory that the process may have besides: memory that is taken before the cache has made
/// room for it, and the last chunks of arenas, which are not full. Allocated and mapped memory are
/// each taken at their peak, and the peaks need not be at the same time.
const BESIDES: usize = BUDGET / 4;

/// The size of the largest block that the engine may take from the program's allocator, whose heaps
/// would keep it.
const BLOCK_BYTES_MAX: usize = 128 << 10;

/// All memory, at its peak, is within the budget and what callers hold, and none of it is a large
/// block of the program's allocator.
#[test]
fn all_that_is_allocated_and_mapped_is_within_the_budget() {
    let dir = tempfile::tempdir().unwrap();
    let before = LIVE.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let db = Database::builder(dir.path().join("db"))
        .memory_budget_bytes(BUDGET as u64)
        .memtable_bytes(MEMTABLE as u64)
        .open()
        .unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    let start = Barrier::new(THREADS as usize);
    let is_over = AtomicBool::new(false);
    let mut mapped = 0;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (keyspace, start) = (&keyspace, &start);
                scope.spawn(move || write_and_read(keyspace, thread, start))
            })
            .collect();
        let (is_over, mapped) = (&is_over, &mut mapped);
        let db = &db;
        scope.spawn(move || {
            while !is_over.load(Ordering::Acquire) {
                *mapped = (*mapped).max(db.stats().mapped_bytes as usize);
                thread::sleep(Duration::from_millis(1));
            }
        });
        let outcomes: Vec<_> = threads.into_iter().map(thread::ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::Release);
        outcomes.into_iter().for_each(|outcome| outcome.unwrap());
    });
    let allocated = MOST.load(Ordering::Relaxed) - before;
    let (stats, largest) = (db.stats(), LARGEST.load(Ordering::Relaxed));
    println!(
        "{} KiB allocated, in blocks of {largest} bytes at most, {} KiB mapped at most; {} blocks cached, {} evicted, {} flushes",
        allocated >> 10,
        mapped >> 10,
        stats.cache_blocks,
        stats.cache_evictions,
        stats.flushes
    );
    assert!(stats.flushes > 4 && stats.cache_evictions > 0, "there is too little for the budget");
    assert!(largest <= BLOCK_BYTES_MAX, "a block of {largest} bytes was allocated");
    assert!(
        allocated + mapped <= BUDGET + BESIDES + CALLERS,
        "{} KiB allocated and {} KiB mapped of a budget of {} KiB",
        allocated >> 10,
        mapped >> 10,
        BUDGET >> 10
    );
}
