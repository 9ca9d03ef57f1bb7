//! Plans the leaves for a run of entries: how many, how they are addressed, and where they have
//! room.
//!
//! Nothing here is shared yet: leaves are built by one thread from entries in ascending order.

use std::ops::Range;

use rhumb_model::code::{code_at, common_prefix_len};
use rhumb_sync::{arena::Arena, primitive::in_models};

use crate::{
    address::{BucketLine, PIVOTS_MAX, PIVOTS_SURE, PivotBlock, Pivots, capped},
    entry::Entry,
    kinds::AnyLeaf,
    op::Trigger,
    raw::{
        branch::Bound,
        bucket::{BUCKET_SLOTS, NODE_SLOTS},
        leaf::{BucketAddress, BucketLeaf},
        schema::{KeyProbe, Schema, key},
    },
};

/// The most keys of a new leaf. Chosen, not measured: replacing a leaf takes some twenty
/// nanoseconds for each of its keys, so that none takes more than some 60 microseconds.
const LEAF_MAX: usize = in_models(3000, 12);
/// Runs of more than [`LEAF_MAX`] keys become leaves of at most this many keys. Chosen, not
/// measured: a leaf that is cut has room for two thirds more keys before it is cut again.
pub(crate) const LEAF_TARGET: usize = in_models(1800, 6);
/// The most keys of a leaf whose buckets are found by their lowest keys. It equals [`LEAF_MAX`], so
/// that one leaf replaces one leaf and its group stays as it is.
const PIVOT_LEAF_MAX: usize = in_models(3000, 8);
const _: () = assert!(PIVOT_LEAF_MAX <= PIVOTS_MAX * PIVOT_FILL);
/// The most keys that a leaf which opens buckets has room for: [`LEAF_TARGET`] less what its
/// fullest bucket may have.
const OPEN_LEAF_MAX: usize = in_models(1800 - BUCKET_KEYS_MAX, 16);
/// Runs of more than [`PIVOT_LEAF_MAX`] keys whose buckets are found by their lowest keys are cut
/// into leaves of this many keys, as those with a line ([`LEAF_TARGET`]).
const PIVOT_LEAF_TARGET: usize = in_models(1800, 5);
/// The keys of a leaf cut from a run so uneven that pivots tell fewer places apart.
const SURE_LEAF_TARGET: usize = PIVOTS_SURE * PIVOT_FILL;
/// Leaves of at least this many keys are jittered: each is replaced at a fullness of its own.
/// Chosen, not measured: 256 keys are 28 buckets, among which the jitter is at most seven nodes,
/// and smaller leaves are copied in some five microseconds.
const JITTER_MIN: usize = in_models(256, usize::MAX);
/// Leaves of fewer keys are not cut, wherever they grow. Chosen, not measured: 1024 keys are some
/// 28 KiB, beside which the 384 bytes of a leaf's head do not count, and are copied in 20
/// microseconds.
const PIECE_MIN: usize = in_models(1024, 8);
/// The same limit for a leaf that grows at an end where no line predicts the next keys: each
/// replacement there copies the leaf after some 50 keys (`END_CHAIN_MAX`), so that in a leaf of 128
/// keys each is copied two or three times.
const PIVOT_PIECE_MIN: usize = PIECE_MIN / 8;
/// Room for this multiple of the keys of the bucket that overflowed, if no line predicts how many
/// will come. Chosen, not measured: a bucket of 65 keys gets room for 260, of which three quarters
/// are wasted if no more come than before.
const AHEAD_OF_HOT: usize = 4;
/// The keys for 2 buckets that a line addresses: nine of fifteen slots in each. By Poisson's law
/// one bucket in 45 then has more keys than slots.
const LINE_FILL_2: usize = in_models(18, 5);
/// The keys for 2 buckets that a line addresses, in a leaf from which keys are being removed:
/// eleven and a half of fifteen slots. By Poisson's law one bucket in eight then has more keys than
/// slots.
const SHRUNK_FILL_2: usize = in_models(23, 6);
/// The keys of a bucket that is found by its lowest key: as many as in one that a line addresses
/// ([`LINE_FILL_2`]), so that six come before a node is needed.
const PIVOT_FILL: usize = in_models(9, 2);
/// The keys of a bucket that will get few more: one slot of fifteen is left.
const DENSE_FILL: usize = in_models(14, 4);
/// The keys of a bucket that is to be filled in order. Chosen, not measured: keys that are not
/// quite even fill some buckets with two keys more, which are the slots that are left.
const APPEND_FILL: usize = in_models(13, 3);
/// A line is good enough if it needs at most this many overflow nodes for 64 buckets: with more,
/// the new leaf would be retrained at once (`NODES_OF_64`).
const LINE_NODES_OF_64: usize = 10;
/// The most leading bytes that all words of a new leaf may share: the other six then tell them
/// apart.
const SHARED_BYTES_MAX: u32 = 2;
/// The most shared leading bytes of a dense leaf, which appends have passed: its keys need not be
/// read again. Chosen, not measured: the other four bytes still tell four billion keys apart.
const DENSE_SHARED_BYTES_MAX: u32 = 4;
/// The most shared leading bytes of a leaf that has room for keys above or below. New keys may
/// share less with the present keys than those share with each other, and a shorter prefix holds
/// for longer. Chosen, not measured: the other three bytes tell 16 million keys apart.
const AHEAD_SHARED_BYTES_MAX: u32 = 5;
/// One key in this many may tie with another before a longer prefix is chosen. Chosen, not
/// measured: a lookup of a tied key reads one record more, so that 3 % of lookups do.
const TIES_OF: usize = 32;
/// The most keys that a new bucket and its nodes hold.
const BUCKET_KEYS_MAX: usize = BUCKET_SLOTS + 2 * NODE_SLOTS;

