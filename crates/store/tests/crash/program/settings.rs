//! How a program opens its database and keyspaces.

use rhumb::{
    BlockIndexKind, Compression, KeyspaceOptions, MemtableKind, Partitioning, PersistMode,
    StringCoding, TableOptions, Training,
    io::{
        ReadMode,
        sim::{SimFs, SimRng},
    },
};

use super::HOME;

/// The settings that the database is opened with.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) memtable_bytes: u64,
    pub(crate) table_bytes: u64,
    pub(crate) level_one_bytes: u64,
    pub(crate) background_threads: usize,
    pub(crate) read_mode: ReadMode,
    pub(crate) durability: PersistMode,
    pub(crate) memtable_kind: MemtableKind,
}

impl Settings {
    /// Settings with sizes so small that flushes and compactions happen all the time.
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = SimRng::new(seed ^ 0x5e77_1265);
        Self {
            memtable_bytes: [500, 4_000, 30_000, 60_000][rng.index(4)],
            table_bytes: [1_000, 8_000, 100_000][rng.index(3)],
            level_one_bytes: [2_000, 20_000][rng.index(2)],
            background_threads: 0,
            read_mode: if rng.chance(1, 4) { ReadMode::Direct } else { ReadMode::Buffered },
            durability: match rng.below(8) {
                0 => PersistMode::SyncData,
                1 => PersistMode::SyncAll,
                _ => PersistMode::Buffer,
            },
            memtable_kind: [MemtableKind::Learned, MemtableKind::SkipList][rng.index(2)],
        }
    }
}

/// A disk with an empty, durable home for databases.
pub(crate) fn new_disk(seed: u64) -> SimFs {
    use rhumb::io::FileSystem;
    let fs = SimFs::new(seed);
    fs.create_dir_all(HOME.as_ref()).expect("the disk is sound");
    fs.sync_dir("/".as_ref()).expect("the disk is sound");
    fs
}

/// The options of a keyspace. They differ between keyspaces, so that every kind of block and of
/// file is written, and each opening changes how the next tables are written.
pub(super) fn keyspace_options(keyspace: usize, openings: usize) -> KeyspaceOptions {
    let restart_interval = Some([16, 3][openings % 2]);
    let defaults = TableOptions { restart_interval, ..TableOptions::default() };
    let table = match keyspace {
        // Enough blocks for tables to be worth training in the background.
        0 => TableOptions { block_bytes: Some(64), training: Some(Training::Adaptive), ..defaults },
        1 => TableOptions {
            block_bytes: Some(256),
            large_value_bytes: Some(800),
            string_coding: Some(StringCoding::On),
            training: Some(Training::Adaptive),
            ..defaults
        },
        _ => TableOptions {
            index: Some(BlockIndexKind::BinarySearch),
            compression: Some(Compression::None),
            filter_bits_per_key: Some(0),
            ..defaults
        },
    };
    let partitions = match keyspace {
        0 => Partitioning::None,
        1 => Partitioning::PrefixLength(7),
        _ => Partitioning::Delimiter(b'0'),
    };
    KeyspaceOptions { table, partitions, ..KeyspaceOptions::default() }
}
