//! Followers of a log that is being written.

use std::path::PathBuf;

use super::*;
use crate::{
    io::FileSystem,
    log::{
        follow::{Follower, Next},
        segment::segment_path,
    },
};

fn follower(fs: &SimFs, start: LogStart) -> Follower {
    Follower::new(&fs.shared(), dir(), IDENTITY, start)
}

/// All records that are there for now, and what comes after them.
fn read_on(follower: &mut Follower) -> (Vec<Vec<u8>>, Next) {
    let mut records = Vec::new();
    loop {
        match follower.read().unwrap() {
            Next::Record(record) => records.push(record.payload),
            other => return (records, other),
        }
    }
}

/// All records that are there for now; the log goes on later.
fn all(follower: &mut Follower) -> Vec<Vec<u8>> {
    let (records, end) = read_on(follower);
    assert!(matches!(end, Next::Nothing), "{end:?}");
    records
}

fn path(id: u64) -> PathBuf {
    segment_path(dir(), id)
}

/// Each record is yielded once, in order, as soon as it is committed, over the borders of segments,
/// while segments are removed, writes fail and are cut off, and followers come late.
#[test]
fn random_histories_are_followed() {
    for seed in 0..60 {
        let (fs, mut random) = (SimFs::one_dir(), Random::new(seed));
        let mut log = writer(&fs);
        let (mut written, mut id) = (Vec::<Vec<u8>>::new(), 1);
        let mut sealed: Vec<(LogWriter, usize)> = Vec::new();
        let mut start = START;
        // Each with the number of records that it has read.
        let mut followers = vec![(follower(&fs, START), 0)];
        for _ in 0..60 {
            match random.below(12) {
                0..5 => {
                    let group = 1 + random.below(3);
                    for _ in 0..group {
                        let len = [1, 30, 700, 70_000][random.below(4) as usize];
                        let payload = vec![(written.len() % 251) as u8; len];
                        log.stage(&[&payload]).unwrap();
                        written.push(payload);
                    }
                    log.commit().unwrap();
                }
                5 => drop(log.sync(false).unwrap()),
                6 => {
                    id += 1 + random.below(3);
                    let next = log.rotate(id).unwrap();
                    sealed.push((std::mem::replace(&mut log, next), written.len()));
                }
                7 if !sealed.is_empty() => {
                    let (old, records) = sealed.remove(0);
                    let next = sealed.first().map_or(log.header(), |(next, _)| next.header());
                    start = LogStart { segment: next.id, lsn: next.base, must_exist: true };
                    fs.remove_file(&path(old.header().id)).unwrap();
                    // A follower that is behind is told; the manifest would say where to go on.
                    for (follower, read) in &mut followers {
                        let (got, end) = read_on(follower);
                        assert_eq!(got, written[*read..*read + got.len()]);
                        *read += got.len();
                        if matches!(end, Next::Lagged) {
                            assert!(*read <= records && follower.segment() < start.segment);
                            *follower = self::follower(&fs, start);
                            *read = records;
                        }
                    }
                }
                8 => {
                    let fault = Fault::EioAfter(random.below(90) as usize);
                    fs.inject(Matcher::any().kinds(&[CallKind::Write]), fault, 1);
                    // The fault may also meet the mark of a sync, which says nothing of it.
                    if log.append(&[&[7; 100]]).is_ok() {
                        written.push(vec![7; 100]);
                    }
                    fs.clear_faults();
                }
                9 => {
                    let first = sealed.first().map_or(log.header(), |(old, _)| old.header());
                    let records = written.len() - all(&mut follower(&fs, start)).len();
                    assert_eq!(first.id.max(1), start.segment.max(1));
                    followers.push((follower(&fs, start), records));
                }
                _ => {
                    let at = random.below(followers.len() as u64) as usize;
                    let (follower, read) = &mut followers[at];
                    assert_eq!(all(follower), written[*read..], "seed {seed}");
                    *read = written.len();
                    assert_eq!(follower.lsn(), log.end_lsn(), "seed {seed}");
                    assert!(all(follower).is_empty());
                }
            }
        }
        for (mut follower, read) in followers {
            assert_eq!(all(&mut follower), written[read..], "seed {seed}");
        }
    }
}

/// A record of which any part is missing is not there yet; it is as soon as it is whole.
#[test]
fn a_record_is_there_when_its_last_byte_is() {
    for len in [1, 200, 300_000] {
        let fs = SimFs::one_dir();
        let mut log = writer(&fs);
        log.append(&[b"first"]).unwrap();
        let before = fs.read("000001.log").len();
        log.append(&[&vec![9; len]]).unwrap();
        let bytes = fs.read("000001.log");
        let mut one = follower(&fs, START);
        fs.set_content(&path(1), bytes[..before].to_vec()).unwrap();
        assert_eq!(all(&mut one), [b"first".to_vec()]);
        let step = 1 + len / 300;
        for end in (before..bytes.len()).step_by(step).chain([bytes.len() - 1]) {
            fs.set_content(&path(1), bytes[..end].to_vec()).unwrap();
            assert!(all(&mut one).is_empty(), "{end} of {}", bytes.len());
            assert_eq!(all(&mut follower(&fs, START)), [b"first".to_vec()]);
        }
        fs.set_content(&path(1), bytes.clone()).unwrap();
        assert_eq!(all(&mut one), [vec![9; len]]);
    }
}

