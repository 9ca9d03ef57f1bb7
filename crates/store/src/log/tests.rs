//! The log against its promises: histories of appends, syncs, rotations, failures, kills, power
//! cuts and flipped bits, held against the plain list of what was acknowledged.

use std::{path::Path, sync::Arc};

use proptest::prelude::*;

use super::{
    LogRecord, LogStart, LogWriter, Lsn, Recovery, SegmentHeader,
    batch::BatchBuilder,
    frame::FRAME_HEADER_BYTES,
    reader::{FrameState, inspect_segment},
    recover,
    segment::SEGMENT_HEADER_BYTES,
    test_fs::{Rng, TestFs},
};
use crate::error::{Error, Result};

const IDENTITY: u64 = 0x5EED_5EED_5EED_5EED;
const START: LogStart = LogStart { segment: 1, lsn: 0 };

fn dir() -> &'static Path {
    Path::new("db")
}

fn first_header(id: u64, base: Lsn) -> SegmentHeader {
    SegmentHeader { identity: IDENTITY, id, base, previous: 0, previous_base: 0, synced: 0 }
}

fn writer(fs: &TestFs) -> LogWriter {
    LogWriter::create(&fs.shared(), dir(), first_header(1, 0)).unwrap()
}

fn replay(fs: &TestFs, start: LogStart) -> Result<(Recovery, Vec<LogRecord>)> {
    let mut records = Vec::new();
    let recovery = recover(fs, dir(), IDENTITY, start, |record| {
        records.push(record);
        Ok(())
    })?;
    assert_eq!(recovery.records, records.len() as u64);
    Ok((recovery, records))
}

fn payloads(fs: &TestFs) -> Result<Vec<Vec<u8>>> {
    Ok(replay(fs, START)?.1.iter().map(|record| record.payload.to_vec()).collect())
}

#[test]
fn golden_bytes_of_a_segment() {
    let fs = TestFs::default();
    let header = SegmentHeader {
        identity: 0x0102_0304_0506_0708,
        id: 7,
        base: 100,
        previous: 5,
        previous_base: 40,
        synced: 60,
    };
    let mut writer = LogWriter::create(&fs.shared(), dir(), header).unwrap();
    writer.append(&[b"hello", b" log"]).unwrap();
    writer.note_durable(100);
    writer.sync(false).unwrap();
    writer.mark().unwrap();
    let hex: String = fs.read("000007.log").iter().map(|byte| format!("{byte:02x}")).collect();
    let expected = [
        "5248554d424c4f47",
        "01000000",
        "00000000",
        "0807060504030201",
        "0700000000000000",
        "6400000000000000",
        "0500000000000000",
        "2800000000000000",
        "3c00000000000000",
        "10850c97159b79ea",
        "8d410132",
        "09000000",
        "3c00000000000000",
        "22fcd38d6ec0f4bc",
        "68656c6c6f206c6f67",
        "3d620e96",
        "00000000",
        "cd00000000000000",
        "d63df30e576bfacc",
    ]
    .concat();
    assert_eq!(hex, expected);
}

#[test]
fn a_log_is_read_back_over_segments() {
    let fs = TestFs::default();
    let mut first = writer(&fs);
    let big = vec![7; 200 << 10];
    assert_eq!(first.append(&[b"one"]).unwrap(), 72);
    let second_lsn = first.append(&[b"head", &big, b"tail", &big]).unwrap();
    assert_eq!(second_lsn, 72 + 24 + 3);
    let mut second = first.rotate(2).unwrap();
    assert_eq!(second.header().base, first.end_lsn());
    second.append(&[b"three"]).unwrap();
    first.sync(false).unwrap();
    second.note_durable(first.durable_lsn());
    second.close().unwrap();

    let (recovery, records) = replay(&fs, START).unwrap();
    let got: Vec<&[u8]> = records.iter().map(|record| &record.payload[..]).collect();
    assert_eq!(got, [&b"one"[..], &[b"head", &big[..], b"tail", &big[..]].concat(), b"three"]);
    assert_eq!(records[1].lsn, second_lsn);
    assert_eq!((records[1].segment, records[2].segment), (1, 2));
    assert_eq!((recovery.last, &recovery.segments[..]), (2, &[1, 2][..]));
    assert_eq!((recovery.torn, recovery.durable), (None, recovery.end - 24));
}

