//! Writes that clients of one worker commit together, and the count of keys that writers keep.

mod common;

use common::{Client, Value, config, encode, start, wait_until};
use rhumb_server::{Config, Running};

/// A database's count of keys must be what its keys are.
#[track_caller]
fn is_counted(client: &mut Client) {
    let Value::Array(keys) = client.run("KEYS *") else { panic!("no keys") };
    assert_eq!(client.run("DBSIZE"), Value::Int(keys.len() as i64));
}

#[test]
fn keys_are_counted_exactly() {
    let (dir, server, mut client) = start();
    // With a second client writes are committed together.
    let mut other = Client::connect(server.address());
    client.run("MSET a 1 b 2 c 3");
    is_counted(&mut client);
    let lines = [
        "SET d 1",
        "SET d 2",
        "MSET e 1 e 2 a 3",
        "DEL a nothing",
        "RENAME b bb",
        "RENAME bb c",
        "COPY c c2",
        "COPY c c3 DB 1",
        "RPUSH l 1",
        "LPOP l",
        "HSET h f v",
        "SET h string",
        "SADD s m",
        "ZADD z 1 m",
        "ZREM z m",
        "SETNX new 1",
        "SETNX new 2",
        "APPEND appended x",
        "INCR n",
        "GETDEL n",
        "SET gone 1 PX 30",
        "SET gone2 1 EX 100",
        "PERSIST gone2",
        "DELRANGE [c [d",
        "FLUSHDB",
        "SET last 1",
    ];
    for (n, line) in lines.into_iter().enumerate() {
        let by = if n % 2 == 0 { &mut client } else { &mut other };
        let reply = by.run(line);
        assert!(!matches!(reply, Value::Error(_)), "{line}: {reply:?}");
        if line.contains("PX") {
            let mut left = || client.run("KEYS gone") == Value::Array(vec![]);
            wait_until(|| left() && client_info_expired(&mut other));
        }
        is_counted(&mut client);
    }
    client
        .send_raw(&[encode(&[b"SET", b"p", b"1"]), encode(&[b"SET", b"p", b"2"])].concat())
        .unwrap();
    assert_eq!((client.reply(), client.reply()), (Some(Value::ok()), Some(Value::ok())));
    client.run("MULTI");
    client.run("SET q 1");
    client.run("DBSIZE");
    let replies = vec![Value::ok(), Value::Int(3)];
    assert_eq!(client.run("EXEC"), Value::Array(replies));
    is_counted(&mut client);
    assert!(client.run("INFO keyspace").text().contains("db0:keys=3,expires=0"));
    client.run("SWAPDB 0 1");
    is_counted(&mut client);
    client.run("SELECT 1");
    is_counted(&mut client);
    server.stop().unwrap();
    let server = Running::start(config(&dir)).unwrap();
    let mut client = Client::connect(server.address());
    is_counted(&mut client);
}

/// Returns true if the sweeper has taken a key away.
/// A call that is refused replaces nothing, whatever its neighbours replace.
#[test]
fn what_a_refused_call_names_is_neither_counted_nor_reclaimed() {
    let (_dir, server, mut client) = start();
    client.run("RPUSH list a b c");
    client.run("SET k 1");
    is_counted(&mut client);
    let lines = ["SET k 2", "MSET list 1 absent", "MSET k 3 list 4 other", "SET k 5"];
    let bytes: Vec<u8> = lines
        .iter()
        .flat_map(|line| encode(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>()))
        .collect();
    client.send_raw(&bytes).unwrap();
    let replies: Vec<Value> = lines.iter().map(|_| client.reply().unwrap()).collect();
    let is_error = |reply: &Value| matches!(reply, Value::Error(_));
    assert_eq!(replies.iter().map(is_error).collect::<Vec<_>>(), [false, true, true, false]);
    is_counted(&mut client);
    // Were the list reclaimed, its elements would go with the sweeper's next round.
    client.run("RPUSH swept x");
    client.run("DEL swept");
    wait_until(|| !client.run("INFO stats").text().contains("lazyfreed_objects:0"));
    let three = ["a", "b", "c"].map(Value::bulk);
    assert_eq!(client.run("LRANGE list 0 -1"), Value::Array(three.to_vec()));
    server.stop().unwrap();
}

fn client_info_expired(client: &mut Client) -> bool {
    client.run("INFO stats").text().contains("expired_keys:1")
}

#[test]
fn keys_are_counted_while_they_are_written() {
    let (_dir, server, mut client) = start();
    let address = server.address();
    let writers: Vec<_> = (0..4_u64)
        .map(|writer| {
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                for n in 0..3000_u64 {
                    let key = (n * 7919 + writer * 104_729) % 1500;
                    match n % 4 {
                        0 => client.run(&format!("SET k{key} v")),
                        1 => client.run(&format!("INCRBY n{key} 1")),
                        2 => client.run(&format!("DEL k{key} n{}", key / 2)),
                        _ => client.run(&format!("MSET k{key} 1 m{key} 2")),
                    };
                }
            })
        })
        .collect();
    while !writers.iter().all(|writer| writer.is_finished()) {
        assert!(matches!(client.run("DBSIZE"), Value::Int(0..4500)));
    }
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    is_counted(&mut client);
}

