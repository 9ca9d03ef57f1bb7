//! Opening: from the files of a directory to a database that takes writes.
//!
//! 1. Lock the directory.
//! 2. Read the manifest, and begin a new one with a snapshot of its contents. Nothing is removed
//!    before that: what was read may not have been durable before.
//! 3. Open the tables.
//! 4. Replay the log into tables of level 0, and begin a new segment.
//! 5. Remove what nothing refers to.
//!
//! A crash at any point leaves a directory that can be opened: the old log stays until the new
//! manifest durably says that it is not needed.
//!
//! A database that is opened for reading only writes nothing, and may have a writer beside it:
//! `beside/`.

use std::{
    collections::{HashMap, HashSet},
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    sync::atomic::Ordering,
};

use rhumb_sync::{
    drop_queue::DropQueue,
    primitive::{Arc, AtomicBool, AtomicU32, AtomicU64, Mutex},
    process::Process,
    record::Records,
};

use super::{
    catalog::{Catalog, RESERVED_FILES},
    core::Core,
    counters::Counters,
    health::Health,
    keyspace::KeyspaceInner,
    memory::Memory,
    memtables::Memtables,
    read_times::ReadTimes,
    scheduler::Scheduler,
    shared::{LOCK_NAME, Shared},
    tap::Taps,
    transaction::History,
    write::insert_record,
    writer::{WriteState, Writer},
};
use crate::{
    db::DatabaseBuilder,
    error::{Error, Result},
    events::{Event, Span, Work},
    io::{
        Clock, FileLock, FileSystem, ReadMode, engine::ReadEngine, hold_dir, open_files::OpenFiles,
        retry, sync_dir,
    },
    log::{
        LogRecord, LogWriter, Recovery,
        batch::Encoded,
        creation::{Creation, Payload},
        recover,
        segment::segment_path,
    },
    memtable::{LogFloor, MemView, Memtable},
    options::{DatabaseOptions, KeyspaceOptions, LiveOptions},
    partition::{Functions, Router},
    table::{BlockCache, Table, TableContext, TableCounters, TableMeta, home_path, value_path},
    tree::{PartitionMap, Tree, Trees},
    types::{FileId, SeqNo, TreeId},
    version::{
        edit::{Edit, FILE_ID_END},
        levels::{Level, Levels},
        manifest::{CURRENT_NAME, Manifest, refuse_without_current},
        snapshots::Snapshots,
        state::{CatalogState, KeyspaceState},
    },
};

/// Opens the database that the builder describes.
pub(super) fn open(builder: DatabaseBuilder) -> Result<Arc<Core>> {
    let span = Span::enter(Work::Recovery);
    let DatabaseBuilder { path: dir, options, functions, fs, clock } = builder;
    let fs = hold_directory(&fs, &dir, options.create_if_missing)?;
    let lock = take_lock(&*fs, &dir)?;
    let names = retry("list", &dir, || fs.list(&dir))?;
    let last_file = names.iter().filter_map(|name| file_number(name)).max().unwrap_or(0);
    let recovered = Manifest::recover(&*fs, &dir)?;
    if recovered.is_none() && !options.create_if_missing {
        return Err(no_database(&dir));
    }
    let mut state = recovered.map(|recovered| recovered.state).unwrap_or_default();
    if !options.is_replica {
        // What is written from now on is its own.
        state.source = 0;
    } else if state.source == 0 {
        return Err(not_a_replica(&dir));
    }
    let next_file = AtomicU64::new(state.next_file.max(last_file + 1));
    let memory = Memory::default();
    let files = OpenFiles::new(&*fs, options.open_files_max);
    let tables = table_context(&fs, &dir, &options, &memory, files);
    let drops = Arc::default();
    let (mut trees, keyspaces) = open_trees(&state, &dir, &functions, &drops, &mut |meta| {
        Table::open(&tables, meta.clone()).map_err(missing_is_damage)
    })?;
    state.next_file = next_file.load(Ordering::Relaxed) + RESERVED_FILES;
    let manifest_id = next_file.fetch_add(1, Ordering::Relaxed);
    let manifest = Manifest::create(&*fs, &dir, manifest_id, &state.records())?;
    let mut records = Records::new(Arc::clone(&memory.records));
    let (replayed, recovery) = {
        let memtable = following(None, None, &options, &memory);
        replay(&*fs, &dir, &state, memtable, &mut records)?
    };
    let next_tree = add_created(replayed.as_ref(), &state, &keyspaces, &mut trees, &dir, &drops)?;
    let segment = next_file.fetch_add(1, Ordering::Relaxed);
    let log = LogWriter::create(&fs, &dir, recovery.next_header(state.identity, segment))?;
    let core = assemble(Parts {
        floor: Some(LogFloor { segment, lsn: recovery.end }),
        catalog: Catalog { state, manifest, keyspaces },
        is_read_only: false,
        trees,
        replayed,
        records,
        memory,
        recovery,
        log,
        next_file,
        next_tree,
        drops,
        tables,
        lock,
        dir,
        options,
        functions,
        cursor_fs: Arc::clone(&fs),
        fs,
        clock,
    });
    // The replayed entries may not have been durable: they go to tables before anything is
    // acknowledged.
    while core.flush_oldest()? {}
    core.forget_old_logs()?;
    core.remove_unknown_files()?;
    core.compact_at_opening();
    core.reclaim();
    core.shared.balance_memory();
    let records = core.shared.counters.replayed_records.load(Ordering::Relaxed);
    let keyspaces = core.lock_catalog().keyspaces.len() as u64;
    span.report(&Event::Recovered { records, keyspaces });
    core.scheduler.start(&core)?;
    Ok(core)
}

