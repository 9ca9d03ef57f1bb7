//! How the server is: what fails at present, since when and why; counters and lines of the log for
//! each failure and its end.
//!
//! Rules: (1) writes fail from the first write that the disk refuses until the next one that it
//! takes; an idle server tries one every second meanwhile. (2) What a read met, damaged or
//! unreadable, stays until the file is gone or, where the disk refused the read, the place can be
//! read again. (3) While nothing fails, a write costs one look at a flag.

use std::{
    fs::File,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use parking_lot::Mutex;
use rhumb::Error;

use crate::log::{Event, Field, Log};

/// Places that reads met and that are remembered; more are only counted.
const PLACES_MAX: usize = 16;

/// Bytes that are read to find out if a place can be read again: a page, which is what a disk fails
/// to read at least.
const PROBE_BYTES: usize = 4 << 10;

/// Something that works or fails.
#[derive(Debug, Default)]
struct Failing {
    is_failing: AtomicBool,
    now: Mutex<Option<Failure>>,
    total: AtomicU64,
}

#[derive(Clone, Debug)]
struct Failure {
    since: Instant,
    times: u64,
    why: String,
}

impl Failing {
    fn fail(&self, why: String) {
        self.total.fetch_add(1, Ordering::Relaxed);
        let mut now = self.now.lock();
        let failure = now.get_or_insert_with(|| Failure {
            since: Instant::now(),
            times: 0,
            why: String::new(),
        });
        failure.times += 1;
        failure.why = why;
        self.is_failing.store(true, Ordering::Release);
    }

    /// Says that it works; returns the failure that has ended, if there was one.
    #[cold]
    fn work(&self) -> Option<Failure> {
        let mut now = self.now.lock();
        self.is_failing.store(false, Ordering::Release);
        now.take()
    }

    #[inline]
    fn is_failing(&self) -> bool {
        self.is_failing.load(Ordering::Relaxed)
    }

    fn why(&self) -> Option<String> {
        self.now.lock().as_ref().map(|failure| failure.why.clone())
    }
}

/// A place that a read met.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    path: PathBuf,
    offset: u64,
    /// Damaged, or else refused by the disk.
    is_damaged: bool,
    why: String,
}

impl Place {
    /// Returns true if the place is still as it was met.
    fn is_still_bad(&self, directory: &Path) -> bool {
        // The directory may have another name than when the file was opened.
        let again = self.path.file_name().map(|name| directory.join(name));
        let mut paths = [Some(&self.path), again.as_ref()].into_iter().flatten();
        let Some(path) = paths.find(|path| path.exists()) else { return false };
        self.is_damaged
            || File::open(path)
                .and_then(|file| file.read_at(&mut [0; PROBE_BYTES], self.offset))
                .is_err()
    }
}

/// The health of a server.
#[derive(Debug)]
pub(crate) struct Health {
    pub(crate) log: Arc<Log>,
    writes: Failing,
    syncs: Failing,
    background: Failing,
    places: Mutex<Vec<Place>>,
    /// The directory of the data, by device and inode, as it was looked at first.
    home: OnceLock<Option<(u64, u64)>>,
    damage_met: AtomicU64,
    failed_reads: AtomicU64,
}

/// The fields of a line about an error of the engine: the file and the offset, if it names them.
fn fields_of(error: &Error) -> Vec<Field<'static>> {
    let fields = |path: &Path, offset: Option<u64>| {
        let file = ("file", path.display().to_string().into());
        std::iter::once(file).chain(offset.map(|offset| ("offset", offset.into()))).collect()
    };
    match error {
        Error::Io(failure) => fields(&failure.path, failure.offset),
        Error::Corrupt(damage) => fields(&damage.path, Some(damage.offset)),
        Error::WritesStopped(cause) => fields_of(cause),
        _ => Vec::new(),
    }
}

/// Returns true if the disk or the engine failed, and not what was asked for.
fn is_of_disk(error: &Error) -> bool {
    matches!(error, Error::Io(_) | Error::Corrupt(_) | Error::WritesStopped(_) | Error::Internal(_))
}

