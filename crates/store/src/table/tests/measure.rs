//! Figures, not checks: run one with
//! `cargo test --release -p rhumb --lib -- --ignored --nocapture table::tests::measure`.

use std::{hint::black_box, time::Duration};

use super::*;
use crate::table::BlockIndexKind;

const PROBES: u64 = 2_000_000;
/// Entries of a table of about 64 MiB.
const TABLE_ENTRIES: usize = 550_000;

fn key(number: u64) -> [u8; 16] {
    let mix = |mut x: u64| {
        x = (x ^ x >> 31).wrapping_mul(0x7FB5_D329_728E_A185);
        x = (x ^ x >> 27).wrapping_mul(0x81DA_DEF4_BC2D_D44D);
        x ^ x >> 33
    };
    let high = mix(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&high.to_be_bytes());
    bytes[8..].copy_from_slice(&mix(high ^ number).to_be_bytes());
    bytes
}

fn tables(fixture: &Fixture, index: BlockIndexKind, entries: u64) -> Vec<Arc<Table>> {
    let mut keys: Vec<_> = (0..entries).map(|number| (key(number), number)).collect();
    keys.sort_unstable();
    let options = TableLayout { index, compression: Compression::None, ..TableLayout::default() };
    let mut value = [7; 100];
    let mut tables = Vec::new();
    for (id, chunk) in (1..).zip(keys.chunks(TABLE_ENTRIES)) {
        let mut writer = TableWriter::create(&fixture.ctx, id, &options);
        for (key, number) in chunk {
            value[..8].copy_from_slice(&number.to_le_bytes());
            writer.add(key, *number, Kind::Value, &value).unwrap();
        }
        tables.push(fixture.open(&writer.finish().unwrap()));
    }
    tables
}

/// The time that this thread has run, so that other programs on the machine hardly affect it.
fn thread_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

fn report(what: &str, count: u64, time: Duration) {
    let nanos = time.as_nanos() as f64 / count as f64;
    eprintln!("{what:<28} {nanos:>8.1} ns, {:>7.2} million/s", 1000.0 / nanos);
}

/// The time of `PROBES` lookups of keys that `number` picks.
fn lookups(tables: &[Arc<Table>], found: bool, number: impl Fn(u64) -> u64) -> Duration {
    let start = thread_time();
    for probe in 0..PROBES {
        let key = key(number(probe));
        let place = tables.partition_point(|t| *t.meta().largest < key[..]);
        let table = &tables[place.min(tables.len() - 1)];
        let lookup = table.lookup(&pin(), None, &key, KeyHash::of(&key), SeqNo::MAX >> 8).unwrap();
        assert_eq!(found, matches!(lookup, Lookup::Value(..)));
        black_box(&lookup);
    }
    thread_time() - start
}

fn scan(tables: &[Arc<Table>], access: Access) -> u64 {
    let mut entries = 0;
    for table in tables {
        let mut cursor = TableCursor::new(Arc::clone(table), access);
        let mut step = cursor.first().unwrap();
        loop {
            cursor.drive(step).unwrap();
            if !cursor.is_valid() {
                break;
            }
            black_box((cursor.key(), cursor.value()));
            entries += 1;
            step = cursor.next().unwrap();
        }
    }
    entries
}

fn figures(index: BlockIndexKind, entries: u64) {
    eprintln!("{index:?}: {entries} entries of 16 + 100 bytes");
    let fixture = Fixture::new(4 << 30);
    let start = thread_time();
    let tables = tables(&fixture, index, entries);
    report("write", entries, thread_time() - start);
    let start = thread_time();
    assert_eq!(scan(&tables, Access::Sequential), entries);
    report("scan, from the page cache", entries, thread_time() - start);
    let start = thread_time();
    assert_eq!(scan(&tables, Access::Cached), entries);
    report("scan that fills the cache", entries, thread_time() - start);
    for _ in 0..2 {
        let present = |probe: u64| probe.wrapping_mul(0xD6E8_FEB8_6659_FD93) % entries;
        report("lookup, found", PROBES, lookups(&tables, true, present));
        report("lookup, absent", PROBES, lookups(&tables, false, |probe| entries + probe));
        let start = thread_time();
        assert_eq!(scan(&tables, Access::Cached), entries);
        report("scan, resident", entries, thread_time() - start);
    }
    let sum = |bytes: fn(&Table) -> usize| tables.iter().map(|t| bytes(t)).sum::<usize>();
    eprintln!(
        "{} tables, {} blocks; encoded index {} bytes, pinned {} bytes, filters {} bytes",
        tables.len(),
        sum(|t| t.index().block_count() as usize),
        sum(|t| t.index().encoded_bytes()),
        sum(|t| t.pinned_bytes() as usize),
        sum(Table::filter_bytes),
    );
}

#[test]
#[ignore = "measures"]
fn learned() {
    figures(BlockIndexKind::Learned, 5_000_000);
}

#[test]
#[ignore = "measures"]
fn binary_search() {
    figures(BlockIndexKind::BinarySearch, 5_000_000);
}

/// A table that fits the processor's own caches: the cost of the instructions alone.
#[test]
#[ignore = "measures"]
fn learned_and_small() {
    figures(BlockIndexKind::Learned, 20_000);
}
