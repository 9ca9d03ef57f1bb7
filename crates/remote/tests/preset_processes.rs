//! Keyspaces of the presets whose clients keep models, by processes of their own: hosts and readers
//! that are killed.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

use std::{
    env,
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rhumb_remote::{Client, Host, Keyspace, Preset, ShareOptions};

/// Says to a test that it is a child of another, and at which address its host is.
const ADDRESS: &str = "RHUMB_PRESET_ADDRESS";

/// Says to a host at which address it listens too.
const TCP: &str = "RHUMB_PRESET_TCP";

/// Says to a host which preset it shares.
const PRESET: &str = "RHUMB_PRESET";

/// The presets, by what [`PRESET`] says.
const PRESETS: [(&str, Preset); 2] = [("xstore", Preset::XStore), ("finestore", Preset::FineStore)];

/// Keys that are written all the while.
const KEYS: u64 = 800;

fn options(preset: Preset) -> ShareOptions {
    ShareOptions::default().capacity_bytes(64 << 20).entry_bytes(40).preset(preset)
}

fn socket(dir: &Path) -> PathBuf {
    dir.join("rhumb.sock")
}

/// Starts a host as a process of its own, which listens on an address too.
fn start_host(dir: &Path, address: SocketAddr, preset: &str) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["child_host", "--exact", "--ignored", "--nocapture"]);
    command.env(ADDRESS, socket(dir)).env(TCP, address.to_string()).env(PRESET, preset);
    let mut host = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    wait_for(&mut host, "host is there");
    host
}

/// An address that was free a moment ago.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Starts a test of this binary as a process of its own.
fn start(test: &str, address: &Path, preset: &str) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([test, "--exact", "--ignored", "--nocapture"]);
    command.env(ADDRESS, address).env(PRESET, preset);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

/// Waits for a line of a child.
fn wait_for(child: &mut Child, wanted: &str) {
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains(wanted)), "no {wanted:?}");
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "waited in vain for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn open(address: &Path) -> Keyspace {
    Client::connect(address).unwrap().keyspace("k").unwrap()
}

/// Some keys of eight bytes, and some of more.
fn key(n: u64) -> Vec<u8> {
    let word = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    if n.is_multiple_of(3) { [&b"longer key "[..], &word].concat() } else { word.to_vec() }
}

/// A value that proves its key and its version.
fn value(n: u64, version: u64) -> Vec<u8> {
    let rest = vec![version as u8; (version % 7) as usize * 30];
    [&n.to_le_bytes()[..], &version.to_le_bytes(), &rest].concat()
}

/// The version that a value says; panics for a value that nobody wrote.
fn version(n: u64, found: &[u8]) -> u64 {
    let version = u64::from_le_bytes(found[8..16].try_into().unwrap());
    assert_eq!(found, value(n, version), "torn, or another key's");
    version
}

#[test]
#[ignore = "started by other tests: a host, until its input ends"]
fn child_host() {
    let (Some(address), Ok(preset)) = (env::var_os(ADDRESS), env::var(PRESET)) else { return };
    let Ok(tcp) = env::var(TCP) else { return };
    let preset = PRESETS.iter().find(|(name, _)| *name == preset).unwrap().1;
    let host = Host::listen(PathBuf::from(address)).listen_tcp(tcp.parse().unwrap());
    let host = host.share("k", options(preset)).start().unwrap();
    println!("\nhost is there");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    drop(host);
}

#[test]
#[ignore = "started by other tests: a reader, until its input ends"]
fn child_reader() {
    let Some(address) = env::var_os(ADDRESS) else { return };
    let keyspace = open(Path::new(&address));
    let mut seen = vec![0; KEYS as usize];
    let mut out = Vec::new();
    println!("\nreader is there");
    let ended = thread::spawn(|| std::io::stdin().read_line(&mut String::new()));
    while !ended.is_finished() {
        for n in 0..KEYS {
            out.clear();
            assert!(keyspace.get_into(key(n), &mut out).unwrap(), "lost");
            let found = version(n, &out);
            assert!(found >= seen[n as usize], "an older value than before");
            seen[n as usize] = found;
        }
        let pairs: Vec<_> = keyspace.iter().collect::<Result<_, _>>().unwrap();
        assert!(pairs.is_sorted());
        let stays = |key: &[u8]| !key.starts_with(b"comes and goes");
        assert_eq!(pairs.iter().filter(|(key, _)| stays(key)).count() as u64, KEYS);
    }
    println!("\nreader has ended");
}

