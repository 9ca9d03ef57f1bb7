//! Clients that write all their commands before they read a reply, clients that never read, and
//! browsers.

mod common;

use std::{
    io::{Read, Write},
    net::Shutdown,
};

use common::{Client, Value, config, encode, start, wait_until};
use rhumb_server::{Config, Limits, Running};

fn info(client: &mut Client, name: &str) -> usize {
    let text = client.run("INFO").text();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
    line.unwrap_or_else(|| panic!("INFO says nothing of {name}")).parse().unwrap()
}

fn start_limited(limits: Limits) -> (tempfile::TempDir, Running) {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(Config { limits, ..config(&dir) }).unwrap();
    (dir, server)
}

/// The large replies of a pipeline have at most this number of bytes together: half of what the
/// server keeps for a client.
const REPLY_BYTES_MAX: usize = 128 << 20;

/// `RHUMB_PIPELINE` says how many commands: 1,000,000 in the long form.
#[test]
fn a_client_may_write_all_before_it_reads() {
    let commands = std::env::var("RHUMB_PIPELINE").ok().and_then(|n| n.parse().ok());
    let commands: u32 = commands.unwrap_or(24_000);
    let (_dir, server, mut client) = start();
    let mut other = Client::connect(server.address());
    // Commands and replies are each more than all the buffers of the sockets, and the replies are
    // less than a client may leave unread.
    let large = "x".repeat(2000.min(REPLY_BYTES_MAX / commands as usize * 4));
    let mut bytes = Vec::new();
    for i in 0..commands {
        let (key, value) = (format!("k{}", i % 997), i.to_string());
        match i % 4 {
            0 => bytes.extend(encode(&[b"SET", key.as_bytes(), value.as_bytes()])),
            1 => bytes.extend(encode(&[b"INCR", b"n"])),
            2 => bytes.extend(encode(&[b"ECHO", large.as_bytes()])),
            _ => bytes.extend(encode(&[b"GET", b"n"])),
        }
    }
    client.send_raw(&bytes).expect("the server reads on though nobody reads its replies");
    for i in 0..commands {
        let expected = match i % 4 {
            0 => Value::ok(),
            1 => Value::Int(i64::from(i / 4 + 1)),
            2 => Value::bulk(&large),
            _ => Value::bulk((i / 4 + 1).to_string()),
        };
        assert_eq!(client.reply(), Some(expected), "reply {i}");
    }
    assert!(info(&mut other, "client_unsent_bytes_max") > 1 << 20);
    assert_eq!(info(&mut other, "client_unsent_bytes"), 0);
}

#[test]
fn a_client_that_never_reads_is_bounded_and_loses_nothing() {
    const VALUE: usize = 100_000;
    let output_bytes = 1 << 20;
    let (_dir, server) = start_limited(Limits { output_bytes, ..Limits::default() });
    let (mut client, mut other) =
        (Client::connect(server.address()), Client::connect(server.address()));
    let value = "v".repeat(VALUE);
    other.call(&["SET", "large", &value]);
    client.send_raw(&encode(&[b"GET", b"large"]).repeat(500)).unwrap();
    wait_until(|| info(&mut other, "client_unsent_bytes") > output_bytes);
    let list = other.run("CLIENT LIST").text();
    assert!(list.lines().any(|line| !line.contains(" omem=0 ")), "{list}");
    // At most what is written at a time on top: 64 KiB, and the reply that passes them.
    let most = output_bytes + (64 << 10) + VALUE + 100;
    assert!(info(&mut other, "client_unsent_bytes_max") <= most);
    for _ in 0..500 {
        assert_eq!(client.reply(), Some(Value::bulk(&value)));
    }
    assert!(info(&mut other, "client_unsent_bytes_max") <= most);
}

#[test]
fn clients_that_never_read_are_bounded_together() {
    const VALUE: usize = 20_000;
    let buffers_bytes = 4 << 20;
    let (_dir, server) = start_limited(Limits { buffers_bytes, ..Limits::default() });
    let mut other = Client::connect(server.address());
    other.call(&["SET", "large", &"v".repeat(VALUE)]);
    let mut hoarders: Vec<Client> = (0..8).map(|_| Client::connect(server.address())).collect();
    for hoarder in &mut hoarders {
        hoarder.send_raw(&encode(&[b"GET", b"large"]).repeat(1500)).unwrap();
    }
    wait_until(|| info(&mut other, "client_unsent_bytes") > buffers_bytes / 2);
    // Each may have a little in any case, and what is written at a time on top.
    let each = (256 << 10) + (64 << 10) + VALUE + 100;
    for hoarder in &mut hoarders {
        (0..1500).for_each(|_| assert_eq!(hoarder.reply().map(|r| r.text().len()), Some(VALUE)));
    }
    assert!(info(&mut other, "client_unsent_bytes_max") <= buffers_bytes / 2 + 8 * each);
    drop(hoarders);
    wait_until(|| info(&mut other, "client_unsent_bytes") == 0);
}

