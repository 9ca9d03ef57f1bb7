//! Transactions that are open at the same time, driven by one thread, agree with a model in all
//! that they read and in which of them conflict.

use std::{collections::BTreeMap, ops::Bound};

use rhumb::{
    Database, Error, Keyspace, KeyspaceOptions, Partitioning, Savepoint, Transaction,
    TransactionOptions,
};
use rhumb_testkit::random::Random;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;
type Ends = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Keys of the model: few, so that transactions meet.
const KEYS: u64 = 24;
const OPEN_MAX: usize = 4;
const STEPS: usize = 400;

/// What one commit has changed.
#[derive(Clone, Debug)]
enum Changed {
    Key(usize, Vec<u8>),
    Range(usize, Ends),
    Keyspace(usize),
}

impl Changed {
    fn place(&self) -> usize {
        match self {
            Self::Key(place, _) | Self::Range(place, _) | Self::Keyspace(place) => *place,
        }
    }
}

struct Modelled<'d> {
    real: Transaction,
    /// The keyspaces as the transaction sees them.
    sees: [Map; 2],
    /// How many changes had been committed when it began.
    began: usize,
    is_serializable: bool,
    written: Vec<Changed>,
    read: Vec<Changed>,
    savepoints: Vec<(Savepoint, [Map; 2], usize)>,
    keyspaces: &'d [Keyspace; 2],
}

fn key_of(random: &mut Random) -> Vec<u8> {
    let n = random.below(KEYS);
    // Some are prefixes of others.
    format!("{}{}", (b'a' + (n % 6) as u8) as char, "x".repeat((n / 6) as usize)).into_bytes()
}

fn ends_of(random: &mut Random) -> Ends {
    let end = |random: &mut Random| match random.below(4) {
        0 => Bound::Unbounded,
        1 => Bound::Excluded(key_of(random)),
        _ => Bound::Included(key_of(random)),
    };
    (end(random), end(random))
}

fn contains((from, to): &Ends, key: &[u8]) -> bool {
    let is_after = match from {
        Bound::Unbounded => true,
        Bound::Included(from) => key >= &from[..],
        Bound::Excluded(from) => key > &from[..],
    };
    is_after
        && match to {
            Bound::Unbounded => true,
            Bound::Included(to) => key <= &to[..],
            Bound::Excluded(to) => key < &to[..],
        }
}

/// Returns true if some key may lie in both: keys are dense enough for that if the ends are in
/// order.
fn meet(a: &Ends, b: &Ends) -> bool {
    // The larger of the lower ends and the smaller of the upper ones, by hand: the engine has
    // half-open ranges only.
    let low = |ends: &Ends| match &ends.0 {
        Bound::Unbounded => Vec::new(),
        Bound::Included(key) => key.clone(),
        Bound::Excluded(key) => [&key[..], &[0]].concat(),
    };
    let high = |ends: &Ends| match &ends.1 {
        Bound::Unbounded => None,
        Bound::Included(key) => Some([&key[..], &[0]].concat()),
        Bound::Excluded(key) => Some(key.clone()),
    };
    let from = low(a).max(low(b));
    [high(a), high(b)].into_iter().flatten().all(|to| from < to)
}

fn is_some((from, to): &Ends) -> bool {
    meet(&(from.clone(), to.clone()), &(Bound::Unbounded, Bound::Unbounded))
}

fn clash(a: &Changed, b: &Changed) -> bool {
    match (a, b) {
        (Changed::Key(p, a), Changed::Key(q, b)) => p == q && a == b,
        (Changed::Range(p, ends), Changed::Key(q, key))
        | (Changed::Key(q, key), Changed::Range(p, ends)) => p == q && contains(ends, key),
        (Changed::Range(p, a), Changed::Range(q, b)) => p == q && meet(a, b),
        (Changed::Keyspace(_), _) | (_, Changed::Keyspace(_)) => false,
    }
}

