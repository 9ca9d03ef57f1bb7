//! Clients that are killed or stopped at any moment: their host and other clients go on, and what
//! they wrote is there whole or not at all. `RHUMB_DEATHS=n` says how many clients end.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::Child,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use rhumb_remote::{Client, Keyspace};
use rhumb_testkit::random::Random;
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    PRESETS, address_of_child, child,
    history::from_env,
    values::{self, GROUPS, MEMBERS, Seen, member},
    volatile, ways,
};

/// Clients of each preset that end unless the environment says otherwise.
const DEATHS: u64 = 10;
/// A client does not live longer than this, in microseconds: some hundred calls.
const LIFE_MICROS: u64 = 30_000;
/// A stop of this many is for the rest of the test.
const STOPPED_FOR_EVER: u64 = 5;

/// Reads and writes all it can, until it is killed.
fn live(client: &Client, seed: u64) {
    let keyspace = client.keyspace("k").unwrap();
    let (mut random, mut seen) = (Random::new(seed), Seen::new());
    // No other client writes these.
    for version in seed << 32.. {
        let group = random.below(GROUPS);
        let keys: Vec<_> = (0..MEMBERS).map(|at| values::key(member(group, at))).collect();
        match random.below(4) {
            0 => {
                let values = keyspace.multi_get_atomic(&keys).unwrap();
                read_group(&mut seen, group, &values);
            }
            1 => drop(keyspace.iter().take(500).map(Result::unwrap).count()),
            2 => drop(keyspace.multi_get(&keys).unwrap()),
            _ => write_group(client, &keyspace, group, version),
        }
        assert!(seen.counts.are_right(), "{}", seen.counts);
    }
}

fn write_group(client: &Client, keyspace: &Keyspace, group: u64, version: u64) {
    let mut batch = client.batch();
    for n in (0..MEMBERS).map(|at| member(group, at)) {
        batch.insert(keyspace, values::key(n), values::value(n, version));
    }
    batch.commit().unwrap();
}

fn read_group(seen: &mut Seen, group: u64, found: &[Option<Vec<u8>>]) {
    let numbers = (0..MEMBERS).map(|at| member(group, at));
    let versions: Vec<u64> =
        numbers.zip(found).map(|(n, found)| seen.note(n, found.as_deref())).collect();
    seen.note_group(&versions);
    // A client that was stopped goes on with versions that are older than those of others.
    seen.counts.back = 0;
}

#[test]
#[ignore = "started by another test: a client, until it is killed"]
fn child_client() {
    let Some(address) = address_of_child() else { return };
    let client = Client::connect(address).unwrap();
    println!("\nready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    live(&client, line.trim().parse().unwrap());
}

/// Reads all groups until it is over, and writes some: a client that is not disturbed.
fn go_on(client: &Client, is_over: &AtomicBool) -> u64 {
    let keyspace = client.keyspace("k").unwrap();
    let (mut seen, mut group) = (Seen::new(), 0);
    while !is_over.load(Ordering::Relaxed) {
        group = (group + 1) % GROUPS;
        let keys: Vec<_> = (0..MEMBERS).map(|at| values::key(member(group, at))).collect();
        read_group(&mut seen, group, &keyspace.multi_get_atomic(&keys).unwrap());
        assert!(seen.counts.are_right(), "{}", seen.counts);
    }
    seen.counts.atomic
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// A client of a host, which begins to read and write.
fn start(way: &Path, seed: u64) -> Child {
    let mut child = child("deaths::child_client", way).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "ready"), "a client has not come");
    writeln!(child.stdin.as_mut().unwrap(), "{seed}").unwrap();
    child
}

#[test]
fn clients_end_at_any_moment() {
    let deaths = from_env("RHUMB_DEATHS").unwrap_or(DEATHS);
    for preset in PRESETS {
        let dir = tempfile::tempdir().unwrap();
        let host = volatile(dir.path(), preset).start().unwrap();
        let (ways, is_over) = (ways(&host), AtomicBool::new(false));
        let client = Client::connect(host.path()).unwrap();
        let keyspace = client.keyspace("k").unwrap();
        (0..GROUPS).for_each(|group| write_group(&client, &keyspace, group, 1));
        let (mut random, mut stopped) = (Random::new(3), Vec::new());
        let read = thread::scope(|scope| {
            let other = scope.spawn(|| go_on(&client, &is_over));
            let _over = Over(&is_over);
            for death in 0..deaths {
                let way = &ways[random.below(ways.len() as u64) as usize];
                let mut child = start(way, death + 1);
                thread::sleep(Duration::from_micros(random.below(LIFE_MICROS)));
                assert!(!other.is_finished(), "a client was disturbed");
                if death % 3 == 2 {
                    signal(&child, Signal::STOP);
                    if stopped.len() < STOPPED_FOR_EVER as usize {
                        stopped.push(child);
                        continue;
                    }
                    thread::sleep(Duration::from_micros(random.below(LIFE_MICROS)));
                    signal(&child, Signal::CONT);
                    thread::sleep(Duration::from_micros(random.below(LIFE_MICROS)));
                }
                assert!(child.try_wait().unwrap().is_none(), "a client has failed");
                child.kill().unwrap();
                child.wait().unwrap();
            }
            // Those that were stopped long ago go on where they were.
            stopped.iter().for_each(|child| signal(child, Signal::CONT));
            thread::sleep(Duration::from_millis(20));
            for child in &mut stopped {
                assert!(child.try_wait().unwrap().is_none(), "a client has failed");
                child.kill().unwrap();
                child.wait().unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
            other.join().unwrap()
        });
        while host.sessions() > 1 {
            thread::sleep(Duration::from_millis(1));
        }
        let (left, mut seen) = (Client::connect(host.path()).unwrap(), Seen::new());
        let left = left.keyspace("k").unwrap();
        for group in 0..GROUPS {
            let keys: Vec<_> = (0..MEMBERS).map(|at| values::key(member(group, at))).collect();
            read_group(&mut seen, group, &left.multi_get(&keys).unwrap());
        }
        assert!(seen.counts.are_right() && read > 0, "{}", seen.counts);
        println!("{preset:?}: {deaths} clients ended, {read} groups read beside them");
    }
}

/// Ends the client that is not disturbed, also after a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
