//! A store in memory for the harness's own tests, with faults to plant: a harness that accepts a
//! faulty store measures nothing.

use std::{collections::BTreeMap, ops::Bound, path::Path, sync::Mutex};

use anyhow::Result;

use crate::subject::{
    Engine, FileCache, OnAnswer, OnEntry, OnValue, Session, Store, Tuning, WriteGroup,
};

/// What a faulty store does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Forgets every hundredth write.
    LosesWrites,
    /// Returns the value of the key before.
    WrongValue,
    /// Changes the last byte of values.
    ChangedByte,
    /// Keeps the first value written to a key.
    StaleValue,
    /// Finds keys that were never written.
    PhantomKey,
    /// Leaves out an entry of a scan.
    ScanSkips,
    /// Ends scans early.
    ScanEnds,
    /// Comes to an entry twice.
    ScanRepeats,
    /// Leaves one key of a multi-get unanswered.
    MultiGetForgets,
}

impl Fault {
    pub(crate) const ALL: [Self; 9] = [
        Self::LosesWrites,
        Self::WrongValue,
        Self::ChangedByte,
        Self::StaleValue,
        Self::PhantomKey,
        Self::ScanSkips,
        Self::ScanEnds,
        Self::ScanRepeats,
        Self::MultiGetForgets,
    ];
}

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Stores by directory, so that closing one keeps what it holds.
#[derive(Debug, Default)]
pub(crate) struct ModelEngine {
    pub(crate) name: &'static str,
    pub(crate) fault: Option<Fault>,
    pub(crate) write_group: usize,
    stores: Mutex<BTreeMap<std::path::PathBuf, &'static Mutex<Map>>>,
}

impl ModelEngine {
    pub(crate) fn new(name: &'static str, write_group: usize, fault: Option<Fault>) -> Self {
        Self { name, fault, write_group, stores: Mutex::default() }
    }
}

impl Engine for ModelEngine {
    fn name(&self) -> &'static str {
        self.name
    }

    fn options(&self, _: &Tuning) -> String {
        "a map".into()
    }

    fn write_group(&self) -> usize {
        self.write_group
    }

    fn file_cache(&self) -> FileCache {
        FileCache::Buffered
    }

    fn open(&self, directory: &Path, _: &Tuning) -> Result<Box<dyn Store>> {
        let mut stores = self.stores.lock().expect("not poisoned");
        let marker = directory.join("exists");
        if !marker.exists() {
            stores.remove(directory);
            std::fs::write(marker, b"model")?;
        }
        let map = *stores.entry(directory.to_owned()).or_insert_with(|| Box::leak(Box::default()));
        Ok(Box::new(ModelStore { map, fault: self.fault }))
    }
}

struct ModelStore {
    map: &'static Mutex<Map>,
    fault: Option<Fault>,
}

impl Store for ModelStore {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(ModelSession { map: self.map, fault: self.fault, writes: 0 }))
    }

    fn settle(&mut self) -> Result<()> {
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

struct ModelSession {
    map: &'static Mutex<Map>,
    fault: Option<Fault>,
    writes: u64,
}

impl Session for ModelSession {
    fn get(&mut self, key: &[u8], on_value: OnValue<'_>) -> Result<bool> {
        let map = self.map.lock().expect("not poisoned");
        let found = map.get(key).cloned();
        let found = match (self.fault, found) {
            (Some(Fault::PhantomKey), None) => Some(vec![0; 100]),
            (Some(Fault::WrongValue), Some(value)) => {
                let before = map.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(key)));
                Some(before.last().map_or(value, |(_, value)| value.clone()))
            }
            (Some(Fault::ChangedByte), Some(mut value)) => {
                *value.last_mut().expect("not empty") ^= 1;
                Some(value)
            }
            (_, found) => found,
        };
        drop(map);
        match found {
            Some(value) => on_value(&value).map(|()| true),
            None => Ok(false),
        }
    }

    fn multi_get(&mut self, keys: &[&[u8]], on_answer: OnAnswer<'_>) -> Result<()> {
        let forgets = self.fault == Some(Fault::MultiGetForgets);
        for (i, key) in keys.iter().enumerate().skip(usize::from(forgets)) {
            let value = self.map.lock().expect("not poisoned").get(*key).cloned();
            on_answer(i, value.as_deref())?;
        }
        Ok(())
    }

    fn scan(&mut self, from: &[u8], on_entry: OnEntry<'_>) -> Result<()> {
        let map = self.map.lock().expect("not poisoned").clone();
        let entries = map.range::<[u8], _>((Bound::Included(from), Bound::Unbounded));
        for (i, (key, value)) in entries.enumerate() {
            match self.fault {
                Some(Fault::ScanSkips) if i == 2 => continue,
                Some(Fault::ScanEnds) if i == 2 => return Ok(()),
                Some(Fault::ScanRepeats) if i == 2 => {
                    on_entry(key, value)?;
                }
                _ => {}
            }
            if !on_entry(key, value)? {
                break;
            }
        }
        Ok(())
    }

    fn write(&mut self, group: &WriteGroup) -> Result<()> {
        let mut map = self.map.lock().expect("not poisoned");
        for (key, value) in group.iter() {
            self.writes += 1;
            match self.fault {
                Some(Fault::LosesWrites) if self.writes.is_multiple_of(100) => {}
                Some(Fault::StaleValue) if map.contains_key(key) => {}
                _ => {
                    map.insert(key.to_vec(), value.to_vec());
                }
            }
        }
        Ok(())
    }
}
