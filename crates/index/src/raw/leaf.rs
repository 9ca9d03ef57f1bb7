//! Leaves: a run of buckets, the address by which a word finds its bucket, and the overflow nodes
//! of the run.
//!
//! Thread safety: what a leaf is addressed by never changes, except that buckets are opened after
//! the others. Invariants:
//!
//! 1. Buckets and nodes live as long as their leaf; a leaf is freed only when no thread can hold
//!    it.
//! 2. Each node is handed out once.
//! 3. Keys of a bucket are below the keys of the next: addresses are monotone.
//! 4. A bucket is opened by the thread that holds the lock of the bucket before it, for words above
//!    all that the earlier bucket ever held: no key that has a slot changes its bucket. After it
//!    has taken the lock, a writer checks again that the bucket is the key's.
//! 5. In mode [`AddressMode::Pivots`] the pivot root has a word for each pivot block, and no word
//!    above these is taken for a pivot block's. The pivot blocks together have no more places than
//!    there are buckets. So a word always names a pivot block and a bucket that exist.
#![allow(unsafe_code, reason = "buckets lie in blocks of an arena")]

use std::{marker::PhantomData, ptr::NonNull};

use rhumb_sync::{
    arena::{ALIGN, Arena},
    prefetch::{prefetch, prefetch_address},
    primitive::{AtomicBool, AtomicU32, AtomicU64, Lifetime, Ordering, in_models},
};

use super::{
    bucket::{Bucket, Locked, OverflowNode},
    noted::Noted,
    pool::{PiecePool, Zeroed},
    schema::{KeyProbe, Schema},
};
use crate::address::{
    BucketLine, PivotBlock, PivotRoot, Pivots, capped, find_pivot_block, word_behind,
};

/// The most overflow nodes of a leaf. Chosen, not measured: 64 KiB of nodes; a leaf of 333 buckets,
/// the most that 3000 keys take at nine each, is retrained at 139 nodes at the latest.
pub(crate) const NODES_MAX: usize = in_models(512, 8);

/// The fullness thresholds, in overflow nodes for 64 buckets: for each one that a leaf exceeds, the
/// next leaf like it gets another fifth of its buckets. Chosen, not measured: at three nodes one
/// bucket in twenty has overflown, at ten the leaf is about to be retrained.
const FULLNESS: [usize; 2] = [3, 10];

/// The jitter halfway between the least and the most.
const JITTER_EVEN: u8 = 1 << 7;

/// The way in which a leaf's buckets are addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum AddressMode {
    /// By a line.
    Line,
    /// By their lowest words.
    Pivots,
    /// By their lowest keys, whole: for byte strings too many of which share a word.
    Whole,
    /// By their lowest words, with more buckets opened as keys are appended: for keys appended
    /// where no line predicts the next ones.
    Open,
}

/// The address of a new leaf.
pub(crate) enum BucketAddress {
    Line(BucketLine),
    Pivots(Pivots),
    Whole(Box<[Box<[u8]>]>),
    /// The lowest words of the first buckets, ascending; the others are opened later.
    Open(Vec<u64>),
}

/// The lowest words of the buckets that are open.
struct OpenStarts {
    /// The number of open buckets.
    open: AtomicU32,
    words: Box<[AtomicU64]>,
}

impl OpenStarts {
    /// `lowest` ascends; its first word counts as 0.
    fn new(lowest: &[u64], len: usize) -> Self {
        let word = |place: usize| match place {
            0 => 0,
            _ => lowest.get(place).map_or(0, |word| capped(*word)),
        };
        let words = (0..len).map(|place| AtomicU64::new(word(place))).collect();
        Self { open: AtomicU32::new(lowest.len().max(1) as u32), words }
    }

    #[inline]
    fn len(&self) -> usize {
        self.open.load(Ordering::Acquire) as usize
    }

    /// The open place of a word. Keys that are appended take one comparison, others O(log n).
    #[inline]
    fn place(&self, word: u64) -> usize {
        let (len, word) = (self.len(), capped(word));
        let is_up_to = |start: &AtomicU64| start.load(Ordering::Relaxed) <= word;
        match self.words.get(len - 1) {
            Some(last) if !is_up_to(last) => self.words[..len].partition_point(is_up_to) - 1,
            _ => len - 1,
        }
    }
}

