//! Scripts: what they do happens together, and they stay within their limits.

mod common;

use std::{thread, time::Duration};

use common::{Client, start};

/// Sends a script without keys; the reply as it is printed.
fn eval(client: &mut Client, script: &str) -> String {
    format!("{:?}", client.call(&["EVAL", script, "0"]))
}

#[test]
fn a_script_is_one_step_for_other_clients_and_may_use_keys_that_it_is_not_given() {
    let (_dir, server, mut control) = start();
    let script = "local n = redis.call('get','n') or 0 redis.call('set','n',n+1) return n";
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let mut client = Client::connect(server.address());
            thread::spawn(move || (0..50).for_each(|_| drop(eval(&mut client, script))))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(control.run("GET n").text(), "200");
}

#[test]
fn an_error_keeps_what_was_written_before_it() {
    let (_dir, _server, mut client) = start();
    let reply = eval(&mut client, "redis.call('set','w','1') error('after')");
    assert!(reply.contains("user_script:1: after"), "{reply}");
    assert_eq!(client.run("GET w").text(), "1");
}

#[test]
fn hostile_scripts_end_and_the_server_lives() {
    let (_dir, _server, mut client) = start();
    for (script, expected) in [
        ("local s = 'x' while true do s = s .. s end", "not enough memory"),
        ("return string.rep('x', 1e9)", "not enough memory"),
        ("local function f() return f() + 1 end return f()", "stack overflow"),
        ("return string.format('%99999999d', 1)", "invalid format"),
        ("string.x = 1", "readonly table"),
        ("x = 1", "readonly table"),
        ("return y", "nonexistent global variable 'y'"),
        ("return redis.call('multi')", "not allowed from script"),
    ] {
        let reply = eval(&mut client, script);
        assert!(reply.contains(expected), "{script}: {reply}");
    }
    assert_eq!(client.run("PING").text(), "PONG");
}

#[test]
fn a_script_that_is_killed_leaves_nothing() {
    let (_dir, server, mut control) = start();
    let mut client = Client::connect(server.address());
    let script =
        "redis.call('set','k','1') while true do pcall(function() while true do end end) end";
    let running = thread::spawn(move || eval(&mut client, script));
    loop {
        thread::sleep(Duration::from_millis(100));
        if !format!("{:?}", control.run("SCRIPT KILL")).contains("NOTBUSY") {
            break;
        }
    }
    let reply = running.join().unwrap();
    assert!(reply.contains("Script killed by user"), "{reply}");
    assert!(!format!("{:?}", control.run("EXISTS k")).contains('1'));
}
