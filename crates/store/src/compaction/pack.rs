//! Packing: the tables of many small files are rewritten into one file.
//!
//! A keyspace or partition that is written once keeps one small table. The table is alone in its
//! file if nothing else was written with it, and a file that tables share lives as long as the last
//! of them. Without packing, a thousand of these would be a thousand files.

use std::collections::BTreeMap;

use rhumb_sync::primitive::Arc;

use super::{
    job::Merge,
    joins::{self, JoinSizes},
    picker,
};
use crate::{
    table::Table,
    tree::Tree,
    types::{FileId, TreeId},
    version::levels::Levels,
};

/// A small file: its live bytes, and the LSM trees of its tables.
#[derive(Default)]
struct SmallFile {
    bytes: u64,
    trees: Vec<Arc<Tree>>,
}

/// The smallest files, if there are many, of up to `bytes_max` in all: their ids, ascending, and
/// the LSM trees that have tables in them, by id. O(tables).
pub(crate) fn choose_files(
    trees: &[Arc<Tree>],
    sizes: JoinSizes,
    bytes_max: u64,
) -> (Vec<FileId>, BTreeMap<TreeId, Arc<Tree>>) {
    let mut files: Vec<(FileId, SmallFile)> = small_files(trees, sizes).into_iter().collect();
    files.sort_by_key(|(id, file)| (file.bytes, *id));
    let bytes: Vec<u64> = files.iter().map(|(_, file)| file.bytes).collect();
    let within = JoinSizes { target: sizes.target.min(bytes_max), ..sizes };
    files.truncate(joins::pick_files(&bytes, within));
    let mut chosen: Vec<FileId> = files.iter().map(|(id, _)| *id).collect();
    chosen.sort_unstable();
    let trees = files.into_iter().flat_map(|(_, file)| file.trees);
    (chosen, trees.map(|tree| (tree.id, tree)).collect())
}

/// The merges that rewrite those tables of an LSM tree which are in one of the files `chosen`,
/// sorted ascending.
pub(crate) fn merges_of(levels: &Levels, chosen: &[FileId], sizes: JoinSizes) -> Vec<Merge> {
    let is_chosen = |table: &Arc<Table>| {
        small_file_of(table, sizes).is_some_and(|(id, _)| chosen.binary_search(&id).is_ok())
    };
    let tables = levels.all().filter(|(_, table)| is_chosen(table));
    tables
        .map(|(at, table)| picker::merge_within(levels, at, std::slice::from_ref(table)))
        .collect()
}

/// All files that are small enough to be packed.
fn small_files(trees: &[Arc<Tree>], sizes: JoinSizes) -> BTreeMap<FileId, SmallFile> {
    let mut files: BTreeMap<FileId, SmallFile> = BTreeMap::new();
    for tree in trees {
        for (_, table) in tree.levels.get().all() {
            let Some((id, bytes)) = small_file_of(table, sizes) else { continue };
            let file = files.entry(id).or_default();
            file.bytes += bytes;
            file.trees.push(Arc::clone(tree));
        }
    }
    files
}

/// The id of the file that holds a table, if the file is small, and the number of its bytes that
/// the table takes. A table with large values has a second file, which stays its own: packing would
/// gain little.
fn small_file_of(table: &Table, sizes: JoinSizes) -> Option<(FileId, u64)> {
    let meta = table.meta();
    let file_bytes = table.shared_file_bytes().unwrap_or(meta.file_bytes);
    let is_small = meta.value_file_bytes == 0 && file_bytes <= sizes.shared;
    is_small.then(|| (meta.place.map_or(meta.id, |place| place.file), meta.file_bytes))
}
