//! The bytes of a dump; `docs/format/dump.md` describes them. No I/O here.

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::{
    expiry::{MILLIS_MAX, Millis},
    options::KeyspaceOptions,
    types::{KEY_BYTES_MAX, SeqNo, VALUE_BYTES_MAX},
    varint,
};

/// The first bytes of every dump.
pub(super) const MAGIC: [u8; 8] = *b"RHUMBDMP";

/// The version that this crate writes and reads.
pub(super) const VERSION: u32 = 1;

/// Bytes before the first block.
pub(super) const HEADER_BYTES: usize = 32;

/// Bytes before the payload of a block.
pub(super) const BLOCK_HEADER_BYTES: usize = 13;

/// The payload from which on a block takes no more entries: long enough that its header costs
/// nothing, and short enough that a reader holds little.
pub(super) const BLOCK_BYTES: usize = 256 << 10;

/// The longest payload of a block: one that was not full, and the longest entry, with room for the
/// lengths.
pub(super) const PAYLOAD_BYTES_MAX: usize = BLOCK_BYTES + KEY_BYTES_MAX + VALUE_BYTES_MAX + 64;

/// The kinds of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockKind {
    /// A keyspace begins.
    Keyspace,
    /// Entries of the keyspace.
    Entries,
    /// The dump ends.
    End,
}

impl BlockKind {
    const ALL: [Self; 3] = [Self::Keyspace, Self::Entries, Self::End];

    pub(super) fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.to_byte() == byte)
    }

    fn to_byte(self) -> u8 {
        match self {
            Self::Keyspace => 1,
            Self::Entries => 2,
            Self::End => 3,
        }
    }
}

/// What is wrong with bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// What was expected at an offset of the bytes given.
    Damaged { offset: usize, expected: &'static str },
    /// They are of a kind that this version does not know.
    Unknown(String),
}

fn damaged<T>(offset: usize, expected: &'static str) -> Result<T, Fault> {
    Err(Fault::Damaged { offset, expected })
}

/// The first bytes of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The sequence number of the last write in it.
    pub(super) seq: SeqNo,
}

impl Header {
    pub(super) fn encode(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.seq.to_le_bytes());
        let checksum = xxh3_64(&bytes[..24]);
        bytes[24..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads the header; returns it with its checksum, which the first block's depends on.
    pub(super) fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<(Self, u64), Fault> {
        let (words, _) = bytes.as_chunks::<8>();
        if words[0] != MAGIC {
            return damaged(0, "the bytes RHUMBDMP");
        }
        let checksum = u64::from_le_bytes(words[3]);
        if checksum != xxh3_64(&bytes[..24]) {
            return damaged(24, "the checksum of the header");
        }
        let [a, b, c, d, flags @ ..] = words[1];
        let (version, flags) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes(flags));
        if version != VERSION || flags != 0 {
            let found = format!("a dump of version {version} with flags {flags:x}");
            return Err(Fault::Unknown(format!("{found}; this one reads version {VERSION}")));
        }
        Ok((Self { seq: u64::from_le_bytes(words[2]) }, checksum))
    }
}

/// What stands before a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockHeader {
    pub(super) kind: BlockKind,
    pub(super) len: usize,
    pub(super) checksum: u64,
}

impl BlockHeader {
    /// The header of a payload that follows the block with the checksum `previous`.
    pub(super) fn of(kind: BlockKind, payload: &[u8], previous: u64) -> Self {
        let mut header = Self { kind, len: payload.len(), checksum: 0 };
        header.checksum = header.expected_checksum(payload, previous);
        header
    }

    pub(super) fn encode(&self) -> [u8; BLOCK_HEADER_BYTES] {
        let mut bytes = [0; BLOCK_HEADER_BYTES];
        bytes[..5].copy_from_slice(&self.head());
        bytes[5..].copy_from_slice(&self.checksum.to_le_bytes());
        bytes
    }

    fn head(&self) -> [u8; 5] {
        // Checked where blocks are made: PAYLOAD_BYTES_MAX is below 2^32.
        let [a, b, c, d] = (self.len as u32).to_le_bytes();
        [self.kind.to_byte(), a, b, c, d]
    }

