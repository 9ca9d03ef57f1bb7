//! The map's public face: types in and out, and nothing of how keys are stored.
#![allow(unsafe_code, reason = "gives values up, and reads those that a guard keeps")]

use std::{borrow::Borrow, fmt, ops::Bound};

use rhumb_sync::{
    epoch::{self, Guard},
    primitive::{
        Arc,
        thread::{self, JoinHandle},
    },
};

use crate::{
    batch,
    core::{IndexCore, train},
    entry::Entry,
    key::Key,
    op::Action,
    preset::Preset,
    range::KeyRange,
    raw::schema::{self, Of, into_word, is_word, key_of, value_of, with_probe},
    scan::EntryScan,
    stats::{self, IndexStats},
    trainers::Trainers,
    value::{Value, Word},
};

/// Room that reading many entries makes ahead, in entries. Chosen, not measured: 16 KiB of integers
/// with their values; a caller that asks for more entries than there are wastes no more than that.
const READ_AHEAD: usize = 1024;

/// A concurrent ordered map that learns.
///
/// Share it by reference or in an [`Arc`]; every operation takes `&self`.
///
/// - Point operations are linearizable.
/// - A scan returns ascending keys without duplicates, each of them present at some time during the
///   scan, and misses none that was present throughout.
/// - Readers never wait: no lock, no unbounded retry. Writers of different keys do not wait for
///   retraining.
/// - Lookups take O(log n) at worst, whatever the keys are.
/// - Memory is returned after removals; dropping the map frees everything.
/// - A trainer that stalls or dies costs space, never answers, and no operation waits for it.
///
/// An entry of an integer key and a word takes 22 to 30 bytes while the map grows, and up to 45
/// after removals (the other presets say what they take). A key wider than 64 bits adds a record of
/// 16 bytes and its own, a value that is not a word its box. Beyond that a map takes some four
/// mebibytes (up to sixteen when it has shrunk, because a leaf holds the chunk of two that it lies
/// in), an eighth for memory between leaves, and what waits until readers that may hold it are
/// done. Replacing a leaf, of at most some 3000 keys, takes the thread that does it some tens of
/// microseconds, about once in a thousand insertions.
///
/// ```
/// let index = rhumb_index::Index::new();
/// assert_eq!(index.insert(3_u64, 30_u64), None);
/// assert_eq!(index.get(&3), Some(30));
/// assert_eq!(index.range(..5).collect::<Vec<_>>(), [(3, 30)]);
/// ```
pub struct Index<K: Key, V: Value> {
    pub(crate) core: Arc<IndexCore<Of<K, V>>>,
    pub(crate) trainers: Vec<JoinHandle<()>>,
}

impl<K: Key, V: Value> Index<K, V> {
    /// A map of a preset, with at most this number of background threads.
    pub(crate) fn with(preset: Preset, threads: usize) -> Self {
        let trainers = (threads > 0).then(Trainers::default);
        let core = IndexCore::new(preset, trainers);
        let core = Arc::new(core);
        let start = |i| {
            let core = Arc::clone(&core);
            let run = move || train::run(&core, i == 0);
            thread::Builder::new().name("rhumb-train".into()).spawn(run)
        };
        // If the system refuses a thread, there are fewer, and writers do without it.
        let trainers = (0..threads).filter_map(|i| start(i).ok()).collect();
        Self { core, trainers }
    }

    /// Sets the value of a key. Returns the value that it had.
    #[inline]
    pub fn insert(&self, key: K, value: V) -> Option<V> {
        let guard = epoch::pin();
        let word = self.own(value, &guard);
        let old = with_probe::<K, _>(key.borrow(), |probe| {
            self.core.write(probe, Action::Set(word), &guard).old
        });
        old.map(|old| self.take(old, &guard))
    }

