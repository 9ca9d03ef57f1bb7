//! Bulk ingestion: sorted entries go straight to tables.
//!
//! The tables are written with number 0 in every entry; the ingestion's own number is given to
//! the whole table when it is put in place, so that no snapshot sees half of it.

use std::sync::atomic::Ordering;

use super::core::{Core, Tree};
use crate::{
    error::{Error, Result},
    log::batch::check_entry,
    options::{LEVEL_RATIO, PersistMode},
    sync::primitive::Arc,
    table::{Table, TableMeta, TableWriter},
    types::Kind,
    version::{
        edit::Edit,
        levels::{LEVELS_MAX, Levels},
    },
};

impl Core {
    /// Adds sorted entries to a sub-tree, all at once; returns their number.
    pub(crate) fn ingest<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        tree: &Arc<Tree>,
        entries: impl Iterator<Item = (K, V)>,
    ) -> Result<u64> {
        self.check_running()?;
        let mut metas = Vec::new();
        let mut open = None;
        let written = self.write_sorted(tree, entries, &mut open, &mut metas);
        if written.is_err()
            && let Some(writer) = open
        {
            TableWriter::abandon(writer);
        }
        let result = written.and_then(|count| {
            if !metas.is_empty() {
                self.sync_dir()?;
            }
            Ok(count)
        });
        match result {
            Ok(0) => Ok(0),
            Ok(count) => {
                self.install_ingested(tree, metas)?;
                Ok(count)
            }
            Err(error) => {
                metas.iter().for_each(|meta| self.remove_table_files(meta));
                Err(error)
            }
        }
    }

    fn write_sorted<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        tree: &Tree,
        entries: impl Iterator<Item = (K, V)>,
        open: &mut Option<TableWriter>,
        metas: &mut Vec<TableMeta>,
    ) -> Result<u64> {
        let mut last: Option<Vec<u8>> = None;
        let mut count = 0;
        for (key, value) in entries {
            let (key, value) = (key.as_ref(), value.as_ref());
            check_entry(key, value)?;
            if last.as_deref().is_some_and(|last| last >= key) {
                return Err(Error::InvalidArgument(
                    format!("entries to ingest must ascend: entry {count} does not").into(),
                ));
            }
            if let Some(writer) = open.take_if(|w| w.bytes_estimate() >= self.options.table_bytes) {
                metas.push(writer.finish()?);
            }
            let writer = match open {
                Some(writer) => writer,
                None => {
                    let id = self.new_file_id();
                    open.insert(TableWriter::create(&self.tables, id, &tree.options.table)?)
                }
            };
            writer.add(key, 0, Kind::Value, value)?;
            let last = last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(key);
            count += 1;
        }
        if let Some(writer) = open.take() {
            metas.push(writer.finish()?);
        }
        Ok(count)
    }

    /// Numbers the tables and makes them part of the sub-tree.
    fn install_ingested(&self, tree: &Arc<Tree>, mut metas: Vec<TableMeta>) -> Result<()> {
        let mut state = self.write.lock();
        self.check_running()?;
        // Reads take the first version that they meet, memtables first: older writes to this
        // sub-tree must not lie above the ingested ones.
        if self.mem.get().active.contains_tree(tree.id) {
            self.seal(&mut state)?;
        }
        if self.mem.get().sealed.iter().any(|memtable| memtable.contains_tree(tree.id)) {
            self.wait_for_sealed(0)?;
        }
        // While a compaction runs, the place below level 0 may be about to be filled.
        let alone = tree.compaction.try_lock();
        let seq = state.next_seq;
        for meta in &mut metas {
            // Every entry was written with number 0; the table shifts them all by the difference.
            (meta.seq_min, meta.seq_max) = (seq, seq);
        }
        let opened: Vec<Arc<Table>> = metas
            .iter()
            .map(|meta| Table::open(&self.tables, meta.clone()))
            .collect::<Result<_>>()?;
        // What is ingested is durable at once, so what was written before it must be.
        self.sync_logs(&mut state, PersistMode::SyncData)?;
        let mut catalog = self.catalog.lock();
        if tree.dropped.load(Ordering::Acquire) {
            opened.iter().for_each(|table| table.mark_obsolete());
            return Err(Error::InvalidArgument("the keyspace was dropped or cleared".into()));
        }
        let levels = tree.levels.get();
        let level = if alone.is_some() { self.ingest_level(&levels, &metas) } else { 0 };
        let mut edits: Vec<Edit> = metas
            .into_iter()
            .map(|meta| Edit::AddTable {
                tree: tree.id,
                level: u8::try_from(level).unwrap_or(0),
                meta,
            })
            .collect();
        edits.push(Edit::LastSeq { seq });
        catalog.commit(self, edits)?;
        let add: Vec<_> = opened.into_iter().map(|table| (level, table)).collect();
        tree.levels.store(Arc::new(levels.edited(&[], &add)));
        state.next_seq += 1;
        self.visible.store(seq, Ordering::Release);
        self.note_zero_tables(&catalog);
        drop(catalog);
        drop(state);
        drop(alone);
        self.balance_memory();
        self.work.wake();
        Ok(())
    }

    /// The level that takes ingested tables: the shallowest that has room for them and below all
    /// that they overlap nothing of; level 0 if they overlap anything.
    fn ingest_level(&self, levels: &Levels, metas: &[TableMeta]) -> usize {
        let (Some(first), Some(last)) = (metas.first(), metas.last()) else { return 0 };
        let (from, to) = (&first.smallest, &last.largest);
        let overlaps_zero =
            levels.zero.iter().any(|t| t.meta().largest >= *from && t.meta().smallest <= *to);
        if overlaps_zero || levels.deeper_overlaps(0, from, to) {
            return 0;
        }
        let bytes: u64 = metas.iter().map(|meta| meta.file_bytes).sum();
        let mut target = self.options.level_one_bytes;
        for level in 1..LEVELS_MAX - 1 {
            let held = levels.sorted.get(level - 1).map_or(0, |l| l.bytes());
            if held + bytes <= target {
                return level;
            }
            target = target.saturating_mul(LEVEL_RATIO);
        }
        LEVELS_MAX - 1
    }
}
