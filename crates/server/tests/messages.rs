//! Messages between clients: who gets which, in which order, and what becomes of clients that do
//! not take theirs.

mod common;

use std::{net::SocketAddr, time::Duration};

use common::{Client, Value, config, encode, start, wait_until};
use rhumb_server::{Config, Limits, Running};

/// A message of RESP2.
fn message(parts: &[&str]) -> Value {
    Value::bulks(parts)
}

/// A message of RESP3.
fn push(parts: &[&str]) -> Value {
    Value::Push(parts.iter().map(Value::bulk).collect())
}

fn changed(word: &str, name: &str, left: i64) -> Value {
    Value::Array(vec![Value::bulk(word), Value::bulk(name), Value::Int(left)])
}

fn client3(address: SocketAddr) -> Client {
    let mut client = Client::connect(address);
    client.run("HELLO 3");
    client
}

fn info(client: &mut Client, name: &str) -> u64 {
    let text = client.run("INFO").text();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
    line.unwrap_or_else(|| panic!("INFO says nothing of {name}")).parse().unwrap()
}

/// Sends a pipeline and reads this number of replies and messages.
fn pipeline(client: &mut Client, lines: &[&str], replies: usize) -> Vec<Value> {
    let bytes = lines
        .iter()
        .flat_map(|line| encode(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>()));
    client.send_raw(&bytes.collect::<Vec<u8>>()).unwrap();
    (0..replies).map(|_| client.reply().expect("the server replies")).collect()
}

#[test]
fn subscribers_of_both_protocols_get_what_is_published() {
    let (_dir, server, mut publisher) = start();
    let mut old = Client::connect(server.address());
    assert_eq!(old.run("SUBSCRIBE a"), changed("subscribe", "a", 1));
    assert_eq!(old.run("PSUBSCRIBE [ab]"), changed("psubscribe", "[ab]", 2));
    let mut new = client3(server.address());
    let told = Value::Push(vec![Value::bulk("subscribe"), Value::bulk("a"), Value::Int(1)]);
    assert_eq!(new.run("SUBSCRIBE a"), told);
    assert_eq!(publisher.run("PUBLISH a x"), Value::Int(3));
    assert_eq!(publisher.run("PUBLISH b y"), Value::Int(1));
    assert_eq!(publisher.run("PUBLISH c z"), Value::Int(0));
    assert_eq!(old.reply(), Some(message(&["message", "a", "x"])));
    assert_eq!(old.reply(), Some(message(&["pmessage", "[ab]", "a", "x"])));
    assert_eq!(old.reply(), Some(message(&["pmessage", "[ab]", "b", "y"])));
    assert_eq!(new.reply(), Some(push(&["message", "a", "x"])));
    // Shard channels are others.
    assert_eq!(old.run("SSUBSCRIBE a"), changed("ssubscribe", "a", 1));
    assert_eq!(publisher.run("SPUBLISH a s"), Value::Int(1));
    assert_eq!(old.reply(), Some(message(&["smessage", "a", "s"])));
    assert_eq!(publisher.run("PUBSUB NUMSUB a b").text_of(1), Value::Int(2));
    let list = publisher.run("CLIENT LIST TYPE pubsub").text();
    assert!(list.contains("flags=P db=0 sub=1 psub=1 ssub=1"), "{list}");
    assert_eq!(list.lines().count(), 2);
}

impl Value {
    fn text_of(&self, at: usize) -> Self {
        match self {
            Self::Array(items) => items[at].clone(),
            other => panic!("no array: {other:?}"),
        }
    }
}

#[test]
fn an_old_subscriber_may_send_little_and_leaves_by_reset() {
    let (_dir, _server, mut client) = start();
    client.run("SUBSCRIBE a");
    assert_eq!(client.run("PING"), message(&["pong", ""]));
    assert!(client.run("GET a").text().starts_with("ERR Can't execute 'get': only"));
    assert!(client.run("CLIENT LIST").text().starts_with("ERR Can't execute 'client|list'"));
    assert_eq!(client.run("GET").text(), "ERR wrong number of arguments for 'get' command");
    assert_eq!(client.run("RESET").text(), "RESET");
    assert_eq!(client.run("GET a"), Value::Null);
    client.run("SUBSCRIBE a");
    assert_eq!(client.run("UNSUBSCRIBE"), changed("unsubscribe", "a", 0));
    assert_eq!(client.run("PING").text(), "PONG");
    assert_eq!(client.run("PUBLISH a x"), Value::Int(0));
}

