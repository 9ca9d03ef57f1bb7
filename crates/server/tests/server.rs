//! The server as clients meet it: atomicity, durability, passwords, limits, hostile bytes.

mod common;

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
    time::Duration,
};

use common::{Client, Value, config, encode, start, wait_until};
use rhumb_server::{Config, Fsync, Limits, Running};

#[test]
fn pipelines_are_answered_in_order() {
    let (_dir, _server, mut client) = start();
    let mut bytes = Vec::new();
    for i in 0..3000_u32 {
        let (key, value) = (format!("k{}", i % 97), i.to_string());
        bytes.extend(encode(&[b"SET", key.as_bytes(), value.as_bytes()]));
        if i % 5 < 3 {
            bytes.extend(encode(&[b"GET", key.as_bytes()]));
        }
    }
    client.send_raw(&bytes).unwrap();
    for i in 0..3000_u32 {
        assert_eq!(client.reply(), Some(Value::ok()));
        if i % 5 < 3 {
            assert_eq!(client.reply(), Some(Value::bulk(i.to_string())));
        }
    }
}

#[test]
fn inline_commands_work() {
    let (_dir, _server, mut client) = start();
    client.send_raw(b"SET a \"b c\"\r\nGET a\r\n\r\nPING\n").unwrap();
    assert_eq!(client.reply(), Some(Value::ok()));
    assert_eq!(client.reply(), Some(Value::bulk("b c")));
    assert_eq!(client.reply(), Some(Value::Simple("PONG".into())));
}

#[test]
fn what_was_acknowledged_is_there_after_a_restart() {
    for fsync in [Fsync::Always, Fsync::Everysec, Fsync::No] {
        let dir = tempfile::tempdir().unwrap();
        let settings = Config { fsync, ..config(&dir) };
        let server = Running::start(settings.clone()).unwrap();
        let mut client = Client::connect(server.address());
        client.run("SET a 1");
        client.run("HSET h f v");
        client.run("RPUSH l 1 2 3");
        client.run("SELECT 3");
        client.run("ZADD z 1.5 m");
        client.run("SWAPDB 3 4");
        drop(client);
        server.stop().unwrap();
        let server = Running::start(settings).unwrap();
        let mut client = Client::connect(server.address());
        assert_eq!(client.run("GET a"), Value::bulk("1"));
        assert_eq!(client.run("HGET h f"), Value::bulk("v"));
        assert_eq!(client.run("LRANGE l 0 -1"), Value::bulks(&["1", "2", "3"]));
        // A collection that is made now has a number of its own.
        client.run("RPUSH new x");
        assert_eq!(client.run("LRANGE l 0 -1"), Value::bulks(&["1", "2", "3"]));
        client.run("SELECT 4");
        assert_eq!(client.run("ZSCORE z m"), Value::bulk("1.5"));
        client.run("SELECT 3");
        assert_eq!(client.run("DBSIZE"), Value::Int(0));
    }
}

#[test]
fn always_syncs_before_it_acknowledges() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(Config { fsync: Fsync::Always, ..config(&dir) }).unwrap();
    let mut client = Client::connect(server.address());
    let mut other = Client::connect(server.address());
    let mut syncs = || -> u64 {
        let text = other.run("INFO engine").text();
        let line = text.lines().find_map(|line| line.strip_prefix("log_syncs:")).unwrap();
        line.parse().unwrap()
    };
    let commands = ["SET a 1", "MSET a 1 b 2", "SET a 1 EX 100", "INCR n", "RPUSH l x", "DEL a"];
    for command in commands {
        let before = syncs();
        client.run(command);
        assert!(syncs() > before, "{command}");
    }
    client.run("MULTI");
    client.run("INCR n");
    let before = syncs();
    client.run("EXEC");
    assert!(syncs() > before);
    let before = syncs();
    client.run("GET n");
    assert_eq!(syncs(), before);
}

#[test]
fn keys_end_at_their_time_and_leave_nothing() {
    let (_dir, server, mut client) = start();
    // A transaction sees one time: however slow the machine, nothing ends within it.
    client.run("MULTI");
    for command in [
        "SET a 1 PX 60",
        "SADD s a b c d",
        "PEXPIRE s 60",
        "SET kept 1 PX 60",
        "PERSIST kept",
        "SET replaced 1 PX 60",
        "SET replaced 2",
        "EXISTS a s kept replaced",
    ] {
        assert_eq!(client.run(command), Value::Simple("QUEUED".into()));
    }
    let Value::Array(replies) = client.run("EXEC") else { panic!("it was aborted") };
    assert_eq!(replies.last(), Some(&Value::Int(4)));
    wait_until(|| client.run("EXISTS a s") == Value::Int(0));
    assert_eq!(client.run("SMEMBERS s"), Value::Array(vec![]));
    let expired = |client: &mut Client| client.run("INFO stats").text().contains("expired_keys:2");
    wait_until(|| expired(&mut client));
    assert_eq!(client.run("MGET kept replaced"), Value::bulks(&["1", "2"]));
    assert_eq!(client.run("TTL kept"), Value::Int(-1));
    server.stop().unwrap();
}

