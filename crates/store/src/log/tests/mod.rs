//! The log against its promises, rule by rule; `histories` mixes them all.

use std::{path::Path, sync::Arc};

use rhumb_testkit::random::Random;

use super::{
    LogRecord, LogStart, LogWriter, Lsn, Recovery,
    batch::BatchBuilder,
    frame::{FRAME_HEADER_BYTES, FrameHeader, FrameSeed},
    reader::{FrameState, inspect_segment},
    recover,
    segment::{SEGMENT_HEADER_BYTES, SegmentHeader},
};
use crate::{
    error::{Error, Result},
    io::sim::{CallKind, Fault, Matcher, SimFs},
};

mod follow;
mod histories;

const IDENTITY: u64 = 0x5EED_5EED_5EED_5EED;
const START: LogStart = LogStart { segment: 1, lsn: 0, must_exist: false };

fn dir() -> &'static Path {
    Path::new("db")
}

fn first_header(id: u64, base: Lsn) -> SegmentHeader {
    SegmentHeader { identity: IDENTITY, id, base, previous: 0, previous_base: 0, synced: 0 }
}

fn writer(fs: &SimFs) -> LogWriter {
    LogWriter::create(&fs.shared(), dir(), first_header(1, 0)).unwrap()
}

fn replay(fs: &SimFs, start: LogStart) -> Result<(Recovery, Vec<LogRecord>)> {
    let mut records = Vec::new();
    let recovery = recover(fs, dir(), IDENTITY, start, |record| {
        records.push(record);
        Ok(())
    })?;
    assert_eq!(recovery.records, records.len() as u64);
    Ok((recovery, records))
}

fn payloads(fs: &SimFs) -> Result<Vec<Vec<u8>>> {
    Ok(replay(fs, START)?.1.iter().map(|record| record.payload.to_vec()).collect())
}

#[test]
fn golden_bytes_of_a_segment() {
    let fs = SimFs::one_dir();
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
    writer.record_durable(100);
    writer.sync(false).unwrap();
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
    let fs = SimFs::one_dir();
    let mut first = writer(&fs);
    let big = vec![7; 200 << 10];
    assert_eq!(first.append(&[b"one"]).unwrap(), 72);
    let second_lsn = first.append(&[b"head", &big, b"tail", &big]).unwrap();
    assert_eq!(second_lsn, 72 + 24 + 3);
    let mut second = first.rotate(2).unwrap();
    assert_eq!(second.header().base, first.end_lsn());
    second.append(&[b"three"]).unwrap();
    first.sync(false).unwrap();
    second.record_durable(first.durable_lsn());
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
    let fs = SimFs::one_dir();
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
    let fs = SimFs::one_dir();
    let mut writer = writer(&fs);
    let changes = fs.counts().changes;
    for i in 0..100u8 {
        writer.stage(&[&[i], &[0; 100]]).unwrap();
    }
    assert_eq!(payloads(&fs).unwrap().len(), 0, "nothing before the commit");
    writer.commit().unwrap();
    assert_eq!(fs.counts().changes - changes, 1);
    assert_eq!(payloads(&fs).unwrap().len(), 100);
}

#[test]
fn after_a_failed_sync_nothing_goes_on() {
    let fs = SimFs::one_dir();
    let mut writer = writer(&fs);
    writer.append(&[b"a"]).unwrap();
    fs.fail_after(0, false, 0);
    assert!(matches!(writer.sync(false), Err(Error::Io(_))));
    assert!(matches!(writer.append(&[b"b"]), Err(Error::WritesStopped(_))));
    assert!(matches!(writer.sync(false), Err(Error::WritesStopped(_))));
    assert!(matches!(writer.rotate(2), Err(Error::WritesStopped(_))));
    assert_eq!(writer.durable_lsn(), 0);
}

