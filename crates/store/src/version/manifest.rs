//! The manifest: a file of checksummed edits that says which tables make up the database.
//!
//! `CURRENT` names the manifest that counts; it is switched by a rename. Every record is synced
//! before it counts, so at most the last one can be torn, and anything else that is not whole is
//! damage. After a failed append it is unknown whether the record will survive a crash, so the
//! manifest takes no more: the caller goes on in a new one, with a snapshot. The bytes and the rule
//! are in `docs/format/manifest.md`.
//!
//! No locks, and no files other than manifests and `CURRENT`. The caller removes old manifests
//! after the new one was created.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    edit::{Edit, VersionEdit},
    format::{
        CURRENT_BYTES_MAX, Current, MANIFEST_HEADER_BYTES, decode_header, encode_header,
        push_frame, push_frame_at,
    },
    state::CatalogState,
};
use crate::{
    error::{Error, NO_FILE, Result},
    io::{
        FileSystem, ReadMode, WritableFile, read_exact_at, read_only::NoFile, retry, sync_dir,
        write_all, write_new,
    },
    log::{
        frame::FrameSeed,
        reader::{FrameRead, FrameReader},
    },
    types::FileId,
};

/// The file that names the manifest that counts.
pub(crate) const CURRENT_NAME: &str = "CURRENT";

/// The name of `CURRENT` until it is whole.
const CURRENT_TEMPORARY_NAME: &str = "CURRENT.tmp";

/// Edits of fewer bytes than this are never worth a new manifest: reading them at opening takes
/// some milliseconds, and a switch takes four syncs.
const EDIT_BYTES_MIN: u64 = 4 << 20;

/// The manifest that counts, open for appending.
pub(crate) struct Manifest {
    path: PathBuf,
    file: Box<dyn WritableFile>,
    seed: FrameSeed,
    /// The length of the snapshot that the file begins with.
    snapshot_bytes: u64,
    /// The length of the file.
    bytes: u64,
    /// The number of its bytes that are durable.
    durable_bytes: u64,
    broken: Option<Error>,
    /// True if the last record was written and it is unknown whether it is durable.
    undecided: bool,
    /// True if the file system can make the entries of directories durable.
    has_dir_sync: bool,
}

impl Manifest {
    /// Creates the manifest `id` with the records `snapshot`, and makes it the one that counts.
    ///
    /// After a failure it is unknown which manifest counts. Nothing may then be appended to the old
    /// one and neither may be removed; call again with another `id`. A leftover of this name from
    /// an earlier failure is replaced, unless `CURRENT` names it.
    pub(crate) fn create(
        fs: &dyn FileSystem,
        dir: &Path,
        id: FileId,
        snapshot: &[VersionEdit],
    ) -> Result<Self> {
        let path = manifest_path(dir, id);
        if read_current(fs, dir)?.is_some_and(|current| current.id == id) {
            return Err(Error::Internal(
                format!("{} is the manifest already", path.display()).into(),
            ));
        }
        let identity = snapshot.iter().flat_map(|edit| &edit.edits).find_map(|edit| match edit {
            Edit::Identity { identity } => Some(*identity),
            _ => None,
        });
        let seed = FrameSeed::new(identity.unwrap_or(0), id);
        let mut bytes = encode_header(id, identity.unwrap_or(0)).to_vec();
        for edit in snapshot {
            push_frame(&mut bytes, seed, 0, &edit.encode())?;
        }
        let file = write_new(fs, &path, &bytes)?;
        let durable_bytes = bytes.len() as u64;
        let current = Current { id, durable_bytes };
        write_new(fs, &dir.join(CURRENT_TEMPORARY_NAME), &current.encode())?;
        // The name of the manifest must be durable before CURRENT refers to it.
        sync_dir(fs, dir)?;
        let (from, to) = (dir.join(CURRENT_TEMPORARY_NAME), dir.join(CURRENT_NAME));
        retry("rename", &from, || fs.rename(&from, &to))?;
        let has_dir_sync = sync_dir(fs, dir)?;
        Ok(Self {
            path,
            file,
            seed,
            snapshot_bytes: durable_bytes,
            bytes: durable_bytes,
            durable_bytes,
            broken: None,
            undecided: false,
            has_dir_sync,
        })
    }

    /// The manifest `id` of a database that is open read-only: it takes no records.
    pub(crate) fn read_only(dir: &Path, id: FileId, cause: Error) -> Self {
        Self {
            path: manifest_path(dir, id),
            file: Box::new(NoFile),
            seed: FrameSeed::new(0, id),
            snapshot_bytes: 0,
            bytes: 0,
            durable_bytes: 0,
            broken: Some(cause),
            undecided: false,
            has_dir_sync: true,
        }
    }

