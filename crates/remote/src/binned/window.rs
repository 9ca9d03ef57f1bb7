//! Records as a client has read them, and what they prove about a key.
//!
//! Nothing is trusted: a piece counts only if its guard has the incarnation that what led to it
//! names, and a block only if it bears the tag of the descriptor. The keys of an array never
//! change, so that pieces of one read need not be of one moment: what the record at or below a key
//! says is of the moment when its block was read.
//!
//! Where reads have no order, a piece comes with its guard, a block as a whole, and either proves
//! by its sum that it is of one moment.

use std::{cmp::Ordering as Order, ops::Range};

use rhumb_model::code::code_at;

use super::{
    client::KnownArray,
    descriptor::Descriptor,
    layout::{
        BIN_HEAD_WORDS, BLOCK_HEAD_WORDS, BLOCK_LINES, BLOCK_WORDS, BinShape, LINE_WORDS,
        RECORD_WORDS, Record, Sizes, WIDE_HEAD_WORDS, WideExtent, WideHead, WideKind, append_bytes,
        incarnation_of, incarnation_of_epoch,
    },
    proof::{is_block_whole, wide_sum},
};
use crate::{
    fabric::{Extent, Image},
    message::Part,
};

/// Bytes of a word.
const WORD_BYTES: u64 = 8;
/// Bytes of a line.
const LINE_BYTES: u64 = LINE_WORDS as u64 * WORD_BYTES;

/// How a region is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegionLayout {
    pub(super) sizes: Sizes,
    /// The lines of a piece may be of different moments.
    pub(super) is_unordered: bool,
}

impl RegionLayout {
    /// The extent of `words` words of the piece that begins at `line`.
    fn extent(self, line: u32, words: usize) -> Extent {
        if !self.is_unordered {
            return piece_of(line, words);
        }
        let at = u64::from(line) * LINE_BYTES;
        Extent { part: Part::Leaves, at, len: words as u32 * WORD_BYTES as u32, guard: at }
    }
}

/// The extent of `words` words of the piece that begins at `line`, without its guard.
pub(super) fn piece_of(line: u32, words: usize) -> Extent {
    let guard = u64::from(line) * LINE_BYTES;
    let len = (words.max(2) as u32 - 1) * WORD_BYTES as u32;
    Extent { part: Part::Leaves, at: guard + WORD_BYTES, len, guard }
}

/// Records side by side.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// The number of the first one, where 0 is an array's sentinel.
    pub(super) first: usize,
    pub(super) records: Vec<Record>,
    /// Bytes that codes skip.
    pub(super) skip: usize,
    /// Number of the last record that there is.
    end: usize,
}

/// Where a key is among records, as far as codes say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sought {
    /// Records of the window whose keys are below the key.
    pub(super) below: usize,
    /// Records of the window after those that have the key's code, of which the keys must be
    /// compared.
    pub(super) ties: Range<usize>,
}

/// Where a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It is the key of this record of the window.
    Record(usize),
    /// It is in the gap after this record of the window.
    Gap(usize),
}

/// A wide record as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wide {
    pub(super) kind: WideKind,
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
    /// The value's own length, also where it was not read.
    pub(super) value_len: usize,
}

impl Window {
    /// Appends what to read for some records of an array, first and last: a piece of each block.
    pub(super) fn extents(
        array: &Descriptor,
        (first, last): (usize, usize),
        way: RegionLayout,
        out: &mut Vec<Extent>,
    ) {
        let position = |index| way.sizes.record_position(index);
        let (begin, end) = (position(first).0, position(last).0);
        for block in begin..=end {
            let words = match block == end && !way.is_unordered {
                true => position(last).1 + RECORD_WORDS,
                false => BLOCK_WORDS,
            };
            out.push(way.extent(block_line(array, block), words));
        }
    }

