//! A short form of the fuzzing: the seeds, and the seeds changed at random.
//! `RHUMB_FUZZ_SECONDS=n` goes on for that long with each target.

use super::{TARGETS, seeds};
use crate::{
    table::{KeyHash, block::BlockBuilder},
    types::Kind,
};

/// Mutants that each target is tried with.
const MUTANTS: u64 = 256;

/// Mutants of a history, which opens databases and writes to them: each takes some 10 ms without
/// optimization.
const HISTORIES: u64 = 100;

/// Runs the target over its seeds, and over mutants of them.
fn run(name: &'static str) {
    let mutants = if matches!(name, "cursor" | "transactions") { HISTORIES } else { MUTANTS };
    let (_, target) = TARGETS.into_iter().find(|(known, _)| *known == name).unwrap();
    rhumb_testkit::fuzzing::run(name, &seeds(name), mutants, target);
}

#[test]
fn blocks_keep_their_promises() {
    run("block");
}

#[test]
fn indexes_keep_their_promises() {
    run("index");
}

#[test]
fn tables_keep_their_promises() {
    run("table");
}

#[test]
fn logs_keep_their_promises() {
    run("log");
}

#[test]
fn manifests_keep_their_promises() {
    run("manifest");
}

#[test]
fn dumps_keep_their_promises() {
    run("dump");
}

#[test]
fn salvages_keep_their_promises() {
    run("salvage");
}

#[test]
fn backups_keep_their_promises() {
    run("backup");
}

#[test]
fn cursors_keep_their_promises() {
    run("cursor");
}

#[test]
fn transactions_keep_their_promises() {
    run("transactions");
}

/// Found by fuzzing: a check of a database added, without a bound, the length that a pointer
/// claims. The pointer's entry was hidden by another of the same key and number.
#[test]
fn a_hidden_entry_may_claim_any_length() {
    let mut builder = BlockBuilder::new(16);
    let tag = KeyHash::of(b"k").tag();
    builder.add(b"k", tag, 7, Kind::Value, b"v");
    builder.add(b"k", tag, 7, Kind::LargeValue, &[0xff; 24]);
    let mut input = vec![0, 0, 0];
    builder.finish(&mut input);
    super::block(&input);
}
