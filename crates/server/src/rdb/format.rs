//! The constants of the format, as Redis writes it in versions 1 to 12.

/// The first bytes of a dump; four digits follow, its version.
pub(crate) const MAGIC: &[u8; 5] = b"REDIS";

/// The version that is written: that of Redis 7.0.
pub(crate) const VERSION_WRITTEN: u16 = 10;

/// The version that a hash is written in some of whose fields end: that of Redis 7.4, the first
/// with such fields.
pub(crate) const VERSION_WITH_TIMES: u16 = 12;

/// The newest version that is read: that of Redis 7.4.
pub(crate) const VERSION_READ_MAX: u16 = 12;

/// The first version with a checksum at its end.
pub(crate) const VERSION_CHECKSUM: u16 = 5;

/// The most bytes of one string, and so of one packed node: the longest that Redis takes from a
/// client, unless it is set to take more.
pub(crate) const STRING_BYTES_MAX: u64 = 512 << 20;

/// The top two bits of a length's first byte: 6 bits follow in it.
pub(crate) const LENGTH_6: u8 = 0;
/// The top two bits: 14 bits, big-endian.
pub(crate) const LENGTH_14: u8 = 1;
/// A whole first byte: 32 bits follow, big-endian.
pub(crate) const LENGTH_32: u8 = 0x80;
/// A whole first byte: 64 bits follow, big-endian.
pub(crate) const LENGTH_64: u8 = 0x81;
/// The top two bits: no length but an encoding of a string, in the lower six.
pub(crate) const LENGTH_ENCODED: u8 = 3;

/// Encodings of a string: integers of 8, 16 and 32 bits, and compressed bytes.
pub(crate) const STRING_INT8: u8 = 0;
pub(crate) const STRING_INT16: u8 = 1;
pub(crate) const STRING_INT32: u8 = 2;
pub(crate) const STRING_LZF: u8 = 3;

/// Types of values, and how they are encoded.
pub(crate) const TYPE_STRING: u8 = 0;
pub(crate) const TYPE_LIST: u8 = 1;
pub(crate) const TYPE_SET: u8 = 2;
pub(crate) const TYPE_ZSET: u8 = 3;
pub(crate) const TYPE_HASH: u8 = 4;
pub(crate) const TYPE_ZSET_2: u8 = 5;
pub(crate) const TYPE_MODULE_2: u8 = 7;
pub(crate) const TYPE_HASH_ZIPMAP: u8 = 9;
pub(crate) const TYPE_LIST_ZIPLIST: u8 = 10;
pub(crate) const TYPE_SET_INTSET: u8 = 11;
pub(crate) const TYPE_ZSET_ZIPLIST: u8 = 12;
pub(crate) const TYPE_HASH_ZIPLIST: u8 = 13;
pub(crate) const TYPE_LIST_QUICKLIST: u8 = 14;
pub(crate) const TYPE_STREAM_LISTPACKS: u8 = 15;
pub(crate) const TYPE_HASH_LISTPACK: u8 = 16;
pub(crate) const TYPE_ZSET_LISTPACK: u8 = 17;
pub(crate) const TYPE_LIST_QUICKLIST_2: u8 = 18;
pub(crate) const TYPE_STREAM_LISTPACKS_2: u8 = 19;
pub(crate) const TYPE_SET_LISTPACK: u8 = 20;
pub(crate) const TYPE_STREAM_LISTPACKS_3: u8 = 21;
pub(crate) const TYPE_HASH_METADATA_PRE_GA: u8 = 22;
pub(crate) const TYPE_HASH_LISTPACK_EX_PRE_GA: u8 = 23;
pub(crate) const TYPE_HASH_METADATA: u8 = 24;
pub(crate) const TYPE_HASH_LISTPACK_EX: u8 = 25;

/// A node of a list of type [`TYPE_LIST_QUICKLIST_2`]: one element, or packed elements.
pub(crate) const NODE_PLAIN: u64 = 1;
pub(crate) const NODE_PACKED: u64 = 2;

/// What stands between the keys of a dump. All are greater than every type.
pub(crate) const OP_SLOT_INFO: u8 = 244;
pub(crate) const OP_FUNCTION_2: u8 = 245;
pub(crate) const OP_MODULE_AUX: u8 = 247;
pub(crate) const OP_IDLE: u8 = 248;
pub(crate) const OP_FREQ: u8 = 249;
pub(crate) const OP_AUX: u8 = 250;
pub(crate) const OP_RESIZE: u8 = 251;
pub(crate) const OP_EXPIRE_MS: u8 = 252;
pub(crate) const OP_EXPIRE_S: u8 = 253;
pub(crate) const OP_DATABASE: u8 = 254;
pub(crate) const OP_END: u8 = 255;

/// Parts of a module's value: its end, signed and unsigned integers, floats, strings.
pub(crate) const MODULE_END: u64 = 0;
pub(crate) const MODULE_SIGNED: u64 = 1;
pub(crate) const MODULE_UNSIGNED: u64 = 2;
pub(crate) const MODULE_FLOAT: u64 = 3;
pub(crate) const MODULE_DOUBLE: u64 = 4;
pub(crate) const MODULE_STRING: u64 = 5;

/// Lengths of a score as text that are none: not a number, and the two infinities.
pub(crate) const SCORE_NAN: u8 = 253;
pub(crate) const SCORE_INFINITE: u8 = 254;
pub(crate) const SCORE_NEGATIVE_INFINITE: u8 = 255;

/// The last byte of packed elements.
pub(crate) const PACKED_END: u8 = 0xFF;

/// Flags of a stream's entry within its node: removed; with the fields of the node's first entry.
pub(crate) const ENTRY_REMOVED: i64 = 1;
pub(crate) const ENTRY_SAME_FIELDS: i64 = 2;

/// Bytes after a value that `DUMP` gives: the version, two bytes, and the checksum, eight.
pub(crate) const FOOTER_BYTES: usize = 10;
