//! Salvage: every sound entry of a damaged store, in a new database, and a list of what was lost.
//!
//! *Sound* are bytes whose checksum is right. Nothing else that the engine relies on is needed: not
//! the manifest, not a table's footer, index or filter, not the beginning of the log. What is there
//! is used, because it says what was dropped and what is missing.
//!
//! Reads the store with the lock of a reader and never writes to it. The new database is written by
//! the ordinary means, is durable at the end, and is checked.

mod blocks;
mod catalog;
mod file;
mod log;
mod merge;
mod report;
mod stream;
mod tables;
#[cfg(test)]
mod tests;

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    path::{Path, PathBuf},
};

use rhumb_sync::primitive::Arc;

use self::{
    catalog::KnownCatalog,
    file::Disk,
    log::{LogContents, LogEntries, TreeLog},
    merge::{Fragment, Merge, Scope},
    stream::TableStream,
    tables::FoundTable,
};
use crate::{
    db::{Database, hold_existing, take_shared_lock},
    error::{Error, Result},
    inspect::Inspector,
    io::{FileSystem, StdFs, read_only::ReadOnlyFs, retry, sync_dir},
    options::{KeyspaceOptions, PersistMode},
    partition::{Functions, Partitioning, Router},
    table::{TableMeta, home_path},
    types::{FileId, TreeId},
    version::manifest::CURRENT_NAME,
};

pub use report::{Loss, ManifestFound, SalvageReport, SalvagedKeyspace};

/// The scope of a table whose LSM tree is not known is the number of the table above this one; the
/// numbers of trees are below it.
const TABLE_SCOPE: Scope = 1 << 63;

/// Brings every sound entry of the damaged store in the directory `src` across to a new database in
/// `dst`, and lists what was lost: [`Salvage::run`] with the default settings.
///
/// ```
/// # fn main() -> rhumb::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
/// use rhumb::{Database, KeyspaceOptions};
///
/// let db = Database::open(&src)?;
/// db.keyspace("users", KeyspaceOptions::default())?.insert("ada", "1815")?;
/// db.close()?;
/// std::fs::remove_file(src.join("CURRENT")).unwrap();
/// assert!(Database::open(&src).is_err());
///
/// let report = rhumb::salvage(&src, &dst)?;
/// assert!(report.losses.is_empty());
/// let users = Database::open(&dst)?.keyspace("users", KeyspaceOptions::default())?;
/// assert_eq!(users.get("ada")?.unwrap(), b"1815");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// As [`Salvage::run`].
pub fn salvage(src: impl AsRef<Path>, dst: impl AsRef<Path>) -> Result<SalvageReport> {
    Salvage::new().run(src, dst)
}

/// Settings of a [`salvage`].
#[derive(Clone)]
#[must_use = "it does nothing until it runs"]
pub struct Salvage {
    fs: Arc<dyn FileSystem>,
    functions: Functions,
    into: Option<String>,
}

impl Default for Salvage {
    fn default() -> Self {
        Self::new()
    }
}

impl Salvage {
    /// A salvage with the default settings.
    pub fn new() -> Self {
        Self { fs: Arc::new(StdFs), functions: Functions::default(), into: None }
    }

    /// The file system of both stores.
    pub fn file_system(mut self, fs: Arc<dyn FileSystem>) -> Self {
        self.fs = fs;
        self
    }

    /// Puts all entries whose keyspace is not known into the keyspace `name`. By default each LSM
    /// tree of which no more is known, and each table that does not name its tree or shares a file
    /// with others, gets a keyspace of its own, such as `tree-7` or `table-12`. Of several versions
    /// of a key the one with the largest sequence number counts, so this is right if the store had
    /// one keyspace, or if its keyspaces share no keys. Compactions give entries with nothing older
    /// the number 0, so an obsolete table that was left in the directory would count for more than
    /// they.
    pub fn into(mut self, name: &str) -> Self {
        self.into = Some(name.to_owned());
        self
    }

    /// Registers a function from keys to names of partitions, as
    /// [`DatabaseBuilder::partition_function`](crate::DatabaseBuilder::partition_function). A
    /// keyspace that is divided by a function that is not registered has no partitions in the new
    /// database; the report says so.
    pub fn partition_function(
        mut self,
        name: &str,
        function: impl Fn(&[u8]) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        self.functions.0.insert(name.to_owned(), Arc::new(function));
        self
    }

