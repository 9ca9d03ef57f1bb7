//! Buckets of fifteen slots and the overflow nodes behind them: where keys and values lie, and the
//! few instructions for which a writer has a bucket to itself.
//!
//! Thread safety: readers take no lock and never retry. Invariants:
//!
//! 1. A slot holds one key for the whole life of its bucket. Removing clears the slot's `present`
//!    bit and leaves the key; inserting the key again sets the bit.
//! 2. A slot's key and value are written before its `used` bit is set, by a store-release of the
//!    header. Whoever sees the bit sees the key.
//! 3. Headers, values and links are written only by the holder of the bucket's lock bit. The
//!    headers of its overflow nodes are covered by that lock too.
//! 4. After the frozen bit is set nothing in the bucket or its nodes changes again.
//! 5. A node is linked once, as the last of its chain, and stays until the whole leaf is freed.
//!
//! A reader that finds a slot present reads the value and then looks at the header again: if the key
//! is present still, the value was its value at some moment in between, and if not, it was absent
//! then. Without the second look a value that is being inserted again could be seen too early.
#![allow(unsafe_code, reason = "follows links and reads keys with vector instructions")]

use super::simd;
use crate::sync::{
    prefetch::prefetch_address,
    primitive::{AtomicPtr, AtomicU64, IS_MODEL, Ordering, in_models, spin_loop, thread},
};

/// Slots of a bucket.
pub(crate) const BUCKET_SLOTS: usize = in_models(15, 4);
/// Slots of an overflow node.
pub(crate) const NODE_SLOTS: usize = in_models(7, 2);

const USED_SHIFT: u32 = 16;
const LOCKED: u64 = 1 << 62;
const FROZEN: u64 = 1 << 63;

/// So many looks at a lock bit before the thread lets others run.
const SPINS: u32 = 64;

/// Slots with their header: a bucket or an overflow node. Keys first, so that a search reads the
/// first half only.
#[repr(C, align(128))]
pub(crate) struct Slots<const N: usize> {
    /// Present bits, used bits, and for buckets the lock and frozen bits.
    header: AtomicU64,
    keys: [AtomicU64; N],
    next: AtomicPtr<Node>,
    values: [AtomicU64; N],
}

/// 256 bytes; arenas align them to that.
pub(crate) type Bucket = Slots<BUCKET_SLOTS>;
/// 128 bytes.
pub(crate) type Node = Slots<NODE_SLOTS>;

const _: () = assert!(IS_MODEL || (size_of::<Bucket>() == 256 && size_of::<Node>() == 128));

/// The bucket will not change any more: its leaf is being replaced.
#[derive(Debug)]
pub(crate) struct Frozen;

#[inline]
fn present(header: u64) -> u32 {
    header as u32 & 0x7fff
}

#[inline]
fn used(header: u64) -> u32 {
    (header >> USED_SHIFT) as u32 & 0x7fff
}

impl<const N: usize> Slots<N> {
    /// Makes `len` of them, empty, from `first` on.
    ///
    /// # Safety
    /// The memory is the caller's, long enough, and aligned.
    pub(crate) unsafe fn make_empty(first: *mut Self, len: usize) {
        if !IS_MODEL {
            // SAFETY: the caller's promise; zeroes are what `empty` makes.
            return unsafe { first.write_bytes(0, len) };
        }
        for i in 0..len {
            // SAFETY: the caller's promise.
            unsafe { first.add(i).write(Self::empty()) };
        }
    }

    pub(crate) fn empty() -> Self {
        let zeroes = || std::array::from_fn(|_| AtomicU64::new(0));
        let (header, next) = (AtomicU64::new(0), AtomicPtr::new(std::ptr::null_mut()));
        Self { header, keys: zeroes(), next, values: zeroes() }
    }

