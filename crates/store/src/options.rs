//! Settings: plain data with sound defaults.

mod format;

use std::time::Duration;

use rhumb_sync::primitive::{AtomicU64, Mutex, Ordering};

use crate::{
    error::{Error, Result},
    expiry::{MILLIS_MAX, Millis},
    io::{ReadEngineKind, ReadMode},
    partition::Partitioning,
    table::{BlockIndexKind, StringCoding, TableLayout, TableOptions, Training},
};

/// The failures that an acknowledged write survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PersistMode {
    /// The end of the process: the write was handed to the operating system.
    #[default]
    Buffer,
    /// A power cut: the log's contents were forced to the disk (`fdatasync`).
    SyncData,
    /// A power cut: like [`PersistMode::SyncData`], with all of the file's metadata (`fsync`).
    SyncAll,
}

/// The data structure of memtables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MemtableKind {
    /// The index of this crate, which learns where keys are: inserts and lookups take a few steps
    /// in any order of the keys, and O(log n) at worst.
    #[default]
    Learned,
    /// A lock-free skip list: O(log n) steps, whatever the keys.
    SkipList,
}

/// The options that are requested of a keyspace when it is opened.
///
/// The default requests nothing: it opens a keyspace as it is, and creates one with the options
/// that are best for most.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeyspaceOptions {
    /// How its tables are written. This may change whenever the keyspace is opened.
    pub table: TableOptions,
    /// How its keys are divided into partitions. This is fixed when the keyspace is created.
    /// [`Partitioning::None`] requests no partitions for a new keyspace, and makes no request of an
    /// existing one.
    pub partitions: Partitioning,
    /// How long entries live that are written without a time of their own, from their writing on.
    /// `None` requests nothing: a new keyspace then has [`Lifetime::Endless`]. This may change
    /// whenever the keyspace is opened, and then holds for what is written from then on.
    pub lifetime: Option<Lifetime>,
}

/// How long the entries of a keyspace live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Lifetime {
    /// Until they are removed or written over.
    #[default]
    Endless,
    /// For this long, in milliseconds and at least one, or until they are removed or written over.
    /// [`Keyspace::insert_until`](crate::Keyspace::insert_until) says what that means for readers.
    For(Duration),
}

impl Lifetime {
    /// Milliseconds; 0 for ever.
    fn millis(self) -> Millis {
        match self {
            Self::Endless => 0,
            Self::For(time) => {
                u64::try_from(time.as_millis()).unwrap_or(MILLIS_MAX).clamp(1, MILLIS_MAX)
            }
        }
    }

    fn of(millis: Millis) -> Self {
        if millis == 0 { Self::Endless } else { Self::For(Duration::from_millis(millis)) }
    }
}

/// The options that a keyspace has. Its LSM trees share them.
#[derive(Debug)]
pub(crate) struct LiveOptions {
    table: Mutex<TableLayout>,
    pub(crate) partitions: Partitioning,
    /// Milliseconds; 0 for ever.
    lifetime_ms: AtomicU64,
}

impl LiveOptions {
    /// The options of a new keyspace that is created with `options`.
    pub(crate) fn new(options: &KeyspaceOptions) -> Self {
        let table = options.table.over(&TableLayout::default());
        let lifetime_ms = AtomicU64::new(options.lifetime.unwrap_or_default().millis());
        Self { table: Mutex::new(table), partitions: options.partitions.clone(), lifetime_ms }
    }

    /// How tables are written from now on.
    pub(crate) fn table(&self) -> TableLayout {
        *self.table.lock()
    }

    /// How long entries live that are written without a time of their own; none if without end.
    #[inline]
    pub(crate) fn lifetime_ms(&self) -> Option<Millis> {
        Some(self.lifetime_ms.load(Ordering::Relaxed)).filter(|millis| *millis > 0)
    }

    /// The options with what is requested of those that may change.
    pub(crate) fn with(&self, requested: &KeyspaceOptions) -> KeyspaceOptions {
        let mut all = self.all();
        all.table = requested.table.over(&self.table()).into();
        all.lifetime =
            requested.lifetime.map(|asked| Lifetime::of(asked.millis())).or(all.lifetime);
        all
    }

