//! The tree of one writer: where its nodes are, and how they split.

use anyhow::Result;
use rhumb_remote::memory::Written;

use super::node::{Key, Layout, NONE, Node, SLOTS};

/// The most memory that either kind of nodes may take, in bytes.
pub(super) const CAPACITY_BYTES: u64 = 64 << 30;

/// The number of the inner node whose first words say where the root is, and which is none.
const HEADER: u32 = 0;

/// How both kinds of nodes are laid out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layouts {
    pub(super) inner: Layout,
    pub(super) leaf: Layout,
    key_bytes: usize,
    value_bytes: usize,
}

impl Layouts {
    /// For keys and values of these lengths; `None` for keys that are too long.
    pub(super) fn new(key_bytes: usize, value_bytes: usize) -> Option<Self> {
        let key_words = key_bytes.div_ceil(8);
        (1..=2).contains(&key_words).then(|| Self {
            inner: Layout::new(key_words, 1),
            leaf: Layout::new(key_words, value_bytes.div_ceil(8)),
            key_bytes,
            value_bytes,
        })
    }

    /// Bytes of a key and a value.
    pub(super) fn pair_bytes(&self) -> (usize, usize) {
        (self.key_bytes, self.value_bytes)
    }

    /// The number of a key, or `None` if it has another length.
    pub(super) fn key(&self, key: &[u8]) -> Option<Key> {
        let number = || key.iter().fold(0, |number, byte| number << 8 | Key::from(*byte));
        (key.len() == self.key_bytes).then(number)
    }

    /// Appends the bytes of a key.
    pub(super) fn append_key(&self, key: Key, out: &mut Vec<u8>) {
        out.extend_from_slice(&key.to_be_bytes()[16 - self.key_bytes..]);
    }

    /// The words of a value.
    pub(super) fn slot(&self, value: &[u8]) -> Vec<u64> {
        let word = |bytes: &[u8]| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(word)
        };
        value.chunks(8).map(word).collect()
    }

    /// Appends the value in the words of a slot.
    pub(super) fn append_value(&self, slot: &[u64], out: &mut Vec<u8>) {
        let end = out.len() + self.value_bytes;
        slot.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        out.truncate(end);
    }
}

/// A tree that one thread at a time changes.
pub(super) struct Tree {
    pub(super) layouts: Layouts,
    pub(super) inner: Written,
    pub(super) leaves: Written,
    root: u32,
    levels: u8,
    inner_count: u32,
    leaf_count: u32,
    entries: u64,
}

impl Tree {
    /// An empty tree.
    pub(super) fn new(layouts: Layouts) -> Result<Self> {
        let (inner, leaves) = (Written::new(CAPACITY_BYTES)?, Written::new(CAPACITY_BYTES)?);
        let mut tree = Self {
            layouts,
            inner,
            leaves,
            root: 1,
            levels: 1,
            inner_count: HEADER + 1,
            leaf_count: 0,
            entries: 0,
        };
        let (leaf, root) = (tree.reserve(0)?, tree.reserve(1)?);
        tree.write(&Node::new(layouts.leaf, 0), leaf);
        let mut node = Node::new(layouts.inner, 1);
        node.insert(layouts.inner, 0, 0, &[u64::from(leaf)]);
        tree.write(&node, root);
        tree.publish_root();
        Ok(tree)
    }

    /// Number of pairs, of leaves and of inner nodes.
    pub(super) fn counts(&self) -> (u64, u32, u32) {
        (self.entries, self.leaf_count, self.inner_count - 1)
    }

    fn publish_root(&self) {
        let word = u64::from(self.root) | u64::from(self.levels) << 32;
        self.inner.words()[0].store(word, std::sync::atomic::Ordering::Release);
    }

    fn layout(&self, level: u8) -> Layout {
        if level == 0 { self.layouts.leaf } else { self.layouts.inner }
    }

    /// A number for a new node of a level.
    fn reserve(&mut self, level: u8) -> Result<u32> {
        let layout = self.layout(level);
        let (memory, count) = match level {
            0 => (&self.leaves, &mut self.leaf_count),
            _ => (&self.inner, &mut self.inner_count),
        };
        let end = (*count as usize + 1) * layout.words();
        let there = memory.words().len();
        if end > there {
            memory.grow((end - there) * 8)?;
        }
        *count += 1;
        Ok(*count - 1)
    }

    fn read(&self, number: u32, level: u8) -> Node {
        let (memory, mut node) =
            (if level == 0 { &self.leaves } else { &self.inner }, Node::default());
        let is_there = node.read(memory.words(), self.layout(level), number);
        debug_assert!(is_there);
        node
    }

    fn write(&self, node: &Node, number: u32) {
        let memory = if node.level() == 0 { &self.leaves } else { &self.inner };
        node.write(memory.words(), self.layout(node.level()), number);
    }

    /// The leaf of a key, and the inner nodes above it, the root first.
    fn path(&self, key: Key) -> (u32, Vec<u32>) {
        let (mut number, mut path) = (self.root, Vec::new());
        for level in (1..=self.levels).rev() {
            path.push(number);
            number = self.read(number, level).child(self.layouts.inner, key);
        }
        (number, path)
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    ///
    /// If there is no memory for another node.
    pub(super) fn set(&mut self, key: Key, value: &[u8]) -> Result<()> {
        let (layout, slot) = (self.layouts.leaf, self.layouts.slot(value));
        let (number, path) = self.path(key);
        let mut leaf = self.read(number, 0);
        if let Some(index) = leaf.find(layout, key) {
            leaf.set_slot(layout, index, &slot);
            self.write(&leaf, number);
            return Ok(());
        }
        self.entries += 1;
        self.insert(leaf, number, &path, (key, &slot))
    }

    /// Removes a key.
    pub(super) fn remove(&mut self, key: Key) {
        let (number, _) = self.path(key);
        let mut leaf = self.read(number, 0);
        if let Some(index) = leaf.find(self.layouts.leaf, key) {
            leaf.remove(self.layouts.leaf, index);
            self.write(&leaf, number);
            self.entries -= 1;
        }
    }

    /// Inserts a slot into a node, which is split if it is full. `path` leads to it.
    fn insert(
        &mut self,
        mut node: Node,
        number: u32,
        path: &[u32],
        (key, slot): (Key, &[u64]),
    ) -> Result<()> {
        let level = node.level();
        let layout = self.layout(level);
        if node.count() < SLOTS {
            node.insert(layout, node.below(layout, key, false), key, slot);
            self.write(&node, number);
            return Ok(());
        }
        let sibling = self.reserve(level)?;
        debug_assert_ne!(sibling, NONE);
        let (border, mut right) = node.split(layout, sibling);
        let into = if key < border { &mut node } else { &mut right };
        into.insert(layout, into.below(layout, key, false), key, slot);
        // The new node first: a reader that sees the border finds what is beyond it.
        self.write(&right, sibling);
        self.write(&node, number);
        let slot = [u64::from(sibling)];
        match path.split_last() {
            Some((parent, path)) => {
                let node = self.read(*parent, level + 1);
                self.insert(node, *parent, path, (border, &slot))
            }
            None => {
                let root = self.reserve(level + 1)?;
                let mut node = Node::new(self.layouts.inner, level + 1);
                node.insert(self.layouts.inner, 0, 0, &[u64::from(number)]);
                node.insert(self.layouts.inner, 1, border, &slot);
                self.write(&node, root);
                (self.root, self.levels) = (root, level + 1);
                self.publish_root();
                Ok(())
            }
        }
    }
}
