//! Bits of strings: single ones, counts, first ones, and strings combined bit by bit.
//!
//! Bit 0 is the highest of the first byte. A string is followed by zeros without end.

use super::{Context, Done, SYNTAX, integer, is_word, strings::STRING_BYTES_MAX};
use crate::{
    encode::{Edited, Entry, Kind},
    fault::Fault,
    key_event::KeyEvent,
    resp::{Args, number::parse_i64},
};

const BAD_OFFSET: &str = "ERR bit offset is not an integer or out of range";
const BAD_BIT: &str = "ERR bit is not an integer or out of range";

/// Bytes that are gone through in the time of an element of a collection.
const BYTES_OF_ELEMENT: u64 = 1024;

/// The elements of a collection that take as long as this number of bytes.
pub(super) fn elements_of(bytes: usize) -> u64 {
    bytes as u64 / BYTES_OF_ELEMENT
}

/// Reads the place of a bit. After `#`, if `width` is not 0, it counts fields of that many bits.
pub(super) fn offset(text: &[u8], width: u32) -> Result<u64, Fault> {
    let (digits, factor) = match text {
        [b'#', rest @ ..] if width > 0 => (rest, i64::from(width)),
        _ => (text, 1),
    };
    let at = parse_i64(digits).and_then(|at| at.checked_mul(factor));
    let at = at.and_then(|at| u64::try_from(at).ok());
    at.filter(|at| at >> 3 < STRING_BYTES_MAX as u64).ok_or_else(|| BAD_OFFSET.into())
}

/// The byte of a bit, and how far the bit is from the byte's lowest one.
fn place(at: u64) -> (usize, u32) {
    ((at >> 3) as usize, 7 - (at & 7) as u32)
}

/// `SETBIT`.
pub(super) fn setbit(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let key = args.at(1);
    let at = offset(args.at(2), 0)?;
    let bit = parse_i64(args.at(3)).filter(|bit| matches!(bit, 0 | 1)).ok_or(BAD_BIT)?;
    let before = context.edit(key, Kind::String)?;
    let old = before.as_ref().map_or(&[][..], Entry::bytes);
    let (byte, shift) = place(at);
    context.check_bytes(byte)?;
    let was = old.get(byte).map(|byte| i64::from(byte >> shift & 1));
    context.out.int(was.unwrap_or(0));
    if was == Some(bit) {
        return Ok(());
    }
    let mut string = Edited::of(before.as_ref(), byte + 1);
    string.lengthen(byte + 1);
    let byte = &mut string.bytes_mut()[byte];
    *byte = *byte & !(1 << shift) | (bit as u8) << shift;
    context.txn.put_edited(key, before.as_ref(), string)?;
    context.txn.notify(KeyEvent::string("setbit"), key);
    Ok(())
}

/// `GETBIT`.
pub(super) fn getbit(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (byte, shift) = place(offset(args.at(2), 0)?);
    let entry = context.read(args.at(1), Kind::String)?;
    let bytes = entry.as_ref().map_or(&[][..], Entry::bytes);
    context.out.int(bytes.get(byte).map_or(0, |byte| i64::from(byte >> shift & 1)));
    Ok(())
}

/// A range of a string: its ends, both included, in bits if `of_bits` and in bytes otherwise.
struct Wanted {
    start: i64,
    /// None: up to the end of the string.
    end: Option<i64>,
    of_bits: bool,
}

/// Reads `BYTE` or `BIT`.
fn is_of_bits(unit: &[u8]) -> Result<bool, Fault> {
    match (is_word(unit, "bit"), is_word(unit, "byte")) {
        (true, _) => Ok(true),
        (_, true) => Ok(false),
        _ => Err(SYNTAX.into()),
    }
}

impl Wanted {
    /// Returns true if both ends count from the string's end and the first is after the last.
    fn is_backward(&self) -> bool {
        self.start < 0 && self.end.is_some_and(|end| end < 0 && self.start > end)
    }

    /// The range among the bits of a string of `len` bytes, both ends included; none if it is
    /// empty.
    fn bits(&self, len: usize) -> Option<(u64, u64)> {
        let unit = if self.of_bits { 1 } else { 8 };
        let total = len as i64 * 8 / unit;
        let from_end = |at: i64| if at < 0 { at.saturating_add(total).max(0) } else { at };
        let end = self.end.map_or(total - 1, |end| from_end(end).min(total - 1));
        let start = from_end(self.start);
        // Below `total`: nothing overflows.
        (start <= end).then(|| ((start * unit) as u64, (end * unit + unit - 1) as u64))
    }
}

/// The bytes that hold the bits from `from` to `to`, and how many bits to leave out at the front
/// and at the back.
fn bytes_of(bytes: &[u8], (from, to): (u64, u64)) -> (&[u8], u32, u32) {
    let part = &bytes[(from >> 3) as usize..=(to >> 3) as usize];
    (part, (from & 7) as u32, 7 - (to & 7) as u32)
}

