//! Strings that are left to the engine, beside a model of them: with a clock that jumps, sweeps
//! that go half way, commits that come late, and processes that end.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use proptest::{collection::vec, prelude::*};
use rhumb::{Database, KeyspaceOptions};

use super::{super::*, marks, server_with_ended};
use crate::{
    command::catalog,
    config::Config,
    counting::{kept_keys, live_keys},
    log::Log,
    swept::SweptClock,
};

/// The time at which a history begins, in milliseconds since 1970.
const BEGIN_MS: u64 = 1 << 40;

/// What happens in a history.
#[derive(Clone, Debug)]
enum Event {
    /// A key becomes a string, or what it was gets another time. Ends after this number of
    /// milliseconds; 0: does not end.
    Put { key: u8, after: u64, is_list: bool },
    /// A key gets another time.
    Expire { key: u8, after: u64 },
    /// A key is removed.
    Remove { key: u8 },
    /// A key that is there takes the place of another.
    Rename { from: u8, to: u8 },
    /// The clock moves, also back.
    Clock { by: i64 },
    /// This number of chunks of this number of marks are swept.
    Sweep { chunks: u8, most: usize },
    /// The engine may drop what was told of.
    Drop,
    /// Keys are counted.
    Count,
    /// What is in memory goes to tables, and those are compacted.
    Compact,
    /// A key is removed, and becomes a string while the sweeper goes on: it may have passed the
    /// string's time when that is committed, and the engine may drop by then what was told of. It
    /// may get another time in the same transaction.
    PutLate { key: u8, after: u64, again: u64, by: u64, drops: bool },
    /// The data are closed and opened.
    Reopen,
    /// The process ends without closing the data, which are opened again.
    Kill,
    /// The data are closed, another program has them open for this number of milliseconds, with the
    /// time of day for the engine's clock, and they are opened again.
    Lend { ms: u64 },
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let after = prop_oneof![2 => 1..40_u64, 1 => 40..2000_u64, 1 => Just(0)];
    let event = prop_oneof![
        8 => (0..12_u8, after.clone(), any::<bool>())
            .prop_map(|(key, after, list)| Event::Put { key, after, is_list: list && key < 3 }),
        4 => (0..12_u8, after).prop_map(|(key, after)| Event::Expire { key, after }),
        2 => (0..12_u8).prop_map(|key| Event::Remove { key }),
        2 => (0..12_u8, 0..12_u8).prop_map(|(from, to)| Event::Rename { from, to }),
        5 => (0..30_i64).prop_map(|by| Event::Clock { by }),
        1 => (-60..0_i64).prop_map(|by| Event::Clock { by }),
        4 => (0..4_u8, 1..5_usize).prop_map(|(chunks, most)| Event::Sweep { chunks, most }),
        2 => Just(Event::Drop),
        2 => Just(Event::Count),
        1 => Just(Event::Compact),
        2 => (0..12_u8, 1..30_u64, 0..30_u64, 0..40_u64, any::<bool>()).prop_map(
            |(key, after, again, by, drops)| Event::PutLate { key, after, again, by, drops }
        ),
        1 => Just(Event::Reopen),
        1 => Just(Event::Kill),
        1 => (0..100_u64).prop_map(|ms| Event::Lend { ms }),
    ];
    vec(event, 1..120)
}

/// One life of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Life {
    is_list: bool,
    /// 0 if it does not end.
    ends_ms: u64,
}

struct History {
    dir: tempfile::TempDir,
    server: Option<Server>,
    now_ms: u64,
    /// The latest time up to which something was swept.
    swept_ms: u64,
    lives: BTreeMap<u8, Life>,
    /// Lives that ended, and those of them that were counted by servers that are closed.
    ended: u64,
    counted: u64,
}

fn name(key: u8) -> Vec<u8> {
    format!("key:{key}").into_bytes()
}

pub(super) fn open(dir: &Path) -> Server {
    let data = dir.join("data");
    let config = Config { data, memory_bytes: 16 << 20, ..Config::default() };
    Server::open(config, Arc::new(Log::silent()), catalog()).unwrap()
}

