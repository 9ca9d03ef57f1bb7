//! What tools that watch a server ask for: INFO's figures, the slow log, latencies, memory, copies.

mod common;

use std::time::Duration;

use common::{Client, Value, config, start, wait_until};
use rhumb_server::{DebugCommand, Running};

/// The value of a line of INFO.
#[track_caller]
fn figure(client: &mut Client, section: &str, name: &str) -> String {
    let text = client.call(&["info", section]).text();
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found.unwrap_or_else(|| panic!("no {name} in {text}")).to_owned()
}

fn len(value: &Value) -> usize {
    match value {
        Value::Array(values) | Value::Map(values) | Value::Set(values) => values.len(),
        other => panic!("no array: {other:?}"),
    }
}

#[test]
fn info_has_the_sections_that_were_asked_for() {
    let (_dir, _server, mut client) = start();
    let text = client.run("info").text();
    for name in ["Server", "Memory", "CPU", "Errorstats", "Cluster", "Keyspace"] {
        assert!(text.contains(&format!("# {name}\r\n")), "{name}");
    }
    assert!(!text.contains("# Commandstats") && !text.contains("# Latencystats"));
    let text = client.run("info all").text();
    assert!(text.contains("# Commandstats") && text.contains("# Latencystats"));
    let text = client.run("info cpu CLUSTER").text();
    assert_eq!(text.lines().filter(|line| line.starts_with('#')).count(), 2);
    assert!(figure(&mut client, "memory", "used_memory_rss").parse::<u64>().unwrap() > 1 << 20);
    assert_eq!(figure(&mut client, "cluster", "cluster_enabled"), "0");
}

#[test]
fn calls_are_counted_by_command_and_outcome() {
    let (_dir, _server, mut client) = start();
    client.run("config resetstat");
    client.run("set a 1");
    client.run("get a");
    client.run("get none");
    client.run("lpush a x");
    client.run("set a");
    client.run("nosuch");
    let calls = |client: &mut Client, name: &str| figure(client, "commandstats", name);
    assert!(calls(&mut client, "cmdstat_get").starts_with("calls=2,usec="));
    assert!(calls(&mut client, "cmdstat_lpush").ends_with("rejected_calls=0,failed_calls=1"));
    let set = calls(&mut client, "cmdstat_set");
    assert!(set.starts_with("calls=1,") && set.ends_with("rejected_calls=1,failed_calls=0"));
    assert!(calls(&mut client, "cmdstat_config|resetstat").starts_with("calls=1,"));
    assert_eq!(figure(&mut client, "errorstats", "errorstat_ERR"), "count=2");
    assert_eq!(figure(&mut client, "errorstats", "errorstat_WRONGTYPE"), "count=1");
    assert_eq!(figure(&mut client, "stats", "total_error_replies"), "3");
    assert_eq!(figure(&mut client, "stats", "keyspace_hits"), "1");
    assert_eq!(figure(&mut client, "stats", "keyspace_misses"), "1");
    let line = figure(&mut client, "latencystats", "latency_percentiles_usec_get");
    assert!(line.starts_with("p50=") && line.contains(",p99.9="), "{line}");
}

#[test]
fn commands_of_a_transaction_are_counted_when_they_are_run() {
    let (_dir, _server, mut client) = start();
    for line in ["multi", "set a 1", "incr a", "lpush a x"] {
        client.run(line);
    }
    let text = client.run("info commandstats").text();
    assert!(!text.contains("cmdstat_incr:"), "{text}");
    // INFO itself was queued.
    assert_eq!(text, "QUEUED");
    client.run("exec");
    assert!(figure(&mut client, "commandstats", "cmdstat_incr").starts_with("calls=1,"));
    assert!(figure(&mut client, "commandstats", "cmdstat_lpush").ends_with("failed_calls=1"));
}

