//! Checkpoints: a second database that shares this one's tables by hard links.

use std::{collections::HashSet, path::Path};

use super::core::Core;
use crate::{
    error::{Error, Result},
    io::retry,
    sync::primitive::Ordering,
    table::{home_path, value_path},
    version::{edit::Edit, edit::VersionEdit, manifest::Manifest},
};

impl Core {
    /// Writes a copy of the database to `target`.
    pub(crate) fn checkpoint(&self, target: &Path) -> Result<()> {
        self.check_running()?;
        retry("create directory", target, || self.fs.create_dir_all(target))?;
        let entries = retry("list", target, || self.fs.list(target))?;
        if !entries.is_empty() {
            return Err(Error::InvalidArgument(
                format!("{} is not empty: a checkpoint needs a new directory", target.display())
                    .into(),
            ));
        }
        self.flush()?;
        // While the catalog is held, no table of its state can be removed.
        let catalog = self.lock_catalog();
        let mut linked = HashSet::new();
        for meta in catalog.state.tables() {
            // A file that several tables share is linked once.
            if meta.place.is_none_or(|place| linked.insert(place.file)) {
                self.link(&home_path(&self.dir, meta), &home_path(target, meta))?;
            }
            if meta.value_file_bytes > 0 {
                self.link(&value_path(&self.dir, meta.id), &value_path(target, meta.id))?;
            }
        }
        let manifest_id = self.new_file_id();
        // The copy has no log: no segment that exists is at or above its floor.
        let segment = self.next_file.load(Ordering::Relaxed);
        let floor = Edit::LogFloor { segment, lsn: catalog.state.log_lsn };
        let state = catalog.state.snapshot();
        let manifest = Manifest::create(
            &*self.fs,
            target,
            manifest_id,
            &[state, VersionEdit::from(vec![floor])],
        );
        drop(catalog);
        manifest?;
        retry("sync directory", target, || self.fs.sync_dir(target))?;
        let parent = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        retry("sync directory", parent, || self.fs.sync_dir(parent))
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        retry("link", to, || self.fs.hard_link(from, to))
    }
}