/// The results of an opening, from which the database is made.
pub(super) struct Parts {
    /// The start of the part of the log that the active memtable needs; `None` without a log.
    pub(super) floor: Option<LogFloor>,
    pub(super) catalog: Catalog,
    pub(super) is_read_only: bool,
    pub(super) trees: Trees,
    pub(super) replayed: Option<Memtable>,
    /// The allocator of the memtables' records.
    pub(super) records: Records,
    pub(super) memory: Memory,
    pub(super) recovery: Recovery,
    pub(super) log: LogWriter,
    pub(super) next_file: AtomicU64,
    pub(super) next_tree: TreeId,
    pub(super) drops: Arc<DropQueue>,
    pub(super) tables: Arc<TableContext>,
    pub(super) lock: Box<dyn FileLock>,
    pub(super) dir: PathBuf,
    pub(super) options: DatabaseOptions,
    pub(super) functions: Functions,
    /// As `fs`, and takes the files of cursors even if the database is open for reading only.
    pub(super) cursor_fs: Arc<dyn FileSystem>,
    pub(super) fs: Arc<dyn FileSystem>,
    pub(super) clock: Arc<dyn Clock>,
}

/// Makes a database of the results of an opening. The replayed entries are in its sealed memtable.
pub(super) fn assemble(parts: Parts) -> Arc<Core> {
    let timed_reads = parts.options.timed_reads;
    let Parts { replayed, catalog, options, drops, .. } = parts;
    let state = &catalog.state;
    let last_seq = replayed.iter().map(Memtable::last_seq).fold(state.last_seq, SeqNo::max);
    let (log_floor, clock_ms) = (state.log_floor, state.clock_ms);
    let last_event = state.last_event();
    // The clock may have stood at 0 when they were flushed.
    let expires = clock_ms > 0
        || parts.trees.live().any(|tree| tree.levels.get().first_expiry_ms().is_some());
    let view = MemView {
        active: Arc::new(following(replayed.as_ref(), parts.floor, &options, &parts.memory)),
        sealed: replayed.into_iter().map(Arc::new).collect(),
    };
    let write = WriteState {
        log: parts.log,
        sealed_logs: Vec::new(),
        next_seq: last_seq + 1,
        records: parts.records,
        taps: Taps::default(),
        history: History::default(),
        waiting: Vec::new(),
    };
    let core = Arc::new(Core {
        memtables: Memtables::new(view, &drops),
        writer: Writer::new(write, last_seq, log_floor),
        catalog: Mutex::new(catalog),
        trees: Mutex::new(parts.trees),
        snapshots: Snapshots::default(),
        retiring: Mutex::default(),
        scheduler: Scheduler::default(),
        beside: Mutex::default(),
        shared: Shared {
            dir: parts.dir,
            fs: parts.fs,
            cursor_fs: parts.cursor_fs,
            clock: parts.clock,
            latest_ms: AtomicU64::new(clock_ms),
            expires: AtomicBool::new(expires),
            last_event: AtomicU64::new(last_event),
            options,
            functions: parts.functions,
            tables: parts.tables,
            memory: parts.memory,
            counters: Counters::default(),
            health: Health::default(),
            read_times: ReadTimes::new(timed_reads),
            process: Process::default(),
            is_read_only: parts.is_read_only,
            stopped: Mutex::default(),
            unwound: AtomicBool::new(false),
            next_file: parts.next_file,
            next_tree: AtomicU32::new(parts.next_tree),
            drops,
            lock: parts.lock,
        },
    });
    core.shared.counters.replayed_records.store(parts.recovery.records, Ordering::Relaxed);
    core
}

