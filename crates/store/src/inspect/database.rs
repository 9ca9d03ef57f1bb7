//! Describes a database from its manifest and the ends of its tables.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use rhumb_sync::primitive::Arc;

use super::{
    file_bytes,
    frozen::freeze,
    list,
    report::{DatabaseReport, KeyspaceReport, LevelReport, PartitionReport, Problem},
    table::{context, describe},
};
use crate::{
    db::hold_existing,
    error::{Error, NO_FILE, Result},
    io::FileSystem,
    log::segment::{parse_segment_name, segment_path},
    table::{Table, TableContext, TableMeta, home_path, parse_table_name},
    types::TreeId,
    version::{
        manifest::{Manifest, manifest_path},
        state::CatalogState,
    },
};

/// Describes the database in `dir`.
pub(super) fn report(fs: &Arc<dyn FileSystem>, dir: &Path) -> Result<DatabaseReport> {
    let (frozen, _lock) = freeze(&hold_existing(fs, dir)?, dir)?;
    let fs = &frozen;
    let Some(recovered) = Manifest::recover(&**fs, dir)? else {
        let what = format!("there is no database in {}", dir.display());
        return Err(Error::NotFound(what.into()));
    };
    let manifest = manifest_path(dir, recovered.id);
    let state = &recovered.state;
    let mut report = DatabaseReport {
        path: dir.to_owned(),
        manifest_bytes: file_bytes(&**fs, &manifest)?,
        manifest,
        log: Vec::new(),
        keyspaces: Vec::new(),
        kept_log: Vec::new(),
        leftover_files: Vec::new(),
        problems: Vec::new(),
    };
    add_keyspaces(&mut report, fs, state);
    add_files(&mut report, &**fs, state)?;
    Ok(report)
}

fn add_keyspaces(report: &mut DatabaseReport, fs: &Arc<dyn FileSystem>, state: &CatalogState) {
    let ctx = context(fs, &report.path);
    let mut keyspaces: Vec<_> = state.keyspaces.values().collect();
    keyspaces.sort_by(|a, b| a.name.cmp(&b.name));
    for keyspace in keyspaces {
        let levels = tree_levels(report, &ctx, state, keyspace.tree);
        let partitions = state
            .partitions_of(keyspace.tree)
            .map(|(name, tree)| PartitionReport {
                name: name.to_vec(),
                levels: tree_levels(report, &ctx, state, tree),
            })
            .collect();
        report.keyspaces.push(KeyspaceReport { name: keyspace.name.clone(), levels, partitions });
    }
}

/// Describes the tables of an LSM tree, level by level.
fn tree_levels(
    report: &mut DatabaseReport,
    ctx: &Arc<TableContext>,
    state: &CatalogState,
    tree: TreeId,
) -> Vec<LevelReport> {
    let mut levels: Vec<LevelReport> = Vec::new();
    let mut tables: Vec<(usize, &TableMeta)> = state.tables_of(tree).collect();
    tables.sort_by(|(_, a), (_, b)| a.smallest.cmp(&b.smallest).then(a.id.cmp(&b.id)));
    for (level, meta) in tables {
        levels.resize_with(levels.len().max(level + 1), LevelReport::default);
        match Table::open(ctx, meta.clone()) {
            Ok(table) => levels[level].tables.push(describe(&table)),
            Err(error) => report.problems.push(Problem {
                path: home_path(&report.path, meta),
                offset: None,
                what: error.to_string(),
            }),
        }
    }
    if let Some(l0) = levels.first_mut() {
        l0.tables.sort_by_key(|table| std::cmp::Reverse((table.seqs.1, table.id)));
    }
    levels
}

fn add_files(report: &mut DatabaseReport, fs: &dyn FileSystem, state: &CatalogState) -> Result<()> {
    let live: HashSet<u64> = state.tables().map(|meta| meta.id).collect();
    let homes: HashSet<PathBuf> =
        state.tables().map(|meta| home_path(&report.path, meta)).collect();
    let files = list(fs, &report.path)?;
    // Which of the older segments they need, the process knows that writes.
    let has_cursors = files.iter().any(|path| path.extension().is_some_and(|it| it == "cursor"));
    for path in files {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if let Some(id) = parse_segment_name(&name) {
            if id >= state.log_start().segment {
                let bytes = file_bytes(fs, &path)?;
                report.log.push((path, bytes));
            } else if has_cursors {
                let bytes = file_bytes(fs, &path)?;
                report.kept_log.push((path, bytes));
            } else {
                report.leftover_files.push(path);
            }
            continue;
        }
        let table = name.replace(".val", ".sst");
        let is_leftover = match parse_table_name(&table) {
            Some(id) => !live.contains(&id),
            None if name.ends_with(".set") => !homes.contains(&path),
            None => name.starts_with("MANIFEST-") && path != report.manifest,
        };
        if is_leftover {
            report.leftover_files.push(path);
        }
    }
    let start = state.log_start();
    let segment = segment_path(&report.path, start.segment);
    if start.must_exist && !report.log.iter().any(|(path, _)| *path == segment) {
        let missing =
            Error::corrupt(&segment, 0, "the log segment that the manifest names", NO_FILE);
        report.problems.push(Problem { path: segment, offset: None, what: missing.to_string() });
    }
    Ok(())
}
