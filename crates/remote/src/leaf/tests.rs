//! Leaves against a sorted map, and damaged ones.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{
    proof::{prefix_seed, record_seed},
    whole::{Lone, is_leaf_whole, is_record_whole, lone_record},
    *,
};
use crate::layout::format::{INCARNATION_SHIFT, KIND_ASK, KIND_INLINE, NO_SLOT};

fn geometry() -> Geometry {
    Geometry::new(1024, 24).unwrap()
}

fn slot(geometry: Geometry) -> Vec<AtomicU64> {
    (0..geometry.leaf_words()).map(|_| AtomicU64::new(0)).collect()
}

fn fences(low: Option<&str>, high: Option<&str>) -> Fences {
    let of = |fence: Option<&str>| fence.map(|fence| fence.as_bytes().to_vec());
    Fences::new(of(low), of(high))
}

/// What a leaf holds, in the order of its entries.
fn entries<M: Memory + ?Sized>(leaf: Leaf<'_, M>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let head = leaf.head();
    (0..head.count)
        .map(|index| {
            let record = leaf.record(index).unwrap();
            let (mut key, mut value) = (Vec::new(), Vec::new());
            leaf.key_into(&head, &record, &mut key);
            record.value.append_to(&mut value);
            (key, value)
        })
        .collect()
}

fn get<M: Memory + ?Sized>(leaf: Leaf<'_, M>, key: &[u8]) -> Option<Vec<u8>> {
    let (_, record) = leaf.find(&leaf.head(), &Needle::new(key))?;
    let mut value = Vec::new();
    record.value.append_to(&mut value);
    Some(value)
}

/// Keys that begin with `p`, short and long, over few letters.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(vec![0u8, 1, b'a', 0xff]), 0..12)
        .prop_map(|rest| [b"p".as_slice(), &rest].concat())
}

