//! What a scan promises while other threads write: ascending keys without duplicates, each present
//! at some time during the scan, and none missing that was present throughout.
//!
//! A writer moves a window of *groups* over the domain of keys. It inserts a group, which lies
//! scattered over the whole domain, and announces that. Then it announces the removal of an old
//! group, removes it, and announces that. The announcements before a scan began and after it ended
//! bound what the scan may see.

use std::{
    ops::Bound,
    sync::atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Acquire, Release},
    },
    thread,
};

use rhumb_index::Index;

use crate::common::{Random, Setting, TestKey, scatter};

/// Groups that come and go.
const GROUPS: u64 = 120;

/// Groups that are there at a time.
const WINDOW: u64 = 6;

/// Keys of a group.
const GROUP_KEYS: u64 = 64;

/// Keys that are always there.
const FIXED: u64 = 300;

/// Scanning threads.
const SCANNERS: usize = 2;

/// A key of these tests: made from a number, in the order of the numbers.
trait Ordered: TestKey {
    fn of(number: u64) -> Self;
    fn number(&self) -> u64;
}

impl Ordered for u64 {
    fn of(number: u64) -> Self {
        // Dense in one half, far apart in the other.
        if number < 1 << 20 { number } else { number << 30 }
    }

    fn number(&self) -> u64 {
        if *self < 1 << 20 { *self } else { self >> 30 }
    }
}

impl Ordered for u16 {
    fn of(number: u64) -> Self {
        number as u16
    }

    fn number(&self) -> u64 {
        u64::from(*self)
    }
}

impl Ordered for Vec<u8> {
    fn of(number: u64) -> Self {
        [b"equal codes".as_slice(), &number.to_be_bytes()].concat()
    }

    fn number(&self) -> u64 {
        u64::from_be_bytes(self[11..].try_into().expect("eight bytes"))
    }
}

/// The role of a number of the domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Fixed,
    Member { group: u64 },
    Never,
}

/// The roles of all numbers, and the progress of the writer.
struct Stage {
    roles: Vec<Role>,
    inserted: AtomicU64,
    removing: AtomicU64,
    removed: AtomicU64,
    ended: AtomicBool,
}

impl Stage {
    fn new() -> Self {
        let mut roles = vec![Role::Never; (FIXED + GROUPS * GROUP_KEYS + 500) as usize];
        let mut numbers: Vec<usize> = (0..roles.len()).collect();
        Random::new(2).shuffle(&mut numbers);
        let (fixed, others) = numbers.split_at(FIXED as usize);
        for &number in fixed {
            roles[number] = Role::Fixed;
        }
        for (group, members) in (0..GROUPS).zip(others.chunks(GROUP_KEYS as usize)) {
            for &number in members {
                roles[number] = Role::Member { group };
            }
        }
        let zero = || AtomicU64::new(0);
        Self {
            roles,
            inserted: zero(),
            removing: zero(),
            removed: zero(),
            ended: AtomicBool::new(false),
        }
    }

    fn members(&self, group: u64) -> impl Iterator<Item = u64> {
        let numbers = (0..).zip(&self.roles);
        numbers.filter(move |(_, role)| **role == Role::Member { group }).map(|(n, _)| n)
    }
}

/// The progress of the writer when a scan began or ended.
#[derive(Clone, Copy)]
struct Moment {
    inserted: u64,
    removing: u64,
    removed: u64,
}

impl Stage {
    fn moment(&self) -> Moment {
        Moment {
            inserted: self.inserted.load(Acquire),
            removing: self.removing.load(Acquire),
            removed: self.removed.load(Acquire),
        }
    }

    /// Checks the numbers that a scan of `low..high` saw, in order, against the promises.
    fn judge(&self, seen: &[u64], low: u64, high: u64, before: Moment, after: Moment) {
        assert!(seen.is_sorted_by(|a, b| a < b), "not ascending: {seen:?}");
        let mut saw = seen.iter().copied().peekable();
        for number in low..high {
            let is_seen = saw.next_if_eq(&number).is_some();
            match self.roles[number as usize] {
                Role::Fixed => assert!(is_seen, "{number} was there throughout and is missing"),
                Role::Never => assert!(!is_seen, "{number} was never inserted"),
                Role::Member { group } => {
                    let throughout = group < before.inserted && group >= after.removing;
                    assert!(is_seen || !throughout, "{number} of group {group} is missing");
                    // The group being inserted when the scan ended may have been seen.
                    let never = group < before.removed || group > after.inserted;
                    assert!(!is_seen || !never, "{number} of group {group} is a ghost");
                }
            }
        }
        assert_eq!(saw.next(), None, "beyond the range {low}..{high}");
    }
}

fn value(number: u64) -> u64 {
    scatter(number ^ 77)
}

fn write<K: Ordered>(index: &Index<K, u64>, stage: &Stage) {
    for group in 0..GROUPS {
        for number in stage.members(group) {
            assert_eq!(index.insert(K::of(number), value(number)), None);
        }
        stage.inserted.store(group + 1, Release);
        if let Some(old) = group.checked_sub(WINDOW) {
            stage.removing.store(old + 1, Release);
            for number in stage.members(old) {
                assert_eq!(index.remove(K::of(number).query()), Some(value(number)));
            }
            stage.removed.store(old + 1, Release);
        }
        thread::yield_now();
    }
    stage.ended.store(true, Release);
}

