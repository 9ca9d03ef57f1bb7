//! Stretches of keys in which nothing lives. Walks record them, so that later walks need not step
//! through them again.
//!
//! A queue leaves a tombstone for each entry that was popped, and the next search for its first key
//! would step over all of them. A walk that stepped over many dead keys records the stretch here;
//! later walks seek past it, in all sources at once.
//!
//! A stretch with the sequence number `seq` says: a reader whose newest memtable is this one, and
//! whose sequence number is `seq` or greater, sees no living key in it. It says nothing to older
//! readers. Three things keep that true:
//!
//! 1. A stretch is recorded by a reader that saw all of it dead, and that sees everything outside
//!    this memtable: its sequence number is at least `floor`.
//! 2. What the memtable got after that reader's sequence number is checked once the stretch has
//!    been announced. If a living key is among it, nothing is recorded.
//! 3. Before a reader can see an inserted value, the value cuts the recorded stretch that it falls
//!    into, and voids one that has only been announced.
//!
//! Flushes and compactions change no answer, so they change nothing here. The next memtable
//! inherits the stretches. The sub-trees that have stretches are known by a hash in a word of bits,
//! so that writes to other sub-trees look no further.
//!
//! This file knows nothing of entries, so a model checker can run it by itself
//! (`crates/testkit/tests/dead_stretches.rs`).

use std::{
    collections::{BTreeMap, HashMap},
    ops::Bound,
};

use rhumb_sync::primitive::{AtomicU64, AtomicUsize, Mutex, Ordering};

use crate::{
    keys::{KeySpan, key_after},
    types::{SeqNo, TreeId},
};

/// The number of stretches of one sub-tree above which those that no walk used are dropped. It
/// bounds memory, at 200 bytes per stretch. A queue has one stretch; a priority queue has one more
/// for each key that came back among the dead ones.
const STRETCHES_MAX: usize = 4096;

/// The number of sub-trees with stretches above which all are dropped. Thousands of queues fit.
const TREES_MAX: usize = 4096;

/// Keys from `from` on and before `to`, none of which is living.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) from: Box<[u8]>,
    pub(crate) to: Box<[u8]>,
    /// True if nothing living is before `from` either.
    pub(crate) is_first: bool,
    /// True if nothing living is from `to` on either.
    pub(crate) is_last: bool,
}

impl Stretch {
    /// Returns true if the key is in the stretch, or in the part before or after it where nothing
    /// lives either.
    fn covers(&self, key: &[u8]) -> bool {
        (self.is_first || *self.from <= *key) && (self.is_last || *key < *self.to)
    }
}

/// The position at which a walk asks for a stretch.
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

/// A recorded stretch; its `from` is its key in the map.
struct Run {
    to: Box<[u8]>,
    /// Readers below this sequence number may see living keys in it.
    seq: SeqNo,
    is_first: bool,
    is_last: bool,
    /// True if a walk used it since stretches were last dropped.
    is_used: bool,
}

/// A stretch that is being recorded.
struct Announced {
    ticket: u64,
    stretch: Stretch,
    seq: SeqNo,
    /// True if a value was inserted into it.
    is_void: bool,
}

/// The stretches of a sub-tree. They neither overlap nor touch.
#[derive(Default)]
struct Runs {
    by_start: BTreeMap<Box<[u8]>, Run>,
    announced: Option<Announced>,
}

#[derive(Default)]
struct State {
    /// Readers from this sequence number on see everything that is not in the memtable.
    floor: SeqNo,
    trees: HashMap<TreeId, Runs>,
    /// The ticket of the last announcement.
    ticket: u64,
}

/// A stretch that was announced and must be finished.
struct Announcement {
    ticket: u64,
    /// The parts of it that were not known yet.
    parts: Vec<KeySpan>,
}

/// The dead stretches of all sub-trees that are known while one memtable takes the writes.
#[derive(Default)]
pub(super) struct DeadRuns {
    state: Mutex<State>,
    /// One bit for the hash of each sub-tree that has stretches.
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

/// The bit of a sub-tree in the word.
fn bit(tree: TreeId) -> u64 {
    1 << (tree % u64::BITS)
}

impl DeadRuns {
    /// The stretches that the next memtable begins with: all of them, which leave this one. All
    /// entries up to `seq` are in this memtable or in older ones. No write may be in progress.
    pub(super) fn successor(&self, seq: SeqNo) -> Self {
        let mut state = self.state.lock();
        let floor = seq.max(state.floor);
        let mut next = State { floor, trees: HashMap::new(), ticket: 0 };
        let mut mask = 0;
        for (tree, runs) in &mut state.trees {
            let by_start = std::mem::take(&mut runs.by_start);
            if !by_start.is_empty() && next.trees.len() < TREES_MAX {
                mask |= bit(*tree);
                next.trees.insert(*tree, Runs { by_start, announced: None });
            }
        }
        Self { state: Mutex::new(next), mask: AtomicU64::new(mask) }
    }