    /// Which slots hold `word`, among those whose bits are in `among`.
    #[inline(always)]
    fn matching(&self, word: u64, among: u32) -> u32 {
        // SAFETY: the header and N words, 7 or 15, lie one behind the other from the start of the
        // slots, which are aligned to 128.
        unsafe { simd::equal::<N>(std::ptr::from_ref(self).cast(), word) & among }
    }

    /// What `read` makes of the slot of `word` that it accepts.
    #[inline(always)]
    fn get_here(&self, word: u64, read: &impl Fn(u64) -> Option<u64>) -> Lookup {
        let header = self.header.load(Ordering::Acquire);
        let mut hits = self.matching(word, present(header));
        while hits != 0 {
            let slot = hits.trailing_zeros() as usize;
            if let Some(value) = read(self.values[slot].load(Ordering::Acquire)) {
                let again = self.header.load(Ordering::Acquire);
                return if present(again) & 1 << slot != 0 {
                    Lookup::Found(value)
                } else {
                    Lookup::Absent
                };
            }
            hits &= hits - 1;
        }
        Lookup::Elsewhere
    }

    /// Calls `visit` with the key and value of each present slot.
    #[inline(always)]
    fn for_each_here(&self, visit: &mut impl FnMut(u64, u64)) {
        let before = present(self.header.load(Ordering::Acquire));
        let values: [u64; N] =
            std::array::from_fn(|slot| self.values[slot].load(Ordering::Acquire));
        // As for a single key: what is present still had its value in between.
        let mut bits = before & present(self.header.load(Ordering::Acquire));
        while bits != 0 {
            let slot = bits.trailing_zeros() as usize;
            visit(self.keys[slot].load(Ordering::Relaxed), values[slot]);
            bits &= bits - 1;
        }
    }

    /// Calls `visit` with the value of each slot that was ever used and is not present.
    fn for_each_dead_here(&self, visit: &mut impl FnMut(u64)) {
        let header = self.header.load(Ordering::Acquire);
        let mut bits = used(header) & !present(header);
        while bits != 0 {
            visit(self.values[bits.trailing_zeros() as usize].load(Ordering::Acquire));
            bits &= bits - 1;
        }
    }

    #[inline]
    fn next(&self) -> *mut Node {
        self.next.load(Ordering::Acquire)
    }

    fn slot(&self, word: u64, header: u64, is_same: &impl Fn(u64) -> bool) -> Option<usize> {
        let mut hits = self.matching(word, used(header));
        while hits != 0 {
            let slot = hits.trailing_zeros() as usize;
            if is_same(self.values[slot].load(Ordering::Relaxed)) {
                return Some(slot);
            }
            hits &= hits - 1;
        }
        None
    }

    /// The first slot never used.
    fn vacant(header: u64) -> Option<usize> {
        let slot = used(header).trailing_ones() as usize;
        (slot < N).then_some(slot)
    }

    fn fill(&self, slot: usize, word: u64, value: u64) {
        self.keys[slot].store(word, Ordering::Relaxed);
        self.values[slot].store(value, Ordering::Release);
    }
}

fn bits(slot: usize) -> u64 {
    1 << slot | 1 << (USED_SHIFT as usize + slot)
}

enum Lookup {
    Found(u64),
    /// The key's slot is here, and it is not present.
    Absent,
    Elsewhere,
}

/// The nodes behind a bucket. The leaf that owns them is not freed while they are borrowed.
struct Chain<'a>(*mut Node, std::marker::PhantomData<&'a Node>);

impl<'a> Iterator for Chain<'a> {
    type Item = &'a Node;

    #[inline]
    fn next(&mut self) -> Option<&'a Node> {
        // SAFETY: links lead to nodes of the same leaf or nowhere (invariant 5), and the leaf outlives
        // the borrow that the chain was made with.
        let node = unsafe { self.0.as_ref() }?;
        self.0 = node.next();
        Some(node)
    }
}

impl Bucket {
    /// Asks for all lines of the bucket.
    #[inline(always)]
    pub(crate) fn prefetch(bucket: *const Self) {
        for line in 0..4 {
            prefetch_address(bucket.cast::<u8>().wrapping_add(64 * line));
        }
    }

