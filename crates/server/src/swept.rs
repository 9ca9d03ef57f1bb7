//! How far the sweeper has come in a database, and the clock by which the engine drops strings that
//! have ended.
//!
//! A string that ends is left to the engine: it and its mark vanish, without a write, once the
//! engine's clock has passed their time. Clients that are to hear of the end have to hear of it
//! before that. So the clock stands at the time up to which the sweeper has told of all of them.
//!
//! Rules: (1) the sweeper goes through the marks in their order, one thread at a time, and tells of
//! a key under the key's lock; (2) a string whose mark lies below the [`Place`] is absent for every
//! reader, whatever its time says to a clock that went back; (3) a string that ends at or before
//! the *ceiling*, the latest time up to which the sweeper has looked, is not left to the engine but
//! removed by a write; (4) a commit says before it begins when the first of its strings ends, and
//! the ceiling stays below that until it is done ([`Swept::begin_commit`]); (5) nothing is swept
//! while keys may lack marks ([`Swept::lacks_marks`]).

use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use rhumb::{Keyspace, Result, Slice, io::Clock};

use crate::encode::{
    entry::ends_in_engine,
    format::{MARK_VANISHES, WORK_EXPIRY},
    member,
};

/// The engine's clock: entries expire by the time up to which all databases are swept.
#[derive(Debug, Default)]
pub(crate) struct SweptClock(AtomicU64);

impl SweptClock {
    /// Moves the clock forward; a time that has passed moves nothing.
    pub(crate) fn move_to(&self, ms: u64) {
        self.0.fetch_max(ms, Ordering::AcqRel);
    }

    /// Returns true if moving the clock to this time changes it.
    pub(crate) fn is_before(&self, ms: u64) -> bool {
        self.0.load(Ordering::Relaxed) < ms
    }
}

impl Clock for SweptClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn expiry_ms(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}

/// How far the sweeper has told of strings that the engine drops: of those whose marks lie below
/// this one.
#[derive(Clone, Debug)]
pub(crate) struct Place(Vec<u8>);

impl Place {
    /// Returns true if clients were told that the string with this mark has ended.
    fn is_told(&self, mark: &[u8]) -> bool {
        mark < self.0.as_slice()
    }

    /// Returns true if the entry of a key is a string of whose end clients were told.
    pub(crate) fn has_told(&self, key: &[u8], entry: &[u8]) -> bool {
        ends_in_engine(entry).is_some_and(|ends_ms| self.is_told(&member::expiry(ends_ms, key)))
    }
}

/// A mark whose time is over.
pub(crate) struct Due {
    pub(crate) mark: Slice,
    /// True if the engine drops the mark; otherwise it is to be removed.
    pub(crate) vanishes: bool,
}

impl Due {
    /// The key.
    pub(crate) fn key(&self) -> &[u8] {
        member::expiry_of(&self.mark).map_or(&[], |(_, key)| key)
    }
}

/// Marks that are swept together.
pub(crate) struct Chunk {
    pub(crate) due: Vec<Due>,
    /// Where the sweeper was before.
    before: Place,
    /// All marks that are due and lie below this one are here.
    end: Vec<u8>,
    /// True if no others are due.
    pub(crate) is_last: bool,
}

impl Chunk {
    /// What is to be done about a string that the engine drops and that has this key and this time,
    /// whose mark is the one `at` a place among those that are due.
    pub(crate) fn step_of(&self, at: usize, key: &[u8], ends_ms: u64) -> Step {
        let Due { mark: due, vanishes } = &self.due[at];
        let mark = member::expiry(ends_ms, key);
        if self.before.is_told(&mark) {
            Step::Nothing
        } else if mark >= self.end {
            Step::Mark
        } else if *vanishes && mark == due[..] {
            Step::Tell
        } else {
            // planted: ends-before-mark
            Step::MarkAndTell
        }
    }
}

/// What is to be done about a string that the engine drops, of which a mark is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It was told of before.
    Nothing,
    /// It has ended.
    Tell,
    /// It ends later than its mark says, and gets another one.
    Mark,
    /// It has ended, and has no mark that vanishes at the same time: after a crash, with a clock
    /// between the two times, it would not be found. It gets one.
    MarkAndTell,
}

/// Where the sweeper goes on; held by the thread that sweeps.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    /// The next mark; none before the walk over the marks begins.
    mark: Option<Vec<u8>>,
    /// The first of the keys that may lack a mark; none if each has one.
    unmarked: Option<Vec<u8>>,
}

