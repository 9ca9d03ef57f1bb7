//! Reads everything and compares it with everything else that is known of it.
//!
//! A problem ends the reading of what depends on it, and nothing else: the list is as complete as
//! the damage allows. The check reads what the engine would read, by the same code, and also looks
//! every key up through the index.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use rhumb_sync::primitive::Arc;

use super::{
    OnProgress, file_bytes,
    frozen::freeze,
    list,
    report::{CheckReport, Problem},
    table::{WalkedEntry, context, walk_block},
};
use crate::{
    db::hold_existing,
    error::{Error, Result},
    expiry::{ExpiriesBuilder, STAMP_BYTES, Stamp},
    io::FileSystem,
    log::{
        creation::Payload,
        recover,
        segment::{parse_segment_name, segment_path},
    },
    options::KeyspaceOptions,
    partition::Partitioning,
    ranges::{Ranges, last_below},
    slice::{BlockRef, Slice},
    table::{
        KeyHash, Lookup, Table, TableContext, TableMeta, TablePlace, home_path, parse_table_name,
        table_path, value_path,
    },
    types::{FileId, Kind, SeqNo, TreeId, compare_entries},
    version::{
        manifest::{CURRENT_NAME, Manifest, manifest_path},
        state::CatalogState,
    },
};

/// The largest number of problems that are listed; the rest are counted.
const PROBLEMS_MAX: usize = 100;

/// The number of blocks between two reports of progress.
const BLOCKS_PER_REPORT: u32 = 64;

/// Checks the database in `dir`.
pub(super) fn check(
    fs: &Arc<dyn FileSystem>,
    dir: &Path,
    on_progress: OnProgress<'_>,
) -> Result<CheckReport> {
    let fs = &hold_existing(fs, dir)?;
    let paths = list(&**fs, dir)?;
    let no_database =
        || Error::NotFound(format!("there is no database in {}", dir.display()).into());
    if !paths.iter().any(|path| is_of_database(path)) {
        return Err(no_database());
    }
    let (frozen, _lock) = freeze(fs, dir)?;
    let (fs, paths) = (&frozen, list(&*frozen, dir)?);
    let bytes_total = paths.iter().filter_map(|path| file_bytes(&**fs, path).ok()).sum();
    let mut checker = Checker {
        fs,
        dir,
        context: context(fs, dir),
        report: CheckReport::default(),
        bytes_total,
        shared: HashSet::new(),
        on_progress,
    };
    match Manifest::recover(&**fs, dir) {
        Ok(Some(recovered)) => {
            checker.count_file(&manifest_path(dir, recovered.id));
            checker.count_file(&dir.join(CURRENT_NAME));
            checker.check_catalog(&recovered.state);
        }
        Ok(None) => return Err(no_database()),
        Err(error) => {
            checker.record_error(dir, error);
            checker.check_tables_alone(&paths);
        }
    }
    Ok(checker.report)
}

fn table_id(path: &Path) -> Option<u64> {
    parse_table_name(&path.file_name()?.to_string_lossy())
}

/// Returns true for files that only a database has. If there is one, a database existed, whatever
/// else was lost.
fn is_of_database(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_log = parse_segment_name(&name).is_some();
    table_id(path).is_some() || is_log || name.starts_with("MANIFEST-") || name == CURRENT_NAME
}

struct Checker<'a, 'p> {
    fs: &'a Arc<dyn FileSystem>,
    dir: &'a Path,
    context: Arc<TableContext>,
    report: CheckReport,
    /// The number of bytes of all files of the directory.
    bytes_total: u64,
    /// The shared files that were counted.
    shared: HashSet<FileId>,
    on_progress: OnProgress<'p>,
}

impl Checker<'_, '_> {
    fn record(&mut self, path: impl Into<PathBuf>, offset: Option<u64>, what: impl Into<String>) {
        if self.report.problems.len() == PROBLEMS_MAX {
            self.report.problems_unlisted += 1;
            return;
        }
        self.report.problems.push(Problem { path: path.into(), offset, what: what.into() });
    }

