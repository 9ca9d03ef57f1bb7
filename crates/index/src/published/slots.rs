//! Leaves of slots: an array whose slots are claimed within the window that a line predicts, and
//! wider arrays for keys that find the window full (LOFT, section 3.2).
//!
//! A key's *start* is where the line sends it. A key lies in the first slot of the window from its
//! start on that was vacant when it came; no key is moved for another. Each group of slots may link
//! to a *wider* run, in which its keys' starts are four times as far apart, and so may each group
//! of that run.
//!
//! Thread safety: readers take no lock and never retry. Writers claim single slots (`claim`).
//! Invariants:
//!
//! 1. A slot holds one key for the whole life of the leaf; slots are never vacated. So all slots of
//!    a window before a key's own are used for as long as the key's is.
//! 2. A writer claims the first vacant slot of a window only after it has seen all keys before it,
//!    by a CAS that fails if anything in the group has changed since.
//! 3. A wider run is linked once, by the thread that has claimed its group's first slot, and lives
//!    as the leaf does.
#![allow(unsafe_code, reason = "groups lie in blocks of an arena")]

use std::{ptr::NonNull, slice};

use rhumb_model::Line;
use rhumb_sync::{
    arena::Arena,
    prefetch::prefetch_address,
    primitive::{AtomicPtr, AtomicU32, Ordering, in_models},
};

use super::{
    claim::{self, SlotClaim, busy, pause},
    head::LeafHead,
};
use crate::{
    entry::{Entry, KeyRun},
    op::{Action, Blocked, KeyChange, LeafWritten, Trigger},
    raw::{
        bucket::{BUCKET_SLOTS, FROZEN, Frozen, SlotLookup, Slots, used},
        pool::{PiecePool, Zeroed},
        schema::{KeyProbe, Schema, is_same, reader, slot_value, sort},
    },
};

/// Slots of a group.
const GROUP: usize = BUCKET_SLOTS;
/// The groups of a wider run: it has this many times the room of the group that links to it. LOFT
/// has 8 (section 3.2) for each predicted range of 32 slots; here each group of 15 slots may link
/// to a run, and where keys are uneven most runs hold a few keys, so that 8 took more than half of
/// the memory.
const WIDER_GROUPS: usize = 4;
/// The most wider runs in a chain from a group of the first level. LOFT has no limit. Chosen, not
/// measured: a lookup looks into at most four windows.
const DEPTH_MAX: u32 = 3;
/// The slots of a window in a wider run: the predicted range of the common case (LOFT, section
/// 3.4).
const WIDER_WINDOW: usize = in_models(32, 8);
/// The groups that make one place. Chosen, not measured: a place has 60 slots, some 40 keys at an
/// expansion of 1.5, and a window of 32 slots more is read at its end.
const PLACE_GROUPS: usize = 4;
/// The heights of a leaf's line for each key that it was fitted to. Chosen, not measured: at the
/// greatest expansion, 3, and the greatest depth, `DEPTH_MAX`, starts of neighbouring keys are 192
/// slots apart, three for each height.
pub(crate) const HEIGHT: u64 = 64;
/// A leaf is replaced when this many of 5 slots are used: a fill ratio of 0.8 (LOFT, section 3.4).
const USED_OF_5: u32 = 4;
/// A leaf is replaced when this many keys are in wider runs: the threshold of 256 (LOFT, section
/// 3.4), which is for a bucket there.
const OVERFLOW_MAX: u32 = in_models(256, 8) as u32;
/// The writer itself replaces a leaf, whatever other threads are doing, when this many keys are in
/// wider runs, or when as many slots are used in all as the first level has. Chosen, not measured:
/// a trainer has the time of 768 inserts into wider runs.
const OVERFLOW_LIMIT: u32 = 4 * OVERFLOW_MAX;

/// A group's link to its wider run.
pub(crate) struct WiderLink(AtomicPtr<Wider>);

// SAFETY: a link is an atomic pointer.
unsafe impl Zeroed for WiderLink {
    fn zero() -> Self {
        Self(Zeroed::zero())
    }
}

type SlotGroup = Slots<GROUP, WiderLink>;

#[repr(C, align(256))]
struct Wider([SlotGroup; WIDER_GROUPS]);

