//! Flushes: a sealed memtable becomes one table of level 0 in every LSM tree that it touches. Small
//! tables share a file, so that those of thousands of keyspaces and partitions cost one sync.

use rhumb_sync::primitive::{Arc, Ordering};

use super::{
    core::Core,
    install::{IfDropped, TreeChange, With},
};
use crate::{
    compaction::{expired, garbage, joins::JoinSizes, warm::warm_like},
    error::Result,
    events::{Event, Span, Work},
    memtable::{LogFloor, MemCursor, MemView, Memtable},
    ranges::{HiddenRuns, HiddenRunsBuilder, Sweep, newest_of},
    table::{NewTables, SharedWriter, TableWriter},
    tree::Tree,
    types::{Kind, SeqNo},
    version::{edit::Edit, retain::Retain, state::CatalogState},
};

/// The tables that were written of a memtable, not yet part of the store.
pub(crate) struct Flushed<'c> {
    trees: Vec<Arc<Tree>>,
    /// One table for each LSM tree.
    tables: NewTables<'c>,
    /// The file that holds the small tables.
    shared: Option<SharedWriter>,
}

impl Core {
    /// Flushes the oldest sealed memtable. Returns false if there was none. The caller holds
    /// `work.flushing`.
    pub(crate) fn flush_oldest(&self) -> Result<bool> {
        let view = self.memtables.get();
        let Some(memtable) = view.sealed.last() else { return Ok(false) };
        let span = Span::enter(Work::Flush);
        let next = view.sealed.iter().rev().nth(1).unwrap_or(&view.active);
        let floor = next.log();
        let flushed = self.write_memtable(memtable)?;
        let event = Event::Flushed {
            bytes_in: memtable.bytes() as u64,
            bytes_out: flushed.tables.iter().map(|meta| meta.file_bytes).sum(),
            tables: flushed.tables.len() as u64,
        };
        self.install_flush(flushed, floor, memtable)?;
        self.memtables.change(|view| MemView {
            active: Arc::clone(&view.active),
            sealed: view.sealed.iter().filter(|m| !Arc::ptr_eq(m, memtable)).cloned().collect(),
        });
        self.shared.counters.flushes.fetch_add(1, Ordering::Relaxed);
        span.report(&event);
        if let Some(floor) = floor {
            self.writer.log_floor.store(floor.segment, Ordering::Release);
        }
        // A writer may hold the lock while it waits for this very flush. So it must be told before
        // the lock is requested; if it has the lock, it removes the old segments itself.
        self.scheduler.tell_done();
        if let Some(mut state) = self.try_lock_write() {
            self.writer.release_logs(&mut state);
        }
        Ok(true)
    }

