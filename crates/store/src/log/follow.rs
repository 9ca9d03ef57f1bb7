//! Follows a log that another process, or another part of this one, may be writing.
//!
//! [`Follower::read`] yields the committed records in order, over the borders of segments. It tells
//! "there is nothing new yet" apart from "a segment that comes next was removed", and never yields
//! a part of a record. A batch is one record, so a batch is yielded whole or not at all.
//!
//! What it relies on of the writer:
//!
//! 1. A segment is written front to back. A record that is whole in the file, with right checksums,
//!    is committed: a replay after a crash takes it too. The exception is a write that fails: the
//!    records of its group that were whole by then are cut off again in the same call. A follower
//!    that reads in that instant may yield one of them, and says [`Next::Undone`] afterwards.
//! 2. A segment gets no record once its successor has a header. The successor's header says where
//!    the log goes on: what is in older segments from there on is void.
//! 3. Numbers of segments ascend, and a number is never used again.
//! 4. A segment is removed only when the manifest durably says that the log is needed from a later
//!    one on.
//!
//! A torn record at the end of the newest segment is "nothing yet": it may be in the middle of
//! being written. A record that cannot be read although the log says that it was durable is damage,
//! by the same rule as in a recovery (`recovery.rs`).
//!
//! Nothing is written here. The segment that is being read is held by its descriptor, so it can be
//! read to its end when it was removed.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    Lsn,
    frame::{FrameHeader, FrameSeed},
    reader::{FrameFault, FrameRead, FrameReader},
    recovery::{LogRecord, LogStart, Segment, cut_segments, read_segment},
    segment::{SEGMENT_HEADER_BYTES, SegmentHeader, parse_segment_name, segment_path},
};
use crate::{
    error::{Error, NO_FILE, Result},
    io::{FileSystem, retry},
    types::FileId,
};

/// Reads a log to its end, again and again.
#[derive(Debug)]
pub(crate) struct Follower {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    identity: u64,
    start: LogStart,
    /// The segment that is being read; `None` before the first.
    current: Option<Current>,
    /// The furthest place that anything read so far claims was durable.
    claimed: Lsn,
}

/// The result of looking for the next record.
#[derive(Debug)]
pub(crate) enum Next {
    /// The next record. Its payload was checked against its checksum only.
    Record(LogRecord),
    /// There is no further whole record yet.
    Nothing,
    /// What comes next is not there: the manifest tells where the log is needed from, if that has
    /// changed. Otherwise the next call may find more, and [`Follower::check_end`] tells a log that
    /// ends here from a damaged one.
    Lagged,
    /// Records were yielded that the writer has taken back: follow the log anew.
    Undone,
}

/// A segment that is being read.
#[derive(Debug)]
struct Current {
    header: SegmentHeader,
    path: PathBuf,
    reader: FrameReader,
    /// The end of the last record that was read.
    offset: u64,
    /// Where that record begins, and its header; `None` before the first.
    last: Option<(u64, FrameHeader)>,
    /// True if that record was cut off since.
    is_undone: bool,
    /// Where a newer segment continues the log.
    cut: Lsn,
    /// The length of the file when what follows `offset` was last found to be torn.
    torn_in: Option<u64>,
    /// Why there was no whole record at `offset`.
    fault: Option<FrameFault>,
}

/// The result of looking for the segment that continues the log.
enum Step {
    /// There may be more to read now.
    Again,
    /// There is nothing to read; this says why.
    Not(Next),
}

impl Follower {
    /// A follower of the log in `dir` of the database `identity`, from `start` on.
    pub(crate) fn new(
        fs: &Arc<dyn FileSystem>,
        dir: &Path,
        identity: u64,
        start: LogStart,
    ) -> Self {
        let (fs, dir) = (Arc::clone(fs), dir.to_owned());
        Self { fs, dir, identity, start, current: None, claimed: 0 }
    }

    /// The furthest place that anything read so far claims was durable.
    pub(crate) fn claimed(&self) -> Lsn {
        self.claimed
    }

