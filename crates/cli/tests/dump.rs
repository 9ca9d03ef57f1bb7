//! Whole databases as streams of bytes, and what is sound of a damaged one.

mod common;

use std::fs;

use common::Shell;
use serde_json::Value as Json;

/// A database with two keyspaces, one of which is empty.
fn filled(shell: &Shell) {
    let names: String = (0..3_000).map(|n| format!("name {n:05}\n")).collect();
    let names = shell.file("names.txt", names);
    shell.ok(&["load", "--keyspace", "names", &*names.to_string_lossy()]);
    shell.ok(&["put", "--keyspace", "users", "", "the empty key"]);
    shell.ok(&["del", "--keyspace", "users", ""]);
}

fn keyspaces(shell: &Shell, db: &str) -> Vec<String> {
    ["names", "users"].map(|name| shell.ok(&["scan", "--db", db, "--keyspace", name])).to_vec()
}

/// A dump on the standard output.
fn dumped(shell: &Shell, args: &[&str]) -> Vec<u8> {
    let ended = shell.run(args);
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
    ended.stdout
}

#[test]
fn a_database_is_dumped_and_loaded() {
    let shell = Shell::new();
    filled(&shell);
    let expected = keyspaces(&shell, "db");
    shell.ok(&["dump", "db", "--output", "all.dump"]);
    assert!(!shell.path("all.dump.part").exists());
    shell.ok(&["load", "file.db", "--dump", "all.dump"]);
    assert_eq!(keyspaces(&shell, "file.db"), expected);
    // The same by pipes, and one keyspace alone.
    let whole = dumped(&shell, &["dump", "db"]);
    assert_eq!(whole, fs::read(shell.path("all.dump")).expect("the dump"));
    let ended = shell.run_with_input(&["load", "pipe.db", "--dump", "-", "--json"], &whole);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let report: Json = serde_json::from_slice(&ended.stdout).expect("an object");
    assert_eq!((&report["loaded"], &report["keyspaces"]), (&3_000.into(), &2.into()));
    assert_eq!(keyspaces(&shell, "pipe.db"), expected);
    let one = dumped(&shell, &["dump", "db", "--keyspace", "users"]);
    let ended = shell.run_with_input(&["load", "one.db", "--dump", "-"], &one);
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "loaded 0 entries of 1 keyspace\n");
}

#[test]
fn a_dump_that_is_not_whole_is_refused_before_anything_is_stored() {
    let shell = Shell::new();
    filled(&shell);
    let whole = dumped(&shell, &["dump", "db"]);
    let cut = &whole[..whole.len() - 5];
    shell.file("cut.dump", cut);
    let ended = shell.run(&["load", "new.db", "--dump", "cut.dump"]);
    assert_eq!(ended.code, 3, "{}", ended.stderr);
    assert!(ended.stderr.contains("cut.dump is damaged at offset"), "{}", ended.stderr);
    assert!(!shell.path("new.db").exists());
    // From a pipe, what was whole is there.
    let ended = shell.run_with_input(&["load", "pipe.db", "--dump", "-"], cut);
    assert_eq!(ended.code, 3, "{}", ended.stderr);
    let names = shell.ok(&["count", "--db", "pipe.db", "--keyspace", "names"]);
    assert_eq!(names, "3000\n");
    for wrong in [
        &["dump", "--keyspace", "names", "--keyspace", "users"][..],
        &["dump", "--output", "x"],
        &["load", "a", "b", "--dump", "cut.dump"],
        &["load", "a", "--dump", "cut.dump", "--keyspace", "names"],
    ] {
        assert_eq!(shell.run(wrong).code, 64, "{wrong:?}");
    }
    assert_eq!(shell.run(&["dump", "db", "--keyspace", "missing"]).code, 3);
}

#[test]
fn what_is_sound_is_salvaged_and_losses_are_listed() {
    let shell = Shell::new();
    filled(&shell);
    let expected = keyspaces(&shell, "db");
    let whole = shell.run(&["salvage", "db", "copy"]);
    assert_eq!(whole.code, 0, "{}", whole.stderr);
    assert_eq!(keyspaces(&shell, "copy"), expected);
    let again = shell.run(&["salvage", "db", "copy"]);
    assert_eq!(again.code, 3, "{}", again.stderr);
    // A byte of a block changes.
    let tables = fs::read_dir(shell.db()).expect("the database");
    let paths = tables.map(|entry| entry.expect("an entry").path());
    let table = paths
        .filter(|path| path.extension().is_some_and(|ending| ending == "sst" || ending == "set"))
        .max_by_key(|path| fs::metadata(path).map_or(0, |metadata| metadata.len()))
        .expect("a table");
    let mut bytes = fs::read(&table).expect("its bytes");
    bytes[5_000] ^= 1;
    fs::write(&table, &bytes).expect("a change");
    let before = fs::read(&table).expect("its bytes");
    let ended = shell.run(&["salvage", "db", "salvaged", "--json"]);
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    let report: Json = serde_json::from_slice(&ended.stdout).expect("an object");
    assert_eq!(report["losses"].as_array().map(Vec::len), Some(1), "{report}");
    assert_eq!(
        report["losses"][0]["path"],
        "db/".to_owned() + &table.file_name().unwrap().to_string_lossy()
    );
    assert_eq!(report["manifest"], "whole");
    assert_eq!(fs::read(&table).expect("its bytes"), before);
    shell.ok(&["check", "--db", "salvaged"]);
    let found = keyspaces(&shell, "salvaged");
    let lost = expected[0].lines().count() - found[0].lines().count();
    assert!((1..1_000).contains(&lost), "{lost} entries are lost");
    // Without a manifest nothing is known of keyspaces.
    for entry in fs::read_dir(shell.db()).expect("the database") {
        let path = entry.expect("an entry").path();
        if path.to_string_lossy().contains("MANIFEST") {
            fs::remove_file(path).expect("a removal");
        }
    }
    let ended = shell.run(&["salvage", "db", "joined", "--into", "names"]);
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    let names = shell.ok(&["scan", "--db", "joined", "--keyspace", "names"]);
    assert_eq!(names, found[0]);
    assert!(String::from_utf8_lossy(&ended.stdout).contains("the manifest is lost"));
}
