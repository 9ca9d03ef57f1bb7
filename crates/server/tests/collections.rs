//! Lists, sets and hashes: large ones against models, fields that end, and what moves between keys
//! and databases. Small ones are compared with Redis in `oracle.rs`.

mod common;

use std::collections::{BTreeSet, HashMap};

use common::{Client, Value, config, encode, start, wait_until};
use rhumb_server::Running;
use rhumb_testkit::random::Random;

/// Runs a command with many arguments.
fn call(client: &mut Client, front: &[&str], rest: impl IntoIterator<Item = String>) -> Value {
    let rest: Vec<String> = rest.into_iter().collect();
    let words: Vec<&str> = front.iter().copied().chain(rest.iter().map(String::as_str)).collect();
    client.call(&words)
}

fn texts(reply: &Value) -> Vec<String> {
    match reply {
        Value::Array(items) | Value::Set(items) => items.iter().map(Value::text).collect(),
        other => panic!("no array: {other:?}"),
    }
}

fn now_ms(client: &mut Client) -> u64 {
    let parts = texts(&client.run("TIME"));
    let [seconds, micros] = [0, 1].map(|at: usize| parts[at].parse::<u64>().unwrap());
    seconds * 1000 + micros / 1000
}

/// Removes elements as `LREM` does.
fn remove(list: &mut Vec<String>, count: i64, value: &str) -> i64 {
    let matching: Vec<usize> = (0..list.len()).filter(|at| list[*at] == value).collect();
    let most = if count == 0 { matching.len() } else { count.unsigned_abs() as usize };
    let gone: BTreeSet<usize> = if count < 0 {
        matching.into_iter().rev().take(most).collect()
    } else {
        matching.into_iter().take(most).collect()
    };
    let mut at = 0;
    list.retain(|_| {
        at += 1;
        !gone.contains(&(at - 1))
    });
    gone.len() as i64
}

#[test]
fn large_lists_agree_with_a_model() {
    let (_dir, _server, mut client) = start();
    let mut random = Random::new(7);
    // More elements than a command goes through while other clients wait.
    let mut model: Vec<String> = (0..2500).map(|_| format!("v{}", random.index(400))).collect();
    assert_eq!(call(&mut client, &["RPUSH", "l"], model.clone()), Value::Int(2500));
    for step in 0..300 {
        let value = format!("v{}", random.index(400));
        let found = model.iter().position(|element| *element == value);
        match random.index(6) {
            0..=1 => {
                let count = random.index(7) as i64 - 3;
                let removed = remove(&mut model, count, &value);
                let line = format!("LREM l {count} {value}");
                assert_eq!(client.run(&line), Value::Int(removed), "step {step}: {line}");
            }
            2..=3 => {
                let after = random.index(2);
                let line = format!("LINSERT l {} {value} new", ["BEFORE", "AFTER"][after]);
                let expected = match found {
                    None => -1,
                    Some(at) => {
                        model.insert(at + after, "new".to_owned());
                        model.len() as i64
                    }
                };
                assert_eq!(client.run(&line), Value::Int(expected), "step {step}: {line}");
            }
            4 => {
                let line = format!("LPOS l {value} COUNT 0 RANK -1");
                let all = (0..model.len()).rev().filter(|at| model[*at] == value);
                let all = all.map(|at| Value::Int(at as i64)).collect();
                assert_eq!(client.run(&line), Value::Array(all), "step {step}: {line}");
            }
            _ => {
                let moved = model.pop().unwrap();
                model.insert(0, moved.clone());
                assert_eq!(client.run("LMOVE l l RIGHT LEFT"), Value::bulk(moved), "step {step}");
            }
        }
    }
    assert_eq!(texts(&client.run("LRANGE l 0 -1")), model);
    assert_eq!(client.run("LTRIM l 1200 -10"), Value::ok());
    let kept = model[1200..=model.len() - 10].to_vec();
    assert_eq!(texts(&client.run("LRANGE l 0 -1")), kept);
    let Value::Array(popped) = client.run("LMPOP 2 absent l LEFT COUNT 5000") else { panic!() };
    assert_eq!(texts(&popped[1]), kept);
    assert_eq!(client.run("EXISTS l"), Value::Int(0));
}

