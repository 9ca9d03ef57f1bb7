//! The data area of a table: block frames, back to back, cut into pages that each say where in them
//! the first frame starts.
//!
//! That one number per page lets a reader that knows only pages find any frame: it reads the pages
//! of a block at once and counts frames from the first. The module knows frames as a length and a
//! payload, and nothing of the payload's meaning.

use std::path::{Path, PathBuf};

use rhumb_sync::{bulk::Bulk, mapping::Gauge, primitive::Arc};
use xxhash_rust::xxh3::xxh3_64;

use super::format::{
    FRAME_HEADER_BYTES, PAGE_BYTES, PAGE_HEADER_BYTES, PAGE_NO_FRAME, PAGE_PAYLOAD_BYTES,
};
use crate::{
    error::{Error, Result},
    io::{FileSystem, WritableFile, retry, write_all},
    types::FileId,
};

/// Bytes gathered before they are handed to the file: whole pages.
const WRITE_BYTES: usize = 256 << 10;

/// The header before the payload of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageFrameHeader {
    pub(crate) stored_len: u32,
    pub(crate) raw_len: u32,
    pub(crate) compression: u8,
    pub(crate) checksum: u64,
}

impl PageFrameHeader {
    /// The header of a payload, with its checksum.
    pub(crate) fn of(
        table: FileId,
        block: u32,
        stored_len: u32,
        raw_len: u32,
        compression: u8,
        payload: &[u8],
    ) -> Self {
        let mut header = Self { stored_len, raw_len, compression, checksum: 0 };
        header.checksum = header.expected_checksum(table, block, payload);
        header
    }

    /// The checksum that this header must hold if it stands before `payload` and is that of block
    /// `block` of `table`: a frame found in the wrong place fails as surely as a changed one.
    pub(crate) fn expected_checksum(&self, table: FileId, block: u32, payload: &[u8]) -> u64 {
        self.checksum_of_hash(table, block, xxh3_64(payload))
    }

    /// [`PageFrameHeader::expected_checksum`] of a payload whose XXH3-64 is known.
    pub(crate) fn checksum_of_hash(&self, table: FileId, block: u32, payload_hash: u64) -> u64 {
        let mut bytes = [0; 29];
        bytes[..8].copy_from_slice(&table.to_le_bytes());
        bytes[8..12].copy_from_slice(&block.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.stored_len.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.raw_len.to_le_bytes());
        bytes[20] = self.compression;
        bytes[21..].copy_from_slice(&payload_hash.to_le_bytes());
        xxh3_64(&bytes)
    }

    fn encode(&self) -> [u8; FRAME_HEADER_BYTES] {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        bytes[..4].copy_from_slice(&self.stored_len.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.raw_len.to_le_bytes());
        bytes[8] = self.compression;
        bytes[9..].copy_from_slice(&self.checksum.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: [u8; FRAME_HEADER_BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, compression, checksum @ ..] = bytes;
        Self {
            stored_len: u32::from_le_bytes([a, b, c, d]),
            raw_len: u32::from_le_bytes([e, f, g, h]),
            compression,
            checksum: u64::from_le_bytes(checksum),
        }
    }
}

/// Writes the data area, and then whatever follows it.
pub(crate) struct PageWriter {
    fs: Arc<dyn FileSystem>,
    /// Created when the first bytes are handed to it.
    file: Option<Box<dyn WritableFile>>,
    path: PathBuf,
    /// Pages not yet handed to the file; the last one may be open.
    buffer: Bulk<u8>,
    /// Where the open page starts in `buffer`, if one is open.
    open: Option<usize>,
    /// Where in the open page's payload its first frame starts.
    first: u16,
    /// Bytes handed to the file.
    written: u64,
    /// The number of bytes that are gathered before there is a file.
    held: usize,
}

impl PageWriter {
    /// Writes to a new file `path`; `gauge` counts the gathered bytes.
    pub(crate) fn new(fs: Arc<dyn FileSystem>, path: PathBuf, gauge: &Gauge) -> Self {
        let (buffer, file) = (Bulk::new(gauge), None);
        Self {
            fs,
            file,
            path,
            buffer,
            open: None,
            first: PAGE_NO_FRAME,
            written: 0,
            held: WRITE_BYTES,
        }
    }