impl Modelled<'_> {
    fn conflicts(&self, committed: &[Changed]) -> bool {
        let depends = self.written.iter().chain(&self.read);
        !self.written.is_empty()
            && committed[self.began..].iter().any(|change| match change {
                Changed::Keyspace(place) => depends.clone().any(|one| one.place() == *place),
                change => depends.clone().any(|one| clash(one, change)),
            })
    }

    fn step(&mut self, random: &mut Random) {
        let place = random.index(2);
        let keyspace = &self.keyspaces[place];
        let key = key_of(random);
        match random.below(12) {
            0..=2 => {
                let value = random.next().to_le_bytes()[..random.index(8)].to_vec();
                self.real.insert(keyspace, &key, value.clone()).unwrap();
                self.sees[place].insert(key.clone(), value);
                self.written.push(Changed::Key(place, key));
            }
            3 => {
                self.real.remove(keyspace, &key).unwrap();
                self.sees[place].remove(&key);
                self.written.push(Changed::Key(place, key));
            }
            4 => {
                let ends = ends_of(random);
                self.real.remove_range(keyspace, ends.clone()).unwrap();
                self.sees[place].retain(|key, _| !contains(&ends, key));
                if is_some(&ends) {
                    self.written.push(Changed::Range(place, ends));
                }
            }
            5 | 6 => {
                let real = self.real.get(keyspace, &key).unwrap();
                assert_eq!(real.as_deref(), self.sees[place].get(&key).map(Vec::as_slice));
                let is_there = self.real.contains_key(keyspace, &key).unwrap();
                assert_eq!(is_there, self.sees[place].contains_key(&key));
                self.note_key(place, key);
            }
            7 | 8 => self.walk(random, place),
            9 => {
                let savepoint = self.real.savepoint();
                self.savepoints.push((savepoint, self.sees.clone(), self.written.len()));
            }
            10 if !self.savepoints.is_empty() => {
                let at = random.index(self.savepoints.len());
                self.savepoints.truncate(at + 1);
                let (savepoint, sees, written) = self.savepoints[at].clone();
                self.real.rollback_to(savepoint).unwrap();
                self.sees = sees;
                self.written.truncate(written);
            }
            _ => {
                let all: Map = self.read_all(place);
                assert_eq!(all, self.sees[place]);
                if self.is_serializable {
                    self.read.push(Changed::Range(place, (Bound::Unbounded, Bound::Unbounded)));
                }
            }
        }
    }

    /// Keys that the transaction itself has decided are no reads.
    fn note_key(&mut self, place: usize, key: Vec<u8>) {
        let is_own = self.written.iter().any(|one| match one {
            Changed::Key(at, written) => *at == place && *written == key,
            Changed::Range(at, ends) => *at == place && contains(ends, &key),
            Changed::Keyspace(_) => false,
        });
        if self.is_serializable && !is_own {
            self.read.push(Changed::Key(place, key));
        }
    }

    fn read_all(&self, place: usize) -> Map {
        let pairs = self.real.iter(&self.keyspaces[place]).unwrap();
        pairs.map(|pair| pair.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()).collect()
    }

    /// Walks a range from both ends, some steps or all of it.
    fn walk(&mut self, random: &mut Random, place: usize) {
        let ends = ends_of(random);
        let inside = self.sees[place].iter().filter(|(key, _)| contains(&ends, key));
        let mut expected: std::collections::VecDeque<_> =
            inside.map(|(key, value)| (key.clone(), value.clone())).collect();
        let mut walk = self.real.range(&self.keyspaces[place], ends.clone()).unwrap();
        let (mut front, mut back, mut is_whole) = (None, None, false);
        for _ in 0..random.below(2 * KEYS) {
            let is_front = random.one_in(2);
            let (real, model) = if is_front {
                (walk.next(), expected.pop_front())
            } else {
                (walk.next_back(), expected.pop_back())
            };
            let real = real.map(|pair| pair.map(|(key, value)| (key.to_vec(), value.to_vec())));
            assert_eq!(real.map(Result::unwrap), model);
            let Some((key, _)) = model else {
                is_whole = true;
                break;
            };
            *if is_front { &mut front } else { &mut back } = Some(key);
        }
        drop(walk);
        if !self.is_serializable || !is_some(&ends) {
            return;
        }
        if is_whole {
            return self.read.push(Changed::Range(place, ends));
        }
        let (from, to) = ends;
        self.read.extend(front.map(|key| Changed::Range(place, (from, Bound::Included(key)))));
        self.read.extend(back.map(|key| Changed::Range(place, (Bound::Included(key), to))));
    }
}

