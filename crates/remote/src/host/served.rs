//! Which keys of a keyspace a host serves, where several hosts have a part of them each.
//!
//! 1. A write is made while `Gate` is held for reading, after its keys were looked up. A change of
//!    what is served holds it for writing: once that returns, no write of other keys is made.
//! 2. An answer to a read is made first, and its keys are looked up then. What was read is not
//!    changed before the change of what is served can be seen. Nor was it read before its keys came
//!    to this host: an answer is made again if what is served has changed meanwhile. So an answer
//!    that passes was right.
//! 3. Readers of the region do the same with the generation in its header.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use arc_swap::ArcSwapOption;

use super::{Authority, Change, Pair, Scan};
use crate::{
    bounds::Bounds,
    client::{Address, Keyspace, RoutingTable},
    error::{Error, Result},
    message::{Reply, Table},
    ranges::{KeyRange, KeyRanges},
};

/// Pairs that are copied or removed at once: changes of what is served wait for no more.
const CHUNK_PAIRS: usize = 256;
/// Bytes of these pairs, but for the last.
const CHUNK_BYTES: usize = 1 << 20;

/// Which keys of a keyspace a host serves: ranges that it reads and writes for clients, and the
/// table that says where all others are. Clients of [`Cluster`](crate::Cluster) follow it; any
/// other client gets [`Error::Moved`] for keys outside.
///
/// ```
/// # fn main() -> rhumb_remote::Result<()> {
/// use rhumb_remote::{RoutingTable, Served};
///
/// let a = "unix:/run/a.sock".parse()?;
/// let b = "unix:/run/b.sock".parse()?;
/// let table = RoutingTable::new(1, [("", a), ("n", b)])?;
/// // What the table gives to a host, or ranges by hand.
/// let served = Served::by(&table, &"unix:/run/b.sock".parse()?);
/// let by_hand = Served::nothing().range("n", None).table(&table);
/// # Ok(())
/// # }
/// ```
///
/// # How keys go to another host
///
/// [`Host::serve`](crate::Host::serve) changes what a host serves while it runs. These steps move a
/// range from the host `a` to `b` without a lost write or a wrong answer. Between the third and the
/// fourth, clients ask again until a host serves the range.
///
/// 1. `a.serve` with the range [read-only](Served::read_only): reads go on, writes wait.
/// 2. [`b.copy_from`](crate::Host::copy_from) `a`.
/// 3. `a.serve` without the range, and with a table of the next epoch: from then on `a` answers for
///    none of its keys, and nobody reads them in its memory.
/// 4. `b.serve` with the range, and with that table. Its clients write again.
/// 5. `serve` of all other hosts with that table, at any time after the third step.
/// 6. [`a.remove_unserved`](crate::Host::remove_unserved), at any time after the third step.
///
/// Up to the second step all can be undone by serving what `a` served before. A client waits some
/// seconds for steps 1 to 4, so a large range is moved in parts. Those that write to a store
/// itself, and not to its host, are not kept from it.
#[derive(Clone, Debug, Default)]
pub struct Served {
    reads: KeyRanges,
    /// No keys but those that are read too.
    writes: KeyRanges,
    table: Option<RoutingTable>,
}

impl Served {
    /// No keys, and no table.
    #[must_use]
    pub fn nothing() -> Self {
        Self::default()
    }

    /// All ranges of a host by a table, and the table.
    #[must_use]
    pub fn by(table: &RoutingTable, server: &Address) -> Self {
        let ranges = table.ranges().filter(|(_, _, other)| *other == server);
        let served = ranges.fold(Self::nothing(), |all, (low, high, _)| all.range(low, high));
        served.table(table)
    }

    /// Adds the keys from `low` on, and before `high` if there is such an end.
    #[must_use]
    pub fn range(mut self, low: impl AsRef<[u8]>, high: Option<&[u8]>) -> Self {
        let range = KeyRange::new(low, high);
        self.reads.add(range.clone());
        self.writes.add(range);
        self
    }

    /// Has clients read the keys of a range, where they are served, and not write them.
    #[must_use]
    pub fn read_only(mut self, low: impl AsRef<[u8]>, high: Option<&[u8]>) -> Self {
        self.writes.remove(&KeyRange::new(low, high));
        self
    }

    /// Adds the table that clients are told.
    #[must_use]
    pub fn table(mut self, table: &RoutingTable) -> Self {
        self.table = Some(table.clone());
        self
    }

    fn epoch(&self) -> u64 {
        self.table.as_ref().map_or(0, RoutingTable::epoch)
    }

