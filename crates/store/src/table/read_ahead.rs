//! The part of a table's file that its cursor has in memory or has asked for: *windows*, runs of
//! pages one after another in the direction of the walk. The further a walk goes without a pause,
//! the larger its windows become. Once they are large, the next ones are asked for before they are
//! needed.
//!
//! Nothing here waits: [`ReadAhead::want`] says what is to be read, and the engine begins large
//! windows. The code that drives the cursor decides how the first windows are read, and waits for
//! them.

use std::{
    collections::VecDeque,
    io,
    iter::Sum,
    task::{Context, Poll},
};

use rhumb_sync::epoch::pin;

use super::{
    file::{Scratch, with_scratch},
    format::PAGE_BYTES,
    index_block::BlockAddress,
    reader::Table,
};
use crate::{
    error::Result,
    io::{
        buffers::ReadBuf,
        engine::{Pending, ReadPart},
        read_full,
    },
    slice::BlockRef,
};

/// The pages of a typical block (4 KiB). A walk seldom needs the whole of its first and last block.
const PAGES_USUAL: u32 = (4 << 10) / PAGE_BYTES as u32;
/// The number of pages in each window of a long walk (512 KiB).
const PAGES_MAX: u32 = (512 << 10) / PAGE_BYTES as u32;
/// Each window is this many times as large as the one before, up to [`PAGES_MAX`].
const GROWTH: u32 = 4;
/// The largest number of pages in a window while read-ahead takes all of its memory (20 KiB).
const PAGES_SCARCE: u32 = (20 << 10) / PAGE_BYTES as u32;
/// The number of windows that a long walk asks for beyond the one that it is in.
const WINDOWS_AHEAD: usize = 3;
/// A walk that will want more pages than this is a long one from the start. It is never read ahead
/// for more than it wants.
const PAGES_LONG: u32 = (WINDOWS_AHEAD as u32 + 1) * PAGES_MAX;

/// How far a cursor reads ahead, and what becomes of the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Block by block. Blocks are taken from the cache and stay there.
    Blocks,
    /// Nothing ahead at first, and more the further the walk goes. Blocks are taken from the cache,
    /// and those of short walks stay there.
    Cached,
    /// As [`Access::Cached`], with some pages ahead from the start: for walks whose every read goes
    /// through other threads, and that overlap with others.
    Overlapped,
    /// For reading a large part of a table once: resident blocks are used, the largest windows are
    /// read ahead, and nothing is kept.
    Sequential,
}

impl Access {
    /// The number of pages in the first window; it holds at least those of the block that is
    /// wanted.
    fn first_pages(self) -> u32 {
        match self {
            Self::Blocks => 1,
            Self::Cached => PAGES_USUAL,
            Self::Overlapped => PAGES_SCARCE,
            Self::Sequential => PAGES_MAX,
        }
    }
}

/// The size of a table, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DataSize {
    entries: u64,
    /// The number of pages of data blocks.
    pages: u64,
}

impl DataSize {
    /// The extent of a table.
    pub(crate) fn of(table: &Table) -> Self {
        Self { entries: table.meta().entries, pages: u64::from(table.data_pages()) }
    }

    /// An estimate of the number of keys in `parts`. It is the number of all entries if no key is
    /// in two parts, and that of the largest part if the others hold newer versions of its keys.
    /// Which is the case is not known, so this returns the middle.
    pub(crate) fn keys_of(parts: impl Iterator<Item = Self>) -> u64 {
        let (sum, largest) = parts.fold((0, 0), |(sum, largest): (u64, u64), part| {
            (sum + part.entries, largest.max(part.entries))
        });
        u64::midpoint(sum, largest)
    }

