//! The bytes of a region, as `docs/wire.md` says them.

use super::{Geometry, control, format::UNIT_BYTES};
use crate::{
    host::{Space, Table, heap::HeapSpace},
    leaf::Entry,
    primitive::{AtomicU64, Ordering},
};

/// The bytes of words, up to the last that is not zero.
fn bytes(words: &[AtomicU64]) -> Vec<u8> {
    let load = |word: &AtomicU64| word.load(Ordering::Relaxed).to_ne_bytes();
    let bytes: Vec<u8> = words.iter().flat_map(load).collect();
    trimmed(&bytes).to_vec()
}

/// Bytes without the zeros at their end.
fn trimmed(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &bytes[..end]
}

/// Puts bytes where they belong.
fn at(out: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    out.resize(out.len().max(offset + bytes.len()), 0);
    out[offset..offset + bytes.len()].copy_from_slice(bytes);
}

#[test]
fn golden_bytes_of_a_region() {
    let geometry = Geometry::new(512, 16).unwrap();
    let (leaves, control) = (HeapSpace::new(2048, 1 << 20), HeapSpace::new(65_536, 1 << 20));
    let large = vec![9; 300];
    let values: [(&[u8], &[u8]); 3] = [(b"ada", b"1815"), (b"grace", b"1906-1992"), (b"k", &large)];
    let entries = values.map(|(key, value)| Entry::new(geometry, key, value));
    let mut table = Table::build(geometry, leaves, control, entries).unwrap();
    table.set(b"b", b"", 7).unwrap();
    table.publish(7);
    control::set_heartbeat(table.control_space().words(), 0x1234);

    let mut header = Vec::new();
    at(&mut header, 0, b"rhumbrem\x01\0\0\0\0\x02\x10\0");
    let checksum = xxhash_rust::xxh3::xxh3_64(&header[..16]);
    at(&mut header, 16, &checksum.to_le_bytes());
    at(&mut header, 64, b"\x02\0\0\0\x01");
    at(&mut header, 128, b"\x07");
    at(&mut header, 192, b"\x34\x12");
    // The directory was published once.
    at(&mut header, 256, b"\x01");
    let words = table.control_space().words();
    let unit = |index: usize| &words[index * UNIT_BYTES / 8..(index + 1) * UNIT_BYTES / 8];
    assert_eq!(bytes(unit(0)), trimmed(&header));

    // One run whose low key is empty, of one leaf at slot 0.
    let mut block = Vec::new();
    at(&mut block, 0, b"\x01");
    let keys = 64 + 128 * 8 * (2 + 8);
    at(&mut block, 64 + 128 * 8, &(keys as u32).to_le_bytes());
    let (table_of_keys, descriptors) = unit(1).split_at((64 + 128 * 8 * 2) / 8);
    assert_eq!(bytes(table_of_keys), trimmed(&block), "codes and places");
    let run = bytes(descriptors);
    assert_eq!(run[..8], (keys as u64).to_le_bytes(), "an empty prefix");
    assert_eq!(run[32..], *b"\0\0\0\0\x01", "slot 0, one leaf, run 0");

    // The top has one entry, of block 1.
    let mut top = Vec::new();
    at(&mut top, 0, b"\x01");
    at(&mut top, 64 + 8, &(64u32 + 3 * 8).to_le_bytes());
    at(&mut top, 64 + 16, b"\x01");
    assert_eq!(bytes(unit(2)), trimmed(&top));

    assert_eq!(bytes(&table.leaf_space().words()[..64]), trimmed(&golden_leaf()));
}

/// The leaf of `golden_bytes_of_a_region`.
fn golden_leaf() -> Vec<u8> {
    let fingerprint = |key: &[u8]| (xxhash_rust::xxh3::xxh3_64(key) >> 56) as u8;
    let mut leaf = Vec::new();
    // The second version of the first incarnation: the leaf was begun and published, then changed.
    at(&mut leaf, 0, &(1u64 << 40 | 2 << 1).to_le_bytes());
    at(&mut leaf, 8, b"\x04\x07");
    at(&mut leaf, 16, &[0xff; 8]);
    // Entries begin after head, 16 fingerprints and 16 offsets; flags: live, first, last.
    let rest = 64 + 16 + 32;
    let (ada, grace, k, b) = (rest, rest + 24, rest + 56, rest + 72);
    at(&mut leaf, 24, &(b as u16 + 16).to_le_bytes());
    at(&mut leaf, 27, b"\x07");
    at(&mut leaf, 40, &(rest as u32).to_le_bytes());
    at(&mut leaf, 44, &(rest as u32).to_le_bytes());
    at(&mut leaf, 56, &[0xff; 8]);
    let keys: [(&[u8], usize); 4] = [(b"ada", ada), (b"b", b), (b"grace", grace), (b"k", k)];
    for (index, (key, record)) in keys.iter().enumerate() {
        at(&mut leaf, 64 + index, &[fingerprint(key)]);
        at(&mut leaf, 80 + 2 * index, &(*record as u16).to_le_bytes());
    }
    at(&mut leaf, ada, b"\x03\0\0\0\x04\0\0\0ada\0\0\0\0\x001815");
    at(&mut leaf, grace, b"\x05\0\0\0\x09\0\0\0grace\0\0\x001906-1992");
    at(&mut leaf, k, b"\x01\0\x01\0\x2c\x01\0\0k");
    at(&mut leaf, b, b"\x01\0\0\0\0\0\0\0b");
    leaf
}
