//! Replies that clients rely on and that are easily gotten wrong: what is watched, cursors,
//! numbers, what is told of settings and commands, and what an emptying costs.

mod common;

use std::collections::HashSet;

use common::{Client, Value, config, encode, start, wait_until};
use rhumb_server::Running;

fn figure(client: &mut Client, section: &str, name: &str) -> u64 {
    let text = client.run(&format!("INFO {section}")).text();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
    line.unwrap_or_else(|| panic!("INFO says nothing of {name}")).parse().unwrap()
}

/// Writes keys that all end at the same moment; returns the last one to be reclaimed once it has
/// ended.
fn end_together(client: &mut Client, keys: usize) -> String {
    let Value::Array(now) = client.run("TIME") else { panic!("no time") };
    let at = now[0].text().parse::<u64>().unwrap() * 1000 + 300 + keys as u64 / 2;
    let name = |n: usize| format!("key{n:06}");
    let mut bytes = Vec::new();
    for n in 0..keys {
        bytes.extend(encode(&[
            b"SET",
            name(n).as_bytes(),
            b"v",
            b"PXAT",
            at.to_string().as_bytes(),
        ]));
    }
    client.send_raw(&bytes).unwrap();
    (0..keys).for_each(|_| assert_eq!(client.reply(), Some(Value::ok())));
    let last = name(keys - 1);
    wait_until(|| client.run(&format!("EXISTS {last}")) == Value::Int(0));
    last
}

#[test]
fn a_key_that_has_ended_is_watched_as_absent() {
    let (_dir, server, mut client) = start();
    let mut other = Client::connect(server.address());
    let runs = |client: &mut Client| {
        client.run("MULTI");
        client.run("PING");
        client.run("EXEC") != Value::NullArray
    };
    let before = figure(&mut other, "stats", "expired_keys");
    let last = end_together(&mut client, 2000);
    client.run(&format!("WATCH {last}"));
    // Its bytes are reclaimed while it is watched.
    wait_until(|| figure(&mut other, "stats", "expired_keys") == before + 2000);
    assert!(runs(&mut client), "reclaimed");
    for touch in ["FLUSHDB", "FLUSHALL", "SWAPDB 0 1", "GETDEL {}", "DEL {}", "EXPIRE {} 10"] {
        let last = end_together(&mut client, 300);
        client.run(&format!("WATCH {last} never"));
        other.run(&touch.replace("{}", &last));
        assert!(runs(&mut client), "{touch}");
    }
    // What is a change stays one.
    for touch in ["SET {} v", "APPEND {} v", "SETNX {} v"] {
        let last = end_together(&mut client, 10);
        client.run(&format!("WATCH {last}"));
        other.run(&touch.replace("{}", &last));
        assert!(!runs(&mut client), "{touch}");
    }
    for touch in ["FLUSHDB", "FLUSHALL", "SWAPDB 0 1", "SWAPDB 1 0", "DEL live"] {
        client.run("FLUSHALL");
        client.run("SET live 1");
        client.run("WATCH live");
        other.run(touch);
        assert!(!runs(&mut client), "{touch}");
    }
    client.run("SET short 1 PX 50");
    client.run("WATCH short");
    wait_until(|| other.run("EXISTS short") == Value::Int(0));
    assert!(!runs(&mut client), "it was there and has ended");
}

fn fill(client: &mut Client, n: usize) -> HashSet<Vec<u8>> {
    let mut bytes = Vec::new();
    for i in 0..n {
        let name = format!("a:common:front:{i:05}");
        bytes.extend(encode(&[b"SET", name.as_bytes(), b"v"]));
        bytes.extend(encode(&[b"HSET", b"~hash", name.as_bytes(), b"v"]));
        bytes.extend(encode(&[b"SADD", b"~set", name.as_bytes()]));
        bytes.extend(encode(&[b"ZADD", b"~zset", b"1", name.as_bytes()]));
    }
    client.send_raw(&bytes).unwrap();
    (0..4 * n).for_each(|_| drop(client.reply().unwrap()));
    (0..n).map(|i| format!("a:common:front:{i:05}").into_bytes()).collect()
}

