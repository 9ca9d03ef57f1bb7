//! Ctrl-C and SIGTERM while a command works: the command ends at the next place where it can say
//! what it has done. A second signal ends the process at once.

use std::{
    io,
    process::exit,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    time::Duration,
};

use tokio::signal::unix::{SignalKind, signal};

use crate::failure::{Failure, INTERRUPTED, Outcome};

/// How often a command that waits for a call of the engine looks for a signal: often enough that
/// nobody waits for it to be seen.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Says whether a signal has come. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Waits for signals from now on, in a thread of its own.
    pub(crate) fn listen() -> Outcome<Self> {
        let interrupt = Self::default();
        let failed =
            |error: io::Error| Failure::failed(format!("cannot wait for signals: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        let runtime = runtime.map_err(failed)?;
        let entered = runtime.enter();
        let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
        let (mut interrupts, mut terminations) =
            (signals.0.map_err(failed)?, signals.1.map_err(failed)?);
        drop(entered);
        let told = interrupt.clone();
        let wait = move || {
            runtime.block_on(async {
                loop {
                    tokio::select! {
                        _ = interrupts.recv() => {}
                        _ = terminations.recv() => {}
                    }
                    if told.0.swap(true, Ordering::Relaxed) {
                        exit(INTERRUPTED.into());
                    }
                }
            });
        };
        let thread = std::thread::Builder::new().name("rhumb-signals".to_owned()).spawn(wait);
        thread.map_err(failed)?;
        Ok(interrupt)
    }

    /// Returns true once a signal has come. One relaxed load: cheap enough for every entry.
    pub(crate) fn has_come(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Does `work` in a thread of its own; none if a signal comes first. The work goes on then
    /// until the process ends, which is what the command does next.
    pub(crate) fn or<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Outcome<Option<T>> {
        let (done, outcome) = mpsc::channel();
        let thread = std::thread::Builder::new().name("rhumb-work".to_owned());
        let thread = thread.spawn(move || {
            // Nobody takes the outcome once a signal has come.
            let _ = done.send(work());
        });
        let thread =
            thread.map_err(|error| Failure::failed(format!("cannot start a thread: {error}")))?;
        loop {
            match outcome.recv_timeout(LOOK_EVERY) {
                Ok(outcome) => return Ok(Some(outcome)),
                Err(RecvTimeoutError::Timeout) if self.has_come() => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    if let Err(panic) = thread.join() {
                        std::panic::resume_unwind(panic);
                    }
                    return Ok(None);
                }
            }
        }
    }

    /// Does what a signal does.
    #[cfg(test)]
    pub(crate) fn come(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_ends_by_itself_or_by_a_signal() {
        let interrupt = Interrupt::default();
        assert_eq!(interrupt.or(|| 7).unwrap(), Some(7));
        let (end, wait) = mpsc::channel::<()>();
        interrupt.come();
        // It would never end.
        assert!(interrupt.or(move || wait.recv().is_ok()).unwrap().is_none());
        drop(end);
    }
}
