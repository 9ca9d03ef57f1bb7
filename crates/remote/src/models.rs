//! Models of readers beside a writer for loom, which runs each under the orders of its threads'
//! steps, up to a number of preemptions, and the values that a load may return under the memory
//! model.
//!
//! Units and leaves are small here, and a reader gives up after two looks. Each model is run once
//! for each order in which its threads start: loom forgets which thread had read a word before
//! another locked it, and would not try the other order.

use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicU64 as Counter, Ordering},
    },
};

use loom::{model::Builder, thread};

use crate::{
    client::{Outcome, Reader, States},
    host::{Space, Table, heap::HeapSpace, scrub},
    layout::Geometry,
    leaf::Entry,
};

/// A table whose writer is one thread, and what readers map of it.
struct Shared {
    leaves: Arc<HeapSpace>,
    control: Arc<HeapSpace>,
    table: loom::sync::Mutex<Table<Arc<HeapSpace>>>,
}

impl Shared {
    /// A table of these keys, each with the value `old`.
    fn new(keys: &[&str], leaves: usize) -> Self {
        let geometry = Geometry::new(512, 8).unwrap();
        let leaves = Arc::new(HeapSpace::new(512, leaves * 512));
        let control = Arc::new(HeapSpace::new(512, 8 * 512));
        let entries: Vec<_> = keys
            .iter()
            .map(|key| Entry::new(geometry, key.as_bytes(), b"old: 1234 5678"))
            .collect();
        let table =
            Table::build(geometry, Arc::clone(&leaves), Arc::clone(&control), entries).unwrap();
        Self { leaves, control, table: loom::sync::Mutex::new(table) }
    }

    /// Makes changes as one group.
    fn group(&self, seq: u64, change: impl FnOnce(&mut Table<Arc<HeapSpace>>)) {
        let mut table = self.table.lock().unwrap();
        change(&mut table);
        table.publish(seq);
    }

    fn geometry(&self) -> Geometry {
        self.table.lock().unwrap().geometry()
    }

    fn reader(&self) -> Reader<'_> {
        Reader::new(self.control.all(), self.leaves.all()).unwrap()
    }

    /// What a get sees: `None` if it must ask.
    fn get(&self, key: &str) -> Option<Option<String>> {
        let mut out = Vec::new();
        match self.reader().get(key.as_bytes(), &mut out) {
            Outcome::Found => Some(Some(String::from_utf8(out).unwrap())),
            Outcome::Absent => Some(None),
            Outcome::Ask(_) => panic!("no value is large"),
            Outcome::Busy => None,
        }
    }
}

const OLD: &str = "old: 1234 5678";
const NEW: &str = "new, and longer than it was before";

/// Runs a writer beside a reader, in both orders of their starts.
fn race(make: fn() -> Shared, write: fn(&Shared), read: fn(&Shared)) {
    let runs = Arc::new(Counter::new(0));
    for is_writer_first in [true, false] {
        let mut builder = Builder::new();
        builder.preemption_bound.get_or_insert(2);
        builder.max_branches = 100_000;
        let runs = Arc::clone(&runs);
        builder.check(move || {
            runs.fetch_add(1, Ordering::Relaxed);
            let shared = Arc::new(make());
            let acts = if is_writer_first { [write, read] } else { [read, write] };
            let threads = acts.map(|act| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || act(&shared))
            });
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }
    let runs = runs.load(Ordering::Relaxed);
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    let _ = writeln!(std::io::stdout(), "{runs:7} runs: {name}");
    assert!(runs > 2, "a model of one order shows nothing");
}

#[test]
fn a_value_is_the_old_one_or_the_new_one() {
    race(
        || Shared::new(&["a", "b"], 1),
        |shared| shared.group(1, |table| table.set(b"a", NEW.as_bytes(), 1).unwrap()),
        |shared| {
            let seen = shared.get("a");
            assert!(seen.is_none() || [OLD, NEW].map(|v| Some(Some(v.into()))).contains(&seen));
        },
    );
}

#[test]
fn a_removed_value_is_whole_or_gone() {
    race(
        || Shared::new(&["a", "b"], 1),
        |shared| shared.group(1, |table| assert!(table.remove(b"a", 1))),
        |shared| {
            let seen = shared.get("a");
            assert!([None, Some(None), Some(Some(OLD.to_owned()))].contains(&seen), "{seen:?}");
            let other = shared.get("b");
            assert!([None, Some(Some(OLD.to_owned()))].contains(&other), "{other:?}");
        },
    );
}

