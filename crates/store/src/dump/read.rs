//! Reads a dump, block by block, and verifies each before anything of it is handed out.

use std::{
    fmt,
    io::{ErrorKind, Read},
    path::PathBuf,
};

use super::format::{
    BLOCK_HEADER_BYTES, BlockHeader, BlockKind, Counts, Fault, HEADER_BYTES, Header,
    decode_keyspace, entry_at, first_entry,
};
use crate::{
    db::Expiry,
    error::{Error, Result},
    expiry::time_of,
    options::KeyspaceOptions,
    types::SeqNo,
};

/// The bytes of a payload that are allocated before more of it has come: a length that nobody has
/// verified costs no more.
const STEP_BYTES: usize = 1 << 20;

/// What a dump holds, in order.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum DumpItem<'a> {
    /// A keyspace begins, with its name and options.
    Keyspace(&'a str, &'a KeyspaceOptions),
    /// An entry of the keyspace that has begun: its key, which is larger than the one before it,
    /// its value, and when it expires.
    Entry(&'a [u8], &'a [u8], Expiry),
}

/// Reads a dump that [`Database::dump`](crate::Database::dump) wrote.
///
/// Nothing of a block is handed out before its checksum was compared. Holds one block in memory:
/// 256 KiB, or an entry that is longer.
///
/// ```
/// # fn main() -> rhumb::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// use rhumb::{Database, DumpItem, DumpReader, KeyspaceOptions};
///
/// let db = Database::open(dir.path())?;
/// db.keyspace("users", KeyspaceOptions::default())?.insert("ada", "1815")?;
/// let mut bytes = Vec::new();
/// db.dump(&mut bytes)?;
///
/// let mut dump = DumpReader::new(&bytes[..], "users.dump")?;
/// let mut keys = Vec::new();
/// while let Some(item) = dump.next()? {
///     if let DumpItem::Entry(key, ..) = item {
///         keys.push(key.to_vec());
///     }
/// }
/// assert_eq!(keys, [b"ada"]);
/// # Ok(())
/// # }
/// ```
pub struct DumpReader<R> {
    input: R,
    path: PathBuf,
    header: Header,
    /// Where the block begins that is being read, and where its payload ends.
    block: u64,
    end: u64,
    /// The checksum of the last block.
    previous: u64,
    payload: Vec<u8>,
    /// Where the next entry begins in the payload; none if there is no more in it.
    at: usize,
    keyspace: Option<(String, KeyspaceOptions)>,
    last: Option<Vec<u8>>,
    counts: Counts,
    is_over: bool,
}

impl<R: Read> DumpReader<R> {
    /// Reads the header of a dump. Errors name it `path`.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if it is no dump; [`Error::Unsupported`] if it is one of another version;
    /// [`Error::Io`].
    pub fn new(input: R, path: impl Into<PathBuf>) -> Result<Self> {
        let mut reader = Self {
            input,
            path: path.into(),
            header: Header { seq: 0 },
            block: 0,
            end: 0,
            previous: 0,
            payload: Vec::new(),
            at: 0,
            keyspace: None,
            last: None,
            counts: Counts::default(),
            is_over: false,
        };
        let bytes = reader.array::<HEADER_BYTES>("the header of a dump")?;
        let decoded = Header::decode(&bytes);
        (reader.header, reader.previous) = decoded.map_err(|fault| reader.fault(0, fault))?;
        Ok(reader)
    }

    /// The sequence number of the last write in the dump.
    #[must_use]
    pub fn sequence_number(&self) -> SeqNo {
        self.header.seq
    }