#[test]
fn what_a_command_sends_to_its_own_client_comes_after_its_reply() {
    let (_dir, server, _client) = start();
    let mut client = client3(server.address());
    client.run("SUBSCRIBE a");
    let lines = ["PUBLISH a 1", "PING", "PUBLISH a 2", "UNSUBSCRIBE a", "PUBLISH a 3", "PING"];
    let got = pipeline(&mut client, &lines, 8);
    let left = Value::Push(vec![Value::bulk("unsubscribe"), Value::bulk("a"), Value::Int(0)]);
    let pong = Value::Simple("PONG".to_owned());
    let expected = [
        Value::Int(1),
        push(&["message", "a", "1"]),
        pong.clone(),
        Value::Int(1),
        push(&["message", "a", "2"]),
        left,
        Value::Int(0),
        pong,
    ];
    assert_eq!(got, expected);
}

#[test]
fn a_transaction_publishes_once_it_is_committed() {
    let (_dir, server, mut publisher) = start();
    let mut subscriber = Client::connect(server.address());
    subscriber.run("SUBSCRIBE a");
    pipeline(&mut publisher, &["MULTI", "PUBLISH a lost", "DISCARD"], 3);
    publisher.run("CONFIG SET notify-keyspace-events K$");
    subscriber.run("SUBSCRIBE __keyspace@0__:k");
    let lines = ["MULTI", "PUBLISH a 1", "SET k v", "LPUSH k x", "PUBLISH a 2", "EXEC"];
    let got = pipeline(&mut publisher, &lines, 6);
    let Value::Array(replies) = &got[5] else { panic!("{got:?}") };
    assert_eq!(
        (&replies[0], &replies[1], &replies[3]),
        (&Value::Int(1), &Value::ok(), &Value::Int(1))
    );
    assert_eq!(subscriber.reply(), Some(message(&["message", "a", "1"])));
    assert_eq!(subscriber.reply(), Some(message(&["message", "__keyspace@0__:k", "set"])));
    assert_eq!(subscriber.reply(), Some(message(&["message", "a", "2"])));
}

#[test]
fn a_slow_subscriber_gets_everything_in_order() {
    let (_dir, server, mut publisher) = start();
    let mut subscriber = Client::connect(server.address());
    subscriber.run("SUBSCRIBE a");
    let (small, large) = ("x".repeat(300), "y".repeat(40_000));
    let text = |n: usize| format!("{n}:{}", if n % 100 == 7 { &large } else { &small });
    // More than the buffers of the sockets, and less than a subscriber may leave.
    for n in 0..10_000 {
        assert_eq!(publisher.call(&["PUBLISH", "a", &text(n)]), Value::Int(1));
    }
    assert!(info(&mut publisher, "used_memory_messages") > 0);
    for n in 0..10_000 {
        assert_eq!(subscriber.reply(), Some(message(&["message", "a", &text(n)])), "{n}");
    }
    wait_until(|| info(&mut publisher, "used_memory_messages") == 0);
    assert_eq!(info(&mut publisher, "client_output_buffer_limit_disconnections"), 0);
}

#[test]
fn a_subscriber_that_never_reads_is_dropped_and_the_others_get_everything() {
    let (_dir, server, mut publisher) = start();
    publisher.call(&["CONFIG", "SET", "client-output-buffer-limit", "pubsub 2mb 0 0"]);
    let mut hostile: Vec<Client> = (0..20).map(|_| Client::connect(server.address())).collect();
    hostile.iter_mut().for_each(|client| {
        client.run("SUBSCRIBE a");
    });
    let mut good = Client::connect(server.address());
    good.run("SUBSCRIBE a");
    let text = "x".repeat(20_000);
    let mut published = 0;
    while publisher.call(&["PUBLISH", "a", &text]) != Value::Int(1) {
        published += 1;
        assert_eq!(good.reply(), Some(message(&["message", "a", &text])));
        assert!(published < 5000, "subscribers that never read stay");
    }
    wait_until(|| info(&mut publisher, "pubsub_clients") == 1);
    assert_eq!(info(&mut publisher, "client_output_buffer_limit_disconnections"), 20);
    assert_eq!(good.reply(), Some(message(&["message", "a", &text])));
    wait_until(|| info(&mut publisher, "used_memory_messages") == 0);
}

