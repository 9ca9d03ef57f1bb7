//! Bulk ingestion: sorted entries go straight to tables.
//!
//! The tables are written with sequence number 0 in every entry. The ingestion's own number is
//! given to the whole table when it is installed, so that no snapshot sees half of it.

use std::{collections::HashMap, sync::atomic::Ordering};

use rhumb_sync::primitive::Arc;

use super::{
    core::Core,
    hold::Held,
    install::{IfDropped, TreeChange, With},
    keyspace::KeyspaceInner,
    lifecycle::event_edits,
    writer::WriteState,
};
use crate::{
    error::{Error, Result},
    expiry::{Millis, Stamp},
    log::batch::check_entry,
    memtable::{MemCursor, Memtable},
    options::{LEVEL_RATIO, PersistMode},
    partition::Router,
    table::{NewTables, Table, TableMeta, TableWriter},
    tree::Tree,
    types::{Kind, LEVELS_MAX, SeqNo, TreeId},
    version::{
        edit::{Edit, EventKind},
        levels::Levels,
        state::CatalogState,
    },
};

/// The number of tables that are written at a time if neighbouring keys are in different
/// partitions.
const OPEN_MAX: usize = 64;

/// The number of times that an ingestion waits for flushes while writers go on, before it makes the
/// writers wait with it. Each time, a writer has written between the ingested keys again.
const WAITS_MAX: u32 = 4;

/// The tables of one partition, or of a keyspace without partitions.
struct Output<'c> {
    name: Box<[u8]>,
    open: Option<TableWriter>,
    metas: NewTables<'c>,
}

/// The tables that are being written.
struct Outputs<'c> {
    core: &'c Core,
    all: Vec<Output<'c>>,
    by_name: HashMap<Box<[u8]>, usize>,
    /// The output of the previous entry.
    at: usize,
    open: usize,
}

impl<'c> Outputs<'c> {
    fn new(core: &'c Core) -> Self {
        Self { core, all: Vec::new(), by_name: HashMap::new(), at: 0, open: 0 }
    }

    /// The output for the partition `name`. If names come in order, each output is written to its
    /// end.
    fn of(&mut self, name: &[u8]) -> Result<&mut Output<'c>> {
        if self.all.get(self.at).is_none_or(|output| *output.name != *name) {
            if self.open >= OPEN_MAX {
                self.finish()?;
            }
            self.at = match self.by_name.get(name) {
                Some(at) => *at,
                None => {
                    let name: Box<[u8]> = name.into();
                    self.by_name.insert(name.clone(), self.all.len());
                    self.all.push(Output {
                        name,
                        open: None,
                        metas: NewTables::new(&self.core.shared.tables),
                    });
                    self.all.len() - 1
                }
            };
        }
        self.open += usize::from(self.all[self.at].open.is_none());
        Ok(&mut self.all[self.at])
    }

    /// Finishes all tables.
    fn finish(&mut self) -> Result<()> {
        self.open = 0;
        for output in &mut self.all {
            if let Some(writer) = output.open.take() {
                output.metas.push(writer.finish()?);
            }
        }
        Ok(())
    }
}