/// A leaf that is to be replaced, and why.
pub(crate) type Before<'a> = Option<(&'a AnyLeaf, Trigger)>;

/// The place where a leaf has grown; the range is that of the entries of the bucket that
/// overflowed.
#[derive(Clone, Debug)]
pub(crate) enum LeafGrowth {
    Even,
    /// It has shrunk.
    None,
    /// At its upper end. The first flag is true if a line addresses its buckets or it opened all of
    /// them; the second is true if its keys came in order.
    Above(Range<usize>, bool, bool),
    /// At its lower end. The flag is true if a line addresses its buckets.
    Below(Range<usize>, bool),
    /// In one place. The flag is true if its keys came in order.
    Within(Range<usize>, bool),
}

/// A new leaf and its first entry.
pub(crate) struct PlannedLeaf {
    pub(crate) first: usize,
    pub(crate) leaf: Box<AnyLeaf>,
}

/// The room that a leaf has, and where it is.
#[derive(Clone, Copy)]
enum Room {
    Even,
    /// For a few more keys, in no order.
    Shrunk,
    /// For none.
    Dense,
    /// For this many keys above the last, in any order.
    Above(usize),
    /// For this many keys above the last, which will come in order.
    Behind(usize),
    /// For this many keys below the first.
    Below(usize),
}

/// Builds the leaves of all entries; at least one. `upper` is the lower bound of the leaf after
/// them. If there is a `prefix`, the entries' words are those of a leaf whose words leave it out.
pub(crate) fn parts<S: Schema>(
    arena: &Arena,
    entries: &[Entry],
    growth: LeafGrowth,
    upper: Option<&Bound>,
    prefix: Option<&[u8]>,
) -> Vec<PlannedLeaf> {
    let mut pieces = pieces::<S>(entries, growth);
    avoid_largest_bound::<S>(entries, &mut pieces);
    let end = upper.filter(|_| !S::WIDE).map_or(u64::MAX, |bound| bound.word - 1);
    let last = pieces.len() - 1;
    let mut parts = Vec::with_capacity(pieces.len());
    for (i, (range, room)) in pieces.into_iter().enumerate() {
        let end = if i == last { end } else { u64::MAX };
        let mut build = |range: Range<usize>, room| {
            let builder = LeafBuilder::<S>::new(&entries[range.clone()], end, prefix, room);
            let leaf = builder.build(arena, room)?;
            let leaf = Box::new(AnyLeaf::Buckets(*leaf));
            parts.push(PlannedLeaf { first: range.start, leaf });
            Some(())
        };
        if build(range.clone(), room).is_some() {
            continue;
        }
        let count = range.len().div_ceil(PIVOT_LEAF_TARGET);
        let is_new = count > 1 || !matches!(room, Room::Even);
        for range in cuts(range, count) {
            if is_new && build(range.clone(), Room::Even).is_some() {
                continue;
            }
            let count = range.len().div_ceil(SURE_LEAF_TARGET);
            for range in cuts(range, count) {
                build(range, Room::Even).expect("so few need no line");
            }
        }
    }
    parts
}