/// The address of buckets in the modes that use neither a line nor pivots.
enum BucketPlaces {
    Whole(Box<[Box<[u8]>]>),
    Open(OpenStarts),
}

/// The shortcut to a leaf's buckets: its line, and where the buckets are, before which its pivot
/// blocks lie. A copy of it (and of the leaf's pivot root, if it has pivot blocks) is enough to
/// find a bucket without reading the leaf.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Shortcut {
    line: BucketLine,
    buckets: NonNull<Bucket>,
}

impl Shortcut {
    #[inline(always)]
    fn prefetch_once(&self, at: usize, count: usize) {
        let first = self.buckets.as_ptr().wrapping_add(at);
        (0..count).for_each(|i| Bucket::prefetch_once(first.wrapping_add(i)));
    }

    /// Pivot blocks lie before the buckets, the first one last.
    #[inline(always)]
    fn pivot_block_address(&self, at: usize) -> *mut PivotBlock {
        self.buckets.as_ptr().cast::<PivotBlock>().wrapping_sub(at + 1)
    }

    /// # Safety
    /// The leaf that the shortcut is of lives for `'a`, and has such a pivot block.
    #[inline(always)]
    unsafe fn pivot_block<'a>(&self, at: usize) -> &'a PivotBlock {
        // SAFETY: it was written when the leaf was made, and never changes.
        unsafe { &*self.pivot_block_address(at) }
    }
}

/// The way to the buckets of a leaf that lives for `'g`.
#[derive(Clone, Copy)]
pub(crate) enum BucketWay<'g> {
    /// Through the leaf itself.
    Leaf,
    Line(ByLine<'g>),
    Pivots(ByPivots<'g>),
}

impl<'g> BucketWay<'g> {
    /// # Safety
    /// The leaf that the shortcut is of lives for `'g`, and has a line.
    #[inline(always)]
    pub(super) unsafe fn by_line(shortcut: Shortcut) -> Self {
        Self::Line(ByLine(shortcut, PhantomData))
    }

    /// # Safety
    /// The leaf that the shortcut and the pivot root are of lives for `'g`, and has pivot blocks.
    #[inline(always)]
    pub(super) unsafe fn by_pivots(shortcut: Shortcut, pivot_root: &'g PivotRoot) -> Self {
        Self::Pivots(ByPivots(shortcut, pivot_root))
    }
}

/// The shortcut of a leaf that has a line and lives for `'g`.
#[derive(Clone, Copy)]
pub(crate) struct ByLine<'g>(Shortcut, PhantomData<&'g BucketLeaf>);

impl<'g> ByLine<'g> {
    /// Prefetches up to `count` buckets from the place `at` on, which will be read once. The leaf
    /// may have fewer.
    #[inline(always)]
    pub(crate) fn prefetch_once(&self, at: usize, count: usize) {
        self.0.prefetch_once(at, count);
    }

    /// The bucket of a word, and its place.
    #[inline(always)]
    pub(crate) fn bucket(self, word: u64) -> (&'g Bucket, usize) {
        let place = self.0.line.at(word);
        // SAFETY: the line has no more places than the leaf has buckets, which live as the leaf
        // does.
        (unsafe { &*self.0.buckets.as_ptr().add(place) }, place)
    }
}

/// The shortcut and the pivot root of a leaf that has pivot blocks and lives for `'g`.
#[derive(Clone, Copy)]
pub(crate) struct ByPivots<'g>(Shortcut, &'g PivotRoot);

impl<'g> ByPivots<'g> {
    /// As [`ByLine::prefetch_once`].
    #[inline(always)]
    pub(crate) fn prefetch_once(&self, at: usize, count: usize) {
        self.0.prefetch_once(at, count);
    }

    /// Goes as far towards a bucket as the leaf's pivot root alone tells.
    #[inline(always)]
    pub(crate) fn half_way(self, word: u64) -> HalfWay<'g> {
        // SAFETY: the pivot root names no pivot block that the leaf has not (invariant 5).
        let pivot_block = unsafe { self.0.pivot_block(find_pivot_block(self.1, word)) };
        HalfWay { pivot_block, buckets: self.0.buckets }
    }
}

