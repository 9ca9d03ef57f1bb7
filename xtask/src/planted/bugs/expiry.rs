//! Bugs of expiry: what has expired is seen, or what it has hidden, or what lives is not.

use super::Bug;
use crate::verify::Suite::Expiry;

/// All of them.
pub(super) static BUGS: [Bug; 8] = [
    Bug {
        name: "a table that has expired is dropped from above older entries",
        file: "crates/store/src/compaction/expired.rs",
        anchor: Some("expiry-drop-reveals"),
        sound: "if older(levels, level, table).all(is_found) {",
        broken: "if older(levels, level, table).all(|other| is_found(other) || true) {",
        suite: Expiry,
        test: "what_was_written_over",
    },
    Bug {
        name: "a merge leaves out what has expired from above older entries",
        file: "crates/store/src/compaction/merge.rs",
        anchor: Some("expiry-merge-reveals"),
        sound: "&& !merge.may_hide(entry.key());",
        broken: ";",
        suite: Expiry,
        test: "model",
    },
    Bug {
        name: "what has expired is left out although a snapshot sees it",
        file: "crates/store/src/version/snapshots.rs",
        anchor: Some("expiry-snapshot-time"),
        sound: "now_ms.min(earliest)",
        broken: "now_ms.max(earliest)",
        suite: Expiry,
        test: "keeps_what_has_expired",
    },
    Bug {
        name: "what has expired is recorded as dead for readers with an earlier time",
        file: "crates/store/src/iter/walk.rs",
        anchor: Some("expiry-recorded-dead"),
        sound: "self.merge.record_living_key(key);",
        broken: "let _ = key; if true { return self.step_over_dead(); }",
        suite: Expiry,
        test: "a_snapshot_sees_what_many_others_have_passed",
    },
    Bug {
        name: "the clock goes back with the system's",
        file: "crates/store/src/db/shared.rs",
        anchor: Some("expiry-clock-back"),
        sound: "return latest;",
        broken: "return now;",
        suite: Expiry,
        test: "model",
    },
    Bug {
        name: "the clock is not kept over a restart",
        file: "crates/store/src/db/catalog.rs",
        anchor: Some("expiry-clock-kept"),
        sound: "(ms > self.state.clock_ms).then_some",
        broken: "(ms > u64::MAX - 1).then_some",
        suite: Expiry,
        test: "over_a_restart",
    },
    Bug {
        name: "an entry is seen in the millisecond in which it expires",
        file: "crates/store/src/expiry.rs",
        anchor: Some("expiry-millisecond"),
        sound: "self.at_ms <= now_ms",
        broken: "self.at_ms < now_ms",
        suite: Expiry,
        test: "at_its_millisecond",
    },
    Bug {
        name: "a transaction sees its own writes that have expired",
        file: "crates/store/src/db/transaction/pending.rs",
        anchor: Some("expiry-pending"),
        sound: "at_ms > now_ms",
        broken: "at_ms > now_ms || true",
        suite: Expiry,
        test: "model",
    },
];
