//! The ordinary index: for each block the shortest separator and a handle, found by binary search.
//!
//! The learned index is measured against it and falls back to it. So it is neither compressed
//! further nor slowed down: what is in memory is what is in the file, and is compared in place.

use std::sync::OnceLock;

use rhumb_model::{code, codec, codec::Reader, search};

use super::{
    BINARY_SEARCH, BlockAddress, PAGE_BYTES, PAGE_PAYLOAD_BYTES,
    overlay::{Overlay, Trained},
};

/// Cuts blocks at a size and collects their separators and handles.
#[derive(Debug)]
pub(crate) struct BinarySearchBuilder {
    block_bytes: u64,
    last_key: Vec<u8>,
    /// Entries and bytes of the block that is being filled.
    entries: u32,
    bytes: u64,
    /// The separators of all blocks begun, joined, and where each ends.
    separators: Vec<u8>,
    separator_ends: Vec<usize>,
    handles: Vec<(u64, u32)>,
}

impl BinarySearchBuilder {
    pub(super) fn new(block_bytes: u32) -> Self {
        Self {
            block_bytes: u64::from(block_bytes.max(1)),
            last_key: Vec::new(),
            entries: 0,
            bytes: 0,
            separators: Vec::new(),
            separator_ends: Vec::new(),
            handles: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, key: &[u8], bytes: usize, cuts: &mut Vec<u32>) {
        let bytes = bytes as u64;
        let is_first = self.separator_ends.is_empty();
        if is_first || key != self.last_key {
            let is_full = self.entries > 0 && self.bytes.saturating_add(bytes) > self.block_bytes;
            if is_full {
                self.finish_cuts(cuts);
            }
            if is_first || is_full {
                // The first block needs no separator: all keys below the second one's belong to it.
                let len = if is_first { 0 } else { code::separator_len(&self.last_key, key) };
                self.separators.extend_from_slice(&key[..len]);
                self.separator_ends.push(self.separators.len());
            }
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
        }
        self.entries += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    pub(super) fn finish_cuts(&mut self, cuts: &mut Vec<u32>) {
        if self.entries > 0 {
            cuts.push(self.entries);
        }
        (self.entries, self.bytes) = (0, 0);
    }

    pub(super) fn block_written(&mut self, file_offset: u64, stored_len: u32) {
        self.handles.push((file_offset, stored_len));
    }

    pub(super) fn encode(self, out: &mut Vec<u8>) {
        debug_assert_eq!(self.handles.len(), self.separator_ends.len());
        out.push(BINARY_SEARCH);
        let mut entry = Vec::new();
        let mut offsets = Vec::with_capacity(self.handles.len());
        let mut begin = 0;
        for (end, (offset, len)) in self.separator_ends.iter().zip(&self.handles) {
            offsets.push(entry.len() as u32);
            codec::put_varint((end - begin) as u64, &mut entry);
            entry.extend_from_slice(&self.separators[begin..*end]);
            codec::put_varint(*offset, &mut entry);
            codec::put_varint(u64::from(*len), &mut entry);
            begin = *end;
        }
        out.extend(offsets.iter().flat_map(|offset| offset.to_le_bytes()));
        out.extend_from_slice(&entry);
    }
}

/// The separators and handles of all blocks: `[offset u32] * blocks`, then the entries
/// `[separator length varint][separator][file offset varint][stored length varint]`.
#[derive(Debug)]
pub(super) struct BinarySearchIndex {
    bytes: Box<[u8]>,
    blocks: u32,
    data_pages: u32,
    /// The model that was trained while the table was read; the inner `None` if a model was
    /// refused.
    overlay: OnceLock<Option<Overlay>>,
}

/// One entry, as it lies in the block.
#[derive(Clone, Copy, Debug)]
struct Handle<'a> {
    separator: &'a [u8],
    file_offset: u64,
    stored_len: u32,
}

impl Handle<'_> {
    fn first_page(&self) -> u64 {
        self.file_offset / PAGE_BYTES
    }

    fn last_page(&self) -> u64 {
        let within = (self.file_offset % PAGE_BYTES).saturating_sub(2);
        let end = within + u64::from(self.stored_len.max(1)) - 1;
        self.first_page() + end / u64::from(PAGE_PAYLOAD_BYTES)
    }
}

impl BinarySearchIndex {
    pub(super) fn decode(
        reader: &mut Reader<'_>,
        blocks: u32,
        data_pages: u32,
    ) -> Result<Self, String> {
        let bytes = reader.take(reader.remaining(), "entries").map_err(|e| e.to_string())?;
        let offsets_len = blocks as usize * 4;
        if bytes.len() < offsets_len {
            return Err(format!(
                "expected {offsets_len} bytes of entry offsets, found {} bytes",
                bytes.len()
            ));
        }
        let index = Self { bytes: bytes.into(), blocks, data_pages, overlay: OnceLock::new() };
        index.validate()?;
        Ok(index)
    }

