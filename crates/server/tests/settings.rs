//! Settings of Redis that are remembered, and what depends on them.

mod common;

use common::{Client, Value, start};

fn setting(client: &mut Client, name: &str) -> Value {
    client.run(&format!("CONFIG GET {name}"))
}

fn encoding(client: &mut Client, key: &str) -> String {
    client.run(&format!("OBJECT ENCODING {key}")).text()
}

#[test]
fn settings_that_change_nothing_are_remembered() {
    let (_dir, _server, mut client) = start();
    let lines = [
        ("lazyfree-lazy-user-del", "YES", "yes"),
        ("maxmemory", "100mb", "104857600"),
        ("maxmemory-policy", "allkeys-LRU", "allkeys-lru"),
        ("stream-node-max-bytes", "1k", "1000"),
        ("list-max-ziplist-size", "-3", "-3"),
        ("busy-reply-threshold", "7", "7"),
    ];
    for (name, value, kept) in lines {
        assert_eq!(client.call(&["CONFIG", "SET", name, value]), Value::ok());
        assert_eq!(setting(&mut client, name), Value::bulks(&[name, kept]));
    }
    client.call(&["CONFIG", "SET", "save", "900 1 300 10"]);
    assert_eq!(setting(&mut client, "save"), Value::bulks(&["save", "900 1 300 10"]));
    let both = ["list-max-listpack-size", "-3", "list-max-ziplist-size", "-3"];
    assert_eq!(setting(&mut client, "list-max-*"), Value::bulks(&both));
    // One that is wrong changes none.
    let error = "ERR CONFIG SET failed (possibly related to argument 'hz') - argument must be \
                 between 0 and 2147483647 inclusive";
    let line = "CONFIG SET activedefrag yes hz -1";
    assert_eq!(client.run(line), Value::Error(error.into()));
    assert_eq!(setting(&mut client, "activedefrag"), Value::bulks(&["activedefrag", "no"]));
    let error = "ERR CONFIG SET failed (possibly related to argument \
                 'hash-max-ziplist-entries') - duplicate parameter";
    let line = "CONFIG SET hash-max-listpack-entries 1 hash-max-ziplist-entries 1";
    assert_eq!(client.run(line), Value::Error(error.into()));
}

#[test]
fn what_slows_tests_of_redis_is_hidden_from_patterns() {
    let (_dir, _server, mut client) = start();
    assert_eq!(setting(&mut client, "key-load-delay"), Value::bulks(&["key-load-delay", "0"]));
    assert_eq!(setting(&mut client, "key-load-*"), Value::bulks(&[]));
    assert_eq!(client.run("CONFIG SET rdb-key-save-delay 10"), Value::ok());
    let given = setting(&mut client, "rdb-key-save-delay");
    assert_eq!(given, Value::bulks(&["rdb-key-save-delay", "10"]));
}

#[test]
fn encodings_follow_their_settings() {
    let (_dir, _server, mut client) = start();
    let short = "v".repeat(20);
    for line in ["HSET h a 1 b {}", "ZADD z 1 a 2 {}", "SADD s a {}", "SADD i 1 2", "RPUSH l a {}"]
    {
        client.run(&line.replace("{}", &short));
    }
    let mut all = |line: &str| {
        assert_eq!(client.run(line), Value::ok(), "{line}");
        ["h", "z", "s", "i", "l"].map(|key| encoding(&mut client, key)).join(" ")
    };
    let small = "listpack listpack listpack intset listpack";
    assert_eq!(all("CONFIG SET hz 10"), small);
    let line = "CONFIG SET hash-max-listpack-entries 1 zset-max-listpack-value 19 \
                set-max-listpack-value 19 set-max-intset-entries 1 list-max-listpack-size 1";
    assert_eq!(all(line), "hashtable skiplist hashtable listpack quicklist");
    let line = "CONFIG SET hash-max-listpack-entries 2 zset-max-listpack-value 20 \
                set-max-listpack-value 20 set-max-intset-entries 2 list-max-listpack-size 2";
    assert_eq!(all(line), small);
    client.run("CONFIG SET list-max-listpack-size -1");
    client.call(&["RPUSH", "long", &"v".repeat(4080)]);
    assert_eq!(encoding(&mut client, "long"), "listpack");
    client.call(&["RPUSH", "long", &"v".repeat(8)]);
    assert_eq!(encoding(&mut client, "long"), "quicklist");
    client.run("CONFIG SET hll-sparse-max-bytes 25");
    client.run("PFADD sparse a");
    client.run("PFADD dense a b c d e");
    assert_eq!(client.run("PFDEBUG ENCODING sparse").text(), "sparse");
    assert_eq!(client.run("PFDEBUG ENCODING dense").text(), "dense");
}

#[test]
fn frequencies_are_told_if_the_policy_counts_them() {
    let (_dir, _server, mut client) = start();
    client.run("SET k v");
    assert_eq!(client.run("OBJECT IDLETIME k"), Value::Int(0));
    assert!(client.run("OBJECT FREQ k").text().starts_with("ERR An LFU maxmemory policy is not"));
    client.run("CONFIG SET maxmemory-policy volatile-lfu");
    assert_eq!(client.run("OBJECT FREQ k"), Value::Int(5));
    assert!(client.run("OBJECT IDLETIME k").text().starts_with("ERR An LFU maxmemory policy is"));
}

