//! Learning an order beside the writers: its key is locked while the walk begins and when it has
//! ended, and not between. What is committed meanwhile is kept in a log, and added at the end.
//!
//! An order that is forgotten meanwhile is not kept: commits have left nothing in the log since.

use std::{fmt, sync::Arc};

use rhumb::{Iter, Keyspace, Result};

use super::{Blocks, Kept, Order, Ranks, change, range, rest_of};

/// Keys that are kept of what was committed while an order is learned: some ten megabytes. An order
/// that changes faster is learned under the lock.
const LOG_MAX: usize = 1 << 18;

impl Kept {
    /// Keeps what a commit has changed, if a thread learns. Returns false if that is too much, and
    /// the order is to be forgotten.
    pub(super) fn note(&self, keys: Vec<(Vec<u8>, bool)>) -> bool {
        let mut log = self.log.lock();
        let Some(log) = &mut *log else { return true };
        let has_room = log.len() + keys.len() <= LOG_MAX;
        if has_room {
            log.extend(keys);
        }
        has_room
    }
}

impl Blocks {
    /// Learns an order of about this number of members by a walk over all that is stored.
    ///
    /// # Errors
    ///
    /// From the engine.
    pub(crate) fn learn(order: Order, members: &Keyspace, count: u64) -> Result<Self> {
        Self::walk(members.range(range(order, None, None)), count)
    }

    fn walk(mut all: Iter, count: u64) -> Result<Self> {
        all.hint_len(usize::try_from(count).unwrap_or(usize::MAX));
        let (mut blocks, mut last) = (Self::default(), Vec::new());
        while let Some(pushed) = all.next_with(|key, _| blocks.push(rest_of(key), &mut last)) {
            pushed?;
        }
        Ok(blocks)
    }
}

/// An order that is being learned while its key is not locked.
pub(crate) struct Learning {
    order: Order,
    kept: Arc<Kept>,
    members: Keyspace,
    /// About how many members there are.
    count: u64,
    /// The members as they were when this began; none if another thread learns the order.
    all: Option<Iter>,
    /// True if the log is this thread's.
    is_first: bool,
}

impl fmt::Debug for Learning {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Learning").field("order", &self.order).finish_non_exhaustive()
    }
}

impl Learning {
    /// Begins to learn. To be called under the locks of the order's key, so that what is committed
    /// later is in the log, and nothing else.
    pub(crate) fn begin(order: Order, kept: &Arc<Kept>, members: &Keyspace, count: u64) -> Self {
        let mut log = kept.log.lock();
        let is_first = log.is_none();
        let mut all = None;
        if is_first {
            *log = Some(Vec::new());
            all = Some(members.range(range(order, None, None)));
        }
        drop(log);
        let (kept, members) = (Arc::clone(kept), members.clone());
        Self { order, kept, members, count, all, is_first }
    }

    /// Walks over the members, under no lock. `None` if another thread has learned the order.
    ///
    /// # Errors
    ///
    /// From the engine.
    pub(crate) fn walk(&mut self) -> Result<Option<Blocks>> {
        if let Some(all) = self.all.take() {
            return Blocks::walk(all, self.count).map(Some);
        }
        let mut log = self.kept.log.lock();
        self.kept.learned.wait_while(&mut log, |log| log.is_some());
        Ok(None)
    }

    /// Adds what was committed meanwhile, and keeps the order, under the locks of its key.
    ///
    /// # Errors
    ///
    /// From the engine; nothing is kept then.
    pub(crate) fn finish(self, ranks: &Ranks, mut blocks: Blocks) -> Result<()> {
        let keys = self.kept.log.lock().as_mut().map(std::mem::take).unwrap_or_default();
        let is_kept = ranks.orders.lock().get(&self.order).is_some_and(|kept| {
            // Forgotten and asked for again is another one.
            Arc::ptr_eq(kept, &self.kept)
        });
        let is_known = self.kept.blocks.read().is_some();
        if is_kept && !is_known && change(&mut blocks, self.order, &self.members, &keys)? {
            ranks.keep(&self.kept, blocks);
        }
        Ok(())
    }
}

impl Drop for Learning {
    fn drop(&mut self) {
        if self.is_first {
            *self.kept.log.lock() = None;
            self.kept.learned.notify_all();
        }
    }
}