    /// Changes the options that may change to those of `options`, which have a value each.
    pub(crate) fn set(&self, options: &KeyspaceOptions) {
        *self.table.lock() = options.table.over(&TableLayout::default());
        let lifetime = options.lifetime.unwrap_or_default();
        self.lifetime_ms.store(lifetime.millis(), Ordering::Relaxed);
    }

    /// All options, each with a value.
    pub(crate) fn all(&self) -> KeyspaceOptions {
        KeyspaceOptions {
            table: self.table().into(),
            partitions: self.partitions.clone(),
            lifetime: Some(Lifetime::of(self.lifetime_ms.load(Ordering::Relaxed))),
        }
    }
}

/// A published engine, as far as a keyspace can be set up like it: for measuring what it was
/// published with, and for comparing. `docs/papers.md` says where the parts differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeyspacePreset {
    /// TridentKV. Its index blocks are learned over string codes trained from the keys
    /// ([`StringCoding::On`]). Its models are trained while tables are written if there are few
    /// writers, and otherwise later in the background ([`Training::Adaptive`]). Every partition has
    /// its own LSM tree. Its reads are those of
    /// [`Keyspace::get_async`](crate::Keyspace::get_async).
    TridentKv,
}

impl KeyspacePreset {
    /// The options of a keyspace that is divided by `partitions`. According to the paper, the
    /// partitions follow from the application.
    ///
    /// Each technique can be disabled by itself: the codes by [`StringCoding::Off`], the models by
    /// [`Training::Never`] (blocks are then found by binary search), and the partitions by
    /// [`Partitioning::None`].
    ///
    /// ```
    /// use rhumb::{KeyspacePreset, Partitioning, StringCoding};
    ///
    /// let published = KeyspacePreset::TridentKv.options(Partitioning::Delimiter(b'/'));
    /// let mut uncoded = published.clone();
    /// uncoded.table.string_coding = Some(StringCoding::Off);
    /// ```
    #[must_use]
    pub fn options(self, partitions: Partitioning) -> KeyspaceOptions {
        let Self::TridentKv = self;
        let table = TableOptions {
            index: Some(BlockIndexKind::Learned),
            string_coding: Some(StringCoding::On),
            training: Some(Training::Adaptive),
            ..TableOptions::default()
        };
        KeyspaceOptions { table, partitions, lifetime: None }
    }
}

impl KeyspaceOptions {
    /// Rejects values that are out of bounds. The error names the option.
    pub(crate) fn check(&self) -> Result<()> {
        let table = self.table.over(&TableLayout::default());
        let refuse = |what: String| Err(Error::InvalidArgument(what.into()));
        if table != table.clamped() {
            return refuse(format!("table options are out of their documented bounds: {table:?}"));
        }
        self.partitions.check().or_else(refuse)
    }
}

/// Settings of an open database.
#[derive(Clone, Debug)]
pub(crate) struct DatabaseOptions {
    pub(crate) create_if_missing: bool,
    pub(crate) memory_budget_bytes: u64,
    pub(crate) memtable_bytes: u64,
    pub(crate) memtable_kind: MemtableKind,
    pub(crate) table_bytes: u64,
    pub(crate) level_one_bytes: u64,
    pub(crate) background_threads: usize,
    pub(crate) background_niceness: i32,
    pub(crate) timed_reads: u32,
    pub(crate) read_mode: ReadMode,
    pub(crate) read_engine: ReadEngineKind,
    pub(crate) read_ahead: bool,
    pub(crate) durability: PersistMode,
    pub(crate) open_files_max: Option<u64>,
    pub(crate) follow_log: bool,
    /// True if the database takes the changes of another one, and no writes of its own.
    pub(crate) is_replica: bool,
}

/// The factor by which each level may be larger than the one above it.
pub(crate) const LEVEL_RATIO: u64 = 10;

/// The number of tables of level 0 from which a compaction is due.
pub(crate) const L0_TABLES_TRIGGER: usize = 4;

/// The number of tables of level 0 from which writers are slowed down.
pub(crate) const L0_TABLES_SLOW: usize = 12;
/// The number of tables of level 0 from which writers are slowed down the most.
pub(crate) const L0_TABLES_SLOWEST: usize = 36;

