//! How many keys lie in each of many neighbouring ranges, so that the number of keys before one,
//! and the key at a place, are found by some additions and a walk over one range.
//!
//! A block is a range of keys with their number. Blocks lie in chunks, which have the sum of
//! theirs. A block that has become large is split by a walk over it, and one that has become small
//! is added to its neighbour.

/// Keys of a block when it is made: a walk over half of it takes some microseconds, and a million
/// keys have 16,000 blocks, which are a megabyte.
const BLOCK_KEYS: u64 = 64;

/// Blocks of a chunk at most: with a million keys there are as many chunks as blocks of a chunk.
const CHUNK_BLOCKS: usize = 256;

/// Bytes of a block besides its first key: the block, its part of what the chunk has allocated in
/// advance, and the allocation of the key.
const BLOCK_BYTES: usize = 64;

/// A range of keys, which ends where the next one begins.
#[derive(Clone, Debug)]
struct Block {
    /// After all keys of the block before, and not after the first one of this. The first block
    /// of all begins before all keys, whatever this is.
    start: Box<[u8]>,
    count: u64,
}

/// Neighbouring blocks, at least one.
#[derive(Debug)]
struct Chunk {
    count: u64,
    blocks: Vec<Block>,
}

impl Chunk {
    fn of(blocks: Vec<Block>) -> Self {
        Self { count: blocks.iter().map(|block| block.count).sum(), blocks }
    }

    fn start(&self) -> &[u8] {
        self.blocks.first().map_or(&[], |block| &block.start)
    }
}

/// A block, as it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found<'b> {
    /// Where it starts; `None` for the first block.
    pub(crate) start: Option<&'b [u8]>,
    /// Where the next one starts; `None` for the last block.
    pub(crate) end: Option<&'b [u8]>,
    /// How many keys lie before the block.
    pub(crate) before: u64,
}

/// The blocks of all keys of one order.
#[derive(Debug)]
pub(crate) struct Blocks {
    /// At least one.
    chunks: Vec<Chunk>,
    /// Keys of a block when it is made.
    block_keys: u64,
    count: u64,
    bytes: usize,
}

impl Default for Blocks {
    fn default() -> Self {
        let first = Block { start: Box::default(), count: 0 };
        let chunks = vec![Chunk::of(vec![first])];
        Self { chunks, block_keys: BLOCK_KEYS, count: 0, bytes: BLOCK_BYTES }
    }
}

/// Makes blocks of keys that ascend.
#[derive(Debug, Default)]
struct Builder {
    blocks: Vec<Block>,
    last: Vec<u8>,
}

impl Builder {
    fn push(&mut self, key: &[u8], block_keys: u64) {
        match self.blocks.last_mut() {
            Some(block) if block.count < block_keys => block.count += 1,
            _ => {
                let start = separator(&self.last, key).into();
                self.blocks.push(Block { start, count: 1 });
            }
        }
        self.last.clear();
        self.last.extend_from_slice(key);
    }
}

/// The shortest beginning of `key` that comes after `before`, which `key` does.
fn separator<'k>(before: &[u8], key: &'k [u8]) -> &'k [u8] {
    let same = before.iter().zip(key).take_while(|(one, other)| one == other).count();
    &key[..(same + 1).min(key.len())]
}

fn bytes_of(block: &Block) -> usize {
    BLOCK_BYTES + block.start.len()
}

impl Blocks {
    /// How many keys there are.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Bytes of memory, nearly.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a key that comes after all others.
    pub(crate) fn push(&mut self, key: &[u8], last: &mut Vec<u8>) {
        let at = self.chunks.len() - 1;
        let chunk = &mut self.chunks[at];
        chunk.count += 1;
        self.count += 1;
        let is_full = chunk.blocks.len() >= CHUNK_BLOCKS;
        match chunk.blocks.last_mut() {
            Some(block) if block.count < self.block_keys => block.count += 1,
            _ => {
                let block = Block { start: separator(last, key).into(), count: 1 };
                self.bytes += bytes_of(&block);
                if is_full {
                    chunk.count -= 1;
                    self.chunks.push(Chunk::of(vec![block]));
                } else {
                    chunk.blocks.push(block);
                }
            }
        }
        last.clear();
        last.extend_from_slice(key);
    }

