//! Readers beside a writer, and made-up regions.

use std::{
    ops::Bound,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64 as Counter, Ordering},
    },
    thread,
};

use proptest::prelude::*;
use rhumb_testkit::random::Random;

use super::*;
use crate::{
    host::{Table, heap::HeapSpace},
    layout::Geometry,
    primitive::AtomicU64,
};

/// Keys of the histories.
const KEYS: u64 = 2_000;

fn key(n: u64) -> [u8; 8] {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// A value that proves its key and its version.
fn value(key: &[u8], version: u64) -> Vec<u8> {
    let len = 16 + (version % 5) as usize * 8;
    let mut value = [key, &version.to_le_bytes()].concat();
    value.resize(len, version as u8);
    value
}

fn version_of(key: &[u8], found: &[u8]) -> u64 {
    let version = u64::from_le_bytes(found[8..16].try_into().unwrap());
    assert_eq!(found, value(key, version), "torn, or another key's");
    version
}

/// The two spaces of a table, as readers map them.
struct Spaces {
    leaves: Arc<HeapSpace>,
    control: Arc<HeapSpace>,
}

impl Spaces {
    fn new(capacity_bytes: usize) -> Self {
        let space = || Arc::new(HeapSpace::new(1 << 20, capacity_bytes));
        Self { leaves: space(), control: space() }
    }

    fn table(&self) -> Table<Arc<HeapSpace>> {
        let geometry = Geometry::new(1024, 24).unwrap();
        let (leaves, control) = (Arc::clone(&self.leaves), Arc::clone(&self.control));
        Table::build(geometry, leaves, control, []).unwrap()
    }

    fn reader(&self) -> Reader<'_> {
        Reader::new(self.control.all(), self.leaves.all()).unwrap()
    }
}

/// Gets and scans until the writer is done; returns how often it was busy, and how often not.
fn read_on(reader: Reader<'_>, done: &AtomicBool, published: &[Counter], seed: u64) -> (u64, u64) {
    let (mut busy, mut seen) = (0, 0);
    let (mut out, mut page) = (Vec::new(), Page::default());
    let mut random = Random::new(seed);
    while !done.load(Ordering::Acquire) {
        let n = random.next();
        let which = (n >> 33) % KEYS;
        let key = key(which);
        let lowest = published[which as usize].load(Ordering::Acquire);
        out.clear();
        match reader.get(&key, &mut out) {
            Outcome::Found => assert!(version_of(&key, &out) >= lowest, "an old value"),
            Outcome::Absent => assert_eq!(which % 2, 1, "lost"),
            Outcome::Ask(_) => panic!("no value is large"),
            Outcome::Busy => busy += 1,
        }
        seen += 1;
        if n.is_multiple_of(64) && reader.page_up(Bound::Included(&key), usize::MAX, &mut page) {
            assert!(page.pairs.iter().map(|(key, _)| key).is_sorted());
            for (key, value) in page.pairs.iter() {
                version_of(key, value.unwrap());
            }
            // Of the keys that stay, none is missing between the first and the next page's.
            let next = page.next.as_deref().unwrap_or(&[0xff; 9]);
            let stay = (0..KEYS).step_by(2).map(super::tests::key);
            let stay = stay.filter(|stay| stay[..] >= key[..] && stay[..] < *next).count();
            let found = page.pairs.iter().filter(|(key, _)| is_staying(key)).count();
            assert_eq!(found, stay);
        }
    }
    (busy, seen)
}

/// Returns true for the keys that are never removed.
fn is_staying(key: &[u8]) -> bool {
    // The inverse of the multiplier, modulo 2^64.
    let n = u64::from_be_bytes(key.try_into().unwrap()).wrapping_mul(0xf1de_83e1_9937_733d);
    n.is_multiple_of(2)
}

#[test]
fn readers_beside_a_writer_see_whole_values_that_do_not_go_back() {
    let spaces = Spaces::new(16 << 20);
    let mut table = spaces.table();
    // The lowest version that a get may see, for each key; even keys stay, odd ones come and go.
    let published: Vec<Counter> = (0..KEYS).map(|_| Counter::new(0)).collect();
    for n in (0..KEYS).step_by(2) {
        table.set(&key(n), &value(&key(n), 0), 0).unwrap();
    }
    table.publish(0);
    let rounds: u64 = std::env::var("RHUMB_READ_ROUNDS").map_or(30, |n| n.parse().unwrap());
    let done = AtomicBool::new(false);
    let (done, published, readable) = (&done, &published[..], &spaces);
    thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|seed| scope.spawn(move || read_on(readable.reader(), done, published, seed)))
            .collect();
        for version in 1..=rounds {
            for n in 0..KEYS {
                let key = key(n);
                if n % 2 == 1 && version % 2 == 0 {
                    table.remove(&key, version);
                } else {
                    table.set(&key, &value(&key, version), version).unwrap();
                }
                table.publish(version);
                published[n as usize].store(version, Ordering::Release);
            }
        }
        done.store(true, Ordering::Release);
        for reader in readers {
            let (busy, seen) = reader.join().unwrap();
            assert!(seen > 0 && busy < seen, "{busy} of {seen} gets were busy");
        }
    });
}

