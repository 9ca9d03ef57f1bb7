//! What a store holds, and where each version of a key lies in its files, found out from undamaged
//! files by the engine's own readers. With damaged files it says which versions are sound.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    ops::Range,
    path::{Path, PathBuf},
};

use rhumb_sync::primitive::Arc;

use super::{
    super::catalog::{KnownCatalog, KnownKeyspace},
    DIR, Files,
};
use crate::{
    inspect::test_context,
    io::{FileSystem, sim::SimFs},
    log::{
        creation::Payload,
        frame::FrameSeed,
        reader::{FrameRead, FrameReader, FrameState, inspect_segment},
        segment::parse_segment_name,
    },
    table::{
        Table, TableMeta,
        block::BlockView,
        compress::decompress,
        footer::Footer,
        format::{
            COMPRESSION_NONE, FOOTER_BYTES, FRAME_HEADER_BYTES, PAGE_BYTES, PAGE_HEADER_BYTES,
        },
        home_path,
        pages::PageFrameHeader,
        value_path,
        values::ValuePointer,
    },
    types::{FileId, Kind, SeqNo, TreeId},
    version::{
        edit::VersionEdit,
        manifest::{Manifest, read_manifest},
    },
};

/// A part of a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Part {
    pub(super) path: PathBuf,
    pub(super) at: Range<u64>,
}

/// A version of a key, as a file has it.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: Vec<u8>,
    /// The number in the file, without what the manifest adds.
    pub(super) raw_seq: SeqNo,
    pub(super) kind: Kind,
    pub(super) value: Vec<u8>,
    /// Where the large value lies.
    pub(super) large: Option<Part>,
}

/// Bytes with one checksum, and the entries in them.
#[derive(Clone, Debug)]
pub(super) struct Unit {
    /// All of its bytes.
    pub(super) parts: Vec<Part>,
    pub(super) entries: Vec<Entry>,
}

/// A range tombstone.
pub(super) type Removal = (Vec<u8>, Option<Vec<u8>>, SeqNo);

/// A table with its blocks.
#[derive(Clone, Debug)]
pub(super) struct TableParts {
    pub(super) meta: TableMeta,
    pub(super) raw_seq_min: SeqNo,
    pub(super) blocks: Vec<Unit>,
    pub(super) ranges: Vec<Removal>,
    pub(super) ranges_at: Option<Part>,
    pub(super) footer: Part,
    /// The LSM tree that the footer names.
    pub(super) tree: Option<TreeId>,
}

/// An operation in the log.
#[derive(Clone, Debug)]
pub(super) enum LogOp {
    Create(TreeId, TreeId),
    Write(TreeId, Entry),
    Remove(TreeId, Removal),
}

/// A record of the log.
#[derive(Clone, Debug)]
pub(super) struct LogFrame {
    pub(super) part: Part,
    pub(super) ops: Vec<LogOp>,
}

/// A whole store.
pub(super) struct Model {
    pub(super) files: Files,
    pub(super) manifest: PathBuf,
    pub(super) records: Vec<(Part, VersionEdit)>,
    pub(super) tables: Vec<TableParts>,
    pub(super) frames: Vec<LogFrame>,
    pub(super) segments: Vec<PathBuf>,
    identity: u64,
}

impl Model {
    /// Reads an undamaged store. `leftovers` are tables that no manifest names.
    pub(super) fn read(fs: &SimFs, leftovers: &[TableMeta]) -> Self {
        let dir = Path::new(DIR);
        let files: Files = fs
            .files(dir)
            .into_iter()
            .map(|path| (path.clone(), fs.content(&path).unwrap()))
            .collect();
        let recovered = Manifest::recover(fs, dir).unwrap().unwrap();
        let manifest = crate::version::manifest::manifest_path(dir, recovered.id);
        let mut records = Vec::new();
        read_manifest(fs, &manifest, 0, |record| {
            let at = record.offset..record.offset + record.bytes;
            records.push((Part { path: manifest.clone(), at }, record.edit));
            Ok(())
        })
        .unwrap();
        let shared: Arc<dyn FileSystem> = Arc::new(fs.copy());
        let ctx = test_context(&shared, dir);
        let metas = recovered.state.tables().chain(leftovers);
        let tables = metas
            .map(|meta| {
                let table = Table::open(&ctx, meta.clone()).unwrap();
                read_table(&files, &table)
            })
            .collect();
        let mut model = Self {
            tables,
            manifest,
            records,
            frames: Vec::new(),
            segments: Vec::new(),
            identity: recovered.state.identity,
            files,
        };
        model.read_log(fs, recovered.state.log_start().segment);
        model
    }

