//! Named cursors: files that say how far a reader of changes has come, so that the log is kept from
//! there on. `docs/format/cursor.md` has the bytes.
//!
//! A cursor is written by its owner and read by the process that writes the database, which may be
//! another one. So it is replaced as a whole, by a rename.

use std::{fmt, path::Path};

use rhumb_sync::primitive::Arc;
use xxhash_rust::xxh3::xxh3_64;

use super::super::{Database, Handle};
use crate::{
    error::{Error, Result},
    io::{FileSystem, ReadMode, read_exact_at, retry, sync_dir, write_new},
    types::SeqNo,
};

/// How the names of cursors' files end.
const ENDING: &str = ".cursor";

/// How the name of a file ends that is not whole yet.
const TEMPORARY_ENDING: &str = ".cursor.tmp";

/// The most bytes of a name: a file's name has at most 255.
const NAME_BYTES_MAX: usize = 64;

/// The length of a cursor's file is at most this.
const FILE_BYTES_MAX: u64 = 256;

/// A cursor, as its file states it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CursorInfo {
    /// Its name.
    pub name: String,
    /// The sequence number of the next change that its reader wants.
    pub position: u64,
    /// The most bytes of the log that are kept for it.
    pub keep_bytes: u64,
}

/// A named cursor of a database; [`Database::cursor`] returns it. It keeps the database open.
pub struct Cursor {
    handle: Arc<Handle>,
    info: CursorInfo,
}

impl Database {
    /// Opens the cursor `name`, or makes it, at the next write. From its position on the log is
    /// kept, over restarts too, until the cursor [is advanced](Cursor::advance) or
    /// [removed](Database::remove_cursor): up to `keep_bytes` bytes beside what is kept anyway.
    /// Beyond that the oldest part of the log goes, and a stream from the cursor's position fails
    /// with [`Error::Lagged`]: a reader that is gone does not fill the disk. While there are
    /// cursors, a segment of the log is synced when the next one begins.
    ///
    /// This works beside the process that writes too, on a database that is [open for reading
    /// only](crate::DatabaseBuilder::open_read_only): a cursor is a small file in the database's
    /// directory. One reader at a time should use a name.
    ///
    /// ```
    /// # fn main() -> rhumb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// use rhumb::{Database, KeyspaceOptions};
    ///
    /// let db = Database::open(dir.path().join("db"))?;
    /// let mut cursor = db.cursor("search index", 1 << 30)?;
    /// db.keyspace("users", KeyspaceOptions::default())?.insert("ada", "1815")?;
    /// let mut changes = db.changes(cursor.position())?;
    /// while let Some(commit) = changes.try_next()? {
    ///     // ... and once what it says is safe elsewhere:
    ///     cursor.advance(commit.last_seq() + 1)?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a name that is empty, longer than 64 bytes, begins with a
    /// point or has other characters than letters, digits, spaces, `-`, `_` and `.`;
    /// [`Error::Corrupt`] if the cursor's file is damaged; [`Error::Io`].
    pub fn cursor(&self, name: &str, keep_bytes: u64) -> Result<Cursor> {
        check_name(name)?;
        let core = self.core();
        core.shared.check_process()?;
        let (fs, dir) = (&core.shared.cursor_fs, &core.shared.dir);
        let before = read(&**fs, dir, name)?;
        core.writer.keeper.note_cursor();
        let position =
            before.as_ref().map_or_else(|| core.writer.visible_seq() + 1, |it| it.position);
        let info = CursorInfo { name: name.to_owned(), position, keep_bytes };
        if before.as_ref() != Some(&info) {
            write(&**fs, dir, &info)?;
        }
        Ok(Cursor { handle: Arc::clone(&self.handle), info })
    }

    /// The cursors, in the order of their names. Files that are damaged are left out: they keep
    /// nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn cursors(&self) -> Result<Vec<CursorInfo>> {
        all(&self.core().shared.fs, &self.core().shared.dir)
    }

    /// Removes the cursor `name`: the log is not kept for it any more. Returns false if there was
    /// none.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a name that no cursor can have; [`Error::Io`].
    pub fn remove_cursor(&self, name: &str) -> Result<bool> {
        check_name(name)?;
        let (fs, dir) = (&self.core().shared.cursor_fs, &self.core().shared.dir);
        let path = dir.join(format!("{name}{ENDING}"));
        match retry("remove", &path, || fs.remove_file(&path)) {
            Err(error) if error.is_missing() => return Ok(false),
            other => other?,
        }
        sync_dir(&**fs, dir)?;
        Ok(true)
    }
}

