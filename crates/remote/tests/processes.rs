//! Hosts and clients in processes of their own: what one writes, others read; a host that is
//! killed, stopped or replaced; a client that is killed.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

use std::{
    collections::BTreeMap,
    env,
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rhumb_remote::{Client, Error, Host, Keyspace, ShareOptions};

/// Says to a test that it is a child of another, and at which socket its host is.
const SOCKET: &str = "RHUMB_REMOTE_SOCKET";

/// Says to a host at which address it listens too.
const TCP: &str = "RHUMB_REMOTE_TCP";

/// Keys that are written all the while.
const KEYS: u64 = 500;

fn options() -> ShareOptions {
    ShareOptions::default().capacity_bytes(64 << 20).entry_bytes(40)
}

fn socket(dir: &Path) -> PathBuf {
    dir.join("rhumb.sock")
}

/// Starts a test of this binary as a process of its own.
fn start(test: &str, socket: &Path) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([test, "--exact", "--ignored", "--nocapture"]).env(SOCKET, socket);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

/// Starts a host as a process of its own, which listens on an address too.
fn start_host(dir: &Path, address: SocketAddr) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["child_host", "--exact", "--ignored", "--nocapture"]);
    command.env(SOCKET, socket(dir)).env(TCP, address.to_string());
    let mut host = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    wait_for(&mut host, "host is there");
    host
}

/// An address that was free a moment ago.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// The two ways to a host of [`start_host`].
fn both_ways(dir: &Path, address: SocketAddr) -> [PathBuf; 2] {
    [socket(dir), format!("tcp:{address}").into()]
}

/// Waits for a line of a child.
fn wait_for(child: &mut Child, wanted: &str) {
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains(wanted)), "no {wanted:?}");
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

