//! Brings new tables into memory before they are read, if they replace tables that were there.

use rhumb_sync::primitive::Arc;

use crate::table::Table;

/// Brings tables into the cache if most of what they replace, or join, was there.
pub(crate) fn warm_like<'a>(before: impl Iterator<Item = &'a Arc<Table>>, new: &[Arc<Table>]) {
    if is_mostly_resident(before) {
        warm(new);
    }
}

/// Returns true if more than half of the blocks of these tables are in memory.
fn is_mostly_resident<'a>(tables: impl Iterator<Item = &'a Arc<Table>>) -> bool {
    let (resident, all) = tables.map(|table| table.residency()).fold((0, 0), |sum, next| {
        let (resident, all) = next;
        (sum.0 + resident, sum.1 + all)
    });
    resident * 2 > all
}

fn warm(tables: &[Arc<Table>]) {
    for table in tables {
        // A reader of damaged blocks gets the error then.
        if table.warm().is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Database, KeyspaceOptions};

    #[test]
    fn what_was_in_memory_stays_there_through_flushes_and_compactions() {
        let dir = tempfile::tempdir().unwrap();
        let builder = Database::builder(dir.path().join("db")).background_threads(0);
        let db = builder.open().unwrap();
        let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        let write = |from: u32| {
            (from..20_000).step_by(2).for_each(|i| {
                keyspace.insert(i.to_be_bytes(), [7; 100]).unwrap();
            });
            db.flush().unwrap();
        };
        let read_all = || {
            let before = db.stats().block_reads;
            (0..20_000_u32).for_each(|i| drop(keyspace.get(i.to_be_bytes()).unwrap()));
            db.stats().block_reads - before
        };
        write(0);
        assert!(read_all() > 100, "nobody has read the first table");
        write(1);
        assert_eq!(read_all(), 0, "a flush beside tables in memory");
        keyspace.compact().unwrap();
        assert_eq!(read_all(), 0, "a compaction of tables in memory");
    }

    #[test]
    fn what_nobody_reads_is_not_brought_in() {
        let dir = tempfile::tempdir().unwrap();
        let builder = Database::builder(dir.path().join("db")).background_threads(0);
        let db = builder.open().unwrap();
        let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        for part in 0..4_u32 {
            (part..20_000).step_by(4).for_each(|i| {
                keyspace.insert(i.to_be_bytes(), [7; 100]).unwrap();
            });
            db.flush().unwrap();
        }
        keyspace.compact().unwrap();
        assert_eq!(db.stats().cache_inserts, 0);
    }
}
