//! Every exit code that the help promises, by what causes it.

mod common;

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use common::{Shell, files_with_suffix};

/// A database of two keyspaces, one with a table.
fn with_table() -> Shell {
    let shell = Shell::new();
    shell.file("names.txt", "a\nb\nc\n");
    shell.ok(&["load", "names.txt"]);
    shell.ok(&["put", "--keyspace", "other", "x", "y"]);
    shell
}

/// Command lines, and the code that each ends with on such a database.
const CODES: [(i32, &[&str]); 61] = [
    (0, &["get", "a"]),
    (0, &["count"]),
    (0, &["check"]),
    (0, &["compact"]),
    (0, &["scan", "--limit", "0"]),
    (0, &["--version"]),
    (0, &["bench", "engine", "--help"]),
    (0, &["count", "--memory", "16MiB"]),
    (0, &["count", "--memory", "33554432"]),
    (0, &["count", "--data", "db"]),
    (1, &["get", "absent"]),
    (1, &["get", "--json", "absent"]),
    (1, &["get", "--keys-from", "absent.txt"]),
    (1, &["del", "absent"]),
    (3, &["get", "--db", "nowhere", "a"]),
    (3, &["get", "--keyspace", "nowhere", "a"]),
    (3, &["load", "nowhere.txt"]),
    (3, &["load", "--u64", "names.txt"]),
    (3, &["drop", "nowhere", "--yes"]),
    (3, &["checkpoint", "db"]),
    (3, &["restore", "nowhere", "--list"]),
    (64, &["restore", "nowhere"]),
    (3, &["serve", "--config", "nowhere.toml"]),
    (3, &["serve", "--db", "new", "--listen", "0.0.0.0:0"]),
    (3, &["serve", "--db", "new", "--listen", "127.0.0.1:0", "--metrics", "0.0.0.0:0"]),
    (64, &[]),
    (64, &["frobnicate"]),
    (64, &["get"]),
    (64, &["get", "--hex", "0"]),
    (64, &["get", "--u64", "a"]),
    (64, &["scan", "--from", "b", "--to", "a"]),
    (64, &["drop", "default"]),
    (64, &["count", "--memory", "512"]),
    (64, &["count", "--memory", "64"]),
    (64, &["count", "--memory", "lots"]),
    (64, &["count", "--memory", "17TiB"]),
    (64, &["load", "--from-line", "0", "names.txt"]),
    (64, &["load", "--format", "lines", "--delimiter", ";", "names.txt"]),
    (64, &["serve", "--memory", "64"]),
    (64, &["serve", "--threads", "3000"]),
    (64, &["serve", "--listen", "localhost"]),
    (64, &["bench", "engine", "--frobnicate"]),
    (64, &["bench", "engine", "--keys", "0"]),
    (64, &["bench", "engine", "frobnicate"]),
    (64, &["bench", "engine", "--data", "frobnicate", "--quick"]),
    (64, &["bench", "engine", "--subjects", "frobnicate"]),
    (64, &["bench", "engine", "--value-size", "1"]),
    (64, &["bench", "engine", "--memtable", "64"]),
    (64, &["bench", "engine", "--memtable", "many"]),
    (64, &["bench", "engine", "--cache", "512"]),
    (64, &["bench", "engine", "--block-size", "1"]),
    (64, &["bench", "ycsb", "--cache-share", "2"]),
    (64, &["bench", "index", "--preset", "frobnicate"]),
    (3, &["remote", "get", "nowhere.sock", "k", "a"]),
    (3, &["remote", "get", "tcp:localhost:1", "k", "a"]),
    (64, &["remote"]),
    (64, &["remote", "get", "nowhere.sock", "k"]),
    (64, &["remote", "get", "tcp:localhost", "k", "a"]),
    (64, &["remote", "scan", "nowhere.sock", "k", "--from", "b", "--to", "a"]),
    (64, &["bench", "remote", "--preset", "cuckoo"]),
    (64, &["bench", "remote", "--fabric", "telegraph"]),
];

#[test]
fn every_exit_code_is_as_promised() {
    let shell = with_table();
    shell.file("absent.txt", "a\nabsent\n");
    for (code, args) in CODES {
        let ended = shell.run(args);
        assert_eq!(ended.code, code, "{args:?}: {ended:?}");
        let is_silent = code == 0 || (code == 1 && !args.contains(&"--keys-from"));
        assert_eq!(ended.stderr.is_empty(), is_silent, "{args:?}: {ended:?}");
    }
}

#[test]
fn damage_is_exit_code_2_also_if_a_table_is_missing() {
    for is_missing in [true, false] {
        let shell = with_table();
        let table = files_with_suffix(&shell.db(), ".sst").pop().expect("a table");
        if is_missing {
            fs::remove_file(&table).expect("the table is removed");
        } else {
            fs::write(&table, b"not a table").expect("the table is replaced");
        }
        for args in [&["check"][..], &["get", "a"], &["scan"], &["count"], &["put", "d", "e"]] {
            let ended = shell.run(args);
            assert_eq!(ended.code, 2, "{args:?}: {ended:?}");
            assert!(ended.stderr.starts_with("rhumb: "), "{ended:?}");
        }
    }
}

#[test]
fn sizes_addresses_and_directories_are_written_alike_everywhere() {
    let shell = with_table();
    let message = "it may be from 16MiB to 16TiB, and a number without a unit is bytes";
    for command in ["count", "compact", "serve", "dump"] {
        let ended = shell.run(&[command, "--memory", "512"]);
        assert!(ended.code == 64 && ended.stderr.contains(message), "{command}: {ended:?}");
    }
    shell.file("small.toml", "fsync = \"always\"\n\nmemory = 64\n");
    shell.fails(&["serve", "--config", "small.toml"], 3, "small.toml: line 3: memory of 64 bytes");
    shell.file("none.toml", "[limits]\nclients = 0\n");
    shell.fails(&["serve", "--config", "none.toml"], 3, "none.toml: line 2: 0 clients");
    shell.fails(&["serve", "--metrics", "0.0.0.0:0"], 3, "--metrics-open");
}

/// Returns true if there is a file in a directory, or in one below, while others make and remove
/// some.
fn has_files(dir: &Path) -> bool {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| path.is_file() || has_files(&path))
}

/// Ctrl-C in a benchmark leaves nothing of its stores, also while they are written to.
#[test]
fn a_signal_ends_a_benchmark_and_its_stores_are_removed() {
    for suite in [&["engine", "queue"][..], &["memory", "--memory", "16MiB", "--threads", "2"]] {
        let shell = Shell::new();
        let stores = shell.path("stores");
        fs::create_dir(&stores).unwrap();
        let args = ["bench"].iter().chain(suite).chain(&["--dir", "stores"]);
        let mut child = shell
            .command(&args.collect::<Vec<_>>())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        while !has_files(&stores) {
            assert!(child.try_wait().unwrap().is_none(), "{suite:?} ended by itself");
            thread::sleep(Duration::from_millis(10));
        }
        let id = child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(130), "{message}");
        assert!(message.ends_with("rhumb: interrupted: the stores are removed\n"), "{message}");
        assert_eq!(fs::read_dir(&stores).unwrap().count(), 0, "{suite:?}");
    }
}
