//! `get`, `put`, `del`, `scan`, `count`, and the commands on the whole database.

mod common;

use std::{io::Read, process::Stdio};

use common::Shell;
use serde_json::{Value as Json, json};

/// A shell whose database holds the keys of a small list of packages.
fn with_packages() -> Shell {
    let shell = Shell::new();
    let names = shell.file("names.txt", "@babel/cli\n@babel/core\n@types/node\nleft-pad\nreact\n");
    shell.ok(&["load".as_ref(), names.as_os_str()]);
    shell
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().collect()
}

#[test]
fn what_was_put_is_got() {
    let shell = Shell::new();
    assert_eq!(shell.ok(&["put", "greeting", "hello"]), "");
    assert_eq!(shell.ok(&["get", "greeting"]), "hello");
    shell.ok(&["put", "greeting", "bonjour"]);
    assert_eq!(shell.ok(&["get", "greeting"]), "bonjour");
    shell.ok(&["del", "greeting"]);
    assert_eq!(shell.run(&["get", "greeting"]).code, 1);
}

#[test]
fn an_absent_key_is_exit_code_1_and_silence() {
    let shell = with_packages();
    for command in ["get", "del"] {
        let ended = shell.run(&[command, "absent"]);
        assert_eq!((ended.code, ended.stderr.as_str()), (1, ""), "{command}");
        assert!(ended.stdout.is_empty());
    }
}

