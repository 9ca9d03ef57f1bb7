//! Garbage: memory that was unlinked and waits until no thread can hold it.
//!
//! Thread safety: each stripe has a lock, which threads seldom share. Nothing is freed under a
//! lock, because freeing may run destructors of the caller's values. Garbage is freed by the
//! threads that make it, a little at a time, and the rest when the map is dropped.
//!
//! A forked child has no other thread of its parent, and so a stripe that one of them had locked at
//! the fork is never unlocked there. (What they had pinned is unpinned there: `epoch`.) The child therefore waits for no stripe: it passes those that
//! are locked, and what is in one that stays locked is not freed.

use std::collections::VecDeque;

use crate::{
    epoch::{self, GRACE, Guard},
    primitive::{AtomicUsize, Mutex, MutexGuard, Ordering, in_models},
    process::Process,
};

const STRIPES: usize = in_models(16, 2);
/// A stripe has the epoch advanced when it has grown by this many pieces. Advancing interrupts all
/// threads and takes longer than most replacements may, so it must be rare among them.
const PIECES: usize = in_models(128, 4);
/// A thread that retires a piece frees about this many times its bytes, if that much may be freed.
/// A leaf takes some microseconds, and no thread should wait for many of them.
const SHARE: usize = 2;

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
    /// enough.
    ///
    /// # Safety
    /// No thread that is pinned from now on can reach the piece, and it is retired once.
    #[allow(unsafe_code, reason = "a promise that the epoch keeps")]
    pub unsafe fn retire(&self, guard: &Guard, piece: P, bytes: usize, context: &P::Context) {
        let first = guard.thread_index() % STRIPES;
        let found = (first..first + STRIPES).find_map(|index| {
            let stripe = &self.stripes[index % STRIPES];
            self.lock(stripe).map(|queue| (stripe, queue))
        });
        let Some((stripe, mut queue)) = found else {
            // All of a child's stripes stay locked.
            std::mem::forget(piece);
            return;
        };
        stripe.bytes.fetch_add(bytes, Ordering::Relaxed);
        queue.pieces.push_back((epoch::current(), bytes, piece));
        queue.grown = (queue.grown.0 + 1, queue.grown.1 + bytes);
        let is_due = queue.grown.0 >= PIECES || queue.grown.1 >= self.bytes_max;
        drop(queue);
        if is_due {
            self.is_at(stripe, epoch::try_advance());
        }
        self.free(stripe, SHARE * bytes.max(1), context);
    }

    /// Frees what may be freed.
    pub fn collect(&self, context: &P::Context) {
        for _ in 0..GRACE {
            epoch::try_advance();
        }
        let epoch = epoch::try_advance();
        for stripe in &self.stripes {
            self.is_at(stripe, epoch);
            self.free(stripe, usize::MAX, context);
        }
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

    /// Frees what may be freed of a stripe until it has freed `most` bytes.
    fn free(&self, stripe: &Stripe<P>, most: usize, context: &P::Context) {
        let mut freed = 0;
        while freed < most {
            let popped = self.lock(stripe).and_then(|mut queue| queue.pop());
            let Some((bytes, piece)) = popped else { return };
            stripe.bytes.fetch_sub(bytes, Ordering::Relaxed);
            freed += bytes.max(1);
            // SAFETY: it was unlinked in an epoch that has been left by every thread that was
            // pinned then (the epoch's second invariant), and it was in the queue once.
            #[allow(unsafe_code, reason = "the epoch says so")]
            unsafe {
                piece.free(context);
            }
        }
    }

    /// Frees everything.
    pub fn free_all(&mut self, context: &P::Context) {
        for stripe in &mut self.stripes {
            for (_, _, piece) in std::mem::take(&mut stripe.queue.get_mut().pieces) {
                // SAFETY: `&mut self` says that no thread is left that could use the map.
                #[allow(unsafe_code, reason = "nobody is left")]
                unsafe {
                    piece.free(context);
                }
            }
        }
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
}
