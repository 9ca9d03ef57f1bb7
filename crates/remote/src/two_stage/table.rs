//! The translation table of a sub-model: from its own numbers of leaves to leaves.

use super::{layout::SUB_MODEL_WORDS, model::SubModel};

/// An entry of a table: 8 bytes for each leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableEntry {
    pub(super) is_valid: bool,
    /// The leaf's number, of 31 bits.
    pub(super) number: u32,
    /// The incarnation that is expected, of 24 bits.
    pub(super) incarnation: u32,
    /// Number of pairs when the sub-model was trained.
    pub(super) count: u8,
}

/// The valid bit of an entry.
pub(super) const VALID: u64 = 1;

impl TableEntry {
    pub(super) fn to_word(self) -> u64 {
        u64::from(self.is_valid)
            | u64::from(self.number & (u32::MAX >> 1)) << 1
            | u64::from(self.incarnation & 0xff_ffff) << 32
            | u64::from(self.count) << 56
    }

    pub(super) fn from_word(word: u64) -> Self {
        Self {
            is_valid: word & VALID != 0,
            number: word as u32 >> 1,
            incarnation: (word >> 32) as u32 & 0xff_ffff,
            count: (word >> 56) as u8,
        }
    }
}

/// A sub-model and where its table is, as the control part has them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Descriptor {
    pub(crate) model: SubModel,
    /// First line of the table.
    pub(crate) first_line: u32,
    /// The guard of model and table, of which a client keeps the low half.
    pub(crate) version: u32,
}

impl Descriptor {
    /// The words after the guard.
    pub(super) fn to_words(self) -> [u64; SUB_MODEL_WORDS - 1] {
        let [line, rest] = self.model.to_words();
        [line, rest, u64::from(self.first_line)]
    }

    /// The descriptor in words that begin with the guard, which was seen as `guard`.
    pub(super) fn from_words(words: &[u64], guard: u64) -> Option<Self> {
        let &[_, line, rest, first_line] = words else { return None };
        let model = SubModel::from_words([line, rest]);
        Some(Self { model, first_line: first_line as u32, version: guard as u32 })
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn golden_entry() {
        let entry =
            TableEntry { is_valid: true, number: 0x4000_0001, incarnation: 0x2345, count: 9 };
        assert_eq!(entry.to_word().to_le_bytes(), [3, 0, 0, 0x80, 0x45, 0x23, 0, 9]);
        assert_eq!(TableEntry::from_word(entry.to_word()), entry);
    }
}