#[test]
fn sets_of_all_sizes_agree_with_a_model() {
    let (_dir, _server, mut client) = start();
    let mut random = Random::new(11);
    let mut sets: Vec<BTreeSet<String>> = Vec::new();
    // Some are small enough to look into the others, and there are more than are walked at once.
    for n in 0..100 {
        let len = [3, 40, 700, 3000][random.index(4)];
        let set: BTreeSet<String> = (0..len).map(|_| format!("m{}", random.index(4000))).collect();
        call(&mut client, &["SADD", &format!("s{n}")], set.iter().cloned());
        sets.push(set);
    }
    for step in 0..60 {
        let some = if step == 0 { sets.len() } else { 1 + random.index(4) };
        let chosen: Vec<usize> =
            (0..some).map(|at| if step == 0 { at } else { random.index(sets.len()) }).collect();
        let keys = || chosen.iter().map(|n| format!("s{n}"));
        let mut expected =
            [sets[chosen[0]].clone(), sets[chosen[0]].clone(), sets[chosen[0]].clone()];
        for n in &chosen[1..] {
            expected[0].retain(|member| sets[*n].contains(member));
            expected[1].extend(sets[*n].iter().cloned());
            expected[2].retain(|member| !sets[*n].contains(member));
        }
        for (name, expected) in ["SINTER", "SUNION", "SDIFF"].into_iter().zip(&expected) {
            let reply = texts(&call(&mut client, &[name], keys()));
            let members: BTreeSet<String> = reply.iter().cloned().collect();
            assert_eq!(members.len(), reply.len(), "step {step}: a member came twice");
            assert_eq!(members, *expected, "step {step}: {name} {chosen:?}");
            let stored = call(&mut client, &[&format!("{name}STORE"), "into"], keys());
            assert_eq!(stored, Value::Int(expected.len() as i64));
            let stored: BTreeSet<String> =
                texts(&client.run("SMEMBERS into")).into_iter().collect();
            assert_eq!(stored, *expected, "step {step}: {name}STORE {chosen:?}");
            assert_eq!(client.run("SCARD into"), Value::Int(expected.len() as i64));
        }
        let count = call(&mut client, &["SINTERCARD", &some.to_string()], keys());
        assert_eq!(count, Value::Int(expected[0].len() as i64));
    }
    // A set that is stored to may be one of those that are read.
    assert_eq!(client.run("SDIFFSTORE s0 s0 s0"), Value::Int(0));
    assert_eq!(client.run("EXISTS s0"), Value::Int(0));
}

#[test]
fn a_blocking_command_answers_at_once_within_exec() {
    let (_dir, _server, mut client) = start();
    client.run("RPUSH l a b c");
    client.run("MULTI");
    for line in ["BLPOP no l 0", "BLPOP no 0", "BLMOVE no l LEFT LEFT 0", "BLMPOP 0 1 no LEFT"] {
        assert_eq!(client.run(line), Value::Simple("QUEUED".into()));
    }
    let expected = [Value::bulks(&["l", "a"]), Value::NullArray, Value::Null, Value::NullArray];
    assert_eq!(client.run("EXEC"), Value::Array(expected.into()));
    client.run("SET s v");
    let wrong = client.run("BRPOP s 0.01");
    assert!(matches!(&wrong, Value::Error(text) if text.starts_with("WRONGTYPE")), "{wrong:?}");
}

