//! The two stages: a line that picks a sub-model, and sub-models that predict positions in leaves.
//!
//! A *code* is a key as a number that keeps the order. The top model's line maps it to a *spot*:
//! the number of a sub-model and a fraction within it, which that sub-model maps to a position. A
//! sub-model numbers its own leaves from 0; position `p` is pair `p % SLOTS` of leaf `p / SLOTS`.
//!
//! All arithmetic is total and monotone in the key, whatever the numbers are.

use std::ops::RangeInclusive;

use rhumb_model::{Line, code::code_at};

use super::layout::{PREFIX_BYTES_MAX, SLOTS, SUB_MODEL_BYTES, append_bytes, word_of, words_of};

/// The first stage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Top {
    /// Which complete training it is of.
    pub(crate) epoch: u32,
    /// Number of sub-models, at least 1.
    pub(crate) models: u32,
    /// First line of the sub-models in the control part.
    pub(crate) first_line: u32,
    /// From codes to spots, of which the fraction has 32 bits.
    pub(crate) line: Line,
    /// What the trained keys begin with.
    pub(crate) prefix: Vec<u8>,
}

/// Where the top model sends a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TopSpot {
    pub(super) index: u32,
    pub(super) fraction: u32,
}

impl Top {
    /// Least squares over a sample of codes and their ranks, from 0 to 1.
    pub(super) fn fit(prefix: Vec<u8>, models: u32, sample: &[(u64, f64)]) -> Self {
        let models = models.max(1);
        let mut top = Self { models, prefix, ..Self::default() };
        let Some(&(x0, _)) = sample.first() else { return top };
        let points = sample.iter().map(|(code, rank)| (code.saturating_sub(x0) as f64, *rank));
        let (slope, base) = within_ends(least_squares(points.clone()), points);
        let scale = f64::from(models) * 32f64.exp2();
        let (mantissa, shift) = Line::quantise_slope(slope * scale, 32);
        top.line = Line { x0, y0: (base * scale) as i64, mantissa, shift };
        top
    }

    /// The number of a key: 0 for keys below all that begin with the prefix, the largest for those
    /// above.
    pub(super) fn code(&self, key: &[u8]) -> u64 {
        let begins = &key[..key.len().min(self.prefix.len())];
        match begins.cmp(&self.prefix[..]) {
            std::cmp::Ordering::Less => 0,
            std::cmp::Ordering::Equal => code_at(key, self.prefix.len()),
            std::cmp::Ordering::Greater => u64::MAX,
        }
    }

    /// The largest code that a key below `fence` may have.
    pub(super) fn code_below(&self, fence: &[u8]) -> u64 {
        let code = self.code(fence);
        let rest = fence.strip_prefix(&self.prefix[..]);
        // A longer fence, or one that ends in the code's padding, has keys of its code below it.
        let is_whole = rest.is_some_and(|rest| rest.len() <= 8 && rest.last() != Some(&0));
        if is_whole { code.saturating_sub(1) } else { code }
    }

    /// Where a code belongs.
    pub(super) fn spot(&self, code: u64) -> TopSpot {
        let last = (u64::from(self.models.max(1)) << 32) - 1;
        let height = self.line.at(code).min(last);
        TopSpot { index: (height >> 32) as u32, fraction: height as u32 }
    }

    /// The codes of a sub-model; `None` if no code has it.
    pub(super) fn codes_of(&self, index: u32) -> Option<RangeInclusive<u64>> {
        let first = self.first_code(index)?;
        let end = if index == u32::MAX { None } else { self.first_code(index + 1) };
        let last = end.map_or(Some(u64::MAX), |end| end.checked_sub(1))?;
        (first <= last).then_some(first..=last)
    }