    /// Forgets what was read ahead of the records that were yielded: what the writer had not
    /// committed when it was read may have been cut off and written anew since.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub(crate) fn refresh(&mut self) -> Result<()> {
        self.current.as_mut().map_or(Ok(()), Current::refresh)
    }

    /// Looks whether a newer segment continues the log before the end of the one that is being
    /// read: what that holds from there on is void. To be called when there is a newer segment.
    ///
    /// # Errors
    ///
    /// As [`Follower::read`].
    pub(crate) fn look_for_cut(&mut self) -> Result<()> {
        if self.current.is_none() {
            return Ok(());
        }
        let cut = self.segments()?.first().map_or(Lsn::MAX, |segment| segment.cut);
        if let Some(current) = &mut self.current {
            current.is_undone |= cut < current.lsn();
            current.cut = cut;
        }
        Ok(())
    }

    /// Takes the last record back that was yielded: the next call yields what is there then.
    pub(crate) fn unread(&mut self) {
        if let Some(current) = &mut self.current
            && let Some((at, _)) = current.last.take()
        {
            current.offset = at;
        }
    }

    /// Opens the first segment, if it is there, so that it can be read when it was removed.
    ///
    /// # Errors
    ///
    /// As [`Follower::read`].
    pub(crate) fn begin(&mut self) -> Result<()> {
        if self.current.is_none() { self.step().map(drop) } else { Ok(()) }
    }

    /// The segment of the last record, or the one that the log is followed from.
    pub(crate) fn segment(&self) -> FileId {
        self.current.as_ref().map_or(self.start.segment, |current| current.header.id)
    }

    /// The place up to which the log was read.
    pub(crate) fn lsn(&self) -> Lsn {
        self.current.as_ref().map_or(self.start.lsn, Current::lsn)
    }

    /// The next record. Costs a look at the length of a file if there is one; without one, also a
    /// listing of the directory.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if something durable is damaged, [`Error::Io`]. The same record is tried
    /// again by the next call.
    pub(crate) fn read(&mut self) -> Result<Next> {
        loop {
            if let Some(current) = &mut self.current
                && let Some(record) = current.read(&mut self.claimed)?
            {
                return Ok(Next::Record(record));
            }
            if self.current.as_ref().is_some_and(|current| current.is_undone) {
                return Ok(Next::Undone);
            }
            match self.step()? {
                Step::Again => {}
                Step::Not(next) => return Ok(next),
            }
        }
    }

    /// Looks for the segment that continues the log, and begins with it if it is there.
    fn step(&mut self) -> Result<Step> {
        let segments = self.segments()?;
        if let Some(current) = &mut self.current {
            let cut = segments.first().map_or(Lsn::MAX, |segment| segment.cut);
            if cut < current.lsn() {
                return Ok(Step::Not(Next::Undone));
            }
            if cut != current.cut {
                // What was written before the newer segment was made is there by now.
                current.cut = cut;
                return Ok(Step::Again);
            }
        }
        let (lsn, skip) = (self.lsn(), usize::from(self.current.is_some()));
        let is_first_there = segments.iter().any(|segment| segment.id == self.start.segment);
        let later = segments.into_iter().skip(skip);
        let next = later
            .filter(|segment| segment.live().is_some())
            .find_map(|segment| Some((segment.cut, segment.header.ok()?)));
        match next {
            Some((cut, header)) if header.base == lsn => self.enter(header, cut),
            Some(_) => Ok(Step::Not(Next::Lagged)),
            None if self.current.is_none() && self.start.must_exist && !is_first_there => {
                Ok(Step::Not(Next::Lagged))
            }
            None => Ok(Step::Not(Next::Nothing)),
        }
    }

    fn enter(&mut self, header: SegmentHeader, cut: Lsn) -> Result<Step> {
        let path = segment_path(&self.dir, header.id);
        let seed = FrameSeed::new(self.identity, header.id);
        let reader = match FrameReader::open(&*self.fs, &path, seed) {
            Ok(reader) => reader,
            Err(error) if error.is_missing() => return Ok(Step::Not(Next::Lagged)),
            Err(error) => return Err(error),
        };
        let offset = SEGMENT_HEADER_BYTES as u64;
        self.claimed = self.claimed.max(header.synced);
        self.current = Some(Current {
            header,
            path,
            reader,
            offset,
            last: None,
            is_undone: false,
            cut,
            torn_in: None,
            fault: None,
        });
        Ok(Step::Again)
    }

    /// The segment that is being read, if there is one, and after it all newer ones that are there,
    /// each with the place where a newer one continues the log.
    fn segments(&self) -> Result<Vec<Segment>> {
        let current = self.current.as_ref();
        let from = current.map_or(self.start.segment, |current| current.header.id + 1);
        let mut ids: Vec<FileId> = retry("list", &self.dir, || self.fs.list(&self.dir))?
            .iter()
            .filter_map(|name| parse_segment_name(name))
            .filter(|id| *id >= from)
            .collect();
        ids.sort_unstable();
        let first = current.map(|current| {
            let header = current.header;
            Segment { id: header.id, header: Ok(header), cut: Lsn::MAX }
        });
        let mut segments: Vec<Segment> = first.into_iter().collect();
        for id in ids {
            match read_segment(&*self.fs, &self.dir, self.identity, self.start, id) {
                Ok(segment) => segments.push(segment),
                Err(error) if error.is_missing() => {}
                Err(error) => return Err(error),
            }
        }
        cut_segments(&mut segments);
        Ok(segments)
    }

    /// Decides what [`Next::Lagged`] means if the manifest says that the log is still needed from
    /// where this follower is: fails if anything claims that more of it was durable. Otherwise the
    /// log ends here: what newer segments hold was lost before it was durable.
    pub(crate) fn check_end(&self) -> Result<()> {
        let (mut durable, segments) = (0, self.segments()?);
        let first = self.start.segment;
        let is_first_gone = !segments.iter().any(|segment| segment.id == first);
        if self.current.is_none() && self.start.must_exist && is_first_gone {
            let path = segment_path(&self.dir, first);
            let expected = "the log segment that the manifest names";
            return Err(Error::corrupt(path, 0, expected, NO_FILE));
        }
        for segment in &segments {
            let header = segment.header.as_ref().ok();
            durable = durable.max(header.map_or(0, |header| header.synced));
            if self.current.as_ref().is_some_and(|current| current.header.id == segment.id) {
                continue;
            }
            let path = segment_path(&self.dir, segment.id);
            let seed = FrameSeed::new(self.identity, segment.id);
            match FrameReader::open(&*self.fs, &path, seed) {
                Ok(mut reader) => {
                    let base = header.map(|header| header.base);
                    let claim = reader.furthest_claim(SEGMENT_HEADER_BYTES as u64, base)?;
                    durable = durable.max(claim);
                }
                Err(error) if error.is_missing() => {}
                Err(error) => return Err(error),
            }
        }
        let (segment, lsn) = (self.segment(), self.lsn());
        if durable <= lsn {
            return Ok(());
        }
        let offset = self.current.as_ref().map_or(0, |current| current.offset);
        let fault = self.current.as_ref().and_then(|current| current.fault);
        let found = fault.map_or_else(|| "no record".to_owned(), |fault| fault.describe());
        Err(lost(&segment_path(&self.dir, segment), offset, durable, &found, lsn))
    }
}

