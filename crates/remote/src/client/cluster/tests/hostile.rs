//! Tables that are wrong, old or endless.

use super::*;
use crate::message::format::{ITEMS_MAX, KEY_BYTES_MAX};

fn unix(path: &str) -> Address {
    Address::Unix(path.into())
}

#[test]
fn tables_that_say_nothing_certain_are_refused() {
    let a = || unix("a");
    let huge = (0..=ITEMS_MAX as u32).map(|n| {
        let low = if n == 0 { Vec::new() } else { n.to_be_bytes().to_vec() };
        (low, a())
    });
    let new = |epoch, ranges: &[(&str, Address)]| RoutingTable::new(epoch, ranges.to_vec());
    let long = "k".repeat(KEY_BYTES_MAX + 1);
    for (table, what) in [
        (new(0, &[("", a())]), "epoch 0"),
        (new(1, &[]), "without a range"),
        (new(1, &[("a", a())]), "lower keys have no host"),
        (new(1, &[("", a()), ("", a())]), "keys ascend"),
        (new(1, &[("", a()), ("b", a()), ("a", a())]), "\"a\" follows \"b\""),
        (new(1, &[("", a()), (&long, a())]), "a key of 65536 bytes"),
        (new(1, &[("", unix(&"p".repeat(1_025)))]), "no text"),
        (RoutingTable::new(1, huge), "more than 65536 ranges"),
    ] {
        let error = table.unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)));
        assert!(error.to_string().contains(what), "{error}");
    }
}

#[test]
fn tables_of_files_are_read_or_refused() {
    let ok = "# Two hosts.\nepoch 2\n\n  from \"\" a\nfrom  \"\\xff\\x00\"  tcp:h:1 \n";
    let ok = RoutingTable::parse(ok).unwrap();
    assert_eq!((ok.epoch(), ok.len(), ok.servers().len()), (2, 2, 2));
    let ranges: Vec<_> = ok.ranges().collect();
    assert_eq!(ranges[0], (&b""[..], Some(&b"\xff\0"[..]), &unix("a")));
    assert_eq!(ok.server_of("a"), &unix("a"));
    assert_eq!(ok.server_of(b"\xff\0\0").to_string(), "tcp:h:1");
    let odd = RoutingTable::new(9, [("", unix("a \"\\\n\u{1}b")), ("\"\\\n\u{7f}é", unix("b"))]);
    for table in [&ok, &odd.unwrap()] {
        let text = table.to_string();
        assert_eq!(&RoutingTable::parse(&text).unwrap(), table, "{text}");
    }
    for (text, what) in [
        ("", "begins with `epoch`"),
        ("epoch\n", "begins with `epoch`"),
        ("epoch -1\n", "begins with `epoch`"),
        ("epoch 18446744073709551616\n", "begins with `epoch`"),
        ("from \"\" a\nepoch 1\n", "begins with `epoch`"),
        ("epoch 0\nfrom \"\" a\n", "epoch 0"),
        ("epoch 1\n", "without a range"),
        ("epoch 1\n\nepoch 2\n", "line 3: a range is `from`"),
        ("epoch 1\nfrom a b\n", "line 2: a range is `from`"),
        ("epoch 1\nfrom \"\n", "a quote without its end"),
        ("epoch 1\nfrom \"\\\" a\n", "a quote without its end"),
        ("epoch 1\nfrom \"\\y\" a\n", "no escape"),
        ("epoch 1\nfrom \"\\x+1\" a\n", "no escape"),
        ("epoch 1\nfrom \"\\x0\" a\n", "no escape"),
        ("epoch 1\nfrom \"\\xé\" a\n", "no escape"),
        ("epoch 1\nfrom \"\"\n", "no address"),
        ("epoch 1\nfrom \"\" a b\n", "stands in quotes"),
        ("epoch 1\nfrom \"\" \"a\" b\n", "after the address"),
        ("epoch 1\nfrom \"\" \"\\xff\"\n", "an address"),
        ("epoch 1\nfrom \"\" tcp:x\n", "no port"),
        ("epoch 1\nfrom \"a\" x\n", "lower keys have no host"),
        ("epoch 1\nfrom \"\" x\nfrom \"\" x\n", "keys ascend"),
    ] {
        let error = RoutingTable::parse(text).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)));
        assert!(error.to_string().contains(what), "{text}: {error}");
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("table.txt");
    let error = RoutingTable::read(&path).unwrap_err();
    assert!(error.to_string().contains("table.txt"), "{error}");
    std::fs::write(&path, "epoch 1").unwrap();
    let error = RoutingTable::read(&path).unwrap_err().to_string();
    assert!(error.contains("table.txt") && error.contains("without a range"), "{error}");
    std::fs::write(&path, ok.to_string()).unwrap();
    assert_eq!(RoutingTable::read(&path).unwrap(), ok);
}