/// The state that all tables of the database share.
pub(super) fn table_context(
    fs: &Arc<dyn FileSystem>,
    dir: &Path,
    options: &DatabaseOptions,
    memory: &Memory,
    files: Arc<OpenFiles>,
) -> Arc<TableContext> {
    Arc::new(TableContext {
        fs: Arc::clone(fs),
        files,
        dir: dir.to_owned(),
        read_mode: options.read_mode,
        reads: Arc::new(read_engine(fs, options)),
        cache: BlockCache::new(options.memory_budget_bytes / 2, &memory.mapped),
        mapped: memory.mapped.clone(),
        counters: Arc::new(TableCounters::default()),
        shared: Arc::default(),
    })
}

/// Opens the directory, which is held until the database is closed, and creates it durably if
/// necessary.
///
/// While there is no database in it, its directory entry may come from a process that was killed
/// before it made the entry durable. So every opener that finds no database makes the entry
/// durable.
fn hold_directory(
    fs: &Arc<dyn FileSystem>,
    dir: &Path,
    create: bool,
) -> Result<Arc<dyn FileSystem>> {
    match open_directory(fs, dir) {
        Ok((names, held)) if names.iter().any(|name| name == CURRENT_NAME) => return Ok(held),
        Ok(_) | Err(Unopened::Missing) if create => {}
        Ok((names, _)) => {
            refuse_without_current(dir, &names)?;
            return Err(no_database(dir));
        }
        Err(Unopened::Missing) => return Err(no_database(dir)),
        Err(Unopened::Refused(error)) => return Err(error),
    }
    retry("create directory", dir, || fs.create_dir_all(dir))?;
    for parent in dir.ancestors().skip(1) {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        match sync_dir(&**fs, parent) {
            Ok(_) => {}
            // A parent that may not be opened existed before.
            Err(Error::Io(e)) if e.source.kind() == ErrorKind::PermissionDenied => break,
            Err(error) => return Err(error),
        }
    }
    hold_dir(fs, dir)
}

/// Holds an existing directory, and lists it.
fn open_directory(
    fs: &Arc<dyn FileSystem>,
    dir: &Path,
) -> Result<(Vec<String>, Arc<dyn FileSystem>), Unopened> {
    let held = hold_dir(fs, dir).and_then(|held| {
        let names = retry("list", dir, || held.list(dir))?;
        Ok((names, held))
    });
    held.map_err(|error| describe_unopened(&**fs, dir, error))
}

/// Holds the directory of a database that is only inspected.
pub(crate) fn hold_existing(fs: &Arc<dyn FileSystem>, dir: &Path) -> Result<Arc<dyn FileSystem>> {
    match open_directory(fs, dir) {
        Ok((_, held)) => Ok(held),
        Err(Unopened::Missing) => Err(no_database(dir)),
        Err(Unopened::Refused(error)) => Err(error),
    }
}

/// The reason why a directory could not be opened.
enum Unopened {
    /// There is no file of that name.
    Missing,
    /// There is a file, and this is why it cannot be the directory of a database.
    Refused(Error),
}

fn describe_unopened(fs: &dyn FileSystem, dir: &Path, error: Error) -> Unopened {
    let Error::Io(failure) = &error else { return Unopened::Refused(error) };
    match failure.source.kind() {
        ErrorKind::NotFound => Unopened::Missing,
        // For a symbolic link the system reports that it is not a directory, or that there are too
        // many links.
        _ if fs.is_symlink(dir) => {
            let what = format!(
                "{} is a symbolic link: a database is opened by the path of its directory itself",
                dir.display()
            );
            Unopened::Refused(Error::InvalidArgument(what.into()))
        }
        _ => Unopened::Refused(error),
    }
}

