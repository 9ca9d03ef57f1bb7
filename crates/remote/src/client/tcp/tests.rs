//! Clients over TCP against maps, beside writers, and hosts that meet clients without manners.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    ops::Bound,
    sync::{
        Mutex, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use rhumb_testkit::random::Random;

use super::CacheBudget;
use crate::{
    Authority, Change, Client, Error, Host, HostBuilder, Keyspace, Pair, Publisher, Scan,
    ShareOptions, message::format::failure,
};

/// Ends what runs beside a test, also if that fails.
struct Ends<'d>(&'d AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Every way to keep a directory, the smallest of which has room for no block.
const BUDGETS: [CacheBudget; 5] = [
    CacheBudget::Full,
    CacheBudget::Bytes(0),
    CacheBudget::Bytes(200),
    CacheBudget::Bytes(6 << 10),
    CacheBudget::Top,
];

fn options() -> ShareOptions {
    ShareOptions::default().capacity_bytes(64 << 20).entry_bytes(16)
}

fn builder() -> HostBuilder {
    Host::builder().listen_tcp("127.0.0.1:0".parse().unwrap())
}

pub(super) fn host() -> Host {
    builder().share("k", options()).start().unwrap()
}

fn address(host: &Host) -> String {
    format!("tcp:{}", host.tcp_addresses()[0])
}

pub(super) fn open(host: &Host, budget: CacheBudget) -> Keyspace {
    let client = Client::builder(address(host)).cache(budget).connect().unwrap();
    client.keyspace("k").unwrap()
}

/// Keys that lie all over the keyspace.
pub(super) fn key(n: u64) -> [u8; 8] {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// A value that proves its key.
pub(super) fn value(key: &[u8]) -> Vec<u8> {
    [key, &b"'s"[..]].concat()
}

/// A key of the map's: some are too long for leaves. Keys of others lie between them.
fn mine(n: u64) -> Vec<u8> {
    let padding = if n.is_multiple_of(97) { 400 } else { 0 };
    format!("{:04}{}a", n % 3_000, "x".repeat(padding)).into_bytes()
}

/// Makes a random change, in the map too, and looks at one key in several ways.
fn step(keyspace: &Keyspace, map: &mut Map, random: &mut Random) {
    let n = random.next();
    let key = mine(n);
    let value = vec![n as u8; if n.is_multiple_of(40) { 3_000 } else { (n % 20) as usize }];
    match random.next() % 6 {
        0 => {
            keyspace.remove(&key).unwrap();
            map.remove(&key);
        }
        1 => {
            let old = map.get(&key).map(Vec::as_slice);
            assert!(!keyspace.compare_and_swap(&key, Some(b"never written"), None).unwrap());
            assert!(keyspace.compare_and_swap(&key, old, Some(&value)).unwrap());
            map.insert(key.clone(), value);
        }
        2 | 3 => {
            keyspace.insert(&key, &value).unwrap();
            map.insert(key.clone(), value);
        }
        _ => {
            let keys: Vec<Vec<u8>> = (0..20).map(|_| mine(random.next())).collect();
            let found = keyspace.multi_get(&keys).unwrap();
            assert!(keys.iter().zip(found).all(|(key, value)| map.get(key) == value.as_ref()));
        }
    }
    assert_eq!(keyspace.get(&key).unwrap(), map.get(&key).cloned());
    let mut out = b"before".to_vec();
    assert_eq!(keyspace.get_into(&key, &mut out).unwrap(), map.contains_key(&key));
    assert_eq!(out[6..], map.get(&key).cloned().unwrap_or_default());
}

/// Compares ranges both ways with the map, without the keys of others.
fn check_ranges(keyspace: &Keyspace, map: &Map, random: &mut Random) {
    let is_mine = |pair: &Pair| pair.0.ends_with(b"a");
    let owned = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone());
    let (a, b) = (mine(random.next()), mine(random.next()));
    let (from, to) = (Bound::Excluded(a.clone().min(b.clone())), Bound::Included(a.max(b)));
    for bounds in [(from.clone(), to.clone()), (Bound::Unbounded, to), (from, Bound::Unbounded)] {
        let range = || keyspace.range::<Vec<u8>>(bounds.clone());
        let expected: Vec<Pair> = map.range(bounds.clone()).map(owned).collect();
        let up: Vec<Pair> = range().map(Result::unwrap).filter(is_mine).collect();
        assert_eq!(up, expected);
        let mut down: Vec<Pair> = range().rev().map(Result::unwrap).filter(is_mine).collect();
        down.reverse();
        assert_eq!(down, expected);
    }
    let expected: Vec<Pair> = map.range(b"1".to_vec()..b"2".to_vec()).map(owned).collect();
    let found = keyspace.prefix("1").map(Result::unwrap).filter(is_mine);
    assert_eq!(found.collect::<Vec<_>>(), expected);
}

#[test]
fn every_operation_is_a_maps_with_each_cache_while_others_write() {
    for budget in BUDGETS {
        let host = host();
        let (keyspace, other) = (open(&host, budget), open(&host, CacheBudget::Full));
        let (mut map, mut random, done) = (Map::new(), Random::new(7), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                // Waves of keys that come and go, so that runs are built anew all the while.
                for n in (0..).take_while(|_| !done.load(Ordering::Relaxed)) {
                    let key = format!("{:04}{:03}b", n * 7 % 3_000, n / 400 % 50);
                    if n / 20_000 % 2 == 0 {
                        other.insert(key, [3; 12]).unwrap();
                    } else {
                        other.remove(key).unwrap();
                    }
                }
            });
            let _ends = Ends(&done);
            for round in 0..1_200 {
                step(&keyspace, &mut map, &mut random);
                if round % 200 == 0 {
                    check_ranges(&keyspace, &map, &mut random);
                }
            }
        });
        check_ranges(&keyspace, &map, &mut random);
        // From both ends to the middle.
        let (mut range, mut count) = (keyspace.iter(), 0);
        while let Some(pair) = if count % 3 == 0 { range.next_back() } else { range.next() } {
            pair.unwrap();
            count += 1;
        }
        assert_eq!(count, host.stats("k").unwrap().entries.max(count), "{budget:?}");
        let (first, last) = (keyspace.first().unwrap(), keyspace.last().unwrap());
        assert_eq!(first, keyspace.iter().next().transpose().unwrap());
        assert_eq!(last, keyspace.iter().next_back().transpose().unwrap());
        let counts = keyspace.counts();
        if let CacheBudget::Bytes(most) = budget {
            assert!(counts.cache_bytes <= most, "{counts:?}");
        }
    }
}

