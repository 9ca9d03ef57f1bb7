//! Clients that read a host's memory by RDMA: the host and the writers are processes of their own.
//!
//! They need an RDMA device whose address is `RHUMB_RDMA_ADDRESS`: `cargo xtask rdma` runs them in
//! a guest that has one.
#![cfg(all(feature = "rdma", target_os = "linux", target_pointer_width = "64"))]

#[path = "rdma/away.rs"]
mod away;
#[path = "rdma/cpu.rs"]
mod cpu;

use std::{
    collections::BTreeMap,
    env,
    io::{BufRead, BufReader},
    net::{SocketAddr, TcpListener},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use cpu::Cpu;
use rhumb_remote::{Client, Counts, Error, Host, Keyspace, Preset, ShareOptions};

/// Says to a child at which address its host is.
const HOST: &str = "RHUMB_RDMA_HOST";
/// Says to a host that it shares without checksums.
const BARE: &str = "RHUMB_RDMA_BARE";
/// Says to a host by which preset it shares.
const PRESET: &str = "RHUMB_RDMA_PRESET";

/// Keys of a host.
const KEYS: u64 = 20_000;
/// Keys that are written all the while.
const HOT: u64 = 200;

fn address() -> SocketAddr {
    let address = env::var("RHUMB_RDMA_ADDRESS").expect("the address of a device");
    let port = TcpListener::bind((&*address, 0)).unwrap().local_addr().unwrap().port();
    SocketAddr::new(address.parse().unwrap(), port)
}

/// How many times as much as by default is done.
fn reads(default: u64) -> u64 {
    env::var("RHUMB_RDMA_READS").map_or(default, |text| text.parse().unwrap())
}

fn key(n: u64) -> [u8; 8] {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// A value that proves its key and its version, of 20 to 116 bytes.
fn value(n: u64, version: u64) -> Vec<u8> {
    let mut value = [key(n), version.to_le_bytes()].concat();
    let len = 4 + (version % 25) as usize * 4;
    value.extend((0..len).map(|at| (n ^ version ^ at as u64) as u8));
    value
}

/// The version of a value; `None` if it is not one of the key's.
fn version_of(n: u64, found: &[u8]) -> Option<u64> {
    let version = u64::from_le_bytes(found.get(8..16)?.try_into().ok()?);
    (found == value(n, version)).then_some(version)
}

struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(test: &str, address: SocketAddr, settings: &[(&str, &str)]) -> Started {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([test, "--exact", "--ignored", "--nocapture"]);
    command.env(HOST, address.to_string()).envs(settings.iter().copied());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("is there")));
    Started(child)
}

fn host_of(preset: Preset, address: SocketAddr) -> Started {
    start("child_host", address, &[(PRESET, name(preset))])
}

fn name(preset: Preset) -> &'static str {
    match preset {
        Preset::Rhumb => "rhumb",
        Preset::XStore => "xstore",
        _ => "finestore",
    }
}

/// The preset that a host is told.
fn preset() -> Preset {
    match env::var(PRESET).as_deref() {
        Ok("xstore") => Preset::XStore,
        Ok("finestore") => Preset::FineStore,
        _ => Preset::Rhumb,
    }
}

fn signal(child: &Started, name: &str) {
    let id = child.0.id().to_string();
    assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
}

fn keyspace(scheme: &str, address: SocketAddr) -> Keyspace {
    let client = Client::connect(format!("{scheme}:{address}")).unwrap();
    client.keyspace("k").unwrap()
}

/// A client that has the whole directory by now, or all models, of which the host has trained those
/// that were asked for.
fn warm(scheme: &str, address: SocketAddr, preset: Preset) -> Keyspace {
    let keyspace = keyspace(scheme, address);
    let step = if preset == Preset::Rhumb { 16 } else { 1 };
    for _ in 0..60 {
        let before = keyspace.counts();
        (0..KEYS).step_by(step).for_each(|n| drop(keyspace.get(key(n)).unwrap()));
        let (after, gets) = (keyspace.counts(), KEYS / step as u64);
        // Siblings of leaves cost a trip each, until the host has built their runs anew.
        let trips_max = if preset == Preset::Rhumb { gets * 51 / 25 } else { u64::MAX };
        let is_warm = after.calls - before.calls < gets / 200 + 1;
        if is_warm && after.round_trips - before.round_trips <= trips_max {
            break;
        }
        thread::sleep(Duration::from_secs(1));
    }
    keyspace
}