// SAFETY: groups are atomics, for which all zeroes are vacant slots and no link, aligned to 256.
unsafe impl Zeroed for Wider {
    fn zero() -> Self {
        Self(std::array::from_fn(|_| SlotGroup::zero()))
    }
}

/// The parameters by which a leaf places its keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotShape {
    /// Maps words to heights in their order, [`HEIGHT`] to a key.
    pub(crate) line: Line,
    /// Half slots for each key: the expansion factor, doubled.
    pub(crate) expansion_2: u32,
    /// Slots of a window.
    pub(crate) window: u32,
}

/// A leaf of slots.
pub(crate) struct SlotLeaf {
    shape: SlotShape,
    /// The last start.
    last_start: u32,
    group_count: u32,
    groups: NonNull<SlotGroup>,
    /// Keys in wider runs.
    overflow: AtomicU32,
    wider: PiecePool<Wider>,
    pub(crate) head: LeafHead,
}

// SAFETY: the leaf owns its blocks of memory; all that changes is atomic.
unsafe impl Send for SlotLeaf {}
// SAFETY: as above.
unsafe impl Sync for SlotLeaf {}

/// The window of a key in one of the runs that it may be in.
#[derive(Clone, Copy)]
struct WindowLevel<'a> {
    groups: &'a [SlotGroup],
    start: usize,
    len: usize,
    /// The start of the run, in slots of its depth.
    base: u64,
    depth: u32,
}

impl<'a> WindowLevel<'a> {
    /// The groups of the window, and the slots of each that are in it.
    #[inline(always)]
    fn window(&self) -> impl Iterator<Item = (&'a SlotGroup, u32)> + use<'a> {
        let (groups, mut at, end) = (self.groups, self.start, self.start + self.len);
        std::iter::from_fn(move || {
            let group = groups.get(at / GROUP).filter(|_| at < end)?;
            let first = at % GROUP;
            let last = (first + end - at).min(GROUP);
            at += last - first;
            Some((group, (1 << last) - (1 << first)))
        })
    }

    /// The group that links to this key's next run.
    fn home(&self) -> &'a SlotGroup {
        &self.groups[self.start / GROUP]
    }
}

/// The slot that a writer finds for a key in one of its windows.
enum SlotSeat<'a> {
    /// The slot that holds it, present or removed.
    Own(&'a SlotGroup, SlotClaim<'a>),
    /// The slot that it is to be put into.
    Vacant(&'a SlotGroup, SlotClaim<'a>),
    /// The key is nowhere in the leaf.
    Nowhere,
    /// The key is not here, and there is no vacant slot.
    Full,
}

impl SlotLeaf {
    /// Builds a leaf of a run of entries; none if its line is not good enough for them.
    pub(crate) fn build(arena: &Arena, shape: SlotShape, run: &KeyRun<'_>) -> Option<Self> {
        let leaf = Self::new(arena, shape, run);
        let put = |(entry, word): (&Entry, &u64)| leaf.put(arena, *word, entry.value);
        // No entry may need the deepest runs, which keep room for any key that comes.
        let is_good = run
            .entries
            .iter()
            .zip(run.words)
            .map(put)
            .all(|depth| depth.is_some_and(|depth| depth < DEPTH_MAX))
            && leaf.overflow.load(Ordering::Relaxed) < OVERFLOW_MAX / 2;
        if !is_good {
            // SAFETY: no other thread has seen the leaf.
            unsafe { leaf.free(arena) };
            return None;
        }
        Some(leaf)
    }

    fn new(arena: &Arena, shape: SlotShape, run: &KeyRun<'_>) -> Self {
        let len = run.entries.len();
        let room = len * shape.expansion_2 as usize / 2;
        let last_word = run.words.last().copied().unwrap_or_default();
        let last = start_of(shape.line.at(last_word), shape.expansion_2, 0);
        let last_start = usize::try_from(last).map_or(room, |last| last.clamp(room, 2 * room));
        let groups = (last_start + shape.window as usize).div_ceil(GROUP);
        let block = arena.allocate(groups * size_of::<SlotGroup>()).cast::<SlotGroup>();
        // SAFETY: the block is ours and that long.
        unsafe { SlotGroup::make(block.as_ptr(), groups) };
        Self {
            shape,
            last_start: last_start as u32,
            group_count: groups as u32,
            groups: block,
            overflow: AtomicU32::new(0),
            wider: PiecePool::new(),
            head: LeafHead::new(run.prefix, len),
        }
    }