    fn read_log(&mut self, fs: &SimFs, floor: FileId) {
        for path in self.files.keys() {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let Some(id) = parse_segment_name(&name).filter(|id| *id >= floor) else { continue };
            self.segments.push(path.clone());
            let seed = FrameSeed::new(self.identity, id);
            let mut reader = FrameReader::open(fs, path, seed).unwrap();
            for frame in inspect_segment(fs, path, Some(self.identity)).unwrap() {
                let frame = frame.unwrap();
                let part =
                    Part { path: path.clone(), at: frame.offset..frame.offset + frame.bytes };
                if matches!(frame.state, FrameState::Mark { .. }) {
                    continue;
                }
                let FrameRead::Frame(_, payload) = reader.frame_at(frame.offset).unwrap() else {
                    continue;
                };
                let ops = ops_of(&payload);
                self.frames.push(LogFrame { part, ops });
            }
        }
    }
}

fn ops_of(payload: &[u8]) -> Vec<LogOp> {
    match Payload::decode(payload).unwrap() {
        Payload::Creations(created) => {
            created.iter().map(|it| LogOp::Create(it.root, it.tree)).collect()
        }
        Payload::Batch(batch) => {
            let ops = batch.ops().zip(batch.first_seq()..);
            ops.map(|(op, seq)| {
                let (key, value) = (op.key(payload).to_vec(), op.value(payload).to_vec());
                if op.range.is_some() {
                    let to = op.range_end(payload).map(<[u8]>::to_vec);
                    return LogOp::Remove(op.tree, (key, to, seq));
                }
                let entry = Entry { key, raw_seq: seq, kind: op.kind, value, large: None };
                LogOp::Write(op.tree, entry)
            })
            .collect()
        }
    }
}

/// Takes the data area apart, page by page.
fn read_table(files: &Files, table: &Table) -> TableParts {
    let meta = table.meta().clone();
    let path = home_path(Path::new(DIR), &meta);
    let base = meta.place.map_or(0, |place| place.offset);
    let end = base + meta.file_bytes;
    let bytes = &files[&path][base as usize..end as usize];
    let footer = Footer::decode(bytes.last_chunk().unwrap(), meta.file_bytes).unwrap();
    // Each byte of the stream of blocks, with its offset in the file.
    let mut stream = Vec::new();
    for page in 0..footer.data_pages as usize {
        let start = page * PAGE_BYTES;
        let payload = start + PAGE_HEADER_BYTES..start + PAGE_BYTES;
        let offsets = base + payload.start as u64..;
        stream.extend(bytes[payload].iter().copied().zip(offsets));
    }
    let (mut at, mut blocks) = (0, Vec::new());
    for number in 0..footer.block_count {
        let plain = |from: usize, len: usize| -> Vec<u8> {
            stream[from..from + len].iter().map(|(byte, _)| *byte).collect()
        };
        let header = plain(at, FRAME_HEADER_BYTES);
        let header = PageFrameHeader::decode(*header.first_chunk().unwrap());
        let stored = plain(at + FRAME_HEADER_BYTES, header.stored_len as usize);
        assert_eq!(header.expected_checksum(meta.id, number, &stored), header.checksum);
        let mut raw = vec![0; header.raw_len as usize];
        match header.compression {
            COMPRESSION_NONE => raw.copy_from_slice(&stored),
            kind => decompress(kind, &stored, &mut raw).unwrap(),
        }
        let len = FRAME_HEADER_BYTES + stored.len();
        let parts = parts_of(&path, stream[at..at + len].iter().map(|(_, offset)| *offset));
        blocks.push(Unit { parts, entries: entries_of(files, &meta, &raw) });
        at += len;
    }
    let ranges = table.ranges().into_iter().flat_map(|ranges| {
        let newest = |key: &[u8]| ranges.newest(key, SeqNo::MAX);
        ranges.spans().map(move |(from, to)| (from.to_vec(), Some(to.to_vec()), newest(from)))
    });
    let ranges_at = (footer.ranges.len > 0).then(|| {
        let start = base + footer.ranges.offset;
        Part { path: path.clone(), at: start..start + footer.ranges.len }
    });
    let tree = Some(footer.tree).filter(|tree| *tree > 0 && meta.place.is_none());
    let footer = Part { path: path.clone(), at: end - FOOTER_BYTES as u64..end };
    let raw_seq_min = meta.seq_min - table.seq_shift();
    TableParts { raw_seq_min, blocks, ranges: ranges.collect(), ranges_at, footer, tree, meta }
}

