//! Streams of changes: what a database commits, in order and with its sequence numbers.
//!
//! Writes are read from the log, changes of keyspaces as a whole from the manifest, which keeps the
//! newest of them; each has its sequence number, by which they are merged. The log names LSM trees;
//! their names are those of the present keyspaces, and those that the manifest's events state for
//! what was dropped since.
//!
//! Of the log only what is visible is yielded, so a record whose write fails is never seen: before
//! anything is read, the number of the last visible write is taken, and all up to it is final.
//!
//! `keep.rs` keeps the log for cursors, `apply.rs` is the other end of a stream.

mod apply;
mod commit;
mod cursor;
mod keep;
mod signal;

use std::{
    collections::HashMap,
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use rhumb_sync::primitive::{Arc, Ordering};

use self::commit::{Content, TreeName};
use super::{Database, Handle, core::Core};
use crate::{
    error::{Error, Result},
    log::{
        LogRecord, Lsn,
        batch::Batch,
        begin::{self, SegmentBegin},
        creation::Payload,
        follow::{Follower, Next},
        segment::segment_path,
    },
    types::{FileId, SeqNo, TreeId},
    version::edit::KeyspaceEvent,
};

pub use commit::{Commit, KeyspaceChange, Write, Writes};
pub use cursor::{Cursor, CursorInfo};
pub(super) use keep::Keeper;
pub(crate) use signal::Signal;

/// The time after which the files of a writer in another process are looked at again. Nothing tells
/// of a change of them; a look costs two system calls.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// How long a thread that has just had a commit leaves the writers alone before it asks to be woken
/// by the next one. A writer that had to wake it at each commit would be slowed by that: a wake
/// takes as long as a small commit.
const GATHERING: Duration = Duration::from_micros(200);

/// How a stream of changes is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangesOptions {
    /// True if only what survives a power cut is yielded. Otherwise everything is that was
    /// acknowledged, as durable as its writer has asked for: after a power cut, the database may be
    /// without writes that a stream has yielded, and use their sequence numbers again.
    pub durable: bool,
}

impl ChangesOptions {
    /// Sets [`ChangesOptions::durable`].
    #[must_use]
    pub fn durable(mut self, durable: bool) -> Self {
        self.durable = durable;
        self
    }
}

impl Database {
    /// What was and will be committed, in order, from the sequence number `from` on (1 or more).
    /// The log is read, so the stream can begin as early as the log reaches back: to the last
    /// flushes, or as far as a [cursor](Database::cursor) keeps it.
    /// `db.stats().sequence_number + 1` is the number of the next write.
    ///
    /// A database that is [open for reading only](crate::DatabaseBuilder::open_read_only) has the
    /// stream too: that of the process that writes beside it.
    ///
    /// ```
    /// # fn main() -> rhumb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// use rhumb::{Change, Database, KeyspaceOptions};
    ///
    /// let db = Database::open(dir.path().join("db"))?;
    /// let users = db.keyspace("users", KeyspaceOptions::default())?;
    /// let mut changes = db.changes(db.stats().sequence_number + 1)?;
    /// users.insert("ada", "1815")?;
    /// let commit = changes.try_next()?.unwrap();
    /// let write = commit.writes().next().unwrap();
    /// assert_eq!((write.keyspace, write.seq), ("users", commit.first_seq()));
    /// assert_eq!(write.change, Change::Insert { key: b"ada", value: b"1815" });
    /// assert!(changes.try_next()?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Lagged`] if the log does not reach back to `from`; [`Error::InvalidArgument`] if
    /// `from` is after the next write: then the database has lost writes that a stream has yielded,
    /// or is another one; [`Error::Corrupt`], [`Error::Io`].
    pub fn changes(&self, from: u64) -> Result<Changes> {
        self.changes_with(from, ChangesOptions::default())
    }

    /// As [`Database::changes`], with options.
    ///
    /// # Errors
    ///
    /// As [`Database::changes`].
    pub fn changes_with(&self, from: u64, options: ChangesOptions) -> Result<Changes> {
        Changes::new(Arc::clone(&self.handle), from.max(1), &options)
    }
}

/// A stream of the changes of a database; [`Database::changes`] returns it. It keeps the database
/// open.
pub struct Changes {
    handle: Arc<Handle>,
    /// The identity of the database.
    origin: u64,
    is_durable_only: bool,
    /// The sequence number of the next change.
    next: SeqNo,
    bound: Bound,
    follower: Option<Follower>,
    /// Reads ahead to learn what is durable, if another process writes.
    scout: Option<Follower>,
    /// The names of LSM trees.
    names: HashMap<TreeId, TreeName>,
    signal: Arc<Signal>,
    /// True if a commit was yielded since the thread last waited.
    is_moving: bool,
}

