//! Moments at which tests have a host end: between two steps of a change that readers may see. The
//! process stops or dies at the moment of a number, counted from when it was told so. A thread may
//! have something looked at in each moment of its own.

use std::{
    cell::RefCell,
    sync::atomic::{AtomicI32, AtomicU64, Ordering},
};

use rustix::process::{Signal, getpid, kill_process};

/// Moments that are still to pass; none are counted at [`IDLE`].
static LEFT: AtomicU64 = AtomicU64::new(IDLE);

/// What no count comes to.
const IDLE: u64 = u64::MAX;

/// What happens at the last of them, by its number.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// What is called at each moment of a thread.
type Look = Box<dyn FnMut()>;

thread_local! {
    /// What is called at each moment of this thread, if anything is.
    static LOOK: RefCell<Option<Look>> = const { RefCell::new(None) };
}

/// One of the moments.
#[inline]
pub(crate) fn point() {
    if LEFT.load(Ordering::Relaxed) != IDLE {
        reached();
    }
    LOOK.with_borrow_mut(|look| {
        if let Some(look) = look {
            look();
        }
    });
}

/// Has `look` called at each moment of this thread from here on; `None` ends that.
pub(crate) fn look_at_each(look: Option<Look>) {
    LOOK.set(look);
}

#[cold]
fn reached() {
    if LEFT.fetch_sub(1, Ordering::SeqCst) != 1 {
        return;
    }
    LEFT.store(IDLE, Ordering::SeqCst);
    let signal = Signal::from_named_raw(SIGNAL.load(Ordering::SeqCst));
    let sent = kill_process(getpid(), signal.expect("one of those below"));
    sent.expect("a process may signal itself");
}

/// Sends the process a signal at the moment of a number: 1 is the next.
pub(crate) fn signal_at(number: u64, signal: Signal) {
    SIGNAL.store(signal.as_raw(), Ordering::SeqCst);
    LEFT.store(number, Ordering::SeqCst);
}