#[test]
fn fields_that_have_ended_are_absent() {
    let (_dir, _server, mut client) = start();
    for round in 0..10 {
        client.run("DEL h");
        client.run("HSET h a 1 b 2 c 3 d 4");
        assert_eq!(
            client.run("HPEXPIRE h 30 FIELDS 3 a b d"),
            Value::Array(vec![Value::Int(1), Value::Int(1), Value::Int(1)])
        );
        wait_until(|| client.run("HPTTL h FIELDS 1 a") == Value::Array(vec![Value::Int(-2)]));
        // In one go, so that the sweeper has not come by in most of the rounds.
        let reads = [
            ("HGET h a", Value::Null),
            ("HMGET h a c", Value::Array(vec![Value::Null, Value::bulk("3")])),
            ("HEXISTS h b", Value::Int(0)),
            ("HSTRLEN h b", Value::Int(0)),
            ("HLEN h", Value::Int(1)),
            ("HKEYS h", Value::bulks(&["c"])),
            ("HVALS h", Value::bulks(&["3"])),
            ("HGETALL h", Value::bulks(&["c", "3"])),
            ("HRANDFIELD h 9", Value::bulks(&["c"])),
            ("HRANDFIELD h -2", Value::bulks(&["c", "c"])),
            ("HSCAN h 0", Value::Array(vec![Value::bulk("0"), Value::bulks(&["c", "3"])])),
            ("HDEL h d", Value::Int(0)),
            ("HINCRBY h a 5", Value::Int(5)),
            ("HSETNX h b x", Value::Int(1)),
            ("HTTL h FIELDS 2 a b", Value::Array(vec![Value::Int(-1), Value::Int(-1)])),
            ("HLEN h", Value::Int(3)),
        ];
        let mut bytes = Vec::new();
        for (line, _) in &reads {
            bytes.extend(encode(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>()));
        }
        client.send_raw(&bytes).unwrap();
        for (line, expected) in reads {
            assert_eq!(client.reply(), Some(expected), "round {round}: {line}");
        }
    }
}

#[test]
fn the_space_of_ended_fields_comes_back() {
    let (_dir, server, mut client) = start();
    // More than the sweeper takes at a time.
    let pairs = (0..5000).flat_map(|n| [format!("f{n}"), "v".to_owned()]);
    call(&mut client, &["HSET", "h"], pairs);
    let fields = || (0..5000).map(|n| format!("f{n}"));
    call(&mut client, &["HEXPIRE", "h", "1000", "FIELDS", "5000"], fields());
    // They are marked for the new time, which is before the old one.
    let end = (now_ms(&mut client) + 200).to_string();
    call(&mut client, &["HPEXPIREAT", "h", &end, "LT", "FIELDS", "5000"], fields());
    client.run("HSET kept a 1 b 2");
    client.run("HPEXPIRE kept 1 FIELDS 1 a");
    wait_until(|| client.run("EXISTS h") == Value::Int(0));
    assert_eq!(client.run("HGETALL kept"), Value::bulks(&["b", "2"]));
    let mut other = Client::connect(server.address());
    assert_eq!(other.run("HSET h f0 v"), Value::Int(1));
    assert_eq!(other.run("HTTL h FIELDS 1 f0"), Value::Array(vec![Value::Int(-1)]));
}

#[test]
fn ends_of_fields_go_where_their_hash_goes() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(config(&dir)).unwrap();
    let mut client = Client::connect(server.address());
    let end = |key: &str| format!("HPEXPIRETIME {key} FIELDS 2 a b");
    let ends = Value::Array(vec![Value::Int(70_000_000_000_000), Value::Int(-1)]);
    client.run("HSET h a 1 b 2");
    client.run("HPEXPIREAT h 70000000000000 FIELDS 1 a");
    client.run("COPY h copied");
    client.run("RENAME h renamed");
    client.run("COPY renamed other DB 3");
    assert_eq!(client.run("MOVE copied 2"), Value::Int(1));
    assert_eq!(client.run("EXISTS copied h"), Value::Int(0));
    drop(client);
    server.stop().unwrap();
    let server = Running::start(config(&dir)).unwrap();
    let mut client = Client::connect(server.address());
    assert_eq!(client.run(&end("renamed")), ends);
    for (database, key) in [("2", "copied"), ("3", "other")] {
        client.run(&format!("SELECT {database}"));
        assert_eq!(client.run(&end(key)), ends, "{key}");
    }
    // Those that end afterwards end at every place.
    client.run("COPY other third DB 0");
    for (database, key) in [("0", "third"), ("0", "renamed"), ("3", "other")] {
        client.run(&format!("SELECT {database}"));
        client.run(&format!("HPEXPIRE {key} 40 FIELDS 1 a"));
        client.run(&format!("RENAME {key} moved"));
        wait_until(|| client.run("HLEN moved") == Value::Int(1));
        assert_eq!(client.run("HGETALL moved"), Value::bulks(&["b", "2"]));
        client.run("DEL moved");
    }
}

