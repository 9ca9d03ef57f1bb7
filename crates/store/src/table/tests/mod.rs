//! Tests of whole tables: against a map, damaged, and byte for byte.

use std::{cmp::Reverse, collections::BTreeMap, ops::Bound, path::PathBuf, sync::Arc};

use rhumb_sync::{epoch::pin, mapping::Gauge};
use tempfile::TempDir;

use super::{
    Access, BlockCache, Compression, KeyHash, Lookup, Step, Table, TableContext, TableCounters,
    TableCursor, TableLayout, TableMeta, TableWriter, table_path,
};
use crate::{
    error::Result,
    expiry::Stamp,
    io::{FileSystem, ReadEngineKind, ReadMode, StdFs, engine::ReadEngine, open_files::OpenFiles},
    types::{FileId, Kind, SeqNo},
};

mod damage;
mod differential;
mod files;
mod golden;
mod measure;

/// What a table should hold: the order of its keys is the order of entries. A value here is the
/// value itself, large or not.
type Model = BTreeMap<(Vec<u8>, Reverse<SeqNo>), Option<Vec<u8>>>;

/// An item of a [`Model`].
type ModelEntry<'a> = (&'a (Vec<u8>, Reverse<SeqNo>), &'a Option<Vec<u8>>);

/// A directory of tables.
struct Fixture {
    ctx: Arc<TableContext>,
    _dir: TempDir,
}

impl Fixture {
    fn new(cache_bytes: u64) -> Self {
        Self::with_mode(cache_bytes, ReadMode::Buffered)
    }

    fn with_mode(cache_bytes: u64, read_mode: ReadMode) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let fs: Arc<dyn FileSystem> = Arc::new(StdFs);
        let ctx = Arc::new(TableContext {
            dir: dir.path().to_owned(),
            read_mode,
            reads: Arc::new(ReadEngine::new(&fs, ReadEngineKind::Kernel, false)),
            files: OpenFiles::new(&*fs, None),
            fs,
            cache: BlockCache::new(cache_bytes, &Gauge::default()),
            mapped: Gauge::default(),
            counters: Arc::new(TableCounters::default()),
            shared: Arc::default(),
        });
        Self { ctx, _dir: dir }
    }

    fn path(&self, id: FileId) -> PathBuf {
        table_path(&self.ctx.dir, id)
    }

    fn write(&self, id: FileId, options: &TableLayout, model: &Model) -> TableMeta {
        let mut writer = TableWriter::create(&self.ctx, id, options);
        for ((key, Reverse(seq)), value) in model {
            match value {
                Some(value) => match stamp_of(value) {
                    None => writer.add(key, *seq, Kind::Value, value).unwrap(),
                    Some(stamp) => {
                        let stamped = [&stamp.encode()[..], value].concat();
                        writer.add(key, *seq, Kind::Expiring, &stamped).unwrap();
                    }
                },
                None => writer.add(key, *seq, Kind::Tombstone, b"").unwrap(),
            }
        }
        writer.finish().unwrap()
    }

    fn open(&self, meta: &TableMeta) -> Arc<Table> {
        Table::open(&self.ctx, meta.clone()).unwrap()
    }

    fn table(&self, id: FileId, options: &TableLayout, model: &Model) -> Arc<Table> {
        self.open(&self.write(id, options, model))
    }
}

/// Some values expire, at times that follow from them.
fn stamp_of(value: &[u8]) -> Option<Stamp> {
    let first = u64::from(*value.first()?);
    (value.len() % 3 == 1).then(|| Stamp::new(1 + value.len() as u64 * first))
}

/// The value after a stamp, which must be that of the value.
fn unstamped(table: &Table, stamped: &[u8]) -> Result<Vec<u8>> {
    let (stamp, rest) = Stamp::split(stamped).expect("a stamp");
    let value = match Stamp::pointer(stamped) {
        Some(pointer) => table.read_large(pointer)?.to_vec(),
        None => rest.to_vec(),
    };
    assert_eq!(stamp_of(&value).map(|stamp| stamp.at_ms), Some(stamp.at_ms));
    Ok(value)
}

/// What a reader at `seq` gets for `key`: the number of the write, and the value if there is one.
type Answer = Option<(SeqNo, Option<Vec<u8>>)>;

/// Looks a key up, with the reads that it needs.
fn get(table: &Table, key: &[u8], seq: SeqNo) -> Result<Answer> {
    let hash = KeyHash::of(key);
    let lookup = table.lookup(&pin(), None, key, hash, seq)?;
    Ok(match table.resolve(lookup, key, hash, seq)? {
        Lookup::Absent => None,
        Lookup::Tombstone(seq) => Some((seq, None)),
        Lookup::Value(seq, value) => Some((seq, Some(value.to_vec()))),
        Lookup::Large(seq, pointer) => Some((seq, Some(table.read_large(&pointer)?.to_vec()))),
        Lookup::Expiring(seq, stamped) => Some((seq, Some(unstamped(table, &stamped)?))),
        Lookup::Need(_) | Lookup::Unsure(_) => unreachable!("the lookup was resolved"),
    })
}

