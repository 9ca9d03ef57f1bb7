//! Commands that read, where nothing can be written: directories of somebody else, read-only and
//! full disks. And what may not be entered is told from what is not there.
//!
//! A process with all rights may write anywhere, so the commands are run as a user without any
//! where the tests run with all of them.

mod common;

use std::{
    fs,
    io::{Read, Write},
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use common::{Ended, Shell};

/// The user that owns nothing, by its number on every system.
const NOBODY: u32 = 65534;

/// Commands that read, and the exit code of each.
const READS: [&[&str]; 11] = [
    &["get", "key 7"],
    &["get", "absent"],
    &["scan", "--prefix", "key 1"],
    &["scan", "--reverse", "--limit", "3", "--json"],
    &["count"],
    &["dump"],
    &["explain", "key 7"],
    &["check", "--json"],
    &["inspect", "db", "--json"],
    &["inspect", "sst"],
    &["inspect", "model", "--json"],
];

/// Runs the binary with no rights beyond those of everyone; none where the system refuses to.
struct Nobody {
    program: PathBuf,
    is_root: bool,
}

impl Nobody {
    fn new(shell: &Shell) -> Option<Self> {
        let home = shell.path("");
        set_mode(&home, 0o755);
        let nobody = Self {
            program: shell.path("rhumb"),
            is_root: fs::metadata(&home).expect("it is there").uid() == 0,
        };
        // The build may lie where only its owner comes.
        fs::copy(env!("CARGO_BIN_EXE_rhumb"), &nobody.program).expect("a copy of the binary");
        set_mode(&nobody.program, 0o755);
        let can_start = nobody.command(shell, &["--version"]).output();
        if can_start.is_ok_and(|ended| ended.status.success()) {
            return Some(nobody);
        }
        eprintln!("not tried: the rights of this process cannot be given up here");
        None
    }

    fn command(&self, shell: &Shell, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(args).env("RHUMB_DB", shell.db()).current_dir(shell.path(""));
        if self.is_root {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    fn run(&self, shell: &Shell, args: &[&str]) -> Ended {
        let output = self.command(shell, args).stdin(Stdio::null()).output().expect("it starts");
        Ended {
            code: output.status.code().expect("it ends by itself"),
            stdout: output.stdout,
            stderr: String::from_utf8(output.stderr).expect("messages are text"),
        }
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
}

/// A database of two tables.
fn load(shell: &Shell) {
    for part in ["a", "b"] {
        let lines: String = (0..500).map(|n| format!("key {n}\tvalue {part}{n}\n")).collect();
        let file = shell.file("lines.tsv", lines);
        let file = file.to_str().expect("text");
        shell.ok(&["load", "--quiet", "--no-header", "--value-column", "2", file]);
    }
}

/// Names, bytes and times of the files of the database.
fn image(shell: &Shell) -> Vec<(PathBuf, Vec<u8>, i64, i64)> {
    let paths = fs::read_dir(shell.db()).expect("a database").map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths
        .map(|path| {
            let (bytes, meta) = (fs::read(&path).unwrap(), fs::metadata(&path).unwrap());
            (path, bytes, meta.mtime(), meta.mtime_nsec())
        })
        .collect();
    files.sort();
    files
}

#[test]
fn reading_commands_need_no_right_to_write() {
    let shell = Shell::new();
    load(&shell);
    let before: Vec<Ended> = READS.iter().map(|args| shell.run(args)).collect();
    let Some(nobody) = Nobody::new(&shell) else { return };
    for has_lock in [true, false] {
        if !has_lock {
            fs::remove_file(shell.db().join("LOCK")).expect("it is ours");
        }
        for (path, ..) in image(&shell) {
            set_mode(&path, 0o444);
        }
        set_mode(&shell.db(), 0o555);
        let files = image(&shell);
        for (args, before) in READS.iter().zip(&before) {
            let ended = nobody.run(&shell, args);
            assert_eq!((ended.code, &ended.stderr), (before.code, &before.stderr), "{args:?}");
            assert!(ended.stdout == before.stdout || args[0] == "explain", "{args:?}: {ended:?}");
        }
        for args in [
            &["put", "a", "b"][..],
            &["del", "key 1"],
            &["load", "--quiet", "lines.tsv"],
            &["compact"],
            &["checkpoint", "copy"],
            &["drop", "default", "--yes"],
        ] {
            let ended = nobody.run(&shell, args);
            assert_eq!(ended.code, 3, "{args:?}: {ended:?}");
            assert!(ended.stderr.contains("ermission denied"), "{args:?}: {ended:?}");
        }
        assert!(image(&shell) == files, "not a file differs");
        set_mode(&shell.db(), 0o755);
    }
}

#[test]
fn what_may_not_be_entered_is_not_called_absent() {
    let shell = Shell::new();
    load(&shell);
    let Some(nobody) = Nobody::new(&shell) else { return };
    let inner = shell.path("closed").join("db");
    fs::create_dir(shell.path("closed")).expect("a directory");
    fs::rename(shell.db(), &inner).expect("it is ours");
    let commands: [&[&str]; 8] = [
        &["get", "key 7"],
        &["count"],
        &["check"],
        &["inspect", "db"],
        &["compact"],
        &["put", "a", "b"],
        &["del", "a"],
        &["load", "--quiet", "lines.tsv"],
    ];
    // The directory itself, and one on the way to it.
    for closed in [inner.clone(), shell.path("closed")] {
        set_mode(&closed, 0o000);
        for args in commands {
            let ended = nobody.run(&shell, &[args, &["--db", inner.to_str().unwrap()]].concat());
            assert_eq!(ended.code, 3, "{args:?}: {ended:?}");
            assert!(ended.stderr.contains("ermission denied"), "{args:?}: {ended:?}");
            assert!(ended.stderr.contains(inner.to_str().unwrap()), "{args:?}: {ended:?}");
            assert!(!ended.stderr.contains("no database"), "{args:?}: {ended:?}");
        }
        set_mode(&closed, 0o755);
    }
}

/// Copies a database to a disk of its own, which is then made read-only, and to one that is filled.
const DISKS: &str = "set -e; mkdir fixed full; \
    mount -t tmpfs -o size=16m none fixed; mount -t tmpfs -o size=2m none full; \
    cp -r db fixed/db; cp -r db full/db; \
    dd if=/dev/zero of=full/ballast bs=1k count=4096 2>/dev/null || true; \
    mount -o remount,ro fixed; echo mounted; \
    for disk in fixed full; do for command in 'get absent' count check 'explain k' 'put a b'; do \
    \"$0\" $command --db $disk/db >/dev/null 2>&1 && echo 0 || echo $?; done; done";

#[test]
fn disks_that_take_no_byte_are_read() {
    let shell = Shell::new();
    load(&shell);
    let ended = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", DISKS])
        .arg(env!("CARGO_BIN_EXE_rhumb"))
        .current_dir(shell.path(""))
        .stdin(Stdio::null())
        .output();
    let text = ended.map(|ended| String::from_utf8_lossy(&ended.stdout).into_owned());
    let text = text.unwrap_or_default();
    let Some(codes) = text.strip_prefix("mounted\n") else {
        eprintln!("not tried: no disk can be mounted here");
        return;
    };
    assert_eq!(codes.lines().collect::<String>(), "1000310003", "{codes}");
}

#[test]
fn readers_share_a_database_with_one_writer() {
    let shell = Shell::new();
    let lines: String = (0..20_000).map(|n| format!("key {n}\n")).collect();
    let file = shell.file("lines.txt", lines);
    shell.ok(&["load", "--quiet", file.to_str().expect("text")]);
    // A scan whose output nobody reads on goes on for as long as it likes.
    let mut scan = shell.command(&["scan"]).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut printed = scan.stdout.take().expect("a pipe");
    printed.read_exact(&mut [0; 4]).expect("an entry");
    assert_eq!(shell.ok(&["count"]), "20000\n");
    shell.ok(&["check"]);
    shell.ok(&["put", "a", "b"]);
    drop(printed);
    assert!(scan.wait().expect("it ends").success());
    // An import that waits for its input has the database open for writing.
    let mut import = shell
        .command(&["load", "--quiet", "--format", "lines", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut input = import.stdin.take().expect("a pipe");
    input.write_all(b"one\ntwo\nthree\n").expect("it reads");
    let who = format!("process {} (rhumb)", import.id());
    // It says so in the lock file.
    let own = format!("process {} ", import.id());
    while !fs::read_to_string(shell.db().join("LOCK")).expect("a lock file").contains(&own) {
        assert!(import.try_wait().expect("it runs").is_none(), "it ended");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(shell.ok(&["get", "a"]), "b");
    shell.ok(&["check"]);
    shell.fails(&["put", "a", "c"], 3, &who);
    drop(input);
    assert!(import.wait().expect("it ends").success());
    assert_eq!(shell.ok(&["count"]), "20004\n");
}
