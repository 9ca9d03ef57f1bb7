//! Merges sorted sources into one sorted walk over all their entries, versions included. If the
//! keyspace has partitions, the walk goes through the sources of one partition after another.

use std::{
    cmp::Ordering,
    ops::Bound,
    task::{Context, Poll},
};

use rhumb_sync::primitive::Arc;

use super::{
    partitions::PartitionWalk,
    source::{Skip, Source, Start},
    trail::{MergedTrees, Trail},
};
use crate::{
    error::Result,
    iter::ranges::RangeView,
    plan::{Progress, drivers::read_many},
    slice::BlockRef,
    table::{DataSize, Step, TableCursor},
    types::{SeqNo, compare_entries, compare_keys},
};

/// The number of entries under the same range tombstone that are passed one by one before a source
/// seeks past it. A seek costs about as much as this many steps.
const STEPS_MAX: u32 = 8;

/// The sources of one or more LSM trees, and the range tombstones over the entries of each.
#[derive(Default)]
pub(crate) struct SourceSet {
    pub(crate) sources: Vec<Source>,
    /// The LSM trees of the sources.
    pub(super) trees: MergedTrees,
    /// The range tombstones of each LSM tree that has some.
    views: Vec<RangeView>,
    /// For each source, the view that covers its entries. Empty while there are no views at all.
    over: Vec<Over>,
}

/// The range tombstones that cover the entries of a source, and the depth of the source among the
/// structures of its LSM tree.
#[derive(Clone, Copy)]
struct Over {
    /// An index into the views; beyond the last if no tombstones cover the source.
    view: usize,
    depth: u32,
}

impl Over {
    const NONE: Self = Self { view: usize::MAX, depth: 0 };
}

impl SourceSet {
    /// Sources without range tombstones over them.
    pub(crate) fn of(sources: Vec<Source>) -> Self {
        Self { sources, ..Self::default() }
    }

    /// Adds a source. `ranges` are the range tombstones that will be added next, and `depth`
    /// returns how deep among their structures the source lies.
    pub(crate) fn add(
        &mut self,
        source: Source,
        ranges: Option<&RangeView>,
        depth: impl FnOnce(&RangeView) -> u32,
    ) {
        if let Some(ranges) = ranges {
            // LSM trees before the first with range tombstones have none.
            self.over.resize(self.sources.len(), Over::NONE);
            self.over.push(Over { view: self.views.len(), depth: depth(ranges) });
        }
        self.sources.push(source);
    }

    /// Adds the range tombstones that cover the entries of the sources added with them.
    pub(crate) fn add_ranges(&mut self, view: Option<RangeView>) {
        self.views.extend(view);
    }
}

/// The inputs of a merge.
pub(crate) enum Inputs {
    /// These sources, merged.
    Sources(SourceSet),
    /// The sources of each partition, merged, one partition after another.
    Partitions(PartitionWalk),
}

/// A merge of sources in one direction.
///
/// `order` names the sources that stand on an entry, sorted by that entry. There are few sources,
/// and the next entry mostly comes from the same one as the last, so keeping the list sorted by
/// insertion costs one comparison per entry, less than a heap.
pub(crate) struct MergedSources {
    sources: Vec<Source>,
    /// As in [`SourceSet`].
    views: Vec<RangeView>,
    over: Vec<Over>,
    /// The number of consecutive entries that were under a range tombstone.
    passed: u32,
    /// Range tombstones are those that a reader at this sequence number sees.
    seq: SeqNo,
    order: Vec<usize>,
    forward: bool,
    /// The start of the walk through these sources.
    start: Start,
    /// The walk ends here at the latest: a source that begins beyond this bound takes no part.
    end: Bound<Box<[u8]>>,
    /// About how many more keys will be wanted; 0 if this is not known.
    expected: usize,
    phase: Phase,
    /// The partitions after these sources.
    partitions: Option<PartitionWalk>,
    /// The dead keys that are being stepped over.
    trail: Trail,
}

enum Phase {
    /// The merge has not begun.
    Fresh,
    /// The sources were started, and these wait for a block each. The last of them is served next.
    Starting(Vec<(usize, u32)>),
    /// The first source was moved, and waits for this block.
    Moving(u32),
    /// The walk stands on an entry, or at its end.
    Standing,
}