#[test]
fn what_transactions_keep_is_bounded_for_all_clients_together() {
    const VALUE: usize = 100_000;
    let buffers_bytes = 4 << 20;
    let (_dir, server) = start_limited(Limits { buffers_bytes, ..Limits::default() });
    let value = "v".repeat(VALUE);
    let (mut first, mut second) =
        (Client::connect(server.address()), Client::connect(server.address()));
    let queue = |client: &mut Client| {
        let sent = client.send_raw(&encode(&[b"SET", b"key", value.as_bytes()]));
        sent.ok().and_then(|()| client.reply()) == Some(Value::Simple("QUEUED".into()))
    };
    // Half of what all may keep.
    first.run("MULTI");
    let kept = buffers_bytes / VALUE / 2;
    assert!((0..kept).all(|_| queue(&mut first)));
    second.run("MULTI");
    let queued = (0..10 * kept).take_while(|_| queue(&mut second)).count();
    assert!((kept / 2..=kept + 3).contains(&queued), "{queued} are queued beside {kept}");
    // The one that came too far was closed, and the other goes on.
    assert_eq!(second.reply(), None);
    assert_eq!(first.run("EXEC"), Value::Array(vec![Value::ok(); kept]));
}

#[test]
fn who_has_sent_everything_gets_every_reply() {
    let (_dir, server, mut other) = start();
    other.call(&["SET", "large", &"v".repeat(50_000)]);
    let commands = encode(&[b"GET", b"large"]).repeat(400);
    for quits in [true, false] {
        let mut socket = Client::socket(server.address());
        socket.write_all(&commands).unwrap();
        let expected = 400 * (50_000 + 10) + if quits { 5 } else { 0 };
        if quits {
            socket.write_all(&encode(&[b"QUIT"])).unwrap();
        } else {
            socket.shutdown(Shutdown::Write).unwrap();
        }
        let mut all = Vec::new();
        socket.read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), expected);
    }
}

/// What a page makes a browser send: its body would be commands.
#[test]
fn a_browser_runs_no_command() {
    let (_dir, server, mut other) = start();
    other.run("SET kept 1");
    let body = "\r\nFLUSHALL\r\nSET page 1\r\n*3\r\n$3\r\nSET\r\n$4\r\npage\r\n$1\r\n1\r\n";
    let requests = [
        format!("POST / HTTP/1.1\r\nAccept: */*\r\n{body}"),
        format!("post / HTTP/1.0\r\n{body}"),
        format!("GET / HTTP/1.1\r\nHost: localhost:6380\r\n{body}"),
        format!("GET / HTTP/1.0\r\n{body}"),
        format!("PUT /x HTTP/1.1\r\n{body}"),
        format!("OPTIONS * HTTP/1.1\r\n{body}"),
        format!("PRI * HTTP/2.0\r\n{body}"),
        format!("Accept: */*\r\nHOST: localhost\r\n{body}"),
        format!("GET kept\r\nPOST / HTTP/1.1\r\n{body}"),
        format!("MULTI\r\nPOST / HTTP/1.1\r\n{body}EXEC\r\n"),
        format!("*1\r\n$4\r\nPOST\r\n{body}"),
    ];
    for (at, request) in requests.iter().enumerate() {
        for split in [1, 7, 4096] {
            let mut socket = Client::socket(server.address());
            for part in request.as_bytes().chunks(split) {
                // The server may have ended the connection already.
                if socket.write_all(part).is_err() {
                    break;
                }
            }
            let mut said = Vec::new();
            let _ = socket.read_to_end(&mut said);
            let said = String::from_utf8_lossy(&said);
            assert!(!said.contains("+OK\r\n+OK"), "{request:?} was answered {said:?}");
            assert_eq!(other.run("MGET kept page"), replies_of_kept(), "{request:?}");
        }
        assert_eq!(info(&mut other, "rejected_http_connections"), (at + 1) * 3);
    }
    // The same words as data are what they are.
    assert_eq!(other.call(&["ECHO", "POST / HTTP/1.1"]), Value::bulk("POST / HTTP/1.1"));
    assert_eq!(other.call(&["SET", "post", "HTTP/1.1"]), Value::ok());
    assert_eq!(other.call(&["GET", "post"]), Value::bulk("HTTP/1.1"));
}

fn replies_of_kept() -> Value {
    Value::Array(vec![Value::bulk("1"), Value::Null])
}
