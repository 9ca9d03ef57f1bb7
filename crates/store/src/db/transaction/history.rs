//! What was committed while transactions are open, for their checks.
//!
//! It belongs to the write lock's state. While no transaction is open nothing is kept, and a commit
//! asks one flag.

use std::collections::VecDeque;

use rhumb_sync::{
    primitive::{AtomicBool, AtomicU64, Ordering},
    record::Record,
};

use super::check::Checked;
use crate::{
    error::Error,
    types::{Moment, SeqNo},
    version::snapshots::Snapshots,
};

/// The bytes of records that are kept for open transactions. A transaction that is open while more
/// is written conflicts with all of it. Four memtables of the default size: records of memtables
/// that are not flushed are in memory anyway.
const BYTES_MAX: usize = 256 << 20;

/// Groups of commits without an open transaction after which nothing is kept any more: a program
/// that runs one transaction after the other does not begin anew each time.
const IDLE_GROUPS: u32 = 64;

/// The open transactions of a database.
#[derive(Default)]
pub(crate) struct Transactions {
    /// The sequence numbers of their snapshots.
    open: Snapshots,
    /// True while what is committed is kept. Changed under the write lock, and to false only while
    /// no transaction begins.
    is_kept: AtomicBool,
    /// The number of the next transaction.
    next: AtomicU64,
}

impl Transactions {
    /// A number that no other transaction has.
    pub(super) fn next_number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Registers a transaction whose snapshot has the number that `now` returns. Returns `None` if
    /// what is committed is not kept: the caller has it kept first.
    pub(super) fn begin(&self, now: impl FnOnce() -> SeqNo) -> Option<SeqNo> {
        let mut is_kept = false;
        let moment = self.open.add(|| {
            is_kept = self.is_kept.load(Ordering::Acquire);
            // Times do not matter here: the transaction's own snapshot has one.
            Moment { seq: now(), now_ms: 0 }
        });
        let seq = moment.seq;
        if !is_kept {
            self.open.remove(seq);
        }
        is_kept.then_some(seq)
    }

    /// Ends a transaction.
    pub(super) fn end(&self, seq: SeqNo) {
        self.open.remove(seq);
    }

    /// The number of open transactions.
    pub(crate) fn count(&self) -> usize {
        self.open.count()
    }
}

/// What was committed since the oldest open transaction began.
#[derive(Default)]
pub(crate) struct History {
    is_kept: bool,
    events: VecDeque<Event>,
    bytes: usize,
    /// Everything after this number is in `events`.
    floor: SeqNo,
    /// Groups since a transaction was open.
    idle: u32,
}

/// A commit, by its last sequence number.
struct Event {
    seq: SeqNo,
    what: What,
}

enum What {
    /// The operations of a batch.
    Record(Record),
    /// A keyspace was cleared, dropped or ingested into, or lost a partition.
    Keyspace(u32),
}

impl History {
    /// Keeps what is committed from now on, after the write numbered `last`.
    pub(super) fn keep(&mut self, transactions: &Transactions, last: SeqNo) {
        if !self.is_kept {
            (self.is_kept, self.floor, self.idle) = (true, last, 0);
            transactions.is_kept.store(true, Ordering::Release);
        }
    }

    /// Records the operations of a batch, of which `last` is the last one's number.
    #[inline]
    pub(crate) fn record(&mut self, record: &Record, last: SeqNo) {
        if self.is_kept {
            self.bytes += record.memory_bytes();
            self.events.push_back(Event { seq: last, what: What::Record(record.clone()) });
        }
    }

    /// Records that a keyspace was changed as a whole.
    pub(crate) fn record_keyspace(&mut self, id: u32, seq: SeqNo) {
        if self.is_kept {
            self.events.push_back(Event { seq, what: What::Keyspace(id) });
        }
    }

    /// After a group: forgets what no open transaction needs. `last` is the number of the last
    /// write.
    #[inline]
    pub(crate) fn prune(&mut self, transactions: &Transactions, last: SeqNo) {
        if self.is_kept {
            self.prune_kept(transactions, last);
        }
    }

    #[inline(never)]
    fn prune_kept(&mut self, transactions: &Transactions, last: SeqNo) {
        let oldest = transactions.open.oldest(|| last);
        while let Some(event) = self.events.front()
            && (event.seq <= oldest || self.bytes > BYTES_MAX)
        {
            // planted: transaction-forgotten
            self.floor = event.seq;
            if let What::Record(record) = &event.what {
                self.bytes -= record.memory_bytes();
            }
            self.events.pop_front();
        }
        self.idle = if self.events.is_empty() { self.idle + 1 } else { 0 };
        if self.idle > IDLE_GROUPS {
            transactions.open.if_none(|| {
                self.is_kept = false;
                transactions.is_kept.store(false, Ordering::Release);
            });
        }
    }

    /// The conflict of a transaction with what was committed since its snapshot, if there is one.
    /// `group` are the records that are about to be committed before it. O(operations since then).
    pub(crate) fn conflict<'g>(
        &self,
        checked: &Checked,
        mut group: impl Iterator<Item = &'g [u8]>,
    ) -> Option<Error> {
        if checked.since < self.floor {
            return Some(checked.with_too_much());
        }
        let mut trees = None;
        let since = self.events.partition_point(|event| event.seq <= checked.since);
        for event in self.events.range(since..) {
            let conflict = match &event.what {
                // planted: transaction-keyspace
                What::Keyspace(id) => checked.with_keyspace(*id),
                What::Record(record) => {
                    checked.with_record(trees.get_or_insert_with(|| checked.trees()), record)
                }
            };
            if conflict.is_some() {
                return conflict;
            }
        }
        // planted: transaction-group
        group.find_map(|record| {
            checked.with_record(trees.get_or_insert_with(|| checked.trees()), record)
        })
    }
}
