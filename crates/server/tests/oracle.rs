//! The same random commands to this server and to Redis, and the same replies from both.
//!
//! Needs a `redis-server` of version 7.0 on the machine; without one nothing is compared, and a
//! line says so. `RHUMB_ORACLE_COMMANDS` says how many commands (default 20,000), `RHUMB_SEED`
//! repeats a run. What differs on purpose is in docs/commands.md; the commands here keep away from
//! it, or the order of a reply that Redis gives in no order is taken out.

#[path = "oracle/bits_and_places.rs"]
mod bits_and_places;
#[path = "oracle/clients.rs"]
mod clients;
#[path = "oracle/collections.rs"]
mod collections;
mod common;
#[path = "oracle/dumps.rs"]
mod dumps;
#[path = "oracle/generate.rs"]
mod generate;
#[path = "oracle/replies.rs"]
mod replies;
#[path = "oracle/scripts.rs"]
mod scripts;
#[path = "oracle/shares.rs"]
mod shares;
#[path = "oracle/streams.rs"]
mod streams;

use std::{
    net::{SocketAddr, TcpListener},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use common::{Client, Value, encode};
use generate::Generator;
use replies::{Replies, shown, text, without_moments, without_order};

/// A Redis server that ends with the test.
struct Oracle {
    process: Child,
    address: SocketAddr,
    _dir: tempfile::TempDir,
}

impl Oracle {
    /// Starts a Redis server; none if there is none on the machine.
    fn start() -> Option<Self> {
        let version = Command::new("redis-server").arg("--version").output().ok()?;
        let version = String::from_utf8_lossy(&version.stdout).into_owned();
        if !version.contains("v=7.0.") {
            return None;
        }
        // The port is free now, and nothing else on the machine is after it.
        let address = TcpListener::bind(("127.0.0.1", 0)).ok()?.local_addr().ok()?;
        let dir = tempfile::tempdir().unwrap();
        let process = Command::new("redis-server")
            .args(["--port", &address.port().to_string(), "--save", "", "--appendonly", "no"])
            .args(["--bind", "127.0.0.1", "--dir"])
            .arg(dir.path())
            .stdout(Stdio::null())
            .spawn()
            .ok()?;
        let oracle = Self { process, address, _dir: dir };
        let until = Instant::now() + Duration::from_secs(20);
        while std::net::TcpStream::connect(address).is_err() {
            assert!(Instant::now() < until, "redis-server does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(oracle)
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// The keys of the databases that commands use, and how many a server says there are.
fn whole(client: &mut Client) -> Vec<(Vec<String>, i64)> {
    let mut all = Vec::new();
    for database in ["0", "1", "2"] {
        client.call(&["SELECT", database]);
        let Value::Int(size) = client.run("DBSIZE") else { panic!("no number of keys") };
        let Value::Array(mut keys) = client.run("KEYS *") else { panic!("no keys") };
        keys.sort();
        let keys: Vec<String> = keys.iter().map(Value::text).collect();
        all.push((keys, size));
    }
    all
}

/// Compares the replies to a run of commands, in one version of the protocol.
fn compare(oracle: &Oracle, seed: u64, commands: u64, resp3: bool) {
    let (_dir, server, mut ours) = common::start();
    // Writes are committed together only if there are several clients.
    let mut other = Client::connect(server.address());
    assert_eq!(other.run("PING"), Value::Simple("PONG".into()));
    let mut theirs = Client::connect(oracle.address);
    theirs.run("FLUSHALL");
    theirs.run("SCRIPT FLUSH");
    if resp3 {
        ours.run("HELLO 3");
        theirs.run("HELLO 3");
    }
    let mut generator = Generator::new(seed);
    let mut history: Vec<Vec<Vec<u8>>> = Vec::new();
    let mut sent = 0;
    let mut replies = Replies::default();
    let mut lookers = [server.address(), oracle.address].map(Client::connect);
    let look_each = number("RHUMB_ORACLE_LOOK").unwrap_or(500);
    let mut look_at = look_each;
    while sent < commands {
        if sent >= look_at {
            look_at += look_each;
            let all = history.iter().rev().take(60).rev().map(|c| text(c)).collect::<Vec<_>>();
            let [ours, theirs] = lookers.each_mut().map(whole);
            let is_right =
                ours == theirs && ours.iter().all(|(keys, size)| keys.len() as i64 == *size);
            assert!(is_right, "seed {seed}:\n{}\n{ours:?}\n{theirs:?}", all.join("\n"));
        }
        let batch = generator.batch();
        let bytes: Vec<u8> = batch
            .iter()
            .flat_map(|command| encode(&command.iter().map(Vec::as_slice).collect::<Vec<_>>()))
            .collect();
        ours.send_raw(&bytes).unwrap();
        theirs.send_raw(&bytes).unwrap();
        sent += batch.len() as u64;
        for command in batch {
            let pair =
                [(&mut ours, "this server"), (&mut theirs, "Redis")].map(|(client, whose)| {
                    client.reply().unwrap_or_else(|| panic!("{whose} hangs up: {}", text(&command)))
                });
            history.push(command.clone());
            let pair = replies.compared(&command, pair);
            if pair[0] != pair[1] {
                if command[0].eq_ignore_ascii_case(b"dbsize") {
                    for client in [&mut ours, &mut theirs] {
                        let keys = without_order(&[b"keys".to_vec()], client.run("KEYS *"));
                        println!("{keys:?}");
                    }
                }
                // From what is watched on, if something may be.
                let is_watch = |c: &Vec<Vec<u8>>| c[0].eq_ignore_ascii_case(b"watch");
                let watch = history.iter().rev().position(is_watch).unwrap_or(0);
                let len = (watch + 20).clamp(40, 400);
                let tail: Vec<String> =
                    history.iter().rev().take(len).rev().map(|c| text(c)).collect();
                panic!(
                    "seed {seed}, RESP{}: after {sent} commands\n{}\n  ours   {}\n  theirs {}",
                    if resp3 { 3 } else { 2 },
                    tail.join("\n"),
                    shown(&pair[0]),
                    shown(&pair[1])
                );
            }
        }
        if history.len() > 4000 {
            history.drain(..2000);
        }
    }
    server.stop().unwrap();
}

#[test]
fn encodings_are_those_of_redis() {
    let Some(oracle) = Oracle::start() else { return };
    let (_dir, _server, mut ours) = common::start();
    let mut theirs = Client::connect(oracle.address);
    let long = "x".repeat(65);
    let many = |command: &str, from: usize, to: usize, text: &dyn Fn(usize) -> String| {
        (from..to).fold(command.to_owned(), |line, n| line + " " + &text(n))
    };
    let number = |n: usize| n.to_string();
    let pair = |n: usize| format!("{n} {n}");
    let lines = [
        "SET s 12".to_owned(),
        "SET s -9223372036854775808".to_owned(),
        "SET s 9223372036854775808".to_owned(),
        "SET s 012".to_owned(),
        format!("SET s {}", "x".repeat(44)),
        format!("SET s {}", "x".repeat(45)),
        many("HSET h", 0, 512, &pair),
        "HSET h one more".to_owned(),
        format!("HSET h2 f {long}"),
        format!("HSET h3 {long} v"),
        format!("HSET h4 {} v", &long[1..]),
        many("ZADD z", 0, 128, &pair),
        "ZADD z 1 more".to_owned(),
        format!("ZADD z2 1 {long}"),
        format!("ZADD z3 1 {}", &long[1..]),
        many("SADD m", 0, 512, &number),
        "SADD m 512".to_owned(),
        "SADD m3 -1 5 99".to_owned(),
        // Sets of other members and lists have encodings of Redis 7.2.
    ];
    for line in lines {
        assert_eq!(ours.run(&line), theirs.run(&line), "{line}");
        let key = line.split(' ').nth(1).unwrap();
        for question in ["ENCODING", "IDLETIME", "FREQ", "NOSUCH"] {
            let question = format!("OBJECT {question} {key}");
            let mut replies = [ours.run(&question), theirs.run(&question)];
            if question.contains("IDLETIME") && matches!(replies[1], Value::Int(_)) {
                // Whole seconds, of which some may have passed there.
                replies[1] = Value::Int(0);
            }
            assert_eq!(replies[0], replies[1], "{line:.40}, {question}");
        }
    }
    for question in ["OBJECT ENCODING absent", "OBJECT ENCODING", "OBJECT", "OBJECT FREQ a b"] {
        assert_eq!(ours.run(question), theirs.run(question), "{question}");
    }
}

#[test]
fn texts_are_those_of_redis() {
    let Some(oracle) = Oracle::start() else { return };
    let (_dir, _server, mut ours) = common::start();
    let mut theirs = Client::connect(oracle.address);
    let lines = "CONFIG HELP x;CLIENT HELP x;OBJECT HELP x;COMMAND HELP x;CLIENT FOO;CONFIG FOO;OBJECT FOO k;\
        COMMAND FOO;CLIENT KILL TYPE foo;CLIENT LIST TYPE foo;CLIENT LIST TYPE master;CLIENT KILL TYPE slave;\
        CLIENT LIST TYPE;CLIENT KILL USER nosuch;CLIENT KILL SKIPME maybe;CLIENT KILL ID x;\
        CONFIG SET maxclients 0;CONFIG SET maxclients abc;CONFIG SET maxclients -1;\
        CONFIG SET maxclients 4294967296;CONFIG SET timeout -1;CONFIG SET timeout 2147483648;\
        CONFIG SET timeout 2147483647;CONFIG SET timeout 0;CONFIG SET timeout ;CONFIG SET appendfsync foo;\
        CONFIG SET databases 4;CONFIG SET nosuch 1;CONFIG SET timeout 1 timeout 2;\
        CONFIG SET timeout abc nosuch 3;CONFIG SET timeout 5 maxclients abc;CONFIG GET timeout;\
        CONFIG SET timeout 1 nosuch;CONFIG SET timeout;CONFIG SET;COMMAND LIST FILTERBY;COMMAND LIST FOO;\
        COMMAND LIST FILTERBY MODULE foo;COMMAND LIST FILTERBY PATTERN getd*;COMMAND LIST FILTERBY FOO bar;\
        COMMAND LIST FILTERBY PATTERN GETDE*;COMMAND LIST FILTERBY PATTERN x y;COMMAND LIST FOO BAR BAZ;\
        COMMAND LIST FILTERBY ACLCAT nosuch;COMMAND LIST FILTERBY PATTERN client|geti*;HSCAN no 0 COUNT;\
        HSCAN no 0 COUNT 0;SSCAN no 0 FOO BAR;ZSCAN no 5 MATCH;HSCAN no x;SCAN 0 COUNT;SCAN 0 COUNT 0;SCAN abc;\
        HINCRBYFLOAT h f inf;HINCRBYFLOAT h f nan;HINCRBYFLOAT h f 1e5000;HINCRBYFLOAT h f 1e-400;\
        HSET h g inf;HINCRBYFLOAT h g 1;INCRBYFLOAT f inf;INCRBYFLOAT f 1e-5000;INCRBYFLOAT f 2e-1;\
        INCRBYFLOAT f 1e-17;ZADD z 1e400 a;ZADD z 1e-400 a;ZADD z 1e-320 a;ZSCORE z a;ZINCRBY z 1e400 a;\
        ZRANGEBYSCORE z -1e400 1e400;ZRANGEBYSCORE z  5;ZRANGEBYSCORE z ( 5;ZCOUNT z nan 1;\
        ZREMRANGEBYSCORE z (1e-400 1e400";
    for line in lines.split(';') {
        assert_eq!(ours.run(line), theirs.run(line), "{line}");
    }
    // Their texts name parts that are not here.
    for command in ["CLIENT", "COMMAND", "CONFIG", "OBJECT"] {
        let help = format!("{command} HELP");
        let (Value::Array(ours), Value::Array(theirs)) = (ours.run(&help), theirs.run(&help))
        else {
            panic!("{help}: no texts")
        };
        let is_one_of_theirs = |line: &Value| theirs.contains(line);
        assert!(ours.iter().all(is_one_of_theirs) && ours[0] == theirs[0], "{help}: {ours:?}");
    }
}

#[test]
fn commands_are_those_of_redis() {
    let Some(oracle) = Oracle::start() else { return };
    let (_dir, _server, mut ours) = common::start();
    let mut theirs = Client::connect(oracle.address);
    let Value::Array(mut names) = ours.run("COMMAND LIST") else { panic!("no names") };
    names.retain(|name| !name.text().contains('|'));
    let mut different = Vec::new();
    for name in names {
        let ask = format!("COMMAND INFO {}", name.text());
        let (Value::Array(ours), Value::Array(theirs)) = (ours.run(&ask), theirs.run(&ask)) else {
            panic!("{ask}: no reply")
        };
        // Commands of our own are not there.
        let (Value::Array(ours), Value::Array(theirs)) = (&ours[0], &theirs[0]) else { continue };
        // Some have their keys in their parts, and are one command here; shard channels are none.
        let same = match name.text().as_str() {
            "memory" | "object" | "xgroup" | "xinfo" | "spublish" | "ssubscribe"
            | "sunsubscribe" => {
                vec![1, 6]
            }
            // It is a blocking one since 7.2.
            "wait" => vec![1, 3, 4, 5],
            // They take WITHSCORE since 7.2.
            "zrank" | "zrevrank" => vec![3, 4, 5, 6],
            _ => vec![1, 3, 4, 5, 6],
        };
        let is_for_scripts = |info: &[Value]| {
            let (Value::Array(flags) | Value::Set(flags)) = &info[2] else { panic!("no flags") };
            !flags.contains(&Value::Simple("noscript".into()))
        };
        // Those that wait are for scripts since 7.2, and some have parts that are not.
        let is_told_otherwise = ["blmove", "blpop", "brpop", "brpoplpush", "bzpopmax", "bzpopmin"]
            .into_iter()
            .chain(["acl", "client", "config", "function", "migrate", "script", "wait"])
            .any(|other| other == name.text());
        if !is_told_otherwise && is_for_scripts(ours) != is_for_scripts(theirs) {
            different.push(format!("{ask}: for scripts in Redis: {}", is_for_scripts(theirs)));
        }
        for at in same.into_iter().filter(|at| ours[*at] != theirs[*at]) {
            different.push(format!("{ask}: field {at}: {:?}, {:?}", ours[at], theirs[at]));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn sorted_numbers_are_those_of_redis() {
    // By themselves: after a number that was too large for a float Redis takes the next one that it
    // sorts for such a one, too.
    let Some(oracle) = Oracle::start() else { return };
    let (_dir, _server, mut ours) = common::start();
    let mut theirs = Client::connect(oracle.address);
    let seed = number("RHUMB_SEED").unwrap_or(1);
    let mut random = rhumb_testkit::random::Random::new(seed);
    let mut history = Vec::new();
    for _ in 0..number("RHUMB_ORACLE_COMMANDS").unwrap_or(20_000) / 10 {
        let command = collections::sort(&mut random);
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        history.push(words.join(" "));
        let (ours, theirs) = (ours.call(&words), theirs.call(&words));
        let tail = &history[history.len().saturating_sub(30)..];
        assert_eq!(ours, theirs, "seed {seed}:\n{}", tail.join("\n"));
    }
}

#[test]
fn replies_are_those_of_redis() {
    let Some(oracle) = Oracle::start() else {
        println!("skipped: there is no redis-server of version 7.0 on this machine");
        return;
    };
    let commands = number("RHUMB_ORACLE_COMMANDS").unwrap_or(20_000);
    let seed = number("RHUMB_SEED").unwrap_or(1);
    compare(&oracle, seed, commands / 2, false);
    compare(&oracle, seed + 1, commands / 2, true);
    println!("{commands} commands, the same replies");
}

#[test]
fn replies_to_stream_commands_are_those_of_redis() {
    let Some(oracle) = Oracle::start() else { return };
    let commands = number("RHUMB_ORACLE_COMMANDS").unwrap_or(20_000);
    let seed = number("RHUMB_SEED").unwrap_or(1);
    for resp3 in [false, true] {
        let (_dir, server, mut ours) = common::start();
        let mut other = Client::connect(server.address());
        assert_eq!(other.run("PING"), Value::Simple("PONG".into()));
        let mut theirs = Client::connect(oracle.address);
        theirs.run("FLUSHALL");
        for client in [&mut ours, &mut theirs] {
            client.run("RPUSH list a");
            if resp3 {
                client.run("HELLO 3");
            }
        }
        let mut generator = streams::Streams::new(seed + u64::from(resp3));
        let (mut sent, mut history) = (0, Vec::new());
        while sent < commands / 2 {
            for command in generator.commands() {
                let words: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
                let pair =
                    [ours.call_bytes(&words), theirs.call_bytes(&words)].map(without_moments);
                history.push(text(&command));
                sent += 1;
                let tail = &history[history.len().saturating_sub(60)..];
                let version = if resp3 { 3 } else { 2 };
                assert_eq!(pair[0], pair[1], "seed {seed}, RESP{version}:\n{}", tail.join("\n"));
            }
        }
        server.stop().unwrap();
    }
}