/// The pivot block that a word belongs to, and the buckets of its leaf, which lives for `'a`.
#[derive(Clone, Copy)]
pub(crate) struct HalfWay<'a> {
    pivot_block: &'a PivotBlock,
    buckets: NonNull<Bucket>,
}

impl<'a> HalfWay<'a> {
    /// Prefetches what [`HalfWay::bucket`] reads.
    #[inline(always)]
    pub(crate) fn prefetch(&self) {
        prefetch(self.pivot_block);
    }

    /// The bucket of the word, and its place.
    #[inline(always)]
    pub(crate) fn bucket(self, word: u64) -> (&'a Bucket, usize) {
        let place = self.pivot_block.place(word);
        // SAFETY: pivot blocks have no more places than the leaf has buckets (invariant 5), which
        // live as it does.
        (unsafe { &*self.buckets.as_ptr().add(place) }, place)
    }
}

/// A run of buckets. Finding a bucket reads the first cache line. In mode [`AddressMode::Pivots`]
/// it also reads the next two, and then one of the pivot blocks, which lie before the buckets.
#[repr(C, align(128))]
pub(crate) struct BucketLeaf {
    shortcut: Shortcut,
    mode: AddressMode,
    /// Leading bytes that words leave out, if keys are wide.
    prefix_len: u32,
    last: u32,
    /// The number of pivot blocks before the buckets.
    pivot_blocks: u32,
    /// The pivot root of the pivots.
    pivot_root: PivotRoot,
    // Only writers read what follows, and readers in the modes that use `places`.
    nodes: AtomicU32,
    /// Keys removed since the leaf was built.
    pub(crate) removed: AtomicU32,
    /// Keys it was built of.
    pub(crate) built_of: u32,
    /// The leaf's jitter, derived from its first and last words: how much fuller than others it
    /// gets before it is replaced.
    pub(crate) jitter: u8,
    /// The leaf's use, as the last look saw it.
    pub(crate) noted: Noted,
    /// True if a thread is about to replace it.
    pub(crate) is_retraining: AtomicBool,
    pool: PiecePool<OverflowNode>,
    prefix: Box<[u8]>,
    places: Option<Box<BucketPlaces>>,
    /// The parts that may have keys, if most have none. Boxed, as few leaves have it.
    inhabited: Option<Box<Inhabited>>,
    life: Lifetime,
}

/// The parts of a leaf that have buckets with keys: one bit for each of up to 64 parts of equal
/// length. A bit is set before the first key of its part can be seen, and never cleared, so a scan
/// that begins after a key was inserted does not skip it.
struct Inhabited {
    parts: AtomicU64,
    /// The buckets of a part are those whose numbers are the same after this shift.
    shift: u32,
}

/// The number of parts of a leaf that [`Inhabited`] tells apart: the bits of its word.
const PARTS: usize = 64;

impl Inhabited {
    fn none_of(buckets: usize) -> Self {
        let shift = buckets.div_ceil(PARTS).next_power_of_two().trailing_zeros();
        Self { parts: AtomicU64::new(0), shift }
    }

    #[inline]
    fn note(&self, place: usize) {
        let bit = 1 << (place >> self.shift);
        if self.parts.load(Ordering::Relaxed) & bit == 0 {
            self.parts.fetch_or(bit, Ordering::Release);
        }
    }

    /// The first place from `place` on in a part that may have keys; none if there is no such part.
    fn next(&self, place: usize) -> Option<usize> {
        let part = place >> self.shift;
        let parts = self.parts.load(Ordering::Acquire).checked_shr(part as u32).unwrap_or(0);
        match parts.trailing_zeros() as usize {
            0 => Some(place),
            PARTS => None,
            further => Some((part + further) << self.shift),
        }
    }

    /// The last place up to `place` in a part that may have keys; none if there is no such part.
    fn last(&self, place: usize) -> Option<usize> {
        let part = (place >> self.shift).min(PARTS - 1);
        let parts = self.parts.load(Ordering::Acquire) << (PARTS - 1 - part);
        match parts.leading_zeros() as usize {
            0 => Some(place),
            PARTS => None,
            before => Some(((part - before + 1) << self.shift) - 1),
        }
    }
}

