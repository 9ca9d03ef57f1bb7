//! The workloads of the index suite, and what each of them needs.

use anyhow::{Context, Result};

/// Range of ranks that is hot at a time in [`Workload::Dynamic`]: one in this many.
pub(super) const HOT_RANGES: usize = 100;

/// [`Workload::Growth`] begins with one key in this many,
pub(super) const GROWTH_START: usize = 100;

/// and inserts the others in this number of rounds: as many as make ten times the start, ten times
/// over, and that ten times.
pub(super) const GROWTH_ROUNDS: usize = 11;

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Workload {
    /// Lookups of present keys, uniformly chosen.
    Lookup,
    /// Lookups of present keys of zipfian popularity.
    LookupZipf,
    /// Batched lookups of 64 present keys, uniformly chosen.
    Batch64,
    /// Scans of 100 entries from a present key, uniformly chosen.
    Scan100,
    /// 95% lookups, 5% inserts of new keys.
    Mixed95,
    /// 50% lookups, 50% inserts of new keys.
    Mixed50,
    /// Inserts of new keys; then nine in ten of all keys are removed.
    Insert,
    /// Half lookups, half inserts; 99% of them in a hundredth of the keys, which moves.
    Dynamic,
    /// Inserts far outside the loaded domain, half below and half above it.
    Outside,
    /// Inserts in ascending order after the loaded keys.
    Append,
    /// Inserts of a fifth as many keys of the data set as were loaded, then lookups of all: what
    /// the crafted keys below are held against.
    PoisonRandom,
    /// The same with dense runs placed where they bend the distribution most.
    PoisonError,
    /// The same with runs that press on single keys from below until every gap is used up.
    PoisonGaps,
    /// The same with clusters that halve their distance to one point, so that no split is even.
    PoisonRetrain,
    /// Inserts in random order into a hundredth of the keys until all are there, and lookups of all
    /// that are at each power of ten: a curve.
    Growth,
    /// Removals of nine in ten of the loaded keys, and a quiet moment.
    Remove,
}

impl Workload {
    /// Every workload, in the order in which they run.
    pub const ALL: [Self; 16] = [
        Self::Lookup,
        Self::LookupZipf,
        Self::Batch64,
        Self::Scan100,
        Self::Mixed95,
        Self::Mixed50,
        Self::Insert,
        Self::Dynamic,
        Self::Outside,
        Self::Append,
        Self::PoisonRandom,
        Self::PoisonError,
        Self::PoisonGaps,
        Self::PoisonRetrain,
        Self::Growth,
        Self::Remove,
    ];

    /// The name on the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lookup => "lookup",
            Self::LookupZipf => "lookup_zipf",
            Self::Batch64 => "batch64",
            Self::Scan100 => "scan100",
            Self::Mixed95 => "mixed95",
            Self::Mixed50 => "mixed50",
            Self::Insert => "insert",
            Self::Dynamic => "dynamic",
            Self::Outside => "outside",
            Self::Append => "append",
            Self::Growth => "growth",
            Self::Remove => "remove",
            Self::PoisonRandom => "poison_random",
            Self::PoisonError => "poison_error",
            Self::PoisonGaps => "poison_gaps",
            Self::PoisonRetrain => "poison_retrain",
        }
    }

    /// What its rate counts. Scans count as one operation each.
    #[must_use]
    pub fn unit(self) -> &'static str {
        if self == Self::Batch64 { "keys/s" } else { "ops/s" }
    }

    /// Whether it leaves the map as it was, so that one load serves all such workloads.
    #[must_use]
    pub fn is_read_only(self) -> bool {
        self < Self::Mixed95
    }

    /// Whether it is one of those that insert crafted keys, or what they are held against.
    #[must_use]
    pub fn is_poison(self) -> bool {
        (Self::PoisonRandom..=Self::PoisonRetrain).contains(&self)
    }

    /// Whether it belongs to a run that names no workloads.
    #[must_use]
    pub fn is_default(self) -> bool {
        self < Self::Outside
    }

    /// How many of 100 operations insert.
    #[must_use]
    pub fn inserts_percent(self) -> usize {
        match self {
            Self::Lookup | Self::LookupZipf | Self::Batch64 | Self::Scan100 | Self::Remove => 0,
            Self::Mixed95 => 5,
            Self::Mixed50 | Self::Dynamic => 50,
            _ => 100,
        }
    }

    /// Operations of all rounds together on `loaded` keys, if the run does not say.
    #[must_use]
    pub fn operations(self, loaded: usize, rounds: usize) -> usize {
        match self {
            Self::Insert | Self::Append => loaded,
            Self::Outside => loaded / 2,
            _ if self.is_poison() => loaded / 5,
            _ => loaded / 2 * rounds,
        }
    }
}

/// Chooses workloads by their names, and the poisons named by themselves; the usual ones if
/// nothing is named.
///
/// # Errors
/// If a name is unknown.
pub fn choose(names: &[String], poisons: &[String]) -> Result<Vec<Workload>> {
    let known = |name: &str| {
        Workload::ALL.into_iter().find(|workload| workload.name() == name).with_context(|| {
            let names: Vec<_> = Workload::ALL.iter().map(|workload| workload.name()).collect();
            format!("no workload {name}: there are {}", names.join(", "))
        })
    };
    let mut chosen = Vec::new();
    for name in names {
        chosen.push(known(name)?);
    }
    for kind in poisons {
        chosen.push(known(&format!("poison_{kind}"))?);
    }
    if chosen.iter().any(|workload| workload.is_poison()) {
        chosen.push(Workload::PoisonRandom);
    }
    if chosen.is_empty() {
        chosen.extend(Workload::ALL.into_iter().filter(|workload| workload.is_default()));
    }
    chosen.sort_unstable();
    chosen.dedup();
    Ok(chosen)
}