    /// The place of the block in which a key lies, or would.
    fn place(&self, key: &[u8]) -> (usize, usize) {
        let chunk = self.chunks.partition_point(|chunk| chunk.start() <= key).saturating_sub(1);
        let blocks = &self.chunks[chunk].blocks;
        (chunk, blocks.partition_point(|block| *block.start <= *key).saturating_sub(1))
    }

    /// What a block is found as.
    fn found(&self, (chunk, block): (usize, usize), before: u64) -> Found<'_> {
        let start = &*self.chunks[chunk].blocks[block].start;
        let next = self.chunks[chunk].blocks.get(block + 1).map(|block| &*block.start);
        let end = next.or_else(|| self.chunks.get(chunk + 1).map(Chunk::start));
        Found { start: ((chunk, block) != (0, 0)).then_some(start), end, before }
    }

    /// The block in which a key lies, or would.
    pub(crate) fn block_of(&self, key: &[u8]) -> Found<'_> {
        let (chunk, block) = self.place(key);
        let chunks = self.chunks[..chunk].iter().map(|chunk| chunk.count).sum::<u64>();
        let blocks = self.chunks[chunk].blocks[..block].iter().map(|block| block.count);
        self.found((chunk, block), chunks + blocks.sum::<u64>())
    }

    /// The block with the key at a place, counted from 0, once the keys have shifted. What lies
    /// before the block is counted as it was before. `None` past the end.
    pub(crate) fn block_at(&self, place: u64, shifts: &[(Vec<u8>, i64)]) -> Option<Found<'_>> {
        let (mut left, mut before, mut shifts) = (place, 0, shifts);
        for (at, chunk) in self.chunks.iter().enumerate() {
            let end = self.chunks.get(at + 1).map(Chunk::start);
            let count = chunk.count.saturating_add_signed(shift_before(&mut { shifts }, end));
            if left >= count {
                left -= count;
                before += chunk.count;
                shift_before(&mut shifts, end);
                continue;
            }
            for (nth, block) in chunk.blocks.iter().enumerate() {
                let next = chunk.blocks.get(nth + 1).map(|block| &*block.start).or(end);
                let shift = shift_before(&mut shifts, next);
                let count = block.count.saturating_add_signed(shift);
                if left < count {
                    return Some(self.found((at, nth), before));
                }
                left -= count;
                before += block.count;
            }
            return None;
        }
        None
    }

    /// Returns true if the block in which a key lies is to be split.
    pub(crate) fn is_large(&self, key: &[u8]) -> bool {
        let (at, nth) = self.place(key);
        self.chunks[at].blocks[nth].count > 2 * self.block_keys
    }

    /// A key more or less. Returns true if its block is to be split; `None` if the key cannot have
    /// been among these.
    pub(crate) fn change(&mut self, key: &[u8], is_more: bool) -> Option<bool> {
        let (at, nth) = self.place(key);
        let chunk = &mut self.chunks[at];
        let block = &mut chunk.blocks[nth];
        if is_more {
            block.count += 1;
            chunk.count += 1;
            self.count += 1;
            return Some(block.count > 2 * self.block_keys);
        }
        block.count = block.count.checked_sub(1)?;
        chunk.count -= 1;
        self.count -= 1;
        self.join(at, nth);
        Some(false)
    }

    /// Adds a small block to the one before, or the one after to it.
    fn join(&mut self, at: usize, nth: usize) {
        let few = self.block_keys / 2;
        let blocks = &mut self.chunks[at].blocks;
        let fits = |one: usize| {
            let (one, other) = (blocks.get(one)?, blocks.get(one + 1)?);
            (one.count + other.count <= few).then_some(())
        };
        let first = if fits(nth).is_some() {
            Some(nth)
        } else {
            nth.checked_sub(1).filter(|before| fits(*before).is_some())
        };
        if let Some(first) = first {
            let gone = blocks.remove(first + 1);
            blocks[first].count += gone.count;
            self.bytes -= bytes_of(&gone);
        } else if self.chunks[at].count == 0 && self.chunks.len() > 1 {
            let gone = self.chunks.remove(at);
            self.bytes -= gone.blocks.iter().map(bytes_of).sum::<usize>();
            return;
        }
        let len = |at: usize| self.chunks.get(at).map_or(usize::MAX, |chunk| chunk.blocks.len());
        if at + 1 < self.chunks.len() && len(at) + len(at + 1) <= CHUNK_BLOCKS / 4 {
            let next = self.chunks.remove(at + 1);
            self.chunks[at].count += next.count;
            self.chunks[at].blocks.extend(next.blocks);
        }
    }

    /// Puts blocks of these keys in the place of the one in which `key` lies. They are all that
    /// lie in it, ascending. Returns false if they are not as many as the block has.
    pub(crate) fn split<'k>(&mut self, key: &[u8], keys: impl Iterator<Item = &'k [u8]>) -> bool {
        let (at, nth) = self.place(key);
        let mut made = Builder::default();
        keys.for_each(|key| made.push(key, self.block_keys));
        let old = &self.chunks[at].blocks[nth];
        if made.blocks.iter().map(|block| block.count).sum::<u64>() != old.count {
            return false;
        }
        let Some(first) = made.blocks.first_mut() else { return true };
        first.start.clone_from(&old.start);
        self.bytes -= bytes_of(old);
        self.bytes += made.blocks.iter().map(bytes_of).sum::<usize>();
        let blocks = &mut self.chunks[at].blocks;
        blocks.splice(nth..=nth, made.blocks);
        if blocks.len() > CHUNK_BLOCKS {
            let blocks = std::mem::take(blocks);
            let parts = blocks.chunks(CHUNK_BLOCKS / 2).map(|part| Chunk::of(part.to_vec()));
            self.chunks.splice(at..=at, parts);
        }
        true
    }

    /// Makes one block of every two: half the memory. Returns false if there is one block only.
    pub(crate) fn halve(&mut self) -> bool {
        if self.chunks.len() == 1 && self.chunks[0].blocks.len() == 1 {
            return false;
        }
        let mut old = std::mem::take(&mut self.chunks).into_iter().flat_map(|chunk| chunk.blocks);
        let mut blocks = Vec::new();
        while let Some(mut block) = old.next() {
            block.count += old.next().map_or(0, |next| next.count);
            blocks.push(block);
        }
        self.bytes = blocks.iter().map(bytes_of).sum();
        self.chunks = blocks.chunks(CHUNK_BLOCKS).map(|part| Chunk::of(part.to_vec())).collect();
        self.block_keys *= 2;
        true
    }
}