fn run(seed: u64) -> [u32; 2] {
    let mut random = Random::new(seed);
    let dir = tempfile::tempdir().unwrap();
    let builder = Database::builder(dir.path().join("db")).background_threads(0);
    let db = builder.memtable_bytes(1 << 14).open().unwrap();
    let has_partitions = seed.is_multiple_of(2);
    let parts = if has_partitions { Partitioning::PrefixLength(1) } else { Partitioning::None };
    let options = KeyspaceOptions { partitions: parts, ..KeyspaceOptions::default() };
    let keyspaces = [
        db.keyspace("plain", KeyspaceOptions::default()).unwrap(),
        db.keyspace("parts", options).unwrap(),
    ];
    let (mut now, mut committed) = ([Map::new(), Map::new()], Vec::new());
    let (mut open, mut ends): (Vec<Modelled<'_>>, [u32; 2]) = (Vec::new(), [0; 2]);
    for _ in 0..STEPS {
        match random.below(20) {
            0 | 1 if open.len() < OPEN_MAX => {
                let is_serializable = random.one_in(2);
                let options = TransactionOptions::default();
                let options = if is_serializable { options.serializable() } else { options };
                open.push(Modelled {
                    real: db.transaction_with(options),
                    sees: now.clone(),
                    began: committed.len(),
                    is_serializable,
                    written: Vec::new(),
                    read: Vec::new(),
                    savepoints: Vec::new(),
                    keyspaces: &keyspaces,
                });
            }
            2 | 3 if !open.is_empty() => {
                let one = open.swap_remove(random.index(open.len()));
                let expected = one.conflicts(&committed);
                let real = one.real.commit();
                let conflicts = matches!(real, Err(Error::Conflict { .. }));
                // A removal from partitions that are not there is none.
                let is_as_expected = conflicts == expected || (has_partitions && expected);
                assert!(is_as_expected, "seed {seed}: {real:?}");
                ends[usize::from(conflicts)] += 1;
                if !conflicts {
                    real.unwrap();
                    apply(&one.written, &one.sees, &mut now);
                    committed.extend(one.written);
                }
            }
            4 if !open.is_empty() => drop(open.swap_remove(random.index(open.len()))),
            5 => {
                let (place, key) = (random.index(2), key_of(&mut random));
                keyspaces[place].insert(&key, "plain").unwrap();
                now[place].insert(key.clone(), b"plain".to_vec());
                committed.push(Changed::Key(place, key));
            }
            6 if random.one_in(4) => db.flush().unwrap(),
            7 if random.one_in(8) => {
                let place = random.index(2);
                keyspaces[place].clear().unwrap();
                now[place].clear();
                committed.push(Changed::Keyspace(place));
            }
            _ if !open.is_empty() => {
                let at = random.index(open.len());
                open[at].step(&mut random);
            }
            _ => {}
        }
    }
    for (keyspace, now) in keyspaces.iter().zip(&now) {
        let all = keyspace.iter().map(|pair| pair.unwrap());
        let all: Map = all.map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
        assert_eq!(all, *now, "seed {seed}");
    }
    ends
}

/// What a commit does to the keyspaces: what it has written takes the values that it sees.
fn apply(written: &[Changed], sees: &[Map; 2], now: &mut [Map; 2]) {
    for change in written {
        match change {
            Changed::Range(place, ends) => now[*place].retain(|key, _| !contains(ends, key)),
            Changed::Key(..) | Changed::Keyspace(_) => {}
        }
    }
    for change in written {
        let (place, touched): (usize, Vec<Vec<u8>>) = match change {
            Changed::Key(place, key) => (*place, vec![key.clone()]),
            Changed::Range(place, ends) => {
                let inside = sees[*place].keys().filter(|key| contains(ends, key));
                (*place, inside.cloned().collect())
            }
            Changed::Keyspace(_) => continue,
        };
        for key in touched {
            match sees[place].get(&key) {
                Some(value) => now[place].insert(key, value.clone()),
                None => now[place].remove(&key),
            };
        }
    }
}

#[test]
fn transactions_agree_with_a_model() {
    let seeds = std::env::var("RHUMB_TRANSACTION_SEEDS").ok();
    let seeds: u64 = seeds.map_or(150, |text| text.parse().unwrap());
    let mut ends = [0; 2];
    for seed in 0..seeds {
        let [committed, conflicts] = run(seed);
        (ends[0], ends[1]) = (ends[0] + committed, ends[1] + conflicts);
    }
    println!("{} commits and {} conflicts", ends[0], ends[1]);
    assert!(ends[0] > 500 && ends[1] > 100, "{ends:?}");
}

/// Found by fuzzing: a walk between ends that cross was a conflict with the removal of a range
/// around both.
#[test]
fn a_range_that_can_have_no_keys_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path().join("db")).unwrap();
    let [read, written] =
        ["read", "written"].map(|name| db.keyspace(name, KeyspaceOptions::default()).unwrap());
    let mut one = db.transaction_with(TransactionOptions::default().serializable());
    one.insert(&written, "a", "").unwrap();
    assert!(one.range(&read, "d".."b").unwrap().next().is_none());
    read.remove_range("a".."z").unwrap();
    read.clear().unwrap();
    one.commit().unwrap();
}