    /// Records an error of an operation on `path`.
    fn record_error(&mut self, path: &Path, error: Error) {
        match error {
            Error::Corrupt(damage) => self.record(
                damage.path.clone(),
                Some(damage.offset),
                format!("expected {}, found {}", damage.expected, damage.found),
            ),
            error => self.record(path, None, error.to_string()),
        }
    }

    /// Counts a file that was read as a whole.
    fn count_file(&mut self, path: &Path) {
        self.report.files += 1;
        self.report.bytes += file_bytes(&**self.fs, path).unwrap_or(0);
        (self.on_progress)(self.report.bytes.min(self.bytes_total), self.bytes_total);
    }

    /// Counts a table in a file that it shares with others.
    fn count_part(&mut self, place: TablePlace, bytes: u64) {
        self.report.files += u64::from(self.shared.insert(place.file));
        self.report.bytes += bytes;
        (self.on_progress)(self.report.bytes.min(self.bytes_total), self.bytes_total);
    }

    /// Checks all that the manifest names.
    fn check_catalog(&mut self, state: &CatalogState) {
        for keyspace in state.keyspaces.values() {
            self.check_tree(state, keyspace.tree);
            let partitioning = KeyspaceOptions::decode(&keyspace.options).map(|o| o.partitions);
            for (name, tree) in state.partitions_of(keyspace.tree) {
                self.check_tree(state, tree);
                if let Ok(partitioning) = &partitioning {
                    self.check_membership(state, partitioning, name, tree);
                }
            }
        }
        self.check_log(state);
    }

    /// Checks the tables of an LSM tree.
    fn check_tree(&mut self, state: &CatalogState, tree: TreeId) {
        let mut levels: Vec<Vec<&TableMeta>> = Vec::new();
        for (level, meta) in state.tables_of(tree) {
            levels.resize_with(levels.len().max(level + 1), Vec::new);
            levels[level].push(meta);
        }
        for tables in levels.iter_mut().skip(1) {
            tables.sort_by(|a, b| a.smallest.cmp(&b.smallest));
            for pair in tables.windows(2) {
                if pair[0].largest >= pair[1].smallest {
                    let path = home_path(self.dir, pair[1]);
                    self.record(path, None, format!("overlaps table {} of its level", pair[0].id));
                }
            }
        }
        for meta in levels.into_iter().flatten() {
            self.check_table(meta.id, Some(meta));
        }
    }

    /// Checks that the keys of a partition's tables belong to it. Names are in the order of keys,
    /// so the ends of a table are enough. The names that a caller's function gives are not known
    /// here.
    fn check_membership(
        &mut self,
        state: &CatalogState,
        partitioning: &Partitioning,
        name: &[u8],
        tree: TreeId,
    ) {
        let is_foreign = |key: &[u8]| partitioning.name_of(key).is_some_and(|of| of != name);
        // The bounds of a table with range tombstones need not be keys.
        for (_, meta) in state.tables_of(tree).filter(|(_, meta)| meta.range_tombstones == 0) {
            if is_foreign(&meta.smallest) || is_foreign(&meta.largest) {
                let what =
                    format!("keys that do not belong to partition {:?}", name.escape_ascii());
                self.record(home_path(self.dir, meta), None, what);
            }
        }
    }

    /// Checks every table of the directory by itself: it is not known which are in use.
    fn check_tables_alone(&mut self, paths: &[PathBuf]) {
        for id in paths.iter().filter_map(|path| table_id(path)) {
            self.check_table(id, None);
        }
    }

