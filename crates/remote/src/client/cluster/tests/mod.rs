//! Hosts of one process that have a part of a keyspace each, and how parts move among them.

mod hostile;
mod models;
mod moving;
mod property;
mod scans;
mod store;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use self::store::Store;
use super::*;
use crate::{Client, Host, HostBuilder, Keyspace, Preset, Served, ShareOptions};

/// The name of the keyspace that is shared.
const NAME: &str = "k";

/// How the hosts of a test share the keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    preset: Preset,
    /// True for copies of a store; otherwise the keyspace is volatile.
    is_copy: bool,
}

/// The default preset, in memory alone.
const RUNS: Kind = Kind { preset: Preset::Rhumb, is_copy: false };

/// All kinds.
fn kinds() -> impl Iterator<Item = Kind> {
    let both = |preset| [false, true].map(|is_copy| Kind { preset, is_copy });
    Preset::ALL.into_iter().flat_map(both)
}

impl Kind {
    /// Shares the keyspace; and the store, if it is of one.
    fn share(self, builder: HostBuilder) -> (HostBuilder, Option<Arc<Store>>) {
        let options = ShareOptions::default().capacity_bytes(64 << 20).entry_bytes(40);
        let options = options.preset(self.preset);
        if !self.is_copy {
            return (builder.share(NAME, options), None);
        }
        let store = Arc::new(Store::default());
        (builder.share_of(NAME, options, Arc::clone(&store) as _), Some(store))
    }
}

/// Some hosts, every other one over TCP, and which of them has which keys.
struct Hosts {
    hosts: Vec<Host>,
    addresses: Vec<Address>,
    /// The first key of each range, and the host that has it.
    owners: Vec<(Vec<u8>, usize)>,
    table: RoutingTable,
    _dir: tempfile::TempDir,
}

/// The table of these owners.
fn table(epoch: u64, owners: &[(Vec<u8>, usize)], addresses: &[Address]) -> RoutingTable {
    let ranges = owners.iter().map(|(low, owner)| (low, addresses[*owner].clone()));
    RoutingTable::new(epoch, ranges).unwrap()
}

impl Hosts {
    /// Starts `count` hosts of a kind with these owners.
    fn start(kind: Kind, count: usize, owners: Vec<(Vec<u8>, usize)>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (mut hosts, mut addresses) = (Vec::new(), Vec::new());
        for number in 0..count {
            let path = dir.path().join(format!("{number}.sock"));
            let builder = Host::listen(&path).listen_tcp("127.0.0.1:0".parse().unwrap());
            let (builder, store) = kind.share(builder);
            let host = builder.serve(NAME, Served::nothing()).start().unwrap();
            store.into_iter().for_each(|store| store.keep_loaded(&host));
            let port = host.tcp_addresses()[0].port();
            addresses.push(if number % 2 == 0 {
                Address::Unix(path)
            } else {
                Address::Tcp { host: "127.0.0.1".into(), port }
            });
            hosts.push(host);
        }
        let table = table(1, &owners, &addresses);
        for (host, address) in hosts.iter().zip(&addresses) {
            host.serve(NAME, Served::by(&table, address)).unwrap();
        }
        Self { hosts, addresses, owners, table, _dir: dir }
    }

    /// Hosts with a range each, from these keys on.
    fn with_borders(kind: Kind, borders: &[&str]) -> Self {
        let lows = [""].iter().chain(borders);
        let owners = lows.enumerate().map(|(owner, low)| (low.as_bytes().to_vec(), owner));
        Self::start(kind, borders.len() + 1, owners.collect())
    }

    fn keyspace(&self) -> ClusterKeyspace {
        Cluster::new(self.table.clone()).keyspace(NAME)
    }

    /// A client of one host alone.
    fn alone(&self, host: usize) -> Keyspace {
        let address = self.addresses[host].to_string();
        Client::connect(address).unwrap().keyspace(NAME).unwrap()
    }

    /// The addresses of one host, both ways.
    fn ways(&self, host: usize) -> [Address; 2] {
        let host = &self.hosts[host];
        let port = host.tcp_addresses()[0].port();
        [Address::Unix(host.path().to_owned()), Address::Tcp { host: "127.0.0.1".into(), port }]
    }

