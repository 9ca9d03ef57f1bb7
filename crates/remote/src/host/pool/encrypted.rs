//! Clients over TLS: that all is as without it, and that what they do amid a handshake harms
//! nobody.
//!
//! Needs `openssl` on the machine, which makes the certificates; without it nothing is tested.

use std::{
    future::Future,
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    pin::Pin,
    process::Command,
    task::{Context, Poll, Waker},
    thread,
};

use tempfile::TempDir;

use super::super::session::PART_TIMEOUT;
use super::*;
use crate::{
    CacheBudget, Call, Client, ClientBuilder, Host, HostBuilder, Keyspace, Preset, ShareOptions,
    message::{Frame, Reply, Request, format::feature},
    socket::{Roots, Stream},
};

/// After this a wait that never ends is a failure, and not a test that hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Files of certificates in a directory of their own.
struct Certificates(TempDir);

/// What a certificate is like.
struct Sign {
    names: &'static str,
    from: &'static str,
    to: &'static str,
}

impl Default for Sign {
    fn default() -> Self {
        let (from, to) = ("20200101000000Z", "20991231000000Z");
        Self { names: "DNS:localhost,IP:127.0.0.1", from, to }
    }
}

impl Certificates {
    /// None if there is no openssl.
    fn new() -> Option<Self> {
        if Command::new("openssl").arg("version").output().is_err() {
            return None;
        }
        Some(Self(TempDir::new().unwrap()))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn openssl(&self, args: &[&str]) {
        let output = Command::new("openssl").current_dir(self.0.path()).args(args).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Makes an authority; returns its certificate's file.
    fn authority(&self, name: &str) -> PathBuf {
        let (cert, key) = (format!("{name}.crt"), format!("{name}.key"));
        let (subject, curve) = (format!("/CN={name}"), "ec_paramgen_curve:P-256");
        let new = ["req", "-x509", "-newkey", "ec", "-pkeyopt", curve, "-nodes", "-days", "9"];
        self.openssl(&[&new[..], &["-subj", &subject, "-keyout", &key, "-out", &cert]].concat());
        self.file(&cert)
    }

    /// Makes a host's certificate of an authority; returns it and its key.
    fn sign(&self, authority: &str, name: &str, sign: &Sign) -> (PathBuf, PathBuf) {
        let (cert, key) = (format!("{name}.crt"), format!("{name}.key"));
        let (request, config) = (format!("{name}.csr"), format!("{name}.cnf"));
        let curve = "ec_paramgen_curve:P-256";
        let new = ["req", "-newkey", "ec", "-pkeyopt", curve, "-nodes", "-subj", "/CN=host"];
        self.openssl(&[&new[..], &["-keyout", &key, "-out", &request]].concat());
        let text = format!(
            "[ca]\ndefault_ca=a\n[a]\ndatabase={name}.index\nnew_certs_dir=.\nrand_serial=yes\n\
             default_md=sha256\npolicy=p\nx509_extensions=e\n[p]\ncommonName=supplied\n[e]\n\
             basicConstraints=critical,CA:FALSE\nsubjectAltName={}\n",
            sign.names
        );
        std::fs::write(self.file(&config), text).unwrap();
        std::fs::write(self.file(&format!("{name}.index")), "").unwrap();
        let (ca, ca_key) = (format!("{authority}.crt"), format!("{authority}.key"));
        let dates = ["-startdate", sign.from, "-enddate", sign.to];
        let files = ["-cert", &ca, "-keyfile", &ca_key, "-in", &request, "-out", &cert];
        let common = ["ca", "-batch", "-notext", "-config", &config];
        self.openssl(&[&common[..], &dates, &files].concat());
        (self.file(&cert), self.file(&key))
    }
}

/// A host with a keyspace of each preset, and the file of whom its clients trust.
struct Setup {
    files: Certificates,
    ca: PathBuf,
    host: Host,
}

fn builder((cert, key): &(PathBuf, PathBuf)) -> HostBuilder {
    let options = ShareOptions::default().capacity_bytes(64 << 20);
    Host::builder()
        .listen_tls(([127, 0, 0, 1], 0).into())
        .identity(cert, key)
        .share("rhumb", options)
        .share("xstore", options.preset(Preset::XStore))
        .share("finestore", options.preset(Preset::FineStore))
}

fn setup() -> Option<Setup> {
    let files = Certificates::new()?;
    let ca = files.authority("ca");
    let host = builder(&files.sign("ca", "host", &Sign::default())).start().unwrap();
    Some(Setup { files, ca, host })
}

fn port(host: &Host) -> u16 {
    host.tls_addresses()[0].port()
}

fn client_of(port: u16, ca: &Path) -> ClientBuilder {
    Client::builder(format!("tcps:127.0.0.1:{port}")).root_certificates(ca)
}

impl Setup {
    fn client(&self) -> Client {
        client_of(port(&self.host), &self.ca).connect().unwrap()
    }

    /// A connection that has been through the handshake, and says what a test wants.
    fn peer(&self) -> Stream {
        let roots = Roots::load(std::slice::from_ref(&self.ca)).unwrap();
        let stream = Stream::connect_tls("localhost", port(&self.host), &roots).unwrap();
        stream.set_timeouts(Some(PATIENCE), Some(PATIENCE)).unwrap();
        stream
    }

    /// A connection that has not.
    fn socket(&self) -> TcpStream {
        let socket = TcpStream::connect(self.host.tls_addresses()[0]).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "it is never so: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn value(n: u32) -> Vec<u8> {
    n.to_be_bytes().repeat(n as usize % 20 + 1)
}

/// Runs futures on this thread, all of them under way at once.
fn all<T: Unpin>(mut calls: Vec<Call<T>>) -> Vec<T> {
    let mut context = Context::from_waker(Waker::noop());
    let mut done: Vec<Option<T>> = calls.iter().map(|_| None).collect();
    let until = Instant::now() + PATIENCE;
    while done.iter().any(Option::is_none) {
        assert!(Instant::now() < until, "calls without an answer");
        for (call, done) in calls.iter_mut().zip(&mut done).filter(|(_, done)| done.is_none()) {
            if let Poll::Ready(answer) = Pin::new(call).poll(&mut context) {
                *done = Some(answer.unwrap());
            }
        }
        thread::yield_now();
    }
    done.into_iter().flatten().collect()
}

fn check_all_of_it(keyspace: &Keyspace) {
    let key = |n: u32| n.to_be_bytes();
    (0..300).for_each(|n| keyspace.insert(key(n), value(n)).unwrap());
    for n in 0..300 {
        assert_eq!(keyspace.get(key(n)).unwrap(), Some(value(n)), "{n}");
    }
    assert_eq!(keyspace.get(key(300)).unwrap(), None);
    let keys: Vec<_> = (0..301).map(key).collect();
    let found = keyspace.multi_get(&keys).unwrap();
    assert!(found[..300].iter().zip(0..).all(|(found, n)| *found == Some(value(n))));
    assert_eq!(found[300], None);
    let pairs: Vec<_> = keyspace.range(key(100)..).map(|pair| pair.unwrap().0).collect();
    assert_eq!(pairs, (100..300).map(|n| key(n).to_vec()).collect::<Vec<_>>());
    assert!(keyspace.compare_and_swap(key(1), Some(&value(1)), Some(b"new")).unwrap());
    assert!(!keyspace.compare_and_swap(key(1), Some(&value(1)), None).unwrap());
    keyspace.remove(key(2)).unwrap();
    assert_eq!(keyspace.get(key(1)).unwrap().as_deref(), Some(&b"new"[..]));
    assert_eq!(keyspace.get(key(2)).unwrap(), None);
    // Many under way at once: requests and answers share records.
    let inserts = (3..300).map(|n| keyspace.insert_async(key(n), value(n + 1))).collect();
    assert_eq!(all::<()>(inserts).len(), 297);
    let found = all((3..300).map(|n| keyspace.by_calls().get_async(key(n))).collect());
    assert!(found.into_iter().zip(3..).all(|(found, n)| found == Some(value(n + 1))));
    // And by threads of one connection.
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for n in 3..300 {
                    assert_eq!(keyspace.get(key(n)).unwrap(), Some(value(n + 1)), "{n}");
                }
            });
        }
    });
}