#[test]
fn ended_keys_are_absent_before_they_are_swept() {
    let (_dir, _server, mut client) = start();
    // More than the sweeper, which comes every tenth of a second, can be ahead of.
    for n in 0..40 {
        client.run(&format!("SET k{n} v PX 3"));
        client.run(&format!("SET m{n} v PX 3"));
        client.run(&format!("HSET h{n} f v"));
        client.run(&format!("PEXPIRE h{n} 3"));
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(client.run(&format!("GET k{n}")), Value::Null);
        assert_eq!(client.run(&format!("MGET m{n} k{n}")), Value::Array(vec![Value::Null; 2]));
        assert_eq!(client.run(&format!("HGET h{n} f")), Value::Null);
        assert_eq!(client.run(&format!("EXISTS k{n} m{n} h{n}")), Value::Int(0));
        assert_eq!(client.run(&format!("RANGECOUNT [k{n} [k{n}")), Value::Int(0));
        assert_eq!(client.run(&format!("HSET h{n} g w")), Value::Int(1));
        assert_eq!(client.run(&format!("HGETALL h{n}")), Value::bulks(&["g", "w"]));
    }
}

#[test]
fn a_removed_collection_leaves_no_members() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(config(&dir)).unwrap();
    let mut client = Client::connect(server.address());
    for i in 0..5000 {
        client.run(&format!("RPUSH gone {i} {i}"));
    }
    client.run("RPUSH stays a");
    client.run("DEL gone");
    // A plain SET over a collection, alone and within a pipeline.
    client.run("HSET h f v");
    client.run("SET h x");
    client.run("SADD s a");
    client
        .send_raw(&[encode(&[b"SET", b"s", b"1"]), encode(&[b"SET", b"t", b"2"])].concat())
        .unwrap();
    assert_eq!((client.reply(), client.reply()), (Some(Value::ok()), Some(Value::ok())));
    drop(client);
    let counts = || {
        let db = rhumb::Database::builder(dir.path().join("data")).open().unwrap();
        ["keys", "members", "work"].map(|part| {
            let name = format!("db0.{part}");
            let keyspace = db.keyspace(&name, rhumb::KeyspaceOptions::default()).unwrap();
            keyspace.iter().inspect(|pair| assert!(pair.is_ok())).count()
        })
    };
    // The sweeper comes to it in its own time, also after a restart.
    let mut server = Some(server);
    wait_until(|| {
        let running = server.take().unwrap_or_else(|| Running::start(config(&dir)).unwrap());
        std::thread::sleep(Duration::from_millis(300));
        running.stop().unwrap();
        counts()[2] == 0
    });
    assert_eq!(counts(), [4, 1, 0]);
}

#[test]
fn increments_and_transactions_of_many_clients_are_whole() {
    let (_dir, server, mut client) = start();
    let address = server.address();
    client.run("MSET a 0 b 0");
    let writers: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                for _ in 0..300 {
                    client.run("INCR n");
                    client.run("MULTI");
                    client.run("INCR a");
                    client.run("INCR b");
                    client.run("RPUSH l x");
                    client.run("EXEC");
                    // Compare and set, until it works.
                    loop {
                        client.run("WATCH w");
                        let old = match client.run("GET w") {
                            Value::Bulk(text) => String::from_utf8(text).unwrap().parse().unwrap(),
                            _ => 0_u32,
                        };
                        client.run("MULTI");
                        client.run(&format!("SET w {}", old + 1));
                        if client.run("EXEC") != Value::NullArray {
                            break;
                        }
                    }
                }
            })
        })
        .collect();
    // Both are always the same, in one command and in one transaction.
    while !writers.iter().all(|writer| writer.is_finished()) {
        let Value::Array(pair) = client.run("MGET a b") else { panic!("no array") };
        assert_eq!(pair[0], pair[1]);
        client.run("MULTI");
        client.run("GET a");
        client.run("LLEN l");
        let Value::Array(pair) = client.run("EXEC") else { panic!("no array") };
        let elements = match pair[1] {
            Value::Int(elements) => elements.to_string(),
            ref other => panic!("{other:?}"),
        };
        assert_eq!(pair[0].text(), elements);
    }
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    assert_eq!(client.run("MGET n a b w"), Value::bulks(&["1200"; 4]));
}

