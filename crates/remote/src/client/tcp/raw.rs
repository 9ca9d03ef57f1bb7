//! Hosts over TCP that meet requests as no client sends them, and clients without manners.

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use super::{
    CacheBudget,
    tests::{host, host_with_groups, key, open, value},
};
use crate::{
    Error, Host, Preset, Served, ShareOptions,
    binned::{Address, Operation, Request as Question, Verb},
    message::{
        Answer, Extent, Frame, Guess, Hint, How, Op, Part, Reply, Request,
        format::{failure, feature},
    },
    route::directory::find_slot_in_copy,
    socket::Stream,
    two_stage::Lookup,
};

/// A connection that says what a test wants.
struct Raw {
    stream: Stream,
    frame: Vec<u8>,
}

impl Raw {
    fn connect(host: &Host) -> Self {
        let port = host.tcp_addresses()[0].port();
        let stream = Stream::connect_tcp("127.0.0.1", port).unwrap();
        let patience = Some(Duration::from_secs(30));
        stream.set_timeouts(patience, patience).unwrap();
        Self { stream, frame: Vec::new() }
    }

    fn ask(&mut self, request: &Request<'_>) -> Reply<'_> {
        let mut out = Vec::new();
        request.encode(1, &mut out).unwrap();
        self.stream.send(&out, &[]).unwrap();
        self.stream.receive(&mut self.frame).unwrap();
        Reply::decode(&Frame::parse(&self.frame).unwrap()).unwrap()
    }

    fn greeted(host: &Host) -> Self {
        let mut raw = Self::connect(host);
        let features = feature::NO_DESCRIPTORS;
        let hello = raw.ask(&Request::Hello { program: "raw", features, token: None });
        assert_eq!(hello, Reply::Hello { features: 0 });
        let opened = raw.ask(&Request::Open { keyspace: b"k" });
        assert!(matches!(opened, Reply::Described { keyspace: 0, .. }), "{opened:?}");
        raw
    }

    fn read(&mut self, guess: Guess, key: &[u8]) -> (How, Option<Vec<u8>>) {
        match self.ask(&Request::Read { keyspace: 0, guess, key }) {
            Reply::Read { answer: Answer { how, value }, .. } => (how, value.map(<[u8]>::to_vec)),
            other => panic!("{other:?}"),
        }
    }

    fn slot(&mut self, key: &[u8]) -> u32 {
        match self.ask(&Request::Block { keyspace: 0, key }) {
            Reply::Block { image, .. } => {
                let (words, _) = image.as_chunks::<8>();
                let image: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
                find_slot_in_copy(&image[..], key)
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_host_follows_a_guess_for_a_few_links_only() {
    let host = host();
    let keyspace = open(&host, CacheBudget::Full);
    let key = |n: u32| n.to_be_bytes();
    (0..20_000).for_each(|n| keyspace.insert(key(n), value(&key(n))).unwrap());
    let mut raw = Raw::greeted(&host);
    let found = Some(value(&key(10_000)));
    // Runs may still be built anew, so that a leaf moves between two questions.
    let is_guessed = (0..1_000).any(|_| {
        let near = raw.slot(&key(10_000));
        let (how, value) = raw.read(Guess::Leaf(near), &key(10_000));
        assert_eq!(value, found);
        how == How::Guessed
    });
    assert!(is_guessed);
    let far = raw.slot(&key(50));
    // The list of leaves leads there, a few hundred links away.
    assert_eq!(raw.read(Guess::Leaf(far), &key(10_000)), (How::Routed, found.clone()));
    for guess in [Guess::None, Guess::Leaf(u32::MAX), Guess::Block(u32::MAX)] {
        let (how, value) = raw.read(guess, &key(10_000));
        assert_eq!((how, value), (How::Routed, found.clone()), "{guess:?}");
        assert_eq!(raw.read(guess, b"absent"), (How::Routed, None), "{guess:?}");
    }
    // Read as a block, the header names some leaf, which may be the right one.
    assert_eq!(raw.read(Guess::Block(0), &key(10_000)).1, found);
    assert_eq!(raw.read(Guess::Block(0), b"absent").1, None);
    let slots = host.stats("k").unwrap().leaves as u32 + 64;
    for slot in 0..slots {
        assert_eq!(raw.read(Guess::Leaf(slot), &key(7)).1, Some(value(&key(7))), "{slot}");
    }
}

#[test]
fn the_top_comes_in_parts() {
    let host = host_with_groups();
    let mut raw = Raw::greeted(&host);
    let mut top = |from: &[u8], limit| match raw.ask(&Request::Top { keyspace: 0, from, limit }) {
        Reply::Top { blocks, more, epoch } => {
            assert!(epoch > 0);
            (blocks.iter().map(|(low, unit)| (low.to_vec(), *unit)).collect::<Vec<_>>(), more)
        }
        other => panic!("{other:?}"),
    };
    let (all, more) = top(b"", u32::MAX);
    assert!(!more && all.is_sorted() && all[0].0.is_empty());
    assert!(all.len() > 3, "{} blocks", all.len());
    assert_eq!(top(b"", 1), (vec![all[0].clone()], true));
    assert_eq!(top(&all[1].0, 9).0[0], all[1]);
    assert_eq!(top(&[0xff; 20], 9), (vec![all.last().unwrap().clone()], false));
    assert_eq!(top(b"", 0), (vec![], true));
}

/// What comes of bytes that a peer sends before it stalls: when the host closes the connection.
fn closes_after(host: &Host, bytes: &[u8]) -> Duration {
    let mut peer = TcpStream::connect(host.tcp_addresses()[0]).unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let began = Instant::now();
    let _ = peer.write_all(bytes);
    let mut rest = Vec::new();
    match peer.read_to_end(&mut rest) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("it stays open"),
        _ => began.elapsed(),
    }
}

#[test]
fn clients_without_manners_are_closed_and_do_no_harm() {
    let host = host();
    let keyspace = open(&host, CacheBudget::Full);
    keyspace.insert("a", "1").unwrap();
    let mut hello = Vec::new();
    let greeting = Request::Hello { program: "", features: feature::NO_DESCRIPTORS, token: None };
    greeting.encode(1, &mut hello).unwrap();
    let mut plain = Vec::new();
    Request::Hello { program: "", features: 0, token: None }.encode(1, &mut plain).unwrap();
    let mut get = Vec::new();
    Request::Get { keyspace: 0, key: b"a", hint: None }.encode(1, &mut get).unwrap();
    let soon = Duration::from_millis(1_900);
    for bytes in [
        // Garbage, lengths that no frame has, a frame that no greeting has, others first.
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0; 16],
        &[0xff; 16],
        &[0, 0, 1, 0, 1],
        &get,
        &[&hello[..], &hello].concat(),
        &[&hello[..], &[0xff; 16]].concat(),
        &[&hello[..], &[5, 0, 0, 0, 99, 1, 0, 0, 0]].concat(),
        &plain,
    ] {
        let after = closes_after(&host, bytes);
        assert!(after < soon, "{bytes:?} after {after:?}");
    }
    // Halves of frames, and nothing at all.
    for bytes in [&hello[..hello.len() / 2], &[], &[&hello[..], &get[..7]].concat()] {
        let after = closes_after(&host, bytes);
        assert!(after >= soon, "{bytes:?} after {after:?}");
    }
    // A byte now and then is no frame either.
    let mut slow = TcpStream::connect(host.tcp_addresses()[0]).unwrap();
    let began = Instant::now();
    while slow.write_all(&[5]).is_ok() && began.elapsed() < Duration::from_secs(20) {
        slow.write_all(&hello[..0]).unwrap();
        thread::sleep(Duration::from_millis(300));
    }
    assert!(began.elapsed() < Duration::from_secs(20), "a slow client is kept");
    // One that has greeted may be silent.
    thread::sleep(Duration::from_millis(2_500));
    let trips = keyspace.round_trips();
    assert_eq!(keyspace.get("a").unwrap().unwrap(), b"1");
    assert!(keyspace.round_trips() - trips <= 2);
    let until = Instant::now() + Duration::from_secs(10);
    while host.sessions() > 1 {
        assert!(Instant::now() < until, "{} sessions are left", host.sessions());
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn requests_that_come_together_are_answered_in_order() {
    let host = host();
    let keyspace = open(&host, CacheBudget::Full);
    (0..300).for_each(|n| keyspace.insert(key(n), value(&key(n))).unwrap());
    let mut raw = Raw::greeted(&host);
    let mut out = Vec::new();
    for n in 0..300u64 {
        let key = key(n);
        let request = Request::Read { keyspace: 0, guess: Guess::None, key: &key };
        request.encode(n as u32 + 10, &mut out).unwrap();
    }
    Request::Goodbye.encode(1_000, &mut out).unwrap();
    raw.stream.send_frames(&out, &[]).unwrap();
    for n in 0..300u64 {
        raw.stream.receive(&mut raw.frame).unwrap();
        let frame = Frame::parse(&raw.frame).unwrap();
        assert_eq!(frame.id, n as u32 + 10);
        let expected = value(&key(n));
        let reply = Reply::decode(&frame).unwrap();
        let answer = Answer { how: How::Routed, value: Some(&expected) };
        assert!(matches!(reply, Reply::Read { answer: found, .. } if found == answer), "{reply:?}");
    }
    assert!(matches!(raw.stream.receive(&mut raw.frame), Err(Error::Closed)));
}

#[test]
fn strangers_keep_out_no_client_of_the_machine() {
    let dir = tempfile::tempdir().unwrap();
    let builder = Host::listen(dir.path().join("s")).listen_tcp("127.0.0.1:0".parse().unwrap());
    let host = builder
        .sessions_max(40)
        .sessions_per_address(40)
        .share("k", crate::ShareOptions::default())
        .start()
        .unwrap();
    let connect = || TcpStream::connect(host.tcp_addresses()[0]).unwrap();
    let strangers: Vec<TcpStream> = (0..60).map(|_| connect()).collect();
    let mut last = &strangers[59];
    // One of those beyond the limit is told so if it greets, and closed.
    last.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert!(matches!(last.read(&mut [0]), Ok(0) | Err(_)));
    assert!(host.sessions() <= 30, "{} sessions", host.sessions());
    let keyspace = crate::Client::connect(host.path()).unwrap().keyspace("k").unwrap();
    keyspace.insert("a", "1").unwrap();
}

/// Pieces are read of a keyspace whose clients keep models, within its region and not without end.
#[test]
fn pieces_are_those_of_the_region() {
    let dir = tempfile::tempdir().unwrap();
    let options = ShareOptions::default().capacity_bytes(4 << 20);
    let host = Host::listen(dir.path().join("socket")).listen_tcp(([127, 0, 0, 1], 0).into());
    let host = host.share("runs", options).share("k", options.preset(Preset::FineStore));
    let host = host.start().unwrap();
    let mut raw = Raw::connect(&host);
    let features = feature::NO_DESCRIPTORS;
    raw.ask(&Request::Hello { program: "raw", features, token: None });
    let Reply::Shown { keyspace: 0, header } = raw.ask(&Request::Open { keyspace: b"k" }) else {
        panic!("a keyspace that is not shown")
    };
    let extent = |at, len, guard| Extent { part: Part::Control, at, len, guard };
    let far = u64::MAX - 7;
    let extents = vec![
        extent(0, 32, 32),
        extent(4, 8, 32),
        extent(8, 7, 32),
        extent(far, 8, 32),
        extent(8, 8, far),
        Extent { part: Part::Leaves, ..extent(1 << 40, 8, 0) },
    ];
    match raw.ask(&Request::Pieces { keyspace: 0, extents }) {
        Reply::Pieces { guards, bytes } => {
            assert_eq!(guards, [Some(0), None, None, None, None, None]);
            assert!(
                bytes
                    .chunks(8)
                    .map(|word| word.to_vec())
                    .eq(header.map(|w| w.to_le_bytes().to_vec()))
            );
        }
        other => panic!("{other:?}"),
    }
    let many = vec![extent(0, 1 << 20, 32); 5];
    let refused = raw.ask(&Request::Pieces { keyspace: 0, extents: many });
    assert!(matches!(refused, Reply::Failed { code: failure::TOO_LARGE, .. }), "{refused:?}");
    assert!(matches!(raw.ask(&Request::Open { keyspace: b"runs" }), Reply::Described { .. }));
    let refused = raw.ask(&Request::Pieces { keyspace: 1, extents: vec![extent(0, 8, 32)] });
    assert!(matches!(refused, Reply::Failed { code: failure::REFUSED, .. }), "{refused:?}");
}

/// All that reads or writes a key that the host does not serve is answered by Moved, and does
/// nothing; what is said of keys that are served is answered.
#[test]
fn every_request_of_a_key_that_is_not_served_is_answered_by_moved() {
    for preset in Preset::ALL {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::listen(dir.path().join("socket")).listen_tcp(([127, 0, 0, 1], 0).into());
        let options = ShareOptions::default().capacity_bytes(4 << 20).preset(preset);
        let host = host.share("k", options).start().unwrap();
        let keyspace = crate::Client::connect(host.path()).unwrap().keyspace("k").unwrap();
        for key in ["a", "n"] {
            keyspace.insert(key, "1").unwrap();
        }
        // Keys up to z are read, and those before m written.
        let served = Served::nothing().range("", Some(b"z")).read_only("m", None);
        host.serve("k", served).unwrap();
        let mut raw = Raw::connect(&host);
        let features = feature::NO_DESCRIPTORS;
        raw.ask(&Request::Hello { program: "raw", features, token: None });
        raw.ask(&Request::Open { keyspace: b"k" });
        for (key, reads, writes) in [(b"a", true, true), (b"n", true, false), (b"z", false, false)]
        {
            for (number, (question, is_write)) in requests(preset, key).iter().enumerate() {
                let reply = match question {
                    Asked::Plain(request) => raw.ask(request),
                    Asked::Question(question) => {
                        raw.ask(&Request::Consult { keyspace: 0, question })
                    }
                };
                let is_served = if *is_write { writes } else { reads };
                let is_moved = matches!(reply, Reply::Moved { epoch: 0 });
                let is_failed = matches!(reply, Reply::Failed { .. });
                assert!(!is_failed, "{preset:?} {key:?} {number}: {reply:?}");
                assert_eq!(is_moved, !is_served, "{preset:?} {key:?} {number}: {reply:?}");
            }
        }
        host.serve("k", Served::nothing().range("", None)).unwrap();
        assert_eq!(keyspace.get("n").unwrap().unwrap(), b"1", "{preset:?}");
        assert_eq!(keyspace.get("z").unwrap(), None, "{preset:?}");
    }
}

/// A request of a test.
enum Asked<'a> {
    Plain(Request<'a>),
    Question(Vec<u8>),
}

/// All requests of a key that clients of a keyspace send, each with true if it is a write.
fn requests(preset: Preset, key: &[u8]) -> Vec<(Asked<'_>, bool)> {
    let (keyspace, value, hint) = (0, &b"2"[..], Some(Hint { slot: 0, incarnation: 0 }));
    let one = (std::ops::Bound::Included(key), std::ops::Bound::Included(key));
    let scan = |reverse, is_atomic| {
        let (from, to) = one;
        Request::Scan { keyspace, from, to, limit: 9, reverse, is_atomic }
    };
    let swap =
        |expected| Request::CompareAndSwap { keyspace, key, expected, new: Some(value), hint };
    let reads = [
        Request::Get { keyspace, key, hint: None },
        Request::MultiGet { keyspace, keys: vec![b"a", key] },
        Request::Read { keyspace, guess: Guess::Leaf(0), key },
        Request::ReadMany { keyspace, wanted: vec![(Guess::None, b"a"), (Guess::None, key)] },
        scan(false, false),
        scan(true, true),
    ];
    let writes = [
        Request::Remove { keyspace, key, hint: None },
        Request::Remove { keyspace, key, hint },
        Request::Insert { keyspace, key, value, hint: None },
        Request::Insert { keyspace, key, value, hint },
        swap(Some(value)),
        Request::Batch { ops: vec![Op::Insert { keyspace, key, value }] },
        Request::Batch { ops: vec![Op::Remove { keyspace, key }] },
        swap(None),
    ];
    let mut all: Vec<_> = reads.into_iter().map(|request| (Asked::Plain(request), false)).collect();
    all.extend(writes.into_iter().map(|request| (Asked::Plain(request), true)));
    let mut ask = |is_write, encode: &dyn Fn(&mut Vec<u8>)| {
        let mut question = Vec::new();
        encode(&mut question);
        all.push((Asked::Question(question), is_write));
    };
    if preset == Preset::XStore {
        ask(false, &|out| Lookup { epoch: 0, wants_model: true, key }.encode(out));
    }
    if preset == Preset::FineStore {
        let verbs = [Verb::Search, Verb::Remove, Verb::Insert, Verb::Update, Verb::Put];
        for verb in verbs {
            let operation = Operation::new(verb, Address::default(), key, b"3");
            ask(verb != Verb::Search, &|out| Question::Operate(operation.clone()).encode(out));
        }
        let mut range = Operation::new(Verb::Range, Address::default(), key, b"");
        (range.end, range.limit) = (Some([key, &[0]].concat().into()), 9);
        ask(false, &|out| Question::Operate(range.clone()).encode(out));
    }
    all
}
