//! Segments of a database's keys, of about as many keys each, for draws among all of them where
//! the engine's own draws ([`rhumb::Keyspace::sample`]) find too much that is dead.
//!
//! A draw takes a segment and one of its places, of which all segments have the same number, and
//! draws again if no key is there: so each key is as likely as any other, as long as no segment has
//! more keys than places. Where the
//! segments begin is learned by a walk over all keys when somebody draws, and again once the
//! database has grown by an eighth, or a draw meets a segment with too many keys. Until then keys
//! that came since, in one place, are drawn more seldom.

use std::{ops::Bound, sync::Arc};

use parking_lot::Mutex;
use rhumb::{Keyspace, Result};

/// The most segments: 16,384 first keys take some megabytes, but for long keys.
const SEGMENTS_MAX: usize = 1 << 14;

/// Keys of a segment while there are few segments.
const KEYS_MIN: usize = 32;

/// Places of a segment for each key that it had. A segment with more keys than places is of a
/// database that has changed, and the segments are learned again.
const PLACES: usize = 3;

/// How many draws may find no key before the segments are learned again: two of three do while the
/// segments are new, and more where keys were removed.
const DRAWS_MAX: usize = 256;

/// One end of a range of keys.
type KeyBound = Bound<Vec<u8>>;

/// The segments of one moment.
#[derive(Debug)]
pub(crate) struct Segments {
    /// The first key of each but the first one, which begins where the keys do.
    starts: Vec<Box<[u8]>>,
    /// How many keys a segment had, but for the last one.
    keys: usize,
    /// What [`Keyspace::entries_at_most`] said then.
    entries: u64,
}

impl Segments {
    /// Learns where segments begin. O(entries).
    fn learn(keys: &Keyspace) -> Result<Self> {
        let mut segments =
            Self { starts: Vec::new(), keys: KEYS_MIN, entries: keys.entries_at_most() };
        let mut in_last = 0;
        for pair in keys.iter() {
            let (key, _) = pair?;
            if in_last == segments.keys {
                segments.starts.push((*key).into());
                in_last = 0;
            }
            in_last += 1;
            if segments.starts.len() == SEGMENTS_MAX {
                // The key here begins a segment still.
                segments.halve();
            }
        }
        Ok(segments)
    }

    /// Makes one segment of every two but the last one, which has just begun: the number of starts
    /// is even.
    fn halve(&mut self) {
        let mut nth = 0;
        self.starts.retain(|_| {
            nth += 1;
            nth % 2 == 0
        });
        self.keys *= 2;
    }

    /// How many segments there are.
    pub(crate) fn len(&self) -> u64 {
        self.starts.len() as u64 + 1
    }

    /// The ends of a segment.
    pub(crate) fn range(&self, at: usize) -> (KeyBound, KeyBound) {
        let start = |at: usize| self.starts.get(at).map(|key| key.to_vec());
        let from = at.checked_sub(1).and_then(start);
        (
            from.map_or(Bound::Unbounded, Bound::Included),
            start(at).map_or(Bound::Unbounded, Bound::Excluded),
        )
    }

    /// Places of a segment: with more keys it is of another database.
    pub(crate) fn places(&self) -> usize {
        self.keys * PLACES
    }

    /// How many draws may find no key.
    pub(crate) fn draws(&self) -> usize {
        DRAWS_MAX
    }

    /// Returns true if a database with this many entries is about the same.
    fn is_of(&self, entries: u64) -> bool {
        let eighth = self.entries / 8;
        (self.entries.saturating_sub(eighth * 4)..=self.entries + eighth).contains(&entries)
    }
}

/// The segments that were learned last.
#[derive(Debug, Default)]
pub(crate) struct Learned(Mutex<Option<Arc<Segments>>>);

impl Learned {
    /// The segments of these keys, unless they have grown by an eighth since, or shrunk by half.
    /// O(tables).
    pub(crate) fn current(&self, keys: &Keyspace) -> Option<Arc<Segments>> {
        let entries = keys.entries_at_most();
        self.0.lock().clone().filter(|segments| segments.is_of(entries))
    }

    /// Forgets the segments: the keys are gone.
    pub(crate) fn forget(&self) {
        *self.0.lock() = None;
    }

    /// Learns where the segments of these keys begin. O(entries).
    ///
    /// # Errors
    ///
    /// From the engine.
    pub(crate) fn learn(&self, keys: &Keyspace) -> Result<Arc<Segments>> {
        let segments = Arc::new(Segments::learn(keys)?);
        *self.0.lock() = Some(Arc::clone(&segments));
        Ok(segments)
    }
}

#[cfg(test)]
mod tests {
    use rhumb::{Database, KeyspaceOptions};

    use super::*;

    #[test]
    fn segments_have_as_many_keys_each() {
        let dir = tempfile::tempdir().unwrap();
        let database = Database::builder(dir.path().join("db")).open().unwrap();
        let keys = database.keyspace("k", KeyspaceOptions::default()).unwrap();
        let learned = Learned::default();
        assert_eq!(learned.learn(&keys).unwrap().len(), 1);
        let mut batch = database.batch();
        (0..5000_u32).for_each(|n| batch.insert(&keys, n.to_be_bytes(), []));
        batch.commit().unwrap();
        assert!(learned.current(&keys).is_none());
        let segments = learned.learn(&keys).unwrap();
        assert_eq!(segments.len(), 5000_u64.div_ceil(KEYS_MIN as u64));
        let sizes: Vec<usize> =
            (0..segments.len() as usize).map(|at| keys.range(segments.range(at)).count()).collect();
        assert_eq!(sizes.iter().sum::<usize>(), 5000);
        assert!(sizes[..sizes.len() - 1].iter().all(|size| *size == KEYS_MIN), "{sizes:?}");
        // The same ones while the database is about the same.
        keys.insert("x", "y").unwrap();
        assert!(Arc::ptr_eq(&segments, &learned.current(&keys).unwrap()));
        (0..1000_u32).for_each(|n| keys.insert(n.to_le_bytes(), []).unwrap());
        assert!(learned.current(&keys).is_none());
    }

    #[test]
    fn halving_keeps_all_keys() {
        let starts = (1..=SEGMENTS_MAX as u32).map(|n| n.to_be_bytes()[..].into()).collect();
        let mut segments = Segments { starts, keys: KEYS_MIN, entries: 0 };
        segments.halve();
        assert_eq!((segments.starts.len(), segments.keys), (SEGMENTS_MAX / 2, 2 * KEYS_MIN));
        assert_eq!(*segments.starts[0], 2_u32.to_be_bytes());
        assert_eq!(*segments.starts[SEGMENTS_MAX / 2 - 1], (SEGMENTS_MAX as u32).to_be_bytes());
    }
}
