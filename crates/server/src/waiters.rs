//! Clients that wait for keys to be written, in the order in which they came.
//!
//! A key that is written begins a *pass* over its queue: the first client is asked to look, and its
//! command is run again. While the key is there after that, the next one is asked. So elements are
//! taken in the order of arrival, a client that cannot use them is passed over, and a key that has
//! no more asks nobody. The writer waits until the passes that it has begun are over, and only then
//! replies: what is written next, by whomever it tells, is not mistaken for what the clients were
//! asked for.
//!
//! A client that waits for several keys could take from one key, asked for another, what an earlier
//! client of the first one is about to be asked for. So passes over queues with such clients stand
//! in one line and are made one after another, in the order in which the keys were written.
//!
//! No write is missed: a client enters the queue, and then tries once more under the keys' locks. A
//! writer holds these locks from before it looks whether anyone waits until it has committed.
//! Costs a writer one relaxed load while nobody waits.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::watch::{Interest, WatchedKey};

/// The longest time that a writer waits for the clients that it has woken. Chosen: longer than a
/// command holds a worker, so that only a machine that stands still goes beyond it.
const PASSES_MAX: Duration = Duration::from_millis(500);

/// The client waits.
const WAITING: u8 = 0;
/// It is asked to look at its keys.
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

/// What a client waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wants {
    /// A key of the type that it takes something from.
    #[default]
    Elements,
    /// Entries of a stream, which others get as well. It looks at whatever happens to the key.
    Entries,
    /// Entries of a stream that no other consumer of its group gets. It looks at whatever happens
    /// to the key, and is told when there is no such stream or group.
    EntriesOf(Vec<u8>),
}

impl Wants {
    fn is_of_a_stream(&self) -> bool {
        *self != Self::Elements
    }
}

/// One client that waits.
#[derive(Debug, Default)]
pub(crate) struct Waiter {
    state: AtomicU8,
    /// How often it was asked to look.
    asked: AtomicU64,
    /// True if it waits for several keys.
    has_several: bool,
    wants: Wants,
    task: Mutex<Option<std::task::Waker>>,
}

impl Waiter {
    /// A client that waits from now on for one of these keys.
    pub(crate) fn new(keys: &[Vec<u8>], wants: Wants) -> Self {
        let has_several = keys.iter().any(|key| *key != keys[0]);
        Self { has_several, wants, ..Self::default() }
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

    /// Ends the waiting, as if the time were over or with an error.
    pub(crate) fn unblock(&self, with_error: bool) {
        self.set(if with_error { REFUSED } else { GIVEN_UP });
    }

    /// How often it was asked to look. What was written before it was asked is seen by a look that
    /// begins after this.
    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Acquire)
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

/// The clients that wait for one key.
#[derive(Debug, Default)]
struct Queue {
    clients: VecDeque<Arc<Waiter>>,
    /// Those of them that wait for other keys as well.
    of_several: usize,
    /// Those of them that look at whatever happens to the key.
    following: usize,
    pass: Option<Pass>,
}

impl Queue {
    fn place_of(&self, waiter: &Arc<Waiter>) -> Option<usize> {
        self.clients.iter().position(|other| Arc::ptr_eq(other, waiter))
    }

