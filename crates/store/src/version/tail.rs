//! Reads a manifest that another process may be appending to, or replacing.
//!
//! [`ManifestTail::read_on`] takes what was appended since, or all of the manifest that `CURRENT`
//! names by now. What it relies on of the writer: `CURRENT` is replaced by a rename, so it is
//! always whole; the manifest that it names is durable by then, and the one before is removed only
//! afterwards; a manifest only grows. A record that is not whole yet is not there yet, unless the
//! manifest says that it was durable: that is damage, as in [`super::manifest::read_manifest`].
//!
//! Nothing is written.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    edit::VersionEdit,
    format::{MANIFEST_HEADER_BYTES, decode_header},
    manifest::{manifest_path, read_current, refuse_without_current},
    state::CatalogState,
};
use crate::{
    error::{Error, NO_FILE, Result},
    io::{FileSystem, retry},
    log::{
        frame::FrameSeed,
        reader::{FrameFault, FrameRead, FrameReader},
    },
    types::FileId,
};

/// The number of times that a manifest may be replaced before it could be opened. A writer replaces
/// one after 4 MiB of edits, or after a failure.
const REPLACED_MAX: u32 = 100;

/// The manifest that counts, read to its end.
pub(crate) struct ManifestTail {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    id: FileId,
    path: PathBuf,
    reader: FrameReader,
    /// The end of the last record that was read.
    offset: u64,
    /// Bytes of the file that are known to have been durable.
    durable: u64,
    state: CatalogState,
}

impl ManifestTail {
    /// Reads the manifest that counts. `None` if there is no database in `dir`.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`], [`Error::Io`].
    pub(crate) fn open(fs: &Arc<dyn FileSystem>, dir: &Path) -> Result<Option<Self>> {
        let mut missing = None;
        for _ in 0..REPLACED_MAX {
            let Some(current) = read_current(&**fs, dir)? else {
                refuse_without_current(dir, &retry("list", dir, || fs.list(dir))?)?;
                return Ok(None);
            };
            let path = manifest_path(dir, current.id);
            let reader = match FrameReader::open(&**fs, &path, FrameSeed::new(0, 0)) {
                Ok(reader) => reader,
                // It was replaced since, or it is lost.
                Err(error) if error.is_missing() && missing != Some(current.id) => {
                    missing = Some(current.id);
                    continue;
                }
                Err(error) => return Err(error.or_missing("the manifest that CURRENT names")),
            };
            let mut tail = Self {
                fs: Arc::clone(fs),
                dir: dir.to_owned(),
                id: current.id,
                path,
                reader,
                offset: MANIFEST_HEADER_BYTES as u64,
                durable: current.durable_bytes,
                state: CatalogState::blank(),
            };
            tail.read_header()?;
            tail.read_records()?;
            return Ok(Some(tail));
        }
        let what = format!("the manifest in {} was replaced all the time", dir.display());
        Err(Error::Exhausted(what.into()))
    }

    /// The catalog that the records add up to.
    pub(crate) fn state(&self) -> &CatalogState {
        &self.state
    }

    /// The manifest's number.
    pub(crate) fn id(&self) -> FileId {
        self.id
    }

    /// Reads what was written since. Returns true if there was something. Costs a read of `CURRENT`
    /// and a look at the manifest's length if there was nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`], [`Error::Io`]. The next call tries again.
    pub(crate) fn read_on(&mut self) -> Result<bool> {
        let current = read_current(&*self.fs, &self.dir)?;
        if current.is_some_and(|current| current.id == self.id) {
            if self.reader.refresh()? == self.offset {
                return Ok(false);
            }
            return self.read_records();
        }
        let Some(next) = Self::open(&self.fs, &self.dir)? else {
            let path = self.dir.join(super::manifest::CURRENT_NAME);
            return Err(Error::corrupt(path, 0, "the name of a manifest", NO_FILE));
        };
        *self = next;
        Ok(true)
    }

    fn read_header(&mut self) -> Result<()> {
        let header = self.reader.bytes(0, MANIFEST_HEADER_BYTES)?.to_vec();
        let (id, identity) = decode_header(&self.path, &header)?;
        if id != self.id {
            let found = format!("the header of manifest {id}");
            return Err(Error::corrupt(&self.path, 0, "the header of this manifest", found));
        }
        self.reader.set_seed(FrameSeed::new(identity, id));
        Ok(())
    }

    /// Applies all whole records from `offset` on. Returns true if there was an edit.
    fn read_records(&mut self) -> Result<bool> {
        let mut is_changed = false;
        let found = loop {
            let offset = self.offset;
            match self.reader.frame_at(offset)? {
                FrameRead::End => break "the end of the file".to_owned(),
                FrameRead::Fault(fault) => {
                    let is_at_end =
                        matches!(fault, FrameFault::ShortHeader | FrameFault::ShortPayload(_));
                    if !is_at_end {
                        let claim = self.reader.furthest_claim(offset, Some(0))?;
                        self.durable = self.durable.max(claim);
                    }
                    break fault.describe();
                }
                FrameRead::Frame(header, payload) => {
                    if !header.is_mark() {
                        self.apply(&payload)?;
                        is_changed = true;
                    }
                    self.offset += header.frame_bytes();
                }
            }
        };
        if self.durable > self.offset {
            let expected =
                format!("a whole record, as the first {} bytes were durable", self.durable);
            return Err(Error::corrupt(&self.path, self.offset, expected, found));
        }
        Ok(is_changed)
    }

    fn apply(&mut self, payload: &[u8]) -> Result<()> {
        let edit = VersionEdit::decode(payload).map_err(|fault| {
            let found = format!("something else at byte {} of it", fault.offset);
            Error::corrupt(&self.path, self.offset, fault.expected, found)
        })?;
        self.state.apply(&edit).map_err(|found| {
            Error::corrupt(&self.path, self.offset, "edits that fit those before them", found)
        })
    }
}
