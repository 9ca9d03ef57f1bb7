//! Parts of scans: pairs in one buffer, and what one leaf gives of them.
//!
//! A leaf is copied while the host may be changing it: what is copied counts only if the leaf has
//! not changed meanwhile, which the caller checks.

use crate::{
    layout::{
        Bytes,
        format::{FIRST, HEAD_WORDS, KIND_INLINE, KIND_LONG_KEYS, LAST},
        to_words,
    },
    leaf::{Head, Leaf, Record, Side},
    prefetch::prefetch,
    primitive::AtomicU64,
};

/// The number of pairs whose records are prefetched before they are copied. Chosen, not measured: a
/// core has 10 to 16 cache misses under way at once, and eight records of up to three lines are 8
/// to 24.
const PAIRS_AHEAD: usize = 8;
/// The number of cache lines of a record that are prefetched: its head and key, and the beginning
/// of its value. The processor's own prefetcher follows from there.
pub(super) const RECORD_LINES: usize = 3;

/// The length that says that the host has a value.
const WITH_HOST: usize = usize::MAX;

/// Pairs of keys and values, whose bytes are in one buffer that keeps its memory.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    /// Those from `used` on are worth nothing.
    bytes: Vec<u8>,
    used: usize,
    spans: Vec<Span>,
}

/// Where a pair is in the buffer.
#[derive(Clone, Copy, Debug)]
struct Span {
    key_at: usize,
    key_len: usize,
    value_at: usize,
    /// [`WITH_HOST`] for a value that the host has.
    value_len: usize,
}

impl Pairs {
    /// Their number.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }

    /// Returns true if there are none.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The pair at an index; `None` instead of a value that the host has.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<(&[u8], Option<&[u8]>)> {
        self.spans.get(index).map(|span| self.at(span))
    }

    #[inline]
    fn at(&self, span: &Span) -> (&[u8], Option<&[u8]>) {
        let key = &self.bytes[span.key_at..span.key_at + span.key_len];
        let is_here = span.value_len != WITH_HOST;
        let value = is_here.then(|| &self.bytes[span.value_at..span.value_at + span.value_len]);
        (key, value)
    }

    /// All of them, in their order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], Option<&[u8]>)> {
        self.spans.iter().map(|span| self.at(span))
    }

    /// Forgets all.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.used = 0;
        self.spans.clear();
    }

    /// Forgets those from an index on.
    #[cfg(not(any(loom, shuttle)))]
    pub(super) fn truncate(&mut self, len: usize) {
        self.spans.truncate(len);
    }

    /// Forgets those whose keys are not to be kept.
    #[cfg(not(any(loom, shuttle)))]
    fn retain(&mut self, keeps: impl Fn(&[u8]) -> bool) {
        let mut spans = std::mem::take(&mut self.spans);
        spans.retain(|span| keeps(self.at(span).0));
        self.spans = spans;
    }

    /// Appends a pair; `None` stands for a value that the host has.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn push(&mut self, key: &[u8], value: Option<&[u8]>) {
        let (at, bytes) = (self.used, value.unwrap_or_default());
        let room = self.room(key.len() + bytes.len());
        room[..key.len()].copy_from_slice(key);
        room[key.len()..].copy_from_slice(bytes);
        self.spans.push(Span {
            key_at: at,
            key_len: key.len(),
            value_at: at + key.len(),
            value_len: value.map_or(WITH_HOST, <[u8]>::len),
        });
    }

    /// Appends the pair of a record whose leaf has this prefix.
    #[inline]
    fn push_record(&mut self, prefix: &[u8], record: &Record<'_, [AtomicU64]>) {
        let (at, key_len) = (self.used, record.key.len());
        let value_at = prefix.len() + to_words(key_len) * 8;
        let room = self.room(value_at + to_words(record.value.len()) * 8);
        let (begin, words) = room.split_at_mut(prefix.len());
        begin.copy_from_slice(prefix);
        record.copy_to(words.as_chunks_mut::<8>().0);
        let is_here = record.kind == KIND_INLINE;
        self.spans.push(Span {
            key_at: at,
            key_len: prefix.len() + key_len,
            value_at: at + value_at,
            value_len: if is_here { record.value.len() } else { WITH_HOST },
        });
    }

    /// The next bytes of the buffer, which hold anything.
    #[inline]
    fn room(&mut self, len: usize) -> &mut [u8] {
        let begin = self.used;
        self.used += len;
        if self.used > self.bytes.len() {
            self.bytes.resize(self.used.next_power_of_two(), 0);
        }
        &mut self.bytes[begin..self.used]
    }
}

