//! Gets and scans by looking into a region.

use std::{
    cell::{Cell, RefCell},
    ops::Bound,
};

use super::page::{Down, Page, PageLeaf, RECORD_LINES, step_down};
use crate::{
    error::Result,
    layout::{
        Geometry,
        control::{self, UNIT_WORDS, Units},
        format::{HEAD_WORDS, KIND_INLINE, NO_SLOT},
    },
    leaf::{Leaf, Needle, Side, read_noting},
    prefetch::prefetch,
    primitive::{AtomicU64, IS_MODEL, Ordering, fence as memory_fence, spin_loop},
    route::directory::{find_block, find_slot},
};

/// Looks at one leaf that changes meanwhile, before the reader asks the host: changes take tens of
/// nanoseconds, as a look does.
const LOOKS_MAX: u32 = if IS_MODEL { 2 } else { 16 };
/// Links that are followed from the predicted leaf: a chain of siblings is no longer.
const HOPS_MAX: u32 = 5;
/// Times that the directory is asked, each time after a leaf that answers for nothing.
const ROUTES_MAX: u32 = 4;

/// Keys of which a get of several finds the leaves before it reads the first: what a core has under
/// way at once, which is 10 to 16 lines, and some more.
const AHEAD: usize = 16;

/// What a look into the region says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The key is there, and its value was copied.
    Found,
    /// The key is not there.
    Absent,
    /// The key is there, and the host has its value, which is this long.
    Ask(usize),
    /// The region changes too fast, or makes no sense: the host knows.
    Busy,
}

/// What one leaf says of a key.
enum LeafAnswer {
    Is(Outcome),
    /// Another leaf answers.
    Go(u32),
    /// No leaf of this slot answers.
    Lost,
}

/// A region as its readers see it.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'r> {
    control: &'r [AtomicU64],
    leaves: &'r [AtomicU64],
    geometry: Geometry,
    observer: Observer<'r>,
}

