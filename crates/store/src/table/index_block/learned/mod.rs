//! The learned index: a list of segments, each a run of keys whose blocks one line predicts.
//!
//! When the table was written, entries were put where the line says, so the prediction is exact for
//! every key in the table. A lookup is a search for the segment, over one flat array of numbers
//! (more than one where keys share long prefixes), and one multiplication.

mod builder;
mod choice;
mod finder;
mod heads;
mod placement;
mod run;
mod separators;

use std::{cmp::Ordering, ops::Range};

use rhumb_model::{
    Line, StringCode, code,
    codec::{DecodeError, Reader},
};

#[cfg(test)]
pub(in crate::table::index_block) use self::builder::BLOCK_COST_FACTOR_MAX;
pub(crate) use self::builder::LearnedBuilder;
use self::{
    choice::CODES_MAX,
    finder::Finder,
    placement::{BLOCK_UNITS, Placement},
    separators::Separators,
};
use super::{BlockAddress, IndexCoding, IndexExplanation, SegmentInfo, starts::Starts};
use crate::types::KEY_BYTES_MAX;
use rhumb_sync::prefetch::prefetch;

/// The number of segments whose fields are stored in columns together.
const GROUP: usize = 256;
/// The number of fields of a segment; each has a column, in the order of the numbers below.
const FIELDS: usize = 7;
/// The number of fields of a segment whose keys are coded: one more, [`CODE`].
const FIELDS_CODED: usize = 8;
const SHARED: usize = 0;
const ADDED: usize = 1;
const BEYOND: usize = 2;
const BLOCKS: usize = 3;
const Y0: usize = 4;
const MANTISSA: usize = 5;
const SHIFT: usize = 6;
const CODE: usize = 7;
/// The fields that only a segment of more than one block has: a segment of one block needs no line.
const LINE: Range<usize> = Y0..SHIFT + 1;

/// The number of segments that have a line, given for each the number of its blocks less one.
fn lines_of(blocks_less_one: &[u64]) -> usize {
    blocks_less_one.iter().filter(|blocks| **blocks > 0).count()
}

/// The fields of a segment that a lookup needs once it has found it, in 24 bytes.
#[derive(Clone, Copy, Debug)]
struct Segment {
    x0: u64,
    mantissa: u32,
    /// The number of its code, or 0 for plain bytes, above the number of skipped bytes, which has
    /// 20 bits.
    code_and_skip: u32,
    first_block: u32,
    /// The line's y0 above its shift, which has eight bits.
    y0_and_shift: i32,
}

/// The number of bits of `Segment::code_and_skip` that hold the number of skipped bytes: a key has
/// at most 2^16 bytes.
const SKIP_BITS: u32 = 20;

/// Lines start at multiples of this many positions: the precision with which a line is moved to
/// make blocks even.
const Y0_UNITS: i64 = BLOCK_UNITS / 8;
/// The farthest from zero that a line may start, in units of [`Y0_UNITS`].
const Y0_MAX: i32 = 1 << 20;

impl Segment {
    /// The sentinel after the last segment: it begins where another segment would begin.
    fn end(first_block: u32) -> Self {
        Self { x0: 0, mantissa: 0, code_and_skip: 0, first_block, y0_and_shift: 0 }
    }

    #[inline]
    fn placement(&self, next: &Self) -> Placement {
        Placement {
            line: Line {
                x0: self.x0,
                y0: i64::from(self.y0_and_shift >> 8),
                mantissa: self.mantissa,
                shift: self.y0_and_shift as u8,
            },
            skip: self.skip() as u32,
            blocks: next.first_block - self.first_block,
        }
    }

    #[inline]
    fn skip(&self) -> usize {
        (self.code_and_skip & ((1 << SKIP_BITS) - 1)) as usize
    }

    /// The code of `key`.
    #[inline]
    fn code_of(&self, codes: &[StringCode], key: &[u8]) -> u64 {
        let number = (self.code_and_skip >> SKIP_BITS) as usize;
        match number.checked_sub(1).and_then(|i| codes.get(i)) {
            None => code::code_at(key, self.skip()),
            Some(code) => code.code(key, self.skip()),
        }
    }
}

/// A learned index in memory.
#[derive(Debug)]
pub(super) struct LearnedIndex {
    finder: Finder,
    /// The trained codes.
    codes: Box<[StringCode]>,
    /// All segments, and then `Segment::end` if there are any.
    segments: Box<[Segment]>,
    separators: Separators,
    starts: Starts,
}