#[cfg(not(any(loom, shuttle)))]
impl<'p> FromIterator<(&'p [u8], Option<&'p [u8]>)> for Pairs {
    fn from_iter<I: IntoIterator<Item = (&'p [u8], Option<&'p [u8]>)>>(pairs: I) -> Self {
        let mut all = Self::default();
        pairs.into_iter().for_each(|(key, value)| all.push(key, value));
        all
    }
}

/// A part of a scan: entries of one leaf, and where the scan goes on. A page that is read in place
/// of the one before begins where that said, and keeps its memory.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// Pairs in the order of the scan.
    pub(crate) pairs: Pairs,
    /// True if one of the keys stands for longer ones, which the host has.
    pub(crate) has_long_keys: bool,
    /// Where the next page begins: a key that it may have, going up; one that it has not, going
    /// down. `None` at the end of the keyspace.
    pub(crate) next: Option<Vec<u8>>,
    /// The slot where that is likely to be.
    pub(super) slot: Option<u32>,
}

/// The leaf that a page is read from.
#[derive(Clone, Copy)]
pub(super) struct PageLeaf<'r> {
    pub(super) slot: u32,
    pub(super) words: &'r [AtomicU64],
    pub(super) leaf: Leaf<'r, [AtomicU64]>,
}

impl Page {
    /// A page of these pairs, after which the next begins.
    #[cfg(not(any(loom, shuttle)))]
    pub(super) fn of(pairs: Pairs, next: Option<Vec<u8>>) -> Self {
        Self { pairs, next, ..Self::default() }
    }

    /// Keeps the part of the page that is within a range, which has its beginning: the next page
    /// begins where that ends.
    #[cfg(not(any(loom, shuttle)))]
    pub(super) fn clip(&mut self, range: &crate::ranges::KeyRange, reverse: bool) {
        self.pairs.retain(|key| range.has(key));
        let (end, is_beyond) = if reverse {
            let low = Some(&range.low).filter(|low| !low.is_empty());
            (low, self.next.as_ref().is_none_or(|next| *next <= range.low))
        } else {
            let high = range.high.as_ref();
            (high, self.next.as_ref().is_none_or(|next| high.is_some_and(|high| next >= high)))
        };
        if let (Some(end), true) = (end, is_beyond) {
            (self.next, self.slot) = (Some(end.clone()), None);
        }
    }

    fn begin(&mut self) {
        self.pairs.clear();
        (self.has_long_keys, self.next, self.slot) = (false, None, None);
    }

    /// The entries of a leaf at and after `from`, `limit` of them at most.
    pub(super) fn fill_up(
        &mut self,
        source: PageLeaf<'_>,
        head: &Head,
        from: &[u8],
        skips: bool,
        limit: usize,
    ) {
        self.begin();
        self.extend_up(source, head, from, skips, limit);
    }

    /// Adds the entries of a leaf at and after `from`, until there are `limit` of all. Those before
    /// them are of earlier leaves.
    pub(super) fn extend_up(
        &mut self,
        source: PageLeaf<'_>,
        head: &Head,
        from: &[u8],
        skips: bool,
        limit: usize,
    ) {
        (self.next, self.slot) = (None, None);
        source.prefetch_about(head, from);
        let begin = source.leaf.lower_bound(head, from);
        let copy = PairCopier::new(source, head);
        let mut index = begin;
        (begin..head.count.min(begin + PAIRS_AHEAD)).for_each(|index| source.prefetch(index));
        while index < head.count && self.pairs.len() < limit {
            source.prefetch(index + PAIRS_AHEAD);
            copy.push(index, self);
            if index == begin && skips && self.pairs.get(0).is_some_and(|(key, _)| key == from) {
                self.pairs.clear();
            }
            index += 1;
        }
        if index < head.count {
            (self.next, self.slot) = (copy.key(index), Some(source.slot));
        } else if head.flags & LAST == 0 {
            self.next = copy_of(source.leaf.high_fence());
            self.slot = Some(source.leaf.next());
        }
    }

    /// The entries of a leaf below `to`, or at it if it takes that, in descending order, `limit` of
    /// them at most.
    pub(super) fn fill_down(
        &mut self,
        source: PageLeaf<'_>,
        head: &Head,
        to: Option<&[u8]>,
        takes: bool,
        limit: usize,
    ) {
        self.begin();
        self.extend_down(source, head, to, takes, limit);
    }

