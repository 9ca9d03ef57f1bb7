//! Point reads of many keys whose blocks are fetched together. The blocks that the reads need next
//! are gathered, neighbouring blocks of one table become one read, and each block that arrives
//! resumes its reads.
//!
//! Does no I/O and does not wait: drivers take the fetches and hand the pages over, in any order.

use std::{
    collections::{BTreeSet, VecDeque},
    io,
};

use rhumb_sync::primitive::Arc;

use super::{
    BlockRequest, Plan, Progress,
    point::{Found, KeptRead, WaitingRead},
};
use crate::{
    error::Result,
    io::{buffers::ReadBuf, engine::ReadPart},
    table::{BlockAddress, PAGE_BYTES, Table},
};

/// The largest number of pages that are read at once for adjacent blocks.
const FETCH_PAGES_MAX: u32 = (128 << 10) / PAGE_BYTES as u32;
/// Two blocks are read at once if the second begins at most this many pages after the last page of
/// the first. Reading the gap costs less than another read.
const FETCH_GAP_PAGES: u32 = (4 << 10) / PAGE_BYTES as u32;

/// Reads in progress. Each is known by the index of its key in the call.
pub(crate) struct ManyReads<'k> {
    reads: Vec<Option<KeptRead<'k>>>,
    found: Vec<Found>,
    wanted: Vec<Wanted>,
    /// The fetches in progress or still to begin; indexes are reused.
    fetches: Vec<Option<Fetch>>,
    /// Indexes in `fetches` of those whose read has not begun.
    waiting: VecDeque<usize>,
    /// Free indexes in `fetches`.
    free: Vec<usize>,
    /// The table and first page of each fetch in `fetches`, with its index there.
    by_page: BTreeSet<(usize, u32, usize)>,
}

/// A block that a read waits for and that no fetch brings yet.
struct Wanted {
    request: BlockRequest,
    address: BlockAddress,
    at: usize,
}

/// Pages of one table that are read at once, and the reads that wait for blocks in them.
struct Fetch {
    table: Arc<Table>,
    first_page: u32,
    last_page: u32,
    /// Each block and its address, with a read that waits for it.
    waiting: Vec<(u32, BlockAddress, usize)>,
}

/// Orders the blocks, or the pages, of tables.
fn place(table: &Arc<Table>, number: u32) -> (usize, u32) {
    (Arc::as_ptr(table).addr(), number)
}

impl<'k> ManyReads<'k> {
    /// Room for reads of `count` keys.
    pub(crate) fn new(count: usize) -> Self {
        let found = (0..count).map(|_| Found::Nothing).collect();
        Self {
            reads: Vec::new(),
            found,
            wanted: Vec::new(),
            fetches: Vec::new(),
            waiting: VecDeque::new(),
            free: Vec::new(),
            by_page: BTreeSet::new(),
        }
    }

    /// Records the result for key `at`, which needed no block.
    pub(crate) fn finish(&mut self, at: usize, found: Found) {
        self.found[at] = found;
    }

    /// Takes the read of key `at`, which needs a block.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Corrupt`] if the table names a block that it does not have.
    pub(crate) fn add(&mut self, at: usize, waiting: WaitingRead<'k>) -> Result<()> {
        let WaitingRead { read, request } = waiting;
        self.reads.resize_with(self.found.len(), || None);
        self.reads[at] = Some(read);
        self.want(request, at)
    }

    /// Makes a read wait for a block: for the fetch that brings it, or for one that will be made.
    fn want(&mut self, request: BlockRequest, at: usize) -> Result<()> {
        let address = request.table.address(request.block)?;
        let (table, page) = place(&request.table, address.first_page);
        let near = (table, page.saturating_sub(FETCH_PAGES_MAX), 0)..=(table, page, usize::MAX);
        for (.., number) in self.by_page.range(near) {
            if let Some(fetch) = &mut self.fetches[*number]
                && address.last_page <= fetch.last_page
            {
                fetch.waiting.push((request.block, address, at));
                return Ok(());
            }
        }
        self.wanted.push(Wanted { request, address, at });
        Ok(())
    }

