//! Finds tables, and what their ends say of them.
//!
//! The manifest says where a table is and how long. Without it, a table with a file of its own has
//! the number in the file's name; those in a shared file are found by their footers, and by their
//! blocks where a footer is damaged.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use super::{
    blocks::BlockScan,
    catalog::KnownCatalog,
    file::{Disk, Region},
};
use crate::{
    error::Result,
    ranges::Ranges,
    table::{
        TableMeta,
        footer::{Footer, SectionExtent, claimed_section, decode_properties, section_payload},
        format::{
            FILE_ALIGN_BYTES, FOOTER_BYTES, PAGE_BYTES, SECTION_HEADER_BYTES, SECTION_INDEX,
            SECTION_PROPERTIES, SECTION_RANGES,
        },
        home_path, parse_table_name,
    },
    types::{FileId, TreeId},
};

/// The bytes that are searched at once for sections.
const WINDOW_BYTES: u64 = 64 << 10;

/// How far the number of a table may be from that of the shared file that it lies in: a flush gives
/// its tables numbers one after the other, and the file one of them.
const SHARED_NUMBERS: FileId = 8192;

/// A table, or what is left of it.
pub(super) struct FoundTable {
    pub(super) id: FileId,
    pub(super) region: Region,
    /// What the manifest says of it.
    pub(super) meta: Option<TableMeta>,
    /// What its own properties say.
    pub(super) properties: Option<TableMeta>,
    /// The LSM tree that it says it is of, if its footer is sound and it has a file of its own. In
    /// a file that tables share obsolete ones stay, and they must not be taken for newer versions.
    pub(super) tree: Option<TreeId>,
    /// The number of its blocks, if its footer is sound.
    pub(super) block_count: Option<u32>,
    /// The bytes that may hold blocks.
    pub(super) data_bytes: u64,
    /// True if exactly these bytes hold its blocks.
    pub(super) is_data_known: bool,
    pub(super) ranges: Option<Ranges>,
    /// The offset of the range tombstones' section in the file, if it is known.
    pub(super) ranges_at: Option<SectionExtent>,
    /// True if there may be other tables in the region.
    pub(super) is_mixed: bool,
}

impl FoundTable {
    /// The description that is best to believe.
    pub(super) fn description(&self) -> Option<&TableMeta> {
        self.meta.as_ref().or(self.properties.as_ref())
    }

    /// The blocks of the table.
    pub(super) fn blocks(&self) -> BlockScan {
        let region = self.region.clone();
        let scan = BlockScan::new(region, vec![self.id], self.block_count, self.data_bytes);
        if self.is_mixed { scan.starting_late() } else { scan }
    }
}

/// The table that the manifest describes; `None` if its file is not there.
pub(super) fn known(disk: &Disk, dir: &Path, meta: &TableMeta) -> Result<Option<FoundTable>> {
    let Some(file) = Region::open(disk, &home_path(dir, meta)) else { return Ok(None) };
    let base = meta.place.map_or(0, |place| place.offset);
    let mut table = found(meta.id, file.part(base, meta.file_bytes), meta.file_bytes)?;
    table.meta = Some(meta.clone());
    Ok(Some(table))
}

/// Reads the end of the table in `region`, which had `len` bytes.
fn found(id: FileId, region: Region, len: u64) -> Result<FoundTable> {
    let mut table = FoundTable {
        id,
        meta: None,
        properties: None,
        tree: None,
        block_count: None,
        data_bytes: region.len,
        is_data_known: false,
        ranges: None,
        ranges_at: None,
        is_mixed: false,
        region,
    };
    let footer = match table.region.len == len {
        true => footer_before(&table.region, len)?
            .filter(|(footer, all)| footer.table == id && *all == len),
        false => None,
    };
    match footer {
        Some((footer, _)) => table.read_sections(&footer)?,
        None => table.search_sections()?,
    }
    Ok(table)
}

/// The footer that ends at `end` of the region, with the length of its table.
fn footer_before(region: &Region, end: u64) -> Result<Option<(Footer, u64)>> {
    let Some(start) = end.checked_sub(FOOTER_BYTES as u64) else { return Ok(None) };
    let bytes = region.bytes(start, FOOTER_BYTES as u64)?;
    Ok(bytes.first_chunk().and_then(|bytes| Footer::decode_with_len(bytes).ok()))
}

impl FoundTable {
    fn read_sections(&mut self, footer: &Footer) -> Result<()> {
        self.block_count = Some(footer.block_count);
        self.data_bytes = u64::from(footer.data_pages) * PAGE_BYTES as u64;
        self.is_data_known = true;
        self.take_section(footer.properties, SECTION_PROPERTIES)?;
        if footer.ranges.len > 0 {
            self.ranges_at = Some(footer.ranges);
            self.take_section(footer.ranges, SECTION_RANGES)?;
        }
        Ok(())
    }

    /// Takes the section at `extent` if it is sound.
    fn take_section(&mut self, extent: SectionExtent, kind: u8) -> Result<bool> {
        let bytes = self.region.bytes(extent.offset, extent.len)?;
        let Ok(payload) = section_payload(&bytes, self.id, kind) else { return Ok(false) };
        match kind {
            SECTION_PROPERTIES => {
                let properties = decode_properties(payload, self.id, self.region.len);
                self.properties = properties.ok().map(|(meta, _)| meta);
            }
            SECTION_RANGES => self.ranges = Ranges::decode(payload).ok(),
            _ => {
                (self.data_bytes, self.is_data_known) = (extent.offset, true);
            }
        }
        Ok(true)
    }

