//! The moments that live snapshots read at: what flushes and compactions must keep.

use std::collections::BTreeMap;

use rhumb_sync::primitive::Mutex;

use crate::{
    expiry::Millis,
    types::{Moment, SeqNo},
};

/// The snapshots at one sequence number.
struct Live {
    count: usize,
    /// The earliest of their times, also if that snapshot has ended.
    now_ms: Millis,
}

/// The live snapshots, by the sequence numbers that they read at.
#[derive(Default)]
pub(crate) struct Snapshots(Mutex<BTreeMap<SeqNo, Live>>);

impl Snapshots {
    /// Registers a snapshot at the moment that `now` returns; meanwhile no list can be taken.
    pub(crate) fn add(&self, now: impl FnOnce() -> Moment) -> Moment {
        let mut live = self.0.lock();
        let moment = now();
        let at = live.entry(moment.seq).or_insert(Live { count: 0, now_ms: moment.now_ms });
        at.count += 1;
        at.now_ms = at.now_ms.min(moment.now_ms);
        moment
    }

    pub(crate) fn remove(&self, seq: SeqNo) {
        let mut live = self.0.lock();
        if let Some(at) = live.get_mut(&seq) {
            at.count -= 1;
            if at.count == 0 {
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

    /// The latest time at which something may have expired for all: no live snapshot has an earlier
    /// one, and none that begins later does if the clock was at `now_ms` before the call.
    pub(crate) fn time(&self, now_ms: Millis) -> Millis {
        let live = self.0.lock();
        // planted: expiry-snapshot-time
        live.values().map(|at| at.now_ms).min().map_or(now_ms, |earliest| now_ms.min(earliest))
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
        self.0.lock().values().map(|at| at.count).sum()
    }
}