/// The files below a directory, with their lengths.
fn files(dir: &Path) -> BTreeMap<PathBuf, u64> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => all.extend(files(&entry.path())),
            _ => drop(entry.metadata().map(|file| all.insert(entry.path(), file.len()))),
        }
    }
    all
}

/// Copies a directory as it is at one moment: again if the engine's threads change something
/// meanwhile.
fn copy(from: &Path) -> tempfile::TempDir {
    loop {
        let (dir, before) = (tempfile::tempdir().unwrap(), files(from));
        let is_copied = before.keys().all(|path| {
            let to = dir.path().join(path.strip_prefix(from).unwrap());
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(path, to).is_ok()
        });
        if is_copied && files(from) == before {
            return dir;
        }
    }
}

impl History {
    fn begin() -> Self {
        let (dir, server) = server_with_ended(0);
        Self {
            dir,
            server: Some(server),
            now_ms: BEGIN_MS,
            swept_ms: 0,
            lives: BTreeMap::new(),
            ended: 0,
            counted: 0,
        }
    }

    fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    fn txn(&self) -> Txn<'_> {
        Txn::new(&self.server().databases, 0, self.now_ms)
    }

    /// Returns true if a key is there and has ended: by the clock, or because it was told of before
    /// the clock went back.
    fn has_ended(&self, key: u8) -> bool {
        let Some(life) = self.lives.get(&key).filter(|life| life.ends_ms != 0) else {
            return false;
        };
        let may_be_told = life.ends_ms <= self.swept_ms;
        life.ends_ms <= self.now_ms || (may_be_told && !self.txn().exists(&name(key)).unwrap())
    }

    /// The life of a key as a command sees it.
    fn life(&self, key: u8) -> Option<Life> {
        self.lives.get(&key).copied().filter(|_| !self.has_ended(key))
    }

    /// The life of a key as a command sees it that writes: one that has ended is over for good.
    fn edit(&mut self, key: u8) -> Option<Life> {
        if self.has_ended(key) {
            self.lives.remove(&key);
            self.ended += 1;
        }
        self.lives.get(&key).copied()
    }

    /// Compares a key with its life.
    fn compare(&self, key: u8) {
        let life = self.life(key);
        let seen = self.txn().read(&name(key)).unwrap();
        let seen = seen.map(|e| Life { is_list: e.kind == Kind::List, ends_ms: e.expires_ms });
        assert_eq!(seen, life, "key {key} at {}", self.now_ms);
        let txn = self.txn();
        let entry = txn.db().unwrap().keys.get(name(key)).unwrap();
        let is_scanned = entry.is_some_and(|entry| txn.is_live(&name(key), &entry));
        assert_eq!(is_scanned, life.is_some(), "key {key} at {}", self.now_ms);
    }

    fn commit(&self, change: impl FnOnce(&mut Txn<'_>)) {
        let mut txn = self.txn();
        change(&mut txn);
        commit::transaction(&mut txn).unwrap();
    }

    fn put(&mut self, key: u8, life: Life) {
        self.edit(key);
        self.commit(|txn| {
            let before = txn.edit(&name(key)).unwrap();
            if !life.is_list {
                txn.put_string(&name(key), before.as_ref(), b"value", life.ends_ms).unwrap();
                return;
            }
            if let Some(before) = before {
                txn.delete(&name(key), &before).unwrap();
            }
            let meta = txn.new_meta().unwrap();
            let meta = crate::encode::Meta { count: 1, ..meta };
            txn.put_collection(&name(key), Kind::List, &meta, life.ends_ms);
        });
        self.lives.insert(key, life);
    }

    fn expire(&mut self, key: u8, ends_ms: u64) {
        let life = self.edit(key);
        self.commit(|txn| {
            let entry = txn.edit(&name(key)).unwrap();
            assert_eq!(entry.is_some(), life.is_some());
            if let Some(entry) = entry {
                txn.put_expiry(&name(key), &entry, ends_ms).unwrap();
            }
        });
        if let Some(life) = life {
            self.lives.insert(key, Life { ends_ms, ..life });
        }
    }

    fn remove(&mut self, key: u8) {
        self.edit(key);
        self.commit(|txn| {
            if let Some(entry) = txn.edit(&name(key)).unwrap() {
                txn.delete(&name(key), &entry).unwrap();
            }
        });
        self.lives.remove(&key);
    }

    fn rename(&mut self, from: u8, to: u8) {
        if from == to || self.life(from).is_none() {
            return;
        }
        self.edit(to);
        self.commit(|txn| {
            let entry = txn.edit(&name(from)).unwrap().unwrap();
            if let Some(before) = txn.edit(&name(to)).unwrap() {
                txn.delete(&name(to), &before).unwrap();
            }
            txn.remove_moved(&name(from));
            txn.put_moved(&name(to), &entry).unwrap();
        });
        let life = self.lives.remove(&from).unwrap();
        self.lives.insert(to, life);
    }

    /// Sweeps some chunks. Returns true if there may be more.
    fn sweep(&mut self, chunks: u32, most: usize) -> bool {
        let server = self.server();
        let db = server.databases.numbered(0).unwrap();
        let mut more = true;
        for _ in 0..chunks {
            let mut cursor = db.swept.sweeping();
            more = end_due(server, (0, db), &mut cursor, (self.now_ms, most)).unwrap();
        }
        if chunks > 0 {
            self.swept_ms = self.swept_ms.max(self.now_ms);
        }
        more
    }

    /// Sweeps all that has ended.
    fn sweep_all(&mut self) {
        // The walk that has begun may be past marks that came since.
        for _ in 0..2 {
            while self.sweep(1, 3) {}
        }
        for key in 0..12 {
            self.edit(key);
        }
        self.server().databases.drop_told().unwrap();
        assert_eq!(self.counted + super::ended(self.server()), self.ended);
    }

    fn count(&mut self) {
        let databases = &self.server().databases;
        let db = databases.numbered(0).unwrap();
        let kept = kept_keys(databases, db).unwrap();
        // Those that have ended are among them until they are told of.
        let told = self.counted + super::ended(self.server()) - self.ended;
        assert_eq!(kept, self.lives.len() as i64 - told as i64);
    }

    /// Ends the process, with an orderly close of the data or without one, and opens the data.
    fn restart(&mut self, is_killed: bool) {
        // The place is not kept, so that the engine's clock has to be past all that was told of.
        self.now_ms = self.now_ms.max(self.swept_ms);
        self.sweep_all();
        let killed = is_killed.then(|| copy(self.dir.path()));
        let ended = self.server.take().unwrap();
        self.counted += super::ended(&ended);
        drop(ended);
        if let Some(dir) = killed {
            self.dir = dir;
        }
        let server = open(self.dir.path());
        // What the engine had dropped from memory alone is there again, and ends once more.
        for pair in server.databases.numbered(0).unwrap().keys.iter() {
            let (key, entry) = pair.unwrap();
            let key = std::str::from_utf8(&key[4..]).unwrap().parse().unwrap();
            let entry = Entry::decode(entry).unwrap();
            let ends_ms = entry.expires_ms;
            let life = Life { is_list: entry.kind == Kind::List, ends_ms };
            let before = self.lives.insert(key, life);
            assert!(before == Some(life) || ends_ms <= self.now_ms, "{before:?} and {life:?}");
        }
        self.server = Some(server);
    }

    /// Closes the data, has another program compact them at a later time, and opens them.
    fn lend(&mut self, ms: u64) {
        self.now_ms = self.now_ms.max(self.swept_ms);
        self.sweep_all();
        let server = self.server.take().unwrap();
        self.counted += super::ended(&server);
        server.databases.keep_clock().unwrap();
        drop(server);
        self.now_ms += ms;
        let clock = Arc::new(SweptClock::default());
        clock.move_to(self.now_ms);
        let other =
            Database::builder(self.dir.path().join("data")).clock(clock as _).open().unwrap();
        other.flush().unwrap();
        for name in ["db0.keys", "db0.work"] {
            other.keyspace(name, KeyspaceOptions::default()).unwrap().compact().unwrap();
        }
        drop(other);
        let server = open(self.dir.path());
        // Nobody heard of strings that ended meanwhile.
        let db = server.databases.numbered(0).unwrap();
        let is_there = |key: u8| db.keys.get(name(key)).unwrap().is_some();
        let now_ms = self.now_ms;
        self.lives.retain(|key, life| {
            let may_be_gone = !life.is_list && life.ends_ms != 0 && life.ends_ms <= now_ms;
            let is_there = is_there(*key);
            assert!(is_there || may_be_gone, "key {key} at {now_ms}");
            is_there
        });
        self.server = Some(server);
    }

    fn put_late(&mut self, key: u8, (ends_ms, again_ms): (u64, u64), by: u64, drops: bool) {
        // Nothing of it is left that the sweeper may meet: here are no locks.
        self.now_ms = self.now_ms.max(self.swept_ms);
        self.remove(key);
        let server = self.server.take().unwrap();
        let mut txn = Txn::new(&server.databases, 0, self.now_ms);
        assert!(txn.edit(&name(key)).unwrap().is_none());
        txn.put_string(&name(key), None, b"value", ends_ms).unwrap();
        if again_ms > ends_ms {
            let entry = txn.edit(&name(key)).unwrap().unwrap();
            txn.put_expiry(&name(key), &entry, again_ms).unwrap();
        }
        let db = server.databases.numbered(0).unwrap();
        self.now_ms += by;
        let mut cursor = db.swept.sweeping();
        end_due(&server, (0, db), &mut cursor, (self.now_ms, 3)).unwrap();
        self.swept_ms = self.swept_ms.max(self.now_ms);
        drop(cursor);
        if drops {
            server.databases.drop_told().unwrap();
        }
        commit::transaction(&mut txn).unwrap();
        drop(txn);
        self.server = Some(server);
        self.lives.insert(key, Life { is_list: false, ends_ms: ends_ms.max(again_ms) });
    }

    fn run(&mut self, event: &Event) {
        let ends = |now: u64, after: u64| if after == 0 { 0 } else { now + after };
        match *event {
            Event::Put { key, after, is_list } => {
                self.put(key, Life { is_list, ends_ms: ends(self.now_ms, after) });
            }
            Event::Expire { key, after } => self.expire(key, ends(self.now_ms, after)),
            Event::Remove { key } => self.remove(key),
            Event::Rename { from, to } => self.rename(from, to),
            Event::Clock { by } => self.now_ms = self.now_ms.checked_add_signed(by).unwrap(),
            Event::Sweep { chunks, most } => drop(self.sweep(chunks.into(), most)),
            Event::Drop => self.server().databases.drop_told().unwrap(),
            Event::Count => self.count(),
            Event::Compact => {
                let engine = &self.server().databases.engine;
                engine.flush().unwrap();
                let db = self.server().databases.numbered(0).unwrap();
                db.keys.compact().unwrap();
                db.work.compact().unwrap();
            }
            Event::PutLate { key, after, again, by, drops } => {
                let ends_ms = self.now_ms.max(self.swept_ms) + after;
                self.put_late(key, (ends_ms, ends_ms - after + again), by, drops);
            }
            Event::Reopen => self.restart(false),
            Event::Kill => self.restart(true),
            Event::Lend { ms } => self.lend(ms),
        }
        (0..12).for_each(|key| self.compare(key));
    }
}

proptest! {
    /// Every end is told of once, whether a writer meets it or the sweeper, no string that has
    /// ended comes back, none goes before, and nothing is left of those that were told of.
    #[test]
    fn strings_that_end_are_told_of_once(events in events()) {
        let mut history = History::begin();
        for event in &events {
            history.run(event);
        }
        history.count();
        // The clock catches up, and all ends.
        history.now_ms = history.now_ms.max(history.swept_ms) + 5000;
        history.sweep_all();
        let living = history.lives.len() as i64;
        let databases = &history.server().databases;
        let db = databases.numbered(0).unwrap();
        prop_assert_eq!(kept_keys(databases, db).unwrap(), living);
        prop_assert_eq!(live_keys(databases, db).unwrap(), living);
        prop_assert_eq!(db.keys.iter().count() as i64, living);
        prop_assert_eq!(marks(history.server()), 0);
        prop_assert_eq!(db.due(u64::MAX - 1).count(), 0);
    }
}
