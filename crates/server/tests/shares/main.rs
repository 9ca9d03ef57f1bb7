//! What other processes read without asking is what Redis clients see.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

#[path = "../common/mod.rs"]
mod common;
mod histories;
#[path = "../../../remote/tests/proofs/history.rs"]
mod history;

use std::{thread, time::Duration};

use common::{Client, Value, config, http, wait_until};
use rhumb_remote::{Client as Remote, Error, Strings};
use rhumb_server::{Config, Running};

fn start(dir: &tempfile::TempDir, shares: &[&str]) -> (Running, Client, Remote) {
    let share = shares.iter().map(|name| (*name).to_owned()).collect();
    let metrics = Some(([127, 0, 0, 1], 0).into());
    let config = Config { share, metrics, ..config(dir) };
    let socket = config.share_socket();
    let server = Running::start(config).unwrap();
    let client = Client::connect(server.address());
    (server, client, Remote::connect(socket).unwrap())
}

fn wait_until_live(server: &Running) {
    wait_until(|| {
        let metrics = http(server, "/metrics").1;
        let mut lives = metrics.lines().filter(|line| line.starts_with("rhumb_share_live{"));
        lives.all(|line| line.ends_with(" 1"))
    });
}

/// How shares are made.
const PRESETS: [&str; 3] = ["rhumb", "xstore", "finestore"];

/// A share that is made as a preset says.
fn of(name: &str, preset: &str) -> String {
    format!("{name},preset={preset}")
}

/// Keys of the histories.
const KEYS: [&str; 9] = ["a", "b", "c", "list", "hash", "counter", "set", "zset", "d"];

/// Compares what both say of all keys.
fn compare(client: &mut Client, strings: &Strings, after: &str) {
    for key in KEYS {
        let told = client.run(&format!("GET {key}"));
        match (told, strings.get(key)) {
            (Value::Null, Ok(None)) => {}
            (Value::Bulk(told), Ok(Some(read))) => assert_eq!(told, read, "{key} after {after}"),
            (Value::Error(told), Err(Error::InvalidArgument(read))) => {
                assert!(told.starts_with("WRONGTYPE") && read.contains("not a string"));
            }
            (told, read) => panic!("{key} after {after}: {told:?} and {read:?}"),
        }
    }
    let mget = client.run(&format!("MGET {}", KEYS.join(" ")));
    let read = strings.multi_get(&KEYS).unwrap().into_iter();
    let read = read.map(|string| string.map_or(Value::Null, Value::Bulk));
    assert_eq!(mget, Value::Array(read.collect()), "after {after}");
    for pair in strings.iter() {
        let (key, string) = pair.unwrap();
        let told = client.run(&format!("GET {}", key.escape_ascii()));
        assert_eq!(told, Value::Bulk(string), "after {after}");
    }
}

#[test]
fn strings_are_those_of_redis_clients() {
    PRESETS.into_iter().for_each(compare_strings);
}

fn compare_strings(preset: &str) {
    let dir = tempfile::tempdir().unwrap();
    let (server, mut client, remote) = start(&dir, &[&of("db0", preset), &of("db3", preset)]);
    let (zero, three) = (remote.strings(0).unwrap(), remote.strings(3).unwrap());
    let mut strings = &zero;
    let large = "x".repeat(5_000);
    let commands = [
        "SET a 1",
        "SET b 2 PX 100000000",
        "APPEND a 234",
        "SET a gone PX 1",
        "SETRANGE c 5 here",
        &format!("SET d {large}"),
        "RPUSH list 1 2 3",
        "HSET hash field value",
        "SADD set 1 2",
        "ZADD zset 1 one",
        "INCRBY counter 41",
        "INCR counter",
        "MSET a one b two c three",
        "DEL c list",
        "RENAME a c",
        "COPY b a",
        "EXPIRE a 0",
        "PERSIST b",
        "MOVE b 3",
        "SWAPDB 0 3",
        "SET a other",
        "SWAPDB 0 3",
        "SELECT 3",
        "SET a elsewhere",
        "SELECT 0",
        "GETDEL d",
        "FLUSHDB",
        "SET a again",
        "FLUSHALL",
        "SET b again",
    ];
    for (n, command) in commands.into_iter().enumerate() {
        if n % 3 == 0 {
            wait_until_live(&server);
        }
        client.run(command);
        match command {
            "SELECT 3" => strings = &three,
            "SELECT 0" => strings = &zero,
            _ => {}
        }
        if command.contains("PX 1") && !command.contains("PX 10") {
            thread::sleep(Duration::from_millis(5));
        }
        compare(&mut client, strings, command);
    }
    wait_until_live(&server);
    let calls = strings.keyspace().calls();
    compare(&mut client, strings, "all");
    let is_asked = strings.keyspace().calls() != calls;
    assert!(!is_asked || preset != "rhumb", "live, so that nothing is asked");
}

