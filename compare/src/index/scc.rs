//! scc's TreeIndex: a B+ tree whose readers take no locks.

use anyhow::{Result, anyhow};
use rhumb_bench::suite::index::subject::{Kind, Map, Session, Subject, value_of};
use scc::{Guard, TreeIndex};

pub(super) struct Tree(TreeIndex<u64, u64>);

pub(super) fn subject() -> impl Subject {
    Kind {
        name: "scc",
        options: "scc 3, its TreeIndex; guarded once for each operation".to_owned(),
        build,
    }
}

fn build(sorted: &[u64]) -> Result<Tree> {
    let tree = TreeIndex::new();
    for &key in sorted {
        tree.insert_sync(key, value_of(key)).map_err(|_| anyhow!("a key was there already"))?;
    }
    Ok(Tree(tree))
}

impl Map for Tree {
    type Session<'a> = Handle<'a>;

    fn session(&self) -> Handle<'_> {
        Handle(&self.0)
    }
}

pub(super) struct Handle<'a>(&'a TreeIndex<u64, u64>);

impl Session for Handle<'_> {
    fn get(&mut self, key: u64) -> Option<u64> {
        self.0.peek_with(&key, |_, value| *value)
    }

    fn insert(&mut self, key: u64, value: u64) -> bool {
        let inserted = self.0.insert_sync(key, value);
        if inserted.is_err() {
            self.0.upsert_sync(key, value);
        }
        inserted.is_ok()
    }

    fn remove(&mut self, key: u64) -> bool {
        self.0.remove_sync(&key)
    }

    fn scan(&mut self, from: u64, count: usize, out: &mut Vec<(u64, u64)>) {
        let guard = Guard::new();
        let entries = self.0.range(from.., &guard).take(count);
        out.extend(entries.map(|(&key, &value)| (key, value)));
    }
}
