//! Compactions of one LSM tree at a time: choosing the next one, and installing its outputs.

use rhumb_sync::primitive::{Arc, Ordering};

use super::{
    core::Core,
    install::{IfDropped, TreeChange, With},
};
use crate::{
    compaction::{
        expired::{Horizon, expired},
        garbage::hidden,
        job::{Job, Merge, Placed},
        merge::{Finish, MergeTarget, merge_tables},
        picker,
        warm::warm_like,
    },
    error::{Error, Result},
    events::{self, Event, Span, Work},
    table::{BlockIndexKind, NewTables, Table, TableLayout, TableWriter},
    tree::{CompactionState, Tree},
    types::SeqNo,
    version::retain::Readers,
};

/// A level that must be compacted.
pub(super) struct Due {
    pub(super) score: f64,
    pub(super) level: usize,
    pub(super) tree: Arc<Tree>,
}

impl Core {
    /// The levels that are due, the most urgent first, and how far back readers see.
    pub(super) fn due_compactions(&self) -> (Vec<Due>, Horizon) {
        let Readers { snapshots, time_ms } = self.readers();
        let oldest = snapshots.first().copied().unwrap_or(SeqNo::MAX);
        let horizon = Horizon { oldest, time_ms };
        let mut due: Vec<Due> = {
            let trees = self.trees.lock();
            let due = trees.live().filter_map(|tree| {
                let urgent = picker::most_urgent(&tree.levels.get(), &self.shared.options, horizon);
                urgent.map(|(level, score)| Due { score, level, tree: Arc::clone(tree) })
            });
            due.collect()
        };
        // Ties are broken by id, so that a run without a pool is repeatable.
        due.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.tree.id.cmp(&b.tree.id)));
        (due, horizon)
    }

    /// Does the most urgent compaction. Returns true if there was any.
    pub(crate) fn compact_most_needed(&self) -> Result<bool> {
        if self.drop_hidden()? || self.drop_expired()? {
            return Ok(true);
        }
        let (due, horizon) = self.due_compactions();
        self.compact_due(&due, horizon, false)
    }

    /// Does the first due compaction that can be done, and if it is small, all others that are
    /// small with it. With `alone` it is done by itself: one damaged LSM tree must not keep the
    /// others from being compacted.
    fn compact_due(&self, due: &[Due], horizon: Horizon, alone: bool) -> Result<bool> {
        let (mut failure, mut is_busy) = (None, false);
        for Due { level, tree, .. } in due {
            let Some(mut state) = tree.compaction.try_lock() else {
                is_busy = true;
                continue;
            };
            let levels = tree.levels.get();
            let cursor = state.cursor(*level);
            let Some(job) = picker::pick(&levels, *level, &cursor, &self.shared.options, horizon)
            else {
                continue;
            };
            if let Job::Merge(merge) = &job
                && !alone
                && picker::is_small(merge, &self.shared.options)
            {
                drop(state);
                let bytes_max = self.shared.options.table_bytes.max(merge.input_bytes());
                match self.compact_small(due, horizon, bytes_max) {
                    Ok(0) => continue,
                    Ok(_) => return Ok(true),
                    Err(_) => return self.compact_due(due, horizon, true),
                }
            }
            if let Err(error) = self.compact_by(tree, &job) {
                // A compaction that is no longer wanted was given up on purpose.
                if self.is_compaction_wanted(tree) {
                    failure = Some(error);
                }
                continue;
            }
            record(&mut state, *level, job.inputs());
            return Ok(true);
        }
        if let Some(error) = failure {
            return Err(error);
        }
        let is_packed = self.pack_files(self.shared.options.table_bytes)?;
        if !is_packed && !is_busy {
            self.scheduler.forget_compaction_failure();
        }
        Ok(is_packed)
    }

    /// Merges everything of a LSM tree into one level.
    pub(crate) fn compact_all(&self, tree: &Arc<Tree>) -> Result<()> {
        {
            let _state = tree.compaction.lock();
            if let Some(merge) = picker::pick_all(&tree.levels.get(), self.readers().time_ms) {
                self.run_merge(tree, &merge)?;
            }
        }
        self.reclaim();
        Ok(())
    }

    /// Does one compaction. The caller holds the LSM tree's compaction lock.
    fn compact_by(&self, tree: &Arc<Tree>, job: &Job) -> Result<()> {
        match job {
            Job::Merge(merge) => self.run_merge(tree, merge),
            Job::Move { table, level } => {
                let added = vec![(*level, Arc::clone(&table.1))];
                self.install_compaction(tree, job.inputs(), added, || ())
            }
            Job::Drop(tables) => self.install_compaction(tree, tables, Vec::new(), || ()),
        }
    }

    /// Merges some tables. The caller holds the LSM tree's compaction lock.
    fn run_merge(&self, tree: &Arc<Tree>, merge: &Merge) -> Result<()> {
        let span = Span::enter(Work::Compaction);
        let mut outputs = NewTables::new(&self.shared.tables);
        self.merge_into(tree, merge, 0, &mut TableWriter::finish, &mut outputs)?;
        if !outputs.is_empty() {
            self.shared.sync_dir()?;
        }
        let opened = self.open_outputs(merge, &mut outputs)?;
        self.report_merge(&span, tree, merge, &outputs);
        self.shared.counters.compactions.fetch_add(1, Ordering::Relaxed);
        let added = opened.into_iter().map(|table| (merge.level, table)).collect();
        self.install_compaction(tree, &merge.inputs, added, || outputs.keep())
    }

    /// Replaces `inputs` by `added`; does nothing if the LSM tree was dropped.
    fn install_compaction(
        &self,
        tree: &Arc<Tree>,
        inputs: &[Placed],
        added: Vec<Placed>,
        keep: impl FnOnce(),
    ) -> Result<()> {
        let change = TreeChange { tree: Arc::clone(tree), removed: inputs.to_vec(), added };
        let with = With { keep, edit: |_: &_, tables| tables, show: |now: &dyn Fn()| now() };
        self.install(&[change], IfDropped::GiveUp, with)
    }

    /// Opens the outputs of a merge, and counts what it read and wrote.
    pub(super) fn open_outputs(
        &self,
        merge: &Merge,
        outputs: &mut NewTables<'_>,
    ) -> Result<Vec<Arc<Table>>> {
        let written: u64 = outputs.iter().map(|meta| meta.file_bytes).sum();
        self.shared.counters.compacted_read_bytes.fetch_add(merge.input_bytes(), Ordering::Relaxed);
        self.shared.counters.compacted_written_bytes.fetch_add(written, Ordering::Relaxed);
        let metas = outputs.to_vec();
        let opened = metas.iter().map(|meta| outputs.open(meta)).collect::<Result<Vec<_>>>()?;
        warm_like(merge.inputs.iter().map(|(_, table)| table), &opened);
        Ok(opened)
    }

    /// Reports a merge whose outputs are about to be installed.
    pub(super) fn report_merge(
        &self,
        span: &Span,
        tree: &Tree,
        merge: &Merge,
        outputs: &NewTables<'_>,
    ) {
        if !events::are_wanted() {
            return;
        }
        let catalog = self.lock_catalog();
        let keyspace = catalog.keyspaces.values().find(|keyspace| {
            let root = keyspace.tree.get();
            root.id == tree.id
                || root.partition_map().get(&tree.name).is_some_and(|it| it.id == tree.id)
        });
        let keyspace = keyspace.map(|keyspace| Arc::clone(&keyspace.name)).unwrap_or_default();
        drop(catalog);
        span.report(&Event::Merged {
            keyspace: &keyspace,
            level: merge.level as u64,
            bytes_in: merge.input_bytes(),
            bytes_out: outputs.iter().map(|meta| meta.file_bytes).sum(),
            tables_in: merge.inputs.len() as u64,
            tables_out: outputs.len() as u64,
        });
    }

    /// Merges the inputs into tables that `finish` finishes; tables of up to `held` bytes are kept
    /// in memory until then.
    pub(super) fn merge_into(
        &self,
        tree: &Tree,
        merge: &Merge,
        held: u64,
        finish: Finish<'_>,
        outputs: &mut NewTables<'_>,
    ) -> Result<()> {
        let layout = tree.options.table().with_writers(0);
        // Tables that fit into one become one: the size of a table that is being written is
        // estimated before its blocks are compressed, and tables that stayed as they were would be
        // joined again without end.
        let most = self.shared.options.table_bytes;
        let table_bytes = if merge.input_bytes() <= most { u64::MAX } else { most };
        let new_table = |layout: &TableLayout| self.new_table(layout).of_tree(tree.id);
        let target = MergeTarget { layout, table_bytes, held, new_table: &new_table, finish };
        let go_on = || self.check_compaction_wanted(tree);
        merge_tables(merge, self.readers(), target, &go_on, outputs)
    }

    /// All readers that there may be, for what a flush or a compaction leaves out. To be called
    /// once the structures are held that it reads: snapshots that begin later are newer than
    /// everything in them.
    pub(super) fn readers(&self) -> Readers {
        // Taken first: snapshots that begin later have a later time.
        let now_ms = self.shared.now_ms();
        let time_ms = self.snapshots.time(now_ms);
        Readers { snapshots: self.snapshots.list(), time_ms }
    }

    /// Begins a table with an id of its own.
    pub(super) fn new_table(&self, layout: &TableLayout) -> TableWriter {
        self.shared.counters.count_table(layout.index == BlockIndexKind::Learned);
        TableWriter::create(&self.shared.tables, self.shared.new_file_id(), layout)
    }

    /// Returns false if the result of a compaction of `tree` is no longer wanted.
    pub(super) fn is_compaction_wanted(&self, tree: &Tree) -> bool {
        !self.scheduler.is_shut_down() && !tree.dropped.load(Ordering::Acquire)
    }

    /// Fails if the result of a compaction is no longer wanted, which gives the compaction up.
    /// Callers ask [`Core::is_compaction_wanted`] whether a compaction failed or was given up.
    pub(super) fn check_compaction_wanted(&self, tree: &Tree) -> Result<()> {
        if self.is_compaction_wanted(tree) {
            return Ok(());
        }
        Err(Error::Closed("the compaction was given up".into()))
    }

    /// Removes the hidden tables of some LSM tree. Returns true if there were any.
    fn drop_hidden(&self) -> Result<bool> {
        let trees: Vec<Arc<Tree>> = {
            let (trees, snapshots) = (self.trees.lock(), self.snapshots.list());
            let may = |tree: &&Arc<Tree>| tree.levels.get().is_to_be_looked_through(&snapshots);
            let mut found: Vec<_> = trees.live().filter(may).cloned().collect();
            found.sort_by_key(|tree| tree.id);
            found
        };
        for tree in trees {
            let Some(_state) = tree.compaction.try_lock() else { continue };
            let levels = tree.levels.get();
            // Listed after the levels were loaded: later snapshots are newer than everything in the
            // levels.
            let snapshots = self.snapshots.list();
            let tables = hidden(&levels, &snapshots);
            if tables.is_empty() {
                levels.record_looked_through(&snapshots);
                continue;
            }
            let dropped = tables.len() as u64;
            self.compact_by(&tree, &Job::Drop(tables))?;
            self.shared.counters.hidden_tables.fetch_add(dropped, Ordering::Relaxed);
            return Ok(true);
        }
        Ok(false)
    }

    /// Removes the tables of some LSM tree of which everything has expired. Returns true if there
    /// were any.
    fn drop_expired(&self) -> Result<bool> {
        let is_due = |tree: &Tree| {
            let first = tree.levels.get().first_end_ms();
            first.is_some_and(|first| first <= self.shared.now_ms())
        };
        let mut due: Vec<Arc<Tree>> =
            self.trees.lock().live().filter(|tree| is_due(tree)).cloned().collect();
        due.sort_by_key(|tree| tree.id);
        for tree in due {
            let Some(_state) = tree.compaction.try_lock() else { continue };
            // The time is taken after the levels: later snapshots have a later one.
            let levels = tree.levels.get();
            let tables = expired(&levels, self.readers().time_ms);
            if tables.is_empty() {
                continue;
            }
            let dropped = tables.len() as u64;
            self.compact_by(&tree, &Job::Drop(tables))?;
            self.shared.counters.expired_tables.fetch_add(dropped, Ordering::Relaxed);
            return Ok(true);
        }
        Ok(false)
    }
}