#[test]
fn all_messages_together_have_a_limit() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { buffers_bytes: 8 << 20, ..Limits::default() };
    let server = Running::start(Config { limits, ..config(&dir) }).unwrap();
    let mut publisher = Client::connect(server.address());
    let mut hostile: Vec<Client> = (0..10).map(|_| Client::connect(server.address())).collect();
    // Each has another channel, so that no message is shared.
    for (n, client) in hostile.iter_mut().enumerate() {
        client.run(&format!("SUBSCRIBE {n}"));
    }
    let text = "x".repeat(20_000);
    for round in 0..3000 {
        publisher.call(&["PUBLISH", &(round % 10).to_string(), &text]);
    }
    assert!(info(&mut publisher, "used_memory_messages") < 6 << 20);
    assert!(info(&mut publisher, "client_output_buffer_limit_disconnections") > 0);
    assert_eq!(publisher.run("PING").text(), "PONG");
}

#[test]
fn many_channels_come_and_go() {
    let (_dir, server, mut publisher) = start();
    let names: Vec<String> = (0..20_000).map(|n| format!("channel:{n}")).collect();
    let mut words = vec!["SUBSCRIBE"];
    words.extend(names.iter().map(String::as_str));
    let mut subscribers: Vec<Client> = (0..3).map(|_| Client::connect(server.address())).collect();
    for subscriber in &mut subscribers {
        assert_eq!(subscriber.call(&words), changed("subscribe", "channel:0", 1));
        (1..names.len()).for_each(|_| assert!(subscriber.reply().is_some()));
    }
    assert_eq!(info(&mut publisher, "pubsub_channels"), 20_000);
    for n in (0..20_000).step_by(997) {
        assert_eq!(publisher.run(&format!("PUBLISH channel:{n} x")), Value::Int(3));
        for subscriber in &mut subscribers {
            let expected = message(&["message", &format!("channel:{n}"), "x"]);
            assert_eq!(subscriber.reply(), Some(expected));
        }
    }
    subscribers[0].run("UNSUBSCRIBE");
    (1..names.len()).for_each(|_| assert!(subscribers[0].reply().is_some()));
    assert_eq!(subscribers[0].run("PING").text(), "PONG");
    assert_eq!(publisher.run("PUBLISH channel:5 x"), Value::Int(2));
    subscribers.clear();
    wait_until(|| info(&mut publisher, "pubsub_channels") == 0);
    assert_eq!(info(&mut publisher, "pubsub_clients"), 0);
}

#[test]
fn subscribers_may_be_killed_while_they_are_sent_messages() {
    let (_dir, server, mut other) = start();
    let address = server.address();
    let publisher = std::thread::spawn(move || {
        let mut publisher = Client::connect(address);
        (0..3000).for_each(|n| {
            publisher.run(&format!("PUBLISH a {n}"));
        });
    });
    for _ in 0..30 {
        let mut subscriber = Client::connect(address);
        let id = match subscriber.run("CLIENT ID") {
            Value::Int(id) => id,
            other => panic!("{other:?}"),
        };
        subscriber.run("SUBSCRIBE a");
        assert_eq!(other.run(&format!("CLIENT KILL ID {id}")), Value::Int(1));
        let mut last = -1;
        while let Some(message) = subscriber.reply() {
            let n: i64 = message.text_of(2).text().parse().unwrap();
            assert!(last < 0 || n == last + 1, "{n} after {last}");
            last = n;
        }
    }
    publisher.join().unwrap();
    wait_until(|| info(&mut other, "pubsub_channels") == 0);
    assert_eq!(other.run("PUBLISH a x"), Value::Int(0));
    wait_until(|| info(&mut other, "used_memory_messages") == 0);
}

#[test]
fn subscribers_of_a_channel_see_the_same_order() {
    let (_dir, server, _client) = start();
    let address = server.address();
    let mut subscribers: Vec<Client> = (0..3).map(|_| client3(address)).collect();
    subscribers.iter_mut().for_each(|client| {
        client.run("SUBSCRIBE a");
    });
    let publishers = (0..4).map(|who| {
        std::thread::spawn(move || {
            let mut publisher = Client::connect(address);
            (0..500).for_each(|n| {
                publisher.run(&format!("PUBLISH a {who}:{n}"));
            });
        })
    });
    publishers.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
    let mut all = subscribers
        .iter_mut()
        .map(|client| (0..2000).map(|_| client.reply().unwrap()).collect::<Vec<_>>());
    let first = all.next().unwrap();
    assert!(all.all(|other| other == first));
}

