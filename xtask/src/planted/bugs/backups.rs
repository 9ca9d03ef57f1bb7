//! Bugs of backups: a point that is not whole, or one of another backup that is replaced.

use super::Bug;
use crate::verify::Suite::Backups;

/// All of them.
pub(super) static BUGS: [Bug; 5] = [
    Bug {
        name: "a point is added without a look at its files",
        file: "crates/store/src/db/backup/kept.rs",
        anchor: Some("backup-no-look"),
        sound: "!is_there(&files, file)",
        broken: "!is_there(&files, file) && false",
        suite: Backups,
        test: "every_listed_point",
    },
    Bug {
        name: "a file that the bucket has lost is not sent again",
        file: "crates/store/src/db/backup/mod.rs",
        anchor: Some("backup-known-lost"),
        sound: "is_there(there, file)",
        broken: "is_there(there, file) || true",
        suite: Backups,
        test: "damage_and_losses",
    },
    Bug {
        name: "files of a point that was not removed are removed",
        file: "crates/store/src/db/backup/kept.rs",
        anchor: Some("backup-unknown-point"),
        sound: "!is_known(n)",
        broken: "!is_known(n) && false",
        suite: Backups,
        test: "every_listed_point",
    },
    Bug {
        name: "a point of another backup is replaced",
        file: "crates/store/src/db/backup/bucket.rs",
        anchor: Some("backup-replaced"),
        sound: "PutMode::Create",
        broken: "PutMode::Overwrite",
        suite: Backups,
        test: "is_not_replaced",
    },
    Bug {
        name: "an upload in parts forgets a part that failed",
        file: "crates/store/src/db/backup/bucket.rs",
        anchor: Some("backup-lost-part"),
        sound: "sent.map_err(|error| self.failure(\"put a part of\", name, error))?;",
        broken: "drop(sent);",
        suite: Backups,
        test: "long_files",
    },
];
