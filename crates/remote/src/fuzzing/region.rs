//! Regions of runs. The first byte says what is hostile: the directory, all of a region, or a
//! region that is made up; the rest is damage, or the words of the region.

use std::{ops::Bound, sync::LazyLock};

use super::{Input, Map, copied, probes, sample, used};
use crate::{
    client::{Outcome, Page, Reader},
    host::{Space, Table, heap::HeapSpace},
    layout::{Geometry, control, format::UNIT_BYTES},
    leaf::Entry,
    primitive::AtomicU64,
};

/// Pages of a scan that are read at most: a hostile region may go on for ever, and a range of a
/// client ends where a page does not go forward.
const PAGES_MAX: usize = 64;

/// A region and what is in it.
struct Sound {
    control: Vec<u64>,
    leaves: Vec<u64>,
    map: Map,
}

fn geometry() -> Geometry {
    Geometry::new(512, 24).expect("a size that is allowed")
}

/// A region with splits, siblings, runs that were built anew, and removed keys.
static SOUND: LazyLock<Sound> = LazyLock::new(|| {
    let (mut map, geometry) = (sample(), geometry());
    let space = || HeapSpace::new(64 << 10, 2 << 20);
    let entries = map.iter().map(|(key, value)| Entry::new(geometry, key, value));
    let mut table = Table::build(geometry, space(), space(), entries).expect("there is room");
    for n in 0..600u64 {
        let key = ((n * 7919 % 240) << 34 | n << 20).to_be_bytes().to_vec();
        table.set(&key, b"later", n).expect("there is room");
        map.insert(key, b"later".to_vec());
        if n % 5 == 0 {
            let key = map.keys().nth(n as usize % map.len()).cloned().unwrap_or_default();
            table.remove(&key, n);
            map.remove(&key);
        }
        table.publish(n);
    }
    let control = used(table.control_space().words());
    Sound { control, leaves: used(table.leaf_space().words()), map }
});

/// Reads a hostile region by gets and scans.
pub fn region(data: &[u8]) {
    let mut input = Input(data);
    let kind = input.number(1) % 3;
    if kind == 2 {
        let words = |bytes: &[u8]| {
            bytes.chunks(8).map(|chunk| Input(chunk).number(8)).collect::<Vec<u64>>()
        };
        let half = input.take(input.0.len() / 2);
        // As long as the shortest that a header is read of.
        let control = copied(&[words(half), vec![0; UNIT_BYTES / 8]].concat());
        let leaves = copied(&words(input.0));
        control::write_header(&control, geometry());
        return read(&control, &leaves, None);
    }
    let (control, leaves) = (copied(&SOUND.control), copied(&SOUND.leaves));
    if kind == 0 {
        // What lies after the header: the top's place, the top and the blocks.
        input.damage(&control[3..]);
    } else {
        let turns = input.number(1) % 4;
        input.damage(if turns == 0 { &control[3..] } else { &leaves });
    }
    read(&control, &leaves, (kind == 0).then_some(&SOUND.map));
}

/// Reads; with a map, the answers are the map's.
fn read(control: &[AtomicU64], leaves: &[AtomicU64], map: Option<&Map>) {
    let reader = Reader::new(control, leaves).expect("its header is right");
    let probes = probes(&SOUND.map);
    let mut out = Vec::new();
    for key in &probes {
        out.clear();
        let outcome = reader.get(key, &mut out);
        assert!(out.len() <= leaves.len() * 8, "more than there is");
        match (outcome, map) {
            (Outcome::Found, Some(map)) => assert_eq!(map.get(key), Some(&out), "{key:?}"),
            (Outcome::Absent, Some(map)) => assert_eq!(map.get(key), None, "{key:?}"),
            _ => {}
        }
    }
    reader.multi_get(&probes, |index, outcome, value| {
        if let (Outcome::Found, Some(map)) = (outcome, map) {
            assert_eq!(map.get(&probes[index]).map(Vec::as_slice), Some(value));
        }
    });
    for limit in [usize::MAX, 5] {
        scan(&reader, map, false, limit);
        scan(&reader, map, true, limit);
    }
}

/// Scans from an end, with pages of `limit` pairs at most; with a map, each is a part of it.
fn scan(reader: &Reader<'_>, map: Option<&Map>, down: bool, limit: usize) {
    let (mut at, mut page) = (None::<Vec<u8>>, Page::default());
    for _ in 0..PAGES_MAX {
        let bound = match &at {
            None => Bound::Unbounded,
            Some(at) if down => Bound::Excluded(&at[..]),
            Some(at) => Bound::Included(&at[..]),
        };
        let is_read = if down {
            reader.page_down(bound, limit, &mut page)
        } else {
            reader.page_up(bound, limit, &mut page)
        };
        if !is_read {
            return;
        }
        let pairs = &page.pairs;
        assert!(pairs.len() <= limit.min(255), "more than a leaf counts");
        let next = page.next.clone();
        if let Some(map) = map.filter(|_| !page.has_long_keys) {
            let bound = |key: &Option<Vec<u8>>| key.clone();
            let (low, high) = if down { (bound(&next), at) } else { (at, bound(&next)) };
            let low = low.map_or(Bound::Unbounded, Bound::Included);
            let high = high.map_or(Bound::Unbounded, Bound::Excluded);
            let mut expected: Vec<_> = map.range((low, high)).map(|(key, _)| key).collect();
            if down {
                expected.reverse();
            }
            assert!(pairs.iter().map(|(key, _)| key).eq(expected), "a page of other keys");
            let is_right = |(key, value): (&[u8], Option<&[u8]>)| {
                value.is_none_or(|value| map.get(key).is_some_and(|right| right == value))
            };
            assert!(pairs.iter().all(is_right), "a page of other values");
        }
        let Some(next) = next else { return };
        at = Some(next);
    }
}
