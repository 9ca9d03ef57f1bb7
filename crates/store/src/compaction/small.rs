//! Compactions of many small partitions at once: each is merged whole, and the results share a file, so
//! that thousands of partitions do not become thousands of files.

use super::{
    picker::{self, Job},
    worker::edits_of,
};
use crate::{
    db::{
        core::{Core, Tree},
        new_tables::NewTables,
    },
    error::Result,
    sync::primitive::{Arc, Ordering},
    table::{SharedWriter, Table, TableWriter},
};

/// The most partitions that are compacted together.
const GROUP_MAX: usize = 1024;

/// A partition's compaction.
struct Part<'a> {
    tree: &'a Arc<Tree>,
    job: Job,
    outputs: NewTables<'a>,
}

impl Core {
    /// Compacts small partitions, each into one level; says whether any was.
    pub(super) fn compact_small(&self, due: &[&Arc<Tree>]) -> Result<bool> {
        let mut locks = Vec::new();
        let mut parts = Vec::new();
        let mut shared = None;
        for tree in due.iter().take(GROUP_MAX) {
            let Some(lock) = tree.compaction.try_lock() else { continue };
            locks.push(lock);
            let job = picker::pick_whole(&tree.levels.get());
            if job.inputs.is_empty() {
                continue;
            }
            let outputs = match self.merge_small(tree, &job, &mut shared) {
                // It was dropped, or the database is being closed.
                Err(_) if !self.is_compaction_wanted(tree) => continue,
                outputs => outputs?,
            };
            parts.push(Part { tree, job, outputs });
        }
        // A file that no output lies in goes with its writer.
        shared = shared.filter(|_| parts.iter().any(|part: &Part<'_>| !part.outputs.is_empty()));
        shared.as_mut().map_or(Ok(()), SharedWriter::sync)?;
        self.sync_dir()?;
        let is_any = !parts.is_empty();
        self.install_small(parts, shared)?;
        Ok(is_any)
    }

    /// Merges all of a partition; what is small goes to the shared file.
    fn merge_small(
        &self,
        tree: &Tree,
        job: &Job,
        shared: &mut Option<SharedWriter>,
    ) -> Result<NewTables<'_>> {
        let mut outputs = NewTables::new(self);
        let mut finish = |writer: TableWriter| writer.finish_into(|| self.shared_writer(shared));
        self.merge_into(tree, job, &mut finish, &mut outputs)?;
        Ok(outputs)
    }

    /// Puts all outputs in the place of their inputs, with one edit.
    fn install_small(&self, parts: Vec<Part<'_>>, shared: Option<SharedWriter>) -> Result<()> {
        let mut opened: Vec<(Part<'_>, Vec<Arc<Table>>)> = Vec::with_capacity(parts.len());
        for mut part in parts {
            let tables = self.open_outputs(&part.job, &mut part.outputs)?;
            opened.push((part, tables));
        }
        self.counters.compactions.fetch_add(1, Ordering::Relaxed);
        let mut catalog = self.lock_catalog();
        opened.iter_mut().for_each(|(part, _)| part.outputs.keep());
        shared.into_iter().for_each(SharedWriter::keep);
        let (dead, live): (Vec<_>, Vec<_>) =
            opened.into_iter().partition(|(part, _)| part.tree.dropped.load(Ordering::Acquire));
        dead.iter().flat_map(|(_, tables)| tables).for_each(|table| table.mark_obsolete());
        let edits = live.iter().flat_map(|(part, tables)| edits_of(part.tree, &part.job, tables));
        catalog.commit(self, edits.collect())?;
        for (part, tables) in &live {
            let add: Vec<_> =
                tables.iter().map(|table| (part.job.output_level, Arc::clone(table))).collect();
            let levels = part.tree.levels.get().edited(&part.job.input_ids(), &add);
            part.tree.levels.store(Arc::new(levels));
        }
        self.note_zero_tables();
        drop(catalog);
        let inputs = live.iter().flat_map(|(part, _)| &part.job.inputs);
        inputs.for_each(|(_, table)| table.mark_obsolete());
        Ok(())
    }
}