    /// Gives the leaf's memory back, but not the records that its slots point to.
    ///
    /// # Safety
    /// The leaf was made with this arena, and no thread uses it again.
    pub(crate) unsafe fn free(self, arena: &Arena) {
        // SAFETY: the block came from the arena with this length; the caller gives all of it up.
        unsafe {
            self.wider.free(arena);
            arena.release(self.groups.cast(), self.group_count as usize * size_of::<SlotGroup>());
        }
    }

    /// The block of its first level, and how long it is.
    pub(crate) fn block(&self) -> (NonNull<u8>, usize) {
        (self.groups.cast(), self.group_count as usize * size_of::<SlotGroup>())
    }

    pub(crate) fn shape(&self) -> SlotShape {
        self.shape
    }

    pub(crate) fn slots(&self) -> usize {
        self.group_count as usize * GROUP
    }

    /// The number of wider runs.
    pub(crate) fn wider(&self) -> usize {
        self.wider.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.group_count as usize * size_of::<SlotGroup>() + self.wider.bytes() + self.heap_bytes()
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.head.heap_bytes()
    }

    #[inline(always)]
    fn groups(&self) -> &[SlotGroup] {
        // SAFETY: the block has `group_count` groups, initialised by `new`, and lives as the leaf
        // does.
        unsafe { slice::from_raw_parts(self.groups.as_ptr(), self.group_count as usize) }
    }

    /// The start of a word in the array.
    #[inline(always)]
    fn start(&self, word: u64) -> usize {
        let start = start_of(self.shape.line.at(word), self.shape.expansion_2, 0);
        start.min(u64::from(self.last_start)) as usize
    }

