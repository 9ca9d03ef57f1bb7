//! A keyspace that lives in its region alone: what is written lives as long as the host.

use std::{
    collections::BTreeMap,
    ops::{Bound, ControlFlow},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    Authority, Change, Pair, Scan, Table,
    authority::bounded,
    care::{Bell, care_for},
    group::{self, Changed},
    part::Part,
    replica::Replica,
    share::{Region, ShareStats},
};
use crate::{
    bounds::{as_slices, common, prefix_bounds},
    client::{Page, Reader},
    error::{Error, Result},
    region::HostRegion,
};

/// A keyspace that is in no store.
pub(super) struct Volatile {
    region: Region,
    state: Mutex<VolatileState>,
    bell: Arc<Bell>,
}

/// What one thread at a time changes.
struct VolatileState {
    table: Table<Arc<HostRegion>>,
    /// The values that are too large for leaves, or whose keys are.
    large: BTreeMap<Vec<u8>, Vec<u8>>,
    seq: u64,
}

impl Volatile {
    /// An empty keyspace in an empty table of the region.
    pub(super) fn new(region: Region, table: Table<Arc<HostRegion>>, bell: Arc<Bell>) -> Self {
        let state = VolatileState { table, large: BTreeMap::new(), seq: 0 };
        Self { region, state: Mutex::new(state), bell }
    }

    /// Does what the table wants, while writers go on.
    pub(super) fn care(&self) {
        care_for(&self.region, &|act| {
            let Ok(mut state) = self.lock() else { return false };
            let seq = state.seq;
            act(&mut state.table, seq);
            true
        });
    }

    /// What it holds.
    pub(super) fn stats(&self) -> ShareStats {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stats = self.region.stats();
        Replica::add_to(&state.table, &mut stats);
        stats
    }

    /// Waits until no other thread writes.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if a thread panicked while it wrote: a group may be half done, and its
    /// leaves stay latched.
    fn lock(&self) -> Result<MutexGuard<'_, VolatileState>> {
        self.state.lock().map_err(|_| Error::invalid("a write of this host's own did not end"))
    }
}

impl Authority for Volatile {
    fn get(&self, _keyspace: &str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.lock()?.get(key))
    }

    fn multi_get(
        &self,
        _keyspace: &str,
        keys: &[&[u8]],
        bytes_max: usize,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let state = self.lock()?;
        bounded(keys.iter().map(|key| state.get(key)), bytes_max)
    }

    fn scan(&self, _keyspace: &str, scan: &Scan<'_>) -> Result<(Vec<Pair>, bool)> {
        self.lock()?.scan(scan)
    }

    fn commit(&self, changes: &[Change<'_>]) -> Result<()> {
        let mut state = self.lock()?;
        let applied = group::apply(&mut *state, changes);
        self.bell.ring_for(&state.table);
        applied
    }

    fn compare_and_swap(&self, change: &Change<'_>, expected: Option<&[u8]>) -> Result<bool> {
        let mut state = self.lock()?;
        let swaps = group::swap(&mut *state, change, expected);
        self.bell.ring_for(&state.table);
        swaps
    }
}

