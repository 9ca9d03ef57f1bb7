//! What the manifest of a damaged store says, as far as it can be read.
//!
//! The records of a manifest have checksums of their own. If one is damaged, those before and after
//! it are applied all the same, and what does not fit them is left out. What such a catalog does
//! not name may have been named by what was lost.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::Path,
};

use super::report::{Loss, ManifestFound, SalvageReport};
use crate::{
    error::{Error, Result},
    io::FileSystem,
    log::{
        frame::FrameSeed,
        reader::{FrameFault, FrameRead, FrameReader},
        segment::{SEGMENT_HEADER_BYTES, SegmentHeader, parse_segment_name, segment_path},
    },
    table::TableMeta,
    types::{FileId, TreeId},
    version::{
        edit::{Edit, VersionEdit},
        format::{MANIFEST_HEADER_BYTES, decode_header},
        manifest::{CURRENT_NAME, Manifest, manifest_path},
    },
};

/// A keyspace that the manifest names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownKeyspace {
    pub(super) name: String,
    pub(super) options: Vec<u8>,
    pub(super) root: TreeId,
}

/// What is known of a store.
#[derive(Debug, Default)]
pub(super) struct KnownCatalog {
    /// True if nothing of the manifest is lost.
    pub(super) is_whole: bool,
    /// The random number of the database, with which the log's checksums are seeded.
    pub(super) identity: Option<u64>,
    pub(super) keyspaces: BTreeMap<u32, KnownKeyspace>,
    /// The LSM tree of the keyspace that a partition's LSM tree is of, with the partition's name.
    pub(super) partitions: HashMap<TreeId, (TreeId, Box<[u8]>)>,
    pub(super) tables: BTreeMap<FileId, (TreeId, TableMeta)>,
    /// Tables that were removed.
    pub(super) removed: HashSet<FileId>,
    /// LSM trees that were dropped.
    pub(super) dropped: HashSet<TreeId>,
    /// The first log segment that is needed, if it is known.
    pub(super) log_floor: FileId,
    /// True if that segment must exist.
    pub(super) has_floor: bool,
    /// No LSM tree that the manifest knew has this number or a greater one.
    pub(super) next_tree: TreeId,
}

impl KnownCatalog {
    pub(super) fn apply(&mut self, record: &VersionEdit) {
        for edit in &record.edits {
            self.apply_one(edit);
        }
        if record.edits.iter().any(|edit| matches!(edit, Edit::LogFloor { .. })) {
            // A floor alone in its record is that of a checkpoint, which has no log.
            self.has_floor = record.edits.len() > 1 && self.log_floor > 0;
        }
    }

    fn apply_one(&mut self, edit: &Edit) {
        match edit {
            Edit::Identity { identity } => self.identity = Some(*identity),
            Edit::CreateKeyspace { id, name, options, tree } => {
                let (name, options) = (name.clone(), options.clone());
                self.keyspaces.insert(*id, KnownKeyspace { name, options, root: *tree });
                self.add_tree(*tree);
            }
            Edit::DropKeyspace { id } => {
                if let Some(keyspace) = self.keyspaces.remove(id) {
                    self.drop_root(keyspace.root);
                }
            }
            Edit::ReplaceTree { keyspace, old, new } => {
                self.drop_root(*old);
                self.add_tree(*new);
                if let Some(keyspace) = self.keyspaces.get_mut(keyspace) {
                    keyspace.root = *new;
                }
            }
            Edit::AddTable { tree, meta, .. } => {
                self.removed.remove(&meta.id);
                self.tables.insert(meta.id, (*tree, meta.clone()));
            }
            Edit::RemoveTable { id, .. } => self.remove_table(*id),
            Edit::LogFloor { segment, .. } => self.log_floor = self.log_floor.max(*segment),
            Edit::NextIds { tree, .. } => self.next_tree = self.next_tree.max(*tree),
            Edit::LastSeq { .. }
            | Edit::Clock { .. }
            | Edit::Event(_)
            | Edit::HistoryFrom { .. }
            | Edit::Source { .. } => {}
            Edit::CreatePartition { root, name, tree } => {
                self.partitions.insert(*tree, (*root, name.clone()));
                self.add_tree(*tree);
            }
            Edit::DropPartition { root, name } => {
                let is_it = |of: &(TreeId, Box<[u8]>)| of.0 == *root && of.1 == *name;
                let trees = self.partitions.iter().filter(|(_, of)| is_it(of));
                let trees: Vec<TreeId> = trees.map(|(tree, _)| *tree).collect();
                trees.into_iter().for_each(|tree| self.drop_tree(tree));
            }
            Edit::RetireTree { tree, .. } => self.drop_tree(*tree),
        }
    }

