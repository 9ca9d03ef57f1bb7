//! What leaves a run of entries becomes: how many, how they are addressed, and where they have room.
//!
//! Nothing here is shared yet: leaves are built by one thread from entries in ascending order.
#![allow(unsafe_code, reason = "reads the keys of records that the caller holds")]

use std::ops::Range;

use rhumb_model::code::{code_at, common_prefix_len};

use super::{
    address::{Line, PIVOTS_MAX, Pivots},
    raw::{
        bucket::{BUCKET_SLOTS, Bucket, NODE_SLOTS, NoRoom, Rank},
        leaf::{Address, Leaf},
        record,
    },
    route::Bound,
    schema::{Probe, Schema},
};
use crate::sync::{arena::Arena, primitive::in_models};

/// The most keys of a new leaf: replacing a leaf takes some nanoseconds for each.
const LEAF_MAX: usize = in_models(6000, 12);
/// Larger runs become leaves of at most so many keys.
pub(crate) const LEAF_TARGET: usize = in_models(3600, 6);
/// The most keys of a leaf whose buckets are found by their lowest keys,
const PIVOT_LEAF_MAX: usize = in_models(3600, 8);
const _: () = assert!(PIVOT_LEAF_MAX <= PIVOTS_MAX * PIVOT_FILL);
/// and what larger runs of such keys are cut into.
const PIVOT_LEAF_TARGET: usize = in_models(2900, 5);
/// Leaves of fewer keys are kept in one piece wherever they grow.
const PIECE_MIN: usize = in_models(1024, 8);
/// Keys of 2 buckets that a line addresses: some buckets then have more keys than slots.
const LINE_FILL_2: usize = in_models(19, 5);
/// The same where keys are being removed.
const SHRUNK_FILL_2: usize = in_models(23, 6);
/// Keys of a bucket that is found by its lowest key.
const PIVOT_FILL: usize = in_models(9, 2);
/// Keys of a bucket that will see few more.
const DENSE_FILL: usize = in_models(14, 4);
/// Keys of a bucket that is to be filled in order.
const APPEND_FILL: usize = in_models(13, 3);
/// A line is good enough if it needs at most so many overflow nodes for 64 buckets.
const LINE_NODES_OF_64: usize = 10;
/// The most keys that a new bucket and its nodes hold.
const BUCKET_KEYS_MAX: usize = BUCKET_SLOTS + 2 * NODE_SLOTS;

/// An entry on its way from leaf to leaf: the word of an integer key with that of its value, or any
/// word with a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) word: u64,
    pub(crate) value: u64,
}

/// The key of an entry whose value is a record. The caller holds what keeps it.
pub(crate) fn key(entry: &Entry) -> &[u8] {
    // SAFETY: entries of wide keys hold records, which live while the leaf that they came from can
    // be held; the caller is pinned or has them to itself.
    unsafe { record::key(entry.value) }
}

/// Appends the present entries of a bucket in ascending order.
#[inline]
pub(crate) fn append_sorted<S: Schema>(bucket: &Bucket, entries: &mut Vec<Entry>) {
    let start = entries.len();
    if !S::WIDE {
        entries.resize(start + BUCKET_SLOTS, Entry { word: 0, value: 0 });
        let places = &mut entries[start..];
        let mut len = 0;
        let ranked = bucket.for_each_ranked(|Rank { of, above, word, value }| {
            len = of;
            places[of - 1 - above] = Entry { word, value };
        });
        entries.truncate(start + len);
        if ranked.is_some() {
            return;
        }
    }
    bucket.for_each(|word, value| entries.push(Entry { word, value }));
    let new = &mut entries[start..];
    if S::WIDE {
        new.sort_unstable_by(|a, b| key(a).cmp(key(b)));
    } else {
        new.sort_unstable_by_key(|entry| entry.word);
    }
}

/// Where a leaf has grown; the range is that of the entries of the bucket that overflowed.
#[derive(Clone, Debug)]
pub(crate) enum Growth {
    Even,
    /// It has shrunk.
    None,
    /// At its upper end.
    Above(Range<usize>),
    /// At its lower end.
    Below(Range<usize>),
    /// In one place.
    Within(Range<usize>),
}

/// A new leaf and its first entry.
pub(crate) struct Part {
    pub(crate) first: usize,
    pub(crate) leaf: Box<Leaf>,
}

/// How much room a leaf has, and where.
#[derive(Clone, Copy)]
enum Room {
    Even,
    /// For few more keys, in no order.
    Shrunk,
    /// For none.
    Dense,
    /// For so many keys above the last.
    Above(usize),
    /// For so many keys below the first.
    Below(usize),
}