#[test]
fn writes_keep_or_take_away_the_ends_of_fields() {
    let (_dir, _server, mut client) = start();
    let ints = |all: &[i64]| Value::Array(all.iter().map(|int| Value::Int(*int)).collect());
    client.run("HSET h a 1 b 2 c 3 d 4");
    assert_eq!(client.run("HEXPIRE h 100 FIELDS 4 a b c nosuch"), ints(&[1, 1, 1, -2]));
    client.run("HSET h a 5");
    client.run("HINCRBY h b 5");
    client.run("HINCRBYFLOAT h c 0.5");
    assert_eq!(client.run("HTTL h FIELDS 4 a b c d"), ints(&[-1, 100, 100, -1]));
    assert_eq!(client.run("HPERSIST h FIELDS 3 a b nosuch"), ints(&[-1, 1, -2]));
    let steps = [
        ("HEXPIRE h 50 NX FIELDS 2 a c", ints(&[1, 0])),
        ("HEXPIRE h 40 GT FIELDS 2 a d", ints(&[0, 0])),
        ("HEXPIRE h 40 LT FIELDS 2 a d", ints(&[1, 1])),
        ("HEXPIRE h 60 XX FIELDS 2 a b", ints(&[1, 0])),
        ("HEXPIREAT h 1 FIELDS 2 a a", ints(&[2, -2])),
        ("HEXPIRE none 1 FIELDS 1 a", ints(&[-2])),
        ("HLEN h", Value::Int(3)),
        ("HGETEX h EX 7 FIELDS 2 b none", Value::Array(vec![Value::bulk("7"), Value::Null])),
        ("HTTL h FIELDS 1 b", ints(&[7])),
        ("HGETEX h PERSIST FIELDS 1 b", Value::bulks(&["7"])),
        ("HTTL h FIELDS 1 b", ints(&[-1])),
        ("HSETEX h FNX EX 9 FIELDS 2 new 1 b 2", Value::Int(0)),
        ("HSETEX h FXX KEEPTTL FIELDS 2 c x b y", Value::Int(1)),
        ("HSETEX h EX 9 FIELDS 2 new 1 b 2", Value::Int(1)),
        ("HTTL h FIELDS 3 c new b", ints(&[100, 9, 9])),
        ("HGETDEL h FIELDS 2 c none", Value::Array(vec![Value::bulk("x"), Value::Null])),
        ("HGETDEL h FIELDS 3 new b d", Value::bulks(&["1", "2", "4"])),
        ("EXISTS h", Value::Int(0)),
    ];
    for (line, expected) in steps {
        assert_eq!(client.run(line), expected, "{line}");
    }
    client.run("HSET h a 1");
    let errors = [
        ("HEXPIRE h x FIELDS 1 a", "ERR value is not an integer or out of range"),
        ("HEXPIRE h -1 FIELDS 1 a", "ERR invalid expire time, must be >= 0"),
        ("HEXPIRE h 99999999999999 FIELDS 1 a", "ERR invalid expire time in 'hexpire' command"),
        (
            "HEXPIRE h 1 FIELD 1 a",
            "ERR Mandatory argument FIELDS is missing or not at the right position",
        ),
        ("HEXPIRE h 1 FIELDS 0 a", "ERR Parameter `numFields` should be greater than 0"),
        (
            "HEXPIRE h 1 FIELDS 2 a",
            "ERR The `numfields` parameter must match the number of arguments",
        ),
        ("HTTL h FIELDS 0 a", "ERR Number of fields must be a positive integer"),
    ];
    for (line, text) in errors {
        assert_eq!(client.run(line), Value::Error(text.to_owned()), "{line}");
    }
    client.run("HEXPIRE h 100 FIELDS 1 a");
    client.run("SET h over");
    client.run("DEL h");
    client.run("HSET h a 1");
    assert_eq!(client.run("HTTL h FIELDS 1 a"), ints(&[-1]));
}

