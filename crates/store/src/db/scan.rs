//! From a range of keys to an iterator: the LSM trees that it may meet, and the structures that it
//! holds.
//!
//! A scan that stays in one LSM tree loads its structures first and the sequence number last. A
//! scan over several partitions loads their levels as it reaches them, so it registers its sequence
//! number first, as a snapshot does.

use std::ops::Bound;

use rhumb_sync::primitive::Arc;

use super::{
    keyspace::{Keyspace, Retired},
    reader::Reader,
    snapshot::Snapshot,
};
use crate::{
    error::{Error, Result},
    iter::{
        Ends, Sources,
        merge::{Inputs, SourceSet},
        partitions::{PartitionScan, PartitionWalk, add_sources},
    },
    keys::OwnedBound,
    memtable::MemView,
    table::Access,
    tree::Tree,
    types::{Moment, SeqNo},
};

impl Reader<'_> {
    /// The ends of a range as the reader sees it.
    pub(crate) fn ends(&self, from: OwnedBound, to: OwnedBound) -> Ends {
        self.keyspace
            .scan(&from, &to, self.moment)
            .map_or_else(Ends::failed, |(sources, moment)| Ends::new(sources, moment, from, to))
    }
}

impl Keyspace {
    /// The way in which the walks of a scan read, if its caller asks for `access`.
    fn access(&self, access: Access) -> Access {
        if self.core().shared.options.read_ahead { access } else { Access::Blocks }
    }

    fn scan(
        &self,
        from: &OwnedBound,
        to: &OwnedBound,
        moment: Option<Moment>,
    ) -> Result<(Sources, Moment)> {
        self.core().shared.check_process()?;
        let now = self.core().memtables.get();
        let Some(Retired { root, partitions: map, view, .. }) = self.held_at(moment)? else {
            return Ok((nothing(), Moment { seq: 0, now_ms: 0 }));
        };
        let view = view.unwrap_or(now);
        if root.partitions.is_none() {
            return Ok(self.scan_one(view, &root, moment));
        }
        let (first, last) = (self.partition_at(from), self.partition_at(to));
        if self.inner.router.is_ordered() {
            let place = map.at_or_after(first.as_deref().unwrap_or_default());
            let is_inside = |tree: &&Arc<Tree>| last.as_ref().is_none_or(|to| *tree.name <= **to);
            let Some(tree) = map.at(place).filter(is_inside) else {
                return Ok((nothing(), Moment { seq: 0, now_ms: 0 }));
            };
            if map.at(map.after(place)).filter(is_inside).is_none() {
                return Ok(self.scan_one(view, tree, moment));
            }
        }
        self.scan_many(first, last, moment)
    }

    /// The contents of the keyspace, as of now or of a snapshot's sequence number; `None` if the
    /// keyspace is younger than that.
    fn held_at(&self, moment: Option<Moment>) -> Result<Option<Retired>> {
        if moment.is_none() {
            self.inner.check_live()?;
        }
        let seq = moment.map_or(SeqNo::MAX, |moment| moment.seq);
        let root = self.inner.tree.get();
        let partitions = root.partition_map();
        if root.since <= seq && partitions.since <= seq {
            return Ok(Some(Retired { root, partitions, view: None, until: SeqNo::MAX }));
        }
        Ok(self.inner.retired_at(seq))
    }

    /// The name of the partition that a bound is in.
    fn partition_at(&self, bound: &OwnedBound) -> Option<Box<[u8]>> {
        match bound {
            Bound::Included(key) | Bound::Excluded(key) => {
                Some(self.inner.router.name_of(key).into())
            }
            Bound::Unbounded => None,
        }
    }

    /// The sources of one LSM tree.
    fn scan_one(
        &self,
        view: Arc<MemView>,
        tree: &Tree,
        moment: Option<Moment>,
    ) -> (Sources, Moment) {
        let (id, levels) = (tree.id, tree.levels.get());
        // Taken last: everything that the structures above have dropped is older than this, and had
        // expired by then.
        let core = self.core();
        let now = || Moment { seq: core.writer.visible_seq(), now_ms: core.shared.now_ms() };
        let moment = moment.unwrap_or_else(now);
        let seq = moment.seq;
        let this = self.clone();
        let sources = Box::new(move |access| {
            let mut sources = SourceSet::default();
            sources.sources.reserve(levels.l0.len() + levels.sorted.len() + 3);
            add_sources(&view, id, &levels, seq, this.access(access), &mut sources);
            Inputs::Sources(sources)
        });
        (sources, moment)
    }

    /// The sources of several partitions.
    fn scan_many(
        &self,
        first: Option<Box<[u8]>>,
        last: Option<Box<[u8]>>,
        moment: Option<Moment>,
    ) -> Result<(Sources, Moment)> {
        let snapshot = Snapshot::at(Arc::clone(&self.handle), moment);
        let moment = snapshot.moment();
        let seq = moment.seq;
        let now = self.core().memtables.get();
        let (held, view) = match self.held_at(Some(moment))? {
            Some(Retired { partitions, view, .. }) => (partitions, view.unwrap_or(now)),
            // The keyspace was dropped, and has nothing to show at this sequence number either.
            None => return Err(Error::KeyspaceDropped(Arc::clone(&self.inner.name))),
        };
        let scan = Arc::new(PartitionScan { seq, view, map: held, first, last });
        let (this, is_ordered) = (self.clone(), self.inner.router.is_ordered());
        let sources: Sources = Box::new(move |access| {
            // Held as long as the scan: every version that the scan sees stays until the snapshot
            // is dropped.
            let (_held, access) = (&snapshot, this.access(access));
            match is_ordered {
                true => Inputs::Partitions(PartitionWalk::new(Arc::clone(&scan), access)),
                false => Inputs::Sources(scan.all_sources(access)),
            }
        });
        Ok((sources, moment))
    }
}

/// The sources of a scan that can meet nothing.
fn nothing() -> Sources {
    Box::new(|_| Inputs::Sources(SourceSet::default()))
}
