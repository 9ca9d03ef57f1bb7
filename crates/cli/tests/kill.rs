//! The end of the process in the middle of a load: what it acknowledged is there afterwards.

mod common;

use std::{
    fmt::Write as _,
    io::{BufRead, BufReader},
    process::Stdio,
};

use common::Shell;
use serde_json::Value as Json;

/// How often the process is killed, each time at another place.
fn kills() -> u32 {
    std::env::var("RHUMB_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(4)
}

/// Loads `file`, kills the process once it has acknowledged something and `acknowledgements` were
/// read, and returns how many entries were acknowledged.
fn load_and_kill(shell: &Shell, file: &str, acknowledgements: usize) -> u64 {
    let mut child = shell
        .command(&["load", "--progress-json", "--batch", "100", file])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut acknowledged = 0;
    let mut take = |line: String| {
        // The last line may be the report, or cut in the middle.
        let object: Json = serde_json::from_str(&line).unwrap_or_default();
        acknowledged = object["acknowledged"].as_u64().unwrap_or(acknowledged);
    };
    for line in lines.by_ref().take(acknowledgements) {
        take(line.expect("the output is text"));
    }
    child.kill().expect("the process can be killed");
    child.wait().expect("the process ends");
    // What it had printed until then was acknowledged, too.
    for line in lines.map_while(Result::ok) {
        take(line);
    }
    acknowledged
}

/// Asserts that the first `acknowledged` of `keys` are there with their line as their value, and
/// that nothing is there that was never loaded.
fn assert_loaded(shell: &Shell, keys: &[String], acknowledged: u64) {
    let db = rhumb::Database::builder(shell.db()).open().expect("the database opens");
    let keyspace = db.keyspace("default", Default::default()).expect("the keyspace opens");
    for (place, key) in keys.iter().enumerate().take(acknowledged as usize) {
        let value = keyspace.get(key).expect("the key is read");
        assert_eq!(value.as_deref(), Some((place + 1).to_string().as_bytes()), "{key}");
    }
    let places: std::collections::HashMap<&[u8], usize> =
        keys.iter().enumerate().map(|(place, key)| (key.as_bytes(), place + 1)).collect();
    for entry in keyspace.iter() {
        let (key, value) = entry.expect("the entry is read");
        let place = places.get(&*key).expect("the key was loaded");
        assert_eq!(&*value, place.to_string().as_bytes());
    }
}

fn as_lines(keys: &[String]) -> String {
    keys.iter().fold(String::new(), |mut text, key| {
        writeln!(text, "{key}").expect("writing to memory does not fail");
        text
    })
}

#[test]
fn nothing_acknowledged_is_lost_by_a_kill() {
    let keys: Vec<String> =
        (0..100_000_u64).map(|n| format!("user{:08}", n * 7919 % 100_003)).collect();
    for kill in 0..kills() {
        let shell = Shell::new();
        shell.file("mixed.txt", as_lines(&keys));
        let acknowledged = load_and_kill(&shell, "mixed.txt", 1 + 61 * kill as usize);
        assert!(acknowledged > 0);
        assert_loaded(&shell, &keys, acknowledged);
        // And it goes on from there.
        shell.ok(&["load", "--blind", "mixed.txt"]);
        assert_loaded(&shell, &keys, keys.len() as u64);
    }
}

#[test]
fn nothing_ingested_is_lost_by_a_kill() {
    let keys: Vec<String> = (0..1_200_000_u64).map(|n| format!("user{n:08}")).collect();
    let shell = Shell::new();
    shell.file("sorted.txt", as_lines(&keys));
    let acknowledged = load_and_kill(&shell, "sorted.txt", 1);
    assert!(acknowledged > 0);
    assert_loaded(&shell, &keys, acknowledged);
}