    /// Appends one record and makes it durable.
    ///
    /// After a failure it is unknown whether the record will survive a crash, and the manifest is
    /// broken: it takes no more. Files that the record refers to must stay until a new manifest was
    /// created.
    pub(crate) fn append(&mut self, edit: &VersionEdit) -> Result<()> {
        if let Some(cause) = &self.broken {
            return Err(Error::WritesStopped(Arc::new(cause.clone())));
        }
        let payload = edit.encode();
        // This stays if the thread unwinds: nothing may follow a half-written record.
        self.broken = Some(Error::Internal("a thread panicked in an edit of the manifest".into()));
        let outcome = self.append_durably(&payload);
        self.broken = match &outcome {
            Err(cause) => Some(cause.clone()),
            // The record is durable all the same; but no other may follow a half-written mark.
            Ok(()) => self.mark().err(),
        };
        outcome
    }

    fn append_durably(&mut self, payload: &[u8]) -> Result<()> {
        self.write_frame(payload)?;
        self.undecided = true;
        retry("fdatasync", &self.path, || self.file.sync_data())?;
        // A record in a file that cannot be found again does not count.
        retry("append to", &self.path, || self.file.syncer().check_name())?;
        self.undecided = false;
        self.durable_bytes = self.bytes;
        Ok(())
    }

    /// Records that the last record is durable, so that damage to it is not taken for a torn
    /// record.
    fn mark(&mut self) -> Result<()> {
        self.write_frame(&[])
    }

    fn write_frame(&mut self, payload: &[u8]) -> Result<()> {
        let mut frame = Vec::new();
        push_frame_at(&mut frame, self.bytes, self.seed, self.durable_bytes, payload)?;
        write_all(self.file.as_mut(), &self.path, &frame)?;
        self.bytes += frame.len() as u64;
        Ok(())
    }

    /// Returns true if the manifest takes no more records.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Returns true if the record whose append failed may survive a crash.
    pub(crate) fn is_undecided(&self) -> bool {
        self.undecided
    }

    /// Returns false if the file system has no sync of directories.
    pub(crate) fn has_dir_sync(&self) -> bool {
        self.has_dir_sync
    }