impl MergedSources {
    /// A walk over `inputs` from `start`. It stands nowhere before [`MergedSources::begin`].
    /// Entries beyond `end` may be left out. The range tombstones are those that a reader at `seq`
    /// sees.
    pub(crate) fn new(inputs: Inputs, start: Start, end: Bound<Box<[u8]>>, seq: SeqNo) -> Self {
        let forward = start.is_forward();
        let (set, partitions) = match inputs {
            Inputs::Sources(set) => (set, None),
            Inputs::Partitions(mut walk) => {
                (walk.next_sources(forward).unwrap_or_default(), Some(walk))
            }
        };
        let SourceSet { sources, trees, views, over } = set;
        let order = Vec::with_capacity(sources.len());
        Self {
            sources,
            views,
            over,
            passed: 0,
            seq,
            order,
            forward,
            start,
            end,
            expected: 0,
            phase: Phase::Fresh,
            partitions,
            trail: Trail::new(trees, seq, forward),
        }
    }

    /// Says that the walk will want about `entries` keys. Call it before the walk begins.
    pub(crate) fn hint_len(&mut self, entries: usize) {
        self.expected = entries;
    }

    /// Counts one of the expected keys as given.
    #[inline]
    pub(crate) fn count_given(&mut self) {
        self.expected = self.expected.saturating_sub(1);
    }

    /// Makes every table ask for the blocks it lacks of its share of the expected keys, whether its
    /// source waits for a block or not. Only a walk that waits for a block does this; if everything
    /// is in memory, it is never called.
    #[cold]
    fn hint_pages(&mut self, waiting: &[(usize, u32)]) -> Result<()> {
        let keys = DataSize::keys_of(self.sources.iter().map(Source::extent));
        for (at, source) in self.sources.iter_mut().enumerate() {
            let extent = source.extent();
            let pages = |demand| extent.pages_of(self.expected, keys, demand);
            let block = waiting.iter().find(|(waits, _)| *waits == at).map(|(_, block)| *block);
            if let Some(cursor) = source.table_cursor() {
                cursor.hint_pages(block, pages, !self.forward)?;
            }
        }
        Ok(())
    }

    /// Goes to the first entry. All sources are started before the first is waited for, so that
    /// their blocks can be read at once. If a block is already waited for, asks for it again.
    pub(crate) fn begin(&mut self) -> Result<Progress<()>> {
        if matches!(self.phase, Phase::Fresh) {
            self.start_sources()?;
        }
        self.go_on_starting()
    }

    fn start_sources(&mut self) -> Result<()> {
        let mut waiting = Vec::new();
        if let Some(start) = self.trail.begin(&self.start) {
            self.start = start;
        }
        self.find_ranges_at_start();
        for (at, source) in self.sources.iter_mut().enumerate() {
            source.hint_len(self.expected);
            let Over { view, depth } = self.over.get(at).copied().unwrap_or(Over::NONE);
            let span = self.views.get(view).and_then(RangeView::span).filter(|span| span.seq > 0);
            let skipped =
                span.map(|span| source.start_past(&self.start, span, depth)).transpose()?;
            let step = match skipped {
                Some(Skip::All(step) | Skip::Part(step)) => step,
                Some(Skip::Nothing) | None => source.start(&self.start)?,
            };
            if let Step::Need(block) = step {
                waiting.push((at, block));
            }
        }
        self.phase = Phase::Starting(waiting);
        Ok(())
    }

    /// Looks for range tombstones over the key where the walk starts, so that nothing under them is
    /// read. A backward walk starts before the key, which no tombstone may cover.
    fn find_ranges_at_start(&mut self) {
        let Start::At(key, _) = &self.start else { return };
        for view in &mut self.views {
            view.hides(key, 0, self.seq, true);
        }
    }

    /// Returns true if a range tombstone that the reader sees covers the entry under the walk.
    #[inline]
    pub(crate) fn is_top_removed(&mut self) -> bool {
        if self.views.is_empty() {
            return false;
        }
        let removed = self.top_removed();
        if !removed {
            self.passed = 0;
        }
        removed
    }

    #[cold]
    #[inline(never)]
    fn top_removed(&mut self) -> bool {
        let Some(&top) = self.order.first() else { return false };
        let view = self.over.get(top).and_then(|over| self.views.get_mut(over.view));
        let source = &self.sources[top];
        let (key, entry) = (source.key(), source.seq());
        view.is_some_and(|view| view.hides(key, entry, self.seq, self.forward))
    }

