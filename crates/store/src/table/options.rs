//! How tables are written. Every table records in its own file how it was written, so these
//! settings may change at any time; they hold for tables written from then on.

use super::{
    format::{COMPRESSION_LZ4, COMPRESSION_NONE},
    index_block::{BlockIndexKind, StringCoding},
};

/// How the blocks of a table are compressed. A block that does not become at least an eighth
/// smaller is stored as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// Blocks are stored as they are.
    None,
    /// LZ4: fast, and needs nothing but Rust.
    #[default]
    Lz4,
    /// Zstandard at level 3: smaller and slower.
    #[cfg(feature = "zstd")]
    Zstd,
}

impl Compression {
    /// The compression of a byte, if this build has it.
    pub(crate) const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            COMPRESSION_NONE => Some(Self::None),
            COMPRESSION_LZ4 => Some(Self::Lz4),
            #[cfg(feature = "zstd")]
            super::format::COMPRESSION_ZSTD => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Returns true for the byte of a compression that another build has and this one lacks.
    pub(crate) const fn is_left_out(byte: u8) -> bool {
        byte == super::format::COMPRESSION_ZSTD && Self::from_byte(byte).is_none()
    }

    /// The byte that stands for it in a table.
    pub(crate) const fn byte(self) -> u8 {
        match self {
            Self::None => COMPRESSION_NONE,
            Self::Lz4 => COMPRESSION_LZ4,
            #[cfg(feature = "zstd")]
            Self::Zstd => super::format::COMPRESSION_ZSTD,
        }
    }
}

/// When tables of kind [`BlockIndexKind::Learned`] get their models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Training {
    /// While they are written.
    #[default]
    Always,
    /// While they are written by compactions, and by flushes when there are few writers. A table
    /// that is flushed while there are many has a binary-search index. A model over it is trained
    /// in the background once writes are rare, if a good one exists. That model stays in memory
    /// with the table until the table is compacted or the database is closed.
    Adaptive,
    /// Never: all tables are written with binary-search indexes.
    Never,
}

impl Training {
    /// All variants, in the order of their bytes.
    pub const ALL: [Self; 3] = [Self::Always, Self::Adaptive, Self::Never];

    /// The byte that stands for this in options.
    pub(crate) fn to_byte(self) -> u8 {
        match self {
            Self::Always => 0,
            Self::Adaptive => 1,
            Self::Never => 2,
        }
    }

    /// The variant that `byte` stands for, if any.
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte)).copied()
    }
}

/// With this many writers or more at a time, a flush with [`Training::Adaptive`] trains no model.
const WRITERS_MANY: usize = 4;

/// How the tables of a keyspace are written, as far as a caller asks for it.
///
/// `None` asks for nothing: an existing keyspace keeps what it has, and a new one gets the default.
/// An option that is asked for holds for the tables that are written from then on, and is
/// remembered. Existing tables stay as they are until a compaction rewrites them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableOptions {
    /// How the block of a key is found. Default [`BlockIndexKind::Learned`].
    pub index: Option<BlockIndexKind>,
    /// How a learned index turns keys into numbers. Default [`StringCoding::Auto`].
    pub string_coding: Option<StringCoding>,
    /// When models are trained. Default [`Training::Always`].
    pub training: Option<Training>,
    /// About the number of bytes of entries in a block before compression. One read brings one
    /// block into memory. 64 to 4 MiB; default 4096.
    pub block_bytes: Option<u32>,
    /// How blocks are compressed. Default LZ4.
    pub compression: Option<Compression>,
    /// Bits of filter per distinct key. With 10, about one absent key in a hundred passes the
    /// filter; 0 means no filter. At most 32; default 10.
    pub filter_bits_per_key: Option<u8>,
    /// The number of entries in a group, which share the prefix of its first entry. 1 (no sharing)
    /// to 255; default 16.
    pub restart_interval: Option<u8>,
    /// Values of more bytes than this are kept in a file beside the table, and are neither cached
    /// nor copied into memory by compactions. Default 64 KiB, at most 16 MiB.
    pub large_value_bytes: Option<u32>,
}

impl TableOptions {
    /// The layout of a keyspace that had `before`, after these options were asked for.
    pub(crate) fn over(&self, before: &TableLayout) -> TableLayout {
        TableLayout {
            index: self.index.unwrap_or(before.index),
            string_coding: self.string_coding.unwrap_or(before.string_coding),
            training: self.training.unwrap_or(before.training),
            block_bytes: self.block_bytes.unwrap_or(before.block_bytes),
            compression: self.compression.unwrap_or(before.compression),
            filter_bits_per_key: self.filter_bits_per_key.unwrap_or(before.filter_bits_per_key),
            restart_interval: self.restart_interval.unwrap_or(before.restart_interval),
            large_value_bytes: self.large_value_bytes.unwrap_or(before.large_value_bytes),
        }
    }
}

/// Asks for each option as it is.
impl From<TableLayout> for TableOptions {
    fn from(layout: TableLayout) -> Self {
        Self {
            index: Some(layout.index),
            string_coding: Some(layout.string_coding),
            training: Some(layout.training),
            block_bytes: Some(layout.block_bytes),
            compression: Some(layout.compression),
            filter_bits_per_key: Some(layout.filter_bits_per_key),
            restart_interval: Some(layout.restart_interval),
            large_value_bytes: Some(layout.large_value_bytes),
        }
    }
}

/// How tables are written: [`TableOptions`] with a value for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableLayout {
    pub(crate) index: BlockIndexKind,
    pub(crate) string_coding: StringCoding,
    pub(crate) training: Training,
    pub(crate) block_bytes: u32,
    pub(crate) compression: Compression,
    pub(crate) filter_bits_per_key: u8,
    pub(crate) restart_interval: u8,
    pub(crate) large_value_bytes: u32,
}

impl Default for TableLayout {
    fn default() -> Self {
        Self {
            index: BlockIndexKind::default(),
            string_coding: StringCoding::default(),
            training: Training::default(),
            block_bytes: 4096,
            compression: Compression::default(),
            filter_bits_per_key: 10,
            restart_interval: 16,
            large_value_bytes: 64 << 10,
        }
    }
}

impl TableLayout {
    /// Returns true if a flush trains models while `writers` writers contend with it. A compaction
    /// passes 0.
    pub(crate) fn trains(&self, writers: usize) -> bool {
        self.index == BlockIndexKind::Learned
            && match self.training {
                Training::Always => true,
                Training::Adaptive => writers < WRITERS_MANY,
                Training::Never => false,
            }
    }

    /// The options of a table that is written while `writers` writers are at work: see
    /// [`TableLayout::trains`].
    pub(crate) fn with_writers(&self, writers: usize) -> Self {
        let index = if self.trains(writers) {
            BlockIndexKind::Learned
        } else {
            BlockIndexKind::BinarySearch
        };
        Self { index, ..*self }
    }

    /// Returns true if a table that was written without a model may be given one.
    pub(crate) fn trains_while_reading(&self) -> bool {
        self.index == BlockIndexKind::Learned && self.training == Training::Adaptive
    }

    /// The same options with every number within its bounds.
    pub(crate) fn clamped(&self) -> Self {
        Self {
            index: self.index,
            string_coding: self.string_coding,
            training: self.training,
            block_bytes: self.block_bytes.clamp(64, 4 << 20),
            compression: self.compression,
            filter_bits_per_key: self.filter_bits_per_key.min(32),
            restart_interval: self.restart_interval.max(1),
            large_value_bytes: self.large_value_bytes.min(16 << 20),
        }
    }
}
