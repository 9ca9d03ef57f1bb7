//! Clients that keep values of keys, and are told when one is old.
//!
//! A key that such a client reads is remembered here before it is read, and a writer looks here
//! after its commit is to be seen: every client that has read an old value is told. Keys are
//! remembered by name, whatever their database. Each is told of once, and remembered again when it
//! is read again. A client may ask to be told of all keys that begin with a prefix instead.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::{Mutex, RwLock};
use xxhash_rust::xxh3::xxh3_64;

use super::Written;
use crate::{
    clients::{ClientInfo, Mode},
    outbox::MessageLimits,
    resp::Reply,
};

/// Parts that the remembered keys lie in, by their hash: more than there are cores that read.
const PARTS: usize = 256;

/// Keys that are remembered, at most: the default of Redis.
const KEYS_MAX: usize = 1_000_000;

/// The channel on which clients of RESP2 are told.
const CHANNEL: &[u8] = b"__redis__:invalidate";

/// A key that was written, or has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Changed {
    /// The number of the keyspaces that have it.
    pub(crate) number: u8,
    pub(crate) key: Vec<u8>,
    /// The client that wrote it; 0 if it was none.
    pub(crate) by: u64,
    /// True if its time was over: it was absent before already.
    pub(crate) has_ended: bool,
    /// True if there was none of its type before.
    pub(crate) is_made: bool,
    /// True if nothing was added that a client could wait for.
    pub(crate) is_no_news: bool,
    /// True if the client that wrote it has read it since, within the same transaction.
    pub(crate) is_read: bool,
}

/// A client that tracks.
#[derive(Clone, Debug)]
pub(crate) struct Tracker {
    pub(crate) info: Arc<ClientInfo>,
    /// The client that is told in its place.
    pub(crate) redirect: Option<Arc<ClientInfo>>,
    /// It is told of all keys with its prefixes, and not of those that it has read.
    pub(crate) is_broadcast: bool,
    /// It is not told of what it writes itself.
    pub(crate) skips_own: bool,
}

impl Tracker {
    /// Leaves a message for the client, or for the one in its place.
    fn tell(&self, limits: &Arc<MessageLimits>, written: &mut Written<'_, impl Fn(&mut Reply)>) {
        let Some(redirect) = &self.redirect else {
            // Without RESP3 there is no way to tell it.
            if self.info.resp.load(Ordering::Relaxed) == 3 {
                written.tell(&self.info);
            }
            return;
        };
        if redirect.has_left() {
            self.info.set_mode(Mode::BROKEN_REDIRECT, true);
            if self.info.resp.load(Ordering::Relaxed) == 3 {
                let broken = |out: &mut Reply| {
                    out.push(2);
                    out.bulk(b"tracking-redir-broken");
                    out.int(redirect.id as i64);
                };
                Written::new(limits, broken).tell(&self.info);
            }
        } else if redirect.resp.load(Ordering::Relaxed) == 3 || redirect.is_subscriber() {
            written.tell(redirect);
        }
    }
}

/// Writes that keys are old; all of them if there are none.
fn write(out: &mut Reply, keys: &[&[u8]]) {
    if out.resp3 {
        out.push(2);
        out.bulk(b"invalidate");
    } else {
        out.array(3);
        out.bulk(b"message");
        out.bulk(CHANNEL);
    }
    if keys.is_empty() {
        return out.null();
    }
    out.array(keys.len());
    keys.iter().for_each(|key| out.bulk(key));
}

/// The prefixes that clients ask for, and their lengths with how many have each.
#[derive(Debug, Default)]
struct Prefixes {
    clients: HashMap<Box<[u8]>, Vec<u64>>,
    lens: BTreeMap<usize, usize>,
}

impl Prefixes {
    /// The prefixes that a key begins with.
    fn of<'k>(&self, key: &'k [u8]) -> impl Iterator<Item = (&'k [u8], &[u64])> {
        let lens = self.lens.range(..=key.len());
        lens.filter_map(move |(len, _)| {
            let prefix = &key[..*len];
            self.clients.get(prefix).map(|ids| (prefix, ids.as_slice()))
        })
    }
}

/// Changed keys that begin with a prefix, each with the client that wrote it, and the clients that
/// asked for the prefix.
type Group<'a> = (BTreeMap<&'a [u8], u64>, &'a [u64]);

