//! A walk through the partitions of a keyspace, one after another.
//!
//! Partitions are ranges of keys, so the walk opens only those that it reaches, and a short scan
//! costs the same whether there are ten of them or ten thousand. The walk loads a partition's
//! levels when it reaches the partition. Until then the snapshot that the scan holds keeps
//! everything that the scan may see.

use rhumb_sync::primitive::Arc;

use super::{
    merge::SourceSet,
    source::{LevelCursor, Source},
};
use crate::{
    iter::ranges::RangeView,
    memtable::{MemCursor, MemView},
    table::{Access, TableCursor},
    tree::{PartitionMap, PartitionPosition},
    types::{SeqNo, TreeId},
    version::levels::Levels,
};

/// Adds the sources of one LSM tree for a reader at `seq`, newest first, and the range tombstones
/// that cover them.
pub(crate) fn add_sources(
    view: &MemView,
    tree: TreeId,
    levels: &Arc<Levels>,
    seq: SeqNo,
    access: Access,
    set: &mut SourceSet,
) {
    set.trees.add(&view.active, tree, set.sources.len());
    let ranges = RangeView::new(view, tree, levels);
    // Memtables and tables may hold nothing but range tombstones.
    for (at, memtable) in view.all().enumerate().filter(|(_, one)| one.may_show(tree, seq)) {
        let cursor = MemCursor::newest(Arc::clone(memtable), tree, seq);
        set.add(Source::Mem(cursor), ranges.as_ref(), |_| RangeView::memtable_depth(at));
    }
    for (at, table) in levels.l0.iter().enumerate().filter(|(_, one)| one.meta().entries > 0) {
        let cursor = TableCursor::new(Arc::clone(table), access);
        set.add(Source::Table(cursor), ranges.as_ref(), |ranges| ranges.l0_depth(at));
    }
    for level in (1..levels.depth()).filter(|level| !levels.tables(*level).is_empty()) {
        let cursor = LevelCursor::new(Arc::clone(levels), level, access);
        set.add(Source::Level(cursor), ranges.as_ref(), |ranges| ranges.level_depth(level));
    }
    set.add_ranges(ranges);
}

/// The state that a scan over several partitions reads.
pub(crate) struct PartitionScan {
    /// The sequence number at which it reads. It is that of a snapshot which was taken before
    /// everything else and is kept as long as the scan.
    pub(crate) seq: SeqNo,
    pub(crate) view: Arc<MemView>,
    pub(crate) map: Arc<PartitionMap>,
    /// The names of the first and the last partition that can hold a key of the range; `None` if
    /// the range is unbounded at that end.
    pub(crate) first: Option<Box<[u8]>>,
    pub(crate) last: Option<Box<[u8]>>,
}

impl PartitionScan {
    /// Returns true if a partition may hold keys of the range.
    fn is_inside(&self, name: &[u8]) -> bool {
        self.first.as_deref().is_none_or(|first| first <= name)
            && self.last.as_deref().is_none_or(|last| name <= last)
    }

    /// The position where a walk begins.
    fn begin(&self, forward: bool) -> Option<PartitionPosition> {
        if forward {
            return Some(self.map.at_or_after(self.first.as_deref().unwrap_or_default()));
        }
        let Some(last) = &self.last else { return self.map.last() };
        let position = self.map.at_or_after(last);
        match self.map.at(position) {
            Some(tree) if *tree.name == **last => Some(position),
            _ => self.map.before(position),
        }
    }

    /// The sources of all partitions.
    pub(crate) fn all_sources(&self, access: Access) -> SourceSet {
        let mut sources = SourceSet::default();
        for tree in self.map.iter() {
            let levels = tree.levels.get();
            add_sources(&self.view, tree.id, &levels, self.seq, access, &mut sources);
        }
        sources
    }
}

/// The partitions that a walk has not reached, the next one first. It goes in one direction.
pub(crate) struct PartitionWalk {
    scan: Arc<PartitionScan>,
    access: Access,
    position: WalkPosition,
}

/// The position of a walk through partitions.
enum WalkPosition {
    Before,
    At(PartitionPosition),
    End,
}

impl PartitionWalk {
    /// A walk through all partitions of `scan`.
    pub(crate) fn new(scan: Arc<PartitionScan>, access: Access) -> Self {
        Self { scan, access, position: WalkPosition::Before }
    }

    /// The sources of the next partition that has any; `None` at the end of the range.
    pub(crate) fn next_sources(&mut self, forward: bool) -> Option<SourceSet> {
        let scan = &self.scan;
        let mut next = match self.position {
            WalkPosition::Before => scan.begin(forward),
            WalkPosition::At(position) => Some(position),
            WalkPosition::End => None,
        };
        let mut sources = SourceSet::default();
        while sources.sources.is_empty() {
            // Nothing is kept of partitions without sources: a walk knows only of LSM trees that it
            // steps through.
            sources = SourceSet::default();
            let inside = next.and_then(|position| {
                let tree = scan.map.at(position).filter(|tree| scan.is_inside(&tree.name))?;
                Some((position, tree))
            });
            let Some((position, tree)) = inside else {
                self.position = WalkPosition::End;
                return None;
            };
            let levels = tree.levels.get();
            add_sources(&scan.view, tree.id, &levels, scan.seq, self.access, &mut sources);
            next = if forward { Some(scan.map.after(position)) } else { scan.map.before(position) };
        }
        self.position = next.map_or(WalkPosition::End, WalkPosition::At);
        Some(sources)
    }
}
