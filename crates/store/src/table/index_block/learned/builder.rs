//! Training while writing: cuts the run of undecided keys into segments, places their entries in
//! blocks, and stores the lines that it used.
//!
//! Invariant: the cuts that are emitted are what [`Placement`] answers for each key. The placement
//! is simulated with the very integers that go into the file, so no rounding can break this.

use rhumb_model::{Line, code, codec, search};
use rhumb_sync::mapping::Gauge;

use super::{
    ADDED, BEYOND, BLOCKS, CODE, FIELDS, FIELDS_CODED, GROUP, LINE, MANTISSA, SHARED, SHIFT, Y0,
    Y0_MAX, Y0_UNITS,
    choice::Codes,
    placement::{BLOCK_UNITS, Placement},
    run::KeyRun,
    separators::SeparatorsBuilder,
};
use crate::table::index_block::{CODED, LEARNED, PAGE_BYTES, StringCoding, starts::StartsBuilder};

/// The fit's error bound, in quarters of a block.
const EPSILON_QUARTERS: u64 = 3;
/// A block holds at most this many times the bytes aimed at, unless it holds only one key. An entry
/// larger than a block counts as one block.
pub(in crate::table::index_block) const BLOCK_COST_FACTOR_MAX: u64 = 3;
/// A segment is closed once it has this many bytes of entries, to bound what is buffered.
const SEGMENT_COST_MAX: u64 = 4 << 20;
/// A segment is closed once its keys take this many bytes.
const SEGMENT_KEY_BYTES_MAX: usize = 8 << 20;
/// About the number of bytes that a segment takes besides its separator.
const SEGMENT_BYTES: u64 = 6;
/// The distances by which lines are moved up and down, in 1/8 of a block, in search of more even
/// blocks.
const MOVES: [f64; 5] = [0.0, -1.0, 1.0, -2.0, 2.0];
/// How far from a whole block a line may start before the separator is lengthened for it.
const START_UNITS_MAX: f64 = 2.0 * BLOCK_UNITS as f64;

/// Decides blocks by fitting lines, and writes the learned index.
#[derive(Debug)]
pub(crate) struct LearnedBuilder {
    block_bytes: u64,
    run: KeyRun,
    codes: Codes,
    /// The last key that is in a segment.
    last_key: Vec<u8>,
    placements: Vec<Placement>,
    /// For each placement, the number of its code.
    code_numbers: Vec<u64>,
    separators: SeparatorsBuilder,
    starts: StartsBuilder,
    scratch: FitScratch,
}

/// Buffers reused from segment to segment.
#[derive(Debug, Default)]
struct FitScratch {
    codes: Vec<u64>,
    /// The entries of each block of the placement that was last simulated.
    counts: Vec<u32>,
    /// The entries of each block of the best placement so far.
    best_counts: Vec<u32>,
}

impl LearnedBuilder {
    pub(in crate::table::index_block) fn new(block_bytes: u32, coding: StringCoding) -> Self {
        let block_bytes = u64::from(block_bytes.max(1));
        Self {
            block_bytes,
            run: KeyRun::new(block_bytes, block_bytes * EPSILON_QUARTERS / 4),
            codes: Codes::new(coding),
            last_key: Vec::new(),
            placements: Vec::new(),
            code_numbers: Vec::new(),
            separators: SeparatorsBuilder::default(),
            starts: StartsBuilder::default(),
            scratch: FitScratch::default(),
        }
    }

    /// The same builder, with its memory counted by `gauge`. To be called before the first push.
    pub(in crate::table::index_block) fn counted_by(self, gauge: &Gauge) -> Self {
        Self { run: self.run.counted_by(gauge), ..self }
    }

    pub(in crate::table::index_block) fn push(
        &mut self,
        key: &[u8],
        bytes: usize,
        cuts: &mut Vec<u32>,
    ) {
        if self.codes.are_used() {
            // One code is chosen for everything that is buffered, so nothing is fitted before that.
            if self.run.begins_unit(key) && self.is_full(self.run.len()) {
                self.finish_cuts(cuts);
            }
            self.run.add(key, bytes as u64);
            return;
        }
        if !self.run.add(key, bytes as u64) {
            return;
        }
        let complete = self.run.len() - 1;
        if complete > 0 && self.is_full(complete) {
            self.close_segment(self.run.fitted(), cuts);
        }
        self.fit_all(cuts);
    }

