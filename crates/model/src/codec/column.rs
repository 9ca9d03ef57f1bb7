//! Columns: numbers of similar size, in few bits.
//!
//! `[middle varint][low bits u8][bits]`. A number is written as its difference to *middle*, sign
//! folded in. Of the difference, what is left without its *low bits* lowest bits is written as that
//! many zeros; then come a one and those low bits, lowest first (a Rice code). Bits fill each byte
//! from its low end; the rest of the last byte is zero.

use super::{DecodeError, Reader, put_varint};

/// The most low bits: a number has 64 bits, and the zeros stand for at least one.
const LOW_BITS_MAX: u8 = 63;

/// Appends a column. [`Reader::column`] must be told the number of values. A value takes at most
/// four bits more than the largest of them has. The column takes three bytes besides, or as many as
/// the middle has.
pub fn put_column(values: &[u64], out: &mut Vec<u8>) {
    let (middle, low_bits) = parameters(values);
    put_varint(middle, out);
    out.push(low_bits);
    let mut bits = BitWriter { out, taken: 0 };
    for value in values {
        let folded = fold(*value, middle);
        bits.push_zeros(folded >> low_bits);
        bits.push(1, 1);
        bits.push(folded & ((1 << low_bits) - 1), low_bits);
    }
}

/// The middle and the low bits with which `values` take the fewest bits, among those that are
/// tried. The middles have at least about an eighth of the values on either side; the low bits are
/// as many as the mean difference has, one more and one fewer.
fn parameters(values: &[u64]) -> (u64, u8) {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let mut middles: Vec<u64> =
        (1..8).filter_map(|part| sorted.get(sorted.len() * part / 8).copied()).collect();
    middles.dedup();
    let ways = middles.into_iter().flat_map(|middle| {
        let sum: u128 = values.iter().map(|value| u128::from(fold(*value, middle))).sum();
        let mean = (sum / values.len() as u128) as u64;
        let low_bits = mean.checked_ilog2().unwrap_or(0) as u8;
        let around = low_bits.saturating_sub(1)..=(low_bits + 1).min(LOW_BITS_MAX);
        around.map(move |low_bits| (middle, low_bits))
    });
    let bits_with = |(middle, low_bits): &(u64, u8)| {
        let zeros = |value: &u64| u128::from(fold(*value, *middle) >> low_bits);
        values.iter().map(zeros).sum::<u128>() + values.len() as u128 * u128::from(*low_bits)
    };
    ways.min_by_key(bits_with).unwrap_or((0, 0))
}

/// The distance of `value` from `middle`, around 2^64 if that is nearer: 0, 1 below, 1 above, 2
/// below, ... are 0, 1, 2, 3, ...
fn fold(value: u64, middle: u64) -> u64 {
    let difference = value.wrapping_sub(middle).cast_signed();
    ((difference << 1) ^ (difference >> 63)).cast_unsigned()
}

/// The value that [`fold`] made the number of.
fn unfold(folded: u64, middle: u64) -> u64 {
    let difference = (folded >> 1).cast_signed() ^ -(folded & 1).cast_signed();
    middle.wrapping_add(difference.cast_unsigned())
}

impl Reader<'_> {
    /// Appends the next column, of `count` values, to `values`. Reserves at most 64 bytes for each
    /// byte that is left.
    ///
    /// # Errors
    ///
    /// If there is no such column, or ones are where its last byte should have zeros.
    pub fn column(
        &mut self,
        count: usize,
        values: &mut Vec<u64>,
        expected: &'static str,
    ) -> Result<(), DecodeError> {
        let middle = self.varint(expected)?;
        let low_bits = self.u8(expected)?;
        if low_bits > LOW_BITS_MAX {
            return Err(self.error(expected, format_args!("a column of {low_bits} low bits")));
        }
        let mut bits = BitReader { bytes: &self.bytes[self.offset..], at: 0 };
        // A value takes at least one bit.
        if count.div_ceil(8) > bits.bytes.len() {
            let found = bits.bytes.len();
            return Err(self.error(expected, format_args!("{found} bytes for {count} values")));
        }
        values.reserve(count);
        for i in 0..count {
            let Some(folded) = bits.number(low_bits) else {
                return Err(self.error(expected, format_args!("no value {i} of {count}")));
            };
            values.push(unfold(folded, middle));
        }
        let Some(len) = bits.finish() else {
            return Err(self.error(expected, "ones behind the last value"));
        };
        self.offset += len;
        Ok(())
    }
}

/// Appends bits, from the low end of each byte up.
struct BitWriter<'a> {
    out: &'a mut Vec<u8>,
    /// The number of bits of the last byte that are taken; 0 if all are.
    taken: u8,
}

impl BitWriter<'_> {
    fn push(&mut self, mut value: u64, mut bits: u8) {
        while bits > 0 {
            if self.taken == 0 {
                self.out.push(0);
            }
            let now = bits.min(8 - self.taken);
            if let Some(last) = self.out.last_mut() {
                *last |= (value as u8) << self.taken;
            }
            (value, bits) = (value >> now, bits - now);
            self.taken = (self.taken + now) % 8;
        }
    }

    fn push_zeros(&mut self, mut count: u64) {
        while count > 0 {
            let now = count.min(64);
            self.push(0, now as u8);
            count -= now;
        }
    }
}

