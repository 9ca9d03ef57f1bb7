//! Suspicions that a review of the index raised: places where a key could be lost, a thread could
//! wait for ever, or a caller's own code could get in the way. Each test shows that the index is
//! right there, for every setting.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

use rhumb_index::Index;

use crate::common::{Random, Setting, scatter};

const TOP: u64 = u64::MAX;

/// Bounds of leaves do not tell the two largest words apart.
#[test]
fn the_largest_words_stay_apart_however_leaves_are_cut() {
    for setting in Setting::all() {
        for below in [0, 1, 5, 11, 12, 13, 40, 700, 1800, 3601] {
            let index: Index<u64, u64> = setting.build();
            // Keys of two kinds: those in one line, and others far below.
            let mut keys: Vec<u64> = (0..below).map(|i| scatter(i) >> 1).collect();
            keys.extend((0..below).map(|i| TOP - 2 - i));
            keys.extend([TOP - 1, TOP]);
            keys.sort_unstable();
            keys.dedup();
            let pairs = || keys.iter().map(|key| (*key, !key));
            assert_eq!(index.bulk_load(pairs()), Ok(keys.len()));
            for round in 0..3 {
                assert!(index.iter().eq(pairs()), "{setting:?}, {below} in round {round}");
                assert!(index.iter().rev().eq(pairs().rev()), "{setting:?}, {below}");
                for key in [TOP - 2, TOP - 1, TOP] {
                    let expected = keys.binary_search(&key).is_ok().then_some(!key);
                    assert_eq!(index.get(&key), expected, "{setting:?}, {below}: {key}");
                    assert_eq!(index.remove(&key), expected, "{setting:?}, {below}: {key}");
                    assert_eq!(index.range(key..).next().map(|(k, _)| k > key), {
                        let next = keys.iter().find(|other| **other > key);
                        next.map(|_| true)
                    });
                    if expected.is_some() {
                        assert_eq!(index.insert(key, !key), None, "{setting:?}, {below}: {key}");
                    }
                }
                // Other keys come and go around them, so that their leaves are replaced.
                for i in 0..below * 2 {
                    let key = TOP - 3 - below - i;
                    assert_eq!(index.insert(key, 0), None);
                    assert_eq!(index.remove(&key), Some(0));
                }
                index.tune();
            }
        }
    }
}

/// Writers of the slots that share a header keep coming while the leaf is to be frozen.
#[test]
fn a_leaf_is_replaced_however_busy_its_slots_are() {
    for setting in Setting::all() {
        let index: Index<u64, u64> = setting.build();
        index.bulk_load((0..8).map(|i| (i << 40, 0))).unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for id in 0..3_u64 {
                let (index, is_over) = (&index, &is_over);
                scope.spawn(move || {
                    for count in 1.. {
                        index.insert((id % 8) << 40, count);
                        if is_over.load(SeqCst) {
                            break;
                        }
                    }
                });
            }
            // Fills the leaves in which the other threads write.
            for i in 1..6_000_u64 {
                assert_eq!(index.insert((i % 8) << 40 | i, 1), None);
            }
            is_over.store(true, SeqCst);
        });
        assert_eq!(index.len(), 8 + 5_999, "{setting:?}");
    }
}

/// A value that uses the index when it is cloned and when it is dropped.
struct Meddler {
    index: Weak<Index<u64, Meddler>>,
    key: u64,
    uses: Arc<AtomicUsize>,
}

impl Meddler {
    fn meddle(&self) {
        let Some(index) = self.index.upgrade() else { return };
        self.uses.fetch_add(1, SeqCst);
        index.contains_key(&self.key);
        assert!(index.range(self.key..).next().is_none_or(|(key, _)| key >= self.key));
    }
}

thread_local! {
    /// The depth to which clones and drops of this thread are nested.
    static DEPTH: RefCell<usize> = const { RefCell::new(0) };
}

fn nested(meddle: impl FnOnce()) {
    let depth = DEPTH.with_borrow_mut(|depth| std::mem::replace(depth, *depth + 1));
    if depth < 2 {
        meddle();
    }
    DEPTH.with_borrow_mut(|depth| *depth -= 1);
}

impl Clone for Meddler {
    fn clone(&self) -> Self {
        nested(|| self.meddle());
        Self { index: self.index.clone(), key: self.key, uses: Arc::clone(&self.uses) }
    }
}

impl Drop for Meddler {
    fn drop(&mut self) {
        nested(|| self.meddle());
    }
}

#[test]
fn values_may_use_the_index_that_they_are_in() {
    for setting in Setting::all() {
        let uses = Arc::new(AtomicUsize::new(0));
        let index: Arc<Index<u64, Meddler>> = Arc::new(setting.build());
        let value = |key| Meddler { index: Arc::downgrade(&index), key, uses: Arc::clone(&uses) };
        thread::scope(|scope| {
            for id in 0..2_u64 {
                let (index, value) = (&index, &value);
                scope.spawn(move || {
                    let mut random = Random::new(id);
                    for _ in 0..1_500 {
                        let key = random.below(600);
                        match random.below(4) {
                            0 => drop(index.remove(&key)),
                            1 => drop(index.get(&key)),
                            _ => drop(index.insert(key, value(key))),
                        }
                    }
                });
            }
        });
        assert!(uses.load(SeqCst) > 1_000, "{setting:?}");
    }
}

