//! A group as a command works on it: what was read of it and its consumers, and what has changed.

use std::collections::BTreeMap;

use super::pages::Pages;
use crate::{
    encode::{ConsumerRecord, GroupRecord, PendingRecord, StreamId, stream_member},
    fault::Fault,
    key_event::KeyEvent,
    txn::{Txn, damaged},
};

/// A consumer of a group.
pub(super) struct Consumer {
    pub(super) name: Vec<u8>,
    pub(super) record: ConsumerRecord,
    is_changed: bool,
}

/// A group of a stream.
pub(super) struct Group {
    /// The stream's number.
    stream: u64,
    name: Vec<u8>,
    pub(super) record: GroupRecord,
    /// The consumers that were looked at or made, by their numbers.
    consumers: BTreeMap<u64, Consumer>,
    pages: Pages,
}

impl Group {
    /// The group of this name, if there is one.
    pub(super) fn find(txn: &Txn<'_>, stream: u64, name: &[u8]) -> Result<Option<Self>, Fault> {
        let Some(record) = txn.member(&stream_member::group(stream, name))? else {
            return Ok(None);
        };
        Self::of(stream, name, &record).map(Some)
    }

    /// The group with this record.
    pub(super) fn of(stream: u64, name: &[u8], record: &[u8]) -> Result<Self, Fault> {
        let record = GroupRecord::decode(record).ok_or_else(damaged)?;
        Ok(Self::new(stream, name, record))
    }

    /// A group that has no consumers yet, or whose consumers are looked up.
    pub(super) fn new(stream: u64, name: &[u8], record: GroupRecord) -> Self {
        let (name, consumers) = (name.to_vec(), BTreeMap::new());
        let pages = Pages::new(stream, record.number);
        Self { stream, name, record, consumers, pages }
    }

    /// The number of the consumer of this name, if there is one.
    pub(super) fn consumer(&mut self, txn: &Txn<'_>, name: &[u8]) -> Result<Option<u64>, Fault> {
        let known = self.consumers.iter().find(|(_, consumer)| consumer.name == name);
        if let Some((number, _)) = known {
            return Ok(Some(*number));
        }
        let key = stream_member::consumer(self.stream, self.record.number, name);
        let Some(record) = txn.member(&key)? else { return Ok(None) };
        let record = ConsumerRecord::decode(&record).ok_or_else(damaged)?;
        let consumer = Consumer { name: name.to_vec(), record, is_changed: false };
        self.consumers.insert(record.number, consumer);
        Ok(Some(record.number))
    }

    /// The number of the consumer of this name, which is made if there is none, and has been heard
    /// of now. Tells of one that is made.
    pub(super) fn make_consumer(
        &mut self,
        txn: &mut Txn<'_>,
        name: &[u8],
        key: &[u8],
    ) -> Result<u64, Fault> {
        if let Some(number) = self.consumer(txn, name)? {
            self.change(txn, number, |record, now_ms| record.seen_ms = now_ms)?;
            return Ok(number);
        }
        let number = self.record.next_consumer;
        self.record.next_consumer += 1;
        self.record.consumers += 1;
        let record = ConsumerRecord { number, seen_ms: txn.now_ms, active_ms: None, pending: 0 };
        let name_key = stream_member::consumer_name(self.stream, self.record.number, number);
        txn.put_member(name_key, name.to_vec());
        txn.notify(KeyEvent::stream("xgroup-createconsumer"), key);
        self.consumers.insert(number, Consumer { name: name.to_vec(), record, is_changed: true });
        Ok(number)
    }

    /// The consumer of this number.
    pub(super) fn numbered(&mut self, txn: &Txn<'_>, number: u64) -> Result<&Consumer, Fault> {
        if !self.consumers.contains_key(&number) {
            let key = stream_member::consumer_name(self.stream, self.record.number, number);
            let name = txn.member(&key)?.ok_or_else(damaged)?;
            self.consumer(txn, &name)?;
        }
        Ok(self.consumers.get(&number).ok_or_else(damaged)?)
    }

    /// Changes what is known of a consumer.
    pub(super) fn change(
        &mut self,
        txn: &Txn<'_>,
        number: u64,
        change: impl FnOnce(&mut ConsumerRecord, u64),
    ) -> Result<(), Fault> {
        self.numbered(txn, number)?;
        if let Some(consumer) = self.consumers.get_mut(&number) {
            change(&mut consumer.record, txn.now_ms);
            consumer.is_changed = true;
        }
        Ok(())
    }

    /// The front of the keys of all consumers.
    pub(super) fn consumers_front(&self) -> Vec<u8> {
        stream_member::consumer(self.stream, self.record.number, &[])
    }