/// Decides where entries are cut, and how much room each piece has. Returns at least one piece.
fn pieces<S: Schema>(entries: &[Entry], growth: LeafGrowth) -> Vec<(Range<usize>, Room)> {
    let len = entries.len();
    let ahead = len.min(LEAF_TARGET);
    let mut pieces = Vec::new();
    let is_one = |is_regular| len < if is_regular { PIECE_MIN } else { PIVOT_PIECE_MIN };
    let above =
        |is_ordered, ahead| if is_ordered { Room::Behind(ahead) } else { Room::Above(ahead) };
    match growth {
        LeafGrowth::Above(_, is_regular, is_ordered) if is_one(is_regular) => {
            pieces.push((0..len, above(is_ordered, ahead)));
        }
        LeafGrowth::Below(_, is_regular) if is_one(is_regular) => {
            pieces.push((0..len, Room::Below(ahead)));
        }
        LeafGrowth::Above(hot, is_regular, is_ordered) => {
            let ahead = if is_regular { ahead } else { ahead.min(AHEAD_OF_HOT * hot.len()) };
            split(0..hot.start, Room::Dense, &mut pieces);
            pieces.push((hot.start..len, above(is_ordered, ahead)));
        }
        LeafGrowth::Below(hot, _) => {
            pieces.push((0..hot.end, Room::Below(ahead)));
            split(hot.end..len, Room::Dense, &mut pieces);
        }
        LeafGrowth::Within(hot, is_ordered) if len >= PIECE_MIN / 4 => {
            split(0..hot.start, Room::Even, &mut pieces);
            match widest_gap::<S>(&entries[hot.clone()]) {
                // Keys are appended before the gap.
                Some(gap) => {
                    let cut = hot.start + gap;
                    pieces.push((hot.start..cut, above(is_ordered, 4 * hot.len())));
                    split(cut..len, Room::Even, &mut pieces);
                }
                None => {
                    pieces.push((hot.clone(), Room::Even));
                    split(hot.end..len, Room::Even, &mut pieces);
                }
            }
        }
        LeafGrowth::None => split(0..len, Room::Shrunk, &mut pieces),
        LeafGrowth::Even | LeafGrowth::Within(..) => split(0..len, Room::Even, &mut pieces),
    }
    pieces.retain(|(range, _)| !range.is_empty());
    if pieces.is_empty() {
        pieces.push((0..0, Room::Even));
    }
    pieces
}

/// Joins the last two pieces if the last would start with the largest word: bounds do not tell the
/// two largest words apart, so no leaf may start with the largest.
fn avoid_largest_bound<S: Schema>(entries: &[Entry], pieces: &mut Vec<(Range<usize>, Room)>) {
    let Some((last, _)) = pieces.last() else { return };
    if pieces.len() > 1 && !S::WIDE && entries[last.start].word == u64::MAX {
        // Then it is the only one in the last piece.
        pieces.pop();
        if let Some((range, _)) = pieces.last_mut() {
            range.end += 1;
        }
    }
}

/// The number of entries before a gap that is far wider than all others together; none if there is
/// no such gap.
fn widest_gap<S: Schema>(entries: &[Entry]) -> Option<usize> {
    if S::WIDE || entries.len() < 4 {
        return None;
    }
    let gaps = entries.windows(2).map(|pair| pair[1].word - pair[0].word);
    let (at, widest) = gaps.enumerate().max_by_key(|(_, gap)| *gap)?;
    let others = entries[entries.len() - 1].word - entries[0].word - widest;
    (at >= 2 && others < widest / 8).then_some(at + 1)
}