    /// The number of pages that a walk touches here if it wants `wanted` of `keys` keys. The keys
    /// are those of this extent and of others, mixed with each other. At least the pages of a
    /// block.
    pub(crate) fn pages_of(self, wanted: usize, keys: u64, demand: Demand) -> u32 {
        /// The variance of an entry's size over the square of the mean, for entries of half and of
        /// twice the mean.
        const SIZE_VARIANCE: f64 = 0.25;
        let share = self.entries as f64 / keys.max(1) as f64;
        let mean = wanted as f64 * share;
        let pages_each = self.pages as f64 / self.entries.max(1) as f64;
        // The walk begins anywhere within its first block, so it touches one block more than it has
        // entries for. The block begins anywhere within a page.
        let beside = f64::from(PAGES_USUAL);
        let pages = match demand {
            // The number of entries that lie here varies as if each were drawn, and so does their
            // size.
            Demand::Waiting => {
                let deviation = (mean * (1.0 - share + SIZE_VARIANCE)).sqrt();
                (mean + 2.0 * deviation) * pages_each + beside + 1.0
            }
            Demand::Standing => mean * pages_each + beside * (1.0 - WORTHWHILE),
        };
        // Saturates.
        pages.ceil() as u32
    }
}

/// A block is read together with others if the probability that it is needed is at least this:
/// waiting for it later takes several times as long.
const WORTHWHILE: f64 = 0.15;

/// How badly a cursor needs its share of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    /// The cursor waits for a block, and its read may as well be enough for most walks: a page too
    /// few costs another read, a page too many only bandwidth.
    Waiting,
    /// The cursor stands in a block. What it reads now it would otherwise read later or not at all.
    Standing,
}

impl Sum for DataSize {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), |sum, part| Self {
            entries: sum.entries + part.entries,
            pages: sum.pages + part.pages,
        })
    }
}

/// The windows of one cursor.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    access: Access,
    /// In the direction of the walk, without gaps.
    windows: VecDeque<ReadWindow>,
    backward: bool,
    /// The number of pages in the next window, unless it was [hinted](ReadAhead::hint_pages).
    pages: u32,
}

/// A run of pages.
#[derive(Debug)]
struct ReadWindow {
    first: u32,
    count: u32,
    state: WindowState,
}

#[derive(Debug)]
enum WindowState {
    /// No read of it has begun.
    Wanted,
    /// Its read is in flight.
    Flying(Pending),
    Here(ReadBuf),
}

impl ReadWindow {
    fn end(&self) -> u32 {
        self.first + self.count
    }

    fn overlaps(&self, address: BlockAddress) -> bool {
        self.first <= address.last_page && address.first_page < self.end()
    }

    fn bytes(&self) -> &[u8] {
        match &self.state {
            WindowState::Here(bytes) => bytes,
            _ => &[],
        }
    }
}

impl ReadAhead {
    /// No windows: the beginning of a walk.
    pub(crate) fn new(access: Access) -> Self {
        let pages = access.first_pages();
        Self { access, windows: VecDeque::new(), backward: false, pages }
    }

    /// No windows, and the window size of a walk that comes from a neighbouring table.
    pub(crate) fn following(&self) -> Self {
        Self { pages: self.pages, ..Self::new(self.access) }
    }

    /// How the cursor uses the cache.
    pub(crate) fn access(&self) -> Access {
        self.access
    }

    /// The pages that the windows span: the first, and the one after the last.
    fn span(&self) -> Option<(u32, u32)> {
        let (front, back) = (self.windows.front()?, self.windows.back()?);
        Some((front.first.min(back.first), front.end().max(back.end())))
    }

    fn covers(&self, address: BlockAddress) -> bool {
        self.span().is_some_and(|(lo, hi)| lo <= address.first_page && address.last_page < hi)
    }

    /// Makes sure that the pages of block `number` are in memory, on their way, or wanted.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Corrupt`] if there is no such block.
    pub(crate) fn want(&mut self, table: &Table, number: u32, backward: bool) -> Result<()> {
        let address = table.address(number)?;
        if self.backward == backward && self.covers(address) {
            return Ok(());
        }
        let goes_on = self.backward == backward
            && self.span().is_some_and(|(lo, hi)| {
                if backward {
                    address.first_page < lo && (lo..=hi).contains(&(address.last_page + 1))
                } else {
                    address.last_page >= hi && (lo..=hi).contains(&address.first_page)
                }
            });
        if !goes_on {
            // The first window keeps the size that a walk from a neighbouring table has.
            if !self.windows.is_empty() {
                self.pages = self.access.first_pages();
            }
            self.windows.clear();
            self.backward = backward;
        }
        if self.pages > PAGES_SCARCE && !has_room(table, self.pages) {
            self.pages = PAGES_SCARCE;
        }
        if let Some((first, last)) = self.next_pages(table, self.pages, Some(address)) {
            self.add(table, first, last);
            self.grow();
        }
        Ok(())
    }

