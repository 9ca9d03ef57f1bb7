//! Checkpoints: a second database that shares this one's tables by hard links, or copies them if
//! links are not possible.

use std::{
    collections::HashSet,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use rhumb_sync::primitive::{Arc, Ordering};

use super::{backup::copy, core::Core};
use crate::{
    error::{Error, Result},
    events::{Event, Span, Work},
    io::{retry, sync_dir},
    table::{home_path, value_path},
    types::{FileId, SeqNo},
    version::{
        edit::{Edit, VersionEdit},
        levels::Levels,
        manifest::{Manifest, remove_created},
        state::CatalogState,
    },
};

/// The number of flushes after which a copy makes the writers wait: keyspaces are seldom changed as
/// a whole, and each flush takes all that was written during the one before.
const FLUSHES_MAX: u32 = 4;

/// The contents of a checkpoint. Its tables keep their files as long as it lives.
pub(super) struct Content {
    pub(super) state: CatalogState,
    _tables: Vec<Arc<Levels>>,
    pub(super) manifest: FileId,
    /// The floor of the copy's log: an id that no segment has, as the copy has no log.
    segment: FileId,
}

impl Content {
    /// The records of the copy's manifest.
    pub(super) fn records(&self) -> Vec<VersionEdit> {
        let floor = Edit::LogFloor { segment: self.segment, lsn: self.state.log_lsn };
        vec![self.state.snapshot(), VersionEdit::from(vec![floor])]
    }
}

impl Core {
    /// Writes a copy of the database to `target`, and removes what it wrote if it fails.
    pub(crate) fn checkpoint(&self, target: &Path) -> Result<()> {
        self.shared.check_running()?;
        let span = Span::enter(Work::Checkpoint);
        // The database's path may be relative and resolved long ago, and the process may have
        // changed its directory since.
        let target = &*retry("find", target, || self.shared.fs.absolute(target))?;
        retry("create directory", target, || self.shared.fs.create_dir_all(target))?;
        let entries = retry("list", target, || self.shared.fs.list(target))?;
        if !entries.is_empty() {
            return Err(Error::InvalidArgument(
                format!("{} is not empty: a checkpoint needs a new directory", target.display())
                    .into(),
            ));
        }
        let (content, _) = self.flushed_content()?;
        let mut made = Vec::new();
        let written = self
            .place_tables(&content.state, target, &mut made)
            .and_then(|()| self.write_manifest(&content, target));
        if written.is_err() {
            // Existing files are not touched; the caller may try an empty directory again.
            made.iter().for_each(|path| self.shared.remove_file(path));
            let _ = sync_dir(&*self.shared.fs, target);
        }
        written.inspect(|()| span.report(&Event::Checkpointed { files: made.len() as u64 }))
    }

    /// Flushes the database, and returns the contents of a copy of it, and the identity of this
    /// database.
    ///
    /// The copy is the state of one moment: no keyspace is changed as a whole in it without the
    /// writes before that. So if a keyspace was changed since the flush began, there is another,
    /// and in the end one during which all writers wait.
    pub(super) fn flushed_content(&self) -> Result<(Content, u64)> {
        for _ in 0..FLUSHES_MAX {
            let flushed = self.writer.visible_seq();
            self.flush()?;
            if let Some(found) = self.content_if_flushed(flushed) {
                return Ok(found);
            }
        }
        let mut state = self.lock_write();
        self.shared.check_running()?;
        self.seal(&mut state)?;
        self.wait_for_sealed(0)?;
        let last = state.next_seq - 1;
        let lost = || Error::Internal("a keyspace was changed under the write lock".into());
        self.content_if_flushed(last).ok_or_else(lost)
    }

    /// The contents of a copy, and the identity of this database; `None` if a keyspace was changed
    /// as a whole after the write numbered `flushed`, up to which all is in tables.
    ///
    /// The copy has an identity of its own: it gives its files the same numbers as this database
    /// gives its next ones, and after a power cut an unsynced log may show what a removed file left
    /// on the disk. Only the identity tells one log from the other.
    fn content_if_flushed(&self, flushed: SeqNo) -> Option<(Content, u64)> {
        // While the catalog is held, the levels are those of its state.
        let catalog = self.lock_catalog();
        // planted: changes-copy-of-one-moment
        if catalog.state.last_event() > flushed {
            return None;
        }
        let content = Content {
            state: catalog.state.clone().with_new_identity(),
            _tables: self.trees.lock().live().map(|tree| tree.levels.get()).collect(),
            manifest: self.shared.new_file_id(),
            segment: self.shared.next_file.load(Ordering::Relaxed),
        };
        Some((content, catalog.state.identity))
    }

    /// Links or copies the files of all tables to `target`, and adds their paths to `made`.
    fn place_tables(
        &self,
        state: &CatalogState,
        target: &Path,
        made: &mut Vec<PathBuf>,
    ) -> Result<()> {
        self.files_of(state).into_iter().try_for_each(|from| {
            let to = target.join(from.file_name().unwrap_or_default());
            self.place_file(&from, to, made)
        })
    }

    /// The files of all tables.
    pub(super) fn files_of(&self, state: &CatalogState) -> Vec<PathBuf> {
        let (dir, mut shared, mut files) = (&self.shared.dir, HashSet::new(), Vec::new());
        for meta in state.tables() {
            // A file that several tables share is one.
            if meta.place.is_none_or(|place| shared.insert(place.file)) {
                files.push(home_path(dir, meta));
            }
            if meta.value_file_bytes > 0 {
                files.push(value_path(dir, meta.id));
            }
        }
        files
    }

    /// Gives a file a second name. Copies it if the file system has no hard links or refuses this
    /// one: the target is on another file system, or the file has as many links as it may.
    fn place_file(&self, from: &Path, to: PathBuf, made: &mut Vec<PathBuf>) -> Result<()> {
        let linked = retry("link", &to, || self.shared.fs.hard_link(from, &to));
        match linked {
            Ok(()) => {
                made.push(to);
                Ok(())
            }
            Err(Error::Io(e)) if is_refused(e.source.kind()) => self.copy_file(from, to, made),
            Err(error) => Err(error),
        }
    }

    fn copy_file(&self, from: &Path, to: PathBuf, made: &mut Vec<PathBuf>) -> Result<()> {
        made.push(to.clone());
        copy(&*self.shared.fs, from, &to)
    }

    /// Makes a durable database of the files in `target`.
    fn write_manifest(&self, content: &Content, target: &Path) -> Result<()> {
        let (manifest, records) = (content.manifest, content.records());
        let parent = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let created = Manifest::create(&*self.shared.fs, target, manifest, &records)
            .and_then(|_| sync_dir(&*self.shared.fs, parent).map(drop));
        if created.is_err() {
            remove_created(&*self.shared.fs, target, manifest);
        }
        created
    }
}

/// Returns true for errors that mean that a hard link is impossible, but a copy is not.
fn is_refused(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::CrossesDevices
            | ErrorKind::PermissionDenied
            | ErrorKind::TooManyLinks
            | ErrorKind::Unsupported
    )
}
