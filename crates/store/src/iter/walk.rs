//! From versions to keys: a walk over what one reader may see.

use super::{
    merge::Merge,
    source::{Source, Start},
};
use crate::{
    error::Result,
    plan::{
        Plan, Progress,
        point::{Found, LargeRef},
    },
    slice::Slice,
    sync::primitive::Arc,
    table::BlockRef,
    types::{Kind, SeqNo},
};

/// What a walk returns: a key, and its value or where that is.
pub(crate) type Pair = (Slice, Found);

/// A walk one way over the newest visible version of every key.
pub(crate) struct Walk {
    merge: Merge,
    forward: bool,
    seq: SeqNo,
    place: Place,
    /// The key whose versions are being passed; meaningful once `in_group`.
    group: Vec<u8>,
    in_group: bool,
    /// Backward only: the newest visible version of the group so far.
    newest: Found,
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// The merge was not begun.
    Before,
    /// The entry under the merge has not been looked at.
    On,
    /// The entry under the merge is done with.
    Past,
}

impl Walk {
    /// A walk over `sources` from `start`, of versions not newer than `seq`.
    pub(crate) fn new(sources: Vec<Source>, start: Start, seq: SeqNo) -> Self {
        let forward = start.is_forward();
        Self {
            merge: Merge::new(sources, start),
            forward,
            seq,
            place: Place::Before,
            group: Vec::new(),
            in_group: false,
            newest: Found::Nothing,
        }
    }

    /// The key that was returned last; empty before the first.
    pub(crate) fn last_key(&self) -> &[u8] {
        &self.group
    }

    fn go_on(&mut self, mut moved: Progress<()>) -> Result<Progress<Option<Pair>>> {
        loop {
            if let Progress::Need(request) = moved {
                return Ok(Progress::Need(request));
            }
            self.place = Place::On;
            let (pair, ended) = if self.forward { self.look() } else { self.look_back() };
            if pair.is_some() || ended {
                return Ok(Progress::Done(pair));
            }
            moved = self.merge.advance()?;
        }
    }

    /// Forward: the first visible version of each key is its newest.
    #[inline]
    fn look(&mut self) -> (Option<Pair>, bool) {
        let Some(entry) = self.merge.top() else { return (None, true) };
        self.place = Place::Past;
        if entry.seq() > self.seq || (self.in_group && *self.group == *entry.key()) {
            return (None, false);
        }
        self.group.clear();
        self.group.extend_from_slice(entry.key());
        self.in_group = true;
        let found = found(entry);
        if matches!(found, Found::Nothing) {
            return (None, false);
        }
        (Some((Slice::copy_from(&self.group), found)), false)
    }

    /// Backward: versions come oldest first, so a key is known once the next one begins.
    fn look_back(&mut self) -> (Option<Pair>, bool) {
        let top = self.merge.top();
        let same = top.is_some_and(|entry| self.in_group && *self.group == *entry.key());
        if !same && self.in_group {
            self.in_group = false;
            let newest = std::mem::replace(&mut self.newest, Found::Nothing);
            if !matches!(newest, Found::Nothing) {
                return (Some((Slice::copy_from(&self.group), newest)), false);
            }
        }
        let Some(entry) = top else { return (None, true) };
        self.place = Place::Past;
        if entry.seq() <= self.seq {
            if !same {
                self.group.clear();
                self.group.extend_from_slice(entry.key());
                self.in_group = true;
            }
            self.newest = found(entry);
        }
        (None, false)
    }
}

fn found(entry: &Source) -> Found {
    match (entry.kind(), entry.table()) {
        (Kind::Value, _) => Found::Value(entry.value_slice()),
        (Kind::LargeValue, Some(table)) => Found::Large(LargeRef {
            table: Arc::clone(table),
            pointer: Slice::copy_from(entry.value()),
        }),
        (Kind::Tombstone | Kind::LargeValue, _) => Found::Nothing,
    }
}

impl Plan for Walk {
    type Output = Option<Pair>;

    #[inline]
    fn step(&mut self) -> Result<Progress<Option<Pair>>> {
        let moved = match self.place {
            Place::Before => self.merge.begin()?,
            Place::On => Progress::Done(()),
            Place::Past => self.merge.advance()?,
        };
        self.go_on(moved)
    }

    fn resume(&mut self, block: BlockRef) -> Result<Progress<Option<Pair>>> {
        let moved = self.merge.resume(block)?;
        self.go_on(moved)
    }
}
