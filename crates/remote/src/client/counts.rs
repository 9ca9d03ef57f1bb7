//! What a client counts of a keyspace.

use std::{
    cell::Cell,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use super::Trouble;
use crate::message::GetCounts;

/// What reading and writing a keyspace has cost a client so far: of all handles of one connection
/// together.
///
/// Reads of a mapped region are not among them: over a Unix socket `reads`, `bytes_sent` and what
/// follows it stay 0. They are reported to the host, with few counts lost, where
/// [`ShareStats::gets`](crate::ShareStats::gets) has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Keys that were read, one by one or several at once, and parts of ranges.
    pub reads: u64,
    /// Messages that the host was sent. Several keys may share one. Of a keyspace whose clients
    /// keep models, reads of mapped memory that wait for the one before as well.
    pub round_trips: u64,
    /// Pieces of the region that were read, of a keyspace whose clients keep models.
    pub region_reads: u64,
    /// Reads that the host could not answer out of the leaf where the client expected the key: it
    /// found the leaf by itself, or asked the store. The key was answered in the same round trip.
    pub calls: u64,
    /// Calls among these because a leaf that the client expected a key in had moved.
    pub stale: u64,
    /// Leaves that reads looked at, of a keyspace of [`Preset::XStore`](crate::Preset::XStore).
    pub leaves: u64,
    /// Reads that were answered by a leaf which had changed since its model was trained, or by that
    /// leaf's sibling; of the same preset.
    pub speculative: u64,
    /// Messages among the round trips that brought pieces of the directory.
    pub directory_reads: u64,
    /// Messages among the round trips that went by RDMA, and not over TCP.
    pub sends: u64,
    /// Bytes of messages to the host.
    pub bytes_sent: u64,
    /// Bytes of messages from the host, and of pieces of the region.
    pub bytes_received: u64,
    /// Bytes of the directory, or of models, that are kept now, and of hints where hot records lie
    /// that are read by RDMA: 1 MiB of these at most.
    pub cache_bytes: u64,
}

/// Lines of counters of mapped reads. Threads that read at once mostly have one each; of two that
/// share one, a count may be lost now and then.
const STRIPES: usize = 16;

/// Gets after which a thread looks if a report is due: the clock costs as much as a few of them.
const GETS_PER_LOOK: u64 = 64;

/// Counters that one thread writes, in a cache line of their own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Stripe {
    gets: AtomicU64,
    bytes: AtomicU64,
    hops: AtomicU64,
    retries: AtomicU64,
}

thread_local! {
    /// The stripe of this thread in all keyspaces, once it has one.
    static STRIPE: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The stripe of this thread.
#[inline]
fn stripe() -> usize {
    let stripe = STRIPE.get();
    if stripe < STRIPES { stripe } else { assign_stripe() }
}

#[cold]
fn assign_stripe() -> usize {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let stripe = NEXT.fetch_add(1, Ordering::Relaxed) as usize % STRIPES;
    STRIPE.set(stripe);
    stripe
}

/// Adds without a locked instruction, which would cost as much as a read of the region.
#[inline]
fn add_own(counter: &AtomicU64, count: u64) -> u64 {
    let sum = counter.load(Ordering::Relaxed) + count;
    counter.store(sum, Ordering::Relaxed);
    sum
}

/// The counters of a keyspace.
#[derive(Debug, Default)]
pub(super) struct Counters {
    mapped: [Stripe; STRIPES],
    /// What the host was told of.
    reported: Mutex<GetCounts>,
    reads: AtomicU64,
    round_trips: AtomicU64,
    calls: AtomicU64,
    stale: AtomicU64,
    directory_reads: AtomicU64,
    sends: AtomicU64,
    bytes_sent: AtomicU64,
    bytes_received: AtomicU64,
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

impl Counters {
    pub(super) fn read(&self, keys: u64) {
        add(&self.reads, keys);
    }

    /// Counts a message and its answer.
    pub(super) fn round_trip(&self) {
        add(&self.round_trips, 1);
    }

    /// Counts gets in a region, and the bytes that they brought; returns true if it is time to look
    /// if a report is due.
    #[inline]
    pub(super) fn mapped(&self, gets: u64, bytes: u64, trouble: &Trouble) -> bool {
        let own = &self.mapped[stripe()];
        let before = add_own(&own.gets, gets) - gets;
        add_own(&own.bytes, bytes);
        if trouble.has_retried.get() {
            add(&own.retries, 1);
        } else if trouble.has_hopped.get() {
            add(&own.hops, 1);
        }
        before / GETS_PER_LOOK != (before + gets) / GETS_PER_LOOK
    }

    /// How gets of a client went that maps the region.
    pub(super) fn mapped_gets(&self) -> GetCounts {
        let sum = |counter: fn(&Stripe) -> &AtomicU64| -> u64 {
            self.mapped.iter().map(|own| counter(own).load(Ordering::Relaxed)).sum()
        };
        let (gets, bytes) = (sum(|own| &own.gets), sum(|own| &own.bytes));
        let (hop, retry) = (sum(|own| &own.hops), sum(|own| &own.retries));
        let call = self.calls.load(Ordering::Relaxed);
        let one_read = gets.saturating_sub(hop + retry);
        GetCounts::of([one_read, hop, 0, retry, call, gets + hop + retry, bytes])
    }

    /// How gets of a client went that asks its host to look into leaves.
    pub(super) fn gets(&self) -> GetCounts {
        let counts = self.counts();
        let one_read = counts.reads.saturating_sub(counts.calls);
        let bytes = counts.bytes_sent + counts.bytes_received;
        GetCounts::of([one_read, 0, 0, 0, counts.calls, counts.reads, bytes])
    }

    /// What the host was not told of, of `totals`; `None` if that is nothing. It counts as told.
    pub(super) fn report(&self, totals: GetCounts) -> Option<GetCounts> {
        since(totals, &mut self.reported.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn call(&self, keys: u64) {
        add(&self.calls, keys);
    }

    pub(super) fn stale(&self) {
        add(&self.stale, 1);
    }

    pub(super) fn directory_read(&self) {
        add(&self.directory_reads, 1);
    }

    /// Counts a message that went by RDMA, and its answer.
    pub(super) fn sent(&self) {
        self.round_trip();
        add(&self.sends, 1);
    }

    pub(super) fn bytes(&self, sent: usize, received: usize) {
        add(&self.bytes_sent, sent as u64);
        add(&self.bytes_received, received as u64);
    }

    /// The counts so far, but for the bytes of a cache.
    pub(super) fn counts(&self) -> Counts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            reads: load(&self.reads),
            round_trips: load(&self.round_trips),
            calls: load(&self.calls),
            stale: load(&self.stale),
            directory_reads: load(&self.directory_reads),
            sends: load(&self.sends),
            bytes_sent: load(&self.bytes_sent),
            bytes_received: load(&self.bytes_received),
            region_reads: 0,
            leaves: 0,
            speculative: 0,
            cache_bytes: 0,
        }
    }
}

/// What was counted since the last report, if anything was.
fn since(totals: GetCounts, reported: &mut GetCounts) -> Option<GetCounts> {
    let (now, before) = (totals.each(), reported.each());
    // Those of a region begin anew with its next connection.
    let fresh = |at: usize| now[at].checked_sub(before[at]).unwrap_or(now[at]);
    let fresh = GetCounts::of(std::array::from_fn(fresh));
    *reported = totals;
    (fresh != GetCounts::default()).then_some(fresh)
}
