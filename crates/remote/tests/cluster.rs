//! Three hosts in processes of their own that have a part of a keyspace each, and a reader in
//! another one: ranges go from process to process, and a host is killed and comes back. The same
//! for every preset, over sockets with mapped memory and over TCP.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

use std::{
    env,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use rhumb_remote::{
    Address, Client, Cluster, ClusterKeyspace, Error, Host, Preset, RoutingTable, Served,
    ShareOptions,
};

/// Says to a test that it is a child of another, and where its socket is or its table.
const PLACE: &str = "RHUMB_CLUSTER_PLACE";

/// Says to a host by which preset its keyspace is made.
const PRESET: &str = "RHUMB_CLUSTER_PRESET";

/// Says to a host that tables name it by its port, and not by its socket.
const IS_APART: &str = "RHUMB_CLUSTER_IS_APART";

/// Keys that are there all the while.
const KEYS: u64 = 300;

fn key(n: u64) -> Vec<u8> {
    format!("{n:03}").into_bytes()
}

/// A process that does what it is told, a line at a time, and answers with a line.
struct Process {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

/// How the hosts of a test share their keyspace and are reached.
#[derive(Clone, Copy, Debug)]
struct Kind {
    preset: Preset,
    is_apart: bool,
}

impl Process {
    fn start(test: &str, place: &Path, kind: Kind) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args([test, "--exact", "--ignored", "--nocapture"]).env(PLACE, place);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).env(PRESET, kind.preset.name());
        if kind.is_apart {
            command.env(IS_APART, "1");
        }
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut process = Self { child, lines };
        process.answer();
        process
    }

    fn answer(&mut self) -> String {
        let mut lines = self.lines.by_ref().map(Result::unwrap);
        lines.find_map(|line| line.strip_prefix("> ").map(str::to_owned)).expect("it has ended")
    }

    fn send(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    fn ask(&mut self, line: &str) -> String {
        self.send(line);
        self.answer()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Where this process' host or table is; nothing in the run of all tests.
fn place() -> Option<PathBuf> {
    env::var_os(PLACE).map(PathBuf::from)
}

/// The file that has the port of the host with this socket.
fn port_file(path: &Path) -> PathBuf {
    path.with_extension("port")
}

/// The address by which tables name the host with this socket.
fn address(path: &Path, is_apart: bool) -> Address {
    if !is_apart {
        return Address::Unix(path.to_owned());
    }
    let port = std::fs::read_to_string(port_file(path)).unwrap();
    Address::Tcp { host: "127.0.0.1".into(), port: port.parse().unwrap() }
}

fn own(path: &Path) -> Address {
    address(path, env::var_os(IS_APART).is_some())
}

/// Does a line of `host`: the file of a table, and what else goes with it.
fn act(host: &Host, path: &Path, line: &str) -> rhumb_remote::Result<u64> {
    let words: Vec<&str> = line.split(' ').collect();
    let bound = |word: &str| (word != "-").then(|| word.as_bytes().to_vec());
    match words[..] {
        ["serve", table] => {
            let table = RoutingTable::read(table)?;
            host.serve("k", Served::by(&table, &own(path))).map(|()| 0)
        }
        ["freeze", table, low, high] => {
            let served = Served::by(&RoutingTable::read(table)?, &own(path));
            host.serve("k", served.read_only(low, bound(high).as_deref())).map(|()| 0)
        }
        ["copy", from, low, high] => {
            let other = Client::connect(from)?.keyspace("k")?;
            host.copy_from("k", &other, low, bound(high).as_deref())
        }
        ["clean"] => host.remove_unserved("k"),
        _ => panic!("{line}"),
    }
}

#[test]
#[ignore = "started by other tests: a host, until its input ends"]
fn child_host() {
    let Some(path) = place() else { return };
    let preset = env::var(PRESET).unwrap().parse().unwrap();
    let options = ShareOptions::default().capacity_bytes(64 << 20).entry_bytes(40).preset(preset);
    let host = Host::listen(&path).share("k", options).serve("k", Served::nothing());
    // One that comes back has the port that it had.
    let port = std::fs::read_to_string(port_file(&path)).map_or(0, |port| port.parse().unwrap());
    let host = host.listen_tcp(([127, 0, 0, 1], port).into()).start().unwrap();
    std::fs::write(port_file(&path), host.tcp_addresses()[0].port().to_string()).unwrap();
    println!("\n> host is there");
    for line in std::io::stdin().lines() {
        println!("\n> {:?}", act(&host, &path, &line.unwrap()));
    }
}

/// Reads all keys in all ways; returns the number of reads.
fn read_all(keyspace: &ClusterKeyspace) -> u64 {
    let keys: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
    for key in &keys {
        assert_eq!(keyspace.get(key).unwrap().as_ref(), Some(key), "lost");
        assert_eq!(keyspace.get([key, &b"-"[..]].concat()).unwrap(), None);
    }
    let found = keyspace.multi_get(&keys).unwrap();
    assert!(found.iter().flatten().eq(&keys), "lost");
    assert!(keyspace.iter().map(|pair| pair.unwrap().0).eq(keys.iter().cloned()));
    assert!(keyspace.iter().rev().map(|pair| pair.unwrap().0).eq(keys.iter().rev().cloned()));
    2 * KEYS + 3
}

#[test]
#[ignore = "started by other tests: a reader, until its input ends"]
fn child_reader() {
    let Some(path) = place() else { return };
    let keyspace = Cluster::new(RoutingTable::read(path).unwrap()).keyspace("k");
    read_all(&keyspace);
    println!("\n> it reads");
    let (told, next) = std::sync::mpsc::channel();
    std::thread::spawn(move || std::io::stdin().lines().for_each(|line| drop(told.send(line))));
    let mut reads = 0;
    loop {
        match next.try_recv() {
            Ok(_) => println!("\n> {reads} {}", keyspace.table().epoch()),
            Err(std::sync::mpsc::TryRecvError::Disconnected) => return,
            Err(std::sync::mpsc::TryRecvError::Empty) => reads += read_all(&keyspace),
        }
    }
}

/// Writes a table's file; the name says its epoch.
fn write(dir: &Path, epoch: u64, owners: [(&str, Address); 3]) -> String {
    let table = RoutingTable::new(epoch, owners).unwrap();
    let file = dir.join(format!("{epoch}.table"));
    std::fs::write(&file, table.to_string()).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn a_reader_follows_ranges_from_process_to_process() {
    for preset in Preset::ALL {
        for is_apart in [false, true] {
            follows_ranges(Kind { preset, is_apart });
        }
    }
}

fn follows_ranges(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let paths = ["a", "b", "c"].map(|name| dir.path().join(name));
    let [a, b, c] = [&paths[0], &paths[1], &paths[2]].map(PathBuf::as_path);
    let mut hosts = [a, b, c].map(|path| Process::start("child_host", path, kind));
    let address = |path: &Path| address(path, kind.is_apart);
    let lows = ["", "100", "200"];
    let table = |epoch: u64, owners: [&Path; 3]| {
        write(dir.path(), epoch, [0, 1, 2].map(|range| (lows[range], address(owners[range]))))
    };
    let first = table(1, [a, b, c]);
    for host in &mut hosts {
        assert_eq!(host.ask(&format!("serve {first}")), "Ok(0)");
    }
    let keyspace = Cluster::new(RoutingTable::read(&first).unwrap()).keyspace("k");
    for n in 0..KEYS {
        keyspace.insert(key(n), key(n)).unwrap();
    }
    let mut reader = Process::start("child_reader", Path::new(&first), kind);

    // The middle range goes to `c` and then to `a`, as an operator moves it.
    let mut now = first.clone();
    for (epoch, from, to, owners) in [(2, 1, 2, [a, c, c]), (3, 2, 0, [a, a, c])] {
        let next = table(epoch, owners);
        assert_eq!(hosts[from].ask(&format!("freeze {now} 100 200")), "Ok(0)");
        let copied = hosts[to].ask(&format!("copy {} 100 200", address(&paths[from])));
        assert_eq!(copied, "Ok(100)");
        assert_eq!(hosts[from].ask(&format!("serve {next}")), "Ok(0)");
        assert_eq!(hosts[to].ask(&format!("serve {next}")), "Ok(0)");
        assert_eq!(hosts[3 - from - to].ask(&format!("serve {next}")), "Ok(0)");
        assert_eq!(hosts[from].ask("clean"), "Ok(100)");
        now = next;
    }
    // It reads on, and by the newest table once it has met a host that serves its keys no more.
    while reader.ask("").split(' ').next_back() != Some("3") {}
    let before: u64 = reader.ask("").split(' ').next().unwrap().parse().unwrap();
    while reader.ask("").split(' ').next().unwrap().parse::<u64>().unwrap() == before {}
    assert!(reader.child.try_wait().unwrap().is_none(), "it has failed");
    drop(reader);

    // A host that is killed concerns its own keys alone.
    hosts[2].child.kill().unwrap();
    hosts[2].child.wait().unwrap();
    let fresh = Cluster::new(RoutingTable::read(&now).unwrap()).keyspace("k");
    assert_eq!(fresh.get(key(150)).unwrap().unwrap(), key(150));
    let error = fresh.get(key(250)).unwrap_err();
    assert!(matches!(error, Error::Server { .. }), "{error}");
    let what = format!("{} (keys from \"200\" to the last)", address(c));
    assert!(error.to_string().contains(&what), "{error}");
    assert_eq!(fresh.range("000".."200").count(), 200);
    // It comes back, and is found again.
    hosts[2] = Process::start("child_host", c, kind);
    assert_eq!(hosts[2].ask(&format!("serve {now}")), "Ok(0)");
    assert_eq!(fresh.get(key(250)).unwrap(), None, "it was volatile");
    fresh.insert(key(250), key(250)).unwrap();
    assert_eq!(keyspace.get(key(250)).unwrap().unwrap(), key(250));
}
