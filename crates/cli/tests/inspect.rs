//! `inspect`, `explain` and `check`: what they show of a database, whole and damaged.

mod common;

use std::fs;

use common::{Shell, files_with_suffix};
use serde_json::Value as Json;

/// A database with a table of 20,000 keys.
fn with_table() -> Shell {
    let shell = Shell::new();
    let text: String = (0..20_000).map(|n| format!("user/{:08}\n", n * 13)).collect();
    shell.file("sorted.txt", text);
    shell.ok(&["load", "sorted.txt"]);
    shell
}

#[track_caller]
fn json(shell: &Shell, args: &[&str]) -> Json {
    serde_json::from_str(&shell.ok(args)).expect("one object")
}

#[test]
fn a_database_is_shown_level_by_level() {
    let shell = with_table();
    let text = shell.ok(&["inspect", "db"]);
    assert!(text.contains("keyspace   default") && text.contains("index B/key"), "{text}");
    let report = json(&shell, &["inspect", "db", "--json"]);
    let levels = report["keyspaces"][0]["levels"].as_array().unwrap();
    let tables = levels.iter().flat_map(|level| level.as_array().unwrap());
    assert_eq!(tables.map(|table| table["entries"].as_u64().unwrap()).sum::<u64>(), 20_000);
}

#[test]
fn tables_are_shown_by_number_and_by_file() {
    let shell = with_table();
    let all = shell.ok(&["inspect", "sst", "--json"]);
    let table: Json = serde_json::from_str(all.lines().next().unwrap()).unwrap();
    let (id, path) = (table["id"].to_string(), table["path"].as_str().unwrap());
    assert_eq!(json(&shell, &["inspect", "sst", "--json", &id]), table);
    let mut by_file = json(&shell, &["inspect", "sst", "--json", path]);
    // The numbers of an ingested table's entries are in the manifest, not in its file.
    for name in ["seq_min", "seq_max"] {
        by_file[name] = table[name].clone();
    }
    assert_eq!(by_file, table);
    assert!(shell.ok(&["inspect", "sst", &id]).contains("learned"));
    shell.fails(&["inspect", "sst", "999"], 3, "there is no table 999");
    shell.fails(&["inspect", "sst", "sorted.txt"], 3, "not named like a table");
}

