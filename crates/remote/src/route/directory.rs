//! The directory: which run a key belongs to.
//!
//! Two tables of sorted keys: a *top*, whose entries are blocks, and blocks, whose entries are
//! descriptors of runs. A block is never changed: one with the change is written beside it, and one
//! word of the top is stored. A reader that has come upon a block whose place is being used again
//! gets a wrong leaf at worst, and looks again.

use rhumb_model::{Line, code::code_at, code::common_prefix_len, search::partition_point};

use super::{Run, leaf_of_code};
use crate::layout::{
    Memory,
    format::{BLOCK_RUNS, DESCRIPTOR_WORDS, LINE_BYTES, UNIT_BYTES, descriptor},
    to_words,
};

/// Words before a table's codes.
const HEAD_WORDS: usize = LINE_BYTES / 8;

/// Bytes of a block: the longest keys that a leaf may hold leave room for a dozen runs.
pub(crate) const BLOCK_BYTES: usize = UNIT_BYTES;

/// Where the parts of a table lie, in words from its beginning.
#[derive(Clone, Copy)]
struct TableShape {
    /// Entries that it has room for.
    room: usize,
    /// Words that go with each entry.
    payload_words: usize,
}

impl TableShape {
    const BLOCK: Self = Self { room: BLOCK_RUNS, payload_words: DESCRIPTOR_WORDS };

    /// A block's copy outside of the region, with room for its entries alone.
    #[cfg(not(any(loom, shuttle)))]
    fn copied_block(room: usize) -> Self {
        Self { room, ..Self::BLOCK }
    }

    fn top(room: usize) -> Self {
        Self { room, payload_words: 1 }
    }

    fn code(self, index: usize) -> usize {
        HEAD_WORDS + index
    }

    /// Where the word lies that says where a key lies: offset (32 bits) and length (16).
    fn key_word(self, index: usize) -> usize {
        HEAD_WORDS + self.room + index
    }

    fn payload(self, index: usize) -> usize {
        HEAD_WORDS + 2 * self.room + index * self.payload_words
    }

    /// Where the keys begin.
    fn keys(self) -> usize {
        self.payload(self.room)
    }
}

/// A sorted table that is being written: words in the region's layout.
struct TableImage {
    words: Vec<u64>,
    shape: TableShape,
}

impl TableImage {
    /// A table of sorted keys, of which the first counts as below all others.
    fn new(shape: TableShape, keys: &[&[u8]]) -> Self {
        // What all but the first share is left out of the codes.
        let skip = match keys {
            [_, second, .., last] => common_prefix_len(second, last),
            _ => 0,
        };
        let mut image = Self { words: vec![0; shape.keys()], shape };
        image.words[0] = keys.len() as u64 | (skip as u64) << 32;
        for (index, key) in keys.iter().enumerate() {
            image.words[shape.code(index)] = if index == 0 { 0 } else { code_at(key, skip) };
            image.words[shape.key_word(index)] = image.append(key);
        }
        image
    }

    /// Appends a key, and returns the word that says where it lies.
    fn append(&mut self, key: &[u8]) -> u64 {
        let offset = self.words.len() * 8;
        self.words.extend(key.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        }));
        offset as u64 | (key.len() as u64) << 32
    }
}

/// Bytes that a block of these runs takes.
pub(crate) fn block_bytes(runs: &[Run]) -> usize {
    let keys: usize =
        runs.iter().map(|run| to_words(run.low.len()) + to_words(run.prefix.len())).sum();
    8 * (TableShape::BLOCK.keys() + keys)
}

/// The words of a block: at most [`BLOCK_RUNS`] runs, sorted.
pub(crate) fn block_image(runs: &[Run]) -> Vec<u64> {
    let keys: Vec<&[u8]> = runs.iter().map(|run| &*run.low).collect();
    let mut image = TableImage::new(TableShape::BLOCK, &keys);
    for (index, run) in runs.iter().enumerate() {
        let prefix = image.append(&run.prefix);
        let at = TableShape::BLOCK.payload(index);
        let words = &mut image.words[at..at + DESCRIPTOR_WORDS];
        words[descriptor::KEYS] = prefix;
        words[descriptor::X0] = run.line.x0;
        words[descriptor::Y0] = run.line.y0 as u64;
        words[descriptor::SLOPE] = u64::from(run.line.mantissa) | u64::from(run.line.shift) << 32;
        words[descriptor::LEAVES] = u64::from(run.base) | u64::from(run.leaves) << 32;
        words[descriptor::RUN] = u64::from(run.number);
    }
    image.words
}

