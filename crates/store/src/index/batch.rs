//! Lookups of many keys: stage by stage for a few keys at a time, so that their cache misses overlap.

use std::borrow::Borrow;

use super::{
    core::{Core, reader},
    key::{Key, image::QueryOf},
    kinds::AnyLeaf,
    raw::{bucket::Bucket, epoch::Guard},
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
    let near: [Near<'_>; ROUND] = std::array::from_fn(|i| {
        let place = core.place(probes[i], guard);
        let bucket = place.bucket(probes[i].word).map(|(bucket, _)| bucket);
        match bucket {
            Some(bucket) => Bucket::prefetch(bucket),
            None => AnyLeaf::prefetch(place.leaf),
        }
        (place.leaf, bucket)
    });
    if near.iter().all(|(_, bucket)| bucket.is_some()) {
        for ((_, bucket), probe) in near.iter().zip(probes) {
            found(bucket.and_then(|bucket| bucket.get(probe.word, reader::<Of<K, V>>(*probe))));
        }
        return;
    }
    for ((leaf, _), probe) in near.iter().zip(probes) {
        leaf.prefetch_place(leaf.place::<Of<K, V>>(*probe));
    }
    near.iter().zip(probes).for_each(|((leaf, _), probe)| found(leaf.get::<Of<K, V>>(*probe)));
}

/// A key's leaf, and its bucket if that is known without the leaf.
type Near<'g> = (&'g AnyLeaf, Option<&'g Bucket>);
