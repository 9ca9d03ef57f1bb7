//! Which of a run of places a word belongs to: a line, or the lowest words of the places.
//!
//! Both are monotone, total, and never leave the run, and nothing more is asked of them: whoever
//! places keys and whoever looks them up ask the same address, so that a poor one costs time and
//! never an answer.

use std::cmp::Ordering as Order;

use rhumb_model::code::code_at;

use super::raw::simd::{Rung, last_of_four_up_to, last_of_two_up_to, last_up_to};

/// The word of a byte string among strings that mostly start with `prefix`: the code of what follows
/// it; the least or largest word for strings below and above all that start with it.
pub(crate) fn word_behind(prefix: &[u8], key: &[u8]) -> u64 {
    // Most prefixes are shorter than a call of the library's comparison takes.
    let len = prefix.len();
    if len <= size_of::<u64>() {
        let unused = 8 * (size_of::<u64>() - len) as u32;
        let leading = |code: u64| code.checked_shr(unused).unwrap_or(0);
        match leading(code_at(key, 0)).cmp(&leading(code_at(prefix, 0))) {
            // A shorter key reads like one that goes on with zeroes.
            Order::Equal if key.len() >= len => return code_at(key, len),
            Order::Equal | Order::Less => return 0,
            Order::Greater => return u64::MAX,
        }
    }
    match key[..key.len().min(len)].cmp(prefix) {
        Order::Less => 0,
        Order::Equal => code_at(key, len),
        Order::Greater => u64::MAX,
    }
}

/// A line from words to the places `0..places`, in integers: a product of 32 by 32 bits. Small, because
/// finding a key reads one line of many, at a random place.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Line {
    /// Words up to this one are at place 0.
    start: u64,
    /// Places for each unit of distance, scaled to 32 bits.
    slope: u32,
    /// From the highest bit: the last place, in 20 bits; `from`, by which distances are scaled to 32
    /// bits, in 6; `to`, by which products are scaled to places, in 6.
    scale: u32,
}

/// The most places of a line.
const LINE_PLACES_MAX: usize = 1 << 20;

impl Line {
    /// The line that divides the words from `start` to `end` evenly among `places` places, of
    /// which there are at least 1; those beyond 2^20 are not used.
    pub(crate) fn new(start: u64, end: u64, places: usize) -> Self {
        let span = end.saturating_sub(start);
        let from = u32::BITS.saturating_sub(span.leading_zeros());
        Self::of(start, from, places, u128::from(span >> from) + 1)
    }

    /// `whole` distances, of those that are scaled by `from`, divided among the places.
    fn of(start: u64, from: u32, places: usize, whole: u128) -> Self {
        let places = places.clamp(1, LINE_PLACES_MAX) as u128;
        // The slope is below 2^32, and not below 2^30; `whole` is not much above 2^32, so that this is
        // at most 63.
        let to = 31 + whole.ilog2() - places.ilog2();
        let scale = (places as u32 - 1) << 12 | from << 6 | to;
        Self { start, slope: ((places << to) / whole) as u32, scale }
    }

    /// The line that divides the same words among another number of places.
    pub(crate) fn scaled(&self, places: usize) -> Self {
        let whole =
            ((self.last() as u128 + 1) << (self.scale & 63)) / u128::from(self.slope.max(1));
        Self::of(self.start, self.scale >> 6 & 63, places, whole.max(1))
    }

    /// The line with no more than so many places, of which there is at least 1.
    pub(crate) fn within(self, places: usize) -> Self {
        let last = self.last().min(places.saturating_sub(1));
        Self { scale: (last as u32) << 12 | self.scale & 0xfff, ..self }
    }

    /// The last place.
    #[inline(always)]
    fn last(&self) -> usize {
        (self.scale >> 12) as usize
    }

    /// The place of a word, at most the last.
    #[inline(always)]
    pub(crate) fn at(&self, word: u64) -> usize {
        let distance = word.saturating_sub(self.start) >> (self.scale >> 6 & 63);
        // Both are below 2^32.
        let product = distance.min(u64::from(u32::MAX)) * u64::from(self.slope);
        ((product >> (self.scale & 63)) as usize).min(self.last())
    }
}

/// The most places that [`descend_2`] tells apart.
pub(crate) const PLACES_2: usize = 64;

/// Padding; searches are for lower words, so that it is never counted.
const PAD: u64 = u64::MAX;

/// The word that is compared: the two largest words are the same place.
#[inline(always)]
pub(crate) fn capped(word: u64) -> u64 {
    word.min(PAD - 1)
}

/// The rungs of a search among the places whose lowest words are `lowest`, ascending: levels of
/// rungs, the first rung alone, each word standing for a rung of the level below. The first of
/// `lowest` counts as 0.
pub(crate) fn rungs(lowest: &[u64], levels: usize) -> Box<[Rung]> {
    let mut rungs = Vec::new();
    for level in (0..levels).rev() {
        let stride = 8_usize.pow(level as u32);
        let len = if level + 1 == levels { 1 } else { lowest.len().div_ceil(stride * 8) };
        // Upper levels are whole, so that the ones below them start at fixed places.
        let len = if level == 0 { len } else { 8_usize.pow((levels - 1 - level) as u32) };
        for rung in 0..len {
            let word = |i: usize| match (rung * 8 + i) * stride {
                0 => 0,
                place => lowest.get(place).map_or(PAD, |word| capped(*word)),
            };
            rungs.push(Rung(std::array::from_fn(word)));
        }
    }
    rungs.into()
}

