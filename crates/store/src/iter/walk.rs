//! From versions to keys: a walk over the entries that one reader may see.

use std::{future::poll_fn, ops::Bound};

use rhumb_sync::primitive::Arc;

use super::{
    merge::{Inputs, MergedSources},
    source::{Source, Start},
};
use crate::{
    error::Result,
    expiry::{Millis, Stamp},
    plan::{
        Plan, Progress,
        point::{Found, LargeRef},
    },
    slice::{BlockRef, Slice},
    types::{Kind, Moment, SeqNo, is_same_key},
};

/// The number of consecutive tombstones from which a table is worth compacting.
const TOMBSTONES_MET: u32 = 1024;

/// The number of versions of a key that are stepped over one by one before a table's cursor seeks
/// past them. A seek within a block costs about as much.
const VERSIONS_STEPPED: u32 = 8;

/// A walk in one direction over the newest visible version of every key.
///
/// As a plan it moves to the next key and reports whether there is one. [`Walk::key`] and
/// [`Walk::value`] then return what it stands on.
pub(crate) struct Walk {
    merge: MergedSources,
    forward: bool,
    seq: SeqNo,
    /// The time of the reader: what has expired by then is passed.
    now_ms: Millis,
    merge_state: MergeState,
    /// The key whose versions are being passed, while `in_group`.
    group: Vec<u8>,
    in_group: bool,
    /// The number of tombstones since the last key that was found.
    tombstones: u32,
    /// The number of versions that were stepped over since the last seek past some.
    versions: u32,
    /// Backward: the newest visible version of the group found so far.
    newest: Found,
    /// Backward: true if that version has expired.
    has_expired: bool,
}

/// What the walk has done with the entry under the merge.
#[derive(Clone, Copy, PartialEq)]
enum MergeState {
    /// The merge has not begun.
    Before,
    /// The entry under the merge has not been looked at.
    On,
    /// The entry under the merge is done with.
    Past,
}

/// The result of a look at the entry under the merge.
enum Look {
    Stands,
    GoesOn,
    /// A range tombstone covers the entry.
    Skips,
    /// Passes the versions of the entry's key that a reader at this sequence number does not see,
    /// or without a number all of them.
    PassesVersions(Option<SeqNo>),
    /// Passes keys of which none is known to live.
    PassesDead,
    Ended,
}

impl Walk {
    /// A walk over `inputs` from `start`, of what a reader at a moment sees. It ends once it stands
    /// beyond `end`.
    pub(crate) fn new(
        inputs: Inputs,
        start: Start,
        end: Bound<Box<[u8]>>,
        Moment { seq, now_ms }: Moment,
    ) -> Self {
        let forward = start.is_forward();
        Self {
            merge: MergedSources::new(inputs, start, end, seq),
            forward,
            seq,
            now_ms,
            merge_state: MergeState::Before,
            group: Vec::new(),
            in_group: false,
            tombstones: 0,
            versions: 0,
            newest: Found::Nothing,
            has_expired: false,
        }
    }

    /// The number of entries that were stepped over: see [`MergedSources::passed`].
    #[cfg(test)]
    pub(crate) fn passed(&self) -> u64 {
        self.merge.passed()
    }

    /// Like [`MergedSources::hint_len`].
    pub(crate) fn hint_len(&mut self, entries: usize) {
        self.merge.hint_len(entries);
    }