    /// Hints that the walk, which waits for block `number` or stands in it, will read about `pages`
    /// pages from the first page of that block on. Those that are not in memory are wanted now, in
    /// one window from the first to the last: resident blocks at either end are not read again.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Corrupt`] if there is no such block.
    pub(crate) fn hint_pages(
        &mut self,
        table: &Table,
        number: u32,
        demand: Demand,
        pages: u32,
        backward: bool,
    ) -> Result<()> {
        if self.access == Access::Blocks {
            return Ok(());
        }
        if pages > PAGES_LONG {
            self.pages = PAGES_MAX;
            return Ok(());
        }
        // Less than the windows of a long walk, which are not read by a caller that waits.
        let pages = pages.min(PAGES_MAX - 1);
        let held = (demand == Demand::Standing).then_some(number);
        let Some((first, last)) = self.missing(table, number, held, pages, backward)? else {
            return Ok(());
        };
        if last - first >= PAGES_SCARCE && !has_room(table, last - first + 1) {
            return Ok(());
        }
        self.add(table, first, last);
        Ok(())
    }

    /// The first and the last page that are neither in the cache nor in a window, of a walk over
    /// `pages` pages from block `number` on. The walk has block `held` already. Pieces that have no
    /// part in it are dropped once there is something to read.
    fn missing(
        &mut self,
        table: &Table,
        number: u32,
        held: Option<u32>,
        pages: u32,
        backward: bool,
    ) -> Result<Option<(u32, u32)>> {
        let start = table.address(number)?;
        let walked = if backward {
            (start.last_page.saturating_sub(pages - 1), start.last_page)
        } else {
            (start.first_page, start.first_page.saturating_add(pages - 1))
        };
        if self.backward != backward {
            self.windows.clear();
            self.backward = backward;
        }
        let guard = pin();
        let mut missing: Option<(u32, u32)> = None;
        let mut next = Some(number);
        while let Some(number) = next.filter(|number| *number < table.index().block_count()) {
            let address = table.address(number)?;
            if address.last_page < walked.0 || walked.1 < address.first_page {
                break;
            }
            let is_here = held == Some(number) || table.blocks().peek(number, &guard).is_some();
            if !is_here && !self.covers(address) {
                let (first, last) = missing.unwrap_or((address.first_page, address.last_page));
                missing = Some((first.min(address.first_page), last.max(address.last_page)));
            }
            next = if backward { number.checked_sub(1) } else { number.checked_add(1) };
        }
        let Some((first, last)) = missing else { return Ok(None) };
        // Pieces follow each other in the direction of the walk, without gaps.
        let span = self.span().filter(|(lo, hi)| *lo <= walked.1 && walked.0 < *hi);
        Ok(Some(match span {
            Some((lo, hi)) if backward && first < lo && last < hi => (first, lo - 1),
            Some((lo, hi)) if !backward && lo <= first && hi <= last => (hi, last),
            _ => {
                self.windows.clear();
                (first, last)
            }
        }))
    }

    /// The pages of the next window. It has `pages` pages, and reaches to `address` if that is
    /// given. `None` at the end of the table.
    fn next_pages(
        &self,
        table: &Table,
        pages: u32,
        address: Option<BlockAddress>,
    ) -> Option<(u32, u32)> {
        let more = pages - 1;
        if self.backward {
            let last = match self.span() {
                Some((lo, _)) => lo.checked_sub(1)?,
                None => address?.last_page,
            };
            let first = last.saturating_sub(more);
            return Some((address.map_or(first, |address| first.min(address.first_page)), last));
        }
        let first = match self.span() {
            Some((_, hi)) => hi,
            None => address?.first_page,
        };
        let end = table.data_pages();
        let last = first.saturating_add(more).min(end - 1);
        let last = address.map_or(last, |address| last.max(address.last_page));
        (first < end).then_some((first, last))
    }

