//! Words that may change while they are read, and byte strings among them.

use std::cmp::Ordering as Order;

use crate::primitive::{AtomicU64, Ordering};

/// Memory that is read word by word: shared, or an image of it.
pub(crate) trait Memory {
    /// The word at `index`, in the byte order of the region, little-endian; 0 outside of it.
    fn load(&self, index: usize) -> u64;

    /// Number of words.
    fn words(&self) -> usize;

    /// Copies the words from `first` on. Of those outside of the memory, `out` holds anything.
    fn copy_to(&self, first: usize, out: &mut [[u8; 8]]) {
        for (index, bytes) in out.iter_mut().enumerate() {
            *bytes = self.load(first + index).to_le_bytes();
        }
    }

    /// The byte string at `offset`, a multiple of 8, of `len` bytes; `None` if it reaches out of
    /// the memory or begins within a word.
    #[inline]
    fn bytes(&self, offset: usize, len: usize) -> Option<Bytes<'_, Self>> {
        let is_inside = offset.checked_add(len).is_some_and(|end| end <= self.words() * 8);
        (is_inside && offset.is_multiple_of(8)).then_some(Bytes {
            memory: self,
            word: offset / 8,
            len,
        })
    }
}

impl Memory for [AtomicU64] {
    #[inline]
    fn load(&self, index: usize) -> u64 {
        self.get(index).map_or(0, |word| u64::from_le(word.load(Ordering::Relaxed)))
    }

    #[inline]
    fn words(&self) -> usize {
        self.len()
    }

    #[inline]
    fn copy_to(&self, first: usize, out: &mut [[u8; 8]]) {
        // One check for all of them.
        let words = self.get(first..).unwrap_or_default();
        for (bytes, word) in out.iter_mut().zip(words) {
            *bytes = u64::from_le(word.load(Ordering::Relaxed)).to_le_bytes();
        }
    }
}

impl Memory for [u64] {
    #[inline]
    fn load(&self, index: usize) -> u64 {
        self.get(index).map_or(0, |word| u64::from_le(*word))
    }

    #[inline]
    fn words(&self) -> usize {
        self.len()
    }
}

/// A byte string in memory, which begins with a word.
pub(crate) struct Bytes<'a, M: ?Sized> {
    memory: &'a M,
    word: usize,
    len: usize,
}

impl<M: Memory + ?Sized> Bytes<'_, M> {
    /// Its length.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Copies as many words from its first on as `out` has, which may be more than its own.
    #[inline]
    pub(crate) fn copy_words(&self, out: &mut [[u8; 8]]) {
        self.memory.copy_to(self.word, out);
    }

    /// Appends it to `out`.
    #[inline]
    pub(crate) fn append_to(&self, out: &mut Vec<u8>) {
        let begin = out.len();
        out.resize(begin + self.len, 0);
        let (chunks, rest) = out[begin..].as_chunks_mut::<8>();
        self.memory.copy_to(self.word, chunks);
        let last = self.memory.load(self.word + chunks.len()).to_le_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
    }

    /// Returns true if it is `other`.
    #[inline]
    pub(crate) fn equals(&self, other: &[u8]) -> bool {
        if self.len != other.len() {
            return false;
        }
        let (chunks, rest) = other.as_chunks::<8>();
        for (word, chunk) in (self.word..).zip(chunks) {
            if self.memory.load(word) != u64::from_le_bytes(*chunk) {
                return false;
            }
        }
        let last = self.memory.load(self.word + chunks.len()).to_le_bytes();
        last[..rest.len()] == *rest
    }

    /// Its order against `other`, as byte strings are ordered.
    #[inline]
    pub(crate) fn compare(&self, other: &[u8]) -> Order {
        let (chunks, rest) = other.as_chunks::<8>();
        let mut left = self.len;
        for (word, chunk) in (self.word..).zip(chunks) {
            let mine = self.memory.load(word).to_le_bytes();
            if left < 8 {
                return mine[..left].cmp(&chunk[..]);
            }
            let (a, b) = (u64::from_be_bytes(mine), u64::from_be_bytes(*chunk));
            if a != b {
                return a.cmp(&b);
            }
            left -= 8;
        }
        let mine = self.memory.load(self.word + chunks.len()).to_le_bytes();
        // What is longer than eight bytes more differs from `rest` in its first eight or follows
        // it.
        mine[..left.min(8)].cmp(rest)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(bytes: &[u8]) -> Vec<u64> {
        let mut padded = bytes.to_vec();
        padded.resize(bytes.len().next_multiple_of(8) + 8, 0xaa);
        let (chunks, _) = padded.as_chunks::<8>();
        chunks.iter().map(|chunk| u64::from_ne_bytes(*chunk)).collect()
    }

    fn string() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(vec![0u8, 1, b'a', 0xaa, 0xff]), 0..20)
    }

    proptest! {
        #[test]
        fn compares_and_copies_as_slices_do(a in string(), b in string()) {
            let memory = words(&a);
            let bytes = memory[..].bytes(0, a.len()).unwrap();
            prop_assert_eq!(bytes.compare(&b), a.cmp(&b));
            prop_assert_eq!(bytes.equals(&b), a == b);
            let mut out = vec![7];
            bytes.append_to(&mut out);
            prop_assert_eq!(&out[1..], &a[..]);
        }

        #[test]
        fn nothing_outside_is_read(offset: usize, len: usize) {
            let memory = [1u64, 2];
            if let Some(bytes) = memory[..].bytes(offset, len) {
                prop_assert!(offset.is_multiple_of(8) && offset + len <= 16);
                prop_assert_eq!(bytes.len(), len);
            }
        }
    }
}
