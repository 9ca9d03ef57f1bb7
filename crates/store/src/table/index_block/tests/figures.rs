//! Prints the memory that indexes take and how fast they answer; checks only that they answer
//! right.
//!
//! `cargo test --release -p rhumb --lib -- --ignored --nocapture index_figures`. The data sets of
//! real keys are read from the directory that `RHUMB_DATA` names, where there are any: `names.txt`,
//! `urls.txt` and `paths.txt` (sorted lines), and `ipv4.bin` (sorted u64, little endian).

use std::{hint::black_box, time::Instant};

use rhumb_model::code;
use rhumb_testkit::random::Random;

use super::super::{Index, IndexBuilder, IndexKind, PAGE_BYTES, PAGE_PAYLOAD_BYTES, StringCoding};

const TABLE_BYTES: u64 = 64 << 20;
const BLOCK_BYTES: u32 = 4096;
const FRAME_BYTES: u64 = 17;

/// Keys joined, and where each ends.
#[derive(Default)]
struct Keys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    value_bytes: usize,
}

impl Keys {
    fn new(value_bytes: usize, keys: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Self {
        let mut this = Self { value_bytes, ..Self::default() };
        for key in keys {
            this.bytes.extend_from_slice(key.as_ref());
            this.ends.push(this.bytes.len());
        }
        this
    }

    fn get(&self, i: usize) -> &[u8] {
        &self.bytes[i.checked_sub(1).map_or(0, |i| self.ends[i])..self.ends[i]]
    }
}

#[derive(Default)]
struct Totals {
    keys: u64,
    tables: u64,
    index_bytes: u64,
    resident_bytes: u64,
    segments: u64,
    blocks: u64,
    empty: u64,
    cost: u64,
    cost_squares: u64,
    cost_max: u64,
    build_ns: u64,
    locate_ns: f64,
    locate_all_ns: f64,
}

/// A kind of index, and how its keys are coded.
type Way = (IndexKind, StringCoding);

/// Builds one table from key `from` on; returns the number of the key after its last.
fn one_table(keys: &Keys, way: Way, from: usize, totals: &mut Totals) -> usize {
    let begun = Instant::now();
    let mut builder = IndexBuilder::new(way.0, way.1, BLOCK_BYTES);
    let mut cuts = Vec::new();
    let mut costs = Vec::new();
    let mut total = 0;
    let mut to = from;
    while to < keys.ends.len() && total < TABLE_BYTES {
        let key = keys.get(to);
        let head = keys.get(to - (to - from) % 16);
        let suffix = if to == from { 0 } else { code::common_prefix_len(head, key) % key.len() };
        let cost = key.len() - suffix + keys.value_bytes + 7;
        builder.push(key, cost, &mut cuts);
        costs.push(cost as u64);
        total += cost as u64;
        to += 1;
    }
    builder.finish_cuts(&mut cuts);
    totals.build_ns += begun.elapsed().as_nanos() as u64;
    let mut stream = 0u64;
    let mut block_of = Vec::new();
    for (block, count) in cuts.iter().enumerate() {
        let cost: u64 = costs[block_of.len()..][..*count as usize].iter().sum();
        block_of.resize(block_of.len() + *count as usize, block as u32);
        let payload = u64::from(PAGE_PAYLOAD_BYTES);
        builder.block_written(
            stream / payload * PAGE_BYTES + 2 + stream % payload,
            (FRAME_BYTES + cost) as u32,
        );
        stream += FRAME_BYTES + cost;
        totals.empty += u64::from(*count == 0);
        totals.cost += cost;
        totals.cost_squares += cost * cost;
        totals.cost_max = totals.cost_max.max(cost);
    }
    let pages = stream.div_ceil(u64::from(PAGE_PAYLOAD_BYTES)) as u32;
    let mut encoded = Vec::new();
    builder.encode(&mut encoded);
    let index = Index::decode(&encoded, cuts.len() as u32, pages).unwrap();
    for (i, block) in block_of.iter().enumerate() {
        assert_eq!(index.locate(keys.get(from + i)), *block);
    }
    if totals.tables == 0 {
        let mut random = Random::new(7);
        // Copied next to each other, so that the index is measured and not the memory of the keys.
        let mut pick = |n| {
            let picks = (0..n).map(|_| keys.get(from + random.next() as usize % (to - from)));
            Keys::new(0, picks)
        };
        totals.locate_ns = best_locate_ns(&index, &pick(1 << 12));
        totals.locate_all_ns = best_locate_ns(&index, &pick(1 << 20));
    }
    totals.tables += 1;
    totals.keys += (to - from) as u64;
    totals.index_bytes += index.encoded_bytes() as u64;
    totals.resident_bytes += index.resident_bytes() as u64;
    totals.segments += index.segment_count() as u64;
    totals.blocks += cuts.len() as u64;
    to
}

/// The time of one lookup in the best of a few rounds, as other programs may use the machine.
fn best_locate_ns(index: &Index, keys: &Keys) -> f64 {
    let count = keys.ends.len();
    let rounds = (1 << 22) / count;
    let times = (0..rounds).map(|_| {
        let begun = Instant::now();
        (0..count).for_each(|i| _ = black_box(index.locate(keys.get(i))));
        begun.elapsed().as_nanos() as f64 / count as f64
    });
    times.fold(f64::INFINITY, f64::min)
}

fn measure(name: &str, keys: &Keys) {
    let mut per_key = Vec::new();
    let learned = StringCoding::ALL.map(|coding| (IndexKind::Learned, coding));
    let binary = (IndexKind::BinarySearch, StringCoding::Off);
    for way in std::iter::once(binary).chain(learned) {
        let mut totals = Totals::default();
        let mut from = 0;
        while from < keys.ends.len() {
            from = one_table(keys, way, from, &mut totals);
        }
        let t = &totals;
        let by = |a: u64, b: u64| a as f64 / b.max(1) as f64;
        per_key.push(by(t.index_bytes, t.keys));
        println!(
            "{name:10} {:12?} {:4?} {:8} keys {:2} tables | index {:.4} B/key, {:.2} B/block, resident {:.2} B/block | {} blocks, {:.1} a segment, {} empty, mean {:.0}, met {:.0}, max {} B | build {:.0} ns/key, locate {:.1} ns hot, {:.1} ns random",
            way.0,
            way.1,
            t.keys,
            t.tables,
            by(t.index_bytes, t.keys),
            by(t.index_bytes, t.blocks),
            by(t.resident_bytes, t.blocks),
            t.blocks,
            by(t.blocks, t.segments),
            t.empty,
            by(t.cost, t.blocks),
            by(t.cost_squares, t.cost),
            t.cost_max,
            by(t.build_ns, t.keys),
            t.locate_ns,
            t.locate_all_ns,
        );
    }
    let ratios: Vec<_> =
        per_key[1..].iter().map(|bytes| format!("1/{:.1}", per_key[0] / bytes)).collect();
    println!("{name:10} learned is {} of binary search", ratios.join(", "));
}

#[test]
#[ignore = "prints figures"]
fn index_figures() {
    let mut random = Random::new(1);
    let mut wide: Vec<[u8; 16]> = (0..5_000_000)
        .map(|_| (u128::from(random.next()) << 64 | u128::from(random.next())).to_be_bytes())
        .collect();
    wide.sort_unstable();
    measure("uniform16", &Keys::new(100, wide));
    measure("sequential", &Keys::new(7, (0..6_000_000u64).map(u64::to_be_bytes)));
    let mut numbers: Vec<u64> = (0..6_000_000).map(|_| random.next()).collect();
    numbers.sort_unstable();
    measure("uniform64", &Keys::new(7, numbers.iter().map(|n| n.to_be_bytes())));
    let mut of_form = |form: fn(u64) -> String| {
        let mut keys: Vec<_> = (0..2_000_000).map(|_| form(random.next())).collect();
        keys.sort_unstable();
        keys
    };
    measure("decimal", &Keys::new(7, of_form(|n| format!("user:{:010}", n % 4_000_000_000))));
    measure("hex", &Keys::new(7, of_form(|n| format!("{n:016x}"))));
    let date = |n: u64| {
        let (day, second) = (n % 336, n >> 32);
        format!(
            "2026-{:02}-{:02}T{:05}.{:04}",
            day / 28,
            day % 28,
            second % 86_400,
            n >> 20 & 0xfff
        )
    };
    measure("dates", &Keys::new(7, of_form(date)));
    let Some(dir) = std::env::var_os("RHUMB_DATA").map(std::path::PathBuf::from) else { return };
    if let Ok(bytes) = std::fs::read(dir.join("ipv4.bin")) {
        let key = |b: &[u8]| b.first_chunk().map_or(0, |b| u64::from_le_bytes(*b)).to_be_bytes();
        measure("ipv4", &Keys::new(7, bytes.chunks(8).map(key)));
    }
    for name in ["names", "urls", "paths"] {
        if let Ok(bytes) = std::fs::read(dir.join(format!("{name}.txt"))) {
            let lines = bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty());
            measure(name, &Keys::new(7, lines));
        }
    }
}
