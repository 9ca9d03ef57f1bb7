//! The plan of a point read: through the levels from the newest to the oldest, with one candidate
//! table per level.

use std::{borrow::Borrow, ops::Deref};

use rhumb_model::code;
use rhumb_sync::{
    epoch::{Guard, pin},
    primitive::Arc,
};

use super::{BlockRequest, Plan, Progress, drive_from};
use crate::{
    error::{Error, Result},
    expiry::{Millis, STAMP_BYTES, Stamp},
    slice::{BlockRef, Slice},
    table::{Bracket, Hit, KeyHash, Lookup, Table},
    types::SeqNo,
    version::{levels::Levels, prepare::Hint},
};

/// The result of a point read.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    /// No version of the key, or a tombstone.
    Nothing,
    /// The value.
    Value(Slice),
    /// The value is stored outside its table's blocks, at this place.
    Large(LargeRef),
    /// The stamp of an entry that expires, and then its value, or its place in the files of this
    /// table. Whether the entry is to be seen depends on the reader's time ([`Found::at`]).
    Expiring(Slice, Option<Arc<Table>>),
}

impl Found {
    /// What a reader at a time sees of this: everything but [`Found::Expiring`]. The time is asked
    /// for only if it matters.
    #[inline]
    pub(crate) fn at(self, now_ms: impl FnOnce() -> Millis) -> Result<Self> {
        match self {
            Self::Expiring(value, table) => unexpired(value, table, now_ms()),
            found => Ok(found),
        }
    }

    /// The time at which an entry expires, if it does.
    pub(crate) fn expires_ms(&self) -> Option<Millis> {
        let Self::Expiring(value, _) = self else { return None };
        Stamp::split(value).map(|(stamp, _)| stamp.at_ms)
    }
}

/// What a reader sees of an entry that expires.
#[cold]
#[inline(never)]
fn unexpired(value: Slice, table: Option<Arc<Table>>, now_ms: Millis) -> Result<Found> {
    let Some((stamp, _)) = Stamp::split(&value) else {
        return Err(Error::Internal("an entry that expires has a stamp".into()));
    };
    if stamp.has_expired(now_ms) {
        return Ok(Found::Nothing);
    }
    let value = value.without_first(STAMP_BYTES);
    if !stamp.is_large {
        return Ok(Found::Value(value));
    }
    let table = table.ok_or(Error::Internal("a large value is in the files of a table".into()))?;
    Ok(Found::Large(LargeRef { table, pointer: value }))
}

/// A value that is stored outside its table's blocks.
#[derive(Clone, Debug)]
pub(crate) struct LargeRef {
    pub(crate) table: Arc<Table>,
    pub(crate) pointer: Slice,
}

/// The source of the epoch guard with which a read looks at resident blocks.
pub(crate) trait Pinned {
    /// The guard, or a reference to one.
    type Held: Borrow<Guard>;

    /// A guard for one step.
    fn hold(&self) -> Self::Held;
}

impl<'g> Pinned for &'g Guard {
    type Held = &'g Guard;

    #[inline(always)]
    fn hold(&self) -> &'g Guard {
        self
    }
}

/// Pins the epoch anew for each step: for a read that is kept for longer and may move between
/// threads.
pub(crate) struct EachStep;

impl Pinned for EachStep {
    type Held = Guard;

    fn hold(&self) -> Guard {
        pin()
    }
}

/// A point read that went as far as memory goes.
pub(crate) enum Begun<'k> {
    /// The read is complete.
    Done(Found),
    /// The read goes on once it has a block. It is boxed so that the result of a read in memory is
    /// small.
    Needs(Box<WaitingRead<'k>>),
}

/// A point read that waits for a block.
pub(crate) struct WaitingRead<'k> {
    pub(crate) read: KeptRead<'k>,
    pub(crate) request: BlockRequest,
}

impl Begun<'_> {
    /// Completes the read, waiting for the disk. The caller holds no guard: a slow disk would hold
    /// back all garbage of the process.
    #[inline]
    pub(crate) fn wait(self) -> Result<Found> {
        match self {
            Self::Done(found) => Ok(found),
            Self::Needs(waiting) => (*waiting).wait(),
        }
    }
}