/// Splits a range into pieces of about equal size.
fn split(range: Range<usize>, room: Room, pieces: &mut Vec<(Range<usize>, Room)>) {
    let count = if range.len() <= LEAF_MAX { 1 } else { range.len().div_ceil(LEAF_TARGET) };
    pieces.extend(cuts(range, count).map(|range| (range, room)));
}

/// Cuts a range into `count` pieces.
fn cuts(range: Range<usize>, count: usize) -> impl Iterator<Item = Range<usize>> {
    let cut = move |i: usize| range.start + range.len() * i / count;
    (0..count).map(move |i| cut(i)..cut(i + 1))
}

/// Returns true if the words of entries, which leave `prefix` out, are good enough for a leaf of
/// their own. Their keys, which lie elsewhere, then need not be read.
fn tells_apart<S: Schema>(entries: &[Entry], prefix: &[u8], room: Room) -> bool {
    let [first, .., last] = entries else { return false };
    let shared_bytes = (first.word ^ last.word).leading_zeros() / 8;
    let most = match room {
        Room::Above(_) | Room::Behind(_) | Room::Below(_) => AHEAD_SHARED_BYTES_MAX,
        Room::Dense => DENSE_SHARED_BYTES_MAX,
        Room::Even | Room::Shrunk => SHARED_BYTES_MAX,
    };
    // A longer prefix would tell apart some of the keys that tie now.
    let ties = || entries.windows(2).filter(|pair| pair[0].word == pair[1].word).count();
    S::WIDE
        && shared_bytes <= most
        && (shared_bytes == 0 || ties() <= entries.len() / TIES_OF)
        && [first, last].iter().all(|entry| key::<S>(entry).starts_with(prefix))
}

/// The longest prefix that these entries should have. If more keys will come beyond an end, which
/// share less with these, it is no longer than what tells neighbours apart.
fn most_prefix<S: Schema>(entries: &[Entry], room: Room) -> usize {
    /// Entries at an end that stand for the others. Chosen, not measured: the key of each is read
    /// from its record, which takes 64 cache misses at most.
    const SAMPLE: usize = 64;
    let near = match room {
        Room::Above(_) | Room::Behind(_) => &entries[entries.len().saturating_sub(SAMPLE)..],
        Room::Below(_) => &entries[..entries.len().min(SAMPLE)],
        Room::Even | Room::Shrunk | Room::Dense => return usize::MAX,
    };
    let shared = |pair: &[Entry]| common_prefix_len(key::<S>(&pair[0]), key::<S>(&pair[1]));
    let mut shared: Vec<usize> = near.windows(2).map(shared).collect();
    shared.sort_unstable();
    let last = shared.len().saturating_sub(1 + shared.len() / TIES_OF);
    // The byte after those that neighbours share is in the word, and so is one more.
    shared.get(last).map_or(0, |shared| (shared + 2).saturating_sub(size_of::<u64>()))
}

/// Returns true if few enough entries share a bucket. `ends` says where the entries of each bucket
/// end.
fn is_even(ends: &[u32]) -> bool {
    let (mut start, mut nodes, mut most) = (0, 0, 0);
    for end in ends {
        let len = (end - start) as usize;
        most = most.max(len);
        nodes += len.saturating_sub(BUCKET_SLOTS).div_ceil(NODE_SLOTS);
        start = *end;
    }
    most <= BUCKET_KEYS_MAX && nodes <= ends.len() * LINE_NODES_OF_64 / 64 + 1
}

/// A jitter for a leaf of such words, by a hash: the same words always give the same.
fn jitter(words: u64) -> u8 {
    let mixed = (words ^ words >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (u64::BITS - u8::BITS)) as u8
}

/// Builds one leaf.
struct LeafBuilder<'a, S> {
    entries: &'a [Entry],
    /// The leaf's words for wide keys.
    words: Vec<u64>,
    prefix: &'a [u8],
    /// The largest word that can come.
    end: u64,
    schema: std::marker::PhantomData<S>,
}

