//! Buckets of fifteen slots and their overflow nodes: where keys and values lie, and the few
//! instructions for which a writer has a bucket to itself.
//!
//! Thread safety: readers take no lock and never retry. Invariants:
//!
//! 1. A slot holds one key for the whole life of its bucket. Removing clears the slot's `present`
//!    bit and leaves the key; inserting the key again sets the bit.
//! 2. A slot's key and value are written before its `used` bit is set, by a store-release of the
//!    header. A reader that sees the bit sees the key.
//! 3. Headers, values and links are written only by the holder of the bucket's lock bit. The
//!    headers of its overflow nodes are covered by that lock too.
//! 4. After the frozen bit is set nothing in the bucket or its nodes changes again.
//! 5. A node is linked once, as the last of its chain, and stays until the whole leaf is freed.
//!
//! A reader that finds a slot present reads the value and then looks at the header again: if the
//! key is present still, the value was its value at some moment in between, and if not, it was
//! absent then. Without the second look a value that is being inserted again could be seen too
//! early.
#![allow(unsafe_code, reason = "follows links and reads keys with vector instructions")]
#![cfg_attr(not(feature = "published"), allow(dead_code, reason = "for leaves of other kinds"))]

use rhumb_sync::{
    prefetch::{prefetch_address, prefetch_once},
    primitive::{AtomicPtr, AtomicU64, IS_MODEL, Ordering, in_models, spin_loop, thread},
};

use super::pool::Zeroed;
use crate::{entry::Entry, op::Blocked, simd};

/// Slots of a bucket: with the header and the link, fifteen keys and fifteen values are 256 bytes,
/// and the header and the keys two cache lines.
pub(crate) const BUCKET_SLOTS: usize = in_models(15, 4);
/// Slots of an overflow node: with the header and the link, 128 bytes.
pub(crate) const NODE_SLOTS: usize = in_models(7, 2);

/// The first of the used bits of a header; the present bits are from 0 on.
pub(crate) const USED_SHIFT: u32 = 16;
/// Set in a bucket's header while a thread writes the bucket.
pub(crate) const LOCKED: u64 = 1 << 62;
/// Set in a bucket's header when the bucket never changes again.
pub(crate) const FROZEN: u64 = 1 << 63;

/// A thread looks this many times at a lock bit before it lets others run. Chosen, not measured: 64
/// looks take one to three microseconds, and the bit is held for some tens of nanoseconds unless
/// its thread was stopped.
pub(crate) const SPINS: u32 = 64;

/// Slots with their header: a bucket or an overflow node, and what other kinds of leaves are made
/// of. Keys first, so that a search reads the first half only. `A` is a word that belongs to all
/// slots.
#[repr(C, align(128))]
pub(crate) struct Slots<const N: usize, A> {
    /// Present bits, used bits, and for buckets the lock and frozen bits.
    pub(crate) header: AtomicU64,
    pub(crate) keys: [AtomicU64; N],
    pub(crate) extra: A,
    pub(crate) values: [AtomicU64; N],
}

/// The next overflow node.
pub(crate) struct NodeLink(AtomicPtr<OverflowNode>);

/// 256 bytes; arenas align them to that.
pub(crate) type Bucket = Slots<BUCKET_SLOTS, NodeLink>;
/// 128 bytes.
pub(crate) type OverflowNode = Slots<NODE_SLOTS, NodeLink>;

const _: () = assert!(IS_MODEL || (size_of::<Bucket>() == 256 && size_of::<OverflowNode>() == 128));

/// The bucket will not change any more: its leaf is being replaced.
#[derive(Debug)]
pub(crate) struct Frozen;

#[inline]
pub(crate) fn present(header: u64) -> u32 {
    header as u32 & 0x7fff
}

#[inline]
pub(crate) fn used(header: u64) -> u32 {
    (header >> USED_SHIFT) as u32 & 0x7fff
}

// SAFETY: a link is an atomic pointer.
unsafe impl Zeroed for NodeLink {
    fn zero() -> Self {
        Self(Zeroed::zero())
    }
}

// SAFETY: slots are atomics, for which all zeroes are vacant slots, and are aligned to 128.
unsafe impl<const N: usize, A: Zeroed> Zeroed for Slots<N, A> {
    fn zero() -> Self {
        let zeroes = || std::array::from_fn(|_| AtomicU64::zero());
        Self { header: AtomicU64::zero(), keys: zeroes(), extra: A::zero(), values: zeroes() }
    }
}

