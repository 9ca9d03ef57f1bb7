//! The place, among a run of places, that a word belongs to: by a line, or by the lowest words of
//! the places.
//!
//! Both are monotone, total, and never leave the run, and nothing more is asked of them. The code
//! that places keys and the code that looks them up ask the same address, so a poor address costs
//! time but never gives a wrong answer.

use std::cmp::Ordering as Order;

use rhumb_model::code::code_at;

use crate::simd::{SearchNode, last_of_two_up_to, last_up_to};

/// The word of a byte string among strings that mostly start with `prefix`: the code of what
/// follows the prefix. Strings below all that start with it get the least word, and strings above
/// them the largest.
pub(crate) fn word_behind(prefix: &[u8], key: &[u8]) -> u64 {
    // Most prefixes are short: comparing them takes less time than a call of the library's
    // comparison.
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

/// A line from words to the places `0..places`, in integers: a product of 32 by 32 bits. It is
/// small, because finding a key reads one of many lines, at a random address.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct BucketLine {
    /// Words up to this one are at place 0.
    start: u64,
    /// Places for each unit of distance, scaled to 32 bits.
    slope: u32,
    /// From the highest bit: the last place, in 20 bits; `from`, by which distances are scaled to
    /// 32 bits, in 6; `to`, by which products are scaled to places, in 6.
    scale: u32,
}

/// The most places of a line: the last place is kept in 20 bits of [`BucketLine`].
const LINE_PLACES_MAX: usize = 1 << 20;

impl BucketLine {
    /// The line that divides the words from `start` to `end` evenly among `places` places, of which
    /// there is at least 1. Places beyond 2^20 are not used.
    pub(crate) fn new(start: u64, end: u64, places: usize) -> Self {
        let span = end.saturating_sub(start);
        let from = u32::BITS.saturating_sub(span.leading_zeros());
        Self::of(start, from, places, u128::from(span >> from) + 1)
    }

    /// A line of `places` places for `whole` distances, in units scaled by `from`.
    fn of(start: u64, from: u32, places: usize, whole: u128) -> Self {
        let places = places.clamp(1, LINE_PLACES_MAX) as u128;
        // The slope is below 2^32, and not below 2^30; `whole` is not much above 2^32. So `to` is
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

    /// The line with no more than `places` places, of which there is at least 1.
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

/// The most places that [`descend_2`] tells apart: two levels of eight words each.
pub(crate) const PLACES_2: usize = 64;

/// Padding. Searches are for lower words, so it is never counted.
const PAD: u64 = u64::MAX;

/// The word that is compared: the two largest words are the same place.
#[inline(always)]
pub(crate) fn capped(word: u64) -> u64 {
    word.min(PAD - 1)
}

/// The search nodes of a search among the places whose lowest words are `lowest`, ascending: levels
/// of search nodes, the first search node alone, each word standing for a search node of the level
/// below. The first of `lowest` counts as 0.
pub(crate) fn search_nodes(lowest: &[u64], levels: usize) -> Box<[SearchNode]> {
    let mut nodes = Vec::new();
    for level in (0..levels).rev() {
        let stride = 8_usize.pow(level as u32);
        let len = if level + 1 == levels { 1 } else { lowest.len().div_ceil(stride * 8) };
        // Upper levels are whole, so that the ones below them start at fixed places.
        let len = if level == 0 { len } else { 8_usize.pow((levels - 1 - level) as u32) };
        for node in 0..len {
            let word = |i: usize| match (node * 8 + i) * stride {
                0 => 0,
                place => lowest.get(place).map_or(PAD, |word| capped(*word)),
            };
            nodes.push(SearchNode(std::array::from_fn(word)));
        }
    }
    nodes.into()
}

/// The place of a word among at most [`PLACES_2`].
#[inline(always)]
pub(crate) fn descend_2(nodes: &[SearchNode], word: u64) -> usize {
    let word = capped(word);
    let i = step(nodes, 0, word);
    i * 8 + step(nodes, 1 + i, word)
}

/// Words of the pivot root: two cache lines. Chosen, not measured: with one line a leaf had at most
/// 200 places, with four lines every lookup by pivots would read two lines more.
const PIVOT_ROOT_WORDS: usize = 16;
/// The places of a pivot block after its first, as steps of two bytes: what a cache line has room
/// for beside 16 bytes of head.
const BLOCK_STEPS: usize = 24;
/// The places of a pivot block after its first, if words are kept whole.
const BLOCK_WORDS: usize = BLOCK_STEPS * size_of::<u16>() / size_of::<u64>();
/// Leaves of at most this many places can always be addressed by [`Pivots`].
pub(crate) const PIVOTS_SURE: usize = PIVOT_ROOT_WORDS * (BLOCK_WORDS + 1);
/// The most places that [`Pivots`] tell apart.
pub(crate) const PIVOTS_MAX: usize = PIVOT_ROOT_WORDS * (BLOCK_STEPS + 1);

/// The pivot root of a search: the first words of the pivot blocks, which are read first.
pub(crate) type PivotRoot = [SearchNode; PIVOT_ROOT_WORDS / 8];

/// A run of places, in one cache line: the lowest words of all but the first, as steps of equal
/// width from the pivot block's first word, or whole words if no step width tells them apart.
/// Around a place of their own, a few bits tell as much as whole words; four times as many fit in
/// the processor's caches.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct PivotBlock {
    start: u64,
    /// The place of the pivot block's first, and the number of its places.
    first: u32,
    len: u16,
    /// A step is two to the power of this; [`WHOLE`] if words are kept whole.
    shift: u16,
    /// Ascending; padded with [`STEP_PAD`].
    steps: [u16; BLOCK_STEPS],
}

/// The shift of a pivot block that keeps whole words, not steps.
const WHOLE: u16 = u64::BITS as u16;
/// Searches are for lower steps, so it is never counted.
const STEP_PAD: u16 = u16::MAX;

impl PivotBlock {
    /// A pivot block of the places whose lowest words are `lowest`, ascending; at least one, and no
    /// more than fit.
    fn of_steps(lowest: &[u64], first: usize) -> Self {
        let (start, last) = (capped(lowest[0]), capped(lowest[lowest.len() - 1]));
        let shift = (u64::BITS - (last - start).leading_zeros()).saturating_sub(u16::BITS);
        let mut pivot_block = Self::alone(start, first, lowest.len(), shift as u16);
        for (i, word) in lowest.iter().enumerate().skip(1) {
            pivot_block.steps[i - 1] = pivot_block.step(capped(*word));
        }
        pivot_block
    }

