//! Hashes with fields that end by themselves: they go through `DUMP`, `RESTORE`, `MIGRATE`, dumps
//! and imports whole, with their times.

mod common;
#[path = "common/oracle.rs"]
mod oracle;

use common::{Client, Value};
use oracle::Oracle;
use rhumb_server::{ImportFrom, ImportOptions, ImportTo, Running, Store, export_server, import};

fn bulk(value: Value) -> Vec<u8> {
    match value {
        Value::Bulk(bytes) => bytes,
        other => panic!("no bulk string: {other:?}"),
    }
}

/// A value as `DUMP` would give it in the version of Redis 7.4.
fn payload(value: &[u8]) -> Vec<u8> {
    let mut payload = [value, &[12, 0]].concat();
    let mut sum = 0_u64;
    for byte in &payload {
        sum ^= u64::from(*byte);
        for _ in 0..8 {
            let carry = sum & 1;
            // The polynomial of Redis' checksum, reflected.
            sum = (sum >> 1) ^ (carry * 0x95AC_9329_AC4B_C9B5);
        }
    }
    payload.extend_from_slice(&sum.to_le_bytes());
    payload
}

/// A moment in the year 2100.
const LATER_MS: u64 = 4_102_444_800_000;

/// A hash of three fields: one stays, two end.
fn fill(client: &mut Client, key: &str) {
    client.run(&format!("HSET {key} a 1 b 2 c 3"));
    client.run(&format!("HPEXPIREAT {key} {LATER_MS} FIELDS 1 b"));
    client.run(&format!("HPEXPIREAT {key} {} FIELDS 1 c", LATER_MS + 63));
}

/// What [`fill`] has made is there, times included.
#[track_caller]
fn check(client: &mut Client, key: &str) {
    let all = client.call(&["HGETALL", key]);
    assert_eq!(all, Value::bulks(&["a", "1", "b", "2", "c", "3"]));
    let times = client.call(&["HPEXPIRETIME", key, "FIELDS", "3", "a", "b", "c"]);
    let expected = [-1, LATER_MS as i64, LATER_MS as i64 + 63].map(Value::Int);
    assert_eq!(times, Value::Array(expected.to_vec()));
}

#[test]
fn the_bytes_are_those_of_redis_and_come_back() {
    let (_dir, _server, mut client) = common::start();
    fill(&mut client, "h");
    let mut value = vec![24];
    value.extend_from_slice(&LATER_MS.to_le_bytes());
    // Before each field its time after the first, plus one: 64 takes two bytes.
    value.extend_from_slice(b"\x03\x00\x01a\x011\x01\x01b\x012\x40\x40\x01c\x013");
    let expected = payload(&value);
    assert_eq!(bulk(client.run("DUMP h")), expected);
    assert_eq!(client.call_bytes(&[b"RESTORE", b"r", b"0", &expected]), Value::ok());
    check(&mut client, "r");
    let ttl = client.call_bytes(&[b"RESTORE", b"r", b"100000", &expected, b"REPLACE"]);
    assert_eq!(ttl, Value::ok());
    check(&mut client, "r");
    assert_eq!(client.run("TTL r"), Value::Int(100));
    // The packed encoding: field, value and time, in the order of the times.
    let mut packed = vec![25];
    packed.extend_from_slice(&LATER_MS.to_le_bytes());
    let time = |after: u64| {
        let bytes = (LATER_MS + after).to_le_bytes();
        [&[0xF4][..], &bytes, &[9]].concat()
    };
    let text = |text: u8| [0x81, text, 2];
    let elements = [
        &text(b'b')[..],
        &[2, 1],
        &time(0),
        &text(b'c'),
        &[3, 1],
        &time(63),
        &text(b'a'),
        &[1, 1],
        &[0, 1],
    ]
    .concat();
    let bytes = 7 + elements.len();
    packed.push(bytes as u8);
    packed.extend_from_slice(&(bytes as u32).to_le_bytes());
    packed.extend_from_slice(&[9, 0]);
    packed.extend_from_slice(&elements);
    packed.push(0xFF);
    let packed = payload(&packed);
    assert_eq!(client.call_bytes(&[b"RESTORE", b"p", b"0", &packed]), Value::ok());
    check(&mut client, "p");
}

#[test]
fn times_that_are_none_are_refused_and_those_that_are_over_take_the_field() {
    let (_dir, _server, mut client) = common::start();
    let with_first =
        |first: u64, rest: &[u8]| payload(&[&[24][..], &first.to_le_bytes(), rest].concat());
    for (first, rest) in [
        (u64::MAX, &b"\x01\x01\x01a\x011"[..]),
        (u64::MAX, b"\x01\x02\x01a\x011"),
        (1 << 46, b"\x01\x01\x01a\x011"),
        (LATER_MS, b"\x01\x01\x01a"),
        (LATER_MS, b"\x02\x01\x01a\x011\x01\x01a\x011"),
    ] {
        let reply = client.call_bytes(&[b"RESTORE", b"k", b"0", &with_first(first, rest)]);
        assert_eq!(reply, Value::Error("ERR Bad data format".into()), "{first} {rest:?}");
        assert_eq!(client.run("EXISTS k"), Value::Int(0));
    }
    let ended = with_first(1, b"\x02\x01\x01a\x011\x00\x01b\x012");
    assert_eq!(client.call_bytes(&[b"RESTORE", b"k", b"0", &ended]), Value::ok());
    assert_eq!(client.run("HGETALL k"), Value::bulks(&["b", "2"]));
    let left = bulk(client.run("DUMP k"));
    client.run("RENAME k l");
    assert_eq!(bulk(client.run("DUMP l")), left);
    assert_eq!(left[0], 4, "no field ends: the plain type");
}

