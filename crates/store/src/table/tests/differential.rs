//! Tables against maps.

use std::collections::BTreeSet;

use proptest::{collection::vec, prelude::*, sample::select};

use super::*;
use crate::table::{BlockIndexKind, StringCoding, Training};

pub(super) fn compressions() -> Vec<Compression> {
    vec![
        Compression::None,
        Compression::Lz4,
        #[cfg(feature = "zstd")]
        Compression::Zstd,
    ]
}

pub(super) const KINDS: [BlockIndexKind; 2] =
    [BlockIndexKind::Learned, BlockIndexKind::BinarySearch];

fn options() -> impl Strategy<Value = TableLayout> {
    (
        select(&KINDS[..]),
        select(vec![0_u32, 64, 300, 1024, 4096]),
        select(compressions()),
        select(vec![0_u8, 1, 10]),
        select(vec![0_u8, 1, 2, 16, 255]),
        select(vec![0_u32, 40, 65536]),
    )
        .prop_map(|(index, block, compression, filter, restart, large)| TableLayout {
            index,
            string_coding: StringCoding::ALL[restart as usize % 3],
            training: Training::default(),
            block_bytes: block,
            compression,
            filter_bits_per_key: filter,
            restart_interval: restart,
            large_value_bytes: large,
        })
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(select(vec![0_u8, 1, b'a', 255]), 0..8),
        (0_u64..500).prop_map(|number| number.to_be_bytes().to_vec()),
        any::<u64>().prop_map(|number| number.to_be_bytes().to_vec()),
        "[a-c]{0,3}/[a-z]{1,5}".prop_map(|name| format!("https://example.org/{name}").into()),
        vec(any::<u8>(), 0..80),
    ]
}

fn value() -> impl Strategy<Value = Option<Vec<u8>>> {
    prop_oneof![
        1 => Just(None),
        6 => vec(any::<u8>(), 0..50).prop_map(Some),
        2 => (any::<u8>(), 0_usize..3000).prop_map(|(byte, len)| Some(vec![byte; len])),
    ]
}

