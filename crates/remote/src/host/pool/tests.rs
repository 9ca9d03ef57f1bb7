//! Many clients and few threads: silent clients, slow ones, and ones that keep a worker busy.

use std::{
    os::{fd::OwnedFd, unix::fs::PermissionsExt},
    sync::{Condvar, Mutex},
    thread,
};

use tempfile::TempDir;

use super::*;
use crate::{
    Authority, Change, Client, Host, HostBuilder, Pair, Scan, ShareOptions,
    message::{Frame, Reply, Request, format::failure},
    socket::Stream,
};

/// After this a wait that never ends is a failure, and not a test that hangs.
const PATIENCE: Duration = Duration::from_secs(60);

fn host_of(build: impl FnOnce(HostBuilder) -> HostBuilder) -> (TempDir, Host) {
    let dir = TempDir::new().unwrap();
    let builder = Host::listen(dir.path().join("s")).share("k", ShareOptions::default());
    let host = build(builder).start().unwrap();
    (dir, host)
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "it is never so: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn wait_for_few_workers(host: &Host) {
    wait_until("few workers", || host.pool().state().workers <= WORKERS_MIN);
}

/// A client that says what a test wants.
struct Peer {
    stream: Stream,
    frame: Vec<u8>,
    fds: Vec<OwnedFd>,
}

fn encoded(id: u32, request: &Request<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    request.encode(id, &mut out).unwrap();
    out
}

impl Peer {
    fn connect(host: &Host) -> Self {
        let stream = Stream::connect(host.path()).unwrap();
        stream.set_timeouts(Some(PATIENCE), Some(PATIENCE)).unwrap();
        Self { stream, frame: Vec::new(), fds: Vec::new() }
    }

    fn greeted(host: &Host) -> Self {
        let mut peer = Self::connect(host);
        let hello = Request::Hello { program: "peer", features: 0, token: None };
        assert_eq!(peer.ask(&hello), Reply::Hello { features: 0 });
        peer
    }

    fn opened(host: &Host, keyspace: &str) -> Self {
        let mut peer = Self::greeted(host);
        let opened = peer.ask(&Request::Open { keyspace: keyspace.as_bytes() });
        assert!(matches!(opened, Reply::Opened { .. }), "{opened:?}");
        peer
    }

    fn say(&self, bytes: &[u8]) {
        self.stream.send_frames(bytes, &[]).unwrap();
    }

    fn hear(&mut self) -> (u32, Reply<'_>) {
        self.fds = self.stream.receive(&mut self.frame).unwrap().fds;
        let frame = Frame::parse(&self.frame).unwrap();
        (frame.id, Reply::decode(&frame).unwrap())
    }

    fn ask(&mut self, request: &Request<'_>) -> Reply<'_> {
        self.say(&encoded(1, request));
        self.hear().1
    }

    fn check_get(&mut self, key: &[u8], value: &[u8]) {
        let found = self.ask(&Request::Get { keyspace: 0, key, hint: None });
        assert_eq!(found, Reply::Value(Some(value)));
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) {
        let done = self.ask(&Request::Insert { keyspace: 0, key, value, hint: None });
        assert!(matches!(done, Reply::Done { .. }), "{done:?}");
    }
}

#[test]
fn silent_clients_hold_no_worker_and_no_buffer() {
    let (_dir, host) = host_of(|builder| builder);
    let mut peers: Vec<Peer> = (0..150).map(|_| Peer::opened(&host, "k")).collect();
    peers[0].insert(b"a", b"1");
    let get = encoded(7, &Request::Get { keyspace: 0, key: b"a", hint: None });
    for round in 0..2 {
        wait_for_few_workers(&host);
        wait_until("all are parked", || host.pool().state().parked.len() == peers.len());
        for session in host.pool().state().parked.values() {
            assert!(session.buffer_bytes() <= get.len(), "{} bytes", session.buffer_bytes());
            assert_eq!(session.deadline().is_some(), round == 1);
        }
        // Then halves of frames, which are answered once they are whole.
        for peer in &mut peers {
            if round == 1 {
                peer.say(&get[get.len() / 2..]);
                assert_eq!(peer.hear(), (7, Reply::Value(Some(b"1"))));
            }
            peer.check_get(b"a", b"1");
            if round == 0 {
                peer.say(&get[..get.len() / 2]);
            }
        }
    }
    assert_eq!(host.sessions(), 150);
    drop(peers);
    wait_until("all have gone", || host.sessions() == 0);
}

/// A store in which commits wait.
#[derive(Default)]
struct Slow {
    /// How many wait, and true once they need not.
    state: Mutex<(usize, bool)>,
    changed: Condvar,
}

/// Lets the commits go on that wait, also if a test fails: its host waits for them.
struct Open<'s>(&'s Slow);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.state.lock().unwrap().1 = true;
        self.0.changed.notify_all();
    }
}

