//! Followers of a log that is being written.

use std::{
    io,
    path::PathBuf,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use super::*;
use crate::{
    io::{FileLock, FileSystem, ReadMode, ReadableFile, WritableFile},
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

/// A record that the writer has cut off is told before anything that was written in its place, of
/// whatever length that is.
#[test]
fn what_is_cut_off_is_told_when_others_take_its_place() {
    let refused = [vec![b'r'; 50], vec![5; 100]];
    let nines = (0..40).map(|n| vec![n; 9]).collect();
    let groups: [Vec<Vec<u8>>; 5] = [
        vec![],
        vec![vec![b'n'; 50]],
        vec![vec![b'n'; 50], vec![7; 100], vec![8; 10]],
        vec![vec![8; 300]],
        nines,
    ];
    for (seen, next, is_synced) in (1..=refused.len()).flat_map(|seen| {
        groups.iter().flat_map(move |next| [false, true].map(|is_synced| (seen, next, is_synced)))
    }) {
        let fs = SimFs::one_dir();
        let mut log = writer(&fs);
        log.append(&[b"first"]).unwrap();
        let mut early = follower(&fs, START);
        // The file in the instant between a write that fails and the cut.
        let other = SimFs::one_dir();
        let mut failing = writer(&other);
        failing.append(&[b"first"]).unwrap();
        for record in &refused[..seen] {
            failing.append(&[record]).unwrap();
        }
        let sound = fs.read("000001.log");
        fs.set_content(&path(1), other.read("000001.log")).unwrap();
        assert_eq!(all(&mut early).len(), 1 + seen);
        fs.set_content(&path(1), sound).unwrap();
        for record in next {
            log.append(&[record]).unwrap();
            if is_synced {
                log.record_name_synced();
                log.sync(false).unwrap();
            }
        }
        for _ in 0..2 {
            let (records, end) = read_on(&mut early);
            let case = (seen, next.len(), is_synced);
            assert!(records.is_empty(), "{case:?}: {records:?}, {end:?}");
            assert!(matches!(end, Next::Undone), "{case:?}: {end:?}");
        }
        let expected = [&[b"first".to_vec()], &next[..]].concat();
        assert_eq!(all(&mut follower(&fs, START)), expected);
    }
}

/// A file system on which something happens right before a directory is listed.
#[derive(Debug)]
struct BeforeList(SimFs, Happening);

struct Happening(Mutex<Box<dyn FnMut() + Send>>);

impl std::fmt::Debug for Happening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Happening")
    }
}

impl FileSystem for BeforeList {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.0.create_dir_all(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        self.0.create(path)
    }

    fn open(&self, path: &Path, mode: ReadMode) -> io::Result<Arc<dyn ReadableFile>> {
        self.0.open(path, mode)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        (self.1.0.lock().unwrap())();
        self.0.list(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.0.remove_file(path)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.hard_link(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.sync_dir(dir)
    }

    fn lock(&self, path: &Path, holder: &str) -> io::Result<Box<dyn FileLock>> {
        self.0.lock(path, holder)
    }
}

/// What is written after a follower has found the end of a segment, and before it finds the next
/// segment, is yielded before what is in that.
#[test]
fn what_comes_right_before_a_new_segment_is_not_passed() {
    let fs = SimFs::one_dir();
    let mut log = writer(&fs);
    log.append(&[b"first"]).unwrap();
    let (is_due, mut id) = (Arc::new(AtomicBool::new(false)), 1);
    let due = Arc::clone(&is_due);
    let more = move || {
        if due.swap(false, Ordering::Relaxed) {
            id += 1;
            log.append(&[b"late", &[id]]).unwrap();
            log = log.rotate(u64::from(id)).unwrap();
            log.append(&[b"next", &[id]]).unwrap();
        }
    };
    let fs: Arc<dyn FileSystem> = Arc::new(BeforeList(fs, Happening(Mutex::new(Box::new(more)))));
    let mut one = Follower::new(&fs, dir(), IDENTITY, START);
    assert_eq!(all(&mut one), [b"first".to_vec()]);
    for n in 2..5 {
        is_due.store(true, Ordering::Relaxed);
        let expected = [[&b"late"[..], &[n]].concat(), [&b"next"[..], &[n]].concat()];
        assert_eq!(all(&mut one), expected);
    }
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
