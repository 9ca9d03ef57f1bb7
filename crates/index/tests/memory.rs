//! The memory that an index takes: bounded while it grows, returned when it shrinks.
//!
//! A program of its own, with one test at a time. What an index no longer needs is freed when no
//! thread of the process can still read it. Other tests beside it, on a machine that lets their
//! threads wait, would decide where leaves lie.

#[path = "index/setting.rs"]
mod setting;

use std::{
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rhumb_index::{Index, Preset};

use rhumb_testkit::random::scatter;

use crate::setting::Setting;

/// Held by the test that runs.
static ALONE: Mutex<()> = Mutex::new(());

/// The keys of the larger test: enough that the memory taken ahead of need is a small part.
const KEYS: u64 = 800_000;

/// The most bytes that an integer and a word may take in an index that has grown, as its preset's
/// documentation says.
fn bytes_grown(preset: Preset) -> usize {
    match preset {
        Preset::Auto => 30,
        Preset::Tone => 48,
        Preset::Loft => 72,
        _ => 128,
    }
}

/// The same limit after removals.
fn bytes_shrunk(preset: Preset) -> usize {
    bytes_grown(preset) / 2 * 3
}

/// The bytes that an index that grows may have besides: the chunks of two mebibytes that it began,
/// those made ahead of need, and what waits to be freed.
const BESIDES_GROWN: usize = 12 << 20;
/// The bytes that an index that has shrunk may have besides, where one leaf may hold a chunk. Seven
/// chunks in all are the most that was seen, on a machine with too much to do.
const BESIDES_SHRUNK: usize = 16 << 20;

/// The bytes that `keys` integers and words may take at `each` bytes: an eighth more is between
/// leaves.
fn bytes_max(keys: u64, each: usize) -> usize {
    keys as usize * each / 8 * 9
}

/// Waits a moment, with some writes, until no reader can hold what an index no longer needs.
fn settle(index: &Index<u64, u64>, goal: usize, writes: impl Fn()) {
    let start = Instant::now();
    while index.memory_bytes() > goal && start.elapsed() < Duration::from_secs(20) {
        writes();
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn memory_is_bounded_and_comes_back() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (kept, removed): (Vec<u64>, Vec<u64>) =
        (0..KEYS).partition(|i| scatter(i ^ 1).is_multiple_of(10));
    for setting in Setting::all() {
        let index: Index<u64, u64> = setting.build();
        for key in (0..KEYS).map(scatter) {
            index.insert(key, key);
        }
        let peak = index.memory_bytes();
        assert!(peak >= KEYS as usize * 16, "{peak} bytes cannot hold {KEYS} pairs");
        assert!(
            peak <= bytes_max(KEYS, bytes_grown(setting.preset)) + BESIDES_GROWN,
            "{setting:?}: {peak} bytes at the peak"
        );
        // Long scans, which let other threads free memory on their way.
        let mut sorted: Vec<u64> = (0..KEYS).map(scatter).collect();
        sorted.sort_unstable();
        assert!(index.iter().map(|(key, _)| key).eq(sorted.iter().copied()));
        assert!(index.iter().rev().map(|(key, _)| key).eq(sorted.iter().rev().copied()));
        for key in removed.iter().copied().map(scatter) {
            assert_eq!(index.remove(&key), Some(key));
        }
        // Bytes wait until no reader can hold them; a few writes and a moment release them.
        let goal = bytes_max(kept.len() as u64, bytes_shrunk(setting.preset)) + BESIDES_SHRUNK;
        settle(&index, goal, || {
            for key in kept[..100].iter().copied().map(scatter) {
                index.insert(key, key);
            }
        });
        let (now, stats) = (index.memory_bytes(), index.stats());
        assert!(
            now <= goal,
            "{setting:?}: {now} bytes after removals, {peak} before, at most {goal} wanted: {stats:?}"
        );
        for key in kept.iter().copied().map(scatter) {
            assert_eq!(index.get(&key), Some(key));
        }
        assert_eq!(index.len(), kept.len());
    }
}

#[test]
fn rewriting_the_same_keys_takes_no_more_memory() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for setting in Setting::all() {
        let index: Index<u64, u64> = setting.build();
        for key in 0..20_000 {
            index.insert(scatter(key), key);
        }
        let once = index.memory_bytes();
        // Often enough that leaves which are not freed would be far more than what is allowed
        // besides.
        for round in 0..50 {
            for key in 0..20_000 {
                assert_eq!(index.remove(&scatter(key)), Some(key + round));
                assert_eq!(index.insert(scatter(key), key + round + 1), None);
            }
        }
        let most = bytes_max(20_000, bytes_shrunk(setting.preset)) + BESIDES_SHRUNK;
        settle(&index, most, || {});
        let now = index.memory_bytes();
        assert!(now <= most, "{setting:?}: {once} bytes, then {now}: {:?}", index.stats());
        assert_eq!(index.len(), 20_000);
    }
}
