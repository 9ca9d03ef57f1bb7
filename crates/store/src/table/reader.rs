//! Reads a table: point lookups in memory, and blocks from the file on request.
//!
//! Thread safety: a [`Table`] is immutable but for which of its blocks are resident. A lookup takes
//! no lock, and counts no reference until it has found a value to return; its caller pins the
//! epoch.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use rhumb_sync::bulk::Bulk;

use super::{
    TableContext, TableCounters, TableMeta,
    cache::TableBlocks,
    file::read_range,
    filter::Filter,
    footer::{
        Footer, FooterError, Mismatch, SectionExtent, Written, decode_properties, section_payload,
    },
    format::{
        FILE_ALIGN_BYTES, FOOTER_BYTES, FORMAT_VERSION_MAX, PAGE_BYTES, SECTION_FILTER,
        SECTION_INDEX, SECTION_PROPERTIES, SECTION_RANGES, TABLE_BYTES_MIN,
    },
    hash::KeyHash,
    index_block::{BlockAddress, BlockIndex, Trained},
    sample::first_slots,
    shared::{SharedPart, home_path},
    table_path, value_path,
    values::{LargeRead, ValueFile, ValuePointer},
};
use crate::{
    error::{Corruption, Error, Result},
    io::{ReadableFile, engine::ReadEngine, retry},
    ranges::{HiddenRuns, Ranges, last_below},
    slice::Slice,
    types::{FileId, SeqNo},
};

/// The number of bytes at the end of a file that are read before it is known how many are needed.
const TAIL_BYTES: u64 = 64 << 10;

/// An open table. Its index and filter stay in memory; its blocks come and go.
pub(crate) struct Table {
    pub(super) ctx: Arc<TableContext>,
    pub(super) meta: TableMeta,
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn ReadableFile>,
    /// The table's part of that file, if it shares the file with other tables.
    part: Option<Arc<SharedPart>>,
    values: Option<ValueFile>,
    data_pages: u32,
    /// The number of pages that a read of the file brings at least: a power of two.
    pub(super) pages_per_read: u32,
    index: BlockIndex,
    pub(super) filter: Filter,
    pub(super) blocks: TableBlocks,
    written: Written,
    /// The range tombstones. They cover entries of other tables, and entries of this one that only
    /// snapshots see.
    ranges: Option<Ranges>,
    /// Which of its own entries the range tombstones hide, if this process has written the table.
    hidden: OnceLock<HiddenRuns>,
    /// True if walks met many tombstones here.
    has_tombstone_runs: AtomicBool,
    obsolete: AtomicBool,
    /// The number of slots for entries that draws count each block as having.
    pub(super) slots_per_block: AtomicU32,
    /// About the mean length of a block's payload in bytes.
    pub(super) block_bytes_mean: u32,
    /// The number that is added to the sequence numbers in the file.
    seq_shift: SeqNo,
}

/// The parts of a table that are not data, verified.
struct Parts {
    file: Arc<dyn ReadableFile>,
    footer: Footer,
    index: BlockIndex,
    filter: Filter,
    ranges: Option<Ranges>,
    meta: TableMeta,
    written: Written,
}

