//! Values and dumps to bytes, as Redis 7.0 and later read them.
//!
//! Each type is written in its plain encoding, strings with their lengths: Redis packs small values
//! again when it reads them.

use std::io::{self, Write};

use crc::{Digest, Table};

use super::{
    format::*,
    functions::push_library,
    items::{Item, ValueKind},
    source::CHECKSUM,
    stream::StreamId,
};

/// Appends a length.
pub(crate) fn push_length(out: &mut Vec<u8>, length: u64) {
    match length {
        0..0x40 => out.push(length as u8),
        0x40..0x4000 => {
            out.extend_from_slice(&[LENGTH_14 << 6 | (length >> 8) as u8, length as u8])
        }
        0x4000..=0xFFFF_FFFF => {
            out.push(LENGTH_32);
            out.extend_from_slice(&(length as u32).to_be_bytes());
        }
        _ => {
            out.push(LENGTH_64);
            out.extend_from_slice(&length.to_be_bytes());
        }
    }
}

/// Appends a string.
pub(crate) fn push_string(out: &mut Vec<u8>, bytes: &[u8]) {
    push_length(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends an identifier as two lengths.
pub(crate) fn push_id(out: &mut Vec<u8>, id: StreamId) {
    push_length(out, id.ms);
    push_length(out, id.seq);
}

/// The type of a value as it is written; `has_times` for a hash some of whose fields end, which
/// only Redis 7.4 and later read.
pub(crate) fn type_of(kind: ValueKind, has_times: bool) -> u8 {
    match kind {
        ValueKind::String => TYPE_STRING,
        ValueKind::List => TYPE_LIST,
        ValueKind::Set => TYPE_SET,
        ValueKind::Zset => TYPE_ZSET_2,
        ValueKind::Hash if has_times => TYPE_HASH_METADATA,
        ValueKind::Hash => TYPE_HASH,
        ValueKind::Stream => TYPE_STREAM_LISTPACKS_2,
        ValueKind::Module => TYPE_MODULE_2,
    }
}

/// Appends what stands before the items of a value of this number of items, its type excluded.
/// A string and a stream have nothing there.
pub(crate) fn begin_value(out: &mut Vec<u8>, kind: ValueKind, items: u64) {
    if !matches!(kind, ValueKind::String | ValueKind::Stream) {
        push_length(out, items);
    }
}

/// Appends what stands before the fields of a hash of which some end, the first at this time.
pub(crate) fn begin_ending_hash(out: &mut Vec<u8>, first_ms: u64, fields: u64) {
    out.extend_from_slice(&first_ms.to_le_bytes());
    push_length(out, fields);
}

/// Appends what stands before a field of such a hash: when it ends, as what that is after the
/// first time of all, plus one; 0 if the field does not end.
pub(crate) fn push_end(out: &mut Vec<u8>, first_ms: u64, expires_ms: u64) {
    push_length(out, if expires_ms == 0 { 0 } else { expires_ms - first_ms + 1 });
}

/// Appends an item of a value other than a stream.
pub(crate) fn push_item(out: &mut Vec<u8>, item: &Item) {
    match item {
        Item::String(bytes) | Item::Element(bytes) | Item::Member(bytes) => push_string(out, bytes),
        Item::Field { field, value, .. } => {
            push_string(out, field);
            push_string(out, value);
        }
        Item::Scored { member, score } => {
            push_string(out, member);
            out.extend_from_slice(&score.to_le_bytes());
        }
        Item::Stream(_) => {}
    }
}

/// The type and the value of a string, with room for what ends a payload.
pub(crate) fn string_value(bytes: &[u8]) -> Vec<u8> {
    // A length has at most nine bytes, and the end of a payload ten.
    let mut out = Vec::with_capacity(bytes.len() + 20);
    out.push(TYPE_STRING);
    push_string(&mut out, bytes);
    out
}

/// Writes a dump.
pub(crate) struct DumpWriter<W> {
    out: W,
    digest: Digest<'static, u64, Table<16>>,
    written: u64,
}

impl<W: Write> DumpWriter<W> {
    /// Writes the beginning of a dump.
    pub(crate) fn begin(out: W, now_ms: u64) -> io::Result<Self> {
        let mut writer = Self { out, digest: CHECKSUM.digest(), written: 0 };
        let mut head = [&MAGIC[..], format!("{VERSION_WRITTEN:04}").as_bytes()].concat();
        let version = format!("rhumb-{}", env!("CARGO_PKG_VERSION"));
        let seconds = (now_ms / 1000).to_string();
        for (name, value) in [("redis-ver", &*version), ("redis-bits", "64"), ("ctime", &*seconds)]
        {
            head.push(OP_AUX);
            push_string(&mut head, name.as_bytes());
            push_string(&mut head, value.as_bytes());
        }
        writer.raw(&head)?;
        Ok(writer)
    }

    /// Writes the code of a library of functions.
    pub(crate) fn library(&mut self, code: &[u8]) -> io::Result<()> {
        let mut head = Vec::with_capacity(code.len() + 16);
        push_library(&mut head, code);
        self.raw(&head)
    }

    /// Says that the keys that follow are of this database.
    pub(crate) fn database(&mut self, database: u64) -> io::Result<()> {
        let mut head = vec![OP_DATABASE];
        push_length(&mut head, database);
        self.raw(&head)
    }

    /// Writes what stands before a value: when it ends, its type and its key.
    pub(crate) fn key(&mut self, key: &[u8], type_byte: u8, expires_ms: u64) -> io::Result<()> {
        let mut head = Vec::with_capacity(key.len() + 16);
        if expires_ms != 0 {
            head.push(OP_EXPIRE_MS);
            head.extend_from_slice(&expires_ms.to_le_bytes());
        }
        head.push(type_byte);
        push_string(&mut head, key);
        self.raw(&head)
    }

    /// Writes bytes of a value.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.digest.update(bytes);
        self.written += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    /// How many bytes were written.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Writes the end; returns what was written to, and how many bytes.
    pub(crate) fn finish(mut self) -> io::Result<(W, u64)> {
        self.raw(&[OP_END])?;
        let sum = self.digest.clone().finalize();
        self.out.write_all(&sum.to_le_bytes())?;
        Ok((self.out, self.written + 8))
    }
}
