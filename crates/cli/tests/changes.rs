//! `changes` and `replicate`, beside processes that write, and all of them killed.

mod common;

use std::{fmt::Write as _, io::BufRead, thread::sleep, time::Duration};

use common::{Shell, kill, kills, start};

#[test]
fn changes_are_printed_as_lines_and_as_objects() {
    let shell = Shell::new();
    shell.file("lines.tsv", "a\t1\nb\t2\n");
    shell.ok(&["load", "--quiet", "--no-header", "--value-column", "2", "lines.tsv"]);
    shell.ok(&["put", "c", "3"]);
    // The log of a process that has ended is in tables.
    assert_eq!(shell.ok(&["changes"]), "");
    let next = |line: String| {
        let object: serde_json::Value = serde_json::from_str(&line).expect("an object");
        (object["op"].clone(), object["key"].clone(), object["value"].clone())
    };
    // It keeps the log of those that come, whether it is followed or not.
    assert_eq!(shell.ok(&["changes", "--cursor", "mail"]), "");
    let follow = ["changes", "--cursor", "mail", "--follow", "--json"];
    let mut told = String::new();
    for round in ["1", "2"] {
        shell.ok(&["put", "d", round]);
        let (reader, mut out) = start(&shell, &follow);
        while !told.ends_with(&format!("\"insert\" \"d\" \"{round}\"\n")) {
            let mut line = String::new();
            out.read_line(&mut line).expect("a line");
            let (op, key, value) = next(line);
            writeln!(told, "{op} {key} {value}").expect("memory");
        }
        shell.ok(&["del", "d"]);
        let mut line = String::new();
        out.read_line(&mut line).expect("a line");
        assert_eq!(next(line).0, "remove");
        kill(reader);
    }
    // What was printed may come again; what was written comes in its order.
    let last = shell.ok(&["changes", "--cursor", "mail"]);
    assert!(last.is_empty() || last.ends_with("\tremove\td\n"), "{last}");
    assert_eq!(shell.ok(&["changes", "--cursor", "mail"]), "");
    shell.ok(&["changes", "--forget", "mail"]);
    assert_eq!(shell.run(&["changes", "--forget", "mail"]).code, 1);
    shell.fails_usage(&["changes", "--from", "1", "--cursor", "mail"]);
    shell.fails_usage(&["changes", "--from", "then"]);
    shell.fails(&["changes", "--from", "1000000"], 3, "the last write is");
}

/// All entries of a database.
fn contents(shell: &Shell, db: &str) -> String {
    shell.ok(&["scan", "--db", db])
}

#[test]
fn a_copy_equals_its_source_whatever_is_killed() {
    let shell = Shell::new();
    let (source, copy) = ("db", "copy");
    let lines = |round: u32| {
        (0..5_000).fold(String::new(), |mut lines, n| {
            writeln!(lines, "key {:06}\tvalue {round} of {n}", n * round % 7_000).expect("memory");
            lines
        })
    };
    let load = ["load", "--db", source, "--no-header", "--value-column", "2", "--batch", "50"];
    let load = [&load[..], &["--progress-json", "lines.tsv"]].concat();
    shell.file("lines.tsv", lines(1));
    assert_eq!(shell.run(&load).code, 0);
    shell.ok(&["replicate", source, copy, "--once"]);
    assert!(contents(&shell, source) == contents(&shell, copy));
    let mut taken = 0;
    for round in 2..2 + kills(6) {
        shell.file("lines.tsv", lines(round));
        let (writer, mut progress) = start(&shell, &load);
        let (follower, _out) = start(&shell, &["replicate", source, copy]);
        progress.read_line(&mut String::new()).expect("it has begun");
        sleep(Duration::from_millis(u64::from(round) * 97 % 300));
        if round % 2 == 0 {
            kill(follower);
            kill(writer);
        } else {
            kill(writer);
            sleep(Duration::from_millis(u64::from(round) * 31 % 100));
            kill(follower);
        }
        // What the kill has left is recovered, and durable.
        shell.ok(&["put", "--db", source, "round", &round.to_string()]);
        let ended = shell.ok(&["replicate", source, copy, "--once", "--json"]);
        let ended: serde_json::Value = serde_json::from_str(&ended).expect("an object");
        taken += ended["commits"].as_u64().expect("a number");
        assert!(contents(&shell, source) == contents(&shell, copy), "round {round}");
    }
    assert!(taken > 0);
    shell.ok(&["check", "--db", copy]);
    // The copy takes no writes, until it is a database of its own.
    shell.ok(&["put", "--db", copy, "own", "1"]);
    shell.fails(&["replicate", source, copy, "--once"], 3, "is no copy of another one");
}

/// The last commit of a file with a wrong name, of a place that is held, of a log that is gone.
#[test]
fn what_stands_in_the_way_of_a_copy_is_told() {
    let shell = Shell::new();
    shell.fails(&["replicate", "db", "copy", "--once"], 3, "there is no database in db");
    shell.ok(&["put", "a", "1"]);
    let (server, mut out) = start(&shell, &["serve", "--listen", "127.0.0.1:0"]);
    out.read_line(&mut String::new()).expect("a banner");
    shell.fails(&["replicate", "db", "copy", "--once"], 3, "make a backup now");
    kill(server);
    // A backup that is restored is a copy, and the log is kept from before it.
    shell.ok(&["backup", "backups"]);
    shell.ok(&["put", "b", "1"]);
    shell.ok(&["restore", "backups", "copy"]);
    let ended = shell.ok(&["replicate", "db", "copy", "--once"]);
    assert!(ended.contains("1 commit taken"), "{ended}");
    assert_eq!(shell.ok(&["get", "--db", "copy", "b"]), "1");
    shell.fails(&["replicate", "db", "copy", "--cursor", "a/b"], 3, "the name of a cursor");
    // Nothing keeps the log.
    std::fs::remove_file(shell.path("db/replicate.cursor")).expect("a cursor");
    shell.ok(&["put", "b", "2"]);
    shell.fails(&["replicate", "db", "copy", "--once"], 3, "remove it, and call again");
}