    /// Brings every sound entry of the store in the directory `src` across to a new database in
    /// `dst`, which must not exist or be empty.
    ///
    /// Of each key the newest sound version counts, by its sequence number; the key is absent if
    /// that is a tombstone or if a sound range tombstone is newer. So where the bytes of a newer
    /// version are destroyed, **an older value can come to light**; the range of keys is among the
    /// losses. What was dropped or replaced does not come back if the manifest is whole
    /// ([`ManifestFound::Whole`]). If it is not, obsolete files that lie in the directory are taken
    /// for tables of the LSM trees that they name. Entries of ingested tables are then taken for
    /// the oldest, as only the manifest has their number.
    ///
    /// A log that ends at the end of a record cannot be told from one that was cut off there, and
    /// neither can a manifest.
    ///
    /// The store is read with the lock of a reader, and nothing is written to its directory. Parts
    /// that the system cannot read are lost, and the rest is read. Takes the memory of the log, of
    /// all range tombstones, and of a block or large value of each table that has the keys of the
    /// moment. Reads each byte at most twice, except where it searches.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no store in `src`; [`Error::Locked`] if it is open for
    /// writing; [`Error::InvalidArgument`] if `dst` is not empty or lies in `src`;
    /// [`Error::Unsupported`] if the store, or a sound block of it, is of a kind that this build
    /// cannot read; [`Error::Io`] if the new database cannot be written, and [`Error::Corrupt`] if
    /// its check fails. After an error nothing is left in `dst`.
    pub fn run(&self, src: impl AsRef<Path>, dst: impl AsRef<Path>) -> Result<SalvageReport> {
        let (src, dst) = (src.as_ref(), dst.as_ref());
        let reading: Arc<dyn FileSystem> = Arc::new(ReadOnlyFs(Arc::clone(&self.fs)));
        let held = hold_existing(&reading, src)?;
        let _lock = take_shared_lock(&*held, src)?;
        self.check_target(src, dst)?;
        let outcome = self.bring_across(&Disk::new(held), src, dst);
        if outcome.is_err() {
            // It was empty before.
            for name in self.fs.list(dst).unwrap_or_default() {
                let _ = self.fs.remove_file(&dst.join(name));
            }
            let _ = sync_dir(&*self.fs, dst);
        }
        outcome
    }

    fn check_target(&self, src: &Path, dst: &Path) -> Result<()> {
        let refuse = |what: String| Err(Error::InvalidArgument(what.into()));
        let find = |path: &Path| retry("find", path, || self.fs.absolute(path));
        if find(dst)?.starts_with(find(src)?) {
            return refuse(format!("{} lies in the store that is salvaged", dst.display()));
        }
        match self.fs.list(dst) {
            Ok(names) if !names.is_empty() => {
                refuse(format!("{} is not empty: salvage to a new directory", dst.display()))
            }
            Ok(_) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(Error::io("list", dst, error)),
        }
    }

    fn bring_across(&self, disk: &Disk, src: &Path, dst: &Path) -> Result<SalvageReport> {
        let mut names = retry("list", src, || disk.fs.list(src))?;
        names.sort();
        if !names.iter().any(|name| is_of_store(name)) {
            return Err(Error::NotFound(format!("there is no store in {}", src.display()).into()));
        }
        let (known, mut report) = catalog::read(&*disk.fs, src, &names)?;
        let log = log::read(&*disk.fs, src, &names, &known, &mut report)?;
        let sources = self.sources(disk, src, &names, known, log, &mut report)?;
        let report = RefCell::new(report);
        let mut builder = Database::builder(dst).file_system(Arc::clone(&self.fs));
        builder.functions = self.functions.clone();
        let db = builder.background_threads(0).open()?;
        for (name, source) in sources.into_iter().filter(|(_, source)| source.is_worth_it()) {
            let keyspace = self.write(&db, disk, src, &name, source, &report)?;
            report.borrow_mut().keyspaces.push(keyspace);
        }
        db.persist(PersistMode::SyncAll)?;
        db.close()?;
        self.check(dst)?;
        let mut report = report.into_inner();
        for part in disk.take_unreadable() {
            let what = format!("the system cannot read it: {}", part.error);
            report.note(&part.path, Some(part.offset), what);
        }
        Ok(report)
    }