/// The clients that read each key of a part.
type Part = HashMap<Box<[u8]>, Vec<u64>>;

/// How much is kept: keys, pairs of a key and a client, prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TrackingSizes {
    pub(crate) keys: usize,
    pub(crate) items: usize,
    pub(crate) prefixes: usize,
}

/// All clients that track, and the keys that they have read.
#[derive(Debug)]
pub(crate) struct Tracking {
    count: AtomicUsize,
    clients: RwLock<HashMap<u64, Tracker>>,
    parts: Box<[Mutex<Part>]>,
    keys: AtomicUsize,
    items: AtomicUsize,
    keys_max: AtomicUsize,
    prefixes: RwLock<Prefixes>,
}

impl Default for Tracking {
    fn default() -> Self {
        Self {
            count: AtomicUsize::new(0),
            clients: RwLock::default(),
            parts: (0..PARTS).map(|_| Mutex::default()).collect(),
            keys: AtomicUsize::new(0),
            items: AtomicUsize::new(0),
            keys_max: AtomicUsize::new(KEYS_MAX),
            prefixes: RwLock::default(),
        }
    }
}

impl Tracking {
    /// Returns true if any client tracks.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// How many clients track.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// How much is kept.
    pub(crate) fn sizes(&self) -> TrackingSizes {
        TrackingSizes {
            keys: self.keys.load(Ordering::Relaxed),
            items: self.items.load(Ordering::Relaxed),
            prefixes: self.prefixes.read().clients.len(),
        }
    }

    /// Keys that are remembered, at most; 0 for no limit.
    pub(crate) fn keys_max(&self) -> usize {
        self.keys_max.load(Ordering::Relaxed)
    }

    /// Changes how many keys are remembered: those beyond are forgotten at once.
    pub(crate) fn set_keys_max(&self, limits: &Arc<MessageLimits>, keys: usize) {
        self.keys_max.store(keys, Ordering::Relaxed);
        self.make_room(limits, None);
    }

    /// Registers a client, or changes how it tracks. Returns true if it is new.
    pub(crate) fn add(&self, tracker: Tracker) -> bool {
        let mut clients = self.clients.write();
        let is_new = clients.insert(tracker.info.id, tracker).is_none();
        self.count.store(clients.len(), Ordering::SeqCst);
        is_new
    }

    /// Asks for the keys that begin with a prefix.
    pub(crate) fn add_prefix(&self, prefix: &[u8], id: u64) {
        let mut prefixes = self.prefixes.write();
        let Prefixes { clients, lens } = &mut *prefixes;
        let ids = clients.entry(prefix.into()).or_insert_with(|| {
            *lens.entry(prefix.len()).or_default() += 1;
            Vec::new()
        });
        ids.push(id);
    }

