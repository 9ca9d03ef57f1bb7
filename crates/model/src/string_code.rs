//! Order-preserving numbers for text: the grouped string-to-number coding with digits as wide as
//! they are frequent.
//!
//! A key's bytes are the digits of a mixed-radix number. Which digits there are, and how wide each
//! is, is *trained*: a byte that never occurs gets no room, and one that occurs often gets much. So
//! the numbers of real keys lie far more evenly than their bytes do, and a line follows them
//! further. The widths depend on the byte's position, or on the byte before it, whichever the
//! trainer was asked for.
//!
//! Each byte narrows an interval of numbers to a part of it, and parts lie in the order of bytes.
//! So codes never invert the order of *any* two byte strings that agree on what is skipped, trained
//! or not: a byte without room has the place between its neighbours, and ends the code. Integers
//! only; no allocation after training or reading.

use crate::codec::{DecodeError, Reader, put_varint};

/// An interval is divided into `2^TOTAL_BITS` parts at each byte.
const TOTAL_BITS: u32 = 15;
/// An interval smaller than this is not divided any more.
const RANGE_MIN: u64 = 1 << TOTAL_BITS;
/// The largest class of a byte: its weight is `2^(class - 1)`. Classes are stored in four bits.
const CLASS_MAX: u8 = 15;
/// The most positions with widths of their own.
pub const POSITIONS_MAX: usize = 32;
/// A byte that precedes fewer than one in this many of all bytes has no row of its own.
const ROW_SHARE_MIN: u64 = 512;
/// Bit of [`StringCode::symbols`]: the byte has no room.
const UNSEEN: u16 = 1 << 15;

/// The context that the widths of digits depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// On the position in the key: for keys of a fixed form.
    Position,
    /// On the byte before: for text.
    Previous,
}

impl Context {
    fn to_byte(self) -> u8 {
        match self {
            Self::Position => 1,
            Self::Previous => 2,
        }
    }
}

/// A trained code. At most about 270 KiB; a few KiB for text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StringCode {
    context: Context,
    /// The first position that has a row; with [`Context::Previous`] 0.
    base: usize,
    /// For each byte its symbol, or the next symbol above it and [`UNSEEN`]. Symbols count from 1;
    /// 0 is the end of the key.
    symbols: [u16; 256],
    /// For each byte, the start of the row that is used after it.
    row_after: [u32; 256],
    /// The start of each part, in the low half, and its width. A row has a part for each symbol,
    /// and the place after the last.
    rows: Vec<u32>,
    /// The length of a row.
    stride: usize,
}

impl StringCode {
    /// The number of `key` without its first `skip` bytes.
    ///
    /// For any keys `a <= b` with equal first `skip` bytes, `code(a, skip) <= code(b, skip)`. A key
    /// of `skip` bytes or fewer has the code 0. Takes at most 64 steps and allocates nothing.
    #[must_use]
    #[inline]
    pub fn code(&self, key: &[u8], skip: usize) -> u64 {
        let (mut low, mut range) = (0, u64::MAX);
        let mut row = match self.context {
            Context::Previous => skip
                .checked_sub(1)
                .and_then(|last| key.get(last))
                .map_or(0, |byte| self.row_after[usize::from(*byte)] as usize),
            Context::Position => 0,
        };
        for (i, byte) in key.iter().enumerate().skip(skip) {
            let symbol = self.symbols[usize::from(*byte)];
            if self.context == Context::Position {
                row = self.row_at(i);
            }
            let part = self.rows[row + usize::from(symbol & !UNSEEN)];
            let unit = range >> TOTAL_BITS;
            low += unit * u64::from(part & 0xffff);
            range = unit * u64::from(part >> 16);
            if symbol >= UNSEEN || range < RANGE_MIN {
                break;
            }
            row = self.row_after[usize::from(*byte)] as usize;
        }
        low
    }

    /// The start of the row of position `i`.
    #[inline]
    fn row_at(&self, i: usize) -> usize {
        let last = self.rows.len() / self.stride - 1;
        i.saturating_sub(self.base).min(last) * self.stride
    }

    /// The context that the widths depend on.
    #[must_use]
    pub fn context(&self) -> Context {
        self.context
    }

    /// The number of different bytes that have room.
    #[must_use]
    pub fn alphabet_len(&self) -> usize {
        self.stride - 2
    }

    /// The memory that it holds, in bytes.
    #[must_use]
    pub fn resident_bytes(&self) -> usize {
        size_of::<Self>() + self.rows.capacity() * size_of::<u32>()
    }

