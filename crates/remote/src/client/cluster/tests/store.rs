//! A store of which a host publishes a copy.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock},
    thread,
};

use super::*;
use crate::{Authority, Change, Pair, Publisher, Scan};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// A sorted map whose changes are published.
#[derive(Default)]
pub(super) struct Store {
    /// What the store's own readers see.
    map: Mutex<Map>,
    /// The number of the last commit. Held by a commit, and while a load takes its snapshot.
    commits: Mutex<u64>,
    publisher: OnceLock<Publisher>,
}

impl Store {
    /// Has the region of a host loaded, and again after each reset, until the host ends. Returns
    /// when clients read it.
    pub(super) fn keep_loaded(self: &Arc<Self>, host: &Host) {
        assert!(self.publisher.set(host.publisher(NAME).unwrap()).is_ok());
        let store = Arc::clone(self);
        thread::spawn(move || {
            let publisher = store.publisher();
            while publisher.wait_for_reset() {
                let commits = store.commits.lock().unwrap();
                let Some(load) = publisher.begin_load() else { continue };
                let pairs = store.map().clone();
                drop(commits);
                load.finish(pairs.into_iter().map(Ok)).unwrap();
            }
        });
        while !self.publisher().stats().is_live {
            thread::yield_now();
        }
    }

    fn publisher(&self) -> &Publisher {
        self.publisher.get().unwrap()
    }

    fn map(&self) -> MutexGuard<'_, Map> {
        self.map.lock().unwrap()
    }

    fn change(&self, commits: &mut u64, changes: &[Change<'_>]) {
        for change in changes {
            match change.value {
                Some(value) => self.publisher().insert(change.key, value),
                None => self.publisher().remove(change.key),
            }
        }
        let mut map = self.map();
        for change in changes {
            match change.value {
                Some(value) => drop(map.insert(change.key.to_vec(), value.to_vec())),
                None => drop(map.remove(change.key)),
            }
        }
        drop(map);
        *commits += 1;
        self.publisher().publish(*commits);
    }
}

impl Authority for Store {
    fn get(&self, _: &str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.map().get(key).cloned())
    }

    fn multi_get(&self, _: &str, keys: &[&[u8]], _: usize) -> Result<Vec<Option<Vec<u8>>>> {
        let map = self.map();
        Ok(keys.iter().map(|key| map.get(*key).cloned()).collect())
    }

    fn scan(&self, _: &str, scan: &Scan<'_>) -> Result<(Vec<Pair>, bool)> {
        let map = self.map();
        if crate::bounds::common((scan.from, scan.to), (scan.from, scan.to)).is_none() {
            return Ok((Vec::new(), false));
        }
        let owned = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone());
        let range = map.range::<[u8], _>((scan.from, scan.to)).map(owned);
        let most = scan.limit.saturating_add(1);
        let mut pairs: Vec<Pair> = if scan.reverse {
            range.rev().take(most).collect()
        } else {
            range.take(most).collect()
        };
        let more = pairs.len() > scan.limit;
        pairs.truncate(scan.limit);
        Ok((pairs, more))
    }

    fn commit(&self, changes: &[Change<'_>]) -> Result<()> {
        self.change(&mut self.commits.lock().unwrap(), changes);
        Ok(())
    }

    fn compare_and_swap(&self, change: &Change<'_>, expected: Option<&[u8]>) -> Result<bool> {
        let mut commits = self.commits.lock().unwrap();
        let swaps = self.map().get(change.key).map(Vec::as_slice) == expected;
        if swaps {
            self.change(&mut commits, std::slice::from_ref(change));
        }
        Ok(swaps)
    }
}