    /// Bytes of the file.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns true if the edits since the file's snapshot have outgrown it, so that a new
    /// manifest, with a new snapshot, is worth writing.
    ///
    /// The bound is relative to the snapshot: with a bound of fixed size, a large catalog would be
    /// written anew at every edit. So all snapshots ever written together are smaller than the
    /// edits and the last snapshot, and reading a manifest costs at most twice its snapshot and
    /// [`EDIT_BYTES_MIN`].
    pub(crate) fn is_outgrown(&self) -> bool {
        self.bytes - self.snapshot_bytes > self.snapshot_bytes.max(EDIT_BYTES_MIN)
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The number of the manifest that counts.
    pub(crate) fn current(fs: &dyn FileSystem, dir: &Path) -> Result<FileId> {
        let none = || Error::corrupt(dir.join(CURRENT_NAME), 0, "the name of a manifest", NO_FILE);
        Ok(read_current(fs, dir)?.ok_or_else(none)?.id)
    }

    /// Reads the manifest that counts. `None` if there is no database in `dir`: the directory is
    /// empty, or has only what an interrupted creation leaves.
    pub(crate) fn recover(fs: &dyn FileSystem, dir: &Path) -> Result<Option<Recovered>> {
        let Some(current) = read_current(fs, dir)? else {
            refuse_without_current(dir, &retry("list", dir, || fs.list(dir))?)?;
            return Ok(None);
        };
        let path = manifest_path(dir, current.id);
        let mut state = CatalogState::blank();
        read_manifest(fs, &path, current.durable_bytes, |record| {
            state.apply(&record.edit).map_err(|found| {
                Error::corrupt(&path, record.offset, "edits that fit those before them", found)
            })
        })?;
        Ok(Some(Recovered { id: current.id, state }))
    }
}

/// Removes what [`Manifest::create`] makes, in a directory that was empty before and is not to be a
/// database after all.
pub(crate) fn remove_created(fs: &dyn FileSystem, dir: &Path, id: FileId) {
    // The file that makes it a database is removed first.
    for path in [dir.join(CURRENT_NAME), dir.join(CURRENT_TEMPORARY_NAME), manifest_path(dir, id)] {
        let _ = fs.remove_file(&path);
    }
}

/// The contents of a manifest.
#[derive(Debug)]
pub(crate) struct Recovered {
    /// The manifest's number.
    pub(crate) id: FileId,
    /// The catalog that its records add up to.
    pub(crate) state: CatalogState,
}

/// One record of a manifest.
#[derive(Debug)]
pub(crate) struct ManifestRecord {
    /// Its offset in the file.
    pub(crate) offset: u64,
    /// Its bytes, header included.
    pub(crate) bytes: u64,
    /// The edit that it holds.
    pub(crate) edit: VersionEdit,
}

/// Calls `each` with every record of the manifest at `path`, in order, and returns where a torn
/// last record was ignored, if one was. The first `durable_bytes` are known to have been durable.
pub(crate) fn read_manifest(
    fs: &dyn FileSystem,
    path: &Path,
    durable_bytes: u64,
    mut each: impl FnMut(ManifestRecord) -> Result<()>,
) -> Result<Option<u64>> {
    let mut reader = FrameReader::open(fs, path, FrameSeed::new(0, 0))
        .map_err(|error| error.or_missing("the manifest that CURRENT names"))?;
    let header = reader.bytes(0, MANIFEST_HEADER_BYTES)?.to_vec();
    let (id, identity) = decode_header(path, &header)?;
    if manifest_path(Path::new(""), id).file_name() != path.file_name() {
        let found = format!("the header of manifest {id}");
        return Err(Error::corrupt(path, 0, "the header of this manifest", found));
    }
    reader.set_seed(FrameSeed::new(identity, id));
    let mut offset = MANIFEST_HEADER_BYTES as u64;
    let (mut durable, mut torn) = (durable_bytes, None);
    let found = loop {
        match reader.frame_at(offset)? {
            FrameRead::End => break "the end of the file".to_owned(),
            FrameRead::Fault(fault) => {
                durable = durable.max(reader.furthest_claim(offset, Some(0))?);
                torn = Some(offset);
                break fault.describe();
            }
            FrameRead::Frame(header, payload) => {
                if !header.is_mark() {
                    let edit = VersionEdit::decode(&payload).map_err(|fault| {
                        let found = format!("something else at byte {} of it", fault.offset);
                        Error::corrupt(path, offset, fault.expected, found)
                    })?;
                    each(ManifestRecord { offset, bytes: header.frame_bytes(), edit })?;
                }
                offset += header.frame_bytes();
            }
        }
    };
    if durable > offset {
        let expected = format!("a whole record, as the first {durable} bytes were durable");
        return Err(Error::corrupt(path, offset, expected, found));
    }
    Ok(torn)
}

/// The path of the manifest `id` in `dir`.
pub(crate) fn manifest_path(dir: &Path, id: FileId) -> PathBuf {
    dir.join(format!("MANIFEST-{id:06}"))
}

/// Reads `CURRENT`; `None` if there is none.
pub(super) fn read_current(fs: &dyn FileSystem, dir: &Path) -> Result<Option<Current>> {
    let path = dir.join(CURRENT_NAME);
    let file = match retry("open", &path, || fs.open(&path, ReadMode::Buffered)) {
        Err(error) if error.is_missing() => return Ok(None),
        other => other?,
    };
    let len = retry("read the length of", &path, || file.len())?;
    let mut bytes = vec![0; len.min(CURRENT_BYTES_MAX) as usize];
    read_exact_at(file.as_ref(), &path, &mut bytes, 0)?;
    Current::decode(&bytes).map(Some).ok_or_else(|| {
        let expected = "the name of a manifest, its length and their checksum";
        Error::corrupt(&path, 0, expected, format!("{:?}", bytes.escape_ascii().to_string()))
    })
}

/// Refuses a directory whose entries are `names` if it has files of a database and no `CURRENT`. A
/// creation makes `CURRENT` durable before anything but a manifest. So without it there is no
/// database yet, or it was lost.
pub(crate) fn refuse_without_current(dir: &Path, names: &[String]) -> Result<()> {
    let is_data = |name: &&String| {
        let Some((digits, "sst" | "set" | "val" | "log")) = name.split_once('.') else {
            return false;
        };
        digits.len() >= 6 && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    match names.iter().find(is_data) {
        None => Ok(()),
        Some(name) => Err(Error::corrupt(
            dir.join(CURRENT_NAME),
            0,
            format!("the name of a manifest, as there is {name}"),
            NO_FILE,
        )),
    }
}

impl std::fmt::Debug for Manifest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Manifest")
            .field("path", &self.path)
            .field("bytes", &self.bytes)
            .field("broken", &self.broken)
            .finish_non_exhaustive()
    }
}
