//! Many small compactions at once, of different LSM trees. Their small outputs share a file, so
//! that thousands of keyspaces and partitions do not become thousands of files and syncs.

use rhumb_sync::primitive::{Arc, MutexGuard, Ordering};

use super::{
    compact::{Due, record},
    core::Core,
    install::{IfDropped, TreeChange, With},
};
use crate::{
    compaction::{
        expired::Horizon,
        job::{Job, Merge},
        joins::JoinSizes,
        pack, picker,
    },
    error::Result,
    events::{Span, Work},
    table::{NewTables, SharedWriter, TableWriter},
    tree::{CompactionState, Tree},
};

/// The number of bytes that an opening reads to join small tables, in all. A process that ends
/// before its pool has begun leaves its tables to the next process; without this, each opening
/// would add some. A mebibyte is merged in some 10 ms, and most openings have nothing to join.
const OPENING_BYTES_MAX: u64 = 1 << 20;

/// The compactions of one LSM tree, with its compaction lock.
pub(super) struct Part<'t> {
    pub(super) tree: &'t Arc<Tree>,
    pub(super) merges: Vec<Merge>,
    /// Held so that no other compaction of the LSM tree runs meanwhile.
    pub(super) _lock: MutexGuard<'t, CompactionState>,
}

/// A compaction that was done and must still be installed.
struct Done<'a> {
    tree: &'a Arc<Tree>,
    merge: &'a Merge,
    outputs: NewTables<'a>,
}

impl Core {
    /// Does the small compactions that are due, all together, until they have read `bytes_max`.
    /// Returns how many bytes they read.
    pub(super) fn compact_small(
        &self,
        due: &[Due],
        horizon: Horizon,
        bytes_max: u64,
    ) -> Result<u64> {
        let mut parts = Vec::new();
        let mut bytes = 0;
        for Due { level, tree, .. } in due {
            let Some(mut state) = tree.compaction.try_lock() else { continue };
            let levels = tree.levels.get();
            let cursor = state.cursor(*level);
            let job = picker::pick(&levels, *level, &cursor, &self.shared.options, horizon);
            let Some(Job::Merge(merge)) = job else { continue };
            if !picker::is_small(&merge, &self.shared.options) {
                continue;
            }
            if bytes + merge.input_bytes() > bytes_max {
                break;
            }
            bytes += merge.input_bytes();
            record(&mut state, *level, &merge.inputs);
            parts.push(Part { tree, merges: vec![merge], _lock: state });
        }
        let is_any = self.compact_parts(&parts)?;
        Ok(if is_any { bytes } else { 0 })
    }

    /// Joins the small tables and packs the small files that earlier openings and closings of the
    /// database have left, as far as that takes little time.
    pub(crate) fn compact_at_opening(&self) {
        self.count_tables();
        let mut left = OPENING_BYTES_MAX;
        loop {
            let (due, horizon) = self.due_compactions();
            match self.compact_small(&due, horizon, left) {
                Ok(bytes) if bytes > 0 => left -= bytes,
                Ok(_) => break,
                // The pool tries failed work again, and reports the failure.
                Err(_) => return,
            }
        }
        let _ = self.pack_files(left);
    }

    /// Does the compactions of `parts`; their small outputs share a file. Returns false if none of
    /// them was wanted any more.
    pub(super) fn compact_parts(&self, parts: &[Part<'_>]) -> Result<bool> {
        let span = Span::enter(Work::Compaction);
        let jobs: usize = parts.iter().map(|part| part.merges.len()).sum();
        let mut shared = None;
        let mut done = Vec::with_capacity(jobs);
        let all = parts.iter().flat_map(|part| part.merges.iter().map(|merge| (part.tree, merge)));
        for (tree, merge) in all {
            let outputs = match self.merge_small(tree, merge, jobs > 1, &mut shared) {
                // The LSM tree was dropped, or the database is being closed.
                Err(_) if !self.is_compaction_wanted(tree) => continue,
                outputs => outputs?,
            };
            done.push(Done { tree, merge, outputs });
        }
        if done.is_empty() {
            return Ok(false);
        }
        // A shared file without outputs is removed with its writer.
        let is_used = |done: &Done<'_>| done.outputs.iter().any(|meta| meta.place.is_some());
        shared = shared.filter(|_| done.iter().any(is_used));
        shared.as_mut().map_or(Ok(()), SharedWriter::sync)?;
        self.shared.sync_dir()?;
        self.install_small(&span, done, shared)?;
        Ok(true)
    }

    /// Does one compaction. A small output goes to the shared file if there `are_many`.
    fn merge_small(
        &self,
        tree: &Tree,
        merge: &Merge,
        are_many: bool,
        shared: &mut Option<SharedWriter>,
    ) -> Result<NewTables<'_>> {
        self.check_compaction_wanted(tree)?;
        let mut outputs = NewTables::new(&self.shared.tables);
        let held = JoinSizes::of(&self.shared.options).shared;
        let mut finish = |writer: TableWriter| match are_many {
            true => writer.finish_into(|| self.shared_writer(shared)),
            false => writer.finish(),
        };
        self.merge_into(tree, merge, held, &mut finish, &mut outputs)?;
        Ok(outputs)
    }

    /// Replaces all inputs by their outputs, with one edit.
    fn install_small(
        &self,
        span: &Span,
        mut done: Vec<Done<'_>>,
        shared: Option<SharedWriter>,
    ) -> Result<()> {
        let mut changes = Vec::with_capacity(done.len());
        for Done { tree, merge, outputs } in &mut done {
            let tables = self.open_outputs(merge, outputs)?;
            self.report_merge(span, tree, merge, outputs);
            let added = tables.into_iter().map(|table| (merge.level, table)).collect();
            let removed = merge.inputs.clone();
            changes.push(TreeChange { tree: Arc::clone(tree), removed, added });
        }
        self.shared.counters.compactions.fetch_add(1, Ordering::Relaxed);
        let keep = || {
            done.iter_mut().for_each(|done| done.outputs.keep());
            shared.into_iter().for_each(SharedWriter::keep);
        };
        let with = With { keep, edit: |_: &_, tables| tables, show: |now: &dyn Fn()| now() };
        self.install(&changes, IfDropped::GiveUp, with)
    }

    /// Packs the smallest files, if there are many, of up to `bytes_max` in all. Returns true if
    /// any were packed. Looking costs O(tables), and is done once after each change of some
    /// LSM tree's tables.
    pub(super) fn pack_files(&self, bytes_max: u64) -> Result<bool> {
        if !self.scheduler.tables_changed.swap(false, Ordering::Relaxed) {
            return Ok(false);
        }
        let sizes = JoinSizes::of(&self.shared.options);
        let trees: Vec<Arc<Tree>> = self.trees.lock().live().cloned().collect();
        let (chosen, trees) = pack::choose_files(&trees, sizes, bytes_max);
        let mut parts = Vec::new();
        for tree in trees.values() {
            let Some(lock) = tree.compaction.try_lock() else { continue };
            let merges = pack::merges_of(&tree.levels.get(), &chosen, sizes);
            parts.push(Part { tree, merges, _lock: lock });
        }
        // Packing a single table would not save a file.
        let merges: usize = parts.iter().map(|part| part.merges.len()).sum();
        if merges < 2 {
            return Ok(false);
        }
        // Looks again if this fails.
        self.scheduler.tables_changed.store(true, Ordering::Relaxed);
        self.compact_parts(&parts)
    }
}