impl<const N: usize, A> Slots<N, A> {
    /// The slots that hold `word`, among those whose bits are in `among`.
    #[inline(always)]
    pub(crate) fn matching(&self, word: u64, among: u32) -> u32 {
        // SAFETY: the header and N words, 7 or 15, lie one after the other from the start of the
        // slots, which are aligned to 128.
        unsafe { simd::equal::<N>(std::ptr::from_ref(self).cast(), word) & among }
    }

    /// Looks up `word` in these slots: the result of `read` for the slot that it accepts.
    #[inline(always)]
    pub(crate) fn get_here(&self, word: u64, read: &impl Fn(u64) -> Option<u64>) -> SlotLookup {
        self.get_among(word, self.header.load(Ordering::Acquire), read)
    }

    /// [`Slots::get_here`] among the slots that are present by `header`, which was the header a
    /// moment ago.
    #[inline(always)]
    pub(crate) fn get_among(
        &self,
        word: u64,
        header: u64,
        read: &impl Fn(u64) -> Option<u64>,
    ) -> SlotLookup {
        let mut hits = self.matching(word, present(header));
        while hits != 0 {
            let slot = hits.trailing_zeros() as usize;
            if let Some(value) = read(self.values[slot].load(Ordering::Acquire)) {
                let again = self.header.load(Ordering::Acquire);
                return if present(again) & 1 << slot != 0 {
                    SlotLookup::Found(value)
                } else {
                    SlotLookup::Absent
                };
            }
            hits &= hits - 1;
        }
        SlotLookup::Elsewhere
    }

    /// Calls `visit` with the key and value of each present slot.
    #[inline(always)]
    pub(crate) fn for_each_here(&self, visit: &mut impl FnMut(u64, u64)) {
        let before = present(self.header.load(Ordering::Acquire));
        let values: [u64; N] =
            std::array::from_fn(|slot| self.values[slot].load(Ordering::Acquire));
        // As for a single key: a slot that is still present had its value in between.
        let mut bits = before & present(self.header.load(Ordering::Acquire));
        while bits != 0 {
            let slot = bits.trailing_zeros() as usize;
            visit(self.keys[slot].load(Ordering::Relaxed), values[slot]);
            bits &= bits - 1;
        }
    }

    /// Calls `visit` with the value of each slot that was ever used and is not present.
    pub(crate) fn for_each_dead_here(&self, visit: &mut impl FnMut(u64)) {
        let header = self.header.load(Ordering::Acquire);
        let mut bits = used(header) & !present(header);
        while bits != 0 {
            visit(self.values[bits.trailing_zeros() as usize].load(Ordering::Acquire));
            bits &= bits - 1;
        }
    }

    pub(crate) fn slot(
        &self,
        word: u64,
        header: u64,
        is_same: &impl Fn(u64) -> bool,
    ) -> Option<usize> {
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
    pub(crate) fn vacant(header: u64) -> Option<usize> {
        let slot = used(header).trailing_ones() as usize;
        (slot < N).then_some(slot)
    }

    /// Takes the lock bit. Returns the header without it, which is to be stored.
    #[inline]
    pub(crate) fn take_lock(&self) -> Result<u64, Frozen> {
        let mut looks = 0;
        loop {
            let header = self.header.load(Ordering::Relaxed);
            if header & FROZEN != 0 {
                return Err(Frozen);
            }
            if header & LOCKED == 0 {
                let (ok, failed) = (Ordering::Acquire, Ordering::Relaxed);
                if self.header.compare_exchange_weak(header, header | LOCKED, ok, failed).is_ok() {
                    return Ok(header);
                }
            }
            looks += 1;
            if looks % SPINS == 0 { thread::yield_now() } else { spin_loop() }
        }
    }

    pub(crate) fn put(&self, slot: usize, word: u64, value: u64) {
        self.keys[slot].store(word, Ordering::Relaxed);
        self.values[slot].store(value, Ordering::Release);
    }
}

impl<const N: usize> Slots<N, NodeLink> {
    #[inline]
    fn next(&self) -> *mut OverflowNode {
        self.extra.0.load(Ordering::Acquire)
    }
}

pub(crate) fn bits(slot: usize) -> u64 {
    1 << slot | 1 << (USED_SHIFT as usize + slot)
}

pub(crate) enum SlotLookup {
    Found(u64),
    /// The key's slot is here, and it is not present.
    Absent,
    Elsewhere,
}

/// The overflow nodes of a bucket. The leaf that owns them is not freed while they are borrowed.
struct Chain<'a>(*mut OverflowNode, std::marker::PhantomData<&'a OverflowNode>);

