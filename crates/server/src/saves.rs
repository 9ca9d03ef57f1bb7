//! Copies of the data that clients ask for with `SAVE` and `BGSAVE`: a checkpoint of the engine in
//! a directory beside the data, which takes the place of the one before. At most one is written at
//! a time.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed},
    },
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;
use rhumb::Database;

use crate::log::{Event, Log};

/// What was copied, and how that went.
#[derive(Debug)]
pub(crate) struct Saves {
    /// Where the last copy is.
    directory: PathBuf,
    /// How many commands have written something since then.
    changes: Arc<AtomicU64>,
    /// Held by the one that copies.
    one: Mutex<()>,
    pub(crate) running: AtomicBool,
    /// The present copy was asked for as a rewrite of the log.
    rewrites: AtomicBool,
    /// Seconds since 1970 at the end of the last copy that succeeded, or at the start.
    pub(crate) last: AtomicU64,
    pub(crate) failed: AtomicBool,
    /// Seconds that the last copy took; -1 if there was none.
    pub(crate) seconds: AtomicI64,
    pub(crate) count: AtomicU64,
    /// The seconds since 1970 at which the present copy began.
    began: AtomicU64,
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// The directory of this name with another ending.
fn ending(directory: &Path, ending: &str) -> PathBuf {
    let mut name = directory.file_name().unwrap_or_default().to_owned();
    name.push(ending);
    directory.with_file_name(name)
}

/// Removes a directory, if it is there.
fn remove(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

impl Saves {
    /// Copies of the data in this directory, to which these changes are made.
    pub(crate) fn new(data: &Path, changes: Arc<AtomicU64>) -> Self {
        Self {
            changes,
            directory: ending(data, ".checkpoint"),
            one: Mutex::default(),
            running: AtomicBool::new(false),
            rewrites: AtomicBool::new(false),
            last: AtomicU64::new(now()),
            failed: AtomicBool::new(false),
            seconds: AtomicI64::new(-1),
            count: AtomicU64::new(0),
            began: AtomicU64::new(0),
        }
    }

    /// Seconds that the present copy has taken so far; -1 if there is none.
    pub(crate) fn running_seconds(&self) -> i64 {
        if !self.running.load(Relaxed) {
            return -1;
        }
        now().saturating_sub(self.began.load(Relaxed)) as i64
    }

    /// Returns true if the present copy was asked for as a rewrite of the log.
    pub(crate) fn is_rewriting(&self) -> bool {
        self.running.load(Relaxed) && self.rewrites.load(Relaxed)
    }

    /// Copies the data now. Returns false if another copy is being written, or if it failed, which
    /// is told in the log.
    pub(crate) fn save(&self, engine: &Database, log: &Log) -> bool {
        let Some(_one) = self.one.try_lock() else { return false };
        self.began.store(now(), Relaxed);
        self.running.store(true, Relaxed);
        let began = Instant::now();
        // Those that come while it is written count for the next one.
        let changes = self.changes.load(Relaxed);
        let done = self.copy(engine);
        self.seconds.store(began.elapsed().as_secs() as i64, Relaxed);
        self.failed.store(done.is_err(), Relaxed);
        match &done {
            Ok(()) => {
                self.last.store(now(), Relaxed);
                self.changes.fetch_sub(changes, Relaxed);
                self.count.fetch_add(1, Relaxed);
            }
            Err(error) => {
                log.write(Event::SaveFailed, "a copy failed", &[("error", error.clone().into())]);
            }
        }
        self.rewrites.store(false, Relaxed);
        self.running.store(false, Relaxed);
        done.is_ok()
    }

    /// Copies the data in a thread of its own, as a rewrite of the log if that was asked for.
    /// Returns false if another copy is being written, or if there is no thread.
    pub(crate) fn begin(
        saves: &Arc<Self>,
        engine: Database,
        log: Arc<Log>,
        rewrites: bool,
    ) -> bool {
        if saves.one.is_locked() || saves.running.swap(true, Relaxed) {
            return false;
        }
        saves.rewrites.store(rewrites, Relaxed);
        saves.began.store(now(), Relaxed);
        let own = Arc::clone(saves);
        let copy = move || {
            own.save(&engine, &log);
        };
        let started = std::thread::Builder::new().name("rhumb-save".to_owned()).spawn(copy);
        if started.is_err() {
            saves.running.store(false, Relaxed);
        }
        started.is_ok()
    }

    /// Writes a new copy, and puts it in the place of the one before.
    fn copy(&self, engine: &Database) -> Result<(), String> {
        let (new, old) = (ending(&self.directory, ".new"), ending(&self.directory, ".old"));
        let text = |error: io::Error| error.to_string();
        // What a crash may have left.
        remove(&new).and_then(|()| remove(&old)).map_err(text)?;
        engine.checkpoint(&new).map_err(|error| error.to_string())?;
        if self.directory.exists() {
            fs::rename(&self.directory, &old).map_err(text)?;
        }
        fs::rename(&new, &self.directory).and_then(|()| remove(&old)).map_err(text)
    }
}
