//! Real encodings, and damage of every kind, for fuzzers to start from.

use std::ops::Bound;

use crate::{
    binned,
    message::{
        Answer, Guess, How, Op, Part, Reply, Request,
        format::{LENGTH_BYTES, failure},
    },
    two_stage,
};

/// Inputs for the target of a name.
///
/// # Panics
///
/// If there is no such target.
#[must_use]
pub fn seeds(target: &str) -> Vec<Vec<u8>> {
    match target {
        "remote_region" => damages(3, 2),
        "remote_models" => damages(4, 2),
        "remote_arrays" => damages(2, 1),
        "remote_messages" => messages(),
        "remote_host" => host(),
        "remote_client" => client(),
        other => panic!("no target is named {other:?}"),
    }
}

/// Damage of words, for each kind of input, after a head of this many bytes.
fn damages(kinds: u8, head: usize) -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for kind in 0..kinds {
        for how in 0..5u8 {
            let mut seed = vec![kind; head];
            for at in 0..12u64 {
                seed.push(how);
                seed.extend_from_slice(&(at * 97 + u64::from(how)).to_le_bytes()[..3]);
                seed.extend_from_slice(&(at.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes());
            }
            seeds.push(seed);
        }
        seeds.push(vec![kind]);
    }
    seeds
}

fn requests() -> Vec<Vec<u8>> {
    let keyspace = 0;
    let all = [
        Request::Hello { program: "ada", features: 1, token: Some(b"open") },
        Request::Open { keyspace: b"runs" },
        Request::Get { keyspace, key: b"key", hint: None },
        Request::MultiGet { keyspace, keys: vec![b"a", b"", b"bc"] },
        Request::Scan {
            keyspace,
            from: Bound::Included(b"a"),
            to: Bound::Excluded(b"n"),
            limit: 100,
            reverse: true,
            is_atomic: false,
        },
        Request::Insert { keyspace, key: b"key", value: b"value", hint: None },
        Request::Remove { keyspace, key: b"key", hint: None },
        Request::CompareAndSwap {
            keyspace,
            key: b"key",
            expected: Some(b"value"),
            new: None,
            hint: None,
        },
        Request::Batch {
            ops: vec![
                Op::Insert { keyspace, key: b"a", value: b"1" },
                Op::Remove { keyspace: 1, key: b"b" },
            ],
        },
        Request::Read { keyspace, guess: Guess::Leaf(1), key: b"key" },
        Request::ReadMany { keyspace, wanted: vec![(Guess::Block(1), b"a"), (Guess::None, b"b")] },
        Request::Top { keyspace, from: b"", limit: 10 },
        Request::Block { keyspace, key: b"key" },
        Request::Consult { keyspace: 1, question: b"\0\0\0\0\x01\x01k" },
        Request::Goodbye,
    ];
    all.iter().map(|request| encoded(|out| request.encode(3, out).expect("it is short"))).collect()
}

fn replies() -> Vec<Vec<u8>> {
    let all = [
        Reply::Hello { features: 0 },
        Reply::Segments { keyspace: 0, part: Part::Leaves, sizes: vec![2 << 20] },
        Reply::Value(Some(b"value")),
        Reply::Values(vec![Some(b"1"), None]),
        Reply::Pairs { pairs: vec![(b"a", b"1"), (b"b", b"2")], more: true },
        Reply::Done { seq: 7 },
        Reply::Swapped { swapped: true, seq: 7 },
        Reply::Failed { code: failure::TOO_LARGE, text: "too large" },
        Reply::Read { epoch: 1, answer: Answer { how: How::Asked, value: Some(b"1") } },
        Reply::Top { epoch: 1, blocks: vec![(b"", 1), (b"m", 2)], more: false },
        Reply::Consulted(b"\x01\x01v"),
    ];
    all.iter().map(|reply| encoded(|out| reply.encode(3, out).expect("it is short"))).collect()
}

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out);
    out
}

fn messages() -> Vec<Vec<u8>> {
    let frames = requests().into_iter().chain(replies());
    let mut seeds: Vec<Vec<u8>> = frames
        .flat_map(|frame| [[&[0], &frame[LENGTH_BYTES..]].concat(), [&[3], &frame[..]].concat()])
        .collect();
    let operation = |verb| {
        let address = binned::Address { array: 3, record: 7, bin: 9, incarnation: 2 };
        binned::Request::Operate(binned::Operation::new(verb, address, b"key", b"value"))
    };
    let asked = [
        binned::Request::Join,
        binned::Request::Renew { session: 1, model: 2 },
        binned::Request::Learn { from: b"key".to_vec() },
        operation(binned::Verb::Put),
        operation(binned::Verb::Search),
    ];
    let answered = [
        binned::Reply::Joined { session: 1, lease_ms: 1_000, model: 3 },
        binned::Reply::Renewed { model: 4, lessons: vec![] },
        binned::Reply::Unknown,
        binned::Reply::Done {
            outcome: binned::Outcome::Found(binned::Value::Here(b"value".to_vec())),
            lesson: None,
        },
    ];
    seeds
        .extend(asked.iter().map(|request| [vec![1], encoded(|out| request.encode(out))].concat()));
    seeds.extend(answered.iter().map(|reply| [vec![1], encoded(|out| reply.encode(out))].concat()));
    let lookup = two_stage::Lookup { epoch: 1, wants_model: true, key: b"key" };
    seeds.push([vec![2], encoded(|out| lookup.encode(out))].concat());
    let answer = two_stage::Answer { value: Some(b"value".to_vec()), fresh: None };
    seeds.push([vec![2], encoded(|out| answer.encode(out))].concat());
    seeds
}

/// A frame without its length, after two bytes that say how long it is.
fn told(frame: &[u8]) -> Vec<u8> {
    let body = &frame[LENGTH_BYTES..];
    [&(body.len() as u16).to_le_bytes()[..], body].concat()
}

/// Conversations of a client: all requests together, each alone, and as they are.
fn host() -> Vec<Vec<u8>> {
    let requests = requests();
    let all: Vec<u8> = requests.iter().flat_map(|request| told(request)).collect();
    let mut seeds = vec![[&[2], &all[..]].concat(), [&[0], &all[..]].concat()];
    seeds.extend(requests.iter().map(|request| [&[2], &told(request)[..]].concat()));
    seeds.push([&[130], &requests.concat()[..]].concat());
    seeds
}

/// Answers of a host: all of them together, and each again and again.
fn client() -> Vec<Vec<u8>> {
    let replies = replies();
    let said = |reply: &Vec<u8>| [&[1], &told(reply)[..]].concat();
    let all: Vec<u8> = replies.iter().flat_map(said).collect();
    replies.iter().map(|reply| said(reply).repeat(12)).chain([all]).collect()
}