#[test]
fn watched_keys_that_change_or_end_stop_exec() {
    let (_dir, server, mut client) = start();
    let mut other = Client::connect(server.address());
    let changes = ["SET k 2", "DEL k", "EXPIRE k 100", "RENAME k m", "FLUSHDB", "SWAPDB 0 5"];
    for change in changes {
        client.run("SELECT 0");
        client.run("SET k 1");
        client.run("WATCH k");
        other.run(change);
        client.run("MULTI");
        client.run("PING");
        assert_eq!(client.run("EXEC"), Value::NullArray, "{change}");
        client.run("MULTI");
        client.run("PING");
        assert_ne!(client.run("EXEC"), Value::NullArray, "{change}: once only");
    }
    // A key that is in neither of two databases that are exchanged is watched on.
    client.run("SELECT 0");
    client.run("WATCH absent");
    other.run("SWAPDB 0 6");
    client.run("MULTI");
    assert_eq!(client.run("EXEC"), Value::Array(vec![]));
    client.run("WATCH absent");
    other.run("SWAPDB 0 6");
    other.run("SET absent 1");
    client.run("MULTI");
    assert_eq!(client.run("EXEC"), Value::NullArray);
    client.run("SET k 1 PX 30");
    client.run("WATCH k");
    std::thread::sleep(Duration::from_millis(50));
    client.run("MULTI");
    assert_eq!(client.run("EXEC"), Value::NullArray);
    client.run("HSET h f 1");
    client.run("WATCH h other");
    other.run("HSET h f 2");
    client.run("MULTI");
    assert_eq!(client.run("EXEC"), Value::NullArray);
    client.run("WATCH h");
    other.run("SET unrelated 1");
    client.run("MULTI");
    assert_eq!(client.run("EXEC"), Value::Array(vec![]));
}

#[test]
fn ranges_of_keys_go_from_page_to_page() {
    let (_dir, _server, mut client) = start();
    for i in 0..50 {
        client.run(&format!("SET key:{i:02} v{i}"));
    }
    client.run("RPUSH key:list a");
    client.run("SET key:gone x PX 1");
    std::thread::sleep(Duration::from_millis(5));
    let mut min = "-".to_owned();
    let mut seen = Vec::new();
    loop {
        let page = client.run(&format!("RANGE {min} + LIMIT 7"));
        let Value::Array(page) = page else { panic!("{page:?}") };
        let Some(last) = page.chunks(2).last() else { break };
        min = format!("({}", last[0].text());
        seen.extend(page.chunks(2).map(|pair| pair[0].text()));
    }
    assert_eq!(seen.len(), 51);
    assert!(seen.is_sorted());
    assert_eq!(client.run("RANGECOUNT [key:10 (key:20"), Value::Int(10));
    assert_eq!(
        client.run("RANGE (key:10 [key:12"),
        Value::bulks(&["key:11", "v11", "key:12", "v12"])
    );
    assert_eq!(
        client.run("RANGE - + REV LIMIT 1"),
        Value::Array(vec![Value::bulk("key:list"), Value::Null])
    );
    assert_eq!(client.run("PREFIX key:4 LIMIT 2 KEYSONLY"), Value::bulks(&["key:40", "key:41"]));
    assert_eq!(client.run("NEXT key:10"), Value::bulks(&["key:11", "v11"]));
    assert_eq!(client.run("PREV key:10 KEYSONLY"), Value::bulk("key:09"));
    assert_eq!(client.run("PREV key:00"), Value::NullArray);
    assert_eq!(
        client.run("RANGE a b"),
        Value::Error("ERR min or max not valid string range item".into())
    );
    assert_eq!(client.run("DELRANGE [key:10 [key:19 LIMIT 4"), Value::Int(4));
    assert_eq!(client.run("DELRANGE - (key:40"), Value::Int(36));
    client.run("MULTI");
    client.run("SET key:000 new");
    client.run("DELRANGE - [key:41");
    client.run("RANGECOUNT - +");
    let replies = vec![Value::ok(), Value::Int(3), Value::Int(9)];
    assert_eq!(client.run("EXEC"), Value::Array(replies));
    assert_eq!(client.run("DBSIZE"), Value::Int(9));
}