/// The engine of simultaneous reads.
fn read_engine(fs: &Arc<dyn FileSystem>, options: &DatabaseOptions) -> ReadEngine {
    let is_inline = options.background_threads == 0;
    let engine = ReadEngine::new(fs, options.read_engine, is_inline);
    engine.with_ahead_bytes(options.ahead_bytes_max())
}

fn not_a_replica(dir: &Path) -> Error {
    let what = format!(
        "the database in {} is no copy of another one, or was opened for writes of its own since",
        dir.display()
    );
    Error::InvalidArgument(what.into())
}

pub(super) fn no_database(dir: &Path) -> Error {
    Error::NotFound(format!("there is no database in {}", dir.display()).into())
}

/// Takes the lock of a database that is opened for writing. The error names the holder.
pub(crate) fn take_lock(fs: &dyn FileSystem, dir: &Path) -> Result<Box<dyn FileLock>> {
    let path = dir.join(LOCK_NAME);
    let program = std::env::args_os().next().unwrap_or_default();
    let program = Path::new(&program).file_name().unwrap_or_default().to_string_lossy();
    let holder = format!("process {} ({program})", std::process::id());
    fs.lock(&path, &holder).map_err(|error| describe_unlocked(fs, path, error, ""))
}

/// Takes the lock of a database that is only read. The error names the writer. Nothing is written.
pub(crate) fn take_shared_lock(fs: &dyn FileSystem, dir: &Path) -> Result<Box<dyn FileLock>> {
    let path = dir.join(LOCK_NAME);
    fs.lock_shared(&path)
        .map_err(|error| describe_unlocked(fs, path, error, ", which has it open for writing"))
}

/// The error for a lock that could not be taken; `and` follows the text of the lock file.
fn describe_unlocked(fs: &dyn FileSystem, path: PathBuf, error: io::Error, and: &str) -> Error {
    if error.kind() != ErrorKind::WouldBlock {
        return Error::io("lock", &path, error);
    }
    if let Some(holder) = error.get_ref() {
        return Error::Locked { path, holder: holder.to_string() };
    }
    let mut text = [0; 256];
    let read =
        fs.open(&path, ReadMode::Buffered).and_then(|file| file.read_at(&mut text, 0)).unwrap_or(0);
    let holder = String::from_utf8_lossy(&text[..read]).trim().to_owned();
    let holder = if holder.is_empty() { "another process".to_owned() } else { holder };
    Error::Locked { path, holder: format!("{holder}{and}") }
}

pub(super) type Keyspaces = HashMap<Arc<str>, Arc<KeyspaceInner>>;

/// Returns the open table that a description in the manifest stands for.
pub(super) type OpenTable<'o> = &'o mut dyn FnMut(&TableMeta) -> Result<Arc<Table>>;

/// Makes every keyspace with its LSM trees.
pub(super) fn open_trees(
    state: &CatalogState,
    manifest: &Path,
    functions: &Functions,
    drops: &Arc<DropQueue>,
    open: OpenTable<'_>,
) -> Result<(Trees, Keyspaces)> {
    let (mut trees, mut keyspaces) = (Trees::default(), Keyspaces::new());
    for keyspace in state.keyspaces.values() {
        let (options, router) = options_of(keyspace, manifest, functions)?;
        let mut partitions = Vec::new();
        for (name, id) in state.partitions_of(keyspace.tree) {
            let levels = open_levels(state, id, open)?;
            let tree = Tree::new(id, (**name).into(), Arc::clone(&options), levels, 0, drops);
            trees.add(Arc::clone(&tree));
            partitions.push(tree);
        }
        check_partitions(&keyspace.name, manifest, &router, partitions.len())?;
        let levels = open_levels(state, keyspace.tree, open)?;
        let map = PartitionMap::default().with(&partitions);
        let tree = Tree::root(keyspace.tree, options, levels, map, 0, drops);
        let name = keyspace.name.as_str().into();
        let inner = KeyspaceInner::new(keyspace.id, name, tree.clone(), router, drops);
        trees.add(tree);
        keyspaces.insert(Arc::clone(&inner.name), inner);
    }
    Ok((trees, keyspaces))
}