proptest! {
    #[test]
    fn damaged_regions_never_panic_and_never_hold_a_reader(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>(), any::<bool>()), 1..60),
        words in prop::sample::select(vec![0u64, 1, u64::MAX, 0xffff]), probes in prop::collection::vec(0..KEYS, 20),
    ) {
        let spaces = Spaces::new(2 << 20);
        let mut table = spaces.table();
        for n in 0..KEYS {
            table.set(&key(n), &value(&key(n), 0), 0).unwrap();
        }
        table.publish(0);
        let used = |space: &HeapSpace| {
            let all = space.all();
            all.iter().rposition(|word| word.load(Ordering::Relaxed) != 0).unwrap_or(0) + 1
        };
        let reader = spaces.reader();
        for (at, mask, is_leaf) in flips {
            let space = if is_leaf { &spaces.leaves } else { &spaces.control };
            let word = &space.all()[at.index(used(space))];
            let changed = if words == 1 { word.load(Ordering::Relaxed) ^ mask } else { mask & words };
            word.store(changed, Ordering::Relaxed);
        }
        let mut out = Vec::new();
        for n in probes {
            let _ = reader.get(&key(n), &mut out);
            for limit in [7, usize::MAX] {
                let mut page = Page::default();
                let is_read = reader.page_up(Bound::Included(&key(n)), limit, &mut page);
                prop_assert!(!is_read || page.pairs.len() <= limit.min(255));
                let is_read = reader.page_down(Bound::Unbounded, limit, &mut page);
                prop_assert!(!is_read || page.pairs.len() <= limit.min(255));
            }
        }
    }

    #[test]
    fn a_damaged_directory_changes_no_answer(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>()), 1..200),
    ) {
        let spaces = Spaces::new(2 << 20);
        let mut table = spaces.table();
        for n in (0..KEYS).step_by(2) {
            table.set(&key(n), &value(&key(n), 3), 0).unwrap();
        }
        table.publish(0);
        let reader = spaces.reader();
        // All but the header and the top's place.
        let words = &spaces.control.all()[2048..8192];
        for (at, mask) in flips {
            words[at.index(words.len())].fetch_xor(mask, Ordering::Relaxed);
        }
        let mut out = Vec::new();
        for n in 0..KEYS {
            out.clear();
            match reader.get(&key(n), &mut out) {
                Outcome::Found => prop_assert_eq!((n % 2, version_of(&key(n), &out)), (0, 3)),
                Outcome::Absent => prop_assert_eq!(n % 2, 1),
                Outcome::Busy => {}
                Outcome::Ask(_) => prop_assert!(false, "no value is large"),
            }
        }
    }
}

#[test]
fn headers_are_checked() {
    let spaces = Spaces::new(2 << 20);
    let _table = spaces.table();
    let control = spaces.control.all();
    let fails =
        |words: &[AtomicU64]| Reader::new(words, spaces.leaves.all()).err().unwrap().to_string();
    assert!(fails(&control[..2047]).contains("16376 bytes"));
    for (word, mask, what) in [
        (0, 1 << 63, "does not begin"),
        (1, 2, "version 3"),
        (1, 1 << 62, "room"),
        (1, 1 << 63, "checksum"),
        (2, 1, "checksum"),
    ] {
        control[word].fetch_xor(mask, Ordering::Relaxed);
        let error = fails(control);
        assert!(error.contains(what), "{error}");
        control[word].fetch_xor(mask, Ordering::Relaxed);
    }
    assert!(Reader::new(control, spaces.leaves.all()).is_ok());
}

/// Groups write one number to keys far apart, and leaves split and are built anew beside them: what
/// is read at one moment has one number.
#[test]
fn a_group_is_read_whole_or_not_at_all() {
    const WRITTEN: [u64; 5] = [1, 500, 501, 1_200, 1_999];
    /// Versions during which keys between them come and go.
    const RESTLESS: u64 = 4_000;
    let spaces = Spaces::new(16 << 20);
    let mut table = spaces.table();
    for n in 0..KEYS {
        table.set(&n.to_be_bytes(), &0u64.to_le_bytes(), 0).unwrap();
    }
    table.publish(0);
    let (done, readable) = (&AtomicBool::new(false), &spaces);
    let whole: [Counter; 2] = [const { Counter::new(0) }; 2];
    let keys = WRITTEN.map(u64::to_be_bytes);
    thread::scope(|scope| {
        let readers: Vec<_> = whole
            .iter()
            .map(|whole| {
                scope.spawn(move || {
                    let (reader, states) = (readable.reader(), States::default());
                    let mut seen = 0;
                    while !done.load(Ordering::Acquire) {
                        let (mut versions, mut is_whole) = (Vec::new(), true);
                        reader.noting(&states).multi_get(&keys, |_, outcome, value| {
                            is_whole &= outcome == Outcome::Found;
                            versions.extend(value.first_chunk().map(|v| u64::from_le_bytes(*v)));
                        });
                        if !is_whole || !reader.are_unchanged(&states) {
                            continue;
                        }
                        assert!(versions.iter().all(|v| *v == versions[0]), "{versions:?}");
                        assert!(versions[0] >= seen, "back from {seen} to {versions:?}");
                        seen = versions[0];
                        whole.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        for version in 1u64.. {
            for n in WRITTEN {
                let value = version.to_le_bytes().repeat(1 + (version % 4) as usize);
                table.set(&n.to_be_bytes(), &value, version).unwrap();
            }
            // Keys between them come and go.
            if version <= RESTLESS {
                let n = version.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let other = [&(n % KEYS).to_be_bytes()[..], &n.to_be_bytes()].concat();
                table.set(&other, b"beside them", version).unwrap();
            }
            table.publish(version);
            // On a loaded machine readers have their turn later.
            let has_enough = |whole: &Counter| whole.load(Ordering::Relaxed) > 100;
            let is_over = readers.iter().any(thread::ScopedJoinHandle::is_finished);
            if version > RESTLESS && (is_over || whole.iter().all(has_enough)) {
                break;
            }
            if version > RESTLESS {
                thread::yield_now();
            }
        }
        done.store(true, Ordering::Release);
    });
}