    fn add_tree(&mut self, tree: TreeId) {
        self.dropped.remove(&tree);
        self.next_tree = self.next_tree.max(tree.saturating_add(1));
    }

    fn remove_table(&mut self, id: FileId) {
        self.tables.remove(&id);
        self.removed.insert(id);
    }

    fn drop_tree(&mut self, tree: TreeId) {
        self.partitions.remove(&tree);
        let tables = self.tables.iter().filter(|(_, (of, _))| *of == tree);
        let tables: Vec<FileId> = tables.map(|(id, _)| *id).collect();
        tables.into_iter().for_each(|id| self.remove_table(id));
        self.dropped.insert(tree);
        self.next_tree = self.next_tree.max(tree.saturating_add(1));
    }

    /// Drops the LSM tree of a keyspace, and those of its partitions.
    fn drop_root(&mut self, root: TreeId) {
        let trees = self.partitions.iter().filter(|(_, (of, _))| *of == root);
        let trees: Vec<TreeId> = trees.map(|(tree, _)| *tree).collect();
        trees.into_iter().chain([root]).for_each(|tree| self.drop_tree(tree));
    }

    /// The number of the keyspace that an LSM tree is of.
    pub(super) fn keyspace_of(&self, tree: TreeId) -> Option<u32> {
        let root = self.partitions.get(&tree).map_or(tree, |(root, _)| *root);
        let of = self.keyspaces.iter().find(|(_, keyspace)| keyspace.root == root);
        of.map(|(id, _)| *id)
    }
}

/// Reads the manifest of the store in `dir`, whose entries are `names`.
pub(super) fn read(
    fs: &dyn FileSystem,
    dir: &Path,
    names: &[String],
) -> Result<(KnownCatalog, SalvageReport)> {
    let strict = Manifest::recover(fs, dir);
    let mut ids: Vec<FileId> = names.iter().filter_map(|name| manifest_id(name)).collect();
    ids.sort_unstable_by(|a, b| b.cmp(a));
    if let Ok(Some(recovered)) = &strict {
        let report = SalvageReport::new(ManifestFound::Whole);
        // The end may be torn, as after a crash: what was there never counted.
        let mut torn = report.clone();
        let mut known = read_records(fs, dir, recovered.id, None, &mut torn)?;
        known.is_whole = true;
        return Ok((known, report));
    }
    let hint = identity_of_logs(fs, dir, names);
    let mut report = SalvageReport::new(ManifestFound::Nothing);
    match strict {
        Err(error) => report.note(&dir.join(CURRENT_NAME), None, error.to_string()),
        _ => report.note(&dir.join(CURRENT_NAME), None, "no such file"),
    }
    // A newer manifest says what an older one did when it began, if it is whole.
    let mut best: Option<(KnownCatalog, SalvageReport)> = None;
    for id in ids {
        let mut losses = SalvageReport::new(ManifestFound::Part);
        let known = read_records(fs, dir, id, hint, &mut losses)?;
        let is_whole = losses.losses.is_empty() && known.identity.is_some();
        let is_some = !known.keyspaces.is_empty() || !known.tables.is_empty();
        if is_whole {
            best = Some((known, losses));
            break;
        }
        if is_some && best.is_none() {
            best = Some((known, losses));
        } else if best.is_none() {
            report.losses.append(&mut losses.losses);
        }
    }
    match best {
        Some((known, losses)) => {
            report.manifest = ManifestFound::Part;
            report.losses = losses.losses;
            report.notes.extend(losses.notes);
            Ok((known, report))
        }
        None => {
            if report.losses.is_empty() {
                let what =
                    "the manifest: the names and options of keyspaces, and which files are theirs";
                report.lose(Loss::new(&dir.join(CURRENT_NAME), 0, 0, what));
            }
            Ok((KnownCatalog { identity: hint, ..KnownCatalog::default() }, report))
        }
    }
}

