//! How a stream of changes waits for more: by a thread or a task, without looking again and again.

use std::{
    task::Waker,
    time::{Duration, Instant},
};

use rhumb_sync::primitive::{Condvar, Mutex};

/// Tells one stream of changes that there may be more.
#[derive(Default)]
pub(crate) struct Signal {
    state: Mutex<State>,
    raised: Condvar,
}

#[derive(Default)]
struct State {
    is_raised: bool,
    /// The waker of the task that waits.
    waker: Option<Waker>,
}

impl Signal {
    /// Tells the waiting thread, and returns the waker of the waiting task, to be woken without a
    /// lock.
    #[must_use]
    pub(crate) fn notify(&self) -> Option<Waker> {
        let mut state = self.state.lock();
        state.is_raised = true;
        self.raised.notify_one();
        state.waker.take()
    }

    /// Prepares for a wait: what was told before does not count, and this task is to be woken.
    pub(super) fn lower(&self, waker: Option<Waker>) {
        let mut state = self.state.lock();
        state.is_raised = false;
        let before = std::mem::replace(&mut state.waker, waker);
        // A waker's drop is the caller's code.
        drop(state);
        drop(before);
    }

    /// Waits until it is told, for at most this long.
    pub(super) fn wait(&self, timeout: Duration) {
        let began = Instant::now();
        let mut state = self.state.lock();
        while !state.is_raised {
            let left = timeout.saturating_sub(began.elapsed());
            if left.is_zero() {
                return;
            }
            self.raised.wait_for(&mut state, left);
        }
    }
}