impl WaitingRead<'_> {
    #[inline(never)]
    fn wait(mut self) -> Result<Found> {
        drive_from(&mut self.read, self.request)
    }
}

/// Begins the read of the newest version of `key` that is not newer than `seq`, from the prepared
/// position if `hint` is for these levels.
#[inline(always)]
pub(crate) fn begin<'k>(
    levels: &Arc<Levels>,
    guard: &Guard,
    key: &'k [u8],
    seq: SeqNo,
    hint: Option<&Hint<'_>>,
) -> Result<Begun<'k>> {
    let hint = hint.filter(|hint| std::ptr::eq(hint.levels, &**levels));
    let (hash, at) = match hint {
        Some(Hint { hash, candidate, block, .. }) => (*hash, (*candidate, Some(*block))),
        None => {
            let hash = KeyHash::of(key);
            match read_resident(levels, guard, key, hash, seq) {
                Resident::Hit(hit) => return Ok(Begun::Done(Found::Value(hit.into_slice()))),
                Resident::Nothing => return Ok(Begun::Done(Found::Nothing)),
                Resident::Unclear(candidate, block) => (hash, (candidate, block)),
            }
        }
    };
    begin_from(levels, guard, key, hash, seq, at)
}

/// [`begin`] from a candidate, and from a block of it if that is known.
#[inline(never)]
fn begin_from<'k>(
    levels: &Arc<Levels>,
    guard: &Guard,
    key: &'k [u8],
    hash: KeyHash,
    seq: SeqNo,
    at: (usize, Option<u32>),
) -> Result<Begun<'k>> {
    let mut read = PointRead::from(&**levels, guard, key, hash, seq, at);
    Ok(match read.step()? {
        Progress::Done(found) => Begun::Done(found),
        Progress::Need(request) => {
            let read = read.keep(Arc::clone(levels));
            Begun::Needs(Box::new(WaitingRead { read, request }))
        }
    })
}

/// The result of a look at resident blocks.
enum Resident<'g> {
    /// The value.
    Hit(Hit<'g>),
    /// No table has the key.
    Nothing,
    /// Unknown: [`begin_from`] goes on at this candidate, and at this block if it is known.
    Unclear(usize, Option<u32>),
}

/// Reads the newest version of `key` that is not newer than `seq`, if it is a value in a resident
/// block, as in most reads in memory. Everything else is left to [`PointRead`].
#[inline(always)]
fn read_resident<'g>(
    levels: &'g Levels,
    guard: &'g Guard,
    key: &[u8],
    hash: KeyHash,
    seq: SeqNo,
) -> Resident<'g> {
    if levels.has_ranges() {
        return Resident::Unclear(0, None);
    }
    let code = code::code_at(key, 0);
    let mut at = 0;
    loop {
        let Some(candidate) = levels.candidate(at, key, code) else { return Resident::Nothing };
        if let Some(table) = candidate
            && let Some(block) = table.block_for(guard, key, hash)
        {
            return match table.hit(guard, block, key, hash, seq) {
                Some(hit) => Resident::Hit(hit),
                None => Resident::Unclear(at, Some(block)),
            };
        }
        at += 1;
    }
}

/// A point read that keeps what it reads alive.
pub(crate) type KeptRead<'a> = PointRead<'a, Arc<Levels>, EachStep>;

/// A point read of one key in one LSM tree's tables.
pub(crate) struct PointRead<'a, V: Deref<Target = Levels>, G: Pinned> {
    levels: V,
    guard: G,
    key: &'a [u8],
    hash: KeyHash,
    seq: SeqNo,
    /// The next candidate: tables of level 0 first, then one per deeper level.
    next: usize,
    /// The block of that candidate to look into, once its filter was asked.
    block: Option<u32>,
    /// The blocks in which the key is searched for in the candidate before `next`, if its index did
    /// not name the key's block.
    bracket: Option<Bracket>,
}

