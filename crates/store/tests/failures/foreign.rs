//! A handle of one database is refused by every call of another.

use std::sync::Arc;

use rhumb::{Database, Error, Keyspace, KeyspaceOptions, Partitioning, Result, io::sim::SimFs};

fn open(dir: &str, fs: &SimFs, partitions: Partitioning) -> (Database, Keyspace) {
    let builder = Database::builder(dir).file_system(Arc::new(fs.clone())).background_threads(0);
    let db = builder.open().unwrap();
    let options = KeyspaceOptions { partitions, ..KeyspaceOptions::default() };
    let keyspace = db.keyspace("k", options).unwrap();
    for i in 0..10_u8 {
        keyspace.insert([i], dir).unwrap();
    }
    (db, keyspace)
}

fn assert_refused<T>(result: Result<T>) {
    match result {
        Ok(_) => panic!("a snapshot of one database reads another's keyspace"),
        Err(Error::InvalidArgument(what)) => assert!(what.contains("another database"), "{what}"),
        Err(error) => panic!("{error}"),
    }
}

fn check(partitions: &Partitioning) {
    let fs = SimFs::new(1);
    let (db, own) = open("/one", &fs, partitions.clone());
    let (other, foreign) = open("/two", &fs, partitions.clone());
    let snapshot = db.snapshot();
    assert_refused(snapshot.keyspace(&foreign));
    let mut batch = db.batch();
    batch.insert(&own, [1], "new");
    batch.remove_range(&foreign, [1]..[5]);
    assert_refused(batch.commit());

    assert_eq!(snapshot.keyspace(&own).unwrap().get([1]).unwrap().unwrap(), b"/one");
    assert_eq!(snapshot.keyspace(&own).unwrap().iter().count(), 10);
    // The same directory, opened again, is another database: its sequence numbers may differ.
    drop((other, foreign));
    let (_again, reopened) = open("/two", &fs, partitions.clone());
    assert_refused(snapshot.keyspace(&reopened));
}

#[test]
fn a_snapshot_reads_keyspaces_of_its_own_database_alone() {
    check(&Partitioning::None);
    check(&Partitioning::PrefixLength(1));
}
