//! A keyspace that a host shares: its region, and what is not in it.
//!
//! The authority here is volatile: what is written lives as long as the host.

use std::{
    collections::BTreeMap,
    ops::{Bound, RangeBounds},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{Space, Table};
use crate::{
    client::Reader,
    error::{Error, Result},
    layout::{Geometry, control},
    primitive::AtomicU64,
    region::{CAPACITY_BYTES_MAX, HostRegion, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN},
};

/// The most that a directory and the header can grow to: with the smallest leaves, descriptors of a
/// few hundred million keys.
const CONTROL_BYTES_MAX: u64 = 1 << 30;

/// How a keyspace is shared.
///
/// ```
/// let options = rhumb_remote::ShareOptions::default().capacity_bytes(64 << 20).entry_bytes(116);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ShareOptions {
    capacity_bytes: u64,
    entry_bytes: usize,
}

impl Default for ShareOptions {
    /// A budget of 64 GiB, and entries of 100 bytes.
    fn default() -> Self {
        Self { capacity_bytes: 64 << 30, entry_bytes: 100 }
    }
}

impl ShareOptions {
    /// The most memory that the leaves may take, in bytes: rounded up to 2 MiB, at most 1 TiB.
    /// Memory is taken as it is needed. A write beyond it is refused.
    #[must_use]
    pub fn capacity_bytes(mut self, bytes: u64) -> Self {
        self.capacity_bytes = bytes;
        self
    }

    /// The mean size of a key and its value, in bytes: decides how large leaves are. Entries of any
    /// other size are held too.
    #[must_use]
    pub fn entry_bytes(mut self, bytes: usize) -> Self {
        self.entry_bytes = bytes;
        self
    }
}

/// What a shared keyspace holds, and the memory that it takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShareStats {
    /// Number of entries.
    pub entries: u64,
    /// Number of leaves.
    pub leaves: u64,
    /// Number of runs of leaves, each of which one line describes.
    pub runs: u64,
    /// Sequence number of the last write that can be read.
    pub applied: u64,
    /// Bytes of one leaf.
    pub leaf_bytes: u64,
    /// Bytes of memory that clients map, of leaves and directory.
    pub mapped_bytes: u64,
    /// Of these, bytes in large pages.
    pub huge_bytes: u64,
}

/// A keyspace of a host.
pub(super) struct Share {
    control: Arc<HostRegion>,
    leaves: Arc<HostRegion>,
    state: Mutex<State>,
}

/// What one thread at a time changes.
pub(super) struct State {
    table: Table<Arc<HostRegion>>,
    /// The values that are too large for leaves.
    large: BTreeMap<Vec<u8>, Vec<u8>>,
    seq: u64,
}

/// A change of one key: `None` removes it.
pub(super) struct Change<'a> {
    pub(super) key: &'a [u8],
    pub(super) value: Option<&'a [u8]>,
}

/// A key and its value.
pub(super) type Pair = (Vec<u8>, Vec<u8>);

impl Share {
    /// An empty keyspace.
    pub(super) fn new(options: ShareOptions) -> Result<Self> {
        let capacity =
            options.capacity_bytes.clamp(1, CAPACITY_BYTES_MAX).next_multiple_of(SEGMENT_BYTES_MIN);
        let control = Arc::new(HostRegion::new(CONTROL_BYTES_MAX)?);
        let leaves = Arc::new(HostRegion::new(capacity)?);
        let geometry = Geometry::for_entries_of(options.entry_bytes);
        let table = Table::build(geometry, Arc::clone(&leaves), Arc::clone(&control), [])?;
        let state = State { table, large: BTreeMap::new(), seq: 0 };
        Ok(Self { control, leaves, state: Mutex::new(state) })
    }

    /// The header and the directory.
    pub(super) fn control(&self) -> &HostRegion {
        &self.control
    }

    /// The leaves.
    pub(super) fn leaves(&self) -> &HostRegion {
        &self.leaves
    }

