//! The pending entries of a group, page by page, as a command works on them.
//!
//! A page covers the identifiers from that in its key up to the next page's: so an entry is in the
//! page whose key is the last one that is not after it. Entries that are delivered together are
//! pages of their own. For each consumer that has entries of a page there is an empty member, by
//! which what a consumer has is found.

use std::collections::{BTreeMap, btree_map::Entry};

use super::bounds;
use crate::{
    encode::{
        PendingRecord, StreamId, stream_member,
        stream_page::{self, PAGE_ENTRIES, PageEntries},
    },
    fault::Fault,
    txn::{Txn, damaged},
};

/// A page that was looked at or made.
struct Page {
    entries: PageEntries,
    /// The consumers that have entries of it as it is stored; none if it is not.
    owners: Vec<u64>,
    is_stored: bool,
    is_changed: bool,
}

/// The pages of a group.
pub(super) struct Pages {
    stream: u64,
    group: u64,
    /// Those that were looked at or made, by the identifiers in their keys.
    known: BTreeMap<StreamId, Page>,
    /// The page that was made last for entries after all that are pending. A page that was made
    /// among these takes no such entry: there may be stored ones between.
    last: Option<StreamId>,
}

impl Pages {
    /// Those of a group of a stream; none was looked at.
    pub(super) fn new(stream: u64, group: u64) -> Self {
        Self { stream, group, known: BTreeMap::new(), last: None }
    }

    fn key(&self, start: StreamId) -> Vec<u8> {
        stream_member::pending(self.stream, self.group, start)
    }

    /// Where the page begins that covers an identifier, of those that are stored from `least` on.
    pub(super) fn start_of(
        &self,
        txn: &Txn<'_>,
        id: StreamId,
        least: StreamId,
    ) -> Result<Option<StreamId>, Fault> {
        let mut start = None;
        let range = bounds(|id| self.key(id), least, id);
        txn.visit_members(range, true, |key, _| {
            start = Some(stream_member::pending_of(key));
            false
        })?;
        Ok(start.map(|start| start.ok_or_else(damaged)).transpose()?)
    }

    /// The first page that is stored, of those from `least` on.
    pub(super) fn first(&self, txn: &Txn<'_>, least: StreamId) -> Result<Option<StreamId>, Fault> {
        let mut start = None;
        let range = bounds(|id| self.key(id), least, StreamId::MAX);
        txn.visit_members(range, false, |key, _| {
            start = Some(stream_member::pending_of(key));
            false
        })?;
        Ok(start.map(|start| start.ok_or_else(damaged)).transpose()?)
    }

    /// The page that covers an identifier, with the identifier in its key. No page is before
    /// `least`.
    fn covering(
        &mut self,
        txn: &Txn<'_>,
        id: StreamId,
        least: StreamId,
    ) -> Result<Option<(StreamId, &mut Page)>, Fault> {
        let known = self.known.range(..=id).next_back();
        let known = known.filter(|(start, page)| {
            **start == id || page.entries.last().is_some_and(|(last, _)| *last >= id)
        });
        let start = match known {
            Some((start, _)) => *start,
            None => match self.look_up(txn, id, least)? {
                Some(start) => start,
                None => return Ok(None),
            },
        };
        Ok(self.known.get_mut(&start).map(|page| (start, page)))
    }

    /// Reads the page that covers an identifier, or finds that it is known.
    fn look_up(
        &mut self,
        txn: &Txn<'_>,
        id: StreamId,
        least: StreamId,
    ) -> Result<Option<StreamId>, Fault> {
        // Most are the first ones of their pages, or come after those.
        let (mut start, mut value) = (id, txn.member(&self.key(id))?);
        if value.is_none() {
            let known = self.known.range(..=id).next_back().map(|(start, _)| *start);
            let stored = self.start_of(txn, id, least)?;
            let Some(last) = known.max(stored) else { return Ok(None) };
            start = last;
            if self.known.contains_key(&start) {
                return Ok(Some(start));
            }
            value = txn.member(&self.key(start))?;
        }
        let entries = value.and_then(|value| stream_page::decode(start, &value));
        let entries = entries.ok_or_else(damaged)?;
        let owners = stream_page::owners(&entries);
        self.known.insert(start, Page { entries, owners, is_stored: true, is_changed: false });
        Ok(Some(start))
    }

    /// What is known of an entry, if it is pending.
    pub(super) fn get(
        &mut self,
        txn: &Txn<'_>,
        id: StreamId,
        least: StreamId,
    ) -> Result<Option<PendingRecord>, Fault> {
        let Some((_, page)) = self.covering(txn, id, least)? else { return Ok(None) };
        let at = page.entries.binary_search_by_key(&id, |(id, _)| *id);
        Ok(at.ok().map(|at| page.entries[at].1))
    }

    /// Adds an entry that comes after all that are pending; returns where its page begins.
    pub(super) fn push(&mut self, id: StreamId, record: PendingRecord) -> StreamId {
        if let Some((start, page)) = self.known.iter_mut().next_back()
            && self.last == Some(*start)
            && page.entries.len() < PAGE_ENTRIES
            && page.entries.last().is_some_and(|(last, _)| *last < id)
        {
            page.entries.push((id, record));
            return *start;
        }
        self.add_page(id, vec![(id, record)]);
        self.last = Some(id);
        id
    }

    fn add_page(&mut self, start: StreamId, entries: PageEntries) {
        match self.known.entry(start) {
            // One that is empty now.
            Entry::Occupied(mut page) => {
                let page = page.get_mut();
                (page.entries, page.is_changed) = (entries, true);
            }
            Entry::Vacant(place) => {
                let (owners, is_stored, is_changed) = (Vec::new(), false, true);
                place.insert(Page { entries, owners, is_stored, is_changed });
            }
        }
    }

