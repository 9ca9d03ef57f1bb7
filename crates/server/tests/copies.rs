//! `SYNC` and `PSYNC`: programs that take a copy of all data get that of one moment, whole, and no
//! writes after it; other clients go on meanwhile.

mod common;
#[path = "common/oracle.rs"]
mod oracle;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
};

use common::{Client, Value};
use oracle::Oracle;
use rhumb_server::{ImportFrom, ImportOptions, ImportTo, Running, Store, import};

/// A connection that reads lines and bytes as they are.
struct Raw(BufReader<TcpStream>);

impl Raw {
    fn connect(address: SocketAddr) -> Self {
        Self(BufReader::new(Client::socket(address)))
    }

    fn send(&mut self, line: &str) {
        self.0.get_mut().write_all(format!("{line}\r\n").as_bytes()).unwrap();
    }

    /// The next line that is not empty, without its end.
    fn line(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the connection ends");
            let line = line.trim_end();
            if !line.is_empty() {
                return line.to_owned();
            }
        }
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }
}

/// A server with the keys of a dump.
fn load(dump: Vec<u8>) -> (tempfile::TempDir, Running, Client) {
    let dir = tempfile::tempdir().unwrap();
    let config = common::config(&dir);
    {
        let store = Store::open(&config.data, 32 << 20).unwrap();
        let from = ImportFrom::Dump(Box::new(&dump[..]));
        let all = import(from, ImportTo::Store(&store), ImportOptions::default(), &mut |_| true);
        assert!(all.unwrap().is_complete);
    }
    let server = Running::start(config).unwrap();
    let client = Client::connect(server.address());
    (dir, server, client)
}

#[test]
fn a_copy_is_of_one_moment_whatever_is_written_meanwhile() {
    let (_dir, server, mut client) = common::start();
    client.run("MSET a 0 b 0");
    // So that the two keys are not read together.
    for chunk in 0..20 {
        let pairs: Vec<String> = (0..200).map(|n| format!("a{chunk}-{n} {n:#>200}")).collect();
        client.run(&format!("MSET {}", pairs.join(" ")));
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = Client::connect(server.address());
            for n in 1.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                writer.run(&format!("MSET a {n} b {n}"));
            }
        });
        for form in ["SYNC", "PSYNC ? -1", "SYNC with a mark"] {
            let mut raw = Raw::connect(server.address());
            if form.ends_with("mark") {
                raw.send("REPLCONF capa eof capa psync2");
                assert_eq!(raw.line(), "+OK");
            }
            raw.send(form.trim_end_matches(" with a mark"));
            if form.starts_with('P') {
                let line = raw.line();
                let words: Vec<&str> = line.split(' ').collect();
                assert_eq!((words[0], words[1].len(), words[2]), ("+FULLRESYNC", 40, "0"));
            }
            let head = raw.line();
            let dump = if let Some(mark) = head.strip_prefix("$EOF:") {
                assert!(form.ends_with("mark") && mark.len() == 40, "{head}");
                let mut bytes = Vec::new();
                while !bytes.ends_with(mark.as_bytes()) {
                    bytes.push(raw.bytes(1)[0]);
                }
                bytes.truncate(bytes.len() - 40);
                bytes
            } else {
                assert!(!form.ends_with("mark"), "{head}");
                raw.bytes(head[1..].parse().unwrap())
            };
            let (_dir, _server, mut copy) = load(dump);
            assert_eq!(copy.run("GET a"), copy.run("GET b"), "{form}");
            assert_eq!(copy.run("DBSIZE"), Value::Int(4002));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let info = client.run("INFO stats").text();
    assert!(info.contains("sync_full:3"), "{info}");
}