/// A host with `entries` keys, and a client that has read them all.
pub(super) fn filled(entries: u64, budget: CacheBudget) -> (Host, Keyspace) {
    let host = host();
    let keyspace = open(&host, budget);
    (0..entries).for_each(|n| keyspace.insert(key(n), value(&key(n))).unwrap());
    // The first that are read bring the directory, in pieces.
    for n in 0..entries {
        assert_eq!(keyspace.get(key(n)).unwrap().unwrap(), value(&key(n)));
    }
    (host, keyspace)
}

/// Keys in groups, of which no line describes two, so that there are several blocks of runs.
fn grouped(n: u64) -> Vec<u8> {
    let group = (n / 40).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    format!("{group:08}/the same for all/{:02}", n % 40).into_bytes()
}

const GROUPED: u64 = 16_000;

pub(super) fn host_with_groups() -> Host {
    let host = host();
    let keyspace = open(&host, CacheBudget::Bytes(0));
    (0..GROUPED).for_each(|n| keyspace.insert(grouped(n), value(&grouped(n))).unwrap());
    assert!(host.stats("k").unwrap().runs >= GROUPED / 40);
    host
}

#[test]
fn a_read_is_one_round_trip_and_no_call() {
    for (budget, calls) in
        [(CacheBudget::Full, 0), (CacheBudget::Top, 0), (CacheBudget::Bytes(0), 1)]
    {
        let (_host, keyspace) = filled(5_000, budget);
        let before = keyspace.counts();
        for n in 0..1_000 {
            // Every other one is not there.
            let key = key(if n % 2 == 0 { n } else { 1 << 40 | n });
            assert_eq!(keyspace.get(key).unwrap().is_some(), n % 2 == 0);
        }
        let after = keyspace.counts();
        assert_eq!(after.round_trips - before.round_trips, 1_000, "{budget:?}");
        assert_eq!(after.reads - before.reads, 1_000);
        assert_eq!(after.calls - before.calls, calls * 1_000, "{budget:?}");
        assert_eq!((after.stale, after.directory_reads), (before.stale, before.directory_reads));
        let keys: Vec<[u8; 8]> = (0..64).map(key).collect();
        let found = keyspace.multi_get(&keys).unwrap();
        assert!(keys.iter().zip(found).all(|(key, found)| found == Some(value(key))));
        let many = keyspace.counts();
        assert_eq!(many.round_trips - after.round_trips, 1);
        assert_eq!((many.reads - after.reads, many.calls - after.calls), (64, calls * 64));
        assert!(many.bytes_sent > after.bytes_sent && many.bytes_received > after.bytes_received);
        match budget {
            CacheBudget::Full => assert!((100..40_000).contains(&many.cache_bytes), "{many:?}"),
            CacheBudget::Top => assert!((1..2_000).contains(&many.cache_bytes), "{many:?}"),
            _ => assert_eq!(many.cache_bytes, 0),
        }
        // Each part of a range is a round trip.
        assert_eq!(keyspace.iter().count(), 5_000);
        let trips = keyspace.round_trips() - many.round_trips;
        assert!((3..7).contains(&trips), "{trips} round trips for 5,000 pairs");
    }
}

