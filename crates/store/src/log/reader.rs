//! Reads frames from a file that may be torn, damaged or hostile: the one at a place, the next one
//! that can be found, and, for people, a list of all.
//!
//! Allocates no more than a frame's checked length, which is within the file, and one window. An
//! error of the operating system is never taken for damage.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    Lsn,
    creation::{Creation, Payload},
    frame::{FRAME_HEADER_BYTES, FrameHeader, FrameSeed, unchecked_synced},
    segment::{HeaderFault, SEGMENT_HEADER_BYTES, SegmentHeader, parse_segment_name},
};
use crate::{
    error::{Error, Result},
    io::{FileSystem, ReadMode, ReadableFile, read_exact_at, retry},
};

/// The number of bytes of a file that are read at once.
const WINDOW_BYTES: usize = 256 << 10;

/// Reads frames of one file.
#[derive(Debug)]
pub(crate) struct FrameReader {
    file: Arc<dyn ReadableFile>,
    path: PathBuf,
    file_bytes: u64,
    seed: FrameSeed,
    window: Vec<u8>,
    window_start: u64,
}

/// What is at a place of a file.
#[derive(Debug)]
pub(crate) enum FrameRead {
    /// A whole frame. The payload of a mark is empty.
    Frame(FrameHeader, Vec<u8>),
    /// The end of the file.
    End,
    /// Anything else.
    Fault(FrameFault),
}

/// Why there is no frame where one was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameFault {
    /// Fewer bytes than a frame's header.
    ShortHeader,
    /// The header's check is wrong.
    Header,
    /// The file ends within the payload.
    ShortPayload(FrameHeader),
    /// The payload's checksum is wrong.
    Payload(FrameHeader),
}

impl FrameFault {
    /// Describes what was found in place of a frame.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::ShortHeader => format!("fewer than {FRAME_HEADER_BYTES} bytes before the end"),
            Self::Header => "a wrong header check".to_owned(),
            Self::ShortPayload(header) => {
                format!("a record of {} bytes that the file ends within", header.len)
            }
            Self::Payload(header) => {
                format!("a record of {} bytes with a wrong checksum", header.len)
            }
        }
    }
}

impl FrameReader {
    /// Opens `path`, whose frames' checksums are seeded with `seed`.
    pub(crate) fn open(fs: &dyn FileSystem, path: &Path, seed: FrameSeed) -> Result<Self> {
        let file = retry("open", path, || fs.open(path, ReadMode::Buffered))?;
        let file_bytes = retry("read the length of", path, || file.len())?;
        let path = path.to_owned();
        Ok(Self { file, path, file_bytes, seed, window: Vec::new(), window_start: 0 })
    }

    /// Takes note of what was appended to the file, or cut off, since it was opened. What was read
    /// before is read again. Returns the length.
    pub(crate) fn refresh(&mut self) -> Result<u64> {
        self.file_bytes = retry("read the length of", &self.path, || self.file.len())?;
        self.window.clear();
        Ok(self.file_bytes)
    }

    /// The length of the file when it was opened, or [refreshed](FrameReader::refresh).
    pub(crate) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Sets the seed of the checksums from now on.
    pub(crate) fn set_seed(&mut self, seed: FrameSeed) {
        self.seed = seed;
    }

    /// Up to `len` bytes from `offset`, fewer at the end of the file. `len` is at most the window.
    pub(crate) fn bytes(&mut self, offset: u64, len: usize) -> Result<&[u8]> {
        debug_assert!(len <= WINDOW_BYTES);
        let len = self.file_bytes.saturating_sub(offset).min(len as u64) as usize;
        if len == 0 {
            return Ok(&[]);
        }
        let window_end = self.window_start + self.window.len() as u64;
        if offset < self.window_start || offset + len as u64 > window_end {
            let fill = (self.file_bytes - offset).min(WINDOW_BYTES as u64) as usize;
            self.window.clear();
            self.window.resize(fill, 0);
            self.window_start = offset;
            let filled = read_exact_at(self.file.as_ref(), &self.path, &mut self.window, offset);
            if filled.is_err() {
                self.window.clear();
            }
            filled?;
        }
        let start = (offset - self.window_start) as usize;
        Ok(&self.window[start..start + len])
    }

