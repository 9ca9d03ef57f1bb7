//! What one command prints another reads, byte for byte, whatever keys and values hold.

mod common;

use std::{collections::BTreeMap, fs::OpenOptions, path::Path, process::Stdio};

use common::Shell;
use proptest::{collection::vec, prelude::*, strategy::ValueTree, test_runner::TestRunner};

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// Bytes and text that some format has a use for, each likely to stand beside any other.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let special = [
        "\"",
        "\\",
        "\\n",
        "\\x41",
        "\t",
        "\n",
        "\r",
        "\r\n",
        ",",
        ";",
        "{",
        "\u{feff}",
        "\0",
        "\u{1f}",
        "\u{7f}",
        "\u{85}",
        "\u{2028}",
        "é",
        "😀",
        "key",
        "0x",
        " ",
        "9007199254740993",
    ];
    prop_oneof![
        prop::sample::select(special.map(|text| text.as_bytes().to_vec()).to_vec()),
        vec(any::<u8>(), 1..4),
        vec(0xc0_u8..=0xff, 1..3),
    ]
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(piece(), 0..6).prop_map(|pieces| pieces.concat())
}

/// Every byte as a key and as a value, the empty key and value, and thousands of mixtures.
fn entries() -> Entries {
    let mut runner = TestRunner::deterministic();
    let tree = vec((bytes(), bytes()), 3000).new_tree(&mut runner).expect("entries");
    let mut entries: Entries = tree.current().into_iter().collect();
    entries.extend((0..=255).map(|byte: u8| (vec![byte], vec![byte])));
    entries.insert(Vec::new(), Vec::new());
    entries.insert((0..=255).collect(), (0..=255).rev().collect());
    entries
}

fn store(db: &Path, entries: &Entries) {
    let db = rhumb::Database::builder(db).open().expect("the database opens");
    let keyspace = db.keyspace("default", Default::default()).expect("the keyspace opens");
    let mut batch = db.batch();
    for (key, value) in entries {
        batch.insert(&keyspace, key, value);
    }
    batch.commit().expect("the entries are stored");
}

fn stored(db: &Path) -> Entries {
    let db = rhumb::Database::builder(db).open().expect("the database opens");
    let keyspace = db.keyspace("default", Default::default()).expect("the keyspace opens");
    let entries = keyspace.iter().map(|entry| entry.expect("the entry is read"));
    entries.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

#[test]
fn every_byte_comes_back() {
    let entries = entries();
    for (print, load) in [
        (&["dump"][..], &["load", "-"][..]),
        (&["dump"], &["load", "--format", "dump", "-"]),
        (&["scan", "--json"], &["load", "-"]),
        (&["scan", "--json", "--reverse"], &["load", "-"]),
        (&["scan", "--json", "--hex"], &["load", "-"]),
        (&["scan", "--json", "--u64"], &["load", "--u64", "-"]),
        (
            &["scan", "--json"],
            &["load", "--empty-keys", "--format", "jsonl", "--value-field", "value", "-"],
        ),
        (
            &["scan"],
            &["load", "--empty-keys", "--format", "tsv", "--no-header", "--value-column", "2", "-"],
        ),
        (
            &["scan", "--hex"],
            &[
                "load",
                "--hex",
                "--empty-keys",
                "--format",
                "tsv",
                "--no-header",
                "--value-column",
                "2",
                "-",
            ],
        ),
    ] {
        let shell = Shell::new();
        store(&shell.db(), &entries);
        let printed = shell.run(print);
        assert_eq!((printed.code, printed.stderr.as_str()), (0, ""));
        let load = [load, &["--db", "copy"]].concat();
        shell.ok_with_input(&load, &printed.stdout);
        assert!(stored(&shell.path("copy")) == entries, "{print:?} | {load:?}");
    }
}

#[test]
fn a_value_goes_into_a_pipe_as_it_is() {
    let shell = Shell::new();
    for (key, value) in entries().iter().step_by(300) {
        let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        let hex_value: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
        shell.ok(&["put", "--hex", &hex, &hex_value]);
        assert_eq!(shell.ok(&["get", "--hex", &hex]), format!("{hex_value}\n"));
        if !key.contains(&0) && !key.starts_with(b"-") {
            let key = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(key);
            let got = shell.run(&["get".as_ref(), key]);
            assert!(got.code == 0 && &got.stdout == value, "{got:?}");
        }
    }
    shell.ok(&["put", "a", "x\\y\n"]);
    assert_eq!(shell.ok(&["get", "--text", "a"]), "x\\\\y\\n\n");
}

#[test]
fn a_dump_that_was_cut_short_is_an_error() {
    let shell = Shell::new();
    shell.ok_with_input(&["load", "-"], b"a\nb\nc\n");
    let dump = shell.ok(&["dump"]);
    let cut = dump.rfind("{\"rhumb_dump_entries\"").unwrap();
    shell.file("cut.dump", &dump[..cut]);
    shell.fails(&["load", "--db", "copy", "cut.dump"], 3, "cut.dump: the dump was cut short");
    shell.file("short.dump", dump.replacen("{\"key\":\"b\",\"value\":\"2\"}\n", "", 1));
    shell.fails(&["load", "--db", "copy", "short.dump"], 3, "has 2 entries and should have 3");
}

/// Commands that print, with which their output is tried.
const PRINTING: [&[&str]; 11] = [
    &["scan"],
    &["scan", "--json"],
    &["dump"],
    &["count"],
    &["get", "key"],
    &["check"],
    &["inspect", "db"],
    &["inspect", "log"],
    &["explain", "key"],
    &["--help"],
    &["help", "load"],
];

#[test]
fn an_output_that_cannot_be_written_is_an_error() {
    let shell = Shell::new();
    shell.ok(&["put", "key", "value"]);
    for args in PRINTING.into_iter().chain([&["load", "-"][..], &["load", "--progress-json", "-"]])
    {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = shell.command(args);
        let output = command.stdin(Stdio::null()).stdout(full).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{args:?}: {message}");
        assert!(message.starts_with("rhumb: cannot write the output: No space left"), "{message}");
    }
}

#[test]
fn a_reader_that_went_away_is_no_error_and_hides_none() {
    let shell = Shell::new();
    shell.ok(&["put", "key", "value"]);
    let closed = |args: &[&str]| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = shell.command(args);
        let output = command.stdin(Stdio::null()).stdout(writer).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for args in PRINTING {
        assert_eq!(closed(args), (Some(0), String::new()), "{args:?}");
    }
    assert_eq!(closed(&["get", "absent"]), (Some(1), String::new()));
    let manifest = common::files_with_suffix(&shell.db(), "")
        .into_iter()
        .find(|path| path.file_name().unwrap().to_string_lossy().starts_with("MANIFEST"));
    let manifest = manifest.expect("a manifest");
    let mut bytes = std::fs::read(&manifest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&manifest, bytes).unwrap();
    let (code, message) = closed(&["check"]);
    assert_eq!(code, Some(2), "{message}");
}