impl<'a, S: Schema> LeafBuilder<'a, S> {
    fn new(entries: &'a [Entry], end: u64, known: Option<&'a [u8]>, room: Room) -> Self {
        if let Some(prefix) = known.filter(|prefix| tells_apart::<S>(entries, prefix, room)) {
            let words = entries.iter().map(|entry| entry.word).collect();
            return Self { entries, words, prefix, end, schema: std::marker::PhantomData };
        }
        let prefix = match entries {
            [first, .., last] if S::WIDE => {
                let first = key::<S>(first);
                let shared = common_prefix_len(first, key::<S>(last));
                &first[..shared.min(most_prefix::<S>(entries, room))]
            }
            _ => &[],
        };
        let words = match S::WIDE {
            true => entries.iter().map(|entry| code_at(key::<S>(entry), prefix.len())).collect(),
            false => Vec::new(),
        };
        Self { entries, words, prefix, end, schema: std::marker::PhantomData }
    }

    /// The leaf's word for an entry.
    #[inline(always)]
    fn word(&self, i: usize) -> u64 {
        if S::WIDE { self.words[i] } else { self.entries[i].word }
    }

    /// Builds the leaf; none if there are too many entries for one that no line fits.
    fn build(&self, arena: &Arena, room: Room) -> Option<Box<BucketLeaf>> {
        let len = self.entries.len();
        let Some(last) = len.checked_sub(1) else {
            return Some(self.leaf(arena, BucketAddress::Line(BucketLine::new(0, 0, 1)), 1));
        };
        let (first, last) = (self.word(0), self.word(last));
        let line = match room {
            Room::Even if len <= BUCKET_SLOTS - 3 => Some((BucketLine::new(0, 0, 1), 1)),
            Room::Even | Room::Shrunk => {
                let is_shrunk = matches!(room, Room::Shrunk);
                let fill_2 = if is_shrunk { SHRUNK_FILL_2 } else { LINE_FILL_2 };
                let buckets = (len * 2).div_ceil(fill_2);
                Some((BucketLine::new(first, last, buckets), buckets))
            }
            Room::Dense => {
                let buckets = len.div_ceil(DENSE_FILL);
                Some((BucketLine::new(first, last, buckets), buckets))
            }
            Room::Behind(_) if !self.ends_regularly() => None,
            Room::Above(ahead) | Room::Behind(ahead) => self.line_ahead(ahead, false),
            Room::Below(ahead) => self.line_ahead(ahead, true),
        };
        if let Some((line, buckets)) = line
            && let Some(ends) = self.ends_by_line(&line, buckets)
        {
            let leaf = self.leaf(arena, BucketAddress::Line(line), buckets);
            return Some(self.fill(arena, leaf, &ends));
        }
        if matches!(room, Room::Shrunk) {
            return self.build(arena, Room::Even);
        }
        if let Room::Behind(ahead) = room
            && let Some(leaf) = self.build_open(arena, ahead)
        {
            return Some(leaf);
        }
        let fill = if matches!(room, Room::Dense) { DENSE_FILL } else { PIVOT_FILL };
        if len <= PIVOT_LEAF_MAX { self.build_by_pivots(arena, fill) } else { None }
    }

    /// Returns true if the last keys are even enough for a line to predict the next ones.
    fn ends_regularly(&self) -> bool {
        /// Keys at the end. Chosen, not measured: what five or six buckets hold.
        const SAMPLE: usize = 64;
        let len = self.entries.len();
        let start = len - len.min(SAMPLE);
        let gap = |i: usize| u128::from(self.word(i) - self.word(i - 1));
        let widest = (start + 1..len).map(gap).max().unwrap_or(0);
        let all = self.word(len - 1) - self.word(start);
        widest * (len - 1 - start) as u128 <= 2 * u128::from(all)
    }