    /// Sets the value of a key that is present. Returns true if it was.
    #[inline]
    pub fn update(&self, key: &K::Query, value: V) -> bool {
        let guard = epoch::pin();
        let word = self.own(value, &guard);
        let outcome =
            with_probe::<K, _>(key, |probe| self.core.write(probe, Action::Update(word), &guard));
        // Either the old value was taken out or the new one was not let in.
        self.retire(if outcome.is_done { outcome.old } else { Some(word) }, &guard);
        outcome.is_done
    }

    /// Removes a key. Returns the value that it had.
    #[inline]
    pub fn remove(&self, key: &K::Query) -> Option<V> {
        let guard = epoch::pin();
        let old =
            with_probe::<K, _>(key, |probe| self.core.write(probe, Action::Remove, &guard).old);
        old.map(|old| self.take(old, &guard))
    }

    /// The value of a key. Never waits.
    #[inline]
    pub fn get(&self, key: &K::Query) -> Option<V> {
        let guard = epoch::pin();
        let word = with_probe::<K, _>(key, |probe| self.core.get(probe, &guard))?;
        Some(value(word, &guard))
    }

    /// Returns true if a key is present. Never waits.
    #[inline]
    pub fn contains_key(&self, key: &K::Query) -> bool {
        let guard = epoch::pin();
        with_probe::<K, _>(key, |probe| self.core.get(probe, &guard)).is_some()
    }

    /// The value of a key. If there is none, `f` makes one, which then is the key's value.
    ///
    /// `f` runs under no lock, at most once, and its value is dropped if another thread was faster.
    pub fn get_or_insert_with(&self, key: K, f: impl FnOnce() -> V) -> V {
        if let Some(value) = self.get(key.borrow()) {
            return value;
        }
        let made = f();
        let guard = epoch::pin();
        let word = self.own(made, &guard);
        let outcome = with_probe::<K, _>(key.borrow(), |probe| {
            self.core.write(probe, Action::SetIfAbsent(word), &guard)
        });
        if outcome.is_done {
            return value(word, &guard);
        }
        self.retire(Some(word), &guard);
        value(outcome.old.unwrap_or(word), &guard)
    }

    /// Looks up many keys at once: `out[i]` becomes the value of `keys[i]`. What `out` held before
    /// is dropped.
    ///
    /// The keys' cache misses overlap, so this takes a fraction of the time of a
    /// [`get`](Index::get) for each key. Each lookup is linearizable; all of them together are not.
    pub fn multi_get<Q: Borrow<K::Query>>(&self, keys: &[Q], out: &mut Vec<Option<V>>) {
        out.clear();
        out.reserve(keys.len());
        let guard = epoch::pin();
        batch::get::<K, V, Q>(&self.core, keys, &guard, |word| {
            out.push(word.map(|word| value(word, &guard)));
        });
    }