    pub(super) fn decode(bytes: &[u8; BLOCK_HEADER_BYTES]) -> Result<Self, Fault> {
        let [kind, a, b, c, d, checksum @ ..] = *bytes;
        let Some(kind) = BlockKind::from_byte(kind) else {
            return damaged(0, "the kind of a block, 1 to 3");
        };
        let len = u32::from_le_bytes([a, b, c, d]) as usize;
        if len > PAYLOAD_BYTES_MAX {
            return damaged(1, "the length of a block, of little more than 1 GiB at most");
        }
        Ok(Self { kind, len, checksum: u64::from_le_bytes(checksum) })
    }

    /// The checksum of a block with this kind and length. It depends on the block before, so that
    /// none can be left out, repeated or exchanged.
    pub(super) fn expected_checksum(&self, payload: &[u8], previous: u64) -> u64 {
        let mut hasher = Xxh3::with_seed(previous);
        hasher.update(&self.head());
        hasher.update(payload);
        hasher.digest()
    }
}

/// The payload of a block that begins a keyspace.
pub(super) fn encode_keyspace(name: &str, options: &KeyspaceOptions) -> Vec<u8> {
    let mut out = Vec::new();
    varint::put(&mut out, name.len() as u64);
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(&options.encode());
    out
}

/// Reads what [`encode_keyspace`] wrote.
pub(super) fn decode_keyspace(payload: &[u8]) -> Result<(String, KeyspaceOptions), Fault> {
    let mut rest = payload;
    let name = varint::take(&mut rest)
        .and_then(|len| rest.split_off(..usize::try_from(len).ok()?))
        .and_then(|name| String::from_utf8(name.to_vec()).ok());
    let Some(name) = name else { return damaged(0, "the name of a keyspace") };
    if KeyspaceOptions::lacks_compression(rest) {
        return Err(Fault::Unknown(format!("keyspace {name:?} has a compression of other builds")));
    }
    match KeyspaceOptions::decode(rest) {
        Ok(options) => Ok((name, options)),
        Err(_) => damaged(payload.len() - rest.len(), "the options of a keyspace"),
    }
}

/// The flags of a block of entries without expiry times.
const ENTRIES_PLAIN: u8 = 0;
/// The flags of a block of entries each of which expires.
const ENTRIES_EXPIRING: u8 = 1;

/// Begins the payload of a block of entries all of which expire, or none.
pub(super) fn begin_entries(out: &mut Vec<u8>, expire: bool) {
    out.clear();
    out.push(if expire { ENTRIES_EXPIRING } else { ENTRIES_PLAIN });
}

/// Returns true if the entries of a payload expire.
fn do_expire(payload: &[u8]) -> bool {
    payload.first() == Some(&ENTRIES_EXPIRING)
}

/// Returns true if an entry with this time may be put into a payload.
pub(super) fn may_put(payload: &[u8], expires_ms: Option<Millis>) -> bool {
    do_expire(payload) == expires_ms.is_some()
}

/// Returns true if a payload has no entries yet.
pub(super) fn has_no_entries(payload: &[u8]) -> bool {
    payload.len() <= 1
}

/// Appends an entry that [`may_put`] allows.
pub(super) fn put_entry(out: &mut Vec<u8>, key: &[u8], value: &[u8], expires_ms: Option<Millis>) {
    if let Some(at_ms) = expires_ms {
        out.extend_from_slice(&at_ms.to_le_bytes());
    }
    varint::put(out, key.len() as u64);
    varint::put(out, value.len() as u64);
    out.extend_from_slice(key);
    out.extend_from_slice(value);
}

/// Returns where the first entry of a payload begins.
pub(super) fn first_entry(payload: &[u8]) -> Result<usize, Fault> {
    match payload.first() {
        Some(&(ENTRIES_PLAIN | ENTRIES_EXPIRING)) => Ok(1),
        Some(flags) => Err(Fault::Unknown(format!("entries with flags {flags:x}"))),
        None => damaged(0, "flags"),
    }
}

/// An entry: key, value, and the time at which it expires if it does.
pub(super) type Entry<'p> = (&'p [u8], &'p [u8], Option<Millis>);