    /// Returns true if any sub-tree has stretches.
    #[inline]
    fn may_have_any(&self) -> bool {
        self.mask.load(Ordering::Acquire) != 0
    }

    /// Returns true if a sub-tree may have stretches.
    #[inline]
    fn may_have(&self, tree: TreeId) -> bool {
        self.mask.load(Ordering::Acquire) & bit(tree) != 0
    }

    /// The stretch around a position that holds for a reader at `seq`. O(log stretches).
    pub(super) fn find(&self, tree: TreeId, asked: Asked<'_>, seq: SeqNo) -> Option<Stretch> {
        if !self.may_have(tree) {
            return None;
        }
        let mut state = self.state.lock();
        let runs = &mut state.trees.get_mut(&tree)?.by_start;
        let (from, run) = match asked {
            Asked::First => runs.iter_mut().next().filter(|(_, run)| run.is_first),
            Asked::Last => runs.iter_mut().next_back().filter(|(_, run)| run.is_last),
            Asked::From(key) => {
                let run = runs.range_mut::<[u8], _>(up_to(key)).next_back();
                run.filter(|(_, run)| *run.to > *key)
            }
            Asked::Before(key) => {
                let run = runs.range_mut::<[u8], _>(below(key)).next_back();
                run.filter(|(_, run)| *run.to >= *key)
            }
        }?;
        if run.seq > seq {
            return None;
        }
        run.is_used = true;
        let (from, to) = (from.clone(), run.to.clone());
        Some(Stretch { from, to, is_first: run.is_first, is_last: run.is_last })
    }

    /// Records a stretch that a reader at `seq` saw dead, if that is still true. `newest` returns
    /// the greatest sequence number of a tombstone that the memtable has in the given parts, 0 if
    /// the memtable has nothing there, and `None` if it has a value. `inserted` is the counter of
    /// [`DeadRuns::note_inserted`].
    pub(super) fn record(
        &self,
        inserted: &AtomicUsize,
        tree: TreeId,
        stretch: Stretch,
        seq: SeqNo,
        newest: impl FnOnce(&[KeySpan]) -> Option<SeqNo>,
    ) {
        let Some(announcement) = self.announce(tree, stretch, seq) else { return };
        // The order of this step and the writer's step decides: what was inserted before is found
        // now, and what is inserted after finds the announcement.
        inserted.fetch_add(0, Ordering::AcqRel);
        let newest = newest(&announcement.parts);
        self.finish(tree, &announcement, newest);
    }

    /// Must be called after values of these keys have been inserted and before a reader sees them.
    /// Adds `bytes` to `inserted`, and cuts the keys out of the stretches. Costs one load if there
    /// are no stretches.
    #[inline]
    pub(super) fn note_inserted<'k>(
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

    /// Announces a stretch that a reader at `seq` saw dead. Returns the parts of it that are not
    /// known yet; the memtable must be searched there for what the reader did not see, before
    /// [`DeadRuns::finish`]. Returns `None` if the stretch cannot be recorded.
    fn announce(&self, tree: TreeId, stretch: Stretch, seq: SeqNo) -> Option<Announcement> {
        let mut state = self.state.lock();
        let state = &mut *state;
        if seq < state.floor {
            return None;
        }
        if state.trees.len() >= TREES_MAX && !state.trees.contains_key(&tree) {
            state.trees.retain(|_, runs| runs.announced.is_some());
        }
        let runs = state.trees.entry(tree).or_default();
        if runs.announced.is_some() {
            return None;
        }
        let mut parts: Vec<KeySpan> = Vec::new();
        let mut from: Box<[u8]> =
            if stretch.is_first { Box::default() } else { stretch.from.clone() };
        let before = runs.by_start.range::<[u8], _>(below(&from)).next_back();
        let begun = before.map(|(_, run)| &run.to).filter(|to| **to > from);
        from = begun.cloned().unwrap_or(from);
        for (start, run) in runs.by_start.range::<[u8], _>(from_on(&from)) {
            if *start >= stretch.to && !stretch.is_last {
                break;
            }
            if *start > from {
                parts.push((from, Some(start.clone())));
            }
            from = run.to.clone();
        }
        if stretch.is_last {
            parts.push((from, None));
        } else if from < stretch.to {
            parts.push((from, Some(stretch.to.clone())));
        }
        state.ticket += 1;
        let ticket = state.ticket;
        runs.announced = Some(Announced { ticket, stretch, seq, is_void: false });
        self.mask.fetch_or(bit(tree), Ordering::AcqRel);
        Some(Announcement { ticket, parts })
    }

