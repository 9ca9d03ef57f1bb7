//! Keeps segments of the log that only cursors still need.
//!
//! A cursor is a file in the database's directory (`cursor.rs`), which its owner writes, in this
//! process or another. So before a segment is removed, the cursors are read. A segment is kept if a
//! cursor needs it, as long as the segments that the cursor needs beside those of the memtables
//! take no more bytes than it allows.

use std::sync::atomic::Ordering;

use rhumb_sync::primitive::AtomicBool;

use super::{super::core::Core, cursor};
use crate::{
    log::{
        LogWriter,
        begin::{self, SegmentBegin},
        segment::{parse_segment_name, segment_path},
    },
    types::FileId,
};

/// What is known of the kept segments.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    /// True if there were cursors when they were last looked at.
    has_cursors: AtomicBool,
    /// True if there are segments that only cursors need.
    keeps: AtomicBool,
}

impl Keeper {
    /// Returns true if there are cursors, as far as is known.
    pub(crate) fn has_cursors(&self) -> bool {
        self.has_cursors.load(Ordering::Acquire)
    }

    /// Takes note of a cursor.
    pub(super) fn note_cursor(&self) {
        self.has_cursors.store(true, Ordering::Release);
    }
}

impl Core {
    /// Removes segments that no memtable needs, but for those that cursors need. Segments that were
    /// kept before are looked at again.
    pub(crate) fn remove_logs(&self, logs: Vec<LogWriter>) {
        let floor = self.writer.log_floor.load(Ordering::Acquire);
        let kept_from = self.kept_from(floor);
        let was_keeping = self.writer.keeper.keeps.swap(kept_from < floor, Ordering::AcqRel);
        let mut old: Vec<FileId> = logs.iter().map(|log| log.header().id).collect();
        drop(logs);
        if was_keeping {
            old.extend(self.segments_before(kept_from));
        }
        old.sort_unstable();
        old.dedup();
        for id in old.into_iter().filter(|id| *id < kept_from) {
            self.shared.remove_file(&segment_path(&self.shared.dir, id));
        }
    }

    /// The segments in the directory that the memtables or cursors need.
    pub(crate) fn kept_logs(&self) -> Vec<FileId> {
        let floor = self.writer.log_floor.load(Ordering::Acquire);
        let kept_from = self.kept_from(floor);
        self.writer.keeper.keeps.store(kept_from < floor, Ordering::Release);
        let mut kept = self.segments_before(floor);
        kept.retain(|id| *id >= kept_from);
        kept.push(floor);
        kept
    }

    /// The segments in the directory that are older than `end`.
    fn segments_before(&self, end: FileId) -> Vec<FileId> {
        let names = self.shared.fs.list(&self.shared.dir).unwrap_or_default();
        let ids = names.iter().filter_map(|name| parse_segment_name(name));
        ids.filter(|id| *id < end).collect()
    }

    /// The first segment that must stay; `floor` if none of the older ones must. If the cursors
    /// cannot be read, all must.
    fn kept_from(&self, floor: FileId) -> FileId {
        let found = cursor::all(&self.shared.fs, &self.shared.dir);
        let has_cursors = !matches!(&found, Ok(cursors) if cursors.is_empty());
        self.writer.keeper.has_cursors.store(has_cursors, Ordering::Release);
        if !has_cursors {
            return floor;
        }
        let kept = found.and_then(|cursors| {
            let identity = self.lock_catalog().state.identity;
            let segments = begin::segments(&self.shared.fs, &self.shared.dir, identity)?;
            let starts = cursors.iter().map(|cursor| start_of(cursor, &segments, floor));
            // planted: changes-kept
            Ok(starts.min().unwrap_or(floor))
        });
        kept.unwrap_or(0)
    }
}

/// The first segment that a cursor keeps; `floor` if it keeps none that the memtables do not need.
fn start_of(cursor: &cursor::CursorInfo, segments: &[SegmentBegin], floor: FileId) -> FileId {
    let needed = begin::position(segments, cursor.position).map_or(&[][..], |at| &segments[at..]);
    let mut older: Vec<&SegmentBegin> = needed.iter().filter(|it| it.id < floor).collect();
    let mut bytes: u64 = older.iter().map(|it| it.file_bytes).sum();
    older.retain(|it| {
        // planted: changes-limit
        let is_kept = bytes <= cursor.keep_bytes;
        if !is_kept {
            bytes -= it.file_bytes;
        }
        is_kept
    });
    older.first().map_or(floor, |it| it.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_keeps_what_it_needs_up_to_its_limit() {
        let at = |id, first_seq| SegmentBegin { id, base: id * 100, file_bytes: 100, first_seq };
        let all = [at(3, Some(10)), at(4, Some(20)), at(5, None), at(6, Some(30)), at(7, None)];
        let cursor = |position, keep_bytes| cursor::CursorInfo {
            name: "c".to_owned(),
            position,
            keep_bytes,
        };
        for (position, keep_bytes, floor, expected) in [
            (10, 1000, 7, 3),
            (19, 1000, 7, 3),
            (20, 1000, 7, 4),
            (30, 1000, 7, 6),
            (99, 1000, 7, 6),
            (10, 400, 7, 3),
            (10, 399, 7, 4),
            (10, 100, 7, 6),
            (10, 99, 7, 7),
            (10, 1000, 3, 3),
            (30, 1000, 6, 6),
        ] {
            let start = start_of(&cursor(position, keep_bytes), &all, floor);
            assert_eq!(start, expected, "{position} {keep_bytes} {floor}");
        }
        assert_eq!(start_of(&cursor(1, 9), &[], 4), 4);
    }
}
