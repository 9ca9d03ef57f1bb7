//! Packing: the tables of many small files are rewritten into one file.
//!
//! A keyspace or partition that is written once keeps one small table, alone in its file if nothing
//! else was written with it, and a file that tables share lives as long as the last of them.
//! Without packing, a thousand of these would be a thousand files.

use std::collections::BTreeMap;

use rhumb_sync::primitive::{Arc, Ordering};

use super::{
    joins::{self, Sizes},
    picker,
    small::Part,
};
use crate::{
    db::core::{Core, Tree},
    error::Result,
    table::Table,
    types::FileId,
};

/// A small file: what is alive in it, and where its tables are.
#[derive(Default)]
struct SmallFile {
    bytes: u64,
    trees: Vec<Arc<Tree>>,
}

impl Core {
    /// Packs the smallest files if there are many, of up to `bytes_max` in all; says whether any
    /// were. O(tables) to look, which is done once after each change of some sub-tree's tables.
    pub(super) fn pack_files(&self, bytes_max: u64) -> Result<bool> {
        if !self.work.tables_changed.swap(false, Ordering::Relaxed) {
            return Ok(false);
        }
        let sizes = Sizes::of(&self.options);
        let mut files: Vec<(FileId, SmallFile)> = self.small_files(sizes).into_iter().collect();
        files.sort_by_key(|(id, file)| (file.bytes, *id));
        let bytes: Vec<u64> = files.iter().map(|(_, file)| file.bytes).collect();
        let within = Sizes { target: sizes.target.min(bytes_max), ..sizes };
        files.truncate(joins::pick_files(&bytes, within));
        let chosen: Vec<FileId> = {
            let mut ids: Vec<FileId> = files.iter().map(|(id, _)| *id).collect();
            ids.sort_unstable();
            ids
        };
        let mut trees: BTreeMap<u32, &Arc<Tree>> = BTreeMap::new();
        for tree in files.iter().flat_map(|(_, file)| &file.trees) {
            trees.insert(tree.id, tree);
        }
        let mut parts = Vec::new();
        for tree in trees.into_values() {
            let Some(lock) = tree.compaction.try_lock() else { continue };
            let levels = tree.levels.get();
            let is_chosen = |table: &Arc<Table>| {
                small_file_of(table, sizes).is_some_and(|(id, _)| chosen.binary_search(&id).is_ok())
            };
            let jobs = levels
                .all()
                .filter(|(_, table)| is_chosen(table))
                .map(|(at, table)| picker::job_within(&levels, at, std::slice::from_ref(table)))
                .collect();
            parts.push(Part { tree, jobs, _lock: lock });
        }
        // Of a single one nothing would become less.
        let jobs: usize = parts.iter().map(|part| part.jobs.len()).sum();
        if jobs < 2 {
            return Ok(false);
        }
        // A failure is looked at again.
        self.work.tables_changed.store(true, Ordering::Relaxed);
        self.compact_parts(&parts)
    }

    /// All files that are small enough to be packed.
    fn small_files(&self, sizes: Sizes) -> BTreeMap<FileId, SmallFile> {
        let trees: Vec<Arc<Tree>> = self.trees.lock().live().cloned().collect();
        let mut files: BTreeMap<FileId, SmallFile> = BTreeMap::new();
        for tree in &trees {
            for (_, table) in tree.levels.get().all() {
                let Some((id, bytes)) = small_file_of(table, sizes) else { continue };
                let file = files.entry(id).or_default();
                file.bytes += bytes;
                file.trees.push(Arc::clone(tree));
            }
        }
        files
    }
}

/// The number of the file that a table lies in, if it is a small one, and how many bytes of it the
/// table takes. A table with large values has a second file, which stays its own: packing would
/// gain little.
fn small_file_of(table: &Table, sizes: Sizes) -> Option<(FileId, u64)> {
    let meta = table.meta();
    let file_bytes = table.shared_file_bytes().unwrap_or(meta.file_bytes);
    let is_small = meta.value_file_bytes == 0 && file_bytes <= sizes.shared;
    is_small.then(|| (meta.place.map_or(meta.id, |place| place.file), meta.file_bytes))
}
