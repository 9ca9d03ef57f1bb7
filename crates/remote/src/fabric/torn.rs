//! A region that is read without order while its host changes it, for tests.
//!
//! The memory is kept as it was after every step of a change, also of those that readers are not to
//! see yet. A read brings each line as it was at some step of its duration, each by itself: no
//! device does worse.

use std::cell::Cell;

use rhumb_testkit::random::Random;

use super::{Fabric, Image, guards_apart};
use crate::{
    error::Result,
    layout::format::LINE_BYTES,
    message::{Part, Place},
    primitive::{AtomicU64, Ordering},
};

const LINE_WORDS: usize = LINE_BYTES / 8;

/// A line as it was from some step on.
type Version = (usize, [u64; LINE_WORDS]);

/// What the memory of a region was after each step.
#[derive(Default)]
pub(crate) struct History {
    /// The versions of each line, of the control part and of the leaves.
    parts: [Vec<Vec<Version>>; 2],
    steps: usize,
}

impl History {
    /// Keeps what the region is now, as another step.
    pub(crate) fn note(&mut self, control: &[AtomicU64], leaves: &[AtomicU64]) {
        for (lines, words) in self.parts.iter_mut().zip([control, leaves]) {
            let count = words.len().div_ceil(LINE_WORDS);
            lines.resize_with(lines.len().max(count), Vec::new);
            for (versions, words) in lines.iter_mut().zip(words.chunks(LINE_WORDS)) {
                let mut line = [0; LINE_WORDS];
                line.iter_mut().zip(words).for_each(|(to, word)| {
                    *to = u64::from_le(word.load(Ordering::Relaxed));
                });
                if versions.last().map_or([0; LINE_WORDS], |(_, line)| *line) != line {
                    versions.push((self.steps, line));
                }
            }
        }
        self.steps += 1;
    }

    fn part(&self, part: Part) -> &[Vec<Version>] {
        &self.parts[usize::from(part == Part::Leaves)]
    }
}

/// Reads of a region that changes meanwhile.
pub(crate) struct Torn<'h> {
    history: &'h History,
    /// The step at which the next read begins.
    now: Cell<usize>,
    /// Steps that pass while a read goes on, at most.
    most: usize,
    random: Cell<Random>,
    /// Reads are of one step, and readers know that.
    stands_still: bool,
}

impl<'h> Torn<'h> {
    pub(crate) fn new(history: &'h History, most: usize, seed: u64) -> Self {
        let (now, random) = (Cell::new(0), Cell::new(Random::new(seed)));
        Self { history, now, most, random, stands_still: false }
    }

    /// Reads of a region that stands still, as mapped memory is read.
    pub(crate) fn still(history: &'h History) -> Self {
        Self { stands_still: true, ..Self::new(history, 0, 0) }
    }

    /// Has the next read begin at a step.
    pub(crate) fn begin_at(&self, step: usize) {
        self.now.set(step);
    }

    /// The step at which the last read ended.
    pub(crate) fn now(&self) -> usize {
        self.now.get()
    }

    fn random(&self, below: usize) -> usize {
        let mut random = self.random.take();
        let index = random.index(below);
        self.random.set(random);
        index
    }

    /// The words of places, all of one read; `None` for those that the region does not have.
    pub(crate) fn bring(&self, places: &[Place]) -> Vec<Option<Vec<u64>>> {
        let begin = self.now.get();
        let end = (begin + self.random(self.most + 1)).min(self.history.steps - 1);
        self.now.set(end);
        places.iter().map(|place| self.piece(place, begin, end)).collect()
    }

    fn piece(&self, place: &Place, begin: usize, end: usize) -> Option<Vec<u64>> {
        let lines = self.history.part(place.part);
        let first = usize::try_from(place.at / 8).ok()?;
        let last = first.checked_add(place.len as usize / 8)?;
        if last > lines.len() * LINE_WORDS {
            return None;
        }
        let (mut at, mut seen) = (usize::MAX, [0; LINE_WORDS]);
        let word = |word| {
            if word / LINE_WORDS != at {
                at = word / LINE_WORDS;
                let step = begin + self.random(end - begin + 1);
                let versions = &lines[at];
                let next = versions.partition_point(|(since, _)| *since <= step);
                seen = next.checked_sub(1).map_or([0; LINE_WORDS], |last| versions[last].1);
            }
            seen[word % LINE_WORDS]
        };
        Some((first..last).map(word).collect())
    }
}

impl Fabric for Torn<'_> {
    fn read(&self, places: &[Place], image: &mut Image) -> Result<()> {
        image.begin(places);
        let wanted = [places, &guards_apart(places)].concat();
        let words = self.bring(&wanted);
        image.fill_unordered(places, |index| words[index].as_deref());
        Ok(())
    }

    fn is_unordered(&self) -> bool {
        !self.stands_still
    }
}
