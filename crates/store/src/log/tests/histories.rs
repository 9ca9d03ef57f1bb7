//! Histories of appends, syncs, rotations, failures, kills, power cuts and flipped bits, checked
//! against the plain list of what was acknowledged.

use proptest::prelude::*;
use rhumb_testkit::random::Random;

use super::{IDENTITY, START, dir, replay, writer};
use crate::io::sim::{CallKind, SimFs};
use crate::log::{
    LogRecord, LogStart, LogWriter, Lsn, Recovery, frame::FRAME_HEADER_BYTES,
    reader::inspect_segment, segment::SEGMENT_HEADER_BYTES,
};

/// A log as the engine uses it, and the list of what was acknowledged.
struct History {
    fs: SimFs,
    rng: Random,
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
    /// True if a sync failed since the last opening: the system may have dropped what it was to
    /// make durable, so that a kill may lose it too.
    sync_failed: bool,
}

impl History {
    fn new(seed: u64) -> Self {
        let fs = SimFs::one_dir();
        fs.set_write_back(200);
        let writer = writer(&fs);
        let rng = Random::new(seed);
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
            sync_failed: false,
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
            assert!(durable == older.end_lsn() || older.durable_lsn() < older.header().base);
            self.older.get_mut(1).unwrap_or(&mut self.writer).record_durable(durable);
            self.older.remove(0);
        }
        if let Ok(durable) = self.writer.sync(all) {
            let acked = self.acked.last().map_or(0, |(end, _)| *end);
            assert!(durable >= acked || durable < self.writer.header().base);
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
        self.writer.record_durable(header.base);
        self.start = LogStart { segment: header.id, lsn: header.base, must_exist: false };
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
            let change = self.rng.clone().below(4);
            let kept = [0, self.rng.index(3000), usize::MAX][self.rng.index(3)];
            self.fs.fail_after(change, self.rng.one_in(2), kept);
        }
        match self.rng.below(20) {
            0 | 1 => self.rotate(),
            2..5 => self.sync(),
            5 => self.flush(),
            _ => self.append(),
        }
        self.sync_failed |= self
            .fs
            .failed()
            .iter()
            .any(|kind| *kind == CallKind::SyncData || *kind == CallKind::SyncAll);
        self.fs.clear_faults();
        while self.writer.is_closed() {
            self.rotate();
        }
    }

    /// Returns true if a replay may return these records: a beginning of what was acknowledged,
    /// perhaps followed by a beginning of what was refused right there.
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
    fn check(&self, after: &SimFs, whole: bool) -> Recovery {
        let (recovery, records) = replay(after, self.start).unwrap();
        assert!(self.explains(&records), "{} records, {:?}", records.len(), recovery.torn);
        let durable = self.acked.iter().filter(|(end, _)| *end <= self.durable()).count();
        let least = if whole { self.acked.len() } else { durable };
        assert!(records.len() >= least, "{} of {least}: {:?}", records.len(), recovery.torn);
        assert!(recovery.durable <= self.durable());
        recovery
    }

    /// Goes on from what a crash left, as at an opening.
    fn reopen(&mut self, after: SimFs, recovery: &Recovery) {
        let (_, records) = replay(&after, self.start).unwrap();
        self.fs = after;
        self.next_id = self.next_id.max(recovery.segments.last().copied().unwrap_or(0)) + 1;
        let header = recovery.next_header(IDENTITY, self.next_id);
        self.writer = LogWriter::create(&self.fs.shared(), dir(), header).unwrap();
        self.older.clear();
        self.sync_failed = false;
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
                true => history.fs.after_kill(),
                false => history.fs.after_power_cut(&mut history.rng.clone()),
            };
            history.rng.next();
            let recovery = history.check(&after, kill && !history.sync_failed);
            history.reopen(after, &recovery);
        }
    }

    /// A flipped bit is never replayed; it is an error only where durable bytes were.
    #[test]
    fn a_flipped_bit_is_found_or_does_no_harm(seed: u64, end in 0..3) {
        let mut history = History::new(seed);
        for _ in 0..history.rng.below(40) {
            history.step();
        }
        if end > 0 {
            history.sync();
            if history.writer.sync(false).is_err() || !history.older.is_empty() {
                return Ok(());
            }
        }
        if end > 1 {
            history.writer.close().unwrap();
        }
        let durable = history.durable();
        let fs = match end {
            2 => history.fs.after_power_cut(&mut history.rng.clone()),
            _ => history.fs.after_kill(),
        };
        let needed = format!("{:06}", history.start.segment);
        let names: Vec<String> = fs.names().into_iter().filter(|name| *name >= needed).collect();
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
                if end > 0 {
                    prop_assert_eq!(records.len(), history.acked.len(), "durable records are gone");
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
        let fs = history.fs.after_kill();
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
