//! Sub-trees: one for each keyspace, or for each partition of it, and all of a database.
//!
//! It may not do I/O, nor take a lock for readers. What is in a sub-tree is decided by those who
//! install flushes, compactions and ingestions.

mod all;
mod partitions;

use rhumb_sync::{
    limbo::Limbo,
    primitive::{Arc, AtomicBool, Mutex, Ordering},
    published::Published,
};

use crate::{
    options::LiveOptions,
    partition::Partitioning,
    types::{SeqNo, TreeId},
    version::levels::Levels,
};

pub(crate) use all::Trees;
pub(crate) use partitions::{PartitionMap, Place};

/// A sub-tree: the levels that hold the entries of one keyspace, or of one partition of it.
pub(crate) struct Tree {
    pub(crate) id: TreeId,
    /// The partition's name; empty for the sub-tree of a keyspace.
    pub(crate) name: Box<[u8]>,
    pub(crate) options: Arc<LiveOptions>,
    pub(crate) levels: Published<Levels>,
    /// The partitions of a keyspace that has some: its own levels stay empty then.
    pub(crate) partitions: Option<Published<PartitionMap>>,
    /// Held by whoever rearranges the levels below level 0; there is one at a time.
    pub(crate) compaction: Mutex<CompactionState>,
    /// Set once, when the sub-tree is dropped: only snapshots read it then.
    pub(crate) dropped: AtomicBool,
    /// Reads at an older sequence number belong to an earlier sub-tree of the keyspace.
    pub(crate) since: SeqNo,
}

/// What compactions of one sub-tree remember between runs.
#[derive(Default)]
pub(crate) struct CompactionState {
    /// Per level, the largest key of the last compaction: the next one begins after it.
    pub(crate) cursors: Vec<Box<[u8]>>,
}

impl CompactionState {
    /// Where the last compaction of a level ended.
    pub(crate) fn cursor(&self, level: usize) -> Box<[u8]> {
        self.cursors.get(level).cloned().unwrap_or_default()
    }

    /// Remembers that a compaction of a level began with a table whose largest key is this.
    pub(crate) fn record(&mut self, level: usize, largest: &[u8]) {
        if self.cursors.len() <= level {
            self.cursors.resize(level + 1, Box::default());
        }
        self.cursors[level] = largest.into();
    }
}

impl Tree {
    /// The sub-tree of a partition.
    pub(crate) fn new(
        id: TreeId,
        name: Box<[u8]>,
        options: Arc<LiveOptions>,
        levels: Levels,
        since: SeqNo,
        limbo: &Arc<Limbo>,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            name,
            options,
            levels: Published::new(Arc::new(levels), limbo),
            partitions: None,
            compaction: Mutex::default(),
            dropped: AtomicBool::new(false),
            since,
        })
    }

    /// The sub-tree of a keyspace; one with partitions begins with those of `partitions`.
    pub(crate) fn root(
        id: TreeId,
        options: Arc<LiveOptions>,
        levels: Levels,
        partitions: PartitionMap,
        since: SeqNo,
        limbo: &Arc<Limbo>,
    ) -> Arc<Self> {
        let is_partitioned = options.partitions != Partitioning::None;
        Arc::new(Self {
            id,
            name: Box::default(),
            options,
            levels: Published::new(Arc::new(levels), limbo),
            partitions: is_partitioned.then(|| Published::new(Arc::new(partitions), limbo)),
            compaction: Mutex::default(),
            dropped: AtomicBool::new(false),
            since,
        })
    }

    /// The partitions of this moment; none for a sub-tree without.
    pub(crate) fn partition_map(&self) -> Arc<PartitionMap> {
        self.partitions.as_ref().map(Published::get).unwrap_or_default()
    }

    /// This sub-tree and those of its partitions.
    pub(crate) fn with_partitions(self: &Arc<Self>) -> Vec<Arc<Self>> {
        std::iter::once(self).chain(self.partition_map().iter()).cloned().collect()
    }

    /// Gives up all files of a dropped sub-tree; they go when the last reader lets go of them. The
    /// caller holds the catalog, so that no flush or compaction adds to the levels meanwhile.
    pub(crate) fn discard(&self) {
        self.dropped.store(true, Ordering::Release);
        for (_, table) in self.levels.get().all() {
            table.mark_obsolete();
        }
    }
}
