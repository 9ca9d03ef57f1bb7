//! Backups that `rhumb serve` makes while clients write: a kill amid one leaves the points before
//! it whole, each restored point is a moment of the clients' writes, and a full disk loses nothing.

mod common;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    time::Duration,
};

use common::Shell;

/// Keys that the writer changes in turn.
const KEYS: u64 = 3000;

/// Commands that the writer sends together.
const TOGETHER: u64 = 30;

struct Server {
    process: Child,
    address: String,
}

impl Server {
    /// A server that this command starts.
    fn of(mut command: Command) -> Option<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().ok()?;
        let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let Some(Ok(banner)) = lines.next() else {
            let _ = process.wait();
            return None;
        };
        let address = banner.rsplit(' ').next().expect("an address").to_owned();
        Some(Self { process, address })
    }

    fn start(shell: &Shell, data: &str) -> Self {
        let listen = ["--listen", "127.0.0.1:0", "--memory", "16M"];
        let args = [&["serve", "--db", data][..], &listen[..]].concat();
        Self::of(shell.command(&args)).expect("the server starts")
    }

    fn client(&self) -> Client {
        let client = TcpStream::connect(&self.address).expect("the server listens");
        client.set_read_timeout(Some(Duration::from_secs(60))).expect("a time-out is set");
        Client(BufReader::new(client))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A client; its calls return nothing once the server is gone.
struct Client(BufReader<TcpStream>);

impl Client {
    fn send(&mut self, words: &[&str]) -> Option<()> {
        let mut text = format!("*{}\r\n", words.len());
        for word in words {
            text += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.0.get_mut().write_all(text.as_bytes()).ok()
    }

    /// The first line of a reply, or the value of a bulk string.
    fn reply(&mut self) -> Option<String> {
        let mut line = String::new();
        self.0.read_line(&mut line).ok().filter(|len| *len > 0)?;
        let line = line.trim_end().to_owned();
        let Some(len) = line.strip_prefix('$').and_then(|len| len.parse::<usize>().ok()) else {
            return Some(line);
        };
        let mut value = vec![0; len + 2];
        self.0.read_exact(&mut value).ok()?;
        value.truncate(len);
        String::from_utf8(value).ok()
    }

    fn call(&mut self, words: &[&str]) -> Option<String> {
        self.send(words)?;
        self.reply()
    }

    /// A line of `INFO persistence`.
    fn figure(&mut self, name: &str) -> String {
        let text = self.call(&["INFO", "persistence"]).expect("the server replies");
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        found.expect("a line").to_owned()
    }

    /// Waits for a backup that was begun, and returns how it ended.
    fn await_backup(&mut self) -> String {
        while self.figure("rdb_bgsave_in_progress") == "1" {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.figure("rdb_last_bgsave_status")
    }
}

/// The value of the writer's `n`th command: 4 KiB that compress little, with `n` before them.
fn value(n: u64) -> String {
    let mut state = n + 1;
    let words = (0..256).map(|_| {
        state = state.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29) ^ 0x2437_54A2_5E4D_2B2F;
        format!("{state:016x}")
    });
    format!("{n}:{}", words.collect::<String>())
}

fn key(n: u64) -> String {
    format!("key:{:06}", n % KEYS)
}

/// Writes until the server is gone or `done` is set: `acknowledged` is kept at the number of
/// commands that the server has acknowledged, and `sent` at those that it may have.
fn write(mut client: Client, sent: &AtomicU64, acknowledged: &AtomicU64, done: &AtomicBool) {
    while !done.load(SeqCst) {
        let from = sent.fetch_add(TOGETHER, SeqCst);
        for n in from..from + TOGETHER {
            if client.send(&["SET", &key(n), &value(n)]).is_none() {
                return;
            }
        }
        for n in from..from + TOGETHER {
            match client.reply() {
                Some(reply) => assert_eq!(reply, "+OK"),
                None => return,
            }
            acknowledged.store(n + 1, SeqCst);
        }
    }
}

/// The number of commands whose effect a server has, which must be that of all commands before the
/// last one.
fn commands_of(server: &Server) -> u64 {
    let mut client = server.client();
    let mut found = Vec::new();
    for first in (0..KEYS).step_by(100) {
        let keys: Vec<String> = (first..first + 100).map(key).collect();
        let mut words = vec!["MGET"];
        words.extend(keys.iter().map(String::as_str));
        assert_eq!(client.call(&words).as_deref(), Some("*100"));
        found.extend((0..100).map(|_| client.reply().expect("a value")));
    }
    let number = |text: &String| text.split(':').next().and_then(|n| n.parse::<u64>().ok());
    let commands = found.iter().filter_map(number).max().map_or(0, |last| last + 1);
    for (at, text) in (0..KEYS).zip(&found) {
        let last = (0..commands).rev().take(KEYS as usize).find(|n| n % KEYS == at);
        let expected = last.map_or_else(|| "$-1".to_owned(), value);
        assert!(*text == expected, "key {at} after {commands} commands");
    }
    commands
}

/// The names of the files of a directory, ascending; none if it is not there.
fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// Restores the last point of a backup and returns the number of commands that it has.
fn commands_of_last_point(shell: &Shell, round: u64) -> u64 {
    let target = format!("restored{round}");
    shell.ok(&["restore", "data.backups", &target]);
    let commands = commands_of(&Server::start(shell, &target));
    std::fs::remove_dir_all(shell.path(&target)).expect("the copy is removed");
    commands
}

#[test]
fn a_kill_amid_a_backup_leaves_whole_points() {
    let kills = std::env::var("RHUMB_KILLS").ok().and_then(|kills| kills.parse().ok());
    let kills: u64 = kills.unwrap_or(3);
    let shell = Shell::new();
    let (sent, acknowledged) = (AtomicU64::new(0), AtomicU64::new(0));
    let backups = shell.path("data.backups");
    let (mut amid, mut rounds) = (0, 0);
    while amid < kills {
        rounds += 1;
        assert!(rounds < 4 * kills + 10, "{amid} of {rounds} kills came amid a backup");
        let mut server = Server::start(&shell, "data");
        let found = commands_of(&server);
        assert!((acknowledged.load(SeqCst)..=sent.load(SeqCst)).contains(&found), "{found}");
        sent.store(found, SeqCst);
        acknowledged.store(found, SeqCst);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writer = server.client();
            scope.spawn(|| write(writer, &sent, &acknowledged, &done));
            let mut client = server.client();
            while acknowledged.load(SeqCst) < found + KEYS / 2 {
                std::thread::sleep(Duration::from_millis(5));
            }
            // One that is whole, while the writer goes on.
            let least = acknowledged.load(SeqCst);
            let started = client.call(&["BGSAVE"]);
            assert_eq!(started.as_deref(), Some("+Background saving started"));
            assert_eq!(client.await_backup(), "ok");
            let most = sent.load(SeqCst);
            let found = commands_of_last_point(&shell, rounds);
            assert!((least..=most).contains(&found), "{found} of {least} to {most}");
            // And one that a kill ends.
            while acknowledged.load(SeqCst) < most + KEYS / 2 {
                std::thread::sleep(Duration::from_millis(5));
            }
            client.call(&["BGSAVE"]).expect("the server replies");
            while client.figure("rdb_bgsave_in_progress") == "1"
                && !names(&backups).iter().any(|name| name.ends_with(".tmp"))
            {}
            server.process.kill().expect("the server runs");
            done.store(true, SeqCst);
        });
        server.process.wait().expect("the process ends");
        amid += u64::from(names(&backups).iter().any(|name| name.ends_with(".tmp")));
    }
    // What is left of the last kill disturbs nobody.
    let server = Server::start(&shell, "data");
    let whole = shell.ok(&["restore", "data.backups", "--verify"]);
    assert!((1..=3).contains(&whole.lines().count()), "{whole}");
    let now = commands_of(&server);
    assert_eq!(server.client().call(&["SAVE"]).as_deref(), Some("+OK"));
    assert!(!names(&backups).iter().any(|name| name.ends_with(".tmp")));
    assert_eq!(commands_of_last_point(&shell, 0), now);
    assert_eq!(shell.ok(&["restore", "data.backups", "--list"]).lines().count(), 3);
    // A backup does not hold up the end of the server.
    let mut server = server;
    let mut client = server.client();
    for n in now..now + KEYS {
        assert_eq!(client.call(&["SET", &key(n), &value(n)]).as_deref(), Some("+OK"));
    }
    client.call(&["BGSAVE"]).expect("the server replies");
    let kill = Command::new("kill").args(["-TERM", &server.process.id().to_string()]).status();
    assert!(kill.expect("kill runs").success());
    assert_eq!(server.process.wait().expect("the process ends").code(), Some(0));
    let server = Server::start(&shell, "data");
    assert_eq!(commands_of(&server), now + KEYS);
    shell.ok(&["restore", "data.backups", "--verify"]);
    println!("{amid} of {rounds} kills came amid a backup; {now} commands were written");
}