#[test]
fn a_store_is_filled_from_a_server_of_ours_at_once() {
    let (_dir, server, mut client) = common::start();
    client.run("RPUSH l a b");
    client.run("XADD x 1-1 f v");
    client.run("SELECT 3");
    client.run("HSET h a 1 b 2");
    client.run("HPEXPIREAT h 4102444800000 FIELDS 1 b");
    let dir = tempfile::tempdir().unwrap();
    let config = common::config(&dir);
    {
        let store = Store::open(&config.data, 32 << 20).unwrap();
        let url = format!("redis://{}", server.address());
        let (from, to) = (ImportFrom::Server(&url), ImportTo::Store(&store));
        // It does not wait for writes that are never sent.
        let all = import(from, to, ImportOptions::default(), &mut |_| true).unwrap();
        assert!(all.is_complete && all.is_snapshot && !all.was_scanned, "{all:?}");
        assert_eq!(all.keys, 3);
    }
    let server = Running::start(config).unwrap();
    let mut copy = Client::connect(server.address());
    assert_eq!(copy.run("LRANGE l 0 -1"), Value::bulks(&["a", "b"]));
    assert_eq!(copy.run("XLEN x"), Value::Int(1));
    copy.run("SELECT 3");
    let ends = copy.run("HPEXPIRETIME h FIELDS 2 a b");
    assert_eq!(ends, Value::Array(vec![Value::Int(-1), Value::Int(4_102_444_800_000)]));
}

#[test]
fn redis_cli_takes_a_copy_that_redis_loads() {
    let (dir, server, mut client) = common::start();
    client.run("RPUSH l a b");
    client.run("ZADD z 1 a");
    client.run("SET s v PXAT 4102444800000");
    let path = dir.path().join("copy.rdb");
    let (port, file) = (server.address().port().to_string(), path.display().to_string());
    let words = ["-h", "127.0.0.1", "-p", &port, "--rdb", &file];
    let Ok(done) = Command::new("redis-cli").args(words).output() else {
        return println!("no redis-cli: not tried");
    };
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let Some(loaded) = Oracle::start_with(Some(&path), &[]) else {
        return println!("no redis-server 7.0: not loaded");
    };
    let mut loaded = Client::connect(loaded.address);
    assert_eq!(loaded.run("LRANGE l 0 -1"), Value::bulks(&["a", "b"]));
    assert_eq!(loaded.run("ZSCORE z a"), Value::bulk("1"));
    assert_eq!(loaded.run("PEXPIRETIME s"), Value::Int(4_102_444_800_000));
}

#[test]
fn clients_that_do_not_take_their_copies_hold_nobody_up() {
    let (_dir, server, mut client) = common::start();
    let value = vec![b'v'; 1 << 20];
    for key in 0..32 {
        client.call_bytes(&[b"SET", format!("k{key}").as_bytes(), &value]);
    }
    let mut slow: Vec<Raw> = (0..4).map(|_| Raw::connect(server.address())).collect();
    for raw in &mut slow {
        raw.send("SYNC");
        // It has begun.
        assert!(raw.line().starts_with('$'));
    }
    let mut refused = Raw::connect(server.address());
    refused.send("SYNC");
    assert_eq!(refused.line(), "-ERR too many copies of the data are being sent");
    // The same connection goes on.
    refused.send("PING");
    assert_eq!(refused.line(), "+PONG");
    assert_eq!(client.run("SET k0 other"), Value::ok());
    drop(slow);
    common::wait_until(|| {
        refused.send("SYNC");
        refused.line().starts_with('$')
    });
}

#[test]
fn servers_are_no_replicas_and_what_programs_say_first_is_understood() {
    let (_dir, _server, mut client) = common::start();
    for line in [
        "REPLCONF ip-address 127.0.0.1",
        "REPLCONF capa eof capa psync2",
        "REPLCONF rdb-only 0",
        "REPLCONF listening-port 6379",
    ] {
        assert_eq!(client.run(line), Value::ok(), "{line}");
    }
    for line in ["SYNC", "PSYNC ? -1"] {
        let error = client.run(line).text();
        assert!(error.starts_with("ERR replication is not supported"), "{error}");
    }
    let integer = Value::Error("ERR value is not an integer or out of range".into());
    assert_eq!(client.run("REPLCONF rdb-only x"), integer);
    let unknown = Value::Error("ERR Unrecognized REPLCONF option: nonsense".into());
    assert_eq!(client.run("REPLCONF nonsense 1"), unknown);
    assert_eq!(client.run("REPLCONF capa"), Value::Error("ERR syntax error".into()));
    client.run("MULTI");
    let refused = Value::Error("ERR Command not allowed inside a transaction".into());
    for line in ["SYNC", "SAVE"] {
        assert_eq!(client.run(line), refused, "{line}");
    }
}