    /// The header of the frame at `offset`; `None` if there is none.
    pub(crate) fn header_at(&mut self, offset: u64) -> Result<Option<FrameHeader>> {
        let seed = self.seed;
        let header = self.bytes(offset, FRAME_HEADER_BYTES)?.first_chunk();
        Ok(header.and_then(|header| FrameHeader::decode(header, seed, offset)))
    }

    /// Reads what is at `offset`.
    pub(crate) fn frame_at(&mut self, offset: u64) -> Result<FrameRead> {
        let seed = self.seed;
        let header = match self.bytes(offset, FRAME_HEADER_BYTES)? {
            [] => return Ok(FrameRead::End),
            bytes => match bytes.first_chunk() {
                None => return Ok(FrameRead::Fault(FrameFault::ShortHeader)),
                Some(bytes) => FrameHeader::decode(bytes, seed, offset),
            },
        };
        let Some(header) = header else {
            return Ok(FrameRead::Fault(FrameFault::Header));
        };
        if header.frame_bytes() > self.file_bytes - offset {
            return Ok(FrameRead::Fault(FrameFault::ShortPayload(header)));
        }
        let payload = self.payload(offset + FRAME_HEADER_BYTES as u64, header.len as usize)?;
        if seed.payload_hash(offset, &payload) != header.hash {
            return Ok(FrameRead::Fault(FrameFault::Payload(header)));
        }
        Ok(FrameRead::Frame(header, payload))
    }

    /// The bytes in the window from `offset` on; fills the window first if it does not hold a whole
    /// header.
    fn window_from(&mut self, offset: u64) -> Result<&[u8]> {
        self.bytes(offset, FRAME_HEADER_BYTES)?;
        Ok(&self.window[(offset - self.window_start) as usize..])
    }

    fn payload(&mut self, offset: u64, len: usize) -> Result<Vec<u8>> {
        if len <= WINDOW_BYTES {
            return self.bytes(offset, len).map(<[u8]>::to_vec);
        }
        let mut payload = vec![0; len];
        read_exact_at(self.file.as_ref(), &self.path, &mut payload, offset)?;
        Ok(payload)
    }

    /// Searches `offset` and later for a frame's header, and returns it with its place.
    ///
    /// With `base`, the place of the file's first byte, a header counts by itself, if it claims no
    /// more than what was before it; without, its payload must be whole too. By chance, one place
    /// in 2^32 looks like a header, and far fewer look like one that claims little enough.
    /// O(bytes).
    pub(crate) fn find_header(
        &mut self,
        mut offset: u64,
        base: Option<Lsn>,
    ) -> Result<Option<(u64, FrameHeader)>> {
        let seed = self.seed;
        while offset + FRAME_HEADER_BYTES as u64 <= self.file_bytes {
            let window = self.window_from(offset)?;
            let found = window.windows(FRAME_HEADER_BYTES).zip(offset..).find_map(|(bytes, at)| {
                let bytes = bytes.first_chunk()?;
                if base.is_some_and(|base| unchecked_synced(bytes) > base.saturating_add(at)) {
                    return None;
                }
                Some((at, FrameHeader::decode(bytes, seed, at)?))
            });
            let scanned = (window.len() + 1 - FRAME_HEADER_BYTES) as u64;
            match found {
                None => offset += scanned,
                Some(found) if base.is_some() => return Ok(Some(found)),
                Some((at, header)) => match self.frame_at(at)? {
                    FrameRead::Frame(..) => return Ok(Some((at, header))),
                    _ => offset = at + 1,
                },
            }
        }
        Ok(None)
    }

    /// The furthest place that any frame from `offset` on claims to be durable; 0 if none does.
    pub(crate) fn furthest_claim(&mut self, mut offset: u64, base: Option<Lsn>) -> Result<Lsn> {
        let mut furthest = 0;
        while let Some((at, header)) = self.find_header(offset, base)? {
            furthest = furthest.max(header.synced);
            offset = at + header.frame_bytes();
        }
        Ok(furthest)
    }
}

/// A segment, for inspection by people.
#[derive(Debug)]
pub(crate) struct SegmentInspection {
    /// Bytes of the file.
    pub(crate) file_bytes: u64,
    /// The segment's header, or why it cannot be read.
    pub(crate) header: std::result::Result<SegmentHeader, String>,
    reader: FrameReader,
    next: u64,
}

