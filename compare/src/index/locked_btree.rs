//! The standard library's ordered map behind its reader-writer lock.

use std::{
    collections::BTreeMap,
    sync::{PoisonError, RwLock},
};

use anyhow::Result;
use rhumb_bench::suite::index::subject::{Kind, Map, Session, Subject, value_of};

pub(super) struct Tree(RwLock<BTreeMap<u64, u64>>);

pub(super) fn subject() -> impl Subject {
    Kind {
        name: "btreemap",
        options: "BTreeMap behind RwLock, locked once for each operation".to_owned(),
        build,
    }
}

fn build(sorted: &[u64]) -> Result<Tree> {
    Ok(Tree(RwLock::new(sorted.iter().map(|&key| (key, value_of(key))).collect())))
}

impl Map for Tree {
    type Session<'a> = Handle<'a>;

    fn session(&self) -> Handle<'_> {
        Handle(&self.0)
    }
}

pub(super) struct Handle<'a>(&'a RwLock<BTreeMap<u64, u64>>);

impl Session for Handle<'_> {
    fn get(&mut self, key: u64) -> Option<u64> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&key).copied()
    }

    fn insert(&mut self, key: u64, value: u64) -> bool {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(key, value).is_none()
    }

    fn remove(&mut self, key: u64) -> bool {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&key).is_some()
    }

    fn get_many(&mut self, keys: &[u64], out: &mut Vec<Option<u64>>) {
        let map = self.0.read().unwrap_or_else(PoisonError::into_inner);
        out.extend(keys.iter().map(|key| map.get(key).copied()));
    }

    fn scan(&mut self, from: u64, count: usize, out: &mut Vec<(u64, u64)>) {
        let map = self.0.read().unwrap_or_else(PoisonError::into_inner);
        out.extend(map.range(from..).take(count).map(|(&key, &value)| (key, value)));
    }
}
