//! Compares memtables of either kind with a map.

mod measure;

use std::{cmp::Reverse, collections::BTreeMap};

use proptest::prelude::*;
use rhumb_sync::primitive::{AtomicBool, thread};

use super::*;
use crate::{db::insert_record, log::batch::BatchBuilder, types::Kind};

const KINDS: [MemtableKind; 2] = [MemtableKind::Learned, MemtableKind::SkipList];

/// The entries that are expected.
type Model = BTreeMap<Position, Option<Vec<u8>>>;

/// The position of an entry.
type Position = (TreeId, Vec<u8>, Reverse<SeqNo>);

/// A write of one key.
#[derive(Clone, Debug)]
struct Write {
    tree: TreeId,
    key: Vec<u8>,
    value: Option<Vec<u8>>,
}

fn record_of(writes: &[Write]) -> Record {
    let mut batch = BatchBuilder::new();
    for write in writes {
        match &write.value {
            Some(value) => batch.put(write.tree, &write.key, value).unwrap(),
            None => batch.remove(write.tree, &write.key).unwrap(),
        }
    }
    Record::given(batch.finish())
}

/// Inserts a batch into both the memtable and the model.
fn apply(table: &Memtable, model: &mut Model, writes: &[Write], first: SeqNo) {
    insert_record(table, &record_of(writes), first);
    for (seq, write) in (first..).zip(writes) {
        let place = (write.tree, write.key.clone(), Reverse(seq));
        model.insert(place, write.value.clone());
    }
}

fn assert_is(
    tree: TreeId,
    entry: Option<EntryRef<'_>>,
    expected: Option<(&Position, &Option<Vec<u8>>)>,
) {
    let found = entry.map(|entry| {
        assert_eq!(&*entry.value_slice(), entry.value());
        let value = (entry.kind() == Kind::Value).then(|| entry.value().to_vec());
        ((tree, entry.key().to_vec(), Reverse(entry.seq())), value)
    });
    assert_eq!(found, expected.map(|(place, value)| (place.clone(), value.clone())));
}

/// Compares all entries of a memtable with the model.
fn assert_all(table: &Arc<Memtable>, model: &Model) {
    let mut expected = model.iter();
    for tree in table.trees() {
        let mut cursor = MemCursor::new(Arc::clone(table), tree);
        cursor.seek(&[], SeqNo::MAX);
        while let Some(entry) = cursor.entry() {
            assert_is(tree, Some(entry), expected.next());
            cursor.advance();
        }
    }
    assert_eq!(expected.next(), None);
}

/// Compares everything that a memtable answers with the model.
fn assert_same(table: &Arc<Memtable>, model: &Model, probes: &[(TreeId, Vec<u8>, SeqNo)]) {
    assert_eq!(table.is_empty(), model.is_empty());
    assert_all(table, model);
    let trees: std::collections::BTreeSet<TreeId> = model.keys().map(|(tree, ..)| *tree).collect();
    for tree in 0..8 {
        assert_eq!(table.contains_tree(tree), trees.contains(&tree));
    }
    let and_newest = |(tree, key, seq): &(TreeId, Vec<u8>, SeqNo)| {
        [(*tree, key.clone(), *seq), (*tree, key.clone(), SeqNo::MAX)]
    };
    for (tree, key, seq) in &probes.iter().flat_map(and_newest).collect::<Vec<_>>() {
        let place = (*tree, key.clone(), Reverse(*seq));
        let from = || model.range(place.clone()..).take_while(|((t, ..), _)| t == tree);
        let before = || model.range(..place.clone()).rev().take_while(|((t, ..), _)| t == tree);
        let newest = from().next().filter(|((_, k, _), _)| k == key);
        assert_is(*tree, table.get(*tree, key, *seq).as_ref().map(EntryRef::Cloned), newest);
        let mut cursor = MemCursor::new(Arc::clone(table), *tree);
        // However many entries are taken at once.
        cursor.hint_len(*seq as usize % 40);
        cursor.seek(key, *seq);
        for expected in from() {
            assert_is(*tree, cursor.entry(), Some(expected));
            cursor.advance();
        }
        assert!(cursor.entry().is_none());
        cursor.seek_before(key, *seq);
        for expected in before() {
            assert_is(*tree, cursor.entry(), Some(expected));
            cursor.advance();
        }
        assert!(cursor.entry().is_none());
        assert_newest(table, model, place.clone(), *seq);
        cursor.seek_to_last();
        let last =
            (*tree, Vec::new(), Reverse(SeqNo::MAX))..(tree + 1, Vec::new(), Reverse(SeqNo::MAX));
        assert_is(*tree, cursor.entry(), model.range(last).next_back());
    }
}

