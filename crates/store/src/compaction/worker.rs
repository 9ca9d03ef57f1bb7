//! The merging: reads the inputs in order, keeps what must stay, and writes new tables.

use std::{ops::Bound, sync::atomic::Ordering};

use rhumb_sync::primitive::Arc;

use super::{
    garbage::is_hidden,
    output::{Finish, Output},
    picker::{self, Job},
    retain::Retain,
};
use crate::{
    db::{
        core::{Core, Tree},
        new_tables::NewTables,
    },
    error::{Error, Result},
    iter::{
        merge::{Inputs, Merge, SourceSet},
        source::{LevelCursor, Source, Start},
    },
    ranges::{Ranges, Sweep},
    table::{Access, Table, TableCursor, TableWriter},
    types::{Kind, SeqNo},
    version::{
        edit::Edit,
        levels::{Level, Levels},
    },
};

/// A level that is to be compacted.
pub(super) struct Due {
    pub(super) score: f64,
    pub(super) level: usize,
    pub(super) tree: Arc<Tree>,
}

impl Core {
    /// What is due, the most urgent first, and the number of the oldest snapshot.
    pub(super) fn due_compactions(&self) -> (Vec<Due>, SeqNo) {
        let oldest = self.snapshots.list().first().copied().unwrap_or(SeqNo::MAX);
        let mut due: Vec<Due> = {
            let trees = self.trees.lock();
            let due = trees.live().filter_map(|tree| {
                let urgent = picker::most_urgent(&tree.levels.get(), &self.options, oldest);
                urgent.map(|(level, score)| Due { score, level, tree: Arc::clone(tree) })
            });
            due.collect()
        };
        // Ties are broken, so that a run without a pool is repeatable.
        due.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.tree.id.cmp(&b.tree.id)));
        (due, oldest)
    }

    /// Does the compaction that is needed most; says whether any was.
    pub(crate) fn compact_most_needed(&self) -> Result<bool> {
        if self.drop_hidden()? {
            return Ok(true);
        }
        let (due, oldest) = self.due_compactions();
        self.compact_due(&due, oldest, false)
    }

    /// Does the first compaction of what is due that can be done, with all that are small if it is;
    /// or, if `alone`, by itself: one damaged sub-tree must not keep the others from being
    /// compacted.
    fn compact_due(&self, due: &[Due], oldest: SeqNo, alone: bool) -> Result<bool> {
        let (mut failure, mut is_busy) = (None, false);
        for Due { level, tree, .. } in due {
            let Some(mut state) = tree.compaction.try_lock() else {
                is_busy = true;
                continue;
            };
            let levels = tree.levels.get();
            let cursor = state.cursor(*level);
            let Some(job) = picker::pick(&levels, *level, &cursor, &self.options, oldest) else {
                continue;
            };
            if !alone && picker::is_small(&job, &self.options) {
                drop(state);
                let bytes_max = self.options.table_bytes.max(job.input_bytes());
                match self.compact_small(due, oldest, bytes_max) {
                    Ok(0) => continue,
                    Ok(_) => return Ok(true),
                    Err(_) => return self.compact_due(due, oldest, true),
                }
            }
            if let Err(error) = self.run_compaction_job(tree, &job) {
                // What nobody wants any more was given up on purpose.
                if self.is_compaction_wanted(tree) {
                    failure = Some(error);
                }
                continue;
            }
            state.note(*level, &job);
            return Ok(true);
        }
        if let Some(error) = failure {
            return Err(error);
        }
        let is_packed = self.pack_files(self.options.table_bytes)?;
        if !is_packed && !is_busy {
            self.work.forget_compaction_failure();
        }
        Ok(is_packed)
    }

    /// Merges everything of a sub-tree into one level.
    pub(crate) fn compact_all(&self, tree: &Arc<Tree>) -> Result<()> {
        {
            let _state = tree.compaction.lock();
            if let Some(job) = picker::pick_all(&tree.levels.get()) {
                self.run_compaction_job(tree, &job)?;
            }
        }
        self.reclaim();
        Ok(())
    }

    /// Does one compaction. The caller holds the sub-tree's compaction lock.
    fn run_compaction_job(&self, tree: &Arc<Tree>, job: &Job) -> Result<()> {
        if job.is_move {
            return self.install_compaction(tree, job, None);
        }
        let mut outputs = NewTables::new(self);
        self.merge_into(tree, job, 0, &mut TableWriter::finish, &mut outputs)?;
        if !outputs.is_empty() {
            self.sync_dir()?;
        }
        let opened = self.open_outputs(job, &mut outputs)?;
        self.counters.compactions.fetch_add(1, Ordering::Relaxed);
        outputs.keep();
        self.install_compaction(tree, job, Some(opened))
    }

    /// Opens the outputs of a compaction, and counts what it read and wrote.
    pub(super) fn open_outputs(
        &self,
        job: &Job,
        outputs: &mut NewTables<'_>,
    ) -> Result<Vec<Arc<Table>>> {
        let written: u64 = outputs.iter().map(|meta| meta.file_bytes).sum();
        self.counters.compacted_read_bytes.fetch_add(job.input_bytes(), Ordering::Relaxed);
        self.counters.compacted_written_bytes.fetch_add(written, Ordering::Relaxed);
        let metas = outputs.to_vec();
        let opened = metas.iter().map(|meta| outputs.open(meta)).collect::<Result<Vec<_>>>()?;
        self.warm_outputs(job, &opened);
        Ok(opened)
    }

    /// Merges the inputs into tables that `finish` ends; those of up to `held` bytes are in memory
    /// until then.
    pub(super) fn merge_into(
        &self,
        tree: &Tree,
        job: &Job,
        held: u64,
        finish: Finish<'_>,
        outputs: &mut NewTables<'_>,
    ) -> Result<()> {
        let mut retain = Retain::new(self.snapshots.list(), job.deepest);
        let ranges = job.inputs.iter().filter_map(|(_, table)| table.ranges().cloned());
        let ranges = Ranges::union(ranges.collect());
        let mut over = Sweep::new(&ranges);
        let kept = ranges.retained(retain.snapshots(), job.deepest);
        let options = tree.options.table().with_writers(0);
        let mut output = Output::new(self, (options, held), kept, finish, outputs);
        let is_read = |table: &Table| !is_hidden(table, &ranges, retain.snapshots());
        let sources = SourceSet::of(sources(job, is_read));
        let mut merge =
            Merge::new(Inputs::Sources(sources), Start::First, Bound::Unbounded, SeqNo::MAX);
        let begun = merge.begin()?;
        merge.drive(begun)?;
        let mut seen = 0_u64;
        while let Some(entry) = merge.top() {
            seen += 1;
            if seen.is_multiple_of(4096) {
                self.check_compaction_wanted(tree)?;
            }
            // All versions of a key stay in one table, so that tables of a level do not touch.
            if !retain.is_same_key(entry.key()) {
                output.cut()?;
            }
            let removed = over.seqs(entry.key());
            let is_hidden = retain.is_hidden(entry.seq(), removed);
            let stays = retain.judge(entry.key(), entry.seq(), entry.kind());
            if let Some(seq) = stays.filter(|_| !is_hidden) {
                let writer = output.writer();
                match (entry.kind(), entry.table()) {
                    (Kind::LargeValue, Some(source)) => {
                        writer.add_large_from(entry.key(), seq, source, entry.value())?;
                    }
                    (kind, _) => writer.add(entry.key(), seq, kind, entry.value())?,
                }
                output.note_under(entry.key(), seq, removed);
            }
            let moved = merge.advance()?;
            merge.drive(moved)?;
        }
        output.end()
    }

    /// Returns false if nobody wants the result of a compaction of `tree` any more.
    pub(super) fn is_compaction_wanted(&self, tree: &Tree) -> bool {
        !self.work.is_shut_down() && !tree.dropped.load(Ordering::Acquire)
    }

    /// Gives up a compaction whose result nobody wants any more: callers ask
    /// [`Core::is_compaction_wanted`] whether a compaction failed or was given up.
    pub(super) fn check_compaction_wanted(&self, tree: &Tree) -> Result<()> {
        if self.is_compaction_wanted(tree) {
            return Ok(());
        }
        Err(Error::InvalidArgument("the compaction was given up".into()))
    }

    /// Puts a compaction's outputs in the place of its inputs; without outputs, moves the input.
    pub(super) fn install_compaction(
        &self,
        tree: &Arc<Tree>,
        job: &Job,
        outputs: Option<Vec<Arc<Table>>>,
    ) -> Result<()> {
        let moved = outputs.is_none();
        let added = outputs
            .unwrap_or_else(|| job.inputs.iter().map(|(_, table)| Arc::clone(table)).collect());
        let mut catalog = self.lock_catalog();
        if tree.dropped.load(Ordering::Acquire) {
            added.iter().for_each(|table| table.mark_obsolete());
            return Ok(());
        }
        catalog.commit(self, edits_of(tree, job, &added))?;
        let add: Vec<_> = added.into_iter().map(|table| (job.output_level, table)).collect();
        let levels = tree.levels.get().edited(&job.input_ids(), &add);
        tree.levels.store(Arc::new(levels));
        self.note_zero_tables();
        drop(catalog);
        if !moved {
            job.inputs.iter().for_each(|(_, table)| table.mark_obsolete());
        }
        Ok(())
    }

    /// Remembers how far compactions are behind, for the throttle, and that tables have changed.
    pub(crate) fn note_zero_tables(&self) {
        let guard = rhumb_sync::epoch::pin();
        let trees = self.trees.lock();
        let most = trees.live().map(|tree| tree.levels.load(&guard).zero.len()).max();
        self.work.zero_tables_max.store(most.unwrap_or(0), Ordering::Relaxed);
        self.work.tables_changed.store(true, Ordering::Relaxed);
    }
}

