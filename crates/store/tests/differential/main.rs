//! The database against `BTreeMap`: random histories of every operation, with snapshots, batches,
//! several keyspaces, drops, clears, ingestions, checkpoints, backups, transactions, readers
//! beside, compactions and reopenings, over tiny memtables and tables so that every level is in
//! use.
//!
//! `RHUMB_HISTORIES` sets the number of histories to run, `RHUMB_SEED` the one to begin with.

mod copies;
mod transactions;

use std::{
    collections::BTreeMap,
    ops::{Bound, RangeBounds},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rhumb::{
    BlockIndexKind, Compression, Database, DatabaseBuilder, Keyspace, KeyspaceOptions,
    MemtableKind, Partitioning, PersistMode, Slice, Snapshot, StringCoding, TableOptions, Training,
};
use rhumb_testkit::random::Random;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Random keys and values.
trait Draw {
    /// Keys that collide often, share prefixes, and include the empty one and long ones.
    fn key(&mut self) -> Vec<u8>;
    fn value(&mut self) -> Vec<u8>;
}

impl Draw for Random {
    fn key(&mut self) -> Vec<u8> {
        match self.below(20) {
            0 => Vec::new(),
            1 => vec![0xFF; self.below(4) as usize],
            2 => format!("a/very/long/path/that/many/keys/share/{:03}", self.below(200)).into(),
            3 => vec![b'x'; 300 + self.below(3) as usize],
            4..=9 => self.below(500).to_be_bytes().to_vec(),
            _ => format!("user{:04}", self.below(1000)).into_bytes(),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        let len = match self.below(50) {
            0 => 0,
            1 => 9_000 + self.below(4_000),
            2..=8 => 300,
            _ => self.below(60),
        };
        let byte = self.next() as u8;
        (0..len).map(|i| byte.wrapping_add(i as u8)).collect()
    }
}

/// When an entry with this value expires: some do, in the next century.
fn expires(value: &[u8]) -> Option<SystemTime> {
    (value.len() % 4 == 1).then(|| UNIX_EPOCH + Duration::from_secs(5_000_000_000))
}

struct World {
    dir: PathBuf,
    random: Random,
    db: Option<Database>,
    spaces: BTreeMap<String, (Keyspace, Map)>,
    snapshots: Vec<(Snapshot, Vec<(Keyspace, Map)>)>,
    threads: usize,
    memtables: MemtableKind,
    checkpoints: u64,
    /// Reads the same database beside this one.
    reader: Option<Database>,
    /// The points of the backup, with what the database held.
    points: Vec<(u64, Vec<(String, Map)>)>,
}

const NAMES: [&str; 4] = ["alpha", "beta", "gamma", "delta"];

fn builder(dir: &Path, threads: usize, memtables: MemtableKind) -> DatabaseBuilder {
    Database::builder(dir)
        .memtable_kind(memtables)
        .memtable_bytes(24 << 10)
        .table_bytes(16 << 10)
        .level_one_bytes(40 << 10)
        .memory_budget_bytes(1 << 20)
        .background_threads(threads)
        .partition_function("by-last-byte", |key| vec![key.last().copied().unwrap_or(0) % 5])
}

fn open(dir: &Path, threads: usize, memtables: MemtableKind) -> Database {
    builder(dir, threads, memtables).open().expect("open")
}

impl World {
    fn new(dir: PathBuf, seed: u64) -> Self {
        let threads = (seed % 3) as usize;
        let memtables = [MemtableKind::Learned, MemtableKind::SkipList][(seed / 3 % 2) as usize];
        let db = Some(open(&dir, threads, memtables));
        Self {
            dir,
            random: Random::new(seed),
            db,
            spaces: BTreeMap::new(),
            snapshots: Vec::new(),
            threads,
            memtables,
            checkpoints: 0,
            reader: None,
            points: Vec::new(),
        }
    }

    fn db(&self) -> &Database {
        self.db.as_ref().expect("open between steps")
    }

    fn options(&mut self) -> KeyspaceOptions {
        let mut table = TableOptions { block_bytes: Some(256), ..TableOptions::default() };
        table.large_value_bytes = Some(8 << 10);
        if self.random.below(2) == 0 {
            table.index = Some(BlockIndexKind::BinarySearch);
        }
        table.string_coding = Some(StringCoding::ALL[self.random.below(3) as usize]);
        table.training = Some(Training::ALL[self.random.below(3) as usize]);
        if self.random.below(2) == 0 {
            table.compression = Some(Compression::None);
        }
        let partitions = match self.random.below(8) {
            0 => Partitioning::PrefixLength(5),
            1 => Partitioning::PrefixLength(7),
            2 => Partitioning::Delimiter(b'0'),
            3 => Partitioning::SplitPoints(vec![b"a".to_vec(), b"user03".to_vec(), vec![b'x'; 9]]),
            4 => Partitioning::Function("by-last-byte".to_owned()),
            _ => Partitioning::None,
        };
        KeyspaceOptions { table, partitions, ..KeyspaceOptions::default() }
    }

    fn name(&mut self) -> String {
        NAMES[self.random.below(NAMES.len() as u64) as usize].to_owned()
    }

    /// A random keyspace, created if it does not exist.
    fn space(&mut self) -> String {
        let name = self.name();
        if !self.spaces.contains_key(&name) {
            let options = self.options();
            let keyspace = self.db().keyspace(&name, options).expect("keyspace");
            self.spaces.insert(name.clone(), (keyspace, Map::new()));
        }
        name
    }

    fn step(&mut self) {
        match self.random.below(1000) {
            0..=599 => self.write(),
            600..=691 => self.write_batch(),
            692..=699 => self.remove_range(),
            700..=849 => self.read(),
            850..=889 => self.scan(),
            890..=896 => self.transact(),
            897..=899 => self.follow(),
            900..=919 => self.take_snapshot(),
            920..=949 => self.check_snapshot(),
            950..=959 => drop(self.snapshots.pop()),
            960..=966 => self.drop_space(),
            967..=968 => self.clear_space(),
            969..=972 => self.drop_partition(),
            973..=982 => self.ingest(),
            983..=987 => self.compact(),
            988..=991 => self.db().flush().expect("flush"),
            992..=995 => self.db().persist(PersistMode::SyncAll).expect("persist"),
            996 => self.checkpoint(),
            997 => self.backup(),
            _ => self.reopen(),
        }
    }

    fn write(&mut self) {
        let name = self.space();
        let (key, value) = (self.random.key(), self.random.value());
        let remove = self.random.below(4) == 0;
        let (keyspace, map) = self.spaces.get_mut(&name).expect("made above");
        if remove {
            keyspace.remove(&key).expect("remove");
            map.remove(&key);
        } else {
            match expires(&value) {
                None => keyspace.insert(&key, &value).expect("insert"),
                Some(time) => keyspace.insert_until(&key, &value, time).expect("insert_until"),
            }
            map.insert(key, value);
        }
    }

    /// Two random bounds; in half of the cases the keys are near each other.
    fn bounds(&mut self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let (mut from, mut to) = (self.random.key(), self.random.key());
        if self.random.below(2) == 0 {
            let at = self.random.below(990);
            from = format!("user{at:04}").into_bytes();
            to = format!("user{:04}", at + self.random.below(10)).into_bytes();
        }
        if from > to {
            std::mem::swap(&mut from, &mut to);
        }
        match self.random.below(8) {
            0..=4 => (Bound::Included(from), Bound::Excluded(to)),
            5 => (Bound::Excluded(from), Bound::Included(to)),
            6 => (Bound::Included(from), Bound::Unbounded),
            _ => (Bound::Unbounded, Bound::Excluded(to)),
        }
    }

    fn remove_range(&mut self) {
        let name = self.space();
        let bounds = self.bounds();
        let (keyspace, map) = self.spaces.get_mut(&name).expect("made above");
        keyspace.remove_range(bounds.clone()).expect("delete a range");
        map.retain(|key, _| !bounds.contains(key));
    }

    fn write_batch(&mut self) {
        let mut batch = self.db().batch();
        for _ in 0..self.random.below(20) {
            let name = self.space();
            if self.random.below(40) == 0 {
                let bounds = self.bounds();
                let (keyspace, map) = self.spaces.get_mut(&name).expect("made above");
                batch.remove_range(keyspace, bounds.clone());
                map.retain(|key, _| !bounds.contains(key));
                continue;
            }
            let (key, value) = (self.random.key(), self.random.value());
            let remove = self.random.below(3) == 0;
            let (keyspace, map) = self.spaces.get_mut(&name).expect("made above");
            if remove {
                batch.remove(keyspace, &key);
                map.remove(&key);
            } else {
                match expires(&value) {
                    None => batch.insert(keyspace, &key, &value),
                    Some(time) => batch.insert_until(keyspace, &key, &value, time),
                }
                map.insert(key, value);
            }
        }
        batch.commit().expect("commit");
    }

    /// The contents of all keyspaces.
    fn maps(&self) -> Vec<(String, Map)> {
        self.spaces.iter().map(|(name, (_, map))| (name.clone(), map.clone())).collect()
    }

    fn read(&mut self) {
        let name = self.space();
        let key = self.random.key();
        let (keyspace, map) = &self.spaces[&name];
        let got = keyspace.get(&key).expect("get");
        assert_eq!(got.as_deref(), map.get(&key).map(Vec::as_slice), "{name} {key:?}");
        assert_eq!(keyspace.contains_key(&key).expect("contains"), map.contains_key(&key));
        let keys: Vec<Vec<u8>> = map.keys().take(5).cloned().chain([key]).collect();
        let many = keyspace.multi_get(&keys).expect("multi_get");
        for (key, got) in keys.iter().zip(many) {
            assert_eq!(got.as_deref(), map.get(key).map(Vec::as_slice));
        }
    }

    fn scan(&mut self) {
        let name = self.space();
        let (mut from, mut to) = (self.random.key(), self.random.key());
        if from > to {
            std::mem::swap(&mut from, &mut to);
        }
        let bounds = match self.random.below(4) {
            0 => (Bound::Included(from), Bound::Excluded(to)),
            1 => (Bound::Excluded(from), Bound::Unbounded),
            2 => (Bound::Unbounded, Bound::Included(to)),
            _ => (Bound::Unbounded, Bound::Unbounded),
        };
        if let (Bound::Included(a), Bound::Excluded(b)) = (&bounds.0, &bounds.1)
            && a == b
        {
            return;
        }
        let turns: Vec<bool> = (0..7).map(|_| self.random.below(2) == 0).collect();
        let (keyspace, map) = &self.spaces[&name];
        let mut ours = keyspace.range(bounds.clone());
        ours.hint_len(self.random.below(300) as usize);
        let mut theirs = map.range::<Vec<u8>, _>(bounds);
        for turn in turns.iter().cycle() {
            let copy = |key: &[u8], value: &[u8]| (Slice::from(key), Slice::from(value));
            let (got, want) = match (*turn, self.random.below(2)) {
                (true, 0) => (ours.next(), theirs.next()),
                (true, _) => (ours.next_with(copy), theirs.next()),
                (false, 0) => (ours.next_back(), theirs.next_back()),
                (false, _) => (ours.next_back_with(copy), theirs.next_back()),
            };
            let got = got.transpose().expect("scan");
            let want = want.map(|(k, v)| (k.as_slice(), v.as_slice()));
            assert_eq!(got.as_ref().map(|(k, v)| (&**k, &**v)), want, "{name}");
            if got.is_none() {
                break;
            }
        }
        let prefix = b"user00";
        let got = keyspace.prefix(prefix).map(|pair| pair.expect("prefix").0.to_vec());
        let want = map.keys().filter(|key| key.starts_with(prefix)).cloned();
        assert!(got.eq(want));
        let first = keyspace.first_key_value().expect("first").map(|(k, _)| k.to_vec());
        assert_eq!(first.as_ref(), map.keys().next());
        let last = keyspace.last_key_value().expect("last").map(|(k, _)| k.to_vec());
        assert_eq!(last.as_ref(), map.keys().next_back());
    }

    fn take_snapshot(&mut self) {
        if self.snapshots.len() < 4 {
            let state = self.spaces.values().cloned().collect();
            self.snapshots.push((self.db().snapshot(), state));
        }
    }

    fn check_snapshot(&mut self) {
        let key = self.random.key();
        for (snapshot, spaces) in &self.snapshots {
            for (keyspace, map) in spaces {
                let got = snapshot.keyspace(keyspace).unwrap().get(&key).expect("get");
                assert_eq!(got.as_deref(), map.get(&key).map(Vec::as_slice));
            }
        }
        if let Some((snapshot, spaces)) = self.snapshots.first() {
            for (keyspace, map) in spaces {
                assert_same(snapshot.keyspace(keyspace).unwrap().iter(), map);
                assert!(
                    snapshot
                        .keyspace(keyspace)
                        .unwrap()
                        .iter()
                        .rev()
                        .map(|pair| pair.expect("scan").0.to_vec())
                        .eq(map.keys().rev().cloned())
                );
            }
        }
    }

    fn drop_space(&mut self) {
        let name = self.name();
        let known = self.spaces.remove(&name);
        assert_eq!(self.db().drop_keyspace(&name).expect("drop"), known.is_some());
        if let Some((keyspace, _)) = known {
            assert!(keyspace.get(b"k").is_err());
            assert!(keyspace.insert(b"k", b"v").is_err());
        }
    }

    fn clear_space(&mut self) {
        let name = self.space();
        let mut batch = self.db().batch();
        let (keyspace, map) = self.spaces.get_mut(&name).expect("made above");
        // A batch begun before the clearing and committed after it belongs to the new contents.
        batch.insert(keyspace, b"after", b"clear");
        keyspace.clear().expect("clear");
        map.clear();
        batch.commit().expect("commit");
        map.insert(b"after".to_vec(), b"clear".to_vec());
    }

    /// Drops the partition of a random key, with a batch and an iterator begun before it.
    fn drop_partition(&mut self) {
        let name = self.space();
        let key = self.random.key();
        let mut batch = self.db().batch();
        let (keyspace, map) = self.spaces.get_mut(&name).expect("made above");
        let partition = keyspace.partition_of(&key);
        let is_partitioned = keyspace.options().partitions != Partitioning::None;
        let infos = keyspace.partitions();
        assert!(infos.is_sorted_by(|a, b| a.name < b.name));
        for key in map.keys().filter(|_| is_partitioned) {
            let name = keyspace.partition_of(key);
            assert!(infos.binary_search_by(|info| info.name.cmp(&name)).is_ok(), "{key:?}");
        }
        batch.insert(keyspace, &key, b"after the drop");
        let before = map.clone();
        let mut open = keyspace.iter();
        let (begun, begun_back) = (open.next(), open.next_back());
        let was_there = keyspace.drop_partition(&partition).expect("drop");
        assert_eq!(was_there, infos.iter().any(|info| info.name == partition));
        if is_partitioned {
            map.retain(|key, _| keyspace.partition_of(key) != partition);
        }
        assert_same(keyspace.iter(), map);
        // The iterator goes on over the entries that existed when it was made.
        let mut expected = before.into_iter();
        let same = |got: Option<rhumb::Result<_>>, want: Option<(Vec<u8>, Vec<u8>)>| {
            let got = got.transpose().expect("scan");
            let got = got.map(|(k, v): (rhumb::Slice, rhumb::Slice)| (k.to_vec(), v.to_vec()));
            assert_eq!(got, want);
        };
        same(begun, expected.next());
        same(begun_back, expected.next_back());
        while expected.len() > 0 {
            same(open.next(), expected.next());
        }
        same(open.next(), None);
        batch.commit().expect("commit");
        map.insert(key, b"after the drop".to_vec());
    }

    fn ingest(&mut self) {
        let name = self.space();
        let mut fresh = Map::new();
        for _ in 0..self.random.below(60) {
            fresh.insert(self.random.key(), self.random.value());
        }
        let (keyspace, map) = self.spaces.get_mut(&name).expect("made above");
        assert_eq!(keyspace.ingest(&fresh).expect("ingest"), fresh.len() as u64);
        map.extend(fresh);
    }

    fn compact(&mut self) {
        let name = self.space();
        self.spaces[&name].0.compact().expect("compact");
    }

    fn checkpoint(&mut self) {
        let path = self.dir.with_extension(format!("checkpoint-{}", self.checkpoints));
        self.checkpoints += 1;
        self.db().checkpoint(&path).expect("checkpoint");
        let copy = open(&path, 0, self.memtables);
        assert_eq!(copy.keyspace_names(), self.spaces.keys().cloned().collect::<Vec<_>>());
        for (name, (_, map)) in &self.spaces {
            let keyspace = copy.keyspace(name, KeyspaceOptions::default()).expect("keyspace");
            assert_same(keyspace.iter(), map);
        }
        drop(copy);
        std::fs::remove_dir_all(&path).expect("remove the checkpoint");
    }

    /// Reads the database in `dir` without writing.
    fn read_alone(&self, dir: &Path, maps: &[(String, Map)]) {
        let db = builder(dir, self.threads, self.memtables).open_read_only();
        let db = db.expect("open for reading alone");
        compare(&db, maps);
    }

    /// Closes the database, reads it without writing, and opens it again. Without a pool it is also
    /// read as a killed process leaves it.
    fn reopen(&mut self) {
        self.snapshots.clear();
        let maps: Vec<(String, Map)> =
            std::mem::take(&mut self.spaces).into_iter().map(|(name, s)| (name, s.1)).collect();
        let image = self.dir.with_extension("image");
        if self.threads == 0 {
            // Nothing runs meanwhile, so the copy is what a killed process leaves.
            copy(&self.dir, &image);
            self.read_alone(&image, &maps);
            std::fs::remove_dir_all(&image).expect("remove the image");
        }
        self.db = None;
        self.read_alone(&self.dir, &maps);
        self.db = Some(open(&self.dir, self.threads, self.memtables));
        let names: Vec<String> = maps.iter().map(|(name, _)| name.clone()).collect();
        assert_eq!(self.db().keyspace_names(), names);
        for (name, map) in maps {
            // The way in which its tables are written may change at each opening.
            let mut options = self.options();
            options.partitions = Partitioning::None;
            let keyspace = self.db().keyspace(&name, options).expect("keyspace");
            assert_same(keyspace.iter(), &map);
            self.spaces.insert(name, (keyspace, map));
        }
    }
}

/// Compares all that a database shows, by every way to scan, and each key.
fn compare(db: &Database, maps: &[(String, Map)]) {
    assert!(db.keyspace_names().iter().eq(maps.iter().map(|(name, _)| name)));
    for (name, map) in maps {
        let keyspace = db.keyspace(name, KeyspaceOptions::default()).expect("keyspace");
        assert_same(keyspace.iter(), map);
        let back = keyspace.iter().rev().map(|pair| pair.expect("scan").0.to_vec());
        assert!(back.eq(map.keys().rev().cloned()));
        let keys: Vec<&Vec<u8>> = map.keys().collect();
        let found = keyspace.multi_get(&keys).expect("multi_get");
        assert!(found.iter().map(|value| value.as_deref()).eq(map.values().map(|v| Some(&**v))));
    }
}

/// Copies the files of a directory.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory") {
        let path = entry.expect("a directory").path();
        std::fs::copy(&path, to.join(path.file_name().expect("a name"))).expect("a copy");
    }
}

fn assert_same(ours: rhumb::Iter, map: &Map) {
    let mut want = map.iter();
    for pair in ours {
        let (key, value) = pair.expect("scan");
        let (k, v) = want.next().unwrap_or_else(|| panic!("a key too many: {key:?}"));
        assert_eq!((&*key, &*value), (k.as_slice(), v.as_slice()));
    }
    assert_eq!(want.next(), None, "a key too few");
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn random_histories_agree_with_a_map() {
    let first = number("RHUMB_SEED", 1);
    for seed in first..first + number("RHUMB_HISTORIES", 12) {
        let dir = tempfile::tempdir().expect("a directory");
        let mut world = World::new(dir.path().join("db"), seed);
        let steps = 400 + world.random.below(2_500);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..steps {
                world.step();
            }
            world.reopen();
        }));
        if let Err(panic) = outcome {
            eprintln!("the history of RHUMB_SEED={seed} failed");
            std::panic::resume_unwind(panic);
        }
    }
}
