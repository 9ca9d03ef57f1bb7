//! Commands that read, beside processes that write: a server, a load, and both of them killed.

mod common;

use std::{
    fmt::Write as _,
    fs,
    io::{BufRead, Read},
};

use common::{Shell, kill, kills, start};

/// Lines of keys and values; all values are of `round`.
fn lines(round: u32) -> String {
    (0..20_000).fold(String::new(), |mut lines, n| {
        writeln!(lines, "key {n:06}\tvalue {round} of {n}").expect("memory takes it");
        lines
    })
}

fn load(shell: &Shell, round: u32) {
    shell.file("lines.tsv", lines(round));
    shell.ok(&["load", "--quiet", "--no-header", "--value-column", "2", "lines.tsv"]);
}

/// The names of the files of the database, without those of tables, logs and manifests.
fn others(shell: &Shell) -> Vec<String> {
    let entries = fs::read_dir(shell.db()).expect("a database");
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let is_other = |name: &String| {
        !name.starts_with("MANIFEST-")
            && !["sst", "set", "val", "log"].iter().any(|end| name.ends_with(end))
    };
    let mut names: Vec<String> = names.filter(is_other).collect();
    names.sort();
    names
}

#[test]
fn every_reading_command_works_beside_a_server() {
    let shell = Shell::new();
    load(&shell, 1);
    let (server, mut out) = start(&shell, &["serve", "--listen", "127.0.0.1:0"]);
    let mut banner = String::new();
    out.read_line(&mut banner).expect("a banner");
    for args in [
        &["get", "key 000007"][..],
        &["scan", "--prefix", "key 0000"],
        &["scan", "--reverse", "--limit", "3", "--json"],
        &["count"],
        &["dump"],
        &["explain", "key 000007"],
        &["check", "--json"],
        &["inspect", "db", "--json"],
        &["inspect", "sst"],
        &["inspect", "model", "--json"],
        &["inspect", "log"],
        &["inspect", "manifest"],
    ] {
        let ended = shell.run(args);
        assert_eq!((ended.code, &*ended.stderr), (0, ""), "{args:?}");
    }
    assert_eq!(shell.ok(&["get", "key 000007"]), "value 1 of 7");
    assert_eq!(shell.ok(&["count"]).trim(), "20000");
    for args in [&["put", "a", "b"][..], &["del", "key 000001"], &["compact"]] {
        let refused = shell.run(args);
        assert!(refused.code != 0 && refused.stderr.contains("LOCK is held by"), "{refused:?}");
    }
    kill(server);
    assert_eq!(others(&shell), ["CURRENT", "LOCK"]);
    shell.ok(&["put", "a", "b"]);
}

/// A scan that stands still reads on in files that were replaced since; killed, it leaves nothing.
#[test]
fn scans_go_on_while_writers_replace_all_files_and_are_killed() {
    let shell = Shell::new();
    load(&shell, 1);
    shell.ok(&["compact"]);
    for round in 1..=kills(3) {
        // The pipe is full soon, and the scan waits.
        let (reader, mut out) = start(&shell, &["scan"]);
        let mut text = String::new();
        out.read_line(&mut text).expect("a line");
        let (victim, mut other) = start(&shell, &["scan"]);
        other.read_line(&mut String::new()).expect("a line");
        // A writer is killed in the middle of its work, and another one replaces all tables.
        shell.file("lines.tsv", lines(round + 1));
        let load_args =
            ["load", "--quiet", "--no-header", "--value-column", "2", "--progress-json"];
        let (writer, mut progress) =
            start(&shell, &[&load_args[..], &["--batch", "100", "lines.tsv"]].concat());
        progress.read_line(&mut String::new()).expect("it has begun");
        kill(writer);
        load(&shell, round + 1);
        kill(victim);
        shell.ok(&["compact"]);
        out.read_to_string(&mut text).expect("text");
        let mut reader = reader;
        assert!(reader.wait().expect("it ends").success());
        let expected: String = lines(round);
        assert_eq!(text.lines().count(), 20_000, "round {round}");
        assert!(text == expected, "round {round}: a scan has changed");
        assert_eq!(others(&shell), ["CURRENT", "LOCK"]);
    }
    // No file is left that nothing refers to.
    let report = shell.ok(&["inspect", "db", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&report).expect("an object");
    assert_eq!(report["leftover_files"].as_array().map(Vec::len), Some(0), "{report}");
}