#[test]
fn a_refused_payload_leaves_the_writer_as_it_was() {
    let fs = TestFs::default();
    let mut writer = writer(&fs);
    assert!(matches!(writer.append(&[]), Err(Error::InvalidArgument(_))));
    assert!(matches!(writer.append(&[b"", b""]), Err(Error::InvalidArgument(_))));
    let huge = vec![0; 1 << 30];
    assert!(matches!(writer.append(&[&huge[..]; 4]), Err(Error::InvalidArgument(_))));
    writer.append(&[b"fine"]).unwrap();
    assert_eq!(payloads(&fs).unwrap(), [b"fine"]);
}

#[test]
fn a_group_costs_one_write() {
    let fs = TestFs::default();
    let mut writer = writer(&fs);
    let calls = fs.calls();
    for i in 0..100u8 {
        writer.stage(&[&[i], &[0; 100]]).unwrap();
    }
    assert_eq!(payloads(&fs).unwrap().len(), 0, "nothing before the commit");
    writer.commit().unwrap();
    assert_eq!(fs.calls() - calls, 1);
    assert_eq!(payloads(&fs).unwrap().len(), 100);
}

#[test]
fn after_a_failed_sync_nothing_goes_on() {
    let fs = TestFs::default();
    let mut writer = writer(&fs);
    writer.append(&[b"a"]).unwrap();
    fs.fail_after(0, false);
    assert!(matches!(writer.sync(false), Err(Error::Io(_))));
    assert!(writer.sync_failure().is_some());
    assert!(matches!(writer.append(&[b"b"]), Err(Error::WritesStopped(_))));
    assert!(matches!(writer.sync(false), Err(Error::WritesStopped(_))));
    assert!(matches!(writer.rotate(2), Err(Error::WritesStopped(_))));
    assert_eq!(writer.durable_lsn(), 0);
}

/// The record whose write failed although all its bytes arrived, and whose removal failed too, may
/// come back only while nothing follows it.
#[test]
fn a_record_that_could_not_be_cut_off_is_voided_by_the_next_segment() {
    let fs = TestFs::default();
    let mut first = writer(&fs);
    first.append(&[b"good"]).unwrap();
    let end = first.end_lsn();
    while fs.calls() % 3 != 1 {
        first.sync(true).unwrap();
    }
    fs.fail_after(0, true);
    first.append(&[b"refused"]).unwrap_err();
    fs.heal();
    assert!(first.is_closed());
    assert_eq!(fs.failed(), ["write", "truncate"]);
    assert_eq!(payloads(&fs).unwrap(), [&b"good"[..], b"refused"], "absent or whole");
    assert!(matches!(first.append(&[b"more"]), Err(Error::WritesStopped(_))));

    let mut second = first.rotate(2).unwrap();
    assert_eq!(second.header().base, end);
    assert_eq!(payloads(&fs).unwrap(), [b"good"]);
    second.append(&[b"next"]).unwrap();
    assert_eq!(payloads(&fs).unwrap(), [b"good", b"next"]);
}

