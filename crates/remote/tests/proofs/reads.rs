//! Readers in processes of their own beside writers that never rest: values change their lengths,
//! keys come and go in bursts, so that leaves split and runs are built anew, batches set groups of
//! keys, and a copy of a store is loaded again and again.
//!
//! `RHUMB_REMOTE_READS=n` says how many values all readers of a kind of keyspace read together,
//! `RHUMB_ATOMIC_READS=n` how many groups they read at one moment at least.

use std::{
    env,
    path::Path,
    process::Child,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rhumb_remote::{Client, Keyspace};
use rhumb_testkit::random::Random;

use crate::{
    PRESETS, address_of_child, child,
    history::from_env,
    store::Store,
    values::{
        ALL_KEYS, Counts, GROUPS, KEYS, MEMBERS, Seen, is_grouped, key, member, number, stays,
        value,
    },
    volatile, ways,
};

/// Values that the readers of a kind of keyspace read unless the environment says otherwise.
const READS: u64 = 60_000;
/// Groups that they read at one moment.
const ATOMIC_READS: u64 = 2_000;
/// Reading processes of each kind of keyspace.
const READERS: u64 = 2;
/// Writing threads: each writes the keys whose numbers it has as a remainder.
const WRITERS: u64 = 2;
/// Reads over TCP are messages: one in this many of those that look into memory.
const TCP_SHARE: u64 = 20;
/// Pairs of a scan.
const SCANNED: usize = 50;
/// Keys of a get of several.
const SEVERAL: usize = 16;

/// Say to a reader how much it reads, and with which numbers.
const WANTED: &str = "RHUMB_PROOF_WANTED";

/// Looks up keys, several keys, ranges and groups, until it has read what it is to read.
struct Reader {
    keyspace: Keyspace,
    random: Random,
    seen: Seen,
    out: Vec<u8>,
}

impl Reader {
    fn get(&mut self) {
        let n = self.random.below(ALL_KEYS);
        self.out.clear();
        let is_there = self.keyspace.get_into(key(n), &mut self.out).unwrap();
        self.seen.note(n, is_there.then_some(&self.out[..]));
    }

    fn several(&mut self) {
        let numbers: [u64; SEVERAL] = std::array::from_fn(|_| self.random.below(ALL_KEYS));
        let values = self.keyspace.multi_get(&numbers.map(key)).unwrap();
        for (n, found) in numbers.into_iter().zip(values) {
            self.seen.note(n, found.as_deref());
        }
    }

    /// Reads some pairs from a key on, upwards or downwards: each key that stays is among them.
    fn scan(&mut self) {
        let (n, down) = (self.random.below(ALL_KEYS), self.random.below(3) == 0);
        let range = if down {
            self.keyspace.range(..=key(n)).rev().take(SCANNED).collect::<Vec<_>>()
        } else {
            self.keyspace.range(key(n)..).take(SCANNED).collect()
        };
        let is_end = range.len() < SCANNED;
        let mut at = Some(n);
        for pair in range {
            let (key, found) = pair.unwrap();
            let Some(now) = number(&key) else {
                self.seen.counts.wrong += 1;
                return;
            };
            self.pass(at, Some(now), down);
            self.seen.note(now, Some(&found));
            at = if down { now.checked_sub(1) } else { Some(now + 1) };
        }
        if is_end {
            self.pass(at, None, down);
        }
    }

    /// Takes note of the keys that a scan has not found, from `from` on and before `to`.
    fn pass(&mut self, from: Option<u64>, to: Option<u64>, down: bool) {
        let Some(from) = from else { return };
        let passed = match (to, down) {
            (Some(to), true) => to + 1..from + 1,
            (None, true) => 0..from + 1,
            (to, false) => from..to.unwrap_or(ALL_KEYS),
        };
        // What is found twice, or out of order, is wrong.
        let is_wrong = to.is_some_and(|to| if down { to > from } else { to < from });
        self.seen.counts.wrong += u64::from(is_wrong);
        self.seen.counts.lost += passed.filter(|n| stays(*n)).count() as u64;
    }

    fn group(&mut self) {
        let group = self.random.below(GROUPS);
        let numbers: Vec<u64> = (0..MEMBERS).map(|at| member(group, at)).collect();
        let keys: Vec<_> = numbers.iter().map(|n| key(*n)).collect();
        let versions: Vec<u64> = if self.random.below(2) == 0 {
            let values = self.keyspace.multi_get_atomic(&keys).unwrap();
            let pairs = numbers.iter().zip(&values);
            pairs.map(|(n, found)| self.seen.note(*n, found.as_deref())).collect()
        } else {
            let (first, last) = (keys[0], keys[keys.len() - 1]);
            let pairs = self.keyspace.range_atomic(first..=last, usize::MAX >> 32).unwrap();
            let pairs = pairs.iter().filter_map(|(key, found)| Some((number(key)?, found)));
            let members = pairs.filter(|(n, _)| is_grouped(*n));
            members.map(|(n, found)| self.seen.note(n, Some(found))).collect()
        };
        self.seen.note_group(&versions);
    }

    fn run(&mut self, reads: u64, atomic: u64) {
        while self.seen.counts.reads < reads || self.seen.counts.atomic < atomic {
            if self.seen.counts.atomic * (reads / atomic.max(1)).max(1) < self.seen.counts.reads {
                self.group();
            }
            match self.random.below(32) {
                0 => self.scan(),
                1..=3 => self.several(),
                _ => (0..8).for_each(|_| self.get()),
            }
        }
        self.seen.counts.calls = self.keyspace.calls();
    }
}

#[test]
#[ignore = "started by another test: a reader"]
fn child_reader() {
    let Some(address) = address_of_child() else { return };
    let wanted: Vec<u64> =
        env::var(WANTED).unwrap().split(' ').map(|number| number.parse().unwrap()).collect();
    let [reads, atomic, seed] = wanted[..] else { panic!("{wanted:?}") };
    let keyspace = Client::connect(address).unwrap().keyspace("k").unwrap();
    let (random, seen) = (Random::new(seed), Seen::new());
    let mut reader = Reader { keyspace, random, seen, out: Vec::new() };
    reader.run(reads, atomic);
    println!("\n{}", reader.seen.counts);
}

/// Where a writer's changes go.
trait Target: Sync {
    /// Makes changes as one, each a key with its value, or without one if it is removed.
    fn change(&self, changes: &[(u64, Option<Vec<u8>>)]);
}

impl Target for Arc<Store> {
    fn change(&self, changes: &[(u64, Option<Vec<u8>>)]) {
        let keys: Vec<_> = changes.iter().map(|(n, _)| key(*n)).collect();
        let values = changes.iter().map(|(_, value)| value.as_deref());
        let changes: Vec<_> = keys.iter().map(|key| &key[..]).zip(values).collect();
        Store::change(self, &changes);
    }
}

impl Target for (Client, Keyspace) {
    fn change(&self, changes: &[(u64, Option<Vec<u8>>)]) {
        let (client, keyspace) = self;
        let mut batch = client.batch();
        for (n, value) in changes {
            match value {
                Some(value) => batch.insert(keyspace, key(*n), value),
                None => batch.remove(keyspace, key(*n)),
            }
        }
        batch.commit().unwrap();
    }
}

/// Changes what is its own until the readers have read enough; returns the number of changes.
fn write(target: &impl Target, id: u64, done: &AtomicBool) -> u64 {
    let (mut random, mut version, mut written) = (Random::new(id), 1, 0);
    // Keys that go are removed, or set, side by side.
    let mut is_coming = true;
    let own = |n: u64| n / WRITERS * WRITERS + id;
    while !done.load(Ordering::Relaxed) {
        version += 1;
        let mut changes = Vec::new();
        match random.below(8) {
            0 => {
                let first = random.below(ALL_KEYS);
                for n in (first..ALL_KEYS.min(first + 400)).filter(|n| !stays(*n)) {
                    if own(n) == n {
                        changes.push((n, is_coming.then(|| value(n, version))));
                    }
                }
                is_coming = random.below(5) > 0;
            }
            1 | 2 => {
                let group = own(random.below(GROUPS));
                for at in 0..MEMBERS {
                    let n = member(group, at);
                    changes.push((n, Some(value(n, version))));
                }
            }
            kind => {
                for _ in 0..if kind < 5 { 1 } else { 24 } {
                    let n = own(random.below(KEYS));
                    let goes = !stays(n) && random.below(2) == 0;
                    changes.push((n, (!goes).then(|| value(n, version))));
                }
            }
        }
        written += changes.len() as u64;
        target.change(&changes);
    }
    written
}

fn readers(address: &Path) -> Vec<Child> {
    let share = if address.starts_with("/") { READERS } else { READERS * TCP_SHARE };
    let reads = from_env("RHUMB_REMOTE_READS").unwrap_or(READS) / share;
    let atomic = from_env("RHUMB_ATOMIC_READS").unwrap_or(ATOMIC_READS) / share;
    let reader = |id| {
        let mut command = child("reads::child_reader", address);
        command.env(WANTED, format!("{reads} {atomic} {}", 100 + id));
        command.spawn().unwrap()
    };
    (0..READERS).map(reader).collect()
}

/// Waits for readers, and prints what they have counted together.
fn wait(what: &str, readers: Vec<Child>) -> Counts {
    let (mut sum, began) = (Counts::default(), Instant::now());
    for reader in readers {
        let output = reader.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let counts = text.lines().find_map(Counts::parse);
        sum.add(&counts.unwrap_or_else(|| panic!("a reader of {what} has failed: {text}")));
    }
    let seconds = began.elapsed().as_secs_f64();
    let Counts { reads, calls, atomic, torn, wrong, lost, back, halves } = sum;
    println!(
        "{what}: {reads} reads, {calls} of them calls, {atomic} groups at one moment, in \
         {seconds:.1} s, {:.0} a second: {torn} torn, {wrong} wrong, {lost} lost, {back} older \
         than before, {halves} halves",
        reads as f64 / seconds
    );
    sum
}

/// Ends the writers, also after a panic.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Has readers of a keyspace read beside writers to these targets, and beside `disturb`, which is
/// called again and again.
fn read_beside<T: Target + Send>(
    what: &str,
    address: &Path,
    targets: Vec<T>,
    disturb: impl Fn() + Sync,
) {
    let first = (0..ALL_KEYS).filter(|n| stays(*n)).map(|n| (n, Some(value(n, 1))));
    targets[0].change(&first.collect::<Vec<_>>());
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let end = End(&done);
        let (done, disturb) = (&done, &disturb);
        let write = |(id, target)| scope.spawn(move || write(&target, id, done));
        let writers: Vec<_> = (0..).zip(targets).map(write).collect();
        scope.spawn(move || {
            loop {
                thread::sleep(Duration::from_millis(100));
                if done.load(Ordering::Relaxed) {
                    return;
                }
                disturb();
            }
        });
        let sum = wait(what, readers(address));
        drop(end);
        let written: u64 = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
        println!("{what}: {written} changes meanwhile");
        assert!(sum.are_right() && written > 0, "{what}: {sum:?}");
        assert!(sum.calls < sum.reads / 10 * 9, "{what}: few reads are one-sided: {sum:?}");
    });
}

