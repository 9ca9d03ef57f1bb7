//! Appends records to one segment of the log.
//!
//! The writer's promise: what it acknowledged is replayed in order, what it refused is not followed
//! by anything, and what it calls durable is durable. So
//!
//! 1. after a failed write the file is cut back to the last good end, and nothing more is appended
//!    before the cut is durable; if the cut fails, the writer refuses every later record and the
//!    log must be rotated: the next segment's base voids what follows the good end;
//! 2. after a failed sync nothing is ever written or called durable again: the operating system may
//!    have dropped the bytes that it could not write;
//! 3. once a rotation was tried, this segment takes no more records, even if the rotation failed: a
//!    half-made successor may come back after a crash, and it would void them.
//!
//! One thread at a time uses a writer; the engine locks it and groups the writers. Only the waiting
//! for the disk may be done on another thread, while records are appended: [`SegmentSync`].

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    Lsn,
    frame::{FRAME_HEADER_BYTES, FrameHeader, FrameSeed, PAYLOAD_BYTES_MAX},
    segment::{SEGMENT_HEADER_BYTES, SegmentHeader, segment_path},
};
use crate::{
    error::{Error, Result},
    io::{FileSystem, WritableFile, read_only::NoFile, retry, write_all},
    types::FileId,
};

mod sync;

pub(crate) use sync::SegmentSync;
use sync::Syncs;

/// Parts of a record from this length on are written from where they are, not copied.
const DIRECT_PART_BYTES_MIN: usize = 64 << 10;

/// The staging buffer is written out when it reaches this length, and does not stay larger.
const BUFFER_BYTES_MAX: usize = 1 << 20;

/// What a writer can still do.
#[derive(Debug)]
enum State {
    /// Everything.
    Usable,
    /// Everything, after a sync: a failed record was cut off, and its removal is not yet durable.
    Cut,
    /// Takes no more records, but may still be synced.
    Closed(Error),
    /// Nothing.
    SyncFailed(Error),
}

/// Appends records to one segment.
pub(crate) struct LogWriter {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    path: PathBuf,
    file: Box<dyn WritableFile>,
    syncs: Arc<Syncs>,
    header: SegmentHeader,
    seed: FrameSeed,
    state: State,
    /// The end of the last acknowledged record in the file.
    end: u64,
    /// The end in the file that the last staged record will have.
    staged_end: u64,
    /// Staged bytes that are not in the file yet; they end at `staged_end`.
    buffer: Vec<u8>,
    /// True if bytes of a failed record may follow `end` in the file.
    has_tail: bool,
    /// The end of the last acknowledged record in the file, without marks after it; the header
    /// counts as a record.
    record_end: u64,
    /// Everything before this offset of the file was synced.
    synced_end: u64,
    /// True if the file's name was synced.
    name_synced: bool,
    /// Everything before this place of the log is durable.
    durable: Lsn,
    /// What the frames written so far claim is durable.
    claimed: Lsn,
}

impl LogWriter {
    /// Creates the segment that `header` describes, with nothing durable yet. Creates no other
    /// file, and replaces none. Use [`LogWriter::rotate`] where there is a writer already.
    ///
    /// `header.base` is where the log validly ends ([`super::Recovery::end`]), `header.id` is above
    /// every number that a segment ever had.
    pub(crate) fn create(
        fs: &Arc<dyn FileSystem>,
        dir: &Path,
        header: SegmentHeader,
    ) -> Result<Self> {
        let path = segment_path(dir, header.id);
        let mut file = retry("create", &path, || fs.create(&path))?;
        write_all(file.as_mut(), &path, &header.encode())?;
        Ok(Self::on(file, fs, dir, header, State::Usable))
    }

    /// Stands for the log's newest segment in a database that is open read-only: there is no file,
    /// and no record is taken.
    pub(crate) fn read_only(
        fs: &Arc<dyn FileSystem>,
        dir: &Path,
        header: SegmentHeader,
        cause: Error,
    ) -> Self {
        Self::on(Box::new(NoFile), fs, dir, header, State::SyncFailed(cause))
    }