/// Counts the ones among the bits from `from` to `to`, both included.
fn count_ones(bytes: &[u8], range: (u64, u64)) -> u64 {
    let (part, front, back) = bytes_of(bytes, range);
    let (words, rest) = part.as_chunks::<8>();
    let ones: u64 =
        words.iter().map(|word| u64::from_ne_bytes(*word).count_ones()).map(u64::from).sum();
    let ones = ones + rest.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>();
    let first = part.first().map_or(0, |byte| u32::from(*byte) >> (8 - front));
    let last = part.last().map_or(0, |byte| u32::from(*byte) & ((1 << back) - 1));
    ones - u64::from(first.count_ones() + last.count_ones())
}

/// The first bit that is `bit` from `from` to `to`, both included.
fn find_bit(bytes: &[u8], bit: bool, range: (u64, u64)) -> Option<u64> {
    let (part, front, _) = bytes_of(bytes, range);
    let skipped = if bit { 0 } else { 0xFF };
    // Ones where the bits are that are looked for.
    let ones = |byte: u8| if bit { byte } else { !byte };
    let first = ones(*part.first()?) & (0xFF >> front);
    let (at, byte) = if first != 0 {
        (0, first)
    } else {
        let rest = &part[1..];
        let (words, tail) = rest.as_chunks::<8>();
        let word = words.iter().position(|word| *word != [skipped; 8]);
        let (from, bytes) = word.map_or((words.len() * 8, tail), |at| (at * 8, &words[at][..]));
        let at = from + bytes.iter().position(|byte| *byte != skipped)?;
        (at + 1, ones(rest[at]))
    };
    let at = (range.0 & !7) + at as u64 * 8 + u64::from(byte.leading_zeros());
    (at <= range.1).then_some(at)
}

/// `BITCOUNT`.
pub(super) fn bitcount(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let mut wanted = Wanted { start: 0, end: None, of_bits: false };
    match args.len() {
        2 => {}
        4 | 5 => {
            (wanted.start, wanted.end) = (integer(args.at(2))?, Some(integer(args.at(3))?));
            wanted.of_bits = args.get(4).map_or(Ok(false), is_of_bits)?;
        }
        _ => return Err(SYNTAX.into()),
    }
    let entry = context.read(args.at(1), Kind::String)?;
    let bytes = entry.as_ref().map_or(&[][..], Entry::bytes);
    context.check_length(elements_of(bytes.len()))?;
    // To BITPOS such a range may be the first byte of a short string, as in Redis.
    let range = wanted.bits(bytes.len()).filter(|_| !wanted.is_backward());
    let ones = range.map_or(0, |range| count_ones(bytes, range));
    context.out.int(ones as i64);
    Ok(())
}

/// `BITPOS`.
pub(super) fn bitpos(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let bit = match integer(args.at(2))? {
        0 => false,
        1 => true,
        _ => return Err("ERR The bit argument must be 1 or 0.".into()),
    };
    let mut wanted = Wanted { start: 0, end: None, of_bits: false };
    if args.len() > 6 {
        return Err(SYNTAX.into());
    }
    if let Some(start) = args.get(3) {
        wanted.start = integer(start)?;
        wanted.of_bits = args.get(5).map_or(Ok(false), is_of_bits)?;
        wanted.end = args.get(4).map(integer).transpose()?;
    }
    let Some(entry) = context.read(args.at(1), Kind::String)? else {
        context.out.int(if bit { -1 } else { 0 });
        return Ok(());
    };
    let bytes = entry.bytes();
    context.check_length(elements_of(bytes.len()))?;
    let at = wanted.bits(bytes.len()).and_then(|range| match find_bit(bytes, bit, range) {
        // The zeros that follow count unless an end was given.
        None if !bit && wanted.end.is_none() => Some(bytes.len() as u64 * 8),
        found => found,
    });
    context.out.int(at.map_or(-1, |at| at as i64));
    Ok(())
}

/// How `BITOP` combines strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    And,
    Or,
    Xor,
    Not,
}

impl Operation {
    fn of(word: &[u8]) -> Option<Self> {
        let all = [("and", Self::And), ("or", Self::Or), ("xor", Self::Xor), ("not", Self::Not)];
        all.into_iter().find(|(name, _)| is_word(word, name)).map(|(_, operation)| operation)
    }

    /// Combines a string with the result so far; the shorter one is followed by zeros.
    fn combine(self, result: &mut Edited, other: &[u8]) {
        let common = result.bytes().len().min(other.len());
        let pairs = result.bytes_mut().iter_mut().zip(other);
        match self {
            Self::And => {
                pairs.for_each(|(byte, other)| *byte &= other);
                result.bytes_mut()[common..].fill(0);
                return result.lengthen(other.len());
            }
            Self::Or => pairs.for_each(|(byte, other)| *byte |= other),
            Self::Xor | Self::Not => pairs.for_each(|(byte, other)| *byte ^= other),
        }
        result.extend(&other[common..]);
    }

