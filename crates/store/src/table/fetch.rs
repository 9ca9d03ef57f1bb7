//! Brings blocks of a table into memory: which pages are read for a block, and how the block is
//! taken out of them.
//!
//! Reads only single blocks itself. Reads that go on together with others are done by the drivers
//! of plans and by read-ahead, which hand the pages over.

use std::sync::Arc;

use rhumb_sync::bulk::Bulk;

use super::{
    TableCounters,
    block::{BlockView, Damaged},
    compress::{DecompressError, check_raw_len, decompress},
    file::{Scratch, with_scratch},
    format::{COMPRESSION_NONE, PAGE_BYTES},
    index_block::BlockAddress,
    pages::find_frame,
    reader::Table,
};
use crate::{
    error::{Error, Result},
    io::{AlignedBuf, check_read, engine::ReadPart, read_exact_at},
    slice::BlockRef,
};

impl Table {
    /// Reads a block with one read and verifies it; with `fill_cache` it stays in memory as long as
    /// the cache keeps it.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the block is damaged or there is none of that number, [`Error::Io`].
    pub(crate) fn read_block(&self, block: u32, fill_cache: bool) -> Result<BlockRef> {
        let address = self.address(block)?;
        let contents = with_scratch(|scratch| {
            let Scratch { pages, frame, raw } = scratch;
            let (first, last) = self.span(address.first_page, address.last_page);
            self.read_pages(first, last, pages)?;
            self.unpack(block, address, pages_at(address, first, pages), frame, raw, fill_cache)
        })?;
        if fill_cache {
            self.blocks.insert(block, &contents);
        }
        Ok(contents)
    }

    /// The pages that a read of pages `first..=last` brings: on some disks a few more before and
    /// after. Those may lie after the data area, but not after the end of the file, whose length is
    /// a multiple of a read's.
    pub(crate) fn span(&self, first: u32, last: u32) -> (u32, u32) {
        let within = self.pages_per_read - 1;
        (first & !within, last | within)
    }

    /// Reads the pages of a [`Table::span`] with one call.
    pub(super) fn read_pages(&self, first: u32, last: u32, pages: &mut AlignedBuf) -> Result<()> {
        let len = (last - first + 1) as usize * PAGE_BYTES;
        pages.resize_for(len);
        let counters = &self.ctx.counters;
        TableCounters::add(&counters.reads, 1);
        TableCounters::add(&counters.read_bytes, len as u64);
        let offset = u64::from(first) * PAGE_BYTES as u64;
        self.counting_failure(read_exact_at(&*self.file, &self.path, pages, offset))
    }

    /// Counts a read that failed.
    #[inline]
    pub(crate) fn counting_failure<T>(&self, result: Result<T>) -> Result<T> {
        result.inspect_err(|error| self.ctx.counters.count_failure(error))
    }

    /// The part of the file that a read of the pages of a [`Table::span`] is to read.
    pub(crate) fn pages_part(&self, first: u32, last: u32) -> ReadPart {
        let len = (last - first + 1) as usize * PAGE_BYTES;
        let counters = &self.ctx.counters;
        TableCounters::add(&counters.reads, 1);
        TableCounters::add(&counters.read_bytes, len as u64);
        let offset = u64::from(first) * PAGE_BYTES as u64;
        ReadPart { file: Arc::clone(&self.file), offset, len }
    }

    /// Checks the result of a read of pages from `first` on.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], and [`Error::Corrupt`] if the file ends within them.
    pub(crate) fn check_pages(
        &self,
        first: u32,
        pages: &[u8],
        result: std::io::Result<usize>,
    ) -> Result<()> {
        let offset = u64::from(first) * PAGE_BYTES as u64;
        self.counting_failure(check_read(&self.path, offset, pages.len(), result))
    }