    /// Returns true if the first `n` units are as much as may be buffered.
    fn is_full(&self, n: usize) -> bool {
        self.run.cost_before(n) >= SEGMENT_COST_MAX || self.run.key_bytes() >= SEGMENT_KEY_BYTES_MAX
    }

    /// Fits all units there are, and closes a segment wherever the line fits no further unit.
    fn fit_all(&mut self, cuts: &mut Vec<u32>) {
        while self.run.fitted() < self.run.len() {
            if !self.run.fit_next() {
                self.close_segment(self.run.fitted(), cuts);
            }
        }
    }

    pub(in crate::table::index_block) fn finish_cuts(&mut self, cuts: &mut Vec<u32>) {
        if self.codes.are_used() && self.run.len() > 0 {
            let coder = self.codes.choose(&self.run);
            self.run.set_coder(coder);
        }
        while self.run.len() > 0 {
            self.fit_all(cuts);
            if self.run.len() > 0 {
                self.emit_segment(self.run.len(), cuts);
            }
        }
    }

    pub(in crate::table::index_block) fn block_written(&mut self, file_offset: u64) {
        self.starts.push(u32::try_from(file_offset / PAGE_BYTES).unwrap_or(u32::MAX));
    }

    /// Closes a segment within the first `fitted` units; there is at least one.
    fn close_segment(&mut self, fitted: usize, cuts: &mut Vec<u32>) {
        let end = self.cheapest_end(fitted);
        self.emit_segment(end, cuts);
    }

    /// Where to end a segment that could have `fitted` units: where the index takes the fewest
    /// bytes per byte of data. A separator that tells two keys apart early is worth a shorter
    /// segment.
    fn cheapest_end(&self, fitted: usize) -> usize {
        if fitted >= self.run.len() {
            return fitted;
        }
        let first = self.run.key(0);
        let mut best = (fitted, u64::MAX, 1);
        for end in (fitted - fitted / 4..=fitted).rev() {
            let (last, next) = (self.run.key(end - 1), self.run.key(end));
            let shared = code::common_prefix_len(first, next);
            let added = code::separator_len(last, next).saturating_sub(shared) as u64;
            let (bytes, cost) = (SEGMENT_BYTES + added, self.run.cost_before(end).max(1));
            let is_better =
                u128::from(bytes) * u128::from(best.2) < u128::from(best.1) * u128::from(cost);
            if is_better {
                best = (end, bytes, cost);
            }
        }
        best.0
    }

    /// Makes a segment of the first `end` units, or of as many of them as a placement can keep
    /// within the bound on block sizes, and emits its cuts.
    fn emit_segment(&mut self, mut end: usize, cuts: &mut Vec<u32>) {
        let (placement, separator_len) = loop {
            match self.place(end) {
                Some(placed) => break placed,
                None => end = (end / 2).max(1),
            }
        };
        self.separators.push(&self.run.key(0)[..separator_len]);
        self.placements.push(placement);
        self.code_numbers.push(u64::from(self.run.coder().number));
        cuts.extend_from_slice(&self.scratch.best_counts);
        self.last_key.clear();
        self.last_key.extend_from_slice(self.run.key(end - 1));
        self.run.remove(end);
    }

    /// The length of the shortest separator of the run from what came before.
    fn separator_len(&self) -> usize {
        match self.placements.is_empty() {
            true => 0,
            false => code::separator_len(&self.last_key, self.run.key(0)),
        }
    }

