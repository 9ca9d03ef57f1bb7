//! Bugs of transactions: of what they see of their own writes, and of what they conflict with.

use super::Bug;
use crate::verify::Suite::Transactions;

const CHECK: &str = "crates/store/src/db/transaction/check.rs";
const HISTORY: &str = "crates/store/src/db/transaction/history.rs";
const ITER: &str = "crates/store/src/db/transaction/iter.rs";
const PENDING: &str = "crates/store/src/db/transaction/pending.rs";
const READS: &str = "crates/store/src/db/transaction/reads.rs";
const WRITE: &str = "crates/store/src/db/write.rs";

/// All of them.
pub(super) static BUGS: [Bug; 8] = [
    Bug {
        name: "a transaction is not checked against others of its group",
        file: HISTORY,
        anchor: Some("transaction-group"),
        sound: "group.find_map(|record| {",
        broken: "group.find(|_| false).and_then(|record| {",
        suite: Transactions,
        test: "histories",
    },
    Bug {
        name: "a commit is not kept for open transactions",
        file: WRITE,
        anchor: Some("transaction-commit-kept"),
        sound: "state.history.record(&record, next - 1);",
        broken: "",
        suite: Transactions,
        test: "model",
    },
    Bug {
        name: "commits are forgotten too early",
        file: HISTORY,
        anchor: Some("transaction-forgotten"),
        sound: "self.floor = event.seq;",
        broken: "",
        suite: Transactions,
        test: "that_is_open_too_long",
    },
    Bug {
        name: "a range that was read has no phantoms",
        file: CHECK,
        anchor: Some("transaction-phantom"),
        sound: "is_key || self.ranges.iter().any(contains)",
        broken: "is_key || { let _ = contains; false }",
        suite: Transactions,
        test: "phantom",
    },
    Bug {
        name: "a walk from the back does not depend on the key where it ends",
        file: READS,
        anchor: Some("transaction-walked-back"),
        sound: "Bound::Included(Box::from(&key[..])), to",
        broken: "Bound::Excluded(Box::from(&key[..])), to",
        suite: Transactions,
        test: "what_it_has_passed",
    },
    Bug {
        name: "a range that is removed keeps the writes in it",
        file: PENDING,
        anchor: Some("transaction-removed-range"),
        sound: "self.writes.append(&mut after);",
        broken: "inside.append(&mut after);",
        suite: Transactions,
        test: "model",
    },
    Bug {
        name: "what a transaction has written does not hide what is stored",
        file: ITER,
        anchor: Some("transaction-hides"),
        sound: "self.stored.take(is_front);",
        broken: "return self.stored.take(is_front);",
        suite: Transactions,
        test: "model",
    },
    Bug {
        name: "a keyspace that was cleared is no conflict",
        file: HISTORY,
        anchor: Some("transaction-keyspace"),
        sound: "What::Keyspace(id) => checked.with_keyspace(*id),",
        broken: "What::Keyspace(id) => checked.with_keyspace(!*id),",
        suite: Transactions,
        test: "model",
    },
];