    /// The entries whose keys are in `range`, in ascending order; from the other end with
    /// [`rev`](Iterator::rev). Empty if the range is empty or its start is above its end.
    ///
    /// While the iterator lives, what is removed from any index of the process, and what its
    /// databases replace (memtables, cached blocks, files), waits to be freed. A walk that goes on
    /// lets it go every 32 leaves, some 32,000 keys. An iterator that is kept and not advanced does
    /// not, because what it has read and not yielded yet must stay.
    pub fn range<R: KeyRange<K::Query>>(&self, range: R) -> Range<'_, K, V> {
        with_limit::<K, _>(range.low(), |low| {
            with_limit::<K, _>(range.high(), |high| Range {
                scan: EntryScan::new(&self.core, low, high),
            })
        })
    }

    /// All entries in ascending order; as [`Index::range`].
    pub fn iter(&self) -> Range<'_, K, V> {
        Range { scan: EntryScan::new(&self.core, Bound::Unbounded, Bound::Unbounded) }
    }

    /// The entry with the lowest key.
    pub fn first(&self) -> Option<(K, V)> {
        self.iter().next()
    }

    /// The entry with the highest key.
    pub fn last(&self) -> Option<(K, V)> {
        self.iter().next_back()
    }

    /// The number of keys. Exact while no thread writes. Constant time.
    pub fn len(&self) -> usize {
        self.core.len()
    }

    /// Returns true if there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Resident bytes of the map: chunks, nodes, records, boxes, and what waits to be freed. What
    /// boxed values own elsewhere is not counted.
    pub fn memory_bytes(&self) -> usize {
        self.core.memory_bytes()
    }

    /// Looks at all leaves, and replaces those that are used differently from what they were made
    /// for: some that fill up, some with much room that were not written since the last call, and
    /// some that keep memory from being given back. Frees what no reader holds any more of what was
    /// replaced or removed. Returns the number of leaves that it replaced. Linear in the map.
    ///
    /// The first of a map's trainers does so by itself while nothing is asked of it. In a map
    /// without trainers, a caller may do so from time to time, or after many removals. Nothing
    /// depends on it but memory and speed.
    pub fn tune(&self) -> usize {
        let replaced = self.core.look_at_all();
        // A writer frees only from the stripe that it retires to.
        self.core.collect_garbage();
        replaced
    }

    /// Statistics of the map. Linear in its leaves.
    pub fn stats(&self) -> IndexStats {
        stats::of(&self.core)
    }

    /// The word of a value, counted.
    #[inline(always)]
    pub(crate) fn own(&self, value: V, guard: &Guard) -> u64 {
        if !is_word::<V>() {
            self.core.count_heap(guard, size_of::<V>() as i64);
        }
        into_word(value)
    }

    /// The value of a word that was taken out.
    #[inline(always)]
    fn take(&self, word: u64, guard: &Guard) -> V {
        self.retire(Some(word), guard);
        value(word, guard)
    }

    /// Frees the value of a word once no reader holds it.
    #[inline(always)]
    pub(crate) fn retire(&self, word: Option<u64>, guard: &Guard) {
        if let (Some(word), false) = (word, is_word::<V>()) {
            // SAFETY: the callers took the word out of the map, or kept it out, and give it up.
            unsafe {
                self.core.retire_value(word, size_of::<V>(), guard);
            }
        }
    }
}

impl<K: Key, V: Word> Index<K, V> {
    /// Sets the value of a key to `new` if it is `current`. Returns `current` then.
    ///
    /// # Errors
    /// The value that the key has instead, none if it is absent.
    pub fn compare_exchange(&self, key: &K::Query, current: V, new: V) -> Result<V, Option<V>> {
        let guard = epoch::pin();
        let action = Action::Exchange { current: current.into_bits(), new: new.into_bits() };
        let outcome = with_probe::<K, _>(key, |probe| self.core.write(probe, action, &guard));
        let old = outcome.old.map(V::from_bits);
        if outcome.is_done { Ok(current) } else { Err(old) }
    }

    /// Sets the value of a key that is present to what `f` makes of it. Returns the value before.
    ///
    /// `f` runs under no lock, and again for each change that another thread makes meanwhile.
    ///
    /// # Errors
    /// `None` if the key is absent; its value if `f` returned `None` for it.
    ///
    /// ```
    /// let counts: rhumb_index::Index<String, u64> = [("ada".to_owned(), 1)].into_iter().collect();
    /// assert_eq!(counts.fetch_update("ada", |count| count.checked_add(1)), Ok(1));
    /// assert_eq!(counts.get("ada"), Some(2));
    /// assert_eq!(counts.fetch_update("bob", Some), Err(None));
    /// assert_eq!(counts.fetch_update("ada", |_| None), Err(Some(2)));
    /// ```
    pub fn fetch_update(
        &self,
        key: &K::Query,
        mut f: impl FnMut(V) -> Option<V>,
    ) -> Result<V, Option<V>> {
        let mut current = self.get(key).ok_or(None)?;
        loop {
            let new = f(current).ok_or(Some(current))?;
            match self.compare_exchange(key, current, new) {
                Ok(before) => return Ok(before),
                Err(now) => current = now.ok_or(None)?,
            }
        }
    }
}

impl<K: Key, V: Value> Extend<(K, V)> for &Index<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        entries.into_iter().for_each(|(key, value)| drop(self.insert(key, value)));
    }
}

