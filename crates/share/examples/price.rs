//! What sharing a keyspace costs its writer: two databases, one of them shared, written to in turn.
//!
//! `cargo run --release -p rhumb-share --example price -- [KEYS] [ROUNDS]
//! [random|update|sequential]`

use std::{
    env,
    time::{Duration, Instant},
};

use rhumb::{Database, Keyspace, KeyspaceOptions};
use rhumb_share::{ShareOptions, Shared, Source};

/// The bytes of a value.
const VALUE_BYTES: usize = 100;

/// Writes of one database before the other has its turn.
const TURN: u64 = 50_000;

/// One of the two databases, and what was measured of it.
struct Subject {
    keyspace: Keyspace,
    latencies_ns: Vec<u64>,
    rates: Vec<f64>,
}

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

impl Subject {
    fn write(&mut self, numbers: impl Iterator<Item = u64>, measures: bool) {
        let (began, mut count) = (Instant::now(), 0);
        for n in numbers {
            let mut value = [n as u8; VALUE_BYTES];
            value[..8].copy_from_slice(&n.to_le_bytes());
            let before = Instant::now();
            self.keyspace.insert(key(n), value).expect("a write");
            if measures {
                self.latencies_ns.push(before.elapsed().as_nanos() as u64);
            }
            count += 1;
        }
        if measures {
            self.rates.push(f64::from(count) / began.elapsed().as_secs_f64());
        }
    }

    fn percentile(&mut self, share: f64) -> u64 {
        self.latencies_ns.sort_unstable();
        self.latencies_ns[((self.latencies_ns.len() - 1) as f64 * share) as usize]
    }

    fn rate(&mut self) -> f64 {
        self.rates.sort_by(f64::total_cmp);
        self.rates[self.rates.len() / 2]
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let number =
        |at: usize, usual: u64| args.get(at).map_or(usual, |n| n.parse().expect("a number"));
    let (keys, rounds) = (number(0, 1_000_000), number(1, 20));
    let workload = args.get(2).map_or("random", String::as_str);
    let dir = env::temp_dir().join(format!("rhumb-price-{}", std::process::id()));
    let open = |name: &str| Database::builder(dir.join(name)).open();
    let databases = [open("plain")?, open("shared")?];
    let mut subjects = Vec::new();
    for database in &databases {
        let keyspace = database.keyspace("k", KeyspaceOptions::default())?;
        subjects.push(Subject { keyspace, latencies_ns: Vec::new(), rates: Vec::new() });
    }
    subjects.iter_mut().for_each(|subject| subject.write(0..keys, false));
    let shared = Shared::listen(dir.join("socket"))
        .share("k", Source::of(subjects[1].keyspace.clone()), ShareOptions::default())
        .watch(|name, event| println!("{name}: {event:?}"))
        .start(&databases[1])?;
    while !shared.stats("k").is_some_and(|stats| stats.is_live) {
        std::thread::sleep(Duration::from_millis(10));
    }
    for round in 0..rounds {
        let first = keys + round * TURN;
        for subject in &mut subjects {
            match workload {
                "update" => {
                    let mut n = round + 1;
                    let numbers = (0..TURN).map(|_| {
                        n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        (n >> 33) % keys
                    });
                    subject.write(numbers, true);
                }
                _ => subject.write(first..first + TURN, true),
            }
        }
    }
    for (subject, name) in subjects.iter_mut().zip(["plain", "shared"]) {
        let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|share| subject.percentile(share));
        let rate = subject.rate();
        println!("{name:8} {rate:10.0}/s  P50 {p50} ns  P99 {p99} ns  P99.9 {p999} ns");
    }
    let stats = shared.stats("k").expect("it is shared");
    let live = stats.entries * (16 + VALUE_BYTES as u64);
    println!(
        "{} entries, {} leaves of {} bytes in {} runs: {:.2} bytes of leaves and {:.2} mapped a live byte",
        stats.entries,
        stats.leaves,
        stats.leaf_bytes,
        stats.runs,
        (stats.leaves * stats.leaf_bytes) as f64 / live as f64,
        stats.mapped_bytes as f64 / live as f64,
    );
    drop(shared);
    Ok(std::fs::remove_dir_all(dir)?)
}
