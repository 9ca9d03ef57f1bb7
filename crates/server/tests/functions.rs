//! Libraries of functions: what they are given, what keeps them, and what ends them.

mod common;

use std::{thread, time::Duration};

use common::{Client, Value, config, start};
use rhumb_server::Running;

const LIBRARY: &str = "#!lua name=lib\n\
    local function add(n) return redis.call('incrby', 'n', n) end\n\
    redis.register_function('add', function(keys, args) return add(args[1]) end)\n\
    redis.register_function{function_name='get', callback=function(keys)\n\
      return redis.call('get', keys[1]) end, flags={'no-writes'}, description='reads'}";

fn load(client: &mut Client, code: &str) -> String {
    client.call(&["FUNCTION", "LOAD", code]).text()
}

fn listed(client: &mut Client) -> String {
    format!("{:?}", client.run("FUNCTION LIST WITHCODE"))
}

#[test]
fn libraries_are_there_after_a_restart_and_after_the_data_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(config(&dir)).unwrap();
    let mut client = Client::connect(server.address());
    assert_eq!(load(&mut client, LIBRARY), "lib");
    assert_eq!(load(&mut client, "#!lua name=b\nredis.register_function('b', print)"), {
        "ERR Error registering functions: ERR user_function:2: Script attempted to access \
         nonexistent global variable 'print'"
    });
    let gone = "#!lua name=gone\nredis.register_function('gone', function() return 1 end)";
    assert_eq!(load(&mut client, gone), "gone");
    assert_eq!(client.run("FUNCTION DELETE gone"), Value::ok());
    assert_eq!(client.run("FLUSHALL"), Value::ok());
    let before = listed(&mut client);
    server.stop().unwrap();
    let server = Running::start(config(&dir)).unwrap();
    let mut client = Client::connect(server.address());
    assert_eq!(listed(&mut client), before);
    assert_eq!(client.run("FCALL ADD 0 5"), Value::Int(5));
    assert_eq!(client.run("FCALL_RO get 1 n").text(), "5");
    assert_eq!(client.run("FUNCTION FLUSH"), Value::ok());
    server.stop().unwrap();
    let server = Running::start(config(&dir)).unwrap();
    let mut client = Client::connect(server.address());
    assert_eq!(client.run("FUNCTION LIST"), Value::Array(vec![]));
}

#[test]
fn a_dump_of_libraries_is_restored_as_it_is_asked() {
    let (_dir, _server, mut client) = start();
    load(&mut client, LIBRARY);
    let Value::Bulk(dump) = client.run("FUNCTION DUMP") else { panic!("no dump") };
    let restore = |client: &mut Client, policy: &[u8]| {
        client.call_bytes(&[b"FUNCTION", b"RESTORE", &dump, policy])
    };
    assert_eq!(
        restore(&mut client, b"APPEND"),
        Value::Error("ERR Library lib already exists".into())
    );
    assert_eq!(restore(&mut client, b"REPLACE"), Value::ok());
    load(&mut client, "#!lua name=x\nredis.register_function('x', function() return 1 end)");
    assert_eq!(restore(&mut client, b"FLUSH"), Value::ok());
    assert_eq!(client.run("FCALL x 0").text(), "ERR Function not found");
    let other = "#!lua name=other\nredis.register_function('ADD', function() return 1 end)";
    let taken = client.call(&["FUNCTION", "LOAD", other]);
    assert_eq!(taken, Value::Error("ERR Function ADD already exists".into()));
    let damaged = client.call_bytes(&[b"FUNCTION", b"RESTORE", &dump[1..]]);
    assert_eq!(damaged.text(), "ERR DUMP payload version or checksum are wrong");
}

#[test]
fn functions_that_only_read_may_not_write_and_others_are_refused_where_only_reads_are() {
    let (_dir, _server, mut client) = start();
    load(&mut client, LIBRARY);
    let refused = client.run("FCALL_RO add 0 1").text();
    assert_eq!(refused, "ERR Can not execute a script with write flag using *_ro command.");
    let code = "#!lua name=w\nredis.register_function{function_name='w', \
        callback=function() return redis.call('set', 'a', 1) end, flags={'no-writes'}}";
    load(&mut client, code);
    let refused = client.run("FCALL w 0").text();
    assert!(refused.starts_with("ERR Write commands are not allowed from read-only scripts."));
    assert_eq!(client.run("EXISTS a"), Value::Int(0));
}