/// Reads what a [`BitWriter`] wrote, and nothing beyond its end.
struct BitReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl BitReader<'_> {
    /// The eight bits from here on, the first of them lowest; zeros after the end.
    fn window(&self) -> u8 {
        let byte = |i: usize| u16::from(self.bytes.get(i).copied().unwrap_or(0));
        ((byte(self.at / 8) | byte(self.at / 8 + 1) << 8) >> (self.at % 8)) as u8
    }

    /// The number of zeros before the next one, which is passed as well; `None` if there is no one.
    fn zeros(&mut self) -> Option<u64> {
        let begin = self.at;
        while self.at < self.bytes.len() * 8 {
            match self.window() {
                0 => self.at += 8,
                window => {
                    self.at += window.trailing_zeros() as usize + 1;
                    return Some((self.at - begin - 1) as u64);
                }
            }
        }
        None
    }

    /// The next number; `None` if there is none, or one of more than 64 bits.
    fn number(&mut self, low_bits: u8) -> Option<u64> {
        let upper = self.zeros()?.checked_mul(1 << low_bits)?;
        if self.at + usize::from(low_bits) > self.bytes.len() * 8 {
            return None;
        }
        let mut number = upper;
        for done in (0..low_bits).step_by(8) {
            let now = (low_bits - done).min(8);
            number |= u64::from(self.window() & (u8::MAX >> (8 - now))) << done;
            self.at += usize::from(now);
        }
        Some(number)
    }

    /// The number of bytes up to the last that was read; none if its rest has ones.
    fn finish(&self) -> Option<usize> {
        let is_padded = self.at.is_multiple_of(8) || {
            let rest = 8 - self.at % 8;
            self.window() & (u8::MAX >> (8 - rest)) == 0
        };
        is_padded.then(|| self.at.div_ceil(8))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encode(values: &[u64]) -> Vec<u8> {
        let mut out = Vec::new();
        put_column(values, &mut out);
        out
    }

    fn decode(bytes: &[u8], count: usize) -> Result<Vec<u64>, String> {
        let (mut reader, mut values) = (Reader::new(bytes), Vec::new());
        reader.column(count, &mut values, "a column").map_err(|e| e.to_string())?;
        reader.finish().map_err(|e| e.to_string())?;
        Ok(values)
    }

    #[test]
    fn golden_bytes() {
        // From 6: 1 below, 0, 2 above, 2 below are 1, 0, 4, 3, each with one low bit.
        assert_eq!(encode(&[5, 6, 8, 4]), [6, 1, 0b01_00_01_11, 0b110]);
        assert_eq!(encode(&[300; 9]), [0xac, 2, 0, 0xff, 1]);
        assert_eq!(encode(&[]), [0, 0]);
    }

    #[test]
    fn what_is_no_column_is_refused() {
        assert_eq!(decode(&[5, 1, 0b1001, 0b1101], 4), Ok(vec![5, 6, 8, 4]));
        let refused = |bytes: &[u8], count, by: &str| {
            let refusal = decode(bytes, count).unwrap_err();
            assert!(refusal.contains(by), "{refusal}");
        };
        refused(&[5, 1, 0b1001, 0b1101], 5, "no value 4 of 5");
        refused(&[5, 1, 0b1001, 0b1101], 3, "ones behind the last value");
        refused(&[5, 1, 0b1001, 0b1101, 0], 4, "1 more bytes");
        refused(&[5, 1, 0b1001], 4, "no value 2");
        refused(&[5, 1, 0b1001], 100, "1 bytes for 100 values");
        refused(&[5, 64, 1], 1, "a column of 64 low bits");
        refused(&[5, 63, 0b100, 0, 0, 0, 0, 0, 0, 0, 0], 1, "no value 0");
        refused(&[5], 1, "bytes left");
    }

    #[test]
    fn nothing_is_reserved_for_values_that_are_not_there() {
        let mut values = Vec::new();
        for count in [17, usize::MAX] {
            assert!(Reader::new(&[0, 0, 1, 1]).column(count, &mut values, "a column").is_err());
        }
        assert_eq!(values.capacity(), 0);
    }

    proptest! {
        #[test]
        fn round_trip(bits in prop::collection::vec((any::<u64>(), 0u32..64), 0..70), width in 0u32..64) {
            let of_all_sizes: Vec<u64> = bits.iter().map(|(value, shift)| value >> shift).collect();
            let narrow: Vec<u64> = bits.iter().map(|(value, _)| u64::MAX - (value >> width)).collect();
            for values in [of_all_sizes, narrow] {
                let encoded = encode(&values);
                prop_assert_eq!(decode(&encoded, values.len()), Ok(values));
            }
        }

        #[test]
        fn takes_few_bits(bits in prop::collection::vec((any::<u64>(), 0u32..64), 1..70)) {
            let values: Vec<u64> = bits.iter().map(|(value, shift)| value >> shift).collect();
            let width = values.iter().map(|value| u64::BITS - value.leading_zeros()).max().unwrap() as usize;
            prop_assert!(encode(&values).len() <= 11 + (values.len() * (width + 4)).div_ceil(8));
        }

        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..80), count in 0usize..200) {
            let (mut reader, mut values) = (Reader::new(&bytes), Vec::new());
            while reader.column(count, &mut values, "a column").is_ok() && reader.remaining() > 0 {}
        }
    }
}
