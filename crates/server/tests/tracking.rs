//! Clients that keep values: none keeps an old one without being told.

mod common;

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use common::{Client, Value, start, wait_until};

fn client3(address: SocketAddr) -> Client {
    let mut client = Client::connect(address);
    client.run("HELLO 3");
    client
}

/// The message that keys are old.
fn invalidate(keys: &[&str]) -> Value {
    Value::Push(vec![Value::bulk("invalidate"), Value::bulks(keys)])
}

#[test]
fn a_key_that_was_read_is_told_of_once() {
    let (_dir, server, mut writer) = start();
    let mut reader = client3(server.address());
    assert_eq!(reader.run("CLIENT TRACKING ON"), Value::ok());
    assert_eq!(reader.run("MGET a b"), Value::Array(vec![Value::Null, Value::Null]));
    writer.run("MSET a 1 c 1");
    assert_eq!(reader.reply(), Some(invalidate(&["a"])));
    writer.run("SET a 2");
    // Within a transaction, and as the last of what belongs together.
    writer.run("MULTI");
    writer.run("INCR b");
    writer.run("INCR b");
    writer.run("EXEC");
    assert_eq!(reader.reply(), Some(invalidate(&["b"])));
    assert_eq!(reader.run("GET a"), Value::bulk("2"));
    writer.run("FLUSHALL");
    assert_eq!(reader.reply(), Some(Value::Push(vec![Value::bulk("invalidate"), Value::Null])));
    // Its own writes as well, after their replies.
    reader.run("GET a");
    assert_eq!(reader.run("SET a 1"), Value::ok());
    assert_eq!(reader.reply(), Some(invalidate(&["a"])));
    reader.run("GET a");
    writer.run("PEXPIRE a 20");
    assert_eq!(reader.reply(), Some(invalidate(&["a"])));
    reader.run("GET a");
    assert_eq!(reader.reply(), Some(invalidate(&["a"])), "a key that ends is old");
    assert_eq!(reader.run("CLIENT TRACKING OFF"), Value::ok());
    writer.run("SET a 3");
    assert_eq!(reader.run("GET a"), Value::bulk("3"));
}

#[test]
fn clients_choose_what_they_are_told() {
    let (_dir, server, mut writer) = start();
    let mut reader = client3(server.address());
    reader.run("CLIENT TRACKING ON BCAST PREFIX user: PREFIX item: NOLOOP");
    writer.run("MSET user:2 x user:1 x other x");
    assert_eq!(reader.reply(), Some(invalidate(&["user:1", "user:2"])));
    assert_eq!(reader.run("SET item:1 x"), Value::ok());
    writer.run("DEL item:1");
    assert_eq!(reader.reply(), Some(invalidate(&["item:1"])));
    let overlap = reader.run("CLIENT TRACKING ON BCAST PREFIX user:1");
    assert!(overlap.text().contains("overlaps with an existing prefix 'user:'"));
    reader.run("CLIENT TRACKING OFF");
    reader.run("CLIENT TRACKING ON OPTIN");
    reader.run("GET a");
    writer.run("SET a 1");
    reader.run("CLIENT CACHING YES");
    reader.run("GET a");
    reader.run("GET b");
    writer.run("MSET a 1 b 1");
    assert_eq!(reader.reply(), Some(invalidate(&["a"])));
    assert_eq!(reader.run("PING").text(), "PONG");
    reader.run("CLIENT TRACKING OFF");
    reader.run("CLIENT TRACKING ON OPTOUT");
    reader.run("CLIENT CACHING NO");
    reader.run("GET a");
    reader.run("GET b");
    writer.run("MSET a 1 b 1");
    assert_eq!(reader.reply(), Some(invalidate(&["b"])));
}

#[test]
fn another_client_may_be_told() {
    let (_dir, server, mut writer) = start();
    let mut told = Client::connect(server.address());
    let Value::Int(id) = told.run("CLIENT ID") else { panic!("no number") };
    told.run("SUBSCRIBE __redis__:invalidate");
    let mut reader = client3(server.address());
    reader.run(&format!("CLIENT TRACKING ON REDIRECT {id}"));
    assert_eq!(reader.run("CLIENT GETREDIR"), Value::Int(id));
    reader.run("GET a");
    writer.run("SET a 1");
    let expected = Value::Array(vec![
        Value::bulk("message"),
        Value::bulk("__redis__:invalidate"),
        Value::bulks(&["a"]),
    ]);
    assert_eq!(told.reply(), Some(expected));
    drop(told);
    wait_until(|| writer.run("CLIENT LIST").text().lines().count() == 2);
    reader.run("GET a");
    writer.run("SET a 2");
    let broken = Value::Push(vec![Value::bulk("tracking-redir-broken"), Value::Int(id)]);
    assert_eq!(reader.reply(), Some(broken));
    assert!(reader.run("CLIENT INFO").text().contains(" flags=tR "));
}