impl<'a> Iterator for Chain<'a> {
    type Item = &'a OverflowNode;

    #[inline]
    fn next(&mut self) -> Option<&'a OverflowNode> {
        // SAFETY: links lead to nodes of the same leaf or nowhere (invariant 5), and the leaf
        // outlives the borrow that the chain was made with.
        let node = unsafe { self.0.as_ref() }?;
        self.0 = node.next();
        Some(node)
    }
}

impl Bucket {
    /// Prefetches all lines of the bucket.
    #[inline(always)]
    pub(crate) fn prefetch(bucket: *const Self) {
        for line in 0..4 {
            prefetch_address(bucket.cast::<u8>().wrapping_add(64 * line));
        }
    }

    /// Prefetches all lines of the bucket, which will be read once.
    #[inline(always)]
    pub(crate) fn prefetch_once(bucket: *const Self) {
        for line in 0..4 {
            prefetch_once(bucket.cast::<u8>().wrapping_add(64 * line));
        }
    }

    /// Prefetches the first overflow node of the bucket, whose own lines are already in the cache.
    #[inline]
    pub(crate) fn prefetch_behind(&self) {
        let node = self.next();
        if !node.is_null() {
            prefetch_address(node);
            prefetch_address(node.wrapping_byte_add(64));
        }
    }

