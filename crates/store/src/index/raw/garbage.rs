//! What was unlinked and waits until no thread can hold it.
//!
//! Thread safety: each stripe has a lock, which threads seldom share. Nothing is freed under a lock,
//! because freeing may run destructors of the caller's values. Garbage is freed by the threads that
//! make it, a little at a time, and the rest when the map is dropped.

use std::collections::VecDeque;

use super::epoch::{self, GRACE, Guard};
use crate::sync::primitive::{AtomicUsize, Mutex, Ordering, in_models};

const STRIPES: usize = in_models(16, 2);
/// A stripe is looked through when it has grown by so many pieces,
const PIECES: usize = in_models(128, 4);
/// or by so many bytes.
const BYTES: usize = 256 << 10;

/// Something to free, and what it needs for that.
pub(crate) trait Piece: Send {
    type Context;

    /// Frees it.
    ///
    /// # Safety
    /// Nobody uses it again.
    #[allow(unsafe_code, reason = "a promise that the epoch keeps")]
    unsafe fn free(self, context: &Self::Context);
}

pub(crate) struct Garbage<P> {
    stripes: [Stripe<P>; STRIPES],
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
    /// How many pieces and bytes were left over the last time.
    left: (usize, usize),
}

impl<P: Piece> Garbage<P> {
    pub(crate) fn new() -> Self {
        let stripe = || Stripe {
            queue: Mutex::new(Queue { pieces: VecDeque::new(), left: (0, 0) }),
            bytes: AtomicUsize::new(0),
        };
        Self { stripes: std::array::from_fn(|_| stripe()) }
    }

    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.stripes.iter().map(|stripe| stripe.bytes.load(Ordering::Relaxed)).sum()
    }

    /// Takes a piece of some `bytes` that was unlinked; frees others that have waited long enough.
    ///
    /// # Safety
    /// No thread that is pinned from now on can reach the piece, and it is retired once.
    #[allow(unsafe_code, reason = "a promise that the epoch keeps")]
    pub(crate) unsafe fn retire(
        &self,
        guard: &Guard,
        piece: P,
        bytes: usize,
        context: &P::Context,
    ) {
        let stripe = &self.stripes[guard.thread_index() % STRIPES];
        let total = stripe.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let is_due = {
            let mut queue = stripe.queue.lock();
            queue.pieces.push_back((epoch::current(), bytes, piece));
            let (pieces, bytes) = queue.left;
            queue.pieces.len() >= pieces + PIECES || total >= bytes + BYTES
        };
        if is_due {
            stripe.collect(context);
        }
    }

    /// Frees what may be freed.
    pub(crate) fn collect(&self, context: &P::Context) {
        for _ in 0..GRACE {
            epoch::try_advance();
        }
        self.stripes.iter().for_each(|stripe| stripe.collect(context));
    }

    /// Frees everything.
    pub(crate) fn free_all(&mut self, context: &P::Context) {
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
    fn collect(&self, context: &P::Context) {
        let epoch = epoch::try_advance();
        let mut ripe = Vec::new();
        {
            let mut queue = self.queue.lock();
            let waiting = |(unlinked, _, _): &(u64, usize, P)| *unlinked + GRACE > epoch;
            let len = queue.pieces.iter().position(waiting).unwrap_or(queue.pieces.len());
            for (_, bytes, piece) in queue.pieces.drain(..len) {
                self.bytes.fetch_sub(bytes, Ordering::Relaxed);
                ripe.push(piece);
            }
            queue.left = (queue.pieces.len(), self.bytes.load(Ordering::Relaxed));
        }
        for piece in ripe {
            // SAFETY: it was unlinked in an epoch that has been left by every thread that was pinned
            // then (the epoch's second invariant), and it was in the queue once.
            #[allow(unsafe_code, reason = "the epoch says so")]
            unsafe {
                piece.free(context);
            }
        }
    }
}