#[test]
fn readers_beside_writers_of_a_volatile_keyspace() {
    for (preset, is_tcp) in PRESETS.iter().flat_map(|preset| [(*preset, false), (*preset, true)]) {
        let dir = tempfile::tempdir().unwrap();
        let host = volatile(dir.path(), preset).start().unwrap();
        let target = |_| {
            let client = Client::connect(host.path()).unwrap();
            let keyspace = client.keyspace("k").unwrap();
            (client, keyspace)
        };
        let targets: Vec<_> = (0..WRITERS).map(target).collect();
        let way = &ways(&host)[usize::from(is_tcp)];
        let kind = if is_tcp { "over TCP" } else { "in memory" };
        read_beside(&format!("volatile, {preset:?}, {kind}"), way, targets, || {});
    }
}

#[test]
fn readers_beside_writers_of_a_store() {
    for (preset, is_tcp) in PRESETS.iter().flat_map(|preset| [(*preset, false), (*preset, true)]) {
        let dir = tempfile::tempdir().unwrap();
        let (store, host, loader) = Store::share(dir.path(), preset);
        let targets = (0..WRITERS).map(|_| Arc::clone(&store)).collect();
        let way = &ways(&host)[usize::from(is_tcp)];
        let kind = if is_tcp { "over TCP" } else { "in memory" };
        // It is live for a second, and then loaded anew.
        let live = AtomicU64::new(0);
        read_beside(&format!("a store's copy, {preset:?}, {kind}"), way, targets, || {
            if host.stats("k").unwrap().is_live && live.fetch_add(1, Ordering::Relaxed) % 10 == 1 {
                store.reset();
            }
        });
        drop(host);
        loader.join().unwrap();
    }
}
