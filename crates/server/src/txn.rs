//! What one command, or one `EXEC`, reads and writes: the engine as it is, under the writes that
//! are pending, which are committed together or not at all.
//!
//! The caller holds the locks of the keys. A command that fails has written nothing here: it checks
//! before it writes.

mod scan;
mod streams;
mod undo;
mod visit;

use std::{
    cell::{RefCell, RefMut},
    collections::BTreeMap,
    ops::Bound,
    sync::atomic::Ordering,
};

use rhumb::{Batch, Error, Keyspace, Result, Slice, Snapshot};

use crate::{
    db::{Databases, Db},
    effort,
    encode::{Edited, Entry, Kind, Meta, entry, format::MARK_VANISHES, member},
    key_event::{EventClass, KeyEvent},
    listeners::{Changed, Topic},
    ranks::Overlays,
};

use self::scan::Directed;
pub(crate) use self::scan::Scan;

/// One of a database's keyspaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    Keys,
    Members,
    Work,
}

impl Space {
    /// The keyspace of a database.
    pub(crate) fn of(self, db: &Db) -> &Keyspace {
        match self {
            Self::Keys => &db.keys,
            Self::Members => &db.members,
            Self::Work => &db.work,
        }
    }
}

/// The longest string that is read from a file while a worker's other clients wait, in bytes: that
/// takes some hundred microseconds.
const BRIEF_BYTES_MAX: u64 = 512 << 10;

/// Writes to one keyspace, by key; `None` removes the key.
pub(crate) type Writes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// One end of a range of keys.
pub(crate) type KeyBound = Bound<Vec<u8>>;

/// What clients that listen are told of, once it is committed.
pub(crate) enum Told {
    /// What happened to a key: the number of its keyspaces, the event and the key.
    Event(u8, KeyEvent, Vec<u8>),
    /// What a client has published to a channel.
    Message(Topic, Vec<u8>, Vec<u8>),
}

/// What is to be committed: the writes to each keyspace, and the written keys that clients watch.
#[derive(Default)]
pub(crate) struct Pending {
    pub(crate) writes: Vec<(u8, Space, Writes)>,
    pub(crate) touched: Vec<Changed>,
    /// Ranges of members that are removed before `writes` are written, with their databases'
    /// numbers: see [`Txn::remove_members`].
    pub(crate) ranges: Vec<(u8, KeyBound, KeyBound)>,
    /// Writes to the keyspace of the server itself: libraries of functions.
    pub(crate) system: Writes,
    /// For clients that listen, in the order in which it happened.
    pub(crate) told: Vec<Told>,
    /// How many of the commands wrote something.
    pub(crate) changes: u64,
    /// How often something was written, and its bytes, those included that were written again.
    count: usize,
    pub(crate) bytes: usize,
    /// What was written over, while that is kept.
    undo: Option<undo::Undo>,
}

/// How many of the last written keys are looked at when the client that wrote them reads one: it is
/// told of what it knows if it has written more.
const WRITES_LOOKED_AT: usize = 1024;

/// A place between two commands that leave what they write in the same [`Pending`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    count: usize,
    touched: usize,
    told: usize,
}

impl Pending {
    /// Returns true if nothing is to be written.
    pub(crate) fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.ranges.is_empty() && self.system.is_empty()
    }

    /// The place before the command that comes next.
    pub(crate) fn place(&self) -> Place {
        Place { count: self.count, touched: self.touched.len(), told: self.told.len() }
    }

    /// Notes that the client that wrote a key reads what it has written.
    pub(crate) fn note_read(&mut self, number: u8, key: &[u8]) {
        let written = self.touched.iter_mut().rev().take(WRITES_LOOKED_AT);
        for one in written.filter(|one| one.number == number && one.key == key) {
            one.is_read = true;
        }
    }

    /// Ends the command that began here: one that wrote nothing has touched nothing.
    pub(crate) fn end(&mut self, began: Place) {
        if self.count == began.count {
            self.touched.truncate(began.touched);
        } else {
            self.changes += 1;
        }
    }
}