#[test]
fn a_function_that_runs_is_told_of_and_killed_and_others_are_served() {
    let (_dir, server, mut control) = start();
    let code = "#!lua name=l\nredis.register_function('f', function() \
        redis.call('set', 'k', '1') while true do pcall(function() while true do end end) end end)";
    load(&mut control, code);
    let mut client = Client::connect(server.address());
    let running = thread::spawn(move || client.run("FCALL f 1 k x"));
    let is_told = |control: &mut Client| {
        let Value::Array(told) = control.run("FUNCTION STATS") else { panic!("no array") };
        told[1] != Value::Null
    };
    while !is_told(&mut control) {
        thread::sleep(Duration::from_millis(10));
    }
    let busy = control.run("SCRIPT KILL").text();
    assert!(busy.starts_with("BUSY ") && busy.contains("FUNCTION KILL"), "{busy}");
    assert_eq!(control.run("FUNCTION KILL"), Value::ok());
    let reply = running.join().unwrap().text();
    assert!(reply.starts_with("ERR Script killed by user"), "{reply}");
    assert_eq!(control.run("EXISTS k"), Value::Int(0));
    assert!(control.run("FUNCTION KILL").text().starts_with("NOTBUSY"));
}

#[test]
fn a_library_that_does_not_end_or_takes_all_memory_is_refused() {
    let (_dir, _server, mut client) = start();
    for (body, expected) in [
        ("while true do end", "FUNCTION LOAD timeout"),
        ("local s = 'x' while true do s = s .. s end", "not enough memory"),
        ("local function f() return f() + 1 end f()", "stack overflow"),
        ("a = 1", "readonly table"),
        ("redis.call('ping')", "nonexistent global variable 'call'"),
        ("return 1", "No functions registered"),
    ] {
        let reply = load(&mut client, &format!("#!lua name=l\n{body}"));
        assert!(reply.contains(expected), "{body}: {reply}");
    }
    assert_eq!(client.run("FUNCTION LIST"), Value::Array(vec![]));
}

#[test]
fn a_script_that_is_ended_in_a_transaction_takes_back_only_what_is_its_own() {
    let (_dir, server, mut control) = start();
    let mut client = Client::connect(server.address());
    let script = "redis.call('set', 'a', 'script') redis.call('sadd', 's', 'y') while true do end";
    let running = thread::spawn(move || {
        client.run("MULTI");
        client.run("SET a before");
        client.run("SADD s x");
        client.call(&["EVAL", script, "0"]);
        client.run("SET b after");
        client.run("EXEC")
    });
    while control.run("SCRIPT KILL") != Value::ok() {
        thread::sleep(Duration::from_millis(10));
    }
    let Value::Array(replies) = running.join().unwrap() else { panic!("no array") };
    assert!(replies[2].text().starts_with("ERR Script killed by user"), "{replies:?}");
    assert_eq!(control.run("GET a").text(), "before");
    assert_eq!(control.run("SMEMBERS s"), Value::bulks(&["x"]));
    assert_eq!(control.run("GET b").text(), "after");
}

#[test]
fn what_a_script_reads_is_tracked() {
    let (_dir, server, mut client) = start();
    client.run("HELLO 3");
    client.run("CLIENT TRACKING ON");
    client.call(&["EVAL", "return redis.call('get', KEYS[1])", "1", "k"]);
    Client::connect(server.address()).run("SET k v");
    client.send_raw(b"PING\r\n").unwrap();
    let told = [client.reply().unwrap(), client.reply().unwrap()];
    let push = Value::Push(vec![Value::bulk("invalidate"), Value::bulks(&["k"])]);
    assert!(told.contains(&push), "{told:?}");
}

/// A library with one function, which returns this.
fn returning(name: &str, returned: &str) -> String {
    format!(
        "#!lua name={name}\nredis.register_function('{name}_f', function() return {returned} end)"
    )
}

