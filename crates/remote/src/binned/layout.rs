//! The bytes of an assembly of trained arrays: blocks of records, bins, headers and wide records.
//!
//! All memory is lines of 64 bytes, little-endian words of 8. Whatever is handed out as a piece of
//! it begins on a line with a *guard* ([`crate::layout::format`]: latched, version, incarnation)
//! and begins there for ever, so that a reader that comes late finds another incarnation and never
//! takes data for a guard.
//!
//! | piece | lines | words |
//! | --- | --- | --- |
//! | block | 16 | guard, tag of the array, 42 records; with checksums 41, and the sum at its end |
//! | header of an array | 1 | guard, tag, epoch, place, shape, line (3 words) |
//! | root bin | 4 | guard, shape, 8 records; or 8 codes, then 8 links, of children |
//! | child bin | 7 | guard, shape, 16 records |
//! | wide record | 1 to 2,047 | guard, lengths and kind, key, value; with checksums its sum |
//!
//! A record is three words: the key's code; the value, or the place of a wide record; and a *tail*
//! of token, form, length and link. Token and value are thus changed and read together, under one
//! guard.
//!
//! All of that is the leaves' part of a region. Its control part has a header and nothing else.
//!
//! In a region with checksums, blocks and wide records prove themselves to clients that read them
//! without order ([`proof`](super::proof)). Headers and bins do not: such clients leave what is in
//! gaps to the host.

use rhumb_model::code::code_at;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    error::{Error, Result},
    layout::{format::INCARNATION_SHIFT, to_words},
    primitive::{AtomicU64, Ordering},
};

/// The first bytes of a control part.
const MAGIC: u64 = u64::from_le_bytes(*b"rhumbbin");
/// The version of all that is laid down here.
const VERSION: u64 = 1;
/// Words of the header: magic, version, and the checksum of both. Words 4, 16, 24 and 25 of a
/// control part are those of [`crate::layout::format::control`].
const HEADER_WORDS: usize = 3;

/// Set beside the version if there are checksums.
const HAS_CHECKSUMS: u64 = 1 << 63;

/// How large the parts of a region are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    has_checksums: bool,
}

impl Sizes {
    /// Those of a region with checksums, or without.
    pub(crate) fn new(has_checksums: bool) -> Self {
        Self { has_checksums }
    }

    /// Returns true if blocks and wide records prove themselves.
    pub(crate) fn has_checksums(self) -> bool {
        self.has_checksums
    }

    /// Records of a block: as many as fit.
    pub(crate) fn block_records(self) -> usize {
        let sum = usize::from(self.has_checksums);
        (BLOCK_WORDS - BLOCK_HEAD_WORDS - sum) / RECORD_WORDS
    }

    /// Where record `index` of an array lies: the number of its block, and its first word there.
    pub(super) fn record_position(self, index: usize) -> (usize, usize) {
        let most = self.block_records();
        (index / most, BLOCK_HEAD_WORDS + index % most * RECORD_WORDS)
    }

    /// Blocks of an array of `records` trained records, before which the sentinel lies.
    pub(super) fn blocks_of(self, records: usize) -> u32 {
        (records + 1).div_ceil(self.block_records()) as u32
    }

    /// Words of a wide record, with its guard, and its sum if it has one.
    pub(super) fn wide_words(self, head: WideHead) -> usize {
        head.words() + usize::from(self.has_checksums)
    }
}

fn control_header(sizes: Sizes) -> [u64; HEADER_WORDS] {
    let version = if sizes.has_checksums { VERSION | HAS_CHECKSUMS } else { VERSION };
    let bytes = [MAGIC.to_le_bytes(), version.to_le_bytes()].concat();
    [MAGIC, version, xxh3_64(&bytes)]
}

/// Writes the header of a control part that no client reads yet.
pub(crate) fn write_header(region: &[AtomicU64], sizes: Sizes) {
    for (word, value) in region.iter().zip(control_header(sizes)) {
        word.store(value.to_le(), Ordering::Relaxed);
    }
}

/// Returns true if a region begins as one of this kind.
pub(crate) fn is_header(words: &[u64]) -> bool {
    words.first() == Some(&MAGIC)
}

