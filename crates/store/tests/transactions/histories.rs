//! Concurrent transactions have the anomalies of their isolation and no others.
//!
//! A tap gives the order in which transactions were committed, with all that each has written. So a
//! history needs no search: a transaction with snapshot isolation has read the state after some
//! commit before it, and nobody has written its keys since; a serializable one that writes has read
//! the state just before it, absent keys and whole ranges included.

use std::{
    collections::BTreeMap,
    sync::{Arc, Barrier, Mutex},
    thread,
};

use rhumb::{
    Change, Database, Error, Keyspace, KeyspaceOptions, Tap, Transaction, TransactionOptions,
};
use rhumb_testkit::random::Random;

const THREADS: usize = 4;
const KEYS: usize = 4;

/// How many transactions each thread runs in a history.
const EACH: usize = 3;

/// A state: the transaction that wrote each key last, if the key is there.
type State = [Option<u32>; KEYS];

/// A write, or the last one of a transaction: each writes a key of its own after all others.
enum Write {
    /// A key, and the transaction that wrote it, unless it was removed.
    Key(usize, Option<u32>),
    End(u32),
}

/// The writes in the order of their commits.
#[derive(Default)]
struct Order(Mutex<Vec<Write>>);

/// The first byte of the keys that are each one transaction's own.
const OWN: u8 = 255;

impl Tap for Order {
    fn apply(&self, change: Change<'_>) {
        let write = match change {
            Change::Insert { key, value } => {
                let number = u32::from_le_bytes(value.try_into().unwrap());
                match key[0] {
                    OWN => Write::End(number),
                    key => Write::Key(usize::from(key), Some(number)),
                }
            }
            Change::Remove { key } => Write::Key(usize::from(key[0]), None),
            _ => panic!("no ranges are removed"),
        };
        self.0.lock().unwrap().push(write);
    }

    fn publish(&self, _seq: u64) {}

    fn reset(&self) {}
}

/// What a transaction has read before it wrote.
#[derive(Clone, Debug)]
enum Read {
    Key(usize, Option<u32>),
    /// All keys.
    All(State),
}

/// A transaction that was committed.
#[derive(Clone, Debug)]
struct Committed {
    reads: Vec<Read>,
    /// The keys that it wrote, ascending, with what it left.
    writes: BTreeMap<usize, Option<u32>>,
}

fn all(transaction: &Transaction, keyspace: &Keyspace) -> State {
    let mut state = State::default();
    for pair in transaction.range(keyspace, ..[OWN]).unwrap() {
        let (key, value) = pair.unwrap();
        state[usize::from(key[0])] = Some(u32::from_le_bytes((*value).try_into().unwrap()));
    }
    state
}

