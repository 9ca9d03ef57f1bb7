//! Memory that is ready before it is needed: the first touch of a chunk has the system find and
//! clear it. That takes a fifth of a millisecond at best, and tens of milliseconds if the system
//! has to move other memory out of the way.
//!
//! One thread of the process does that, with low priority; it sleeps while no arena is about to
//! need a chunk. An arena asks for *spares* while it grows and takes those that are ready. If none
//! is, because that thread is late or could not be started, the arena maps a chunk itself. What is
//! not taken soon goes back.
//!
//! Thread safety: one lock for the spares of an arena, held while a chunk is added to the arena;
//! the arena's own lock is taken under it. Memory is touched under no lock of ours. It is touched
//! by writes rather than by asking the system for a range, which would hold up all other threads
//! that map memory meanwhile.

use super::{
    mapping::{Gauge, Mapping},
    primitive::{Arc, Mutex, MutexGuard},
};

/// An arena's chunks that are mapped and touched and hold nothing yet.
pub(crate) struct Spares {
    ready: Mutex<Ready>,
    /// Counts them, as it does the arena's chunks.
    gauge: Gauge,
}

#[derive(Default)]
pub(crate) struct Ready {
    pub(crate) chunks: Vec<Mapping>,
    /// The number that should be ready.
    pub(crate) wanted: usize,
    /// True if the thread was asked for them and has not handled that yet.
    is_asked: bool,
    /// Looks of the thread since the last one came or went.
    looks: usize,
}

impl Ready {
    /// A chunk, if one is ready.
    pub(crate) fn take(&mut self) -> Option<Mapping> {
        self.looks = 0;
        self.chunks.pop()
    }
}

impl Spares {
    /// No spares.
    pub(crate) fn new(gauge: Gauge) -> Self {
        Self { ready: Mutex::default(), gauge }
    }

    /// The gauge that counts the arena's memory.
    pub(crate) fn gauge(&self) -> &Gauge {
        &self.gauge
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Ready> {
        self.ready.lock()
    }

    /// The bytes of the chunks that are ready.
    pub(crate) fn bytes(&self) -> usize {
        self.lock().chunks.iter().map(Mapping::bytes).sum()
    }

    /// Asks for `wanted` chunks to be ready soon.
    pub(crate) fn ask(self: &Arc<Self>, wanted: usize) {
        {
            let mut ready = self.lock();
            ready.wanted = wanted;
            if ready.is_asked || ready.chunks.len() >= wanted {
                return;
            }
            ready.is_asked = true;
        }
        maker::ask(self);
    }
}

/// The thread that makes spares.
#[cfg(all(target_os = "linux", not(any(miri, sanitized, loom, shuttle))))]
mod maker {
    use std::{
        sync::{OnceLock, Weak},
        time::{Duration, Instant},
    };

    use rustix::process::setpriority_process;

    use super::{
        super::{
            arena::CHUNK_BYTES,
            mapping::Mapping,
            primitive::{Arc, Condvar, Mutex, global, thread},
            process::Process,
        },
        Ready, Spares,
    };

    /// The thread's priority: writers go first, because what is made here is needed only some
    /// milliseconds later.
    const NICENESS: i32 = 10;
    /// The time between two looks at the spares.
    const LOOK: Duration = Duration::from_millis(500);
    /// Spares go back when this many looks in a row have found that none came or went.
    const LOOKS: usize = 2;

    global! {
        static ASKED: Mutex<Vec<Weak<Spares>>> = Mutex::new(Vec::new());
        static WAKE: Condvar = Condvar::new();
    }

    /// Has spares made for an arena, once the thread gets to it.
    pub(crate) fn ask(spares: &Arc<Spares>) {
        static STARTED: OnceLock<Process> = OnceLock::new();
        let started = STARTED.get_or_init(|| {
            let thread = thread::Builder::new().name("rhumb-memory".to_owned());
            // Without that thread, arenas map what they need when they need it.
            drop(thread.spawn(run));
            Process::default()
        });
        if !started.is_here() {
            // A forked child has no such thread, and its parent's may hold the lock for ever.
            return;
        }
        ASKED.lock().push(Arc::downgrade(spares));
        WAKE.notify_one();
    }

    fn run() {
        // Of the calling thread. If that is refused, it has the priority of the thread that started
        // it.
        let _ = setpriority_process(None, NICENESS);
        let mut kept: Vec<Weak<Spares>> = Vec::new();
        let mut looked = Instant::now();
        loop {
            let asked = wait(!kept.is_empty());
            for spares in &asked {
                spares.upgrade().iter().for_each(|spares| spares.make());
                kept.retain(|other| !Weak::ptr_eq(other, spares));
            }
            kept.extend(asked);
            if looked.elapsed() >= LOOK {
                kept.retain(|spares| spares.upgrade().is_some_and(|spares| spares.look()));
                looked = Instant::now();
            }
        }
    }

    /// The arenas that asked. If there are spares to look after, this may return none after
    /// [`LOOK`].
    fn wait(has_kept: bool) -> Vec<Weak<Spares>> {
        let mut asked = ASKED.lock();
        while asked.is_empty() {
            if !has_kept {
                WAKE.wait(&mut asked);
            } else if WAKE.wait_for(&mut asked, LOOK).timed_out() {
                break;
            }
        }
        std::mem::take(&mut asked)
    }

    impl Spares {
        /// Makes spares until there are as many as are wanted.
        fn make(&self) {
            loop {
                {
                    let mut ready = self.lock();
                    if ready.chunks.len() >= ready.wanted {
                        ready.is_asked = false;
                        return;
                    }
                }
                let mut chunk = Mapping::new(CHUNK_BYTES, true, &self.gauge);
                chunk.touch();
                let mut ready = self.lock();
                ready.chunks.push(chunk);
                ready.looks = 0;
            }
        }

        /// Gives the spares back if none came or went for [`LOOKS`] looks. Returns true if any are
        /// left.
        fn look(&self) -> bool {
            let given = {
                let Ready { chunks, looks, .. } = &mut *self.lock();
                *looks += 1;
                if *looks < LOOKS { Vec::new() } else { std::mem::take(chunks) }
            };
            given.is_empty() && !self.lock().chunks.is_empty()
        }
    }
}

/// No such thread: each block is for a tool to look after, or the system is not known.
#[cfg(not(all(target_os = "linux", not(any(miri, sanitized, loom, shuttle)))))]
mod maker {
    use super::{super::primitive::Arc, Spares};

    pub(crate) fn ask(_spares: &Arc<Spares>) {}
}
