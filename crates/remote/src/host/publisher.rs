//! A region that is a copy of a keyspace of a store.
//!
//! The store tells every change before its own readers see it, and when they do. In between, what
//! the change touches is latched, in whichever assembly ([`super::replica`]). Whatever keeps the
//! copy from being true, such as a budget that is spent, *suspends* it: clients ask the store from
//! then on, and no write fails for it. A thread of the embedding program builds the copy anew: what
//! changes while it does is kept, and applied before clients read the region again.

use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError},
    time::Duration,
};

use super::{
    care::Bell,
    replica::{AnyReplica, Lent, Replica},
    share::{Preset, Region, ShareStats},
};
use crate::{
    bounds::{Bounds, as_slices},
    clock,
    error::Result,
    layout::control,
};

/// The most entries of a range that are removed one by one while writers wait, which takes some
/// milliseconds; of a larger one the region is built anew.
const REMOVED_MAX: usize = 4_096;

/// Changes that are applied while writers wait, at the end of a load: fewer than a millisecond's.
const KEPT_MAX: usize = 1_024;

/// Times that a load applies what changed meanwhile before it has writers wait. Each takes a small
/// part of the time of the one before, unless writers are as fast as the load.
const ROUNDS_MAX: u32 = 16;

/// Keeps the region of a shared keyspace in step with the store that it is a copy of. Cloning gives
/// another handle of the same one.
///
/// The store calls [`Publisher::insert`] and the like for each change, in order and before its own
/// readers see it, and [`Publisher::publish`] once they do and before the writer is told. Calls
/// never fail. A copy that cannot be kept is suspended: its clients ask the
/// [`Authority`](crate::Authority) until it was loaded again.
#[derive(Clone, Debug)]
pub struct Publisher {
    inner: Arc<PublisherInner>,
}

struct PublisherInner {
    region: Region,
    preset: Preset,
    state: Mutex<PublisherState>,
    changed: Condvar,
    bell: Arc<Bell>,
    /// Held by a load and by what is done for a replica while writers go on. Taken before `state`.
    building: Mutex<()>,
}

struct PublisherState {
    phase: Phase,
    /// Taken by a load.
    replica: Option<AnyReplica>,
    kept: Kept,
    /// The last change that the store's readers see.
    seq: u64,
    /// True from the first change of a group until the store's readers see it.
    is_pending: bool,
    /// True while a load waits for the end of a group.
    is_awaited: bool,
    resets: u64,
    /// Number of those that keep it suspended.
    pauses: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The region answers for nothing, and nothing is done about that.
    Suspended,
    /// The region is being built.
    Loading,
    /// Clients read the region.
    Live,
    /// The host has ended.
    Closed,
}

/// Changes that wait for a load to end: ranges to be removed, and after that keys to be set.
#[derive(Default)]
struct Kept {
    ranges: Vec<Bounds<Vec<u8>>>,
    keys: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl Kept {
    fn remove_range(&mut self, from: &[u8], to: Option<&[u8]>) {
        let end = to.map_or(Bound::Unbounded, Bound::Excluded);
        let gone: Vec<Vec<u8>> = if to.is_some_and(|to| to <= from) {
            Vec::new()
        } else {
            let inside = self.keys.range::<[u8], _>((Bound::Included(from), end));
            inside.map(|(key, _)| key.clone()).collect()
        };
        gone.iter().for_each(|key| drop(self.keys.remove(key)));
        self.ranges.push((Bound::Included(from.to_vec()), end.map(Vec::from)));
    }

    fn len(&self) -> usize {
        self.keys.len() + self.ranges.len()
    }

    /// Makes the changes, of which `seq` is the number of the last.
    fn apply(&self, replica: &mut dyn Replica, seq: u64) -> Result<()> {
        for range in &self.ranges {
            let (Bound::Included(from), to) = as_slices(range) else { continue };
            let to = if let Bound::Excluded(to) = to { Some(to) } else { None };
            replica.remove_range(from, to, usize::MAX, seq)?;
        }
        for (key, value) in &self.keys {
            match value {
                Some(value) => replica.set(key, value, seq)?,
                None => replica.remove(key, seq)?,
            }
        }
        replica.publish(seq);
        Ok(())
    }
}

/// At which change a replica is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// The number of the last change that the store's readers see.
    pub(super) seq: u64,
    /// True if the replica has changes that they do not see yet.
    pub(super) is_pending: bool,
}

