//! The bytes of leaves and records.

use super::*;
use crate::primitive::Ordering;

/// The bytes of words, without the zeros at their end.
fn bytes(words: &[crate::primitive::AtomicU64]) -> Vec<u8> {
    let load = |word: &crate::primitive::AtomicU64| word.load(Ordering::Relaxed).to_ne_bytes();
    let mut bytes: Vec<u8> = words.iter().flat_map(load).collect();
    bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
    bytes
}

/// Puts bytes where they belong.
fn at(out: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    out.resize(out.len().max(offset + bytes.len()), 0);
    out[offset..offset + bytes.len()].copy_from_slice(bytes);
}

#[test]
fn golden_bytes_of_a_region() {
    let key = |n: u64| n.to_be_bytes().to_vec();
    let map = [(key(1), b"one".to_vec()), (key(2), vec![7; 20]), (key(3), vec![7; 100_000])];
    let mut world = World::new(map.into(), 200, 2, 256 << 10);
    world.table.set(b"text", b"v", None).unwrap();
    world.publish();

    // Head: guard, header, shape, fences; then keys and value slots of 4 words.
    let mut leaf = Vec::new();
    at(&mut leaf, 0, b"\x02");
    at(&mut leaf, 8, b"\0\0\0\x02\x01\0\0\0\x03\x80");
    at(&mut leaf, 32, b"\x03\0\0\0\0\0\0\0");
    at(&mut leaf, 48, b"\x01\0\0\0\0\0\0\0\x02");
    let slots = 22 * 8;
    at(&mut leaf, slots, b"\x01\0\0\0\0\0\0\0\x0d\0\0\0\0\0\0\0one");
    let first_record = 9u8;
    at(&mut leaf, slots + 32, b"\x02\0\0\0\0\0\0\0\x06\0\0\0");
    at(&mut leaf, slots + 32 + 12, &[first_record]);
    let words = (22 + 16 * 4usize).next_multiple_of(8);
    let leaves = world.leaves.all();
    assert_eq!(bytes(&leaves[..words]), leaf);

    // The second leaf became one of hashes: pointers to records, the first without its value.
    let second = &leaves[words..2 * words];
    let load = |word: usize| u64::from_le(second[word].load(Ordering::Relaxed));
    assert_eq!(load(1), 2 << 24 | u64::from(u32::MAX) << 32);
    assert_eq!(load(2), 1 | 4 | 8 | 8 << 8);
    let pointer =
        |key: &[u8], place: u64| (xxhash_rust::xxh3::xxh3_64(key) >> 40) << 40 | 1 << 32 | place;
    let places = [load(6) as u32, load(7) as u32].map(u64::from);
    assert_eq!([load(6), load(7)], [pointer(&key(3), places[0]), pointer(b"text", places[1])]);
    let control = world.control.all();
    let record = |place: u64| bytes(&control[place as usize * 8..][..8]);
    assert_eq!(
        record(places[0]),
        b"\x02\0\0\0\0\0\0\0\x08\0\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x03"
    );
    assert_eq!(record(places[1])[8..], *b"\x04\0\x01\0\x01\0\0\0\0\0\0\0\0\0\0\0text\0\0\0\0v");
    let mut value = Vec::new();
    at(
        &mut value,
        0,
        b"\x02\0\0\0\0\0\0\0\x08\0\x01\0\x14\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x02",
    );
    at(&mut value, 32, &[7; 20]);
    assert_eq!(record(u64::from(first_record)), value);

    let mut header = Vec::new();
    at(&mut header, 0, b"rhumbtwo\x01\0\0\0\x10\0\0\0\0\0\x01\0\0\0\0\0");
    let checksum = xxhash_rust::xxh3::xxh3_64(&header);
    at(&mut header, 24, &checksum.to_le_bytes());
    at(&mut header, 128, b"\x01");
    assert_eq!(bytes(&control[..32]), header);
    // The top model of the first epoch has one sub-model, and a prefix of seven zeros.
    let top = bytes(&control[32..72]);
    assert_eq!(top[..16], *b"\x02\0\0\0\0\0\0\0\x01\0\0\0\x01\0\0\0");
    assert_eq!(top[20..24], *b"\x07\0\0\0");
}