#[test]
fn a_missing_segment_is_damage_if_it_was_durable() {
    for synced in [false, true] {
        let fs = TestFs::default();
        let mut first = writer(&fs);
        first.append(&[b"one"]).unwrap();
        if synced {
            first.sync(false).unwrap();
        }
        let mut second = first.rotate(5).unwrap();
        second.append(&[b"two"]).unwrap();
        let mut third = second.rotate(6).unwrap();
        third.append(&[b"three"]).unwrap();
        fs.remove("000001.log");
        match replay(&fs, START) {
            Err(e) if synced => assert!(e.is_corruption() && e.to_string().contains("000001.log")),
            Ok((recovery, records)) if !synced => {
                assert!(records.is_empty());
                assert_eq!((recovery.end, recovery.torn.unwrap().segment), (0, 1));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_segment_of_another_database_is_refused() {
    let fs = TestFs::default();
    writer(&fs).append(&[b"one"]).unwrap();
    let error = recover(&fs, dir(), IDENTITY + 1, START, |_| Ok(())).unwrap_err();
    assert!(error.is_corruption() && error.to_string().contains("of the database"), "{error}");
}

#[test]
fn bytes_of_a_value_do_not_pass_for_a_claim() {
    let fs = TestFs::default();
    let mut writer = writer(&fs);
    writer.append(&[b"one"]).unwrap();
    writer.sync(false).unwrap();
    writer.append(&[b"two"]).unwrap();
    let frame = fs.read("000001.log")[99..].to_vec();
    writer.append(&[&[0; 10], &frame, &frame]).unwrap();
    let mut bytes = fs.read("000001.log");
    bytes[78] ^= 1;
    fs.put("000001.log", &bytes);
    assert!(replay(&fs, START).unwrap_err().is_corruption(), "true claims count");
    for byte in &mut bytes[99..99 + 24] {
        *byte = 0;
    }
    let at = bytes.len() - 24 - 10 - 2 * frame.len();
    bytes[at..at + 24].fill(0);
    fs.put("000001.log", &bytes);
    let (recovery, records) = replay(&fs, START).unwrap();
    assert_eq!((recovery.end, records.len()), (72, 0));
}

#[test]
fn inspection_lists_every_stretch() {
    let fs = TestFs::default();
    let mut writer = writer(&fs);
    let mut batch = BatchBuilder::new();
    batch.put(1, b"k", b"v").unwrap();
    let payload = batch.seal(5).to_vec();
    for part in [&payload[..], b"no batch", &payload, &payload, &payload] {
        writer.append(&[part]).unwrap();
    }
    writer.close().unwrap();
    let frame = (24 + payload.len()) as u64;
    let third = 72 + frame + 32;
    fs.flip("000001.log", 8 * (third as usize + 2));
    fs.flip("000001.log", 8 * ((third + frame) as usize + 30));
    let segment = inspect_segment(&fs, &dir().join("000001.log"), None).unwrap();
    assert_eq!(segment.header, Ok(first_header(1, 0)));
    let states: Vec<FrameState> = segment.map(|frame| frame.unwrap().state).collect();
    let batch = FrameState::Batch { first_seq: 5, ops: 1, synced: 0 };
    assert_eq!(states[0], batch);
    assert!(matches!(states[1], FrameState::NotABatch { offset: 0, .. }));
    assert_eq!(states[2..5], [FrameState::Unknown, FrameState::Damaged, batch]);
    assert!(matches!(states[5], FrameState::Mark { synced } if synced == third + 3 * frame));
    assert_eq!(states.len(), 6);
}

/// A log as the engine uses it, and the list of what was acknowledged.
struct History {
    fs: TestFs,
    rng: Rng,
    start: LogStart,
    writer: LogWriter,
    /// Closed segments that were not synced, oldest first.
    older: Vec<LogWriter>,
    next_id: u64,
    next_record: u64,
    /// Acknowledged and not flushed: end place and payload.
    acked: Vec<(Lsn, Vec<u8>)>,
    /// Groups that failed, and where in the log: each may come back there if nothing after that
    /// place does.
    refused: Vec<(Lsn, Vec<Vec<u8>>)>,
}

impl History {
    fn new(seed: u64) -> Self {
        let fs = TestFs::default();
        let writer = writer(&fs);
        let rng = Rng(seed);
        Self {
            fs,
            rng,
            start: START,
            writer,
            older: Vec::new(),
            next_id: 2,
            next_record: 0,
            acked: Vec::new(),
            refused: Vec::new(),
        }
    }

    fn durable(&self) -> Lsn {
        self.writer.durable_lsn()
    }

    fn payload(&mut self) -> Vec<u8> {
        let len = match self.rng.below(20) {
            0 => self.rng.below(150_000),
            1..4 => self.rng.below(3000),
            _ => self.rng.below(60),
        };
        let mut payload = self.next_record.to_le_bytes().to_vec();
        self.next_record += 1;
        payload.extend((0..len).map(|_| self.rng.next() as u8));
        payload
    }

    fn append(&mut self) {
        let group: Vec<Vec<u8>> = (0..1 + self.rng.below(3)).map(|_| self.payload()).collect();
        let mut ends = Vec::new();
        let mut outcome = Ok(());
        for payload in &group {
            let cut = self.rng.below(payload.len() as u64) as usize;
            let staged = self.writer.stage(&[&payload[..cut], &payload[cut..]]);
            match staged {
                Ok(lsn) => ends.push(lsn + (FRAME_HEADER_BYTES + payload.len()) as u64),
                Err(e) => {
                    outcome = Err(e);
                    break;
                }
            }
        }
        if outcome.and_then(|()| self.writer.commit()).is_ok() {
            assert_eq!(*ends.last().unwrap(), self.writer.end_lsn());
            self.acked.extend(ends.into_iter().zip(group));
        } else {
            self.refused.push((self.writer.end_lsn(), group));
        }
    }

    fn sync(&mut self) {
        let all = self.rng.one_in(4);
        while let Some(older) = self.older.first_mut() {
            let Ok(durable) = older.sync(all) else { return };
            assert!(durable == older.end_lsn() || durable < older.header().base);
            self.older.get_mut(1).unwrap_or(&mut self.writer).note_durable(durable);
            self.older.remove(0);
        }
        if let Ok(durable) = self.writer.sync(all) {
            assert!(durable == self.writer.end_lsn() || durable < self.writer.header().base);
        }
    }

    fn rotate(&mut self) {
        self.next_id += 1 + self.rng.below(3);
        if let Ok(next) = self.writer.rotate(self.next_id) {
            let old = std::mem::replace(&mut self.writer, next);
            self.older.push(old);
        }
    }

    /// What the engine does once tables hold everything in older segments.
    fn flush(&mut self) {
        let header = *self.writer.header();
        self.writer.note_durable(header.base);
        self.start = LogStart { segment: header.id, lsn: header.base };
        self.older.clear();
        self.acked.retain(|(end, _)| *end > header.base);
        self.refused.retain(|(at, _)| *at >= header.base);
        if self.rng.one_in(2) {
            for id in 0..header.id {
                self.fs.remove(&format!("{id:06}.log"));
            }
        }
    }

    fn step(&mut self) {
        if self.rng.one_in(12) {
            self.fs.fail_after(self.rng.clone().below(4), self.rng.one_in(2));
        }
        match self.rng.below(20) {
            0 | 1 => self.rotate(),
            2..5 => self.sync(),
            5 => self.flush(),
            6 => drop(self.writer.mark()),
            _ => self.append(),
        }
        self.fs.heal();
        while self.writer.is_closed() {
            self.rotate();
        }
    }

    /// Whether a replay may give these records: a beginning of what was acknowledged, perhaps
    /// followed by a beginning of what was refused right there.
    fn explains(&self, records: &[LogRecord]) -> bool {
        let begins = |all: Vec<&Vec<u8>>| {
            records.len() <= all.len()
                && records.iter().zip(all).all(|(got, expected)| got.payload[..] == expected[..])
        };
        let acked_before = |place| {
            self.acked.iter().filter(move |(end, _)| *end <= place).map(|(_, payload)| payload)
        };
        begins(acked_before(Lsn::MAX).collect())
            || self
                .refused
                .iter()
                .any(|(at, group)| begins(acked_before(*at).chain(group).collect()))
    }

    /// Checks that a replay of `after` is right, and returns it. `whole`: everything acknowledged
    /// must be there.
    fn check(&self, after: &TestFs, whole: bool) -> Recovery {
        let (recovery, records) = replay(after, self.start).unwrap();
        assert!(self.explains(&records), "{} records, {:?}", records.len(), recovery.torn);
        let durable = self.acked.iter().filter(|(end, _)| *end <= self.durable()).count();
        let least = if whole { self.acked.len() } else { durable };
        assert!(records.len() >= least, "{} of {least}: {:?}", records.len(), recovery.torn);
        assert!(recovery.durable <= self.durable());
        recovery
    }

    /// Goes on from what a crash left, as at an opening.
    fn reopen(&mut self, after: TestFs, recovery: &Recovery) {
        let (_, records) = replay(&after, self.start).unwrap();
        self.fs = after;
        self.next_id = self.next_id.max(recovery.segments.last().copied().unwrap_or(0)) + 1;
        let header = recovery.next_header(IDENTITY, self.next_id);
        self.writer = LogWriter::create(&self.fs.shared(), dir(), header).unwrap();
        self.older.clear();
        self.refused.retain(|(at, _)| *at <= recovery.end);
        let end =
            |record: &LogRecord| record.lsn + (FRAME_HEADER_BYTES + record.payload.len()) as u64;
        self.acked = records.iter().map(|record| (end(record), record.payload.to_vec())).collect();
        if self.rng.one_in(2) {
            self.flush();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Kills keep all that was acknowledged; power cuts keep a prefix with all that was durable;
    /// neither is ever taken for damage, however often it happens.
    #[test]
    fn crashes_lose_only_what_was_not_promised(seed: u64) {
        let mut history = History::new(seed);
        for _ in 0..1 + history.rng.below(4) {
            for _ in 0..history.rng.below(40) {
                history.step();
            }
            let kill = history.rng.one_in(3);
            let after = match kill {
                true => history.fs.kill(),
                false => history.fs.cut_power(&mut history.rng.clone()),
            };
            history.rng.next();
            let recovery = history.check(&after, kill);
            history.reopen(after, &recovery);
        }
    }

    /// A flipped bit is never replayed; it is an error only where durable bytes were.
    #[test]
    fn a_flipped_bit_is_found_or_does_no_harm(seed: u64, close: bool) {
        let mut history = History::new(seed);
        for _ in 0..history.rng.below(40) {
            history.step();
        }
        if close {
            history.refused.clear();
            history.sync();
            if history.writer.sync_failure().is_some() || !history.older.is_empty() {
                return Ok(());
            }
            history.writer.close().unwrap();
        }
        let durable = if close { Lsn::MAX } else { history.durable() };
        let fs = history.fs.kill();
        let names: Vec<String> =
            fs.names().into_iter().filter(|name| **name >= *format!("{:06}", history.start.segment)).collect();
        let name = &names[history.rng.below(names.len() as u64) as usize];
        let bytes = fs.read(name);
        if bytes.is_empty() {
            return Ok(());
        }
        let bit = history.rng.below(8 * bytes.len() as u64) as usize;
        fs.flip(name, bit);
        match replay(&fs, history.start) {
            Ok((_, records)) => {
                prop_assert!(history.explains(&records));
                if close {
                    prop_assert_eq!(records.len(), history.acked.len(), "lost after a clean close");
                }
            }
            Err(e) => {
                prop_assert!(e.is_corruption());
                let base = u64::from_le_bytes(bytes[32..40].try_into().unwrap());
                prop_assert!(base + (bit as u64) / 8 < durable, "{}", e);
            }
        }
    }

    /// Any edit of any bytes is survived: no panic, and nothing that was not written is replayed.
    #[test]
    fn hostile_segments_do_no_harm(seed: u64) {
        let mut history = History::new(seed);
        for _ in 0..history.rng.below(20) {
            history.step();
        }
        let fs = history.fs.kill();
        for name in fs.names() {
            let mut bytes = fs.read(&name);
            if bytes.is_empty() {
                continue;
            }
            for _ in 0..history.rng.below(4) {
                let at = history.rng.below(bytes.len() as u64) as usize;
                bytes[at] = history.rng.next() as u8;
            }
            if history.rng.one_in(3) {
                bytes.truncate(history.rng.below(bytes.len() as u64 + 1) as usize);
            }
            if history.rng.one_in(3) && bytes.len() >= SEGMENT_HEADER_BYTES {
                let extra: Vec<u8> = bytes[SEGMENT_HEADER_BYTES..].to_vec();
                bytes.extend(extra);
            }
            fs.put(&name, &bytes);
            let path = dir().join(&name);
            let list: Vec<_> = inspect_segment(&fs, &path, Some(IDENTITY)).unwrap().collect();
            let covered: u64 = list.iter().map(|frame| frame.as_ref().unwrap().bytes).sum();
            prop_assert_eq!(covered, (bytes.len() as u64).saturating_sub(72));
        }
        if let Ok((_, records)) = replay(&fs, history.start) {
            prop_assert!(history.explains(&records));
        }
    }
}

#[test]
fn short_writes_are_finished() {
    let fs = TestFs::default();
    fs.set_write_bytes_max(7);
    let mut writer = writer(&fs);
    let big: Arc<[u8]> = vec![3; 70 << 10].into();
    writer.append(&[b"small"]).unwrap();
    writer.append(&[&big]).unwrap();
    assert_eq!(payloads(&fs).unwrap(), [b"small".to_vec(), big.to_vec()]);
}
