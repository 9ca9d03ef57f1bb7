//! The memory that a large value takes on its way into the database and back, by the peak of the
//! whole process: alone in its process.

use std::{
    fs,
    sync::{Mutex, PoisonError},
};

use rhumb::{Database, Error, Keyspace, KeyspaceOptions};

const MIB: u64 = 1 << 20;

/// Held by the running test: each looks at the memory of the whole process, or takes some.
static ALONE: Mutex<()> = Mutex::new(());

/// The memory that the process may take besides values, in each step: memtables' first chunks,
/// buffers.
const BESIDES: u64 = 16 * MIB;

/// A line of the system's report on this process's memory, in bytes; `None` if the system has none.
fn status(name: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(name))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib << 10)
}

/// The number of bytes by which the process was larger than before at some moment of `act`; `None`
/// if the system does not say.
fn peak_of(act: impl FnOnce()) -> Option<u64> {
    let before = status("VmRSS:")?;
    // Resets the peak.
    fs::write("/proc/self/clear_refs", "5").ok()?;
    act();
    Some(status("VmHWM:")?.saturating_sub(before))
}

/// A value whose pages differ, so that all of them are resident.
fn value(bytes: u64) -> Vec<u8> {
    let mut value = vec![0_u8; usize::try_from(bytes).unwrap()];
    for (at, page) in value.chunks_mut(4096).enumerate() {
        page[0] = at as u8;
    }
    value
}

fn read_back(keyspace: &Keyspace, key: &str, bytes: u64) {
    let value = keyspace.get(key).unwrap().unwrap();
    assert_eq!((value.len() as u64, value[4096], value[0]), (bytes, 1, 0));
}

/// Checks that `act` takes at most `most` values of `bytes`, and a little more.
fn check(what: &str, bytes: u64, most: u64, act: impl FnOnce()) {
    let Some(peak) = peak_of(act) else { return };
    println!("{what}: {} MiB at most", peak / MIB);
    assert!(peak <= most * bytes + BESIDES, "{what}: {} MiB", peak / MIB);
}

/// A value that is given away is in memory once; a value that is lent is there once more than the
/// caller's own. The same holds in a batch, whatever else is in it. Reading it back takes it once.
#[test]
fn a_large_value_is_copied_no_more_than_it_must() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let size = std::env::var("RHUMB_LARGE_VALUE").ok().map(|bytes| bytes.parse::<u64>().unwrap());
    let bytes = size.unwrap_or(64 * MIB);
    let dir = tempfile::tempdir().unwrap();
    let db = Database::builder(dir.path().join("db")).open().unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    keyspace.insert("small", "1").unwrap();
    let settle = |key: &str| {
        check("flush", bytes, 0, || db.flush().unwrap());
        check("read back", bytes, 1, || read_back(&keyspace, key, bytes));
    };
    // Including the process and the caller's own: all that the value ever takes.
    check("made and given away", bytes, 1, || {
        keyspace.insert_owned("owned", value(bytes)).unwrap();
    });
    settle("owned");
    check("made and given to a batch", bytes, 1, || {
        let mut batch = db.batch();
        batch.insert_owned(&keyspace, "batch", value(bytes));
        batch.commit().unwrap();
    });
    settle("batch");
    let lent = value(bytes);
    check("lent", bytes, 1, || keyspace.insert("lent", &lent).unwrap());
    settle("lent");
    check("lent to a batch", bytes, 1, || {
        let mut batch = db.batch();
        let (head, rest) = lent.split_at(1);
        batch.insert_parts(&keyspace, "parts", &[head, rest]);
        batch.commit().unwrap();
    });
    settle("parts");
    check("lent to a batch with others", bytes, 1, || {
        let mut batch = db.batch();
        batch.insert(&keyspace, "before", "1");
        batch.insert(&keyspace, "middle", &lent);
        batch.remove(&keyspace, "before");
        batch.commit().unwrap();
    });
    settle("middle");
    assert!(keyspace.get("before").unwrap().is_none());
}

/// A large value that is not the only one of its batch, whichever comes first.
#[test]
fn batches_of_large_and_small_values_are_whole() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let db = Database::builder(dir.path().join("db")).open().unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    let large = value(MIB);
    for (round, is_owned) in [(0, false), (1, true)] {
        let key = |name: &str| format!("{name}{round}");
        let mut batch = db.batch();
        match is_owned {
            true => batch.insert_owned(&keyspace, key("first"), large.clone()),
            false => batch.insert(&keyspace, key("first"), &large),
        }
        assert_eq!(batch.len(), 1);
        batch.insert(&keyspace, key("second"), "2");
        batch.insert_owned(&keyspace, key("third"), large.clone());
        batch.remove(&keyspace, key("second"));
        assert_eq!(batch.len(), 4);
        batch.commit().unwrap();
    }
    let check = |db: &Database| {
        let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        for round in 0..2 {
            for name in ["first", "third"] {
                let found = keyspace.get(format!("{name}{round}")).unwrap();
                assert!(found.is_some_and(|found| *found == *large), "{name}{round}");
            }
            assert!(keyspace.get(format!("second{round}")).unwrap().is_none());
        }
    };
    check(&db);
    drop((db, keyspace));
    // Read from the log, or from the tables.
    check(&Database::builder(dir.path().join("db")).open().unwrap());
}

/// Long values in files are not read by one that has no room for them; in memory they cost nothing.
#[test]
fn a_long_value_is_not_read_by_one_that_wants_a_short_one() {
    const LEN: u64 = 64 * MIB;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path().join("db")).unwrap();
    let keyspace = db.keyspace("large", KeyspaceOptions::default()).unwrap();
    keyspace.insert_owned("a", value(LEN)).unwrap();
    keyspace.insert("b", "short").unwrap();
    let reader = keyspace.reader();
    assert_eq!(reader.get_at_most("a", 10).unwrap().map(|value| value.len() as u64), Some(LEN));
    db.flush().unwrap();
    check("a long value that is not read", LEN, 0, || {
        for read in [
            reader.get_at_most("a", LEN - 1).map(drop),
            reader.multi_get_at_most(&["b", "a"], 10).map(drop),
        ] {
            let Err(Error::TooLong { bytes: LEN, .. }) = read else { panic!("{read:?}") };
        }
    });
    assert_eq!(
        reader.multi_get_at_most(&["a", "b"], LEN).unwrap()[1].as_deref(),
        Some(&b"short"[..])
    );
    assert_eq!(reader.get_at_most("c", 0).unwrap(), None);
    read_back(&keyspace, "a", LEN);
}
