//! What a host counts of its clients: what they say of their reads, and what they call it for.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use crate::message::{GetCounts, Request};

/// The most of one count that a client is believed to have come to since its last renewal: more
/// than a machine reads in an hour. One that claims more is wrong or means harm.
const BELIEVED_MAX: u64 = 1 << 40;

/// What calls are counted by, in the order of [`kind_of`].
const KINDS: [&str; 15] = [
    "open",
    "get",
    "multi_get",
    "scan",
    "write",
    "compare_and_swap",
    "batch",
    "read",
    "read_many",
    "directory",
    "consult",
    "renew",
    "pieces",
    "routing",
    "attach",
];

/// The kind of a call; `None` for what begins and ends a connection.
fn kind_of(request: &Request<'_>) -> Option<usize> {
    Some(match request {
        Request::Hello { .. } | Request::Goodbye => return None,
        Request::Open { .. } => 0,
        Request::Get { .. } => 1,
        Request::MultiGet { .. } => 2,
        Request::Scan { .. } => 3,
        Request::Insert { .. } | Request::Remove { .. } => 4,
        Request::CompareAndSwap { .. } => 5,
        Request::Batch { .. } => 6,
        Request::Read { .. } => 7,
        Request::ReadMany { .. } => 8,
        Request::Top { .. } | Request::Block { .. } => 9,
        Request::Consult { .. } => 10,
        Request::Renew { .. } => 11,
        Request::Pieces { .. } => 12,
        Request::Routing { .. } => 13,
        Request::Attach { .. } | Request::AttachCalls { .. } | Request::RemoteSegments { .. } => 14,
    })
}

/// What clients reported of their gets in a keyspace.
#[derive(Debug, Default)]
pub(super) struct Gets([AtomicU64; 7]);

impl Gets {
    /// Adds what a client reports.
    pub(super) fn add(&self, counts: &GetCounts) {
        let counts = counts.each();
        if counts.iter().all(|count| *count <= BELIEVED_MAX) {
            self.0
                .iter()
                .zip(counts)
                .for_each(|(total, count)| _ = total.fetch_add(count, Relaxed));
        }
    }

    /// The sums so far.
    pub(super) fn totals(&self) -> GetCounts {
        GetCounts::of(std::array::from_fn(|at| self.0[at].load(Relaxed)))
    }
}

/// Calls of one client that were answered together.
#[derive(Debug, Default)]
pub(super) struct Calls([u32; KINDS.len()]);

impl Calls {
    pub(super) fn add(&mut self, request: &Request<'_>) {
        if let Some(kind) = kind_of(request) {
            self.0[kind] += 1;
        }
    }
}

/// The figures of a host.
#[derive(Debug, Default)]
pub(super) struct Tally {
    calls: [AtomicU64; KINDS.len()],
    calls_ns: AtomicU64,
    sessions: AtomicU64,
    refused: AtomicU64,
    overdue: AtomicU64,
    leases_lost: AtomicU64,
    /// When the host last said that it is there; 0 if it never did.
    beat_ms: AtomicU64,
}

impl Tally {
    /// Adds calls that took so long together.
    pub(super) fn add(&self, calls: &Calls, took: Duration) {
        for (total, count) in self.calls.iter().zip(calls.0) {
            if count > 0 {
                total.fetch_add(count.into(), Relaxed);
            }
        }
        self.calls_ns.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Counts a connection, and if it is one too many.
    pub(super) fn count_session(&self, is_refused: bool) {
        self.sessions.fetch_add(1, Relaxed);
        self.refused.fetch_add(is_refused.into(), Relaxed);
    }

    /// Counts a connection that is closed because its client is too slow.
    pub(super) fn count_overdue(&self) {
        self.overdue.fetch_add(1, Relaxed);
    }

    /// Takes note of a time at which the host says that it is there, for the next `lease_ms`
    /// milliseconds.
    pub(super) fn count_beat(&self, now_ms: u64, lease_ms: u32) {
        let before = self.beat_ms.swap(now_ms, Relaxed);
        let is_late = before > 0 && now_ms.saturating_sub(before) > lease_ms.into();
        self.leases_lost.fetch_add(is_late.into(), Relaxed);
    }

    /// The figures, with the number of connections that there are.
    pub(super) fn stats(&self, sessions: usize) -> HostStats {
        HostStats {
            sessions: sessions as u64,
            sessions_total: self.sessions.load(Relaxed),
            sessions_refused: self.refused.load(Relaxed),
            sessions_overdue: self.overdue.load(Relaxed),
            leases_lost: self.leases_lost.load(Relaxed),
            calls: std::array::from_fn(|kind| (KINDS[kind], self.calls[kind].load(Relaxed))),
            calls_ns: self.calls_ns.load(Relaxed),
        }
    }
}

/// What a host counts of all its clients together, since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostStats {
    /// Connections that there are now.
    pub sessions: u64,
    /// Connections that there were.
    pub sessions_total: u64,
    /// Of these, connections that were refused for a limit or a user.
    pub sessions_refused: u64,
    /// Of these, connections that were closed because the client stopped amid a message, or was
    /// kept too much for.
    pub sessions_overdue: u64,
    /// Times that the host was held up for longer than its lease, so that clients which read its
    /// memory asked it meanwhile.
    pub leases_lost: u64,
    /// Calls by what they ask for.
    pub calls: [(&'static str, u64); KINDS.len()],
    /// Nanoseconds that answering all calls took together, waits of writes for a disk included.
    pub calls_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_lost_when_a_beat_is_late() {
        let tally = Tally::default();
        let lost = || tally.stats(0).leases_lost;
        for (now_ms, expected) in [(50_000, 0), (51_000, 0), (52_001, 1), (52_100, 1), (99_000, 2)]
        {
            tally.count_beat(now_ms, 1_000);
            assert_eq!(lost(), expected, "{now_ms}");
        }
    }

    #[test]
    fn calls_of_every_kind_are_told() {
        let names = Tally::default().stats(0).calls.map(|(name, _)| name);
        assert_eq!(names, KINDS);
    }

    #[test]
    fn what_nobody_can_have_read_is_not_added() {
        let gets = Gets::default();
        gets.add(&GetCounts::of([1, 2, 3, 4, 5, 6, 7]));
        gets.add(&GetCounts::of([1, 2, 3, 4, 5, 6, BELIEVED_MAX + 1]));
        gets.add(&GetCounts::of([BELIEVED_MAX, 0, 0, 0, 0, 0, 1]));
        assert_eq!(gets.totals(), GetCounts::of([BELIEVED_MAX + 1, 2, 3, 4, 5, 6, 8]));
    }
}
