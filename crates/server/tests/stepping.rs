//! What the server steps over where it takes entries out at one end, again and again: counts of the
//! engine, not times.

mod common;

use common::{Client, Value, encode, start, wait_until};

/// Entries that go through each queue: two hundred million steps if each look walked over all that
/// went before.
const ENTRIES: usize = 20_000;

/// Entries that are in between.
const DEPTH: usize = 100;

/// Commands that are sent together.
const TOGETHER: usize = 100;

/// Steps over dead entries that each operation may take: the engine passes a stretch of dead keys
/// at once from its sixteenth on, and looks for more than one thing in an operation.
const STEPS_MAX: usize = 40;

fn figure(client: &mut Client, name: &str) -> usize {
    let text = client.run("INFO everything").text();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
    line.unwrap_or_else(|| panic!("INFO says nothing of {name}")).parse().unwrap()
}

/// Sends commands, [`TOGETHER`] at a time; none is answered with an error.
fn run_all(client: &mut Client, commands: &[Vec<String>]) {
    for part in commands.chunks(TOGETHER) {
        let bytes: Vec<u8> = part
            .iter()
            .flat_map(|command| encode(&command.iter().map(String::as_bytes).collect::<Vec<_>>()))
            .collect();
        client.send_raw(&bytes).unwrap();
        for command in part {
            let reply = client.reply().unwrap();
            assert!(!matches!(reply, Value::Error(_)), "{command:?}: {reply:?}");
        }
    }
}

fn command(text: String) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// Cycles of a command that puts something in and one that takes something out, with some of the
/// former before: each steps over few entries.
#[track_caller]
fn check(what: &str, put: impl Fn(usize) -> String, take: impl Fn(usize) -> String) {
    let (_dir, server, mut client) = start();
    let first = (0..DEPTH).map(&put);
    let cycles = (0..ENTRIES).flat_map(|n| [put(DEPTH + n), take(n)]);
    let commands: Vec<_> = first.chain(cycles).map(command).collect();
    run_all(&mut client, &commands);
    let passed = figure(&mut client, "passed_entries");
    println!("{what}: {passed} entries were stepped over in {ENTRIES} cycles");
    assert!(passed <= ENTRIES * STEPS_MAX, "{what}: {passed} entries were stepped over");
    server.stop().unwrap();
}

#[test]
fn a_list_as_a_queue_steps_over_few_entries() {
    check("RPUSH, LPOP", |n| format!("RPUSH l {n}"), |_| "LPOP l".to_owned());
    check("LPUSH, LPOP", |n| format!("LPUSH l {n}"), |_| "LPOP l".to_owned());
}

#[test]
fn a_sorted_set_as_a_queue_steps_over_few_entries() {
    check("ZADD, ZPOPMIN", |n| format!("ZADD z {n} {n}"), |_| "ZPOPMIN z".to_owned());
    check("ZADD, ZPOPMAX", |n| format!("ZADD z -{n} {n}"), |_| "ZPOPMAX z".to_owned());
}

#[test]
fn collections_that_go_step_over_few_entries() {
    check("SADD, DEL", |n| format!("SADD s{n} a b"), |n| format!("DEL s{n}"));
}

/// Keys end while others are set, so that the sweeper comes again and again.
#[test]
fn the_sweeper_steps_over_few_entries() {
    let (_dir, server, mut client) = start();
    for round in 0..10 {
        let one = |n| command(format!("SET k{round}:{n} v PX {}", 1 + n % 50));
        let commands: Vec<_> = (0..ENTRIES / 10).map(one).collect();
        run_all(&mut client, &commands);
    }
    wait_until(|| figure(&mut client, "expired_keys") == ENTRIES);
    let passed = figure(&mut client, "passed_entries");
    println!("{ENTRIES} keys ended: {passed} entries were stepped over");
    assert!(passed <= ENTRIES * STEPS_MAX, "{passed} entries were stepped over");
    server.stop().unwrap();
}
