//! A host that writes, and a fleet of processes that read what it has, without asking it.
//!
//! `cargo run --release -p rhumb-remote --example fleet -- [KEYS] [PROCESSES] [SECONDS]`

use std::{
    env, io,
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use rhumb_remote::{Client, Host, Result, ShareOptions};

/// The bytes of a value.
const VALUE_BYTES: usize = 100;

/// The finalizer of SplitMix64: numbers without an order.
fn mixed(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}

fn key(n: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&mixed(n).to_be_bytes());
    key[8..].copy_from_slice(&n.to_be_bytes());
    key
}

/// A value that begins with its key.
fn value(n: u64, version: u64) -> Vec<u8> {
    let mut value = vec![version as u8; VALUE_BYTES];
    value[..16].copy_from_slice(&key(n));
    value
}

/// Numbers that look random.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

fn main() -> Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    if args.first().is_some_and(|word| word == "read") {
        return read(Path::new(&args[1]), args[2].parse().unwrap(), args[3].parse().unwrap());
    }
    let number =
        |at: usize, usual: u64| args.get(at).map_or(usual, |n| n.parse().expect("a number"));
    let (keys, processes, seconds) = (number(0, 1_000_000), number(1, 2), number(2, 5));

    let path = env::temp_dir().join(format!("rhumb-fleet-{}.sock", std::process::id()));
    let options = ShareOptions::default().entry_bytes(16 + VALUE_BYTES);
    let host = Host::listen(&path).share("fleet", options).start()?;
    let keyspace = Client::connect(&path)?.keyspace("fleet")?;
    let start = Instant::now();
    for n in 0..keys {
        keyspace.insert(key(n), value(n, 0))?;
    }
    println!("{keys} inserts by calls in {:.1?}", start.elapsed());
    let stats = host.stats("fleet").expect("it is shared");
    println!(
        "{} leaves of {} bytes in {} runs, {} MiB mapped, {} MiB of it in large pages",
        stats.leaves,
        stats.leaf_bytes,
        stats.runs,
        stats.mapped_bytes >> 20,
        stats.huge_bytes >> 20
    );

    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let (mut state, mut writes) = (1, 0);
            while !stop.load(Ordering::Relaxed) {
                let n = next(&mut state) % keys;
                keyspace.insert(key(n), value(n, writes))?;
                writes += 1;
                // A thousand writes a second, more or less: most of the time belongs to the
                // readers.
                thread::sleep(Duration::from_millis(1));
            }
            Ok::<_, rhumb_remote::Error>(writes)
        });
        let readers: io::Result<Vec<Child>> =
            (0..processes).map(|_| start_reader(&path, keys, seconds)).collect();
        for mut reader in readers.expect("a process starts") {
            assert!(reader.wait().expect("a process ends").success());
        }
        stop.store(true, Ordering::Relaxed);
        println!("{} writes meanwhile", writer.join().expect("no panic")?);
        Ok(())
    })
}

fn start_reader(path: &Path, keys: u64, seconds: u64) -> io::Result<Child> {
    let mut command = Command::new(env::current_exe()?);
    command.arg("read").arg(path).args([keys.to_string(), seconds.to_string()]);
    command.stdin(Stdio::null()).spawn()
}

/// What each process of the fleet does.
fn read(path: &Path, keys: u64, seconds: u64) -> Result<()> {
    let keyspace = Client::connect(path)?.keyspace("fleet")?;
    let mut state = u64::from(std::process::id());
    let mut found = Vec::new();
    let (start, mut gets) = (Instant::now(), 0u64);
    while start.elapsed() < Duration::from_secs(seconds) {
        for _ in 0..1_000 {
            let n = next(&mut state) % keys;
            found.clear();
            assert!(keyspace.get_into(key(n), &mut found)?, "lost");
            assert_eq!(found[..16], key(n), "another key's");
        }
        gets += 1_000;
    }
    let took = start.elapsed();
    let (start, mut many) = (Instant::now(), 0u64);
    while start.elapsed() < Duration::from_secs(1) {
        let wanted: Vec<u64> = (0..64).map(|_| next(&mut state) % keys).collect();
        let values = keyspace.multi_get(&wanted.iter().map(|n| key(*n)).collect::<Vec<_>>())?;
        for (n, value) in wanted.iter().zip(values) {
            assert_eq!(value.expect("it is there")[..16], key(*n), "another key's");
        }
        many += 64;
    }
    let each = start.elapsed().as_nanos() as f64 / many as f64;
    let start = Instant::now();
    let mut pairs = 0;
    for pair in keyspace.iter() {
        pair?;
        pairs += 1;
    }
    println!(
        "process {}: {gets} gets, {:.0} ns each, 64 at once {each:.0} ns each, {} calls; a scan of {pairs} pairs, {:.0} ns each",
        std::process::id(),
        took.as_nanos() as f64 / gets as f64,
        keyspace.calls(),
        start.elapsed().as_nanos() as f64 / f64::from(pairs)
    );
    Ok(())
}
