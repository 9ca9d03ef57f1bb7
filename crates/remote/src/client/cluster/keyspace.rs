//! A keyspace as a client of several hosts has it.

use std::{
    collections::BTreeMap,
    ops::{Bound, RangeBounds},
    sync::Arc,
    thread,
};

use arc_swap::ArcSwap;

use super::{
    super::{Address, Counts, Keyspace, range::Pair},
    Attempts, RoutingTable,
    range::ClusterRange,
    servers::{ReadSettings, Servers, View},
};
use crate::{
    bounds::prefix_bounds,
    error::{Error, Result},
};

/// A keyspace of which several hosts have a range each. Cloning gives another handle of the same
/// one.
///
/// Does what [`Keyspace`] does for one host: reads look into the memory of hosts on this machine,
/// and ask those over TCP for a look into one leaf. Keys that move to another host meanwhile are
/// found there; while they move, operations wait for some seconds.
///
/// An error of a host is [`Error::Server`], which names the host and its keys. An operation on keys
/// that no host serves for longer than that fails with [`Error::Moved`] in it, and has changed
/// nothing.
#[derive(Clone, Debug)]
pub struct ClusterKeyspace {
    inner: Arc<HandlesInner>,
}

#[derive(Debug)]
struct HandlesInner {
    servers: Arc<Servers>,
    name: Vec<u8>,
    reads: ReadSettings,
    view: ArcSwap<View>,
}

/// A range of a table, and which of several keys it has.
type Group = (usize, Vec<usize>);

impl ClusterKeyspace {
    pub(super) fn new(servers: Arc<Servers>, name: &[u8], table: &RoutingTable) -> Self {
        Self::reading(servers, name.to_vec(), table, ReadSettings::default())
    }

    fn reading(
        servers: Arc<Servers>,
        name: Vec<u8>,
        table: &RoutingTable,
        reads: ReadSettings,
    ) -> Self {
        let view = ArcSwap::from_pointee(View::new(&servers, table, reads, None));
        Self { inner: Arc::new(HandlesInner { servers, name, reads, view }) }
    }

    /// The table that is followed now.
    #[must_use]
    pub fn table(&self) -> RoutingTable {
        self.inner.view.load().table.clone()
    }

    /// Follows a table from here on, if its epoch is above that of the present one. Hosts tell of
    /// newer tables by themselves; this is for those that can tell no more.
    pub fn set_table(&self, table: &RoutingTable) {
        self.inner.view.rcu(|view| {
            if view.table.epoch() >= table.epoch() {
                return Arc::clone(view);
            }
            Arc::new(View::new(&self.inner.servers, table, self.inner.reads, Some(view)))
        });
    }

    /// What reads and writes have cost so far, by hosts. Hosts that were not asked anything are not
    /// among them.
    #[must_use]
    pub fn counts(&self) -> Vec<(Address, Counts)> {
        let view = self.inner.view.load();
        view.opened().map(|(address, keyspace)| (address.clone(), keyspace.counts())).collect()
    }

    pub(super) fn view(&self) -> Arc<View> {
        self.inner.view.load_full()
    }

    pub(super) fn name(&self) -> &[u8] {
        &self.inner.name
    }

    /// Takes note that the host of a range by a view does not serve it: looks for a newer table, or
    /// waits if there is none.
    ///
    /// # Errors
    ///
    /// [`Error::Server`] after too many attempts.
    #[cold]
    pub(super) fn follow(
        &self,
        view: &View,
        range: usize,
        epoch: u64,
        attempts: &mut Attempts,
    ) -> Result<()> {
        let attempt = attempts.count as usize;
        if !attempts.again(self.inner.servers.patience()) {
            return Err(view.blamed(range, Error::Moved { epoch }));
        }
        if self.inner.view.load().table.epoch() > view.table.epoch() {
            return Ok(());
        }
        match view.newer_table(self.name(), range, attempt) {
            Some(table) => self.set_table(&table),
            None => attempts.pause(),
        }
        Ok(())
    }

    /// Has the host of a key do something.
    #[inline]
    fn ask<T>(&self, key: &[u8], mut act: impl FnMut(&Keyspace) -> Result<T>) -> Result<T> {
        let mut attempts = Attempts::default();
        loop {
            let view = self.inner.view.load();
            let range = view.table.range_of(key);
            match view.ask(self.name(), range, &mut act) {
                Err(Error::Moved { epoch }) => self.follow(&view, range, epoch, &mut attempts)?,
                done => return done,
            }
        }
    }