    /// Moves a range to another host, by the steps that `Served` names.
    fn move_range(&mut self, range: usize, to: usize) {
        let from = std::mem::replace(&mut self.owners[range].1, to);
        if from == to {
            return;
        }
        let keys = self.table.keys(range);
        let (low, high) = (&keys.low[..], keys.high.as_deref());
        let before = Served::by(&self.table, &self.addresses[from]);
        let epoch = self.table.epoch() + 1;
        self.table = table(epoch, &self.owners, &self.addresses);
        self.hosts[from].serve(NAME, before.read_only(low, high)).unwrap();
        let source = self.alone(from);
        self.hosts[to].copy_from(NAME, &source, low, high).unwrap();
        self.serve(from);
        self.serve(to);
        for other in (0..self.hosts.len()).filter(|other| ![from, to].contains(other)) {
            self.serve(other);
        }
        self.hosts[from].remove_unserved(NAME).unwrap();
    }

    /// Has a host serve what the table says.
    fn serve(&self, host: usize) {
        let served = Served::by(&self.table, &self.addresses[host]);
        self.hosts[host].serve(NAME, served).unwrap();
    }
}

#[track_caller]
fn assert_moved<T: std::fmt::Debug>(result: Result<T>) {
    assert!(matches!(result, Err(Error::Moved { .. })), "{result:?}");
}

#[test]
fn a_client_of_one_host_never_answers_for_keys_of_another() {
    for kind in kinds() {
        answers_for_no_keys_of_another(kind);
    }
}

fn answers_for_no_keys_of_another(kind: Kind) {
    let mut hosts = Hosts::with_borders(kind, &["m"]);
    for address in hosts.ways(0) {
        let alone = Client::connect(address.to_string()).unwrap().keyspace(NAME).unwrap();
        for key in ["a", "b", "l"] {
            alone.insert(key, key).unwrap();
        }
        assert_eq!(alone.get("b").unwrap().unwrap(), b"b");
        assert_eq!(alone.get("c").unwrap(), None);
        for key in ["m", "n", "z"] {
            assert_moved(alone.get(key));
            assert_moved(alone.insert(key, key));
            assert_moved(alone.remove(key));
            assert_moved(alone.compare_and_swap(key, None, Some(b"1")));
            assert_moved(alone.multi_get(&["a", key]));
            assert_moved(alone.multi_get_atomic(&["a", key]));
            assert_moved(alone.range_atomic("a"..key.to_owned().as_str(), 9).and_then(|pairs| {
                // The border itself is outside.
                if key == "m" { Err(Error::Moved { epoch: 0 }) } else { Ok(pairs) }
            }));
        }
        let found: Vec<Result<_>> = alone.range("b".."m").collect();
        assert_eq!(found.len(), 2, "{found:?}");
        let found: Vec<Result<_>> = alone.range("b"..="m").collect();
        assert_moved(found.last().unwrap().clone());
        let found: Vec<Result<_>> = alone.iter().collect();
        assert_moved(found.last().unwrap().clone());
        // A host that is asked for a range that it has a part of alone answers nothing.
        match (&address, alone.first()) {
            (_, Ok(first)) => assert_eq!(first.unwrap().0, b"a"),
            (Address::Tcp { .. }, first) => assert_moved(first),
            (_, Err(error)) => panic!("{kind:?}: {error}"),
        }
        assert_moved(alone.last());
    }
    // A range leaves: what is still in memory is not answered, nor absent once it is not.
    let alone = hosts.alone(0);
    assert_eq!(alone.get("l").unwrap().unwrap(), b"l");
    hosts.owners = vec![(b"".to_vec(), 0), (b"l".to_vec(), 1)];
    hosts.table = table(2, &hosts.owners, &hosts.addresses);
    hosts.serve(0);
    assert_moved(alone.get("l"));
    assert_moved(alone.multi_get(&["l"]));
    assert_eq!(alone.range("a".."l").count(), 2);
    assert_eq!(hosts.hosts[0].remove_unserved(NAME).unwrap(), 1);
    assert_moved(alone.get("l"));
    assert_eq!(alone.get("b").unwrap().unwrap(), b"b");
    assert_eq!(alone.get("c").unwrap(), None);
    // Reads look into memory again once the bounds are known, but for what level bins hold.
    if kind.preset != Preset::FineStore {
        let calls = alone.calls();
        assert_eq!(alone.get("b").unwrap().unwrap(), b"b");
        assert_eq!(alone.calls(), calls, "{kind:?}");
    }
}