    /// Reads the next code, as `docs/format/index.md` describes it.
    ///
    /// # Errors
    ///
    /// If it is not one. What is accepted keeps the order of keys, whatever its widths are.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let context = match reader.u8("a context")? {
            1 => Context::Position,
            2 => Context::Previous,
            other => return Err(reader.error("a context of 1 or 2", other)),
        };
        let base = reader.varint_up_to(u64::from(u32::MAX), "a first position")? as usize;
        let alphabet = Bitmap::take(reader)?;
        let own_rows = match context {
            Context::Position => Bitmap::default(),
            Context::Previous => Bitmap::take(reader)?,
        };
        let symbols = alphabet.count();
        let row_count = match context {
            Context::Position => match reader.u8("a number of rows")? {
                rows if (1..=POSITIONS_MAX).contains(&usize::from(rows)) => usize::from(rows),
                rows => return Err(reader.error("1 to 32 rows", rows)),
            },
            Context::Previous => own_rows.count() + 1,
        };
        // The classes of a row are those of its symbols: the end of a key needs no room.
        let classes = reader.take(row_count * symbols.div_ceil(2), "the classes of rows")?;
        let mut code = Self {
            context,
            base,
            symbols: alphabet.symbols(),
            row_after: [0; 256],
            rows: Vec::with_capacity(row_count * (symbols + 2)),
            stride: symbols + 2,
        };
        let mut rows_before = 0;
        for byte in own_rows.bytes() {
            rows_before += 1;
            code.row_after[usize::from(byte)] = (rows_before * code.stride) as u32;
        }
        match symbols {
            0 => code.rows.resize(row_count * code.stride, 0),
            _ => classes.chunks(symbols.div_ceil(2)).for_each(|row| code.push_row(row)),
        }
        Ok(code)
    }

    /// Appends a row whose symbols have these classes, two to a byte, the first in the low half.
    fn push_row(&mut self, packed: &[u8]) {
        let symbols = self.stride - 2;
        let class = |i: usize| packed[i / 2] >> (4 * (i % 2)) & 0xf;
        let weight = |i: usize| 1_u64 << class(i) >> 1;
        let seen = (0..symbols).filter(|i| class(*i) > 0).count() as u32;
        let weights: u64 = (0..symbols).map(weight).sum::<u64>().max(1);
        // The end of a key comes before all symbols, and needs no width.
        self.rows.push(0);
        let share = (1 << TOTAL_BITS) - u64::from(seen);
        let (mut begin, mut weights_before, mut seen_before) = (0, 0, 0);
        for i in 0..symbols {
            weights_before += weight(i);
            seen_before += u64::from(class(i) > 0);
            // Every seen byte gets at least one part; rounded so that equal weights stay even.
            let end = (seen_before + weights_before * share / weights) as u32;
            self.rows.push(begin | (end - begin) << 16);
            begin = end;
        }
        self.rows.push(begin);
    }
}

/// A set of bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Bitmap([u8; 32]);

impl Bitmap {
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut bits = [0; 32];
        bits.copy_from_slice(reader.take(32, "a set of bytes")?);
        Ok(Self(bits))
    }

    fn add(&mut self, byte: u8) {
        self.0[usize::from(byte / 8)] |= 1 << (byte % 8);
    }

    fn contains(&self, byte: u8) -> bool {
        self.0[usize::from(byte / 8)] >> (byte % 8) & 1 == 1
    }

    fn count(&self) -> usize {
        self.bytes().count()
    }

    fn bytes(&self) -> impl Iterator<Item = u8> {
        (0..=u8::MAX).filter(|byte| self.contains(*byte))
    }

    /// See [`StringCode::symbols`].
    fn symbols(&self) -> [u16; 256] {
        let mut symbols = [0; 256];
        let mut next = 1;
        for byte in 0..=u8::MAX {
            let seen = self.contains(byte);
            symbols[usize::from(byte)] = if seen { next } else { next | UNSEEN };
            next += u16::from(seen);
        }
        symbols
    }
}

/// Counts the bytes of sample keys, and makes a code of them.
#[derive(Clone, Debug)]
pub struct Trainer {
    context: Context,
    base: usize,
    /// For each row, the number of times it met each byte. With [`Context::Previous`] the last row
    /// is that of bytes with none before them, which share a row with others in the end.
    counts: Vec<[u32; 256]>,
}