#[test]
fn random_fields_are_equally_likely() {
    let (_dir, _server, mut client) = start();
    // Names that lie unevenly.
    let names: Vec<String> = (0..10).map(|n| format!("{}{n}", "x".repeat(n * n))).collect();
    call(&mut client, &["HSET", "h"], names.iter().flat_map(|name| [name.clone(), "v".into()]));
    let draws = 20_000;
    for (line, each) in [("HRANDFIELD h", 1), ("HRANDFIELD h -4", 4), ("HRANDFIELD h 3", 3)] {
        let mut counts: HashMap<String, f64> = HashMap::new();
        let calls = draws / each;
        let one = encode(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
        client.send_raw(&one.repeat(calls)).unwrap();
        for _ in 0..calls {
            let reply = client.reply().unwrap();
            let drawn = if each == 1 { vec![reply.text()] } else { texts(&reply) };
            assert_eq!(drawn.len(), each, "{line}");
            drawn.into_iter().for_each(|name| *counts.entry(name).or_default() += 1.0);
        }
        let expected = (calls * each) as f64 / names.len() as f64;
        let of = |name: &String| counts.get(name).copied().unwrap_or_default() - expected;
        let chi: f64 = names.iter().map(|name| of(name).powi(2) / expected).sum();
        // With nine degrees of freedom one in ten million is larger.
        assert!(chi < 50.0, "{line}: {chi}, {counts:?}");
    }
    let Value::Array(all) = client.run("HRANDFIELD h 99 WITHVALUES") else { panic!() };
    assert_eq!(all.len(), 20);
    client.run("HELLO 3");
    let Value::Array(all) = client.run("HRANDFIELD h -2 WITHVALUES") else { panic!() };
    assert!(all.iter().all(|pair| texts(pair)[1] == "v"), "{all:?}");
}

#[test]
fn keys_are_moved_to_other_databases_with_all_they_have() {
    let (_dir, _server, mut client) = start();
    client.run("RPUSH l a b");
    client.run("SADD s x");
    client.run("ZADD z 1 m");
    client.run("SET t v PXAT 70000000000000");
    for key in ["l", "s", "z", "t"] {
        assert_eq!(client.run(&format!("MOVE {key} 1")), Value::Int(1), "{key}");
        assert_eq!(client.run(&format!("MOVE {key} 1")), Value::Int(0), "{key}");
    }
    assert_eq!(client.run("DBSIZE"), Value::Int(0));
    client.run("SET t other");
    assert_eq!(client.run("MOVE t 1"), Value::Int(0));
    let same = "ERR source and destination objects are the same";
    assert_eq!(client.run("MOVE t 0"), Value::Error(same.to_owned()));
    client.run("SELECT 1");
    assert_eq!(client.run("LRANGE l 0 -1"), Value::bulks(&["a", "b"]));
    assert_eq!(client.run("SMEMBERS s"), Value::bulks(&["x"]));
    assert_eq!(client.run("ZSCORE z m"), Value::bulk("1"));
    assert_eq!(client.run("PEXPIRETIME t"), Value::Int(70_000_000_000_000));
}

#[test]
fn what_is_sorted_by_other_keys_is_of_one_moment() {
    let (_dir, server, mut client) = start();
    let ids = || (0..200).map(|n| format!("{n:03}"));
    call(&mut client, &["RPUSH", "ids"], ids());
    let set = move |client: &mut Client, value: &str| {
        call(client, &["MSET"], ids().flat_map(|id| [format!("w{id}"), value.to_owned()]))
    };
    set(&mut client, "1");
    let address = server.address();
    let writer = std::thread::spawn(move || {
        let mut client = Client::connect(address);
        (0..100).for_each(|n| drop(set(&mut client, &n.to_string())));
    });
    for _ in 0..100 {
        let seen: BTreeSet<String> =
            texts(&client.run("SORT ids BY w* GET w* GET w*")).into_iter().collect();
        assert_eq!(seen.len(), 1, "values of two moments: {seen:?}");
    }
    writer.join().unwrap();
    // Missing keys come first, and a key that is stored to may be named as an element is.
    client.run("DEL w005 w010");
    let sorted = texts(&client.run("SORT ids BY w* DESC ALPHA LIMIT 198 2"));
    assert_eq!(
        sorted.into_iter().collect::<BTreeSet<_>>(),
        ["005", "010"].map(String::from).into()
    );
    assert_eq!(client.run("SORT ids BY w* GET # LIMIT 0 3 STORE w000"), Value::Int(3));
    assert_eq!(client.run("LLEN w000"), Value::Int(3));
}