/// The leaves of all entries; at least one. `upper` is the lower bound of the leaf behind them.
pub(crate) fn parts<S: Schema>(
    arena: &Arena,
    entries: &[Entry],
    growth: Growth,
    upper: Option<&Bound>,
) -> Vec<Part> {
    let len = entries.len();
    let ahead = len.min(LEAF_TARGET);
    let mut pieces: Vec<(Range<usize>, Room)> = Vec::new();
    match growth {
        Growth::Above(_) if len < PIECE_MIN => pieces.push((0..len, Room::Above(ahead))),
        Growth::Below(_) if len < PIECE_MIN => pieces.push((0..len, Room::Below(ahead))),
        Growth::Above(hot) => {
            split(0..hot.start, Room::Dense, &mut pieces);
            pieces.push((hot.start..len, Room::Above(ahead)));
        }
        Growth::Below(hot) => {
            pieces.push((0..hot.end, Room::Below(ahead)));
            split(hot.end..len, Room::Dense, &mut pieces);
        }
        Growth::Within(hot) if len >= PIECE_MIN / 4 => {
            split(0..hot.start, Room::Even, &mut pieces);
            match widest_gap::<S>(&entries[hot.clone()]) {
                // Keys are appended before the gap.
                Some(gap) => {
                    let cut = hot.start + gap;
                    pieces.push((hot.start..cut, Room::Above(4 * hot.len())));
                    split(cut..len, Room::Even, &mut pieces);
                }
                None => {
                    pieces.push((hot.clone(), Room::Even));
                    split(hot.end..len, Room::Even, &mut pieces);
                }
            }
        }
        Growth::None => split(0..len, Room::Shrunk, &mut pieces),
        Growth::Even | Growth::Within(_) => split(0..len, Room::Even, &mut pieces),
    }
    pieces.retain(|(range, _)| !range.is_empty());
    if pieces.is_empty() {
        pieces.push((0..0, Room::Even));
    }
    avoid_largest_bound::<S>(entries, &mut pieces);
    let end = upper.filter(|_| !S::WIDE).map_or(u64::MAX, |bound| bound.word - 1);
    let last = pieces.len() - 1;
    let mut parts = Vec::with_capacity(pieces.len());
    for (i, (range, room)) in pieces.into_iter().enumerate() {
        let end = if i == last { end } else { u64::MAX };
        let mut build = |range: Range<usize>, room| {
            let leaf = Builder::<S>::new(&entries[range.clone()], end).build(arena, room)?;
            parts.push(Part { first: range.start, leaf });
            Some(())
        };
        if build(range.clone(), room).is_none() {
            let count = range.len().div_ceil(PIVOT_LEAF_TARGET);
            for range in cuts(range, count) {
                build(range, Room::Even).expect("smaller runs need no line");
            }
        }
    }
    parts
}

/// Bounds tell the two largest words not apart, so that no leaf may start with the largest.
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

/// Behind how many entries there is a gap that is wider by far than all others together.
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

/// `count` pieces of a range.
fn cuts(range: Range<usize>, count: usize) -> impl Iterator<Item = Range<usize>> {
    let cut = move |i: usize| range.start + range.len() * i / count;
    (0..count).map(move |i| cut(i)..cut(i + 1))
}

/// Builds one leaf.
struct Builder<'a, S> {
    entries: &'a [Entry],
    words: Vec<u64>,
    prefix: &'a [u8],
    /// The largest word that can come.
    end: u64,
    schema: std::marker::PhantomData<S>,
}

impl<'a, S: Schema> Builder<'a, S> {
    fn new(entries: &'a [Entry], end: u64) -> Self {
        let prefix = match entries {
            [first, .., last] if S::WIDE => {
                let first = key(first);
                &first[..common_prefix_len(first, key(last))]
            }
            _ => &[],
        };
        let word = |entry: &Entry| {
            if S::WIDE { code_at(key(entry), prefix.len()) } else { entry.word }
        };
        let words = entries.iter().map(word).collect();
        Self { entries, words, prefix, end, schema: std::marker::PhantomData }
    }

