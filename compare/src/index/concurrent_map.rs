//! concurrent-map: a lock-free B+ tree; each thread works on its own clone of the handle.

use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use concurrent_map::ConcurrentMap;
use rhumb_bench::suite::index::subject::{Kind, Map, Session, Subject, value_of};

/// The handle can be sent to another thread but not shared.
pub(super) struct Tree(Mutex<ConcurrentMap<u64, u64>>);

pub(super) fn subject() -> impl Subject {
    Kind {
        name: "concurrent-map",
        options: "concurrent-map 5 with its usual fan-out".to_owned(),
        build,
    }
}

fn build(sorted: &[u64]) -> Result<Tree> {
    let map = ConcurrentMap::new();
    for &key in sorted {
        map.insert(key, value_of(key));
    }
    Ok(Tree(Mutex::new(map)))
}

impl Map for Tree {
    type Session<'a> = Handle;

    fn session(&self) -> Handle {
        Handle(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

pub(super) struct Handle(ConcurrentMap<u64, u64>);

impl Session for Handle {
    fn get(&mut self, key: u64) -> Option<u64> {
        self.0.get(&key)
    }

    fn insert(&mut self, key: u64, value: u64) -> bool {
        self.0.insert(key, value).is_none()
    }

    fn remove(&mut self, key: u64) -> bool {
        self.0.remove(&key).is_some()
    }

    fn scan(&mut self, from: u64, count: usize, out: &mut Vec<(u64, u64)>) {
        out.extend(self.0.range(from..).take(count));
    }
}