fn scan<K: Ordered>(index: &Index<K, u64>, stage: &Stage, seed: u64) {
    let mut random = Random::new(seed);
    let count = stage.roles.len() as u64;
    while !stage.ended.load(Acquire) {
        let (a, b) = match random.below(3) {
            0 => (0, count),
            _ => (random.below(count), random.below(count)),
        };
        let (low, high) = (a.min(b), a.max(b));
        let (first, end) = (K::of(low), K::of(high));
        let bounds = (Bound::Included(first.query()), Bound::Excluded(end.query()));
        let before = stage.moment();
        let mut entries = index.range::<(_, _)>(bounds);
        let mut seen = Vec::new();
        let (is_reversed, is_paged) = (random.below(2) == 0, random.below(2) == 0);
        let mut keep = |(key, found): (K, u64)| {
            let number = key.number();
            assert_eq!(found, value(number), "the value of {number}");
            seen.push(number);
        };
        if is_reversed {
            entries.rev().for_each(&mut keep);
            seen.reverse();
        } else if is_paged {
            let (mut page, limit) = (Vec::new(), 1 + random.below(300) as usize);
            while entries.read_into(limit, &mut page) > 0 {
                page.drain(..).for_each(&mut keep);
            }
        } else {
            entries.for_each(&mut keep);
        }
        stage.judge(&seen, low, high, before, stage.moment());
    }
}

fn scans_keep_their_promises<K: Ordered>() {
    for setting in Setting::all() {
        let index: Index<K, u64> = setting.build();
        let stage = Stage::new();
        for (number, _) in (0..).zip(&stage.roles).filter(|(_, role)| **role == Role::Fixed) {
            index.insert(K::of(number), value(number));
        }
        thread::scope(|scope| {
            for seed in 0..SCANNERS as u64 {
                let (index, stage) = (&index, &stage);
                scope.spawn(move || {
                    // A scanner that fails must not leave the others running for ever: the
                    // writer ends by itself.
                    scan(index, stage, seed);
                });
            }
            write(&index, &stage);
        });
        assert_eq!(index.len() as u64, FIXED + WINDOW * GROUP_KEYS);
    }
}

#[test]
fn words() {
    scans_keep_their_promises::<u64>();
}

#[test]
fn short_words() {
    scans_keep_their_promises::<u16>();
}

#[test]
fn strings_of_one_code() {
    scans_keep_their_promises::<Vec<u8>>();
}

#[test]
fn a_scan_that_stalls_goes_on_as_promised() {
    const COUNT: u64 = 30_000;
    for setting in Setting::all() {
        let index: Index<u64, u64> = setting.build();
        for number in 0..COUNT {
            index.insert(number * 4, value(number * 4));
        }
        let mut entries = index.iter();
        let mut seen: Vec<u64> = entries.by_ref().take(1_000).map(|(key, _)| key).collect();
        // All but one key in ten are removed, others come, several times over, and threads end.
        for round in 1..4 {
            thread::scope(|scope| {
                for half in 0..2 {
                    let index = &index;
                    scope.spawn(move || {
                        for number in (half..COUNT).step_by(2) {
                            let key = number * 4;
                            if number % 10 != 0 {
                                index.remove(&key);
                            }
                            if round > 1 {
                                index.remove(&(key + round - 1));
                            }
                            index.insert(key + round, value(key + round));
                        }
                    });
                }
            });
        }
        for (key, found) in entries {
            assert_eq!(found, value(key), "the value of {key}");
            seen.push(key);
        }
        assert!(seen.is_sorted_by(|a, b| a < b));
        let mut saw = seen.into_iter().peekable();
        for key in (0..COUNT * 4).step_by(40) {
            while saw.next_if(|&seen| seen < key).is_some() {}
            assert_eq!(saw.next(), Some(key), "{key} was there throughout and is missing");
        }
    }
}

#[test]
fn a_judge_that_cannot_be_fooled() {
    let stage = Stage::new();
    let count = stage.roles.len() as u64;
    let there = |number: &u64| match stage.roles[*number as usize] {
        Role::Fixed => true,
        Role::Member { group } => (2..7).contains(&group),
        Role::Never => false,
    };
    let sound: Vec<u64> = (0..count).filter(there).collect();
    let moment = Moment { inserted: 7, removing: 2, removed: 2 };
    stage.judge(&sound, 0, count, moment, moment);
    let is_caught = |seen: Vec<u64>| {
        std::panic::catch_unwind(|| stage.judge(&seen, 0, count, moment, moment)).is_err()
    };
    let without = |at: usize| [&sound[..at], &sound[at + 1..]].concat();
    assert!(is_caught(without(0)) && is_caught(without(sound.len() - 1)));
    assert!(is_caught([&sound[..9], &sound[8..]].concat()), "a duplicate");
    let absent = (0..count).find(|number| !there(number)).expect("most are absent");
    let at = sound.partition_point(|&number| number < absent);
    assert!(is_caught([&sound[..at], &[absent], &sound[at..]].concat()), "a ghost");
}