/// Says what something has cost, a time of it on average.
fn report(preset: Preset, what: &str, times: u64, before: &Counts, after: &Counts) {
    let each = |before: u64, after: u64| (after - before) as f64 / times as f64;
    println!(
        "{}, {what}: {:.3} round trips, {:.0} bytes, {:.4} calls",
        name(preset),
        each(before.round_trips, after.round_trips),
        each(before.bytes_received, after.bytes_received),
        each(before.calls, after.calls),
    );
}

/// CPU time that a process has used.
fn cpu_of(child: &Started) -> Cpu {
    Cpu::of(child.0.id())
}

/// Waits until the host has built anew what inserts have made long chains of.
fn settle(host: &Host) {
    let shape = || host.stats("k").map(|stats| (stats.runs, stats.leaves));
    // A loaded machine may pause for a second between two runs.
    let (mut last, mut same) = (None, 0);
    while same < 3 {
        thread::sleep(Duration::from_secs(1));
        let now = shape();
        same = if now == last { same + 1 } else { 0 };
        last = now;
    }
}

#[test]
#[ignore = "started by another test: a host, until its input ends"]
fn child_host() {
    let Ok(address) = env::var(HOST) else { return };
    let options = ShareOptions::default().capacity_bytes(64 << 20).entry_bytes(90);
    let options = options.checksums(env::var_os(BARE).is_none()).preset(preset());
    let host = Host::builder().listen_tcp(address.parse().unwrap()).allow_open(true);
    let host = host.share("k", options).start().unwrap();
    let client = Client::connect(format!("tcp:{address}")).unwrap();
    let keyspace = client.keyspace("k").unwrap();
    for first in (0..KEYS).step_by(500) {
        let mut batch = client.batch();
        (first..first + 500).for_each(|n| batch.insert(&keyspace, key(n), value(n, 0)));
        batch.commit().unwrap();
    }
    settle(&host);
    println!("host is there");
    let _ = std::io::stdin().read_line(&mut String::new());
    drop(host);
}

#[test]
#[ignore = "started by another test: a writer, until its input ends"]
fn child_writer() {
    let Ok(address) = env::var(HOST) else { return };
    let client = Client::connect(format!("tcp:{address}")).unwrap();
    let keyspace = client.keyspace("k").unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ = std::io::stdin().read_line(&mut String::new());
            is_over.store(true, Ordering::Relaxed);
        });
        for version in 1.. {
            // All at once, so that a reader of one moment sees one version of them.
            let mut batch = client.batch();
            (0..HOT).for_each(|n| batch.insert(&keyspace, key(n), value(n, version)));
            batch.commit().unwrap();
            if version == 1 {
                println!("writer is there");
            }
            if is_over.load(Ordering::Relaxed) {
                break;
            }
        }
    });
}

