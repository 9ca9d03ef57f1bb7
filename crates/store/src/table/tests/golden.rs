//! The bytes of a small table, as `docs/format/table.md` describes them. A failure here means that
//! tables written before can no longer be read: raise the format version, or take the change back.

use super::*;
use crate::{
    ranges::{RangeLog, Ranges, Tombstone},
    table::{BlockIndexKind, StringCoding, Training, footer::Footer, value_path},
};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn write(fixture: &Fixture) -> TableMeta {
    let options = TableLayout {
        index: BlockIndexKind::BinarySearch,
        string_coding: StringCoding::Auto,
        training: Training::Always,
        block_bytes: 64,
        compression: Compression::None,
        filter_bits_per_key: 10,
        restart_interval: 2,
        large_value_bytes: 200,
    };
    let mut writer = TableWriter::create(&fixture.ctx, 9, &options);
    writer.add(b"pelican", 300, Kind::Value, b"lands").unwrap();
    writer.add(b"pelicans", 7, Kind::Value, b"1").unwrap();
    writer.add(b"plover", 6, Kind::Tombstone, b"").unwrap();
    writer.add(b"plover", 5, Kind::Value, b"waits").unwrap();
    writer.add(b"stork", 4, Kind::Value, &[b's'; 201]).unwrap();
    writer.finish().unwrap()
}

/// The data page: two block frames, of the first four entries and of the last.
const DATA: &[&str] = &[
    "0000",                                               // the first frame starts at 0
    "3b000000 3b000000 00",                               // stored 59, raw 59, not compressed
    "98fe6936d0b06003",                                   // checksum
    "04000000 02 00",      // 4 entries, restart interval 2, u16 offsets
    "c2084242",            // tags
    "0000 1100 1700 2000", // offsets
    "00 07 b009 05 70656c6963616e 6c616e6473", // pelican: seq 300, "lands"
    "07 01 1c 01 73 31",   // pelicans: shares 7, seq 7, "1"
    "00 06 19 706c6f766572", // plover: tombstone of seq 6
    "06 00 14 05 7761697473", // plover: shares 6, seq 5, "waits"
    "2a000000 2a000000 00", // stored 42, raw 42, not compressed
    "5470658635c9137b",    // checksum
    "01000000 02 00 3a 0000", // 1 entry, its tag and offset
    "00 05 12 18 73746f726b", // stork: large value of seq 4, pointer of 24 bytes
    "0000000000000000 c900000000000000 61873d9b15b09d70", // offset 0, 201 bytes, XXH3-64
];

/// The sections, back to back. The index payload is described in `docs/format/index.md`.
const SECTIONS: &[&str] = &[
    "01 1000000000000000 1d1626c3957bbb7f", // index, 16 bytes, checksum
    "02000000000300000000024c01734e3b",     // two separators and handles
    "02 4800000000000000 5806013035aea0bd", // filter, 72 bytes, checksum
    "06 00000000000000",                    // 6 probes
    "0000400000200400 0000008000021200 0000000000000200 0040020000000200",
    "0001000000000040 0004000000410000 0000200021002004 0040008000100000",
    "03 5200000000000000 1c756e85464e1ec3", // properties, 82 bytes, checksum
    "0500000000000000 0100000000000000",    // 5 entries, 1 of them a tombstone
    "f400000000000000",                     // 244 bytes of keys and values
    "0400000000000000 2c01000000000000",    // seq 4 to 300
    "0010000000000000 0400000000000000",    // 4096 bytes of large values, 4 keys
    "40000000 c8000000 00 0a 02 00",        // block bytes, large from, none, 10 bits, interval
    "07 70656c6963616e 05 73746f726b",      // pelican to stork
];

const FOOTER: &[&str] = &[
    "0900000000000000 01000000 02000000", // table 9, 1 page, 2 blocks
    "0004000000000000 2100000000000000",  // index
    "2104000000000000 5900000000000000",  // filter
    "7a04000000000000 6300000000000000",  // properties
    "03000000 00000000",                  // version 3
    "db8a16b1ae688341 5248554d42544142",  // checksum, magic
];

fn bytes(hex: &[&str], len: usize) -> Vec<u8> {
    let digits: Vec<_> = hex.concat().bytes().filter(|digit| *digit != b' ').collect();
    let mut bytes: Vec<u8> = digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect();
    assert!(bytes.len() <= len);
    bytes.resize(len, 0);
    bytes
}

