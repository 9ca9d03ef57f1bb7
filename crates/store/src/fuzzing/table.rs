//! Whole tables with correct checksums, in one of two forms by the lowest bit of the first byte:
//!
//! * 1: a file as it is, whose checksums are corrected;
//! * 0: the parts of a table, which are put together: see [`Crafted::read`].
//!
//! Before that, keys to look up: `[count u8]` short strings.

use std::{path::Path, sync::Arc};

use rhumb_model::codec::put_column;
use rhumb_sync::{epoch::pin, mapping::Gauge};
use xxhash_rust::xxh3::xxh3_64;

use super::{DIR, Input, file_system, overwrite, u32_at, u64_at};
use crate::{
    error::Error,
    inspect::Inspector,
    io::{FileSystem, ReadMode, engine::ReadEngine, open_files::OpenFiles},
    table::{
        Access, BlockCache, KeyHash, Lookup, PAGE_BYTES, Step, Table, TableContext, TableCounters,
        TableCursor, TableMeta,
        block::BlockView,
        footer::{Footer, SectionExtent, decode_properties, put_section},
        format::{
            COMPRESSION_LZ4, COMPRESSION_NONE, FILE_ALIGN_BYTES, FOOTER_BYTES, FORMAT_VERSION,
            FORMAT_VERSION_RANGES, FORMAT_VERSION_TREE, FRAME_HEADER_BYTES, MAGIC,
            PAGE_HEADER_BYTES, PAGE_NO_FRAME, PAGE_PAYLOAD_BYTES, SECTION_FILTER,
            SECTION_HEADER_BYTES, SECTION_INDEX, SECTION_PROPERTIES, SECTION_RANGES,
            TABLE_BYTES_MIN,
        },
        index_block::LEARNED,
        pages::PageFrameHeader,
    },
    types::{Kind, SeqNo},
};

/// The number of every crafted table.
pub(super) const ID: u64 = 5;
const NAME: &str = "000005.sst";
const VALUES_NAME: &str = "000005.val";

/// Bytes of the file of large values that lies beside a crafted table.
pub(super) const VALUES_BYTES: usize = 4096;

/// The number of entries that a walk visits one by one; a block may claim as many entries as it has
/// bytes.
const STEPS_MAX: usize = 3000;

/// Opens a table and reads everything of it.
pub fn table(data: &[u8]) {
    let mut input = Input(data);
    let form = input.u8();
    let shift = SeqNo::from(input.u8());
    let keys: Vec<&[u8]> = (0..input.u8() % 8).map(|_| input.short()).collect();
    let file = if form & 1 == 1 {
        let mut file = input.rest().to_vec();
        repair(&mut file);
        file
    } else {
        Crafted::read(&mut input).encode()
    };
    walk(&file, &keys, shift);
}

/// A block and how its frame describes it.
pub(super) struct Frame {
    compression: u8,
    raw_len: u32,
    stored: Vec<u8>,
}

impl Frame {
    /// A block that is not compressed.
    pub(super) fn plain(payload: &[u8]) -> Self {
        let raw_len = payload.len() as u32;
        Self { compression: COMPRESSION_NONE, raw_len, stored: payload.to_vec() }
    }

    /// `[form u8][chunk]`: plain, compressed here, or compressed bytes with a raw length u32.
    fn read(input: &mut Input<'_>) -> Self {
        match input.u8() % 4 {
            0 => Self::plain(input.chunk()),
            1 => {
                let raw = input.chunk();
                let stored = lz4_flex::block::compress(raw);
                Self { compression: COMPRESSION_LZ4, raw_len: raw.len() as u32, stored }
            }
            compression => {
                let raw_len = input.u32();
                Self { compression: compression - 1, raw_len, stored: input.chunk().to_vec() }
            }
        }
    }
}

/// The parts of a table.
pub(super) struct Crafted {
    frames: Vec<Frame>,
    /// `None` for an index that has the blocks in order, with all keys in the first.
    index: Option<Vec<u8>>,
    filter: Vec<u8>,
    /// Empty without range tombstones.
    ranges: Vec<u8>,
    properties: Vec<u8>,
    /// Bytes that are changed before checksums are corrected: the offset and the new byte of each.
    patches: Vec<(usize, u8)>,
}

impl Crafted {
    /// A table of these blocks.
    pub(super) fn of_blocks(frames: Vec<Frame>) -> Self {
        // All numbers 0 but the last sequence number, and empty keys.
        let mut properties = vec![0; 70];
        properties[32..40].copy_from_slice(&(1_u64 << 55).to_le_bytes());
        let (filter, ranges, patches) = (Vec::new(), Vec::new(), Vec::new());
        Self { frames, index: None, filter, ranges, properties, patches }
    }