impl<'a, V: Deref<Target = Levels>, G: Pinned> PointRead<'a, V, G> {
    /// A read of the newest version of `key` that is not newer than `seq`, from a candidate on, and
    /// from a block of it if that is known.
    fn from(
        levels: V,
        guard: G,
        key: &'a [u8],
        hash: KeyHash,
        seq: SeqNo,
        (next, block): (usize, Option<u32>),
    ) -> Self {
        Self { levels, guard, key, hash, seq, next, block, bracket: None }
    }

    /// The same read from its present position, kept for longer. `levels` are those it reads.
    fn keep(self, levels: Arc<Levels>) -> KeptRead<'a> {
        debug_assert!(std::ptr::eq(&*self.levels, &*levels), "another moment's levels");
        let Self { key, hash, seq, next, block, bracket, .. } = self;
        PointRead { levels, guard: EachStep, key, hash, seq, next, block, bracket }
    }

    /// The candidate at index `at`; `None` past the last, `Some(None)` if a level has no candidate.
    #[inline]
    fn candidate(&self, at: usize) -> Option<Option<&Arc<Table>>> {
        self.levels.candidate(at, self.key, code::code_at(self.key, 0))
    }

    /// Searches beside the block that the index of candidate `at` named, as far as blocks are in
    /// memory.
    fn search(&mut self, mut bracket: Bracket, at: usize) -> Result<Lookup> {
        let (key, hash, seq) = (self.key, self.hash, self.seq);
        let Some(Some(table)) = self.candidate(at) else { return Ok(Lookup::Absent) };
        let held = self.guard.hold();
        let lookup = table.search(held.borrow(), &mut bracket, key, hash, seq)?;
        self.bracket = matches!(lookup, Lookup::Need(_)).then_some(bracket);
        Ok(lookup)
    }

    /// The sequence number of the newest range tombstone of a table over the key; 0 if there is
    /// none.
    fn removed(&self, table: &Table) -> SeqNo {
        table.ranges().map_or(0, |ranges| ranges.newest(self.key, self.seq))
    }

    /// [`Plan::step`] after a block was waited for.
    #[inline(never)]
    fn step_on(&mut self) -> Result<Progress<Found>> {
        self.step()
    }

    /// [`Plan::step`] if tables have range tombstones: the tombstones of each table are checked
    /// first.
    #[cold]
    #[inline(never)]
    fn step_under_ranges(&mut self) -> Result<Progress<Found>> {
        loop {
            let at = self.next;
            let Some(candidate) = self.candidate(at) else {
                return Ok(Progress::Done(Found::Nothing));
            };
            let (block, Self { key, hash, seq, .. }) = (self.block, &*self);
            let removed = candidate.map_or(0, |table| self.removed(table));
            // True if the table has no entry that the read could return.
            let is_passed = |table: &Table| {
                let meta = table.meta();
                meta.entries == 0 || removed > 0 && removed >= meta.seq_max
            };
            let lookup = match candidate.filter(|table| !is_passed(table)) {
                Some(table) => table.lookup(self.guard.hold().borrow(), block, key, *hash, *seq)?,
                None => Lookup::Absent,
            };
            self.block = None;
            self.next += 1;
            if let Some(progress) = self.finish(lookup, at, removed)? {
                return Ok(progress);
            }
        }
    }

    /// Decides on the answer of candidate `at`, whose range tombstone over the key has the sequence
    /// number `removed`. If the answer is not sure, searches beside the block that the index named.
    /// `None` means that the read goes on to the next candidate. Kept apart from the path of most
    /// reads.
    #[cold]
    #[inline(never)]
    fn finish(
        &mut self,
        lookup: Lookup,
        at: usize,
        removed: SeqNo,
    ) -> Result<Option<Progress<Found>>> {
        let lookup = match lookup {
            Lookup::Unsure(bracket) => self.search(bracket, at)?,
            lookup => lookup,
        };
        Ok(self.resolve(lookup, at, removed))
    }

    /// [`PointRead::finish`] for an answer that is sure.
    fn resolve(&self, lookup: Lookup, at: usize, removed: SeqNo) -> Option<Progress<Found>> {
        Some(match lookup {
            // Entries in further candidates are older.
            Lookup::Absent | Lookup::Unsure(_) if removed > 0 => Progress::Done(Found::Nothing),
            Lookup::Absent | Lookup::Unsure(_) => return None,
            Lookup::Tombstone(_) => Progress::Done(Found::Nothing),
            Lookup::Value(seq, _) | Lookup::Large(seq, _) | Lookup::Expiring(seq, _)
                if seq < removed =>
            {
                Progress::Done(Found::Nothing)
            }
            Lookup::Value(_, value) => Progress::Done(Found::Value(value)),
            Lookup::Large(_, pointer) => {
                let table = Arc::clone(self.candidate(at)??);
                Progress::Done(Found::Large(LargeRef { table, pointer }))
            }
            Lookup::Expiring(_, value) => {
                let table = Arc::clone(self.candidate(at)??);
                Progress::Done(Found::Expiring(value, Some(table)))
            }
            Lookup::Need(block) => {
                let table = Arc::clone(self.candidate(at)??);
                Progress::Need(BlockRequest { table, block })
            }
        })
    }
}