    /// Gathers what there is of each keyspace, by its name in the new database.
    fn sources(
        &self,
        disk: &Disk,
        src: &Path,
        names: &[String],
        mut known: KnownCatalog,
        log: LogContents,
        report: &mut SalvageReport,
    ) -> Result<BTreeMap<String, Sources>> {
        let mut all = Gathered::new(self, &known, src, report);
        for (id, (tree, meta)) in std::mem::take(&mut known.tables) {
            known.tables.insert(id, (tree, meta.clone()));
            let name = all.name_of_tree(&known, tree);
            match tables::known(disk, src, &meta)? {
                Some(table) => all.add_table(name, tree.into(), table, report),
                None => all.lose_table(name, src, &meta, report),
            }
        }
        let LogContents { trees, created, is_damaged } = log;
        if !known.is_whole {
            for (id, table) in tables::unknown(disk, src, names, &known)? {
                match table.tree.map(|tree| (tree, all.name_of_logged(&known, tree, &created))) {
                    Some((tree, Some(name))) => all.add_table(name, tree.into(), table, report),
                    // It was dropped.
                    Some((_, None)) => {}
                    None => {
                        let name = all.unknown_name(format!("table-{id}"));
                        all.add_table(name, TABLE_SCOPE | id, table, report);
                    }
                }
            }
        }
        for (tree, contents) in trees {
            match all.name_of_logged(&known, tree, &created) {
                Some(name) => all.add_log(name, tree.into(), contents),
                None if is_damaged && !known.dropped.contains(&tree) => {
                    let what = format!(
                        "{} entries in the log of the LSM tree {tree}, which was dropped, or is a \
                         partition whose creation is lost",
                        contents.entries.len()
                    );
                    report.lose(Loss::new(src, 0, 0, what));
                }
                None => {}
            }
        }
        Ok(all.sources)
    }

    /// Writes a keyspace of the new database.
    fn write(
        &self,
        db: &Database,
        disk: &Disk,
        src: &Path,
        name: &str,
        source: Sources,
        report: &RefCell<SalvageReport>,
    ) -> Result<SalvagedKeyspace> {
        let keyspace = db.keyspace(name, source.options)?;
        let open = |(scope, table)| (scope, TableStream::new(disk, src, table, name));
        let tables = source.tables.into_iter().map(open).collect();
        let mut merge = Merge::new(tables, source.logs, source.ranges, report);
        let entries = keyspace.try_ingest(&mut merge)?;
        let disordered = merge.finish()?;
        if disordered > 0 {
            let what = format!("{disordered} entries of keyspace {name:?} that are out of order");
            report.borrow_mut().lose(Loss::new(src, 0, 0, what));
        }
        let has_own_name = source.has_own_name;
        Ok(SalvagedKeyspace { name: name.to_owned(), has_own_name, entries })
    }

    /// Checks the new database.
    fn check(&self, dst: &Path) -> Result<()> {
        let inspector = Inspector::with_file_system(Arc::clone(&self.fs));
        match inspector.check(dst, &mut |_, _| {})?.problems.first() {
            None => Ok(()),
            Some(problem) => {
                let (offset, found) = (problem.offset.unwrap_or(0), problem.what.clone());
                Err(Error::corrupt(&problem.path, offset, "a sound new database", found))
            }
        }
    }
}

impl fmt::Debug for Salvage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Salvage")
            .field("functions", &self.functions)
            .field("into", &self.into)
            .finish_non_exhaustive()
    }
}

/// Returns true for the names of files that only a store has.
fn is_of_store(name: &str) -> bool {
    let is_data = name.split_once('.').is_some_and(|(digits, ending)| {
        let is_number = digits.len() >= 6 && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number && matches!(ending, "sst" | "set" | "val" | "log")
    });
    is_data || name == CURRENT_NAME || name.starts_with("MANIFEST-")
}

/// What there is of a keyspace.
#[derive(Default)]
struct Sources {
    options: KeyspaceOptions,
    has_own_name: bool,
    tables: Vec<(Scope, FoundTable)>,
    logs: Vec<(Scope, LogEntries)>,
    ranges: HashMap<Scope, Vec<Fragment>>,
}

impl Sources {
    /// Returns true if there is a reason for a keyspace: its own name, or entries.
    fn is_worth_it(&self) -> bool {
        self.has_own_name || !self.tables.is_empty() || !self.logs.is_empty()
    }
}

/// What there is of all keyspaces, by their names in the new database.
struct Gathered {
    into: Option<String>,
    /// The names of keyspaces that the manifest knows, by their numbers.
    named: BTreeMap<u32, String>,
    sources: BTreeMap<String, Sources>,
}

impl Gathered {
    fn new(
        salvage: &Salvage,
        known: &KnownCatalog,
        src: &Path,
        report: &mut SalvageReport,
    ) -> Self {
        let mut gathered =
            Self { into: salvage.into.clone(), named: BTreeMap::new(), sources: BTreeMap::new() };
        for (id, keyspace) in &known.keyspaces {
            let mut note = |what: String| {
                let what = format!("keyspace {:?} {what}", keyspace.name);
                report.note(src, None, what);
            };
            let mut options = KeyspaceOptions::decode(&keyspace.options).unwrap_or_else(|found| {
                note(format!("has the default options, as its own are unknown: {found}"));
                KeyspaceOptions::default()
            });
            if let Err(error) = Router::new(&options.partitions, &salvage.functions) {
                note(format!("is not divided into partitions: {error}"));
                options.partitions = Partitioning::None;
            }
            let sources = Sources { options, has_own_name: true, ..Sources::default() };
            gathered.sources.insert(keyspace.name.clone(), sources);
            gathered.named.insert(*id, keyspace.name.clone());
        }
        gathered
    }

