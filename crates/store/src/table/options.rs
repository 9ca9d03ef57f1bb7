//! How tables are written. Every table says in its own file how it was, so these settings may
//! change at any time and hold for tables written from then on.

use super::{
    format::{COMPRESSION_LZ4, COMPRESSION_NONE},
    index_block::IndexKind,
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

/// How the tables of a keyspace are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableOptions {
    /// How the block of a key is found.
    pub index: IndexKind,
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
            block_bytes: 4096,
            compression: Compression::default(),
            filter_bits_per_key: 10,
            restart_interval: 16,
            large_value_bytes: 64 << 10,
        }
    }
}

impl TableOptions {
    /// The same options with every number within its bounds.
    pub(crate) fn clamped(&self) -> Self {
        Self {
            index: self.index,
            block_bytes: self.block_bytes.clamp(64, 4 << 20),
            compression: self.compression,
            filter_bits_per_key: self.filter_bits_per_key.min(32),
            restart_interval: self.restart_interval.max(1),
            large_value_bytes: self.large_value_bytes.min(16 << 20),
        }
    }
}