impl LearnedIndex {
    pub(super) fn decode(
        reader: &mut Reader<'_>,
        is_coded: bool,
        blocks: u32,
        data_pages: u32,
    ) -> Result<Self, String> {
        let to_text = |e: DecodeError| e.to_string();
        let codes = if is_coded { read_codes(reader).map_err(to_text)? } else { Vec::new() };
        // Each separator but the first adds at least one byte, so the number of bytes bounds the
        // count.
        let count_max = u64::from(blocks).min(reader.remaining() as u64 + 1);
        let count = reader.varint_up_to(count_max, "a segment count").map_err(to_text)? as usize;
        if (count == 0) != (blocks == 0) {
            return Err(format!("expected segments for {blocks} blocks, found {count}"));
        }
        let fields = read_fields(reader, count, is_coded).map_err(to_text)?;
        let mut segments = segments_of(&fields, codes.len(), blocks)?;
        let shared_by_all = fields[SHARED].iter().skip(1).min().copied();
        let prefix_len = shared_by_all.or(fields[ADDED].first().copied()).unwrap_or(0) as usize;
        let mut unset = segments.iter_mut();
        let separators =
            Separators::decode(reader, &fields[SHARED], &fields[ADDED], |separator| {
                if let Some(segment) = unset.next() {
                    segment.x0 = segment.code_of(&codes, separator);
                }
            })?;
        let finder = Finder::new(&separators, prefix_len);
        let starts = Starts::decode(reader, blocks, data_pages)?;
        Ok(Self { finder, codes: codes.into(), segments: segments.into(), separators, starts })
    }

    /// The last segment whose separator is at most `key`, or the first of all.
    #[inline(always)]
    fn segment_of(&self, key: &[u8]) -> usize {
        let prefetch_near = |i| self.prefetch_segment(i);
        self.finder.resolve(
            self.finder.seek_near(key, prefetch_near),
            &self.separators,
            key,
            prefetch_near,
        )
    }

    /// Prefetches the line of a segment.
    #[inline(always)]
    fn prefetch_segment(&self, i: usize) {
        self.segments.get(i).into_iter().for_each(prefetch);
    }

    /// Segment `i` and the one after it; `None` if there are no segments.
    #[inline]
    fn segment_and_next(&self, i: usize) -> Option<(&Segment, &Segment)> {
        match self.segments.get(i..) {
            Some([segment, next, ..]) => Some((segment, next)),
            _ => None,
        }
    }

    /// The block of `key`, which is in `segment` and not in `next`.
    #[inline]
    fn block_in(&self, segment: &Segment, next: &Segment, key: &[u8]) -> u32 {
        let code = segment.code_of(&self.codes, key);
        segment.first_block + segment.placement(next).block_of_code(code)
    }

    #[inline]
    pub(super) fn locate(&self, key: &[u8]) -> u32 {
        self.locate_in(self.segment_of(key), key)
    }

    /// The segment of `key`, whose line is prefetched.
    #[inline]
    pub(super) fn find_segment(&self, key: &[u8]) -> usize {
        let segment = self.segment_of(key);
        self.prefetch_segment(segment);
        segment
    }

    /// [`LearnedIndex::locate`] in the segment of `key`.
    #[inline]
    pub(super) fn locate_in(&self, segment: usize, key: &[u8]) -> u32 {
        match self.segment_and_next(segment) {
            Some((segment, next)) => self.block_in(segment, next, key),
            None => 0,
        }
    }

    /// As [`LearnedIndex::locate`], with about how far into the block the key is, in 64ths. Calls
    /// `is_wanted` before it goes on if one search among numbers does not decide; `None` if that
    /// returns false.
    #[inline(always)]
    pub(super) fn predict_if(
        &self,
        key: &[u8],
        is_wanted: impl FnOnce() -> bool,
    ) -> Option<(u32, u32)> {
        let prefetch_near = |i| self.prefetch_segment(i);
        let near = self.finder.seek_near(key, prefetch_near);
        if near.is_tied && !is_wanted() {
            return None;
        }
        let found = self.finder.resolve(near, &self.separators, key, prefetch_near);
        let Some((segment, next)) = self.segment_and_next(found) else { return Some((0, 0)) };
        let code = segment.code_of(&self.codes, key);
        let (block, part) = segment.placement(next).place_of_code(code);
        Some((segment.first_block + block, part))
    }

    /// The block in which the first entry at or above `key` is, unless it is the first entry of
    /// the next block that has any.
    #[inline]
    pub(super) fn seek(&self, key: &[u8]) -> u32 {
        let i = self.segment_of(key);
        let Some((segment, next)) = self.segment_and_next(i) else { return 0 };
        let skip = segment.skip();
        // If all separators share the skipped bytes, one comparison decides.
        if skip <= self.finder.prefix_len() && self.finder.has_prefix(key) {
            return self.block_in(segment, next, key);
        }
        // All keys of the segment begin with the first `skip` bytes of its separator; a key that
        // does not is before or after all of them.
        match self.separators.compare_prefix(key, i, 0, skip) {
            Ordering::Less => segment.first_block,
            Ordering::Equal => self.block_in(segment, next, key),
            Ordering::Greater if i + 1 < self.segment_count() => next.first_block,
            Ordering::Greater => next.first_block - 1,
        }
    }

    pub(super) fn address(&self, block: u32) -> BlockAddress {
        self.starts.address(block)
    }

    pub(super) fn segment_count(&self) -> usize {
        self.separators.len()
    }

    pub(super) fn resident_bytes(&self) -> usize {
        self.finder.resident_bytes()
            + self.codes.iter().map(StringCode::resident_bytes).sum::<usize>()
            + size_of_val(&*self.segments)
            + self.separators.resident_bytes()
            + self.starts.resident_bytes()
    }