    #[inline]
    fn chain(&self) -> Chain<'_> {
        Chain(self.next(), std::marker::PhantomData)
    }

    /// The value of the key whose word is `word`: what `read` makes of its slot, and nothing of the
    /// slots of other keys with the same word. Never waits.
    #[inline(always)]
    pub(crate) fn get(&self, word: u64, read: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        match self.get_here(word, &read) {
            Lookup::Found(value) => Some(value),
            Lookup::Absent => None,
            Lookup::Elsewhere => {
                let node = self.next();
                if node.is_null() { None } else { Self::get_behind(node, word, read) }
            }
        }
    }

    #[cold]
    fn get_behind(node: *mut Node, word: u64, read: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        for node in Chain(node, std::marker::PhantomData) {
            match node.get_here(word, &read) {
                Lookup::Found(value) => return Some(value),
                Lookup::Absent => return None,
                Lookup::Elsewhere => {}
            }
        }
        None
    }

    /// Calls `visit` with the word and value of each present key, in no order. Never waits.
    #[inline]
    pub(crate) fn for_each(&self, mut visit: impl FnMut(u64, u64)) {
        self.for_each_here(&mut visit);
        for node in self.chain() {
            node.for_each_here(&mut visit);
        }
    }

    /// Calls `visit` with each present key and its rank; not at all, and returns none, if there are nodes
    /// behind the bucket. Words must be different, as those of integers are. Never waits.
    #[inline(always)]
    pub(crate) fn for_each_ranked(&self, mut visit: impl FnMut(Rank)) -> Option<()> {
        let before = present(self.header.load(Ordering::Acquire));
        if !self.next().is_null() {
            return None;
        }
        let values: [u64; BUCKET_SLOTS] =
            std::array::from_fn(|slot| self.values[slot].load(Ordering::Acquire));
        let all = before & present(self.header.load(Ordering::Acquire));
        let mut bits = all;
        while bits != 0 {
            let slot = bits.trailing_zeros() as usize;
            let word = self.keys[slot].load(Ordering::Relaxed);
            // SAFETY: a bucket is a header and the keys' words, aligned.
            let above =
                unsafe { simd::above::<BUCKET_SLOTS>(std::ptr::from_ref(self).cast(), word) };
            let above = above & all;
            let (of, above) = (all.count_ones() as usize, above.count_ones() as usize);
            visit(Rank { of, above, word, value: values[slot] });
            bits &= bits - 1;
        }
        Some(())
    }

    /// Calls `visit` with the value of each slot that holds a removed key.
    pub(crate) fn for_each_dead(&self, mut visit: impl FnMut(u64)) {
        self.for_each_dead_here(&mut visit);
        for node in self.chain() {
            node.for_each_dead_here(&mut visit);
        }
    }

    /// Takes the bucket's lock bit, which others hold for some instructions only.
    #[inline]
    pub(crate) fn lock(&self) -> Result<Locked<'_>, Frozen> {
        let mut looks = 0;
        loop {
            let header = self.header.load(Ordering::Relaxed);
            if header & FROZEN != 0 {
                return Err(Frozen);
            }
            if header & LOCKED == 0 {
                let (ok, failed) = (Ordering::Acquire, Ordering::Relaxed);
                if self.header.compare_exchange_weak(header, header | LOCKED, ok, failed).is_ok() {
                    return Ok(Locked { bucket: self, header });
                }
            }
            looks += 1;
            if looks % SPINS == 0 { thread::yield_now() } else { spin_loop() }
        }
    }

    /// The bucket as if it were locked, for a leaf that no other thread can reach yet.
    #[inline]
    pub(crate) fn unshared(&self) -> Locked<'_> {
        Locked { bucket: self, header: self.header.load(Ordering::Relaxed) }
    }

    /// Makes the bucket unchangeable.
    pub(crate) fn freeze(&self) {
        if let Ok(mut locked) = self.lock() {
            locked.header |= FROZEN;
        }
    }
}