const _: () =
    assert!(std::mem::offset_of!(BucketLeaf, pivot_root) == 64, "finding a bucket reads one line");
const _: () = assert!(ALIGN.is_multiple_of(align_of::<Bucket>()));
const _: () = assert!(ALIGN.is_multiple_of(size_of::<PivotBlock>()));

/// The bytes before the buckets that hold `pivot_blocks` pivot blocks.
fn front_bytes(pivot_blocks: usize) -> usize {
    (pivot_blocks * size_of::<PivotBlock>()).next_multiple_of(ALIGN)
}

// SAFETY: the leaf owns its blocks of memory; all that changes is atomic.
unsafe impl Send for BucketLeaf {}
// SAFETY: as above.
unsafe impl Sync for BucketLeaf {}

impl BucketLeaf {
    /// An empty leaf of `buckets` (at least one) buckets, whose keys start with `prefix`.
    pub(crate) fn new(
        arena: &Arena,
        address: BucketAddress,
        buckets: usize,
        prefix: &[u8],
        built_of: usize,
    ) -> Box<Self> {
        let (none, no_line) = (Pivots::default(), BucketLine::new(0, 0, 1));
        let buckets = buckets.max(1);
        let (line, mode, Pivots { pivot_root, pivot_blocks, places: _ }, places) = match address {
            BucketAddress::Line(line) => (line.within(buckets), AddressMode::Line, none, None),
            BucketAddress::Pivots(pivots) => {
                assert!((1..=buckets).contains(&pivots.places), "every place is a bucket");
                (no_line, AddressMode::Pivots, pivots, None)
            }
            BucketAddress::Whole(pivots) => {
                (no_line, AddressMode::Whole, none, Some(BucketPlaces::Whole(pivots)))
            }
            BucketAddress::Open(lowest) => {
                let starts = OpenStarts::new(&lowest, buckets);
                (no_line, AddressMode::Open, none, Some(BucketPlaces::Open(starts)))
            }
        };
        let front = front_bytes(pivot_blocks.len());
        let block = arena.allocate_zeroed(front + buckets * size_of::<Bucket>());
        // SAFETY: the block is longer than `front`.
        let shortcut = Shortcut { line, buckets: unsafe { block.add(front) }.cast() };
        // SAFETY: the block is ours, that long, and zeroed.
        unsafe { Bucket::make_of_zeroes(shortcut.buckets.as_ptr(), buckets) };
        for (at, pivot_block) in pivot_blocks.iter().enumerate() {
            // SAFETY: the block has room for all the pivot blocks before the buckets.
            unsafe { shortcut.pivot_block_address(at).write(*pivot_block) };
        }
        Box::new(Self {
            shortcut,
            mode,
            prefix_len: prefix.len() as u32,
            pivot_blocks: pivot_blocks.len() as u32,
            last: buckets as u32 - 1,
            pivot_root,
            nodes: AtomicU32::new(0),
            removed: AtomicU32::new(0),
            built_of: built_of as u32,
            jitter: JITTER_EVEN,
            noted: Noted::default(),
            is_retraining: AtomicBool::new(false),
            pool: PiecePool::new(),
            prefix: prefix.into(),
            places: places.map(Box::new),
            inhabited: None,
            life: Lifetime::new(),
        })
    }

    /// Returns true if a line addresses its buckets.
    pub(crate) fn has_line(&self) -> bool {
        self.mode == AddressMode::Line
    }

    /// The buckets of a leaf with a line or pivot blocks, whose words are those of its keys, and
    /// the pivot root if it has pivot blocks.
    pub(crate) fn shortcut(&self) -> Option<(Shortcut, Option<&PivotRoot>)> {
        let pivot_root = (self.mode == AddressMode::Pivots).then_some(&self.pivot_root);
        let is_known = self.prefix_len == 0 && (self.has_line() || pivot_root.is_some());
        is_known.then_some((self.shortcut, pivot_root))
    }

