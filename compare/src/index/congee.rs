//! congee: an adaptive radix tree with optimistic lock coupling.

use anyhow::{Result, anyhow};
use congee::{Congee, DefaultAllocator};
use rhumb_bench::suite::index::subject::{Kind, Map, Session, Subject, value_of};

pub(super) struct Tree(Congee<usize, usize, DefaultAllocator>);

pub(super) fn subject() -> impl Subject {
    Kind {
        name: "congee",
        options: "congee 0.4, the program's allocator; pinned once for each operation".to_owned(),
        build,
    }
}

fn build(sorted: &[u64]) -> Result<Tree> {
    let tree = Congee::new(DefaultAllocator {});
    let guard = tree.pin();
    for &key in sorted {
        let inserted = tree.insert(key as usize, value_of(key) as usize, &guard);
        inserted.map_err(|_| anyhow!("out of memory"))?;
    }
    Ok(Tree(tree))
}

impl Map for Tree {
    type Session<'a> = Handle<'a>;

    fn session(&self) -> Handle<'_> {
        Handle { tree: &self.0, buffer: Vec::new() }
    }
}

pub(super) struct Handle<'a> {
    tree: &'a Congee<usize, usize, DefaultAllocator>,
    buffer: Vec<(usize, usize)>,
}

impl Session for Handle<'_> {
    fn get(&mut self, key: u64) -> Option<u64> {
        let guard = self.tree.pin();
        self.tree.get(&(key as usize), &guard).map(|value| value as u64)
    }

    fn insert(&mut self, key: u64, value: u64) -> bool {
        let guard = self.tree.pin();
        matches!(self.tree.insert(key as usize, value as usize, &guard), Ok(None))
    }

    fn remove(&mut self, key: u64) -> bool {
        let guard = self.tree.pin();
        self.tree.remove(&(key as usize), &guard).is_some()
    }

    fn scan(&mut self, from: u64, count: usize, out: &mut Vec<(u64, u64)>) {
        let guard = self.tree.pin();
        self.buffer.resize(count, (0, 0));
        // The end is excluded, so the largest key needs a lookup of its own.
        let found = self.tree.range(&(from as usize), &usize::MAX, &mut self.buffer, &guard);
        out.extend(self.buffer[..found].iter().map(|&(key, value)| (key as u64, value as u64)));
        if found < count {
            out.extend(self.tree.get(&usize::MAX, &guard).map(|value| (u64::MAX, value as u64)));
        }
    }
}
