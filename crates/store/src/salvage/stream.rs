//! The sound entries of a table, in order, and what is lost between them.

use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

use super::{
    blocks::{BlockScan, Gap},
    file::{Disk, Region},
    merge::Version,
    report::{Loss, SalvageReport},
    tables::FoundTable,
};
use crate::{
    error::Result,
    table::{TableMeta, block::BlockView, value_path, values::ValuePointer},
    types::{FileId, SeqNo, VALUE_BYTES_MAX},
};

/// Reads the sound entries of one table.
pub(super) struct TableStream {
    table: FoundTable,
    keyspace: String,
    scan: BlockScan,
    /// The block that is being read, and the next entry in it.
    block: Vec<u8>,
    position: usize,
    count: usize,
    /// The last key that was read.
    last: Option<Vec<u8>>,
    /// The damage after the last entry, until it is known what follows.
    gap: Option<Gap>,
    /// The number of entries that were read.
    entries: u64,
    is_over: bool,
    value_path: PathBuf,
    values: Option<Region>,
}

impl TableStream {
    pub(super) fn new(disk: &Disk, dir: &Path, table: FoundTable, keyspace: &str) -> Self {
        let value_path = value_path(dir, table.id);
        let scan = table.blocks();
        Self {
            keyspace: keyspace.to_owned(),
            block: Vec::new(),
            position: 0,
            count: 0,
            last: None,
            gap: None,
            entries: 0,
            is_over: false,
            values: Region::open(disk, &value_path),
            value_path,
            scan,
            table,
        }
    }

    pub(super) fn id(&self) -> FileId {
        self.table.id
    }

    /// A key that is not after its first one, if one is known.
    pub(super) fn smallest(&self) -> Option<&[u8]> {
        self.table.description().map(|meta| &*meta.smallest)
    }

    /// The next entry; `None` after the last.
    pub(super) fn next(&mut self, report: &mut SalvageReport) -> Result<Option<Version>> {
        loop {
            if self.position < self.count {
                match self.entry() {
                    Some(version) => {
                        self.position += 1;
                        self.entries += 1;
                        self.report_gap(Some(&version.key), report);
                        self.last = Some(version.key.clone());
                        return Ok(Some(version));
                    }
                    // Its checksum is right, so it was written like this: there is no more in it.
                    None => {
                        self.count = 0;
                        let what = "a block that is malformed, although its checksum is right";
                        self.lose(self.scan.offset(), 0, what.to_owned(), None, report);
                    }
                }
            }
            if self.is_over {
                return Ok(None);
            }
            match self.scan.next()? {
                Some(found) => {
                    self.gap = found.gap.or(self.gap);
                    self.block = found.payload;
                    self.position = 0;
                    self.count = BlockView::parse(&self.block).map_or(0, |view| view.count());
                }
                None => {
                    self.is_over = true;
                    self.end(report)?;
                }
            }
        }
    }

    fn entry(&self) -> Option<Version> {
        let view = BlockView::parse(&self.block).ok()?;
        let entry = view.entry(self.position).ok()?;
        let shared = view.shared_prefix(self.position, entry.shared).ok()?;
        let value = self.block.get(entry.value_start..entry.value_start + entry.value_len)?;
        Some(Version {
            key: [shared, entry.suffix].concat(),
            seq: self.shifted(entry.seq),
            kind: entry.kind,
            value: value.to_vec(),
        })
    }

    /// The sequence number of an entry with the number `seq` in the file. An ingested table has
    /// numbers from 0 on there, and the manifest says which number they stand for.
    fn shifted(&self, seq: SeqNo) -> SeqNo {
        let Some(TableMeta { seq_min, .. }) = self.table.meta else { return seq };
        match &self.table.properties {
            Some(properties) => seq + seq_min.saturating_sub(properties.seq_min),
            None if seq < seq_min => seq + seq_min,
            None => seq,
        }
    }

    /// Lists the damage before the key `to`.
    fn report_gap(&mut self, to: Option<&[u8]>, report: &mut SalvageReport) {
        let Some(gap) = self.gap.take() else { return };
        let what = match gap.blocks {
            1 => "a block of a table".to_owned(),
            blocks => format!("{blocks} blocks of a table"),
        };
        self.lose(gap.offset, gap.bytes, what, to, report);
    }

    fn lose(
        &self,
        offset: u64,
        bytes: u64,
        what: String,
        to: Option<&[u8]>,
        report: &mut SalvageReport,
    ) {
        let meta = self.table.description();
        let from = self.last.as_deref().or(meta.map(|meta| &*meta.smallest));
        let to = to.or(meta.map(|meta| &*meta.largest));
        let loss = Loss::new(&self.table.region.path, offset, bytes, what);
        report.lose(loss.of_keyspace(&self.keyspace).between(from, to));
    }

    /// Lists what is lost at the end of the table.
    fn end(&mut self, report: &mut SalvageReport) -> Result<()> {
        report.tables += 1;
        let table = &self.table;
        let expected = table.description().map(|meta| meta.entries);
        let is_complete = match (table.block_count, expected) {
            (Some(blocks), _) => self.scan.next_number() >= blocks,
            (None, Some(entries)) => self.entries >= entries,
            // An index was found, so the blocks end before it, and zeros fill their last page.
            (None, None) => table.is_data_known && !table.is_mixed && self.scan.is_at_padding()?,
        };
        if is_complete {
            self.report_gap(None, report);
            return Ok(());
        }
        let table = &self.table;
        let missing = match (table.block_count, expected) {
            (Some(blocks), _) => format!("{} blocks of a table", blocks - self.scan.next_number()),
            (None, Some(entries)) => {
                format!("the rest of a table, with other damage {} entries", entries - self.entries)
            }
            (None, None) => {
                "what followed the last sound block of a table, if anything did".to_owned()
            }
        };
        let offset = self.scan.offset();
        // A file that was cut off had more bytes once.
        let len = table.meta.as_ref().map_or(table.region.len, |meta| meta.file_bytes);
        let len = if table.is_data_known { table.data_bytes } else { len };
        let bytes = table.region.base.saturating_add(len).saturating_sub(offset);
        self.lose(offset, bytes, missing, None, report);
        Ok(())
    }

    /// The large value that `version` points to; a loss if it is damaged.
    pub(super) fn large_value(
        &self,
        version: &Version,
        report: &mut SalvageReport,
    ) -> Result<Option<Vec<u8>>> {
        let Some(pointer) = ValuePointer::decode(&version.value) else { return Ok(None) };
        let is_within = |region: &&Region| {
            let end = pointer.offset.checked_add(pointer.len);
            pointer.len <= VALUE_BYTES_MAX as u64 && end.is_some_and(|end| end <= region.len)
        };
        if let Some(region) = self.values.as_ref().filter(is_within) {
            let value = region.bytes(pointer.offset, pointer.len)?;
            if value.len() as u64 == pointer.len && xxh3_64(&value) == pointer.checksum {
                return Ok(Some(value));
            }
        }
        let what = match &self.values {
            Some(_) => "a large value",
            None => "a large value: no file",
        };
        let loss = Loss::new(&self.value_path, pointer.offset, pointer.len, what);
        let key = Some(&*version.key);
        report.lose(loss.of_keyspace(&self.keyspace).between(key, key));
        Ok(None)
    }
}
