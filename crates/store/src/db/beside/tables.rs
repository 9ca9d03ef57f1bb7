//! The tables of a reader: opened while a writer may be removing them, and held open.

use std::collections::{HashMap, HashSet};

use rhumb_sync::primitive::Arc;

use crate::{
    db::open::take_shared_lock,
    error::{Error, NO_FILE, Result},
    io::{FileLock, FileSystem, open_files::OpenFiles, read_only::NoLock},
    table::{Table, TableContext},
    types::FileId,
    version::{state::CatalogState, tail::ManifestTail},
};

/// The open tables, by number. Numbers are never used again.
pub(super) type Tables = HashMap<FileId, Arc<Table>>;

/// The number of times in a row that tables may be gone before they were opened. Each time, all
/// that are still there stay open, so the writer would have to replace a table in the time in which
/// a few are opened.
const REPLACED_MAX: u32 = 1000;

/// Decides how the files stay there. Descriptors of all of them do it, if the process may have that
/// number. Otherwise a shared lock does, which keeps writers out.
pub(super) fn pin(
    fs: &Arc<dyn FileSystem>,
    dir: &std::path::Path,
    open_files_max: Option<u64>,
    tail: &mut ManifestTail,
) -> Result<(Arc<OpenFiles>, Box<dyn FileLock>)> {
    let pinned = OpenFiles::pinned(&**fs, open_files_max);
    let (files, max) = (files_of(tail.state()), pinned.max());
    if files <= max {
        return Ok((pinned, Box::new(NoLock)));
    }
    let lock = take_shared_lock(&**fs, dir).map_err(|error| match error {
        Error::Locked { path, holder } => {
            let why = format!(
                "{holder}, and the database has {files} files, which is more than the {max} that \
                 may stay open, as they must in a reader beside a writer"
            );
            Error::Locked { path, holder: why }
        }
        other => other,
    })?;
    tail.read_on()?;
    Ok((OpenFiles::new(&**fs, open_files_max), lock))
}

/// The number of files that the tables of a catalog lie in.
fn files_of(state: &CatalogState) -> u64 {
    let mut shared = HashSet::new();
    let count = state.tables().map(|meta| {
        let own = meta.place.is_none_or(|place| shared.insert(place.file));
        u64::from(own) + u64::from(meta.value_file_bytes > 0)
    });
    count.sum()
}

/// Opens all tables that the manifest names and that are not open, and gives up all others. If one
/// is missing the manifest is read on: the writer removes a file only after the manifest durably
/// does not name it.
pub(super) fn open_tables(
    ctx: &Arc<TableContext>,
    tail: &mut ManifestTail,
    tables: &mut Tables,
) -> Result<()> {
    for _ in 0..REPLACED_MAX {
        match open_named(ctx, tail.state(), tables) {
            Ok(()) => {
                let named: HashSet<FileId> = tail.state().tables().map(|meta| meta.id).collect();
                tables.retain(|id, _| named.contains(id));
                return Ok(());
            }
            Err(error) if is_missing(&error) => {
                if !tail.read_on()? {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
    }
    let what = "tables were replaced before they could be opened, again and again";
    Err(Error::Exhausted(what.into()))
}

fn open_named(ctx: &Arc<TableContext>, state: &CatalogState, tables: &mut Tables) -> Result<()> {
    for meta in state.tables() {
        if tables.get(&meta.id).is_none_or(|table| table.meta() != meta) {
            tables.insert(meta.id, Table::open(ctx, meta.clone())?);
        }
    }
    Ok(())
}

/// Returns true if a file that the manifest names is not there.
fn is_missing(error: &Error) -> bool {
    matches!(error, Error::Corrupt(damage) if damage.found == NO_FILE)
}