    /// A pivot block like [`PivotBlock::of_steps`], but of few enough places to keep words whole.
    fn of_words(lowest: &[u64], first: usize) -> Self {
        let mut pivot_block = Self::alone(capped(lowest[0]), first, lowest.len(), WHOLE);
        let words = pivot_block.steps.as_chunks_mut().0.iter_mut();
        for (held, word) in words.zip(&lowest[1..]) {
            let word = capped(*word);
            *held = [word as u16, (word >> 16) as u16, (word >> 32) as u16, (word >> 48) as u16];
        }
        pivot_block
    }

    /// A pivot block of `len` places whose steps are not known yet.
    fn alone(start: u64, first: usize, len: usize, shift: u16) -> Self {
        Self { start, first: first as u32, len: len as u16, shift, steps: [STEP_PAD; BLOCK_STEPS] }
    }

    #[inline(always)]
    fn step(&self, word: u64) -> u16 {
        let step = word.saturating_sub(self.start) >> (self.shift & 63);
        step.min(u64::from(STEP_PAD - 1)) as u16
    }

    /// The place of a capped word, counted from the first of the pivot block.
    #[inline(always)]
    fn behind_first(&self, word: u64) -> usize {
        if self.shift == WHOLE {
            return self.behind_first_of_words(word);
        }
        let step = self.step(word);
        let up_to: u16 = self.steps.iter().map(|at| u16::from(*at <= step)).sum();
        usize::from(up_to)
    }

    #[cold]
    fn behind_first_of_words(&self, word: u64) -> usize {
        let whole = |[a, b, c, d]: &[u16; 4]| {
            u64::from(*a) | u64::from(*b) << 16 | u64::from(*c) << 32 | u64::from(*d) << 48
        };
        self.steps.as_chunks().0.iter().filter(|at| whole(at) <= word).count()
    }

    /// The place of the pivot block's first.
    pub(crate) fn first(&self) -> usize {
        self.first as usize
    }

    /// The number of its places.
    pub(crate) fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Returns true if a word, not below the pivot block's first, is in the pivot block's place
    /// `next`, at least 1, or in a later one. False if there is no such place.
    pub(crate) fn is_from(&self, next: usize, word: u64) -> bool {
        let word = capped(word);
        let is_up_to = || match self.shift {
            WHOLE => self.behind_first_of_words(word) >= next,
            _ => self.steps[next - 1] <= self.step(word),
        };
        next < self.len() && is_up_to()
    }