    fn check_log(&mut self, state: &CatalogState) {
        let mut records = 0;
        let recovered =
            recover(&**self.fs, self.dir, state.identity, state.log_start(), |record| {
                records += 1;
                Payload::decode(&record.payload).map(drop).map_err(|fault| {
                    let path = segment_path(self.dir, record.segment);
                    let expected =
                        format!("{} in the record at place {}", fault.expected, record.lsn);
                    Error::corrupt(path, fault.offset as u64, expected, "something else")
                })
            });
        self.report.log_records = records;
        match recovered.map(|recovered| recovered.torn) {
            Ok(Some(torn)) => self.report.notes.push(Problem {
                path: segment_path(self.dir, torn.segment),
                offset: Some(torn.offset),
                what: format!("the log ends here, as after a crash: {}", torn.found),
            }),
            Ok(None) => {}
            Err(error) => self.record_error(self.dir, error),
        }
        let paths = list(&**self.fs, self.dir).unwrap_or_default();
        let live = |path: &&PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            parse_segment_name(&name).is_some_and(|id| id >= state.log_start().segment)
        };
        paths.iter().filter(live).for_each(|path| self.count_file(path));
    }

    /// Checks the table `id`, which should match `meta`.
    fn check_table(&mut self, id: u64, meta: Option<&TableMeta>) {
        let path = meta.map_or_else(|| table_path(self.dir, id), |meta| home_path(self.dir, meta));
        let opened = match meta {
            Some(meta) => Ok(meta.clone()),
            None => Table::read_meta(&self.context, id),
        };
        let table = match opened.and_then(|meta| Table::open(&self.context, meta)) {
            Ok(table) => table,
            Err(error) => return self.record_error(&path, error),
        };
        let started = self.report.bytes;
        let mut walk = TableWalk::new(&table);
        for number in 0..table.index().block_count() {
            match table.read_block(number, false) {
                Ok(block) => walk.add_block(self, number, &block),
                Err(error) => {
                    walk.is_whole = false;
                    self.record_error(&path, error);
                }
            }
            self.report.blocks += 1;
            if number % BLOCKS_PER_REPORT == 0 {
                let part = table.meta().file_bytes / u64::from(table.index().block_count().max(1));
                let done = started + part * u64::from(number);
                (self.on_progress)(done.min(self.bytes_total), self.bytes_total);
            }
        }
        if walk.is_whole {
            walk.check_totals(self);
        }
        self.report.entries += walk.entries;
        self.report.tables += 1;
        match table.meta().place {
            None => self.count_file(&path),
            Some(place) => self.count_part(place, table.meta().file_bytes),
        }
        if table.meta().value_file_bytes > 0 {
            self.count_file(&value_path(self.dir, id));
        }
    }
}

/// The state of a walk through the blocks of a table.
struct TableWalk<'a> {
    table: &'a Table,
    entries: u64,
    tombstones: u64,
    keys: u64,
    raw_bytes: u64,
    expiries: ExpiriesBuilder,
    seqs: Option<(SeqNo, SeqNo)>,
    first_key: Option<Vec<u8>>,
    last: Option<(Vec<u8>, SeqNo)>,
    /// True if every block so far could be read.
    is_whole: bool,
}

impl<'a> TableWalk<'a> {
    fn new(table: &'a Table) -> Self {
        Self {
            table,
            entries: 0,
            tombstones: 0,
            keys: 0,
            raw_bytes: 0,
            expiries: ExpiriesBuilder::default(),
            seqs: None,
            first_key: None,
            last: None,
            is_whole: true,
        }
    }

    fn add_block(&mut self, checker: &mut Checker<'_, '_>, number: u32, block: &BlockRef) {
        let table = self.table;
        let walked = walk_block(table, number, block, |entry| {
            let wrong = self.check_entry(number, block, &entry)?;
            for what in wrong {
                let offset = table.block_offset(number);
                checker.record(table.path(), Some(offset), format!("block {number}: {what}"));
            }
            self.add_entry(&entry);
            Ok(())
        });
        if let Err(error) = walked {
            self.is_whole = false;
            checker.record_error(table.path(), error);
        }
    }

