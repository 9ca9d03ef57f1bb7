//! Garbage: memory that was unlinked and waits until no thread can hold it.
//!
//! Thread safety: each stripe has a lock, which threads seldom share. Nothing is freed under a
//! lock, because freeing may run destructors of the caller's values. Garbage is freed by the
//! threads that make it, a little at a time, and the rest when the map is dropped.
//!
//! A destructor may retire more, to the same garbage or another, and may panic. What it retires to
//! garbage that its thread is freeing from is only queued: the loop that runs the destructor frees
//! it, and nothing recurses. After a panic the rest is freed before the panic goes on.
//!
//! A forked child has no other thread of its parent, and so a stripe that one of them had locked at
//! the fork is never unlocked there. (What they had pinned is unpinned there: `epoch`.) The child
//! therefore waits for no stripe: it passes those that are locked, and what is in one that stays
//! locked is not freed.

use std::{cell::Cell, collections::VecDeque};

use crate::{
    epoch::{self, GRACE, Guard},
    panics::Panics,
    primitive::{self, AtomicUsize, Mutex, MutexGuard, Ordering, in_models},
    process::Process,
};

const STRIPES: usize = in_models(16, 2);
/// A stripe has the epoch advanced when it has grown by this many pieces. Advancing interrupts all
/// threads and takes longer than most replacements may, so it must be rare among them.
const PIECES: usize = in_models(128, 4);
/// A thread that retires a piece frees about this many times its bytes, if that much may be freed.
/// A leaf takes some microseconds, and no thread should wait for many of them.
const SHARE: usize = 2;

/// A thread frees from at most this many garbages at a time, of which one's destructors retire to
/// the next: a bound of its stack. Deeper ones only queue, until they are retired to again. Maps
/// whose values change maps whose values change maps are as deep as programs were seen to go.
const NESTED_MAX: usize = 4;

/// Something to free, and what it needs for that.
pub trait Piece: Send {
    /// What freeing it needs.
    type Context;

    /// Frees it.
    ///
    /// # Safety
    /// No thread uses it again.
    #[allow(unsafe_code, reason = "a promise that the epoch keeps")]
    unsafe fn free(self, context: &Self::Context);
}

/// Pieces that were unlinked, of one map or of many cells.
pub struct Garbage<P> {
    stripes: [Stripe<P>; STRIPES],
    /// A stripe has the epoch advanced also when it has grown by this number of bytes.
    bytes_max: usize,
    /// The process that made it, and not a child that was forked later.
    #[cfg_attr(any(loom, shuttle), expect(dead_code, reason = "models have one process"))]
    process: Process,
}

#[repr(align(128))]
struct Stripe<P> {
    queue: Mutex<Queue<P>>,
    /// Bytes of the queue.
    bytes: AtomicUsize,
}

struct Queue<P> {
    /// Each piece with its size and the epoch after which it was unlinked, in order.
    pieces: VecDeque<(u64, usize, P)>,
    /// The pieces and bytes that came since the epoch was advanced.
    grown: (usize, usize),
    /// The epoch as it was when it was last advanced.
    epoch: u64,
}

impl<P> Queue<P> {
    /// Takes the next piece that may be freed.
    fn pop(&mut self) -> Option<(usize, P)> {
        let (unlinked, ..) = self.pieces.front()?;
        if *unlinked + GRACE > self.epoch {
            return None;
        }
        self.pieces.pop_front().map(|(_, bytes, piece)| (bytes, piece))
    }
}

impl<P: Piece> Garbage<P> {
    /// None. A stripe, of which there are sixteen, lets about `bytes_max` bytes wait before it
    /// looks which of them may be freed.
    pub fn new(bytes_max: usize) -> Self {
        let stripe = || Stripe {
            queue: Mutex::new(Queue { pieces: VecDeque::new(), grown: (0, 0), epoch: 0 }),
            bytes: AtomicUsize::new(0),
        };
        let process = Process::default();
        Self { stripes: std::array::from_fn(|_| stripe()), bytes_max, process }
    }

    /// The bytes that wait.
    pub fn bytes(&self) -> usize {
        self.stripes.iter().map(|stripe| stripe.bytes.load(Ordering::Relaxed)).sum()
    }

    /// Takes a piece of about `bytes` bytes that was unlinked. Frees others that have waited long
    /// enough; only queues the piece if this is called while the thread frees from the same garbage
    /// or in [`Garbage::hold_frees`].
    ///
    /// # Panics
    /// If a destructor does, after the others have run.
    ///
    /// # Safety
    /// No thread that is pinned from now on can reach the piece, and it is retired once.
    #[allow(unsafe_code, reason = "a promise that the epoch keeps")]
    pub unsafe fn retire(&self, guard: &Guard, piece: P, bytes: usize, context: &P::Context) {
        self.hold_frees(context, || self.queue(guard, piece, bytes));
    }

