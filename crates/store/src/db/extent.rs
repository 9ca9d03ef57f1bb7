//! An upper bound on the contents of a keyspace, without reading it.

use super::keyspace::Keyspace;
use crate::tree::Tree;

impl Keyspace {
    /// An upper bound on the number of entries that a walk over the whole keyspace steps over:
    /// those of its tables, and those in memory. Overwritten and deleted entries count until they
    /// are compacted away. 0 for a keyspace that is empty since it was created or cleared.
    /// O(tables); reads nothing.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = rhumb::Database::builder(dir.path().join("db")).open()?;
    /// let keyspace = db.keyspace("k", rhumb::KeyspaceOptions::default())?;
    /// assert_eq!(keyspace.entries_at_most(), 0);
    /// keyspace.insert("a", "1")?;
    /// assert_eq!(keyspace.entries_at_most(), 1);
    /// keyspace.remove("a")?;
    /// assert_eq!(keyspace.entries_at_most(), 2);
    /// keyspace.clear()?;
    /// assert_eq!(keyspace.entries_at_most(), 0);
    /// # Ok::<(), rhumb::Error>(())
    /// ```
    #[must_use]
    pub fn entries_at_most(&self) -> u64 {
        // Memtables are counted first: a flush moves entries to tables, so none is missed between
        // them.
        let view = self.core().memtables.get();
        let trees = self.inner.tree.get().with_partitions();
        let of_tree = |tree: &Tree| -> u64 {
            let in_memory: u64 = view.all().map(|memtable| memtable.entries_at_most(tree.id)).sum();
            let levels = tree.levels.get();
            in_memory + levels.all().map(|(_, table)| table.meta().entries).sum::<u64>()
        };
        trees.iter().map(|tree| of_tree(tree)).sum()
    }
}
