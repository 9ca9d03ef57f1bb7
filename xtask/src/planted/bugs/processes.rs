//! Bugs of the remote tier, and of what the engine gives it, that need several processes or a store
//! to be caught.

use super::Bug;
use crate::verify::Suite::{Processes, Proofs, Share, Taps};

const ATOMIC: &str = "crates/remote/src/client/atomic.rs";
const FOLLOW: &str = "crates/share/src/follow.rs";
const GROUP: &str = "crates/remote/src/host/group.rs";
const MAPPED: &str = "crates/remote/src/client/keyspace/mapped.rs";
const SESSION: &str = "crates/remote/src/host/session.rs";
const SWAP: &str = "crates/store/src/db/swap.rs";
const TAP: &str = "crates/store/src/db/tap.rs";

/// All of them, those of a suite together.
pub(super) static BUGS: [Bug; 10] = [
    Bug {
        name: "a lease has no end",
        file: MAPPED,
        anchor: Some("lease-no-end"),
        sound: "clock::now_ms().abs_diff(beat) <= self.lease_ms",
        broken: "beat != 0",
        suite: Processes,
        test: "a_host_that_is_killed_is_not_read",
    },
    Bug {
        name: "a swap makes its change whatever it has found",
        file: GROUP,
        anchor: Some("swap-makes-change-whatever-found"),
        sound: "{",
        broken: "|| expected.is_some() {",
        suite: Proofs,
        test: "histories_of_clients_are_linearizable",
    },
    Bug {
        name: "the changes of a batch are made one by one",
        file: SESSION,
        anchor: Some("changes-batch-made"),
        sound: "share.authority().commit(&changes)?;",
        broken: "for change in &changes {\n                share.authority().commit(std::slice::from_ref(change))?;\n            }",
        suite: Proofs,
        test: "readers_beside_writers_of_a_volatile_keyspace",
    },
    Bug {
        name: "what is to be of one moment is read leaf by leaf over TCP",
        file: SESSION,
        anchor: Some("moment-read-leaf-leaf-over"),
        sound: "&& !is_atomic",
        broken: "| is_atomic && self.is_apart",
        suite: Proofs,
        test: "readers_beside_writers_of_a_volatile_keyspace",
    },
    Bug {
        name: "a reader does not look at the heartbeat",
        file: MAPPED,
        anchor: Some("reader-not-look-at-heartbeat"),
        sound: "clock::now_ms().abs_diff(beat) <= self.lease_ms",
        broken: "beat < u64::MAX",
        suite: Share,
        test: "clients_read_what_is_there",
    },
    Bug {
        name: "states are not compared in an atomic read",
        file: ATOMIC,
        anchor: Some("states-not-compared-atomic-read"),
        sound: "&& reading.reader.are_unchanged(&states)",
        broken: "",
        suite: Share,
        test: "batches_are_read_whole",
    },
    Bug {
        name: "a share goes on after its keyspace was reset",
        file: FOLLOW,
        anchor: Some("share-goes-after-keyspace-reset"),
        sound: "self.to.reset();",
        broken: "",
        suite: Share,
        test: "clients_read_what_is_there",
    },
    Bug {
        name: "a keyspace is chosen before its load begins",
        file: FOLLOW,
        anchor: Some("keyspace-chosen-before-load-begins"),
        sound: "Some(load) = self.publisher.begin_load() else { return Ok(None) };\n        let keyspace = (self.source.keyspace)().map_err(|error| told(&error))?",
        broken: "keyspace = (self.source.keyspace)().map_err(|error| told(&error))?;\n        let Some(load) = self.publisher.begin_load() else { return Ok(None) }",
        suite: Share,
        test: "a_choice_that_is_out_of_date_is_not_loaded",
    },
    Bug {
        name: "a tap is not told that its keyspace was cleared",
        file: TAP,
        anchor: Some("tap-not-told-keyspace-cleared"),
        sound: "registered.tap.reset();",
        broken: "",
        suite: Taps,
        test: "a_tap_sees_every_change",
    },
    Bug {
        name: "a swap does not look at its key again under the lock",
        file: SWAP,
        anchor: Some("swap-not-look-at-key"),
        sound: "Ok(if has_expected()? { Answer::Swapped } else { Answer::Kept }",
        broken: "drop(has_expected);\n    Ok(Answer::Swapped",
        suite: Taps,
        test: "one_swap_of_several_at_a_time_succeeds",
    },
];
