//! `DUMP` and `RESTORE`: values go to Redis and come back, in every encoding that Redis 7.0 has.
//!
//! What is compared with Redis needs a `redis-server` of version 7.0 on the machine; without one a
//! line says so.

mod common;
#[path = "common/oracle.rs"]
mod oracle;

use common::{Client, Value};
use oracle::Oracle;

fn bulk(value: Value) -> Vec<u8> {
    match value {
        Value::Bulk(bytes) => bytes,
        other => panic!("no bulk string: {other:?}"),
    }
}

/// A value as `DUMP` would give it.
fn payload(value: &[u8]) -> Vec<u8> {
    let mut payload = [value, &[10, 0]].concat();
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

/// The commands that say all of a value of a type.
fn contents(client: &mut Client, key: &str) -> Value {
    let kind = client.call(&["TYPE", key]).text();
    let mut reply = match kind.as_str() {
        "string" => client.call(&["GET", key]),
        "list" => client.call(&["LRANGE", key, "0", "-1"]),
        "set" => client.call(&["SMEMBERS", key]),
        "hash" => client.call(&["HGETALL", key]),
        "zset" => client.call(&["ZRANGE", key, "0", "-1", "WITHSCORES"]),
        other => panic!("{key} is {other}"),
    };
    if let Value::Array(items) = &mut reply {
        match kind.as_str() {
            "set" => items.sort(),
            "hash" => {
                let mut pairs: Vec<Vec<Value>> = items.chunks(2).map(<[_]>::to_vec).collect();
                pairs.sort();
                *items = pairs.concat();
            }
            _ => {}
        }
    }
    reply
}

#[test]
fn values_of_all_encodings_go_both_ways_and_stay_the_same() {
    let Some(oracle) = Oracle::start() else {
        return println!("no redis-server 7.0: not compared");
    };
    let (_dir, _server, mut ours) = common::start();
    let mut theirs = Client::connect(oracle.address);
    let keys = oracle::fill(&mut theirs);
    assert!(keys.len() > 20, "{keys:?}");
    for key in &keys {
        let expected = contents(&mut theirs, key);
        let payload = bulk(theirs.call(&["DUMP", key]));
        let restored = ours.call_bytes(&[b"RESTORE", key.as_bytes(), b"0", &payload]);
        assert_eq!(restored, Value::ok(), "{key}");
        assert_eq!(contents(&mut ours, key), expected, "{key} to us");
        let payload = bulk(ours.call(&["DUMP", key]));
        let back = format!("back:{key}");
        let restored = theirs.call_bytes(&[b"RESTORE", back.as_bytes(), b"0", &payload]);
        assert_eq!(restored, Value::ok(), "{key} back");
        assert_eq!(contents(&mut theirs, &back), expected, "{key} back");
        assert_eq!(
            theirs.call(&["OBJECT", "ENCODING", key]),
            theirs.call(&["OBJECT", "ENCODING", &back]),
            "{key}"
        );
    }
}

#[test]
fn replies_and_errors_are_those_of_redis() {
    let oracle = Oracle::start();
    let (_dir, _server, mut ours) = common::start();
    let mut theirs = oracle.as_ref().map(|oracle| Client::connect(oracle.address));
    ours.run("RPUSH l a b");
    let list = bulk(ours.run("DUMP l"));
    let mut both = |words: &[&[u8]], expected: Value| {
        let text = String::from_utf8_lossy(&words.join(&b' ')).into_owned();
        assert_eq!(ours.call_bytes(words), expected, "{text}");
        if let Some(theirs) = &mut theirs {
            assert_eq!(theirs.call_bytes(words), expected, "Redis: {text}");
        }
    };
    let error = |text: &str| Value::Error(text.to_owned());
    let syntax = || error("ERR syntax error");
    let wrong = || error("ERR DUMP payload version or checksum are wrong");
    both(&[b"DUMP", b"absent"], Value::Null);
    both(&[b"RESTORE", b"k", b"0", &list], Value::ok());
    both(&[b"LRANGE", b"k", b"0", b"-1"], Value::bulks(&["a", "b"]));
    let busy = || error("BUSYKEY Target key name already exists.");
    both(&[b"RESTORE", b"k", b"0", &list], busy());
    both(&[b"RESTORE", b"k", b"x", &list], busy());
    both(&[b"RESTORE", b"k", b"0", &list, b"replace"], Value::ok());
    both(&[b"TTL", b"k"], Value::Int(-1));
    both(&[b"RESTORE", b"k", b"100000", &list, b"REPLACE"], Value::ok());
    both(&[b"TTL", b"k"], Value::Int(100));
    both(&[b"RESTORE", b"k", b"4102444800000", &list, b"REPLACE", b"ABSTTL"], Value::ok());
    both(&[b"PEXPIRETIME", b"k"], Value::Int(4_102_444_800_000));
    both(&[b"RESTORE", b"k", b"1", &list, b"REPLACE", b"ABSTTL"], Value::ok());
    both(&[b"EXISTS", b"k"], Value::Int(0));
    both(&[b"RESTORE", b"k", b"1", &list, b"ABSTTL"], Value::ok());
    both(&[b"EXISTS", b"k"], Value::Int(0));
    let ttl = || error("ERR Invalid TTL value, must be >= 0");
    both(&[b"RESTORE", b"k", b"-1", &list], ttl());
    both(&[b"RESTORE", b"k", b"-1", b"nonsense"], ttl());
    let integer = || error("ERR value is not an integer or out of range");
    both(&[b"RESTORE", b"k", b"x", &list], integer());
    both(&[b"RESTORE", b"k", b"0", &list, b"IDLETIME", b"x"], integer());
    let idle = error("ERR Invalid IDLETIME value, must be >= 0");
    both(&[b"RESTORE", b"k", b"0", &list, b"IDLETIME", b"-1"], idle);
    let frequency = error("ERR Invalid FREQ value, must be >= 0 and <= 255");
    both(&[b"RESTORE", b"k", b"0", &list, b"FREQ", b"256"], frequency);
    both(&[b"RESTORE", b"k", b"0", &list, b"FREQ", b"1", b"IDLETIME", b"1"], syntax());
    both(&[b"RESTORE", b"k", b"0", &list, b"IDLETIME"], syntax());
    both(&[b"RESTORE", b"k", b"0", &list, b"nonsense"], syntax());
    both(&[b"RESTORE", b"k", b"0", &list, b"IDLETIME", b"5"], Value::ok());
    both(&[b"RESTORE", b"other", b"0", b"nonsense"], wrong());
    let mut damaged = list.clone();
    damaged[2] ^= 1;
    both(&[b"RESTORE", b"other", b"0", &damaged], wrong());
    let mut later = list.clone();
    let at = later.len() - 10;
    later[at] = 99;
    both(&[b"RESTORE", b"other", b"0", &later], wrong());
    // Right checksums: a list that ends too early, one of nothing, and a type that is none.
    let bad = || error("ERR Bad data format");
    for value in [&b"\x01\x02\x01a"[..], b"\x01\x00", b"\x63\x00"] {
        let payload = payload(value);
        both(&[b"RESTORE", b"other", b"0", &payload], bad());
    }
    both(&[b"EXISTS", b"other"], Value::Int(0));
}

#[test]
fn what_is_there_twice_is_refused() {
    let (_dir, _server, mut ours) = common::start();
    for value in [
        &b"\x02\x02\x01a\x01a"[..],
        b"\x04\x02\x01a\x01x\x01a\x01y",
        b"\x05\x02\x01a\x00\x00\x00\x00\x00\x00\xf0\x3f\x01a\x00\x00\x00\x00\x00\x00\x00\x40",
    ] {
        let payload = payload(value);
        let reply = ours.call_bytes(&[b"RESTORE", b"k", b"0", &payload]);
        assert_eq!(reply, Value::Error("ERR Bad data format".into()), "{value:?}");
    }
    assert_eq!(ours.run("EXISTS k"), Value::Int(0));
}

#[test]
fn a_restored_value_replaces_one_of_another_type_and_works_as_any() {
    let (_dir, _server, mut ours) = common::start();
    ours.run("ZADD z 1 a 2 b -0.0 c");
    let payload = bulk(ours.run("DUMP z"));
    ours.run("RPUSH k old members");
    let replaced = ours.call_bytes(&[b"RESTORE", b"k", b"0", &payload, b"REPLACE"]);
    assert_eq!(replaced, Value::ok());
    assert_eq!(ours.run("ZADD k 3 a 4 d"), Value::Int(1));
    let expected = Value::bulks(&["c", "0", "b", "2", "a", "3", "d", "4"]);
    assert_eq!(ours.run("ZRANGE k 0 -1 WITHSCORES"), expected);
    assert_eq!(ours.run("ZREM k a b c d"), Value::Int(4));
    assert_eq!(ours.run("EXISTS k"), Value::Int(0));
    ours.run("MULTI");
    ours.run("SET s v");
    ours.run("DUMP s");
    ours.run("EXEC");
    assert_eq!(ours.run("GET s"), Value::bulk("v"));
}

#[test]
fn keys_migrate_to_redis_and_to_another_server_of_ours() {
    let (_dir, _server, mut ours) = common::start();
    let (_dir, other, mut there) = common::start();
    let oracle = Oracle::start();
    let mut targets = vec![(other.address(), &mut there)];
    let mut theirs = oracle.as_ref().map(|oracle| Client::connect(oracle.address));
    if let (Some(oracle), Some(theirs)) = (&oracle, &mut theirs) {
        targets.push((oracle.address, theirs));
    }
    for (address, target) in targets {
        let port = address.port().to_string();
        let mut migrate = |words: &[&str]| {
            let front = ["MIGRATE", "127.0.0.1", &port];
            ours.call(&[&front, words].concat())
        };
        assert_eq!(migrate(&["absent", "0", "1000"]), Value::Simple("NOKEY".into()));
        let mut here = Client::connect(_server.address());
        here.run("RPUSH l a b");
        here.run("SET s v PX 100000");
        assert_eq!(migrate(&["l", "0", "1000", "COPY"]), Value::ok());
        assert_eq!(here.run("EXISTS l"), Value::Int(1));
        let busy = migrate(&["l", "0", "1000"]);
        let expected =
            "ERR Target instance replied with error: BUSYKEY Target key name already exists.";
        assert_eq!(busy, Value::Error(expected.into()));
        assert_eq!(here.run("EXISTS l"), Value::Int(1));
        let all = migrate(&["", "0", "1000", "REPLACE", "KEYS", "l", "absent", "s"]);
        assert_eq!(all, Value::ok());
        assert_eq!(here.run("EXISTS l s"), Value::Int(0));
        assert_eq!(target.run("LRANGE l 0 -1"), Value::bulks(&["a", "b"]));
        assert_eq!(target.run("TTL s"), Value::Int(100));
        here.run("SET k 1");
        assert_eq!(migrate(&["k", "3", "1000"]), Value::ok());
        target.run("SELECT 3");
        assert_eq!(target.run("GET k"), Value::bulk("1"));
        here.run("SET k 1");
        let wrong = migrate(&["k", "99", "1000"]);
        assert!(matches!(wrong, Value::Error(text) if text.contains("DB index is out of range")));
        let syntax = migrate(&["k", "0", "1000", "nonsense"]);
        assert_eq!(syntax, Value::Error("ERR syntax error".into()));
        let both = migrate(&["k", "0", "1000", "KEYS", "a"]);
        assert!(matches!(both, Value::Error(text) if text.contains("empty string")));
        assert_eq!(here.run("EXISTS k"), Value::Int(1));
    }
    let nobody = ours.run("MIGRATE 127.0.0.1 1 k 0 100");
    let expected = "IOERR error or timeout connecting to the client";
    assert_eq!(nobody, Value::Error(expected.into()));
}

#[test]
fn a_server_that_does_not_answer_holds_nobody_up_and_loses_no_key() {
    let (_dir, server, mut ours) = common::start();
    let silent = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = silent.local_addr().unwrap().port();
    ours.run("SET k v");
    let mut other = Client::connect(server.address());
    let words = format!("MIGRATE 127.0.0.1 {port} k 0 60000");
    let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
    ours.send_raw(&common::encode(&words)).unwrap();
    let (stream, _) = silent.accept().unwrap();
    // The same key, before the migration ends.
    assert_eq!(other.run("APPEND k w"), Value::Int(2));
    drop(stream);
    let expected = "IOERR error or timeout reading from target instance";
    assert_eq!(ours.reply(), Some(Value::Error(expected.into())));
    assert_eq!(ours.run("GET k"), Value::bulk("vw"));
}
