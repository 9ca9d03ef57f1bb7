//! How tables are written. Every table says in its own file how it was, so these settings may
//! change at any time and hold for tables written from then on.

use super::{
    format::{COMPRESSION_LZ4, COMPRESSION_NONE},
    index_block::{IndexKind, StringCoding},
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

    /// Its byte in a table.
    pub(crate) const fn byte(self) -> u8 {
        match self {
            Self::None => COMPRESSION_NONE,
            Self::Lz4 => COMPRESSION_LZ4,
            #[cfg(feature = "zstd")]
            Self::Zstd => super::format::COMPRESSION_ZSTD,
        }
    }
}

/// When tables of kind [`IndexKind::Learned`] get their models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Training {
    /// While they are written.
    #[default]
    Always,
    /// While they are written by compactions, and by flushes when writers are few. A table that is
    /// flushed in a busy time has a binary-search index; a model over it is trained in the background
    /// once writes are rare, if a good one can be had. It stays in memory, and with the table until
    /// that is compacted or the database is closed.
    Adaptive,
    /// Never: all tables are written with binary-search indexes.
    Never,
}

impl Training {
    /// All ways, in the order of their bytes.
    pub const ALL: [Self; 3] = [Self::Always, Self::Adaptive, Self::Never];

    /// The number that stands for this in options.
    pub(crate) fn to_byte(self) -> u8 {
        match self {
            Self::Always => 0,
            Self::Adaptive => 1,
            Self::Never => 2,
        }
    }

    /// What `byte` stands for, if anything.
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte)).copied()
    }
}

/// How many writers at a time are too many to train in a flush.
const WRITERS_MANY: usize = 4;

/// How the tables of a keyspace are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableOptions {
    /// How the block of a key is found.
    pub index: IndexKind,
    /// What numbers a learned index makes of keys. Default [`StringCoding::Auto`].
    pub string_coding: StringCoding,
    /// When models are trained. Default [`Training::Always`].
    pub training: Training,
    /// About how many bytes of entries a block holds before compression. A block is what one read
    /// brings into memory. 64 to 4 MiB; default 4096.
    pub block_bytes: u32,
    /// How blocks are compressed. Default LZ4.
    pub compression: Compression,
    /// Bits of filter per distinct key; 10 let about one absent key in a hundred through, 0 means
    /// no filter. At most 32; default 10.
    pub filter_bits_per_key: u8,
    /// How many entries share the prefix of the first one among them. 1 (no sharing) to 255;
    /// default 16.
    pub restart_interval: u8,
    /// Values of more bytes than this are kept in a file beside the table, and are neither cached
    /// nor copied into memory by compactions. Default 64 KiB, at most 16 MiB.
    pub large_value_bytes: u32,
}

impl Default for TableOptions {
    fn default() -> Self {
        Self {
            index: IndexKind::default(),
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

impl TableOptions {
    /// Whether a flush that so many writers contend with trains models. Compactions do unless nothing
    /// does: with `writers` 0.
    pub(crate) fn trains(&self, writers: usize) -> bool {
        self.index == IndexKind::Learned
            && match self.training {
                Training::Always => true,
                Training::Adaptive => writers < WRITERS_MANY,
                Training::Never => false,
            }
    }

    /// The options of a table that is written when so many writers are at work: see
    /// [`TableOptions::trains`].
    pub(crate) fn with_writers(&self, writers: usize) -> Self {
        let index = if self.trains(writers) { IndexKind::Learned } else { IndexKind::BinarySearch };
        Self { index, ..self.clone() }
    }

    /// Whether a table that was written without a model may be given one.
    pub(crate) fn trains_while_reading(&self) -> bool {
        self.index == IndexKind::Learned && self.training == Training::Adaptive
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