    /// The value of `key`.
    ///
    /// # Errors
    ///
    /// [`Error::Server`], as the operation of [`Keyspace`] has it for one host.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.get_into(key, &mut value)?.then_some(value))
    }

    /// Appends the value of `key` to `value`; returns false if the key is not there. Allocates
    /// nothing where `value` has room and no call is needed.
    ///
    /// # Errors
    ///
    /// As [`ClusterKeyspace::get`].
    pub fn get_into(&self, key: impl AsRef<[u8]>, value: &mut Vec<u8>) -> Result<bool> {
        let key = key.as_ref();
        self.ask(key, |keyspace| keyspace.get_into(key, value))
    }

    /// The values of several keys, in their order. Hosts over TCP are asked at the same time.
    ///
    /// # Errors
    ///
    /// As [`ClusterKeyspace::get`].
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>> {
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        let mut values = vec![None; keys.len()];
        let mut left: Vec<usize> = (0..keys.len()).collect();
        let mut attempts = Attempts::default();
        while !left.is_empty() {
            let view = self.view();
            let mut groups: BTreeMap<usize, Group> = BTreeMap::new();
            for index in left.drain(..) {
                let range = view.table.range_of(keys[index]);
                let group = groups.entry(view.table.server_index(range));
                group.or_insert_with(|| (range, Vec::new())).1.push(index);
            }
            let groups: Vec<Group> = groups.into_values().collect();
            let mut moved = None;
            let answers = self.ask_all(&view, &groups, &keys);
            for (answer, (range, group)) in answers.into_iter().zip(&groups) {
                match answer {
                    Ok(found) => {
                        group.iter().zip(found).for_each(|(index, value)| values[*index] = value);
                    }
                    Err(Error::Moved { epoch }) => {
                        left.extend(group);
                        moved = Some((*range, epoch));
                    }
                    Err(error) => return Err(error),
                }
            }
            if let Some((range, epoch)) = moved {
                self.follow(&view, range, epoch, &mut attempts)?;
            }
        }
        Ok(values)
    }

    /// Gets the keys of each group from its host, from those over TCP at the same time.
    fn ask_all(
        &self,
        view: &View,
        groups: &[Group],
        keys: &[&[u8]],
    ) -> Vec<Result<Vec<Option<Vec<u8>>>>> {
        let ask = |(range, group): &Group| {
            let wanted: Vec<&[u8]> = group.iter().map(|index| keys[*index]).collect();
            view.ask(self.name(), *range, |keyspace| keyspace.multi_get(&wanted))
        };
        let mut answers: Vec<Option<Result<_>>> = groups.iter().map(|_| None).collect();
        thread::scope(|scope| {
            let mut apart = Vec::new();
            let mut here = Vec::new();
            for (index, group) in groups.iter().enumerate() {
                // This thread asks as well.
                let is_mapped = !view.server(group.0).address.is_tcp();
                let started = (!is_mapped && index + 1 < groups.len()).then(|| {
                    let builder = thread::Builder::new().name("rhumb-multi-get".into());
                    builder.spawn_scoped(scope, || ask(group))
                });
                match started {
                    Some(Ok(thread)) => apart.push((index, thread)),
                    // Where there is no thread, one after the other.
                    Some(Err(_)) | None => here.push(index),
                }
            }
            for index in here {
                answers[index] = Some(ask(&groups[index]));
            }
            for (index, thread) in apart {
                let panicked = || Error::invalid("a read of this client's own did not end");
                answers[index] = Some(thread.join().unwrap_or_else(|_| Err(panicked())));
            }
        });
        answers.into_iter().flatten().collect()
    }

    /// The values of several keys at one moment, as
    /// [`Keyspace::multi_get_atomic`] has them; of one host alone.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for keys of several hosts, which have no moment in common;
    /// otherwise as [`ClusterKeyspace::get`].
    pub fn multi_get_atomic<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>> {
        let mut attempts = Attempts::default();
        loop {
            let view = self.view();
            let Some(range) = one_host(&view, keys.iter().map(AsRef::as_ref), READ)? else {
                return Ok(Vec::new());
            };
            match view.ask(self.name(), range, |keyspace| keyspace.multi_get_atomic(keys)) {
                Err(Error::Moved { epoch }) => self.follow(&view, range, epoch, &mut attempts)?,
                done => return done,
            }
        }
    }

    /// The first `limit` pairs of a range at one moment, as [`Keyspace::range_atomic`] has them; of
    /// keys that are one range of the table.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a range with keys of several ranges of the table, which have
    /// no moment in common; otherwise as [`ClusterKeyspace::get`].
    pub fn range_atomic<K: AsRef<[u8]>>(
        &self,
        range: impl RangeBounds<K>,
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let (from, to) = (range.start_bound(), range.end_bound());
        let (from, to) = (from.map(AsRef::as_ref), to.map(AsRef::as_ref));
        let (Bound::Included(first) | Bound::Excluded(first)) = from else {
            return self.range_atomic::<&[u8]>((Bound::Included(&&[][..]), to.as_ref()), limit);
        };
        let mut attempts = Attempts::default();
        loop {
            let view = self.view();
            let range = view.table.range_of(first);
            if !view.table.keys(range).holds((from, to)) {
                let server = view.table.server(range);
                let what = format!("the range goes beyond the keys of {server}: {READ}");
                return Err(Error::InvalidArgument(what.into()));
            }
            let read = |keyspace: &Keyspace| keyspace.range_atomic::<&[u8]>((from, to), limit);
            match view.ask(self.name(), range, read) {
                Err(Error::Moved { epoch }) => self.follow(&view, range, epoch, &mut attempts)?,
                done => return done,
            }
        }
    }

    /// The keys of a range with their values, from both ends, over all hosts that have some of
    /// them. Each part of it is as it was at some moment since the call; a write meanwhile may be
    /// seen or not.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> ClusterRange {
        let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        ClusterRange::new(self.clone(), owned(range.start_bound()), owned(range.end_bound()))
    }

    /// All keys with their values.
    pub fn iter(&self) -> ClusterRange {
        ClusterRange::new(self.clone(), Bound::Unbounded, Bound::Unbounded)
    }

    /// The keys that begin with `prefix`, with their values.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> ClusterRange {
        let (from, to) = prefix_bounds(prefix.as_ref());
        ClusterRange::new(self.clone(), from, to)
    }

    /// The smallest key with its value.
    ///
    /// # Errors
    ///
    /// As [`ClusterKeyspace::get`].
    pub fn first(&self) -> Result<Option<Pair>> {
        self.iter().limit(1).next().transpose()
    }

    /// The largest key with its value.
    ///
    /// # Errors
    ///
    /// As [`ClusterKeyspace::get`].
    pub fn last(&self) -> Result<Option<Pair>> {
        self.iter().limit(1).next_back().transpose()
    }

    /// Sets the value of `key`. When it returns, every read sees the write, by whatever client.
    ///
    /// # Errors
    ///
    /// As [`ClusterKeyspace::get`].
    pub fn insert(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.ask(key, |keyspace| keyspace.insert(key, value))
    }

    /// Removes `key`, if it is there.
    ///
    /// # Errors
    ///
    /// As [`ClusterKeyspace::get`].
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<()> {
        let key = key.as_ref();
        self.ask(key, |keyspace| keyspace.remove(key))
    }

    /// Sets the value of `key` to `new`, or removes it, if it has the value `expected`, or is not
    /// there if that is `None`; returns false otherwise.
    ///
    /// # Errors
    ///
    /// As [`ClusterKeyspace::get`].
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        let key = key.as_ref();
        self.ask(key, |keyspace| keyspace.compare_and_swap(key, expected, new))
    }
}

