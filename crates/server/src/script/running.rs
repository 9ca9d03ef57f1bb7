//! The scripts that run longer than a moment: what they are, and what ends them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use parking_lot::Mutex;

/// A script or a function that runs.
pub(crate) struct RunningScript {
    /// The function's name, or the script's SHA-1.
    pub(crate) name: String,
    /// The command that runs it; of a script none.
    pub(crate) words: Vec<Vec<u8>>,
    pub(crate) is_function: bool,
    pub(crate) began: Instant,
    killed: AtomicBool,
}

impl RunningScript {
    /// One that begins now.
    pub(crate) fn new(name: &str, words: Vec<Vec<u8>>, is_function: bool) -> Arc<Self> {
        Arc::new(Self {
            name: name.to_owned(),
            words,
            is_function,
            began: Instant::now(),
            killed: AtomicBool::new(false),
        })
    }

    /// Returns true if it is asked to end.
    pub(crate) fn is_killed(&self) -> bool {
        self.killed.load(Ordering::Relaxed)
    }
}

/// What became of the wish to end scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kill {
    /// They are asked to end.
    Asked,
    /// None runs.
    None,
    /// Those that run are of the other kind.
    Others,
}

/// All that run.
#[derive(Default)]
pub(super) struct AllRunning {
    scripts: Mutex<Vec<Arc<RunningScript>>>,
    /// How often one was asked to end.
    kills: AtomicU64,
}

impl AllRunning {
    pub(super) fn add(&self, script: Arc<RunningScript>) {
        self.scripts.lock().push(script);
    }

    /// How many run.
    pub(super) fn len(&self) -> usize {
        self.scripts.lock().len()
    }

    /// How often one was asked to end.
    pub(super) fn kills(&self) -> u64 {
        self.kills.load(Ordering::Relaxed)
    }

    pub(super) fn remove(&self, script: &Arc<RunningScript>) {
        self.scripts.lock().retain(|other| !Arc::ptr_eq(other, script));
    }

    /// Asks all functions, or all scripts, to end.
    pub(super) fn kill(&self, functions: bool) -> Kill {
        let all = self.scripts.lock();
        let mut killed = if all.is_empty() { Kill::None } else { Kill::Others };
        for script in all.iter().filter(|script| script.is_function == functions) {
            script.killed.store(true, Ordering::Relaxed);
            self.kills.fetch_add(1, Ordering::Relaxed);
            killed = Kill::Asked;
        }
        killed
    }

    /// The one that began first.
    pub(super) fn first(&self) -> Option<Arc<RunningScript>> {
        self.scripts.lock().first().cloned()
    }
}
