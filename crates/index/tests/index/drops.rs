//! Every value is dropped exactly once, whatever happens to it, and none is used after that.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst},
    },
    thread,
};

use rhumb_index::Index;

use crate::common::{Random, Setting, TestKey, for_each_kind};

/// Counts values that are alive.
#[derive(Debug, Default)]
struct Ledger {
    alive: AtomicI64,
    faults: AtomicU64,
}

/// A value that knows whether it was dropped before.
#[derive(Debug)]
struct Counted {
    ledger: Arc<Ledger>,
    number: u64,
    /// `ALIVE` until it is dropped; a freed one holds whatever came after it.
    mark: AtomicU64,
}

const ALIVE: u64 = 0x600D_600D_600D_600D;
const DROPPED: u64 = 0xDEAD_DEAD_DEAD_DEAD;

impl Counted {
    fn new(ledger: &Arc<Ledger>, number: u64) -> Self {
        ledger.alive.fetch_add(1, SeqCst);
        Self { ledger: Arc::clone(ledger), number, mark: AtomicU64::new(ALIVE) }
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        if self.mark.load(SeqCst) != ALIVE {
            self.ledger.faults.fetch_add(1, SeqCst);
        }
        Self::new(&self.ledger, self.number)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.mark.swap(DROPPED, SeqCst) != ALIVE {
            self.ledger.faults.fetch_add(1, SeqCst);
        }
        self.ledger.alive.fetch_sub(1, SeqCst);
    }
}

impl Ledger {
    /// Nothing is alive, nothing was dropped twice or read after it was dropped.
    fn is_settled(&self) {
        assert_eq!(self.faults.load(SeqCst), 0, "a value was used after it was dropped");
        assert_eq!(self.alive.load(SeqCst), 0, "values that are still alive");
    }
}

/// The generic tests run for each kind of value; here the value is always the counted one.
trait AnyValue {}
impl<V> AnyValue for V {}

fn each_value_is_dropped_once<K: TestKey, V: AnyValue>() {
    for setting in Setting::all() {
        for leaves_entries in [false, true] {
            let ledger = Arc::new(Ledger::default());
            let index: Index<K, Counted> = setting.build();
            let mut random = Random::new(41);
            let mut keys = Vec::new();
            for number in 0..2_500 {
                let key = K::draw(&mut random, crate::common::Shape::ALL[number as usize % 4]);
                match random.below(10) {
                    0..=5 => drop(index.insert(key.clone(), Counted::new(&ledger, number))),
                    6 => drop(index.update(key.query(), Counted::new(&ledger, number))),
                    7 => {
                        let made = || Counted::new(&ledger, number);
                        drop(index.get_or_insert_with(key.clone(), made));
                    }
                    8 => drop(index.remove(key.query())),
                    _ => drop(
                        index
                            .range::<(_, _)>((
                                std::ops::Bound::Included(key.query()),
                                std::ops::Bound::Unbounded,
                            ))
                            .take(3)
                            .count(),
                    ),
                }
                keys.push(key);
            }
            assert!(ledger.alive.load(SeqCst) >= index.len() as i64);
            if !leaves_entries {
                for key in &keys {
                    drop(index.remove(key.query()));
                }
                assert!(index.is_empty());
            }
            drop(index);
            ledger.is_settled();
        }
    }
}

for_each_kind!(each_value_is_dropped_once: counted ());