/// Handles for those that measure, as one host's have them.
impl ClusterKeyspace {
    /// Another keyspace over the same connections, which reads in another way.
    fn with_reads(&self, change: impl FnOnce(&mut ReadSettings)) -> Self {
        let (servers, name) = (Arc::clone(&self.inner.servers), self.inner.name.clone());
        let mut reads = self.inner.reads;
        change(&mut reads);
        Self::reading(servers, name, &self.table(), reads)
    }

    /// [`Keyspace::by_calls`] of every host.
    #[must_use]
    pub fn by_calls(&self) -> Self {
        self.with_reads(|reads| reads.by_calls = true)
    }

    /// [`Keyspace::counted`] of every host.
    #[doc(hidden)]
    #[must_use]
    pub fn counted(&self) -> Self {
        self.with_reads(|reads| reads.counted = true)
    }

    /// [`Keyspace::looks`] of all hosts together.
    #[doc(hidden)]
    #[must_use]
    pub fn looks(&self) -> u64 {
        self.view().opened().map(|(_, keyspace)| keyspace.looks()).sum()
    }

    /// [`Keyspace::calls`] of all hosts together.
    #[doc(hidden)]
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.view().opened().map(|(_, keyspace)| keyspace.calls()).sum()
    }
}

/// Said of reads at one moment.
const READ: &str = "only keys of one host are read at one moment";

/// A range of the host that has all of these keys; `None` without keys.
///
/// # Errors
///
/// [`Error::InvalidArgument`] that ends with `why` if several hosts have them.
pub(super) fn one_host<'k>(
    view: &View,
    keys: impl Iterator<Item = &'k [u8]>,
    why: &str,
) -> Result<Option<usize>> {
    let mut first: Option<usize> = None;
    for key in keys {
        let range = view.table.range_of(key);
        let first = *first.get_or_insert(range);
        if view.table.server_index(first) != view.table.server_index(range) {
            let (one, other) = (view.table.server(first), view.table.server(range));
            let what = format!("keys of {one} and of {other}: {why}");
            return Err(Error::InvalidArgument(what.into()));
        }
    }
    Ok(first)
}