fn key(n: u64) -> [u8; 8] {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// A value that proves its key and its version.
fn value(n: u64, version: u64) -> Vec<u8> {
    [&key(n)[..], &version.to_le_bytes(), &vec![version as u8; (version % 7) as usize]].concat()
}

fn version(n: u64, found: &[u8]) -> u64 {
    let version = u64::from_le_bytes(found[8..16].try_into().unwrap());
    assert_eq!(found, value(n, version), "torn, or another key's");
    version
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < until, "{what} did not come about");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Where a child's host is; nothing in the run of all tests.
fn host_of_child() -> Option<PathBuf> {
    env::var_os(SOCKET).map(PathBuf::from)
}

#[test]
#[ignore = "started by other tests: a host, until its input ends"]
fn child_host() {
    let Some(socket) = host_of_child() else { return };
    let host = Host::listen(&socket).share("k", options());
    let host = match env::var(TCP) {
        Ok(address) => host.listen_tcp(address.parse().unwrap()),
        Err(_) => host,
    };
    let host = host.start().unwrap();
    println!("\nhost is there");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    drop(host);
}

#[test]
#[ignore = "started by other tests: a reader, until its input ends"]
fn child_reader() {
    let Some(socket) = host_of_child() else { return };
    let keyspace = Client::connect(socket).unwrap().keyspace("k").unwrap();
    let mut seen = vec![0; KEYS as usize];
    let mut out = Vec::new();
    println!("\nreader is there");
    let ended = thread::spawn(|| std::io::stdin().read_line(&mut String::new()));
    let (mut gets, before) = (0u64, keyspace.calls());
    while !ended.is_finished() {
        for n in 0..KEYS {
            out.clear();
            assert!(keyspace.get_into(key(n), &mut out).unwrap(), "lost");
            let found = version(n, &out);
            assert!(found >= seen[n as usize], "an older value than before");
            seen[n as usize] = found;
            gets += 1;
        }
        let pairs: Vec<_> = keyspace.iter().collect::<Result<_, _>>().unwrap();
        assert_eq!(pairs.len() as u64, KEYS);
        assert!(pairs.is_sorted());
    }
    println!("\n{} of {gets} gets were calls", keyspace.calls() - before);
}

#[test]
fn every_operation_from_another_process() {
    let (dir, address) = (tempfile::tempdir().unwrap(), free_address());
    for way in both_ways(dir.path(), address) {
        let mut host = start_host(dir.path(), address);
        every_operation(&Client::connect(way).unwrap().keyspace("k").unwrap());
        drop(host.stdin.take());
        assert!(host.wait().unwrap().success());
    }
}

fn every_operation(keyspace: &Keyspace) {
    let mut map = BTreeMap::new();
    let mut n = 1u64;
    for step in 0..6_000u64 {
        n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let key = format!("key {:04}", (n >> 33) % 2_500).into_bytes();
        // Some values are too large for a leaf.
        let value = vec![step as u8; if n.is_multiple_of(50) { 3_000 } else { (n % 60) as usize }];
        match step % 5 {
            0 => {
                keyspace.remove(&key).unwrap();
                map.remove(&key);
            }
            1 => {
                let old = map.get(&key).map(Vec::as_slice);
                assert!(!keyspace.compare_and_swap(&key, Some(b"never written"), None).unwrap());
                assert!(keyspace.compare_and_swap(&key, old, Some(&value)).unwrap());
                map.insert(key.clone(), value);
            }
            _ => {
                keyspace.insert(&key, &value).unwrap();
                map.insert(key.clone(), value);
            }
        }
        assert_eq!(keyspace.get(&key).unwrap(), map.get(&key).cloned());
    }
    compare(keyspace, &map);
    assert!(keyspace.calls() < 2_000, "{} calls: only large values need one", keyspace.calls());
}

/// Compares all ways to read with a map.
fn compare(keyspace: &Keyspace, map: &BTreeMap<Vec<u8>, Vec<u8>>) {
    let pairs =
        |pairs: Vec<Result<_, Error>>| pairs.into_iter().collect::<Result<Vec<_>, _>>().unwrap();
    let owned = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone());
    let all: Vec<_> = map.iter().map(owned).collect();
    assert_eq!(pairs(keyspace.iter().collect()), all);
    let mut reversed = pairs(keyspace.iter().rev().collect());
    reversed.reverse();
    assert_eq!(reversed, all);
    let (from, to) = (b"key 0500".to_vec(), b"key 1500".to_vec());
    let some: Vec<_> = map.range(from.clone()..to.clone()).map(owned).collect();
    assert_eq!(pairs(keyspace.range(from.clone()..to.clone()).collect()), some);
    let mut reversed = pairs(keyspace.range(from..to).rev().collect());
    reversed.reverse();
    assert_eq!(reversed, some);
    let prefixed: Vec<_> = map.range(b"key 1".to_vec()..b"key 2".to_vec()).map(owned).collect();
    assert_eq!(pairs(keyspace.prefix("key 1").collect()), prefixed);
    assert_eq!(keyspace.first().unwrap(), all.first().cloned());
    assert_eq!(keyspace.last().unwrap(), all.last().cloned());
    // From both ends to the middle.
    let (mut range, mut both) = (keyspace.iter(), 0);
    while let Some(pair) = if both % 3 == 0 { range.next_back() } else { range.next() } {
        pair.unwrap();
        both += 1;
    }
    assert_eq!(both, all.len());
    let keys: Vec<_> = (0..2_500).map(|n| format!("key {n:04}").into_bytes()).collect();
    let values = keyspace.multi_get(&keys).unwrap();
    assert!(keys.iter().zip(values).all(|(key, value)| map.get(key) == value.as_ref()));
}

#[test]
fn readers_of_other_processes_beside_a_writer() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::listen(socket(dir.path())).listen_tcp(free_address());
    let host = host.share("k", options()).start().unwrap();
    let keyspace = Client::connect(host.path()).unwrap().keyspace("k").unwrap();
    (0..KEYS).for_each(|n| keyspace.insert(key(n), value(n, 0)).unwrap());
    // The second reads memory, the others ask for leaves.
    let [mapped, apart] = both_ways(dir.path(), host.tcp_addresses()[0]);
    let mut readers = [&apart, &mapped, &apart].map(|way| start("child_reader", way));
    readers.iter_mut().for_each(|reader| wait_for(reader, "reader is there"));
    assert_eq!(host.sessions(), 4);
    for version in 1..=40 {
        (0..KEYS).for_each(|n| keyspace.insert(key(n), value(n, version)).unwrap());
    }
    let [killed, lives @ ..] = &mut readers;
    // A reader that is killed is noticed by its socket.
    killed.kill().unwrap();
    killed.wait().unwrap();
    wait_until("the end of a session", || host.sessions() == 3);
    for lives in lives {
        lives.stdin.take().unwrap().write_all(b"\n").unwrap();
        wait_for(lives, "gets were calls");
        assert!(lives.wait().unwrap().success());
    }
}

