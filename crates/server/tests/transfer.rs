//! Dumps: those of Redis go into the store and are what Redis had, and those of the store go into
//! Redis.
//!
//! Needs a `redis-server` of version 7.0 on the machine; without one a line says so.

mod common;
#[path = "common/oracle.rs"]
mod oracle;

use common::{Client, Value};
use oracle::Oracle;
use rhumb_server::{
    ImportFrom, ImportOptions, ImportTo, Running, Store, TransferError, Transferred, export_server,
    import,
};

/// Reads a dump into a store.
fn dump_into(
    store: &Store,
    dump: impl std::io::Read,
    go_on: &mut dyn FnMut(&Transferred) -> bool,
) -> Result<Transferred, TransferError> {
    let from = ImportFrom::Dump(Box::new(dump));
    import(from, ImportTo::Store(store), ImportOptions::default(), go_on)
}

/// All keys with what they hold, and when they end, by commands that say it in an order.
fn contents(client: &mut Client) -> Vec<(String, Value, Value)> {
    let Value::Array(keys) = client.run("KEYS *") else { panic!("no keys") };
    let mut keys: Vec<String> = keys.iter().map(Value::text).collect();
    keys.sort();
    let value = |key: String| {
        let mut reply = match client.call(&["TYPE", &key]).text().as_str() {
            "string" => client.call(&["GET", &key]),
            "list" => client.call(&["LRANGE", &key, "0", "-1"]),
            "set" => client.call(&["SMEMBERS", &key]),
            "hash" => client.call(&["HGETALL", &key]),
            "zset" => client.call(&["ZRANGE", &key, "0", "-1", "WITHSCORES"]),
            other => panic!("{key} is {other}"),
        };
        if let Value::Array(items) = &mut reply
            && (key.starts_with("set") || key.starts_with("hash"))
        {
            let size = if key.starts_with("set") { 1 } else { 2 };
            let mut parts: Vec<Vec<Value>> = items.chunks(size).map(<[_]>::to_vec).collect();
            parts.sort();
            *items = parts.concat();
        }
        let ends = client.call(&["PEXPIRETIME", &key]);
        (key, reply, ends)
    };
    keys.into_iter().map(value).collect()
}

#[test]
fn dumps_of_redis_go_in_and_come_back_unchanged() {
    let Some(oracle) = Oracle::start() else {
        return println!("no redis-server 7.0: not compared");
    };
    let mut theirs = Client::connect(oracle.address);
    oracle::fill(&mut theirs);
    theirs.run("SET ends v PXAT 4102444800123");
    theirs.run("PEXPIREAT zset:large 4102444800000");
    theirs.run("SELECT 7");
    theirs.run("SET other database");
    let other = contents(&mut theirs);
    theirs.run("SELECT 0");
    let expected = contents(&mut theirs);
    let digest = theirs.run("DEBUG DIGEST");
    assert_eq!(theirs.run("SAVE"), Value::ok());

    let dir = tempfile::tempdir().unwrap();
    let config = common::config(&dir);
    {
        let store = Store::open(&config.data, 32 << 20).unwrap();
        // Twice: keys of the same names are replaced.
        for _ in 0..2 {
            let file = std::io::BufReader::new(std::fs::File::open(oracle.dump()).unwrap());
            let imported = dump_into(&store, file, &mut |_| true).unwrap();
            assert_eq!(imported.keys as usize, expected.len() + other.len());
            assert!(imported.is_complete && imported.unfit == 0 && imported.ended == 0);
        }
    }
    {
        let server = Running::start(config.clone()).unwrap();
        let mut ours = Client::connect(server.address());
        assert_eq!(contents(&mut ours), expected);
        ours.run("SELECT 7");
        assert_eq!(contents(&mut ours), other);
    }
    let store = Store::open(&config.data, 32 << 20).unwrap();
    let path = dir.path().join("out.rdb");
    let file = std::fs::File::create(&path).unwrap();
    let exported = store.export_dump(std::io::BufWriter::new(file), &mut |_| true).unwrap();
    assert_eq!(exported.keys as usize, expected.len() + other.len());
    assert_eq!(exported.bytes, path.metadata().unwrap().len());
    let loaded = Oracle::start_with(Some(&path), &[]).unwrap();
    let mut loaded = Client::connect(loaded.address);
    assert_eq!(contents(&mut loaded), expected);
    assert_eq!(loaded.run("DEBUG DIGEST"), digest);
}

#[test]
fn what_had_ended_or_is_asked_to_stop_is_not_imported() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("data"), 32 << 20).unwrap();
    let mut dump = b"REDIS0003\xfc\x01\0\0\0\0\0\0\0\x00\x01e\x01v".to_vec();
    for key in 0..1000_u16 {
        dump.extend_from_slice(&[0, 2]);
        dump.extend_from_slice(&key.to_be_bytes());
        dump.extend_from_slice(b"\x01v");
    }
    dump.push(0xFF);
    let all = dump_into(&store, &dump[..], &mut |_| true).unwrap();
    assert_eq!((all.keys, all.ended, all.is_complete), (1000, 1, true));
    let some = dump_into(&store, &dump[..], &mut |all| all.keys == 0).unwrap();
    assert!(some.keys < 1000 && !some.is_complete, "{some:?}");
}