impl<V: Deref<Target = Levels>, G: Pinned> Plan for PointRead<'_, V, G> {
    type Output = Found;

    #[inline(always)]
    fn step(&mut self) -> Result<Progress<Found>> {
        if self.levels.has_ranges() {
            return self.step_under_ranges();
        }
        loop {
            let at = self.next;
            let Some(candidate) = self.candidate(at) else {
                return Ok(Progress::Done(Found::Nothing));
            };
            let (block, Self { key, hash, seq, .. }) = (self.block, &*self);
            let lookup = match candidate {
                Some(table) => table.lookup(self.guard.hold().borrow(), block, key, *hash, *seq)?,
                None => Lookup::Absent,
            };
            self.block = None;
            self.next = at + 1;
            match lookup {
                Lookup::Absent => {}
                Lookup::Value(_, value) => return Ok(Progress::Done(Found::Value(value))),
                other => {
                    if let Some(progress) = self.finish(other, at, 0)? {
                        return Ok(progress);
                    }
                }
            }
        }
    }

    fn resume(&mut self, block: BlockRef) -> Result<Progress<Found>> {
        let at = self.next - 1;
        let bracket = self.bracket.take();
        if let Some(Some(table)) = self.candidate(at) {
            let (key, hash, seq) = (self.key, self.hash, self.seq);
            let removed = if self.levels.has_ranges() { self.removed(table) } else { 0 };
            let lookup = match bracket {
                Some(mut bracket) => table.search_in(&block, &mut bracket, key, hash, seq)?,
                None => table.lookup_in(&block, key, hash, seq)?,
            };
            if let Some(progress) = self.finish(lookup, at, removed)? {
                return Ok(progress);
            }
        }
        self.step_on()
    }
}

/// The value that a read found, waiting for the disk if it is stored outside its table's blocks;
/// `None` if it found none. The entry is one that the reader sees ([`Found::at`]).
#[inline]
pub(crate) fn load(found: Found) -> Result<Option<Slice>> {
    match found {
        Found::Expiring(..) => Err(Error::Internal("a read ends at the reader's time".into())),
        Found::Value(value) => Ok(Some(value)),
        Found::Large(large) => large.table.read_large(&large.pointer).map(Some),
        Found::Nothing => Ok(None),
    }
}

/// As [`load`], but reads no value that is stored outside its table's blocks and is longer than
/// `bytes_max`: that is [`Error::TooLong`].
#[inline]
pub(crate) fn load_at_most(found: Found, bytes_max: u64) -> Result<Option<Slice>> {
    if let Found::Large(large) = &found {
        let bytes = large.table.value_pointer(&large.pointer)?.len;
        if bytes > bytes_max {
            return Err(Error::TooLong { bytes, bytes_max });
        }
    }
    load(found)
}