    /// The key that the walk stands on; empty where there is none.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        if !self.forward {
            return &self.group;
        }
        self.merge.top().map_or(&[], Source::key)
    }

    /// The value of the key that the walk stands on, or where the value is stored.
    #[inline]
    pub(crate) fn value(&mut self) -> Found {
        if !self.forward {
            return std::mem::replace(&mut self.newest, Found::Nothing);
        }
        self.merge.top().map_or(Found::Nothing, |entry| found(entry, self.now_ms))
    }

    /// When the entry that a walk forward stands on expires, if it does.
    pub(crate) fn expires_ms(&self) -> Option<Millis> {
        let entry = self.merge.top().filter(|entry| entry.kind() == Kind::Expiring)?;
        Stamp::split(entry.value()).map(|(stamp, _)| stamp.at_ms)
    }

    /// The bytes of that value, if they are in memory.
    #[inline]
    pub(crate) fn value_bytes(&self) -> Option<&[u8]> {
        if !self.forward {
            return match &self.newest {
                Found::Value(value) => Some(value),
                _ => None,
            };
        }
        let entry = self.merge.top()?;
        if entry.kind() == Kind::Value { Some(entry.value()) } else { unstamped(entry) }
    }

    /// Goes to the next key, blocking the calling thread. Returns false if there is none.
    #[inline]
    pub(crate) fn drive(&mut self) -> Result<bool> {
        let mut progress = self.step()?;
        loop {
            match progress {
                Progress::Done(stands) => return Ok(stands),
                Progress::Need(_) => match self.merge.fetch()? {
                    Some(block) => progress = self.resume(block)?,
                    None => return Ok(false),
                },
            }
        }
    }

    /// [`Walk::drive`] without blocking a thread. The future may be dropped and the call made
    /// again.
    pub(crate) async fn drive_async(&mut self) -> Result<bool> {
        let mut progress = self.step()?;
        loop {
            match progress {
                Progress::Done(stands) => return Ok(stands),
                Progress::Need(_) => match poll_fn(|cx| self.merge.poll_fetch(cx)).await? {
                    Some(block) => progress = self.resume(block)?,
                    None => return Ok(false),
                },
            }
        }
    }

    #[inline]
    fn go_on(&mut self, mut moved: Progress<()>) -> Result<Progress<bool>> {
        loop {
            if let Progress::Need(request) = moved {
                return Ok(Progress::Need(request));
            }
            self.merge_state = MergeState::On;
            match if self.forward { self.look() } else { self.look_back() } {
                Look::Stands => {
                    self.tombstones = 0;
                    if !self.forward {
                        // It was counted before the key was known.
                        self.merge.uncount_entry();
                    }
                    let key = (!self.forward).then_some(&*self.group);
                    self.merge.record_living_key(key);
                    self.merge.count_given();
                    return Ok(Progress::Done(true));
                }
                Look::Ended => {
                    self.merge.record_end();
                    return Ok(Progress::Done(false));
                }
                Look::GoesOn => {
                    self.merge.count_entry();
                    moved = self.merge.advance()?;
                }
                Look::Skips => {
                    self.merge.count_entry();
                    moved = self.merge.skip()?;
                }
                Look::PassesVersions(seq) => {
                    self.merge.count_entry();
                    moved = self.merge.pass_versions(seq)?;
                }
                Look::PassesDead => {
                    self.merge.count_entry();
                    moved = self.merge.pass_dead()?;
                }
            }
        }
    }

    /// Forward: the first visible version of each key is its newest.
    #[inline]
    fn look(&mut self) -> Look {
        let Some(entry) = self.merge.top() else { return Look::Ended };
        self.merge_state = MergeState::Past;
        let seq = entry.seq();
        if seq > self.seq {
            return self.step_over(Some(self.seq));
        }
        if self.in_group && is_same_key(&self.group, entry.key()) {
            return self.step_over(None);
        }
        // The tombstone covers all older versions as well.
        if self.merge.is_top_removed() {
            return Look::Skips;
        }
        let Some(entry) = self.merge.top() else { return Look::Ended };
        // Only the last version of a key may have sequence number 0, so no other version of the key
        // follows.
        self.in_group = seq > 0;
        let kind = entry.kind();
        let is_expired = kind == Kind::Expiring && has_expired(entry, self.now_ms);
        let is_there = kind != Kind::Tombstone && !is_expired;
        if self.in_group || !is_there {
            self.group.clear();
            self.group.extend_from_slice(entry.key());
        }
        if is_there {
            return Look::Stands;
        }
        if is_expired {
            return self.step_over_expired();
        }
        self.count_tombstone();
        self.step_over_dead()
    }

    /// Steps over the key of the group, which has expired. Readers with an earlier time still see
    /// it, so the key is not recorded as dead, but as living.
    #[cold]
    #[inline(never)]
    fn step_over_expired(&mut self) -> Look {
        if self.merge.is_beyond(&self.group) {
            return Look::Ended;
        }
        let key = (!self.forward).then_some(&*self.group);
        // planted: expiry-recorded-dead
        self.merge.record_living_key(key);
        Look::GoesOn
    }

    /// Counts one more version that was looked at in vain. After every [`VERSIONS_STEPPED`] of
    /// them, seeks to the version that a reader at `seq` sees, or without a number past all of
    /// them.
    #[inline]
    fn step_over(&mut self, seq: Option<SeqNo>) -> Look {
        self.versions += 1;
        if self.versions.is_multiple_of(VERSIONS_STEPPED) {
            return Look::PassesVersions(seq);
        }
        Look::GoesOn
    }

    /// Steps over the key of the group, which is dead.
    fn step_over_dead(&mut self) -> Look {
        // A walk does not go on beyond its end to the next living key, and records nothing there:
        // sources that began beyond the end took no part.
        if self.merge.is_beyond(&self.group) {
            return Look::Ended;
        }
        if self.merge.record_dead_key(&self.group) { Look::PassesDead } else { Look::GoesOn }
    }

    /// Counts a tombstone. If many of them follow one another, requests a compaction of their
    /// table.
    #[inline(never)]
    fn count_tombstone(&mut self) {
        self.tombstones += 1;
        if self.tombstones >= TOMBSTONES_MET {
            self.tombstones = 0;
            if let Some(table) = self.merge.top().and_then(Source::table) {
                table.record_tombstone_run();
            }
        }
    }

    /// Backward: versions come oldest first, so a key is known once the next one begins.
    fn look_back(&mut self) -> Look {
        let top = self.merge.top();
        let same = top.is_some_and(|entry| self.in_group && is_same_key(&self.group, entry.key()));
        if !same && self.in_group {
            self.in_group = false;
            if !matches!(self.newest, Found::Nothing) {
                return Look::Stands;
            }
            let passed = match std::mem::take(&mut self.has_expired) {
                true => self.step_over_expired(),
                false => self.step_over_dead(),
            };
            match passed {
                Look::GoesOn => {}
                over => {
                    // The entry under the merge is left, or will not be looked at.
                    self.merge_state = MergeState::Past;
                    return over;
                }
            }
        }
        let Some(entry) = self.merge.top() else { return Look::Ended };
        self.merge_state = MergeState::Past;
        if entry.seq() > self.seq {
            return self.step_over(None);
        }
        // Newer versions, if there are any, are still to come.
        if self.merge.is_top_removed() {
            return Look::Skips;
        }
        let Some(entry) = self.merge.top() else { return Look::Ended };
        if !same {
            self.group.clear();
            self.group.extend_from_slice(entry.key());
            self.in_group = true;
        }
        self.newest = found(entry, self.now_ms);
        self.has_expired = entry.kind() == Kind::Expiring && has_expired(entry, self.now_ms);
        if entry.kind() == Kind::Tombstone {
            self.count_tombstone();
        }
        if same { self.step_over(Some(self.seq)) } else { Look::GoesOn }
    }
}

