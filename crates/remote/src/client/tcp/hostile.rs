//! Hosts over TCP that break the rules.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use proptest::prelude::*;

use super::CacheBudget;
use crate::{
    Client, Keyspace,
    error::{Error, Result},
    message::{Answer, Frame, How, Reply, Request, format::LENGTH_BYTES},
    socket::{Stream, TcpPort},
};

/// Requests that are answered at most, before a client is taken to ask for ever.
const REQUESTS_MAX: u64 = 2_000;

fn encoded(reply: &Reply<'_>, id: u32) -> Vec<u8> {
    let mut out = Vec::new();
    reply.encode(id, &mut out).unwrap();
    out
}

/// Answers one client: greetings and opens as it should, and other requests as it is told.
fn serve(stream: &Stream, answer: &impl Fn(u32, &Request<'_>) -> Vec<u8>) -> Result<()> {
    let mut frame = Vec::new();
    for _ in 0..REQUESTS_MAX {
        stream.receive(&mut frame)?;
        let parsed = Frame::parse(&frame)?;
        let out = match Request::decode(&parsed)? {
            Request::Hello { .. } => encoded(&Reply::Hello { features: 0 }, parsed.id),
            Request::Open { .. } => {
                let opened = Reply::Described { keyspace: 0, leaf_bytes: 1024, room: 24, epoch: 1 };
                encoded(&opened, parsed.id)
            }
            request => answer(parsed.id, &request),
        };
        stream.send_frames(&out, &[])?;
    }
    panic!("a client asks for ever");
}

/// What a client sees of a host that gives these answers.
fn with_host<T>(
    budget: CacheBudget,
    answer: impl Fn(u32, &Request<'_>) -> Vec<u8> + Sync,
    act: impl FnOnce(Keyspace) -> T,
) -> T {
    let port = TcpPort::bind("127.0.0.1:0".parse().unwrap(), None).unwrap();
    thread::scope(|scope| {
        let answer = &answer;
        scope.spawn(|| {
            // A client that lost a connection may come again.
            while let Ok((stream, _)) = port.accept() {
                let _ = serve(&stream, answer);
                let _ = stream.shutdown();
            }
        });
        let client = Client::builder(format!("tcp:{}", port.address())).cache(budget);
        let seen = act(client.connect().unwrap().keyspace("k").unwrap());
        let _ = port.shutdown();
        seen
    })
}

fn read(how: How, epoch: u64, value: Option<&[u8]>) -> Reply<'_> {
    Reply::Read { epoch, answer: Answer { how, value } }
}

#[test]
fn answers_to_other_questions_are_refused() {
    type Wrong = fn(u32) -> Vec<u8>;
    let wrong: [Wrong; 8] = [
        |id| encoded(&Reply::Done { seq: 1 }, id),
        |id| encoded(&Reply::Value(None), id),
        |id| encoded(&read(How::Guessed, 1, None), id + 1),
        |_| encoded(&read(How::Guessed, 1, None), 0),
        |id| encoded(&Reply::ReadMany { epoch: 1, answers: vec![] }, id),
        |_| vec![0xff; 40],
        |id| [&[6, 0, 0, 0, 0x91][..], &id.to_le_bytes(), b"\x07"].concat(),
        // An answer, and another that nobody asked for: the next question gets it.
        |id| {
            let right = encoded(&read(How::Guessed, 1, Some(b"1")), id);
            [right.clone(), right].concat()
        },
    ];
    for (index, wrong) in wrong.into_iter().enumerate() {
        let seen = with_host(
            CacheBudget::Full,
            |id, _| wrong(id),
            |keyspace| {
                let first = keyspace.get("a");
                if index == 7 {
                    first.and_then(|_| keyspace.multi_get(&["a", "b"]).map(|_| None))
                } else {
                    first
                }
            },
        );
        assert!(matches!(seen, Err(Error::Invalid(_))), "{index}: {seen:?}");
    }
}

#[test]
fn all_threads_hear_of_a_broken_connection() {
    let requests = AtomicU64::new(0);
    let answer = |id, _: &Request<'_>| {
        let is_late = requests.fetch_add(1, Ordering::Relaxed) >= 20;
        encoded(&read(How::Guessed, 1, Some(b"1")), if is_late { id ^ 1 } else { id })
    };
    with_host(CacheBudget::Full, answer, |keyspace| {
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let mut gets = (0..10_000).map(|_| keyspace.get("a"));
                    assert!(gets.any(|found| found.is_err()), "a wrong answer was taken");
                });
            }
        });
    });
}

