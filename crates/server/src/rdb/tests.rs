//! Values and dumps are read back, and no bytes make a reader panic or keep more than it was given.

use proptest::prelude::*;

use super::*;

/// Reads all of a value; what is wrong, if something is.
fn read_value(bytes: &[u8]) -> Result<(ValueKind, Vec<Item>), String> {
    let mut source = Source::new(bytes, false);
    let type_byte = source.byte().map_err(|error| error.to_string())?;
    let mut items = Items::begin(type_byte, &mut source).map_err(|error| error.to_string())?;
    let mut all = Vec::new();
    while let Some(item) = items.next(&mut source).map_err(|error| error.to_string())? {
        all.push(item);
    }
    assert!(items.next(&mut source).is_ok_and(|item| item.is_none()), "items after the last");
    Ok((items.kind, all))
}

fn write_value(kind: ValueKind, items: &[Item]) -> Vec<u8> {
    let mut value = ValueBytes::new(kind);
    items.iter().for_each(|item| value.push(item));
    let mut bytes = Vec::new();
    value.finish(&mut bytes).unwrap();
    bytes
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..12),
        prop::collection::vec(any::<u8>(), 60..70),
        (any::<u8>(), 4090_usize..4100).prop_map(|(byte, len)| vec![byte; len]),
        any::<i32>().prop_map(|integer| integer.to_string().into_bytes()),
    ]
}

fn id() -> impl Strategy<Value = StreamId> {
    (any::<u64>(), any::<u64>()).prop_map(|(ms, seq)| StreamId { ms, seq })
}

fn stream() -> impl Strategy<Value = Vec<StreamItem>> {
    let fields =
        prop_oneof![Just(vec![b"a".to_vec(), b"b".to_vec()]), prop::collection::vec(text(), 0..3),];
    let entry = (id(), fields, text()).prop_map(|(id, fields, value)| {
        let fields = fields.into_iter().map(|field| (field, value.clone())).collect();
        (id, fields)
    });
    let pending = (id(), any::<u64>(), any::<u64>()).prop_map(|(id, delivered_ms, deliveries)| {
        StreamItem::Pending { id, delivered_ms, deliveries }
    });
    let consumer = (text(), any::<u64>(), prop::collection::vec(id(), 0..3)).prop_map(
        |(name, seen_ms, held)| {
            let consumer = StreamItem::Consumer { name, seen_ms, active_ms: seen_ms };
            std::iter::once(consumer)
                .chain(held.into_iter().map(StreamItem::Held))
                .collect::<Vec<_>>()
        },
    );
    let group = (
        text(),
        id(),
        prop::option::of(0..u64::MAX),
        prop::collection::vec(pending, 0..4),
        prop::collection::vec(consumer, 0..3),
    )
        .prop_map(|(name, last, read, pending, consumers)| {
            let group = StreamItem::Group { name, last, read };
            std::iter::once(group).chain(pending).chain(consumers.concat()).collect::<Vec<_>>()
        });
    let entries = prop::collection::vec(entry, 0..250);
    (entries, prop::collection::vec(group, 0..3), id(), any::<u64>()).prop_map(
        |(mut entries, groups, removed_max, added)| {
            entries.sort_by_key(|(id, _)| *id);
            entries.dedup_by_key(|(id, _)| *id);
            let last = entries.last().map_or(removed_max, |(id, _)| *id);
            let first = entries.first().map_or(StreamId::default(), |(id, _)| *id);
            let length = entries.len() as u64;
            let info = StreamItem::Info(StreamInfo { length, last, first, removed_max, added });
            let entries = entries.into_iter().map(|(id, fields)| StreamItem::Entry { id, fields });
            entries.chain([info]).chain(groups.concat()).collect()
        },
    )
}

fn value() -> impl Strategy<Value = (ValueKind, Vec<Item>)> {
    let many = |item: BoxedStrategy<Item>| prop::collection::vec(item, 0..80);
    let field = (text(), text(), prop_oneof![Just(0), 1..1_u64 << 50]);
    prop_oneof![
        text().prop_map(|bytes| (ValueKind::String, vec![Item::String(bytes)])),
        many(text().prop_map(Item::Element).boxed()).prop_map(|all| (ValueKind::List, all)),
        many(text().prop_map(Item::Member).boxed()).prop_map(|all| (ValueKind::Set, all)),
        many(
            field
                .prop_map(|(field, value, expires_ms)| Item::Field { field, value, expires_ms })
                .boxed()
        )
        .prop_map(|all| (ValueKind::Hash, all)),
        many(
            (text(), any::<f64>().prop_filter("a number", |score| !score.is_nan()))
                .prop_map(|(member, score)| Item::Scored { member, score })
                .boxed()
        )
        .prop_map(|all| (ValueKind::Zset, all)),
        stream().prop_map(|all| (ValueKind::Stream, all.into_iter().map(Item::Stream).collect())),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn values_are_read_as_they_were_written((kind, items) in value()) {
        let bytes = write_value(kind, &items);
        prop_assert_eq!(read_value(&bytes), Ok((kind, items)));
    }

    #[test]
    fn values_that_end_too_early_are_refused((kind, items) in value(), cut in any::<prop::sample::Index>()) {
        let bytes = write_value(kind, &items);
        prop_assert!(read_value(&bytes[..cut.index(bytes.len())]).is_err());
    }

    #[test]
    fn no_changed_byte_makes_a_reader_panic(
        (kind, items) in value(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = write_value(kind, &items);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = read_value(&bytes);
    }

    #[test]
    fn no_bytes_of_any_type_make_a_reader_panic(
        type_byte in 0_u8..30,
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), 0_u8..6], 0..120),
    ) {
        let _ = read_value(&[&[type_byte][..], &bytes].concat());
    }
}