    /// Writes the entries of every LSM tree to a table of its own; of dropped LSM trees only the
    /// entries that snapshots may read.
    pub(crate) fn write_memtable(&self, memtable: &Arc<Memtable>) -> Result<Flushed<'_>> {
        if memtable.expiring().is_some() {
            self.shared.expires.store(true, Ordering::Relaxed);
        }
        let mut retain = Retain::new(self.readers(), false);
        let (mut trees, mut tables, mut shared) =
            (Vec::new(), NewTables::new(&self.shared.tables), None);
        let writers = self.shared.counters.writers.swap(0, Ordering::Relaxed);
        let ids = memtable.trees();
        let (are_many, held) = (ids.len() > 1, JoinSizes::of(&self.shared.options).shared);
        for id in ids {
            let Some(tree) = self.trees.lock().get_read(id, &self.snapshots) else { continue };
            let options = tree.options.table().with_writers(writers);
            let writer = self.new_table(&options).of_tree(id);
            let mut writer = if are_many { writer.holding(held) } else { writer };
            retain.next_run();
            let hidden = write_tree(memtable, &tree, &mut retain, &mut writer)?;
            if writer.is_empty() {
                // All that was inserted was deleted again.
                continue;
            }
            let meta = match are_many {
                false => writer.finish()?,
                true => writer.finish_into(|| self.shared_writer(&mut shared))?,
            };
            tables.add(meta, hidden);
            trees.push(tree);
        }
        shared.as_mut().map_or(Ok(()), SharedWriter::sync)?;
        // Syncs the names of the tables, and that of the segment which becomes the log's floor.
        self.shared.sync_dir()?;
        Ok(Flushed { trees, tables, shared })
    }

    /// The writer of the file that small tables share, made if there is none.
    pub(crate) fn shared_writer<'w>(
        &self,
        shared: &'w mut Option<SharedWriter>,
    ) -> Result<&'w mut SharedWriter> {
        match shared {
            Some(shared) => Ok(shared),
            none => {
                Ok(none
                    .insert(SharedWriter::create(&self.shared.tables, self.shared.new_file_id())?))
            }
        }
    }

    /// Makes flushed tables part of their LSM trees, durably, and then visible.
    pub(crate) fn install_flush(
        &self,
        Flushed { trees, mut tables, shared }: Flushed<'_>,
        floor: Option<LogFloor>,
        memtable: &Memtable,
    ) -> Result<()> {
        let mut changes = Vec::with_capacity(tables.len());
        for (tree, meta) in trees.into_iter().zip(tables.to_vec()) {
            self.shared.counters.flushed_bytes.fetch_add(meta.file_bytes, Ordering::Relaxed);
            let table = tables.open(&meta)?;
            // The entries of this table were in memory until now.
            warm_like(
                tree.levels.get().all().map(|(_, table)| table),
                std::slice::from_ref(&table),
            );
            changes.push(TreeChange { tree, removed: Vec::new(), added: vec![(0, table)] });
        }
        let keep = || {
            tables.keep();
            shared.into_iter().for_each(SharedWriter::keep);
        };
        let edit = |state: &CatalogState, tables: Vec<Edit>| {
            let mut edits = self.edits_of_created(state, &memtable.created());
            edits.extend(tables);
            let floor = floor.map(|LogFloor { segment, lsn }| Edit::LogFloor { segment, lsn });
            edits.extend(floor);
            edits.push(Edit::LastSeq { seq: memtable.last_seq().max(state.last_seq) });
            edits
        };
        let with = With { keep, edit, show: |now: &dyn Fn()| now() };
        self.install(&changes, IfDropped::Show, with)
    }

    /// Seals the active memtable if its range tombstones cover more than a memtable holds, or much
    /// of what there is, so that the space is freed although nothing else is written. Returns true
    /// if it did. For a pool that has nothing else to do.
    pub(crate) fn seal_deletes(&self) -> bool {
        let view = self.memtables.get();
        let last = view.active.last_range_seq();
        if last == 0 || self.scheduler.weighed_deletes.swap(last, Ordering::Relaxed) == last {
            return false;
        }
        let trees: Vec<Arc<Tree>> = {
            let trees = self.trees.lock();
            trees.live().filter(|tree| view.active.has_ranges_of(tree.id)).cloned().collect()
        };
        let (mut removed, mut all) = (0, 0);
        for tree in &trees {
            let levels = tree.levels.get();
            let (removed_here, all_here) = garbage::removed_bytes(&view.active, tree.id, &levels);
            (removed, all) = (removed + removed_here, all + all_here);
        }
        if !garbage::is_worth_a_flush(removed, all) && removed < self.shared.options.memtable_bytes
        {
            return false;
        }
        self.seal_if_same(&view)
    }

    /// Seals the active memtable if everything in it that expires has expired, and that is much of
    /// it, so that the memory and the log are freed although nothing else is written. Returns true
    /// if it did. For a pool that has nothing else to do.
    pub(crate) fn seal_expired(&self) -> bool {
        let view = self.memtables.get();
        let Some((bytes, last_ms)) = view.active.expiring() else { return false };
        last_ms <= self.readers().time_ms
            && expired::is_worth_a_flush(bytes, view.active.bytes() as u64)
            && self.seal_if_same(&view)
    }

    /// Seals the active memtable if the memtables are still these.
    fn seal_if_same(&self, view: &MemView) -> bool {
        let mut state = self.lock_write();
        let now = self.memtables.get();
        let is_same = Arc::ptr_eq(&now.active, &view.active) && now.sealed.is_empty();
        // The next write reports a failure.
        is_same && self.shared.check_running().is_ok() && self.seal(&mut state).is_ok()
    }
}

