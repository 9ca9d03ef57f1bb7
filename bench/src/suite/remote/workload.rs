//! The workloads: which operations, on which records.

use anyhow::{Context, Result};

use super::options::Distribution;

/// Keys of one `multi_get`.
pub const KEYS_AT_ONCE: usize = 64;

/// Entries of one of `scan100`'s scans.
pub const SCAN_ENTRIES: u32 = 100;

/// What clients do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Workload {
    /// Reads of one key each.
    #[default]
    Get,
    /// Reads of [`KEYS_AT_ONCE`] keys each.
    MultiGet,
    /// Scans of [`SCAN_ENTRIES`] entries each.
    Scan100,
    /// Half reads, half updates.
    A,
    /// 95% reads, 5% updates.
    B,
    /// Reads.
    C,
    /// Half reads, half read-modify-writes.
    F,
    /// 95% reads, 5% inserts.
    D,
    /// 95% scans of 1 to 100 entries, 5% inserts.
    E,
    /// Inserts of keys that are not there.
    Insert,
    /// 57% updates, 41% reads, 2% scans of 1 to 100 entries: the mix that Nutanix reported.
    Nutanix,
    /// 75% reads, 25% updates.
    Updates25,
    /// 25% reads, 75% updates.
    Updates75,
    /// Updates.
    Updates100,
}

/// What one operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads a key.
    Read,
    /// Writes a key that is there.
    Update,
    /// Reads a key and writes it.
    ReadModifyWrite,
    /// Reads entries from a key on.
    Scan,
    /// Writes a key that is not there.
    Insert,
}

impl Workload {
    /// All, in the order in which they run.
    pub const ALL: [Self; 10] = [
        Self::Get,
        Self::MultiGet,
        Self::Scan100,
        Self::A,
        Self::B,
        Self::C,
        Self::F,
        Self::D,
        Self::E,
        Self::Insert,
    ];

    /// Those that run only if they are named.
    pub const NAMED_ONLY: [Self; 4] =
        [Self::Nutanix, Self::Updates25, Self::Updates75, Self::Updates100];

    /// The name on the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::MultiGet => "multi_get",
            Self::Scan100 => "scan100",
            Self::A => "a",
            Self::B => "b",
            Self::C => "c",
            Self::D => "d",
            Self::E => "e",
            Self::F => "f",
            Self::Insert => "insert",
            Self::Nutanix => "nutanix",
            Self::Updates25 => "updates25",
            Self::Updates75 => "updates75",
            Self::Updates100 => "updates100",
        }
    }

    /// The workload of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let mut known = Self::ALL.into_iter().chain(Self::NAMED_ONLY);
        known.find(|workload| workload.name().eq_ignore_ascii_case(name))
    }

    /// The unit of its rate: an operation of `multi_get` is a key, one of `scan100` an entry.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::MultiGet | Self::Scan100 => "keys/s",
            _ => "ops/s",
        }
    }

    /// Its operations with their shares in percent, whose sum is 100; the usual one first.
    #[must_use]
    pub fn mix(self) -> &'static [(u64, Kind)] {
        match self {
            Self::Get | Self::MultiGet | Self::C => &[(100, Kind::Read)],
            Self::Scan100 => &[(100, Kind::Scan)],
            Self::A => &[(50, Kind::Read), (50, Kind::Update)],
            Self::B => &[(95, Kind::Read), (5, Kind::Update)],
            Self::D => &[(95, Kind::Read), (5, Kind::Insert)],
            Self::E => &[(95, Kind::Scan), (5, Kind::Insert)],
            Self::F => &[(50, Kind::Read), (50, Kind::ReadModifyWrite)],
            Self::Insert => &[(100, Kind::Insert)],
            Self::Nutanix => &[(57, Kind::Update), (41, Kind::Read), (2, Kind::Scan)],
            Self::Updates25 => &[(75, Kind::Read), (25, Kind::Update)],
            Self::Updates75 => &[(75, Kind::Update), (25, Kind::Read)],
            Self::Updates100 => &[(100, Kind::Update)],
        }
    }

    /// The operation that a draw from 0 to 99 stands for.
    #[must_use]
    pub fn kind_of(self, draw: u64) -> Kind {
        let mut end = 0;
        let drawn = self.mix().iter().find(|(share, _)| {
            end += share;
            draw < end
        });
        drawn.unwrap_or(&self.mix()[0]).1
    }

    /// Which keys are asked for if the options do not say.
    #[must_use]
    pub fn usual_distribution(self) -> Distribution {
        match self {
            Self::Get | Self::MultiGet | Self::Scan100 | Self::Insert => Distribution::Uniform,
            Self::Nutanix | Self::Updates25 | Self::Updates75 | Self::Updates100 => {
                Distribution::Uniform
            }
            Self::D => Distribution::Latest,
            Self::A | Self::B | Self::C | Self::E | Self::F => Distribution::Zipf,
        }
    }

    /// Returns true if every operation reads one key.
    #[must_use]
    pub fn is_gets(self) -> bool {
        matches!(self, Self::Get | Self::MultiGet | Self::C)
    }
}

/// Chooses workloads by their names; all if none is named.
///
/// # Errors
/// If a name is unknown.
pub fn choose(names: &[String]) -> Result<Vec<Workload>> {
    let mut chosen = Vec::new();
    for name in names {
        let known = || {
            let all = Workload::ALL.into_iter().chain(Workload::NAMED_ONLY);
            all.map(Workload::name).collect::<Vec<_>>().join(", ")
        };
        let workload = Workload::named(name);
        chosen
            .push(workload.with_context(|| format!("no workload {name}: there are {}", known()))?);
    }
    if names.is_empty() {
        chosen.extend(Workload::ALL);
    }
    chosen.sort_unstable();
    chosen.dedup();
    Ok(chosen)
}
