//! Sorted byte strings, each stored without the prefix that it shares with the one before it, and
//! compared with keys in that form.
//!
//! Memory is bounded by the encoded bytes, even if thousands of separators share long prefixes. A
//! comparison is linear in the length of the separator, as any is.

use std::{cmp::Ordering, ops::Range};

use rhumb_model::{code, codec::Reader};

use crate::types::KEY_BYTES_MAX;

/// One separator, relative to the one before it.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The number of leading bytes that it shares with the previous separator.
    shared: u32,
    /// Where its own bytes begin in `bytes`; they end where those of the next begin.
    begin: u32,
    /// The latest earlier separator with a smaller `shared`: the bytes from there to `shared` are
    /// among its own. Itself if `shared` is 0.
    parent: u32,
}

/// A sorted list of separators, front coded.
#[derive(Debug, Default)]
pub(super) struct Separators {
    entries: Vec<Entry>,
    bytes: Vec<u8>,
}

impl Separators {
    /// Appends a separator that shares `shared` bytes with the last one and goes on with `suffix`.
    fn push(&mut self, shared: usize, suffix: &[u8]) {
        let this = self.entries.len() as u32;
        let mut parent = this;
        if shared > 0 {
            // Amortised: each step passes entries that no later search visits again.
            parent = this - 1;
            while self.entries[parent as usize].shared >= shared as u32 {
                parent = self.entries[parent as usize].parent;
            }
        }
        self.entries.push(Entry { shared: shared as u32, begin: self.bytes.len() as u32, parent });
        self.bytes.extend_from_slice(suffix);
    }

    /// Reads `lengths.len()` separators given how many bytes each shares and adds, and calls `each`
    /// with each of them. Refuses separators that do not rise strictly, or are longer than any key.
    pub(super) fn decode(
        reader: &mut Reader<'_>,
        shared: &[u64],
        added: &[u64],
        mut each: impl FnMut(&[u8]),
    ) -> Result<Self, String> {
        let total = added.iter().try_fold(0u64, |sum, len| sum.checked_add(*len));
        let available = reader.remaining().min(u32::MAX as usize) as u64;
        if total.is_none_or(|total| total > available) {
            return Err(format!("expected separators within {available} bytes, found more"));
        }
        let mut list = Self::default();
        list.entries.reserve_exact(shared.len());
        list.bytes.reserve_exact(total.unwrap_or(0) as usize);
        let mut current: Vec<u8> = Vec::new();
        for (i, (shared, added)) in shared.iter().zip(added).enumerate() {
            let suffix = reader.take(*added as usize, "a separator").map_err(|e| e.to_string())?;
            let shared = usize::try_from(*shared).unwrap_or(usize::MAX);
            if shared > current.len() {
                return Err(format!(
                    "expected separator {i} to share at most {} bytes, found {shared}",
                    current.len()
                ));
            }
            let rises = i == 0
                || suffix
                    .first()
                    .is_some_and(|byte| current.get(shared).is_none_or(|previous| byte > previous));
            if !rises {
                return Err(format!(
                    "expected separator {i} above the one before it, found it below"
                ));
            }
            current.truncate(shared);
            current.extend_from_slice(suffix);
            if current.len() > KEY_BYTES_MAX {
                return Err(format!(
                    "expected separator {i} no longer than the longest key, found {} bytes",
                    current.len()
                ));
            }
            each(&current);
            list.push(shared, suffix);
        }
        Ok(list)
    }

    fn end(&self, i: usize) -> usize {
        self.entries.get(i + 1).map_or(self.bytes.len(), |next| next.begin as usize)
    }

    /// The length of separator `i` in bytes.
    pub(super) fn len_of(&self, i: usize) -> usize {
        let entry = self.entries[i];
        entry.shared as usize + self.end(i) - entry.begin as usize
    }

    /// Compares the first `len` bytes of `key` to those of separator `i`, which has as many; a
    /// shorter key is compared as it is. The first `known` bytes are taken to be equal, as far as
    /// both have them.
    pub(super) fn compare_prefix(
        &self,
        key: &[u8],
        i: usize,
        known: usize,
        len: usize,
    ) -> Ordering {
        let mut order = if key.len() < len { Ordering::Less } else { Ordering::Equal };
        let mut end = len;
        let mut i = i;
        // From the last piece to the first: an earlier difference overrides a later one.
        while end > known {
            let entry = self.entries[i];
            let from = entry.shared as usize;
            if from < end {
                let piece = &self.bytes[entry.begin as usize..][..end - from];
                let mine = &key[from.min(key.len())..end.min(key.len())];
                let common = mine.len().min(piece.len());
                order = mine[..common].cmp(&piece[..common]).then(order);
                end = from;
            }
            i = entry.parent as usize;
        }
        order
    }

