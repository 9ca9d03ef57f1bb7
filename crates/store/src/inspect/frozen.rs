//! Holds the files of a database as they are at one moment, for inspections beside a writer.
//!
//! The manifest is taken first, at the length that it has then, and after it the files that it
//! names and the log. The writer removes a file only after the manifest durably does not name it.
//! So if one of them is gone, either the manifest has changed, and all begins anew with what is
//! held already, or it is missing. Segments of the log are taken from the newest to the oldest: an
//! older one is not written any more, so nothing that the newer one continues is missing in it.

use std::{io::ErrorKind, path::Path};

use rhumb_sync::primitive::Arc;

use crate::{
    db::take_shared_lock,
    error::{Error, Result},
    io::{
        FileLock, FileSystem, frozen::FrozenDir, open_files::OpenFiles, read_only::NoLock, retry,
    },
    log::segment::{parse_segment_name, segment_path},
    table::{home_path, value_path},
    types::FileId,
    version::{
        manifest::{CURRENT_NAME, Manifest, manifest_path},
        state::CatalogState,
    },
};

/// The number of times that the manifest may change before all files are held. Each time, those
/// that are still there stay held.
const CHANGES_MAX: u32 = 1000;

/// The files of a database that stay as they are, and what else keeps them there.
pub(super) type Frozen = (Arc<dyn FileSystem>, Box<dyn FileLock>);

/// Holds the files of the database in `dir`. If they are more than the descriptors that the process
/// may have, a shared lock keeps writers out instead. A damaged manifest names no files: then the
/// directory is returned as it is.
pub(super) fn freeze(fs: &Arc<dyn FileSystem>, dir: &Path) -> Result<Frozen> {
    let descriptors = OpenFiles::new(&**fs, None).max();
    let mut frozen = FrozenDir::new(fs, dir);
    for _ in 0..CHANGES_MAX {
        let Ok((id, state)) = hold_manifest(&mut frozen, dir) else { break };
        if frozen.held() as u64 + files_of(&state) > descriptors {
            return Ok((Arc::clone(fs), take_shared_lock(&**fs, dir)?));
        }
        if hold_files(&mut frozen, dir, &state)? || !has_changed(fs, &frozen, dir, id)? {
            return Ok((Arc::new(frozen), Box::new(NoLock)));
        }
    }
    Ok((Arc::clone(fs), Box::new(NoLock)))
}

/// Takes the manifest as it is now. Returns its number and its contents.
fn hold_manifest(frozen: &mut FrozenDir, dir: &Path) -> Result<(FileId, CatalogState)> {
    let current = dir.join(CURRENT_NAME);
    let mut attempt = || -> Result<(FileId, CatalogState)> {
        retry("open", &current, || frozen.hold_again(&current))?;
        let id = Manifest::current(frozen, dir)?;
        let manifest = manifest_path(dir, id);
        retry("open", &manifest, || frozen.hold_again(&manifest))?;
        let recovered = Manifest::recover(frozen, dir)?;
        let missing = || Error::NotFound("there is no manifest".into());
        recovered.map(|recovered| (recovered.id, recovered.state)).ok_or_else(missing)
    };
    // One that was replaced in between is gone.
    attempt().or_else(|_| attempt())
}

/// Holds all files that the catalog names. Returns false if one is not there.
fn hold_files(frozen: &mut FrozenDir, dir: &Path, state: &CatalogState) -> Result<bool> {
    let mut are_all_there = true;
    let mut hold =
        |frozen: &mut FrozenDir, path: &Path, is_named: bool| match retry("open", path, || {
            frozen.hold(path)
        }) {
            Err(Error::Io(failure)) if failure.source.kind() == ErrorKind::NotFound => {
                are_all_there &= !is_named;
                Ok(())
            }
            other => other,
        };
    for meta in state.tables() {
        hold(frozen, &home_path(dir, meta), true)?;
        if meta.value_file_bytes > 0 {
            hold(frozen, &value_path(dir, meta.id), true)?;
        }
    }
    retry("list", dir, || frozen.list_now())?;
    let start = state.log_start();
    let names = retry("list", dir, || frozen.list(dir))?;
    let mut segments: Vec<FileId> =
        names.iter().filter_map(|name| parse_segment_name(name)).collect();
    segments.retain(|id| *id >= start.segment);
    segments.sort_unstable();
    for id in segments.iter().rev() {
        hold(frozen, &segment_path(dir, *id), *id == start.segment)?;
    }
    let is_log_there = !start.must_exist || segments.first() == Some(&start.segment);
    Ok(are_all_there && is_log_there)
}

/// Returns true if the manifest that counts is not the one that is held, or has grown.
fn has_changed(
    fs: &Arc<dyn FileSystem>,
    frozen: &FrozenDir,
    dir: &Path,
    id: FileId,
) -> Result<bool> {
    if Manifest::current(&**fs, dir)? != id {
        return Ok(true);
    }
    let path = manifest_path(dir, id);
    Ok(super::file_bytes(&**fs, &path)? > super::file_bytes(frozen, &path)?)
}

/// The most files that the tables of a catalog lie in.
fn files_of(state: &CatalogState) -> u64 {
    state.tables().map(|meta| 1 + u64::from(meta.value_file_bytes > 0)).sum()
}
