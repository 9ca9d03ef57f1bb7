//! Dumps with correct checksums: `[kind u8][payload as a chunk]` for each block. A first byte of
//! 255 says that a whole file follows, as it is.

use rhumb_sync::primitive::Arc;

use super::Input;
use crate::{
    db::Database,
    dump::{DumpItem, DumpReader, framed},
    error::Error,
    io::sim::SimFs,
};

/// Reads a dump, and loads it into an empty database.
///
/// # Panics
///
/// If a reader breaks a promise.
pub fn dump(data: &[u8]) {
    if let [255, file @ ..] = data {
        read(file);
        return;
    }
    let (mut input, mut blocks) = (Input(data), Vec::new());
    while !input.0.is_empty() {
        blocks.push((input.u8(), input.chunk()));
    }
    let file = framed(&blocks);
    let Some(entries) = read(&file) else { return };
    let fs = Arc::new(SimFs::new(1));
    let db = Database::builder("/db").file_system(fs).background_threads(0).open();
    let db = db.expect("a new database on a disk without faults");
    match db.load(&file[..]) {
        Ok(loaded) => assert_eq!(loaded.entries, entries),
        // Two keyspaces of one name may be divided in different ways; functions are not registered.
        Err(Error::InvalidArgument(_)) => {}
        Err(error) => panic!("a dump that can be read is loaded: {error}"),
    }
}

/// Reads all of a dump; returns the number of its entries if it is whole.
fn read(file: &[u8]) -> Option<u64> {
    let mut reader = DumpReader::new(file, "fuzzed").ok()?;
    let (mut entries, mut last, mut has_begun) = (0, None::<Vec<u8>>, false);
    loop {
        match reader.next() {
            Ok(Some(DumpItem::Keyspace(..))) => (last, has_begun) = (None, true),
            Ok(Some(DumpItem::Entry(key, ..))) => {
                assert!(has_begun && last.as_deref().is_none_or(|last| last < key));
                last = Some(key.to_vec());
                entries += 1;
            }
            Ok(None) => return Some(entries),
            Err(Error::Corrupt(_) | Error::Unsupported { .. }) => {
                assert!(matches!(reader.next(), Ok(None)), "nothing follows an error");
                return None;
            }
            Err(error) => panic!("{error}"),
        }
    }
}
