//! Many small compactions at once, of different sub-trees: their small outputs share a file, so
//! that thousands of keyspaces and partitions do not become thousands of files and syncs.

use rhumb_sync::primitive::{Arc, MutexGuard, Ordering};

use super::{
    joins::Sizes,
    picker::{self, Job},
    worker::{Due, edits_of},
};
use crate::{
    db::{
        core::{CompactionState, Core, Tree},
        new_tables::NewTables,
    },
    error::Result,
    table::{SharedWriter, Table, TableWriter},
    types::SeqNo,
};

/// How many bytes an opening reads to join small tables, in all. A process that ends before its
/// pool has begun leaves its tables to the next one: without this, each opening would add some. A
/// mebibyte is merged in some 10 ms, and most openings have nothing to join.
const OPENING_BYTES_MAX: u64 = 1 << 20;

/// The compactions of one sub-tree, and what it takes to do them.
pub(super) struct Part<'t> {
    pub(super) tree: &'t Arc<Tree>,
    pub(super) jobs: Vec<Job>,
    /// No other compaction of the sub-tree runs meanwhile.
    pub(super) _lock: MutexGuard<'t, CompactionState>,
}

/// A compaction that was done and is still to be installed.
struct Done<'a> {
    tree: &'a Arc<Tree>,
    job: &'a Job,
    outputs: NewTables<'a>,
}

impl Core {
    /// Does small compactions of what is due, all together, until they have read `bytes_max`;
    /// returns how many bytes they read.
    pub(super) fn compact_small(&self, due: &[Due], oldest: SeqNo, bytes_max: u64) -> Result<u64> {
        let mut parts = Vec::new();
        let mut bytes = 0;
        for Due { level, tree, .. } in due {
            let Some(mut state) = tree.compaction.try_lock() else { continue };
            let levels = tree.levels.get();
            let cursor = state.cursor(*level);
            let job = picker::pick(&levels, *level, &cursor, &self.options, oldest);
            let Some(job) = job.filter(|job| picker::is_small(job, &self.options)) else {
                continue;
            };
            if bytes + job.input_bytes() > bytes_max {
                break;
            }
            bytes += job.input_bytes();
            state.note(*level, &job);
            parts.push(Part { tree, jobs: vec![job], _lock: state });
        }
        let is_any = self.compact_parts(&parts)?;
        Ok(if is_any { bytes } else { 0 })
    }

    /// Joins the small tables, and packs the small files, that openings and endings of the database
    /// have left, as far as that takes little time.
    pub(crate) fn compact_at_opening(&self) {
        self.note_zero_tables();
        let mut left = OPENING_BYTES_MAX;
        loop {
            let (due, oldest) = self.due_compactions();
            match self.compact_small(&due, oldest, left) {
                Ok(bytes) if bytes > 0 => left -= bytes,
                Ok(_) => break,
                // What fails is tried again, and reported, by the pool.
                Err(_) => return,
            }
        }
        let _ = self.pack_files(left);
    }

    /// Does the compactions of `parts`; what is small of their outputs shares a file. Returns false
    /// if none was wanted any more.
    pub(super) fn compact_parts(&self, parts: &[Part<'_>]) -> Result<bool> {
        let jobs: usize = parts.iter().map(|part| part.jobs.len()).sum();
        let mut shared = None;
        let mut done = Vec::with_capacity(jobs);
        for (tree, job) in
            parts.iter().flat_map(|part| part.jobs.iter().map(|job| (part.tree, job)))
        {
            let outputs = match self.merge_small(tree, job, jobs > 1, &mut shared) {
                // It was dropped, or the database is being closed.
                Err(_) if !self.is_compaction_wanted(tree) => continue,
                outputs => outputs?,
            };
            done.push(Done { tree, job, outputs });
        }
        if done.is_empty() {
            return Ok(false);
        }
        // A file that no output lies in goes with its writer.
        let is_used = |done: &Done<'_>| done.outputs.iter().any(|meta| meta.place.is_some());
        shared = shared.filter(|_| done.iter().any(is_used));
        shared.as_mut().map_or(Ok(()), SharedWriter::sync)?;
        self.sync_dir()?;
        self.install_small(done, shared)?;
        Ok(true)
    }

    /// Does one compaction; what is small goes to the shared file if there `are_many`.
    fn merge_small(
        &self,
        tree: &Tree,
        job: &Job,
        are_many: bool,
        shared: &mut Option<SharedWriter>,
    ) -> Result<NewTables<'_>> {
        self.check_compaction_wanted(tree)?;
        let mut outputs = NewTables::new(self);
        let held = Sizes::of(&self.options).shared;
        let mut finish = |writer: TableWriter| match are_many {
            true => writer.finish_into(|| self.shared_writer(shared)),
            false => writer.finish(),
        };
        self.merge_into(tree, job, held, &mut finish, &mut outputs)?;
        Ok(outputs)
    }

    /// Puts all outputs in the place of their inputs, with one edit.
    fn install_small(&self, done: Vec<Done<'_>>, shared: Option<SharedWriter>) -> Result<()> {
        let mut opened: Vec<(Done<'_>, Vec<Arc<Table>>)> = Vec::with_capacity(done.len());
        for mut done in done {
            let tables = self.open_outputs(done.job, &mut done.outputs)?;
            opened.push((done, tables));
        }
        self.counters.compactions.fetch_add(1, Ordering::Relaxed);
        let mut catalog = self.lock_catalog();
        opened.iter_mut().for_each(|(done, _)| done.outputs.keep());
        shared.into_iter().for_each(SharedWriter::keep);
        let (dead, live): (Vec<_>, Vec<_>) =
            opened.into_iter().partition(|(done, _)| done.tree.dropped.load(Ordering::Acquire));
        dead.iter().flat_map(|(_, tables)| tables).for_each(|table| table.mark_obsolete());
        let edits = live.iter().flat_map(|(done, tables)| edits_of(done.tree, done.job, tables));
        catalog.commit(self, edits.collect())?;
        for (done, tables) in &live {
            let add: Vec<_> =
                tables.iter().map(|table| (done.job.output_level, Arc::clone(table))).collect();
            let levels = done.tree.levels.get().edited(&done.job.input_ids(), &add);
            done.tree.levels.store(Arc::new(levels));
        }
        self.note_zero_tables();
        drop(catalog);
        let inputs = live.iter().flat_map(|(done, _)| &done.job.inputs);
        inputs.for_each(|(_, table)| table.mark_obsolete());
        Ok(())
    }
}
