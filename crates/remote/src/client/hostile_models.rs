//! Clients that keep models, of hosts that break the rules: made-up regions and answers.

use std::{
    collections::{BTreeMap, VecDeque},
    os::fd::OwnedFd,
    thread,
};

use proptest::prelude::*;

use super::{Client, Keyspace};
use crate::{
    Host, Preset, ShareOptions, clock,
    error::{Error, Result},
    layout::control,
    message::{
        Frame, PartInfo, Reply, Request,
        format::{HEAD_BYTES, LENGTH_BYTES, reply as kind},
    },
    primitive::{AtomicU64, Ordering},
    region::{HostRegion, ReaderRegion},
    socket::{Listener, Stream, TcpPort},
};

/// Requests of one connection at most, before a client is taken to ask for ever.
const REQUESTS_MAX: u64 = 20_000;

/// The length of each part of a region.
const BYTES: u64 = 2 << 20;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a host that breaks the rules does.
#[derive(Clone, Debug)]
struct Damage {
    /// Words of the leaves that are changed: where, and to what.
    words: Vec<(prop::sample::Index, u64, usize)>,
    /// Answers to questions that are changed: which byte, and to what.
    bytes: Vec<(prop::sample::Index, u8)>,
    /// Words of the control part that are changed.
    control: Vec<(usize, u64)>,
}

fn damage() -> impl Strategy<Value = Damage> {
    let index = any::<prop::sample::Index>;
    let words = prop::collection::vec((index(), any::<u64>(), 0..3usize), 0..40);
    let bytes = prop::collection::vec((index(), any::<u8>()), 0..6);
    let control = prop::collection::vec((0..600usize, any::<u64>()), 0..6);
    (words, bytes, control).prop_map(|(words, bytes, control)| Damage { words, bytes, control })
}

/// A real host with some keys, and what it holds.
fn real(preset: Preset) -> (Host, tempfile::TempDir, Map) {
    let dir = tempfile::tempdir().unwrap();
    let options = ShareOptions::default().capacity_bytes(BYTES).entry_bytes(24).preset(preset);
    let host = Host::listen(dir.path().join("real")).listen_tcp(([127, 0, 0, 1], 0).into());
    let host = host.share("k", options).start().unwrap();
    let keyspace = Client::connect(host.path()).unwrap().keyspace("k").unwrap();
    let mut map = Map::new();
    for n in 0..400_u64 {
        let key = match n % 4 {
            0 => format!("key {n:04}").into_bytes(),
            _ => (n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_be_bytes().to_vec(),
        };
        let value = vec![n as u8; (n % 40) as usize];
        keyspace.insert(&key, &value).unwrap();
        map.insert(key, value);
    }
    (host, dir, map)
}

/// A host between a client and a real one: it passes requests on, has a copy of the region mapped
/// that is damaged, and damages answers.
fn relay(stream: &Stream, real: &Host, damage: &Damage) -> Result<()> {
    let host = Stream::connect(real.path())?;
    let (mut request, mut answer, mut copies) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        stream.receive(&mut request)?;
        let parsed = Frame::parse(&request)?;
        let id = parsed.id;
        let is_question = matches!(Request::decode(&parsed)?, Request::Consult { .. });
        host.send(&request, &[])?;
        loop {
            let mut fds = host.receive(&mut answer)?.fds.into();
            let parsed = Frame::parse(&answer)?;
            let is_answer = parsed.id == id;
            let mut sent = Vec::new();
            match Reply::decode(&parsed)? {
                Reply::Opened { keyspace, control, leaves, lease_ms } => {
                    let control = copy(&control, &mut fds)?;
                    damage.change_control(control.words());
                    let leaves = copy(&leaves, &mut fds)?;
                    damage.change_leaves(leaves.words());
                    let parts = [control, leaves];
                    let info = |copy: &HostRegion| PartInfo {
                        capacity_bytes: BYTES,
                        segments: copy.segments().iter().map(|segment| segment.bytes()).collect(),
                    };
                    let reply = Reply::Opened {
                        keyspace,
                        control: info(&parts[0]),
                        leaves: info(&parts[1]),
                        lease_ms: lease_ms.max(60_000),
                    };
                    reply.encode(id, &mut sent)?;
                    let segments = [parts[0].segments(), parts[1].segments()].concat();
                    let fds: Vec<_> = segments.iter().map(|segment| segment.fd()).collect();
                    stream.send(&sent, &fds)?;
                    copies.extend(parts);
                }
                Reply::Consulted(answer) if is_question => {
                    let mut answer = answer.to_vec();
                    for (at, byte) in &damage.bytes {
                        // An answer has a byte at least.
                        let at = at.index(answer.len());
                        answer[at] = *byte;
                    }
                    Reply::Consulted(&answer).encode(id, &mut sent)?;
                    stream.send(&sent, &[])?;
                }
                // What the real region grows by is not shown.
                _ if !is_answer => {}
                _ => stream.send(&answer, &[])?,
            }
            if is_answer {
                break;
            }
        }
    }
}