#[test]
fn scans_meet_every_key_once() {
    let (_dir, _server, mut client) = start();
    for i in 0..500 {
        client.run(&format!("SET k{i} v"));
    }
    let (mut cursor, mut seen) = ("0".to_owned(), Vec::new());
    loop {
        let Value::Array(reply) = client.run(&format!("SCAN {cursor} COUNT 37 MATCH k*")) else {
            panic!("no page")
        };
        let Value::Array(keys) = &reply[1] else { panic!("no keys") };
        seen.extend(keys.iter().map(Value::text));
        cursor = reply[0].text();
        if cursor == "0" {
            break;
        }
        // Writes between the pages change nothing about the keys that stay.
        client.run(&format!("SET new{cursor} v"));
        client.run(&format!("DEL new{cursor}"));
    }
    assert_eq!(seen.len(), 500);
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 500);
    assert_eq!(client.run("SCAN 98x"), Value::Error("ERR invalid cursor".into()));
}

fn with_password(limits: Limits) -> (tempfile::TempDir, Running, Client) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("password");
    std::fs::write(&file, "secret\n").unwrap();
    let settings = Config { requirepass_file: Some(file), limits, ..config(&dir) };
    let server = Running::start(settings).unwrap();
    let client = Client::connect(server.address());
    (dir, server, client)
}

#[test]
fn a_password_is_needed() {
    let (_dir, _server, mut client) = with_password(Limits::default());
    let refused = Value::Error("NOAUTH Authentication required.".into());
    for command in ["GET a", "SET a 1", "PING", "CONFIG GET *", "MULTI", "CLIENT LIST"] {
        assert_eq!(client.run(command), refused, "{command}");
    }
    assert!(matches!(client.run("HELLO 3"), Value::Error(text) if text.starts_with("NOAUTH")));
    assert!(
        matches!(client.run("AUTH wrong"), Value::Error(text) if text.starts_with("WRONGPASS"))
    );
    assert!(
        matches!(client.run("AUTH other secret"), Value::Error(text) if text.starts_with("WRONGPASS"))
    );
    assert_eq!(client.run("GET a"), refused);
    // What follows the password in one write may be large.
    let large = vec![b'x'; 100_000];
    let bytes = [encode(&[b"AUTH", b"secret"]), encode(&[b"SET", b"a", &large])].concat();
    client.send_raw(&bytes).unwrap();
    assert_eq!((client.reply(), client.reply()), (Some(Value::ok()), Some(Value::ok())));
    assert_eq!(client.run("STRLEN a"), Value::Int(100_000));
    client.run("RESET");
    assert_eq!(client.run("GET a"), refused);
    assert!(matches!(client.run("HELLO 3 AUTH default secret SETNAME me"), Value::Map(_)));
    assert_eq!(client.run("CLIENT GETNAME"), Value::bulk("me"));
}

#[test]
fn strangers_may_send_little() {
    let (_dir, server, _) = with_password(Limits::default());
    for hostile in [
        &b"*11\r\n"[..],
        b"*2\r\n$3\r\nGET\r\n$20000\r\n",
        b"*1\r\n$536870912\r\n",
        &[b'a'; 40_000],
        &b"*10\r\n$16000\r\n".iter().copied().chain([b'x'; 60_000]).collect::<Vec<_>>(),
    ] {
        let mut client = Client::connect(server.address());
        // The server may close while this is written.
        let _ = client.send_raw(hostile);
        if let Some(Value::Error(text)) = client.reply() {
            assert!(text.contains("Protocol error") || text.contains("NOAUTH"), "{text}");
        }
        while client.reply().is_some() {}
    }
}

