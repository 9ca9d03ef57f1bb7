//! Lists the edits of a manifest, in words.

use std::path::Path;

use super::{
    file_bytes,
    report::{ManifestReport, RecordContent, RecordReport},
};
use crate::{
    error::{Error, Result},
    io::FileSystem,
    version::{
        edit::{Edit, EventKind},
        manifest::read_manifest,
    },
};

/// Lists the manifest in the file `path`.
pub(super) fn report(fs: &dyn FileSystem, path: &Path) -> Result<ManifestReport> {
    let file_bytes = file_bytes(fs, path)?;
    let mut records = Vec::new();
    let read = read_manifest(fs, path, 0, |record| {
        let edits = record.edit.edits.iter().map(describe).collect();
        records.push(RecordReport {
            offset: record.offset,
            bytes: record.bytes,
            content: RecordContent::Edits(edits),
        });
        Ok(())
    });
    let fault = match read {
        Ok(torn) => torn.map(|offset| (offset, "a torn end, which is ignored".to_owned())),
        Err(Error::Corrupt(damage)) => {
            Some((damage.offset, format!("expected {}, found {}", damage.expected, damage.found)))
        }
        Err(other) => return Err(other),
    };
    records.extend(fault.map(|(offset, what)| RecordReport {
        offset,
        bytes: file_bytes.saturating_sub(offset),
        content: RecordContent::Damaged(what),
    }));
    Ok(ManifestReport { path: path.to_owned(), file_bytes, records })
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
        Edit::Clock { ms } => format!("the clock is at {ms} ms or later"),
        Edit::CreatePartition { root, name, tree } => {
            let name = shortened(name);
            format!("create partition \"{name}\" of sub-tree {root} with sub-tree {tree}")
        }
        Edit::DropPartition { root, name } => {
            format!("drop partition \"{}\" of sub-tree {root}", shortened(name))
        }
        Edit::RetireTree { tree, segment } => {
            format!(
                "the log's creation of sub-tree {tree}, up to segment {segment}, does not count"
            )
        }
        Edit::Event(event) => {
            let what = match &event.what {
                EventKind::Opened { .. } => "is opened",
                EventKind::Dropped => "is dropped",
                EventKind::Cleared => "is cleared",
                EventKind::PartitionsDropped => "loses partitions",
                EventKind::Ingested => "takes an ingestion",
            };
            format!(
                "for streams of changes: number {}, keyspace {:?} {what}",
                event.seq, event.keyspace
            )
        }
        Edit::HistoryFrom { seq } => format!("streams of changes begin at number {seq} or later"),
        Edit::Source { identity } => format!("a copy of the database {identity:016x}"),
    }
}

/// A key, cut if it would make the line long.
fn shortened(key: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 32;
    match key.get(..SHOWN_BYTES_MAX) {
        Some(start) if key.len() > SHOWN_BYTES_MAX => format!("{}…", start.escape_ascii()),
        _ => key.escape_ascii().to_string(),
    }
}