    /// The smallest code of a sub-model or a later one.
    fn first_code(&self, index: u32) -> Option<u64> {
        let (mut low, mut high) = (0, u64::MAX);
        if self.spot(high).index < index {
            return None;
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if self.spot(middle).index < index {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Some(low)
    }

    /// The smallest key that begins with the prefix and has this code.
    pub(super) fn key_of(&self, code: u64) -> Vec<u8> {
        let mut key = self.prefix.clone();
        let bytes = code.to_be_bytes();
        let len = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        key.extend_from_slice(&bytes[..len]);
        key
    }

    /// The words in the control part, after the guard.
    pub(super) fn to_words(&self) -> Vec<u64> {
        let mut words = vec![
            u64::from(self.epoch) | u64::from(self.models) << 32,
            u64::from(self.first_line) | (self.prefix.len() as u64) << 32,
            self.line.x0,
            self.line.y0 as u64,
            u64::from(self.line.mantissa) | u64::from(self.line.shift) << 32,
            0,
            0,
        ];
        words.extend(self.prefix.chunks(8).map(word_of));
        words
    }

    /// The top model in words that follow its guard.
    pub(super) fn from_words(words: &[u64]) -> Option<Self> {
        let (&[numbers, first_line, x0, y0, slope, _, _], rest) = words.split_first_chunk::<7>()?;
        let mut prefix = Vec::new();
        let len = ((first_line >> 32) as usize).min(PREFIX_BYTES_MAX);
        let models = (numbers >> 32) as u32;
        let shift = (slope >> 32) as u8;
        if models == 0 || shift > Line::SHIFT_MAX || words_of(len) > rest.len() {
            return None;
        }
        append_bytes(rest, len, &mut prefix);
        let line = Line { x0, y0: y0 as i64, mantissa: slope as u32, shift };
        Some(Self { epoch: numbers as u32, models, first_line: first_line as u32, line, prefix })
    }
}

/// The leaves that a sub-model predicts for a key, by its own numbers, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leaves {
    pub(super) first: u32,
    pub(super) last: u32,
    /// The leaf of the prediction itself.
    pub(super) likely: u32,
}

/// A line of the second stage.
///
/// **Guarantee.** Unless an error is `u8::MAX`, the window of every key contains the leaf between
/// whose fences the key was when the sub-model was trained.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct SubModel {
    slope: f32,
    base: f32,
    /// How far a position may lie below the prediction.
    below: u8,
    /// How far a position may lie above the prediction.
    above: u8,
    /// Number of leaves, which is the length of the table.
    pub(crate) leaves: u32,
}

impl SubModel {
    /// The position that is predicted, within the leaves.
    fn predict(&self, fraction: u32) -> u64 {
        let x = f64::from(fraction) * (-32f64).exp2();
        let position = f64::from(self.slope) * x + f64::from(self.base);
        // What is no number, or negative, becomes 0.
        (position as u64).min((u64::from(self.leaves) * SLOTS as u64).saturating_sub(1))
    }

    /// The leaves that may hold a key; `None` if there are no leaves.
    pub(super) fn window(&self, fraction: u32) -> Option<Leaves> {
        let last = u64::from(self.leaves.checked_sub(1)?);
        let position = self.predict(fraction);
        let leaf = |position: u64| (position / SLOTS as u64).min(last) as u32;
        Some(Leaves {
            first: leaf(position.saturating_sub(u64::from(self.below))),
            last: leaf(position + u64::from(self.above)),
            likely: leaf(position),
        })
    }