    /// Gives the leaf's memory back, but not the records that its slots point to.
    ///
    /// # Safety
    /// The leaf was made with this arena, and no thread uses it again.
    pub(crate) unsafe fn free(self, arena: &Arena) {
        let (block, bytes) = self.block();
        // SAFETY: all blocks came from the arena, with these lengths.
        unsafe {
            self.pool.free(arena);
            arena.release(block, bytes);
        }
    }

    /// A leaf without keys that is addressed as this one is, with more buckets if this one has many
    /// overflow nodes.
    pub(crate) fn like(&self, arena: &Arena) -> Box<Self> {
        let (address, buckets) = match self.places.as_deref() {
            Some(BucketPlaces::Whole(pivots)) => (BucketAddress::Whole(pivots.clone()), self.len()),
            Some(BucketPlaces::Open(starts)) => {
                let open = starts.words[..starts.len()].iter();
                let lowest: Vec<u64> = open.map(|word| word.load(Ordering::Relaxed)).collect();
                let pivots = Pivots::about(lowest);
                let places = pivots.places;
                (BucketAddress::Pivots(pivots), places)
            }
            None if self.has_line() => {
                let full =
                    FULLNESS.iter().take_while(|most| self.nodes() * 64 > self.len() * **most);
                let buckets = self.len() + self.len() * full.count() / 5;
                (BucketAddress::Line(self.shortcut.line.scaled(buckets)), buckets)
            }
            None => {
                // SAFETY: the leaf has `self.pivot blocks` pivot blocks.
                let pivot_block = |at| *unsafe { self.shortcut.pivot_block(at) };
                let pivot_blocks = (0..self.pivot_blocks as usize).map(pivot_block).collect();
                (
                    BucketAddress::Pivots(Pivots {
                        pivot_root: self.pivot_root,
                        pivot_blocks,
                        places: self.len(),
                    }),
                    self.len(),
                )
            }
        };
        let mut leaf = Self::new(arena, address, buckets, &self.prefix, self.built_of as usize);
        leaf.inhabited = Some(Box::new(Inhabited::none_of(buckets)));
        leaf
    }

    /// Records that the first key of the bucket at `place` is about to become visible. The caller
    /// holds the bucket's lock.
    #[inline]
    pub(crate) fn note_inhabited(&self, place: usize) {
        if let Some(inhabited) = &self.inhabited {
            inhabited.note(place);
        }
    }

    /// The first place from `place` on whose bucket may have keys: a leaf that was made without
    /// keys knows where there are none. None if there is no such place in the leaf.
    #[inline]
    pub(crate) fn next_inhabited(&self, place: usize) -> Option<usize> {
        self.inhabited.as_ref().map_or(Some(place), |inhabited| inhabited.next(place))
    }

    /// As [`BucketLeaf::next_inhabited`], for the last place up to `place`.
    #[inline]
    pub(crate) fn last_inhabited(&self, place: usize) -> Option<usize> {
        self.inhabited.as_ref().map_or(Some(place), |inhabited| inhabited.last(place))
    }

