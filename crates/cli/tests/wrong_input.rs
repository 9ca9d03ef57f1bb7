//! `load` and what it cannot load exactly: an error with its file and line, or counted.

mod common;

use std::{
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
};

use common::Shell;
use serde_json::{Value as Json, json};

/// Input that `load` must refuse: the name of its file, its bytes, more arguments, and what the
/// message says after the name.
const REFUSED: [(&str, &[u8], &[&str], &str); 24] = [
    ("a.csv", b"k,v\n1,2\n\"3,4\n5,6\n", &[], "line 3: a quote is opened and never closed"),
    ("a.csv", b"k,v\n1,a\"b\n", &[], "line 2: a quote within a field"),
    ("a.csv", b"k,v\n1,2\n3\n", &["--value-column", "v"], "line 3: has 1 columns"),
    ("a.csv", b"k,v\n1,2,3\n", &["--value-column", "v"], "line 2: has 3 columns"),
    ("a.csv", b"k,v\n1,2\n,3\n", &[], "line 3: the key is empty"),
    ("a.csv", b"k,v\n1,caf\xe9\n", &[], "line 2: column 2 is not UTF-8"),
    ("a.csv", b"k,v,v\n1,2,3\n", &[], "line 1: columns 2 and 3 are both called"),
    ("a.csv", b"k,v\r1,2\r", &[], "line 1: a carriage return"),
    ("a.tsv", b"k\tv\nC:\\dir\t1\n", &[], "line 2: \\d is no escape"),
    ("a.tsv", b"k\tv\na\tb\tc\n", &[], "line 2: has 3 columns"),
    ("a.txt", b"a\n\nb\n", &[], "line 2: the key is empty"),
    ("a.txt", b"a\nb\0c\n", &[], "line 2: byte 2 is NUL"),
    (
        "a.jsonl",
        b"{\"id\":1,\"id\":2}\n",
        &["--key-field", "id"],
        "line 1: has the field \"id\" twice",
    ),
    ("a.jsonl", b"{\"id\":\"caf\xe9\"}\n", &["--key-field", "id"], "line 1: byte 11 is not UTF-8"),
    (
        "a.jsonl",
        b"{\"id\":1.0}\n",
        &["--key-field", "id", "--u64"],
        "line 1: \"1.0\" is not a number",
    ),
    ("a.jsonl", b"{\"id\":\"\"}\n", &["--key-field", "id"], "line 1: the key is empty"),
    ("a.json", b"[\n{\"id\":1}\n]\n", &[], "looks like JSON: say --format jsonl"),
    (
        "a.csv.gz",
        b"\x1f\x8b\x08\0\0\0\0\0",
        &[],
        "is compressed by gzip: load it by `zcat a.csv.gz | rhumb",
    ),
    ("a.csv", b"\x28\xb5\x2f\xfd\x04\0", &["--format", "csv"], "is compressed by zstd"),
    ("a.u64", b"PK\x03\x04\0\0\0\0", &[], "is a ZIP archive"),
    ("a.csv", b"\xff\xfek\0,\0v\0\n\0", &[], "is text in UTF-16: load it by `iconv -f UTF-16"),
    ("a.txt", b"k\0e\0y\0\n\0", &[], "is text in UTF-16LE"),
    ("a.txt", b"k\0\0\0e\0\0\0", &[], "is text in UTF-32LE"),
    ("a.u64", b"\x02\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0", &[], "counts 2 numbers and ends after 1"),
];

#[test]
fn what_cannot_be_loaded_exactly_is_an_error_with_its_place() {
    for (name, bytes, options, message) in REFUSED {
        let shell = Shell::new();
        shell.file(name, bytes);
        let args = [&["load"], options, &[name]].concat();
        shell.fails(&args, 3, &format!("rhumb: {name}: {message}"));
    }
}

#[test]
fn what_comes_before_a_wrong_line_is_on_disk() {
    let shell = Shell::new();
    shell.file("a.csv", "k,v\nb,1\na,2\n\"c,3\nd,4\n");
    shell.fails(&["load", "a.csv"], 3, "loaded before it: 2 entries");
    assert_eq!(shell.ok(&["scan", "--keys-only"]), "a\nb\n");
}

#[test]
fn lenient_skips_counts_and_names() {
    let shell = Shell::new();
    let rows: String = (0..5).map(|n| format!("x{n}\n")).collect();
    shell.file("a.csv", format!("k,v\n1,2\n,3\n{rows}4,5\n6,\"7\"8\n9,10\n"));
    let report = shell.ok(&["load", "--lenient", "--json", "--value-column", "v", "a.csv"]);
    let report: Json = serde_json::from_str(&report).unwrap();
    assert_eq!((&report["loaded"], &report["skipped"]), (&3.into(), &7.into()));
    assert_eq!(report["skipped_kinds"], json!({"empty_key": 1, "quote": 1, "width": 5}));
    let first: Vec<String> = serde_json::from_value(report["skipped_first"].clone()).unwrap();
    assert_eq!(first.len(), 5);
    assert_eq!(first[1], "a.csv: line 4: has 1 columns, and 2 are expected");
    assert_eq!(shell.ok(&["scan"]), "1\t2\n4\t5\n9\t10\n");
    let text = shell.ok(&["load", "--lenient", "--value-column", "v", "a.csv"]);
    assert!(text.contains("skipped 5: row of another width\n"), "{text}");
    assert!(text.contains("skipped a.csv: line 3: the key is empty"), "{text}");
    // What ends the input ends it here as well.
    shell.file("b.csv", "k,v\n1,\"2\n");
    shell.fails(&["load", "--lenient", "b.csv"], 3, "never closed");
}