    /// Searches for sections by their checksums.
    fn search_sections(&mut self) -> Result<()> {
        const HEADER: u64 = SECTION_HEADER_BYTES as u64;
        let (mut at, len) = (0, self.region.len);
        let mut chunk = Vec::new();
        while at + HEADER <= len {
            chunk.clear();
            self.region.read(at, WINDOW_BYTES, &mut chunk)?;
            let is_possible = |(bytes, at): (&[u8], u64)| {
                let (kind, bytes) = claimed_section(bytes.first_chunk()?);
                let is_known = [SECTION_INDEX, SECTION_PROPERTIES, SECTION_RANGES].contains(&kind);
                // An index begins where the pages end.
                let is_place = kind != SECTION_INDEX || at % PAGE_BYTES as u64 == 0;
                let extent = SectionExtent { offset: at, len: HEADER.checked_add(bytes)? };
                (is_known && is_place && extent.len <= len - at).then_some((kind, extent))
            };
            let windows = chunk.windows(SECTION_HEADER_BYTES).zip(at..);
            let possible: Vec<(u8, SectionExtent)> = windows.filter_map(is_possible).collect();
            let mut end = at + (chunk.len() + 1).saturating_sub(SECTION_HEADER_BYTES).max(1) as u64;
            let mut taken = at;
            for (kind, extent) in possible {
                if extent.offset >= taken && self.take_section(extent, kind)? {
                    taken = extent.offset + extent.len;
                    end = end.max(taken);
                }
            }
            at = end;
        }
        Ok(())
    }
}

/// The tables that the manifest, which is lost in whole or in part, does not name, by their
/// numbers.
pub(super) fn unknown(
    disk: &Disk,
    dir: &Path,
    names: &[String],
    known: &KnownCatalog,
) -> Result<BTreeMap<FileId, FoundTable>> {
    let mut tables = BTreeMap::new();
    let is_new = |id: FileId| !known.tables.contains_key(&id) && !known.removed.contains(&id);
    for name in names {
        let path = dir.join(name);
        if let Some(id) = parse_table_name(name).filter(|id| is_new(*id)) {
            if let Some(file) = Region::open(disk, &path) {
                let len = own_len(&file, id)?;
                let mut table = found(id, file.part(0, len), len)?;
                let footer = footer_before(&table.region, len)?;
                let tree = footer.map(|(footer, _)| footer).filter(|footer| footer.table == id);
                table.tree = tree.map(|footer| footer.tree).filter(|tree| *tree != 0);
                tables.insert(id, table);
            }
        } else if let Some(file_id) = shared_id(name)
            && let Some(file) = Region::open(disk, &path)
        {
            carve(&file, file_id, known, &is_new, &mut tables)?;
        }
    }
    Ok(tables)
}

fn shared_id(name: &str) -> Option<FileId> {
    name.strip_suffix(".set")?.parse().ok()
}

/// The length of the table `id` in a file of its own, to which bytes may have been appended.
fn own_len(file: &Region, id: FileId) -> Result<u64> {
    let mut end = file.len - file.len % FILE_ALIGN_BYTES as u64;
    while end > 0 {
        let found = footer_before(file, end)?;
        if found.is_some_and(|(footer, len)| footer.table == id && len == end) {
            return Ok(end);
        }
        end -= FILE_ALIGN_BYTES as u64;
    }
    Ok(file.len)
}

/// Finds the tables in a shared file.
fn carve(
    file: &Region,
    file_id: FileId,
    known: &KnownCatalog,
    is_new: &dyn Fn(FileId) -> bool,
    tables: &mut BTreeMap<FileId, FoundTable>,
) -> Result<()> {
    let mut taken: BTreeMap<u64, u64> = BTreeMap::new();
    for (_, meta) in known.tables.values() {
        if let Some(place) = meta.place.filter(|place| place.file == file_id) {
            taken.insert(place.offset, place.offset.saturating_add(meta.file_bytes));
        }
    }
    for end in (1..=file.len / FILE_ALIGN_BYTES as u64).map(|n| n * FILE_ALIGN_BYTES as u64) {
        let Some((footer, len)) = footer_before(file, end)? else { continue };
        let Some(start) = end.checked_sub(len) else { continue };
        if taken.range(..end).next_back().is_some_and(|(_, to)| *to > start) {
            continue;
        }
        taken.insert(start, end);
        if is_new(footer.table) {
            tables.insert(footer.table, found(footer.table, file.part(start, len), len)?);
        }
    }
    let mut start = 0;
    let ends: Vec<(u64, u64)> = taken.into_iter().chain([(file.len, file.len)]).collect();
    for (from, to) in ends {
        if from > start {
            carve_blocks(&file.part(start, from - start), file_id, is_new, tables)?;
        }
        start = start.max(to);
    }
    Ok(())
}

/// Finds the tables in a part of a shared file in which no footer is sound.
fn carve_blocks(
    part: &Region,
    file_id: FileId,
    is_new: &dyn Fn(FileId) -> bool,
    tables: &mut BTreeMap<FileId, FoundTable>,
) -> Result<()> {
    let near = file_id.saturating_sub(SHARED_NUMBERS)..=file_id.saturating_add(SHARED_NUMBERS);
    let ids = near.filter(|id| is_new(*id) && !tables.contains_key(id)).collect();
    let mut scan = BlockScan::new(part.clone(), ids, None, part.len);
    let mut seen = BTreeSet::new();
    while let Some(block) = scan.next()? {
        seen.insert(block.table);
    }
    for id in seen {
        let table = found(id, part.clone(), u64::MAX)?;
        // The index that was found may be of a table after another one.
        tables.insert(id, FoundTable { is_mixed: true, ..table });
    }
    Ok(())
}
