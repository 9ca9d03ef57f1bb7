//! Dead ranges: ranges of keys in which nothing lives. Walks record them, so that later walks need
//! not step through them again.
//!
//! A queue leaves a tombstone for each entry that was popped, and the next search for its first key
//! would step over all of them. A walk that stepped over many dead keys records the dead range
//! here; later walks seek past it, in all sources at once.
//!
//! A dead range with the sequence number `seq` says: a reader whose newest memtable is this one,
//! and whose sequence number is `seq` or greater, sees no living key in it. It says nothing to
//! older readers. Three things keep that true:
//!
//! 1. A dead range is recorded by a reader that saw all of it dead, and that sees everything
//!    outside this memtable: its sequence number is at least `floor`.
//! 2. What the memtable got after that reader's sequence number is checked once the dead range has
//!    been announced. If a living key is among it, nothing is recorded.
//! 3. Before a reader can see an inserted value, the value cuts the recorded dead range that it
//!    falls into, and voids one that has only been announced.
//!
//! Flushes and compactions change no answer, so they change nothing here. The next memtable
//! inherits the dead ranges. The LSM trees that have dead ranges are known by a hash in a word of
//! bits, so that writes to other LSM trees look no further.
//!
//! This file knows nothing of entries, so a model checker can run it by itself
//! (`crates/testkit/tests/dead_ranges.rs`).

use std::{
    collections::{BTreeMap, HashMap},
    ops::Bound,
};

use rhumb_sync::primitive::{AtomicU64, AtomicUsize, Mutex, Ordering};

use crate::{
    keys::{KeySpan, key_after},
    types::{SeqNo, TreeId},
};

/// The number of dead ranges of one LSM tree above which those that no walk used are dropped. It
/// bounds memory, at 200 bytes per dead range. A queue has one dead range; a priority queue has one
/// more for each key that came back among the dead ones.
const RANGES_MAX: usize = 4096;

/// The number of LSM trees with dead ranges above which all are dropped. Thousands of queues fit.
const TREES_MAX: usize = 4096;

/// Keys from `from` on and before `to`, none of which is living.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeadRange {
    pub(crate) from: Box<[u8]>,
    pub(crate) to: Box<[u8]>,
    /// True if nothing living is before `from` either.
    pub(crate) is_first: bool,
    /// True if nothing living is from `to` on either.
    pub(crate) is_last: bool,
}

impl DeadRange {
    /// Returns true if the key is in the dead range, or in the part before or after it where
    /// nothing lives either.
    fn covers(&self, key: &[u8]) -> bool {
        (self.is_first || *self.from <= *key) && (self.is_last || *key < *self.to)
    }
}

/// The position at which a walk asks for a dead range.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asked<'a> {
    /// Forward from the first key of all.
    First,
    /// Forward from this key on.
    From(&'a [u8]),
    /// Backward from the last key of all.
    Last,
    /// Backward from the last key before this one.
    Before(&'a [u8]),
}

/// A recorded dead range; its `from` is its key in the map.
struct Recorded {
    to: Box<[u8]>,
    /// Readers below this sequence number may see living keys in it.
    seq: SeqNo,
    is_first: bool,
    is_last: bool,
    /// True if a walk used it since dead ranges were last dropped.
    is_used: bool,
}

/// A dead range that is being recorded.
struct Announced {
    ticket: u64,
    dead: DeadRange,
    seq: SeqNo,
    /// True if a value was inserted into it.
    is_void: bool,
}

/// The dead ranges of an LSM tree. They neither overlap nor touch.
#[derive(Default)]
struct TreeRanges {
    by_start: BTreeMap<Box<[u8]>, Recorded>,
    announced: Option<Announced>,
}

#[derive(Default)]
struct DeadState {
    /// Readers from this sequence number on see everything that is not in the memtable.
    floor: SeqNo,
    trees: HashMap<TreeId, TreeRanges>,
    /// The ticket of the last announcement.
    ticket: u64,
}

/// A dead range that was announced and must be finished.
struct Announcement {
    ticket: u64,
    /// The parts of it that were not known yet.
    parts: Vec<KeySpan>,
}

/// The dead ranges of all LSM trees that are known while one memtable takes the writes.
#[derive(Default)]
pub(super) struct DeadRanges {
    state: Mutex<DeadState>,
    /// One bit for the hash of each LSM tree that has dead ranges.
    mask: AtomicU64,
}

/// Keys up to and including this one.
fn up_to(key: &[u8]) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (Bound::Unbounded, Bound::Included(key))
}

/// Keys below this one.
fn below(key: &[u8]) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (Bound::Unbounded, Bound::Excluded(key))
}

/// This key and those above.
fn from_on(key: &[u8]) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (Bound::Included(key), Bound::Unbounded)
}

/// The bit of an LSM tree in the word.
fn bit(tree: TreeId) -> u64 {
    1 << (tree % u64::BITS)
}