/// The words of a top: the low key of each block, and its number.
pub(crate) fn top_image(blocks: &[(&[u8], u32)]) -> Vec<u64> {
    let keys: Vec<&[u8]> = blocks.iter().map(|(low, _)| *low).collect();
    let mut image = TableImage::new(TableShape::top(blocks.len()), &keys);
    for (index, (_, block)) in blocks.iter().enumerate() {
        image.words[image.shape.payload(index)] = u64::from(*block);
    }
    image.words
}

/// The word of a top that has the number of its block `index`, of `count`.
pub(crate) fn top_payload(count: usize, index: usize) -> usize {
    TableShape::top(count).payload(index)
}

/// A table as it lies in memory, which may change while it is read.
struct DirectoryTable<'m, M: ?Sized> {
    memory: &'m M,
    shape: TableShape,
    count: usize,
    skip: usize,
}

impl<'m, M: Memory + ?Sized> DirectoryTable<'m, M> {
    fn new(memory: &'m M, shape_of: impl FnOnce(usize) -> TableShape) -> Self {
        let head = memory.load(0);
        let count = (head as u32) as usize;
        let shape = shape_of(count.min(memory.words()));
        Self { memory, shape, count: count.min(shape.room), skip: usize::from((head >> 32) as u16) }
    }

    /// The last entry whose key is not above `key`; the first if all are.
    fn find(&self, key: &[u8]) -> usize {
        if self.count < 2 {
            return 0;
        }
        let begins = &key[..self.skip.min(key.len())];
        if self.skip > 0 {
            // The second key begins with what the others share.
            let word = self.memory.load(self.shape.key_word(1));
            let shared = self.memory.bytes((word as u32) as usize, self.skip);
            match shared.map(|shared| shared.compare(begins)) {
                Some(std::cmp::Ordering::Less) => return self.count - 1,
                Some(std::cmp::Ordering::Equal) => {}
                _ => return 0,
            }
        }
        let code = code_at(key, self.skip);
        let at = partition_point(1, self.count, |index| {
            let low = self.memory.load(self.shape.code(index));
            low < code || low == code && !self.is_above(index, key)
        });
        at - 1
    }

    /// Returns true if the key of an entry is above `key`.
    #[cold]
    fn is_above(&self, index: usize, key: &[u8]) -> bool {
        let word = self.memory.load(self.shape.key_word(index));
        let low = self.memory.bytes((word as u32) as usize, usize::from((word >> 32) as u16));
        low.is_none_or(|low| low.compare(key).is_gt())
    }

    fn payload(&self, index: usize, word: usize) -> u64 {
        self.memory.load(self.shape.payload(index) + word)
    }

    /// The bytes of which a word says where they lie; none if that is outside of the table.
    #[cfg(not(any(loom, shuttle)))]
    fn bytes_at(&self, word: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let word = ((word as u32) as usize, usize::from((word >> 32) as u16));
        if let Some(found) = self.memory.bytes(word.0, word.1) {
            found.append_to(&mut bytes);
        }
        bytes
    }

    /// The key of an entry.
    #[cfg(not(any(loom, shuttle)))]
    fn key(&self, index: usize) -> Vec<u8> {
        self.bytes_at(self.memory.load(self.shape.key_word(index)))
    }
}

/// Entries of a top, from that of the block on which has the run of `key`: low keys, and numbers of
/// blocks. At most as many as the memory has words.
#[cfg(not(any(loom, shuttle)))]
pub(crate) fn top_from<'m, M: Memory + ?Sized>(
    memory: &'m M,
    key: &[u8],
) -> impl Iterator<Item = (Vec<u8>, u32)> + use<'m, M> {
    let table = DirectoryTable::new(memory, TableShape::top);
    (table.find(key)..table.count)
        .map(move |index| (table.key(index), table.payload(index, 0) as u32))
}