/// Readers see all that is acknowledged, and one that is killed holds nothing up for good.
#[test]
fn readers_of_other_processes_beside_a_writer() {
    for (name, preset) in PRESETS {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::listen(socket(dir.path())).listen_tcp(([127, 0, 0, 1], 0).into());
        let host = host.share("k", options(preset)).start().unwrap();
        let apart = PathBuf::from(format!("tcp:{}", host.tcp_addresses()[0]));
        let keyspace = open(host.path());
        (0..KEYS).for_each(|n| keyspace.insert(key(n), value(n, 0)).unwrap());
        let ways = [&apart, host.path(), &apart, host.path()];
        let mut readers = ways.map(|way| start("child_reader", way, name));
        readers.iter_mut().for_each(|reader| wait_for(reader, "reader is there"));
        for version in 1..=10 {
            for n in 0..KEYS {
                keyspace.insert(key(n), value(n, version)).unwrap();
                let beside = [&b"comes and goes"[..], &key(n * version)].concat();
                match n % 3 {
                    0 => keyspace.remove(beside).unwrap(),
                    _ => keyspace.insert(beside, "beside").unwrap(),
                }
            }
        }
        let (killed, live) = readers.split_at_mut(2);
        for killed in killed {
            killed.kill().unwrap();
            killed.wait().unwrap();
        }
        wait_until("the end of two sessions", || host.sessions() == 3);
        for lives in live {
            lives.stdin.take().unwrap().write_all(b"\n").unwrap();
            wait_for(lives, "reader has ended");
            assert!(lives.wait().unwrap().success());
        }
        drop(keyspace);
        // No client is left that could read what was replaced.
        wait_until("the memory", || host.stats("k").unwrap().waiting_bytes == 0);
    }
}

/// A client goes on with the host that takes the place of one that was killed: its first call may
/// be of any kind.
#[test]
fn a_host_that_is_killed_is_not_read_and_its_successor_is() {
    type Act = fn(&Keyspace) -> rhumb_remote::Result<()>;
    let firsts: [Act; 3] = [
        |keyspace| keyspace.get("a").map(|value| assert_eq!(value, None)),
        |keyspace| keyspace.first().map(|pair| assert_eq!(pair, None)),
        |keyspace| keyspace.insert("b", "3"),
    ];
    for (name, _) in PRESETS {
        for (round, first) in firsts.into_iter().enumerate() {
            let (dir, address) = (tempfile::tempdir().unwrap(), free_address());
            let mut host = start_host(dir.path(), address, name);
            let ways = [socket(dir.path()), format!("tcp:{address}").into()];
            let keyspace = open(&ways[(round + usize::from(name == "xstore")) % 2]);
            for n in 0..300 {
                keyspace.insert(key(n), value(n, 0)).unwrap();
            }
            keyspace.insert("a", "1").unwrap();
            assert_eq!(keyspace.get("a").unwrap().unwrap(), b"1");
            host.kill().unwrap();
            host.wait().unwrap();
            // It waits until the lease of the one before has ended, and is empty.
            let mut next = start_host(dir.path(), address, name);
            if let Err(error) = first(&keyspace) {
                // A write may have been made, and is not made again.
                assert!(matches!(error, rhumb_remote::Error::Closed), "{error}");
            }
            assert_eq!(keyspace.get("a").unwrap(), None);
            keyspace.insert("a", "2").unwrap();
            assert_eq!(keyspace.get("a").unwrap().unwrap(), b"2");
            assert!(keyspace.iter().count() <= 2);
            drop(next.stdin.take());
            assert!(next.wait().unwrap().success());
        }
    }
}