#[test]
fn what_has_moved_is_missed_once() {
    for budget in [CacheBudget::Full, CacheBudget::Bytes(1 << 20), CacheBudget::Top] {
        let (host, keyspace) = filled(5_000, budget);
        let runs = host.stats("k").unwrap().runs;
        let other = open(&host, CacheBudget::Full);
        (5_000..15_000).for_each(|n| other.insert(key(n), value(&key(n))).unwrap());
        assert!(host.stats("k").unwrap().runs > runs);
        let mut stale = keyspace.counts().stale;
        for pass in 0..3 {
            for n in 0..15_000 {
                assert_eq!(keyspace.get(key(n)).unwrap().unwrap(), value(&key(n)));
            }
            let now = keyspace.counts();
            // A guess that was wrong brings the block that is right.
            let most = if pass == 0 { 200 } else { 0 };
            assert!(
                now.stale - stale <= most,
                "{} in pass {pass} of {budget:?}",
                now.stale - stale
            );
            assert!(pass > 0 || now.stale > stale, "{budget:?}: nothing had moved");
            stale = now.stale;
        }
    }
}

#[test]
fn a_cache_stays_within_its_budget_and_is_of_use() {
    let host = host_with_groups();
    let whole = open(&host, CacheBudget::Full);
    (0..GROUPED).for_each(|n| drop(whole.get(grouped(n)).unwrap()));
    let bytes = whole.counts().cache_bytes;
    let half = open(&host, CacheBudget::Bytes(bytes / 2));
    for n in 0..GROUPED {
        assert_eq!(half.get(grouped(n)).unwrap().unwrap(), value(&grouped(n)));
        assert!(half.counts().cache_bytes <= bytes / 2);
    }
    // Keys of one part of the keyspace find their blocks there.
    let some: Vec<_> = (0..GROUPED).map(grouped).filter(|key| key[..2] < b"05"[..]).collect();
    (0..3).for_each(|_| some.iter().for_each(|key| drop(half.get(key).unwrap())));
    let before = half.counts();
    some.iter().for_each(|key| drop(half.get(key).unwrap()));
    let calls = half.counts().calls - before.calls;
    assert!(calls * 10 < some.len() as u64, "{calls} calls of {}", some.len());
    let top = open(&host, CacheBudget::Top);
    (0..GROUPED)
        .for_each(|n| assert_eq!(top.get(grouped(n)).unwrap().unwrap(), value(&grouped(n))));
    let counts = top.counts();
    assert!(counts.calls <= 2 && counts.cache_bytes * 16 < bytes, "{counts:?} beside {bytes}");
}