/// A segment whose header is not whole yet is not there yet.
#[test]
fn a_segment_is_there_when_its_header_is() {
    let fs = SimFs::one_dir();
    let mut log = writer(&fs);
    log.append(&[b"first"]).unwrap();
    let mut next = log.rotate(2).unwrap();
    next.append(&[b"second"]).unwrap();
    let bytes = fs.read("000002.log");
    let mut one = follower(&fs, START);
    for end in 0..SEGMENT_HEADER_BYTES {
        fs.set_content(&path(2), bytes[..end].to_vec()).unwrap();
        assert_eq!(all(&mut one).len(), usize::from(end == 0));
        assert_eq!(one.segment(), 1);
    }
    fs.set_content(&path(2), bytes).unwrap();
    assert_eq!(all(&mut one), [b"second".to_vec()]);
    assert_eq!(one.segment(), 2);
}

/// Damage of what was durable is an error at every byte; what was not durable ends the log there.
#[test]
fn damage_in_the_middle_is_told_from_a_torn_end() {
    for is_synced in [false, true] {
        let fs = SimFs::one_dir();
        let mut log = writer(&fs);
        log.append(&[b"first"]).unwrap();
        let from = fs.read("000001.log").len();
        log.append(&[b"second"]).unwrap();
        let to = fs.read("000001.log").len();
        if is_synced {
            log.record_name_synced();
            log.sync(false).unwrap();
        }
        log.append(&[b"third"]).unwrap();
        let bytes = fs.read("000001.log");
        for at in from..to {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            fs.set_content(&path(1), damaged).unwrap();
            let mut one = follower(&fs, START);
            assert!(
                matches!(one.read().unwrap(), Next::Record(first) if first.payload == b"first")
            );
            for _ in 0..2 {
                match one.read() {
                    Ok(Next::Nothing) => assert!(!is_synced, "byte {at}"),
                    Err(error) => assert!(is_synced && error.is_corruption(), "byte {at}: {error}"),
                    other => panic!("byte {at}: {other:?}"),
                }
            }
            // It is read once it is sound.
            fs.set_content(&path(1), bytes.clone()).unwrap();
            assert_eq!(all(&mut one), [b"second".to_vec(), b"third".to_vec()]);
        }
    }
}

/// Records that a newer segment voids are not yielded, and a follower that has yielded one is told.
#[test]
fn what_the_writer_takes_back_is_told() {
    let fs = SimFs::one_dir();
    let mut log = writer(&fs);
    log.append(&[b"first"]).unwrap();
    let mut early = follower(&fs, START);
    // The write of the next group fails after its first record, and cannot be cut off.
    log.stage(&[b"refused"]).unwrap();
    log.stage(&[&[5; 100]]).unwrap();
    let whole = FRAME_HEADER_BYTES + b"refused".len();
    fs.inject(Matcher::any().kinds(&[CallKind::Write]), Fault::EioAfter(whole + 3), 1);
    fs.inject(Matcher::any().kinds(&[CallKind::Truncate]), Fault::Errno(5), u64::MAX);
    log.commit().unwrap_err();
    assert_eq!(all(&mut early), [b"first".to_vec(), b"refused".to_vec()]);
    let mut next = log.rotate(2).unwrap();
    next.append(&[b"second"]).unwrap();
    assert!(matches!(early.read().unwrap(), Next::Undone));
    let expected = [b"first".to_vec(), b"second".to_vec()];
    assert_eq!(all(&mut follower(&fs, START)), expected);
}

/// A log that was removed up to a segment is lag, and where nothing was removed, it is damage or
/// the end.
#[test]
fn a_missing_segment_is_told() {
    let fs = SimFs::one_dir();
    let mut log = writer(&fs);
    log.append(&[b"first"]).unwrap();
    let mut one = follower(&fs, START);
    assert_eq!(all(&mut one), [b"first".to_vec()]);
    let mut second = log.rotate(2).unwrap();
    second.append(&[b"second"]).unwrap();
    let mut third = second.rotate(3).unwrap();
    third.append(&[b"third"]).unwrap();
    fs.remove_file(&path(2)).unwrap();
    assert!(matches!(one.read().unwrap(), Next::Lagged));
    one.check_end().unwrap();
    let third_start = LogStart { segment: 3, lsn: third.header().base, must_exist: true };
    assert_eq!(all(&mut follower(&fs, third_start)), [b"third".to_vec()]);
    fs.remove_file(&path(3)).unwrap();
    let mut none = follower(&fs, third_start);
    assert!(matches!(none.read().unwrap(), Next::Lagged));
    assert!(none.check_end().unwrap_err().is_corruption());

    // The same, with a claim that what is missing was durable.
    let fs = SimFs::one_dir();
    let mut log = writer(&fs);
    log.append(&[b"first"]).unwrap();
    let mut second = log.rotate(2).unwrap();
    second.append(&[b"second"]).unwrap();
    log.record_name_synced();
    let durable = log.sync(false).unwrap();
    second.record_durable(durable);
    second.record_name_synced();
    second.sync(false).unwrap();
    second.rotate(3).unwrap();
    fs.remove_file(&path(2)).unwrap();
    let mut one = follower(&fs, START);
    assert_eq!(read_on(&mut one).0, [b"first".to_vec()]);
    assert!(matches!(one.read().unwrap(), Next::Lagged));
    assert!(one.check_end().unwrap_err().is_corruption());
}