fn expected(model: &Model, key: &[u8], seq: SeqNo) -> Answer {
    let from = (key.to_vec(), Reverse(seq));
    let ((found, Reverse(seq)), value) = model.range(from..).next()?;
    (found == key).then(|| (*seq, value.clone()))
}

/// An entry that a cursor stands on: key, number, and value unless it is a tombstone.
type Entry = (Vec<u8>, SeqNo, Option<Vec<u8>>);

/// The entry that a cursor stands on, its value fetched.
fn entry(cursor: &TableCursor) -> Result<Option<Entry>> {
    if !cursor.is_valid() {
        return Ok(None);
    }
    let value = match cursor.kind() {
        Kind::Value => Some(cursor.value_slice().to_vec()),
        Kind::Tombstone => None,
        Kind::Expiring => Some(unstamped(cursor.table(), cursor.value())?),
        Kind::LargeValue => Some(cursor.table().read_large(cursor.value())?.to_vec()),
    };
    Ok(Some((cursor.key().to_vec(), cursor.seq(), value)))
}

/// Completes a move of a cursor.
fn moved(
    cursor: &mut TableCursor,
    step: impl FnOnce(&mut TableCursor) -> Result<Step>,
) -> Result<Option<Entry>> {
    let step = step(cursor)?;
    cursor.drive(step)?;
    entry(cursor)
}

fn model_entry(entry: Option<ModelEntry<'_>>) -> Option<Entry> {
    entry.map(|((key, Reverse(seq)), value)| (key.clone(), *seq, value.clone()))
}

/// Checks a table against its model: point lookups of all keys and of `probes`, whole scans both
/// ways, and seeks with steps both ways after them.
fn check(table: &Arc<Table>, model: &Model, probes: &[(Vec<u8>, SeqNo)]) {
    let known = model.keys().map(|(key, Reverse(seq))| (key.clone(), *seq));
    let older = model.keys().map(|(key, Reverse(seq))| (key.clone(), seq.saturating_sub(1)));
    let newest = model.keys().map(|(key, _)| (key.clone(), SeqNo::MAX >> 8));
    for (key, seq) in known.chain(older).chain(newest).chain(probes.iter().cloned()) {
        assert_eq!(get(table, &key, seq).unwrap(), expected(model, &key, seq), "{key:?} at {seq}");
    }
    for access in [Access::Cached, Access::Sequential] {
        check_scans(table, model, access);
        let mut cursor = TableCursor::new(Arc::clone(table), access);
        let known = model.keys().map(|(key, Reverse(seq))| (key.clone(), *seq));
        let step = 1 + model.len() / 300;
        for (key, seq) in known.step_by(step).chain(probes.iter().cloned()) {
            check_seek(&mut cursor, model, &key, seq);
        }
    }
}

fn check_scans(table: &Arc<Table>, model: &Model, access: Access) {
    let mut cursor = TableCursor::new(Arc::clone(table), access);
    let mut found = moved(&mut cursor, TableCursor::first).unwrap();
    for expected in model {
        assert_eq!(found, model_entry(Some(expected)));
        found = moved(&mut cursor, TableCursor::next).unwrap();
    }
    assert_eq!(found, None);
    let mut found = moved(&mut cursor, TableCursor::last).unwrap();
    for expected in model.iter().rev() {
        assert_eq!(found, model_entry(Some(expected)));
        found = moved(&mut cursor, TableCursor::prev).unwrap();
    }
    assert_eq!(found, None);
}

fn check_seek(cursor: &mut TableCursor, model: &Model, key: &[u8], seq: SeqNo) {
    let from = (key.to_vec(), Reverse(seq));
    let mut after = model.range(from.clone()..);
    let mut before = model.range((Bound::Unbounded, Bound::Excluded(from)));
    let found = moved(cursor, |cursor| cursor.seek(key, seq)).unwrap();
    assert_eq!(found, model_entry(after.next()), "seek {key:?} {seq}");
    if found.is_some() {
        let found = moved(cursor, TableCursor::next).unwrap();
        assert_eq!(found, model_entry(after.next()), "after seek {key:?} {seq}");
        if found.is_some() {
            moved(cursor, TableCursor::prev).unwrap();
            let found = moved(cursor, TableCursor::prev).unwrap();
            assert_eq!(found, model_entry(before.clone().next_back()), "before {key:?} {seq}");
        }
    }
    let found = moved(cursor, |cursor| cursor.seek_before(key, seq)).unwrap();
    assert_eq!(found, model_entry(before.next_back()), "seek_before {key:?} {seq}");
    if found.is_some() {
        let found = moved(cursor, TableCursor::prev).unwrap();
        assert_eq!(found, model_entry(before.next_back()), "before seek_before {key:?} {seq}");
    }
}