#[test]
fn strings_that_were_changed_in_part_are_raw() {
    let (_dir, _server, mut client) = start();
    for (line, expected) in [
        ("APPEND a 12", "int"),
        ("APPEND a 3", "raw"),
        // It stays so with another time of expiry, and at another key.
        ("EXPIRE a 1000", "raw"),
        ("PERSIST a", "raw"),
        ("INCR a", "int"),
        ("SETRANGE a 0 12", "raw"),
        ("SET a 1 KEEPTTL", "int"),
        ("SETBIT a 5 1", "raw"),
        ("SET a few", "embstr"),
        ("BITFIELD a SET u8 0 49", "raw"),
    ] {
        client.run(line);
        assert_eq!(encoding(&mut client, "a"), expected, "{line}");
    }
    client.run("COPY a b");
    client.run("RENAME a c");
    assert_eq!(["b", "c"].map(|key| encoding(&mut client, key)), ["raw", "raw"]);
    // Small numbers are shared.
    for (line, expected) in [("SET n 9999", 2_147_483_647), ("INCR n", 1), ("RPUSH l 1", 1)] {
        client.run(line);
        let key = if line.starts_with("RPUSH") { "l" } else { "n" };
        assert_eq!(client.run(&format!("OBJECT REFCOUNT {key}")), Value::Int(expected), "{line}");
    }
    client.run("SET r 1");
    client.run("SETRANGE r 0 2");
    assert_eq!(client.run("OBJECT REFCOUNT r"), Value::Int(1));
}

#[test]
fn a_block_of_a_list_has_a_limit_of_bytes_besides_that_of_elements() {
    let (_dir, _server, mut client) = start();
    client.run("CONFIG SET list-max-listpack-size 3");
    for (bytes, expected) in [(8_000, "listpack"), (9_000, "quicklist")] {
        client.run("DEL l");
        client.run(&format!("RPUSH l a {}", "v".repeat(bytes)));
        assert_eq!(encoding(&mut client, "l"), expected, "{bytes} bytes");
    }
}

#[test]
fn writes_are_refused_where_settings_ask_for_replicas() {
    let (_dir, server, mut client) = start();
    client.run("SET k v");
    let code = "#!lua name=lib\nredis.register_function('f', function() return 1 end)";
    assert_eq!(client.call(&["FUNCTION", "LOAD", code]), Value::bulk("lib"));
    client.run("MULTI");
    client.run("SET k w");
    let mut other = Client::connect(server.address());
    assert_eq!(other.run("CONFIG SET min-replicas-to-write 1"), Value::ok());
    let refused = "NOREPLICAS Not enough good replicas to write.";
    // One that was queued before, with which the transaction ends.
    let aborted = format!("EXECABORT Transaction discarded because of: {refused}");
    assert_eq!(client.run("EXEC"), Value::Error(aborted));
    for line in ["SET k w", "MSET k w", "INCR n", "LPUSH l x", "FCALL f 0", "BLPOP l 1"] {
        assert_eq!(client.run(line), Value::Error(refused.into()), "{line}");
    }
    let script = |client: &mut Client, text: &str| client.call(&["EVAL", text, "1", "k"]);
    let writes = "return redis.call('set', KEYS[1], 'w')";
    assert!(script(&mut client, writes).text().starts_with(refused));
    let told = format!("#!lua\n{writes}");
    assert_eq!(script(&mut client, &told), Value::Error(refused.into()));
    for head in ["", "#!lua flags=no-writes\n"] {
        let text = format!("{head}return redis.call('get', KEYS[1])");
        assert_eq!(script(&mut client, &text), Value::bulk("v"));
    }
    for line in ["MULTI", "GET k"] {
        client.run(line);
    }
    assert_eq!(client.run("EXEC"), Value::Array(vec![Value::bulk("v")]));
    client.run("MULTI");
    assert_eq!(client.run("SET k w"), Value::Error(refused.into()));
    assert!(client.run("EXEC").text().starts_with("EXECABORT "));
    assert_eq!(client.run("CONFIG SET min-slaves-max-lag 0"), Value::ok());
    assert_eq!(client.run("SET k w"), Value::ok());
}

#[test]
fn what_is_chosen_at_the_start_may_be_set_to_what_it_is() {
    let (_dir, _server, mut client) = start();
    for name in ["bind", "dir", "port", "proto-max-bulk-len"] {
        let Value::Array(pair) = setting(&mut client, name) else { panic!("{name}") };
        let present = pair[1].text();
        assert_eq!(client.call(&["CONFIG", "SET", name, &present]), Value::ok(), "{name}");
        let lines = ["CONFIG", "SET", "hz", "77", name, "1"];
        assert!(matches!(client.call(&lines), Value::Error(_)), "{name}");
    }
    assert_eq!(setting(&mut client, "hz"), Value::bulks(&["hz", "10"]));
    let both = ["replicaof", "", "slaveof", ""];
    assert_eq!(setting(&mut client, "*laveof replicaof"), Value::bulks(&both));
    let error = "ERR CONFIG SET failed (possibly related to argument 'maxmemory-clients') - \
                 percentage argument must be less or equal to 100";
    assert_eq!(client.run("CONFIG SET maxmemory-clients 101%"), Value::Error(error.into()));
}