impl Health {
    /// Nothing has failed.
    pub(crate) fn new(log: Arc<Log>) -> Self {
        Self {
            log,
            writes: Failing::default(),
            syncs: Failing::default(),
            background: Failing::default(),
            places: Mutex::default(),
            home: OnceLock::new(),
            damage_met: AtomicU64::new(0),
            failed_reads: AtomicU64::new(0),
        }
    }

    /// Says that a commit failed: nothing of it is visible.
    #[cold]
    pub(crate) fn write_failed(&self, error: &Error) {
        if is_of_disk(error) {
            self.writes.fail(error.to_string());
            if matches!(error, Error::Io(failure) if failure.operation.contains("sync")) {
                self.syncs.total.fetch_add(1, Ordering::Relaxed);
            }
            self.log.write(Event::WriteFailed, &error.to_string(), &fields_of(error));
        }
    }

    /// Says that a commit was done.
    #[inline]
    pub(crate) fn wrote(&self) {
        if self.writes.is_failing() {
            self.writes_work();
        }
    }

    #[cold]
    fn writes_work(&self) {
        if let Some(failure) = self.writes.work() {
            self.recovered(Event::WriteRecovered, "writes work again", &failure);
        }
    }

    fn recovered(&self, event: Event, what: &str, failure: &Failure) {
        let fields = [("failed", failure.times.into()), ("after", failure.since.elapsed().into())];
        self.log.write(event, what, &fields);
    }

    /// Says that a sync that nobody waited for failed.
    #[cold]
    pub(crate) fn sync_failed(&self, error: &Error) {
        let (before, why) = (self.syncs.why(), error.to_string());
        self.syncs.fail(why.clone());
        // It is tried every second: the log tells of it when there is something new.
        if before.as_ref() != Some(&why) {
            self.log.write(Event::SyncFailed, &why, &fields_of(error));
        }
    }

    /// Says that a sync was done.
    pub(crate) fn synced(&self) {
        if let Some(failure) = self.syncs.is_failing().then(|| self.syncs.work()).flatten() {
            self.recovered(Event::SyncRecovered, "syncs work again", &failure);
        }
    }

    /// Says what the engine says of its flushes and compactions. To be called every second.
    pub(crate) fn watch_background(&self, failure: Option<&str>) {
        match failure {
            None => {
                if let Some(failure) = self.background.work() {
                    let what = "flushes and compactions work again";
                    self.recovered(Event::BackgroundRecovered, what, &failure);
                }
            }
            Some(why) if self.background.why().as_deref() != Some(why) => {
                self.background.fail(why.to_owned());
                self.log.write(Event::BackgroundFailed, why, &[]);
            }
            Some(_) => {}
        }
    }

    /// Says what a command or the sweeper met: damage, or a read that the disk refused, is
    /// remembered. Failed writes are told by [`Health::write_failed`].
    #[cold]
    pub(crate) fn met(&self, error: &Error) {
        let place = match error {
            Error::Corrupt(damage) => Place {
                path: damage.path.clone(),
                offset: damage.offset,
                is_damaged: true,
                why: error.to_string(),
            },
            Error::Io(failure) if is_read(failure.operation) => Place {
                path: failure.path.clone(),
                offset: failure.offset.unwrap_or(0),
                is_damaged: false,
                why: error.to_string(),
            },
            _ => return,
        };
        let (counter, event) = if place.is_damaged {
            (&self.damage_met, Event::Damage)
        } else {
            (&self.failed_reads, Event::ReadFailed)
        };
        counter.fetch_add(1, Ordering::Relaxed);
        self.log.write(event, &place.why, &fields_of(error));
        self.remember(place);
    }

    /// Remembers damage that flushes and compactions met, of which no command knows. To be called
    /// every second.
    pub(crate) fn watch_damage(&self, damage: Option<&rhumb::Corruption>, directory: &Path) {
        let Some(damage) = damage else { return };
        let error = Error::Corrupt(Arc::new(damage.clone()));
        let place = Place {
            path: damage.path.clone(),
            offset: damage.offset,
            is_damaged: true,
            why: error.to_string(),
        };
        let is_bad = !self.is_home(directory) || place.is_still_bad(directory);
        if is_bad && self.remember(place) {
            self.log.write(Event::Damage, &error.to_string(), &fields_of(&error));
        }
    }