#[test]
fn memory_and_savepoints_have_their_limits() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path().join("db")).unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    let options = TransactionOptions::default().memory_bytes_max(1000);
    let mut small = db.transaction_with(options.serializable());
    small.insert(&keyspace, "a", vec![1; 300]).unwrap();
    let refused = small.insert(&keyspace, "b", vec![1; 700]);
    assert!(matches!(refused, Err(Error::Exhausted(_))), "{refused:?}");
    assert!(small.bytes() < 1000 && !small.contains_key(&keyspace, "b").unwrap());
    let mut other = db.transaction();
    let savepoint = other.savepoint();
    assert!(matches!(small.rollback_to(savepoint), Err(Error::InvalidArgument(_))));
    other.insert(&keyspace, "c", "").unwrap();
    let later = other.savepoint();
    other.rollback_to(savepoint).unwrap();
    assert!(matches!(other.rollback_to(later), Err(Error::InvalidArgument(_))));
    assert_eq!((other.bytes(), db.stats().open_transactions), (0, 2));
    small.commit().unwrap();
    drop(other);
    assert_eq!(db.stats().open_transactions, 0);
    let elsewhere = Database::open(dir.path().join("other")).unwrap();
    let foreign = elsewhere.keyspace("k", KeyspaceOptions::default()).unwrap();
    let mut one = db.transaction();
    for refused in [
        one.insert(&foreign, "a", "").map(drop),
        one.get(&foreign, "a").map(drop),
        one.range(&foreign, ..).map(drop),
        one.insert(&keyspace, vec![0; 1 << 17], ""),
    ] {
        assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{refused:?}");
    }
}

/// What is committed while a transaction is open is kept up to a limit; after that it conflicts.
#[test]
fn one_that_is_open_too_long_conflicts() {
    const LEN: usize = 16 << 20;
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path().join("db")).unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    let write = |key: &str| {
        let mut transaction = db.transaction();
        transaction.insert(&keyspace, key, "").unwrap();
        transaction
    };
    let (early, late) = (write("early"), write("late"));
    keyspace.insert("large", vec![1; LEN]).unwrap();
    early.commit().unwrap();
    for _ in 0..256 / (LEN >> 20) + 1 {
        keyspace.insert("large", vec![1; LEN]).unwrap();
    }
    let refused = late.commit();
    let Err(Error::Conflict { key, .. }) = &refused else { panic!("{refused:?}") };
    assert!(key.is_empty() && db.stats().transaction_conflicts == 1);
    write("late").commit().unwrap();
}
