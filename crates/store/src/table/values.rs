//! Values too large for blocks: kept in a file beside the table, one after the other, each found
//! and verified by the pointer that its entry holds.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use rhumb_sync::{arena::Arena, bulk::Bulk, mapping::Gauge, record::Record};
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

use super::{file::read_range, format::POINTER_BYTES};
use crate::{
    error::{Error, Result},
    io::{
        DIRECT_ALIGN, FileSystem, ReadableFile, WritableFile, check_read, engine::ReadPart, retry,
        write_all,
    },
    slice::Slice,
    types::VALUE_BYTES_MAX,
};

/// Bytes gathered before they are handed to the file.
const WRITE_BYTES: usize = 64 << 10;
/// The number of bytes of a value that are in memory at once while it is copied from table to
/// table.
const COPY_BYTES: usize = 256 << 10;

/// Where a large value lies, and its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ValuePointer {
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// XXH3-64 of the value.
    pub(crate) checksum: u64,
}

impl ValuePointer {
    pub(crate) fn encode(self) -> [u8; POINTER_BYTES] {
        let mut bytes = [0; POINTER_BYTES];
        bytes[..8].copy_from_slice(&self.offset.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.len.to_le_bytes());
        bytes[16..].copy_from_slice(&self.checksum.to_le_bytes());
        bytes
    }

    /// Reads a pointer; `None` unless it is [`POINTER_BYTES`] long.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; POINTER_BYTES] = bytes.try_into().ok()?;
        let ([offset, len, checksum], []) = bytes.as_chunks::<8>() else { return None };
        Some(Self {
            offset: u64::from_le_bytes(*offset),
            len: u64::from_le_bytes(*len),
            checksum: u64::from_le_bytes(*checksum),
        })
    }
}

/// Writes the file of large values.
pub(crate) struct ValueWriter {
    file: Box<dyn WritableFile>,
    path: PathBuf,
    buffer: Vec<u8>,
    /// A part of a value that is being copied from another file.
    part: Bulk<u8>,
    written: u64,
}

impl ValueWriter {
    /// Creates the file; `gauge` counts the memory.
    pub(crate) fn create(fs: &dyn FileSystem, path: PathBuf, gauge: &Gauge) -> Result<Self> {
        let file = retry("create", &path, || fs.create(&path))?;
        Ok(Self { file, path, buffer: Vec::new(), part: Bulk::new(gauge), written: 0 })
    }

