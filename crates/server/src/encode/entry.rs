//! Entries of a database's keys: a string's bytes, or what is to be known of a collection.

use rhumb::Slice;

use super::format::{
    FLAG_EXPIRES, FLAG_RAW, FLAG_VANISHES, KIND_HASH, KIND_LIST, KIND_MASK, KIND_SET, KIND_STREAM,
    KIND_STRING, KIND_ZSET,
};

/// The type of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    String = KIND_STRING,
    Hash = KIND_HASH,
    Zset = KIND_ZSET,
    List = KIND_LIST,
    Set = KIND_SET,
    Stream = KIND_STREAM,
}

impl Kind {
    /// The type as `TYPE` names it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Hash => "hash",
            Self::Zset => "zset",
            Self::List => "list",
            Self::Set => "set",
            Self::Stream => "stream",
        }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte & KIND_MASK {
            KIND_STRING => Self::String,
            KIND_HASH => Self::Hash,
            KIND_ZSET => Self::Zset,
            KIND_LIST => Self::List,
            KIND_SET => Self::Set,
            KIND_STREAM => Self::Stream,
            _ => return None,
        })
    }
}

/// What an entry says of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    /// Its number, at the front of its members' keys; never used twice.
    pub(crate) id: u64,
    /// How many members it has.
    pub(crate) count: u64,
    /// Of a list: the place of its first element.
    pub(crate) first: u64,
    /// Of a hash: the number of the collection that has the times at which its fields end; 0 if no
    /// field ends.
    pub(crate) times: u64,
}

/// An entry as it was read.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    /// When it ends, in milliseconds since 1970; 0 if it does not.
    pub(crate) expires_ms: u64,
    value: Slice,
    /// Where in the value the header ends.
    body: usize,
}

/// The head of an entry: type, expiry, and where the rest begins.
#[inline]
pub(crate) fn decode_head(value: &[u8]) -> Option<(Kind, u64, usize)> {
    let first = *value.first()?;
    let kind = Kind::from_byte(first)?;
    if first & FLAG_EXPIRES == 0 {
        return Some((kind, 0, 1));
    }
    let expires = value.get(1..9)?.try_into().ok()?;
    Some((kind, u64::from_le_bytes(expires), 9))
}

/// Returns true if the engine drops an entry once its clock has passed the time of expiry.
#[inline]
pub(crate) fn is_left_to_engine(value: &[u8]) -> bool {
    value.first().is_some_and(|first| first & FLAG_VANISHES != 0)
}

/// When the engine drops an entry, in milliseconds since 1970, if it does.
#[inline]
pub(crate) fn ends_in_engine(entry: &[u8]) -> Option<u64> {
    is_left_to_engine(entry).then(|| decode_head(entry).map(|(_, ends_ms, _)| ends_ms)).flatten()
}

/// Returns true if an entry has not ended at `now_ms`; false also for bytes that are none.
#[inline]
pub(crate) fn is_live(entry: &[u8], now_ms: u64) -> bool {
    decode_head(entry).is_some_and(|(_, ends_ms, _)| ends_ms == 0 || ends_ms > now_ms)
}

/// The most bytes of an entry that is left to the engine, which copies what it is to drop. A longer
/// one is removed by a write, and moved once when it is written.
const LEFT_BYTES_MAX: usize = LONG_BYTES;

/// Leaves the entry of a string that ends to the engine, if `leave` and if it is not long; or takes
/// that back. Returns true if it is left.
pub(crate) fn leave_to_engine(value: &mut [u8], leave: bool) -> bool {
    let is_left = leave && value.len() <= LEFT_BYTES_MAX;
    if let Some(first) = value.first_mut() {
        *first = if is_left { *first | FLAG_VANISHES } else { *first & !FLAG_VANISHES };
    }
    is_left
}

impl Entry {
    /// Reads an entry; none if the bytes are none.
    #[inline]
    pub(crate) fn decode(value: Slice) -> Option<Self> {
        let (kind, expires_ms, body) = decode_head(&value)?;
        Some(Self { kind, expires_ms, value, body })
    }

