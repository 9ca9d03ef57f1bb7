//! Dumps: all entries of a database in a stream of bytes that depends on no file of it, and back.
//!
//! A dump is of one snapshot. It is written and read in memory that does not depend on its length;
//! every block has a checksum, and the last one says how much there was, so that a dump that was
//! cut off is noticed. `format.rs` has the bytes.

mod format;
mod read;
#[cfg(test)]
mod tests;

use std::{
    io::{Read, Write},
    path::Path,
};

use self::format::{
    BLOCK_BYTES, BlockHeader, BlockKind, Counts, Header, begin_entries, encode_keyspace,
    has_no_entries, may_put, put_entry,
};
use crate::{
    db::{Database, Expiry, Keyspace},
    error::{Error, Result},
    expiry::{Millis, millis_of},
    options::{KeyspaceOptions, PersistMode},
    types::Kind,
};

pub use read::{DumpItem, DumpReader};

/// How errors name a dump that is being written.
const NAME: &str = "the dump";

/// The number of bytes of entries that are committed together where a keyspace has entries already.
const BATCH_BYTES: usize = 1 << 20;

/// What a dump has, or what of it was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DumpSummary {
    /// The number of keyspaces.
    pub keyspaces: u64,
    /// The number of entries.
    pub entries: u64,
    /// The number of bytes of the dump that was written; 0 if it was read.
    pub bytes: u64,
}

/// Writes blocks.
struct DumpWriter<W> {
    out: W,
    previous: u64,
    counts: Counts,
    bytes: u64,
}

impl<W: Write> DumpWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(|error| Error::io("write", NAME, error))?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn block(&mut self, kind: BlockKind, payload: &[u8]) -> Result<()> {
        let header = BlockHeader::of(kind, payload, self.previous);
        self.previous = header.checksum;
        self.write(&header.encode())?;
        self.write(payload)
    }
}

/// A dump of blocks of these kinds, by their bytes, and payloads, with right checksums.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn framed(blocks: &[(u8, &[u8])]) -> Vec<u8> {
    let header = Header { seq: 0 }.encode();
    let mut writer =
        DumpWriter { out: header.to_vec(), previous: 0, counts: Counts::default(), bytes: 0 };
    writer.previous = Header::decode(&header).map_or(0, |(_, checksum)| checksum);
    for (kind, payload) in blocks {
        let kind = BlockKind::from_byte((kind % 3 + 2) % 3 + 1).unwrap_or(BlockKind::End);
        // It goes to memory.
        let _ = writer.block(kind, payload);
    }
    writer.out
}

impl Database {
    /// Writes a dump of all keyspaces, as they are at one moment, to `out`: names, options, and all
    /// entries in the order of their keys. [`Database::load`] brings them back, into any database.
    /// Writers go on meanwhile. Takes the memory of a block of 256 KiB, or of a longer entry.
    /// `docs/format/dump.md` describes the bytes.
    ///
    /// ```
    /// # fn main() -> rhumb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// use rhumb::{Database, KeyspaceOptions};
    ///
    /// let db = Database::open(dir.path().join("db"))?;
    /// db.keyspace("users", KeyspaceOptions::default())?.insert("ada", "1815")?;
    /// let mut dump = Vec::new();
    /// assert_eq!(db.dump(&mut dump)?.entries, 1);
    ///
    /// let other = Database::open(dir.path().join("other"))?;
    /// other.load(&dump[..])?;
    /// let users = other.keyspace("users", KeyspaceOptions::default())?;
    /// assert_eq!(users.get("ada")?.unwrap(), b"1815");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Io`], also if `out` refuses bytes; [`Error::Corrupt`] if a table is damaged;
    /// [`Error::KeyspaceDropped`] if a keyspace is dropped before it begins. What was written by
    /// then is no whole dump, and a reader refuses it.
    pub fn dump(&self, out: impl Write) -> Result<DumpSummary> {
        self.dump_keyspaces(&self.keyspace_names(), out)
    }

    /// [`Database::dump`] of some keyspaces, in this order.
    ///
    /// # Errors
    ///
    /// As [`Database::dump`]; [`Error::NotFound`] if there is no keyspace of a name.
    pub fn dump_keyspaces<N: AsRef<str>>(
        &self,
        names: &[N],
        out: impl Write,
    ) -> Result<DumpSummary> {
        let mut keyspaces = Vec::new();
        for name in names {
            let name = name.as_ref();
            if !self.has_keyspace(name) {
                let what = format!("there is no keyspace {name:?} in {}", self.path().display());
                return Err(Error::NotFound(what.into()));
            }
            keyspaces.push((name, self.keyspace(name, KeyspaceOptions::default())?));
        }
        let snapshot = self.snapshot();
        let header = Header { seq: snapshot.sequence_number() }.encode();
        let mut writer = DumpWriter { out, previous: 0, counts: Counts::default(), bytes: 0 };
        writer.previous = Header::decode(&header).map_or(0, |(_, checksum)| checksum);
        writer.write(&header)?;
        let mut payload = Vec::new();
        for (name, keyspace) in &keyspaces {
            writer.block(BlockKind::Keyspace, &encode_keyspace(name, &keyspace.options()))?;
            writer.counts.keyspaces += 1;
            begin_entries(&mut payload, false);
            let mut entries = snapshot.keyspace(keyspace)?.iter();
            while let Some(entry) = entries.next_stamped() {
                let (key, value, expires_ms) = entry?;
                let is_full = payload.len() >= BLOCK_BYTES || !may_put(&payload, expires_ms);
                if is_full && !has_no_entries(&payload) {
                    writer.block(BlockKind::Entries, &payload)?;
                }
                if is_full {
                    begin_entries(&mut payload, expires_ms.is_some());
                }
                put_entry(&mut payload, &key, &value, expires_ms);
                writer.counts.entries += 1;
            }
            if !has_no_entries(&payload) {
                writer.block(BlockKind::Entries, &payload)?;
            }
        }
        let Counts { keyspaces, entries } = writer.counts;
        writer.block(BlockKind::End, &writer.counts.encode())?;
        writer.out.flush().map_err(|error| Error::io("write", NAME, error))?;
        Ok(DumpSummary { keyspaces, entries, bytes: writer.bytes })
    }

