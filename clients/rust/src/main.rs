//! Smoke program of redis-rs: `cargo run -- PORT`.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};

use redis::{Commands, Connection, RedisResult, Value, cmd, pipe};

/// The texts of a reply, pairs one after the other.
fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        Value::BulkString(bytes) => vec![String::from_utf8_lossy(bytes).into_owned()],
        other => panic!("no text: {other:?}"),
    }
}

fn collections(client: &mut Connection) -> RedisResult<()> {
    let set: i64 = client.hset_multiple::<_, _, _, Value>("hash", &[("a", "1"), ("b", "2")]).map(|_| 2)?;
    assert_eq!(set, 2);
    let hash: BTreeMap<String, i64> = client.hgetall("hash")?;
    assert_eq!(hash, BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 2)]));

    let added: i64 = client.zadd_multiple("board", &[(3.0, "ada"), (1.5, "bob")])?;
    assert_eq!(added, 2);
    let board: Vec<(String, f64)> = client.zrange_withscores("board", 0, -1)?;
    assert_eq!(board, [("bob".to_owned(), 1.5), ("ada".to_owned(), 3.0)]);
    let rank: i64 = client.zrank("board", "ada")?;
    assert_eq!(rank, 1);

    let len: i64 = client.rpush("list", &["x", "y", "z"])?;
    assert_eq!(len, 3);
    let list: Vec<String> = client.lrange("list", 0, -1)?;
    assert_eq!(list, ["x", "y", "z"]);

    let added: i64 = client.sadd("set", &["p", "q"])?;
    assert_eq!(added, 2);
    let set: BTreeSet<String> = client.smembers("set")?;
    assert_eq!(set, BTreeSet::from(["p".to_owned(), "q".to_owned()]));
    Ok(())
}

fn ordered(client: &mut Connection) -> RedisResult<()> {
    let mut pipeline = pipe();
    for number in 0..100 {
        pipeline.set(format!("page:{number:03}"), number).ignore();
    }
    pipeline.query::<()>(client)?;
    let found = client.scan_match::<_, String>("page:*")?.filter_map(Result::ok);
    assert_eq!(found.collect::<BTreeSet<String>>().len(), 100);

    let pages: Value = cmd("RANGE").arg("[page:010").arg("(page:012").query(client)?;
    assert_eq!(texts(&pages), ["page:010", "10", "page:011", "11"]);
    let next: Value = cmd("NEXT").arg("page:010").query(client)?;
    assert_eq!(texts(&next)[0], "page:011");
    let prev: Value = cmd("PREV").arg("page:010").query(client)?;
    assert_eq!(texts(&prev)[0], "page:009");
    Ok(())
}

fn main() -> RedisResult<()> {
    let port = std::env::args().nth(1).expect("a port");
    let mut client = redis::Client::open(format!("redis://127.0.0.1:{port}"))?.get_connection()?;
    cmd("FLUSHALL").query::<()>(&mut client)?;

    client.set::<_, _, ()>("greeting", "hello")?;
    let greeting: String = client.get("greeting")?;
    assert_eq!(greeting, "hello");
    let counter: i64 = client.incr("counter", 5)?;
    assert_eq!(counter, 5);
    let many: Vec<Option<String>> = client.mget(&["greeting", "absent"])?;
    assert_eq!(many, [Some("hello".to_owned()), None]);
    collections(&mut client)?;

    let (counted, text): (i64, String) =
        pipe().atomic().set("t", 1).ignore().incr("t", 1).get("t").query(&mut client)?;
    assert_eq!((counted, text.as_str()), (2, "2"));
    ordered(&mut client)?;

    client.pset_ex::<_, _, ()>("short", "life", 30)?;
    std::thread::sleep(std::time::Duration::from_millis(50));
    let gone: Option<String> = client.get("short")?;
    assert_eq!(gone, None);
    let refused: RedisResult<i64> = client.lpush("greeting", "no list");
    assert!(refused.is_err_and(|error| error.code() == Some("WRONGTYPE")));
    println!("redis-rs: ok");
    Ok(())
}
