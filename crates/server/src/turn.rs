//! A turn: what the clients of one worker write between two looks at their sockets is committed
//! together.
//!
//! A command that writes some keys *joins* the turn of its worker: it runs over what those before
//! it left pending, under locks that the turn keeps, and its reply waits. When all clients whose
//! commands are here have had their turn, the first worker to come back *closes* it: one commit,
//! and the locks are free. So the log is written once for all of them, and what each of them
//! changes, such as the number of a set's members, once as well.
//!
//! Rules: (1) a turn that has locks waits for no others: it is closed if it cannot have them at
//! once; (2) a command that takes locks in another way closes the turn of its worker first; (3) a
//! command that has joined awaits nothing else before it finishes.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicUsize, Ordering},
};

use parking_lot::Mutex;
use rhumb::{Error, Result};

use crate::{
    db::Databases,
    fault::Fault,
    locks::Gathered,
    txn::{Pending, Txn},
};

/// A turn is closed once this number of commands have joined it, or once the bytes below are
/// pending.
const COMMANDS_MAX: usize = 512;
const BYTES_MAX: usize = 1 << 20;

/// The most bytes of replies that wait for a worker's other clients at a time. More would have left
/// the processor's nearer caches before the kernel copies it.
const REPLY_BYTES_MAX: usize = 128 << 10;

/// What became of a turn, once it is closed.
type Outcome = OnceLock<Result<()>>;

/// That a command has joined a turn: [`Turn::finish`] says what became of it.
#[derive(Clone, Debug)]
pub(crate) struct Ticket(Arc<Outcome>);

impl Ticket {
    /// Whether two commands have joined the same turn.
    pub(crate) fn is_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// The turns of one worker, one after the other.
#[derive(Default)]
pub(crate) struct Turn {
    open: Mutex<Option<Open>>,
    /// Bytes of replies that wait until all clients have had their turn.
    reply_bytes: AtomicUsize,
}

/// That a client's replies wait for those of the others, until this is dropped.
pub(crate) struct HeldReplies<'t> {
    turn: &'t Turn,
    bytes: usize,
}

impl Drop for HeldReplies<'_> {
    fn drop(&mut self) {
        self.turn.reply_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

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
        let _ = self.outcome.set(txn.commit());
        drop(self.locks);
    }
}

impl Turn {
    /// Lets replies of `bytes` wait; nothing if too many do, and these are to be sent now.
    pub(crate) fn hold_replies(&self, bytes: usize) -> Option<HeldReplies<'_>> {
        let held = HeldReplies { turn: self, bytes };
        let before = self.reply_bytes.fetch_add(bytes, Ordering::Relaxed);
        (before + bytes <= REPLY_BYTES_MAX).then_some(held)
    }

    /// Runs a command of these keys over what the turn has pending.
    ///
    /// # Errors
    ///
    /// Those of the command, which has not joined then. If the engine failed, nobody has.
    pub(crate) fn join<'k>(
        &self,
        databases: &Databases,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
        run: impl FnOnce(&mut Pending) -> std::result::Result<(), Fault>,
    ) -> std::result::Result<Ticket, Fault> {
        let mut slot = self.open.lock();
        let mut open = slot.take().unwrap_or_default();
        if !databases.locks.gather(&mut open.locks, keys.clone()) {
            std::mem::take(&mut open).close(databases);
            databases.locks.gather(&mut open.locks, keys);
        }
        databases.settle();
        let before = open.pending.place();
        match run(&mut open.pending) {
            Ok(()) => {}
            Err(Fault::Engine(error)) => {
                // What the command had left pending is unknown: nothing of the turn happens.
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
        let ticket = Ticket(Arc::clone(&open.outcome));
        if open.commands >= COMMANDS_MAX || open.pending.bytes >= BYTES_MAX {
            open.close(databases);
        } else {
            *slot = Some(open);
        }
        Ok(ticket)
    }

    /// Commits what is pending, if there is something.
    pub(crate) fn close(&self, databases: &Databases) {
        if let Some(open) = self.open.lock().take() {
            open.close(databases);
        }
    }

    /// Sees to it that the turn of a ticket is closed.
    ///
    /// # Errors
    ///
    /// If nothing of it happened.
    pub(crate) fn finish(&self, databases: &Databases, ticket: &Ticket) -> Result<()> {
        if ticket.0.get().is_none() {
            self.close(databases);
        }
        let lost = || Err(Error::InvalidArgument("another command of the turn failed".into()));
        ticket.0.get().cloned().unwrap_or_else(lost)
    }
}
