//! The form in which Redis keeps registers in a string. A header of 16 bytes: `HYLL`, the form,
//! three bytes of nothing, the estimate that is kept (little-endian; its highest bit says that it
//! does not hold). Then either all registers at 6 bits each, the lowest bits first, or runs:
//!
//! - `00nnnnnn`: n + 1 registers that are 0;
//! - `01nnnnnn nnnnnnnn`: n + 1 registers that are 0;
//! - `1vvvvvnn`: n + 1 registers that are v + 1.
//!
//! Clients may write anything into a string: nothing here trusts the bytes.

use std::fmt::Write as _;

use super::estimate::{Histogram, REGISTERS, estimate, place};

const MAGIC: &[u8] = b"HYLL";
const HEADER_BYTES: usize = 16;
/// The byte of the header that tells the form.
const FORM: usize = 4;
const DENSE: u8 = 0;
const SPARSE: u8 = 1;
/// Where the header keeps the estimate.
const ESTIMATE: std::ops::Range<usize> = 8..16;
/// In the last byte of the estimate: it does not hold.
const NO_ESTIMATE: u8 = 0x80;

const REGISTER_BITS: usize = 6;
const REGISTER_MAX: u16 = (1 << REGISTER_BITS) - 1;
const DENSE_BYTES: usize = HEADER_BYTES + (REGISTERS * REGISTER_BITS).div_ceil(8);

/// The greatest register of the sparse form.
const SPARSE_VALUE_MAX: u8 = 32;
/// The longest runs.
const SHORT_ZEROS_MAX: usize = 64;
const VALUES_MAX: usize = 4;
/// Runs that are looked at for neighbours of one value after a change, as in Redis.
const JOINED_RUNS: usize = 5;

/// The bytes are not those of a HyperLogLog.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Corrupt;

/// A run of the sparse form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    /// Its place in the string, and its bytes.
    at: usize,
    bytes: usize,
    value: u8,
    len: usize,
}

impl Run {
    /// The run at a place of the string, if there is one.
    fn read(string: &[u8], at: usize) -> Option<Result<Self, Corrupt>> {
        let first = *string.get(at)?;
        let low = usize::from(first & 0x3F);
        Some(Ok(match first >> 6 {
            0 => Self { at, bytes: 1, value: 0, len: low + 1 },
            1 => {
                let Some(second) = string.get(at + 1) else { return Some(Err(Corrupt)) };
                Self { at, bytes: 2, value: 0, len: (low << 8 | usize::from(*second)) + 1 }
            }
            _ => Self { at, bytes: 1, value: (first >> 2 & 0x1F) + 1, len: (low & 3) + 1 },
        }))
    }

    fn is_values(self) -> bool {
        self.value > 0
    }

    /// Appends a run of this value and length; nothing if it is empty.
    fn push(out: &mut Vec<u8>, value: u8, len: usize) {
        let Some(less) = len.checked_sub(1) else { return };
        if value > 0 {
            out.push(0x80 | (value - 1) << 2 | less as u8);
        } else if len > SHORT_ZEROS_MAX {
            out.extend_from_slice(&[0x40 | (less >> 8) as u8, less as u8]);
        } else {
            out.push(less as u8);
        }
    }
}

/// The runs of the sparse form, from a place of the string on.
struct Runs<'a> {
    string: &'a [u8],
    at: usize,
}

impl Iterator for Runs<'_> {
    type Item = Result<Run, Corrupt>;

    fn next(&mut self) -> Option<Self::Item> {
        let run = Run::read(self.string, self.at)?;
        self.at = run.as_ref().map_or(self.string.len(), |run| run.at + run.bytes);
        Some(run)
    }
}

/// Registers, a byte each.
pub(super) struct Registers(Box<[u8]>);

impl Registers {
    /// All are 0.
    pub(super) fn new() -> Self {
        Self(vec![0; REGISTERS].into())
    }

    pub(super) fn all(&self) -> &[u8] {
        &self.0
    }