impl VolatileState {
    fn reader(&self) -> Result<Reader<'_>> {
        Reader::new(self.table.control_space().words(), self.table.leaf_space().words())
    }

    /// The pairs of a range, in ascending order or the other; and true if there may be more.
    fn scan(&self, scan: &Scan<'_>) -> Result<(Vec<Pair>, bool)> {
        let (reader, reverse) = (self.reader()?, scan.reverse);
        let mut part = Part::new(scan);
        let (mut at, mut page) = (if reverse { scan.to } else { scan.from }, Page::default());
        let mut next;
        loop {
            let left = scan.limit.saturating_sub(part.pairs.len()).saturating_add(1);
            let is_read = if reverse {
                reader.page_down(at, left, &mut page)
            } else {
                reader.page_up(at, left, &mut page)
            };
            if !is_read {
                return Err(Error::invalid("a leaf of this host's own"));
            }
            for (key, value) in page.pairs.iter() {
                let step = if self.table.geometry().is_long(key) {
                    self.scan_long_keys(key, &mut part)
                } else {
                    let value = value.or_else(|| self.large.get(key).map(Vec::as_slice));
                    part.push(key, value.unwrap_or_default())
                };
                if let ControlFlow::Break(has_more) = step {
                    return Ok((part.pairs, has_more));
                }
            }
            let Some(following) = page.next.take() else { return Ok((part.pairs, false)) };
            next = following;
            at = if reverse { Bound::Excluded(&next[..]) } else { Bound::Included(&next[..]) };
        }
    }

    /// Adds those of the long keys that begin with `short` that are within the scan's bounds.
    fn scan_long_keys(&self, short: &[u8], part: &mut Part<'_>) -> ControlFlow<bool> {
        let begins = prefix_bounds(short);
        let Some(bounds) = common(as_slices(&begins), (part.scan.from, part.scan.to)) else {
            return ControlFlow::Continue(());
        };
        let mut pairs = self.large.range::<[u8], _>(bounds);
        while let Some((key, value)) =
            if part.scan.reverse { pairs.next_back() } else { pairs.next() }
        {
            part.push(key, value)?;
        }
        ControlFlow::Continue(())
    }

    /// Returns true if there are long keys that begin as `key` does.
    fn has_long_keys(&self, key: &[u8]) -> bool {
        let bounds = prefix_bounds(self.table.geometry().short(key));
        self.large.range(bounds).next().is_some()
    }
}

impl Changed for VolatileState {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        if self.table.geometry().is_long(key) {
            return self.large.get(key).cloned();
        }
        self.table.get(key).map(|value| match value {
            Some(value) => value,
            None => self.large.get(key).cloned().unwrap_or_default(),
        })
    }

    fn put(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        let (seq, geometry) = (self.seq + 1, self.table.geometry());
        match value {
            Some(value) => {
                self.table.set(key, value, seq)?;
                if geometry.is_long(key) || value.len() > geometry.value_bytes_max() {
                    self.large.insert(key.to_vec(), value.to_vec());
                } else {
                    self.large.remove(key);
                }
            }
            None => {
                self.table.remove(key, seq);
                self.large.remove(key);
                if geometry.is_long(key) && !self.has_long_keys(key) {
                    self.table.remove_short(geometry.short(key), seq);
                }
            }
        }
        Ok(())
    }

    fn seq(&self) -> u64 {
        self.seq
    }

    fn publish(&mut self, seq: u64) {
        self.seq = seq;
        self.table.publish(seq);
    }
}

#[cfg(all(test, target_os = "linux", target_pointer_width = "64", not(miri)))]
mod tests {
    use super::*;
    use crate::layout::{Geometry, control};

    type Map = BTreeMap<Vec<u8>, Vec<u8>>;

    impl VolatileState {
        fn apply(&mut self, changes: &[Change<'_>]) -> Result<()> {
            group::apply(self, changes)
        }
    }

    fn volatile() -> Volatile {
        let region = || Arc::new(HostRegion::new(4 << 20).unwrap());
        let region = Region { control: region(), leaves: region() };
        let geometry = Geometry::for_entries_of(40);
        let (leaves, control) = (Arc::clone(&region.leaves), Arc::clone(&region.control));
        let table = Table::build(geometry, leaves, control, []).unwrap();
        Volatile::new(region, table, Arc::default())
    }

