//! Clients that walk a tree in the keeper's memory, node by node, with none of its nodes, its top
//! or all of its inner nodes at hand: what models are held against.
//!
//! The tree is of the papers' kind: sixteen slots to a node, fences, right siblings. Its keeper
//! takes writes over a socket. A client that has a node which was split since goes on to the
//! sibling, and reads the node anew the next time.

mod node;
mod server;
#[cfg(test)]
mod tests;
mod tree;

use std::{
    io::{Read as _, Write},
    os::unix::net::UnixStream,
};

use anyhow::{Context, Result, ensure};
use rhumb_remote::memory::Read;

use self::{
    node::{Key, NONE, Node, load},
    server::{Keeper, Paths, announced, op},
    tree::{CAPACITY_BYTES, Layouts},
};
use super::{
    subject::{Counters, OnPair, OnValue, Place, Server, Session, Subject},
    workload::Workload,
};

/// A walk of the tree by a client.
#[derive(Debug)]
pub struct Walk {
    name: &'static str,
    options: &'static str,
    /// Levels whose nodes are kept, from the root on.
    kept_levels: u8,
}

/// Reads every node from the root on.
pub const WALK: Walk = Walk {
    name: "walk",
    options: "reads a tree of 16 slots a node in the host's memory, from the root on",
    kept_levels: 0,
};

/// Keeps the nodes of the top four levels.
pub const WALK_CACHED: Walk = Walk {
    name: "walk-cached",
    options: "the same, and keeps the nodes of the top four levels",
    kept_levels: 4,
};

/// Keeps all inner nodes.
pub const WALK_WHOLE: Walk = Walk {
    name: "walk-whole",
    options: "the same, and keeps all inner nodes",
    kept_levels: u8::MAX,
};

/// How many of these subjects there are.
pub const COUNT: usize = 3;

fn layouts(place: &Place<'_>) -> Result<Layouts> {
    let (data, first) = (place.data, place.data.key(0).len());
    Layouts::new(first, data.values.size()).context("keys of 1 to 16 bytes can be walked to")
}

impl Subject for Walk {
    fn name(&self) -> &'static str {
        self.name
    }

    fn options(&self) -> String {
        self.options.to_owned()
    }

    fn keeper(&self) -> Option<&'static str> {
        Some("tree")
    }

    fn performs(&self, _workload: Workload) -> bool {
        true
    }

    fn start(&self, place: &Place<'_>) -> Result<Box<dyn Server>> {
        Ok(Box::new(Keeper::start(place, layouts(place)?)?))
    }

    fn connect(&self, place: &Place<'_>) -> Result<Box<dyn Session>> {
        Ok(Box::new(Walker::connect(self.kept_levels, place)?))
    }
}

/// A client.
struct Walker {
    layouts: Layouts,
    paths: Paths,
    inner: Read,
    leaves: Read,
    socket: UnixStream,
    root: u32,
    levels: u8,
    kept_levels: u8,
    /// Inner nodes by their numbers.
    kept: Vec<Option<Box<Node>>>,
    kept_count: u64,
    leaf: Node,
    message: Vec<u8>,
    counters: Counters,
}

impl Walker {
    fn connect(kept_levels: u8, place: &Place<'_>) -> Result<Self> {
        let paths = Paths::new(place.directory);
        let socket = UnixStream::connect(&paths.socket).context("no tree is there")?;
        let mut walker = Self {
            layouts: layouts(place)?,
            paths,
            inner: Read::new(CAPACITY_BYTES)?,
            leaves: Read::new(CAPACITY_BYTES)?,
            socket,
            root: 0,
            levels: 0,
            kept_levels,
            kept: Vec::new(),
            kept_count: 0,
            leaf: Node::default(),
            message: Vec::new(),
            counters: Counters::default(),
        };
        walker.attach()?;
        walker.find_root();
        Ok(walker)
    }

    fn attach(&mut self) -> Result<()> {
        self.inner.attach(&announced(&self.paths.inner)?)?;
        Ok(self.leaves.attach(&announced(&self.paths.leaves)?)?)
    }

    fn find_root(&mut self) {
        let word = load(self.inner.words(), 0);
        (self.root, self.levels) = (word as u32, (word >> 32) as u8);
    }

    /// Counts a read that waits for the one before it.
    fn count(&mut self, words: usize) {
        self.counters.reads += 1;
        self.counters.trips += 1;
        self.counters.bytes += words as u64 * 8;
    }

