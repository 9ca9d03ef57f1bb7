//! Brings a new table's blocks into the cache before any reader asks for them.
//!
//! Serves flushes and compactions, whose outputs replace what readers had in memory: without it,
//! the next reads would all go to the file at once. Never evicts another block.

use super::{format::PAGE_BYTES, reader::Table};
use crate::{error::Result, io::AlignedBuf};

/// About the largest room that the blocks of a page take in memory: they may be compressed.
const ROOM_PER_PAGE: u64 = 2 * PAGE_BYTES as u64;
/// The number of pages that are read at once.
const PAGES: u32 = (512 << 10) / PAGE_BYTES as u32;

impl Table {
    /// The number of the table's blocks that are in memory, and the number of all its blocks.
    pub(crate) fn residency(&self) -> (u64, u64) {
        (self.blocks().resident_count() as u64, u64::from(self.index().block_count()))
    }

    /// Brings the table's blocks into the cache, in order, as long as there is room in it.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Corrupt`], [`crate::Error::Io`]. The blocks before the error stay in the
    /// cache.
    pub(crate) fn warm(&self) -> Result<()> {
        let count = self.index().block_count();
        let mut pages = AlignedBuf::new(PAGES as usize * PAGE_BYTES);
        let mut block = 0;
        while block < count {
            let first = self.address(block)?;
            let (mut end, mut last_page) = (block + 1, first.last_page);
            while end < count {
                let next = self.address(end)?;
                if next.last_page - first.first_page >= PAGES {
                    break;
                }
                (end, last_page) = (end + 1, next.last_page);
            }
            if !self
                .blocks()
                .has_room_for(u64::from(last_page - first.first_page + 1) * ROOM_PER_PAGE)
            {
                break;
            }
            let (first_page, last_page) = self.span(first.first_page, last_page);
            self.read_pages(first_page, last_page, &mut pages)?;
            for block in block..end {
                self.keep_block(block, self.address(block)?, first_page, &pages)?;
            }
            block = end;
        }
        Ok(())
    }
}