impl Publisher {
    /// A publisher that is suspended, of an empty replica in the region.
    pub(super) fn new(region: Region, replica: AnyReplica, bell: Arc<Bell>) -> Self {
        let preset = replica.preset();
        let state = PublisherState {
            phase: Phase::Suspended,
            replica: Some(replica),
            kept: Kept::default(),
            seq: 0,
            is_pending: false,
            is_awaited: false,
            resets: 0,
            pauses: 0,
        };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let building = Mutex::default();
        Self { inner: Arc::new(PublisherInner { region, preset, state, changed, bell, building }) }
    }

    /// How the region is made.
    pub(super) fn preset(&self) -> Preset {
        self.inner.preset
    }

    pub(super) fn region(&self) -> &Region {
        &self.inner.region
    }

    /// Wakes the thread that stands by.
    pub(super) fn ring(&self) {
        self.inner.bell.ring();
    }

    fn building(&self) -> MutexGuard<'_, ()> {
        // What is half built is given up.
        self.inner.building.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has no load go on until what is returned is dropped; `None` if one goes on.
    pub(super) fn keep_built(&self) -> Option<MutexGuard<'_, ()>> {
        match self.inner.building.try_lock() {
            Ok(building) => Some(building),
            Err(TryLockError::Poisoned(building)) => Some(building.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Has `act` do something with the replica while its writer waits, if clients read it; returns
    /// none otherwise.
    pub(super) fn with_live<T>(&self, act: impl FnOnce(&mut AnyReplica, Moment) -> T) -> Option<T> {
        let state = &mut *self.state();
        let moment = Moment { seq: state.seq, is_pending: state.is_pending };
        let (Phase::Live, Some(replica)) = (state.phase, &mut state.replica) else { return None };
        let done = act(replica, moment);
        if replica.is_lost() {
            self.suspend(state);
        }
        Some(done)
    }

    fn state(&self) -> MutexGuard<'_, PublisherState> {
        self.inner.state.lock().unwrap_or_else(|poisoned| {
            // A thread panicked in the middle of a change: nothing of it is used any more.
            let mut state = poisoned.into_inner();
            state.phase = Phase::Closed;
            control::set_heartbeat(self.inner.region.control.words(), 0);
            state
        })
    }

    /// What the region holds.
    #[must_use]
    pub fn stats(&self) -> ShareStats {
        let state = self.state();
        let mut stats = self.inner.region.stats();
        state.replica.iter().for_each(|replica| replica.add_to(&mut stats));
        ShareStats { is_live: state.phase == Phase::Live, resets: state.resets, ..stats }
    }

    /// Says to readers that the host is there, if the region answers.
    pub(super) fn beat(&self, now_ms: u64) {
        let mut state = self.state();
        if now_ms == 0 {
            state.phase = Phase::Closed;
            self.inner.changed.notify_all();
        }
        let now_ms = if state.phase == Phase::Live { now_ms } else { 0 };
        control::set_heartbeat(self.inner.region.control.words(), now_ms);
        drop(state);
        if self.inner.preset == Preset::FineStore {
            // To look for what waited for sessions whose lease has ended.
            self.inner.bell.ring();
        }
    }

    /// Has clients ask the store from here on.
    fn suspend(&self, state: &mut PublisherState) {
        // planted: suspended-region-keeps-heartbeat
        control::set_heartbeat(self.inner.region.control.words(), 0);
        if state.phase != Phase::Closed {
            state.phase = Phase::Suspended;
        }
        state.kept = Kept::default();
        state.resets += 1;
        self.inner.changed.notify_all();
    }

    /// Tells that what was published so far is worth nothing: the region is to be loaded again.
    pub fn reset(&self) {
        self.suspend(&mut self.state());
    }

    /// Suspends the region, and keeps it so until what is returned is dropped: to share another
    /// keyspace under the same name.
    pub fn pause(&self) -> Paused {
        let mut state = self.state();
        state.pauses += 1;
        self.suspend(&mut state);
        Paused { publisher: self.clone() }
    }

    /// Tells that a change of a key is about to be written to the store's log, which may fail: the
    /// memory that it touches arrives meanwhile. Need not be called, and changes nothing but time.
    pub fn prepare(&self, key: &[u8]) {
        let state = self.state();
        if let (Phase::Live, Some(replica)) = (state.phase, &state.replica) {
            replica.prepare(key);
        }
    }

    /// Tells that a key has a value.
    pub fn insert(&self, key: &[u8], value: &[u8]) {
        self.change(
            |replica, seq| replica.set(key, value, seq).is_ok(),
            |kept| drop(kept.keys.insert(key.to_vec(), Some(value.to_vec()))),
        );
    }

    /// Tells that a key is not there.
    pub fn remove(&self, key: &[u8]) {
        self.change(
            |replica, seq| replica.remove(key, seq).is_ok(),
            |kept| drop(kept.keys.insert(key.to_vec(), None)),
        );
    }

    /// Tells that no key is there from `from` on, and before `to` if there is such an end.
    pub fn remove_range(&self, from: &[u8], to: Option<&[u8]>) {
        self.change(
            |replica, seq| matches!(replica.remove_range(from, to, REMOVED_MAX, seq), Ok(true)),
            |kept| kept.remove_range(from, to),
        );
    }

    /// Makes a change in the replica, or keeps it for a load. A replica that cannot take it is
    /// suspended.
    fn change(
        &self,
        apply: impl FnOnce(&mut dyn Replica, u64) -> bool,
        keep: impl FnOnce(&mut Kept),
    ) {
        let state = &mut *self.state();
        state.is_pending = true;
        let seq = state.seq + 1;
        match (state.phase, &mut state.replica) {
            (Phase::Live, Some(replica)) => {
                // planted: copy-shows-store-not-show
                let is_applied = apply(&mut **replica, seq);
                if !is_applied {
                    self.suspend(state);
                }
            }
            // planted: changes-while-region-loaded-dropped
            (Phase::Loading, _) => keep(&mut state.kept),
            _ => {}
        }
    }

    /// Lets clients read all changes so far, of which `seq` is the number of the last. Numbers
    /// ascend.
    pub fn publish(&self, seq: u64) {
        let state = &mut *self.state();
        (state.seq, state.is_pending) = (seq, false);
        if std::mem::take(&mut state.is_awaited) {
            self.inner.changed.notify_all();
        }
        if let (Phase::Live, Some(replica)) = (state.phase, &mut state.replica) {
            replica.publish(seq);
            if replica.wants_care() {
                self.inner.bell.ring();
            }
        }
    }

    /// Waits until the region is to be loaded; returns false if the host has ended instead.
    #[must_use]
    pub fn wait_for_reset(&self) -> bool {
        let mut state = self.state();
        loop {
            match state.phase {
                Phase::Suspended if state.pauses == 0 => return true,
                Phase::Closed => return false,
                Phase::Suspended | Phase::Loading | Phase::Live => {
                    state = match self.inner.changed.wait(state) {
                        Ok(state) => state,
                        Err(_) => return false,
                    };
                }
            }
        }
    }

    /// Waits for some time, or until the host ends.
    pub fn wait_for_end(&self, most: Duration) {
        let is_here = |state: &mut PublisherState| state.phase != Phase::Closed;
        // Where a thread panicked, the host is as good as ended.
        let _ = self.inner.changed.wait_timeout_while(self.state(), most, is_here);
    }

    /// Begins to load the region: changes are kept from here on, to be applied after what is
    /// loaded. So what is loaded is to be read from the store afterwards. Returns none if the
    /// region is not suspended, or is paused.
    #[must_use]
    pub fn begin_load(&self) -> Option<Load<'_>> {
        let mut state = self.state();
        if state.phase != Phase::Suspended || state.pauses > 0 {
            return None;
        }
        let replica = state.replica.take()?;
        state.phase = Phase::Loading;
        Some(Load { publisher: self, replica: Some(replica) })
    }
}

