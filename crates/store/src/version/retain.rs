//! Which versions of a key must stay.
//!
//! Live snapshots cut the sequence numbers into stripes. Of the versions in one stripe, a reader
//! sees none but the newest. So of each key the newest version of each stripe stays. In the
//! deepest level, a tombstone that every snapshot sees has nothing left to hide, and a value that
//! every snapshot sees no longer needs its sequence number.
//!
//! An entry that has expired for every reader is like a tombstone.

use crate::{
    expiry::{Millis, Stamp},
    types::{Kind, SeqNo},
};

/// All readers that there may be: the live snapshots, and those that begin later.
#[derive(Clone, Debug, Default)]
pub(crate) struct Readers {
    /// The sequence numbers of the live snapshots.
    pub(crate) snapshots: Vec<SeqNo>,
    /// The earliest time of any of them.
    pub(crate) time_ms: Millis,
}

/// Decides for entries in order: keys ascending, versions newest first.
pub(crate) struct Retain {
    /// Ascending.
    snapshots: Vec<SeqNo>,
    /// What has expired by then has for every reader.
    time_ms: Millis,
    deepest: bool,
    key: Vec<u8>,
    /// The stripe of the last version of `key`; `None` before the first key.
    stripe: Option<usize>,
}

impl Retain {
    /// Decides for `readers`; `deepest` says that no older version of any key lies elsewhere.
    pub(crate) fn new(readers: Readers, deepest: bool) -> Self {
        let Readers { mut snapshots, time_ms } = readers;
        snapshots.sort_unstable();
        snapshots.dedup();
        Self { snapshots, time_ms, deepest, key: Vec::new(), stripe: None }
    }

    /// An entry as all readers see it: one that has expired is a tombstone.
    #[inline]
    pub(crate) fn seen<'v>(&self, kind: Kind, value: &'v [u8]) -> (Kind, &'v [u8]) {
        let has_expired =
            || Stamp::split(value).is_some_and(|(stamp, _)| stamp.has_expired(self.time_ms));
        if kind == Kind::Expiring && has_expired() { (Kind::Tombstone, &[]) } else { (kind, value) }
    }

    /// Forgets the last key: the next entry belongs to another LSM tree.
    pub(crate) fn next_run(&mut self) {
        self.stripe = None;
    }

    /// Returns true if the last entry was of the same key as `key`.
    pub(crate) fn is_same_key(&self, key: &[u8]) -> bool {
        self.stripe.is_some() && self.key == key
    }

    /// The stripe of a write: the number of snapshots that are older than it.
    fn stripe_of(&self, seq: SeqNo) -> usize {
        self.snapshots.partition_point(|snapshot| *snapshot < seq)
    }

    /// Returns true if one of these range tombstones, newest first, hides a version from all
    /// readers that see the tombstone or the version.
    #[inline]
    pub(crate) fn is_hidden(&self, seq: SeqNo, over: &[SeqNo]) -> bool {
        let mut newer = over.iter().take_while(|removed| **removed > seq);
        newer.any(|removed| self.stripe_of(*removed) == self.stripe_of(seq))
    }

    /// Returns true if no snapshot sees anything older than this write. Its tombstone is then
    /// needed only while anything older exists at all.
    #[inline]
    pub(crate) fn is_oldest_seen(&self, seq: SeqNo) -> bool {
        self.stripe_of(seq) == 0
    }

    /// The live snapshots, ascending.
    pub(crate) fn snapshots(&self) -> &[SeqNo] {
        &self.snapshots
    }

    /// The sequence number under which the entry stays, or `None` if it is dropped.
    pub(crate) fn judge(&mut self, key: &[u8], seq: SeqNo, kind: Kind) -> Option<SeqNo> {
        let stripe = self.stripe_of(seq);
        let same_key = self.is_same_key(key);
        if same_key && self.stripe == Some(stripe) {
            return None;
        }
        if !same_key {
            self.key.clear();
            self.key.extend_from_slice(key);
        }
        // In sorted order the stripes of one key descend, so 0 is its last.
        self.stripe = Some(stripe);
        let settled = self.deepest && stripe == 0;
        match kind {
            Kind::Tombstone if settled => None,
            Kind::Value | Kind::LargeValue | Kind::Expiring if settled => Some(0),
            _ => Some(seq),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readers(snapshots: &[SeqNo]) -> Readers {
        Readers { snapshots: snapshots.to_vec(), time_ms: 100 }
    }

    #[test]
    fn what_has_expired_for_all_is_a_tombstone() {
        let retain = Retain::new(readers(&[]), false);
        let value = |at_ms| [&Stamp::new(at_ms).encode()[..], b"v"].concat();
        assert_eq!(retain.seen(Kind::Expiring, &value(100)), (Kind::Tombstone, &[][..]));
        assert_eq!(retain.seen(Kind::Expiring, &value(101)), (Kind::Expiring, &value(101)[..]));
        // A value that looks like one that expires.
        assert_eq!(retain.seen(Kind::Value, &value(1)), (Kind::Value, &value(1)[..]));
    }

    fn run(snapshots: &[SeqNo], deepest: bool, versions: &[(SeqNo, Kind)]) -> Vec<SeqNo> {
        let mut retain = Retain::new(readers(snapshots), deepest);
        versions.iter().filter_map(|(seq, kind)| retain.judge(b"k", *seq, *kind)).collect()
    }

    #[test]
    fn without_snapshots_only_the_newest_version_stays() {
        let versions = [(9, Kind::Value), (5, Kind::Value), (2, Kind::Tombstone)];
        assert_eq!(run(&[], false, &versions), [9]);
        assert_eq!(run(&[], true, &versions), [0]);
    }

    #[test]
    fn each_snapshot_keeps_what_it_sees() {
        let versions = [(9, Kind::Value), (7, Kind::Value), (5, Kind::Value), (3, Kind::Value)];
        assert_eq!(run(&[5, 8], false, &versions), [9, 7, 5]);
        assert_eq!(run(&[5, 8], true, &versions), [9, 7, 0]);
        assert_eq!(run(&[4], false, &versions), [9, 3]);
    }

    #[test]
    fn a_range_tombstone_hides_what_no_snapshot_sees_without_it() {
        let retain = Retain::new(readers(&[5, 8]), false);
        assert!(retain.is_hidden(6, &[7]));
        assert!(retain.is_hidden(6, &[9, 7]));
        assert!(!retain.is_hidden(5, &[7]), "the snapshot 5 sees the version");
        assert!(!retain.is_hidden(6, &[9]), "the snapshot 8 sees the version");
        assert!(
            !retain.is_hidden(7, &[7]) && !retain.is_hidden(7, &[6]) && !retain.is_hidden(7, &[])
        );
    }

    #[test]
    fn a_tombstone_goes_only_where_it_hides_nothing() {
        let versions = [(9, Kind::Tombstone), (5, Kind::Value)];
        assert_eq!(run(&[], false, &versions), [9]);
        assert_eq!(run(&[], true, &versions), [] as [SeqNo; 0]);
        assert_eq!(run(&[6], true, &versions), [9, 0]);
    }
}