impl Trainer {
    /// A trainer for keys whose first `base` bytes are never coded.
    #[must_use]
    pub fn new(context: Context, base: usize) -> Self {
        let rows = if context == Context::Position { POSITIONS_MAX } else { 257 };
        Self { context, base, counts: vec![[0; 256]; rows] }
    }

    /// Counts the bytes of `key` up to position `end`, as far as there are any.
    pub fn add(&mut self, key: &[u8], end: usize) {
        let end = end.min(key.len());
        for i in self.base.min(end)..end {
            let row = match self.context {
                Context::Position => (i - self.base).min(POSITIONS_MAX - 1),
                Context::Previous => {
                    i.checked_sub(1).map_or(256, |before| usize::from(key[before]))
                }
            };
            let count = &mut self.counts[row][usize::from(key[i])];
            *count = count.saturating_add(1);
        }
    }

    /// The code of what was counted, as bytes for [`StringCode::decode`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut alphabet = Bitmap::default();
        let mut totals = [0; 256];
        for row in &self.counts {
            for (byte, count) in (0..=u8::MAX).zip(row).filter(|(_, count)| **count > 0) {
                alphabet.add(byte);
                totals[usize::from(byte)] += u64::from(*count);
            }
        }
        let mut out = vec![self.context.to_byte()];
        put_varint(if self.context == Context::Position { self.base as u64 } else { 0 }, &mut out);
        out.extend_from_slice(&alphabet.0);
        match self.context {
            Context::Position => {
                let used = self.counts.iter().rposition(|row| row.iter().any(|count| *count > 0));
                let rows = used.map_or(1, |last| last + 1);
                out.push(rows as u8);
                self.counts[..rows].iter().for_each(|row| put_row(row, &alphabet, &mut out));
            }
            Context::Previous => {
                let all = totals.iter().sum::<u64>();
                let after = |row: &[u32; 256]| row.iter().map(|count| u64::from(*count)).sum();
                let mut own_rows = Bitmap::default();
                for (byte, row) in (0..=u8::MAX).zip(&self.counts) {
                    let count: u64 = after(row);
                    if count > 0 && count >= all / ROW_SHARE_MIN {
                        own_rows.add(byte);
                    }
                }
                out.extend_from_slice(&own_rows.0);
                let common = totals.map(|count| u32::try_from(count).unwrap_or(u32::MAX));
                put_row(&common, &alphabet, &mut out);
                for byte in own_rows.bytes() {
                    put_row(&self.counts[usize::from(byte)], &alphabet, &mut out);
                }
            }
        }
        out
    }
}

