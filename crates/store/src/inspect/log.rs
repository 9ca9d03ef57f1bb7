//! Lists the records of a log segment.

use std::path::Path;

use super::report::{LogReport, RecordContent, RecordReport};
use crate::{
    error::Result,
    io::FileSystem,
    log::{
        creation::Creation,
        reader::{FrameState, inspect_segment},
    },
};

/// A creation in words.
fn describe(creation: &Creation) -> String {
    let Creation { root, tree, name } = creation;
    format!("create partition \"{}\" of sub-tree {root} with sub-tree {tree}", name.escape_ascii())
}

/// Lists the segment in the file `path`.
pub(super) fn report(fs: &dyn FileSystem, path: &Path) -> Result<LogReport> {
    let segment = inspect_segment(fs, path, None)?;
    let file_bytes = segment.file_bytes;
    let header = segment.header.clone().map(|header| (header.id, header.base));
    let records = segment.map(|frame| {
        let frame = frame?;
        let content = match frame.state {
            FrameState::Batch { first_seq, ops, .. } => {
                RecordContent::Batch { first_seq, operations: ops }
            }
            FrameState::Creations(creations) => {
                RecordContent::Edits(creations.iter().map(describe).collect())
            }
            FrameState::Mark { synced } => RecordContent::Mark { synced },
            FrameState::NotABatch { offset, expected } => {
                RecordContent::Damaged(format!("no {expected} at byte {offset} of the record"))
            }
            FrameState::Damaged => RecordContent::Damaged("a wrong checksum, or cut off".into()),
            FrameState::Unknown => RecordContent::Damaged("no record".into()),
        };
        Ok(RecordReport { offset: frame.offset, bytes: frame.bytes, content })
    });
    let records = records.collect::<Result<Vec<_>>>()?;
    Ok(LogReport { path: path.to_owned(), file_bytes, header, records })
}