    fn add(&mut self, table: &Table, first: u32, last: u32) {
        let (first, last) = table.span(first, last);
        let window = ReadWindow { first, count: last - first + 1, state: WindowState::Wanted };
        self.windows.push_back(window);
    }

    /// The next window is larger than the one before.
    fn grow(&mut self) {
        if self.access != Access::Blocks {
            self.pages = (self.pages * GROWTH).min(PAGES_MAX);
        }
    }

    /// The part that is wanted and not begun, if it is small enough for a caller that waits to read
    /// it.
    pub(crate) fn small_part(&self, table: &Table) -> Option<ReadPart> {
        let window = self.windows.back()?;
        let is_small = matches!(window.state, WindowState::Wanted) && window.count < PAGES_MAX;
        is_small.then(|| table.pages_part(window.first, window.end() - 1))
    }

    /// Takes the result of reading [`ReadAhead::small_part`].
    ///
    /// # Errors
    ///
    /// [`crate::Error::Io`], [`crate::Error::Corrupt`].
    pub(crate) fn put_small(
        &mut self,
        table: &Table,
        result: io::Result<usize>,
        bytes: ReadBuf,
    ) -> Result<()> {
        let Some(window) = self.windows.back_mut() else { return Ok(()) };
        let checked = table.check_pages(window.first, &bytes, result);
        window.state = WindowState::Here(bytes);
        if checked.is_err() {
            self.windows.clear();
        }
        checked
    }

    /// Reads in the calling thread what is wanted, if that is small.
    pub(crate) fn read_small(&mut self, table: &Table) -> Result<()> {
        let Some(part) = self.small_part(table) else { return Ok(()) };
        let mut bytes = table.reads().lend_buffer(part.len);
        let result = read_full(&*part.file, &mut bytes, part.offset);
        self.put_small(table, result, bytes)
    }

    /// Has the engine begin the reads that are wanted, and in a long walk those after them.
    pub(crate) fn start(&mut self, table: &Table) {
        while self.is_long() && self.windows.len() <= WINDOWS_AHEAD && has_room(table, self.pages) {
            let Some((first, last)) = self.next_pages(table, self.pages, None) else { break };
            self.add(table, first, last);
            self.grow();
        }
        for window in &mut self.windows {
            if matches!(window.state, WindowState::Wanted) {
                let part = table.pages_part(window.first, window.end() - 1);
                window.state = WindowState::Flying(table.reads().start(part));
            }
        }
    }

    /// Returns true if windows have reached their largest size.
    fn is_long(&self) -> bool {
        self.windows.back().is_some_and(|window| window.count >= PAGES_MAX)
    }

    /// Waits for the windows that hold block `number`, and takes it out of them.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Io`], [`crate::Error::Corrupt`]. Nothing is in memory then.
    pub(crate) fn poll_block(
        &mut self,
        table: &Table,
        number: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<BlockRef>> {
        match self.poll_windows(table, number, cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(error)) => {
                self.windows.clear();
                return Poll::Ready(Err(error));
            }
            Poll::Ready(Ok(())) => {}
        }
        let block = self.block(table, number).transpose();
        // In no window, though its pages were wanted: the walk was turned round meanwhile.
        Poll::Ready(block.unwrap_or_else(|| table.read_block(number, true)))
    }

