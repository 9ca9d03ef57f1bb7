//! Keys that have ended while the sweeper rests, and transactions of clients that keep values.

mod common;

use common::{Client, Value, config, start, wait_until};
use rhumb_server::{Config, DebugCommand, Running};

fn start_with_debug() -> (tempfile::TempDir, Running, Client) {
    let dir = tempfile::tempdir().unwrap();
    let settings = Config { enable_debug_command: DebugCommand::Yes, ..config(&dir) };
    let server = Running::start(settings).unwrap();
    let client = Client::connect(server.address());
    (dir, server, client)
}

/// The message that a key is old.
fn invalidate(key: &str) -> Value {
    Value::Push(vec![Value::bulk("invalidate"), Value::bulks(&[key])])
}

#[test]
fn a_key_that_has_ended_stays_until_it_is_met_while_the_sweeper_rests() {
    let (_dir, server, mut client) = start_with_debug();
    let mut other = Client::connect(server.address());
    client.run("HELLO 3");
    client.run("CLIENT TRACKING ON");
    client.run("DEBUG SET-ACTIVE-EXPIRE 0");
    client.run("MSET x 1 y 2");
    client.run("PEXPIRE y 30");
    assert_eq!(client.run("MGET x y"), Value::Array(vec![Value::bulk("1"), Value::bulk("2")]));
    wait_until(|| other.run("INFO keyspace").text().contains("db0:keys=1,"));
    assert_eq!(other.run("DBSIZE"), Value::Int(2));
    let object = other.run("DEBUG OBJECT y").text();
    assert!(object.contains("encoding:int"), "{object}");
    assert_eq!(client.run("MGET x y"), Value::Array(vec![Value::bulk("1"), Value::Null]));
    assert_eq!(client.reply(), Some(invalidate("y")));
    assert_eq!(other.run("DBSIZE"), Value::Int(1));
    assert_eq!(other.run("DEBUG OBJECT y").text(), "ERR no such key");
    assert!(other.run("INFO stats").text().contains("expired_keys:1\r\n"));
}

#[test]
fn a_client_is_not_told_of_what_it_has_read_after_it_wrote_it() {
    let (_dir, server, mut writer) = start();
    let mut client = Client::connect(server.address());
    client.run("HELLO 3");
    client.run("CLIENT TRACKING ON");
    let transact = |client: &mut Client, commands: &[&str]| {
        client.run("MULTI");
        commands.iter().for_each(|command| drop(client.run(command)));
        client.run("EXEC")
    };
    let reply = transact(&mut client, &["SET a 1", "PEXPIRE a 100000", "GET a"]);
    assert_eq!(reply, Value::Array(vec![Value::ok(), Value::Int(1), Value::bulk("1")]));
    assert_eq!(client.run("PING").text(), "PONG");
    writer.run("SET a 2");
    assert_eq!(client.reply(), Some(invalidate("a")));
    // What it writes after that is news to what it has read.
    let reply = transact(&mut client, &["SET a 1", "GET a", "INCR a"]);
    assert_eq!(reply, Value::Array(vec![Value::ok(), Value::bulk("1"), Value::Int(2)]));
    assert_eq!(client.reply(), Some(invalidate("a")));
    let script = "redis.call('set', KEYS[1], 5) return redis.call('get', KEYS[1])";
    assert_eq!(client.call(&["EVAL", script, "1", "b"]), Value::bulk("5"));
    assert_eq!(client.run("PING").text(), "PONG");
    writer.run("SET b 2");
    assert_eq!(client.reply(), Some(invalidate("b")));
}

#[test]
fn a_reload_keeps_what_was_written() {
    let (_dir, _server, mut client) = start_with_debug();
    client.run("SET a 1");
    let library = "#!lua name=l\nredis.register_function('f', function() return 7 end)";
    client.call(&["FUNCTION", "LOAD", library]);
    for command in ["DEBUG RELOAD", "DEBUG RELOAD NOSAVE NOFLUSH MERGE", "DEBUG LOADAOF"] {
        assert_eq!(client.run(command), Value::ok(), "{command}");
    }
    assert_eq!(client.run("GET a"), Value::bulk("1"));
    assert_eq!(client.run("FCALL f 0"), Value::Int(7));
    let twice = client.run("DEBUG RELOAD NOFLUSH").text();
    assert_eq!(twice, "ERR Error trying to load the RDB dump, check server logs.");
    let unknown = client.run("DEBUG RELOAD NOW").text();
    assert!(unknown.contains("only supports the MERGE, NOFLUSH and NOSAVE"), "{unknown}");
}

/// Clients whose strings last for a few milliseconds, while the sweeper passes their times: each
/// end is told of once, and the count of keys is right.
#[test]
fn strings_that_hardly_last_end_once() {
    const CLIENTS: usize = 3;
    const KEYS: usize = 2000;
    let (_dir, server, mut client) = start();
    let address = server.address();
    client.run("CONFIG SET notify-keyspace-events Ex");
    assert_eq!(client.run("DBSIZE"), Value::Int(0));
    let mut subscriber = Client::connect(address);
    subscriber.run("SUBSCRIBE __keyevent@0__:expired");
    let writer = |of: usize| {
        let mut client = Client::connect(address);
        for n in 0..KEYS {
            let key = format!("{of}:{n}");
            client.run(&format!("SET {key} value PX {}", 1 + n % 4));
            match n % 3 {
                // It lasts longer, or has ended.
                0 => drop(client.run(&format!("PEXPIRE {key} {}", 2 + n % 7))),
                1 => drop(client.run(&format!("APPEND {key}:other more"))),
                _ => {}
            }
        }
    };
    let mut told: Vec<String> = std::thread::scope(|scope| {
        (0..CLIENTS).for_each(|of| drop(scope.spawn(move || writer(of))));
        let mut next = || match subscriber.reply() {
            Some(Value::Array(message)) => message[2].text(),
            other => panic!("no message: {other:?}"),
        };
        (0..CLIENTS * KEYS).map(|_| next()).collect()
    });
    told.sort_unstable();
    told.dedup();
    assert_eq!(told.len(), CLIENTS * KEYS);
    let others = (CLIENTS * (KEYS / 3)) as i64 + CLIENTS as i64 * i64::from(KEYS % 3 > 1);
    assert_eq!(client.run("DBSIZE"), Value::Int(others));
    let counted = format!("expired_keys:{}\r\n", CLIENTS * KEYS);
    assert!(client.run("INFO stats").text().contains(&counted));
    // None comes late for a second time.
    std::thread::sleep(std::time::Duration::from_millis(300));
    client.run("PUBLISH __keyevent@0__:expired last");
    assert!(
        subscriber.reply().is_some_and(|last| format!("{last:?}").contains("108, 97, 115, 116"))
    );
}
