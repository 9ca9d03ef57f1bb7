//! Which moments live snapshots read at: what flushes and compactions must keep.

use std::collections::BTreeMap;

use rhumb_sync::primitive::Mutex;

use crate::types::SeqNo;

/// The sequence numbers that live snapshots read at, with how many read at each.
#[derive(Default)]
pub(crate) struct Snapshots(Mutex<BTreeMap<SeqNo, usize>>);

impl Snapshots {
    /// Registers a snapshot at the number that `now` gives while no list can be taken.
    pub(crate) fn add(&self, now: impl FnOnce() -> SeqNo) -> SeqNo {
        let mut live = self.0.lock();
        let seq = now();
        *live.entry(seq).or_default() += 1;
        seq
    }

    pub(crate) fn remove(&self, seq: SeqNo) {
        let mut live = self.0.lock();
        if let Some(count) = live.get_mut(&seq) {
            *count -= 1;
            if *count == 0 {
                live.remove(&seq);
            }
        }
    }

    /// Does something while no snapshot begins and no list is made: whoever finds in a tree what this puts there,
    /// and asks for the snapshots then, does so when it is visible too.
    pub(crate) fn while_none_begins<T>(&self, act: impl FnOnce() -> T) -> T {
        let _live = self.0.lock();
        act()
    }

    /// The numbers of all live snapshots, ascending. Whoever drops versions that none of them sees asks *after*
    /// it has got hold of what holds the versions: one that begins later sees all of that.
    pub(crate) fn list(&self) -> Vec<SeqNo> {
        self.0.lock().keys().copied().collect()
    }

    /// No snapshot reads below this number, neither a live one nor any that begins later; `now` gives the number
    /// of one that would begin now.
    pub(crate) fn oldest(&self, now: impl FnOnce() -> SeqNo) -> SeqNo {
        let live = self.0.lock();
        let now = now();
        live.keys().next().map_or(now, |oldest| now.min(*oldest))
    }

    /// The number of live snapshots.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().values().sum()
    }
}
