//! Panics of destructors: what else is to be dropped is dropped before the first one goes on.

use std::any::Any;

/// Runs things of which some may panic.
#[derive(Default)]
pub struct Panics(Option<Box<dyn Any + Send>>);

impl Panics {
    /// Runs `act`. If it panics, the caller goes on, and [`Panics::resume`] panics in its stead.
    /// What `act` leaves behind then must be sound to go on with.
    #[inline]
    pub fn catch(&mut self, act: impl FnOnce()) {
        // A model checker ends its threads by panics of its own.
        #[cfg(any(loom, shuttle))]
        act();
        #[cfg(not(any(loom, shuttle)))]
        if let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act)) {
            self.keep(panic);
        }
    }

    /// Goes on with the first panic if there was one, unless the thread is panicking already.
    #[inline]
    pub fn resume(self) {
        if let Some(panic) = self.0
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }

    /// Keeps the first; the hook has shown each.
    #[cfg(not(any(loom, shuttle)))]
    #[cold]
    fn keep(&mut self, panic: Box<dyn Any + Send>) {
        match self.0 {
            None => self.0 = Some(panic),
            // Its own drop might panic.
            Some(_) => std::mem::forget(panic),
        }
    }
}
