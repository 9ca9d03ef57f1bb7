//! Replays the log at opening, and tells a torn tail from damage.
//!
//! Let E be the place where the replay had to end, and D the furthest place that anything in the
//! log claims was durable. A crash can only lose what was not durable, so if D > E something
//! durable is lost: that is damage, and an error. Otherwise what follows E was never promised to
//! survive, and is ignored. `docs/format/log.md` has the whole rule and why it holds.
//!
//! Nothing is written or removed here, and a replay makes nothing durable.

use std::path::Path;

use super::{
    Lsn,
    format::segment::SEGMENT_VERSION,
    frame::{FRAME_HEADER_BYTES, FrameSeed},
    reader::{FrameRead, FrameReader},
    segment::{HeaderFault, SEGMENT_HEADER_BYTES, SegmentHeader, parse_segment_name, segment_path},
};
use crate::{
    error::{Error, NO_FILE, Result},
    io::{FileSystem, retry},
    types::FileId,
};

/// Where the log that is still needed begins; from the manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogStart {
    /// The first segment that is needed. Older ones are ignored.
    pub(crate) segment: FileId,
    /// The place of that segment's first byte.
    pub(crate) lsn: Lsn,
    /// True if the segment existed durably before the manifest named it, so that it cannot be
    /// missing after a crash.
    pub(crate) must_exist: bool,
}

/// One replayed record.
#[derive(Clone, Debug)]
pub(crate) struct LogRecord {
    /// Its place in the log.
    pub(crate) lsn: Lsn,
    /// The segment that holds it.
    pub(crate) segment: FileId,
    /// Its payload, checked against its checksum only.
    pub(crate) payload: Vec<u8>,
}

impl LogRecord {
    /// The place of the first byte after the record.
    pub(crate) fn end(&self) -> Lsn {
        self.lsn + (FRAME_HEADER_BYTES + self.payload.len()) as u64
    }
}

/// What a replay found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Recovery {
    /// Where the log validly ends; the base of the next segment.
    pub(crate) end: Lsn,
    /// Everything before this place is known to be durable. The records between it and `end` were
    /// replayed, and may be lost in the next power cut: write them to tables before the next
    /// segment is relied on.
    pub(crate) durable: Lsn,
    /// The number of records that were replayed.
    pub(crate) records: u64,
    /// The segment that the log ends in; 0 if there is none.
    pub(crate) last: FileId,
    /// The place of that segment's first byte.
    pub(crate) last_base: Lsn,
    /// All segments in the directory, ascending, including those before the start. The next
    /// segment's number is above all of them.
    pub(crate) segments: Vec<FileId>,
    /// The bytes that were ignored after the end, if there were any.
    pub(crate) torn: Option<TornTail>,
}

impl Recovery {
    /// The header of the segment that continues the log from here. `id` is above every number in
    /// `segments`.
    pub(crate) fn next_header(&self, identity: u64, id: FileId) -> SegmentHeader {
        SegmentHeader {
            identity,
            id,
            base: self.end,
            previous: self.last,
            previous_base: self.last_base,
            synced: self.durable,
        }
    }
}

/// Bytes after the end of the log that were never promised to survive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TornTail {
    /// The segment at which the log broke off.
    pub(crate) segment: FileId,
    /// The offset in it.
    pub(crate) offset: u64,
    /// A description of what was found there.
    pub(crate) found: String,
}

/// A segment of the log that may hold records.
pub(super) struct Segment {
    pub(super) id: FileId,
    /// `Err` says why there is no header.
    pub(super) header: std::result::Result<SegmentHeader, &'static str>,
    /// Where a newer segment continues the log; what this one holds from there on is void.
    pub(super) cut: Lsn,
}