/// A stretch of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FrameInfo {
    /// Its offset in the file.
    pub(crate) offset: u64,
    /// Its bytes, header included.
    pub(crate) bytes: u64,
    /// Its place in the log, if the segment's header is whole.
    pub(crate) lsn: Option<Lsn>,
    /// Its kind and contents.
    pub(crate) state: FrameState,
}

/// The kind of a stretch of a segment, with its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FrameState {
    /// A whole record.
    Batch {
        /// The sequence number of its first operation.
        first_seq: u64,
        /// The number of its operations.
        ops: u32,
        /// Everything before this place was durable when it was written.
        synced: Lsn,
    },
    /// A whole record that creates partitions.
    Creations(Vec<Creation>),
    /// A mark that says what is durable.
    Mark {
        /// Everything before this place was durable when it was written.
        synced: Lsn,
    },
    /// A record whose checksums are right and whose payload is no batch.
    NotABatch {
        /// The offset in the payload.
        offset: usize,
        /// What was expected there.
        expected: &'static str,
    },
    /// A record whose payload is damaged or cut off.
    Damaged,
    /// Bytes in which no record was found.
    Unknown,
}

/// Opens the segment at `path` for inspection. Its number is taken from its name; `identity` is
/// used if its header is damaged.
pub(crate) fn inspect_segment(
    fs: &dyn FileSystem,
    path: &Path,
    identity: Option<u64>,
) -> Result<SegmentInspection> {
    let id =
        path.file_name().and_then(|name| parse_segment_name(&name.to_string_lossy())).ok_or_else(
            || Error::InvalidArgument(format!("{}: not the name of a log", path.display()).into()),
        )?;
    let mut reader = FrameReader::open(fs, path, FrameSeed::new(identity.unwrap_or(0), id))?;
    let header = match SegmentHeader::decode(reader.bytes(0, SEGMENT_HEADER_BYTES)?) {
        Ok(header) if header.id == id => Ok(header),
        Ok(header) => Err(format!("the header of segment {}", header.id)),
        Err(HeaderFault::Invalid(found)) => Err(found.to_owned()),
        Err(HeaderFault::Version(version)) => Err(format!("version {version}")),
    };
    if let Ok(header) = &header {
        reader.set_seed(FrameSeed::new(header.identity, id));
    }
    let next = SEGMENT_HEADER_BYTES as u64;
    Ok(SegmentInspection { file_bytes: reader.file_bytes(), header, reader, next })
}

impl SegmentInspection {
    fn base(&self) -> Option<Lsn> {
        self.header.as_ref().ok().map(|header| header.base)
    }

    fn read_next(&mut self) -> Result<Option<FrameInfo>> {
        let (offset, base) = (self.next, self.base());
        let (bytes, state) = match self.reader.frame_at(offset)? {
            FrameRead::End => return Ok(None),
            FrameRead::Frame(header, payload) => (header.frame_bytes(), describe(header, &payload)),
            FrameRead::Fault(FrameFault::Payload(header)) => {
                (header.frame_bytes(), FrameState::Damaged)
            }
            FrameRead::Fault(FrameFault::ShortPayload(_)) => {
                (self.file_bytes - offset, FrameState::Damaged)
            }
            FrameRead::Fault(FrameFault::Header | FrameFault::ShortHeader) => {
                let found = self.reader.find_header(offset + 1, base)?;
                (found.map_or(self.file_bytes, |found| found.0) - offset, FrameState::Unknown)
            }
        };
        self.next = offset + bytes;
        Ok(Some(FrameInfo { offset, bytes, lsn: base.map(|base| base + offset), state }))
    }
}

fn describe(header: FrameHeader, payload: &[u8]) -> FrameState {
    if header.is_mark() {
        return FrameState::Mark { synced: header.synced };
    }
    match Payload::decode(payload) {
        Ok(Payload::Batch(batch)) => FrameState::Batch {
            first_seq: batch.first_seq(),
            ops: batch.count(),
            synced: header.synced,
        },
        Ok(Payload::Creations(creations)) => FrameState::Creations(creations),
        Err(fault) => FrameState::NotABatch { offset: fault.offset, expected: fault.expected },
    }
}

/// Lists every stretch of the segment after its header, in order; ends after an error.
impl Iterator for SegmentInspection {
    type Item = Result<FrameInfo>;

    fn next(&mut self) -> Option<Result<FrameInfo>> {
        let read = self.read_next();
        if read.is_err() {
            self.next = self.file_bytes;
        }
        read.transpose()
    }
}