    /// The bytes of a string.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.value[self.body..]
    }

    /// Returns true if it is a string that was changed in part.
    pub(crate) fn is_raw(&self) -> bool {
        self.flags() != 0
    }

    /// The flags of its first byte that stay whatever time of expiry it is given.
    fn flags(&self) -> u8 {
        self.value.first().map_or(0, |first| first & FLAG_RAW)
    }

    /// Returns true if the engine drops the entry once its clock has passed the time of expiry.
    pub(crate) fn is_left_to_engine(&self) -> bool {
        is_left_to_engine(&self.value)
    }

    /// What there is to be known of a collection; none if the bytes are damaged.
    pub(crate) fn meta(&self) -> Option<Meta> {
        let word = |at: usize| {
            let bytes = self.bytes().get(at..at + 8)?.try_into().ok()?;
            Some(u64::from_le_bytes(bytes))
        };
        let first = if self.kind == Kind::List { word(16)? } else { 0 };
        let has_times = self.kind == Kind::Hash && self.bytes().len() > 16;
        let times = if has_times { word(16)? } else { 0 };
        Some(Meta { id: word(0)?, count: word(8)?, first, times })
    }

    /// The bytes of the same entry with another time of expiry.
    pub(crate) fn with_expiry(&self, expires_ms: u64) -> Vec<u8> {
        let mut out = with_room(self.bytes().len());
        push_head(&mut out, self.kind, expires_ms);
        out[0] |= self.flags();
        out.extend_from_slice(self.bytes());
        out
    }

    /// The entry of a collection that has another number and is the same otherwise; none if the
    /// bytes are damaged.
    pub(crate) fn with_number(&self, id: u64) -> Option<Self> {
        let mut value = self.value.to_vec();
        value.get_mut(self.body..self.body + 8)?.copy_from_slice(&id.to_le_bytes());
        Some(Self { value: value.into(), ..self.clone() })
    }

    /// Returns true if the entry has ended at `now_ms`.
    #[inline]
    pub(crate) fn is_expired(&self, now_ms: u64) -> bool {
        self.expires_ms != 0 && self.expires_ms <= now_ms
    }
}

/// Appends the head of an entry.
#[inline]
pub(crate) fn push_head(out: &mut Vec<u8>, kind: Kind, expires_ms: u64) {
    if expires_ms == 0 {
        out.push(kind as u8);
        return;
    }
    out.push(kind as u8 | FLAG_EXPIRES);
    out.extend_from_slice(&expires_ms.to_le_bytes());
}

/// The entry of a string.
pub(crate) fn encode_string(bytes: &[u8], expires_ms: u64) -> Vec<u8> {
    let mut out = with_room(bytes.len());
    push_head(&mut out, Kind::String, expires_ms);
    out.extend_from_slice(bytes);
    out
}

/// A string from which on its entry leaves [`HEAD_ROOM`]: a move of fewer bytes takes no time.
const LONG_BYTES: usize = 1 << 20;

/// Room that is left in the entry of a long string: the engine puts a head in front of it, which
/// holds the key, of at most 64 KiB. Without it the system moves all pages of the entry, and no
/// other thread gets memory meanwhile.
const HEAD_ROOM: usize = 65 << 10;

/// A vector with room for the entry of a string.
fn with_room(len: usize) -> Vec<u8> {
    Vec::with_capacity(len + 9 + if len < LONG_BYTES { 0 } else { HEAD_ROOM })
}

/// A string that is changed in part, within the entry that it becomes: its bytes are copied once.
#[derive(Debug)]
pub(crate) struct Edited {
    entry: Vec<u8>,
    /// Where in the entry the head ends.
    body: usize,
    expires_ms: u64,
}

impl Edited {
    /// The string that is there, or an empty one, with room for `len` bytes. It ends when that
    /// does.
    pub(crate) fn of(before: Option<&Entry>, len: usize) -> Self {
        let (old, expires_ms) =
            before.map_or((&[][..], 0), |before| (before.bytes(), before.expires_ms));
        let mut edited = Self::empty(len.max(old.len()), expires_ms);
        edited.extend(old);
        edited
    }

    /// An empty string with room for `len` bytes.
    pub(crate) fn empty(len: usize, expires_ms: u64) -> Self {
        let mut entry = with_room(len);
        push_head(&mut entry, Kind::String, expires_ms);
        entry[0] |= FLAG_RAW;
        let body = entry.len();
        Self { entry, body, expires_ms }
    }

    /// When the string ends, in milliseconds since 1970; 0 if it does not.
    pub(crate) fn expires_ms(&self) -> u64 {
        self.expires_ms
    }