    /// The name for entries whose keyspace is unknown: `wanted`, unless a keyspace has it.
    fn unknown_name(&self, wanted: String) -> String {
        if let Some(into) = &self.into {
            return into.clone();
        }
        let taken: BTreeSet<&String> = self.named.values().collect();
        let mut name = wanted;
        while taken.contains(&name) {
            name.push('-');
        }
        name
    }

    /// The name of the keyspace of an LSM tree.
    fn name_of_tree(&self, known: &KnownCatalog, tree: TreeId) -> String {
        match known.keyspace_of(tree).and_then(|id| self.named.get(&id)) {
            Some(name) => name.clone(),
            None => {
                let root = known.partitions.get(&tree).map_or(tree, |(root, _)| *root);
                self.unknown_name(format!("tree-{root}"))
            }
        }
    }

    /// The name of the keyspace of an LSM tree that the log has entries of, or that a table names;
    /// `None` if it was dropped.
    fn name_of_logged(
        &self,
        known: &KnownCatalog,
        tree: TreeId,
        created: &HashMap<TreeId, (TreeId, Box<[u8]>)>,
    ) -> Option<String> {
        if known.dropped.contains(&tree) {
            return None;
        }
        let root = created.get(&tree).map_or(tree, |(root, _)| *root);
        if known.keyspace_of(tree).is_some() {
            return Some(self.name_of_tree(known, tree));
        }
        if known.keyspace_of(root).is_some() {
            return Some(self.name_of_tree(known, root));
        }
        // The manifest knows every tree that it does not name and that has a number below: it was
        // dropped.
        let is_dropped = |of: TreeId| known.is_whole && of < known.next_tree;
        let is_gone = known.dropped.contains(&root) || is_dropped(tree) || is_dropped(root);
        (!is_gone).then(|| self.name_of_tree(known, root))
    }

    fn of(&mut self, name: String) -> &mut Sources {
        self.sources.entry(name).or_default()
    }

    /// The scope of range tombstones of the keyspace `name`: that of an LSM tree or table, unless
    /// all that is unknown goes into one keyspace.
    fn scope(&self, name: &str, of: Scope) -> Scope {
        let is_joined = self.into.as_deref() == Some(name);
        let is_named = self.named.values().any(|named| named == name);
        if is_joined && (!is_named || of >= TABLE_SCOPE) { TABLE_SCOPE } else { of }
    }

    fn add_table(
        &mut self,
        name: String,
        scope: Scope,
        table: FoundTable,
        report: &mut SalvageReport,
    ) {
        let scope = self.scope(&name, scope);
        let stated = table.description().map_or(0, |meta| meta.range_tombstones);
        if table.ranges.is_none() && (stated > 0 || table.ranges_at.is_some()) {
            let path = &table.region.path;
            let (offset, bytes) = table.ranges_at.map_or((0, 0), |at| (at.offset, at.len));
            let what = format!("{stated} range tombstones: what they removed can come to light");
            let (from, to) = (table.description(), table.description());
            let loss = Loss::new(path, table.region.base + offset, bytes, what)
                .of_keyspace(&name)
                .between(from.map(|meta| &*meta.smallest), to.map(|meta| &*meta.largest));
            report.lose(loss);
        }
        let sources = self.of(name);
        for (from, to) in table.ranges.iter().flat_map(|ranges| ranges.spans()) {
            let newest = table.ranges.as_ref().map_or(0, |ranges| ranges.newest(from, u64::MAX));
            let (from, to) = (Box::from(&**from), Some(Box::from(&**to)));
            let ranges = sources.ranges.entry(scope).or_default();
            ranges.push(Fragment { from, to, seq: newest });
        }
        sources.tables.push((scope, table));
    }

    /// Lists a table whose file is gone.
    fn lose_table(
        &mut self,
        name: String,
        src: &Path,
        meta: &TableMeta,
        report: &mut SalvageReport,
    ) {
        let path: PathBuf = home_path(src, meta);
        let offset = meta.place.map_or(0, |place| place.offset);
        let id: FileId = meta.id;
        let mut what = format!("table {id} with {} entries: no file", meta.entries);
        if meta.range_tombstones > 0 {
            what = format!("{what}; what its range tombstones removed can come to light");
        }
        let loss = Loss::new(&path, offset, meta.file_bytes, what).of_keyspace(&name);
        report.lose(loss.between(Some(&meta.smallest), Some(&meta.largest)));
    }

    fn add_log(&mut self, name: String, scope: Scope, log: TreeLog) {
        let scope = self.scope(&name, scope);
        let sources = self.of(name);
        sources.logs.push((scope, log.entries));
        sources.ranges.entry(scope).or_default().extend(log.ranges);
    }
}