#[test]
fn every_preset_is_as_without_tls() {
    let Some(setup) = setup() else { return };
    for (name, budget) in [
        ("rhumb", CacheBudget::Full),
        ("rhumb", CacheBudget::Top),
        ("xstore", CacheBudget::Full),
        ("finestore", CacheBudget::Full),
    ] {
        let client = client_of(port(&setup.host), &setup.ca).cache(budget).connect().unwrap();
        check_all_of_it(&client.keyspace(name).unwrap());
    }
    // A name as well as an address, and values of many records, both ways.
    let address = format!("tcps:localhost:{}", port(&setup.host));
    let by_name = Client::builder(address).root_certificates(&setup.ca).connect().unwrap();
    let keyspace = by_name.keyspace("rhumb").unwrap();
    let large = |n: usize| (0..n).map(|at| ((at * 31) >> 3) as u8).collect::<Vec<_>>();
    for bytes in [(16 << 10) - 40, 16 << 10, (64 << 10) + 1, 5 << 20, 15 << 20] {
        keyspace.insert("large", large(bytes)).unwrap();
        assert!(keyspace.get("large").unwrap() == Some(large(bytes)), "{bytes}");
    }
}

#[test]
fn a_cluster_is_reached_over_tls() {
    let Some(setup) = setup() else { return };
    let other = builder(&(setup.files.file("host.crt"), setup.files.file("host.key")));
    let other = other.start().unwrap();
    let at = |host: &Host| crate::Address::Tls { host: "127.0.0.1".into(), port: port(host) };
    let parts = [(Vec::new(), at(&setup.host)), (b"m".to_vec(), at(&other))];
    let table = crate::RoutingTable::new(1, parts).unwrap();
    let cluster = crate::Cluster::builder().root_certificates(&setup.ca).open(table.clone());
    let keyspace = cluster.keyspace("rhumb");
    for key in ["a", "z"] {
        keyspace.insert(key, key).unwrap();
        assert_eq!(keyspace.get(key).unwrap().as_deref(), Some(key.as_bytes()));
    }
    assert_eq!(setup.host.stats("rhumb").unwrap().entries, 1);
    let strange = crate::Cluster::builder().open(table).keyspace("rhumb").get("a").unwrap_err();
    assert!(strange.to_string().contains("root_certificates"), "{strange}");
}

