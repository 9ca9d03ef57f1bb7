//! `rhumb serve` on a full disk: clear errors, reads go on, and writes too once there is room,
//! without a restart.
//!
//! The disk is a small one in memory that only the server's process sees; where the system lets
//! nobody mount such a thing, the test says so and does nothing.

mod common;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use common::Shell;

/// Starts a server whose data are on a disk of 48 MiB, half of which `ballast` takes.
const START: &str = "mount -t tmpfs -o size=48m none disk && \
    dd if=/dev/zero of=disk/ballast bs=1M count=24 2>/dev/null && \
    exec \"$0\" serve --data disk/data --listen 127.0.0.1:0 --metrics 127.0.0.1:0 --memory 16M 2>log";

struct Server {
    process: Child,
    address: String,
    metrics: String,
}

impl Server {
    /// What a page of the metrics' address says: the whole answer.
    fn http(&self, path: &str) -> String {
        let mut socket = TcpStream::connect(&self.metrics).expect("the server listens");
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
        socket.write_all(request.as_bytes()).expect("the server reads");
        let mut answer = String::new();
        socket.read_to_string(&mut answer).expect("the server answers");
        answer
    }

    /// Returns true if the health says that the server is well.
    fn is_well(&self) -> bool {
        self.http("/healthz").starts_with("HTTP/1.1 200 ")
    }

    /// A counter or gauge.
    fn metric(&self, name: &str) -> u64 {
        let text = self.http("/metrics");
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        found.expect("a metric").parse().expect("a number")
    }

