//! Training while reading: when nothing else is to be done, trains a model for tables that were
//! flushed without one. Readers search until the model is published in the table's handle, and
//! never wait for it.

use std::time::Duration;

use rhumb_sync::primitive::{Arc, Ordering};

use super::core::Core;
use crate::{
    table::{Table, Trained},
    tree::Tree,
};

/// The time after which a training is given up.
const TIME_MAX: Duration = Duration::from_secs(1);

/// The largest number of entries that may be written within one wait of the pool for the time to
/// count as idle.
pub(super) const IDLE_ENTRIES_MAX: u64 = 1000;

impl Core {
    /// Trains one table. Returns false if there was none to train.
    pub(super) fn train_one(&self) -> bool {
        let Some(table) = self.untried_table() else { return false };
        let begun = self.shared.clock.now();
        let is_late = || {
            self.scheduler.is_shut_down()
                || self.shared.clock.now().saturating_duration_since(begun) > TIME_MAX
        };
        let counter = match table.train(is_late) {
            Trained::Published => &self.shared.counters.tables_trained_reading,
            Trained::Refused | Trained::TimedOut => &self.shared.counters.trainings_refused,
            // Too small for a model, or another thread was here.
            Trained::NotWanted => return true,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// A table that was written without a model although its keyspace has models, and that no
    /// thread has tried to train.
    fn untried_table(&self) -> Option<Arc<Table>> {
        let trees: Vec<Arc<Tree>> = {
            let wants = |tree: &&Arc<Tree>| tree.options.table().trains_while_reading();
            self.trees.lock().live().filter(wants).cloned().collect()
        };
        trees.iter().find_map(|tree| {
            let levels = tree.levels.get();
            let mut tables = levels.all();
            tables.find(|(_, table)| table.index().is_untried()).map(|(_, table)| Arc::clone(table))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::atomic::AtomicBool, thread, time::Instant};

    use super::*;
    use crate::{
        BlockIndexKind, Database, Keyspace, KeyspaceOptions, TableOptions, Training,
        table::TableLayout,
    };

    const KEYS: u32 = 40_000;

    fn key(i: u32) -> String {
        format!("user:{:08}", i * 3)
    }

    fn open(dir: &tempfile::TempDir, training: Training, threads: usize) -> (Database, Keyspace) {
        let db = Database::builder(dir.path().join("db")).background_threads(threads);
        let db = db.open().unwrap();
        let table = TableOptions {
            training: Some(training),
            block_bytes: Some(512),
            ..TableOptions::default()
        };
        let options = KeyspaceOptions { table, ..KeyspaceOptions::default() };
        let keyspace = db.keyspace("k", options).unwrap();
        (db, keyspace)
    }

    /// Fills the memtable as `writers` writers at a time would have done.
    fn fill(db: &Database, keyspace: &Keyspace, writers: usize) {
        for i in 0..KEYS {
            keyspace.insert(key(i), i.to_be_bytes()).unwrap();
        }
        db.core().shared.counters.count_writers(writers);
    }

    /// Checks every key, and an absent key after each.
    fn check(keyspace: &Keyspace) {
        for i in 0..KEYS {
            assert_eq!(keyspace.get(key(i)).unwrap().as_deref(), Some(&i.to_be_bytes()[..]));
            assert!(keyspace.get(format!("user:{:08}", i * 3 + 1)).unwrap().is_none());
        }
        assert!(
            keyspace.get("user:").unwrap().is_none() && keyspace.get("zebra").unwrap().is_none()
        );
        let from = keyspace.range(key(KEYS / 2).as_str()..).map(|pair| pair.unwrap().0);
        assert!(from.eq((KEYS / 2..KEYS).map(|i| key(i).into_bytes())));
    }

    /// The numbers of tables written with a model and without, of those that got one later, and of
    /// refusals.
    fn counts(db: &Database) -> [u64; 4] {
        let s = db.stats();
        [s.tables_trained, s.tables_untrained, s.tables_trained_reading, s.trainings_refused]
    }

    #[test]
    fn few_writers_train_in_the_flush_and_many_do_not() {
        for (training, writers, expected) in [
            (Training::Always, 16, [1, 0, 0, 0]),
            (Training::Adaptive, 1, [1, 0, 0, 0]),
            (Training::Adaptive, 16, [0, 1, 0, 0]),
            (Training::Never, 1, [0, 1, 0, 0]),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let (db, keyspace) = open(&dir, training, 0);
            fill(&db, &keyspace, writers);
            db.flush().unwrap();
            assert_eq!(counts(&db), expected, "{training:?}, {writers} writers");
            assert_eq!(db.stats().keyspaces[0].tables_with_model, expected[0]);
            check(&keyspace);
            // Without a pool the next write does the pending work.
            keyspace.insert("a", "1").unwrap();
            let is_trained = training == Training::Adaptive && writers > 1;
            assert_eq!(counts(&db)[2], u64::from(is_trained));
            assert_eq!(db.stats().pinned_bytes, pinned(&db));
            check(&keyspace);
            db.flush().unwrap();
            keyspace.compact().unwrap();
            let last = db.stats().keyspaces[0].tables_with_model;
            assert_eq!(last, u64::from(training != Training::Never), "a compaction trains");
            check_after_insert(&keyspace);
        }
    }

    fn check_after_insert(keyspace: &Keyspace) {
        assert_eq!(keyspace.get("a").unwrap().as_deref(), Some(&b"1"[..]));
        check(keyspace);
    }

    /// The memory that the tables' counter reports.
    fn pinned(db: &Database) -> u64 {
        db.core().shared.tables.counters.pinned_bytes.load(Ordering::Relaxed)
    }

    #[test]
    fn readers_go_on_while_the_pool_trains() {
        let dir = tempfile::tempdir().unwrap();
        let (db, keyspace) = open(&dir, Training::Adaptive, 2);
        fill(&db, &keyspace, 16);
        db.flush().unwrap();
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        while !is_done.load(Ordering::Relaxed) {
                            check(&keyspace);
                        }
                    })
                })
                .collect();
            let begun = Instant::now();
            while counts(&db)[2] == 0 && begun.elapsed().as_secs() < 60 {
                assert!(readers.iter().all(|reader| !reader.is_finished()), "a wrong answer");
                thread::yield_now();
            }
            is_done.store(true, Ordering::Relaxed);
        });
        assert_eq!(counts(&db), [0, 1, 1, 0]);
        check(&keyspace);
    }

    #[test]
    fn a_poor_model_is_refused_once() {
        let dir = tempfile::tempdir().unwrap();
        let (db, keyspace) = open(&dir, Training::Adaptive, 0);
        let mut batch = db.batch();
        // Runs of keys whose codes are used up long before the keys differ.
        let byte = |run: u64, j: u64| {
            let mixed = (run * 256 + j).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            ((mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 56) as u8
        };
        let keys = (0..u64::from(KEYS)).map(|i| -> Vec<u8> {
            let run = (0..80).map(|j| byte(i / 2000, 2 * j));
            run.chain(((i % 2000) as u32 * 3).to_be_bytes()).collect()
        });
        for key in keys.clone() {
            batch.insert(&keyspace, key, "1");
        }
        batch.commit().unwrap();
        db.core().shared.counters.count_writers(16);
        db.flush().unwrap();
        keyspace.insert("a", "1").unwrap();
        keyspace.insert("b", "1").unwrap();
        assert_eq!(counts(&db), [0, 1, 0, 1]);
        assert_eq!(db.stats().keyspaces[0].tables_with_model, 0);
        for key in keys {
            assert!(keyspace.get(key).unwrap().is_some());
        }
    }

    #[test]
    fn searched_tables_stay_searched() {
        for training in Training::ALL {
            let index = BlockIndexKind::BinarySearch;
            let table = TableLayout { index, training, ..TableLayout::default() };
            assert!(!table.trains(0) && !table.trains_while_reading());
        }
    }
}
