//! Which keys a workload loads and which it inserts.
//!
//! Half of the data set, and its smallest and largest key, is loaded; the other half is what the
//! workloads insert. Two kinds of workload bring keys of their own: those that insert outside the
//! loaded domain, and those that insert crafted keys.

use std::borrow::Cow;

use anyhow::{Result, ensure};

use super::{
    options::IndexOptions,
    workload::{GROWTH_ROUNDS, GROWTH_START, HOT_RANGES, Workload},
};
use crate::{
    data::{KeySet, Request},
    keys::Encoding,
    random::Rng,
};

/// The data set of runs that name none.
const DATA_DEFAULT: &str = "uniform";

/// Loaded keys between two runs of crafted ones.
const POISON_BLOCK_KEYS: usize = 256;

/// The keys of a run.
pub(super) struct Data {
    pub(super) name: String,
    /// Sorted.
    pub(super) loaded: Vec<u64>,
    /// In random order.
    pub(super) fresh: Vec<u64>,
    seed: u64,
}

impl Data {
    /// Makes or reads the keys that the workloads need.
    ///
    /// # Errors
    /// If the data set cannot be had, has keys of more or less than eight bytes, or has too few.
    pub(super) fn load(options: &IndexOptions, workloads: &[Workload]) -> Result<Self> {
        let run = &options.run;
        let asked = options.keys();
        let needed = |&workload: &Workload| match workload {
            Workload::Outside | Workload::Append | Workload::Growth => 0,
            _ => options.inserts(workload, asked),
        };
        let inserted = workloads.iter().map(needed).max().unwrap_or(0);
        let set = KeySet::load(&Request {
            data: Some(run.data.clone().unwrap_or_else(|| DATA_DEFAULT.to_owned())),
            keys_file: run.keys_file.clone(),
            keys: Some(asked + inserted),
            encoding: Encoding::Bytes,
            seed: run.seed,
        })?;
        let key = |rank: usize| -> Result<u64> {
            let Ok(bytes) = set.keys.get(rank).try_into() else {
                anyhow::bail!("data set {} has keys that are no 64-bit numbers", set.name);
            };
            Ok(u64::from_be_bytes(bytes))
        };
        let total = set.keys.len();
        let count = if asked + inserted <= total { asked } else { total.div_ceil(2) };
        let ends = [0, total - 1];
        let mut loaded = Vec::with_capacity(count);
        // The ends of the domain are loaded whatever their place in the random order.
        for end in ends {
            loaded.push(key(end)?);
        }
        loaded.dedup();
        let mut inner = set.order.iter().map(|&rank| rank as usize).filter(|r| !ends.contains(r));
        for rank in inner.by_ref().take(count.saturating_sub(ends.len())) {
            loaded.push(key(rank)?);
        }
        let fresh = inner.map(key).collect::<Result<Vec<_>>>()?;
        loaded.sort_unstable();
        ensure!(loaded.len() >= 2, "an index is measured on two keys at least");
        Ok(Self { name: set.name, loaded, fresh, seed: run.seed })
    }
}

/// The keys of one workload.
pub(super) struct Case<'a> {
    pub(super) workload: Workload,
    /// Sorted.
    pub(super) loaded: Cow<'a, [u64]>,
    /// In the order in which they are inserted; none is among the loaded ones, none comes twice.
    pub(super) fresh: Cow<'a, [u64]>,
    /// Operations of each round.
    pub(super) operations: usize,
    pub(super) rounds: usize,
}

impl<'a> Case<'a> {
    /// # Errors
    /// If there are too few keys for the operations that the run asks for.
    pub(super) fn new(workload: Workload, data: &'a Data, options: &IndexOptions) -> Result<Self> {
        let count = data.loaded.len();
        let mut rng = Rng::stream(data.seed, 0xca5e + workload as u64);
        let mut operations = options.operations(workload, count);
        let inserts = options.inserts(workload, count);
        let mut loaded = Cow::Borrowed(&data.loaded[..]);
        let fresh = match workload {
            Workload::Outside => {
                loaded = inside(count, &mut rng).into();
                outside(inserts, &mut rng).into()
            }
            Workload::Append => {
                let mut all: Vec<u64> = data.loaded.iter().chain(&data.fresh).copied().collect();
                all.sort_unstable();
                let appended = all.split_off(all.len() / 2);
                loaded = all.into();
                appended.into()
            }
            Workload::Growth => return Ok(Self::growth(&data.loaded, &mut rng)),
            Workload::Dynamic => by_range(&data.fresh, &mut rng).into(),
            Workload::PoisonError | Workload::PoisonGaps | Workload::PoisonRetrain => {
                poison(workload, &data.loaded, inserts, &mut rng).into()
            }
            _ => Cow::Borrowed(&data.fresh[..]),
        };
        if inserts > fresh.len() {
            ensure!(
                options.ops.is_none() || workload.is_poison(),
                "{} needs {inserts} new keys, and there are {}",
                workload.name(),
                fresh.len()
            );
            operations = fresh.len() * 100 / workload.inserts_percent() / options.rounds;
        }
        Ok(Self { workload, loaded, fresh, operations, rounds: options.rounds })
    }

    /// A hundredth of the keys, and all others in random order.
    fn growth(all: &[u64], rng: &mut Rng) -> Self {
        let mut loaded = all.to_vec();
        rng.shuffle(&mut loaded);
        let fresh = loaded.split_off((all.len() / GROWTH_START).max(1));
        loaded.sort_unstable();
        Self {
            workload: Workload::Growth,
            operations: fresh.len() / GROWTH_ROUNDS,
            loaded: loaded.into(),
            fresh: fresh.into(),
            rounds: GROWTH_ROUNDS,
        }
    }

