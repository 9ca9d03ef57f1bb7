//! When entries expire: the stamp that such an entry's value begins with, and what a table knows of
//! the stamps in it.
//!
//! An entry that expires has the kind [`Kind::Expiring`](crate::types::Kind::Expiring) and a value
//! that begins with a *stamp*. Plain data; no I/O, and no clock. The bytes are in `format.rs`.

mod format;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) use format::STAMP_BYTES;

/// A time in milliseconds since the Unix epoch.
pub(crate) type Millis = u64;

/// The latest time that a stamp can hold, in 292 million years.
pub(crate) const MILLIS_MAX: Millis = (1 << 63) - 1;

/// What the value of an entry that expires begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// No reader sees the entry from this time on.
    pub(crate) at_ms: Millis,
    /// True if the place of the value follows, and false if the value does.
    pub(crate) is_large: bool,
}

impl Stamp {
    /// The stamp of a value that follows it.
    pub(crate) fn new(at_ms: Millis) -> Self {
        Self { at_ms: at_ms.min(MILLIS_MAX), is_large: false }
    }

    /// Returns true if a reader at this time does not see the entry.
    #[inline]
    pub(crate) fn has_expired(self, now_ms: Millis) -> bool {
        // planted: expiry-millisecond
        self.at_ms <= now_ms
    }
}

/// A point in time as a stamp holds it. What lies before the Unix epoch is the epoch.
pub(crate) fn millis_of(time: SystemTime) -> Millis {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(MILLIS_MAX).min(MILLIS_MAX)
}

/// The point in time of a stamp; `None` if the platform's times do not reach as far.
pub(crate) fn time_of(at_ms: Millis) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_millis(at_ms))
}

/// The number of parts into which a table's stamps are divided. With eight, the share that has
/// expired at a time is known to about a twentieth if times lie evenly within a part.
const PARTS: usize = 8;

/// What a table knows of the entries in it that expire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiries {
    /// The number of entries that expire.
    pub entries: u64,
    /// The first time at which one of them expires, in milliseconds since the Unix epoch.
    pub first_ms: Millis,
    /// The times, in milliseconds since the Unix epoch, at which the first eighth of them has
    /// expired, the second, and so on; the last is exact, the others are from a sample.
    pub parts_ms: [Millis; PARTS],
}

impl Expiries {
    /// The time from which on none of the entries is seen.
    pub(crate) fn last_ms(&self) -> Millis {
        self.parts_ms[PARTS - 1]
    }

    /// About how many of the entries have expired at this time.
    pub(crate) fn expired(&self, now_ms: Millis) -> u64 {
        if now_ms < self.first_ms {
            return 0;
        }
        if now_ms >= self.last_ms() {
            return self.entries;
        }
        let whole = self.parts_ms.partition_point(|end| *end <= now_ms);
        let from = whole.checked_sub(1).map_or(self.first_ms, |at| self.parts_ms[at]);
        let span = self.parts_ms[whole].saturating_sub(from).max(1) as f64;
        let part = (now_ms.saturating_sub(from) as f64 / span).min(1.0);
        ((whole as f64 + part) / PARTS as f64 * self.entries as f64) as u64
    }
}

/// The number of times that are kept of a table, at most: two pages of memory. Every part is then
/// known from 64 of them or more.
const SAMPLE_MAX: usize = 1024;

/// Gathers the stamps of a table that is being written.
#[derive(Debug)]
pub(crate) struct ExpiriesBuilder {
    entries: u64,
    first_ms: Millis,
    last_ms: Millis,
    /// The times of every `stride`-th entry.
    sample: Vec<Millis>,
    stride: u64,
}

impl Default for ExpiriesBuilder {
    fn default() -> Self {
        Self { entries: 0, first_ms: MILLIS_MAX, last_ms: 0, sample: Vec::new(), stride: 1 }
    }
}

impl ExpiriesBuilder {
    /// Adds the stamp of an entry. O(1), amortised.
    pub(crate) fn add(&mut self, at_ms: Millis) {
        self.first_ms = self.first_ms.min(at_ms);
        self.last_ms = self.last_ms.max(at_ms);
        if self.entries.is_multiple_of(self.stride) {
            if self.sample.len() == SAMPLE_MAX {
                let mut nth = 0_usize;
                self.sample.retain(|_| {
                    nth += 1;
                    nth % 2 == 1
                });
                self.stride *= 2;
            }
            if self.entries.is_multiple_of(self.stride) {
                self.sample.push(at_ms);
            }
        }
        self.entries += 1;
    }

    /// What is known of the stamps; `None` if there were none.
    pub(crate) fn finish(&self) -> Option<Expiries> {
        if self.entries == 0 {
            return None;
        }
        let mut sample = self.sample.clone();
        sample.sort_unstable();
        let end = |part: usize| ((part + 1) * sample.len()).div_ceil(PARTS) - 1;
        let mut parts_ms = std::array::from_fn(|part| sample[end(part)]);
        parts_ms[PARTS - 1] = self.last_ms;
        Some(Expiries { entries: self.entries, first_ms: self.first_ms, parts_ms })
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    proptest! {
        #[test]
        fn stamps_come_back(at_ms in 0..=MILLIS_MAX, is_large: bool, rest in vec(any::<u8>(), 0..20)) {
            let stamp = Stamp { at_ms, is_large };
            let value = [&stamp.encode()[..], &rest].concat();
            prop_assert_eq!(Stamp::split(&value), Some((stamp, &rest[..])));
            prop_assert_eq!(Stamp::split(&value[..STAMP_BYTES - 1]), None);
        }

        #[test]
        fn a_table_knows_when_its_entries_expire(times in vec(0..100_000_u64, 1..5000), now in 0..100_000_u64) {
            let mut builder = ExpiriesBuilder::default();
            times.iter().for_each(|at| builder.add(*at));
            let built = builder.finish().unwrap();
            prop_assert_eq!(Expiries::decode(&built.encode()), Some(built));
            prop_assert_eq!(built.entries, times.len() as u64);
            prop_assert_eq!(Some(&built.first_ms), times.iter().min());
            prop_assert_eq!(Some(&built.last_ms()), times.iter().max());
            // Never none while there are some, nor all before the last.
            prop_assert!(built.expired(now) == 0 || now >= built.first_ms);
            prop_assert!(built.expired(now) < built.entries || now >= built.last_ms());
            let exact = times.iter().filter(|at| **at <= now).count() as f64 / times.len() as f64;
            let estimate = built.expired(now) as f64 / built.entries as f64;
            // The times of a sample of at least 512 deviate by a few per cent; few are coarse.
            let most = 0.15 + 1.0 / times.len() as f64;
            prop_assert!((exact - estimate).abs() <= most, "{} for {}", estimate, exact);
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(words in vec(any::<u64>(), 10)) {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            if let Some(read) = Expiries::decode(bytes.as_slice().try_into().unwrap()) {
                prop_assert_eq!(&read.encode()[..], &bytes[..]);
                let _ = read.expired(words[0]);
            }
        }
    }

    #[test]
    fn no_stamps_are_nothing() {
        assert_eq!(ExpiriesBuilder::default().finish(), None);
        assert_eq!(Expiries::decode(&[0; Expiries::BYTES]), None);
    }
}
