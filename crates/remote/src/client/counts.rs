//! What a client counts of a keyspace.

use std::sync::atomic::{AtomicU64, Ordering};

/// What reading and writing a keyspace has cost a client so far: of all handles of one connection
/// together.
///
/// Reads of a mapped region are not counted, because a counter that threads share would cost as
/// much as the read: over a Unix socket `reads`, `bytes_sent` and what follows it stay 0.
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
    /// Messages among the round trips that brought pieces of the directory.
    pub directory_reads: u64,
    /// Bytes of messages to the host.
    pub bytes_sent: u64,
    /// Bytes of messages from the host, and of pieces of the region.
    pub bytes_received: u64,
    /// Bytes of the directory, or of models, that are kept now.
    pub cache_bytes: u64,
}

/// The counters of a keyspace.
#[derive(Debug, Default)]
pub(super) struct Counters {
    reads: AtomicU64,
    round_trips: AtomicU64,
    calls: AtomicU64,
    stale: AtomicU64,
    directory_reads: AtomicU64,
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

    pub(super) fn call(&self, keys: u64) {
        add(&self.calls, keys);
    }

    pub(super) fn stale(&self) {
        add(&self.stale, 1);
    }

    pub(super) fn directory_read(&self) {
        add(&self.directory_reads, 1);
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
            bytes_sent: load(&self.bytes_sent),
            bytes_received: load(&self.bytes_received),
            region_reads: 0,
            cache_bytes: 0,
        }
    }
}
