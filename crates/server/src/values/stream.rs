//! Streams as the items that `rdb` reads and writes.

use std::{collections::BTreeMap, ops::Bound};

use super::BAD_DATA;
use crate::{
    encode::{
        ConsumerRecord, GroupRecord, PendingRecord, StreamId, StreamMeta,
        stream_member::{self, Fields},
        stream_page::{
            PAGE_ENTRIES, PageEntries, decode as decode_page, encode as encode_page, owners,
        },
    },
    fault::Fault,
    rdb::{self, StreamItem},
    txn::{Scan, Space, Txn, damaged, prefix_range},
};

/// The longest name of a group or a consumer, in bytes: what else is in its key takes 26.
const NAME_BYTES_MAX: usize = (64 << 10) - 64;

fn check_name(name: &[u8]) -> Result<(), Fault> {
    if name.len() > NAME_BYTES_MAX {
        return Err("ERR a name of a group or consumer is too long".into());
    }
    Ok(())
}

/// Takes a member of the stream: its key and its value.
pub(super) type Put<'p> = dyn FnMut(Vec<u8>, Vec<u8>) -> Result<(), Fault> + 'p;

fn here(id: rdb::StreamId) -> StreamId {
    StreamId { ms: id.ms, seq: id.seq }
}

fn there(id: StreamId) -> rdb::StreamId {
    rdb::StreamId { ms: id.ms, seq: id.seq }
}

/// A group that is written. What is pending in it is in memory until it ends.
struct GroupWriter {
    name: Vec<u8>,
    record: GroupRecord,
    /// What is pending, with the consumer that has it once that is known.
    pending: BTreeMap<StreamId, (PendingRecord, bool)>,
    consumer: Option<(Vec<u8>, ConsumerRecord)>,
}

/// A stream that is written item by item.
pub(super) struct StreamWriter {
    pub(super) meta: StreamMeta,
    is_described: bool,
    group: Option<GroupWriter>,
}

impl StreamWriter {
    /// A stream of this number, without items so far.
    pub(super) fn new(meta: StreamMeta) -> Self {
        Self { meta, is_described: false, group: None }
    }

    /// Returns true once all that every stream has was there.
    pub(super) fn is_described(&self) -> bool {
        self.is_described
    }

    /// Adds an item.
    pub(super) fn push(&mut self, item: StreamItem, put: &mut Put<'_>) -> Result<(), Fault> {
        let id_of_stream = self.meta.id;
        match item {
            StreamItem::Entry { id, fields } => {
                let words: Vec<&[u8]> =
                    fields.iter().flat_map(|(field, value)| [&field[..], &value[..]]).collect();
                let value = stream_member::encode_fields(words.into_iter());
                if self.meta.length == 0 {
                    self.meta.first = here(id);
                }
                self.meta.length += 1;
                put(stream_member::entry(id_of_stream, here(id)), value)
            }
            StreamItem::Info(info) => {
                self.is_described = true;
                self.meta.last = here(info.last);
                self.meta.max_deleted = here(info.removed_max);
                self.meta.added = info.added;
                Ok(())
            }
            StreamItem::Group { name, last, read } => {
                check_name(&name)?;
                self.end_group(put)?;
                let record = GroupRecord {
                    number: self.meta.next_group,
                    last: here(last),
                    entries_read: read,
                    pending: 0,
                    first_page: StreamId::MIN,
                    last_pending: StreamId::MIN,
                    consumers: 0,
                    next_consumer: 0,
                };
                self.meta.next_group += 1;
                self.meta.groups += 1;
                let pending = BTreeMap::new();
                self.group = Some(GroupWriter { name, record, pending, consumer: None });
                Ok(())
            }
            item => {
                let group = self.group.as_mut().ok_or(BAD_DATA)?;
                group.push(id_of_stream, item, put)
            }
        }
    }

    /// Writes what is left of the last group.
    pub(super) fn end_group(&mut self, put: &mut Put<'_>) -> Result<(), Fault> {
        let Some(mut group) = self.group.take() else { return Ok(()) };
        group.end_consumer(self.meta.id, put)?;
        group.record.pending = group.pending.len() as u64;
        let ends = [group.pending.first_key_value(), group.pending.last_key_value()];
        [group.record.first_page, group.record.last_pending] =
            ends.map(|end| end.map_or(StreamId::MIN, |(id, _)| *id));
        if group.pending.values().any(|(_, is_held)| !is_held) {
            return Err(BAD_DATA.into());
        }
        let entries: Vec<_> =
            group.pending.iter().map(|(id, (record, _))| (*id, *record)).collect();
        for page in entries.chunks(PAGE_ENTRIES) {
            let (start, number) = (page[0].0, group.record.number);
            put(stream_member::pending(self.meta.id, number, start), encode_page(start, page))?;
            for owner in owners(page) {
                put(stream_member::owned(self.meta.id, number, owner, start), Vec::new())?;
            }
        }
        put(stream_member::group(self.meta.id, &group.name), group.record.encode())
    }
}