#[test]
fn old_tables_are_replaced_by_what_any_host_has() {
    let mut hosts = Hosts::with_borders(RUNS, &["h", "p"]);
    let old = hosts.keyspace();
    for key in ["a", "h", "p"] {
        old.insert(key, key).unwrap();
    }
    for (range, to) in [(0, 1), (1, 2), (2, 0)] {
        hosts.move_range(range, to);
    }
    assert_eq!(old.get("a").unwrap().unwrap(), b"a");
    assert_eq!(old.table(), hosts.table);
    // A host that was told nothing of it yet says `Moved` too, and others know.
    let ranges = [("", hosts.addresses[2].clone())];
    let wrong = Cluster::new(RoutingTable::new(1, ranges).unwrap());
    assert_eq!(wrong.keyspace(NAME).get("p").unwrap().unwrap(), b"p");
    // Any host has the table.
    for address in &hosts.addresses {
        let asked = Cluster::builder().ask(address.to_string(), NAME).unwrap();
        assert_eq!(asked.keyspace(NAME).table(), hosts.table);
    }
    // An older one is refused, and not followed.
    let first = table(1, &hosts.owners, &hosts.addresses);
    let error = hosts.hosts[0].serve(NAME, Served::nothing().table(&first)).unwrap_err();
    assert!(error.to_string().contains("epoch 1"), "{error}");
    old.set_table(&first);
    assert_eq!(old.table(), hosts.table);
}

#[test]
fn hosts_that_send_clients_in_circles_are_given_up() {
    let hosts = Hosts::with_borders(RUNS, &["m"]);
    // Each names the other, and the tables become newer and newer.
    let table = |epoch: u64| {
        let owner = (epoch % 2) as usize;
        RoutingTable::new(epoch, [("", hosts.addresses[owner].clone())]).unwrap()
    };
    let stop = std::sync::atomic::AtomicBool::new(false);
    let epoch = AtomicU64::new(2);
    let next = || {
        let epoch = epoch.fetch_add(1, Ordering::Relaxed);
        let host = &hosts.hosts[(epoch % 2) as usize ^ 1];
        host.serve(NAME, Served::nothing().table(&table(epoch))).unwrap();
    };
    (0..4).for_each(|_| next());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                next();
                std::thread::yield_now();
            }
        });
        let patience = Duration::from_millis(100);
        let keyspace = Cluster::builder().patience(patience).open(table(1)).keyspace(NAME);
        let errors = [
            keyspace.get("a").map(drop).unwrap_err(),
            keyspace.insert("a", "1").unwrap_err(),
            keyspace.multi_get(&["a", "z"]).map(drop).unwrap_err(),
            keyspace.iter().next().unwrap().map(drop).unwrap_err(),
            keyspace.iter().next_back().unwrap().map(drop).unwrap_err(),
        ];
        stop.store(true, Ordering::Relaxed);
        for error in errors {
            let Error::Server { source, .. } = &error else { panic!("{error:?}") };
            assert!(matches!(**source, Error::Moved { .. }), "{error}");
        }
    });
}

#[test]
fn hosts_without_a_table_are_asked_and_left() {
    let hosts = Hosts::with_borders(RUNS, &[]);
    let host = Host::listen(hosts.hosts[0].path().with_extension("bare"));
    let host = host.share(NAME, ShareOptions::default()).start().unwrap();
    let error = Cluster::builder().ask(host.path(), NAME).unwrap_err();
    assert!(error.to_string().contains("no routing table"), "{error}");
    // One that serves everything takes any part of a table.
    let table = RoutingTable::new(1, [("", unix(host.path().to_str().unwrap()))]).unwrap();
    let keyspace = Cluster::new(table).keyspace(NAME);
    keyspace.insert("a", "1").unwrap();
    assert_eq!(keyspace.iter().count(), 1);
    assert_eq!(keyspace.table().epoch(), 1);
}