#[test]
fn a_host_that_does_not_prove_who_it_is_is_refused() {
    let Some(setup) = setup() else { return };
    let (files, ca) = (&setup.files, &setup.ca);
    let refusal = |sign: Sign, ca: &Path| {
        let host = builder(&files.sign("ca", "wrong", &sign)).start().unwrap();
        let error = client_of(port(&host), ca).connect().unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::Invalid(_)), "{error:?}");
        assert!(text.contains(&format!("port {} of 127.0.0.1", port(&host))), "{text}");
        text
    };
    let past = Sign { to: "20210101000000Z", ..Sign::default() };
    assert!(refusal(past, ca).contains("its certificate has expired"));
    let future = Sign { from: "20980101000000Z", ..Sign::default() };
    assert!(refusal(future, ca).contains("its certificate is not valid yet"));
    let named = Sign { names: "DNS:db.example,DNS:localhost", ..Sign::default() };
    assert!(refusal(named, ca).contains("its certificate is for another name"));
    let other = files.authority("other");
    assert!(refusal(Sign::default(), &other).contains("of no authority that is trusted here"));
    // Either authority is trusted, whichever file it is in.
    let both = client_of(port(&setup.host), &other).root_certificates(ca);
    drop(both.connect().unwrap());
    // Files that are none, or the wrong ones.
    let missing = files.file("missing");
    let garbage = files.file("host.csr");
    for (path, what) in [(&missing, "missing"), (&garbage, "no certificate in it")] {
        let error = client_of(port(&setup.host), path).connect().unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error:?}");
        assert!(error.to_string().contains(what), "{error}");
    }
    let (cert, key) = (files.file("host.crt"), files.file("host.key"));
    for (cert, key) in [(&missing, &key), (&cert, &missing), (&key, &cert), (ca, &key)] {
        let error = builder(&(cert.clone(), key.clone())).start().unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error:?}");
    }
    let bare = Host::builder().listen_tls(([127, 0, 0, 1], 0).into()).start().unwrap_err();
    assert!(bare.to_string().contains("identity"), "{bare}");
    // Other machines need a token here too.
    let open = builder(&(cert, key)).listen_tls(([0, 0, 0, 0], 0).into()).start().unwrap_err();
    assert!(open.to_string().contains("without a token"), "{open}");
}

#[test]
fn a_token_is_asked_for_all_the_same() {
    let Some(setup) = setup() else { return };
    let pair = (setup.files.file("host.crt"), setup.files.file("host.key"));
    let host = builder(&pair).token("open sesame").start().unwrap();
    let builder = || client_of(port(&host), &setup.ca);
    builder().token("open sesame").connect().unwrap();
    for builder in [builder(), builder().token("open")] {
        let error = builder.connect().unwrap_err();
        assert!(error.to_string().contains("asks for a token"), "{error}");
    }
}