    /// Returns the problem of an entry, if it has one.
    fn check_entry(
        &self,
        number: u32,
        block: &BlockRef,
        entry: &WalkedEntry<'_>,
    ) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        let key = || format!("key \"{}\"", entry.key.escape_ascii());
        if let Some((last_key, last_seq)) = &self.last
            && compare_entries(last_key, *last_seq, entry.key, entry.seq).is_ge()
        {
            wrong.push(format!("{} is not after the entry before it", key()));
        }
        let hash = KeyHash::of(entry.key);
        if self.table.filter_answer(hash) == Some(false) {
            wrong.push(format!("the filter rules out {}", key()));
        }
        let located = self.table.index().locate(entry.key);
        if located != number {
            wrong.push(format!("the index says that {} is in block {located}", key()));
        }
        let found = match self.table.lookup_in(block, entry.key, hash, entry.seq)? {
            Lookup::Tombstone(seq) => seq == entry.seq && entry.kind == Kind::Tombstone,
            Lookup::Value(seq, value) => {
                seq == entry.seq && entry.kind == Kind::Value && *value == *entry.value
            }
            Lookup::Large(seq, pointer) => {
                self.table.read_large(&pointer)?;
                seq == entry.seq && entry.kind == Kind::LargeValue && *pointer == *entry.value
            }
            Lookup::Expiring(seq, value) => {
                if let Some(pointer) = Stamp::pointer(&value) {
                    self.table.read_large(&Slice::copy_from(pointer))?;
                }
                seq == entry.seq && entry.kind == Kind::Expiring && *value == *entry.value
            }
            Lookup::Absent | Lookup::Need(_) | Lookup::Unsure(_) => false,
        };
        if !found {
            wrong.push(format!("a lookup does not find {}", key()));
        }
        Ok(wrong)
    }

    fn add_entry(&mut self, entry: &WalkedEntry<'_>) {
        self.entries += 1;
        self.tombstones += u64::from(entry.kind == Kind::Tombstone);
        let value_bytes = match entry.kind {
            Kind::LargeValue => self.table.value_pointer(entry.value).map_or(0, |place| place.len),
            Kind::Expiring => {
                let stamp = Stamp::split(entry.value);
                self.expiries.add(stamp.map_or(0, |(stamp, _)| stamp.at_ms));
                match Stamp::pointer(entry.value) {
                    Some(pointer) => self.table.value_pointer(pointer).map_or(0, |at| at.len),
                    None => entry.value.len().saturating_sub(STAMP_BYTES) as u64,
                }
            }
            _ => entry.value.len() as u64,
        };
        let entry_bytes = value_bytes.saturating_add(entry.key.len() as u64);
        self.raw_bytes = self.raw_bytes.saturating_add(entry_bytes);
        let (least, most) = self.seqs.unwrap_or((entry.seq, entry.seq));
        self.seqs = Some((least.min(entry.seq), most.max(entry.seq)));
        let (last_key, last_seq) = self.last.get_or_insert_default();
        if self.keys == 0 || *last_key != entry.key {
            self.keys += 1;
            last_key.clear();
            last_key.extend_from_slice(entry.key);
        }
        *last_seq = entry.seq;
        self.first_key.get_or_insert_with(|| entry.key.to_vec());
    }

    /// Compares the totals of the walk with those that the table states.
    fn check_totals(&self, checker: &mut Checker<'_, '_>) {
        let meta = self.table.meta();
        let last_key = self.last.as_ref().map(|(key, _)| &key[..]);
        // Range tombstones were compared with the properties when the table was opened: they may
        // reach further than the table's keys.
        let ranges = self.table.ranges();
        let (keys, seqs) = (ranges.map(Ranges::keys), ranges.map(Ranges::seqs));
        let range_first = keys.and_then(<[Slice]>::first).map(|key| &**key);
        let range_last = keys.and_then(<[Slice]>::last).map(|key| last_below(key));
        let seqs = seqs.into_iter().flatten().map(|seq| (*seq, *seq));
        let seqs = seqs.chain(self.seqs).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let first = [self.first_key.as_deref(), range_first].into_iter().flatten().min();
        let claims = [
            ("entries", meta.entries == self.entries),
            ("tombstones", meta.tombstones == self.tombstones),
            ("keys", self.table.written().keys == self.keys),
            ("bytes", meta.raw_bytes == self.raw_bytes),
            ("first key", first == Some(&*meta.smallest)),
            ("last key", last_key.max(range_last) == Some(&*meta.largest)),
            ("expiries", meta.expiries == self.expiries.finish()),
            ("sequence numbers", seqs == Some((meta.seq_min, meta.seq_max))),
        ];
        for (name, _) in claims.iter().filter(|(_, holds)| !holds) {
            checker.record(self.table.path(), None, format!("states other {name} than it holds"));
        }
    }
}
