//! Hosts that are killed or stopped between any two steps of a change: what clients read stays
//! right, and every call of theirs ends. `RHUMB_DEATHS=n` says how many hosts die, half of them for
//! a while.
//!
//! Every host is a process of its own, which counts the moments at which it latches a leaf, changes
//! it, lets go of it, and changes the directory, and sends itself a signal at one of them.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use rhumb_testkit::random::Random;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::{Client, Error, Host, Keyspace, Preset, ShareOptions, points};

/// Hosts of each preset that die unless the environment says otherwise.
const DEATHS: u64 = 6;
/// How keyspaces may be made.
const PRESETS: [Preset; 3] = [Preset::Rhumb, Preset::XStore, Preset::FineStore];
/// Keys that every batch sets, to one version.
const GROUP: u64 = 3;
/// Moments among which that of a death is drawn: those of a few batches, splits among them.
const MOMENTS: u64 = 400;
/// One stop in this many is longer than a call waits.
const LONG_STOPS: u64 = 100;
/// A little longer than a call waits.
const LONG_STOP: Duration = Duration::from_millis(10_500);

/// Say to a child where it listens, and how its keyspace is made.
const SOCKET: &str = "RHUMB_DEATHS_SOCKET";
const PRESET: &str = "RHUMB_DEATHS_PRESET";

#[test]
#[ignore = "started by another test: a host, until its input ends"]
fn child_host() {
    let Some(socket) = env::var_os(SOCKET) else { return };
    let preset = PRESETS[env::var(PRESET).unwrap().parse::<usize>().unwrap()];
    let options = ShareOptions::default().capacity_bytes(64 << 20).entry_bytes(40).preset(preset);
    let host = Host::listen(socket).share("k", options).start().unwrap();
    println!("\nready");
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (signal, number) = line.split_once(' ').unwrap();
        let signal = if signal == "kill" { Signal::KILL } else { Signal::STOP };
        points::signal_at(number.parse().unwrap(), signal);
        println!("\nready");
    }
    drop(host);
}

/// A host in a process of its own.
struct Process {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
}

impl Process {
    fn start(socket: &Path, preset: usize) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        let name = "host::tests::deaths::child_host";
        command.args([name, "--exact", "--ignored", "--nocapture"]);
        command.env(SOCKET, socket).env(PRESET, preset.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut process = Self { child, out };
        process.wait_until_ready();
        process
    }

    fn wait_until_ready(&mut self) {
        let mut line = String::new();
        while line != "ready\n" {
            line.clear();
            assert!(self.out.read_line(&mut line).unwrap() > 0, "the host has ended");
        }
    }