impl GroupWriter {
    fn push(&mut self, stream: u64, item: StreamItem, put: &mut Put<'_>) -> Result<(), Fault> {
        match item {
            StreamItem::Pending { id, delivered_ms, deliveries } => {
                let record = PendingRecord { consumer: 0, delivered_ms, count: deliveries };
                let before = self.pending.insert(here(id), (record, false));
                before.map_or(Ok(()), |_| Err(BAD_DATA.into()))
            }
            StreamItem::Consumer { name, seen_ms, active_ms } => {
                check_name(&name)?;
                self.end_consumer(stream, put)?;
                let number = self.record.next_consumer;
                self.record.next_consumer += 1;
                self.record.consumers += 1;
                let active_ms = Some(active_ms);
                self.consumer =
                    Some((name, ConsumerRecord { number, seen_ms, active_ms, pending: 0 }));
                Ok(())
            }
            StreamItem::Held(id) => {
                let (_, consumer) = self.consumer.as_mut().ok_or(BAD_DATA)?;
                let (record, is_held) = self.pending.get_mut(&here(id)).ok_or(BAD_DATA)?;
                if std::mem::replace(is_held, true) {
                    return Err(BAD_DATA.into());
                }
                record.consumer = consumer.number;
                consumer.pending += 1;
                Ok(())
            }
            _ => Err(BAD_DATA.into()),
        }
    }

    fn end_consumer(&mut self, stream: u64, put: &mut Put<'_>) -> Result<(), Fault> {
        let Some((name, record)) = self.consumer.take() else { return Ok(()) };
        let group = self.record.number;
        put(stream_member::consumer(stream, group, &name), record.encode())?;
        put(stream_member::consumer_name(stream, group, record.number), name)
    }
}

/// Reads the items of a stream, one after the other.
pub(super) fn read<E: From<rhumb::Error>>(
    txn: &Txn<'_>,
    meta: &StreamMeta,
    each: &mut impl FnMut(StreamItem) -> Result<(), E>,
) -> Result<(), E> {
    let entries = (
        Bound::Included(stream_member::entry(meta.id, StreamId::MIN)),
        Bound::Included(stream_member::entry(meta.id, StreamId::MAX)),
    );
    for pair in txn.scan(Space::Members, entries.0, entries.1, false)? {
        let (key, value) = pair?;
        let id = stream_member::entry_of(&key).ok_or_else(damaged)?;
        let words: Option<Vec<Vec<u8>>> = Fields::of(&value)
            .and_then(|fields| fields.map(|word| word.map(<[u8]>::to_vec)).collect());
        let mut words = words.ok_or_else(damaged)?.into_iter();
        let mut fields = Vec::new();
        while let (Some(field), Some(value)) = (words.next(), words.next()) {
            fields.push((field, value));
        }
        each(StreamItem::Entry { id: there(id), fields })?;
    }
    each(StreamItem::Info(rdb::StreamInfo {
        length: meta.length,
        last: there(meta.last),
        first: there(meta.first),
        removed_max: there(meta.max_deleted),
        added: meta.added,
    }))?;
    for pair in front(txn, &stream_member::group(meta.id, b""))? {
        let (key, value) = pair?;
        let record = GroupRecord::decode(&value).ok_or_else(damaged)?;
        let name = stream_member::group_of(&key).to_vec();
        each(StreamItem::Group { name, last: there(record.last), read: record.entries_read })?;
        read_group(txn, meta.id, record.number, each)?;
    }
    Ok(())
}

/// The entries of a page of what is pending.
fn page_of(key: &[u8], value: &[u8]) -> rhumb::Result<PageEntries> {
    let start = stream_member::pending_of(key).ok_or_else(damaged)?;
    decode_page(start, value).ok_or_else(damaged)
}

fn front(txn: &Txn<'_>, front: &[u8]) -> rhumb::Result<Scan> {
    let (from, to) = prefix_range(front);
    txn.scan(Space::Members, from, to, false)
}

fn read_group<E: From<rhumb::Error>>(
    txn: &Txn<'_>,
    stream: u64,
    group: u64,
    each: &mut impl FnMut(StreamItem) -> Result<(), E>,
) -> Result<(), E> {
    let ends = [StreamId::MIN, StreamId::MAX];
    let pending = ends.map(|id| Bound::Included(stream_member::pending(stream, group, id)));
    let [from, to] = pending;
    for pair in txn.scan(Space::Members, from, to, false)? {
        let (key, value) = pair?;
        for (id, record) in page_of(&key, &value)? {
            let (delivered_ms, deliveries) = (record.delivered_ms, record.count);
            each(StreamItem::Pending { id: there(id), delivered_ms, deliveries })?;
        }
    }
    for pair in front(txn, &stream_member::consumer(stream, group, b""))? {
        let (key, value) = pair?;
        let record = ConsumerRecord::decode(&value).ok_or_else(damaged)?;
        let name = stream_member::consumer_of(&key).to_vec();
        let active_ms = record.active_ms.unwrap_or(record.seen_ms);
        each(StreamItem::Consumer { name, seen_ms: record.seen_ms, active_ms })?;
        let [from, to] =
            ends.map(|id| Bound::Included(stream_member::owned(stream, group, record.number, id)));
        for pair in txn.scan(Space::Members, from, to, false)? {
            let start = stream_member::owned_of(&pair?.0).ok_or_else(damaged)?;
            let key = stream_member::pending(stream, group, start);
            let value = txn.member(&key)?.ok_or_else(damaged)?;
            for (id, held) in page_of(&key, &value)? {
                if held.consumer == record.number {
                    each(StreamItem::Held(there(id)))?;
                }
            }
        }
    }
    Ok(())
}
