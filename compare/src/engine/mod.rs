//! The rivals on disk. Each one's settings stand at the head of its file and in the environment
//! line of the output.

mod fjall;
mod lmdb;
mod redb;
mod rocksdb;

use anyhow::Result;
use rhumb_bench::{
    rhumb_engine::{BINARY_SEARCH, LEARNED},
    subject::Engine,
    suite,
};

/// Every subject; the last is Rhumb once more and runs only when it is named.
static KNOWN: [&dyn Engine; 6] =
    [&LEARNED, &rocksdb::RocksDb, &fjall::Fjall, &redb::Redb, &lmdb::Lmdb, &BINARY_SEARCH];

/// Chooses subjects by their names; the usual ones if none is named.
pub(crate) fn chosen(names: &[String]) -> Result<Vec<&'static dyn Engine>> {
    let usual = KNOWN.len() - 1;
    suite::choose(names, if names.is_empty() { &KNOWN[..usual] } else { &KNOWN })
}
