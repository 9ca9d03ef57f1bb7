//! Lookups of many keys: stage by stage for a few keys at a time, so that their cache misses
//! overlap.

use std::borrow::Borrow;

use rhumb_sync::epoch::Guard;

use crate::{
    core::IndexCore,
    key::{Key, image::QueryOf},
    raw::{
        bucket::Bucket,
        schema::{KeyProbe, Of, Schema, reader, with_probe},
    },
    route::NearBucket,
    value::Value,
};

/// Keys of one round. Chosen, not measured: a core of today has 10 to 16 cache misses under way, so
/// more keys at once would wait for each other.
const ROUND: usize = 16;

/// Calls `found` with the word of each key's value, in order.
pub(super) fn get<K: Key, V: Value, Q: Borrow<K::Query>>(
    core: &IndexCore<Of<K, V>>,
    keys: &[Q],
    guard: &Guard,
    mut found: impl FnMut(Option<u64>),
) {
    let (rounds, rest) = keys.as_chunks::<ROUND>();
    for round in rounds {
        let images = round.each_ref().map(|key| QueryOf::<K>::bytes(key.borrow()));
        let probes: [KeyProbe<'_>; ROUND] = std::array::from_fn(|i| {
            if K::WIDE {
                KeyProbe::wide(images[i].as_ref())
            } else {
                KeyProbe { word: QueryOf::<K>::word(round[i].borrow()), bytes: &[] }
            }
        });
        get_round(core, &probes, guard, &mut found);
    }
    for key in rest {
        found(with_probe::<K, _>(key.borrow(), |probe| core.get(probe, guard)));
    }
}

fn get_round<K: Key, V: Value>(
    core: &IndexCore<Of<K, V>>,
    probes: &[KeyProbe<'_>; ROUND],
    guard: &Guard,
    found: &mut impl FnMut(Option<u64>),
) {
    let near = probes.each_ref().map(|probe| core.place(*probe, guard).near(probe.word));
    let is_bucket = |near: &NearBucket<'_>| matches!(near, NearBucket::Bucket(_));
    let near = if near.iter().all(is_bucket) { near } else { nearer::<Of<K, V>>(near, probes) };
    for (near, probe) in near.iter().zip(probes) {
        found(match near {
            NearBucket::Bucket(bucket) => bucket.get(probe.word, reader::<Of<K, V>>(*probe)),
            NearBucket::HalfWay(half_way) => {
                half_way.bucket(probe.word).0.get(probe.word, reader::<Of<K, V>>(*probe))
            }
            NearBucket::Leaf(leaf) => leaf.get::<Of<K, V>>(*probe),
        });
    }
}

/// Goes on to the buckets, and prefetches them.
fn nearer<'g, S: Schema>(
    near: [NearBucket<'g>; ROUND],
    probes: &[KeyProbe<'_>; ROUND],
) -> [NearBucket<'g>; ROUND] {
    std::array::from_fn(|i| match near[i] {
        NearBucket::HalfWay(half_way) => {
            let (bucket, _) = half_way.bucket(probes[i].word);
            Bucket::prefetch(bucket);
            NearBucket::Bucket(bucket)
        }
        NearBucket::Leaf(leaf) => {
            leaf.prefetch_place(leaf.place::<S>(probes[i]));
            near[i]
        }
        NearBucket::Bucket(_) => near[i],
    })
}
