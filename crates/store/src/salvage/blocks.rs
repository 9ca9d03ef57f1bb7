//! Finds the sound blocks of a table by nothing but their checksums.
//!
//! Block frames lie back to back, and each checksum holds the number of its table and of its block.
//! So the blocks of a table are read one after the other without its index. Where one is damaged,
//! the next sound one is searched for byte by byte, under all numbers that it may have.

use xxhash_rust::xxh3::xxh3_64;

use super::file::Region;
use crate::{
    error::{Error, Result},
    table::{
        compress::{DecompressError, check_raw_len, decompress},
        format::{BLOCK_HEADER_BYTES, COMPRESSION_NONE, FRAME_HEADER_BYTES, PAGE_BYTES},
        pages::{PageFrameHeader, offset_in_file, stream_bytes},
    },
    types::FileId,
};

/// The bytes of a table that are read at once: enough that a block costs a part of a read.
const WINDOW_BYTES: u64 = 64 << 10;

/// The fewest bytes that a frame and its block take. A gap of fewer bytes held no whole one.
const BLOCK_BYTES_MIN: u64 = (FRAME_HEADER_BYTES + BLOCK_HEADER_BYTES) as u64;

/// The greatest number of a block by which an unknown table is recognised: each costs a hash for
/// each table that it may be.
const MIXED_NUMBER_MAX: u32 = 16;

/// The bytes of the pages' payloads, as one stream.
struct PageStream {
    region: Region,
    window: Vec<u8>,
    window_start: u64,
}

impl PageStream {
    /// Appends `len` bytes from `at` on. Returns false if they are not all there.
    fn read(&mut self, mut at: u64, len: u64, out: &mut Vec<u8>) -> Result<bool> {
        let end = at.saturating_add(len);
        while at < end {
            let offset = offset_in_file(at);
            let in_page = offset % PAGE_BYTES as u64;
            let now = (end - at).min(PAGE_BYTES as u64 - in_page);
            let piece = self.raw(offset, now)?;
            if (piece.len() as u64) < now {
                return Ok(false);
            }
            out.extend_from_slice(piece);
            at += now;
        }
        Ok(true)
    }

    /// Up to `len` bytes at an offset of the region. `len` is at most a page.
    fn raw(&mut self, offset: u64, len: u64) -> Result<&[u8]> {
        let window_end = self.window_start + self.window.len() as u64;
        if offset < self.window_start || offset + len > window_end {
            self.window.clear();
            self.window_start = offset;
            self.region.read(offset, WINDOW_BYTES, &mut self.window)?;
        }
        let start = (offset - self.window_start) as usize;
        let end = self.window.len().min(start + len as usize);
        Ok(&self.window[start..end])
    }
}

/// A block whose checksum is right.
pub(super) struct SoundBlock {
    pub(super) table: FileId,
    pub(super) number: u32,
    /// Its contents, decompressed.
    pub(super) payload: Vec<u8>,
    /// The damaged bytes before it, if there are any.
    pub(super) gap: Option<Gap>,
    /// Where its frame starts and ends in the stream.
    start: u64,
    end: u64,
}

/// Bytes between sound blocks, as offsets in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) offset: u64,
    pub(super) bytes: u64,
    /// The number of blocks that lay there.
    pub(super) blocks: u32,
}

/// Reads the sound blocks of a table in order.
pub(super) struct BlockScan {
    stream: PageStream,
    /// The numbers of the tables that the blocks may be of.
    tables: Vec<FileId>,
    /// The number of blocks, if it is known.
    block_count: Option<u32>,
    starts_late: bool,
    /// Where the bytes that may hold blocks end.
    stream_end: u64,
    at: u64,
    next: u32,
    bytes: Vec<u8>,
}

impl BlockScan {
    /// The blocks in `region`, of which the first `data_bytes` may hold some.
    pub(super) fn new(
        region: Region,
        tables: Vec<FileId>,
        block_count: Option<u32>,
        data_bytes: u64,
    ) -> Self {
        let stream_end = stream_bytes(data_bytes.min(region.len));
        Self {
            stream: PageStream { region, window: Vec::new(), window_start: 0 },
            tables,
            block_count,
            starts_late: false,
            stream_end,
            at: 0,
            next: 0,
            bytes: Vec::new(),
        }
    }