#[test]
fn keys_are_known_without_a_count() {
    let (_dir, _server, mut client) = start();
    for at in 0..10 {
        client.run(&format!("set k{at} v"));
    }
    client.run("pexpire k0 100000");
    let line = figure(&mut client, "keyspace", "db0");
    let ttl = line.strip_prefix("keys=10,expires=1,avg_ttl=").expect("ten keys, one with an end");
    assert!((90_000..=100_000).contains(&ttl.parse::<u64>().unwrap()), "{line}");
    client.run("dbsize");
    client.run("del k1");
    assert!(figure(&mut client, "keyspace", "db0").starts_with("keys=9,expires=1"));
}

#[test]
fn ended_keys_are_counted_once() {
    let (_dir, _server, mut client) = start();
    client.run("set a 1 px 1");
    client.run("set b 1 px 1");
    std::thread::sleep(Duration::from_millis(20));
    client.run("incr a");
    wait_until(|| figure(&mut client, "stats", "expired_keys") == "2");
}

#[test]
fn the_slow_log_shortens_and_hides() {
    let (_dir, _server, mut client) = start();
    assert_eq!(client.run("slowlog len"), Value::Int(0));
    client.run("config set slowlog-log-slower-than 0");
    client.run("slowlog reset");
    let many: Vec<String> = (0..40).map(|n| n.to_string()).collect();
    let mut words = vec!["sadd", "s"];
    words.extend(many.iter().map(String::as_str));
    client.call(&words);
    client.run("hello 2 auth default secret");
    client.run("config set slowlog-log-slower-than -1");
    let Value::Array(entries) = client.run("slowlog get -1") else { panic!("no entries") };
    let arguments = |at: usize| match &entries[at] {
        Value::Array(fields) => match &fields[3] {
            Value::Array(words) => words.iter().map(Value::text).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    assert_eq!(arguments(0), ["hello", "2", "auth", "(redacted)", "(redacted)"]);
    assert_eq!((arguments(1).len(), &arguments(1)[31][..]), (32, "... (11 more arguments)"));
    let text = client.run("slowlog get -2").text();
    assert_eq!(text, "ERR count should be greater than or equal to -1");
    client.run("config set slowlog-max-len 1");
    assert_eq!(client.run("slowlog len"), Value::Int(1));
}

#[test]
fn latencies_are_told_by_command_and_event() {
    let dir = tempfile::tempdir().unwrap();
    let settings = rhumb_server::Config { enable_debug_command: DebugCommand::Yes, ..config(&dir) };
    let server = Running::start(settings).unwrap();
    let mut client = Client::connect(server.address());
    client.run("config set latency-monitor-threshold 20");
    client.run("debug sleep 0.03");
    assert_eq!(len(&client.run("latency history command")), 1);
    assert!(client.run("latency graph command").text().contains("high 3"));
    assert_eq!(len(&client.run("latency latest")), 1);
    assert_eq!(client.run("latency reset"), Value::Int(1));
    assert_eq!(len(&client.run("latency histogram set")), 0);
    client.run("set a b");
    client.run("config get x");
    assert_eq!(len(&client.run("latency histogram set config nosuch")), 6);
}

#[test]
fn debug_is_for_servers_that_allow_it() {
    let (_dir, _server, mut client) = start();
    assert!(client.run("debug sleep 0").text().starts_with("ERR DEBUG command not allowed."));
}

#[test]
fn memory_of_a_key_grows_with_its_members() {
    let (_dir, _server, mut client) = start();
    assert_eq!(client.run("memory usage none"), Value::Null);
    let size = |client: &mut Client, key: &str| match client.call(&["memory", "usage", key]) {
        Value::Int(size) => size,
        other => panic!("{other:?}"),
    };
    client.run("sadd few a");
    for at in 0..100 {
        client.run(&format!("sadd many member{at}"));
    }
    let (few, many) = (size(&mut client, "few"), size(&mut client, "many"));
    assert!(few > 20 && many > 50 * 20 && many < 100 * 100, "{few} {many}");
    let text = client.run("memory usage many samples x").text();
    assert_eq!(text, "ERR value is not an integer or out of range");
    assert!(len(&client.run("memory stats")) > 20);
}

#[test]
fn a_copy_of_the_data_opens_as_data() {
    let (dir, server, mut client) = start();
    client.run("set a copied");
    assert_eq!(client.run("save"), Value::ok());
    assert_eq!(client.run("bgsave").text(), "Background saving started");
    wait_until(|| figure(&mut client, "persistence", "rdb_saves") == "2");
    assert_eq!(figure(&mut client, "persistence", "rdb_last_bgsave_status"), "ok");
    client.run("set a later");
    let backups = rhumb::Backups::open(dir.path().join("data.backups")).unwrap();
    assert_eq!(backups.list().unwrap().len(), 2);
    let copy = dir.path().join("restored");
    backups.restore(2, &copy).unwrap();
    let restored = Running::start(rhumb_server::Config { data: copy, ..config(&dir) }).unwrap();
    let mut other = Client::connect(restored.address());
    assert_eq!(other.run("get a"), Value::bulk("copied"));
    drop((client, other));
    server.stop().unwrap();
}

#[test]
fn copies_that_fail_are_told_and_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let backups = dir.path().join("elsewhere");
    let settings =
        rhumb_server::Config { backups: Some(backups.clone()), keep_backups: 2, ..config(&dir) };
    let server = Running::start(settings).unwrap();
    let mut client = Client::connect(server.address());
    // No directory can be made there.
    std::fs::write(&backups, "a file").unwrap();
    client.run("set a 1");
    let last = client.run("lastsave");
    // Seconds are what is told of.
    std::thread::sleep(Duration::from_millis(1100));
    let reply = client.run("save").text();
    assert!(reply.starts_with("ERR ") && reply.contains("the log says why"), "{reply}");
    client.run("bgsave");
    wait_until(|| figure(&mut client, "persistence", "rdb_bgsave_in_progress") == "0");
    let told = |client: &mut Client, name: &str| figure(client, "persistence", name);
    assert_eq!(told(&mut client, "rdb_last_bgsave_status"), "err");
    assert_eq!(told(&mut client, "rdb_last_bgsave_time_sec"), "0");
    assert_eq!(told(&mut client, "rdb_changes_since_last_save"), "1");
    assert_eq!(told(&mut client, "rdb_saves"), "0");
    assert_eq!(client.run("lastsave"), last);
    assert_eq!(std::fs::read_to_string(&backups).unwrap(), "a file");
    std::fs::remove_file(&backups).unwrap();
    for _ in 0..3 {
        assert_eq!(client.run("save"), Value::ok());
    }
    assert_eq!(told(&mut client, "rdb_last_bgsave_status"), "ok");
    assert_eq!(told(&mut client, "rdb_changes_since_last_save"), "0");
    assert_ne!(client.run("lastsave"), last);
    let points = rhumb::Backups::open(&backups).unwrap().list().unwrap();
    assert!(points.iter().map(|point| point.number).eq([2, 3]), "{points:?}");
}

#[test]
fn what_there_is_not_is_refused_as_in_redis() {
    let (_dir, _server, mut client) = start();
    for line in ["cluster info", "asking", "readonly", "readwrite"] {
        let text = client.run(line).text();
        assert_eq!(text, "ERR This instance has cluster support disabled", "{line}");
    }
    assert_eq!(client.run("module list"), Value::Array(vec![]));
    assert_eq!(client.run("replicaof no one"), Value::ok());
    assert_eq!(client.run("failover").text(), "ERR FAILOVER requires connected replicas.");
    assert_eq!(client.run("acl whoami").text(), "default");
    assert_eq!(client.run("acl genpass 5").text().len(), 2);
    assert_eq!(client.run("acl getuser nobody"), Value::Null);
}

#[test]
fn digests_are_of_what_values_hold() {
    let dir = tempfile::tempdir().unwrap();
    let settings = rhumb_server::Config { enable_debug_command: DebugCommand::Yes, ..config(&dir) };
    let server = Running::start(settings).unwrap();
    let mut client = Client::connect(server.address());
    let zeros = "0".repeat(40);
    assert_eq!(client.run("debug digest").text(), zeros);
    for line in
        ["set s 1", "rpush l a b", "sadd t a b", "zadd z 1 a 2 b", "hset h f v", "xadd x 1-1 f v"]
    {
        client.run(line);
        let key = line.split(' ').nth(1).unwrap();
        client.run(&format!("copy {key} copied"));
        let both = client.run(&format!("debug digest-value {key} copied none"));
        let Value::Array(both) = both else { panic!("{both:?}") };
        assert_eq!((&both[0], both[2].text()), (&both[1], zeros.clone()), "{line}");
        assert_ne!(both[0].text(), zeros, "{line}");
        client.run("del copied");
    }
    let before = client.run("debug digest").text();
    for (change, undo) in [
        ("set s 2", "set s 1"),
        ("rename s r", "rename r s"),
        ("pexpireat s 4000000000000", "persist s"),
        ("lset l 0 c", "lset l 0 a"),
        ("move s 1", ""),
    ] {
        client.run(change);
        assert_ne!(client.run("debug digest").text(), before, "{change}");
        if !undo.is_empty() {
            client.run(undo);
            assert_eq!(client.run("debug digest").text(), before, "{undo}");
        }
    }
}

#[test]
fn commands_that_change_something_are_counted_until_the_next_copy() {
    let (_dir, server, mut client) = start();
    let changes = |client: &mut Client, line: &str| {
        line.split(';').for_each(|line| {
            client.run(line);
        });
        figure(client, "persistence", "rdb_changes_since_last_save")
    };
    assert_eq!(changes(&mut client, "ping"), "0");
    assert_eq!(changes(&mut client, "set a 1;set a 1;set b 1 nx"), "3");
    assert_eq!(changes(&mut client, "get a;set a 1 nx;del none;setbit a 3 1"), "3");
    assert_eq!(changes(&mut client, "setbit a 3 0;lpush l a b c;del a b"), "6");
    assert_eq!(changes(&mut client, "multi;incr n;get n;incr n;exec"), "8");
    let mut other = Client::connect(server.address());
    assert_eq!(changes(&mut other, "incr n;set a 7"), "10");
    assert_eq!(changes(&mut client, "save"), "0");
    assert_eq!(changes(&mut client, "incr n"), "1");
}

#[test]
fn keys_that_have_ended_and_are_not_swept_do_not_count() {
    let dir = tempfile::tempdir().unwrap();
    let settings = rhumb_server::Config { enable_debug_command: DebugCommand::Yes, ..config(&dir) };
    let server = Running::start(settings).unwrap();
    let mut client = Client::connect(server.address());
    client.run("DEBUG SET-ACTIVE-EXPIRE 0");
    client.run("MSET a 1 b 2 c 3");
    // From now on the number of all keys, swept or not, is kept.
    assert_eq!(client.run("DBSIZE"), Value::Int(3));
    client.run("PEXPIRE a 1");
    wait_until(|| figure(&mut client, "keyspace", "db0").starts_with("keys=2,expires=0,"));
}

#[test]
fn a_rewrite_of_the_log_that_runs_is_told() {
    let (_dir, server, mut client) = start();
    let mut other = Client::connect(server.address());
    let busy = Value::Error("ERR Background append only file rewriting already in progress".into());
    // It may be over before INFO is asked.
    wait_until(|| {
        client.send_raw(b"BGREWRITEAOF\r\nINFO persistence\r\n").unwrap();
        let (reply, text) = (client.reply().unwrap(), client.reply().unwrap().text());
        assert!(reply == busy || matches!(reply, Value::Simple(_)), "{reply:?}");
        let has = |line: &str| text.lines().any(|other| other == line);
        has("aof_rewrite_in_progress:1") && has("rdb_bgsave_in_progress:0")
    });
    wait_until(|| figure(&mut client, "persistence", "aof_rewrite_in_progress") == "0");
    wait_until(|| {
        other.send_raw(b"BGSAVE\r\nINFO persistence\r\n").unwrap();
        let (_, text) = (other.reply(), other.reply().unwrap().text());
        let has = |line: &str| text.lines().any(|other| other == line);
        has("aof_rewrite_in_progress:0") && has("rdb_bgsave_in_progress:1")
    });
}
