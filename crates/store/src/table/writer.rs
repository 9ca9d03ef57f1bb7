//! Writes a table: entries in ascending order in, files on disk out.
//!
//! The index decides which entries share a block, and may decide late; until then the entries wait
//! in memory. Blocks are written as soon as they are decided. Nothing refers to a table before
//! [`TableWriter::finish`] has made it durable, so a writer that is dropped before that removes the
//! files that it wrote.

use std::{path::PathBuf, sync::Arc};

use rhumb_sync::{bulk::Bulk, mapping::Gauge};

use super::{
    TableContext, TableLayout, TableMeta,
    block::BlockBuilder,
    compress::Compressor,
    filter::FilterBuilder,
    footer::{Footer, SectionExtent, Written, encode_properties, section_header},
    format::{
        FILE_ALIGN_BYTES, FOOTER_BYTES, FRAME_HEADER_BYTES, SECTION_FILTER, SECTION_INDEX,
        SECTION_PROPERTIES, SECTION_RANGES,
    },
    hash::KeyHash,
    index_block::BlockIndexBuilder,
    pages::{PageFrameHeader, PageWriter},
    reader::Table,
    shared::SharedWriter,
    table_path, value_path,
    values::{ValuePointer, ValueWriter},
};
use crate::{
    error::{Error, Result},
    expiry::{ExpiriesBuilder, Millis, Stamp},
    io::FileSystem,
    ranges::{Ranges, last_below},
    types::{FileId, KEY_BYTES_MAX, Kind, SeqNo, TreeId, VALUE_BYTES_MAX, compare_entries},
    varint,
};

/// An entry whose block is not decided yet; its bytes are in the arena, key then value.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    start: usize,
    key_len: usize,
    value_len: usize,
    seq: SeqNo,
    kind: Kind,
    tag: u8,
}

/// Writes one table and, if it has large values, the file beside it.
pub(crate) struct TableWriter {
    fs: Arc<dyn FileSystem>,
    id: FileId,
    options: TableLayout,
    out: PageWriter,
    value_path: PathBuf,
    values: Option<ValueWriter>,
    index: BlockIndexBuilder,
    filter: FilterBuilder,
    compressor: Compressor,
    block: BlockBuilder,
    /// The encoded block, reused.
    encoded: Vec<u8>,
    arena: Bulk<u8>,
    waiting: Bulk<Waiting>,
    /// The number of entries at the front of `waiting` that are in blocks already.
    written: usize,
    waiting_bytes: usize,
    /// Entry counts of decided blocks, reused.
    cuts: Vec<u32>,
    block_count: u32,
    last_key: Vec<u8>,
    last_seq: SeqNo,
    cost: CostEstimate,
    ranges: Ranges,
    expiries: ExpiriesBuilder,
    meta: TableMeta,
    /// The LSM tree that the table is of; 0 if that is not known.
    tree: TreeId,
    keys: u64,
    /// Counts the memory of the writer.
    mapped: Gauge,
    /// True if the files stay when the writer is dropped.
    finished: bool,
}

impl TableWriter {
    /// Starts table `id`. Options out of bounds are set to the nearest value within. The file is
    /// created with the first 256 KiB, or at the end.
    pub(crate) fn create(ctx: &TableContext, id: FileId, options: &TableLayout) -> Self {
        let options = options.clamped();
        let path = table_path(&ctx.dir, id);
        Self {
            fs: Arc::clone(&ctx.fs),
            id,
            out: PageWriter::new(Arc::clone(&ctx.fs), path, &ctx.mapped),
            value_path: value_path(&ctx.dir, id),
            values: None,
            index: BlockIndexBuilder::new(
                options.index,
                options.string_coding,
                options.block_bytes,
            )
            .counted_by(&ctx.mapped),
            filter: FilterBuilder::new(options.filter_bits_per_key).counted_by(&ctx.mapped),
            compressor: Compressor::new(options.compression),
            block: BlockBuilder::new(options.restart_interval),
            encoded: Vec::new(),
            arena: Bulk::new(&ctx.mapped),
            waiting: Bulk::new(&ctx.mapped),
            written: 0,
            waiting_bytes: 0,
            mapped: ctx.mapped.clone(),
            cuts: Vec::new(),
            block_count: 0,
            last_key: Vec::new(),
            last_seq: 0,
            cost: CostEstimate::new(options.restart_interval),
            meta: TableMeta {
                place: None,
                id,
                file_bytes: 0,
                value_file_bytes: 0,
                entries: 0,
                tombstones: 0,
                range_tombstones: 0,
                smallest: Box::default(),
                largest: Box::default(),
                seq_min: SeqNo::MAX,
                seq_max: 0,
                raw_bytes: 0,
                expiries: None,
            },
            expiries: ExpiriesBuilder::default(),
            ranges: Ranges::default(),
            tree: 0,
            keys: 0,
            options,
            finished: false,
        }
    }

