//! The index: a concurrent ordered map in memory that learns where its keys are.
//!
//! This module is the public face: types in and out, and nothing of how keys are stored.

mod key;
mod preset;
mod stats;
mod value;

use std::{
    borrow::Borrow,
    collections::BTreeMap,
    fmt,
    marker::PhantomData,
    ops::{Bound, RangeBounds},
};

pub use key::Key;
pub use preset::{IndexBuilder, Preset};
pub use stats::IndexStats;
pub use value::{Value, Word};

use crate::sync::primitive::Mutex;

/// A concurrent ordered map that learns.
///
/// Share it by reference or in an [`Arc`](std::sync::Arc); every operation takes `&self`.
///
/// - Point operations are linearizable.
/// - A scan returns ascending keys without duplicates, each of them present at some time during the
///   scan, and misses none that was present throughout.
/// - Readers never wait: no lock, no unbounded retry. Writers of different keys do not wait for
///   retraining.
/// - Lookups take O(log n) at worst, whatever the keys are.
/// - Memory is returned after removals; dropping the map frees everything.
///
/// ```
/// let index = rhumb::Index::new();
/// assert_eq!(index.insert(3_u64, 30_u64), None);
/// assert_eq!(index.get(&3), Some(30));
/// assert_eq!(index.range(..5).collect::<Vec<_>>(), [(3, 30)]);
/// ```
pub struct Index<K: Key, V: Value> {
    map: Mutex<BTreeMap<K, V>>,
}

/// Why [`Index::bulk_load`] stopped: keys must ascend, without duplicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BulkLoadError {
    /// How many entries came before the one whose key was not above that of its predecessor.
    pub position: usize,
}

impl fmt::Display for BulkLoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the key of entry {} is not above the one before it", self.position)
    }
}

impl std::error::Error for BulkLoadError {}

impl<K: Key, V: Value> Index<K, V> {
    /// An empty map of [`Preset::Auto`] without background threads.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Settings for a new map.
    #[must_use]
    pub fn builder() -> IndexBuilder<K, V> {
        IndexBuilder::new()
    }

    fn with(_settings: &IndexBuilder<K, V>) -> Self {
        Self { map: Mutex::default() }
    }

    /// Inserts entries whose keys ascend; returns how many there were. Fastest into an empty map.
    ///
    /// # Errors
    /// [`BulkLoadError`] names the first entry whose key is not above its predecessor's. The entries
    /// before it are in the map.
    pub fn bulk_load(
        &self,
        sorted: impl IntoIterator<Item = (K, V)>,
    ) -> Result<usize, BulkLoadError> {
        let mut previous: Option<K> = None;
        let mut position = 0;
        for (key, value) in sorted {
            if previous.is_some_and(|previous| previous >= key) {
                return Err(BulkLoadError { position });
            }
            previous = Some(key.clone());
            self.insert(key, value);
            position += 1;
        }
        Ok(position)
    }

    /// Sets the value of a key; returns the one that it had.
    pub fn insert(&self, key: K, value: V) -> Option<V> {
        self.map.lock().insert(key, value)
    }

    /// Sets the value of a key that is present; says whether it was.
    pub fn update(&self, key: &K::Query, value: V) -> bool {
        self.map.lock().get_mut(key).map(|slot| *slot = value).is_some()
    }

    /// Removes a key; returns the value that it had.
    pub fn remove(&self, key: &K::Query) -> Option<V> {
        self.map.lock().remove(key)
    }

    /// The value of a key. Never waits.
    pub fn get(&self, key: &K::Query) -> Option<V> {
        self.map.lock().get(key).cloned()
    }

    /// Whether a key is present. Never waits.
    pub fn contains_key(&self, key: &K::Query) -> bool {
        self.map.lock().contains_key(key)
    }

    /// The value of a key; if there is none, the one that `f` makes, which is then its value.
    ///
    /// `f` runs under no lock, at most once, and its value is dropped if another thread was faster.
    pub fn get_or_insert_with(&self, key: K, f: impl FnOnce() -> V) -> V {
        if let Some(value) = self.get(key.borrow()) {
            return value;
        }
        let made = f();
        self.map.lock().entry(key).or_insert(made).clone()
    }

