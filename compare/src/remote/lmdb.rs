//! LMDB as a store that several processes have open: each maps the file and reads it by itself.

use std::{
    cell::{Cell, RefCell, RefMut},
    rc::Rc,
};

use anyhow::{Result, bail};
use rhumb_bench::{
    subject::{self as engine, Compression, Engine, Store, Tuning, WriteGroup},
    suite::remote::{
        batch::{Answers, Batch},
        subject::{OnPair, OnValue, Place, Server, Session, Subject, perform_all},
        workload::{Kind, Workload},
    },
};
use serde_json::{Value, json};

use crate::lmdb::Lmdb;

/// Writes of a transaction while the file is loaded.
const GROUP: usize = 1_000;

/// LMDB with read transactions of one kind.
pub(crate) struct Shared {
    name: &'static str,
    options: &'static str,
    renews: bool,
}

/// A read transaction for each get, so that each sees what was committed before it.
pub(crate) const RENEWED: Shared = Shared {
    name: "lmdb",
    options: "LMDB 0.9 (heed 0.23), a read transaction for each get, no sync",
    renews: true,
};

/// A read transaction for as many gets as a batch has, which see the moment when it began.
pub(crate) const KEPT: Shared = Shared {
    name: "lmdb-kept",
    options: "LMDB 0.9 (heed 0.23), a read transaction for 256 gets, which see its moment; no sync",
    renews: false,
};

/// A session of both subjects: a process opens the file once, and a thread has one read transaction
/// at a time.
type SharedSession = Rc<RefCell<Box<dyn engine::Session>>>;

thread_local! {
    static SESSION: Cell<Option<SharedSession>> = const { Cell::new(None) };
}

/// The file of a run.
fn open(place: &Place<'_>) -> Result<Box<dyn Store>> {
    let directory = place.directory.join("lmdb");
    std::fs::create_dir_all(&directory)?;
    let data_bytes = (place.data.set.keys.len() * place.data.entry_bytes()) as u64;
    let tuning = Tuning {
        cache_bytes: 0,
        memtable_bytes: 0,
        direct: false,
        compression: Compression::None,
        block_bytes: 4096,
        filter_bits: 0,
        background_threads: 0,
        data_bytes,
    };
    Lmdb.open(&directory, &tuning)
}

impl Subject for Shared {
    fn name(&self) -> &'static str {
        self.name
    }

    fn options(&self) -> String {
        self.options.to_owned()
    }

    fn keeper(&self) -> Option<&'static str> {
        Some("lmdb")
    }

    fn performs(&self, workload: Workload) -> bool {
        // What is inserted would have to be removed, which the adapter cannot.
        workload.mix().iter().all(|(_, kind)| *kind != Kind::Insert)
    }

    fn start(&self, place: &Place<'_>) -> Result<Box<dyn Server>> {
        let store = open(place)?;
        let mut session = store.session()?;
        let mut group = WriteGroup::default();
        for index in 0..place.data.records {
            let key = place.data.key(index);
            group.push(key, |value| place.data.values.append(key, 0, value));
            if group.len() == GROUP || index + 1 == place.data.records {
                session.write(&group)?;
                group.clear();
            }
        }
        drop(session);
        store.close()?;
        Ok(Box::new(File {
            bytes: std::fs::metadata(place.directory.join("lmdb/data.mdb"))?.len(),
        }))
    }

    fn connect(&self, place: &Place<'_>) -> Result<Box<dyn Session>> {
        let session = match SESSION.take() {
            Some(session) => session,
            None => {
                // The process ends with the run.
                let store: &'static dyn Store = Box::leak(open(place)?);
                Rc::new(RefCell::new(store.session()?))
            }
        };
        SESSION.set(Some(Rc::clone(&session)));
        Ok(Box::new(Reader { session, renews: self.renews }))
    }
}

/// A file, which nobody serves.
struct File {
    bytes: u64,
}

impl Server for File {
    fn describe(&self) -> (String, Value) {
        let text = format!("lmdb: a file of {} MiB", self.bytes >> 20);
        (text, json!({ "host": "lmdb", "suite": "remote", "file_bytes": self.bytes }))
    }
}

struct Reader {
    session: SharedSession,
    renews: bool,
}

impl Reader {
    /// The session, with a new read transaction if each read has its own.
    fn begin(&self) -> Result<RefMut<'_, Box<dyn engine::Session>>> {
        let mut session = self.session.borrow_mut();
        if self.renews {
            session.refresh()?;
        }
        Ok(session)
    }
}

impl Session for Reader {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let mut session = self.begin()?;
        session.get(key, &mut |found| {
            value.extend_from_slice(found);
            Ok(())
        })
    }

    fn multi_get(&mut self, keys: &[&[u8]], on_value: OnValue<'_>) -> Result<()> {
        let mut session = self.begin()?;
        session.multi_get(keys, &mut |index, value| {
            on_value(index, value);
            Ok(())
        })
    }

    fn scan(&mut self, from: &[u8], limit: usize, on_pair: OnPair<'_>) -> Result<()> {
        let mut session = self.begin()?;
        let mut count = 0;
        session.scan(from, &mut |key, value| {
            on_pair(key, value);
            count += 1;
            Ok(count < limit)
        })
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut group = WriteGroup::default();
        group.push(key, |out| out.extend_from_slice(value));
        self.session.borrow_mut().write(&group)
    }

    fn remove(&mut self, _key: &[u8]) -> Result<()> {
        bail!("nothing is inserted")
    }

    fn perform(&mut self, batch: &Batch, answers: &mut Answers) -> Result<()> {
        self.session.borrow_mut().refresh()?;
        perform_all(self, batch, answers)
    }
}