/// Starts a server whose data are on a disk of 64 MiB.
const START: &str = "mount -t tmpfs -o size=64m none disk && \
    exec \"$0\" serve --db disk/data --listen 127.0.0.1:0 --memory 16M 2>log";

#[test]
fn a_backup_that_finds_no_room_loses_nothing() {
    let shell = Shell::new();
    std::fs::create_dir(shell.path("disk")).expect("a directory");
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", START]);
    command.arg(env!("CARGO_BIN_EXE_rhumb"));
    command.current_dir(shell.path("disk").parent().expect("the scratch directory"));
    let Some(server) = Server::of(command) else {
        eprintln!("not tried: no disk can be mounted here");
        return;
    };
    let on_disk = |name: &str| {
        let root = format!("/proc/{}/root", server.process.id());
        PathBuf::from(format!("{root}{}", shell.path(name).display()))
    };
    let backups = on_disk("disk/data.backups");
    let mut client = server.client();
    assert_eq!(client.call(&["SET", "first", "1"]).as_deref(), Some("+OK"));
    assert_eq!(client.call(&["SAVE"]).as_deref(), Some("+OK"));
    let (last, before) = (client.call(&["LASTSAVE"]), names(&backups));
    for n in 0..3000 {
        assert_eq!(client.call(&["SET", &key(n), &value(n)]).as_deref(), Some("+OK"));
    }
    // Room for a flush, and not for the tables: they have 12 MB.
    let ballast = on_disk("disk/ballast");
    let mut file = std::fs::File::create(&ballast).expect("a file on the disk");
    while file.write(&[7; 4096]).is_ok_and(|written| written > 0) {}
    let len = file.metadata().expect("a length").len();
    file.set_len(len - (5 << 20)).expect("it is made shorter");
    drop(file);
    let refused = client.call(&["SAVE"]).expect("a reply");
    assert!(refused.starts_with("-ERR"), "{refused}");
    assert_eq!(client.figure("rdb_last_bgsave_status"), "err");
    assert_eq!(client.call(&["LASTSAVE"]), last);
    assert_eq!(names(&backups), before);
    // A thread writes the log.
    let has_told = || {
        let log = std::fs::read_to_string(shell.path("log")).expect("a log");
        log.contains(" ERROR save-failed: ") && log.contains("No space left")
    };
    while !has_told() {
        std::thread::sleep(Duration::from_millis(5));
    }
    // Writes go on in the room that the copy has given back.
    assert_eq!(client.call(&["SET", "after", "1"]).as_deref(), Some("+OK"));
    let from = backups.display().to_string();
    assert_eq!(shell.ok(&["restore", &from, "--verify"]), "point 1 is whole\n");
    std::fs::remove_file(&ballast).expect("the ballast is removed");
    // A flush that found no room is tried again a little later, and fails the copies until then.
    while client.call(&["SAVE"]).expect("a reply") != "+OK" {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(client.figure("rdb_last_bgsave_status"), "ok");
    shell.ok(&["restore", &from, "restored"]);
    let restored = Server::start(&shell, "restored");
    assert_eq!(commands_of(&restored), 3000);
    assert_eq!(restored.client().call(&["GET", "after"]).as_deref(), Some("1"));
}