    /// A writer whose segment has its header and nothing more.
    fn on(
        file: Box<dyn WritableFile>,
        fs: &Arc<dyn FileSystem>,
        dir: &Path,
        header: SegmentHeader,
        state: State,
    ) -> Self {
        let path = segment_path(dir, header.id);
        let end = SEGMENT_HEADER_BYTES as u64;
        Self {
            syncs: Arc::new(Syncs::new(
                Arc::clone(fs),
                dir.to_owned(),
                path.clone(),
                file.syncer(),
            )),
            fs: Arc::clone(fs),
            dir: dir.to_owned(),
            path,
            file,
            header,
            seed: FrameSeed::new(header.identity, header.id),
            state,
            end,
            staged_end: end,
            buffer: Vec::new(),
            has_tail: false,
            record_end: end,
            synced_end: 0,
            name_synced: false,
            durable: header.synced,
            claimed: header.synced,
        }
    }

    /// Creates the next segment, which continues this one after its last acknowledged record.
    /// Records that are staged and not committed are dropped.
    ///
    /// This writer takes no more records, whether or not the call succeeds; after a failure, call
    /// again with another `id`. It may still be synced, and must be before anything in its
    /// successor can become durable: tell the successor with [`LogWriter::record_durable`].
    pub(crate) fn rotate(&mut self, id: FileId) -> Result<Self> {
        self.check_synced()?;
        self.discard();
        if !matches!(self.state, State::Closed(_)) {
            let what = format!("{}: the log goes on in another segment", self.path.display());
            self.state = State::Closed(Error::Internal(what.into()));
        }
        let header = SegmentHeader {
            id,
            base: self.end_lsn(),
            previous: self.header.id,
            previous_base: self.header.base,
            synced: self.durable.min(self.end_lsn()),
            ..self.header
        };
        Self::create(&self.fs, &self.dir, header)
    }

    /// Appends one record and hands it to the operating system; returns its place.
    #[cfg(test)]
    pub(crate) fn append(&mut self, payload_parts: &[&[u8]]) -> Result<Lsn> {
        let lsn = self.stage(payload_parts)?;
        self.commit()?;
        Ok(lsn)
    }

    /// Takes one record to be appended by the next [`LogWriter::commit`], together with all others
    /// that were staged: so a group of writers costs one call of the operating system. Returns the
    /// place that the record will have. Parts of 64 KiB and more are not copied, but written now.
    ///
    /// Fails with [`Error::InvalidArgument`] for a payload that is empty or longer than
    /// [`PAYLOAD_BYTES_MAX`]. After any other failure all staged records are dropped and not in the
    /// log; see [`LogWriter::is_closed`].
    pub(crate) fn stage(&mut self, payload_parts: &[&[u8]]) -> Result<Lsn> {
        let len = payload_parts.iter().fold(0usize, |sum, part| sum.saturating_add(part.len()));
        if len == 0 || len > PAYLOAD_BYTES_MAX {
            return Err(Error::InvalidArgument(
                format!("a log record of {len} bytes: it has 1 to {PAYLOAD_BYTES_MAX}").into(),
            ));
        }
        self.prepare()?;
        let lsn = self.header.base + self.staged_end;
        let outcome = self.stage_frame(len, payload_parts);
        self.cut_unless(outcome)?;
        Ok(lsn)
    }

    /// Hands all staged records to the operating system. After a failure none of them is in the
    /// log.
    pub(crate) fn commit(&mut self) -> Result<()> {
        if self.staged_end != self.end {
            self.write_staged()?;
            self.record_end = self.end;
        }
        Ok(())
    }

    fn write_staged(&mut self) -> Result<()> {
        let outcome = self.write_buffer();
        self.cut_unless(outcome)?;
        self.end = self.staged_end;
        Ok(())
    }

    /// Appends a mark, which says what is durable, so that damage before it is not taken for a torn
    /// tail. No record may be staged.
    fn mark(&mut self) -> Result<()> {
        self.prepare()?;
        let outcome = self.stage_frame(0, &[]);
        self.cut_unless(outcome)?;
        self.write_staged()
    }

    /// Records that the directory was synced since the segment was created.
    pub(crate) fn record_name_synced(&mut self) {
        self.name_synced = true;
    }

    /// Where the log ends: the place that the next record has if nothing is staged.
    pub(crate) fn end_lsn(&self) -> Lsn {
        self.header.base + self.end
    }

    /// Everything before this place is durable.
    pub(crate) fn durable_lsn(&self) -> Lsn {
        self.durable
    }

    /// Fails if the segment is no longer found by its name: then nothing in it will be replayed.
    pub(crate) fn check_name(&self) -> Result<()> {
        self.syncs.check_name()
    }