/// Reads and pending writes.
pub(crate) struct Txn<'s> {
    pub(crate) databases: &'s Databases,
    /// The number of the keyspaces that are read and written.
    pub(crate) number: u8,
    /// The time of the command: all of it happens at this moment.
    pub(crate) now_ms: u64,
    /// True if the present command only reads: clients are told of keys that it misses.
    pub(crate) is_read: bool,
    /// True if the present command may take long: other clients of its worker are served
    /// meanwhile.
    pub(crate) may_take_long: bool,
    /// The client whose command it is; 0 if it is none's.
    pub(crate) client: u64,
    pub(crate) pending: Pending,
    /// Entries that were read before the commands that ask for them, in the order of their keys,
    /// and the number of those that were asked for.
    ahead: Vec<Option<Slice>>,
    ahead_taken: usize,
    /// Where [`Txn::overwrite`] writes at once, for a run of commands that only overwrite.
    pub(crate) overwrites: Option<Batch>,
    /// How many strings were written there.
    pub(crate) overwritten: usize,
    /// What is pending of orders whose places were asked for.
    overlays: RefCell<Overlays>,
    /// How many keys that were looked up to be read were there, and were not.
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    /// What is read in the place of the engine as it is, by one that writes nothing.
    pub(crate) snapshot: Option<&'s Snapshot>,
}

/// The error for bytes that the server has not written.
pub(crate) fn damaged() -> Error {
    Error::InvalidArgument("an entry is not as the server writes it".into())
}

impl<'s> Txn<'s> {
    /// Nothing pending.
    pub(crate) fn new(databases: &'s Databases, number: u8, now_ms: u64) -> Self {
        Self {
            databases,
            number,
            now_ms,
            is_read: false,
            may_take_long: true,
            client: 0,
            pending: Pending::default(),
            ahead: Vec::new(),
            ahead_taken: 0,
            overwrites: None,
            overwritten: 0,
            overlays: RefCell::default(),
            hits: 0,
            misses: 0,
            snapshot: None,
        }
    }

