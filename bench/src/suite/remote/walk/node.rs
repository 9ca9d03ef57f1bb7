//! Nodes of a tree in shared memory, and how they are read while they change.
//!
//! A node has a guard, which is odd while the node changes, a head, two fences and sixteen slots of
//! a key and a child or a value, sorted. Its keys are at or above the low fence and below the high
//! one; what is above that is in its right sibling. All is in words of 8 bytes.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Slots of a node: the fan-out of the paper's tree.
pub(super) const SLOTS: usize = 16;

/// No node.
pub(super) const NONE: u32 = u32::MAX;

/// Words before the fences: the guard and the head.
const HEAD_WORDS: usize = 2;

/// A key of up to 16 bytes, as a number whose order is the key's: all keys of a tree are as long.
pub(super) type Key = u128;

/// How nodes of one kind are laid out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    key_words: usize,
    slot_words: usize,
}

impl Layout {
    /// Nodes whose keys and slots take this many words.
    pub(super) fn new(key_words: usize, slot_words: usize) -> Self {
        Self { key_words, slot_words }
    }

    /// Words of a node.
    pub(super) fn words(self) -> usize {
        HEAD_WORDS + 2 * self.key_words + SLOTS * (self.key_words + self.slot_words)
    }

    fn low(self) -> usize {
        HEAD_WORDS
    }

    fn high(self) -> usize {
        HEAD_WORDS + self.key_words
    }

    fn key(self, index: usize) -> usize {
        HEAD_WORDS + (2 + index) * self.key_words
    }

    fn slot(self, index: usize) -> usize {
        self.key(SLOTS) + index * self.slot_words
    }
}

/// A copy of a node.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    words: Vec<u64>,
}

impl Node {
    /// An empty node of all keys, without a sibling.
    pub(super) fn new(layout: Layout, level: u8) -> Self {
        let mut node = Self { words: vec![0; layout.words()] };
        node.set_head(0, level, NONE, true);
        node
    }

    /// Copies node `number` as it was at one moment, if it is there.
    pub(super) fn read(&mut self, words: &[AtomicU64], layout: Layout, number: u32) -> bool {
        let at = number as usize * layout.words();
        let Some(node) = words.get(at..at + layout.words()) else { return false };
        loop {
            let guard = node[0].load(Ordering::Relaxed);
            fence(Ordering::Acquire);
            self.words.clear();
            self.words.extend(node.iter().map(|word| word.load(Ordering::Relaxed)));
            fence(Ordering::Acquire);
            if guard.is_multiple_of(2) && node[0].load(Ordering::Relaxed) == guard {
                return true;
            }
            std::hint::spin_loop();
        }
    }

