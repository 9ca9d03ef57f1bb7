//! A memtable's entries in the index: for each LSM tree a map from keys to the newest version of
//! each.
//!
//! Thread safety: any number of threads may read; readers never wait. Entries are inserted by one
//! thread at a time.

use std::ops::Bound;

use rhumb_index::engine::KeyedMap;
use rhumb_sync::{
    arena::Arena,
    mapping::Gauge,
    primitive::{Arc, AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    record::Record,
};

use super::{
    Limit, Pick,
    entry::MemEntry,
    trees::TreeSlots,
    version::{Newest, Version, Versions},
};
use crate::{
    log::batch::BatchOp,
    types::{Kind, SeqNo, TreeId},
};

/// About how many bytes an LSM tree takes outside the arena.
const TREE_BYTES: usize = 6 << 10;

/// For this many bytes of leaves and versions, one byte is taken outside the arena: for leaf
/// headers and the nodes that lead to leaves.
const ARENA_BYTES_PER_BYTE: usize = 32;

/// The least number of keys of an LSM tree from which the next memtable inherits its model. Fewer
/// keys make no useful model.
const INHERITED_MIN: usize = 1024;
/// The models of all LSM trees may reserve one in this many of the next memtable's bytes.
const INHERITED_PART: usize = 4;

/// The keys of one LSM tree.
struct TreeKeys {
    keys: KeyedMap<Newest>,
    has_entries: AtomicBool,
    order: Order,
}

/// One in this many inserts is sampled to see in which order keys come.
const SAMPLED: u32 = 64;

/// The order in which keys come.
#[derive(Default)]
struct Order {
    inserts: AtomicU32,
    /// The number of sampled inserts whose key was above that of the sample before.
    rising: AtomicU32,
    /// The word of the version that was sampled last.
    last: AtomicU64,
}

impl Order {
    /// Counts a version. One thread at a time inserts versions.
    #[inline]
    fn record(&self, versions: &Versions, word: u64) {
        let inserts = self.inserts.load(Ordering::Relaxed);
        if inserts.is_multiple_of(SAMPLED) {
            let last = self.last.swap(word, Ordering::Relaxed);
            if last != 0 && versions.version(last).key() < versions.version(word).key() {
                self.rising.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.inserts.store(inserts.wrapping_add(1), Ordering::Relaxed);
    }

    /// Returns true if keys come neither in ascending nor in descending order. If they came in
    /// order, the next keys would not be where these are.
    fn is_mixed(&self) -> bool {
        let looked_at = self.inserts.load(Ordering::Relaxed) / SAMPLED;
        let rising = self.rising.load(Ordering::Relaxed);
        (looked_at / 8..=looked_at - looked_at / 8).contains(&rising)
    }
}

/// Entries on the index.
pub(super) struct Learned {
    trees: TreeSlots<TreeKeys>,
    versions: Versions,
    arena: Arc<Arena>,
    gauge: Gauge,
    tree_bytes: AtomicUsize,
}

impl Learned {
    /// An empty set of entries; `gauge` counts the memory.
    pub(super) fn new(gauge: &Gauge) -> Self {
        let arena = Arc::new(Arena::packed(gauge));
        Self {
            trees: TreeSlots::new(),
            versions: Versions::new(Arc::clone(&arena)),
            arena,
            gauge: gauge.clone(),
            tree_bytes: AtomicUsize::new(0),
        }
    }

    /// An empty set of entries, with the models of `before` for those LSM trees where they will be
    /// useful.
    pub(super) fn after(before: &Self, bytes_max: usize) -> Self {
        let new = Self::new(&before.gauge);
        for (id, tree) in before.trees.all() {
            if tree.keys.len() < INHERITED_MIN || !tree.order.is_mixed() {
                continue;
            }
            if let Some(keys) = tree.keys.like(Arc::clone(&new.arena)) {
                new.add_tree(id, keys);
            }
            if new.bytes() > bytes_max / INHERITED_PART {
                return Self::new(&before.gauge);
            }
        }
        new
    }

    fn add_tree(&self, id: TreeId, keys: KeyedMap<Newest>) -> &TreeKeys {
        let (has_entries, order) = (AtomicBool::new(false), Order::default());
        self.tree_bytes.fetch_add(TREE_BYTES, Ordering::Relaxed);
        self.trees.add(id, TreeKeys { keys, has_entries, order })
    }

    pub(super) fn bytes(&self) -> usize {
        let used = self.arena.used_bytes();
        used + used / ARENA_BYTES_PER_BYTE + self.tree_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.trees.all().iter().any(|(_, tree)| tree.has_entries.load(Ordering::Relaxed))
    }

    pub(super) fn insert(&self, record: &Record, operation: &BatchOp, seq: SeqNo) {
        let tree = self.trees.get(operation.tree).unwrap_or_else(|| {
            let keys = KeyedMap::within(Arc::clone(&self.arena));
            self.add_tree(operation.tree, keys)
        });
        let word = self.versions.add(record, operation, seq);
        tree.keys.set(operation.key(record), word);
        tree.order.record(&self.versions, word);
        if !tree.has_entries.load(Ordering::Relaxed) {
            tree.has_entries.store(true, Ordering::Release);
        }
    }

    /// The newest version of a key.
    #[inline]
    fn newest(&self, tree: &TreeKeys, key: &[u8]) -> Option<&Version> {
        let word = tree.keys.get(key)?;
        Some(self.versions.version(word))
    }

    pub(super) fn get(&self, tree: TreeId, key: &[u8], seq: SeqNo) -> Option<MemEntry> {
        let newest = self.newest(self.trees.get(tree)?, key)?;
        newest.up_to(seq).map(Version::entry)
    }

    /// The number of versions of all LSM trees.
    pub(super) fn versions(&self) -> u64 {
        self.versions.len() as u64
    }

    /// The version that was inserted after `nth` others, if it is the newest value of its key that
    /// a reader at `seq` sees in this memtable. O(log n).
    pub(super) fn newest_at(&self, nth: u64, seq: SeqNo) -> Option<&Version> {
        let version = self.versions.nth(usize::try_from(nth).ok()?)?;
        let newest = self.newest(self.trees.get(version.tree())?, version.key())?.up_to(seq)?;
        (std::ptr::eq(newest, version) && version.kind() != Kind::Tombstone).then_some(version)
    }

    pub(super) fn contains_tree(&self, tree: TreeId) -> bool {
        self.trees.get(tree).is_some_and(|tree| tree.has_entries.load(Ordering::Acquire))
    }

    /// The number of versions of all the LSM tree's keys together.
    pub(super) fn entries_at_most(&self, tree: TreeId) -> u64 {
        let inserts = |tree: &TreeKeys| tree.order.inserts.load(Ordering::Relaxed);
        self.trees.get(tree).map_or(0, |tree| u64::from(inserts(tree)))
    }

    /// The LSM trees that have entries, ascending.
    pub(super) fn trees(&self) -> Vec<TreeId> {
        let mut trees = self.trees.all();
        trees.retain(|(_, tree)| tree.has_entries.load(Ordering::Acquire));
        trees.into_iter().map(|(tree, _)| tree).collect()
    }

    /// The version that a word leads to, which was read from this memtable's index.
    #[inline(always)]
    pub(super) fn version(&self, word: u64) -> &Version {
        self.versions.version(word)
    }

    /// The words of the LSM tree's versions from `from` on, at most `most`.
    pub(super) fn read(&self, tree: TreeId, from: Limit<'_>, most: usize) -> Vec<u64> {
        let Some(tree) = self.trees.get(tree) else { return Vec::new() };
        let mut run = Vec::with_capacity(most);
        let start = if from.seq == SeqNo::MAX && !from.is_excluded {
            // All versions of the key are wanted as well.
            Bound::Included(from.key)
        } else {
            let up_to = if from.is_excluded { from.seq.checked_sub(1) } else { Some(from.seq) };
            if let Some(first) = up_to.and_then(|seq| self.newest(tree, from.key)?.up_to(seq)) {
                first.append_chain(most, &mut run);
            }
            Bound::Excluded(from.key)
        };
        let mut keys = tree.keys.scan(start, Bound::Unbounded);
        while run.len() < most {
            let words = keys.next_run(most - run.len());
            if words.len() == 0 {
                break;
            }
            for word in words {
                self.version(word).append_chain(most, &mut run);
            }
        }
        run
    }

    /// Like [`Learned::read`], but of each key only what `pick` takes. O(log versions) per key.
    pub(super) fn read_newest(&self, tree: TreeId, from: Limit<'_>, pick: &mut Pick) -> Vec<u64> {
        let Some(tree) = self.trees.get(tree) else { return Vec::new() };
        let mut run = Vec::with_capacity(pick.most);
        let is_whole = from.seq == SeqNo::MAX && !from.is_excluded;
        let start = if is_whole { Bound::Included(from.key) } else { Bound::Excluded(from.key) };
        if !is_whole && let Some(newest) = self.newest(tree, from.key) {
            let is_after = |version: &&Version| {
                version.seq() < from.seq || (version.seq() == from.seq && !from.is_excluded)
            };
            run.extend(newest.up_to(pick.seq).filter(is_after).map(Version::word));
        }
        let mut keys = tree.keys.scan(start, Bound::Unbounded);
        while !pick.is_enough(run.len()) {
            let words = keys.next_run(pick.most - run.len());
            if words.len() == 0 {
                break;
            }
            for word in words {
                self.pick_newest(word, pick, &mut run);
            }
        }
        run
    }

    /// Takes the newest version that a reader sees of the key whose newest version of all is
    /// `newest`.
    #[inline]
    fn pick_newest(&self, newest: u64, pick: &mut Pick, run: &mut Vec<u64>) {
        let visible = self.version(newest).up_to(pick.seq).map(Version::word);
        pick.passed += u64::from(visible.is_none());
        run.extend(visible);
    }

    /// Like [`Learned::read_back`], but of each key only what `pick` takes. O(log versions) per
    /// key.
    pub(super) fn read_newest_back(
        &self,
        tree: TreeId,
        before: Option<Limit<'_>>,
        pick: &mut Pick,
    ) -> Vec<u64> {
        let Some(tree) = self.trees.get(tree) else { return Vec::new() };
        let mut run = Vec::with_capacity(pick.most);
        let mut end = Bound::Unbounded;
        if let Some(before) = before {
            end = Bound::Excluded(before.key);
            let newest = self.newest(tree, before.key).and_then(|newest| newest.up_to(pick.seq));
            let is_before = |version: &&Version| version.seq() > before.seq;
            run.extend(newest.filter(is_before).map(Version::word));
        }
        let mut keys = tree.keys.scan(Bound::Unbounded, end);
        while !pick.is_enough(run.len()) {
            let Some(word) = keys.next_back() else { break };
            self.pick_newest(word, pick, &mut run);
        }
        run
    }

    /// The words of the LSM tree's versions before `before`, the last first, at most `most`;
    /// without `before`, the last ones of all.
    pub(super) fn read_back(
        &self,
        tree: TreeId,
        before: Option<Limit<'_>>,
        most: usize,
    ) -> Vec<u64> {
        let Some(tree) = self.trees.get(tree) else { return Vec::new() };
        let mut run = Vec::with_capacity(most);
        let mut end = Bound::Unbounded;
        if let Some(before) = before {
            end = Bound::Excluded(before.key);
            if let Some(newest) = self.newest(tree, before.key) {
                newest.append_chain_back(Some(before.seq), most, &mut run);
            }
        }
        let mut keys = tree.keys.scan(Bound::Unbounded, end);
        while run.len() < most {
            let Some(word) = keys.next_back() else { break };
            self.version(word).append_chain_back(None, most, &mut run);
        }
        run
    }
}
