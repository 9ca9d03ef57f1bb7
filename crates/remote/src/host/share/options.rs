//! How a keyspace is shared, as plain data.
//!
//! Nothing here has memory or a lock: [`Region`](super::Region) takes the memory, and
//! [`Share`](super::Share) makes the keyspace.

use std::str::FromStr;

use crate::{
    binned,
    error::{Error, Result},
    host::two_stage_store::Tuning,
};

/// The mean size of entries if the caller does not say it, in bytes: a key of 16 and a value of 84.
/// Chosen, not measured: an entry of any size fits, in larger or smaller leaves.
const ENTRY_BYTES: usize = 100;

/// The mean number of keys per model at which the number of models is doubled: the threshold of the
/// experiment on model expansion in the paper on `XStore` (section 7.5, figure 14c).
const KEYS_PER_MODEL: u32 = 200;

/// The length of the key in an entry of which only the sum of both lengths is known. Chosen, not
/// measured: keys of databases are mostly 8 to 32 bytes long.
const KEY_BYTES: usize = 16;

/// How a keyspace is shared.
///
/// ```
/// let options = rhumb_remote::ShareOptions::default().capacity_bytes(64 << 20).entry_bytes(116);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ShareOptions {
    pub(super) capacity_bytes: u64,
    entry_bytes: Option<usize>,
    pub(super) preset: Preset,
    keys_per_model: u32,
    inline_bytes: Option<usize>,
    pub(super) has_checksums: bool,
}

/// How a shared keyspace is made: the default, or as a published system does it, to be measured
/// against. `docs/papers.md` says what is of which paper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Preset {
    /// Runs of leaves that a line finds exactly: clients keep nothing.
    #[default]
    Rhumb,
    /// XStore (OSDI 2020): clients keep two-stage models and tables of unsorted leaves.
    XStore,
    /// FineStore, its distributed half: clients keep lines over trained arrays, search these
    /// themselves, and leave to the host what lies in the level bins between their records.
    FineStore,
}

impl Preset {
    /// All presets.
    pub const ALL: [Self; 3] = [Self::Rhumb, Self::XStore, Self::FineStore];

    /// Its name in settings: `rhumb`, `xstore` or `finestore`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Rhumb => "rhumb",
            Self::XStore => "xstore",
            Self::FineStore => "finestore",
        }
    }
}

impl FromStr for Preset {
    type Err = Error;

    /// The preset of a name.
    ///
    /// ```
    /// assert_eq!("xstore".parse::<rhumb_remote::Preset>()?, rhumb_remote::Preset::XStore);
    /// # Ok::<(), rhumb_remote::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for any other name.
    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|preset| preset.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::InvalidArgument(format!("{name:?} is no preset: there are {names}").into())
        })
    }
}

impl Default for ShareOptions {
    /// A budget of 64 GiB, and entries of 100 bytes.
    fn default() -> Self {
        Self {
            capacity_bytes: 64 << 30,
            entry_bytes: None,
            preset: Preset::Rhumb,
            keys_per_model: KEYS_PER_MODEL,
            inline_bytes: None,
            has_checksums: false,
        }
    }
}

impl ShareOptions {
    /// The most memory that the leaves may take, in bytes: rounded up to 2 MiB, at most 1 TiB.
    /// Memory is taken as it is needed. A write beyond it is refused.
    ///
    /// With [`Preset::XStore`] the records that leaves refer to, of long values and of keys that
    /// are not of eight bytes, may take as much again: 1 GiB at least, and at most 128 GiB.
    #[must_use]
    pub fn capacity_bytes(mut self, bytes: u64) -> Self {
        self.capacity_bytes = bytes;
        self
    }

    /// The mean size of a key and its value, in bytes: decides how large leaves are. Entries of any
    /// other size are held too.
    #[must_use]
    pub fn entry_bytes(mut self, bytes: usize) -> Self {
        self.entry_bytes = Some(bytes);
        self
    }

    /// How the keyspace is made.
    #[must_use]
    pub fn preset(mut self, preset: Preset) -> Self {
        self.preset = preset;
        self
    }

    /// Keys of a model on average at which a keyspace of [`Preset::XStore`] gets twice as many
    /// models: 200, unless this is called; 0 is 1. With fewer keys a model, a get reads fewer
    /// leaves, and clients keep more.
    #[must_use]
    pub fn keys_per_model(mut self, keys: u32) -> Self {
        self.keys_per_model = keys.max(1);
        self
    }

    /// The longest value that lies in a leaf of a keyspace of [`Preset::XStore`], in bytes: at most
    /// 1,024, rounded up to a multiple of 8. A longer one is elsewhere, which costs a get another
    /// read; all leaves have room for sixteen of this length. Unless this is called, it is the mean
    /// length of values, and at most 128.
    #[must_use]
    pub fn inline_bytes(mut self, bytes: usize) -> Self {
        self.inline_bytes = Some(bytes);
        self
    }

    /// Has all that clients read carry checksums, so that they may read it by RDMA, whose reads
    /// have no order (`Address::Rdma`). Each write hashes what it changes: with [`Preset::Rhumb`]
    /// the head of its leaf, with [`Preset::XStore`] that and the slots of sixteen values, with
    /// [`Preset::FineStore`] a block of 1 KiB. A record takes 8 bytes more; in an array of
    /// [`Preset::FineStore`], blocks have 41 records in place of 42.
    #[must_use]
    pub fn checksums(mut self, has_checksums: bool) -> Self {
        self.has_checksums = has_checksums;
        self
    }

    /// The options of a keyspace of [`Preset::XStore`].
    pub(in crate::host) fn tuning(&self) -> Tuning {
        Tuning {
            value_bytes: self.mean_entry_bytes().saturating_sub(KEY_BYTES),
            inline_bytes: self.inline_bytes,
            keys_per_model: self.keys_per_model,
            has_checksums: self.has_checksums,
        }
    }

    /// The options of a keyspace of [`Preset::FineStore`].
    pub(super) fn arrays(&self) -> binned::Options {
        binned::Options { has_checksums: self.has_checksums, ..binned::Options::default() }
    }

    /// As [`ShareOptions::entry_bytes`], if that was not called.
    #[must_use]
    pub fn or_entry_bytes(mut self, bytes: usize) -> Self {
        self.entry_bytes.get_or_insert(bytes);
        self
    }

    /// The mean size of entries that leaves are made for, in bytes.
    pub(super) fn mean_entry_bytes(&self) -> usize {
        self.entry_bytes.unwrap_or(ENTRY_BYTES)
    }
}