    /// The same, but that the table may begin later than the region.
    pub(super) fn starting_late(self) -> Self {
        Self { starts_late: true, ..self }
    }

    /// Where in the file the search goes on.
    pub(super) fn offset(&self) -> u64 {
        self.stream.region.base + offset_in_file(self.at)
    }

    /// The number of the block that comes next, if nothing is lost.
    pub(super) fn next_number(&self) -> u32 {
        self.next
    }

    /// The bytes from the place where the search goes on to the end of its page, if they are all
    /// zeros and the stream ends with them.
    pub(super) fn is_at_padding(&mut self) -> Result<bool> {
        let left = self.stream_end.saturating_sub(self.at);
        if left >= PAGE_BYTES as u64 {
            return Ok(false);
        }
        let mut rest = Vec::new();
        Ok(self.stream.read(self.at, left, &mut rest)? && rest.iter().all(|byte| *byte == 0))
    }

    /// The next sound block; `None` after the last.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the block is sound and this build cannot decompress it.
    pub(super) fn next(&mut self) -> Result<Option<SoundBlock>> {
        if self.block_count.is_some_and(|count| self.next >= count) {
            return Ok(None);
        }
        let found = match self.frame_at(self.at, self.next, self.next)? {
            Some(block) => Some(block),
            None => self.search()?,
        };
        let Some(mut block) = found else { return Ok(None) };
        if block.start > self.at {
            let (from, to) = (offset_in_file(self.at), offset_in_file(block.start));
            block.gap = Some(Gap {
                offset: self.stream.region.base + from,
                bytes: to - from,
                blocks: block.number.saturating_sub(self.next),
            });
        }
        (self.at, self.next) = (block.end, block.number + 1);
        Ok(Some(block))
    }

    /// Searches for a sound block after a place where there is none.
    fn search(&mut self) -> Result<Option<SoundBlock>> {
        // Mostly the block's header is whole, and says where the next one begins.
        let header = self.header_at(self.at)?.filter(|header| self.is_possible(self.at, header));
        if let Some(header) = header {
            let after = self.at + FRAME_HEADER_BYTES as u64 + u64::from(header.stored_len);
            let next = self.next + 1;
            if let Some(block) = self.frame_at(after, next, next)? {
                return Ok(Some(block));
            }
        }
        let mut at = self.at + 1;
        while at + BLOCK_BYTES_MIN <= self.stream_end {
            let Some(place) = self.next_possible(at)? else { return Ok(None) };
            let (first, last) = self.possible_numbers(place);
            if let Some(block) = self.frame_at(place, first, last)? {
                return Ok(Some(block));
            }
            at = place + 1;
        }
        Ok(None)
    }

    /// The least and the greatest number that a block at `place` may have, which is found by a
    /// search.
    fn possible_numbers(&self, place: u64) -> (u32, u32) {
        if self.tables.len() > 1 {
            return (0, MIXED_NUMBER_MAX);
        }
        let lost = u32::try_from((place - self.at) / BLOCK_BYTES_MIN + 1).unwrap_or(u32::MAX);
        let first = if self.starts_late && self.next == 0 { 0 } else { self.next + 1 };
        (first, self.next.saturating_add(lost))
    }