    /// Fits a line to keys (fraction and position), and its errors to keys and borders (fraction
    /// and leaf): a border is the lowest or the highest key that a leaf may hold. Returns also the
    /// sum of the errors of all keys.
    pub(super) fn fit(leaves: u32, keys: &[(u32, u32)], borders: &[(u32, u32)]) -> (Self, u64) {
        let x = |fraction: u32| f64::from(fraction) * (-32f64).exp2();
        let (slope, base) = if keys.len() > 1 {
            least_squares(
                keys.iter().map(|(fraction, position)| (x(*fraction), f64::from(*position))),
            )
        } else {
            let position = |leaf: u32| f64::from(leaf) * SLOTS as f64;
            least_squares(borders.iter().map(|(fraction, leaf)| (x(*fraction), position(*leaf))))
        };
        let mut model = Self { slope: slope as f32, base: base as f32, below: 0, above: 0, leaves };
        let (mut below, mut above, mut sum) = (0, 0, 0);
        for (fraction, position) in keys {
            let (predicted, position) = (model.predict(*fraction), u64::from(*position));
            below = below.max(predicted.saturating_sub(position));
            above = above.max(position.saturating_sub(predicted));
            sum += predicted.abs_diff(position);
        }
        for (fraction, leaf) in borders {
            // Any position in the leaf will do.
            let (predicted, first) = (model.predict(*fraction), u64::from(*leaf) * SLOTS as u64);
            below = below.max(predicted.saturating_sub(first + SLOTS as u64 - 1));
            above = above.max(first.saturating_sub(predicted));
        }
        model.below = below.min(u64::from(u8::MAX)) as u8;
        model.above = above.min(u64::from(u8::MAX)) as u8;
        (model, sum)
    }

    /// The 14 bytes of messages.
    pub(super) fn to_bytes(self) -> [u8; SUB_MODEL_BYTES] {
        let mut bytes = [0; SUB_MODEL_BYTES];
        bytes[..4].copy_from_slice(&self.slope.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.base.to_le_bytes());
        bytes[8..10].copy_from_slice(&[self.below, self.above]);
        bytes[10..].copy_from_slice(&self.leaves.to_le_bytes());
        bytes
    }

    /// The sub-model in those bytes, whatever they are.
    pub(super) fn from_bytes(bytes: &[u8; SUB_MODEL_BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, below, above, i, j, k, l] = *bytes;
        Self {
            slope: f32::from_le_bytes([a, b, c, d]),
            base: f32::from_le_bytes([e, f, g, h]),
            below,
            above,
            leaves: u32::from_le_bytes([i, j, k, l]),
        }
    }

    /// Two words in the control part.
    pub(super) fn to_words(self) -> [u64; 2] {
        let bits = |number: f32| u64::from(number.to_bits());
        let errors = u64::from(self.below) | u64::from(self.above) << 8;
        [bits(self.slope) | bits(self.base) << 32, errors | u64::from(self.leaves) << 32]
    }

    /// The sub-model in two words, whatever they are.
    pub(super) fn from_words([line, rest]: [u64; 2]) -> Self {
        Self {
            slope: f32::from_bits(line as u32),
            base: f32::from_bits((line >> 32) as u32),
            below: rest as u8,
            above: (rest >> 8) as u8,
            leaves: (rest >> 32) as u32,
        }
    }
}

/// Slope (not negative) and base of the line of least squares.
fn least_squares(points: impl Iterator<Item = (f64, f64)> + Clone) -> (f64, f64) {
    let (count, x, y) =
        points.clone().fold((0.0, 0.0, 0.0), |(n, sx, sy), (x, y)| (n + 1.0, sx + x, sy + y));
    if count == 0.0 {
        return (0.0, 0.0);
    }
    let (x, y) = (x / count, y / count);
    let (above, below) = points.fold((0.0, 0.0), |(above, below), (a, b)| {
        (above + (a - x) * (b - y), below + (a - x) * (a - x))
    });
    let slope = if below > 0.0 { (above / below).max(0.0) } else { 0.0 };
    (slope, y - slope * x)
}

/// How far a line may leave the ranks from 0 to 1 at its ends to be drawn into them. Lines of keys
/// with far outliers leave them by more, and would be flat if they were.
const DRAWN_IN: f64 = 1.0 / 16.0;

