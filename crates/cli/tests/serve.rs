//! `rhumb serve` as a process: its banner, its end by a signal, and what a kill leaves.

mod common;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::Duration,
};

use common::Shell;

/// A server process, and where it listens.
struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start(shell: &Shell, options: &[&str]) -> Self {
        let base = ["serve", "--data", "data", "--listen", "127.0.0.1:0"];
        let mut process = shell
            .command(&[&base[..], options].concat())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let banner = lines.next().expect("a banner").expect("the banner is text");
        let address = banner.rsplit(' ').next().expect("an address").to_owned();
        Self { process, address }
    }

    fn client(&self) -> TcpStream {
        let client = TcpStream::connect(&self.address).expect("the server listens");
        client.set_read_timeout(Some(Duration::from_secs(30))).expect("a time-out is set");
        client
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Sends a line and reads as many bytes as the reply must have; none if the server is gone.
fn exchange(client: &mut TcpStream, line: &str, reply_bytes: usize) -> Option<String> {
    client.write_all(format!("{line}\r\n").as_bytes()).ok()?;
    let mut reply = vec![0; reply_bytes];
    client.read_exact(&mut reply).ok()?;
    String::from_utf8(reply).ok()
}

/// The number that a key holds.
fn number(client: &mut TcpStream, key: &str) -> u64 {
    client.write_all(format!("GET {key}\r\n").as_bytes()).expect("the server reads");
    let mut lines = BufReader::new(client).lines();
    let header = lines.next().expect("a reply").expect("a line");
    if header == "$-1" {
        return 0;
    }
    lines.next().expect("a value").expect("a line").parse().expect("a number")
}

#[test]
fn a_signal_ends_it_in_order() {
    for signal in ["TERM", "INT"] {
        let shell = Shell::new();
        let mut server = Server::start(&shell, &[]);
        let mut client = server.client();
        assert_eq!(exchange(&mut client, "SET a 17", 5).as_deref(), Some("+OK\r\n"));
        let kill = Command::new("kill")
            .args([&format!("-{signal}"), &server.process.id().to_string()])
            .status();
        assert!(kill.expect("kill runs").success());
        let status = server.process.wait().expect("the process ends");
        assert_eq!(status.code(), Some(0), "{signal}");
        let server = Server::start(&shell, &[]);
        assert_eq!(number(&mut server.client(), "a"), 17);
    }
}

#[test]
fn the_directory_and_the_address_may_be_named_as_elsewhere() {
    let shell = Shell::new();
    let mut process = shell
        .command(&["serve", "--listen", "localhost:0", "--memory", "16MiB"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary starts");
    let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
    let banner = lines.next().expect("a banner").expect("the banner is text");
    let address = banner.rsplit(' ').next().expect("an address").to_owned();
    let server = Server { process, address };
    assert!(banner.contains(&shell.db().display().to_string()), "{banner}");
    assert!(server.address.starts_with("127.0.0.1:"), "{banner}");
    server.client();
}

#[test]
fn wrong_settings_are_told() {
    let shell = Shell::new();
    let open = shell.run(&["serve", "--data", "data", "--listen", "0.0.0.0:0"]);
    assert!(open.code == 3 && open.stderr.contains("--requirepass-file"), "{open:?}");
    shell.file("bad.toml", "fsynk = 1\n");
    let unknown = shell.run(&["serve", "--config", "bad.toml"]);
    assert!(unknown.code == 3 && unknown.stderr.contains("fsynk"), "{unknown:?}");
    assert_eq!(shell.run(&["serve", "--memory", "lots"]).code, 64);
}

/// Starts a server whose standard error is `stderr`, writes a key, and ends it by a signal.
fn serve_with_stderr(stderr: Stdio) {
    let shell = Shell::new();
    let args = ["serve", "--data", "data", "--listen", "127.0.0.1:0", "--log-level", "debug"];
    let mut command = shell.command(&args);
    let mut process = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn()
        .expect("the binary starts");
    let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
    let banner = lines.next().expect("a banner").expect("the banner is text");
    let address = banner.rsplit(' ').next().expect("an address").to_owned();
    let mut server = Server { process, address };
    for _ in 0..20 {
        assert_eq!(exchange(&mut server.client(), "SET a 17", 5).as_deref(), Some("+OK\r\n"));
    }
    let kill = Command::new("kill").args(["-TERM", &server.process.id().to_string()]).status();
    assert!(kill.expect("kill runs").success());
    assert_eq!(server.process.wait().expect("the process ends").code(), Some(0));
}

#[test]
fn a_standard_error_that_takes_nothing_stops_nothing() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
    serve_with_stderr(full.into());
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    serve_with_stderr(writer.into());
    // A pipe that is full and that nobody reads: the thread that fills it waits until its end.
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let mut filling = writer.try_clone().expect("another end");
    let filler = std::thread::spawn(move || filling.write_all(&vec![b'x'; 4 << 20]));
    std::thread::sleep(Duration::from_millis(100));
    serve_with_stderr(writer.into());
    drop(reader);
    assert!(filler.join().expect("no panic").is_err(), "the pipe was not full");
}

/// What a writer sends for one of its numbers, and the end of the reply.
type Way = fn(usize, u64) -> (String, String);

/// How a client writes the same number to its keys `a` and `b`: what it sends, and the reply.
const WAYS: [Way; 4] = [
    |client, n| {
        let lines = format!("MULTI\r\nSET a{client} {n}\r\nSET b{client} {n}\r\nEXEC");
        (lines, "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n+OK\r\n".to_owned())
    },
    |client, n| (format!("MSET a{client} {n} b{client} {n}"), "+OK\r\n".to_owned()),
    |client, n| (format!("SET b{client} {n}\r\nSET a{client} {n}"), "+OK\r\n+OK\r\n".to_owned()),
    // With an option: it joins a turn.
    |client, n| {
        let set = |key| format!("SET {key}{client} {n} KEEPTTL");
        (format!("{}\r\n{}", set('b'), set('a')), "+OK\r\n+OK\r\n".to_owned())
    },
];

/// Clients at a time, each of which writes in one of the ways.
const WRITERS: usize = 8;

/// The number that a client's keys hold, after a kill by which `expected` was acknowledged.
fn found(server: &Server, client: usize, expected: u64) -> u64 {
    let [a, b] = ["a", "b"].map(|key| number(&mut server.client(), &format!("{key}{client}")));
    // The two commands of the last ways are no batch.
    let is_batch = client % WAYS.len() < 2;
    assert!(a == b || (!is_batch && b == a + 1), "half a batch of client {client}: {a}, {b}");
    let may_be = [expected, expected + 1];
    assert!(may_be.contains(&a) && may_be.contains(&b), "{a}, {b} of client {client}: {expected}");
    a
}

/// A process that has mapped what a server shared goes on to read it for a lease when that server
/// is killed. No write is acknowledged before that, also by a server that shares nothing.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[test]
fn what_a_killed_server_shared_is_not_read_after_a_write() {
    for options in [&["--share", "db0"][..], &[]] {
        let shell = Shell::new();
        let mut server = Server::start(&shell, &["--share", "db0"]);
        assert_eq!(exchange(&mut server.client(), "SET a 1", 5).as_deref(), Some("+OK\r\n"));
        let client = rhumb_remote::Client::connect(shell.path("data.sock")).unwrap();
        let strings = client.strings(0).unwrap();
        loop {
            let calls = strings.keyspace().calls();
            assert_eq!(strings.get("a").unwrap().unwrap(), b"1");
            if strings.keyspace().calls() == calls {
                break;
            }
        }
        server.process.kill().unwrap();
        server.process.wait().unwrap();
        let server = Server::start(&shell, options);
        assert_eq!(exchange(&mut server.client(), "SET a 2", 5).as_deref(), Some("+OK\r\n"));
        let (send, receive) = mpsc::channel();
        std::thread::spawn(move || send.send(strings.get("a")));
        // Where nothing is shared, it waits for a host that does not come. What is old would be
        // there at once.
        let found = receive.recv_timeout(Duration::from_millis(300));
        assert!(!matches!(&found, Ok(Ok(Some(old))) if old == b"1"), "{options:?}: {found:?}");
    }
}

#[test]
fn nothing_acknowledged_is_lost_by_a_kill() {
    let kills = std::env::var("RHUMB_KILLS").ok().and_then(|kills| kills.parse().ok());
    let kills: u64 = kills.unwrap_or(4);
    let shell = Shell::new();
    let mut expected = [0; WRITERS];
    for kill in 0..kills {
        let fsync = ["always", "everysec"][(kill % 2) as usize];
        let mut server = Server::start(&shell, &["--fsync", fsync]);
        for (client, expected) in expected.iter_mut().enumerate() {
            *expected = found(&server, client, *expected);
        }
        let id = server.process.id().to_string();
        // However slow the machine, each client has something acknowledged before the kill.
        let (first, acknowledged) = mpsc::channel();
        std::thread::scope(|scope| {
            for (client, expected) in expected.iter_mut().enumerate() {
                let mut socket = server.client();
                let mut first = Some(first.clone());
                scope.spawn(move || {
                    loop {
                        let (lines, reply) = WAYS[client % WAYS.len()](client, *expected + 1);
                        match exchange(&mut socket, &lines, reply.len()) {
                            Some(got) => assert_eq!(got, reply),
                            None => break,
                        }
                        *expected += 1;
                        if let Some(first) = first.take() {
                            first.send(()).expect("somebody waits");
                        }
                    }
                });
            }
            drop(first);
            for _ in 0..WRITERS {
                acknowledged.recv().expect("each client has a reply before the kill");
            }
            std::thread::sleep(Duration::from_millis(30 + 37 * (kill % 11)));
            Command::new("kill").args(["-KILL", &id]).status().expect("kill runs");
        });
        server.process.wait().expect("the process ends");
    }
    let server = Server::start(&shell, &[]);
    for (client, expected) in expected.iter().enumerate() {
        assert!(found(&server, client, *expected) > 0);
    }
    println!("{kills} kills, acknowledged: {expected:?}");
}

/// Clients that read a server's memory go on with the server that takes its place after it was
/// killed, and never see an older value than one that was acknowledged.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[test]
fn readers_go_on_after_a_kill_and_read_nothing_old() {
    use std::{
        sync::atomic::{AtomicBool, AtomicU64, Ordering},
        thread,
    };

    use rhumb_remote::Client;

    let shell = Shell::new();
    let options = ["--share", "db0", "--share", "numbers"];
    let mut server = Server::start(&shell, &options);
    let (redis, remote, done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let connect = || Client::connect(shell.path("data.sock")).unwrap();
    let reader = |is_redis: bool, acknowledged: &AtomicU64| {
        let client = connect();
        let (strings, numbers) = (client.strings(0).unwrap(), client.keyspace("numbers").unwrap());
        let mut reads = 0u64;
        while !done.load(Ordering::SeqCst) {
            let least = acknowledged.load(Ordering::SeqCst);
            let found = if is_redis { strings.get("n") } else { numbers.get("n") };
            let found = found.unwrap().map(|bytes| String::from_utf8(bytes).unwrap());
            let found = found.map_or(0, |text| text.parse().unwrap());
            assert!(found >= least, "{found} after {least} was acknowledged");
            reads += 1;
        }
        let calls = strings.keyspace().calls() + numbers.calls();
        assert!(calls < reads / 2, "{calls} calls of {reads} reads");
    };
    thread::scope(|scope| {
        scope.spawn(|| reader(true, &redis));
        scope.spawn(|| reader(false, &remote));
        scope.spawn(|| {
            let numbers = connect().keyspace("numbers").unwrap();
            let mut n = 0u64;
            while !done.load(Ordering::SeqCst) {
                n += 1;
                // One that was cut off may have happened.
                if numbers.insert("n", n.to_string()).is_ok() {
                    remote.store(n, Ordering::SeqCst);
                }
            }
        });
        for round in 1..4u64 {
            let mut client = server.client();
            for n in round * 1_000..round * 1_000 + 400 {
                let reply = exchange(&mut client, &format!("SET n {n}"), 5);
                assert_eq!(reply.as_deref(), Some("+OK\r\n"));
                redis.store(n, Ordering::SeqCst);
            }
            server.process.kill().unwrap();
            server.process.wait().unwrap();
            server = Server::start(&shell, &options);
            let mut client = server.client();
            assert!(number(&mut client, "n") >= redis.load(Ordering::SeqCst));
        }
        thread::sleep(Duration::from_millis(300));
        done.store(true, Ordering::SeqCst);
    });
    let printed = shell.ok(&["remote", "scan", "data.sock", "db0"]);
    assert_eq!(printed, format!("n\t{}\n", redis.load(Ordering::SeqCst)));
    assert_eq!(
        shell.ok(&["remote", "get", "data.sock", "db0", "n"]),
        redis.load(Ordering::SeqCst).to_string()
    );
    assert!(remote.load(Ordering::SeqCst) > 100);
}