/// Runs one transaction; `None` if it conflicted.
fn one(
    (db, keyspace): (&Database, &Keyspace),
    is_serializable: bool,
    random: &mut Random,
    number: u32,
) -> Option<Committed> {
    let options = TransactionOptions::default();
    let options = if is_serializable { options.serializable() } else { options };
    let mut transaction = db.transaction_with(options);
    let (mut reads, mut writes) = (Vec::new(), BTreeMap::new());
    for _ in 0..1 + random.below(2) {
        if random.one_in(3) {
            reads.push(Read::All(all(&transaction, keyspace)));
        } else {
            let key = random.index(KEYS);
            let value = transaction.get(keyspace, [key as u8]).unwrap();
            let value = value.map(|value| u32::from_le_bytes((*value).try_into().unwrap()));
            reads.push(Read::Key(key, value));
        }
        if random.one_in(2) {
            thread::yield_now();
        }
    }
    for _ in 0..1 + random.below(2) {
        let key = random.index(KEYS);
        if random.one_in(4) {
            transaction.remove(keyspace, [key as u8]).unwrap();
            writes.insert(key, None);
        } else {
            transaction.insert(keyspace, [key as u8], &number.to_le_bytes()[..]).unwrap();
            writes.insert(key, Some(number));
        }
    }
    let own = [&[OWN][..], &number.to_be_bytes()].concat();
    transaction.insert(keyspace, own, &number.to_le_bytes()[..]).unwrap();
    match transaction.commit() {
        Ok(()) => Some(Committed { reads, writes }),
        Err(Error::Conflict { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

/// What a history had.
#[derive(Debug, Default)]
struct Found {
    committed: usize,
    conflicts: usize,
    /// Transactions that read what others wrote before they were committed themselves: the write
    /// skews and phantoms that snapshot isolation lets pass.
    skews: usize,
}

fn history(seed: u64, is_serializable: bool, found: &mut Found) {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::builder(dir.path().join("db")).background_threads(0).open().unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    let order = Arc::new(Order::default());
    let followed = keyspace.follow(order.clone()).unwrap();
    let (barrier, committed) = (Barrier::new(THREADS), Mutex::new(BTreeMap::new()));
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (db, keyspace, barrier, committed) = (&db, &keyspace, &barrier, &committed);
            scope.spawn(move || {
                let mut random = Random::new(seed * THREADS as u64 + thread as u64);
                barrier.wait();
                for at in 0..EACH {
                    let number = (thread * EACH + at) as u32;
                    let done = one((db, keyspace), is_serializable, &mut random, number);
                    committed.lock().unwrap().extend(done.map(|one| (number, one)));
                }
            });
        }
    });
    drop(followed);
    let committed = committed.into_inner().unwrap();
    found.committed += committed.len();
    found.conflicts += THREADS * EACH - committed.len();
    let states = states(&order.0.lock().unwrap(), committed);
    for (at, one) in &states.order {
        check(one, *at, &states, is_serializable, found, seed);
    }
}

/// The states after each commit, and which transaction each commit was.
struct States {
    after: Vec<State>,
    order: Vec<(usize, Committed)>,
}

/// Takes the writes apart into those of each transaction, which end with its own key.
fn states(writes: &[Write], mut committed: BTreeMap<u32, Committed>) -> States {
    let (mut state, mut own) = (State::default(), BTreeMap::new());
    let mut states = States { after: vec![state], order: Vec::new() };
    for write in writes {
        match write {
            Write::Key(key, value) => {
                assert!(own.insert(*key, *value).is_none(), "a key is written twice");
            }
            Write::End(number) => {
                let one = committed.remove(number).expect("one that was not committed has written");
                assert_eq!(std::mem::take(&mut own), one.writes, "half of it was committed");
                for (key, value) in &one.writes {
                    state[*key] = *value;
                }
                states.after.push(state);
                states.order.push((states.after.len() - 1, one));
            }
        }
    }
    assert!(committed.is_empty() && own.is_empty(), "commits that nobody was told of");
    states
}

fn is_of(reads: &[Read], state: &State) -> bool {
    reads.iter().all(|read| match read {
        Read::Key(key, value) => state[*key] == *value,
        Read::All(all) => all == state,
    })
}

fn check(
    one: &Committed,
    at: usize,
    states: &States,
    is_serializable: bool,
    found: &mut Found,
    seed: u64,
) {
    let before = &states.after[..at];
    if is_of(&one.reads, &before[at - 1]) {
        return;
    }
    assert!(
        !is_serializable,
        "seed {seed}: {one:?} has read another state than {:?}",
        before[at - 1]
    );
    let is_free = |from: &usize| {
        let between = &states.order[*from..at - 1];
        between
            .iter()
            .all(|(_, other)| other.writes.keys().all(|key| !one.writes.contains_key(key)))
    };
    let mut moments = (0..at).filter(|from| is_of(&one.reads, &before[*from]));
    assert!(moments.any(|from| is_free(&from)), "seed {seed}: {one:?} is of no moment");
    found.skews += 1;
}

#[test]
fn concurrent_transactions_have_no_more_anomalies_than_they_may() {
    let histories = std::env::var("RHUMB_TRANSACTION_HISTORIES").ok();
    let histories: u64 = histories.map_or(200, |text| text.parse().unwrap());
    let (mut snapshot, mut serializable) = (Found::default(), Found::default());
    for seed in 0..histories {
        history(seed, false, &mut snapshot);
        history(seed, true, &mut serializable);
    }
    println!("snapshot isolation: {snapshot:?}\nserializable: {serializable:?}");
    assert!(snapshot.committed > 0 && serializable.committed > 0);
}