/// Reads the header of a region of this kind.
///
/// # Errors
///
/// [`Error::Invalid`] for one of another version, or a damaged one.
pub(crate) fn read_header(words: &[u64]) -> Result<Sizes> {
    let all = [Sizes::new(false), Sizes::new(true)];
    if let Some(sizes) = all.into_iter().find(|sizes| words.starts_with(&control_header(*sizes))) {
        return Ok(sizes);
    }
    Err(Error::invalid("a region of arrays of another version, or whose header is damaged"))
}

/// Words of a line.
pub(super) const LINE_WORDS: usize = crate::layout::format::LINE_BYTES / 8;

/// Words of a record.
pub(super) const RECORD_WORDS: usize = 3;
/// Lines of a block of an array: 1 KiB. A window of 65 records lies in two or three, which are the
/// pieces of a read, and a write disturbs the readers of 42 records and no more.
pub(crate) const BLOCK_LINES: u32 = 16;
/// Words of a block before its records: guard and tag.
pub(super) const BLOCK_HEAD_WORDS: usize = 2;
/// Words of a block.
pub(super) const BLOCK_WORDS: usize = BLOCK_LINES as usize * LINE_WORDS;

/// Lines of an array's header.
pub(super) const HEADER_LINES: u32 = 1;
/// The header's words, after the guard.
pub(super) mod header {
    /// What the descriptor of the array hashes to.
    pub(in super::super) const TAG: usize = 1;
    /// The epoch of the array.
    pub(in super::super) const EPOCH: usize = 2;
    /// First block (low 32 bits) and number of trained records.
    pub(in super::super) const PLACE: usize = 3;
    /// Bytes that codes skip (32 bits), reach of the line below and above (16 bits each).
    pub(in super::super) const SHAPE: usize = 4;
    /// The line's `x0`.
    pub(in super::super) const X0: usize = 5;
    /// The line's `y0`.
    pub(in super::super) const Y0: usize = 6;
    /// The line's mantissa (32 bits) and shift.
    pub(in super::super) const SLOPE: usize = 7;
}

/// Records of a root bin, and bins under it (FineStore, section 5, "Configurations").
pub(super) const ROOT_RECORDS: usize = 8;
/// Records of a child bin (the same place).
pub(super) const CHILD_RECORDS: usize = 16;
/// Words of a bin before its records: guard and shape.
pub(super) const BIN_HEAD_WORDS: usize = 2;
/// Lines of a root bin.
pub(super) const ROOT_LINES: u32 =
    (BIN_HEAD_WORDS + ROOT_RECORDS * RECORD_WORDS).div_ceil(LINE_WORDS) as u32;
/// Lines of a child bin.
pub(super) const CHILD_LINES: u32 =
    (BIN_HEAD_WORDS + CHILD_RECORDS * RECORD_WORDS).div_ceil(LINE_WORDS) as u32;

/// Words of a wide record before its key: guard, and lengths and kind.
pub(super) const WIDE_HEAD_WORDS: usize = 2;
/// The most lines of a wide record: what 11 bits of its place count.
pub(super) const WIDE_LINES_MAX: usize = (1 << 11) - 1;
/// The longest value that lies in a record itself: one word.
pub(super) const INLINE_BYTES: usize = 8;

/// Lines are numbered with 29 bits, which is 32 GiB.
const LINE_BITS: u32 = 29;
/// Lines that can be numbered.
pub(super) const LINES_MAX: u32 = 1 << LINE_BITS;
/// Bits of an incarnation, at the top of a guard and of every word that names one.
const INCARNATION_BITS: u32 = u64::BITS - INCARNATION_SHIFT;
/// Where the line of a wide record's place begins, after the number of its lines.
const WIDE_LINE_SHIFT: u32 = 11;
/// Where the form begins in a tail.
const FORM_SHIFT: u32 = 2;
/// Where the length of an inline value begins in a tail.
const LENGTH_SHIFT: u32 = 4;
/// Where the link's kind begins in a tail.
const KIND_SHIFT: u32 = 8;
/// Where the link's line begins in a tail.
const LINK_LINE_SHIFT: u32 = 11;