#[test]
fn bytes_stay_bytes() {
    let shell = Shell::new();
    shell.file("a.txt", b"caf\xe9\n");
    shell.file("b.csv", b"\xef\xbb\xbfk;v\r\n\"x;\r\ny\";\xff\xfe\r\nlast;1");
    shell.file("c.tsv", b"k\tv\n\"q\t\\\\\\t\\x00\xfe\"\n");
    shell.ok(&["load", "a.txt"]);
    shell.ok(&["load", "--delimiter", ";", "--value-column", "v", "--key-column", "k", "b.csv"]);
    shell.ok(&["load", "--value-column", "v", "c.tsv"]);
    assert_eq!(
        shell.ok(&["scan", "--hex"]),
        "2271\t5c0900fe22\n636166e9\t31\n6c617374\t31\n783b0d0a79\tfffe\n"
    );
}

#[test]
fn numbers_keep_their_digits_and_stay_apart() {
    let shell = Shell::new();
    let numbers = ["9007199254740992", "9007199254740993", "18446744073709551616.5"];
    let lines: String = numbers.iter().map(|n| format!("{{\"id\":{n},\"v\":{n}}}\n")).collect();
    shell.file("a.jsonl", lines);
    shell.ok(&["load", "--key-field", "id", "--value-field", "v", "a.jsonl"]);
    let mut expected: Vec<String> = numbers.iter().map(|n| format!("{n}\t{n}\n")).collect();
    expected.sort();
    assert_eq!(shell.ok(&["scan"]), expected.concat());
}

#[test]
fn what_was_asked_for_is_taken() {
    let shell = Shell::new();
    shell.file("a.txt", b"b\0c\n\n");
    shell.fails(&["load", "a.txt"], 3, "NUL");
    shell.ok(&["load", "--as-is", "--empty-keys", "a.txt"]);
    assert_eq!(shell.ok(&["scan"]), "\t2\nb\\x00c\t1\n");
    shell.fails(&["load", "--format", "tsv", "--delimiter", ",", "a.txt"], 64, "--format csv");
    shell.fails_usage(&["load", "--delimiter", "ab", "a.txt"]);
}

#[test]
fn an_import_goes_on_when_nobody_reads_its_progress() {
    let shell = Shell::new();
    let text: String = (0..50_000_u32).map(|n| format!("{:06}\n", n * 7919 % 100_003)).collect();
    shell.file("mixed.txt", text);
    let mut child = shell
        .command(&["load", "--progress-json", "--batch", "100", "mixed.txt"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("acknowledged"));
    drop(lines);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
    assert_eq!(shell.ok(&["count"]), "50000\n");
}

#[test]
fn a_signal_ends_an_import_and_says_where_to_go_on() {
    let shell = Shell::new();
    let mut child = shell
        .command(&["load", "--progress-json", "--batch", "10", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // Descending, so that batches are acknowledged while the input goes on.
    let keys: Vec<String> = (0..40_000_u32).rev().map(|n| format!("{n:06}")).collect();
    let text: String = keys.iter().map(|key| format!("{key}\n")).collect();
    stdin.write_all(&text.as_bytes()[..140_000]).unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let drain = std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
    // The signal is seen at the next line.
    while stdin.write_all(b"x\n").is_ok() && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    drain.join().unwrap().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{message}");
    assert!(message.starts_with("rhumb: interrupted: "), "{message}");
    let words: Vec<&str> = message.split_whitespace().collect();
    let after = |word: &str| words[words.iter().position(|found| *found == word).unwrap() + 1];
    let stored: u64 = after("interrupted:").replace(',', "").parse().unwrap();
    assert_eq!(after("--from-line").parse(), Ok(stored + 1), "{message}");
    assert!(message.trim_end().ends_with(" -"), "{message}");
    let first = &keys[..20_000.min(stored as usize)];
    let found = shell.ok_with_input(&["get", "--keys-from", "-"], first.join("\n").as_bytes());
    assert_eq!(found.lines().count(), first.len());
    // And it goes on from there.
    shell.file("all.txt", &text);
    let from = (stored.min(20_000) + 1).to_string();
    shell.ok(&["load", "--from-line", &from, "all.txt"]);
    assert_eq!(shell.ok(&["count", "--from", "0", "--to", "9"]), "40000\n");
}
