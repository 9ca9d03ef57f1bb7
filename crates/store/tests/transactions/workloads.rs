//! What transactions are used for, by eight threads: sums stay, sets hold what was added, counts
//! are those of the range.

use std::thread;

use rhumb::{Database, Error, Keyspace, KeyspaceOptions, TransactionOptions};
use rhumb_testkit::random::Random;

const THREADS: u64 = 8;

/// Enough for any thread to get through beside seven others.
const RETRIES: u32 = 100_000;

fn rounds() -> u64 {
    let set = std::env::var("RHUMB_TRANSACTION_ROUNDS").ok();
    set.map_or(200, |text| text.parse().unwrap())
}

fn open() -> (tempfile::TempDir, Database, Keyspace) {
    let dir = tempfile::tempdir().unwrap();
    // Memtables are flushed while transactions are open.
    let db = Database::builder(dir.path().join("db")).memtable_bytes(64 << 10).open().unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    (dir, db, keyspace)
}

fn threads(work: impl Fn(u64, &mut Random) + Sync) {
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let work = &work;
            scope.spawn(move || work(thread, &mut Random::new(thread)));
        }
    });
}

fn number(value: Option<rhumb::Slice>) -> u64 {
    value.map_or(0, |value| u64::from_le_bytes((*value).try_into().unwrap()))
}

/// Money that moves between accounts is neither made nor lost, at any moment.
#[test]
fn a_bank_keeps_its_sum() {
    const ACCOUNTS: u64 = 10;
    let (_dir, db, accounts) = open();
    for account in 0..ACCOUNTS {
        accounts.insert(account.to_be_bytes(), 100_u64.to_le_bytes()).unwrap();
    }
    threads(|thread, random| {
        for _ in 0..rounds() {
            if thread == 0 {
                let all = db.transaction();
                let sum: u64 =
                    all.iter(&accounts).unwrap().map(|pair| number(Some(pair.unwrap().1))).sum();
                assert_eq!(sum, 100 * ACCOUNTS);
                continue;
            }
            let (from, to) = (random.below(ACCOUNTS), random.below(ACCOUNTS));
            let move_some = |transaction: &mut rhumb::Transaction| {
                let left = number(transaction.get(&accounts, from.to_be_bytes())?);
                let amount = random.below(10).min(left);
                transaction.insert(&accounts, from.to_be_bytes(), (left - amount).to_le_bytes())?;
                let there = number(transaction.get(&accounts, to.to_be_bytes())?);
                transaction.insert(&accounts, to.to_be_bytes(), (there + amount).to_le_bytes())
            };
            db.transact(RETRIES, move_some).unwrap();
        }
    });
    let sum: u64 = accounts.iter().map(|pair| number(Some(pair.unwrap().1))).sum();
    assert_eq!(sum, 100 * ACCOUNTS);
}

/// What is added to a list in one value is there in the end, each once.
#[test]
fn a_set_loses_nothing() {
    let (_dir, db, sets) = open();
    threads(|thread, _| {
        for round in 0..rounds() {
            let add = |transaction: &mut rhumb::Transaction| {
                let before = transaction.get(&sets, "set")?;
                let mut all = before.map(|value| value.to_vec()).unwrap_or_default();
                all.extend((thread * rounds() + round).to_le_bytes());
                transaction.insert(&sets, "set", all)
            };
            db.transact(RETRIES, add).unwrap();
        }
    });
    let all = sets.get("set").unwrap().unwrap();
    let mut members: Vec<u64> =
        all.chunks(8).map(|member| u64::from_le_bytes(member.try_into().unwrap())).collect();
    members.sort_unstable();
    assert_eq!(members, (0..THREADS * rounds()).collect::<Vec<_>>());
}

/// Each adds a key with the number of keys that are there: without phantoms no two are the same.
#[test]
fn counts_of_a_range_have_no_phantoms() {
    let (_dir, db, keys) = open();
    threads(|thread, _| {
        for round in 0..rounds() / 4 {
            let count = |transaction: &mut rhumb::Transaction| {
                let count = transaction.prefix(&keys, "n")?.count() as u64;
                let key = format!("n{thread} {round}");
                transaction.insert(&keys, key, count.to_le_bytes())
            };
            let options = TransactionOptions::default().serializable();
            db.transact_with(options, RETRIES, count).unwrap();
        }
    });
    let mut counts: Vec<u64> = keys.iter().map(|pair| number(Some(pair.unwrap().1))).collect();
    counts.sort_unstable();
    assert_eq!(counts, (0..THREADS * (rounds() / 4)).collect::<Vec<_>>());
}

/// With snapshot isolation two doctors may both leave; serializable ones may not.
#[test]
fn write_skew_is_what_serializable_ones_are_for() {
    let (_dir, db, doctors) = open();
    for is_serializable in [false, true] {
        doctors.insert("ada", "").unwrap();
        doctors.insert("grace", "").unwrap();
        let options = TransactionOptions::default();
        let options = if is_serializable { options.serializable() } else { options };
        let leave = |name: &str| {
            let mut transaction = db.transaction_with(options.clone());
            assert_eq!(transaction.iter(&doctors).unwrap().count(), 2);
            transaction.remove(&doctors, name).unwrap();
            transaction
        };
        let (first, second) = (leave("ada"), leave("grace"));
        first.commit().unwrap();
        let second = second.commit();
        assert_eq!(matches!(second, Err(Error::Conflict { .. })), is_serializable, "{second:?}");
    }
}

/// A walk that ends early depends on the keys that it has passed, the last one too, and no others.
#[test]
fn a_walk_depends_on_what_it_has_passed() {
    let (_dir, db, keys) = open();
    for (is_front, changed, conflicts) in [
        (true, "b", true),
        (true, "c", false),
        (true, "a5", true),
        (false, "d", true),
        (false, "c", false),
        (false, "d5", true),
        (false, "z", true),
    ] {
        keys.remove_range(..).unwrap();
        ["a", "b", "c", "d", "e"].iter().for_each(|key| keys.insert(key, "").unwrap());
        let mut walking = db.transaction_with(TransactionOptions::default().serializable());
        let mut walk = walking.iter(&keys).unwrap();
        for _ in 0..2 {
            let _ = if is_front { walk.next() } else { walk.next_back() };
        }
        drop(walk);
        walking.insert(&keys, "own", "").unwrap();
        keys.insert(changed, "other").unwrap();
        let done = walking.commit();
        assert_eq!(matches!(done, Err(Error::Conflict { .. })), conflicts, "{is_front} {changed}");
    }
}
