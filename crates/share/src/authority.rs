//! What clients ask of the engine.

use std::{collections::BTreeMap, fmt, sync::Arc};

use rhumb::{Batch, Database, Keyspace, Snapshot};
use rhumb_remote::{Authority, Change, Error, Pair, Result, Scan};

/// The keyspace that a share stands for.
#[derive(Clone)]
pub struct Source {
    pub(crate) keyspace: Arc<dyn Fn() -> rhumb::Result<Keyspace> + Send + Sync>,
    pub(crate) refusal: Option<&'static str>,
    pub(crate) removes_expired: bool,
}

impl Source {
    /// A keyspace, which clients may write to.
    #[must_use]
    pub fn of(keyspace: Keyspace) -> Self {
        Self::chosen(move || Ok(keyspace.clone()))
    }

    /// The keyspace that `choose` gives, which may be another one from time to time: a change is
    /// made while the share is [paused](crate::Shared::pause). It must always be of the same
    /// database.
    pub fn chosen(choose: impl Fn() -> rhumb::Result<Keyspace> + Send + Sync + 'static) -> Self {
        Self { keyspace: Arc::new(choose), refusal: None, removes_expired: false }
    }

    /// Refuses the writes of clients, with a text that says where they belong.
    #[must_use]
    pub fn read_only(mut self, refusal: &'static str) -> Self {
        self.refusal = Some(refusal);
        self
    }

    /// Shares a keyspace though entries in it expire: the program removes each of them by a write
    /// before the time comes by the database's clock (`rhumb::io::Clock::expiry_ms`), which is the
    /// program's own. Otherwise clients have to ask for such a keyspace.
    #[must_use]
    pub fn removes_expired(mut self) -> Self {
        self.removes_expired = true;
        self
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("is_read_only", &self.refusal.is_some()).finish()
    }
}

/// Keys that the engine is asked for at once: a large value that a client asks for again and again
/// is in memory this often at most, and the reads of this many overlap.
const KEYS_AT_ONCE: usize = 32;

/// Commits a batch of a client.
pub(crate) type Commit = Arc<dyn Fn(Batch) -> rhumb::Result<()> + Send + Sync>;

/// A database, as a host asks it.
pub(crate) struct Engine {
    pub(crate) database: Database,
    pub(crate) sources: BTreeMap<String, Source>,
    pub(crate) commit: Commit,
}

/// An error of the engine, as a client is told of it.
pub(crate) fn told(error: &rhumb::Error) -> Error {
    match error {
        rhumb::Error::InvalidArgument(text) => Error::refused(text.clone()),
        error => Error::failed(error.to_string()),
    }
}

impl Engine {
    fn source(&self, name: &str) -> Result<&Source> {
        let unknown = || Error::refused(format!("no keyspace {name:?} is shared here"));
        self.sources.get(name).ok_or_else(unknown)
    }

    fn keyspace(&self, name: &str) -> Result<Keyspace> {
        (self.source(name)?.keyspace)().map_err(|error| told(&error))
    }

    /// The keyspace, if clients may write to it.
    fn writable(&self, name: &str) -> Result<Keyspace> {
        match self.source(name)?.refusal {
            Some(refusal) => Err(Error::refused(refusal)),
            None => self.keyspace(name),
        }
    }

    /// A snapshot that no earlier answer is ahead of.
    fn snapshot(&self) -> Result<Snapshot> {
        self.database.snapshot_after_commits().map_err(|error| told(&error))
    }

    fn pairs(
        snapshot: &Snapshot,
        keyspace: &Keyspace,
        scan: &Scan<'_>,
    ) -> rhumb::Result<(Vec<Pair>, bool)> {
        let mut pairs = snapshot.keyspace(keyspace)?.range((scan.from, scan.to));
        let (mut found, mut bytes) = (Vec::new(), 0);
        while let Some(pair) = if scan.reverse { pairs.next_back() } else { pairs.next() } {
            let (key, value) = pair?;
            bytes += key.len() + value.len();
            if found.len() >= scan.limit || bytes > scan.bytes_max && !found.is_empty() {
                return Ok((found, true));
            }
            found.push((key.to_vec(), value.to_vec()));
        }
        Ok((found, false))
    }
}

impl Authority for Engine {
    fn get(&self, keyspace: &str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let found = self.keyspace(keyspace)?.get(key).map_err(|error| told(&error))?;
        Ok(found.map(|value| value.to_vec()))
    }

    fn multi_get(
        &self,
        keyspace: &str,
        keys: &[&[u8]],
        bytes_max: usize,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let (keyspace, snapshot) = (self.keyspace(keyspace)?, self.snapshot()?);
        let (mut values, mut left) = (Vec::with_capacity(keys.len()), bytes_max);
        for some in keys.chunks(KEYS_AT_ONCE) {
            for value in snapshot
                .keyspace(&keyspace)
                .map_err(|error| told(&error))?
                .multi_get(some)
                .map_err(|error| told(&error))?
            {
                let rest = left.checked_sub(value.as_ref().map_or(0, |value| value.len()));
                left = rest.ok_or_else(|| Error::too_large("the values do not fit a message"))?;
                values.push(value.map(|value| value.to_vec()));
            }
        }
        Ok(values)
    }

    fn scan(&self, keyspace: &str, scan: &Scan<'_>) -> Result<(Vec<Pair>, bool)> {
        let keyspace = self.keyspace(keyspace)?;
        Self::pairs(&self.snapshot()?, &keyspace, scan).map_err(|error| told(&error))
    }

    fn commit(&self, changes: &[Change<'_>]) -> Result<()> {
        let mut batch = self.database.batch();
        let mut keyspaces: BTreeMap<&str, Keyspace> = BTreeMap::new();
        for change in changes {
            if !keyspaces.contains_key(change.keyspace) {
                keyspaces.insert(change.keyspace, self.writable(change.keyspace)?);
            }
            let keyspace = &keyspaces[change.keyspace];
            match change.value {
                Some(value) => batch.insert(keyspace, change.key, value),
                None => batch.remove(keyspace, change.key),
            }
        }
        (self.commit)(batch).map_err(|error| told(&error))
    }

    fn compare_and_swap(&self, change: &Change<'_>, expected: Option<&[u8]>) -> Result<bool> {
        let keyspace = self.writable(change.keyspace)?;
        let swapped = keyspace.compare_and_swap(change.key, expected, change.value);
        swapped.map_err(|error| told(&error))
    }
}
