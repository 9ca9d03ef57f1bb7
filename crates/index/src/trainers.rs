//! Background threads that replace leaves, so that writers need not. The first of them looks after
//! the leaves while no thread asks for anything (`tune`).
//!
//! Thread safety: one lock over the queue, held for a few instructions by a writer that found a
//! leaf in need, and by a trainer between two leaves. No thread waits for a trainer that stalls or
//! dies: leaves in need have a limit beyond which a writer replaces them itself.

use std::{collections::VecDeque, time::Duration};

use rhumb_sync::primitive::{Condvar, Mutex};

use crate::{op::Trigger, raw::branch::Bound};

/// Work for trainers.
#[derive(Default)]
pub(crate) struct Trainers {
    queue: Mutex<TrainerQueue>,
    wake: Condvar,
}

#[derive(Default)]
struct TrainerQueue {
    /// Lower bounds of leaves, and the reasons to replace them.
    leaves: VecDeque<(Bound, Trigger)>,
    is_stopped: bool,
}

impl Trainers {
    /// Asks for the replacement of the leaf with this lower bound.
    pub(crate) fn ask(&self, lower: Bound, trigger: Trigger) {
        self.queue.lock().leaves.push_back((lower, trigger));
        self.wake.notify_one();
    }

    /// Ends the trainers; what is in the queue is left to the writers.
    pub(crate) fn stop(&self) {
        self.queue.lock().is_stopped = true;
        self.wake.notify_all();
    }

    /// The next work; [`TrainerWork::Nothing`] if none comes within `patience`.
    pub(crate) fn next(&self, patience: Option<Duration>) -> TrainerWork {
        let mut queue = self.queue.lock();
        loop {
            if queue.is_stopped {
                return TrainerWork::Stop;
            }
            if let Some((lower, trigger)) = queue.leaves.pop_front() {
                return TrainerWork::Replace(lower, trigger);
            }
            match patience {
                None => self.wake.wait(&mut queue),
                Some(patience) => {
                    if self.wake.wait_for(&mut queue, patience).timed_out() {
                        return TrainerWork::Nothing;
                    }
                }
            }
        }
    }
}

/// Work for a trainer.
pub(crate) enum TrainerWork {
    /// To replace the leaf with this lower bound.
    Replace(Bound, Trigger),
    Nothing,
    Stop,
}
