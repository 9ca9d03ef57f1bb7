//! What a client keeps of a directory.
//!
//! Pieces come from the host, one by one, as they are missed. They are never believed: a wrong one
//! names a leaf that says by its fences that it is wrong. Each piece has the model epoch at which
//! the host read it. An answer that a guess was wrong has one too, and replaces what is older.

use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::{
        PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use crate::{message::Guess, route::directory::find_slot_in_copy};

/// A cache that is full takes one in this many of the blocks that it misses. The others would push
/// out as many that are as likely to be wanted, each for some kilobytes of the network.
const ADMITTED: u64 = 16;

/// How much of a keyspace's directory a client over TCP keeps. What it lacks is a call: the host
/// finds the leaf by itself, in the same round trip.
///
/// A descriptor without its line would say in which run a key is, and not in which leaf, so there
/// is no budget between these that keeps less of each run: [`CacheBudget::Top`] says nearly as
/// much with a 64th of the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CacheBudget {
    /// All of it, as it is needed: 0.03 to 0.3 bytes for each key of the keyspace.
    #[default]
    Full,
    /// At most this many bytes; 0 for nothing.
    Bytes(u64),
    /// Of a keyspace of [`Preset::XStore`](crate::Preset::XStore), the models without their tables;
    /// otherwise as `Top`.
    Models,
    /// The top alone, which names the block of the directory that has a key: the host looks into
    /// that block for the leaf. One entry for each 64 to 128 runs.
    Top,
}

/// A part of a directory, of the connection that it came in.
#[derive(Debug)]
pub(in crate::client) struct Cache {
    budget: CacheBudget,
    kept: RwLock<Kept>,
    /// Set while a thread brings a piece: the others have the host find leaves until it is there.
    is_refreshed: AtomicBool,
    misses: AtomicU64,
}

/// What is kept.
#[derive(Debug, Default)]
struct Kept {
    /// The connection that it came in.
    generation: u64,
    /// By the lowest key that they may have; no two of them overlap.
    blocks: BTreeMap<Vec<u8>, Block>,
    /// By their low keys too.
    top: BTreeMap<Vec<u8>, TopEntry>,
    bytes: usize,
    /// The low key of the block that was looked at last for one to push out.
    hand: Vec<u8>,
}

/// A block of the directory.
#[derive(Debug)]
struct Block {
    /// Above every key that it may have.
    high: Option<Vec<u8>>,
    image: Vec<u64>,
    epoch: u64,
    /// Set when it was of use since the hand came by.
    is_used: AtomicBool,
}

/// An entry of the top.
#[derive(Clone, Copy, Debug)]
struct TopEntry {
    unit: u32,
    epoch: u64,
}

/// Where a key is expected, and what that is founded on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) guess: Guess,
    /// The model epoch of the piece that says so.
    epoch: u64,
    /// The connection that it came in.
    generation: u64,
}

/// A piece of the directory that a cache lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    Block,
    /// All entries of the top.
    Top,
    /// One entry of the top.
    TopEntry,
}

/// The right to bring a piece, which one thread at a time has.
pub(super) struct Refresh<'c>(&'c Cache);

impl Drop for Refresh<'_> {
    fn drop(&mut self) {
        self.0.is_refreshed.store(false, Ordering::Release);
    }
}

impl Block {
    fn covers(&self, key: &[u8]) -> bool {
        self.high.as_ref().is_none_or(|high| key < &high[..])
    }

    fn bytes(&self, low: &[u8]) -> usize {
        let keys = low.len() + self.high.as_ref().map_or(0, Vec::len);
        size_of::<Self>() + keys + self.image.len() * 8
    }
}

impl Cache {
    pub(in crate::client) fn new(budget: CacheBudget) -> Self {
        let (is_refreshed, misses) = (AtomicBool::new(false), AtomicU64::new(0));
        Self { budget, kept: RwLock::default(), is_refreshed, misses }
    }

    /// A thread that panicked with the lock left pieces that prove nothing anyway.
    fn kept(&self) -> RwLockReadGuard<'_, Kept> {
        self.kept.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept_mut(&self) -> RwLockWriteGuard<'_, Kept> {
        self.kept.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of what is kept.
    pub(in crate::client) fn bytes(&self) -> usize {
        self.kept().bytes
    }

    /// Where a connection's host should have a key, which is no longer than leaves hold.
    pub(super) fn expect(&self, generation: u64, key: &[u8]) -> Expected {
        let kept = self.kept();
        let nothing = Expected { guess: Guess::None, epoch: 0, generation };
        if kept.generation != generation {
            return nothing;
        }
        if let Some((_, entry)) = kept.top_entry(key) {
            return Expected { guess: Guess::Block(entry.unit), epoch: entry.epoch, generation };
        }
        kept.block(key).map_or(nothing, |block| {
            block.is_used.store(true, Ordering::Relaxed);
            let guess = Guess::Leaf(find_slot_in_copy(&block.image[..], key));
            Expected { guess, epoch: block.epoch, generation }
        })
    }

