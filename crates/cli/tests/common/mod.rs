//! Runs the built binary against a database of its own, for the tests of the shell.
#![allow(dead_code, reason = "each test binary uses its part of this")]

use std::{
    ffi::OsStr,
    fs,
    io::{BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
};

use tempfile::TempDir;

/// A directory with files and a database.
pub(crate) struct Shell {
    dir: TempDir,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Shell {
    /// A directory without a database.
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a scratch directory") }
    }

    /// The database that commands work on.
    pub(crate) fn db(&self) -> PathBuf {
        self.path("db")
    }

    /// A path in the directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file and returns its path.
    pub(crate) fn file(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, contents).expect("a file in the scratch directory");
        path
    }

    /// The command `rhumb ARGS`, on the database unless `--db` is among them.
    pub(crate) fn command<A: AsRef<OsStr>>(&self, args: &[A]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rhumb"));
        command.args(args).env("RHUMB_DB", self.db()).current_dir(self.dir.path());
        command
    }

    /// Runs a command with nothing on its standard input.
    pub(crate) fn run<A: AsRef<OsStr>>(&self, args: &[A]) -> Ended {
        self.run_with_input(args, b"")
    }

    /// Runs a command with `input` on its standard input.
    pub(crate) fn run_with_input<A: AsRef<OsStr>>(&self, args: &[A], input: &[u8]) -> Ended {
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut stdin = child.stdin.take().expect("its standard input is a pipe");
        let input = input.to_vec();
        let writer = std::thread::spawn(move || {
            // A command that does not read closes the pipe.
            let _ = stdin.write_all(&input);
        });
        let output = child.wait_with_output().expect("the binary ends");
        writer.join().expect("the writer does not panic");
        Ended {
            code: output.status.code().expect("the binary ends by itself"),
            stdout: output.stdout,
            stderr: String::from_utf8(output.stderr).expect("messages are text"),
        }
    }

    /// Runs a command that must succeed silently on the standard error, and returns its output.
    #[track_caller]
    pub(crate) fn ok<A: AsRef<OsStr>>(&self, args: &[A]) -> String {
        self.ok_with_input(args, b"")
    }

    /// The same with `input` on its standard input.
    #[track_caller]
    pub(crate) fn ok_with_input<A: AsRef<OsStr>>(&self, args: &[A], input: &[u8]) -> String {
        let ended = self.run_with_input(args, input);
        assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{ended:?}");
        String::from_utf8(ended.stdout).expect("the output is text")
    }

    /// Runs a command that must fail with `code` and one line on the standard error that contains
    /// `message`.
    #[track_caller]
    pub(crate) fn fails<A: AsRef<OsStr>>(&self, args: &[A], code: i32, message: &str) {
        let ended = self.run(args);
        assert_eq!(ended.code, code, "{ended:?}");
        assert!(ended.stderr.contains(message), "{ended:?}");
        assert!(ended.stderr.starts_with("rhumb: "), "{ended:?}");
        assert_eq!(ended.stderr.matches('\n').count(), 1, "{ended:?}");
        assert!(ended.stderr.ends_with('\n'), "{ended:?}");
    }

    /// Runs a command whose arguments must be refused.
    #[track_caller]
    pub(crate) fn fails_usage<A: AsRef<OsStr>>(&self, args: &[A]) {
        let ended = self.run(args);
        assert_eq!((ended.code, ended.stdout.len()), (64, 0), "{ended:?}");
        assert!(!ended.stderr.is_empty(), "{ended:?}");
    }
}

/// All files under `dir` whose names end in `suffix`, in order.
pub(crate) fn files_with_suffix(dir: &Path, suffix: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).expect("a readable directory") {
            let path = entry.expect("a readable directory").path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.to_string_lossy().ends_with(suffix) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The number of times that processes are killed: that of `RHUMB_KILLS`, or `usual`.
pub(crate) fn kills(usual: u32) -> u32 {
    std::env::var("RHUMB_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(usual)
}

/// Starts a command whose output is read later, or never.
pub(crate) fn start(shell: &Shell, args: &[&str]) -> (Child, BufReader<ChildStdout>) {
    let mut child = shell
        .command(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary starts");
    let out = child.stdout.take().expect("a pipe");
    (child, BufReader::new(out))
}

/// Ends a process as `kill -9` does.
pub(crate) fn kill(mut child: Child) {
    child.kill().expect("the process can be killed");
    child.wait().expect("the process ends");
}
