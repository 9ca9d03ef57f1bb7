//! Edits, the catalog and the manifest against their promises.

use std::path::Path;

use proptest::{collection::vec, prelude::*};
use rhumb_testkit::random::Random;

use super::{
    edit::{Edit, FILE_ID_END, VersionEdit},
    format::MANIFEST_HEADER_BYTES,
    manifest::{Manifest, read_manifest},
    state::CatalogState,
};
use crate::{
    expiry::Expiries,
    io::sim::SimFs,
    table::{TableMeta, TablePlace},
};

fn dir() -> &'static Path {
    Path::new("db")
}

fn meta(id: u64) -> TableMeta {
    TableMeta {
        place: None,
        id,
        file_bytes: 4096 * id,
        value_file_bytes: id,
        entries: 10 + id,
        tombstones: 3,
        range_tombstones: 0,
        smallest: id.to_be_bytes().into(),
        largest: (id + 1).to_be_bytes().into(),
        seq_min: id,
        seq_max: id + 7,
        raw_bytes: 100 * id,
        expiries: None,
    }
}

fn keyspace(id: u32, tree: u32) -> Edit {
    Edit::CreateKeyspace { id, name: format!("space {id}"), options: vec![id as u8; 3], tree }
}

/// Edits of every kind but those of partitions.
fn edits() -> Vec<Edit> {
    vec![
        Edit::Identity { identity: 0x1122_3344_5566_7788 },
        keyspace(1, 1),
        keyspace(2, 2),
        Edit::AddTable { tree: 1, level: 0, meta: meta(9) },
        Edit::AddTable { tree: 2, level: 6, meta: meta(10) },
        Edit::RemoveTable { tree: 1, level: 0, id: 9 },
        Edit::ReplaceTree { keyspace: 1, old: 1, new: 3 },
        Edit::DropKeyspace { id: 2 },
        Edit::LogFloor { segment: 11, lsn: 1 << 40 },
        Edit::NextIds { file: 12, tree: 5, keyspace: 4 },
        Edit::LastSeq { seq: 77 },
    ]
}

/// The levels of a database are 0 to 6; any other number is refused.
#[test]
fn a_level_that_no_sub_tree_has_is_damage() {
    for level in [7, 40, 63, 255] {
        for meta in [meta(9), shared_meta(13), ranged(meta(15)), ranged(shared_meta(16))] {
            let add = VersionEdit::from(vec![Edit::AddTable { tree: 1, level, meta }]);
            let fault = VersionEdit::decode(&add.encode()).expect_err("a level that is none");
            assert_eq!(fault.expected, "a level below 7");
        }
        let remove = VersionEdit::from(vec![Edit::RemoveTable { tree: 1, level, id: 9 }]);
        assert!(VersionEdit::decode(&remove.encode()).is_err());
    }
}

#[test]
fn a_name_that_no_keyspace_can_have_is_damage() {
    let named = |len: usize| {
        let (name, options) = ("n".repeat(len), Vec::new());
        VersionEdit::from(vec![Edit::CreateKeyspace { id: 1, name, options, tree: 1 }])
    };
    assert!(VersionEdit::decode(&named(255).encode()).is_ok());
    assert!(VersionEdit::decode(&named(256).encode()).is_err());
}

/// Edits of every kind.
fn every_edit() -> VersionEdit {
    let of_partitions = vec![
        partition(3, b"one", 6),
        partition(3, b"", 7),
        Edit::AddTable { tree: 6, level: 0, meta: shared_meta(13) },
        Edit::AddTable { tree: 7, level: 0, meta: shared_meta(14) },
        Edit::AddTable { tree: 7, level: 0, meta: ranged(meta(15)) },
        Edit::AddTable { tree: 7, level: 0, meta: ranged(shared_meta(16)) },
        Edit::DropPartition { root: 3, name: b"one".as_slice().into() },
        Edit::RetireTree { tree: 6, segment: 12 },
    ];
    VersionEdit::from([edits(), of_partitions].concat())
}

fn partition(root: u32, name: &[u8], tree: u32) -> Edit {
    Edit::CreatePartition { root, name: name.into(), tree }
}

/// A table in a file that it shares.
fn shared_meta(id: u64) -> TableMeta {
    TableMeta { place: Some(TablePlace { file: 30, offset: 4096 * id }), ..meta(id) }
}