#[test]
fn a_host_that_is_killed_is_not_read_and_its_successor_is() {
    let (dir, address) = (tempfile::tempdir().unwrap(), free_address());
    for way in both_ways(dir.path(), address) {
        kill_and_follow(dir.path(), address, &way);
    }
}

fn kill_and_follow(dir: &Path, address: SocketAddr, way: &Path) {
    let mut host = start_host(dir, address);
    let keyspace = Client::connect(way).unwrap().keyspace("k").unwrap();
    keyspace.insert("a", "1").unwrap();
    assert_eq!(keyspace.get("a").unwrap().unwrap(), b"1");
    host.kill().unwrap();
    host.wait().unwrap();
    let mut next = start_host(dir, address);
    // A volatile keyspace is empty again. The old region is read for a lease at most.
    wait_until("the end of the lease", || keyspace.get("a").unwrap().is_none());
    keyspace.insert("a", "2").unwrap();
    assert_eq!(keyspace.get("a").unwrap().unwrap(), b"2");
    assert_eq!(keyspace.iter().count(), 1);
    assert_eq!(keyspace.get("a").unwrap().unwrap(), b"2");
    let calls = keyspace.calls();
    (0..100).for_each(|_| drop(keyspace.get("a").unwrap()));
    assert_eq!(keyspace.calls(), calls, "the new region is read");
    drop(next.stdin.take());
    assert!(next.wait().unwrap().success());
}

#[test]
fn a_connection_that_broke_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let mut host = start("child_host", &socket(dir.path()));
    wait_for(&mut host, "host is there");
    let keyspace = Client::connect(socket(dir.path())).unwrap().keyspace("k").unwrap();
    keyspace.insert("a", "1").unwrap();
    host.kill().unwrap();
    host.wait().unwrap();
    // The lease is not over, but the host has gone.
    assert!(keyspace.insert("a", "2").is_err());
    let mut next = start("child_host", &socket(dir.path()));
    assert_eq!(keyspace.get("a").unwrap(), None);
    drop(next.stdin.take());
    assert!(next.wait().unwrap().success());
}

#[test]
fn a_host_that_is_stopped_answers_over_tcp_when_it_goes_on() {
    let (dir, address) = (tempfile::tempdir().unwrap(), free_address());
    let mut host = start_host(dir.path(), address);
    let [_, way] = both_ways(dir.path(), address);
    let keyspace = Client::connect(way).unwrap().keyspace("k").unwrap();
    keyspace.insert("a", "1").unwrap();
    signal(&host, "-STOP");
    let trips = keyspace.round_trips();
    let asked = {
        let keyspace = keyspace.clone();
        thread::spawn(move || keyspace.get("a"))
    };
    wait_until("the message", || keyspace.round_trips() > trips);
    thread::sleep(Duration::from_millis(1_500));
    assert!(!asked.is_finished(), "nobody else knows the value");
    signal(&host, "-CONT");
    assert_eq!(asked.join().unwrap().unwrap().unwrap(), b"1");
    drop(host.stdin.take());
    assert!(host.wait().unwrap().success());
}

#[test]
fn a_host_that_is_stopped_is_read_for_its_lease_and_then_asked() {
    let dir = tempfile::tempdir().unwrap();
    let mut host = start("child_host", &socket(dir.path()));
    wait_for(&mut host, "host is there");
    let keyspace = Client::connect(socket(dir.path())).unwrap().keyspace("k").unwrap();
    keyspace.insert("a", "1").unwrap();
    signal(&host, "-STOP");
    thread::sleep(Duration::from_millis(1_500));
    let calls = keyspace.calls();
    let asked = {
        let keyspace = keyspace.clone();
        thread::spawn(move || keyspace.get("a"))
    };
    wait_until("the call", || keyspace.calls() > calls);
    signal(&host, "-CONT");
    assert_eq!(asked.join().unwrap().unwrap().unwrap(), b"1");
    drop(host.stdin.take());
    assert!(host.wait().unwrap().success());
}

