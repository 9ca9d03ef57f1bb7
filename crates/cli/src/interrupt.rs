//! Ctrl-C and SIGTERM while a command works: the command ends at the next place where it can say
//! what it has done. A second signal ends the process at once.

use std::{
    io,
    process::exit,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::signal::unix::{SignalKind, signal};

use crate::failure::{Failure, INTERRUPTED, Outcome};

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

    /// Does what a signal does.
    #[cfg(test)]
    pub(crate) fn come(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