    /// `[frames u8]` frames, `[has index u8][index chunk]`, `[filter chunk]`, `[properties chunk]`,
    /// `[range tombstones chunk]`, then patches `[offset u16][byte u8]`.
    fn read(input: &mut Input<'_>) -> Self {
        let frames = (0..input.u8() % 32 + 1).map(|_| Frame::read(input)).collect();
        let mut crafted = Self::of_blocks(frames);
        crafted.index = (input.u8() & 1 == 1).then(|| input.chunk().to_vec());
        crafted.filter = input.chunk().to_vec();
        match input.chunk() {
            [] => {}
            properties => crafted.properties = properties.to_vec(),
        }
        crafted.ranges = input.chunk().to_vec();
        while !input.0.is_empty() {
            crafted.patches.push((usize::from(input.u16()), input.u8()));
        }
        crafted
    }

    /// The file, with correct checksums.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut stream = Vec::new();
        let mut starts = Vec::new();
        for frame in &self.frames {
            starts.push(stream.len());
            stream.extend_from_slice(&(frame.stored.len() as u32).to_le_bytes());
            stream.extend_from_slice(&frame.raw_len.to_le_bytes());
            stream.push(frame.compression);
            stream.extend_from_slice(&[0; 8]);
            stream.extend_from_slice(&frame.stored);
        }
        let mut file = Vec::new();
        for (number, payload) in stream.chunks(PAGE_PAYLOAD_BYTES).enumerate() {
            let page = number * PAGE_PAYLOAD_BYTES;
            let first = starts.iter().find(|start| **start >= page);
            let first = first.map(|start| start - page).filter(|first| *first < PAGE_PAYLOAD_BYTES);
            let first = first.map_or(PAGE_NO_FRAME, |first| first as u16);
            file.extend_from_slice(&first.to_le_bytes());
            file.extend_from_slice(payload);
        }
        file.resize(file.len().next_multiple_of(PAGE_BYTES), 0);
        let data_pages = (file.len() / PAGE_BYTES) as u32;
        let index = self.index.clone().unwrap_or_else(|| plain_index(&starts));
        let mut put = |kind, payload: &[u8]| {
            let offset = file.len() as u64;
            put_section(&mut file, ID, kind, payload);
            SectionExtent { offset, len: file.len() as u64 - offset }
        };
        let footer = Footer {
            table: ID,
            data_pages,
            block_count: starts.len() as u32,
            index: put(SECTION_INDEX, &index),
            filter: put(SECTION_FILTER, &self.filter),
            ranges: match &self.ranges[..] {
                [] => SectionExtent::default(),
                ranges => put(SECTION_RANGES, ranges),
            },
            properties: put(SECTION_PROPERTIES, &self.properties),
            has_expiries: decode_properties(&self.properties, ID, 0)
                .is_ok_and(|(meta, _)| meta.expiries.is_some()),
            tree: 0,
        };
        file.resize(
            (file.len() + FOOTER_BYTES).next_multiple_of(FILE_ALIGN_BYTES) - FOOTER_BYTES,
            0,
        );
        file.extend_from_slice(&footer.encode());
        for (at, byte) in &self.patches {
            overwrite(&mut file, *at, &[*byte]);
        }
        repair(&mut file);
        file
    }
}

/// A learned index of one segment without a slope, over blocks that start at these places.
fn plain_index(starts: &[usize]) -> Vec<u8> {
    let mut index = vec![LEARNED, 1];
    let blocks_less_one = starts.len() as u64 - 1;
    [0, 0, 0, blocks_less_one].iter().for_each(|field| put_column(&[*field], &mut index));
    // A line, if there is more than one block.
    let line = &[0][..blocks_less_one.min(1) as usize];
    (0..3).for_each(|_| put_column(line, &mut index));
    let mut last = 0;
    let pages = starts.iter().map(|start| (start / PAGE_PAYLOAD_BYTES) as u64);
    let steps: Vec<u64> = pages.map(|page| page - std::mem::replace(&mut last, page)).collect();
    put_column(&steps, &mut index);
    index
}

