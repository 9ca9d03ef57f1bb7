//! The sound records of a damaged log, also those after a damaged one.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
};

use super::{
    catalog::KnownCatalog,
    merge::Fragment,
    report::{Loss, SalvageReport},
};
use crate::{
    error::{Error, Result},
    io::FileSystem,
    log::{
        Lsn,
        creation::{Creation, Payload},
        format::batch::Batch,
        frame::FrameSeed,
        reader::{FrameFault, FrameRead, FrameReader},
        segment::{
            HeaderFault, SEGMENT_HEADER_BYTES, SegmentHeader, parse_segment_name, segment_path,
        },
    },
    types::{FileId, Kind, SeqNo, TreeId},
};

/// A key with the number of a version of it, in the order in which versions are looked at.
pub(super) type LogKey = (Vec<u8>, Reverse<SeqNo>);

/// The versions of keys; `None` is a tombstone.
pub(super) type LogEntries = BTreeMap<LogKey, (Kind, Vec<u8>)>;

/// What the log holds of an LSM tree.
#[derive(Debug, Default)]
pub(super) struct TreeLog {
    pub(super) entries: LogEntries,
    pub(super) ranges: Vec<Fragment>,
}

/// What the log holds.
#[derive(Debug, Default)]
pub(super) struct LogContents {
    pub(super) trees: BTreeMap<TreeId, TreeLog>,
    /// The partitions that were created: the LSM tree of the keyspace of each, and its name.
    pub(super) created: HashMap<TreeId, (TreeId, Box<[u8]>)>,
    /// True if some of it is lost.
    pub(super) is_damaged: bool,
}

/// A segment of the log.
struct Segment {
    id: FileId,
    path: PathBuf,
    header: Option<SegmentHeader>,
    /// The place of its first byte, if it is known.
    base: Option<Lsn>,
    /// Where newer segments say that it ends: what it holds from there on is void.
    cut: Lsn,
}

/// Reads the log of the store in `dir`, whose entries are `names`. Holds all of it in memory, as an
/// opening does.
pub(super) fn read(
    fs: &dyn FileSystem,
    dir: &Path,
    names: &[String],
    known: &KnownCatalog,
    report: &mut SalvageReport,
) -> Result<LogContents> {
    let mut contents = LogContents::default();
    let losses = report.losses.len();
    let mut ids: Vec<FileId> = names.iter().filter_map(|name| parse_segment_name(name)).collect();
    ids.retain(|id| *id >= known.log_floor);
    ids.sort_unstable();
    let mut segments = Vec::new();
    for id in ids {
        segments.push(open_segment(fs, dir, id, known, report)?);
    }
    cut_segments(&mut segments);
    list_missing(dir, &segments, known, report);
    for segment in &segments {
        match known.identity {
            Some(identity) => read_segment(fs, segment, identity, &mut contents, report)?,
            None => {
                let what = "a segment of the log: the identity of the database is lost";
                report.lose(Loss::new(&segment.path, 0, 0, what));
            }
        }
    }
    contents.is_damaged = report.losses.len() > losses;
    Ok(contents)
}

fn open_segment(
    fs: &dyn FileSystem,
    dir: &Path,
    id: FileId,
    known: &KnownCatalog,
    report: &mut SalvageReport,
) -> Result<Segment> {
    let path = segment_path(dir, id);
    let mut header = None;
    if let Ok(mut reader) = FrameReader::open(fs, &path, FrameSeed::new(0, id)) {
        header = match SegmentHeader::decode(reader.bytes(0, SEGMENT_HEADER_BYTES)?) {
            Err(HeaderFault::Version(version)) => {
                let what = format!("a log of version {version}");
                return Err(Error::Unsupported { path, what });
            }
            Err(HeaderFault::Invalid(found)) => {
                report.note(
                    &path,
                    Some(0),
                    format!("expected the header of a segment, found {found}"),
                );
                None
            }
            Ok(header)
                if header.id != id || known.identity.is_some_and(|it| it != header.identity) =>
            {
                report.note(&path, Some(0), "the header of another segment");
                None
            }
            Ok(header) => Some(header),
        };
    }
    Ok(Segment { id, path, header, base: header.map(|header| header.base), cut: Lsn::MAX })
}

/// Finds where each segment begins and ends by what the newer ones say.
fn cut_segments(segments: &mut [Segment]) {
    let mut newer: Vec<SegmentHeader> = Vec::new();
    for segment in segments.iter_mut().rev() {
        let cuts = newer.iter().map(|newer| match segment.id < newer.previous {
            true => newer.previous_base,
            false => newer.base,
        });
        segment.cut = cuts.min().unwrap_or(Lsn::MAX);
        if segment.base.is_none() {
            let next = newer.iter().find(|newer| newer.previous == segment.id);
            segment.base = next.map(|next| next.previous_base);
        }
        newer.extend(segment.header);
    }
}