#[test]
fn values_are_dropped_once_under_concurrent_readers_and_writers() {
    for setting in Setting::all() {
        let ledger = Arc::new(Ledger::default());
        let index: Index<u64, Counted> = setting.build();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut key = 0_u64;
                    while !stop.load(SeqCst) {
                        key = (key + 7) % 600;
                        if let Some(value) = index.get(&key) {
                            assert_eq!(value.number % 600, key);
                        }
                        if key < 7 {
                            let ascending = index.iter().map(|(key, _)| key).is_sorted();
                            assert!(ascending);
                        }
                    }
                });
            }
            let writers: Vec<_> = (0..2)
                .map(|writer| {
                    let (index, ledger) = (&index, &ledger);
                    scope.spawn(move || {
                        let mut random = Random::new(writer);
                        for round in 0..6_000 {
                            let key = random.below(600);
                            match random.below(4) {
                                0 => drop(index.remove(&key)),
                                1 => drop(index.get_or_insert_with(key, || {
                                    Counted::new(ledger, key + 600 * round)
                                })),
                                _ => {
                                    let value = Counted::new(ledger, key + 600 * round);
                                    drop(index.insert(key, value));
                                }
                            }
                        }
                    })
                })
                .collect();
            for writer in writers {
                writer.join().expect("no panics");
            }
            stop.store(true, SeqCst);
        });
        drop(index);
        ledger.is_settled();
    }
}

#[test]
fn a_panic_in_the_maker_of_a_value_leaves_the_index_whole() {
    for setting in Setting::all() {
        let ledger = Arc::new(Ledger::default());
        let index: Index<u64, Counted> = setting.build();
        for key in 0..100 {
            index.insert(key * 2, Counted::new(&ledger, key));
        }
        for key in 0..100 {
            let make = || index.get_or_insert_with(key * 2 + 1, || panic!("planted"));
            assert!(catch_unwind(AssertUnwindSafe(make)).is_err());
            assert!(index.get(&(key * 2 + 1)).is_none());
            assert!(index.insert(key * 2 + 1, Counted::new(&ledger, key)).is_none());
        }
        assert_eq!(index.len(), 200);
        drop(index);
        ledger.is_settled();
    }
}

#[test]
fn an_iterator_may_be_dropped_half_way_and_outlive_removals() {
    for setting in Setting::all() {
        let ledger = Arc::new(Ledger::default());
        let index: Index<Vec<u8>, Counted> = setting.build();
        for number in 0..1_000_u64 {
            index.insert(number.to_be_bytes().to_vec(), Counted::new(&ledger, number));
        }
        let mut entries = index.iter();
        let mut seen = 0;
        while let Some((key, value)) = entries.next() {
            assert_eq!(key, value.number.to_be_bytes());
            drop(index.remove(&key[..]));
            drop(entries.next_back());
            seen += 1;
            if seen == 200 {
                break;
            }
        }
        drop(entries);
        drop(index);
        ledger.is_settled();
    }
}

#[test]
fn a_bulk_load_hands_each_value_over_once() {
    for setting in Setting::all() {
        for already in [0, 1, 500] {
            for fault in [None, Some(4_000)] {
                let ledger = Arc::new(Ledger::default());
                let index: Index<u64, Counted> = setting.build();
                for key in 0..already {
                    index.insert(key * 9, Counted::new(&ledger, key));
                }
                let key = |i: u64| if Some(i) == fault { 1 } else { i * 2 };
                let run = (0..9_000).map(|i| (key(i), Counted::new(&ledger, i)));
                let loaded = index.bulk_load(run).map_err(|error| error.position as u64);
                assert_eq!(loaded.map(|count| count as u64), fault.map_or(Ok(9_000), Err));
                assert!(ledger.alive.load(SeqCst) >= index.len() as i64);
                assert!(index.get(&6).is_some_and(|value| value.number == 3));
                drop(index);
                ledger.is_settled();
            }
        }
    }
}

#[test]
fn a_bulk_load_that_panics_half_way_loses_nothing() {
    for setting in Setting::all() {
        let ledger = Arc::new(Ledger::default());
        let index: Index<Vec<u8>, Counted> = setting.build();
        let run = (0..9_000_u64).map(|i| {
            assert!(i < 8_500, "planted");
            (i.to_be_bytes().to_vec(), Counted::new(&ledger, i))
        });
        assert!(catch_unwind(AssertUnwindSafe(|| index.bulk_load(run))).is_err());
        for i in 0..100_u64 {
            drop(index.insert(i.to_be_bytes().to_vec(), Counted::new(&ledger, i)));
        }
        assert!(index.iter().map(|(key, _)| key).is_sorted());
        drop(index);
        ledger.is_settled();
    }
}
