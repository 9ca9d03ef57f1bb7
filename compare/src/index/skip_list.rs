//! crossbeam-skiplist: a lock-free skip list.

use anyhow::Result;
use crossbeam_epoch::{Guard, default_collector, pin};
use crossbeam_skiplist::SkipList;
use rhumb_bench::suite::index::subject::{Kind, Map, Session, Subject, value_of};

pub(super) struct List(SkipList<u64, u64>);

pub(super) fn subject() -> impl Subject {
    Kind {
        name: "skiplist",
        options: "crossbeam-skiplist 0.1, its SkipList; pinned once for each operation".to_owned(),
        build,
    }
}

fn build(sorted: &[u64]) -> Result<List> {
    let list = SkipList::new(default_collector().clone());
    let guard = pin();
    for &key in sorted {
        list.insert(key, value_of(key), &guard).release(&guard);
    }
    Ok(List(list))
}

impl Map for List {
    type Session<'a> = Handle<'a>;

    fn session(&self) -> Handle<'_> {
        Handle(&self.0)
    }
}

pub(super) struct Handle<'a>(&'a SkipList<u64, u64>);

impl Session for Handle<'_> {
    fn get(&mut self, key: u64) -> Option<u64> {
        let guard: &Guard = &pin();
        self.0.get(&key, guard).map(|entry| *entry.value())
    }

    fn insert(&mut self, key: u64, value: u64) -> bool {
        // The entry does not tell whether it replaced another; only new keys are inserted here,
        // and the verification counts what is missing.
        let guard = &pin();
        self.0.insert(key, value, guard).release(guard);
        true
    }

    fn remove(&mut self, key: u64) -> bool {
        let guard = &pin();
        self.0.remove(&key, guard).map(|entry| entry.release(guard)).is_some()
    }

    fn scan(&mut self, from: u64, count: usize, out: &mut Vec<(u64, u64)>) {
        let guard = &pin();
        let entries = self.0.range(from.., guard).take(count);
        out.extend(entries.map(|entry| (*entry.key(), *entry.value())));
    }
}
