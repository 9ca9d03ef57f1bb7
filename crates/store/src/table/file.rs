//! Reads parts of table files, direct or buffered, through reusable buffers.

use std::{cell::Cell, path::Path};

use rhumb_sync::bulk::Bulk;

use crate::{
    error::Result,
    io::{AlignedBuf, DIRECT_ALIGN, ReadableFile, read_exact_at},
};

/// Buffers larger than this are not kept for the next read. Each thread that ever read keeps its
/// buffers, and they are not counted.
const KEPT_BYTES_MAX: usize = 256 << 10;
/// The number of bytes of a longer range that are read at once past the page cache.
const BOUNCE_BYTES: usize = KEPT_BYTES_MAX;

/// Buffers for bringing one block into memory.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// The pages of the block.
    pub(crate) pages: AlignedBuf,
    /// Its frame's payload.
    pub(crate) frame: Bulk<u8>,
    /// The decompressed payload. Its length only grows.
    pub(crate) raw: Bulk<u8>,
}

/// Runs `act` with this thread's buffers.
pub(crate) fn with_scratch<T>(act: impl FnOnce(&mut Scratch) -> T) -> T {
    thread_local! {
        static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
    }
    let mut scratch = SCRATCH.take().unwrap_or_default();
    let result = act(&mut scratch);
    if scratch.pages.capacity() > KEPT_BYTES_MAX {
        scratch.pages = AlignedBuf::default();
    }
    for buffer in [&mut scratch.frame, &mut scratch.raw] {
        if buffer.capacity() > KEPT_BYTES_MAX {
            *buffer = Bulk::default();
        }
    }
    SCRATCH.set(Some(scratch));
    result
}

/// Fills `out` from `offset`, whatever the alignment. The file's length must be a multiple of
/// [`DIRECT_ALIGN`], as that of every table file is.
pub(crate) fn read_range(
    file: &dyn ReadableFile,
    path: &Path,
    offset: u64,
    out: &mut [u8],
) -> Result<()> {
    if !file.is_direct() {
        return read_exact_at(file, path, out, offset);
    }
    with_scratch(|scratch| {
        let (mut offset, mut out) = (offset, out);
        while !out.is_empty() {
            let skipped = (offset % DIRECT_ALIGN as u64) as usize;
            let now = out.len().min(BOUNCE_BYTES - skipped);
            scratch.pages.resize_for((skipped + now).next_multiple_of(DIRECT_ALIGN));
            read_exact_at(file, path, &mut scratch.pages, offset - skipped as u64)?;
            let (head, rest) = out.split_at_mut(now);
            head.copy_from_slice(&scratch.pages[skipped..skipped + now]);
            offset += now as u64;
            out = rest;
        }
        Ok(())
    })
}