/// The entry at `at` of a payload, and where the next one begins.
pub(super) fn entry_at(payload: &[u8], at: usize) -> Result<(Entry<'_>, usize), Fault> {
    let mut rest = payload.get(at..).unwrap_or_default();
    let mut expires_ms = None;
    if do_expire(payload) {
        let Some(stamp) = rest.split_off(..8).and_then(<[u8]>::first_chunk) else {
            return damaged(at, "the time at which an entry expires");
        };
        let at_ms = u64::from_le_bytes(*stamp);
        if at_ms > MILLIS_MAX {
            return damaged(at, "a time below 2^63 milliseconds");
        }
        expires_ms = Some(at_ms);
    }
    let mut len = |max: usize| varint::take(&mut rest).filter(|len| *len <= max as u64);
    let (Some(key), Some(value)) = (len(KEY_BYTES_MAX), len(VALUE_BYTES_MAX)) else {
        return damaged(at, "the lengths of a key and a value");
    };
    let (Some(key), Some(value)) =
        (rest.split_off(..key as usize), rest.split_off(..value as usize))
    else {
        return damaged(at, "an entry within its block");
    };
    Ok(((key, value, expires_ms), payload.len() - rest.len()))
}

/// What a dump holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) keyspaces: u64,
    pub(super) entries: u64,
}

impl Counts {
    /// The payload of the last block.
    pub(super) fn encode(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.keyspaces.to_le_bytes());
        bytes[8..].copy_from_slice(&self.entries.to_le_bytes());
        bytes
    }

    pub(super) fn decode(payload: &[u8]) -> Result<Self, Fault> {
        let ([keyspaces, entries], []) = payload.as_chunks::<8>() else {
            return damaged(0, "two counts");
        };
        Ok(Self {
            keyspaces: u64::from_le_bytes(*keyspaces),
            entries: u64::from_le_bytes(*entries),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let header = Header { seq: 7 }.encode();
        assert_eq!(&header[..24], b"RHUMBDMP\x01\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0");
        let (decoded, checksum) = Header::decode(&header).unwrap();
        assert_eq!((decoded, checksum), (Header { seq: 7 }, xxh3_64(&header[..24])));
        let mut payload = Vec::new();
        begin_entries(&mut payload, false);
        assert!(has_no_entries(&payload) && may_put(&payload, None) && !may_put(&payload, Some(1)));
        put_entry(&mut payload, b"key", b"value", None);
        put_entry(&mut payload, b"", b"", None);
        assert_eq!(payload, b"\0\x03\x05keyvalue\0\0");
        let block = BlockHeader::of(BlockKind::Entries, &payload, checksum);
        assert_eq!(&block.encode()[..5], [2, 13, 0, 0, 0]);
        assert_eq!(block.checksum, {
            let mut hasher = Xxh3::with_seed(checksum);
            hasher.update(&[2, 13, 0, 0, 0]);
            hasher.update(&payload);
            hasher.digest()
        });
        assert_eq!(BlockHeader::decode(&block.encode()), Ok(block));
        assert_eq!(entry_at(&payload, 1), Ok(((&b"key"[..], &b"value"[..], None), 11)));
        assert_eq!(entry_at(&payload, 11), Ok(((&b""[..], &b""[..], None), 13)));
        begin_entries(&mut payload, true);
        assert!(may_put(&payload, Some(1)) && !may_put(&payload, None));
        put_entry(&mut payload, b"k", b"v", Some(0x0102));
        assert_eq!(payload, b"\x01\x02\x01\0\0\0\0\0\0\x01\x01kv");
        assert_eq!(entry_at(&payload, 1), Ok(((&b"k"[..], &b"v"[..], Some(0x0102)), 13)));
        payload[8] = 0x80;
        assert!(entry_at(&payload, 1).is_err() && entry_at(&payload[..5], 1).is_err());
        let options = KeyspaceOptions::default();
        let keyspace = encode_keyspace("ab", &options);
        assert_eq!(&keyspace[..3], b"\x02ab");
        assert_eq!(decode_keyspace(&keyspace).unwrap().0, "ab");
        let counts = Counts { keyspaces: 1, entries: 2 };
        assert_eq!(Counts::decode(&counts.encode()), Ok(counts));
    }

    #[test]
    fn what_is_unknown_is_told_from_damage() {
        let mut header = Header { seq: 0 }.encode();
        header[8] = 2;
        assert!(matches!(Header::decode(&header), Err(Fault::Damaged { offset: 24, .. })));
        let checksum = xxh3_64(&header[..24]);
        header[24..].copy_from_slice(&checksum.to_le_bytes());
        assert!(matches!(Header::decode(&header), Err(Fault::Unknown(_))));
        assert!(matches!(first_entry(&[2]), Err(Fault::Unknown(_))));
        assert!(matches!(first_entry(&[]), Err(Fault::Damaged { .. })));
    }
}