    /// Runs `act`, and only then frees what it would have freed by what it retires: no destructor
    /// runs in the midst of it.
    ///
    /// # Panics
    /// If a destructor does, after `act` and the others have run.
    pub fn hold_frees<R>(&self, context: &P::Context, act: impl FnOnce() -> R) -> R {
        let Some(turn) = Turn::begin(self.address(), 0) else { return act() };
        let result = act();
        if let State { stripe: Some(at), is_due, .. } = turn.state() {
            let stripe = &self.stripes[at];
            if is_due {
                self.is_at(stripe, epoch::try_advance());
            }
            self.free(turn, std::slice::from_ref(stripe), context);
        }
        result
    }

    fn queue(&self, guard: &Guard, piece: P, bytes: usize) {
        let first = guard.thread_index() % STRIPES;
        let found = (first..first + STRIPES).find_map(|index| {
            let at = index % STRIPES;
            self.lock(&self.stripes[at]).map(|queue| (at, queue))
        });
        let Some((at, mut queue)) = found else {
            // All of a child's stripes stay locked.
            std::mem::forget(piece);
            return;
        };
        self.stripes[at].bytes.fetch_add(bytes, Ordering::Relaxed);
        queue.pieces.push_back((epoch::current(), bytes, piece));
        queue.grown = (queue.grown.0 + 1, queue.grown.1 + bytes);
        let is_due = queue.grown.0 >= PIECES || queue.grown.1 >= self.bytes_max;
        drop(queue);
        Turn::owe(self.address(), SHARE * bytes.max(1), at, is_due);
    }

    /// Frees what may be freed; nothing if this is called while the thread frees from it.
    ///
    /// # Panics
    /// If a destructor does, after the others have run.
    pub fn collect(&self, context: &P::Context) {
        let Some(turn) = Turn::begin(self.address(), usize::MAX) else { return };
        for _ in 0..GRACE {
            epoch::try_advance();
        }
        let epoch = epoch::try_advance();
        self.stripes.iter().for_each(|stripe| self.is_at(stripe, epoch));
        self.free(turn, &self.stripes, context);
    }

    /// The queue of a stripe. In a forked child it waits for no other thread, and there is none
    /// while the queue is locked.
    fn lock<'s>(&self, stripe: &'s Stripe<P>) -> Option<MutexGuard<'s, Queue<P>>> {
        // Models have one process.
        #[cfg(not(any(loom, shuttle)))]
        if !self.process.is_here() {
            return stripe.queue.try_lock();
        }
        Some(stripe.queue.lock())
    }

    /// Takes note that the epoch is at least this.
    fn is_at(&self, stripe: &Stripe<P>, epoch: u64) {
        if let Some(mut queue) = self.lock(stripe) {
            (queue.epoch, queue.grown) = (epoch.max(queue.epoch), (0, 0));
        }
    }

    /// Frees what may be freed of some stripes until the thread owes nothing.
    fn free(&self, turn: Turn, stripes: &[Stripe<P>], context: &P::Context) {
        let mut panics = Panics::default();
        for stripe in stripes {
            while turn.state().owed > 0 {
                let popped = self.lock(stripe).and_then(|mut queue| queue.pop());
                let Some((bytes, piece)) = popped else { break };
                stripe.bytes.fetch_sub(bytes, Ordering::Relaxed);
                turn.pay(bytes.max(1));
                // SAFETY: it was unlinked in an epoch that has been left by every thread that was
                // pinned then (the epoch's second invariant), and it was in the queue once.
                #[allow(unsafe_code, reason = "the epoch says so")]
                panics.catch(|| unsafe { piece.free(context) });
            }
        }
        drop(turn);
        panics.resume();
    }

    /// Frees everything.
    ///
    /// # Panics
    /// If a destructor does, after the others have run.
    pub fn free_all(&mut self, context: &P::Context) {
        let mut panics = Panics::default();
        for stripe in &mut self.stripes {
            for (_, _, piece) in std::mem::take(&mut stripe.queue.get_mut().pieces) {
                // SAFETY: `&mut self` says that no thread is left that could use the map.
                #[allow(unsafe_code, reason = "nobody is left")]
                panics.catch(|| unsafe { piece.free(context) });
            }
        }
        panics.resume();
    }

    /// What tells it from others while it is borrowed.
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

primitive::local! {
    static TURNS: Turns = Turns([const { Cell::new(NO_TURN) }; NESTED_MAX]);
}