    /// Like [`MergedSources::advance`] from an entry under a range tombstone: goes past all that
    /// the tombstone covers, or to where the source may have something newer.
    pub(crate) fn skip(&mut self) -> Result<Progress<()>> {
        self.passed += 1;
        if self.passed <= STEPS_MAX || matches!(self.phase, Phase::Moving(_)) {
            return self.advance();
        }
        let Some(&top) = self.order.first() else { return self.advance() };
        let Over { view, depth } = self.over.get(top).copied().unwrap_or(Over::NONE);
        let Some(span) = self.views.get(view).and_then(RangeView::span) else {
            return self.advance();
        };
        let skip = self.sources[top].skip(span, depth, self.forward)?;
        if !matches!(skip, Skip::All(_)) {
            // If this only leads from one entry to the next, it must not cost a search each time.
            self.passed = 0;
        }
        match skip {
            Skip::Nothing => self.advance(),
            Skip::All(Step::Done(())) | Skip::Part(Step::Done(())) => self.reorder_top(),
            Skip::All(Step::Need(block)) | Skip::Part(Step::Need(block)) => {
                self.phase = Phase::Moving(block);
                Ok(self.need(top, block))
            }
        }
    }

    /// Like [`MergedSources::advance`] from one of many versions of a key: the source under the
    /// walk goes past those that a reader at `seq` does not see, or without `seq` past all of them.
    /// See [`Source::pass_versions`].
    pub(crate) fn pass_versions(&mut self, seq: Option<SeqNo>) -> Result<Progress<()>> {
        let Some(&top) = self.order.first() else { return self.advance() };
        if matches!(self.phase, Phase::Moving(_)) {
            return self.advance();
        }
        match self.sources[top].pass_versions(seq, self.forward)? {
            Step::Done(()) => self.reorder_top(),
            Step::Need(block) => {
                self.phase = Phase::Moving(block);
                Ok(self.need(top, block))
            }
        }
    }

    /// Counts an entry that the walk steps over.
    #[inline]
    pub(super) fn count_entry(&mut self) {
        self.trail.count(1);
    }

    /// Takes an entry back out of the count, because it is given after all.
    #[inline]
    pub(super) fn uncount_entry(&mut self) {
        self.trail.uncount();
    }

    /// The number of entries that were looked at and not given, by the walk and by its sources.
    /// This is the one count of what is stepped over: it goes into `Stats::passed_entries` in the
    /// end.
    #[cfg(test)]
    pub(super) fn passed(&self) -> u64 {
        self.trail.passed() + self.sources.iter().map(Source::passed).sum::<u64>()
    }

    /// Records that the walk stepped over a dead key. Returns true if the walk must go on with
    /// [`MergedSources::pass_dead`].
    pub(super) fn record_dead_key(&mut self, key: &[u8]) -> bool {
        self.trail.record_dead_key(key, self.order.first().copied())
    }

    /// Records that the walk stands on the entry under it, or on this key. If that is beyond the
    /// walk's end, nothing is known of the keys before it: sources that began beyond the end took
    /// no part.
    #[inline]
    pub(super) fn record_living_key(&mut self, key: Option<&[u8]>) {
        let top = || self.order.first().map(|&top| self.sources[top].key());
        let Some(key) = key.or_else(top) else { return };
        if self.trail.is_in() && self.is_beyond(key) {
            return self.trail.end();
        }
        self.trail.record_living_key(key);
    }

    /// Records that the walk has ended.
    pub(super) fn record_end(&mut self) {
        self.trail.end();
    }

    /// Like [`MergedSources::advance`] from a dead key in a dead range in which no key is known to
    /// live: all sources of its LSM tree go past the dead range.
    pub(super) fn pass_dead(&mut self) -> Result<Progress<()>> {
        let Some((dead, start, first, end)) = self.trail.take_pass() else {
            return self.advance();
        };
        let end = end.min(self.sources.len());
        // The walk stands nowhere until all sources have passed the dead range.
        self.order.clear();
        let mut waiting = Vec::new();
        for (at, source) in self.sources.iter_mut().enumerate().take(end).skip(first) {
            let is_inside = match self.forward {
                true => *source.key() < *dead.to,
                false => *source.key() >= *dead.from,
            };
            if !source.is_valid() || !is_inside {
                continue;
            }
            if let Step::Need(block) = source.start(&start)? {
                waiting.push((at, block));
            }
        }
        self.phase = Phase::Starting(waiting);
        self.go_on_starting()
    }