    /// Names the LSM tree that the table is of in its footer, for a salvage without a manifest.
    pub(crate) fn of_tree(mut self, tree: TreeId) -> Self {
        self.tree = tree;
        self
    }

    /// Keeps up to `bytes` of the table in memory, so that [`TableWriter::finish_into`] may put it
    /// into a file with others; at least the 256 KiB that are gathered anyway.
    pub(crate) fn holding(mut self, bytes: u64) -> Self {
        self.out.hold(bytes);
        self
    }

    /// Adds an entry, which must be after the last one in the order of entries. A value longer
    /// than the options' limit goes to the file beside the table. O(key + value), amortised.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if the entry is over a limit; [`Error::Internal`] if it is out of
    /// order; [`Error::Exhausted`] if the table is full; [`Error::Io`]. The table is of no use
    /// afterwards.
    pub(crate) fn add(&mut self, key: &[u8], seq: SeqNo, kind: Kind, value: &[u8]) -> Result<()> {
        if value.len() > VALUE_BYTES_MAX || (kind == Kind::Tombstone && !value.is_empty()) {
            return Err(Error::InvalidArgument(
                "a value is at most 1 GiB, a tombstone's none".into(),
            ));
        }
        if kind == Kind::LargeValue {
            return Err(Error::Internal("large values come from their table".into()));
        }
        if kind == Kind::Expiring {
            return self.add_expiring(key, seq, value);
        }
        if value.len() > self.options.large_value_bytes as usize {
            self.check(key, seq)?;
            let pointer = self.values()?.put(value)?;
            return self.accept(key, seq, Kind::LargeValue, &pointer.encode(), value.len() as u64);
        }
        self.check(key, seq)?;
        self.accept(key, seq, kind, value, value.len() as u64)
    }

    /// [`TableWriter::add`] for an entry that expires.
    fn add_expiring(&mut self, key: &[u8], seq: SeqNo, value: &[u8]) -> Result<()> {
        let Some((stamp, bytes)) = Stamp::split(value).filter(|(stamp, _)| !stamp.is_large) else {
            return Err(Error::Internal("an entry that expires has a stamp".into()));
        };
        self.check(key, seq)?;
        self.expiries.add(stamp.at_ms);
        if bytes.len() > self.options.large_value_bytes as usize {
            let pointer = self.values()?.put(bytes)?;
            return self.accept_expiring_large(key, seq, stamp.at_ms, pointer);
        }
        self.accept(key, seq, Kind::Expiring, value, bytes.len() as u64)
    }

    fn accept_expiring_large(
        &mut self,
        key: &[u8],
        seq: SeqNo,
        at_ms: Millis,
        pointer: ValuePointer,
    ) -> Result<()> {
        let stamp = Stamp { at_ms, is_large: true };
        let place = [&stamp.encode()[..], &pointer.encode()].concat();
        self.accept(key, seq, Kind::Expiring, &place, pointer.len)
    }

    /// Adds an entry that expires and whose large value is in `source`, as
    /// [`TableWriter::add_large_from`] does.
    ///
    /// # Errors
    ///
    /// As [`TableWriter::add_large_from`].
    pub(crate) fn add_expiring_large_from(
        &mut self,
        key: &[u8],
        seq: SeqNo,
        source: &Table,
        (at_ms, pointer): (Millis, &[u8]),
    ) -> Result<()> {
        self.check(key, seq)?;
        let pointer = source.value_pointer(pointer)?;
        let pointer = self.values()?.copy(source.value_file()?, pointer)?;
        self.expiries.add(at_ms);
        self.accept_expiring_large(key, seq, at_ms, pointer)
    }

