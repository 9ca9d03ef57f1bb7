//! Golden bytes of every message, and what hostile bytes may not do.

mod rdma;
mod routing;

use std::{mem::size_of, ops::Bound};

use proptest::{collection::vec, option, prelude::*};

use super::request::GetCounts;
use super::{
    format::{
        FRAME_BYTES_MAX, GREETING_BYTES_MAX, HEAD_BYTES, ITEMS_MAX, KEY_BYTES_MAX, LENGTH_BYTES,
        NAME_BYTES_MAX, PROGRAM_BYTES_MAX, RENEWED_MAX, SEGMENTS_MAX, TEXT_BYTES_MAX,
        TOKEN_BYTES_MAX, failure, feature,
    },
    *,
};

fn encoded(request: &Request<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    request.encode(7, &mut out).unwrap();
    out
}

fn encoded_reply(reply: &Reply<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    reply.encode(7, &mut out).unwrap();
    out
}

/// The frame of request 7 with this kind and body.
fn frame(kind: u8, body: &[&[u8]]) -> Vec<u8> {
    let body = body.concat();
    let length = (body.len() + HEAD_BYTES - LENGTH_BYTES) as u32;
    [&length.to_le_bytes()[..], &[kind, 7, 0, 0, 0], &body].concat()
}

fn decode(bytes: &[u8]) -> Result<Request<'_>> {
    Request::decode(&Frame::parse(bytes)?)
}

fn decode_reply(bytes: &[u8]) -> Result<Reply<'_>> {
    Reply::decode(&Frame::parse(bytes)?)
}

#[track_caller]
fn assert_refused(bytes: &[u8], why: &str) {
    for error in [decode(bytes).map(|_| ()), decode_reply(bytes).map(|_| ())] {
        let error = error.unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error:?}");
    }
    let is_reply = bytes.get(LENGTH_BYTES).is_some_and(|kind| kind & 0x80 != 0);
    let error = if is_reply {
        decode_reply(bytes).map(|_| ()).unwrap_err()
    } else {
        decode(bytes).map(|_| ()).unwrap_err()
    };
    assert!(error.to_string().contains(why), "{why:?} not in {error}");
}

const GREETING: &[u8] = b"RHUMBWIR\x01\0\0\0";
const HINT: Option<Hint> = Some(Hint { slot: 0x0102, incarnation: 3 });