    fn count_passed(&mut self) {
        let passed = self.sources.iter().map(Source::passed).sum();
        self.trail.count(passed);
    }

    /// Once no source waits, stands on the first entry of this partition or of a later one, if
    /// there is any.
    fn go_on_starting(&mut self) -> Result<Progress<()>> {
        while let Phase::Starting(waiting) = &self.phase {
            if let Some((at, block)) = waiting.last() {
                return Ok(self.need(*at, *block));
            }
            self.sort();
            if !self.order.is_empty() || !self.open_partition()? {
                break;
            }
        }
        Ok(Progress::Done(()))
    }

    /// Starts the sources of the next partition. Returns false if there is none.
    fn open_partition(&mut self) -> Result<bool> {
        let next = self.partitions.as_mut().and_then(|walk| walk.next_sources(self.forward));
        let Some(set) = next else { return Ok(false) };
        self.count_passed();
        self.trail.enter(set.trees);
        (self.sources, self.views, self.over) = (set.sources, set.views, set.over);
        self.start = if self.forward { Start::First } else { Start::Last };
        self.start_sources()?;
        Ok(true)
    }

    /// Goes to the next entry. Does nothing at the end. If a block is already waited for, asks for
    /// it again.
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<Progress<()>> {
        let Some(&top) = self.order.first() else { return self.go_on_starting() };
        if let Phase::Moving(block) = self.phase {
            return Ok(self.need(top, block));
        }
        match self.sources[top].advance(self.forward)? {
            Step::Done(()) => self.reorder_top(),
            Step::Need(block) => {
                self.phase = Phase::Moving(block);
                Ok(self.need(top, block))
            }
        }
    }

    /// Takes the block that was asked for and goes on.
    pub(crate) fn resume(&mut self, block: BlockRef) -> Result<Progress<()>> {
        let forward = self.forward;
        match &mut self.phase {
            Phase::Starting(waiting) => {
                let Some((at, wanted)) = waiting.last_mut() else { return Ok(Progress::Done(())) };
                match self.sources[*at].resume(block, forward)? {
                    Step::Done(()) => drop(waiting.pop()),
                    Step::Need(block) => *wanted = block,
                }
                self.go_on_starting()
            }
            Phase::Moving(wanted) => {
                let top = self.order[0];
                match self.sources[top].resume(block, forward)? {
                    Step::Done(()) => {
                        self.phase = Phase::Standing;
                        self.reorder_top()
                    }
                    Step::Need(block) => {
                        *wanted = block;
                        Ok(self.need(top, block))
                    }
                }
            }
            Phase::Fresh | Phase::Standing => Ok(Progress::Done(())),
        }
    }

    /// Completes one move in the calling thread.
    pub(crate) fn drive(&mut self, mut progress: Progress<()>) -> Result<()> {
        while let Progress::Need(_) = progress {
            let Some(block) = self.fetch()? else { break };
            progress = self.resume(block)?;
        }
        Ok(())
    }

    /// The sources that wait, each with its block. The last of them is served next.
    fn waiting(&self) -> Vec<(usize, u32)> {
        match &self.phase {
            Phase::Starting(waiting) => waiting.clone(),
            Phase::Moving(block) => vec![(self.order[0], *block)],
            Phase::Fresh | Phase::Standing => Vec::new(),
        }
    }

    /// Waits for the block that was asked for. The blocks of several sources are read at once: at
    /// the start, and if the expected number of keys is known.
    pub(crate) fn fetch(&mut self) -> Result<Option<BlockRef>> {
        let waiting = self.waiting();
        if self.expected > 0 {
            self.hint_pages(&waiting)?;
        }
        if self.expected > 0 || waiting.len() > 1 {
            self.read_together(&waiting)?;
        }
        let Some((at, block)) = waiting.last() else { return Ok(None) };
        let cursor = self.sources[*at].table_cursor();
        cursor.map(|cursor| cursor.fetch(*block)).transpose()
    }

