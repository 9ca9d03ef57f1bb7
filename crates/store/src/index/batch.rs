//! Lookups of many keys: stage by stage for a few keys at a time, so that their cache misses overlap.

use std::borrow::Borrow;

use super::{
    core::{Core, reader},
    key::{Key, image::QueryOf},
    kinds::AnyLeaf,
    raw::{bucket::Bucket, epoch::Guard, leaf::Leaf},
    schema::{Of, Probe, with_probe},
    value::Value,
};

/// Keys of one round.
const ROUND: usize = 16;

/// Calls `found` with the word of each key's value, in order.
pub(super) fn get<K: Key, V: Value, Q: Borrow<K::Query>>(
    core: &Core<Of<K, V>>,
    keys: &[Q],
    guard: &Guard,
    mut found: impl FnMut(Option<u64>),
) {
    let (rounds, rest) = keys.as_chunks::<ROUND>();
    for round in rounds {
        let images = round.each_ref().map(|key| QueryOf::<K>::bytes(key.borrow()));
        let probes: [Probe<'_>; ROUND] = std::array::from_fn(|i| {
            if K::WIDE {
                Probe::wide(images[i].as_ref())
            } else {
                Probe { word: QueryOf::<K>::word(round[i].borrow()), bytes: &[] }
            }
        });
        get_round(core, &probes, guard, &mut found);
    }
    for key in rest {
        found(with_probe::<K, _>(key.borrow(), |probe| core.get(probe, guard)));
    }
}

fn get_round<K: Key, V: Value>(
    core: &Core<Of<K, V>>,
    probes: &[Probe<'_>; ROUND],
    guard: &Guard,
    found: &mut impl FnMut(Option<u64>),
) {
    let leaves = probes.map(|probe| {
        let leaf = core.place(probe, guard).leaf;
        AnyLeaf::prefetch(leaf);
        leaf
    });
    let Some(leaves) = all_of_buckets(&leaves) else {
        for (leaf, probe) in leaves.iter().zip(probes) {
            leaf.prefetch_place(leaf.place::<Of<K, V>>(*probe));
        }
        leaves.iter().zip(probes).for_each(|(leaf, probe)| found(leaf.get::<Of<K, V>>(*probe)));
        return;
    };
    let words: [u64; ROUND] = std::array::from_fn(|i| leaves[i].word::<Of<K, V>>(probes[i]));
    let buckets: [&Bucket; ROUND] = std::array::from_fn(|i| {
        let bucket = leaves[i].bucket(leaves[i].place::<Of<K, V>>(words[i], probes[i]));
        Bucket::prefetch(bucket);
        bucket
    });
    for i in 0..ROUND {
        found(buckets[i].get(words[i], reader::<Of<K, V>>(probes[i])));
    }
}

/// The leaves, if all of them are of buckets.
#[inline(always)]
fn all_of_buckets<'g>(leaves: &[&'g AnyLeaf; ROUND]) -> Option<[&'g Leaf; ROUND]> {
    let AnyLeaf::Buckets(first) = leaves[0] else { return None };
    let mut buckets = [first; ROUND];
    for (bucket, leaf) in buckets.iter_mut().zip(leaves) {
        let AnyLeaf::Buckets(leaf) = leaf else { return None };
        *bucket = leaf;
    }
    Some(buckets)
}