/// How far a stream may go for now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bound {
    /// The number of the last visible write.
    visible: SeqNo,
    /// Everything before this place of the log is durable.
    durable: Lsn,
    /// The segment that takes the records, in the process that writes.
    active: FileId,
}

impl Changes {
    fn new(handle: Arc<Handle>, from: SeqNo, options: &ChangesOptions) -> Result<Self> {
        handle.core.shared.check_process()?;
        let origin = handle.core.lock_catalog().state.identity;
        let mut changes = Self {
            handle,
            origin,
            is_durable_only: options.durable,
            next: from,
            bound: Bound::default(),
            follower: None,
            scout: None,
            names: HashMap::new(),
            signal: Arc::default(),
            is_moving: false,
        };
        changes.raise_bound()?;
        let visible = changes.bound.visible;
        if from > visible + 1 {
            let what = format!("changes from number {from} on, where the last write is {visible}");
            return Err(Error::InvalidArgument(what.into()));
        }
        changes.place()?;
        Ok(changes)
    }

    fn core(&self) -> &Arc<Core> {
        &self.handle.core
    }

    /// The sequence number of the next change: a stream from there on yields what this one does
    /// not.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.next
    }

    /// The next commit; `None` if there is none yet. Reads files, but waits for nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Lagged`] if it is not kept any more; [`Error::Corrupt`], [`Error::Io`]. The next
    /// call tries the same again.
    pub fn try_next(&mut self) -> Result<Option<Commit>> {
        self.core().shared.check_process()?;
        if let Some(commit) = self.next_within_bound()? {
            return Ok(Some(commit));
        }
        if self.raise_bound()? { self.next_within_bound() } else { Ok(None) }
    }

    /// The next commit, for which the thread waits for at most `timeout`; `None` if there is none
    /// by then. A commit of this process wakes the thread, but for those that come within 0.2 ms of
    /// one that was yielded, which are taken together; the files of another process are looked at
    /// every 5 ms.
    ///
    /// # Errors
    ///
    /// As [`Changes::try_next`].
    pub fn next_within(&mut self, timeout: Duration) -> Result<Option<Commit>> {
        let began = Instant::now();
        loop {
            if let Some(commit) = self.try_next()? {
                self.is_moving = true;
                return Ok(Some(commit));
            }
            let left = timeout.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            if self.core().shared.is_read_only {
                std::thread::sleep(left.min(LOOK_AGAIN));
                continue;
            }
            if std::mem::take(&mut self.is_moving) {
                std::thread::sleep(left.min(GATHERING));
                continue;
            }
            self.signal.lower(None);
            if self.register() {
                self.signal.wait(left);
            }
        }
    }

    /// The next commit, for tasks: as [`Changes::next_within`] without a limit. A poll reads files,
    /// and waits for nothing. The future may be dropped at any time, which loses nothing.
    ///
    /// # Errors
    ///
    /// Through the future, as [`Changes::try_next`]; [`Error::InvalidArgument`] if the database is
    /// open for reading only: nothing tells of what another process commits.
    pub fn next_async(&mut self) -> NextCommit<'_> {
        NextCommit(self)
    }

    /// Asks to be told of what comes. Returns false if there is something already.
    fn register(&self) -> bool {
        let (core, bound) = (self.core(), self.bound);
        let mut state = core.lock_write();
        let now = Bound {
            visible: core.writer.visible_seq(),
            durable: if self.is_durable_only { durable(core) } else { bound.durable },
            active: bound.active,
        };
        if now == bound && !state.waiting.iter().any(|it| Arc::ptr_eq(it, &self.signal)) {
            state.waiting.push(Arc::clone(&self.signal));
        }
        now == bound
    }

    /// Looks how far the database has come. Returns true if it has moved.
    fn raise_bound(&mut self) -> Result<bool> {
        let core = Arc::clone(self.core());
        if core.shared.is_read_only {
            core.catch_up()?;
        }
        let mut now = Bound { visible: core.writer.visible_seq(), ..self.bound };
        // Loaded after the number: it is at least the segment of that write.
        now.active = core.writer.active_segment.load(Ordering::Acquire);
        if self.is_durable_only {
            now.durable = match core.shared.is_read_only {
                true => self.durable_in_files()?.max(now.durable),
                false => durable(&core),
            };
        }
        if now == self.bound {
            return Ok(false);
        }
        let is_new_segment = core.shared.is_read_only || now.active != self.bound.active;
        self.bound = now;
        if let Some(follower) = &mut self.follower {
            follower.refresh()?;
            // planted: changes-void
            if is_new_segment {
                // A record whose write failed may be whole in the segment before.
                follower.look_for_cut()?;
            }
        }
        Ok(true)
    }

    /// The place up to which the log of another process is durable, as far as it says so.
    fn durable_in_files(&mut self) -> Result<Lsn> {
        // What is before the log's floor is in tables.
        let floor = self.core().lock_catalog().state.log_start().lsn;
        let Some(scout) = &mut self.scout else { return Ok(floor) };
        loop {
            match scout.read()? {
                Next::Record(_) => {}
                Next::Nothing | Next::Lagged => return Ok(scout.claimed().max(floor)),
                Next::Undone => {
                    (self.follower, self.scout) = (None, None);
                    return Ok(0);
                }
            }
        }
    }

    /// The next commit of those that the bound allows.
    fn next_within_bound(&mut self) -> Result<Option<Commit>> {
        while self.next <= self.bound.visible {
            self.place()?;
            let event = self.event()?;
            let Some(follower) = &mut self.follower else { return Ok(None) };
            match follower.read()? {
                Next::Record(record) => {
                    let Some(first) = self.first_of(&record)? else { continue };
                    let is_later = event.as_ref().is_some_and(|event| event.seq < first);
                    if is_later || first > self.bound.visible || self.must_wait(&record) {
                        self.unread();
                        return Ok(event.filter(|_| is_later).map(|event| self.take_event(event)));
                    }
                    return self.take_record(record).map(Some);
                }
                Next::Nothing => return Ok(event.map(|event| self.take_event(event))),
                Next::Lagged => self.cross_gap()?,
                Next::Undone => (self.follower, self.scout) = (None, None),
            }
        }
        Ok(None)
    }

    /// Has the last record of the log read again.
    fn unread(&mut self) {
        if let Some(follower) = &mut self.follower {
            follower.unread();
        }
    }

    /// The sequence number of the first write of a record; `None` if the record holds none, or none
    /// that is not yielded already.
    fn first_of(&self, record: &LogRecord) -> Result<Option<SeqNo>> {
        match Payload::decode(&record.payload) {
            Ok(Payload::Creations(_)) => Ok(None),
            Ok(Payload::Batch(batch)) => {
                let end = batch.first_seq() + SeqNo::from(batch.count());
                Ok((end > self.next).then_some(batch.first_seq()))
            }
            Err(fault) => {
                let path = segment_path(&self.core().shared.dir, record.segment);
                let at = format!("{} in the record at place {}", fault.expected, record.lsn);
                Err(Error::corrupt(path, 0, at, "something else"))
            }
        }
    }

    /// Returns true if a record is not durable and has to be.
    fn must_wait(&self, record: &LogRecord) -> bool {
        // planted: changes-durable
        self.is_durable_only && record.end() > self.bound.durable
    }

    /// Makes a commit of a record.
    fn take_record(&mut self, record: LogRecord) -> Result<Commit> {
        let batch = Batch::built(&record.payload);
        let first_seq = batch.first_seq();
        let last_seq = first_seq + SeqNo::from(batch.count()) - 1;
        let mut names = HashMap::new();
        let mut is_fresh = false;
        for op in batch.ops() {
            if names.contains_key(&op.tree) {
                continue;
            }
            if !is_fresh && !self.names.contains_key(&op.tree) {
                self.names = self.names_now()?;
                is_fresh = true;
            }
            // A write into a keyspace that was dropped before has no name.
            if let Some(name) = self.names.get(&op.tree) {
                names.insert(op.tree, name.clone());
            }
        }
        let content = Content::Writes { payload: Arc::new(record.payload), names };
        Ok(self.commit(first_seq, last_seq, content))
    }

    fn take_event(&mut self, event: Arc<KeyspaceEvent>) -> Commit {
        // Writes into what was dropped have no effect from here on.
        // planted: changes-names-kept
        self.names.clear();
        self.commit(event.seq, event.seq, Content::Event(event))
    }

    fn commit(&mut self, first_seq: SeqNo, last_seq: SeqNo, content: Content) -> Commit {
        // A stream may begin within a batch, which it yields as a whole.
        let after = self.next.min(first_seq);
        self.next = last_seq + 1;
        Commit { origin: self.origin, after, first_seq, last_seq, content }
    }

    /// The next event that the bound allows.
    fn event(&self) -> Result<Option<Arc<KeyspaceEvent>>> {
        if self.core().shared.last_event.load(Ordering::Acquire) < self.next {
            return Ok(None);
        }
        let catalog = self.core().lock_catalog();
        if catalog.state.history_from > self.next {
            let oldest = catalog.state.history_from;
            return Err(Error::Lagged { wanted: self.next, oldest });
        }
        let event = catalog.state.event_from(self.next).cloned();
        Ok(event.filter(|event| event.seq <= self.bound.visible))
    }

    /// The names of all LSM trees that there are, or were at the next change and later.
    fn names_now(&self) -> Result<HashMap<TreeId, TreeName>> {
        let catalog = self.core().lock_catalog();
        if catalog.state.history_from > self.next {
            let oldest = catalog.state.history_from;
            return Err(Error::Lagged { wanted: self.next, oldest });
        }
        let mut names = HashMap::new();
        for inner in catalog.keyspaces.values() {
            for tree in inner.tree.get().with_partitions() {
                let (keyspace, partition) = (Arc::clone(&inner.name), Arc::from(&*tree.name));
                names.insert(tree.id, TreeName { keyspace, partition });
            }
        }
        for event in catalog.state.events_from(self.next) {
            let keyspace: Arc<str> = event.keyspace.as_str().into();
            // planted: changes-gone-named
            for (tree, name) in &event.gone {
                let (keyspace, partition) = (Arc::clone(&keyspace), Arc::from(&**name));
                names.insert(*tree, TreeName { keyspace, partition });
            }
        }
        Ok(names)
    }

    /// Finds the place in the log of the next change, unless it is known.
    fn place(&mut self) -> Result<()> {
        if self.follower.is_some() {
            return Ok(());
        }
        let core = Arc::clone(self.core());
        let (shared, identity) = (&core.shared, self.origin);
        let segments = begin::segments(&shared.fs, &shared.dir, identity)?;
        let first = segments.iter().find_map(|segment| segment.first_seq);
        let oldest = core.oldest_change(first.unwrap_or(self.bound.visible + 1));
        if self.next < oldest {
            return Err(Error::Lagged { wanted: self.next, oldest });
        }
        match begin::position(&segments, self.next) {
            None => Ok(()),
            Some(at) => self.follow_from(&segments[at]),
        }
    }

    /// Goes on where the log goes on after a gap, if nothing is missing for this stream: a power
    /// cut may have taken the end of a segment whose writes were in tables.
    fn cross_gap(&mut self) -> Result<()> {
        let (core, at) = (Arc::clone(self.core()), self.follower.as_ref().map(Follower::segment));
        let segments = begin::segments(&core.shared.fs, &core.shared.dir, self.origin)?;
        let later = segments.iter().filter(|segment| Some(segment.id) > at);
        let first = later.clone().find_map(|segment| segment.first_seq);
        let oldest = core.oldest_change(first.unwrap_or(self.bound.visible + 1));
        match later.min_by_key(|segment| segment.id) {
            Some(next) if oldest <= self.next => self.follow_from(next),
            _ => Err(Error::Lagged { wanted: self.next, oldest: oldest.max(self.next + 1) }),
        }
    }

    /// Follows the log from a segment on.
    fn follow_from(&mut self, segment: &SegmentBegin) -> Result<()> {
        let shared = &self.core().shared;
        let follow = || {
            let start = segment.log_start();
            let mut follower = Follower::new(&shared.fs, &shared.dir, self.origin, start);
            follower.begin().map(|()| follower)
        };
        let follower = follow()?;
        if self.is_durable_only && shared.is_read_only {
            self.scout = Some(follow()?);
            self.bound.durable = self.durable_in_files()?.max(self.bound.durable);
        }
        self.follower = Some(follower);
        Ok(())
    }
}