/// Appends the classes of a row.
fn put_row(counts: &[u32; 256], alphabet: &Bitmap, out: &mut Vec<u8>) {
    let total = counts.iter().map(|count| u64::from(*count)).sum::<u64>();
    let class = |byte: u8| match u64::from(counts[usize::from(byte)]) {
        0 => 0,
        // Rounded to the nearest power of two, in halves: a share of 1/2 has a class below that of
        // 1.
        count => CLASS_MAX - ((total * 2 / count).ilog2().saturating_sub(1)).min(13) as u8,
    };
    let mut low = None;
    for byte in alphabet.bytes() {
        match low.take() {
            None => low = Some(class(byte)),
            Some(first) => out.push(first | class(byte) << 4),
        }
    }
    out.extend(low);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn trained(context: Context, base: usize, keys: &[impl AsRef<[u8]>]) -> StringCode {
        let mut trainer = Trainer::new(context, base);
        keys.iter().for_each(|key| trainer.add(key.as_ref(), usize::MAX));
        decoded(&trainer.encode())
    }

    fn decoded(bytes: &[u8]) -> StringCode {
        let mut reader = Reader::new(bytes);
        let code = StringCode::decode(&mut reader).unwrap();
        assert_eq!(reader.finish(), Ok(()));
        code
    }

    const CONTEXTS: [Context; 2] = [Context::Position, Context::Previous];

    #[test]
    fn digits_lie_evenly() {
        let keys: Vec<_> = (0..10_000).map(|i| format!("user:{i:04}")).collect();
        let code = trained(Context::Position, 5, &keys);
        for (i, key) in (0..).zip(&keys) {
            let expected = u128::from(u64::MAX) * i / 10_000;
            let found = u128::from(code.code(key.as_bytes(), 5));
            assert!(
                found.abs_diff(expected) * 10_000 <= u128::from(u64::MAX),
                "{key}: {found}, {expected}"
            );
        }
    }

    #[test]
    fn frequent_bytes_have_more_room() {
        let code = trained(Context::Previous, 0, &["aaab", "aaac", "aaad", "b"]);
        let width = |low: &[u8], high: &[u8]| code.code(high, 0) - code.code(low, 0);
        assert!(width(b"a", b"b") > width(b"b", b"c"));
        assert_eq!(code.alphabet_len(), 4);
        assert_eq!(code.code(b"", 0), 0);
        assert_eq!(code.code(b"a", usize::MAX), 0);
    }

    #[test]
    fn golden_bytes() {
        let mut trainer = Trainer::new(Context::Position, 1);
        ["xab", "xac", "xb"].iter().for_each(|key| trainer.add(key.as_bytes(), 9));
        let bytes = trainer.encode();
        let mut expected = vec![1, 1];
        expected.extend([0; 12]);
        expected.push(0b1110);
        expected.extend([0; 19]);
        expected.extend([2, 0xef, 0x00, 0xe0, 0x0e]);
        assert_eq!(bytes, expected);
        let code = decoded(&bytes);
        assert_eq!(code.code(b"xa", 1), 0);
        assert_eq!(code.code(b"xb", 1) >> 49, 21845 - 1);
        assert_eq!(code.code(b"xc", 1) >> 49, 32768 - 1);
    }

    /// Each byte's room follows from the byte before it; that of the first byte from all bytes.
    #[test]
    fn rows_are_those_of_the_byte_before() {
        let code = trained(Context::Previous, 0, &["ab", "ab", "ab", "ba", "bc", "bc", "bc"]);
        let part = |key: &[u8], skip| code.code(key, skip) as f64 / u64::MAX as f64;
        // Classes of a, b and c are 14, 14 and 13 in all, none, 15 and none after a, 13, none and
        // 15 after b.
        let (a, b) = (0.0, 0.4);
        let near = |found: f64, expected: f64| (found - expected).abs() < 2e-4;
        assert!(near(part(b"a", 0), a) && near(part(b"b", 0), b) && near(part(b"c", 0), 0.8));
        assert!(near(part(b"ab", 0), a) && near(part(b"ac", 0), a + 0.4));
        assert!(near(part(b"bc", 0), b + 0.4 * 0.2) && near(part(b"bb", 0), b + 0.4 * 0.2));
        // The last skipped byte counts as the byte before.
        assert!(near(part(b"bc", 1), 0.2) && near(part(b"ac", 1), 1.0));
    }

    #[test]
    fn damage_is_refused() {
        for bytes in [&[][..], &[0; 40], &[3; 90], &[1; 30], &[2; 60]] {
            assert!(StringCode::decode(&mut Reader::new(bytes)).is_err());
        }
        let mut none = vec![1, 0];
        none.extend([0; 32]);
        assert!(StringCode::decode(&mut Reader::new(&[&none[..], &[0]].concat())).is_err());
        let empty = decoded(&[&none[..], &[1]].concat());
        assert_eq!(empty.code(b"abc", 0), 0);
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        let letters = prop::sample::select(vec![0, b'a', b'b', b'c', b'z', 0xff]);
        prop::collection::vec(prop_oneof![9 => letters, 1 => any::<u8>()], 0..24)
    }

    proptest! {
        #[test]
        fn order_is_kept_for_any_strings(
            sample in prop::collection::vec(text(), 0..20), base in 0usize..4,
            keys in prop::collection::vec(text(), 2..20), skip in 0usize..6,
        ) {
            for context in CONTEXTS {
                let code = trained(context, base, &sample);
                for a in keys.iter().chain(&sample) {
                    for b in keys.iter().chain(&sample) {
                        if a <= b {
                            prop_assert!(code.code(a, 0) <= code.code(b, 0));
                        }
                        if a <= b && a.get(..skip).is_some_and(|head| b.starts_with(head)) {
                            prop_assert!(code.code(a, skip) <= code.code(b, skip));
                        }
                    }
                }
            }
        }

        #[test]
        fn any_bytes_are_a_code_that_keeps_the_order_or_refused(
            mut bytes in prop::collection::vec(any::<u8>(), 90..400), thin in 0u8..8,
            keys in prop::collection::vec(text(), 2..12),
        ) {
            bytes[0] = 1 + bytes[0] % 2;
            // Sets of few bytes, so that the rows fit.
            bytes[1..70].iter_mut().for_each(|byte| *byte &= 1 << thin);
            if let Ok(code) = StringCode::decode(&mut Reader::new(&bytes)) {
                for a in &keys {
                    for b in &keys {
                        prop_assert!(a > b || code.code(a, 0) <= code.code(b, 0));
                    }
                }
            }
        }
    }
}