    #[inline]
    fn chain(&self) -> Chain<'_> {
        Chain(self.next(), std::marker::PhantomData)
    }

    /// The value of the key whose word is `word`. `read` returns it for the key's slot, and nothing
    /// for the slots of other keys with the same word. Never waits.
    #[inline(always)]
    pub(crate) fn get(&self, word: u64, read: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        match self.get_here(word, &read) {
            SlotLookup::Found(value) => Some(value),
            SlotLookup::Absent => None,
            SlotLookup::Elsewhere => {
                let node = self.next();
                if node.is_null() { None } else { Self::get_behind(node, word, read) }
            }
        }
    }

    #[cold]
    fn get_behind(
        node: *mut OverflowNode,
        word: u64,
        read: impl Fn(u64) -> Option<u64>,
    ) -> Option<u64> {
        for node in Chain(node, std::marker::PhantomData) {
            match node.get_here(word, &read) {
                SlotLookup::Found(value) => return Some(value),
                SlotLookup::Absent => return None,
                SlotLookup::Elsewhere => {}
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

    /// The number of slots that were ever used, and of keys that are present. Never waits.
    pub(crate) fn count(&self) -> (usize, usize) {
        let of = |header: u64| (used(header).count_ones(), present(header).count_ones());
        let (mut all, mut here) = of(self.header.load(Ordering::Relaxed));
        for node in self.chain() {
            let (of_used, of_present) = of(node.header.load(Ordering::Relaxed));
            (all, here) = (all + of_used, here + of_present);
        }
        (all as usize, here as usize)
    }

    /// Appends the present keys in ascending order. Words must be different, as those of integers
    /// are. Never waits.
    #[inline(always)]
    pub(crate) fn append_ascending(&self, out: &mut Vec<Entry>) {
        let header = self.header.load(Ordering::Acquire);
        let start = out.len();
        let all = present(header);
        // Slots are filled from the first on, and those of a new bucket in the order of keys.
        let run = all & self.ascending(used(header));
        let entry = |slot: usize| Entry {
            word: self.keys[slot].load(Ordering::Relaxed),
            value: self.values[slot].load(Ordering::Acquire),
        };
        if run & (run + 1) == 0 {
            // Writes all slots, because the processor could not predict how many are in use.
            out.reserve(BUCKET_SLOTS);
            for (slot, room) in out.spare_capacity_mut()[..BUCKET_SLOTS].iter_mut().enumerate() {
                room.write(entry(slot));
            }
            // SAFETY: at least this many entries were written just now.
            unsafe { out.set_len(start + run.trailing_ones() as usize) };
        } else {
            out.extend(Slotted(run).map(entry));
        }
        let rest = all & !run;
        if rest != 0 {
            self.merge(out, start, rest, all);
        }
        // As for a single key: a slot that is still present had its value in between.
        let gone = all & !present(self.header.load(Ordering::Acquire));
        if gone != 0 || !self.next().is_null() {
            self.amend(out, start, gone);
        }
    }

    /// Merges the keys of `rest`, some of the slots `all`, into those of the other slots, which
    /// ascend from `start` on. Without a branch on keys, which the processor could not predict.
    fn merge(&self, out: &mut Vec<Entry>, start: usize, rest: u32, all: u32) {
        let none = Entry { word: 0, value: 0 };
        let (mut late, mut late_places) = ([(0, none); BUCKET_SLOTS], 0_u32);
        let len = all.count_ones() as usize;
        let mut late_len = 0;
        for slot in Slotted(rest) {
            let word = self.keys[slot].load(Ordering::Relaxed);
            let value = self.values[slot].load(Ordering::Acquire);
            // SAFETY: a bucket is a header and the keys' words, aligned.
            let above = unsafe { simd::count_above::<BUCKET_SLOTS>(self.words(), word, all) };
            let place = len - 1 - above;
            late[late_len] = (place, Entry { word, value });
            late_places |= 1 << place;
            late_len += 1;
        }
        let mut early = out.len() - start;
        out.resize(start + len, none);
        let places = &mut out[start..];
        for place in (0..len).rev() {
            places[place] = places[early.saturating_sub(1)];
            early -= usize::from(late_places & 1 << place == 0);
        }
        for (place, entry) in &late[..late_len] {
            places[*place] = *entry;
        }
    }

    /// Takes slots out of the entries from `start` on and merges those of the nodes into them.
    #[cold]
    fn amend(&self, out: &mut Vec<Entry>, start: usize, gone: u32) {
        for slot in Slotted(gone) {
            let word = self.keys[slot].load(Ordering::Relaxed);
            out.retain(|entry| entry.word != word);
        }
        for node in self.chain() {
            node.for_each_here(&mut |word, value| {
                let at = out[start..].partition_point(|entry| entry.word < word);
                out.insert(start + at, Entry { word, value });
            });
        }
    }

    /// The slots, of those in use from the first on, whose keys ascend.
    #[inline(always)]
    fn ascending(&self, used: u32) -> u32 {
        // SAFETY: a bucket is a header, its keys' words and as many words again, aligned.
        let descents = unsafe { simd::descents::<BUCKET_SLOTS>(self.words()) };
        let last = used.trailing_ones().saturating_sub(1);
        let len = (descents | 1 << last).trailing_zeros() + 1;
        (1 << len) - 1
    }

    /// The header and the keys.
    #[inline(always)]
    fn words(&self) -> *const AtomicU64 {
        std::ptr::from_ref(self).cast()
    }

    /// Calls `visit` with the value of each slot that holds a removed key.
    pub(crate) fn for_each_dead(&self, mut visit: impl FnMut(u64)) {
        self.for_each_dead_here(&mut visit);
        for node in self.chain() {
            node.for_each_dead_here(&mut visit);
        }
    }

    /// Takes the bucket's lock bit, which other threads hold for a few instructions only.
    #[inline]
    pub(crate) fn lock(&self) -> Result<Locked<'_>, Frozen> {
        Ok(Locked { bucket: self, header: self.take_lock()? })
    }

    /// The bucket as if it were locked, for a leaf that no other thread can reach yet.
    #[inline]
    pub(crate) fn unshared(&self) -> Locked<'_> {
        Locked { bucket: self, header: self.header.load(Ordering::Relaxed) }
    }

    /// Puts `len` ascending keys with their values into the bucket, which is empty and which no
    /// other thread can reach yet. If `has_more`, then `entry` knows [`BUCKET_SLOTS`] of them in
    /// any case.
    #[inline(always)]
    pub(crate) fn fill<'a>(
        &'a self,
        len: usize,
        has_more: bool,
        entry: impl Fn(usize) -> (u64, u64),
        mut new_node: impl FnMut() -> Option<&'a OverflowNode>,
    ) -> Result<(), NoRoom> {
        let put = |slot| {
            let (word, value) = entry(slot);
            self.put(slot, word, value);
        };
        let here = len.min(BUCKET_SLOTS);
        if has_more {
            // The content of slots that are not in use does not matter, and the processor could not
            // predict how many are in use.
            (0..BUCKET_SLOTS).for_each(put);
        } else {
            (0..here).for_each(put);
        }
        let all = (1 << here) - 1;
        self.header.store(all | all << USED_SHIFT, Ordering::Release);
        for (word, value) in (here..len).map(entry) {
            self.unshared().add(word, value, &mut new_node)?;
        }
        Ok(())
    }

    /// Makes the bucket unchangeable.
    pub(crate) fn freeze(&self) {
        if let Ok(mut locked) = self.lock() {
            locked.header |= FROZEN;
        }
    }
}