    fn validate(&self) -> Result<(), String> {
        let mut expected_at = self.blocks as usize * 4;
        let mut previous: Option<Handle<'_>> = None;
        for block in 0..self.blocks {
            let at = self.entry_begin(block);
            if at != expected_at {
                return Err(format!("expected entry {block} at {expected_at}, found it at {at}"));
            }
            let (handle, len) = read_entry(&self.bytes[at..])
                .map_err(|e| format!("expected entry {block} to be whole: {e}"))?;
            expected_at += len;
            let rises = previous.is_none_or(|previous| {
                previous.separator < handle.separator && previous.file_offset < handle.file_offset
            });
            if !rises {
                return Err(format!("expected entry {block} above the one before it"));
            }
            if handle.last_page() >= u64::from(self.data_pages) {
                return Err(format!(
                    "expected block {block} within {} pages, found it to end in page {}",
                    self.data_pages,
                    handle.last_page()
                ));
            }
            previous = Some(handle);
        }
        if expected_at != self.bytes.len() {
            return Err(format!(
                "expected {expected_at} bytes of entries, found {}",
                self.bytes.len()
            ));
        }
        Ok(())
    }

    /// Where entry `block` begins; within the bytes once validated.
    #[inline]
    fn entry_begin(&self, block: u32) -> usize {
        let at = block as usize * 4;
        let offset = self.bytes[at..].first_chunk::<4>().map_or(0, |b| u32::from_le_bytes(*b));
        (self.blocks as usize * 4).saturating_add(offset as usize).min(self.bytes.len())
    }

    fn handle(&self, block: u32) -> Handle<'_> {
        read_entry(&self.bytes[self.entry_begin(block)..])
            .map_or(Handle { separator: &[], file_offset: 0, stored_len: 0 }, |(handle, _)| handle)
    }

    /// The separator of `block`.
    #[inline]
    pub(super) fn separator(&self, block: u32) -> &[u8] {
        let entry = &self.bytes[self.entry_begin(block)..];
        match entry {
            // A length of one byte is the usual case and the hot path of the search.
            [len @ 0..=0x7f, rest @ ..] => &rest[..(*len as usize).min(rest.len())],
            _ => read_entry(entry).map_or(&[], |(handle, _)| handle.separator),
        }
    }

    #[inline]
    pub(super) fn locate(&self, key: &[u8]) -> u32 {
        if let Some(Some(overlay)) = self.overlay.get() {
            let separator = |i: usize| self.separator(i as u32);
            if let Some(block) = overlay.locate(key, self.blocks as usize, separator) {
                return block as u32;
            }
        }
        self.search(key)
    }

    /// Trains a model once and publishes it. Readers use binary search until then, and also after
    /// it if the model is refused.
    pub(super) fn train(&self, is_late: impl Fn() -> bool) -> Trained {
        if self.overlay.get().is_some() {
            return Trained::NotWanted;
        }
        let separator = |i: usize| self.separator(i as u32);
        let result = Overlay::train(self.blocks as usize, separator, is_late);
        let outcome = result.as_ref().map_or_else(|refusal| *refusal, |_| Trained::Published);
        match self.overlay.set(result.ok()) {
            Ok(()) => outcome,
            Err(_) => Trained::NotWanted,
        }
    }

    /// The segments of the model that was trained while reading; `None` if that was not tried yet.
    pub(super) fn overlay_segments(&self) -> Option<Option<usize>> {
        let overlay = self.overlay.get()?;
        Some(overlay.as_ref().map(Overlay::segment_count))
    }

    /// As [`BinarySearchIndex::locate`], by a search among all separators.
    #[inline]
    fn search(&self, key: &[u8]) -> u32 {
        let above =
            search::partition_point(0, self.blocks as usize, |i| self.separator(i as u32) <= key);
        above.saturating_sub(1) as u32
    }

    pub(super) fn address(&self, block: u32) -> BlockAddress {
        if self.blocks == 0 {
            return BlockAddress { first_page: 0, last_page: 0, nth: 0 };
        }
        let block = block.min(self.blocks - 1);
        let handle = self.handle(block);
        let first_page = handle.first_page();
        let before = (0..block).rev().take_while(|i| self.handle(*i).first_page() == first_page);
        BlockAddress {
            first_page: first_page as u32,
            last_page: handle.last_page() as u32,
            nth: before.count() as u32,
        }
    }

    pub(super) fn resident_bytes(&self) -> usize {
        let overlay = self.overlay.get().and_then(Option::as_ref);
        self.bytes.len() + overlay.map_or(0, Overlay::resident_bytes)
    }
}

/// The entry at the start of `bytes` and its length.
fn read_entry(bytes: &[u8]) -> Result<(Handle<'_>, usize), codec::DecodeError> {
    let mut reader = Reader::new(bytes);
    let len = reader.varint("a separator length")?;
    let separator = reader.take(usize::try_from(len).unwrap_or(usize::MAX), "a separator")?;
    let file_offset = reader.varint_up_to(1 << 48, "a file offset")?;
    let stored_len = reader.varint_up_to(u64::from(u32::MAX), "a stored length")? as u32;
    Ok((Handle { separator, file_offset, stored_len }, reader.offset()))
}
