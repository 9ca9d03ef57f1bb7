//! Commit groups: what the clients of one worker write between two looks at their sockets is
//! committed together.
//!
//! A command that writes some keys *joins* the open group of its worker. It runs over what those
//! before it left pending, under locks that the group keeps, and its reply waits. Once all clients
//! whose commands are here were served, the first of them to come back *closes* the group: one
//! commit, and the locks are free. So the log is written once for all of them, and what several of
//! them change, such as the number of a set's members, once as well.
//!
//! Rules: (1) a group that has locks waits for no others: it is closed if it cannot have them at
//! once; (2) a command that takes locks in another way closes the group of its worker first; (3) a
//! client whose command has joined awaits nothing else before it finishes.

use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};
use rhumb::{Error, Result};

use crate::{
    db::Databases,
    effort::beside_others,
    fault::Fault,
    locks::{BRIEF, Gathered},
    txn::{Pending, Txn},
};

/// A group is closed once it has this number of commands.
const COMMANDS_MAX: usize = 512;

/// A group is closed once this number of bytes are pending in it.
const BYTES_MAX: usize = 1 << 20;

/// What became of a group, once it is closed.
type Outcome = OnceLock<Result<()>>;

/// The group that a command has joined: [`CommitGroups::finish`] says what became of it.
#[derive(Clone, Debug)]
pub(crate) struct GroupHandle(Arc<Outcome>);

impl GroupHandle {
    /// Returns true if two commands have joined the same group.
    pub(crate) fn is_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// The commit groups of one worker, one after the other.
#[derive(Default)]
pub(crate) struct CommitGroups {
    open: Mutex<Option<Open>>,
}

/// The group that commands join at present.
#[derive(Default)]
struct Open {
    locks: Gathered,
    pending: Pending,
    commands: usize,
    outcome: Arc<Outcome>,
}

impl Open {
    fn close(self, databases: &Databases) {
        let mut txn = Txn::new(databases, 0, 0);
        txn.pending = self.pending;
        // It was not set before: only here, and where nothing is closed.
        let _ = self.outcome.set(super::transaction(&mut txn));
        drop(self.locks);
    }
}

impl CommitGroups {
    /// Runs a command of these keys over what the open group has pending.
    ///
    /// # Errors
    ///
    /// Those of the command, which has not joined then. If the engine failed, nothing of the group
    /// happens. [`Fault::TakesLong`] if the locks are held for longer than a worker is to wait.
    pub(crate) fn join<'k>(
        &self,
        databases: &Databases,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
        run: impl FnOnce(&mut Pending) -> std::result::Result<(), Fault>,
    ) -> std::result::Result<GroupHandle, Fault> {
        let mut slot = self.lock();
        let mut open = slot.take().unwrap_or_default();
        if !databases.locks.gather(&mut open.locks, keys.clone()) {
            // Some of its locks may be had: a group without commands keeps none.
            std::mem::take(&mut open).close(databases);
            if !databases.locks.gather(&mut open.locks, keys) {
                return Err(Fault::TakesLong);
            }
        }
        databases.commit_submitted();
        let before = open.pending.place();
        match run(&mut open.pending) {
            Ok(()) => {}
            Err(Fault::Engine(error)) => {
                // What the command had left pending is unknown: nothing of the group happens.
                let _ = open.outcome.set(Err(error.clone()));
                return Err(error.into());
            }
            Err(fault) => {
                // Commands say what is wrong before they write.
                debug_assert_eq!(open.pending.place(), before, "a refused command has written");
                if open.commands > 0 {
                    *slot = Some(open);
                }
                return Err(fault);
            }
        }
        open.commands += 1;
        let handle = GroupHandle(Arc::clone(&open.outcome));
        if open.commands >= COMMANDS_MAX || open.pending.bytes >= BYTES_MAX {
            open.close(databases);
        } else {
            *slot = Some(open);
        }
        Ok(handle)
    }

    /// The open group. A commit may take long: another thread serves the worker's other clients
    /// then.
    fn lock(&self) -> MutexGuard<'_, Option<Open>> {
        let open = self.open.try_lock().or_else(|| self.open.try_lock_for(BRIEF));
        open.unwrap_or_else(|| beside_others(|| self.open.lock()))
    }

    /// Commits what is pending, if there is something.
    pub(crate) fn close(&self, databases: &Databases) {
        // Locked until the group is closed, so that the next thread that looks knows the outcome.
        let mut slot = self.lock();
        if let Some(open) = slot.take() {
            open.close(databases);
        }
    }

    /// Sees to it that the group of a handle is closed.
    ///
    /// # Errors
    ///
    /// If nothing of it happened.
    pub(super) fn finish(&self, databases: &Databases, handle: &GroupHandle) -> Result<()> {
        if handle.0.get().is_none() {
            self.close(databases);
        }
        let lost = || Err(Error::InvalidArgument("another command of the turn failed".into()));
        handle.0.get().cloned().unwrap_or_else(lost)
    }
}
