//! Loading entries in ascending order: whole leaves at once into an empty map.
#![allow(unsafe_code, reason = "owns leaves before they are published")]

use std::fmt;

use rhumb_sync::{epoch, primitive::Ordering};

use crate::{
    core::{IndexCore, retrain::bound_of},
    entry::Entry,
    key::{Key, image::QueryOf},
    kinds::AnyLeaf,
    map::Index,
    op::Action,
    parts,
    plan::{LEAF_TARGET, LeafGrowth},
    raw::{
        branch::{Bound, TreeNode},
        record,
        schema::{KeyProbe, Of},
        tree::BoundLeaf,
    },
    value::Value,
};

/// The error of [`Index::bulk_load`]: keys must ascend, without duplicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BulkLoadError {
    /// The number of entries before the one whose key was not above that of its predecessor.
    pub position: usize,
}

impl fmt::Display for BulkLoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the key of entry {} is not above the one before it", self.position)
    }
}

impl std::error::Error for BulkLoadError {}

impl<K: Key, V: Value> Index<K, V> {
    /// Inserts entries whose keys ascend. Returns the number of entries. Fastest into an empty map.
    ///
    /// # Errors
    /// [`BulkLoadError`] names the first entry whose key is not above its predecessor's. The
    /// entries before it are in the map.
    pub fn bulk_load(
        &self,
        sorted: impl IntoIterator<Item = (K, V)>,
    ) -> Result<usize, BulkLoadError> {
        let mut sorted = sorted.into_iter();
        let mut loader = BulkLoader::new(self);
        let mut previous: Option<K> = None;
        let mut position = 0;
        let outcome = loop {
            let Some((key, value)) = sorted.next() else { break Ok(position) };
            if previous.as_ref().is_some_and(|previous| *previous >= key) {
                break Err(BulkLoadError { position });
            }
            loader.add(&key, value);
            previous = Some(key);
            position += 1;
        };
        drop(loader);
        outcome
    }
}

/// Builds leaves that no other thread sees. Dropping it publishes them.
struct BulkLoader<'a, K: Key, V: Value> {
    index: &'a Index<K, V>,
    entries: Vec<Entry>,
    leaves: Vec<BoundLeaf<AnyLeaf>>,
    /// True if the map was empty at the start; otherwise entries are inserted one by one.
    is_whole: bool,
    keys: i64,
    heap_bytes: i64,
}

impl<'a, K: Key, V: Value> BulkLoader<'a, K, V> {
    fn new(index: &'a Index<K, V>) -> Self {
        let (entries, leaves) = (Vec::new(), Vec::new());
        Self { index, entries, leaves, is_whole: index.is_empty(), keys: 0, heap_bytes: 0 }
    }

    fn core(&self) -> &'a IndexCore<Of<K, V>> {
        &self.index.core
    }

    fn add(&mut self, key: &K, value: V) {
        if !self.is_whole {
            self.index.insert(key.clone(), value);
            return;
        }
        let query: &K::Query = key.borrow();
        let value = self.index.own(value, &epoch::pin());
        let entry = if K::WIDE {
            let image = QueryOf::<K>::bytes(query);
            self.heap_bytes += record::bytes_of(image.as_ref().len()) as i64;
            Entry { word: 0, value: record::new(image.as_ref(), value) }
        } else {
            Entry { word: QueryOf::<K>::word(query), value }
        };
        self.entries.push(entry);
        self.keys += 1;
        if self.entries.len() == 2 * LEAF_TARGET {
            self.build(LEAF_TARGET);
        }
    }

    /// Builds leaves of the first `len` entries.
    fn build(&mut self, len: usize) {
        let entries = &self.entries[..len];
        let core = self.core();
        for part in parts::parts::<Of<K, V>>(
            core.preset,
            &core.arena,
            entries,
            LeafGrowth::Even,
            None,
            None,
        ) {
            self.heap_bytes += part.leaf.heap_bytes() as i64;
            let bound = match self.leaves.is_empty() {
                true => Bound::new::<Of<K, V>>(KeyProbe::LEAST),
                false => bound_of::<Of<K, V>>(&entries[part.first]),
            };
            self.leaves.push((bound, part.leaf));
        }
        self.entries.drain(..len);
    }

    /// Publishes the leaves, or inserts their entries if the map is not empty any more.
    fn finish(&mut self) {
        // The rest in pieces of about equal size, none of which starts with the largest key.
        let rest = self.entries.len();
        if rest > LEAF_TARGET {
            self.build(rest / 2);
        }
        if !self.entries.is_empty() {
            self.build(self.entries.len());
        }
        if self.leaves.is_empty() {
            return;
        }
        let guard = epoch::pin();
        let core = self.core();
        let leaves = std::mem::take(&mut self.leaves);
        let heap_bytes: i64 = leaves.iter().map(|(_, leaf)| leaf.heap_bytes() as i64).sum();
        // From here on the map counts them.
        self.heap_bytes -= heap_bytes;
        // SAFETY: the leaves were made in the map's arena of this loader's entries.
        let Err(leaves) = (unsafe { core.replace_empty(leaves, &guard) }) else {
            core.count(&guard, self.keys);
            core.count_heap(&guard, self.heap_bytes);
            return;
        };
        for (_, leaf) in leaves {
            let mut entries = Vec::new();
            leaf.collect::<Of<K, V>>(&mut entries);
            for Entry { word, value } in entries {
                self.insert(word, value, &guard);
            }
            // SAFETY: the leaf was made with this arena, and its contents were moved.
            unsafe { leaf.free(&core.arena) };
        }
    }

    /// Inserts what a slot of an unpublished leaf holds.
    fn insert(&self, word: u64, slot: u64, guard: &epoch::Guard) {
        let core = self.core();
        let old = if K::WIDE {
            // SAFETY: the record is this loader's; its value becomes the map's.
            unsafe {
                let action = Action::Set(record::value(slot).load(Ordering::Relaxed));
                let old = core.write(KeyProbe::wide(record::key(slot)), action, guard).old;
                record::free(slot);
                old
            }
        } else {
            core.write(KeyProbe { word, bytes: &[] }, Action::Set(slot), guard).old
        };
        self.index.retire(old, guard);
    }
}

impl<K: Key, V: Value> Drop for BulkLoader<'_, K, V> {
    fn drop(&mut self) {
        self.finish();
    }
}