impl DeadRanges {
    /// The dead ranges that the next memtable begins with: all of them, which leave this one. All
    /// entries up to `seq` are in this memtable or in older ones. No write may be in progress.
    pub(super) fn successor(&self, seq: SeqNo) -> Self {
        let mut state = self.state.lock();
        let floor = seq.max(state.floor);
        let mut next = DeadState { floor, trees: HashMap::new(), ticket: 0 };
        let mut mask = 0;
        for (tree, ranges) in &mut state.trees {
            let by_start = std::mem::take(&mut ranges.by_start);
            if !by_start.is_empty() && next.trees.len() < TREES_MAX {
                mask |= bit(*tree);
                next.trees.insert(*tree, TreeRanges { by_start, announced: None });
            }
        }
        Self { state: Mutex::new(next), mask: AtomicU64::new(mask) }
    }

    /// Returns true if any LSM tree has dead ranges.
    #[inline]
    fn may_have_any(&self) -> bool {
        self.mask.load(Ordering::Acquire) != 0
    }

    /// Returns true if an LSM tree may have dead ranges.
    #[inline]
    fn may_have(&self, tree: TreeId) -> bool {
        self.mask.load(Ordering::Acquire) & bit(tree) != 0
    }

    /// The dead range around a position that holds for a reader at `seq`. O(log dead ranges).
    pub(super) fn find(&self, tree: TreeId, asked: Asked<'_>, seq: SeqNo) -> Option<DeadRange> {
        if !self.may_have(tree) {
            return None;
        }
        let mut state = self.state.lock();
        let ranges = &mut state.trees.get_mut(&tree)?.by_start;
        let (from, known) = match asked {
            Asked::First => ranges.iter_mut().next().filter(|(_, known)| known.is_first),
            Asked::Last => ranges.iter_mut().next_back().filter(|(_, known)| known.is_last),
            Asked::From(key) => {
                let known = ranges.range_mut::<[u8], _>(up_to(key)).next_back();
                known.filter(|(_, known)| *known.to > *key)
            }
            Asked::Before(key) => {
                let known = ranges.range_mut::<[u8], _>(below(key)).next_back();
                known.filter(|(_, known)| *known.to >= *key)
            }
        }?;
        if known.seq > seq {
            return None;
        }
        known.is_used = true;
        let (from, to) = (from.clone(), known.to.clone());
        Some(DeadRange { from, to, is_first: known.is_first, is_last: known.is_last })
    }

    /// Records a dead range that a reader at `seq` saw dead, if that is still true. `newest`
    /// returns the greatest sequence number of a tombstone that the memtable has in the given
    /// parts, 0 if the memtable has nothing there, and `None` if it has a value. `inserted` is the
    /// counter of [`DeadRanges::record_inserted`].
    pub(super) fn record(
        &self,
        inserted: &AtomicUsize,
        tree: TreeId,
        dead: DeadRange,
        seq: SeqNo,
        newest: impl FnOnce(&[KeySpan]) -> Option<SeqNo>,
    ) {
        let Some(announcement) = self.announce(tree, dead, seq) else { return };
        // The order of this step and the writer's step decides: what was inserted before is found
        // now, and what is inserted after finds the announcement.
        inserted.fetch_add(0, Ordering::AcqRel);
        let newest = newest(&announcement.parts);
        self.finish(tree, &announcement, newest);
    }

    /// Must be called after values of these keys have been inserted and before a reader sees them.
    /// Adds `bytes` to `inserted`, and cuts the keys out of the dead ranges. Costs one load if
    /// there are no dead ranges.
    #[inline]
    pub(super) fn record_inserted<'k>(
        &self,
        inserted: &AtomicUsize,
        bytes: usize,
        values: impl Iterator<Item = (TreeId, &'k [u8])>,
    ) {
        // Pairs with the step in `record`.
        inserted.fetch_add(bytes, Ordering::AcqRel);
        if !self.may_have_any() {
            return;
        }
        for (tree, key) in values {
            if self.may_have(tree) {
                self.revive(tree, key);
            }
        }
    }

    /// Announces a dead range that a reader at `seq` saw dead. Returns the parts of it that are not
    /// known yet; the memtable must be searched there for what the reader did not see, before
    /// [`DeadRanges::finish`]. Returns `None` if the dead range cannot be recorded.
    fn announce(&self, tree: TreeId, dead: DeadRange, seq: SeqNo) -> Option<Announcement> {
        let mut state = self.state.lock();
        let state = &mut *state;
        if seq < state.floor {
            return None;
        }
        if state.trees.len() >= TREES_MAX && !state.trees.contains_key(&tree) {
            state.trees.retain(|_, ranges| ranges.announced.is_some());
        }
        let ranges = state.trees.entry(tree).or_default();
        if ranges.announced.is_some() {
            return None;
        }
        let mut parts: Vec<KeySpan> = Vec::new();
        let mut from: Box<[u8]> = if dead.is_first { Box::default() } else { dead.from.clone() };
        let before = ranges.by_start.range::<[u8], _>(below(&from)).next_back();
        let begun = before.map(|(_, known)| &known.to).filter(|to| **to > from);
        from = begun.cloned().unwrap_or(from);
        for (start, known) in ranges.by_start.range::<[u8], _>(from_on(&from)) {
            if *start >= dead.to && !dead.is_last {
                break;
            }
            if *start > from {
                parts.push((from, Some(start.clone())));
            }
            from = known.to.clone();
        }
        if dead.is_last {
            parts.push((from, None));
        } else if from < dead.to {
            parts.push((from, Some(dead.to.clone())));
        }
        state.ticket += 1;
        let ticket = state.ticket;
        ranges.announced = Some(Announced { ticket, dead, seq, is_void: false });
        self.mask.fetch_or(bit(tree), Ordering::AcqRel);
        Some(Announcement { ticket, parts })
    }