fn parts_of(path: &Path, offsets: impl Iterator<Item = u64>) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for offset in offsets {
        match parts.last_mut().filter(|part| part.at.end == offset) {
            Some(part) => part.at.end = offset + 1,
            None => parts.push(Part { path: path.to_owned(), at: offset..offset + 1 }),
        }
    }
    parts
}

fn entries_of(files: &Files, meta: &TableMeta, raw: &[u8]) -> Vec<Entry> {
    let view = BlockView::parse(raw).unwrap();
    let entry = |position| {
        let entry = view.entry(position).unwrap();
        let shared = view.shared_prefix(position, entry.shared).unwrap();
        let mut value = raw[entry.value_start..entry.value_start + entry.value_len].to_vec();
        let mut large = None;
        if entry.kind == Kind::LargeValue {
            let pointer = ValuePointer::decode(&value).unwrap();
            let path = value_path(Path::new(DIR), meta.id);
            let at = pointer.offset..pointer.offset + pointer.len;
            value = files[&path][at.start as usize..at.end as usize].to_vec();
            large = Some(Part { path, at });
        }
        let key = [shared, entry.suffix].concat();
        Entry { key, raw_seq: entry.seq, kind: entry.kind, value, large }
    };
    (0..view.count()).map(entry).collect()
}

/// A damaged store beside the undamaged one.
pub(super) struct Damaged<'a> {
    pub(super) model: &'a Model,
    /// The files that are not as they were; `None` for one that is gone.
    pub(super) changed: HashMap<PathBuf, Option<Vec<u8>>>,
    /// True if the engine takes the manifest for whole.
    pub(super) is_whole: bool,
}

/// The versions of a keyspace's keys: the largest number first, and of one number the newest table.
type Versions = BTreeMap<(Vec<u8>, Reverse<(SeqNo, FileId)>), (Entry, bool, u64)>;

/// What the sound bytes of a store hold of one keyspace.
#[derive(Default)]
struct Group {
    /// Each with the LSM tree that it is of.
    versions: Versions,
    removals: Vec<(u64, Removal)>,
}

/// What a salvage must bring across and list.
#[derive(Default)]
pub(super) struct Expected {
    pub(super) keyspaces: BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>,
    /// Parts that are lost.
    pub(super) lost: Vec<Part>,
}

