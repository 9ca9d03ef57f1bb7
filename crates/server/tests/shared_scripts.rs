//! Scripts that share a commit with their neighbours of a pipeline.

mod common;

use common::{Client, Value, encode, start};

/// Sends commands together; the replies to all of them.
fn together(client: &mut Client, commands: &[&[&str]]) -> Vec<Value> {
    let words = |command: &&[&str]| {
        let words: Vec<&[u8]> = command.iter().map(|word| word.as_bytes()).collect();
        encode(&words)
    };
    let bytes: Vec<u8> = commands.iter().flat_map(words).collect();
    client.send_raw(&bytes).unwrap();
    commands.iter().map(|_| client.reply().unwrap()).collect()
}

const ADD: &str = "return redis.call('hincrby', KEYS[1], ARGV[1], 1)";

#[test]
fn scripts_see_what_their_neighbours_have_written_and_the_other_way_round() {
    let (_dir, _server, mut client) = start();
    let replies = together(
        &mut client,
        &[
            &["HSET", "h", "f", "1"],
            &["EVAL", ADD, "1", "h", "f"],
            &["HINCRBY", "h", "f", "1"],
            &["EVAL", ADD, "1", "h", "f"],
            &["HGET", "h", "f"],
        ],
    );
    let numbers = [1, 2, 3, 4].map(Value::Int);
    assert_eq!(replies, [&numbers[..], &[Value::bulk("4")]].concat());
}

/// What such a script has written is taken back, and it is run by itself. That nothing is done
/// twice or forgotten shows in the numbers.
#[test]
fn scripts_that_are_ended_leave_what_their_neighbours_have_written() {
    let (_dir, _server, mut client) = start();
    let long = "redis.call('hincrby', KEYS[1], 'f', 10) redis.call('rpush', KEYS[1]..'l', 'x') \
                local n = 0 for i = 1, 3000000 do n = n + i end return 'long'";
    let other = "redis.call('hincrby', KEYS[1], 'f', 100) redis.call('set', 'not given', '1') \
                 return 'other'";
    let count = "redis.call('hincrby', KEYS[1], 'f', 1000) return redis.call('dbsize')";
    let refused = "redis.call('hincrby', KEYS[1], 'f', 10000) return redis.call('lpush', KEYS[1])";
    let wrong = "redis.call('hincrby', KEYS[1], 'f', 100000) return redis.call('lpop', KEYS[1])";
    let hset: &[&str] = &["HINCRBY", "h", "f", "1"];
    for script in [long, other, count, refused, wrong] {
        let replies =
            together(&mut client, &[hset, &["EVAL", script, "1", "h"], hset, &["HGET", "h", "f"]]);
        assert_eq!(replies.len(), 4);
    }
    assert_eq!(client.run("HGET h f"), Value::bulk("111120"));
    assert_eq!(client.run("LLEN hl"), Value::Int(1));
    assert_eq!(client.run("DBSIZE"), Value::Int(3));
    let replies = together(
        &mut client,
        &[
            &["SADD", "new", "x"],
            &["EVAL", "return redis.call('dbsize')", "0"],
            &["EVAL", "redis.call('flushall') return redis.call('dbsize')", "1", "h"],
            &["SADD", "new", "x"],
        ],
    );
    assert_eq!(replies, [1, 4, 0, 1].map(Value::Int));
}

#[test]
fn scripts_of_many_clients_lose_no_write() {
    let (_dir, server, mut client) = start();
    let threads: Vec<_> = (0..4)
        .map(|n: usize| {
            let mut client = Client::connect(server.address());
            std::thread::spawn(move || {
                let field = n.to_string();
                let own: &[&str] = &["EVAL", ADD, "1", "h", &field];
                let shared: &[&str] = &["EVAL", ADD, "1", "h", "all"];
                let not_given = "return redis.call('hincrby', ARGV[1], 'all', 1)";
                let far: &[&str] = &["EVAL", not_given, "0", "h"];
                for _ in 0..50 {
                    assert_eq!(together(&mut client, &[own, shared, far, own]).len(), 4);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    for field in ["0", "1", "2", "3"] {
        assert_eq!(client.call(&["HGET", "h", field]), Value::bulk("100"));
    }
    assert_eq!(client.run("HGET h all"), Value::bulk("400"));
}
