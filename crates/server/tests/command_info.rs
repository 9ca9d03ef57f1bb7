//! What programs ask a server of its commands and clients before they do anything: `COMMAND`,
//! `CLIENT LIST`, `CLIENT KILL`, and the replies of `DEBUG PROTOCOL`.

mod common;

use common::{Client, Value};
use rhumb_server::{DebugCommand, Running};

/// The items of an array.
#[track_caller]
fn items(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items,
        other => panic!("no array: {other:?}"),
    }
}

/// A reply as one line of words, arrays in brackets.
fn flat(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(flat).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Int(number) => number.to_string(),
        other => other.text(),
    }
}

/// The elements that `COMMAND INFO` gives of a command.
fn info(client: &mut Client, name: &str) -> Vec<String> {
    let mut all = items(client.call(&["COMMAND", "INFO", name]));
    items(all.remove(0)).iter().map(flat).collect()
}

#[test]
fn commands_tell_where_their_keys_are_and_what_is_done_with_them() {
    let (_dir, _server, mut client) = common::start();
    let range = |index: i32, last: i32, step: i32| {
        format!(
            "[begin_search [type index spec [index {index}]] find_keys \
             [type range spec [lastkey {last} keystep {step} limit 0]]]"
        )
    };
    let with = |flags: &str, range: String| format!("[flags [{flags}] {}", &range[1..]);
    let cases = [
        ("get", vec![with("RO access", range(1, 0, 1))]),
        ("mset", vec![with("OW update", range(1, -1, 2))]),
        (
            "rename",
            vec![with("RW access delete", range(1, 0, 1)), with("OW update", range(2, 0, 1))],
        ),
        (
            "sunionstore",
            vec![with("OW update", range(1, 0, 1)), with("RO access", range(2, -1, 1))],
        ),
        ("ping", vec![]),
    ];
    for (name, expected) in cases {
        let found = info(&mut client, name);
        assert_eq!(found.len(), 10, "{name}");
        assert_eq!(found[8], format!("[{}]", expected.join(" ")), "{name}");
    }
    let zunionstore = info(&mut client, "zunionstore");
    assert!(zunionstore[2].contains("movablekeys"), "{zunionstore:?}");
    let keynum = "[type index spec [index 2]] find_keys \
                  [type keynum spec [keynumidx 0 firstkey 1 keystep 1]]";
    assert!(zunionstore[8].contains(keynum), "{zunionstore:?}");
    let xread = info(&mut client, "xread");
    assert!(xread[8].contains("[keyword STREAMS startfrom 1]"), "{xread:?}");
    assert!(xread[8].contains("[lastkey -1 keystep 1 limit 2]"), "{xread:?}");
    assert_eq!(info(&mut client, "spop")[7], "[nondeterministic_output]");
    let config = info(&mut client, "config");
    assert!(config[9].contains("[config|get -3 ["), "{config:?}");
    assert_eq!(info(&mut client, "config|get")[..2], ["config|get", "-3"]);
    for unknown in ["nothing", "config|nothing"] {
        let reply = client.call(&["COMMAND", "INFO", unknown]);
        assert_eq!(reply, Value::Array(vec![Value::NullArray]), "{unknown}");
    }
    let docs = flat(&client.run("COMMAND DOCS xautoclaim hexpire"));
    assert!(docs.contains("since 6.2.0") && docs.contains("since 7.4.0"), "{docs}");
}

#[test]
fn keys_of_calls_come_with_what_is_done_with_them() {
    let (_dir, _server, mut client) = common::start();
    for (call, expected) in [
        ("set a b", "[[a [OW update]]]"),
        ("set a b get", "[[a [RW access update]]]"),
        ("mset a 1 b 2", "[[a [OW update]] [b [OW update]]]"),
        ("lmove a b left right", "[[a [RW access delete]] [b [RW insert]]]"),
        ("sunionstore a b c", "[[a [OW update]] [b [RO access]] [c [RO access]]]"),
        ("zunionstore a 2 b c", "[[a [OW update]] [b [RO access]] [c [RO access]]]"),
        ("sort a by x store b", "[[a [RO access]] [b [OW update]]]"),
        ("bitfield a get u8 0", "[[a [RO access]]]"),
        ("eval x 0", "[]"),
    ] {
        let reply = client.run(&format!("COMMAND GETKEYSANDFLAGS {call}"));
        assert_eq!(flat(&reply), expected, "{call}");
    }
    for (call, expected) in [
        ("GETKEYSANDFLAGS nothing a", "ERR Invalid command specified"),
        ("GETKEYSANDFLAGS get", "ERR Invalid number of arguments specified for command"),
        ("GETKEYS ping", "ERR The command has no key arguments"),
    ] {
        let reply = client.run(&format!("COMMAND {call}"));
        assert_eq!(reply, Value::Error(expected.into()), "{call}");
    }
}

#[test]
fn a_client_is_described_with_what_it_has_sent_and_ended_by_its_age() {
    let (_dir, server, mut client) = common::start();
    let line = client.run("CLIENT INFO").text();
    // The bytes of the command itself.
    assert!(line.contains(" qbuf=26 qbuf-free="), "{line}");
    assert!(line.contains(" redir=-1 resp=2 lib-name= lib-ver="), "{line}");
    let mut other = Client::connect(server.address());
    other.run("PING");
    assert_eq!(client.run("CLIENT KILL MAXAGE 1000"), Value::Int(0));
    let wrong = Value::Error("ERR maxage is not an integer or out of range".into());
    for age in ["0", "-1", "x"] {
        assert_eq!(client.run(&format!("CLIENT KILL MAXAGE {age}")), wrong, "{age}");
    }
    assert_eq!(other.run("PING"), Value::Simple("PONG".into()));
    common::wait_until(|| client.run("CLIENT KILL MAXAGE 1") == Value::Int(1));
    assert!(other.reply().is_none());
}

