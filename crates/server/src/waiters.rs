//! Clients that wait for keys to be written, in the order in which they came.
//!
//! A writer wakes the first client of a key's queue, whose command is run again. While the key is
//! there after that, the next one of the queue is woken. So elements are taken in the order of
//! arrival, a client that cannot use them is passed over, and a key that has no more wakes nobody.
//!
//! No wake-up is lost: a client enters the queue, and then tries once more under the keys' locks. A
//! writer holds these locks from before it looks whether anyone waits until it has committed.
//! Costs a writer one relaxed load while nobody waits.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use parking_lot::Mutex;

use crate::watch::{Interest, WatchedKey};

/// The client waits.
const WAITING: u8 = 0;
/// One of its keys was written.
const WOKEN: u8 = 1;
/// Another client asks it to end the waiting as if the time were over.
const GIVEN_UP: u8 = 2;
/// Another client asks it to end the waiting with an error.
const REFUSED: u8 = 3;

/// Why a client stops waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// One of its keys was written: its command is to be run again.
    Written,
    /// `CLIENT UNBLOCK … TIMEOUT`.
    GivenUp,
    /// `CLIENT UNBLOCK … ERROR`.
    Refused,
}

/// One client that waits.
#[derive(Debug, Default)]
pub(crate) struct Waiter {
    state: AtomicU8,
    /// True if it is among those that were woken and have not looked.
    is_pending: AtomicBool,
    /// True if it is to be told when a key is gone.
    answers_absence: bool,
    task: Mutex<Option<std::task::Waker>>,
}

impl Waiter {
    /// A client that waits from now on; whether it is to be told when a key is gone.
    pub(crate) fn new(answers_absence: bool) -> Self {
        Self { answers_absence, ..Self::default() }
    }

    fn set(&self, state: u8) {
        // What another client asks for is not overwritten by a key that was written.
        let _ = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| {
            (now < state).then_some(state)
        });
        if let Some(task) = self.task.lock().take() {
            task.wake();
        }
    }

    /// Has the client's command run again.
    pub(crate) fn look_again(&self) {
        self.set(WOKEN);
    }

    /// Ends the waiting, as if the time were over or with an error.
    pub(crate) fn unblock(&self, with_error: bool) {
        self.set(if with_error { REFUSED } else { GIVEN_UP });
    }

    /// Takes the reason to stop waiting, once there is one.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Wake> {
        // Before the look: a thread that sets the state after it finds the task.
        *self.task.lock() = Some(cx.waker().clone());
        match self.state.swap(WAITING, Ordering::AcqRel) {
            WOKEN => Poll::Ready(Wake::Written),
            GIVEN_UP => Poll::Ready(Wake::GivenUp),
            REFUSED => Poll::Ready(Wake::Refused),
            _ => Poll::Pending,
        }
    }
}

type Queue = VecDeque<Arc<Waiter>>;

/// All clients that wait for keys.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    /// Registered pairs of a key and a client.
    count: AtomicUsize,
    /// Clients that were woken and have not looked yet what is there.
    pending: AtomicUsize,
    queues: Mutex<HashMap<WatchedKey, Queue>>,
    interest: Interest,
}

impl Waiters {
    /// Registered pairs of a key and a client.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// No clients; those that will come count there as well.
    pub(crate) fn new(interest: Interest) -> Self {
        Self { interest, ..Self::default() }
    }