    fn check(&self, is_served: bool) -> Result<()> {
        if is_served { Ok(()) } else { Err(Error::Moved { epoch: self.epoch() }) }
    }
}

/// What a share serves now: everything, if nothing was said.
#[derive(Debug, Default)]
pub(super) struct Serving(ArcSwapOption<Served>);

impl Serving {
    /// Makes the answer to a read of a key; refuses it if the key is not served.
    ///
    /// # Errors
    ///
    /// [`Error::Moved`]; those of `make`.
    pub(super) fn answer<T>(&self, key: &[u8], make: impl FnMut() -> Result<T>) -> Result<T> {
        self.answer_if(|ranges| ranges.of(key).is_some(), make)
    }

    /// [`Serving::answer`] of several keys.
    pub(super) fn answer_all<'k, T>(
        &self,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
        make: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        self.answer_if(|ranges| keys.clone().all(|key| ranges.of(key).is_some()), make)
    }

    /// [`Serving::answer`] of all keys of a range.
    pub(super) fn answer_range<T>(
        &self,
        bounds: Bounds<&[u8]>,
        make: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        self.answer_if(|ranges| ranges.hold(bounds), make)
    }

    fn answer_if<T>(
        &self,
        is_served: impl Fn(&KeyRanges) -> bool,
        mut make: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        loop {
            let before = self.0.load();
            let answer = make()?;
            let after = self.0.load();
            match (&*before, &*after) {
                (None, None) => return Ok(answer),
                // planted: key-came-while-looked-called
                (Some(before), Some(after)) if Arc::ptr_eq(before, after) => {
                    return after.check(is_served(&after.reads)).map(|()| answer);
                }
                // A key may have come meanwhile that was read before it was here.
                _ => {}
            }
        }
    }

    /// Refuses a write of a key that is not served for writing. [`Gate::writes`] is held until the
    /// write is made.
    pub(super) fn check_write(&self, key: &[u8]) -> Result<()> {
        let served = self.0.load();
        let Some(served) = &*served else { return Ok(()) };
        // planted: host-writes-keys-not-serve
        served.check(served.writes.of(key).is_some())
    }

    /// Serves this from here on.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a table that is older than the present one.
    pub(super) fn set(&self, mut served: Served) -> Result<()> {
        let before = self.0.load_full();
        let table = before.and_then(|before| before.table.clone());
        if let Some(table) = table {
            if served.table.as_ref().is_some_and(|new| new.epoch() < table.epoch()) {
                let (new, old) = (served.epoch(), table.epoch());
                let what = format!("a routing table of epoch {new}, where this host has {old}");
                return Err(Error::InvalidArgument(what.into()));
            }
            served.table.get_or_insert(table);
        }
        self.0.store(Some(Arc::new(served)));
        Ok(())
    }

    /// The keys that are not served; all are if nothing was said.
    fn others(&self) -> KeyRanges {
        let ranges = self.0.load().as_ref().map(|served| served.reads.others());
        ranges.unwrap_or_default()
    }

    /// Has `tell` say which keys are served, in this generation, with the table if its epoch is
    /// above `above`.
    pub(super) fn describe<T>(
        &self,
        generation: u64,
        above: u64,
        tell: impl FnOnce(&Reply<'_>) -> T,
    ) -> T {
        let Some(served) = self.0.load_full() else {
            let ranges = vec![(&[][..], None)];
            return tell(&Reply::Routing { generation, ranges, table: None });
        };
        let ranges = served.reads.as_slice();
        let ranges = ranges.iter().map(|range| (&range.low[..], range.high.as_deref())).collect();
        let texts: Vec<String>;
        let table = match served.table.as_ref().filter(|table| table.epoch() > above) {
            None => None,
            Some(table) => {
                texts = table.ranges().map(|(_, _, server)| server.to_string()).collect();
                let lows = table.ranges().map(|(low, _, _)| low);
                let ranges = lows.zip(texts.iter().map(String::as_str)).collect();
                Some(Table { epoch: table.epoch(), ranges })
            }
        };
        tell(&Reply::Routing { generation, ranges, table })
    }
}

/// Keeps writes and changes of what is served apart.
#[derive(Debug, Default)]
pub(super) struct Gate(RwLock<()>);

impl Gate {
    /// For the time of a write.
    pub(super) fn writes(&self) -> RwLockReadGuard<'_, ()> {
        // It holds nothing.
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// For a change of what is served: waits for writes that are under way.
    pub(super) fn change(&self) -> RwLockWriteGuard<'_, ()> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A keyspace of a host, of which keys come or go.
pub(super) struct Moving<'s> {
    pub(super) name: &'s str,
    pub(super) authority: &'s dyn Authority,
    pub(super) serving: &'s Serving,
    pub(super) gate: &'s Gate,
}