    /// How many keys one round inserts.
    pub(super) fn inserts(&self) -> usize {
        let wanted = (self.operations * self.workload.inserts_percent()).div_ceil(100);
        wanted.min(self.fresh.len() / self.rounds)
    }

    /// The keys that a whole run has inserted.
    pub(super) fn inserted(&self) -> &[u64] {
        self.inserted_by(self.rounds)
    }

    /// The keys that the first `rounds` rounds have inserted.
    pub(super) fn inserted_by(&self, rounds: usize) -> &[u64] {
        &self.fresh[..self.inserts() * rounds.min(self.rounds)]
    }
}

/// `count` sorted keys in the middle quarter of the domain.
fn inside(count: usize, rng: &mut Rng) -> Vec<u64> {
    let mut keys: Vec<u64> = (0..count).map(|_| (3 << 61) + (rng.next_u64() >> 2)).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// `count` distinct keys, half of them in the lowest and half in the highest quarter.
fn outside(count: usize, rng: &mut Rng) -> Vec<u64> {
    let mut keys: Vec<u64> =
        (0..count).map(|i| (rng.next_u64() >> 2) | if i % 2 == 0 { 0 } else { 3 << 62 }).collect();
    keys.sort_unstable();
    keys.dedup();
    rng.shuffle(&mut keys);
    keys
}

/// `fresh` cut into ranges that come one after another, in random order, each shuffled.
fn by_range(fresh: &[u64], rng: &mut Rng) -> Vec<u64> {
    let mut sorted = fresh.to_vec();
    sorted.sort_unstable();
    let length = sorted.len().div_ceil(HOT_RANGES).max(1);
    let mut ranges: Vec<&mut [u64]> = sorted.chunks_mut(length).collect();
    rng.shuffle(&mut ranges);
    let mut keys = Vec::with_capacity(fresh.len());
    for range in ranges {
        rng.shuffle(range);
        keys.extend_from_slice(range);
    }
    keys
}

/// Up to `count` keys between those of `loaded`, crafted against learned indexes.
///
/// After Kornaropoulos et al., SIGMOD 2022 (keys that inflate the error of a fit), and Yang et al.,
/// 2024 (keys that exhaust gaps and force structure changes); the keys are made by simple rules in
/// their spirit, without knowledge of the index under attack.
fn poison(workload: Workload, loaded: &[u64], count: usize, rng: &mut Rng) -> Vec<u64> {
    let blocks: Vec<&[u64]> = loaded.chunks(POISON_BLOCK_KEYS).filter(|b| b.len() > 1).collect();
    let each = count.div_ceil(blocks.len().max(1)).max(1) as u64;
    let mut keys = Vec::with_capacity(count);
    match workload {
        Workload::PoisonError => {
            for block in &blocks {
                // Where the block is furthest below or above its chord, more keys bend it most.
                let at = furthest_from_chord(block);
                keys.extend((1..=each).map_while(|i| block[at].checked_add(i)));
            }
        }
        Workload::PoisonGaps => {
            // Few places, long runs: each presses on one key from below.
            let places = (blocks.len() / 64).max(1);
            let run = count.div_ceil(places) as u64;
            for _ in 0..places {
                let at = loaded[rng.below(loaded.len() as u64) as usize];
                keys.extend((1..=run).map_while(|i| at.checked_sub(i)));
            }
        }
        _ => {
            // Where the distance is small the clusters overlap, so each place has fewer
            // than 64 * 16.
            let places = count.div_ceil(48 * 16);
            for _ in 0..places {
                let at = loaded[rng.below(loaded.len() as u64) as usize];
                for exponent in (0..64).rev() {
                    let next = |i: u64| at.checked_add((1 << exponent) + i);
                    keys.extend((0..16).map_while(next));
                }
            }
        }
    }
    let is_new = |key: &u64| loaded.binary_search(key).is_err();
    let mut seen = std::collections::HashSet::with_capacity(keys.len());
    keys.retain(|key| is_new(key) && seen.insert(*key));
    keys.truncate(count);
    keys
}

/// The place in a sorted block whose key is furthest from the line through first and last.
fn furthest_from_chord(block: &[u64]) -> usize {
    let (first, last) = (block[0], block[block.len() - 1]);
    let width = (last - first).max(1) as f64;
    let distance = |i: usize| {
        let along = (block[i] - first) as f64 / width;
        (along - i as f64 / (block.len() - 1) as f64).abs()
    };
    let places = 1..block.len() - 1;
    places.max_by(|&a, &b| distance(a).total_cmp(&distance(b))).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Synthetic;

    #[test]
    fn crafted_keys_are_new_distinct_and_as_many_as_asked() {
        let loaded = Synthetic::Uniform.keys(20_000, 1);
        for workload in [Workload::PoisonError, Workload::PoisonGaps, Workload::PoisonRetrain] {
            let mut keys = poison(workload, &loaded, 4_000, &mut Rng::new(1));
            assert!(keys.len() >= 3_000, "{workload:?}: {}", keys.len());
            keys.sort_unstable();
            assert!(keys.is_sorted_by(|a, b| a < b), "{workload:?}");
            assert!(keys.iter().all(|key| loaded.binary_search(key).is_err()));
        }
    }

    #[test]
    fn the_hot_range_moves_and_covers_all_keys() {
        let fresh = Synthetic::Uniform.keys(10_000, 2);
        let mut moved = by_range(&fresh, &mut Rng::new(3));
        let spread = |keys: &[u64]| keys.iter().max().unwrap() - keys.iter().min().unwrap();
        assert!(moved.chunks(100).all(|range| spread(range) < u64::MAX / 50));
        moved.sort_unstable();
        assert_eq!(moved, fresh);
    }
}
