//! Clients that wait for a key, and clients that are paused.

mod common;

use std::{
    thread,
    time::{Duration, Instant},
};

use common::{Client, Value, encode, start, wait_until};

/// The figure of INFO with this name.
fn info(client: &mut Client, name: &str) -> usize {
    let text = client.run("INFO clients").text();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
    line.unwrap_or_else(|| panic!("INFO says nothing of {name}")).parse().unwrap()
}

/// Sends a command that waits, and returns once it does: `waiting` clients wait then.
fn send_and_wait(client: &mut Client, control: &mut Client, line: &str, waiting: usize) {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    client.send_raw(&encode(&words)).unwrap();
    wait_until(|| info(control, "blocked_clients") == waiting);
}

#[test]
fn elements_are_taken_in_the_order_of_arrival() {
    let (_dir, server, mut control) = start();
    let mut waiting: Vec<Client> = (0..5).map(|_| Client::connect(server.address())).collect();
    for (at, client) in waiting.iter_mut().enumerate() {
        send_and_wait(client, &mut control, "BLPOP a b 0", at + 1);
    }
    // Two in one go, one in a transaction, one by a move, one that another type is in the way of.
    assert_eq!(control.run("RPUSH b 0 1"), Value::Int(2));
    control.run("MULTI");
    control.run("RPUSH a 2");
    control.run("EXEC");
    control.run("RPUSH other 3");
    assert_eq!(control.run("LMOVE other a LEFT RIGHT"), Value::bulk("3"));
    for (at, client) in waiting[..4].iter_mut().enumerate() {
        let key = if at < 2 { "b" } else { "a" };
        assert_eq!(client.reply(), Some(Value::bulks(&[key, &at.to_string()])), "client {at}");
    }
    control.run("SADD a x");
    control.run("DEL a");
    assert_eq!(info(&mut control, "blocked_clients"), 1);
    control.run("LPUSH a 4");
    assert_eq!(waiting[4].reply(), Some(Value::bulks(&["a", "4"])));
    assert_eq!(control.run("EXISTS a b other"), Value::Int(0));
    assert_eq!(info(&mut control, "blocked_clients"), 0);
}

#[test]
fn a_move_that_waits_hands_on_to_the_next_that_waits() {
    let (_dir, server, mut control) = start();
    let (mut last, mut first) =
        (Client::connect(server.address()), Client::connect(server.address()));
    send_and_wait(&mut last, &mut control, "BRPOP c 0", 1);
    send_and_wait(&mut first, &mut control, "BLMOVE a c LEFT LEFT 0", 2);
    control.run("RPUSH a x");
    assert_eq!(first.reply(), Some(Value::bulk("x")));
    assert_eq!(last.reply(), Some(Value::bulks(&["c", "x"])));
}

#[test]
fn waiting_ends_with_its_time_or_when_another_client_says_so() {
    let (_dir, server, mut control) = start();
    let mut client = Client::connect(server.address());
    let began = Instant::now();
    assert_eq!(client.run("BLPOP none 0.1"), Value::NullArray);
    assert!(began.elapsed() >= Duration::from_millis(100));
    assert_eq!(client.run("WAIT 1 50"), Value::Int(0));
    let Value::Int(id) = client.run("CLIENT ID") else { panic!("an id is a number") };
    assert_eq!(control.run(&format!("CLIENT UNBLOCK {id}")), Value::Int(0));
    send_and_wait(&mut client, &mut control, "BLPOP none 0", 1);
    assert_eq!(control.run(&format!("CLIENT UNBLOCK {id} TIMEOUT")), Value::Int(1));
    assert_eq!(client.reply(), Some(Value::NullArray));
    send_and_wait(&mut client, &mut control, "BLPOP none 0", 1);
    assert_eq!(control.run(&format!("CLIENT UNBLOCK {id} ERROR")), Value::Int(1));
    let error = client.reply().unwrap().text();
    assert!(error.starts_with("UNBLOCKED"), "{error}");
    // What waits in a transaction answers at once.
    client.run("MULTI");
    client.run("BLPOP none 0");
    assert_eq!(client.run("EXEC"), Value::Array(vec![Value::NullArray]));
}

