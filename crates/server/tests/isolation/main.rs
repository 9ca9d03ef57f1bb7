//! A long command holds up nobody: each command of the table is run in its worst form on large
//! collections, and the steps are counted that a worker makes while its other clients wait. The
//! times that those wait are measured by `cargo xtask isolation`.

#[path = "../common/mod.rs"]
mod common;

mod cases;
mod exempt;

use std::collections::BTreeSet;

use cases::CASES;
use common::{Client, Value, config, encode};
use exempt::EXEMPT;
use rhumb_server::{Config, Running};

/// Elements of the collections: enough for a command that goes through them at once to be told from
/// one that does not. `RHUMB_ISOLATION_ELEMENTS` sets another number.
const ELEMENTS: usize = 4000;

/// Steps that a worker makes for one command at most. It leaves a thousand elements or arguments to
/// another thread, and so each of the cases.
const STEPS_MAX: u64 = 3000;

fn elements() -> usize {
    let set = std::env::var("RHUMB_ISOLATION_ELEMENTS").ok();
    set.map_or(ELEMENTS, |text| text.parse().expect("a number of elements"))
}

/// Commands that are sent together.
const TOGETHER: usize = 1000;

fn is_error(value: &Value) -> bool {
    matches!(value, Value::Error(_))
}

/// Replies to a command beyond the first one: subscriptions have one for each channel.
fn replies(words: &[Vec<u8>], subscribed: &mut usize) -> usize {
    let name = String::from_utf8_lossy(&words[0]).to_ascii_lowercase();
    match name.strip_suffix("subscribe") {
        Some("" | "p" | "s") => {
            *subscribed = words.len() - 1;
            *subscribed
        }
        Some(_) => std::mem::take(subscribed),
        None => 1,
    }
}

/// Sends commands; none is answered with an error.
fn run(client: &mut Client, commands: &[Vec<Vec<u8>>], subscribed: &mut usize) {
    for part in commands.chunks(TOGETHER) {
        let bytes: Vec<u8> = part.iter().flat_map(|command| encode_owned(command)).collect();
        client.send_raw(&bytes).unwrap();
        for command in part {
            for _ in 0..replies(command, subscribed) {
                let reply = client.reply().unwrap();
                let name = command[0].escape_ascii();
                assert!(!is_error(&reply), "{name}: {reply:?}");
            }
        }
    }
}

fn encode_owned(words: &[Vec<u8>]) -> Vec<u8> {
    encode(&words.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

/// The names of all commands, as the server says them.
fn names(client: &mut Client) -> BTreeSet<String> {
    let Value::Array(names) = client.run("COMMAND LIST") else { panic!("no names") };
    // Parts of commands are in the cases of these.
    names.iter().map(Value::text).filter(|name| !name.contains('|')).collect()
}

#[test]
fn every_command_has_a_case_or_a_reason() {
    let (_dir, _server, mut client) = common::start();
    let cases = CASES.iter().map(|(name, _)| (*name).to_owned());
    let exempt = EXEMPT.iter().flat_map(|(_, names)| names.iter().map(|name| (*name).to_owned()));
    let known: Vec<String> = cases.chain(exempt).collect();
    let all: BTreeSet<String> = known.iter().cloned().collect();
    assert_eq!(all.len(), known.len(), "a command is named twice");
    assert_eq!(all, names(&mut client), "cases, or reasons, and the table differ");
}

#[test]
fn no_command_holds_a_worker() {
    let (dir, n) = (tempfile::tempdir().unwrap(), elements());
    let server = Running::start(Config { threads: 1, ..config(&dir) }).unwrap();
    let mut client = Client::connect(server.address());
    // Writes of several clients are committed together.
    let mut other = Client::connect(server.address());
    let mut subscribed = 0;
    let all: Vec<_> = cases::collections(n).collect();
    run(&mut client, &all, &mut subscribed);
    let mut found = Vec::new();
    for (name, lines) in CASES {
        for line in *lines {
            let (is_measured, commands) = cases::commands(line, n);
            other.run("PING");
            let _ = server.take_most_steps();
            run(&mut client, &commands, &mut subscribed);
            let steps = server.take_most_steps();
            println!("{name}: {steps} steps by {line}");
            if is_measured && steps > STEPS_MAX {
                found.push(format!("{name}: {steps} steps by {line}"));
            }
        }
    }
    let has_counted = cfg!(debug_assertions);
    client.run("SET k v");
    client.run("GET k");
    assert_eq!(server.take_most_steps() > 0, has_counted, "steps are counted");
    assert!(found.is_empty(), "commands hold a worker:\n{}", found.join("\n"));
}

#[test]
fn values_are_restored_beside_the_others() {
    let (dir, n) = (tempfile::tempdir().unwrap(), elements());
    let server = Running::start(Config { threads: 1, ..config(&dir) }).unwrap();
    let mut client = Client::connect(server.address());
    let all: Vec<_> = cases::collections(n).collect();
    run(&mut client, &all, &mut 0);
    for key in ["L", "S", "Z", "H", "X", "T"] {
        let Value::Bulk(payload) = client.run(&format!("DUMP {key}")) else { panic!("no dump") };
        let _ = server.take_most_steps();
        let reply = client.call_bytes(&[b"RESTORE", b"r", b"0", &payload, b"REPLACE"]);
        assert_eq!(reply, Value::ok(), "{key}");
        let steps = server.take_most_steps();
        assert!(steps <= STEPS_MAX, "{key}: {steps} steps");
    }
}

/// A client waits for a key that a long command has locked; others of its worker do not wait.
#[test]
fn a_wait_for_a_lock_holds_nobody() {
    let (dir, n) = (tempfile::tempdir().unwrap(), elements());
    let server = Running::start(Config { threads: 1, ..config(&dir) }).unwrap();
    let mut clients = [(); 5].map(|()| Client::connect(server.address()));
    let all: Vec<_> = cases::collections(n).collect();
    run(&mut clients[0], &all, &mut 0);
    let [long, writer, reader, joiner, other] = &mut clients;
    for _ in 0..5 {
        let words = |line: &str| encode(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
        long.send_raw(&words("ZUNIONSTORE Z2 2 Z Z2 WEIGHTS 1 0")).unwrap();
        writer.send_raw(&words("ZADD Z 0 m0")).unwrap();
        reader.send_raw(&words("ZSCORE Z2 m0")).unwrap();
        joiner.send_raw(&words("ZADD Z2 NX 0 m1")).unwrap();
        // As many as are answered meanwhile, all of them.
        for at in 0..100 {
            assert_eq!(other.run(&format!("GET k{at}")), Value::bulk(at.to_string()));
        }
        for client in [&mut *long, &mut *writer, &mut *reader, &mut *joiner] {
            assert!(!is_error(&client.reply().unwrap()));
        }
    }
}