    fn scan_of<'a>(
        (from, to): (Bound<&'a [u8]>, Bound<&'a [u8]>),
        reverse: bool,
        limit: usize,
        bytes_max: usize,
    ) -> Scan<'a> {
        Scan { from, to, reverse, limit, bytes_max }
    }

    fn set<'a>(key: &'a str, value: &'a [u8]) -> Change<'a> {
        Change { keyspace: "", key: key.as_bytes(), value: Some(value) }
    }

    fn removed(key: &str) -> Change<'_> {
        Change { keyspace: "", key: key.as_bytes(), value: None }
    }

    /// All that readers and the host see, which must be the same.
    fn seen(state: &VolatileState) -> Map {
        let all = (Bound::Unbounded, Bound::Unbounded);
        let (pairs, more) = state.scan(&scan_of(all, false, 1_000, usize::MAX)).unwrap();
        assert!(!more);
        let map: Map = pairs.into_iter().collect();
        assert!(map.iter().all(|(key, value)| state.get(key).as_ref() == Some(value)));
        map
    }

    #[test]
    fn a_group_that_fails_changes_nothing() {
        let volatile = volatile();
        let mut state = volatile.lock().unwrap();
        let large = vec![7; 3_000];
        let first =
            [set("a", b"small"), set("b", &large), set("c", &large), set("d", b"gone soon")];
        state.apply(&first).unwrap();
        let before = seen(&state);
        let many: Vec<String> = (0..100_000).map(|n| format!("many {n}")).collect();
        let group = [
            set("a", &large),
            set("a", b"again"),
            set("b", b"small"),
            removed("c"),
            removed("d"),
            set("d", b"back"),
            set("e", b"new"),
            set("f", &large),
            removed("none"),
        ];
        let too_many: Vec<Change<'_>> = many.iter().map(|key| set(key, &[7; 64])).collect();
        let failed = state.apply(&[&group[..], &too_many[..]].concat());
        assert!(matches!(failed, Err(Error::Full { .. })));
        assert_eq!(seen(&state), before);
        assert_eq!((state.table.len(), state.large.len(), state.seq), (4, 2, 1));
        assert_eq!(control::applied(volatile.region.control.words()), 1);
        state.apply(&group).unwrap();
        assert_eq!(state.seq, 2);
        let after = seen(&state);
        assert!(after.keys().map(Vec::as_slice).eq([b"a", b"b", b"d", b"e", b"f"]));
        assert_eq!((&after[&b"a"[..]][..], &after[&b"d"[..]][..]), (&b"again"[..], &b"back"[..]));
    }

    #[test]
    fn only_large_values_are_kept_beside_the_region() {
        let volatile = volatile();
        let mut state = volatile.lock().unwrap();
        let large = vec![7; 3_000];
        for (change, kept) in [
            (set("a", &large), 1),
            (set("b", &large), 2),
            (set("a", b"small"), 1),
            (removed("b"), 0),
            (set("a", &large), 1),
        ] {
            state.apply(&[change]).unwrap();
            assert_eq!(state.large.len(), kept);
        }
        assert_eq!(seen(&state), Map::from([(b"a".to_vec(), large)]));
    }

    #[test]
    fn a_part_of_a_scan_is_as_large_as_it_may_be_or_one_pair() {
        let volatile = volatile();
        let mut state = volatile.lock().unwrap();
        let large = vec![7; 3_000];
        state.apply(&[set("a", b"1"), set("b", &large), set("c", b"1"), set("d", b"1")]).unwrap();
        let scan = |from: &str, reverse, limit, bytes| {
            let from = Bound::Included(from.as_bytes());
            let bounds = if reverse { (Bound::Unbounded, from) } else { (from, Bound::Unbounded) };
            let (pairs, more) = state.scan(&scan_of(bounds, reverse, limit, bytes)).unwrap();
            (pairs.len(), more)
        };
        assert_eq!(scan("a", false, 9, 9_000), (4, false));
        assert_eq!(scan("a", false, 9, 100), (1, true));
        assert_eq!(scan("b", false, 9, 100), (1, true));
        assert_eq!(scan("c", false, 9, 100), (2, false));
        assert_eq!(scan("c", false, 1, 100), (1, true));
        assert_eq!(scan("c", true, 9, 100), (1, true));
        assert_eq!(scan("d", true, 9, 100), (2, true));
    }
}