#[test]
fn cursors_outlive_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Some(Running::start(config(&dir)).unwrap());
    let mut client = Client::connect(server.as_ref().unwrap().address());
    let all = fill(&mut client, 1000);
    let commands = [
        "SCAN {} COUNT 190",
        "HSCAN ~hash {} COUNT 190",
        "SSCAN ~set {} COUNT 190",
        "ZSCAN ~zset {} COUNT 190",
    ];
    let mut cursors = vec!["0".to_owned(); commands.len()];
    let mut met = vec![HashSet::new(); commands.len()];
    for pages in 0.. {
        assert!(pages < 100, "the scans do not end");
        for ((command, cursor), met) in commands.iter().zip(&mut cursors).zip(&mut met) {
            if pages > 0 && cursor == "0" {
                continue;
            }
            let Value::Array(page) = client.run(&command.replace("{}", cursor)) else {
                panic!("{command}: an error after a start")
            };
            let Value::Array(items) = &page[1] else { panic!("no page") };
            met.extend(items.iter().map(|item| item.text().into_bytes()));
            *cursor = page[0].text();
        }
        if cursors.iter().all(|cursor| cursor == "0") {
            break;
        }
        if pages < 3 {
            server.take().unwrap().stop().unwrap();
            let started = Running::start(config(&dir)).unwrap();
            client = Client::connect(started.address());
            server = Some(started);
        }
    }
    for (command, met) in commands.iter().zip(met) {
        assert!(all.is_subset(&met), "{command} has met {} of {}", met.len(), all.len());
    }
    // A cursor that nobody gave out is no error either.
    for cursor in ["1", "12345678901234567890", "18446744073709551615", "-1", "+7"] {
        for command in commands {
            let reply = client.run(&command.replace("{}", cursor));
            assert!(matches!(reply, Value::Array(_)), "{command}, {cursor}: {reply:?}");
        }
    }
    assert_eq!(client.run("SCAN x"), Value::Error("ERR invalid cursor".into()));
}

#[test]
fn emptying_little_waits_for_no_disk() {
    let (_dir, _server, mut client) = start();
    let engine = |client: &mut Client, name: &str| figure(client, "engine", name);
    // The server itself syncs each second what was written: what was not written it does not.
    wait_until(|| {
        let before = engine(&mut client, "log_syncs");
        std::thread::sleep(std::time::Duration::from_millis(1200));
        before == engine(&mut client, "log_syncs")
    });
    let (syncs, written) =
        (engine(&mut client, "log_syncs"), engine(&mut client, "written_entries"));
    for _ in 0..50 {
        assert_eq!(client.run("FLUSHDB"), Value::ok());
        assert_eq!(client.run("FLUSHALL ASYNC"), Value::ok());
    }
    assert_eq!(engine(&mut client, "log_syncs"), syncs, "syncs of an empty database");
    assert_eq!(engine(&mut client, "written_entries"), written, "writes to an empty database");
    // A few keys cost a sync of the second, and none of their own.
    for round in 0..20 {
        client.run("MSET a 1 b 2");
        client.run("SADD s x y z");
        client.run("SET c 3 EX 1000");
        assert_eq!(client.run(if round % 2 == 0 { "FLUSHDB" } else { "FLUSHALL" }), Value::ok());
        assert_eq!(client.run("DBSIZE"), Value::Int(0));
        assert_eq!(client.run("EXISTS a b s c"), Value::Int(0));
        assert_eq!(client.run("SMEMBERS s"), Value::Array(vec![]));
    }
    // However slow the machine is, seconds are what it syncs by.
    let more = engine(&mut client, "log_syncs") - syncs;
    assert!(more < 20, "{more} syncs for 20 small emptyings");
    // A large one is taken away whole.
    let pairs: Vec<String> = (0..3000).map(|n| format!("key{n} v")).collect();
    client.run(&format!("MSET {}", pairs.join(" ")));
    client.run("FLUSHDB");
    assert_eq!(client.run("DBSIZE"), Value::Int(0));
    assert_eq!(
        client.run("SCAN 0").clone(),
        Value::Array(vec![Value::bulk("0"), Value::Array(vec![])])
    );
}

#[test]
fn what_was_emptied_stays_empty_after_a_start() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(config(&dir)).unwrap();
    let mut client = Client::connect(server.address());
    client.run("MSET a 1 b 2");
    client.run("SADD s x y z");
    client.run("FLUSHALL");
    client.run("SET kept 1");
    drop(client);
    server.stop().unwrap();
    let server = Running::start(config(&dir)).unwrap();
    let mut client = Client::connect(server.address());
    assert_eq!(client.run("KEYS *"), Value::bulks(&["kept"]));
    assert_eq!(client.run("SMEMBERS s"), Value::Array(vec![]));
}