impl Cursor {
    /// The first of the keys that may lack a mark; none if each has one.
    pub(crate) fn unmarked(&self) -> Option<&[u8]> {
        self.unmarked.as_deref()
    }
}

/// How far the sweeper has come in one database.
#[derive(Debug)]
pub(crate) struct Swept {
    /// The latest time up to which the sweeper has looked. Changed under the lock of `state`.
    ceiling_ms: AtomicU64,
    state: Mutex<State>,
    cursor: Mutex<Cursor>,
    /// True if marks below the [`Place`] may be due that do not vanish.
    has_earlier: AtomicBool,
    /// True if the sweeper has written marks since the clock moved last.
    has_moved_marks: AtomicBool,
    /// True if keys may lack marks. Changed by the thread that sweeps.
    lacks_marks: AtomicBool,
}

#[derive(Debug)]
struct State {
    place: Place,
    /// When the first string ends of each commit that is under way, and the number of commits.
    committing: BTreeMap<u64, usize>,
}

/// A commit of strings that end, or of other marks. The sweeper stays below the first of them until
/// this is dropped, which is under the locks of their keys.
#[derive(Debug)]
pub(crate) struct Committing<'s> {
    swept: &'s Swept,
    /// The latest time up to which the sweeper has looked when this began.
    ceiling_ms: u64,
    /// The time below which the sweeper stays.
    held_ms: u64,
    /// True if something of it ends at or before the ceiling.
    has_earlier: bool,
}

impl Committing<'_> {
    /// Returns true if the sweeper has passed this time before the commit began.
    pub(crate) fn is_passed(&self, ends_ms: u64) -> bool {
        ends_ms <= self.ceiling_ms
    }
}

impl Drop for Committing<'_> {
    fn drop(&mut self) {
        if self.has_earlier {
            self.swept.has_earlier.store(true, Ordering::Release);
        }
        let mut state = self.swept.state.lock();
        if let Some(count) = state.committing.get_mut(&self.held_ms) {
            *count -= 1;
            if *count == 0 {
                state.committing.remove(&self.held_ms);
            }
        }
    }
}

impl Swept {
    /// The engine has dropped what ended by this time. Keys may have lost marks by that, if another
    /// program has moved the clock.
    pub(crate) fn new(engine_ms: u64, lacks_marks: bool) -> Self {
        let place = Place(member::expiry(engine_ms.saturating_add(1), &[]));
        Self {
            ceiling_ms: AtomicU64::new(engine_ms),
            state: Mutex::new(State { place, committing: BTreeMap::new() }),
            cursor: Mutex::new(Cursor { mark: None, unmarked: lacks_marks.then(Vec::new) }),
            has_earlier: AtomicBool::new(true),
            has_moved_marks: AtomicBool::new(false),
            lacks_marks: AtomicBool::new(lacks_marks),
        }
    }

    /// Returns true if a string that ends at this time may be left to the engine.
    #[inline]
    pub(crate) fn is_ahead(&self, ends_ms: u64) -> bool {
        ends_ms > self.ceiling_ms.load(Ordering::Relaxed)
    }

    /// How far the sweeper has told.
    pub(crate) fn place(&self) -> Place {
        self.state.lock().place.clone()
    }

    /// Returns true if the entry of a key is a string of whose end clients were told: it is absent.
    #[inline]
    pub(crate) fn has_told(&self, key: &[u8], entry: &[u8]) -> bool {
        // The lock is taken for few: those that are about to vanish.
        ends_in_engine(entry).is_some_and(|ends_ms| !self.is_ahead(ends_ms))
            // planted: ends-told
            && self.state.lock().place.has_told(key, entry)
    }