/// What a thread is freeing from, or will when it no longer holds frees.
struct Turns([Cell<State>; NESTED_MAX]);

#[derive(Clone, Copy)]
struct State {
    /// The garbage's address; zero if there is none.
    garbage: usize,
    /// The bytes that are to be freed still.
    owed: usize,
    /// The stripe that the thread retired to last.
    stripe: Option<usize>,
    /// True if that stripe has grown so much that the epoch is to be advanced.
    is_due: bool,
}

const NO_TURN: State = State { garbage: 0, owed: 0, stripe: None, is_due: false };

impl Turns {
    fn find(&self, garbage: usize) -> Option<usize> {
        self.0.iter().position(|turn| turn.get().garbage == garbage)
    }
}

/// The time in which a thread frees from one garbage: its place in [`Turns`].
struct Turn(usize);

impl Turn {
    /// Begins, unless the thread is freeing from this garbage already, or from too many.
    fn begin(garbage: usize, owed: usize) -> Option<Self> {
        let begin = |turns: &Turns| {
            let at = turns.find(garbage).is_none().then(|| turns.find(NO_TURN.garbage))??;
            turns.0[at].set(State { garbage, owed, ..NO_TURN });
            Some(Self(at))
        };
        // Only a model's thread can have lost it by now.
        TURNS.try_with(begin).ok().flatten()
    }

    /// Adds to what is to be freed, if the thread is freeing from this garbage.
    fn owe(garbage: usize, bytes: usize, stripe: usize, is_due: bool) {
        let _ = TURNS.try_with(|turns| {
            let Some(turn) = turns.find(garbage).map(|at| &turns.0[at]) else { return };
            let (owed, was_due) = (turn.get().owed, turn.get().is_due);
            let (owed, is_due) = (owed.saturating_add(bytes), was_due || is_due);
            turn.set(State { garbage, owed, stripe: Some(stripe), is_due });
        });
    }

    fn state(&self) -> State {
        TURNS.try_with(|turns| turns.0[self.0].get()).unwrap_or(NO_TURN)
    }