impl Cursor {
    /// The sequence number of the next change that its reader wants.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.info.position
    }

    /// Moves the cursor, durably: changes before the sequence number `position` are not needed any
    /// more. It never goes back. Costs two syncs, so call it for many commits together; what is
    /// read again after a crash is what followed the last call.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]; the cursor is then where it was.
    pub fn advance(&mut self, position: u64) -> Result<()> {
        if position > self.info.position {
            let info = CursorInfo { position, ..self.info.clone() };
            let shared = &self.handle.core.shared;
            write(&*shared.cursor_fs, &shared.dir, &info)?;
            self.info = info;
        }
        Ok(())
    }
}

/// All cursors in `dir` whose files are whole, in the order of their names.
pub(super) fn all(fs: &Arc<dyn FileSystem>, dir: &Path) -> Result<Vec<CursorInfo>> {
    let mut names: Vec<String> = retry("list", dir, || fs.list(dir))?
        .into_iter()
        .filter_map(|file| file.strip_suffix(ENDING).map(str::to_owned))
        .filter(|name| check_name(name).is_ok())
        .collect();
    names.sort_unstable();
    let mut cursors = Vec::with_capacity(names.len());
    for name in names {
        match read(&**fs, dir, &name) {
            Ok(found) => cursors.extend(found),
            Err(error) if error.is_corruption() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(cursors)
}

fn check_name(name: &str) -> Result<()> {
    let is_plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b' ' | b'-' | b'_' | b'.');
    let has_length = (1..=NAME_BYTES_MAX).contains(&name.len());
    if has_length && !name.starts_with('.') && name.bytes().all(is_plain) {
        return Ok(());
    }
    let what = format!(
        "the name of a cursor has 1 to {NAME_BYTES_MAX} letters, digits, spaces, or any of \"-_.\", \
         the last not first: {name:?}"
    );
    Err(Error::InvalidArgument(what.into()))
}

/// Replaces a cursor's file, durably.
fn write(fs: &dyn FileSystem, dir: &Path, info: &CursorInfo) -> Result<()> {
    let from = dir.join(format!("{}{TEMPORARY_ENDING}", info.name));
    let to = dir.join(format!("{}{ENDING}", info.name));
    write_new(fs, &from, &encode(info.position, info.keep_bytes))?;
    retry("rename", &from, || fs.rename(&from, &to))?;
    sync_dir(fs, dir).map(drop)
}

/// Reads a cursor; `None` if there is none.
fn read(fs: &dyn FileSystem, dir: &Path, name: &str) -> Result<Option<CursorInfo>> {
    let path = dir.join(format!("{name}{ENDING}"));
    let file = match retry("open", &path, || fs.open(&path, ReadMode::Buffered)) {
        Err(error) if error.is_missing() => return Ok(None),
        other => other?,
    };
    let len = retry("read the length of", &path, || file.len())?;
    let mut bytes = vec![0; len.min(FILE_BYTES_MAX) as usize];
    read_exact_at(&*file, &path, &mut bytes, 0)?;
    let Some((position, keep_bytes)) = decode(&bytes) else {
        return Err(Error::corrupt(path, 0, "the line of a cursor", "something else"));
    };
    Ok(Some(CursorInfo { name: name.to_owned(), position, keep_bytes }))
}

fn encode(position: SeqNo, keep_bytes: u64) -> Vec<u8> {
    let line = format!("RHUMBCURSOR 1 {position:016x} {keep_bytes:016x}");
    format!("{line} {:016x}\n", xxh3_64(line.as_bytes())).into_bytes()
}

/// Accepts only what [`encode`] writes.
fn decode(bytes: &[u8]) -> Option<(SeqNo, u64)> {
    let mut words = std::str::from_utf8(bytes).ok()?.split(' ').skip(2);
    let position = u64::from_str_radix(words.next()?, 16).ok()?;
    let keep_bytes = u64::from_str_radix(words.next()?, 16).ok()?;
    (encode(position, keep_bytes) == bytes).then_some((position, keep_bytes))
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor").field("info", &self.info).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let line = b"RHUMBCURSOR 1 0000000000000007 0000000040000000 ";
        let bytes = encode(7, 1 << 30);
        assert_eq!(&bytes[..line.len()], line);
        assert_eq!(decode(&bytes), Some((7, 1 << 30)));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(decode(&damaged), None, "byte {at}");
            assert_eq!(decode(&bytes[..at]), None);
        }
    }

    #[test]
    fn names_are_those_of_files() {
        for good in ["a", "search index", "a-b_c.d", &"x".repeat(64)] {
            check_name(good).unwrap();
        }
        for bad in ["", ".a", "a/b", "..", "\u{e9}", "a\n", &"x".repeat(65)] {
            check_name(bad).unwrap_err();
        }
    }
}
