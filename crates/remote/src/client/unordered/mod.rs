//! Gets out of leaves that are read without order.
//!
//! A get is two round trips: one brings the head of the leaf that should hold the key, one the
//! record that the head names. Leaves of up to a kibibyte come as a whole, in one. Several keys
//! share each trip. What comes proves itself by checksums (`leaf::proof`), or is read again. A
//! record that was found at the same place before is read there, in one trip ([`hints`]).

mod hints;
#[cfg(test)]
mod tests;

use std::{iter, ops::Range, sync::Arc};

use crate::{
    client::{
        Outcome, States,
        page::{Down, Page, PageLeaf, step_down},
    },
    error::Result,
    layout::{
        Geometry, Memory,
        format::{KIND_INLINE, LATCHED, head},
        to_words,
    },
    leaf::{
        Leaf, Needle, Side,
        proof::{head_words, record_seed, record_words},
        whole::{is_head_whole, is_leaf_whole, is_record_whole},
    },
    message::{Extent, Part},
    primitive::{AtomicU64, Ordering},
};

use hints::Hint;
pub(in crate::client) use hints::Hints;

/// Leaves that come as a whole: a second trip costs more than the bytes do.
const WHOLE_BYTES: usize = 1_024;

/// Bytes of prefix and fences that come with a head: those of short keys. Where they are longer the
/// whole leaf is read.
const FENCE_BYTES: usize = 64;

/// Trips for the head of a leaf, for each key, before the host is asked: four links, as readers of
/// mapped memory follow, and as many changes meanwhile.
const TRIES_MAX: u32 = 8;

/// Leaves of a range that come in one trip, at most, and the most bytes that they have together:
/// what 100 Gbit/s bring in 10 microseconds.
const RANGE_LEAVES: usize = 8;
const RANGE_BYTES: usize = 128 << 10;

/// Entries that a leaf of a range is taken to have, at least: fewer than most have.
const RANGE_ENTRIES: usize = 16;

/// Reads pieces of a region, without an order between their lines.
pub(in crate::client) trait Unordered {
    /// Puts the words of pieces into `out`, piece after piece, in place of what was there; returns
    /// false if the region cannot be read now, or does not have all of them.
    ///
    /// # Errors
    ///
    /// Those of the way there.
    fn bring(&self, extents: &[Extent], out: &mut Vec<AtomicU64>) -> Result<bool>;

    /// The hints of the region that is read now, if there is one. Another region has others: if
    /// they are the same before and after something was brought, it is of the region that they are
    /// of.
    fn hints(&self) -> Option<Arc<Hints>>;
}

/// The leaves of a region.
pub(in crate::client) struct Leaves<'f, F> {
    fabric: &'f F,
    geometry: Geometry,
    /// What was learnt by earlier gets; `None` where heads are to be read.
    hints: Option<Arc<Hints>>,
    states: Option<&'f States>,
}

/// A key on its way.
struct Pending<'k> {
    /// Which of the keys it is.
    index: usize,
    needle: Needle<'k>,
    slot: u32,
    /// Where its record is looked for before anything else.
    hint: Option<Hint>,
    /// True if the leaf is to come as a whole.
    is_whole: bool,
    tries: u32,
    /// The leaf's state when all records that might have had the key, which were read after its
    /// head, had others. If the leaf is in it still, they are those that the head named.
    without: Option<u64>,
}

/// What a head says of a key.
enum HeadVerdict {
    Is(Outcome),
    /// Another leaf answers.
    Go(u32),
    /// The leaf was being changed.
    Again,
    /// The fences did not come with the head.
    Whole,
    /// These entries may have the key.
    Look(Vec<usize>),
}

/// Where the words of a leaf, and those of its records that may have the key, are among what came.
struct Came {
    head: Range<usize>,
    /// The entry, where its record begins in the leaf, and where it is among the words.
    records: Vec<(usize, usize, Range<usize>)>,
}

impl<'f, F: Unordered> Leaves<'f, F> {
    pub(in crate::client) fn new(fabric: &'f F, geometry: Geometry) -> Self {
        Self { fabric, geometry, hints: fabric.hints(), states: None }
    }

    /// The same that notes in which states it finds leaves, and therefore reads their heads. What
    /// was noted before is forgotten.
    pub(in crate::client) fn noting(self, states: &'f States) -> Self {
        states.0.borrow_mut().clear();
        self.noting_more(states)
    }

    /// The same that notes states beside those that were noted before.
    pub(in crate::client) fn noting_more(self, states: &'f States) -> Self {
        Self { hints: None, states: Some(states), ..self }
    }