/// Corrects the checksums of a table, and the numbers without which nothing else is read.
pub(super) fn repair(file: &mut [u8]) {
    let Some(footer_at) = file.len().checked_sub(FOOTER_BYTES) else { return };
    let footer = file[footer_at..].to_vec();
    repair_frames(file, u32_at(&footer, 8) as usize, u32_at(&footer, 12));
    let place = |at, kind| (u64_at(&footer, at), u64_at(&footer, at + 8), kind);
    let (filter, properties) = (place(32, SECTION_FILTER), place(48, SECTION_PROPERTIES));
    let ranges_at = filter.0.saturating_add(filter.1);
    let ranges = (ranges_at, properties.0.saturating_sub(ranges_at), SECTION_RANGES);
    for (offset, len, kind) in [place(16, SECTION_INDEX), filter, ranges, properties] {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let section = file.get_mut(offset..).and_then(|rest| rest.get_mut(..len));
        if let Some((header, payload)) =
            section.and_then(|section| section.split_at_mut_checked(SECTION_HEADER_BYTES))
        {
            let mut framed = Vec::new();
            put_section(&mut framed, ID, kind, payload);
            header.copy_from_slice(&framed[..SECTION_HEADER_BYTES]);
        }
    }
    overwrite(file, footer_at, &ID.to_le_bytes());
    let version = match u32_at(&footer, 64) {
        FORMAT_VERSION_RANGES => FORMAT_VERSION_RANGES,
        _ => FORMAT_VERSION,
    };
    let tree = u32_at(&footer, 68);
    let version = if tree == 0 { version } else { version + FORMAT_VERSION_TREE };
    overwrite(file, footer_at + 64, &version.to_le_bytes());
    overwrite(file, footer_at + 68, &tree.to_le_bytes());
    let checksum = xxh3_64(&file[footer_at..footer_at + 72]);
    overwrite(file, footer_at + 72, &checksum.to_le_bytes());
    overwrite(file, footer_at + 80, &MAGIC);
}

/// Corrects the checksums of frames that lie back to back from the start of the data area.
fn repair_frames(file: &mut [u8], pages: usize, blocks: u32) {
    let data_bytes = pages.saturating_mul(PAGE_BYTES).min(file.len());
    let data = &file[..data_bytes];
    let mut stream: Vec<u8> = data
        .chunks(PAGE_BYTES)
        .flat_map(|page| page.get(PAGE_HEADER_BYTES..).unwrap_or(&[]))
        .copied()
        .collect();
    let mut at = 0;
    for block in 0..blocks {
        let stored_len = u32_at(&stream, at);
        let payload_at = at + FRAME_HEADER_BYTES;
        let payload = stream.get(payload_at..).and_then(|rest| rest.get(..stored_len as usize));
        let Some(payload) = payload else { break };
        let (raw_len, compression) = (u32_at(&stream, at + 4), stream[at + 8]);
        let header = PageFrameHeader::of(ID, block, stored_len, raw_len, compression, payload);
        let end = payload_at + payload.len();
        overwrite(&mut stream, at + 9, &header.checksum.to_le_bytes());
        at = end;
    }
    let mut payloads = stream.chunks(PAGE_PAYLOAD_BYTES);
    for page in file[..data_bytes].chunks_mut(PAGE_BYTES) {
        if let Some(payload) = payloads.next() {
            overwrite(page, PAGE_HEADER_BYTES, payload);
        }
    }
}

/// Opens a table file and reads it in all ways. Its entries are numbered `shift` higher than the
/// file says, as those of an ingested table are.
pub(super) fn walk(file: &[u8], keys: &[&[u8]], shift: SeqNo) {
    let values = [7; VALUES_BYTES];
    let fs = file_system(&[(NAME, file), (VALUES_NAME, &values)]);
    let ctx = Arc::new(TableContext {
        fs: Arc::clone(&fs),
        files: OpenFiles::new(&*fs, None),
        dir: DIR.into(),
        read_mode: ReadMode::Buffered,
        reads: ReadEngine::inline(&fs),
        cache: BlockCache::new(64 << 10, &Gauge::default()),
        mapped: Gauge::default(),
        counters: Arc::new(TableCounters::default()),
        shared: Arc::default(),
    });
    let meta = match Table::read_meta(&ctx, ID) {
        Ok(meta) => meta,
        Err(error) => return assert_refusal(&error),
    };
    assert!(file.len() as u64 >= TABLE_BYTES_MIN);
    inspect(&fs);
    let shifted = TableMeta {
        seq_min: meta.seq_min.saturating_add(shift),
        seq_max: meta.seq_max.saturating_add(shift),
        ..meta
    };
    match Table::open(&ctx, shifted) {
        Ok(table) => {
            let seen = walk_entries(&table);
            look_up(&table, keys.iter().copied().chain(seen.iter().map(|key| &key[..])));
        }
        Err(error) => assert_refusal(&error),
    }
}