    /// The result of the first string.
    fn begin(self, first: &[u8]) -> Edited {
        let mut result = Edited::empty(first.len(), 0);
        result.extend(first);
        if self == Self::Not {
            result.bytes_mut().iter_mut().for_each(|byte| *byte = !*byte);
        }
        result
    }
}

/// `BITOP`.
pub(super) fn bitop(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let operation = Operation::of(args.at(1)).ok_or(SYNTAX)?;
    if operation == Operation::Not && args.len() != 4 {
        return Err("ERR BITOP NOT must be called with a single source key.".into());
    }
    // One at a time: together they may be larger than memory.
    let (mut result, mut elements) = (None, 0);
    for key in args.iter_from(3) {
        let entry = context.read(key, Kind::String)?;
        let bytes = entry.as_ref().map_or(&[][..], Entry::bytes);
        elements += 1 + elements_of(bytes.len());
        context.check_length(elements)?;
        match &mut result {
            None => result = Some(operation.begin(bytes)),
            Some(result) => operation.combine(result, bytes),
        }
    }
    let result = result.unwrap_or_else(|| Edited::empty(0, 0));
    let len = result.bytes().len();
    let (key, before) = (args.at(2), context.txn.edit(args.at(2))?);
    if len > 0 {
        context.txn.put_edited(key, before.as_ref(), result)?;
        context.txn.notify(KeyEvent::string("set"), key);
    } else if let Some(before) = before {
        context.txn.delete(key, &before)?;
        context.txn.notify(KeyEvent::generic("del"), key);
    }
    context.out.count(len);
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bit_of(bytes: &[u8], at: u64) -> bool {
        bytes[(at / 8) as usize] & (0x80 >> (at % 8)) != 0
    }

    #[test]
    fn offsets_are_below_the_longest_string() {
        assert_eq!(offset(b"4294967295", 0).unwrap(), 4_294_967_295);
        assert_eq!(offset(b"#3", 5).unwrap(), 15);
        for text in ["4294967296", "-1", "", "x", "#1", "9223372036854775807"] {
            assert!(offset(text.as_bytes(), 0).is_err(), "{text}");
        }
        assert!(offset(b"#9223372036854775807", 64).is_err());
    }

    proptest! {
        #[test]
        fn ranges_of_bits_are_those_of_a_model(
            bytes in prop::collection::vec(prop_oneof![Just(0_u8), Just(0xFF), any::<u8>()], 0..40),
            start in -400_i64..400,
            end in prop::option::of(-400_i64..400),
            of_bits: bool,
            bit: bool,
        ) {
            let unit = if of_bits { 1 } else { 8 };
            let total = bytes.len() as i64 * 8 / unit;
            let from_end = |at: i64| if at < 0 { (at + total).max(0) } else { at };
            let last = end.map_or(total - 1, from_end);
            let chosen: Vec<u64> = (0..bytes.len() as i64 * 8)
                .filter(|at| (from_end(start)..=last).contains(&(at / unit)))
                .map(|at| at as u64)
                .collect();
            let range = Wanted { start, end, of_bits }.bits(bytes.len());
            prop_assert_eq!(range, chosen.first().copied().zip(chosen.last().copied()));
            if let Some(range) = range {
                let ones = chosen.iter().filter(|at| bit_of(&bytes, **at)).count();
                prop_assert_eq!(count_ones(&bytes, range), ones as u64);
                let first = chosen.iter().copied().find(|at| bit_of(&bytes, *at) == bit);
                prop_assert_eq!(find_bit(&bytes, bit, range), first);
            }
        }

        #[test]
        fn strings_are_combined_as_if_zeros_followed(
            strings in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 1..5),
        ) {
            let strings: Vec<&[u8]> = strings.iter().map(Vec::as_slice).collect();
            let len = strings.iter().map(|string| string.len()).max().unwrap();
            let at = |string: &[u8], at: usize| string.get(at).copied().unwrap_or(0);
            let expected = |combine: fn(u8, u8) -> u8| -> Vec<u8> {
                let all = |n| strings.iter().map(|string| at(string, n)).reduce(combine).unwrap();
                (0..len).map(all).collect()
            };
            let combined = |operation: Operation| {
                let mut result = operation.begin(strings[0]);
                strings[1..].iter().for_each(|other| operation.combine(&mut result, other));
                result.bytes().to_vec()
            };
            prop_assert_eq!(combined(Operation::And), expected(|a, b| a & b));
            prop_assert_eq!(combined(Operation::Or), expected(|a, b| a | b));
            prop_assert_eq!(combined(Operation::Xor), expected(|a, b| a ^ b));
            let inverted: Vec<u8> = strings[0].iter().map(|byte| !byte).collect();
            let not = Operation::Not.begin(strings[0]);
            prop_assert_eq!(not.bytes(), inverted);
        }
    }
}