    /// Has it end at a moment from now on.
    fn end_at(&mut self, how: &str, moment: u64) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{how} {moment}").unwrap();
        self.wait_until_ready();
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn wait_until_stopped(&self) {
        let (_, status) = waitpid(Some(self.pid()), WaitOptions::UNTRACED).unwrap().unwrap();
        assert!(status.stopped(), "{status:?}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may be stopped, or dead.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn key(n: u64) -> [u8; 8] {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// A value that says which version of which key it is, and whether it is whole.
fn value(n: u64, version: u64) -> Vec<u8> {
    [n, version].map(u64::to_le_bytes).concat().repeat(1 + (version % 6) as usize)
}

fn version(n: u64, found: &[u8]) -> u64 {
    let version = u64::from_le_bytes(found[8..16].try_into().unwrap());
    assert_eq!(found, value(n, version), "torn, or another key's");
    version
}

/// What clients know of one another.
#[derive(Default)]
struct Known {
    /// The last version that a batch was begun with.
    begun: AtomicU64,
    /// The last one that the present host has acknowledged; 0 if there is none.
    acknowledged: AtomicU64,
    /// Number of hosts that have been killed.
    killed: AtomicU64,
    reads: AtomicU64,
    errors: AtomicU64,
    is_over: AtomicBool,
}

impl Known {
    /// Checks what a read of the group has found, where `least` was acknowledged before.
    fn check(&self, found: &[Option<Vec<u8>>], least: u64) {
        let versions: Vec<u64> = (0..)
            .zip(found)
            .map(|(n, found)| found.as_ref().map_or(0, |found| version(n, found)))
            .collect();
        let begun = self.begun.load(Ordering::SeqCst);
        let is_right = versions.iter().all(|version| (least..=begun).contains(version));
        assert!(is_right, "{versions:?}, where {least} was acknowledged and {begun} begun");
        self.reads.fetch_add(1, Ordering::SeqCst);
    }

    /// Takes note of an error that a dead or stopped host may bring.
    fn note(&self, error: &Error) {
        let is_known = matches!(error, Error::Closed | Error::TimedOut | Error::Io { .. });
        assert!(is_known, "{error}");
        self.errors.fetch_add(1, Ordering::SeqCst);
    }
}

/// Reads one key, or all of the group at one moment, until it is over.
fn read(keyspace: &Keyspace, known: &Known) {
    // What it finds wrong ends the test.
    let _over = Over(&known.is_over);
    for round in 0u64.. {
        if known.is_over.load(Ordering::SeqCst) {
            return;
        }
        let killed = known.killed.load(Ordering::SeqCst);
        let least = known.acknowledged.load(Ordering::SeqCst);
        let keys: Vec<_> = (0..GROUP).map(key).collect();
        let found = match round % 3 {
            0 => keyspace.multi_get_atomic(&keys),
            1 => keyspace.multi_get(&keys),
            _ => keys.iter().map(|key| keyspace.get(key)).collect(),
        };
        match found {
            Ok(found) => {
                let is_half = |pair: &[Option<Vec<u8>>]| {
                    let words = |found: &Option<Vec<u8>>| found.as_ref().map(|f| f[8..16].to_vec());
                    words(&pair[0]) != words(&pair[1])
                };
                assert!(round % 3 > 0 || !found.windows(2).any(is_half), "half a batch: {found:?}");
                // The next host has nothing of what the one before acknowledged.
                let is_same = known.killed.load(Ordering::SeqCst) == killed;
                known.check(&found, if is_same { least } else { 0 });
            }
            Err(error) => known.note(&error),
        }
    }
}

/// Writes batches until a call fails or `is_enough`.
fn write(client: &Client, known: &Known, is_enough: &AtomicBool) {
    let Ok(keyspace) = client.keyspace("k") else { return };
    while !is_enough.load(Ordering::SeqCst) {
        let version = known.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let mut batch = client.batch();
        (0..GROUP).for_each(|n| batch.insert(&keyspace, key(n), value(n, version)));
        // Others come, so that leaves split, and go, so that runs are built anew.
        for n in version * 20..version * 20 + 20 {
            batch.insert(&keyspace, key(GROUP + n), value(n, version));
            batch.remove(&keyspace, key((GROUP + n).saturating_sub(2_000).max(GROUP)));
        }
        match batch.commit() {
            Ok(()) => known.acknowledged.store(version, Ordering::SeqCst),
            Err(error) => return known.note(&error),
        }
    }
}

/// Where hosts of a preset are, one after the other, and what clients know of them.
struct Place<'a> {
    socket: PathBuf,
    preset: usize,
    known: &'a Known,
}

impl Place<'_> {
    /// The host dies at a moment, or while nothing is written, and another takes its place.
    fn kill(&self, host: &mut Process, moment: Option<u64>) {
        let client = Client::connect(&self.socket).unwrap();
        match moment {
            Some(moment) => {
                host.end_at("kill", moment);
                write(&client, self.known, &AtomicBool::new(false));
            }
            // No leaf is latched, so that clients read all of it until its lease is over.
            None => {
                self.go_on(&client);
                host.child.kill().unwrap();
            }
        }
        assert!(!host.child.wait().unwrap().success());
        self.known.acknowledged.store(0, Ordering::SeqCst);
        self.known.killed.fetch_add(1, Ordering::SeqCst);
        *host = Process::start(&self.socket, self.preset);
        self.go_on(&Client::connect(&self.socket).unwrap());
    }

    /// What is written to the present host is read by all.
    fn go_on(&self, client: &Client) {
        let (known, begun) = (self.known, self.known.begun.load(Ordering::SeqCst));
        let enough = AtomicBool::new(false);
        thread::scope(|scope| {
            let writer = scope.spawn(|| write(client, known, &enough));
            let reads = known.reads.load(Ordering::SeqCst);
            while !writer.is_finished()
                && !known.is_over.load(Ordering::SeqCst)
                && (known.acknowledged.load(Ordering::SeqCst) <= begun
                    || known.reads.load(Ordering::SeqCst) < reads + 10)
            {
                thread::sleep(Duration::from_millis(1));
            }
            enough.store(true, Ordering::SeqCst);
        });
        assert!(known.acknowledged.load(Ordering::SeqCst) > begun, "the host does not go on");
    }

    /// The host is stopped at a moment, and goes on.
    fn stop(&self, host: &mut Process, moment: u64, stops: Duration) {
        let client = Client::connect(&self.socket).unwrap();
        host.end_at("stop", moment);
        let enough = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| write(&client, self.known, &enough));
            host.wait_until_stopped();
            thread::sleep(stops);
            kill_process(host.pid(), Signal::CONT).unwrap();
            enough.store(true, Ordering::SeqCst);
        });
        // A batch that was given up is made late, and is not to come after those that follow.
        let (keyspace, begun) = (client.keyspace("k").unwrap(), &self.known.begun);
        while keyspace.get(key(0)).unwrap() != Some(value(0, begun.load(Ordering::SeqCst))) {
            thread::sleep(Duration::from_millis(1));
        }
        self.go_on(&client);
    }
}

#[test]
fn hosts_die_between_any_two_steps() {
    let deaths = env::var("RHUMB_DEATHS").ok().map(|deaths| deaths.parse::<u64>().unwrap());
    let deaths = deaths.unwrap_or(DEATHS);
    for (preset, name) in PRESETS.iter().enumerate() {
        let (dir, known) = (tempfile::tempdir().unwrap(), Known::default());
        let place = Place { socket: dir.path().join("socket"), preset, known: &known };
        let mut host = Process::start(&place.socket, preset);
        thread::scope(|scope| {
            let over = Over(&known.is_over);
            for _ in 0..2 {
                let keyspace = Client::connect(&place.socket).unwrap().keyspace("k").unwrap();
                let known = &known;
                scope.spawn(move || read(&keyspace, known));
            }
            let mut random = Random::new(7);
            for death in 0..deaths {
                let moment = 1 + random.below(MOMENTS);
                // A host that dies costs a lease; the short form has fewer of those.
                let is_short = deaths <= DEATHS;
                let kills = if is_short { death % DEATHS == 1 } else { death % 2 == 0 };
                let rests = if is_short { death == 4 && preset == 0 } else { death % 8 == 1 };
                if kills || rests {
                    place.kill(&mut host, (!rests).then_some(moment));
                } else {
                    let is_long = death % LONG_STOPS == LONG_STOPS - 1;
                    let stops = if is_long { LONG_STOP } else { Duration::from_millis(20) };
                    place.stop(&mut host, moment, stops);
                }
            }
            drop(over);
        });
        let (reads, errors) = (known.reads.into_inner(), known.errors.into_inner());
        println!("{name:?}: {deaths} deaths, {reads} reads of a group, {errors} errors");
        assert!(reads > deaths, "few reads: {reads}");
    }
}

/// Ends the readers, also after a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