    /// Returns true if all places of the pivot block are distinct.
    pub(crate) fn are_distinct(&self) -> bool {
        let steps = &self.steps[..self.len() - 1];
        steps.first().is_none_or(|step| *step > 0) && steps.is_sorted_by(|a, b| a < b)
    }

    /// The place of a word that is not below the pivot block's first word, and is below the next
    /// pivot block's.
    #[inline(always)]
    pub(crate) fn place(&self, word: u64) -> usize {
        self.first as usize + self.behind_first(capped(word))
    }
}

/// The lowest words of up to [`PIVOTS_MAX`] places: pivot blocks, and in the pivot root the first
/// word of each.
pub(crate) struct Pivots {
    pub(crate) pivot_root: PivotRoot,
    pub(crate) pivot_blocks: Box<[PivotBlock]>,
    pub(crate) places: usize,
}

impl Default for Pivots {
    fn default() -> Self {
        Self { pivot_root: Self::pivot_root(&[]), pivot_blocks: Box::default(), places: 0 }
    }
}

impl Pivots {
    /// Pivots of places whose lowest words are `lowest`, ascending; the first counts as 0. The
    /// bounds may be rounded to steps where `is_good` accepts the pivot block that results. None if
    /// that takes too many pivot blocks, which never happens with [`PIVOTS_SURE`] places or fewer.
    pub(crate) fn new(lowest: &[u64], is_good: impl Fn(&PivotBlock) -> bool) -> Option<Self> {
        let mut pivot_blocks: Vec<PivotBlock> = Vec::with_capacity(PIVOT_ROOT_WORDS);
        let mut at = 0;
        while at < lowest.len() {
            if pivot_blocks.len() == PIVOT_ROOT_WORDS {
                return None;
            }
            let left = &lowest[at..];
            // More places need wider steps: steps that are too wide for some places are so for
            // more.
            let most = left.len().min(BLOCK_STEPS + 1);
            let of_steps = |len: usize| PivotBlock::of_steps(&left[..len], at);
            let (mut few, mut many) = (1, most + 1);
            let mut len = most;
            while few + 1 < many {
                *(if is_good(&of_steps(len)) { &mut few } else { &mut many }) = len;
                len = few.midpoint(many);
            }
            let whole = left.len().min(BLOCK_WORDS + 1);
            let pivot_block =
                if few < whole { PivotBlock::of_words(&left[..whole], at) } else { of_steps(few) };
            at += pivot_block.len();
            pivot_blocks.push(pivot_block);
        }
        let starts: Vec<u64> = pivot_blocks.iter().map(|pivot_block| pivot_block.start).collect();
        Some(Self {
            pivot_root: Self::pivot_root(&starts),
            pivot_blocks: pivot_blocks.into(),
            places: lowest.len(),
        })
    }

    /// Pivots of as many of these places, ascending, as they tell apart; at least one.
    pub(crate) fn about(mut lowest: Vec<u64>) -> Self {
        loop {
            if let Some(pivots) = Self::new(&lowest, PivotBlock::are_distinct) {
                return pivots;
            }
            let mut is_kept = false;
            lowest.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
        }
    }