    /// Returns true if all leaves are in the states that were noted: then all that was read of them
    /// was there at one moment.
    ///
    /// # Errors
    ///
    /// Those of the way there.
    pub(in crate::client) fn are_unchanged(&self, states: &States) -> Result<bool> {
        let states = states.0.borrow();
        let extents: Vec<Extent> =
            states.iter().map(|(slot, _)| self.extent(*slot, 0..1)).collect();
        let mut out = Vec::new();
        // planted: states-leaves-without-order-not
        Ok(self.fabric.bring(&extents, &mut out)?
            && states
                .iter()
                .zip(&out)
                .all(|((_, state), word)| u64::from_le(word.load(Ordering::Relaxed)) == *state))
    }

    /// Gets keys from leaves that should hold them: `each` is called once for each key, with its
    /// index, what was found and its value. Those that come to no answer are [`Outcome::Busy`].
    /// Returns false if the region cannot be read; some keys have had no call then.
    ///
    /// # Errors
    ///
    /// As [`Unordered::bring`].
    pub(in crate::client) fn get_many<'k>(
        &self,
        wanted: impl IntoIterator<Item = (u32, &'k [u8])>,
        mut each: impl FnMut(usize, Outcome, &[u8]),
    ) -> Result<bool> {
        let mut pending: Vec<Pending<'k>> = wanted
            .into_iter()
            .enumerate()
            .map(|(index, (slot, key))| {
                let needle = Needle::new(self.geometry.short(key));
                let hint = self.hints.as_ref().and_then(|hints| hints.of(needle.key));
                let is_whole = self.geometry.leaf_bytes() <= WHOLE_BYTES;
                Pending { index, needle, slot, hint, is_whole, tries: 0, without: None }
            })
            .collect();
        let (mut words, mut more) = (Vec::new(), Vec::new());
        while !pending.is_empty() {
            let extents: Vec<Extent> = pending.iter().flat_map(|key| self.extents(key)).collect();
            if !self.fabric.bring(&extents, &mut words)? {
                return Ok(false);
            }
            let (mut looks, mut next, mut at) = (Vec::new(), Vec::new(), 0);
            for key in pending.drain(..) {
                let len: usize = self.extents(&key).map(|extent| extent.len as usize / 8).sum();
                let range = at..at + len;
                at = range.end;
                if let Some(hint) = key.hint {
                    next.extend(self.take_hint(key, hint, &words[range], &mut each));
                    continue;
                }
                match self.step(&key, &words[range.clone()]) {
                    HeadVerdict::Is(outcome) => each(key.index, outcome, &[]),
                    HeadVerdict::Look(entries) => {
                        let records = self.records(&words[range.clone()], &entries);
                        looks.push((key, Came { head: range, records }));
                    }
                    HeadVerdict::Go(slot) => next.extend(self.again(key, slot, false, &mut each)),
                    HeadVerdict::Again => {
                        let slot = key.slot;
                        next.extend(self.again(key, slot, false, &mut each));
                    }
                    HeadVerdict::Whole => {
                        let slot = key.slot;
                        next.extend(self.again(key, slot, true, &mut each));
                    }
                }
            }
            if !self.bring_records(&mut looks, &words, &mut more)? {
                return Ok(false);
            }
            for (key, came) in looks {
                next.extend(self.finish(key, &came, &words, &more, &mut each));
            }
            pending = next;
        }
        Ok(true)
    }