#[test]
fn each_key_is_asked_for_at_its_host() {
    for kind in kinds() {
        asks_each_host_for_its_keys(kind);
    }
}

fn asks_each_host_for_its_keys(kind: Kind) {
    let hosts = Hosts::with_borders(kind, &["h", "p"]);
    let keyspace = hosts.keyspace();
    for key in ["a", "h", "o", "p", "z"] {
        keyspace.insert(key, key).unwrap();
    }
    let entries = |host: usize| hosts.hosts[host].stats(NAME).unwrap().entries;
    assert_eq!([entries(0), entries(1), entries(2)], [1, 2, 2]);
    let found = keyspace.multi_get(&["z", "a", "b", "p", "o", "h"]).unwrap();
    let wanted = ["z", "a", "", "p", "o", "h"].map(|key| Some(key.as_bytes().to_vec()));
    let wanted = wanted.map(|value| value.filter(|value| !value.is_empty()));
    assert_eq!(found, wanted);
    assert!(keyspace.compare_and_swap("p", Some(b"p"), Some(b"2")).unwrap());
    assert!(!keyspace.compare_and_swap("p", Some(b"p"), None).unwrap());
    assert_eq!(keyspace.get("p").unwrap().unwrap(), b"2");
    let mut batch = keyspace.batch();
    batch.insert("i", "1");
    batch.remove("h");
    assert_eq!((batch.len(), batch.is_empty()), (2, false));
    batch.commit().unwrap();
    assert_eq!(keyspace.multi_get_atomic(&["h", "i"]).unwrap(), [None, Some(b"1".to_vec())]);
    let pairs = keyspace.range_atomic("h".."p", 9).unwrap();
    assert_eq!(pairs.iter().map(|(key, _)| &key[..]).collect::<Vec<_>>(), [b"i", b"o"]);
    // What one host cannot do says so.
    let mut batch = keyspace.batch();
    batch.insert("a", "1");
    batch.insert("z", "1");
    for error in [
        batch.commit().unwrap_err(),
        keyspace.multi_get_atomic(&["a", "z"]).unwrap_err(),
        keyspace.range_atomic("i"..="p", 9).unwrap_err(),
        keyspace.range_atomic::<&str>(.., 9).unwrap_err(),
    ] {
        let text = error.to_string();
        assert!(matches!(error, Error::InvalidArgument(_)), "{text}");
        assert!(text.contains("only keys of one host"), "{text}");
    }
    assert_eq!(keyspace.get("a").unwrap().unwrap(), b"a");
    assert!(keyspace.batch().commit().is_ok() && keyspace.multi_get::<&str>(&[]).is_ok());
}

#[test]
fn a_host_that_is_down_concerns_its_own_keys_alone() {
    kinds().for_each(keys_of_others_are_there);
}

fn keys_of_others_are_there(kind: Kind) {
    let hosts = Hosts::with_borders(kind, &["m"]);
    let down = Address::Unix(hosts.hosts[0].path().with_extension("none"));
    let ranges = [("", hosts.addresses[0].clone()), ("m", down), ("t", hosts.addresses[1].clone())];
    let keyspace = Cluster::new(RoutingTable::new(1, ranges).unwrap()).keyspace(NAME);
    for key in ["a", "b", "t"] {
        keyspace.insert(key, key).unwrap();
    }
    let range: Vec<Result<_>> = keyspace.iter().collect();
    assert_eq!((range.len(), range[1].is_ok()), (3, true));
    for error in [
        keyspace.get("n").unwrap_err(),
        keyspace.insert("n", "1").unwrap_err(),
        keyspace.multi_get(&["a", "n", "t"]).unwrap_err(),
        range[2].clone().unwrap_err(),
    ] {
        let Error::Server { server, source } = &error else { panic!("{error:?}") };
        assert!(server.contains("0.none (keys from \"m\" to before \"t\")"), "{server}");
        assert!(matches!(**source, Error::Io { .. }));
    }
    assert_eq!(keyspace.multi_get(&["a", "t"]).unwrap().iter().flatten().count(), 2);
    assert_eq!(keyspace.first().unwrap().unwrap().0, b"a");
    assert_eq!(keyspace.last().unwrap().unwrap().0, b"t");
    assert_eq!(keyspace.range("t"..).count(), 1);
}
