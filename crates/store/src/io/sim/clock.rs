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
pub struct SimClock(Arc<Mutex<Times>>);

#[derive(Clone, Copy, Debug)]
struct Times {
    instant: Instant,
    wall_ms: u64,
}

/// The time of day at which a simulated clock starts: some day in 2026.
const WALL_MS: u64 = 1_790_000_000_000;

impl SimClock {
    /// A clock that starts at some instant.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Times { instant: Instant::now(), wall_ms: WALL_MS })))
    }

    /// Moves the time forward, and the time of day with it.
    pub fn advance(&self, duration: Duration) {
        let mut times = self.0.lock();
        times.instant += duration;
        times.wall_ms += u64::try_from(duration.as_millis()).unwrap_or(0);
    }

    /// Sets the time of day in milliseconds since the Unix epoch, as someone may do who sets the
    /// clock of a machine.
    pub fn set_wall_ms(&self, wall_ms: u64) {
        self.0.lock().wall_ms = wall_ms;
    }
}

impl Default for SimClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SimClock {
    fn now(&self) -> Instant {
        self.0.lock().instant
    }

    fn wall_ms(&self) -> u64 {
        self.0.lock().wall_ms
    }

    fn sleep(&self, duration: Duration) {
        self.advance(duration);
        // The thread that the sleeper waits for needs the processor.
        std::thread::yield_now();
    }
}