#[test]
fn threads_share_a_connection_and_each_gets_its_own_answers() {
    for budget in [CacheBudget::Full, CacheBudget::Bytes(6 << 10)] {
        let (host, keyspace) = filled(3_000, budget);
        let writer = open(&host, CacheBudget::Full);
        assert_eq!(host.sessions(), 2);
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for n in (3_000..).take_while(|_| !done.load(Ordering::Relaxed)) {
                    writer.insert(key(n % 20_000), value(&key(n % 20_000))).unwrap();
                }
            });
            let _ends = Ends(&done);
            let threads: Vec<_> = (0..8u64)
                .map(|thread| {
                    let keyspace = &keyspace;
                    scope.spawn(move || read_on(keyspace, thread))
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        assert_eq!(host.sessions(), 2, "all of them use one connection");
    }
}

/// Reads keys that are there, of which each value proves its key, and writes some of its own.
fn read_on(keyspace: &Keyspace, thread: u64) {
    let mut random = Random::new(thread);
    for round in 0..400u64 {
        let wanted = key(random.below(3_000));
        assert_eq!(keyspace.get(wanted).unwrap().unwrap(), value(&wanted));
        if round % 4 == 0 {
            let keys: Vec<_> = (0..10).map(|_| key(random.below(3_000))).collect();
            let found = keyspace.multi_get(&keys).unwrap();
            assert!(keys.iter().zip(found).all(|(key, found)| found == Some(value(key))));
        }
        if round % 16 == 0 {
            let own = format!("of thread {thread} {round}").into_bytes();
            keyspace.insert(&own, value(&own)).unwrap();
            assert_eq!(keyspace.get(&own).unwrap().unwrap(), value(&own));
            keyspace.remove(&own).unwrap();
            assert_eq!(keyspace.get(&own).unwrap(), None);
            let from = wanted.to_vec();
            let pair = keyspace.range(from..).next().unwrap().unwrap();
            assert_eq!(pair, (wanted.to_vec(), value(&wanted)));
        }
    }
}

#[test]
fn a_value_does_not_go_back() {
    let host = host();
    let (writer, reader) = (open(&host, CacheBudget::Full), open(&host, CacheBudget::Full));
    writer.insert("counter", 0u64.to_be_bytes()).unwrap();
    let written = std::sync::atomic::AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 1..=4_000u64 {
                writer.insert("counter", n.to_be_bytes()).unwrap();
                written.store(n, Ordering::Release);
                writer.insert(key(n), value(&key(n))).unwrap();
            }
        });
        loop {
            let least = written.load(Ordering::Acquire);
            let seen = reader.get("counter").unwrap().unwrap();
            let seen = u64::from_be_bytes(seen.try_into().unwrap());
            assert!(seen >= least, "{seen} after {least} was acknowledged");
            if seen == 4_000 {
                break;
            }
        }
    });
}

/// A store of a test.
#[derive(Default)]
struct Store {
    map: Mutex<Map>,
    publisher: OnceLock<Publisher>,
}

impl Authority for Store {
    fn get(&self, _: &str, key: &[u8]) -> crate::Result<Option<Vec<u8>>> {
        Ok(self.map.lock().unwrap().get(key).cloned())
    }

    fn multi_get(&self, _: &str, keys: &[&[u8]], _: usize) -> crate::Result<Vec<Option<Vec<u8>>>> {
        let map = self.map.lock().unwrap();
        Ok(keys.iter().map(|key| map.get(*key).cloned()).collect())
    }