    /// Returns true if any client waits for a key.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Returns true if clients wait for one of these keys.
    pub(crate) fn any_of<'k>(
        &self,
        database: usize,
        mut keys: impl Iterator<Item = &'k [u8]>,
    ) -> bool {
        self.any() && {
            let queues = self.queues.lock();
            keys.any(|key| queues.contains_key(&(database, key.to_vec())))
        }
    }

    /// The keys that clients wait for, and those of them that a client waits for that is to be told
    /// when the key is gone. O(clients that wait).
    pub(crate) fn keys(&self) -> (usize, usize) {
        let queues = self.queues.lock();
        let is_told = |queue: &&Queue| queue.iter().any(|waiter| waiter.answers_absence);
        (queues.len(), queues.values().filter(is_told).count())
    }

    /// Returns true if clients were woken that have not looked yet what is there. The writer that
    /// woke them lets them look before its next command, so that what it writes next is not
    /// mistaken for what they were woken for.
    #[inline]
    pub(crate) fn any_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed) > 0
    }

    fn wake(&self, waiter: &Waiter) {
        if !waiter.is_pending.swap(true, Ordering::AcqRel) {
            self.pending.fetch_add(1, Ordering::Relaxed);
        }
        waiter.look_again();
    }

    /// Says that a client has looked, or waits no longer.
    pub(crate) fn looked(&self, waiter: &Waiter) {
        if waiter.is_pending.swap(false, Ordering::AcqRel) {
            self.pending.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Adds a client to the ends of the keys' queues. A key that is named twice counts once.
    pub(crate) fn enter(&self, database: usize, keys: &[Vec<u8>], waiter: &Arc<Waiter>) {
        let mut queues = self.queues.lock();
        for key in keys {
            let queue = queues.entry((database, key.clone())).or_default();
            if queue.back().is_none_or(|last| !Arc::ptr_eq(last, waiter)) {
                self.interest.add();
                self.count.fetch_add(1, Ordering::SeqCst);
                queue.push_back(Arc::clone(waiter));
            }
        }
    }

    /// Takes a client out of the keys' queues. O(clients that wait for them).
    pub(crate) fn leave(&self, database: usize, keys: &[Vec<u8>], waiter: &Arc<Waiter>) {
        let mut queues = self.queues.lock();
        for key in keys {
            let key = (database, key.clone());
            let Some(queue) = queues.get_mut(&key) else { continue };
            // Clients leave at the front as a rule.
            if let Some(at) = queue.iter().position(|other| Arc::ptr_eq(other, waiter)) {
                queue.remove(at);
                self.count.fetch_sub(1, Ordering::SeqCst);
                self.interest.remove();
            }
            if queue.is_empty() {
                queues.remove(&key);
            }
        }
    }

    /// Wakes the first client that waits for the key.
    pub(crate) fn touch(&self, database: usize, key: &[u8]) {
        let queues = self.queues.lock();
        if let Some(first) = queues.get(&(database, key.to_vec())).and_then(VecDeque::front) {
            self.wake(first);
        }
    }

    /// Wakes the client that comes after `waiter` in the key's queue; the first one if `waiter` is
    /// not among them.
    pub(crate) fn pass_on(&self, database: usize, key: &[u8], waiter: &Arc<Waiter>) {
        let queues = self.queues.lock();
        let Some(queue) = queues.get(&(database, key.to_vec())) else { return };
        let place = queue.iter().position(|other| Arc::ptr_eq(other, waiter));
        if let Some(next) = queue.get(place.map_or(0, |at| at + 1)) {
            self.wake(next);
        }
    }

    /// Wakes the first client of every key of the database.
    pub(crate) fn touch_all(&self, database: usize) {
        let queues = self.queues.lock();
        let of = queues.iter().filter(|((of, _), _)| *of == database);
        of.filter_map(|(_, queue)| queue.front()).for_each(|first| self.wake(first));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_woken(waiter: &Waiter) -> bool {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        waiter.poll(&mut cx) == Poll::Ready(Wake::Written)
    }

    #[test]
    fn a_key_wakes_the_first_and_each_passes_on_to_the_next() {
        let waiters = Waiters::default();
        let all: [Arc<Waiter>; 3] = Default::default();
        let keys = [b"a".to_vec(), b"a".to_vec(), b"b".to_vec()];
        all.iter().for_each(|waiter| waiters.enter(1, &keys, waiter));
        waiters.touch(0, b"a");
        assert!(!all.iter().any(|waiter| is_woken(waiter)));
        waiters.touch(1, b"a");
        assert_eq!([0, 1, 2].map(|at| is_woken(&all[at])), [true, false, false]);
        waiters.pass_on(1, b"a", &all[0]);
        assert_eq!([0, 1, 2].map(|at| is_woken(&all[at])), [false, true, false]);
        waiters.leave(1, &keys, &all[0]);
        waiters.pass_on(1, b"b", &all[0]);
        assert_eq!([0, 1, 2].map(|at| is_woken(&all[at])), [false, true, false]);
        waiters.pass_on(1, b"b", &all[2]);
        assert!(!all.iter().any(|waiter| is_woken(waiter)));
        all[1..].iter().for_each(|waiter| waiters.leave(1, &keys, waiter));
        assert!(!waiters.any() && waiters.queues.lock().is_empty());
    }

    #[test]
    fn being_asked_to_end_is_not_overwritten_by_a_key() {
        let waiter = Waiter::default();
        waiter.unblock(true);
        waiter.look_again();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert_eq!(waiter.poll(&mut cx), Poll::Ready(Wake::Refused));
        assert_eq!(waiter.poll(&mut cx), Poll::Pending);
    }
}
