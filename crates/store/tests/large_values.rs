//! What a large value takes in memory on its way into the database, by the peak of the whole
//! process: alone in its process.

use std::{fs, time::Instant};

use rhumb::{Database, KeyspaceOptions};

const MIB: u64 = 1 << 20;

/// The most memory that this process ever had, in bytes; none where the system does not say.
fn peak_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib << 10)
}

/// An owned value is copied once, into the record that the memtable keeps: with the caller's, two.
/// That stays so while it is flushed, and while it is read back there is one more.
#[test]
fn a_large_value_is_in_memory_twice_at_most() {
    let size = std::env::var("RHUMB_LARGE_VALUE_MIB").ok().map(|mib| mib.parse::<u64>().unwrap());
    let bytes = size.unwrap_or(64) * MIB;
    let dir = tempfile::tempdir().unwrap();
    let db = Database::builder(dir.path().join("db")).open().unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    keyspace.insert("small", "1").unwrap();
    let Some(before) = peak_bytes() else { return };
    let mut value = vec![0_u8; usize::try_from(bytes).unwrap()];
    for (at, page) in value.chunks_mut(4096).enumerate() {
        page[0] = at as u8;
    }
    let begun = Instant::now();
    keyspace.insert("large", value).unwrap();
    let inserted = peak_bytes().unwrap() - before;
    println!("{} MiB: {} MiB at most, {:?}", bytes / MIB, inserted / MIB, begun.elapsed());
    assert!(inserted <= 2 * bytes + 16 * MIB, "{} MiB while inserting", inserted / MIB);
    db.flush().unwrap();
    let flushed = peak_bytes().unwrap() - before;
    assert!(flushed <= 2 * bytes + 16 * MIB, "{} MiB while flushing", flushed / MIB);
    let value = keyspace.get("large").unwrap().unwrap();
    assert_eq!((value.len() as u64, value[4096]), (bytes, 1));
}