/// What is noted of looks at leaves.
#[derive(Clone, Copy)]
enum Observer<'r> {
    Nobody,
    /// Their number, for those that measure.
    #[cfg_attr(any(loom, shuttle), expect(dead_code, reason = "nothing is measured there"))]
    Counter(&'r AtomicU64),
    /// The states in which leaves were found.
    States(&'r States),
    /// What kept the first look from being the last.
    #[cfg_attr(any(loom, shuttle), expect(dead_code, reason = "nothing is counted there"))]
    Trouble(&'r Trouble),
}

/// What kept a first look at the predicted leaf from answering for a key.
#[derive(Debug, Default)]
pub(crate) struct Trouble {
    /// True if a neighbour was read.
    pub(crate) has_hopped: Cell<bool>,
    /// True if a leaf was read again because it changed meanwhile.
    pub(crate) has_retried: Cell<bool>,
}

/// The states of leaves, by their slots: with all of them unchanged, what was read of the leaves
/// was there at one moment.
#[derive(Debug, Default)]
pub(crate) struct States(pub(super) RefCell<Vec<(u32, u64)>>);

impl<'r> Reader<'r> {
    /// A reader of what is mapped.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`](crate::Error::Invalid) for a region that begins as none of this version.
    pub(crate) fn new(control: &'r [AtomicU64], leaves: &'r [AtomicU64]) -> Result<Self> {
        Ok(Self::of(control, leaves, control::read_header(control)?))
    }

    /// A reader of a region whose header was read.
    #[inline]
    pub(crate) fn of(
        control: &'r [AtomicU64],
        leaves: &'r [AtomicU64],
        geometry: Geometry,
    ) -> Self {
        Self { control, leaves, geometry, observer: Observer::Nobody }
    }

    /// The same with a counter of the leaves that it looks at, each as often as it does.
    #[cfg(not(any(loom, shuttle)))]
    #[inline]
    pub(crate) fn counted_by(self, looks: Option<&'r AtomicU64>) -> Self {
        Self { observer: looks.map_or(self.observer, Observer::Counter), ..self }
    }

    /// The same that tells what keeps its first look from being the last, unless it is observed
    /// otherwise.
    #[cfg(not(any(loom, shuttle)))]
    #[inline]
    pub(crate) fn telling(self, trouble: &'r Trouble) -> Self {
        match self.observer {
            Observer::Nobody => Self { observer: Observer::Trouble(trouble), ..self },
            _ => self,
        }
    }

    /// The same that notes in which states it finds leaves. What was noted before is forgotten.
    pub(crate) fn noting(self, states: &'r States) -> Self {
        states.0.borrow_mut().clear();
        Self { observer: Observer::States(states), ..self }
    }

    /// Returns true if all leaves are in the states that were noted: then all that was read of them
    /// since [`Reader::noting`] was there at one moment, which was after that call.
    pub(crate) fn are_unchanged(&self, states: &States) -> bool {
        // What was read is read before the states are read again.
        memory_fence(Ordering::Acquire);
        states.0.borrow().iter().all(|(slot, state)| {
            let words = self.words(*slot);
            // planted: states-leaves-not-compared
            words.is_some_and(|words| words[0].load(Ordering::Relaxed) == *state)
        })
    }

    /// Gets several keys, with their misses overlapped: `each` is called with the index of a key,
    /// what a look says of it, and its value, in the order of the keys.
    pub(crate) fn multi_get<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        mut each: impl FnMut(usize, Outcome, &[u8]),
    ) {
        let mut value = Vec::new();
        for (chunk, some) in keys.chunks(AHEAD).enumerate() {
            let mut ahead = [(NO_SLOT, Needle::new(&[])); AHEAD];
            let ahead = &mut ahead[..some.len()];
            for ((slot, needle), key) in ahead.iter_mut().zip(some) {
                *needle = Needle::new(self.geometry.short(key.as_ref()));
                *slot = self.route(needle.key).unwrap_or(NO_SLOT);
                self.prefetch_head(*slot);
            }
            for (slot, needle) in &*ahead {
                self.prefetch_record(*slot, needle);
            }
            for (at, (slot, needle)) in ahead.iter().enumerate() {
                value.clear();
                let outcome = self.get_from(*slot, needle, &mut value);
                each(chunk * AHEAD + at, outcome, &value);
            }
        }
    }

    /// The words of a leaf.
    #[inline]
    fn words(&self, slot: u32) -> Option<&'r [AtomicU64]> {
        let len = self.geometry.leaf_words();
        let begin = (slot as usize).checked_mul(len)?;
        self.leaves.get(begin..begin.checked_add(len)?)
    }

    /// Asks for the lines of a leaf that every get reads: head, fingerprints and offsets.
    #[inline]
    fn prefetch_head(&self, slot: u32) {
        let Some(words) = self.words(slot) else { return };
        let end = (self.geometry.rest() / 8).min(words.len());
        let mut at = 0;
        while at < end {
            prefetch(&words[at]);
            at += HEAD_WORDS;
        }
    }

    /// Asks for the first lines of the record that is likely to be the needle's.
    #[inline]
    fn prefetch_record(&self, slot: u32, needle: &Needle<'_>) {
        let Some(words) = self.words(slot) else { return };
        if let Some(offset) = Leaf::new(words, self.geometry).likely_offset(needle) {
            for line in 0..RECORD_LINES {
                words.get(offset / 8 + line * HEAD_WORDS).map(prefetch);
            }
        }
    }

    /// Appends the value of `key` to `out`. Without a change at the same time, one look at the
    /// directory and one at a leaf.
    pub(crate) fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Outcome {
        let key = self.geometry.short(key);
        let Some(slot) = self.route(key) else { return Outcome::Busy };
        self.prefetch_head(slot);
        self.get_from(slot, &Needle::new(key), out)
    }

    /// [`Reader::get`] from a leaf that should hold the key.
    #[inline]
    fn get_from(&self, slot: u32, needle: &Needle<'_>, out: &mut Vec<u8>) -> Outcome {
        let begin = out.len();
        let mut predicted = Some(slot);
        for _ in 0..ROUTES_MAX {
            let Some(slot) = predicted.take().or_else(|| self.route(needle.key)) else { break };
            if let Some(outcome) = self.follow(slot, needle, out) {
                return outcome;
            }
        }
        out.truncate(begin);
        Outcome::Busy
    }

    /// What a leaf says of a key, or one that it leads to by a few links; `None` if none of these
    /// answers for the key.
    #[inline]
    fn follow(&self, slot: u32, needle: &Needle<'_>, out: &mut Vec<u8>) -> Option<Outcome> {
        let (begin, mut slot) = (out.len(), slot);
        for _ in 0..=HOPS_MAX {
            let answer = self.look(slot, |leaf| {
                out.truncate(begin);
                answer(leaf, needle, out)
            });
            match answer {
                Some(LeafAnswer::Is(outcome)) => return Some(outcome),
                Some(LeafAnswer::Go(to)) => {
                    slot = to;
                    if let Observer::Trouble(trouble) = self.observer {
                        trouble.has_hopped.set(true);
                    }
                }
                Some(LeafAnswer::Lost) => return None,
                None => {
                    out.truncate(begin);
                    return Some(Outcome::Busy);
                }
            }
        }
        None
    }

    /// [`Reader::get`] from a slot that somebody else names, without a look at the directory;
    /// `None` if neither that leaf nor one that it leads to answers for the key.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn get_at(&self, slot: u32, key: &[u8], out: &mut Vec<u8>) -> Option<Outcome> {
        self.words(slot)?;
        self.follow(slot, &Needle::new(self.geometry.short(key)), out)
    }

    /// Asks for what [`Reader::get_at`] reads of a leaf first.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn prefetch_leaf(&self, slot: u32) {
        self.prefetch_head(slot);
    }

    /// The slot that should hold a key, as the block in a unit says; `None` if there is no such
    /// unit.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn slot_in_block(&self, unit: u32, key: &[u8]) -> Option<u32> {
        Some(find_slot(self.block(unit)?, self.geometry.short(key)).slot)
    }

    /// Entries of the directory's top, from that of the block on which has `key`.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn top_from(
        &self,
        key: &[u8],
    ) -> Option<impl Iterator<Item = (Vec<u8>, u32)> + use<'r>> {
        let top = control::top(self.control)?.of(self.control)?;
        Some(crate::route::directory::top_from(top, self.geometry.short(key)))
    }

    /// A copy of the block in a unit.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn copy_block(&self, unit: u32) -> Option<Vec<u64>> {
        self.block(unit).map(crate::route::directory::copy_block)
    }

    /// Reads the next entries at and after `from`, in ascending order, of the leaf that it is in:
    /// `limit` of them at most. False if the host knows; the page is then worth nothing.
    pub(crate) fn page_up(&self, from: Bound<&[u8]>, limit: usize, page: &mut Page) -> bool {
        let (key, skips) = match from {
            Bound::Unbounded => (&[][..], false),
            Bound::Included(key) => (self.geometry.short(key), false),
            // What stands for a long key stands for others after it.
            Bound::Excluded(key) => (self.geometry.short(key), !self.geometry.is_long(key)),
        };
        self.find_page(page.slot, Some(key), |source| {
            let (leaf, head) = (source.leaf, source.leaf.head());
            match leaf.side(&head, key)? {
                Side::Inside => {
                    if limit > head.count {
                        self.prefetch_head(leaf.next());
                    }
                    page.fill_up(source, &head, key, skips, limit);
                    Some(Ok(()))
                }
                Side::Right => Some(Err(leaf.next())),
                Side::Left => Some(Err(leaf.previous())),
            }
        })
        .is_some()
    }

    /// Reads the next entries below `to`, in descending order, of the leaf that the highest of them
    /// is in. Otherwise as [`Reader::page_up`].
    pub(crate) fn page_down(&self, to: Bound<&[u8]>, limit: usize, page: &mut Page) -> bool {
        let (key, takes) = match to {
            Bound::Unbounded => (None, false),
            Bound::Included(key) => (Some(self.geometry.short(key)), true),
            // What stands for longer keys than itself stands for some below this one; not so a
            // fence, which may be as long.
            Bound::Excluded(key) => {
                (Some(self.geometry.short(key)), key.len() > self.geometry.key_bytes_max())
            }
        };
        let last = page.slot;
        self.find_page(last, key, |source| {
            let head = source.leaf.head();
            Some(match step_down(source.leaf, &head, key, takes)? {
                Down::Go(slot) => Err(slot),
                Down::Fill(to, takes) => {
                    if limit > head.count {
                        self.prefetch_head(source.leaf.previous());
                    }
                    page.fill_down(source, &head, to, takes, limit);
                    Ok(())
                }
            })
        })
        .is_some()
    }

    /// Has `look` read a page of the leaf that it takes, of those that it is sent to. `None` if the
    /// host knows.
    fn find_page(
        &self,
        guess: Option<u32>,
        key: Option<&[u8]>,
        mut look: impl FnMut(PageLeaf<'r>) -> Option<Result<(), u32>>,
    ) -> Option<()> {
        let mut guess = guess;
        for _ in 0..ROUTES_MAX {
            let mut slot = match (guess.take(), key) {
                (Some(slot), _) => slot,
                (None, Some(key)) => self.route(key)?,
                (None, None) => self.last()?,
            };
            for _ in 0..=HOPS_MAX {
                let words = self.words(slot)?;
                match self.look(slot, |leaf| look(PageLeaf { slot, words, leaf }))? {
                    Some(Ok(())) => return Some(()),
                    Some(Err(to)) => slot = to,
                    None => break,
                }
            }
        }
        None
    }

    /// The slot that should hold a key.
    #[inline]
    fn route(&self, key: &[u8]) -> Option<u32> {
        let top = control::top(self.control)?.of(self.control)?;
        Some(find_slot(self.block(find_block(top, key))?, key).slot)
    }

    /// The slot that should be the last leaf.
    fn last(&self) -> Option<u32> {
        // Above any key that leaves hold, which are shorter.
        self.route(&[0xff; 256])
    }

    fn block(&self, block: u32) -> Option<&'r [AtomicU64]> {
        let words = Units { first: block, count: 1 }.of(self.control)?;
        debug_assert_eq!(words.len(), UNIT_WORDS);
        Some(words)
    }

    /// Looks at a leaf until it does not change meanwhile; `None` if it never stood still, or is
    /// nowhere.
    #[inline]
    fn look<R>(&self, slot: u32, mut look: impl FnMut(Leaf<'r, [AtomicU64]>) -> R) -> Option<R> {
        let words = self.words(slot)?;
        for _ in 0..LOOKS_MAX {
            if let Observer::Counter(looks) = self.observer {
                looks.fetch_add(1, Ordering::Relaxed);
            }
            let seen = read_noting(words, || look(Leaf::new(words, self.geometry)));
            if let Some((seen, state)) = seen {
                if let Observer::States(states) = self.observer {
                    states.0.borrow_mut().push((slot, state));
                }
                return Some(seen);
            }
            if let Observer::Trouble(trouble) = self.observer {
                trouble.has_retried.set(true);
            }
            spin_loop();
        }
        None
    }
}

/// What a leaf says of a key.
#[inline]
fn answer(leaf: Leaf<'_, [AtomicU64]>, needle: &Needle<'_>, out: &mut Vec<u8>) -> LeafAnswer {
    let head = leaf.head();
    match leaf.side(&head, needle.key) {
        None => LeafAnswer::Lost,
        Some(Side::Left) => LeafAnswer::Go(leaf.previous()),
        Some(Side::Right) => LeafAnswer::Go(leaf.next()),
        Some(Side::Inside) => match leaf.find(&head, needle) {
            None => LeafAnswer::Is(Outcome::Absent),
            Some((_, record)) if record.kind == KIND_INLINE => {
                record.value.append_to(out);
                LeafAnswer::Is(Outcome::Found)
            }
            // planted: stands-long-keys-taken-absent
            Some((_, record)) => LeafAnswer::Is(Outcome::Ask(record.value_len)),
        },
    }
}