    /// Returns true if separator `i` is at most `key`, whose first `known` bytes are equal as far
    /// as both have them.
    pub(super) fn is_at_most(&self, i: usize, key: &[u8], known: usize) -> bool {
        self.compare_prefix(key, i, known, self.len_of(i)) != Ordering::Less
    }

    /// The number of separators.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The number of bytes that separator `i` shares with the one before it.
    pub(super) fn shared_of(&self, i: usize) -> usize {
        self.entries[i].shared as usize
    }

    /// Calls `each` with the number and the bytes of each separator of `range`.
    pub(super) fn for_each_in(&self, range: Range<usize>, mut each: impl FnMut(usize, &[u8])) {
        let mut current = if range.is_empty() { Vec::new() } else { self.get(range.start) };
        for i in range.clone() {
            if i > range.start {
                current.truncate(self.shared_of(i));
                current.extend_from_slice(&self.bytes[self.entries[i].begin as usize..self.end(i)]);
            }
            each(i, &current);
        }
    }

    /// Separator `i` as a whole.
    pub(super) fn get(&self, i: usize) -> Vec<u8> {
        let mut out = vec![0; self.len_of(i)];
        let (mut i, mut end) = (i, out.len());
        while end > 0 {
            let entry = self.entries[i];
            let from = entry.shared as usize;
            if from < end {
                let begin = entry.begin as usize;
                out[from..end].copy_from_slice(&self.bytes[begin..begin + end - from]);
                end = from;
            }
            i = entry.parent as usize;
        }
        out
    }

    pub(super) fn resident_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>() + self.bytes.capacity()
    }
}

/// Front codes separators as they come.
#[derive(Debug, Default)]
pub(super) struct SeparatorsBuilder {
    last: Vec<u8>,
    /// For each separator, the bytes that it shares with the one before it.
    pub(super) shared: Vec<u64>,
    /// For each separator, the bytes that it adds.
    pub(super) added: Vec<u64>,
    /// The added bytes, joined.
    pub(super) bytes: Vec<u8>,
}

impl SeparatorsBuilder {
    /// Appends a separator above the last one.
    pub(super) fn push(&mut self, separator: &[u8]) {
        let shared = code::common_prefix_len(&self.last, separator);
        self.shared.push(shared as u64);
        self.added.push((separator.len() - shared) as u64);
        self.bytes.extend_from_slice(&separator[shared..]);
        self.last.truncate(shared);
        self.last.extend_from_slice(&separator[shared..]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn strings() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let letters = prop::sample::select(vec![0u8, b'a', b'b', 0xff]);
        prop::collection::btree_set(prop::collection::vec(letters, 0..12), 1..60)
            .prop_map(|set| set.into_iter().collect())
    }

    proptest! {
        #[test]
        fn compares_as_whole_strings(strings in strings(), keys in strings()) {
            let mut builder = SeparatorsBuilder::default();
            strings.iter().for_each(|s| builder.push(s));
            let mut seen = Vec::new();
            let list = Separators::decode(
                &mut Reader::new(&builder.bytes), &builder.shared, &builder.added, |s| seen.push(s.to_vec()),
            ).unwrap();
            prop_assert_eq!(&seen, &strings);
            for (i, separator) in strings.iter().enumerate() {
                prop_assert_eq!(&list.get(i), separator);
                for key in keys.iter().chain(&strings) {
                    for known in 0..=code::common_prefix_len(separator, key) {
                        prop_assert_eq!(list.is_at_most(i, key, known), separator <= key);
                    }
                    for len in 0..=separator.len() {
                        let mine = &key[..len.min(key.len())];
                        prop_assert_eq!(list.compare_prefix(key, i, 0, len), mine.cmp(&separator[..len]));
                    }
                }
            }
        }

        #[test]
        fn separators_are_no_longer_than_keys(over in 1..100_usize) {
            let bytes = vec![b'a'; KEY_BYTES_MAX + over];
            let lengths = [KEY_BYTES_MAX as u64, over as u64];
            let decode = |count: usize| {
                let (shared, added) = ([0, KEY_BYTES_MAX as u64], &lengths[..count]);
                Separators::decode(&mut Reader::new(&bytes), &shared[..count], added, |_| ())
            };
            prop_assert!(decode(1).is_ok());
            prop_assert!(decode(2).is_err());
        }

        #[test]
        fn random_lists_never_panic(
            shared in prop::collection::vec(0u64..6, 0..30), added in prop::collection::vec(0u64..6, 0..30), bytes in prop::collection::vec(any::<u8>(), 0..90),
        ) {
            let list = Separators::decode(&mut Reader::new(&bytes), &shared, &added, |_| ());
            if let Ok(list) = list {
                for i in 0..shared.len().min(added.len()) {
                    prop_assert!(list.is_at_most(i, &list.get(i), 0));
                }
            }
        }
    }
}
