//! The range tombstones that a walk through one sub-tree meets, over all its structures.
//!
//! The walk goes one way and asks for each key; most keys lie in the span that the key before was in,
//! which costs one comparison.

use super::Span;
use crate::{
    db::core::MemView,
    memtable::Memtable,
    sync::primitive::Arc,
    types::{SeqNo, TreeId},
    version::levels::Levels,
};

/// Tombstones of the memtables and the levels of one sub-tree, at one reader's number.
pub(crate) struct RangeView {
    tree: TreeId,
    /// Those that have tombstones of the sub-tree, newest first.
    memtables: Vec<Arc<Memtable>>,
    levels: Arc<Levels>,
    /// Around the key that was asked for last.
    span: Option<Span>,
}

impl RangeView {
    /// The tombstones that a walk may meet; `None` if there are none.
    pub(crate) fn new(view: &MemView, tree: TreeId, levels: &Arc<Levels>) -> Option<Self> {
        let memtables: Vec<_> =
            view.all().filter(|memtable| memtable.has_ranges_of(tree)).cloned().collect();
        (levels.has_ranges() || !memtables.is_empty()).then(|| Self {
            tree,
            memtables,
            levels: Arc::clone(levels),
            span: None,
        })
    }

    /// The newest tombstone over `key` that a reader at `seq` sees; 0 if none. Later calls are for the
    /// same reader, and for keys further on in the direction of the walk.
    #[inline]
    pub(crate) fn newest(&mut self, key: &[u8], seq: SeqNo, forward: bool) -> SeqNo {
        let holds = self.span.as_ref().is_some_and(|span| {
            if forward {
                span.to.as_ref().is_none_or(|to| *key < **to)
            } else {
                span.from.as_ref().is_none_or(|from| *key >= **from)
            }
        });
        if !holds {
            let span = self.look(key, seq);
            self.span = Some(span);
        }
        self.span.as_ref().map_or(0, |span| span.seq)
    }

    /// The keys around the last one that the same tombstone is the newest over.
    pub(crate) fn span(&self) -> Option<&Span> {
        self.span.as_ref()
    }

    fn look(&self, key: &[u8], seq: SeqNo) -> Span {
        let mut span = Span::default();
        let mut memtables = self.memtables.iter();
        let is_found = memtables.any(|one| one.meet_ranges(self.tree, key, seq, &mut span));
        if !is_found && self.levels.has_ranges() {
            self.levels.meet_ranges(key, seq, &mut span);
        }
        span
    }
}
