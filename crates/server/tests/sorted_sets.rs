//! Sorted sets: ranks beside what is listed while everything changes, random members, and what
//! commands on several keys reply where a comparison with Redis does not reach.

mod common;

use std::{collections::HashMap, thread};

use common::{Client, Value, encode, start};

fn names(client: &mut Client, line: &str) -> Vec<String> {
    let Value::Array(items) = client.run(line) else { panic!("{line}: no array") };
    items.iter().map(Value::text).collect()
}

/// Adds members with these scores, in commands of a hundred.
fn add(client: &mut Client, key: &str, members: impl Iterator<Item = (usize, usize)>) {
    let pairs: Vec<String> =
        members.flat_map(|(name, score)| [score.to_string(), format!("m{name}")]).collect();
    let mut count = 0;
    for part in pairs.chunks(200) {
        let mut words: Vec<&[u8]> = vec![b"ZADD", key.as_bytes()];
        words.extend(part.iter().map(|word| word.as_bytes()));
        client.send_raw(&encode(&words)).unwrap();
        count += 1;
    }
    (0..count).for_each(|_| assert!(matches!(client.reply(), Some(Value::Int(_)))));
}

/// Compares ranks, counts and ranges with what a listing gives.
fn check(client: &mut Client, key: &str) {
    let all = names(client, &format!("ZRANGE {key} 0 -1 WITHSCORES"));
    let all: Vec<(&String, f64)> =
        all.chunks(2).map(|pair| (&pair[0], pair[1].parse().unwrap())).collect();
    let mut by_name: Vec<&String> = all.iter().map(|(name, _)| *name).collect();
    by_name.sort();
    for (rank, (name, score)) in all.iter().enumerate().step_by(all.len() / 20 + 1) {
        let int = |n: usize| Value::Int(n as i64);
        assert_eq!(client.run(&format!("ZRANK {key} {name}")), int(rank), "{key} {name}");
        let from_end = all.len() - 1 - rank;
        assert_eq!(client.run(&format!("ZREVRANK {key} {name}")), int(from_end));
        let range = |client: &mut Client, line: String| names(client, &line);
        let one = vec![(*name).clone()];
        assert_eq!(range(client, format!("ZRANGE {key} {rank} {rank}")), one);
        assert_eq!(range(client, format!("ZREVRANGE {key} {from_end} {from_end}")), one);
        let limit = format!("ZRANGE {key} -inf +inf BYSCORE LIMIT {rank} 1");
        assert_eq!(range(client, limit), one);
        let limit = format!("ZRANGE {key} +inf -inf BYSCORE REV LIMIT {from_end} 1");
        assert_eq!(range(client, limit), one);
        let above = all.iter().filter(|(_, other)| other > score).count();
        assert_eq!(client.run(&format!("ZCOUNT {key} ({score} +inf")), int(above));
        let to = all.iter().filter(|(_, other)| other <= score).count();
        assert_eq!(client.run(&format!("ZCOUNT {key} -inf {score}")), int(to));
        let before = by_name.partition_point(|other| other < name);
        assert_eq!(client.run(&format!("ZLEXCOUNT {key} - ({name}")), int(before));
    }
}

#[test]
fn ranks_are_those_of_a_listing_after_every_way_of_changing() {
    let (_dir, _server, mut client) = start();
    add(&mut client, "z", (0..3000).map(|n| (n, n * 7 % 1000)));
    check(&mut client, "z");
    add(&mut client, "z", (1000..2000).map(|n| (n, n % 10)));
    check(&mut client, "z");
    for line in [
        "ZINCRBY z 500 m7",
        "ZREM z m1 m2 m3 m999",
        "ZREMRANGEBYSCORE z 100 300",
        "ZREMRANGEBYRANK z 500 600",
        "ZREMRANGEBYLEX z [m20 [m22",
        "ZPOPMIN z 100",
        "ZPOPMAX z 100",
        "ZMPOP 1 z MIN COUNT 50",
        "RENAME z y",
        "COPY y z",
        "ZUNIONSTORE z 2 z y WEIGHTS 2 -1",
        "ZRANGESTORE z y 100 1500",
        "SWAPDB 0 1",
        "SELECT 1",
        "DEL y",
        "SET z x",
        "DEL z",
    ] {
        let reply = client.run(line);
        assert!(!matches!(reply, Value::Error(_)), "{line}: {reply:?}");
        for key in ["y", "z"] {
            if client.run(&format!("TYPE {key}")).text() == "zset" {
                check(&mut client, key);
            }
        }
    }
    add(&mut client, "z", (0..2000).map(|n| (n, n)));
    check(&mut client, "z");
    client.run("FLUSHDB");
    add(&mut client, "z", (0..2000).map(|n| (n, 2000 - n)));
    check(&mut client, "z");
}