    /// Takes a client's registration back, and those of its prefixes. What it has read is forgotten
    /// when it is written, or nobody tracks any more.
    pub(crate) fn remove<'p>(&self, id: u64, own_prefixes: impl Iterator<Item = &'p [u8]>) {
        let mut prefixes = self.prefixes.write();
        let Prefixes { clients, lens } = &mut *prefixes;
        for prefix in own_prefixes {
            let Some(ids) = clients.get_mut(prefix) else { continue };
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                clients.remove(prefix);
                let len = lens.entry(prefix.len()).or_default();
                *len -= 1;
                if *len == 0 {
                    lens.remove(&prefix.len());
                }
            }
        }
        drop(prefixes);
        let mut clients = self.clients.write();
        clients.remove(&id);
        self.count.store(clients.len(), Ordering::SeqCst);
        if clients.is_empty() {
            self.forget_keys();
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "far fewer parts")]
    fn part_of(key: &[u8]) -> usize {
        xxh3_64(key) as usize % PARTS
    }

    /// Remembers a key that a client is about to read.
    pub(crate) fn remember(&self, limits: &Arc<MessageLimits>, id: u64, key: &[u8]) {
        let mut part = self.parts[Self::part_of(key)].lock();
        let ids = match part.get_mut(key) {
            Some(ids) => ids,
            None => {
                self.keys.fetch_add(1, Ordering::Relaxed);
                part.entry(key.into()).or_default()
            }
        };
        if let Err(at) = ids.binary_search(&id) {
            ids.insert(at, id);
            self.items.fetch_add(1, Ordering::Relaxed);
        }
        drop(part);
        self.make_room(limits, Some(key));
    }

    /// Forgets keys other than this one while there are more than may be: those that have read them
    /// are told that they are old.
    fn make_room(&self, limits: &Arc<MessageLimits>, newest: Option<&[u8]>) {
        let most = self.keys_max();
        let first = newest.map_or(0, Self::part_of);
        for part in (first..PARTS).chain(0..first).map(|at| &self.parts[at]) {
            loop {
                if most == 0 || self.keys.load(Ordering::Relaxed) <= most {
                    return;
                }
                let some = part.lock().keys().find(|key| newest != Some(&***key)).cloned();
                let Some(key) = some else { break };
                self.tell_readers(limits, &key, 0, false);
            }
        }
    }

    fn take(&self, key: &[u8]) -> Vec<u64> {
        let mut part = self.parts[Self::part_of(key)].lock();
        let Some(ids) = part.remove(key) else { return Vec::new() };
        self.keys.fetch_sub(1, Ordering::Relaxed);
        self.items.fetch_sub(ids.len(), Ordering::Relaxed);
        ids
    }

    fn forget_keys(&self) {
        for part in &self.parts {
            let taken = std::mem::take(&mut *part.lock());
            self.keys.fetch_sub(taken.len(), Ordering::Relaxed);
            let items = taken.values().map(Vec::len).sum();
            self.items.fetch_sub(items, Ordering::Relaxed);
        }
    }

    /// Tells the clients that have read a key, which the client `by` has written, and read since if
    /// `is_read`.
    fn tell_readers(&self, limits: &Arc<MessageLimits>, key: &[u8], by: u64, is_read: bool) {
        let mut ids = self.take(key);
        if is_read && let Ok(at) = ids.binary_search(&by) {
            // It has read what is there now.
            ids.remove(at);
            self.remember(limits, by, key);
        }
        if ids.is_empty() {
            return;
        }
        let clients = self.clients.read();
        let mut written = Written::new(limits, |out: &mut Reply| write(out, &[key]));
        for tracker in ids.iter().filter_map(|id| clients.get(id)) {
            let is_skipped = tracker.skips_own && tracker.info.id == by;
            if !is_skipped && !tracker.is_broadcast {
                tracker.tell(limits, &mut written);
            }
        }
    }

    /// Tells of keys that were changed together, now that it is to be seen.
    pub(crate) fn tell(&self, limits: &Arc<MessageLimits>, changed: &[Changed]) {
        for one in changed {
            self.tell_readers(limits, &one.key, one.by, one.is_read);
        }
        let prefixes = self.prefixes.read();
        if prefixes.clients.is_empty() {
            return;
        }
        let mut found: BTreeMap<&[u8], Group<'_>> = BTreeMap::new();
        for one in changed {
            for (prefix, ids) in prefixes.of(&one.key) {
                let (keys, _) = found.entry(prefix).or_insert_with(|| (BTreeMap::new(), ids));
                keys.insert(&one.key, one.by);
            }
        }
        let clients = self.clients.read();
        for (keys, ids) in found.into_values() {
            let all: Vec<&[u8]> = keys.keys().copied().collect();
            let mut written = Written::new(limits, |out: &mut Reply| write(out, &all));
            for tracker in ids.iter().filter_map(|id| clients.get(id)) {
                let is_own = |by: &u64| tracker.skips_own && tracker.info.id == *by;
                if !keys.values().any(is_own) {
                    tracker.tell(limits, &mut written);
                    continue;
                }
                let others = keys.iter().filter(|(_, by)| !is_own(by)).map(|(key, _)| *key);
                let others: Vec<&[u8]> = others.collect();
                if !others.is_empty() {
                    let write = |out: &mut Reply| write(out, &others);
                    tracker.tell(limits, &mut Written::new(limits, write));
                }
            }
        }
    }

    /// Tells all that every key is old: a database was emptied.
    pub(crate) fn tell_all(&self, limits: &Arc<MessageLimits>) {
        if !self.any() {
            return;
        }
        self.forget_keys();
        let mut written = Written::new(limits, |out: &mut Reply| write(out, &[]));
        self.clients.read().values().for_each(|tracker| tracker.tell(limits, &mut written));
    }
}