#[test]
fn a_group_is_seen_whole() {
    race(
        // Leaves of half of these each, so that the group is in two leaves.
        || Shared::new(&["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"], 4),
        |shared| {
            shared.group(1, |table| {
                table.set(b"a", NEW.as_bytes(), 1).unwrap();
                table.set(b"j", NEW.as_bytes(), 1).unwrap();
            });
        },
        |shared| {
            let first = shared.get("j");
            let second = shared.get("a");
            // What was seen of the group is not unseen.
            if first == Some(Some(NEW.into())) {
                assert_ne!(second, Some(Some(OLD.into())));
            }
        },
    );
}

#[test]
fn a_group_is_read_whole_at_one_moment() {
    race(
        || Shared::new(&["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"], 4),
        |shared| {
            shared.group(1, |table| {
                table.set(b"a", NEW.as_bytes(), 1).unwrap();
                table.set(b"j", NEW.as_bytes(), 1).unwrap();
            });
        },
        |shared| {
            let (reader, states) = (shared.reader(), States::default());
            let noting = reader.noting(&states);
            let seen = ["a", "j"].map(|key| {
                let mut out = Vec::new();
                (noting.get(key.as_bytes(), &mut out), out)
            });
            if seen.iter().all(|(outcome, _)| *outcome == Outcome::Found)
                && reader.are_unchanged(&states)
            {
                assert_eq!(seen[0], seen[1]);
            }
        },
    );
}

/// Keys that fill the leaf of `c`, one by one.
const FILLING: [&str; 8] = ["c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8"];

/// A table in which the leaf of `c` is full: the next key splits it.
fn full() -> Shared {
    let shared = Shared::new(&["a", "b", "c", "d", "e", "f"], 6);
    fill(&shared, 0..FULL_AT);
    shared
}

/// The number of filling keys that fit.
const FULL_AT: usize = 2;

fn fill(shared: &Shared, which: std::ops::Range<usize>) {
    for key in &FILLING[which] {
        shared.group(1, |table| table.set(key.as_bytes(), b"1", 1).unwrap());
    }
}

/// Fills further, and checks that leaves were added.
fn split(shared: &Shared, which: std::ops::Range<usize>) {
    let leaves = || shared.table.lock().unwrap().leaf_count();
    let before = leaves();
    fill(shared, which);
    assert_ne!(leaves(), before, "another number of keys fits");
}

#[test]
fn a_split_loses_no_key() {
    race(
        full,
        |shared| split(shared, FULL_AT..FULL_AT + 1),
        |shared| {
            let seen = shared.get("c");
            assert!([None, Some(Some(OLD.to_owned()))].contains(&seen), "{seen:?}");
        },
    );
}

/// The number of filling keys after which the next one has the leaves built anew.
const CROWDED_AT: usize = 6;

#[test]
fn a_run_that_is_built_anew_loses_no_key() {
    race(
        || {
            let shared = full();
            fill(&shared, FULL_AT..CROWDED_AT);
            shared
        },
        |shared| {
            let runs = || shared.table.lock().unwrap().run_count();
            let before = runs();
            fill(shared, CROWDED_AT..CROWDED_AT + 1);
            assert_ne!(runs(), before, "another number of keys fits");
        },
        |shared| {
            // In a leaf that only its end changes.
            let seen = shared.get("a");
            assert!([None, Some(Some(OLD.to_owned()))].contains(&seen), "{seen:?}");
        },
    );
}

/// Runs are built anew beside a writer of one of their keys and beside a reader: the reader finds
/// the old value or the new one, and afterwards the new one is there.
#[test]
fn a_run_that_is_built_anew_beside_its_writer_loses_no_change() {
    race(
        || {
            let shared = full();
            shared.table.lock().unwrap().set_cared_for();
            fill(&shared, FULL_AT..CROWDED_AT + 1);
            shared
        },
        |shared| {
            let with = |act: &mut dyn FnMut(&mut Table<Arc<HeapSpace>>)| {
                act(&mut shared.table.lock().unwrap());
            };
            let mut renewal = None;
            with(&mut |table| renewal = table.begin_renewal());
            let mut renewal = renewal.expect("another number of keys fits");
            if !renewal.read(shared.leaves.words()) {
                return with(&mut |table| table.give_up_renewal(&renewal));
            }
            with(&mut |table| table.reserve_for(&mut renewal).unwrap());
            renewal.store(shared.leaves.words());
            let mut ended = Vec::new();
            with(&mut |table| ended = table.finish_renewal(&renewal, 1));
            assert!(!ended.is_empty());
            scrub(shared.leaves.words(), shared.geometry(), &ended);
            with(&mut |table| table.give_back(&ended));
        },
        |shared| {
            shared.group(2, |table| table.set(b"c", NEW.as_bytes(), 2).unwrap());
            let seen = shared.get("c");
            assert!([None, Some(Some(NEW.to_owned()))].contains(&seen), "{seen:?}");
            let seen = shared.get("a");
            assert!([None, Some(Some(OLD.to_owned()))].contains(&seen), "{seen:?}");
        },
    );
}
