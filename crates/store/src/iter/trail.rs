//! The keys that a walk steps over, remembered so that this walk and later ones pass them at once.
//!
//! Consecutive dead keys form a dead range. From the first key of a dead range on, the walk asks
//! whether an earlier walk has recorded what comes next. When it stands on a living key again, or
//! at the end, it records the dead range itself if that is worth the cost.

use rhumb_sync::primitive::Arc;

use super::source::Start;
use crate::{
    keys::key_after,
    memtable::{Asked, DeadRange, Memtable},
    types::{SeqNo, TreeId},
};

/// The number of steps over dead keys, or past recorded dead ranges, from which a dead range is
/// recorded. Recording costs about as much as these steps.
const RECORDED_MIN: u32 = 16;

/// A dead range is recorded in parts of this many steps, so that a walk that is abandoned was not
/// in vain.
const RECORDED_PART: u32 = 1024;

/// The number of first steps of a dead range that each ask for a recorded dead range.
const ASKING_STEPS: u32 = 4;
/// Of the later steps of a dead range, one in this many asks for a recorded dead range, because
/// asking costs a few steps.
const ASKING_EVERY: u32 = 8;

/// The number of steps that one pass counts for. A pass searches every source once, which costs as
/// much as several steps. Dead ranges with single dead keys between them are thus joined soon.
const PASS_STEPS: u32 = 4;

/// The LSM trees whose sources are merged, and the memtable that knows their dead ranges.
#[derive(Default)]
pub(crate) struct MergedTrees {
    /// The newest memtable that the walk reads; `None` if nothing is to be recorded.
    active: Option<Arc<Memtable>>,
    /// The first LSM tree, and nearly always the only one.
    first: TreeId,
    /// The others, each with the index of its first source.
    more: Vec<(usize, TreeId)>,
}

impl MergedTrees {
    /// Says that the sources from `source` on are those of this LSM tree.
    pub(crate) fn add(&mut self, active: &Arc<Memtable>, tree: TreeId, source: usize) {
        if self.active.is_none() {
            (self.active, self.first) = (Some(Arc::clone(active)), tree);
        } else {
            self.more.push((source, tree));
        }
    }

    /// The LSM tree of a source, the first source of that LSM tree, and the first source of the
    /// next one.
    fn of(&self, source: usize) -> (TreeId, usize, usize) {
        let next = self.more.partition_point(|(first, _)| *first <= source);
        let end = self.more.get(next).map_or(usize::MAX, |(first, _)| *first);
        let this = next.checked_sub(1).and_then(|at| self.more.get(at));
        this.map_or((self.first, 0, end), |(first, tree)| (*tree, *first, end))
    }
}

/// The dead range of dead keys that a walk is in, if it is in one.
pub(super) struct Trail {
    trees: MergedTrees,
    seq: SeqNo,
    forward: bool,
    is_in: bool,
    /// The near end of the dead range, where the walk entered it, as a bound of a [`DeadRange`].
    near: Vec<u8>,
    /// The last dead key.
    last: Vec<u8>,
    /// True if the walk came to no living key before.
    is_open: bool,
    /// The steps and passes in the dead range, and those since the last pass.
    steps: u32,
    since_pass: u32,
    /// The dead range to pass next, and the range of sources that pass it.
    pass: Option<(DeadRange, usize, usize)>,
    /// The number of entries that were stepped over.
    passed: u64,
}

impl Trail {
    /// The trail of a walk for a reader at `seq`.
    pub(super) fn new(trees: MergedTrees, seq: SeqNo, forward: bool) -> Self {
        Self {
            trees,
            seq,
            forward,
            is_in: false,
            near: Vec::new(),
            last: Vec::new(),
            is_open: true,
            steps: 0,
            since_pass: 0,
            pass: None,
            passed: 0,
        }
    }

    /// Records that the walk goes on in other LSM trees.
    pub(super) fn enter(&mut self, trees: MergedTrees) {
        // Records the dead range however short it is, because walks come by here each time.
        if self.is_in && self.steps > 1 {
            let last = std::mem::take(&mut self.last);
            self.record_past(&last);
        }
        self.trees = trees;
        (self.is_in, self.is_open) = (false, true);
    }

    /// Records that the walk begins at `start`. Returns where it should begin instead, if nothing
    /// is known to live before that.
    pub(super) fn begin(&mut self, start: &Start) -> Option<Start> {
        let asked = match start {
            Start::First => Asked::First,
            Start::Last => Asked::Last,
            Start::At(key, SeqNo::MAX) => Asked::From(key),
            Start::Before(key, SeqNo::MAX) => Asked::Before(key),
            Start::At(..) | Start::Before(..) => return None,
        };
        self.is_open = matches!(start, Start::First | Start::Last);
        let active = self.trees.active.as_ref().filter(|_| self.trees.more.is_empty())?;
        let dead = active.dead_range(self.trees.first, asked, self.seq)?;
        let near = if self.forward { &dead.from } else { &dead.to };
        (self.is_in, self.steps, self.since_pass) = (true, 1, 0);
        self.near.clear();
        self.near.extend_from_slice(near);
        // Nothing is known yet but what was recorded.
        self.last.clear();
        self.last.extend_from_slice(near);
        Some(self.after(&dead))
    }

