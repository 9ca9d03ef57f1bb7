//! Background threads that replace leaves, so that writers need not.
//!
//! Thread safety: one lock over the queue, held for some instructions by a writer that found a leaf in
//! need, and by a trainer between two leaves. A trainer that stalls or dies is not waited for: leaves
//! in need have a limit beyond which a writer replaces them itself.

use std::collections::VecDeque;

use super::{core::Core, raw::epoch, retrain::Trigger, route::Bound, schema::Schema};
use crate::sync::primitive::{Condvar, Mutex, Ordering};

/// Work for trainers.
#[derive(Default)]
pub(crate) struct Trainers {
    queue: Mutex<Queue>,
    wake: Condvar,
}

#[derive(Default)]
struct Queue {
    /// Lower bounds of leaves, and why they are to be replaced.
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

    fn next(&self) -> Option<(Bound, Trigger)> {
        let mut queue = self.queue.lock();
        loop {
            if queue.is_stopped {
                return None;
            }
            if let Some(leaf) = queue.leaves.pop_front() {
                return Some(leaf);
            }
            self.wake.wait(&mut queue);
        }
    }
}

/// What a trainer does until it is stopped.
pub(crate) fn run<S: Schema>(core: &Core<S>) {
    let Some(trainers) = &core.trainers else { return };
    while let Some((lower, trigger)) = trainers.next() {
        let guard = epoch::pin();
        let place = core.place(lower.probe(), &guard);
        // Otherwise it was replaced meanwhile.
        if place.leaf.is_retraining().load(Ordering::Relaxed) {
            core.replace(&place, trigger, &guard);
        }
    }
}
