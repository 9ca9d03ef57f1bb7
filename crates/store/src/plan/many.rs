//! Point reads of many keys whose blocks are brought in together: what they need next is gathered,
//! neighbouring blocks of one table become one read, and each block that arrives takes its reads on.
//!
//! Does no I/O and does not wait: drivers take [`Fetch`]es and hand their pages over, in any order.

use std::{collections::VecDeque, io};

use super::{
    BlockRequest, Plan, Progress,
    point::{Found, KeptRead},
};
use crate::{
    error::Result,
    io::{buffers::ReadBuf, engine::ReadPart},
    sync::primitive::Arc,
    table::{PAGE_BYTES, Table},
};

/// How many pages are read at once for blocks that lie side by side.
const FETCH_PAGES_MAX: u32 = (128 << 10) / PAGE_BYTES as u32;

/// Reads in progress; each is known by the place of its key in the call.
pub(crate) struct ManyReads<'k> {
    reads: Vec<Option<KeptRead<'k>>>,
    found: Vec<Option<Found>>,
    wanted: Vec<(BlockRequest, usize)>,
    fetches: VecDeque<Fetch>,
}

/// Pages of one table to be read at once, and who waits for which block in them.
pub(crate) struct Fetch {
    table: Arc<Table>,
    first_page: u32,
    last_page: u32,
    /// Blocks in ascending order, each with a read that waits for it.
    waiting: Vec<(u32, usize)>,
}

impl Fetch {
    /// What is to be read.
    pub(crate) fn part(&self) -> ReadPart {
        self.table.pages_part(self.first_page, self.last_page)
    }
}

impl<'k> ManyReads<'k> {
    /// Room for reads of `count` keys.
    pub(crate) fn new(count: usize) -> Self {
        let found = (0..count).map(|_| None).collect();
        Self { reads: Vec::new(), found, wanted: Vec::new(), fetches: VecDeque::new() }
    }

    /// Notes what was found of key `at` without any block.
    pub(crate) fn settle(&mut self, at: usize, found: Option<Found>) {
        self.found[at] = found;
    }

    /// Takes the read of key `at`, which needs a block.
    pub(crate) fn add(&mut self, at: usize, read: KeptRead<'k>, request: BlockRequest) {
        self.reads.resize_with(self.found.len(), || None);
        self.reads[at] = Some(read);
        self.wanted.push((request, at));
    }

    /// The next pages to read; `None` if there are none before others arrive.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Corrupt`] if a table names a block that it has not got.
    pub(crate) fn next_fetch(&mut self) -> Result<Option<Fetch>> {
        self.gather()?;
        Ok(self.fetches.pop_front())
    }

    /// Makes fetches of what is wanted.
    fn gather(&mut self) -> Result<()> {
        if self.wanted.is_empty() {
            return Ok(());
        }
        self.wanted.sort_unstable_by_key(|(request, at)| {
            (Arc::as_ptr(&request.table).addr(), request.block, *at)
        });
        let mut open: Option<Fetch> = None;
        for (BlockRequest { table, block }, at) in self.wanted.drain(..) {
            let address = table.address(block)?;
            if let Some(fetch) = &mut open
                && Arc::ptr_eq(&fetch.table, &table)
                && address.first_page <= fetch.last_page + 1
                && address.last_page - fetch.first_page < FETCH_PAGES_MAX
            {
                fetch.last_page = fetch.last_page.max(address.last_page);
                fetch.waiting.push((block, at));
                continue;
            }
            self.fetches.extend(open.replace(Fetch {
                table,
                first_page: address.first_page,
                last_page: address.last_page,
                waiting: vec![(block, at)],
            }));
        }
        self.fetches.extend(open);
        Ok(())
    }

    /// Takes the pages of a fetch, and takes the reads on that waited for their blocks.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Io`] if the read failed, [`crate::Error::Corrupt`] if a block is damaged.
    pub(crate) fn arrive(
        &mut self,
        fetch: &Fetch,
        result: io::Result<usize>,
        pages: &ReadBuf,
    ) -> Result<()> {
        fetch.table.check_pages(fetch.first_page, pages, result)?;
        for same in fetch.waiting.chunk_by(|a, b| a.0 == b.0) {
            let contents = fetch.table.keep_block(same[0].0, fetch.first_page, pages)?;
            for (_, at) in same {
                let Some(mut read) = self.reads[*at].take() else { continue };
                match read.resume(contents.clone())? {
                    Progress::Done(Found::Nothing) => {}
                    Progress::Done(found) => self.found[*at] = Some(found),
                    Progress::Need(request) => {
                        self.reads[*at] = Some(read);
                        self.wanted.push((request, *at));
                    }
                }
            }
        }
        Ok(())
    }

    /// What was found, in the order of the keys.
    pub(crate) fn into_found(self) -> Vec<Option<Found>> {
        self.found
    }
}
