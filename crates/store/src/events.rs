//! What the engine reports of its work: the only door to the crate `tracing`, which the feature
//! `tracing` brings. Without the feature nothing is reported and nothing is pulled in.
//!
//! A subscriber runs in the thread that works, partly under the engine's locks: it must be quick
//! and must not call the database.

use std::time::Instant;

use crate::error::Error;

/// Work that takes time: what is reported during it belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Recovery,
    Flush,
    Compaction,
    Backup,
    Checkpoint,
}

/// One thing that has happened. Lengths are in bytes.
#[derive(Debug)]
#[cfg_attr(not(feature = "tracing"), expect(dead_code, reason = "there is no reader of events"))]
pub(crate) enum Event<'a> {
    /// The log was replayed and the database is open.
    Recovered { records: u64, keyspaces: u64 },
    /// A memtable became tables.
    Flushed { bytes_in: u64, bytes_out: u64, tables: u64 },
    /// Tables of an LSM tree were merged into others, on `level`.
    Merged {
        keyspace: &'a str,
        level: u64,
        bytes_in: u64,
        bytes_out: u64,
        tables_in: u64,
        tables_out: u64,
    },
    /// A point was added to a backup.
    BackedUp { number: u64, files: u64, copied_bytes: u64 },
    /// A checkpoint was made.
    Checkpointed { files: u64 },
    /// A writer waited for a flush.
    Stalled,
    /// Writers were slowed down because compactions lag.
    Delayed,
    /// The log was synced.
    Synced,
    /// Work of the background failed, and will be tried again.
    Failed { error: &'a Error },
    /// No write is taken until the database is reopened.
    Stopped { cause: &'a Error },
}

/// Work in progress; ends when it is dropped.
pub(crate) struct Span {
    began: Instant,
    #[cfg(feature = "tracing")]
    _entered: tracing::span::EnteredSpan,
}

impl Span {
    /// Begins work.
    pub(crate) fn enter(work: Work) -> Self {
        #[cfg(not(feature = "tracing"))]
        let _ = work;
        Self {
            began: Instant::now(),
            #[cfg(feature = "tracing")]
            _entered: reports::span_of(work).entered(),
        }
    }

    /// Reports the end of the work.
    pub(crate) fn report(&self, event: &Event<'_>) {
        event.report(self.began.elapsed());
    }
}

#[cfg(not(feature = "tracing"))]
impl Event<'_> {
    /// Reports what took `duration`.
    #[inline]
    pub(crate) fn report(&self, _duration: std::time::Duration) {}
}

/// Returns true if the ends of compactions are reported, so that their figures are worth finding.
pub(crate) fn are_wanted() -> bool {
    #[cfg(feature = "tracing")]
    return tracing::enabled!(target: "rhumb", tracing::Level::DEBUG);
    #[cfg(not(feature = "tracing"))]
    false
}

#[cfg(feature = "tracing")]
mod reports {
    use std::time::Duration;

    use tracing::{Span, debug, error, info, info_span, warn};

    use crate::events::{Event, Work};

    /// A sync of the log that takes this long is a warning: ten times what a hard disk takes.
    const SLOW_SYNC: Duration = Duration::from_millis(100);

    pub(super) fn span_of(work: Work) -> Span {
        match work {
            Work::Recovery => info_span!(target: "rhumb", "recovery"),
            Work::Flush => info_span!(target: "rhumb", "flush"),
            Work::Compaction => info_span!(target: "rhumb", "compaction"),
            Work::Backup => info_span!(target: "rhumb", "backup"),
            Work::Checkpoint => info_span!(target: "rhumb", "checkpoint"),
        }
    }

    impl Event<'_> {
        /// Reports what took `duration`.
        pub(crate) fn report(&self, duration: Duration) {
            let duration_us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
            match *self {
                Self::Recovered { records, keyspaces } => {
                    info!(target: "rhumb", records, keyspaces, duration_us, "recovered");
                }
                Self::Flushed { bytes_in, bytes_out, tables } => {
                    info!(target: "rhumb", bytes_in, bytes_out, tables, duration_us, "flushed");
                }
                Self::Merged { keyspace, level, bytes_in, bytes_out, tables_in, tables_out } => {
                    debug!(
                        target: "rhumb",
                        keyspace, level, bytes_in, bytes_out, tables_in, tables_out, duration_us,
                        "compacted"
                    );
                }
                Self::BackedUp { number, files, copied_bytes } => {
                    info!(target: "rhumb", number, files, copied_bytes, duration_us, "backed up");
                }
                Self::Checkpointed { files } => {
                    info!(target: "rhumb", files, duration_us, "checkpointed");
                }
                Self::Stalled => warn!(target: "rhumb", duration_us, "write stalled"),
                Self::Delayed => debug!(target: "rhumb", duration_us, "writes delayed"),
                Self::Synced if duration >= SLOW_SYNC => {
                    warn!(target: "rhumb", duration_us, "slow sync");
                }
                Self::Synced => debug!(target: "rhumb", duration_us, "synced"),
                Self::Failed { error } => {
                    error!(target: "rhumb", %error, "background work failed");
                }
                Self::Stopped { cause } => error!(target: "rhumb", %cause, "writes stopped"),
            }
        }
    }
}
