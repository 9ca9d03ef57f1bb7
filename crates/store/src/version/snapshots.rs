//! The sequence numbers that live snapshots read at: what flushes and compactions must keep.

use std::collections::BTreeMap;

use rhumb_sync::primitive::Mutex;

use crate::types::SeqNo;

/// The sequence numbers that live snapshots read at, with the number of snapshots at each.
#[derive(Default)]
pub(crate) struct Snapshots(Mutex<BTreeMap<SeqNo, usize>>);

impl Snapshots {
    /// Registers a snapshot at the number that `now` returns; meanwhile no list can be taken.
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

    /// Calls `act` while no snapshot begins and no list is made. A thread that finds in a tree what
    /// `act` puts there, and then lists the snapshots, does so after `act` has also made it
    /// visible.
    pub(crate) fn while_none_begins<T>(&self, act: impl FnOnce() -> T) -> T {
        let _live = self.0.lock();
        act()
    }

    /// Calls `act` if there is no live snapshot, while none begins.
    pub(crate) fn if_none(&self, act: impl FnOnce()) {
        let live = self.0.lock();
        if live.is_empty() {
            act();
        }
    }

    /// The numbers of all live snapshots, ascending. A thread that drops versions which none of
    /// them sees must list them *after* it holds the structures with the versions: a snapshot that
    /// begins later is newer than everything in them.
    pub(crate) fn list(&self) -> Vec<SeqNo> {
        self.0.lock().keys().copied().collect()
    }

    /// No snapshot reads below this number, neither a live one nor any that begins later; `now`
    /// returns the number of one that would begin now.
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