#[test]
fn plain_text_and_tls_are_told_apart() {
    let Some(setup) = setup() else { return };
    // Plain text at a TLS port.
    let error = Client::connect(format!("tcp:127.0.0.1:{}", port(&setup.host))).unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    assert!(error.to_string().contains("tcps:"), "{error}");
    // TLS at a port of a host without it.
    let plain = Host::builder().listen_tcp(([127, 0, 0, 1], 0).into());
    let plain = plain.share("k", ShareOptions::default()).start().unwrap();
    let error = client_of(plain.tcp_addresses()[0].port(), &setup.ca).connect().unwrap_err();
    let Error::Io { source, .. } = &error else { panic!("{error:?}") };
    assert!(error.to_string().contains("of 127.0.0.1"), "{error}");
    let is_end = source.to_string().contains("does it speak TLS");
    assert!(is_end || source.kind() == ErrorKind::ConnectionReset, "{source}");
    // And at one of another program, which answers and is silent.
    for answer in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], &[0; 100], &[21, 3, 3, 0, 2, 2, 40]] {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut socket, _) = listener.accept().unwrap();
                socket.write_all(answer).unwrap();
                let _ = socket.read_to_end(&mut Vec::new());
            });
            let error = client_of(port, &setup.ca).connect().unwrap_err();
            assert!(matches!(error, Error::Invalid(_)), "{error:?}");
        });
    }
}

/// What a client says first.
fn client_hello(ca: &Path) -> Vec<u8> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let builder = client_of(listener.local_addr().unwrap().port(), ca);
    thread::scope(|scope| {
        scope.spawn(move || builder.connect().unwrap_err());
        let (mut socket, _) = listener.accept().unwrap();
        let mut head = [0; 5];
        socket.read_exact(&mut head).unwrap();
        let mut rest = vec![0; u16::from_be_bytes([head[3], head[4]]).into()];
        socket.read_exact(&mut rest).unwrap();
        [&head[..], &rest].concat()
    })
}

/// Waits until the host closes a connection; returns how long it took.
fn closed_after(mut socket: TcpStream, began: Instant) -> Duration {
    match socket.read_to_end(&mut Vec::new()) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("it stays open"),
        _ => began.elapsed(),
    }
}

#[test]
fn clients_amid_a_handshake_disturb_nobody() {
    let Some(setup) = setup() else { return };
    let keyspace = setup.client().keyspace("rhumb").unwrap();
    keyspace.insert("a", "1").unwrap();
    let hello = client_hello(&setup.ca);
    let began = Instant::now();
    // A record that announces more than there may be, and a handshake without end.
    let endless =
        [&[22, 3, 3, 0x40, 0, 1, 0xff, 0xff, 0xff][..], &vec![7; (16 << 10) - 4]].concat();
    let endless = [&endless[..], &[22, 3, 3, 0x40, 0], &vec![7; 16 << 10]].concat();
    let garbage = [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0; 64],
        &[0xff; 64],
        &[22, 3, 3, 0xff, 0xff, 1],
        &[23, 3, 3, 0, 1, 7],
        &endless,
    ];
    let mut at_once = Vec::new();
    for bytes in garbage {
        let mut socket = setup.socket();
        // The host may have closed it before it has read all.
        let _ = socket.write_all(bytes);
        at_once.push((socket, bytes));
    }
    // More clients than there are workers, each of which stops somewhere.
    let halves = [&hello[..0], &hello[..4], &hello[..hello.len() / 2], &hello[..]];
    let slow: Vec<TcpStream> = (0..4 * WORKERS_MAX)
        .map(|n| {
            let mut socket = setup.socket();
            socket.write_all(halves[n % 4]).unwrap();
            socket
        })
        .collect();
    let mut dripping = setup.socket();
    let drip = thread::spawn(move || {
        for byte in hello.iter().cycle() {
            if dripping.write_all(&[*byte]).is_err() {
                break;
            }
            thread::sleep(Duration::from_millis(100));
        }
        began.elapsed()
    });
    for _ in 0..200 {
        assert_eq!(keyspace.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    }
    drop(setup.client());
    for (socket, bytes) in at_once {
        closed_after(socket, began);
        assert!(keyspace.get("a").unwrap().is_some(), "after {bytes:?}");
    }
    // Those that stopped have the time of a part of a frame, and no more.
    for socket in slow {
        assert!(closed_after(socket, began) >= PART_TIMEOUT.mul_f32(0.9));
    }
    drip.join().unwrap();
    wait_until("all but one have gone", || setup.host.sessions() == 1);
    wait_until("nothing is kept", || setup.host.pool().state().kept_bytes == 0);
}

