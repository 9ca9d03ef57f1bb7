//! `load`: every format, both ways in, and wrong input.

mod common;

use common::Shell;
use serde_json::Value as Json;

/// The report of a load with `--json`.
fn report(shell: &Shell, args: &[&str]) -> Json {
    let args: Vec<&str> = ["load", "--json"].iter().chain(args).copied().collect();
    serde_json::from_str(&shell.ok(&args)).expect("the report is an object")
}

#[test]
fn sorted_lines_are_ingested() {
    let shell = Shell::new();
    let text: String = (1..=20_000).map(|n| format!("key{n:06}\n")).collect();
    shell.file("sorted.txt", text);
    let report = report(&shell, &["sorted.txt"]);
    assert_eq!((&report["loaded"], &report["ingested"]), (&20_000.into(), &20_000.into()));
    assert_eq!(report["duplicates"], 0);
    assert_eq!(shell.ok(&["count"]), "20000\n");
    assert_eq!(shell.ok(&["get", "key012345"]), "12345");
}

#[test]
fn unsorted_lines_are_inserted_and_the_last_of_a_key_stays() {
    let shell = Shell::new();
    // 7919 is prime to 10,000: every key once, out of order; then a thousand of them again.
    let text: String = (0..11_000_u32).map(|n| format!("{}\n", n * 7919 % 10_000)).collect();
    shell.file("mixed.txt", text);
    let report = report(&shell, &["mixed.txt"]);
    assert_eq!((&report["loaded"], &report["ingested"]), (&11_000.into(), &0.into()));
    assert_eq!(report["duplicates"], 1000);
    assert_eq!(shell.ok(&["count"]), "10000\n");
    assert_eq!(shell.ok(&["get", "7919"]), "10002");
}

#[test]
fn order_may_end_in_the_middle() {
    let shell = Shell::new();
    let mut text: String = (0..30_000).map(|n| format!("k{n:06}\n")).collect();
    text.push_str("k000005\nz\n");
    shell.file("nearly.txt", text);
    let report = report(&shell, &["nearly.txt"]);
    assert_eq!((&report["loaded"], &report["ingested"]), (&30_002.into(), &30_000.into()));
    assert_eq!(report["duplicates"], 1);
    assert_eq!(shell.ok(&["get", "k000005"]), "30001");
    assert_eq!(shell.ok(&["count"]), "30001\n");
}

#[test]
fn a_second_load_goes_on_top() {
    let shell = Shell::new();
    shell.file("first.txt", "a\nb\nc\n");
    shell.file("second.txt", "b\nd\n");
    assert!(shell.ok(&["load", "first.txt"]).starts_with("loaded 3 entries in "));
    let second = report(&shell, &["second.txt"]);
    assert_eq!((&second["ingested"], &second["duplicates"]), (&0.into(), &1.into()));
    assert_eq!(shell.ok(&["scan"]), "a\t1\nb\t1\nc\t3\nd\t2\n");
    let blind = report(&shell, &["--blind", "first.txt"]);
    assert_eq!(blind["duplicates"], Json::Null);
    assert_eq!(shell.ok(&["load", "--quiet", "--sync", "--batch", "2", "first.txt"]), "");
    assert_eq!(shell.ok(&["count"]), "4\n");
}

#[test]
fn several_files_are_one_input() {
    let shell = Shell::new();
    shell.file("a.txt", "a\nb\n");
    shell.file("b.csv", "name,v\nc,3\nd,4\n");
    let report = report(&shell, &["a.txt", "b.csv"]);
    assert_eq!((&report["loaded"], &report["ingested"]), (&4.into(), &4.into()));
    assert_eq!(shell.ok(&["get", "d"]), "{\"v\":\"4\"}");
}

#[test]
fn tables_and_objects_are_read() {
    let shell = Shell::new();
    shell.file("users.csv", "id,name,mail\n7,Ada,a@x\n3,\"Grace, H\",g@x\n");
    shell.ok(&["load", "--u64", "--key-column", "id", "--value-column", "name", "users.csv"]);
    assert_eq!(shell.ok(&["scan", "--u64"]), "3\tGrace, H\n7\tAda\n");
    shell.file("e.jsonl", "{\"id\":\"b\",\"v\":{\"x\":1}}\n{\"id\":\"a\",\"v\":\"y\"}\n");
    let into = ["load", "--keyspace", "events", "--key-field", "id", "--value-field", "v"];
    shell.ok(&[&into[..], &["e.jsonl"]].concat());
    assert_eq!(shell.ok(&["scan", "--keyspace", "events"]), "a\ty\nb\t{\"x\":1}\n");
}

#[test]
fn numbers_are_read() {
    let shell = Shell::new();
    let numbers = [0_u64, 1, 1 << 32, u64::MAX];
    let mut bytes = (numbers.len() as u64).to_le_bytes().to_vec();
    bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    shell.file("set_uint64", &bytes);
    assert_eq!(report(&shell, &["set_uint64"])["ingested"], 4);
    assert_eq!(shell.ok(&["get", "--u64", "4294967296"]), "3");
    assert_eq!(
        shell.ok(&["scan", "--u64", "--reverse", "--limit", "1"]),
        format!("{}\t4\n", u64::MAX)
    );
    shell.file("short.u64", &bytes[..20]);
    shell.fails(&["load", "short.u64"], 3, "counts 4 numbers and ends after 1");
}

#[test]
fn what_scan_prints_load_reads() {
    let shell = Shell::new();
    shell.file("names.txt", "b\na\n\"quoted\"\n");
    shell.ok(&["load", "names.txt"]);
    let printed = shell.ok(&["scan", "--json"]);
    let load = ["load", "--db", "copy", "--format", "jsonl", "--value-field", "value", "-"];
    shell.ok_with_input(&load, printed.as_bytes());
    assert_eq!(shell.ok(&["scan", "--db", "copy", "--json"]), printed);
}

#[test]
fn wrong_input_names_the_line_and_what_was_loaded() {
    let shell = Shell::new();
    shell.file("numbers.txt", "1\n2\nthree\n4\n");
    let message = "numbers.txt: line 3: \"three\" is not a number";
    shell.fails(&["load", "--u64", "--keyspace", "u64", "numbers.txt"], 3, message);
    assert_eq!(shell.ok(&["scan", "--u64", "--keyspace", "u64"]), "1\t1\n2\t2\n");
    let missing = ["load", "numbers.txt", "missing.txt"];
    shell.fails(&missing, 3, "there is no file missing.txt");
    let long = format!("a\nb\na\n{}\n", "x".repeat(200_000));
    shell.file("long.txt", long);
    shell.fails(&["load", "--batch", "2", "long.txt"], 3, "loaded before it: 3 entries");
    assert_eq!(shell.ok(&["scan", "--keys-only"]), "a\nb\n");
}