impl Current {
    fn lsn(&self) -> Lsn {
        self.header.base + self.offset
    }

    /// Looks at the file's length again. Notes if the last record that was read is not there any
    /// more: it was cut off, whether or not others have taken its place by now.
    fn refresh(&mut self) -> Result<()> {
        let file_bytes = self.reader.refresh()?;
        self.is_undone |= match self.last {
            Some((at, header)) if file_bytes >= self.offset => match self.reader.header_at(at) {
                Ok(found) => found != Some(header),
                // It was cut off while it was read.
                Err(error) if error.is_corruption() => true,
                Err(error) => return Err(error),
            },
            _ => file_bytes < self.offset,
        };
        Ok(())
    }

    /// Reads the next record; `None` if there is no whole one, or the last one is undone. Raises
    /// `claimed` to what the frames claim was durable.
    fn read(&mut self, claimed: &mut Lsn) -> Result<Option<LogRecord>> {
        let mut is_fresh = false;
        loop {
            let lsn = self.lsn();
            if lsn >= self.cut || self.is_undone {
                return Ok(None);
            }
            self.fault = None;
            match self.reader.frame_at(self.offset) {
                Ok(FrameRead::Frame(frame, _)) if lsn + frame.frame_bytes() > self.cut => {
                    return Ok(None);
                }
                Ok(FrameRead::Frame(frame, payload)) => {
                    self.last = Some((self.offset, frame));
                    self.offset += frame.frame_bytes();
                    *claimed = frame.synced.max(*claimed);
                    self.torn_in = None;
                    if !frame.is_mark() {
                        return Ok(Some(LogRecord { lsn, segment: self.header.id, payload }));
                    }
                }
                // The file may have grown, or a record may have been cut off, since it was looked
                // at.
                _ if !is_fresh => {
                    is_fresh = true;
                    self.refresh()?;
                }
                Ok(FrameRead::End) => return Ok(None),
                Ok(FrameRead::Fault(fault)) => {
                    self.fault = Some(fault);
                    return self.check_fault(fault, lsn).map(|()| None);
                }
                // The file was cut while it was read.
                Err(error) if error.is_corruption() => {
                    let before = self.reader.file_bytes();
                    return if self.reader.refresh()? < before { Ok(None) } else { Err(error) };
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Fails if something after the fault says that what is there was durable.
    fn check_fault(&mut self, fault: FrameFault, lsn: Lsn) -> Result<()> {
        let file_bytes = self.reader.file_bytes();
        let is_at_end = matches!(fault, FrameFault::ShortHeader | FrameFault::ShortPayload(_));
        if is_at_end || self.torn_in == Some(file_bytes) {
            return Ok(());
        }
        let durable = self.reader.furthest_claim(self.offset, Some(self.header.base))?;
        if durable > lsn {
            // A record that was cut off and written anew meanwhile is whole now.
            self.reader.refresh()?;
            if !matches!(self.reader.frame_at(self.offset)?, FrameRead::Frame(..)) {
                return Err(lost(&self.path, self.offset, durable, &fault.describe(), lsn));
            }
            return Ok(());
        }
        self.torn_in = Some(file_bytes);
        Ok(())
    }
}

fn lost(path: &Path, offset: u64, durable: Lsn, found: &str, lsn: Lsn) -> Error {
    let expected = format!("a whole log record, as the log was durable up to place {durable}");
    Error::corrupt(path, offset, expected, format!("{found}, at place {lsn}"))
}