    /// The position where the walk goes on after a dead range.
    fn after(&self, dead: &DeadRange) -> Start {
        match self.forward {
            true => Start::At(dead.to.clone(), SeqNo::MAX),
            false => Start::Before(dead.from.clone(), SeqNo::MAX),
        }
    }

    /// Counts entries that the walk stepped over.
    #[inline]
    pub(super) fn count(&mut self, entries: u64) {
        self.passed += entries;
    }

    /// Takes one counted entry back.
    #[inline]
    pub(super) fn uncount(&mut self) {
        self.passed = self.passed.saturating_sub(1);
    }

    /// The number of counted entries.
    #[cfg(test)]
    pub(super) fn passed(&self) -> u64 {
        self.passed
    }

    /// Records that the walk stepped over a dead key; its entry, or the next key's, came from
    /// `source`. Returns true if the walk must go on at [`Trail::take_pass`].
    #[inline(never)]
    pub(super) fn record_dead_key(&mut self, key: &[u8], source: Option<usize>) -> bool {
        let Some(active) = &self.trees.active else { return false };
        if !self.is_in {
            let near = if self.forward { Some(key.into()) } else { key_after(key) };
            let Some(near) = near else { return false };
            (self.is_in, self.steps, self.since_pass) = (true, 0, 0);
            self.near.clear();
            self.near.extend_from_slice(&near);
        }
        self.last.clear();
        self.last.extend_from_slice(key);
        self.steps += 1;
        let asks = self.since_pass < ASKING_STEPS || self.since_pass.is_multiple_of(ASKING_EVERY);
        self.since_pass += 1;
        if let Some(source) = source.filter(|_| asks) {
            let (tree, first, end) = self.trees.of(source);
            // The key itself may have been inserted and deleted again, which has cut it out of the
            // dead range. So the question starts beside it.
            let beside = if self.forward { key_after(key) } else { Some(key.into()) };
            let asked = beside.as_deref().map(|beside| match self.forward {
                true => Asked::From(beside),
                false => Asked::Before(beside),
            });
            let found = asked.and_then(|asked| active.dead_range(tree, asked, self.seq));
            if let Some(dead) = found {
                self.since_pass = 0;
                self.steps += PASS_STEPS;
                self.pass = Some((dead, first, end));
                return true;
            }
        }
        if self.steps >= RECORDED_PART {
            self.record_past(key);
            self.steps = 0;
        }
        false
    }

    /// Takes the dead range to pass, the position after it, and the range of sources that go there.
    pub(super) fn take_pass(&mut self) -> Option<(DeadRange, Start, usize, usize)> {
        let (dead, first, end) = self.pass.take()?;
        let start = self.after(&dead);
        Some((dead, start, first, end))
    }

    /// Records that the walk stands on this living key.
    #[inline]
    pub(super) fn record_living_key(&mut self, key: &[u8]) {
        if self.is_in {
            self.leave(key);
        }
        self.is_open = false;
    }

    #[inline(never)]
    fn leave(&mut self, key: &[u8]) {
        self.is_in = false;
        if self.steps >= RECORDED_MIN {
            match self.forward {
                true => self.record(key.into()),
                false => key_after(key).map_or((), |far| self.record(far)),
            }
        }
    }

    /// Returns true if the walk is in a dead range.
    #[inline]
    pub(super) fn is_in(&self) -> bool {
        self.is_in
    }

    /// Records that the walk reached its end in the dead range, which it knows up to the last dead
    /// key.
    pub(super) fn end(&mut self) {
        if self.is_in && self.steps >= RECORDED_MIN {
            let last = std::mem::take(&mut self.last);
            self.record_past(&last);
        }
        self.is_in = false;
    }

    /// Records the dead range up to this dead key.
    fn record_past(&mut self, key: &[u8]) {
        match self.forward {
            true => key_after(key).map_or((), |far| self.record(far)),
            false => self.record(key.into()),
        }
    }

    fn record(&mut self, far: Box<[u8]>) {
        let Some(active) = &self.trees.active else { return };
        let near: Box<[u8]> = self.near.as_slice().into();
        let (from, to) = if self.forward { (near, far) } else { (far, near) };
        if from >= to {
            return;
        }
        let (is_first, is_last) = (self.is_open && self.forward, self.is_open && !self.forward);
        let dead = DeadRange { from, to, is_first, is_last };
        for tree in std::iter::once(self.trees.first).chain(self.trees.more.iter().map(|m| m.1)) {
            active.record_dead_range(tree, dead.clone(), self.seq);
        }
    }
}

impl Drop for Trail {
    fn drop(&mut self) {
        if let Some(active) = self.trees.active.as_ref().filter(|_| self.passed > 0) {
            active.count_passed(self.passed);
        }
    }
}
