//! What a manifest says if some of its records are missing.

use std::{collections::HashMap, path::Path};

use super::super::{Gathered, ManifestFound, Salvage, SalvageReport, catalog::KnownCatalog};
use crate::{
    table::TableMeta,
    types::FileId,
    version::edit::{Edit, VersionEdit},
};

fn create(id: u32, name: &str, tree: u32) -> Edit {
    Edit::CreateKeyspace { id, name: name.to_owned(), options: Vec::new(), tree }
}

fn add(tree: u32, id: FileId) -> Edit {
    let meta = TableMeta {
        id,
        place: None,
        file_bytes: 4096,
        value_file_bytes: 0,
        entries: 1,
        tombstones: 0,
        range_tombstones: 0,
        smallest: Box::default(),
        largest: Box::default(),
        seq_min: 1,
        seq_max: 1,
        raw_bytes: 1,
        expiries: None,
    };
    Edit::AddTable { tree, level: 0, meta }
}

fn known(records: &[Vec<Edit>]) -> KnownCatalog {
    let mut known = KnownCatalog::default();
    records.iter().for_each(|edits| known.apply(&VersionEdit::from(edits.clone())));
    known
}

fn partition(root: u32, name: &[u8], tree: u32) -> Edit {
    Edit::CreatePartition { root, name: name.into(), tree }
}

#[test]
fn what_was_dropped_stays_dropped() {
    let all = [
        vec![create(1, "a", 1), create(2, "b", 2)],
        vec![partition(1, b"p", 3), partition(1, b"q", 4)],
        vec![add(1, 10), add(2, 11), add(3, 12), add(4, 13)],
        vec![Edit::DropPartition { root: 1, name: (*b"q").into() }],
        vec![Edit::DropKeyspace { id: 2 }],
        vec![Edit::RemoveTable { tree: 1, level: 0, id: 10 }],
    ];
    let whole = known(&all);
    assert_eq!(whole.tables.keys().copied().collect::<Vec<_>>(), [12]);
    assert_eq!(whole.keyspace_of(3), Some(1));
    assert!(whole.dropped.contains(&2) && whole.dropped.contains(&4));
    assert!([10, 11, 13].iter().all(|id| whole.removed.contains(id)));
    // The record that adds the tables is lost: those that were removed are known all the same.
    let part = known(&[&all[..2], &all[3..]].concat());
    assert!(part.tables.is_empty() && part.removed.contains(&10));
    // Without the record that creates it, a keyspace has lost its name.
    let nameless = known(&all[2..3]);
    assert_eq!((nameless.tables.len(), nameless.keyspace_of(1)), (4, None));
}

#[test]
fn clearing_and_changes_of_options_are_told_apart() {
    let first = vec![create(1, "a", 1), partition(1, b"p", 2), add(1, 10), add(2, 11)];
    let cleared = known(&[first.clone(), vec![Edit::ReplaceTree { keyspace: 1, old: 1, new: 5 }]]);
    assert!(cleared.tables.is_empty() && cleared.dropped.contains(&2));
    assert_eq!((cleared.keyspace_of(5), cleared.keyspace_of(1)), (Some(1), None));
    let again = [vec![Edit::DropKeyspace { id: 1 }], first.clone()].concat();
    let changed = known(&[first, again]);
    assert_eq!(changed.tables.len(), 2);
    assert!(changed.dropped.is_empty() && changed.removed.is_empty());
    assert_eq!(changed.keyspace_of(2), Some(1));
}

#[test]
fn a_floor_alone_is_that_of_a_checkpoint() {
    let floor = |segment| Edit::LogFloor { segment, lsn: 0 };
    let last = Edit::LastSeq { seq: 1 };
    assert!(known(&[vec![floor(7), last.clone()]]).has_floor);
    assert!(!known(&[vec![floor(7), last], vec![floor(8)]]).has_floor);
}

#[test]
fn a_tree_that_a_whole_manifest_does_not_name_was_dropped() {
    let next = Edit::NextIds { file: 1, tree: 9, keyspace: 2 };
    let mut known = known(&[vec![create(1, "a", 1), next]]);
    known.is_whole = true;
    let mut report = SalvageReport::new(ManifestFound::Whole);
    let gathered = Gathered::new(&Salvage::new(), &known, Path::new("/db"), &mut report);
    let name = |known: &KnownCatalog, tree: u32, root: Option<u32>| {
        let created: HashMap<_, _> =
            root.map(|root| (tree, (root, Box::from(&b"p"[..])))).into_iter().collect();
        gathered.name_of_logged(known, tree, &created)
    };
    assert_eq!(name(&known, 1, None).as_deref(), Some("a"));
    assert_eq!(name(&known, 5, None), None, "dropped, or of a keyspace that was");
    assert_eq!(name(&known, 5, Some(1)).as_deref(), Some("a"), "a partition that the log made");
    assert_eq!(name(&known, 5, Some(4)), None, "a partition of a keyspace that was dropped");
    assert_eq!(name(&known, 9, None).as_deref(), Some("tree-9"), "made after the last edit");
    known.is_whole = false;
    assert_eq!(name(&known, 5, None).as_deref(), Some("tree-5"));
    known.dropped.insert(5);
    assert_eq!(name(&known, 5, None), None);
}
