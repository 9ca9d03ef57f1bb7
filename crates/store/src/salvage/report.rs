//! What a salvage brought across, and what it did not.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use crate::inspect::Problem;

/// The largest number of losses that are listed; more are counted. Each takes some 200 bytes.
const LOSSES_MAX: usize = 1 << 20;

/// What was known of the manifest of a store that was salvaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ManifestFound {
    /// All of it: nothing that was dropped or replaced comes back.
    Whole,
    /// A part of it. Tables that this part does not name were salvaged too.
    Part,
    /// Nothing: all files were salvaged.
    Nothing,
}

/// A keyspace that a salvage wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SalvagedKeyspace {
    /// Its name.
    pub name: String,
    /// False if its name was lost: it is called after the number of its LSM tree (`tree-7`), or of
    /// the table in which its entries were found (`table-12`).
    pub has_own_name: bool,
    /// The number of its entries.
    pub entries: u64,
}

/// Bytes of a damaged store that held entries, or may have held some, and are lost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loss {
    /// The file.
    pub path: PathBuf,
    /// Where in the file the lost bytes begin.
    pub offset: u64,
    /// Their number; 0 if it is not known.
    pub bytes: u64,
    /// The keyspace that the entries were of, under the name that it has in the new database;
    /// `None` if that is not known.
    pub keyspace: Option<String>,
    /// No lost key is smaller than this, if it is known.
    pub from: Option<Vec<u8>>,
    /// No lost key is larger than this, if it is known.
    pub to: Option<Vec<u8>>,
    /// A description of what was there.
    pub what: String,
}

impl Loss {
    pub(super) fn new(path: &Path, offset: u64, bytes: u64, what: impl Into<String>) -> Self {
        let (keyspace, from, to) = (None, None, None);
        Self { path: path.to_owned(), offset, bytes, keyspace, from, to, what: what.into() }
    }

    pub(super) fn of_keyspace(self, keyspace: &str) -> Self {
        Self { keyspace: Some(keyspace.to_owned()), ..self }
    }

    pub(super) fn between(self, from: Option<&[u8]>, to: Option<&[u8]>) -> Self {
        Self { from: from.map(<[u8]>::to_vec), to: to.map(<[u8]>::to_vec), ..self }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        match self.bytes {
            0 => write!(f, "from offset {} on: ", self.offset)?,
            bytes => write!(f, "{bytes} bytes at offset {}: ", self.offset)?,
        }
        f.write_str(&self.what)?;
        if let Some(keyspace) = &self.keyspace {
            write!(f, ", of keyspace {keyspace:?}")?;
        }
        if let Some(from) = &self.from {
            write!(f, ", from key \"{}\"", from.escape_ascii())?;
        }
        if let Some(to) = &self.to {
            write!(f, ", to key \"{}\"", to.escape_ascii())?;
        }
        Ok(())
    }
}

/// What [`salvage`](crate::salvage()) brought across, and what was lost.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SalvageReport {
    /// What was known of the manifest.
    pub manifest: ManifestFound,
    /// The keyspaces of the new database, in the order of their names.
    pub keyspaces: Vec<SalvagedKeyspace>,
    /// The number of tables that were read.
    pub tables: u64,
    /// The number of log records that were read.
    pub log_records: u64,
    /// What was lost, up to a million of them.
    pub losses: Vec<Loss>,
    /// The number of further losses, which are not listed.
    pub losses_unlisted: u64,
    /// Damage that cost no entry, and what else there is to say.
    pub notes: Vec<Problem>,
}

impl SalvageReport {
    pub(super) fn new(manifest: ManifestFound) -> Self {
        Self {
            manifest,
            keyspaces: Vec::new(),
            tables: 0,
            log_records: 0,
            losses: Vec::new(),
            losses_unlisted: 0,
            notes: Vec::new(),
        }
    }

    /// Returns true if nothing was lost, as far as anybody can tell.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.losses.is_empty() && self.manifest == ManifestFound::Whole
    }

    /// The number of entries of all keyspaces.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.keyspaces.iter().map(|keyspace| keyspace.entries).sum()
    }

    pub(super) fn lose(&mut self, loss: Loss) {
        if self.losses.len() < LOSSES_MAX {
            self.losses.push(loss);
        } else {
            self.losses_unlisted += 1;
        }
    }

    pub(super) fn note(&mut self, path: &Path, offset: Option<u64>, what: impl Into<String>) {
        self.notes.push(Problem { path: path.to_owned(), offset, what: what.into() });
    }
}