impl Table {
    /// Opens the table that `meta` describes. If `meta` gives larger sequence numbers than the
    /// file, all entries are numbered that much higher: this is how an ingested table gets its
    /// number when it is put in place.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the file is damaged or not the one described, [`Error::Unsupported`]
    /// if its format is unknown, [`Error::Io`].
    pub(crate) fn open(ctx: &Arc<TableContext>, meta: TableMeta) -> Result<Arc<Self>> {
        let path = home_path(&ctx.dir, &meta);
        let part = meta.place.map(|place| SharedPart::open(ctx, &meta, place)).transpose()?;
        let file = match &part {
            Some(part) => Arc::clone(part) as Arc<dyn ReadableFile>,
            None => ctx
                .open_file(&path)
                .map_err(|error| error.or_missing("a table that the manifest names"))?,
        };
        let base = part.as_ref().map_or(0, |part| part.offset());
        let parts = load(ctx, file, &path, meta.id).map_err(|error| behind(error, base))?;
        let shift = meta.seq_min.saturating_sub(parts.meta.seq_min);
        let described = TableMeta {
            place: meta.place,
            seq_min: parts.meta.seq_min + shift,
            seq_max: parts.meta.seq_max.saturating_add(shift),
            ..parts.meta.clone()
        };
        if described != meta {
            return Err(Error::corrupt(
                &path,
                base + parts.footer.properties.offset,
                format!("the table described as {meta:?}"),
                format!("{:?}", parts.meta),
            ));
        }
        let values = open_values(ctx, &meta)?;
        let read_align = parts.file.read_align().min(FILE_ALIGN_BYTES);
        let pages_per_read = (read_align / PAGE_BYTES).max(1) as u32;
        let table = Self {
            seq_shift: shift,
            block_bytes_mean: mean_block_bytes(&meta, parts.footer.block_count),
            slots_per_block: AtomicU32::new(first_slots(&meta, parts.footer.block_count)),
            blocks: TableBlocks::new(&ctx.cache, parts.footer.block_count),
            ctx: Arc::clone(ctx),
            meta,
            path,
            file: parts.file,
            part,
            values,
            data_pages: parts.footer.data_pages,
            pages_per_read,
            index: parts.index,
            filter: parts.filter,
            written: parts.written,
            ranges: parts.ranges,
            hidden: OnceLock::new(),
            has_tombstone_runs: AtomicBool::new(false),
            obsolete: AtomicBool::new(false),
        };
        ctx.counters.pinned_bytes.fetch_add(table.pinned_bytes(), Ordering::Relaxed);
        Ok(Arc::new(table))
    }

    /// Reads the description of table `id` from its own file.
    ///
    /// # Errors
    ///
    /// As [`Table::open`].
    pub(crate) fn read_meta(ctx: &TableContext, id: FileId) -> Result<TableMeta> {
        let path = table_path(&ctx.dir, id);
        let file = ctx.open_file(&path)?;
        Ok(load(ctx, file, &path, id)?.meta)
    }

    /// The description of the table.
    pub(crate) fn meta(&self) -> &TableMeta {
        &self.meta
    }

    /// How the table was written.
    pub(crate) fn written(&self) -> &Written {
        &self.written
    }

    /// The range tombstones, if there are any.
    #[inline]
    pub(crate) fn ranges(&self) -> Option<&Ranges> {
        self.ranges.as_ref()
    }

    /// Records that a walk met many tombstones here.
    pub(crate) fn record_tombstone_run(&self) {
        self.has_tombstone_runs.store(true, Ordering::Relaxed);
    }

    /// Returns true if a walk met many tombstones here.
    pub(crate) fn has_tombstone_runs(&self) -> bool {
        self.has_tombstone_runs.load(Ordering::Relaxed)
    }

    /// The number that is added to the sequence numbers in the entries' bytes.
    pub(crate) fn seq_shift(&self) -> SeqNo {
        self.seq_shift
    }

    /// The table's path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The table's index.
    pub(crate) fn index(&self) -> &BlockIndex {
        &self.index
    }

    /// Trains a model of a table that was written without one; see [`Trained`].
    pub(crate) fn train(&self, is_late: impl Fn() -> bool) -> Trained {
        let before = self.pinned_bytes();
        let outcome = self.index.train(is_late);
        if outcome == Trained::Published {
            let added = self.pinned_bytes().saturating_sub(before);
            self.ctx.counters.pinned_bytes.fetch_add(added, Ordering::Relaxed);
        }
        outcome
    }

    /// The runs of entries that the table's own range tombstones hide, if they are known.
    pub(crate) fn hidden_runs(&self) -> Option<&HiddenRuns> {
        self.hidden.get()
    }