#[test]
fn fields_that_were_restored_end() {
    let (_dir, _server, mut client) = common::start();
    client.run("HSET h a 1 b 2");
    client.run("HPEXPIRE h 1000 FIELDS 1 a");
    let dumped = bulk(client.run("DUMP h"));
    assert_eq!(client.call_bytes(&[b"RESTORE", b"r", b"0", &dumped]), Value::ok());
    client.run("DEL h");
    common::wait_until(|| client.run("HGETALL r") == Value::bulks(&["b", "2"]));
    // The sweeper takes its bytes: the size is what is left.
    common::wait_until(|| client.run("HLEN r") == Value::Int(1));
    client.run("HPEXPIRE r 1 FIELDS 1 b");
    common::wait_until(|| client.run("EXISTS r") == Value::Int(0));
    assert_eq!(client.run("DUMP r"), Value::Null);
}

#[test]
fn they_migrate_between_servers_of_ours_and_older_ones_of_redis_say_why_not() {
    let (_dir, _server, mut ours) = common::start();
    let (_dir, other, mut there) = common::start();
    let port = other.address().port().to_string();
    fill(&mut ours, "h");
    assert_eq!(ours.call(&["MIGRATE", "127.0.0.1", &port, "h", "0", "1000"]), Value::ok());
    assert_eq!(ours.run("EXISTS h"), Value::Int(0));
    check(&mut there, "h");
    fill(&mut ours, "h");
    let busy = ours.call(&["MIGRATE", "127.0.0.1", &port, "h", "0", "1000"]).text();
    assert!(busy.ends_with("BUSYKEY Target key name already exists."), "{busy}");
    let Some(oracle) = Oracle::start() else {
        return println!("no redis-server 7.0: not asked");
    };
    let port = oracle.address.port().to_string();
    let refused = ours.call(&["MIGRATE", "127.0.0.1", &port, "h", "0", "1000"]).text();
    assert!(refused.contains("payload version") && refused.contains("7.4"), "{refused}");
    check(&mut ours, "h");
    let (from, to) = (format!("redis://127.0.0.1:{}", _server.address().port()), oracle.address);
    let to = format!("redis://{to}");
    let options = ImportOptions { is_once: true, ..ImportOptions::default() };
    let refused = import(ImportFrom::Server(&from), ImportTo::Server(&to), options, &mut |_| true);
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("7.4"), "{refused}");
}

#[test]
fn they_are_in_dumps_and_come_back_from_them() {
    let dir = tempfile::tempdir().unwrap();
    let config = common::config(&dir);
    let (path, other_path) = (dir.path().join("out.rdb"), dir.path().join("other.rdb"));
    {
        let server = Running::start(config.clone()).unwrap();
        let mut client = Client::connect(server.address());
        fill(&mut client, "h");
        client.run("SET s v");
        // Large enough for several commits of an import, with times before and after the first.
        for chunk in 0..40 {
            let fields: Vec<String> = (0..1000).map(|n| format!("f{chunk:02}-{n:03}")).collect();
            let pairs: Vec<String> = fields.iter().map(|f| format!("{f} {f:#>40}")).collect();
            client.run(&format!("HSET large {}", pairs.join(" ")));
            if chunk >= 20 {
                let at = LATER_MS - chunk;
                let names = fields.join(" ");
                client.run(&format!("HPEXPIREAT large {at} FIELDS 1000 {names}"));
            }
        }
        client.run("DEBUG SET-ACTIVE-EXPIRE 0");
        client.run("HSET over a 1");
        client.run("HPEXPIRE over 1 FIELDS 1 a");
        let url = format!("redis://{}", server.address());
        let file = std::fs::File::create(&other_path).unwrap();
        let exported = export_server(&url, file, &mut |_| true).unwrap();
        assert!(exported.is_complete && exported.keys >= 3, "{exported:?}");
    }
    {
        let store = Store::open(&config.data, 32 << 20).unwrap();
        let file = std::fs::File::create(&path).unwrap();
        let exported = store.export_dump(file, &mut |_| true).unwrap();
        assert_eq!((exported.keys, exported.is_complete), (3, true));
    }
    for path in [path, other_path] {
        let dir = tempfile::tempdir().unwrap();
        let config = common::config(&dir);
        {
            let store = Store::open(&config.data, 32 << 20).unwrap();
            let file = Box::new(std::io::BufReader::new(std::fs::File::open(path).unwrap()));
            let (from, to) = (ImportFrom::Dump(file), ImportTo::Store(&store));
            let all = import(from, to, ImportOptions::default(), &mut |_| true).unwrap();
            assert!(all.is_complete && all.unfit == 0, "{all:?}");
        }
        let server = Running::start(config).unwrap();
        let mut client = Client::connect(server.address());
        check(&mut client, "h");
        assert_eq!(client.run("HLEN large"), Value::Int(40_000));
        let ends = client.run("HPEXPIRETIME large FIELDS 3 f00-000 f20-000 f39-999");
        let expected = [-1, LATER_MS as i64 - 20, LATER_MS as i64 - 39].map(Value::Int);
        assert_eq!(ends, Value::Array(expected.to_vec()));
        common::wait_until(|| client.run("EXISTS over") == Value::Int(0));
    }
}