#[test]
fn many_keys_are_emptied_and_exchanged_at_once() {
    PRESETS.into_iter().for_each(empty_and_exchange);
}

fn empty_and_exchange(preset: &str) {
    let dir = tempfile::tempdir().unwrap();
    let (server, mut client, remote) = start(&dir, &[&of("db0", preset)]);
    let strings = remote.strings(0).unwrap();
    for n in 0..3_000 {
        client.send_raw(format!("SET key:{n:05} value:{n}\r\n").as_bytes()).unwrap();
    }
    (0..3_000).for_each(|_| assert_eq!(client.reply(), Some(Value::ok())));
    wait_until_live(&server);
    let pairs: Vec<_> = strings.prefix("key:").map(Result::unwrap).collect();
    assert_eq!(pairs.len(), 3_000);
    assert_eq!(pairs[7], (b"key:00007".to_vec(), b"value:7".to_vec()));
    assert!(
        strings.range("key:00010"..).rev().map(|pair| pair.unwrap().0).eq(pairs
            .iter()
            .rev()
            .map(|(key, _)| key.clone())
            .take(2_990))
    );
    client.run("SWAPDB 0 1");
    assert_eq!(strings.get("key:00007").unwrap(), None);
    assert!(strings.iter().next().is_none());
    client.run("SWAPDB 1 0");
    assert_eq!(strings.get("key:00007").unwrap().unwrap(), b"value:7");
    client.run("FLUSHDB");
    assert_eq!(strings.get("key:00007").unwrap(), None);
    wait_until_live(&server);
    assert!(strings.iter().next().is_none());
}

#[test]
fn other_keyspaces_are_written_to_by_other_processes() {
    PRESETS.into_iter().for_each(write_by_other_processes);
}