    /// The first place from `at` on where the bytes look like the header of a frame.
    fn next_possible(&mut self, mut at: u64) -> Result<Option<u64>> {
        let mut chunk = std::mem::take(&mut self.bytes);
        let mut found = None;
        while found.is_none() && at + BLOCK_BYTES_MIN <= self.stream_end {
            chunk.clear();
            let len = (self.stream_end - at).min(WINDOW_BYTES);
            if !self.stream.read(at, len, &mut chunk)? {
                self.stream_end = at + chunk.len() as u64;
            }
            let headers = chunk.windows(FRAME_HEADER_BYTES).zip(at..);
            found = headers.filter_map(|(bytes, at)| Some((*bytes.first_chunk()?, at))).find_map(
                |(bytes, at)| {
                    // The byte that says how a block is compressed is one of three.
                    let is_near = bytes[8] <= 2;
                    let is_like = is_near && self.is_possible(at, &PageFrameHeader::decode(bytes));
                    is_like.then_some(at)
                },
            );
            at += (chunk.len() + 1).saturating_sub(FRAME_HEADER_BYTES).max(1) as u64;
        }
        self.bytes = chunk;
        Ok(found)
    }

    fn header_at(&mut self, at: u64) -> Result<Option<PageFrameHeader>> {
        let mut bytes = Vec::with_capacity(FRAME_HEADER_BYTES);
        if at + BLOCK_BYTES_MIN > self.stream_end
            || !self.stream.read(at, FRAME_HEADER_BYTES as u64, &mut bytes)?
        {
            return Ok(None);
        }
        Ok(bytes.first_chunk().map(|bytes| PageFrameHeader::decode(*bytes)))
    }

    /// Returns true if a frame at `at` may have this header.
    fn is_possible(&self, at: u64, header: &PageFrameHeader) -> bool {
        let end = at + FRAME_HEADER_BYTES as u64 + u64::from(header.stored_len);
        let (stored, raw) = (header.stored_len as usize, header.raw_len as usize);
        let is_len = match check_raw_len(header.compression, stored, raw) {
            Ok(()) => header.compression == COMPRESSION_NONE || raw > stored,
            Err(DecompressError::Unsupported(_)) => raw > stored,
            Err(DecompressError::Damaged(_)) => false,
        };
        end <= self.stream_end && stored > 0 && raw >= BLOCK_HEADER_BYTES && is_len
    }

    /// The frame at `at`, if its checksum is right for one of the tables and a number between
    /// `first` and `last`.
    fn frame_at(&mut self, at: u64, first: u32, last: u32) -> Result<Option<SoundBlock>> {
        let Some(header) = self.header_at(at)?.filter(|header| self.is_possible(at, header)) else {
            return Ok(None);
        };
        let mut stored = Vec::new();
        let start = at + FRAME_HEADER_BYTES as u64;
        if !self.stream.read(start, u64::from(header.stored_len), &mut stored)? {
            return Ok(None);
        }
        let last = self.block_count.map_or(last, |count| last.min(count.saturating_sub(1)));
        let hash = xxh3_64(&stored);
        let fits = |table, number| header.checksum_of_hash(table, number, hash) == header.checksum;
        let mut names = self.tables.iter().flat_map(|table| {
            let numbers = first..=last;
            numbers.map(|number| (*table, number))
        });
        let Some((table, number)) = names.find(|(table, number)| fits(*table, *number)) else {
            return Ok(None);
        };
        let payload = match header.compression {
            COMPRESSION_NONE => stored,
            kind => {
                let raw_len = header.raw_len as usize;
                check_raw_len(kind, stored.len(), raw_len).or_else(|e| self.refuse(e))?;
                let mut raw = vec![0; raw_len];
                match decompress(kind, &stored, &mut raw) {
                    Ok(()) => raw,
                    Err(DecompressError::Damaged(_)) => return Ok(None),
                    Err(unsupported) => self.refuse(unsupported).map(|()| raw)?,
                }
            }
        };
        let end = start + u64::from(header.stored_len);
        Ok(Some(SoundBlock { table, number, payload, gap: None, start: at, end }))
    }

    /// The error for a sound block that this build cannot read: to leave it out would be a loss
    /// that nothing on the disk calls for.
    fn refuse(&self, error: DecompressError) -> Result<()> {
        match error {
            DecompressError::Damaged(_) => Ok(()),
            DecompressError::Unsupported(what) => Err(Error::Unsupported {
                path: self.stream.region.path.clone(),
                what: what.to_owned(),
            }),
        }
    }
}