    /// Leading bytes that words leave out.
    pub(crate) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// The number of buckets that keys may belong to: those that are open.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.starts().map_or(self.last as usize + 1, OpenStarts::len)
    }

    /// The number of buckets, open or not.
    pub(crate) fn room(&self) -> usize {
        self.last as usize + 1
    }

    #[inline]
    fn starts(&self) -> Option<&OpenStarts> {
        match self.places.as_deref() {
            Some(BucketPlaces::Open(starts)) => Some(starts),
            _ => None,
        }
    }

    /// Returns true if buckets are opened as keys are appended.
    #[inline(always)]
    pub(crate) fn is_open(&self) -> bool {
        self.mode == AddressMode::Open
    }

    /// Opens a bucket after the bucket at `at`, whose lock the caller holds, for words above all of
    /// that bucket's. It does so only if that bucket is the last one and full, another is left to
    /// open, and `word` belongs there. Returns true if it did. `word` has no slot in the locked
    /// bucket.
    #[inline]
    pub(crate) fn open_next(&self, locked: &Locked<'_>, at: usize, word: u64) -> bool {
        let Some(starts) = self.starts().filter(|_| locked.is_full()) else { return false };
        let len = starts.len();
        if at + 1 != len || len == starts.words.len() {
            return false;
        }
        let above = capped(locked.greatest_word()) + 1;
        if capped(word) < above {
            return false;
        }
        starts.words[len].store(above, Ordering::Relaxed);
        starts.open.store(len as u32 + 1, Ordering::Release);
        true
    }

    pub(crate) fn mode(&self) -> AddressMode {
        self.mode
    }

    /// The overflow nodes in use.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes.load(Ordering::Relaxed) as usize
    }

    /// The block of its buckets and pivot blocks, and how long it is.
    pub(crate) fn block(&self) -> (NonNull<u8>, usize) {
        let front = front_bytes(self.pivot_blocks as usize);
        // SAFETY: `new` allocated `front` bytes before the buckets.
        let start = unsafe { self.shortcut.buckets.cast::<u8>().sub(front) };
        (start, front + self.room() * size_of::<Bucket>())
    }

    /// About the number of bytes of the leaf.
    pub(crate) fn bytes(&self) -> usize {
        self.block().1 + self.pool.bytes() + self.heap_bytes()
    }

    /// Bytes of the leaf outside of the arena.
    pub(crate) fn heap_bytes(&self) -> usize {
        let places = match self.places.as_deref() {
            Some(BucketPlaces::Whole(pivots)) => pivots.iter().map(|pivot| pivot.len() + 16).sum(),
            Some(BucketPlaces::Open(starts)) => size_of_val(&*starts.words),
            None => 0,
        };
        let inhabited = self.inhabited.as_ref().map_or(0, |_| size_of::<Inhabited>());
        size_of::<Self>() + self.prefix.len() + places + inhabited
    }

    /// Prefetches the lines that finding a bucket reads.
    #[inline(always)]
    pub(crate) fn prefetch(leaf: *const Self) {
        prefetch_address(leaf);
        prefetch_address(leaf.wrapping_byte_add(64));
    }

    /// The word by which this leaf knows a key.
    #[inline(always)]
    pub(crate) fn word<S: Schema>(&self, probe: KeyProbe<'_>) -> u64 {
        if S::WIDE && self.prefix_len > 0 {
            word_behind(&self.prefix, probe.bytes)
        } else {
            probe.word
        }
    }

    /// The place of the bucket that a key belongs to; `word` is the leaf's word for it.
    #[inline(always)]
    pub(crate) fn place<S: Schema>(&self, word: u64, probe: KeyProbe<'_>) -> usize {
        let place = if self.mode == AddressMode::Line {
            self.shortcut.line.at(word)
        } else if self.mode == AddressMode::Pivots {
            // SAFETY: the pivot root names no pivot block that the leaf has not (invariant 5).
            unsafe { self.shortcut.pivot_block(find_pivot_block(&self.pivot_root, word)) }
                .place(word)
        } else {
            match self.places.as_deref() {
                Some(BucketPlaces::Open(starts)) => starts.place(word),
                Some(BucketPlaces::Whole(pivots)) if S::WIDE => {
                    pivots.partition_point(|pivot| **pivot <= *probe.bytes).saturating_sub(1)
                }
                _ => 0,
            }
        };
        place.min(self.last as usize)
    }

    /// Tells loom that the leaf is used. Called by code that uses a copy of its shortcut.
    #[inline(always)]
    pub(crate) fn touch(&self) {
        self.life.touch();
    }

    /// The bucket at a place; the last one for places beyond it.
    #[inline(always)]
    pub(crate) fn bucket(&self, place: usize) -> &Bucket {
        self.life.touch();
        // SAFETY: the block has `last + 1` buckets, initialised by `new`, and lives as the leaf
        // does.
        unsafe { &*self.shortcut.buckets.as_ptr().add(place.min(self.last as usize)) }
    }

    /// An overflow node, empty; none if the leaf has had all that it may have.
    pub(crate) fn new_node(&self, arena: &Arena) -> Option<&OverflowNode> {
        let index = self.nodes.fetch_add(1, Ordering::Relaxed) as usize;
        if index >= NODES_MAX {
            self.nodes.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(self.pool.take(arena))
    }
}