    /// Records the stretch that was announced, joined with those that it overlaps or touches.
    /// `newest` is the greatest sequence number of a tombstone that the memtable has in it; `None`
    /// if it has a value.
    fn finish(&self, tree: TreeId, announcement: &Announcement, newest: Option<SeqNo>) {
        let mut state = self.state.lock();
        let Some(runs) = state.trees.get_mut(&tree) else { return };
        let is_ours = |one: &mut Announced| one.ticket == announcement.ticket;
        let Some(Announced { stretch, seq, is_void, .. }) = runs.announced.take_if(is_ours) else {
            return;
        };
        if let Some(newest) = newest.filter(|_| !is_void) {
            runs.add(stretch, seq.max(newest));
        }
    }

    /// Handles a value of this key that was inserted, and that no reader sees yet.
    fn revive(&self, tree: TreeId, key: &[u8]) {
        let mut state = self.state.lock();
        if let Some(runs) = state.trees.get_mut(&tree) {
            runs.cut(key);
        }
    }

    /// Forgets the stretches of a sub-tree that is about to get entries with the sequence number
    /// `seq` that bypass this memtable. Readers below that number record none.
    pub(super) fn forget(&self, tree: TreeId, seq: SeqNo) {
        let mut state = self.state.lock();
        state.floor = state.floor.max(seq);
        state.trees.remove(&tree);
    }
}

impl Runs {
    /// Adds a stretch, joined with those that it overlaps or touches.
    fn add(&mut self, mut stretch: Stretch, mut seq: SeqNo) {
        let lower = self.by_start.range::<[u8], _>(below(&stretch.from)).next_back();
        let joins = lower.filter(|(_, run)| run.to >= stretch.from || stretch.is_first);
        if let Some((from, _)) = joins {
            stretch.from = if stretch.is_first {
                self.by_start.keys().next().unwrap_or(from).clone()
            } else {
                from.clone()
            };
        }
        let is_joined = |start: &[u8]| stretch.is_last || *start <= *stretch.to;
        let mut joined: Vec<Box<[u8]>> = Vec::new();
        let (mut to, mut is_first, mut is_last) =
            (stretch.to.clone(), stretch.is_first, stretch.is_last);
        for (start, run) in self.by_start.range::<[u8], _>(from_on(&stretch.from)) {
            if !is_joined(start) {
                break;
            }
            joined.push(start.clone());
            seq = seq.max(run.seq);
            to = to.max(run.to.clone());
            (is_first, is_last) = (is_first || run.is_first, is_last || run.is_last);
        }
        for start in joined {
            self.by_start.remove(&start);
        }
        self.by_start.insert(stretch.from, Run { to, seq, is_first, is_last, is_used: true });
        self.keep_few();
    }

    /// Cuts a living key out of the stretch that it falls into.
    fn cut(&mut self, key: &[u8]) {
        if let Some(announced) = self.announced.as_mut().filter(|one| one.stretch.covers(key)) {
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
        let Some(from) = hit.filter(|(_, run)| *run.to > *key).map(|(from, _)| from.clone()) else {
            return;
        };
        let Some(run) = self.by_start.remove(&from) else { return };
        let Run { to, seq, is_first, is_last, is_used } = run;
        if let Some(above) = key_after(key).filter(|above| *above < to) {
            let upper = Run { to, seq, is_first: false, is_last, is_used };
            self.by_start.insert(above, upper);
        }
        if *from < *key {
            let lower = Run { to: key.into(), seq, is_first, is_last: false, is_used };
            self.by_start.insert(from, lower);
        }
        self.keep_few();
    }

    /// If there are too many stretches, drops those that no walk used since this was last done;
    /// drops all if each was used.
    fn keep_few(&mut self) {
        if self.by_start.len() <= STRETCHES_MAX {
            return;
        }
        self.by_start.retain(|_, run| std::mem::take(&mut run.is_used));
        if self.by_start.len() > STRETCHES_MAX / 2 {
            self.by_start.clear();
        }
    }
}
