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
