//! The thread that stands by for the tables of a host: it does what would keep writers waiting.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::{
    Space, Table,
    share::Region,
    table::{scrub, wants},
};
use crate::region::HostRegion;

/// Wakes the thread.
#[derive(Debug, Default)]
pub(super) struct Bell {
    state: Mutex<BellState>,
    rung: Condvar,
}

#[derive(Debug, Default)]
struct BellState {
    is_rung: bool,
    has_ended: bool,
}

impl Bell {
    fn state(&self) -> MutexGuard<'_, BellState> {
        // Each change of it is a single step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the thread if the table wants something.
    pub(super) fn ring_for(&self, table: &Table<Arc<HostRegion>>) {
        if wants(table) {
            self.ring();
        }
    }

    /// Wakes the thread.
    pub(super) fn ring(&self) {
        let mut state = self.state();
        if !state.is_rung {
            state.is_rung = true;
            self.rung.notify_one();
        }
    }

    /// Ends the thread.
    pub(super) fn end(&self) {
        self.state().has_ended = true;
        self.rung.notify_one();
    }

    /// Waits until it is rung; returns false if the thread is to end.
    pub(super) fn wait(&self) -> bool {
        let is_quiet = |state: &mut BellState| !state.is_rung && !state.has_ended;
        let mut state =
            self.rung.wait_while(self.state(), is_quiet).unwrap_or_else(PoisonError::into_inner);
        state.is_rung = false;
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
            with(&mut |table, _| table.give_up_renewal());
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
