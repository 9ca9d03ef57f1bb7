//! Whole values in and out of the store, as the items that `rdb` reads and writes. The one place
//! that knows both how a value lies in the store and what it is to Redis.

mod hash;
mod stream;

use std::ops::Bound;

use rhumb::Slice;

use crate::{
    encode::{Entry, Kind, Meta, entry::push_head, member},
    fault::Fault,
    rdb::{Item, ValueKind},
    txn::{Scan, Space, Txn, Writes, damaged},
};

use hash::TimesWriter;
pub(crate) use hash::{FIELD_END_MS_MAX, FieldTimes};
use stream::StreamWriter;

/// Why a value is refused that has a member or field twice, none at all, or items of another type.
pub(crate) const BAD_DATA: &str = "ERR Bad data format";

/// Why a value is refused whose members are too long for the engine.
const MEMBER_TOO_LONG: &str = "ERR a field or member has at most 65504 bytes";

/// Bytes of a collection that [`ValueWriter::flush_if_large`] leaves pending.
const PENDING_BYTES_MAX: usize = 1 << 20;

/// What a value of the store is in a dump.
pub(crate) fn kind_of(entry: &Entry) -> ValueKind {
    match entry.kind {
        Kind::String => ValueKind::String,
        Kind::List => ValueKind::List,
        Kind::Set => ValueKind::Set,
        Kind::Zset => ValueKind::Zset,
        Kind::Hash => ValueKind::Hash,
        Kind::Stream => ValueKind::Stream,
    }
}

/// A value that is written item by item. Nothing of it is in the transaction before
/// [`ValueWriter::finish`], unless it is flushed.
pub(crate) struct ValueWriter {
    kind: Kind,
    meta: Meta,
    string: Option<Vec<u8>>,
    stream: Option<StreamWriter>,
    times: TimesWriter,
    members: Writes,
    bytes: usize,
    /// Members were committed before: they are reclaimed unless the value is finished.
    is_flushed: bool,
}

impl ValueWriter {
    /// A value without items so far.
    ///
    /// # Errors
    ///
    /// If the store has no values of this type, and from the engine.
    pub(crate) fn begin(txn: &Txn<'_>, kind: ValueKind) -> Result<Self, Fault> {
        let kind = match kind {
            ValueKind::String => Kind::String,
            ValueKind::List => Kind::List,
            ValueKind::Set => Kind::Set,
            ValueKind::Zset => Kind::Zset,
            ValueKind::Hash => Kind::Hash,
            ValueKind::Stream => Kind::Stream,
            ValueKind::Module => return Err(BAD_DATA.into()),
        };
        let (mut meta, mut stream) = (Meta { id: 0, count: 0, first: 0, times: 0 }, None);
        match kind {
            Kind::String => {}
            Kind::Stream => {
                let new = txn.new_stream()?;
                meta.id = new.id;
                stream = Some(StreamWriter::new(new));
            }
            _ => meta = txn.new_meta()?,
        }
        let (members, times) = (Writes::new(), TimesWriter::default());
        Ok(Self { kind, meta, string: None, stream, times, members, bytes: 0, is_flushed: false })
    }

    fn put(&mut self, txn: &Txn<'_>, key: Vec<u8>, value: Vec<u8>) -> Result<(), Fault> {
        self.bytes += key.len() + value.len();
        let is_known = self.is_flushed && txn.member(&key)?.is_some();
        if is_known || self.members.insert(key, Some(value)).is_some() {
            return Err(BAD_DATA.into());
        }
        Ok(())
    }

    /// Adds an item.
    ///
    /// # Errors
    ///
    /// If it is of another type, there already, or too long; and from the engine.
    pub(crate) fn push(&mut self, txn: &Txn<'_>, item: Item) -> Result<(), Fault> {
        let id = self.meta.id;
        match (self.kind, item) {
            (Kind::String, Item::String(bytes)) => {
                self.string = Some(bytes);
                return Ok(());
            }
            (Kind::List, Item::Element(element)) => {
                let place = self.meta.first + self.meta.count;
                self.put(txn, member::element(id, place), element)?;
            }
            (Kind::Set, Item::Member(text)) => {
                check_member(&text)?;
                self.put(txn, member::set_member(id, &text), Vec::new())?;
            }
            (Kind::Zset, Item::Scored { member: text, score }) => {
                check_member(&text)?;
                // -0 is stored as 0.
                let score = score + 0.0;
                self.put(txn, member::zset_scored(id, score, &text), Vec::new())?;
                self.put(txn, member::zset_member(id, &text), score.to_le_bytes().to_vec())?;
            }
            (Kind::Hash, Item::Field { field, value, expires_ms }) => {
                check_member(&field)?;
                self.put(txn, member::field(id, &field), value)?;
                self.put_end(txn, &field, expires_ms)?;
            }
            (Kind::Stream, Item::Stream(item)) => {
                return self.with_stream(txn, |stream, put| stream.push(item, put));
            }
            _ => return Err(BAD_DATA.into()),
        }
        self.meta.count += 1;
        Ok(())
    }

    fn put_end(&mut self, txn: &Txn<'_>, field: &[u8], end_ms: u64) -> Result<(), Fault> {
        if end_ms == 0 {
            return Ok(());
        }
        let mut times = std::mem::take(&mut self.times);
        let done = times.give(txn, (field, end_ms), &mut |key, value| self.put(txn, key, value));
        self.times = times;
        done
    }

