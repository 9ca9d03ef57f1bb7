//! From a key to the leaf that should hold it.
//!
//! The keys are cut into *runs*. The leaves of a run lie side by side, and a line over the keys'
//! codes says which of them holds a key: the fences of the leaves *are* the steps of the line, so
//! that the prediction is exact for keys that are there, that are not, and that come later. A
//! *directory* in the region finds the run.
//!
//! Nothing here is needed for a right answer. A wrong leaf says by its fences that it is wrong.

pub(crate) mod directory;
pub(crate) mod fit;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

use rhumb_model::Line;

use crate::layout::format::LEAF_BITS;

/// Consecutive leaves and the line that finds a key among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// No key of the run is below it; the first run's is empty.
    pub(crate) low: Vec<u8>,
    /// Bytes with which the keys begin that it was fitted to.
    pub(crate) prefix: Vec<u8>,
    /// Says, in units of 2^-[`LEAF_BITS`] leaves, where the code of what follows the prefix lies.
    pub(crate) line: Line,
    /// Slot of the first leaf.
    pub(crate) base: u32,
    /// Number of leaves that the line finds.
    pub(crate) leaves: u32,
    /// Its number.
    pub(crate) number: u32,
}

/// The leaf of a run that a code belongs to, counted from the run's first.
#[inline]
pub(crate) fn leaf_of_code(line: &Line, leaves: u32, code: u64) -> u32 {
    let leaf = line.at(code) >> LEAF_BITS;
    leaf.min(u64::from(leaves.saturating_sub(1))) as u32
}

/// The smallest code that belongs to leaf `leaf` of a run, or a later one; `None` if there is none.
pub(crate) fn first_code(line: &Line, leaf: u32) -> Option<u64> {
    let height = i128::from(u64::from(leaf) << LEAF_BITS) - i128::from(line.y0);
    if leaf == 0 || height <= 0 {
        return Some(0);
    }
    if line.mantissa == 0 {
        return None;
    }
    // floor(d * mantissa / 2^shift) >= height, for the smallest d.
    let shift = u32::from(line.shift.min(Line::SHIFT_MAX));
    let scaled = (height as u128).checked_mul(1 << shift)?;
    let distance = scaled.div_ceil(u128::from(line.mantissa));
    u64::try_from(distance).ok()?.checked_add(line.x0)
}

/// The key that begins with `prefix` and then has `code`, without the zeros at its end: a key that
/// begins with the prefix has at least this code exactly if it is not below that.
pub(crate) fn fence_of(prefix: &[u8], code: u64) -> Vec<u8> {
    let mut fence = prefix.to_vec();
    let digits = 8 - (code.trailing_zeros() / 8).min(8) as usize;
    fence.extend_from_slice(&code.to_be_bytes()[..digits]);
    fence
}

impl Run {
    /// The leaf for `key`, counted from the first.
    #[cfg(test)]
    pub(crate) fn leaf_of(&self, key: &[u8]) -> u32 {
        let begins = &key[..self.prefix.len().min(key.len())];
        match begins.cmp(&self.prefix) {
            std::cmp::Ordering::Less => 0,
            std::cmp::Ordering::Equal => {
                let code = rhumb_model::code::code_at(key, self.prefix.len());
                leaf_of_code(&self.line, self.leaves, code)
            }
            std::cmp::Ordering::Greater => self.leaves.saturating_sub(1),
        }
    }

    /// The low fence of leaf `leaf`, which is not the first.
    pub(crate) fn fence(&self, leaf: u32) -> Option<Vec<u8>> {
        first_code(&self.line, leaf).map(|code| fence_of(&self.prefix, code))
    }
}