    fn poll_windows(
        &mut self,
        table: &Table,
        number: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<()>> {
        let address = table.address(number)?;
        for window in self.windows.iter_mut().filter(|window| window.overlaps(address)) {
            if let WindowState::Flying(pending) = &window.state {
                let Poll::Ready((result, bytes)) = pending.poll(cx) else { return Poll::Pending };
                table.check_pages(window.first, &bytes, result)?;
                window.state = WindowState::Here(bytes);
            }
        }
        Poll::Ready(Ok(()))
    }

    /// The block, if all its pages are here. A long walk asks for more windows when few are left.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Corrupt`] if it is damaged.
    pub(crate) fn block(&mut self, table: &Table, number: u32) -> Result<Option<BlockRef>> {
        if self.windows.is_empty() {
            return Ok(None);
        }
        let address = table.address(number)?;
        if !self.covers(address) {
            return Ok(None);
        }
        while self.windows.front().is_some_and(|window| !window.overlaps(address)) {
            self.windows.pop_front();
        }
        if self.windows.len() <= WINDOWS_AHEAD && self.is_long() {
            self.start(table);
        }
        let parts = self.windows.iter().take_while(|window| window.overlaps(address));
        if parts.clone().any(|window| window.bytes().is_empty()) {
            return Ok(None);
        }
        let keeps = self.access != Access::Sequential && self.windows[0].count < PAGES_MAX;
        with_scratch(|Scratch { pages, frame, raw }| {
            let window = &self.windows[0];
            let is_whole = window.first <= address.first_page && address.last_page < window.end();
            let bytes = if is_whole {
                page_range(window, address)
            } else {
                let len = (address.last_page - address.first_page + 1) as usize * PAGE_BYTES;
                pages.resize_for(len);
                for window in parts {
                    let from = window.first.max(address.first_page);
                    let at = (from - address.first_page) as usize * PAGE_BYTES;
                    let bytes = page_range(window, address);
                    pages[at..at + bytes.len()].copy_from_slice(bytes);
                }
                &**pages
            };
            let contents = table.unpack(number, address, bytes, frame, raw, keeps)?;
            if keeps {
                table.blocks().insert(number, &contents);
            }
            Ok(Some(contents))
        })
    }
}

/// Returns true if there is memory for a window of `pages` pages.
fn has_room(table: &Table, pages: u32) -> bool {
    table.reads().has_room_ahead(pages as usize * PAGE_BYTES)
}

/// The pages of a block that a window holds.
fn page_range(window: &ReadWindow, address: BlockAddress) -> &[u8] {
    let from = address.first_page.saturating_sub(window.first) as usize * PAGE_BYTES;
    let to = (address.last_page + 1).min(window.end()) - window.first;
    &window.bytes()[from..to as usize * PAGE_BYTES]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(entries: u64, pages: u64) -> DataSize {
        DataSize { entries, pages }
    }

    #[test]
    fn keys_lie_between_the_largest_part_and_all_entries() {
        assert_eq!(DataSize::keys_of([of(900, 1), of(100, 1)].into_iter()), 950);
        assert_eq!(DataSize::keys_of([of(900, 1)].into_iter()), 900);
        assert_eq!(DataSize::keys_of(std::iter::empty()), 0);
    }

    #[test]
    fn a_share_is_enough_and_not_much_more() {
        let whole = of(1_000_000, 1_000_000);
        for wanted in [1, 4, 50, 400] {
            let pages = whole.pages_of(wanted, 1_000_000, Demand::Waiting);
            let needed = wanted as u32 + PAGES_USUAL + 1;
            assert!((needed..=needed + 4 + needed / 3).contains(&pages), "{wanted}: {pages}");
        }
        let small = of(30_000, 30_000);
        assert_eq!(small.pages_of(50, 1_000_000, Demand::Waiting), 10);
        assert_eq!(small.pages_of(50, 1_000_000, Demand::Standing), 5, "a third of all cross over");
        assert_eq!(small.pages_of(10, 1_000_000, Demand::Standing), 4, "few do");
    }

    #[test]
    fn no_share_is_too_large_or_too_small_to_say() {
        assert_eq!(of(0, 0).pages_of(1000, 0, Demand::Waiting), PAGES_USUAL + 1);
        assert_eq!(of(0, 0).pages_of(1000, 0, Demand::Standing), PAGES_USUAL);
        assert_eq!(of(1, u64::MAX).pages_of(usize::MAX, 1, Demand::Waiting), u32::MAX);
    }
}