/// The incarnation of a guard, or of a word that names one.
pub(super) fn incarnation_of(word: u64) -> u32 {
    (word >> INCARNATION_SHIFT) as u32
}

/// The incarnation that an array's blocks bear: the low bits of its epoch.
pub(super) fn incarnation_of_epoch(epoch: u64) -> u32 {
    (epoch & ((1 << INCARNATION_BITS) - 1)) as u32
}

/// A piece that begins on a line, and its incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct Slot {
    pub(crate) line: u32,
    pub(crate) incarnation: u32,
}

/// What a record says of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// There is no record: the sentinel, or room that is not used.
    None,
    Live,
    Removed,
}

/// What has come into the gap after a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    Empty,
    /// A root bin.
    Bin(Slot),
    /// A small array, by its header.
    Small(Slot),
}

/// Where a wide record lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WideExtent {
    pub(super) slot: Slot,
    pub(super) lines: u32,
}

impl WideExtent {
    fn to_word(self) -> u64 {
        u64::from(self.lines)
            | u64::from(self.slot.line) << WIDE_LINE_SHIFT
            | u64::from(self.slot.incarnation) << INCARNATION_SHIFT
    }

    fn of_word(word: u64) -> Self {
        let lines = word as u32 & WIDE_LINES_MAX as u32;
        let line = (word >> WIDE_LINE_SHIFT) as u32 & (LINES_MAX - 1);
        Self { slot: Slot { line, incarnation: incarnation_of(word) }, lines }
    }
}

/// One record: a key with its value, a token, and a link to what comes after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Record {
    pub(super) code: u64,
    pub(super) value: u64,
    pub(super) tail: u64,
}

impl Record {
    /// A live record whose key and value lie in it; `None` unless they fit.
    pub(super) fn inline(key: &[u8], value: &[u8]) -> Option<Self> {
        let code = u64::from_be_bytes(key.try_into().ok()?);
        let mut bytes = [0; INLINE_BYTES];
        bytes.get_mut(..value.len())?.copy_from_slice(value);
        let tail = 1 | (value.len() as u64) << LENGTH_SHIFT;
        Some(Self { code, value: u64::from_le_bytes(bytes), tail })
    }

    /// A live record of a key that lies elsewhere.
    pub(super) fn wide(code: u64, extent: WideExtent) -> Self {
        Self { code, value: extent.to_word(), tail: 1 | 1 << FORM_SHIFT }
    }

    pub(super) fn token(&self) -> Token {
        match self.tail & 3 {
            1 => Token::Live,
            2 => Token::Removed,
            _ => Token::None,
        }
    }

    pub(super) fn with_token(self, token: Token) -> Self {
        let bits = match token {
            Token::None => 0,
            Token::Live => 1,
            Token::Removed => 2,
        };
        Self { tail: self.tail & !3 | bits, ..self }
    }

    /// The extent of key and value, if they do not lie in the record.
    pub(super) fn wide_extent(&self) -> Option<WideExtent> {
        (self.tail >> FORM_SHIFT & 3 == 1).then(|| WideExtent::of_word(self.value))
    }

    /// The value of an inline record.
    pub(super) fn value_bytes(&self) -> ([u8; INLINE_BYTES], usize) {
        let len = (self.tail >> LENGTH_SHIFT & 15) as usize;
        (self.value.to_le_bytes(), len.min(INLINE_BYTES))
    }

    /// The whole key of an inline record.
    pub(super) fn key_bytes(&self) -> [u8; 8] {
        self.code.to_be_bytes()
    }

    /// The code of the key after `skip` bytes, which is what the record's array or bin skips.
    pub(super) fn code_after(&self, skip: usize) -> u64 {
        if self.wide_extent().is_some() { self.code } else { code_at(&self.key_bytes(), skip) }
    }

    pub(super) fn link(&self) -> Link {
        let line = (self.tail >> LINK_LINE_SHIFT) as u32 & (LINES_MAX - 1);
        let slot = Slot { line, incarnation: incarnation_of(self.tail) };
        match self.tail >> KIND_SHIFT & 3 {
            1 => Link::Bin(slot),
            2 => Link::Small(slot),
            _ => Link::Empty,
        }
    }

