//! Entry points for fuzzing: bytes in, and a panic where a promise is broken. Only with the feature
//! `fuzzing`; `fuzz/` and the tests here call them, nothing else.
//!
//! A client takes a region for hostile: whatever is in it, reads do not panic, end, and take memory
//! in proportion to what is there. Where only the directory or models are damaged, and the leaves
//! are those of a sorted map, answers are the map's. The region's header carries a checksum, which
//! is always made right. Messages that decode have one encoding. A host that was sent anything goes
//! on to serve others.

mod arrays;
#[cfg(target_os = "linux")]
mod conversations;
mod messages;
mod models;
mod region;
mod seeds;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::primitive::{AtomicU64, Ordering};

pub use arrays::arrays;
#[cfg(target_os = "linux")]
pub use conversations::{client, host};
pub use messages::messages;
pub use models::models;
pub use region::region;
pub use seeds::seeds;

/// An entry point: it returns, or it has found a fault.
pub type Target = fn(&[u8]);

/// The entry points of this crate, by the names of their fuzz targets.
pub const TARGETS: &[(&str, Target)] = &[
    ("remote_region", region),
    ("remote_models", models),
    ("remote_arrays", arrays),
    ("remote_messages", messages),
    #[cfg(target_os = "linux")]
    ("remote_host", host),
    #[cfg(target_os = "linux")]
    ("remote_client", client),
];

/// Damaged words of one input: a few are as good as many.
const DAMAGES_MAX: usize = 64;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Takes a fuzzer's bytes apart. Where they end, numbers are 0 and strings are empty, so that any
/// bytes mean something.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn number(&mut self, bytes: usize) -> u64 {
        self.take(bytes).iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Damages words by what is left of the input: for each, how (1 byte), which (3 bytes) and by
    /// what (8 bytes). Most are words that are in use: most of a region is not.
    fn damage(&mut self, words: &[AtomicU64]) {
        let is_used = |word: &&AtomicU64| word.load(Ordering::Relaxed) != 0;
        let used: Vec<&AtomicU64> = words.iter().filter(is_used).collect();
        for _ in 0..DAMAGES_MAX {
            if self.is_empty() || words.is_empty() {
                return;
            }
            let (how, at, by) = (self.number(1), self.number(3) as usize, self.number(8));
            let word = match used.get(at % used.len().max(1)) {
                Some(used) if how < 200 => used,
                _ => &words[at % words.len()],
            };
            let old = word.load(Ordering::Relaxed);
            let new = match how % 5 {
                0 => by,
                1 => old ^ 1 << (by % 64),
                2 => old.wrapping_add(by),
                // Halves are counts, lengths and places.
                3 => old & !0xffff_ffff | by & 0xffff_ffff,
                _ => words[by as usize % words.len()].load(Ordering::Relaxed),
            };
            word.store(new, Ordering::Relaxed);
        }
    }
}

/// A copy of words, to be damaged.
fn copied(words: &[u64]) -> Vec<AtomicU64> {
    words.iter().copied().map(AtomicU64::new).collect()
}

/// The words of a space up to the last one that is not 0, and some more.
fn used(words: &[AtomicU64]) -> Vec<u64> {
    let end = words.iter().rposition(|word| word.load(Ordering::Relaxed) != 0);
    let end = end.map_or(0, |last| (last + 1).next_multiple_of(4096)).min(words.len());
    words[..end].iter().map(|word| word.load(Ordering::Relaxed)).collect()
}

/// Numbers and texts, as keys of several shapes with values of several lengths.
fn sample() -> Map {
    let number = |n: u64| ((n << 34).to_be_bytes().to_vec(), vec![n as u8; n as usize % 40]);
    let text = |n: u64| {
        (format!("a longer prefix/{:04}", n * 7).into_bytes(), n.to_le_bytes()[..5].to_vec())
    };
    (0..240).map(number).chain((0..160).map(text)).collect()
}

/// Some keys of a map, and keys beside them.
fn probes(map: &Map) -> Vec<Vec<u8>> {
    let beside = |key: &Vec<u8>| [key.clone(), [&key[..], b"\0"].concat()];
    map.keys().step_by(11).flat_map(beside).chain([vec![], vec![0xff; 40]]).collect()
}