    /// Records that bytes are being freed.
    fn pay(&self, bytes: usize) {
        let state = self.state();
        let owed = state.owed.saturating_sub(bytes);
        let _ = TURNS.try_with(|turns| turns.0[self.0].set(State { owed, ..state }));
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let _ = TURNS.try_with(|turns| turns.0[self.0].set(NO_TURN));
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::{Arc, Weak};

    use super::*;

    /// What is dropped when it is freed.
    struct Counted(#[expect(dead_code, reason = "held, not read")] Arc<()>);

    impl Piece for Counted {
        type Context = ();

        /// # Safety
        /// As for every [`Piece`].
        #[allow(unsafe_code, reason = "drops what it holds")]
        unsafe fn free(self, (): &()) {}
    }

    /// Retires a piece, and returns what tells that it was freed.
    fn retire(garbage: &Garbage<Counted>) -> Weak<()> {
        let piece = Arc::new(());
        let freed = Arc::downgrade(&piece);
        // SAFETY: nothing else has the piece.
        #[allow(unsafe_code, reason = "nothing else has the piece")]
        unsafe {
            garbage.retire(&epoch::pin(), Counted(piece), 1, &());
        }
        freed
    }

    #[test]
    fn a_child_waits_for_no_stripe_that_was_locked_at_the_fork() {
        let garbage = Garbage { process: Process::other(), ..Garbage::new(1) };
        let before = retire(&garbage);
        let mine = epoch::pin().thread_index() % STRIPES;
        let locked = garbage.stripes[mine].queue.lock();
        let after = retire(&garbage);
        // Threads of other tests may be pinned for a moment.
        while after.strong_count() > 0 {
            garbage.collect(&());
            std::thread::yield_now();
        }
        assert_eq!(before.strong_count(), 1, "its stripe is locked");
        drop(locked);
        garbage.collect(&());
        assert_eq!(before.strong_count(), 0);

        let all: Vec<_> = garbage.stripes.iter().map(|stripe| stripe.queue.lock()).collect();
        assert_eq!(retire(&garbage).strong_count(), 1, "there is no room for it");
        drop(all);
    }
    /// Retires another of its kind when it is freed, this many times in a row, and counts how deep
    /// that goes.
    struct Chain {
        garbage: Weak<Garbage<Self>>,
        more: usize,
    }

    thread_local! {
        static DEPTH: Cell<usize> = const { Cell::new(0) };
        static DEEPEST: Cell<usize> = const { Cell::new(0) };
    }

    impl Piece for Chain {
        type Context = ();

        /// # Safety
        /// As for every [`Piece`].
        #[allow(unsafe_code, reason = "retires another one")]
        unsafe fn free(self, (): &()) {
            DEPTH.set(DEPTH.get() + 1);
            DEEPEST.set(DEEPEST.get().max(DEPTH.get()));
            if let (Some(more), Some(garbage)) = (self.more.checked_sub(1), self.garbage.upgrade())
            {
                garbage.collect(&());
                // SAFETY: nothing else has the piece.
                unsafe { garbage.retire(&epoch::pin(), Self { more, ..self }, 1, &()) };
            }
            DEPTH.set(DEPTH.get() - 1);
        }
    }

    #[test]
    fn destructors_that_retire_more_do_not_nest() {
        let garbage = Arc::new(Garbage::new(1));
        for _ in 0..1000 {
            let piece = Chain { garbage: Arc::downgrade(&garbage), more: 3 };
            // SAFETY: nothing else has the piece.
            #[allow(unsafe_code, reason = "nothing else has the piece")]
            unsafe {
                garbage.retire(&epoch::pin(), piece, 1, &());
            }
        }
        while garbage.bytes() > 0 {
            garbage.collect(&());
            std::thread::yield_now();
        }
        assert_eq!(DEEPEST.get(), 1);
    }

    /// A thread that retires one piece after the other frees what its destructors retire as well.
    #[test]
    fn what_destructors_retire_does_not_pile_up() {
        let garbage = Arc::new(Garbage::new(1));
        // Threads of other tests may be pinned for a while.
        let stays_small = (0..30).any(|_| {
            for _ in 0..10_000 {
                let piece = Chain { garbage: Arc::downgrade(&garbage), more: 6 };
                // SAFETY: nothing else has the piece.
                #[allow(unsafe_code, reason = "nothing else has the piece")]
                unsafe {
                    garbage.retire(&epoch::pin(), piece, 1, &());
                }
            }
            garbage.bytes() < 5_000
        });
        assert!(stays_small, "{} pieces", garbage.bytes());
    }

    #[test]
    fn no_destructor_runs_while_frees_are_held() {
        let garbage = Garbage::new(1);
        let before: Vec<_> = (0..100).map(|_| retire(&garbage)).collect();
        let is_freed = |piece: &Weak<()>| piece.strong_count() == 0;
        let freed = || before.iter().filter(|piece| is_freed(piece)).count();
        // Threads of other tests may be pinned for a while.
        while freed() == 0 {
            let seen = garbage.hold_frees(&(), || {
                let seen = freed();
                (0..100).for_each(|_| drop(retire(&garbage)));
                assert_eq!(freed(), seen);
                seen
            });
            assert!(freed() >= seen);
        }
    }

    /// Counts its end, and panics if it has an odd number.
    struct Panicking(Arc<AtomicUsize>, usize);

    impl Piece for Panicking {
        type Context = ();

        /// # Safety
        /// As for every [`Piece`].
        #[allow(unsafe_code, reason = "counts and panics")]
        unsafe fn free(self, (): &()) {
            self.0.fetch_add(1, Ordering::Relaxed);
            assert!(self.1.is_multiple_of(2), "piece {}", self.1);
        }
    }

    #[test]
    fn a_destructor_that_panics_keeps_no_other_from_running() {
        let message = |panic: Box<dyn std::any::Any + Send>| *panic.downcast::<String>().unwrap();
        let freed = Arc::new(AtomicUsize::new(0));
        let fill = |garbage: &Garbage<Panicking>| {
            let guard = epoch::pin();
            for i in 0..10 {
                let piece = Panicking(Arc::clone(&freed), i);
                // SAFETY: nothing else has the piece.
                #[allow(unsafe_code, reason = "nothing else has the piece")]
                unsafe {
                    garbage.retire(&guard, piece, 1, &());
                }
            }
        };
        let mut garbage = Garbage::new(1000);
        fill(&garbage);
        let panic = loop {
            let collect = std::panic::AssertUnwindSafe(|| garbage.collect(&()));
            match std::panic::catch_unwind(collect) {
                // Threads of other tests may be pinned for a moment.
                Ok(()) => std::thread::yield_now(),
                Err(panic) => break panic,
            }
        };
        assert_eq!(message(panic), "piece 1");
        assert_eq!(freed.load(Ordering::Relaxed), 10);
        assert_eq!(garbage.bytes(), 0);
        fill(&garbage);
        let free_all = std::panic::AssertUnwindSafe(|| garbage.free_all(&()));
        assert_eq!(message(std::panic::catch_unwind(free_all).unwrap_err()), "piece 1");
        assert_eq!(freed.load(Ordering::Relaxed), 20);
        garbage.free_all(&());
        assert_eq!(freed.load(Ordering::Relaxed), 20);
    }
}
