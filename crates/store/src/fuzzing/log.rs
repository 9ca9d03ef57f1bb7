//! Log segments with correct checksums. The first byte says what follows:
//!
//! * even: the payload of one record;
//! * odd: `[floor u8][place u16][segments u8]`, segments as chunks, numbered from 1. Checksums of
//!   headers and frames are corrected, except those that begin with [`LEFT_BROKEN`].

use std::{path::Path, sync::Arc};

use rhumb_sync::{mapping::Gauge, record::Record};
use xxhash_rust::xxh3::xxh3_64;

use super::{DIR, IDENTITY, Input, file_system, overwrite, table::assert_refusal, u32_at, u64_at};
use crate::{
    db::insert_record,
    inspect::Inspector,
    io::FileSystem,
    log::{
        LogRecord, LogStart,
        batch::Batch,
        creation::{Payload, encode_creations},
        format::segment::{SEGMENT_HEADER_BYTES, SEGMENT_MAGIC, SEGMENT_VERSION},
        frame::{FRAME_HEADER_BYTES, FrameHeader, FrameSeed},
        recover,
        segment::segment_path,
    },
    memtable::Memtable,
    options::MemtableKind,
    types::{FileId, SeqNo},
};

/// A checksum that is not corrected, to stand for a torn write or damage.
const LEFT_BROKEN: u32 = 0xdead_dead;

/// Replays a log, or decodes a record.
pub fn log(data: &[u8]) {
    let mut input = Input(data);
    if input.u8() & 1 == 0 {
        return replay_record(&memtables(), input.rest());
    }
    let start = LogStart {
        segment: FileId::from(input.u8() % 4),
        lsn: u64::from(input.u16()),
        must_exist: false,
    };
    let mut segments = Vec::new();
    for id in 1..=u64::from(input.u8() % 3) + 1 {
        let mut bytes = input.chunk().to_vec();
        repair(&mut bytes, id);
        segments.push((format!("{id:06}.log"), bytes));
    }
    let files: Vec<(&str, &[u8])> =
        segments.iter().map(|(name, bytes)| (&name[..], &bytes[..])).collect();
    let fs = file_system(&files);
    replay(&fs, start);
    let inspector = Inspector::with_file_system(Arc::clone(&fs));
    for (id, (_, bytes)) in (1..).zip(&segments) {
        let report = inspector.log(segment_path(Path::new(DIR), id));
        let report = report.expect("damage is part of the report");
        let listed: u64 = report.records.iter().map(|record| record.bytes).sum();
        assert_eq!(listed, (bytes.len() as u64).saturating_sub(SEGMENT_HEADER_BYTES as u64));
    }
}

/// A memtable of each kind.
fn memtables() -> [Memtable; 2] {
    [MemtableKind::Learned, MemtableKind::SkipList]
        .map(|kind| Memtable::new(kind, None, 1 << 20, &Gauge::default()))
}

/// Replays the log as opening a database does.
fn replay(fs: &Arc<dyn FileSystem>, start: LogStart) {
    let memtables = memtables();
    let mut records = 0;
    let mut end = 0;
    let recovered = recover(&**fs, Path::new(DIR), IDENTITY, start, |record| {
        let LogRecord { lsn, payload, .. } = record;
        assert!(lsn >= end && lsn >= start.lsn, "records in order");
        end = lsn + (FRAME_HEADER_BYTES + payload.len()) as u64;
        records += 1;
        replay_record(&memtables, &payload);
        Ok(())
    });
    match recovered {
        Ok(found) => {
            assert_eq!(found.records, records);
            assert!(found.end >= end && found.durable <= found.end && found.last_base <= found.end);
            assert!(found.segments.is_sorted());
        }
        Err(error) => assert_refusal(&error),
    }
}

/// Decodes a batch, puts it into memtables, and finds it there.
fn replay_record(memtables: &[Memtable], payload: &[u8]) {
    let batch = match Payload::decode(payload) {
        Ok(Payload::Batch(batch)) => batch,
        Ok(Payload::Creations(created)) => {
            assert_eq!(encode_creations(&created), *payload, "creations have one encoding");
            return memtables.iter().for_each(|memtable| memtable.add_created(&created));
        }
        Err(_) => return,
    };
    assert_eq!(batch.ops().count(), batch.count() as usize);
    memtables.iter().for_each(|memtable| insert_and_find(memtable, batch, payload));
}

fn insert_and_find(memtable: &Memtable, batch: Batch<'_>, payload: &[u8]) {
    let after = insert_record(memtable, &Record::given(payload.to_vec()), batch.first_seq());
    assert_eq!(after, batch.first_seq() + u64::from(batch.count()));
    assert!(after <= 1 << 56);
    for (seq, operation) in (batch.first_seq()..).zip(batch.ops()).take(100) {
        let (key, value) = (operation.key(payload), operation.value(payload));
        if operation.range.is_some() {
            // Unlike in a log that a writer made, others with greater numbers may have come before.
            memtable.newest_range(operation.tree, key, seq);
            assert!(memtable.contains_tree(operation.tree) || seq == 0);
            continue;
        }
        let entry = memtable.get(operation.tree, key, seq).expect("it was inserted");
        assert_eq!((entry.seq(), entry.kind()), (seq, operation.kind));
        assert!(entry.key() == key && entry.value() == value);
        assert!(memtable.get(operation.tree, key, SeqNo::MAX).is_some());
    }
}

/// Corrects the checksums of a segment, and the header fields that identify it.
pub(super) fn repair(bytes: &mut [u8], id: FileId) {
    if u32_at(bytes, 0) != LEFT_BROKEN {
        overwrite(bytes, 0, &SEGMENT_MAGIC);
        overwrite(bytes, 8, &SEGMENT_VERSION.to_le_bytes());
        overwrite(bytes, 16, &IDENTITY.to_le_bytes());
        overwrite(bytes, 24, &id.to_le_bytes());
        let checksum = bytes.get(..64).map_or(0, xxh3_64);
        overwrite(bytes, 64, &checksum.to_le_bytes());
    }
    repair_frames(bytes, SEGMENT_HEADER_BYTES, FrameSeed::new(IDENTITY, id));
}

/// Corrects the checksums of frames that lie back to back from `at` on.
pub(super) fn repair_frames(bytes: &mut [u8], mut at: usize, seed: FrameSeed) {
    while let Some(left) = bytes.len().checked_sub(at + FRAME_HEADER_BYTES) {
        let is_broken = u32_at(bytes, at) == LEFT_BROKEN;
        // A length beyond the end would hide what follows, so most are made to fit.
        let len = match u32_at(bytes, at + 4) {
            len if len as usize <= left || is_broken => len,
            len => len % (left as u32 + 1),
        };
        let start = at + FRAME_HEADER_BYTES;
        let end = start.saturating_add(len as usize).min(bytes.len());
        if !is_broken {
            let hash = seed.payload_hash(at as u64, &bytes[start..end]);
            let header = FrameHeader { len, synced: u64_at(bytes, at + 8), hash };
            overwrite(bytes, at, &header.encode(seed, at as u64));
        }
        at = end;
    }
}