#[derive(Clone, Debug)]
enum Change {
    Set(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
}

fn change() -> impl Strategy<Value = Change> {
    let value = prop::collection::vec(any::<u8>(), 0..40);
    prop_oneof![
        3 => (key(), value).prop_map(|(key, value)| Change::Set(key, value)),
        1 => key().prop_map(Change::Remove),
    ]
}

/// Makes a change as a host would, except that a full leaf refuses it.
fn apply(writer: &LeafWriter<'_>, geometry: Geometry, change: &Change) -> bool {
    writer.latch();
    let done = apply_latched(writer, geometry, change);
    writer.unlatch();
    done
}

/// Makes a change of a leaf that is latched.
fn apply_latched(writer: &LeafWriter<'_>, geometry: Geometry, change: &Change) -> bool {
    let leaf = writer.leaf();
    let head = leaf.head();
    match change {
        Change::Set(key, value) => {
            let entry = Entry::new(geometry, key, value);
            match leaf.find(&head, &Needle::new(key)) {
                Some((index, _)) => writer.update(index, entry.by_ref()),
                None => writer.insert(leaf.lower_bound(&head, key), entry.by_ref()),
            }
        }
        Change::Remove(key) => {
            if let Some((index, _)) = leaf.find(&head, &Needle::new(key)) {
                writer.remove(index);
            }
            true
        }
    }
}

proptest! {
    #[test]
    fn a_leaf_is_a_sorted_map(changes in prop::collection::vec(change(), 0..60)) {
        let geometry = geometry();
        let slot = slot(geometry);
        let writer = LeafWriter::new(&slot, geometry);
        writer.begin(&LeafImage::new(geometry, &fences(Some("p"), Some("p\u{7f}\u{7f}")), 7));
    writer.unlatch();
        let mut map = BTreeMap::new();
        for change in &changes {
            if apply(&writer, geometry, change) {
                match change {
                    Change::Set(key, value) => drop(map.insert(key.clone(), value.clone())),
                    Change::Remove(key) => drop(map.remove(key)),
                }
            }
            let leaf = writer.leaf();
            let found = entries(leaf);
            prop_assert!(found.iter().map(|(k, v)| (k, v)).eq(&map));
            for change in &changes {
                let (Change::Set(key, _) | Change::Remove(key)) = change;
                prop_assert_eq!(get(leaf, key), map.get(key).cloned());
                let below = map.range(..key.clone()).count();
                prop_assert_eq!(leaf.lower_bound(&leaf.head(), key), below);
            }
        }
        let kept = map.len() as u8;
        prop_assert_eq!(writer.leaf().head().count, usize::from(kept));
        prop_assert_eq!(writer.leaf().head().run, 7);
    }

    #[test]
    fn a_leaf_with_checksums_proves_itself_once_it_is_unlatched(
        groups in prop::collection::vec(prop::collection::vec(change(), 1..8), 1..20),
        damaged: prop::sample::Index, xor in 1_u64..,
    ) {
        let geometry = geometry().with_checksums(true);
        let slot = slot(geometry);
        let writer = LeafWriter::new(&slot, geometry);
        let fences = fences(Some("p"), Some("p\u{7f}\u{7f}"));
        writer.begin(&LeafImage::new(geometry, &fences, 7));
        writer.unlatch();
        let record_at = |index| (writer.leaf().offset(index), record_seed(&slot[..], geometry));
        for group in &groups {
            prop_assert!(is_leaf_whole(&slot[..], geometry));
            writer.latch();
            for change in group {
                let before = entries(writer.leaf());
                if !apply_latched(&writer, geometry, change) {
                    prop_assert_eq!(&entries(writer.leaf()), &before);
                }
                prop_assert!(!is_leaf_whole(&slot[..], geometry));
                // What readers may not see yet proves nothing.
                let (Change::Set(key, _) | Change::Remove(key)) = change;
                let found = writer.leaf().find(&writer.leaf().head(), &Needle::new(key));
                if let Some((index, _)) = found.filter(|_| entries(writer.leaf()) != before) {
                    let (offset, seed) = record_at(index);
                    prop_assert!(!is_record_whole(&slot[..], offset, seed));
                }
            }
            writer.unlatch();
            for index in 0..writer.leaf().head().count {
                let (offset, seed) = record_at(index);
                prop_assert!(is_record_whole(&slot[..], offset, seed));
            }
        }
        // A word of what is in use that is another one.
        let used = writer.leaf().head().used / 8;
        let word = &slot[damaged.index(used)];
        let kept = word.fetch_xor(xor, Ordering::Relaxed);
        // Where a record was, and none is any more, nothing is read.
        let seen = is_leaf_whole(&slot[..], geometry).then(|| entries(writer.leaf()));
        word.store(kept, Ordering::Relaxed);
        prop_assert!(seen.is_none_or(|seen| seen == entries(writer.leaf())));
    }

    #[test]
    fn sides_are_those_of_the_fences(
        mut ends in prop::collection::btree_set(key(), 2), keys in prop::collection::vec(key(), 20),
        open in any::<(bool, bool)>(),
    ) {
        let geometry = geometry();
        let low = (!open.0).then(|| ends.pop_first().unwrap());
        let high = (!open.1).then(|| ends.pop_last().unwrap());
        let fences = Fences::new(low.clone(), high.clone());
        let image = LeafImage::new(geometry, &fences, 0);
        let leaf = Leaf::new(image.words(), geometry);
        let strangers = [&b""[..], b"a", b"o\xff", b"q", b"z"].map(<[u8]>::to_vec);
        for key in keys.iter().chain(&strangers).chain(&low).chain(&high) {
            let expected = if low.as_ref().is_some_and(|low| key < low) {
                Side::Left
            } else if high.as_ref().is_some_and(|high| key >= high) {
                Side::Right
            } else {
                Side::Inside
            };
            prop_assert_eq!(leaf.side(&leaf.head(), key), Some(expected), "{:?}", key);
        }
    }

    #[test]
    fn damaged_leaves_never_panic(
        words in prop::collection::vec(any::<u64>(), 128), small in any::<bool>(), key in key(),
    ) {
        let geometry = geometry();
        // Small numbers look more like a leaf.
        let words: Vec<u64> = words
            .iter()
            .enumerate()
            .map(|(at, word)| if small && at > 7 { (word % 1024) & !7 } else { *word })
            .collect();
        let leaf = Leaf::new(&words[..], geometry);
        let head = leaf.head();
        let _ = (leaf.side(&head, &key), leaf.find(&head, &Needle::new(&key)).is_some());
        let _ = leaf.lower_bound(&head, &key);
        let mut out = Vec::new();
        for index in 0..head.count {
            if let Some(record) = leaf.record(index) {
                leaf.key_into(&head, &record, &mut out);
                prop_assert!(out.len() + record.value.len() <= 2 * geometry.leaf_bytes());
            }
        }
    }
}

#[test]
fn a_full_leaf_refuses_and_is_unchanged() {
    let geometry = geometry();
    let slot = slot(geometry);
    let writer = LeafWriter::new(&slot, geometry);
    writer.begin(&LeafImage::new(geometry, &fences(None, None), 0));
    writer.unlatch();
    let mut count = 0u32;
    while apply(&writer, geometry, &Change::Set(count.to_be_bytes().into(), vec![1; 9])) {
        count += 1;
    }
    assert_eq!(count, 24, "room for 24 records of 32 bytes");
    let before = entries(writer.leaf());
    assert!(!apply(&writer, geometry, &Change::Set(b"new".into(), Vec::new())));
    // What bytes there are decides about larger records.
    assert!(!apply(&writer, geometry, &Change::Set(0u32.to_be_bytes().into(), vec![2; 200])));
    assert_eq!(entries(writer.leaf()), before);
}

#[test]
fn large_values_are_asked_for() {
    let geometry = geometry();
    let value = vec![5; geometry.value_bytes_max() + 1];
    let entry = Entry::new(geometry, b"k", &value);
    assert_eq!((entry.kind, entry.value_len, entry.value.len()), (KIND_ASK, value.len(), 0));
    assert_eq!(Entry::new(geometry, b"k", &value[1..]).kind, KIND_INLINE);
    let mut image = LeafImage::new(geometry, &fences(None, None), 0);
    assert!(image.push(entry.by_ref()));
    let leaf = Leaf::new(image.words(), geometry);
    let record = leaf.record(0).unwrap();
    assert_eq!((record.kind, record.value_len, record.value.len()), (KIND_ASK, value.len(), 0));
}

#[test]
fn a_change_is_noticed() {
    let geometry = geometry();
    let slot = slot(geometry);
    let writer = LeafWriter::new(&slot, geometry);
    writer.begin(&LeafImage::new(geometry, &fences(None, None), 0));
    writer.unlatch();
    assert!(read(&slot, || ()).is_some());
    let changed = |change: &dyn Fn()| read(&slot, change).is_none();
    let set = Change::Set(b"k".into(), b"v".into());
    assert!(changed(&|| assert!(apply(&writer, geometry, &set))));
    let mut image = LeafImage::new(geometry, &fences(None, None), 0);
    assert!(image.push(Entry::new(geometry, b"secret", b"and its value").by_ref()));
    assert!(changed(&|| {
        writer.begin(&image);
        writer.unlatch();
    }));
    writer.unlatch();
    writer.latch();
    assert!(read(&slot, || ()).is_none(), "latched");
    writer.retire();
    writer.unlatch();
    let leaf = writer.leaf();
    assert_eq!(read(&slot, || leaf.side(&leaf.head(), b"k")), Some(None), "it answers for nothing");
    assert!(slot.iter().skip(1).all(|word| word.load(Ordering::Relaxed) == 0), "scrubbed");
}

#[test]
fn what_is_not_published_proves_nothing_in_a_leaf_that_ends() {
    let geometry = geometry().with_checksums(true);
    let slot = slot(geometry);
    let writer = LeafWriter::new(&slot, geometry);
    let set = |key: &str, value: &[u8]| Change::Set(key.into(), value.to_vec());
    // Few changes are noted one by one, and of more there is a note that all sums are to be set.
    for (incarnation, changed) in [(2, 1), (4, 6)] {
        // Without a prefix a leaf has the seed of one that has ended.
        writer.begin(&LeafImage::new(geometry, &fences(None, None), 0));
        writer.unlatch();
        for key in ["a", "b", "c", "d", "e", "f", "g"] {
            assert!(apply(&writer, geometry, &set(key, b"old")));
        }
        writer.latch();
        for key in ["a", "b", "c", "d", "e", "f"].into_iter().take(changed) {
            assert!(apply_latched(&writer, geometry, &set(key, b"new")));
        }
        let (leaf, seed) = (writer.leaf(), record_seed(&slot[..], geometry));
        writer.end();
        writer.unlatch();
        let state = slot[..].load(head::STATE);
        assert_eq!((state >> INCARNATION_SHIFT, state & LATCHED), (incarnation, 0));
        assert_eq!(leaf.side(&leaf.head(), b"a"), None);
        let is_whole = |index| is_record_whole(&slot[..], leaf.offset(index), seed);
        assert!((0..7).all(|index| is_whole(index) == (index >= changed)));
        writer.latch();
        writer.retire();
        writer.unlatch();
    }
}

#[test]
fn a_record_by_itself_is_proven_by_its_prefix_and_place() {
    let geometry = geometry().with_checksums(true);
    let slot = slot(geometry);
    let writer = LeafWriter::new(&slot, geometry);
    writer.begin(&LeafImage::new(geometry, &fences(Some("some/0000/a"), Some("some/0000/b")), 0));
    writer.unlatch();
    let set = Change::Set(b"some/0000/a/key".into(), b"value".to_vec());
    assert!(apply(&writer, geometry, &set));
    let prefix = b"some/0000/";
    assert_eq!(prefix_seed(prefix), record_seed(&slot[..], geometry));
    let begin = writer.leaf().offset(0) / 8;
    // The record's head, the key's rest, the value and the sum.
    let words = &slot[begin..begin + 4];
    let read = |at, words, prefix: &[u8]| {
        let lone = Lone::new(at, words);
        lone_record(&lone, geometry, prefix).map(|record| {
            let mut out = Vec::new();
            record.key.append_to(&mut out);
            record.value.append_to(&mut out);
            out
        })
    };
    assert_eq!(read(begin, words, prefix).as_deref(), Some(&b"a/keyvalue"[..]));
    assert_eq!(read(begin, &words[..3], prefix), None);
    assert_eq!(read(begin, &[], prefix), None);
    assert_eq!(read(begin + 1, words, prefix), None);
    assert_eq!(read(begin, words, b"some/0001/"), None);
    assert_eq!(read(begin, words, b"some/0000"), None);
}

#[test]
fn links_and_numbers() {
    let geometry = geometry();
    let slot = slot(geometry);
    let writer = LeafWriter::new(&slot, geometry);
    let mut image = LeafImage::new(geometry, &fences(None, None), 0);
    image.set_seq(3);
    writer.begin(&image);
    writer.unlatch();
    let leaf = writer.leaf();
    assert_eq!((leaf.next(), leaf.previous(), leaf.seq()), (NO_SLOT, NO_SLOT, 3));
    writer.latch();
    writer.set_links(5, 6);
    writer.set_seq(1 << 55);
    writer.unlatch();
    assert_eq!((leaf.next(), leaf.previous(), leaf.seq()), (5, 6, 1 << 55));
    assert_eq!(leaf.head().count, 0);
}

#[test]
fn what_is_replaced_or_removed_leaves_no_bytes() {
    let geometry = geometry();
    let slot = slot(geometry);
    let writer = LeafWriter::new(&slot, geometry);
    writer.begin(&LeafImage::new(geometry, &fences(None, None), 0));
    writer.unlatch();
    let set = |value: &[u8]| Change::Set(b"key".to_vec(), value.to_vec());
    let holds = |byte: u8| {
        let words = slot.iter().skip(geometry.rest() / 8);
        words.flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).any(|b| b == byte)
    };
    assert!(apply(&writer, geometry, &set(&[0xa5; 20])) && holds(0xa5));
    assert!(apply(&writer, geometry, &set(&[0x5a; 9])));
    assert!(holds(0x5a) && !holds(0xa5));
    assert!(apply(&writer, geometry, &Change::Remove(b"key".to_vec())));
    assert!(!holds(0x5a) && !holds(b'k'));
}