/// A present key among those of its bucket.
pub(crate) struct Rank {
    /// How many keys are present.
    pub(crate) of: usize,
    /// How many of them are above this one.
    pub(crate) above: usize,
    pub(crate) word: u64,
    pub(crate) value: u64,
}

/// A bucket whose lock bit the current thread holds; dropping it publishes the changes.
pub(crate) struct Locked<'a> {
    bucket: &'a Bucket,
    /// What the header becomes.
    header: u64,
}

/// Where a key is.
pub(crate) struct Spot<'a> {
    node: Option<&'a Node>,
    slot: usize,
    /// Whether the key is present, rather than removed.
    pub(crate) is_present: bool,
}

/// How many nodes are behind the bucket after something was added, or that there was no room.
pub(crate) type Added = Result<usize, NoRoom>;

/// The leaf has no overflow node left.
pub(crate) struct NoRoom;

impl<'a> Locked<'a> {
    /// Where the key is or was.
    #[inline]
    pub(crate) fn find(&self, word: u64, is_same: impl Fn(u64) -> bool) -> Option<Spot<'a>> {
        if let Some(slot) = self.bucket.slot(word, self.header, &is_same) {
            let is_present = present(self.header) & 1 << slot != 0;
            return Some(Spot { node: None, slot, is_present });
        }
        self.bucket.chain().find_map(|node| {
            let header = node.header.load(Ordering::Relaxed);
            let slot = node.slot(word, header, &is_same)?;
            Some(Spot { node: Some(node), slot, is_present: present(header) & 1 << slot != 0 })
        })
    }

    /// The value of a spot.
    #[inline]
    pub(crate) fn value(&self, spot: &Spot<'a>) -> &'a AtomicU64 {
        match spot.node {
            None => &self.bucket.values[spot.slot],
            Some(node) => &node.values[spot.slot],
        }
    }

    /// Makes the key of a spot present or absent.
    pub(crate) fn set_present(&mut self, spot: &Spot<'a>, is_present: bool) {
        let change = |header: u64| {
            if is_present { header | 1 << spot.slot } else { header & !(1 << spot.slot) }
        };
        match spot.node {
            None => self.header = change(self.header),
            Some(node) => {
                let header = change(node.header.load(Ordering::Relaxed));
                node.header.store(header, Ordering::Release);
            }
        }
    }

    /// Adds a key that [`Locked::find`] did not find. `new_node` yields an empty node.
    #[inline]
    pub(crate) fn add(
        &mut self,
        word: u64,
        value: u64,
        new_node: impl FnOnce() -> Option<&'a Node>,
    ) -> Added {
        if let Some(slot) = Slots::<BUCKET_SLOTS>::vacant(self.header) {
            self.bucket.fill(slot, word, value);
            self.header |= bits(slot);
            return Ok(0);
        }
        self.add_behind(word, value, new_node)
    }

    #[cold]
    fn add_behind(
        &mut self,
        word: u64,
        value: u64,
        new_node: impl FnOnce() -> Option<&'a Node>,
    ) -> Added {
        let (mut len, mut link) = (0, &self.bucket.next);
        for node in self.bucket.chain() {
            len += 1;
            link = &node.next;
            let header = node.header.load(Ordering::Relaxed);
            if let Some(slot) = Slots::<NODE_SLOTS>::vacant(header) {
                node.fill(slot, word, value);
                node.header.store(header | bits(slot), Ordering::Release);
                return Ok(len);
            }
        }
        let node = new_node().ok_or(NoRoom)?;
        node.fill(0, word, value);
        node.header.store(bits(0), Ordering::Relaxed);
        link.store(std::ptr::from_ref(node).cast_mut(), Ordering::Release);
        Ok(len + 1)
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        self.bucket.header.store(self.header, Ordering::Release);
    }
}