#[test]
fn ranks_within_a_transaction_are_those_of_its_writes() {
    let (_dir, _server, mut client) = start();
    add(&mut client, "z", (0..1000).map(|n| (n, n)));
    check(&mut client, "z");
    let lines = [
        "MULTI",
        "ZADD z -1 a -2 b 500.5 c 10 m20",
        "ZREM z m30 m31",
        "ZRANK z m500",
        "ZRANK z c",
        "ZRANK z a",
        "ZRANGE z 500 501",
        "ZREMRANGEBYRANK z 0 1",
        "ZRANK z m500",
        "ZREVRANK z m500",
        "ZCOUNT z 10 10",
        "ZREVRANGE z 600 600",
        "SELECT 1",
        "ZADD z 1 a 2 b",
        "ZRANK z b",
        "EXEC",
    ];
    let replies: Vec<Value> = lines.iter().map(|line| client.run(line)).collect();
    let Some(Value::Array(replies)) = replies.last() else { panic!("no replies") };
    let expected = [
        Value::Int(3),
        Value::Int(2),
        Value::Int(500),
        Value::Int(501),
        Value::Int(1),
        Value::bulks(&["m500", "c"]),
        Value::Int(2),
        Value::Int(498),
        Value::Int(500),
        Value::Int(2),
        Value::bulks(&["m400"]),
        Value::ok(),
        Value::Int(2),
        Value::Int(1),
    ];
    assert_eq!(replies[..], expected);
    client.run("SELECT 0");
    check(&mut client, "z");
}

#[test]
fn ranks_are_right_while_many_clients_write() {
    let (_dir, server, mut client) = start();
    add(&mut client, "z", (0..2000).map(|n| (n, n)));
    let address = server.address();
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            thread::spawn(move || {
                let mut client = Client::connect(address);
                for n in 0..300 {
                    let (name, score) = ((n * 13 + writer * 7) % 2500, (n * 31 + writer) % 2000);
                    client.run(&format!("ZADD z {score} m{name}"));
                    client.run(&format!("ZREM z m{}", (name + 400) % 2500));
                    let rank = client.run(&format!("ZRANK z m{name}"));
                    assert!(matches!(rank, Value::Int(0..2500) | Value::Null), "{rank:?}");
                }
            })
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    check(&mut client, "z");
}

#[test]
fn random_members_are_drawn_alike() {
    let (_dir, _server, mut client) = start();
    // Some scores are shared by many members, and most places in the order hold none.
    add(&mut client, "z", (0..300).map(|n| (n, if n < 200 { 5 } else { n * n })));
    let mut counts: HashMap<String, u32> = HashMap::new();
    let mut tell = |name: String| *counts.entry(name).or_default() += 1;
    (0..500).for_each(|_| tell(client.run("ZRANDMEMBER z").text()));
    for line in ["ZRANDMEMBER z -5000", "ZRANDMEMBER z -20", "ZRANDMEMBER z 20"] {
        let times = if line.len() > 17 { 1 } else { 25 };
        (0..times).for_each(|_| names(&mut client, line).into_iter().for_each(&mut tell));
    }
    // Mean 21.7; the sum of the squares' shares is 299 on average, and 24 is one deviation.
    let total: u32 = counts.values().sum();
    let mean = f64::from(total) / 300.0;
    let absent = (300 - counts.len()) as f64 * mean;
    let chi: f64 = counts.values().map(|n| (f64::from(*n) - mean).powi(2) / mean).sum();
    assert!((200.0..420.0).contains(&(chi + absent)), "{chi} of {total}");
}

#[test]
fn random_members_come_in_the_numbers_asked_for() {
    let (_dir, _server, mut client) = start();
    add(&mut client, "z", (0..1000).map(|n| (n, n)));
    for count in [0, 1, 5, 124, 126, 999, 1000, 2000] {
        let mut found = names(&mut client, &format!("ZRANDMEMBER z {count}"));
        found.sort();
        found.dedup();
        assert_eq!(found.len(), count.min(1000), "{count}");
        let line = format!("ZRANDMEMBER z {} WITHSCORES", -(count as i64));
        let repeated = names(&mut client, &line);
        assert_eq!(repeated.len(), 2 * count);
        assert!(repeated.chunks(2).all(|pair| pair[0] == format!("m{}", pair[1])));
    }
    client.run("HELLO 3");
    let Value::Array(pairs) = client.run("ZRANDMEMBER z 2 WITHSCORES") else { panic!("no array") };
    assert!(pairs.iter().all(|pair| matches!(pair, Value::Array(pair) if pair.len() == 2)));
    let refused = "ERR value is out of range, value must between -9223372036854775807 and \
                   9223372036854775807";
    let refused = Value::Error(refused.to_owned());
    assert_eq!(client.run("ZRANDMEMBER z -9223372036854775808"), refused);
    assert!(matches!(client.run("ZRANDMEMBER z -9223372036854775807"), Value::Error(_)));
}

