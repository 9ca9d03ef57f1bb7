//! Walks a table's entries in both directions.
//!
//! A cursor is a state machine that never waits for the disk: each step either ends
//! ([`Step::Done(())`]) or asks for a block ([`Step::Need`]) and goes on when it is handed over
//! ([`TableCursor::resume`]). [`TableCursor::drive`] does that with ordinary reads.
//!
//! A seek begins in the block that the index names and ends at the entries beside the target. So a
//! damaged or hostile index costs time, and never loses an entry.
//!
//! A cursor belongs to one thread at a time. It keeps the block it stands on alive, so what it
//! stands on stays readable whatever the cache does. After an error it is invalid until it is
//! moved by a seek, `first` or `last`.

use std::{
    io,
    sync::Arc,
    task::{Context, Poll},
};

use rhumb_sync::epoch::pin;

use super::{
    TableCounters,
    block::{BlockView, Damaged, SeekTarget, Shape},
    bracket::{Bracket, Side},
    progress::Progress,
    read_ahead::{Access, Demand, ReadAhead},
    reader::Table,
};
use crate::{
    error::Result,
    io::{
        buffers::ReadBuf,
        engine::{ReadPart, block_on},
    },
    slice::{BlockRef, Slice},
    types::{Kind, SeqNo},
};

/// The state of a move of a cursor. Once it is done, the cursor is where it should be, or past the
/// end ([`TableCursor::is_valid`]). Until then it waits for the block of this number.
pub(crate) type Step = Progress<()>;

/// What to do with the next block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    /// Stand on its first entry, or that of the next block that has one.
    First,
    /// Stand on its last entry, or that of the previous block that has one.
    Last,
    /// Stand on the first entry at or after the target.
    SeekFrom,
    /// Stand on the last entry before the target.
    SeekBefore,
}

/// Where a goal is met.
#[derive(Clone, Copy, Debug)]
enum Landing {
    /// At this entry of the block.
    At(usize),
    /// Not in the block: look into this one next, if there is one.
    Beyond(Option<u32>),
}

/// The block that a cursor stands on, and where in it.
#[derive(Debug)]
struct Standing {
    block: BlockRef,
    shape: Shape,
    number: u32,
    position: usize,
    /// The number of bytes that `key` shares with the group's first key.
    shared: usize,
    seq: SeqNo,
    kind: Kind,
    value_start: usize,
    value_len: usize,
}

/// Stands on one entry of a table, or on none.
pub(crate) struct TableCursor {
    table: Arc<Table>,
    goal: Goal,
    /// The target of a seek.
    target: Vec<u8>,
    target_seq: SeqNo,
    /// The block asked for.
    wanted: u32,
    /// The search for the block of a seek's target.
    bracket: Bracket,
    /// A block that a seek has read and may come back to, and its number.
    aside: Option<(u32, BlockRef)>,
    standing: Option<Standing>,
    key: Vec<u8>,
    ahead: ReadAhead,
}

impl TableCursor {
    /// A cursor that stands on nothing.
    pub(crate) fn new(table: Arc<Table>, access: Access) -> Self {
        Self {
            table,
            goal: Goal::First,
            target: Vec::new(),
            target_seq: 0,
            wanted: 0,
            bracket: Bracket::new(1, 0),
            aside: None,
            standing: None,
            key: Vec::new(),
            ahead: ReadAhead::new(access),
        }
    }

    /// A cursor of the table beside this one's, for a walk that goes on there.
    pub(crate) fn following(&self, table: Arc<Table>) -> Self {
        let ahead = self.ahead.following();
        Self { ahead, ..Self::new(table, self.ahead.access()) }
    }

    /// Moves to the first entry at or after (`key`, `seq`) in the order of entries: the newest
    /// version of `key` that a reader at `seq` sees, or else whatever follows.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Corrupt`] if a block is malformed; so for every move.
    pub(crate) fn seek(&mut self, key: &[u8], seq: SeqNo) -> Result<Step> {
        self.start_seek(Goal::SeekFrom, key, seq)
    }

    /// Moves to the last entry before (`key`, `seq`) in the order of entries.
    pub(crate) fn seek_before(&mut self, key: &[u8], seq: SeqNo) -> Result<Step> {
        self.start_seek(Goal::SeekBefore, key, seq)
    }

    /// Moves to the first entry.
    pub(crate) fn first(&mut self) -> Result<Step> {
        self.goal = Goal::First;
        self.go(0)
    }

    /// Moves to the last entry.
    pub(crate) fn last(&mut self) -> Result<Step> {
        self.goal = Goal::Last;
        self.go(self.table.index().block_count() - 1)
    }