    /// The pass, and the place of this client among those that are asked to look, if it was asked
    /// before its look began.
    fn pass_at(&mut self, waiter: &Arc<Waiter>, seen: u64) -> Option<(&mut Pass, usize)> {
        let pass = self.pass.as_mut()?;
        let mut asked = pass.asked.iter();
        let place = asked.position(|(asked, time)| Arc::ptr_eq(asked, waiter) && *time <= seen)?;
        Some((pass, place))
    }
}

/// The clients of a queue are asked to look, one after another; those that only read together.
#[derive(Debug)]
struct Pass {
    number: u64,
    /// False while others in the line come first.
    has_begun: bool,
    /// The clients that are asked, and how often each has been by then.
    asked: Vec<(Arc<Waiter>, u64)>,
    /// The place in the queue of the one that is asked next.
    next: usize,
    /// Groups that have nothing for another of their consumers.
    empty: Vec<Vec<u8>>,
    /// True if it stands in the line.
    is_in_line: bool,
    /// The number of the pass that comes after this one, since the key was written meanwhile.
    again: Option<u64>,
}

impl Pass {
    fn asks(&self, client: &Waiter) -> bool {
        !matches!(&client.wants, Wants::EntriesOf(group) if self.empty.contains(group))
    }
}

#[derive(Debug, Default)]
struct State {
    queues: HashMap<WatchedKey, Queue>,
    /// The keys of the passes that are made one after another; the first one is being made.
    line: VecDeque<WatchedKey>,
    /// The numbers of the passes that are not over.
    unfinished: BTreeSet<u64>,
    /// The number of the last pass that was begun.
    begun: u64,
}

impl State {
    /// Begins a pass over a key's queue, or another one after that which is being made.
    fn touch(&mut self, key: &WatchedKey, is_made: bool) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        if !is_made && queue.following == 0 {
            // There was something of the type before, and nobody took it.
            return;
        }
        // Those that join a pass which is not over wait for it.
        self.begun += 1;
        match &mut queue.pass {
            Some(pass) if pass.again.is_some() || !pass.has_begun => {}
            Some(pass) => {
                pass.again = Some(self.begun);
                self.unfinished.insert(self.begun);
            }
            None => self.begin(key, self.begun),
        }
    }

    /// Begins the pass with a number, over a queue without one.
    fn begin(&mut self, key: &WatchedKey, number: u64) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        self.unfinished.insert(number);
        let is_in_line = queue.of_several > 0;
        queue.pass = Some(Pass {
            number,
            has_begun: false,
            asked: Vec::new(),
            next: 0,
            empty: Vec::new(),
            is_in_line,
            again: None,
        });
        if is_in_line {
            self.line.push_back(key.clone());
        }
        if !is_in_line || self.line.len() == 1 {
            self.ask(key);
        }
    }

    /// Asks the client that comes next in the queue, and those after it if they only read; ends the
    /// pass if there is none.
    fn ask(&mut self, key: &WatchedKey) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        let Some(pass) = &mut queue.pass else { return };
        pass.has_begun = true;
        for (place, client) in queue.clients.iter().enumerate().skip(pass.next) {
            if !pass.asks(client) {
                continue;
            }
            let only_reads = client.wants == Wants::Entries;
            if !only_reads && !pass.asked.is_empty() {
                break;
            }
            let time = client.asked.fetch_add(1, Ordering::AcqRel) + 1;
            pass.asked.push((Arc::clone(client), time));
            pass.next = place + 1;
            client.set(WOKEN);
            if !only_reads {
                break;
            }
        }
        if pass.asked.is_empty() {
            self.end(key);
        }
    }

    /// Asks the next client that is to be told that a key is not there.
    fn ask_of_absence(&mut self, key: &WatchedKey) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        let Some(pass) = &mut queue.pass else { return };
        let is_told = |client: &Arc<Waiter>| matches!(client.wants, Wants::EntriesOf(_));
        match queue.clients.iter().skip(pass.next).position(is_told) {
            Some(further) => {
                pass.next += further;
                self.ask(key);
            }
            None => self.give_up(key),
        }
    }

    /// Ends a pass over a key that is not there, and the one that was to come after it.
    fn give_up(&mut self, key: &WatchedKey) {
        let pass = self.queues.get_mut(key).and_then(|queue| queue.pass.as_mut());
        if let Some(number) = pass.and_then(|pass| pass.again.take()) {
            self.unfinished.remove(&number);
        }
        self.end(key);
    }

    /// Begins a pass anew, under another number: the key was written while the pass was being made.
    /// It keeps its place in the line, so that what was written before other keys is still taken
    /// before what is in those.
    fn restart(&mut self, key: &WatchedKey, number: u64) {
        let pass = self.queues.get_mut(key).and_then(|queue| queue.pass.as_mut());
        let Some(pass) = pass else { return };
        self.unfinished.remove(&pass.number);
        (pass.number, pass.again, pass.next) = (number, None, 0);
        pass.empty.clear();
        self.ask(key);
    }

    /// Ends a pass. The next one in the line is made, and then the one that is to come after it.
    fn end(&mut self, key: &WatchedKey) {
        let Some(pass) = self.queues.get_mut(key).and_then(|queue| queue.pass.take()) else {
            return;
        };
        self.unfinished.remove(&pass.number);
        let was_first = pass.is_in_line && self.line.front() == Some(key);
        if pass.is_in_line {
            self.line.retain(|other| other != key);
        }
        if was_first && let Some(next) = self.line.front().cloned() {
            self.ask(&next);
        }
        if let Some(number) = pass.again {
            self.begin(key, number);
        }
    }
}