/// Checks that bytes are refused as damaged or as of another version; nothing else can fail here.
pub(super) fn assert_refusal(error: &Error) {
    assert!(matches!(error, Error::Corrupt(_) | Error::Unsupported { .. }), "{error}");
}

/// Runs the inspections of a table that people use.
fn inspect(fs: &Arc<dyn FileSystem>) {
    let inspector = Inspector::with_file_system(Arc::clone(fs));
    let path = Path::new(DIR).join(NAME);
    if let Err(error) = inspector.table(&path) {
        assert_refusal(&error);
    }
    if let Err(error) = inspector.model(&path, 10, &mut |_, _| {}) {
        assert_refusal(&error);
    }
    if let Err(error) = inspector.check(DIR, &mut |_, _| {}) {
        assert_refusal(&error);
    }
}

/// Walks all entries both ways. Returns some keys.
fn walk_entries(table: &Arc<Table>) -> Vec<Vec<u8>> {
    let mut entries = Some(0);
    for number in 0..table.index().block_count() {
        let count = table.read_block(number, false).ok().map(|block| {
            BlockView::parse(block.bytes()).expect("it was parsed when it was read").count()
        });
        entries = entries.zip(count).map(|(sum, count): (usize, usize)| sum + count);
    }
    let mut keys = Vec::new();
    for access in [Access::Cached, Access::Sequential] {
        let mut cursor = TableCursor::new(Arc::clone(table), access);
        for (start, step) in [
            (TableCursor::first as Move, TableCursor::next as Move),
            (TableCursor::last, TableCursor::prev),
        ] {
            let (steps, ended) = steps(&mut cursor, start, step, &mut keys);
            if let (Some(entries), true) = (entries, ended) {
                assert_eq!(steps, entries, "a whole walk meets every entry once");
            }
        }
    }
    keys
}

type Move = fn(&mut TableCursor) -> crate::error::Result<Step>;

/// Moves from the start on; returns the number of entries, and whether those were all.
fn steps(
    cursor: &mut TableCursor,
    start: Move,
    step: Move,
    keys: &mut Vec<Vec<u8>>,
) -> (usize, bool) {
    let mut moved = moved(cursor, start);
    let mut count = 0;
    while moved && cursor.is_valid() {
        count += 1;
        read_entry(cursor);
        if keys.len() < 8 && count % 3 == 1 {
            keys.push(cursor.key().to_vec());
        }
        if count == STEPS_MAX {
            return (count, false);
        }
        moved = self::moved(cursor, step);
    }
    (count, moved)
}

/// Does a move; false if it met damage.
fn moved(
    cursor: &mut TableCursor,
    step: impl FnOnce(&mut TableCursor) -> crate::error::Result<Step>,
) -> bool {
    let result = step(cursor).and_then(|step| cursor.drive(step));
    if let Err(error) = &result {
        assert_refusal(error);
        assert!(!cursor.is_valid());
    }
    result.is_ok()
}

fn read_entry(cursor: &TableCursor) {
    assert_eq!(cursor.value().len(), cursor.value_slice().len());
    assert!(cursor.seq() < 1 << 63);
    if cursor.kind() == Kind::LargeValue {
        read_large(cursor.table(), cursor.value());
    }
}

fn read_large(table: &Table, pointer: &[u8]) {
    match table.read_large(pointer) {
        Ok(value) => assert!(value.len() <= VALUES_BYTES),
        Err(error) => assert_refusal(&error),
    }
}

/// Looks keys up and seeks them. A hostile filter or index may hide any key, so this only checks
/// for faults.
fn look_up<'a>(table: &Arc<Table>, keys: impl Iterator<Item = &'a [u8]>) {
    let mut cursor = TableCursor::new(Arc::clone(table), Access::Cached);
    for key in keys {
        let hash = KeyHash::of(key);
        for seq in [0, table.meta().seq_min, table.meta().seq_max, SeqNo::MAX] {
            let found = table.lookup(&pin(), None, key, hash, seq);
            match found.and_then(|found| table.resolve(found, key, hash, seq)) {
                Ok(Lookup::Large(_, pointer)) => read_large(table, &pointer),
                Ok(_) => {}
                Err(error) => assert_refusal(&error),
            }
            let seek = |cursor: &mut TableCursor| cursor.seek(key, seq);
            if moved(&mut cursor, seek) && moved(&mut cursor, TableCursor::next) {
                moved(&mut cursor, TableCursor::prev);
            }
            if moved(&mut cursor, |cursor| cursor.seek_before(key, seq)) {
                moved(&mut cursor, TableCursor::prev);
            }
        }
    }
}