/// A value that keeps its index alive, and counts how it ended.
struct Keeper {
    _index: Arc<Index<u64, Keeper>>,
    end: End,
}

#[derive(Clone)]
struct End(Arc<AtomicUsize>);

impl Drop for End {
    fn drop(&mut self) {
        // After the index, whose end may have panicked.
        self.0.fetch_add(if thread::panicking() { 1_000 } else { 1 }, SeqCst);
    }
}

impl Clone for Keeper {
    fn clone(&self) -> Self {
        Self { _index: Arc::clone(&self._index), end: self.end.clone() }
    }
}

/// The last handle of an index may lie in a value that a trainer frees.
#[test]
fn an_index_may_end_on_its_own_trainer() {
    let ends = Arc::new(AtomicUsize::new(0));
    let index: Arc<Index<u64, Keeper>> = Arc::new(Index::builder().trainers(1).build());
    index.insert(1, Keeper { _index: Arc::clone(&index), end: End(Arc::clone(&ends)) });
    drop(index.remove(&1));
    let weak = Arc::downgrade(&index);
    drop(index);
    let begun = std::time::Instant::now();
    while ends.load(SeqCst) < 2 {
        assert!(begun.elapsed().as_secs() < 60, "no trainer has freed the value");
        thread::yield_now();
    }
    assert!(weak.upgrade().is_none());
    assert_eq!(ends.load(SeqCst), 2, "the index has panicked at its end");
}

thread_local! {
    static LAST: RefCell<Option<Parting>> = const { RefCell::new(None) };
}

/// Uses the index while its thread ends.
struct Parting(Arc<Index<u64, u64>>, u64);

impl Drop for Parting {
    fn drop(&mut self) {
        assert_eq!(self.0.insert(self.1, 1), None);
        assert_eq!(self.0.get(&self.1), Some(1));
        assert!(self.0.iter().any(|(key, _)| key == self.1));
    }
}

#[test]
fn threads_that_end_may_use_the_index() {
    let index: Arc<Index<u64, u64>> = Arc::new(Index::new());
    for (round, is_used_first) in [false, true].into_iter().cycle().take(20).enumerate() {
        let of_thread = Arc::clone(&index);
        let thread = thread::spawn(move || {
            if is_used_first {
                of_thread.contains_key(&0);
            }
            LAST.set(Some(Parting(of_thread, round as u64)));
        });
        thread.join().expect("no assertion fails");
    }
    assert_eq!(index.len(), 20);
}

/// Keys that come back get new records while other threads look for neighbours of the same word.
#[test]
fn keys_of_one_word_come_back_while_their_neighbours_are_written() {
    const KEYS: u64 = 60;
    let key = |i: u64| format!("the same words/{}{i:03}", "x".repeat(i as usize % 4)).into_bytes();
    for setting in Setting::all() {
        let index: Index<Vec<u8>, u64> = setting.build();
        (0..KEYS).for_each(|i| _ = index.insert(key(i), 0));
        thread::scope(|scope| {
            for id in 0..3 {
                let (index, key) = (&index, &key);
                scope.spawn(move || {
                    let mut random = Random::new(id);
                    for round in 0..3_000 {
                        // Each key has one writer.
                        let i = random.below(KEYS / 3) * 3 + id;
                        if round % 2 == 0 {
                            index.remove(&key(i)[..]);
                            assert_eq!(index.insert(key(i), round), None);
                        }
                        assert!(index.get(&key(i)[..]).is_some(), "{setting:?}: {i}");
                        assert!(index.update(&key(i)[..], round));
                    }
                });
            }
        });
        let expected: BTreeMap<Vec<u8>, ()> = (0..KEYS).map(|i| (key(i), ())).collect();
        assert!(index.iter().map(|(key, _)| key).eq(expected.into_keys()), "{setting:?}");
    }
}

/// One caller tunes without end.
#[test]
fn writers_and_scans_agree_with_a_map_that_is_being_tuned() {
    for setting in Setting::all() {
        let index: Index<u64, u64> = setting.build();
        let is_over = AtomicBool::new(false);
        let mut map = BTreeMap::new();
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(SeqCst) {
                    index.tune();
                }
            });
            let mut random = Random::new(5);
            for step in 0..30_000_u64 {
                let key = scatter(random.below(4_000));
                // Long quiet times let leaves get cold.
                match step / 3_000 % 3 {
                    0 => assert_eq!(index.insert(key, step), map.insert(key, step)),
                    1 => assert_eq!(index.remove(&key), map.remove(&key)),
                    _ => assert_eq!(index.get(&key), map.get(&key).copied()),
                }
                if step % 3_000 == 2_999 {
                    assert!(index.iter().eq(map.clone()), "{setting:?}, {step}");
                }
            }
            is_over.store(true, SeqCst);
        });
        assert!(index.iter().rev().eq(map.into_iter().rev()), "{setting:?}");
    }
}
