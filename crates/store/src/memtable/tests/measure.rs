//! Measurements, not checks. Run them with
//! `cargo test --release -p rhumb --lib -- --ignored --nocapture memtable::tests::measure`.
//! `RHUMB_KEY_FILES` names files of keys (numbers in files that end in `.u64`, otherwise one key
//! per line), and `RHUMB_SETS` selects the sets.

use std::{hint::black_box, path::PathBuf, time::Duration};

use super::*;

const KEYS: usize = 1_000_000;
const VALUE: [u8; 100] = [7; 100];
const ROUNDS: usize = 3;

/// The time that this thread has run, so that other programs on the machine hardly count.
fn thread_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 31).wrapping_mul(0x7FB5_D329_728E_A185);
    x = (x ^ x >> 27).wrapping_mul(0x81DA_DEF4_BC2D_D44D);
    x ^ x >> 33
}

/// A key of sixteen bytes that begins with a number, as in the engine's benchmark.
fn number_key(number: u64) -> Vec<u8> {
    let mut key = number.to_be_bytes().to_vec();
    key.extend(mix(number).to_be_bytes());
    key
}

/// Shuffles in an order that is always the same.
fn shuffle(keys: &mut [Vec<u8>]) {
    for i in (1..keys.len()).rev() {
        keys.swap(i, (mix(i as u64 * 77) % (i as u64 + 1)) as usize);
    }
}

fn sets() -> Vec<(String, Vec<Vec<u8>>)> {
    let n = KEYS as u64;
    let numbers = |f: &dyn Fn(u64) -> u64| (0..n).map(|i| number_key(f(i))).collect::<Vec<_>>();
    let texts = |f: &dyn Fn(u64) -> String| (0..n).map(|i| f(i).into_bytes()).collect::<Vec<_>>();
    // Runs of close keys, at very different distances from each other.
    let hard = |i: u64| {
        let run = mix(i / 64);
        (run >> (run % 40)) << 16 | mix(i) & 0xffff
    };
    let mut sets = vec![
        ("random".into(), numbers(&|i| mix(i + 1))),
        ("sequential".into(), numbers(&|i| i << 20)),
        ("hard".into(), numbers(&hard)),
        ("runs".into(), numbers(&hard)),
        ("decimal".into(), texts(&|i| format!("{:020}", i * 1_000_003_919))),
        ("digits".into(), texts(&|i| format!("{:020}", mix(i)))),
        ("hex".into(), texts(&|i| format!("{:016x}", mix(i)))),
        ("user".into(), texts(&|i| format!("user{:012}", mix(i) % 1_000_000_000_000))),
        (
            "url".into(),
            texts(&|i| {
                let (host, page) = (mix(i % 5_000), mix(i));
                format!("https://www.site{host:x}.example/articles/2024/{page:016x}.html")
            }),
        ),
        ("prefixes".into(), texts(&|i| format!("{}{}", "ab".repeat((mix(i) % 60) as usize), i))),
    ];
    // "runs" come one after the other.
    sets.iter_mut().filter(|(name, _)| name == "hard").for_each(|(_, keys)| shuffle(keys));
    let files = std::env::var_os("RHUMB_KEY_FILES").unwrap_or_default();
    for path in std::env::split_paths(&files).filter(|path| path.is_file()) {
        let text = std::fs::read(&path).unwrap();
        let mut keys: Vec<Vec<u8>> = match path.extension() {
            // The numbers come after a count.
            Some(extension) if extension == "u64" => text[8..]
                .chunks(8)
                .map(|w| number_key(u64::from_le_bytes(w.try_into().unwrap())))
                .collect(),
            _ => {
                text.split(|b| *b == b'\n').filter(|l| !l.is_empty()).map(<[u8]>::to_vec).collect()
            }
        };
        shuffle(&mut keys);
        keys.truncate(KEYS);
        sets.push((PathBuf::from(path.file_name().unwrap()).display().to_string(), keys));
    }
    let sorted = sets.iter().map(|(name, keys)| {
        let mut keys = keys.clone();
        keys.sort_unstable();
        keys.dedup();
        (format!("{name}-sorted"), keys)
    });
    let sorted: Vec<_> = sorted.collect();
    sets.extend(sorted);
    let only = std::env::var("RHUMB_SETS").unwrap_or_default();
    sets.retain(|(name, _)| only.is_empty() || only.split(',').any(|set| set == name));
    sets
}