#[test]
fn a_model_is_shown_and_drawn() {
    let shell = with_table();
    let text = shell.ok(&["inspect", "model", "--plot", "model.svg"]);
    assert!(text.contains("every key is in the block that the index names"), "{text}");
    let svg = fs::read_to_string(shell.path("model.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.matches("<circle").count() > 1000);
    assert!(svg.contains("segments of the model"));
    let model = json(&shell, &["inspect", "model", "--json", "--points", "50"]);
    assert_eq!(model["error_blocks_max"], 0);
    let points = model["points"].as_array().unwrap();
    assert!(points.len() > 40 && points.iter().all(|p| p["block"] == p["predicted_block"]));
    shell.fails(&["inspect", "model", "--plot", "no/such/dir.svg"], 3, "cannot write");
    // A drawing is replaced, and nothing else is.
    shell.ok(&["inspect", "model", "--plot", "model.svg"]);
    let before = fs::read(shell.path("sorted.txt")).unwrap();
    shell.fails(&["inspect", "model", "--plot", "sorted.txt"], 3, "not a drawing");
    assert!(fs::read(shell.path("sorted.txt")).unwrap() == before);
}

#[test]
fn logs_and_manifests_are_listed() {
    let shell = with_table();
    let manifest = shell.ok(&["inspect", "manifest"]);
    assert!(manifest.contains("create keyspace") && manifest.contains("add table"), "{manifest}");
    for line in shell.ok(&["inspect", "manifest", "--json"]).lines() {
        let _: Json = serde_json::from_str(line).unwrap();
    }
    let log = shell.ok(&["inspect", "log"]);
    assert!(log.starts_with("log "), "{log}");
    for line in shell.ok(&["inspect", "log", "--json"]).lines() {
        let _: Json = serde_json::from_str(line).unwrap();
    }
    shell.fails(&["inspect", "log", "sorted.txt"], 3, "not the name of a log");
}

#[test]
fn nothing_is_changed_by_looking() {
    let shell = with_table();
    let contents = || -> Vec<_> {
        let files = files_with_suffix(&shell.db(), "");
        files.into_iter().map(|path| (fs::read(&path).unwrap(), path)).collect()
    };
    let before = contents();
    for what in ["db", "sst", "model", "log", "manifest"] {
        shell.ok(&["inspect", what]);
    }
    assert!(before == contents());
}

#[test]
fn a_read_is_explained() {
    let shell = with_table();
    let text = shell.ok(&["explain", "user/00001300"]);
    assert!(text.contains("segment") && text.contains("a value of 3 bytes"), "{text}");
    let found = json(&shell, &["explain", "--json", "user/00001300"]);
    assert_eq!(found["block_reads"], 1);
    let step = &found["tables"][0];
    assert_eq!(step["predicted_block"], step["actual_block"]);
    let absent = json(&shell, &["explain", "--json", "user/00001301"]);
    assert_eq!(absent["answer"]["found"], false);
}

#[test]
fn a_sound_database_passes() {
    let shell = with_table();
    assert!(shell.ok(&["check"]).contains("all sound"));
    let report = json(&shell, &["check", "--json"]);
    assert_eq!((&report["sound"], &report["entries"]), (&Json::Bool(true), &20_000.into()));
    shell.fails(&["check", "--db", "nowhere"], 3, "there is no database at nowhere");
    fs::create_dir(shell.path("empty")).unwrap();
    shell.fails(&["check", "--db", "empty"], 3, "no database in empty");
}

#[test]
fn damage_is_exit_code_2_and_a_list() {
    let shell = with_table();
    let table = files_with_suffix(&shell.db(), ".sst").pop().unwrap();
    let mut bytes = fs::read(&table).unwrap();
    bytes[5000] ^= 1;
    bytes[50_000] ^= 1;
    fs::write(&table, &bytes).unwrap();
    shell.fails(&["check"], 2, "2 problems");
    let listed = String::from_utf8(shell.run(&["check"]).stdout).unwrap();
    assert_eq!(listed.matches(table.to_str().unwrap()).count(), 2, "{listed}");
    let ended = shell.run(&["check", "--json"]);
    let report: Json = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!((ended.code, report["problems"].as_array().unwrap().len()), (2, 2));
    // A read that meets the damage says so; the others go on.
    shell.fails(&["scan"], 2, "rhumb check");
    assert_eq!(shell.run(&["get", "user/00259987"]).code, 0);
}

#[test]
fn a_directory_whose_name_is_not_text_is_shown_as_well() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

    let shell = Shell::new();
    let db = OsStr::from_bytes(b"caf\xe9");
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let run = |line: &str| {
        let mut args: Vec<_> = words(line).into_iter().map(std::ffi::OsString::from).collect();
        args.extend(["--db".into(), db.to_owned()]);
        shell.run_with_input(&args, b"a\nb\n")
    };
    assert_eq!(run("load -").code, 0);
    for line in [
        "inspect db --json",
        "inspect sst --json",
        "inspect log --json",
        "inspect manifest --json",
        "explain --json a",
    ] {
        let ended = run(line);
        assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{line}");
        let shown = String::from_utf8(ended.stdout).expect("the output is text");
        assert!(shown.contains("\"path_hex\":\"636166e9"), "{line}: {shown}");
    }
    let table = files_with_suffix(&shell.path("").join(db), ".sst").pop().expect("a table");
    fs::write(&table, b"not a table").expect("the table is replaced");
    let ended = run("check --json");
    assert!(ended.code == 2 && !ended.stdout.is_empty(), "{ended:?}");
}