    pub(super) fn explain(&self, key: &[u8]) -> IndexExplanation {
        let segment = self.segment_of(key);
        let (placement, first_block, code) = match self.segment_and_next(segment) {
            Some((found, next)) => {
                (found.placement(next), found.first_block, found.code_of(&self.codes, key))
            }
            None => (Placement::SINGLE, 0, 0),
        };
        IndexExplanation {
            segment,
            skip: placement.skip,
            code,
            block: self.locate(key),
            segment_blocks: (first_block, first_block + (placement.blocks - 1)),
        }
    }

    /// How keys become numbers.
    pub(super) fn coding(&self) -> IndexCoding {
        let is_trained = |segment: &&Segment| segment.code_and_skip >> SKIP_BITS > 0;
        let trained_segments = self.segments.iter().filter(is_trained).count();
        IndexCoding { codes: self.codes.len(), trained_segments }
    }

    /// Segment `i`, which exists.
    pub(super) fn segment(&self, i: usize) -> SegmentInfo {
        let (segment, next) = (&self.segments[i], &self.segments[i + 1]);
        let placement = segment.placement(next);
        SegmentInfo {
            separator: self.separators.get(i),
            skip: placement.skip,
            x0: placement.line.x0,
            slope: placement.line.slope() / BLOCK_UNITS as f64,
            first_block: segment.first_block,
            blocks: placement.blocks,
        }
    }
}

/// Reads the trained codes that come before the segments.
fn read_codes(reader: &mut Reader<'_>) -> Result<Vec<StringCode>, DecodeError> {
    let count = reader.varint_up_to(u64::from(CODES_MAX), "a number of codes")?;
    // Nothing is reserved: each code takes bytes.
    (0..count).map(|_| StringCode::decode(reader)).collect()
}

/// Reads the fields of all segments.
fn read_fields(
    reader: &mut Reader<'_>,
    count: usize,
    is_coded: bool,
) -> Result<[Vec<u64>; FIELDS_CODED], DecodeError> {
    let mut fields: [Vec<u64>; FIELDS_CODED] = Default::default();
    for begin in (0..count).step_by(GROUP) {
        for field in 0..if is_coded { FIELDS_CODED } else { FIELDS } {
            let len = match LINE.contains(&field) {
                true => lines_of(&fields[BLOCKS][begin..]),
                false => GROUP.min(count - begin),
            };
            reader.column(len, &mut fields[field], "a column of segment fields")?;
        }
    }
    Ok(fields)
}

/// The segments that `fields` describe and the sentinel after them, still without their `x0`.
fn segments_of(
    fields: &[Vec<u64>; FIELDS_CODED],
    codes: usize,
    blocks: u32,
) -> Result<Vec<Segment>, String> {
    let mut segments = Vec::with_capacity(fields[BLOCKS].len() + 1);
    let (mut next_block, mut line) = (0u32, 0);
    for (i, blocks_less_one) in fields[BLOCKS].iter().enumerate() {
        let check = |value: u64, max: u64, name: &str| {
            let refusal =
                || format!("expected the {name} of segment {i} up to {max}, found {value}");
            if value <= max { Ok(value) } else { Err(refusal()) }
        };
        let left = blocks - next_block;
        // The number of blocks is stored less one, as no segment has none.
        let count_max = u64::from(left)
            .checked_sub(1)
            .ok_or_else(|| format!("expected {blocks} blocks, found more in segment {i}"))?;
        let count = check(*blocks_less_one, count_max, "blocks")? as u32 + 1;
        // The skipped bytes are a prefix of the separator, whose length is checked when it is read.
        let separator_len = fields[SHARED][i].saturating_add(fields[ADDED][i]);
        let separator_len = check(separator_len, KEY_BYTES_MAX as u64, "separator's bytes")?;
        let beyond = check(fields[BEYOND][i], separator_len, "bytes that are not skipped")?;
        let skip = (separator_len - beyond) as u32;
        let code = match fields[CODE].is_empty() {
            true => 0,
            false => check(fields[CODE][i], codes as u64, "code")? as u32,
        };
        let (mut mantissa, mut y0_and_shift) = (0, 0);
        if count > 1 {
            let [y0, slope, shift] = [Y0, MANTISSA, SHIFT].map(|field| fields[field][line]);
            let y0 = check(y0, 2 * Y0_MAX as u64 - 1, "start")? as i32 - Y0_MAX;
            let shift = check(shift, u64::from(Line::SHIFT_MAX), "slope's shift")? as i32;
            mantissa = check(slope, u64::from(u32::MAX), "slope")? as u32;
            y0_and_shift = (y0 * Y0_UNITS as i32) << 8 | shift;
            line += 1;
        }
        segments.push(Segment {
            x0: 0,
            mantissa,
            code_and_skip: code << SKIP_BITS | skip,
            first_block: next_block,
            y0_and_shift,
        });
        next_block += count;
    }
    if next_block != blocks {
        return Err(format!("expected {blocks} blocks in all segments, found {next_block}"));
    }
    if blocks > 0 {
        segments.push(Segment::end(blocks));
    }
    Ok(segments)
}
