//! A store of which a host publishes a copy: a sorted map, which its writers and the copy's loader
//! take turns with.

use std::{
    collections::BTreeMap,
    ops::Bound,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, OnceLock},
    thread::{self, JoinHandle},
};

use rhumb_remote::{Authority, Change, Host, Pair, Preset, Publisher, Result, Scan};

use crate::options;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// A sorted map whose changes are published.
#[derive(Default)]
pub(crate) struct Store {
    /// What the store's own readers see.
    map: Mutex<Map>,
    /// The number of the last commit. Held by a commit, and while a load takes its snapshot.
    commits: Mutex<u64>,
    publisher: OnceLock<Publisher>,
}

impl Store {
    /// A host that shares an empty store as a preset does, and the thread that loads its region,
    /// which ends with the host.
    pub(crate) fn share(dir: &Path, preset: Preset) -> (Arc<Self>, Host, JoinHandle<()>) {
        let store = Arc::new(Self::default());
        let authority: Arc<dyn Authority> = Arc::clone(&store) as _;
        let port = "127.0.0.1:0".parse().unwrap();
        let host = Host::listen(dir.join("socket")).listen_tcp(port);
        let host = host.share_of("k", options(preset), authority).start().unwrap();
        assert!(store.publisher.set(host.publisher("k").unwrap()).is_ok());
        let loader = {
            let store = Arc::clone(&store);
            thread::spawn(move || store.keep_loaded())
        };
        (store, host, loader)
    }

    fn publisher(&self) -> &Publisher {
        self.publisher.get().unwrap()
    }

    fn map(&self) -> MutexGuard<'_, Map> {
        self.map.lock().unwrap()
    }

    fn keep_loaded(&self) {
        while self.publisher().wait_for_reset() {
            let commits = self.commits.lock().unwrap();
            let Some(load) = self.publisher().begin_load() else { continue };
            let pairs = self.map().clone();
            drop(commits);
            load.finish(pairs.into_iter().map(Ok)).unwrap();
        }
    }

    /// Has the region loaded anew.
    pub(crate) fn reset(&self) {
        self.publisher().reset();
    }

    /// Makes changes as one, each a key with its value, or without one if it is removed.
    pub(crate) fn change(&self, changes: &[(&[u8], Option<&[u8]>)]) {
        let mut commits = self.commits.lock().unwrap();
        self.change_as(&mut commits, changes);
    }

    fn change_as(&self, commits: &mut u64, changes: &[(&[u8], Option<&[u8]>)]) {
        for (key, value) in changes {
            match value {
                Some(value) => self.publisher().insert(key, value),
                None => self.publisher().remove(key),
            }
        }
        let mut map = self.map();
        for (key, value) in changes {
            match value {
                Some(value) => drop(map.insert(key.to_vec(), value.to_vec())),
                None => drop(map.remove(*key)),
            }
        }
        drop(map);
        *commits += 1;
        self.publisher().publish(*commits);
    }
}

impl Authority for Store {
    fn get(&self, _keyspace: &str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.map().get(key).cloned())
    }

    fn multi_get(&self, _keyspace: &str, keys: &[&[u8]], _: usize) -> Result<Vec<Option<Vec<u8>>>> {
        let map = self.map();
        Ok(keys.iter().map(|key| map.get(*key).cloned()).collect())
    }

    fn scan(&self, _keyspace: &str, scan: &Scan<'_>) -> Result<(Vec<Pair>, bool)> {
        let (map, mut pairs, mut bytes) = (self.map(), Vec::new(), 0);
        let is_none = match (scan.from, scan.to) {
            (Bound::Included(from), Bound::Included(to)) => from > to,
            (Bound::Included(from) | Bound::Excluded(from), Bound::Excluded(to))
            | (Bound::Excluded(from), Bound::Included(to)) => from >= to,
            _ => false,
        };
        if is_none {
            return Ok((pairs, false));
        }
        let mut range = map.range::<[u8], _>((scan.from, scan.to));
        while let Some((key, value)) = if scan.reverse { range.next_back() } else { range.next() } {
            bytes += key.len() + value.len();
            if pairs.len() >= scan.limit || bytes > scan.bytes_max && !pairs.is_empty() {
                return Ok((pairs, true));
            }
            pairs.push((key.clone(), value.clone()));
        }
        Ok((pairs, false))
    }

    fn commit(&self, changes: &[Change<'_>]) -> Result<()> {
        let changes: Vec<_> = changes.iter().map(|change| (change.key, change.value)).collect();
        self.change(&changes);
        Ok(())
    }

    fn compare_and_swap(&self, change: &Change<'_>, expected: Option<&[u8]>) -> Result<bool> {
        let mut commits = self.commits.lock().unwrap();
        let swaps = self.map().get(change.key).map(Vec::as_slice) == expected;
        if swaps {
            self.change_as(&mut commits, &[(change.key, change.value)]);
        }
        Ok(swaps)
    }
}