fn assert_golden(golden: &[(Request<'_>, Vec<u8>)]) {
    for (request, bytes) in golden {
        assert_eq!(encoded(request), *bytes, "{request:?}");
        assert_eq!(decode(bytes).unwrap(), *request);
        assert_eq!(Frame::parse(bytes).unwrap().id, 7);
    }
}

#[test]
fn golden_bytes_of_requests_that_read() {
    let keyspace = 5;
    let gets = vec![(7, GetCounts::of([300, 1, 2, 3, 4, 5, 6]))];
    assert_golden(&[
        (
            Request::Hello { program: "ada", features: 0, token: None },
            frame(1, &[GREETING, b"\x03ada", &[0; 8], b"\0"]),
        ),
        (
            Request::Hello {
                program: "ada",
                features: feature::NO_DESCRIPTORS,
                token: Some(b"open"),
            },
            frame(1, &[GREETING, b"\x03ada", b"\x01\0\0\0\0\0\0\0", b"\x01\x04open"]),
        ),
        (Request::Open { keyspace: b"users" }, frame(2, &[b"\x05users"])),
        (Request::Get { keyspace, key: b"k", hint: None }, frame(3, &[b"\x05\0\0\0\x01k\0"])),
        (
            Request::Get { keyspace, key: b"", hint: HINT },
            frame(3, &[b"\x05\0\0\0\0\x01\x02\x01\0\0\x03\0\0\0"]),
        ),
        (
            Request::MultiGet { keyspace, keys: vec![b"a", b"", b"bc"] },
            frame(4, &[b"\x05\0\0\0\x03\x01a\0\x02bc"]),
        ),
        (
            Request::Scan {
                keyspace,
                from: Bound::Included(b"a"),
                to: Bound::Excluded(b"n"),
                limit: 100,
                reverse: true,
                is_atomic: false,
            },
            frame(5, &[b"\x05\0\0\0\x01\x01a\x02\x01n\x64\0\0\0\x01"]),
        ),
        (
            Request::Scan {
                keyspace,
                from: Bound::Unbounded,
                to: Bound::Unbounded,
                limit: 1,
                reverse: false,
                is_atomic: false,
            },
            frame(5, &[b"\x05\0\0\0\0\0\x01\0\0\0\0"]),
        ),
        (
            Request::Scan {
                keyspace,
                from: Bound::Unbounded,
                to: Bound::Unbounded,
                limit: 1,
                reverse: false,
                is_atomic: true,
            },
            frame(5, &[b"\x05\0\0\0\0\0\x01\0\0\0\x02"]),
        ),
        (
            Request::Renew { epoch: 9, gets },
            frame(10, &[b"\x09\0\0\0\0\0\0\0", b"\x01\x07\0\0\0\xac\x02\x01\x02\x03\x04\x05\x06"]),
        ),
        (Request::Goodbye, frame(11, &[])),
    ]);
}

#[test]
fn golden_bytes_of_requests_that_write() {
    let keyspace = 5;
    assert_golden(&[
        (
            Request::Insert { keyspace, key: b"k", value: b"v1", hint: None },
            frame(6, &[b"\x05\0\0\0\x01k\x02v1\0"]),
        ),
        (
            Request::Remove { keyspace, key: b"k", hint: HINT },
            frame(7, &[b"\x05\0\0\0\x01k\x01\x02\x01\0\0\x03\0\0\0"]),
        ),
        (
            Request::Pieces {
                keyspace: 1,
                extents: vec![
                    Extent { part: Part::Control, at: 8, len: 16, guard: 0 },
                    Extent { part: Part::Leaves, at: 300, len: 8, guard: 1 },
                ],
            },
            frame(0x22, &[b"\x01\0\0\0\x02\0\x08\x10\0\x01\xac\x02\x08\x01"]),
        ),
        (
            Request::Consult { keyspace: 1, question: b"what" },
            frame(0x20, &[b"\x01\0\0\0\x04what"]),
        ),
        (
            Request::CompareAndSwap {
                keyspace,
                key: b"k",
                expected: None,
                new: Some(b"v"),
                hint: None,
            },
            frame(8, &[b"\x05\0\0\0\x01k\0\x01\x01v\0"]),
        ),
        (
            Request::CompareAndSwap {
                keyspace,
                key: b"k",
                expected: Some(b""),
                new: None,
                hint: HINT,
            },
            frame(8, &[b"\x05\0\0\0\x01k\x01\0\0\x01\x02\x01\0\0\x03\0\0\0"]),
        ),
        (
            Request::Batch {
                ops: vec![
                    Op::Insert { keyspace, key: b"k", value: b"v" },
                    Op::Remove { keyspace: 6, key: b"l" },
                ],
            },
            frame(9, &[b"\x02\0\x05\0\0\0\x01k\x01v\x01\x06\0\0\0\x01l"]),
        ),
    ]);
}

#[test]
fn golden_bytes_of_replies() {
    let keyspace = 5;
    let control = PartInfo { capacity_bytes: 1 << 24, segments: vec![] };
    let leaves = PartInfo { capacity_bytes: 1 << 32, segments: vec![2, 3] };
    let sizes = b"\x02\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0";
    let golden: [(Reply<'_>, Vec<u8>); 14] = [
        (Reply::Hello { features: 1 }, frame(0x81, &[GREETING, b"\x01\0\0\0\0\0\0\0"])),
        (
            Reply::Opened { keyspace, control, leaves, lease_ms: 1000 },
            frame(
                0x82,
                &[
                    b"\x05\0\0\0",
                    b"\0\0\0\x01\0\0\0\0\0",
                    b"\0\0\0\0\x01\0\0\0",
                    sizes,
                    b"\xe8\x03\0\0",
                ],
            ),
        ),
        (
            Reply::Segments { keyspace, part: Part::Leaves, sizes: vec![2, 3] },
            frame(0x83, &[b"\x05\0\0\0\x01", sizes]),
        ),
        (Reply::Value(None), frame(0x84, &[b"\0"])),
        (Reply::Value(Some(b"v")), frame(0x84, &[b"\x01\x01v"])),
        (Reply::Values(vec![Some(b"v"), None]), frame(0x85, &[b"\x02\x01\x01v\0"])),
        (
            Reply::Pairs { pairs: vec![(b"a", b"1"), (b"b", b"")], more: true },
            frame(0x86, &[b"\x02\x01a\x011\x01b\0\x01"]),
        ),
        (Reply::Done { seq: 258 }, frame(0x87, &[b"\x02\x01\0\0\0\0\0\0"])),
        (Reply::Consulted(b"that"), frame(0xa0, &[b"\x04that"])),
        (
            Reply::Pieces { guards: vec![Some(4), None], bytes: b"12345678" },
            frame(0xa2, &[b"\x02\x01\x04\0\0\0\0\0\0\0\0\x0812345678"]),
        ),
        (
            Reply::Shown { keyspace: 2, header: [1, 2, 3, 4] },
            frame(
                0xa3,
                &[
                    b"\x02\0\0\0",
                    b"\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0",
                    b"\x03\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0",
                ],
            ),
        ),
        (Reply::Swapped { swapped: true, seq: 1 }, frame(0x88, &[b"\x01\x01\0\0\0\0\0\0\0"])),
        (
            Reply::Renewed { epoch: 1, seq: 2 },
            frame(0x89, &[b"\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0"]),
        ),
        (Reply::Failed { code: failure::FULL, text: "gone" }, frame(0x8a, &[b"\x04\0\x04gone"])),
    ];
    for (reply, bytes) in &golden {
        assert_eq!(encoded_reply(reply), *bytes, "{reply:?}");
        assert_eq!(decode_reply(bytes).unwrap(), *reply);
    }
    let codes = [
        failure::BAD_REQUEST,
        failure::NO_SUCH_KEYSPACE,
        failure::REFUSED,
        failure::FULL,
        failure::TOO_LARGE,
        failure::CLOSING,
        failure::INTERNAL,
    ];
    assert_eq!(codes, [1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn golden_bytes_of_what_clients_ask_that_map_nothing() {
    let keyspace = 5;
    assert_golden(&[
        (
            Request::Read { keyspace, guess: Guess::None, key: b"k" },
            frame(0x10, &[b"\x05\0\0\0\0\x01k"]),
        ),
        (
            Request::Read { keyspace, guess: Guess::Leaf(0x0102), key: b"k" },
            frame(0x10, &[b"\x05\0\0\0\x01\x02\x01\0\0\x01k"]),
        ),
        (
            Request::ReadMany {
                keyspace,
                wanted: vec![(Guess::Block(3), b"k"), (Guess::None, b"")],
            },
            frame(0x11, &[b"\x05\0\0\0\x02\x02\x03\0\0\0\x01k\0\0"]),
        ),
        (
            Request::Top { keyspace, from: b"k", limit: 9 },
            frame(0x12, &[b"\x05\0\0\0\x01k\x09\0\0\0"]),
        ),
        (Request::Block { keyspace, key: b"k" }, frame(0x13, &[b"\x05\0\0\0\x01k"])),
    ]);
    let epoch = 258;
    let epoch_bytes = &b"\x02\x01\0\0\0\0\0\0"[..];
    let found = Answer { how: How::Guessed, value: Some(b"v") };
    let golden = [
        (
            Reply::Described { keyspace, leaf_bytes: 1024, room: 24, epoch },
            frame(0x90, &[b"\x05\0\0\0\0\x04\0\0\x18\0\0\0", epoch_bytes]),
        ),
        (Reply::Read { epoch, answer: found }, frame(0x91, &[epoch_bytes, b"\0\x01\x01v"])),
        (
            Reply::Read { epoch, answer: Answer { how: How::Routed, value: None } },
            frame(0x91, &[epoch_bytes, b"\x02\0"]),
        ),
        (
            Reply::ReadMany {
                epoch,
                answers: vec![found, Answer { how: How::Asked, value: None }],
            },
            frame(0x92, &[epoch_bytes, b"\x02\0\x01\x01v\x01\0"]),
        ),
        (
            Reply::Top { epoch, blocks: vec![(b"", 7), (b"k", 8)], more: true },
            frame(0x93, &[epoch_bytes, b"\x02\0\x07\0\0\0\x01k\x08\0\0\0\x01"]),
        ),
        (
            Reply::Block { epoch, low: b"", high: Some(b"k"), image: b"12345678" },
            frame(0x94, &[epoch_bytes, b"\0\x01\x01k\x0812345678"]),
        ),
        (
            Reply::Block { epoch, low: b"k", high: None, image: b"" },
            frame(0x94, &[epoch_bytes, b"\x01k\0\0"]),
        ),
    ];
    for (reply, bytes) in &golden {
        assert_eq!(encoded_reply(reply), *bytes, "{reply:?}");
        assert_eq!(decode_reply(bytes).unwrap(), *reply);
    }
    assert_refused(&frame(0x10, &[b"\x05\0\0\0\x03"]), "a kind of guess");
    assert_refused(&frame(0x91, &[epoch_bytes, b"\x03"]), "how a key was found");
    assert_refused(&frame(0x11, &[b"\x05\0\0\0\x02\0\0\0"]), "2 with 3 bytes left");
    assert_refused(&frame(0x92, &[epoch_bytes, b"\x02\0\0\0"]), "2 with 3 bytes left");
    assert_refused(&frame(0x93, &[epoch_bytes, b"\x01\0\0\0\0"]), "1 with 4 bytes left");
    assert!(size_of::<(Guess, &[u8])>() <= 40 && size_of::<Answer<'_>>() <= 40);
}

#[test]
fn the_longest_greeting_is_read_of_a_client_that_is_not_known() {
    let program = "p".repeat(PROGRAM_BYTES_MAX);
    let token = Some(&[7; TOKEN_BYTES_MAX][..]);
    let hello = Request::Hello { program: &program, features: u64::MAX, token };
    assert!(encoded(&hello).len() <= GREETING_BYTES_MAX);
}

#[test]
fn a_frame_has_the_length_that_it_says() {
    assert_refused(&[], "0 bytes");
    assert_refused(&[5, 0, 0], "3 bytes");
    assert_refused(&[4, 0, 0, 0, 11, 7, 0, 0], "5 to 16777216");
    assert_refused(&[5, 0, 0, 0, 11, 7, 0, 0], "9 bytes came as 8");
    assert_refused(&[5, 0, 0, 0, 11, 7, 0, 0, 0, 0], "9 bytes came as 10");
    assert_refused(&frame(11, &[b"\0"]), "the end");
    assert!(frame_len((FRAME_BYTES_MAX as u32 + 1).to_le_bytes()).is_err());
    assert!(frame_len(u32::MAX.to_le_bytes()).is_err());
    let longest = frame_len((FRAME_BYTES_MAX as u32).to_le_bytes());
    assert_eq!(longest.unwrap(), FRAME_BYTES_MAX + LENGTH_BYTES);
}

#[test]
fn what_is_malformed_is_refused_with_its_place() {
    assert_refused(&frame(0, &[]), "kind 0");
    assert_refused(&frame(12, &[]), "kind 12");
    assert_refused(&frame(0x80, &[]), "kind 128");
    assert_refused(&frame(0x8b, &[]), "kind 139");
    assert_refused(&frame(1, &[b"RHUMBWIX\x01\0\0\0\0"]), "magic");
    assert_refused(&frame(1, &[GREETING, b"\x02\xff\xff"]), "utf-8");
    assert_refused(&frame(0x84, &[b"\x02"]), "if there is a value");
    assert_refused(&frame(3, &[b"\x05\0\0\0\0\x02"]), "if there is a hint");
    assert_refused(&frame(5, &[b"\x05\0\0\0\x03"]), "a kind of bound");
    assert_refused(&frame(9, &[b"\x01\x02\0\0\0\0\0"]), "a kind of operation");
    assert_refused(&frame(3, &[b"\x05\0\0\0\x02k"]), "at byte 14");
}

#[test]
fn another_version_is_named() {
    for bytes in [frame(1, &[b"RHUMBWIR\x02\0\0\0"]), frame(0x81, &[b"RHUMBWIR\x02\0\0\0"])] {
        let request = decode(&bytes).map(|_| ());
        let reply = decode_reply(&bytes).map(|_| ());
        let error = if bytes[LENGTH_BYTES] == 1 { request } else { reply }.unwrap_err();
        assert!(matches!(&error, Error::Unsupported(text) if text.contains("version 2")));
    }
}

#[test]
fn only_the_shortest_varint_is_taken() {
    // Two bytes for 1, three for 300, two for 0.
    assert_refused(&frame(3, &[b"\x05\0\0\0\x81\0k\0"]), "longer than it needs to be");
    assert_refused(
        &frame(10, &[&[0; 8], b"\x01\0\0\0\0\xac\x82\0\0\0\0\0\0\0"]),
        "longer than it needs to be",
    );
    assert_refused(&frame(2, &[b"\x80\0"]), "longer than it needs to be");
    let gets = vec![(1, GetCounts::of([u64::MAX, 127, 128, 0, 16384, 1, 2])); RENEWED_MAX];
    let request = Request::Renew { epoch: 0, gets };
    assert_eq!(decode(&encoded(&request)).unwrap(), request);
    let gets = vec![(1, GetCounts::default()); RENEWED_MAX + 1];
    assert!(Request::Renew { epoch: 0, gets }.encode(1, &mut Vec::new()).is_err());
}

#[test]
fn a_count_is_checked_before_anything_is_allocated() {
    // More items than the bytes that are left can hold, though fewer than a message may have.
    assert_refused(&frame(4, &[b"\x05\0\0\0\xff\xff\x03"]), "65535 with 0 bytes left");
    assert_refused(&frame(4, &[b"\x05\0\0\0\x03\0\0"]), "3 with 2 bytes left");
    assert_refused(&frame(9, &[b"\x02\x01\x06\0\0\0\0\x01\x06\0\0\0"]), "2 with 11 bytes left");
    assert_refused(&frame(0x85, &[b"\x02\0"]), "2 with 1 bytes left");
    assert_refused(&frame(0x86, &[b"\x02\0\0\0"]), "2 with 3 bytes left");
    assert_refused(&frame(0x83, &[b"\x05\0\0\0\0\x02", &[0; 15]]), "2 with 15 bytes left");
    // More items than a message may have, though the bytes are there.
    let many = vec![0; ITEMS_MAX + 2];
    assert_refused(&frame(4, &[b"\x05\0\0\0\x81\x80\x04", &many]), "over 65536");
    assert_refused(&frame(0x85, &[b"\x81\x80\x04", &many]), "over 65536");
    assert_refused(&frame(0x83, &[b"\x05\0\0\0\0\x11", &[0; 17 * 8]]), "17, over 16");
    assert!(decode(&frame(4, &[b"\x05\0\0\0\x80\x80\x04", &many[2..]])).is_ok());
    // What the bound on the memory of a decoded message rests on.
    assert!(size_of::<Op<'_>>() <= 40 && size_of::<(&[u8], &[u8])>() <= 40);
}

#[test]
fn what_is_too_long_is_neither_encoded_nor_decoded() {
    let long = vec![b'x'; FRAME_BYTES_MAX + 1];
    let key = &long[..KEY_BYTES_MAX + 1];
    let text = std::str::from_utf8(&long).unwrap();
    let keyspace = 1;
    let requests = [
        Request::Hello { program: &text[..PROGRAM_BYTES_MAX + 1], features: 0, token: None },
        Request::Hello { program: "", features: 0, token: Some(&long[..TOKEN_BYTES_MAX + 1]) },
        Request::Read { keyspace, guess: Guess::None, key },
        Request::ReadMany { keyspace, wanted: vec![(Guess::None, b""); ITEMS_MAX + 1] },
        Request::Block { keyspace, key },
        Request::Open { keyspace: &long[..NAME_BYTES_MAX + 1] },
        Request::Get { keyspace, key, hint: None },
        Request::MultiGet { keyspace, keys: vec![key] },
        Request::MultiGet { keyspace, keys: vec![b""; ITEMS_MAX + 1] },
        Request::Batch { ops: vec![Op::Remove { keyspace, key: b"" }; ITEMS_MAX + 1] },
        Request::Batch { ops: vec![Op::Remove { keyspace, key }] },
        Request::Scan {
            keyspace,
            from: Bound::Unbounded,
            to: Bound::Included(key),
            limit: 1,
            reverse: false,
            is_atomic: false,
        },
        Request::Insert { keyspace, key: b"k", value: &long, hint: None },
        Request::Insert { keyspace, key: b"k", value: &long[1..], hint: None },
    ];
    let mut out = b"before".to_vec();
    for request in requests {
        assert!(matches!(request.encode(1, &mut out), Err(Error::InvalidArgument(_))));
        assert_eq!(out, b"before", "a refused message leaves nothing");
    }
    let replies = [
        Reply::Segments { keyspace, part: Part::Control, sizes: vec![0; SEGMENTS_MAX + 1] },
        Reply::Value(Some(&long)),
        Reply::Block { epoch: 0, low: b"", high: Some(key), image: b"" },
        Reply::Top { epoch: 0, blocks: vec![(b"", 0); ITEMS_MAX + 1], more: false },
        Reply::Values(vec![None; ITEMS_MAX + 1]),
        Reply::Pairs { pairs: vec![(key, b"")], more: false },
        Reply::Pairs { pairs: vec![(b"", b""); ITEMS_MAX + 1], more: false },
    ];
    for reply in replies {
        assert!(matches!(reply.encode(1, &mut out), Err(Error::InvalidArgument(_))));
        assert_eq!(out, b"before");
    }
    assert_refused(&frame(1, &[GREETING, &[65], &long[..65]]), "65, over 64");
    assert_refused(&frame(2, &[b"\x80\x02", &long[..256]]), "256, over 255");
    assert_refused(&frame(3, &[b"\0\0\0\0\x80\x80\x04", key, b"\0"]), "65536, over 65535");
    assert_refused(&frame(0x8a, &[b"\x01\0\x81\x08", &long[..1025]]), "1025, over 1024");
}

#[test]
fn the_longest_are_taken() {
    let long = vec![b'x'; FRAME_BYTES_MAX];
    let key = &long[..KEY_BYTES_MAX];
    // Kind and id, flag, and a length of four bytes.
    let value = &long[..FRAME_BYTES_MAX - 5 - 1 - 4];
    let bytes = encoded_reply(&Reply::Value(Some(value)));
    assert_eq!(bytes.len(), FRAME_BYTES_MAX + LENGTH_BYTES);
    assert_eq!(decode_reply(&bytes).unwrap(), Reply::Value(Some(value)));
    let request = Request::Get { keyspace: 1, key, hint: HINT };
    assert_eq!(decode(&encoded(&request)).unwrap(), request);
}

#[test]
fn the_text_of_a_failure_is_cut_between_characters() {
    let text = format!("{}é", "x".repeat(TEXT_BYTES_MAX - 1));
    let bytes = encoded_reply(&Reply::Failed { code: 1, text: &text });
    let cut = &text[..TEXT_BYTES_MAX - 1];
    assert_eq!(decode_reply(&bytes).unwrap(), Reply::Failed { code: 1, text: cut });
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![vec(any::<u8>(), 0..6), vec(any::<u8>(), 120..140)]
}

fn hint() -> impl Strategy<Value = Option<Hint>> {
    let hint = any::<(u32, u32)>();
    option::of(hint.prop_map(|(slot, incarnation)| Hint { slot, incarnation }))
}

/// A guess that is made of a number.
fn guess(number: u32) -> Guess {
    [Guess::None, Guess::Leaf(number), Guess::Block(number)][number as usize % 3]
}

/// The frame of a request of any kind that is made of the arguments.
fn requests() -> impl Strategy<Value = Vec<u8>> {
    let parts = (bytes(), bytes(), vec(bytes(), 0..5), hint());
    (parts, option::of(bytes()), any::<(u32, u32, u64, bool, [u64; 5])>(), 1u8..16, 0u32..64)
        .prop_map(|((key, value, keys, hint), other, numbers, kind, shift)| {
            let (keyspace, limit, epoch, reverse, gets) = numbers;
            let [one_read, hop, speculative, retry, call] = gets.map(|count| count >> shift);
            let key = &key[..];
            let insert = |k: &Vec<u8>| k.len().is_multiple_of(2);
            let op = |k| match insert(k) {
                true => Op::Insert { keyspace, key: k, value: &value },
                false => Op::Remove { keyspace, key: k },
            };
            encoded(&match kind {
                1 => Request::Hello {
                    program: ["", "a", "rhumb", "é"][limit as usize % 4],
                    features: epoch,
                    token: other.as_deref(),
                },
                2 => Request::Open { keyspace: key },
                3 => Request::Get { keyspace, key, hint },
                4 => Request::MultiGet { keyspace, keys: keys.iter().map(Vec::as_slice).collect() },
                5 => {
                    let to = other.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                    let (from, is_atomic) = (Bound::Included(key), epoch % 2 == 0);
                    Request::Scan { keyspace, from, to, limit, reverse, is_atomic }
                }
                6 => Request::Insert { keyspace, key, value: &value, hint },
                7 => Request::Remove { keyspace, key, hint },
                8 => {
                    let new = reverse.then_some(&value[..]);
                    Request::CompareAndSwap { keyspace, key, expected: other.as_deref(), new, hint }
                }
                9 => Request::Batch { ops: keys.iter().map(op).collect() },
                10 => Request::Renew {
                    epoch,
                    gets: vec![(
                        keyspace,
                        GetCounts::of([one_read, hop, speculative, retry, call, 1, 2]),
                    )],
                },
                11 => Request::Read { keyspace, guess: guess(limit), key },
                12 => Request::ReadMany {
                    keyspace,
                    wanted: keys.iter().map(|key| (guess(key.len() as u32), &key[..])).collect(),
                },
                13 => Request::Top { keyspace, from: key, limit },
                14 => Request::Block { keyspace, key },
                _ => Request::Goodbye,
            })
        })
}

fn answer(number: u32, value: Option<&[u8]>) -> Answer<'_> {
    let how = [How::Guessed, How::Asked, How::Routed][number as usize % 3];
    Answer { how, value }
}

/// The frame of a reply of any kind that is made of the arguments.
fn replies() -> impl Strategy<Value = Vec<u8>> {
    let values = vec(option::of(bytes()), 0..5);
    let pairs = vec((bytes(), bytes()), 0..5);
    (values, pairs, any::<(u32, u32, u64, u64, bool)>(), vec(any::<u64>(), 0..17), 0x81u8..0x90)
        .prop_map(|(values, pairs, (keyspace, small, large, seq, flag), segments, kind)| {
            let values: Vec<Option<&[u8]>> = values.iter().map(Option::as_deref).collect();
            encoded_reply(&match kind {
                0x81 => Reply::Hello { features: large },
                0x82 => {
                    let leaves = PartInfo { capacity_bytes: large, segments };
                    let control = PartInfo { capacity_bytes: seq, ..leaves.clone() };
                    Reply::Opened { keyspace, control, leaves, lease_ms: small }
                }
                0x83 => {
                    let part = if flag { Part::Leaves } else { Part::Control };
                    Reply::Segments { keyspace, part, sizes: segments }
                }
                0x84 => Reply::Value(values.first().copied().flatten()),
                0x85 => Reply::Values(values),
                0x86 => {
                    let pairs = pairs.iter().map(|(key, value)| (&key[..], &value[..])).collect();
                    Reply::Pairs { pairs, more: flag }
                }
                0x87 => Reply::Done { seq },
                0x88 => Reply::Swapped { swapped: flag, seq },
                0x89 => Reply::Renewed { epoch: large, seq },
                0x8a => {
                    Reply::Described { keyspace, leaf_bytes: small, room: keyspace, epoch: large }
                }
                0x8b => {
                    let value = values.first().copied().flatten();
                    Reply::Read { epoch: large, answer: answer(small, value) }
                }
                0x8c => {
                    let answers = values.iter().map(|value| answer(small, *value)).collect();
                    Reply::ReadMany { epoch: large, answers }
                }
                0x8d => {
                    let blocks = pairs.iter().map(|(low, _)| (&low[..], small)).collect();
                    Reply::Top { epoch: large, blocks, more: flag }
                }
                0x8e => {
                    let low = pairs.first().map_or(&[][..], |(low, _)| low);
                    let high = pairs.get(1).map(|(high, _)| &high[..]);
                    Reply::Block { epoch: large, low, high, image: low }
                }
                _ => {
                    Reply::Failed { code: small as u16, text: ["", "no", "é"][small as usize % 3] }
                }
            })
        })
}

/// Checks that what decodes, encodes to the same bytes; returns true if something did.
fn is_canonical(bytes: &[u8]) -> Result<bool, TestCaseError> {
    let Ok(frame) = Frame::parse(bytes) else { return Ok(false) };
    let (request, reply) = (Request::decode(&frame), Reply::decode(&frame));
    let mut again = Vec::new();
    match (request, reply) {
        (Ok(request), Err(_)) => request.encode(frame.id, &mut again).unwrap(),
        (Err(_), Ok(reply)) => reply.encode(frame.id, &mut again).unwrap(),
        (Err(_), Err(_)) => return Ok(false),
        both => return Err(TestCaseError::fail(format!("both directions: {both:?}"))),
    }
    prop_assert_eq!(&again, bytes);
    Ok(true)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn messages_are_read_back(request in requests(), reply in replies()) {
        prop_assert!(is_canonical(&request)?, "{:?}", decode(&request));
        prop_assert!(is_canonical(&reply)?, "{:?}", decode_reply(&reply));
    }

    #[test]
    fn mutated_messages_never_panic_and_are_canonical(
        bytes in prop_oneof![requests(), replies()],
        edits in vec(any::<(u16, u8)>(), 1..4),
        cut: u16,
    ) {
        let mut bytes = bytes;
        for (at, xor) in edits {
            // The head is left alone mostly, so that bodies are what is tested.
            let at = HEAD_BYTES - 5 + at as usize % (bytes.len() - HEAD_BYTES + 5);
            bytes[at] ^= xor;
        }
        is_canonical(&bytes)?;
        // Cut off, with a length that says so.
        bytes.truncate(HEAD_BYTES + cut as usize % (bytes.len() - HEAD_BYTES + 1));
        let length = (bytes.len() - LENGTH_BYTES) as u32;
        bytes[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
        is_canonical(&bytes)?;
    }

    #[test]
    fn random_bodies_never_panic_and_are_canonical(
        kind in prop_oneof![0u8..0x15, 0x80u8..0x96],
        body in vec(prop_oneof![0u8..4, any::<u8>()], 0..60),
    ) {
        is_canonical(&frame(kind, &[&body]))?;
        is_canonical(&body)?;
    }
}
