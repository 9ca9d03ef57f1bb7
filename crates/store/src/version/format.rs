//! The bytes of a manifest and of `CURRENT`; `docs/format/manifest.md` describes them. No I/O here.
//!
//! A record of the manifest is one [`VersionEdit`]. Its bytes are `[count u32]` and then each edit
//! as `[tag u8][fields]`, integers little endian and of fixed width, byte strings as
//! `[length u32][bytes]`.

use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use super::edit::{Edit, EventKind, FILE_ID_END, KeyspaceEvent, VersionEdit};
use crate::{
    error::{Error, Result},
    expiry::{Expiries, MILLIS_MAX},
    log::{
        format::segment::BASE_LSN_MAX,
        frame::{FrameHeader, FrameSeed, PAYLOAD_BYTES_MAX},
    },
    partition::NAME_BYTES_MAX,
    table::{TableMeta, TablePlace},
    types::{FileId, KEY_BYTES_MAX, LEVELS_MAX, SEQ_END},
};

/// Bytes of a manifest's header; the first frame follows.
pub(crate) const MANIFEST_HEADER_BYTES: usize = 40;

/// The first bytes of every manifest.
pub(crate) const MANIFEST_MAGIC: [u8; 8] = *b"RHUMBMAN";

/// The version of the manifest format that this crate writes and reads.
pub(crate) const MANIFEST_VERSION: u32 = 1;

/// The length of `CURRENT` is always below this.
pub(super) const CURRENT_BYTES_MAX: u64 = 256;

/// The bytes of a manifest's header.
pub(super) fn encode_header(id: FileId, identity: u64) -> [u8; MANIFEST_HEADER_BYTES] {
    let mut bytes = [0; MANIFEST_HEADER_BYTES];
    bytes[0..8].copy_from_slice(&MANIFEST_MAGIC);
    bytes[8..12].copy_from_slice(&MANIFEST_VERSION.to_le_bytes());
    bytes[16..24].copy_from_slice(&id.to_le_bytes());
    bytes[24..32].copy_from_slice(&identity.to_le_bytes());
    let hash = xxh3_64(&bytes[..32]);
    bytes[32..].copy_from_slice(&hash.to_le_bytes());
    bytes
}

/// The number and the identity in a manifest's header.
pub(crate) fn decode_header(path: &Path, bytes: &[u8]) -> Result<(FileId, u64)> {
    let invalid = |found: &str| Error::corrupt(path, 0, "the header of a manifest", found);
    let Some(bytes) = bytes.first_chunk::<MANIFEST_HEADER_BYTES>() else {
        return Err(invalid("a file shorter than that"));
    };
    let word = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        u64::from_le_bytes(word)
    };
    if bytes[..8] != MANIFEST_MAGIC {
        return Err(invalid("other first bytes"));
    }
    if word(32) != xxh3_64(&bytes[..32]) {
        return Err(invalid("a wrong checksum"));
    }
    let version = word(8) as u32;
    if version != MANIFEST_VERSION {
        let what = format!(
            "a manifest of version {version}; this version of Rhumb reads version {MANIFEST_VERSION}"
        );
        return Err(Error::Unsupported { path: path.to_owned(), what });
    }
    Ok((word(16), word(24)))
}

/// Appends a frame to the front of a file, which `out` is.
pub(super) fn push_frame(
    out: &mut Vec<u8>,
    seed: FrameSeed,
    synced: u64,
    payload: &[u8],
) -> Result<()> {
    push_frame_at(out, out.len() as u64, seed, synced, payload)
}

/// Appends the frame at `offset` of the file.
pub(super) fn push_frame_at(
    out: &mut Vec<u8>,
    offset: u64,
    seed: FrameSeed,
    synced: u64,
    payload: &[u8],
) -> Result<()> {
    if payload.len() > PAYLOAD_BYTES_MAX {
        return Err(Error::InvalidArgument(
            format!("a manifest record of {} bytes: too long", payload.len()).into(),
        ));
    }
    let hash = seed.payload_hash(offset, payload);
    let header = FrameHeader { len: payload.len() as u32, synced, hash };
    out.extend_from_slice(&header.encode(seed, offset));
    out.extend_from_slice(payload);
    Ok(())
}

