//! Copies of the data that clients ask for with `SAVE` and `BGSAVE`: points of a backup of the
//! engine, in a directory beside the data, the newest of which are kept. At most one is written at
//! a time.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;
use rhumb::{BackupInfo, Backups, Database};

use crate::{
    config::Config,
    log::{Event, Field, Log},
};

/// What was copied, and how that went.
#[derive(Debug)]
pub(crate) struct Saves {
    /// Where the backup is.
    directory: PathBuf,
    /// How many points are kept.
    kept: usize,
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

impl Saves {
    /// Copies of the data of these settings, to which these changes are made.
    pub(crate) fn new(config: &Config, changes: Arc<AtomicU64>) -> Self {
        Self {
            changes,
            directory: config.backups(),
            kept: config.keep_backups,
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
        let done = engine.backup(&self.directory);
        self.seconds.store(began.elapsed().as_secs() as i64, Relaxed);
        self.failed.store(done.is_err(), Relaxed);
        match &done {
            Ok(info) => {
                self.last.store(now(), Relaxed);
                self.changes.fetch_sub(changes, Relaxed);
                self.count.fetch_add(1, Relaxed);
                self.tell(info, began.elapsed(), log);
                self.remove_old(log);
            }
            Err(error) => {
                let fields = [self.directory_field(), ("error", error.to_string().into())];
                log.write(Event::SaveFailed, "a copy failed", &fields);
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

    fn directory_field(&self) -> Field<'static> {
        ("directory", self.directory.display().to_string().into())
    }

    /// Tells of a point that is there.
    fn tell(&self, info: &BackupInfo, took: Duration, log: &Log) {
        let fields = [
            self.directory_field(),
            ("point", info.number.into()),
            ("bytes", info.bytes.into()),
            ("copied_bytes", info.copied_bytes.into()),
            ("took", took.into()),
        ];
        log.write(Event::Saved, "the data are copied", &fields);
    }

    /// Removes the points that are no longer kept. The copy is there whether or not that succeeds.
    fn remove_old(&self, log: &Log) {
        let removed =
            Backups::open(&self.directory).and_then(|backups| backups.keep_newest(self.kept));
        if let Err(error) = removed {
            let fields = [self.directory_field(), ("error", error.to_string().into())];
            log.write(Event::PointsNotRemoved, "old copies cannot be removed", &fields);
        }
    }
}