#[test]
fn refusals_say_why() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(Client::connect(socket(dir.path())), Err(Error::Io { .. })));
    let host = Host::listen(socket(dir.path()));
    let host = host.share("k", options().capacity_bytes(1)).start().unwrap();
    let client = Client::connect(host.path()).unwrap();
    let error = client.keyspace("other").unwrap_err();
    assert!(error.to_string().contains("no keyspace \"other\""), "{error}");
    let keyspace = client.keyspace("k").unwrap();
    let error = keyspace.insert(vec![b'k'; 70_000], "1").unwrap_err();
    assert!(error.to_string().contains("a key's length of 70000"), "{error}");
    let mut n = 0;
    let error = loop {
        match keyspace.insert(key(n), [7; 400]) {
            Ok(()) => n += 1,
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("budget of 2097152 bytes"), "{error}");
    assert!(n > 1_500, "{n} entries of 408 bytes in 2 MiB");
    // What is there stays.
    assert!((0..n).all(|n| keyspace.get(key(n)).unwrap().is_some()));
    assert!(matches!(Host::listen(host.path()).start(), Err(Error::Io { .. })));
    drop(host);
    assert!(matches!(keyspace.insert("a", "1"), Err(Error::Closed | Error::Io { .. })));
}

#[test]
fn a_keyspace_that_is_opened_again_takes_no_further_addresses() {
    let dir = tempfile::tempdir().unwrap();
    let options = options().capacity_bytes(1 << 40);
    let host = Host::listen(socket(dir.path())).share("k", options).start().unwrap();
    let client = Client::connect(host.path()).unwrap();
    // A process has addresses for some hundred regions of this size.
    (0..200).for_each(|_| drop(client.keyspace("k").unwrap()));
    client.keyspace("k").unwrap().insert("a", "1").unwrap();
}

#[test]
fn a_client_finds_what_the_next_host_shares() {
    let dir = tempfile::tempdir().unwrap();
    let start = |names: &[&str]| {
        let host = Host::listen(socket(dir.path()));
        names.iter().fold(host, |host, name| host.share(*name, options())).start().unwrap()
    };
    let host = start(&["a", "b"]);
    let client = Client::connect(host.path()).unwrap();
    let (a, b) = (client.keyspace("a").unwrap(), client.keyspace("b").unwrap());
    a.insert("k", "a").unwrap();
    b.insert("k", "b").unwrap();
    drop(host);
    let host = start(&["c", "b"]);
    // The connection broke, and nothing has noticed.
    let c = client.keyspace("c").unwrap();
    c.insert("k", "c").unwrap();
    assert_eq!(b.get("k").unwrap(), None);
    assert!(matches!(a.get("k"), Err(Error::Refused { .. })));
    b.insert("k", "of the next").unwrap();
    assert_eq!(b.get("k").unwrap().unwrap(), b"of the next");
    assert_eq!(c.get("k").unwrap().unwrap(), b"c");
    drop(host);
}

#[test]
fn what_is_written_is_read_also_in_new_segments() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::listen(socket(dir.path())).share("k", options()).start().unwrap();
    let keyspace = Client::connect(host.path()).unwrap().keyspace("k").unwrap();
    let mapped = || host.stats("k").unwrap().mapped_bytes;
    let (mut before, mut grown, mut n, mut gets) = (mapped(), 0, 0, 0);
    while grown < 3 {
        keyspace.insert(key(n), [1; 100]).unwrap();
        let now = mapped();
        grown += u32::from(now > before);
        // The key that needed the new segment is in it, or beside what moved there.
        if now > before {
            assert!((0..=n).all(|n| keyspace.get(key(n)).unwrap().is_some()));
            gets += n + 1;
        }
        (before, n) = (now, n + 1);
    }
    // A leaf may move to a segment that no answer has announced yet, or be about to.
    assert!(keyspace.calls() * 100 < gets, "{} calls of {gets} gets", keyspace.calls());
}

#[test]
fn values_that_fit_no_message_together_come_in_several() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::listen(socket(dir.path())).share("k", options()).start().unwrap();
    let keyspace = Client::connect(host.path()).unwrap().keyspace("k").unwrap();
    let value = |n: u64| vec![n as u8; 7 << 20];
    (0..5).for_each(|n| keyspace.insert(key(n), value(n)).unwrap());
    let found = keyspace.multi_get(&[0, 1, 2, 3, 4, 5].map(key)).unwrap();
    assert!(found.iter().zip(0..5).all(|(found, n)| found.as_ref() == Some(&value(n))));
    assert_eq!(found[5], None);
    let pairs: BTreeMap<_, _> = keyspace.iter().collect::<Result<_, _>>().unwrap();
    assert!(
        pairs
            .into_iter()
            .eq((0..5).map(|n| (key(n).to_vec(), value(n))).collect::<BTreeMap<_, _>>())
    );
}