    /// Returns true if the record says that nothing is pending from one identifier to another.
    fn has_none(&self, from: StreamId, to: StreamId) -> bool {
        let record = &self.record;
        let is_outside = to < record.first_page || from > record.last_pending;
        record.pending == 0 || from > to || is_outside
    }

    /// What is known of an entry, if it is pending.
    pub(super) fn pending(
        &mut self,
        txn: &Txn<'_>,
        id: StreamId,
    ) -> Result<Option<PendingRecord>, Fault> {
        if self.has_none(id, id) {
            return Ok(None);
        }
        self.pages.get(txn, id, self.record.first_page)
    }

    /// Shows the pending entries from one identifier to another until `look` returns false. What
    /// has changed was saved before.
    pub(super) fn visit_pending(
        &self,
        txn: &Txn<'_>,
        (from, to): (StreamId, StreamId),
        reverse: bool,
        look: impl FnMut(StreamId, PendingRecord) -> Result<bool, Fault>,
    ) -> Result<(), Fault> {
        if self.has_none(from, to) {
            return Ok(());
        }
        self.pages.visit(txn, (from, to, self.record.first_page), reverse, look)
    }

    /// As [`Group::visit_pending`], only those of a consumer.
    pub(super) fn visit_owned(
        &self,
        txn: &Txn<'_>,
        consumer: u64,
        (from, to): (StreamId, StreamId),
        look: impl FnMut(StreamId, PendingRecord) -> Result<bool, Fault>,
    ) -> Result<(), Fault> {
        if self.has_none(from, to) {
            return Ok(());
        }
        self.pages.visit_owned(txn, consumer, (from, to, self.record.first_page), look)
    }

    /// Notes what is now known of a pending entry, which was that before.
    pub(super) fn put_pending(
        &mut self,
        txn: &Txn<'_>,
        id: StreamId,
        before: Option<&PendingRecord>,
        now: &PendingRecord,
    ) -> Result<(), Fault> {
        let is_only = self.record.pending == 0;
        let start = if is_only || id > self.record.last_pending {
            self.pages.push(id, *now)
        } else {
            self.pages.put(txn, (id, *now), self.record.first_page)?
        };
        if is_only || start < self.record.first_page {
            self.record.first_page = start;
        }
        if is_only || id > self.record.last_pending {
            self.record.last_pending = id;
        }
        if before.is_some_and(|before| before.consumer == now.consumer) {
            return Ok(());
        }
        match before {
            Some(before) => self.change(txn, before.consumer, |record, _| {
                record.pending = record.pending.saturating_sub(1);
            })?,
            None => self.record.pending += 1,
        }
        self.change(txn, now.consumer, |record, _| record.pending += 1)
    }

    /// Removes a pending entry.
    pub(super) fn remove_pending(
        &mut self,
        txn: &Txn<'_>,
        id: StreamId,
        record: &PendingRecord,
    ) -> Result<(), Fault> {
        self.pages.remove(txn, id, self.record.first_page)?;
        self.record.pending = self.record.pending.saturating_sub(1);
        self.change(txn, record.consumer, |record, _| {
            record.pending = record.pending.saturating_sub(1);
        })
    }

    /// Removes a consumer, which has no pending entries.
    pub(super) fn remove_consumer(&mut self, txn: &mut Txn<'_>, number: u64) -> Result<(), Fault> {
        self.numbered(txn, number)?;
        if let Some(consumer) = self.consumers.remove(&number) {
            let (stream, group) = (self.stream, self.record.number);
            txn.remove_member(stream_member::consumer(stream, group, &consumer.name));
            txn.remove_member(stream_member::consumer_name(stream, group, number));
            self.record.consumers = self.record.consumers.saturating_sub(1);
        }
        Ok(())
    }

    /// Writes what has changed of the group and its consumers.
    pub(super) fn save(mut self, txn: &mut Txn<'_>) -> Result<(), Fault> {
        let first = self.record.first_page;
        let is_first_gone = self.pages.save(txn, first);
        if self.record.pending == 0 {
            (self.record.first_page, self.record.last_pending) = (StreamId::MIN, StreamId::MIN);
        } else if is_first_gone {
            self.record.first_page = self.pages.first(txn, first)?.unwrap_or(first);
        }
        let (stream, group) = (self.stream, self.record.number);
        for consumer in self.consumers.values().filter(|consumer| consumer.is_changed) {
            let key = stream_member::consumer(stream, group, &consumer.name);
            txn.put_member(key, consumer.record.encode());
        }
        txn.put_member(stream_member::group(stream, &self.name), self.record.encode());
        Ok(())
    }
}