/// The place of a word among at most [`PLACES_2`].
#[inline(always)]
pub(crate) fn descend_2(rungs: &[Rung], word: u64) -> usize {
    let word = capped(word);
    let i = step(rungs, 0, word);
    i * 8 + step(rungs, 1 + i, word)
}

/// Words of a block.
const BLOCK_WORDS: usize = 32;
/// Words of the top.
const TOP_WORDS: usize = 16;
/// The most places that [`Pivots`] tell apart.
pub(crate) const PIVOTS_MAX: usize = TOP_WORDS * BLOCK_WORDS;

/// What is read first.
pub(crate) type Top = [Rung; TOP_WORDS / 8];
/// What is read then, all of it at once.
pub(crate) type Block = [Rung; BLOCK_WORDS / 8];

/// The lowest words of up to [`PIVOTS_MAX`] places: blocks, and in the top the first word of each.
pub(crate) struct Pivots {
    pub(crate) top: Top,
    pub(crate) blocks: Box<[Block]>,
}

impl Default for Pivots {
    fn default() -> Self {
        Self::new(&[])
    }
}

impl Pivots {
    /// `lowest` ascends; its first word counts as 0.
    pub(crate) fn new(lowest: &[u64]) -> Self {
        let word = |place: usize| match place {
            0 => 0,
            _ => lowest.get(place).map_or(PAD, |word| capped(*word)),
        };
        let rung = |start: usize, stride| Rung(std::array::from_fn(|i| word(start + i * stride)));
        let top = std::array::from_fn(|i| rung(i * 8 * BLOCK_WORDS, BLOCK_WORDS));
        let blocks = (0..lowest.len().div_ceil(BLOCK_WORDS))
            .map(|block| std::array::from_fn(|i| rung(block * BLOCK_WORDS + i * 8, 1)))
            .collect();
        Self { top, blocks }
    }
}

/// The place of a word among pivots.
#[inline(always)]
pub(crate) fn find_pivot(top: &Top, blocks: &[Block], word: u64) -> usize {
    let word = capped(word);
    let at = last_of_two_up_to(top, word);
    let Some(block) = blocks.get(at) else { return 0 };
    // The first word of the first block is 0, and every other block was chosen by its first word.
    at * BLOCK_WORDS + last_of_four_up_to(block, word)
}

#[inline(always)]
fn step(rungs: &[Rung], rung: usize, word: u64) -> usize {
    let Some(rung) = rungs.get(rung) else { return 0 };
    // The first word of the first rung is 0, and every other rung was chosen by its first word.
    last_up_to(&rung.0, word)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lines_are_monotone_and_stay_inside(start: u64, end: u64, places in 1_usize..5000, a: u64, b: u64) {
            let line = Line::new(start, end, places);
            let (a, b) = (a.min(b), a.max(b));
            prop_assert!(line.at(a) <= line.at(b));
            prop_assert!(line.at(u64::MAX) < places);
            prop_assert_eq!(line.at(start), 0);
        }

        #[test]
        fn lines_are_even(start in 0_u64..1 << 62, cell in 1_u64..1 << 40, places in 1_usize..5000) {
            let line = Line::new(start, start + cell * places as u64 - 1, places);
            for place in [0, places / 3, places - 1] {
                let first = start + cell * place as u64;
                prop_assert!(line.at(first).abs_diff(place) <= 1);
                prop_assert!(line.at(first + cell / 2).abs_diff(place) <= 1);
            }
        }

        #[test]
        fn lines_are_scaled_and_cut(start: u64, span: u64, places in 1_usize..5000, more in 1_usize..5000, word: u64) {
            let line = Line::new(start, start.saturating_add(span), places);
            let other = line.scaled(more);
            prop_assert!(other.at(u64::MAX) < more);
            let fraction = line.at(word) as f64 / places as f64;
            let error = (other.at(word) as f64 - fraction * more as f64).abs();
            prop_assert!(error <= 1.0 + more as f64 / places as f64 * 1.01, "{}", error);
            prop_assert_eq!(line.within(more).at(word), line.at(word).min(more - 1));
        }

        #[test]
        fn rungs_find_the_place(
            mut lowest in prop::collection::btree_set(any::<u64>(), 1..600), more: u64,
        ) {
            lowest.remove(&u64::MAX);
            lowest.remove(&(u64::MAX - 1));
            lowest.insert(0);
            let lowest: Vec<u64> = lowest.into_iter().collect();
            let near = |w: &u64| [*w, w.saturating_sub(1), w + 1];
            for word in lowest.iter().flat_map(near).chain([more, u64::MAX]) {
                let place = |most: usize| {
                    lowest[..lowest.len().min(most)].partition_point(|l| *l <= word) - 1
                };
                let few = &lowest[..lowest.len().min(PLACES_2)];
                prop_assert_eq!(descend_2(&rungs(few, 2), word), place(PLACES_2), "{}", word);
                let some = &lowest[..lowest.len().min(PIVOTS_MAX)];
                let Pivots { top, blocks } = Pivots::new(some);
                prop_assert_eq!(find_pivot(&top, &blocks, word), place(PIVOTS_MAX), "{}", word);
            }
        }
    }
}
