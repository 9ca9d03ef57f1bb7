//! Sub-trees: one for each keyspace, or for each partition of it, and all of a database.
//!
//! This module may not do I/O, nor take a lock for readers. The code that installs flushes,
//! compactions and ingestions decides what is in a sub-tree.

mod all;
mod partitions;

use rhumb_sync::{
    drop_queue::DropQueue,
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
    /// The partitions of a keyspace that has some; its own levels then stay empty.
    pub(crate) partitions: Option<Published<PartitionMap>>,
    /// Held by the thread that rearranges the levels below level 0; there is one at a time.
    pub(crate) compaction: Mutex<CompactionState>,
    /// Set once, when the sub-tree is dropped; from then on only snapshots read it.
    pub(crate) dropped: AtomicBool,
    /// Reads at an older sequence number belong to an earlier sub-tree of the keyspace.
    pub(crate) since: SeqNo,
}

/// The state that compactions of one sub-tree keep between runs.
#[derive(Default)]
pub(crate) struct CompactionState {
    /// Per level, the largest key of the last compaction: the next one begins after it.
    pub(crate) cursors: Vec<Box<[u8]>>,
}

impl CompactionState {
    /// The key at which the last compaction of a level ended.
    pub(crate) fn cursor(&self, level: usize) -> Box<[u8]> {
        self.cursors.get(level).cloned().unwrap_or_default()
    }

    /// Records that a compaction of a level began with a table whose largest key is `largest`.
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
        drops: &Arc<DropQueue>,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            name,
            options,
            levels: Published::new(Arc::new(levels), drops),
            partitions: None,
            compaction: Mutex::default(),
            dropped: AtomicBool::new(false),
            since,
        })
    }

    /// The sub-tree of a keyspace. If it has partitions, it begins with those in `partitions`.
    pub(crate) fn root(
        id: TreeId,
        options: Arc<LiveOptions>,
        levels: Levels,
        partitions: PartitionMap,
        since: SeqNo,
        drops: &Arc<DropQueue>,
    ) -> Arc<Self> {
        let is_partitioned = options.partitions != Partitioning::None;
        Arc::new(Self {
            id,
            name: Box::default(),
            options,
            levels: Published::new(Arc::new(levels), drops),
            partitions: is_partitioned.then(|| Published::new(Arc::new(partitions), drops)),
            compaction: Mutex::default(),
            dropped: AtomicBool::new(false),
            since,
        })
    }

    /// The partitions of this moment; empty for a sub-tree without partitions.
    pub(crate) fn partition_map(&self) -> Arc<PartitionMap> {
        self.partitions.as_ref().map(Published::get).unwrap_or_default()
    }

    /// This sub-tree and those of its partitions.
    pub(crate) fn with_partitions(self: &Arc<Self>) -> Vec<Arc<Self>> {
        std::iter::once(self).chain(self.partition_map().iter()).cloned().collect()
    }

    /// Gives up all files of a dropped sub-tree; they are deleted when their last reader is done.
    /// The caller holds the catalog, so that no flush or compaction adds to the levels meanwhile.
    pub(crate) fn discard(&self) {
        self.dropped.store(true, Ordering::Release);
        for (_, table) in self.levels.get().all() {
            table.mark_obsolete();
        }
    }
}