    /// The leaf; none if it would need a line and has none.
    fn build(&self, arena: &Arena, room: Room) -> Option<Box<Leaf>> {
        let len = self.words.len();
        let (Some(first), Some(last)) = (self.words.first(), self.words.last()) else {
            return Some(self.leaf(arena, Address::Line(Line::new(0, 0, 1)), 1));
        };
        let line = match room {
            Room::Even if len <= BUCKET_SLOTS - 3 => Some((Line::new(0, 0, 1), 1)),
            Room::Even | Room::Shrunk => {
                let is_shrunk = matches!(room, Room::Shrunk);
                let fill_2 = if is_shrunk { SHRUNK_FILL_2 } else { LINE_FILL_2 };
                let buckets = (len * 2).div_ceil(fill_2);
                Some((Line::new(*first, *last, buckets), buckets))
            }
            Room::Dense => {
                let buckets = len.div_ceil(DENSE_FILL);
                Some((Line::new(*first, *last, buckets), buckets))
            }
            Room::Above(ahead) => self.line_ahead(ahead, false),
            Room::Below(ahead) => self.line_ahead(ahead, true),
        };
        if let Some((line, buckets)) = line
            && let Some(places) = self.places(buckets, |word| line.at(word))
        {
            let leaf = self.leaf(arena, Address::Line(line), buckets);
            return Some(self.fill(arena, leaf, |i| usize::from(places[i])));
        }
        if matches!(room, Room::Dense | Room::Shrunk) {
            return self.build(arena, Room::Even);
        }
        (len <= PIVOT_LEAF_MAX).then(|| self.build_by_pivots(arena))
    }

    /// A line that leaves room for `ahead` keys above or below, as dense as those at that end.
    fn line_ahead(&self, ahead: usize, is_below: bool) -> Option<(Line, usize)> {
        const SAMPLE: usize = 256;
        let words = &self.words;
        let (first, last) = (*words.first()?, *words.last()?);
        let sample = words.len().min(SAMPLE);
        let at_end = if is_below { &words[..sample] } else { &words[words.len() - sample..] };
        let gaps = u128::from(at_end[sample - 1] - at_end[0]);
        let cell = gaps * APPEND_FILL as u128 / (sample as u128 - 1).max(1);
        let cell = u64::try_from(cell.max(1)).ok()?;
        let own = usize::try_from((last - first) / cell).ok()? + 1;
        let extra = ahead.div_ceil(APPEND_FILL).max(1);
        // Denser elsewhere than at that end: a line would waste buckets.
        if own > words.len().div_ceil(APPEND_FILL) * 2 + 2 {
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
        Some((Line::new(start, whole, buckets), buckets))
    }

    /// The place of each entry, unless too many of them share a bucket.
    fn places(&self, buckets: usize, place: impl Fn(u64) -> usize) -> Option<Vec<u16>> {
        let places: Vec<u16> = self.words.iter().map(|word| place(*word) as u16).collect();
        let mut nodes = 0;
        for same in places.chunk_by(|a, b| a == b) {
            if same.len() > BUCKET_KEYS_MAX {
                return None;
            }
            nodes += same.len().saturating_sub(BUCKET_SLOTS).div_ceil(NODE_SLOTS);
        }
        (nodes <= buckets * LINE_NODES_OF_64 / 64 + 1).then_some(places)
    }

    fn build_by_pivots(&self, arena: &Arena) -> Box<Leaf> {
        let len = self.words.len();
        let buckets = len.div_ceil(PIVOT_FILL);
        let first_of = |bucket: usize| len * bucket / buckets;
        let lowest: Vec<u64> = (0..buckets).map(|bucket| self.words[first_of(bucket)]).collect();
        let pivots = Pivots::new(&lowest);
        let places = self.places(buckets, |word| pivots.at(word));
        if let Some(places) = places {
            let leaf = self.leaf(arena, Address::Pivots(pivots), buckets);
            return self.fill(arena, leaf, |i| usize::from(places[i]));
        }
        assert!(S::WIDE, "no bucket found by whole words has more keys than its share");
        // Only byte strings tie so often.
        let pivots = (0..buckets).map(|bucket| key(&self.entries[first_of(bucket)]).into());
        let leaf = self.leaf(arena, Address::Whole(pivots.collect()), buckets);
        self.fill(arena, leaf, |i| (i * buckets + buckets - 1) / len)
    }

    fn leaf(&self, arena: &Arena, address: Address, buckets: usize) -> Box<Leaf> {
        Leaf::new(arena, address, buckets, self.prefix, self.entries.len())
    }

    fn fill(&self, arena: &Arena, leaf: Box<Leaf>, place: impl Fn(usize) -> usize) -> Box<Leaf> {
        for (i, (entry, word)) in self.entries.iter().zip(&self.words).enumerate() {
            debug_assert_eq!(place(i), leaf.place::<S>(*word, self.probe(entry)), "of {i}");
            let mut bucket = leaf.bucket(place(i)).unshared();
            let added = bucket.add(*word, entry.value, || leaf.new_node(arena));
            // `places` allows for an eighth of the buckets and pivots for none.
            assert!(!matches!(added, Err(NoRoom)), "a new leaf has room for its entries");
        }
        leaf
    }

    fn probe(&self, entry: &'a Entry) -> Probe<'a> {
        if S::WIDE { Probe::wide(key(entry)) } else { Probe { word: entry.word, bytes: &[] } }
    }
}