    /// The records of which [`Window::places`] were read, from a piece of the image on; `None` if
    /// they are not those of the array that hashes to `tag`, or changed while they were read.
    pub(super) fn of_array(
        KnownArray { array, tag }: &KnownArray,
        (first, last): (usize, usize),
        way: RegionLayout,
        (image, first_piece): (&Image, usize),
    ) -> Option<Self> {
        let mut window = Self {
            first,
            records: Vec::with_capacity(last + 1 - first),
            skip: array.prefix.len(),
            end: array.records as usize,
        };
        let position = |index| way.sizes.record_position(index);
        let mut from = position(first).1;
        for (piece, block) in (position(first).0..=position(last).0).enumerate() {
            let (words, guard) = image.piece(first_piece + piece)?;
            let words = match way.is_unordered {
                // The guard is not among the words otherwise.
                // planted: block-device-brought-not-proven
                true if is_block_whole(words, block_line(array, block)) => &words[1..],
                true => return None,
                false => words,
            };
            let is_ours = incarnation_of(guard) == incarnation_of_epoch(array.epoch)
                && words.first() == Some(tag);
            if !is_ours {
                return None;
            }
            let end = BLOCK_HEAD_WORDS + way.sizes.block_records() * RECORD_WORDS;
            let records = words.get(from - 1..words.len().min(end - 1))?;
            window.records.extend(records.chunks_exact(RECORD_WORDS).map(Record::of_words));
            from = BLOCK_HEAD_WORDS;
        }
        window.records.truncate(last + 1 - first);
        (window.records.len() == last + 1 - first).then_some(window)
    }

    /// The records of a bin, of which the shape and what follows it were read.
    pub(super) fn of_bin(shape: BinShape, words: &[u64]) -> Option<Self> {
        let words = words.get(BIN_HEAD_WORDS - 1..)?.get(..shape.len * RECORD_WORDS)?;
        let records: Vec<Record> = words.chunks_exact(RECORD_WORDS).map(Record::of_words).collect();
        // They count from 1, as if there were a sentinel.
        Some(Self { first: 1, end: shape.len, records, skip: shape.skip })
    }

    /// Where a key is, as far as codes say. The key begins with the bytes that codes skip.
    pub(super) fn seek(&self, key: &[u8]) -> Sought {
        let code = code_at(key, self.skip);
        let sentinel = usize::from(self.first == 0);
        let records = self.records.get(sentinel..).unwrap_or_default();
        let below = records.partition_point(|record| record.code_after(self.skip) < code);
        let ties = records[below..].partition_point(|record| record.code_after(self.skip) <= code);
        let below = below + sentinel;
        Sought { below, ties: below..below + ties }
    }

    /// The record of a key, with the keys of wide records among those that tie, in order.
    pub(super) fn place_of(&self, key: &[u8], sought: &Sought, wide: &[Wide]) -> Option<usize> {
        let mut wide = wide.iter();
        sought.ties.clone().find(|at| match self.records[*at].wide_extent() {
            None => self.records[*at].key_bytes()[..] == *key,
            Some(_) => wide.next().is_some_and(|wide| wide.key == key),
        })
    }

    /// Resolves where a key is, with the keys of wide records among those that tie, in order;
    /// `None` if the window does not prove it.
    pub(super) fn resolve(&self, key: &[u8], sought: &Sought, wide: &[Wide]) -> Option<Found> {
        let mut wide = wide.iter();
        let mut below = sought.below;
        for at in sought.ties.clone() {
            let record = self.records.get(at)?;
            let order = match record.wide_extent() {
                None => record.key_bytes()[..].cmp(key),
                Some(_) => wide.next()?.key[..].cmp(key),
            };
            match order {
                Order::Less => below = at + 1,
                Order::Equal => return Some(Found::Record(at)),
                Order::Greater => break,
            }
        }
        self.gap(below)
    }

    /// The gap before which `below` records of the window lie, if the window has the record before
    /// it and the one after it, or the array ends there.
    pub(super) fn gap(&self, below: usize) -> Option<Found> {
        let is_proven = below < self.records.len() || self.first + below == self.end + 1;
        is_proven.then_some(Found::Gap(below.checked_sub(1)?))
    }