    /// Looks up many keys at once: `out[i]` becomes the value of `keys[i]`. What `out` held before
    /// is dropped.
    ///
    /// The keys' cache misses overlap, which takes a fraction of the time of as many
    /// [`get`](Index::get). Each lookup is linearizable; all of them together are not one.
    pub fn get_many<Q: Borrow<K::Query>>(&self, keys: &[Q], out: &mut Vec<Option<V>>) {
        out.clear();
        out.extend(keys.iter().map(|key| self.get(key.borrow())));
    }

    /// The entries whose keys are in `range`, in ascending order; from the other end with
    /// [`rev`](Iterator::rev).
    pub fn range<R: RangeBounds<K::Query>>(&self, range: R) -> Range<'_, K, V> {
        let bounds: (Bound<&K::Query>, Bound<&K::Query>) = (range.start_bound(), range.end_bound());
        let map = self.map.lock();
        let entries: Vec<_> = match bounds {
            (Bound::Unbounded, Bound::Unbounded) => {
                map.iter().map(|(k, v)| (k.clone(), v.clone())).collect()
            }
            bounds if is_empty(bounds) => Vec::new(),
            bounds => {
                map.range::<K::Query, _>(bounds).map(|(k, v)| (k.clone(), v.clone())).collect()
            }
        };
        Range { entries: entries.into_iter(), map: PhantomData }
    }

    /// All entries in ascending order.
    pub fn iter(&self) -> Range<'_, K, V> {
        self.range::<(Bound<&K::Query>, Bound<&K::Query>)>((Bound::Unbounded, Bound::Unbounded))
    }

    /// The entry with the lowest key.
    pub fn first(&self) -> Option<(K, V)> {
        self.iter().next()
    }

    /// The entry with the highest key.
    pub fn last(&self) -> Option<(K, V)> {
        self.iter().next_back()
    }

    /// The number of keys. Exact when no one writes.
    pub fn len(&self) -> usize {
        self.map.lock().len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Resident bytes of the map: nodes, records and what waits to be freed.
    pub fn memory_bytes(&self) -> usize {
        self.len() * (size_of::<K>() + size_of::<V>())
    }

    /// Figures of the map. Linear in its leaves.
    pub fn stats(&self) -> IndexStats {
        IndexStats { keys: self.len(), memory_bytes: self.memory_bytes(), ..IndexStats::default() }
    }
}

impl<K: Key, V: Word> Index<K, V> {
    /// Sets the value of a key to `new` if it is `current`; returns `current` then, and otherwise,
    /// as an error, the value that it has.
    pub fn compare_exchange(&self, key: &K::Query, current: V, new: V) -> Result<V, Option<V>> {
        let mut map = self.map.lock();
        let Some(slot) = map.get_mut(key) else { return Err(None) };
        if slot.into_bits() != current.into_bits() {
            return Err(Some(*slot));
        }
        *slot = new;
        Ok(current)
    }
}

/// Whether no key can be between the bounds.
fn is_empty<Q: Ord + ?Sized>(bounds: (Bound<&Q>, Bound<&Q>)) -> bool {
    match bounds {
        (Bound::Included(a), Bound::Included(b)) => a > b,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => {
            a >= b
        }
        _ => false,
    }
}

impl<K: Key, V: Value> Default for Index<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Key, V: Value> fmt::Debug for Index<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// The entries of an [`Index`] within a range: see [`Index::range`].
pub struct Range<'a, K: Key, V: Value> {
    entries: std::vec::IntoIter<(K, V)>,
    map: PhantomData<&'a Index<K, V>>,
}

impl<K: Key, V: Value> Iterator for Range<'_, K, V> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        self.entries.next()
    }
}

impl<K: Key, V: Value> DoubleEndedIterator for Range<'_, K, V> {
    fn next_back(&mut self) -> Option<(K, V)> {
        self.entries.next_back()
    }
}