/// The record that a writer makes of an entry.
fn record(key: &[u8]) -> Record {
    let mut batch = BatchBuilder::with_capacity(key.len() + VALUE.len() + 16);
    batch.put(1, key, &VALUE).unwrap();
    Record::given(batch.finish())
}

/// Fills a memtable. Returns the nanoseconds per entry, without those for making its record.
fn fill(table: &Memtable, keys: &[Vec<u8>]) -> f64 {
    let start = thread_time();
    for (seq, key) in (1..).zip(keys) {
        insert_record(table, &record(key), seq);
    }
    let all = thread_time() - start;
    let start = thread_time();
    let records: Vec<Record> = keys.iter().map(|key| record(key)).collect();
    let making = thread_time() - start;
    drop(black_box(records));
    all.saturating_sub(making).as_nanos() as f64 / keys.len() as f64
}

/// Looks every key up. Returns the nanoseconds per key.
fn look_up(table: &Memtable, keys: &[Vec<u8>]) -> f64 {
    let start = thread_time();
    for i in 0..keys.len() {
        let key = &keys[(mix(i as u64) % keys.len() as u64) as usize];
        assert!(black_box(table.get(1, key, SeqNo::MAX)).is_some());
    }
    (thread_time() - start).as_nanos() as f64 / keys.len() as f64
}

#[test]
#[ignore = "measures"]
fn inserts_and_lookups() {
    // The size at which the engine's memtables of 64 MiB are sealed is about a quarter of the keys.
    let has_lookups = std::env::var_os("RHUMB_FILLS").is_none();
    let kinds = match std::env::var("RHUMB_KIND").as_deref() {
        Ok("learned") => [MemtableKind::Learned; 2],
        Ok("skiplist") => [MemtableKind::SkipList; 2],
        _ => [MemtableKind::SkipList, MemtableKind::Learned],
    };
    let shares = std::env::var("RHUMB_SHARES").unwrap_or_else(|_| "4,1".into());
    for share in shares.split(',').map(|share| share.parse::<usize>().unwrap()) {
        for (name, keys) in sets() {
            let keys = &keys[..keys.len() / share];
            let (before, after) = keys.split_at(keys.len() / 2);
            let mut figures = vec![Vec::new(); 8];
            for _ in 0..ROUNDS {
                for (i, kind) in kinds.into_iter().enumerate() {
                    let table = Memtable::new(kind, None, 64 << 20, &Gauge::default());
                    figures[4 * i].push(fill(&table, keys));
                    figures[4 * i + 1].push(if has_lookups { look_up(&table, keys) } else { 0.0 });
                    figures[4 * i + 2].push(table.bytes() as f64 / keys.len() as f64);
                    drop(table);
                    let first = Memtable::new(kind, None, 64 << 20, &Gauge::default());
                    fill(&first, before);
                    let second = first.successor(None, 64 << 20);
                    figures[4 * i + 3].push(fill(&second, after));
                }
            }
            let median = |i: usize| {
                let mut all: Vec<f64> = figures[i].clone();
                all.sort_by(f64::total_cmp);
                all[all.len() / 2]
            };
            eprintln!(
                "{:>8} {name:<12} insert {:>6.0} {:>6.0} ns {:>5.2}x  second {:>6.0} {:>6.0} ns {:>5.2}x  \
                 get {:>6.0} {:>6.0} ns {:>5.2}x  bytes {:.0} {:.0}",
                keys.len(),
                median(0),
                median(4),
                median(0) / median(4),
                median(3),
                median(7),
                median(3) / median(7),
                median(1),
                median(5),
                median(1) / median(5),
                median(2),
                median(6),
            );
        }
    }
}