impl<K: Key, V: Value> Extend<(K, V)> for Index<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        (&*self).extend(entries);
    }
}

impl<'m, K: Key, V: Value> IntoIterator for &'m Index<K, V> {
    type Item = (K, V);
    type IntoIter = Range<'m, K, V>;

    fn into_iter(self) -> Range<'m, K, V> {
        self.iter()
    }
}

/// The value of a word that was found in the map under the pin that `_guard` proves.
#[inline(always)]
fn value<V: Value>(word: u64, _guard: &Guard) -> V {
    // SAFETY: words in the map came from `into_word` of its value type, and what they stand for is
    // freed only when no thread is pinned that could have found them.
    unsafe { value_of(word) }
}

fn with_limit<K: Key, R>(
    limit: Bound<&K::Query>,
    f: impl FnOnce(Bound<schema::KeyProbe<'_>>) -> R,
) -> R {
    match limit {
        Bound::Included(key) => with_probe::<K, _>(key, |probe| f(Bound::Included(probe))),
        Bound::Excluded(key) => with_probe::<K, _>(key, |probe| f(Bound::Excluded(probe))),
        Bound::Unbounded => f(Bound::Unbounded),
    }
}

impl<K: Key, V: Value> Drop for Index<K, V> {
    fn drop(&mut self) {
        if let Some(trainers) = &self.core.trainers {
            trainers.stop();
        }
        for trainer in self.trainers.drain(..) {
            // A trainer that freed a value may have dropped the last handle: it cannot wait for
            // itself.
            if trainer.thread().id() != thread::current().id() {
                // One that panicked has said so.
                let _ = trainer.join();
            }
        }
    }
}

impl<K: Key, V: Value> fmt::Debug for Index<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// The entries of an [`Index`] within a range: see [`Index::range`].
pub struct Range<'a, K: Key, V: Value> {
    scan: EntryScan<'a, Of<K, V>>,
}

impl<K: Key, V: Value> Range<'_, K, V> {
    /// Appends the next entries in ascending order to `out`, at most `limit` of them. Returns the
    /// number of entries appended, which is below `limit` only at the end of the range.
    ///
    /// The same as calling [`next`](Iterator::next) up to `limit` times, and faster.
    ///
    /// ```
    /// let index = rhumb_index::Index::<u64, u64>::new();
    /// index.bulk_load((0..100).map(|key| (key, key * key))).unwrap();
    /// let mut page = Vec::new();
    /// assert_eq!(index.range(7..).read_into(2, &mut page), 2);
    /// assert_eq!(page, [(7, 49), (8, 64)]);
    /// ```
    pub fn read_into(&mut self, limit: usize, out: &mut Vec<(K, V)>) -> usize {
        let start = out.len();
        out.reserve(limit.min(READ_AHEAD));
        loop {
            let left = limit - (out.len() - start);
            let run = self.scan.next_run(left);
            if run.is_empty() {
                return out.len() - start;
            }
            out.extend(run.iter().map(read));
        }
    }
}

/// The key and the value of an entry that a scan yielded last.
#[inline]
fn read<K: Key, V: Value>(entry: &Entry) -> (K, V) {
    // SAFETY: the callers have the entry of a scan, whose pin lasts until its next call.
    unsafe {
        (key_of::<K>(entry.word, entry.value), value_of(schema::value_word::<K>(entry.value)))
    }
}

impl<K: Key, V: Value> Iterator for Range<'_, K, V> {
    type Item = (K, V);

    #[inline]
    fn next(&mut self) -> Option<(K, V)> {
        self.scan.next().map(|entry| read(&entry))
    }
}

impl<K: Key, V: Value> DoubleEndedIterator for Range<'_, K, V> {
    fn next_back(&mut self) -> Option<(K, V)> {
        self.scan.next_back().map(|entry| read(&entry))
    }
}

impl<K: Key, V: Value> std::iter::FusedIterator for Range<'_, K, V> {}