    /// Records the dead range that was announced, joined with those that it overlaps or touches.
    /// `newest` is the greatest sequence number of a tombstone that the memtable has in it; `None`
    /// if it has a value.
    fn finish(&self, tree: TreeId, announcement: &Announcement, newest: Option<SeqNo>) {
        let mut state = self.state.lock();
        let Some(ranges) = state.trees.get_mut(&tree) else { return };
        let is_ours = |one: &mut Announced| one.ticket == announcement.ticket;
        let Some(Announced { dead, seq, is_void, .. }) = ranges.announced.take_if(is_ours) else {
            return;
        };
        if let Some(newest) = newest.filter(|_| !is_void) {
            ranges.add(dead, seq.max(newest));
        }
    }

    /// Handles a value of this key that was inserted, and that no reader sees yet.
    fn revive(&self, tree: TreeId, key: &[u8]) {
        let mut state = self.state.lock();
        if let Some(ranges) = state.trees.get_mut(&tree) {
            ranges.cut(key);
        }
    }

    /// Forgets the dead ranges of an LSM tree that is about to get entries with the sequence number
    /// `seq` that bypass this memtable. Readers below that number record none.
    pub(super) fn forget(&self, tree: TreeId, seq: SeqNo) {
        let mut state = self.state.lock();
        state.floor = state.floor.max(seq);
        state.trees.remove(&tree);
    }
}

impl TreeRanges {
    /// Adds a dead range, joined with those that it overlaps or touches.
    fn add(&mut self, mut dead: DeadRange, mut seq: SeqNo) {
        let lower = self.by_start.range::<[u8], _>(below(&dead.from)).next_back();
        let joins = lower.filter(|(_, known)| known.to >= dead.from || dead.is_first);
        if let Some((from, _)) = joins {
            dead.from = if dead.is_first {
                self.by_start.keys().next().unwrap_or(from).clone()
            } else {
                from.clone()
            };
        }
        let is_joined = |start: &[u8]| dead.is_last || *start <= *dead.to;
        let mut joined: Vec<Box<[u8]>> = Vec::new();
        let (mut to, mut is_first, mut is_last) = (dead.to.clone(), dead.is_first, dead.is_last);
        for (start, known) in self.by_start.range::<[u8], _>(from_on(&dead.from)) {
            if !is_joined(start) {
                break;
            }
            joined.push(start.clone());
            seq = seq.max(known.seq);
            to = to.max(known.to.clone());
            (is_first, is_last) = (is_first || known.is_first, is_last || known.is_last);
        }
        for start in joined {
            self.by_start.remove(&start);
        }
        self.by_start.insert(dead.from, Recorded { to, seq, is_first, is_last, is_used: true });
        self.keep_few();
    }

    /// Cuts a living key out of the dead range that it falls into.
    fn cut(&mut self, key: &[u8]) {
        if let Some(announced) = self.announced.as_mut().filter(|one| one.dead.covers(key)) {
            announced.is_void = true;
        }
        if let Some(mut first) = self.by_start.first_entry().filter(|first| **first.key() > *key) {
            first.get_mut().is_first = false;
            return;
        }
        if let Some(mut last) = self.by_start.last_entry().filter(|last| *last.get().to <= *key) {
            last.get_mut().is_last = false;
            return;
        }
        let hit = self.by_start.range::<[u8], _>(up_to(key)).next_back();
        let Some(from) = hit.filter(|(_, known)| *known.to > *key).map(|(from, _)| from.clone())
        else {
            return;
        };
        let Some(known) = self.by_start.remove(&from) else { return };
        let Recorded { to, seq, is_first, is_last, is_used } = known;
        if let Some(above) = key_after(key).filter(|above| *above < to) {
            let upper = Recorded { to, seq, is_first: false, is_last, is_used };
            self.by_start.insert(above, upper);
        }
        if *from < *key {
            let lower = Recorded { to: key.into(), seq, is_first, is_last: false, is_used };
            self.by_start.insert(from, lower);
        }
        self.keep_few();
    }

    /// If there are too many dead ranges, drops those that no walk used since this was last done;
    /// drops all if each was used.
    fn keep_few(&mut self) {
        if self.by_start.len() <= RANGES_MAX {
            return;
        }
        self.by_start.retain(|_, known| std::mem::take(&mut known.is_used));
        if self.by_start.len() > RANGES_MAX / 2 {
            self.by_start.clear();
        }
    }
}