    /// The first of the pivot blocks' first words counts as 0.
    fn pivot_root(starts: &[u64]) -> PivotRoot {
        let word = |pivot_block: usize| match pivot_block {
            0 => 0,
            _ => starts.get(pivot_block).copied().unwrap_or(PAD),
        };
        std::array::from_fn(|node| SearchNode(std::array::from_fn(|i| word(node * 8 + i))))
    }
}

/// The pivot block of a word, found by the pivot blocks' first words.
#[inline(always)]
pub(crate) fn find_pivot_block(pivot_root: &PivotRoot, word: u64) -> usize {
    last_of_two_up_to(pivot_root, capped(word))
}

#[inline(always)]
fn step(nodes: &[SearchNode], node: usize, word: u64) -> usize {
    let Some(node) = nodes.get(node) else { return 0 };
    // The first word of the first search node is 0, and every other search node was chosen by its
    // first word.
    last_up_to(&node.0, word)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn place(pivots: &Pivots, word: u64) -> usize {
        pivots.pivot_blocks[find_pivot_block(&pivots.pivot_root, word)].place(word)
    }

    proptest! {
        #[test]
        fn lines_are_monotone_and_stay_inside(start: u64, end: u64, places in 1_usize..5000, a: u64, b: u64) {
            let line = BucketLine::new(start, end, places);
            let (a, b) = (a.min(b), a.max(b));
            prop_assert!(line.at(a) <= line.at(b));
            prop_assert!(line.at(u64::MAX) < places);
            prop_assert_eq!(line.at(start), 0);
        }

        #[test]
        fn lines_are_even(start in 0_u64..1 << 62, cell in 1_u64..1 << 40, places in 1_usize..5000) {
            let line = BucketLine::new(start, start + cell * places as u64 - 1, places);
            for place in [0, places / 3, places - 1] {
                let first = start + cell * place as u64;
                prop_assert!(line.at(first).abs_diff(place) <= 1);
                prop_assert!(line.at(first + cell / 2).abs_diff(place) <= 1);
            }
        }

        #[test]
        fn lines_are_scaled_and_cut(start: u64, span: u64, places in 1_usize..5000, more in 1_usize..5000, word: u64) {
            let line = BucketLine::new(start, start.saturating_add(span), places);
            let other = line.scaled(more);
            prop_assert!(other.at(u64::MAX) < more);
            let fraction = line.at(word) as f64 / places as f64;
            let error = (other.at(word) as f64 - fraction * more as f64).abs();
            prop_assert!(error <= 1.0 + more as f64 / places as f64 * 1.01, "{}", error);
            prop_assert_eq!(line.within(more).at(word), line.at(word).min(more - 1));
        }

        #[test]
        fn search_nodes_find_the_place(
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
                prop_assert_eq!(descend_2(&search_nodes(few, 2), word), place(PLACES_2), "{}", word);
            }
        }

        #[test]
        fn pivots_find_the_place(
            lowest in prop::collection::btree_set(any::<u64>(), 1..PIVOTS_SURE),
            narrow in 0_u32..64,
            wide in 1_usize..8,
            more: u64,
        ) {
            // Runs in which some words are far from each other, and some near.
            let far = |(i, word): (usize, &u64)| if i % wide == 0 { *word } else { *word >> narrow };
            let mut lowest: Vec<u64> = lowest.iter().enumerate().map(far).collect();
            lowest.push(0);
            lowest.sort_unstable();
            lowest.dedup_by_key(|word| capped(*word));
            let is_exact = |pivot_block: &PivotBlock| pivot_block.shift == 0;
            let pivots = Pivots::new(&lowest, is_exact).expect("there are few");
            let loose = Pivots::new(&lowest, |_| true).expect("there are few");
            let near = |w: &u64| [*w, w.saturating_sub(1), w.saturating_add(1)];
            let mut words: Vec<u64> = lowest.iter().flat_map(near).chain([more, u64::MAX]).collect();
            words.sort_unstable();
            let mut before = 0;
            for word in words {
                let expected = lowest.partition_point(|l| *l <= capped(word)) - 1;
                prop_assert_eq!(place(&pivots, word), expected, "{}", word);
                let about = place(&loose, word);
                prop_assert!(before <= about && about < lowest.len(), "{}", word);
                before = about;
            }
        }

        #[test]
        fn pivots_about_words_keep_their_order(
            lowest in prop::collection::vec(any::<u64>(), 1..600), narrow in 0_u32..64, more: u64,
        ) {
            // Among them are words that tie, or that start far from 0.
            let mut lowest: Vec<u64> = lowest.into_iter().map(|word| word >> narrow).collect();
            lowest.sort_unstable();
            let pivots = Pivots::about(lowest.clone());
            prop_assert!(pivots.places > lowest.len().min(PIVOTS_SURE) / 2);
            let mut words: Vec<u64> = lowest.iter().flat_map(|w| [w.saturating_sub(1), *w]).collect();
            words.extend([0, more, u64::MAX - 1, u64::MAX]);
            words.sort_unstable();
            let places: Vec<usize> = words.iter().map(|word| place(&pivots, *word)).collect();
            prop_assert!(places.is_sorted() && places.iter().all(|place| *place < pivots.places));
        }

        #[test]
        fn nearly_even_places_take_steps(start in 0_u64..1 << 60, gap in 1_u64..1 << 50, places in 1..PIVOTS_MAX) {
            let lowest: Vec<u64> = (0..places as u64).map(|i| start + i * gap + i % 3 * (gap / 4)).collect();
            let pivots = Pivots::new(&lowest, PivotBlock::are_distinct).expect("steps are enough");
            prop_assert_eq!(pivots.pivot_blocks.len(), places.div_ceil(BLOCK_STEPS + 1));
            for (expected, word) in lowest.iter().enumerate() {
                prop_assert_eq!(place(&pivots, *word), expected);
            }
        }
    }
}