#[test]
fn a_rank_comes_with_its_score_if_asked() {
    let (_dir, _server, mut client) = start();
    client.run("ZADD z 1.5 a 2 b");
    let with = |rank, score: &str| Value::Array(vec![Value::Int(rank), Value::bulk(score)]);
    assert_eq!(client.run("ZRANK z b WITHSCORE"), with(1, "2"));
    assert_eq!(client.run("ZREVRANK z a withscore"), with(1, "1.5"));
    assert_eq!(client.run("ZRANK z c WITHSCORE"), Value::NullArray);
    assert_eq!(client.run("ZRANK no c WITHSCORE"), Value::NullArray);
    assert_eq!(client.run("ZRANK z a WITHSCORES"), Value::Error("ERR syntax error".into()));
    let arity = "ERR wrong number of arguments for 'zrank' command";
    assert_eq!(client.run("ZRANK z a WITHSCORE x"), Value::Error(arity.into()));
    client.run("HELLO 3");
    let pair = Value::Array(vec![Value::Int(0), Value::Double("1.5".into())]);
    assert_eq!(client.run("ZRANK z a WITHSCORE"), pair);
}

#[test]
fn results_take_the_place_of_what_a_key_was() {
    let (_dir, _server, mut client) = start();
    client.run("ZADD z 1 a 2 b 3 c");
    client.run("SADD s b c d");
    client.run("SET to string EX 1000");
    assert_eq!(client.run("ZINTERSTORE to 2 z s WEIGHTS -1 2"), Value::Int(2));
    assert_eq!(client.run("TTL to"), Value::Int(-1));
    assert_eq!(client.run("ZRANGE to 0 -1 WITHSCORES"), Value::bulks(&["c", "-1", "b", "0"]));
    // Of itself and another.
    assert_eq!(client.run("ZUNIONSTORE to 2 to z AGGREGATE MAX"), Value::Int(3));
    let scores = Value::bulks(&["a", "1", "b", "2", "c", "3"]);
    assert_eq!(client.run("ZRANGE to 0 -1 WITHSCORES"), scores);
    // Nothing is left of a key when the result is empty.
    assert_eq!(client.run("ZDIFFSTORE to 2 z z"), Value::Int(0));
    assert_eq!(client.run("EXISTS to"), Value::Int(0));
    client.run("RPUSH to x");
    assert_eq!(client.run("ZRANGESTORE to z 5 9"), Value::Int(0));
    assert_eq!(client.run("EXISTS to"), Value::Int(0));
    // An input of another type changes nothing.
    client.run("RPUSH list x");
    assert!(matches!(client.run("ZUNIONSTORE z 2 z list"), Value::Error(_)));
    assert_eq!(client.run("ZCARD z"), Value::Int(3));
    client.run("ZADD inf inf a -inf b");
    client.run("ZADD minus -inf a");
    let sum = Value::bulks(&["b", "-inf", "a", "0"]);
    assert_eq!(client.run("ZUNION 2 inf minus WITHSCORES"), sum);
    let zero = Value::bulks(&["a", "0", "b", "0"]);
    assert_eq!(client.run("ZUNION 1 inf WEIGHTS 0 WITHSCORES"), zero);
}

#[test]
fn what_would_wait_does_not_within_a_transaction() {
    let (_dir, _server, mut client) = start();
    client.run("ZADD z 1 a 2 b 3 c");
    for line in [
        "MULTI",
        "BZPOPMIN no z 0",
        "BZMPOP 0 2 no z MAX COUNT 9",
        "BZPOPMAX no z 0",
        "BZMPOP 0 1 no MIN",
        "EXISTS z",
    ] {
        client.run(line);
    }
    let pairs =
        |pairs: &[[&str; 2]]| Value::Array(pairs.iter().map(|pair| Value::bulks(pair)).collect());
    let expected = vec![
        Value::bulks(&["z", "a", "1"]),
        Value::Array(vec![Value::bulk("z"), pairs(&[["c", "3"], ["b", "2"]])]),
        Value::NullArray,
        Value::NullArray,
        Value::Int(0),
    ];
    assert_eq!(client.run("EXEC"), Value::Array(expected));
}

#[test]
fn large_removals_and_results_are_whole() {
    let (_dir, _server, mut client) = start();
    add(&mut client, "z", (0..5000).map(|n| (n, n)));
    assert_eq!(client.run("ZUNIONSTORE y 2 z z"), Value::Int(5000));
    assert_eq!(client.run("ZSCORE y m4999"), Value::bulk("9998"));
    assert_eq!(client.run("ZINTERCARD 2 y z"), Value::Int(5000));
    assert_eq!(client.run("ZINTERCARD 2 y z LIMIT 7"), Value::Int(7));
    assert_eq!(names(&mut client, "ZRANGE z 0 -1").len(), 5000);
    assert_eq!(client.run("ZREMRANGEBYSCORE z 1000 4499"), Value::Int(3500));
    assert_eq!(names(&mut client, "ZDIFF 2 y z").len(), 3500);
    assert_eq!(names(&mut client, "ZPOPMAX y 2000").len(), 4000);
    assert_eq!(client.run("ZREMRANGEBYRANK y 0 -1"), Value::Int(3000));
    assert_eq!(client.run("EXISTS y"), Value::Int(0));
    assert_eq!(client.run("ZREMRANGEBYLEX z - +"), Value::Int(1500));
    assert_eq!(client.run("EXISTS z"), Value::Int(0));
}