    /// Adds an entry whose large value is that which `pointer` names in `source`: copies it from
    /// file to file, 256 KiB at a time, and verifies it.
    ///
    /// # Errors
    ///
    /// As [`TableWriter::add`]; [`Error::Corrupt`] if the value is damaged in `source`.
    pub(crate) fn add_large_from(
        &mut self,
        key: &[u8],
        seq: SeqNo,
        source: &Table,
        pointer: &[u8],
    ) -> Result<()> {
        self.check(key, seq)?;
        let pointer = source.value_pointer(pointer)?;
        let file = source.value_file()?;
        let pointer = self.values()?.copy(file, pointer)?;
        self.accept(key, seq, Kind::LargeValue, &pointer.encode(), pointer.len)
    }

    /// Gives the table its range tombstones, each of which has an end. They may cover its own
    /// entries.
    pub(crate) fn set_ranges(&mut self, ranges: Ranges) {
        self.ranges = ranges;
    }

    /// Returns true if neither an entry was added nor range tombstones were set.
    pub(crate) fn is_empty(&self) -> bool {
        self.meta.entries == 0 && self.ranges.is_empty()
    }

    /// The last key that was added, if any.
    pub(crate) fn last_key(&self) -> Option<&[u8]> {
        (self.meta.entries > 0).then_some(&*self.last_key)
    }

    /// About the number of bytes of the files, with those that wait in memory: used to cut a run of
    /// entries into tables.
    pub(crate) fn bytes_estimate(&self) -> u64 {
        let values = self.values.as_ref().map_or(0, ValueWriter::len);
        let waiting = (self.waiting_bytes + self.filter.bytes_estimate()) as u64;
        self.out.len() + values + waiting
    }

    /// Ends the table and makes its files durable; the caller makes their names durable.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if nothing was added; [`Error::Io`]. The files are removed then.
    pub(crate) fn finish(mut self) -> Result<TableMeta> {
        self.write_rest()?;
        self.out.sync()?;
        self.finished = true;
        Ok(self.meta.clone())
    }