    fn scan(&self, _: &str, scan: &Scan<'_>) -> crate::Result<(Vec<Pair>, bool)> {
        let map = self.map.lock().unwrap();
        let owned = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone());
        let range = map.range::<[u8], _>((scan.from, scan.to)).map(owned);
        let mut pairs: Vec<Pair> =
            if scan.reverse { range.rev().collect() } else { range.collect() };
        let more = pairs.len() > scan.limit;
        pairs.truncate(scan.limit);
        Ok((pairs, more))
    }

    fn commit(&self, changes: &[Change<'_>]) -> crate::Result<()> {
        let mut map = self.map.lock().unwrap();
        let publisher = self.publisher.get().unwrap();
        for change in changes {
            match change.value {
                Some(value) => {
                    map.insert(change.key.to_vec(), value.to_vec());
                    publisher.insert(change.key, value);
                }
                None => {
                    map.remove(change.key);
                    publisher.remove(change.key);
                }
            }
        }
        publisher.publish(publisher.stats().applied + 1);
        Ok(())
    }

    fn compare_and_swap(&self, _: &Change<'_>, _: Option<&[u8]>) -> crate::Result<bool> {
        Err(Error::refused("not here"))
    }
}

#[test]
fn a_store_is_asked_while_its_copy_is_not_true() {
    let store = std::sync::Arc::new(Store::default());
    let host = builder().share_of("k", options(), store.clone()).start().unwrap();
    let publisher = host.publisher("k").unwrap();
    store.publisher.set(publisher.clone()).unwrap();
    let (keyspace, writer) = (open(&host, CacheBudget::Full), open(&host, CacheBudget::Top));
    let read_all = |map: &Map| {
        for (key, value) in map {
            assert_eq!(keyspace.get(key).unwrap().as_ref(), Some(value));
            assert_eq!(writer.get(key).unwrap().as_ref(), Some(value));
        }
        assert_eq!(keyspace.iter().map(Result::unwrap).collect::<Map>(), *map);
        assert_eq!(keyspace.get("absent").unwrap(), None);
    };
    for round in 0..6u64 {
        // It is suspended: everything is asked for.
        for n in round * 500..round * 500 + 700 {
            writer.insert(key(n), value(&key(round))).unwrap();
        }
        let map = store.map.lock().unwrap().clone();
        let before = keyspace.counts();
        read_all(&map);
        assert!(keyspace.counts().calls - before.calls > map.len() as u64);
        assert_eq!(keyspace.counts().stale, before.stale, "no guess is wrong");
        let load = publisher.begin_load().unwrap();
        writer.insert(key(round), "meanwhile").unwrap();
        let changed = store.map.lock().unwrap().clone();
        read_all(&changed);
        let pairs: Vec<_> =
            map.iter().map(|(key, value)| Ok((key.clone(), value.clone()))).collect();
        assert!(load.finish(pairs).unwrap());
        let map = store.map.lock().unwrap().clone();
        read_all(&map);
        let before = keyspace.counts();
        map.keys().for_each(|key| assert!(keyspace.get(key).unwrap().is_some()));
        assert_eq!(keyspace.counts().calls, before.calls);
        publisher.reset();
    }
}

#[test]
fn only_the_token_lets_a_client_in() {
    let dir = tempfile::tempdir().unwrap();
    let builder = builder().listen(dir.path().join("s")).token("open sesame");
    let host = builder.share("k", options()).start().unwrap();
    let connect = |token: Option<&str>| {
        let builder = Client::builder(address(&host));
        token.map_or(builder.clone(), |token| builder.token(token)).connect()
    };
    for token in [None, Some(""), Some("open"), Some("open sesame!"), Some("Open sesame")] {
        let error = connect(token).unwrap_err();
        assert!(
            matches!(error, Error::Refused { code: failure::REFUSED, .. }),
            "{token:?} {error}"
        );
        assert!(error.to_string().contains("token"), "{error}");
    }
    let error = connect(Some(&"x".repeat(300))).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
    let keyspace = connect(Some("open sesame")).unwrap().keyspace("k").unwrap();
    keyspace.insert("a", "1").unwrap();
    // The Unix socket has its own guard.
    let local = Client::connect(host.path()).unwrap().keyspace("k").unwrap();
    assert_eq!(local.get("a").unwrap().unwrap(), b"1");
    assert_eq!(local.counts().reads, 0);
}