/// A slope and base whose line has the ranks from 0 to 1 at the ends of points: keys beyond would
/// all be of one position.
fn within_ends((slope, base): (f64, f64), points: impl Iterator<Item = (f64, f64)>) -> (f64, f64) {
    let length = points.map(|(x, _)| x).fold(0.0, f64::max);
    let (low, high) = (base, base + slope * length);
    if length <= 0.0 || low < -DRAWN_IN || high > 1.0 + DRAWN_IN {
        return (slope, base);
    }
    let (low, high) = (low.max(0.0), high.min(1.0));
    (((high - low) / length).max(0.0), low)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(vec![0u8, 1, b'a', 0xff]), 0..14)
    }

    #[test]
    fn golden_bytes() {
        let model = SubModel { slope: 1.0, base: -2.0, below: 3, above: 4, leaves: 5 };
        let bytes = [0, 0, 128, 63, 0, 0, 0, 192, 3, 4, 5, 0, 0, 0];
        assert_eq!(model.to_bytes(), bytes);
        assert_eq!(SubModel::from_bytes(&bytes), model);
    }

    proptest! {
        #[test]
        fn anything_is_monotone_and_total(
            bytes: [u8; 14], x0: u64, y0: i64, mantissa: u32, shift in 0u8..=Line::SHIFT_MAX,
            models in 1u32.., prefix in key(), a in key(), b in key(),
        ) {
            let top =
                Top { epoch: 1, models, first_line: 2, line: Line { x0, y0, mantissa, shift }, prefix };
            prop_assert_eq!(Top::from_words(&top.to_words()), Some(top.clone()));
            let (a, b) = (a.clone().min(b.clone()), a.max(b));
            prop_assert!(top.code(&a) <= top.code(&b));
            prop_assert!(a == b || top.code(&a) <= top.code_below(&b));
            let (left, right) = (top.spot(top.code(&a)), top.spot(top.code(&b)));
            prop_assert!((left.index, left.fraction) <= (right.index, right.fraction));
            prop_assert!(top.codes_of(left.index).unwrap().contains(&top.code(&a)));
            prop_assert!(top.key_of(top.code(&a)) <= a || !a.starts_with(&top.prefix));
            let model = SubModel::from_bytes(&bytes);
            let window = model.window(left.fraction);
            prop_assert!(window.is_none_or(|window| window.first <= window.last));
            let words = SubModel::from_words(model.to_words());
            prop_assert_eq!(words.to_bytes(), model.to_bytes());
        }

        #[test]
        fn windows_contain_leaves(
            codes in prop::collection::btree_set(any::<u64>(), 1..300), models in 1u32..9,
        ) {
            let sorted: Vec<u64> = codes.into_iter().collect();
            let sample: Vec<_> = sorted.iter().enumerate()
                .map(|(rank, code)| (*code, rank as f64 / sorted.len() as f64)).collect();
            let top = Top::fit(Vec::new(), models, &sample);
            let mut seen = Vec::new();
            for index in 0..models {
                seen.extend(top.codes_of(index).map(|codes| (*codes.start(), *codes.end())));
            }
            prop_assert_eq!((seen[0].0, seen[seen.len() - 1].1), (0, u64::MAX));
            prop_assert!(seen.windows(2).all(|pair| pair[0].1 + 1 == pair[1].0));
            let (mut keys, mut borders) = (Vec::new(), Vec::new());
            for (leaf, chunk) in (0..).zip(sorted.chunks(11)) {
                let fraction = |code: &u64| (code >> 32) as u32;
                keys.extend(chunk.iter().zip(leaf * 16..).map(|(code, at)| (fraction(code), at)));
                borders.push((fraction(&chunk[0]), leaf));
                borders.push((fraction(&chunk[chunk.len() - 1]), leaf));
            }
            let (model, _) = SubModel::fit(sorted.len().div_ceil(11) as u32, &keys, &borders);
            if model.below < u8::MAX && model.above < u8::MAX {
                for (fraction, leaf) in borders {
                    let window = model.window(fraction).unwrap();
                    prop_assert!(window.first <= leaf && leaf <= window.last);
                }
            }
        }
    }
}
