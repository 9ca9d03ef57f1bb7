//! The directories in which runs make their stores: each is removed with the run, also where a
//! signal ends it.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use anyhow::{Context, Result};
use tempfile::TempDir;

/// Those of this process.
static ALL: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// How often the removal of a directory is tried in which a store still writes, and how long it
/// waits in between: a second in all.
const TRIES: u32 = 20;
/// See [`TRIES`].
const PAUSE: Duration = Duration::from_millis(50);

/// The directory of a run, which is removed with all stores in it.
pub(crate) struct Workspace(TempDir);

impl Workspace {
    /// A new directory, in `parent` or where the system has such.
    pub(crate) fn create(parent: Option<&Path>) -> Result<Self> {
        let mut builder = tempfile::Builder::new();
        let builder = builder.prefix("rhumb-bench-");
        let directory = match parent {
            Some(parent) => {
                std::fs::create_dir_all(parent)
                    .with_context(|| format!("cannot create {}", parent.display()))?;
                builder.tempdir_in(parent)
            }
            None => builder.tempdir(),
        };
        let directory = directory.context("cannot create a directory for the stores")?;
        all().push(directory.path().to_owned());
        Ok(Self(directory))
    }

    /// The directory of one store.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// An empty directory in place of whatever `path` is.
    pub(crate) fn empty(path: &Path) -> Result<()> {
        Self::remove(path)?;
        std::fs::create_dir_all(path).with_context(|| format!("cannot create {}", path.display()))
    }

    /// Removes what `path` is, if anything.
    pub(crate) fn remove(path: &Path) -> Result<()> {
        remove(path).with_context(|| format!("cannot remove {}", path.display()))
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        all().retain(|path| path != self.0.path());
    }
}

fn all() -> std::sync::MutexGuard<'static, Vec<PathBuf>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes the directories of all runs of this process, which is about to end though they are not
/// over.
///
/// # Errors
/// If one of them cannot be removed.
pub fn remove_all() -> Result<()> {
    // The lock is kept, so that no run makes another one.
    for path in &*all() {
        let mut tries = 1;
        while let Err(error) = remove(path) {
            // A store may have made a file meanwhile.
            if tries == TRIES {
                return Err(error).with_context(|| format!("cannot remove {}", path.display()));
            }
            tries += 1;
            thread::sleep(PAUSE);
        }
    }
    Ok(())
}