#[test]
fn a_host_that_always_says_that_guesses_are_wrong_is_asked_twice_a_read() {
    for budget in [CacheBudget::Full, CacheBudget::Bytes(300), CacheBudget::Top] {
        let requests = AtomicU64::new(0);
        let answer = |id, request: &Request<'_>| {
            requests.fetch_add(1, Ordering::Relaxed);
            let image = [7; 96];
            encoded(
                &match request {
                    Request::Read { .. } => read(How::Routed, u64::MAX, Some(b"1")),
                    Request::Block { .. } => {
                        Reply::Block { epoch: 0, low: b"", high: None, image: &image }
                    }
                    // The same part for ever, or one that goes on and on.
                    Request::Top { from, .. } => {
                        Reply::Top { epoch: 0, blocks: vec![(from, 7), (b"b", 9)], more: true }
                    }
                    _ => Reply::Done { seq: 1 },
                },
                id,
            )
        };
        with_host(budget, answer, |keyspace| {
            for _ in 0..100 {
                assert_eq!(keyspace.get("a").unwrap().unwrap(), b"1");
            }
            let counts = keyspace.counts();
            assert!(counts.round_trips <= 202 && counts.cache_bytes < 1_000, "{counts:?}");
        });
        assert!(requests.load(Ordering::Relaxed) <= 202, "{budget:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn made_up_answers_never_panic_and_never_hold_a_client(
        images in prop::collection::vec(prop::collection::vec(
            prop_oneof![Just(0u8), Just(0xff), Just(1), any::<u8>()], 0..400), 1..6),
        lows in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..3), 6),
        flips in prop::collection::vec((any::<u16>(), any::<u8>(), 0u8..8), 40),
        budget in prop::sample::select(vec![
            CacheBudget::Full, CacheBudget::Bytes(500), CacheBudget::Top,
        ]),
    ) {
        let count = AtomicU64::new(0);
        let answer = |id, request: &Request<'_>| {
            let n = count.fetch_add(1, Ordering::Relaxed) as usize;
            let low = &lows[n % lows.len()];
            let high = Some(&lows[(n + 1) % lows.len()][..]).filter(|_| !n.is_multiple_of(3));
            let (epoch, image) = (n as u64 * 7 % 5, &images[n % images.len()]);
            let how = [How::Guessed, How::Asked, How::Routed][n % 3];
            let mut out = encoded(&match request {
                Request::Read { .. } => read(how, epoch, Some(image)),
                Request::ReadMany { wanted, .. } => {
                    let answers = wanted.iter().map(|_| Answer { how, value: Some(image) });
                    Reply::ReadMany { epoch, answers: answers.collect() }
                }
                Request::Block { .. } => Reply::Block { epoch, low, high, image },
                Request::Top { .. } => {
                    Reply::Top { epoch, blocks: vec![(low, n as u32)], more: n.is_multiple_of(2) }
                }
                _ => Reply::Pairs { pairs: vec![(low, image)], more: n.is_multiple_of(2) },
            }, id);
            // Some are damaged; a wrong length would only end the connection.
            let (at, xor, which) = flips[n % flips.len()];
            if which == 0 {
                let at = LENGTH_BYTES + usize::from(at) % (out.len() - LENGTH_BYTES);
                out[at] ^= xor;
            }
            out
        };
        with_host(budget, answer, |keyspace| {
            for n in 0..60u8 {
                let _ = keyspace.get([n.wrapping_mul(31)]);
                let _ = keyspace.multi_get(&[[n], [n ^ 0x55]]);
                let _ = keyspace.prefix([n]).take(5).count();
                let _ = keyspace.last();
            }
        });
    }
}