/// The manifest edits that put `added` in the place of a compaction's inputs.
pub(super) fn edits_of(tree: &Tree, job: &Job, added: &[Arc<Table>]) -> Vec<Edit> {
    let level = |level: usize| u8::try_from(level).unwrap_or(u8::MAX);
    let removed = job.inputs.iter().map(|(from, table)| Edit::RemoveTable {
        tree: tree.id,
        level: level(*from),
        id: table.meta().id,
    });
    let added = added.iter().map(|table| Edit::AddTable {
        tree: tree.id,
        level: level(job.output_level),
        meta: table.meta().clone(),
    });
    removed.chain(added).collect()
}

/// The inputs that are to be read as sorted sources: each table of level 0 alone, deeper levels as one
/// walk each.
fn sources(job: &Job, is_read: impl Fn(&Table) -> bool) -> Vec<Source> {
    let mut sources = Vec::new();
    let inputs: Vec<_> = job.inputs.iter().filter(|(_, table)| is_read(table)).collect();
    let deepest = inputs.iter().map(|(level, _)| *level).max().unwrap_or(0);
    for (_, table) in inputs.iter().filter(|(level, _)| *level == 0) {
        sources.push(Source::Table(TableCursor::new(Arc::clone(table), Access::Sequential)));
    }
    for wanted in 1..=deepest {
        let tables: Vec<_> =
            inputs.iter().filter(|(l, _)| *l == wanted).map(|(_, t)| Arc::clone(t)).collect();
        if !tables.is_empty() {
            let levels = Levels::new(Vec::new(), vec![Level::new(tables)]);
            let cursor = LevelCursor::new(Arc::new(levels), 1, Access::Sequential);
            sources.push(Source::Level(cursor));
        }
    }
    sources
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Database, KeyspaceOptions, io::sim::SimFs};

    /// A compaction that is given up because its tree was dropped meanwhile is no failure.
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
        assert!(tree.levels.get().zero.len() >= 3, "there is something to be merged");
        let job = picker::pick_all(&tree.levels.get()).unwrap();
        // The drop comes when the compaction has been chosen: it finds out while it merges.
        tree.dropped.store(true, Ordering::Release);
        assert!(core.run_compaction_job(&tree, &job).is_err(), "it is not given up");
        assert!(!core.compact_most_needed().unwrap());
        core.run_inline();
        let stats = db.stats();
        assert_eq!((stats.failure, stats.failed_jobs), (None, 0));
    }
}
