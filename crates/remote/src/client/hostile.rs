//! Clients of hosts that break the rules.

use std::{ops::Bound, path::Path, thread};

use super::{Client, Keyspace};
use crate::{
    error::{Error, Result},
    layout::{Geometry, control},
    message::{Frame, Part, PartInfo, Reply, Request},
    region::HostRegion,
    socket::Listener,
};

/// The length of each part of the region.
const BYTES: u64 = 2 << 20;

/// A host whose region has no directory, so that every read is a call, and which answers scans and
/// gets as it is told. Ends well once nobody can connect.
fn host(listener: &Listener, answer: impl Fn(u32, &Request<'_>) -> Vec<Vec<u8>>) -> Result<()> {
    let part = || {
        let region = HostRegion::new(BYTES).unwrap();
        region.grow(BYTES).unwrap();
        region
    };
    let (control, leaves) = (part(), part());
    control::write_header(control.words(), Geometry::new(1024, 24).unwrap());
    let Ok((stream, _)) = listener.accept() else { return Ok(()) };
    let mut frame = Vec::new();
    loop {
        stream.receive(&mut frame)?;
        let parsed = Frame::parse(&frame)?;
        let request = Request::decode(&parsed)?;
        let info = || PartInfo { capacity_bytes: BYTES, segments: vec![BYTES] };
        let mut out = Vec::new();
        match request {
            Request::Hello { .. } => Reply::Hello { features: 0 }.encode(parsed.id, &mut out)?,
            Request::Open { .. } => {
                let (control_part, leaf_part) = (info(), info());
                let opened = Reply::Opened {
                    keyspace: 0,
                    control: control_part,
                    leaves: leaf_part,
                    lease_ms: 1_000,
                };
                opened.encode(parsed.id, &mut out)?;
                let segments = [control.segments(), leaves.segments()].concat();
                let fds: Vec<_> = segments.iter().map(|segment| segment.fd()).collect();
                stream.send(&out, &fds)?;
                continue;
            }
            _ => {
                for reply in answer(parsed.id, &request) {
                    stream.send(&reply, &[])?;
                }
                continue;
            }
        }
        stream.send(&out, &[])?;
    }
}

fn encoded(reply: &Reply<'_>, id: u32) -> Vec<u8> {
    let mut out = Vec::new();
    reply.encode(id, &mut out).unwrap();
    out
}

/// What a client sees of a host that gives these answers.
fn with_host<T>(
    answer: impl Fn(u32, &Request<'_>) -> Vec<Vec<u8>> + Sync,
    act: impl FnOnce(Keyspace) -> T,
) -> T {
    let dir = tempfile::tempdir().unwrap();
    let path: &Path = &dir.path().join("rhumb.sock");
    let listener = Listener::bind(path).unwrap();
    thread::scope(|scope| {
        // It ends with the client's connection; a client that lost one may come again.
        scope.spawn(|| while host(&listener, &answer).is_err() {});
        let seen = act(Client::connect(path).unwrap().keyspace("k").unwrap());
        let _ = listener.shutdown();
        seen
    })
}

/// Scans whose answers are these pairs.
fn scan(pairs: &[(&[u8], &[u8])], more: bool, reverse: bool) -> Result<Vec<Vec<u8>>> {
    let answer =
        |id, _: &Request<'_>| vec![encoded(&Reply::Pairs { pairs: pairs.to_vec(), more }, id)];
    with_host(answer, |keyspace| {
        let range = keyspace.range::<&str>((Bound::Included("b"), Bound::Excluded("m")));
        // One that does not end is cut off.
        let keys = |pair: Result<(Vec<u8>, Vec<u8>)>| pair.map(|(key, _)| key);
        if reverse {
            range.rev().take(9).map(keys).collect()
        } else {
            range.take(9).map(keys).collect()
        }
    })
}

#[test]
fn scans_that_lead_nowhere_are_refused() {
    let pair = |key: &'static str| (key.as_bytes(), &b"1"[..]);
    assert_eq!(scan(&[pair("b"), pair("c")], false, false).unwrap(), [b"b", b"c"]);
    assert_eq!(scan(&[pair("c"), pair("b")], false, true).unwrap(), [b"c", b"b"]);
    /// The pairs, if there is more, and if the scan goes down.
    type Scan<'a> = (&'a [(&'a [u8], &'a [u8])], bool, bool);
    let refused: [Scan<'_>; 6] = [
        (&[], true, false),
        (&[pair("b"), pair("b")], false, false),
        (&[pair("c"), pair("b")], false, false),
        (&[pair("b"), pair("c")], false, true),
        (&[pair("a")], false, false),
        (&[pair("m")], false, false),
    ];
    for (pairs, more, reverse) in refused {
        let seen = scan(pairs, more, reverse);
        assert!(matches!(seen, Err(Error::Invalid(_))), "{pairs:?} {more} {reverse} {seen:?}");
    }
    // The same part again and again: the second is out of bounds.
    assert!(matches!(scan(&[pair("b"), pair("c")], true, false), Err(Error::Invalid(_))));
}

#[test]
fn answers_to_other_questions_are_refused() {
    type Answer = fn(u32) -> Vec<Vec<u8>>;
    let answers: [Answer; 5] = [
        |id| vec![encoded(&Reply::Done { seq: 1 }, id)],
        |id| vec![encoded(&Reply::Value(None), id + 1)],
        |_| vec![encoded(&Reply::Segments { keyspace: 0, part: Part::Leaves, sizes: vec![] }, 0)],
        |_| {
            vec![encoded(
                &Reply::Segments { keyspace: 0, part: Part::Leaves, sizes: vec![BYTES] },
                0,
            )]
        },
        |_| {
            vec![encoded(
                &Reply::Segments { keyspace: 7, part: Part::Leaves, sizes: vec![BYTES] },
                0,
            )]
        },
    ];
    for (index, answer) in answers.into_iter().enumerate() {
        let seen = with_host(|id, _: &Request<'_>| answer(id), |keyspace| keyspace.get("a"));
        assert!(matches!(seen, Err(Error::Invalid(_))), "{index}: {seen:?}");
    }
}