#[test]
fn a_small_table_has_these_bytes() {
    let fixture = Fixture::new(0);
    let meta = write(&fixture);
    let written = std::fs::read(fixture.path(9)).unwrap();
    let golden = [bytes(DATA, 1024), bytes(SECTIONS, 3072 - 88), bytes(FOOTER, 88)].concat();
    for (at, (written, golden)) in written.chunks(16).zip(golden.chunks(16)).enumerate() {
        assert_eq!(hex(written), hex(golden), "at offset {}", at * 16);
    }
    assert_eq!(written.len(), golden.len());
    let mut values = vec![b's'; 201];
    values.resize(4096, 0);
    assert_eq!(std::fs::read(value_path(&fixture.ctx.dir, 9)).unwrap(), values);

    let table = fixture.open(&meta);
    let answers: [(&[u8], SeqNo, Answer); 5] = [
        (b"pelican", 300, Some((300, Some(b"lands".to_vec())))),
        (b"pelicans", 300, Some((7, Some(b"1".to_vec())))),
        (b"plover", 300, Some((6, None))),
        (b"plover", 5, Some((5, Some(b"waits".to_vec())))),
        (b"stork", 4, Some((4, Some(vec![b's'; 201])))),
    ];
    for (key, seq, answer) in answers {
        assert_eq!(get(&table, key, seq).unwrap(), answer);
    }
}

fn ranges() -> Ranges {
    let log = RangeLog::new();
    for (seq, (from, to)) in (301..).zip([("ibis", "owl"), ("kite", "quail\0")]) {
        let (from, to) = (from.as_bytes().into(), Some(to.as_bytes().into()));
        log.add(Tombstone { from, to, seq });
    }
    log.retained(&[301])
}

#[test]
fn range_tombstones_are_a_section_between_filter_and_properties() {
    let fixture = Fixture::new(0);
    let mut writer = TableWriter::create(&fixture.ctx, 9, &TableLayout::default());
    writer.add(b"pelican", 300, Kind::Value, b"lands").unwrap();
    writer.set_ranges(ranges());
    let meta = writer.finish().unwrap();
    let (smallest, largest) = (&*meta.smallest, &*meta.largest);
    assert_eq!(
        (smallest, largest),
        (&b"ibis"[..], &b"quail"[..]),
        "the end has a zero behind quail"
    );
    assert_eq!((meta.range_tombstones, meta.seq_min, meta.seq_max), (3, 300, 302));
    let written = std::fs::read(fixture.path(9)).unwrap();
    let footer = written.last_chunk().unwrap();
    assert_eq!(footer[64..72], [4, 0, 0, 0, 0, 0, 0, 0], "version 4");
    let footer = Footer::decode(footer, written.len() as u64).unwrap();
    let section = &written[footer.ranges.offset as usize..][..footer.ranges.len as usize];
    let payload = [
        &b"\x04"[..],
        b"\x04ibis\x01\xad\x02",
        b"\x04kite\x02\xae\x02\x01",
        b"\x03owl\x01\xae\x02",
        b"\x06quail\0\0",
    ];
    let payload = payload.concat();
    assert_eq!((section[0], section[1]), (4, payload.len() as u8));
    assert_eq!(section[17..], payload);
    let properties =
        &written[footer.properties.offset as usize..][..footer.properties.len as usize];
    assert_eq!(properties[properties.len() - 8..], [3, 0, 0, 0, 0, 0, 0, 0]);
    let table = fixture.open(&meta);
    let newest = |key: &[u8], seq| table.ranges().unwrap().newest(key, seq);
    assert_eq!((newest(b"kite", 400), newest(b"kite", 301), newest(b"kite", 300)), (302, 301, 0));
    assert_eq!((newest(b"quail", 400), newest(b"quail\0", 400)), (302, 0));
}

#[test]
fn a_table_may_have_range_tombstones_alone() {
    let fixture = Fixture::new(0);
    for (id, index) in [(9, BlockIndexKind::Learned), (10, BlockIndexKind::BinarySearch)] {
        let options = TableLayout { index, ..TableLayout::default() };
        let mut writer = TableWriter::create(&fixture.ctx, id, &options);
        writer.set_ranges(ranges());
        let meta = writer.finish().unwrap();
        assert_eq!((meta.entries, meta.range_tombstones), (0, 3));
        let table = fixture.open(&meta);
        assert_eq!(get(&table, b"ibis", 400).unwrap(), None);
        assert_eq!(get(&table, b"zebra", 400).unwrap(), None);
        let mut cursor = TableCursor::new(Arc::clone(&table), Access::Blocks);
        for step in [
            TableCursor::first,
            TableCursor::last,
            |cursor: &mut TableCursor| cursor.seek(b"ibis", 400),
            |cursor: &mut TableCursor| cursor.seek_before(b"zebra", 400),
        ] {
            let step = step(&mut cursor).unwrap();
            cursor.drive(step).unwrap();
            assert!(!cursor.is_valid());
        }
    }
    let nothing = TableWriter::create(&fixture.ctx, 11, &TableLayout::default());
    assert!(nothing.finish().is_err());
}