/// The options of a keyspace, and how its keys are divided.
pub(super) fn options_of(
    keyspace: &KeyspaceState,
    manifest: &Path,
    functions: &Functions,
) -> Result<(Arc<LiveOptions>, Router)> {
    let options = KeyspaceOptions::decode(&keyspace.options).map_err(|found| {
        if KeyspaceOptions::lacks_compression(&keyspace.options) {
            let what = format!("keyspace {:?} has {found}", keyspace.name);
            return Error::Unsupported { path: manifest.to_owned(), what };
        }
        Error::corrupt(manifest, 0, format!("options of keyspace {:?}", keyspace.name), found)
    })?;
    let router = Router::new(&options.partitions, functions).map_err(|error| {
        let name = &keyspace.name;
        Error::InvalidArgument(format!("keyspace {name:?} has {error}").into())
    })?;
    Ok((Arc::new(LiveOptions::new(&options)), router))
}

/// Refuses partitions of a keyspace whose keys are not divided.
pub(super) fn check_partitions(
    name: &str,
    manifest: &Path,
    router: &Router,
    partitions: usize,
) -> Result<()> {
    if partitions == 0 || router.has_partitions() {
        return Ok(());
    }
    let found = format!("{partitions} partitions");
    Err(Error::corrupt(manifest, 0, format!("none in keyspace {name:?}"), found))
}

/// Opens the tables of a LSM tree.
pub(super) fn open_levels(
    state: &CatalogState,
    tree: TreeId,
    open: OpenTable<'_>,
) -> Result<Levels> {
    let mut l0 = Vec::new();
    let mut sorted: Vec<Vec<Arc<Table>>> = Vec::new();
    for (level, meta) in state.tables_of(tree) {
        let table = open(meta)?;
        match level.checked_sub(1) {
            None => l0.push(table),
            Some(i) => {
                sorted.resize_with(sorted.len().max(i + 1), Vec::new);
                sorted[i].push(table);
            }
        }
    }
    Ok(Levels::new(l0, sorted.into_iter().map(Level::new).collect()))
}

/// Turns a missing file that the manifest names into damage: it existed before the manifest named
/// it.
fn missing_is_damage(error: Error) -> Error {
    match &error {
        Error::Io(failure) if failure.source.kind() == std::io::ErrorKind::NotFound => {
            Error::corrupt(&failure.path, 0, "the file that the manifest names", "no file")
        }
        _ => error,
    }
}

/// Adds the partitions that were created in the log. Returns the id of the next LSM tree.
/// O(keyspaces + creations) look-ups, and the cost of adding a partition to a map.
fn add_created(
    replayed: Option<&Memtable>,
    state: &CatalogState,
    keyspaces: &Keyspaces,
    trees: &mut Trees,
    dir: &Path,
    drops: &Arc<DropQueue>,
) -> Result<TreeId> {
    let mut next_tree = state.next_tree;
    let by_root: HashMap<TreeId, &Arc<KeyspaceInner>> =
        keyspaces.values().map(|inner| (inner.tree.get().id, inner)).collect();
    for Creation { root, tree, name } in replayed.map(Memtable::created).unwrap_or_default() {
        next_tree = next_tree.max(tree.saturating_add(1));
        // Skips a keyspace or partition that was cleared or dropped, or is already in the manifest.
        let inner = by_root.get(&root);
        let Some(inner) = inner.filter(|_| !state.is_retired(tree) && !state.has_tree(tree)) else {
            continue;
        };
        let root = inner.tree.get();
        let map = root.partition_map();
        let (Some(partitions), None) = (&root.partitions, map.get(&name)) else {
            let what = format!("no second creation of partition \"{}\"", name.escape_ascii());
            return Err(Error::corrupt(dir, 0, what, "one in the log"));
        };
        let (options, levels) = (Arc::clone(&root.options), Levels::default());
        let tree = Tree::new(tree, name, options, levels, 0, drops);
        partitions.store(Arc::new(map.with(&[Arc::clone(&tree)])));
        trees.add(tree);
    }
    Ok(next_tree)
}

/// The memtable that follows `before`, if there is one.
fn following(
    before: Option<&Memtable>,
    log: Option<LogFloor>,
    options: &DatabaseOptions,
    memory: &Memory,
) -> Memtable {
    match before {
        Some(before) => before.successor(log, options.memtable_bytes),
        None => Memtable::new(options.memtable_kind, log, options.memtable_bytes, &memory.mapped),
    }
}

