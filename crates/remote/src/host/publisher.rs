//! A region that is a copy of a keyspace of a store.
//!
//! The store tells every change before its own readers see it, and when they do. In between, the
//! leaves of the change are latched. Whatever keeps the copy from being true, such as a budget that
//! is spent, *suspends* it: clients ask the store from then on, and no write fails for it. A thread
//! of the embedding program builds the copy anew: what changes while it does is kept, and applied
//! before clients read the region again.

use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{
    Table,
    care::{Bell, care_for},
    share::{Region, ShareStats},
};
use crate::{
    bounds::{Bounds, as_slices},
    clock,
    error::Result,
    layout::control,
    leaf::Entry,
    region::HostRegion,
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
    inner: Arc<Inner>,
}

struct Inner {
    region: Region,
    state: Mutex<State>,
    changed: Condvar,
    bell: Arc<Bell>,
    /// Held by a load and by what is done for a table while writers go on. Taken before `state`.
    building: Mutex<()>,
}

struct State {
    phase: Phase,
    /// Taken by a load.
    table: Option<Table<Arc<HostRegion>>>,
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
    fn apply(&self, table: &mut Table<Arc<HostRegion>>, seq: u64) -> Result<()> {
        for range in &self.ranges {
            let (Bound::Included(from), to) = as_slices(range) else { continue };
            let to = if let Bound::Excluded(to) = to { Some(to) } else { None };
            table.remove_range(from, to, usize::MAX, seq);
        }
        for (key, value) in &self.keys {
            match value {
                Some(value) => table.set(key, value, seq)?,
                None => drop(table.remove(key, seq)),
            }
        }
        table.publish(seq);
        Ok(())
    }
}

impl Publisher {
    /// A publisher that is suspended, of an empty table of the region.
    pub(super) fn new(region: Region, table: Table<Arc<HostRegion>>, bell: Arc<Bell>) -> Self {
        let state = State {
            phase: Phase::Suspended,
            table: Some(table),
            kept: Kept::default(),
            seq: 0,
            is_pending: false,
            is_awaited: false,
            resets: 0,
            pauses: 0,
        };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let building = Mutex::default();
        Self { inner: Arc::new(Inner { region, state, changed, bell, building }) }
    }

    fn building(&self) -> MutexGuard<'_, ()> {
        // What is half built is given up.
        self.inner.building.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what the table wants, while writers go on.
    pub(super) fn care(&self) {
        let _one = self.building();
        care_for(&self.inner.region, &|act| {
            let state = &mut *self.state();
            let (Phase::Live, Some(table)) = (state.phase, &mut state.table) else { return false };
            act(table, state.seq);
            if table.is_lost() {
                self.suspend(state);
            }
            true
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
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
        let stats = self.inner.region.stats(state.table.as_ref());
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
    }

    /// Has clients ask the store from here on.
    fn suspend(&self, state: &mut State) {
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
        if let (Phase::Live, Some(table)) = (state.phase, &state.table) {
            table.prepare(key);
        }
    }

    /// Tells that a key has a value.
    pub fn insert(&self, key: &[u8], value: &[u8]) {
        self.change(
            |table, seq| table.set(key, value, seq).is_ok(),
            |kept| drop(kept.keys.insert(key.to_vec(), Some(value.to_vec()))),
        );
    }

    /// Tells that a key is not there.
    pub fn remove(&self, key: &[u8]) {
        self.change(
            |table, seq| {
                table.remove(key, seq);
                true
            },
            |kept| drop(kept.keys.insert(key.to_vec(), None)),
        );
    }

    /// Tells that no key is there from `from` on, and before `to` if there is such an end.
    pub fn remove_range(&self, from: &[u8], to: Option<&[u8]>) {
        self.change(
            |table, seq| table.remove_range(from, to, REMOVED_MAX, seq),
            |kept| kept.remove_range(from, to),
        );
    }

    /// Makes a change in the table, or keeps it for a load. A table that cannot take it is
    /// suspended.
    fn change(
        &self,
        apply: impl FnOnce(&mut Table<Arc<HostRegion>>, u64) -> bool,
        keep: impl FnOnce(&mut Kept),
    ) {
        let state = &mut *self.state();
        state.is_pending = true;
        let seq = state.seq + 1;
        match (state.phase, &mut state.table) {
            (Phase::Live, Some(table)) => {
                let is_applied = apply(table, seq);
                if !is_applied {
                    self.suspend(state);
                }
            }
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
        if let (Phase::Live, Some(table)) = (state.phase, &mut state.table) {
            table.publish(seq);
            self.inner.bell.ring_for(table);
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
        let is_here = |state: &mut State| state.phase != Phase::Closed;
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
        let table = state.table.take()?;
        state.phase = Phase::Loading;
        Some(Load { publisher: self, table: Some(table) })
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
    table: Option<Table<Arc<HostRegion>>>,
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
        let Some(table) = &mut self.table else { return Ok(false) };
        let geometry = table.geometry();
        let entry = |pair: Result<(K, V)>| {
            pair.map(|(key, value)| Entry::new(geometry, key.as_ref(), value.as_ref()))
        };
        table.load(pairs.into_iter().map(entry))?;
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
            if state.phase != Phase::Loading {
                return Ok(false);
            }
            let (kept, seq) = (std::mem::take(&mut state.kept), state.seq);
            if kept.len() > KEPT_MAX && round < ROUNDS_MAX {
                drop(state);
                kept.apply(table, seq)?;
                continue;
            }
            kept.apply(table, seq)?;
            state.table = self.table.take();
            state.phase = Phase::Live;
            let control = self.publisher.inner.region.control.words();
            control::set_heartbeat(control, clock::now_ms());
            return Ok(true);
        }
        Ok(false)
    }
}

impl Drop for Load<'_> {
    fn drop(&mut self) {
        let Some(table) = self.table.take() else { return };
        let mut state = self.publisher.state();
        state.table = Some(table);
        if state.phase == Phase::Loading {
            state.phase = Phase::Suspended;
        }
        state.kept = Kept::default();
        self.publisher.inner.changed.notify_all();
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publisher").finish_non_exhaustive()
    }
}

impl<S> std::fmt::Debug for Table<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").finish_non_exhaustive()
    }
}