/// All clients that wait for keys.
#[derive(Debug)]
pub(crate) struct Waiters {
    /// Registered pairs of a key and a client.
    count: AtomicUsize,
    /// The number of the last pass that was begun.
    begun: AtomicU64,
    /// The number of the first pass that is not over, less one; the largest number if all are.
    finished: AtomicU64,
    state: Mutex<State>,
    /// Tells writers of passes that have ended.
    ended: Notify,
    interest: Interest,
}

impl Waiters {
    /// Registered pairs of a key and a client.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// No clients; those that will come count there as well.
    pub(crate) fn new(interest: Interest) -> Self {
        Self {
            count: AtomicUsize::new(0),
            begun: AtomicU64::new(0),
            finished: AtomicU64::new(u64::MAX),
            state: Mutex::default(),
            ended: Notify::new(),
            interest,
        }
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
            let state = self.state.lock();
            keys.any(|key| state.queues.contains_key(&(database, key.to_vec())))
        }
    }

    /// The keys that clients wait for, and those of them that a client waits for that is to be told
    /// when the key is gone. O(clients that wait).
    pub(crate) fn keys(&self) -> (usize, usize) {
        let state = self.state.lock();
        let is_told = |client: &Arc<Waiter>| matches!(client.wants, Wants::EntriesOf(_));
        let is_told = |queue: &&Queue| queue.clients.iter().any(is_told);
        (state.queues.len(), state.queues.values().filter(is_told).count())
    }

    /// The number of the last pass that was begun: a command that begins none leaves it as it is.
    #[inline]
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Acquire)
    }

    /// Waits until the passes up to this number are over.
    pub(crate) async fn finish(&self, number: u64) {
        let is_over = || self.finished.load(Ordering::Acquire) >= number;
        // Clients of this worker look before the task goes on.
        for _ in 0..2 {
            if is_over() {
                return;
            }
            tokio::task::yield_now().await;
        }
        let all = async {
            loop {
                let ended = self.ended.notified();
                if is_over() {
                    return;
                }
                ended.await;
            }
        };
        // A client that does not look in time takes what it finds then.
        let _ = tokio::time::timeout(PASSES_MAX, all).await;
    }

    /// Changes the queues, and tells what that has begun and ended.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        let before = state.unfinished.first().copied();
        change(&mut state);
        let first = state.unfinished.first().copied();
        if first != before {
            self.finished.store(first.map_or(u64::MAX, |first| first - 1), Ordering::Release);
            self.ended.notify_waiters();
        }
        // Last: a pass that is known to have begun is known to be unfinished.
        self.begun.store(state.begun, Ordering::Release);
    }

    /// Adds a client to the ends of the keys' queues. A key that is named twice counts once.
    pub(crate) fn enter(&self, database: usize, keys: &[Vec<u8>], waiter: &Arc<Waiter>) {
        let mut state = self.state.lock();
        for key in keys {
            let queue = state.queues.entry((database, key.clone())).or_default();
            if queue.clients.back().is_none_or(|last| !Arc::ptr_eq(last, waiter)) {
                self.interest.add();
                self.count.fetch_add(1, Ordering::SeqCst);
                queue.clients.push_back(Arc::clone(waiter));
                queue.of_several += usize::from(waiter.has_several);
                queue.following += usize::from(waiter.wants.is_of_a_stream());
            }
        }
    }

    /// Those of its keys that a client is asked to look at, and was before it began to look. O(1)
    /// for each.
    pub(crate) fn asked_for<'k>(
        &self,
        database: usize,
        keys: &'k [Vec<u8>],
        (waiter, seen): (&Arc<Waiter>, u64),
    ) -> Vec<&'k [u8]> {
        let mut state = self.state.lock();
        let mut is_asked = |key: &[u8]| {
            let queue = state.queues.get_mut(&(database, key.to_vec()));
            queue.is_some_and(|queue| queue.pass_at(waiter, seen).is_some())
        };
        keys.iter().map(Vec::as_slice).filter(|key| is_asked(key)).collect()
    }

    /// Takes a client out of the keys' queues. If it was asked to look, the next ones are asked for
    /// those keys that are there. O(clients that wait for them).
    pub(crate) fn leave(
        &self,
        database: usize,
        keys: &[Vec<u8>],
        waiter: &Arc<Waiter>,
        is_there: impl FnMut(&[u8]) -> bool,
    ) {
        self.pass_on(database, keys, waiter, (u64::MAX, true), is_there);
    }

    /// Says that a client has looked at its keys, and waits for them still. `seen` is how often it
    /// was asked before it began to look. The next ones are asked for those keys that are there.
    pub(crate) fn looked(
        &self,
        database: usize,
        keys: &[Vec<u8>],
        (waiter, seen): (&Arc<Waiter>, u64),
        is_there: impl FnMut(&[u8]) -> bool,
    ) {
        self.pass_on(database, keys, waiter, (seen, false), is_there);
    }

    fn pass_on(
        &self,
        database: usize,
        keys: &[Vec<u8>],
        waiter: &Arc<Waiter>,
        (seen, leaves): (u64, bool),
        mut is_there: impl FnMut(&[u8]) -> bool,
    ) {
        let keys: Vec<WatchedKey> = keys.iter().map(|key| (database, key.clone())).collect();
        // A key that is written after this has `again` set anew.
        let again: Vec<Option<Option<u64>>> = {
            let mut state = self.state.lock();
            let again = |queue: &mut Queue| queue.pass_at(waiter, seen).map(|(pass, _)| pass.again);
            keys.iter().map(|key| state.queues.get_mut(key).and_then(again)).collect()
        };
        let is_there: Vec<bool> =
            keys.iter().zip(&again).map(|(key, at)| at.is_some() && is_there(&key.1)).collect();
        self.change(|state| {
            if leaves {
                // It is in no queue any more before a pass goes on that could ask it.
                keys.iter().for_each(|key| self.remove(state, key, waiter));
            }
            for ((key, again), is_there) in keys.iter().zip(again).zip(is_there) {
                let Some(queue) = state.queues.get_mut(key) else { continue };
                if queue.clients.is_empty() {
                    state.give_up(key);
                    state.queues.remove(key);
                    continue;
                }
                let Some((pass, place)) = queue.pass_at(waiter, seen) else { continue };
                pass.asked.remove(place);
                if let Wants::EntriesOf(group) = &waiter.wants
                    && !leaves
                {
                    pass.empty.push(group.clone());
                }
                if !pass.asked.is_empty() {
                    continue;
                }
                match (again, pass.again) {
                    // It was asked after the look at what is there, and leaves.
                    (None, _) => state.ask(key),
                    (Some(before), now) if before == now && !is_there => state.ask_of_absence(key),
                    (_, Some(number)) => state.restart(key, number),
                    (_, None) => state.ask(key),
                }
            }
        });
    }

    /// Takes a client out of a key's queue.
    fn remove(&self, state: &mut State, key: &WatchedKey, waiter: &Arc<Waiter>) {
        let Some(queue) = state.queues.get_mut(key) else { return };
        let Some(place) = queue.place_of(waiter) else { return };
        queue.clients.remove(place);
        if let Some(pass) = &mut queue.pass {
            pass.next -= usize::from(place < pass.next);
        }
        queue.of_several -= usize::from(waiter.has_several);
        queue.following -= usize::from(waiter.wants.is_of_a_stream());
        self.count.fetch_sub(1, Ordering::SeqCst);
        self.interest.remove();
    }

    /// Has the clients look that wait for the key, from the first one on. `is_made` is true if
    /// there was no key of its type before.
    pub(crate) fn touch(&self, database: usize, key: &[u8], is_made: bool) {
        self.change(|state| state.touch(&(database, key.to_vec()), is_made));
    }

    /// Has the clients look that wait for any key of the database; the keys in ascending order.
    pub(crate) fn touch_all(&self, database: usize) {
        self.change(|state| {
            let of = state.queues.keys().filter(|(of, _)| *of == database);
            let mut keys: Vec<WatchedKey> = of.cloned().collect();
            keys.sort_unstable();
            keys.iter().for_each(|key| state.touch(key, true));
        });
    }
}

#[cfg(test)]
mod tests;