#[test]
fn what_is_only_announced_is_no_reason_to_keep_room() {
    // A string, a list and compressed bytes of the greatest length.
    for bytes in [
        &[0, 0x80, 0x1F, 0xFF, 0xFF, 0xFF, 1][..],
        &[1, 0x81, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF],
        &[0, 0xC3, 1, 0x80, 0x1F, 0xFF, 0xFF, 0xFF, 0],
        &[18, 0x81, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF],
        &[0, 0x81, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF],
    ] {
        assert!(read_value(bytes).is_err(), "{bytes:?}");
    }
}

fn strings(texts: &[&str]) -> Vec<Item> {
    texts.iter().map(|text| Item::Element(text.as_bytes().to_vec())).collect()
}

#[test]
fn old_encodings_are_read() {
    let pair = |field: &[u8], value: &[u8], expires_ms| Item::Field {
        field: field.to_vec(),
        value: value.to_vec(),
        expires_ms,
    };
    let scored = |member: &[u8], score| Item::Scored { member: member.to_vec(), score };
    // Strings: integers of three widths.
    for (bytes, text) in [
        (&[0, 0xC0, 0x80][..], "-128"),
        (&[0, 0xC1, 0, 1], "256"),
        (&[0, 0xC2, 0xFF, 0xFF, 0xFF, 0x7F], "2147483647"),
        (&[0, 0xC3, 5, 11, 0, b'a', 0xE0, 1, 0], "aaaaaaaaaaa"),
        (&[0, 0x40, 2, b'o', b'k'], "ok"),
    ] {
        let expected = vec![Item::String(text.as_bytes().to_vec())];
        assert_eq!(read_value(bytes), Ok((ValueKind::String, expected)), "{text}");
    }
    // A sorted set with scores as text.
    let zset = b"\x03\x03\x01a\x031.5\x01b\xfe\x01c\xff";
    let expected =
        vec![scored(b"a", 1.5), scored(b"b", f64::INFINITY), scored(b"c", f64::NEG_INFINITY)];
    assert_eq!(read_value(zset), Ok((ValueKind::Zset, expected)));
    assert!(read_value(b"\x03\x01\x01a\xfd").is_err(), "a score that is no number");
    // A hash in a zipmap.
    let zipmap = b"\x09\x08\x01\x01a\x02\x00xy\xff";
    assert_eq!(read_value(zipmap), Ok((ValueKind::Hash, vec![pair(b"a", b"xy", 0)])));
    // A list in two nodes that are ziplists.
    let ziplist = |byte| [13, 0, 0, 0, 10, 0, 0, 0, 1, 0, 0, byte, 0xFF];
    let list = [&[14, 2, 13][..], &ziplist(0xF2), &[13], &ziplist(0xF3)].concat();
    assert_eq!(read_value(&list), Ok((ValueKind::List, strings(&["1", "2"]))));
    // Nodes of version 2: plain, and a listpack.
    let list = b"\x12\x02\x01\x03big\x02\x09\x09\x00\x00\x00\x01\x00\x05\x01\xff";
    assert_eq!(read_value(list), Ok((ValueKind::List, strings(&["big", "5"]))));
    // Hashes with fields that end.
    let first = 1000_u64.to_le_bytes();
    let hash = [&[24][..], &first, b"\x02\x00\x01a\x01x\x03\x01b\x01y"].concat();
    let expected = vec![pair(b"a", b"x", 0), pair(b"b", b"y", 1002)];
    assert_eq!(read_value(&hash), Ok((ValueKind::Hash, expected)));
    let hash = b"\x16\x01\x07\x01a\x01x";
    assert_eq!(read_value(hash), Ok((ValueKind::Hash, vec![pair(b"a", b"x", 7)])));
    let listpack = b"\x0f\x0f\x00\x00\x00\x03\x00\x81a\x02\x81x\x02\x09\x01\xff";
    let hash = [&[25][..], &first, listpack].concat();
    assert_eq!(read_value(&hash), Ok((ValueKind::Hash, vec![pair(b"a", b"x", 9)])));
    // A field without a value.
    let listpack = b"\x10\x0a\x0a\x00\x00\x00\x01\x00\x81a\x02\xff";
    assert!(read_value(listpack).is_err());
}