#[test]
fn an_address_that_others_reach_needs_a_token() {
    let any: SocketAddr = "0.0.0.0:0".parse().unwrap();
    let builder = || Host::builder().listen_tcp(any).share("k", options());
    let error = builder().start().unwrap_err();
    assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
    assert!(error.to_string().contains("without a token"), "{error}");
    drop(builder().token("t").start().unwrap());
    let host = builder().allow_open(true).start().unwrap();
    let port = host.tcp_addresses()[0].port();
    let client = Client::connect(format!("tcp:localhost:{port}")).unwrap();
    client.keyspace("k").unwrap().insert("a", "1").unwrap();
    assert!(matches!(Host::builder().start(), Err(Error::InvalidArgument(_))));
    // Another host cannot have the same port, and says so.
    let taken = Host::builder().listen_tcp(host.tcp_addresses()[0]).allow_open(true);
    let taken = taken.start().unwrap_err();
    assert!(matches!(taken, Error::Io { .. }), "{taken}");
}

#[test]
fn a_client_goes_on_with_the_next_host_and_drops_what_it_kept() {
    let host = host_with_groups();
    let keyspace = open(&host, CacheBudget::Full);
    (0..GROUPED).for_each(|n| drop(keyspace.get(grouped(n)).unwrap()));
    let (at, kept) = (host.tcp_addresses()[0], keyspace.counts().cache_bytes);
    drop(host);
    let host = Host::builder().listen_tcp(at).share("k", options()).start().unwrap();
    assert_eq!(keyspace.get(grouped(1)).unwrap(), None);
    let counts = keyspace.counts();
    assert!(counts.cache_bytes < kept / 8, "{} of {kept}", counts.cache_bytes);
    keyspace.insert("a", "of the next").unwrap();
    assert_eq!(keyspace.get("a").unwrap().unwrap(), b"of the next");
    drop(host);
    assert!(matches!(keyspace.insert("a", "1"), Err(Error::Closed | Error::Io { .. })));
    let host = Host::builder().listen_tcp(at).share("other", options()).start().unwrap();
    let refused = keyspace.get("a");
    assert!(matches!(refused, Err(Error::Refused { code: failure::NO_SUCH_KEYSPACE, .. })));
    drop(host);
}

#[test]
fn values_that_fit_no_message_together_come_in_several() {
    let host = host();
    let keyspace = open(&host, CacheBudget::Full);
    let value = |n: u64| vec![n as u8; 7 << 20];
    (0..4).for_each(|n| keyspace.insert(key(n), value(n)).unwrap());
    let found = keyspace.multi_get(&[0, 1, 2, 3, 4].map(key)).unwrap();
    assert!(found.iter().zip(0..4).all(|(found, n)| found.as_ref() == Some(&value(n))));
    assert_eq!(found[4], None);
    assert_eq!(keyspace.iter().map(Result::unwrap).count(), 4);
    assert_eq!(keyspace.get(key(3)).unwrap().unwrap(), value(3));
}

#[test]
fn what_needs_a_mapped_region_says_so() {
    let host = host();
    let keyspace = open(&host, CacheBudget::Full);
    assert!(matches!(keyspace.inspect(false), Err(Error::Unsupported(_))));
    assert_eq!(keyspace.probe(3, 10), 3);
    keyspace.insert("a", "1").unwrap();
    assert_eq!(keyspace.by_calls().get("a").unwrap().unwrap(), b"1");
    let error = Client::connect("rdma:localhost:1").unwrap_err();
    match cfg!(feature = "rdma") {
        true => assert!(matches!(error, Error::Io { .. }), "{error}"),
        false => assert!(matches!(error, Error::Unsupported(_)), "{error}"),
    }
    let error = Client::connect("tcp:127.0.0.1:1").unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error}");
}