    pub(super) fn with_link(self, link: Link) -> Self {
        let (kind, slot) = match link {
            Link::Empty => (0, Slot::default()),
            Link::Bin(slot) => (1, slot),
            Link::Small(slot) => (2, slot),
        };
        let word = kind << KIND_SHIFT
            | u64::from(slot.line) << LINK_LINE_SHIFT
            | u64::from(slot.incarnation) << INCARNATION_SHIFT;
        Self { tail: self.tail & ((1 << KIND_SHIFT) - 1) | word, ..self }
    }

    /// The record in three words; one of nothing if they are not there.
    pub(super) fn of_words(words: &[u64]) -> Self {
        match words {
            &[code, value, tail, ..] => Self { code, value, tail },
            _ => Self::default(),
        }
    }

    pub(super) fn words(&self) -> [u64; RECORD_WORDS] {
        [self.code, self.value, self.tail]
    }
}

/// What a bin is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BinKind {
    /// A root that has records itself.
    Root,
    /// A root that has children.
    Inner,
    /// A child.
    Child,
}

/// The shape of a bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BinShape {
    pub(super) kind: BinKind,
    /// Records, or children.
    pub(super) len: usize,
    /// Bytes that the codes of its records skip.
    pub(super) skip: usize,
}

impl BinShape {
    /// Reads a shape; `None` if it is none, or longer than its kind may be.
    pub(super) fn of_word(word: u64) -> Option<Self> {
        let (kind, most) = match word as u8 {
            1 => (BinKind::Root, ROOT_RECORDS),
            2 => (BinKind::Inner, ROOT_RECORDS),
            3 => (BinKind::Child, CHILD_RECORDS),
            _ => return None,
        };
        let len = usize::from((word >> 8) as u8);
        (len <= most).then_some(Self { kind, len, skip: (word >> 32) as usize })
    }

    pub(super) fn to_word(self) -> u64 {
        let kind = match self.kind {
            BinKind::Root => 1,
            BinKind::Inner => 2,
            BinKind::Child => 3,
        };
        kind | (self.len as u64) << 8 | (self.skip as u64) << 32
    }
}

/// What a wide record has of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WideKind {
    /// All of it.
    Here,
    /// Its length: the value is fetched by a call.
    Ask,
    /// Nothing, because the key was removed.
    Gone,
}

/// The head of a wide record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WideHead {
    pub(super) kind: WideKind,
    pub(super) key_len: usize,
    /// The value's own length, also where it is not here.
    pub(super) value_len: usize,
}

impl WideHead {
    pub(super) fn of_word(word: u64) -> Option<Self> {
        let kind = match (word >> 24) as u8 {
            0 => WideKind::Here,
            1 => WideKind::Ask,
            2 => WideKind::Gone,
            _ => return None,
        };
        let key_len = word as usize & ((1 << 24) - 1);
        Some(Self { kind, key_len, value_len: (word >> 32) as usize })
    }

    pub(super) fn to_word(self) -> u64 {
        let kind = match self.kind {
            WideKind::Here => 0_u64,
            WideKind::Ask => 1,
            WideKind::Gone => 2,
        };
        self.key_len as u64 | kind << 24 | (self.value_len as u64) << 32
    }

    /// The word at which the value begins.
    pub(super) fn value_word(self) -> usize {
        WIDE_HEAD_WORDS + to_words(self.key_len)
    }

    /// Words of the record, with its guard.
    pub(super) fn words(self) -> usize {
        let here = if self.kind == WideKind::Here { self.value_len } else { 0 };
        self.value_word() + to_words(here)
    }
}

