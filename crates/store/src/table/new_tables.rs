//! Tables between their last byte and the manifest edit that names them.
//!
//! Any failure in between, such as a directory that cannot be synced or too many open files, leads
//! to a new attempt with files of other numbers. The files of the failed attempt are removed here;
//! otherwise each attempt on a failing disk would leave some until the next open.

use std::{
    ops::{Deref, DerefMut},
    path::Path,
};

use rhumb_sync::primitive::{Arc, Ordering};

use super::{Table, TableContext, TableMeta, home_path, value_path};
use crate::{error::Result, ranges::HiddenRuns, types::FileId};

/// Finished tables that no manifest names. The files of their own are removed unless the tables are
/// kept. (A file that they share is removed by its writer.)
pub(crate) struct NewTables<'c> {
    context: &'c Arc<TableContext>,
    metas: Vec<TableMeta>,
    /// The hidden runs of those tables that have some.
    hidden: Vec<(FileId, HiddenRuns)>,
}

impl<'c> NewTables<'c> {
    pub(crate) fn new(context: &'c Arc<TableContext>) -> Self {
        Self { context, metas: Vec::new(), hidden: Vec::new() }
    }

    /// Adds a table, with the runs of its entries that its own range tombstones hide.
    pub(crate) fn add(&mut self, meta: TableMeta, hidden: HiddenRuns) {
        if !hidden.is_empty() {
            self.hidden.push((meta.id, hidden));
        }
        self.metas.push(meta);
    }

    /// Opens one of the tables.
    pub(crate) fn open(&mut self, meta: &TableMeta) -> Result<Arc<Table>> {
        let table = Table::open(self.context, meta.clone())?;
        let hidden = self.hidden.iter().position(|(id, _)| *id == meta.id);
        if let Some(at) = hidden {
            table.set_hidden_runs(self.hidden.swap_remove(at).1);
        }
        Ok(table)
    }

    /// Keeps the files. To be called before the edit is written to the manifest: an edit that
    /// failed may still be on the disk.
    pub(crate) fn keep(&mut self) {
        self.metas.clear();
    }
}

impl Deref for NewTables<'_> {
    type Target = Vec<TableMeta>;

    fn deref(&self) -> &Vec<TableMeta> {
        &self.metas
    }
}

impl DerefMut for NewTables<'_> {
    fn deref_mut(&mut self) -> &mut Vec<TableMeta> {
        &mut self.metas
    }
}

impl Drop for NewTables<'_> {
    fn drop(&mut self) {
        let TableContext { fs, dir, counters, .. } = &**self.context;
        let remove = |path: &Path| {
            // The next open removes it.
            if fs.remove_file(path).is_err() {
                counters.removals_failed.fetch_add(1, Ordering::Relaxed);
            }
        };
        for meta in &self.metas {
            if meta.place.is_none() {
                remove(&home_path(dir, meta));
            }
            if meta.value_file_bytes > 0 {
                remove(&value_path(dir, meta.id));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rhumb_sync::{
        deferred, epoch,
        primitive::{Arc, AtomicBool, Ordering},
    };

    use crate::{
        Database, Keyspace, KeyspaceOptions, Partitioning, TableOptions,
        io::{
            FileSystem,
            sim::{CallKind, Fault, Matcher, SimFs},
        },
    };

    const DIR: &str = "/db";

    fn open(partitions: Partitioning) -> (SimFs, Database, Keyspace) {
        let fs = SimFs::new(7);
        // Without a pool, nothing is retried in the background during the test.
        let builder =
            Database::builder(DIR).file_system(Arc::new(fs.clone())).background_threads(0);
        let db = builder.open().unwrap();
        let table = TableOptions { large_value_bytes: Some(1_000), ..TableOptions::default() };
        let options = KeyspaceOptions { table, partitions, ..KeyspaceOptions::default() };
        let keyspace = db.keyspace("k", options).unwrap();
        (fs, db, keyspace)
    }

    /// Writes to sixteen partitions, if there are any: small values and one that has a file beside
    /// it.
    fn write(keyspace: &Keyspace) {
        for i in 0..64_u8 {
            keyspace.insert([i % 16, i], [i; 100]).unwrap();
        }
        keyspace.insert([3, 200], [1; 5_000]).unwrap();
    }

    /// Drops what was replaced. Threads of other tests may be pinned, as readers of this database
    /// would be, and delay that for a while.
    fn let_go_of_replaced(db: &Database) {
        let is_gone = Arc::new(AtomicBool::new(false));
        let last = Arc::clone(&is_gone);
        deferred::defer(&epoch::pin(), move || last.store(true, Ordering::Release));
        while !is_gone.load(Ordering::Acquire) {
            deferred::collect();
            std::thread::yield_now();
        }
        db.handle.core.shared.drops.drop_all();
    }

    /// Files of tables and of large values.
    fn files(fs: &SimFs, db: &Database) -> usize {
        let_go_of_replaced(db);
        let names = fs.list(Path::new(DIR)).unwrap();
        let is_table =
            |name: &&String| [".sst", ".val", ".set"].iter().any(|end| name.ends_with(end));
        names.iter().filter(is_table).count()
    }

    /// Flushes and compacts, each several times in vain if there is trouble; returns the number of
    /// files after each.
    fn run(partitions: Partitioning, trouble: Option<&Matcher>) -> [usize; 2] {
        let (fs, db, keyspace) = open(partitions);
        let try_in_vain = |work: &dyn Fn() -> crate::Result<()>| {
            let Some(trouble) = trouble else { return };
            fs.inject(trouble.clone(), Fault::Eio, u64::MAX);
            for _ in 0..3 {
                assert!(work().is_err(), "{trouble:?}");
            }
            fs.clear_faults();
        };
        let flush = || db.flush();
        write(&keyspace);
        try_in_vain(&flush);
        flush().unwrap();
        let flushed = files(&fs, &db);
        write(&keyspace);
        flush().unwrap();
        let compact = || keyspace.compact();
        try_in_vain(&compact);
        compact().unwrap();
        [flushed, files(&fs, &db)]
    }

    /// What fails: between the tables' last byte and the manifest, or before.
    fn troubles() -> [Matcher; 3] {
        [
            Matcher::any().kinds(&[CallKind::Open]),
            Matcher::any().kinds(&[CallKind::SyncData]).name_contains(".s"),
            Matcher::any().kinds(&[CallKind::Write]).name_suffix(".val"),
        ]
    }

    #[test]
    fn attempts_that_failed_leave_no_files() {
        for partitions in [Partitioning::None, Partitioning::PrefixLength(1)] {
            let wanted = run(partitions.clone(), None);
            for trouble in troubles() {
                let found = run(partitions.clone(), Some(&trouble));
                assert_eq!(found, wanted, "{partitions:?} after {trouble:?}");
            }
        }
    }
}