/// A table with entries that expire.
fn expiring(meta: TableMeta) -> TableMeta {
    let expiries = Expiries { entries: 2, first_ms: 7, parts_ms: [8, 9, 10, 11, 12, 13, 14, 15] };
    TableMeta { expiries: Some(expiries), ..meta }
}

/// A table with range tombstones.
fn ranged(meta: TableMeta) -> TableMeta {
    TableMeta { range_tombstones: 5, ..meta }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn golden_bytes_of_edits() {
    let edits = vec![
        Edit::CreateKeyspace { id: 1, name: "ab".into(), options: vec![255], tree: 2 },
        Edit::AddTable { tree: 2, level: 3, meta: meta(1) },
        Edit::LogFloor { segment: 5, lsn: 6 },
    ];
    let expected = [
        "03000000",
        "0201000000020000006162",
        "01000000ff02000000",
        "050200000003",
        "01000000000000000010000000000000010000000000000",
        "00b000000000000000300000000000000",
        "010000000000000008000000000000006400000000000000",
        "08000000000000000000000108000000000000000000000207",
        "05000000000000000600000000000000",
    ];
    let expected = expected.concat();
    let bytes = VersionEdit::from(edits).encode();
    assert_eq!(hex(&bytes), expected);
}

#[test]
fn golden_bytes_of_edits_of_partitions() {
    let edits = vec![
        partition(1, b"ab", 2),
        Edit::DropPartition { root: 1, name: b"ab".as_slice().into() },
        Edit::RetireTree { tree: 2, segment: 5 },
        Edit::AddTable { tree: 2, level: 0, meta: shared_meta(1) },
    ];
    let expected = [
        "04000000",
        "0a0100000002000000616202000000",
        "0b01000000020000006162",
        "0c020000000500000000000000",
        "0d0200000000",
        "1e000000000000000010000000000000",
        "01000000000000000010000000000000010000000000000",
        "00b000000000000000300000000000000",
        "010000000000000008000000000000006400000000000000",
        "080000000000000000000001080000000000000000000002",
    ];
    let bytes = VersionEdit::from(edits).encode();
    assert_eq!(hex(&bytes), expected.concat());
}

#[test]
fn golden_bytes_of_tables_with_range_tombstones() {
    let table = |meta| VersionEdit::from(vec![Edit::AddTable { tree: 2, level: 0, meta }]).encode();
    for (plain, tag, ranged_tag) in [(meta(1), 5, 14), (shared_meta(1), 13, 15)] {
        let bytes = table(plain.clone());
        assert_eq!(bytes[4], tag);
        let mut expected = [&bytes[..], &[5, 0, 0, 0, 0, 0, 0, 0]].concat();
        expected[4] = ranged_tag;
        assert_eq!(table(ranged(plain)), expected);
        // A table without range tombstones is written with the other tag.
        let last = expected.len() - 8;
        expected[last] = 0;
        assert!(VersionEdit::decode(&expected).is_err());
    }
}

#[test]
fn golden_bytes_of_tables_with_entries_that_expire() {
    let table = |meta| VersionEdit::from(vec![Edit::AddTable { tree: 2, level: 0, meta }]).encode();
    let times: Vec<u8> = [2_u64, 7, 8, 9, 10, 11, 12, 13, 14, 15]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    let plain = [meta(1), shared_meta(1), ranged(meta(1)), ranged(shared_meta(1))];
    for (flags, plain) in (0..).zip(plain) {
        let bytes = table(plain.clone());
        let expected = [&bytes[..4], &[16, flags], &bytes[5..], &times].concat();
        assert_eq!(table(expiring(plain.clone())), expected);
        let edit = Edit::AddTable { tree: 2, level: 0, meta: expiring(plain) };
        assert_eq!(VersionEdit::decode(&expected), Ok(vec![edit].into()));
        // More entries expire than there are; times that do not ascend; another part.
        let start = expected.len() - times.len();
        for (at, byte) in [(start, 200), (start + 8, 9), (5, 4)] {
            let mut changed = expected.clone();
            changed[at] = byte;
            assert!(VersionEdit::decode(&changed).is_err(), "{at}");
        }
    }
}

#[test]
fn the_clock_is_kept_and_does_not_go_back() {
    let mut state = CatalogState::blank();
    state.apply(&vec![Edit::Clock { ms: 70 }].into()).unwrap();
    assert_eq!(
        hex(&VersionEdit::from(vec![Edit::Clock { ms: 70 }]).encode()[4..]),
        "114600000000000000"
    );
    assert!(state.apply(&vec![Edit::Clock { ms: 69 }].into()).is_err());
    let mut again = CatalogState::blank();
    again.apply(&state.snapshot()).unwrap();
    assert_eq!(again.clock_ms, 70);
}

#[test]
fn partitions_come_and_go_with_their_keyspace_and_the_log() {
    let mut state = CatalogState::blank();
    let mut apply = |edits: Vec<Edit>| state.apply(&edits.into()).map(|()| state.clone());
    let begun = apply(vec![
        keyspace(1, 1),
        keyspace(2, 2),
        partition(1, b"a", 3),
        partition(1, b"b", 4),
        partition(2, b"a", 5),
        Edit::AddTable { tree: 4, level: 0, meta: shared_meta(9) },
    ]);
    let begun = begun.unwrap();
    assert!(begun.partitions_of(1).map(|(name, tree)| (name[0], tree)).eq([(b'a', 3), (b'b', 4)]));
    assert!(begun.partitions_of(2).map(|(name, tree)| (name[0], tree)).eq([(b'a', 5)]));
    assert_eq!((begun.next_tree, begun.next_file), (6, 31));
    for refused in [
        partition(1, b"a", 9),
        partition(1, b"c", 4),
        partition(7, b"a", 9),
        Edit::DropPartition { root: 1, name: b"c".as_slice().into() },
        Edit::RetireTree { tree: 4, segment: 1 },
    ] {
        assert!(apply(vec![refused.clone()]).is_err(), "{refused:?}");
    }
    let cleared = apply(vec![Edit::ReplaceTree { keyspace: 1, old: 1, new: 10 }]).unwrap();
    assert_eq!(cleared.partitions_of(1).count() + cleared.tables().count(), 0);
    assert!(!cleared.has_tree(3) && !cleared.has_tree(4) && cleared.has_tree(5));
    let retired = apply(vec![Edit::RetireTree { tree: 11, segment: 20 }]).unwrap();
    assert!(retired.is_retired(11) && retired.next_tree == 12);
    assert!(apply(vec![partition(10, b"a", 11)]).is_err(), "what is retired stays so");
    let mut again = CatalogState::blank();
    again.apply(&retired.snapshot()).unwrap();
    assert_eq!(again, retired);
    let at = |segment| vec![Edit::LogFloor { segment, lsn: 0 }];
    assert!(apply(at(20)).unwrap().is_retired(11));
    assert!(!apply(at(21)).unwrap().is_retired(11));
    assert!(!apply(vec![Edit::RetireTree { tree: 11, segment: 20 }]).unwrap().is_retired(11));
}

#[test]
fn golden_bytes_of_a_manifest() {
    let fs = SimFs::one_dir();
    let snapshot = VersionEdit::from(vec![Edit::Identity { identity: 0x0102_0304_0506_0708 }]);
    let mut manifest = Manifest::create(&fs, dir(), 7, &[snapshot]).unwrap();
    manifest.append(&VersionEdit::from(vec![Edit::LastSeq { seq: 5 }])).unwrap();
    let expected = [
        "5248554d424d414e010000000000000007000000000000000807060504030201749d622238602af9",
        "6e15693d0d000000000000000000000016cfbcba280deebf",
        "01000000010807060504030201",
        "c584af260d0000004d0000000000000098a02983a4b6f6eb",
        "01000000090500000000000000",
        "201a31580000000072000000000000004f6617e5f906e26a",
    ]
    .concat();
    assert_eq!(hex(&fs.read("MANIFEST-000007")), expected);
    assert_eq!(fs.read("CURRENT"), b"MANIFEST-000007 000000000000004d 3009f96d4cee46cb\n");
}

#[test]
fn every_edit_is_read_back_and_no_part_of_it_is() {
    let edit = every_edit();
    let bytes = edit.encode();
    assert_eq!(VersionEdit::decode(&bytes), Ok(edit));
    for len in 0..bytes.len() {
        assert!(VersionEdit::decode(&bytes[..len]).is_err(), "{len}");
    }
    assert!(VersionEdit::decode(&[&bytes[..], &[0]].concat()).is_err());
    assert!(VersionEdit::decode(&[0xFF; 4]).is_err());
}

#[test]
fn contradictions_are_refused_and_change_nothing() {
    let mut state = CatalogState::blank();
    state.apply(&edits().into()).unwrap();
    let setup = vec![keyspace(5, 8), Edit::AddTable { tree: 8, level: 1, meta: meta(20) }];
    state.apply(&setup.into()).unwrap();
    let before = state.clone();
    let named =
        |name: &str| Edit::CreateKeyspace { id: 50, name: name.into(), options: vec![], tree: 50 };
    for bad in [
        Edit::Identity { identity: 1 },
        keyspace(5, 60),
        keyspace(60, 8),
        named("space 5"),
        Edit::DropKeyspace { id: 2 },
        Edit::ReplaceTree { keyspace: 2, old: 2, new: 70 },
        Edit::ReplaceTree { keyspace: 5, old: 3, new: 70 },
        Edit::ReplaceTree { keyspace: 5, old: 8, new: 3 },
        Edit::AddTable { tree: 1, level: 0, meta: meta(30) },
        Edit::AddTable { tree: 8, level: 0, meta: meta(20) },
        Edit::AddTable { tree: 8, level: 7, meta: meta(30) },
        Edit::RemoveTable { tree: 8, level: 0, id: 20 },
        Edit::RemoveTable { tree: 8, level: 9, id: 20 },
        Edit::RemoveTable { tree: 8, level: 1, id: 21 },
        Edit::LogFloor { segment: 10, lsn: 1 << 40 },
        Edit::LogFloor { segment: 12, lsn: 1 << 39 },
        Edit::NextIds { file: 20, tree: 9, keyspace: 6 },
        Edit::NextIds { file: 21, tree: 8, keyspace: 6 },
        Edit::NextIds { file: 21, tree: 9, keyspace: 5 },
        Edit::LastSeq { seq: 76 },
    ] {
        let good = Edit::LastSeq { seq: 1000 };
        let edit = VersionEdit::from(vec![good, bad]);
        assert!(state.apply(&edit).is_err(), "{:?}", edit.edits[1]);
        assert_eq!(state, before);
    }
    let moved = vec![
        Edit::RemoveTable { tree: 8, level: 1, id: 20 },
        Edit::AddTable { tree: 8, level: 2, meta: meta(20) },
    ];
    state.apply(&moved.into()).unwrap();
    let tables: Vec<_> = state.tables_of(8).map(|(level, meta)| (level, meta.id)).collect();
    assert_eq!(tables, [(2, 20)]);
    assert_eq!(state.tables().count(), 1);
}

#[test]
fn dropping_takes_the_tables_along() {
    let mut state = CatalogState::blank();
    let add = |tree, id| Edit::AddTable { tree, level: 0, meta: meta(id) };
    state.apply(&vec![keyspace(1, 1), keyspace(2, 2), add(1, 3), add(2, 4)].into()).unwrap();
    state.apply(&vec![Edit::DropKeyspace { id: 1 }].into()).unwrap();
    state.apply(&vec![Edit::ReplaceTree { keyspace: 2, old: 2, new: 3 }].into()).unwrap();
    assert_eq!(state.tables().count(), 0);
    assert_eq!((state.next_file, state.next_tree, state.next_keyspace), (5, 4, 3));
}

#[test]
fn a_new_catalog_has_an_identity_of_its_own() {
    let (mut a, b) = (CatalogState::default(), CatalogState::default());
    assert_ne!(a.identity, b.identity);
    a.identity = 0;
    assert_eq!(a, CatalogState::blank());
}

/// How many bytes a failed write leaves: none, some, or all.
fn kept(rng: &mut Random) -> usize {
    [0, rng.index(100), usize::MAX][rng.index(3)]
}

fn recovered(fs: &SimFs) -> CatalogState {
    Manifest::recover(fs, dir()).unwrap().unwrap().state
}

#[test]
fn an_interrupted_creation_is_no_database_and_a_lost_current_is_damage() {
    let fs = SimFs::one_dir();
    assert!(Manifest::recover(&fs, dir()).unwrap().is_none());
    fs.put("MANIFEST-000001", b"half");
    fs.put("CURRENT.tmp", b"half");
    fs.put("notes.log", b"not ours");
    assert!(Manifest::recover(&fs, dir()).unwrap().is_none());
    let state = CatalogState::default();
    let _manifest = Manifest::create(&fs, dir(), 1, &[state.snapshot()]).unwrap();
    assert_eq!(recovered(&fs), state);
    fs.remove("CURRENT");
    assert!(Manifest::recover(&fs, dir()).unwrap().is_none());
    for name in ["000002.log", "000003.sst", "1000003.val"] {
        fs.put(name, b"");
        let error = Manifest::recover(&fs, dir()).unwrap_err();
        assert!(error.is_corruption() && error.to_string().contains(name), "{error}");
        fs.remove(name);
    }
}

#[test]
fn a_manifest_that_counts_is_not_replaced() {
    let fs = SimFs::one_dir();
    let state = CatalogState::default();
    let _manifest = Manifest::create(&fs, dir(), 1, &[state.snapshot()]).unwrap();
    Manifest::create(&fs, dir(), 1, &[]).unwrap_err();
    assert_eq!(recovered(&fs), state);
    fs.remove("MANIFEST-000001");
    let error = Manifest::recover(&fs, dir()).unwrap_err();
    assert!(error.is_corruption() && error.to_string().contains("MANIFEST-000001"), "{error}");
}

#[test]
fn every_flipped_bit_of_manifest_and_current_is_found_or_harmless() {
    let fs = SimFs::one_dir();
    let mut state = CatalogState::default();
    let mut manifest = Manifest::create(&fs, dir(), 3, &[state.snapshot()]).unwrap();
    for id in 1..4 {
        let edit = VersionEdit::from(vec![keyspace(id, id), Edit::LastSeq { seq: id.into() }]);
        manifest.append(&edit).unwrap();
        state.apply(&edit).unwrap();
    }
    let mut harmless = 0;
    for name in ["MANIFEST-000003", "CURRENT"] {
        for bit in 0..8 * fs.read(name).len() {
            fs.flip(name, bit);
            match Manifest::recover(&fs, dir()) {
                Err(error) => assert!(error.is_corruption(), "{error}"),
                Ok(recovered) => {
                    assert_eq!(recovered.unwrap().state, state, "bit {bit} of {name}");
                    harmless += 1;
                }
            }
            fs.flip(name, bit);
        }
    }
    assert_eq!(harmless, 24 * 8, "the last mark");
}

/// Switches and appends with one failing call each: what was acknowledged stays, what failed is
/// absent or whole, and the next manifest heals it.
#[test]
fn any_call_may_fail_and_any_crash_may_follow() {
    for seed in 0..400 {
        for sticky in [false, true] {
            let mut rng = Random::new(seed);
            let fs = SimFs::one_dir();
            let mut state = CatalogState::default();
            let mut manifest = Some(Manifest::create(&fs, dir(), 1, &[state.snapshot()]).unwrap());
            let mut maybe = None;
            fs.fail_after(rng.below(40), sticky, kept(&mut rng));
            for id in 2..8 {
                let edit = VersionEdit::from(vec![keyspace(id, id)]);
                let mut next = state.clone();
                next.apply(&edit).unwrap();
                if let Some(open) = manifest.as_mut().filter(|open| !open.is_broken()) {
                    match open.append(&edit) {
                        Ok(()) => state = next,
                        Err(_) => maybe = Some(next),
                    }
                }
                if manifest.as_ref().is_none_or(|open| open.is_broken()) || rng.one_in(3) {
                    manifest = Manifest::create(&fs, dir(), id.into(), &[state.snapshot()]).ok();
                    maybe = maybe.filter(|_| manifest.is_none());
                }
                let crashes =
                    [fs.after_kill(), fs.after_power_cut(&mut rng), fs.after_power_cut(&mut rng)];
                for after in crashes {
                    let found = recovered(&after);
                    assert!(found == state || Some(&found) == maybe.as_ref(), "seed {seed}");
                    let _again = Manifest::create(&after, dir(), 99, &[found.snapshot()]).unwrap();
                    assert_eq!(recovered(&after.after_power_cut(&mut rng)), found);
                }
            }
            fs.clear_faults();
            let _healed = Manifest::create(&fs, dir(), 50, &[state.snapshot()]).unwrap();
            assert_eq!(recovered(&fs.after_power_cut(&mut rng)), state);
        }
    }
}

#[test]
fn a_crash_in_the_first_creation_leaves_no_database_or_a_whole_one() {
    for seed in 0..600 {
        let mut rng = Random::new(seed);
        let fs = SimFs::one_dir();
        let state = CatalogState::default();
        fs.fail_after(rng.below(9), true, kept(&mut rng));
        let created = Manifest::create(&fs, dir(), 1, &[state.snapshot()]).is_ok();
        for after in [fs.after_kill(), fs.after_power_cut(&mut rng)] {
            match Manifest::recover(&after, dir()).unwrap() {
                None => {
                    assert!(!created);
                    let _again = Manifest::create(&after, dir(), 1, &[state.snapshot()]).unwrap();
                    assert_eq!(recovered(&after), state);
                }
                Some(found) => assert_eq!(found.state, state),
            }
        }
    }
}

#[test]
fn the_last_record_may_be_torn_anywhere_and_no_other() {
    let fs = SimFs::one_dir();
    let state = CatalogState::default();
    let mut manifest = Manifest::create(&fs, dir(), 3, &[state.snapshot()]).unwrap();
    let created = manifest.bytes();
    manifest.append(&vec![keyspace(1, 1)].into()).unwrap();
    let bytes = fs.read("MANIFEST-000003");
    let end = bytes.len() - 24;
    for len in 0..bytes.len() {
        fs.put("MANIFEST-000003", &bytes[..len]);
        match Manifest::recover(&fs, dir()) {
            Err(error) => assert!((len as u64) < created && error.is_corruption(), "{error}"),
            Ok(found) => {
                let found = found.unwrap();
                assert_eq!(found.state.keyspaces.len(), usize::from(len >= end));
                let path = dir().join("MANIFEST-000003");
                let torn = read_manifest(&fs, &path, 0, |_| Ok(())).unwrap();
                let starts = [created, end as u64];
                assert_eq!(torn.is_none(), starts.contains(&(len as u64)));
                assert!(torn.is_none_or(|torn| starts.contains(&torn)));
            }
        }
    }
}

#[test]
fn numbers_without_a_next_one_are_refused() {
    for id in [FILE_ID_END - 1, FILE_ID_END, u64::MAX] {
        let mut table = meta(1);
        table.id = id;
        for edit in [
            Edit::AddTable { tree: 1, level: 0, meta: table },
            Edit::LogFloor { segment: id, lsn: 0 },
            Edit::NextIds { file: id, tree: 1, keyspace: 1 },
        ] {
            let decoded = VersionEdit::decode(&VersionEdit::from(vec![edit]).encode());
            assert_eq!(decoded.is_ok(), id < FILE_ID_END);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn hostile_bytes_decode_or_fail(edits in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), cut: prop::sample::Index) {
        let mut bytes = every_edit().encode();
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(edit) = VersionEdit::decode(&bytes) {
            prop_assert_eq!(edit.encode(), bytes.clone());
            let _ = CatalogState::blank().apply(&edit);
        }
        let _ = VersionEdit::decode(&bytes[..cut.index(bytes.len())]);
    }

    /// A snapshot says the same as all the edits before it.
    #[test]
    fn a_snapshot_adds_up_to_the_same_catalog(seed: u64) {
        let mut rng = Random::new(seed);
        let mut state = CatalogState::default();
        for _ in 0..60 {
            let (id, tree) = (rng.below(6) as u32, rng.below(8) as u32);
            let edit = match rng.below(9) {
                0 | 1 => keyspace(id, tree),
                2 => Edit::DropKeyspace { id },
                3 => Edit::ReplaceTree { keyspace: id, old: tree, new: rng.below(20) as u32 },
                4 => Edit::RemoveTable { tree, level: rng.below(3) as u8, id: rng.below(30) },
                5 => Edit::LogFloor { segment: rng.below(99), lsn: rng.below(99) },
                6 => Edit::LastSeq { seq: rng.below(999) },
                _ => Edit::AddTable { tree, level: rng.below(3) as u8, meta: meta(rng.below(30)) },
            };
            let _ = state.apply(&vec![edit].into());
        }
        let mut again = CatalogState::blank();
        for record in state.records() {
            again.apply(&VersionEdit::decode(&record.encode()).unwrap()).unwrap();
        }
        prop_assert_eq!(again, state);
    }

    #[test]
    fn hostile_manifests_are_read_or_refused(edits in vec((any::<prop::sample::Index>(), any::<u8>()), 1..5), len: prop::sample::Index) {
        let fs = SimFs::one_dir();
        let mut manifest = Manifest::create(&fs, dir(), 3, &[every_edit()]).unwrap();
        manifest.append(&vec![keyspace(9, 9)].into()).unwrap();
        let mut bytes = fs.read("MANIFEST-000003");
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(MANIFEST_HEADER_BYTES + len.index(bytes.len()));
        fs.put("MANIFEST-000003", &bytes);
        let mut read = Vec::new();
        let path = dir().join("MANIFEST-000003");
        let _ = read_manifest(&fs, &path, 0, |record| {
            read.push(record.edit);
            Ok(())
        });
        let written = [every_edit(), VersionEdit::from(vec![keyspace(9, 9)])];
        prop_assert_eq!(&read[..], &written[..read.len()]);
    }
}