/// The contents of `CURRENT`: one line, `MANIFEST-<number> <durable length> <checksum>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Current {
    pub(super) id: FileId,
    /// The manifest's length when `CURRENT` was switched to it.
    pub(super) durable_bytes: u64,
}

impl Current {
    /// The line.
    pub(super) fn encode(&self) -> Vec<u8> {
        let line = format!("MANIFEST-{:06} {:016x}", self.id, self.durable_bytes);
        format!("{line} {:016x}\n", xxh3_64(line.as_bytes())).into_bytes()
    }

    /// Reads the line; accepts only what [`Current::encode`] writes.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(bytes).ok()?.split(' ');
        let id = words.next()?.strip_prefix("MANIFEST-")?.parse().ok()?;
        let durable_bytes = u64::from_str_radix(words.next()?, 16).ok()?;
        let current = Self { id, durable_bytes };
        (current.encode() == bytes).then_some(current)
    }
}

/// Why bytes are not an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EditFault {
    /// The offset in the bytes.
    pub(crate) offset: usize,
    /// What was expected there.
    pub(crate) expected: &'static str,
}

impl VersionEdit {
    /// The bytes of a manifest record; never empty.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Encoder(Vec::with_capacity(4 + 128 * self.edits.len()));
        out.u32(u32::try_from(self.edits.len()).expect("fewer than 2^32 edits"));
        for edit in &self.edits {
            out.edit(edit);
        }
        out.0
    }

    /// Reads a manifest record. Allocates at most about twenty times the bytes given.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, EditFault> {
        let mut input = Decoder { bytes, offset: 0 };
        let count = input.u32("the number of edits")?;
        let mut edits = Vec::new();
        for _ in 0..count {
            edits.push(input.edit()?);
        }
        if input.offset != bytes.len() {
            return Err(input.fault("the end of the edits"));
        }
        Ok(Self { edits })
    }
}

/// The parts of a table's description that not every table has.
#[derive(Clone, Copy)]
struct Parts {
    is_shared: bool,
    has_ranges: bool,
    has_expiries: bool,
}

impl Parts {
    fn of(meta: &TableMeta) -> Self {
        Self {
            is_shared: meta.place.is_some(),
            has_ranges: meta.range_tombstones > 0,
            has_expiries: meta.expiries.is_some(),
        }
    }

    /// The tag of the edit that adds the table.
    fn tag(self) -> u8 {
        match (self.is_shared, self.has_ranges) {
            _ if self.has_expiries => 16,
            (false, false) => 5,
            (true, false) => 13,
            (false, true) => 14,
            (true, true) => 15,
        }
    }

    /// The byte after a tag 16.
    fn flags(self) -> u8 {
        u8::from(self.is_shared) | u8::from(self.has_ranges) << 1
    }
}

struct Encoder(Vec<u8>);

impl Encoder {
    fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn string(&mut self, bytes: &[u8]) {
        self.u32(u32::try_from(bytes.len()).expect("names, options and keys are short"));
        self.0.extend_from_slice(bytes);
    }