/// A region that is kept suspended.
#[derive(Debug)]
#[must_use = "a region is loaded again once this is dropped"]
pub struct Paused {
    publisher: Publisher,
}

impl Drop for Paused {
    fn drop(&mut self) {
        self.publisher.state().pauses -= 1;
        self.publisher.inner.changed.notify_all();
    }
}

/// A region that is being loaded. It stays suspended if this is dropped.
#[derive(Debug)]
#[must_use = "a region is suspended until it is loaded"]
pub struct Load<'p> {
    publisher: &'p Publisher,
    /// Taken when the region is live.
    replica: Option<AnyReplica>,
}

impl Load<'_> {
    /// Puts pairs into the region, sorted by key and no two of the same key, in place of what was
    /// there, and what changed since [`Publisher::begin_load`] after them; has clients read it
    /// then, between two groups of changes: it waits for [`Publisher::publish`] of what was told.
    /// Returns false if the publisher was reset meanwhile. Linear.
    ///
    /// # Errors
    ///
    /// The first error among the pairs; [`Error::Full`](crate::Error::Full) if the budget is spent.
    /// The region stays suspended.
    pub fn finish<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        mut self,
        pairs: impl IntoIterator<Item = Result<(K, V)>>,
    ) -> Result<bool> {
        let _one = self.publisher.building();
        let Some(replica) = &mut self.replica else { return Ok(false) };
        replica.load(&mut Lent::new(pairs.into_iter()))?;
        for round in 0..=ROUNDS_MAX {
            let mut state = self.publisher.state();
            // What was kept of a group that the store's readers do not see yet would be seen here
            // first.
            while state.is_pending && state.phase == Phase::Loading {
                state.is_awaited = true;
                state = match self.publisher.inner.changed.wait(state) {
                    Ok(state) => state,
                    Err(_) => return Ok(false),
                };
            }
            // planted: region-live-after-load-reset
            if state.phase != Phase::Loading {
                return Ok(false);
            }
            // planted: copy-goes-live-without-changed
            let (kept, seq) = (std::mem::take(&mut state.kept), state.seq);
            if kept.len() > KEPT_MAX && round < ROUNDS_MAX {
                drop(state);
                kept.apply(&mut **replica, seq)?;
                continue;
            }
            kept.apply(&mut **replica, seq)?;
            state.replica = self.replica.take();
            state.phase = Phase::Live;
            let control = self.publisher.inner.region.control.words();
            control::set_heartbeat(control, clock::now_ms());
            // What has come with the load may want something.
            self.publisher.ring();
            return Ok(true);
        }
        Ok(false)
    }
}

impl Drop for Load<'_> {
    fn drop(&mut self) {
        let Some(replica) = self.replica.take() else { return };
        let mut state = self.publisher.state();
        state.replica = Some(replica);
        if state.phase == Phase::Loading {
            state.phase = Phase::Suspended;
        }
        state.kept = Kept::default();
        self.publisher.inner.changed.notify_all();
    }
}

impl std::fmt::Debug for PublisherInner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publisher").finish_non_exhaustive()
    }
}