fn write_by_other_processes(preset: &str) {
    let dir = tempfile::tempdir().unwrap();
    let (server, mut client, remote) = start(&dir, &[&of("users", preset), "db0"]);
    let users = remote.keyspace("users").unwrap();
    users.insert("ada", "1815").unwrap();
    assert!(users.compare_and_swap("ada", Some(b"1815"), Some(b"1852")).unwrap());
    assert_eq!(users.get("ada").unwrap().unwrap(), b"1852");
    let refused = remote.strings(0).unwrap().keyspace().insert("a", "1").unwrap_err();
    assert!(refused.to_string().contains("by their commands"), "{refused}");
    let unknown = remote.keyspace("server").unwrap_err();
    assert!(unknown.to_string().contains("no keyspace \"server\" is shared"), "{unknown}");
    client.run("SET a 1");
    wait_until_live(&server);
    let metrics = http(&server, "/metrics").1;
    for line in [
        "rhumb_share_sessions 1",
        "rhumb_share_waiting_bytes{share=\"db0\"} 0",
        "rhumb_share_live{share=\"db0\"} 1",
        "rhumb_share_entries{share=\"users\"} 1",
        "rhumb_share_entries{share=\"db0\"} 1",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} in {metrics}");
    }
    assert!(metrics.contains("\nrhumb_share_leases_lost_total "), "{metrics}");
    // What a process did is known once it has ended, if not before.
    let other = Remote::connect(config(&dir).share_socket()).unwrap();
    let read = other.keyspace("users").unwrap();
    (0..7).for_each(|_| assert_eq!(read.get("ada").unwrap().unwrap(), b"1852"));
    drop((read, other));
    wait_until(|| {
        let metrics = http(&server, "/metrics").1;
        let gets = metrics.lines().filter(|line| {
            line.starts_with("rhumb_share_gets_total{") && line.contains("share=\"users\"")
        });
        let count = |line: &str| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
        metrics.contains("rhumb_share_calls_total{kind=\"write\"} ")
            && metrics.contains("rhumb_share_read_bytes_total{share=\"users\"} ")
            && gets.map(count).sum::<u64>() >= 7
    });
    let status = http(&server, "/status.json").1;
    assert!(status.contains("\"share_calls\":{\"by_kind\":[[\"open\","), "{status}");
    assert!(status.contains("\"shares\":[{\"name\":\"users\",\"live\":true,"), "{status}");
    server.stop().unwrap();
    let (_server, _client, remote) = start(&dir, &[&of("users", preset)]);
    let again = remote.keyspace("users").unwrap();
    assert_eq!(again.get("ada").unwrap().unwrap(), b"1852");
    // The other client goes on with the server that has come in the place of its own.
    assert_eq!(users.get("ada").unwrap().unwrap(), b"1852");
}

#[test]
fn what_other_processes_may_take_is_limited() {
    let dir = tempfile::tempdir().unwrap();
    let limits = rhumb_server::Limits {
        share_sessions: 40,
        share_sessions_per_user: Some(2),
        share_keyspaces: 1,
        ..rhumb_server::Limits::default()
    };
    let share = vec!["db0".to_owned(), "users".to_owned()];
    let config = Config { share, share_allow_users: vec![1 << 30], limits, ..config(&dir) };
    let socket = config.share_socket();
    let _server = Running::start(config).unwrap();
    // Others may connect, and are asked who they are.
    let mode = std::os::unix::fs::PermissionsExt::mode(&socket.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o666);
    let (one, _two) = (Remote::connect(&socket).unwrap(), Remote::connect(&socket).unwrap());
    let refused = Remote::connect(&socket).unwrap_err();
    assert!(refused.to_string().contains("sessions_per_user"), "{refused}");
    let _users = one.keyspace("users").unwrap();
    let refused = one.keyspace("db0").unwrap_err();
    assert!(refused.to_string().contains("keyspaces_max"), "{refused}");
}

#[test]
fn other_machines_come_over_tcp_with_the_password() {
    PRESETS.into_iter().for_each(come_over_tcp);
}

fn come_over_tcp(preset: &str) {
    let dir = tempfile::tempdir().unwrap();
    let password = dir.path().join("password");
    std::fs::write(&password, "sesame\n").unwrap();
    // A port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = Config {
        share: vec![of("db0", preset)],
        share_listen: Some(free),
        requirepass_file: Some(password),
        ..config(&dir)
    };
    let server = Running::start(config).unwrap();
    let mut client = Client::connect(server.address());
    client.run("AUTH sesame");
    client.run("SET greeting hello");
    let address = format!("tcp:{free}");
    let refused = Remote::builder(&address).token("open").connect().unwrap_err();
    assert!(matches!(refused, Error::Refused { .. }), "{refused}");
    let strings = Remote::builder(&address).token("sesame").connect().unwrap().strings(0).unwrap();
    assert_eq!(strings.get("greeting").unwrap().unwrap(), b"hello");
    client.run("SET greeting again EX 1000");
    assert_eq!(strings.get("greeting").unwrap().unwrap(), b"again");
    assert!(strings.expires_in("greeting").unwrap().is_some());
    assert_eq!(strings.prefix("gr").count(), 1);
    assert_eq!(strings.multi_get(&["greeting", "none"]).unwrap()[1], None);
}