    /// Remembers a place; returns true if it is a new one.
    fn remember(&self, place: Place) -> bool {
        let mut places = self.places.lock();
        let is_new = places.len() < PLACES_MAX && !places.contains(&place);
        if is_new {
            places.push(place);
        }
        is_new
    }

    /// Returns true if the directory at this path is the one that was looked at first. One that was
    /// renamed is in use all the same, and what lies at its path, if anything, says nothing of it.
    fn is_home(&self, directory: &Path) -> bool {
        let found = directory.metadata().ok().map(|found| (found.dev(), found.ino()));
        found.is_some() && *self.home.get_or_init(|| found) == found
    }

    /// Forgets the places that are no longer bad. To be called every second.
    pub(crate) fn look_again(&self, directory: &Path) {
        if !self.is_home(directory) {
            return;
        }
        let places = self.places.lock().clone();
        for place in places.into_iter().filter(|place| !place.is_still_bad(directory)) {
            self.places.lock().retain(|other| *other != place);
            let fields = [
                ("file", place.path.display().to_string().into()),
                ("offset", place.offset.into()),
            ];
            let what = if place.is_damaged {
                "the damaged file is gone"
            } else {
                "the place can be read again, or its file is gone"
            };
            self.log.write(Event::DamageGone, what, &fields);
        }
    }

    /// Returns true if the last write failed.
    pub(crate) fn are_writes_failing(&self) -> bool {
        self.writes.is_failing()
    }

    /// Returns true if the last sync failed.
    pub(crate) fn are_syncs_failing(&self) -> bool {
        self.syncs.is_failing()
    }

    /// What is wrong at present, one text each; nothing if all is well. `stats` is what the engine
    /// says at this moment.
    pub(crate) fn reasons(&self, stats: &rhumb::Stats) -> Vec<String> {
        // Stopped by what no command was told of.
        let stopped = || stats.write_failure.clone().filter(|_| stats.writes_stopped);
        let told = |what: &str, why: Option<String>| why.map(|why| format!("{what}: {why}"));
        let mut reasons: Vec<String> = [
            told("writes fail", self.writes.why().or_else(stopped)),
            told("syncs fail", self.syncs.why()),
            told("flushes or compactions fail", stats.failure.clone()),
        ]
        .into_iter()
        .flatten()
        .collect();
        let of_place = |place: &Place| {
            let what = if place.is_damaged { "damage" } else { "reads fail" };
            format!("{what}: {}", place.why)
        };
        reasons.extend(self.places.lock().iter().map(of_place));
        reasons
    }

    pub(crate) fn failed_writes(&self) -> u64 {
        self.writes.total.load(Ordering::Relaxed)
    }

    pub(crate) fn failed_syncs(&self) -> u64 {
        self.syncs.total.load(Ordering::Relaxed)
    }

    pub(crate) fn failed_reads(&self) -> u64 {
        self.failed_reads.load(Ordering::Relaxed)
    }

    pub(crate) fn damage_met(&self) -> u64 {
        self.damage_met.load(Ordering::Relaxed)
    }
}

/// Returns true if the operation of a failure is one of reading.
fn is_read(operation: &str) -> bool {
    ["read", "read the length of", "open", "stat"].contains(&operation)
}

#[cfg(test)]
mod tests {
    use std::io;

    use rhumb::Stats;

    use super::*;

    fn health() -> Health {
        Health::new(Arc::new(Log::silent()))
    }

    fn full() -> Error {
        Error::io("write", "000001.log", io::ErrorKind::StorageFull.into())
    }

    #[test]
    fn writes_fail_until_one_is_done() {
        let health = health();
        health.wrote();
        assert!(health.reasons(&Stats::default()).is_empty());
        health.write_failed(&full());
        health.write_failed(&full());
        // What the client asked is at fault, not the disk.
        health.write_failed(&Error::InvalidArgument("too long".into()));
        assert!(health.are_writes_failing() && health.failed_writes() == 2);
        let reasons = health.reasons(&Stats::default());
        assert!(reasons.len() == 1 && reasons[0].starts_with("writes fail: cannot write"));
        health.wrote();
        assert!(!health.are_writes_failing() && health.reasons(&Stats::default()).is_empty());
        assert_eq!(health.failed_writes(), 2);
    }

