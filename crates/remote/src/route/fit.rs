//! Cutting sorted entries into runs and runs into leaves.
//!
//! A run takes entries for as long as one line describes them: the height of the line at a key's
//! code, in leaves, stays within a quarter of a leaf of the bytes that the entries before it take.
//! A leaf gets the entries between two steps of the line, which is between a half and one and a
//! half of what leaves get on average. Where a leaf would overflow all the same (codes that tie,
//! large records), the run ends before it, and the next one strips a longer prefix.

use rhumb_model::{Fitter, Line, code::code_at, code::common_prefix_len};

use crate::{
    layout::{Geometry, format::LEAF_BITS, to_words},
    leaf::Entry,
};

/// The most leaves of a run: what is built anew at once, two megabytes of the largest leaves. A
/// descriptor of some 100 bytes for 128 leaves of 24 entries is 0.03 bytes a key; fewer leaves cost
/// more of a directory, more leaves cost a longer pause of writers.
pub(super) const RUN_LEAVES_MAX: u32 = 128;

/// Entries that are looked at to see which bytes tell keys apart: some two leaves of them.
const SAMPLE: usize = 64;

/// How a run would hold the first entries of a sequence.
#[derive(Debug)]
pub(crate) struct RunPlan {
    /// Bytes that all its keys begin with and that its codes leave out.
    pub(crate) prefix_len: usize,
    pub(crate) line: Line,
    /// For each leaf, the number of entries before its end.
    pub(crate) ends: Vec<usize>,
}

impl RunPlan {
    /// Number of entries that the run takes: at least 1 if there is any.
    pub(crate) fn taken(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }
}

/// Plans the run that begins with the first of `entries`, which are sorted by key, without two of
/// the same, each no longer than a leaf can hold. Linear in what it looks at.
pub(crate) fn plan(entries: &[Entry], geometry: Geometry) -> RunPlan {
    let prefix_len = prefix_len(entries, geometry);
    let space = Space::new(geometry, prefix_len);
    let (line, fitted) = fit(entries, prefix_len, &space);
    let mut plan = RunPlan { prefix_len, line, ends: Vec::new() };
    let mut leaf = Filling::default();
    for (index, entry) in entries[..fitted].iter().enumerate() {
        let wanted = (line.at(code_at(&entry.key, prefix_len)) >> LEAF_BITS) as usize;
        while plan.ends.len() < wanted {
            plan.ends.push(index);
            leaf = Filling::default();
        }
        if !leaf.add(entry, &space) {
            // The run ends before this leaf, or, if it is the first, in the middle of it.
            if plan.ends.is_empty() {
                return RunPlan { prefix_len, line: Line::default(), ends: vec![index.max(1)] };
            }
            return plan;
        }
    }
    plan.ends.push(fitted);
    plan
}

/// The bytes that a leaf of a run has, and what entries cost of them.
struct Space {
    geometry: Geometry,
    prefix_len: usize,
    /// Bytes for records.
    bytes: usize,
    room: usize,
}

impl Space {
    fn new(geometry: Geometry, prefix_len: usize) -> Self {
        // A fence inside a run is a prefix and a code.
        let fences = 8 * (to_words(prefix_len) + 2 * to_words(prefix_len + 8));
        let bytes = geometry.rest_bytes().saturating_sub(fences);
        Self { geometry, prefix_len, bytes, room: geometry.room() }
    }

    /// What an entry takes of a leaf, in units of 2^-[`LEAF_BITS`] of what leaves get on average.
    fn cost(&self, entry: &Entry) -> u64 {
        let bytes = entry.record_bytes(self.geometry, self.prefix_len).max(self.bytes / self.room);
        // Leaves get two thirds of their bytes, so that one and a half of that fit.
        (((bytes * 3) as u64) << LEAF_BITS) / (2 * self.bytes.max(1)) as u64
    }
}

/// What a leaf has taken.
#[derive(Default)]
struct Filling {
    bytes: usize,
    count: usize,
}

impl Filling {
    fn add(&mut self, entry: &Entry, space: &Space) -> bool {
        self.bytes += entry.record_bytes(space.geometry, space.prefix_len);
        self.count += 1;
        self.bytes <= space.bytes && self.count <= space.room
    }
}

/// Fits a line to the beginning of `entries`, and says how many of them it describes.
fn fit(entries: &[Entry], prefix_len: usize, space: &Space) -> (Line, usize) {
    let mut fitter = Fitter::new(1 << (LEAF_BITS - 2));
    let mut height = 0;
    let mut fitted = 0;
    let first = entries.first().map_or(&[][..], |entry| &entry.key);
    for entry in entries {
        let is_of_run = entry.key.get(..prefix_len) == first.get(..prefix_len);
        let is_last = height >> LEAF_BITS >= u64::from(RUN_LEAVES_MAX) - 1;
        if !is_of_run || is_last || !fitter.add_point(code_at(&entry.key, prefix_len), height) {
            break;
        }
        height += space.cost(entry);
        fitted += 1;
    }
    let Some(segment) = fitter.segment() else { return (Line::default(), fitted) };
    let mut line = segment.line;
    // The first key lies in the first leaf.
    let first = line.at(code_at(first, prefix_len)) >> LEAF_BITS;
    line.y0 = line.y0.saturating_sub((first << LEAF_BITS) as i64);
    (line, fitted)
}

/// The bytes that codes leave out: none, if eight bytes tell the first keys apart; otherwise as
/// many as have to be, and as all of them share.
fn prefix_len(entries: &[Entry], geometry: Geometry) -> usize {
    let sample = &entries[..entries.len().min(SAMPLE)];
    let needed = sample
        .windows(2)
        .map(|pair| common_prefix_len(&pair[0].key, &pair[1].key).saturating_sub(7))
        .max()
        .unwrap_or(0);
    let mut sample = sample;
    // Fewer keys may share more.
    while let ([first, .., last], true) = (sample, needed > 0) {
        let shared = common_prefix_len(&first.key, &last.key);
        if shared >= needed || sample.len() == 2 {
            return shared.min(needed).min(geometry.key_bytes_max());
        }
        sample = &sample[..sample.len() / 2 + 1];
    }
    0
}

/// The leaf that a plan gives a key, for tests of the plan's own promise.
#[cfg(test)]
pub(super) fn leaf_of(plan: &RunPlan, key: &[u8]) -> u32 {
    super::leaf_of_code(&plan.line, plan.ends.len() as u32, code_at(key, plan.prefix_len))
}