    /// The string.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.entry[self.body..]
    }

    /// The string, to be changed.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.entry[self.body..]
    }

    /// Appends bytes.
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.entry.extend_from_slice(bytes);
    }

    /// Appends zeros unless it has `len` bytes.
    pub(crate) fn lengthen(&mut self, len: usize) {
        self.entry.resize(self.entry.len().max(self.body + len), 0);
    }

    /// The entry.
    pub(crate) fn into_entry(self) -> Vec<u8> {
        self.entry
    }
}

/// The entry of a collection.
pub(crate) fn encode_meta(kind: Kind, meta: &Meta, expires_ms: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(33);
    push_head(&mut out, kind, expires_ms);
    out.extend_from_slice(&meta.id.to_le_bytes());
    out.extend_from_slice(&meta.count.to_le_bytes());
    if kind == Kind::List {
        out.extend_from_slice(&meta.first.to_le_bytes());
    }
    if kind == Kind::Hash && meta.times != 0 {
        out.extend_from_slice(&meta.times.to_le_bytes());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_their_golden_bytes() {
        assert_eq!(encode_string(b"ab", 0), [0, b'a', b'b']);
        assert_eq!(encode_string(b"", 0x0102), [0x80, 2, 1, 0, 0, 0, 0, 0, 0]);
        let mut raw = Edited::empty(0, 0);
        raw.extend(b"7");
        let raw = raw.into_entry();
        assert_eq!(raw, [0x40, b'7']);
        let raw = Entry::decode(raw.into()).unwrap();
        assert_eq!((raw.kind, raw.expires_ms, raw.bytes()), (Kind::String, 0, &b"7"[..]));
        assert_eq!(raw.with_expiry(0x0102), [0xC0, 2, 1, 0, 0, 0, 0, 0, 0, b'7']);
        assert!(raw.is_raw() && !Entry::decode(encode_string(b"7", 0).into()).unwrap().is_raw());
        let meta = Meta { id: 7, count: 3, first: 1 << 63, times: 0 };
        let hash = [1, 7, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(encode_meta(Kind::Hash, &meta, 0), hash);
        let mut list = hash.to_vec();
        list[0] = 3;
        list.extend([0, 0, 0, 0, 0, 0, 0, 0x80]);
        assert_eq!(encode_meta(Kind::List, &meta, 0), list);
        let ending = [&hash[..], &[9, 0, 0, 0, 0, 0, 0, 0]].concat();
        assert_eq!(encode_meta(Kind::Hash, &Meta { times: 9, ..meta }, 0), ending);
    }

    #[test]
    fn entries_are_read_back() {
        for expires in [0, 1, u64::MAX] {
            let entry = Entry::decode(encode_string(b"value", expires).into()).unwrap();
            assert_eq!((entry.kind, entry.expires_ms), (Kind::String, expires));
            assert_eq!(entry.bytes(), b"value");
            for kind in [Kind::Hash, Kind::Zset, Kind::List, Kind::Set] {
                let first = if kind == Kind::List { 9 } else { 0 };
                let times = if kind == Kind::Hash { expires } else { 0 };
                let meta = Meta { id: 5, count: 6, first, times };
                let entry = Entry::decode(encode_meta(kind, &meta, expires).into()).unwrap();
                assert_eq!((entry.kind, entry.meta()), (kind, Some(meta)));
            }
        }
    }

    #[test]
    fn damaged_entries_are_none() {
        for bytes in [&[][..], &[9], &[0x80, 1, 2], &[0x0F]] {
            assert!(Entry::decode(bytes.into()).is_none(), "{bytes:?}");
        }
        let short = Entry::decode([3_u8, 1][..].into()).unwrap();
        assert!(short.meta().is_none() && short.with_number(1).is_none());
    }

    #[test]
    fn an_entry_may_have_another_time_and_number() {
        let meta = Meta { id: 5, count: 6, first: 7, times: 0 };
        let entry = Entry::decode(encode_meta(Kind::List, &meta, 8).into()).unwrap();
        assert_eq!(entry.with_expiry(0), encode_meta(Kind::List, &meta, 0));
        assert_eq!(entry.with_expiry(9), encode_meta(Kind::List, &meta, 9));
        let other = entry.with_number(10).unwrap();
        assert_eq!(other.meta(), Some(Meta { id: 10, ..meta }));
        assert_eq!(other.expires_ms, 8);
    }

    #[test]
    fn an_entry_ends_at_its_time() {
        let entry = Entry::decode(encode_string(b"", 10).into()).unwrap();
        assert!(!entry.is_expired(9) && entry.is_expired(10));
        assert!(!Entry::decode(encode_string(b"", 0).into()).unwrap().is_expired(u64::MAX));
    }
}