    fn edit(&mut self, edit: &Edit) {
        match edit {
            Edit::Identity { identity } => {
                self.u8(1);
                self.u64(*identity);
            }
            Edit::CreateKeyspace { id, name, options, tree } => {
                self.u8(2);
                self.u32(*id);
                self.string(name.as_bytes());
                self.string(options);
                self.u32(*tree);
            }
            Edit::DropKeyspace { id } => {
                self.u8(3);
                self.u32(*id);
            }
            Edit::ReplaceTree { keyspace, old, new } => {
                self.u8(4);
                self.u32(*keyspace);
                self.u32(*old);
                self.u32(*new);
            }
            Edit::AddTable { tree, level, meta } => {
                let parts = Parts::of(meta);
                self.u8(parts.tag());
                if parts.has_expiries {
                    self.u8(parts.flags());
                }
                self.u32(*tree);
                self.u8(*level);
                if let Some(TablePlace { file, offset }) = meta.place {
                    self.u64(file);
                    self.u64(offset);
                }
                self.table(meta);
                if meta.range_tombstones > 0 {
                    self.u64(meta.range_tombstones);
                }
                if let Some(expiries) = &meta.expiries {
                    self.0.extend_from_slice(&expiries.encode());
                }
            }
            Edit::RemoveTable { tree, level, id } => {
                self.u8(6);
                self.u32(*tree);
                self.u8(*level);
                self.u64(*id);
            }
            Edit::LogFloor { segment, lsn } => {
                self.u8(7);
                self.u64(*segment);
                self.u64(*lsn);
            }
            Edit::NextIds { file, tree, keyspace } => {
                self.u8(8);
                self.u64(*file);
                self.u32(*tree);
                self.u32(*keyspace);
            }
            Edit::LastSeq { seq } => {
                self.u8(9);
                self.u64(*seq);
            }
            Edit::Clock { ms } => {
                self.u8(17);
                self.u64(*ms);
            }
            Edit::CreatePartition { .. } | Edit::DropPartition { .. } | Edit::RetireTree { .. } => {
                self.partition_edit(edit);
            }
            Edit::Event(event) => self.event(event),
            Edit::HistoryFrom { seq } => {
                self.u8(19);
                self.u64(*seq);
            }
            Edit::Source { identity } => {
                self.u8(20);
                self.u64(*identity);
            }
        }
    }

    fn partition_edit(&mut self, edit: &Edit) {
        match edit {
            Edit::CreatePartition { root, name, tree } => {
                self.u8(10);
                self.u32(*root);
                self.string(name);
                self.u32(*tree);
            }
            Edit::DropPartition { root, name } => {
                self.u8(11);
                self.u32(*root);
                self.string(name);
            }
            Edit::RetireTree { tree, segment } => {
                self.u8(12);
                self.u32(*tree);
                self.u64(*segment);
            }
            _ => {}
        }
    }

    fn event(&mut self, event: &KeyspaceEvent) {
        self.u8(18);
        self.u64(event.seq);
        self.string(event.keyspace.as_bytes());
        match &event.what {
            EventKind::Opened { options } => {
                self.u8(0);
                self.string(options);
            }
            EventKind::Dropped => self.u8(1),
            EventKind::Cleared => self.u8(2),
            EventKind::PartitionsDropped => self.u8(3),
            EventKind::Ingested => self.u8(4),
        }
        self.u32(u32::try_from(event.gone.len()).expect("fewer than 2^32 LSM trees"));
        for (tree, name) in &event.gone {
            self.u32(*tree);
            self.string(name);
        }
    }

    fn table(&mut self, meta: &TableMeta) {
        for field in [
            meta.id,
            meta.file_bytes,
            meta.value_file_bytes,
            meta.entries,
            meta.tombstones,
            meta.seq_min,
            meta.seq_max,
            meta.raw_bytes,
        ] {
            self.u64(field);
        }
        self.string(&meta.smallest);
        self.string(&meta.largest);
    }
}