/// Gets, several at once, and scans of a host that stands still.
fn reads_are_right_and_cost_the_host_nothing(preset: Preset) {
    let address = address();
    let host = host_of(preset, address);
    let keyspace = warm("rdma", address, preset);
    let (idle, seconds) = (cpu_of(&host), 10);
    thread::sleep(Duration::from_secs(seconds));
    let idle = cpu_of(&host) - idle;
    println!("{}: without gets the host used in {seconds} s {idle}", name(preset));
    let (before, cpu, gets) = (keyspace.counts(), cpu_of(&host), reads(5_000));
    let begun = Instant::now();
    for n in 0..gets {
        let n = n % KEYS;
        assert_eq!(keyspace.get(key(n)).unwrap().unwrap(), value(n, 0));
    }
    let (took, cpu, after) = (begun.elapsed(), cpu_of(&host) - cpu, keyspace.counts());
    report(preset, "get", gets, &before, &after);
    println!(
        "{}: {:.1} us a get; the host used in {} s {cpu}",
        name(preset),
        took.as_secs_f64() * 1e6 / gets as f64,
        took.as_secs(),
    );
    // Four beats a second, and looks at its tables; a call for each get would take all of a core.
    // On a loaded machine the guest is charged for time that it did not run.
    let calls = after.calls - before.calls;
    assert!(cpu.ticks() <= 50 + took.as_secs() * 40 + calls / 10, "the host used {cpu}");
    // Models predict nearly all, and what lies in level bins is for the host.
    let most = match preset {
        Preset::Rhumb => 0,
        Preset::XStore => gets / 500,
        _ => gets / 20,
    };
    assert!(calls <= most, "{calls} calls");
    // What is read again and again.
    let before = keyspace.counts();
    for n in (0..1_000).map(|at| at % 10) {
        assert_eq!(keyspace.get(key(n)).unwrap().unwrap(), value(n, 0));
    }
    report(preset, "get of a hot key", 1_000, &before, &keyspace.counts());
    for n in KEYS..KEYS + 300 {
        assert_eq!(keyspace.get(key(n)).unwrap(), None);
    }
    let before = keyspace.counts();
    for first in (0..KEYS).step_by(1_024) {
        let wanted: Vec<[u8; 8]> = (first..first + 32).map(key).collect();
        let values = keyspace.multi_get(&wanted).unwrap();
        for (n, value) in (first..).zip(values) {
            assert_eq!(value, (n < KEYS).then(|| self::value(n, 0)));
        }
    }
    report(preset, "multi_get(32)", KEYS.div_ceil(1_024), &before, &keyspace.counts());
    scan(&keyspace, preset);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn rdma_reads_are_right_and_cost_the_host_nothing() {
    reads_are_right_and_cost_the_host_nothing(Preset::Rhumb);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn rdma_reads_of_xstore_are_right_and_cost_the_host_nothing() {
    reads_are_right_and_cost_the_host_nothing(Preset::XStore);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn rdma_reads_of_finestore_are_right_and_cost_the_host_nothing() {
    reads_are_right_and_cost_the_host_nothing(Preset::FineStore);
}

/// Scans of 100 pairs, and one of all, both ways.
fn scan(keyspace: &Keyspace, preset: Preset) {
    let all: BTreeMap<[u8; 8], Vec<u8>> = (0..KEYS).map(|n| (key(n), value(n, 0))).collect();
    let pair = |pair: Result<(Vec<u8>, Vec<u8>), Error>| pair.unwrap();
    let owned = |(key, value): (&[u8; 8], &Vec<u8>)| (key.to_vec(), value.clone());
    let (before, scans) = (keyspace.counts(), 100);
    for n in 0..scans {
        let from = key(n * 97);
        let found: Vec<_> = keyspace.range(from..).limit(100).map(pair).collect();
        assert!(found.iter().cloned().eq(all.range(from..).take(100).map(owned)));
    }
    report(preset, "scan of 100", scans, &before, &keyspace.counts());
    let before = keyspace.counts();
    for n in 0..scans {
        let to = key(n * 97);
        let found: Vec<_> = keyspace.range(..=to).rev().take(100).map(pair).collect();
        assert!(found.iter().cloned().eq(all.range(..=to).rev().take(100).map(owned)));
    }
    let after = keyspace.counts();
    report(preset, "scan of 100 downwards", scans, &before, &after);
    assert!(
        preset != Preset::Rhumb
            || after.sends + after.bytes_sent == before.sends + before.bytes_sent
    );
    assert!(keyspace.iter().map(pair).eq(all.iter().map(owned)));
    assert!(keyspace.iter().rev().map(pair).eq(all.iter().rev().map(owned)));
}

/// Reads beside a writer that changes many keys at once, again and again.
fn reads_beside_a_writer_are_whole(preset: Preset) {
    let address = address();
    let _host = host_of(preset, address);
    // Beside the writer it would never be: models are trained anew all the while.
    let keyspace = warm("rdma", address, preset);
    let writer = start("child_writer", address, &[]);
    let (mut last, mut seen) = (vec![0; HOT as usize], 0_u64);
    let before = keyspace.counts();
    // One by one, and several at once, which are as many more.
    let (gets, several) = (reads(50_000) / 10, reads(50_000) / 32);
    let mut look = |n: u64, found: Option<Vec<u8>>| {
        let found = found.expect("a key that is never removed");
        let version = version_of(n, &found).expect("a value of the key");
        assert!(version >= last[n as usize], "{version} after {}", last[n as usize]);
        seen += u64::from(version > last[n as usize]);
        last[n as usize] = version;
    };
    for at in 0..gets {
        let n = at * 7 % HOT;
        look(n, keyspace.get(key(n)).unwrap());
    }
    report(preset, "get beside a writer", gets, &before, &keyspace.counts());
    let before = keyspace.counts();
    for at in 0..several {
        let numbers: Vec<u64> = (0..32).map(|more| (at * 32 + more) * 7 % HOT).collect();
        let keys: Vec<[u8; 8]> = numbers.iter().copied().map(key).collect();
        let values = keyspace.multi_get(&keys).unwrap();
        numbers.into_iter().zip(values).for_each(|(n, found)| look(n, found));
    }
    report(preset, "multi_get(32) beside a writer", several, &before, &keyspace.counts());
    let all = gets + several * 32;
    println!("{}: {all} reads, {seen} new versions, 0 torn, 0 wrong", name(preset));
    assert!(seen > 0);
    // All of a batch, or nothing.
    for at in 0..gets / 50 {
        let numbers = [at % HOT, (at + 1) % HOT, (at + HOT / 2) % HOT];
        let values = keyspace.multi_get_atomic(&numbers.map(key)).unwrap();
        let version = |(n, found): (&u64, &Option<Vec<u8>>)| version_of(*n, found.as_ref()?);
        let versions: Vec<_> = numbers.iter().zip(&values).map(version).collect();
        assert!(versions.iter().all(|version| version.is_some() && *version == versions[0]));
    }
    // The same of ranges.
    for at in 0..gets / 500 {
        let from = key(at * 31 % KEYS);
        let pairs = keyspace.range_atomic(from.., 60).unwrap();
        let found: BTreeMap<Vec<u8>, Vec<u8>> = pairs.into_iter().collect();
        let hot = (0..HOT).filter_map(|n| Some((n, found.get(&key(n)[..])?)));
        let mut versions = hot.map(|(n, value)| version_of(n, value).expect("a value of the key"));
        let first = versions.next();
        assert!(versions.all(|version| Some(version) == first));
    }
    // Pairs of a scan are whole, and none of those that stay is passed over.
    for at in 0..gets / 500 {
        let from = key(at * 31 % KEYS);
        let pairs = keyspace.range(from..).limit(50).map(|pair| pair.unwrap());
        let found: BTreeMap<Vec<u8>, Vec<u8>> = pairs.collect();
        let (first, last) = (from.to_vec(), found.keys().next_back().cloned());
        for n in 0..KEYS {
            let wanted = key(n).to_vec();
            if wanted >= first && last.as_ref().is_some_and(|last| wanted <= *last) {
                let value = found.get(&wanted).expect("a key that is never removed");
                assert!(version_of(n, value).is_some());
            }
        }
    }
    drop(writer);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn rdma_reads_beside_a_writer_are_whole() {
    reads_beside_a_writer_are_whole(Preset::Rhumb);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn rdma_reads_of_xstore_beside_a_writer_are_whole() {
    reads_beside_a_writer_are_whole(Preset::XStore);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn rdma_reads_of_finestore_beside_a_writer_are_whole() {
    reads_beside_a_writer_are_whole(Preset::FineStore);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn rdma_goes_on_with_the_host_that_takes_the_place_of_one_that_was_killed() {
    for preset in [Preset::Rhumb, Preset::XStore, Preset::FineStore] {
        goes_on_with_the_host_that_takes_the_place_of_one_that_was_killed(preset);
    }
}

fn goes_on_with_the_host_that_takes_the_place_of_one_that_was_killed(preset: Preset) {
    let address = address();
    let mut now = host_of(preset, address);
    let keyspace = warm("rdma", address, preset);
    for _ in 0..2 {
        signal(&now, "-KILL");
        now.0.wait().unwrap();
        let waits = thread::spawn({
            let keyspace = keyspace.clone();
            move || keyspace.get(key(7))
        });
        thread::sleep(Duration::from_millis(300));
        now = host_of(preset, address);
        // It waited for a host, or was told that there is none.
        if let Ok(found) = waits.join().unwrap() {
            assert_eq!(found.unwrap(), value(7, 0));
        }
        for n in 0..500 {
            assert_eq!(keyspace.get(key(n)).unwrap().unwrap(), value(n, 0));
        }
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn rdma_trusts_no_host_that_stands_still() {
    for preset in [Preset::Rhumb, Preset::XStore, Preset::FineStore] {
        trusts_no_host_that_stands_still(preset);
    }
}

fn trusts_no_host_that_stands_still(preset: Preset) {
    let address = address();
    let host = host_of(preset, address);
    let keyspace = warm("rdma", address, preset);
    let (done, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in (0..KEYS).cycle() {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                if let Ok(found) = keyspace.get(key(n)) {
                    assert_eq!(found.unwrap(), value(n, 0));
                    done.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let pause = |seconds| thread::sleep(Duration::from_secs(seconds));
        pause(1);
        signal(&host, "-STOP");
        // The memory can still be read; once the lease is over, it is not.
        pause(3);
        let before = done.load(Ordering::Relaxed);
        pause(2);
        let stopped = done.load(Ordering::Relaxed);
        signal(&host, "-CONT");
        let until = Instant::now() + Duration::from_secs(60);
        while done.load(Ordering::Relaxed) < stopped + 500 && Instant::now() < until {
            pause(1);
        }
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(stopped, before, "keys were read of a host that stands still");
        assert!(done.load(Ordering::Relaxed) >= stopped + 500, "it does not go on");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn rdma_that_cannot_be_had_is_an_error_or_tcp() {
    for preset in [Preset::Rhumb, Preset::XStore, Preset::FineStore] {
        cannot_be_had_without_checksums(preset);
    }
}

fn cannot_be_had_without_checksums(preset: Preset) {
    let address = address();
    let settings = [(BARE, "1"), (PRESET, name(preset))];
    let _host = start("child_host", address, &settings);
    let strict = keyspace("rdma", address);
    // The first get brings the directory, over TCP.
    let error = (0..3).find_map(|_| strict.get(key(1)).err()).expect("an error");
    assert!(matches!(&error, Error::Refused { text, .. } if text.contains("checksums")), "{error}");
    let lenient = keyspace("rdma+tcp", address);
    for n in 0..100 {
        assert_eq!(lenient.get(key(n)).unwrap().unwrap(), value(n, 0));
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn rdma_calls_go_by_sends() {
    for preset in [Preset::Rhumb, Preset::XStore, Preset::FineStore] {
        calls_go_by_sends(preset);
    }
}

/// Bytes that answer for a key, of a length that is another for each.
fn long(n: u64) -> Vec<u8> {
    (0..n * 997 % 60_000).map(|at| (n * 31 + at * 7) as u8).collect()
}

/// Writes and calls, by several threads that share a connection.
fn calls_go_by_sends(preset: Preset) {
    let address = address();
    let _host = host_of(preset, address);
    let (keyspace, other) = (warm("rdma", address, preset), self::keyspace("tcp", address));
    let before = keyspace.counts();
    let (threads, each) = (4, 60);
    thread::scope(|scope| {
        for thread in 0..threads {
            let (keyspace, other) = (&keyspace, &other);
            scope.spawn(move || {
                for n in (0..each).map(|at| KEYS + 1_000 * thread + at) {
                    keyspace.insert(key(n), value(n, 1)).unwrap();
                    assert_eq!(other.get(key(n)).unwrap().unwrap(), value(n, 1));
                    let (one, two) = (value(n, 1), value(n, 2));
                    assert!(keyspace.compare_and_swap(key(n), Some(&one), Some(&two)).unwrap());
                    assert!(!keyspace.compare_and_swap(key(n), Some(&one), Some(&two)).unwrap());
                    assert_eq!(keyspace.get(key(n)).unwrap().unwrap(), two);
                    keyspace.remove(key(n)).unwrap();
                    assert_eq!(keyspace.get(key(n)).unwrap(), None);
                }
            });
        }
    });
    let after = keyspace.counts();
    let sends = after.sends - before.sends;
    println!("{}: {sends} calls by sends", name(preset));
    // Five for each key, but for those while one thread connects.
    assert!(sends >= 4 * threads * each - 50, "{sends} calls by sends");
    // Answers of several messages, and requests that go over TCP.
    for n in (0..40).map(|at| KEYS + 9_000 + at) {
        keyspace.insert(key(n), long(n)).unwrap();
        assert_eq!(keyspace.get(key(n)).unwrap().unwrap(), long(n));
        assert_eq!(other.get(key(n)).unwrap().unwrap(), long(n));
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn rdma_calls_end_with_their_host() {
    let address = address();
    let mut host = host_of(Preset::Rhumb, address);
    let keyspace = warm("rdma", address, Preset::Rhumb);
    keyspace.insert(key(1), value(1, 1)).unwrap();
    assert!(keyspace.counts().sends > 0);
    // An answer that will not come: the host stands still, and is killed then.
    signal(&host, "-STOP");
    let (begun, write) = (Instant::now(), keyspace.clone());
    let write = thread::spawn(move || write.insert(key(1), value(1, 2)));
    thread::sleep(Duration::from_secs(1));
    signal(&host, "-KILL");
    host.0.wait().unwrap();
    let lost = write.join().unwrap().unwrap_err();
    assert!(matches!(lost, Error::Closed | Error::Io { .. }), "{lost}");
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    let _next = host_of(Preset::Rhumb, address);
    let until = Instant::now() + Duration::from_secs(60);
    let sends = keyspace.counts().sends;
    while keyspace.counts().sends < sends + 10 && Instant::now() < until {
        keyspace.insert(key(1), value(1, 3)).unwrap();
    }
    assert!(keyspace.counts().sends >= sends + 10, "calls go over TCP still");
    assert_eq!(keyspace.get(key(1)).unwrap().unwrap(), value(1, 3));
}