    /// What is to be brought because a guess was wrong, or there was none, as the host said at
    /// `epoch`: none if another thread brings something, or has brought it.
    pub(super) fn lack(
        &self,
        expected: &Expected,
        epoch: u64,
        key: &[u8],
    ) -> Option<(Lack, Refresh<'_>)> {
        let is_full = match self.budget {
            CacheBudget::Bytes(0) => return None,
            CacheBudget::Bytes(most) => {
                let kept = self.kept();
                let mean = kept.bytes / kept.blocks.len().max(1);
                (kept.bytes + mean) as u64 > most
            }
            CacheBudget::Full | CacheBudget::Models | CacheBudget::Top => false,
        };
        let is_missed = expected.guess == Guess::None;
        if is_missed
            && is_full
            && !self.misses.fetch_add(1, Ordering::Relaxed).is_multiple_of(ADMITTED)
        {
            return None;
        }
        if self.is_refreshed.swap(true, Ordering::Acquire) {
            return None;
        }
        let refresh = Refresh(self);
        let now = self.expect(expected.generation, key);
        if now.guess != Guess::None && now.epoch >= epoch {
            return None;
        }
        let has_top = now.guess != Guess::None;
        Some(match self.budget {
            CacheBudget::Models | CacheBudget::Top if has_top => (Lack::TopEntry, refresh),
            CacheBudget::Models | CacheBudget::Top => (Lack::Top, refresh),
            _ => (Lack::Block, refresh),
        })
    }

    /// Keeps a block that finds the keys from `low` to below `high`. One that makes no sense is
    /// passed over.
    pub(super) fn put_block(
        &self,
        (generation, epoch): (u64, u64),
        low: &[u8],
        high: Option<&[u8]>,
        image: &[u8],
    ) {
        if image.is_empty() || high.is_some_and(|high| high <= low) {
            return;
        }
        let (words, _) = image.as_chunks::<8>();
        let image = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let (high, is_used) = (high.map(<[u8]>::to_vec), AtomicBool::new(true));
        let block = Block { high, image, epoch, is_used };
        let mut kept = self.kept_mut();
        if !kept.is_of(generation) {
            return;
        }
        kept.remove_between(low, block.high.as_deref());
        kept.bytes += block.bytes(low);
        kept.blocks.insert(low.to_vec(), block);
        if let CacheBudget::Bytes(most) = self.budget {
            kept.evict(usize::try_from(most).unwrap_or(usize::MAX));
        }
    }

    /// Keeps entries of a top, in the place of all that there were if `all` is true.
    pub(super) fn put_top(
        &self,
        (generation, epoch): (u64, u64),
        entries: impl IntoIterator<Item = (Vec<u8>, u32)>,
        all: bool,
    ) {
        let mut kept = self.kept_mut();
        if !kept.is_of(generation) {
            return;
        }
        if all {
            kept.clear();
        }
        for (low, unit) in entries {
            let bytes = size_of::<TopEntry>() + low.len();
            if kept.top.insert(low, TopEntry { unit, epoch }).is_none() {
                kept.bytes += bytes;
            }
        }
    }
}

impl Kept {
    /// Returns true if what came in a connection may be kept. What came in earlier ones is dropped
    /// then: another host may answer now.
    fn is_of(&mut self, generation: u64) -> bool {
        if generation > self.generation {
            self.clear();
            self.generation = generation;
        }
        generation == self.generation
    }

    fn clear(&mut self) {
        *self = Self { generation: self.generation, ..Self::default() };
    }

    fn top_entry(&self, key: &[u8]) -> Option<(&Vec<u8>, &TopEntry)> {
        let below = (Bound::Unbounded, Bound::Included(key));
        self.top.range::<[u8], _>(below).next_back()
    }

    /// The block that has the run of `key`.
    fn block(&self, key: &[u8]) -> Option<&Block> {
        let below = (Bound::Unbounded, Bound::Included(key));
        let (_, block) = self.blocks.range::<[u8], _>(below).next_back()?;
        block.covers(key).then_some(block)
    }

    fn remove(&mut self, low: &[u8]) {
        if let Some(block) = self.blocks.remove(low) {
            self.bytes -= block.bytes(low);
        }
    }

    /// Removes all blocks that may have a key from `low` to below `high`.
    fn remove_between(&mut self, low: &[u8], high: Option<&[u8]>) {
        let before = (Bound::Unbounded, Bound::Excluded(low));
        let before = self.blocks.range::<[u8], _>(before).next_back();
        let before = before.filter(|(_, block)| block.covers(low));
        let inside = (Bound::Included(low), high.map_or(Bound::Unbounded, Bound::Excluded));
        let inside = self.blocks.range::<[u8], _>(inside);
        let gone: Vec<Vec<u8>> =
            before.into_iter().chain(inside).map(|(low, _)| low.clone()).collect();
        gone.iter().for_each(|low| self.remove(low));
    }

    /// Pushes blocks out until at most `most` bytes are left. A hand goes round over the blocks,
    /// and takes those that were of no use since it came by last.
    fn evict(&mut self, most: usize) {
        while self.bytes > most && !self.blocks.is_empty() {
            let after = (Bound::Excluded(&self.hand[..]), Bound::Unbounded);
            let next = self.blocks.range::<[u8], _>(after).next().or(self.blocks.iter().next());
            let Some((low, block)) = next else { return };
            let (low, is_kept) = (low.clone(), block.is_used.swap(false, Ordering::Relaxed));
            if !is_kept {
                self.remove(&low);
            }
            self.hand = low;
        }
    }
}
