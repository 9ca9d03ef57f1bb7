//! Training while reading: a model over the separators of a binary-search index that is in memory
//! already. It narrows the search to a few separators. Its prediction is checked against them, so
//! that a lookup answers what binary search answers, whatever the model is.

use std::ops::Range;

use rhumb_model::{
    Fitter, Segment, StringCode, code,
    codec::Reader,
    search,
    string_code::{Context, Trainer},
};

/// The largest distance of a block from where its segment predicts it, before rounding.
const EPSILON: u64 = 4;
/// A model has at most one segment for this many blocks; a model with more segments is not worth
/// its memory.
const BLOCKS_PER_SEGMENT_MIN: usize = 12;
/// An index of fewer blocks than this is searched as fast without a model.
const BLOCKS_MIN: usize = 64;
/// The number of separators that are fitted between two looks at the clock.
const STEP: usize = 1024;

/// The outcome of training a model while the table is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trained {
    /// The index has a model now.
    Published,
    /// A model within the error bound would have too many segments.
    Refused,
    /// It took too long.
    TimedOut,
    /// Nothing is to be trained: the index has a model, is too small for one, or was tried before.
    NotWanted,
}

/// A model that predicts the block of a key.
#[derive(Debug)]
pub(super) struct Overlay {
    /// The bytes that all separators begin with, except the first separator, which is empty.
    prefix: Box<[u8]>,
    /// The trained code; `None` for plain bytes.
    code: Option<Box<StringCode>>,
    /// The code from which on each segment is used.
    starts: Box<[u64]>,
    segments: Box<[Segment]>,
}