#[test]
fn each_type_of_reply_can_be_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let config =
        rhumb_server::Config { enable_debug_command: DebugCommand::Yes, ..common::config(&dir) };
    let server = Running::start(config).unwrap();
    let mut client = Client::connect(server.address());
    let ints = || vec![Value::Int(0), Value::Int(1), Value::Int(2)];
    for (kind, expected) in [
        ("string", Value::bulk("Hello World")),
        ("integer", Value::Int(12_345)),
        ("double", Value::bulk("3.141")),
        ("null", Value::Null),
        ("set", Value::Array(ints())),
        ("true", Value::Int(1)),
        ("false", Value::Int(0)),
        ("attrib", Value::bulk("Some real reply following the attribute")),
        ("bignum", Value::bulk("1234567999999999999999999999999999999")),
        ("push", Value::Error("ERR RESP2 is not supported by this command".into())),
    ] {
        assert_eq!(client.call(&["DEBUG", "PROTOCOL", kind]), expected, "{kind}");
    }
    client.run("HELLO 3");
    for (kind, expected) in [
        ("double", Value::Double("3.141".into())),
        ("set", Value::Set(ints())),
        ("verbatim", Value::Verbatim("txt:This is a verbatim\nstring".into())),
        ("push", Value::bulk("Some real reply following the push reply")),
    ] {
        assert_eq!(client.call(&["DEBUG", "PROTOCOL", kind]), expected, "{kind}");
    }
    let pushed = client.reply().unwrap();
    assert_eq!(pushed, Value::Push(vec![Value::bulk("server-cpu-usage"), Value::Int(42)]));
}

#[test]
fn monitors_do_not_see_passwords() {
    let (_dir, server, mut client) = common::start();
    let mut monitor = Client::connect(server.address());
    assert_eq!(monitor.run("MONITOR"), Value::ok());
    client.run("MIGRATE 127.0.0.1 1 key 9 1000 AUTH secret");
    client.run("MIGRATE 127.0.0.1 1 key 9 1000 AUTH2 secret secret");
    client.run("AUTH secret");
    client.run("HELLO 2 AUTH secret secret");
    for _ in 0..4 {
        let line = monitor.reply().unwrap().text();
        assert!(line.contains("(redacted)") && !line.contains("secret"), "{line}");
    }
}

#[test]
fn what_clients_wait_for_and_listen_to_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let config =
        rhumb_server::Config { metrics: Some(([127, 0, 0, 1], 0).into()), ..common::config(&dir) };
    let server = Running::start(config).unwrap();
    let mut client = Client::connect(server.address());
    let mut subscriber = Client::connect(server.address());
    subscriber.run("SUBSCRIBE c");
    assert_eq!(client.run("PUBLISH c text"), Value::Int(1));
    assert_eq!(client.run("PUBLISH nobody text"), Value::Int(0));
    client.call(&["EVAL", "return 1", "0"]);
    let mut waiter = Client::connect(server.address());
    waiter.send_raw(&common::encode(&[b"BLPOP", b"a", b"b", b"0"])).unwrap();
    let mut tracker = Client::connect(server.address());
    tracker.run("HELLO 3");
    tracker.run("CLIENT TRACKING ON");
    tracker.run("GET x");
    let expected = [
        "rhumb_blocked_connections 1",
        "rhumb_awaited_keys 2",
        "rhumb_subscribers 1",
        "rhumb_channels{kind=\"channel\"} 1",
        "rhumb_messages_published_total 2",
        "rhumb_messages_delivered_total 1",
        "rhumb_tracking_connections 1",
        "rhumb_tracked_keys 1",
        "rhumb_monitors 0",
        "rhumb_scripts 1",
        "rhumb_scripts_running 0",
        "rhumb_copies_total 0",
    ];
    common::wait_until(|| {
        let text = common::http(&server, "/metrics").1;
        expected.iter().all(|line| text.lines().any(|found| found == *line))
    });
}

#[test]
fn what_a_transaction_has_queued_is_told_of_in_bytes() {
    let (_dir, server, mut client) = common::start();
    let mut other = Client::connect(server.address());
    client.run("CLIENT SETNAME queueing");
    let told = |other: &mut Client| {
        let list = other.run("CLIENT LIST").text();
        let line = list.lines().find(|line| line.contains("name=queueing")).unwrap().to_owned();
        let field = |name: &str| {
            let value = line.split(' ').find_map(|field| field.strip_prefix(name)).unwrap();
            value.parse::<i64>().unwrap()
        };
        [field("multi="), field("multi-mem="), field("tot-mem=")]
    };
    assert_eq!(told(&mut other)[..2], [-1, 0]);
    client.run("MULTI");
    assert_eq!(told(&mut other)[..2], [0, 0]);
    client.call(&["SET", "k", &"v".repeat(10_000)]);
    let [count, queued, all] = told(&mut other);
    assert!(count == 1 && (10_000..11_000).contains(&queued) && all >= queued, "{queued} {all}");
    client.run("EXEC");
    assert_eq!(told(&mut other)[..2], [-1, 0]);
}