    /// Takes what was read by a hint for the answer, or returns the key, whose hint is forgotten.
    fn take_hint<'k>(
        &self,
        key: Pending<'k>,
        hint: Hint,
        words: &[AtomicU64],
        each: &mut impl FnMut(usize, Outcome, &[u8]),
    ) -> Option<Pending<'k>> {
        let (hints, mut value) = (self.hints.as_deref()?, Vec::new());
        // Of another region, which has taken this one's place, the hint says nothing.
        let is_ours = self.fabric.hints().is_some_and(|now| std::ptr::eq(&*now, hints));
        // planted: hints-host-followed-region-next
        if is_ours && hint.read(self.geometry, key.needle.key, words, &mut value) {
            hints.learn(key.needle.key, hint);
            each(key.index, Outcome::Found, &value);
            return None;
        }
        hints.forget(key.needle.key, hint);
        Some(Pending { hint: None, ..key })
    }

    /// Takes what records say for the answer, or returns the key if that is not sure.
    fn finish<'k>(
        &self,
        key: Pending<'k>,
        came: &Came,
        words: &[AtomicU64],
        more: &[AtomicU64],
        each: &mut impl FnMut(usize, Outcome, &[u8]),
    ) -> Option<Pending<'k>> {
        let (slot, mut value) = (key.slot, Vec::new());
        let key = match self.find(&key, came, words, more, &mut value) {
            // What came as a whole is of one moment.
            // planted: absence-records-read-without-order
            Some(Outcome::Absent) if !key.is_whole => {
                let state = words[came.head.start..].load(head::STATE);
                Pending { without: Some(state), ..key }
            }
            Some(outcome) => {
                each(key.index, outcome, &value);
                return None;
            }
            None => key,
        };
        self.again(key, slot, false, each)
    }

    /// Reads the next entries at and after `from`, in ascending order, out of the leaf that should
    /// hold it and some that follow: `limit` of them at most. False if the host must be asked; the
    /// page is worth nothing then.
    ///
    /// # Errors
    ///
    /// As [`Unordered::bring`].
    pub(in crate::client) fn page_up(
        &self,
        slot: u32,
        (from, skips): (&[u8], bool),
        limit: usize,
        page: &mut Page,
    ) -> Result<bool> {
        let all = self.geometry.leaf_words();
        let mut count = self.range_leaves(limit);
        let (mut slot, mut words) = (slot, Vec::new());
        for _ in 0..TRIES_MAX {
            // The leaves of a run lie side by side.
            let extent = |at: usize| self.leaf_extent(slot.saturating_add(at as u32));
            let extents: Vec<Extent> = (0..count).map(extent).collect();
            if !self.fabric.bring(&extents, &mut words)? {
                if count == 1 {
                    return Ok(false);
                }
                // The last of them may be beyond the region.
                count = 1;
                continue;
            }
            let Some(first) = self.whole(&words[..all]) else { continue };
            slot = match first.side(&first.head(), from) {
                None => return Ok(false),
                Some(Side::Left) => first.previous(),
                Some(Side::Right) => first.next(),
                Some(Side::Inside) => {
                    self.fill((slot, first), &words, (from, skips), limit, page);
                    return Ok(true);
                }
            };
        }
        Ok(false)
    }

    /// Reads the next entries below `to`, or at it if it takes that, in descending order, out of
    /// the leaf that should hold them and some before it: `limit` of them at most. Without `to`
    /// that is the last leaf. False if the host must be asked; the page is worth nothing then.
    ///
    /// # Errors
    ///
    /// As [`Unordered::bring`].
    pub(in crate::client) fn page_down(
        &self,
        slot: u32,
        (to, takes): (Option<&[u8]>, bool),
        limit: usize,
        page: &mut Page,
    ) -> Result<bool> {
        let (mut slot, mut words) = (slot, Vec::new());
        for _ in 0..TRIES_MAX {
            // The leaves of a run lie side by side.
            let count = self.range_leaves(limit).min(slot as usize + 1);
            let first = slot - (count as u32 - 1);
            let extents: Vec<Extent> = (first..=slot).map(|slot| self.leaf_extent(slot)).collect();
            if !self.fabric.bring(&extents, &mut words)? {
                return Ok(false);
            }
            let all = words.chunks(self.geometry.leaf_words());
            let mut leaves = (0..=slot).rev().zip(all.rev());
            let Some((_, words)) = leaves.next() else { return Ok(false) };
            let Some(leaf) = self.whole(words) else { continue };
            let leaf_head = leaf.head();
            match step_down(leaf, &leaf_head, to, takes) {
                None => return Ok(false),
                Some(Down::Go(other)) => slot = other,
                Some(Down::Fill(to, takes)) => {
                    let source = PageLeaf { slot, words, leaf };
                    page.fill_down(source, &leaf_head, to, takes, limit);
                    self.fill_down(leaves, limit, page);
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Adds to a page out of leaves of neighbouring slots, for as long as each is the one before.
    fn fill_down<'w>(
        &self,
        leaves: impl Iterator<Item = (u32, &'w [AtomicU64])>,
        limit: usize,
        page: &mut Page,
    ) {
        for (slot, words) in leaves {
            if page.pairs.len() >= limit || page.has_long_keys {
                return;
            }
            let (Some(next), Some(leaf)) = (page.next.clone(), self.whole(words)) else { return };
            let leaf_head = leaf.head();
            let step = step_down(leaf, &leaf_head, Some(&next), false);
            let Some(Down::Fill(to, takes)) = step else { return };
            page.extend_down(PageLeaf { slot, words, leaf }, &leaf_head, to, takes, limit);
        }
    }

    /// Leaves that should have as many entries, within what comes in one trip.
    fn range_leaves(&self, limit: usize) -> usize {
        let most = (RANGE_BYTES / self.geometry.leaf_bytes()).clamp(1, RANGE_LEAVES);
        (limit / RANGE_ENTRIES + 1).min(most)
    }

    /// All of a leaf.
    fn leaf_extent(&self, slot: u32) -> Extent {
        self.extent(slot, 0..self.geometry.leaf_words())
    }

    /// A leaf that is all there, as it was at one moment.
    fn whole<'w>(&self, words: &'w [AtomicU64]) -> Option<Leaf<'w, [AtomicU64]>> {
        is_leaf_whole(words, self.geometry).then(|| Leaf::new(words, self.geometry))
    }

    /// Fills a page from leaves of neighbouring slots, for as long as each follows the one before.
    fn fill(
        &self,
        (first, first_leaf): (u32, Leaf<'_, [AtomicU64]>),
        words: &[AtomicU64],
        (from, skips): (&[u8], bool),
        limit: usize,
        page: &mut Page,
    ) {
        for (slot, words) in (first..).zip(words.chunks(self.geometry.leaf_words())) {
            let leaf = if slot == first { Some(first_leaf) } else { self.whole(words) };
            let Some(leaf) = leaf else { return };
            let (source, leaf_head) = (PageLeaf { slot, words, leaf }, leaf.head());
            let state = words.load(head::STATE);
            if slot == first {
                self.record_state(slot, state);
                page.fill_up(source, &leaf_head, from, skips, limit);
            } else {
                let Some(next) = page.next.clone() else { return };
                if leaf.side(&leaf_head, &next) != Some(Side::Inside) {
                    return;
                }
                self.record_state(slot, state);
                page.extend_up(source, &leaf_head, &next, false, limit);
            }
            if page.pairs.len() >= limit || page.has_long_keys {
                return;
            }
        }
    }

    /// A key that is looked for once more, unless that was done too often.
    fn again<'k>(
        &self,
        key: Pending<'k>,
        slot: u32,
        is_whole: bool,
        each: &mut impl FnMut(usize, Outcome, &[u8]),
    ) -> Option<Pending<'k>> {
        if key.tries >= TRIES_MAX {
            each(key.index, Outcome::Busy, &[]);
            return None;
        }
        let (is_whole, tries) = (is_whole || key.is_whole, key.tries + 1);
        Some(Pending { slot, is_whole, tries, ..key })
    }

    /// Words of a leaf.
    fn extent(&self, slot: u32, words: Range<usize>) -> Extent {
        let guard = u64::from(slot) * self.geometry.leaf_bytes() as u64;
        let (at, len) = (guard + words.start as u64 * 8, words.len() as u32 * 8);
        Extent { part: Part::Leaves, at, len, guard }
    }

    /// What is read of a key first: the head of its leaf, or the state and the record of a hint.
    fn extents(&self, key: &Pending<'_>) -> impl Iterator<Item = Extent> {
        let all = self.geometry.leaf_words();
        let head = to_words(self.geometry.rest() + FENCE_BYTES).min(all);
        let (first, second) = match &key.hint {
            Some(hint) => {
                let state = head::STATE..head::STATE + 1;
                (self.extent(hint.slot, state), Some(self.extent(hint.slot, hint.record())))
            }
            None => (self.extent(key.slot, 0..if key.is_whole { all } else { head }), None),
        };
        iter::once(first).chain(second)
    }

    /// What the words of a leaf, of which there may be the first alone, say of a key.
    fn step(&self, key: &Pending<'_>, words: &[AtomicU64]) -> HeadVerdict {
        if head_words(words, self.geometry) > words.len() {
            return HeadVerdict::Whole;
        }
        let state = words.load(head::STATE);
        let is_whole = if key.is_whole {
            // planted: whole-leaf-proven-head-alone
            is_leaf_whole(words, self.geometry)
        } else {
            // planted: head-read-without-order-not
            state & LATCHED == 0 && is_head_whole(words, self.geometry)
        };
        if !is_whole {
            return HeadVerdict::Again;
        }
        let leaf = Leaf::new(words, self.geometry);
        let leaf_head = leaf.head();
        match leaf.side(&leaf_head, key.needle.key) {
            None => HeadVerdict::Is(Outcome::Busy),
            Some(Side::Left) => HeadVerdict::Go(leaf.previous()),
            Some(Side::Right) => HeadVerdict::Go(leaf.next()),
            Some(Side::Inside) => {
                let entries: Vec<usize> = leaf.candidates(&leaf_head, &key.needle).collect();
                if entries.is_empty() || key.without == Some(state) {
                    self.record_state(key.slot, state);
                    return HeadVerdict::Is(Outcome::Absent);
                }
                HeadVerdict::Look(entries)
            }
        }
    }

    fn record_state(&self, slot: u32, state: u64) {
        if let Some(states) = self.states {
            states.0.borrow_mut().push((slot, state));
        }
    }

    /// Where the records of entries are in the leaf. A record ends where the next one begins, or
    /// where what is in use does.
    fn records(&self, words: &[AtomicU64], entries: &[usize]) -> Vec<(usize, usize, Range<usize>)> {
        let leaf = Leaf::new(words, self.geometry);
        let leaf_head = leaf.head();
        let used = leaf_head.used.min(self.geometry.leaf_bytes()) / 8;
        let begins: Vec<usize> = (0..leaf_head.count).map(|at| leaf.offset(at) / 8).collect();
        let record = |entry: &usize| {
            let begin = begins.get(*entry).copied().unwrap_or(0);
            let later = begins.iter().copied().filter(|other| *other > begin).min();
            let end = later.unwrap_or(used).min(used).max(begin);
            (*entry, begin, begin..end)
        };
        entries.iter().map(record).collect()
    }

    /// Brings the records that did not come with their heads; from here on the ranges of all are
    /// those among the words that came.
    fn bring_records(
        &self,
        looks: &mut [(Pending<'_>, Came)],
        words: &[AtomicU64],
        more: &mut Vec<AtomicU64>,
    ) -> Result<bool> {
        let (mut extents, mut at) = (Vec::new(), words.len());
        for (key, came) in looks {
            for (_, _, range) in &mut came.records {
                if key.is_whole {
                    *range = came.head.start + range.start..came.head.start + range.end;
                } else {
                    extents.push(self.extent(key.slot, range.clone()));
                    *range = at..at + range.len();
                    at = range.end;
                }
            }
        }
        more.clear();
        Ok(extents.is_empty() || self.fabric.bring(&extents, more)?)
    }

    /// What the records of a leaf say of a key; `None` if one of them was being changed. Where the
    /// leaf was built anew since its head came, they may be records of others: that the key is
    /// absent is to be confirmed.
    fn find(
        &self,
        key: &Pending<'_>,
        came: &Came,
        words: &[AtomicU64],
        more: &[AtomicU64],
        value: &mut Vec<u8>,
    ) -> Option<Outcome> {
        let mut leaf: Vec<AtomicU64> = Vec::with_capacity(self.geometry.leaf_words());
        leaf.extend(words[came.head.clone()].iter().map(copy));
        leaf.resize_with(self.geometry.leaf_words(), || AtomicU64::new(0));
        for (_, begin, range) in &came.records {
            let record = match range.start.checked_sub(words.len()) {
                Some(start) => more.get(start..start + range.len())?,
                None => words.get(range.clone())?,
            };
            for (to, from) in leaf.get_mut(*begin..)?.iter_mut().zip(record) {
                *to = copy(from);
            }
        }
        let seed = record_seed(&leaf[..], self.geometry);
        for (_, begin, _) in came.records.iter().filter(|_| !key.is_whole) {
            // planted: record-read-without-order-not
            if !is_record_whole(&leaf[..], begin * 8, seed) {
                return None;
            }
        }
        let (found, state) = (Leaf::new(&leaf[..], self.geometry), leaf[..].load(head::STATE));
        let rest = key.needle.key.get(found.head().prefix_len..)?;
        for (entry, begin, _) in &came.records {
            if let Some(record) = found.record(*entry).filter(|record| record.key.equals(rest)) {
                self.record_state(key.slot, state);
                if record.kind != KIND_INLINE {
                    return Some(Outcome::Ask(record.value_len));
                }
                if let Some((hints, words)) =
                    self.hints.as_ref().zip(record_words(&leaf[..], begin * 8))
                {
                    let (len, prefix_len) = (words.len() + 1, found.head().prefix_len);
                    let hint = Hint::new((key.slot, state), *begin, len, prefix_len);
                    hints.learn(key.needle.key, hint);
                }
                record.value.append_to(value);
                return Some(Outcome::Found);
            }
        }
        if key.is_whole {
            self.record_state(key.slot, state);
        }
        Some(Outcome::Absent)
    }
}

fn copy(word: &AtomicU64) -> AtomicU64 {
    AtomicU64::new(word.load(Ordering::Relaxed))
}
