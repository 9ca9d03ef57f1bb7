//! `import` and `export`: dumps of Redis into the data of a server and out of them.

mod common;

use common::Shell;

/// A dump of two keys, one of database 3, and no checksum.
const DUMP: &[u8] =
    b"REDIS0011\xfa\x04from\x04test\xfe\x00\x00\x05hello\x05world\xfe\x03\x01\x01l\x02\x01a\x01b\xff\0\0\0\0\0\0\0\0";

#[test]
fn a_dump_goes_in_and_comes_out_the_same() {
    let shell = Shell::new();
    shell.file("dump.rdb", DUMP);
    let imported = shell.run(&["import", "dump.rdb"]);
    assert_eq!(imported.code, 0, "{imported:?}");
    assert!(String::from_utf8_lossy(&imported.stdout).starts_with("imported 2 keys into"));
    let exported = shell.run(&["export", "--rdb", "out.rdb", "--json"]);
    assert_eq!(exported.code, 0, "{exported:?}");
    assert!(String::from_utf8_lossy(&exported.stdout).contains("\"keys\":2"), "{exported:?}");
    let out = std::fs::read(shell.path("out.rdb")).unwrap();
    let all = &DUMP[20..DUMP.len() - 8];
    assert!(out.windows(all.len()).any(|some| some == all), "{}", out.escape_ascii());
    assert!(!shell.path("out.rdb.partial").exists());
    // And in again, by the standard input.
    let again = shell.run_with_input(&["import", "--db", "other", "-"], &out);
    assert_eq!(again.code, 0, "{again:?}");
    let there = shell.run(&["export", "--db", "other", "--rdb", "-"]);
    let tail = |bytes: &[u8]| bytes[bytes.len() - all.len() - 8..bytes.len() - 8].to_vec();
    assert_eq!(tail(&there.stdout), tail(&out));
}

#[test]
fn what_cannot_be_imported_is_told_with_its_place_and_what_came_before_stays() {
    let shell = Shell::new();
    shell.file("cut.rdb", &DUMP[..DUMP.len() - 12]);
    let cut = shell.run(&["import", "cut.rdb"]);
    assert_eq!(cut.code, 3, "{cut:?}");
    assert!(cut.stderr.contains("the dump: damaged at offset"), "{cut:?}");
    let exported = shell.run(&["export", "--rdb", "out.rdb", "--json"]);
    assert!(String::from_utf8_lossy(&exported.stdout).contains("\"keys\":1"), "{exported:?}");
    shell.file("none.rdb", "no dump at all");
    let none = shell.run(&["import", "none.rdb"]);
    assert!(none.code == 3 && none.stderr.contains("no dump of Redis"), "{none:?}");
    let absent = shell.run(&["import", "absent.rdb"]);
    assert!(absent.code == 3 && absent.stderr.contains("cannot read absent.rdb"), "{absent:?}");
    let absent = shell.run(&["export", "--db", "absent", "--rdb", "x.rdb"]);
    assert_eq!(absent.code, 3, "{absent:?}");
}

#[test]
fn keys_that_do_not_fit_are_left_out_if_that_is_asked() {
    let shell = Shell::new();
    // A set whose member is longer than the store's keys may be.
    let len = 70_000_u32.to_be_bytes();
    let long = vec![b'm'; 70_000];
    let dump = [&b"REDIS0003\x02\x01s\x01\x80"[..], &len, &long, b"\x00\x01k\x01v\xff"].concat();
    shell.file("long.rdb", dump);
    let strict = shell.run(&["import", "long.rdb"]);
    assert_eq!(strict.code, 3, "{strict:?}");
    assert!(strict.stderr.contains("the key \"s\": a field or member has at most"), "{strict:?}");
    let lenient = shell.run(&["import", "--lenient", "long.rdb"]);
    assert_eq!(lenient.code, 0, "{lenient:?}");
    let text = String::from_utf8_lossy(&lenient.stdout).into_owned();
    assert!(text.contains("imported 1 key ") && text.contains("1 key that does not fit"), "{text}");
}