/// Lists the segments that the manifest or a newer segment names and that are not there.
fn list_missing(
    dir: &Path,
    segments: &[Segment],
    known: &KnownCatalog,
    report: &mut SalvageReport,
) {
    if !known.is_whole {
        // Which segments are still needed is not known, so none is missed.
        return;
    }
    let headers = segments.iter().filter_map(|segment| segment.header);
    let named = headers.map(|header| (header.previous, header.base - header.previous_base));
    let mut named: BTreeMap<FileId, u64> =
        named.filter(|(id, _)| *id >= known.log_floor && *id > 0).collect();
    if known.has_floor {
        named.entry(known.log_floor).or_default();
    }
    for (id, bytes) in named {
        if segments.iter().all(|segment| segment.id != id) {
            report.lose(Loss::new(
                &segment_path(dir, id),
                0,
                bytes,
                "a segment of the log: no file",
            ));
        }
    }
}

fn read_segment(
    fs: &dyn FileSystem,
    segment: &Segment,
    identity: u64,
    contents: &mut LogContents,
    report: &mut SalvageReport,
) -> Result<()> {
    let path = &segment.path;
    let Ok(mut reader) = FrameReader::open(fs, path, FrameSeed::new(identity, segment.id)) else {
        report.lose(Loss::new(path, 0, 0, "a segment of the log, which cannot be opened"));
        return Ok(());
    };
    let len = reader.file_bytes();
    if len < SEGMENT_HEADER_BYTES as u64 {
        report.lose(Loss::new(path, len, 0, "a segment of the log: cut off in its header"));
    }
    let is_void =
        |end: u64| segment.base.is_some_and(|base| base.saturating_add(end) > segment.cut);
    let mut offset = SEGMENT_HEADER_BYTES as u64;
    loop {
        if is_void(offset + 1) {
            return Ok(());
        }
        let next = match reader.frame_at(offset)? {
            FrameRead::End => break,
            FrameRead::Frame(header, _) if is_void(offset + header.frame_bytes()) => return Ok(()),
            FrameRead::Frame(header, payload) => {
                if !header.is_mark() && !contents.add(payload) {
                    let what = "a record of the log that is no batch";
                    report.lose(Loss::new(path, offset, header.frame_bytes(), what));
                }
                report.log_records += u64::from(!header.is_mark());
                offset += header.frame_bytes();
                continue;
            }
            FrameRead::Fault(FrameFault::Payload(header)) => offset + header.frame_bytes(),
            FrameRead::Fault(_) => {
                let found = reader.find_header(offset + 1, None)?;
                found.map_or(reader.file_bytes(), |(at, _)| at)
            }
        };
        let (bytes, what) = match next == reader.file_bytes() {
            // How long the last segment was is not known.
            true if segment.cut == Lsn::MAX => {
                (0, "the end of the log: no whole record, torn by a crash or damaged")
            }
            _ => (next - offset, "records of the log"),
        };
        report.lose(Loss::new(path, offset, bytes, what));
        offset = next;
    }
    // The next segment says where this one ended.
    if let Some(base) = segment.base
        && segment.cut != Lsn::MAX
        && base.saturating_add(offset) < segment.cut
    {
        let bytes = segment.cut - base - offset;
        report.lose(Loss::new(path, offset, bytes, "the end of the log's segment: cut off"));
    }
    Ok(())
}

impl LogContents {
    /// Adds a record. Returns false if it is none.
    fn add(&mut self, payload: Vec<u8>) -> bool {
        match Payload::decode(&payload) {
            Ok(Payload::Creations(created)) => {
                for Creation { root, tree, name } in created {
                    self.created.insert(tree, (root, name));
                }
                true
            }
            Ok(Payload::Batch(batch)) => {
                self.add_batch(&payload, batch);
                true
            }
            Err(_) => false,
        }
    }

    fn add_batch(&mut self, payload: &[u8], batch: Batch<'_>) {
        for (op, seq) in batch.ops().zip(batch.first_seq()..) {
            let tree = self.trees.entry(op.tree).or_default();
            let key = op.key(payload);
            if op.range.is_some() {
                let to = op.range_end(payload).map(Box::from);
                tree.ranges.push(Fragment { from: key.into(), to, seq });
                continue;
            }
            let value = op.value(payload).to_vec();
            tree.entries.insert((key.to_vec(), Reverse(seq)), (op.kind, value));
        }
    }
}