/// The number of full memtables that may wait for their flush.
pub(crate) const SEALED_MAX: usize = 2;

/// Read-ahead may take at most one in this many parts of the memory budget.
const AHEAD_SHARE: u64 = 16;
/// The number of bytes that read-ahead may always take, however small the memory budget is.
const AHEAD_BYTES_MIN: u64 = 1 << 20;

impl DatabaseOptions {
    /// The number of bytes that may be read ahead.
    pub(crate) fn ahead_bytes_max(&self) -> usize {
        let bytes = (self.memory_budget_bytes / AHEAD_SHARE).max(AHEAD_BYTES_MIN);
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }
}

impl Default for DatabaseOptions {
    fn default() -> Self {
        Self {
            create_if_missing: true,
            memory_budget_bytes: 512 << 20,
            memtable_bytes: 64 << 20,
            memtable_kind: MemtableKind::default(),
            table_bytes: 64 << 20,
            level_one_bytes: 256 << 20,
            background_threads: 2,
            background_niceness: 0,
            timed_reads: 0,
            read_mode: ReadMode::Buffered,
            read_engine: ReadEngineKind::Kernel,
            read_ahead: true,
            durability: PersistMode::Buffer,
            open_files_max: None,
            follow_log: true,
            is_replica: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{format::PLAIN_VERSION, *};

    /// Each technique of a preset is an option of its own, which a keyspace stores.
    #[test]
    fn a_preset_is_taken_back_piece_by_piece() {
        let published = KeyspacePreset::TridentKv.options(Partitioning::Delimiter(b'/'));
        let table = |change: fn(&mut TableOptions)| {
            let mut options = published.clone();
            change(&mut options.table);
            options
        };
        let uncoded = table(|table| table.string_coding = Some(StringCoding::Off));
        let untrained = table(|table| table.training = Some(Training::Never));
        let whole = KeyspaceOptions { partitions: Partitioning::None, ..published.clone() };
        let layout = |options: &KeyspaceOptions| options.table.over(&TableLayout::default());
        assert!(layout(&published).trains(1) && layout(&published).trains_while_reading());
        assert!(!layout(&published).trains(8) && !layout(&untrained).trains(1));
        for (at, options) in [&published, &uncoded, &untrained, &whole].into_iter().enumerate() {
            assert_eq!(
                KeyspaceOptions::decode(&options.encode()),
                Ok(LiveOptions::new(options).all())
            );
            assert_eq!(options == &published, at == 0);
        }
    }

    #[cfg(not(feature = "zstd"))]
    #[test]
    fn a_compression_of_another_build_is_told_from_damage() {
        for (byte, is_left_out) in [(1, false), (2, true), (77, false)] {
            let mut bytes = KeyspaceOptions::default().encode();
            bytes[2] = byte;
            assert_eq!(KeyspaceOptions::lacks_compression(&bytes), is_left_out);
            assert!(!is_left_out || KeyspaceOptions::decode(&bytes).is_err());
        }
    }

    #[test]
    fn coding_and_training_share_a_byte_with_the_kind_of_index() {
        let usual = KeyspaceOptions::default().encode();
        assert_eq!(usual[..2], [PLAIN_VERSION, 1]);
        for string_coding in StringCoding::ALL {
            for training in Training::ALL {
                let table = TableLayout { string_coding, training, ..TableLayout::default() };
                let options = KeyspaceOptions { table: table.into(), ..KeyspaceOptions::default() };
                let bytes = options.encode();
                let byte = 1 | string_coding.to_byte() << 4 | training.to_byte() << 6;
                assert_eq!((bytes[1], &bytes[2..]), (byte, &usual[2..]));
                assert_eq!(KeyspaceOptions::decode(&bytes), Ok(LiveOptions::new(&options).all()));
            }
        }
        for byte in [0, 3, 0x31, 0xc1] {
            let bytes = [&[PLAIN_VERSION, byte], &usual[2..]].concat();
            assert!(KeyspaceOptions::decode(&bytes).is_err(), "{byte:#x}");
        }
    }
}