    /// Gathers up to `bytes` bytes before there is a file; never less than are gathered anyway.
    pub(crate) fn hold(&mut self, bytes: u64) {
        self.held = usize::try_from(bytes).unwrap_or(usize::MAX).max(WRITE_BYTES);
    }

    /// Everything that was written, if it is all in memory and there is no file yet.
    pub(crate) fn unwritten(&self) -> Option<&[u8]> {
        self.file.is_none().then_some(&self.buffer)
    }

    /// Bytes of the file so far.
    pub(crate) fn len(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Appends a frame; returns where it starts in the file.
    pub(crate) fn put_frame(&mut self, header: PageFrameHeader, payload: &[u8]) -> Result<u64> {
        let page = self.room()?;
        let start = self.buffer.len();
        if self.first == PAGE_NO_FRAME {
            #[expect(clippy::cast_possible_truncation, reason = "below the bytes of a page")]
            let first = (start - page - PAGE_HEADER_BYTES) as u16;
            self.first = first;
        }
        let offset = self.written + start as u64;
        self.put_in_pages(&header.encode())?;
        self.put_in_pages(payload)?;
        Ok(offset)
    }

    /// Fills the last page with zeros; returns the number of pages of the data area.
    pub(crate) fn finish_data(&mut self) -> Result<u32> {
        if let Some(page) = self.open {
            self.buffer.resize(page + PAGE_BYTES, 0);
            self.close_page()?;
        }
        u32::try_from(self.len() / PAGE_BYTES as u64)
            .map_err(|_| Error::Exhausted("a table is at most 16 TiB".into()))
    }

    /// Appends bytes after the data area.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<()> {
        for part in bytes.chunks(WRITE_BYTES) {
            self.buffer.extend_from_slice(part);
            if self.is_full() {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Hands everything to the file and makes it durable.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.flush()?;
        let Some(file) = &mut self.file else { return Ok(()) };
        retry("fdatasync", &self.path, || file.sync_data())
    }

    /// The file's path, once there is a file.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(|_| &*self.path)
    }

    fn put_in_pages(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let page = self.room()?;
            let room = page + PAGE_BYTES - self.buffer.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.buffer.extend_from_slice(now);
            bytes = later;
        }
        Ok(())
    }

    /// Makes sure that the open page has room; returns where it starts in the buffer.
    fn room(&mut self) -> Result<usize> {
        if let Some(page) = self.open {
            if self.buffer.len() < page + PAGE_BYTES {
                return Ok(page);
            }
            self.close_page()?;
        }
        let page = self.buffer.len();
        self.buffer.extend_from_slice(&[0; PAGE_HEADER_BYTES]);
        self.open = Some(page);
        Ok(page)
    }

    fn close_page(&mut self) -> Result<()> {
        if let Some(page) = self.open.take() {
            self.buffer[page..page + PAGE_HEADER_BYTES].copy_from_slice(&self.first.to_le_bytes());
            self.first = PAGE_NO_FRAME;
        }
        if self.is_full() { self.flush() } else { Ok(()) }
    }

    fn is_full(&self) -> bool {
        self.buffer.len() >= if self.file.is_none() { self.held } else { WRITE_BYTES }
    }

    fn flush(&mut self) -> Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(retry("create", &self.path, || self.fs.create(&self.path))?),
        };
        write_all(&mut **file, &self.path, &self.buffer)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

/// A fault in a run of pages: what was expected, and the offset in the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadPages {
    pub(crate) expected: &'static str,
    pub(crate) at: usize,
}

/// The payload of a frame, in one piece for each page that it lies in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FramePayload<'p> {
    pages: &'p [u8],
    /// Where it begins in the stream that the pages hold.
    at: usize,
    len: usize,
}