/// The slots of a set, from the first on.
struct Slotted(u32);

impl Iterator for Slotted {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let slot = self.0.trailing_zeros() as usize;
        self.0 &= self.0.wrapping_sub(1);
        (slot < BUCKET_SLOTS).then_some(slot)
    }
}

/// A bucket whose lock bit the current thread holds; dropping it publishes the changes.
pub(crate) struct Locked<'a> {
    bucket: &'a Bucket,
    /// The header that dropping this stores.
    header: u64,
}

/// The slot of a key.
pub(crate) struct KeySlot<'a> {
    node: Option<&'a OverflowNode>,
    slot: usize,
    /// True if the key is present, rather than removed.
    pub(crate) is_present: bool,
}

/// The number of the bucket's nodes after something was added, or that there was no room.
pub(crate) type Added = Result<usize, NoRoom>;

/// The leaf has no overflow node left.
pub(crate) struct NoRoom;

impl<'a> Locked<'a> {
    /// The slot that the key has or had.
    #[inline(always)]
    pub(crate) fn find(&self, word: u64, is_same: impl Fn(u64) -> bool) -> Option<KeySlot<'a>> {
        if let Some(slot) = self.bucket.slot(word, self.header, &is_same) {
            let is_present = present(self.header) & 1 << slot != 0;
            return Some(KeySlot { node: None, slot, is_present });
        }
        self.bucket.chain().find_map(|node| {
            let header = node.header.load(Ordering::Relaxed);
            let slot = node.slot(word, header, &is_same)?;
            Some(KeySlot { node: Some(node), slot, is_present: present(header) & 1 << slot != 0 })
        })
    }

    /// The value of a spot.
    #[inline]
    pub(crate) fn value(&self, spot: &KeySlot<'a>) -> &'a AtomicU64 {
        match spot.node {
            None => &self.bucket.values[spot.slot],
            Some(node) => &node.values[spot.slot],
        }
    }

    /// Returns true if every slot of the bucket itself was used.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        Bucket::vacant(self.header).is_none()
    }

    /// Returns true if no slot of the bucket was ever used.
    #[inline]
    pub(crate) fn is_vacant(&self) -> bool {
        used(self.header) == 0
    }

    /// The greatest word that the bucket or one of its nodes ever held; 0 if none.
    pub(crate) fn greatest_word(&self) -> u64 {
        let of = |keys: &[AtomicU64], slots: u32| {
            Slotted(slots).map(|slot| keys[slot].load(Ordering::Relaxed)).max().unwrap_or(0)
        };
        let behind = self
            .bucket
            .chain()
            .map(|node| of(&node.keys, used(node.header.load(Ordering::Relaxed))));
        behind.max().unwrap_or(0).max(of(&self.bucket.keys, used(self.header)))
    }

    /// Makes the key of a spot present or absent.
    pub(crate) fn set_present(&mut self, spot: &KeySlot<'a>, is_present: bool) {
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
        new_node: impl FnOnce() -> Option<&'a OverflowNode>,
    ) -> Added {
        if let Some(slot) = Bucket::vacant(self.header) {
            self.bucket.put(slot, word, value);
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
        new_node: impl FnOnce() -> Option<&'a OverflowNode>,
    ) -> Added {
        let (mut len, mut link) = (0, &self.bucket.extra.0);
        for node in self.bucket.chain() {
            len += 1;
            link = &node.extra.0;
            let header = node.header.load(Ordering::Relaxed);
            if let Some(slot) = OverflowNode::vacant(header) {
                node.put(slot, word, value);
                node.header.store(header | bits(slot), Ordering::Release);
                return Ok(len);
            }
        }
        let node = new_node().ok_or(NoRoom)?;
        node.put(0, word, value);
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

impl From<Frozen> for Blocked {
    fn from(_: Frozen) -> Self {
        Self::Frozen
    }
}
