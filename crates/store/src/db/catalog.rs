//! The catalog: the keyspaces, and the manifest that records them durably.

use std::collections::HashMap;

use rhumb_sync::primitive::{Arc, Ordering};

use super::{keyspace::KeyspaceInner, shared::Shared};
use crate::{
    error::{Error, Result},
    version::{
        edit::{Edit, VersionEdit},
        manifest::Manifest,
        state::CatalogState,
    },
};

/// The keyspaces, and the manifest that records them.
pub(crate) struct Catalog {
    pub(crate) state: CatalogState,
    pub(crate) manifest: Manifest,
    pub(crate) keyspaces: HashMap<Arc<str>, Arc<KeyspaceInner>>,
}

/// The number of file ids that every manifest edit reserves. A file whose directory entry was lost
/// in a power cut leaves no trace, and its id must not be handed out again: stale sectors of it
/// would then carry valid checksums.
pub(crate) const RESERVED_FILES: u64 = 4096;

impl Catalog {
    /// Makes `edits` durable, all or none, and applies them to the state.
    ///
    /// After an error none of them happened, now or after a crash, unless writes are stopped. Even
    /// so, the files that they name must stay as they are until a later commit succeeds.
    pub(crate) fn commit(&mut self, shared: &Shared, edits: Vec<Edit>) -> Result<()> {
        let result = self.commit_edits(shared, edits);
        shared.health.record_edit(&result);
        result
    }

    fn commit_edits(&mut self, shared: &Shared, mut edits: Vec<Edit>) -> Result<()> {
        if shared.unwound.load(Ordering::Acquire) {
            shared.check_running()?;
        }
        shared.check_lock().inspect_err(|cause| shared.stop(cause))?;
        edits.push(self.next_ids(shared));
        if shared.expires.load(Ordering::Relaxed) {
            // What was left out because it had expired must not come back with an earlier clock.
            let ms = shared.now_ms();
            // planted: expiry-clock-kept
            edits.extend((ms > self.state.clock_ms).then_some(Edit::Clock { ms }));
        }
        let edit = VersionEdit::from(edits);
        if self.manifest.is_broken() || self.manifest.is_outgrown() {
            self.replace_manifest(shared)?;
        }
        if let Err(cause) = self.manifest.append(&edit) {
            // If the sync failed, the edits may come back after a crash. Writes that go on as if
            // the edits had not happened would then be lost, so a manifest without the edits must
            // take effect first.
            if self.manifest.is_undecided() {
                shared.health.count_failed_sync();
            }
            if self.manifest.is_undecided() && self.replace_manifest(shared).is_err() {
                shared.stop(&cause);
            }
            return Err(cause);
        }
        self.state.apply(&edit).map_err(|what| {
            Error::corrupt(self.manifest.path(), 0, "edits that fit the state", what)
        })?;
        shared.last_event.store(self.state.last_event(), Ordering::Release);
        Ok(())
    }

    /// Begins a new manifest with everything that is known to have happened.
    fn replace_manifest(&mut self, shared: &Shared) -> Result<()> {
        let id = shared.new_file_id();
        let new = Manifest::create(&*shared.fs, &shared.dir, id, &self.state.records())?;
        let old = std::mem::replace(&mut self.manifest, new);
        shared.remove_file(old.path());
        Ok(())
    }

    fn next_ids(&self, shared: &Shared) -> Edit {
        Edit::NextIds {
            file: shared.next_file.load(Ordering::Relaxed) + RESERVED_FILES,
            tree: shared.next_tree.load(Ordering::Relaxed),
            keyspace: self.state.next_keyspace,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        Database, KeyspaceOptions, Partitioning,
        io::sim::SimFs,
        version::edit::{Edit, VersionEdit},
    };
    use rhumb_sync::primitive::Arc;

    /// The bytes that the manifest writes are bounded by its edits: a large catalog is not written
    /// anew at every edit.
    #[test]
    fn a_large_manifest_grows_by_its_edits() {
        let read = |name: &str| std::env::var(name).ok().map(|n| n.parse::<u32>().unwrap());
        let partitions = read("RHUMB_MANIFEST_PARTITIONS").unwrap_or(18_000);
        let edits = read("RHUMB_MANIFEST_EDITS").unwrap_or(150);
        let fs = SimFs::new(3);
        let builder = Database::builder("/db").file_system(Arc::new(fs.clone()));
        let db = builder.background_threads(0).open().unwrap();
        let partitioning = Partitioning::PrefixLength(4);
        let options = KeyspaceOptions { partitions: partitioning, ..KeyspaceOptions::default() };
        let root = db.keyspace("k", options).unwrap().inner.tree.get().id;
        let core = db.core();
        let mut written = Written::default();
        let mut commit = |edits: Vec<Edit>| {
            written.edits += VersionEdit::from(edits.clone()).encode().len() as u64;
            let before = fs.counts().bytes_written;
            core.lock_catalog().commit(&core.shared, edits).unwrap();
            written.all += fs.counts().bytes_written - before;
        };
        let create = |i: u32| {
            let name = format!("{i:0250}").into_bytes().into();
            Edit::CreatePartition { root, name, tree: core.shared.new_tree_id() }
        };
        commit((0..partitions).map(create).collect());
        for i in 0..edits {
            commit(vec![create(partitions + i)]);
        }
        // Large edits, so that there are several snapshots.
        for part in 0..20 {
            let first = partitions + edits + part * 2_000;
            commit((first..first + 2_000).map(create).collect());
        }
        let snapshot = core.lock_catalog().state.snapshot().encode().len() as u64;
        assert!(snapshot > 4 << 20, "the test is about large ones: {snapshot} bytes");
        let most = 4 * written.edits + snapshot;
        assert!(written.all <= most, "{written:?} with a snapshot of {snapshot} bytes");
        println!("{written:?} with a snapshot of {snapshot} bytes");
        drop(db);
        let db = Database::builder("/db").file_system(Arc::new(fs)).open().unwrap();
        let known = db.core().lock_catalog().state.partitions_of(root).count();
        assert_eq!(known, (partitions + edits + 40_000) as usize);
    }

    #[derive(Debug, Default)]
    struct Written {
        edits: u64,
        all: u64,
    }
}