    /// The present database's keyspaces.
    pub(crate) fn db(&self) -> Result<&'s Db> {
        self.databases.numbered(self.number)
    }

    /// What is pending for one of the present database's keyspaces.
    pub(crate) fn writes(&self, space: Space) -> Option<&Writes> {
        let mut all = self.pending.writes.iter();
        all.find(|(n, s, _)| (*n, *s) == (self.number, space)).map(|(.., writes)| writes)
    }

    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Slice>> {
        let value = match self.written(space, key) {
            Some(written) => written,
            None => match self.snapshot {
                Some(snapshot) => snapshot.keyspace(space.of(self.db()?))?.get(key)?,
                None => space.of(self.db()?).get(key)?,
            },
        };
        effort::steps(1);
        Ok(value)
    }

    /// What is pending for a key.
    fn written(&self, space: Space, key: &[u8]) -> Option<Option<Slice>> {
        let written = self.writes(space)?.get(key)?;
        Some(written.as_deref().map(Slice::copy_from))
    }

    /// Reads the entries of keys together. [`Txn::read`] returns them, asked for each of these keys
    /// in this order.
    ///
    /// # Errors
    ///
    /// From the engine, and if one takes long; nothing is read ahead then.
    pub(crate) fn read_ahead(&mut self, keys: &[&[u8]]) -> Result<()> {
        self.ahead = self.db()?.keys.reader().multi_get_at_most(keys, BRIEF_BYTES_MAX)?;
        self.ahead_taken = 0;
        Ok(())
    }

    /// Goes on with the entry of the key `at` of those that were read ahead.
    pub(crate) fn go_on_at(&mut self, at: usize) {
        self.ahead_taken = at;
    }

    /// The entry that was read ahead for the key that is asked for now, if any was.
    #[inline]
    fn take_ahead(&mut self) -> Option<Option<Slice>> {
        let entry = self.ahead.get_mut(self.ahead_taken)?.take();
        self.ahead_taken += 1;
        Some(entry)
    }

    pub(crate) fn write(&mut self, space: Space, key: Vec<u8>, value: Option<Vec<u8>>) {
        let number = self.number;
        let overlays = self.overlays.get_mut();
        overlays.check(self.pending.count);
        if space == Space::Members {
            overlays.note(number, &key);
        } else {
            overlays.note_other();
        }
        let bytes = key.len() + value.as_ref().map_or(0, Vec::len);
        effort::entry(bytes);
        self.pending.count += 1;
        self.pending.bytes += bytes;
        let pending = &mut self.pending.writes;
        let at = pending.iter().position(|(n, s, _)| (*n, *s) == (number, space));
        let at = at.unwrap_or_else(|| {
            pending.push((number, space, Writes::new()));
            pending.len() - 1
        });
        if self.pending.undo.is_none() {
            pending[at].2.insert(key, value);
            return;
        }
        let before = pending[at].2.insert(key.clone(), value);
        self.pending.note_undo(number, space, key, before);
    }

    /// What is pending of orders whose places were asked for, as far as it is known.
    pub(crate) fn overlays(&self) -> RefMut<'_, Overlays> {
        let mut overlays = self.overlays.borrow_mut();
        overlays.check(self.pending.count);
        overlays
    }

    /// The key's entry, if it is there and has not ended.
    ///
    /// # Errors
    ///
    /// From the engine; [`Error::TooLong`] if it takes long and may not.
    pub(crate) fn read(&mut self, key: &[u8]) -> Result<Option<Entry>> {
        let entry = self.raw(key)?.filter(|entry| {
            let has_ended = entry.is_expired(self.now_ms);
            if has_ended {
                self.databases.met.meet(self.number, key);
            }
            !has_ended
        });
        self.hits += u64::from(entry.is_some());
        self.misses += u64::from(entry.is_none());
        if entry.is_none() && self.is_read {
            self.notify(KeyEvent::MISS, key);
        }
        Ok(entry)
    }

    /// The key's entry, whether it has ended or not; `None` also if clients were told of its end.
    pub(crate) fn raw(&mut self, key: &[u8]) -> Result<Option<Entry>> {
        let ahead = self.take_ahead();
        effort::steps(1);
        let value = match self.written(Space::Keys, key) {
            Some(value) => value,
            None => {
                let db = self.db()?;
                let stored = match ahead {
                    Some(value) => value,
                    None if self.may_take_long => db.keys.get(key)?,
                    None => db.keys.reader().get_at_most(key, BRIEF_BYTES_MAX)?,
                };
                stored.filter(|entry| !db.swept.has_told(key, entry))
            }
        };
        let Some(value) = value else { return Ok(None) };
        Ok(Some(Entry::decode(value).ok_or_else(damaged)?))
    }

    /// Returns true if what a scan has found of a key has not ended.
    pub(crate) fn is_live(&self, key: &[u8], entry: &[u8]) -> bool {
        // As in `raw`, what is pending is nothing of which clients were told.
        let is_told = |db: &Db| db.swept.has_told(key, entry);
        entry::is_live(entry, self.now_ms)
            && (!self.db().is_ok_and(is_told) || self.written(Space::Keys, key).is_some())
    }

    /// As [`Txn::read`], before a write: what has ended is removed with all that belongs to it.
    /// That is no change to clients that watch the key: it was absent before, and clients that
    /// watched it when it was there see that it has ended.
    pub(crate) fn edit(&mut self, key: &[u8]) -> Result<Option<Entry>> {
        let Some(entry) = self.raw(key)? else { return Ok(None) };
        if !entry.is_expired(self.now_ms) {
            return Ok(Some(entry));
        }
        self.end(key, &entry)?;
        Ok(None)
    }

    /// Removes a key that has this entry, whose time is over.
    pub(crate) fn end(&mut self, key: &[u8], entry: &Entry) -> Result<()> {
        self.forget_members(entry)?;
        self.write(Space::Keys, key.to_vec(), None);
        self.tell_end(key);
        Ok(())
    }

    /// Tells of a key whose time is over.
    pub(crate) fn tell_end(&mut self, key: &[u8]) {
        self.notify(KeyEvent::EXPIRED, key);
        self.mark(key, true, false);
        self.databases.ended_keys.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns true if the key is there.
    pub(crate) fn exists(&mut self, key: &[u8]) -> Result<bool> {
        Ok(self.read(key)?.is_some())
    }

    /// Removes a key that has this entry; a collection's members are left to the sweeper.
    pub(crate) fn delete(&mut self, key: &[u8], entry: &Entry) -> Result<()> {
        self.forget_members(entry)?;
        self.touch(key);
        self.write(Space::Keys, key.to_vec(), None);
        Ok(())
    }

    fn forget_members(&mut self, entry: &Entry) -> Result<()> {
        if entry.kind != Kind::String {
            let meta = entry.meta().ok_or_else(damaged)?;
            // A stream without entries may have groups.
            if meta.count > 0 || entry.kind == Kind::Stream {
                self.write(Space::Work, member::reclaim(meta.id), Some(Vec::new()));
            }
            if meta.times != 0 {
                self.write(Space::Work, member::reclaim(meta.times), Some(Vec::new()));
            }
        }
        Ok(())
    }

    /// Writes a string in the place of what [`Txn::edit`] found.
    pub(crate) fn put_string(
        &mut self,
        key: &[u8],
        before: Option<&Entry>,
        bytes: &[u8],
        expires_ms: u64,
    ) -> Result<()> {
        self.put_whole(key, before, entry::encode_string(bytes, expires_ms), expires_ms)
    }

    /// As [`Txn::put_string`], for a string that was changed in part.
    pub(crate) fn put_edited(
        &mut self,
        key: &[u8],
        before: Option<&Entry>,
        string: Edited,
    ) -> Result<()> {
        let expires_ms = string.expires_ms();
        self.put_whole(key, before, string.into_entry(), expires_ms)
    }

    /// Writes the entry of a string in the place of what [`Txn::edit`] found.
    fn put_whole(
        &mut self,
        key: &[u8],
        before: Option<&Entry>,
        encoded: Vec<u8>,
        expires_ms: u64,
    ) -> Result<()> {
        if let Some(before) = before {
            self.forget_members(before)?;
        }
        self.put_entry(key, (encoded, Kind::String), before, expires_ms);
        Ok(())
    }

    /// Makes a key a string without a time of expiry, whatever is there.
    #[inline]
    pub(crate) fn overwrite(&mut self, key: &[u8], bytes: &[u8]) -> Result<()> {
        self.notify(KeyEvent::string("set"), key);
        if let Some(batch) = &mut self.overwrites {
            let db = self.databases.numbered(self.number)?;
            batch.insert_parts(&db.keys, key, &[&[Kind::String as u8], bytes]);
            effort::entry(bytes.len());
            self.overwritten += 1;
            self.touch(key);
            return Ok(());
        }
        let before = self.edit(key)?;
        self.put_string(key, before.as_ref(), bytes, 0)
    }

    /// Before an entry is written: tells of a key that was not there.
    fn notify_if_new(&mut self, key: &[u8]) {
        if self.databases.listens_to(EventClass::NEW) && self.raw(key).is_ok_and(|e| e.is_none()) {
            self.notify(KeyEvent::ADDED, key);
        }
    }

    fn put_entry(
        &mut self,
        key: &[u8],
        (mut value, kind): (Vec<u8>, Kind),
        before: Option<&Entry>,
        expires_ms: u64,
    ) {
        let may_leave = |db: &Db| db.swept.is_ahead(expires_ms);
        let may_leave = kind == Kind::String && expires_ms != 0 && self.db().is_ok_and(may_leave);
        let is_left = entry::leave_to_engine(&mut value, may_leave);
        // A key that lasts longer than before keeps its mark: the sweeper moves it by then.
        let is_marked = |before: &Entry| (1..=expires_ms).contains(&before.expires_ms);
        if expires_ms != 0 && !before.is_some_and(is_marked) {
            self.mark_end(key, expires_ms, is_left);
        }
        self.notify_if_new(key);
        self.mark_made(key, Some(kind));
        self.write(Space::Keys, key.to_vec(), Some(value));
    }

    /// Has the sweeper look at a key at this time. There is a mark for each key that ends, of the
    /// time of its end or an earlier one. It vanishes if the entry does, of itself.
    pub(crate) fn mark_end(&mut self, key: &[u8], expires_ms: u64, vanishes: bool) {
        let value = if vanishes { vec![MARK_VANISHES] } else { Vec::new() };
        self.write(Space::Work, member::expiry(expires_ms, key), Some(value));
    }

    /// Writes an entry that another key had, with its members, in the place of nothing.
    pub(crate) fn put_moved(&mut self, key: &[u8], entry: &Entry) -> Result<()> {
        if entry.kind != Kind::String {
            self.note_collection()?;
            if self.meta(entry)?.times != 0 {
                // When the first of them ends is looked up by then.
                self.mark_fields(key, self.now_ms);
            }
        }
        let value = (entry.with_expiry(entry.expires_ms), entry.kind);
        self.put_entry(key, value, None, entry.expires_ms);
        Ok(())
    }

    /// Has the sweeper look, at this time, at the hash of a key for fields that have ended.
    pub(crate) fn mark_fields(&mut self, key: &[u8], at_ms: u64) {
        self.write(Space::Work, member::fields_due(at_ms, key), Some(Vec::new()));
    }

    /// Removes a key whose entry, members included, another key has now.
    pub(crate) fn remove_moved(&mut self, key: &[u8]) {
        self.touch(key);
        self.write(Space::Keys, key.to_vec(), None);
    }

    /// Gives a key that has this entry another time of expiry; 0 for none.
    pub(crate) fn put_expiry(&mut self, key: &[u8], entry: &Entry, expires_ms: u64) -> Result<()> {
        if entry.kind != Kind::String {
            self.meta(entry)?;
        }
        let value = (entry.with_expiry(expires_ms), entry.kind);
        self.put_entry(key, value, Some(entry), expires_ms);
        Ok(())
    }

    /// What there is to be known of a collection.
    pub(crate) fn meta(&self, entry: &Entry) -> Result<Meta> {
        entry.meta().ok_or_else(damaged)
    }

    /// A collection that has no members yet.
    pub(crate) fn new_meta(&self) -> Result<Meta> {
        self.note_collection()?;
        let id = self.databases.new_id()?;
        Ok(Meta { id, count: 0, first: crate::encode::format::LIST_MIDDLE, times: 0 })
    }

    /// Before a collection is written, so that no `SET` overlooks it.
    fn note_collection(&self) -> Result<()> {
        self.db()?.has_collections.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Writes what is now to be known of a collection; one without members goes away.
    pub(crate) fn put_meta(&mut self, key: &[u8], kind: Kind, meta: &Meta, expires_ms: u64) {
        self.notify_if_new(key);
        self.mark_made(key, (meta.count > 0).then_some(kind));
        let value = (meta.count > 0).then(|| entry::encode_meta(kind, meta, expires_ms));
        self.write(Space::Keys, key.to_vec(), value);
    }

    /// Makes a key a collection that has members, in the place of nothing.
    pub(crate) fn put_collection(&mut self, key: &[u8], kind: Kind, meta: &Meta, expires_ms: u64) {
        let value = (entry::encode_meta(kind, meta, expires_ms), kind);
        self.put_entry(key, value, None, expires_ms);
    }

    /// A member's value.
    pub(crate) fn member(&self, key: &[u8]) -> Result<Option<Slice>> {
        self.get(Space::Members, key)
    }

    /// Writes a member.
    pub(crate) fn put_member(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.write(Space::Members, key, Some(value));
    }

    /// Removes a member.
    pub(crate) fn remove_member(&mut self, key: Vec<u8>) {
        self.write(Space::Members, key, None);
    }

    /// Marks a key as changed, for the clients that it concerns.
    pub(crate) fn touch(&mut self, key: &[u8]) {
        self.mark(key, false, false);
    }

    /// As [`Txn::touch`], before the entry of a key is written that is of this type then, if it is
    /// there: those that wait for one take from it if there was none before.
    #[inline]
    fn mark_made(&mut self, key: &[u8], kind: Option<Kind>) {
        let is_made = self.databases.waiters.any()
            && kind.is_some()
            && self.raw(key).map_or(true, |before| before.map(|before| before.kind) != kind);
        self.mark(key, false, is_made);
    }

    #[inline]
    fn mark(&mut self, key: &[u8], has_ended: bool, is_made: bool) {
        if self.databases.interest.any() {
            let (number, by, key) = (self.number, self.client, key.to_vec());
            self.pending.touched.push(Changed {
                number,
                key,
                by,
                has_ended,
                is_made,
                is_no_news: false,
                is_read: false,
            });
        }
    }

    /// As [`Txn::touch`], of a stream to which nothing was added: those that wait for entries do
    /// not look, as in Redis.
    pub(crate) fn touch_without_news(&mut self, key: &[u8]) {
        self.touch(key);
        if let Some(last) = self.pending.touched.last_mut().filter(|last| last.key == key) {
            last.is_no_news = true;
        }
    }

    /// Tells of what happened to a key, once it is committed.
    #[inline]
    pub(crate) fn notify(&mut self, event: KeyEvent, key: &[u8]) {
        if self.databases.listens_to(event.class) {
            self.pending.told.push(Told::Event(self.number, event, key.to_vec()));
        }
    }

    /// Sends a message to a channel, once what is pending is committed.
    pub(crate) fn publish(&mut self, topic: Topic, channel: &[u8], message: &[u8]) {
        self.pending.bytes += channel.len() + message.len();
        self.pending.told.push(Told::Message(topic, channel.to_vec(), message.to_vec()));
    }

    /// The pairs of a range, ascending or descending, as they are now: later writes do not show.
    pub(crate) fn scan(
        &self,
        space: Space,
        from: KeyBound,
        to: KeyBound,
        reverse: bool,
    ) -> Result<Scan> {
        if is_empty(&from, &to) {
            return Ok(Scan::Nothing);
        }
        let (keyspace, range) = (space.of(self.db()?), (from.clone(), to.clone()));
        let stored = match self.snapshot {
            Some(snapshot) => snapshot.keyspace(keyspace)?.range(range),
            None => keyspace.range(range),
        };
        let stored = Directed { stored, reverse };
        let mut pending: Vec<_> = match self.writes(space) {
            None => return Ok(Scan::Stored(Box::new(stored))),
            Some(writes) => writes.range((from, to)).map(|(k, v)| (k.clone(), v.clone())).collect(),
        };
        if pending.is_empty() {
            return Ok(Scan::Stored(Box::new(stored)));
        }
        // Taken from the end.
        if !reverse {
            pending.reverse();
        }
        Ok(Scan::Merged { stored: Box::new(stored.peekable()), pending, reverse })
    }

    /// The members whose keys begin with `prefix`, ascending.
    pub(crate) fn members(&self, prefix: &[u8]) -> Result<Scan> {
        let (from, to) = prefix_range(prefix);
        self.scan(Space::Members, from, to, false)
    }
}

/// Returns true if no key is between two ends.
fn is_empty(from: &KeyBound, to: &KeyBound) -> bool {
    match (from, to) {
        (Bound::Included(a), Bound::Included(b)) => a > b,
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => {
            a >= b
        }
    }
}

/// The range of the keys that begin with `prefix`.
pub(crate) fn prefix_range(prefix: &[u8]) -> (KeyBound, KeyBound) {
    let end = match prefix.iter().rposition(|byte| *byte != 0xFF) {
        None => Bound::Unbounded,
        Some(last) => {
            let mut end = prefix[..=last].to_vec();
            end[last] += 1;
            Bound::Excluded(end)
        }
    };
    (Bound::Included(prefix.to_vec()), end)
}
