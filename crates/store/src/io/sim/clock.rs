//! A clock that moves only when told to, or when a thread sleeps on it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use rhumb_sync::primitive::Mutex;

use crate::io::Clock;

/// A simulated clock. Sleeping moves the time forward at once instead of waiting. Clones share
/// one time.
#[derive(Clone, Debug)]
pub struct SimClock(Arc<Mutex<Instant>>);

impl SimClock {
    /// A clock that starts at some instant.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    /// Moves the time forward.
    pub fn advance(&self, duration: Duration) {
        *self.0.lock() += duration;
    }
}

impl Default for SimClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SimClock {
    fn now(&self) -> Instant {
        *self.0.lock()
    }

    fn sleep(&self, duration: Duration) {
        self.advance(duration);
        // The thread that the sleeper waits for needs the processor.
        std::thread::yield_now();
    }
}