#[test]
fn a_pipeline_goes_on_after_what_waits() {
    let (_dir, server, mut control) = start();
    let mut client = Client::connect(server.address());
    let mut bytes = Vec::new();
    for words in [&["INCR", "n"][..], &["BLPOP", "q", "0"], &["INCR", "n"], &["GET", "n"]] {
        bytes.extend(encode(&words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>()));
    }
    client.send_raw(&bytes).unwrap();
    assert_eq!(client.reply(), Some(Value::Int(1)));
    wait_until(|| info(&mut control, "blocked_clients") == 1);
    assert_eq!(control.run("GET n"), Value::bulk("1"));
    // Commands that come while it waits are run after it.
    client.send_raw(&encode(&[b"PING"])).unwrap();
    control.run("RPUSH q x");
    assert_eq!(client.reply(), Some(Value::bulks(&["q", "x"])));
    assert_eq!(client.reply(), Some(Value::Int(2)));
    assert_eq!(client.reply(), Some(Value::bulk("2")));
    assert_eq!(client.reply(), Some(Value::Simple("PONG".to_owned())));
}

#[test]
fn a_client_that_goes_away_takes_nothing() {
    let (_dir, server, mut control) = start();
    let mut gone = Client::connect(server.address());
    send_and_wait(&mut gone, &mut control, "BLPOP q 0", 1);
    let mut next = Client::connect(server.address());
    send_and_wait(&mut next, &mut control, "BLPOP q 0", 2);
    drop(gone);
    wait_until(|| info(&mut control, "blocked_clients") == 1);
    control.run("RPUSH q x");
    assert_eq!(next.reply(), Some(Value::bulks(&["q", "x"])));
}

/// Many producers and consumers: every element is taken once, and nobody is left waiting beside an
/// element.
#[test]
fn no_element_is_lost_or_taken_twice() {
    let (_dir, server, mut control) = start();
    let (address, each) = (server.address(), 300);
    let take = move || {
        let mut client = Client::connect(address);
        let mut taken = Vec::new();
        while taken.len() < each {
            match client.run("BLPOP q r 20") {
                Value::Array(pair) => taken.push(pair[1].text()),
                other => panic!("an element is missing: {other:?}"),
            }
        }
        taken
    };
    let push = move |producer: usize| {
        let mut client = Client::connect(address);
        for i in 0..each {
            client.run(&format!("RPUSH {} {producer}:{i}", ["q", "r"][i % 2]));
        }
    };
    let takers: Vec<_> = (0..4).map(|_| thread::spawn(take)).collect();
    let pushers: Vec<_> = (0..4).map(|at| thread::spawn(move || push(at))).collect();
    pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
    let mut all: Vec<String> = takers.into_iter().flat_map(|taker| taker.join().unwrap()).collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 4 * each);
    assert_eq!(control.run("EXISTS q r"), Value::Int(0));
}

#[test]
fn paused_clients_wait_until_the_pause_ends() {
    let (_dir, server, mut control) = start();
    let mut client = Client::connect(server.address());
    assert_eq!(control.run("CLIENT PAUSE 100000 WRITE"), Value::ok());
    assert_eq!(client.run("GET a"), Value::Null);
    client.send_raw(&encode(&[b"SET", b"a", b"1"])).unwrap();
    thread::sleep(Duration::from_millis(50));
    assert_eq!(control.run("GET a"), Value::Null);
    assert_eq!(control.run("CLIENT UNPAUSE"), Value::ok());
    assert_eq!(client.reply(), Some(Value::ok()));
    let began = Instant::now();
    control.run("CLIENT PAUSE 150 ALL");
    assert_eq!(client.run("GET a"), Value::bulk("1"));
    assert!(began.elapsed() >= Duration::from_millis(150));
}

#[test]
fn a_move_that_waits_says_that_its_target_is_of_another_type() {
    let (_dir, server, mut control) = start();
    let (mut first, mut second) =
        (Client::connect(server.address()), Client::connect(server.address()));
    control.run("SET target text");
    send_and_wait(&mut first, &mut control, "BRPOPLPUSH a target 0", 1);
    send_and_wait(&mut second, &mut control, "BLMOVE a b LEFT LEFT 0", 2);
    // What is in the way of a key that it waits for is not said.
    control.run("MULTI");
    control.run("SADD a x");
    control.run("EXEC");
    control.run("DEL a");
    assert_eq!(info(&mut control, "blocked_clients"), 2);
    control.run("RPUSH a x");
    let error = first.reply().unwrap().text();
    assert!(error.starts_with("WRONGTYPE"), "{error}");
    assert_eq!(second.reply(), Some(Value::bulk("x")));
}