    /// How many are not 0.
    pub(super) fn set(&self) -> usize {
        self.0.iter().filter(|value| **value > 0).count()
    }

    pub(super) fn estimate(&self) -> i64 {
        let mut histogram: Histogram = [0; 64];
        for value in &self.0 {
            histogram[usize::from(value & 0x3F)] += 1;
        }
        estimate(&histogram)
    }
}

/// A string that has the header of a HyperLogLog.
pub(super) struct HyperLogLog(Vec<u8>);

impl HyperLogLog {
    /// Nothing was added.
    pub(super) fn new() -> Self {
        let mut string = MAGIC.to_vec();
        string.resize(HEADER_BYTES, 0);
        string[FORM] = SPARSE;
        Run::push(&mut string, 0, REGISTERS);
        Self(string)
    }

    /// Reads a string; none if it has no such header.
    pub(super) fn parse(string: &[u8]) -> Option<Self> {
        let is_whole = match *string.get(FORM)? {
            DENSE => string.len() == DENSE_BYTES,
            SPARSE => string.len() >= HEADER_BYTES,
            _ => false,
        };
        (is_whole && string.starts_with(MAGIC)).then(|| Self(string.to_vec()))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn is_dense(&self) -> bool {
        self.0[FORM] == DENSE
    }

    /// The estimate in the header, if it holds.
    pub(super) fn kept_estimate(&self) -> Option<i64> {
        let kept: [u8; 8] = self.0[ESTIMATE].try_into().ok()?;
        (kept[7] & NO_ESTIMATE == 0).then_some(i64::from_le_bytes(kept))
    }

    /// Puts an estimate into the header.
    pub(super) fn keep_estimate(&mut self, estimate: i64) {
        self.0[ESTIMATE].copy_from_slice(&estimate.to_le_bytes());
    }

    /// The estimate in the header does not hold any more.
    pub(super) fn forget_estimate(&mut self) {
        self.0[ESTIMATE.end - 1] |= NO_ESTIMATE;
    }

    fn runs(&self) -> Runs<'_> {
        Runs { string: &self.0, at: HEADER_BYTES }
    }

    /// The place of a dense register: its two bytes as a number, and how far to shift it. The
    /// last register ends with the last byte.
    fn dense_place(&self, index: usize) -> (usize, u16, usize) {
        let bit = index * REGISTER_BITS;
        let at = HEADER_BYTES + bit / 8;
        let high = self.0.get(at + 1).copied().unwrap_or(0);
        (at, u16::from_le_bytes([self.0[at], high]), bit % 8)
    }

    fn dense(&self, index: usize) -> u8 {
        let (_, word, shift) = self.dense_place(index);
        (word >> shift & REGISTER_MAX) as u8
    }

    /// Raises a dense register; returns true if it was less.
    fn raise_dense(&mut self, index: usize, value: u8) -> bool {
        let (at, word, shift) = self.dense_place(index);
        if (word >> shift & REGISTER_MAX) as u8 >= value {
            return false;
        }
        let [low, high] =
            (word & !(REGISTER_MAX << shift) | u16::from(value) << shift).to_le_bytes();
        self.0[at] = low;
        if let Some(byte) = self.0.get_mut(at + 1) {
            *byte = high;
        }
        true
    }

    /// Calls `see` for each part of the registers of one value, in order. It is given the first of
    /// them, how many they are, and the value.
    fn each(&self, mut see: impl FnMut(usize, usize, u8)) -> Result<(), Corrupt> {
        if self.is_dense() {
            (0..REGISTERS).for_each(|index| see(index, 1, self.dense(index)));
            return Ok(());
        }
        let mut first = 0;
        for run in self.runs() {
            let run = run?;
            if first + run.len > REGISTERS {
                return Err(Corrupt);
            }
            see(first, run.len, run.value);
            first += run.len;
        }
        if first == REGISTERS { Ok(()) } else { Err(Corrupt) }
    }