impl Damaged<'_> {
    pub(super) fn is_sound(&self, part: &Part) -> bool {
        let Some(now) = self.changed.get(&part.path) else { return true };
        let range = part.at.start as usize..part.at.end as usize;
        let before = &self.model.files[&part.path][range.clone()];
        now.as_ref().and_then(|now| now.get(range)).is_some_and(|now| now == before)
    }

    fn is_there(&self, path: &Path) -> bool {
        !matches!(self.changed.get(path), Some(None))
    }

    /// The header of the manifest or of a segment tells the identity.
    fn has_identity(&self) -> bool {
        let header = |path: &PathBuf, bytes| Part { path: path.clone(), at: 0..bytes };
        let segments = self.model.segments.iter().map(|path| header(path, 72));
        let mut headers = segments.chain([header(&self.model.manifest, 40)]);
        headers.any(|header| self.is_sound(&header))
    }

    /// The catalog of the sound records.
    pub(super) fn known(&self) -> KnownCatalog {
        let mut known = KnownCatalog::default();
        if self.has_identity() {
            let sound = self.model.records.iter().filter(|(part, _)| self.is_sound(part));
            sound.for_each(|(_, edit)| known.apply(edit));
        }
        known
    }

    /// The keyspaces with tables that were removed, although the sound records do not say so, and
    /// whose bytes are still there: which of their versions are obsolete cannot be known.
    pub(super) fn with_obsolete(&self) -> Vec<String> {
        let known = self.known();
        let is_obsolete = |(id, (_, meta)): &(&FileId, &(TreeId, TableMeta))| {
            let home = home_path(Path::new(DIR), meta);
            let is_known = self.model.tables.iter().any(|table| table.meta.id == **id);
            !is_known && self.model.files.contains_key(&home) && self.is_there(&home)
        };
        let tables = known.tables.iter().filter(is_obsolete);
        tables.map(|(_, (tree, _))| name_of(&known, *tree)).collect()
    }

    pub(super) fn expected(&self) -> Expected {
        let known = self.known();
        let (mut groups, mut expected) = (BTreeMap::new(), Expected::default());
        for KnownKeyspace { name, .. } in known.keyspaces.values() {
            groups.insert(name.clone(), Group::default());
        }
        for table in &self.model.tables {
            self.add_table(table, &known, &mut groups, &mut expected);
        }
        self.add_log(&known, &mut groups, &mut expected);
        for (name, group) in groups {
            let live = live_of(&group, &mut expected.lost);
            expected.keyspaces.insert(name, live);
        }
        expected
    }

    fn add_table(
        &self,
        table: &TableParts,
        known: &KnownCatalog,
        groups: &mut BTreeMap<String, Group>,
        expected: &mut Expected,
    ) {
        let id = table.meta.id;
        let named = known.tables.get(&id);
        let tree = table.tree.filter(|_| self.is_sound(&table.footer));
        let name = match named {
            Some((tree, _)) => name_of(known, *tree),
            None if self.is_whole || known.removed.contains(&id) || !self.is_found(table) => return,
            None => match tree.map(|tree| self.name_of_logged(known, tree, &self.created())) {
                Some(Some(name)) => name,
                Some(None) => return,
                None => format!("table-{id}"),
            },
        };
        let shift = match named {
            // What was removed since has its number here if the removal was lost.
            Some((_, meta)) => meta.seq_min - table.raw_seq_min,
            None => 0,
        };
        if !self.is_there(&table.footer.path) && named.is_none() {
            return;
        }
        let group = groups.entry(name).or_default();
        let tree = named.map(|(tree, _)| *tree).or(tree);
        let scope = tree.map_or(1 << 40 | id, u64::from);
        for unit in &table.blocks {
            if !unit.parts.iter().all(|part| self.is_sound(part)) {
                expected.lost.extend(unit.parts.iter().take(1).cloned());
                continue;
            }
            for entry in &unit.entries {
                let at = (entry.key.clone(), Reverse((entry.raw_seq + shift, id)));
                let is_sound = entry.large.as_ref().is_none_or(|part| self.is_sound(part));
                group.versions.insert(at, (entry.clone(), is_sound, scope));
            }
        }
        if let Some(part) = &table.ranges_at {
            if self.is_sound(part) {
                let ranges = table.ranges.iter().cloned();
                group.removals.extend(ranges.map(|removal| (scope, removal)));
            } else {
                expected.lost.push(part.clone());
            }
        }
    }

    /// Returns true if a table that no manifest names can be found.
    fn is_found(&self, table: &TableParts) -> bool {
        let mut first = table.blocks.iter().take(17).flat_map(|unit| &unit.parts);
        table.meta.place.is_none()
            || self.is_sound(&table.footer)
            || first.any(|part| self.is_sound(part))
    }

    fn add_log(
        &self,
        known: &KnownCatalog,
        groups: &mut BTreeMap<String, Group>,
        expected: &mut Expected,
    ) {
        if !self.has_identity() {
            expected.lost.extend(self.model.frames.iter().map(|frame| frame.part.clone()));
            return;
        }
        let mut created = HashMap::new();
        for frame in &self.model.frames {
            if !self.is_sound(&frame.part) {
                expected.lost.push(frame.part.clone());
                continue;
            }
            for op in &frame.ops {
                match op {
                    LogOp::Create(root, tree) => {
                        created.insert(*tree, *root);
                    }
                    LogOp::Write(tree, entry) => {
                        if let Some(name) = self.name_of_logged(known, *tree, &created) {
                            let at = (entry.key.clone(), Reverse((entry.raw_seq, FileId::MAX)));
                            let group = groups.entry(name).or_default();
                            group.versions.insert(at, (entry.clone(), true, (*tree).into()));
                        }
                    }
                    LogOp::Remove(tree, removal) => {
                        if let Some(name) = self.name_of_logged(known, *tree, &created) {
                            let removal = ((*tree).into(), removal.clone());
                            groups.entry(name).or_default().removals.push(removal);
                        }
                    }
                }
            }
        }
    }

    /// The LSM trees of keyspaces whose partitions the sound log has created.
    fn created(&self) -> HashMap<TreeId, TreeId> {
        let frames = self.model.frames.iter().filter(|_| self.has_identity());
        let sound = frames.filter(|frame| self.is_sound(&frame.part));
        let creation = |op: &LogOp| match op {
            LogOp::Create(root, tree) => Some((*tree, *root)),
            _ => None,
        };
        sound.flat_map(|frame| frame.ops.iter().filter_map(creation)).collect()
    }

    fn name_of_logged(
        &self,
        known: &KnownCatalog,
        tree: TreeId,
        created: &HashMap<TreeId, TreeId>,
    ) -> Option<String> {
        if known.dropped.contains(&tree) {
            return None;
        }
        let root = match created.get(&tree) {
            Some(root) => *root,
            None => known.partitions.get(&tree).map_or(tree, |(root, _)| *root),
        };
        let lives = known.keyspaces.values().any(|keyspace| keyspace.root == root);
        if lives {
            return Some(name_of(known, root));
        }
        let is_gone = known.dropped.contains(&root)
            || (self.is_whole && (tree < known.next_tree || root < known.next_tree));
        (!is_gone).then(|| name_of(known, root))
    }
}

fn name_of(known: &KnownCatalog, tree: TreeId) -> String {
    let root = known.partitions.get(&tree).map_or(tree, |(root, _)| *root);
    let keyspace = known.keyspaces.values().find(|keyspace| keyspace.root == root);
    keyspace.map_or_else(|| format!("tree-{root}"), |keyspace| keyspace.name.clone())
}

/// The live entries of a keyspace; large values that would live and are lost are added to `lost`.
fn live_of(group: &Group, lost: &mut Vec<Part>) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let (mut live, mut decided) = (BTreeMap::new(), None::<&[u8]>);
    for ((key, Reverse((seq, _))), (entry, is_sound, scope)) in &group.versions {
        if decided == Some(key) {
            continue;
        }
        let covers = |(of, (from, to, newer)): &(u64, Removal)| {
            of == scope && from <= key && to.as_ref().is_none_or(|to| key < to) && newer > seq
        };
        let is_removed = group.removals.iter().any(covers);
        if !is_removed && entry.kind != Kind::Tombstone && !is_sound {
            lost.extend(entry.large.clone());
            continue;
        }
        decided = Some(key);
        if !is_removed && entry.kind != Kind::Tombstone {
            live.insert(key.clone(), entry.value.clone());
        }
    }
    live
}