    /// Reads the wanted blocks of all sources with one queue: of the sources in `waiting`, and of
    /// others that read ahead.
    fn read_together(&mut self, waiting: &[(usize, u32)]) -> Result<()> {
        for (at, block) in waiting {
            let cursor = self.sources[*at].table_cursor();
            cursor.map_or(Ok(()), |cursor| cursor.want(*block))?;
        }
        let parts = |(at, source): (usize, &mut Source)| {
            source.table_cursor()?.small_part().map(|part| (at, part))
        };
        let wanted: Vec<_> = self.sources.iter_mut().enumerate().filter_map(parts).collect();
        let Some(engine) = wanted.first().and_then(|(at, _)| self.sources[*at].table()) else {
            return Ok(());
        };
        let engine = Arc::clone(engine.reads());
        for (at, result, bytes) in read_many(&engine, wanted.into_iter()) {
            let Some(cursor) = self.sources[at].table_cursor() else { continue };
            let put = cursor.put_small(result, bytes);
            // A failed read that no source waits for is ignored, as the block may never be needed.
            // A source that does need it reads it again, and fails then.
            if waiting.iter().any(|(waits, _)| *waits == at) {
                put?;
            }
        }
        Ok(())
    }

    /// Starts all reads that are needed, and takes the block that was asked for once it is there.
    pub(crate) fn poll_fetch(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<BlockRef>>> {
        let waiting = self.waiting();
        if self.expected > 0 {
            self.hint_pages(&waiting)?;
        }
        for (at, block) in &waiting {
            let cursor = self.sources[*at].table_cursor();
            cursor.map_or(Ok(()), |cursor| cursor.want(*block))?;
        }
        self.sources.iter_mut().filter_map(Source::table_cursor).for_each(TableCursor::start);
        let Some((at, block)) = waiting.last() else { return Poll::Ready(Ok(None)) };
        let Some(cursor) = self.sources[*at].table_cursor() else { return Poll::Ready(Ok(None)) };
        cursor.poll_fetch(*block, cx).map_ok(Some)
    }

    /// The source that holds the entry under the walk; `None` at the end.
    #[inline]
    pub(crate) fn top(&self) -> Option<&Source> {
        self.order.first().map(|&top| &self.sources[top])
    }

    fn need(&self, source: usize, block: u32) -> Progress<()> {
        match self.sources[source].request(block) {
            Some(request) => Progress::Need(request),
            // Only tables ask for blocks.
            None => Progress::Done(()),
        }
    }

    fn sort(&mut self) {
        let takes_part = |source: &Source| source.is_valid() && !self.is_beyond(source.key());
        self.order = (0..self.sources.len()).filter(|&i| takes_part(&self.sources[i])).collect();
        let mut order = std::mem::take(&mut self.order);
        order.sort_by(|&a, &b| self.compare(a, b));
        self.order = order;
        self.phase = Phase::Standing;
    }

    /// Returns true if the walk ends before this key.
    pub(super) fn is_beyond(&self, key: &[u8]) -> bool {
        let order = match &self.end {
            Bound::Unbounded => return false,
            Bound::Included(end) | Bound::Excluded(end) => compare_keys(key, end),
        };
        if self.forward { order.is_gt() } else { order.is_lt() }
    }

    #[inline]
    fn compare(&self, a: usize, b: usize) -> Ordering {
        let (a, b) = (&self.sources[a], &self.sources[b]);
        let order = compare_entries(a.key(), a.seq(), b.key(), b.seq());
        if self.forward { order } else { order.reverse() }
    }

    /// Moves the source that was advanced to its position in the order.
    #[inline]
    fn reorder_top(&mut self) -> Result<Progress<()>> {
        if !self.sources[self.order[0]].is_valid() {
            return self.leave_top();
        }
        let mut at = 0;
        while at + 1 < self.order.len()
            && self.compare(self.order[at], self.order[at + 1]) == Ordering::Greater
        {
            self.order.swap(at, at + 1);
            at += 1;
        }
        Ok(Progress::Done(()))
    }

    /// Removes the first source, which has ended.
    #[cold]
    fn leave_top(&mut self) -> Result<Progress<()>> {
        self.order.remove(0);
        if !self.order.is_empty() || !self.open_partition()? {
            return Ok(Progress::Done(()));
        }
        self.go_on_starting()
    }
}

impl Drop for MergedSources {
    fn drop(&mut self) {
        self.count_passed();
    }
}
