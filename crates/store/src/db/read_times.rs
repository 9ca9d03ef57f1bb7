//! How long point reads take: a histogram of a sample of them, if the builder asks for one.

use std::{fmt, time::Instant};

use rhumb_sync::{
    histogram::{Times, bucket_end},
    primitive::local,
};

// The number of reads of this thread until the next one that is timed, of any database.
local! {
    static LEFT: std::cell::Cell<u32> = std::cell::Cell::new(0);
}

/// Times some of the point reads of a database.
pub(crate) struct ReadTimes {
    /// One of this number of reads is timed; 0 if none is.
    one_in: u32,
    times: Times,
}

impl ReadTimes {
    pub(super) fn new(one_in: u32) -> Self {
        Self { one_in, times: Times::default() }
    }

    /// Does a read, and times it if it is its turn.
    #[inline]
    pub(super) fn time<T>(&self, read: impl FnOnce() -> T) -> T {
        if self.one_in == 0 { read() } else { self.time_some(read) }
    }

    fn time_some<T>(&self, read: impl FnOnce() -> T) -> T {
        let left = LEFT.get();
        if left > 1 {
            LEFT.set(left - 1);
            return read();
        }
        LEFT.set(self.one_in);
        let began = Instant::now();
        let result = read();
        self.times.count(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
        result
    }

    pub(super) fn latency(&self) -> ReadLatency {
        ReadLatency { one_in: self.one_in, counts: self.times.counts() }
    }
}

/// How long point reads took: of each thread every nth `get`, as
/// [`DatabaseBuilder::timed_reads`](crate::DatabaseBuilder::timed_reads) asks, those that waited
/// for the disk among them. Times are known to a quarter of themselves.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ReadLatency {
    one_in: u32,
    counts: Box<[u64]>,
}

impl ReadLatency {
    /// One of this number of reads is timed; 0 if none is.
    #[must_use]
    pub fn one_in(&self) -> u32 {
        self.one_in
    }

    /// The number of reads that were timed.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The time in nanoseconds that `share` of the timed reads (0 to 1) did not pass; 0 if none was
    /// timed. At most a quarter too high. O(1).
    #[must_use]
    pub fn quantile_ns(&self, share: f64) -> u64 {
        let wanted = (self.count() as f64 * share.clamp(0.0, 1.0)).ceil().max(1.0) as u64;
        let mut passed = 0;
        self.buckets()
            .find(|(_, count)| {
                passed += count;
                passed >= wanted
            })
            .map_or(0, |(end, _)| end)
    }

    /// The buckets, the shortest times first: the time in nanoseconds that all of a bucket's reads
    /// stayed under, and their number. Four for each power of two.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        self.counts.iter().enumerate().map(|(bucket, count)| (bucket_end(bucket), *count))
    }
}

impl fmt::Debug for ReadLatency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadLatency")
            .field("count", &self.count())
            .field("p50_ns", &self.quantile_ns(0.5))
            .field("p99_ns", &self.quantile_ns(0.99))
            .finish_non_exhaustive()
    }
}