    /// To be called before a commit, under the locks of its keys: of strings that the engine is to
    /// drop, or of marks, the first of which is of this time. Strings that end at a time that
    /// [is passed](Committing::is_passed) are not to be left to the engine.
    pub(crate) fn begin_commit(&self, first_ms: u64) -> Committing<'_> {
        let mut state = self.state.lock();
        let ceiling_ms = self.ceiling_ms.load(Ordering::Relaxed);
        let held_ms = first_ms.max(ceiling_ms.saturating_add(1));
        // planted: ends-held
        *state.committing.entry(held_ms).or_default() += 1;
        Committing { swept: self, ceiling_ms, held_ms, has_earlier: first_ms <= ceiling_ms }
    }

    /// Waits until nobody sweeps, and has nobody sweep until what is returned is dropped.
    pub(crate) fn sweeping(&self) -> MutexGuard<'_, Cursor> {
        self.cursor.lock()
    }

    /// As [`Swept::sweeping`]; `None` if somebody sweeps.
    pub(crate) fn try_sweeping(&self) -> Option<MutexGuard<'_, Cursor>> {
        self.cursor.try_lock()
    }

    /// The next marks whose time is over at `now_ms`, `most` or few more. They come again unless
    /// [`Swept::finish`] is called.
    ///
    /// # Errors
    ///
    /// From the engine.
    pub(crate) fn next_due(
        &self,
        work: &Keyspace,
        cursor: &mut Cursor,
        now_ms: u64,
        most: usize,
    ) -> Result<Chunk> {
        let (before, until_ms) = self.raise(now_ms);
        let end = member::expiry(until_ms + 1, &[]);
        let from = cursor.mark.take().filter(|from| *from < end);
        let from = from.unwrap_or_else(|| self.begin(&before, &end));
        let range = (Bound::Included(from.as_slice()), Bound::Excluded(end.as_slice()));
        cursor.mark = Some(from.clone());
        let pairs: Vec<(Slice, Slice)> = work.range(range).take(most).collect::<Result<_>>()?;
        let is_last = pairs.len() < most;
        let last = pairs.last().filter(|_| !is_last);
        let end = last.map_or(end, |(mark, _)| [&mark[..], &[0]].concat());
        let due = pairs.into_iter().map(|(mark, value)| {
            let vanishes = *value == [MARK_VANISHES];
            Due { mark, vanishes }
        });
        let due = due.filter(|due| !(due.vanishes && before.is_told(&due.mark))).collect();
        Ok(Chunk { due, before, end, is_last })
    }

    /// Raises the ceiling, as far as commits that are under way allow. Returns the place, and the
    /// time up to which the sweeper may look.
    fn raise(&self, now_ms: u64) -> (Place, u64) {
        let state = self.state.lock();
        let until_ms = state.committing.keys().next().map_or(now_ms, |ms| now_ms.min(ms - 1));
        self.ceiling_ms.fetch_max(until_ms, Ordering::Relaxed);
        (state.place.clone(), until_ms)
    }

    /// Where a walk over the marks begins.
    fn begin(&self, place: &Place, end: &[u8]) -> Vec<u8> {
        // Of a clock that went back marks are due below, until it has caught up.
        // planted: ends-back
        let is_back = place.0.as_slice() > end;
        if self.has_earlier.swap(is_back, Ordering::AcqRel) || is_back {
            return vec![WORK_EXPIRY];
        }
        place.0.clone()
    }

    /// Says that all of a chunk is done. The caller still holds the locks of its keys.
    pub(crate) fn finish(&self, cursor: &mut Cursor, chunk: Chunk) {
        let place = &mut self.state.lock().place;
        if place.0 < chunk.end {
            place.0.clone_from(&chunk.end);
        }
        cursor.mark = (!chunk.is_last).then_some(chunk.end);
    }

    /// Says that all keys have marks but those from this one on.
    pub(crate) fn finish_marking(&self, cursor: &mut Cursor, unmarked: Option<Vec<u8>>) {
        self.lacks_marks.store(unmarked.is_some(), Ordering::Release);
        cursor.unmarked = unmarked;
    }

    /// Returns true if keys may lack marks.
    pub(crate) fn lacks_marks(&self) -> bool {
        self.lacks_marks.load(Ordering::Acquire)
    }

    /// Says that the sweeper has written a mark of this time in the place of one that may vanish.
    pub(crate) fn note_moved_mark(&self, ends_ms: u64) {
        self.has_moved_marks.store(true, Ordering::Release);
        if !self.is_ahead(ends_ms) {
            self.has_earlier.store(true, Ordering::Release);
        }
    }

    /// Says that marks of the sweeper may still be lost.
    pub(crate) fn keep_moved_marks(&self) {
        self.has_moved_marks.store(true, Ordering::Release);
    }

    /// Returns true if the sweeper has written marks since this was asked last.
    pub(crate) fn take_moved_marks(&self) -> bool {
        self.has_moved_marks.swap(false, Ordering::AcqRel)
    }

    /// The time up to which clients were told of every end, in milliseconds since 1970.
    pub(crate) fn told_ms(&self) -> u64 {
        let state = self.state.lock();
        member::expiry_of(&state.place.0).map_or(0, |(ms, _)| ms.saturating_sub(1))
    }
}