    /// The segment's header.
    pub(crate) fn header(&self) -> &SegmentHeader {
        &self.header
    }

    /// Returns true if the segment takes no more records, but [`LogWriter::rotate`] would help.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed(_))
    }

    /// Returns true if the segment is empty and everything before it is durable, so that nothing is
    /// lost with it.
    pub(crate) fn is_bare(&self) -> bool {
        let is_empty = self.record_end == SEGMENT_HEADER_BYTES as u64 && !self.has_tail;
        is_empty && matches!(self.state, State::Usable) && self.durable >= self.header.base
    }

    /// Makes all committed records of this segment durable, with all metadata if `all`, and returns
    /// the place up to which the whole log is durable. That place is before this segment while an
    /// older one is not durable ([`LogWriter::record_durable`]). After a failure the writer does
    /// nothing more.
    ///
    /// A mark that says so follows, which is not synced itself: the next record may come only much
    /// later.
    pub(crate) fn sync(&mut self, all: bool) -> Result<Lsn> {
        self.check_synced()?;
        let is_cut = self.has_tail || matches!(self.state, State::Cut);
        // A successor begins after the last mark, so the mark must be durable too in that case.
        let needed = if self.is_closed() { self.end } else { self.record_end };
        if all || self.synced_end < needed || is_cut {
            self.sync_file(all)?;
        }
        if !self.name_synced {
            let outcome = self.syncs.sync_name();
            self.poison_unless(outcome)?;
            self.name_synced = true;
        }
        Ok(self.claim_durable())
    }

    /// The part of [`LogWriter::sync`] that waits for the disk, to be done on another thread;
    /// `None` if only this writer can do it, because a record was cut off.
    pub(crate) fn begin_sync(&self, all: bool) -> Result<Option<SegmentSync>> {
        self.check_synced()?;
        if self.has_tail || matches!(self.state, State::Cut) {
            return Ok(None);
        }
        let needed = if self.is_closed() { self.end } else { self.record_end };
        Ok(Some(SegmentSync {
            id: self.header.id,
            end: self.end,
            file: (all || self.synced_end < needed).then_some(all),
            name: !self.name_synced,
            syncs: Arc::clone(&self.syncs),
        }))
    }

    /// Takes the outcome of a sync that was done apart, and returns what [`LogWriter::sync`] does.
    /// Records that were appended meanwhile are not durable.
    pub(crate) fn end_sync(&mut self, sync: &SegmentSync, outcome: Result<()>) -> Result<Lsn> {
        self.check_synced()?;
        self.poison_unless(outcome)?;
        if sync.file.is_some() {
            // A cut made meanwhile is not durable, and did not reach before this place.
            self.synced_end = self.synced_end.max(sync.end);
        }
        self.name_synced |= sync.name;
        Ok(self.claim_durable())
    }

    /// Returns the place up to which the whole log is durable, after writing a mark that says so.
    fn claim_durable(&mut self) -> Lsn {
        self.record_durable(self.durable);
        let durable = self.durable;
        if self.staged_end == self.end && self.needs_mark() {
            // What was synced is durable even if this fails; the next record meets the failure.
            let _ = self.mark();
        }
        durable
    }

    /// Returns true if records are durable of which no frame says so.
    fn needs_mark(&self) -> bool {
        let records = self.header.base + self.record_end;
        self.claimed < self.durable.min(records) && !self.is_closed()
    }

    fn sync_file(&mut self, all: bool) -> Result<()> {
        self.drop_tail();
        let outcome = self.syncs.sync_file(all);
        self.poison_unless(outcome)?;
        self.synced_end = self.end;
        if matches!(self.state, State::Cut) {
            self.state = State::Usable;
        }
        Ok(())
    }

    /// Fails after a failed sync.
    fn check_synced(&self) -> Result<()> {
        match &self.state {
            State::SyncFailed(cause) => Err(Error::WritesStopped(Arc::new(cause.clone()))),
            _ => Ok(()),
        }
    }

    /// Records that everything before `lsn` is durable: older segments were synced up to there, or
    /// the manifest durably says that they are not needed up to there.
    pub(crate) fn record_durable(&mut self, lsn: Lsn) {
        self.durable = self.durable.max(lsn.min(self.header.base));
        if self.durable >= self.header.base && self.name_synced {
            self.durable = self.durable.max(self.header.base + self.synced_end);
        }
    }

    /// Ends the segment as at a clean close: everything durable, and a durable mark that says so.
    /// Records that are staged and not committed are dropped.
    pub(crate) fn close(&mut self) -> Result<()> {
        self.discard();
        self.sync(false)?;
        if self.needs_mark() {
            self.mark()?;
        }
        if self.synced_end < self.end { self.sync_file(false) } else { Ok(()) }
    }

    /// Fails if the writer takes no more records; makes an earlier cut durable.
    fn prepare(&mut self) -> Result<()> {
        match &self.state {
            State::Usable => Ok(()),
            State::Cut => self.sync(false).map(drop),
            State::Closed(cause) | State::SyncFailed(cause) => {
                Err(Error::WritesStopped(Arc::new(cause.clone())))
            }
        }
    }

    fn stage_frame(&mut self, len: usize, parts: &[&[u8]]) -> Result<()> {
        let offset = self.staged_end;
        let start = self.buffer.len();
        let mut header = FrameHeader { len: len as u32, synced: self.durable, hash: 0 };
        self.staged_end += header.frame_bytes();
        self.claimed = self.durable;
        if len < DIRECT_PART_BYTES_MIN {
            self.buffer.resize(start + FRAME_HEADER_BYTES, 0);
            for part in parts {
                self.buffer.extend_from_slice(part);
            }
            let payload = &self.buffer[start + FRAME_HEADER_BYTES..];
            header.hash = self.seed.payload_hash(offset, payload);
            let header = header.encode(self.seed, offset);
            self.buffer[start..start + FRAME_HEADER_BYTES].copy_from_slice(&header);
        } else {
            header.hash = self.seed.payload_hash_of_parts(offset, parts);
            self.buffer.extend_from_slice(&header.encode(self.seed, offset));
            for part in parts {
                if part.len() < DIRECT_PART_BYTES_MIN {
                    self.buffer.extend_from_slice(part);
                } else {
                    self.write_buffer()?;
                    write_all(self.file.as_mut(), &self.path, part)?;
                }
                self.write_buffer_if_large()?;
            }
        }
        self.write_buffer_if_large()
    }

    fn write_buffer_if_large(&mut self) -> Result<()> {
        if self.buffer.len() >= BUFFER_BYTES_MAX { self.write_buffer() } else { Ok(()) }
    }

    fn write_buffer(&mut self) -> Result<()> {
        write_all(self.file.as_mut(), &self.path, &self.buffer)?;
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_BYTES_MAX);
        Ok(())
    }

    /// After a failed write, drops everything staged.
    fn cut_unless(&mut self, outcome: Result<()>) -> Result<()> {
        if let Err(cause) = &outcome {
            self.cut(cause.clone());
        }
        outcome
    }

    /// Drops staged records that were not committed.
    fn discard(&mut self) {
        if self.staged_end != self.end {
            let what = format!("{}: staged records were dropped", self.path.display());
            self.cut(Error::Internal(what.into()));
        }
    }

    /// Cuts the file back to the last acknowledged record, because of `cause`.
    fn cut(&mut self, cause: Error) {
        self.buffer.clear();
        self.staged_end = self.end;
        self.claimed = self.header.synced;
        self.has_tail = true;
        self.drop_tail();
        if matches!(self.state, State::Usable | State::Cut) {
            self.state = if self.has_tail { State::Closed(cause) } else { State::Cut };
        }
    }

    /// Tries to remove the bytes of a failed record. If that fails again, the next segment voids
    /// them, so the caller is not told of the failure.
    fn drop_tail(&mut self) {
        if self.has_tail {
            let outcome = retry("truncate", &self.path, || self.file.truncate(self.end));
            self.has_tail = outcome.is_err();
        }
    }

    fn poison_unless(&mut self, outcome: Result<()>) -> Result<()> {
        if let Err(cause) = &outcome {
            self.buffer.clear();
            self.staged_end = self.end;
            self.state = State::SyncFailed(cause.clone());
        }
        outcome
    }
}

impl std::fmt::Debug for LogWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogWriter")
            .field("path", &self.path)
            .field("header", &self.header)
            .field("state", &self.state)
            .field("end", &self.end)
            .field("durable", &self.durable)
            .finish_non_exhaustive()
    }
}