/// The record whose write failed although all its bytes arrived, and whose removal failed too, may
/// come back only while nothing follows it.
#[test]
fn a_record_that_could_not_be_cut_off_is_voided_by_the_next_segment() {
    let fs = SimFs::one_dir();
    let mut first = writer(&fs);
    first.append(&[b"good"]).unwrap();
    let end = first.end_lsn();
    fs.fail_after(0, true, usize::MAX);
    first.append(&[b"refused"]).unwrap_err();
    assert_eq!(fs.failed(), [CallKind::Write, CallKind::Truncate]);
    fs.clear_faults();
    assert!(first.is_closed());
    assert_eq!(payloads(&fs).unwrap(), [&b"good"[..], b"refused"], "absent or whole");
    assert!(matches!(first.append(&[b"more"]), Err(Error::WritesStopped(_))));

    let mut second = first.rotate(2).unwrap();
    assert_eq!(second.header().base, end);
    assert_eq!(payloads(&fs).unwrap(), [b"good"]);
    second.append(&[b"next"]).unwrap();
    assert_eq!(payloads(&fs).unwrap(), [b"good", b"next"]);
    first.sync(false).unwrap();
    assert_eq!(fs.read("000001.log").len() as u64, end, "cut off once that works");
    first.close().unwrap();
}

/// A refused record as long as the empty segment that voids it must not fill the place of that
/// segment when it is lost.
#[test]
fn a_refused_record_does_not_stand_in_for_a_lost_segment() {
    let fs = SimFs::one_dir();
    let mut first = writer(&fs);
    first.append(&[b"good"]).unwrap();
    let mut second = first.rotate(2).unwrap();
    let mut third = second.rotate(3).unwrap();
    third.append(&[b"next"]).unwrap();
    // What the first segment would hold if the cut had failed for good.
    let with_refused = SimFs::one_dir();
    let mut first = writer(&with_refused);
    first.append(&[b"good"]).unwrap();
    let end = first.end_lsn();
    first.append(&[&[1; SEGMENT_HEADER_BYTES - FRAME_HEADER_BYTES]]).unwrap();
    assert_eq!(first.end_lsn(), third.header().base);
    fs.put("000001.log", &with_refused.read("000001.log"));
    assert_eq!(payloads(&fs).unwrap(), [b"good", b"next"]);
    fs.remove("000002.log");
    let (recovery, records) = replay(&fs, START).unwrap();
    assert_eq!((recovery.end, records.len()), (end, 1));
}

/// The system had written the failed record back before it was cut off. What is appended in its
/// place must not be able to follow it after a power cut.
#[test]
fn nothing_follows_a_record_that_was_cut_off() {
    let payload = |byte| [byte; 512 - SEGMENT_HEADER_BYTES - FRAME_HEADER_BYTES];
    for seed in 0..200 {
        let fs = SimFs::one_dir();
        let mut writer = writer(&fs);
        fs.fail_after(0, false, usize::MAX);
        fs.set_write_back(1000);
        writer.append(&[&payload(1)]).unwrap_err();
        fs.set_write_back(0);
        writer.append(&[&payload(2)]).unwrap();
        writer.append(&[&payload(3)]).unwrap();
        let found = payloads(&fs.after_power_cut(&mut Random::new(seed))).unwrap();
        let right = [payload(2).to_vec(), payload(3).to_vec()];
        assert!(right.starts_with(&found), "{:?}", found.iter().map(|p| p[0]).collect::<Vec<_>>());
    }
}

/// Damage that checksums do not see: a header that begins within a record of an older segment.
#[test]
fn a_record_that_a_segment_cuts_in_two_is_not_replayed() {
    let fs = SimFs::one_dir();
    let mut first = writer(&fs);
    first.append(&[b"good"]).unwrap();
    let end = first.end_lsn();
    first.append(&[b"cut in two"]).unwrap();
    let header = SegmentHeader { previous: 1, synced: end, ..first_header(2, first.end_lsn() - 3) };
    let _second = LogWriter::create(&fs.shared(), dir(), header).unwrap();
    let (recovery, records) = replay(&fs, START).unwrap();
    assert_eq!((recovery.end, records.len()), (end, 1));
    assert!(recovery.torn.unwrap().found.contains("cuts in two"));
}

#[test]
fn a_claim_beyond_its_own_place_is_chance() {
    let fs = SimFs::one_dir();
    let mut writer = writer(&fs);
    writer.append(&[b"good"]).unwrap();
    let mut bytes = fs.read("000001.log");
    bytes.extend([0; 40]);
    let header = FrameHeader { len: 5, synced: 1 << 60, hash: 0 };
    let seed = FrameSeed::new(IDENTITY, 1);
    bytes.extend(header.encode(seed, bytes.len() as u64));
    fs.put("000001.log", &bytes);
    assert_eq!(replay(&fs, START).unwrap().0.end, writer.end_lsn());
}

