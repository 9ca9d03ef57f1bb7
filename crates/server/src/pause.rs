//! `CLIENT PAUSE`: until when which commands wait.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

/// How often a paused client looks whether the pause was taken back. Redis looks as often.
const LOOK: Duration = Duration::from_millis(100);

/// Which commands wait, and until when.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    /// True if some commands may have to wait.
    is_on: AtomicBool,
    /// The ends of the pause of all commands and of that of writes.
    ends: Mutex<[Option<Instant>; 2]>,
}

impl Pause {
    /// Returns true if some commands may have to wait.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Has commands wait for `time` from now on: those that write, or all. A pause that ends later
    /// is not shortened.
    pub(crate) fn begin(&self, time: Duration, all: bool) {
        let Some(end) = Instant::now().checked_add(time) else { return };
        let mut ends = self.ends.lock();
        let slot = &mut ends[usize::from(!all)];
        *slot = Some(slot.map_or(end, |before| before.max(end)));
        self.is_on.store(true, Ordering::Relaxed);
    }

    /// Ends all pauses.
    pub(crate) fn end(&self) {
        *self.ends.lock() = [None; 2];
        self.is_on.store(false, Ordering::Relaxed);
    }

    /// When a command is to look again whether it may run; none if it may run now.
    pub(crate) fn next_look(&self, writes: bool) -> Option<Instant> {
        let now = Instant::now();
        let mut ends = self.ends.lock();
        ends.iter_mut().for_each(|end| *end = end.filter(|end| *end > now));
        let [all, of_writes] = *ends;
        if all.is_none() && of_writes.is_none() {
            self.is_on.store(false, Ordering::Relaxed);
        }
        let end = all.max(of_writes.filter(|_| writes))?;
        Some(end.min(now + LOOK))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_wait_in_both_pauses_and_reads_in_one() {
        let pause = Pause::default();
        assert!(!pause.is_on() && pause.next_look(true).is_none());
        pause.begin(Duration::from_secs(60), false);
        assert!(
            pause.is_on() && pause.next_look(true).is_some() && pause.next_look(false).is_none()
        );
        pause.begin(Duration::from_secs(60), true);
        assert!(pause.next_look(false).is_some());
        pause.end();
        assert!(!pause.is_on() && pause.next_look(true).is_none());
        pause.begin(Duration::ZERO, true);
        assert!(pause.next_look(true).is_none() && !pause.is_on());
    }
}