/// Compares what a reader at `seq` sees from a position on, in both directions, with the model.
fn assert_newest(
    table: &Arc<Memtable>,
    model: &Model,
    place: (TreeId, Vec<u8>, Reverse<SeqNo>),
    seq: SeqNo,
) {
    let (tree, key, Reverse(from)) = place.clone();
    let first = (tree, Vec::new(), Reverse(SeqNo::MAX));
    let next = (tree + 1, Vec::new(), Reverse(SeqNo::MAX));
    let mut seen: Vec<_> = model.range(first..next).filter(|((.., n), _)| n.0 <= seq).collect();
    seen.dedup_by(|later, earlier| later.0.1 == earlier.0.1);
    let at = seen.partition_point(|(found, _)| **found < place);
    let mut cursor = MemCursor::newest(Arc::clone(table), tree, seq);
    cursor.hint_len(from as usize % 40);
    cursor.seek(&key, from);
    for expected in &seen[at..] {
        assert_is(tree, cursor.entry(), Some(*expected));
        cursor.advance();
    }
    assert!(cursor.entry().is_none());
    cursor.seek_before(&key, from);
    for expected in seen[..at].iter().rev() {
        assert_is(tree, cursor.entry(), Some(*expected));
        cursor.advance();
    }
    assert!(cursor.entry().is_none());
    cursor.seek_to_last();
    assert_is(tree, cursor.entry(), seen.last().copied());
}

/// Keys that have a long common prefix, a short one, or differ in nothing but their length.
fn keys() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(Vec::new()),
        prop::collection::vec(any::<u8>(), 0..20),
        (0..40_usize).prop_map(|len| vec![0; len]),
        (0..3000_u32)
            .prop_map(|i| format!("https://example.org/a/long/path/{i:06}/x").into_bytes()),
        (0..3000_u32).prop_map(|i| i.to_be_bytes().to_vec()),
        (0..9_u8, 0..200_u32).prop_map(|(a, b)| [&[a; 30][..], &b.to_le_bytes()].concat()),
    ]
}

fn writes(most: usize) -> impl Strategy<Value = Vec<Write>> {
    let value = prop::option::weighted(0.9, prop::collection::vec(any::<u8>(), 0..8));
    let write = (prop_oneof![4 => Just(3), 1 => 0..7_u32], keys(), value)
        .prop_map(|(tree, key, value)| Write { tree, key, value });
    prop::collection::vec(write, 1..most)
}

proptest! {
    #[test]
    fn memtables_and_a_map_agree(
        batches in prop::collection::vec((writes(60), 0..3_u64), 1..30),
        more in prop::collection::vec((0..8_u32, keys(), 0..2000_u64), 0..6),
    ) {
        for kind in KINDS {
            let table = Arc::new(Memtable::new(kind, None, 1 << 20, &Gauge::default()));
            let (mut model, mut seq, mut probes) = (Model::new(), 0, more.clone());
            for (writes, gap) in &batches {
                apply(&table, &mut model, writes, seq + gap);
                seq += gap + writes.len() as u64;
                probes.push((writes[0].tree, writes[0].key.clone(), seq / (gap + 1)));
            }
            assert_same(&table, &model, &probes);
            prop_assert_eq!(table.last_seq(), seq - 1);
            // A successor knows nothing of the entries.
            let next = Arc::new(table.successor(None, 1 << 20));
            assert_same(&next, &Model::new(), &probes);
            let mut model = Model::new();
            for (writes, _) in &batches {
                apply(&next, &mut model, writes, seq);
                seq += writes.len() as u64;
            }
            assert_same(&next, &model, &probes);
        }
    }

    /// Sequence numbers as a log could have them that nothing wrote.
    #[test]
    fn numbers_may_come_in_any_order(
        writes in prop::collection::vec((0..4_u8, 0..60_u64), 1..120),
    ) {
        for kind in KINDS {
            let table = Arc::new(Memtable::new(kind, None, 1 << 20, &Gauge::default()));
            let mut model = Model::new();
            for (i, (key, seq)) in writes.iter().enumerate() {
                let value = Some(vec![i as u8]);
                apply(&table, &mut model, &[Write { tree: 1, key: vec![*key], value }], *seq);
                for (key, seq) in &writes[..i] {
                    let place = (1, vec![*key], Reverse(*seq));
                    let newest = model.range(place..).next().filter(|((_, k, _), _)| *k == [*key]);
                    let found = table.get(1, &[*key], *seq);
                    assert_is(1, found.as_ref().map(EntryRef::Cloned), newest);
                }
            }
            assert_all(&table, &model);
        }
    }
}

