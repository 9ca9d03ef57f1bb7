//! The constants of the server's encoding; `docs/format/server.md` explains them.

/// Version of the encoding, kept in the keyspace [`SYSTEM_KEYSPACE`].
pub(crate) const FORMAT_VERSION: u8 = 1;

/// The keyspace of what belongs to the server as a whole.
pub(crate) const SYSTEM_KEYSPACE: &str = "server";

/// System key: one byte, [`FORMAT_VERSION`].
pub(crate) const SYSTEM_VERSION: &[u8] = b"version";
/// System key: the first collection number that is not reserved, little-endian.
pub(crate) const SYSTEM_NEXT_ID: &[u8] = b"next-id";
/// System key: the time that the engine's clock has not passed while a server had the data, in
/// milliseconds since 1970, little-endian.
pub(crate) const SYSTEM_CLOCK: &[u8] = b"clock";
/// System key: sixteen bytes, for each database the number of its keyspaces.
pub(crate) const SYSTEM_MAP: &[u8] = b"map";
/// System key: begun emptying; followed by the number of the keyspaces.
pub(crate) const SYSTEM_CLEARING: &[u8] = b"clearing";
/// System key: the code of a library of functions; followed by the library's name.
pub(crate) const SYSTEM_FUNCTION: &[u8] = b"function.";

/// In an entry's first byte: whether a time of expiry follows.
pub(crate) const FLAG_EXPIRES: u8 = 0x80;
/// In a string's first byte: it was changed in part, so that Redis would keep its bytes as they
/// are, though they are a number or few. Only what `OBJECT ENCODING` says depends on it.
pub(crate) const FLAG_RAW: u8 = 0x40;
/// In a string's first byte: the engine drops the entry once its clock has passed the time of
/// expiry, without a write.
pub(crate) const FLAG_VANISHES: u8 = 0x20;
/// In an entry's first byte: the type.
pub(crate) const KIND_MASK: u8 = 0x0F;

/// Types of entries.
pub(crate) const KIND_STRING: u8 = 0;
pub(crate) const KIND_HASH: u8 = 1;
pub(crate) const KIND_ZSET: u8 = 2;
pub(crate) const KIND_LIST: u8 = 3;
pub(crate) const KIND_SET: u8 = 4;
pub(crate) const KIND_STREAM: u8 = 5;

/// Bytes of a collection's number at the front of its members' keys.
pub(crate) const ID_BYTES: usize = 8;

/// In a sorted set's member key after the number: by member, by score.
pub(crate) const ZSET_BY_MEMBER: u8 = 0;
pub(crate) const ZSET_BY_SCORE: u8 = 1;

/// In a key of the times of a hash's fields after the number: by field, by time.
pub(crate) const TIMES_BY_FIELD: u8 = 0;
pub(crate) const TIMES_BY_END: u8 = 1;

/// In a stream's member key after the number: an entry; a group by its name; what belongs to a
/// group.
pub(crate) const STREAM_ENTRY: u8 = 0;
pub(crate) const STREAM_GROUP: u8 = 1;
pub(crate) const STREAM_OF_GROUP: u8 = 2;

/// After a group's number: a consumer by its name, a consumer's name, a pending entry, a pending
/// entry by its consumer.
pub(crate) const GROUP_CONSUMER: u8 = 0;
pub(crate) const GROUP_CONSUMER_NAME: u8 = 1;
pub(crate) const GROUP_PENDING: u8 = 2;
pub(crate) const GROUP_OWNED: u8 = 3;

/// First byte of a work key: a collection to reclaim, a time of expiry, a time at which a field of
/// a hash ends.
pub(crate) const WORK_RECLAIM: u8 = 0;
pub(crate) const WORK_EXPIRY: u8 = 1;
pub(crate) const WORK_FIELDS: u8 = 2;

/// The value of a mark of a time of expiry that the engine drops at this time; other marks have an
/// empty one.
pub(crate) const MARK_VANISHES: u8 = 1;

/// Where the first element of a list is put: in the middle, so that it grows both ways.
pub(crate) const LIST_MIDDLE: u64 = 1 << 63;

/// How many databases.
pub(crate) const DATABASES: usize = 16;