/// Replays the log into `memtable`, which is returned unless there is nothing to replay.
///
/// It is one memtable, however many segments there are, so that one edit of the manifest moves all
/// of it to tables and the log's floor to the next segment. If a part of the log were in tables and
/// not yet forgotten, a power cut could take its unsynced end away: what is left would be replayed
/// over the tables, and its older entries and range tombstones would hide newer ones.
fn replay(
    fs: &dyn FileSystem,
    dir: &Path,
    state: &CatalogState,
    memtable: Memtable,
    records: &mut Records,
) -> Result<(Option<Memtable>, Recovery)> {
    let recovery = recover(fs, dir, state.identity, state.log_start(), |record| {
        let LogRecord { lsn, segment, payload } = record;
        let read = Payload::decode(&payload).map_err(|fault| {
            let at =
                format!("{} at byte {} of the record at place {lsn}", fault.expected, fault.offset);
            Error::corrupt(segment_path(dir, segment), 0, at, "something else")
        })?;
        match read {
            Payload::Creations(created) => memtable.add_created(&created),
            Payload::Batch(batch) => {
                let first_seq = batch.first_seq();
                let record = Encoded::Bytes(payload).keep_in(records);
                insert_record(&memtable, &record, first_seq);
            }
        }
        Ok(())
    })?;
    let is_replayed = recovery.records > 0;
    Ok((is_replayed.then_some(memtable), recovery))
}

impl Core {
    /// Records durably that no segment older than the present one is needed, and removes older
    /// ones.
    fn forget_old_logs(&self) -> Result<()> {
        let mut state = self.lock_write();
        let (segment, lsn) = (state.log.header().id, state.log.header().base);
        let mut catalog = self.lock_catalog();
        if catalog.state.log_floor < segment {
            // The manifest may name only files that exist durably.
            self.shared.sync_dir()?;
            state.log.record_name_synced();
            let last_seq = Edit::LastSeq { seq: state.next_seq - 1 };
            catalog.commit(&self.shared, vec![Edit::LogFloor { segment, lsn }, last_seq])?;
        }
        self.writer.log_floor.store(segment, Ordering::Release);
        drop(self.writer.take_obsolete_logs(&mut state));
        Ok(())
    }

    /// Removes files that nothing refers to: leftovers of a crash, and logs that were flushed.
    fn remove_unknown_files(&self) -> Result<()> {
        let mut known: HashSet<PathBuf> = HashSet::new();
        let kept = self.kept_logs().into_iter();
        known.extend(kept.map(|id| segment_path(&self.shared.dir, id)));
        {
            let catalog = self.lock_catalog();
            known.insert(catalog.manifest.path().to_owned());
            for meta in catalog.state.tables() {
                known.insert(home_path(&self.shared.dir, meta));
                known.insert(value_path(&self.shared.dir, meta.id));
            }
        }
        for name in retry("list", &self.shared.dir, || self.shared.fs.list(&self.shared.dir))? {
            let path = self.shared.dir.join(&name);
            // Files of other kinds are not the database's to remove.
            if file_number(&name).is_some() && !known.contains(&path) {
                self.shared.remove_file(&path);
            }
        }
        Ok(())
    }
}

/// The number in the name of a file of the database; `None` for the lock, `CURRENT` and files that
/// are not the database's: `1.log` belongs to another program, and is not removed. No file of the
/// database has the largest possible number.
fn file_number(name: &str) -> Option<FileId> {
    let digits = match name.split_once('.') {
        Some((digits, "sst" | "set" | "val" | "log")) => digits,
        _ => name.strip_prefix("MANIFEST-")?,
    };
    let is_ours = |id: &FileId| *id < FILE_ID_END && format!("{id:06}") == digits;
    digits.parse().ok().filter(is_ours)
}

#[cfg(test)]
mod tests {
    use super::file_number;

    #[test]
    fn numbers_in_names_leave_a_next_one() {
        assert_eq!(file_number("000012.sst"), Some(12));
        assert_eq!(file_number("MANIFEST-000007"), Some(7));
        let others = ["1.log", "+00012.log", "0000012.log", "MANIFEST-7", "20240115.log.gz"];
        for name in
            others.into_iter().chain(["LOCK", "CURRENT", "x.log", "18446744073709551615.log"])
        {
            assert_eq!(file_number(name), None);
        }
    }
}
