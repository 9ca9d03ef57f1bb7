//! Bugs of keys that end: an end is told of twice or never, or a string is gone before.

use super::Bug;
use crate::verify::Suite::Sweeper;

/// All of them.
pub(super) static BUGS: [Bug; 9] = [
    Bug {
        name: "the sweeper passes what is being committed",
        file: "crates/server/src/swept.rs",
        anchor: Some("ends-held"),
        sound: "entry(held_ms)",
        broken: "entry(u64::MAX)",
        suite: Sweeper,
        test: "the_sweeper_stays_below",
    },
    Bug {
        name: "a string whose end was told is there while the clock is back",
        file: "crates/server/src/swept.rs",
        anchor: Some("ends-told"),
        sound: "has_told(key, entry)",
        broken: "has_told(key, &[])",
        suite: Sweeper,
        test: "strings_that_end",
    },
    Bug {
        name: "marks below the place are not found while the clock is back",
        file: "crates/server/src/swept.rs",
        anchor: Some("ends-back"),
        sound: "place.0.as_slice() > end",
        broken: "place.0.is_empty()",
        suite: Sweeper,
        test: "strings_that_end",
    },
    Bug {
        name: "the mark of a string vanishes before it",
        file: "crates/server/src/swept.rs",
        anchor: Some("ends-before-mark"),
        sound: "Step::MarkAndTell",
        broken: "Step::Tell",
        suite: Sweeper,
        test: "a_string_that_outlives_its_mark",
    },
    Bug {
        name: "the clock passes a database that is not swept",
        file: "crates/server/src/db.rs",
        anchor: Some("ends-clock"),
        sound: ".min()",
        broken: ".max()",
        suite: Sweeper,
        test: "the_clock_waits",
    },
    Bug {
        name: "a string that the engine drops stays in the count",
        file: "crates/server/src/sweep.rs",
        anchor: Some("ends-count"),
        sound: "told > 0",
        broken: "told > 1000",
        suite: Sweeper,
        test: "strings_that_end",
    },
    Bug {
        name: "a string whose end was told leaves the count twice",
        file: "crates/server/src/commit/mod.rs",
        anchor: Some("ends-counted-twice"),
        sound: "!db.swept.has_told(key, before)",
        broken: "true",
        suite: Sweeper,
        test: "strings_that_end",
    },
    Bug {
        name: "a string that the sweeper has passed is left to the engine",
        file: "crates/server/src/commit/left.rs",
        anchor: Some("ends-passed"),
        sound: "!is_passed(ends_ms)",
        broken: "true",
        suite: Sweeper,
        test: "late",
    },
    Bug {
        name: "marks that another program's clock took away are not written anew",
        file: "crates/server/src/db.rs",
        anchor: Some("ends-lost-marks"),
        sound: "> reserved_ms",
        broken: "== u64::MAX",
        suite: Sweeper,
        test: "strings_that_end",
    },
];