    fn with_stream(
        &mut self,
        txn: &Txn<'_>,
        work: impl FnOnce(&mut StreamWriter, &mut stream::Put<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let Some(mut stream) = self.stream.take() else { return Err(BAD_DATA.into()) };
        let done = work(&mut stream, &mut |key, value| self.put(txn, key, value));
        self.stream = Some(stream);
        done
    }

    /// Leaves what there is of a large collection in the transaction, which the caller commits;
    /// returns true if it did. What is committed is reclaimed if the value is never finished.
    pub(crate) fn flush_if_large(&mut self, txn: &mut Txn<'_>) -> bool {
        if self.bytes < PENDING_BYTES_MAX {
            return false;
        }
        if !std::mem::replace(&mut self.is_flushed, true) {
            txn.write(Space::Work, member::reclaim(self.meta.id), Some(Vec::new()));
        }
        self.times.mark_unfinished(txn);
        self.move_members(txn);
        true
    }

    fn move_members(&mut self, txn: &mut Txn<'_>) {
        self.bytes = 0;
        for (key, value) in std::mem::take(&mut self.members) {
            txn.put_member(key, value.unwrap_or_default());
        }
    }

    /// Bytes that it has so far and were not flushed.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Says, after the last item, why the value cannot be finished.
    ///
    /// # Errors
    ///
    /// If it has nothing, or not all that belongs to it; and from the engine.
    pub(crate) fn check(&mut self, txn: &Txn<'_>) -> Result<(), Fault> {
        if self.kind == Kind::Stream {
            self.with_stream(txn, StreamWriter::end_group)?;
            // One without entries may be.
            let is_described = self.stream.as_ref().is_some_and(StreamWriter::is_described);
            return if is_described { Ok(()) } else { Err(BAD_DATA.into()) };
        }
        let has_some = self.string.is_some() || self.meta.count > 0;
        if has_some { Ok(()) } else { Err(BAD_DATA.into()) }
    }

    /// Makes it the value of a key, in the place of what [`Txn::edit`] found. It was checked.
    ///
    /// # Errors
    ///
    /// From the engine.
    pub(crate) fn finish(
        mut self,
        txn: &mut Txn<'_>,
        key: &[u8],
        before: Option<&Entry>,
        expires_ms: u64,
    ) -> rhumb::Result<()> {
        if let Some(bytes) = &self.string {
            return txn.put_string(key, before, bytes, expires_ms);
        }
        self.move_members(txn);
        if self.is_flushed {
            txn.write(Space::Work, member::reclaim(self.meta.id), None);
        }
        if let Some(before) = before {
            txn.delete(key, before)?;
        }
        if let Some(stream) = &self.stream {
            let mut value = Vec::with_capacity(128);
            push_head(&mut value, Kind::Stream, expires_ms);
            stream.meta.push_to(&mut value);
            let entry = Entry::decode(value.into()).ok_or_else(damaged)?;
            return txn.put_moved(key, &entry);
        }
        self.meta.times = self.times.id;
        txn.put_collection(key, self.kind, &self.meta, expires_ms);
        self.times.finish(txn, key);
        Ok(())
    }
}

fn check_member(text: &[u8]) -> Result<(), Fault> {
    if text.len() > member::MEMBER_BYTES_MAX {
        return Err(MEMBER_TOO_LONG.into());
    }
    Ok(())
}

/// How many items a value has, and for a hash the times of those fields that end. O(fields that
/// have ended and are not reclaimed yet).
///
/// # Errors
///
/// If its entry is damaged.
pub(crate) fn items_of(txn: &Txn<'_>, entry: &Entry) -> rhumb::Result<(u64, Option<FieldTimes>)> {
    match entry.kind {
        Kind::String => Ok((1, None)),
        Kind::Hash => hash::count(txn, &txn.meta(entry)?),
        _ => Ok((txn.meta(entry)?.count, None)),
    }
}

/// Reads the items of a value, one after the other, as they are now. Fields of a hash that have
/// ended are left out.
///
/// # Errors
///
/// From the engine, and those of `each`.
pub(crate) fn read<E: From<rhumb::Error>>(
    txn: &Txn<'_>,
    entry: &Entry,
    mut each: impl FnMut(Item) -> Result<(), E>,
) -> Result<(), E> {
    if entry.kind == Kind::String {
        return each(Item::String(entry.bytes().to_vec()));
    }
    if entry.kind == Kind::Stream {
        let meta = txn.stream_meta(entry)?;
        return stream::read(txn, &meta, &mut |item| each(Item::Stream(item)));
    }
    let meta = txn.meta(entry)?;
    if meta.times != 0 {
        return hash::read(txn, &meta, &mut each);
    }
    for pair in members(txn, entry.kind, &meta)? {
        let (key, value) = pair?;
        each(item_of(entry.kind, &key, &value))?;
    }
    Ok(())
}

fn members(txn: &Txn<'_>, kind: Kind, meta: &Meta) -> rhumb::Result<Scan> {
    let scan = match kind {
        Kind::Zset => txn.members(&member::zset_prefix(meta.id, true))?,
        Kind::List => {
            let end = meta.first + meta.count;
            let from = Bound::Included(member::element(meta.id, meta.first));
            txn.scan(Space::Members, from, Bound::Excluded(member::element(meta.id, end)), false)?
        }
        _ => txn.members(&member::prefix(meta.id))?,
    };
    Ok(scan.expecting(meta.count))
}

fn item_of(kind: Kind, key: &Slice, value: &Slice) -> Item {
    match kind {
        Kind::List => Item::Element(value.to_vec()),
        Kind::Set => Item::Member(member::set_member_of(key).to_vec()),
        Kind::Zset => {
            let (score, text) = member::zset_scored_of(key).unwrap_or_default();
            Item::Scored { member: text.to_vec(), score }
        }
        _ => Item::Field {
            field: member::field_of(key).to_vec(),
            value: value.to_vec(),
            expires_ms: 0,
        },
    }
}
