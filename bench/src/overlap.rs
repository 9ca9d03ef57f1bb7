//! The smallest executor that keeps many futures of one thread going: what an executor costs shall
//! not be taken for what a store costs.

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

/// Most futures that go on at a time.
pub const DEPTH_MAX: usize = 64;

/// Wakes the thread that polls.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for one future.
pub fn block_on<F: Future>(future: F) -> F::Output {
    thread_local! {
        static WAKER: Waker = Waker::from(Arc::new(Unpark(thread::current())));
    }
    let mut future = pin!(future);
    WAKER.with(|waker| {
        let mut context = Context::from_waker(waker);
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return output;
            }
            thread::park();
        }
    })
}

/// Which of the futures were woken, a bit each.
struct Board {
    woken: AtomicU64,
    thread: Thread,
}

/// Wakes one of the futures.
struct Bit(Arc<Board>, u64);

impl Wake for Bit {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // The call that raises the first flag wakes the thread; it takes all of them at once.
        if self.0.woken.fetch_or(self.1, Ordering::AcqRel) == 0 {
            self.0.thread.unpark();
        }
    }
}

/// Polls `futures` in this thread, `depth` of them (at most [`DEPTH_MAX`]) at a time, and tells
/// `on_output` the place and the output of each as it ends.
pub fn join<F: Future>(
    futures: impl Iterator<Item = F>,
    depth: usize,
    mut on_output: impl FnMut(usize, F::Output),
) {
    let depth = depth.clamp(1, DEPTH_MAX);
    let board = Arc::new(Board { woken: AtomicU64::new(0), thread: thread::current() });
    let wakers: Vec<Waker> =
        (0..depth).map(|i| Waker::from(Arc::new(Bit(Arc::clone(&board), 1 << i)))).collect();
    let mut waiting = futures.enumerate();
    let mut slots: Vec<Option<(usize, Pin<Box<F>>)>> = (0..depth).map(|_| None).collect();
    let mut running = 0;
    let mut turn = u64::MAX >> (DEPTH_MAX - depth);
    loop {
        while turn != 0 {
            let at = turn.trailing_zeros() as usize;
            turn &= turn - 1;
            loop {
                if slots[at].is_none() {
                    let Some((place, future)) = waiting.next() else { break };
                    slots[at] = Some((place, Box::pin(future)));
                    running += 1;
                }
                let Some((place, future)) = &mut slots[at] else { break };
                match future.as_mut().poll(&mut Context::from_waker(&wakers[at])) {
                    Poll::Pending => break,
                    Poll::Ready(output) => {
                        on_output(*place, output);
                        slots[at] = None;
                        running -= 1;
                    }
                }
            }
        }
        if running == 0 {
            return;
        }
        turn = board.woken.swap(0, Ordering::AcqRel);
        if turn == 0 {
            thread::park();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, future::poll_fn};

    use super::*;

    #[test]
    fn every_future_ends_and_no_more_than_the_depth_go_on() {
        let (going, most) = (Cell::new(0), Cell::new(0));
        let futures = (0..500_u32).map(|i| {
            let (going, most) = (&going, &most);
            let mut begun = false;
            poll_fn(move |cx| {
                if begun || i % 3 == 0 {
                    going.set(going.get() - u32::from(begun));
                    return Poll::Ready(i);
                }
                begun = true;
                going.set(going.get() + 1);
                most.set(most.get().max(going.get()));
                let waker = cx.waker().clone();
                drop(thread::spawn(move || waker.wake()));
                Poll::Pending
            })
        });
        let mut ended = vec![false; 500];
        join(futures, 7, |place, i| {
            assert_eq!(place, i as usize);
            assert!(!std::mem::replace(&mut ended[place], true));
        });
        assert!(ended.iter().all(|ended| *ended));
        assert!((2..=7).contains(&most.get()));
        assert_eq!(block_on(async { 7 }), 7);
    }
}
