//! Data sets: which keys a run is made on.
//!
//! Synthetic sets are made from the seed; the others are files that `cargo xtask data` fetches.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

use crate::{
    choose::{ZIPF_EXPONENT, Zipf},
    keys::{self, Encoding, Keys},
    random::Rng,
    usage::usage,
};

/// The data set of runs that name none: uniformly random 16-byte strings.
pub const DEFAULT: &str = "random16";

/// How many keys a synthetic set has if the run does not say.
pub const KEYS_DEFAULT: usize = 5_000_000;

/// What the clustered set is called where learned indexes are compared: it is hard for them.
const HARD: &str = "hard";

/// Where data files are looked for, unless `RHUMB_DATA` names another directory.
const DIRECTORY: &str = "data";

/// Distributions of 64-bit keys that need no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Synthetic {
    /// Uniform over all 64-bit numbers.
    Uniform,
    /// Lognormal with mean 0 and deviation 2 of the logarithm, scaled by 10^9.
    Lognormal,
    /// Clusters of about 200 keys with Pareto gaps whose scale jumps by orders of magnitude from
    /// cluster to cluster, and a few outliers up to 2^64: hard for linear models.
    Clustered,
    /// Gaps between neighbours drawn from a Zipf distribution over 1 to 2^20.
    ZipfGapped,
    /// 0, 1, 2 and so on.
    Sequential,
    /// Time-ordered identifiers: milliseconds, one of 32 workers, a counter within the millisecond.
    Snowflake,
}

impl Synthetic {
    /// Every distribution.
    pub const ALL: [Self; 6] = [
        Self::Uniform,
        Self::Lognormal,
        Self::Clustered,
        Self::ZipfGapped,
        Self::Sequential,
        Self::Snowflake,
    ];

    /// The name by which `--data` chooses it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Lognormal => "lognormal",
            Self::Clustered => "clustered",
            Self::ZipfGapped => "zipf-gapped",
            Self::Sequential => "sequential",
            Self::Snowflake => "snowflake",
        }
    }

    /// The distribution of that name, or, for `hard`, the clustered one.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        if name == HARD {
            return Some(Self::Clustered);
        }
        Self::ALL.into_iter().find(|set| set.name() == name)
    }

    /// Makes `count` distinct keys in ascending order. O(n log n).
    #[must_use]
    pub fn keys(self, count: usize, seed: u64) -> Vec<u64> {
        let mut rng = Rng::stream(seed, self as u64);
        match self {
            Self::Uniform => distinct(count, || rng.next_u64()),
            Self::Lognormal => distinct(count, || ((2.0 * rng.normal()).exp() * 1e9) as u64),
            Self::Clustered => clustered(count, &mut rng),
            Self::ZipfGapped => {
                let gaps = Zipf::new(1 << 20, ZIPF_EXPONENT);
                accumulate(count, || 1 + gaps.draw(&mut rng))
            }
            Self::Sequential => (0..count as u64).collect(),
            Self::Snowflake => snowflake(count, &mut rng),
        }
    }
}

/// Draws until there are `count` distinct numbers, and sorts them.
fn distinct<T: Ord>(count: usize, mut draw: impl FnMut() -> T) -> Vec<T> {
    let mut keys = Vec::with_capacity(count);
    while keys.len() < count {
        let missing = count - keys.len();
        keys.extend(std::iter::repeat_with(&mut draw).take(missing));
        keys.sort_unstable();
        keys.dedup();
    }
    keys
}

/// Adds up gaps, which must not be 0.
fn accumulate(count: usize, mut gap: impl FnMut() -> u64) -> Vec<u64> {
    let mut key = 0u64;
    let next = || {
        key = key.saturating_add(gap());
        key
    };
    std::iter::repeat_with(next).take(count).collect()
}

fn clustered(count: usize, rng: &mut Rng) -> Vec<u64> {
    const CLUSTER_KEYS_MEAN: u64 = 200;
    const PARETO_SHAPE: f64 = 1.2;
    const TOP: u64 = 1 << 62;

    let outliers = count / 100_000 + usize::from(count >= 1000) * 8;
    let dense = count - outliers;
    // Each cluster has its share of the number line, so that no count of keys runs out of it.
    let share = TOP / (dense as u64 / CLUSTER_KEYS_MEAN + 2) / 8;
    let (mut left, mut scale) = (0, 1.0);
    let mut keys = accumulate(dense, || {
        if left == 0 {
            left = CLUSTER_KEYS_MEAN / 2 + rng.below(CLUSTER_KEYS_MEAN);
            scale = 10f64.powf(6.0 * rng.unit());
            return 1 + 10f64.powf((share as f64).log10() * rng.unit()) as u64;
        }
        left -= 1;
        let pareto = (1.0 - rng.unit()).powf(-1.0 / PARETO_SHAPE);
        1 + ((scale * pareto) as u64).min(share / (2 * CLUSTER_KEYS_MEAN))
    });
    let highest = keys.last().copied().unwrap_or(0);
    keys.extend(distinct(outliers, || {
        highest + 1 + rng.below(u64::MAX - highest) / (1 << rng.below(16))
    }));
    keys
}

fn snowflake(count: usize, rng: &mut Rng) -> Vec<u64> {
    const WORKERS: u64 = 32;
    let mut milliseconds = 300_000_000_000u64;
    let mut keys = Vec::with_capacity(count);
    while keys.len() < count {
        milliseconds += 1 + rng.below(4);
        let (worker, burst) = (rng.below(WORKERS), 1 + rng.below(6));
        let first = (milliseconds << 22) | (worker << 12);
        let room = (count - keys.len()) as u64;
        keys.extend((0..burst.min(room)).map(|number| first + number));
    }
    keys
}