/// The sum of the shifts before a key, which are taken away.
fn shift_before(shifts: &mut &[(Vec<u8>, i64)], end: Option<&[u8]>) -> i64 {
    let len = shifts.partition_point(|(key, _)| end.is_none_or(|end| **key < *end));
    let (here, rest) = shifts.split_at(len);
    *shifts = rest;
    here.iter().map(|(_, shift)| shift).sum()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::{super::Shifts, *};

    fn key(n: u16) -> Vec<u8> {
        format!("{n:05}").into_bytes()
    }

    fn learned(keys: &BTreeSet<Vec<u8>>) -> Blocks {
        let (mut blocks, mut last) = (Blocks::default(), Vec::new());
        keys.iter().for_each(|key| blocks.push(key, &mut last));
        blocks
    }

    fn in_block(keys: &BTreeSet<Vec<u8>>, found: &Found<'_>) -> Vec<Vec<u8>> {
        let is_in = |key: &&Vec<u8>| {
            found.start.is_none_or(|start| start <= &key[..])
                && found.end.is_none_or(|end| &key[..] < end)
        };
        keys.iter().filter(is_in).cloned().collect()
    }

    fn check(blocks: &Blocks, keys: &BTreeSet<Vec<u8>>, wanted: &[u8]) {
        assert_eq!(blocks.count(), keys.len() as u64);
        let found = blocks.block_of(wanted);
        let start = found.start.unwrap_or_default();
        let before = keys.iter().filter(|key| &key[..] < start).count();
        assert_eq!(found.before, before as u64);
        assert!(start <= wanted && found.end.is_none_or(|end| wanted < end));
        assert!(in_block(keys, &found).len() as u64 <= 2 * blocks.block_keys);
        let bytes = blocks.chunks.iter().flat_map(|chunk| &chunk.blocks).map(bytes_of);
        assert_eq!(blocks.bytes(), bytes.sum::<usize>());
    }

    fn apply(blocks: &mut Blocks, keys: &mut BTreeSet<Vec<u8>>, n: u16, is_more: bool) {
        let key = key(n);
        if is_more != keys.contains(&key) {
            if is_more {
                keys.insert(key.clone());
            } else {
                keys.remove(&key);
            }
            if blocks.change(&key, is_more) == Some(true) {
                let all = in_block(keys, &blocks.block_of(&key));
                assert!(blocks.split(&key, all.iter().map(Vec::as_slice)));
            }
        }
    }

    #[test]
    fn blocks_stay_small_while_keys_come_at_an_end_and_go_at_the_other() {
        let (mut blocks, mut keys) = (Blocks::default(), BTreeSet::new());
        for n in 0..20_000 {
            apply(&mut blocks, &mut keys, n, true);
            if n >= 5000 {
                apply(&mut blocks, &mut keys, n - 5000, false);
            }
        }
        (0..20_000).step_by(97).for_each(|n| check(&blocks, &keys, &key(n)));
        assert!(blocks.bytes() < 5000 / 32 * 2 * (BLOCK_BYTES + 5), "{}", blocks.bytes());
        (0..20_000).for_each(|n| apply(&mut blocks, &mut keys, n, false));
        assert_eq!((blocks.count(), blocks.chunks.len()), (0, 1));
        assert!(blocks.bytes() < 300, "{}", blocks.bytes());
    }

    #[test]
    fn a_key_that_was_not_there_cannot_go() {
        let mut blocks = Blocks::default();
        assert_eq!(blocks.change(b"a", false), None);
        assert_eq!(blocks.change(b"a", true), Some(false));
        assert!(!blocks.split(b"a", [&b"a"[..], b"b"].into_iter()));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn blocks_agree_with_a_set(
            first in prop::collection::btree_set(0..3000_u16, 0..2000),
            changes in prop::collection::vec((0..3000_u16, any::<bool>(), 0..200_u8), 0..400),
            wanted in prop::collection::vec(0..3000_u16, 20),
            shifted in prop::collection::btree_set(0..3000_u16, 0..200),
        ) {
            let mut keys: BTreeSet<_> = first.into_iter().map(key).collect();
            let mut blocks = learned(&keys);
            for (n, is_more, other) in changes {
                apply(&mut blocks, &mut keys, n, is_more);
                if other == 0 {
                    blocks.halve();
                }
            }
            for n in wanted {
                check(&blocks, &keys, &key(n));
            }
            // As a transaction sees it: some keys there and some not.
            let (mut seen, mut shifts) = (keys.clone(), Shifts::new());
            for key in shifted.into_iter().map(key) {
                shifts.push((key.clone(), if seen.remove(&key) { -1 } else { 1 }));
                if shifts.last().is_some_and(|(_, shift)| *shift == 1) {
                    seen.insert(key);
                }
            }
            for (place, wanted) in seen.iter().enumerate().step_by(7) {
                let found = blocks.block_at(place as u64, &shifts).unwrap();
                prop_assert!(in_block(&seen, &found).contains(wanted));
                prop_assert_eq!(found, blocks.block_of(wanted));
            }
            prop_assert!(blocks.block_at(seen.len() as u64, &shifts).is_none());
        }
    }
}