/// Records where a compaction of a level began.
pub(super) fn record(state: &mut CompactionState, level: usize, inputs: &[Placed]) {
    if let Some((_, first)) = inputs.first() {
        state.record(level, &first.meta().largest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Database, KeyspaceOptions, io::sim::SimFs};

    /// Tables whose entries take far less than was estimated are joined all the same.
    #[test]
    fn what_compresses_well_is_not_joined_without_end() {
        let builder = Database::builder("/db").file_system(Arc::new(SimFs::new(1)));
        let builder = builder.memtable_bytes(64 << 10).table_bytes(64 << 10);
        let db = builder.level_one_bytes(128 << 10).background_threads(0).open().unwrap();
        let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        for n in 0..4_000_u32 {
            keyspace.insert(n.wrapping_mul(2_654_435_761).to_be_bytes(), [7; 100]).unwrap();
        }
        assert_eq!(keyspace.iter().count(), 4_000);
        let compactions = db.stats().compactions;
        assert!(compactions < 60, "{compactions}");
    }

    /// A compaction that is given up because its tree was dropped meanwhile is not a failure.
    #[test]
    fn what_was_dropped_is_given_up_without_a_failure() {
        let builder = Database::builder("/db").file_system(Arc::new(SimFs::new(1)));
        let db = builder.background_threads(0).open().unwrap();
        let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        let (core, tree) = (&db.handle.core, keyspace.inner.tree.get());
        for round in 0..4_u32 {
            for i in 0..1_500_u32 {
                keyspace.insert(i.to_be_bytes(), round.to_be_bytes()).unwrap();
            }
            db.flush().unwrap();
        }
        assert!(tree.levels.get().l0.len() >= 3, "there is something to be merged");
        let merge = picker::pick_all(&tree.levels.get(), 0).unwrap();
        // The drop comes after the compaction was chosen; the merge finds out.
        tree.dropped.store(true, Ordering::Release);
        assert!(core.run_merge(&tree, &merge).is_err(), "it is not given up");
        assert!(!core.compact_most_needed().unwrap());
        core.run_inline();
        let stats = db.stats();
        assert_eq!((stats.failure, stats.failed_jobs), (None, 0));
    }
}