struct Decoder<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Decoder<'a> {
    fn fault(&self, expected: &'static str) -> EditFault {
        EditFault { offset: self.offset, expected }
    }

    fn take(&mut self, len: usize, expected: &'static str) -> Result<&'a [u8], EditFault> {
        let rest = &self.bytes[self.offset..];
        let taken = rest.get(..len).ok_or_else(|| self.fault(expected))?;
        self.offset += len;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, expected: &'static str) -> Result<[u8; N], EditFault> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, expected)?);
        Ok(array)
    }

    fn u8(&mut self, expected: &'static str) -> Result<u8, EditFault> {
        self.array::<1>(expected).map(|[byte]| byte)
    }

    fn u32(&mut self, expected: &'static str) -> Result<u32, EditFault> {
        self.array(expected).map(u32::from_le_bytes)
    }

    fn u64(&mut self, expected: &'static str) -> Result<u64, EditFault> {
        self.array(expected).map(u64::from_le_bytes)
    }

    /// Reads an integer that is at most `max`.
    fn u64_to(&mut self, max: u64, expected: &'static str) -> Result<u64, EditFault> {
        let start = self.offset;
        let value = self.u64(expected)?;
        if value > max { Err(EditFault { offset: start, expected }) } else { Ok(value) }
    }

    fn file_id(&mut self) -> Result<FileId, EditFault> {
        self.u64_to(FILE_ID_END - 1, "the number of a file, below 2^62")
    }

    fn string(&mut self, max: usize, expected: &'static str) -> Result<&'a [u8], EditFault> {
        let start = self.offset;
        let len = self.u32(expected)? as usize;
        if len > max {
            return Err(EditFault { offset: start, expected });
        }
        self.take(len, expected)
    }

    fn level(&mut self) -> Result<u8, EditFault> {
        let start = self.offset;
        let level = self.u8("a level")?;
        if usize::from(level) >= LEVELS_MAX {
            return Err(EditFault { offset: start, expected: "a level below 7" });
        }
        Ok(level)
    }

    fn edit(&mut self) -> Result<Edit, EditFault> {
        let start = self.offset;
        Ok(match self.u8("the tag of an edit")? {
            1 => Edit::Identity { identity: self.u64("an identity")? },
            2 => self.create_keyspace()?,
            3 => Edit::DropKeyspace { id: self.u32("a keyspace")? },
            4 => Edit::ReplaceTree {
                keyspace: self.u32("a keyspace")?,
                old: self.u32("a sub-tree")?,
                new: self.u32("a sub-tree")?,
            },
            tag @ (5 | 13 | 14 | 15 | 16) => self.add_table(tag)?,
            17 => Edit::Clock { ms: self.u64_to(MILLIS_MAX, "a time below 2^63 milliseconds")? },
            6 => Edit::RemoveTable {
                tree: self.u32("a sub-tree")?,
                level: self.level()?,
                id: self.u64("a table")?,
            },
            7 => Edit::LogFloor {
                segment: self.file_id()?,
                lsn: self.u64_to(BASE_LSN_MAX, "a place in the log below 2^62")?,
            },
            8 => Edit::NextIds {
                file: self.file_id()?,
                tree: self.u32("the next sub-tree")?,
                keyspace: self.u32("the next keyspace")?,
            },
            9 => Edit::LastSeq { seq: self.u64_to(SEQ_END - 1, "a number below 2^56")? },
            10 => Edit::CreatePartition {
                root: self.u32("a sub-tree")?,
                name: self.partition_name()?,
                tree: self.u32("a sub-tree")?,
            },
            11 => {
                Edit::DropPartition { root: self.u32("a sub-tree")?, name: self.partition_name()? }
            }
            12 => Edit::RetireTree { tree: self.u32("a sub-tree")?, segment: self.file_id()? },
            18 => Edit::Event(self.event()?),
            19 => Edit::HistoryFrom { seq: self.u64_to(SEQ_END, "a number up to 2^56")? },
            20 => Edit::Source { identity: self.u64("an identity")? },
            _ => return Err(EditFault { offset: start, expected: "the tag of an edit, 1 to 20" }),
        })
    }

    /// Reads a table: one with a file of its own or in a shared file, without or with range
    /// tombstones, without or with entries that expire.
    fn add_table(&mut self, tag: u8) -> Result<Edit, EditFault> {
        let flags = match tag {
            16 => self.u8("the parts of a table")?,
            _ => 0,
        };
        if flags > 3 {
            return Err(EditFault { offset: self.offset - 1, expected: "the parts of a table" });
        }
        let (tree, level) = (self.u32("a sub-tree")?, self.level()?);
        let place = if matches!(tag, 13 | 15) || flags & 1 != 0 {
            let file = self.file_id()?;
            Some(TablePlace { file, offset: self.u64("a place in a file")? })
        } else {
            None
        };
        let mut meta = self.table(place)?;
        if matches!(tag, 14 | 15) || flags & 2 != 0 {
            let start = self.offset;
            let expected = "a number of range tombstones over 0";
            meta.range_tombstones = self.u64(expected)?;
            if meta.range_tombstones == 0 {
                return Err(EditFault { offset: start, expected });
            }
        }
        if tag == 16 {
            meta.expiries = Some(self.expiries(meta.entries)?);
        }
        Ok(Edit::AddTable { tree, level, meta })
    }

    /// Reads when the entries of a table expire, which has this many in all.
    fn expiries(&mut self, entries: u64) -> Result<Expiries, EditFault> {
        let fault = self.fault("the times at which entries expire");
        let bytes = self.bytes.get(self.offset..).and_then(<[u8]>::first_chunk);
        let read = bytes.and_then(Expiries::decode).filter(|read| read.entries <= entries);
        self.offset += Expiries::BYTES;
        read.ok_or(fault)
    }

    fn partition_name(&mut self) -> Result<Box<[u8]>, EditFault> {
        Ok(self.string(NAME_BYTES_MAX, "a partition's name of up to 255 bytes")?.into())
    }

    fn create_keyspace(&mut self) -> Result<Edit, EditFault> {
        let id = self.u32("a keyspace")?;
        let name = self.keyspace_name()?;
        let options = self.string(usize::MAX, "options")?;
        let tree = self.u32("a sub-tree")?;
        Ok(Edit::CreateKeyspace { id, name, options: options.to_vec(), tree })
    }

    fn keyspace_name(&mut self) -> Result<String, EditFault> {
        let start = self.offset;
        let name = self.string(NAME_BYTES_MAX, "a keyspace's name of up to 255 bytes")?;
        match std::str::from_utf8(name) {
            Ok(name) => Ok(name.to_owned()),
            Err(_) => Err(EditFault { offset: start, expected: "a name in UTF-8" }),
        }
    }

    fn event(&mut self) -> Result<KeyspaceEvent, EditFault> {
        let seq = self.u64_to(SEQ_END - 1, "a number below 2^56")?;
        let keyspace = self.keyspace_name()?;
        let start = self.offset;
        let what = match self.u8("a kind of event")? {
            0 => EventKind::Opened { options: self.string(usize::MAX, "options")?.to_vec() },
            1 => EventKind::Dropped,
            2 => EventKind::Cleared,
            3 => EventKind::PartitionsDropped,
            4 => EventKind::Ingested,
            _ => return Err(EditFault { offset: start, expected: "a kind of event, 0 to 4" }),
        };
        let mut gone = Vec::new();
        for _ in 0..self.u32("a number of sub-trees")? {
            gone.push((self.u32("a sub-tree")?, self.partition_name()?));
        }
        Ok(KeyspaceEvent { seq, keyspace, what, gone })
    }

    fn table(&mut self, place: Option<TablePlace>) -> Result<TableMeta, EditFault> {
        let start = self.offset;
        let meta = TableMeta {
            place,
            id: self.file_id()?,
            file_bytes: self.u64("a file length")?,
            value_file_bytes: self.u64("a file length")?,
            entries: self.u64("a number of entries")?,
            tombstones: self.u64("a number of tombstones")?,
            range_tombstones: 0,
            seq_min: self.u64("a sequence number")?,
            seq_max: self.u64_to(SEQ_END - 1, "a sequence number below 2^56")?,
            raw_bytes: self.u64("a length")?,
            expiries: None,
            smallest: self.string(KEY_BYTES_MAX, "a key of up to 64 KiB")?.into(),
            largest: self.string(KEY_BYTES_MAX, "a key of up to 64 KiB")?.into(),
        };
        let expected = if meta.smallest > meta.largest {
            "a table whose first key is not after its last"
        } else if meta.seq_min > meta.seq_max || meta.tombstones > meta.entries {
            "a table whose counts and sequence numbers are in order"
        } else {
            return Ok(meta);
        };
        Err(EditFault { offset: start, expected })
    }
}