impl<'p> FramePayload<'p> {
    /// The payload of `len` bytes from byte `at` of the stream; `None` if it ends after the pages.
    fn new(pages: &'p [u8], at: usize, len: usize) -> Option<Self> {
        let end = at.checked_add(len)?;
        (end <= pages.len() / PAGE_BYTES * PAGE_PAYLOAD_BYTES).then_some(Self { pages, at, len })
    }

    /// Its number of bytes: fewer than those of the pages.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Its bytes, in order.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &'p [u8]> + use<'p> {
        let Self { pages, mut at, len } = *self;
        let end = at + len;
        std::iter::from_fn(move || {
            let start = in_page(at);
            let now = (end - at).min(PAGE_BYTES - start % PAGE_BYTES);
            at += now;
            (now > 0).then(|| &pages[start..start + now])
        })
    }
}

/// Finds the `nth` frame that starts in the first page of `pages`, which is whole pages.
pub(crate) fn find_frame(
    pages: &[u8],
    nth: u32,
) -> Result<(PageFrameHeader, FramePayload<'_>), BadPages> {
    let first = match pages {
        [low, high, ..] => u16::from_le_bytes([*low, *high]),
        _ => return Err(BadPages { expected: "a page", at: 0 }),
    };
    if usize::from(first) >= PAGE_PAYLOAD_BYTES {
        return Err(BadPages { expected: "a page in which a block starts", at: 0 });
    }
    let mut at = usize::from(first);
    for _ in 0..nth {
        let header = frame_header(pages, at)?;
        at = at.saturating_add(FRAME_HEADER_BYTES).saturating_add(header.stored_len as usize);
        if at >= PAGE_PAYLOAD_BYTES {
            let at = pages.len().min(at);
            return Err(BadPages { expected: "another block that starts in the page", at });
        }
    }
    let header = frame_header(pages, at)?;
    let payload = FramePayload::new(pages, at + FRAME_HEADER_BYTES, header.stored_len as usize)
        .ok_or(BadPages { expected: "a block that ends within its pages", at: in_page(at) })?;
    Ok((header, payload))
}

fn frame_header(pages: &[u8], at: usize) -> Result<PageFrameHeader, BadPages> {
    let short = BadPages { expected: "a block header within the pages", at: in_page(at) };
    let start = in_page(at);
    // Nearly always within one page.
    if start % PAGE_BYTES + FRAME_HEADER_BYTES <= PAGE_BYTES {
        let bytes = pages.get(start..).and_then(|bytes| bytes.first_chunk()).ok_or(short)?;
        return Ok(PageFrameHeader::decode(*bytes));
    }
    let mut bytes = [0; FRAME_HEADER_BYTES];
    let head_len = PAGE_BYTES - start % PAGE_BYTES;
    let rest = start + head_len + PAGE_HEADER_BYTES;
    let rest = rest..rest + FRAME_HEADER_BYTES - head_len;
    bytes[..head_len].copy_from_slice(pages.get(start..start + head_len).ok_or(short)?);
    bytes[head_len..].copy_from_slice(pages.get(rest).ok_or(short)?);
    Ok(PageFrameHeader::decode(bytes))
}

/// Where byte `at` of the stream lies in the data area of a file.
pub(crate) fn offset_in_file(at: u64) -> u64 {
    let payload = PAGE_PAYLOAD_BYTES as u64;
    at / payload * PAGE_BYTES as u64 + PAGE_HEADER_BYTES as u64 + at % payload
}

/// The bytes of the stream that the first `bytes` bytes of a data area hold.
pub(crate) fn stream_bytes(bytes: u64) -> u64 {
    let page = PAGE_BYTES as u64;
    let rest = (bytes % page).saturating_sub(PAGE_HEADER_BYTES as u64);
    bytes / page * PAGE_PAYLOAD_BYTES as u64 + rest
}

/// Where byte `at` of the stream lies within the pages that it is cut into.
fn in_page(at: usize) -> usize {
    at / PAGE_PAYLOAD_BYTES * PAGE_BYTES + PAGE_HEADER_BYTES + at % PAGE_PAYLOAD_BYTES
}