/// Writes the entries that a memtable has of a LSM tree. It leaves out entries that range
/// tombstones hide from every reader, and tombstones that have nothing to hide: what was inserted
/// and deleted while one memtable took the writes leaves nothing in the tables, as in a queue.
/// Returns the runs of entries that range tombstones hide from the newest readers.
fn write_tree(
    memtable: &Arc<Memtable>,
    tree: &Tree,
    retain: &mut Retain,
    writer: &mut TableWriter,
) -> Result<HiddenRuns> {
    // Memtables are flushed in order, so everything older than this one is in the levels.
    let levels = tree.levels.get();
    let ranges = memtable.retained_ranges(tree.id, retain.snapshots());
    let (mut over, mut hidden) = (Sweep::new(&ranges), HiddenRunsBuilder::default());
    let mut cursor = MemCursor::new(Arc::clone(memtable), tree.id);
    cursor.seek(&[], SeqNo::MAX);
    while let Some(entry) = cursor.entry() {
        let removed = over.seqs(entry.key());
        let is_hidden = retain.is_hidden(entry.seq(), removed);
        let (kind, value) = retain.seen(entry.kind(), entry.value());
        let stays = retain.judge(entry.key(), entry.seq(), kind);
        let is_vain = kind == Kind::Tombstone
            && retain.is_oldest_seen(entry.seq())
            && !levels.may_hold(entry.key(), entry.kind() == Kind::Expiring);
        if let Some(seq) = stays.filter(|_| !is_hidden && !is_vain) {
            writer.add(entry.key(), seq, kind, value)?;
            if !ranges.is_empty() {
                hidden.record(entry.key(), seq, newest_of(removed, SeqNo::MAX));
            }
        }
        cursor.advance();
    }
    // Everything that a range tombstone without an end can hide is in this table or in older ones,
    // and those are all in the levels: memtables are flushed in order.
    let largest = levels.all().map(|(_, table)| &*table.meta().largest).max();
    let last = largest.max(writer.last_key()).unwrap_or_default();
    let closed = ranges.closed(last);
    writer.set_ranges(closed);
    Ok(hidden.finish())
}

#[cfg(test)]
mod tests {
    use crate::{Database, KeyspaceOptions};
    use rhumb_sync::primitive::Arc;

    /// A writer that only writes must not keep the memtables that it has filled.
    #[test]
    fn a_flushed_memtable_is_freed_while_its_writer_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::builder(dir.path().join("db")).memtable_bytes(64 << 10).open().unwrap();
        let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        let mut filled = Vec::new();
        for i in 0..20_000_u32 {
            let active = db.core().memtables.get();
            if !filled
                .iter()
                .any(|m: &std::sync::Weak<_>| m.as_ptr() == Arc::as_ptr(&active.active))
            {
                filled.push(Arc::downgrade(&active.active));
            }
            drop(active);
            keyspace.insert(i.to_be_bytes(), [7; 100]).unwrap();
        }
        db.flush().unwrap();
        assert!(filled.len() > 20);
        // The pool frees them soon afterwards; threads of other tests may hold the epoch back.
        let begun = std::time::Instant::now();
        while filled[..filled.len() - 1].iter().any(|memtable| memtable.strong_count() > 0) {
            assert!(begun.elapsed().as_secs() < 60, "flushed memtables are still there");
            std::thread::yield_now();
        }
    }

    #[test]
    fn without_a_pool_a_flush_frees_the_memtable_itself() {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::builder(dir.path()).background_threads(0).open().unwrap();
        let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        keyspace.insert("a", "1").unwrap();
        let memtable = Arc::downgrade(&db.core().memtables.get().active);
        // Threads of other tests may hold the epoch back.
        let is_freed = (0..6_000).any(|_| {
            db.flush().unwrap();
            std::thread::sleep(std::time::Duration::from_millis(1));
            memtable.strong_count() == 0
        });
        assert!(is_freed);
    }

    #[test]
    fn an_iterator_of_an_index_that_is_kept_is_seen_in_the_statistics() {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::builder(dir.path()).background_threads(0).open().unwrap();
        let index: crate::Index<u64, u64> = (0..10).map(|key| (key, key)).collect();
        let mut kept = index.iter();
        assert_eq!(kept.next(), Some((0, 0)));
        let is_seen = (0..1000).any(|_| {
            db.flush().unwrap();
            db.stats().refused_frees > 100
        });
        assert!(is_seen);
        drop(kept);
        while db.stats().refused_frees > 0 {
            db.flush().unwrap();
        }
    }

    /// A program may open and close databases as often as it likes.
    #[test]
    fn a_closed_database_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::builder(dir.path().join("db")).memtable_bytes(64 << 10).open().unwrap();
        let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        for i in 0..3_000_u32 {
            keyspace.insert(i.to_be_bytes(), [7; 100]).unwrap();
        }
        db.flush().unwrap();
        assert!(keyspace.get(7_u32.to_be_bytes()).unwrap().is_some());
        let core = db.core();
        let (cache, drops) =
            (Arc::downgrade(&core.shared.tables.cache), Arc::downgrade(&core.shared.drops));
        // What was replaced last is dropped after the end, because a thread elsewhere is pinned.
        let guard = rhumb_sync::epoch::pin();
        drop((db, keyspace));
        drop(guard);
        let begun = std::time::Instant::now();
        while cache.strong_count() + drops.strong_count() > 0 {
            assert!(begun.elapsed().as_secs() < 60, "a closed database is still there");
            rhumb_sync::deferred::collect();
        }
    }
}