/// The same over TCP, where the client reads pieces of the region by messages.
fn relay_apart(stream: &Stream, real: &Host, damage: &Damage) -> Result<()> {
    let host = Stream::connect_tcp("127.0.0.1", real.tcp_addresses()[0].port())?;
    let (mut request, mut answer) = (Vec::new(), Vec::new());
    for _ in 0..REQUESTS_MAX {
        stream.receive(&mut request)?;
        host.send(&request, &[])?;
        host.receive(&mut answer)?;
        let is_damaged =
            matches!(answer[LENGTH_BYTES], kind::PIECES | kind::CONSULTED | kind::SHOWN);
        for (at, byte) in damage.bytes.iter().filter(|_| is_damaged) {
            let body = &mut answer[HEAD_BYTES..];
            let at = at.index(body.len());
            body[at] = *byte;
        }
        stream.send(&answer, &[])?;
    }
    panic!("a client asks for ever");
}

/// A copy of a part of a real region.
fn copy(info: &PartInfo, fds: &mut VecDeque<OwnedFd>) -> Result<HostRegion> {
    let real = ReaderRegion::new(info.capacity_bytes)?;
    for bytes in &info.segments {
        real.attach(fds.pop_front().unwrap(), *bytes)?;
    }
    let copy = HostRegion::new(BYTES)?;
    copy.grow(BYTES)?;
    let words = copy.words();
    for (to, from) in words.iter().zip(real.words()) {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    Ok(copy)
}

impl Damage {
    /// Changes all but the header, so that the client takes the region for one of its kind.
    fn change_control(&self, words: &[AtomicU64]) {
        for (at, value) in &self.control {
            words[8 + at].store(*value, Ordering::Relaxed);
        }
        control::set_heartbeat(words, clock::now_ms());
    }

    fn change_leaves(&self, words: &[AtomicU64]) {
        let used = words.iter().rposition(|word| word.load(Ordering::Relaxed) != 0).unwrap_or(0);
        for (at, value, kind) in &self.words {
            let word = &words[at.index(used + 1)];
            let old = word.load(Ordering::Relaxed);
            let damaged = [*value, old ^ 1 << (value % 64), old.wrapping_add(value % 9)];
            word.store(damaged[*kind], Ordering::Relaxed);
        }
    }
}

/// What a client may find of a host that breaks the rules: anything, but it comes to an end.
fn read_all(keyspace: &Keyspace, map: &Map) {
    let is_allowed = |error: &Error| {
        matches!(error, Error::Invalid(_) | Error::Closed | Error::Refused { .. } | Error::TimedOut)
    };
    for key in map.keys().step_by(11) {
        if let Err(error) = keyspace.get(key) {
            assert!(is_allowed(&error), "{error}");
        }
        if let Err(error) = keyspace.insert([&key[..], b"+"].concat(), b"new") {
            assert!(is_allowed(&error), "{error}");
        }
    }
    for range in [keyspace.iter(), keyspace.prefix("key")] {
        for pair in range.take(3_000) {
            if let Err(error) = pair {
                assert!(is_allowed(&error), "{error}");
            }
        }
    }
    let _ = keyspace.iter().rev().take(50).count();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn made_up_regions_and_answers_are_errors_or_take_time(damage in damage()) {
        for preset in [Preset::XStore, Preset::FineStore] {
            let (host, dir, map) = real(preset);
            let path = dir.path().join("between");
            let listener = Listener::bind(&path).unwrap();
            thread::scope(|scope| {
                // A client that gives a connection up may come again; it ends with the listener.
                scope.spawn(|| {
                    while let Ok((stream, _)) = listener.accept() {
                        let _ = relay(&stream, &host, &damage);
                    }
                });
                let keyspace = Client::connect(&path).unwrap().keyspace("k");
                if let Ok(keyspace) = &keyspace {
                    read_all(keyspace, &map);
                }
                drop(keyspace);
                let _ = listener.shutdown();
            });
        }
    }

    #[test]
    fn made_up_pieces_are_errors_or_take_time(damage in damage()) {
        for preset in [Preset::XStore, Preset::FineStore] {
            let (host, _dir, map) = real(preset);
            let port = TcpPort::bind(([127, 0, 0, 1], 0).into(), None).unwrap();
            thread::scope(|scope| {
                scope.spawn(|| {
                    while let Ok((stream, _)) = port.accept() {
                        let _ = relay_apart(&stream, &host, &damage);
                        let _ = stream.shutdown();
                    }
                });
                let keyspace = Client::connect(format!("tcp:{}", port.address()));
                let keyspace = keyspace.unwrap().keyspace("k");
                if let Ok(keyspace) = &keyspace {
                    read_all(keyspace, &map);
                }
                drop(keyspace);
                let _ = port.shutdown();
            });
        }
    }
}