impl Authority for Slow {
    fn get(&self, _: &str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(Some(key.to_vec()))
    }

    fn multi_get(&self, _: &str, keys: &[&[u8]], _: usize) -> Result<Vec<Option<Vec<u8>>>> {
        Ok(keys.iter().map(|key| Some(key.to_vec())).collect())
    }

    fn scan(&self, _: &str, _: &Scan<'_>) -> Result<(Vec<Pair>, bool)> {
        Ok((Vec::new(), false))
    }

    fn commit(&self, _: &[Change<'_>]) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        state.0 += 1;
        let mut state = self.changed.wait_while(state, |state| !state.1).unwrap();
        state.0 -= 1;
        Ok(())
    }

    fn compare_and_swap(&self, _: &Change<'_>, _: Option<&[u8]>) -> Result<bool> {
        panic!("a store that panics");
    }
}

#[test]
fn commits_that_wait_leave_workers_for_others_up_to_a_bound() {
    let store = Arc::new(Slow::default());
    let authority = Arc::clone(&store);
    let (_dir, host) =
        host_of(|builder| builder.share_of("slow", ShareOptions::default(), authority));
    let mut writers: Vec<Peer> = (0..20).map(|_| Peer::opened(&host, "slow")).collect();
    let mut reader = Peer::opened(&host, "slow");
    let insert = encoded(3, &Request::Insert { keyspace: 0, key: b"a", value: b"1", hint: None });
    let (waiting, open) = (|| store.state.lock().unwrap().0, Open(&store));
    let (some, others) = writers.split_at_mut(WORKERS_MAX - 1);
    some.iter().for_each(|writer| writer.say(&insert));
    wait_until("commits wait", || waiting() == WORKERS_MAX - 1);
    reader.check_get(b"b", b"b");
    // All workers wait, and further clients for one of them.
    others.iter().for_each(|writer| writer.say(&insert));
    wait_until("commits wait", || waiting() == WORKERS_MAX);
    reader.say(&encoded(4, &Request::Get { keyspace: 0, key: b"c", hint: None }));
    wait_until("nobody leads", || host.pool().state().lead.is_some());
    assert_eq!(host.pool().state().workers, WORKERS_MAX);
    drop(open);
    assert_eq!(reader.hear(), (4, Reply::Value(Some(b"c"))));
    for writer in &mut writers {
        assert!(matches!(writer.hear(), (3, Reply::Done { .. })));
    }
    wait_for_few_workers(&host);
}

#[test]
fn a_store_that_panics_ends_one_connection() {
    let (_dir, host) = host_of(|builder| {
        builder.share_of("slow", ShareOptions::default(), Arc::new(Slow::default()))
    });
    let mut other = Peer::opened(&host, "slow");
    for _ in 0..2 * WORKERS_MAX {
        let mut peer = Peer::opened(&host, "slow");
        let (keyspace, key) = (0, &b"a"[..]);
        let swap = Request::CompareAndSwap { keyspace, key, expected: None, new: None, hint: None };
        peer.say(&encoded(1, &swap));
        assert!(matches!(peer.stream.receive(&mut peer.frame), Err(Error::Closed)));
    }
    other.check_get(b"a", b"a");
    assert!(host.pool().state().workers <= WORKERS_MAX);
}

/// More clients than workers that ask without a pause: each of them and another one is answered.
#[test]
fn clients_that_never_pause_share_the_workers() {
    let (_dir, host) = host_of(|builder| builder);
    let mut calm = Peer::opened(&host, "k");
    calm.insert(b"a", b"1");
    let get = encoded(5, &Request::Get { keyspace: 0, key: b"a", hint: None }).repeat(50);
    let ended = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        let (host, get, ended) = (&host, &get, &ended);
        let busy = |_| {
            scope.spawn(move || {
                let mut peer = Peer::opened(host, "k");
                let mut rounds = 0;
                while !ended.load(Ordering::Relaxed) || rounds < 3 {
                    // Further ones come before the first are answered.
                    (0..2).for_each(|_| peer.say(get));
                    (0..100).for_each(|_| assert_eq!(peer.hear(), (5, Reply::Value(Some(b"1")))));
                    rounds += 1;
                }
            })
        };
        let threads: Vec<_> = (0..3 * WORKERS_MAX).map(busy).collect();
        (0..20).for_each(|_| calm.check_get(b"a", b"1"));
        ended.store(true, Ordering::Relaxed);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert!(host.pool().state().workers <= WORKERS_MAX);
}

#[test]
fn clients_that_do_not_read_are_closed_and_hold_no_worker() {
    let (_dir, host) = host_of(|builder| builder);
    let value = vec![7; 4 << 20];
    let mut calm = Peer::opened(&host, "k");
    calm.insert(b"large", &value);
    calm.insert(b"a", b"1");
    let peers: Vec<Peer> = (0..2 * WORKERS_MAX).map(|_| Peer::opened(&host, "k")).collect();
    let get = encoded(5, &Request::Get { keyspace: 0, key: b"large", hint: None }).repeat(20);
    peers.iter().for_each(|peer| peer.say(&get));
    wait_for_few_workers(&host);
    for session in host.pool().state().parked.values() {
        // One answer, and the requests for the others.
        assert!(session.buffer_bytes() <= value.len() + 4096, "{}", session.buffer_bytes());
    }
    calm.check_get(b"a", b"1");
    wait_until("they are closed", || host.sessions() == 1);
    calm.check_get(b"large", &value);
}

#[test]
fn a_client_that_reads_late_gets_all_its_answers_and_descriptors() {
    let (_dir, host) = host_of(|builder| builder.share("other", ShareOptions::default()));
    let value = vec![7; 900_000];
    let mut peer = Peer::opened(&host, "k");
    assert_eq!(peer.fds.len(), 2);
    peer.insert(b"large", &value);
    let get = encoded(5, &Request::Get { keyspace: 0, key: b"large", hint: None });
    let open = encoded(6, &Request::Open { keyspace: b"other" });
    let small = encoded(7, &Request::Get { keyspace: 0, key: b"absent", hint: None });
    // Answers that go together: the descriptors are not beside the first of their bytes.
    peer.say(&[&get[..], &small, &open, &small, &open, &get, &open, &get].concat());
    // It takes what the socket holds at once, and then has a worker come back.
    wait_for_few_workers(&host);
    for has_fds in [false, false, true, false, true, false, true, false] {
        match peer.hear() {
            (5, Reply::Value(found)) => assert!(!has_fds && found == Some(&value)),
            (6, Reply::Opened { .. }) => assert!(has_fds),
            (7, Reply::Value(None)) => assert!(!has_fds),
            other => panic!("{other:?}"),
        }
        assert_eq!(peer.fds.len(), if has_fds { 2 } else { 0 });
        wait_for_few_workers(&host);
    }
}

#[test]
fn a_client_is_told_what_it_did_wrong_and_then_closed() {
    let (_dir, host) = host_of(|builder| builder);
    let mut peer = Peer::opened(&host, "k");
    let get = encoded(5, &Request::Get { keyspace: 0, key: b"a", hint: None });
    peer.say(&[&get[..], &[5, 0, 0, 0, 99, 1, 0, 0, 0], &get].concat());
    assert_eq!(peer.hear(), (5, Reply::Value(None)));
    assert!(matches!(peer.hear(), (1, Reply::Failed { code: failure::BAD_REQUEST, .. })));
    assert!(matches!(peer.stream.receive(&mut peer.frame), Err(Error::Closed)));
    // One that does not greet is not waited for.
    let stranger = Peer::connect(&host);
    assert!(matches!(stranger.stream.receive(&mut Vec::new()), Err(Error::Closed)));
}

#[test]
fn a_host_ends_with_clients_in_every_state() {
    let store = Arc::new(Slow::default());
    let authority = Arc::clone(&store);
    let (_dir, host) =
        host_of(|builder| builder.share_of("slow", ShareOptions::default(), authority));
    let mut peers: Vec<Peer> = (0..40).map(|_| Peer::opened(&host, "slow")).collect();
    let insert = encoded(3, &Request::Insert { keyspace: 0, key: b"a", value: b"1", hint: None });
    let (writers, others) = peers.split_at(20);
    let open = Open(&store);
    others.iter().for_each(|peer| peer.say(&insert[..9]));
    wait_for_few_workers(&host);
    wait_until("all are parked", || host.pool().state().parked.len() == 40);
    writers.iter().for_each(|peer| peer.say(&insert));
    wait_until("commits wait", || store.state.lock().unwrap().0 == WORKERS_MAX);
    wait_until("nobody leads", || host.pool().state().lead.is_some());
    thread::scope(|scope| {
        scope.spawn(|| {
            // A host waits for the commits that it has begun, and begins no more.
            thread::sleep(Duration::from_millis(50));
            drop(open);
        });
        drop(host);
    });
    assert_eq!(Arc::strong_count(&store), 1);
    for peer in &mut peers {
        let received = peer.stream.receive(&mut peer.frame);
        assert!(received.is_err() || Frame::parse(&peer.frame).unwrap().id == 3);
    }
}

fn refusal<T: std::fmt::Debug>(result: Result<T>) -> String {
    match result {
        Err(Error::Refused { code: failure::REFUSED, text }) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn clients_over_a_limit_are_told_which_one() {
    let any = "127.0.0.1:0".parse().unwrap();
    let (_dir, host) =
        host_of(|builder| builder.listen_tcp(any).sessions_max(4).sessions_per_address(2));
    let tcp = || Client::connect(format!("tcp:{}", host.tcp_addresses()[0]));
    let unix = || Client::connect(host.path());
    let (first, _second) = (tcp().unwrap(), tcp().unwrap());
    for _ in 0..2 * 40 {
        // More than are told so at once: each goes when it was.
        let text = refusal(tcp());
        assert!(text.contains("2 connections of 127.0.0.1 (sessions_per_address)"), "{text}");
    }
    let _others = (unix().unwrap(), unix().unwrap());
    for text in [refusal(unix()), refusal(tcp())] {
        assert!(text.contains("4 connections, the most there may be (sessions_max)"), "{text}");
    }
    assert_eq!(host.sessions(), 4);
    drop(first);
    wait_until("one has gone", || host.sessions() == 3);
    tcp().unwrap();
}

#[test]
fn one_user_keeps_out_no_other() {
    let (_dir, host) = host_of(|builder| builder.sessions_per_user(1).allow_users([1 << 30]));
    let mode = host.path().metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o666, "the host asks who it is");
    let _one = Client::connect(host.path()).unwrap();
    let text = refusal(Client::connect(host.path()));
    assert!(text.contains("1 connections of user"), "{text}");
    assert!(Host::listen(host.path()).sessions_max(0).start().is_err());
}

#[test]
fn a_connection_opens_a_bounded_number_of_keyspaces() {
    let (_dir, host) = host_of(|builder| builder.keyspaces_max(3));
    let mut peer = Peer::greeted(&host);
    let open = Request::Open { keyspace: b"k" };
    for _ in 0..3 {
        assert!(matches!(peer.ask(&open), Reply::Opened { .. }));
    }
    match peer.ask(&open) {
        Reply::Failed { code: failure::REFUSED, text } => assert!(text.contains("keyspaces_max")),
        other => panic!("{other:?}"),
    }
    peer.insert(b"a", b"1");
}

#[test]
fn the_memory_that_is_kept_for_slow_clients_is_bounded() {
    let bytes_max = 5 << 20;
    let (_dir, host) = host_of(|builder| builder.kept_bytes_max(bytes_max));
    let mut calm = Peer::opened(&host, "k");
    calm.insert(b"large", &vec![7; 2 << 20]);
    let get = encoded(5, &Request::Get { keyspace: 0, key: b"large", hint: None });
    let half = encoded(6, &Request::Insert { keyspace: 0, key: b"a", value: &get, hint: None });
    let peers: Vec<Peer> = (0..9).map(|_| Peer::opened(&host, "k")).collect();
    let small = Peer::opened(&host, "k");
    small.say(&half[..half.len() - 1]);
    peers.iter().for_each(|peer| peer.say(&get));
    wait_until("some are closed", || host.sessions() <= 4);
    let kept_bytes = host.pool().state().kept_bytes;
    assert!((1..=bytes_max).contains(&kept_bytes), "{kept_bytes}");
    calm.insert(b"a", b"1");
    // Those that keep little are not among them.
    small.say(&half[half.len() - 1..]);
    let mut small = small;
    assert!(matches!(small.hear(), (6, Reply::Done { .. })));
    drop(peers);
    wait_until("nothing is kept", || host.pool().state().kept_bytes == 0);
}

#[test]
fn a_large_value_that_is_asked_for_again_and_again_is_no_answer() {
    let (_dir, host) = host_of(|builder| builder);
    let mut peer = Peer::opened(&host, "k");
    peer.insert(b"large", &vec![7; 1 << 20]);
    // 60 GiB of values.
    let keys = vec![&b"large"[..]; 60_000];
    let found = peer.ask(&Request::MultiGet { keyspace: 0, keys });
    assert!(matches!(found, Reply::Failed { code: failure::TOO_LARGE, .. }), "{found:?}");
    let found = peer.ask(&Request::MultiGet { keyspace: 0, keys: vec![b"large"; 7] });
    assert!(matches!(found, Reply::Values(values) if values.len() == 7));
}