fn manifest_id(name: &str) -> Option<FileId> {
    let id = name.strip_prefix("MANIFEST-")?.parse().ok()?;
    (manifest_path(Path::new(""), id).to_str() == Some(name)).then_some(id)
}

/// The identity in the headers of the log, if they have one.
fn identity_of_logs(fs: &dyn FileSystem, dir: &Path, names: &[String]) -> Option<u64> {
    let mut counts: HashMap<u64, usize> = HashMap::new();
    for id in names.iter().filter_map(|name| parse_segment_name(name)) {
        let reader = FrameReader::open(fs, &segment_path(dir, id), FrameSeed::new(0, id));
        let Ok(mut reader) = reader else { continue };
        let bytes = reader.bytes(0, SEGMENT_HEADER_BYTES).unwrap_or_default();
        if let Ok(header) = SegmentHeader::decode(bytes)
            && header.id == id
        {
            *counts.entry(header.identity).or_default() += 1;
        }
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(identity, _)| identity)
}

/// Applies the sound records of a manifest; what is not sound is among the losses of `report`.
fn read_records(
    fs: &dyn FileSystem,
    dir: &Path,
    id: FileId,
    hint: Option<u64>,
    report: &mut SalvageReport,
) -> Result<KnownCatalog> {
    let mut known = KnownCatalog::default();
    let path = manifest_path(dir, id);
    let mut lose =
        |offset, bytes: u64, what: &str| report.lose(Loss::new(&path, offset, bytes, what));
    let Ok(mut reader) = FrameReader::open(fs, &path, FrameSeed::new(hint.unwrap_or(0), id)) else {
        lose(0, 0, "the manifest, which cannot be opened");
        return Ok(known);
    };
    let header = reader.bytes(0, MANIFEST_HEADER_BYTES)?.to_vec();
    known.identity = match decode_header(&path, &header) {
        Ok((_, identity)) => Some(identity),
        Err(error @ Error::Unsupported { .. }) => return Err(error),
        Err(_) => {
            lose(0, MANIFEST_HEADER_BYTES as u64, "the header of the manifest");
            hint
        }
    };
    let Some(identity) = known.identity else {
        lose(0, reader.file_bytes(), "the manifest: the identity of the database is lost");
        return Ok(known);
    };
    reader.set_seed(FrameSeed::new(identity, id));
    let mut offset = MANIFEST_HEADER_BYTES as u64;
    loop {
        let next = match reader.frame_at(offset)? {
            FrameRead::End => break,
            FrameRead::Frame(header, payload) => {
                let edit = (!header.is_mark()).then(|| VersionEdit::decode(&payload));
                match edit {
                    Some(Ok(edit)) => known.apply(&edit),
                    Some(Err(_)) => lose(offset, header.frame_bytes(), "a record of the manifest"),
                    None => {}
                }
                offset += header.frame_bytes();
                continue;
            }
            FrameRead::Fault(FrameFault::Payload(header)) => offset + header.frame_bytes(),
            FrameRead::Fault(_) => {
                let found = reader.find_header(offset + 1, None)?;
                found.map_or(reader.file_bytes(), |(at, _)| at)
            }
        };
        lose(offset, next - offset, "records of the manifest");
        offset = next;
    }
    Ok(known)
}