    /// Sets the runs of entries that the table's own range tombstones hide. At most once.
    pub(crate) fn set_hidden_runs(&self, runs: HiddenRuns) {
        let bytes = runs.resident_bytes() as u64;
        if self.hidden.set(runs).is_ok() {
            self.ctx.counters.pinned_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Bytes of the filter in memory.
    pub(crate) fn filter_bytes(&self) -> usize {
        self.filter.resident_bytes()
    }

    /// Returns true if the filter lets a key with this hash through; `None` without a filter.
    pub(crate) fn filter_answer(&self, hash: KeyHash) -> Option<bool> {
        (self.written.filter_bits_per_key > 0).then(|| self.filter.may_contain(hash))
    }

    /// Where the pages of a block start, in bytes from the start of the file; 0 if there is no
    /// such block.
    pub(crate) fn block_offset(&self, block: u32) -> u64 {
        let page = self.address(block).map_or(0, |address| address.first_page);
        self.base() + u64::from(page) * PAGE_BYTES as u64
    }

    /// Where the table begins in its file.
    pub(super) fn base(&self) -> u64 {
        self.part.as_ref().map_or(0, |part| part.offset())
    }

    /// Returns true if the table lies in a shared file that is mostly dead.
    pub(crate) fn is_in_sparse_file(&self) -> bool {
        self.part.as_ref().is_some_and(|part| part.file().is_sparse())
    }

    /// Bytes of the file that it shares with others, dead ones included; `None` if it has its own.
    pub(crate) fn shared_file_bytes(&self) -> Option<u64> {
        self.part.as_ref().map(|part| part.file().bytes())
    }

    /// Bytes of memory that the table takes while it is open, without its resident blocks.
    pub(crate) fn pinned_bytes(&self) -> u64 {
        let ranges = self.ranges.as_ref().map_or(0, Ranges::resident_bytes);
        let hidden = self.hidden.get().map_or(0, HiddenRuns::resident_bytes);
        let parts = self.index.resident_bytes() + self.filter.resident_bytes() + ranges + hidden;
        (parts + self.blocks.slot_bytes() + size_of::<Self>()) as u64
    }

    /// Marks the table as unreferenced: its files are removed when the last reader drops it.
    pub(crate) fn mark_obsolete(&self) {
        if !self.obsolete.swap(true, Ordering::Relaxed)
            && let Some(part) = &self.part
        {
            part.count_dead();
        }
    }

    /// The value that an entry's pointer names, verified.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the pointer or the value is damaged, [`Error::Io`].
    pub(crate) fn read_large(&self, pointer: &[u8]) -> Result<Slice> {
        let pointer = self.value_pointer(pointer)?;
        TableCounters::add(&self.ctx.counters.large_value_reads, 1);
        self.counting_failure(self.value_file()?.read(pointer))
    }

    /// A read of the value that an entry's pointer names, for a caller that reads its parts.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the pointer is damaged.
    pub(crate) fn begin_large(&self, pointer: &[u8]) -> Result<LargeRead<'_>> {
        let pointer = self.value_pointer(pointer)?;
        TableCounters::add(&self.ctx.counters.large_value_reads, 1);
        self.value_file()?.begin(pointer)
    }

    /// Decodes the pointer to a large value.
    pub(crate) fn value_pointer(&self, bytes: &[u8]) -> Result<ValuePointer> {
        ValuePointer::decode(bytes).ok_or_else(|| {
            let found = format!("{} bytes", bytes.len());
            Error::corrupt(&self.path, 0, "a pointer to a large value", found)
        })
    }

    /// The file of large values.
    pub(crate) fn value_file(&self) -> Result<&ValueFile> {
        self.values.as_ref().ok_or_else(|| {
            Error::corrupt(&self.path, 0, "no pointer to a large value", "one, and no file of them")
        })
    }

    /// The counters of the tables of this database.
    pub(super) fn counters(&self) -> &TableCounters {
        &self.ctx.counters
    }

    /// The resident blocks.
    pub(super) fn blocks(&self) -> &TableBlocks {
        &self.blocks
    }

    /// Pages of the data area.
    pub(super) fn data_pages(&self) -> u32 {
        self.data_pages
    }

    /// Where a block is.
    pub(crate) fn address(&self, block: u32) -> Result<BlockAddress> {
        if block >= self.index.block_count() {
            let found = format!("block {block} of {}", self.index.block_count());
            return Err(Error::corrupt(&self.path, 0, "a block within the table", found));
        }
        let address = self.index.address(block);
        if address.first_page > address.last_page || address.last_page >= self.data_pages {
            let found = format!("pages {} to {}", address.first_page, address.last_page);
            return Err(Error::corrupt(&self.path, 0, "a block within the data area", found));
        }
        Ok(address)
    }

    /// The engine that does the reads of this database.
    pub(crate) fn reads(&self) -> &Arc<ReadEngine> {
        &self.ctx.reads
    }
}

/// About the mean length of a block's payload in bytes. Large values are not in blocks, so the mean
/// is bounded by what one block may hold.
fn mean_block_bytes(meta: &TableMeta, blocks: u32) -> u32 {
    const ENTRY_OVERHEAD_BYTES: u64 = 7;
    let bytes = meta.raw_bytes.saturating_add(meta.entries.saturating_mul(ENTRY_OVERHEAD_BYTES));
    u32::try_from(bytes / u64::from(blocks.max(1))).unwrap_or(u32::MAX).min(1 << 20)
}

impl Drop for Table {
    fn drop(&mut self) {
        self.ctx.counters.pinned_bytes.fetch_sub(self.pinned_bytes(), Ordering::Relaxed);
        // A forked child must not remove the files of its parent.
        if !*self.obsolete.get_mut() || !self.ctx.counters.process.is_here() {
            return;
        }
        let remove = |path: &Path| {
            if self.ctx.fs.remove_file(path).is_err() {
                TableCounters::add(&self.ctx.counters.removals_failed, 1);
            }
        };
        match &self.part {
            None => remove(&self.path),
            Some(part) if part.release().is_err() => {
                TableCounters::add(&self.ctx.counters.removals_failed, 1);
            }
            Some(_) => {}
        }
        if let Some(values) = &self.values {
            remove(&values.path);
        }
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Opens the file of large values, if the table has one.
fn open_values(ctx: &TableContext, meta: &TableMeta) -> Result<Option<ValueFile>> {
    if meta.value_file_bytes == 0 {
        return Ok(None);
    }
    let path = value_path(&ctx.dir, meta.id);
    let file = ctx
        .open_file(&path)
        .map_err(|error| error.or_missing("the large values of a table that is there"))?;
    let len = retry("stat", &path, || file.len())?;
    if len != meta.value_file_bytes {
        let expected = format!("{} bytes", meta.value_file_bytes);
        return Err(Error::corrupt(&path, len, expected, format!("{len} bytes")));
    }
    let arena = Arc::clone(ctx.cache.large_arena());
    Ok(Some(ValueFile { file, path, len, arena }))
}

/// Reads and verifies all parts of a table but its data.
fn load(ctx: &TableContext, file: Arc<dyn ReadableFile>, path: &Path, id: FileId) -> Result<Parts> {
    let file_bytes = retry("stat", path, || file.len())?;
    if file_bytes < TABLE_BYTES_MIN || !file_bytes.is_multiple_of(FILE_ALIGN_BYTES as u64) {
        let found = format!("{file_bytes} bytes");
        return Err(Error::corrupt(path, file_bytes, "a multiple of 4096 bytes, and some", found));
    }
    // The sections are read in one piece, which nearly always is this tail.
    let mut tail_start = file_bytes - file_bytes.min(TAIL_BYTES);
    let mut tail = read_part(&*file, path, tail_start, file_bytes)?;
    let footer_at = file_bytes - FOOTER_BYTES as u64;
    let footer = tail.last_chunk().ok_or(Mismatch { expected: "a footer", found: String::new() });
    let footer = footer
        .map_err(FooterError::Damaged)
        .and_then(|bytes| Footer::decode(bytes, file_bytes))
        .map_err(|error| footer_error(path, footer_at, error))?;
    if footer.table != id {
        let found = format!("table {}", footer.table);
        return Err(Error::corrupt(path, footer_at, format!("table {id}"), found));
    }
    if footer.index.offset < tail_start {
        tail_start = footer.index.offset;
        tail = read_part(&*file, path, tail_start, file_bytes)?;
    }
    let section = |extent: SectionExtent, kind| {
        let start = usize::try_from(extent.offset - tail_start).unwrap_or(usize::MAX);
        let len = usize::try_from(extent.len).unwrap_or(usize::MAX);
        // The footer was checked: all sections lie between the data area and the footer.
        let bytes = tail.get(start..).and_then(|bytes| bytes.get(..len)).unwrap_or_default();
        section_payload(bytes, id, kind)
            .map_err(|bad| Error::corrupt(path, extent.offset, bad.expected, bad.found))
    };
    let index = section(footer.index, SECTION_INDEX)?;
    let index = BlockIndex::decode(index, footer.block_count, footer.data_pages)
        .map_err(|found| Error::corrupt(path, footer.index.offset, "a valid index", found))?;
    let filter = section(footer.filter, SECTION_FILTER)?;
    let filter = Filter::decode(filter, ctx.cache.arena()).map_err(|expected| {
        Error::corrupt(path, footer.filter.offset, expected, "another filter")
    })?;
    let properties = section(footer.properties, SECTION_PROPERTIES)?;
    let (meta, written) = decode_properties(properties, id, file_bytes)
        .map_err(|bad| Error::corrupt(path, footer.properties.offset, bad.expected, bad.found))?;
    let mut ranges = None;
    if footer.ranges.len > 0 {
        let decoded = Ranges::decode(section(footer.ranges, SECTION_RANGES)?)
            .and_then(|ranges| fit(ranges, &meta))
            .map_err(|expected| {
                Error::corrupt(path, footer.ranges.offset, expected, "other range tombstones")
            })?;
        ranges = Some(decoded);
    }
    if ranges.is_none() && meta.range_tombstones > 0 {
        let expected = "as many range tombstones as the properties say";
        return Err(Error::corrupt(path, footer.properties.offset, expected, "none"));
    }
    if meta.expiries.is_some() != footer.has_expiries {
        let expected = "times of entries that expire, as the version of the table says";
        return Err(Error::corrupt(path, footer.properties.offset, expected, "otherwise"));
    }
    Ok(Parts { file, footer, index, filter, ranges, meta, written })
}

/// Checks the range tombstones against the properties; the error says what they should be.
fn fit(ranges: Ranges, meta: &TableMeta) -> std::result::Result<Ranges, &'static str> {
    let (first, last) = (ranges.keys().first(), ranges.keys().last());
    let (Some(first), Some(last)) = (first, last) else { return Err("range tombstones") };
    let seqs = meta.seq_min..=meta.seq_max;
    if **first < *meta.smallest || *last_below(last) > *meta.largest {
        return Err("range tombstones within the table's bounds");
    }
    if ranges.count() != meta.range_tombstones || !ranges.seqs().iter().all(|s| seqs.contains(s)) {
        return Err("range tombstones as the properties count them");
    }
    Ok(ranges)
}

/// Turns an error in a table that begins at `base` of its file into one whose offset counts from
/// the start of the file.
fn behind(error: Error, base: u64) -> Error {
    match error {
        Error::Corrupt(damage) => {
            let Corruption { path, offset, expected, found } = Arc::unwrap_or_clone(damage);
            Error::corrupt(path, base + offset, expected, found)
        }
        other => other,
    }
}

fn footer_error(path: &Path, offset: u64, error: FooterError) -> Error {
    match error {
        FooterError::Damaged(bad) => Error::corrupt(path, offset, bad.expected, bad.found),
        FooterError::Version(version) => Error::Unsupported {
            path: path.to_owned(),
            what: format!(
                "table format {version}, and this program reads up to {FORMAT_VERSION_MAX}"
            ),
        },
    }
}

fn read_part(file: &dyn ReadableFile, path: &Path, start: u64, end: u64) -> Result<Bulk<u8>> {
    let len = usize::try_from(end - start)
        .map_err(|_| Error::corrupt(path, start, "sections that fit memory", "larger ones"))?;
    let mut bytes = Bulk::zeroed(len);
    read_range(file, path, start, &mut bytes)?;
    Ok(bytes)
}