#[test]
fn libraries_that_a_transaction_changes_are_committed_with_it() {
    let (_dir, server, mut client) = start();
    load(&mut client, &returning("gone", "1"));
    let queue = |client: &mut Client, words: &[&str]| {
        assert_eq!(client.call(words).text(), "QUEUED", "{words:?}");
    };
    // The commands that follow see what is changed; one that fails changes nothing.
    client.run("MULTI");
    queue(&mut client, &["FUNCTION", "LOAD", &returning("new", "2")]);
    queue(&mut client, &["FUNCTION", "LOAD", &returning("new", "3")]);
    queue(&mut client, &["FUNCTION", "DELETE", "gone"]);
    queue(&mut client, &["FUNCTION", "DELETE", "gone"]);
    queue(&mut client, &["FCALL", "new_f", "0"]);
    queue(&mut client, &["FCALL", "gone_f", "0"]);
    queue(&mut client, &["SET", "k", "1"]);
    let Value::Array(replies) = client.run("EXEC") else { panic!("no replies") };
    let text = |value: &Value| match value {
        Value::Int(number) => number.to_string(),
        other => other.text(),
    };
    let texts: Vec<String> = replies.iter().map(text).collect();
    assert_eq!(
        texts,
        [
            "new",
            "ERR Library 'new' already exists",
            "OK",
            "ERR Library not found",
            "2",
            "ERR Function not found",
            "OK"
        ]
    );
    assert_eq!(client.run("FCALL new_f 0"), Value::Int(2));
    // What is discarded, or depends on a key that was written, changes nothing.
    client.run("MULTI");
    queue(&mut client, &["FUNCTION", "FLUSH"]);
    client.run("DISCARD");
    client.run("WATCH k");
    Client::connect(server.address()).run("SET k 2");
    client.run("MULTI");
    queue(&mut client, &["FUNCTION", "FLUSH"]);
    assert_eq!(client.run("EXEC"), Value::NullArray);
    assert_eq!(client.run("FCALL new_f 0"), Value::Int(2));
}

/// A client that calls a function takes no lock, and could see a half.
#[test]
fn others_see_the_libraries_of_a_transaction_once_it_is_committed() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(config(&dir)).unwrap();
    let mut control = Client::connect(server.address());
    load(&mut control, &returning("old", "1"));
    let mut client = Client::connect(server.address());
    let running = thread::spawn(move || {
        client.run("MULTI");
        client.run("FUNCTION FLUSH");
        client.call(&["FUNCTION", "LOAD", &returning("new", "2")]);
        client.run("SET k 1");
        client.call(&["EVAL", "while true do end", "0"]);
        client.run("EXEC")
    });
    while !format!("{:?}", control.run("FUNCTION STATS")).contains("BUSY") {
        thread::sleep(Duration::from_millis(10));
    }
    // The script runs, after the libraries were changed.
    assert_eq!(control.run("FCALL old_f 0"), Value::Int(1));
    assert_eq!(control.run("FCALL new_f 0").text(), "ERR Function not found");
    assert_eq!(control.run("SCRIPT KILL"), Value::ok());
    let Value::Array(replies) = running.join().unwrap() else { panic!("no replies") };
    assert!(replies[3].text().contains("Script killed by user"), "{replies:?}");
    assert_eq!(control.run("FCALL new_f 0"), Value::Int(2));
    assert_eq!(control.run("FCALL old_f 0").text(), "ERR Function not found");
    assert_eq!(control.run("GET k").text(), "1");
    let before = listed(&mut control);
    server.stop().unwrap();
    let server = Running::start(config(&dir)).unwrap();
    let mut control = Client::connect(server.address());
    assert_eq!(listed(&mut control), before);
    // What was changed before a database is emptied is committed then, and is there at once.
    control.run("MULTI");
    control.run("FUNCTION DELETE new");
    control.run("FLUSHALL");
    control.call(&["FUNCTION", "LOAD", &returning("last", "3")]);
    control.run("EXEC");
    assert_eq!(control.run("FCALL last_f 0"), Value::Int(3));
    server.stop().unwrap();
    let server = Running::start(config(&dir)).unwrap();
    let mut control = Client::connect(server.address());
    assert_eq!(control.run("FCALL last_f 0"), Value::Int(3));
    assert_eq!(control.run("FCALL new_f 0").text(), "ERR Function not found");
}