#[test]
fn a_collection_of_many_commits_that_is_cut_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let config = common::config(&dir);
    let members = 120_000_u32;
    let mut dump = b"REDIS0003\x02\x01s\x80".to_vec();
    dump.extend_from_slice(&members.to_be_bytes());
    for member in 0..members {
        dump.push(8);
        dump.extend_from_slice(format!("{member:08}").as_bytes());
    }
    dump.push(0xFF);
    {
        let store = Store::open(&config.data, 32 << 20).unwrap();
        let cut = &dump[..dump.len() - 100];
        assert!(dump_into(&store, cut, &mut |_| true).is_err());
    }
    {
        let server = Running::start(config.clone()).unwrap();
        let mut ours = Client::connect(server.address());
        assert_eq!(ours.run("EXISTS s"), Value::Int(0));
    }
    {
        let store = Store::open(&config.data, 32 << 20).unwrap();
        assert_eq!(dump_into(&store, &dump[..], &mut |_| true).unwrap().keys, 1);
    }
    let server = Running::start(config).unwrap();
    let mut ours = Client::connect(server.address());
    assert_eq!(ours.run("SCARD s"), Value::Int(members.into()));
    // The sweeper takes nothing of it.
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(ours.run("SISMEMBER s 00119999"), Value::Int(1));
    assert_eq!(ours.run("SISMEMBER s 00000000"), Value::Int(1));
}

fn url(address: std::net::SocketAddr) -> String {
    format!("redis://{address}")
}

fn once() -> ImportOptions {
    ImportOptions { is_once: true, ..ImportOptions::default() }
}

#[test]
fn a_redis_is_followed_with_what_its_clients_write_and_its_dump_in_both_forms() {
    for diskless in ["yes", "no"] {
        let options = ["--repl-diskless-sync", diskless, "--repl-diskless-sync-delay", "0"];
        let Some(oracle) = Oracle::start_with(None, &options) else {
            return println!("no redis-server 7.0: not compared");
        };
        let mut theirs = Client::connect(oracle.address);
        oracle::fill(&mut theirs);
        let before = contents(&mut theirs);
        let dir = tempfile::tempdir().unwrap();
        let config = common::config(&dir);
        {
            let store = Store::open(&config.data, 32 << 20).unwrap();
            let url = url(oracle.address);
            let from = ImportFrom::Server(&url);
            let all = import(from, ImportTo::Store(&store), once(), &mut |_| true).unwrap();
            assert_eq!((all.keys as usize, all.commands), (before.len(), 0));
            assert!(!all.was_scanned);
            // Again, and from the end of the dump on its clients write.
            let mut has_written = false;
            let mut go_on = |all: &Transferred| {
                if all.is_complete && !std::mem::replace(&mut has_written, true) {
                    for line in [
                        "SET new 1",
                        "INCR new",
                        "RPUSH list:small z",
                        "DEL set:small",
                        "MULTI",
                        "SET in multi",
                        "HSET hash:small field0 changed",
                        "EXEC",
                        "SELECT 5",
                        "SET five 5",
                        "SELECT 0",
                        "SET last 1",
                    ] {
                        theirs.run(line);
                    }
                }
                // SELECT 0 and 5 and MULTI and EXEC are among what is sent.
                all.commands < 11
            };
            let from = ImportFrom::Server(&url);
            let to = ImportTo::Store(&store);
            let all = import(from, to, ImportOptions::default(), &mut go_on).unwrap();
            assert_eq!((all.refused, all.first_refused), (0, None));
        }
        let server = Running::start(config).unwrap();
        let mut ours = Client::connect(server.address());
        assert_eq!(contents(&mut ours), contents(&mut theirs), "diskless {diskless}");
        ours.run("SELECT 5");
        assert_eq!(ours.run("GET five"), Value::bulk("5"));
    }
}

#[test]
fn servers_that_cannot_be_followed_are_read_key_by_key_and_into_others() {
    let (dir, server, mut ours) = common::start();
    ours.run("RPUSH l a b");
    ours.run("SET s v PXAT 4102444800000");
    ours.run("SELECT 2");
    ours.run("ZADD z 1 a 2 b");
    // Into another server of ours that runs, and into a dump.
    let (_dir, other, mut there) = common::start();
    there.run("SET l old");
    let (from, to) = (url(server.address()), url(other.address()));
    let all = import(
        ImportFrom::Server(&from),
        ImportTo::Server(&to),
        ImportOptions::default(),
        &mut |_| true,
    )
    .unwrap();
    assert_eq!((all.keys, all.is_complete), (3, true));
    assert_eq!(there.run("LRANGE l 0 -1"), Value::bulks(&["a", "b"]));
    assert!(matches!(there.run("PTTL s"), Value::Int(ttl) if ttl > 0));
    there.run("SELECT 2");
    assert_eq!(there.run("ZSCORE z b"), Value::bulk("2"));
    let path = dir.path().join("out.rdb");
    let file = std::fs::File::create(&path).unwrap();
    let exported = export_server(&from, file, &mut |_| true).unwrap();
    assert_eq!((exported.keys, exported.is_complete), (3, true));
    if let Some(loaded) = Oracle::start_with(Some(&path), &[]) {
        let mut loaded = Client::connect(loaded.address);
        assert_eq!(loaded.run("LRANGE l 0 -1"), Value::bulks(&["a", "b"]));
        loaded.run("SELECT 2");
        assert_eq!(loaded.run("ZSCORE z b"), Value::bulk("2"));
    }
}

#[test]
fn what_is_wrong_with_a_server_is_told_without_its_password() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("data"), 32 << 20).unwrap();
    for url in ["redis://:secret@127.0.0.1:1", "redis://:secret@127.0.0.1:x", "http://secret@x"] {
        let (from, to) = (ImportFrom::Server(url), ImportTo::Store(&store));
        let error = import(from, to, once(), &mut |_| true).unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
    }
}
