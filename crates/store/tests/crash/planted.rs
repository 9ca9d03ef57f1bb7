//! Bugs that are put into the engine from outside, by a disk that ignores some syncs. If the
//! harness did not find each of them, it would not find them in the engine either.

use rhumb::io::sim::{CallKind, Matcher, SimFs};

use super::cuts::{run_guarded, run_history};

/// The number of cuts within which a planted bug must be found.
const CUTS_MAX: u64 = 1_000;

fn assert_found(lie: &Matcher) {
    let prepare = |fs: &SimFs| fs.lie_about(lie.clone());
    let cuts_per_history = 10;
    let histories = 0..CUTS_MAX / cuts_per_history;
    let found = histories
        .into_iter()
        .any(|seed| run_guarded(|| run_history(seed, cuts_per_history, prepare)).is_err());
    assert!(found, "{CUTS_MAX} cuts did not show a skipped {lie:?}");
}

#[test]
fn planted_log_that_is_not_synced() {
    assert_found(
        &Matcher::any().kinds(&[CallKind::SyncData, CallKind::SyncAll]).name_suffix(".log"),
    );
}

#[test]
fn planted_directory_that_is_not_synced() {
    assert_found(&Matcher::any().kinds(&[CallKind::SyncDir]));
}

#[test]
fn planted_tables_that_are_not_synced() {
    assert_found(
        &Matcher::any().kinds(&[CallKind::SyncData, CallKind::SyncAll]).name_suffix(".sst"),
    );
}

#[test]
fn planted_shared_files_that_are_not_synced() {
    assert_found(
        &Matcher::any().kinds(&[CallKind::SyncData, CallKind::SyncAll]).name_suffix(".set"),
    );
}

#[test]
fn planted_value_files_that_are_not_synced() {
    assert_found(
        &Matcher::any().kinds(&[CallKind::SyncData, CallKind::SyncAll]).name_suffix(".val"),
    );
}

#[test]
fn planted_manifest_that_is_not_synced() {
    assert_found(
        &Matcher::any().kinds(&[CallKind::SyncData, CallKind::SyncAll]).name_contains("MANIFEST"),
    );
}