#[test]
fn events_come_in_the_order_of_a_keys_writes() {
    let (_dir, server, mut client) = start();
    let address = server.address();
    let mut subscriber = Client::connect(address);
    subscriber.run("SUBSCRIBE __keyspace@0__:k __keyevent@0__:expired");
    subscriber.reply();
    assert_eq!(client.run("CONFIG SET notify-keyspace-events KEA"), Value::ok());
    assert_eq!(client.run("CONFIG GET notify-keyspace-events").text_of(1), Value::bulk("AKE"));
    client.run("SET k v");
    assert_eq!(subscriber.reply(), Some(message(&["message", "__keyspace@0__:k", "set"])));
    // As a run of overwrites, and in a commit group.
    pipeline(&mut client, &["SET k 1", "SET k 2", "MSET k 3 l 4"], 3);
    for _ in 0..3 {
        assert_eq!(subscriber.reply(), Some(message(&["message", "__keyspace@0__:k", "set"])));
    }
    client.run("PSETEX gone 20 x");
    assert_eq!(
        subscriber.reply(),
        Some(message(&["message", "__keyevent@0__:expired", "gone"])),
        "the sweeper tells of what has ended"
    );
    client.run("CONFIG SET notify-keyspace-events K$");
    client.run("SELECT 1");
    client.run("SET k other-database");
    client.run("SELECT 0");
    client.run("SET k v");
    assert_eq!(subscriber.reply(), Some(message(&["message", "__keyspace@0__:k", "set"])));
    client.call(&["CONFIG", "SET", "notify-keyspace-events", ""]);
    client.run("SET k v");
    client.run("CONFIG SET notify-keyspace-events Kmn");
    client.run("GET k");
    client.run("DEL k");
    client.run("GET k");
    client.run("SET k v");
    assert_eq!(subscriber.reply(), Some(message(&["message", "__keyspace@0__:k", "keymiss"])));
    assert_eq!(subscriber.reply(), Some(message(&["message", "__keyspace@0__:k", "new"])));
    let wrong = client.run("CONFIG SET notify-keyspace-events q").text();
    assert!(wrong.contains("Invalid event class character"), "{wrong}");
}

#[test]
fn monitors_see_commands_and_no_passwords() {
    let (_dir, server, mut client) = start();
    let mut monitor = Client::connect(server.address());
    assert_eq!(monitor.run("MONITOR"), Value::ok());
    client.call(&["SET", "a", "b\"\n\u{7f}"]);
    client.run("AUTH secret");
    client.run("HELLO 2 AUTH default secret");
    client.run("CONFIG GET port");
    client.run("NOSUCH x");
    pipeline(&mut client, &["MULTI", "GET a", "EXEC"], 3);
    pipeline(&mut client, &["GET a", "GET b"], 2);
    let mut seen = || {
        let line = monitor.reply().unwrap().text();
        line.split_once("] ").expect("a line").1.to_owned()
    };
    assert_eq!(seen(), r#""SET" "a" "b\"\n\x7f""#);
    assert_eq!(seen(), r#""AUTH" "(redacted)""#);
    assert_eq!(seen(), r#""HELLO" "2" "AUTH" "(redacted)" "(redacted)""#);
    for expected in ["\"MULTI\"", "\"GET\" \"a\"", "\"EXEC\"", "\"GET\" \"a\"", "\"GET\" \"b\""] {
        assert_eq!(seen(), expected);
    }
    assert_eq!(monitor.run("GET a").text(), "ERR Replica can't interact with the keyspace");
    assert_eq!(monitor.run("RESET").text(), "RESET");
    client.run("PING");
    assert_eq!(monitor.run("GET b"), Value::Null);
}

#[test]
fn replies_may_be_left_out() {
    let (_dir, _server, mut client) = start();
    let lines = ["CLIENT REPLY SKIP", "SET a 1", "GET a"];
    assert_eq!(pipeline(&mut client, &lines, 1), [Value::bulk("1")]);
    let lines =
        ["CLIENT REPLY OFF", "SET a 2", "GET a", "NOSUCH", "INCR a", "CLIENT REPLY ON", "GET a"];
    assert_eq!(pipeline(&mut client, &lines, 2), [Value::ok(), Value::bulk("3")]);
    // Messages are no replies.
    let lines = ["CLIENT REPLY OFF", "SUBSCRIBE a", "PUBLISH a x", "UNSUBSCRIBE a"];
    let got = pipeline(&mut client, &lines, 2);
    assert_eq!(got, [changed("subscribe", "a", 1), changed("unsubscribe", "a", 0)]);
    assert_eq!(client.run("CLIENT REPLY ON"), Value::ok());
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(client.run("PING").text(), "PONG");
}