    /// What `INFO persistence` says of the last write.
    fn is_write_ok(&self, client: &mut BufReader<TcpStream>) -> bool {
        call(client, &["INFO", "persistence"]).contains("aof_last_write_status:ok")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn start(shell: &Shell) -> Option<Server> {
    std::fs::create_dir(shell.path("disk")).expect("a directory");
    let mut process = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", START])
        .arg(env!("CARGO_BIN_EXE_rhumb"))
        .current_dir(shell.path("disk").parent().expect("the scratch directory"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
    let Some(Ok(banner)) = lines.next() else {
        let _ = process.wait();
        return None;
    };
    let address = banner.rsplit(' ').next().expect("an address").to_owned();
    let status = lines.next().expect("a line").expect("text");
    let metrics = status.rsplit("http://").next().expect("an address");
    let metrics = metrics.split('/').next().expect("an address").to_owned();
    Some(Server { process, address, metrics })
}

/// Sends a command and reads the first line of its reply, and the value of a bulk string.
fn call(client: &mut BufReader<TcpStream>, words: &[&str]) -> String {
    client.get_mut().write_all(encode(words).as_bytes()).expect("the server reads");
    reply(client)
}

fn encode(words: &[&str]) -> String {
    let mut text = format!("*{}\r\n", words.len());
    for word in words {
        text += &format!("${}\r\n{word}\r\n", word.len());
    }
    text
}

fn reply(client: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    client.read_line(&mut line).expect("the server replies");
    let line = line.trim_end().to_owned();
    if let Some(len) = line.strip_prefix('$').and_then(|len| len.parse::<usize>().ok()) {
        let mut value = vec![0; len + 2];
        client.read_exact(&mut value).expect("a value");
        value.truncate(len);
        return String::from_utf8(value).expect("text");
    }
    line
}

/// 32 KiB of text that compresses little.
fn value(n: u32) -> String {
    let mut state = u64::from(n) + 1;
    let words = (0..2048).map(|_| {
        state = state.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29) ^ 0x2437_54A2_5E4D_2B2F;
        format!("{state:016x}")
    });
    words.collect()
}

/// Sends commands that share a commit; returns how many of them were acknowledged.
fn append_thrice(client: &mut BufReader<TcpStream>) -> usize {
    let one = encode(&["APPEND", "joined", &value(0)]);
    client.get_mut().write_all(one.repeat(3).as_bytes()).expect("the server reads");
    let replies: Vec<String> = (0..3).map(|_| reply(client)).collect();
    for reply in &replies {
        assert!(reply.starts_with(':') || reply.contains("space"), "{reply}");
    }
    replies.iter().filter(|reply| reply.starts_with(':')).count()
}

/// Takes all the room that the disk has.
fn fill(path: &str) {
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    let mut file = file.expect("a file on the disk");
    while file.write(&[7; 4096]).is_ok_and(|written| written > 0) {}
}

/// Returns true if the health, the metrics and `INFO` all say at present that writes fail.
fn says_that_writes_fail(server: &Server, client: &mut BufReader<TcpStream>) -> bool {
    let health = server.http("/healthz");
    !server.is_write_ok(client)
        && health.starts_with("HTTP/1.1 503 ")
        && health.contains("No space left")
        && server.metric("rhumb_writes_failing") == 1
        && server.metric("rhumb_healthy") == 0
}

#[test]
fn a_full_disk_stops_writes_until_there_is_room() {
    let shell = Shell::new();
    let Some(mut server) = start(&shell) else {
        eprintln!("not tried: no disk can be mounted here");
        return;
    };
    // Writes are committed together only if there are several clients.
    let _other = TcpStream::connect(&server.address).expect("the server listens");
    let socket = TcpStream::connect(&server.address).expect("the server listens");
    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a time-out is set");
    let mut client = BufReader::new(socket);
    let mut appended = append_thrice(&mut client);
    assert_eq!(appended, 3);
    assert!(server.is_well() && server.is_write_ok(&mut client));
    let mut written = 0;
    let refusal = loop {
        let reply = call(&mut client, &["SET", &format!("key:{written:06}"), &value(written)]);
        if reply != "+OK" {
            break reply;
        }
        written += 1;
        assert!(written < 4096, "the disk was never full");
    };
    assert!(refusal.starts_with('-') && refusal.contains("space"), "{refusal}");
    // A flush may have made room meanwhile.
    loop {
        let done = append_thrice(&mut client);
        appended += done;
        if done < 3 {
            break;
        }
        assert!(appended < 4096, "the disk was never full again");
    }
    // A flush may make room at any time, and the server finds it: it is taken away until there is
    // none.
    let on_disk =
        |name: &str| format!("/proc/{}/root{}", server.process.id(), shell.path(name).display());
    let filler = on_disk("disk/filler");
    for round in 0.. {
        fill(&filler);
        appended += append_thrice(&mut client);
        if says_that_writes_fail(&server, &mut client) {
            break;
        }
        assert!(round < 200, "the server does not say that writes fail");
    }
    assert!(server.http("/livez").starts_with("HTTP/1.1 200 "));
    assert!(server.metric("rhumb_failed_writes_total") >= 2);
    let len = |appended: usize| format!(":{}", appended * value(0).len());
    assert_eq!(call(&mut client, &["STRLEN", "joined"]), len(appended));
    for n in (0..written).step_by(7) {
        assert_eq!(call(&mut client, &["GET", &format!("key:{n:06}")]), value(n));
    }
    for ballast in [filler, on_disk("disk/ballast")] {
        std::fs::remove_file(&ballast).expect("the ballast can be taken away");
    }
    // Nobody writes: the server finds out by itself.
    let until = Instant::now() + Duration::from_secs(60);
    while !server.is_well() {
        assert!(Instant::now() < until, "the server does not notice that there is room");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(server.is_write_ok(&mut client));
    assert_eq!((server.metric("rhumb_writes_failing"), server.metric("rhumb_healthy")), (0, 1));
    while call(&mut client, &["SET", "after", "room"]) != "+OK" {
        assert!(Instant::now() < until, "writes do not go on");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(call(&mut client, &["GET", "after"]), "room");
    appended += append_thrice(&mut client);
    assert_eq!(call(&mut client, &["STRLEN", "joined"]), len(appended));
    for n in 0..written {
        assert_eq!(call(&mut client, &["GET", &format!("key:{n:06}")]), value(n));
    }
    let kill = Command::new("kill").args(["-TERM", &server.process.id().to_string()]).status();
    assert!(kill.expect("kill runs").success());
    assert_eq!(server.process.wait().expect("the process ends").code(), Some(0));
    let log = std::fs::read_to_string(shell.path("log")).expect("a log");
    let lines = |event: &str| log.lines().filter(|line| line.contains(event)).count();
    assert!(lines(" ERROR write-failed: ") > 0 && lines(" INFO  write-recovered: ") > 0, "{log}");
    assert!(log.contains("No space left") && log.contains(" file="), "{log}");
    assert!(log.contains("stopping: a signal asks the server to end signal=SIGTERM"), "{log}");
    assert!(log.trim_end().ends_with("the server has ended"), "{log}");
    println!("full after {written} values of 32 KiB: {refusal}");
}