#[test]
fn hostile_clients_are_closed_and_others_are_served() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits {
        clients: 8,
        query_bytes: 1 << 20,
        reply_bytes: 1 << 20,
        stall_seconds: 1,
        ..Limits::default()
    };
    let server = Running::start(Config { limits, ..config(&dir) }).unwrap();
    let mut healthy = Client::connect(server.address());
    healthy.call_bytes(&[b"SET", b"large", &vec![b'x'; 900_000]]);
    // A header without its body, a command drop by drop, replies that nobody reads.
    let mut promised = Client::connect(server.address());
    promised.send_raw(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$536870912\r\n").unwrap();
    let mut slow = Client::connect(server.address());
    slow.send_raw(b"*1\r\n$4\r\nPI").unwrap();
    let mut hoarder = TcpStream::connect(server.address()).unwrap();
    hoarder.write_all(&encode(&[b"GET", b"large"]).repeat(200)).unwrap();
    wait_until(|| healthy.run("CLIENT LIST").text().lines().count() == 1);
    assert!(promised.reply().is_none() && slow.reply().is_none());
    // A query past its limit, and a reply past its own.
    let mut large = Client::connect(server.address());
    let _ = large.send_raw(&[&b"*2\r\n$3\r\nGET\r\n$5000000\r\n"[..], &[b'x'; 3_000_000]].concat());
    while large.reply().is_some() {}
    healthy.run("RPUSH l x");
    let mut wide = Client::connect(server.address());
    let many = ["large"; 3];
    let reply = wide.call(&[&["MGET"], &many[..]].concat());
    assert_eq!(reply, Value::Error("ERR the reply is larger than the server sends".into()));
    assert!(wide.reply().is_none());
    assert_eq!(healthy.run("LLEN l"), Value::Int(1));
    // One more than may come.
    wait_until(|| healthy.run("CLIENT LIST").text().lines().count() == 1);
    let _others: Vec<Client> = (0..7)
        .map(|_| {
            let mut client = Client::connect(server.address());
            client.run("PING");
            client
        })
        .collect();
    let mut refused = Client::connect(server.address());
    assert_eq!(refused.reply(), Some(Value::Error("ERR max number of clients reached".into())));
}

#[test]
fn clients_see_and_end_each_other() {
    let (_dir, server, mut client) = start();
    let mut other = Client::connect(server.address());
    other.run("CLIENT SETNAME victim");
    let id = match other.run("CLIENT ID") {
        Value::Int(id) => id,
        reply => panic!("{reply:?}"),
    };
    let list = client.run("CLIENT LIST").text();
    assert!(list.contains("name=victim") && list.lines().count() == 2, "{list}");
    assert_eq!(client.run(&format!("CLIENT KILL ID {id}")), Value::Int(1));
    assert!(other.reply().is_none());
    assert_eq!(client.run("CLIENT NO-EVICT on"), Value::ok());
    assert_eq!(client.run("CLIENT SETINFO lib-name mine"), Value::ok());
    assert!(client.run("CLIENT INFO").text().contains("lib-name=mine"));
    assert!(matches!(client.run("COMMAND COUNT"), Value::Int(100..)));
    assert_eq!(client.run("CONFIG SET appendfsync always"), Value::ok());
    assert_eq!(client.run("SET a 1"), Value::ok());
    assert_eq!(client.run("CONFIG GET appendfs*"), Value::bulks(&["appendfsync", "always"]));
}

#[test]
fn a_unix_socket_serves_and_goes_away() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let settings = Config { unix: Some(path.clone()), ..config(&dir) };
    let server = Running::start(settings).unwrap();
    let mut socket = std::os::unix::net::UnixStream::connect(&path).unwrap();
    socket.write_all(b"PING\r\n").unwrap();
    let mut reply = [0; 7];
    socket.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+PONG\r\n");
    server.stop().unwrap();
    assert!(!path.exists());
}

#[test]
fn monitors_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Config { metrics: Some(([127, 0, 0, 1], 0).into()), ..config(&dir) };
    let server = Running::start(settings).unwrap();
    let mut client = Client::connect(server.address());
    (0..10).for_each(|_| {
        client.run("SET a 1");
    });
    let address = server.metrics_address().unwrap();
    let get = |path: &str| {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
        let mut text = String::new();
        socket.read_to_string(&mut text).unwrap();
        text
    };
    let metrics = get("/metrics");
    assert!(metrics.contains("rhumb_commands_total{command=\"set\"} 10\n"), "{metrics}");
    assert!(metrics.contains("rhumb_connections 1\n"));
    assert!(get("/healthz").ends_with("\r\n\r\nok\n"));
    assert!(get("/").contains("<title>Rhumb</title>"));
    assert!(get("/status.json").contains("\"commands_total\":10"));
    assert!(get("/nothing").starts_with("HTTP/1.1 404"));
}

#[test]
fn a_drained_server_answers_what_it_has_read() {
    let (dir, server, mut client) = start();
    let server = Arc::new(server);
    client.run("SET a 1");
    client.send_raw(&encode(&[b"SHUTDOWN"])).unwrap();
    assert!(client.reply().is_none());
    wait_until(|| TcpStream::connect(server.address()).is_err());
    drop(server);
    let server = Running::start(config(&dir)).unwrap();
    assert_eq!(Client::connect(server.address()).run("GET a"), Value::bulk("1"));
}