    /// Estimates how many different elements were added.
    pub(super) fn estimate(&self) -> Result<i64, Corrupt> {
        let mut histogram: Histogram = [0; 64];
        self.each(|_, len, value| histogram[usize::from(value)] += len as u32)?;
        Ok(estimate(&histogram))
    }

    /// Raises registers to those of this one.
    pub(super) fn merge_into(&self, registers: &mut Registers) -> Result<(), Corrupt> {
        self.each(|first, len, value| {
            for register in &mut registers.0[first..first + len] {
                *register = value.max(*register);
            }
        })
    }

    /// Raises its registers to others. The form becomes dense if it would have more than
    /// `sparse_max` bytes.
    pub(super) fn raise(
        &mut self,
        registers: &Registers,
        sparse_max: usize,
    ) -> Result<(), Corrupt> {
        for (index, value) in registers.0.iter().enumerate().filter(|(_, value)| **value > 0) {
            self.raise_one(index, *value, sparse_max)?;
        }
        Ok(())
    }

    /// Adds an element; returns true if a register has changed. The form becomes dense as in
    /// [`HyperLogLog::raise`].
    pub(super) fn add(&mut self, element: &[u8], sparse_max: usize) -> Result<bool, Corrupt> {
        let (index, value) = place(element);
        self.raise_one(index, value, sparse_max)
    }

    fn raise_one(&mut self, index: usize, value: u8, sparse_max: usize) -> Result<bool, Corrupt> {
        if self.is_dense() {
            Ok(self.raise_dense(index, value))
        } else {
            self.raise_sparse(index, value, sparse_max)
        }
    }

    /// Makes the form dense.
    pub(super) fn make_dense(&mut self) -> Result<(), Corrupt> {
        if self.is_dense() {
            return Ok(());
        }
        let mut string = self.0[..HEADER_BYTES].to_vec();
        string[FORM] = DENSE;
        string.resize(DENSE_BYTES, 0);
        let mut dense = Self(string);
        self.each(|first, len, value| {
            (first..first + len).for_each(|index| _ = dense.raise_dense(index, value));
        })?;
        *self = dense;
        Ok(())
    }

    /// Makes the form dense and raises a register, which was less.
    fn raise_as_dense(&mut self, index: usize, value: u8) -> Result<bool, Corrupt> {
        self.make_dense()?;
        Ok(self.raise_dense(index, value))
    }

    /// Raises a register of the sparse form: its run is divided. The bytes are those that Redis
    /// would have.
    fn raise_sparse(
        &mut self,
        index: usize,
        value: u8,
        sparse_max: usize,
    ) -> Result<bool, Corrupt> {
        if value > SPARSE_VALUE_MAX {
            return self.raise_as_dense(index, value);
        }
        let (mut first, mut before, mut found) = (0, HEADER_BYTES, None);
        for run in self.runs() {
            let run = run?;
            if index < first + run.len {
                found = Some(run);
                break;
            }
            first += run.len;
            before = run.at;
        }
        let run = found.ok_or(Corrupt)?;
        if run.value >= value {
            return Ok(false);
        }
        let mut divided = Vec::with_capacity(5);
        Run::push(&mut divided, run.value, index - first);
        Run::push(&mut divided, value, 1);
        Run::push(&mut divided, run.value, first + run.len - 1 - index);
        let len = self.0.len() + divided.len() - run.bytes;
        if divided.len() > run.bytes && len > sparse_max {
            return self.raise_as_dense(index, value);
        }
        self.0.splice(run.at..run.at + run.bytes, divided);
        self.join_runs(before);
        self.forget_estimate();
        Ok(true)
    }

    /// Joins neighbours of one value from a run on, a few of them, as Redis does.
    fn join_runs(&mut self, mut at: usize) {
        for _ in 0..JOINED_RUNS {
            let Some(Ok(run)) = Run::read(&self.0, at) else { return };
            let next = Run::read(&self.0, at + run.bytes);
            match next {
                Some(Ok(next))
                    if run.is_values()
                        && run.value == next.value
                        && run.len + next.len <= VALUES_MAX =>
                {
                    let mut joined = Vec::with_capacity(1);
                    Run::push(&mut joined, run.value, run.len + next.len);
                    self.0.splice(at..at + 2, joined);
                }
                _ => at += run.bytes,
            }
        }
    }