    /// What it holds.
    pub(super) fn stats(&self) -> ShareStats {
        let regions = [self.control.stats(), self.leaves.stats()];
        let applied = control::applied(self.control.words());
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        ShareStats {
            entries: state.table.len(),
            leaves: state.table.leaf_count(),
            runs: state.table.run_count() as u64,
            applied,
            leaf_bytes: state.table.geometry().leaf_bytes() as u64,
            mapped_bytes: regions.iter().map(|region| region.bytes).sum(),
            huge_bytes: regions.iter().map(|region| region.huge_bytes).sum(),
        }
    }

    /// Says to readers that the host is there, or by a 0 that it has ended.
    pub(super) fn beat(&self, now_ms: u64) {
        control::set_heartbeat(self.control.words(), now_ms);
    }

    /// Waits until no other thread writes.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if a thread panicked while it wrote: a group may be half done, and its
    /// leaves stay latched.
    pub(super) fn lock(&self) -> Result<MutexGuard<'_, State>> {
        self.state.lock().map_err(|_| Error::invalid("a write of this host's own did not end"))
    }
}

impl State {
    /// The sequence number of the last write.
    pub(super) fn seq(&self) -> u64 {
        self.seq
    }

    fn reader(&self) -> Result<Reader<'_>> {
        Reader::new(self.table.control_space().words(), self.table.leaf_space().words())
    }

    /// The value of a key, also of one whose leaf is latched.
    pub(super) fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.table.get(key).map(|value| match value {
            Some(value) => value,
            None => self.large.get(key).cloned().unwrap_or_default(),
        })
    }

    /// The pairs of a range, in ascending order or the other: at most `limit`, of `bytes_max` at
    /// most, or one that is larger; and true if there may be more.
    pub(super) fn scan(
        &self,
        (from, to): (Bound<&[u8]>, Bound<&[u8]>),
        reverse: bool,
        limit: usize,
        bytes_max: usize,
    ) -> Result<(Vec<Pair>, bool)> {
        let reader = self.reader()?;
        let (mut pairs, mut bytes) = (Vec::new(), 0);
        let (mut at, mut page) = (if reverse { to } else { from }, None);
        let mut next;
        loop {
            let found = if reverse {
                reader.page_down(at, page.as_ref())
            } else {
                reader.page_up(at, page.as_ref())
            };
            let mut found = found.ok_or_else(|| Error::invalid("a leaf of this host's own"))?;
            for (key, value) in found.pairs.drain(..) {
                if !(from, to).contains(&key[..]) {
                    return Ok((pairs, false));
                }
                let value = value.or_else(|| self.large.get(&key).cloned()).unwrap_or_default();
                bytes += key.len() + value.len();
                if pairs.len() >= limit || bytes > bytes_max && !pairs.is_empty() {
                    return Ok((pairs, true));
                }
                pairs.push((key, value));
            }
            let Some(place) = found.next.take() else { return Ok((pairs, false)) };
            next = place;
            at = if reverse { Bound::Excluded(&next[..]) } else { Bound::Included(&next[..]) };
            page = Some(found);
        }
    }

    /// Makes changes as one and lets readers see them; returns their sequence number.
    ///
    /// # Errors
    ///
    /// As [`Table::set`]; nothing was changed then.
    pub(super) fn apply(&mut self, changes: &[Change<'_>]) -> Result<u64> {
        let mut undo = Vec::with_capacity(changes.len());
        let mut failure = None;
        for change in changes {
            let before = self.get(change.key);
            if let Err(error) = self.put(change.key, change.value) {
                failure = Some(error);
                break;
            }
            undo.push((change.key, before));
        }
        if let Some(error) = failure {
            for (key, value) in undo.iter().rev() {
                // There was room for it before.
                let _ = self.put(key, value.as_deref());
            }
            self.table.publish(self.seq);
            return Err(error);
        }
        self.seq += 1;
        self.table.publish(self.seq);
        Ok(self.seq)
    }

    fn put(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        let seq = self.seq + 1;
        match value {
            Some(value) => {
                self.table.set(key, value, seq)?;
                if value.len() > self.table.geometry().value_bytes_max() {
                    self.large.insert(key.to_vec(), value.to_vec());
                } else {
                    self.large.remove(key);
                }
            }
            None => {
                self.table.remove(key, seq);
                self.large.remove(key);
            }
        }
        Ok(())
    }
}

