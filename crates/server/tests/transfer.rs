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

/// A library with one function, which returns this.
fn library(name: &str, returned: &str) -> String {
    format!(
        "#!lua name={name}\nredis.register_function('{name}_f', function() return {returned} end)"
    )
}

#[test]
fn libraries_of_functions_come_with_the_keys_and_go_with_them() {
    let dir = tempfile::tempdir().unwrap();
    let config = common::config(&dir);
    let (from_dir, server, mut ours) = common::start();
    ours.run("SET k v");
    for (name, returned) in [("a", "1"), ("b", "2")] {
        assert_eq!(ours.call(&["FUNCTION", "LOAD", &library(name, returned)]).text(), name);
    }
    let listed = ours.run("FUNCTION LIST WITHCODE");
    let from = url(server.address());
    // What is there already is replaced, or stays.
    let (_dir, other, mut there) = common::start();
    for (name, returned) in [("b", "'old'"), ("c", "3")] {
        there.call(&["FUNCTION", "LOAD", &library(name, returned)]);
    }
    let (source, to) = (ImportFrom::Server(&from), url(other.address()));
    let all = import(source, ImportTo::Server(&to), once(), &mut |_| true).unwrap();
    assert_eq!((all.keys, all.functions), (1, 2));
    let called = ["a_f", "b_f", "c_f"].map(|name| there.call(&["FCALL", name, "0"]));
    assert_eq!(called, [1, 2, 3].map(Value::Int));
    {
        let store = Store::open(&config.data, 32 << 20).unwrap();
        let (source, to) = (ImportFrom::Server(&from), ImportTo::Store(&store));
        assert_eq!(import(source, to, once(), &mut |_| true).unwrap().functions, 2);
        let mut dump = Vec::new();
        assert_eq!(store.export_dump(&mut dump, &mut |_| true).unwrap().functions, 2);
        // Again, over those that are there.
        assert_eq!(dump_into(&store, &dump[..], &mut |_| true).unwrap().functions, 2);
        std::fs::write(dir.path().join("out.rdb"), &dump).unwrap();
    }
    let loaded = Running::start(config).unwrap();
    let mut loaded = Client::connect(loaded.address());
    assert_eq!(loaded.run("FUNCTION LIST WITHCODE"), listed);
    let read = dir.path().join("read.rdb");
    let file = std::fs::File::create(&read).unwrap();
    assert_eq!(export_server(&from, file, &mut |_| true).unwrap().functions, 2);
    for path in [&dir.path().join("out.rdb"), &read] {
        let Some(oracle) = Oracle::start_with(Some(path), &[]) else {
            return println!("no redis-server 7.0: not loaded there");
        };
        let mut theirs = Client::connect(oracle.address);
        assert_eq!(theirs.run("GET k").text(), "v");
        assert_eq!(theirs.run("FCALL b_f 0"), Value::Int(2));
        // And back from its own dump.
        assert_eq!(theirs.run("SAVE"), Value::ok());
        let store = Store::open(&from_dir.path().join("back"), 32 << 20).unwrap();
        let file = std::fs::File::open(oracle.dump()).unwrap();
        let all = dump_into(&store, file, &mut |_| true).unwrap();
        assert_eq!((all.keys, all.functions, all.is_complete), (1, 2, true));
    }
}

#[test]
fn a_library_that_cannot_be_loaded_ends_an_import_or_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("data"), 32 << 20).unwrap();
    let code = b"#!lua name=x\nnonsense";
    let mut dump = b"REDIS0010\xf5".to_vec();
    dump.push(code.len() as u8);
    dump.extend_from_slice(code);
    dump.extend_from_slice(b"\x00\x01k\x01v\xff\0\0\0\0\0\0\0\0");
    let error = dump_into(&store, &dump[..], &mut |_| true).unwrap_err().to_string();
    assert!(error.contains("the library \"#!lua name=x\": Error compiling function"), "{error}");
    let lenient = ImportOptions { is_lenient: true, ..ImportOptions::default() };
    let from = ImportFrom::Dump(Box::new(&dump[..]));
    let all = import(from, ImportTo::Store(&store), lenient, &mut |_| true).unwrap();
    assert_eq!((all.keys, all.functions, all.unfit, all.is_complete), (1, 0, 1, true));
}
