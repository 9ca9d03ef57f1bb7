//! Keyspaces whose clients keep models: what they read by themselves of ranges that leave.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize},
    thread,
    time::Instant,
};

use super::*;
use crate::{
    message::{Frame, Reply, Request},
    socket::{Stream, TcpPort},
};

/// Keys of a test: some arrays of them, and some hundred leaves.
const KEYS: u64 = 3_000;

/// The first key that leaves.
const BORDER: u64 = KEYS / 2;

fn key(n: u64) -> [u8; 8] {
    n.wrapping_mul(0x0001_0000_0000_0001).to_be_bytes()
}

fn value(n: u64) -> Option<Vec<u8>> {
    Some((!n).to_be_bytes().to_vec())
}

/// Kinds whose clients keep models.
fn modelled() -> impl Iterator<Item = Kind> {
    kinds().filter(|kind| kind.preset != Preset::Rhumb)
}

/// A host that serves all keys, and was told nothing else; and its directory.
fn whole(kind: Kind) -> (Host, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let builder = Host::listen(dir.path().join("s")).listen_tcp(([127, 0, 0, 1], 0).into());
    let (builder, store) = kind.share(builder);
    let host = builder.start().unwrap();
    store.into_iter().for_each(|store| store.keep_loaded(&host));
    let keyspace = open(host.path().to_str().unwrap());
    // In no order: models of keys that ascend are trained before there is much to learn.
    for n in (0..KEYS).map(|n| n * 1_009 % KEYS) {
        keyspace.insert(key(n), value(n).unwrap()).unwrap();
    }
    // What is trained while a test reads costs it other messages than it has counted.
    let until = Instant::now() + Duration::from_secs(20);
    while host.stats(NAME).unwrap().models.waiting > 0 && Instant::now() < until {
        thread::sleep(Duration::from_millis(10));
    }
    (host, dir)
}

fn open(address: &str) -> Keyspace {
    Client::connect(address).unwrap().keyspace(NAME).unwrap()
}

fn addresses(host: &Host) -> [String; 2] {
    [host.path().to_str().unwrap().to_owned(), format!("tcp:{}", host.tcp_addresses()[0])]
}

/// The keys that a client reads by itself, once models are trained: more than half of them.
fn read_alone(keyspace: &Keyspace) -> Vec<u64> {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let is_alone = |n: &u64| {
            let calls = keyspace.calls();
            assert_eq!(keyspace.get(key(*n)).unwrap(), value(*n));
            keyspace.calls() == calls
        };
        let alone: Vec<u64> = (0..KEYS).filter(is_alone).collect();
        if alone.len() as u64 > KEYS * 3 / 4 {
            return alone;
        }
        assert!(Instant::now() < until, "only {} keys are read without a call", alone.len());
        thread::sleep(Duration::from_millis(10));
    }
}

/// Reads keys that are there; returns the calls, and the messages without those of a session.
fn costs_of(keyspace: &Keyspace, keys: &[u64]) -> [u64; 2] {
    let now = || {
        let counts = keyspace.counts();
        [counts.calls, keyspace.round_trips() - counts.directory_reads]
    };
    let before = now();
    for n in keys {
        assert_eq!(keyspace.get(key(*n)).unwrap(), value(*n));
    }
    let after = now();
    [after[0] - before[0], after[1] - before[1]]
}

/// Ranges that are known cost no more than all keys do, but for what is trained meanwhile.
#[track_caller]
fn assert_no_dearer(now: [u64; 2], before: [u64; 2]) {
    assert!((0..2).all(|of| now[of] <= before[of] + KEYS / 30), "{now:?} after {before:?}");
}

#[test]
fn models_tell_nothing_of_keys_that_have_left() {
    for kind in modelled() {
        for way in 0..2 {
            tells_nothing_of_keys_that_have_left(kind, way);
        }
    }
}