    /// The child of a key in an inner node, kept or read, or the node's sibling if the key is to
    /// the right of it.
    fn step(&mut self, number: u32, key: Key, keeps: bool) -> Result<Step> {
        let layout = self.layouts.inner;
        let step = |node: &Node| match node.is_right(layout, key) {
            true => Step::Right(node.sibling()),
            false => Step::Down(node.child(layout, key)),
        };
        if let Some(Some(node)) = self.kept.get(number as usize) {
            return Ok(step(node));
        }
        let mut node = Node::default();
        if !node.read(self.inner.words(), layout, number) {
            self.attach()?;
            ensure!(node.read(self.inner.words(), layout, number), "no inner node {number}");
        }
        self.count(layout.words());
        let step = step(&node);
        if keeps {
            let len = self.kept.len().max(number as usize + 1);
            self.kept.resize(len, None);
            self.kept[number as usize] = Some(Box::new(node));
            self.kept_count += 1;
        }
        Ok(step)
    }

    fn forget(&mut self, number: u32) {
        if let Some(node) = self.kept.get_mut(number as usize) {
            self.kept_count -= u64::from(node.take().is_some());
        }
    }

    fn read_leaf(&mut self, number: u32) -> Result<()> {
        let layout = self.layouts.leaf;
        if !self.leaf.read(self.leaves.words(), layout, number) {
            self.attach()?;
            ensure!(self.leaf.read(self.leaves.words(), layout, number), "no leaf {number}");
        }
        self.count(layout.words());
        Ok(())
    }

    /// Has the leaf of a key in `leaf`.
    fn walk(&mut self, key: Key) -> Result<()> {
        let (mut number, mut parent) = (self.root, self.root);
        let mut level = self.levels;
        while level > 0 {
            let keeps = self.levels - level < self.kept_levels;
            match self.step(number, key, keeps)? {
                Step::Down(child) => {
                    parent = number;
                    number = child;
                    level -= 1;
                }
                Step::Right(sibling) => {
                    // The node above it was split, and so may this one have been.
                    self.forget(parent);
                    self.forget(number);
                    if number == self.root {
                        self.find_root();
                    }
                    number = sibling;
                }
            }
        }
        self.read_leaf(number)?;
        while self.leaf.is_right(self.layouts.leaf, key) {
            self.forget(parent);
            self.read_leaf(self.leaf.sibling())?;
        }
        Ok(())
    }

    fn call(&mut self, op: u8, key: &[u8], value: &[u8]) -> Result<()> {
        let (key_bytes, value_bytes) = self.layouts.pair_bytes();
        self.message.clear();
        self.message.push(op);
        self.message.extend_from_slice(key);
        self.message.extend_from_slice(value);
        self.message.resize(1 + key_bytes + value_bytes, 0);
        let mut answer = [0];
        self.socket.write_all(&self.message)?;
        self.socket.read_exact(&mut answer)?;
        self.counters.trips += 1;
        self.counters.bytes += self.message.len() as u64 + 1;
        ensure!(answer == [1], "the keeper of the tree could not write");
        Ok(())
    }

    fn key(&self, key: &[u8]) -> Result<Key> {
        self.layouts.key(key).context("a key of another length")
    }
}

enum Step {
    Down(u32),
    Right(u32),
}

impl Session for Walker {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let key = self.key(key)?;
        self.walk(key)?;
        let layout = self.layouts.leaf;
        let Some(index) = self.leaf.find(layout, key) else { return Ok(false) };
        self.layouts.append_value(self.leaf.slot(layout, index), value);
        Ok(true)
    }

    fn multi_get(&mut self, keys: &[&[u8]], on_value: OnValue<'_>) -> Result<()> {
        let mut value = Vec::new();
        for (index, key) in keys.iter().enumerate() {
            value.clear();
            let is_there = self.get(key, &mut value)?;
            on_value(index, is_there.then_some(&value));
        }
        Ok(())
    }

    fn scan(&mut self, from: &[u8], limit: usize, on_pair: OnPair<'_>) -> Result<()> {
        // A key that is longer than all begins after the one that it begins with.
        let key_bytes = self.layouts.pair_bytes().0;
        let mut first = from.to_vec();
        first.resize(key_bytes, 0);
        let (from, is_after) = (self.key(&first)?, from.len() > key_bytes);
        self.walk(from)?;
        let (layout, mut count) = (self.layouts.leaf, 0);
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let mut index = self.leaf.below(layout, from, is_after);
        while count < limit {
            if index == self.leaf.count() {
                let sibling = self.leaf.sibling();
                if sibling == NONE {
                    break;
                }
                self.read_leaf(sibling)?;
                index = 0;
                continue;
            }
            key.clear();
            value.clear();
            self.layouts.append_key(self.leaf.key(layout, index), &mut key);
            self.layouts.append_value(self.leaf.slot(layout, index), &mut value);
            on_pair(&key, &value);
            (index, count) = (index + 1, count + 1);
        }
        Ok(())
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.call(op::SET, key, value)
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        self.call(op::REMOVE, key, &[])
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn cache_bytes(&self) -> u64 {
        self.kept_count * self.layouts.inner.words() as u64 * 8
    }
}