    /// Bytes of the file so far.
    pub(crate) fn len(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Appends a value.
    pub(crate) fn put(&mut self, value: &[u8]) -> Result<ValuePointer> {
        let offset = self.len();
        self.append(value)?;
        Ok(ValuePointer { offset, len: value.len() as u64, checksum: xxh3_64(value) })
    }

    /// Appends the value that `pointer` names in another file, and verifies it on the way.
    pub(crate) fn copy(
        &mut self,
        source: &ValueFile,
        pointer: ValuePointer,
    ) -> Result<ValuePointer> {
        source.check(pointer)?;
        let offset = self.len();
        let mut hasher = Xxh3Default::new();
        let mut chunk = std::mem::take(&mut self.part);
        chunk.resize(COPY_BYTES.min(usize::try_from(pointer.len).unwrap_or(COPY_BYTES)), 0);
        let mut done = 0;
        while done < pointer.len {
            let left = usize::try_from(pointer.len - done).unwrap_or(usize::MAX);
            let now = left.min(chunk.len());
            let part = &mut chunk[..now];
            read_range(&*source.file, &source.path, pointer.offset + done, part)?;
            hasher.update(part);
            self.append(part)?;
            done += part.len() as u64;
        }
        self.part = chunk;
        source.verify(pointer, hasher.digest())?;
        Ok(ValuePointer { offset, ..pointer })
    }

    /// Pads the file to a multiple of [`DIRECT_ALIGN`] and makes it durable; returns its length.
    pub(crate) fn finish(&mut self) -> Result<u64> {
        let padding = self.len().next_multiple_of(DIRECT_ALIGN as u64) - self.len();
        self.buffer.resize(self.buffer.len() + usize::try_from(padding).unwrap_or(0), 0);
        self.flush()?;
        retry("fdatasync", &self.path, || self.file.sync_data())?;
        Ok(self.written)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        if self.buffer.len() + bytes.len() > WRITE_BYTES {
            self.flush()?;
        }
        if bytes.len() >= WRITE_BYTES {
            write_all(&mut *self.file, &self.path, bytes)?;
            self.written += bytes.len() as u64;
        } else {
            self.buffer.extend_from_slice(bytes);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        write_all(&mut *self.file, &self.path, &self.buffer)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

/// Reads the file of large values.
#[derive(Debug)]
pub(crate) struct ValueFile {
    pub(crate) file: Arc<dyn ReadableFile>,
    pub(crate) path: PathBuf,
    pub(crate) len: u64,
    /// The memory for the values that are read.
    pub(crate) arena: Arc<Arena>,
}

impl ValueFile {
    /// The value that `pointer` names, verified.
    pub(crate) fn read(&self, pointer: ValuePointer) -> Result<Slice> {
        let len = self.check(pointer)?;
        let mut value = Record::zeroed(&self.arena, len);
        let bytes = value.get_mut().expect("nobody else has it yet");
        read_range(&*self.file, &self.path, pointer.offset, bytes)?;
        self.verify(pointer, xxh3_64(bytes))?;
        Ok(Slice::from_whole(value))
    }

    /// Begins a read of the value that `pointer` names, for a caller that reads its parts.
    pub(crate) fn begin(&self, pointer: ValuePointer) -> Result<LargeRead<'_>> {
        let len = self.check(pointer)?;
        let start = pointer.offset - pointer.offset % DIRECT_ALIGN as u64;
        // Within the file, whose length is a multiple of [`DIRECT_ALIGN`] too.
        let end = (pointer.offset + pointer.len).next_multiple_of(DIRECT_ALIGN as u64);
        Ok(LargeRead {
            file: self,
            pointer,
            value: Record::zeroed(&self.arena, len),
            filled: 0,
            start,
            end,
            arrived: start,
        })
    }

    /// Checks that the value lies within the file and is not longer than any value may be, before
    /// anything is allocated for it; returns its length.
    fn check(&self, pointer: ValuePointer) -> Result<usize> {
        let end = pointer.offset.checked_add(pointer.len);
        let len = usize::try_from(pointer.len).ok().filter(|len| *len <= VALUE_BYTES_MAX);
        match (end, len) {
            (Some(end), Some(len)) if end <= self.len => Ok(len),
            _ => Err(Error::corrupt(
                &self.path,
                pointer.offset,
                "a value within the file",
                format!("one of {} bytes in a file of {}", pointer.len, self.len),
            )),
        }
    }

    fn verify(&self, pointer: ValuePointer, checksum: u64) -> Result<()> {
        verify(&self.path, pointer, checksum)
    }
}

/// The number of bytes of a large value that are read at once: a multiple of [`DIRECT_ALIGN`].
pub(crate) const VALUE_PART_BYTES: usize = 1 << 20;

/// A large value that is read in parts, which arrive in order.
pub(crate) struct LargeRead<'a> {
    file: &'a ValueFile,
    pointer: ValuePointer,
    value: Record,
    /// Bytes of it that have arrived.
    filled: usize,
    /// The first byte of the aligned range of the file that holds the value; it goes up to `end`.
    start: u64,
    end: u64,
    /// The offset in the file up to which parts have arrived.
    arrived: u64,
}

impl LargeRead<'_> {
    /// The part that begins `begun` bytes after the start; `None` after the last.
    pub(crate) fn part(&self, begun: usize) -> Option<ReadPart> {
        let offset = self.start + begun as u64;
        let left = usize::try_from(self.end.checked_sub(offset)?).unwrap_or(usize::MAX);
        let (file, len) = (Arc::clone(&self.file.file), left.min(VALUE_PART_BYTES));
        (len > 0).then_some(ReadPart { file, offset, len })
    }

    /// Takes the next part.
    pub(crate) fn put(&mut self, result: io::Result<usize>, bytes: &[u8]) -> Result<()> {
        check_read(&self.file.path, self.arrived, bytes.len(), result)?;
        let skipped = self.pointer.offset.saturating_sub(self.arrived);
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
        let bytes_of_value = bytes.get(skipped..).unwrap_or_default();
        let value = self.value.get_mut().expect("nobody else has it yet");
        let missing = &mut value[self.filled..];
        let now = missing.len().min(bytes_of_value.len());
        missing[..now].copy_from_slice(&bytes_of_value[..now]);
        self.filled += now;
        self.arrived += bytes.len() as u64;
        Ok(())
    }

    /// The value, verified.
    pub(crate) fn finish(self) -> Result<Slice> {
        self.file.verify(self.pointer, xxh3_64(&self.value))?;
        Ok(Slice::from_whole(self.value))
    }
}

fn verify(path: &Path, pointer: ValuePointer, checksum: u64) -> Result<()> {
    if checksum == pointer.checksum {
        return Ok(());
    }
    Err(Error::corrupt(
        path,
        pointer.offset,
        format!("{} bytes with checksum {:016x}", pointer.len, pointer.checksum),
        format!("{checksum:016x}"),
    ))
}