    /// Moves to the next entry; from the last one, to none. A cursor on none stays there.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Step> {
        let Some(standing) = &self.standing else { return Ok(Step::Done(())) };
        let (number, position) = (standing.number, standing.position);
        if self.stand_within(position + 1)? {
            return Ok(Step::Done(()));
        }
        self.goal = Goal::First;
        self.leave_for(number.checked_add(1))
    }

    /// Moves to the previous entry; from the first one, to none. A cursor on none stays there.
    #[inline]
    pub(crate) fn prev(&mut self) -> Result<Step> {
        let Some(standing) = &self.standing else { return Ok(Step::Done(())) };
        let (number, position) = (standing.number, standing.position);
        if position > 0 && self.stand_within(position - 1)? {
            return Ok(Step::Done(()));
        }
        self.goal = Goal::Last;
        self.leave_for(number.checked_sub(1))
    }

    /// Moves on past versions of the key under the cursor. Forward: to the newest version of that
    /// key that a reader at `seq` sees, or without `seq` past all versions. Backward: to the newest
    /// version that the reader sees, or past all versions if the cursor is at it or if there is no
    /// `seq`. Moves by one entry at least. O(log entries of a block): all versions of a key lie in
    /// one block.
    pub(crate) fn pass_versions(&mut self, seq: Option<SeqNo>, forward: bool) -> Result<Step> {
        let Some(standing) = &self.standing else { return Ok(Step::Done(())) };
        let (number, position) = (standing.number, standing.position);
        // In the table's own numbers; none are visible where all are numbered above `seq`.
        let own = seq.and_then(|seq| seq.checked_sub(self.table.seq_shift()));
        let mut key = self.key.clone();
        if forward && own.is_none() {
            key.push(0);
        }
        let view = standing.shape.view(standing.block.bytes());
        let bound = |key: &[u8], seq| {
            view.lower_bound(SeekTarget { key, seq })
                .map_err(|damaged| self.table.damaged_block(number, damaged))
        };
        let at = bound(&key, own.unwrap_or(SeqNo::MAX))?;
        let to = match (forward, own) {
            (true, _) => Some(at.max(position + 1)),
            (false, Some(_)) if at < position => Some(at),
            (false, Some(_)) => bound(&key, SeqNo::MAX)?.checked_sub(1),
            (false, None) => at.checked_sub(1),
        };
        if let Some(to) = to
            && self.stand_within(to)?
        {
            return Ok(Step::Done(()));
        }
        self.goal = if forward { Goal::First } else { Goal::Last };
        self.leave_for(if forward { number.checked_add(1) } else { number.checked_sub(1) })
    }

    /// Moves to none.
    pub(crate) fn end(&mut self) {
        self.leave();
    }

    /// Goes on with the block that was asked for.
    pub(crate) fn resume(&mut self, block: BlockRef) -> Result<Step> {
        match self.arrive(self.wanted, block)? {
            None => Ok(Step::Done(())),
            Some(next) => self.go(next),
        }
    }

    /// Does the reads that a step asks for, until it is ready.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Corrupt`], [`crate::Error::Io`]. The cursor is invalid then.
    #[inline]
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn drive(&mut self, mut step: Step) -> Result<()> {
        while let Step::Need(number) = step {
            let block = self.fetch(number)?;
            step = self.resume(block)?;
        }
        Ok(())
    }

    /// Marks a block that the cursor asked for as wanted, with the pages that are likely to be
    /// wanted after it.
    pub(crate) fn want(&mut self, number: u32) -> Result<()> {
        let backward = matches!(self.goal, Goal::Last | Goal::SeekBefore);
        self.ahead.want(&self.table, number, backward)
    }

    /// Hints that the walk will read about `pages` more pages of the table. Those that are not
    /// in memory are [wanted] now, from the block that the cursor waits for, or else from the one
    /// that it stands in.
    ///
    /// [wanted]: TableCursor::small_part
    pub(crate) fn hint_pages(
        &mut self,
        waits_for: Option<u32>,
        pages: impl Fn(Demand) -> u32,
        backward: bool,
    ) -> Result<()> {
        let (number, demand) = match (waits_for, &self.standing) {
            (Some(number), _) => (number, Demand::Waiting),
            (None, Some(standing)) => (standing.number, Demand::Standing),
            (None, None) => return Ok(()),
        };
        self.ahead.hint_pages(&self.table, number, demand, pages(demand), backward)
    }

    /// Brings in a block that the cursor asked for.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Corrupt`], [`crate::Error::Io`].
    pub(crate) fn fetch(&mut self, number: u32) -> Result<BlockRef> {
        self.want(number)?;
        self.ahead.read_small(&self.table)?;
        block_on(|cx| self.poll_fetch(number, cx))
    }

    /// Begins the reads that are wanted.
    pub(crate) fn start(&mut self) {
        self.ahead.start(&self.table);
    }

    /// [`TableCursor::fetch`] of a block that is [wanted](TableCursor::want), without waiting.
    pub(crate) fn poll_fetch(
        &mut self,
        number: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<BlockRef>> {
        self.ahead.start(&self.table);
        self.ahead.poll_block(&self.table, number, cx)
    }

    /// The part that is wanted, if it is small, for a caller that does many small reads at once.
    pub(crate) fn small_part(&self) -> Option<ReadPart> {
        self.ahead.small_part(&self.table)
    }

    /// Takes the result of reading [`TableCursor::small_part`].
    ///
    /// # Errors
    ///
    /// [`crate::Error::Corrupt`], [`crate::Error::Io`].
    pub(crate) fn put_small(&mut self, result: io::Result<usize>, bytes: ReadBuf) -> Result<()> {
        self.ahead.put_small(&self.table, result, bytes)
    }

    /// Returns true if the cursor stands on an entry. The accessors below are meaningful only then.
    #[inline]
    pub(crate) fn is_valid(&self) -> bool {
        self.standing.is_some()
    }

    /// The user key of the entry; empty if there is none.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// The entry's sequence number; 0 if there is none.
    #[inline]
    pub(crate) fn seq(&self) -> SeqNo {
        self.standing.as_ref().map_or(0, |standing| standing.seq + self.table.seq_shift())
    }

    /// What the entry says of its key; a tombstone if there is none.
    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        self.standing.as_ref().map_or(Kind::Tombstone, |standing| standing.kind)
    }

    /// The entry's value, or the pointer to it; empty for a tombstone.
    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        let Some(standing) = &self.standing else { return &[] };
        &standing.block.bytes()[standing.value_start..standing.value_start + standing.value_len]
    }

    /// [`TableCursor::value`] that outlives the cursor's place, sharing the block where the value
    /// is longer than 22 bytes.
    #[inline]
    pub(crate) fn value_slice(&self) -> Slice {
        match &self.standing {
            Some(standing) => standing.block.slice(standing.value_start, standing.value_len),
            None => Slice::copy_from(&[]),
        }
    }

    /// The table.
    pub(crate) fn table(&self) -> &Arc<Table> {
        &self.table
    }

    fn start_seek(&mut self, goal: Goal, key: &[u8], seq: SeqNo) -> Result<Step> {
        self.goal = goal;
        self.target.clear();
        self.target.extend_from_slice(key);
        // In the table's own numbers. Where all are numbered above `seq`, every version of the key
        // comes before the target: that is the place before the key's successor.
        self.target_seq = seq.checked_sub(self.table.seq_shift()).unwrap_or_else(|| {
            self.target.push(0);
            SeqNo::MAX
        });
        let index = self.table.index();
        self.bracket = Bracket::new(index.block_count(), index.seek(key).block);
        self.aside = None;
        self.go(self.bracket.block())
    }

    /// Heads for the neighbouring block `number`, or to none.
    fn leave_for(&mut self, number: Option<u32>) -> Result<Step> {
        match number.filter(|number| *number < self.table.index().block_count()) {
            Some(number) => self.go(number),
            None => {
                self.leave();
                Ok(Step::Done(()))
            }
        }
    }

    /// Pursues the goal from block `number` on.
    fn go(&mut self, mut number: u32) -> Result<Step> {
        loop {
            let held = self.standing.take().filter(|standing| standing.number == number);
            let block = match held.map(|standing| standing.block).or_else(|| self.aside(number)) {
                Some(block) => Some(block),
                None => self.obtain(number)?,
            };
            let Some(block) = block else {
                self.leave();
                self.wanted = number;
                return Ok(Step::Need(number));
            };
            match self.arrive(number, block)? {
                None => return Ok(Step::Done(())),
                Some(next) => number = next,
            }
        }
    }

    /// The block if it was laid aside.
    fn aside(&mut self, number: u32) -> Option<BlockRef> {
        self.aside.take_if(|(aside, _)| *aside == number).map(|(_, block)| block)
    }

    /// The block if it is in memory.
    fn obtain(&mut self, number: u32) -> Result<Option<BlockRef>> {
        let guard = pin();
        let blocks = self.table.blocks();
        let loaded = match self.ahead.access() {
            Access::Blocks | Access::Cached | Access::Overlapped => blocks.get(number, &guard),
            Access::Sequential => blocks.peek(number, &guard),
        };
        if let Some(loaded) = loaded {
            return Ok(Some(BlockRef::from_shared(loaded.share())));
        }
        drop(guard);
        self.ahead.block(&self.table, number)
    }

    /// Pursues the goal in a block; returns the block to go on with, if it is another.
    fn arrive(&mut self, number: u32, block: BlockRef) -> Result<Option<u32>> {
        self.leave();
        let placed = Shape::read(block.bytes())
            .and_then(|shape| Ok((shape, self.landing(number, &shape.view(block.bytes()))?)));
        let (shape, position) =
            match placed.map_err(|damaged| self.table.damaged_block(number, damaged))? {
                (shape, Landing::At(position)) => (shape, position),
                (_, Landing::Beyond(next)) => {
                    let next = next.filter(|next| *next < self.table.index().block_count());
                    if self.aside.as_ref().is_none_or(|(aside, _)| Some(*aside) != next) {
                        self.aside = Some((number, block));
                    }
                    return Ok(next);
                }
            };
        self.aside = None;
        // No byte of `key` is shared with a group of this block yet.
        self.standing = Some(Standing {
            block,
            shape,
            number,
            // On no entry yet.
            position: usize::MAX - 1,
            shared: 0,
            seq: 0,
            kind: Kind::Tombstone,
            value_start: 0,
            value_len: 0,
        });
        self.stand_within(position)?;
        Ok(None)
    }

    /// Returns where in block `number` the goal is met, or which block to look into next.
    fn landing(&mut self, number: u32, view: &BlockView<'_>) -> Result<Landing, Damaged> {
        let last = view.count().checked_sub(1);
        Ok(match self.goal {
            Goal::First => last.map_or(Landing::Beyond(number.checked_add(1)), |_| Landing::At(0)),
            Goal::Last => last.map_or(Landing::Beyond(number.checked_sub(1)), Landing::At),
            Goal::SeekFrom | Goal::SeekBefore => self.seek_in(view)?,
        })
    }

    /// [`TableCursor::landing`] of a seek.
    fn seek_in(&mut self, view: &BlockView<'_>) -> Result<Landing, Damaged> {
        let target = SeekTarget { key: &self.target, seq: self.target_seq };
        let at = view.lower_bound(target)?;
        let side = match view.count() {
            0 => Side::Empty,
            count if at == count => Side::Before,
            // All versions of a key are in one block.
            _ if at == 0 && view.head_key(0)? != self.target => Side::Behind,
            _ => Side::Within,
        };
        let was_refuted = self.bracket.is_refuted();
        let is_over = side == Side::Within || !self.bracket.narrow(side);
        if !was_refuted && self.bracket.is_refuted() {
            TableCounters::add(&self.table.counters().refuted, 1);
        }
        if !is_over {
            return Ok(Landing::Beyond(Some(self.bracket.block())));
        }
        // The entries beside the target are in this block, or in the two blocks beside the
        // position, of which this is one.
        let is_from = self.goal == Goal::SeekFrom;
        self.goal = if is_from { Goal::First } else { Goal::Last };
        Ok(match side {
            Side::Within | Side::Behind if is_from => Landing::At(at),
            Side::Within | Side::Before if at > 0 && !is_from => Landing::At(at - 1),
            Side::Within => Landing::Beyond(self.bracket.block().checked_sub(1)),
            _ if is_from => Landing::Beyond(Some(self.bracket.position_block())),
            _ => Landing::Beyond(self.bracket.position_block().checked_sub(1)),
        })
    }

    /// Stands on entry `position` of the block. False if the block ends before it.
    #[inline]
    fn stand_within(&mut self, position: usize) -> Result<bool> {
        let Some(standing) = &mut self.standing else { return Ok(false) };
        match stand(standing, &mut self.key, position) {
            Ok(stands) => Ok(stands),
            Err(damaged) => {
                let number = standing.number;
                self.leave();
                Err(self.table.damaged_block(number, damaged))
            }
        }
    }

    /// Stands on nothing.
    fn leave(&mut self) {
        self.standing = None;
        self.key.clear();
    }
}

/// Moves within a block: decodes entry `position` and assembles its key, copying only the bytes
/// that change. False if the block ends before it.
#[inline]
fn stand(standing: &mut Standing, key: &mut Vec<u8>, position: usize) -> Result<bool, Damaged> {
    let view = standing.shape.view(standing.block.bytes());
    if position >= view.count() {
        return Ok(false);
    }
    // Entries lie one after the other.
    let is_next = position == standing.position.wrapping_add(1);
    let entry = if is_next {
        view.entry_at(standing.value_start + standing.value_len)?
    } else {
        view.entry(position)?
    };
    // Within a group only the head shares nothing, so the next entry is in the same group if it
    // shares anything.
    if entry.shared == 0 {
        key.clear();
    } else if is_next && entry.shared <= standing.shared {
        key.truncate(entry.shared);
    } else {
        let prefix = view.shared_prefix(position, entry.shared)?;
        key.clear();
        key.extend_from_slice(prefix);
    }
    key.extend_from_slice(entry.suffix);
    standing.position = position;
    standing.shared = entry.shared;
    standing.seq = entry.seq;
    standing.kind = entry.kind;
    standing.value_start = entry.value_start;
    standing.value_len = entry.value_len;
    Ok(true)
}