#[test]
fn those_that_wait_for_groups_are_told_when_all_is_emptied() {
    let (_dir, server, mut control) = start();
    let mut clients: Vec<Client> = (0..3).map(|_| Client::connect(server.address())).collect();
    let keys = |control: &mut Client| {
        (info(control, "total_blocking_keys"), info(control, "total_blocking_keys_on_nokey"))
    };
    for flush in ["FLUSHALL", "FLUSHDB"] {
        control.run("XGROUP CREATE x g $ MKSTREAM");
        send_and_wait(&mut clients[0], &mut control, "XREADGROUP GROUP g a BLOCK 0 STREAMS x >", 1);
        send_and_wait(&mut clients[1], &mut control, "XREADGROUP GROUP g b BLOCK 0 STREAMS x >", 2);
        send_and_wait(&mut clients[2], &mut control, "BLPOP l 0", 3);
        assert_eq!(keys(&mut control), (2, 1));
        control.run(flush);
        for client in &mut clients[..2] {
            let error = client.reply().unwrap().text();
            assert!(error.starts_with("NOGROUP"), "{error}");
        }
        assert_eq!(info(&mut control, "blocked_clients"), 1);
        assert_eq!(keys(&mut control), (1, 0));
        control.run("RPUSH l x");
        assert_eq!(clients[2].reply(), Some(Value::bulks(&["l", "x"])));
    }
}

#[test]
fn a_command_that_has_waited_and_fails_is_counted() {
    let (_dir, server, mut control) = start();
    let mut waiting = Client::connect(server.address());
    control.run("XGROUP CREATE s g $ MKSTREAM");
    control.run("CONFIG RESETSTAT");
    send_and_wait(&mut waiting, &mut control, "XREADGROUP GROUP g a BLOCK 0 STREAMS s >", 1);
    control.run("XGROUP DESTROY s g");
    let reply = waiting.reply().unwrap();
    assert!(matches!(&reply, Value::Error(text) if text.starts_with("NOGROUP ")), "{reply:?}");
    let text = control.run("INFO all").text();
    let has = |line: &str| text.lines().any(|other| other == line);
    assert!(has("errorstat_NOGROUP:count=1") && has("total_error_replies:1"), "{text}");
    let calls = text.lines().find(|line| line.starts_with("cmdstat_xreadgroup:")).unwrap();
    assert!(calls.contains(":calls=1,") && calls.ends_with("rejected_calls=0,failed_calls=1"));
}

#[test]
fn a_command_that_has_waited_is_told_of_once_it_has_replied() {
    let (_dir, server, mut control) = start();
    let mut waiter = Client::connect(server.address());
    let Value::Int(id) = waiter.run("CLIENT ID") else { panic!("no number") };
    control.run("CONFIG SET slowlog-log-slower-than 0");
    control.run("CONFIG RESETSTAT");
    let logged = |control: &mut Client| {
        let Value::Array(entries) = control.run("SLOWLOG GET -1") else { panic!("no entries") };
        let is_blpop = |entry: &&Value| match entry {
            Value::Array(fields) => fields[3] == Value::bulks(&["BLPOP", "l", "0"]),
            _ => false,
        };
        entries.iter().filter(is_blpop).count()
    };
    let waits = |control: &mut Client| {
        wait_until(|| control.run("INFO clients").text().contains("blocked_clients:1\r\n"));
    };
    waiter.send_raw(&common::encode(&[b"BLPOP", b"l", b"0"])).unwrap();
    waits(&mut control);
    assert_eq!(logged(&mut control), 0);
    control.run("RPUSH l a");
    assert_eq!(waiter.reply(), Some(Value::bulks(&["l", "a"])));
    assert_eq!(logged(&mut control), 1);
    waiter.send_raw(&common::encode(&[b"BLPOP", b"l", b"0"])).unwrap();
    waits(&mut control);
    control.run(&format!("CLIENT UNBLOCK {id} ERROR"));
    assert!(matches!(waiter.reply(), Some(Value::Error(_))));
    let stats = control.run("INFO everything").text();
    assert!(stats.contains("errorstat_UNBLOCKED:count=1\r\n"));
    let line = stats.lines().find(|line| line.starts_with("cmdstat_blpop:")).unwrap();
    assert!(line.contains("calls=2,") && line.ends_with("failed_calls=1"), "{line}");
}