    #[test]
    fn damage_stays_while_its_file_does() {
        let dir = tempfile::tempdir().unwrap();
        let health = health();
        let path = dir.path().join("000007.sst");
        std::fs::write(&path, "bytes").unwrap();
        let damage = Error::corrupt("elsewhere/000007.sst", 3, "a checksum", "another");
        health.met(&damage);
        health.met(&damage);
        health.look_again(dir.path());
        assert_eq!((health.damage_met(), health.reasons(&Stats::default()).len()), (2, 1));
        std::fs::remove_file(&path).unwrap();
        health.look_again(dir.path());
        assert_eq!((health.damage_met(), health.reasons(&Stats::default()).len()), (2, 0));
    }

    /// A directory that was renamed, or whose name another one has, says nothing of its files.
    #[test]
    fn damage_stays_where_the_directory_has_another_name() {
        let home = tempfile::tempdir().unwrap();
        let (data, moved) = (home.path().join("data"), home.path().join("moved"));
        std::fs::create_dir(&data).unwrap();
        std::fs::write(data.join("000007.sst"), "bytes").unwrap();
        let health = health();
        health.look_again(&data);
        health.met(&Error::corrupt(data.join("000007.sst"), 3, "a checksum", "another"));
        let look_again = || {
            health.look_again(&data);
            health.reasons(&Stats::default()).len()
        };
        std::fs::rename(&data, &moved).unwrap();
        assert_eq!(look_again(), 1);
        std::fs::create_dir(&data).unwrap();
        assert_eq!(look_again(), 1);
        std::fs::remove_dir(&data).unwrap();
        std::fs::rename(&moved, &data).unwrap();
        assert_eq!(look_again(), 1);
        std::fs::remove_file(data.join("000007.sst")).unwrap();
        assert_eq!(look_again(), 0);
    }

    #[test]
    fn refused_reads_stay_until_they_are_done() {
        let dir = tempfile::tempdir().unwrap();
        let health = health();
        // A directory cannot be read as a file is.
        let path = dir.path().join("000007.sst");
        std::fs::create_dir(&path).unwrap();
        health.met(&Error::io_at("read", &path, 4096, io::Error::other("I/O error")));
        // Writes are told of elsewhere.
        health.met(&full());
        health.look_again(dir.path());
        assert_eq!((health.failed_reads(), health.reasons(&Stats::default()).len()), (1, 1));
        std::fs::remove_dir(&path).unwrap();
        std::fs::write(&path, "bytes").unwrap();
        health.look_again(dir.path());
        assert!(health.reasons(&Stats::default()).is_empty());
    }

    #[test]
    fn the_background_is_watched() {
        let health = health();
        health.watch_background(Some("cannot write"));
        let failing = |failure: &str| {
            let mut stats = Stats::default();
            stats.failure = Some(failure.to_owned());
            stats
        };
        assert_eq!(health.reasons(&failing("cannot write")).len(), 1);
        health.watch_background(None);
        assert!(health.reasons(&Stats::default()).is_empty());
    }

    #[test]
    fn writes_that_the_engine_stopped_fail() {
        let mut stats = Stats::default();
        stats.write_failure = Some("a thread panicked".to_owned());
        stats.writes_stopped = true;
        assert_eq!(health().reasons(&stats), ["writes fail: a thread panicked"]);
    }

    #[test]
    fn damage_that_compactions_met_is_remembered_while_its_file_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let (health, path) = (health(), dir.path().join("000007.sst"));
        std::fs::write(&path, "bytes").unwrap();
        let Error::Corrupt(damage) = Error::corrupt(&path, 3, "a checksum", "another") else {
            panic!("it is damage");
        };
        for _ in 0..2 {
            health.watch_damage(Some(&damage), dir.path());
            assert_eq!(health.reasons(&Stats::default()).len(), 1);
        }
        std::fs::remove_file(&path).unwrap();
        health.look_again(dir.path());
        // The engine still says what it met last.
        health.watch_damage(Some(&damage), dir.path());
        assert!(health.reasons(&Stats::default()).is_empty());
    }
}
