//! Opens tables for inspection, and walks through their entries block by block.

use std::path::Path;

use rhumb_sync::{mapping::Gauge, primitive::Arc};

use super::report::TableReport;
use crate::{
    error::{Error, Result},
    io::{FileSystem, ReadMode, engine::ReadEngine, open_files::OpenFiles},
    slice::BlockRef,
    table::{
        BlockCache, BlockIndexKind, Table, TableContext, TableCounters, TableMeta,
        block::BlockView, parse_table_name,
    },
    types::{FileId, Kind, SeqNo},
    version::manifest::Manifest,
};

/// The number of bytes for cached blocks. It is small, because a walk reads each block once.
const CACHE_BYTES: u64 = 1 << 20;

/// The context with which tables of `dir` are opened.
pub(crate) fn context(fs: &Arc<dyn FileSystem>, dir: &Path) -> Arc<TableContext> {
    Arc::new(TableContext {
        fs: Arc::clone(fs),
        files: OpenFiles::new(&**fs, None),
        dir: dir.to_owned(),
        read_mode: ReadMode::Buffered,
        reads: ReadEngine::inline(fs),
        cache: BlockCache::new(CACHE_BYTES, &Gauge::default()),
        mapped: Gauge::default(),
        counters: Arc::new(TableCounters::default()),
        shared: Arc::default(),
    })
}

/// Opens a table by its path alone. A table in a shared file is named by the path that a file of
/// its own would have; the manifest of the directory says where the table is.
pub(super) fn open_path(fs: &Arc<dyn FileSystem>, path: &Path) -> Result<Arc<Table>> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let Some(id) = parse_table_name(&name) else {
        let what = format!(
            "{} is not named like a table: 000001.sst (also one in a shared file, .set, has a number of its own)",
            path.display()
        );
        return Err(Error::InvalidArgument(what.into()));
    };
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let ctx = context(fs, dir);
    let meta = match Table::read_meta(&ctx, id) {
        Ok(meta) => meta,
        Err(error) => shared_meta(fs, dir, id).ok_or(error)?,
    };
    Table::open(&ctx, meta)
}

/// The entry of the table `id` in the manifest of `dir`, if the table is in a shared file.
fn shared_meta(fs: &Arc<dyn FileSystem>, dir: &Path, id: FileId) -> Option<TableMeta> {
    let state = Manifest::recover(&**fs, dir).ok()??.state;
    state.tables().find(|meta| meta.id == id && meta.place.is_some()).cloned()
}

/// The description of an open table.
pub(super) fn describe(table: &Table) -> TableReport {
    let (meta, written, index) = (table.meta(), table.written(), table.index());
    let segments = match index.kind() {
        BlockIndexKind::Learned => u32::try_from(index.segment_count()).unwrap_or(u32::MAX),
        BlockIndexKind::BinarySearch => 0,
    };
    let coding = index.coding().unwrap_or_default();
    TableReport {
        path: table.path().to_owned(),
        id: meta.id,
        file_bytes: meta.file_bytes,
        value_file_bytes: meta.value_file_bytes,
        entries: meta.entries,
        tombstones: meta.tombstones,
        range_tombstones: meta.range_tombstones,
        keys: written.keys,
        raw_bytes: meta.raw_bytes,
        smallest: meta.smallest.to_vec(),
        largest: meta.largest.to_vec(),
        seqs: (meta.seq_min, meta.seq_max),
        blocks: index.block_count(),
        block_bytes: written.block_bytes,
        compression: written.compression_name(),
        filter_bits_per_key: written.filter_bits_per_key,
        filter_bytes: table.filter_bytes() as u64,
        index: index_name(index.kind()),
        index_bytes: index.encoded_bytes() as u64,
        index_resident_bytes: index.resident_bytes() as u64,
        codes: u32::try_from(coding.codes).unwrap_or(u32::MAX),
        coded_segments: u32::try_from(coding.trained_segments).unwrap_or(u32::MAX),
        segments,
    }
}

/// A kind of index in words.
pub(super) fn index_name(kind: BlockIndexKind) -> &'static str {
    match kind {
        BlockIndexKind::Learned => "learned",
        BlockIndexKind::BinarySearch => "binary search",
    }
}

/// An entry as a walk meets it.
pub(super) struct WalkedEntry<'a> {
    pub(super) key: &'a [u8],
    pub(super) seq: SeqNo,
    pub(super) kind: Kind,
    /// The value, or the pointer to it.
    pub(super) value: &'a [u8],
}

/// Calls `visit` with every entry of a block, in order. Returns the number of entries.
///
/// # Errors
///
/// What was expected, if the block is malformed; and the error of `visit`.
pub(super) fn walk_block(
    table: &Table,
    number: u32,
    block: &BlockRef,
    mut visit: impl FnMut(WalkedEntry<'_>) -> Result<()>,
) -> Result<u32> {
    let malformed = |damaged| table.damaged_block(number, damaged);
    let view = BlockView::parse(block.bytes()).map_err(malformed)?;
    let mut key = Vec::new();
    for position in 0..view.count() {
        let entry = view.entry(position).map_err(malformed)?;
        let shared = view.shared_prefix(position, entry.shared).map_err(malformed)?;
        key.clear();
        key.extend_from_slice(shared);
        key.extend_from_slice(entry.suffix);
        visit(WalkedEntry {
            key: &key,
            seq: entry.seq + table.seq_shift(),
            kind: entry.kind,
            value: &block.bytes()[entry.value_start..entry.value_start + entry.value_len],
        })?;
    }
    Ok(u32::try_from(view.count()).unwrap_or(u32::MAX))
}