    /// A line that leaves room for `ahead` keys above or below, as dense as those at that end.
    fn line_ahead(&self, ahead: usize, is_below: bool) -> Option<(BucketLine, usize)> {
        /// Keys at the end. Chosen, not measured: some twenty buckets, so that one uneven
        /// bucket changes the width by a twentieth.
        const SAMPLE: usize = 256;
        let len = self.entries.len();
        let (first, last) = (self.word(0), self.word(len - 1));
        let sample = len.min(SAMPLE);
        let at_end = if is_below { 0..sample } else { len - sample..len };
        let gaps = u128::from(self.word(at_end.end - 1) - self.word(at_end.start));
        let cell = gaps * APPEND_FILL as u128 / (sample as u128 - 1).max(1);
        let cell = u64::try_from(cell.max(1)).ok()?;
        let own = usize::try_from((last - first) / cell).ok()? + 1;
        let extra = ahead.div_ceil(APPEND_FILL).max(1);
        // The keys are denser elsewhere than at that end: a line would waste buckets.
        if own > len.div_ceil(APPEND_FILL) * 2 + 2 {
            return None;
        }
        let width = cell.saturating_mul(extra as u64);
        let (start, end) = if is_below {
            (first.saturating_sub(width), last)
        } else {
            (first, last.saturating_add(width).min(self.end.max(last)))
        };
        let buckets = usize::try_from((end - start) / cell).ok()? + 1;
        // The last bucket is a whole one, so that a regular run of keys fills all alike.
        let whole = start.saturating_add(cell.saturating_mul(buckets as u64) - 1);
        Some((BucketLine::new(start, whole, buckets), buckets))
    }

    /// The ends of the entries of each bucket that a line addresses; none if too many of them share
    /// a bucket.
    fn ends_by_line(&self, line: &BucketLine, buckets: usize) -> Option<Vec<u32>> {
        let len = self.entries.len();
        let place = |i: usize| line.at(self.word(i));
        // Most runs that no line fits show it at a few places.
        let mut starts = (0..len.saturating_sub(BUCKET_KEYS_MAX)).step_by(BUCKET_KEYS_MAX);
        if starts.any(|i| place(i) == place(i + BUCKET_KEYS_MAX)) {
            return None;
        }
        // Without a branch for each bucket, which the processor could not predict.
        let mut ends = vec![0; buckets];
        for i in 0..len {
            ends[place(i)] = i as u32 + 1;
        }
        let mut start = 0;
        for end in &mut ends {
            *end = start.max(*end);
            start = *end;
        }
        is_even(&ends).then_some(ends)
    }

    /// The ends of the entries of each bucket if buckets are found by the words of these entries,
    /// the lowest of each bucket.
    fn ends_by_pivots(&self, firsts: &[usize]) -> Option<Vec<u32>> {
        let word = |i: usize| capped(self.word(i));
        let mut ends = Vec::with_capacity(firsts.len());
        for &first in firsts.iter().skip(1) {
            // Entries that share the word are found in the same bucket. The walk looks only at as
            // many as a bucket may hold: otherwise, keys that all share a word would be passed once
            // for each bucket.
            let shares = |i: &usize| word(*i) == word(first);
            let lower = (0..first).rev().take(BUCKET_KEYS_MAX).take_while(shares).count();
            if lower == BUCKET_KEYS_MAX {
                return None;
            }
            ends.push((first - lower) as u32);
        }
        ends.push(self.entries.len() as u32);
        is_even(&ends).then_some(ends)
    }

    /// A leaf whose buckets are found by their lowest words, and which opens others for up to
    /// `ahead` keys above; none if words do not tell enough keys apart.
    fn build_open(&self, arena: &Arena, ahead: usize) -> Option<Box<BucketLeaf>> {
        let firsts = self.firsts(DENSE_FILL);
        let room = OPEN_LEAF_MAX.saturating_sub(self.entries.len());
        let more = ahead.min(room) / BUCKET_SLOTS;
        let ends = self.ends_by_pivots(&firsts).filter(|_| more > 0)?;
        let lowest = firsts.iter().map(|first| self.word(*first)).collect();
        let leaf = self.leaf(arena, BucketAddress::Open(lowest), firsts.len() + more);
        Some(self.fill(arena, leaf, &ends))
    }

    /// The first entry of each bucket that these entries need.
    fn firsts(&self, fill: usize) -> Vec<usize> {
        let len = self.entries.len();
        let buckets = len.div_ceil(fill);
        (0..buckets).map(|bucket| len * bucket / buckets).collect()
    }