    /// As [`TableWriter::finish`], but a table that is still in memory ([`TableWriter::holding`])
    /// is appended to a file that it shares. `shared` makes that file if need be, and the caller
    /// makes it durable.
    ///
    /// # Errors
    ///
    /// As [`TableWriter::finish`], and those of `shared`.
    pub(crate) fn finish_into<'w>(
        mut self,
        shared: impl FnOnce() -> Result<&'w mut SharedWriter>,
    ) -> Result<TableMeta> {
        self.write_rest()?;
        match self.out.unwritten() {
            Some(bytes) => self.meta.place = Some(shared()?.append(bytes)?),
            None => self.out.sync()?,
        }
        self.finished = true;
        Ok(self.meta.clone())
    }

    /// Writes all that is still in memory.
    fn write_rest(&mut self) -> Result<()> {
        let mut cuts = std::mem::take(&mut self.cuts);
        if self.meta.entries == 0 {
            let Some(first) = self.ranges.keys().first() else {
                return Err(Error::Internal("a table has at least one entry".into()));
            };
            // An index needs a key: the block of this one stays empty.
            self.index.push(first, 1, &mut cuts);
            self.index.finish_cuts(&mut cuts);
            cuts.iter_mut().for_each(|count| *count = 0);
        } else {
            self.index.finish_cuts(&mut cuts);
        }
        self.write_blocks(&cuts)?;
        if self.written < self.waiting.len() {
            return Err(Error::Internal("the index left entries without a block".into()));
        }
        if let Some(values) = &mut self.values {
            self.meta.value_file_bytes = values.finish()?;
        }
        self.meta.largest = self.last_key.as_slice().into();
        self.record_ranges();
        self.meta.expiries = self.expiries.finish();
        let data_pages = self.out.finish_data()?;
        self.write_tail(data_pages)?;
        self.meta.file_bytes = self.out.len();
        Ok(())
    }

    /// Extends the table's bounds and sequence numbers to those of its range tombstones.
    fn record_ranges(&mut self) {
        let (Some(first), Some(last)) = (self.ranges.keys().first(), self.ranges.keys().last())
        else {
            return;
        };
        let (meta, last) = (&mut self.meta, last_below(last));
        meta.range_tombstones = self.ranges.count();
        if meta.entries == 0 || **first < *meta.smallest {
            meta.smallest = (**first).into();
        }
        if meta.entries == 0 || *last > *meta.largest {
            meta.largest = last.into();
        }
        for seq in self.ranges.seqs() {
            meta.seq_min = meta.seq_min.min(*seq);
            meta.seq_max = meta.seq_max.max(*seq);
        }
    }

    fn check(&self, key: &[u8], seq: SeqNo) -> Result<()> {
        if key.len() > KEY_BYTES_MAX || seq >= 1 << 56 {
            return Err(Error::InvalidArgument(
                "a key is at most 64 KiB, a number below 2^56".into(),
            ));
        }
        let last = (&self.last_key, self.last_seq);
        if self.meta.entries > 0 && compare_entries(last.0, last.1, key, seq).is_ge() {
            return Err(Error::Internal("entries are added in ascending order".into()));
        }
        Ok(())
    }

    fn values(&mut self) -> Result<&mut ValueWriter> {
        match &mut self.values {
            Some(values) => Ok(values),
            none => {
                let path = self.value_path.clone();
                Ok(none.insert(ValueWriter::create(&*self.fs, path, &self.mapped)?))
            }
        }
    }

    /// Takes a checked entry and lets the index decide what it can. `raw_len` is the length of the
    /// value as it was given.
    fn accept(
        &mut self,
        key: &[u8],
        seq: SeqNo,
        kind: Kind,
        value: &[u8],
        raw_len: u64,
    ) -> Result<()> {
        let hash = KeyHash::of(key);
        if self.meta.entries == 0 || self.last_key != key {
            self.keys += 1;
            self.filter.push(hash);
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
        }
        if self.meta.entries == 0 {
            self.meta.smallest = key.into();
        }
        self.meta.entries += 1;
        self.meta.tombstones += u64::from(kind == Kind::Tombstone);
        self.meta.seq_min = self.meta.seq_min.min(seq);
        self.meta.seq_max = self.meta.seq_max.max(seq);
        self.meta.raw_bytes += key.len() as u64 + raw_len;

        self.last_seq = seq;

        let start = self.arena.len();
        self.arena.extend_from_slice(key);
        self.arena.extend_from_slice(value);
        let (key_len, value_len) = (key.len(), value.len());
        let tag = hash.tag();
        self.waiting.push(Waiting { start, key_len, value_len, seq, kind, tag });
        let bytes = self.cost.of(key, seq, value_len);
        self.waiting_bytes += bytes;

        let mut cuts = std::mem::take(&mut self.cuts);
        self.index.push(key, bytes, &mut cuts);
        self.write_blocks(&cuts)?;
        cuts.clear();
        self.cuts = cuts;
        Ok(())
    }

    /// Writes blocks of the first waiting entries, `cuts` entries each.
    fn write_blocks(&mut self, cuts: &[u32]) -> Result<()> {
        for count in cuts {
            for _ in 0..*count {
                let Some(entry) = self.waiting.get(self.written) else {
                    return Err(Error::Internal("the index cut more than it was given".into()));
                };
                self.written += 1;
                let (key, rest) = self.arena[entry.start..].split_at(entry.key_len);
                let value = &rest[..entry.value_len];
                self.block.add(key, entry.tag, entry.seq, entry.kind, value);
            }
            self.write_block()?;
        }
        if !cuts.is_empty() {
            self.forget_written();
        }
        Ok(())
    }

    fn write_block(&mut self) -> Result<()> {
        let too_large = || Error::Exhausted("the versions of one key exceed 4 GiB".into());
        if u32::try_from(self.block.encoded_bytes()).is_err() {
            return Err(too_large());
        }
        self.encoded.clear();
        self.block.finish(&mut self.encoded);
        let (compression, stored) = self.compressor.compress(&self.encoded);
        let stored_len = u32::try_from(stored.len()).map_err(|_| too_large())?;
        let raw_len = u32::try_from(self.encoded.len()).map_err(|_| too_large())?;
        let header = PageFrameHeader::of(
            self.id,
            self.block_count,
            stored_len,
            raw_len,
            compression,
            stored,
        );
        let frame_len = stored_len.saturating_add(FRAME_HEADER_BYTES as u32);
        let offset = self.out.put_frame(header, stored)?;
        self.index.block_written(offset, frame_len);
        self.block_count = self
            .block_count
            .checked_add(1)
            .ok_or(Error::Exhausted("a table has fewer than 2^32 blocks".into()))?;
        Ok(())
    }

    /// Releases the written part of the arena once it is at least half of it, so that bytes are
    /// moved no more often than they are added.
    fn forget_written(&mut self) {
        let start = self.waiting.get(self.written).map_or(self.arena.len(), |entry| entry.start);
        self.waiting_bytes = self.arena.len() - start;
        if start >= self.waiting_bytes {
            self.arena.remove_first(start);
            self.waiting.remove_first(self.written);
            self.written = 0;
            for entry in &mut *self.waiting {
                entry.start -= start;
            }
        }
    }

    /// Writes what follows the data area.
    fn write_tail(&mut self, data_pages: u32) -> Result<()> {
        let unused = BlockIndexBuilder::new(self.options.index, self.options.string_coding, 1);
        let index = std::mem::replace(&mut self.index, unused);
        let mut encoded_index = Vec::new();
        index.encode(&mut encoded_index);
        let written = Written {
            keys: self.keys,
            block_bytes: self.options.block_bytes,
            large_value_bytes: self.options.large_value_bytes,
            compression: self.options.compression.byte(),
            filter_bits_per_key: self.options.filter_bits_per_key,
            restart_interval: self.options.restart_interval,
        };
        let properties = encode_properties(&self.meta, &written);
        let mut footer = Footer {
            table: self.id,
            data_pages,
            block_count: self.block_count,
            tree: self.tree,
            ..Footer::default()
        };
        footer.has_expiries = self.meta.expiries.is_some();
        let filter = self.filter.encode();
        let ranges = self.ranges.encode();
        let sections = [
            (SECTION_INDEX, &*encoded_index, &mut footer.index),
            (SECTION_FILTER, &*filter, &mut footer.filter),
            (SECTION_RANGES, &*ranges, &mut footer.ranges),
            (SECTION_PROPERTIES, &*properties, &mut footer.properties),
        ];
        for (kind, payload, extent) in sections {
            if kind == SECTION_RANGES && self.ranges.is_empty() {
                continue;
            }
            let offset = self.out.len();
            self.out.put(&section_header(self.id, kind, payload))?;
            self.out.put(payload)?;
            *extent = SectionExtent { offset, len: self.out.len() - offset };
        }
        let end = self.out.len() + FOOTER_BYTES as u64;
        let padding = end.next_multiple_of(FILE_ALIGN_BYTES as u64) - end;
        self.out.put(&[0; FILE_ALIGN_BYTES][..usize::try_from(padding).unwrap_or(0)])?;
        self.out.put(&footer.encode())
    }
}