#[test]
fn the_table_of_keys_is_bounded() {
    let (_dir, server, mut writer) = start();
    writer.run("CONFIG SET tracking-table-max-keys 10");
    let mut reader = client3(server.address());
    reader.run("CLIENT TRACKING ON");
    let mut old = 0;
    for n in 0..100 {
        let mut reply = reader.run(&format!("GET k{n}"));
        while let Value::Push(_) = reply {
            old += 1;
            reply = reader.reply().unwrap();
        }
    }
    assert!(old >= 89, "{old} keys were given up");
    let info = writer.run("INFO").text();
    assert!(info.contains("tracking_total_keys:10\r\n"), "{info}");
    drop(reader);
    wait_until(|| writer.run("INFO").text().contains("tracking_total_keys:0\r\n"));
}

/// What a reader does until the writers are through: it reads keys and keeps their values, but for
/// those that it is told are old.
fn keep_values(address: SocketAddr, seed: u64, is_over: &AtomicBool) {
    let mut client = client3(address);
    client.run("CLIENT TRACKING ON");
    let mut kept: HashMap<String, Value> = HashMap::new();
    let mut next = seed;
    let read = |client: &mut Client, kept: &mut HashMap<String, Value>, key: String| {
        client.send_raw(&common::encode(&[b"GET", key.as_bytes()])).unwrap();
        loop {
            match client.reply().unwrap() {
                Value::Push(parts) => {
                    let Value::Array(keys) = &parts[1] else { panic!("{parts:?}") };
                    keys.iter().for_each(|key| {
                        kept.remove(&key.text());
                    });
                }
                value => {
                    kept.insert(key, value);
                    return;
                }
            }
        }
    };
    while !is_over.load(Ordering::Acquire) {
        next = next.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        read(&mut client, &mut kept, format!("k{}", (next >> 40) % 20));
    }
    // Everything that was sent before has come once this is answered.
    read(&mut client, &mut kept, "none".to_owned());
    let mut fresh = Client::connect(address);
    for (key, value) in kept {
        assert_eq!(fresh.run(&format!("GET {key}")), value, "{key} is old and nobody said so");
    }
}

#[test]
fn no_reader_keeps_an_old_value() {
    let (_dir, server, _client) = start();
    let address = server.address();
    let is_over = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..3)
        .map(|seed| {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || keep_values(address, seed + 1, &is_over))
        })
        .collect();
    let writers: Vec<_> = (0..3)
        .map(|who| {
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                for n in 0..1500 {
                    let key = format!("k{}", (n * 7 + who) % 20);
                    match n % 4 {
                        0 => client.run(&format!("SET {key} {n}")),
                        1 => client.run(&format!("INCR {key}")),
                        2 => client.run(&format!("APPEND {key} 1")),
                        _ => client.run(&format!("DEL {key}")),
                    };
                }
            })
        })
        .collect();
    writers.into_iter().for_each(|thread| thread.join().unwrap());
    is_over.store(true, Ordering::Release);
    readers.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_script_has_those_keys_remembered_that_it_reads_and_not_those_that_it_is_given() {
    let (_dir, server, mut writer) = start();
    let mut reader = client3(server.address());
    reader.run("CLIENT TRACKING ON");
    reader.call(&["EVAL_RO", "return redis.call('get', KEYS[2])", "2", "a", "b"]);
    reader.call(&["EVAL_RO", "return redis.call('ping')", "2", "a", "c"]);
    writer.run("MSET a 1 b 1 c 1");
    assert_eq!(reader.reply(), Some(invalidate(&["b"])));
    assert_eq!(reader.run("PING"), Value::Simple("PONG".into()));
}

#[test]
fn keys_beyond_a_new_limit_are_forgotten_at_once() {
    let (_dir, server, mut control) = start();
    let mut reader = client3(server.address());
    reader.run("CLIENT TRACKING ON");
    (0..20).for_each(|n| drop(reader.run(&format!("GET k{n}"))));
    assert_eq!(control.run("CONFIG SET tracking-table-max-keys 3"), Value::ok());
    assert!(control.run("INFO stats").text().contains("tracking_total_keys:3\r\n"));
    for _ in 0..17 {
        assert!(matches!(reader.reply(), Some(Value::Push(_))));
    }
    assert_eq!(reader.run("PING"), Value::Simple("PONG".into()));
}