#[test]
fn many_keys_are_got_at_once() {
    let shell = with_packages();
    let found = shell.ok_with_input(&["get", "--keys-from", "-"], b"react\n@babel/cli\n");
    assert_eq!(found, "react\t5\n@babel/cli\t1\n");
    let many: String = (0..1000).map(|n| format!("absent{n}\n")).collect();
    shell.file("keys.txt", format!("react\n{many}left-pad\n"));
    let ended = shell.run(&["get", "--json", "--keys-from", "keys.txt"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (1, "rhumb: 1,000 of 1,002 keys are absent\n"));
    assert_eq!(lines(std::str::from_utf8(&ended.stdout).unwrap()).len(), 2);
    assert_eq!(shell.run(&["get"]).code, 64);
}

#[test]
fn any_bytes_are_a_value() {
    let shell = Shell::new();
    let value: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    shell.ok_with_input(&["put", "binary"], &value);
    let ended = shell.run(&["get", "--raw", "binary"]);
    assert!(ended.code == 0 && ended.stdout == value);
    shell.ok(&["put", "--hex", "00ff", "0a"]);
    assert_eq!(shell.ok(&["get", "--hex", "00ff"]), "0a\n");
    shell.ok(&["put", "--u64", "18446744073709551615", "last"]);
    assert_eq!(shell.ok(&["get", "--hex", "ffffffffffffffff"]), "6c617374\n");
    shell.ok(&["put", "", "the empty key"]);
    assert_eq!(shell.ok(&["get", ""]), "the empty key");
}

#[test]
fn a_scan_is_in_order_and_within_its_bounds() {
    let shell = with_packages();
    let keys = |args: &[&str]| {
        let args: Vec<&str> = ["scan", "--keys-only"].iter().chain(args).copied().collect();
        shell.ok(&args).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(keys(&[]), ["@babel/cli", "@babel/core", "@types/node", "left-pad", "react"]);
    assert_eq!(keys(&["--prefix", "@babel/"]), ["@babel/cli", "@babel/core"]);
    assert_eq!(
        keys(&["--from", "@babel/core", "--to", "react"]),
        ["@babel/core", "@types/node", "left-pad"]
    );
    assert_eq!(keys(&["--reverse", "--limit", "2"]), ["react", "left-pad"]);
    assert_eq!(keys(&["--from", "m", "--to", "m"]), [""; 0]);
    assert_eq!(keys(&["--limit", "0"]), [""; 0]);
    assert_eq!(lines(&shell.ok(&["scan", "--limit", "1"])), ["@babel/cli\t1"]);
}

#[test]
fn entries_are_counted() {
    let shell = with_packages();
    assert_eq!(shell.ok(&["count"]), "5\n");
    assert_eq!(shell.ok(&["count", "--prefix", "@"]), "3\n");
    assert_eq!(shell.ok(&["count", "--from", "z"]), "0\n");
    shell.ok(&["del", "react"]);
    assert_eq!(shell.ok(&["count", "--json"]), "{\"count\":4}\n");
}

#[test]
fn json_is_for_programs() {
    let shell = with_packages();
    let got: Json = serde_json::from_str(&shell.ok(&["get", "--json", "react"])).unwrap();
    assert_eq!(got, json!({"key": "react", "value": "5"}));
    shell.ok(&["put", "--hex", "ff", "fe"]);
    let scanned = shell.ok(&["scan", "--json"]);
    let objects: Vec<Json> =
        scanned.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects.len(), 6);
    assert_eq!(objects[3], json!({"key": "left-pad", "value": "4"}));
    assert_eq!(objects[5], json!({"key_hex": "ff", "value_hex": "fe"}));
}

#[test]
fn a_line_is_an_entry_whatever_it_holds() {
    let shell = Shell::new();
    shell.ok_with_input(&["put", "a\nb\tc"], b"\x1b[31m\\\xff");
    assert_eq!(shell.ok(&["scan"]), "a\\nb\\tc\t\\x1b[31m\\\\\\xff\n");
}

#[test]
fn a_reader_may_leave() {
    let shell = Shell::new();
    let many: String = (0..200_000).map(|n| format!("key{n:09}\n")).collect();
    shell.ok_with_input(&["load", "-"], many.as_bytes());
    let mut child = shell
        .command(&["scan"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 9];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(&first, b"key000000");
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}

#[test]
fn what_cannot_be_done_says_what_to_do() {
    let shell = with_packages();
    shell.fails(&["get", "--db", "nowhere", "a"], 3, "there is no database at nowhere");
    shell.fails(&["count", "--keyspace", "other"], 3, "there are: default");
    shell.fails(&["get", "--u64", "abc"], 64, "is not a number");
    shell.fails(&["get", "--hex", "abc"], 64, "hexadecimal");
    shell.fails(&["scan", "--from", "b", "--to", "a"], 64, "--from is after --to");
    shell.fails(&["drop", "default"], 64, "--yes");
    shell.fails(&["drop", "other", "--yes"], 3, "no keyspace \"other\"");
    let long_key = "k".repeat((64 << 10) + 1);
    shell.fails(&["put", &long_key, "v"], 3, "65536");
    assert_eq!(shell.ok(&["count"]), "5\n");
}

#[test]
fn a_wrong_command_line_is_exit_code_64() {
    let shell = Shell::new();
    for args in [&["frobnicate"][..], &["get"], &["get", "--none", "a"], &["load"]] {
        let ended = shell.run(args);
        assert_eq!(ended.code, 64, "{ended:?}");
        assert!(ended.stdout.is_empty() && !ended.stderr.is_empty());
    }
}

#[test]
fn a_database_has_one_writer_at_a_time() {
    let shell = with_packages();
    let held = rhumb::Database::builder(shell.db()).open().unwrap();
    shell.fails(&["put", "more", "1"], 3, "is held by");
    assert_eq!(shell.ok(&["count"]), "5\n");
    drop(held);
    shell.ok(&["put", "more", "1"]);
    assert_eq!(shell.ok(&["count"]), "6\n");
}

#[test]
fn keyspaces_are_apart() {
    let shell = with_packages();
    shell.ok(&["put", "--keyspace", "other", "a", "1"]);
    assert_eq!(shell.ok(&["count", "--keyspace", "other"]), "1\n");
    assert_eq!(shell.ok(&["drop", "default", "--yes"]), "dropped default\n");
    shell.fails(&["count"], 3, "there are: other");
    assert_eq!(shell.ok(&["count", "--keyspace", "other"]), "1\n");
}

#[test]
fn a_checkpoint_is_a_database() {
    let shell = with_packages();
    shell.ok(&["checkpoint", "copy"]);
    shell.ok(&["del", "react"]);
    assert_eq!(shell.ok(&["get", "--db", "copy", "react"]), "5");
    assert_eq!(shell.ok(&["count", "--db", "copy"]), "5\n");
    shell.fails(&["checkpoint", "copy"], 3, "copy");
}

#[test]
fn a_backup_has_points_that_are_restored() {
    let shell = with_packages();
    let first: Json = serde_json::from_str(&shell.ok(&["backup", "kept", "--json"])).unwrap();
    assert_eq!(
        (first["point"].as_u64(), first["bytes"].as_u64()),
        (Some(1), first["copied_bytes"].as_u64())
    );
    shell.ok(&["del", "react"]);
    assert!(shell.ok(&["backup", "kept"]).starts_with("point 2 of"));
    assert_eq!(shell.ok(&["restore", "kept", "--list"]).lines().count(), 2);
    assert_eq!(shell.ok(&["restore", "kept", "--verify"]), "point 1 is whole\npoint 2 is whole\n");
    shell.ok(&["restore", "kept", "one", "--point", "1"]);
    assert_eq!(shell.ok(&["get", "--db", "one", "react"]), "5");
    shell.ok(&["restore", "kept", "two"]);
    assert_eq!(shell.ok(&["count", "--db", "two"]), "4\n");
    shell.fails(&["restore", "kept", "two"], 3, "is not empty");
    shell.fails(&["restore", "kept", "three", "--point", "9"], 3, "no point 9");
    shell.fails(&["restore", "nowhere", "--list"], 3, "no backup in");
    shell.fails(&["backup", "--db", "one", "kept"], 3, "another database");
    shell.ok(&["restore", "kept", "--remove", "1"]);
    shell.fails(&["restore", "kept", "--verify", "--point", "1"], 3, "no point 1");
    let list: Json =
        serde_json::from_str(&shell.ok(&["restore", "kept", "--list", "--json"])).unwrap();
    assert_eq!(list["point"], 2);
}

#[test]
fn compaction_keeps_what_is_there() {
    let shell = with_packages();
    shell.ok(&["del", "react"]);
    shell.ok(&["put", "left-pad", "new"]);
    let compacted: Json = serde_json::from_str(&shell.ok(&["compact", "--json"])).unwrap();
    assert!(compacted["bytes_after"].as_u64().unwrap() > 0);
    assert_eq!(shell.ok(&["count"]), "4\n");
    assert_eq!(shell.ok(&["get", "left-pad"]), "new");
}

#[test]
fn every_command_explains_itself() {
    let shell = Shell::new();
    let help = shell.ok(&["--help"]);
    assert!(help.contains("Exit codes:") && help.contains("Examples:"));
    let commands = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|name| !name.is_empty() && *name != "help");
    let mut count = 0;
    for command in commands {
        let help = shell.ok(&[command, "--help"]);
        assert!(help.contains("Usage: rhumb"), "{command}: {help}");
        assert!(help.contains("Examples:"), "{command}: {help}");
        count += 1;
    }
    assert!(count == 23, "{count} commands in {help}");
    assert_eq!(shell.ok(&["--version"]), format!("rhumb {}\n", env!("CARGO_PKG_VERSION")));
}