/// Returns true for an entry that a reader at a time does not see any more.
#[cold]
#[inline(never)]
fn has_expired(entry: &Source, now_ms: Millis) -> bool {
    entry.kind() == Kind::Expiring
        && Stamp::split(entry.value()).is_none_or(|(stamp, _)| stamp.has_expired(now_ms))
}

/// The value of an entry that expires, if it is in the entry.
#[cold]
#[inline(never)]
fn unstamped(entry: &Source) -> Option<&[u8]> {
    let (stamp, value) = Stamp::split(entry.value()).filter(|_| entry.kind() == Kind::Expiring)?;
    (!stamp.is_large).then_some(value)
}

/// What a reader at a time finds of an entry that expires.
#[cold]
#[inline(never)]
fn unexpired(entry: &Source, now_ms: Millis) -> Found {
    let found = Found::Expiring(entry.value_slice(), entry.table().cloned());
    // Every entry that expires has a stamp: blocks and log records are checked.
    found.at(|| now_ms).unwrap_or(Found::Nothing)
}

#[inline]
fn found(entry: &Source, now_ms: Millis) -> Found {
    match entry.kind() {
        Kind::Expiring => unexpired(entry, now_ms),
        Kind::Value => Found::Value(entry.value_slice()),
        Kind::LargeValue => match entry.table() {
            Some(table) => Found::Large(LargeRef {
                table: Arc::clone(table),
                pointer: Slice::copy_from(entry.value()),
            }),
            None => Found::Nothing,
        },
        Kind::Tombstone => Found::Nothing,
    }
}

impl Plan for Walk {
    type Output = bool;

    #[inline]
    fn step(&mut self) -> Result<Progress<bool>> {
        let moved = match self.merge_state {
            MergeState::Before => self.merge.begin()?,
            MergeState::On => Progress::Done(()),
            MergeState::Past => self.merge.advance()?,
        };
        self.go_on(moved)
    }

    fn resume(&mut self, block: BlockRef) -> Result<Progress<bool>> {
        let moved = self.merge.resume(block)?;
        self.go_on(moved)
    }
}