#[test]
fn silent_clients_over_tls_cost_no_thread() {
    let Some(setup) = setup() else { return };
    let clients: Vec<Client> = (0..150).map(|_| setup.client()).collect();
    let keyspaces: Vec<Keyspace> =
        clients.iter().map(|client| client.keyspace("rhumb").unwrap()).collect();
    wait_until("all are parked", || setup.host.pool().state().parked.len() == 150);
    wait_until("few workers", || setup.host.pool().state().workers <= WORKERS_MIN);
    assert_eq!(setup.host.pool().state().kept_bytes, 0);
    assert!(setup.host.pool().state().deadlines.is_empty(), "they may be silent for ever");
    // And each is still served.
    for (n, keyspace) in (0u32..).zip(&keyspaces) {
        keyspace.insert(n.to_be_bytes(), value(n)).unwrap();
    }
    assert_eq!(keyspaces[0].get(149u32.to_be_bytes()).unwrap(), Some(value(149)));
    drop((keyspaces, clients));
    wait_until("all have gone", || setup.host.sessions() == 0);
}

fn encoded(id: u32, request: &Request<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    request.encode(id, &mut out).unwrap();
    out
}

/// A client that has been greeted, has opened a keyspace and is silent.
fn opened(setup: &Setup) -> Stream {
    let (peer, features) = (setup.peer(), feature::NO_DESCRIPTORS);
    let mut out = encoded(1, &Request::Hello { program: "peer", features, token: None });
    out.extend(encoded(2, &Request::Open { keyspace: b"rhumb" }));
    peer.send_frames(&out, &[]).unwrap();
    let mut frame = Vec::new();
    (0..2).for_each(|_| _ = peer.receive(&mut frame).unwrap());
    wait_until("it is silent", || setup.host.pool().state().deadlines.is_empty());
    peer
}

fn get(id: u32) -> Vec<u8> {
    encoded(id, &Request::Get { keyspace: 0, key: b"a", hint: None })
}

/// Receives answers with these ids, which are all this value; returns false if the host ends the
/// connection before.
fn receives(peer: &Stream, ids: std::ops::Range<u32>, value: &[u8]) -> bool {
    let mut frame = Vec::new();
    for id in ids {
        if peer.receive(&mut frame).is_err() {
            return false;
        }
        let parsed = Frame::parse(&frame).unwrap();
        assert_eq!(parsed.id, id);
        let reply = Reply::decode(&parsed).unwrap();
        assert!(matches!(reply, Reply::Value(Some(found)) if found == value), "{id}");
    }
    true
}

#[test]
fn a_client_over_tls_that_reads_late_gets_everything() {
    let Some(setup) = setup() else { return };
    let large: Vec<u8> = (0..3 << 20).map(|at: usize| ((at * 7) >> 4) as u8).collect();
    setup.client().keyspace("rhumb").unwrap().insert("a", &large).unwrap();
    // A machine that is busy may take too long for the host's patience.
    let is_complete = (0..5).any(|_| {
        let peer = opened(&setup);
        // All of it is in one record, so that the host has requests that it has not answered.
        peer.send_frames(&(3..12).flat_map(get).collect::<Vec<_>>(), &[]).unwrap();
        wait_until("it waits for the client", || setup.host.pool().state().kept_bytes > 0);
        receives(&peer, 3..12, &large)
    });
    assert!(is_complete);
    wait_until("nothing is kept", || setup.host.pool().state().kept_bytes == 0);
    assert!(setup.host.pool().state().deadlines.is_empty(), "it may be silent now");
}

/// What is encrypted and not sent goes once the client reads, also if nothing else is kept of it.
#[test]
fn the_last_record_waits_for_its_client() {
    let Some(setup) = setup() else { return };
    let value = vec![7; 20_000];
    setup.client().keyspace("rhumb").unwrap().insert("a", &value).unwrap();
    // A machine that is busy may take too long for the host's patience.
    assert!((0..5).any(|_| reads_last_record_late(&setup, &value)));
}

