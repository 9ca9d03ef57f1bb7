//! The sixteen databases over one engine: which keyspaces a database has, collection numbers, the
//! time, and how durable a commit is.
//!
//! A database has three keyspaces: its keys, the members of its collections, and the work that is
//! left for later (times of expiry, collections to reclaim). Which number's keyspaces a database
//! has is a map that `SWAPDB` changes.

use std::{
    ops::Bound,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;
use rhumb::{Database, Error, Keyspace, KeyspaceOptions, PersistMode, Result};

use crate::{
    config::Fsync,
    count::Count,
    effort::beside_others,
    encode::{
        entry,
        format::{
            DATABASES, FORMAT_VERSION, SYSTEM_CLOCK, SYSTEM_KEYSPACE, SYSTEM_MAP, SYSTEM_NEXT_ID,
            SYSTEM_VERSION, WORK_EXPIRY, WORK_FIELDS,
        },
        member,
    },
    health::Health,
    key_event::EventClass,
    listeners::Listeners,
    locks::Locks,
    met::Met,
    ranks::Ranks,
    segments::Learned,
    swept::{Swept, SweptClock},
    waiters::Waiters,
    watch::{Interest, Watches},
};

/// Collection numbers that are reserved at a time. A crash loses at most this number of them.
const IDS_RESERVED: u64 = 1 << 16;

/// For how long the engine's clock is reserved at a time, in milliseconds: a second is one write of
/// a few bytes a second while keys end.
const CLOCK_RESERVED_MS: u64 = 1000;

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The keyspaces of one database.
pub(crate) struct Db {
    /// Entries by key.
    pub(crate) keys: Keyspace,
    /// Members of collections, by collection.
    pub(crate) members: Keyspace,
    /// Times of expiry and collections to reclaim.
    pub(crate) work: Keyspace,
    /// True if a collection may be among the keys. While it is false, a plain `SET` need not look
    /// at what it replaces.
    pub(crate) has_collections: AtomicBool,
    pub(crate) count: Count,
    pub(crate) swept: Swept,
    /// Where draws among all keys look.
    pub(crate) segments: Learned,
}

/// All databases, and what they share.
pub(crate) struct Databases {
    pub(crate) engine: Database,
    /// The clock of `engine`.
    clock: Arc<SweptClock>,
    /// The time that the clock may reach, as it is kept in `system`.
    reserved_clock_ms: Mutex<u64>,
    /// True if another program has moved the clock since a server had the data: marks may be lost.
    was_clock_moved: bool,
    opened: [OnceLock<Db>; DATABASES],
    opening: Mutex<()>,
    map: [AtomicU8; DATABASES],
    /// What the server keeps about the databases.
    pub(crate) system: Keyspace,
    next_id: AtomicU64,
    /// Numbers below this may be used.
    reserved_ids: Mutex<u64>,
    fsync: AtomicU8,
    /// True if something was committed since the last sync of each second.
    unsynced: AtomicBool,
    /// Keys that were removed because their time was over, by the sweeper or by a write.
    pub(crate) ended_keys: AtomicU64,
    /// Keys that readers find to have ended while the sweeper rests.
    pub(crate) met: Met,
    /// How many commands have written something since the data were copied last.
    pub(crate) changes: Arc<AtomicU64>,
    /// Batches that were submitted and are not finished.
    pub(crate) submitted: AtomicUsize,
    /// Commits under way that take long.
    pub(crate) large_commits: AtomicUsize,
    pub(crate) locks: Locks,
    pub(crate) watches: Watches,
    pub(crate) waiters: Waiters,
    /// Where the members of sorted sets lie in their orders.
    pub(crate) ranks: Ranks,
    /// What makes a writer say which keys it writes.
    pub(crate) interest: Interest,
    /// Clients that are sent messages.
    pub(crate) listeners: Listeners,
    /// The kinds of events that clients are told of: bits of [`EventClass`].
    events: AtomicU32,
    pub(crate) health: Arc<Health>,
}

fn damaged(what: &'static str) -> Error {
    Error::InvalidArgument(what.into())
}

/// The name of one of the keyspaces of a number.
pub(crate) fn keyspace_name(number: usize, part: &str) -> String {
    format!("db{number}.{part}")
}

impl Databases {
    /// Opens the databases that `engine` holds, which has this clock.
    ///
    /// # Errors
    ///
    /// From the engine, and if its server keyspace was written by a later version.
    pub(crate) fn open(
        engine: Database,
        clock: Arc<SweptClock>,
        fsync: Fsync,
        health: Arc<Health>,
    ) -> Result<Self> {
        let system = engine.keyspace(SYSTEM_KEYSPACE, KeyspaceOptions::default())?;
        match system.get(SYSTEM_VERSION)?.as_deref() {
            None => system.insert(SYSTEM_VERSION, [FORMAT_VERSION])?,
            Some([FORMAT_VERSION]) => {}
            Some(_) => {
                return Err(damaged("the data were written by another version of the server"));
            }
        }
        let map = [const { AtomicU8::new(0) }; DATABASES];
        let stored = system.get(SYSTEM_MAP)?;
        for (at, slot) in map.iter().enumerate() {
            let number = stored.as_ref().and_then(|map| map.get(at)).copied();
            let number = number.unwrap_or(at as u8);
            if usize::from(number) >= DATABASES {
                return Err(damaged("the map of databases is damaged"));
            }
            slot.store(number, Ordering::Relaxed);
        }
        let number = |key| -> Result<Option<u64>> {
            let Some(bytes) = system.get(key)? else { return Ok(None) };
            let bytes = (*bytes).try_into().map_err(|_| damaged("a number is damaged"))?;
            Ok(Some(u64::from_le_bytes(bytes)))
        };
        let next_id = number(SYSTEM_NEXT_ID)?.unwrap_or(1);
        let reserved_ms = number(SYSTEM_CLOCK)?.unwrap_or(0);
        // planted: ends-lost-marks
        let was_clock_moved = engine.expiry_ms() > reserved_ms;
        let interest = Interest::default();
        let databases = Self {
            engine,
            clock,
            reserved_clock_ms: Mutex::new(reserved_ms),
            was_clock_moved,
            opened: [const { OnceLock::new() }; DATABASES],
            opening: Mutex::default(),
            map,
            system,
            next_id: AtomicU64::new(next_id),
            reserved_ids: Mutex::new(next_id),
            fsync: AtomicU8::new(0),
            unsynced: AtomicBool::new(true),
            ended_keys: AtomicU64::new(0),
            met: Met::default(),
            changes: Arc::default(),
            submitted: AtomicUsize::new(0),
            large_commits: AtomicUsize::new(0),
            locks: Locks::default(),
            watches: Watches::new(interest.clone()),
            waiters: Waiters::new(interest.clone()),
            ranks: Ranks::default(),
            interest,
            listeners: Listeners::default(),
            events: AtomicU32::new(0),
            health,
        };
        databases.set_fsync(fsync);
        for number in 0..DATABASES {
            if databases.engine.has_keyspace(&keyspace_name(number, "keys")) {
                databases.numbered(number as u8)?;
            }
        }
        databases.numbered(databases.number(0))?;
        Ok(databases)
    }

    /// The number of the keyspaces that the database has at present.
    #[inline]
    pub(crate) fn number(&self, database: usize) -> u8 {
        self.map[database].load(Ordering::Acquire)
    }

    /// The database that has the keyspaces of this number: clients watch its keys. The caller
    /// holds a lock, so that no databases are exchanged.
    pub(crate) fn database_of(&self, number: u8) -> usize {
        (0..DATABASES).find(|at| self.number(*at) == number).unwrap_or_default()
    }

    /// The keyspaces of a number; made at their first use.
    ///
    /// # Errors
    ///
    /// From the engine.
    #[inline]
    pub(crate) fn numbered(&self, number: u8) -> Result<&Db> {
        match self.opened[usize::from(number)].get() {
            Some(db) => Ok(db),
            None => self.open_numbered(usize::from(number)),
        }
    }

    #[cold]
    fn open_numbered(&self, number: usize) -> Result<&Db> {
        let _one = self.opening.lock();
        if let Some(db) = self.opened[number].get() {
            return Ok(db);
        }
        let open = |part: &str| {
            self.engine.keyspace(&keyspace_name(number, part), KeyspaceOptions::default())
        };
        let (keys, members, work) = (open("keys")?, open("members")?, open("work")?);
        let has_collections = members.first_key_value()?.is_some();
        Ok(self.opened[number].get_or_init(|| Db {
            keys,
            members,
            work,
            has_collections: AtomicBool::new(has_collections),
            count: Count::default(),
            swept: Swept::new(self.engine.expiry_ms(), self.was_clock_moved),
            segments: Learned::default(),
        }))
    }

    /// The databases that were used since the data were made: their numbers and keyspaces.
    pub(crate) fn opened(&self) -> impl Iterator<Item = (u8, &Db)> {
        let numbered = self.opened.iter().enumerate();
        numbered.filter_map(|(number, db)| db.get().map(|db| (number as u8, db)))
    }

    /// Lets the engine drop the strings of whose end clients were told in all databases.
    ///
    /// # Errors
    ///
    /// From the engine; nothing is dropped then.
    pub(crate) fn drop_told(&self) -> Result<()> {
        // A database that is opened later begins where the clock is.
        let _none_is_opened = self.opening.lock();
        if self.opened().any(|(_, db)| db.swept.lacks_marks()) {
            return Ok(());
        }
        // planted: ends-clock
        let told_ms = self.opened().map(|(_, db)| db.swept.told_ms()).min().unwrap_or_default();
        if !self.clock.is_before(told_ms) {
            return Ok(());
        }
        // All are asked: the flags are taken.
        let moved = self.opened().filter(|(_, db)| db.swept.take_moved_marks()).count();
        if moved > 0 {
            // The engine keeps its clock. Marks that took the place of others, which vanish with
            // it, are not to be lost in a power cut.
            self.engine.persist(PersistMode::SyncData).inspect_err(|error| {
                self.opened().for_each(|(_, db)| db.swept.keep_moved_marks());
                self.health.sync_failed(error);
            })?;
        }
        self.reserve_clock(told_ms)?;
        self.clock.move_to(told_ms);
        Ok(())
    }

    /// Keeps where the engine's clock is, before the data are closed: what another program drops by
    /// a later time is noticed then.
    ///
    /// # Errors
    ///
    /// From the engine.
    pub(crate) fn keep_clock(&self) -> Result<()> {
        let mut reserved_ms = self.reserved_clock_ms.lock();
        let is_marked = self.opened().all(|(_, db)| !db.swept.lacks_marks());
        let clock_ms = self.engine.expiry_ms();
        if is_marked && *reserved_ms != clock_ms {
            self.write_clock(&mut reserved_ms, clock_ms)?;
        }
        Ok(())
    }

    /// Keeps that the engine's clock may reach this time.
    fn reserve_clock(&self, ms: u64) -> Result<()> {
        let mut reserved_ms = self.reserved_clock_ms.lock();
        if ms > *reserved_ms {
            self.write_clock(&mut reserved_ms, ms.saturating_add(CLOCK_RESERVED_MS))?;
        }
        Ok(())
    }

    fn write_clock(&self, reserved_ms: &mut u64, until_ms: u64) -> Result<()> {
        let written = self.system.insert(SYSTEM_CLOCK, until_ms.to_le_bytes());
        written.inspect_err(|error| self.health.write_failed(error))?;
        *reserved_ms = until_ms;
        Ok(())
    }

    /// A number for a new collection.
    ///
    /// # Errors
    ///
    /// From the engine, which keeps what is reserved.
    pub(crate) fn new_id(&self) -> Result<u64> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let mut reserved = self.reserved_ids.lock();
        if id >= *reserved {
            let until = id + IDS_RESERVED;
            let written = self.system.insert(SYSTEM_NEXT_ID, until.to_le_bytes());
            written.inspect_err(|error| self.health.write_failed(error))?;
            *reserved = until;
        }
        Ok(id)
    }

    /// Exchanges two databases. The caller holds all locks.
    ///
    /// # Errors
    ///
    /// From the engine; nothing is exchanged then.
    pub(crate) fn swap(&self, a: usize, b: usize) -> Result<()> {
        let mut map: [u8; DATABASES] = std::array::from_fn(|at| self.number(at));
        map.swap(a, b);
        let written = self.system.insert(SYSTEM_MAP, map);
        written.inspect_err(|error| self.health.write_failed(error))?;
        for (slot, number) in self.map.iter().zip(map) {
            slot.store(number, Ordering::Release);
        }
        Ok(())
    }

    /// Returns true if clients are told of events of this kind.
    #[inline]
    pub(crate) fn listens_to(&self, class: EventClass) -> bool {
        self.events.load(Ordering::Relaxed) & class.0 != 0
    }

    /// The kinds of events that clients are told of.
    pub(crate) fn events(&self) -> EventClass {
        EventClass(self.events.load(Ordering::Relaxed))
    }

    /// Changes the kinds of events that clients are told of.
    pub(crate) fn set_events(&self, events: EventClass) {
        self.events.store(events.0, Ordering::Relaxed);
    }

    /// Returns true if writes of a key are told of in their order, by events or to clients that
    /// track: they are committed under its locks then.
    #[inline]
    pub(crate) fn tells_of_writes(&self) -> bool {
        self.events.load(Ordering::Relaxed) != 0 || self.listeners.tracking.any()
    }

    /// When a write is forced to the disk.
    pub(crate) fn fsync(&self) -> Fsync {
        Fsync::from_byte(self.fsync.load(Ordering::Relaxed))
    }

    /// Changes when a write is forced to the disk.
    pub(crate) fn set_fsync(&self, fsync: Fsync) {
        self.fsync.store(fsync as u8, Ordering::Relaxed);
    }

    /// Says that something was committed: before it is acknowledged, so that the next sync of the
    /// second is of it.
    #[inline]
    pub(crate) fn note_commit(&self) {
        // Looked at first: writers on other cores share the line while it does not change.
        if !self.unsynced.load(Ordering::Relaxed) {
            self.unsynced.store(true, Ordering::Release);
        }
        self.health.wrote();
    }

    /// Says that a commit failed. Nothing of it is visible, but the databases' counts were changed
    /// before it: they are forgotten, and with them the ranks. After a failed sync its record may
    /// be in the log all the same, and is replayed when the data are opened again.
    pub(crate) fn note_failed_commit(&self, error: &Error) {
        self.forget_counts();
        self.ranks.forget_all();
        self.health.write_failed(error);
    }

    /// Tries whether writes work again, by writing what is there already.
    ///
    /// # Errors
    ///
    /// From the engine: they do not.
    pub(crate) fn try_write(&self) -> Result<()> {
        self.system.insert(SYSTEM_VERSION, [FORMAT_VERSION])?;
        self.note_commit();
        Ok(())
    }

    /// Forces to the disk what was committed since this was called last.
    ///
    /// # Errors
    ///
    /// From the engine; writes are stopped then.
    pub(crate) fn sync(&self) -> Result<()> {
        if self.unsynced.swap(false, Ordering::AcqRel) {
            let synced = self.engine.persist(PersistMode::SyncData);
            synced.inspect_err(|error| {
                // What was not synced still is not.
                self.unsynced.store(true, Ordering::Release);
                self.health.sync_failed(error);
            })?;
            self.health.synced();
        }
        Ok(())
    }

    /// Has the databases' counts begin again.
    fn forget_counts(&self) {
        self.opened().for_each(|(_, db)| db.count.forget());
    }

    /// Commits what other clients have submitted. To be called under the locks of the keys, before
    /// they are read for a write: what was submitted under these locks is to be seen.
    #[inline]
    pub(crate) fn commit_submitted(&self) {
        if self.submitted.load(Ordering::Relaxed) > 0 {
            self.committing(|| self.engine.commit_submitted());
        }
    }

    /// Commits something. While a large commit is under way, for which others wait, another thread
    /// serves the worker's other clients.
    #[inline]
    pub(crate) fn committing<T>(&self, commit: impl FnOnce() -> T) -> T {
        if self.large_commits.load(Ordering::Relaxed) == 0 {
            return commit();
        }
        beside_others(commit)
    }

    /// What a commit survives before it is acknowledged.
    #[inline]
    pub(crate) fn durability(&self) -> PersistMode {
        match self.fsync() {
            Fsync::Always => PersistMode::SyncData,
            Fsync::Everysec | Fsync::No => PersistMode::Buffer,
        }
    }
}

impl Db {
    /// Returns true if what is stored of a key has not ended at `now_ms`.
    pub(crate) fn is_live(&self, key: &[u8], entry: &[u8], now_ms: u64) -> bool {
        entry::is_live(entry, now_ms) && !self.swept.has_told(key, entry)
    }

    /// The marks of times that are over at `now`.
    pub(crate) fn due(&self, now: u64) -> rhumb::Iter {
        let end = Bound::Excluded(member::expiry(now + 1, &[]));
        self.work.range((Bound::Included(vec![WORK_EXPIRY]), end))
    }

    /// The marks of hashes of which a field may have ended at `now`.
    pub(crate) fn due_fields(&self, now: u64) -> rhumb::Iter {
        let end = Bound::Excluded(member::fields_due(now + 1, &[]));
        self.work.range((Bound::Included(vec![WORK_FIELDS]), end))
    }
}
