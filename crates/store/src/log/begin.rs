//! Finds where in the log a sequence number is, without reading all of it: the first batch of each
//! segment tells.
//!
//! The log may be written meanwhile, and its oldest segments may be removed. Nothing is written
//! here.

use std::{path::Path, sync::Arc};

use super::{
    Lsn,
    batch::Batch,
    creation::Payload,
    frame::FrameSeed,
    reader::{FrameRead, FrameReader},
    recovery::{LogStart, Segment, cut_segments, read_segment},
    segment::{SEGMENT_HEADER_BYTES, parse_segment_name, segment_path},
};
use crate::{
    error::Result,
    io::{FileSystem, retry},
    types::{FileId, SeqNo},
};

/// A segment of the log that holds records, or will.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentBegin {
    /// Its number.
    pub(crate) id: FileId,
    /// The place of its first byte.
    pub(crate) base: Lsn,
    /// The length of its file.
    pub(crate) file_bytes: u64,
    /// The sequence number of the first batch in it; `None` if there is none yet.
    pub(crate) first_seq: Option<SeqNo>,
}

impl SegmentBegin {
    /// Where the log begins if it is read from this segment on.
    pub(crate) fn log_start(&self) -> LogStart {
        LogStart { segment: self.id, lsn: self.base, must_exist: true }
    }
}

/// The segments of the log in `dir` of the database `identity`, oldest first, but for those that
/// newer ones void. Reads the first batch of each.
///
/// # Errors
///
/// [`Error::Io`]; [`Error::Unsupported`] for a segment of another version.
pub(crate) fn segments(
    fs: &Arc<dyn FileSystem>,
    dir: &Path,
    identity: u64,
) -> Result<Vec<SegmentBegin>> {
    let mut ids: Vec<FileId> = retry("list", dir, || fs.list(dir))?
        .iter()
        .filter_map(|name| parse_segment_name(name))
        .collect();
    ids.sort_unstable();
    let mut all: Vec<Segment> = Vec::with_capacity(ids.len());
    for id in ids {
        match read_segment(&**fs, dir, identity, LogStart::default(), id) {
            Ok(segment) => all.push(segment),
            Err(error) if error.is_missing() => {}
            Err(error) => return Err(error),
        }
    }
    cut_segments(&mut all);
    let mut begins = Vec::with_capacity(all.len());
    for segment in &all {
        let Some(header) = segment.live() else { continue };
        let path = segment_path(dir, segment.id);
        match FrameReader::open(&**fs, &path, FrameSeed::new(identity, segment.id)) {
            Ok(mut reader) => begins.push(SegmentBegin {
                id: segment.id,
                base: header.base,
                file_bytes: reader.file_bytes(),
                first_seq: first_batch(&mut reader, header.base, segment.cut)?,
            }),
            Err(error) if error.is_missing() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(begins)
}

/// The segment to read the log from, so that nothing from the sequence number `seq` on is missed:
/// the last one that begins with this number or a smaller one, or the oldest. `None` without any.
pub(crate) fn position(segments: &[SegmentBegin], seq: SeqNo) -> Option<usize> {
    let begun = segments.iter().rposition(|it| it.first_seq.is_some_and(|first| first <= seq));
    begun.or((!segments.is_empty()).then_some(0))
}

/// The sequence number of the first batch of a segment that begins at `base` and ends at `cut`.
fn first_batch(reader: &mut FrameReader, base: Lsn, cut: Lsn) -> Result<Option<SeqNo>> {
    let mut offset = SEGMENT_HEADER_BYTES as u64;
    while base + offset < cut {
        let (frame, payload) = match reader.frame_at(offset) {
            Ok(FrameRead::Frame(frame, payload)) => (frame, payload),
            Ok(_) => return Ok(None),
            // The file was cut while it was read.
            Err(error) if error.is_corruption() => return Ok(None),
            Err(error) => return Err(error),
        };
        offset += frame.frame_bytes();
        if base + offset > cut {
            return Ok(None);
        }
        if let (false, Ok(Payload::Batch(batch))) = (frame.is_mark(), Payload::decode(&payload)) {
            return Ok(Some(Batch::first_seq(&batch)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_looked_for_in_the_last_segment_that_may_hold_it() {
        let at = |id, first_seq| SegmentBegin { id, base: id * 100, file_bytes: 100, first_seq };
        let all = [at(3, Some(10)), at(4, None), at(5, Some(20)), at(7, None)];
        for (seq, expected) in [(0, 0), (9, 0), (10, 0), (19, 0), (20, 2), (99, 2)] {
            assert_eq!(position(&all, seq), Some(expected), "{seq}");
        }
        assert_eq!(position(&[], 1), None);
        assert_eq!(position(&[at(3, None)], 1), Some(0));
    }
}