/// A copy of the block in `memory`, with room for its entries alone: what [`find_slot_in_copy`]
/// looks into.
#[cfg(not(any(loom, shuttle)))]
pub(crate) fn copy_block<M: Memory + ?Sized>(memory: &M) -> Vec<u64> {
    let table = DirectoryTable::new(memory, |_| TableShape::BLOCK);
    let shape = TableShape::copied_block(table.count);
    let mut image = TableImage { words: vec![0; shape.keys()], shape };
    image.words[0] = table.count as u64 | (table.skip as u64) << 32;
    for index in 0..table.count {
        image.words[shape.code(index)] = memory.load(table.shape.code(index));
        image.words[shape.key_word(index)] = image.append(&table.key(index));
        let prefix = table.bytes_at(table.payload(index, descriptor::KEYS));
        for word in 0..DESCRIPTOR_WORDS {
            image.words[shape.payload(index) + word] = table.payload(index, word);
        }
        image.words[shape.payload(index) + descriptor::KEYS] = image.append(&prefix);
    }
    image.words
}

/// The slot that should hold `key`, as the copy of a block says.
#[cfg(not(any(loom, shuttle)))]
pub(crate) fn find_slot_in_copy<M: Memory + ?Sized>(memory: &M, key: &[u8]) -> u32 {
    slot_of(&DirectoryTable::new(memory, TableShape::copied_block), key).slot
}

/// The number of the block that has the run of `key`, of the top in `memory`.
#[inline]
pub(crate) fn find_block<M: Memory + ?Sized>(memory: &M, key: &[u8]) -> u32 {
    let table = DirectoryTable::new(memory, TableShape::top);
    table.payload(table.find(key), 0) as u32
}

/// The numbers of all blocks, of the top in `memory`: at most as many as the memory has words.
#[cfg(not(any(loom, shuttle)))]
pub(crate) fn blocks<M: Memory + ?Sized>(memory: &M) -> impl Iterator<Item = u32> {
    let table = DirectoryTable::new(memory, TableShape::top);
    (0..table.count).map(move |index| table.payload(index, 0) as u32)
}

/// All runs of the block in `memory`, each as the place of its first leaf.
#[cfg(not(any(loom, shuttle)))]
pub(crate) fn runs<M: Memory + ?Sized>(memory: &M) -> impl Iterator<Item = Located> {
    let table = DirectoryTable::new(memory, |_| TableShape::BLOCK);
    (0..table.count).map(move |index| {
        let leaves = table.payload(index, descriptor::LEAVES);
        let run = table.payload(index, descriptor::RUN) as u32;
        Located { slot: leaves as u32, base: leaves as u32, leaves: (leaves >> 32) as u32, run }
    })
}

/// The slot that should hold `key`, and its run, as the block in `memory` says.
#[inline]
pub(crate) fn find_slot<M: Memory + ?Sized>(memory: &M, key: &[u8]) -> Located {
    slot_of(&DirectoryTable::new(memory, |_| TableShape::BLOCK), key)
}

#[inline]
fn slot_of<M: Memory + ?Sized>(table: &DirectoryTable<'_, M>, key: &[u8]) -> Located {
    let memory = table.memory;
    let index = table.find(key);
    let leaves = table.payload(index, descriptor::LEAVES);
    let (base, count) = (leaves as u32, (leaves >> 32) as u32);
    let prefix = table.payload(index, descriptor::KEYS);
    let prefix_len = usize::from((prefix >> 32) as u16);
    let leaf = 'leaf: {
        if prefix_len > 0 {
            let begins = &key[..prefix_len.min(key.len())];
            let prefix = memory.bytes((prefix as u32) as usize, prefix_len);
            match prefix.map(|prefix| prefix.compare(begins)) {
                Some(std::cmp::Ordering::Equal) => {}
                Some(std::cmp::Ordering::Less) => break 'leaf count.saturating_sub(1),
                _ => break 'leaf 0,
            }
        }
        let slope = table.payload(index, descriptor::SLOPE);
        let line = Line {
            x0: table.payload(index, descriptor::X0),
            y0: table.payload(index, descriptor::Y0) as i64,
            mantissa: slope as u32,
            shift: (slope >> 32) as u8,
        };
        leaf_of_code(&line, count, code_at(key, prefix_len))
    };
    let run = table.payload(index, descriptor::RUN) as u32;
    Located { slot: base.wrapping_add(leaf), base, leaves: count, run }
}

/// Where a key should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Located {
    pub(crate) slot: u32,
    /// The run's first slot.
    pub(crate) base: u32,
    /// The run's leaves, of which no other run has one.
    pub(crate) leaves: u32,
    /// The run's number.
    pub(crate) run: u32,
}