    /// Pivots for buckets of these first entries; none if the entries are too uneven for that many.
    /// `ends` says where the entries of each bucket end, and moves to where they end by the pivots.
    fn pivots(&self, firsts: &[usize], ends: &mut [u32]) -> Option<Pivots> {
        let lowest: Vec<u64> = firsts.iter().map(|first| self.word(*first)).collect();
        let start_of = |at: usize| at.checked_sub(1).map_or(0, |before| ends[before]);
        let is_good = |pivot_block: &PivotBlock| {
            let mut start = start_of(pivot_block.first());
            (0..pivot_block.len()).all(|i| {
                let at = pivot_block.first() + i;
                let end = self.end_by_pivot_block(pivot_block, i + 1, start..ends[at]);
                let most = (ends[at] - start_of(at)).max(BUCKET_SLOTS as u32);
                let is_good = start < end && end - start <= most;
                start = end;
                is_good
            })
        };
        let pivots = Pivots::new(&lowest, is_good)?;
        let mut start = 0;
        for pivot_block in &pivots.pivot_blocks {
            for i in 1..pivot_block.len() {
                let end = &mut ends[pivot_block.first() + i - 1];
                *end = self.end_by_pivot_block(pivot_block, i, start..*end);
                start = *end;
            }
            start = ends[pivot_block.first() + pivot_block.len() - 1];
        }
        Some(pivots)
    }

    /// The end of the entries of a place, if the last of them share a step with the pivot block's
    /// place `next`.
    fn end_by_pivot_block(
        &self,
        pivot_block: &PivotBlock,
        next: usize,
        entries: Range<u32>,
    ) -> u32 {
        let is_next = |i: &u32| pivot_block.is_from(next, self.word(*i as usize));
        entries.end - entries.rev().take_while(is_next).count() as u32
    }

    /// Builds the leaf; none if its entries are too uneven for one.
    fn build_by_pivots(&self, arena: &Arena, fill: usize) -> Option<Box<BucketLeaf>> {
        let firsts = self.firsts(fill);
        let buckets = firsts.len();
        if let Some(mut ends) = self.ends_by_pivots(&firsts) {
            let pivots = self.pivots(&firsts, &mut ends)?;
            let leaf = self.leaf(arena, BucketAddress::Pivots(pivots), buckets);
            return Some(self.fill(arena, leaf, &ends));
        }
        assert!(S::WIDE, "no bucket found by whole words has more keys than its share");
        // Only byte strings have that many ties.
        let pivots = firsts.iter().map(|first| key::<S>(&self.entries[*first]).into());
        let leaf = self.leaf(arena, BucketAddress::Whole(pivots.collect()), buckets);
        let len = self.entries.len() as u32;
        let ends: Vec<u32> =
            firsts.iter().skip(1).map(|first| *first as u32).chain([len]).collect();
        Some(self.fill(arena, leaf, &ends))
    }

    fn leaf(&self, arena: &Arena, address: BucketAddress, buckets: usize) -> Box<BucketLeaf> {
        let mut leaf = BucketLeaf::new(arena, address, buckets, self.prefix, self.entries.len());
        if let Some(last) = self.entries.len().checked_sub(1).filter(|last| *last >= JITTER_MIN) {
            leaf.jitter = jitter(self.word(0) ^ self.word(last));
        }
        leaf
    }

    /// Fills a new leaf, whose buckets' entries end at `ends`.
    fn fill(&self, arena: &Arena, leaf: Box<BucketLeaf>, ends: &[u32]) -> Box<BucketLeaf> {
        let mut start = 0;
        for (at, end) in ends.iter().enumerate() {
            let end = *end as usize;
            debug_assert!(
                (start..end)
                    .all(|i| { at == leaf.place::<S>(self.word(i), self.probe(&self.entries[i])) })
            );
            let has_more = start + BUCKET_SLOTS <= self.entries.len();
            let entry = |i: usize| (self.word(start + i), self.entries[start + i].value);
            let filled =
                leaf.bucket(at).fill(end - start, has_more, entry, || leaf.new_node(arena));
            // `ends` allows for an eighth of the buckets and pivots for none.
            assert!(filled.is_ok(), "a new leaf has room for its entries");
            start = end;
        }
        leaf
    }

    fn probe(&self, entry: &'a Entry) -> KeyProbe<'a> {
        if S::WIDE {
            KeyProbe::wide(key::<S>(entry))
        } else {
            KeyProbe { word: entry.word, bytes: &[] }
        }
    }
}
