//! The range tombstones that a walk through one LSM tree meets, over all its structures.
//!
//! The walk goes in one direction and asks for each key. Most keys are in the same span as the key
//! before, which costs one comparison.

use rhumb_sync::primitive::Arc;

use crate::{
    memtable::{MemView, Memtable},
    ranges::RangeSpan,
    types::{SeqNo, TreeId},
    version::levels::Levels,
};

/// The range tombstones of the memtables and the levels of one LSM tree, for one reader.
pub(crate) struct RangeView {
    tree: TreeId,
    /// The memtables that have tombstones of the LSM tree, newest first, each with its depth.
    memtables: Vec<(u32, Arc<Memtable>)>,
    levels: Arc<Levels>,
    /// The depth of the first table of level 0.
    level_depth: u32,
    /// The greatest sequence number in the memtables, including those without tombstones.
    newest: SeqNo,
    /// No tombstone has a greater sequence number.
    most: SeqNo,
    /// Keys around one that was asked for. Either no tombstone covers any of them, or the newest
    /// one over each has at least the span's sequence number.
    run: Option<RangeSpan>,
    /// Keys around one that was asked for, over all of which the same tombstone is the newest.
    exact: Option<RangeSpan>,
    /// True if the last answer came from `exact`.
    is_exact: bool,
}

impl RangeView {
    /// The tombstones that a walk may meet; `None` if there are none.
    pub(crate) fn new(view: &MemView, tree: TreeId, levels: &Arc<Levels>) -> Option<Self> {
        let memtables: Vec<_> = (0..)
            .zip(view.all())
            .filter(|(_, memtable)| memtable.has_ranges_of(tree))
            .map(|(at, memtable)| (at, Arc::clone(memtable)))
            .collect();
        if !levels.has_ranges() && memtables.is_empty() {
            return None;
        }
        // Later ones are not seen by the walk.
        let most = memtables.iter().map(|(_, memtable)| memtable.most_range(tree));
        let most = most.chain([levels.most_range()]).max().unwrap_or(0);
        let level_depth = view.all().count() as u32;
        // For a memtable whose table is in the levels this is final: it takes no more writes.
        let newest = view.all().map(|memtable| memtable.last_seq()).max().unwrap_or(0);
        let (run, exact, is_exact) = (None, None, false);
        let levels = Arc::clone(levels);
        Some(Self { tree, memtables, levels, level_depth, newest, most, run, exact, is_exact })
    }

    /// The depth of memtable `at`, counted from the newest. Tombstones of a structure hide entries
    /// of the same keys in deeper structures, whatever their sequence numbers.
    pub(crate) fn memtable_depth(at: usize) -> u32 {
        at as u32
    }

    /// The depth of table `at` of level 0, counted from the newest.
    pub(crate) fn l0_depth(&self, at: usize) -> u32 {
        self.level_depth + at as u32
    }

    /// The depth of `level`, which is not 0.
    pub(crate) fn level_depth(&self, level: usize) -> u32 {
        self.l0_depth(self.levels.l0.len() + level - 1)
    }

    /// Returns true if a tombstone that a reader at `seq` sees covers the entry of `key` with the
    /// sequence number `entry`. Later calls must be for the same reader, and for keys further on in
    /// the direction of the walk.
    #[inline]
    pub(crate) fn hides(&mut self, key: &[u8], entry: SeqNo, seq: SeqNo, forward: bool) -> bool {
        if entry >= self.most {
            return false;
        }
        if !holds(self.run.as_ref(), key, forward) {
            let run = self.look_for_run(key, seq);
            self.run = Some(run);
        }
        let run = self.run.as_ref().map_or(0, |run| run.seq);
        self.is_exact = run > 0 && run <= entry;
        if !self.is_exact {
            return run > entry;
        }
        if !holds(self.exact.as_ref(), key, forward) {
            let exact = self.look(key, seq);
            self.exact = Some(exact);
        }
        self.exact.as_ref().is_some_and(|exact| exact.seq > entry)
    }

    /// The keys around the last one that was hidden. Tombstones with the span's sequence number or
    /// greater ones cover all of them.
    pub(crate) fn span(&self) -> Option<&RangeSpan> {
        if self.is_exact { self.exact.as_ref() } else { self.run.as_ref() }
    }

    #[cold]
    fn look_for_run(&self, key: &[u8], seq: SeqNo) -> RangeSpan {
        let mut span = RangeSpan::default();
        for (depth, memtable) in &self.memtables {
            if memtable.narrow_to_run(self.tree, key, seq, &mut span) {
                return RangeSpan { depth: *depth, deeper_to: self.newest, ..span };
            }
        }
        let at = self.levels.narrow_to_run(key, seq, &mut span);
        self.in_levels(at, span)
    }

    #[cold]
    fn look(&self, key: &[u8], seq: SeqNo) -> RangeSpan {
        let mut span = RangeSpan::default();
        for (depth, memtable) in &self.memtables {
            if memtable.narrow_to_fragment(self.tree, key, seq, &mut span) {
                return RangeSpan { depth: *depth, deeper_to: self.newest, ..span };
            }
        }
        let at = self.levels.narrow_to_fragment(key, seq, &mut span);
        self.in_levels(at, span)
    }

    /// A span whose tombstone is in the levels, at position `at` among their structures.
    fn in_levels(&self, at: Option<usize>, span: RangeSpan) -> RangeSpan {
        let depth = at.map_or(0, |at| self.l0_depth(at));
        // The levels are those of one moment, so all entries in deeper ones are older.
        RangeSpan { depth, deeper_to: SeqNo::MAX, ..span }
    }
}

/// Returns true if a key is in a span that an earlier key was in, in the direction of the walk.
#[inline]
fn holds(span: Option<&RangeSpan>, key: &[u8], forward: bool) -> bool {
    span.is_some_and(|span| {
        if forward {
            span.to.as_ref().is_none_or(|to| *key < **to)
        } else {
            span.from.as_ref().is_none_or(|from| *key >= **from)
        }
    })
}