fn tells_nothing_of_keys_that_have_left(kind: Kind, way: usize) {
    let (host, _dir) = whole(kind);
    let [_, apart] = addresses(&host);
    let keyspace = open(&addresses(&host)[way]);
    let alone = read_alone(&keyspace);
    let (stay, leave): (Vec<u64>, Vec<u64>) = alone.iter().partition(|n| **n < BORDER);
    assert!(stay.len() > 500 && leave.len() > 500, "{kind:?}");
    let before = costs_of(&keyspace, &stay);
    let served = Served::nothing().range("", Some(&key(BORDER)));
    host.serve(NAME, served.clone()).unwrap();
    let entries = host.stats(NAME).unwrap().entries;
    for n in &leave {
        assert_moved(keyspace.get(key(*n)));
    }
    assert_moved(open(&apart).get(key(leave[0])));
    assert_no_dearer(costs_of(&keyspace, &stay), before);
    let scanned: Vec<_> = keyspace.iter().collect();
    assert_moved(scanned.last().unwrap().clone());
    let scanned = scanned.iter().filter_map(|pair| pair.as_ref().ok());
    let is_right = |(n, (found, of)): (u64, &(Vec<u8>, Vec<u8>))| {
        found[..] == key(n) && Some(of) == value(n).as_ref()
    };
    assert_eq!(scanned.clone().count() as u64, BORDER, "{kind:?}");
    assert!((0..).zip(scanned).all(is_right), "{kind:?}");
    for n in &leave {
        assert_moved(keyspace.insert(key(*n), "new"));
        assert_moved(keyspace.remove(key(*n)));
    }
    assert_eq!(host.stats(NAME).unwrap().entries, entries, "{kind:?}");
    keyspace.insert(key(stay[0]), value(stay[0]).unwrap()).unwrap();
    // Once they are gone nobody calls them absent, until they are this host's again.
    assert_eq!(host.remove_unserved(NAME).unwrap(), KEYS - BORDER);
    for n in &leave {
        assert_moved(keyspace.get(key(*n)));
    }
    host.serve(NAME, Served::nothing().range("", None)).unwrap();
    assert!(leave.iter().all(|n| keyspace.get(key(*n)).unwrap().is_none()), "{kind:?}");
    assert_no_dearer(costs_of(&keyspace, &stay), before);
}

/// Passes what a client says on to a host. Pieces are read one by one, and `between` is called
/// after the first of each message.
fn relay(stream: &Stream, host: &Host, between: &impl Fn()) -> Result<()> {
    let real = Stream::connect_tcp("127.0.0.1", host.tcp_addresses()[0].port())?;
    let (mut request, mut answer) = (Vec::new(), Vec::new());
    loop {
        stream.receive(&mut request)?;
        let frame = Frame::parse(&request)?;
        let Request::Pieces { keyspace, extents } = Request::decode(&frame)? else {
            real.send(&request, &[])?;
            real.receive(&mut answer)?;
            stream.send(&answer, &[])?;
            continue;
        };
        let (mut guards, mut pieces) = (Vec::new(), Vec::new());
        for (index, extent) in extents.into_iter().enumerate() {
            let mut out = Vec::new();
            Request::Pieces { keyspace, extents: vec![extent] }.encode(frame.id, &mut out)?;
            real.send(&out, &[])?;
            real.receive(&mut answer)?;
            match Reply::decode(&Frame::parse(&answer)?)? {
                Reply::Pieces { guards: one, bytes } => {
                    guards.extend(one);
                    pieces.extend_from_slice(bytes);
                }
                other => panic!("{other:?}"),
            }
            if index == 0 {
                between();
            }
        }
        let mut out = Vec::new();
        Reply::Pieces { guards, bytes: &pieces }.encode(frame.id, &mut out)?;
        stream.send(&out, &[])?;
    }
}

/// A port that is closed when this is dropped.
struct Closes<'p>(&'p TcpPort);

impl Drop for Closes<'_> {
    fn drop(&mut self) {
        // Where it cannot be woken, the next connection wakes it.
        let _ = self.0.shutdown();
    }
}

#[test]
fn a_range_that_leaves_amid_a_message_is_not_read() {
    modelled().for_each(reads_no_range_that_leaves);
}

fn reads_no_range_that_leaves(kind: Kind) {
    let (host, _dir) = whole(kind);
    // How many messages with pieces there are until the range leaves; none are counted before.
    let (is_counted, messages) = (AtomicBool::new(false), AtomicUsize::new(0));
    let last = AtomicUsize::new(usize::MAX);
    let between = || {
        if is_counted.load(Ordering::SeqCst) {
            let before = messages.fetch_add(1, Ordering::SeqCst);
            if before + 1 == last.load(Ordering::SeqCst) {
                host.serve(NAME, Served::nothing().range("", Some(&key(BORDER)))).unwrap();
            }
        }
    };
    let port = TcpPort::bind(([127, 0, 0, 1], 0).into(), None).unwrap();
    // The relay ends with what follows, also if that fails.
    let closes = Closes(&port);
    thread::scope(|scope| {
        let (port, host, between, _closes) = (&port, &host, &between, closes);
        scope.spawn(move || {
            while let Ok((stream, _)) = port.accept() {
                let _ = relay(&stream, host, between);
                let _ = stream.shutdown();
            }
        });
        let keyspace = open(&format!("tcp:{}", port.address()));
        let alone = read_alone(&keyspace);
        let leaves = *alone.last().unwrap();
        assert!(leaves >= BORDER);
        is_counted.store(true, Ordering::SeqCst);
        assert_eq!(keyspace.get(key(leaves)).unwrap(), value(leaves));
        // The same again, and the range leaves amid the last of these messages.
        last.store(messages.swap(0, Ordering::SeqCst), Ordering::SeqCst);
        assert!(last.load(Ordering::SeqCst) > 0, "{kind:?}: no piece was read");
        assert_moved(keyspace.get(key(leaves)));
    });
}