    /// Puts the node in place of node `number`, of which this thread is the only writer.
    pub(super) fn write(&self, words: &[AtomicU64], layout: Layout, number: u32) {
        let node = &words[number as usize * layout.words()..][..layout.words()];
        let guard = node[0].load(Ordering::Relaxed);
        node[0].store(guard + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        for (word, value) in node.iter().zip(&self.words).skip(1) {
            word.store(*value, Ordering::Relaxed);
        }
        node[0].store(guard + 2, Ordering::Release);
    }

    fn set_head(&mut self, count: usize, level: u8, sibling: u32, is_last: bool) {
        self.words[1] = count as u64
            | u64::from(level) << 8
            | u64::from(is_last) << 16
            | u64::from(sibling) << 32;
    }

    /// Number of slots in use.
    pub(super) fn count(&self) -> usize {
        (self.words[1] as u8 as usize).min(SLOTS)
    }

    /// Steps to the leaves: 0 for a leaf.
    pub(super) fn level(&self) -> u8 {
        (self.words[1] >> 8) as u8
    }

    fn is_last(&self) -> bool {
        self.words[1] >> 16 & 1 == 1
    }

    /// The node of the keys after the high fence.
    pub(super) fn sibling(&self) -> u32 {
        (self.words[1] >> 32) as u32
    }

    fn get(&self, layout: Layout, at: usize) -> Key {
        let words = &self.words[at..at + layout.key_words];
        words.iter().fold(0, |key, word| key << 64 | u128::from(*word))
    }

    fn set(&mut self, layout: Layout, at: usize, key: Key) {
        for (index, word) in self.words[at..at + layout.key_words].iter_mut().rev().enumerate() {
            *word = (key >> (64 * index)) as u64;
        }
    }

    /// Returns true if a key is to the right of the node.
    pub(super) fn is_right(&self, layout: Layout, key: Key) -> bool {
        !self.is_last() && key >= self.get(layout, layout.high())
    }

    /// The key of a slot.
    pub(super) fn key(&self, layout: Layout, index: usize) -> Key {
        self.get(layout, layout.key(index))
    }

    /// The words of a slot.
    pub(super) fn slot(&self, layout: Layout, index: usize) -> &[u64] {
        &self.words[layout.slot(index)..][..layout.slot_words]
    }

    /// The number of slots whose keys are below a key, or at it if `is_included`.
    pub(super) fn below(&self, layout: Layout, key: Key, is_included: bool) -> usize {
        (0..self.count())
            .find(|index| {
                let other = self.key(layout, *index);
                other > key || other == key && !is_included
            })
            .unwrap_or(self.count())
    }

    /// The slot of a key.
    pub(super) fn find(&self, layout: Layout, key: Key) -> Option<usize> {
        let index = self.below(layout, key, false);
        (index < self.count() && self.key(layout, index) == key).then_some(index)
    }

    /// The child of a key.
    pub(super) fn child(&self, layout: Layout, key: Key) -> u32 {
        let index = self.below(layout, key, true).saturating_sub(1);
        self.slot(layout, index)[0] as u32
    }

    /// Sets what a slot holds.
    pub(super) fn set_slot(&mut self, layout: Layout, index: usize, slot: &[u64]) {
        self.words[layout.slot(index)..][..layout.slot_words].copy_from_slice(slot);
    }

    /// Inserts a slot before `index`. There is room.
    pub(super) fn insert(&mut self, layout: Layout, index: usize, key: Key, slot: &[u64]) {
        let (count, kw, sw) = (self.count(), layout.key_words, layout.slot_words);
        let keys = layout.key(index)..layout.key(count);
        self.words.copy_within(keys.clone(), keys.start + kw);
        let slots = layout.slot(index)..layout.slot(count);
        self.words.copy_within(slots.clone(), slots.start + sw);
        self.set(layout, layout.key(index), key);
        self.set_slot(layout, index, slot);
        self.words[1] += 1;
    }

    /// Removes a slot.
    pub(super) fn remove(&mut self, layout: Layout, index: usize) {
        let (count, kw, sw) = (self.count(), layout.key_words, layout.slot_words);
        let keys = layout.key(index + 1)..layout.key(count);
        self.words.copy_within(keys.clone(), keys.start - kw);
        let slots = layout.slot(index + 1)..layout.slot(count);
        self.words.copy_within(slots.clone(), slots.start - sw);
        self.words[1] -= 1;
    }

    /// Splits a full node: the upper half goes to a new node, which is number `sibling`.
    pub(super) fn split(&mut self, layout: Layout, sibling: u32) -> (Key, Self) {
        let half = SLOTS / 2;
        let border = self.key(layout, half);
        let mut right = self.clone();
        right.set_head(0, self.level(), self.sibling(), self.is_last());
        right.set(layout, layout.low(), border);
        for index in half..SLOTS {
            right.insert(layout, index - half, self.key(layout, index), self.slot(layout, index));
        }
        self.set_head(half, self.level(), sibling, false);
        self.set(layout, layout.high(), border);
        (border, right)
    }
}

/// Number `index` of the words before all nodes.
pub(super) fn load(words: &[AtomicU64], index: usize) -> u64 {
    words.get(index).map_or(0, |word| word.load(Ordering::Relaxed))
}
