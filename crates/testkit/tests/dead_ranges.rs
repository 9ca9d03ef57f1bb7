//! Models of dead ranges for loom: a walk that records one, a writer that puts a value into it,
//! and readers, which must see every value that is visible to them.
//!
//! An entry is one atomic word here, the number of the write that made it; the steps around it are
//! those of a memtable. `cargo xtask verify models` runs these with the models of the index. The
//! engine does not run under loom, so this program includes that one file of it.

#![cfg(loom)]

#[path = "../../store/src/memtable/dead.rs"]
#[allow(dead_code, reason = "a model does not use all of it")]
mod dead;
#[path = "../../store/src/keys.rs"]
#[allow(dead_code, reason = "a model does not use all of it")]
mod keys;
#[path = "../../store/src/types.rs"]
#[allow(dead_code, reason = "a model does not use all of it")]
mod types;

use rhumb_sync::{
    models::race,
    primitive::{AtomicU64, AtomicUsize, Ordering},
};

use dead::{Asked, DeadRange, DeadRanges};
use keys::KeySpan;
use types::{SeqNo, TreeId};

const TREE: TreeId = 7;

/// The key whose value is written, in the middle of what walks find dead.
const KEY: &[u8] = b"e";

/// A memtable with one key.
struct Table {
    dead: DeadRanges,
    inserted: AtomicUsize,
    /// The number of the key's value; 0 while there is none.
    entry: AtomicU64,
    /// The newest number that readers see.
    visible: AtomicU64,
}

/// Everything from `a` up to `z`, from the first key on.
fn all() -> DeadRange {
    DeadRange { from: (*b"a").into(), to: (*b"z").into(), is_first: true, is_last: false }
}

impl Table {
    fn new() -> Self {
        Self {
            dead: DeadRanges::default(),
            inserted: AtomicUsize::new(0),
            entry: AtomicU64::new(0),
            visible: AtomicU64::new(1),
        }
    }

    /// A table whose key is in a dead range that a walk has recorded.
    fn walked() -> Self {
        let table = Self::new();
        table.walk();
        table
    }

    /// Returns true if the key's value is living for a reader at `seq`.
    fn is_living(&self, seq: SeqNo) -> bool {
        (1..=seq).contains(&self.entry.load(Ordering::Acquire))
    }

    /// Walks over the key, and records the dead range around it if it is dead.
    fn walk(&self) {
        let seq = self.visible.load(Ordering::Acquire);
        if self.is_living(seq) {
            return;
        }
        let newest = |parts: &[KeySpan]| {
            let mut parts = parts.iter();
            let is_searched =
                parts.any(|(from, to)| **from <= *KEY && to.as_ref().is_none_or(|to| *KEY < **to));
            (!is_searched || self.entry.load(Ordering::Acquire) == 0).then_some(0)
        };
        self.dead.record(&self.inserted, TREE, all(), seq, newest);
    }

    /// Inserts the value with the next number and makes it visible.
    fn write(&self) {
        self.entry.store(2, Ordering::Release);
        self.dead.record_inserted(&self.inserted, 1, std::iter::once((TREE, KEY)));
        self.visible.store(2, Ordering::Release);
    }

    /// Reads at the newest number: no dead range covers a value that is visible.
    fn read(&self) {
        let seq = self.visible.load(Ordering::Acquire);
        if !self.is_living(seq) {
            return;
        }
        for asked in [Asked::First, Asked::From(b"b"), Asked::From(KEY), Asked::Before(b"y")] {
            let Some(dead) = self.dead.find(TREE, asked, seq) else { continue };
            let starts_before = dead.is_first || *dead.from <= *KEY;
            assert!(!(starts_before && *dead.to > *KEY), "a living key is passed");
        }
    }
}

#[test]
fn a_value_that_comes_while_a_dead_range_is_recorded_is_seen() {
    race(3, Table::new, [Table::walk, Table::write, Table::read], |table| {
        assert_eq!(table.visible.load(Ordering::Acquire), 2);
        table.read();
    });
}

#[test]
fn a_value_that_falls_into_a_recorded_dead_range_is_seen() {
    race(3, Table::walked, [Table::walk, Table::write, Table::read], |table| {
        table.read();
        // What is left of the dead range on either side still holds.
        let front = table.dead.find(TREE, Asked::First, 2).map(|dead| dead.to);
        assert_eq!(front.as_deref(), Some(KEY));
    });
}

/// Two walks announce the same dead range; the one that comes second records none, and the value is
/// seen.
#[test]
fn two_walks_record_a_dead_range_at_once() {
    race(3, Table::new, [Table::walk, Table::walk, Table::write], Table::read);
}