/// Replays the log in `dir` of the database `identity` from `start` on: calls `replay` with every
/// record in order, and returns where the log ends.
///
/// Fails with [`Error::Corrupt`] if something durable is damaged or missing, and with any error of
/// `replay`. Records may have been replayed before a failure. Reads everything once, and what
/// follows a torn place a second time.
pub(crate) fn recover(
    fs: &dyn FileSystem,
    dir: &Path,
    identity: u64,
    start: LogStart,
    mut replay: impl FnMut(LogRecord) -> Result<()>,
) -> Result<Recovery> {
    let mut ids: Vec<FileId> = retry("list", dir, || fs.list(dir))?
        .iter()
        .filter_map(|name| parse_segment_name(name))
        .collect();
    ids.sort_unstable();
    if start.must_exist && ids.binary_search(&start.segment).is_err() {
        let path = segment_path(dir, start.segment);
        return Err(Error::corrupt(path, 0, "the log segment that the manifest names", NO_FILE));
    }
    let mut segments = Vec::new();
    for &id in ids.iter().filter(|&&id| id >= start.segment) {
        segments.push(read_segment(fs, dir, identity, start, id)?);
    }
    cut_segments(&mut segments);
    let mut replayer = Replayer {
        fs,
        dir,
        identity,
        found: Recovery { end: start.lsn, segments: ids, ..Recovery::default() },
    };
    let stop = replayer.replay_all(&segments, start, &mut replay)?;
    let (mut found, durable) = {
        let durable = replayer.furthest_claim(&segments, &stop)?;
        (replayer.found, durable)
    };
    if durable > found.end {
        return Err(Error::corrupt(
            segment_path(dir, stop.segment),
            stop.offset,
            format!("a whole log record, as the log was durable up to place {durable}"),
            format!("{}, at place {}", stop.found, found.end),
        ));
    }
    found.durable = durable;
    if stop.ignores_bytes {
        let Stop { segment, offset, found: what, .. } = stop;
        found.torn = Some(TornTail { segment, offset, found: what });
    }
    Ok(found)
}

/// Where and why a replay ended.
struct Stop {
    segment: FileId,
    offset: u64,
    found: String,
    /// True if bytes follow.
    ignores_bytes: bool,
}

/// Reads the header of a segment.
pub(super) fn read_segment(
    fs: &dyn FileSystem,
    dir: &Path,
    identity: u64,
    start: LogStart,
    id: FileId,
) -> Result<Segment> {
    let path = segment_path(dir, id);
    let mut reader = FrameReader::open(fs, &path, FrameSeed::new(identity, id))?;
    let header = match SegmentHeader::decode(reader.bytes(0, SEGMENT_HEADER_BYTES)?) {
        Err(HeaderFault::Version(version)) => {
            let what = format!(
                "a log of version {version}; this version of Rhumb reads version {SEGMENT_VERSION}"
            );
            return Err(Error::Unsupported { path, what });
        }
        Err(HeaderFault::Invalid(found)) => Err(found),
        // A file that was not synced may show the contents of other files.
        Ok(header) if header.id != id || header.identity != identity => {
            Err("one with the header of another")
        }
        Ok(header) => Ok(header),
    };
    if let Ok(header) = &header {
        let expect = |ok, expected: String, found: u64| {
            if ok { Ok(()) } else { Err(Error::corrupt(&path, 0, expected, found.to_string())) }
        };
        if id == start.segment {
            let base = format!("a segment at place {}, as in the manifest", start.lsn);
            expect(header.base == start.lsn, base, header.base)?;
        }
        let base = format!("a segment at place {} or after", start.lsn);
        expect(header.base >= start.lsn, base, header.base)?;
    }
    Ok(Segment { id, header, cut: Lsn::MAX })
}

/// Finds where each segment is continued by a newer one. A newer segment also knows where the one
/// before it began, so older segments end there even if the one before it is lost.
pub(super) fn cut_segments(segments: &mut [Segment]) {
    let mut newer: Vec<SegmentHeader> = Vec::new();
    for segment in segments.iter_mut().rev() {
        let cuts = newer.iter().map(|newer| match segment.id < newer.previous {
            true => newer.previous_base,
            false => newer.base,
        });
        segment.cut = cuts.min().unwrap_or(Lsn::MAX);
        newer.extend(segment.header.as_ref().ok());
    }
}