fn mixed(i: u64) -> u64 {
    let x = (i ^ i >> 31).wrapping_mul(0x7FB5_D329_728E_A185);
    let x = (x ^ x >> 27).wrapping_mul(0x81DA_DEF4_BC2D_D44D);
    x ^ x >> 33
}

/// Inserts `len` keys, enough for leaves to be replaced many times, in the order that `key` gives.
fn fill(table: &Memtable, len: u64, key: impl Fn(u64) -> Vec<u8>) -> Model {
    let mut model = Model::new();
    for i in 0..len {
        let write = Write { tree: 5, key: key(i), value: Some(i.to_le_bytes().to_vec()) };
        apply(table, &mut model, &[write], i + 1);
    }
    model
}

#[test]
fn large_memtables_and_their_successors_are_whole() {
    let orders: [&dyn Fn(u64) -> Vec<u8>; 5] = [
        &|i| mixed(i).to_be_bytes().to_vec(),
        &|i| i.to_be_bytes().to_vec(),
        &|i| (u64::MAX - i).to_be_bytes().to_vec(),
        &|i| format!("user{:012}", mixed(i) % 20_000).into_bytes(),
        &|i| format!("{}/{}", "abcdefgh".repeat((mixed(i) % 5) as usize), mixed(i)).into_bytes(),
    ];
    for kind in KINDS {
        for key in orders {
            let mut table = Arc::new(Memtable::new(kind, None, 64 << 20, &Gauge::default()));
            for _ in 0..3 {
                let model = fill(&table, 30_000, key);
                let probes: Vec<_> =
                    (0..20).map(|i| (5, key(mixed(i) % 40_000), mixed(i) % 30_000)).collect();
                let few: Vec<_> = probes[..2].to_vec();
                assert_same(&table, &model, &few);
                for (tree, key, seq) in probes {
                    let place = (tree, key.clone(), Reverse(seq));
                    let newest = model.range(place..).next().filter(|((_, k, _), _)| *k == key);
                    let found = table.get(tree, &key, seq);
                    assert_is(tree, found.as_ref().map(EntryRef::Cloned), newest);
                }
                table = Arc::new(table.successor(None, 64 << 20));
                assert!(table.is_empty() && table.trees().is_empty());
                assert!(!table.contains_tree(5));
            }
        }
    }
}

#[test]
fn successors_take_models_over_where_they_will_serve() {
    let reserved = |key: &dyn Fn(u64) -> Vec<u8>, bytes_max| {
        let table = Memtable::new(MemtableKind::Learned, None, bytes_max, &Gauge::default());
        fill(&table, 20_000, key);
        let fresh =
            Memtable::new(MemtableKind::Learned, None, bytes_max, &Gauge::default()).bytes();
        table.successor(None, bytes_max).bytes() - fresh
    };
    let random = |i| mixed(i).to_be_bytes().to_vec();
    let taken = reserved(&random, 64 << 20);
    assert!((20_000 * 16..20_000 * 50).contains(&taken), "{taken} bytes for 20,000 keys");
    assert_eq!(reserved(&random, 64 << 10), 0, "more than a small memtable may begin with");
    assert_eq!(reserved(&|i| i.to_be_bytes().to_vec(), 64 << 20), 0, "keys that only rise");
    assert_eq!(reserved(&|i| (u64::MAX - i).to_be_bytes().to_vec(), 64 << 20), 0, "that only fall");
}