    #[inline(always)]
    fn first_level(&self, word: u64) -> WindowLevel<'_> {
        let start = self.start(word);
        WindowLevel {
            groups: self.groups(),
            start,
            len: self.shape.window as usize,
            base: 0,
            depth: 0,
        }
    }

    /// The level after `before`, in a run that is there.
    fn level_behind<'a>(
        &self,
        word: u64,
        before: WindowLevel<'a>,
        run: &'a Wider,
    ) -> WindowLevel<'a> {
        let depth = before.depth + 1;
        let home = (before.start / GROUP * GROUP) as u64;
        let base = (before.base + home) * WIDER_GROUPS as u64;
        let start = start_of(self.shape.line.at(word), self.shape.expansion_2, depth);
        let most = WIDER_GROUPS * GROUP - WIDER_WINDOW;
        let start = start.saturating_sub(base).min(most as u64) as usize;
        WindowLevel { groups: &run.0, start, len: WIDER_WINDOW, base, depth }
    }

    /// The level after another, if it has one.
    #[inline]
    fn next_level<'a>(&self, word: u64, before: WindowLevel<'a>) -> Option<WindowLevel<'a>> {
        Some(self.level_behind(word, before, before.home().wider()?))
    }

    /// Makes the level after another, or finds it if another thread was faster.
    fn widen<'a>(
        &'a self,
        arena: &Arena,
        word: u64,
        before: WindowLevel<'a>,
    ) -> Result<WindowLevel<'a>, Blocked> {
        if before.depth == DEPTH_MAX {
            return Err(Blocked::NoRoom);
        }
        let home = before.home();
        // While any slot of the group is busy the leaf is not frozen.
        let _claim = SlotClaim::new(&home.header, 0)?;
        let run = match home.wider() {
            Some(run) => run,
            None => {
                let run = self.wider.take(arena);
                home.extra.0.store(std::ptr::from_ref(run).cast_mut(), Ordering::Release);
                run
            }
        };
        Ok(self.level_behind(word, before, run))
    }

    /// The word of a key's value. Never waits.
    #[inline]
    pub(crate) fn get<S: Schema>(&self, probe: KeyProbe<'_>) -> Option<u64> {
        let word = self.head.word::<S>(probe);
        let read = reader::<S>(probe);
        let mut level = self.first_level(word);
        prefetch_group(level.home());
        loop {
            for (group, among) in level.window() {
                let header = group.header.load(Ordering::Acquire);
                match group.get_among(word, header & u64::from(among), &read) {
                    SlotLookup::Found(value) => return Some(value),
                    SlotLookup::Absent => return None,
                    // It would be in the vacant slot, or before it.
                    SlotLookup::Elsewhere if among & !used(header) != 0 => return None,
                    SlotLookup::Elsewhere => {}
                }
            }
            level = self.next_level(word, level)?;
        }
    }

    /// Writes one key.
    pub(crate) fn write<S: Schema>(
        &self,
        arena: &Arena,
        probe: KeyProbe<'_>,
        action: Action,
    ) -> Result<LeafWritten, Blocked> {
        let word = self.head.word::<S>(probe);
        let mut level = self.first_level(word);
        prefetch_group(level.home());
        loop {
            match Self::seek::<S>(level, word, probe, action)? {
                SlotSeat::Own(group, mut claim) => {
                    let held = &group.values[claim.slot];
                    return Ok(claim.rewrite::<S>(held, action));
                }
                SlotSeat::Vacant(group, claim) => {
                    let KeyChange::Store(new) = action.change(None) else {
                        return Ok(LeafWritten::unchanged(None));
                    };
                    group.put(claim.slot, word, slot_value::<S>(probe, new));
                    claim.fill();
                    return Ok(LeafWritten::added(self.after_add(level.depth)));
                }
                SlotSeat::Nowhere => return Ok(LeafWritten::unchanged(None)),
                SlotSeat::Full => {}
            }
            level = match self.next_level(word, level) {
                Some(next) => next,
                None if !action.inserts() => return Ok(LeafWritten::unchanged(None)),
                None => self.widen(arena, word, level)?,
            };
        }
    }

    /// Finds a key's slot in a window, or claims one for it.
    fn seek<'a, S: Schema>(
        level: WindowLevel<'a>,
        word: u64,
        probe: KeyProbe<'_>,
        action: Action,
    ) -> Result<SlotSeat<'a>, Frozen> {
        let is_same = is_same::<S>(probe);
        for (group, among) in level.window() {
            let mut looks = 0;
            loop {
                let header = group.header.load(Ordering::Acquire);
                if header & FROZEN != 0 {
                    return Err(Frozen);
                }
                let mut hits = group.matching(word, used(header) & among);
                while hits != 0 {
                    let slot = hits.trailing_zeros() as usize;
                    // A removed key that is just coming back may have got a new record.
                    if is_same(group.values[slot].load(Ordering::Acquire)) {
                        return Ok(SlotSeat::Own(group, SlotClaim::new(&group.header, slot)?));
                    }
                    hits &= hits - 1;
                }
                let vacant = among & !used(header);
                if vacant == 0 {
                    break;
                }
                if !action.inserts() {
                    return Ok(SlotSeat::Nowhere);
                }
                let slot = vacant.trailing_zeros() as usize;
                // The key that is being put there may be this one.
                if busy(header) & 1 << slot == 0
                    && let Some(claim) = SlotClaim::try_new(&group.header, header, slot)
                {
                    return Ok(SlotSeat::Vacant(group, claim));
                }
                pause(&mut looks);
            }
        }
        Ok(SlotSeat::Full)
    }

    /// Counts a key that took a slot.
    fn after_add(&self, depth: u32) -> Option<Trigger> {
        let used = self.head.used.fetch_add(1, Ordering::Relaxed) + 1;
        let overflow = match depth {
            0 => 0,
            _ => self.overflow.fetch_add(1, Ordering::Relaxed) + 1,
        };
        if used >= self.slots() as u32 || overflow >= OVERFLOW_LIMIT {
            return Some(Trigger::NoRoom);
        }
        (self.is_full(used) || overflow >= OVERFLOW_MAX).then_some(Trigger::Full)
    }

    /// Returns true if a leaf with `used` used slots is to be replaced.
    #[inline]
    pub(crate) fn is_full(&self, used: u32) -> bool {
        used >= self.slots() as u32 * USED_OF_5 / 5
    }

    /// Puts an entry into a leaf that no other thread can reach. Returns the number of runs before
    /// its own.
    fn put(&self, arena: &Arena, word: u64, value: u64) -> Option<u32> {
        let mut level = self.first_level(word);
        loop {
            for (group, among) in level.window() {
                let header = group.header.load(Ordering::Relaxed);
                let vacant = among & !used(header);
                if vacant != 0 {
                    let slot = vacant.trailing_zeros() as usize;
                    group.put(slot, word, value);
                    let bits = crate::raw::bucket::bits(slot);
                    group.header.store(header | bits, Ordering::Release);
                    self.overflow.fetch_add(u32::from(level.depth > 0), Ordering::Relaxed);
                    return Some(level.depth);
                }
            }
            level = match self.next_level(word, level) {
                Some(next) => next,
                None => self.widen(arena, word, level).ok()?,
            };
        }
    }

    /// The number of places.
    pub(crate) fn len(&self) -> usize {
        (self.group_count as usize).div_ceil(PLACE_GROUPS)
    }

    /// The place that a key belongs to: that of its start.
    pub(crate) fn place<S: Schema>(&self, probe: KeyProbe<'_>) -> usize {
        self.start(self.head.word::<S>(probe)) / (GROUP * PLACE_GROUPS)
    }

    pub(crate) fn prefetch_place(&self, place: usize) {
        self.groups()[place * PLACE_GROUPS..].iter().take(PLACE_GROUPS).for_each(prefetch_group);
    }

    /// Appends the present entries of a place in ascending order.
    pub(crate) fn append_sorted<S: Schema>(&self, place: usize, entries: &mut Vec<Entry>) {
        let from = entries.len();
        let slots = place * PLACE_GROUPS * GROUP..(place + 1) * PLACE_GROUPS * GROUP;
        let end = (slots.end + self.shape.window as usize).div_ceil(GROUP);
        for group in self.groups().iter().take(end).skip(place * PLACE_GROUPS) {
            // Some keys that start elsewhere lie here too.
            group.for_each_here(&mut |word, value| {
                if slots.contains(&self.start(word)) {
                    entries.push(Entry { word, value });
                }
            });
        }
        let groups = self.groups().iter().skip(place * PLACE_GROUPS).take(PLACE_GROUPS);
        for run in groups.filter_map(Slots::wider) {
            run.for_each_group(&mut |group| {
                group.for_each_here(&mut |word, value| entries.push(Entry { word, value }));
            });
        }
        sort::<S>(&mut entries[from..]);
    }

    fn for_each_group(&self, visit: &mut impl FnMut(&SlotGroup)) {
        for group in self.groups() {
            visit(group);
            if let Some(run) = group.wider() {
                run.for_each_group(visit);
            }
        }
    }

    /// Calls `visit` with the slot of each removed key.
    pub(crate) fn for_each_dead(&self, visit: &mut impl FnMut(u64)) {
        self.for_each_group(&mut |group| group.for_each_dead_here(visit));
    }

    /// Makes the leaf unchangeable. Any number of threads may do so at once.
    pub(crate) fn freeze(&self) {
        // A group's link is looked at after the group is frozen: no run is linked then any more.
        self.for_each_group(&mut |group| claim::freeze(&group.header));
    }
}

impl SlotGroup {
    /// The wider run that the group links to.
    #[inline]
    fn wider(&self) -> Option<&Wider> {
        // SAFETY: links lead to runs of the same leaf or nowhere, and those live as the leaf does,
        // which outlives the borrow of its group.
        unsafe { self.extra.0.load(Ordering::Acquire).as_ref() }
    }
}

impl Wider {
    fn for_each_group(&self, visit: &mut impl FnMut(&SlotGroup)) {
        for group in &self.0 {
            visit(group);
            if let Some(run) = group.wider() {
                run.for_each_group(visit);
            }
        }
    }
}

/// The start, in slots of the given depth, of a key at this height of the line.
#[inline(always)]
fn start_of(height: u64, expansion_2: u32, depth: u32) -> u64 {
    // Heights are capped so that the product fits: 2^44 keys in a leaf are far more than there are.
    let height = height.min(1 << 50);
    ((height * u64::from(expansion_2)) << (2 * depth)) / (2 * HEIGHT)
}

#[inline(always)]
fn prefetch_group(group: &SlotGroup) {
    let start = std::ptr::from_ref(group).cast::<u8>();
    (0..4).for_each(|line| prefetch_address(start.wrapping_add(64 * line)));
}