    /// Takes a block, which lies at `address`, out of pages that begin with page `first` and hold
    /// all of it, and verifies it. It stays in memory as long as the cache keeps it.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the block is damaged.
    pub(crate) fn keep_block(
        &self,
        block: u32,
        address: BlockAddress,
        first: u32,
        pages: &[u8],
    ) -> Result<BlockRef> {
        let pages = pages_at(address, first, pages);
        let contents = with_scratch(|Scratch { frame, raw, .. }| {
            self.unpack(block, address, pages, frame, raw, true)
        })?;
        self.blocks.insert(block, &contents);
        Ok(contents)
    }

    /// Takes a block out of its pages, verifies and decompresses it; `stays` says whether it is for
    /// the cache.
    pub(super) fn unpack(
        &self,
        block: u32,
        address: BlockAddress,
        pages: &[u8],
        frame: &mut Bulk<u8>,
        raw: &mut Bulk<u8>,
        stays: bool,
    ) -> Result<BlockRef> {
        self.counting_failure(self.unpack_pages(block, address, pages, frame, raw, stays))
    }

    fn unpack_pages(
        &self,
        block: u32,
        address: BlockAddress,
        pages: &[u8],
        frame: &mut Bulk<u8>,
        raw: &mut Bulk<u8>,
        stays: bool,
    ) -> Result<BlockRef> {
        let start = self.base() + u64::from(address.first_page) * PAGE_BYTES as u64;
        let damaged = |expected, found| Error::corrupt(&self.path, start, expected, found);
        let (header, payload) = find_frame(pages, address.nth).map_err(|bad| {
            let found = format!("none for block {block}");
            Error::corrupt(&self.path, start + bad.at as u64, bad.expected, found)
        })?;
        let cache = &self.ctx.cache;
        let is_plain = header.compression == COMPRESSION_NONE;
        let plain = is_plain.then(|| cache.new_block(payload.len(), payload.pieces(), stays));
        let stored = match &plain {
            Some(plain) => plain.bytes(),
            None => {
                frame.clear();
                payload.pieces().for_each(|piece| frame.extend_from_slice(piece));
                &frame[..]
            }
        };
        let checksum = header.expected_checksum(self.meta.id, block, stored);
        if checksum != header.checksum {
            let expected = format!("block {block} with checksum {:016x}", header.checksum);
            return Err(Error::corrupt(&self.path, start, expected, format!("{checksum:016x}")));
        }
        let raw_len = header.raw_len as usize;
        let unfold_error = |error| match error {
            DecompressError::Damaged(expected) => damaged(expected, format!("{header:?}")),
            DecompressError::Unsupported(what) => {
                Error::Unsupported { path: self.path.clone(), what: what.into() }
            }
        };
        check_raw_len(header.compression, payload.len(), raw_len).map_err(unfold_error)?;
        let contents = match plain {
            Some(plain) => plain,
            None => {
                if raw.len() < raw_len {
                    raw.resize(raw_len, 0);
                }
                let raw = &mut raw[..raw_len];
                decompress(header.compression, frame, raw).map_err(unfold_error)?;
                cache.new_block(raw_len, std::iter::once(&*raw), stays)
            }
        };
        BlockView::parse(contents.bytes()).map_err(|error| self.damaged_block(block, error))?;
        TableCounters::add(&self.ctx.counters.block_reads, 1);
        Ok(contents)
    }

    /// The error for a block that is whole but malformed.
    #[cold]
    pub(crate) fn damaged_block(&self, block: u32, damaged: Damaged) -> Error {
        let found = format!("a malformed block {block}");
        Error::corrupt(&self.path, self.block_offset(block), damaged.0, found)
    }
}

/// The pages of the block at `address`, of `pages` that begin with page `first`.
fn pages_at(address: BlockAddress, first: u32, pages: &[u8]) -> &[u8] {
    let start = (address.first_page - first) as usize * PAGE_BYTES;
    &pages[start..(address.last_page + 1 - first) as usize * PAGE_BYTES]
}