impl Drop for TableWriter {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        // Best effort: a file that remains is unreferenced, and the next open removes it.
        if let Some(path) = self.out.path() {
            let _ = self.fs.remove_file(path);
        }
        if self.values.is_some() {
            let _ = self.fs.remove_file(&self.value_path);
        }
    }
}

/// Estimates the bytes that entries will take in their blocks, before the blocks are known: groups
/// are counted from the first entry of the table instead of from that of each block.
struct CostEstimate {
    interval: u8,
    /// Entries in the current group.
    group: u8,
    head: Vec<u8>,
}

impl CostEstimate {
    fn new(interval: u8) -> Self {
        Self { interval, group: 0, head: Vec::new() }
    }

    fn of(&mut self, key: &[u8], seq: SeqNo, value_len: usize) -> usize {
        let mut shared = 0;
        if self.group == 0 {
            self.head.clear();
            self.head.extend_from_slice(key);
        } else {
            shared = BlockBuilder::shared_bytes(&self.head, key, value_len);
        }
        self.group = (self.group + 1) % self.interval;
        // Tag, offset and the length of the shared prefix take a byte, two and one.
        let suffix = key.len() - shared;
        4 + varint::len(suffix as u64)
            + varint::len(seq << 2)
            + varint::len(value_len as u64)
            + suffix
            + value_len
    }
}