/// The place up to which the log of this process is durable.
fn durable(core: &Core) -> Lsn {
    core.writer.durable_lsn.load(Ordering::Acquire)
}

impl Core {
    /// The smallest number from which on nothing is missing, where the log begins with `first`:
    /// before it there may be events.
    fn oldest_change(&self, first: SeqNo) -> SeqNo {
        let catalog = self.lock_catalog();
        let (state, mut oldest) = (&catalog.state, first);
        while oldest > 1 && state.event_from(oldest - 1).is_some_and(|it| it.seq == oldest - 1) {
            oldest -= 1;
        }
        oldest.max(state.history_from)
    }
}

/// The next commit of a stream; [`Changes::next_async`] returns it.
#[must_use = "futures do nothing unless polled"]
pub struct NextCommit<'c>(&'c mut Changes);

impl Future for NextCommit<'_> {
    type Output = Result<Commit>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Commit>> {
        let changes = &mut *self.0;
        let core = Arc::clone(changes.core());
        if core.shared.is_read_only {
            let what = "changes of another process cannot be awaited: use `next_within`";
            return Poll::Ready(Err(Error::InvalidArgument(what.into())));
        }
        loop {
            match changes.try_next() {
                Ok(Some(commit)) => return Poll::Ready(Ok(commit)),
                Err(error) => return Poll::Ready(Err(error)),
                Ok(None) => {}
            }
            core.start_committer();
            changes.signal.lower(Some(cx.waker().clone()));
            if changes.register() {
                return Poll::Pending;
            }
        }
    }
}

impl fmt::Debug for NextCommit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NextCommit").finish_non_exhaustive()
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes")
            .field("next", &self.next)
            .field("bound", &self.bound)
            .finish_non_exhaustive()
    }
}