    /// Leaves records out at the end, so that the wide ones from record `at` on take `lines_max`
    /// lines and one record more at most. Two records stay, for a page has one and ends before one.
    pub(super) fn shorten(&mut self, at: usize, lines_max: usize) {
        let mut lines = 0;
        let mut fits = |record: &Record| {
            lines += record.wide_extent().map_or(0, |extent| extent.lines as usize);
            lines <= lines_max
        };
        let count = self.records[at..].iter().take_while(|record| fits(record)).count();
        self.records.truncate(at + count.max(2));
    }

    /// Returns true if the array ends with the window.
    pub(super) fn is_at_end(&self) -> bool {
        self.first + self.records.len() == self.end + 1
    }

    /// The gap of a key that does not begin as the array's keys do.
    pub(super) fn beside(&self, prefix: &[u8], key: &[u8]) -> Option<Found> {
        if key < prefix {
            return (self.first == 0).then_some(Found::Gap(0));
        }
        self.is_at_end().then(|| self.records.len().checked_sub(1)).flatten().map(Found::Gap)
    }
}

impl Wide {
    /// What to read of a wide record.
    pub(super) fn extent(extent: WideExtent, way: RegionLayout) -> Extent {
        way.extent(extent.slot.line, extent.lines as usize * LINE_WORDS)
    }

    /// A wide record that was read; `None` if it is no longer there.
    pub(super) fn of_piece(
        extent: WideExtent,
        way: RegionLayout,
        piece: Option<(&[u64], u64)>,
    ) -> Option<Self> {
        let (words, guard) = piece?;
        if incarnation_of(guard) != extent.slot.incarnation {
            return None;
        }
        // The guard is not among the words otherwise.
        let words = if way.is_unordered { words.get(1..)? } else { words };
        let head = WideHead::of_word(*words.first()?)?;
        if way.sizes.wide_words(head) > words.len() + 1 {
            return None;
        }
        if way.is_unordered {
            let (covered, rest) = words.split_at(head.words() - 1);
            let covered = [guard].into_iter().chain(covered.iter().copied());
            // planted: wide-record-device-brought-not
            (rest[0] == wide_sum(covered, extent.slot.line)).then_some(())?;
        }
        let (mut key, mut value) = (Vec::new(), Vec::new());
        append_bytes(words.get(WIDE_HEAD_WORDS - 1..)?, head.key_len, &mut key);
        if head.kind == WideKind::Here {
            append_bytes(words.get(head.value_word() - 1..)?, head.value_len, &mut value);
        }
        Some(Self { kind: head.kind, key, value, value_len: head.value_len })
    }
}

/// The line at which a block of an array begins.
fn block_line(array: &Descriptor, block: usize) -> u32 {
    array.base.saturating_add(block as u32).saturating_mul(BLOCK_LINES)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records of the keys 10, 20 and so on, from record `first` on, of an array of four.
    fn window(first: usize, count: usize) -> Window {
        let record = |index: usize| match index {
            0 => Record::default(),
            _ => Record::inline(&(index as u64 * 10).to_be_bytes(), b"").unwrap(),
        };
        Window { first, records: (first..first + count).map(record).collect(), skip: 0, end: 4 }
    }

    #[test]
    fn a_window_proves_what_it_has_on_both_sides() {
        let found = |window: &Window, key: u64| {
            let key = key.to_be_bytes();
            window.resolve(&key, &window.seek(&key), &[])
        };
        let whole = window(0, 5);
        assert_eq!(found(&whole, 5), Some(Found::Gap(0)));
        assert_eq!(found(&whole, 20), Some(Found::Record(2)));
        assert_eq!(found(&whole, 25), Some(Found::Gap(2)));
        assert_eq!(found(&whole, 99), Some(Found::Gap(4)));
        let middle = window(1, 2);
        assert_eq!(found(&middle, 5), None);
        assert_eq!(found(&middle, 10), Some(Found::Record(0)));
        assert_eq!(found(&middle, 15), Some(Found::Gap(0)));
        assert_eq!(found(&middle, 25), None);
        assert_eq!(middle.beside(b"x", b"a"), None);
        assert_eq!(middle.beside(b"x", b"y"), None);
        assert_eq!(window(3, 2).beside(b"x", b"y"), Some(Found::Gap(1)));
        assert_eq!(whole.beside(b"x", b"a"), Some(Found::Gap(0)));
    }
}
