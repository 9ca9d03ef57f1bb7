//! What reads over TCP cost: `cargo run --release -p rhumb-remote --example tcp [KEYS]`.
//!
//! Starts a host as a process of its own and reads it over the loopback with each budget of a
//! cache, and by calls that have the host find the key in its store. Prints, for each way, the time
//! and the messages of a key, and what it costs the processors of both
//! sides.

use std::{
    env, fs,
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rhumb_remote::{CacheBudget, Client, Host, Keyspace, Result, ShareOptions};

/// Keys without an argument.
const KEYS: u64 = 200_000;
/// How long each way is measured.
const TIME: Duration = Duration::from_secs(2);
/// Keys of a read of several.
const MANY: usize = 64;
/// Threads that share a connection.
const THREADS: u64 = 8;

fn key(n: u64) -> [u8; 8] {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// A value that proves its key.
fn value(key: [u8; 8]) -> Vec<u8> {
    key.repeat(12)
}

/// Shares a keyspace until its input ends.
fn serve() -> Result<()> {
    let address = ([127, 0, 0, 1], 0).into();
    let dir = env::temp_dir().join(format!("rhumb-tcp-{}", std::process::id()));
    let host = Host::listen(&dir).listen_tcp(address).share("k", ShareOptions::default());
    let host = host.start()?;
    println!("{} {}", dir.display(), host.tcp_addresses()[0]);
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("the input ends");
    Ok(())
}

/// Nanoseconds that the threads of a process have run.
fn cpu_ns(process: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("a process of Linux");
    let stat = |task: fs::DirEntry| fs::read_to_string(task.path().join("schedstat")).ok();
    let ns = |stat: String| stat.split(' ').next().and_then(|ns| ns.parse::<u64>().ok());
    tasks.flatten().filter_map(stat).filter_map(ns).sum()
}

/// Nanoseconds that this thread has run.
fn cpu_ns_of_thread() -> u64 {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

/// Measures `act`, which is given how often it was called and returns how many keys it read.
fn measure(
    name: &str,
    host: u32,
    keyspaces: &[&Keyspace],
    act: impl Fn(&Keyspace, u64) -> u64 + Sync,
) {
    let keyspace = keyspaces[0];
    // The first reads fill a cache.
    let _ = (0..2_000).map(|n| act(keyspace, n)).sum::<u64>();
    let (before, cpu, began) = (keyspace.counts(), cpu_ns(host), Instant::now());
    let (keys, own) = thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(keyspaces)
            .map(|(thread, keyspace)| {
                let act = &act;
                scope.spawn(move || {
                    let (mut keys, mut n) = (0, thread << 32);
                    let cpu = cpu_ns_of_thread();
                    while began.elapsed() < TIME {
                        keys += act(keyspace, n);
                        n += 1;
                    }
                    (keys, cpu_ns_of_thread() - cpu)
                })
            })
            .collect();
        let ended = threads.into_iter().map(|thread| thread.join().expect("no panic"));
        ended.fold((0, 0), |(keys, cpu), thread| (keys + thread.0, cpu + thread.1))
    });
    let (wall, cpu) = (began.elapsed(), cpu_ns(host) - cpu);
    let after = keyspace.counts();
    let per_key = |count: u64| count as f64 / keys as f64;
    println!(
        "{name:32} {:>9.0} ns, client {:>7.0} ns, host {:>7.0} ns, {:.4} trips, \
         {:.4} calls, {:.1} B sent, {:.1} B received, cache {} B",
        per_key(wall.as_nanos() as u64),
        per_key(own),
        per_key(cpu),
        per_key(after.round_trips - before.round_trips),
        per_key(after.calls - before.calls),
        per_key(after.bytes_sent - before.bytes_sent),
        per_key(after.bytes_received - before.bytes_received),
        after.cache_bytes,
    );
}

fn main() -> Result<()> {
    let arg = env::args().nth(1);
    if arg.as_deref() == Some("host") {
        return serve();
    }
    let count: u64 = arg.map_or(KEYS, |count| count.parse().expect("a number of keys"));
    let mut host = Command::new(env::current_exe().expect("a path"))
        .arg("host")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a host");
    let mut line = String::new();
    let out = host.stdout.take().expect("an output");
    BufReader::new(out).read_line(&mut line).expect("where the host is");
    let measured = measure_all(line.trim(), host.id(), count);
    drop(host.stdin.take().map(|mut input| input.write_all(b"\n")));
    host.wait().expect("the host ends");
    measured
}

/// Measures all ways to read a host, which says at what path and address it listens.
fn measure_all(listens: &str, id: u32, count: u64) -> Result<()> {
    let (path, address) = listens.split_once(' ').expect("a path and an address");
    let local = Client::connect(path)?.keyspace("k")?;
    (0..count).try_for_each(|n| local.insert(key(n), value(key(n))))?;

    let open =
        |budget| Client::builder(format!("tcp:{address}")).cache(budget).connect()?.keyspace("k");
    let wanted = |n: u64| key(n.wrapping_mul(0xd134_2543_de82_ef95) % count);
    let get = |keyspace: &Keyspace, n: u64| {
        let key = wanted(n);
        assert_eq!(keyspace.get(key).expect("an answer"), Some(value(key)));
        1
    };
    let get_many = |keyspace: &Keyspace, n: u64| {
        let keys: Vec<_> = (0..MANY as u64).map(|i| wanted(n * MANY as u64 + i)).collect();
        let found = keyspace.multi_get(&keys).expect("an answer");
        assert!(keys.iter().zip(found).all(|(key, found)| found == Some(value(*key))));
        MANY as u64
    };
    let scan = |keyspace: &Keyspace, n: u64| keyspace.range(wanted(n)..).take(2_000).count() as u64;

    let full = open(CacheBudget::Full)?;
    let calls = full.by_calls();
    measure("get, whole cache", id, &[&full], get);
    measure("get, top", id, &[&open(CacheBudget::Top)?], get);
    measure("get, no cache", id, &[&open(CacheBudget::Bytes(0))?], get);
    measure("get, by calls", id, &[&calls], get);
    measure("multi_get of 64, whole cache", id, &[&full], get_many);
    measure("multi_get of 64, by calls", id, &[&calls], get_many);
    measure("8 threads get, whole cache", id, &[&full; THREADS as usize], get);
    measure("8 threads get, by calls", id, &[&calls; THREADS as usize], get);
    measure("scan of 2000, out of the leaves", id, &[&full], scan);
    measure("scan of 2000, of the store", id, &[&local.by_calls()], scan);
    Ok(())
}