fn model() -> impl Strategy<Value = Model> {
    vec(((key(), (0_u64..5).prop_map(Reverse)), value()), 1..400)
        .prop_map(|entries| entries.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_table_answers_as_a_map_does(
        model in model(),
        options in options(),
        cache_bytes in select(vec![0_u64, 20_000, 1 << 20]),
        probes in vec((key(), 0_u64..6), 0..40),
    ) {
        let fixture = Fixture::new(cache_bytes);
        let table = fixture.table(7, &options, &model);
        check(&table, &model, &probes);
        prop_assert!(fixture.ctx.cache.resident_bytes() <= cache_bytes);
        let meta = table.meta();
        prop_assert_eq!(&Table::read_meta(&fixture.ctx, 7).unwrap(), meta);
        prop_assert_eq!(meta.entries, model.len() as u64);
        prop_assert_eq!(meta.tombstones, model.values().filter(|v| v.is_none()).count() as u64);
        prop_assert_eq!(&*meta.smallest, &model.first_key_value().unwrap().0.0[..]);
        prop_assert_eq!(&*meta.largest, &model.last_key_value().unwrap().0.0[..]);
        prop_assert_eq!(meta.seq_min, model.keys().map(|(_, seq)| seq.0).min().unwrap());
        prop_assert_eq!(meta.seq_max, model.keys().map(|(_, seq)| seq.0).max().unwrap());
        let keys: BTreeSet<_> = model.keys().map(|(key, _)| key).collect();
        prop_assert_eq!(table.written().keys, keys.len() as u64);
    }
}

/// Numbers without order, the same every time.
fn scrambled(number: u64) -> u64 {
    (number + 1)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .rotate_left(23)
        .wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

fn large_model(entries: u64) -> Model {
    (0..entries)
        .map(|number| {
            let key = scrambled(number).to_be_bytes().to_vec();
            let value = scrambled(number + (1 << 40)).to_be_bytes().repeat(8);
            ((key, Reverse(number)), Some(value))
        })
        .collect()
}

#[test]
fn many_random_keys_in_every_kind_of_table() {
    let model = large_model(20_000);
    let absent: Vec<_> =
        (0..2_000).map(|n| (scrambled(n + (1 << 50)).to_be_bytes().to_vec(), 1 << 30)).collect();
    for index in KINDS {
        for compression in compressions() {
            let fixture = Fixture::new(8 << 20);
            let options = TableLayout { index, compression, ..TableLayout::default() };
            let table = fixture.table(3, &options, &model);
            check(&table, &model, &absent);
        }
    }
}

#[test]
fn direct_reads_answer_alike() {
    let model = large_model(5_000);
    let fixture = Fixture::with_mode(1 << 20, ReadMode::Direct);
    let options = TableLayout { large_value_bytes: 30, ..TableLayout::default() };
    let table = fixture.table(3, &options, &model);
    check(&table, &model, &[(b"absent".to_vec(), 9)]);
}

#[test]
fn the_longest_keys_and_large_values() {
    let mut model = Model::new();
    for byte in [0_u8, 7, 255] {
        for len in [1, 1000, (64 << 10) - 1, 64 << 10] {
            model.insert((vec![byte; len], Reverse(len as u64)), Some(vec![byte; 300_000]));
            model.insert((vec![byte; len], Reverse(1)), None);
            let mut other = vec![byte; len];
            other[len - 1] = 100;
            model.insert((other, Reverse(5)), Some(vec![1, 2, 3]));
        }
    }
    for index in KINDS {
        let fixture = Fixture::new(1 << 20);
        let options = TableLayout { index, ..TableLayout::default() };
        let table = fixture.table(1, &options, &model);
        assert!(table.meta().value_file_bytes >= 9 * 300_000);
        check(&table, &model, &[(vec![7; 500], 3), (Vec::new(), 3)]);
    }
}

#[test]
fn a_table_of_one_entry_with_an_empty_key() {
    let model = Model::from([((Vec::new(), Reverse(0)), Some(Vec::new()))]);
    for index in KINDS {
        let fixture = Fixture::new(1 << 20);
        let options = TableLayout { index, ..TableLayout::default() };
        let table = fixture.table(1, &options, &model);
        assert_eq!(table.meta().file_bytes, 4096);
        check(&table, &model, &[(vec![0], 0)]);
    }
}

#[test]
fn a_thousand_versions_of_one_key_among_others() {
    let mut model = large_model(500);
    model.extend((0..4000_u64).map(|seq| {
        let value = (seq % 3 != 0).then(|| seq.to_le_bytes().to_vec());
        ((b"\x80versions".to_vec(), Reverse(seq)), value)
    }));
    for index in KINDS {
        let fixture = Fixture::new(1 << 20);
        let options = TableLayout { index, ..TableLayout::default() };
        let table = fixture.table(1, &options, &model);
        check(&table, &model, &[]);
    }
}

#[test]
fn a_resident_block_is_found_without_a_read() {
    let fixture = Fixture::new(8 << 20);
    let model = large_model(3_000);
    let table = fixture.table(1, &TableLayout::default(), &model);
    let reads = || fixture.ctx.counters.reads.load(std::sync::atomic::Ordering::Relaxed);
    for (key, Reverse(seq)) in model.keys() {
        get(&table, key, *seq).unwrap();
    }
    let after_first_pass = reads();
    assert!(after_first_pass > 0);
    for (key, Reverse(seq)) in model.keys() {
        let lookup = table.lookup(&pin(), None, key, KeyHash::of(key), *seq).unwrap();
        assert!(matches!(lookup, Lookup::Value(..) | Lookup::Expiring(..)));
    }
    let mut cursor = TableCursor::new(Arc::clone(&table), Access::Sequential);
    assert_eq!(cursor.first().unwrap(), Step::Done(()));
    for _ in 0..model.len() {
        assert!(cursor.is_valid());
        assert_eq!(cursor.next().unwrap(), Step::Done(()));
    }
    assert_eq!(reads(), after_first_pass);
    drop((table, cursor));
    assert_eq!(fixture.ctx.cache.resident_blocks(), 0, "a dropped table gives its blocks back");
}

#[test]
fn sequential_cursors_read_ahead_and_leave_the_cache_alone() {
    let fixture = Fixture::new(8 << 20);
    let model = large_model(20_000);
    let options = TableLayout { compression: Compression::None, ..TableLayout::default() };
    let table = fixture.table(1, &options, &model);
    check_scans(&table, &model, Access::Sequential);
    let reads = fixture.ctx.counters.reads.load(std::sync::atomic::Ordering::Relaxed);
    let stretches = table.meta().file_bytes / (256 << 10) + 1;
    assert!(reads <= 2 * (stretches + 2), "{reads} reads of {stretches} stretches, twice");
    assert_eq!(fixture.ctx.cache.resident_blocks(), 0);
}
