//! What was unlinked and waits until no thread can hold it.
//!
//! Thread safety: each stripe has a lock, which threads seldom share. Nothing is freed under a lock,
//! because freeing may run destructors of the caller's values. Garbage is freed by the threads that
//! make it, a little at a time, and the rest when the map is dropped.

use std::collections::VecDeque;

use crate::{
    epoch::{self, GRACE, Guard},
    primitive::{AtomicUsize, Mutex, Ordering, in_models},
};

const STRIPES: usize = in_models(16, 2);
/// A stripe has the epoch advanced when it has grown by this many pieces. Advancing interrupts all
/// threads, so that it must be rare.
const PIECES: usize = in_models(128, 4);
/// Who retires a piece frees about so many times its bytes, if as much may be freed: a leaf takes some
/// microseconds, and nobody is to wait for many of them.
const SHARE: usize = 2;

/// Something to free, and what it needs for that.
pub trait Piece: Send {
    /// What freeing it needs.
    type Context;

    /// Frees it.
    ///
    /// # Safety
    /// Nobody uses it again.
    #[allow(unsafe_code, reason = "a promise that the epoch keeps")]
    unsafe fn free(self, context: &Self::Context);
}

/// Pieces that were unlinked, of one map or of many cells.
pub struct Garbage<P> {
    stripes: [Stripe<P>; STRIPES],
    /// A stripe has the epoch advanced also when it has grown by this number of bytes.
    bytes_max: usize,
}

#[repr(align(128))]
struct Stripe<P> {
    queue: Mutex<Queue<P>>,
    /// Bytes of the queue.
    bytes: AtomicUsize,
}

struct Queue<P> {
    /// With the epoch after which it was unlinked and its size, in order.
    pieces: VecDeque<(u64, usize, P)>,
    /// How many pieces and bytes came since the epoch was advanced.
    grown: (usize, usize),
    /// The epoch as it was then.
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
    /// None. A stripe, of which there are sixteen, lets about `bytes_max` bytes wait before it looks which
    /// of them may be freed.
    pub fn new(bytes_max: usize) -> Self {
        let stripe = || Stripe {
            queue: Mutex::new(Queue { pieces: VecDeque::new(), grown: (0, 0), epoch: 0 }),
            bytes: AtomicUsize::new(0),
        };
        Self { stripes: std::array::from_fn(|_| stripe()), bytes_max }
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.stripes.iter().map(|stripe| stripe.bytes.load(Ordering::Relaxed)).sum()
    }

    /// Takes a piece of some `bytes` that was unlinked; frees others that have waited long enough.
    ///
    /// # Safety
    /// No thread that is pinned from now on can reach the piece, and it is retired once.
    #[allow(unsafe_code, reason = "a promise that the epoch keeps")]
    pub unsafe fn retire(&self, guard: &Guard, piece: P, bytes: usize, context: &P::Context) {
        let stripe = &self.stripes[guard.thread_index() % STRIPES];
        stripe.bytes.fetch_add(bytes, Ordering::Relaxed);
        let is_due = {
            let mut queue = stripe.queue.lock();
            queue.pieces.push_back((epoch::current(), bytes, piece));
            queue.grown = (queue.grown.0 + 1, queue.grown.1 + bytes);
            queue.grown.0 >= PIECES || queue.grown.1 >= self.bytes_max
        };
        if is_due {
            stripe.advance();
        }
        stripe.free(SHARE * bytes.max(1), context);
    }

    /// Frees what may be freed.
    pub fn collect(&self, context: &P::Context) {
        for _ in 0..GRACE {
            epoch::try_advance();
        }
        let epoch = epoch::try_advance();
        for stripe in &self.stripes {
            stripe.is_at(epoch);
            stripe.free(usize::MAX, context);
        }
    }

    /// Frees everything.
    pub fn free_all(&mut self, context: &P::Context) {
        for stripe in &mut self.stripes {
            for (_, _, piece) in std::mem::take(&mut stripe.queue.get_mut().pieces) {
                // SAFETY: `&mut self` says that nobody is left who could use the map.
                #[allow(unsafe_code, reason = "nobody is left")]
                unsafe {
                    piece.free(context);
                }
            }
        }
    }
}

impl<P: Piece> Stripe<P> {
    /// Lets more be freed.
    fn advance(&self) {
        self.is_at(epoch::try_advance());
    }

    /// Takes note that the epoch is at least this.
    fn is_at(&self, epoch: u64) {
        let mut queue = self.queue.lock();
        (queue.epoch, queue.grown) = (epoch.max(queue.epoch), (0, 0));
    }

    /// Frees what may be freed until that were `most` bytes.
    fn free(&self, most: usize, context: &P::Context) {
        let mut freed = 0;
        while freed < most {
            let Some((bytes, piece)) = self.queue.lock().pop() else { return };
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            freed += bytes.max(1);
            // SAFETY: it was unlinked in an epoch that has been left by every thread that was pinned
            // then (the epoch's second invariant), and it was in the queue once.
            #[allow(unsafe_code, reason = "the epoch says so")]
            unsafe {
                piece.free(context);
            }
        }
    }
}