    /// Adds the entries of a leaf below `to`, until there are `limit` of all. Those above them are
    /// of later leaves; if there are some, the leaf has none at `to`.
    pub(super) fn extend_down(
        &mut self,
        source: PageLeaf<'_>,
        head: &Head,
        to: Option<&[u8]>,
        takes: bool,
        limit: usize,
    ) {
        (self.next, self.slot) = (None, None);
        if let Some(to) = to {
            source.prefetch_about(head, to);
        }
        let end = to.map_or(head.count, |to| source.leaf.lower_bound(head, to));
        let copy = PairCopier::new(source, head);
        if let (Some(to), true) = (to, takes) {
            // An entry above `to` that stands for long keys has the host asked needlessly, at
            // worst.
            copy.push(end, self);
            if self.pairs.get(0).is_some_and(|(key, _)| key != to) {
                self.pairs.clear();
            }
        }
        let mut left = end;
        (end.saturating_sub(PAIRS_AHEAD)..end).rev().for_each(|index| source.prefetch(index));
        while left > 0 && self.pairs.len() < limit {
            left -= 1;
            source.prefetch(left.saturating_sub(PAIRS_AHEAD));
            copy.push(left, self);
        }
        if left > 0 {
            let lowest = self.pairs.iter().next_back().map(|(key, _)| key.to_vec());
            (self.next, self.slot) = (lowest, Some(source.slot));
        } else if head.flags & FIRST == 0 {
            self.next = copy_of(source.leaf.low_fence());
            self.slot = Some(source.leaf.previous());
        }
    }
}

/// What a leaf says of a range that goes down.
pub(super) enum Down<'k> {
    /// It has the next entries: those below this key, or at it if that is true.
    Fill(Option<&'k [u8]>, bool),
    /// Another leaf may have them.
    Go(u32),
}

/// What a leaf says of a range that goes down from a key, and has that if it takes it, or from the
/// end of all. `None` if the leaf answers for no keys.
pub(super) fn step_down<'k>(
    leaf: Leaf<'_, [AtomicU64]>,
    head: &Head,
    to: Option<&'k [u8]>,
    takes: bool,
) -> Option<Down<'k>> {
    let Some(key) = to else {
        let is_last = leaf.side(head, &[])? != Side::Right && head.flags & LAST != 0;
        return Some(if is_last { Down::Fill(None, true) } else { Down::Go(leaf.next()) });
    };
    Some(match leaf.side(head, key)? {
        Side::Inside => {
            // What is below a low fence is in the leaf before.
            let is_low = head.flags & FIRST == 0 && leaf.low_fence()?.equals(key);
            let goes_on = is_low && !takes;
            if goes_on { Down::Go(leaf.previous()) } else { Down::Fill(to, takes) }
        }
        Side::Left => Down::Go(leaf.previous()),
        Side::Right => {
            let is_high = leaf.high_fence()?.equals(key) && !takes;
            if is_high { Down::Fill(to, false) } else { Down::Go(leaf.next()) }
        }
    })
}

impl PageLeaf<'_> {
    /// Asks for the first lines of a record, if there is one.
    #[inline]
    fn prefetch(&self, index: usize) {
        self.prefetch_at(self.leaf.offset(index));
    }

    #[inline]
    fn prefetch_at(&self, offset: usize) {
        for line in 0..RECORD_LINES {
            self.words.get(offset / 8 + line * HEAD_WORDS).map(prefetch);
        }
    }

    /// Asks for the records that the search for a key is likely to look at.
    fn prefetch_about(&self, head: &Head, key: &[u8]) {
        let rank = self.leaf.expected_rank(head, key);
        for offset in self.leaf.offsets_about(head, rank) {
            self.words.get(offset / 8).map(prefetch);
        }
    }
}

/// What copies the entries of a leaf.
struct PairCopier<'r> {
    source: PageLeaf<'r>,
    /// The bytes with which every key begins.
    prefix: Vec<u8>,
}

impl<'r> PairCopier<'r> {
    fn new(source: PageLeaf<'r>, head: &Head) -> Self {
        Self { source, prefix: copy_of(source.leaf.prefix(head)).unwrap_or_default() }
    }

    /// Appends an entry to a page, if it is one.
    #[inline]
    fn push(&self, index: usize, page: &mut Page) {
        if let Some(record) = self.source.leaf.record(index) {
            page.has_long_keys |= record.kind == KIND_LONG_KEYS;
            page.pairs.push_record(&self.prefix, &record);
        }
    }

    /// The key of an entry.
    fn key(&self, index: usize) -> Option<Vec<u8>> {
        let mut key = self.prefix.clone();
        self.source.leaf.record(index)?.key.append_to(&mut key);
        Some(key)
    }
}

fn copy_of(bytes: Option<Bytes<'_, [AtomicU64]>>) -> Option<Vec<u8>> {
    let mut copy = Vec::new();
    bytes?.append_to(&mut copy);
    Some(copy)
}
