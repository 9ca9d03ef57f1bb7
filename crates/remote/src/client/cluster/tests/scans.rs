//! Scans over all borders.

use super::*;

fn key(n: u64) -> Vec<u8> {
    format!("{:03}", n).into_bytes()
}

#[test]
fn scans_cross_all_borders_both_ways() {
    kinds().for_each(cross_all_borders);
}

fn cross_all_borders(kind: Kind) {
    // A host with two ranges, one range without a key, and borders that are keys.
    let owners = [("", 0), ("010", 1), ("0105", 2), ("020", 0), ("0300", 1)];
    let owners = owners.map(|(low, owner)| (low.as_bytes().to_vec(), owner));
    let hosts = Hosts::start(kind, 3, owners.to_vec());
    let keyspace = hosts.keyspace();
    for n in 0..50 {
        keyspace.insert(key(n), n.to_string()).unwrap();
    }
    let all: Vec<Vec<u8>> = (0..50).map(key).collect();
    let keys = |range: ClusterRange| range.map(|pair| pair.unwrap().0).collect::<Vec<_>>();
    assert_eq!(keys(keyspace.iter()), all);
    let reverse: Vec<_> = keyspace.iter().rev().map(|pair| pair.unwrap().0).collect();
    assert!(reverse.iter().eq(all.iter().rev()));
    for (from, to) in [(0, 50), (5, 25), (10, 20), (9, 10), (19, 31), (30, 30), (49, 50)] {
        let range = || keyspace.range(&key(from)[..]..&key(to)[..]);
        let wanted = &all[from as usize..to as usize];
        assert_eq!(keys(range()), wanted, "{from} to {to}");
        assert!(range().rev().map(|pair| pair.unwrap().0).eq(wanted.iter().rev().cloned()));
        for limit in 0..wanted.len() {
            let few: Vec<_> = range().take(limit).map(|pair| pair.unwrap().0).collect();
            assert_eq!(few, wanted[..limit]);
            let few: Vec<_> = range().rev().take(limit).map(|pair| pair.unwrap().0).collect();
            assert!(few.iter().eq(wanted.iter().rev().take(limit)));
        }
    }
    // From both ends at once, until they meet.
    for turns in [1, 2, 3] {
        let (mut range, mut low, mut high) = (keyspace.iter(), Vec::new(), Vec::new());
        while let Some(pair) = range.next() {
            low.push(pair.unwrap().0);
            for _ in 0..turns {
                high.extend(range.next_back().map(|pair| pair.unwrap().0));
            }
        }
        low.extend(high.into_iter().rev());
        assert_eq!(low, all);
    }
    assert_eq!(keys(keyspace.prefix("01")), all[10..20]);
    assert_eq!(keyspace.first().unwrap().unwrap().0, all[0]);
    assert_eq!(keyspace.last().unwrap().unwrap().0, all[49]);
}

#[test]
fn a_scan_takes_one_read_more_for_each_host() {
    let hosts = Hosts::with_borders(RUNS, &["1", "2", "3"]);
    let ranges = hosts.table.ranges().zip(&hosts.hosts).map(|((low, _, _), host)| {
        let port = host.tcp_addresses()[0].port();
        (low.to_vec(), Address::Tcp { host: "127.0.0.1".into(), port })
    });
    let table = RoutingTable::new(7, ranges.collect::<Vec<_>>()).unwrap();
    for (host, (_, _, address)) in hosts.hosts.iter().zip(table.ranges()) {
        host.serve(NAME, Served::by(&table, address)).unwrap();
    }
    let keyspace = Cluster::new(table).keyspace(NAME);
    for n in 0..400u32 {
        keyspace.insert(format!("{}{:03}", n / 100, n), "v").unwrap();
    }
    let trips = || keyspace.counts().iter().map(|(_, counts)| counts.round_trips).sum::<u64>();
    let before = trips();
    assert_eq!(keyspace.range("0090".."1110").count(), 20);
    assert_eq!(trips() - before, 2, "one read for each of two hosts");
    let before = trips();
    assert_eq!(keyspace.range("1195".."3305").count(), 5 + 100 + 5);
    // A first read brings 32 pairs, the next one the rest.
    assert_eq!(trips() - before, 1 + 2 + 1);
    let wanted = ["0000", "1100", "2200", "3300"];
    for _ in 0..3 {
        assert!(keyspace.multi_get(&wanted).unwrap().iter().all(Option::is_some));
    }
    let before = trips();
    keyspace.multi_get(&wanted).unwrap();
    assert_eq!(trips() - before, 4, "each has a directory of its own by now");
    assert_eq!(keyspace.counts().len(), 4);
}

#[test]
fn a_scan_of_mapped_memory_looks_at_one_leaf_more_for_each_host() {
    // Every other host is reached over TCP, where nothing is looked at.
    let owners = [("", 0), ("2", 2), ("4", 4)];
    let hosts = Hosts::start(RUNS, 5, owners.map(|(low, owner)| (low.into(), owner)).to_vec());
    let keyspace = hosts.keyspace();
    for n in 0..6 {
        keyspace.insert(n.to_string(), "v").unwrap();
    }
    let counted = keyspace.counted();
    let mut looks = 0;
    for (to, leaves) in [("2", 1), ("3", 2), ("4", 2), ("5", 3)] {
        assert_eq!(counted.range("0"..to).count(), to.parse().unwrap());
        looks += leaves;
        assert_eq!(counted.looks(), looks, "up to {to}");
    }
    // A scan that has enough does not go on at the next host.
    assert_eq!(counted.range("0"..).take(2).count(), 2);
    assert_eq!((counted.looks(), counted.calls(), keyspace.looks()), (looks + 1, 0, 0));
    let called = keyspace.by_calls();
    assert_eq!(called.iter().count(), 6);
    assert_eq!((called.calls(), called.looks()), (3, 0));
}
