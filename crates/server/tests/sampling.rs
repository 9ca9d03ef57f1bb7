//! Random members and keys: each as likely as any other, whatever they are called.
//!
//! The seed is fixed, so a test that passes passes always. The bound on the chi-square statistic is
//! five standard deviations: a sampler that prefers some keys by a tenth is far outside of it.

mod common;

use std::collections::HashMap;

use common::{Client, Value, config, encode};
use rhumb_server::{Config, Running};

/// Names of four shapes: decimal numbers in order, random identifiers, a long common beginning, and
/// bytes of any length.
const SHAPES: [fn(u64) -> Vec<u8>; 4] = [
    |n| n.to_string().into_bytes(),
    |n| format!("{:016x}-{:016x}", mix(n), mix(!n)).into_bytes(),
    |n| format!("a/long/common/beginning/that/all/names/have/{n:06}/end").into_bytes(),
    |n| {
        let len = 1 + (mix(n) % 30) as usize;
        let mut name: Vec<u8> = (0..len).map(|at| (mix(n + at as u64) >> 11) as u8).collect();
        name.extend_from_slice(&n.to_be_bytes());
        name
    },
];

fn mix(n: u64) -> u64 {
    let mixed = (n ^ (n >> 31)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}

fn start_seeded() -> (tempfile::TempDir, Running, Client) {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(Config { seed: Some(7), ..config(&dir) }).unwrap();
    let client = Client::connect(server.address());
    (dir, server, client)
}

/// Sends a command many times at once; gives the replies.
fn repeat(client: &mut Client, commands: &[&[&[u8]]], times: usize) -> Vec<Value> {
    let once: Vec<u8> = commands.iter().flat_map(|words| encode(words)).collect();
    client.send_raw(&once.repeat(times)).unwrap();
    (0..times * commands.len()).map(|_| client.reply().unwrap()).collect()
}

fn names_of(value: Value) -> Vec<Vec<u8>> {
    match value {
        Value::Bulk(name) => vec![name],
        Value::Array(values) | Value::Set(values) => {
            values.into_iter().flat_map(names_of).collect()
        }
        other => panic!("no names: {other:?}"),
    }
}

/// How far the counts are from equal, in standard deviations of the chi-square statistic, by Wilson
/// and Hilferty's approximation.
fn deviation(names: &[Vec<u8>], drawn: impl Iterator<Item = Vec<u8>>) -> f64 {
    let mut counts: HashMap<Vec<u8>, u64> = names.iter().map(|name| (name.clone(), 0)).collect();
    let mut total = 0;
    for name in drawn {
        *counts.get_mut(&name).expect("it is a member") += 1;
        total += 1;
    }
    let expected = total as f64 / names.len() as f64;
    assert!(expected >= 5.0, "too few draws to judge by");
    let statistic: f64 = counts.values().map(|n| (*n as f64 - expected).powi(2) / expected).sum();
    let freedom = names.len() as f64 - 1.0;
    let spread = 2.0 / (9.0 * freedom);
    ((statistic / freedom).cbrt() - (1.0 - spread)) / spread.sqrt()
}

#[track_caller]
fn assert_equal_chances(what: &str, names: &[Vec<u8>], drawn: impl Iterator<Item = Vec<u8>>) {
    let deviation = deviation(names, drawn);
    assert!(deviation < 5.0, "{what} of {}: {deviation:.1} deviations", names.len());
}

fn names(shape: usize, size: u64) -> Vec<Vec<u8>> {
    (0..size).map(SHAPES[shape]).collect()
}

fn add_set(client: &mut Client, names: &[Vec<u8>]) {
    let mut words: Vec<&[u8]> = vec![b"SADD", b"s"];
    words.extend(names.iter().map(Vec::as_slice));
    assert_eq!(client.call_bytes(&words), Value::Int(names.len() as i64));
}

#[test]
fn members_have_equal_chances() {
    let (_dir, _server, mut client) = start_seeded();
    for shape in 0..SHAPES.len() {
        let sizes: &[u64] = if shape == 0 { &[3, 10, 100, 1000] } else { &[3, 10, 100] };
        for size in sizes.iter().copied() {
            let names = names(shape, size);
            client.run("DEL s");
            add_set(&mut client, &names);
            let draws = (size as usize * 5).max(200);
            let flat = |values: Vec<Value>| values.into_iter().flat_map(names_of);
            // Singly and with repetition: the large set once only, since a draw is not cheap here.
            if size < 1000 || shape == 0 {
                let drawn = repeat(&mut client, &[&[b"SRANDMEMBER", b"s"]], draws);
                assert_equal_chances("SRANDMEMBER", &names, flat(drawn));
            }
            if size < 1000 {
                let count = (-(draws as i64) / 100).to_string();
                let command: &[&[u8]] = &[b"SRANDMEMBER", b"s", count.as_bytes()];
                let drawn = repeat(&mut client, &[command], 101);
                assert_equal_chances("SRANDMEMBER -n", &names, flat(drawn));
            }
            // Two of them, a part of a tenth, a half: the members of each choice are different.
            for count in [2, size / 10, size / 2].into_iter().filter(|n| *n > 0 && *n < size) {
                let times = (size as usize * 6 / count as usize).clamp(15, 600);
                if size == 1000 && count < 500 {
                    continue;
                }
                let text = count.to_string();
                let command: &[&[u8]] = &[b"SRANDMEMBER", b"s", text.as_bytes()];
                let replies = repeat(&mut client, &[command], times);
                for reply in &replies {
                    let mut choice = names_of(reply.clone());
                    choice.sort();
                    choice.dedup();
                    assert_eq!(choice.len(), count as usize, "SRANDMEMBER {count} of {size}");
                }
                assert_equal_chances(&format!("SRANDMEMBER {count}"), &names, flat(replies));
            }
        }
    }
}

#[test]
fn members_are_taken_with_equal_chances() {
    let (_dir, _server, mut client) = start_seeded();
    for (shape, size) in [(0, 3), (1, 10), (2, 100), (3, 100), (0, 1000)] {
        let names = names(shape, size);
        let mut words: Vec<&[u8]> = vec![b"SADD", b"s"];
        words.extend(names.iter().map(Vec::as_slice));
        // One is taken of the whole set each time, and then all others go.
        let times = if size == 1000 { 50 } else { (size as usize * 8).max(300) };
        let (take, per): (&[&[u8]], _) =
            if size == 1000 { (&[b"SPOP", b"s", b"100"], 3) } else { (&[b"SPOP", b"s"], 3) };
        let replies = repeat(&mut client, &[&words, take, &[b"DEL", b"s"]], times);
        let drawn = replies.into_iter().skip(1).step_by(per).flat_map(names_of);
        assert_equal_chances("SPOP", &names, drawn);
    }
    // Nobody is taken twice, and all are in the end.
    let all = names(2, 300);
    add_set(&mut client, &all);
    let mut taken: Vec<Vec<u8>> =
        repeat(&mut client, &[&[b"SPOP", b"s"]], 300).into_iter().flat_map(names_of).collect();
    taken.sort();
    let mut all = all;
    all.sort();
    assert!(taken == all);
    assert_eq!(client.run("SPOP s"), Value::Null);
}

#[test]
fn keys_have_equal_chances() {
    let (_dir, _server, mut client) = start_seeded();
    for shape in 0..SHAPES.len() {
        let sizes: &[u64] = if shape == 0 { &[3, 10, 100, 1000] } else { &[3, 10, 100] };
        for size in sizes.iter().copied() {
            let names = names(shape, size);
            client.run("FLUSHDB");
            let mut words: Vec<&[u8]> = vec![b"MSET"];
            words.extend(names.iter().flat_map(|name| [name.as_slice(), b"v"]));
            assert_eq!(client.call_bytes(&words), Value::ok());
            let draws = (size as usize * 5).max(200);
            let drawn = repeat(&mut client, &[&[b"RANDOMKEY"]], draws);
            assert_equal_chances("RANDOMKEY", &names, drawn.into_iter().flat_map(names_of));
        }
    }
    // Keys that go, and keys that come in one place: what was learned of the others is not
    // believed.
    let mut names = names(3, 700);
    client.run("FLUSHDB");
    let mut words: Vec<&[u8]> = vec![b"MSET"];
    words.extend(names.iter().flat_map(|name| [name.as_slice(), b"v"]));
    assert_eq!(client.call_bytes(&words), Value::ok());
    assert_ne!(client.run("RANDOMKEY"), Value::Null);
    for name in names.drain(..400) {
        assert_eq!(client.call_bytes(&[b"DEL", &name]), Value::Int(1));
    }
    for n in 0..300 {
        let name = format!("in one place {n:04}").into_bytes();
        client.call_bytes(&[b"SET", &name, b"v"]);
        names.push(name);
    }
    let drawn = repeat(&mut client, &[&[b"RANDOMKEY"]], names.len() * 5);
    assert_equal_chances("RANDOMKEY of two kinds", &names, drawn.into_iter().flat_map(names_of));
    client.run("FLUSHDB");
    assert_eq!(client.run("RANDOMKEY"), Value::Null);
}

/// Entries that were overwritten, deleted or have ended are not drawn, and prefer no key: before
/// and after what is in memory goes to tables, which a restart does.
#[test]
fn dead_entries_prefer_no_key() {
    let dir = tempfile::tempdir().unwrap();
    let start = || Running::start(Config { seed: Some(7), ..config(&dir) }).unwrap();
    let mut server = start();
    let mut client = Client::connect(server.address());
    let mut names = names(1, 1200);
    for name in &names {
        client.call_bytes(&[b"SET", name, b"v"]);
    }
    // Some of them again and again, and others away.
    for _ in 0..5 {
        for name in &names[..100] {
            client.call_bytes(&[b"SET", name, b"w"]);
        }
    }
    for name in names.drain(600..800) {
        assert_eq!(client.call_bytes(&[b"DEL", &name]), Value::Int(1));
    }
    for name in names.drain(400..600) {
        assert_eq!(client.call_bytes(&[b"PEXPIRE", &name, b"1"]), Value::Int(1));
    }
    std::thread::sleep(std::time::Duration::from_millis(5));
    for place in ["in memory", "in tables"] {
        let drawn = repeat(&mut client, &[&[b"RANDOMKEY"]], names.len() * 5);
        let what = format!("RANDOMKEY {place}");
        assert_equal_chances(&what, &names, drawn.into_iter().flat_map(names_of));
        server.stop().unwrap();
        server = start();
        client = Client::connect(server.address());
    }
    // Nearly everything is dead.
    for name in names.drain(2..) {
        client.call_bytes(&[b"DEL", &name]);
    }
    let drawn = repeat(&mut client, &[&[b"RANDOMKEY"]], 40);
    assert_equal_chances("RANDOMKEY of two", &names, drawn.into_iter().flat_map(names_of));
    for name in &names {
        client.call_bytes(&[b"DEL", name]);
    }
    assert_eq!(client.run("RANDOMKEY"), Value::Null);
}

#[test]
fn a_transaction_draws_among_what_it_has_written() {
    let (_dir, _server, mut client) = start_seeded();
    let names = names(1, 200);
    client.run("MULTI");
    let mut words: Vec<&[u8]> = vec![b"SADD", b"s"];
    words.extend(names.iter().map(Vec::as_slice));
    client.call_bytes(&words);
    (0..1800).for_each(|_| assert_eq!(client.run("SRANDMEMBER s"), Value::Simple("QUEUED".into())));
    let Value::Array(replies) = client.run("EXEC") else { panic!("it was aborted") };
    assert_equal_chances(
        "SRANDMEMBER in MULTI",
        &names,
        replies.into_iter().skip(1).flat_map(names_of),
    );
}