impl Overlay {
    /// Fits a model to sorted separators. The error says why there is none.
    pub(super) fn train<'a>(
        blocks: usize,
        separator: impl Fn(usize) -> &'a [u8],
        is_late: impl Fn() -> bool,
    ) -> Result<Self, Trained> {
        if blocks < BLOCKS_MIN {
            return Err(Trained::NotWanted);
        }
        let (first, last) = (separator(1), separator(blocks - 1));
        let prefix: Box<[u8]> = first[..code::common_prefix_len(first, last)].into();
        // The plain bytes first: they cost nothing. Then the codes that spread the separators more
        // evenly.
        let contexts = [None, Some(Context::Position), Some(Context::Previous)];
        for context in contexts {
            let code = context.and_then(|context| {
                let mut trainer = Trainer::new(context, prefix.len());
                (1..blocks).for_each(|i| trainer.add(separator(i), usize::MAX));
                StringCode::decode(&mut Reader::new(&trainer.encode())).ok().map(Box::new)
            });
            let mut overlay = Self {
                prefix: prefix.clone(),
                code,
                starts: Box::default(),
                segments: Box::default(),
            };
            match overlay.fit(1..blocks, &separator, &is_late) {
                Ok(()) => return Ok(overlay),
                Err(Trained::Refused) => {}
                Err(other) => return Err(other),
            }
        }
        Err(Trained::Refused)
    }

    fn fit<'a>(
        &mut self,
        blocks: Range<usize>,
        separator: &impl Fn(usize) -> &'a [u8],
        is_late: &impl Fn() -> bool,
    ) -> Result<(), Trained> {
        let segments_max = blocks.len() / BLOCKS_PER_SEGMENT_MIN;
        let mut fitter = Fitter::new(EPSILON);
        let (mut starts, mut segments) = (Vec::new(), Vec::new());
        for block in blocks {
            if block % STEP == 0 && is_late() {
                return Err(Trained::TimedOut);
            }
            let x = self.code_of(separator(block));
            if starts.is_empty() || !fitter.add_point(x, block as u64) {
                segments.extend(fitter.segment());
                if segments.len() >= segments_max {
                    return Err(Trained::Refused);
                }
                starts.push(x);
                fitter.clear();
                fitter.add_point(x, block as u64);
            }
        }
        segments.extend(fitter.segment());
        (self.starts, self.segments) = (starts.into(), segments.into());
        Ok(())
    }

    #[inline]
    fn code_of(&self, key: &[u8]) -> u64 {
        match &self.code {
            None => code::code_at(key, self.prefix.len()),
            Some(code) => code.code(key, self.prefix.len()),
        }
    }

    /// The last of `blocks` blocks whose separator is at most `key`; `None` if it is not where the
    /// model predicts it.
    #[inline]
    pub(super) fn locate<'a>(
        &self,
        key: &[u8],
        blocks: usize,
        separator: impl Fn(usize) -> &'a [u8],
    ) -> Option<usize> {
        if !key.starts_with(&self.prefix) {
            return None;
        }
        let code = self.code_of(key);
        let above = search::partition_point(0, self.starts.len(), |i| self.starts[i] <= code);
        let window = self.segments.get(above.saturating_sub(1))?.window(code);
        // Blocks before `lo` begin at or below the key; the block at `hi`, if there is one, begins
        // above it.
        let lo = usize::try_from(window.lo).ok()?.clamp(1, blocks);
        let hi = usize::try_from(window.hi).ok()?.saturating_add(1).clamp(lo, blocks);
        let position = search::partition_point(lo, hi, |i| separator(i) <= key);
        let is_low = position == lo && position > 1 && separator(position - 1) > key;
        let is_high = position == hi && position < blocks && separator(position) <= key;
        (!is_low && !is_high).then_some(position - 1)
    }

    pub(super) fn segment_count(&self) -> usize {
        self.segments.len()
    }

    pub(super) fn resident_bytes(&self) -> usize {
        size_of::<Self>()
            + self.prefix.len()
            + self.code.as_ref().map_or(0, |code| code.resident_bytes())
            + size_of_val(&*self.starts)
            + size_of_val(&*self.segments)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rhumb_model::Line;

    use super::*;

    fn plain(separators: &[Vec<u8>], key: &[u8]) -> usize {
        separators.partition_point(|separator| separator[..] <= *key).saturating_sub(1)
    }

    fn located(overlay: &Overlay, separators: &[Vec<u8>], key: &[u8]) -> Option<usize> {
        overlay.locate(key, separators.len(), |i| &separators[i])
    }

    /// Evenly spaced keys, the first separator empty.
    fn even(blocks: u64) -> Vec<Vec<u8>> {
        let key = |i: u64| format!("key:{:08}", i * 37).into_bytes();
        std::iter::once(vec![]).chain((1..blocks).map(key)).collect()
    }

    #[test]
    fn an_even_model_finds_every_block_without_a_search_of_all() {
        let separators = even(10_000);
        let overlay = Overlay::train(10_000, |i| &separators[i][..], || false).unwrap();
        assert!(overlay.segment_count() * BLOCKS_PER_SEGMENT_MIN <= 10_000);
        for i in 0..400_000_u64 {
            let key = format!("key:{i:08}").into_bytes();
            assert_eq!(located(&overlay, &separators, &key), Some(plain(&separators, &key)));
        }
        assert_eq!(located(&overlay, &separators, b"a"), None);
    }

    #[test]
    fn what_is_not_worth_it_is_refused() {
        let few = even(BLOCKS_MIN as u64 - 1);
        let train = |separators: &[Vec<u8>], is_late: bool| {
            Overlay::train(separators.len(), |i| &separators[i][..], || is_late).map(drop)
        };
        assert_eq!(train(&few, false), Err(Trained::NotWanted));
        assert_eq!(train(&even(5000), true), Err(Trained::TimedOut));
        // Runs of keys that differ only long after the bytes that their codes hold.
        let byte = |run: u64, j: u64| {
            let mixed = (run * 64 + j).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            ((mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 56) as u8
        };
        let key = |i: u64| (0..40).map(|j| byte(i / 10, j)).chain([(i % 10) as u8]).collect();
        let mut wild: Vec<Vec<u8>> = (0..2000).map(key).collect();
        wild.sort();
        wild[0].clear();
        assert_eq!(train(&wild, false), Err(Trained::Refused));
    }

    proptest! {
        /// Damage to a model costs time, and changes no answer.
        #[test]
        fn a_wild_model_never_says_a_wrong_block(
            mut starts in prop::collection::vec(any::<u64>(), 1..20),
            lines in prop::collection::vec(
                (any::<u64>(), any::<i64>(), any::<u32>(), any::<u8>(), any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>()), 0..20,
            ),
            near in any::<bool>(), keys in prop::collection::vec(0u64..4000, 1..50),
        ) {
            starts.sort_unstable();
            let separators = even(100);
            let segment = |(x0, y0, mantissa, shift, below, above, start, end): (u64, i64, u32, u8, u64, u64, u64, u64)| {
                let part = |n: u64| if near { n % 110 } else { n };
                Segment {
                    line: Line { x0, y0: if near { y0 % 110 } else { y0 }, mantissa, shift },
                    below: part(below), above: part(above), start: part(start), end: part(end),
                }
            };
            let overlay = Overlay {
                prefix: b"key:"[..].into(),
                code: None,
                starts: starts.into(),
                segments: lines.into_iter().map(segment).collect(),
            };
            for key in keys {
                let key = format!("key:{key:08}").into_bytes();
                let found = located(&overlay, &separators, &key);
                prop_assert!(found.is_none_or(|found| found == plain(&separators, &key)));
            }
        }
    }
}