/// Appends `len` bytes of words to `out`; fewer if the words end before.
pub(super) fn append_bytes(words: &[u64], len: usize, out: &mut Vec<u8>) {
    let len = len.min(words.len() * 8);
    let end = out.len() + len;
    out.extend(words[..to_words(len)].iter().flat_map(|word| word.to_le_bytes()));
    out.truncate(end);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_are_what_the_format_says() {
        let (plain, proven) = (Sizes::new(false), Sizes::new(true));
        assert_eq!((plain.block_records(), ROOT_LINES, CHILD_LINES), (42, 4, 7));
        assert_eq!((plain.record_position(0), plain.record_position(43)), ((0, 2), (1, 5)));
        assert_eq!([0, 41, 42].map(|len| plain.blocks_of(len)), [1, 1, 2]);
        assert_eq!((proven.block_records(), proven.record_position(41)), (41, (1, 2)));
        assert_eq!([0, 40, 41].map(|len| proven.blocks_of(len)), [1, 1, 2]);
        // The sum has a word of its own.
        assert!(proven.record_position(40).1 + RECORD_WORDS < BLOCK_WORDS);
    }

    #[test]
    fn golden_header() {
        let region: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(9)).collect();
        write_header(&region, Sizes::new(false));
        let mut words: Vec<u64> = region.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        assert_eq!(words, [0x6e69_6262_6d75_6872, 1, HEADER_CHECKSUM, 9]);
        assert!(is_header(&words) && !is_header(&words[1..]));
        assert_eq!(read_header(&words).unwrap(), Sizes::new(false));
        assert!(read_header(&words[..2]).is_err());
        words[1] = 2;
        assert!(is_header(&words) && read_header(&words).is_err());
        write_header(&region, Sizes::new(true));
        words = region.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        assert_eq!(words, [0x6e69_6262_6d75_6872, 1 | 1 << 63, CHECKSUMS_CHECKSUM, 9]);
        assert_eq!(read_header(&words).unwrap(), Sizes::new(true));
    }

    /// The checksum of magic and version.
    const HEADER_CHECKSUM: u64 = 12_268_073_736_480_310_709;
    /// The same where there are checksums.
    const CHECKSUMS_CHECKSUM: u64 = 4_627_020_498_893_640_996;

    #[test]
    fn golden_words() {
        let inline = Record::inline(b"abcdefgh", b"xyz").unwrap();
        assert_eq!(inline.words(), [0x6162_6364_6566_6768, 0x007a_7978, 0x31]);
        let slot = Slot { line: 5, incarnation: 7 };
        let linked = inline.with_link(Link::Bin(slot)).with_token(Token::Removed);
        assert_eq!(linked.tail, 7 << 40 | 5 << 11 | 1 << 8 | 0x32);
        assert_eq!(linked.with_link(Link::Small(slot)).tail, 7 << 40 | 5 << 11 | 2 << 8 | 0x32);
        let wide = Record::wide(9, WideExtent { slot, lines: 3 });
        assert_eq!(wide.words(), [9, 7 << 40 | 5 << 11 | 3, 5]);
        let shape = BinShape { kind: BinKind::Child, len: 16, skip: 4 };
        assert_eq!(shape.to_word(), 4 << 32 | 16 << 8 | 3);
        let head = WideHead { kind: WideKind::Ask, key_len: 9, value_len: 100 };
        assert_eq!((head.to_word(), head.words()), (100 << 32 | 1 << 24 | 9, 4));
        assert!(Record::inline(b"short", b"").is_none());
        assert!(Record::inline(b"abcdefgh", b"nine byte").is_none());
    }

    proptest! {
        #[test]
        fn words_are_read_as_they_were_written(
            code: u64, line in 0..LINES_MAX, incarnation in 0_u32..1 << 24,
            lines in 0..=WIDE_LINES_MAX as u32, kind in 0..3,
        ) {
            let slot = Slot { line, incarnation };
            let extent = WideExtent { slot, lines };
            let link = [Link::Empty, Link::Bin(slot), Link::Small(slot)][kind as usize];
            let record = Record::wide(code, extent).with_link(link);
            prop_assert_eq!(record.wide_extent(), Some(extent));
            prop_assert_eq!(record.link(), link);
            prop_assert_eq!(record.token(), Token::Live);
            prop_assert_eq!(Record::of_words(&record.words()), record);
        }

        #[test]
        fn any_word_is_read_without_a_panic(word: u64) {
            let record = Record { code: word, value: word, tail: word };
            let _ = (record.wide_extent(), record.link(), record.value_bytes(), record.code_after(3));
            if let Some(shape) = BinShape::of_word(word) {
                prop_assert!(shape.len <= CHILD_RECORDS);
            }
            let _ = WideHead::of_word(word).map(WideHead::words);
        }
    }
}
