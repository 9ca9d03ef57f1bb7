//! What a store holds at every moment of a run, so that each answer can be judged.
//!
//! Every record has a version that counts its overwrites. A read must return a version that was
//! acknowledged before the read began or a later one that was issued before it ended; when nothing
//! is being written, exactly the last. Each record has one writing thread, so its versions are
//! issued in order.

use std::sync::{
    OnceLock,
    atomic::{
        AtomicU32, AtomicU64,
        Ordering::{Acquire, Release},
    },
};

use anyhow::{Result, bail};

use crate::{
    data::KeySet,
    subject::{Session, WriteGroup},
    value::Values,
};

/// The keys of a run with the versions that one subject's store has of them.
#[derive(Debug)]
pub struct Contents<'a> {
    /// The keys; a record is named by its rank among them.
    pub set: &'a KeySet,
    /// The maker of all values.
    pub values: Values,
    /// Absent as long as nothing was overwritten: then all versions are 0, and reads are judged
    /// without a look at memory that would slow them.
    versions: OnceLock<Versions>,
    /// Counts groups of writes that became visible.
    commits: AtomicU64,
}

#[derive(Debug)]
struct Versions {
    issued: Vec<AtomicU32>,
    acknowledged: Vec<AtomicU32>,
}

impl<'a> Contents<'a> {
    /// The contents after all keys of `set` were written once.
    #[must_use]
    pub fn new(set: &'a KeySet, values: Values) -> Self {
        Self { set, values, versions: OnceLock::new(), commits: AtomicU64::new(0) }
    }

    /// The key of a record.
    #[inline]
    #[must_use]
    pub fn key(&self, rank: u32) -> &'a [u8] {
        self.set.keys.get(rank as usize)
    }

    /// How many records there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.set.keys.len()
    }

    /// Whether there are no records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Prepares for overwrites: 8 bytes of memory for each record.
    pub fn expect_overwrites(&self) {
        self.versions.get_or_init(|| {
            let zeros = || (0..self.len()).map(|_| AtomicU32::new(0)).collect();
            Versions { issued: zeros(), acknowledged: zeros() }
        });
    }

    /// The memory that preparing for overwrites took, in bytes.
    #[must_use]
    pub fn version_bytes(&self) -> u64 {
        self.versions.get().map_or(0, |_| 8 * self.len() as u64)
    }

    /// The lowest version that a read which begins now may return.
    #[inline]
    #[must_use]
    pub fn lowest(&self, rank: u32) -> u32 {
        self.versions.get().map_or(0, |v| v.acknowledged[rank as usize].load(Acquire))
    }

    /// Judges the value that a read of the record returned; `lowest` was asked before the read.
    ///
    /// # Errors
    /// If it is not a value of this key, is older than `lowest`, or was never written.
    #[inline]
    pub fn verify(&self, rank: u32, key: &[u8], value: &[u8], lowest: u32) -> Result<()> {
        let highest = || self.versions.get().map_or(0, |v| v.issued[rank as usize].load(Acquire));
        match self.values.version_of(key, value) {
            Some(version) if version >= lowest && version <= highest() => Ok(()),
            Some(version) => bail!(
                "key {} has version {version}, not {lowest} to {}",
                key.escape_ascii(),
                highest()
            ),
            None => bail!("key {} has a value that was never written to it", key.escape_ascii()),
        }
    }

    /// How many groups of writes became visible so far. A reader that holds a snapshot refreshes
    /// it when this has changed since; it must ask for [`Contents::lowest`] first.
    #[inline]
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.commits.load(Acquire)
    }

    fn issue(&self, rank: u32) -> u32 {
        self.versions.get().map_or(0, |v| v.issued[rank as usize].fetch_add(1, Release) + 1)
    }

    fn acknowledge(&self, rank: u32, version: u32) {
        if let Some(v) = self.versions.get() {
            v.acknowledged[rank as usize].store(version, Release);
        }
    }
}

/// Gathers one thread's writes into groups and keeps the versions.
pub struct Writer<'a> {
    contents: &'a Contents<'a>,
    group_size: usize,
    group: WriteGroup,
    pending: Vec<(u32, u32)>,
}

impl<'a> Writer<'a> {
    /// Writes in transactions of `group_size`.
    #[must_use]
    pub fn new(contents: &'a Contents<'a>, group_size: usize) -> Self {
        Self { contents, group_size, group: WriteGroup::default(), pending: Vec::new() }
    }

    /// Writes a record for the first time.
    #[inline]
    pub fn insert(&mut self, session: &mut dyn Session, rank: u32, key: &[u8]) -> Result<()> {
        self.put(session, rank, key, 0)
    }

    /// Writes a record's next version. Only one thread may do so for each record.
    #[inline]
    pub fn overwrite(&mut self, session: &mut dyn Session, rank: u32, key: &[u8]) -> Result<()> {
        let version = self.contents.issue(rank);
        self.put(session, rank, key, version)
    }

    fn put(
        &mut self,
        session: &mut dyn Session,
        rank: u32,
        key: &[u8],
        version: u32,
    ) -> Result<()> {
        let values = &self.contents.values;
        self.group.push(key, |out| values.append(key, version, out));
        if version > 0 {
            self.pending.push((rank, version));
        }
        if self.group.len() >= self.group_size {
            self.flush(session)?;
        }
        Ok(())
    }

    /// How many entries are gathered and not written yet.
    #[must_use]
    pub fn gathered(&self) -> usize {
        self.group.len()
    }

    /// Writes what is gathered.
    pub fn flush(&mut self, session: &mut dyn Session) -> Result<()> {
        if self.group.is_empty() {
            return Ok(());
        }
        session.write(&self.group)?;
        self.group.clear();
        // The count goes up before the versions do: a thread that sees a version sees that it must
        // refresh its snapshot.
        if self.group_size > 1 {
            self.contents.commits.fetch_add(1, Release);
        }
        for (rank, version) in self.pending.drain(..) {
            self.contents.acknowledge(rank, version);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Request;

    #[test]
    fn only_versions_between_acknowledged_and_issued_are_accepted() {
        let set = KeySet::load(&Request { keys: Some(10), ..Request::default() }).expect("keys");
        let contents = Contents::new(&set, Values::new(20, 0, 1).expect("valid"));
        let key = contents.key(3);
        let value = |version| {
            let mut out = Vec::new();
            contents.values.fill(key, version, &mut out);
            out
        };
        let accepts =
            |version| contents.verify(3, key, &value(version), contents.lowest(3)).is_ok();
        assert!(accepts(0) && !accepts(1));
        contents.expect_overwrites();
        assert!(accepts(0) && !accepts(1));
        let version = contents.issue(3);
        assert!(accepts(0) && accepts(1) && !accepts(2));
        contents.acknowledge(3, version);
        assert!(!accepts(0) && accepts(1) && !accepts(2));
        assert!(contents.verify(2, contents.key(2), &value(1), 0).is_err(), "another key's value");
    }
}