#[test]
fn every_version_of_a_hot_key_is_found() {
    for kind in KINDS {
        let table = Arc::new(Memtable::new(kind, None, 64 << 20, &Gauge::default()));
        let mut model = Model::new();
        for seq in 1..=20_000_u64 {
            let value = Some(seq.to_le_bytes().to_vec());
            apply(&table, &mut model, &[Write { tree: 1, key: b"hot".to_vec(), value }], seq * 2);
        }
        for seq in [0, 1, 2, 3, 4, 777, 20_000, 39_999, 40_000, 40_001, SeqNo::MAX] {
            let expected = (seq / 2).min(20_000);
            let found = table.get(1, b"hot", seq).map(|entry| entry.seq());
            assert_eq!(found, (expected > 0).then_some(expected * 2));
        }
        assert_same(&table, &model, &[(1, b"hot".to_vec(), 20_000)]);
    }
}

#[test]
fn records_are_let_go_with_the_memtable() {
    for kind in KINDS {
        let table = Memtable::new(kind, None, 1 << 20, &Gauge::default());
        let writes: Vec<Write> = (0..3000_u32)
            .map(|i| Write { tree: i % 3, key: i.to_be_bytes().to_vec(), value: None })
            .collect();
        let records: Vec<Record> = writes.chunks(7).map(record_of).collect();
        for (i, record) in records.iter().enumerate() {
            insert_record(&table, record, i as u64 * 7 + 1);
        }
        let entry = table.get(1, &1_u32.to_be_bytes(), SeqNo::MAX).unwrap();
        assert!(records.iter().all(|record| record.strong_count() > 1));
        drop(table);
        for _ in 0..1000 {
            rhumb_sync::deferred::collect();
            if records[1..].iter().all(|record| record.strong_count() == 1) {
                break;
            }
            thread::yield_now();
        }
        assert_eq!(entry.key(), 1_u32.to_be_bytes(), "an entry outlives its memtable");
        assert!(records[1..].iter().all(|record| record.strong_count() == 1));
    }
}

#[test]
fn readers_see_whole_chains_while_a_writer_writes() {
    for kind in KINDS {
        let table = Arc::new(Memtable::new(kind, None, 64 << 20, &Gauge::default()));
        let (visible, is_done) = (AtomicU64::new(0), AtomicBool::new(false));
        let key = |i: u64| mixed(i % 3000).to_be_bytes();
        thread::scope(|scope| {
            for reader in 0..2 {
                let (table, visible, is_done) = (&table, &visible, &is_done);
                scope.spawn(move || {
                    let mut i = reader;
                    while !is_done.load(Ordering::Relaxed) {
                        i += 7;
                        // Every key is written again every 3000 writes.
                        let seq = visible.load(Ordering::Acquire);
                        let expected = (seq > 0).then(|| seq - 1).and_then(|last| {
                            let behind = (last + 3000 - i % 3000) % 3000;
                            last.checked_sub(behind).map(|write| write + 1)
                        });
                        let entry = table.get(9, &key(i), seq);
                        assert_eq!(entry.map(|entry| entry.seq()), expected);
                        if i % 5 == 0 {
                            let mut cursor = MemCursor::new(Arc::clone(table), 9);
                            cursor.seek(&key(i), seq);
                            let found = cursor.entry().filter(|entry| entry.key() == key(i));
                            assert_eq!(found.map(EntryRef::seq), expected);
                            let mut last: Option<(Vec<u8>, Reverse<SeqNo>)> = None;
                            for _ in 0..100 {
                                let Some(entry) = cursor.entry() else { break };
                                let place = (entry.key().to_vec(), Reverse(entry.seq()));
                                assert!(last.as_ref().is_none_or(|last| *last < place));
                                last = Some(place);
                                cursor.advance();
                            }
                        }
                    }
                });
            }
            for i in 0..60_000_u64 {
                let write = Write { tree: 9, key: key(i).to_vec(), value: Some(vec![7; 10]) };
                insert_record(&table, &record_of(&[write]), i + 1);
                visible.store(i + 1, Ordering::Release);
            }
            is_done.store(true, Ordering::Relaxed);
        });
    }
}
