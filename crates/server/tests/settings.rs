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