    /// Writes what is known of an entry; returns where its page begins.
    pub(super) fn put(
        &mut self,
        txn: &Txn<'_>,
        (id, record): (StreamId, PendingRecord),
        least: StreamId,
    ) -> Result<StreamId, Fault> {
        let Some((start, page)) = self.covering(txn, id, least)? else {
            self.add_page(id, vec![(id, record)]);
            return Ok(id);
        };
        let at = match page.entries.binary_search_by_key(&id, |(id, _)| *id) {
            Ok(at) => {
                page.entries[at].1 = record;
                page.is_changed = true;
                return Ok(start);
            }
            Err(at) => at,
        };
        if at == page.entries.len() && start != id && (page.is_stored || at >= PAGE_ENTRIES) {
            self.add_page(id, vec![(id, record)]);
            return Ok(id);
        }
        page.entries.insert(at, (id, record));
        page.is_changed = true;
        if page.entries.len() <= PAGE_ENTRIES {
            return Ok(start);
        }
        let rest = page.entries.split_off(PAGE_ENTRIES / 2);
        let first_of_rest = rest.first().map_or(id, |(id, _)| *id);
        self.add_page(first_of_rest, rest);
        Ok(start)
    }

    /// Removes an entry.
    pub(super) fn remove(
        &mut self,
        txn: &Txn<'_>,
        id: StreamId,
        least: StreamId,
    ) -> Result<(), Fault> {
        if let Some((_, page)) = self.covering(txn, id, least)?
            && let Ok(at) = page.entries.binary_search_by_key(&id, |(id, _)| *id)
        {
            page.entries.remove(at);
            page.is_changed = true;
        }
        Ok(())
    }

    /// Writes the pages that have changed; returns true if the one at `first` is gone.
    pub(super) fn save(&mut self, txn: &mut Txn<'_>, first: StreamId) -> bool {
        let (stream, group) = (self.stream, self.group);
        let mut is_first_gone = false;
        for (start, page) in std::mem::take(&mut self.known) {
            if !page.is_changed {
                continue;
            }
            let owners = stream_page::owners(&page.entries);
            let key = stream_member::pending(stream, group, start);
            if !page.entries.is_empty() {
                txn.put_member(key, stream_page::encode(start, &page.entries));
            } else {
                is_first_gone |= start == first;
                if page.is_stored {
                    txn.remove_member(key);
                }
            }
            for owner in owners.iter().filter(|owner| !page.owners.contains(owner)) {
                txn.put_member(stream_member::owned(stream, group, *owner, start), Vec::new());
            }
            for owner in page.owners.iter().filter(|owner| !owners.contains(owner)) {
                txn.remove_member(stream_member::owned(stream, group, *owner, start));
            }
        }
        is_first_gone
    }

    /// Shows the stored entries from one identifier to another until `look` returns false. No page
    /// is before `least`.
    pub(super) fn visit(
        &self,
        txn: &Txn<'_>,
        (from, to, least): (StreamId, StreamId, StreamId),
        reverse: bool,
        mut look: impl FnMut(StreamId, PendingRecord) -> Result<bool, Fault>,
    ) -> Result<(), Fault> {
        let begin = self.begin(txn, from, least)?;
        let mut done = Ok(());
        let mut show = |key: &[u8], value: &[u8]| -> Result<bool, Fault> {
            let start = stream_member::pending_of(key).ok_or_else(damaged)?;
            let entries = stream_page::decode(start, value).ok_or_else(damaged)?;
            let count = entries.len();
            for at in 0..count {
                let (id, record) = entries[if reverse { count - 1 - at } else { at }];
                if (from..=to).contains(&id) && !look(id, record)? {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        txn.visit_members(bounds(|id| self.key(id), begin, to), reverse, |key, value| {
            show(key, value).unwrap_or_else(|fault| {
                done = Err(fault);
                false
            })
        })?;
        done
    }

    /// The identifier from which on pages may have entries from `from` on.
    fn begin(&self, txn: &Txn<'_>, from: StreamId, least: StreamId) -> Result<StreamId, Fault> {
        debug_assert!(
            self.known.values().all(|page| !page.is_changed),
            "what has changed is not to be seen"
        );
        if from <= least {
            return Ok(least);
        }
        Ok(self.start_of(txn, from, least)?.unwrap_or(from))
    }

    /// As [`Pages::visit`], only those that a consumer has.
    pub(super) fn visit_owned(
        &self,
        txn: &Txn<'_>,
        consumer: u64,
        (from, to, least): (StreamId, StreamId, StreamId),
        mut look: impl FnMut(StreamId, PendingRecord) -> Result<bool, Fault>,
    ) -> Result<(), Fault> {
        let begin = self.begin(txn, from, least)?;
        let mut done = Ok(());
        let mut show = |key: &[u8]| -> Result<bool, Fault> {
            let start = stream_member::owned_of(key).ok_or_else(damaged)?;
            let value = txn.member(&self.key(start))?.ok_or_else(damaged)?;
            for (id, record) in stream_page::decode(start, &value).ok_or_else(damaged)? {
                let is_meant = record.consumer == consumer && (from..=to).contains(&id);
                if is_meant && !look(id, record)? {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        let key = |id| stream_member::owned(self.stream, self.group, consumer, id);
        txn.visit_members(bounds(key, begin, to), false, |key, _| {
            show(key).unwrap_or_else(|fault| {
                done = Err(fault);
                false
            })
        })?;
        done
    }
}