    /// The next keyspace or entry; `None` after the last, once it is known that nothing is missing.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] with the offset in the dump, if it is damaged or ends early;
    /// [`Error::Unsupported`]; [`Error::Io`]. Nothing can be read after an error.
    #[expect(clippy::should_implement_trait, reason = "an item borrows the reader")]
    pub fn next(&mut self) -> Result<Option<DumpItem<'_>>> {
        while self.at >= self.payload.len() {
            if self.is_over {
                return Ok(None);
            }
            match self.read_block() {
                Ok(Some(BlockKind::Keyspace)) => {
                    let (name, options) = self.keyspace.get_or_insert_default();
                    return Ok(Some(DumpItem::Keyspace(name, options)));
                }
                Ok(_) => {}
                Err(error) => {
                    self.is_over = true;
                    self.payload.clear();
                    return Err(error);
                }
            }
        }
        let ((key, value, expires_ms), next) = entry_at(&self.payload, self.at)
            .map_err(|fault| fault_at(&self.path, self.block + BLOCK_HEADER_BYTES as u64, fault))?;
        (self.at, self.counts.entries) = (next, self.counts.entries + 1);
        let expiry = expires_ms.and_then(time_of).map_or(Expiry::Never, Expiry::At);
        Ok(Some(DumpItem::Entry(key, value, expiry)))
    }

    /// Reads and verifies the next block; `None` after the last.
    fn read_block(&mut self) -> Result<Option<BlockKind>> {
        self.block = self.end;
        let bytes = self.array::<BLOCK_HEADER_BYTES>("a block, as the dump has not ended")?;
        let header = BlockHeader::decode(&bytes).map_err(|fault| self.fault(0, fault))?;
        self.read_payload(header.len)?;
        let checksum = header.expected_checksum(&self.payload, self.previous);
        if checksum != header.checksum {
            let expected = format!("a block with checksum {:016x}", header.checksum);
            return Err(Error::corrupt(
                &self.path,
                self.block,
                expected,
                format!("{checksum:016x}"),
            ));
        }
        self.previous = checksum;
        self.at = self.payload.len();
        match header.kind {
            BlockKind::Keyspace => {
                let decoded = decode_keyspace(&self.payload);
                self.keyspace =
                    Some(decoded.map_err(|fault| self.fault(BLOCK_HEADER_BYTES, fault))?);
                self.last = None;
                self.counts.keyspaces += 1;
            }
            BlockKind::Entries => self.check_entries()?,
            BlockKind::End => {
                self.check_end()?;
                return Ok(None);
            }
        }
        Ok(Some(header.kind))
    }

    /// Checks all entries of a block before the first is handed out.
    fn check_entries(&mut self) -> Result<()> {
        let fault = |fault| fault_at(&self.path, self.block + BLOCK_HEADER_BYTES as u64, fault);
        if self.keyspace.is_none() {
            return Err(Error::corrupt(&self.path, self.block, "a keyspace first", "entries"));
        }
        let first = first_entry(&self.payload).map_err(fault)?;
        let (mut at, mut last) = (first, self.last.as_deref());
        while at < self.payload.len() {
            let ((key, ..), next) = entry_at(&self.payload, at).map_err(fault)?;
            if last.is_some_and(|last| last >= key) {
                let offset = self.block + (BLOCK_HEADER_BYTES + at) as u64;
                return Err(Error::corrupt(
                    &self.path,
                    offset,
                    "keys that ascend",
                    "another order",
                ));
            }
            (last, at) = (Some(key), next);
        }
        self.last = last.map(<[u8]>::to_vec);
        self.at = first;
        Ok(())
    }

    /// Compares the counts, and makes sure that nothing follows.
    fn check_end(&mut self) -> Result<()> {
        let stated = Counts::decode(&self.payload);
        let stated = stated.map_err(|fault| self.fault(BLOCK_HEADER_BYTES, fault))?;
        if stated != self.counts {
            let (expected, found) = (in_words(stated), in_words(self.counts));
            return Err(Error::corrupt(&self.path, self.block, expected, found));
        }
        self.is_over = true;
        let mut more = [0];
        if self.fill(&mut more)? > 0 {
            let found = "more bytes";
            return Err(Error::corrupt(&self.path, self.end - 1, "the end of the dump", found));
        }
        Ok(())
    }

    /// Reads the payload of a block, and allocates as its bytes come.
    fn read_payload(&mut self, len: usize) -> Result<()> {
        let mut payload = std::mem::take(&mut self.payload);
        payload.clear();
        while payload.len() < len {
            let start = payload.len();
            payload.resize(start + (len - start).min(STEP_BYTES), 0);
            let wanted = payload.len() - start;
            let read = self.fill(&mut payload[start..])?;
            if read < wanted {
                let expected = format!("a block of {len} bytes");
                let found = format!("the end after {} of them", start + read);
                return Err(Error::corrupt(&self.path, self.block, expected, found));
            }
        }
        self.payload = payload;
        Ok(())
    }

    fn array<const N: usize>(&mut self, expected: &'static str) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        match self.fill(&mut bytes)? {
            read if read == N => Ok(bytes),
            read => {
                let found = format!("the end of the file after {read} bytes of it");
                Err(Error::corrupt(&self.path, self.block, expected, found))
            }
        }
    }

    /// Reads until `bytes` is full or the input ends.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<usize> {
        let mut read = 0;
        while read < bytes.len() {
            match self.input.read(&mut bytes[read..]) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io_at("read", &self.path, self.end, error)),
            }
        }
        self.end += read as u64;
        Ok(read)
    }

    fn fault(&self, offset: usize, fault: Fault) -> Error {
        fault_at(&self.path, self.block + offset as u64, fault)
    }
}

fn fault_at(path: &std::path::Path, base: u64, fault: Fault) -> Error {
    match fault {
        Fault::Damaged { offset, expected } => {
            Error::corrupt(path, base + offset as u64, expected, "other bytes")
        }
        Fault::Unknown(what) => Error::Unsupported { path: path.to_owned(), what },
    }
}

fn in_words(counts: Counts) -> String {
    format!("{} keyspaces and {} entries", counts.keyspaces, counts.entries)
}

impl<R> fmt::Debug for DumpReader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DumpReader").field("path", &self.path).finish_non_exhaustive()
    }
}