    /// Brings all keyspaces of a dump into this database: [`Database::load_from`] of a dump without
    /// a name.
    ///
    /// # Errors
    ///
    /// As [`Database::load_from`].
    pub fn load(&self, dump: impl Read) -> Result<DumpSummary> {
        self.load_from(&mut DumpReader::new(dump, Path::new(NAME))?)
    }

    /// Brings all keyspaces of a dump into this database, durably. A keyspace that is not there is
    /// created with the options that it had; one that is there keeps its own, and entries with the
    /// same keys are replaced. A keyspace without entries is filled by bulk ingestion, all at once;
    /// others in batches of 1 MiB.
    ///
    /// After an error, keyspaces of the dump that were done are there. The keyspace in which it
    /// came has nothing of the dump if it was empty before, and otherwise a part, up to the damage.
    /// No later one is touched.
    ///
    /// # Errors
    ///
    /// Those of [`DumpReader::next`]; [`Error::InvalidArgument`] if a keyspace is there with other
    /// partitions, or is divided by a function that is not registered; [`Error::Io`],
    /// [`Error::WritesStopped`], [`Error::ReadOnly`].
    pub fn load_from<R: Read>(&self, dump: &mut DumpReader<R>) -> Result<DumpSummary> {
        let mut summary = DumpSummary::default();
        let mut next = begin_keyspace(dump)?;
        while let Some((name, mut options)) = next {
            if self.has_keyspace(&name) {
                // Its options for tables are its own.
                options.table = KeyspaceOptions::default().table;
            }
            let keyspace = self.keyspace(&name, options)?;
            let mut entries = Entries { dump, following: None };
            summary.entries += match keyspace.iter().next().transpose()? {
                None => keyspace.try_ingest(&mut entries)?,
                Some(_) => self.insert_all(&keyspace, &mut entries)?,
            };
            summary.keyspaces += 1;
            next = entries.following;
        }
        self.persist(PersistMode::SyncAll)?;
        Ok(summary)
    }

    /// Inserts entries in batches; returns their number.
    fn insert_all<R: Read>(
        &self,
        keyspace: &Keyspace,
        entries: &mut Entries<'_, R>,
    ) -> Result<u64> {
        let (mut count, mut bytes, mut batch) = (0, 0, self.batch());
        for entry in entries {
            let (key, value, expires_ms) = entry?;
            count += 1;
            bytes += key.len() + value.len();
            match expires_ms {
                None => batch.put(keyspace, &key, Kind::Value, &[&value]),
                Some(at_ms) => batch.put_until(keyspace, &key, &[&value], at_ms),
            }
            if bytes >= BATCH_BYTES {
                std::mem::replace(&mut batch, self.batch()).commit()?;
                bytes = 0;
            }
        }
        batch.commit()?;
        Ok(count)
    }
}

/// A keyspace of a dump.
type Begun = Option<(String, KeyspaceOptions)>;

/// The first keyspace of a dump.
fn begin_keyspace<R: Read>(dump: &mut DumpReader<R>) -> Result<Begun> {
    match dump.next()? {
        Some(DumpItem::Keyspace(name, options)) => Ok(Some((name.to_owned(), options.clone()))),
        _ => Ok(None),
    }
}

/// The entries of a keyspace of a dump, up to the keyspace that follows it.
struct Entries<'a, R> {
    dump: &'a mut DumpReader<R>,
    following: Begun,
}

impl<R: Read> Iterator for &mut Entries<'_, R> {
    type Item = Result<(Vec<u8>, Vec<u8>, Option<Millis>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.following.is_some() {
            return None;
        }
        match self.dump.next() {
            Ok(Some(DumpItem::Entry(key, value, expiry))) => {
                let expires_ms = match expiry {
                    Expiry::Never => None,
                    Expiry::At(time) => Some(millis_of(time)),
                };
                Some(Ok((key.to_vec(), value.to_vec(), expires_ms)))
            }
            Ok(Some(DumpItem::Keyspace(name, options))) => {
                self.following = Some((name.to_owned(), options.clone()));
                None
            }
            Ok(None) => None,
            Err(error) => Some(Err(error)),
        }
    }
}