fn sample_dump() -> Vec<u8> {
    let mut writer = DumpWriter::begin(Vec::new(), 1_000_000).unwrap();
    writer.database(3).unwrap();
    writer.key(b"k", type_of(ValueKind::String, false), 12_345).unwrap();
    writer.raw(b"\x05value").unwrap();
    writer.key(b"l", type_of(ValueKind::List, false), 0).unwrap();
    let mut list = Vec::new();
    begin_value(&mut list, ValueKind::List, 2);
    strings(&["a", "b"]).iter().for_each(|item| push_item(&mut list, item));
    writer.raw(&list).unwrap();
    writer.finish().unwrap().0
}

#[test]
fn dumps_are_read_as_they_were_written() {
    let bytes = sample_dump();
    let mut dump = Dump::open(&bytes[..]).unwrap();
    let mut records = Vec::new();
    while let Some(record) = dump.next().unwrap() {
        match record {
            Record::Aux(..) => continue,
            Record::Key(KeyHead { ref key, .. }) if key == b"k" => {
                assert_eq!(dump.item().unwrap(), Some(Item::String(b"value".to_vec())));
            }
            // The list's elements are passed over.
            _ => {}
        }
        records.push(record);
    }
    let head =
        |key: &[u8], kind, expires_ms| Record::Key(KeyHead { key: key.to_vec(), kind, expires_ms });
    let expected = [
        Record::Database(3),
        head(b"k", ValueKind::String, 12_345),
        head(b"l", ValueKind::List, 0),
    ];
    assert_eq!(records, expected);
    assert_eq!(dump.offset(), bytes.len() as u64);
}

fn read_dump(bytes: &[u8]) -> Result<(), RdbError> {
    let mut dump = Dump::open(bytes)?;
    while dump.next()?.is_some() {
        while dump.item()?.is_some() {}
    }
    Ok(())
}

#[test]
fn every_changed_byte_of_a_dump_is_found() {
    let bytes = sample_dump();
    read_dump(&bytes).unwrap();
    for at in 0..bytes.len() {
        assert!(read_dump(&bytes[..at]).is_err(), "cut at {at}");
        for change in [1, 0x80, 0xFF] {
            let mut damaged = bytes.clone();
            damaged[at] ^= change;
            // A version from before checksums has none that could tell.
            if at != 8 {
                assert!(read_dump(&damaged).is_err(), "{change:#x} at {at}");
            }
        }
    }
}

#[test]
fn what_stands_between_keys_is_read_or_passed_over() {
    let records = |bytes: &[u8]| {
        let bytes = [b"REDIS0004", bytes, b"\xff"].concat();
        let mut dump = Dump::open(&bytes[..]).unwrap();
        let mut all = Vec::new();
        while let Some(record) = dump.next().unwrap() {
            all.push(record);
        }
        all
    };
    let key = |expires_ms| {
        let kind = ValueKind::String;
        vec![Record::Key(KeyHead { key: b"k".to_vec(), kind, expires_ms })]
    };
    assert_eq!(records(b"\xf8\x05\xf9\x07\x00\x01k\x01v"), key(0));
    assert_eq!(records(b"\xfd\x02\x00\x00\x00\x00\x01k\x01v"), key(2000));
    assert_eq!(records(b"\xf4\x01\x02\x03\x00\x01k\x01v"), key(0));
    assert_eq!(records(b"\xf5\x04code"), [Record::Function(b"code".to_vec())]);
    assert_eq!(records(b"\xf7\x05\x02\x02\x05\x01x\x00"), [Record::ModuleAux]);
    let module = b"\x07\x01m\x09\x01\x01\x02\x02\x03....\x04........\x05\x01s\x00";
    let expected =
        Record::Key(KeyHead { key: b"m".to_vec(), kind: ValueKind::Module, expires_ms: 0 });
    assert_eq!(records(module), [expected]);
    assert_eq!(records(b"\xfb\x05\x00"), [Record::Resize(5)]);
}

#[test]
fn dumps_of_other_programs_and_versions_are_refused() {
    for (bytes, says) in [
        (&b"SQLite format 3\0"[..], "no dump"),
        (b"REDIS0013....", "version 13"),
        (b"REDIS0000....", "version 0"),
        (b"REDIS", "end too early"),
        (b"REDIS0011\x1e\x01k\x01v", "type 30"),
    ] {
        let error = read_dump(bytes).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn payloads_have_the_checksum_of_redis() {
    // What Redis 7.0 gives for `SET k 10`, `DUMP k`.
    let payload = b"\x00\xc0\x0a\x0a\x00\x6e\x9f\x57\x45\x0e\xae\x63\xbb";
    let mut ours = payload[..3].to_vec();
    finish_payload(&mut ours);
    assert_eq!(open_payload(&ours), Some(&ours[..3]));
    assert_eq!(ours, payload);
    for at in 0..ours.len() {
        let mut damaged = ours.clone();
        damaged[at] ^= 1;
        assert_eq!(open_payload(&damaged), None, "{at}");
    }
    assert_eq!(open_payload(b"short"), None);
}