/// What keys a run wants.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// A data set by name.
    pub data: Option<String>,
    /// A file, in place of a name.
    pub keys_file: Option<PathBuf>,
    /// How many keys; all of a file, or [`KEYS_DEFAULT`], if not said.
    pub keys: Option<usize>,
    /// How 64-bit keys become bytes.
    pub encoding: Encoding,
    /// Of what a synthetic set or a sample is made.
    pub seed: u64,
}

/// The keys of a run: a sorted set, and the random order in which it is loaded.
#[derive(Debug)]
pub struct KeySet {
    /// The data set's name, as in the results.
    pub name: String,
    /// All keys, sorted.
    pub keys: Keys,
    /// Ranks of `keys` in random order.
    pub order: Vec<u32>,
}

impl KeySet {
    /// Makes or reads the keys that `request` wants.
    ///
    /// # Errors
    /// If the name is unknown, the file is missing or damaged, or there are no keys.
    pub fn load(request: &Request) -> Result<Self> {
        let count = request.keys.unwrap_or(KEYS_DEFAULT);
        let mut rng = Rng::stream(request.seed, 0xda7a);
        let (name, keys) = if let Some(path) = &request.keys_file {
            let stem = path.file_stem().unwrap_or(path.as_os_str());
            (stem.to_string_lossy().into_owned(), keys::read_file(path, request.encoding)?)
        } else {
            let name = request.data.as_deref().unwrap_or(DEFAULT);
            (name.to_owned(), named(name, count, request)?)
        };
        ensure!(!keys.is_empty(), "data set {name} has no keys");
        let keys = match request.keys {
            Some(count) => keys.sample(count, &mut rng),
            None => keys,
        };
        let ranks = u32::try_from(keys.len()).context("more than 2^32 keys")?;
        let mut order: Vec<u32> = (0..ranks).collect();
        rng.shuffle(&mut order);
        Ok(Self { name, keys, order })
    }
}

fn named(name: &str, count: usize, request: &Request) -> Result<Keys> {
    if name == DEFAULT {
        let mut rng = Rng::stream(request.seed, 16);
        let draw = || u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64());
        return Ok(Keys::from_u128(&distinct(count, draw)));
    }
    if let Some(synthetic) = Synthetic::named(name) {
        return Ok(Keys::from_u64(&synthetic.keys(count, request.seed), request.encoding));
    }
    let directory = env::var_os("RHUMB_DATA").map_or_else(|| DIRECTORY.into(), PathBuf::from);
    let found = |extension: &str| {
        Some(directory.join(format!("{name}.{extension}"))).filter(|path: &PathBuf| path.is_file())
    };
    match found("u64").or_else(|| found("txt")) {
        Some(path) => keys::read_file(&path, request.encoding),
        None => unknown(name, &directory),
    }
}

fn unknown(name: &str, directory: &Path) -> Result<Keys> {
    let synthetic: Vec<_> = Synthetic::ALL.iter().map(|set| set.name()).collect();
    usage(Err(anyhow::anyhow!(
        "no data set {name}: it is neither {DEFAULT}, {} nor a file {}/{name}.u64 or .txt \
         (fetch those with `cargo xtask data`)",
        synthetic.join(", "),
        directory.display()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn synthetic_sets_are_sorted_distinct_and_reproducible() {
        for set in Synthetic::ALL {
            for count in [0, 1, 2, 999, 50_000] {
                let keys = set.keys(count, 9);
                assert_eq!(keys.len(), count, "{}", set.name());
                assert!(keys.is_sorted_by(|a, b| a < b), "{} {count}", set.name());
                assert_eq!(keys, set.keys(count, 9));
            }
        }
    }

    #[test]
    fn clusters_stay_within_64_bits_at_full_size() {
        let keys = Synthetic::Clustered.keys(3_000_000, 1);
        assert!(keys.is_sorted_by(|a, b| a < b));
        assert!(keys[keys.len() - 1] > 1 << 60, "outliers reach far");
        let gaps = keys.windows(2).map(|pair| pair[1] - pair[0]);
        let (small, large) = gaps.fold((0, 0), |(small, large), gap| {
            (small + u32::from(gap < 100), large + u32::from(gap > 100_000))
        });
        assert!(small > 100_000 && large > 100_000, "{small} small and {large} large gaps");
    }

    #[test]
    fn a_key_set_is_loaded_by_name_and_from_a_file() {
        let request = Request { keys: Some(1000), ..Request::default() };
        let set = KeySet::load(&request).expect("random16");
        assert_eq!((set.name.as_str(), set.keys.len()), (DEFAULT, 1000));
        assert!((0..1000).all(|i| set.keys.get(i).len() == 16));

        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("some.u64");
        keys::write_sosd(&path, &Synthetic::Lognormal.keys(500, 2)).expect("written");
        let request = Request { keys_file: Some(path), keys: Some(100), ..Request::default() };
        let set = KeySet::load(&request).expect("file");
        assert_eq!((set.name.as_str(), set.keys.len(), set.order.len()), ("some", 100, 100));

        let missing = Request { data: Some("nonesuch".into()), ..Request::default() };
        let error = KeySet::load(&missing).expect_err("unknown").to_string();
        assert!(error.contains("cargo xtask data"), "{error}");
    }
}