#[test]
fn writes_that_share_a_commit_are_whole() {
    let (_dir, server, mut client) = start();
    let address = server.address();
    let writers: Vec<_> = (0..6_usize)
        .map(|writer| {
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                for n in 0..200 {
                    // Errors, reads and other keys between the writes of one pipeline.
                    let lines = [
                        "INCR n".to_owned(),
                        format!("RPUSH list {writer}:{n}"),
                        "INCR list".to_owned(),
                        format!("ZADD board {n} {writer}:{n}"),
                        format!("GET own{writer}"),
                        format!("SETRANGE own{writer} 0 {n:04}"),
                        format!("GET own{writer}"),
                        format!("HSET hash {writer}:{n} x"),
                        "NOSUCH".to_owned(),
                        format!("SADD set {}", n % 50),
                    ];
                    let words = |line: &String| {
                        encode(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>())
                    };
                    client.send_raw(&lines.iter().flat_map(words).collect::<Vec<_>>()).unwrap();
                    let replies: Vec<Value> =
                        lines.iter().map(|_| client.reply().unwrap()).collect();
                    let is_error = |at: usize| matches!(replies[at], Value::Error(_));
                    assert!((0..10).all(|at| is_error(at) == (at == 2 || at == 8)), "{replies:?}");
                    assert_eq!(replies[6], Value::bulk(format!("{n:04}")));
                    assert_eq!(replies[7], Value::Int(1));
                    assert_eq!(replies[4] == Value::Null, n == 0);
                }
            })
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    assert_eq!(client.run("GET n"), Value::bulk("1200"));
    assert_eq!(client.run("LLEN list"), Value::Int(1200));
    assert_eq!(client.run("ZCARD board"), Value::Int(1200));
    assert_eq!(client.run("HLEN hash"), Value::Int(1200));
    assert_eq!(client.run("SCARD set"), Value::Int(50));
    let Value::Array(all) = client.run("LRANGE list 0 -1") else { panic!("no list") };
    assert_eq!(all.len(), 1200);
    let Value::Array(all) = client.run("ZRANGE board 0 -1") else { panic!("no set") };
    assert_eq!(all.len(), 1200);
}

#[test]
fn who_changes_nothing_stops_no_exec() {
    let (_dir, server, mut client) = start();
    let mut other = Client::connect(server.address());
    client.run("SADD s m");
    client.run("ZADD z 1 m");
    client.run("WATCH s z");
    // Commands that change nothing, in one commit with one that does.
    let lines = ["INCR n", "SADD s m", "ZADD z 1 m", "SREM s absent", "PERSIST s"];
    let words = |line: &str| encode(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
    other.send_raw(&lines.into_iter().flat_map(words).collect::<Vec<_>>()).unwrap();
    assert!(lines.iter().all(|_| matches!(other.reply(), Some(Value::Int(0..=1)))));
    client.run("MULTI");
    client.run("SCARD s");
    assert_eq!(client.run("EXEC"), Value::Array(vec![Value::Int(1)]));
    // And one that does.
    client.run("WATCH s");
    other.send_raw(&[words("INCR n"), words("SADD s n")].concat()).unwrap();
    assert!((0..2).all(|_| other.reply().is_some()));
    client.run("MULTI");
    assert_eq!(client.run("EXEC"), Value::NullArray);
}

#[test]
fn who_reads_to_write_sees_what_was_submitted() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(Config { threads: 1, ..config(&dir) }).unwrap();
    let [mut busy, mut setter, mut adder] = [0; 3].map(|_| Client::connect(server.address()));
    for _ in 0..20 {
        busy.run(&format!("RPUSH list{}", " element".repeat(100)));
    }
    let words = |line: &str| encode(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
    for round in 1..=400 {
        // While the worker is busy, a SET comes in and then one that adds to what it set.
        busy.send_raw(&words("LRANGE list 0 -1")).unwrap();
        setter.send_raw(&words(&format!("SET n {round}000"))).unwrap();
        let lines: &[&str] =
            if round % 2 == 0 { &["INCR n"] } else { &["MULTI", "INCR n", "EXEC"] };
        let bytes: Vec<u8> = lines.iter().flat_map(|line| words(line)).collect();
        adder.send_raw(&bytes).unwrap();
        assert_eq!(setter.reply(), Some(Value::ok()));
        assert!(lines.iter().all(|_| adder.reply().is_some()) && busy.reply().is_some());
        // In either order, but none of the two is lost.
        let found: u32 = setter.run("GET n").text().parse().unwrap();
        assert!(found == round * 1000 || found == round * 1000 + 1, "round {round}: {found}");
    }
}
