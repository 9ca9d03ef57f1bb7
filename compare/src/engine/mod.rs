//! The rivals on disk. Each one's settings stand at the head of its file and in the environment
//! line of the output.

mod fjall;
mod redb;
#[cfg(feature = "engine")]
mod rocksdb;
#[cfg(feature = "engine")]
mod rocksdb_transactions;

use anyhow::Result;
use rhumb_bench::{
    dropping::{self, DropEngine},
    queueing::QueueEngine,
    rhumb_engine::{BINARY_SEARCH, LEARNED},
    subject::Engine,
    suite,
    transacting::TransactEngine,
};

/// Every subject; the last is Rhumb once more and runs only when it is named.
static KNOWN: &[&dyn Engine] = &[
    &LEARNED,
    #[cfg(feature = "engine")]
    &rocksdb::RocksDb,
    &fjall::Fjall,
    &redb::Redb,
    #[cfg(feature = "engine")]
    &crate::lmdb::Lmdb,
    &BINARY_SEARCH,
];

/// Chooses subjects by their names; the usual ones if none is named.
pub(crate) fn chosen(names: &[String]) -> Result<Vec<&'static dyn Engine>> {
    let usual = KNOWN.len() - 1;
    suite::choose(names, if names.is_empty() { &KNOWN[..usual] } else { KNOWN })
}

/// Subjects whose reads overlap: Rhumb, what reads many keys with one call, and what reads one at a
/// time.
static OVERLAPPING: &[&dyn Engine] = &[
    &LEARNED,
    #[cfg(feature = "engine")]
    &rocksdb::RocksDb,
    &fjall::Fjall,
];

/// Chooses subjects of the asynchronous suite by their names.
pub(crate) fn chosen_overlapping(names: &[String]) -> Result<Vec<&'static dyn Engine>> {
    suite::choose(names, OVERLAPPING)
}

/// Ways to drop parts of the keys.
static DROPPING: &[&dyn DropEngine] = &[
    &dropping::RHUMB,
    &dropping::RHUMB_RANGES,
    &dropping::RHUMB_RANGES_5000,
    #[cfg(feature = "engine")]
    &rocksdb::DELETES,
    #[cfg(feature = "engine")]
    &rocksdb::RANGE,
    #[cfg(feature = "engine")]
    &rocksdb::FILES,
    #[cfg(feature = "engine")]
    &rocksdb::FAMILIES,
    &fjall::Keyspaces,
];

/// Chooses subjects that drop by their names.
pub(crate) fn chosen_dropping(names: &[String]) -> Result<Vec<&'static dyn DropEngine>> {
    suite::readafterdelete::choose(names, DROPPING)
}

/// Queues: those whose popped entries are found by the store itself.
static QUEUES: &[&dyn QueueEngine] = &[&LEARNED, &fjall::Fjall, &redb::Redb, &redb::Single];

/// Chooses subjects that are queues by their names.
pub(crate) fn chosen_queues(names: &[String]) -> Result<Vec<&'static dyn QueueEngine>> {
    suite::queue::choose(names, QUEUES)
}

/// Stores with optimistic transactions.
static TRANSACTING: &[&dyn TransactEngine] = &[
    &LEARNED,
    #[cfg(feature = "engine")]
    &rocksdb_transactions::RocksDbOptimistic,
    &fjall::Fjall,
];

/// Chooses subjects with optimistic transactions by their names.
pub(crate) fn chosen_transacting(names: &[String]) -> Result<Vec<&'static dyn TransactEngine>> {
    suite::transact::choose(names, TRANSACTING)
}