    /// The next pages to read, and the number under which they must be handed over; `None` if there
    /// are none before others arrive.
    pub(crate) fn next_fetch(&mut self) -> Option<(usize, ReadPart)> {
        self.gather();
        let number = self.waiting.pop_front()?;
        let fetch = self.fetches[number].as_ref().expect("it waits to be read");
        Some((number, fetch.table.pages_part(fetch.first_page, fetch.last_page)))
    }

    /// Returns true if most of the wanted blocks lie apart, so that blocks wanted later will hardly
    /// be read together with them.
    pub(crate) fn lie_apart(&self) -> bool {
        let is_near = |two: &&[Wanted]| {
            let (one, next) = (&two[0].request, &two[1].request);
            Arc::ptr_eq(&one.table, &next.table) && one.block.abs_diff(next.block) <= 1
        };
        self.wanted.windows(2).filter(is_near).count() * 2 < self.wanted.len()
    }

    /// The number of fetches that [`ManyReads::next_fetch`] has not returned yet.
    pub(crate) fn fetches_waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Makes fetches of the wanted blocks.
    fn gather(&mut self) {
        if self.wanted.is_empty() {
            return;
        }
        let mut wanted = std::mem::take(&mut self.wanted);
        wanted.sort_unstable_by_key(|Wanted { request, at, .. }| {
            (place(&request.table, request.block), *at)
        });
        let mut open: Option<Fetch> = None;
        for Wanted { request: BlockRequest { table, block }, address, at } in wanted.drain(..) {
            let (first_page, last_page) = table.span(address.first_page, address.last_page);
            if let Some(fetch) = &mut open
                && Arc::ptr_eq(&fetch.table, &table)
                && first_page <= fetch.last_page + FETCH_GAP_PAGES
                && last_page - fetch.first_page < FETCH_PAGES_MAX
            {
                fetch.last_page = fetch.last_page.max(last_page);
                fetch.waiting.push((block, address, at));
                continue;
            }
            let next = Fetch { table, first_page, last_page, waiting: vec![(block, address, at)] };
            if let Some(whole) = open.replace(next) {
                self.begin(whole);
            }
        }
        self.wanted = wanted;
        if let Some(whole) = open {
            self.begin(whole);
        }
    }

    /// Queues a fetch.
    fn begin(&mut self, fetch: Fetch) {
        let number = self.free.pop().unwrap_or(self.fetches.len());
        if number == self.fetches.len() {
            self.fetches.push(None);
        }
        let (table, page) = place(&fetch.table, fetch.first_page);
        self.by_page.insert((table, page, number));
        self.fetches[number] = Some(fetch);
        self.waiting.push_back(number);
    }

    /// Takes the pages of a fetch, and resumes the reads that waited for their blocks.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Io`] if the read failed, [`crate::Error::Corrupt`] if a block is damaged.
    pub(crate) fn arrive(
        &mut self,
        number: usize,
        result: io::Result<usize>,
        pages: &ReadBuf,
    ) -> Result<()> {
        let Some(mut fetch) = self.fetches[number].take() else { return Ok(()) };
        self.free.push(number);
        let (table, page) = place(&fetch.table, fetch.first_page);
        self.by_page.remove(&(table, page, number));
        fetch.table.check_pages(fetch.first_page, pages, result)?;
        fetch.waiting.sort_unstable_by_key(|(block, _, at)| (*block, *at));
        for same in fetch.waiting.chunk_by(|a, b| a.0 == b.0) {
            let (block, address, _) = same[0];
            let contents = fetch.table.keep_block(block, address, fetch.first_page, pages)?;
            for (.., at) in same {
                let Some(mut read) = self.reads[*at].take() else { continue };
                match read.resume(contents.clone())? {
                    Progress::Done(found) => self.found[*at] = found,
                    Progress::Need(request) => {
                        self.reads[*at] = Some(read);
                        self.want(request, *at)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The results, in the order of the keys.
    pub(crate) fn into_found(self) -> Vec<Found> {
        self.found
    }
}
