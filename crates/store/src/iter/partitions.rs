//! A walk through the partitions of a keyspace, one after another.
//!
//! Partitions are ranges of keys, so the walk opens only those that it reaches, and a short scan costs
//! the same whether there are ten of them or ten thousand. Their levels are loaded as the walk comes to
//! them: the snapshot that the scan holds keeps what it may see in all of them until then.

use super::{
    merge::Merge,
    source::{LevelCursor, Source, Start},
};
use crate::{
    db::{Snapshot, core::MemView},
    error::Result,
    memtable::MemCursor,
    partition::{PartitionMap, Place},
    plan::Progress,
    sync::primitive::Arc,
    table::{Access, BlockRef, Step, Table, TableCursor},
    types::TreeId,
    version::levels::Levels,
};

/// Adds the sources of one sub-tree, newest first.
pub(crate) fn add_sources(
    view: &MemView,
    tree: TreeId,
    levels: &Arc<Levels>,
    access: Access,
    sources: &mut Vec<Source>,
) {
    for memtable in view.all().filter(|memtable| memtable.contains_tree(tree)) {
        sources.push(Source::Mem(MemCursor::new(Arc::clone(memtable), tree)));
    }
    for table in &levels.zero {
        sources.push(Source::Table(TableCursor::new(Arc::clone(table), access)));
    }
    for level in 1..levels.depth() {
        if !levels.tables(level).is_empty() {
            let cursor = LevelCursor::new(Arc::clone(levels), level, access);
            sources.push(Source::Level(cursor));
        }
    }
}

/// What a scan over several partitions reads.
pub(crate) struct PartitionScan {
    /// Taken before all else: every version that it sees stays until it goes.
    #[expect(dead_code, reason = "held, not read")]
    pub(crate) snapshot: Snapshot,
    pub(crate) view: Arc<MemView>,
    pub(crate) map: Arc<PartitionMap>,
    /// The names of the first and the last partition that can hold a key of the range; none where the
    /// range is unbounded.
    pub(crate) first: Option<Box<[u8]>>,
    pub(crate) last: Option<Box<[u8]>>,
}

impl PartitionScan {
    /// Whether a partition may hold keys of the range.
    fn is_inside(&self, name: &[u8]) -> bool {
        self.first.as_deref().is_none_or(|first| first <= name)
            && self.last.as_deref().is_none_or(|last| name <= last)
    }

    /// The place where a walk begins.
    fn begin(&self, forward: bool) -> Option<Place> {
        if forward {
            return Some(self.map.at_or_after(self.first.as_deref().unwrap_or_default()));
        }
        let Some(last) = &self.last else { return self.map.last() };
        let place = self.map.at_or_after(last);
        match self.map.at(place) {
            Some(tree) if *tree.name == **last => Some(place),
            _ => self.map.before(place),
        }
    }

    /// The sources of all partitions.
    pub(crate) fn all_sources(&self, access: Access) -> Vec<Source> {
        let mut sources = Vec::new();
        for tree in self.map.iter() {
            add_sources(&self.view, tree.id, &tree.levels.get(), access, &mut sources);
        }
        sources
    }
}

/// A position among the entries of several partitions, moving one way.
pub(crate) struct PartitionCursor {
    scan: Arc<PartitionScan>,
    access: Access,
    forward: bool,
    /// The partition after the one that `merge` walks through.
    next: Option<Place>,
    merge: Option<Merge>,
    /// The table whose block the walk waits for.
    waiting: Option<Arc<Table>>,
}

impl PartitionCursor {
    /// A cursor that stands nowhere yet.
    pub(crate) fn new(scan: Arc<PartitionScan>, access: Access) -> Self {
        Self { scan, access, forward: true, next: None, merge: None, waiting: None }
    }

    /// Goes to the first entry of the walk.
    pub(crate) fn start(&mut self, start: &Start) -> Result<Step> {
        self.forward = start.is_forward();
        self.next = self.scan.begin(self.forward);
        self.open(start.clone());
        let progress = self.merge.as_mut().map_or(Ok(Progress::Done(())), Merge::begin)?;
        self.settle(progress)
    }

    /// Goes to the next entry.
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<Step> {
        let Some(merge) = &mut self.merge else { return Ok(Step::Ready) };
        let progress = merge.advance()?;
        if matches!(progress, Progress::Done(())) && merge.top().is_some() {
            return Ok(Step::Ready);
        }
        self.settle(progress)
    }

    /// Takes the block that was asked for and goes on.
    pub(crate) fn resume(&mut self, block: BlockRef) -> Result<Step> {
        let Some(merge) = &mut self.merge else { return Ok(Step::Ready) };
        let progress = merge.resume(block)?;
        self.settle(progress)
    }

    /// The source that holds the entry under the cursor.
    #[inline]
    pub(crate) fn top(&self) -> Option<&Source> {
        self.merge.as_ref()?.top()
    }

    /// The cursor that asks for a block.
    pub(crate) fn table_cursor(&mut self) -> Option<&mut TableCursor> {
        self.merge.as_mut()?.waiting_cursor()
    }

    /// The table whose block was asked for.
    pub(crate) fn waiting(&self) -> Option<&Arc<Table>> {
        self.waiting.as_ref()
    }

    /// Moves on to the neighbouring partitions until an entry or a wanted block turns up.
    fn settle(&mut self, mut progress: Progress<()>) -> Result<Step> {
        loop {
            if let Progress::Need(request) = progress {
                self.waiting = Some(request.table);
                return Ok(Step::Need(request.block));
            }
            if self.merge.as_ref().is_none_or(|merge| merge.top().is_some()) {
                return Ok(Step::Ready);
            }
            self.open(if self.forward { Start::First } else { Start::Last });
            progress = self.merge.as_mut().map_or(Ok(Progress::Done(())), Merge::begin)?;
        }
    }

    /// Opens the next partition that has any source; none at the end of the range.
    fn open(&mut self, start: Start) {
        self.merge = None;
        let scan = Arc::clone(&self.scan);
        while let Some(place) = self.next {
            let Some(tree) = scan.map.at(place).filter(|tree| scan.is_inside(&tree.name)) else {
                self.next = None;
                return;
            };
            self.next = match self.forward {
                true => Some(scan.map.after(place)),
                false => scan.map.before(place),
            };
            let mut sources = Vec::new();
            add_sources(&scan.view, tree.id, &tree.levels.get(), self.access, &mut sources);
            if !sources.is_empty() {
                self.merge = Some(Merge::new(sources, start));
                return;
            }
        }
    }
}
