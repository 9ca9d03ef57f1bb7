//! How far the sweeper has come in a database, and the clock by which the engine drops strings that
//! have ended.
//!
//! A string that ends is left to the engine: it and its mark vanish, without a write, once the
//! engine's clock has passed their time. Clients that are to hear of the end have to hear of it
//! before that. So the clock stands at the time up to which the sweeper has told of all of them.
//!
//! Rules: (1) the sweeper goes through the marks in their order, one thread at a time, and tells of
//! a key under the key's lock; (2) a string whose mark lies below [`Place::told`] is absent for
//! every reader, whatever its time says to a clock that went back; (3) a string that ends at or
//! before the *ceiling*, the latest time up to which the sweeper has looked, is not left to the
//! engine but removed by a write; (4) the commit of one that came under the ceiling meanwhile says
//! so ([`Swept::note_committed`]), still under the key's lock.

use std::{
    collections::BTreeSet,
    ops::Bound,
    sync::atomic::{AtomicBool, AtomicU64, Ordering, fence},
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use rhumb::{Keyspace, Result, Slice, io::Clock};

use crate::encode::{
    entry::{decode_head, is_left_to_engine},
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

/// How far the sweeper has told of strings that the engine drops.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// All marks below this one are told of, but for those in `late`.
    told: Vec<u8>,
    /// Marks that were committed when the sweeper had perhaps passed them.
    late: BTreeSet<Vec<u8>>,
}

impl Place {
    /// Returns true if clients were told that the string with this mark has ended.
    fn is_told(&self, mark: &[u8]) -> bool {
        mark < self.told.as_slice() && !self.late.contains(mark)
    }

    /// Returns true if the entry of a key is a string of whose end clients were told.
    pub(crate) fn has_told(&self, key: &[u8], entry: &[u8]) -> bool {
        ends_in_engine(entry).is_some_and(|ends_ms| self.is_told(&member::expiry(ends_ms, key)))
    }
}

/// When the engine drops an entry, in milliseconds since 1970, if it does.
fn ends_in_engine(entry: &[u8]) -> Option<u64> {
    is_left_to_engine(entry).then(|| decode_head(entry).map(|(_, ends_ms, _)| ends_ms)).flatten()
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
        } else if mark >= self.end && mark >= self.before.told {
            Step::Mark
        } else if *vanishes && mark == due[..] {
            Step::Tell
        } else {
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
pub(crate) struct Cursor(Option<Vec<u8>>);

/// How far the sweeper has come in one database.
#[derive(Debug)]
pub(crate) struct Swept {
    /// The latest time up to which the sweeper has looked.
    ceiling_ms: AtomicU64,
    place: Mutex<Place>,
    cursor: Mutex<Cursor>,
    /// True if marks below [`Place::told`] may be due that do not vanish.
    has_earlier: AtomicBool,
    /// True if the sweeper has written marks since the clock moved last.
    has_moved_marks: AtomicBool,
}

impl Swept {
    /// The engine has dropped what ended by this time.
    pub(crate) fn new(engine_ms: u64) -> Self {
        let told = member::expiry(engine_ms.saturating_add(1), &[]);
        Self {
            ceiling_ms: AtomicU64::new(engine_ms),
            place: Mutex::new(Place { told, late: BTreeSet::new() }),
            cursor: Mutex::default(),
            has_earlier: AtomicBool::new(true),
            has_moved_marks: AtomicBool::new(false),
        }
    }

    /// Returns true if a string that ends at this time may be left to the engine.
    #[inline]
    pub(crate) fn is_ahead(&self, ends_ms: u64) -> bool {
        ends_ms > self.ceiling_ms.load(Ordering::Relaxed)
    }

    /// How far the sweeper has told.
    pub(crate) fn place(&self) -> Place {
        self.place.lock().clone()
    }

    /// Returns true if the entry of a key is a string of whose end clients were told: it is absent.
    #[inline]
    pub(crate) fn has_told(&self, key: &[u8], entry: &[u8]) -> bool {
        // The lock is taken for few: those that are about to vanish.
        ends_in_engine(entry).is_some_and(|ends_ms| !self.is_ahead(ends_ms))
            && self.place.lock().has_told(key, entry)
    }

    /// To be called after marks were committed, under the locks of their keys.
    pub(crate) fn note_committed<'m>(&self, marks: impl Iterator<Item = (&'m [u8], bool)>) {
        // The sweeper raises the ceiling, and then looks for marks. So it sees these, or they see
        // the ceiling.
        fence(Ordering::SeqCst);
        let ceiling_ms = self.ceiling_ms.load(Ordering::Relaxed);
        let is_under =
            |mark: &[u8]| member::expiry_of(mark).is_some_and(|(ms, _)| ms <= ceiling_ms);
        for (mark, vanishes) in marks.filter(|(mark, _)| is_under(mark)) {
            if vanishes {
                self.place.lock().late.insert(mark.to_vec());
            } else {
                self.has_earlier.store(true, Ordering::Release);
            }
        }
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
        self.ceiling_ms.fetch_max(now_ms, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let before = self.place();
        // What lies above is visible by now, and found below.
        self.place.lock().late.retain(|mark| *mark < before.told);
        let end = member::expiry(now_ms + 1, &[]);
        let from = cursor.0.take().filter(|from| *from < end);
        let from = from.unwrap_or_else(|| self.begin(&before, &end));
        let range = (Bound::Included(from.as_slice()), Bound::Excluded(end.as_slice()));
        cursor.0 = Some(from.clone());
        let pairs: Vec<(Slice, Slice)> = work.range(range).take(most).collect::<Result<_>>()?;
        let is_last = pairs.len() < most;
        let last = pairs.last().filter(|_| !is_last);
        let end = last.map_or(end, |(mark, _)| [&mark[..], &[0]].concat());
        let found = pairs.into_iter().map(|(mark, value)| {
            let vanishes = *value == [MARK_VANISHES];
            Due { mark, vanishes }
        });
        let is_left = |due: &Due| !(due.vanishes && before.is_told(&due.mark));
        let late = before.late.iter().filter(|mark| **mark < before.told);
        let late = late.map(|mark| Due { mark: Slice::from(mark.as_slice()), vanishes: true });
        let due = late.chain(found.filter(is_left)).collect();
        Ok(Chunk { due, before, end, is_last })
    }

    /// Where a walk over the marks begins.
    fn begin(&self, place: &Place, end: &[u8]) -> Vec<u8> {
        // Of a clock that went back marks are due below, until it has caught up.
        let is_back = place.told.as_slice() > end;
        if self.has_earlier.swap(is_back, Ordering::AcqRel) || is_back {
            return vec![WORK_EXPIRY];
        }
        place.told.clone()
    }

    /// Says that all of a chunk is done, for which these marks were written in the place of others.
    /// The caller still holds the locks of its keys.
    pub(crate) fn finish(&self, cursor: &mut Cursor, chunk: Chunk, moved: &[Vec<u8>]) {
        let mut place = self.place.lock();
        let due = chunk.due.iter().map(|due| &due.mark[..]);
        // Of those that were moved beyond the chunk none is late.
        for mark in due.chain(moved.iter().map(Vec::as_slice)) {
            place.late.remove(mark);
        }
        if place.told < chunk.end {
            place.told.clone_from(&chunk.end);
        }
        cursor.0 = (!chunk.is_last).then_some(chunk.end);
    }

    /// Says that the sweeper has written a mark in the place of one that vanishes.
    pub(crate) fn note_moved_mark(&self) {
        self.has_moved_marks.store(true, Ordering::Release);
    }

    /// Returns true if the sweeper has written marks since this was asked last.
    pub(crate) fn take_moved_marks(&self) -> bool {
        self.has_moved_marks.swap(false, Ordering::AcqRel)
    }

    /// The time up to which clients were told of every end, in milliseconds since 1970.
    pub(crate) fn told_ms(&self) -> u64 {
        let place = self.place.lock();
        let first = place.late.first().filter(|late| **late < place.told).unwrap_or(&place.told);
        member::expiry_of(first).map_or(0, |(ms, _)| ms.saturating_sub(1))
    }
}