    /// The best placement of the first `end` units, and the length of their separator; its counts
    /// are in `scratch.best_counts`. `None` if a block would exceed the bound.
    fn place(&mut self, end: usize) -> Option<(Placement, usize)> {
        let cost = self.run.cost_before(end);
        let blocks = (cost + self.block_bytes / 2) / self.block_bytes;
        self.scratch.best_counts.clear();
        if blocks <= 1 || end == 1 {
            self.scratch.best_counts.push(self.run.entries(0..end));
            return Some(self.single(end));
        }
        let blocks = u32::try_from(blocks).ok()?;
        let skip = self.run.shared_prefix(end);
        self.scratch.codes.clear();
        let run = &self.run;
        self.scratch.codes.extend((0..end).map(|i| run.code(i, skip)));
        let fitted = self.run.line(end, skip).map(|segment| {
            let first = self.scratch.codes[0];
            (segment.line.slope(), segment.line.y0 as f64, first)
        });
        // A segment's blocks share its cost evenly, so the units of y are scaled to fit.
        let scale = f64::from(blocks) * BLOCK_UNITS as f64 / cost as f64;
        let mut best: Option<(u128, Placement, usize)> = None;
        for (slope, y, x) in fitted.into_iter().chain(self.least_squares(end)) {
            for shift in MOVES {
                let y = y * scale + shift * BLOCK_UNITS as f64 / 8.0;
                let (placement, separator_len) = self.quantise(slope * scale, y, x, skip, blocks);
                let Some((waste, placement)) = self.simulate(placement, end) else { continue };
                if best.is_none_or(|(least, ..)| waste < least) {
                    best = Some((waste, placement, separator_len));
                    std::mem::swap(&mut self.scratch.counts, &mut self.scratch.best_counts);
                }
            }
        }
        let (_, placement, separator_len) = best?;
        Some(match placement.blocks {
            1 => self.single(end),
            _ => (placement, separator_len),
        })
    }

    /// One block for the first `end` units, and the length of their separator. The prefix of it
    /// that they share is skipped, as a lookup would do anyway: the file stores how much longer the
    /// separator is.
    fn single(&self, end: usize) -> (Placement, usize) {
        let separator_len = self.separator_len();
        let skip = separator_len.min(self.run.shared_prefix(end)) as u32;
        (Placement { skip, ..Placement::SINGLE }, separator_len)
    }

    /// The line of least squares through the first `end` units: slope, and a point on it.
    fn least_squares(&self, end: usize) -> Option<(f64, f64, u64)> {
        let first = self.scratch.codes[0];
        let x = |i: usize| (self.scratch.codes[i] - first) as f64;
        let y = |i: usize| self.run.cost_before(i) as f64;
        let n = end as f64;
        let (sum_x, sum_y) = (0..end).fold((0.0, 0.0), |(a, b), i| (a + x(i), b + y(i)));
        let (mean_x, mean_y) = (sum_x / n, sum_y / n);
        let (xy, xx) = (0..end).fold((0.0, 0.0), |(xy, xx), i| {
            (xy + (x(i) - mean_x) * (y(i) - mean_y), xx + (x(i) - mean_x).powi(2))
        });
        let slope = xy / xx;
        slope.is_finite().then_some((slope, mean_y - slope * mean_x, first))
    }

    /// Turns a line in positions, `y` at `x`, into the integers of a placement; and returns the
    /// length of the separator from which it can start.
    fn quantise(&self, slope: f64, y: f64, x: u64, skip: usize, blocks: u32) -> (Placement, usize) {
        // The error of the slope's last digit is below 1/4 of a block at the segment's end. One
        // more digit makes the blocks no more even, because lines are moved up and down too.
        let (mantissa, shift) = Line::quantise_slope(slope, blocks.ilog2() + 3);
        let line = Line { x0: 0, y0: 0, mantissa, shift };
        let first = self.run.key(0);
        let mut len = self.separator_len().max(skip);
        loop {
            // The line starts from the separator's code, which thus need not be stored.
            let x0 = self.run.coder().code(&first[..len], skip);
            let y0 = y - x.saturating_sub(x0) as f64 * line.slope();
            if y0.abs() <= START_UNITS_MAX || len >= first.len() || x0 >= x {
                // Far within what the format holds; a line that starts beyond these bounds is of no
                // use.
                let y0 = (y0.clamp(-1e6, 1e6) / Y0_UNITS as f64).round() as i64 * Y0_UNITS;
                let line = Line { x0, y0, ..line };
                return (Placement { line, skip: skip as u32, blocks }, len);
            }
            len += 1;
        }
    }