    /// The sparse form as `PFDEBUG DECODE` writes it.
    pub(super) fn describe(&self) -> String {
        let mut text = String::new();
        for run in self.runs().map_while(Result::ok) {
            let Run { value, len, .. } = run;
            let _ = match (value, run.bytes) {
                (0, 1) => write!(text, "z:{len} "),
                (0, _) => write!(text, "Z:{len} "),
                _ => write!(text, "v:{value},{len} "),
            };
        }
        text.truncate(text.trim_end().len());
        text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The default of Redis.
    const SPARSE_MAX: usize = 3000;

    fn registers_of(value: &HyperLogLog) -> Vec<u8> {
        let mut registers = Registers::new();
        value.merge_into(&mut registers).unwrap();
        registers.all().to_vec()
    }

    #[test]
    fn an_empty_one_has_its_golden_bytes() {
        let value = HyperLogLog::new();
        assert_eq!(value.bytes(), b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\0\x7F\xFF");
        assert_eq!((value.kept_estimate(), value.estimate()), (Some(0), Ok(0)));
        assert_eq!(value.describe(), "Z:16384");
    }

    #[test]
    fn a_register_divides_its_run() {
        let mut value = HyperLogLog::new();
        assert_eq!(value.raise_one(100, 3, SPARSE_MAX), Ok(true));
        assert_eq!(value.describe(), "Z:100 v:3,1 Z:16283");
        assert_eq!(value.raise_one(101, 3, SPARSE_MAX), Ok(true));
        assert_eq!(value.describe(), "Z:100 v:3,2 Z:16282");
        assert_eq!(value.raise_one(100, 3, SPARSE_MAX), Ok(false));
        assert_eq!(value.kept_estimate(), None);
        assert_eq!(value.raise_one(99, 33, SPARSE_MAX), Ok(true));
        assert!(value.is_dense());
    }

    proptest! {
        #[test]
        fn registers_are_those_of_a_model(
            raised in prop::collection::vec((0..REGISTERS, 1_u8..40), 0..300),
            near in prop::collection::vec((0..40_usize, 1_u8..4), 0..200),
        ) {
            let (mut value, mut model) = (HyperLogLog::new(), vec![0; REGISTERS]);
            for (index, to) in near.into_iter().chain(raised) {
                prop_assert_eq!(value.raise_one(index, to, SPARSE_MAX), Ok(model[index] < to));
                model[index] = to.max(model[index]);
            }
            prop_assert_eq!(&registers_of(&value), &model);
            let estimate = value.estimate();
            value.make_dense().unwrap();
            prop_assert_eq!(value.estimate(), estimate);
            prop_assert_eq!(registers_of(&value), model);
            prop_assert!(HyperLogLog::parse(value.bytes()).is_some());
        }

        #[test]
        fn no_bytes_make_it_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..60),
            changes in prop::collection::vec((HEADER_BYTES..DENSE_BYTES, any::<u8>()), 0..20),
            index in 0..REGISTERS,
            value in 1_u8..52,
        ) {
            let mut sparse = HyperLogLog::new().0;
            sparse.extend_from_slice(&bytes);
            let cut = HyperLogLog::new().0[..HEADER_BYTES].to_vec();
            let short = [&cut[..], &bytes].concat();
            let mut dense = HyperLogLog::new();
            dense.make_dense().unwrap();
            changes.iter().for_each(|(at, byte)| dense.0[*at] = *byte);
            for string in [&bytes, &sparse, &short, &dense.0] {
                let Some(mut parsed) = HyperLogLog::parse(string) else { continue };
                let _ = (parsed.estimate(), parsed.describe());
                let _ = parsed.merge_into(&mut Registers::new());
                let _ = parsed.raise_one(index, value, SPARSE_MAX);
                let _ = parsed.make_dense();
            }
        }
    }
}