#[test]
fn a_mark_that_failed_is_made_up_for() {
    let fs = SimFs::one_dir();
    let mut writer = writer(&fs);
    writer.append(&[b"good"]).unwrap();
    let end = writer.end_lsn();
    fs.fail_after(2, false, 0);
    assert_eq!(writer.sync(false).unwrap(), end, "the record is durable");
    assert_eq!((fs.failed(), writer.end_lsn()), (vec![CallKind::Write], end));
    writer.sync(false).unwrap();
    fs.flip("000001.log", 8 * SEGMENT_HEADER_BYTES);
    assert!(replay(&fs, START).unwrap_err().is_corruption());
}

/// Only the header of the next segment says that the last record was durable.
#[test]
fn a_segment_header_is_a_claim() {
    let fs = SimFs::one_dir();
    let mut first = writer(&fs);
    first.append(&[b"good"]).unwrap();
    first.sync(false).unwrap();
    let _second = first.rotate(2).unwrap();
    let mark = SEGMENT_HEADER_BYTES + FRAME_HEADER_BYTES + 4;
    fs.flip("000001.log", 8 * (mark - 1));
    fs.flip("000001.log", 8 * mark);
    let error = replay(&fs, START).unwrap_err().to_string();
    let place = format!("000001.log is damaged at offset {SEGMENT_HEADER_BYTES}");
    assert!(error.contains(&place), "{error}");
}

#[test]
fn a_missing_segment_is_damage_if_it_was_durable() {
    for synced in [false, true] {
        let fs = SimFs::one_dir();
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

/// As a disk may show in a file that was not synced, if other files had its sectors before.
#[test]
fn what_other_files_left_is_a_torn_tail() {
    let fs = SimFs::one_dir();
    let mut first = writer(&fs);
    first.append(&[b"one"]).unwrap();
    let end = first.end_lsn();
    fs.put("000002.log", &fs.read("000001.log"));
    let (recovery, records) = replay(&fs, START).unwrap();
    assert_eq!((recovery.end, records.len()), (end, 1));
    assert!(recovery.torn.unwrap().found.contains("segment 2 is one with the header of another"));
    let other = recover(&fs, dir(), IDENTITY + 1, START, |_| Ok(())).unwrap();
    assert_eq!((other.end, other.records), (0, 0));
}

#[test]
fn bytes_of_a_value_do_not_pass_for_a_claim() {
    let fs = SimFs::one_dir();
    let mut writer = writer(&fs);
    writer.append(&[b"one"]).unwrap();
    writer.sync(false).unwrap();
    writer.append(&[b"two"]).unwrap();
    let frame = fs.read("000001.log")[123..].to_vec();
    writer.append(&[&[0; 10], &frame, &frame]).unwrap();
    let mut bytes = fs.read("000001.log");
    bytes[78] ^= 1;
    fs.put("000001.log", &bytes);
    assert!(replay(&fs, START).unwrap_err().is_corruption(), "true claims count");
    bytes[99..123 + 24].fill(0);
    let at = bytes.len() - 24 - 10 - 2 * frame.len();
    bytes[at..at + 24].fill(0);
    fs.put("000001.log", &bytes);
    let (recovery, records) = replay(&fs, START).unwrap();
    assert_eq!((recovery.end, records.len()), (72, 0));
}

#[test]
fn inspection_lists_every_stretch() {
    let fs = SimFs::one_dir();
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

#[test]
fn short_writes_are_finished() {
    let fs = SimFs::one_dir();
    fs.inject(Matcher::any().kinds(&[CallKind::Write]), Fault::Short(7), u64::MAX);
    let mut writer = writer(&fs);
    let big: Arc<[u8]> = vec![3; 70 << 10].into();
    writer.append(&[b"small"]).unwrap();
    writer.append(&[&big]).unwrap();
    assert_eq!(payloads(&fs).unwrap(), [b"small".to_vec(), big.to_vec()]);
}