impl Core {
    /// Adds sorted entries to a keyspace, all at once, each with the time at which it expires if it
    /// does. Returns their number.
    ///
    /// Nothing is added after an error of `entries`.
    pub(crate) fn ingest<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        inner: &KeyspaceInner,
        entries: impl Iterator<Item = Result<(K, V, Option<Millis>)>>,
    ) -> Result<u64> {
        self.shared.check_takes_writes()?;
        self.shared.check_running()?;
        let mut outputs = Outputs::new(self);
        let count = self.write_sorted(inner, entries, &mut outputs)?;
        if count > 0 {
            self.shared.sync_dir()?;
            self.install_ingested(inner, outputs.all)?;
        }
        Ok(count)
    }

    fn write_sorted<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        inner: &KeyspaceInner,
        entries: impl Iterator<Item = Result<(K, V, Option<Millis>)>>,
        outputs: &mut Outputs<'_>,
    ) -> Result<u64> {
        let mut last: Option<Vec<u8>> = None;
        let mut count = 0;
        for entry in entries {
            let (key, value, expires_ms) = entry?;
            let (key, value) = (key.as_ref(), value.as_ref());
            check_entry(key, value)?;
            if last.as_deref().is_some_and(|last| last >= key) {
                return Err(Error::InvalidArgument(
                    format!("entries to ingest must ascend: entry {count} does not").into(),
                ));
            }
            let name = inner.router.name_of(key);
            Router::check_name(&name)?;
            let output = outputs.of(&name)?;
            let is_full =
                |w: &mut TableWriter| w.bytes_estimate() >= self.shared.options.table_bytes;
            if let Some(writer) = output.open.take_if(is_full) {
                output.metas.push(writer.finish()?);
            }
            let writer = match &mut output.open {
                Some(writer) => writer,
                open => {
                    let options = inner.options.table().with_writers(0);
                    open.insert(self.new_table(&options))
                }
            };
            match expires_ms {
                None => writer.add(key, 0, Kind::Value, value)?,
                Some(at_ms) => {
                    self.shared.expires.store(true, Ordering::Relaxed);
                    let stamped = [&Stamp::new(at_ms).encode(), value].concat();
                    writer.add(key, 0, Kind::Expiring, &stamped)?;
                }
            }
            let last = last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(key);
            count += 1;
        }
        outputs.finish()?;
        Ok(count)
    }

    /// Gives the tables a sequence number, and makes them part of their LSM trees.
    fn install_ingested(&self, inner: &KeyspaceInner, mut outputs: Vec<Output<'_>>) -> Result<()> {
        let names: Vec<&[u8]> = outputs.iter().map(|output| &*output.name).collect();
        let trees = self.create_partitions(inner, &names)?;
        let mut state = self.lock_above_memtables(&|memtable: &Arc<Memtable>| {
            let mut parts = trees.iter().zip(&outputs);
            parts.any(|(tree, output)| holds_any(memtable, tree.id, &output.metas))
        })?;
        // A running compaction may be about to fill the gap below level 0.
        let alone: Vec<_> = trees.iter().map(|tree| tree.compaction.try_lock()).collect();
        let seq = state.next_seq;
        let mut changes = Vec::with_capacity(trees.len());
        for ((tree, output), alone) in trees.iter().zip(&outputs).zip(&alone) {
            let metas = &output.metas;
            let level = match alone {
                Some(_) => self.ingest_level(&tree.levels.get(), metas),
                None => 0,
            };
            let mut added = Vec::with_capacity(metas.len());
            for meta in metas.iter() {
                let mut meta = meta.clone();
                // Every entry was written with sequence number 0; the table shifts them all by the
                // difference.
                (meta.seq_min, meta.seq_max) = (seq, seq);
                added.push((level, Table::open(&self.shared.tables, meta)?));
            }
            changes.push(TreeChange { tree: Arc::clone(tree), removed: Vec::new(), added });
        }
        let keep = || outputs.iter_mut().for_each(|output| output.metas.keep());
        let edit = |state: &CatalogState, tables: Vec<Edit>| {
            let mut edits = edits_of_unknown(state, inner, &trees);
            edits.extend(tables);
            edits.extend(event_edits(seq, &inner.name, EventKind::Ingested, &[]));
            edits
        };
        let show = |now: &dyn Fn()| {
            state.taps.reset(inner);
            state.history.record_keyspace(inner.id, seq);
            self.snapshots.while_none_begins(|| {
                trees.iter().for_each(|tree| self.memtables.get().active.forget_dead(tree.id, seq));
                now();
                self.writer.visible.store(seq, Ordering::Release);
            });
            state.next_seq += 1;
        };
        self.install(&changes, IfDropped::Fail, With { keep, edit, show })?;
        self.writer.wake_waiting(&mut state);
        drop((state, alone));
        self.shared.balance_memory();
        self.scheduler.wake();
        Ok(())
    }

    /// Takes the write lock once everything before is durable, because the ingested entries are
    /// durable at once, and once no memtable holds anything that must lie below them: reads take
    /// the first version that they meet, memtables first. Writers go on while memtables are
    /// flushed.
    fn lock_above_memtables(
        &self,
        holds_any: &dyn Fn(&Arc<Memtable>) -> bool,
    ) -> Result<Held<'_, WriteState>> {
        for attempt in 1.. {
            let mut state = self.lock_to_change()?;
            if holds_any(&self.memtables.get().active) {
                self.seal(&mut state)?;
            }
            let view = self.memtables.get();
            let below: Vec<_> =
                view.sealed.iter().filter(|m| holds_any(m)).map(Arc::downgrade).collect();
            if below.is_empty() {
                return Ok(state);
            }
            drop(view);
            if attempt == WAITS_MAX {
                // Writers keep writing there: this once, they wait with the ingestion.
                self.wait_for_sealed(0)?;
                self.writer.sync_logs(&self.shared, &mut state, PersistMode::SyncData)?;
                return Ok(state);
            }
            drop(state);
            self.scheduler.wait_until(self, || {
                let view = self.memtables.get();
                !view.sealed.iter().any(|m| below.iter().any(|b| b.as_ptr() == Arc::as_ptr(m)))
            })?;
        }
        Err(Error::Internal("the attempts to ingest have no end".into()))
    }

    /// The level that takes ingested tables: level 0 if they overlap anything, otherwise the
    /// shallowest deeper level that has room for them.
    fn ingest_level(&self, levels: &Levels, metas: &[TableMeta]) -> usize {
        let (Some(first), Some(last)) = (metas.first(), metas.last()) else { return 0 };
        let (from, to) = (&first.smallest, &last.largest);
        let overlaps_zero =
            levels.l0.iter().any(|t| t.meta().largest >= *from && t.meta().smallest <= *to);
        if overlaps_zero || levels.deeper_overlaps(0, from, to) {
            return 0;
        }
        let bytes: u64 = metas.iter().map(|meta| meta.file_bytes).sum();
        let mut target = self.shared.options.level_one_bytes;
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

/// Returns true if a memtable holds an entry of a LSM tree between the first key and the last of
/// tables in order, or a range tombstone over any of these keys. O(log n + range tombstones).
fn holds_any(memtable: &Arc<Memtable>, tree: TreeId, metas: &[TableMeta]) -> bool {
    let (Some(first), Some(last)) = (metas.first(), metas.last()) else { return false };
    let mut cursor = MemCursor::new(Arc::clone(memtable), tree);
    cursor.seek(&first.smallest, SeqNo::MAX);
    let has_entry = cursor.entry().is_some_and(|entry| entry.key() <= &*last.largest);
    has_entry || {
        let ranges = memtable.retained_ranges(tree, &[]);
        ranges.newest_over(&first.smallest, &last.largest).1 > 0
    }
}

/// The manifest edits of partitions that only the log knows, because the manifest will name their
/// tables.
fn edits_of_unknown(state: &CatalogState, inner: &KeyspaceInner, trees: &[Arc<Tree>]) -> Vec<Edit> {
    let root = inner.tree.get().id;
    let unknown = trees.iter().filter(|tree| !state.has_tree(tree.id));
    unknown
        .map(|tree| Edit::CreatePartition { root, name: tree.name.clone(), tree: tree.id })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread, time::Duration};

    use rhumb_sync::primitive::Arc;

    use crate::{Database, Keyspace, KeyspaceOptions, io::sim::SimFs};

    fn open(fs: &SimFs, threads: usize) -> (Database, Keyspace) {
        let builder = Database::builder("/db").file_system(Arc::new(fs.clone()));
        let db = builder.background_threads(threads).open().unwrap();
        let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        (db, keyspace)
    }

    fn value(keyspace: &Keyspace, key: &str) -> String {
        let value = keyspace.get(key).unwrap();
        value.map_or_else(String::new, |value| String::from_utf8(value.to_vec()).unwrap())
    }

    #[test]
    fn only_what_lies_between_the_ingested_keys_is_flushed() {
        let fs = SimFs::new(1);
        let (db, keyspace) = open(&fs, 0);
        for key in ["a", "m5", "z"] {
            keyspace.insert(key, "old").unwrap();
        }
        keyspace.remove_range("t".."u").unwrap();
        keyspace.ingest([("b", "new"), ("m4", "new")]).unwrap();
        keyspace.ingest([("n", "new"), ("s", "new")]).unwrap();
        keyspace.ingest([("u", "new"), ("y", "new")]).unwrap();
        assert_eq!(db.stats().flushes, 0, "nothing in memory is between");
        assert_eq!(db.stats().sealed_memtables, 0);
        // There is an entry between the keys, though of another key.
        keyspace.ingest([("m5", "new"), ("m6", "new")]).unwrap();
        assert_eq!(db.stats().flushes, 1);
        keyspace.remove_range("p".."r").unwrap();
        keyspace.insert("c", "old").unwrap();
        // There is a range tombstone over keys between them.
        keyspace.ingest([("o", "newest"), ("q", "newest")]).unwrap();
        assert_eq!(db.stats().flushes, 2);
        keyspace.insert("w", "old").unwrap();
        let check = |keyspace: &Keyspace| {
            for key in ["a", "c", "w", "z"] {
                assert_eq!(value(keyspace, key), "old", "{key}");
            }
            for key in ["b", "m4", "m5", "m6", "n", "s", "u", "y"] {
                assert_eq!(value(keyspace, key), "new", "{key}");
            }
            for key in ["o", "q"] {
                assert_eq!(value(keyspace, key), "newest", "{key}");
            }
            assert_eq!(
                keyspace.iter().collect::<crate::error::Result<Vec<_>>>().unwrap().len(),
                14
            );
        };
        check(&keyspace);
        keyspace.compact().unwrap();
        check(&keyspace);
        drop((db, keyspace));
        check(&open(&fs, 0).1);
    }

    #[test]
    fn writers_go_on_while_an_ingestion_waits_for_a_flush() {
        let (db, keyspace) = open(&SimFs::new(2), 2);
        keyspace.insert("m", "old").unwrap();
        let (told, finished) = mpsc::channel();
        thread::scope(|scope| {
            let flushing = db.core().scheduler.flushing.lock();
            let ingested = scope.spawn(|| keyspace.ingest([("m", "new")]));
            while db.stats().sealed_memtables == 0 {
                thread::yield_now();
            }
            scope.spawn(|| {
                for i in 0..1_000_u32 {
                    keyspace.insert(format!("other-{i}"), "1").unwrap();
                }
                told.send(()).unwrap();
            });
            let writers = finished.recv_timeout(Duration::from_secs(60));
            drop(flushing);
            assert!(writers.is_ok(), "the writers wait for a flush that an ingestion asked for");
            assert_eq!(ingested.join().unwrap().unwrap(), 1);
        });
        assert_eq!(value(&keyspace, "m"), "new");
    }
}