impl Moving<'_> {
    /// Takes the pairs of a range over from another host, in place of what there is; returns their
    /// number.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if a key of the range is served; those of the source and of the
    /// authority.
    pub(super) fn copy_from(&self, source: &Keyspace, range: &KeyRange) -> Result<u64> {
        // planted: range-copied-mixed-there-before
        self.remove(range)?;
        let mut copied = 0;
        let (mut chunk, mut bytes) = (Vec::new(), 0);
        for pair in source.range::<&[u8]>(range.bounds()) {
            let (key, value) = pair?;
            (copied, bytes) = (copied + 1, bytes + key.len() + value.len());
            chunk.push((key, value));
            if chunk.len() >= CHUNK_PAIRS || bytes >= CHUNK_BYTES {
                self.insert(range, &std::mem::take(&mut chunk))?;
                bytes = 0;
            }
        }
        self.insert(range, &chunk)?;
        Ok(copied)
    }

    /// Removes all keys that are not served; returns their number.
    ///
    /// # Errors
    ///
    /// Those of the authority.
    pub(super) fn remove_unserved(&self) -> Result<u64> {
        let mut removed = 0;
        let all = self.serving.others();
        for range in all.as_slice() {
            removed += self.remove_while_unserved(range)?;
        }
        Ok(removed)
    }

    /// Removes the keys of a range; stops where they are served after all.
    fn remove_while_unserved(&self, range: &KeyRange) -> Result<u64> {
        match self.remove(range) {
            // They have come back meanwhile.
            Err(Error::InvalidArgument(_)) => Ok(0),
            removed => removed,
        }
    }

    fn remove(&self, range: &KeyRange) -> Result<u64> {
        let mut removed = 0;
        let (from, to) = range.bounds();
        let (limit, bytes_max) = (CHUNK_PAIRS, CHUNK_BYTES);
        let scan = Scan { from, to, reverse: false, limit, bytes_max };
        loop {
            let _write = self.gate.writes();
            self.check_unserved(range)?;
            let (pairs, more) = self.authority.scan(self.name, &scan)?;
            self.commit(pairs.iter().map(|(key, _)| (&key[..], None)))?;
            removed += pairs.len() as u64;
            if !more || pairs.is_empty() {
                return Ok(removed);
            }
        }
    }

    fn insert(&self, range: &KeyRange, pairs: &[Pair]) -> Result<()> {
        let _write = self.gate.writes();
        self.check_unserved(range)?;
        self.commit(pairs.iter().map(|(key, value)| (&key[..], Some(&value[..]))))
    }

    fn commit<'a>(
        &self,
        changes: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    ) -> Result<()> {
        let keyspace = self.name;
        let changes: Vec<Change<'_>> =
            changes.map(|(key, value)| Change { keyspace, key, value }).collect();
        if changes.is_empty() { Ok(()) } else { self.authority.commit(&changes) }
    }

    fn check_unserved(&self, range: &KeyRange) -> Result<()> {
        let others = self.serving.others();
        if range.is_empty() || others.hold(range.bounds()) {
            return Ok(());
        }
        let low = range.low.escape_ascii();
        let what = format!("keys from \"{low}\" on are served here: they change by writes alone");
        Err(Error::InvalidArgument(what.into()))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn serving(low: &str, high: &str) -> Served {
        Served::nothing().range(low, Some(high.as_bytes()))
    }

    /// A key that was looked for before it came to this host is looked for again.
    #[test]
    fn an_answer_is_of_what_is_served_while_it_is_made() {
        let serving_now = Serving::default();
        let looks = Cell::new(0);
        let answer = |next: &[Served]| {
            looks.set(0);
            serving_now.answer(b"k", || {
                let look = looks.replace(looks.get() + 1);
                next.get(look).map(|served| serving_now.set(served.clone())).transpose()?;
                Ok(look)
            })
        };
        assert_eq!(answer(&[]).unwrap(), 0);
        // Told for the first time, and then told the same again.
        assert_eq!(answer(&[serving("a", "z"), serving("a", "z")]).unwrap(), 2);
        assert!(matches!(answer(&[serving("a", "k")]), Err(Error::Moved { .. })));
        assert_eq!(looks.get(), 2);
        // It comes, and it goes and comes back.
        assert_eq!(answer(&[serving("a", "z")]).unwrap(), 1);
        assert_eq!(answer(&[serving("l", "z"), serving("a", "z")]).unwrap(), 2);
        assert!(matches!(answer(&[serving("l", "z")]), Err(Error::Moved { .. })));
    }
}
