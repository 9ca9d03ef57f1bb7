//! The threads that stand by for the tables of a host: they do what would keep writers waiting.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::{
    Space, Table,
    share::Region,
    table::{scrub, wants},
};
use crate::region::HostRegion;

/// Wakes the threads.
#[derive(Debug, Default)]
pub(super) struct Bell {
    state: Mutex<BellState>,
    rung: Condvar,
}

#[derive(Debug, Default)]
struct BellState {
    /// How often it was rung.
    rings: u64,
    /// Threads that have begun to wait since they were last woken.
    sleepers: usize,
    has_ended: bool,
}

impl Bell {
    fn state(&self) -> MutexGuard<'_, BellState> {
        // Each change of it is a single step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the threads if the table wants something.
    pub(super) fn ring_for(&self, table: &Table<Arc<HostRegion>>) {
        if wants(table) {
            self.ring();
        }
    }

    /// Wakes the threads.
    pub(super) fn ring(&self) {
        let mut state = self.state();
        state.rings += 1;
        // Most rings come while the threads are at work, and ask the system for nothing.
        if state.sleepers > 0 {
            state.sleepers = 0;
            self.rung.notify_all();
        }
    }

    /// Ends the threads.
    pub(super) fn end(&self) {
        self.state().has_ended = true;
        self.rung.notify_all();
    }

    /// Waits until it is rung once more than `heard`, which is the number of rings then; returns
    /// false if the thread is to end.
    pub(super) fn wait(&self, heard: &mut u64) -> bool {
        let is_quiet = |state: &mut BellState| {
            let is_quiet = state.rings == *heard && !state.has_ended;
            state.sleepers += usize::from(is_quiet);
            is_quiet
        };
        let state =
            self.rung.wait_while(self.state(), is_quiet).unwrap_or_else(PoisonError::into_inner);
        *heard = state.rings;
        !state.has_ended
    }
}

/// Does something with a table and the number of its last change, while its writer waits; returns
/// false if the table is not to be touched.
pub(super) type WithTable<'a> =
    &'a dyn Fn(&mut dyn FnMut(&mut Table<Arc<HostRegion>>, u64)) -> bool;

/// Does all that a table wants.
pub(super) fn care_for(region: &Region, with: WithTable<'_>) {
    loop {
        let mut wants_memory = false;
        with(&mut |table, _| wants_memory = table.wants_memory());
        if wants_memory {
            // A writer that needs more than the budget is told so.
            let _ = Space::grow(&*region.leaves, 1);
            with(&mut |table, _| table.absorb());
        }
        let mut begun = None;
        with(&mut |table, _| begun = table.begin_renewal());
        let Some(mut renewal) = begun else { return };
        if !renewal.read(region.leaves.words()) {
            with(&mut |table, _| table.give_up_renewal(&renewal));
            continue;
        }
        let mut has_slots = false;
        with(&mut |table, _| has_slots = table.reserve_for(&mut renewal).is_ok());
        if !has_slots {
            continue;
        }
        renewal.store(region.leaves.words());
        let (mut ended, mut geometry) = (Vec::new(), None);
        with(&mut |table, seq| {
            ended = table.finish_renewal(&renewal, seq);
            geometry = Some(table.geometry());
        });
        let Some(geometry) = geometry else { return };
        scrub(region.leaves.words(), geometry, &ended);
        with(&mut |table, _| table.give_back(&ended));
    }
}