impl Space for HostRegion {
    fn words(&self) -> &[AtomicU64] {
        Self::words(self)
    }

    fn grow(&self, bytes: usize) -> Result<()> {
        let mut left = bytes as u64;
        while left > 0 {
            // Twice as much as there is, so that a large region has few segments.
            let double = self.len_bytes().max(1).next_power_of_two();
            let segment = left.next_power_of_two().max(double);
            let segment = segment.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
            let grown = match Self::grow(self, segment) {
                Err(Error::Full { .. }) if segment > SEGMENT_BYTES_MIN => {
                    Self::grow(self, SEGMENT_BYTES_MIN).map(|()| SEGMENT_BYTES_MIN)
                }
                other => other.map(|()| segment),
            };
            left = left.saturating_sub(grown?);
        }
        Ok(())
    }
}

#[cfg(all(test, target_os = "linux", target_pointer_width = "64", not(miri)))]
mod tests {
    use super::*;

    type Map = BTreeMap<Vec<u8>, Vec<u8>>;

    fn share() -> Share {
        Share::new(ShareOptions::default().capacity_bytes(4 << 20).entry_bytes(40)).unwrap()
    }

    fn set<'a>(key: &'a str, value: &'a [u8]) -> Change<'a> {
        Change { key: key.as_bytes(), value: Some(value) }
    }

    fn removed(key: &str) -> Change<'_> {
        Change { key: key.as_bytes(), value: None }
    }

    /// All that readers and the host see, which must be the same.
    fn seen(state: &State) -> Map {
        let all = (Bound::Unbounded, Bound::Unbounded);
        let (pairs, more) = state.scan(all, false, 1_000, usize::MAX).unwrap();
        assert!(!more);
        let map: Map = pairs.into_iter().collect();
        assert!(map.iter().all(|(key, value)| state.get(key).as_ref() == Some(value)));
        map
    }

    #[test]
    fn a_group_that_fails_changes_nothing() {
        let share = share();
        let mut state = share.lock().unwrap();
        let large = vec![7; 3_000];
        let first =
            [set("a", b"small"), set("b", &large), set("c", &large), set("d", b"gone soon")];
        state.apply(&first).unwrap();
        let before = seen(&state);
        let too_long = "k".repeat(2_000);
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
            set(&too_long, b"refused"),
        ];
        assert!(matches!(state.apply(&group), Err(Error::InvalidArgument(_))));
        assert_eq!(seen(&state), before);
        assert_eq!((state.table.len(), state.large.len(), state.seq()), (4, 2, 1));
        assert_eq!(control::applied(share.control().words()), 1);
        state.apply(&group[..9]).unwrap();
        assert_eq!(state.seq(), 2);
        let after = seen(&state);
        assert!(after.keys().map(Vec::as_slice).eq([b"a", b"b", b"d", b"e", b"f"]));
        assert_eq!((&after[&b"a"[..]][..], &after[&b"d"[..]][..]), (&b"again"[..], &b"back"[..]));
    }

    #[test]
    fn only_large_values_are_kept_beside_the_region() {
        let share = share();
        let mut state = share.lock().unwrap();
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
        let share = share();
        let mut state = share.lock().unwrap();
        let large = vec![7; 3_000];
        state.apply(&[set("a", b"1"), set("b", &large), set("c", b"1"), set("d", b"1")]).unwrap();
        let scan = |from: &str, reverse, limit, bytes| {
            let from = Bound::Included(from.as_bytes());
            let bounds = if reverse { (Bound::Unbounded, from) } else { (from, Bound::Unbounded) };
            let (pairs, more) = state.scan(bounds, reverse, limit, bytes).unwrap();
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

    #[test]
    fn any_budget_is_one() {
        for bytes in [0, 1, u64::MAX] {
            Share::new(ShareOptions::default().capacity_bytes(bytes)).unwrap();
        }
    }
}
