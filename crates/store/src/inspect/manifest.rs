//! Lists the edits of a manifest, in words.

use std::path::Path;

use super::report::{ManifestReport, RecordContent, RecordReport};
use crate::{
    error::Result,
    io::FileSystem,
    version::{
        edit::{Edit, VersionEdit},
        manifest::{ManifestFrame, inspect_manifest},
    },
};

/// Lists the manifest in the file `path`.
pub(super) fn report(fs: &dyn FileSystem, path: &Path) -> Result<ManifestReport> {
    todo!()
}

/// An edit in words.
fn describe(edit: &Edit) -> String {
    match edit {
        Edit::Identity { identity } => format!("identity {identity:016x}"),
        Edit::CreateKeyspace { id, name, tree, .. } => {
            format!("create keyspace {id} {name:?} with sub-tree {tree}")
        }
        Edit::DropKeyspace { id } => format!("drop keyspace {id}"),
        Edit::ReplaceTree { keyspace, old, new } => {
            format!("clear keyspace {keyspace}: sub-tree {new} replaces {old}")
        }
        Edit::AddTable { tree, level, meta } => format!(
            "add table {} to level {level} of sub-tree {tree}: {} entries, {} bytes, keys \"{}\" to \"{}\"",
            meta.id,
            meta.entries,
            meta.file_bytes,
            shortened(&meta.smallest),
            shortened(&meta.largest)
        ),
        Edit::RemoveTable { tree, level, id } => {
            format!("remove table {id} from level {level} of sub-tree {tree}")
        }
        Edit::LogFloor { segment, lsn } => {
            format!("the log starts with segment {segment}, at place {lsn}")
        }
        Edit::NextIds { file, tree, keyspace } => {
            format!("next numbers: file {file}, sub-tree {tree}, keyspace {keyspace}")
        }
        Edit::LastSeq { seq } => format!("last write {seq}"),
    }
}

/// A key, cut where it would make the line long.
fn shortened(key: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 32;
    match key.get(..SHOWN_BYTES_MAX) {
        Some(start) if key.len() > SHOWN_BYTES_MAX => format!("{}…", start.escape_ascii()),
        _ => key.escape_ascii().to_string(),
    }
}
