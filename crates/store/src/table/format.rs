//! The numbers of the table format; `docs/format/table.md` says what they mean. All integers in a
//! table are little-endian.

/// The length of a table file, or of a table in a shared file, is a multiple of this.
pub(crate) const FILE_ALIGN_BYTES: usize = 4096;
/// The bytes of a page of the data area: a block's offset is known to this precision. A block of 4
/// KiB that begins anywhere touches about five pages. With pages of 4 KiB it would touch two, which
/// have twice as many bytes as the block.
pub(crate) const PAGE_BYTES: usize = 1024;
/// Bytes at the head of a page: where in its payload the first block frame starts.
pub(crate) const PAGE_HEADER_BYTES: usize = 2;
/// Bytes of block frames that a page holds.
pub(crate) const PAGE_PAYLOAD_BYTES: usize = PAGE_BYTES - PAGE_HEADER_BYTES;
/// The page header of a page in which no block frame starts.
pub(crate) const PAGE_NO_FRAME: u16 = 0xFFFF;

/// Bytes before the payload of a block frame: stored length u32, raw length u32, compression u8,
/// checksum u64.
pub(crate) const FRAME_HEADER_BYTES: usize = 17;
/// The most bytes that a compressed block decompresses to. Larger blocks are stored as they are, so
/// that a reader never allocates more than the larger of this and the file.
pub(crate) const COMPRESSED_RAW_BYTES_MAX: usize = 64 << 20;

/// The compression byte of a block frame that is stored as it is.
pub(crate) const COMPRESSION_NONE: u8 = 0;
/// The compression byte of a block frame in LZ4.
pub(crate) const COMPRESSION_LZ4: u8 = 1;
/// The compression byte of a block frame in Zstandard.
pub(crate) const COMPRESSION_ZSTD: u8 = 2;

/// Bytes before the directory of a block: entry count u32, restart interval u8, flags u8.
pub(crate) const BLOCK_HEADER_BYTES: usize = 6;
/// The number of entries in a group of the directory: first their tags, then their offsets.
pub(crate) const BLOCK_GROUP: usize = 8;
/// Block flag: entry offsets are u32 instead of u16.
pub(crate) const BLOCK_WIDE_OFFSETS: u8 = 1;

/// Bytes of a large value's place: offset u64, length u64, XXH3-64 u64.
pub(crate) const POINTER_BYTES: usize = 24;

/// Bytes before the payload of a section: kind u8, payload length u64, checksum u64.
pub(crate) const SECTION_HEADER_BYTES: usize = 17;
pub(crate) const SECTION_INDEX: u8 = 1;
pub(crate) const SECTION_FILTER: u8 = 2;
pub(crate) const SECTION_PROPERTIES: u8 = 3;
pub(crate) const SECTION_RANGES: u8 = 4;

/// The last eight bytes of a table.
pub(crate) const MAGIC: [u8; 8] = *b"RHUMBTAB";
/// The version of the format that this file describes. Versions 1 and 2 had pages of 4096 bytes,
/// before there was a release.
pub(crate) const FORMAT_VERSION: u32 = 3;
/// The version of a table with range tombstones, so that no program overlooks them. A reader
/// refuses any other version.
pub(crate) const FORMAT_VERSION_RANGES: u32 = 4;
/// The version of a table with entries that expire, so that no program shows them afterwards.
pub(crate) const FORMAT_VERSION_EXPIRIES: u32 = 5;
/// The version of a table with both.
pub(crate) const FORMAT_VERSION_BOTH: u32 = 6;
/// What is added to the version of a table that names its LSM tree.
pub(crate) const FORMAT_VERSION_TREE: u32 = 4;
/// The greatest version.
pub(crate) const FORMAT_VERSION_MAX: u32 = FORMAT_VERSION_BOTH + FORMAT_VERSION_TREE;
/// Bytes of the footer, which ends the file.
pub(crate) const FOOTER_BYTES: usize = 88;
/// The fewest bytes of a table: a page of data, the sections and the footer.
pub(crate) const TABLE_BYTES_MIN: u64 = FILE_ALIGN_BYTES as u64;