/// Asks for a value until an answer does not go, and reads then; returns false if the host did not
/// wait for so long.
fn reads_last_record_late(setup: &Setup, value: &[u8]) -> bool {
    let (host, peer) = (&setup.host, opened(setup));
    let gets = || host.host_stats().calls.iter().find(|(kind, _)| *kind == "get").unwrap().1;
    let (before, overdue) = (gets(), host.host_stats().sessions_overdue);
    let mut asked = 0;
    while host.pool().state().kept_bytes == 0 {
        asked += 1;
        peer.send_frames(&get(2 + asked), &[]).unwrap();
        wait_until("it is answered", || gets() - before == u64::from(asked));
        wait_until("it is parked", || !host.pool().state().parked.is_empty());
    }
    receives(&peer, 3..3 + asked, value) && host.host_stats().sessions_overdue == overdue
}

/// Carries bytes between a client and the host in pieces of any size, as many as may go.
fn carry(
    mut from: TcpStream,
    mut to: TcpStream,
    mut seed: u64,
    may_go: &AtomicU64,
) -> io::Result<()> {
    let mut bytes = [0; 4096];
    loop {
        let came = from.read(&mut bytes)?;
        if came == 0 {
            return to.shutdown(std::net::Shutdown::Both);
        }
        let mut left = &bytes[..came];
        while !left.is_empty() {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let most = [1, 3, 7, 100, 5_000][(seed >> 40) as usize % 5];
            let (some, others) = left.split_at(left.len().min(most));
            while may_go.load(Ordering::Relaxed) < some.len() as u64 {
                thread::sleep(Duration::from_millis(5));
            }
            may_go.fetch_sub(some.len() as u64, Ordering::Relaxed);
            to.write_all(some)?;
            left = others;
            if seed >> 60 == 0 {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

/// A port that leads to another one, to which `may_go` bytes go of all clients.
fn relay(to: SocketAddr, may_go: &Arc<AtomicU64>) -> u16 {
    let may_go = Arc::clone(may_go);
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for (seed, socket) in (1..).zip(listener.incoming()) {
            let (client, host) = (socket.unwrap(), TcpStream::connect(to).unwrap());
            client.set_nodelay(true).unwrap();
            host.set_nodelay(true).unwrap();
            let back = (host.try_clone().unwrap(), client.try_clone().unwrap());
            let may_go = Arc::clone(&may_go);
            thread::spawn(move || carry(client, host, seed, &may_go));
            thread::spawn(move || carry(back.0, back.1, !seed, &AtomicU64::new(u64::MAX)));
        }
    });
    port
}

#[test]
fn records_come_in_any_pieces() {
    let Some(setup) = setup() else { return };
    let port = relay(setup.host.tls_addresses()[0], &Arc::new(AtomicU64::new(u64::MAX)));
    for name in ["rhumb", "finestore"] {
        let client = client_of(port, &setup.ca).connect().unwrap();
        check_all_of_it(&client.keyspace(name).unwrap());
    }
    let keyspace = client_of(port, &setup.ca).connect().unwrap().keyspace("rhumb").unwrap();
    let large: Vec<u8> = (0..200_000).map(|at: usize| ((at * 5) >> 2) as u8).collect();
    keyspace.insert("large", &large).unwrap();
    assert!(keyspace.get("large").unwrap() == Some(large));
    wait_until("nothing is kept", || setup.host.pool().state().kept_bytes == 0);
}

#[test]
fn a_record_that_does_not_come_whole_ends_its_connection() {
    let Some(setup) = setup() else { return };
    let may_go = Arc::new(AtomicU64::new(u64::MAX));
    let port = relay(setup.host.tls_addresses()[0], &may_go);
    let calm = setup.client().keyspace("rhumb").unwrap();
    let keyspace = client_of(port, &setup.ca).connect().unwrap().keyspace("rhumb").unwrap();
    keyspace.insert("a", "1").unwrap();
    wait_until("both are silent", || setup.host.pool().state().deadlines.is_empty());
    thread::scope(|scope| {
        // No frame has begun, but a record has.
        may_go.store(100, Ordering::Relaxed);
        let late = scope.spawn(|| keyspace.insert("a", [7; 200]));
        wait_until("its part is kept", || setup.host.pool().state().kept_bytes > 0);
        assert!(setup.host.pool().state().kept_bytes <= 100);
        wait_until("it is closed", || setup.host.sessions() == 1);
        // The client comes again, or says that it could not.
        may_go.store(u64::MAX, Ordering::Relaxed);
        let _ = late.join().unwrap();
    });
    assert!(calm.get("a").unwrap().is_some());
}