    /// Puts the first `end` units where `placement` says, after moving it so that it begins with
    /// its first block. Returns a measure of how uneven the blocks are (lower is better) and the
    /// placement, and leaves the entries of each block in `scratch.counts`. `None` if a block
    /// exceeds the bound.
    fn simulate(&mut self, mut placement: Placement, end: usize) -> Option<(u128, Placement)> {
        let FitScratch { codes, counts, .. } = &mut self.scratch;
        let first = placement.block_of_code(codes[0]);
        placement.line.y0 -= i64::from(first) * BLOCK_UNITS;
        placement.blocks = placement.block_of_code(codes[end - 1]) + 1;
        let cost_max = self.block_bytes * BLOCK_COST_FACTOR_MAX;
        counts.clear();
        counts.resize(placement.blocks as usize, 0);
        let mut waste = 0u128;
        let mut begin = 0;
        while begin < end {
            let block = placement.block_of_code(codes[begin]);
            let next =
                end_of_block(&codes[..end], begin, |code| placement.block_of_code(code) == block);
            let cost = self.run.cost_before(next) - self.run.cost_before(begin);
            if cost > cost_max && next - begin > 1 {
                return None;
            }
            waste += u128::from(cost) * u128::from(cost);
            counts[block as usize] = self.run.entries(begin..next);
            begin = next;
        }
        Some((waste, placement))
    }

    pub(in crate::table::index_block) fn encode(self, out: &mut Vec<u8>) {
        debug_assert_eq!(
            self.starts.blocks(),
            self.placements.iter().map(|placement| placement.blocks).sum::<u32>()
        );
        // Without trained codes, the format without them loses nothing and is a column shorter.
        let is_coded = !self.codes.encoded.is_empty();
        out.push(if is_coded { CODED } else { LEARNED });
        if is_coded {
            codec::put_varint(self.codes.encoded.len() as u64, out);
            self.codes.encoded.iter().for_each(|code| out.extend_from_slice(code));
        }
        codec::put_varint(self.placements.len() as u64, out);
        let mut fields: [Vec<u64>; FIELDS_CODED] = Default::default();
        fields[SHARED] = self.separators.shared;
        fields[ADDED] = self.separators.added;
        fields[CODE] = self.code_numbers;
        for (i, placement) in self.placements.iter().enumerate() {
            let separator_len = fields[SHARED][i] + fields[ADDED][i];
            fields[BEYOND].push(separator_len - u64::from(placement.skip));
            fields[BLOCKS].push(u64::from(placement.blocks - 1));
            if placement.blocks > 1 {
                let start = placement.line.y0 / Y0_UNITS + i64::from(Y0_MAX);
                fields[Y0].push(start.cast_unsigned());
                fields[MANTISSA].push(u64::from(placement.line.mantissa));
                fields[SHIFT].push(u64::from(placement.line.shift));
            }
        }
        let fields = &fields[..if is_coded { FIELDS_CODED } else { FIELDS }];
        let mut lines = 0..0;
        for begin in (0..self.placements.len()).step_by(GROUP) {
            let segments = begin..(begin + GROUP).min(self.placements.len());
            lines = lines.end..lines.end + super::lines_of(&fields[BLOCKS][segments.clone()]);
            for (field, column) in fields.iter().enumerate() {
                let part = if LINE.contains(&field) { lines.clone() } else { segments.clone() };
                codec::put_column(&column[part], out);
            }
        }
        out.extend_from_slice(&self.separators.bytes);
        self.starts.encode(out);
    }
}

/// The end of the codes from `begin` on that are `within` the block of the first; the codes of a
/// block are adjacent. Takes only a few steps more than the logarithm of their number.
fn end_of_block(codes: &[u64], begin: usize, within: impl Fn(u64) -> bool) -> usize {
    let mut step = 1;
    while codes.get(begin + step).is_some_and(|code| within(*code)) {
        step *= 2;
    }
    let end = (begin + step).min(codes.len());
    search::partition_point(begin + step / 2, end, |i| within(codes[i]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Forces segments on keys that no line tells apart: the bound on block sizes must split them.
    #[test]
    fn a_placement_over_the_bound_is_split() {
        let mut builder = LearnedBuilder::new(100, StringCoding::Off);
        for len in 0..40 {
            builder.run.add(&vec![0; len], 80);
        }
        // One key that is apart, so that there is a line at all.
        builder.run.add(&[1], 80);
        let mut cuts = Vec::new();
        while builder.run.len() > 0 {
            builder.emit_segment(builder.run.len(), &mut cuts);
        }
        assert_eq!(cuts.iter().sum::<u32>(), 41);
        assert!(cuts.iter().all(|count| *count as u64 * 80 <= BLOCK_COST_FACTOR_MAX * 100));
    }
}