impl Segment {
    /// The header, if the segment has one and newer segments do not void all of it.
    pub(super) fn live(&self) -> Option<&SegmentHeader> {
        self.header.as_ref().ok().filter(|header| header.base < self.cut)
    }
}

struct Replayer<'a> {
    fs: &'a dyn FileSystem,
    dir: &'a Path,
    identity: u64,
    found: Recovery,
}

impl Replayer<'_> {
    fn open(&self, id: FileId) -> Result<FrameReader> {
        let path = segment_path(self.dir, id);
        FrameReader::open(self.fs, &path, FrameSeed::new(self.identity, id))
    }

    fn replay_all(
        &mut self,
        segments: &[Segment],
        start: LogStart,
        replay: &mut impl FnMut(LogRecord) -> Result<()>,
    ) -> Result<Stop> {
        let mut stop = Stop {
            segment: start.segment,
            offset: 0,
            found: "no segment".to_owned(),
            ignores_bytes: false,
        };
        for segment in segments {
            let Some(header) = segment.live() else { continue };
            if header.base != self.found.end {
                stop.found = format!(
                    "{}, and segment {} that goes on from segment {} at place {}",
                    stop.found, header.id, header.previous, header.base
                );
                stop.ignores_bytes = true;
                return Ok(stop);
            }
            (self.found.last, self.found.last_base) = (segment.id, header.base);
            stop = self.replay_segment(segment, header, replay)?;
        }
        if let Some(after) = segments.last().filter(|last| last.id > self.found.last) {
            let why = after.header.as_ref().err().copied().unwrap_or("void");
            stop.found = format!("{}, and segment {} is {why}", stop.found, after.id);
            stop.ignores_bytes = true;
        }
        Ok(stop)
    }

    /// Replays one segment up to its cut or its first fault.
    fn replay_segment(
        &mut self,
        segment: &Segment,
        header: &SegmentHeader,
        replay: &mut impl FnMut(LogRecord) -> Result<()>,
    ) -> Result<Stop> {
        let mut reader = self.open(segment.id)?;
        let mut offset = SEGMENT_HEADER_BYTES as u64;
        let (found, ignores_bytes) = loop {
            let lsn = header.base + offset;
            self.found.end = lsn;
            if lsn >= segment.cut {
                break ("a newer segment that goes on here".to_owned(), false);
            }
            match reader.frame_at(offset)? {
                FrameRead::End => break ("the end of the file".to_owned(), false),
                FrameRead::Fault(fault) => break (fault.describe(), true),
                FrameRead::Frame(frame, _) if lsn + frame.frame_bytes() > segment.cut => {
                    break ("a record that a newer segment cuts in two".to_owned(), true);
                }
                FrameRead::Frame(frame, payload) => {
                    if !frame.is_mark() {
                        self.found.records += 1;
                        replay(LogRecord { lsn, segment: segment.id, payload })?;
                    }
                    self.found.durable = self.found.durable.max(frame.synced);
                    offset += frame.frame_bytes();
                }
            }
        };
        Ok(Stop { segment: segment.id, offset, found, ignores_bytes })
    }

    /// The furthest place that anything claims was durable.
    fn furthest_claim(&self, segments: &[Segment], stop: &Stop) -> Result<Lsn> {
        let mut furthest = self.found.durable;
        for segment in segments {
            let base = segment.header.as_ref().ok().map(|header| header.base);
            if let Ok(header) = &segment.header {
                furthest = furthest.max(header.synced);
            }
            let from = match segment.id {
                id if id == stop.segment && stop.ignores_bytes => stop.offset,
                id if id > self.found.last => SEGMENT_HEADER_BYTES as u64,
                _ => continue,
            };
            furthest = furthest.max(self.open(segment.id)?.furthest_claim(from, base)?);
        }
        Ok(furthest)
    }
}
