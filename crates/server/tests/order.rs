//! The order of commands in a pipeline: neighbours that are run together are answered as if each
//! was run by itself, and a client sees what it wrote before.

mod common;

use common::{Client, Value, config, encode, start, wait_until};
use rhumb_server::{Fsync, Running};

fn bytes_of(lines: &[&str]) -> Vec<u8> {
    let words = |line: &&str| encode(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
    lines.iter().flat_map(words).collect()
}

/// Sends lines at once and reads a reply to each.
#[track_caller]
fn pipe(client: &mut Client, lines: &[&str]) -> Vec<Value> {
    client.send_raw(&bytes_of(lines)).unwrap();
    lines.iter().map(|_| client.reply().expect("a reply to each")).collect()
}

/// Sends lines one by one.
fn step(client: &mut Client, lines: &[&str]) -> Vec<Value> {
    lines.iter().map(|line| client.run(line)).collect()
}

/// Sends lines at once, and one by one after an emptying, with and without another client that
/// commits could be shared with: the replies are the same.
#[track_caller]
fn answers_alike(lines: &[&str]) -> Vec<Value> {
    let (_dir, server, mut client) = start();
    let alone = step(&mut client, lines);
    let check = |client: &mut Client, what: &str| {
        client.run("RESET");
        client.run("FLUSHALL");
        let together = pipe(client, lines);
        for ((line, one), other) in lines.iter().zip(&alone).zip(&together) {
            assert_eq!(one, other, "{line} ({what})");
        }
    };
    check(&mut client, "one client");
    let _other = Client::connect(server.address());
    check(&mut client, "two clients");
    client.run("CONFIG SET appendfsync always");
    check(&mut client, "always synced");
    alone
}

#[test]
fn a_client_reads_what_it_has_just_written() {
    let replies = answers_alike(&[
        "SET a 1",
        "GET a",
        "SET a 2",
        "SET b 3",
        "GET a",
        "MGET a b none",
        "INCR a",
        "GET a",
        "STRLEN a",
        "DEL a",
        "GET a",
        "EXISTS a b b",
        "SET a 10",
        "INCR a",
        "APPEND a 0",
        "GET a",
        "MSET a x b y a z",
        "GET a",
        "SETNX a never",
        "GETDEL a",
        "TYPE a",
        "GET b",
    ]);
    let expected = [(7, "3"), (15, "110"), (17, "z"), (19, "z"), (21, "y")];
    expected.iter().for_each(|(at, value)| assert_eq!(replies[*at], Value::bulk(value)));
    assert_eq!(replies[10], Value::Null);
    assert_eq!(replies[11], Value::Int(2));
}

/// Every command that shares a read with its neighbours, over every kind of key, in an order in
/// which an entry that is handed to the wrong command would show.
#[test]
fn reads_that_are_run_together_have_their_own_keys() {
    let mut lines = vec![
        "SET s hello",
        "SET number 42",
        "SET ends long EX 10000",
        "RPUSH l 1 2 3",
        "HSET h f v",
        "ZADD z 1 m",
        "SET past x PXAT 1",
    ];
    let reads = [
        "GET s",
        "MGET s none l number s",
        "GET l",
        "STRLEN number",
        "STRLEN h",
        "TYPE z",
        "GETRANGE s 1 x",
        "GETRANGE s 1 3",
        "SUBSTR number 0 0",
        "EXISTS s l none s",
        "GET none",
        "TOUCH h past",
        "TTL s",
        "TTL none",
        "TYPE past",
        "PTTL h",
        "EXPIRETIME none",
        "PEXPIRETIME s",
        "get S",
        "gEt s",
        "MGET z",
        "GET",
        "GET s t",
        "GET number",
        "NOSUCH",
        "TYPE ends",
    ];
    (0..3).for_each(|_| lines.extend(reads));
    lines.extend(reads.iter().rev());
    let replies = answers_alike(&lines);
    let at = |n: usize| replies[7 + n].clone();
    assert_eq!(at(0), Value::bulk("hello"));
    let many = ["hello", "", "", "42", "hello"];
    let many = many.map(|text| if text.is_empty() { Value::Null } else { Value::bulk(text) });
    assert_eq!(at(1), Value::Array(many.to_vec()));
    assert!(at(2).text().starts_with("WRONGTYPE") && at(4).text().starts_with("WRONGTYPE"));
    assert!(at(6).text().starts_with("ERR value is not an integer"));
    assert_eq!((at(7), at(8)), (Value::bulk("ell"), Value::bulk("4")));
    assert_eq!(at(9), Value::Int(3));
}

#[test]
fn errors_amid_a_pipeline_are_of_their_command_alone() {
    let replies = answers_alike(&[
        "RPUSH list 1",
        "SET s text",
        "MSET a 1 b",
        "SET t text",
        "INCR s",
        "INCR list",
        "INCR n",
        "SET list now",
        "INCR list",
        "SET s 5 EX",
        "SET s 5",
        "INCR s",
        "MSET a 1 list 7",
        "INCR list",
        "LPUSH s 1",
        "GET s",
        "GET t",
    ]);
    let is_error = |at: &usize| matches!(replies[*at], Value::Error(_));
    let errors: Vec<usize> = (0..replies.len()).filter(is_error).collect();
    assert_eq!(errors, [2, 4, 5, 8, 9, 14]);
    assert_eq!((&replies[11], &replies[13]), (&Value::Int(6), &Value::Int(8)));
}

#[test]
fn transactions_amid_a_pipeline_hold_their_commands_back() {
    let replies = answers_alike(&[
        "SET a 1", "GET a", "MULTI", "GET a", "SET a 2", "MGET a b", "SET a 3", "GET a", "EXEC",
        "GET a", "INCR a", "MULTI", "SET a 9", "DISCARD", "GET a", "MULTI", "SET a 9", "NOSUCH",
        "EXEC", "GET a", "MULTI", "INCR a", "EXEC now", "INCR a", "WATCH a", "SET a 20", "MULTI",
        "SET a 30", "EXEC", "GET a",
    ]);
    let of_exec = vec![
        Value::bulk("1"),
        Value::ok(),
        Value::Array(vec![Value::bulk("2"), Value::Null]),
        Value::ok(),
        Value::bulk("3"),
    ];
    assert_eq!(replies[8], Value::Array(of_exec));
    assert_eq!((&replies[9], &replies[14]), (&Value::bulk("3"), &Value::bulk("4")));
    assert_eq!(replies[19], Value::bulk("4"));
    assert!(replies[22].text().starts_with("EXECABORT") && replies[23] == Value::Int(5));
    assert_eq!((&replies[28], &replies[29]), (&Value::NullArray, &Value::bulk("20")));
}

#[test]
fn databases_that_are_selected_amid_a_pipeline_are_kept_apart() {
    let replies = answers_alike(&[
        "SET a zero",
        "GET a",
        "SELECT 1",
        "GET a",
        "SET a one",
        "INCR n",
        "SELECT 0",
        "GET a",
        "INCR n",
        "INCR n",
        "SELECT 1",
        "GET a",
        "GET n",
        "SWAPDB 0 1",
        "GET a",
        "GET n",
        "SET a swapped",
        "SELECT 0",
        "GET a",
        "FLUSHDB",
        "GET a",
        "SELECT 1",
        "GET a",
        "SELECT 99",
        "GET a",
    ]);
    let texts = [(7, "zero"), (11, "one"), (12, "1"), (14, "zero"), (15, "2"), (18, "one")];
    texts.iter().for_each(|(at, text)| assert_eq!(replies[*at], Value::bulk(text), "{at}"));
    assert_eq!((&replies[3], &replies[20]), (&Value::Null, &Value::Null));
    assert_eq!(replies[24], Value::bulk("swapped"));
}

/// The limits of a run of commands: its number of commands and keys, large values, and a refused
/// command among writes that are committed together.
#[test]
fn long_runs_are_answered_in_order() {
    let (_dir, server, mut client) = start();
    let _other = Client::connect(server.address());
    let long_key = "k".repeat(70_000);
    let mut commands: Vec<Vec<String>> = Vec::new();
    let line = |text: String| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    for n in 0..700 {
        commands.push(line(format!("SET k{n} {n}")));
    }
    commands.push(vec!["SET".to_owned(), long_key.clone(), "v".to_owned()]);
    for n in 0..700 {
        commands.push(line(format!("SET k{n} {}", n + 1)));
    }
    let all: Vec<String> = (0..700).map(|n| format!("k{n}")).collect();
    commands.push(line(format!("MGET {}", all.join(" "))));
    commands.push(line(format!("EXISTS {}", all.join(" "))));
    for n in 0..700 {
        commands.push(line(format!("GET k{n}")));
    }
    commands.push(vec!["GET".to_owned(), long_key.clone()]);
    commands.push(vec!["STRLEN".to_owned(), long_key]);
    commands.push(line("GET k0".to_owned()));
    let bytes = commands
        .iter()
        .flat_map(|command| encode(&command.iter().map(String::as_bytes).collect::<Vec<_>>()));
    client.send_raw(&bytes.collect::<Vec<_>>()).unwrap();
    let replies: Vec<Value> = commands.iter().map(|_| client.reply().unwrap()).collect();
    for (n, reply) in replies[..1401].iter().enumerate() {
        assert_eq!(matches!(reply, Value::Error(_)), n == 700, "{n}: {reply:?}");
    }
    assert_eq!(replies[700].text(), "ERR a key of 70000 bytes: the longest is 65536");
    let values: Vec<Value> = (1..=700).map(|n: u32| Value::bulk(n.to_string())).collect();
    assert_eq!(replies[1401], Value::Array(values.clone()));
    assert_eq!(replies[1402], Value::Int(700));
    assert_eq!(replies[1403..2103], values);
    assert_eq!(replies[2103], Value::Null);
    assert_eq!(replies[2104].text(), "ERR a key has at most 65536 bytes");
    assert_eq!(replies[2105], Value::bulk("1"));
}

/// Clients that are gone before they are answered: what they wrote is there whole or not at all,
/// and holds nobody up.
#[test]
fn a_client_that_goes_amid_a_group_leaves_no_locks() {
    for fsync in [Fsync::Everysec, Fsync::Always] {
        let dir = tempfile::tempdir().unwrap();
        let server =
            Running::start(rhumb_server::Config { threads: 1, fsync, ..config(&dir) }).unwrap();
        let mut client = Client::connect(server.address());
        for round in 0..60 {
            let mut gone = Client::connect(server.address());
            let lines = ["INCR n", "RPUSH l x", "SET s 1", "MULTI", "INCR n", "RPUSH l x"];
            let some = &lines[..1 + round % lines.len()];
            gone.send_raw(&bytes_of(some)).unwrap();
            if round % 2 == 0 {
                // Amid a command.
                gone.send_raw(b"*2\r\n$4\r\nINCR\r\n$1").unwrap();
            }
            drop(gone);
            // The keys are free, and nothing of the transaction happened.
            client.run("INCR n");
            client.run("RPUSH l y");
        }
        wait_until(|| client.run("CLIENT LIST").text().lines().count() == 1);
        // What had not come in when the client was gone is not run. What is run is run once.
        let n: u32 = client.run("GET n").text().parse().unwrap();
        assert!((60..=120).contains(&n), "{n}");
        let Value::Int(len) = client.run("LLEN l") else { panic!("no list") };
        assert!((60..=110).contains(&len), "{len}");
        assert!(matches!(client.run("DEL n l s"), Value::Int(2..=3)));
    }
}

#[test]
fn gets_of_absent_keys_are_counted_however_they_are_run() {
    let dir = tempfile::tempdir().unwrap();
    let settings =
        rhumb_server::Config { metrics: Some(([127, 0, 0, 1], 0).into()), ..config(&dir) };
    let server = Running::start(settings).unwrap();
    let mut client = Client::connect(server.address());
    client.run("SET there 1");
    client.run("GET absent");
    pipe(&mut client, &["GET absent", "GET there", "STRLEN absent", "GET absent", "MGET absent"]);
    pipe(&mut client, &["MULTI", "GET absent", "GET there", "EXEC"]);
    let (_, text) = common::http(&server, "/metrics");
    assert!(text.contains("rhumb_absent_gets_total 4"), "{text}");
}
